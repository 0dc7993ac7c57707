//! Random sequences: each scheduler against the model of its rules, and against itself.

use weir_sched::{Absorbed, Ended, Family, Merge, Replay, Rq, SchedTag, Scheduler, Setup};

use weir_bio::{Class, Flags, IoPrio, Limits, Nanos, Op, Prng};

use super::bed::{LEGACY, Level, MQ_4_12, MQ_6_18, MS, make, rq, setup};
use super::model::{Model, Rules, Values};

const NOOP: Level = Level(Family::Legacy, "noop", "4.16");
const TAGS: u16 = 24;
const SEQUENCES: u64 = 10_000;
const STEPS: u64 = 200;

/// Whether a sequence has classes and levels, or is as plain as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    All,
    OneClass,
}

/// The event of one step, made up from the seed alone.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request arrives, and is offered as a bio first, or not.
    Arrive(Rq, bool),
    Take,
    /// A request in flight, as a fraction of 2^16, ends.
    End(u16),
    Pass(u64),
}

/// Where and what the requests of a sequence are.
struct Habit {
    mix: Mix,
    /// Blocks of 4 sectors; the fewer, the more merges.
    blocks: u64,
    /// Percent of requests far away, so that the order is crowded.
    far: u32,
    writes: u32,
}

impl Habit {
    fn new(prng: &mut Prng, mix: Mix) -> Habit {
        Habit {
            mix,
            blocks: 12 + prng.below(50),
            far: prng.below(2) as u32 * 25,
            writes: [10, 50, 90][prng.below(3) as usize],
        }
    }

    fn request(&self, prng: &mut Prng) -> Rq {
        let op = match prng.below(40) {
            0 => Op::WriteZeroes,
            1..3 => Op::Discard,
            _ if prng.percent(self.writes) => Op::Write,
            _ => Op::Read,
        };
        let far = if prng.percent(self.far) { 1 << 30 } else { 0 };
        let sector = far + 4 * prng.below(self.blocks);
        let class = match prng.below(10) {
            _ if self.mix == Mix::OneClass => Class::None,
            0 => Class::RealTime,
            1 => Class::Idle,
            2 => Class::None,
            _ => Class::BestEffort,
        };
        let level = if self.mix == Mix::All && prng.percent(5) { 7 } else { 4 };
        let mut rq = rq(op, sector, 4 * (1 + prng.below(2) as u32), IoPrio::new(class, level));
        if prng.percent(3) {
            rq.flags |= Flags::FUA;
        }
        rq
    }
}

fn steps(prng: &mut Prng, mix: Mix) -> Vec<Step> {
    let habit = Habit::new(prng, mix);
    // Bursts: the share of arrivals differs from sequence to sequence.
    let arrivals = 30 + prng.below(40);
    let step = |prng: &mut Prng| {
        let fraction = prng.next() as u16;
        match prng.below(100) {
            n if n < arrivals => Step::Arrive(habit.request(prng), prng.percent(60)),
            n if n < arrivals + 12 => Step::Take,
            n if n < arrivals + 21 => Step::End(fraction),
            _ if prng.percent(50) => Step::Take,
            _ if prng.percent(50) => Step::End(fraction),
            _ => Step::Pass(prng.below(4) * prng.below(4) * 5 * MS),
        }
    };
    (0..STEPS).map(|_| step(prng)).collect()
}

/// A scheduler of random tunables and its model.
struct Run {
    level: Level,
    scheduler: Box<dyn Replay>,
    model: Model,
    now: Nanos,
    free: Vec<SchedTag>,
    in_flight: Vec<Rq>,
    /// Requests given out, in order, as told: tag, sector, sectors.
    given: Vec<(u16, u64, u32)>,
    absorbed: u64,
}

fn rules(level: Level) -> Rules {
    match level.1 {
        "noop" => Rules::Noop,
        "deadline" => Rules::D4,
        _ if level == MQ_4_12 => Rules::D4,
        _ => Rules::D6,
    }
}

impl Run {
    fn new(prng: &mut Prng, level: Level, from: Nanos) -> Run {
        let limits = Limits { capacity: 1 << 31, max_hw_sectors: 28, ..Limits::default() };
        let limits = Limits { max_hw_discard_sectors: 28, ..limits };
        let nomerges = [0, 0, 0, 0, 1, 2][prng.below(6) as usize];
        let setup = Setup { limits, nr_requests: TAGS, nomerges, ..setup(level) };
        let mut scheduler = make(level, &setup);
        let values = Values {
            expire_ns: [0, 1].map(|_| prng.below(4) * 20 * MS),
            writes_starved: prng.below(5) as i64 - 1,
            front_merges: prng.percent(70),
            fifo_batch: prng.below(5) as u32,
            aging_ns: prng.below(8) * 10 * MS,
        };
        let texts = [
            ("read_expire", (values.expire_ns[0] / MS).to_string()),
            ("write_expire", (values.expire_ns[1] / MS).to_string()),
            ("writes_starved", values.writes_starved.to_string()),
            ("front_merges", u8::from(values.front_merges).to_string()),
            ("fifo_batch", values.fifo_batch.to_string()),
            ("prio_aging_expire", (values.aging_ns / MS).to_string()),
        ];
        let tunables = scheduler.tunables();
        for (name, text) in texts.iter().filter(|_| level != NOOP) {
            if tunables.row(name).is_ok() {
                tunables.set(name, text).expect("within the range");
            }
        }
        Run {
            level,
            scheduler,
            model: Model::new(rules(level), values, setup.limits, nomerges),
            now: from,
            free: (0..TAGS).map(SchedTag).collect(),
            in_flight: Vec::new(),
            given: Vec::new(),
            absorbed: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(rq, offered) => {
                if !offered || !self.offer(&rq) {
                    self.insert(rq);
                }
            }
            Step::Take => {
                self.take();
            }
            Step::End(fraction) => {
                if let Some(rq) = self.pick(fraction) {
                    self.end(rq);
                }
            }
            Step::Pass(ns) => self.now = self.now + ns,
        }
        assert_eq!(self.scheduler.staged(), self.model.staged());
        assert_eq!(self.scheduler.has_work(0), self.model.staged() > 0);
    }

    fn pick(&mut self, fraction: u16) -> Option<Rq> {
        let index = (usize::from(fraction) * self.in_flight.len()) >> 16;
        (!self.in_flight.is_empty()).then(|| self.in_flight.remove(index))
    }

    fn offer(&mut self, bio: &Rq) -> bool {
        let expected = self.model.merge(bio);
        let merge = self.scheduler.merge(bio, self.now);
        assert_eq!(merge, expected, "merging {bio:?}");
        if let Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } = merge {
            self.gone(gone, bio);
        }
        merge != Merge::No
    }

    fn insert(&mut self, rq: Rq) {
        let Some(tag) = self.free.pop() else { return };
        let rq = Rq { tag, ..rq };
        let (mut absorbed, mut expected) = (Absorbed::new(), Absorbed::new());
        self.model.insert(rq, self.now, &mut expected);
        self.scheduler.insert(rq, self.now, &mut absorbed);
        assert_eq!(absorbed, expected, "inserting {rq:?}");
        for (_, gone) in absorbed {
            self.gone(gone, &rq);
        }
    }

    /// `tag` disappeared into a request like `like`.
    fn gone(&mut self, tag: SchedTag, like: &Rq) {
        self.absorbed += 1;
        self.release(&Rq { tag, ..*like });
    }

    fn end(&mut self, rq: Rq) {
        self.scheduler.ended(&Ended::untimed(rq.tag), self.now);
        self.release(&rq);
    }

    fn release(&mut self, rq: &Rq) {
        self.model.finish(rq);
        assert!(!self.free.contains(&rq.tag), "tag {} ends twice", rq.tag.0);
        self.free.push(rq.tag);
    }

    fn take(&mut self) -> bool {
        let expected = self.model.dispatch(self.now);
        let taken = self.scheduler.dispatch(0, self.now);
        assert_eq!(taken, expected);
        let Some(rq) = taken else {
            self.check_none();
            return false;
        };
        let twice = self.in_flight.iter().any(|other| other.tag == rq.tag);
        assert!(!twice && !self.free.contains(&rq.tag), "tag {} is given out twice", rq.tag.0);
        self.in_flight.push(rq);
        self.given.push((rq.tag.0, rq.sector, rq.sectors));
        true
    }

    /// Nothing may go although something is staged only while another class is busy; then either a
    /// request in flight or a moment to come brings it on.
    fn check_none(&mut self) {
        let wake_at = self.scheduler.wake_at();
        if self.scheduler.staged() == 0 {
            return;
        }
        assert_eq!(self.level, MQ_6_18);
        let busy = self.model.queued.iter().filter(|queued| **queued > 0).count();
        assert!(busy > 1 && !self.in_flight.is_empty(), "{busy} classes");
        assert!(wake_at.is_none_or(|at| at > self.now), "{wake_at:?} at {:?}", self.now);
    }

    /// Takes and ends everything; each request was given out once, or absorbed.
    fn finish(&mut self) {
        while self.scheduler.staged() > 0 {
            if !self.take() {
                let rq = self.in_flight.pop().expect("a request in flight holds the others");
                self.end(rq);
            }
        }
        while let Some(rq) = self.in_flight.pop() {
            self.end(rq);
        }
        assert_eq!(self.free.len(), usize::from(TAGS), "a tag is lost");
        assert_eq!(self.model.queued, [0; 3]);
    }
}

fn follow_the_model(level: Level) {
    let (mut merges, mut refused) = (0, 0);
    for seed in 0..SEQUENCES {
        // Caught and told here: a panic says nothing about the seed.
        let run = std::panic::catch_unwind(|| {
            let mut prng = Prng::new(seed);
            let mix = if prng.percent(70) { Mix::All } else { Mix::OneClass };
            let from = Nanos(prng.below(1 << 40));
            let mut run = Run::new(&mut prng, level, from);
            for step in steps(&mut prng, mix) {
                run.step(step);
            }
            run.finish();
            (run.absorbed, run.given)
        });
        let (absorbed, given) = run.unwrap_or_else(|_| panic!("{level:?}: seed {seed}"));
        merges += absorbed;
        refused += u64::from(given.is_empty());
    }
    println!("{level:?}: seeds 0..{SEQUENCES}, {merges} requests absorbed");
    assert!(merges > SEQUENCES / 2, "{merges} merges prove little");
    assert!(refused < SEQUENCES / 100);
}

#[test]
fn noop_does_what_its_model_does_in_10000_random_sequences() {
    follow_the_model(NOOP);
}

#[test]
fn deadline_does_what_its_model_does_in_10000_random_sequences() {
    follow_the_model(LEGACY);
}

#[test]
fn mq_deadline_4_12_does_what_its_model_does_in_10000_random_sequences() {
    follow_the_model(MQ_4_12);
}

#[test]
fn mq_deadline_6_18_does_what_its_model_does_in_10000_random_sequences() {
    follow_the_model(MQ_6_18);
}

#[test]
fn the_order_depends_on_the_calls_alone_and_not_on_when_the_clock_began() {
    for level in [LEGACY, MQ_4_12, MQ_6_18] {
        for seed in 0..500 {
            let given = [Nanos::from_ms(1), Nanos(7 << 50)].map(|from| {
                let mut prng = Prng::new(seed);
                let mut run = Run::new(&mut prng, level, from);
                for step in steps(&mut prng, Mix::All) {
                    run.step(step);
                }
                run.finish();
                run.given
            });
            // At 1 ms no request can have aged: negative times count as never.
            assert_eq!(given[0], given[1], "{level:?}: seed {seed}");
        }
    }
}

#[test]
fn a_copy_goes_on_as_the_original_does() {
    for level in [NOOP, LEGACY, MQ_4_12, MQ_6_18] {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let mut run = Run::new(&mut prng, level, Nanos::ZERO);
            for step in steps(&mut prng, Mix::All) {
                run.step(step);
            }
            let mut copy = run.scheduler.boxed_clone();
            let now = run.now;
            let drain = |scheduler: &mut dyn Scheduler| -> Vec<Rq> {
                std::iter::from_fn(|| scheduler.dispatch(0, now)).collect()
            };
            let of_copy = drain(&mut *copy);
            assert_eq!(of_copy, drain(&mut *run.scheduler), "{level:?}: seed {seed}");
        }
    }
}

#[test]
fn a_batch_asked_for_at_once_is_what_single_steps_give() {
    for level in [NOOP, LEGACY, MQ_4_12, MQ_6_18] {
        for seed in 0..200 {
            let mut prng = Prng::new(seed);
            let mut run = Run::new(&mut prng, level, Nanos::ZERO);
            for step in steps(&mut prng, Mix::All) {
                run.step(step);
            }
            let mut copy = run.scheduler.boxed_clone();
            let mut batch = Vec::new();
            copy.dispatch_batch(0, 5, &mut batch, run.now);
            let single: Vec<_> =
                std::iter::from_fn(|| run.scheduler.dispatch(0, run.now)).take(5).collect();
            assert_eq!(batch, single, "{level:?}: seed {seed}");
        }
    }
}
