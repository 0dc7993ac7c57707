//! The writes of a verifying job: the generation of each block, and what is under way.
//!
//! Two I/Os under way on one block would leave it to chance which is last, so a job that verifies
//! never has them.

use std::collections::BTreeMap;

use weir_bio::{Op, SECTOR};

use crate::ask::Fault;
use crate::backlog::{Backlog, Span};
use crate::job::{Access, Job, JobError, Range, Verify};
use crate::order::Strides;
use crate::verify::{self, Format, Stamp};

/// Blocks that a job can keep track of: 4 bytes of memory each.
const BLOCKS_MAX: u64 = 1 << 28;

/// Generations of the blocks of a range.
#[derive(Clone, Debug)]
pub struct Blocks {
    how: Verify,
    seed: u64,
    pattern: Vec<u8>,
    first: u64,
    /// Bytes of a block.
    grain: u64,
    /// Blocks of the smallest I/O.
    blocks_of_io: u64,
    /// By block: how often it was written; 0 where nothing is known.
    generations: Vec<u32>,
    /// Blocks of the I/Os under way, by first block: last block and token.
    busy: BTreeMap<u64, (u64, u16)>,
    /// By token: what is under way.
    going: Vec<Option<Going>>,
    free: Vec<u16>,
    /// The next block to look at while everything is read back.
    reading: Option<u64>,
    /// Whether a block that this job did not write must hold one all the same: jobs that only
    /// read look for what an earlier job wrote.
    foreign: bool,
    reads_back: bool,
    backlog: Option<Backlog>,
}

/// The next block to be read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    At {
        offset: u64,
        bytes: u64,
        token: u16,
    },
    /// Something under way has to end first.
    Later,
    /// There is no more.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Going {
    op: Op,
    first: u64,
    last: u64,
}

impl Blocks {
    /// The blocks of `range`, none of which has been written.
    ///
    /// # Errors
    /// More blocks than can be kept track of; sizes that are no multiples of the smallest.
    pub fn new(job: &Job, how: Verify, range: Range) -> Result<Blocks, JobError> {
        let sizes = job.directions().iter().map(|direction| &job.sizes[*direction]);
        let (grain, least) = (grain(job), least(job));
        let uneven = sizes.flat_map(|sizes| sizes.each()).find(|size| size % least != 0);
        if let Some(size) = uneven {
            return Err(JobError(format!(
                "verify needs sizes that are multiples of the smallest, {least}: bs={size}"
            )));
        }
        if !least.is_multiple_of(grain) || !grain.is_multiple_of(SECTOR) {
            return Err(JobError(format!(
                "verify_interval={grain} is not a multiple of {SECTOR} of which bs={least} is one"
            )));
        }
        check_places(job, least)?;
        if !range.offset.is_multiple_of(least) {
            return Err(JobError(format!(
                "verify needs a range that begins on a block: offset={} is not a multiple of \
                 bs={least}",
                range.offset
            )));
        }
        let count = range.bytes / grain;
        if count > BLOCKS_MAX {
            return Err(JobError(format!(
                "verify keeps track of {BLOCKS_MAX} blocks at most: size={} has {count} of \
                 {grain} bytes",
                range.bytes
            )));
        }
        Ok(Blocks {
            how,
            seed: job.seed,
            pattern: job.pattern.clone(),
            first: range.offset / grain,
            grain,
            blocks_of_io: least / grain,
            generations: vec![0; count as usize],
            busy: BTreeMap::new(),
            going: Vec::new(),
            free: Vec::new(),
            reading: None,
            foreign: job.directions() == [0],
            reads_back: job.read_back,
            backlog: Backlog::of(job),
        })
    }

    /// The bytes of memory that those of `range` would take; 0 where nothing is verified.
    pub(crate) fn bytes(job: &Job, range: Range) -> u64 {
        match job.verify {
            Some(_) => (range.bytes / grain(job))
                .saturating_mul(size_of::<u32>() as u64)
                .saturating_add(u64::from(job.verify_backlog[0]) * size_of::<Span>() as u64),
            None => 0,
        }
    }

    /// Begins reading back all that was written and is not checked yet; false when that is nothing.
    pub fn read_back(&mut self) -> bool {
        let any = match &self.backlog {
            Some(backlog) => backlog.has_unchecked(),
            None => self.generations.iter().any(|generation| *generation > 0),
        };
        self.reading = (any && self.reads_back).then_some(0);
        self.reading.is_some()
    }

    /// What is to be read and checked now, with so many I/Os under way, if anything is.
    pub(crate) fn look(&mut self, in_flight: u64) -> Option<Look> {
        if self.backlog.is_none() {
            return self.reading.map(|_| self.next_written());
        }
        let backlog = self.backlog.as_mut()?;
        if self.reading.is_some() {
            let Some(Span { first, last }) = backlog.next_unchecked() else {
                return Some(Look::Over);
            };
            return Some(self.look_at(first, last));
        }
        if backlog.is_due() && in_flight > 0 {
            return Some(Look::Later);
        }
        let Span { first, last } = backlog.next()?;
        let (offset, blocks) = (first * self.grain, last - first + 1);
        let bytes = blocks * self.grain;
        let Some(token) = self.begin(Op::Read, offset, (bytes / SECTOR) as u32) else {
            return Some(Look::Later);
        };
        self.backlog.as_mut()?.taken();
        Some(Look::At { offset, bytes, token })
    }

    fn next_written(&mut self) -> Look {
        let from = self.reading.unwrap_or(0) as usize;
        let found = self.generations[from..].iter().position(|generation| *generation > 0);
        let Some(index) = found.map(|index| from + index) else {
            self.reading = Some(self.generations.len() as u64);
            return Look::Over;
        };
        // Each write has its blocks from a multiple of its size on.
        let most = self.generations[index..].iter().take(self.blocks_of_io as usize);
        let count = most.take_while(|generation| **generation > 0).count() as u64;
        self.reading = Some(index as u64 + count);
        let first = self.first + index as u64;
        self.look_at(first, first + count - 1)
    }

    fn look_at(&mut self, first: u64, last: u64) -> Look {
        let token = self.note(Going { op: Op::Read, first, last });
        Look::At { offset: first * self.grain, bytes: (last - first + 1) * self.grain, token }
    }

    /// Notes an I/O as under way; `None` if another is on one of its blocks.
    pub(crate) fn begin(&mut self, op: Op, offset: u64, sectors: u32) -> Option<u16> {
        let first = offset / self.grain;
        let last = (offset + u64::from(sectors) * SECTOR - 1) / self.grain;
        let before = self.busy.range(..=last).next_back();
        if before.is_some_and(|(_, (end, _))| *end >= first) {
            return None;
        }
        let token = self.note(Going { op, first, last });
        self.busy.insert(first, (last, token));
        if op == Op::Write {
            self.each(first, last, |generation| *generation = generation.wrapping_add(1).max(1));
            self.backlog.iter_mut().for_each(Backlog::begun);
        }
        Some(token)
    }

    fn note(&mut self, going: Going) -> u16 {
        let token = self.free.pop().unwrap_or_else(|| {
            self.going.push(None);
            (self.going.len() - 1) as u16
        });
        self.going[usize::from(token)] = Some(going);
        token
    }

    fn each(&mut self, first: u64, last: u64, change: impl Fn(&mut u32)) {
        let (from, to) = ((first - self.first) as usize, (last - self.first) as usize);
        // A range need not end with a whole block.
        let to = to.min(self.generations.len() - 1);
        self.generations[from..=to].iter_mut().for_each(change);
    }

    fn going(&self, token: u16) -> Going {
        self.going[usize::from(token)].expect("a token of something under way")
    }

    fn stamps(&self, token: u16) -> impl Iterator<Item = Stamp> + '_ {
        let Going { first, last, .. } = self.going(token);
        (first..=last).map(|block| {
            let generation = self.generations.get((block - self.first) as usize);
            Stamp { offset: block * self.grain, generation: generation.copied().unwrap_or(0) }
        })
    }

    fn format(&self) -> Format<'_> {
        Format { how: self.how, seed: self.seed, pattern: &self.pattern }
    }

    pub(crate) fn fill(&self, token: u16, bytes: &mut [u8]) {
        let blocks = bytes.chunks_mut(self.grain as usize);
        for (stamp, block) in self.stamps(token).zip(blocks) {
            verify::write(self.format(), stamp, block);
        }
    }

    /// How many blocks are what they should be.
    pub(crate) fn check(&self, token: u16, bytes: &[u8]) -> Result<u64, Fault> {
        let mut known = 0;
        for (stamp, block) in self.stamps(token).zip(bytes.chunks(self.grain as usize)) {
            // A block that was never written may hold anything.
            if stamp.generation > 0 || self.foreign {
                verify::check(self.format(), stamp, block)?;
                known += 1;
            }
        }
        Ok(known)
    }

    pub(crate) fn ended(&mut self, token: u16, ok: bool) {
        let going = self.going[usize::from(token)].take().expect("ended once");
        self.free.push(token);
        if self.busy.get(&going.first).is_some_and(|(_, mine)| *mine == token) {
            self.busy.remove(&going.first);
        }
        // A trimmed block holds anything, and so does one whose write failed.
        if going.op == Op::Discard || (going.op == Op::Write && !ok) {
            self.each(going.first, going.last, |generation| *generation = 0);
        }
        if let Some(backlog) = self.backlog.as_mut().filter(|_| going.op == Op::Write && ok) {
            backlog.written(Span { first: going.first, last: going.last });
        }
    }
}

/// Bytes of a block of a job that verifies: its smallest I/O, or a part of it.
fn grain(job: &Job) -> u64 {
    let least = least(job);
    match job.verify_interval {
        0 => least,
        bytes => bytes.min(least),
    }
}

/// Bytes of its smallest I/O.
fn least(job: &Job) -> u64 {
    let sizes = job.directions().iter().map(|direction| job.sizes[*direction].least());
    sizes.min().unwrap_or(SECTOR).max(1)
}

/// That each I/O begins on a block: one that begins within a block would be read back as part of
/// two that it is not.
fn check_places(job: &Job, grain: u64) -> Result<(), JobError> {
    let align = job.align.filter(|_| job.access == Access::Random);
    // The parts begin so far from each other; of a range that ends with one, no I/O does.
    let apart = job.strides.map(|Strides { range, skip, .. }| range.saturating_add(skip));
    for (what, bytes) in [
        ("rw step", Some(job.step.unsigned_abs())),
        ("blockalign", align),
        ("zonerange + zoneskip", apart),
    ] {
        if let Some(bytes) = bytes.filter(|bytes| !bytes.is_multiple_of(grain)) {
            return Err(JobError(format!(
                "verify needs I/Os that begin on a block: {what}={bytes} is not a multiple of \
                 bs={grain}"
            )));
        }
    }
    Ok(())
}
