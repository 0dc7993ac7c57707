//! What a stripe adds to an I/O: random 4 KiB, 70 % reads, on 8 null disks under a striped device,
//! beside the same on one null disk.
//!
//! cargo bench -p weir-map --bench stripe [-- stripe|alone ROUNDS]
//!
//! Wall time of interleaved rounds of one thread, each short enough to fit between two preemptions:
//! the least, a quarter of the way up, the median. With a name it runs that one alone, for a
//! profiler.

#![forbid(unsafe_code)]

use std::sync::Arc;

use weir_bio::{Bio, Buf, Data, Nanos, Op, Prng};
use weir_local::Null;
use weir_map::{Area, Layout, Mapped, Place, Shape};
use weir_queue::{Bell, Config, Device, Home, Submitter};
use weir_ring::Wake;

const IOS: u64 = 20_000;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const DEPTH: usize = 128;
const LEGS: usize = 8;
/// Sectors.
const CHUNK: u32 = 128;
/// Sectors of the device.
const SIZE: u64 = 1 << 24;
const SEED: u64 = 1;

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// Without a scheduler, as a mapped device has none, and its legs are queues for no device.
fn config() -> Config {
    Config { scheduler: Some(String::from("none")), ..Config::default() }
}

struct Rig {
    home: Home,
    submitter: Submitter,
    spare: Vec<Buf>,
    prng: Prng,
    now: u64,
}

impl Rig {
    fn new(legs: usize) -> Rig {
        let mut home = Home::new(Bell::with_lanes(Box::new(NoWake), 16));
        let null = |sectors: u64| {
            let null = Null::new(sectors * 512).expect("whole sectors");
            Device::new(config(), Arc::new(null)).expect("a device")
        };
        let device = if legs == 0 {
            null(SIZE)
        } else {
            let devices: Vec<Device> = (0..legs).map(|_| null(SIZE / legs as u64)).collect();
            devices.iter().for_each(|leg| _ = home.open(leg, 0).expect("a lane"));
            let stripes = (0..legs).map(|leg| Place { leg, offset: 0 }).collect();
            let shape = Shape::Striped { chunk: CHUNK, stripes };
            let layout = Layout::new(vec![Area { start: 0, sectors: SIZE, shape }]);
            let mapped = Mapped::new(layout, devices);
            Device::new(config(), Arc::new(mapped)).expect("a device")
        };
        home.open(&device, 0).expect("a lane");
        let submitter = device.submitter(home.bell(), 0, 0).expect("a submitter");
        let spare = (0..DEPTH).map(|_| Buf::zeroed(4096)).collect();
        Rig { home, submitter, spare, prng: Prng::new(SEED), now: 1 }
    }

    fn submit(&mut self, buf: Buf) {
        let op = if self.prng.percent(70) { Op::Read } else { Op::Write };
        let bio = Bio::new(op, self.prng.below(SIZE / 8) * 8, 8, Data::One(buf));
        self.submitter.submit(bio, Nanos(self.now)).expect("room");
    }

    /// Nanoseconds of `IOS` I/Os, and a checksum.
    fn round(&mut self) -> (f64, u64) {
        let (mut left, mut checksum) = (IOS, 0);
        let begun = clock();
        while left > 0 {
            for _ in 0..BATCH.min(self.spare.len()) {
                let buf = self.spare.pop().expect("memory");
                self.submit(buf);
                left = left.saturating_sub(1);
            }
            self.turn(&mut checksum);
        }
        while self.spare.len() < DEPTH {
            self.turn(&mut checksum);
        }
        (begun.elapsed().as_nanos() as f64 / IOS as f64, checksum)
    }

    fn turn(&mut self, checksum: &mut u64) {
        self.now += 1000;
        self.submitter.flush_plug(Nanos(self.now));
        self.home.turn(Nanos(self.now));
        self.home.bell().ready().take(|_| {});
        let spare = &mut self.spare;
        self.submitter.complete(Nanos(self.now), |end| {
            assert!(end.status.is_ok());
            *checksum += u64::from(end.sectors);
            spare.push(end.data.into_spare().expect("its memory"));
        });
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    if let Some(at) = words.iter().position(|word| word == "stripe" || word == "alone") {
        let rounds = words.get(at + 1).and_then(|word| word.parse().ok()).unwrap_or(10);
        let mut rig = Rig::new(if words[at] == "stripe" { LEGS } else { 0 });
        let sum: u64 = (0..rounds).map(|_| rig.round().1).sum();
        return println!("{}: {rounds} rounds of {IOS}, checksum {sum}", words[at]);
    }
    let rounds = if small { 3 } else { ROUNDS };
    let (mut alone, mut stripe) = (Rig::new(0), Rig::new(LEGS));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (rig, times) in [&mut alone, &mut stripe].into_iter().zip(&mut times) {
            times.push(rig.round().0);
        }
    }
    for (name, times) in ["null", "stripe over 8 null"].iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[times.len() * part / 4];
        println!("{name}: {:.1}, {:.1}, {:.1} ns per I/O", times[0], at(1), at(2));
    }
    println!("the stripe adds {:.1} ns", times[1][rounds / 4] - times[0][rounds / 4]);
}
