//! The driver of a pool: one device over several drivers, of which each has a partition.
//!
//! A request goes, by its sector, to the driver queue of its partition, which sees sectors that
//! count from the start of the partition: no queue stands between, and none is passed twice. No
//! request crosses a partition (`weir_queue`'s `partition.rs`). A flush of a partition is one of
//! its driver alone; a flush of the whole pool, which comes when the pool is closed, is one of all.
//!
//! Partitions come and go while the lanes are turned. The thread that turns a lane opens the driver
//! queue of a new one before the first request, and closes that of one that is gone when nothing of
//! it is under way any more.

mod calls;
mod queue;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Limits, WriteCache};
use weir_queue::{
    Affinity, Driver, DriverError, DriverQueue, NoticeListener, Notices, POOL_SECTORS,
    PartitionGauges, Partitions, Queues, Speaker,
};

use queue::PoolQueue;

/// A pool without partitions at first.
pub struct Pool {
    limits: Limits,
    queues: Queues,
    registry: Arc<Registry>,
}

/// The partitions, as the lanes look at them when something has changed.
#[derive(Default)]
struct Registry {
    /// Changes with every partition that comes or goes.
    generation: AtomicU64,
    parts: Mutex<BTreeMap<u16, Part>>,
    notices: Notices,
}

/// A partition.
#[derive(Clone)]
struct Part {
    /// The generation that it came with: another one under its number has another.
    since: u64,
    driver: Arc<dyn Driver>,
    gauges: Arc<PartitionGauges>,
}

impl Registry {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<u16, Part>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drivers(&self) -> Vec<Arc<dyn Driver>> {
        self.parts().values().map(|part| Arc::clone(&part.driver)).collect()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u16, Part>, u64)) {
        let mut parts = self.parts();
        let next = self.generation.load(Ordering::Relaxed) + 1;
        change(&mut parts, next);
        // Behind the change: a lane that sees it finds what has changed under the lock.
        self.generation.store(next, Ordering::Release);
    }
}

impl Pool {
    /// A pool in front of drivers like these, which are to be attached to its device: with limits
    /// that all of them can keep, and as many queues as each can have.
    #[must_use]
    pub fn for_drivers(drivers: &[Arc<dyn Driver>]) -> Pool {
        let strictest = |limits: Limits, driver: &Arc<dyn Driver>| {
            limits.stack(&Limits { read_only: false, ..driver.limits() })
        };
        let limits = match drivers {
            [] => Limits::of_memory(0),
            [first, others @ ..] => {
                let first = Limits { read_only: false, ..first.limits() };
                others.iter().fold(first, strictest)
            }
        };
        let max = drivers.iter().map(|driver| driver.queues().max).min().unwrap_or(u16::MAX);
        Pool {
            limits: Limits { capacity: POOL_SECTORS, padding: 0, ..limits },
            queues: Queues {
                max,
                depth: crate::DEPTH,
                reserved: 0,
                shared_tags: false,
                // Some drivers' queues belong to the thread that opened them.
                home: Affinity::Fixed,
            },
            registry: Arc::default(),
        }
    }

    /// Where it tells what goes wrong while it runs.
    #[must_use]
    pub fn speaker(&self) -> Box<dyn Speaker> {
        Box::new(PoolSpeaker(Arc::clone(&self.registry)))
    }
}

struct PoolSpeaker(Arc<Registry>);

impl Speaker for PoolSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.notices.listen(listener);
    }
}

impl Driver for Pool {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    fn follow_timeout(&self, timeout_ns: u64) {
        self.registry.drivers().iter().for_each(|driver| driver.follow_timeout(timeout_ns));
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        self.registry.drivers().iter().try_for_each(|driver| driver.prepare(index))
    }

    fn comes_to_rest(&self, begins: bool) {
        self.registry.drivers().iter().for_each(|driver| driver.comes_to_rest(begins));
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(PoolQueue::open(&self.registry, index, depth)?))
    }

    fn write_cache(&self) -> WriteCache {
        self.registry.drivers().iter().fold(WriteCache::default(), |all, driver| {
            let one = driver.write_cache();
            WriteCache { volatile: all.volatile | one.volatile, fua: all.fua | one.fua }
        })
    }

    fn partitions(&self) -> Option<&dyn Partitions> {
        Some(self)
    }
}

impl Partitions for Pool {
    fn attach(&self, number: u16, driver: Arc<dyn Driver>, gauges: Arc<PartitionGauges>) {
        self.registry.change(|parts, since| {
            parts.insert(number, Part { since, driver, gauges });
        });
    }

    fn detach(&self, number: u16, gauges: &Arc<PartitionGauges>) {
        self.registry.change(|parts, _| {
            if parts.get(&number).is_some_and(|part| Arc::ptr_eq(&part.gauges, gauges)) {
                parts.remove(&number);
            }
        });
    }
}
