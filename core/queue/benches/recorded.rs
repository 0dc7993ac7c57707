//! What recording its scheduler adds to an I/O: random 4 KiB, 70 % reads, 128 at once on one null
//! disk of 32 tags, with a recording and without.
//!
//! cargo bench -p weir-queue --bench recorded [-- SCHEDULER plain|recorded ROUNDS]
//!
//! Wall time of interleaved rounds of one thread, each short enough to fit between two preemptions:
//! the least, a quarter of the way up, the median. The reader empties the tape between rounds and
//! is not counted. With a scheduler and a way it runs that one alone, for a profiler.

#![forbid(unsafe_code)]

use std::sync::Arc;

use weir_bio::{Bio, Buf, Data, Nanos, Op, Prng};
use weir_local::Null;
use weir_queue::{Bell, Config, Device, Home, LiveRecording, Submitter};
use weir_ring::Wake;

/// Of a round: their calls fit on the tape.
const IOS: u64 = 10_000;
const ROUNDS: usize = 101;
const BATCH: usize = 32;
const DEPTH: usize = 128;
const TAGS: u16 = 32;
/// Sectors of the device.
const SIZE: u64 = 1 << 27;
const SEED: u64 = 1;

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

struct Rig {
    home: Home,
    submitter: Submitter,
    recording: Option<LiveRecording>,
    spare: Vec<Buf>,
    prng: Prng,
    now: u64,
}

impl Rig {
    fn new(scheduler: &str, recorded: bool) -> Rig {
        let mut home = Home::new(Bell::with_lanes(Box::new(NoWake), 16));
        let config = Config {
            scheduler: Some(String::from(scheduler)),
            depth: Some(TAGS),
            nr_requests: Some(2 * DEPTH as u16),
            wbt_lat_us: Some(0),
            ..Config::default()
        };
        let null = Null::new(SIZE * 512).expect("whole sectors");
        let device = Device::new(config, Arc::new(null)).expect("a device");
        home.open(&device, 0).expect("a lane");
        let submitter = device.submitter(home.bell(), 0, 0).expect("a submitter");
        let recording = recorded.then(|| device.record(&|| Nanos(1)).expect("a recording"));
        let spare = (0..DEPTH).map(|_| Buf::zeroed(4096)).collect();
        Rig { home, submitter, recording, spare, prng: Prng::new(SEED), now: 1 }
    }

    fn submit(&mut self, buf: Buf) {
        let op = if self.prng.percent(70) { Op::Read } else { Op::Write };
        let bio = Bio::new(op, self.prng.below(SIZE / 8) * 8, 8, Data::One(buf));
        self.submitter.submit(bio, Nanos(self.now)).expect("room");
    }

    /// Nanoseconds of each of `IOS` I/Os, and a checksum.
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
        let ns = begun.elapsed().as_nanos() as f64 / IOS as f64;
        if let Some(recording) = &mut self.recording {
            let mut calls = 0_u64;
            while calls < 3 * IOS {
                let before = calls;
                let end = recording.take(|_| calls += 1);
                assert!(end.is_none() && calls > before, "{calls} calls, {end:?}");
            }
        }
        (ns, checksum)
    }

    fn turn(&mut self, checksum: &mut u64) {
        self.now += 2_000;
        let now = Nanos(self.now);
        self.submitter.flush_plug(now);
        self.home.turn(now);
        self.home.bell().ready().take(|_| {});
        let spare = &mut self.spare;
        self.submitter.complete(now, |end| {
            assert!(end.status.is_ok());
            *checksum += u64::from(end.sectors);
            spare.push(end.data.into_spare().expect("its memory"));
        });
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
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [scheduler, way, rounds] = &words[..] {
        let mut rig = Rig::new(scheduler, way == "recorded");
        let rounds: usize = rounds.parse().expect("a number of rounds");
        let checksum = (0..rounds).fold(0, |sum: u64, _| sum + rig.round().1);
        println!("{scheduler} {way}: {rounds} rounds of {IOS}, checksum {checksum:x}");
        return;
    }
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let rounds = if small { 3 } else { ROUNDS };
    println!("ns of an I/O                least quarter  median");
    for scheduler in ["mq-deadline", "kyber", "bfq"] {
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
