//! Random sequences of everything an engine may do: the same choices as the model, nothing lost,
//! doubled or stranded, and the same again at another time.

use std::collections::BTreeMap;

use super::model::Model;
use super::*;
use weir_bio::Prng;

const SEQUENCES: u64 = 10_000;
const STEPS: usize = 120;
const TAGS: u16 = 24;

struct Tell(u64);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// A sequence under way.
struct Run {
    kyber: Kyber,
    model: Model,
    prng: Prng,
    now: Nanos,
    homes: Vec<u16>,
    free: Vec<u16>,
    flying: BTreeMap<u16, Rq>,
    /// Hard queues with a reason to ask.
    awake: u64,
    inserted: u64,
    dispatched: u64,
    /// The requests that were dispatched, in order, if the test records them.
    story: Option<Vec<String>>,
}

impl Run {
    fn new(seed: u64, start: Nanos) -> Run {
        let mut prng = Prng::new(seed);
        let compat = if prng.percent(50) { "6.18" } else { "4.12" };
        let most = if prng.percent(10) { 64 } else { 4 };
        let hard_queues = 1 + prng.below(most) as u16;
        let most = if prng.percent(10) { 150 } else { 6 };
        let contexts = 1 + prng.below(most);
        let homes: Vec<u16> =
            (0..contexts).map(|_| prng.below(u64::from(hard_queues)) as u16).collect();
        let mut kyber = Kyber::new(&Setup { nr_requests: TAGS, ..setup(hard_queues, compat) });
        for (context, home) in homes.iter().enumerate() {
            kyber.context_started(SubmitterId(context as u16), *home);
        }
        let mut model = Model::new(kyber.level, &kyber.limits, &homes, hard_queues);
        // Tokens must run short now and then.
        for domain in 0..kyber.level.domains().len() {
            let depth = 1 + prng.below(8);
            kyber.tokens.resize(domain, depth);
            model.depth[domain] = depth as u32;
        }
        Run {
            kyber,
            model,
            prng,
            now: start,
            homes,
            free: (0..TAGS).collect(),
            flying: BTreeMap::new(),
            awake: 0,
            inserted: 0,
            dispatched: 0,
            story: None,
        }
    }

    fn any_bio(&mut self) -> Rq {
        let context = self.prng.below(self.homes.len() as u64) as u16;
        let op = match self.prng.below(10) {
            0..4 => Op::Read,
            4..7 => Op::Write,
            7 => Op::Discard,
            8 => Op::WriteZeroes,
            _ => Op::Prefetch,
        };
        let sectors = 1 + self.prng.below(30) as u32;
        let mut bio = bio(context, op, self.prng.below(120), sectors);
        bio.flags = [Flags::SYNC, Flags::NONE, Flags::FUA][self.prng.below(3) as usize];
        bio
    }

    fn wake(&mut self, rq: &Rq) {
        self.awake |= 1 << self.homes[usize::from(rq.id.submitter().0)];
    }

    fn submit(&mut self) {
        let bio = self.any_bio();
        let merge = self.kyber.merge(&bio, self.now);
        let expected = if bio.is_mergeable() { self.model.merge(&bio) } else { Merge::No };
        assert_eq!(merge, expected, "{bio:?}");
        self.note(|| format!("{merge:?}"));
        if merge != Merge::No || self.free.is_empty() {
            return;
        }
        let tag = self.free.swap_remove(self.prng.below(self.free.len() as u64) as usize);
        let rq = Rq { tag: SchedTag(tag), ..bio };
        let mut absorbed = Absorbed::new();
        self.kyber.insert(rq, self.now, &mut absorbed);
        assert!(absorbed.is_empty());
        self.model.insert(rq);
        self.inserted += 1;
        self.wake(&rq);
    }

    fn dispatch(&mut self, hard_queue: u16) -> bool {
        let before = self.model.turn(usize::from(hard_queue));
        let rq = self.kyber.dispatch(hard_queue, self.now);
        let expected = self.model.dispatch(usize::from(hard_queue));
        assert_eq!(rq, expected);
        self.note(|| format!("{rq:?}"));
        let queue = &self.kyber.staged.queues[usize::from(hard_queue)];
        assert_eq!((queue.domain, queue.batching), self.model.turn(usize::from(hard_queue)));
        let Some(rq) = rq else {
            assert_eq!((queue.domain, queue.batching), (before.0, 0), "a turn that gave nothing");
            self.awake &= !(1 << hard_queue);
            return false;
        };
        let domain = self.kyber.level.domain_of(&rq);
        assert!(self.model.in_use[domain] <= self.model.depth[domain], "a token too many");
        assert!(self.flying.insert(rq.tag.0, rq).is_none(), "dispatched twice");
        self.dispatched += 1;
        true
    }

    fn any_flying(&mut self) -> Option<Rq> {
        let index = self.prng.below(self.flying.len().max(1) as u64) as usize;
        let tag = *self.flying.keys().nth(index)?;
        self.flying.remove(&tag)
    }

    fn end(&mut self) {
        let Some(rq) = self.any_flying() else { return };
        let (tag, status, now) = (rq.tag, Status::Ok, self.now);
        let issued_at = now - self.prng.below(20 * MS);
        let accepted_at = issued_at - self.prng.below(5 * MS);
        let done_at = now;
        let handed_back = self.prng.percent(10);
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        self.kyber.ended(&end, now);
        self.model.release(&rq);
        self.free.push(tag.0);
        self.wake(&rq);
    }

    fn resize(&mut self) {
        let domain = self.prng.below(self.kyber.level.domains().len() as u64) as usize;
        let depth = 1 + self.prng.below(8);
        self.kyber.tokens.resize(domain, depth);
        self.model.resize(domain, depth as u32);
    }

    fn pass_time(&mut self) {
        self.now = self.now + self.prng.below(30 * MS);
        if self.kyber.wake_at().is_none_or(|at| at > self.now) {
            return;
        }
        self.kyber.on_timer(self.now);
        // The model is told the depths alone, and has to call the same.
        for domain in 0..self.kyber.level.domains().len() {
            let depth = self.kyber.tokens.depth(domain);
            if depth != self.model.depth[domain] {
                self.model.resize(domain, depth);
            }
        }
        let depth = self.model.depth;
        self.note(|| format!("{depth:?}"));
        self.take_kicked();
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(line());
        }
    }

    fn take_kicked(&mut self) {
        let kicked = self.kyber.take_kicked();
        assert_eq!(kicked, std::mem::take(&mut self.model.kicked));
        self.awake |= kicked;
        self.note(|| format!("{kicked:#x}"));
    }

    fn check(&self) {
        for domain in 0..self.kyber.level.domains().len() {
            assert_eq!(self.kyber.tokens.in_use(domain), self.model.in_use[domain]);
            assert_eq!(self.kyber.tokens.waits(domain), self.model.waits(domain));
        }
        let mut staged = 0;
        for queue in 0..self.kyber.staged.queues.len() {
            let expected = self.model.staged(queue);
            assert_eq!(self.kyber.has_work(queue as u16), expected > 0);
            staged += expected;
        }
        assert_eq!(self.kyber.staged(), staged);
        assert_eq!(self.inserted - self.dispatched, staged as u64);
        let in_use: u32 = self.model.in_use.iter().sum();
        assert_eq!(in_use as usize, self.flying.len());
        assert_eq!(self.model.tags().len() + self.flying.len() + self.free.len(), TAGS.into());
    }

    fn step(&mut self) {
        match self.prng.below(100) {
            0..40 => self.submit(),
            40..70 => {
                let queues = self.kyber.staged.queues.len() as u64;
                let queue = self.prng.below(queues) as u16;
                self.dispatch(queue);
            }
            70..88 => self.end(),
            88..91 => self.resize(),
            91..96 => self.pass_time(),
            _ => self.take_kicked(),
        }
        self.check();
    }

    /// Ends everything, asking only those who have a reason to ask.
    fn drain(&mut self) {
        loop {
            self.take_kicked();
            if self.awake != 0 {
                let queue = self.awake.trailing_zeros() as u16;
                while self.dispatch(queue) {}
            } else if !self.flying.is_empty() {
                self.end();
            } else {
                break;
            }
            self.check();
        }
        assert_eq!(self.kyber.staged(), 0, "stranded: {:?}", self.kyber);
        assert_eq!(self.free.len(), usize::from(TAGS));
        assert_eq!(self.inserted, self.dispatched);
        assert_eq!(self.model.in_use, [0; 4]);
        assert!((0..4).all(|domain| self.kyber.tokens.waits(domain) == 0));
    }
}

fn one(seed: u64, start: Nanos) {
    let mut run = Run::new(seed, start);
    (0..STEPS).for_each(|_| run.step());
    run.drain();
}

fn story(seed: u64, start: Nanos) -> Vec<String> {
    let mut run = Run::new(seed, start);
    run.story = Some(Vec::new());
    (0..STEPS).for_each(|_| run.step());
    run.drain();
    run.story.expect("it was asked for")
}

#[test]
fn random_sequences_lose_double_and_strand_nothing_and_choose_as_the_model_does() {
    println!("seeds 0..{SEQUENCES}");
    for seed in 0..SEQUENCES {
        let _tell = Tell(seed);
        one(seed, START);
    }
}

#[test]
fn the_same_sequence_at_another_time_comes_to_the_same() {
    println!("seeds 0..500");
    for seed in 0..500 {
        let _tell = Tell(seed);
        let first = story(seed, START);
        assert!(first == story(seed, START), "a repetition");
        assert!(first == story(seed, START + 12_345 * S + 678), "at another time");
    }
}
