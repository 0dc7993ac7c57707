//! The mount of the disks, whose calls a reactor takes.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{Config, Filesystem, KernelConfig, Request, Session};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::calls::{CallRouter, Calls};
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
pub(crate) struct DiskMount {
    session: Arc<Mutex<Option<Session<Greeter>>>>,
}

impl Drop for DiskMount {
    fn drop(&mut self) {
        unmount(&self.session);
    }
}

/// Unmounts the disks, unless that was done.
fn unmount(session: &Mutex<Option<Session<Greeter>>>) {
    let session = session.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(session);
}

impl DiskMount {
    /// Mounts the disks at a folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(
        folder: &Path,
        files: Files,
        disks: &Arc<Disks>,
        config: &Config,
    ) -> io::Result<DiskMount> {
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
        // It answers all calls but those that move bytes, and ends with the mount. With it goes its
        // end of the socket, by which the reactor learns of an end before.
        let answer = move || {
            if let Err(error) = library.run() {
                tracing::debug!(%error, "the library takes no calls for the disks any more");
            }
        };
        std::thread::Builder::new().name(String::from("weir-dev")).spawn(answer)?;
        let session = Arc::new(Mutex::new(Some(session)));
        let mounted = Arc::clone(&session);
        let unmount = Arc::new(move || unmount(&mounted));
        let router = CallRouter::new(Arc::clone(disks), Arc::new(Link::new(kernel)), ours, unmount);
        let (host, reactor) = (disks.host(), disks.reactor());
        let mut calls = Some(Calls::install(host, reactor, router)?);
        disks.on_migration(Box::new(move |host, reactor| {
            calls = calls.take().and_then(|calls| Calls::move_to(&calls, host, reactor));
        }));
        Ok(DiskMount { session })
    }
}
