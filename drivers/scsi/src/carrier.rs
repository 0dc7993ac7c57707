//! A port with the commands it carries, and the lanes whose commands these are.
//!
//! Lanes of several logical units share a port. Each takes its lock once in a submit, a commit and
//! a reap, never for one command; a host with one unit has no other taker. The lane that reaps puts
//! the ends of others into their inboxes and has them turned.
//!
//! A plain success is answered here and at once. All else goes to [`judge`](mod@judge); what the
//! target or the transport does not answer in time goes to [`recover`](mod@recover).

mod channel;
mod judge;
mod keep;
mod own;
mod recover;
mod talk;

pub(crate) use channel::{Announced, Channel, Entered};

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Data, Nanos, Status};
use weir_proto_scsi::ScsiStatus;
use weir_proto_scsi::decide::{Delivery, Purpose};
use weir_queue::{Activation, Done, Wake};

use crate::counters::Counters;
use crate::inbox::{Inbox, Taken};
use crate::places::RETRY_NS;
use crate::shared::HostShared;
use crate::slot::{Slot, Stage};
use crate::transport::{Command, Delivered, Ends, Port, Refusal};
use crate::unit::UnitShared;
use crate::units::Units;
use keep::Kept;
use own::Job;
use recover::Climb;
use talk::PortTalk;

/// A lane at a port.
pub(crate) struct Seat {
    pub(crate) unit: Arc<UnitShared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) inbox: Inbox,
    pub(crate) wake: Option<Arc<dyn Wake>>,
    /// The error handler is at work for the unit, at this port.
    climb: Option<Climb>,
    /// The conversation about its port group.
    talk: PortTalk,
    /// It is in the list of those that the port had no room for.
    starved: bool,
    /// Commands that the port will not give back: no reset has helped.
    lost: bool,
}

/// Lanes that are to be turned, and devices that are to be told something, once the lock is free.
#[derive(Default)]
pub(crate) struct Wakes {
    lanes: Vec<Arc<dyn Wake>>,
    ports: Vec<(Arc<UnitShared>, PortNews, Nanos)>,
}

/// What the device above is to hear of a unit's port.
#[derive(Clone, Copy)]
enum PortNews {
    Changed,
    Activated(Activation),
}

impl Wakes {
    pub(crate) fn add(&mut self, seat: &Seat) {
        self.lanes.extend(seat.wake.clone());
    }

    fn tell_port(&mut self, unit: &Arc<UnitShared>, now: Nanos) {
        self.ports.push((Arc::clone(unit), PortNews::Changed, now));
    }

    fn tell_activated(&mut self, unit: &Arc<UnitShared>, how: Activation, now: Nanos) {
        self.ports.push((Arc::clone(unit), PortNews::Activated(how), now));
    }

    /// Has them turned, and told.
    pub(crate) fn ring(&mut self) {
        self.lanes.drain(..).for_each(|wake| wake.wake());
        for (unit, news, now) in self.ports.drain(..) {
            match news {
                PortNews::Changed => unit.port.tell_change(now),
                PortNews::Activated(how) => unit.port.tell_activated(how, now),
            }
        }
    }
}

/// The lane that has the lock: what it takes with it.
pub(crate) struct Reaper<'a> {
    pub(crate) seat: u16,
    pub(crate) now: Nanos,
    pub(crate) done: &'a mut Done,
    /// Empty; keeps its capacity.
    pub(crate) lent: &'a mut Vec<Data>,
    pub(crate) wakes: &'a mut Wakes,
}

/// A port and what it carries.
pub(crate) struct Carrier {
    host: Arc<HostShared>,
    units: Arc<Units>,
    index: u16,
    port: Box<dyn Port>,
    slots: Box<[Slot]>,
    seats: Vec<Option<Seat>>,
    /// Seats that were left.
    free_seats: Vec<u16>,
    /// Seats for whose units the error handler is at work: as a rule none, which a submit must not
    /// look through all seats to know.
    climbs: u32,
    ends: Ends,
    /// Commands that are to be sent again, oldest first.
    kept: VecDeque<Kept>,
    /// Lanes that the port had no room for, in the order in which they asked.
    starved: VecDeque<u16>,
    /// Commands of the mid-layer's own.
    jobs: Vec<Job>,
    /// What the target was asked to end, by token.
    asked: Vec<(u32, recover::Asked)>,
    next_token: u32,
    /// When a conversation about a port group goes on.
    talk_at: Option<Nanos>,
    /// Seats whose conversations wait for a slot, in the order in which they asked.
    talks_waiting: VecDeque<u16>,
    /// Something was sent and not committed.
    uncommitted: bool,
    now: Nanos,
}

impl Carrier {
    pub(crate) fn new(
        host: Arc<HostShared>,
        units: Arc<Units>,
        index: u16,
        port: Box<dyn Port>,
    ) -> Carrier {
        let slots = vec![Slot::FREE; host.slots()].into_boxed_slice();
        Carrier {
            host,
            units,
            index,
            port,
            slots,
            seats: Vec::new(),
            free_seats: Vec::new(),
            climbs: 0,
            ends: Ends::default(),
            kept: VecDeque::new(),
            starved: VecDeque::new(),
            jobs: Vec::new(),
            asked: Vec::new(),
            next_token: 0,
            talk_at: None,
            talks_waiting: VecDeque::new(),
            uncommitted: false,
            now: Nanos::ZERO,
        }
    }

    pub(crate) fn port(&self) -> &dyn Port {
        self.port.as_ref()
    }

    /// A seat for a lane of a unit.
    pub(crate) fn seat(&mut self, unit: &Arc<UnitShared>, counters: Arc<Counters>) -> u16 {
        let seat = self.free_seats.pop().unwrap_or_else(|| {
            self.seats.push(None);
            (self.seats.len() - 1) as u16
        });
        self.seats[usize::from(seat)] = Some(Seat {
            unit: Arc::clone(unit),
            counters,
            inbox: Inbox::default(),
            wake: None,
            climb: None,
            talk: PortTalk::default(),
            starved: false,
            lost: false,
        });
        seat
    }

    /// The lane is gone. It has no command any more.
    pub(crate) fn leave(&mut self, seat: u16, wakes: &mut Wakes) {
        if let Some(place) = self.seats[usize::from(seat)].take() {
            place.talk.hand_over(&place.unit.port);
            self.climbs -= u32::from(place.climb.is_some());
            self.free_seats.push(seat);
        }
        self.talks_waiting.retain(|other| *other != seat);
        // Or the next lane to sit here would take the answer for that to a question of its own.
        self.asked.retain(|(_, asked)| !asked.is_of_climb(seat));
        self.next_talk();
        // What the port still has, no lane waits for: a unit that was given up leaves such.
        for slot in self.slots.iter_mut().filter(|slot| slot.seat == seat && slot.is_out()) {
            slot.seat = own::ORPHAN;
        }
        self.starved.retain(|other| *other != seat);
        self.abandon_jobs(seat);
        // The time of the port is for another lane to keep now.
        self.seats.iter().flatten().for_each(|other| wakes.add(other));
    }

    /// Whether a lane sits here.
    pub(crate) fn is_used(&self) -> bool {
        self.seats.iter().any(Option::is_some)
    }

    #[inline]
    pub(crate) fn seat_mut(&mut self, seat: u16) -> &mut Seat {
        self.seats[usize::from(seat)].as_mut().expect("a lane sits there")
    }

    /// Whether the lane may send commands of requests: the error handler is not at work on its unit
    /// or on what it shares with others.
    pub(crate) fn admits(&self, seat: u16) -> bool {
        if self.climbs == 0 {
            return true;
        }
        let climbs = |seat: &Seat| seat.climb.is_some();
        !self.seats[usize::from(seat)].as_ref().is_some_and(climbs) && !self.is_held()
    }

    /// Sends the command of a slot, whose memory it takes.
    #[inline]
    pub(crate) fn send(
        &mut self,
        number: u16,
        slot: Slot,
        memory: &mut Vec<Data>,
    ) -> Result<(), Refusal> {
        let seat = self.seats[usize::from(slot.seat)].as_ref().expect("a lane sits there");
        let command = Command {
            slot: number,
            lun: seat.unit.lun,
            cdb: slot.prepared.cdb(),
            direction: slot.prepared.direction,
        };
        self.port.send(&command, memory, slot.sent_at)?;
        self.slots[usize::from(number)] = slot;
        self.uncommitted = true;
        Ok(())
    }

    /// The port has no room for this lane: it is told in turn when a command has ended.
    #[cold]
    pub(crate) fn starve(&mut self, seat: u16) {
        let place = self.seat_mut(seat);
        if !std::mem::replace(&mut place.starved, true) {
            self.starved.push_back(seat);
        }
    }

    /// The burst is over.
    #[inline]
    pub(crate) fn commit(&mut self, now: Nanos) {
        if std::mem::take(&mut self.uncommitted) {
            self.port.commit(now);
        }
    }

    /// Takes what has ended; says what the lane has no more.
    pub(crate) fn reap(&mut self, reaper: &mut Reaper<'_>) -> Taken {
        self.now = reaper.now;
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        self.port.reap(reaper.now, &mut ends);
        let mut taken = Taken::default();
        if !ends.commands.is_empty() {
            self.take_ends(&mut ends, reaper, &mut taken);
            self.feed(ends.commands.len(), reaper.wakes);
        }
        self.see_to_rare(&mut ends, reaper);
        self.ends = ends;
        let own = self.seats[usize::from(reaper.seat)].as_mut().expect("a lane sits there");
        if !own.inbox.is_empty() {
            let reserved = self.host.tags.reserved();
            let more = own.inbox.drain_to(reaper.done, reaper.lent, reserved);
            taken.requests += more.requests;
            taken.places += more.places;
            taken.ended |= more.ended;
        }
        self.commit(reaper.now);
        taken
    }

    /// Everything but ends of commands.
    #[inline]
    fn see_to_rare(&mut self, ends: &mut Ends, reaper: &mut Reaper<'_>) {
        if !ends.managements.is_empty() {
            self.take_managements(ends, reaper.wakes);
        }
        if !ends.events.is_empty() {
            self.take_events(ends, reaper.wakes);
        }
        if !self.jobs.is_empty() {
            self.look_at_deadlines(reaper.wakes);
        }
        if !self.kept.is_empty() {
            self.send_kept(reaper.wakes);
        }
        if self.seat_mut(reaper.seat).unit.port.has_wish() {
            self.take_port_wish(reaper.seat, reaper.wakes);
        }
        if self.talk_at.is_some_and(|at| at <= self.now) {
            self.go_on_with_talks(reaper.wakes);
        }
        let notices = &self.host.notices;
        self.port.notices(&mut |notice| notices.add(notice));
    }

    fn take_ends(&mut self, ends: &mut Ends, reaper: &mut Reaper<'_>, taken: &mut Taken) {
        let reserved = self.host.tags.reserved();
        let (mut sense, mut good) = (&ends.sense[..], 0);
        let mut memory = ends.memory.drain(..);
        for end in &ends.commands {
            let (own, rest) = sense.split_at(usize::from(end.sense).min(sense.len()));
            sense = rest;
            let slot = &mut self.slots[usize::from(end.slot)];
            assert!(slot.is_out(), "the port hands slot {} over twice", end.slot);
            let pieces = usize::from(end.memory);
            if !is_plain_success(end, slot) {
                let memory: Vec<Data> = memory.by_ref().take(pieces).collect();
                self.take_other(end, own, memory, reaper);
                continue;
            }
            slot.stage = Stage::Free;
            let (tag, lends) = (slot.tag, slot.prepared.lends);
            if slot.seat == reaper.seat {
                taken.count(tag, reserved);
                good += 1;
                reaper.lent.extend(memory.by_ref().take(pieces));
                if !lends {
                    reaper.lent.clear();
                }
                reaper.done.push_lent(tag, Status::Ok, reaper.lent);
                continue;
            }
            let other = self.seats[usize::from(slot.seat)].as_mut().expect("a lane sits there");
            if other.inbox.is_empty() {
                reaper.wakes.add(other);
            }
            other.counters.ended(1);
            let pieces = memory.by_ref().take(pieces);
            other.inbox.end(tag, Status::Ok, pieces.filter(|_| lends));
            other.inbox.good += 1;
        }
        taken.ended |= good > 0;
        let own = self.seat_mut(reaper.seat);
        own.inbox.good += good;
        own.counters.ended(u64::from(good));
    }

    #[cold]
    fn take_other(
        &mut self,
        end: &Delivered,
        sense: &[u8],
        memory: Vec<Data>,
        reaper: &mut Reaper<'_>,
    ) {
        if self.slots[usize::from(end.slot)].seat == own::ORPHAN {
            self.slots[usize::from(end.slot)].stage = Stage::Free;
            return;
        }
        if self.is_own(end.slot) {
            return self.own_ended(end, sense, &memory, reaper.wakes);
        }
        let seat = self.slots[usize::from(end.slot)].seat;
        self.seat_mut(seat).counters.ended(1);
        self.judge(end, sense, memory, reaper.wakes);
    }

    /// So many commands have ended: as many lanes that found no room are told, in turn.
    #[inline]
    fn feed(&mut self, ends: usize, wakes: &mut Wakes) {
        for _ in 0..ends.min(self.starved.len()) {
            let Some(seat) = self.starved.pop_front() else { return };
            let place = self.seat_mut(seat);
            place.starved = false;
            wakes.add(place);
        }
    }

    /// When a lane of this port is to reap although nothing is announced.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let own = self.jobs.iter().map(|job| job.deadline).min();
        let kept = (!self.kept.is_empty()).then(|| self.now + RETRY_NS);
        [self.port.wake_at(), own, kept, self.talk_at].into_iter().flatten().min()
    }
}

/// The port ends with its last lane, and with it what it still has.
impl Drop for Carrier {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|job| self.host.give_own_slot(job.slot));
    }
}

/// Whether nothing is to be said about an end but that it is one.
#[inline]
fn is_plain_success(end: &Delivered, slot: &Slot) -> bool {
    end.delivery == Delivery::Delivered
        && end.status == ScsiStatus::GOOD
        && slot.stage == Stage::Sent
        && !slot.prepared.raw
        && slot.seat < own::ORPHAN
        && (slot.prepared.purpose != Purpose::Transfer || end.moved >= slot.prepared.bytes())
}
