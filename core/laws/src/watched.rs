//! A scheduler around another: the thread that picks is told for which hard queue it does, and may
//! stop the picking. It holds the queue to its part of the contract: `now` never goes back.

use std::cell::{Cell, RefCell};

use weir_bio::{GroupId, Limits, Nanos, Op, Rq, SubmitterId};
use weir_sched::{Absorbed, DepthRule, Ended, MayQueue, Merge, Scheduler, Tunables};

type Hook = Box<dyn FnMut(u16)>;

thread_local! {
    /// Called with its number before a hard queue is picked for.
    static ASKED: RefCell<Option<Hook>> = const { RefCell::new(None) };
    /// Nothing is picked.
    static SHUT: Cell<bool> = const { Cell::new(false) };
    /// When what the scheduler has heard of last had ended.
    static ENDED_AT: Cell<Nanos> = const { Cell::new(Nanos::ZERO) };
}

/// From now on this thread picks nothing, or all there is.
pub fn shut(shut: bool) {
    SHUT.set(shut);
}

/// When what this thread has told a scheduler last had ended.
pub fn ended_at() -> Nanos {
    ENDED_AT.get()
}

/// From now on `asked` is called whenever this thread picks for a hard queue, with its number.
pub fn on_asked(asked: impl FnMut(u16) + 'static) {
    ASKED.set(Some(Box::new(asked)));
}

/// Nothing is called any more.
pub fn on_asked_nothing() {
    ASKED.set(None);
}

/// A scheduler whose picks call the hook of the thread.
pub struct Watched {
    scheduler: Box<dyn Scheduler>,
    /// The time of the last call that brought one.
    latest: Cell<Nanos>,
}

impl Watched {
    /// Around this one.
    pub fn new(scheduler: impl Scheduler + 'static) -> Watched {
        Watched { scheduler: Box::new(scheduler), latest: Cell::new(Nanos::ZERO) }
    }

    fn see(&self, now: Nanos) {
        let before = self.latest.replace(now);
        assert!(before <= now, "a scheduler's time went back from {before:?} to {now:?}");
    }
}

impl Scheduler for Watched {
    fn dispatch_batch(&mut self, lane: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        self.see(now);
        if let Some(mut asked) = ASKED.take() {
            asked(lane);
            ASKED.set(Some(asked));
        }
        if !SHUT.get() {
            self.scheduler.dispatch_batch(lane, max, out, now);
        }
    }

    fn ended_batch(&mut self, ended: &[Ended], now: Nanos) {
        self.see(now);
        if let Some(last) = ended.last() {
            ENDED_AT.set(last.done_at);
        }
        self.scheduler.ended_batch(ended, now);
    }

    fn name(&self) -> &'static str {
        self.scheduler.name()
    }

    fn wants_times(&self) -> bool {
        self.scheduler.wants_times()
    }

    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge {
        self.see(now);
        self.scheduler.merge(bio, now)
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        self.see(now);
        self.scheduler.insert(rq, now, absorbed);
    }

    fn dispatch(&mut self, lane: u16, now: Nanos) -> Option<Rq> {
        self.see(now);
        self.scheduler.dispatch(lane, now)
    }

    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        self.see(now);
        self.scheduler.stage_batch(batch, now, absorbed)
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        self.see(now);
        self.scheduler.drain(out, now);
    }

    fn has_work(&self, lane: u16) -> bool {
        self.scheduler.has_work(lane)
    }

    fn staged(&self) -> usize {
        self.scheduler.staged()
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.scheduler.wake_at()
    }

    fn on_timer(&mut self, now: Nanos) {
        self.see(now);
        self.scheduler.on_timer(now);
    }

    fn take_kicked(&mut self) -> u64 {
        self.scheduler.take_kicked()
    }

    fn may_queue(&self, bio: &Rq) -> MayQueue {
        self.scheduler.may_queue(bio)
    }

    fn idles_for(&self) -> Option<SubmitterId> {
        self.scheduler.idles_for()
    }

    fn depth_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        self.scheduler.depth_limit(op, sync, context)
    }

    fn depth_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        self.see(now);
        self.scheduler.depth_rule(batch, now)
    }

    fn context_started(&mut self, context: SubmitterId, lane: u16) {
        self.scheduler.context_started(context, lane);
    }

    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        self.see(now);
        self.scheduler.context_ended(context, now);
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.scheduler.depth_changed(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.scheduler.limits_changed(limits, nomerges);
    }

    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        self.scheduler.group_parent(group, parent);
    }

    fn group_weight_changed(&mut self, group: GroupId, weight: u16, now: Nanos) {
        self.see(now);
        self.scheduler.group_weight_changed(group, weight, now);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        self.scheduler.tunables()
    }
}
