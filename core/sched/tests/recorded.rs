//! Every scheduler, recorded while it lives through random calls, is replayed from the text of the
//! recording: each choice must come out as it was, and the order of dispatches byte for byte.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::sync::mpsc;

use weir_bio::{
    Class, Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId,
};
use weir_sched::recorder::{Cut, Heading, Noted, Recorder, Tape};
use weir_sched::replay::{Options, Outcome, Recording, Writer, replay};
use weir_sched::{Absorbed, Ended, Entry, Merge, SCHEDULERS, Scheduler, Setup};

/// Contexts that issue; each belongs to one of the hard queues.
const CONTEXTS: u64 = 4;
const HARD_QUEUES: u16 = 2;
const TAGS: u16 = 24;

/// A tape without end, read when all is over.
struct Paper(mpsc::Sender<Result<Noted, Cut>>);

impl Tape for Paper {
    fn keep(&mut self, noted: Noted) {
        self.0.send(Ok(noted)).expect("a reader");
    }

    fn publish(&mut self) {}

    fn cut(&mut self, why: Cut) {
        self.0.send(Err(why)).expect("a reader");
    }
}

/// An engine that makes random calls, as the contract allows them.
struct Life {
    scheduler: Box<dyn Scheduler>,
    prng: Prng,
    now: Nanos,
    free: Vec<SchedTag>,
    /// By tag: when the block layer took the request, and the driver.
    times: Vec<(Nanos, Nanos)>,
    flying: Vec<SchedTag>,
    arrivals: u64,
    /// The longest the device takes, ns.
    slowest_ns: u64,
}

impl Life {
    fn bio(&mut self) -> Rq {
        let prng = &mut self.prng;
        let op = match prng.below(20) {
            0..=3 => Op::Discard,
            4 => Op::WriteZeroes,
            5..=9 => Op::Write,
            _ => Op::Read,
        };
        let context = prng.below(CONTEXTS) as u16;
        let direct = if op == Op::Write { Flags::SYNC | Flags::IDLE } else { Flags::NONE };
        let flags = match prng.below(6) {
            0 if op == Op::Write => direct.in_background(),
            1 => direct | Flags::META,
            _ => direct,
        };
        // Three contexts alike and one of another class: a priority says nothing of who issues.
        let ioprio = match context {
            3 => IoPrio::new(Class::RealTime, 2),
            _ => IoPrio::NONE,
        };
        self.arrivals += 1;
        Rq {
            sector: prng.below(40) * 8,
            sectors: 8 * (1 + prng.below(3) as u32),
            id: RqId::new(SubmitterId(context), self.arrivals as u16, 0),
            flags,
            group: GroupId(u32::from(context / 2)),
            ioprio,
            hint: 0,
            tag: SchedTag::NONE,
            op,
            segments: 1 + prng.below(2) as u8,
        }
    }

    fn stage(&mut self) {
        let mut batch = Vec::new();
        for _ in 0..self.prng.below(5) {
            let bio = self.bio();
            let Some(tag) = self.free.pop() else { break };
            self.times[tag.index()].0 = self.now - self.prng.below(3_000);
            batch.push(Rq { tag, ..bio });
        }
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            let mut absorbed = Absorbed::new();
            // One at a time, as a request that waited for its tag, or together.
            let taken = if self.prng.below(3) == 0 {
                let merge = self.scheduler.merge(&rest[0], self.now);
                if merge == Merge::No {
                    self.scheduler.insert(rest[0], self.now, &mut absorbed);
                }
                self.merged(merge, rest[0].tag);
                1
            } else {
                let (taken, merge) = self.scheduler.stage_batch(rest, self.now, &mut absorbed);
                self.merged(merge, rest[taken - 1].tag);
                taken
            };
            absorbed.iter().for_each(|(_, gone)| self.free.push(*gone));
            rest = &rest[taken..];
        }
    }

    fn merged(&mut self, merge: Merge, bio: SchedTag) {
        if merge != Merge::No {
            self.free.push(bio);
        }
        if let Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } = merge {
            self.free.push(gone);
        }
    }

    fn dispatch(&mut self) {
        let hard_queue = self.prng.below(u64::from(HARD_QUEUES)) as u16;
        let mut given = Vec::new();
        let most = self.prng.below(4) as usize;
        self.scheduler.dispatch_batch(hard_queue, most, &mut given, self.now);
        for rq in given {
            self.times[rq.tag.index()].1 = self.now + self.prng.below(2_500);
            self.flying.push(rq.tag);
        }
    }

    fn end(&mut self) {
        let mut ends = Vec::new();
        for _ in 0..self.prng.below(4).min(self.flying.len() as u64) {
            let at = self.prng.below(self.flying.len() as u64) as usize;
            let tag = self.flying.swap_remove(at);
            let (accepted_at, issued_at) = self.times[tag.index()];
            let done_at = self.now.max(issued_at + self.prng.below(self.slowest_ns));
            let handed_back = self.prng.below(30) == 0;
            let status = Status::Ok;
            ends.push(Ended { tag, status, handed_back, accepted_at, issued_at, done_at });
        }
        self.scheduler.ended_batch(&ends, self.now);
        self.free.extend(ends.iter().map(|end| end.tag));
    }

    fn live(&mut self, steps: usize) {
        for context in 0..CONTEXTS as u16 {
            self.scheduler.context_started(SubmitterId(context), context % HARD_QUEUES);
        }
        for _ in 0..steps {
            // Mostly busy, at times idle for longer than any scheduler waits.
            let most = match self.prng.below(40) {
                0 => 60_000_000,
                1..=8 => 1_000_000,
                _ => 9_000,
            };
            self.now = self.now + self.prng.below(most);
            if self.scheduler.wake_at().is_some_and(|at| at <= self.now) {
                self.scheduler.on_timer(self.now);
            }
            match self.prng.below(100) {
                0 => self.weigh(),
                1..=30 => self.stage(),
                31..=65 => self.dispatch(),
                _ => self.end(),
            }
        }
    }

    fn weigh(&mut self) {
        let group = GroupId(1);
        self.scheduler.group_parent(group, GroupId(0));
        let weight = 1 + self.prng.below(1000) as u16;
        self.scheduler.group_weight_changed(group, weight, self.now);
    }
}

/// The setting of a life, and one tunable that is not at its default.
fn setup_of(entry: &Entry, rotational: bool) -> Setup {
    let limits = Limits {
        rotational,
        max_hw_sectors: 48,
        max_segments: 3,
        max_hw_discard_sectors: 24,
        ..Limits::default()
    };
    let hard_queues = HARD_QUEUES;
    Setup { limits, nr_requests: TAGS, hard_queues, nomerges: 0, compat: entry.compat[0] }
}

/// The text of a recorded life, and the cut that ended it, if one did.
fn recorded(entry: &Entry, seed: u64, then: impl FnOnce(&mut Life)) -> (String, Option<Cut>) {
    let setup = setup_of(entry, seed.is_multiple_of(2));
    let mut inner = (entry.make.expect("a scheduler"))(&setup);
    let mut settings = Vec::new();
    if let Some(row) = entry.tunables.first() {
        let value = (row.default / 2).max(row.least);
        inner.tunables().put(row.name, value);
        settings.push((row.name, value));
    }
    let (sender, calls) = mpsc::channel();
    let now = Nanos(7_000_000_123);
    let scheduler = Box::new(Recorder::new(inner, &setup, Paper(sender), now));
    let mut life = Life {
        scheduler,
        prng: Prng::new(seed),
        now,
        free: (0..TAGS).rev().map(SchedTag).collect(),
        times: vec![(Nanos::ZERO, Nanos::ZERO); usize::from(TAGS)],
        flying: Vec::new(),
        arrivals: 0,
        slowest_ns: if seed.is_multiple_of(3) { 90_000_000 } else { 900_000 },
    };
    life.live(1_500);
    then(&mut life);
    drop(life);
    let mut writer = Writer::new(Heading { scheduler: entry.name, setup, settings });
    let (mut text, mut cut) = (String::new(), None);
    for call in calls {
        match call {
            Ok(noted) if cut.is_none() => writer.event(&noted, &mut text),
            Ok(_) => {}
            Err(why) => cut = cut.or(Some(why)),
        }
    }
    writer.end("over", &mut text);
    (text, cut)
}

fn replayed(text: &str, follow: bool) -> Outcome {
    let recording = Recording::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let options = Options { follow, ..Options::default() };
    replay(&recording, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The dispatches of a recording, as a replay prints its own.
fn dispatches(text: &str) -> Vec<String> {
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let picked = fields.filter(|fields| fields.get(1) == Some(&"D"));
    picked.map(|fields| [fields[0], fields[2], fields[3], fields[4]].join(" ")).collect()
}

#[test]
fn a_recorded_life_comes_out_of_its_replay_call_by_call() {
    for entry in SCHEDULERS.iter().filter(|entry| entry.make.is_some()) {
        for seed in 1..=12 {
            let (text, cut) = recorded(entry, seed, |_| {});
            let followed = replayed(&text, true);
            let own: Vec<_> =
                replayed(&text, false).lines.iter().map(ToString::to_string).collect();
            let told = format!("{} seed {seed}", entry.name);
            assert_eq!(cut, None, "{told}");
            assert!(followed.dispatches > 100, "{told}: {}", followed.dispatches);
            assert_eq!(followed.differences, Some(0), "{told}: {:?}", followed.lines.first());
            assert!(own == dispatches(&text), "{told}: another order");
        }
    }
}

/// A recording of kyber or bfq with `change` made to each of its lines differs, or is refused.
fn is_noticed(name: &str, change: impl Fn(&str) -> Option<String>) -> bool {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == name).expect("a scheduler");
    (1..=12).any(|seed| {
        let (text, _) = recorded(entry, seed, |_| {});
        let mut changed = String::new();
        for line in text.lines().filter_map(&change) {
            writeln!(changed, "{line}").expect("a string");
        }
        let Ok(recording) = Recording::read(changed.as_bytes()) else { return true };
        let outcome = replay(&recording, &Options { follow: true, ..Options::default() });
        outcome.map_or(true, |outcome| outcome.differences != Some(0))
    })
}

/// A line without the fields that begin like this.
fn without(line: &str, field: &str) -> Option<String> {
    let kept: Vec<_> = line.split(' ').filter(|word| !word.starts_with(field)).collect();
    Some(kept.join(" "))
}

#[test]
fn nothing_that_is_recorded_could_be_left_out() {
    for (name, field) in [
        ("bfq", "ctx="),
        ("bfq", "group="),
        ("bfq", "flags="),
        ("mq-deadline", "segments="),
        ("cfq", "handed_back="),
        ("kyber", "hq="),
    ] {
        let of_request = |line: &str| !["P", "G"].contains(&line.split(' ').nth(1).unwrap_or(""));
        let change = |line: &str| match of_request(line) {
            true => without(line, field),
            false => Some(line.to_owned()),
        };
        assert!(is_noticed(name, change), "{name} does without {field}");
    }
    for (name, kind) in [("bfq", "N"), ("cfq", "T"), ("bfq", "G"), ("cfq", "N")] {
        let other = |line: &str| line.split(' ').nth(1) != Some(kind);
        let noticed = is_noticed(name, |line| other(line).then(|| line.to_owned()));
        assert!(noticed, "{name} does without {kind}");
    }
    for (name, header) in [
        ("bfq", "queue rotational"),
        ("mq-deadline", "queue max_sectors"),
        ("mq-deadline", "queue max_segments"),
        ("mq-deadline", "queue max_discard_sectors"),
        ("kyber", "queue hard_queues"),
        ("mq-deadline", "set "),
    ] {
        let kept = |line: &str| (!line.starts_with(header)).then(|| line.to_owned());
        assert!(is_noticed(name, kept), "{name} does without {header}");
    }
}

#[test]
fn a_change_that_no_line_states_ends_the_recording_in_front_of_it() {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == "mq-deadline").expect("it is there");
    let limits = setup_of(entry, false).limits;
    let (text, cut) = recorded(entry, 1, |life| {
        life.scheduler.limits_changed(&limits, 0);
        life.live(100);
    });
    assert_eq!(cut, None, "the limits it had");
    assert_eq!(replayed(&text, true).differences, Some(0));
    let (text, cut) = recorded(entry, 1, |life| {
        let mut rest = Vec::new();
        life.scheduler.drain(&mut rest, life.now);
        life.scheduler.limits_changed(&Limits { max_segments: 2, ..limits.clone() }, 0);
    });
    assert_eq!(cut, Some(Cut::Drained));
    assert_eq!(replayed(&text, true).differences, Some(0));
    let (_, cut) = recorded(entry, 1, |life| life.scheduler.limits_changed(&limits, 1));
    assert_eq!(cut, Some(Cut::Limits));
    let (_, cut) = recorded(entry, 2, |life| {
        let mut rest = Vec::new();
        while life.scheduler.staged() > 0 {
            life.scheduler.dispatch_batch(0, 64, &mut rest, life.now);
        }
        life.flying.extend(rest.iter().map(|rq| rq.tag));
        while !life.flying.is_empty() {
            life.end();
        }
        life.scheduler.depth_changed(8);
    });
    assert_eq!(cut, Some(Cut::Depth));
}

#[test]
fn a_scheduler_that_is_taken_out_of_its_recorder_goes_on_as_itself() {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == "bfq").expect("it is there");
    let (text, _) = recorded(entry, 3, |life| {
        let staged = life.scheduler.staged();
        life.scheduler = life.scheduler.take_inner().expect("it is worn");
        assert_eq!(life.scheduler.staged(), staged);
        assert!(life.scheduler.take_inner().is_none());
        life.live(200);
    });
    let (before, _) = recorded(entry, 3, |_| {});
    assert_eq!(text, before, "nothing of what came later");
}

#[test]
fn a_moment_of_the_scheduler_has_come_by_its_clock_when_it_has_come_by_the_engines() {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == "bfq").expect("it is there");
    let mut woken = 0;
    recorded(entry, 5, |life| {
        for _ in 0..2000 {
            life.live(1);
            let Some(at) = life.scheduler.wake_at() else { continue };
            if at <= life.now {
                continue;
            }
            life.now = at;
            life.scheduler.on_timer(at);
            assert_ne!(life.scheduler.wake_at(), Some(at), "it was early");
            woken += 1;
        }
    });
    assert!(woken > 0);
}

#[test]
fn a_damaged_recording_is_refused_or_replayed() {
    for entry in SCHEDULERS.iter().filter(|entry| entry.make.is_some()) {
        let (text, _) = recorded(entry, 9, |_| {});
        let lines: Vec<&str> = text.lines().collect();
        let (mut prng, mut replays) = (Prng::new(9), 0);
        for _ in 0..60 {
            let mut lines = lines.clone();
            for _ in 0..1 + prng.below(3) {
                let at = prng.below(lines.len() as u64) as usize;
                if prng.below(2) == 0 {
                    lines.remove(at);
                } else {
                    lines.insert(at, lines[prng.below(lines.len() as u64) as usize]);
                }
            }
            let Ok(recording) = Recording::read(lines.join("\n").as_bytes()) else { continue };
            for follow in [false, true] {
                let outcome = replay(&recording, &Options { follow, ..Options::default() });
                replays += usize::from(outcome.is_ok());
            }
        }
        assert!(replays > 0, "{}: none was replayed", entry.name);
    }
}

#[test]
fn another_scheduler_takes_a_recording_with_every_call_as_it_takes_any() {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == "bfq").expect("it is there");
    let (text, _) = recorded(entry, 1, |_| {});
    let recording = Recording::read(text.as_bytes()).expect("a recording");
    for other in SCHEDULERS.iter().filter(|entry| entry.replay.is_some()) {
        let scheduler = Some(other.name.to_owned());
        let options = Options { scheduler, ..Options::default() };
        let outcome = replay(&recording, &options).unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.dispatches > 200, "{}", other.name);
        let by_tick = Options { tick_us: Some(4000), ..options };
        assert!(replay(&recording, &by_tick).is_ok(), "{}", other.name);
    }
}
