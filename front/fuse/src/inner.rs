//! The mount of the disks, whose calls a reactor takes.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, Filesystem, KernelConfig, Request, Session};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::calls::{Calls, Taker};
use crate::disks::Disks;
use crate::files::{Files, agree};
use crate::wire::{Link, greeting};

/// Agrees with the kernel, and takes no call afterwards.
struct Greeter;

impl Filesystem for Greeter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        agree(config);
        Ok(())
    }
}

/// The mounted disks. Dropping it unmounts them.
pub(crate) struct Inner {
    _session: Session<Greeter>,
    /// The thread that answers all calls but those that move bytes. It ends with the mount.
    _library: BackgroundSession,
}

impl Inner {
    /// Mounts the disks at a folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(
        folder: &Path,
        files: Files,
        disks: &Arc<Disks>,
        config: &Config,
    ) -> io::Result<Inner> {
        let session = Session::new(Greeter, folder, config)?;
        let kernel = session.as_fd().try_clone_to_owned()?;
        fcntl_setfl(&kernel, fcntl_getfl(&kernel)? | OFlags::NONBLOCK)?;
        // Each call is a message of its own, as in `/dev/fuse`.
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
        send(&ours, &greeting(), SendFlags::NOSIGNAL)?;
        let library = Session::from_fd(files, theirs, config.acl, config.clone())?;
        // What it agrees to is said already.
        recv(&ours, &mut [0; 4096][..], RecvFlags::empty())?;
        let library = library.spawn()?;
        let taker = Taker::new(Arc::clone(disks), Arc::new(Link::new(kernel)), ours);
        let (host, reactor) = (disks.host(), disks.reactor());
        let mut calls = Some(Calls::install(host, reactor, taker)?);
        disks.on_move(Box::new(move |host, reactor| {
            calls = calls.take().and_then(|calls| Calls::move_to(&calls, host, reactor));
        }));
        Ok(Inner { _session: session, _library: library })
    }
}
