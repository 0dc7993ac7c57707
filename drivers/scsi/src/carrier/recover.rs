//! Commands without an answer in time: the abort of one, and the error handler's work on a unit at
//! one port, which is one session. Other ports go on meanwhile.
//!
//! A command whose time is up is aborted, once, while everything else goes on. If that does not
//! help, or if it is the command's second time, the [ladder](crate::escalation) is climbed for its
//! unit: nothing new is sent for the unit on this port until it is well again, and nothing on this
//! port at all while the target or the session is reset. A unit that no level helps is taken
//! offline, and the commands that the port still has are fenced by the core.
//!
//! While the transport has no connection there is nothing to ask for: it ends its commands itself,
//! within the bound that it states.

use std::sync::Arc;

use weir_proto_scsi::decide::RETRIES_ALLOWED;
use weir_proto_scsi::{Lun, ScsiCommand};
use weir_queue::{Cancel, Tag};

use super::own::{Carried, What};
use super::{Carrier, Seat, Wakes};
use crate::escalation::{Act, Escalation, Level};
use crate::slot::Stage;
use crate::transport::{Ends, Management, ManagementAnswer, Refusal};
use crate::unit::UnitState;

/// A climb of the ladder.
#[derive(Debug)]
pub(super) struct Climb {
    ladder: Escalation,
    /// Answers that are awaited.
    awaited: usize,
    /// The worst of those that came.
    worst: ManagementAnswer,
}

/// What the target was asked to end, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// One command, on its own account.
    Command {
        /// Its slot.
        slot: u16,
    },
    /// A command of the mid-layer's own that was abandoned.
    Own {
        /// Its slot.
        slot: u16,
    },
    /// What a climb asks for.
    Climb {
        /// The seat of the climb.
        seat: u16,
        /// Its level then: a late answer is no answer to a later question.
        level: Level,
    },
}

impl Asked {
    pub(super) fn is_of_climb(self, of: u16) -> bool {
        matches!(self, Asked::Climb { seat, .. } if seat == of)
    }
}

impl Carrier {
    /// The time of a command is up, as far as the core can tell.
    #[cold]
    pub(crate) fn overdue(&mut self, seat: u16, tag: Tag, wakes: &mut Wakes) -> Cancel {
        let number = self.host.slot_of(tag.0);
        let slot = self.slots[usize::from(number)];
        if slot.seat != seat || slot.tag != tag || slot.stage == Stage::Free {
            // Its end waits for the next reap.
            return Cancel::Recovering;
        }
        match slot.stage {
            Stage::Sent if self.now.since(slot.sent_at) < self.attempt_ns(number) => {}
            Stage::Sent => self.end_overdue(number, wakes),
            Stage::Kept => self.end_kept(number, wakes),
            Stage::Free | Stage::Aborting | Stage::Overdue => {}
        }
        let lost = self.seat_mut(seat).lost && self.slots[usize::from(number)].is_overdue();
        if lost { Cancel::Pending } else { Cancel::Recovering }
    }

    fn attempt_ns(&mut self, number: u16) -> u64 {
        let slot = self.slots[usize::from(number)];
        self.seat_mut(slot.seat).unit.attempt_ns(slot.prepared.purpose)
    }

    /// A command that waits to be sent again is not kept for ever.
    fn end_kept(&mut self, number: u16, wakes: &mut Wakes) {
        let lifetime = self.attempt_ns(number).saturating_mul(u64::from(RETRIES_ALLOWED) + 1);
        let created = self.slots[usize::from(number)].tries.created;
        if self.now.since(created) >= lifetime
            && let Some(memory) = self.take_kept(number)
        {
            self.finish(number, weir_bio::Status::Timeout, memory, wakes);
        }
    }

    fn end_overdue(&mut self, number: u16, wakes: &mut Wakes) {
        let slot = self.slots[usize::from(number)];
        if self.port.outage_until().is_some_and(|until| self.now < until) {
            // It waits for the connection; its time begins anew with that.
            self.slots[usize::from(number)].sent_at = self.now;
            return;
        }
        let place = self.seat_mut(slot.seat);
        place.counters.timed_out();
        let climbs = place.climb.is_some();
        let spent = slot.tries.aborted || slot.tries.retries >= RETRIES_ALLOWED;
        if climbs || spent {
            self.slots[usize::from(number)].stage = Stage::Overdue;
            return self.escalate(slot.seat, Level::Abort, wakes);
        }
        self.abort(number, wakes);
    }

    /// Asks the target to abort one command.
    fn abort(&mut self, number: u16, wakes: &mut Wakes) {
        let slot = self.slots[usize::from(number)];
        match self.ask(Management::Abort { slot: number }, Level::Abort) {
            Ok(token) => {
                self.slots[usize::from(number)].stage = Stage::Aborting;
                self.asked.push((token, Asked::Command { slot: number }));
            }
            Err(Refusal::Busy) => {
                self.slots[usize::from(number)].stage = Stage::Overdue;
                self.escalate(slot.seat, Level::Abort, wakes);
            }
            Err(Refusal::Down | Refusal::Lost | Refusal::Gone) => {
                self.slots[usize::from(number)].sent_at = self.now;
            }
        }
    }

    fn ask(&mut self, what: Management, level: Level) -> Result<u32, Refusal> {
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.port.manage(what, token, self.now + level.time_ns(), self.now)?;
        self.uncommitted = true;
        Ok(token)
    }

    /// Asks the target to abort a command of the mid-layer's own; false if it cannot be asked now.
    pub(super) fn ask_to_abort_own(&mut self, slot: u16) -> bool {
        let asked = self.ask(Management::Abort { slot }, Level::Abort);
        if let Ok(token) = asked {
            self.asked.push((token, Asked::Own { slot }));
        }
        asked.is_ok()
    }

    /// Commands of this unit, or of all, may be gone without an answer: they are aborted, which
    /// brings them back in any case.
    #[cold]
    pub(super) fn doubt(&mut self, lun: Option<Lun>) {
        let mut wakes = Wakes::default();
        for number in 0..self.slots.len() {
            let slot = self.slots[number];
            if slot.stage != Stage::Sent || slot.seat >= super::own::ORPHAN {
                continue;
            }
            let of = self.seat_mut(slot.seat).unit.lun;
            if lun.is_none_or(|lun| lun == of) {
                self.abort(number as u16, &mut wakes);
            }
        }
        wakes.ring();
    }

    /// Whether the target or the session is being reset: nothing is sent on this port.
    pub(super) fn is_held(&self) -> bool {
        let held = |seat: &Seat| {
            seat.climb.as_ref().is_some_and(|climb| climb.ladder.level() >= Level::Target)
        };
        self.seats.iter().flatten().any(held)
    }

    /// Climbs the ladder for a unit from `level` on, unless that is under way.
    fn escalate(&mut self, seat: u16, level: Level, wakes: &mut Wakes) {
        let (now, deadline) = (self.now, self.host.options.eh_deadline_ns);
        let place = self.seat_mut(seat);
        if place.climb.is_some() {
            return;
        }
        let ladder = Escalation::new(level, deadline, now);
        place.climb = Some(Climb { ladder, awaited: 0, worst: ManagementAnswer::Complete });
        self.climbs += 1;
        self.act(seat, ladder.begin(), wakes);
    }

    /// Does what the ladder says, until something is awaited or it ends.
    fn act(&mut self, seat: u16, first: Act, wakes: &mut Wakes) {
        let mut act = first;
        loop {
            let next = match act {
                Act::Ask(level) => self.ask_level(seat, level),
                Act::Test => self.test(seat),
                Act::Finish => return self.end_climb(seat, wakes),
                Act::GiveUp => return self.give_up(seat, wakes),
            };
            match next {
                Some(next) => act = next,
                None => return,
            }
        }
    }

    fn ask_level(&mut self, seat: u16, level: Level) -> Option<Act> {
        let unit = Arc::clone(&self.seat_mut(seat).unit);
        let questions: Vec<Management> = match level {
            Level::Abort => {
                self.overdue_of(seat).map(|number| Management::Abort { slot: number }).collect()
            }
            Level::Unit => vec![Management::LunReset(unit.lun)],
            Level::Target => vec![Management::TargetReset],
            Level::Session => vec![Management::SessionReset],
        };
        unit.tell(&format!("no answer in time: {}", level.name()));
        let (mut awaited, mut worst) = (0, ManagementAnswer::Complete);
        for question in questions {
            match self.ask(question, level) {
                Ok(token) => {
                    self.asked.push((token, Asked::Climb { seat, level }));
                    awaited += 1;
                }
                Err(Refusal::Busy) => worst = ManagementAnswer::Failed,
                // The transport ends its commands, and this climb has nothing to do.
                Err(Refusal::Down | Refusal::Lost | Refusal::Gone) => return Some(Act::Finish),
            }
        }
        let now = self.now;
        let climb = self.seat_mut(seat).climb.as_mut()?;
        (climb.awaited, climb.worst) = (awaited, worst);
        if awaited > 0 { None } else { Some(climb.ladder.answered(worst, now)) }
    }

    /// Commands of a lane that the port has and whose time is up.
    fn overdue_of(&self, seat: u16) -> impl Iterator<Item = u16> {
        let numbered = self.slots.iter().enumerate();
        let of = move |(number, slot): (usize, &crate::slot::Slot)| {
            (slot.seat == seat && slot.is_overdue()).then_some(number as u16)
        };
        numbered.filter_map(of)
    }

    /// Tests the unit.
    fn test(&mut self, seat: u16) -> Option<Act> {
        if self.port.outage_until().is_some_and(|until| self.now < until) {
            return Some(Act::Finish);
        }
        let time = self.seat_mut(seat).unit.eh_timeout_ns();
        match self.send_own(seat, &ScsiCommand::TestUnitReady, Carried::Nothing, time, What::Test) {
            Ok(()) => None,
            Err(_) => self.next_of_test(seat, false),
        }
    }

    fn next_of_test(&mut self, seat: u16, ready: bool) -> Option<Act> {
        let stuck = self.overdue_of(seat).next().is_some();
        let now = self.now;
        let climb = self.seat_mut(seat).climb.as_mut()?;
        Some(climb.ladder.tested(ready, stuck, now))
    }

    /// The test has ended.
    pub(super) fn tested(&mut self, seat: u16, ready: bool, wakes: &mut Wakes) {
        if let Some(act) = self.next_of_test(seat, ready) {
            self.act(seat, act, wakes);
        }
    }

    /// Answers to what the target was asked to end.
    #[cold]
    pub(super) fn take_managements(&mut self, ends: &mut Ends, wakes: &mut Wakes) {
        for (token, answer) in ends.managements.drain(..) {
            let Some(at) = self.asked.iter().position(|(asked, _)| *asked == token) else {
                continue;
            };
            match self.asked.swap_remove(at).1 {
                Asked::Command { slot } => self.abort_answered(slot, wakes),
                Asked::Own { slot } => self.own_abort_answered(slot),
                Asked::Climb { seat, level } => self.level_answered(seat, level, answer, wakes),
            }
        }
    }

    /// Whatever the answer says: a command that is still with the port may still land.
    fn abort_answered(&mut self, number: u16, wakes: &mut Wakes) {
        let slot = &mut self.slots[usize::from(number)];
        if slot.stage != Stage::Aborting {
            return;
        }
        slot.stage = Stage::Overdue;
        let seat = slot.seat;
        self.escalate(seat, Level::Unit, wakes);
    }

    fn level_answered(
        &mut self,
        seat: u16,
        level: Level,
        answer: ManagementAnswer,
        wakes: &mut Wakes,
    ) {
        let now = self.now;
        let Some(place) = self.seats[usize::from(seat)].as_mut() else { return };
        let Some(climb) = place.climb.as_mut().filter(|climb| climb.ladder.level() == level) else {
            return;
        };
        let well = matches!(answer, ManagementAnswer::Complete | ManagementAnswer::NoTask);
        if !well || climb.worst == ManagementAnswer::Complete {
            climb.worst = answer;
        }
        climb.awaited -= 1;
        if climb.awaited > 0 {
            return;
        }
        let worst = climb.worst;
        let act = climb.ladder.answered(worst, now);
        let lun = place.unit.lun;
        if worst == ManagementAnswer::Complete {
            match level {
                Level::Abort => {}
                Level::Unit => self.units.were_reset(&self.host, Some(lun), self.index),
                Level::Target => self.units.were_reset(&self.host, None, self.index),
                // Other sessions are not concerned.
                Level::Session => self.units.expect_attention(None),
            }
        }
        self.act(seat, act, wakes);
    }

    /// The error handler is through with a unit, for better or worse.
    fn stop_climb(&mut self, seat: u16) -> &mut Seat {
        let stopped = self.seat_mut(seat).climb.take();
        self.climbs -= u32::from(stopped.is_some());
        self.seat_mut(seat)
    }

    /// The unit is well again, or its commands are the transport's to end.
    fn end_climb(&mut self, seat: u16, wakes: &mut Wakes) {
        let place = self.stop_climb(seat);
        place.unit.tell("answers again");
        self.seats.iter().flatten().for_each(|seat| wakes.add(seat));
    }

    /// Nothing has helped.
    fn give_up(&mut self, seat: u16, wakes: &mut Wakes) {
        let place = self.stop_climb(seat);
        place.lost = true;
        place.unit.set_state(UnitState::Offline, "no reset has helped");
        self.seats.iter().flatten().for_each(|seat| wakes.add(seat));
    }
}
