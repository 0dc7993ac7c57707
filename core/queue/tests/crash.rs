//! Power loss below the whole queue core: what was promised to be durable is there afterwards.
//!
//! A scene is a path through the core, a disk with one of the three caches of
//! docs/behaviour/block-layer.md, section 8.2 (`drivers/local`'s crash image, behind queues that
//! answer late, out of order, with errors or not at all for now), and several writers of
//! overlapping sectors, flushes, PREFLUSH and FUA. Everything happens in one thread and in virtual
//! time. After a random event (a bio is handed in, the disk takes a request or answers some, a
//! writer is told) the power is cut, and three images of the medium are held against one rule: the
//! least that was promised, that and a random part of the rest torn at sectors, and everything the
//! disk took.
//!
//! The rule, in moments as the writers see them:
//!
//! 1. A write is *promised* when its writer was told, without error and before the cut, that it
//!    had ended, and one of these holds:
//!    - the disk has no volatile cache;
//!    - the write carried FUA;
//!    - a bio with PREFLUSH (a pure flush or not) was submitted after that and ended without error
//!      before the cut;
//!    - a bio with PREFLUSH was submitted after that, and any of its data is on the medium, whether
//!      it ended or not: none may arrive before its flush has ended.
//! 2. A sector holds what some write put there, or the zeros of the beginning, whole.
//! 3. That write did not end, well or with an error, before a promised write of the same sector was
//!    submitted.
//!
//! So writes that were under way together may lie in any order, and whatever is not promised may
//! be there or not. With `barriers=off` the same rule has to find losses: else it sees nothing.
//!
//! `CRASH_SEED=n` runs one seed, `CRASH_SEEDS=n` so many.

mod bed;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bed::outage::{Disk, Mishaps, Supply};
use bed::path::Path;
use bed::promises::{Loss, Promise, Promises, differing};
use bed::sleepers::{App, House, Step};
use bed::{Tell, filled, seeds};
use weir_bio::{Bio, Data, Flags, Nanos, Op, Prng};
use weir_local::ram::Cache;
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, QueueMode, Submitter};

/// Seeds of each path and cache.
const SEEDS: u64 = 1_000;

/// Seeds of each path and cache without barriers.
const SEEDS_WITHOUT: u64 = 200;

/// Few, so that writes overlap.
const SECTORS: u64 = 48;

const DEPTHS: [u16; 5] = [1, 2, 3, 8, 32];

/// The state that the writers share.
struct Office {
    promises: Promises,
    supply: Arc<Supply>,
    prng: Prng,
    last_cookie: u64,
    next_sector: u64,
}

/// Sends random bios through one submitter until the power is gone.
struct Writer {
    submitter: Submitter,
    office: Rc<RefCell<Office>>,
    /// By cookie: the number of the write, none for a read.
    notes: BTreeMap<u64, Option<usize>>,
    held: Option<Bio>,
    left: u32,
    window: usize,
    /// Until it is told something.
    waits: bool,
}

impl Writer {
    fn complete(&mut self, now: Nanos) {
        let (office, notes) = (&mut *self.office.borrow_mut(), &mut self.notes);
        self.submitter.complete(now, |ended| {
            let number = notes.remove(&ended.cookie).expect("a bio ends once, and only if sent");
            if office.supply.is_cut() {
                return;
            }
            if let Some(number) = number {
                office.promises.end(number, ended.status.is_ok());
            }
            office.supply.tick();
        });
    }

    fn submit_one(&mut self, now: Nanos) -> bool {
        let held = self.held.take();
        let (bio, number) = {
            let mut office = self.office.borrow_mut();
            let bio = held.unwrap_or_else(|| {
                self.left -= 1;
                office.invent()
            });
            let number = (bio.op != Op::Read).then(|| office.promises.submit(&bio));
            (bio, number)
        };
        self.notes.insert(bio.cookie, number);
        match self.submitter.submit(bio, now) {
            Ok(()) => {
                self.office.borrow().supply.tick();
                true
            }
            Err(refused) => {
                let bio = refused.into_bio();
                self.notes.remove(&bio.cookie);
                if let Some(number) = number {
                    self.office.borrow_mut().promises.withdraw(number);
                }
                self.held = Some(bio);
                self.waits = true;
                false
            }
        }
    }
}

impl App for Writer {
    fn run(&mut self, now: Nanos, told: bool) -> bool {
        self.waits &= !told;
        if told || self.office.borrow_mut().prng.percent(10) {
            self.complete(now);
        }
        if self.office.borrow().supply.is_cut() {
            (self.left, self.held) = (0, None);
        }
        let burst = 1 + self.office.borrow_mut().prng.below(6);
        let mut sent = 0;
        while sent < burst && self.is_eager() && self.submit_one(now) {
            sent += 1;
        }
        self.submitter.flush_plug(now);
        // A writer that waits for the bios it has sent writes over sectors whose writes it knows to
        // have ended.
        if !self.notes.is_empty() && self.office.borrow_mut().prng.percent(50) {
            self.waits = true;
        }
        sent > 0
    }

    fn is_eager(&self) -> bool {
        let more = self.left > 0 || self.held.is_some();
        !self.waits && more && self.notes.len() < self.window
    }
}

impl Office {
    fn invent(&mut self) -> Bio {
        self.last_cookie += 1;
        let cookie = self.last_cookie;
        let op = match self.prng.below(100) {
            0..70 => Op::Write,
            70..74 => Op::WriteZeroes,
            74..76 => Op::Discard,
            76..80 => Op::Read,
            _ => return Bio::flush().cookie(cookie),
        };
        let longest = if self.prng.percent(20) { 24 } else { 6 };
        let sectors = 1 + self.prng.below(longest);
        let mut sector = self.prng.below(SECTORS - sectors + 1);
        if self.prng.percent(40) && self.next_sector + sectors <= SECTORS {
            sector = self.next_sector;
        }
        self.next_sector = sector + sectors;
        let data = match op.has_data() {
            true => filled(cookie, sector, &[sectors as u32]),
            false => Data::None,
        };
        let mut bio = Bio::new(op, sector, sectors as u32, data).cookie(cookie);
        if op != Op::Read {
            for (flag, percent) in [(Flags::PREFLUSH, 15), (Flags::FUA, 15), (Flags::SYNC, 50)] {
                if self.prng.percent(percent) {
                    bio.flags |= flag;
                }
            }
        }
        bio
    }
}

/// A path of which lanes, homes and tags are still to be drawn.
#[derive(Clone, Copy, Debug)]
enum Way {
    Sq,
    Mq,
    MqScheduled,
    RoundRobin,
}

impl Way {
    fn draw(self, prng: &mut Prng) -> Path {
        let lanes = 1 + prng.below(3) as u16;
        let home = if prng.percent(50) { Affinity::Any } else { Affinity::Fixed };
        let path = match self {
            Way::Sq => return Path::sq(home),
            Way::Mq => Path::mq(lanes),
            Way::MqScheduled => Path::mq(lanes).scheduled(),
            Way::RoundRobin => Path::mq(lanes).in_turn(),
        };
        if prng.percent(30) { path.sharing() } else { path }
    }
}

const NO_CACHE: Cache = Cache { volatile: false, fua: false };
const CACHE: Cache = Cache { volatile: true, fua: false };
const CACHE_WITH_FUA: Cache = Cache { volatile: true, fua: true };

struct Scene {
    device: Device,
    house: House<Writer>,
    office: Rc<RefCell<Office>>,
    supply: Arc<Supply>,
    cache: Cache,
}

impl Scene {
    fn new(way: Way, cache: Cache, barriers: bool, seed: u64) -> Scene {
        let mut prng = Prng::new(seed ^ 0xc4a5_4000);
        let path = way.draw(&mut prng);
        let writers = 2 + prng.below(3);
        let bios = 8 + prng.below(14);
        // A bio is about five events.
        let cut_at = 1 + prng.below(writers * bios * 5);
        let supply = Supply::new(SECTORS, cache, cut_at, prng.next());
        let mut pick = |of: &[u64]| of[prng.below(of.len() as u64) as usize];
        let mishaps = Mishaps {
            refused: pick(&[0, 0, 10]) as u32,
            failed: pick(&[0, 5, 15]) as u32,
            slow_ns: pick(&[0, 1_000, 100_000]),
        };
        let max_sectors = pick(&[8, 16, 1024]) as u32;
        let nomerges = pick(&[0, 0, 2]) as u8;
        let depth = DEPTHS[prng.below(DEPTHS.len() as u64) as usize];
        let queues = Disk::queues(depth, path.shared_tags, path.home);
        let (power, seed) = (Arc::clone(&supply), prng.next());
        let disk = Disk { supply: power, queues, max_sectors, mishaps, seed };
        let config = Config { nomerges, barriers, timeout_ns: 0, ..Config::default() };
        let device = path.device(config, Arc::new(disk));
        let office = Rc::new(RefCell::new(Office {
            promises: Promises::default(),
            supply: Arc::clone(&supply),
            prng: Prng::new(prng.next()),
            last_cookie: 0,
            next_sector: 0,
        }));
        let house = furnish(path, &mut prng, &device, &office, (writers, bios));
        Scene { device, house, office, supply, cache }
    }

    /// Until everything has ended, before the cut or after it.
    fn run(&mut self) {
        while self.house.step() == Step::Went {}
        let done = |writer: &Writer| writer.notes.is_empty() && writer.left == 0;
        assert!(self.house.apps.iter().all(done), "a wake-up was lost\n{}", self.house.state());
        assert_eq!(self.device.stats().in_flight, 0, "at rest");
    }
}

/// Homes with lanes, homes of writers alone, and the writers.
fn furnish(
    path: Path,
    prng: &mut Prng,
    device: &Device,
    office: &Rc<RefCell<Office>>,
    (writers, bios): (u64, u64),
) -> House<Writer> {
    let lane_homes = 1 + prng.below(2) as usize;
    let homes = lane_homes + prng.below(3) as usize;
    let supply = Arc::clone(&office.borrow().supply);
    let mut house = House::new(homes, prng.next(), |_| None, move || supply.events());
    for lane in 0..usize::from(path.lanes) {
        house.open_lane(device, lane, lane % lane_homes);
    }
    if path.mode == QueueMode::Sq && path.home == Affinity::Any {
        (1..lane_homes).for_each(|home| house.open_lane(device, 0, home));
    }
    for _ in 0..writers {
        let home = prng.below(homes as u64) as usize;
        let token = house.next_token(home);
        let lane = prng.below(8) as usize;
        let submitter = device.submitter(house.homes[home].home.bell(), token, lane).unwrap();
        let window = 1 + prng.below(12) as usize;
        let (office, left) = (Rc::clone(office), bios as u32);
        let (notes, held, waits) = (BTreeMap::new(), None, false);
        house.add_app(home, Writer { submitter, office, notes, held, left, window, waits });
    }
    house
}

/// The joint result of all seeds of a row.
#[derive(Debug, Default)]
struct Tally {
    /// Power was cut while writers were still at it.
    cut: u64,
    /// Writes that had to be there in the end.
    promised: u64,
    /// Sectors of the torn image that are not what the disk had been given.
    gone: u64,
    flushes: u64,
    fua: u64,
    /// Seeds that lost something promised in such a way.
    losses: BTreeMap<Promise, u64>,
}

impl Tally {
    /// Runs a scene and holds what is left of its disk against the rule.
    fn add(&mut self, way: Way, cache: Cache, barriers: bool, seed: u64) -> Vec<Loss> {
        let mut scene = Scene::new(way, cache, barriers, seed);
        scene.run();
        self.cut += u64::from(scene.supply.is_cut());
        let crash = scene.supply.crash();
        let promises = &scene.office.borrow().promises;
        let mut losses = Vec::new();
        for image in [&crash.live, &crash.torn, &crash.durable] {
            let findings = promises.hold(image, scene.cache);
            losses.extend(findings.losses);
            // Of the last image, in which nothing is by chance.
            self.promised +=
                if std::ptr::eq(image, &crash.durable) { findings.promised } else { 0 };
        }
        self.gone += differing(&crash.torn, &crash.live);
        let (flushes, fua) = scene.supply.barriers();
        self.flushes += flushes;
        self.fua += fua;
        let mut ways: Vec<Promise> = losses.iter().map(|loss| loss.why).collect();
        ways.sort_unstable();
        ways.dedup();
        ways.into_iter().for_each(|why| *self.losses.entry(why).or_default() += 1);
        losses
    }
}

fn tell(way: Way, cache: Cache, seed: u64) -> Tell {
    Tell(format!("path {way:?}, {cache:?}\nCRASH_SEED={seed}"))
}

fn keep_the_promises(way: Way, cache: Cache) {
    let (mut tally, mut count) = (Tally::default(), 0);
    for seed in seeds("CRASH", SEEDS) {
        let _tell = tell(way, cache, seed);
        let losses = tally.add(way, cache, true, seed);
        assert!(losses.is_empty(), "lost what was promised: {losses:#?}");
        count += 1;
    }
    println!("{way:?}, {cache:?}: {count} seeds, {tally:?}");
    if count < SEEDS {
        return;
    }
    // The seeds try what they are meant to.
    assert!(tally.cut > count / 2, "{} of {count} scenes lost their power", tally.cut);
    assert!(tally.promised > count, "{} writes were promised", tally.promised);
    assert_eq!(tally.flushes > count, cache.volatile, "{} flushes", tally.flushes);
    assert_eq!(tally.fua > count / 4, cache.fua, "{} FUA writes", tally.fua);
    assert!(tally.gone > count / 4, "{} sectors were torn away", tally.gone);
}

macro_rules! rows {
    ($($name:ident: $way:ident, $cache:ident;)*) => {
        $(#[test]
        fn $name() {
            keep_the_promises(Way::$way, $cache);
        })*
    };
}

rows! {
    sq_without_a_cache_keeps_what_it_acknowledged: Sq, NO_CACHE;
    sq_with_a_cache_keeps_what_it_flushed: Sq, CACHE;
    sq_with_a_cache_and_fua_keeps_what_it_flushed: Sq, CACHE_WITH_FUA;
    mq_without_a_cache_keeps_what_it_acknowledged: Mq, NO_CACHE;
    mq_with_a_cache_keeps_what_it_flushed: Mq, CACHE;
    mq_with_a_cache_and_fua_keeps_what_it_flushed: Mq, CACHE_WITH_FUA;
    mq_scheduled_without_a_cache_keeps_what_it_acknowledged: MqScheduled, NO_CACHE;
    mq_scheduled_with_a_cache_keeps_what_it_flushed: MqScheduled, CACHE;
    mq_scheduled_with_a_cache_and_fua_keeps_what_it_flushed: MqScheduled, CACHE_WITH_FUA;
    round_robin_without_a_cache_keeps_what_it_acknowledged: RoundRobin, NO_CACHE;
    round_robin_with_a_cache_keeps_what_it_flushed: RoundRobin, CACHE;
    round_robin_with_a_cache_and_fua_keeps_what_it_flushed: RoundRobin, CACHE_WITH_FUA;
}

#[test]
fn with_barriers_off_a_cache_loses_what_was_flushed_and_the_test_sees_it() {
    for way in [Way::Sq, Way::Mq, Way::MqScheduled, Way::RoundRobin] {
        for cache in [CACHE, CACHE_WITH_FUA] {
            let (mut tally, mut count) = (Tally::default(), 0);
            for seed in seeds("CRASH", SEEDS_WITHOUT) {
                let _tell = tell(way, cache, seed);
                tally.add(way, cache, false, seed);
                count += 1;
            }
            println!("{way:?}, {cache:?}, barriers off: {tally:?}");
            assert_eq!((tally.flushes, tally.fua), (0, 0), "{way:?}: barriers reach the disk");
            for why in [Promise::Fua, Promise::Flush, Promise::Preflush] {
                let losses = tally.losses.get(&why).copied().unwrap_or(0);
                assert!(count < SEEDS_WITHOUT || losses > 0, "{way:?}: no loss of {why:?}");
            }
        }
    }
}

#[test]
fn with_barriers_off_a_disk_without_a_cache_loses_nothing() {
    for way in [Way::Sq, Way::Mq, Way::MqScheduled, Way::RoundRobin] {
        for seed in seeds("CRASH", SEEDS_WITHOUT) {
            let _tell = tell(way, NO_CACHE, seed);
            let losses = Tally::default().add(way, NO_CACHE, false, seed);
            assert!(losses.is_empty(), "{losses:#?}");
        }
    }
}
