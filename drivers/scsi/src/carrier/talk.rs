//! The conversation of a lane with the target about the port group of its unit. The state is asked
//! for when an answer says that it may be another one, when the device above wants to know, and
//! again and again while the group is between two states. An activation asks first, sets the state
//! if the target lets it be set, and asks again.
//!
//! Times: a command may take 60 s, and is sent five times more if it fails; while the group is
//! between two states the wait for the next question grows by 2 s each time.
//!
//! A target may have a thousand units whose groups change together. Each conversation has a slot of
//! the host's own for its command; one that finds none waits in line, and some slots are left to
//! the error handler.

use std::sync::Arc;

use weir_bio::{Buf, Nanos};
use weir_proto_scsi::alua::{AccessState, PortGroups, StateWish, put_state_wishes};
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, ScsiCommand, Sense, SenseKey};
use weir_queue::Activation;

use super::own::{Carried, Step, What};
use super::{Carrier, Wakes};
use crate::port_view::{ACTIVATE, PortView, REFRESH};
use crate::probe::{Access, GROUPS_LEN_MAX};

/// Bytes of port groups that are asked for at first: room for 60 ports and more in eight groups.
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

/// When a conversation that waits for a slot looks for one that another port has given back.
const LOOK_NS: u64 = 100_000_000;

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
    activation: Option<ActivationStage>,
    /// Since when it waits for a slot.
    waits_since: Option<Nanos>,
    /// It is in the line of those.
    is_in_line: bool,
    /// Bytes of port groups that the target has, if they are more than are asked for at first.
    groups_len: Option<u32>,
}

impl PortTalk {
    /// The lane is gone: another one goes on.
    pub(super) fn hand_over(&self, port: &PortView) {
        if self.activation.is_some() {
            port.wish(ACTIVATE);
        } else if self.is_under_way || self.ask_at.is_some() {
            port.wish(REFRESH);
        }
    }
}

/// How far an activation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivationStage {
    /// The state is asked for.
    Begun,
    /// The state was set.
    Set,
    /// It was set, and some time has been left to the target.
    Waited,
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
        let allocation = place.talk.groups_len.unwrap_or(GROUPS_LEN);
        let command = ScsiCommand::ReportTargetPortGroups { extended, allocation };
        self.send_of_talk(seat, &command, Carried::In(allocation), wakes);
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
        let step = match command {
            ScsiCommand::SetTargetPortGroups { .. } => Step::Set,
            ScsiCommand::ReadCapacity16 { .. } => Step::Size,
            _ => Step::State,
        };
        let Some(slot) = self.host.take_slot_of_talk() else {
            return self.wait_for_slot(seat, step, wakes);
        };
        let what = (GROUPS_NS, What::Talk(step));
        let is_sent = self.send_own_in(slot, seat, command, carried, what).is_ok();
        let talk = &mut self.seat_mut(seat).talk;
        (talk.is_under_way, talk.is_stale) = (is_sent, false);
        (talk.ask_at, talk.waits_since) = (None, None);
        match is_sent {
            true => self.next_talk(),
            false => self.talk_failed(seat, step, wakes),
        }
    }

    /// The host has no slot for the command: it is no failure of the target, unless its commands
    /// keep the slots for longer than one may take.
    #[cold]
    fn wait_for_slot(&mut self, seat: u16, step: Step, wakes: &mut Wakes) {
        let now = self.now;
        let talk = &mut self.seat_mut(seat).talk;
        talk.is_under_way = false;
        if now.since(*talk.waits_since.get_or_insert(now)) >= GROUPS_NS {
            talk.waits_since = None;
            return self.talk_failed(seat, step, wakes);
        }
        talk.ask_at = Some(now + LOOK_NS);
        if !std::mem::replace(&mut talk.is_in_line, true) {
            self.talks_waiting.push_back(seat);
        }
        self.next_talk();
    }

    /// A slot was given back: the conversation that has waited longest goes on.
    pub(super) fn feed_talk(&mut self, wakes: &mut Wakes) {
        while let Some(seat) = self.talks_waiting.pop_front() {
            let talk = &mut self.seat_mut(seat).talk;
            talk.is_in_line = false;
            if talk.waits_since.is_some() {
                return self.ask_for_access(seat, wakes);
            }
        }
    }

    /// A command of the conversation has failed, or has no answer.
    #[cold]
    pub(super) fn talk_failed(&mut self, seat: u16, step: Step, wakes: &mut Wakes) {
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
            // The state was told each time before it was to be set.
            let how = self.end_without(seat, step == Step::Set);
            self.end_activation(seat, how, wakes);
        }
        self.next_talk();
    }

    /// The end of an activation that the target has not helped with: a group that takes I/O needs
    /// none, if its state `is_known`.
    fn end_without(&mut self, seat: u16, is_known: bool) -> Activation {
        let takes_io = is_known && self.seat_mut(seat).unit.port.takes_io();
        if takes_io { Activation::Done } else { Activation::Failed }
    }

    /// A command was not carried out: a refusal is remembered, else it is sent again, after a unit
    /// attention at once.
    fn talk_refused(&mut self, seat: u16, step: Step, sense: Option<Sense>, wakes: &mut Wakes) {
        let place = self.seat_mut(seat);
        let (key, code) = (sense.map(|sense| sense.key), sense.map(|sense| sense.code));
        let is_header = code == Some(AdditionalSense::INVALID_FIELD_IN_CDB);
        if step == Step::State && is_header && !place.unit.port.has_plain_header() {
            place.talk.is_under_way = false;
            place.unit.port.use_plain_header();
            return self.ask_for_access(seat, wakes);
        }
        if key == Some(SenseKey::IllegalRequest) {
            place.talk.is_under_way = false;
            // Of a target that does not tell states the last one known stands.
            let is_there = code != Some(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
            let how = self.end_without(seat, is_there && step != Step::Size);
            return self.end_activation(seat, how, wakes);
        }
        self.talk_failed(seat, step, wakes);
        if key == Some(SenseKey::UnitAttention) && self.seat_mut(seat).talk.ask_at.is_some() {
            self.ask_for_access(seat, wakes);
        }
    }

    /// A command has ended, with its data; or it failed, and why.
    pub(super) fn step_ended(
        &mut self,
        seat: u16,
        step: Step,
        ended: Result<&[u8], Option<Sense>>,
        wakes: &mut Wakes,
    ) {
        match step {
            Step::State => self.groups_ended(seat, ended, wakes),
            Step::Set => self.set_groups_ended(seat, ended, wakes),
            Step::Size => self.capacity_ended(seat, ended, wakes),
        }
    }

    /// The states have come.
    fn groups_ended(&mut self, seat: u16, data: Result<&[u8], Option<Sense>>, wakes: &mut Wakes) {
        let groups = match data.map(PortGroups::decode) {
            Err(sense) => return self.talk_refused(seat, Step::State, sense, wakes),
            Ok(Err(_)) => return self.talk_failed(seat, Step::State, wakes),
            Ok(Ok(groups)) => groups,
        };
        let now = self.now;
        let place = self.seat_mut(seat);
        let unit = Arc::clone(&place.unit);
        place.talk.is_under_way = false;
        let (asked, whole) = (place.talk.groups_len.unwrap_or(GROUPS_LEN), groups.whole_len());
        if groups.is_cut() && asked < whole.min(GROUPS_LEN_MAX) {
            place.talk.groups_len = Some(whole.min(GROUPS_LEN_MAX));
            return self.ask_for_access(seat, wakes);
        }
        let access = unit.facts().group.and_then(|group| Access::of(&groups, group));
        unit.set_access_answered(access, groups.transition_s, now);
        wakes.tell_port(&unit, now);
        match place.talk.is_stale {
            true => self.ask_for_access(seat, wakes),
            false => self.go_on(seat, access, wakes),
        }
    }

    /// The state has been set; or not, and why.
    fn set_groups_ended(
        &mut self,
        seat: u16,
        ended: Result<&[u8], Option<Sense>>,
        wakes: &mut Wakes,
    ) {
        if let Err(sense) = ended {
            return self.talk_refused(seat, Step::Set, sense, wakes);
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
            // Some targets take the command and change the state by and by.
            Some(_) if stage == ActivationStage::Set => {
                let talk = &mut self.seat_mut(seat).talk;
                (talk.activation, talk.ask_at) =
                    (Some(ActivationStage::Waited), Some(now + STEP_NS));
                self.next_talk();
            }
            Some(_) => self.end_activation(seat, Activation::Retry, wakes),
        }
    }

    /// The size of a unit has come that had none; or not, and why.
    fn capacity_ended(&mut self, seat: u16, data: Result<&[u8], Option<Sense>>, wakes: &mut Wakes) {
        let unit = Arc::clone(&self.seat_mut(seat).unit);
        if let Ok(data) = data {
            unit.change_facts(|facts| _ = facts.take_capacity_16(data));
        }
        // A failure to say it is one of the conversation, which begins again.
        if unit.facts().is_partial() {
            return self.talk_refused(seat, Step::Size, data.err().flatten(), wakes);
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
