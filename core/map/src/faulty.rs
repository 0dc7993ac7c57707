//! A driver that misbehaves as far as the contract allows, in front of one that does not: for
//! property tests of everything above drivers.
//!
//! It refuses, answers with errors, late, in another order or never, as a seed decides; the same
//! seed and the same calls give the same faults. The driver never breaks the contract: no tag is
//! answered twice, `DevResource` is returned only while an answer is still to come, and lent memory
//! comes back in order.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::{Data, Limits, Nanos, Prng, Status, WriteCache};
use weir_queue::{
    Batch, Budget, Cancel, Done, Driver, DriverError, DriverQueue, Extent, Queues, Request, Tag,
    TagSet, Wake,
};

/// The faults and how frequent they are. Each field is a percentage of requests, 0 to 100, unless
/// it says otherwise; by default there are no faults.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// The batch is refused from this request on.
    pub refused: u32,
    /// Answered with one of [`errors`](FaultPlan::errors); half of them are carried out first.
    pub failed: u32,
    /// Which errors; [`Status::IoErr`] when empty.
    pub errors: Vec<Status>,
    /// Answered 1 to [`reaps_max`](FaultPlan::reaps_max) reaps later than it could be.
    pub delayed: u32,
    /// The longest delay, reaps.
    pub reaps_max: u32,
    /// Never answered, unless it is cancelled.
    pub lost: u32,
    /// Of the cancelled ones whose memory is not lent: the answer to cancel is Done.
    pub cancel_done: u32,
    /// Of those whose cancel was answered Pending: answered after all, with an error.
    pub late: u32,
    /// Answers of one reap come in random order.
    pub reordered: bool,
}

impl FaultPlan {
    /// Something of everything that leaves no request unanswered.
    #[must_use]
    pub fn nasty() -> FaultPlan {
        FaultPlan {
            refused: 10,
            failed: 5,
            // Admission refuses writes to a disk that may only be read: no driver says it.
            errors: (Status::ALL.into_iter())
                .filter(|status| !status.is_ok() && *status != Status::ReadOnly)
                .collect(),
            delayed: 30,
            reaps_max: 4,
            reordered: true,
            ..FaultPlan::default()
        }
    }
}

/// A driver with faults.
pub struct Faulty {
    inner: Arc<dyn Driver>,
    plan: FaultPlan,
    seed: u64,
    counts: Arc<FaultCounts>,
}

/// How many requests met which fault, in all queues of a driver. It is shown as
/// `REFUSED FAILED DELAYED LOST`.
#[derive(Debug, Default)]
pub struct FaultCounts {
    refused: AtomicU64,
    failed: AtomicU64,
    delayed: AtomicU64,
    lost: AtomicU64,
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCounts { refused, failed, delayed, lost } = self;
        let [refused, failed, delayed, lost] =
            [refused, failed, delayed, lost].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{refused} {failed} {delayed} {lost}")
    }
}

fn count(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

impl Faulty {
    /// `inner`, spoilt by `plan`; each queue draws its own numbers from `seed`.
    #[must_use]
    pub fn new(inner: Arc<dyn Driver>, plan: FaultPlan, seed: u64) -> Faulty {
        Faulty { inner, plan, seed, counts: Arc::default() }
    }

    /// How many requests met which fault.
    #[must_use]
    pub fn counts(&self) -> &Arc<FaultCounts> {
        &self.counts
    }
}

impl Driver for Faulty {
    fn is_bio_based(&self) -> bool {
        self.inner.is_bio_based()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn write_cache(&self) -> WriteCache {
        self.inner.write_cache()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn tag_set(&self) -> Option<Arc<TagSet>> {
        self.inner.tag_set()
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        self.inner.budget()
    }

    fn follow_timeout(&self, timeout_ns: u64) {
        self.inner.follow_timeout(timeout_ns);
    }

    fn comes_to_rest(&self, begins: bool) {
        self.inner.comes_to_rest(begins);
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        self.inner.prepare(index)
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let seed = Prng::new(self.seed ^ u64::from(index)).next();
        Ok(Box::new(FaultyQueue {
            inner: self.inner.open(index, depth)?,
            plan: self.plan.clone(),
            prng: Prng::new(seed),
            fates: vec![Fate::Fine; usize::from(depth)],
            held: Vec::new(),
            below: Done::default(),
            lost: Vec::new(),
            now: Nanos::ZERO,
            counts: Arc::clone(&self.counts),
        }))
    }

    fn enlarge(&self, sectors: u64) -> Result<weir_bio::Size, DriverError> {
        self.inner.enlarge(sectors)
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.inner.allocation(sector, sectors)
    }
}

/// The fault chosen for a request that the driver below answers.
#[derive(Clone, Copy)]
enum Fate {
    Fine,
    Failed(Status),
}

/// An answer held back.
struct Held {
    tag: Tag,
    status: Status,
    lent: Vec<Data>,
    reaps: u32,
}

/// A request that will not be answered.
struct Lost {
    tag: Tag,
    lent: Vec<Data>,
}

struct FaultyQueue {
    inner: Box<dyn DriverQueue>,
    plan: FaultPlan,
    prng: Prng,
    /// By tag, for requests the driver below has.
    fates: Vec<Fate>,
    held: Vec<Held>,
    below: Done,
    lost: Vec<Lost>,
    now: Nanos,
    counts: Arc<FaultCounts>,
}

impl FaultyQueue {
    fn error(&mut self) -> Status {
        match self.plan.errors.len() as u64 {
            0 => Status::IoErr,
            count => self.plan.errors[self.prng.below(count) as usize],
        }
    }

    fn delay(&mut self) -> u32 {
        if self.plan.reaps_max > 0 && self.prng.percent(self.plan.delayed) {
            count(&self.counts.delayed);
            1 + self.prng.below(u64::from(self.plan.reaps_max)) as u32
        } else {
            0
        }
    }

    /// The reason to refuse with: a completion of ours is promised only if one will come.
    fn reason(&mut self) -> Status {
        let coming = self.in_flight() > self.lost.len();
        if coming && self.prng.percent(50) { Status::DevResource } else { Status::Resource }
    }

    /// Half of the drivers that lose a request own its memory at that moment.
    fn lose(&mut self, tag: Tag, request: &mut Request) {
        count(&self.counts.lost);
        let mut lent = Vec::new();
        if self.prng.percent(50) {
            request.lend(&mut lent);
        }
        self.lost.push(Lost { tag, lent });
    }

    fn hold(&mut self, tag: Tag, status: Status, lent: Vec<Data>) {
        let reaps = self.delay();
        self.held.push(Held { tag, status, lent, reaps });
    }

    /// Whether a cancelled request without lent memory is given back at once.
    fn gives_back(&mut self, lent: &[Data]) -> bool {
        lent.is_empty() && self.prng.percent(self.plan.cancel_done)
    }
}

impl DriverQueue for FaultyQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.now = now;
        while let Some((tag, request)) = batch.peek() {
            if self.prng.percent(self.plan.refused) {
                count(&self.counts.refused);
                return batch.refuse(self.reason());
            }
            if self.prng.percent(self.plan.lost) {
                self.lose(tag, request);
                batch.take();
                continue;
            }
            let mut fate = Fate::Fine;
            if self.prng.percent(self.plan.failed) {
                let error = self.error();
                count(&self.counts.failed);
                if self.prng.percent(50) {
                    self.hold(tag, error, Vec::new());
                    batch.take();
                    continue;
                }
                fate = Fate::Failed(error);
            }
            let before = batch.len();
            batch.offer(1, |one| self.inner.submit(one, now));
            if batch.len() == before {
                return;
            }
            self.fates[usize::from(tag.0)] = fate;
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.now = now;
        let mut below = std::mem::take(&mut self.below);
        self.inner.reap(now, &mut below);
        for (tag, status, lent) in below.drain() {
            let status = match self.fates[usize::from(tag.0)] {
                Fate::Fine => status,
                Fate::Failed(error) => error,
            };
            self.hold(tag, status, lent);
        }
        if below.take_kick() {
            done.kick();
        }
        for (tag, after_ns, lent) in below.drain_requeued() {
            done.push_requeue(tag, after_ns, lent);
        }
        self.below = below;
        let mut due: Vec<Held> = self.held.extract_if(.., |held| held.reaps == 0).collect();
        for held in &mut self.held {
            held.reaps -= 1;
        }
        while !due.is_empty() {
            let next = match self.plan.reordered {
                true => self.prng.below(due.len() as u64) as usize,
                false => 0,
            };
            let mut held = due.remove(next);
            done.push_lent(held.tag, held.status, &mut held.lent);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        if let Some(index) = self.lost.iter().position(|lost| lost.tag == tag) {
            let lost = self.lost.swap_remove(index);
            if self.gives_back(&lost.lent) {
                return Cancel::Done;
            }
            if self.prng.percent(self.plan.late) {
                let status = self.error();
                self.hold(tag, status, lost.lent);
            } else {
                self.lost.push(lost);
            }
            return Cancel::Pending;
        }
        if let Some(index) = self.held.iter().position(|held| held.tag == tag) {
            let held = self.held.swap_remove(index);
            if self.gives_back(&held.lent) {
                return Cancel::Done;
            }
            self.held.push(held);
            return Cancel::Pending;
        }
        self.inner.cancel(tag)
    }

    fn wake_at(&self) -> Option<Nanos> {
        // Nothing below tells when a held answer is due: it is after the next few reaps.
        if self.held.is_empty() { self.inner.wake_at() } else { Some(self.now) }
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event_fd()
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.inner.at_home(lane);
    }

    fn announces(&self) -> bool {
        self.inner.announces()
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.inner.outage_until()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len() + self.lost.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Bio, Buf};
    use weir_local::Null;
    use weir_queue::rig::Rig;

    fn rig(plan: FaultPlan, seed: u64) -> Rig {
        let faulty = Faulty::new(Arc::new(Null::new(1 << 20).unwrap()), plan, seed);
        Rig::new(faulty.open(0, 16).unwrap(), 16)
    }

    fn writes(count: u64) -> Vec<Bio> {
        (0..count).map(|i| Bio::write(i * 8, Buf::zeroed(4096)).cookie(i)).collect()
    }

    #[test]
    fn whatever_goes_wrong_every_request_taken_is_answered_once() {
        for seed in 0..200 {
            let mut rig = rig(FaultPlan::nasty(), seed);
            let (mut waiting, mut ended) = (writes(16), Vec::new());
            for turn in 0..1000 {
                let rest = rig.submit(std::mem::take(&mut waiting), Nanos(turn));
                waiting = rest.map_or_else(Vec::new, |(_, rest)| rest);
                ended.extend(rig.reap(Nanos(turn)).iter().map(|answer| answer.cookie));
                if ended.len() == 16 {
                    break;
                }
            }
            ended.sort_unstable();
            assert_eq!(ended, (0..16).collect::<Vec<u64>>(), "seed {seed}");
            assert_eq!((rig.queue().in_flight(), rig.queue().wake_at()), (0, None), "seed {seed}");
        }
    }

    #[test]
    fn a_completion_is_promised_only_when_one_will_come() {
        for seed in 0..200 {
            let mut rig = rig(FaultPlan { refused: 40, lost: 40, ..FaultPlan::default() }, seed);
            let count = 8;
            if let Some((Status::DevResource, rest)) = rig.submit(writes(count), Nanos::ZERO) {
                let answered = rig.reap(Nanos::ZERO).len();
                assert!(answered > 0, "seed {seed}: none of {} came", count - rest.len() as u64);
            }
            rig.cancel_all(Nanos::ZERO);
        }
    }

    #[test]
    fn a_lost_request_is_answered_only_after_it_was_cancelled() {
        let plan = FaultPlan { lost: 100, late: 100, ..FaultPlan::default() };
        let mut rig = rig(plan, 1);
        assert!(rig.submit(writes(4), Nanos::ZERO).is_none());
        assert!(rig.reap(Nanos(1)).is_empty());
        assert_eq!(rig.queue().in_flight(), 4);
        assert_eq!(rig.cancel_all(Nanos(2)), vec![Cancel::Pending; 4]);
        // The rig swallows answers to cancelled tags; that they came shows in the count.
        assert!(rig.reap(Nanos(3)).is_empty());
        assert_eq!(rig.queue().in_flight(), 0);
    }

    #[test]
    fn the_same_seed_makes_the_same_faults() {
        let run = |seed| {
            let mut rig = rig(FaultPlan::nasty(), seed);
            let refused = rig.submit(writes(16), Nanos::ZERO).map(|(why, rest)| (why, rest.len()));
            let first: Vec<(u64, Status)> =
                rig.reap(Nanos::ZERO).iter().map(|a| (a.cookie, a.status)).collect();
            while rig.queue().in_flight() > 0 {
                rig.reap(Nanos::ZERO);
            }
            (refused, first)
        };
        assert_eq!(run(5), run(5));
        assert!((6..20).any(|seed| run(5) != run(seed)));
    }
}
