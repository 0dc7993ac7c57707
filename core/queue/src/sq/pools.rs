//! Who may have a request of the single queue (docs/behaviour/block-layer.md, section 13.2).
//!
//! Each group has a pool for its sync and one for its async requests. A submitter that fills a
//! pool, or has waited for it, is a *batcher* for a while: a batch of requests goes to it even
//! where the pool is full, so that neighbours come together. All others wait, and are woken one
//! by one, in the order in which they came: a request that is given back is not for the first
//! that asks.

use std::collections::VecDeque;

use weir_bio::{GroupId, Nanos, Rq, SubmitterId};
use weir_sched::MayQueue;

use crate::group::GROUPS_MAX;

/// Requests that a batcher may have beyond a full pool.
const BATCH: u8 = 32;
/// How long a batcher is one, from its first request of a batch on.
const BATCH_NS: u64 = 20_000_000;

/// The pools of a queue.
pub(super) struct Pools {
    groups: Vec<[Pool; 2]>,
    /// By submitter.
    batches: Vec<Batch>,
    nr_requests: u16,
    given: u32,
    /// Places in all lines.
    waiting: u32,
}

/// The requests of one direction and group.
#[derive(Default)]
struct Pool {
    given: u16,
    /// All were given, and none has come back since.
    full: bool,
    /// Submitters that wait for one, and for each submitter whether it does.
    waiting: VecDeque<u16>,
    waits: Vec<bool>,
}

/// What a batcher may still have.
#[derive(Clone, Copy, Default)]
struct Batch {
    left: u8,
    until: Nanos,
}

impl Batch {
    /// The first request of a batch is had whenever it is asked for.
    fn goes_on(self, now: Nanos) -> bool {
        self.left == BATCH || (self.left > 0 && now < self.until)
    }
}

impl Pool {
    fn is_waiting(&self, submitter: usize) -> bool {
        self.waits.get(submitter).copied().unwrap_or_default()
    }

    /// Puts a submitter in the line; whether it was not there.
    fn wait(&mut self, submitter: u16) -> bool {
        let index = usize::from(submitter);
        if self.waits.len() <= index {
            self.waits.resize(index + 1, false);
        }
        let is_new = !std::mem::replace(&mut self.waits[index], true);
        if is_new {
            self.waiting.push_back(submitter);
        }
        is_new
    }

    fn stop_waiting(&mut self, submitter: u16) {
        self.waits[usize::from(submitter)] = false;
        self.waiting.retain(|waiting| *waiting != submitter);
    }

    fn wake_one(&mut self) -> Option<u16> {
        let submitter = self.waiting.pop_front()?;
        self.waits[usize::from(submitter)] = false;
        Some(submitter)
    }
}

impl Pools {
    pub(super) fn new(nr_requests: u16) -> Pools {
        Pools { groups: Vec::new(), batches: Vec::new(), nr_requests, given: 0, waiting: 0 }
    }

    /// Whether no request is given.
    pub(super) fn is_unused(&self) -> bool {
        self.given == 0
    }

    /// How many requests a pool has from now on; none is given.
    pub(super) fn resize(&mut self, nr_requests: u16) {
        self.nr_requests = nr_requests;
    }

    /// Gives a request to the submitter of this one, or notes that it waits, if it `may_wait`: one
    /// that may not takes no turn, and none has to come before it.
    pub(super) fn take(
        &mut self,
        rq: &Rq,
        may_wait: bool,
        now: Nanos,
        may_queue: impl FnOnce() -> MayQueue,
    ) -> bool {
        let submitter = rq.id.submitter().0;
        let index = usize::from(submitter);
        if self.batches.len() <= index {
            self.batches.resize(index + 1, Batch::default());
        }
        let most = self.nr_requests;
        let pool = pool(&mut self.groups, rq.group, rq.is_sync());
        let batch = &mut self.batches[index];
        let fills = pool.given + 1 >= most;
        let waits = may_wait && pool.is_waiting(index);
        let may = if fills || waits { may_queue() } else { MayQueue::May };
        let has = match may {
            MayQueue::No => false,
            _ if pool.given >= most + most / 2 => false,
            MayQueue::Must => true,
            // Those before it would wait for ever behind one that comes back at once.
            MayQueue::May if waits => false,
            MayQueue::May if !fills => true,
            MayQueue::May if !pool.full => {
                *batch = Batch { left: BATCH, until: now };
                true
            }
            MayQueue::May => batch.goes_on(now),
        };
        if !has {
            if may_wait && pool.wait(submitter) {
                self.waiting += 1;
            }
            return false;
        }
        pool.full |= fills;
        if batch.left > 0 {
            if batch.left == BATCH {
                batch.until = Nanos(now.0.saturating_add(BATCH_NS));
            }
            batch.left -= 1;
        }
        pool.given += 1;
        self.given += 1;
        true
    }

    /// One of these requests has come back. Tells the submitter whose turn it is.
    pub(super) fn give_back(&mut self, group: GroupId, is_sync: bool, mut wake: impl FnMut(u16)) {
        let pool = pool(&mut self.groups, group, is_sync);
        pool.given -= 1;
        self.given -= 1;
        if pool.given >= self.nr_requests {
            return;
        }
        pool.full = false;
        // No other request will come back that would wake the next.
        let all = pool.given == 0;
        while let Some(submitter) = pool.wake_one() {
            self.waiting -= 1;
            self.batches[usize::from(submitter)].left = BATCH;
            wake(submitter);
            if !all {
                return;
            }
        }
    }

    /// The device is kept idle for this submitter: if it waits for a sync request, it is its turn.
    pub(super) fn hurry(&mut self, submitter: SubmitterId, wake: impl FnOnce(u16)) {
        if self.waiting == 0 {
            return;
        }
        let (number, index) = (submitter.0, usize::from(submitter.0));
        let most = self.nr_requests + self.nr_requests / 2;
        let mut waits = false;
        // Where there is none for it either way, it keeps its place.
        let can = |pool: &Pool| pool.is_waiting(index) && pool.given < most;
        for [_, pool] in self.groups.iter_mut().filter(|[_, pool]| can(pool)) {
            pool.stop_waiting(number);
            self.waiting -= 1;
            waits = true;
        }
        if waits {
            self.batches[index].left = BATCH;
            wake(number);
        }
    }

    /// A submitter is gone, and its number may be another's.
    pub(super) fn forget(&mut self, submitter: usize) {
        if let Some(batch) = self.batches.get_mut(submitter) {
            *batch = Batch::default();
        }
        for pool in self.groups.iter_mut().flatten().filter(|pool| pool.is_waiting(submitter)) {
            pool.stop_waiting(submitter as u16);
            self.waiting -= 1;
        }
    }
}

fn pool(groups: &mut Vec<[Pool; 2]>, group: GroupId, is_sync: bool) -> &mut Pool {
    // A group that the device does not know is the root's.
    let index = Some(group.0 as usize).filter(|index| *index < GROUPS_MAX).unwrap_or_default();
    if groups.len() <= index {
        groups.resize_with(index + 1, Default::default);
    }
    &mut groups[index][usize::from(is_sync)]
}

#[cfg(test)]
mod tests;
