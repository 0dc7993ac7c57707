//! Requests that a driver does not take, or hands back to be sent again: at once, after some time,
//! or when it kicks.

use weir_bio::{Nanos, SchedTag, Status};

use super::{HardQueue, NEVER, RETRY_NS, end_of};
use crate::driver::{Returned, UNTIL_KICKED};
use crate::event::{Sink, What, lane_tells};
use crate::request::{RequestClaim, State};
use crate::stats::direction;

impl HardQueue {
    /// The driver hands requests back, to be sent again: from here, ahead of newer ones, so for the
    /// scheduler they have ended (docs/behaviour/block-layer.md, section 6).
    #[cold]
    pub(super) fn take_requeued(&mut self, now: Nanos, sink: impl Sink) {
        for back in std::mem::take(&mut self.done.requeued).into_iter().rev() {
            let mut claim = match self.table.end(back.tag) {
                Returned::Request(claim) => claim,
                // Its submitter was told, so its memory goes.
                Returned::Quarantined => {
                    self.end_quarantined(back.tag, now);
                    continue;
                }
                Returned::Stray => {
                    self.gauges.strays.add(1);
                    continue;
                }
            };
            self.tags.give(back.tag);
            if !back.lent.is_empty() {
                claim.take_back(back.lent.len(), &mut back.lent.into());
            }
            let after_ns = back.after_ns;
            lane_tells(sink, self.lane, now, || What::Requeued {
                rq: claim.rq,
                tag: back.tag,
                after_ns,
            });
            if claim.rq.tag != SchedTag::NONE {
                self.ended.push(end_of(&claim, claim.status, true, now));
                claim.rq.tag = SchedTag::NONE;
            }
            claim.state = State::Idle;
            claim.hand_back();
            self.gauges.ended[direction(claim.rq.op)].add(1);
            match back.after_ns {
                0 => self.put_first(claim),
                UNTIL_KICKED => self.delayed.push((NEVER, claim)),
                after => self.delayed.push((now + after, claim)),
            }
        }
        self.see_returned(now);
    }

    /// The driver has taken the first so many of the burst: the others go back to the head of the
    /// dispatch list, or to that of the commands.
    #[cold]
    pub(super) fn take_back_refused(
        &mut self,
        taken: usize,
        status: Option<Status>,
        now: Nanos,
        sink: impl Sink,
    ) {
        for index in (taken..self.burst.len()).rev() {
            let tag = self.burst[index];
            let mut claim = self.table.refused(tag);
            self.tags.give(tag);
            lane_tells(sink, self.lane, now, || What::Refused {
                rq: claim.rq,
                tag,
                status: status.unwrap_or(Status::Resource),
            });
            claim.state = State::Idle;
            self.gauges.ended[direction(claim.rq.op)].add(1);
            match index < self.reserved {
                true => self.commands.insert(0, claim),
                false => self.dispatch.push_front(claim),
            }
        }
        // The driver may hold nothing but what was given up: no answer then that it could promise.
        let promised = status == Some(Status::DevResource)
            && self.driver.in_flight() > self.table.quarantined();
        if !promised {
            self.retry_at = Some(now + RETRY_NS);
        }
        if taken == 0 {
            if self.watch.refused_since.is_none() {
                self.watch.refused_since = Some(now);
                self.set_clocks(now);
            }
            self.watch.trouble = true;
        }
    }

    /// The driver kicks what it handed back until then.
    #[cold]
    pub(super) fn kick_delayed(&mut self, now: Nanos) {
        self.done.kicked = false;
        for (at, _) in self.delayed.iter_mut().filter(|(at, _)| *at == NEVER) {
            *at = now;
        }
    }

    /// When the first of those that wait for a time is sent again.
    #[inline]
    pub(super) fn delayed_until(&self) -> Option<Nanos> {
        if self.delayed.is_empty() {
            return None;
        }
        self.delayed.iter().map(|(at, _)| *at).filter(|at| *at != NEVER).min()
    }

    /// Requests that were to be sent again after some time, and whose time has come.
    #[cold]
    pub(super) fn take_delayed(&mut self, now: Nanos) {
        let due: Vec<_> = self.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, claim)| self.put_first(claim));
    }

    /// Puts a request before all that wait for the same tags: a command on a reserved tag gets a
    /// reserved tag again, because the others may all be out or lost.
    #[cold]
    fn put_first(&mut self, mut claim: RequestClaim) {
        let reserved = claim.carried().is_some_and(|carried| carried.command.reserved);
        match reserved {
            true => self.commands.insert(0, claim),
            false => self.dispatch.push_front(claim),
        }
    }
}
