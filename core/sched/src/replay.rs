//! Replays: a scheduler is given what another was given, and asked when the other was asked.
//!
//! Pure: a recording in, an outcome out. It can be let go its own way, or be led along the
//! recording, its choice compared with the recorded one at each step.

pub mod recording;

use std::collections::VecDeque;
use std::fmt;

use weir_bio::{Flags, GroupId, Limits, Nanos, Op, Rq, RqId, SchedTag, Status, SubmitterId};

use crate::contract::{Absorbed, Ended, Merge, Replay, Scheduler, Setup};
use crate::merge::Side;
use crate::{Entry, SCHEDULERS};
pub use recording::{Event, Kind, Range, Recording, ReplayError, Stated, tick_of};

/// Schedulers whose deadlines and ages the recorded kernel counts in ticks of its clock; the
/// others measure in nanoseconds.
const TICKED: [&str; 2] = ["deadline", "mq-deadline"];
/// Schedulers whose contexts are the kernel's queues per CPU and not processes. The recordings are
/// of one CPU.
const PER_CPU: [&str; 1] = ["kyber"];
/// Scheduler tags a replay has at first: what Linux gives a device of ordinary depth.
const TAGS_MIN: u16 = 256;
/// The most there can be.
const TAGS_MAX: u16 = SchedTag::NONE.0;

/// The settings of a replay that differ from the recording's header.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Another scheduler.
    pub scheduler: Option<String>,
    /// Tunables, set behind those of the header: name and value.
    pub settings: Vec<(String, String)>,
    /// Another clock tick, microseconds.
    pub tick_us: Option<u64>,
    /// Led along the recording, each choice compared.
    pub follow: bool,
}

/// The event that a decision was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request that was dispatched.
    Dispatch(Range),
    /// The outcome of an arriving bio: inserted, or merged at the back or at the front.
    Arrival(Kind, Range),
    /// Nothing was dispatched.
    Nothing,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Dispatch(range) => write!(f, "{range}"),
            Decision::Arrival(kind, range) => write!(f, "{kind} {range}"),
            Decision::Nothing => f.write_str("nothing"),
        }
    }
}

/// One line of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The request dispatched at a `D`.
    Dispatched {
        /// Microseconds since the first event.
        time_us: u64,
        /// The request; `None` if it gave nothing.
        range: Option<Range>,
    },
    /// A decision that is not the recorded one.
    Differs {
        /// Microseconds since the first event.
        time_us: u64,
        /// As it was recorded.
        recorded: Decision,
        /// The decision of this replay.
        chose: Decision,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Dispatched { time_us, range: Some(range) } => write!(f, "{time_us} {range}"),
            Line::Dispatched { time_us, range: None } => write!(f, "{time_us} nothing"),
            Line::Differs { time_us, recorded, chose } => {
                write!(f, "differs at {time_us}: recorded {recorded}, chose {chose}")
            }
        }
    }
}

/// The outcome of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scheduler that was replayed.
    pub scheduler: &'static str,
    /// The clock tick deadlines were compared in, microseconds; `None`: exact time.
    pub tick_us: Option<u64>,
    /// Dispatches of the recording.
    pub dispatches: u64,
    /// Followed: decisions that differ, dispatches and merges together. Else `None`.
    pub differences: Option<u64>,
    /// Each dispatch, or (followed) each difference, in order.
    pub lines: Vec<Line>,
}

impl Outcome {
    /// Dispatches less differences; a merge that differs counts against one dispatch.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.dispatches.saturating_sub(self.differences.unwrap_or(0))
    }

    /// How much matched, in hundredths of a per cent, rounded down: 10,000 only if all did.
    #[must_use]
    pub fn hundredths(&self) -> u64 {
        let all = u128::from(self.dispatches);
        match self.differences.unwrap_or(0) {
            0 => 10_000,
            _ if all == 0 => 0,
            _ => (u128::from(self.matched()) * 10_000 / all) as u64,
        }
    }
}

impl fmt::Display for Outcome {
    /// The closing line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, hundredths) = (self.dispatches, self.hundredths());
        if self.differences.is_none() {
            return write!(f, "replay: {all} dispatches");
        }
        let (whole, part) = (hundredths / 100, hundredths % 100);
        let matched = self.matched();
        write!(f, "replay: {matched} of {all} dispatches match ({whole}.{part:02} %)")
    }
}

/// Replays a recording.
///
/// # Errors
/// No or an unknown scheduler, a tunable or a value it does not have, more requests at once than
/// a scheduler has tags for.
pub fn replay(recording: &Recording, options: &Options) -> Result<Outcome, ReplayError> {
    let entry = entry_of(recording, options)?;
    let mut nr_requests = TAGS_MIN;
    loop {
        let mut player = Player::new(recording, options, entry, nr_requests)?;
        let failed = recording.events.iter().find_map(|event| {
            let what = player.play(event).err()?;
            Some(ReplayError { line: Some(event.line), what })
        });
        match failed {
            None => return Ok(player.outcome),
            // Most recordings need few, and following one copies a scheduler often.
            Some(_) if player.free.is_empty() && nr_requests < TAGS_MAX => {
                nr_requests = nr_requests.saturating_mul(4);
            }
            Some(error) => return Err(error),
        }
    }
}

fn entry_of(recording: &Recording, options: &Options) -> Result<&'static Entry, ReplayError> {
    let stated = recording.scheduler.as_ref();
    let (line, name) = match (&options.scheduler, stated) {
        (Some(name), _) => (None, name),
        (None, Some(Stated { line, value })) => (Some(*line), value),
        (None, None) => {
            let what = "no `scheduler` line says which scheduler it is".to_owned();
            return Err(ReplayError { line: None, what });
        }
    };
    let made = SCHEDULERS.iter().filter(|entry| entry.replay.is_some());
    made.clone().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<_> = made.map(|entry| entry.name).collect();
        let names = names.join(", ");
        let what = format!("scheduler {name:?} cannot be replayed; these can: {names}");
        ReplayError { line, what }
    })
}

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
struct Player {
    scheduler: Box<dyn Replay>,
    outcome: Outcome,
    is_per_cpu: bool,
    follows: bool,
    tick_ns: u64,
    first_us: u64,
    now: Nanos,
    held: Vec<Option<Tagged>>,
    free: Vec<SchedTag>,
    arrivals: u64,
    /// Led its own way: what was given at each `D` that has not ended.
    given: VecDeque<Option<SchedTag>>,
    /// Led along: what is in flight, as recorded, with the tags it is made of here.
    in_flight: Vec<(Range, Vec<SchedTag>)>,
}

impl Player {
    fn new(
        recording: &Recording,
        options: &Options,
        entry: &'static Entry,
        nr_requests: u16,
    ) -> Result<Player, ReplayError> {
        let make = entry.replay.expect("only what can be replayed is chosen");
        let setup = Setup {
            limits: unlimited(),
            nr_requests,
            hard_queues: 1,
            nomerges: 0,
            compat: entry.compat[0],
        };
        let mut scheduler = make(&setup);
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
            is_per_cpu: PER_CPU.contains(&entry.name),
            follows: options.follow,
            tick_ns: tick_us.map_or(1, |tick| tick.max(1) * 1000),
            first_us: recording.events.first().map_or(0, |event| event.time_us),
            now: Nanos::ZERO,
            held: vec![None; usize::from(nr_requests)],
            free: (0..nr_requests).rev().map(SchedTag).collect(),
            arrivals: 0,
            given: VecDeque::new(),
            in_flight: Vec::new(),
        })
    }

    fn play(&mut self, event: &Event) -> Result<(), String> {
        let since_first = (event.time_us - self.first_us) * 1000;
        self.fire(Nanos(since_first - since_first % self.tick_ns));
        let is_flush = event.range.op == Op::Flush;
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
                    (false, false) => self.ask(event.time_us),
                }
                Ok(())
            }
            Kind::Completed if is_flush => Ok(()),
            Kind::Completed => {
                self.complete(event.range);
                Ok(())
            }
        }
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
        if chose == Kind::Inserted && event.kind == chose {
            let tag = *self.free.last().ok_or_else(too_many)?;
            let mut absorbed = Absorbed::new();
            asked.insert(Rq { tag, ..bio }, now, &mut absorbed);
            if absorbed.is_empty() {
                self.scheduler = asked;
                self.hold(tag, bio, now);
                return Ok(());
            }
            chose = Kind::MergedBack;
        }
        let recorded = Decision::Arrival(event.kind, event.range);
        self.differs(event.time_us, recorded, Decision::Arrival(chose, event.range));
        self.force(event.kind, bio)
    }

    fn bio(&self, event: &Event) -> Rq {
        let Range { op, sector, sectors } = event.range;
        let process = event.ioprio.0 >> 13 << 3 | u16::from(event.ioprio.level());
        let context = SubmitterId(if self.is_per_cpu { 0 } else { process });
        let flags = if op == Op::Write { Flags::SYNC | Flags::IDLE } else { Flags::NONE };
        Rq {
            sector,
            sectors,
            id: RqId::new(context, self.arrivals as u16, 0),
            flags,
            group: GroupId(0),
            ioprio: event.ioprio,
            hint: 0,
            tag: SchedTag::NONE,
            op,
            // Without segments no limit on them is ever met.
            segments: 0,
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
    fn ask(&mut self, time_us: u64) {
        let rq = self.scheduler.dispatch(0, self.now);
        if let Some(rq) = rq {
            self.issue(&rq);
        }
        self.given.push_back(rq.map(|rq| rq.tag));
        self.print(time_us, rq.map(|rq| range_of(&rq)));
    }

    /// A `D`, led along the recording.
    fn lead(&mut self, event: &Event) -> Result<(), String> {
        let mut asked = self.scheduler.boxed_clone();
        let chosen = asked.dispatch(0, self.now);
        let tags = match chosen {
            Some(rq) if range_of(&rq) == event.range => {
                self.scheduler = asked;
                self.issue(&rq);
                vec![rq.tag]
            }
            _ => {
                let chose =
                    chosen.map_or(Decision::Nothing, |rq| Decision::Dispatch(range_of(&rq)));
                self.differs(event.time_us, Decision::Dispatch(event.range), chose);
                self.extract(event.range)?
            }
        };
        self.in_flight.push((event.range, tags));
        Ok(())
    }

    /// Takes the recorded request out: whole if it is there, else its pieces, and what is more
    /// than it goes back in.
    fn extract(&mut self, wanted: Range) -> Result<Vec<SchedTag>, String> {
        let whole = self.oldest(|rq| range_of(rq) == wanted);
        if let Some(tag) = whole {
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

    fn complete(&mut self, range: Range) {
        let tags = if self.follows {
            let at = self.in_flight.iter().position(|(flown, _)| *flown == range);
            self.in_flight.remove(at.expect("the recording was held against itself")).1
        } else {
            self.given.pop_front().flatten().into_iter().collect()
        };
        for tag in tags {
            let Tagged { accepted_at, issued_at, .. } = *self.at(tag);
            let (status, handed_back, done_at) = (Status::Ok, false, self.now);
            let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
            self.scheduler.ended(&end, self.now);
            self.release(tag);
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

/// Limits that refuse nothing.
fn unlimited() -> Limits {
    Limits {
        capacity: u64::MAX,
        max_hw_sectors: u32::MAX,
        max_user_sectors: u32::MAX,
        max_segments: u16::MAX,
        max_hw_discard_sectors: u32::MAX,
        ..Limits::default()
    }
}

fn set_tunables(
    scheduler: &mut dyn Scheduler,
    recording: &Recording,
    options: &Options,
) -> Result<(), ReplayError> {
    let stated = recording.scheduler.as_ref().map(|stated| stated.value.as_str());
    let is_another = options.scheduler.as_deref().is_some_and(|name| stated != Some(name));
    for Stated { line, value: (name, value) } in &recording.settings {
        // A tunable set for the recorded scheduler need not exist in the one that replaces it.
        if is_another && scheduler.tunables().row(name).is_err() {
            continue;
        }
        let set = scheduler.tunables().set_strict(name, value);
        set.map_err(|error| ReplayError { line: Some(*line), what: error.to_string() })?;
    }
    for (name, value) in &options.settings {
        let set = scheduler.tunables().set_strict(name, value);
        set.map_err(|error| ReplayError { line: None, what: error.to_string() })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(text: &str, options: &Options) -> Result<(Vec<String>, String), String> {
        let recording = Recording::read(text.as_bytes()).map_err(|error| error.to_string())?;
        let outcome = replay(&recording, options).map_err(|error| error.to_string())?;
        Ok((outcome.lines.iter().map(Line::to_string).collect(), outcome.to_string()))
    }

    fn own_way(text: &str) -> (Vec<String>, String) {
        played(text, &Options::default()).unwrap()
    }

    fn followed(text: &str) -> (Vec<String>, String) {
        played(text, &Options { follow: true, ..Options::default() }).unwrap()
    }

    const THREE: &str = "scheduler noop\n0 I R 80 8 0 0\n1 I W 0 8 0 0\n2 I R 40 8 0 0\n";

    #[test]
    fn led_its_own_way_a_scheduler_says_what_it_gives_each_time_it_is_asked() {
        let text = format!("{THREE}5 D R 40 8 - -\n7 D R 80 8 - -\n9 C R 40 8 - -\n");
        let expected = ["5 R 80 8".to_owned(), "7 W 0 8".to_owned()];
        assert_eq!(own_way(&text), (expected.to_vec(), "replay: 2 dispatches".to_owned()));
    }

    #[test]
    fn it_says_nothing_when_nothing_is_given_and_ends_what_it_gave_at_that_time() {
        // Two recorded requests are one here: the second time nothing is left.
        let text = "scheduler noop\n0 I R 0 8 0 0\n0 I R 8 8 0 0\n1 D R 0 8 - -\n2 C R 0 8 - -\n\
                    3 D R 8 8 - -\n4 C R 8 8 - -\n5 I R 0 8 0 0\n6 D R 0 8 - -\n7 C R 0 8 - -";
        let expected = ["1 R 0 16", "3 nothing", "6 R 0 8"].map(String::from);
        assert_eq!(own_way(text).0, expected);
    }

    #[test]
    fn followed_a_choice_that_differs_is_said_and_the_recorded_one_taken() {
        let text =
            format!("{THREE}5 D R 40 8 - -\n6 C R 40 8 - -\n7 D R 80 8 - -\n8 D W 0 8 - -\n");
        let lines = ["differs at 5: recorded R 40 8, chose R 80 8".to_owned()];
        let last = "replay: 2 of 3 dispatches match (66.66 %)".to_owned();
        assert_eq!(followed(&text), (lines.to_vec(), last));
    }

    #[test]
    fn followed_a_merge_that_differs_is_said_and_counts() {
        // Recorded apart, but one here; and recorded as one, but of different ops' neighbours.
        let text = "scheduler noop\n0 I R 0 8 0 0\n1 I R 8 8 0 0\n2 D R 0 8 - -\n3 D R 8 8 - -\n\
                    4 I R 50 8 0 0\n4 I R 0 8 0 0\n5 F R 42 8 0 0\n6 D R 42 16 - -\n7 D R 0 8 - -";
        let lines = ["differs at 1: recorded I R 8 8, chose M R 8 8"].map(String::from);
        let last = "replay: 3 of 4 dispatches match (75.00 %)".to_owned();
        assert_eq!(followed(text), (lines.to_vec(), last));
    }

    #[test]
    fn followed_requests_joined_otherwise_are_sorted_out_when_they_leave() {
        // The bio at 8 closes the gap, and here all three become one; the recording has two.
        let text = "scheduler noop\n0 I W 0 8 0 0\n0 I W 16 8 0 0\n1 M W 8 8 0 0\n\
                    2 D W 16 8 - -\n3 D W 0 16 - -\n4 C W 16 8 - -\n4 C W 0 16 - -";
        let (lines, last) = followed(text);
        assert_eq!(lines, ["differs at 2: recorded W 16 8, chose W 0 24"]);
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
        // And the other way round: two here, one in the recording.
        let text = "scheduler noop\n0 I W 0 8 0 0\n0 I W 90 8 0 0\n0 I W 16 8 0 0\n1 M W 8 8 0 0\n\
                    2 D W 0 24 - -\n3 D W 90 8 - -\n";
        let (lines, last) = followed(text);
        assert_eq!(lines, ["differs at 2: recorded W 0 24, chose W 0 16"]);
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
    }

    #[test]
    fn a_merge_that_differs_counts_against_one_dispatch() {
        let text = "scheduler noop\n0 I R 0 8 0 0\n0 I R 8 8 0 0\n";
        let (lines, last) = followed(&format!("{text}1 D R 0 8 - -\n1 D R 8 8 - -\n"));
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(last, "replay: 1 of 2 dispatches match (50.00 %)");
        assert_eq!(followed("scheduler noop").1, "replay: 0 of 0 dispatches match (100.00 %)");
    }

    #[test]
    fn a_flush_is_nobodys_choice() {
        let text = "scheduler noop\n0 I R 0 8 0 0\n1 D F 0 0 - -\n2 C F 0 0 - -\n3 D R 0 8 - -\n";
        assert_eq!(followed(text).1, "replay: 2 of 2 dispatches match (100.00 %)");
        assert_eq!(own_way(text).0, ["1 F 0 0", "3 R 0 8"]);
    }

    #[test]
    fn a_merge_of_very_many_bios_meets_no_limit() {
        let mut text = "scheduler noop\n0 I W 0 8 0 0\n".to_owned();
        for bio in 1..1000 {
            text += &format!("{bio} M W {} 8 0 0\n", bio * 8);
        }
        text += "1000 D W 0 8000 - -\n1001 C W 0 8000 - -\n";
        assert_eq!(followed(&text).1, "replay: 1 of 1 dispatches match (100.00 %)");
    }

    #[test]
    fn a_recording_may_hold_more_at_once_than_an_ordinary_device() {
        let mut text = "scheduler noop\n".to_owned();
        for bio in 0..1000 {
            text += &format!("{bio} I W {} 8 0 0\n", bio * 16);
        }
        for bio in 0..1000 {
            text += &format!("1000 D W {} 8 - -\n", bio * 16);
        }
        assert_eq!(followed(&text).1, "replay: 1000 of 1000 dispatches match (100.00 %)");
        assert_eq!(own_way(&text).0.len(), 1000);
    }

    #[test]
    fn nearly_everything_is_not_everything() {
        let outcome = Outcome {
            scheduler: "noop",
            tick_us: None,
            dispatches: 1_000_000,
            differences: Some(1),
            lines: Vec::new(),
        };
        let last = "replay: 999999 of 1000000 dispatches match (99.99 %)";
        assert_eq!(outcome.to_string(), last);
    }

    #[test]
    fn a_scheduler_or_tunable_that_is_not_there_is_refused_with_those_that_are() {
        let named = |name: &str| Options { scheduler: Some(name.to_owned()), ..Options::default() };
        for (text, options, parts) in [
            ("", Options::default(), ["no `scheduler` line", "which"]),
            ("\nscheduler frob", Options::default(), ["line 2: scheduler \"frob\"", "noop"]),
            ("scheduler noop", named("frob"), ["scheduler \"frob\"", "noop"]),
            ("scheduler none", Options::default(), ["line 1: scheduler \"none\"", "noop"]),
            ("scheduler noop\nset a 1", Options::default(), ["line 2: no tunable \"a\"", "none"]),
        ] {
            let error = played(text, &options).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
        }
        let set = Options { settings: vec![("a".into(), "1".into())], ..Options::default() };
        assert!(played("scheduler noop", &set).unwrap_err().starts_with("no tunable"));
        // Another scheduler need not have what was set for the recorded one.
        assert!(played("scheduler mq-deadline\nset frob 1", &named("noop")).is_ok());
    }
}
