//! The reactors that the disks of a process share, but for those that were told of others. They are
//! there as long as such a disk is.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_live::Host;

/// Most reactors of a host that was not told how many.
const REACTORS_MAX: usize = 8;

/// The host, and how many disks have it. The one thing of the library that is the process's.
static SHARED: Mutex<Option<(Arc<Host>, usize)>> = Mutex::new(None);

/// A disk's share in the host. The last one ends the reactors.
pub(crate) struct Lease {
    host: Arc<Host>,
}

fn shared() -> MutexGuard<'static, Option<(Arc<Host>, usize)>> {
    // The count is changed in one step, so nothing is half done.
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reactors of a host that was not told how many: one for each processor, up to a bound.
fn reactors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(REACTORS_MAX)
}

impl Lease {
    /// A share in the host, which is started for the first.
    ///
    /// # Errors
    /// The system's: no thread or descriptor is left.
    pub(crate) fn take() -> io::Result<Lease> {
        let mut shared = shared();
        let (host, disks) = match &mut *shared {
            Some(shared) => shared,
            none => none.insert((Arc::new(Host::new(reactors())?), 0)),
        };
        *disks += 1;
        Ok(Lease { host: Arc::clone(host) })
    }

    /// A share in this host, if it is the one.
    pub(crate) fn of(host: &Arc<Host>) -> Option<Lease> {
        let mut shared = shared();
        let (_, disks) = shared.as_mut().filter(|(known, _)| Arc::ptr_eq(known, host))?;
        *disks += 1;
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

    /// Gives it back, when nothing of the disk is left on the host. The last one waits until the
    /// reactors have ended, no longer than so many ns.
    pub(crate) fn give_back(self, limit_ns: u64) {
        let host = Arc::clone(&self.host);
        drop(self);
        let is_last = !shared().as_ref().is_some_and(|(other, _)| Arc::ptr_eq(other, &host));
        if is_last && !host.is_here() {
            // Disks that were given up may be left on it.
            let _ = host.stop(limit_ns);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut shared = shared();
        let Some((host, disks)) = &mut *shared else { return };
        if Arc::ptr_eq(host, &self.host) {
            *disks -= 1;
            if *disks == 0 {
                // Without any, its threads end: outside the lock.
                let last = shared.take();
                drop(shared);
                drop(last);
            }
        }
    }
}
