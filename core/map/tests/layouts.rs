//! Devices of linear and striped areas, and of areas on no leg, in front of memory, under every
//! scheduler above and below, on both paths: what is read is what was written, wherever it lies.
//!
//! All homes are one, and time is virtual. `LAYOUT_SEED=n` plays one seed, `LAYOUT_SEEDS=n` so
//! many.

use std::sync::Arc;

use weir_bio::{Bio, Data, Nanos, Op, Prng, SECTOR, Status};
use weir_laws::{Tell, filled, seeds, value, values};
use weir_local::Ram;
use weir_map::{Area, Layout, Mapped, Place, Shape};
use weir_queue::{Bell, Completion, Config, Device, Home, NoWake, QueueMode, Submitter};
use weir_sched::{Entry, Family, SCHEDULERS};

/// Sectors of a leg.
const LEG: u64 = 480;

/// Sectors of an area on no leg.
const NOWHERE: u64 = 12;

/// A layout over so many legs, each begun at a few sectors: stripes, zeros, errors, one leg.
fn layout(prng: &mut Prng, legs: usize) -> Layout {
    let chunk = 1 + prng.below(24) as u32;
    let rows = (LEG - 8) / u64::from(chunk) / 2;
    let stripes = (0..legs).map(|leg| Place { leg, offset: prng.below(8) }).collect();
    let striped = rows * u64::from(chunk) * legs as u64;
    let linear = Place { leg: legs - 1, offset: LEG / 2 + 8 };
    let (zeros, errors, last) = (striped, striped + NOWHERE, striped + 2 * NOWHERE);
    Layout::new(vec![
        Area { start: 0, sectors: striped, shape: Shape::Striped { chunk, stripes } },
        Area { start: zeros, sectors: NOWHERE, shape: Shape::Zero },
        Area { start: errors, sectors: NOWHERE, shape: Shape::Error },
        Area { start: last, sectors: LEG / 2 - 8, shape: Shape::Linear(linear) },
    ])
}

/// Whether sectors of a layout are of this shape.
fn touches(layout: &Layout, shape: &Shape, sector: u64, sectors: u64) -> bool {
    let mut areas = layout.areas().iter().filter(|area| area.shape == *shape);
    areas.any(|area| sector < area.start + area.sectors && area.start < sector + sectors)
}

/// The schedulers of both levels.
#[derive(Clone, Copy)]
struct Order {
    above: &'static Entry,
    below: &'static Entry,
}

struct Rig {
    home: Home,
    submitter: Submitter,
    /// The mapped device first.
    devices: Vec<Device>,
    now: Nanos,
}

impl Rig {
    /// A device with one scheduler over legs with another, each on the path that this is for.
    fn new(layout: Layout, legs: usize, order: Order) -> Rig {
        let config = |entry: &Entry| {
            let mode = match entry.family {
                Family::Legacy => QueueMode::Sq,
                Family::Multi => QueueMode::Mq,
            };
            let scheduler = Some(String::from(entry.name));
            Config { mode, scheduler, timeout_ns: 0, ..Config::default() }
        };
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 16));
        let ram = || Arc::new(Ram::new(LEG * SECTOR).unwrap());
        let mut devices: Vec<Device> =
            (0..legs).map(|_| Device::new(config(order.below), ram()).unwrap()).collect();
        let mapped = Mapped::new(layout, devices.clone());
        devices.insert(0, Device::new(config(order.above), Arc::new(mapped)).unwrap());
        devices.iter().for_each(|device| _ = home.open(device, 0).unwrap());
        let submitter = devices[0].submitter(home.bell(), 0, 0).unwrap();
        Rig { home, submitter, devices, now: Nanos(1) }
    }

    /// Sends bios in one burst and turns the lanes until all have ended.
    fn run(&mut self, bios: Vec<Bio>) -> Vec<Completion> {
        let (count, mut ended) = (bios.len(), Vec::new());
        for bio in bios {
            self.submitter.submit(bio, self.now).expect("room");
        }
        self.submitter.flush_plug(self.now);
        for _ in 0..100_000 {
            self.home.bell().ready().take(|_| {});
            if self.home.wants_turn(self.now) {
                self.home.turn(self.now);
            }
            self.submitter.complete(self.now, |end| ended.push(end));
            if ended.len() == count {
                return ended;
            }
            if !self.home.wants_turn(self.now) {
                self.now = self.home.wake_at().unwrap_or(self.now);
            }
        }
        panic!("{} of {count} bios ended", ended.len());
    }
}

/// A bio somewhere, and what it does to the sectors.
fn invent(prng: &mut Prng, cookie: u64, held: &mut [u64]) -> Bio {
    let all = held.len() as u64;
    let longest = if prng.percent(20) { all } else { 40 };
    let sectors = 1 + prng.below(longest) as u32;
    let sector = prng.below(all - u64::from(sectors) + 1);
    let range = &mut held[sector as usize..][..sectors as usize];
    let op = match prng.below(10) {
        0 => return Bio::flush().cookie(cookie),
        1 => Op::Discard,
        2 => Op::WriteZeroes,
        3..7 => Op::Write,
        _ => Op::Read,
    };
    match op {
        Op::Discard | Op::WriteZeroes => range.fill(0),
        Op::Write => (sector..).zip(range).for_each(|(at, held)| *held = value(cookie, at)),
        _ => {}
    }
    // Memory in pieces that end at no chunk.
    let first = 1 + prng.below(u64::from(sectors)) as u32;
    let pieces = [first, sectors - first];
    let pieces = if first == sectors { &pieces[..1] } else { &pieces[..] };
    let data = if op.has_data() { filled(cookie, sector, pieces) } else { Data::None };
    Bio::new(op, sector, sectors, data).cookie(cookie)
}

/// Sectors on no leg hold nothing.
fn forget_nowhere(layout: &Layout, held: &mut [u64]) {
    let nowhere = layout.areas().iter().filter(|area| area.shape.places().is_empty());
    nowhere.for_each(|area| held[area.start as usize..][..area.sectors as usize].fill(0));
}

fn play(seed: u64, order: Order) {
    let mut prng = Prng::new(seed);
    let legs = 1 + prng.below(5) as usize;
    let layout = layout(&mut prng, legs);
    let mut held = vec![0; layout.sectors() as usize];
    let mut rig = Rig::new(layout.clone(), legs, order);
    for cookie in 1..60 {
        let bio = invent(&mut prng, cookie, &mut held);
        forget_nowhere(&layout, &mut held);
        let (op, sector, sectors) = (bio.op, bio.sector as usize, bio.sectors as usize);
        let fails = touches(&layout, &Shape::Error, bio.sector, bio.sectors.into());
        let ended = rig.run(vec![bio]).remove(0);
        let right = if fails { Status::IoErr } else { Status::Ok };
        assert_eq!((ended.cookie, ended.status), (cookie, right), "{op:?}");
        if op == Op::Read && !fails {
            assert!(values(&ended.data) == held[sector..][..sectors], "read {cookie}");
        }
        assert_eq!(ended.data.len(), if op.has_data() { sectors * 512 } else { 0 });
    }
    // Neighbours, which are merged above, and cut again.
    let numbers =
        (0..held.len() as u64 / 4).filter(|number| !touches(&layout, &Shape::Error, number * 4, 4));
    let burst = numbers.map(|number| {
        let (cookie, at) = (100 + number, number * 4);
        (at..at + 4).for_each(|at| held[at as usize] = value(cookie, at));
        Bio::new(Op::Write, at, 4, filled(cookie, at, &[4])).cookie(cookie)
    });
    let mut left: Vec<Bio> = burst.collect();
    while !left.is_empty() {
        let rest = left.split_off(left.len().min(64));
        for ended in rig.run(std::mem::replace(&mut left, rest)) {
            assert_eq!((ended.status, ended.data.len()), (Status::Ok, 4 * 512));
            assert!(values(&ended.data).iter().all(|value| value >> 24 == ended.cookie));
        }
    }
    forget_nowhere(&layout, &mut held);
    for area in layout.areas() {
        let (at, sectors) = (area.start, area.sectors as u32);
        let ended = rig.run(vec![Bio::new(Op::Read, at, sectors, filled(0, at, &[sectors]))]);
        let fails = area.shape == Shape::Error;
        assert_eq!(ended[0].status.is_ok(), !fails);
        let held = &held[at as usize..][..sectors as usize];
        assert!(fails || values(&ended[0].data) == held, "all of {area:?}");
    }
    assert!(rig.devices.iter().all(|device| device.stats().in_flight == 0));
}

#[test]
fn what_is_read_is_what_was_written_under_every_scheduler_above_and_below() {
    for above in SCHEDULERS {
        for below in SCHEDULERS {
            for seed in seeds("LAYOUT", 4) {
                let names = (above.name, below.name);
                let _tell = Tell(format!("{names:?}\nLAYOUT_SEED={seed}"));
                play(seed, Order { above, below });
            }
        }
    }
}
