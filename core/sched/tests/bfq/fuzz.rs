//! Property 30 of docs/behaviour/bfq.md, section 17: a million random events, nothing lost or
//! doubled, every counter back at 0, and the same again from the same seed.

use weir_bio::{Class, GroupId, IoPrio, Nanos, Op, Prng, Rq, SchedTag, SubmitterId};
use weir_sched::mq::bfq::Features;
use weir_sched::{Merge, Scheduler};

use super::bed::{Device, asked};
use super::rig::{MS, Rig, read};

/// Events of a life.
const EVENTS: u64 = 20_000;
/// Lives, so that all have a million events.
const LIVES: u64 = 50;
const CONTEXTS: u64 = 24;

struct Life {
    rig: Rig,
    prng: Prng,
    flying: Vec<SchedTag>,
    /// Tags of requests inserted and not ended, in step with the rig's own books.
    inserted: u64,
    ended: u64,
    trail: u64,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut prng = Prng::new(seed);
        let device = if prng.percent(50) { Device::f() } else { Device::ssd() };
        let features = Features { injection: prng.percent(70), ..Features::ALL };
        let features = Features { queue_merging: prng.percent(70), ..features };
        let mut rig = Rig::with(device, features);
        match prng.below(3) {
            0 => rig.bfq.decide_queueing(Some(false)),
            1 => rig.set("strict_guarantees", u64::from(prng.percent(30))),
            _ => {}
        }
        let flying = Vec::new();
        Life { rig, prng, flying, inserted: 0, ended: 0, trail: 0 }
    }

    fn note(&mut self, what: u64) {
        self.trail = (self.trail ^ what).wrapping_mul(0x0100_0000_01b3);
    }

    fn insert(&mut self) {
        if self.rig.bfq.staged() + self.flying.len() > 200 {
            return;
        }
        let prng = &mut self.prng;
        let context = prng.below(CONTEXTS) as u16;
        let class = [Class::None, Class::BestEffort, Class::RealTime, Class::Idle];
        // A process has one priority most of the time.
        let kind = if prng.percent(97) { u64::from(context) } else { prng.below(16) };
        let ioprio = match class[(kind % 4) as usize] {
            Class::None => IoPrio::NONE,
            class => IoPrio::new(class, (kind / 4) as u8),
        };
        let group = if prng.percent(98) { u64::from(context) % 5 } else { prng.below(5) };
        let op = if prng.percent(60) { Op::Read } else { Op::Write };
        let sectors = 8 << prng.below(6);
        let sector = prng.below(4) * (1 << 20) + prng.below(512) * 8;
        let rq = read(context, sector, SchedTag::NONE);
        let rq = Rq { sectors, op, ioprio, group: GroupId(group as u32), ..rq };
        let before = self.rig.bfq.staged();
        if self.prng.percent(50) && self.rig.offer_bio(rq) != Merge::No {
            self.inserted -= (before - self.rig.bfq.staged()) as u64;
            return;
        }
        self.rig.insert(rq);
        self.inserted += u64::from(self.rig.bfq.staged() > before);
        // Absorbed ones may have taken others along.
        self.inserted -=
            (before + 1).saturating_sub(self.rig.bfq.staged()).saturating_sub(1) as u64;
    }

    fn ask(&mut self) {
        let staged = self.rig.bfq.staged();
        match self.rig.dispatch() {
            Some(rq) => {
                self.flying.push(rq.tag);
                self.note(rq.sector << 16 | u64::from(rq.tag.0));
            }
            None => {
                let told = !self.flying.is_empty() || self.rig.bfq.wake_at().is_some();
                assert!(staged == 0 || told, "{staged} requests are stranded");
            }
        }
    }

    fn end(&mut self) {
        if self.flying.is_empty() {
            return;
        }
        let at = self.prng.below(self.flying.len() as u64) as usize;
        let tag = self.flying.swap_remove(at);
        self.rig.complete(tag);
        self.ended += 1;
    }

    fn step(&mut self) {
        match self.prng.below(1000) {
            0..350 => self.insert(),
            350..600 => self.ask(),
            600..850 => self.end(),
            850..980 => {
                let pass = if self.prng.percent(90) { 2 * MS } else { 300 * MS };
                self.rig.now += self.prng.below(pass);
                self.rig.fire();
            }
            980..985 => {
                let (group, weight) = (self.prng.below(5), 1 + self.prng.below(1000));
                let now = Nanos(self.rig.now);
                self.rig.bfq.group_weight_changed(GroupId(group as u32), weight as u16, now);
            }
            985..990 => {
                // Child groups 3 and 4 move between the root and groups 1 and 2.
                let (child, parent) = (3 + self.prng.below(2), self.prng.below(3));
                self.rig.bfq.group_parent(GroupId(child as u32), GroupId(parent as u32));
            }
            990..997 => {
                let context = SubmitterId(self.prng.below(CONTEXTS) as u16);
                self.rig.bfq.context_ended(context, Nanos(self.rig.now));
            }
            _ => {
                let value = self.prng.below(2);
                self.rig.set("low_latency", value);
            }
        }
    }

    fn drain(&mut self) {
        let mut rounds = 0;
        while self.rig.bfq.staged() > 0 || !self.flying.is_empty() {
            self.ask();
            if self.prng.percent(50) {
                self.end();
            }
            self.rig.now += MS;
            self.rig.fire();
            rounds += 1;
            assert!(rounds < 100_000, "{} requests do not come out", self.rig.bfq.staged());
        }
        let now = Nanos(self.rig.now);
        for context in 0..CONTEXTS as u16 {
            self.rig.bfq.context_ended(SubmitterId(context), now);
        }
    }
}

fn live(seed: u64) -> u64 {
    let mut life = Life::new(seed);
    for _ in 0..EVENTS {
        life.step();
    }
    life.drain();
    assert_eq!(life.inserted, life.ended, "seed {seed}: some are lost or doubled");
    let device = life.rig.device();
    assert!(device.counters_are_zero, "seed {seed}: {device:?}");
    // The async queues of five groups stay, and they and the groups may keep their weights until
    // virtual time has passed.
    assert!(device.queues <= 5 * 17, "seed {seed}: {device:?}");
    assert_eq!(device.sync_queues, 0, "seed {seed}: {device:?}");
    assert_eq!(device.weight_sum, device.counted_weight, "seed {seed}");
    life.trail
}

#[test]
fn p30_a_million_random_events_lose_nothing_and_leave_every_counter_at_zero() {
    let first = asked("BFQ_SEED", 1);
    println!("seeds from {first}");
    for seed in first..first + LIVES {
        live(seed);
    }
}

#[test]
fn p30_the_same_events_have_the_same_answers() {
    for seed in [3, 1000, 77] {
        println!("seed {seed}");
        assert_eq!(live(seed), live(seed));
    }
}
