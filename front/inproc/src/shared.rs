//! The state that all handles of a disk share, and the disk's end: the last handle that is dropped
//! closes it.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_bio::{Bio, Status};
use weir_live::{Clock, Door, Host, Unfinished};
use weir_queue::{Device, MapControl, QueueMode};

use crate::error::Bounds;
use crate::lease::Lease;
use crate::open::{Error, ErrorKind};
use crate::pending::Reply;

/// I/Os that go to one reactor before the next has its turn: neighbours stay together and merge.
const RUN: usize = 32;

/// Whether every reactor turns the device, however many queues it has.
pub(crate) fn everywhere(device: &Device) -> bool {
    device.config().mode == QueueMode::Sq && device.any_home()
}

/// The guard that the handles of a disk share. Dropped with the last handle, it closes the disk.
pub(crate) struct Open {
    pub(crate) shared: Arc<Shared>,
}

impl Deref for Open {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.shared.drops_aside && !self.shared.host.is_here() {
            return self.shared.close_or_log();
        }
        let shared = Arc::clone(&self.shared);
        let work = move || shared.close_or_log();
        if let Err(error) = std::thread::Builder::new().name("weir-close".into()).spawn(work) {
            tracing::error!(disk = self.name(), %error, "no thread to close the disk with");
        }
    }
}

/// The state that all handles of a disk share.
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) notices: Vec<String>,
    /// Bytes.
    pub(crate) size: u64,
    /// The logical block, bytes.
    pub(crate) block: u32,
    pub(crate) host: Arc<Host>,
    /// Whose the host is; none once the disk has left it.
    pub(crate) hosting: Mutex<Option<Hosting>>,
    /// At least one.
    pub(crate) doors: Vec<Door<Reply>>,
    /// How many of them lead to a reactor that has a lane: the first ones.
    pub(crate) homes: AtomicUsize,
    pub(crate) turn: AtomicUsize,
    pub(crate) close_limit: Duration,
    /// The drop of the last handle leaves the closing to a thread.
    pub(crate) drops_aside: bool,
    pub(crate) closed: Mutex<bool>,
    /// What a mapped disk is asked and told.
    pub(crate) map: Option<Arc<dyn MapControl>>,
    /// The disks that it lies on, until it is closed.
    pub(crate) legs: Mutex<Vec<Arc<Open>>>,
    /// The names of the disks that lie on it.
    pub(crate) carries: Mutex<Vec<String>>,
}

/// Whose the host of a disk is.
pub(crate) enum Hosting {
    /// The caller's.
    Given,
    /// The disk's.
    Own,
    /// That of all disks of the process that have none.
    Shared(Lease),
}

impl Hosting {
    /// That of a disk which was told of this host. The one that disks share is there as long as
    /// such a disk is.
    pub(crate) fn of(host: &Arc<Host>) -> Hosting {
        Lease::of(host).map_or(Hosting::Given, Hosting::Shared)
    }
}

/// Has each leg know that this disk lies on it.
///
/// # Errors
/// A leg that is closed.
pub(crate) fn carry(legs: &[Arc<Open>], name: &str) -> Result<(), Error> {
    for leg in legs {
        let closed = leg.closed.lock().expect("the lock of closing");
        if *closed {
            let what = format!("{name}: its disk {} is closed", leg.name());
            return Err(Error::of(ErrorKind::Closed, what));
        }
        leg.carries.lock().expect("the lock of the disks above").push(String::from(name));
    }
    Ok(())
}

/// The disk lies on these no more.
pub(crate) fn uncarry(legs: &[Arc<Open>], name: &str) {
    for leg in legs {
        let mut carries = leg.carries.lock().expect("the lock of the disks above");
        if let Some(at) = carries.iter().position(|above| above == name) {
            carries.remove(at);
        }
    }
}

impl Shared {
    pub(crate) fn name(&self) -> &str {
        &self.device.config().name
    }

    /// How an I/O ends that the disk refuses for its place.
    pub(crate) fn refusal(&self, bio: &Bio) -> Option<Status> {
        Bounds { block: self.block, size: self.size }.refusal(&self.device, bio)
    }

    /// The next number of a caller that is dealt out: a session's lane.
    pub(crate) fn next_lane(&self) -> usize {
        self.turn.fetch_add(RUN, Ordering::Relaxed) / RUN
    }

    pub(crate) fn door(&self) -> &Door<Reply> {
        &self.doors[self.next_door()]
    }

    /// The door for the next I/O, by number.
    pub(crate) fn next_door(&self) -> usize {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if turn.is_multiple_of(RUN) && !everywhere(&self.device) {
            // Not with each I/O: it takes a lock.
            let homes = self.doors.len().min(usize::from(self.device.queues()));
            self.homes.store(homes, Ordering::Relaxed);
        }
        turn / RUN % self.homes.load(Ordering::Relaxed)
    }

    /// The last handle is gone. Nothing would tell those who still wait if this panicked: a part
    /// of the program's, such as its driver, may.
    fn close_or_log(&self) {
        let closed = catch_unwind(AssertUnwindSafe(|| self.close()));
        let panicked = |_| Err(Error::new(format!("disk {}: the closing panicked", self.name())));
        if let Err(error) = closed.unwrap_or_else(panicked) {
            tracing::error!(disk = self.name(), %error, "the disk was not closed in order");
            let hosting = self.hosting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Hosting::Shared(lease)) = &*hosting {
                lease.gives_up();
            }
            drop(hosting);
            // A host of its own ends with it; another one goes on, without its waiting I/O.
            self.doors.iter().for_each(Door::remove);
        }
    }

    pub(crate) fn close(&self) -> Result<(), Error> {
        if self.host.is_here() {
            let name = self.name();
            return Err(Error::of(
                ErrorKind::OnReactor,
                format!("disk {name}: a reactor cannot close it, as it would wait for itself"),
            ));
        }
        let mut closed = self.closed.lock().expect("the lock of closing");
        if *closed {
            return Ok(());
        }
        if let Some(above) = self.carries.lock().expect("the lock of the disks above").first() {
            let name = self.name();
            return Err(Error::new(format!(
                "disk {name} is not closed: disk {above} lies on it and is open"
            )));
        }
        let until = Clock.now() + self.close_limit.as_nanos().min(u128::from(u64::MAX)) as u64;
        let left = || until.since(Clock.now());
        let ends: Vec<_> = self.doors.iter().map(Door::close).collect();
        for end in ends {
            // An intake that is late is found out below.
            let _ = end.recv_timeout(Duration::from_nanos(left()));
        }
        // On a host that was stopped there is nothing left to do.
        if let Err(late) = self.host.retire(&self.device, left()) {
            self.doors.iter().for_each(Door::reopen);
            return Err(self.explain(late));
        }
        *closed = true;
        self.doors.iter().for_each(Door::remove);
        match self.hosting.lock().expect("the lock of the host's owner").take() {
            // It has no device any more, so it ends at once.
            Some(Hosting::Own) => _ = self.host.stop(left()),
            Some(Hosting::Shared(lease)) => lease.give_back(left()),
            Some(Hosting::Given) | None => {}
        }
        // The last handles of the legs may be among them, which closes those.
        let legs = std::mem::take(&mut *self.legs.lock().expect("the lock of the legs"));
        uncarry(&legs, self.name());
        Ok(())
    }

    fn explain(&self, late: Unfinished) -> Error {
        let hint = match late {
            Unfinished { requests: 1.., oldest_ns: None, flush: None, .. } => {
                ", none of it with the back end: does a session hold completions it has not taken?"
            }
            _ => "",
        };
        Error::of(ErrorKind::Unfinished, format!("{late}{hint}"))
    }
}
