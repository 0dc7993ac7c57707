//! A life that a power cut ends, below the whole queue core: what was promised to be durable is
//! there afterwards.
//!
//! It is a path through the core, a disk with one of the three caches of
//! docs/behaviour/block-layer.md, section 8.2 (`drivers/local`'s crash image, behind queues that
//! answer late, out of order, with errors or not at all for now), and several writers of
//! overlapping sectors, flushes, PREFLUSH and FUA. After a random event (a bio is handed in, the
//! disk takes a request or answers some, a writer is told) the power is cut, and three images of
//! the medium are held against one rule: the least that was promised, that and a random part of
//! the rest torn at sectors, and everything the disk took.
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

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Nanos, Op, Prng};
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, QueueMode, Submitter};

use super::Lived;
use crate::filled;
use crate::outage::{Cache, Disk, Mishaps, Supply};
use crate::path::{Order, Path};
use crate::promises::{Loss, Promises, differing};
use crate::sleepers::{App, House, Step};

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
pub enum Way {
    /// Single-queue, first in, first out.
    Sq,
    /// Single-queue with this scheduler.
    SqBy(Order),
    /// Multi-queue, no scheduler.
    Mq,
    /// Multi-queue, first in, first out.
    MqScheduled,
    /// Multi-queue with this scheduler.
    MqBy(Order),
    /// Multi-queue, by turns of the lanes.
    RoundRobin,
}

impl Way {
    fn draw(self, prng: &mut Prng) -> Path {
        let lanes = 1 + prng.below(3) as u16;
        let home = if prng.percent(50) { Affinity::Any } else { Affinity::Fixed };
        let path = match self {
            Way::Sq => return Path::sq(home),
            Way::SqBy(order) => return Path::sq(home).by(order),
            Way::Mq => Path::mq(lanes),
            Way::MqScheduled => Path::mq(lanes).scheduled(),
            Way::MqBy(order) => Path::mq(lanes).by(order),
            Way::RoundRobin => Path::mq(lanes).in_turn(),
        };
        if prng.percent(30) { path.sharing() } else { path }
    }
}

/// Every write that was answered is durable.
pub const NO_CACHE: Cache = Cache { volatile: false, fua: false };
/// A write is durable after a flush.
pub const CACHE: Cache = Cache { volatile: true, fua: false };
/// A write is durable after a flush, or with FUA.
pub const CACHE_WITH_FUA: Cache = Cache { volatile: true, fua: true };

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

/// What was found of a life after its power was cut.
#[derive(Debug)]
pub struct Found {
    /// Power was cut while writers were still at it.
    pub is_cut: bool,
    /// Sectors that hold less than was promised, of all images.
    pub losses: Vec<Loss>,
    /// Writes that had to be there in the least image.
    pub promised: u64,
    /// Sectors of the torn image that are not what the disk had been given.
    pub gone: u64,
    /// Flushes the disk took.
    pub flushes: u64,
    /// Writes with FUA that it took.
    pub fua: u64,
    /// How far it came.
    pub lived: Lived,
}

/// Plays it, and holds what is left of its disk against the rule.
///
/// # Panics
/// When a bio does not end, or a sector holds what was never written there.
pub fn play(way: Way, cache: Cache, barriers: bool, seed: u64) -> Found {
    let mut scene = Scene::new(way, cache, barriers, seed);
    scene.run();
    let crash = scene.supply.crash();
    let office = scene.office.borrow();
    let (mut losses, mut promised) = (Vec::new(), 0);
    // Of the last image, in which nothing is by chance.
    for image in [&crash.live, &crash.torn, &crash.durable] {
        let findings = office.promises.hold(image, scene.cache);
        losses.extend(findings.losses);
        promised = findings.promised;
    }
    let (flushes, fua) = scene.supply.barriers();
    let House { now, passes, .. } = scene.house;
    Found {
        is_cut: scene.supply.is_cut(),
        losses,
        promised,
        gone: differing(&crash.torn, &crash.live),
        flushes,
        fua,
        lived: Lived { bios: office.last_cookie, until: now, turns: passes },
    }
}

/// Lives by this seed.
///
/// # Panics
/// When a law is broken: something promised is lost, or as [`play`].
pub fn live(way: Way, cache: Cache, seed: u64) -> Lived {
    let found = play(way, cache, true, seed);
    assert!(found.losses.is_empty(), "lost what was promised: {:#?}", found.losses);
    found.lived
}
