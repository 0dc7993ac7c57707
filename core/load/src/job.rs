//! One job: a stream of I/Os over a range, described as fio describes it.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use weir_bio::{IoPrio, SECTOR};

use crate::logs::Logs;
use crate::order::{Batching, Flow, Strides, Thinking, WEIGHT_MAX};
use crate::place::Distribution;
use crate::priority::Urgent;
use crate::quantity::Amount;
use crate::sizes::Sizes;
pub use crate::verify::Verify;

/// How long a job may run, and be measured, ns: 1 ms to 30 days.
pub(crate) const RUNTIME_MIN: u64 = 1_000_000;
pub(crate) const RUNTIME_MAX: u64 = 30 * 24 * 3600 * 1_000_000_000;
/// I/Os that a clone may keep under way.
pub(crate) const DEPTH: RangeInclusive<u64> = 1..=4096;
/// Clones that a job may have.
pub(crate) const CLONES: RangeInclusive<u64> = 1..=256;
/// How often a job may do what it does.
pub(crate) const LOOPS: RangeInclusive<u64> = 1..=4_294_967_295;
/// I/Os a second that a rate may name.
pub(crate) const RATE: RangeInclusive<u64> = 0..=100_000_000;

/// Where the next I/O goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Random places, spread as the job's [`Distribution`] has it.
    #[default]
    Random,
    /// One after the other, starting again at the end; reads and writes each on their own way.
    Sequential,
}

/// The direction of I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Reads only.
    #[default]
    Read,
    /// Writes only.
    Write,
    /// Both, as the job's share of reads has it.
    Mixed,
    /// Discards only.
    Trim,
    /// Discards, each followed by a write of the same blocks when it has ended.
    TrimWrite,
}

/// Something for each direction: reads, writes, trims.
pub type ByDirection<T> = [T; 3];

/// How the times of a rate are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Equally far apart.
    #[default]
    Even,
    /// As of many who do not know of each other: exponentially distributed gaps.
    Poisson,
}

/// A job. Sizes are bytes, times nanoseconds.
///
/// As a document it has every field, and none besides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its name: the section's of a job file.
    pub name: String,
    /// The target or file it runs on, as written; `None`: that of the whole run.
    #[serde(deserialize_with = "Option::deserialize")]
    pub target: Option<String>,
    /// Where.
    pub access: Access,
    /// How random places are spread.
    pub distribution: Distribution,
    /// Whether each random place comes once before any comes again, where all are alike.
    pub map: bool,
    /// What random places are multiples of; `None`: the smallest I/O.
    #[serde(deserialize_with = "Option::deserialize")]
    pub align: Option<u64>,
    /// Bytes left out after each sequential I/O; below 0 it goes backwards.
    pub step: i64,
    /// The parts of the range that it goes through; `None`: all of it is one.
    #[serde(deserialize_with = "Option::deserialize")]
    pub strides: Option<Strides>,
    /// Its direction.
    pub direction: Direction,
    /// Reads in 100, where the direction is mixed.
    pub read_percent: u8,
    /// Lengths, by direction.
    pub sizes: ByDirection<Sizes>,
    /// First byte of the range.
    pub offset: Amount,
    /// Length of the range; `None`: to the end of the target.
    #[serde(deserialize_with = "Option::deserialize")]
    pub size: Option<Amount>,
    /// Bytes that it moves, as a share of the range; `None`: as many as that has.
    #[serde(deserialize_with = "Option::deserialize")]
    pub io_size: Option<Amount>,
    /// How often it does that, at least once.
    pub loops: u32,
    /// How much later the range of each clone begins than that of the clone before it.
    pub offset_increment: Amount,
    /// I/Os kept under way by each clone.
    pub depth: u16,
    /// How these are begun and taken.
    pub batching: Batching,
    /// Whether the thread of a clone looks for ends without sleeping.
    pub poll: bool,
    /// Clones of this job, each a context of its own with a seed of its own.
    pub clones: u16,
    /// Whether each clone has an equal part of the range to itself.
    pub parted: bool,
    /// The longest it runs; `None`: until it has moved its size.
    #[serde(deserialize_with = "Option::deserialize")]
    pub runtime_ns: Option<u64>,
    /// Whether it goes on until its time is up, however much it has moved.
    pub time_based: bool,
    /// How long it runs before it is measured.
    pub ramp_ns: u64,
    /// How long each clone waits before it begins: at least and at most.
    pub start_delay_ns: [u64; 2],
    /// I/Os a second that are begun at most, by direction; 0: as many as can be.
    pub rate: ByDirection<u32>,
    /// How these are spread in time.
    pub arrival: Arrival,
    /// Its pauses.
    pub thinking: Thinking,
    /// A flush after so many writes; 0: never.
    pub flush_every: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Priority of each I/O.
    #[serde(with = "crate::priority")]
    pub ioprio: IoPrio,
    /// The parts of its reads and writes that have another one.
    pub urgent: [Urgent; 2],
    /// The content of written blocks, which reads check.
    #[serde(deserialize_with = "Option::deserialize")]
    pub verify: Option<Verify>,
    /// Bytes of the blocks that say what they are, where an I/O has several; 0: each has one.
    pub verify_interval: u64,
    /// So many writes are begun before they are checked, and how many are looked at then; 0: all
    /// at its end, and as many.
    pub verify_backlog: [u32; 2],
    /// What its writes are filled with; empty: random bytes.
    pub pattern: Vec<u8>,
    /// Whether no two of its I/Os are under way on one byte.
    pub serialize_overlap: bool,
    /// Its share of the I/Os of several jobs.
    pub flow: Flow,
    /// What is written down of its I/Os.
    pub logs: Logs,
    /// The file of a trace whose I/Os it has, instead of its own.
    #[serde(deserialize_with = "Option::deserialize")]
    pub replay: Option<String>,
    /// The file of a trace that is written of its I/Os.
    #[serde(deserialize_with = "Option::deserialize")]
    pub trace: Option<String>,
    /// Whether a file that it names has to be there.
    pub must_exist: bool,
    /// Whether what it has written is read back at its end, if it verifies.
    pub read_back: bool,
    /// Whether its target is to be read and written through the page cache, or past it; `None`: as
    /// the target says.
    #[serde(deserialize_with = "Option::deserialize")]
    pub buffered: Option<bool>,
    /// Whether a write ends when it is durable.
    pub durable: bool,
    /// Whether writes are async, as those of a page cache are.
    pub background: bool,
    /// Whether its reads are to come from the page cache, where the target has one.
    pub cached: bool,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            name: String::from("job"),
            target: None,
            access: Access::Sequential,
            distribution: Distribution::Uniform,
            map: false,
            align: None,
            step: 0,
            strides: None,
            direction: Direction::Read,
            read_percent: 50,
            sizes: Default::default(),
            offset: Amount::Bytes(0),
            size: None,
            io_size: None,
            loops: 1,
            offset_increment: Amount::Bytes(0),
            depth: 1,
            batching: Batching::default(),
            poll: false,
            clones: 1,
            parted: false,
            runtime_ns: None,
            time_based: false,
            ramp_ns: 0,
            start_delay_ns: [0; 2],
            rate: [0; 3],
            arrival: Arrival::Even,
            thinking: Thinking::default(),
            flush_every: 0,
            seed: 1,
            ioprio: IoPrio::NONE,
            urgent: Default::default(),
            verify: None,
            verify_interval: 0,
            verify_backlog: [0; 2],
            pattern: Vec::new(),
            serialize_overlap: false,
            flow: Flow::default(),
            logs: Logs::default(),
            replay: None,
            trace: None,
            must_exist: false,
            read_back: true,
            buffered: None,
            durable: false,
            background: false,
            cached: false,
        }
    }
}

/// Bytes in the largest unit that leaves a whole number or three digits, as `256 MiB`.
fn told(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (bytes.max(1).ilog2() as usize / 10).min(units.len() - 1);
    let value = bytes as f64 / f64::from(10 * unit as u32).exp2();
    let digits = if value.fract() == 0.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
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

/// The properties of a target that a job must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// Its size, bytes.
    pub bytes: u64,
    /// Its logical block, bytes.
    pub block: u64,
    /// Whether it cannot be written.
    pub read_only: bool,
}

/// The part of a target that a job, or a clone of it, works on: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

impl Job {
    /// I/Os of so many bytes at random places, which go on for as long as they are let.
    #[must_use]
    pub fn random(direction: Direction, bytes: u64) -> Job {
        let sizes = [0; 3].map(|_| Sizes::Fixed(bytes));
        Job { access: Access::Random, direction, sizes, time_based: true, ..Job::default() }
    }

    /// Whether its figures are within the bounds that its options have, for a job that was not read
    /// through them.
    ///
    /// # Errors
    /// The job, and the figure with its value and its bound.
    pub fn check(&self) -> Result<(), JobError> {
        let amounts = [
            ("offset", Some(self.offset)),
            ("size", self.size),
            ("io_size", self.io_size),
            ("offset_increment", Some(self.offset_increment)),
        ];
        let percents = amounts.into_iter().filter_map(|(name, amount)| match amount? {
            Amount::Percent(percent) => Some((name, u64::from(percent), 1..=100)),
            Amount::Bytes(bytes) => Some((name, bytes, 0..=i64::MAX as u64)),
        });
        let runtime = self.runtime_ns.map(|ns| ("runtime_ns", ns, RUNTIME_MIN..=RUNTIME_MAX));
        let rates = self.rate.map(|rate| ("rate", u64::from(rate), RATE));
        let bounded = [
            ("depth", u64::from(self.depth), DEPTH),
            ("clones", u64::from(self.clones), CLONES),
            ("read_percent", u64::from(self.read_percent), 0..=100),
            ("ramp_ns", self.ramp_ns, 0..=RUNTIME_MAX),
            ("loops", u64::from(self.loops), LOOPS),
            ("flow.weight", u64::from(self.flow.weight), 0..=WEIGHT_MAX),
            ("thinking.ns", self.thinking.ns, 0..=RUNTIME_MAX),
            ("thinking.io_ns", self.thinking.io_ns, 0..=RUNTIME_MAX),
            ("start_delay_ns", self.start_delay_ns[1], self.start_delay_ns[0]..=RUNTIME_MAX),
        ];
        let all = bounded.into_iter().chain(percents).chain(runtime).chain(rates);
        for (name, value, bounds) in all {
            if !bounds.contains(&value) {
                let (job, least, most) = (&self.name, bounds.start(), bounds.end());
                let what = format!("job {job}: {name}={value} is outside {least}..={most}");
                return Err(JobError(what));
            }
        }
        Ok(())
    }

    /// The directions it works in, as indices of [`ByDirection`].
    #[must_use]
    pub fn directions(&self) -> &'static [usize] {
        match self.direction {
            Direction::Read => &[0],
            Direction::Write => &[1],
            Direction::Mixed => &[0, 1],
            Direction::Trim => &[2],
            Direction::TrimWrite => &[2, 1],
        }
    }

    /// Those of them that have places of their own.
    #[must_use]
    pub fn placed(&self) -> &'static [usize] {
        match self.direction {
            // What was trimmed is written.
            Direction::TrimWrite => &[2],
            _ => self.directions(),
        }
    }

    /// Whether each random place comes once before any comes again.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.map
            && self.access == Access::Random
            && self.distribution == Distribution::Uniform
            && self.strides.is_none()
    }

    /// I/Os that each clone ever has under way.
    #[must_use]
    pub fn depth_in_use(&self) -> u16 {
        let Thinking { ns, ios, io_ns, from_issue } = self.thinking;
        let waits = ns > 0 && io_ns == 0 && !from_issue;
        let ios = u16::try_from(ios.max(1)).unwrap_or(u16::MAX);
        if waits { self.depth.min(ios) } else { self.depth }
    }

    /// The largest I/O with memory behind it, bytes; 0 if there is none.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.sizes_with_data().map(Sizes::most).max().unwrap_or(0)
    }

    /// Sizes of the I/Os with memory behind them, by direction.
    pub fn sizes_with_data(&self) -> impl Iterator<Item = &Sizes> + Clone {
        let carries =
            |direction: &&usize| **direction < 2 || self.direction == Direction::TrimWrite;
        self.placed().iter().filter(carries).map(|direction| &self.sizes[*direction])
    }

    /// Its range of such a target, checked.
    ///
    /// # Errors
    /// A range beyond the target, one below a block, a block that the target cannot do, writes to
    /// a target that takes none.
    pub fn range(&self, ground: Ground) -> Result<Range, JobError> {
        let Ground { bytes: whole, block, read_only } = ground;
        let error = |text: String| Err(JobError(text));
        let (mut largest, mut grain) = (0, block);
        for direction in self.placed() {
            let sizes = &self.sizes[*direction];
            sizes.check(block).map_err(JobError)?;
            largest = largest.max(sizes.most());
            grain = grain.max(sizes.least());
        }
        self.check_places(block, largest).map_err(JobError)?;
        let offset = self.offset.of(whole, grain);
        if !offset.is_multiple_of(SECTOR) {
            return error(format!("offset={offset} is not a multiple of {SECTOR}"));
        }
        if !offset.is_multiple_of(block) {
            let what = "the target's logical block";
            return error(format!("offset={offset} is not a multiple of {block}, {what}"));
        }
        if offset >= whole {
            return error(format!("offset={offset} is not below the target's {whole} bytes"));
        }
        let rest = whole - offset;
        let bytes = self.size.map_or(rest, |size| size.of(whole, grain));
        if bytes > rest {
            return error(format!(
                "size={bytes} ({}) from offset={offset} is beyond the target's {whole} bytes ({}): \
                 it needs {}",
                told(bytes),
                told(whole),
                told(offset.saturating_add(bytes))
            ));
        }
        if bytes < largest {
            return error(format!("size={bytes} is below bs={largest}"));
        }
        if read_only && self.direction != Direction::Read {
            return error(format!("rw={} on a read-only target", self.rw()));
        }
        self.check_last(ground, Range { offset, bytes }, grain)?;
        if self.is_parted() {
            let part = bytes / u64::from(self.clones.max(1)) / grain * grain;
            if part < largest {
                return error(format!(
                    "size={bytes} shared by numjobs={} is below bs={largest} each",
                    self.clones
                ));
            }
        }
        Ok(Range { offset, bytes })
    }

    /// Places that a device with such a block can do.
    fn check_places(&self, block: u64, largest: u64) -> Result<(), String> {
        let unit = block.max(SECTOR);
        let uneven = |name: &str, value: u64| match value.is_multiple_of(unit) {
            true => Ok(()),
            false => Err(format!("{name}={value} is not a multiple of {unit}")),
        };
        uneven("rw step", self.step.unsigned_abs())?;
        if let Some(align) = self.align {
            uneven("blockalign", align)?;
            if self.is_mapped() {
                return Err(format!(
                    "blockalign={align} with a random map: norandommap does without"
                ));
            }
        }
        let Some(Strides { bytes, range, skip }) = self.strides else { return Ok(()) };
        if self.access == Access::Random && self.distribution != Distribution::Uniform {
            return Err(format!("random_distribution={} with zonemode=strided", self.distribution));
        }
        uneven("zonerange", range)?;
        uneven("zoneskip", skip)?;
        if bytes == 0 || range < largest {
            return Err(format!(
                "zonesize={bytes} and zonerange={range} are below an I/O of bs={largest}"
            ));
        }
        Ok(())
    }

    /// That the range of the last clone is on the target.
    fn check_last(&self, ground: Ground, first: Range, grain: u64) -> Result<(), JobError> {
        let Ground { bytes: whole, block, .. } = ground;
        let step = self.offset_increment.of(whole, grain);
        // Also a share of the target that comes to nothing.
        if self.verifies_writes_of_several() && self.is_apart() && step < first.bytes {
            return Err(JobError(format!(
                "offset_increment={step} is below size={}: clones that verify would overwrite \
                 each other's blocks",
                first.bytes
            )));
        }
        if step == 0 {
            return Ok(());
        }
        if !step.is_multiple_of(block.max(SECTOR)) {
            let unit = block.max(SECTOR);
            return Err(JobError(format!("offset_increment={step} is not a multiple of {unit}")));
        }
        if self.parted {
            return Err(JobError(String::from("offset_increment of clones with a part each")));
        }
        let last = u128::from(step) * u128::from(self.clones.max(1) - 1);
        let end = u128::from(first.offset) + last + u128::from(first.bytes);
        if end > u128::from(whole) {
            return Err(JobError(format!(
                "offset_increment={step} of numjobs={}: the last one ends at byte {end}, beyond \
                 the target's {whole} bytes ({})",
                self.clones,
                told(whole)
            )));
        }
        Ok(())
    }

    /// The range of one clone on such a target, checked.
    ///
    /// # Errors
    /// As [`range`](Job::range).
    pub fn range_of(&self, ground: Ground, clone: u16) -> Result<Range, JobError> {
        let range = self.range(ground)?;
        let grain = self.placed().iter().map(|direction| self.sizes[*direction].least()).max();
        let step = self.offset_increment.of(ground.bytes, grain.unwrap_or(SECTOR));
        let Range { offset, bytes } = self.part(range, clone);
        Ok(Range { offset: offset + u64::from(clone) * step, bytes })
    }

    /// All that its clones work on.
    ///
    /// # Errors
    /// As [`range`](Job::range).
    pub fn span(&self, ground: Ground) -> Result<Range, JobError> {
        let range = self.range(ground)?;
        let last = self.range_of(ground, self.clones.max(1) - 1)?;
        let end = (last.offset + last.bytes).max(range.offset + range.bytes);
        Ok(Range { offset: range.offset, bytes: end - range.offset })
    }

    /// Whether it writes or trims.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.direction != Direction::Read
    }

    /// Whether each clone has a part of the range: as asked for, and where clones would find each
    /// other's writes in blocks they verify.
    fn is_parted(&self) -> bool {
        self.parted || (self.verifies_writes_of_several() && !self.is_apart())
    }

    fn verifies_writes_of_several(&self) -> bool {
        self.clones > 1 && self.verify.is_some() && self.changes()
    }

    fn is_apart(&self) -> bool {
        self.offset_increment != Amount::Bytes(0)
    }

    /// The part of `range` that belongs to one clone.
    #[must_use]
    pub fn part(&self, range: Range, clone: u16) -> Range {
        if !self.is_parted() {
            return range;
        }
        let grains = self.placed().iter().map(|direction| self.sizes[*direction].least());
        let grain = grains.max().unwrap_or(SECTOR);
        let bytes = range.bytes / u64::from(self.clones.max(1)) / grain * grain;
        Range { offset: range.offset + u64::from(clone) * bytes, bytes }
    }

    /// Direction and pattern as fio names them.
    #[must_use]
    pub fn rw(&self) -> &'static str {
        let sequential = self.access == Access::Sequential;
        match (self.direction, sequential) {
            (Direction::Read, true) => "read",
            (Direction::Read, false) => "randread",
            (Direction::Write, true) => "write",
            (Direction::Write, false) => "randwrite",
            (Direction::Mixed, true) => "rw",
            (Direction::Mixed, false) => "randrw",
            (Direction::Trim, true) => "trim",
            (Direction::Trim, false) => "randtrim",
            (Direction::TrimWrite, true) => "trimwrite",
            (Direction::TrimWrite, false) => "randtrimwrite",
        }
    }

    /// The seed of one clone: all differ, also between jobs of different names.
    #[must_use]
    pub fn seed_of(&self, clone: u16) -> u64 {
        // FNV-1a over the name; the clone's number is added so that neighbours differ.
        let name = self.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        self.seed.wrapping_add(name).wrapping_add(u64::from(clone).wrapping_mul(0x9E37_79B9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUND: Ground = Ground { bytes: 1 << 20, block: 512, read_only: false };

    fn bad(job: &Job) -> String {
        job.range(GROUND).unwrap_err().to_string()
    }

    #[test]
    fn impossible_jobs_are_refused_by_name_value_and_bound() {
        let bs = |bytes| [Sizes::Fixed(bytes), Sizes::Fixed(bytes), Sizes::Fixed(bytes)];
        for (job, part) in [
            (Job { sizes: bs(1000), ..Job::default() }, "bs=1000"),
            (Job { sizes: bs(1 << 21), ..Job::default() }, "size=1048576 is below bs=2097152"),
            (Job { size: Some(Amount::Bytes(100)), ..Job::default() }, "size=100"),
            (Job { size: Some(Amount::Bytes(2 << 20)), ..Job::default() }, "1048576"),
            (Job { offset: Amount::Bytes(1 << 20), ..Job::default() }, "offset=1048576"),
            (Job { offset: Amount::Bytes(100), ..Job::default() }, "offset=100"),
            (Job { parted: true, clones: 300, ..Job::default() }, "numjobs=300"),
        ] {
            assert!(bad(&job).contains(part), "{part}: {}", bad(&job));
        }
        let write = Job { direction: Direction::Write, ..Job::default() };
        let read_only = Ground { read_only: true, ..GROUND };
        assert!(write.range(read_only).unwrap_err().0.contains("rw=write"));
    }

    #[test]
    fn sizes_are_told_in_units_as_well() {
        for (bytes, text) in
            [(0, "0 bytes"), (512, "512 bytes"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(told(bytes), text);
        }
    }

    #[test]
    fn clones_that_share_a_range_have_equal_parts_side_by_side() {
        let job = Job { parted: true, clones: 3, ..Job::default() };
        let range = job.range(GROUND).unwrap();
        let parts = [0, 1, 2].map(|clone| job.part(range, clone));
        assert_eq!(parts[0].bytes, (1 << 20) / 3 / 4096 * 4096);
        assert_eq!(parts[2].offset, 2 * parts[0].bytes);
    }

    #[test]
    fn clones_that_verify_what_they_write_keep_out_of_each_others_blocks() {
        let verify = Some(Verify::Crc32c);
        let writes = Job { direction: Direction::Write, clones: 2, verify, ..Job::default() };
        let range = writes.range(GROUND).unwrap();
        assert_eq!(writes.part(range, 1), Range { offset: 1 << 19, bytes: 1 << 19 });
        let small = Job { clones: 300, ..writes.clone() };
        assert!(bad(&small).contains("numjobs=300"), "{}", bad(&small));
        // Jobs that only read cannot overwrite another job's blocks.
        let reads = Job { direction: Direction::Read, ..writes };
        assert_eq!(reads.part(range, 1), range);
    }

    #[test]
    fn every_clone_of_every_job_has_a_seed_of_its_own() {
        let other = Job { name: String::from("other"), ..Job::default() };
        let mut seeds: Vec<_> = (0..100).map(|clone| Job::default().seed_of(clone)).collect();
        seeds.extend((0..100).map(|clone| other.seed_of(clone)));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 200);
    }
}
