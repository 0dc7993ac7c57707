//! A volatile cache that counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir::{Limits, Nanos, Op};
use weir_queue::driver::Tag;
use weir_queue::{Batch, Cancel, Done, Driver, DriverError, DriverQueue, Queues};

/// What a volatile cache has answered, and what of that no flush covers.
#[derive(Default)]
pub struct Cache {
    written: AtomicU64,
    durable: AtomicU64,
}

impl Cache {
    /// Writes that were answered and that no flush covers.
    pub fn lost(&self) -> u64 {
        self.written.load(Ordering::SeqCst) - self.durable.load(Ordering::SeqCst)
    }
}

/// A volatile cache in front of a driver.
pub struct Cached {
    inner: Arc<dyn Driver>,
    cache: Arc<Cache>,
}

impl Cached {
    pub fn new(inner: impl Driver + 'static) -> (Cached, Arc<Cache>) {
        let cache = Arc::new(Cache::default());
        (Cached { inner: Arc::new(inner), cache: Arc::clone(&cache) }, cache)
    }
}

impl Driver for Cached {
    fn limits(&self) -> Limits {
        Limits { volatile_cache: true, ..self.inner.limits() }
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (inner, cache) = (self.inner.open(index, depth)?, Arc::clone(&self.cache));
        let ops = vec![(Op::Read, 0); usize::from(depth)];
        Ok(Box::new(CachedQueue { inner, cache, ops, below: Done::default() }))
    }
}

struct CachedQueue {
    inner: Box<dyn DriverQueue>,
    cache: Arc<Cache>,
    /// By tag: what was asked, and what a flush covers.
    ops: Vec<(Op, u64)>,
    below: Done,
}

impl DriverQueue for CachedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let covered = self.cache.written.load(Ordering::SeqCst);
            self.ops[usize::from(tag.0)] = (request.rq().op, covered);
            let before = batch.len();
            batch.offer(1, |one| self.inner.submit(one, now));
            if batch.len() == before {
                return;
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.inner.reap(now, &mut self.below);
        for (tag, status, mut lent) in self.below.drain() {
            let Cache { written, durable } = &*self.cache;
            match self.ops[usize::from(tag.0)] {
                (Op::Write, _) => drop(written.fetch_add(1, Ordering::SeqCst)),
                (Op::Flush, covered) => drop(durable.fetch_max(covered, Ordering::SeqCst)),
                _ => {}
            }
            done.push_lent(tag, status, &mut lent);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.inner.cancel(tag)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.inner.wake_at()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
