//! The contract between engine and scheduler, and the one for schedulers that can be replayed.

use weir_bio::{GroupId, Limits, Nanos, Op, Rq, SchedTag, Status, SubmitterId};

use crate::merge::Side;
use crate::tunable::{self, Tunables};

/// The setting in which a scheduler is attached.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device's limits; replaced by [`Scheduler::limits_changed`].
    pub limits: Limits,
    /// Scheduler tags: requests it may hold or have in flight at once.
    pub nr_requests: u16,
    /// Hard queues that will ask it.
    pub hard_queues: u16,
    /// The `nomerges` attribute: 0 every merge, 1 cheap ones only, 2 none.
    pub nomerges: u8,
    /// Whose behaviour it has: one of its entry's [`compat`](crate::Entry::compat), or empty for
    /// the first of them.
    pub compat: &'static str,
}

/// The outcome of offering a bio for merging. Tags name staged requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Nothing fits; the bio becomes a request of its own.
    No,
    /// It is now the tail of this request.
    Back(SchedTag),
    /// It is now the head of this request, which starts at the bio's first sector.
    Front(SchedTag),
    /// As `Back`, and the request then also took in the one that began where it now ends.
    BackJoined {
        /// The request that remains.
        kept: SchedTag,
        /// The request that is now the kept one's tail; its tag is free.
        gone: SchedTag,
    },
    /// As `Front`, and the request before then took this one in.
    FrontJoined {
        /// The request that remains.
        kept: SchedTag,
        /// The request (with the bio at its head) that is now the kept one's tail.
        gone: SchedTag,
    },
}

/// Requests that disappeared into others during an insert, as (kept, gone) in order. In each pair
/// `gone` became the tail of `kept`; the engine chains their memory the same way.
pub type Absorbed = Vec<(SchedTag, SchedTag)>;

/// The requests that a depth limit holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthRule {
    /// Nothing is limited.
    Free,
    /// Writes may hold so many tags together, other requests any number.
    Writes(u16),
    /// Async requests may hold so many tags together, sync ones any number.
    Async(u16),
    /// Async requests may hold so many tags together, sync writes so many, sync reads any number.
    Kinds {
        /// The limit of async requests.
        asyncs: u16,
        /// The limit of sync writes.
        sync_writes: u16,
    },
    /// Ask for each, when nothing stands between the answer and its insert.
    Each,
}

impl DepthRule {
    /// How many tags requests like this may hold together, `None`: all. [`Each`](DepthRule::Each)
    /// cannot tell, and says 0.
    #[must_use]
    #[inline]
    pub fn limit_of(self, rq: &Rq) -> Option<u16> {
        self.limits()[DepthRule::kind(rq)]
    }

    /// The limits by [`kind`](DepthRule::kind) of request.
    #[must_use]
    #[inline]
    pub fn limits(self) -> [Option<u16>; 4] {
        match self {
            DepthRule::Free => [None; 4],
            DepthRule::Writes(limit) => [None, Some(limit), None, Some(limit)],
            DepthRule::Async(limit) => [None, None, Some(limit), Some(limit)],
            DepthRule::Kinds { asyncs, sync_writes } => {
                [None, Some(sync_writes), Some(asyncs), Some(asyncs)]
            }
            DepthRule::Each => [Some(0); 4],
        }
    }

    /// The place of requests like this in [`limits`](DepthRule::limits): bit 0 is set for a write,
    /// bit 1 for an async request. A number and no branch, as kinds come mixed by chance.
    #[must_use]
    #[inline]
    pub fn kind(rq: &Rq) -> usize {
        usize::from(rq.op.is_write()) | usize::from(!rq.is_sync()) << 1
    }
}

/// An end, with the times latency rules need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The request.
    pub tag: SchedTag,
    /// How it ended.
    pub status: Status,
    /// The driver handed it back, and it is sent again without the scheduler: its times are no
    /// latency. Means nothing where times are not wanted.
    pub handed_back: bool,
    /// When the block layer took it.
    pub accepted_at: Nanos,
    /// When the driver took it.
    pub issued_at: Nanos,
    /// When its answer was taken from the driver; the scheduler may be told later.
    pub done_at: Nanos,
}

impl Ended {
    /// An end for a scheduler that looks at no times.
    #[must_use]
    pub const fn untimed(tag: SchedTag) -> Ended {
        let (status, handed_back, at) = (Status::Ok, false, Nanos::ZERO);
        Ended { tag, status, handed_back, accepted_at: at, issued_at: at, done_at: at }
    }
}

/// What a scheduler says of a request more on the single-queue path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayQueue {
    /// As the pool has it.
    May,
    /// Also where the pool is full, up to half as many again as it has.
    Must,
    /// Not now: its submitter waits as where the pool is full.
    No,
}

/// Decides which staged request goes to the device next.
///
/// Owns no clock, thread or lock: every call brings `now`, and `now` never goes back, so the
/// daemon and the simulator run the same code. Requests are named by their [`SchedTag`], which the
/// engine hands out before `insert` and takes back when it tells of the end; the issuing context
/// (what BFQ and CFQ call a process) is `rq.id.submitter()`, and its priority is `rq.ioprio`.
///
/// Five methods are the scheduler. The others have bodies that are right for one that gives each
/// request as soon as it is asked, holds nothing back and limits no one: it needs none of them.
///
/// # Contract
/// Each inserted request leaves through [`dispatch`](Scheduler::dispatch) exactly once, or into
/// another through a merge; the tag of one that was absorbed is free at once. When `dispatch`
/// answers `None` while requests remain, [`wake_at`](Scheduler::wake_at) says when to ask again or
/// a request is in flight, so that none is stranded. Passthrough and flush requests never come
/// here, and a request that the driver handed back does not come again.
///
/// The engine asks for a hard queue when something of its contexts was inserted, when one of its
/// own requests has ended and when its driver has room again. A scheduler that answers every hard
/// queue alike needs no more; one that does not names those that may go on for another reason in
/// [`take_kicked`](Scheduler::take_kicked).
pub trait Scheduler: Send {
    /// Its name in the `scheduler` attribute.
    fn name(&self) -> &'static str;

    /// Offers a bio before it becomes a request. Its tag means nothing yet.
    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge;

    /// Takes a request. It may first merge backwards into staged ones; what disappeared is
    /// appended to `absorbed`, the new request's own tag included if it did.
    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed);

    /// One opportunity of hard queue `hard_queue`: at most one request.
    fn dispatch(&mut self, hard_queue: u16, now: Nanos) -> Option<Rq>;

    /// Requests inserted and neither dispatched nor absorbed.
    fn staged(&self) -> usize;

    /// [`merge`](Scheduler::merge), and if nothing fits [`insert`](Scheduler::insert),
    /// for one after the other of `batch`, which have their tags already. Ends behind the first of
    /// which something came, so that the engine can follow: says how many it took and what the
    /// merge of the last of them came to; `absorbed` has what its insert did.
    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        for (before, rq) in batch.iter().enumerate() {
            let merge = self.merge(rq, now);
            if merge != Merge::No {
                return (before + 1, merge);
            }
            self.insert(*rq, now, absorbed);
            if !absorbed.is_empty() {
                return (before + 1, Merge::No);
            }
        }
        (batch.len(), Merge::No)
    }

    /// [`dispatch`](Scheduler::dispatch) until `max` requests or `None`, appended to `out`.
    fn dispatch_batch(&mut self, hard_queue: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        for _ in 0..max {
            match self.dispatch(hard_queue, now) {
                Some(rq) => out.push(rq),
                None => return,
            }
        }
    }

    /// Takes everything out at once, past all limits and without waiting, as if `dispatch` had
    /// chosen it: the device is gone. One that holds requests back has a body of its own.
    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        self.dispatch_batch(0, usize::MAX, out, now);
    }

    /// Whether it looks at the times of an end; else the engine need not carry them.
    fn wants_times(&self) -> bool {
        false
    }

    /// A dispatched request is gone, exactly once for each. Its tag may be reused after this.
    fn ended(&mut self, end: &Ended, now: Nanos) {
        let _ = (end, now);
    }

    /// [`ended`](Scheduler::ended) for each of `ends` in turn.
    fn ended_batch(&mut self, ends: &[Ended], now: Nanos) {
        ends.iter().for_each(|end| self.ended(end, now));
    }

    /// Whether something is staged for this hard queue, even if dispatch would answer `None` now.
    fn has_work(&self, hard_queue: u16) -> bool {
        let _ = hard_queue;
        self.staged() > 0
    }

    /// When to call [`on_timer`](Scheduler::on_timer) and ask again, whether anything is staged or
    /// not. A moment that stays in the past counts as 3 ms from now.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// The moment of `wake_at` has come.
    fn on_timer(&mut self, now: Nanos) {
        let _ = now;
    }

    /// The hard queues, a bit each, that were answered `None` while they had work and may go on
    /// now: because of an end, a timer, a tunable. Taking them clears them; the engine makes each
    /// ask again.
    fn take_kicked(&mut self) -> u64 {
        0
    }

    /// Whether a request like this may be made on the single-queue path, where the pool that it is
    /// of is full or others wait for it. Its tag means nothing yet.
    fn may_queue(&self, bio: &Rq) -> MayQueue {
        let _ = bio;
        MayQueue::May
    }

    /// The submitter for whose next request the device is kept idle. On the single-queue path it is
    /// its turn then, where it waits for a request.
    fn idles_for(&self) -> Option<SubmitterId> {
        None
    }

    /// How many scheduler tags requests like this may hold together; `None`: all of them.
    fn depth_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        let _ = (op, sync, context);
        None
    }

    /// The limits by [`depth_limit`](Scheduler::depth_limit) of each of these, in short, where
    /// there is a short answer that holds while they are inserted one after the other at `now`;
    /// else [`DepthRule::Each`].
    fn depth_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        let _ = (batch, now);
        DepthRule::Free
    }

    /// `nr_requests` is now this; nothing is staged or in flight.
    fn depth_changed(&mut self, nr_requests: u16) {
        let _ = nr_requests;
    }

    /// The device's limits or the `nomerges` attribute changed; nothing is staged.
    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        let _ = (limits, nomerges);
    }

    /// Requests of this submitter belong to this hard queue from now on; nothing of it is staged.
    /// Told before its first merge or insert; until then it belongs to hard queue 0.
    fn context_started(&mut self, context: SubmitterId, hard_queue: u16) {
        let _ = (context, hard_queue);
    }

    /// A submitter is gone and will send nothing more.
    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        let _ = (context, now);
    }

    /// A group stands below this one in the tree of groups; without this call, below the root.
    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        let _ = (group, parent);
    }

    /// A group's weight is now this (1..=1000).
    fn group_weight_changed(&mut self, group: GroupId, weight: u16, now: Nanos) {
        let _ = (group, weight, now);
    }

    /// Its tunables.
    fn tunables(&mut self) -> &mut dyn Tunables {
        tunable::none()
    }

    /// Takes out the scheduler that this one wears, if it only passes calls on, and ends this one:
    /// it is asked nothing more.
    fn take_inner(&mut self) -> Option<Box<dyn Scheduler>> {
        None
    }
}

/// A scheduler that can be led along a recording ([`replay`](crate::replay)): the checker asks
/// copies of it what it would choose, and has it do what was recorded.
pub trait Replay: Scheduler {
    /// The same state once more.
    fn boxed_clone(&self) -> Box<dyn Replay>;

    /// Takes a staged request out as if `dispatch` had chosen it, whatever `dispatch` would choose:
    /// positions and counters move on as for a choice.
    fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Rq;

    /// Joins `bio` to a staged request although [`merge`](Scheduler::merge) did not, without
    /// looking for further joins.
    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side);
}
