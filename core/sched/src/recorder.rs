//! Recording a live scheduler: one that wears another, passes every call on, and keeps what came
//! of it on a [`Tape`], in the order in which the scheduler saw it.
//!
//! A device without a recording has none of this: not a branch is left of it. While it records,
//! the scheduler's clock moves in whole microseconds, so that it decides by the times that the
//! recording can state, and a replay decides as it did.

use weir_bio::{GroupId, Limits, Nanos, Op, Rq, SchedTag, SubmitterId};

use crate::contract::{Absorbed, DepthRule, Ended, MayQueue, Merge, Scheduler, Setup};
use crate::replay::{Kind, Range};
use crate::tunable::Tunables;

const NS_PER_US: u64 = 1000;

/// A call of a scheduler with its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A request arrived, and was inserted or merged.
    Arrived {
        /// The request, as it arrived.
        rq: Rq,
        /// One of the three kinds of arrivals.
        kind: Kind,
    },
    /// A hard queue asked and was given a request.
    Picked {
        /// The request's sectors, merged as it is.
        range: Range,
        /// Its context.
        context: SubmitterId,
        /// Its tag, under which it ends.
        tag: SchedTag,
        /// The hard queue that asked.
        hard_queue: u16,
    },
    /// A hard queue asked and was given nothing.
    Denied {
        /// The hard queue that asked.
        hard_queue: u16,
    },
    /// A picked request is gone.
    Ended(Ended),
    /// The scheduler's timer.
    Fired,
    /// Requests of this context belong to this hard queue from now on.
    ContextBegun {
        /// The context.
        context: SubmitterId,
        /// Its hard queue.
        hard_queue: u16,
    },
    /// This context sends nothing more.
    ContextGone {
        /// The context.
        context: SubmitterId,
    },
    /// A group stands below another.
    GroupPlaced {
        /// The lower one.
        group: GroupId,
        /// The upper one.
        parent: GroupId,
    },
    /// A group's weight.
    GroupWeighed {
        /// The group.
        group: GroupId,
        /// Its weight, 1..=1000.
        weight: u16,
    },
}

/// A call and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The scheduler's clock, microseconds.
    pub at_us: u64,
    /// The call.
    pub call: Call,
}

/// A change that no line of a recording can state: the recording ends in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// A tunable was set.
    Tunable = 1,
    /// The device's limits or its `nomerges` changed.
    Limits,
    /// `nr_requests` changed.
    Depth,
    /// The device is gone: what was staged left without being chosen.
    Drained,
}

/// Keeps calls. It is called under the right of its scheduler and must not wait.
pub trait Tape: Send + 'static {
    /// Keeps a call, or counts it as lost.
    fn keep(&mut self, noted: Noted);

    /// What was kept may be read.
    fn publish(&mut self);

    /// Nothing more is kept.
    fn cut(&mut self, why: Cut);
}

/// The state from which a recording begins: that of a scheduler newly made, with these settings.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The scheduler's name.
    pub scheduler: &'static str,
    /// The setting it was made in.
    pub setup: Setup,
    /// Tunables that are not at their default.
    pub settings: Vec<(&'static str, i128)>,
}

/// A scheduler at work, recorded on a tape.
pub struct Recorder<T> {
    inner: Box<dyn Scheduler>,
    tape: T,
    last_us: u64,
    limits: Limits,
    nomerges: u8,
}

impl<T: Tape> Recorder<T> {
    /// Records `inner`, which was made with `setup` and has seen nothing, from `now` on.
    #[must_use]
    pub fn new(inner: Box<dyn Scheduler>, setup: &Setup, tape: T, now: Nanos) -> Recorder<T> {
        let (limits, nomerges) = (setup.limits.clone(), setup.nomerges);
        Recorder { inner, tape, last_us: now.0 / NS_PER_US, limits, nomerges }
    }

    /// The time as the scheduler is told it.
    #[inline]
    fn tick(&mut self, now: Nanos) -> Nanos {
        self.last_us = self.last_us.max(now.0 / NS_PER_US);
        Nanos(self.last_us * NS_PER_US)
    }

    #[inline(always)]
    fn keep(&mut self, call: Call) {
        self.tape.keep(Noted { at_us: self.last_us, call });
    }

    /// An arrival of which this came: merged, or inserted and then perhaps absorbed.
    #[inline(always)]
    fn keep_arrival(&mut self, rq: &Rq, merge: Merge, is_absorbed: bool) {
        let kind = match merge {
            // An insert makes the new request the tail of another, never its head.
            Merge::No if is_absorbed => Kind::MergedBack,
            Merge::No => Kind::Inserted,
            Merge::Back(_) | Merge::BackJoined { .. } => Kind::MergedBack,
            Merge::Front(_) | Merge::FrontJoined { .. } => Kind::MergedFront,
        };
        self.keep(Call::Arrived { rq: *rq, kind });
    }
}

#[inline(always)]
fn picked(rq: &Rq, hard_queue: u16) -> Call {
    let range = Range { op: rq.op, sector: rq.sector, sectors: rq.sectors };
    Call::Picked { range, context: rq.id.submitter(), tag: rq.tag, hard_queue }
}

/// An end with its times in whole microseconds.
#[inline]
fn whole(end: &Ended) -> Ended {
    let floor = |at: Nanos| Nanos(at.0 / NS_PER_US * NS_PER_US);
    Ended {
        accepted_at: floor(end.accepted_at),
        issued_at: floor(end.issued_at),
        done_at: floor(end.done_at),
        ..*end
    }
}

impl<T: Tape> Scheduler for Recorder<T> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge {
        let now = self.tick(now);
        let merge = self.inner.merge(bio, now);
        if merge != Merge::No {
            self.keep_arrival(bio, merge, false);
            self.tape.publish();
        }
        merge
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        let now = self.tick(now);
        let before = absorbed.len();
        self.inner.insert(rq, now, absorbed);
        self.keep_arrival(&rq, Merge::No, absorbed.len() > before);
        self.tape.publish();
    }

    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        let now = self.tick(now);
        let before = absorbed.len();
        let (taken, merge) = self.inner.stage_batch(batch, now, absorbed);
        if let Some((last, inserted)) = batch[..taken].split_last() {
            for rq in inserted {
                self.keep_arrival(rq, Merge::No, false);
            }
            self.keep_arrival(last, merge, absorbed.len() > before);
        }
        self.tape.publish();
        (taken, merge)
    }

    fn dispatch(&mut self, hard_queue: u16, now: Nanos) -> Option<Rq> {
        let now = self.tick(now);
        let given = self.inner.dispatch(hard_queue, now);
        self.keep(match given {
            Some(rq) => picked(&rq, hard_queue),
            None => Call::Denied { hard_queue },
        });
        self.tape.publish();
        given
    }

    fn dispatch_batch(&mut self, hard_queue: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        if max == 0 {
            return;
        }
        let now = self.tick(now);
        let before = out.len();
        self.inner.dispatch_batch(hard_queue, max, out, now);
        for rq in &out[before..] {
            self.keep(picked(rq, hard_queue));
        }
        if out.len() - before < max {
            self.keep(Call::Denied { hard_queue });
        }
        self.tape.publish();
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        self.tape.cut(Cut::Drained);
        let now = self.tick(now);
        self.inner.drain(out, now);
    }

    fn wants_times(&self) -> bool {
        self.inner.wants_times()
    }

    fn ended(&mut self, end: &Ended, now: Nanos) {
        self.ended_batch(std::slice::from_ref(end), now);
    }

    fn ended_batch(&mut self, ends: &[Ended], now: Nanos) {
        let now = self.tick(now);
        if self.inner.wants_times() {
            for end in ends {
                let end = whole(end);
                self.inner.ended(&end, now);
                self.keep(Call::Ended(end));
            }
        } else {
            self.inner.ended_batch(ends, now);
            for end in ends {
                self.keep(Call::Ended(*end));
            }
        }
        self.tape.publish();
    }

    fn has_work(&self, hard_queue: u16) -> bool {
        self.inner.has_work(hard_queue)
    }

    fn staged(&self) -> usize {
        self.inner.staged()
    }

    /// Rounded up: when it has come, so has the scheduler's own moment by its clock.
    fn wake_at(&self) -> Option<Nanos> {
        let at = self.inner.wake_at()?;
        Some(Nanos(at.0.div_ceil(NS_PER_US).saturating_mul(NS_PER_US)))
    }

    fn on_timer(&mut self, now: Nanos) {
        let now = self.tick(now);
        self.inner.on_timer(now);
        self.keep(Call::Fired);
        self.tape.publish();
    }

    fn take_kicked(&mut self) -> u64 {
        self.inner.take_kicked()
    }

    fn may_queue(&self, bio: &Rq) -> MayQueue {
        self.inner.may_queue(bio)
    }

    fn idles_for(&self) -> Option<SubmitterId> {
        self.inner.idles_for()
    }

    fn depth_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        self.inner.depth_limit(op, sync, context)
    }

    fn depth_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        let us = self.last_us.max(now.0 / NS_PER_US);
        self.inner.depth_rule(batch, Nanos(us * NS_PER_US))
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.tape.cut(Cut::Depth);
        self.inner.depth_changed(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        // Told with every change of the device, whatever it was.
        if *limits != self.limits || nomerges != self.nomerges {
            self.tape.cut(Cut::Limits);
        }
        self.inner.limits_changed(limits, nomerges);
    }

    fn context_started(&mut self, context: SubmitterId, hard_queue: u16) {
        self.inner.context_started(context, hard_queue);
        self.keep(Call::ContextBegun { context, hard_queue });
        self.tape.publish();
    }

    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        let now = self.tick(now);
        self.inner.context_ended(context, now);
        self.keep(Call::ContextGone { context });
        self.tape.publish();
    }

    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        self.inner.group_parent(group, parent);
        self.keep(Call::GroupPlaced { group, parent });
        self.tape.publish();
    }

    fn group_weight_changed(&mut self, group: GroupId, weight: u16, now: Nanos) {
        let now = self.tick(now);
        self.inner.group_weight_changed(group, weight, now);
        self.keep(Call::GroupWeighed { group, weight });
        self.tape.publish();
    }

    /// Where one is set, the engine says so to the tape.
    fn tunables(&mut self) -> &mut dyn Tunables {
        self.inner.tunables()
    }

    fn take_inner(&mut self) -> Option<Box<dyn Scheduler>> {
        Some(std::mem::replace(&mut self.inner, Box::new(Gone)))
    }
}

/// The place of a scheduler that was taken out of its recorder, which goes next.
struct Gone;

impl Scheduler for Gone {
    fn name(&self) -> &'static str {
        "none"
    }

    fn merge(&mut self, _bio: &Rq, _now: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, _now: Nanos, _absorbed: &mut Absorbed) {
        unreachable!("{rq:?} for a recorder without a scheduler");
    }

    fn dispatch(&mut self, _hard_queue: u16, _now: Nanos) -> Option<Rq> {
        None
    }

    fn staged(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes at a moment between two microseconds, and at the last of all.
    struct Sleeper(u64);

    impl Scheduler for Sleeper {
        fn name(&self) -> &'static str {
            "sleeper"
        }

        fn merge(&mut self, _bio: &Rq, _now: Nanos) -> Merge {
            Merge::No
        }

        fn insert(&mut self, _rq: Rq, _now: Nanos, _absorbed: &mut Absorbed) {}

        fn dispatch(&mut self, _hard_queue: u16, _now: Nanos) -> Option<Rq> {
            None
        }

        fn staged(&self) -> usize {
            0
        }

        fn wake_at(&self) -> Option<Nanos> {
            Some(Nanos(self.0))
        }
    }

    struct NoTape;

    impl Tape for NoTape {
        fn keep(&mut self, _noted: Noted) {}

        fn publish(&mut self) {}

        fn cut(&mut self, _why: Cut) {}
    }

    #[test]
    fn a_moment_between_two_microseconds_comes_with_the_later_one() {
        let (limits, nr_requests, hard_queues) = (Limits::default(), 1, 1);
        let setup = Setup { limits, nr_requests, hard_queues, nomerges: 0, compat: "" };
        for (at, expected) in [(1_000, 1_000), (1_001, 2_000), (u64::MAX, u64::MAX)] {
            let inner = Box::new(Sleeper(at));
            let recorder = Recorder::new(inner, &setup, NoTape, Nanos::ZERO);
            assert_eq!(recorder.wake_at(), Some(Nanos(expected)), "{at}");
        }
    }
}
