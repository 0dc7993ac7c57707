//! What a mapper adds to an I/O: random 4 KiB, 70 % reads, on 8 null disks under a striped device
//! and on 4 null paths under a multipath device, beside the same on one null disk.
//!
//! cargo bench -p weir-map --bench mapped [-- alone|stripe|round-robin|queue-length|... ROUNDS]
//!
//! Wall time of interleaved rounds of one thread, each short enough to fit between two preemptions:
//! the least, a quarter of the way up, the median. With a name it runs that one alone, for a
//! profiler.

#![forbid(unsafe_code)]

#[path = "../../queue/benches/load/mod.rs"]
mod load;
#[path = "../../queue/benches/words/mod.rs"]
mod words;

use std::sync::Arc;

use load::{Load, home};
use weir_local::Null;
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::{Policy, Table};
use weir_map::{Area, Layout, Mapped, Place, Shape};
use weir_queue::{Config, Device};

const IOS: u64 = 20_000;
const ROUNDS: usize = 101;

const USAGE: &str = "cargo bench -p weir-map --bench mapped [-- NAME [ROUNDS]]\n\n\
    NAME is one of alone, stripe, round-robin, queue-length, service-time and\n\
    historical-service-time: that one alone, 10 rounds unless told, for a profiler.";
const LEGS: usize = 8;
const PATHS: [&str; 4] = ["a", "b", "c", "d"];
/// Sectors.
const CHUNK: u32 = 128;
/// Sectors of the device.
const SIZE: u64 = 1 << 24;

/// Without a scheduler, as a mapped device has none, and its legs are queues for no device.
fn config() -> Config {
    // Its writes are of no submitter that waits, and would be held back for its reads.
    Config { scheduler: Some(String::from("none")), wbt_lat_us: Some(0), ..Config::default() }
}

/// The device that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Alone,
    Stripe,
    Multipath(Policy),
}

const KINDS: [Kind; 6] = [
    Kind::Alone,
    Kind::Stripe,
    Kind::Multipath(Policy::RoundRobin),
    Kind::Multipath(Policy::QueueLength),
    Kind::Multipath(Policy::ServiceTime),
    Kind::Multipath(Policy::HISTORICAL),
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Alone => "alone",
            Kind::Stripe => "stripe",
            Kind::Multipath(policy) => policy.name(),
        }
    }

    fn legs(self) -> u64 {
        match self {
            Kind::Alone => 0,
            Kind::Stripe => LEGS as u64,
            Kind::Multipath(_) => PATHS.len() as u64,
        }
    }
}

/// A mapped device over these.
fn mapped(kind: Kind, devices: Vec<Device>) -> Device {
    if let Kind::Multipath(policy) = kind {
        let table = Table::of_paths(policy, PATHS);
        let multipath = Multipath::new(table, devices, Settings::default()).expect("a map");
        return Device::new(config(), Arc::new(multipath)).expect("a device");
    }
    let stripes = (0..LEGS).map(|leg| Place { leg, offset: 0 }).collect();
    let shape = Shape::Striped { chunk: CHUNK, stripes };
    let layout = Layout::new(vec![Area { start: 0, sectors: SIZE, shape }]);
    let mapped = Mapped::new(layout, devices);
    Device::new(config(), Arc::new(mapped)).expect("a device")
}

/// The load on a device of this kind.
fn load_on(kind: Kind) -> Load {
    let mut home = home();
    let null = |sectors: u64| {
        let null = Null::new(sectors * 512).expect("whole sectors");
        Device::new(config(), Arc::new(null)).expect("a device")
    };
    if kind == Kind::Alone {
        return Load::new(home, &null(SIZE), SIZE);
    }
    // Each path has all of it, each stripe its part.
    let parts = if kind == Kind::Stripe { LEGS as u64 } else { 1 };
    let devices: Vec<Device> = (0..kind.legs()).map(|_| null(SIZE / parts)).collect();
    devices.iter().for_each(|leg| _ = home.open(leg, 0).expect("a lane"));
    Load::new(home, &mapped(kind, devices), SIZE)
}

fn main() {
    let words = words::words(USAGE);
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    if let Some(word) = words.first() {
        let kind = KINDS.into_iter().find(|kind| kind.name() == word);
        let rounds = words.get(1).map_or(Some(10), |rounds| rounds.parse().ok());
        let (Some(kind), Some(rounds), ..=2) = (kind, rounds, words.len()) else {
            words::refuse(&words, USAGE)
        };
        let mut load = load_on(kind);
        let sum: u64 = (0..rounds).map(|_| load.round(IOS).1).sum();
        return println!("{word}: {rounds} rounds of {IOS}, checksum {sum}");
    }
    let rounds = if small { 3 } else { ROUNDS };
    let mut loads = KINDS.map(load_on);
    let mut times = KINDS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (load, times) in loads.iter_mut().zip(&mut times) {
            times.push(load.round(IOS).0);
        }
    }
    let mut alone = None;
    for (kind, times) in KINDS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[times.len() * part / 4];
        let added = at(1) - *alone.get_or_insert(at(1));
        let (least, quarter, median) = (times[0], at(1), at(2));
        println!(
            "{}: {least:.1}, {quarter:.1}, {median:.1} ns per I/O; it adds {added:.1}",
            kind.name()
        );
    }
}
