//! The reactors that the disks of a process share, but for those that were told of others. They are
//! there as long as such a disk is.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_live::Host;

/// Most reactors of a host that was not told how many.
const REACTORS_MAX: usize = 8;

/// The host and its disks. The one thing of the library that is the process's.
static SHARED: Mutex<Option<Leased>> = Mutex::new(None);

struct Leased {
    host: Arc<Host>,
    /// How many disks have it.
    disks: usize,
    /// Devices of disks that are gone and did not come to an end.
    given_up: usize,
}

/// A disk's share in the host. The last one ends the reactors.
pub(crate) struct Lease {
    host: Arc<Host>,
}

fn shared() -> MutexGuard<'static, Option<Leased>> {
    // The count is changed in one step, so nothing is half done.
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reactors of a host that was not told how many: one for each processor, up to a bound.
fn reactors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(REACTORS_MAX)
}

impl Lease {
    /// A share in the host, which is started for the first, and for the first after a
    /// [`stop`](Host::stop): the shares in the one that was stopped stay in that.
    ///
    /// # Errors
    /// The system's: no thread or descriptor is left.
    pub(crate) fn take() -> io::Result<Lease> {
        let mut shared = shared();
        let leased = match &mut *shared {
            Some(leased) if !leased.host.has_ended() => leased,
            none => {
                let host = Arc::new(Host::new(reactors())?);
                none.insert(Leased { host, disks: 0, given_up: 0 })
            }
        };
        leased.disks += 1;
        Ok(Lease { host: Arc::clone(&leased.host) })
    }

    /// A share in this host, if it is the one.
    pub(crate) fn of(host: &Arc<Host>) -> Option<Lease> {
        let mut shared = shared();
        let leased = shared.as_mut().filter(|leased| Arc::ptr_eq(&leased.host, host))?;
        leased.disks += 1;
        Some(Lease { host: Arc::clone(host) })
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Where the next disk's first lane is at home: in turn, as many disks have one lane.
    pub(crate) fn next_home() -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The disk's device stays on the host although the disk goes: it did not come to an end.
    pub(crate) fn gives_up(&self) {
        if let Some(leased) = &mut *shared()
            && Arc::ptr_eq(&leased.host, &self.host)
        {
            leased.given_up += 1;
        }
    }

    /// Gives it back, when nothing of the disk is left on the host. The last one waits until the
    /// reactors have ended, no longer than so many ns; and not at all for disks that were given up:
    /// with only these left, the reactors end with the host's last handle.
    pub(crate) fn give_back(self, limit_ns: u64) {
        let host = Arc::clone(&self.host);
        let of_host = |leased: &&Leased| Arc::ptr_eq(&leased.host, &host);
        let given_up = shared().as_ref().filter(of_host).map_or(0, |leased| leased.given_up);
        drop(self);
        let is_last = shared().as_ref().filter(of_host).is_none();
        let has_others = given_up == 0 || host.devices() > given_up;
        if is_last && has_others && !host.is_here() {
            // What is left was adopted by the program.
            let _ = host.stop(limit_ns);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut shared = shared();
        let Some(leased) = &mut *shared else { return };
        if Arc::ptr_eq(&leased.host, &self.host) {
            leased.disks -= 1;
            if leased.disks == 0 {
                // Without any, its threads end: outside the lock.
                let last = shared.take();
                drop(shared);
                drop(last);
            }
        }
    }
}
