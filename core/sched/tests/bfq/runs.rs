//! Batches of `bfq` against the same calls one by one: a run of requests of one queue is added,
//! served and ended together, and nothing may come out otherwise.

use weir_bio::{Class, Flags, GroupId, IoPrio, Nanos, Op, Prng, Rq, RqId, SchedTag, SubmitterId};
use weir_sched::mq::bfq::{Bfq, Features};
use weir_sched::{Absorbed, Ended, Merge, Scheduler};

use super::bed::{asked, ledger::request, setup, wide};
use super::rig::MS;

/// Calls of a life.
const STEPS: usize = 250;
/// Lives.
const LIVES: u64 = 1_500;
/// Scheduler tags.
const TAGS: u16 = 96;

/// A process: where it is, and how its requests look.
struct Process {
    at: u64,
    sequential: bool,
    rq: Rq,
}

/// One scheduler that is called in batches, and its twin that is called for each.
struct Twins {
    whole: Bfq,
    parts: Bfq,
    prng: Prng,
    now: u64,
    free: Vec<SchedTag>,
    flying: Vec<SchedTag>,
    processes: Vec<Process>,
}

impl Twins {
    fn new(seed: u64) -> Twins {
        let mut prng = Prng::new(seed);
        let setup = setup(wide(prng.percent(30)), TAGS, "6.18");
        let features = if prng.percent(50) { Features::ALL } else { Features::UNSHARED };
        let mut bfq = Bfq::with_features(&setup, features);
        bfq.decide_queueing([None, Some(true), Some(true), Some(false)][prng.below(4) as usize]);
        for (name, value, percent) in [
            ("low_latency", 0, 40),
            ("strict_guarantees", 1, 5),
            ("slice_idle", 0, 30),
            ("max_budget", 100, 30),
            ("timeout_sync", 1, 10),
        ] {
            if prng.percent(percent) {
                bfq.tunables().put(name, value);
            }
        }
        let count = [1, 2, 5, 30][prng.below(4) as usize];
        let processes = (0..count).map(|n| Process::random(n, &mut prng)).collect();
        let free = (0..TAGS).rev().map(SchedTag).collect();
        let (whole, parts) = (bfq.clone(), bfq);
        Twins { whole, parts, prng, now: 1000 * MS, free, flying: Vec::new(), processes }
    }

    fn batch(&mut self) -> Vec<Rq> {
        let count = 1 + self.prng.below(24) as usize;
        let own = self.prng.below(self.processes.len() as u64) as usize;
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(tag) = self.free.pop()
        {
            let other = self.prng.below(self.processes.len() as u64) as usize;
            let process = if self.prng.percent(96) { own } else { other };
            batch.push(Rq { tag, ..self.processes[process].next(&mut self.prng) });
        }
        batch
    }

    fn stage(&mut self) {
        let (batch, now) = (self.batch(), Nanos(self.now));
        let mut rest = batch.as_slice();
        let mut absorbed = Absorbed::new();
        while !rest.is_empty() {
            let (taken, merge) = self.whole.stage_batch(rest, now, &mut absorbed);
            for (at, rq) in rest[..taken].iter().enumerate() {
                let mut absorbed_one = Absorbed::new();
                let told = self.parts.merge(rq, now);
                if told == Merge::No {
                    self.parts.insert(*rq, now, &mut absorbed_one);
                }
                let is_last = at + 1 == taken;
                assert_eq!(told, if is_last { merge } else { Merge::No }, "{rq:?}");
                assert_eq!(absorbed_one, if is_last { absorbed.clone() } else { Vec::new() });
                self.free.extend((told != Merge::No).then_some(rq.tag));
                if let Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } = told {
                    self.free.push(gone);
                }
            }
            self.free.extend(absorbed.drain(..).map(|(_, gone)| gone));
            rest = &rest[taken..];
        }
    }

    fn dispatch(&mut self) {
        let (max, now) = (1 + self.prng.below(40) as usize, Nanos(self.now));
        let mut out = Vec::new();
        self.whole.dispatch_batch(0, max, &mut out, now);
        let each = std::iter::from_fn(|| self.parts.dispatch(0, now)).take(max);
        assert_eq!(out, each.collect::<Vec<_>>());
        self.flying.extend(out.iter().map(|rq| rq.tag));
    }

    fn end(&mut self) {
        let mut ends = Vec::new();
        for _ in 0..self.prng.below(self.flying.len() as u64 + 1) {
            let last = self.flying.len() as u64 - 1;
            let at = if self.prng.percent(50) { 0 } else { self.prng.below(last + 1) };
            ends.push(Ended::untimed(self.flying.remove(at as usize)));
        }
        self.whole.ended_batch(&ends, Nanos(self.now));
        ends.iter().for_each(|end| self.parts.ended(end, Nanos(self.now)));
        self.free.extend(ends.iter().map(|end| end.tag));
    }

    fn step(&mut self) {
        match self.prng.below(100) {
            0..30 => self.stage(),
            30..55 => self.dispatch(),
            55..80 => self.end(),
            80..97 => {
                let most = [MS / 10, 5 * MS, 200 * MS, 900 * MS][self.prng.below(4) as usize];
                self.now += self.prng.below(most);
                for bfq in [&mut self.whole, &mut self.parts] {
                    if bfq.wake_at().is_some_and(|at| at.0 <= self.now) {
                        bfq.on_timer(Nanos(self.now));
                    }
                }
            }
            _ => {
                let at = self.prng.below(self.processes.len() as u64) as usize;
                let before = self.processes[at].rq.id;
                self.processes[at] = Process::random(at as u64, &mut self.prng);
                assert_eq!(self.processes[at].rq.id.submitter(), before.submitter());
            }
        }
        self.agree();
    }

    fn agree(&mut self) {
        assert_eq!(self.whole.device_view(), self.parts.device_view());
        assert_eq!(self.whole.take_kicked(), self.parts.take_kicked());
        assert_eq!(self.whole.staged(), self.parts.staged());
        for process in 0..self.processes.len() as u16 {
            let process = SubmitterId(process);
            assert_eq!(self.whole.view(process), self.parts.view(process));
        }
    }
}

impl Process {
    fn random(number: u64, prng: &mut Prng) -> Process {
        let classes = [Class::None, Class::None, Class::None, Class::BestEffort, Class::RealTime];
        let class = if prng.percent(5) { Class::Idle } else { classes[prng.below(5) as usize] };
        let ioprio = match class {
            Class::None => IoPrio::NONE,
            class => IoPrio::new(class, prng.below(8) as u8),
        };
        let rq = Rq {
            id: RqId::new(SubmitterId(number as u16), 0, 0),
            op: if prng.percent(60) { Op::Read } else { Op::Write },
            flags: if prng.percent(50) { Flags::SYNC } else { Flags::NONE },
            group: GroupId(prng.below(6).saturating_sub(3) as u32),
            // Some ask for so much that interactive raising ends within a run.
            sectors: 8 << prng.below(9),
            ioprio,
            ..request(SchedTag::NONE)
        };
        Process { at: prng.below(1 << 20) * 8, sequential: prng.percent(30), rq }
    }

    fn next(&mut self, prng: &mut Prng) -> Rq {
        if !self.sequential || prng.percent(5) {
            self.at = prng.below(1 << 20) * 8;
        }
        let sectors = if prng.percent(85) { self.rq.sectors } else { 8 << prng.below(5) };
        let rq = Rq { sector: self.at, sectors, ..self.rq };
        // Mostly a hole, so that few merge.
        self.at += u64::from(sectors) + if prng.percent(90) { 64 } else { 0 };
        match prng.below(20) {
            0 => Rq { flags: rq.flags | Flags::META, ..rq },
            1 => Rq { op: Op::Write, flags: Flags::SYNC, ..rq },
            2 => Rq { op: Op::Write, flags: Flags::NONE, ..rq },
            3 => Rq { ioprio: IoPrio::new(Class::BestEffort, prng.below(8) as u8), ..rq },
            4 => Rq { group: GroupId(prng.below(3) as u32), ..rq },
            _ => rq,
        }
    }
}

#[test]
fn batches_have_the_effect_of_their_parts_for_any_number_of_processes() {
    let first = asked("BFQ_SEED", 1);
    for seed in first..first + asked("BFQ_LIVES", LIVES) {
        let _tell = super::bed::Tell(format!("again with BFQ_SEED={seed}"));
        let mut twins = Twins::new(seed);
        (0..STEPS).for_each(|_| twins.step());
    }
}
