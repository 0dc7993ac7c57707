//! Writes that the write-back throttle holds back (docs/behaviour/block-layer.md, section 16).
//!
//! They were accepted and wait in front of their slots, so that reads of the same submitter find
//! slots; in the order in which they came. A write that joins the newest request of the plug does
//! not wait: that request has been let through.

use std::collections::VecDeque;

use weir_bio::{Bio, Flags, Nanos, Rq, RqId, Status};
use weir_sched::merge::{Fit, fit};

use super::Core;
use super::parts::SplitBio;
use super::plug::Way;
use crate::completion::Why;
use crate::event::Sink;
use crate::request::{Counted, FlushStep, rq_of};
use crate::split;
use crate::wbt::{Kind, TrackedEnds};

/// The places of bios that wait, by kind.
#[derive(Default)]
pub(crate) struct Held {
    waiting: usize,
    lines: Box<[VecDeque<usize>; 2]>,
}

impl Held {
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.waiting > 0
    }

    fn push(&mut self, kind: Kind, index: usize) {
        self.lines[kind as usize].push_back(index);
        self.waiting += 1;
    }

    fn pop(&mut self, kind: Kind) -> Option<usize> {
        let index = self.lines[kind as usize].pop_front()?;
        self.waiting -= 1;
        Some(index)
    }

    /// Takes one out of the line; whether it was there.
    fn forget(&mut self, kind: Kind, index: usize) -> bool {
        let line = &mut self.lines[kind as usize];
        let place = line.iter().position(|waiting| *waiting == index);
        place.map(|place| line.remove(place)).inspect(|_| self.waiting -= 1).is_some()
    }
}

impl Core {
    /// Whether the write-back throttle has a say in a bio.
    pub(super) fn is_throttled(&self, bio: &Bio) -> bool {
        self.snapshot.throttled && Kind::of(bio).is_some()
    }

    /// Asks the throttle for a bio, or a part of one that was `accepted`: what it counts as; `None`
    /// if it is to be held back, and has a place in the line if it may wait.
    pub(super) fn pass_throttle(
        &mut self,
        bio: &Bio,
        step: FlushStep,
        now: Nanos,
        accepted: bool,
    ) -> Option<Counted> {
        let kind = Kind::of(bio).filter(|_| self.snapshot.throttled);
        let Some(kind) = kind else { return Some(Counted::NONE) };
        if !step.is_sequenced() && self.joins_newest(bio) {
            return Some(Counted::NONE);
        }
        let waits = accepted || !bio.flags.has(Flags::NOWAIT);
        let passes = self.shared.enter_throttle(bio, kind, (self.id, &self.port), waits, now);
        passes.then(|| Counted::throttled(kind))
    }

    /// Whether it is merged as soon as it is plugged.
    fn joins_newest(&mut self, bio: &Bio) -> bool {
        let limits = &self.snapshot.limits;
        if self.snapshot.nomerges >= 2 || !split::starts_on_boundary(&bio.data, limits) {
            return false;
        }
        let rq = rq_of(bio, RqId::new(self.id, 0, 0), split::segments(&bio.data, limits));
        let joins = |newest: &Rq| matches!(fit(newest, &rq, limits), Fit::Joins(_));
        match self.way {
            Way::Ring => self.rings[0].with_newest(|newest| joins(&newest.rq)).unwrap_or(false),
            Way::General => self.plug.last().is_some_and(|newest| joins(&newest.rq)),
        }
    }

    /// Holds a whole bio back, or ends one that may not wait.
    pub(super) fn hold_back(
        &mut self,
        bio: &mut Bio,
        step: FlushStep,
        charged: bool,
    ) -> Result<(), Why> {
        if bio.flags.has(Flags::NOWAIT) {
            self.end_unsent_unpaid(bio, Status::Again, charged);
            return Ok(());
        }
        let bio = Bio { data: std::mem::take(&mut bio.data), ..*bio };
        let kind = Kind::of(&bio).expect("the throttle holds writes back");
        let index = self.add_parts(SplitBio::of(bio, step));
        self.held.push(kind, index);
        Ok(())
    }

    /// Holds the rest of a bio back.
    pub(super) fn hold(&mut self, index: usize, rest: Bio) {
        let kind = Kind::of(&rest).expect("the throttle holds writes back");
        self.parts[index].as_mut().expect("parts under way").put_back(rest);
        self.held.push(kind, index);
    }

    /// Sends what may go on, as far as there are slots.
    #[cold]
    pub(super) fn send_held(&mut self, now: Nanos, sink: impl Sink) {
        for kind in Kind::ALL {
            while (!self.free.is_empty() || self.make_slot())
                && self.shared.wbt.take_grant(self.id, kind)
            {
                let index = self.held.pop(kind).expect("a grant for one that waits");
                let parts = self.parts[index].as_mut().expect("parts under way");
                parts.granted = Counted::throttled(kind);
                self.issue_parts(index, now, sink);
            }
        }
        self.flush_plug(now, sink);
    }

    /// The rest of a bio is not sent any more.
    #[cold]
    pub(super) fn forget_waiting(&mut self, index: usize, now: Nanos) {
        self.backlog.retain(|waiting| *waiting != index);
        for kind in Kind::ALL {
            if self.held.forget(kind, index) {
                self.shared.leave_throttle(self.id, kind, now);
            }
        }
    }

    /// A write that was let through is not sent after all.
    #[cold]
    pub(super) fn give_up_throttled(&self, kind: Kind, now: Nanos) {
        let mut ends = TrackedEnds::default();
        ends.count(kind, Status::Ok);
        self.shared.end_throttled(ends, now);
    }
}
