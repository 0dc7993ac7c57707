//! The contract of a driver, held against any: one of weir's, or one from elsewhere.
//!
//! [`hold`] turns the driver's queues by hand, with nothing in front of them: what it finds is the
//! driver's. It stands in for an idle device of at least 1 MiB, which it overwrites.
//!
//! ```
//! use weir_laws::driver::{Kept, hold};
//! use weir_local::Ram;
//!
//! let ram = Ram::new(4 << 20).unwrap();
//! hold(&ram, Kept::All, 0..4);
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, Prng, SECTOR, Status};
use weir_queue::rig::{Answered, Rig};
use weir_queue::{Driver, Wake};

use crate::Tell;

/// Bursts of one seed.
const BURSTS: u32 = 40;

/// Sectors of a region: bios of one burst are in different ones.
const REGION: u64 = 128;

/// How often an answer is looked for, a millisecond apart, unless the driver wakes its lane before.
const LOOKS: u32 = 30_000;

/// What a device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All that was written is read.
    All,
    /// What is read may be anything.
    Nothing,
}

/// Holds a driver to its contract, once for each seed.
///
/// - Its limits hold together.
/// - A request that it takes is answered once, through `reap` and never inside `submit`, with all
///   the memory that it came with; the count in flight is right at every moment.
/// - A read gives what was written, zeroed or never touched, on whichever queue that was answered.
/// - A flush, and ops that its limits offer, succeed.
///
/// # Panics
/// At the first law that is broken, with the seed and the values. A request that is not answered
/// within half a minute is one that never is.
pub fn hold(driver: &dyn Driver, kept: Kept, seeds: Range<u64>) {
    let limits = driver.limits().validate().expect("limits that hold together");
    assert!(limits.capacity >= 8 * REGION, "{} sectors, too few to try", limits.capacity);
    assert!(!limits.read_only, "a device that can be written to");
    let queues = driver.queues();
    assert!(queues.max > 0 && queues.depth > queues.reserved, "{queues:?}");
    let regions = (limits.capacity / REGION).min(64);
    let mut model = Model { sectors: vec![None; (regions * REGION) as usize] };
    for seed in seeds {
        let _tell = Tell(format!("driver law: seed {seed}"));
        let mut prng = Prng::new(seed);
        let depth = queues.depth.min(32);
        let mut lanes: Vec<Lane> =
            (0..queues.max.min(2)).map(|index| Lane::open(driver, index, depth)).collect();
        for _ in 0..BURSTS {
            let at = prng.below(lanes.len() as u64) as usize;
            let first = prng.below(regions);
            let count = 1 + prng.below(regions.min(depth.into()));
            let bios = (0..count).map(|next| {
                let region = (first + next) % regions;
                random_bio(driver, &mut prng, region)
            });
            let bios: Vec<Bio> = bios.collect();
            let known: Vec<Known> = bios.iter().map(Known::of).collect();
            let answers = lanes[at].run(bios);
            for (known, answer) in known.iter().zip(&answers) {
                known.check(answer);
                match known.op {
                    Op::Read if kept == Kept::All => model.check(known.sector, &answer.data),
                    op => model.apply(op, known, &answer.data),
                }
            }
            if prng.percent(20) {
                let flush = Bio::new(Op::Flush, 0, 0, Data::None);
                assert_eq!(lanes[at].run(vec![flush])[0].status, Status::Ok, "a flush");
            }
        }
    }
}

/// A queue with its tags, turned by this thread.
struct Lane {
    rig: Rig,
    now: Nanos,
    depth: usize,
}

impl Lane {
    fn open(driver: &dyn Driver, index: u16, depth: u16) -> Lane {
        driver.prepare(index).expect("a queue that can be prepared");
        let mut queue = driver.open(index, depth).expect("a queue");
        queue.at_home(Arc::new(Unpark(std::thread::current())));
        Lane { rig: Rig::new(queue, depth), now: Nanos(1), depth: depth.into() }
    }

    /// Submits all, again and again where the driver refuses, and waits for all; the answers by
    /// the places of their bios.
    fn run(&mut self, bios: Vec<Bio>) -> Vec<Answered> {
        let wanted = bios.len();
        let bios = bios.into_iter().zip(0..).map(|(bio, place)| bio.cookie(place));
        let mut left: Vec<Bio> = bios.collect();
        let mut answers: Vec<Option<Answered>> = (0..wanted).map(|_| None).collect();
        let (mut ended, mut looks) = (0, 0);
        while ended < wanted {
            let before = self.rig.queue().in_flight();
            let later = left.split_off((self.depth - before).min(left.len()));
            let offered = left.len();
            let rest = self.rig.submit(left, self.now).map_or_else(Vec::new, |(_, rest)| rest);
            let taken = offered - rest.len();
            let held = self.rig.queue().in_flight();
            assert_eq!(held, before + taken, "requests in flight, {taken} of them just taken");
            left = rest.into_iter().chain(later).collect();
            let found = self.rig.reap(self.now);
            let held = self.rig.queue().in_flight();
            assert_eq!(
                held,
                before + taken - found.len(),
                "in flight after {} answers",
                found.len()
            );
            looks = if found.is_empty() { looks + 1 } else { 0 };
            assert!(looks < LOOKS, "{held} requests are not answered");
            ended += found.len();
            for answer in found {
                let place = answer.cookie as usize;
                answers[place] = Some(answer);
            }
            if ended < wanted && looks > 0 {
                self.wait();
            }
        }
        answers.into_iter().map(|answer| answer.expect("each has its own")).collect()
    }

    /// Waits until the driver may have an answer.
    fn wait(&mut self) {
        match self.rig.queue().wake_at() {
            Some(at) if at > self.now => self.now = at,
            _ => std::thread::park_timeout(Duration::from_millis(1)),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// What is known of a bio when it is answered.
struct Known {
    op: Op,
    sector: u64,
    sectors: u32,
    len: usize,
    /// The bytes of a write.
    bytes: Vec<u8>,
}

impl Known {
    fn of(bio: &Bio) -> Known {
        let bytes = if bio.op == Op::Write { bio.data.to_vec() } else { Vec::new() };
        let (op, sector, sectors, len) = (bio.op, bio.sector, bio.sectors, bio.data.len());
        Known { op, sector, sectors, len, bytes }
    }

    fn check(&self, answer: &Answered) {
        let Known { op, sector, sectors, .. } = self;
        let what = format!("{op:?} of {sectors} sectors at {sector}");
        assert_eq!(answer.status, Status::Ok, "{what}");
        assert_eq!(answer.data.len(), self.len, "{what}: bytes of memory that come back");
        if *op == Op::Write {
            assert!(answer.data.to_vec() == self.bytes, "{what}: its memory was changed");
        }
    }
}

/// The contents that the device has to have; `None` where anything may be.
struct Model {
    sectors: Vec<Option<[u8; SECTOR as usize]>>,
}

impl Model {
    fn apply(&mut self, op: Op, known: &Known, data: &Data) {
        let range = known.sector as usize..known.sector as usize + known.sectors as usize;
        match op {
            Op::Write => self.fill(known.sector, data),
            Op::WriteZeroes => self.sectors[range].fill(Some([0; SECTOR as usize])),
            Op::Discard => self.sectors[range].fill(None),
            _ => {}
        }
    }

    fn fill(&mut self, first: u64, data: &Data) {
        let bytes = data.to_vec();
        for (sector, new) in (first..).zip(bytes.as_chunks::<{ SECTOR as usize }>().0) {
            self.sectors[sector as usize] = Some(*new);
        }
    }

    /// What is read is what is known, and known from then on.
    fn check(&mut self, first: u64, data: &Data) {
        let bytes = data.to_vec();
        for (sector, found) in (first..).zip(bytes.as_chunks::<{ SECTOR as usize }>().0) {
            if let Some(expected) = self.sectors[sector as usize] {
                assert!(*found == expected, "sector {sector} is not what was written");
            }
        }
        self.fill(first, data);
    }
}

/// A bio of a kind that the driver offers, inside a region.
fn random_bio(driver: &dyn Driver, prng: &mut Prng, region: u64) -> Bio {
    let limits = driver.limits();
    let block = u64::from(limits.block_sectors());
    let blocks = (REGION / block).min((limits.max_sectors() / limits.block_sectors()).into());
    let first = prng.below(blocks);
    let count = 1 + prng.below(blocks - first);
    let (sector, sectors) = (region * REGION + first * block, (count * block) as u32);
    let bare = |op| Bio::new(op, sector, sectors, Data::None);
    let len = sectors as usize * SECTOR as usize;
    match prng.below(10) {
        0 if limits.max_discard_sectors() >= sectors => bare(Op::Discard),
        1 if limits.max_write_zeroes_sectors >= sectors => {
            let flags = if prng.percent(50) { Flags::NOUNMAP } else { Flags::NONE };
            bare(Op::WriteZeroes).with(flags)
        }
        2 => bare(Op::Prefetch),
        3..=5 => {
            let flags = if limits.fua && prng.percent(20) { Flags::FUA } else { Flags::NONE };
            let data = random_data(prng, len, limits.logical_block_size as usize);
            Bio::new(Op::Write, sector, sectors, data).with(flags)
        }
        _ => {
            let data = random_data(prng, len, limits.logical_block_size as usize);
            Bio::new(Op::Read, sector, sectors, data)
        }
    }
}

/// Memory of `len` bytes in one piece, in several, or in none.
fn random_data(prng: &mut Prng, len: usize, block: usize) -> Data {
    let mut filled = |len| Buf::filled(len, |bytes| prng.fill(bytes));
    let (first, rest) = (block, len - block);
    match (len / block) % 4 {
        // Memory that was used before, and is not to be read.
        0 => Data::Zero { len: len as u32, spare: Some(filled(len)) },
        1 | 2 if rest > 0 => Data::Many(vec![filled(first), filled(rest)].into()),
        _ => Data::One(filled(len)),
    }
}
