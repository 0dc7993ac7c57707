//! One job: a stream of I/Os over a range, described as fio describes it.

use std::fmt;

use weir_bio::{Op, Prng, SECTOR};

/// Where the next I/O goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Uniformly random blocks.
    #[default]
    Random,
    /// One block after the other, starting again at the end.
    Sequential,
}

/// What the next I/O does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Both: so many reads in 100.
    Mixed(u8),
    /// Discards only.
    Trim,
}

/// A job. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Where.
    pub access: Access,
    /// What.
    pub direction: Direction,
    /// Bytes of one I/O.
    pub block_bytes: u64,
    /// First byte of the range.
    pub offset_bytes: u64,
    /// Length of the range.
    pub range_bytes: u64,
    /// A flush after so many writes; 0 = never.
    pub flush_every: u32,
    /// Seed of everything random.
    pub seed: u64,
}

/// A job that cannot be carried out: which figure, its value, its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError(pub String);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobError {}

/// One I/O to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read, write or discard.
    Io {
        /// What.
        op: Op,
        /// First sector.
        sector: u64,
        /// Sectors.
        sectors: u32,
    },
    /// Make what was written durable.
    Flush,
}

/// A job's I/Os, one after the other, without end.
#[derive(Clone, Debug)]
pub struct Generator {
    prng: Prng,
    access: Access,
    /// Reads in 2^32 I/Os, so that the choice costs a compare.
    reads: u64,
    /// What is done if not a read, and a read.
    ops: [Op; 2],
    first: u64,
    blocks: u64,
    sectors: u32,
    at: u64,
    flush_every: u32,
    unflushed: u32,
}

impl Generator {
    /// A generator for `job`.
    ///
    /// # Errors
    /// A size that is not whole sectors, a block larger than the range, a share above 100.
    pub fn new(job: &Job) -> Result<Generator, JobError> {
        let block = job.block_bytes;
        if block == 0 || !block.is_multiple_of(SECTOR) || block > 1 << 30 {
            return Err(JobError(format!(
                "bs={block} is not a multiple of {SECTOR} in {SECTOR}..={}",
                1 << 30
            )));
        }
        if !job.offset_bytes.is_multiple_of(SECTOR) {
            return Err(JobError(format!(
                "offset={} is not a multiple of {SECTOR}",
                job.offset_bytes
            )));
        }
        let blocks = job.range_bytes / block;
        if blocks == 0 {
            return Err(JobError(format!("size={} is below bs={block}", job.range_bytes)));
        }
        let (reads, other) = match job.direction {
            Direction::Read => (1 << 32, Op::Write),
            Direction::Write => (0, Op::Write),
            Direction::Trim => (0, Op::Discard),
            Direction::Mixed(percent) if percent <= 100 => {
                ((u64::from(percent) << 32) / 100, Op::Write)
            }
            Direction::Mixed(percent) => {
                return Err(JobError(format!("rwmixread={percent} is outside 0..=100")));
            }
        };
        Ok(Generator {
            prng: Prng::new(job.seed),
            access: job.access,
            reads,
            ops: [other, Op::Read],
            first: job.offset_bytes / SECTOR,
            blocks,
            sectors: (block / SECTOR) as u32,
            at: 0,
            flush_every: job.flush_every,
            unflushed: 0,
        })
    }

    /// The next I/O.
    #[inline]
    #[allow(clippy::should_implement_trait)] // It never ends, so it is no Iterator.
    pub fn next(&mut self) -> Step {
        if self.flush_every != 0 && self.unflushed >= self.flush_every {
            self.unflushed = 0;
            return Step::Flush;
        }
        let random = self.prng.next();
        let read = random & 0xffff_ffff < self.reads;
        let block = match self.access {
            Access::Random => {
                // The low bits chose the direction; the choice of block uses all of a second draw
                // only when the upper 32 would favour some blocks by more than 1 in 256.
                let wide =
                    if self.blocks <= 1 << 24 { random & !0xffff_ffff } else { self.prng.next() };
                ((u128::from(wide) * u128::from(self.blocks)) >> 64) as u64
            }
            Access::Sequential => {
                let at = self.at;
                self.at = if at + 1 == self.blocks { 0 } else { at + 1 };
                at
            }
        };
        // A look-up, not a branch: nobody can predict it.
        let op = self.ops[usize::from(read)];
        self.unflushed += u32::from(op == Op::Write);
        let sector = self.first + block * u64::from(self.sectors);
        Step::Io { op, sector, sectors: self.sectors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        Job {
            access: Access::Random,
            direction: Direction::Mixed(70),
            block_bytes: 4096,
            offset_bytes: 1 << 20,
            range_bytes: 1 << 30,
            flush_every: 0,
            seed: 1,
        }
    }

    #[test]
    fn random_io_stays_in_its_range_on_its_grid_and_keeps_its_mix() {
        let mut generator = Generator::new(&job()).unwrap();
        let mut reads = 0;
        for _ in 0..100_000 {
            let Step::Io { op, sector, sectors } = generator.next() else { panic!("no flush") };
            assert!(sector >= 2048 && sector + 8 <= 2048 + (1 << 21) && sector % 8 == 0);
            assert_eq!(sectors, 8);
            reads += u32::from(op == Op::Read);
        }
        assert!((69_000..71_000).contains(&reads), "{reads}");
    }

    #[test]
    fn sequential_io_wraps_and_flushes_come_in_time() {
        let job = Job {
            access: Access::Sequential,
            direction: Direction::Write,
            range_bytes: 3 * 4096,
            flush_every: 2,
            offset_bytes: 0,
            ..job()
        };
        let mut generator = Generator::new(&job).unwrap();
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(match generator.next() {
                Step::Io { sector, .. } => sector as i64,
                Step::Flush => -1,
            });
        }
        assert_eq!(seen, [0, 8, -1, 16, 0, -1, 8]);
    }

    #[test]
    fn impossible_jobs_are_refused_by_name() {
        let bad = |job: Job| Generator::new(&job).unwrap_err().to_string();
        assert!(bad(Job { block_bytes: 1000, ..job() }).contains("bs=1000"));
        assert!(bad(Job { range_bytes: 100, ..job() }).contains("size=100"));
        assert!(bad(Job { direction: Direction::Mixed(101), ..job() }).contains("rwmixread=101"));
    }
}
