//! The mid-layer over the simulated target, with its faults: what was acknowledged is read back, no
//! write lands after a newer one, and every request ends.
//!
//! `SIMULATED_SEED=n` plays one seed, `SIMULATED_SEEDS=n` so many.

mod bed;

use std::collections::BTreeMap;
use std::sync::Arc;

use bed::sim::Simulated;
use bed::{MS, SECOND};
use weir_bio::{Bio, Buf, Nanos, Prng, Status};
use weir_driver_scsi::{Adapter, Host, HostOptions, Unit, UnitOptions};
use weir_proto_scsi::Lun;
use weir_queue::{Bell, Config, Device, Home, NoWake, Submitter};
use weir_sim_target::{CommandClass, Effect, Fault, LunSpec, Spec, Speed, Target};

/// Blocks of 4 KiB that are written and read.
const BLOCKS: u64 = 64;

fn fault(class: Option<CommandClass>, chance: u32, effect: Effect) -> Fault {
    Fault { class, chance, effect, ..Fault::default() }
}

/// One rule of each kind, each with a small chance. Random bytes for sense are not among them: such
/// may say that a command succeeded, and no initiator can know better.
fn faults() -> Vec<Fault> {
    let any = None;
    let (read, write) = (Some(CommandClass::Read), Some(CommandClass::Write));
    let sense = |key, code| Effect::Sense { key, code, done: false };
    vec![
        fault(read, 1, Effect::Stuck),
        fault(write, 1, Effect::Stuck),
        fault(read, 1, Effect::Dropped),
        fault(write, 1, Effect::Dropped),
        fault(write, 1, Effect::Unanswered { after_ns: 2 * SECOND }),
        fault(write, 1, Effect::Unanswered { after_ns: 40 * SECOND }),
        fault(any, 1, Effect::Delayed { by_ns: 3 * SECOND }),
        fault(any, 1, Effect::Delayed { by_ns: 45 * SECOND }),
        fault(any, 2, Effect::Status(0x08)),
        fault(any, 2, Effect::Status(0x28)),
        fault(any, 1, Effect::Status(0x40)),
        fault(any, 1, sense(6, 0x2900)),
        fault(any, 1, sense(0xb, 0x0000)),
        fault(any, 1, sense(2, 0x0401)),
        fault(any, 1, Effect::Senseless),
    ]
}

struct Scene {
    simulated: Simulated,
    home: Home,
    client: Submitter,
    prng: Prng,
    now: Nanos,
    /// What a block may hold: the last write that was acknowledged, and those after it whose end
    /// was an error.
    may: BTreeMap<u64, Vec<u8>>,
    under_way: BTreeMap<u64, (u64, Option<u8>)>,
    ended: u64,
    failed: u64,
}

impl Scene {
    fn new(seed: u64, faults: Vec<Fault>) -> Scene {
        let speed = Speed { latency_ns: MS, ..Speed::default() };
        let lun = LunSpec { size: 64 << 20, queue_depth: 16, speed, ..LunSpec::default() };
        let spec = Spec { seed, journal: 100_000, luns: vec![lun], ..Spec::default() };
        let target = Target::new(spec).expect("a target");
        let adapter = Adapter { cmd_per_lun: 24, ..bed::port::adapter() };
        let simulated = Simulated::new(target, adapter);
        let host = Host::new(Arc::new(simulated.clone()), HostOptions::default());
        let unit = Unit::open(&host, Lun::ZERO, UnitOptions::default()).expect("a disk");
        for fault in faults {
            simulated.shared().target.add_fault(fault).expect("a rule");
        }
        let config = Config { scheduler: Some("none".to_owned()), ..Config::default() };
        let device = Device::new(config, Arc::new(unit)).expect("a device");
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 4));
        home.open(&device, 0).expect("a lane");
        let client = device.submitter(home.bell(), 0, 0).expect("a submitter");
        Scene {
            simulated,
            home,
            client,
            prng: Prng::new(seed),
            now: Nanos(SECOND),
            may: BTreeMap::new(),
            under_way: BTreeMap::new(),
            ended: 0,
            failed: 0,
        }
    }

    fn submit(&mut self) {
        let block = self.prng.below(BLOCKS);
        if self.under_way.contains_key(&block) || self.under_way.len() >= 16 {
            return;
        }
        let value = self.prng.percent(60).then(|| self.prng.below(255) as u8 + 1);
        let bio = match value {
            Some(value) => Bio::write(block * 8, Buf::filled(4096, |bytes| bytes.fill(value))),
            None => Bio::read(block * 8, Buf::zeroed(4096)),
        };
        let number = self.ended + self.under_way.len() as u64;
        self.under_way.insert(block, (number, value));
        self.client.submit(bio.cookie(block), self.now).expect("room");
    }

    fn step(&mut self) {
        self.client.flush_plug(self.now);
        self.home.turn_all(self.now);
        self.home.bell().ready().take(|_| {});
        let mut ends = Vec::new();
        self.client.complete(self.now, |end| ends.push((end.cookie, end.status, end.data)));
        for (block, status, data) in ends {
            let (_, value) = self.under_way.remove(&block).expect("it was submitted once");
            self.ended += 1;
            self.failed += u64::from(status != Status::Ok);
            let may = self.may.entry(block).or_insert_with(|| vec![0]);
            match (value, status) {
                (Some(value), Status::Ok) => *may = vec![value],
                (Some(value), _) => may.push(value),
                (None, Status::Ok) => {
                    let bytes = bed::port::bytes_of(&[data]);
                    let first = bytes[0];
                    assert!(bytes.iter().all(|byte| *byte == first), "block {block} is torn");
                    assert!(may.contains(&first), "block {block} has {first}, not {may:?}");
                    // Whatever could have landed has.
                    *may = vec![first];
                }
                (None, _) => {}
            }
        }
    }

    fn play(mut self, steps: u64) -> (u64, u64) {
        for step in 0..steps {
            (0..self.prng.below(4)).for_each(|_| self.submit());
            let ns = if step % 50 == 0 { SECOND } else { MS };
            self.now = self.now + ns;
            self.step();
        }
        self.simulated.shared().target.clear_faults();
        for _ in 0..1000 {
            self.now = self.now + SECOND;
            self.step();
        }
        assert!(self.under_way.is_empty(), "requests without an end: {:?}", self.under_way);
        let stale = self.simulated.shared().target.stale_landings().to_vec();
        assert_eq!(stale, [], "writes that landed after newer ones");
        for (block, may) in &self.may {
            let mut bytes = [0; 512];
            self.simulated.shared().target.peek(0, block * 8, &mut bytes);
            assert!(may.contains(&bytes[0]), "block {block} has {}, not {may:?}", bytes[0]);
        }
        (self.ended, self.failed)
    }
}

fn seeds(count: u64) -> std::ops::Range<u64> {
    let read = |what: &str| {
        let text = std::env::var(format!("SIMULATED_{what}")).ok();
        text.map(|text| text.parse().expect("a number"))
    };
    match (read("SEED"), read("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, many) => 0..many.unwrap_or(count),
    }
}

#[test]
fn a_target_without_faults_fails_nothing() {
    let (ended, failed) = Scene::new(1, Vec::new()).play(2000);
    assert!(ended > 1000);
    assert_eq!(failed, 0);
}

#[test]
fn whatever_the_target_does_what_was_acknowledged_is_there_and_every_request_ends() {
    let mut all = (0, 0);
    for seed in seeds(30) {
        println!("SIMULATED_SEED={seed}");
        let (ended, failed) = Scene::new(seed, faults()).play(1500);
        all = (all.0 + ended, all.1 + failed);
    }
    println!("{} requests, {} failed", all.0, all.1);
    assert!(all.0 > 1000, "{all:?}");
}

#[test]
fn a_full_task_set_lowers_nothing_but_the_rate() {
    let (ended, failed) = Scene::new(7, vec![fault(None, 20, Effect::Status(0x28))]).play(3000);
    assert!(ended > 500, "{ended}");
    assert_eq!(failed, 0);
}
