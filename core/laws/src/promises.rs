//! The promises of a disk to its writers, checked after its power was cut. The rule stands in
//! `crash.rs`.

use weir_bio::{Bio, Flags, Op, SECTOR};

use super::outage::{Cache, Store};
use super::{get, value};

/// One write as its writer sees it; a pure flush is one of no sector.
struct Write {
    cookie: u64,
    sector: u64,
    sectors: u32,
    /// It puts down zeros.
    zeros: bool,
    preflush: bool,
    fua: bool,
    /// `None` again when it was refused.
    submitted: Option<u64>,
    ended: Option<u64>,
    ok: bool,
}

/// Why a write has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// The device has no volatile cache.
    Acknowledged,
    /// It carried FUA.
    Fua,
    /// A later flush was acknowledged.
    Flush,
    /// The data of a later PREFLUSH bio is there.
    Preflush,
}

/// A sector that holds less than was promised.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    /// The sector.
    pub sector: u64,
    /// Cookie of the bio that wrote what is there, 0 for what was there first.
    pub found: u64,
    /// Cookie of a bio that was promised, and was submitted after that one had ended.
    pub promised: u64,
    /// Why it had to be there.
    pub why: Promise,
}

/// The result of a look at a disk.
#[derive(Debug, Default)]
pub struct Findings {
    /// Sectors that hold less than was promised.
    pub losses: Vec<Loss>,
    /// Writes that had to be there, or something newer.
    pub promised: u64,
}

/// All writes before the cut, in an order of moments.
#[derive(Default)]
pub struct Promises {
    moment: u64,
    writes: Vec<Write>,
}

impl Promises {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A bio that is no read is about to be submitted. Returns its number.
    pub fn submit(&mut self, bio: &Bio) -> usize {
        let submitted = Some(self.tick());
        self.writes.push(Write {
            cookie: bio.cookie,
            sector: bio.sector,
            sectors: bio.sectors,
            zeros: bio.op != Op::Write,
            preflush: bio.flags.has(Flags::PREFLUSH),
            fua: bio.flags.has(Flags::FUA),
            submitted,
            ended: None,
            ok: false,
        });
        self.writes.len() - 1
    }

    /// It was not accepted.
    pub fn withdraw(&mut self, number: usize) {
        self.writes[number].submitted = None;
    }

    /// Its writer was told how it ended.
    pub fn end(&mut self, number: usize, ok: bool) {
        let ended = Some(self.tick());
        let write = &mut self.writes[number];
        assert!(write.ended.is_none(), "bio {} ends twice", write.cookie);
        (write.ended, write.ok) = (ended, ok);
    }

    /// Holds an image against the promises.
    ///
    /// # Panics
    /// When a sector holds what was never written there.
    pub fn hold(&self, image: &Store, cache: Cache) -> Findings {
        let found: Vec<u64> = (0..image.capacity()).map(|sector| read(image, sector)).collect();
        let flushed = self.flushed();
        let preflushed = self.preflushed(&found).max(flushed);
        let mut findings = Findings::default();
        let mut promised = Vec::new();
        for write in &self.writes {
            let (Some(submitted), Some(ended), true) = (write.submitted, write.ended, write.ok)
            else {
                continue;
            };
            let why = match () {
                () if !cache.volatile => Promise::Acknowledged,
                () if write.fua => Promise::Fua,
                () if ended < flushed => Promise::Flush,
                () if ended < preflushed => Promise::Preflush,
                () => continue,
            };
            promised.push((write, submitted, why));
        }
        findings.promised = promised.iter().filter(|(write, ..)| write.sectors > 0).count() as u64;
        for (sector, found) in (0..).zip(found) {
            let (cookie, ended) = self.origin(sector, found);
            let missing = promised.iter().find(|(write, submitted, _)| {
                write.covers(sector) && ended.is_some_and(|ended| ended < *submitted)
            });
            if let Some((write, _, why)) = missing {
                let (promised, why) = (write.cookie, *why);
                findings.losses.push(Loss { sector, found: cookie, promised, why });
            }
        }
        findings
    }

    /// Everything that ended before this moment was flushed.
    fn flushed(&self) -> u64 {
        let flushes = self.writes.iter().filter(|write| write.preflush && write.ok);
        flushes.filter_map(|write| write.submitted).max().unwrap_or(0)
    }

    /// The same, to judge by PREFLUSH bios whose data is there.
    fn preflushed(&self, found: &[u64]) -> u64 {
        let there = self.writes.iter().filter(|write| {
            let mut sectors = write.sector..write.sector + u64::from(write.sectors);
            let there = |at: u64| found[at as usize] == value(write.cookie, at);
            write.preflush && !write.zeros && sectors.any(there)
        });
        there.filter_map(|write| write.submitted).max().unwrap_or(0)
    }

    /// The bio that wrote this value there, and when that ended: of several the last.
    fn origin(&self, sector: u64, found: u64) -> (u64, Option<u64>) {
        let writes = self.writes.iter().filter(|write| {
            write.submitted.is_some() && write.covers(sector) && write.value(sector) == found
        });
        let first = (found == 0).then_some((0, Some(0)));
        let origins = first.into_iter().chain(writes.map(|write| (write.cookie, write.ended)));
        let last = origins.max_by_key(|(_, ended)| ended.unwrap_or(u64::MAX));
        last.unwrap_or_else(|| {
            let (cookie, place) = (found >> 24, found & 0xff_ffff);
            panic!("sector {sector} holds what bio {cookie} wrote for sector {place} - 1")
        })
    }
}

impl Write {
    fn covers(&self, sector: u64) -> bool {
        (self.sector..self.sector + u64::from(self.sectors)).contains(&sector)
    }

    fn value(&self, sector: u64) -> u64 {
        if self.zeros { 0 } else { value(self.cookie, sector) }
    }
}

fn read(image: &Store, sector: u64) -> u64 {
    let mut bytes = [0; SECTOR as usize];
    image.read(sector * SECTOR, &mut bytes);
    get(&bytes)
}

/// Sectors that are not the same in both.
pub fn differing(a: &Store, b: &Store) -> u64 {
    (0..a.capacity()).filter(|sector| read(a, *sector) != read(b, *sector)).count() as u64
}
