//! The contract of a scheduler, held against any: one of weir's, or one from elsewhere.
//!
//! [`hold`] plays the engine: it hands out tags, offers bios, asks for requests, ends them, and
//! keeps the books. Whether the order is a good one is no law.

use std::ops::Range;

use weir_bio::{Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, SubmitterId};
use weir_sched::{Absorbed, Ended, Merge, Scheduler, Setup};

use crate::Tell;

/// Tags of the scheduler under test.
const TAGS: u16 = 16;

/// Hard queues that ask it.
const QUEUES: u16 = 2;

/// Submitters of bios.
const CONTEXTS: u64 = 4;

/// Calls of one seed, before everything is let out.
const STEPS: u32 = 400;

/// Questions after which a scheduler that gives nothing holds back for ever.
const QUESTIONS: u32 = 10_000;

/// Holds schedulers to their contract, a new one for each seed.
///
/// - Each request that it takes leaves through `dispatch` once, as it came or with those that were
///   merged with it, which begin where it ended.
/// - `staged` counts what it holds.
/// - When `dispatch` gives nothing while requests remain, something is in flight, or `wake_at` says
///   when to ask again.
///
/// # Panics
/// At the first law that is broken, with the seed and the values.
pub fn hold(make: impl Fn(&Setup) -> Box<dyn Scheduler>, seeds: Range<u64>) {
    for seed in seeds {
        let mut prng = Prng::new(seed);
        let limits = Limits {
            capacity: 1 << 20,
            max_hw_sectors: 1024,
            max_hw_discard_sectors: 1024,
            rotational: prng.percent(50),
            ..Limits::default()
        };
        let limits = limits.validate().expect("limits that hold together");
        let (nr_requests, hard_queues) = (TAGS, QUEUES);
        let setup = Setup { limits, nr_requests, hard_queues, nomerges: 0, compat: "" };
        let scheduler = make(&setup);
        let _tell = Tell(format!("scheduler law: {}, seed {seed}", scheduler.name()));
        let mut books = Books::new(scheduler);
        for _ in 0..STEPS {
            books.step(&mut prng);
        }
        books.let_out();
    }
}

/// A tag's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free,
    Staged(Rq),
    InFlight,
}

/// A scheduler and the books about it.
struct Books {
    scheduler: Box<dyn Scheduler>,
    places: Vec<Place>,
    now: Nanos,
    next: u16,
}

impl Books {
    fn new(mut scheduler: Box<dyn Scheduler>) -> Books {
        for context in 0..CONTEXTS as u16 {
            scheduler.context_started(SubmitterId(context), context % QUEUES);
        }
        let places = vec![Place::Free; usize::from(TAGS)];
        Books { scheduler, places, now: Nanos(1), next: 0 }
    }

    fn step(&mut self, prng: &mut Prng) {
        self.now = self.now + prng.below(100_000);
        self.tick();
        match prng.below(10) {
            0..=4 => self.offer(random_rq(prng, self.next)),
            5..=7 => {
                let _ = self.ask(prng.below(QUEUES.into()) as u16);
            }
            _ => {
                let _ = self.end_one();
            }
        }
        self.check();
    }

    fn tick(&mut self) {
        if self.scheduler.wake_at().is_some_and(|at| at <= self.now) {
            self.scheduler.on_timer(self.now);
        }
    }

    /// A bio is merged, or becomes a request if there is a tag.
    fn offer(&mut self, bio: Rq) {
        self.next = self.next.wrapping_add(1);
        match self.scheduler.merge(&bio, self.now) {
            Merge::No => self.insert(bio),
            Merge::Back(tag) => self.join_back(tag, bio),
            Merge::Front(tag) => self.join_front(bio, tag),
            Merge::BackJoined { kept, gone } => {
                self.join_back(kept, bio);
                self.absorb(kept, gone);
            }
            Merge::FrontJoined { kept, gone } => {
                self.join_front(bio, gone);
                self.absorb(kept, gone);
            }
        }
    }

    fn insert(&mut self, bio: Rq) {
        let Some(at) = self.places.iter().position(|place| *place == Place::Free) else { return };
        let rq = Rq { tag: SchedTag(at as u16), ..bio };
        self.places[at] = Place::Staged(rq);
        let mut absorbed = Absorbed::new();
        self.scheduler.insert(rq, self.now, &mut absorbed);
        for (kept, gone) in absorbed {
            self.absorb(kept, gone);
        }
    }

    fn staged(&mut self, tag: SchedTag) -> &mut Rq {
        match self.places.get_mut(tag.index()) {
            Some(Place::Staged(rq)) => rq,
            other => panic!("{tag:?} is {other:?}, not staged"),
        }
    }

    fn join_back(&mut self, tag: SchedTag, bio: Rq) {
        let rq = self.staged(tag);
        assert!(rq.end() == bio.sector && rq.is_like(&bio), "{bio:?} became the tail of {rq:?}");
        rq.take_in(&bio);
    }

    fn join_front(&mut self, bio: Rq, tag: SchedTag) {
        let rq = self.staged(tag);
        assert!(bio.end() == rq.sector && rq.is_like(&bio), "{bio:?} became the head of {rq:?}");
        rq.take_in(&bio);
    }

    /// One request became the tail of another: its tag is free.
    fn absorb(&mut self, kept: SchedTag, gone: SchedTag) {
        let tail = *self.staged(gone);
        self.join_back(kept, tail);
        self.places[gone.index()] = Place::Free;
    }

    /// One opportunity of a hard queue; whether it was given something.
    fn ask(&mut self, hard_queue: u16) -> bool {
        let Some(rq) = self.scheduler.dispatch(hard_queue, self.now) else { return false };
        let staged = *self.staged(rq.tag);
        let place = |rq: Rq| (rq.id, rq.op, rq.sector, rq.sectors);
        let joined = (staged.op, staged.sector, staged.sectors) == (rq.op, rq.sector, rq.sectors);
        assert!(joined, "{:?} left as {:?}", place(staged), place(rq));
        self.places[rq.tag.index()] = Place::InFlight;
        true
    }

    /// Ends the first request that is in flight; whether there is one.
    fn end_one(&mut self) -> bool {
        let of = self.places.iter().position(|place| *place == Place::InFlight);
        let Some(at) = of else { return false };
        let at_now = self.now;
        let tag = SchedTag(at as u16);
        let ended = Ended {
            accepted_at: at_now,
            issued_at: at_now,
            done_at: at_now,
            ..Ended::untimed(tag)
        };
        self.scheduler.ended(&ended, at_now);
        self.places[at] = Place::Free;
        true
    }

    fn count(&self) -> usize {
        self.places.iter().filter(|place| matches!(place, Place::Staged(_))).count()
    }

    fn check(&self) {
        assert_eq!(self.scheduler.staged(), self.count(), "what `staged` counts");
    }

    /// Nothing new comes: everything that is staged has to leave.
    fn let_out(&mut self) {
        for _ in 0..QUESTIONS {
            self.check();
            let mut given = false;
            for hard_queue in 0..QUEUES {
                given |= self.ask(hard_queue);
            }
            if given || self.end_one() {
                continue;
            }
            if self.count() == 0 {
                return;
            }
            let Some(at) = self.scheduler.wake_at() else {
                panic!("{} requests are stranded: nothing is in flight", self.count());
            };
            // A moment that stays in the past counts as 3 ms from now.
            self.now = at.max(self.now + 3_000_000);
            self.tick();
        }
        panic!("{} requests were held back {QUESTIONS} times", self.count());
    }
}

/// A bio near others, so that some merge.
fn random_rq(prng: &mut Prng, slot: u16) -> Rq {
    let op = [Op::Read, Op::Write, Op::Write, Op::Read, Op::Discard][prng.below(5) as usize];
    let flags = if prng.percent(50) { Flags::SYNC } else { Flags::NONE };
    Rq {
        sector: prng.below(64) * 8,
        sectors: 8 * (1 + prng.below(4) as u32),
        id: RqId::new(SubmitterId(prng.below(CONTEXTS) as u16), slot, 0),
        flags,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag::NONE,
        op,
        segments: u8::from(op != Op::Discard),
    }
}
