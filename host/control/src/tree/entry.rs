//! A disk in the tree, and what an attribute of it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::Limits;
use weir_queue::Settings;

use crate::disk::Disk;
use crate::errno::Failure;

/// A disk in the tree.
pub struct Entry {
    pub(crate) disk: Arc<dyn Disk>,
    /// Threads that submit to it.
    pub(crate) slots: usize,
    /// Its place among the disks, from 0.
    pub(crate) number: usize,
    kept: Mutex<Kept>,
}

/// The values of attributes whose effect lies outside the core, and of what stands for it here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Entropy from completions is a kernel's business.
    pub(crate) add_random: bool,
    /// Completions always go to the thread that submitted: what 2 asks for.
    pub(crate) rq_affinity: u32,
    /// For those who read ahead above the core.
    pub(crate) read_ahead_kb: u32,
    /// A bio owns its bytes, so they are stable whatever this says.
    pub(crate) stable_writes: bool,
    /// No front submits passthrough I/O with data.
    pub(crate) iostats_passthrough: bool,
}

/// The major number of disks without one of their own: Linux's extended block devices.
pub(crate) const MAJOR: u32 = 259;

/// Read-ahead of a disk that prefers no size of I/O, KiB.
const READ_AHEAD_KB: u32 = 128;

impl Entry {
    pub(crate) fn new(disk: Arc<dyn Disk>, slots: usize, number: usize) -> Entry {
        let kept = Kept {
            add_random: false,
            rq_affinity: 1,
            read_ahead_kb: READ_AHEAD_KB.max(disk.limits().io_opt / 1024 * 2),
            stable_writes: false,
            iostats_passthrough: false,
        };
        Entry { disk, slots: slots.max(1), number, kept: Mutex::new(kept) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.disk.config().name
    }

    /// Its numbers in `proc/diskstats`, as `259:0`.
    pub(crate) fn numbers(&self) -> String {
        format!("{MAJOR}:{}", self.number)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.disk.limits()
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the disk's settings.
    pub(crate) fn change(&self, mut change: impl FnMut(&mut Settings)) -> Result<(), Failure> {
        self.disk.change(&mut change).map_err(Failure::from)
    }

    /// The slots whose requests go to hard queue `index`: each its own if there are enough, else
    /// those that the queue's home has.
    pub(crate) fn slots_of(&self, index: u16) -> Vec<usize> {
        let (queues, index) = (usize::from(self.disk.queues()).max(1), usize::from(index));
        match queues > self.slots {
            true => vec![index % self.slots],
            false => (0..self.slots).filter(|slot| slot % queues == index).collect(),
        }
    }
}

/// A file of a disk, or of what else has files: declared once, with what its documentation says.
pub struct Attribute<T: 'static = Entry> {
    /// Its name.
    pub name: &'static str,
    /// The unit of its number; empty for a name or a flag.
    pub unit: &'static str,
    /// Its value on a disk that was told nothing, in words if it depends on the disk.
    pub default: &'static str,
    /// The accepted values, in words; empty if nothing may.
    pub accepted: &'static str,
    /// Its meaning, in one sentence.
    pub meaning: &'static str,
    pub(crate) show: fn(&T) -> String,
    pub(crate) store: Option<Store<T>>,
}

pub(crate) type Store<T> = fn(&T, &str) -> Result<(), Failure>;

impl<T> Attribute<T> {
    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.store.is_some()
    }

    /// A file that tells something.
    pub(crate) const fn tells(
        name: &'static str,
        unit: &'static str,
        default: &'static str,
        meaning: &'static str,
        show: fn(&T) -> String,
    ) -> Attribute<T> {
        Attribute { name, unit, default, accepted: "", meaning, show, store: None }
    }

    /// The same, and what may be written to it.
    pub(crate) const fn takes(self, accepted: &'static str, store: Store<T>) -> Attribute<T> {
        Attribute { accepted, store: Some(store), ..self }
    }
}
