//! The dispatcher: the elevator of the multi-queue path, with a line to each lane. All of it is
//! under one right.
//!
//! Lanes are members of a [combiner](weir_ring::combiner): one that gets the right goes to the
//! elevator itself, for others as well; one that does not leaves what it has in the rings of its
//! line. The combiner takes it from there, and sends back what is picked. A request goes to the
//! lane of its submitter where that has room, because its slot is in that CPU's cache.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Nanos, SchedTag, SubmitterId};
use weir_ring::{Asking, Consumer, Producer, ring};
use weir_sched::Ended;

use super::arrivals::{Arrival, Arrivals, Picked};
use super::elevator::{Elevator, Outlets};
use super::link::{Link, Rings, SENT_MAX};
use crate::budget::{Budget, PickPlaces};
use crate::event::{Silent, Sink, What, lane_tells};
use crate::lanes::{Lanes, TAKES_NONE};
use crate::request::{ALL, RequestClaim};

/// Requests that a lane may leave without having had the right, and ends likewise. With more it
/// waits for the right.
const LEFT_MAX: usize = 256;

/// Requests of a usual batch.
const FETCHED: usize = 32;

/// Requests taken over at once.
const TAKEN_MAX: usize = 64;

/// How many requests of its own a lane is sent beyond the room of its driver: it has the next at
/// hand when some have ended, and need not wait until the holder of the right comes round.
/// Otherwise they would go to another lane with room, whose CPU would have to fetch their slots,
/// each two lines: with two lanes on `mq-deadline` one in ten did, and cost a tenth of the
/// throughput.
const AHEAD: u16 = 32;

/// The elevator, and the rings between it and the lanes.
#[derive(Default)]
pub(crate) struct Dispatcher {
    pub(crate) elevator: Option<Elevator>,
    /// By lane; of those that are open.
    lines: Vec<Option<LaneRings>>,
    arrivals: Arrivals,
    ended: Vec<Ended>,
    /// How many requests of its own a lane is sent beyond the room of its driver.
    ahead: u16,
    /// The places that requests need beside their tags.
    budget: Option<Arc<dyn Budget>>,
}

/// The dispatcher's end of the rings from and to a lane.
struct LaneRings {
    arrivals: Consumer<Arrival>,
    ended: Consumer<Ended>,
    /// Tags of ended requests, for a scheduler that does not use their times: much less to carry.
    gone: Consumer<SchedTag>,
    picked: Producer<Picked>,
    /// Requests ever sent.
    sent: u64,
    /// How many more it can be sent, as far as is known.
    room: usize,
}

impl LaneRings {
    /// Brings nearer what its lane has written, and where that is sent something.
    fn fetch(&self, timed: bool) {
        match timed {
            true => self.ended.fetch(FETCHED),
            false => self.gone.fetch(FETCHED),
        }
        self.arrivals.fetch(FETCHED);
        self.picked.fetch(FETCHED);
    }

    /// Takes what has ended; says how much that is.
    #[inline]
    fn pop_ended(&mut self, ended: &mut Vec<Ended>) -> usize {
        let gone = self.gone.pop_each(LEFT_MAX, |tag| ended.push(Ended::untimed(tag)));
        gone + self.ended.pop_each(LEFT_MAX, |end| ended.push(end))
    }
}

/// The turn of a lane that has the right: what it brings to the elevator, and where its picks go.
pub(crate) struct Turn<'a> {
    pub(crate) lane: u16,
    pub(crate) arrivals: &'a mut Arrivals,
    pub(crate) ended: &'a mut Vec<Ended>,
    /// None: it is paused.
    pub(crate) room: Option<usize>,
    /// How many requests wait for its driver beyond what that has room for.
    pub(crate) excess: usize,
    /// A time has come that it was told.
    pub(crate) due: bool,
    pub(crate) now: Nanos,
    /// Requests for this lane go to its dispatch list.
    pub(crate) dispatch: &'a mut VecDeque<RequestClaim>,
    /// Requests that would have had to wait for a scheduler's tag, and may not.
    pub(crate) refused: &'a mut Vec<RequestClaim>,
}

/// The outcome of a turn.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Lanes to be told that they should ask, a bit each.
    pub(crate) kicked: u64,
    /// Lanes that were sent something, a bit each.
    pub(crate) sent: u64,
    /// The lane could not take all there may be: it is to ask again when it has room.
    pub(crate) again: bool,
    /// The scheduler withholds what it has for a lane in need. That waits for this lane to be found
    /// in need too, or to be told that it is well: it is to be watched from now on.
    pub(crate) withheld: bool,
    /// It could take more with more places of the budget.
    pub(crate) short: bool,
    /// When the lane has to come back although nothing happens.
    pub(crate) wake_at: Option<Nanos>,
}

impl Outcome {
    /// Whether it says nothing but a time.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        let &Outcome { kicked, sent, again, withheld, short, wake_at: _ } = self;
        (kicked | sent) == 0 && !(again | withheld | short)
    }
}

impl Dispatcher {
    /// In front of hard queues of so many tags.
    pub(crate) fn new(
        elevator: Option<Elevator>,
        depth: u16,
        budget: Option<Arc<dyn Budget>>,
    ) -> Dispatcher {
        Dispatcher { elevator, ahead: depth.min(AHEAD), budget, ..Dispatcher::default() }
    }

    /// A line to a lane, which is one of several.
    pub(crate) fn open(&mut self, lane: usize) -> Link {
        let (leave_arrival, arrivals) = ring(LEFT_MAX);
        let (leave_end, ended) = ring(LEFT_MAX);
        let (leave_tag, gone) = ring(LEFT_MAX);
        let (picked, receive) = ring(SENT_MAX);
        if self.lines.len() <= lane {
            self.lines.resize_with(lane + 1, || None);
        }
        self.lines[lane] = Some(LaneRings { arrivals, ended, gone, picked, sent: 0, room: 0 });
        let (arrivals, ended, gone) = (leave_arrival, leave_end, leave_tag);
        Link::of(Rings { arrivals, ended, gone, picked: receive })
    }

    /// A lane closes: what it left is taken in, what it was sent goes to others. The lanes that
    /// take over what it was to see to, a bit each.
    pub(crate) fn close(
        &mut self,
        lane: u16,
        mut link: Link,
        refused: &mut Vec<RequestClaim>,
    ) -> u64 {
        self.take_over(lane, Nanos::ZERO, refused, Silent);
        if let Some(line) = self.lines.get_mut(usize::from(lane)) {
            *line = None;
        }
        let Some(elevator) = &mut self.elevator else { return 0 };
        if let Some(rings) = &mut link.rings {
            let mut places = 0;
            rings.picked.pop_each(SENT_MAX, |mut picked| {
                places += usize::from(picked.take_place());
                elevator.take_back(picked);
            });
            if let Some(budget) = self.budget.as_ref().filter(|_| places > 0) {
                budget.put(places);
            }
        }
        elevator.closed(lane)
    }

    /// Hears of all that has ended. So a submitter that was told of an end finds it here.
    pub(crate) fn hear_ends(&mut self) {
        let Some(elevator) = &mut self.elevator else { return };
        for (lane, line) in self.lines.iter_mut().enumerate() {
            let Some(line) = line else { continue };
            line.pop_ended(&mut self.ended);
            elevator.ended(lane as u16, &self.ended, Nanos::ZERO, Silent);
            self.ended.clear();
        }
    }

    /// Takes in what a lane has left; says how much that was.
    fn take_over(
        &mut self,
        lane: u16,
        now: Nanos,
        refused: &mut Vec<RequestClaim>,
        sink: impl Sink,
    ) -> usize {
        let Dispatcher { elevator: Some(elevator), lines, arrivals, ended, .. } = self else {
            return 0;
        };
        let Some(Some(line)) = lines.get_mut(usize::from(lane)) else { return 0 };
        let mut taken = line.pop_ended(ended);
        if taken > 0 {
            elevator.ended(lane, ended, now, sink);
            ended.clear();
        }
        loop {
            let count = line.arrivals.pop_each(TAKEN_MAX, |arrival| arrivals.push(arrival));
            if count == 0 {
                return taken;
            }
            taken += count;
            hand_in(elevator, lane, arrivals, now, refused, sink);
        }
    }

    /// The turn of a lane that has the right: sees to its own, then to what others leave
    /// meanwhile.
    pub(crate) fn serve(
        &mut self,
        lanes: &Lanes,
        asking: &mut Asking<'_>,
        turn: &mut Turn<'_>,
        sink: impl Sink,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        // The work it left before comes before the work it brings.
        self.take_over(turn.lane, turn.now, turn.refused, sink);
        let Some(elevator) = &mut self.elevator else {
            debug_assert!(turn.arrivals.is_empty(), "requests for a scheduler that is not there");
            // It went while they were on their way here; there is nothing to ask for.
            asking.forget_all();
            return outcome;
        };
        asking.fetch();
        if !turn.ended.is_empty() {
            elevator.ended(turn.lane, turn.ended, turn.now, sink);
            turn.ended.clear();
        }
        if !turn.arrivals.is_empty() {
            hand_in(elevator, turn.lane, turn.arrivals, turn.now, turn.refused, sink);
        }
        let (mut others, mut taken) = self.take_in(lanes, asking.take(), turn, sink);
        self.pass(lanes, turn.lane, turn, &mut outcome, sink);
        if lanes.in_need.read() != 0 {
            self.stand_in(lanes, turn, &mut outcome, sink);
        }
        loop {
            for lane in each(others) {
                self.pass(lanes, lane as u16, turn, &mut outcome, sink);
            }
            if !asking.goes_on(taken) {
                break;
            }
            // Lanes whose work was taken over get a pass as well.
            (others, taken) = self.take_in(lanes, asking.take(), turn, sink);
        }
        let elevator = self.elevator.as_mut().expect("it was there a moment ago");
        outcome.wake_at = elevator.wake_for(turn.lane, turn.now);
        outcome
    }

    /// The turn of a lane that has the right while no other asks, and that brings one request or
    /// none; for a device with a scheduler. As [`serve`](Dispatcher::serve) for that.
    #[inline]
    pub(crate) fn serve_lone(
        &mut self,
        lanes: &Lanes,
        claim: Option<RequestClaim>,
        turn: &mut Turn<'_>,
    ) -> Outcome {
        let (mut outcome, lane, now) = (Outcome::default(), turn.lane, turn.now);
        if !self.lines.is_empty() {
            self.take_over(lane, now, turn.refused, Silent);
        }
        let elevator = self.elevator.as_mut().expect("a device with a scheduler");
        if !turn.ended.is_empty() {
            elevator.ended(lane, turn.ended, now, Silent);
            turn.ended.clear();
        }
        if let Some(claim) = claim {
            elevator.bind(claim.rq.id.submitter(), lane);
            turn.refused.extend(elevator.insert_lone(lane, claim, now));
        }
        // Where each pick has to have a place of a budget no lane comes here.
        debug_assert!(self.budget.is_none());
        if self.lines.is_empty() {
            // That a time has come is news for other lanes, and the elevator knows of none.
            let (room, due, mut only) = ((turn.room, ALL), false, Only(turn.dispatch));
            let pass = elevator.pass(lane, room, due, now, &mut only, Silent);
            (outcome.kicked, outcome.again) = (pass.kicked, pass.again);
        } else {
            self.pass(lanes, lane, turn, &mut outcome, Silent);
        }
        let elevator = self.elevator.as_mut().expect("it was there a moment ago");
        outcome.wake_at = elevator.wake_for(lane, now);
        outcome
    }

    /// Takes in what other lanes have left that ask, a bit each; says which of them are there, and
    /// how much that was, each lane being something.
    fn take_in(
        &mut self,
        lanes: &Lanes,
        mut asking: u64,
        turn: &mut Turn<'_>,
        sink: impl Sink,
    ) -> (u64, usize) {
        // All at once: one after the other, each line would take as long.
        let timed = self.elevator.as_ref().is_some_and(Elevator::wants_times);
        for lane in each(asking) {
            if let Some(Some(line)) = self.lines.get(lane) {
                line.fetch(timed);
                lanes[lane].credit.fetch();
            }
        }
        let mut taken = 0;
        for lane in each(asking) {
            if self.lines.get(lane).is_none_or(Option::is_none) {
                // It has closed since: the scheduler may not know it any more.
                asking &= !(1 << lane);
                continue;
            }
            taken += 1 + self.take_over(lane as u16, turn.now, turn.refused, sink);
        }
        (asking, taken)
    }

    /// Picks what is staged for lanes in need, if this one is well.
    #[cold]
    fn stand_in(
        &mut self,
        lanes: &Lanes,
        turn: &mut Turn<'_>,
        outcome: &mut Outcome,
        sink: impl Sink,
    ) {
        let Dispatcher { elevator: Some(elevator), lines, budget, .. } = self else { return };
        let Some(mut room) = turn.room.filter(|_| !lanes[usize::from(turn.lane)].is_in_need())
        else {
            return;
        };
        let now = elevator.clamp(turn.now);
        for lane in (0..lines.len()).filter(|lane| lanes[*lane].is_in_need()) {
            if lines[lane].is_none() || !elevator.has_work(lane as u16) {
                continue;
            }
            let before = turn.dispatch.len();
            let places = PickPlaces::get(budget, turn.lane, room, || elevator.len());
            let mut heir = Heir(turn.dispatch, budget.is_some());
            let (all, given) =
                elevator.pull_for(lane as u16, room, places.most, now, &mut heir, sink);
            outcome.short |= places.put_rest(budget, given);
            room -= turn.dispatch.len() - before;
            outcome.again |= !all;
            outcome.withheld |= given == 0;
        }
        // The tags are with lanes in need, perhaps all of them: what waits for one goes without.
        room -= elevator.pull_parked(turn.lane, room, &mut Heir(turn.dispatch, false), sink);
        turn.room = Some(room);
    }

    /// Picks for one lane.
    fn pass(
        &mut self,
        lanes: &Lanes,
        lane: u16,
        turn: &mut Turn<'_>,
        outcome: &mut Outcome,
        sink: impl Sink,
    ) {
        let Dispatcher { elevator: Some(elevator), lines, ahead, budget, .. } = self else {
            return;
        };
        let (own, ahead) = (lane == turn.lane, u64::from(*ahead));
        let mut ways = Ways {
            lines,
            marks: lanes,
            ahead,
            own: turn.lane,
            room: turn.room.unwrap_or(0),
            spare: turn.room.map_or(0, |_| (ahead as usize).saturating_sub(turn.excess)),
            dispatch: turn.dispatch,
            budgeted: false,
            looked: 0,
            sent: 0,
            now: turn.now,
            sink,
        };
        let room = if own { turn.room } else { ways.look_asking(lane) };
        if !own {
            // It does not come back for a time any more.
            elevator.forget_timer(lane);
        }
        let places = PickPlaces::get(budget, lane, room.unwrap_or(0), || elevator.len());
        ways.budgeted = budget.is_some() && room != Some(ALL);
        let pass =
            elevator.pass(lane, (room, places.most), own && turn.due, turn.now, &mut ways, sink);
        if places.put_rest(budget, pass.given) && pass.again {
            match budget {
                Some(budget) if !own => budget.wait(lane),
                _ => outcome.short = true,
            }
        }
        let (left, spare, sent) = (ways.room, ways.spare, ways.sent);
        turn.excess = (ahead as usize).saturating_sub(spare);
        turn.room = turn.room.map(|_| left);
        outcome.sent |= sent;
        for lane in each(sent) {
            if let Some(line) = &mut lines[lane] {
                line.picked.publish();
            }
        }
        outcome.kicked |= pass.kicked;
        if own {
            outcome.again = pass.again;
        }
    }
}

/// The lanes of a set, ascending.
fn each(mut lanes: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (lanes != 0).then(|| lanes.trailing_zeros() as usize)?;
        lanes &= lanes - 1;
        Some(lane)
    })
}

/// Requests that a lane hands in go to the scheduler; those refused are set aside.
fn hand_in(
    elevator: &mut Elevator,
    lane: u16,
    arrivals: &mut Arrivals,
    now: Nanos,
    refused: &mut Vec<RequestClaim>,
    sink: impl Sink,
) {
    let mut last = None;
    for rq in arrivals.rqs() {
        let context: SubmitterId = rq.id.submitter();
        if last != Some(context) {
            elevator.bind(context, lane);
            last = Some(context);
        }
    }
    elevator.insert_all(lane, arrivals, now, sink);
    refused.extend(arrivals.claims());
}

/// The ways to the lanes, while the elevator picks.
struct Ways<'a, S> {
    lines: &'a mut [Option<LaneRings>],
    marks: &'a Lanes,
    /// How many requests a lane is sent beyond its credit.
    ahead: u64,
    own: u16,
    /// How many requests the own lane can still take.
    room: usize,
    /// How many of its own it can be given beyond that.
    spare: usize,
    dispatch: &'a mut VecDeque<RequestClaim>,
    /// Each pick has a place of the device's budget.
    budgeted: bool,
    /// Lanes whose room is known, a bit each.
    looked: u64,
    /// Lanes that were sent something, a bit each.
    sent: u64,
    now: Nanos,
    sink: S,
}

impl<S: Sink> Ways<'_, S> {
    /// How many requests can be sent to another lane: none while its home is asleep, unless it
    /// asks.
    fn look(&mut self, lane: u16, asks: bool) -> usize {
        let Some(Some(line)) = self.lines.get_mut(usize::from(lane)) else { return 0 };
        if self.looked & 1 << lane == 0 {
            self.looked |= 1 << lane;
            let marks = &self.marks[usize::from(lane)];
            let credit = match marks.credit.read() {
                TAKES_NONE => 0,
                credit => (credit + self.ahead).saturating_sub(line.sent) as usize,
            };
            let takes = if asks || marks.is_awake() { credit } else { 0 };
            line.room = takes.min(line.picked.room(takes));
        }
        line.room
    }

    /// The same for a lane that asks; none if it is paused: then nothing is picked for it, and the
    /// scheduler need not even know it yet.
    fn look_asking(&mut self, lane: u16) -> Option<usize> {
        let takes = self.marks[usize::from(lane)].credit.read() != TAKES_NONE;
        takes.then(|| self.look(lane, true))
    }

    /// Sends it to its home, or else to `lane`; true in that case.
    #[inline(never)]
    fn send_from_afar(&mut self, lane: u16, picked: Picked) -> bool {
        let home = picked.home();
        let picked = if home == lane {
            picked
        } else {
            match self.give(home, picked) {
                Ok(()) => return false,
                Err(picked) => picked,
            }
        };
        let given = self.give(lane, picked);
        assert!(given.is_ok(), "no more is picked for a lane than it has room for");
        true
    }

    fn give(&mut self, lane: u16, picked: Picked) -> Result<(), Picked> {
        if lane == self.own {
            match (self.room, self.spare) {
                (0, 0) => return Err(picked),
                (0, _) => self.spare -= 1,
                _ => self.room -= 1,
            }
            self.dispatch.push_back(picked.into_claim());
            return Ok(());
        }
        if self.look(lane, false) == 0 {
            return Err(picked);
        }
        let line = self.lines[usize::from(lane)].as_mut().expect("it has room");
        lane_tells(self.sink, self.own, self.now, || What::SentAhead { rq: picked.rq(), to: lane });
        line.picked.push(picked)?;
        line.room -= 1;
        line.sent += 1;
        self.sent |= 1 << lane;
        Ok(())
    }
}

impl<S: Sink> Outlets for Ways<'_, S> {
    #[inline(always)]
    fn send(&mut self, lane: u16, mut picked: Picked) -> bool {
        if self.budgeted {
            picked = picked.with_place();
        }
        if lane == self.own && picked.home() == lane && self.room > 0 {
            self.room -= 1;
            self.dispatch.push_back(picked.into_claim());
            return true;
        }
        self.send_from_afar(lane, picked)
    }
}

/// The dispatch list of the only lane, which takes all that is picked.
struct Only<'a>(&'a mut VecDeque<RequestClaim>);

impl Outlets for Only<'_> {
    #[inline(always)]
    fn send(&mut self, _: u16, picked: Picked) -> bool {
        self.0.push_back(picked.into_claim());
        true
    }
}

/// The dispatch list of a lane that stands in for one in need, and whether each pick has a place.
struct Heir<'a>(&'a mut VecDeque<RequestClaim>, bool);

impl Outlets for Heir<'_> {
    fn send(&mut self, _: u16, picked: Picked) -> bool {
        let picked = if self.1 { picked.with_place() } else { picked };
        self.0.push_back(picked.into_claim());
        true
    }
}

#[cfg(test)]
mod tests;
