//! A stream from its job, and whether it is the plain case.

use weir_bio::{Flags, Nanos, SECTOR};

use super::Shape;
use crate::ask::Ask;
use crate::blocks::Blocks;
use crate::gate::Gate;
use crate::job::{Access, ByDirection, Direction, Ground, Job, JobError, Range};
use crate::map::{Cells, Map, Order};
use crate::overlaps::Overlaps;
use crate::pacer::Pacer;
use crate::pairs::Pairs;
use crate::pauses::Pauses;
use crate::place::{Distribution, Places};
use crate::plain::{Next, Plain};
use crate::replay::Replay;
use crate::sizes::Sizes;
use crate::walk::{Stride, Walk};

/// How far apart the seeds of arrivals are: the golden ratio, as for all seeds of a family.
const OF_DIRECTION: u64 = 0x9E37_79B9_7F4A_7C15;

/// Reads and writes at one rate that came at the same times would come in pairs.
fn pacers(job: &Job, seed: u64) -> ByDirection<Option<Pacer>> {
    let seed = |direction: usize| seed.wrapping_add(OF_DIRECTION.wrapping_mul(direction as u64));
    let paced = |direction: &usize| job.rate[*direction] > 0;
    let pacer = |direction| Pacer::new(job.rate[direction], job.arrival, seed(direction));
    [0, 1, 2].map(|direction| Some(direction).filter(paced).map(pacer))
}

/// Bytes that a pass moves.
fn pass_bytes(job: &Job, ground: Ground, range: Range, map: Option<&(Map, Cells)>) -> u64 {
    match (job.io_size, map) {
        // A trace ends where it ends.
        _ if job.replay.is_some() => u64::MAX,
        // A share is one of the range, and never nothing.
        (Some(bytes), _) => bytes.of(range.bytes, ground.block).max(1),
        // What is less than a cell at the end is in no map.
        (None, Some((_, cells))) => cells.count * cells.bytes,
        (None, None) => range.bytes,
    }
}

/// That pairs of a trim and a write are of a job that can have them.
fn check_pairs(job: &Job) -> Result<(), JobError> {
    if job.direction != Direction::TrimWrite {
        return Ok(());
    }
    match (job.verify, job.serialize_overlap) {
        (Some(_), _) => {
            Err(JobError(format!("verify with rw={}: trimmed blocks hold anything", job.rw())))
        }
        (None, true) => Err(JobError(format!("serialize_overlap with rw={}", job.rw()))),
        (None, false) => Ok(()),
    }
}

impl Shape {
    pub(super) fn new(
        job: &Job,
        ground: Ground,
        range: Range,
        seed: u64,
    ) -> Result<Shape, JobError> {
        let map = Map::of(job, range, seed)?;
        let is_random = |direction: &usize| {
            job.access == Access::Random && job.placed().contains(direction) && map.is_none()
        };
        // Sizes are checked for the directions that are used, and for no other.
        let grains = [0, 1, 2].map(|direction: usize| {
            job.align.unwrap_or_else(|| job.sizes[direction].least()).max(1)
        });
        let places = [0, 1, 2].map(|direction| {
            let count = (range.bytes / grains[direction]).max(1);
            is_random(&direction).then(|| Places::new(&job.distribution, count))
        });
        let pass_bytes = pass_bytes(job, ground, range, map.as_ref());
        let pairs = (job.direction == Direction::TrimWrite).then(Pairs::default);
        check_pairs(job)?;
        let overlaps = job.serialize_overlap && job.verify.is_none();
        Ok(Shape {
            range,
            access: job.access,
            direction: job.direction,
            reads: match job.direction {
                Direction::Read => 1 << 32,
                Direction::Write | Direction::Trim | Direction::TrimWrite => 0,
                Direction::Mixed => (u64::from(job.read_percent) << 32) / 100,
            },
            sizes: job.sizes.clone(),
            places,
            map,
            grains,
            walks: [Walk::new(job.step); 3],
            step: job.step,
            stride: job.strides.map(Stride::new),
            pacers: pacers(job, seed),
            due: None,
            freed_at: Nanos::ZERO,
            blocked: false,
            polls: job.poll,
            write_flags: match (job.background, job.durable) {
                (true, _) => Flags::BACKGROUND,
                (false, true) => Flags::SYNC | Flags::IDLE | Flags::FUA,
                (false, false) => Flags::SYNC | Flags::IDLE,
            },
            ioprio: job.ioprio,
            urgent: job.urgent.iter().any(|part| part.percent > 0).then_some(job.urgent),
            pauses: Pauses::new(job, seed),
            gate: Gate::of(job),
            pairs,
            flush_every: job.flush_every,
            unflushed: 0,
            blocks: job.verify.map(|how| Blocks::new(job, how, range)).transpose()?,
            overlaps: overlaps.then(Overlaps::default),
            pattern: if job.verify.is_none() { job.pattern.clone() } else { Vec::new() },
            flow: None,
            replay: Replay::of(job, range)?,
            counted: !job.time_based,
            pass_bytes,
            loops_left: job.loops - 1,
            next: None,
            stopped: false,
            asked: Ask::Blocked,
        })
    }

    pub(super) fn plain(&self, job: &Job) -> Plain {
        let bytes = self.sizes[job.placed()[0]].least();
        let fixed = Sizes::Fixed(bytes);
        let directions = job.directions();
        let alike = directions.iter().all(|direction| self.sizes[*direction] == fixed);
        let placed = match self.access {
            Access::Random => job.distribution == Distribution::Uniform && job.align.is_none(),
            // Reads and writes each go on where they were.
            Access::Sequential => directions.len() == 1 && job.step == 0,
        };
        let placed = placed && self.stride.is_none() && self.pairs.is_none();
        let unpaced = self.pauses.are_none() && self.pacers.iter().all(Option::is_none);
        let unwatched = self.flush_every == 0 && self.blocks.is_none() && self.gate.is_none();
        let unwatched = unwatched && self.overlaps.is_none() && job.flow.weight == 0;
        let unwatched = unwatched && job.replay.is_none() && self.urgent.is_none();
        // A pass that ends within the range is followed by one that begins at its start.
        let one_pass =
            job.loops == 1 || (job.io_size.is_none() && self.range.bytes.is_multiple_of(bytes));
        let until = match self.counted {
            _ if !(alike && placed && unpaced && unwatched) => 0,
            true if !one_pass => 0,
            true => self.pass_bytes.div_ceil(bytes).saturating_mul(u64::from(job.loops)),
            false => u64::MAX,
        };
        let blocks = self.range.bytes / bytes;
        let other = if job.direction == Direction::Trim { 2 } else { 1 };
        Plain {
            until,
            reads: self.reads,
            next: match self.access {
                Access::Sequential => Next::Along,
                Access::Random if self.map.is_some() => Next::Mapped,
                // The low bits choose the direction, the upper choose the block. The mix of a
                // block is off by 1 in 256 at most up to so many.
                Access::Random if blocks <= 1 << 24 => Next::Narrow,
                Access::Random => Next::Wide,
            },
            choices: [other, 0].map(|direction| self.io(direction, 0, bytes, 0)),
            first: self.range.offset / SECTOR,
            blocks,
            sectors: bytes / SECTOR,
            at: 0,
            order: match &self.map {
                Some((Map::Order(order), _)) => *order,
                Some((Map::Cover(_), _)) | None => Order::new(1, 0),
            },
        }
    }
}
