//! What a disk is told before it is connected, and its life: created, connected, started,
//! destroyed.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use weir::{Clock, Disk, Target};

use crate::call::{Failure, Outcome, words};
use crate::queue::Queue;
use crate::slots::HeldMemory;

/// `struct weir`.
pub(crate) struct Weir(Mutex<State>);

pub(crate) struct State {
    /// The kind of target: what stands before the colon, as it was written.
    pub(crate) driver: String,
    /// `None`: it has no address yet.
    target: Option<Target>,
    pub(crate) name: String,
    pub(crate) queues_count: usize,
    pub(crate) entries: usize,
    pub(crate) close_limit: Duration,
    /// Made once, as C has their addresses. Before the disk, which each keeps open.
    queues: Vec<Queue>,
    pub(crate) disk: Option<Disk>,
    pub(crate) held: HeldMemory,
}

/// Queues that a disk may have: below the number of ways in that the core has room for.
pub(crate) const QUEUES_MAX: usize = 1024;

const ENTRIES: usize = 1024;
const CLOSE_LIMIT: Duration = Duration::from_secs(4);

impl Weir {
    /// A disk of this target, or of this driver without an address yet.
    pub(crate) fn create(text: &CStr) -> Outcome<Weir> {
        let text = words("target", text)?;
        let is_driver = weir::drivers::kind_of(text).is_some();
        let target = if is_driver { None } else { Some(parse(text)?) };
        let driver = text.split(':').next().unwrap_or(text);
        Ok(Weir(Mutex::new(State {
            driver: driver.to_owned(),
            target,
            name: String::from("disk"),
            queues_count: 1,
            entries: ENTRIES,
            close_limit: CLOSE_LIMIT,
            queues: Vec::new(),
            disk: None,
            held: HeldMemory::default(),
        })))
    }

    pub(crate) fn lock(&self) -> Outcome<MutexGuard<'_, State>> {
        self.0.lock().map_err(|_| {
            let what = "a panic of weir has left the disk half done; it can be destroyed only";
            Failure::new(libc::ENOTRECOVERABLE, what)
        })
    }

    /// Whether no call of another thread is in it, as far as that can be seen.
    pub(crate) fn check_idle(&self) -> Outcome<()> {
        let busy = || Failure::new(libc::EBUSY, "the disk is in a call of another thread");
        let state = match self.0.try_lock() {
            Ok(state) => state,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return Err(busy()),
        };
        let is_busy =
            |queue: &Queue| queue.lock().is_err_and(|failure| failure.errno == libc::EBUSY);
        if state.queues.iter().any(is_busy) { Err(busy()) } else { Ok(()) }
    }

    /// The end of it: waits for what is under way, flushes and closes.
    ///
    /// # Errors
    /// What did not end in time; the memory of that is still the device's.
    pub(crate) fn destroy(self) -> Outcome<()> {
        let state = self.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let State { queues, disk, held, close_limit, name, .. } = state;
        let until = Clock.now() + close_limit.as_nanos().min(u128::from(u64::MAX)) as u64;
        // What one accepted does not wait for another's device.
        queues.iter().filter_map(|queue| queue.lock().ok()).for_each(|mut queue| queue.look());
        let (mut unanswered, mut left) = (0, None);
        for queue in &queues {
            match queue.lock() {
                Ok(mut queue) => unanswered += queue.drain(until),
                // One that a panic has left is dropped as it is.
                Err(failure) => left = Some(failure),
            }
        }
        drop(queues);
        let Some(disk) = disk else { return Ok(()) };
        // With something under way a close fails; the drop tries as long, and gives it up.
        let has_ended = unanswered == 0 && left.is_none();
        let closed = if has_ended { disk.close().map_err(Failure::from) } else { Ok(()) };
        drop(disk);
        closed?;
        if let Some(failure) = left {
            return Err(failure);
        }
        let held = held.count();
        if unanswered == 0 && held == 0 {
            return Ok(());
        }
        let (count, ms) = (unanswered.max(held), close_limit.as_millis());
        let memory = match held {
            0 => String::new(),
            held => format!(", and the memory of {held} is still its own"),
        };
        let what = format!(
            "disk {name}: the device had not answered {count} I/Os within \
             close-limit-ms={ms}{memory}"
        );
        Err(Failure::new(libc::ETIMEDOUT, what))
    }
}

impl State {
    /// The text behind the colon.
    pub(crate) fn set_address(&mut self, address: &CStr) -> Outcome<()> {
        self.check_unconnected("address")?;
        self.target = Some(if self.driver == "file" {
            Target::file(OsStr::from_bytes(address.to_bytes()))
        } else {
            Target::of(&self.driver, words("address", address)?)?
        });
        Ok(())
    }

    /// Any option of the target.
    pub(crate) fn set_option(&mut self, name: &str, value: &str) -> Outcome<()> {
        self.check_unconnected(name)?;
        let Some(target) = &self.target else {
            let what = format!("{name}={value}: the disk has no address yet, to which it belongs");
            return Err(Failure::invalid(what));
        };
        let target = target.clone().with(name, value)?;
        self.target = Some(target);
        Ok(())
    }

    pub(crate) fn check_unconnected(&self, name: &str) -> Outcome<()> {
        let connected = self.disk.as_ref().map(|_| ());
        connected.map_or(Ok(()), |()| {
            let what = format!("{name} is set before the disk is connected");
            Err(Failure::new(libc::EBUSY, what))
        })
    }

    pub(crate) fn check_unstarted(&self, name: &str) -> Outcome<()> {
        if self.queues.is_empty() {
            return Ok(());
        }
        Err(Failure::new(libc::EBUSY, format!("{name} is set before the disk is started")))
    }

    /// The disk, once it is connected.
    pub(crate) fn connected(&self, what: &str) -> Outcome<&Disk> {
        self.disk.as_ref().ok_or_else(|| {
            Failure::new(libc::ENOTCONN, format!("{what}: the disk is not connected yet"))
        })
    }

    pub(crate) fn is_started(&self) -> bool {
        !self.queues.is_empty()
    }

    pub(crate) fn connect(&mut self) -> Outcome<()> {
        if self.disk.is_some() {
            let what = "weir_connect: the disk is connected already";
            return Err(Failure::new(libc::EBUSY, what));
        }
        let Some(target) = self.target.clone() else {
            let what = format!("a {} disk has no address yet: set property address", self.driver);
            return Err(Failure::invalid(what));
        };
        let disk = Disk::builder(target).name(&*self.name).close_limit(self.close_limit);
        self.disk = Some(disk.open()?);
        Ok(())
    }

    pub(crate) fn start(&mut self) -> Outcome<()> {
        if self.is_started() {
            return Err(Failure::new(libc::EBUSY, "weir_start: the disk is started already"));
        }
        let disk = self.connected("weir_start")?;
        let open = |index| Queue::open(disk, index, self.entries, &self.held);
        // One that fails takes those before it along.
        let queues = (0..self.queues_count).map(open).collect::<Outcome<Vec<_>>>()?;
        self.queues = queues;
        Ok(())
    }

    /// A queue, which stays where it is until the disk is destroyed.
    pub(crate) fn queue(&self, index: i64) -> Outcome<&Queue> {
        if !self.is_started() {
            return Err(Failure::new(
                libc::ENOTCONN,
                "weir_get_queue: the disk is not started yet",
            ));
        }
        let queue = usize::try_from(index).ok().and_then(|index| self.queues.get(index));
        queue.ok_or_else(|| {
            let last = self.queues.len() - 1;
            Failure::invalid(format!("queue index={index} is outside 0..={last}"))
        })
    }
}

fn parse(text: &str) -> Outcome<Target> {
    Target::parse(text).map_err(Failure::invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_in_a_call_of_another_thread_is_busy_and_so_is_its_disk() {
        let disk = Weir::create(c"ram:1MiB").expect("a disk");
        disk.lock().expect("no panic").connect().expect("memory");
        disk.lock().expect("no panic").start().expect("a queue");
        let state = disk.lock().expect("no panic");
        let queue: *const Queue = state.queue(0).expect("a queue");
        assert_eq!(disk.check_idle().unwrap_err().errno, libc::EBUSY);
        drop(state);
        // SAFETY: the disk is here, and its queues stay where they are.
        let queue = unsafe { &*queue };
        let call = queue.lock().expect("no call is in it");
        assert_eq!(queue.lock().err().expect("a call is in it").errno, libc::EBUSY);
        assert_eq!(disk.check_idle().unwrap_err().errno, libc::EBUSY);
        drop(call);
        disk.check_idle().expect("no call is in it");
        disk.destroy().expect("nothing is under way");
    }

    #[test]
    fn a_panic_in_a_queue_leaves_what_can_be_destroyed_only() {
        let disk = Weir::create(c"ram:1MiB").expect("a disk");
        disk.lock().expect("no panic").connect().expect("memory");
        disk.lock().expect("no panic").start().expect("a queue");
        let ended = crate::call::guarded(|| {
            let state = disk.lock()?;
            let _call = state.queue(0)?.lock()?;
            panic!("of a test");
        });
        assert_eq!(ended, -libc::EIO);
        let failure = disk.lock().err().expect("half done");
        assert_eq!(failure.errno, libc::ENOTRECOVERABLE);
        disk.check_idle().expect("no call is in it");
        // What it had under way is not known any more.
        assert_eq!(disk.destroy().unwrap_err().errno, libc::ENOTRECOVERABLE);
    }
}
