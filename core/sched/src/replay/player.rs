//! The engine of a replay: owns the tags, calls the scheduler for each event, and compares.

use std::collections::VecDeque;

use weir_bio::{Flags, GroupId, Nanos, Op, Rq, RqId, SchedTag, Status, SubmitterId};

use super::details::{Details, direct};
use super::outcome::{Decision, Line, Options, Outcome};
use super::recording::{Event, Kind, Range, Recording, ReplayError};
use super::setting::{has_all_calls, set_tunables};
use crate::Entry;
use crate::contract::{Absorbed, Ended, Merge, Replay, Setup};
use crate::merge::Side;

/// Schedulers whose deadlines and ages the recorded kernel counts in ticks of its clock; the
/// others measure in nanoseconds.
const TICKED: [&str; 2] = ["deadline", "mq-deadline"];
/// Schedulers whose contexts are the kernel's queues per CPU and not processes. The recordings are
/// of one CPU.
const PER_CPU: [&str; 1] = ["kyber"];
/// The most scheduler tags there can be.
pub(super) const TAGS_MAX: u16 = SchedTag::NONE.0;

/// A request under a tag.
#[derive(Clone, Copy, Debug)]
struct Tagged {
    rq: Rq,
    accepted_at: Nanos,
    issued_at: Nanos,
    is_staged: bool,
    /// Counts arrivals: of two requests alike the older one was meant.
    age: u64,
}

/// The engine of a replay: owns the tags, and knows what is under each.
pub(super) struct Player {
    scheduler: Box<dyn Replay>,
    pub(super) outcome: Outcome,
    is_per_cpu: bool,
    /// The recording states every call; without this the timers are fired, and one hard queue asks
    /// when something was dispatched.
    has_all_calls: bool,
    hard_queues: u16,
    follows: bool,
    tick_ns: u64,
    first_us: u64,
    /// The scheduler's clock at the first event.
    clock_us: u64,
    now: Nanos,
    held: Vec<Option<Tagged>>,
    pub(super) free: Vec<SchedTag>,
    arrivals: u64,
    /// Led its own way: what was given at each `D` that has not ended.
    given: VecDeque<Option<SchedTag>>,
    /// Led along: what is in flight, as recorded, with the tags it is made of here.
    in_flight: Vec<(Named, Vec<SchedTag>)>,
}

/// A request as a `D` or a `C` names it: its sectors, and its context where that is stated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    range: Range,
    context: Option<u16>,
}

impl Named {
    fn of(event: &Event) -> Named {
        Named { range: event.range, context: event.details.context }
    }

    fn is(self, rq: &Rq) -> bool {
        range_of(rq) == self.range
            && self.context.is_none_or(|context| context == rq.id.submitter().0)
    }
}

impl Player {
    pub(super) fn new(
        recording: &Recording,
        options: &Options,
        entry: &'static Entry,
        setup: &Setup,
    ) -> Result<Player, ReplayError> {
        let make = entry.replay.expect("only what can be replayed is chosen");
        let nr_requests = setup.nr_requests;
        let mut scheduler = make(setup);
        let has_all_calls = has_all_calls(recording, options, entry);
        set_tunables(&mut *scheduler, recording, options)?;
        let stated = recording.tick_us.as_ref().map(|tick| tick.value);
        let tick_us = options.tick_us.or(stated).filter(|_| TICKED.contains(&entry.name));
        Ok(Player {
            scheduler,
            outcome: Outcome {
                scheduler: entry.name,
                tick_us,
                dispatches: 0,
                differences: options.follow.then_some(0),
                lines: Vec::new(),
            },
            is_per_cpu: PER_CPU.contains(&entry.name) && !has_all_calls,
            has_all_calls,
            hard_queues: setup.hard_queues,
            follows: options.follow,
            tick_ns: tick_us.map_or(1, |tick| tick.max(1) * 1000),
            first_us: recording.events.first().map_or(0, |event| event.time_us),
            clock_us: recording.clock_us.as_ref().map_or(0, |clock| clock.value),
            now: Nanos::ZERO,
            held: vec![None; usize::from(nr_requests)],
            free: (0..nr_requests).rev().map(SchedTag).collect(),
            arrivals: 0,
            given: VecDeque::new(),
            in_flight: Vec::new(),
        })
    }

    pub(super) fn play(&mut self, event: &Event) -> Result<(), String> {
        let clock = (event.time_us - self.first_us + self.clock_us) * 1000;
        let now = Nanos(clock - clock % self.tick_ns);
        if self.has_all_calls {
            self.now = self.now.max(now);
        } else {
            self.fire(now);
        }
        let is_flush = event.range.op == Op::Flush;
        if self.has_all_calls && event.details.hard_queue >= self.hard_queues {
            let Details { hard_queue, .. } = event.details;
            return Err(format!("hq {hard_queue}: hard_queues is {}", self.hard_queues));
        }
        match event.kind {
            Kind::Inserted | Kind::MergedBack | Kind::MergedFront if is_flush => Ok(()),
            Kind::Inserted | Kind::MergedBack | Kind::MergedFront => self.arrive(event),
            Kind::Dispatched => {
                self.outcome.dispatches += 1;
                match (is_flush, self.follows) {
                    // A flush passes every scheduler by.
                    (true, true) => {}
                    (true, false) => self.print(event.time_us, Some(event.range)),
                    (false, true) => self.lead(event)?,
                    (false, false) => self.ask(event),
                }
                Ok(())
            }
            Kind::Completed if is_flush => Ok(()),
            Kind::Completed => {
                self.complete(event);
                Ok(())
            }
            Kind::Fired
            | Kind::Denied
            | Kind::ContextBegun
            | Kind::ContextGone
            | Kind::GroupPlaced
            | Kind::GroupWeighed => {
                if self.has_all_calls {
                    self.call(event);
                }
                Ok(())
            }
        }
    }

    /// A call about no request.
    fn call(&mut self, event: &Event) {
        let Details { context, hard_queue, group, parent, weight, .. } = event.details;
        let (context, now) = (SubmitterId(context.unwrap_or(0)), self.now);
        match event.kind {
            Kind::Fired => self.scheduler.on_timer(now),
            Kind::Denied => self.ask_in_vain(event),
            Kind::ContextBegun => self.scheduler.context_started(context, hard_queue),
            Kind::ContextGone => self.scheduler.context_ended(context, now),
            Kind::GroupPlaced => self.scheduler.group_parent(GroupId(group), GroupId(parent)),
            Kind::GroupWeighed => {
                self.scheduler.group_weight_changed(GroupId(group), weight, now);
            }
            _ => unreachable!("{} is about a request", event.kind),
        }
    }

    /// An `N`: nothing was given.
    fn ask_in_vain(&mut self, event: &Event) {
        if !self.follows {
            if let Some(rq) = self.asked(event.details.hard_queue) {
                self.give(event.time_us, Some(rq));
            }
            return;
        }
        let before = self.scheduler.boxed_clone();
        if let Some(rq) = self.asked(event.details.hard_queue) {
            self.scheduler = before;
            let chose = Decision::Dispatch(range_of(&rq));
            self.differs(event.time_us, Decision::Nothing, chose);
        }
    }

    /// Asks for one request: with every call stated as the block layer does, which does not ask
    /// kyber for a hard queue that holds nothing.
    fn asked(&mut self, hard_queue: u16) -> Option<Rq> {
        if !self.has_all_calls {
            return self.scheduler.dispatch(0, self.now);
        }
        let mut given = Vec::with_capacity(1);
        self.scheduler.dispatch_batch(hard_queue, 1, &mut given, self.now);
        given.pop()
    }

    /// Fires the timers that are due by `now`, each at its own time.
    fn fire(&mut self, now: Nanos) {
        while let Some(at) = self.scheduler.wake_at().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.scheduler.on_timer(self.now);
            if self.scheduler.wake_at() == Some(at) {
                break;
            }
        }
        self.now = self.now.max(now);
    }

    fn arrive(&mut self, event: &Event) -> Result<(), String> {
        let bio = self.bio(event);
        let now = self.now;
        let mut asked = if self.follows { Some(self.scheduler.boxed_clone()) } else { None };
        let merge = asked.as_mut().unwrap_or(&mut self.scheduler).merge(&bio, now);
        let mut chose = match merge {
            Merge::No => Kind::Inserted,
            Merge::Back(_) | Merge::BackJoined { .. } => Kind::MergedBack,
            Merge::Front(_) | Merge::FrontJoined { .. } => Kind::MergedFront,
        };
        let Some(mut asked) = asked else {
            self.apply(merge, &bio);
            return if merge == Merge::No { self.insert(bio, now) } else { Ok(()) };
        };
        if chose != Kind::Inserted && chose == event.kind {
            self.scheduler = asked;
            self.apply(merge, &bio);
            return Ok(());
        }
        if chose == Kind::Inserted {
            let tag = *self.free.last().ok_or_else(too_many)?;
            let mut absorbed = Absorbed::new();
            asked.insert(Rq { tag, ..bio }, now, &mut absorbed);
            if !absorbed.is_empty() {
                chose = Kind::MergedBack;
            }
            if chose == event.kind {
                self.scheduler = asked;
                self.hold(tag, bio, now);
                absorbed.into_iter().for_each(|(kept, gone)| self.join(kept, gone));
                return Ok(());
            }
        }
        let recorded = Decision::Arrival(event.kind, event.range);
        self.differs(event.time_us, recorded, Decision::Arrival(chose, event.range));
        self.force(event.kind, bio)
    }

    fn bio(&self, event: &Event) -> Rq {
        let Range { op, sector, sectors } = event.range;
        let process = event.ioprio.0 >> 13 << 3 | u16::from(event.ioprio.level());
        let Details { context, group, hint, flags, segments, .. } = event.details;
        let context = SubmitterId(if self.is_per_cpu { 0 } else { context.unwrap_or(process) });
        let flags = flags.unwrap_or_else(|| direct(op));
        Rq {
            sector,
            sectors,
            id: RqId::new(context, self.arrivals as u16, 0),
            flags,
            group: GroupId(group),
            ioprio: event.ioprio,
            hint,
            tag: SchedTag::NONE,
            op,
            // Where none are stated, no limit on them is ever met.
            segments,
        }
    }

    fn hold(&mut self, tag: SchedTag, rq: Rq, accepted_at: Nanos) {
        let popped = self.free.pop();
        debug_assert_eq!(popped, Some(tag), "the tag that was handed out");
        self.arrivals += 1;
        let (rq, age) = (Rq { tag, ..rq }, self.arrivals);
        let held = Tagged { rq, accepted_at, issued_at: Nanos::ZERO, is_staged: true, age };
        self.held[usize::from(tag.0)] = Some(held);
    }

    fn insert(&mut self, rq: Rq, accepted_at: Nanos) -> Result<(), String> {
        let tag = *self.free.last().ok_or_else(too_many)?;
        self.hold(tag, rq, accepted_at);
        let mut absorbed = Absorbed::new();
        self.scheduler.insert(Rq { tag, ..rq }, self.now, &mut absorbed);
        for (kept, gone) in absorbed {
            self.join(kept, gone);
        }
        Ok(())
    }

    fn apply(&mut self, merge: Merge, bio: &Rq) {
        match merge {
            Merge::No => {}
            Merge::Back(tag) => self.grow(tag, bio, Side::Back),
            Merge::Front(tag) => self.grow(tag, bio, Side::Front),
            Merge::BackJoined { kept, gone } => {
                self.grow(kept, bio, Side::Back);
                self.join(kept, gone);
            }
            Merge::FrontJoined { kept, gone } => {
                self.grow(gone, bio, Side::Front);
                self.join(kept, gone);
            }
        }
    }

    fn at(&mut self, tag: SchedTag) -> &mut Tagged {
        let held = self.held[usize::from(tag.0)].as_mut();
        held.expect("a scheduler names requests that it was given")
    }

    fn grow(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        let Tagged { rq, .. } = self.at(tag);
        rq.sectors += bio.sectors;
        if side == Side::Front {
            rq.sector = bio.sector;
        }
    }

    fn join(&mut self, kept: SchedTag, gone: SchedTag) {
        let Tagged { rq, accepted_at, .. } = *self.at(gone);
        let into = self.at(kept);
        into.rq.sectors += rq.sectors;
        into.accepted_at = into.accepted_at.min(accepted_at);
        self.release(gone);
    }

    fn release(&mut self, tag: SchedTag) {
        self.held[usize::from(tag.0)] = None;
        self.free.push(tag);
    }

    /// Makes of an arriving bio what was made of it in the recording.
    fn force(&mut self, kind: Kind, bio: Rq) -> Result<(), String> {
        let (side, fits): (Side, fn(&Rq, &Rq) -> bool) = match kind {
            Kind::MergedBack => (Side::Back, |rq, bio| rq.end() == bio.sector),
            Kind::MergedFront => (Side::Front, |rq, bio| rq.sector == bio.end()),
            _ => return self.insert(Rq { flags: bio.flags | Flags::NOMERGE, ..bio }, self.now),
        };
        let fitting = self
            .held
            .iter()
            .flatten()
            .filter(|held| held.is_staged && held.rq.op == bio.op && fits(&held.rq, &bio));
        let best = fitting.max_by_key(|held| (held.rq.ioprio == bio.ioprio, held.age));
        // Nothing ends there if it was joined to others here; then its pieces are sorted out
        // when it leaves.
        let Some(tag) = best.map(|held| held.rq.tag) else { return self.insert(bio, self.now) };
        self.scheduler.force_merge(tag, &bio, side);
        self.grow(tag, &bio, side);
        Ok(())
    }

    /// A `D`, led its own way.
    fn ask(&mut self, event: &Event) {
        let given = self.asked(event.details.hard_queue);
        self.give(event.time_us, given);
    }

    fn give(&mut self, time_us: u64, rq: Option<Rq>) {
        if let Some(rq) = &rq {
            self.issue(rq);
        }
        self.given.push_back(rq.map(|rq| rq.tag));
        self.print(time_us, rq.map(|rq| range_of(&rq)));
    }

    /// A `D`, led along the recording.
    fn lead(&mut self, event: &Event) -> Result<(), String> {
        let wanted = Named::of(event);
        let before = self.scheduler.boxed_clone();
        let chosen = self.asked(event.details.hard_queue);
        let tags = match chosen {
            Some(rq) if self.is_named(wanted, &rq) => {
                self.issue(&rq);
                vec![rq.tag]
            }
            _ => {
                self.scheduler = before;
                let chose =
                    chosen.map_or(Decision::Nothing, |rq| Decision::Dispatch(range_of(&rq)));
                self.differs(event.time_us, Decision::Dispatch(event.range), chose);
                self.extract(wanted)?
            }
        };
        self.in_flight.push((wanted, tags));
        Ok(())
    }

    /// Whether this is the recorded request; another scheduler's contexts need not be the same.
    fn is_named(&self, wanted: Named, rq: &Rq) -> bool {
        if self.has_all_calls { wanted.is(rq) } else { range_of(rq) == wanted.range }
    }

    /// Takes the recorded request out: whole if it is there, else its pieces, and what is more
    /// than it goes back in.
    fn extract(&mut self, named: Named) -> Result<Vec<SchedTag>, String> {
        let wanted = named.range;
        let whole = self.oldest(|rq| self.is_named(named, rq));
        if let Some(tag) = whole.or_else(|| self.oldest(|rq| range_of(rq) == wanted)) {
            self.take_out(tag);
            return Ok(vec![tag]);
        }
        let (mut tags, mut rest) = (Vec::new(), Vec::new());
        let mut at = wanted.sector;
        while at < wanted.end() {
            let covers = |rq: &Rq| rq.op == wanted.op && rq.sector <= at && at < rq.end();
            let tag = self.oldest(covers).ok_or_else(|| format!("D {wanted}: nothing is there"))?;
            let rq = self.take_out(tag);
            let accepted_at = self.at(tag).accepted_at;
            let mut cut = |from: u64, to: u64| {
                let sectors = (to - from) as u32;
                rest.push((Rq { sector: from, sectors, tag: SchedTag::NONE, ..rq }, accepted_at));
            };
            if rq.sector < at {
                cut(rq.sector, at);
            }
            if rq.end() > wanted.end() {
                cut(wanted.end(), rq.end());
            }
            at = rq.end().min(wanted.end());
            tags.push(tag);
        }
        for (rq, accepted_at) in rest {
            self.insert(rq, accepted_at)?;
        }
        Ok(tags)
    }

    fn oldest(&self, fits: impl Fn(&Rq) -> bool) -> Option<SchedTag> {
        let staged = self.held.iter().flatten().filter(|held| held.is_staged && fits(&held.rq));
        staged.min_by_key(|held| held.age).map(|held| held.rq.tag)
    }

    fn take_out(&mut self, tag: SchedTag) -> Rq {
        let rq = self.scheduler.take_out(tag, self.now);
        self.issue(&rq);
        rq
    }

    fn issue(&mut self, rq: &Rq) {
        let now = self.now;
        let held = self.at(rq.tag);
        assert!(held.is_staged, "{:?} is handed over once more", held.rq);
        held.is_staged = false;
        held.issued_at = now;
    }

    fn complete(&mut self, event: &Event) {
        let named = Named::of(event);
        let tags = if self.follows {
            let at = self.in_flight.iter().position(|(flown, _)| *flown == named);
            let like = || self.in_flight.iter().position(|(flown, _)| flown.range == named.range);
            let at = at.or_else(like).expect("the recording was held against itself");
            self.in_flight.remove(at).1
        } else {
            self.given_as(named).into_iter().collect()
        };
        for tag in tags {
            let end = self.end_of(tag, &event.details);
            self.scheduler.ended(&end, self.now);
            self.release(tag);
        }
    }

    /// Led its own way, with every call stated: the request that ended, if it is in flight here
    /// too; else the oldest.
    fn given_as(&mut self, named: Named) -> Option<SchedTag> {
        let held = &self.held;
        let is_it = |tag: &Option<SchedTag>| {
            let held = tag.and_then(|tag| held[tag.index()].as_ref());
            held.is_some_and(|held| named.is(&held.rq))
        };
        let at = self.given.iter().position(is_it).filter(|_| self.has_all_calls);
        self.given.remove(at.unwrap_or(0)).flatten()
    }

    /// The end of a request, with the recorded times or else with those of its events.
    fn end_of(&mut self, tag: SchedTag, details: &Details) -> Ended {
        let zero_us = self.clock_us as i64;
        let stated = details.times_us.map(|time| {
            time.filter(|_| self.has_all_calls).map(|us| Nanos((zero_us + us).max(0) as u64 * 1000))
        });
        let handed_back = details.handed_back && self.has_all_calls;
        let now = self.now;
        let Tagged { accepted_at, issued_at, .. } = *self.at(tag);
        let [accepted, issued, done] = stated;
        Ended {
            tag,
            status: Status::Ok,
            handed_back,
            accepted_at: accepted.unwrap_or(accepted_at),
            issued_at: issued.unwrap_or(issued_at),
            done_at: done.unwrap_or(now),
        }
    }

    fn print(&mut self, time_us: u64, range: Option<Range>) {
        self.outcome.lines.push(Line::Dispatched { time_us, range });
    }

    fn differs(&mut self, time_us: u64, recorded: Decision, chose: Decision) {
        *self.outcome.differences.get_or_insert(0) += 1;
        self.outcome.lines.push(Line::Differs { time_us, recorded, chose });
    }
}

fn too_many() -> String {
    format!("more requests at once than the {TAGS_MAX} a scheduler has tags for")
}

fn range_of(rq: &Rq) -> Range {
    Range { op: rq.op, sector: rq.sector, sectors: rq.sectors }
}

#[cfg(test)]
mod tests {
    use super::super::setting::setup_of;
    use super::*;

    #[test]
    fn an_end_has_the_times_that_are_stated_and_else_those_of_its_events() {
        let ends = |head: &str| {
            let text = format!(
                "scheduler kyber\nclock_us 1000\n{head}\n0 I R 0 8 0 0\n5 D R 0 8 - -\n\
                 9 C R 0 8 - - accepted=-2 issued=6 done=8 handed_back=1"
            );
            let recording = Recording::read(text.as_bytes()).unwrap();
            let (options, entry) = (Options::default(), &crate::mq::kyber::ENTRY);
            let setup = setup_of(&recording, &options, entry).unwrap();
            let mut player = Player::new(&recording, &options, entry, &setup).unwrap();
            recording.events[..2].iter().for_each(|event| player.play(event).unwrap());
            player.now = Nanos(1_009_000);
            let tag = player.given[0].unwrap();
            let end = player.end_of(tag, &recording.events[2].details);
            ([end.accepted_at, end.issued_at, end.done_at].map(|at| at.0), end.handed_back)
        };
        assert_eq!(ends("calls all"), ([998_000, 1_006_000, 1_008_000], true));
        assert_eq!(ends(""), ([1_000_000, 1_005_000, 1_009_000], false));
    }
}
