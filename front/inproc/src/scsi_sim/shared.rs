//! A target with the commands of all its nexuses, behind one lock: a command that is due ends in
//! the call that comes next, whichever port makes it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_bio::{Data, Nanos};
use weir_driver_scsi::{Delivered, Direction, Ends, ManagementAnswer};
use weir_live::Clock;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_sim_target::{DataPlace, End, InitiatorId, PortId, Spec, SpecError, Target, TaskTag};

use super::link::Link;

/// Where a target's time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetTime {
    /// From the system's clock: the target's time begins with it, and an inquiry waits.
    Clock,
    /// From its calls, the latest counts: an inquiry moves the time on to its answers.
    Calls,
}

/// A command that the target has, or that is lost.
pub(super) struct Outstanding {
    pub(super) lun: Lun,
    pub(super) direction: Direction,
    pub(super) memory: Vec<Data>,
}

/// A question about tasks that got lost on its way.
pub(super) struct Unanswered {
    pub(super) token: u32,
    pub(super) deadline: Nanos,
    /// It is for a session reset, which is done when there is a connection again.
    pub(super) resets: bool,
}

/// One hardware queue of an initiator: its nexus, and what is on its way there and back.
pub(super) struct Place {
    pub(super) port: PortId,
    pub(super) initiator: InitiatorId,
    pub(super) link: Link,
    /// By slot.
    pub(super) out: Vec<Option<Outstanding>>,
    pub(super) outstanding: usize,
    pub(super) unanswered: Vec<Unanswered>,
    /// What the next reap hands over.
    pub(super) ends: Ends,
    pub(super) notices: Vec<String>,
}

/// What stands behind the lock.
pub(super) struct State {
    pub(super) target: Target,
    pub(super) places: Vec<Option<Place>>,
    /// The latest time of all calls.
    seen: Nanos,
    initiators: u32,
    moves: u64,
}

/// A simulated target that several disks of a process share.
pub struct SharedTarget {
    state: Mutex<State>,
    time: TargetTime,
    began: Nanos,
}

impl std::fmt::Debug for SharedTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedTarget({:?}, began {:?})", self.time, self.began)
    }
}

impl SharedTarget {
    /// Builds a target.
    ///
    /// # Errors
    /// What of the spec does not hold.
    pub fn new(spec: Spec, time: TargetTime) -> Result<SharedTarget, SpecError> {
        let target = Target::new(spec)?;
        let (places, seen, initiators, moves) = (Vec::new(), Nanos::ZERO, 0, 0);
        let state = Mutex::new(State { target, places, seen, initiators, moves });
        let began = match time {
            TargetTime::Clock => Clock.now(),
            TargetTime::Calls => Nanos::ZERO,
        };
        Ok(SharedTarget { state, time, began })
    }

    /// The target itself with its time, for what happens to it from outside. What is due by then
    /// has happened before.
    pub fn with<R>(&self, now: Nanos, act: impl FnOnce(&mut Target, Nanos) -> R) -> R {
        let (mut state, now) = self.at(now);
        state.take_due(now);
        state.moves += 1;
        act(&mut state.target, now)
    }

    /// Changes with everything that happens at the target.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.lock().moves
    }

    /// Commands that its ports have taken and not handed over.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.lock().places.iter().flatten().map(|place| place.outstanding).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is behind the lock, with `now` as the target's time. Time that goes back stands still.
    pub(super) fn at(&self, now: Nanos) -> (MutexGuard<'_, State>, Nanos) {
        let mut state = self.lock();
        let now = self.inside(now).max(state.seen);
        state.seen = now;
        (state, now)
    }

    /// A time of its callers as the target has it.
    pub(super) fn inside(&self, at: Nanos) -> Nanos {
        Nanos(at.0.saturating_sub(self.began.0))
    }

    /// A time of the target's as its callers have it.
    pub(super) fn outside(&self, at: Nanos) -> Nanos {
        at + self.began.0
    }

    /// Now, for a caller that knows no time.
    pub(super) fn now(&self) -> Nanos {
        match self.time {
            TargetTime::Clock => Clock.now(),
            TargetTime::Calls => self.outside(self.lock().seen),
        }
    }

    /// Waits until then.
    pub(super) fn wait(&self, until: Nanos) {
        match self.time {
            TargetTime::Clock => {
                std::thread::sleep(std::time::Duration::from_nanos(until.since(Clock.now())));
            }
            TargetTime::Calls => drop(self.at(until)),
        }
    }

    /// Numbers for so many initiators, of which the first is returned.
    pub(super) fn new_initiators(&self, count: u32) -> u32 {
        let mut state = self.lock();
        let first = state.initiators;
        state.initiators += count;
        first
    }

    /// A place for a nexus, which is connected if the port is alive.
    pub(super) fn enter(&self, port: PortId, initiator: u32, slots: usize) -> usize {
        let (mut state, now) = self.at(self.now());
        let place = Place {
            port,
            initiator: InitiatorId(initiator),
            link: Link::new(now),
            out: (0..slots).map(|_| None).collect(),
            outstanding: 0,
            unanswered: Vec::new(),
            ends: Ends::default(),
            notices: Vec::new(),
        };
        let free = state.places.iter().position(Option::is_none).unwrap_or(state.places.len());
        if free == state.places.len() {
            state.places.push(None);
        }
        state.places[free] = Some(place);
        state.connect(free, now);
        free
    }

    /// The place is no more: its connection ends, and what it has is dropped.
    pub(super) fn leave(&self, at: usize) {
        let (mut state, now) = self.at(self.now());
        let place = state.places[at].take().expect("a place is left once");
        if let Some(nexus) = place.link.nexus() {
            state.target.disconnect(nexus, now);
        }
    }
}

impl State {
    pub(super) fn place(&mut self, at: usize) -> &mut Place {
        self.places[at].as_mut().expect("a place that was not left")
    }

    pub(super) fn moved(&mut self) {
        self.moves += 1;
    }

    /// Puts the end of every command that is due into its place, with its data.
    pub(super) fn take_due(&mut self, now: Nanos) {
        let State { target, places, moves, .. } = self;
        loop {
            let mut sink = |at: DataPlace, bytes: &[u8]| {
                let place = find(places, at.nexus);
                if let Some(one) = place.and_then(|place| place.out[at.tag.0 as usize].as_mut()) {
                    copy_into(&mut one.memory, at.offset as usize, bytes);
                }
            };
            let Some(end) = target.next_end(now, &mut sink) else { return };
            *moves += 1;
            if let Some(place) = find(places, end.nexus) {
                place.end(&end);
                place.link.heard(now);
            }
        }
    }
}

fn find(places: &mut [Option<Place>], nexus: weir_sim_target::NexusId) -> Option<&mut Place> {
    places.iter_mut().flatten().find(|place| place.link.nexus() == Some(nexus))
}

/// Copies bytes that begin so far behind the start of all the memory.
fn copy_into(memory: &mut [Data], offset: usize, mut bytes: &[u8]) {
    let mut at = offset;
    for piece in memory {
        if bytes.is_empty() {
            return;
        }
        let len = piece.len();
        if at >= len {
            at -= len;
            continue;
        }
        let here = bytes.len().min(len - at);
        piece.copy_from_at(at, &bytes[..here]);
        (bytes, at) = (&bytes[here..], 0);
    }
}

impl Place {
    /// The target has answered.
    fn end(&mut self, end: &End) {
        let slot = end.tag.0 as u16;
        let Some(one) = self.take(slot) else { return };
        let moved = match one.direction {
            Direction::None => 0,
            Direction::In(_) => end.moved_in,
            Direction::Out(_) => end.moved_out,
        };
        self.ends.sense.extend_from_slice(&end.sense);
        let sense = end.sense.len() as u8;
        self.hand_over(slot, one, Delivery::Delivered, (end.status, moved, sense));
    }

    fn take(&mut self, slot: u16) -> Option<Outstanding> {
        let one = self.out[usize::from(slot)].take()?;
        self.outstanding -= 1;
        Some(one)
    }

    fn hand_over(
        &mut self,
        slot: u16,
        mut one: Outstanding,
        delivery: Delivery,
        (status, moved, sense): (ScsiStatus, u32, u8),
    ) {
        let memory = one.memory.len() as u16;
        self.ends.commands.push(Delivered { slot, delivery, status, moved, sense, memory });
        self.ends.memory.append(&mut one.memory);
    }

    /// Commands that fit end without an answer. Each of them can change no block any more.
    pub(super) fn end_without(
        &mut self,
        delivery: Delivery,
        fits: impl Fn(u16, &Outstanding) -> bool,
    ) {
        for slot in 0..self.out.len() as u16 {
            let is_it = self.out[usize::from(slot)].as_ref().is_some_and(|one| fits(slot, one));
            if is_it && let Some(one) = self.take(slot) {
                self.hand_over(slot, one, delivery, (ScsiStatus::GOOD, 0, 0));
            }
        }
    }

    pub(super) fn answer(&mut self, token: u32, answer: ManagementAnswer) {
        self.ends.managements.push((token, answer));
    }

    /// The session is a new one.
    pub(super) fn answer_resets(&mut self) {
        for one in self.unanswered.extract_if(.., |one| one.resets) {
            self.ends.managements.push((one.token, ManagementAnswer::Complete));
        }
    }

    /// Questions whose time is up get no answer any more.
    pub(super) fn end_unanswered(&mut self, now: Nanos) {
        for late in self.unanswered.extract_if(.., |one| one.deadline <= now) {
            self.ends.managements.push((late.token, ManagementAnswer::Late));
        }
    }
}

/// The name of a command at the target.
pub(super) const fn tag_of(slot: u16) -> TaskTag {
    TaskTag(slot as u32)
}
