//! The conversation of a lane with the target about the port group of its unit. The state is asked
//! for when an answer says that it may be another one, when the device above wants to know, and
//! again and again while the group is between two states. An activation asks first, sets the state
//! if the target lets it be set, and asks again.
//!
//! Times: a command may take 60 s, and is sent five times more if it fails; while the group is
//! between two states the wait for the next question grows by 2 s each time.

use std::sync::Arc;

use weir_bio::{Buf, Nanos};
use weir_proto_scsi::alua::{AccessState, PortGroups, StateWish, put_state_wishes};
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, ScsiCommand, Sense, SenseKey};
use weir_queue::Activation;

use super::own::{Carried, What};
use super::{Carrier, Wakes};
use crate::probe::Access;

/// Bytes of port groups that are asked for: room for 60 ports and more in eight groups.
const GROUPS_LEN: u32 = 4096;

/// Bytes of READ CAPACITY(16).
const CAPACITY_LEN: u32 = 32;

/// How long a command about port groups may take.
const GROUPS_NS: u64 = 60_000_000_000;

/// Commands of a conversation that may fail before an activation has failed: the first, and five
/// retries.
const FAILURES_MAX: u8 = 6;

/// By so much the wait grows while the group is between two states; the wait after a failure.
const STEP_NS: u64 = 2_000_000_000;

/// The conversation of one lane.
#[derive(Debug, Default)]
pub(super) struct PortTalk {
    /// A command of it is with the port.
    is_under_way: bool,
    /// What that command tells may be out of date.
    is_stale: bool,
    /// When the state is asked for next.
    pub(super) ask_at: Option<Nanos>,
    /// Answers in a row that the group is between two states.
    rounds: u64,
    /// Commands that failed since the conversation began.
    failures: u8,
    pub(super) activation: Option<ActivationStage>,
}

/// How far an activation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivationStage {
    /// The state is asked for.
    Begun,
    /// The state was set.
    Set,
}

impl Carrier {
    /// The device above wants something of the port.
    #[cold]
    pub(super) fn take_port_wish(&mut self, seat: u16, wakes: &mut Wakes) {
        let place = self.seat_mut(seat);
        let Some(wish) = place.unit.port.take_wish() else { return };
        if wish.activates {
            place.talk.activation = Some(ActivationStage::Begun);
            (place.talk.failures, place.talk.rounds) = (0, 0);
        }
        self.ask_for_access(seat, wakes);
    }

    /// The state of the port group may be another one.
    #[cold]
    pub(super) fn ask_for_access(&mut self, seat: u16, wakes: &mut Wakes) {
        let place = self.seat_mut(seat);
        if place.talk.is_under_way {
            place.talk.is_stale = true;
            return;
        }
        let extended = !place.unit.port.has_plain_header();
        let command = ScsiCommand::ReportTargetPortGroups { extended, allocation: GROUPS_LEN };
        self.send_of_talk(seat, &command, Carried::In(GROUPS_LEN), wakes);
    }

    /// A command was refused because the group is between two states.
    #[cold]
    pub(super) fn is_between(&mut self, seat: u16, wakes: &mut Wakes) {
        let now = self.now;
        let place = self.seat_mut(seat);
        place.unit.port.is_between(now);
        if !place.talk.is_under_way && place.talk.ask_at.is_none() {
            self.ask_for_access(seat, wakes);
        }
    }

    /// What is to be asked at a time that has come.
    #[cold]
    pub(super) fn go_on_with_talks(&mut self, wakes: &mut Wakes) {
        for seat in 0..self.seats.len() {
            let talk = self.seats[seat].as_ref().map(|seat| &seat.talk);
            if talk.and_then(|talk| talk.ask_at).is_some_and(|at| at <= self.now) {
                self.ask_for_access(seat as u16, wakes);
            }
        }
    }

    /// When one of the conversations goes on.
    pub(super) fn next_talk(&mut self) {
        let talks = self.seats.iter().flatten();
        self.talk_at = talks.filter_map(|seat| seat.talk.ask_at).min();
    }

    fn send_of_talk(
        &mut self,
        seat: u16,
        command: &ScsiCommand,
        carried: Carried,
        wakes: &mut Wakes,
    ) {
        let what = match command {
            ScsiCommand::SetTargetPortGroups { .. } => What::SetGroups,
            ScsiCommand::ReadCapacity16 { .. } => What::Capacity,
            _ => What::Groups,
        };
        let is_sent = self.send_own(seat, command, carried, GROUPS_NS, what).is_ok();
        let talk = &mut self.seat_mut(seat).talk;
        (talk.is_under_way, talk.is_stale, talk.ask_at) = (is_sent, false, None);
        match is_sent {
            true => self.next_talk(),
            false => self.talk_failed(seat, wakes),
        }
    }

    /// A command of the conversation has failed, or has no answer.
    #[cold]
    pub(super) fn talk_failed(&mut self, seat: u16, wakes: &mut Wakes) {
        let now = self.now;
        let talk = &mut self.seat_mut(seat).talk;
        talk.is_under_way = false;
        if talk.activation.is_some() {
            talk.activation = Some(ActivationStage::Begun);
        }
        talk.failures += 1;
        talk.ask_at = Some(now + STEP_NS);
        if talk.failures >= FAILURES_MAX {
            (talk.failures, talk.ask_at) = (0, None);
            self.end_activation(seat, Activation::Failed, wakes);
        }
        self.next_talk();
    }

    /// A command was not carried out: a refusal is remembered, else it is sent again, after a unit
    /// attention at once.
    fn talk_refused(&mut self, seat: u16, sense: Option<Sense>, is_set: bool, wakes: &mut Wakes) {
        let place = self.seat_mut(seat);
        let key = sense.map(|sense| sense.key);
        let is_header =
            sense.is_some_and(|sense| sense.code == AdditionalSense::INVALID_FIELD_IN_CDB);
        if !is_set && is_header && !place.unit.port.has_plain_header() {
            place.talk.is_under_way = false;
            place.unit.port.use_plain_header();
            return self.ask_for_access(seat, wakes);
        }
        if is_set && key == Some(SenseKey::IllegalRequest) {
            place.talk.is_under_way = false;
            return self.end_activation(seat, Activation::Failed, wakes);
        }
        self.talk_failed(seat, wakes);
        if key == Some(SenseKey::UnitAttention) && self.seat_mut(seat).talk.ask_at.is_some() {
            self.ask_for_access(seat, wakes);
        }
    }

    /// The states have come; `None`: the command failed, and why.
    pub(super) fn groups_ended(
        &mut self,
        seat: u16,
        data: Result<&[u8], Option<Sense>>,
        wakes: &mut Wakes,
    ) {
        let groups = match data.map(PortGroups::decode) {
            Err(sense) => return self.talk_refused(seat, sense, false, wakes),
            Ok(Err(_)) => return self.talk_failed(seat, wakes),
            Ok(Ok(groups)) => groups,
        };
        let now = self.now;
        let place = self.seat_mut(seat);
        let unit = Arc::clone(&place.unit);
        place.talk.is_under_way = false;
        let access = unit.facts().group.and_then(|group| Access::of(&groups, group));
        unit.set_access_answered(access, groups.transition_s, now);
        wakes.tell_port(&unit, now);
        match place.talk.is_stale {
            true => self.ask_for_access(seat, wakes),
            false => self.go_on(seat, access, wakes),
        }
    }

    /// The state has been set; or not, and why.
    pub(super) fn set_groups_ended(
        &mut self,
        seat: u16,
        ended: Result<(), Option<Sense>>,
        wakes: &mut Wakes,
    ) {
        if let Err(sense) = ended {
            return self.talk_refused(seat, sense, true, wakes);
        }
        let talk = &mut self.seat_mut(seat).talk;
        talk.is_under_way = false;
        if talk.activation.is_some() {
            talk.activation = Some(ActivationStage::Set);
        }
        self.ask_for_access(seat, wakes);
    }

    /// The next step, now that the state is known.
    fn go_on(&mut self, seat: u16, access: Option<Access>, wakes: &mut Wakes) {
        let now = self.now;
        let place = self.seat_mut(seat);
        let state = access.map(|access| access.state);
        if state == Some(AccessState::Transitioning) {
            let ends = place.unit.port.transition_ends().filter(|ends| *ends > now);
            let Some(ends) = ends else {
                place.talk.rounds = 0;
                return self.end_activation(seat, Activation::Failed, wakes);
            };
            place.talk.rounds += 1;
            place.talk.ask_at = Some(ends.min(now + place.talk.rounds * STEP_NS));
            return self.next_talk();
        }
        place.talk.rounds = 0;
        if place.unit.port.takes_io() && place.unit.facts().is_partial() {
            let allocation = CAPACITY_LEN;
            let command = ScsiCommand::ReadCapacity16 { allocation };
            return self.send_of_talk(seat, &command, Carried::In(allocation), wakes);
        }
        let Some(stage) = place.talk.activation else {
            place.talk.failures = 0;
            return;
        };
        let tpgs = place.unit.facts().inquiry.tpgs;
        let is_explicit = matches!(tpgs, Tpgs::Explicit | Tpgs::Both);
        match state {
            Some(AccessState::ActiveOptimized) | None => {
                self.end_activation(seat, Activation::Done, wakes);
            }
            Some(AccessState::Offline) => self.end_activation(seat, Activation::Failed, wakes),
            // What the target does by itself is its own affair; I/O will show.
            Some(_) if !is_explicit => self.end_activation(seat, Activation::Done, wakes),
            Some(_) if stage == ActivationStage::Begun => self.set_groups(seat, access, wakes),
            Some(AccessState::ActiveNonOptimized | AccessState::LbaDependent) => {
                self.end_activation(seat, Activation::Done, wakes);
            }
            Some(_) => self.end_activation(seat, Activation::Retry, wakes),
        }
    }

    /// The size of a unit has come that had none; or not, and why.
    pub(super) fn capacity_ended(
        &mut self,
        seat: u16,
        data: Result<&[u8], Option<Sense>>,
        wakes: &mut Wakes,
    ) {
        let unit = Arc::clone(&self.seat_mut(seat).unit);
        if let Ok(data) = data {
            unit.change_facts(|facts| _ = facts.take_capacity_16(data));
        }
        // A failure to say it is one of the conversation, which begins again.
        if unit.facts().is_partial() {
            return self.talk_refused(seat, data.err().flatten(), true, wakes);
        }
        let talk = &mut self.seat_mut(seat).talk;
        talk.is_under_way = false;
        let access = unit.port.access();
        match self.seat_mut(seat).talk.is_stale {
            true => self.ask_for_access(seat, wakes),
            false => self.go_on(seat, access, wakes),
        }
    }

    /// Has the target make the group active and optimized.
    fn set_groups(&mut self, seat: u16, access: Option<Access>, wakes: &mut Wakes) {
        let Some(Access { group, .. }) = access else { return };
        let mut list = Vec::new();
        put_state_wishes(&mut list, &[StateWish { state: AccessState::ActiveOptimized, group }]);
        let command = ScsiCommand::SetTargetPortGroups { length: list.len() as u32 };
        let list = Buf::filled(list.len(), |bytes| bytes.copy_from_slice(&list));
        self.send_of_talk(seat, &command, Carried::Out(list), wakes);
    }

    fn end_activation(&mut self, seat: u16, how: Activation, wakes: &mut Wakes) {
        let now = self.now;
        let place = self.seat_mut(seat);
        place.talk.failures = 0;
        if place.talk.activation.take().is_some() {
            wakes.tell_activated(&place.unit, how, now);
        }
    }
}
