//! The partitions of a pool: what each has for itself, and which there are.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_ring::{BusyStamp, SharedCounter};

use crate::config::Config;
use crate::driver::Driver;
use crate::failures::Failures;
use crate::hard::flush_error::FlushError;
use crate::partition::{PARTITIONS_MAX, PartitionGauges, PartitionId, partition_start};
use crate::stats::Stats;

/// A partition, as its handles and its submitters have it.
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    /// The pool's, under the name of the partition.
    pub(crate) config: Config,
    /// `None` once it was taken out of the pool.
    pub(crate) driver: Mutex<Option<Arc<dyn Driver>>>,
    /// The driver of the pool, which knows the partition as long as that has a driver.
    pub(crate) pool: Weak<dyn Driver>,
    pub(crate) stamp: BusyStamp,
    pub(crate) gauges: Arc<PartitionGauges>,
    pub(crate) flush_error: Arc<FlushError>,
    pub(crate) failures: Failures,
    /// Of submitters that are gone.
    pub(crate) retired: Mutex<Stats>,
}

impl Partition {
    /// Its first sector.
    pub(crate) fn start(&self) -> u64 {
        partition_start(self.id.number)
    }

    /// Takes it out of the pool's driver, and its own driver out of it.
    pub(crate) fn detach(&self) -> Option<Arc<dyn Driver>> {
        let driver = self.driver().take()?;
        if let Some(pool) = self.pool.upgrade()
            && let Some(partitions) = pool.partitions()
        {
            partitions.detach(self.id.number, &self.gauges);
        }
        Some(driver)
    }

    pub(crate) fn driver(&self) -> MutexGuard<'_, Option<Arc<dyn Driver>>> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn retired(&self) -> MutexGuard<'_, Stats> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that was not closed goes with its last handle and submitter: nothing of it is under way, and
/// none can ask for its last flush any more. Its extent goes with the next change of the pool.
impl Drop for Partition {
    fn drop(&mut self) {
        drop(self.detach());
    }
}

/// The partitions that there are, by number from 1 on. A number is free again when the last handle
/// and submitter of its partition are gone, so that none of them meets another disk, and when no
/// write of it can come late any more: its fences would hold up another disk.
#[derive(Default)]
pub(crate) struct Directory {
    all: Mutex<Vec<Weak<Partition>>>,
    /// Partitions that were made.
    made: SharedCounter,
}

impl Directory {
    /// Makes a partition with the first number that is free and whose sectors are not in use;
    /// `None` without one.
    pub(crate) fn add(
        &self,
        in_use: impl Fn(&Range<u64>) -> bool,
        make: impl FnOnce(PartitionId) -> Partition,
    ) -> Option<Arc<Partition>> {
        let mut all = self.lock();
        let is_free = |place: &usize| {
            let number = *place as u16 + 1;
            all[*place].strong_count() == 0
                && !in_use(&(partition_start(number)..partition_start(number + 1)))
        };
        let place = (0..all.len()).find(is_free).unwrap_or(all.len());
        if place >= usize::from(PARTITIONS_MAX) {
            return None;
        }
        self.made.next();
        let id = PartitionId { number: place as u16 + 1, age: self.made.read() };
        let partition = Arc::new(make(id));
        if place == all.len() {
            all.push(Weak::new());
        }
        all[place] = Arc::downgrade(&partition);
        Some(partition)
    }

    pub(crate) fn find(&self, number: u16) -> Option<Arc<Partition>> {
        self.lock().get(usize::from(number).checked_sub(1)?)?.upgrade()
    }

    /// Whether this very one is there.
    pub(crate) fn has(&self, id: PartitionId) -> bool {
        self.find(id.number).is_some_and(|partition| partition.id == id)
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> Vec<Arc<Partition>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Partition>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
