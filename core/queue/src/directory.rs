//! The partitions of a pool: what each has for itself, and which there are.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_ring::BusyStamp;

use crate::config::Config;
use crate::driver::Driver;
use crate::hard::flush_error::FlushError;
use crate::partition::{PARTITIONS_MAX, PartitionGauges, partition_start};
use crate::stats::Stats;

/// A partition, as its handles and its submitters have it.
pub(crate) struct Partition {
    pub(crate) number: u16,
    /// The pool's, under the name of the partition.
    pub(crate) config: Config,
    /// `None` once it was taken out of the pool.
    pub(crate) driver: Mutex<Option<Arc<dyn Driver>>>,
    pub(crate) stamp: BusyStamp,
    pub(crate) gauges: Arc<PartitionGauges>,
    pub(crate) flush_error: Arc<FlushError>,
    /// Of submitters that are gone.
    pub(crate) retired: Mutex<Stats>,
}

impl Partition {
    /// Its first sector.
    pub(crate) fn start(&self) -> u64 {
        partition_start(self.number)
    }

    pub(crate) fn driver(&self) -> MutexGuard<'_, Option<Arc<dyn Driver>>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn retired(&self) -> MutexGuard<'_, Stats> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The partitions that there are, by number from 1 on. A number is free again when the last handle
/// and submitter of its partition are gone, so that none of them meets another disk.
#[derive(Default)]
pub(crate) struct Directory(Mutex<Vec<Weak<Partition>>>);

impl Directory {
    /// Makes a partition with the first free number; `None` without one.
    pub(crate) fn add(&self, make: impl FnOnce(u16) -> Partition) -> Option<Arc<Partition>> {
        let mut all = self.lock();
        let is_free = |known: &Weak<Partition>| known.strong_count() == 0;
        let place = all.iter().position(is_free).unwrap_or(all.len());
        if place >= usize::from(PARTITIONS_MAX) {
            return None;
        }
        let partition = Arc::new(make(place as u16 + 1));
        if place == all.len() {
            all.push(Weak::new());
        }
        all[place] = Arc::downgrade(&partition);
        Some(partition)
    }

    pub(crate) fn find(&self, number: u16) -> Option<Arc<Partition>> {
        self.lock().get(usize::from(number).checked_sub(1)?)?.upgrade()
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Partition>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
