//! What the mid-layer costs: random 4 KiB, 70 % reads, on a logical unit over a transport that
//! answers at the next reap, beside the same on a device that does so itself; and the legacy path
//! against the multi-queue path on two threads.
//!
//! cargo bench -p weir-driver-scsi --bench midlayer [-- alone|scsi ROUNDS]
//!
//! Wall time of interleaved rounds, each short enough to fit between two preemptions: the least, a
//! quarter of the way up, the median. With a name it runs that one alone, for a profiler.

#![forbid(unsafe_code)]

#[path = "../../../core/queue/benches/words/mod.rs"]
mod words;

use std::sync::{Arc, Barrier};

use weir_bio::{Bio, Buf, Data, Limits, Nanos, Op, Prng, Status};
use weir_driver_scsi::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Facts, Host, HostOptions,
    Management, ManagementAnswer, Port, Probe, Refusal, Transport, Unit, UnitOptions,
};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::{
    Affinity, Batch, Bell, Config, Device, Done, Driver, DriverError, DriverQueue, Home, NoWake,
    QueueMode, Queues, Submitter, Tag,
};

const IOS: u64 = 20_000;
const ROUNDS: usize = 101;

const USAGE: &str = "cargo bench -p weir-driver-scsi --bench midlayer [-- alone|scsi [ROUNDS]]\n\n\
    With a name it runs that one alone, 10 rounds unless told, for a profiler.";
const BATCH: usize = 32;
const DEPTH: usize = 128;
/// Sectors of the device.
const SIZE: u64 = 1 << 24;

fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// Answers at the next reap.
struct Null;

impl Driver for Null {
    fn limits(&self) -> Limits {
        Limits { capacity: SIZE, max_segments: 128, dma_alignment: 0, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        let depth = DEPTH as u16;
        Queues { max: 2, depth, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(NullQueue(Vec::new())))
    }
}

struct NullQueue(Vec<(Tag, Status)>);

impl DriverQueue for NullQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, _| self.0.push((tag, Status::Ok)));
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        done.push_all(&self.0);
        self.0.clear();
    }

    fn in_flight(&self) -> usize {
        self.0.len()
    }
}

/// A transport to nowhere: every command has succeeded at the next reap.
struct Nowhere(u16);

impl Transport for Nowhere {
    fn adapter(&self) -> Adapter {
        Adapter {
            queues: self.0,
            can_queue: DEPTH as u16,
            own_slots: 4,
            cmd_per_lun: u16::MAX,
            segments_max: 128,
            sectors_max: 1024,
            cdb_max: 16,
        }
    }

    fn name(&self) -> String {
        "nowhere".to_owned()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        while let Some((_, _, asked)) = asker.next() {
            // A disk of the oldest kind: 36 zeros are INQUIRY data, and no command says no.
            let len = if let Asked::In(len) = asked { len.min(36) as usize } else { 0 };
            asker.answer(Delivery::Delivered, ScsiStatus::GOOD, &vec![0; len], &[]);
        }
        Ok(())
    }

    fn open(&self, _: u16) -> Result<Box<dyn Port>, DriverError> {
        Ok(Box::new(NowherePort::default()))
    }
}

#[derive(Default)]
struct NowherePort {
    sent: Vec<Delivered>,
    memory: Vec<Data>,
}

impl Port for NowherePort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        _: Nanos,
    ) -> Result<(), Refusal> {
        let moved = match command.direction {
            Direction::None => 0,
            Direction::In(bytes) | Direction::Out(bytes) => bytes,
        };
        self.sent.push(Delivered {
            slot: command.slot,
            delivery: Delivery::Delivered,
            status: ScsiStatus::GOOD,
            moved,
            sense: 0,
            memory: memory.len() as u16,
        });
        self.memory.append(memory);
        Ok(())
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, ends: &mut Ends) {
        ends.commands.append(&mut self.sent);
        ends.memory.append(&mut self.memory);
    }

    fn manage(&mut self, _: Management, _: u32, _: Nanos, _: Nanos) -> Result<(), Refusal> {
        unreachable!("every command ends: {:?}", ManagementAnswer::Complete)
    }
}

/// The facts of a disk that was never asked.
fn facts() -> Facts {
    let mut probe = Probe::new(Lun::ZERO);
    Nowhere(1).ask(&mut probe).expect("answers");
    let mut facts = probe.finish().expect("a disk");
    facts.disk.capacity = Capacity { last_lba: SIZE - 1, block_len: 512, ..Capacity::default() };
    facts
}

fn scsi(queues: u16) -> Arc<dyn Driver> {
    let host = Host::new(Arc::new(Nowhere(queues)), HostOptions::default());
    Arc::new(Unit::of_facts(&host, facts(), UnitOptions::default()).expect("a unit"))
}

fn device(driver: Arc<dyn Driver>, mode: QueueMode, queues: u16) -> Device {
    let scheduler = Some(if mode == QueueMode::Sq { "noop" } else { "none" }.to_owned());
    // Its writes are of no submitter that waits, and would be held back for its reads.
    let wbt_lat_us = Some(0);
    let config = Config { scheduler, mode, queues, wbt_lat_us, ..Config::default() };
    Device::new(config, driver).expect("a device")
}

struct Rig {
    home: Home,
    submitter: Submitter,
    spare: Vec<Buf>,
    prng: Prng,
    now: u64,
}

impl Rig {
    fn new(device: &Device, lane: usize, number: usize) -> Rig {
        let mut home = Home::new(Bell::with_lanes(Box::new(NoWake), 16));
        home.open(device, lane).expect("a lane");
        let submitter = device.submitter(home.bell(), 0, number).expect("a submitter");
        let spare = (0..DEPTH).map(|_| Buf::zeroed(4096)).collect();
        Rig { home, submitter, spare, prng: Prng::new(number as u64), now: 1 }
    }

    /// Nanoseconds of `IOS` I/Os, and a checksum.
    fn round(&mut self) -> (f64, u64) {
        let (mut left, mut checksum) = (IOS, 0);
        let begun = clock();
        while left > 0 {
            for _ in 0..BATCH.min(self.spare.len()) {
                let buf = self.spare.pop().expect("memory");
                let op = if self.prng.percent(70) { Op::Read } else { Op::Write };
                let bio = Bio::new(op, self.prng.below(SIZE / 8) * 8, 8, Data::One(buf));
                self.submitter.submit(bio, Nanos(self.now)).expect("room");
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

/// Nanoseconds per I/O of two threads together, on one device.
fn two_threads(mode: QueueMode) -> f64 {
    let queues = if mode == QueueMode::Sq { 1 } else { 2 };
    let device = device(scsi(queues), mode, queues);
    let start = Arc::new(Barrier::new(2));
    let threads = [0, 1].map(|number| {
        let (device, start) = (device.clone(), Arc::clone(&start));
        std::thread::spawn(move || {
            let lane = if mode == QueueMode::Sq { 0 } else { number };
            let mut rig = Rig::new(&device, lane, number);
            rig.round();
            start.wait();
            let begun = clock();
            for _ in 0..5 {
                rig.round();
            }
            let took = begun.elapsed().as_nanos() as f64;
            start.wait();
            took
        })
    });
    let took = threads.map(|thread| thread.join().expect("a round"));
    took[0].max(took[1]) / (10.0 * IOS as f64)
}

/// The least, a quarter of the way up, the median.
fn quantiles(times: &mut [f64]) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [0, 1, 2].map(|part| times[times.len() * part / 4])
}

fn main() {
    let words = words::words(USAGE);
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let names = ["alone", "scsi"];
    let make = |name: &str| {
        let driver = if name == "alone" { Arc::new(Null) as Arc<dyn Driver> } else { scsi(1) };
        Rig::new(&device(driver, QueueMode::Mq, 1), 0, 0)
    };
    if let Some(word) = words.first() {
        let name = names.into_iter().find(|name| name == word);
        let rounds = words.get(1).map_or(Some(10), |rounds| rounds.parse().ok());
        let (Some(name), Some(rounds), ..=2) = (name, rounds, words.len()) else {
            words::refuse(&words, USAGE)
        };
        let mut rig = make(name);
        let sum: u64 = (0..rounds).map(|_| rig.round().1).sum();
        return println!("{word}: {rounds} rounds of {IOS}, checksum {sum}");
    }
    let rounds = if small { 3 } else { ROUNDS };
    let mut rigs = names.map(make);
    let mut times = names.map(|_| Vec::new());
    for _ in 0..rounds {
        for (rig, times) in rigs.iter_mut().zip(&mut times) {
            times.push(rig.round().0);
        }
    }
    let mut alone = None;
    for (name, times) in names.iter().zip(&mut times) {
        let [least, quarter, median] = quantiles(times);
        let added = quarter - *alone.get_or_insert(quarter);
        println!("{name}: {least:.1}, {quarter:.1}, {median:.1} ns per I/O; it adds {added:.1}");
    }
    let pairs = if small { 1 } else { 15 };
    let modes = [QueueMode::Sq, QueueMode::Mq];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..pairs {
        for (mode, times) in modes.into_iter().zip(&mut times) {
            times.push(two_threads(mode));
        }
    }
    let [legacy, mq] = times.each_mut().map(|times| quantiles(times)[2]);
    println!(
        "two threads: legacy {legacy:.1}, mq {mq:.1} ns per I/O; mq is {:.2} times as fast",
        legacy / mq
    );
}
