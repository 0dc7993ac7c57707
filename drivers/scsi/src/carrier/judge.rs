//! Ends that are no plain successes: what becomes of the command, by the tables of
//! [`weir_proto_scsi::decide`], and what else the answer tells.

use weir_bio::{Data, Flags, Status};
use weir_proto_scsi::decide::{
    Attempt, Decision, Delivery, Disposition, Notice, Purpose, RETRIES_ALLOWED, Recovery, ScsiEnd,
    decide,
};
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, Sense, SenseKey};
use weir_queue::{Detail, SENSE_MAX};

use super::{Carrier, Wakes};
use crate::inbox::Remembered;
use crate::slot::{Slot, Stage, Tries};
use crate::translate::with_six;
use crate::transport::{Delivered, Ends};
use crate::unit::UnitShared;

impl Carrier {
    /// Judges the end of a request's command.
    #[cold]
    pub(super) fn judge(
        &mut self,
        end: &Delivered,
        sense: &[u8],
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let slot = self.slots[usize::from(end.slot)];
        let decoded = Sense::decode(sense).ok();
        if let Some(sense) = decoded {
            self.seat_mut(slot.seat).counters.sense(sense.key);
        }
        if slot.is_overdue() && matches!(end.delivery, Delivery::Aborted | Delivery::Reset) {
            return self.end_aborted(end.slot, memory, wakes);
        }
        let scsi_end =
            ScsiEnd { delivery: delivery_of(end, &slot), status: end.status, sense: decoded };
        if slot.prepared.raw {
            return self.end_raw(end, &scsi_end, sense, memory, wakes);
        }
        self.carry_out(end.slot, &scsi_end, memory, wakes);
    }

    /// Does what the tables say about an end.
    pub(super) fn carry_out(
        &mut self,
        number: u16,
        end: &ScsiEnd,
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let attempt = self.attempt(number, RETRIES_ALLOWED);
        let mut decision = decide(end, &attempt);
        self.heed(number, end, &decision, wakes);
        self.bound_transition(number, end, &mut decision);
        match decision.disposition {
            Disposition::Complete => self.finish(number, Status::Ok, memory, wakes),
            Disposition::Retry => self.retry(number, memory),
            Disposition::RetryUncounted => self.keep(number, memory),
            Disposition::Requeue => self.requeue(number, memory, wakes),
            Disposition::UseSix => self.send_six(number, memory, wakes),
            Disposition::Recover(Recovery::FetchSense) => {
                self.fetch_sense(number, *end, memory, wakes);
            }
            Disposition::Recover(Recovery::StartUnit) => self.start_unit(number, memory, wakes),
            // The port has handed it over, so there is nothing to abort.
            Disposition::Recover(Recovery::Abort) => {
                let last = attempt.retries >= attempt.retries_allowed || attempt.out_of_time;
                match last || attempt.flags.any(Flags::FAILFAST) {
                    true => self.fail(number, Status::IoErr, decision.reason, end, memory, wakes),
                    false => self.retry(number, memory),
                }
            }
            Disposition::Fail(status) => {
                self.fail(number, status, decision.reason, end, memory, wakes);
            }
        }
    }

    fn attempt(&mut self, number: u16, retries_allowed: u8) -> Attempt {
        let slot = self.slots[usize::from(number)];
        let unit = &self.seat_mut(slot.seat).unit;
        let lifetime =
            Attempt::lifetime_ns(unit.attempt_ns(slot.prepared.purpose), RETRIES_ALLOWED);
        let unit = unit.traits();
        Attempt {
            purpose: slot.prepared.purpose,
            flags: slot.flags,
            retries: slot.tries.retries,
            retries_allowed,
            out_of_time: self.now.since(slot.tries.created) >= lifetime,
            unit,
        }
    }

    /// A port group is between two states for so long and no longer.
    fn bound_transition(&mut self, number: u16, end: &ScsiEnd, decision: &mut Decision) {
        let code = AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION;
        let seat = self.slots[usize::from(number)].seat;
        if decision.disposition != Disposition::Requeue || not_ready(end) != Some(code) {
            return;
        }
        let now = self.now;
        if self.seat_mut(seat).unit.port.transition_ends().is_some_and(|ends| ends <= now) {
            decision.disposition = Disposition::Fail(Status::IoErr);
            decision.reason = "the port group is between two states for too long";
        }
    }

    /// Deals with what was learnt beside the fate of the command.
    fn heed(&mut self, number: u16, end: &ScsiEnd, decision: &Decision, wakes: &mut Wakes) {
        let seat = self.slots[usize::from(number)].seat;
        self.heed_notice(seat, end, decision.notice, wakes);
    }

    /// The same of a command of the mid-layer's own: an attention is told once, to whichever
    /// command comes first.
    #[cold]
    pub(super) fn heed_own(&mut self, seat: u16, end: &Delivered, sense: &[u8], wakes: &mut Wakes) {
        let end = ScsiEnd {
            delivery: end.delivery,
            status: end.status,
            sense: Sense::decode(sense).ok(),
        };
        let attempt = bare_attempt(&self.seat_mut(seat).unit);
        self.heed_notice(seat, &end, decide(&end, &attempt).notice, wakes);
    }

    fn heed_notice(&mut self, seat: u16, end: &ScsiEnd, notice: Option<Notice>, wakes: &mut Wakes) {
        let unit = std::sync::Arc::clone(&self.seat_mut(seat).unit);
        self.heed_port(seat, &unit, not_ready(end), notice, wakes);
        let Some(notice) = notice else { return };
        if is_attention(notice) {
            unit.expect_attention(false);
        }
        if notice == Notice::TaskSetFull {
            self.units.task_set_full(self.now);
        }
        unit.notice(notice);
    }

    /// What an answer says of the port group.
    fn heed_port(
        &mut self,
        seat: u16,
        unit: &UnitShared,
        not_ready: Option<AdditionalSense>,
        notice: Option<Notice>,
        wakes: &mut Wakes,
    ) {
        use AdditionalSense as Asc;
        if !unit.traits().alua {
            return;
        }
        match not_ready {
            Some(Asc::ASYMMETRIC_ACCESS_STATE_TRANSITION) => self.is_between(seat, wakes),
            Some(code) if is_refusal(code) && unit.port.takes_io() => {
                self.ask_for_access(seat, wakes);
            }
            _ if notice.is_some_and(changes_access) => self.ask_for_access(seat, wakes),
            _ => {}
        }
    }

    /// Tells the lane how its request ended.
    pub(super) fn finish(
        &mut self,
        number: u16,
        status: Status,
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let slot = &mut self.slots[usize::from(number)];
        let Slot { tag, seat, prepared, .. } = *slot;
        slot.stage = Stage::Free;
        let seat = self.seat_mut(seat);
        if status == Status::Ok {
            seat.inbox.good += 1;
        } else {
            seat.counters.failed();
        }
        wakes.add(seat);
        seat.inbox.end(tag, status, memory.into_iter().filter(|_| prepared.lends));
    }

    fn fail(
        &mut self,
        number: u16,
        status: Status,
        reason: &str,
        end: &ScsiEnd,
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let slot = self.slots[usize::from(number)];
        let now = self.now;
        let unit = &self.seat_mut(slot.seat).unit;
        // A port that takes no I/O says so of every request; its state has a line of its own.
        if !(unit.traits().alua && not_ready(end).is_some_and(is_refusal)) {
            unit.tell_failure(|| failure_words(&slot, reason, end), now);
        }
        self.finish(number, status, memory, wakes);
    }

    /// A retry of a command whose failure has no known reason, if one is left.
    pub(super) fn retry_or_fail(&mut self, number: u16, memory: Vec<Data>, wakes: &mut Wakes) {
        let attempt = self.attempt(number, RETRIES_ALLOWED);
        let spent = attempt.retries >= attempt.retries_allowed || attempt.out_of_time;
        match spent || attempt.flags.any(Flags::FAILFAST) {
            true => self.finish(number, Status::IoErr, memory, wakes),
            false => self.retry(number, memory),
        }
    }

    fn retry(&mut self, number: u16, memory: Vec<Data>) {
        self.slots[usize::from(number)].tries.retries += 1;
        self.keep(number, memory);
    }

    /// Hands a request back to the core, and holds the unit back.
    fn requeue(&mut self, number: u16, memory: Vec<Data>, wakes: &mut Wakes) {
        let slot = &mut self.slots[usize::from(number)];
        let Slot { tag, seat, rq, tries, prepared, .. } = *slot;
        slot.stage = Stage::Free;
        let seat = self.seat_mut(seat);
        seat.unit.places.hold_back();
        seat.counters.retried();
        wakes.add(seat);
        let memory = if prepared.lends { memory } else { Vec::new() };
        seat.inbox.requeue(tag, memory, Remembered { rq, tries });
    }

    fn send_six(&mut self, number: u16, memory: Vec<Data>, wakes: &mut Wakes) {
        let slot = self.slots[usize::from(number)];
        self.seat_mut(slot.seat).unit.use_six();
        match with_six(&slot.prepared) {
            Ok(six) => self.keep_as(number, six, memory),
            Err(status) => self.finish(number, status, memory, wakes),
        }
    }

    /// A command whose time was up can change nothing any more.
    fn end_aborted(&mut self, number: u16, memory: Vec<Data>, wakes: &mut Wakes) {
        let attempt = self.attempt(number, RETRIES_ALLOWED);
        let spent = attempt.retries >= attempt.retries_allowed || attempt.out_of_time;
        let raw = self.slots[usize::from(number)].prepared.raw;
        if spent || raw || attempt.flags.any(Flags::FAILFAST) {
            let end =
                ScsiEnd { delivery: Delivery::TimedOut, status: ScsiStatus::GOOD, sense: None };
            return self.fail(number, Status::Timeout, "no answer in time", &end, memory, wakes);
        }
        self.slots[usize::from(number)].tries.aborted = true;
        self.retry(number, memory);
    }

    /// The end of a passthrough command is told as it is; a target that has no room for it now
    /// has not looked at it.
    fn end_raw(
        &mut self,
        end: &Delivered,
        scsi_end: &ScsiEnd,
        sense: &[u8],
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let decision = decide(scsi_end, &self.attempt(end.slot, 0));
        self.heed(end.slot, scsi_end, &decision, wakes);
        let has_no_room = scsi_end.delivery == Delivery::Delivered
            && matches!(scsi_end.status, ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL);
        if has_no_room && decision.disposition == Disposition::Requeue {
            return self.requeue(end.slot, memory, wakes);
        }
        let status = match decision.disposition {
            Disposition::Complete => Status::Ok,
            Disposition::Fail(status) => status,
            Disposition::Retry
            | Disposition::RetryUncounted
            | Disposition::Requeue
            | Disposition::UseSix
            | Disposition::Recover(_) => match scsi_end.delivery {
                Delivery::Delivered => Status::IoErr,
                _ => Status::Transport,
            },
        };
        let slot = self.slots[usize::from(end.slot)];
        let sense = &sense[..sense.len().min(SENSE_MAX)];
        let detail = Detail {
            driver_status: u32::from(end.status.0),
            residue: slot.prepared.bytes().saturating_sub(end.moved),
            sense: (!sense.is_empty()).then(|| sense.into()),
        };
        self.seat_mut(slot.seat).inbox.detail(slot.tag, detail);
        self.finish(end.slot, status, memory, wakes);
    }

    /// What the target said unasked about its units.
    #[cold]
    pub(super) fn take_events(&mut self, ends: &mut Ends, wakes: &mut Wakes) {
        let mut sense = &ends.event_sense[..];
        for (lun, len) in ends.events.drain(..) {
            let (own, rest) = sense.split_at(usize::from(len).min(sense.len()));
            sense = rest;
            self.take_event(lun, own, wakes);
        }
    }

    fn take_event(&mut self, lun: Lun, sense: &[u8], wakes: &mut Wakes) {
        let end = ScsiEnd {
            delivery: Delivery::Delivered,
            status: ScsiStatus::CHECK_CONDITION,
            sense: Sense::decode(sense).ok(),
        };
        for unit in self.units.all().iter().filter(|unit| unit.lun == lun) {
            let Some(notice) = decide(&end, &bare_attempt(unit)).notice else { continue };
            let at_unit = |seat: &Option<super::Seat>| {
                seat.as_ref().is_some_and(|seat| std::sync::Arc::ptr_eq(&seat.unit, unit))
            };
            if let Some(seat) = self.seats.iter().position(at_unit) {
                self.heed_port(seat as u16, unit, not_ready(&end), Some(notice), wakes);
            }
            unit.notice(notice);
        }
    }
}

impl Tries {
    /// Those of a request that comes again, if it does.
    pub(crate) fn recall(list: &mut Vec<Remembered>, rq: weir_bio::RqId) -> Option<Tries> {
        let at = list.iter().position(|known| known.rq == rq)?;
        Some(list.swap_remove(at).tries)
    }
}

/// How a command fared as the tables know it.
fn delivery_of(end: &Delivered, slot: &Slot) -> Delivery {
    let short = end.status == ScsiStatus::GOOD
        && slot.prepared.purpose == Purpose::Transfer
        && end.moved < slot.prepared.bytes();
    match end.delivery {
        // All of it once more: the part that moved does no harm a second time.
        Delivery::Delivered if short => Delivery::SoftError,
        // It was not aborted on its own account, so a reset of its unit or target ended it.
        Delivery::Aborted => Delivery::Reset,
        delivery => delivery,
    }
}

/// Whether the answer is a unit attention.
fn is_attention(notice: Notice) -> bool {
    match notice {
        Notice::CapacityChanged
        | Notice::ThinThreshold
        | Notice::LunsChanged
        | Notice::ModeChanged
        | Notice::InquiryChanged
        | Notice::MediumChanged
        | Notice::WasReset
        | Notice::OtherAttention => true,
        // This one also comes with NOT READY; nothing is lost if it clears the mark.
        Notice::AccessStateChanged => true,
        Notice::TaskSetFull
        | Notice::LunGone
        | Notice::UnmapRefused
        | Notice::WriteSameRefused
        | Notice::WriteProtected
        | Notice::DeferredError => false,
    }
}

/// The code of a logical unit that is not ready.
fn not_ready(end: &ScsiEnd) -> Option<AdditionalSense> {
    let sense = end.sense.filter(|sense| sense.key == SenseKey::NotReady && !sense.deferred)?;
    (end.delivery == Delivery::Delivered).then_some(sense.code)
}

/// Whether a port group that takes no I/O is what it says.
fn is_refusal(code: AdditionalSense) -> bool {
    use AdditionalSense as Asc;
    matches!(code, Asc::TARGET_PORT_IN_STANDBY_STATE | Asc::TARGET_PORT_IN_UNAVAILABLE_STATE)
}

/// Whether the state of the port group may be another one. A reset takes other attentions away.
fn changes_access(notice: Notice) -> bool {
    use Notice::{AccessStateChanged, InquiryChanged, LunsChanged, WasReset};
    matches!(notice, AccessStateChanged | LunsChanged | InquiryChanged | WasReset)
}

/// An attempt of which nothing but the unit matters.
fn bare_attempt(unit: &UnitShared) -> Attempt {
    Attempt {
        purpose: Purpose::Other,
        flags: Flags::NONE,
        retries: 0,
        retries_allowed: 0,
        out_of_time: false,
        unit: unit.traits(),
    }
}

/// A failed command for the log.
fn failure_words(slot: &Slot, reason: &str, end: &ScsiEnd) -> String {
    use std::fmt::Write;
    let mut words = format!("{:?} failed: {reason}", slot.prepared.purpose);
    let retries = slot.tries.retries;
    if retries > 0 {
        write!(words, ", after {retries} retries").expect("a string takes all");
    }
    match (end.delivery, end.sense) {
        (Delivery::Delivered, Some(sense)) => write!(words, " ({sense})"),
        (Delivery::Delivered, None) => write!(words, " (status {})", end.status),
        (delivery, _) => write!(words, " ({delivery:?})"),
    }
    .expect("a string takes all");
    words
}
