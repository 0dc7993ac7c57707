//! A scheduler around another: the thread that picks is told for which hard queue it does, and may
//! stop the picking.

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
pub struct Watched(pub Box<dyn Scheduler>);

impl Scheduler for Watched {
    fn dispatch_batch(&mut self, lane: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        if let Some(mut asked) = ASKED.take() {
            asked(lane);
            ASKED.set(Some(asked));
        }
        if !SHUT.get() {
            self.0.dispatch_batch(lane, max, out, now);
        }
    }

    fn ended_batch(&mut self, ended: &[Ended], now: Nanos) {
        if let Some(last) = ended.last() {
            ENDED_AT.set(last.done_at);
        }
        self.0.ended_batch(ended, now);
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn wants_times(&self) -> bool {
        self.0.wants_times()
    }

    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge {
        self.0.merge(bio, now)
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        self.0.insert(rq, now, absorbed);
    }

    fn dispatch(&mut self, lane: u16, now: Nanos) -> Option<Rq> {
        self.0.dispatch(lane, now)
    }

    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        self.0.stage_batch(batch, now, absorbed)
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        self.0.drain(out, now);
    }

    fn has_work(&self, lane: u16) -> bool {
        self.0.has_work(lane)
    }

    fn staged(&self) -> usize {
        self.0.staged()
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.0.wake_at()
    }

    fn on_timer(&mut self, now: Nanos) {
        self.0.on_timer(now);
    }

    fn take_kicked(&mut self) -> u64 {
        self.0.take_kicked()
    }

    fn may_queue(&self, bio: &Rq) -> MayQueue {
        self.0.may_queue(bio)
    }

    fn idles_for(&self) -> Option<SubmitterId> {
        self.0.idles_for()
    }

    fn depth_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        self.0.depth_limit(op, sync, context)
    }

    fn depth_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        self.0.depth_rule(batch, now)
    }

    fn context_started(&mut self, context: SubmitterId, lane: u16) {
        self.0.context_started(context, lane);
    }

    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        self.0.context_ended(context, now);
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.0.depth_changed(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.0.limits_changed(limits, nomerges);
    }

    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        self.0.group_parent(group, parent);
    }

    fn group_weight_changed(&mut self, group: GroupId, weight: u16, now: Nanos) {
        self.0.group_weight_changed(group, weight, now);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        self.0.tunables()
    }
}
