//! What recording its scheduler adds to an I/O: random 4 KiB, 70 % reads, 128 at once on one null
//! disk of 32 tags, with a recording and without.
//!
//! cargo bench -p weir-queue --bench recorded [-- SCHEDULER plain|recorded ROUNDS]
//!
//! Wall time of interleaved rounds of one thread, each short enough to fit between two preemptions:
//! the least, a quarter of the way up, the median. The reader empties the tape between rounds and
//! is not counted. With a scheduler and a way it runs that one alone, for a profiler.

#![forbid(unsafe_code)]

mod load;
mod words;

use std::sync::Arc;

use load::{DEPTH, Load, home};
use weir_bio::Nanos;
use weir_local::Null;
use weir_queue::{Config, Device, LiveRecording};

/// Of a round: their calls fit on the tape.
const IOS: u64 = 10_000;
const ROUNDS: usize = 101;

const SCHEDULERS: [&str; 3] = ["mq-deadline", "kyber", "bfq"];

const USAGE: &str = "cargo bench -p weir-queue --bench recorded \
    [-- mq-deadline|kyber|bfq plain|recorded ROUNDS]\n\n\
    With a scheduler and a way it runs that one alone, for a profiler.";
const TAGS: u16 = 32;
/// Sectors of the device.
const SIZE: u64 = 1 << 27;

struct Rig {
    load: Load,
    recording: Option<LiveRecording>,
}

impl Rig {
    fn new(scheduler: &str, recorded: bool) -> Rig {
        let config = Config {
            scheduler: Some(String::from(scheduler)),
            depth: Some(TAGS),
            nr_requests: Some(2 * DEPTH as u16),
            wbt_lat_us: Some(0),
            ..Config::default()
        };
        let null = Null::new(SIZE * 512).expect("whole sectors");
        let device = Device::new(config, Arc::new(null)).expect("a device");
        let load = Load::new(home(), &device, SIZE);
        let recording = recorded.then(|| device.record(&|| Nanos(1)).expect("a recording"));
        Rig { load, recording }
    }

    /// Nanoseconds of each of `IOS` I/Os, and a checksum.
    fn round(&mut self) -> (f64, u64) {
        let round = self.load.round(IOS);
        if let Some(recording) = &mut self.recording {
            let mut calls = 0_u64;
            while calls < 3 * IOS {
                let before = calls;
                let end = recording.take(|_| calls += 1);
                assert!(end.is_none() && calls > before, "{calls} calls, {end:?}");
            }
        }
        round
    }
}

/// Nanoseconds of an I/O in rounds, sorted.
struct Times(Vec<f64>);

impl Times {
    fn tell(&mut self, name: &str) -> f64 {
        self.0.sort_by(f64::total_cmp);
        let of = |part: usize| self.0[(self.0.len() - 1) * part / 4];
        println!("{name:24} {:7.1} {:7.1} {:7.1}", of(0), of(1), of(2));
        of(1)
    }
}

fn main() {
    let words = words::words(USAGE);
    if !words.is_empty() {
        let alone = match &words[..] {
            [scheduler, way, rounds] if SCHEDULERS.contains(&&**scheduler) => {
                let ways = ["plain", "recorded"];
                let recorded = ways.iter().position(|known| known == way).map(|way| way == 1);
                Option::zip(recorded, rounds.parse::<usize>().ok()).map(|end| (scheduler, way, end))
            }
            _ => None,
        };
        let Some((scheduler, way, (recorded, rounds))) = alone else {
            words::refuse(&words, USAGE)
        };
        let mut rig = Rig::new(scheduler, recorded);
        let checksum = (0..rounds).fold(0, |sum: u64, _| sum + rig.round().1);
        println!("{scheduler} {way}: {rounds} rounds of {IOS}, checksum {checksum:x}");
        return;
    }
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let rounds = if small { 3 } else { ROUNDS };
    println!("ns of an I/O                least quarter  median");
    for scheduler in SCHEDULERS {
        let mut rigs = [Rig::new(scheduler, false), Rig::new(scheduler, true)];
        let mut times = [Times(Vec::new()), Times(Vec::new())];
        for _ in 0..rounds {
            let rounds = rigs.each_mut().map(Rig::round);
            assert_eq!(rounds[0].1, rounds[1].1, "the same work");
            times.iter_mut().zip(rounds).for_each(|(times, (ns, _))| times.0.push(ns));
        }
        let plain = times[0].tell(scheduler);
        let recorded = times[1].tell(&format!("{scheduler}, recorded"));
        println!("{scheduler}: {:.1} ns more", recorded - plain);
    }
}
