//! The old daemon's side, as long as it serves.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use weir::{Limited, Target};
use weir_access::{Peer, send_descriptors};
use weir_control::wire::encode_answer;
use weir_control::{Applicant, Errno, Failure, Tree};
use weir_front::Front;
use weir_queue::Keeps;

use crate::reload::Latest;
use crate::served::Served;

use super::{Offer, PROTOCOL, Sockets, Spot, hear, say, word};

/// How long the new daemon may take for its next word.
const WORD_LIMIT: Duration = Duration::from_secs(10);

/// The byte that tells the main thread of a daemon that is to be replaced. No signal writes it.
pub(crate) const REPLACED: u8 = b'r';

/// The place of a running daemon, for another that asks for it.
pub(crate) struct Place {
    pub(crate) fronts: Vec<Arc<dyn Front>>,
    pub(crate) served: Arc<Served>,
    pub(crate) latest: Arc<Mutex<Latest>>,
    /// Why it cannot be replaced at all.
    pub(crate) obstacle: Option<String>,
    pub(crate) stop_timeout: Duration,
}

/// A daemon that was told to go ahead.
pub(crate) struct Handed {
    pub(super) stream: UnixStream,
    pub(super) sockets: Sockets,
    /// The process of the new one.
    pub(super) process: OwnedFd,
    pub(super) number: i32,
}

impl fmt::Display for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.number)
    }
}

/// The one daemon at a time that is talked with.
#[derive(Default)]
struct Talk {
    busy: AtomicBool,
    given: Mutex<Option<Handed>>,
    /// The daemon's own sockets are open: before, it has none to give.
    open: Mutex<bool>,
    opened: Condvar,
}

/// Where the main thread finds the daemon that it was told of.
pub(crate) struct Waiting(Arc<Talk>);

impl Waiting {
    /// The sockets are open: who asked meanwhile is talked with.
    pub(crate) fn open(&self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_all();
    }

    pub(crate) fn take(&self) -> Option<Handed> {
        self.0.given.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Place {
    /// Has `tree` give the place away to a daemon that asks for it: `bell` gets [`REPLACED`].
    pub(crate) fn offer(self, tree: &Tree, bell: UnixStream) -> Waiting {
        let talk = Arc::new(Talk::default());
        let theirs = Arc::clone(&talk);
        tree.on_replace(move |applicant| {
            let open = theirs.open.lock().unwrap_or_else(PoisonError::into_inner);
            drop(theirs.opened.wait_while(open, |open| !*open));
            if theirs.busy.swap(true, Ordering::AcqRel) {
                return Err(busy("another daemon is about to take its place"));
            }
            let given = self.talk(applicant);
            let goes = matches!(given, Ok(Some(_)));
            if let Ok(Some(given)) = given {
                *theirs.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(given);
                // A main thread that does not wait is stopping.
                let _ = (&bell).write_all(&[REPLACED]);
                return Ok(());
            }
            theirs.busy.store(goes, Ordering::Release);
            given.map(drop)
        });
        Waiting(talk)
    }

    /// Talks with a daemon that asks for the place; `None` if it went, or was told why not.
    fn talk(&self, applicant: Applicant) -> Result<Option<Handed>, Failure> {
        let Applicant { says, stream, control } = applicant;
        let number = self.check(&says, &stream)?;
        let refused = |error: io::Error| Failure::new(Errno::Io, format!("its sockets: {error}"));
        let process = Pid::from_raw(number).ok_or(rustix::io::Errno::SRCH);
        let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let process = process.map_err(|error| {
            let what = format!("your process, {number}, is not seen from here: {error}");
            Failure::new(Errno::Access, what)
        })?;
        let sockets = self.sockets(control).map_err(refused)?;
        match self.agree(&stream, &sockets) {
            Ok(true) => Ok(Some(Handed { stream, sockets, process, number })),
            Ok(false) => Ok(None),
            Err(error) => {
                tracing::info!("process {number} wanted this place, and went: {error}");
                Ok(None)
            }
        }
    }

    /// Whether a daemon may ask; its process.
    fn check(&self, says: &[u8], stream: &UnixStream) -> Result<i32, Failure> {
        let Peer::Process { uid, pid, .. } = Peer::of(stream) else {
            return Err(Failure::new(Errno::Access, "the system does not tell who you are"));
        };
        let own = geteuid().as_raw();
        if uid != own && uid != 0 {
            let what = format!("user {uid} may not replace a daemon of user {own}");
            return Err(Failure::new(Errno::Access, what));
        }
        let says = String::from_utf8_lossy(says);
        let (protocol, version) = says.split_once(' ').unwrap_or((&says, "of no version"));
        if protocol != PROTOCOL.to_string() {
            let own = env!("CARGO_PKG_VERSION");
            return Err(Failure::new(
                Errno::Invalid,
                format!(
                    "weir {version} hands over by protocol {protocol:?}, and this one, {own}, by \
                     {PROTOCOL}; stop it, and start the other"
                ),
            ));
        }
        if let Some(why) = self.obstacle.clone().or_else(|| self.memory()) {
            return Err(busy(&why));
        }
        for device in self.served.disks() {
            let disk = &device.config().name;
            let users = self.fronts.iter().map(|front| front.users(disk));
            let users: Vec<_> = users.filter(|users| users.unwarned).collect();
            if !users.is_empty() {
                let listed: Vec<_> = users.into_iter().flat_map(|users| users.listed).collect();
                let listed = listed.join(", ");
                return Err(busy(&format!("disk {disk} is used as a file, by {listed}")));
            }
        }
        Ok(pid)
    }

    /// A disk whose bytes would be lost, those that came with a reload as well.
    fn memory(&self) -> Option<String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.disks.iter().find_map(|disk| {
            let target = Target::parse(&disk.target()).ok()?;
            let memory = target.backing.keeps() == Keeps::WhileOpen;
            memory.then(|| format!("disk {} is memory of this daemon and would be lost", disk.name))
        })
    }

    fn sockets(&self, control: OwnedFd) -> io::Result<Sockets> {
        let mut sockets = Sockets { fronts: Vec::new(), control: Some(control) };
        for front in &self.fronts {
            for socket in front.sockets()? {
                let (front, passed) = (String::from(front.kind().name), socket.passed);
                let address = socket.address.to_string();
                sockets.fronts.push((Spot { front, address, passed }, socket.fd));
            }
        }
        Ok(sockets)
    }

    /// Tells what there is, sends the sockets, and looks whether all disks come to rest; whether
    /// the other one goes ahead.
    fn agree(&self, mut stream: &UnixStream, sockets: &Sockets) -> io::Result<bool> {
        stream.set_read_timeout(Some(WORD_LIMIT))?;
        stream.set_write_timeout(Some(WORD_LIMIT))?;
        let clients = self.fronts.iter().flat_map(|front| front.clients().clients());
        let mut used: Vec<String> = clients.map(|client| client.export).collect();
        used.sort_unstable();
        used.dedup();
        let offer = Offer {
            version: String::from(env!("CARGO_PKG_VERSION")),
            process: std::process::id(),
            // Each disk has the time of a stop to come to rest, and then all together once more.
            within_s: self.stop_timeout.as_secs() * (self.served.queues().len() as u64 + 1),
            sockets: sockets.spots(),
            used,
        };
        stream.write_all(&encode_answer(&Ok(serde_json::to_vec(&offer)?)))?;
        expect(stream, word::SOCKETS)?;
        send_descriptors(stream, &sockets.descriptors())?;
        expect(stream, word::GO)?;
        match self.rest() {
            Ok(()) => Ok(true),
            Err(why) => {
                tracing::warn!("this daemon is not replaced: {why}");
                say(stream, &format!("{}{why}", word::REFUSED))?;
                Ok(false)
            }
        }
    }

    /// Has each queue come to rest once, and go on: a disk that hangs is found before a client is
    /// disturbed.
    fn rest(&self) -> Result<(), String> {
        // The queue of a disk in a pool is the pool's.
        let queues = self.served.queues();
        for device in queues.iter().filter(|device| device.partition().is_none()) {
            let limit_ns = self.stop_timeout.as_nanos() as u64;
            let frozen = Limited::of(device).within(limit_ns).freeze();
            let frozen =
                frozen.map_err(|error| format!("disk {}: {error}", device.config().name))?;
            drop(frozen);
        }
        Ok(())
    }
}

fn busy(why: &str) -> Failure {
    Failure::new(Errno::Busy, why)
}

fn expect(stream: &UnixStream, word: &str) -> io::Result<()> {
    let line = hear(stream)?;
    if line == word {
        return Ok(());
    }
    let what = format!("{line:?} where {word:?} was to come");
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}
