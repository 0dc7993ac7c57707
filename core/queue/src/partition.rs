//! Partitions of a pool: disks that share one queue, as partitions of one disk do in Linux, each
//! with a driver of its own below.
//!
//! The queue sees one sector space. Partition `n` has the sectors from `n << PARTITION_SHIFT` on,
//! so that it can grow without another one being in the way, and that no request joins two of them:
//! between the end of one and the start of the next there is always a gap. A submitter of a
//! partition counts from 0; it adds the start before anything else looks at the bio.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_ring::Counter;

/// The sectors of a partition, as a power of two: 8 PiB.
pub(crate) const PARTITION_SHIFT: u32 = 44;

/// Partitions of a pool. The bytes of so many have a number of 63 bits.
pub const PARTITIONS_MAX: u16 = 1023;

/// Sectors of a partition at most. The gap behind it is larger than a block of any device.
pub const PARTITION_SECTORS_MAX: u64 = (1 << PARTITION_SHIFT) - (1 << 20);

/// Sectors of the space of all partitions.
pub const POOL_SECTORS: u64 = (PARTITIONS_MAX as u64 + 1) << PARTITION_SHIFT;

/// The number of the partition that a sector of a pool is in. 0 is in none: a flush there is one of
/// all.
#[must_use]
#[inline]
pub fn partition_of(sector: u64) -> u16 {
    // Fits: the space has no more.
    (sector >> PARTITION_SHIFT) as u16
}

/// The first sector of a partition.
#[must_use]
#[inline]
pub fn partition_start(number: u16) -> u64 {
    u64::from(number) << PARTITION_SHIFT
}

/// Requests of one partition with its driver: a gauge for each hard queue.
#[derive(Debug, Default)]
pub struct PartitionGauges(Mutex<Vec<Arc<PartitionGauge>>>);

/// The requests of one partition in one hard queue; written by the thread that turns it.
#[derive(Debug, Default)]
pub struct PartitionGauge {
    /// Handed to the driver, and ended: reads, and all that goes towards the device.
    issued: [Counter; 2],
    ended: [Counter; 2],
}

impl PartitionGauge {
    /// The driver has so many more: reads, and what goes towards the device.
    #[inline]
    pub fn issue(&self, more: [u64; 2]) {
        count(&self.issued, more);
    }

    /// It has so many less.
    #[inline]
    pub fn end(&self, less: [u64; 2]) {
        count(&self.ended, less);
    }
}

#[inline]
fn count(counters: &[Counter; 2], by: [u64; 2]) {
    for (counter, by) in counters.iter().zip(by) {
        // Most often one direction alone.
        if by > 0 {
            counter.add(by);
        }
    }
}

impl PartitionGauges {
    /// A gauge of a hard queue that is opened.
    #[must_use]
    pub fn open(&self) -> Arc<PartitionGauge> {
        let gauge = Arc::default();
        self.lock().push(Arc::clone(&gauge));
        gauge
    }

    /// Reads and writes with the driver.
    pub(crate) fn in_driver(&self) -> [u64; 2] {
        let mut sum = [0; 2];
        for gauge in self.lock().iter() {
            for (direction, sum) in sum.iter_mut().enumerate() {
                // `ended` first: a request that ends in between must not make it negative.
                let ended = gauge.ended[direction].read();
                *sum += gauge.issued[direction].read().saturating_sub(ended);
            }
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<PartitionGauge>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which partition: a number that is used again has another age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionId {
    pub(crate) number: u16,
    /// How many partitions the pool had had before it.
    pub(crate) age: u64,
}

/// The size of a partition and what its driver can do, in the settings of its pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) of: PartitionId,
    /// 0: it is not in the pool.
    pub(crate) sectors: u64,
    pub(crate) padding: u32,
    pub(crate) read_only: bool,
    pub(crate) volatile_cache: bool,
    pub(crate) fua: bool,
    pub(crate) rotational: bool,
    pub(crate) max_hw_discard_sectors: u32,
}

/// Of all partitions, by number.
pub(crate) type Extents = Arc<Vec<Extent>>;
