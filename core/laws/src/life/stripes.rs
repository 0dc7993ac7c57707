//! A life that a power cut ends, under a striped device: what was promised to be durable is there
//! afterwards, on whichever legs it lies.
//!
//! The legs are disks in memory with one of three caches, some with FUA and some without. Writes,
//! flushes, PREFLUSH and FUA go in at random, and at a random moment all legs lose their power at
//! once. What they hold then is put together as the layout says, and held against the rule of
//! [`super::cut`].

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Nanos, Op, Prng, SECTOR};
use weir_map::{Area, Layout, Mapped, Place, Shape};
use weir_queue::{Bell, Config, Device, Home, NoWake, Submitter};

use super::Lived;
use crate::filled;
use crate::outage::{Cache, CrashRam, Store};
use crate::promises::Promises;

const SECTORS: u64 = 48;

/// Rounds in which what is under way ends: more than any takes.
const ROUNDS_MAX: u32 = 100_000;

const CACHES: [[Cache; 3]; 3] = {
    const NONE: Cache = Cache { volatile: false, fua: false };
    const CACHE: Cache = Cache { volatile: true, fua: false };
    const FUA: Cache = Cache { volatile: true, fua: true };
    [[NONE, NONE, NONE], [CACHE, CACHE, FUA], [FUA, NONE, CACHE]]
};

/// A stripe over three disks in memory, and behind it a linear area on the last.
struct Rig {
    layout: Layout,
    rams: Vec<Arc<CrashRam>>,
    home: Home,
    submitter: Submitter,
    now: u64,
    promises: Promises,
    /// By cookie: the number of a write.
    notes: BTreeMap<u64, usize>,
}

impl Rig {
    fn new(prng: &mut Prng, caches: [Cache; 3], barriers: bool) -> Rig {
        let chunk = [1, 2, 4][prng.below(3) as usize];
        let stripes = (0..3).map(|leg| Place { leg, offset: leg as u64 }).collect();
        let linear = Shape::Linear(Place { leg: 2, offset: 20 });
        let layout = Layout::new(vec![
            Area { start: 0, sectors: 36, shape: Shape::Striped { chunk, stripes } },
            Area { start: 36, sectors: SECTORS - 36, shape: linear },
        ]);
        let ram = |cache| Arc::new(CrashRam::new(40 * SECTOR, cache).unwrap());
        let rams = caches.map(ram).to_vec();
        let names = ["none", "mq-deadline"];
        let mut config = |barriers| Config {
            scheduler: Some(String::from(names[prng.below(2) as usize])),
            timeout_ns: 0,
            barriers,
            ..Config::default()
        };
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        let leg =
            |ram: &Arc<CrashRam>| Device::new(config(barriers), Arc::clone(ram) as _).unwrap();
        let legs: Vec<Device> = rams.iter().map(leg).collect();
        let mapped = Arc::new(Mapped::new(layout.clone(), legs.clone()));
        let above = Device::new(config(true), mapped).unwrap();
        legs.iter().chain([&above]).for_each(|device| _ = home.open(device, 0).unwrap());
        let submitter = above.submitter(home.bell(), 0, 0).unwrap();
        let (promises, notes) = (Promises::default(), BTreeMap::new());
        Rig { layout, rams, home, submitter, now: 1, promises, notes }
    }

    fn submit(&mut self, bio: Bio) {
        let (cookie, is_read) = (bio.cookie, bio.op == Op::Read);
        let number = (!is_read).then(|| self.promises.submit(&bio));
        match self.submitter.submit(bio, Nanos(self.now)) {
            Ok(()) => _ = number.map(|number| self.notes.insert(cookie, number)),
            Err(_) => _ = number.map(|number| self.promises.withdraw(number)),
        }
    }

    /// One round of the lanes, after which what has ended is told with the chance of a coin.
    fn round(&mut self, prng: &mut Prng) {
        self.now += 1_000;
        self.submitter.flush_plug(Nanos(self.now));
        self.home.bell().ready().take(|_| {});
        self.home.turn(Nanos(self.now));
        if prng.percent(50) {
            let (promises, notes) = (&mut self.promises, &mut self.notes);
            self.submitter.complete(Nanos(self.now), |ended| {
                if let Some(number) = notes.remove(&ended.cookie) {
                    promises.end(number, ended.status.is_ok());
                }
            });
        }
    }

    /// Ends what is under way.
    fn rest(&mut self) {
        let mut rounds = 0;
        while self.submitter.in_flight() > 0 {
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "{} bios do not end", self.submitter.in_flight());
            self.now += 1_000;
            self.submitter.flush_plug(Nanos(self.now));
            self.home.turn_all(Nanos(self.now));
            self.submitter.complete(Nanos(self.now), drop);
        }
    }

    /// The disk as the layout puts it together from images of its legs.
    fn assembled(&self, images: &[&Store]) -> Store {
        let whole = Store::new(SECTORS * SECTOR).unwrap();
        let mut bytes = [0; SECTOR as usize];
        for sector in 0..SECTORS {
            let piece = self.layout.front(sector, 1);
            images[piece.leg].read(piece.sector * SECTOR, &mut bytes);
            whole.write(sector * SECTOR, &bytes).expect("memory");
        }
        whole
    }

    /// The losses at this moment, in the least that was promised, a torn image and a live one; and
    /// how many writes were promised.
    fn cut(&self, seed: u64, cache: Cache) -> (usize, u64) {
        let crashes: Vec<_> = self.rams.iter().map(|ram| ram.crash(seed)).collect();
        let durable: Vec<&Store> = crashes.iter().map(|crash| &crash.durable).collect();
        let torn: Vec<&Store> = crashes.iter().map(|crash| &crash.torn).collect();
        let live: Vec<&Store> = crashes.iter().map(|crash| &crash.live).collect();
        let mut losses = 0;
        for images in [&torn, &live] {
            losses += self.promises.hold(&self.assembled(images), cache).losses.len();
        }
        let findings = self.promises.hold(&self.assembled(&durable), cache);
        (losses + findings.losses.len(), findings.promised)
    }
}

fn invent(prng: &mut Prng, cookie: u64) -> Bio {
    let op = match prng.below(100) {
        0..70 => Op::Write,
        70..76 => Op::WriteZeroes,
        76..80 => Op::Discard,
        _ => return Bio::flush().cookie(cookie),
    };
    let sectors = 1 + prng.below(9);
    let sector = prng.below(SECTORS - sectors + 1);
    let data = match op.has_data() {
        true => filled(cookie, sector, &[sectors as u32]),
        false => Data::None,
    };
    let mut bio = Bio::new(op, sector, sectors as u32, data).cookie(cookie);
    for (flag, percent) in [(Flags::PREFLUSH, 15), (Flags::FUA, 15), (Flags::SYNC, 50)] {
        if prng.percent(percent) {
            bio.flags |= flag;
        }
    }
    bio
}

/// Sectors lost and writes promised in the life by this seed; `barriers`: legs flush.
///
/// # Panics
/// When a bio does not end, or a sector holds what was never written there.
pub fn play(seed: u64, barriers: bool) -> (usize, u64) {
    let mut prng = Prng::new(seed);
    let caches = CACHES[prng.below(3) as usize];
    let mut rig = Rig::new(&mut prng, caches, barriers);
    let mut cookie = 0;
    for _ in 0..5 + prng.below(120) {
        for _ in 0..prng.below(3) {
            cookie += 1;
            rig.submit(invent(&mut prng, cookie));
        }
        rig.round(&mut prng);
    }
    // The rule asks for least of the disk whose every leg has a cache.
    let volatile = caches.iter().any(|cache| cache.volatile);
    let found = rig.cut(prng.next(), Cache { volatile, fua: volatile });
    rig.rest();
    found
}

/// Lives by this seed.
///
/// # Panics
/// When a law is broken.
pub fn live(seed: u64) -> Lived {
    let (losses, promised) = play(seed, true);
    assert_eq!(losses, 0, "sectors hold less than was promised");
    Lived { bios: promised, ..Lived::default() }
}
