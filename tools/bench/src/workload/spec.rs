//! A run as it is asked for, whole, and as the document by which one process hands it to another.
//!
//! `weir bench` makes one of its flags; `weir compare` makes one, and writes it to the standard
//! input of each `weir bench` that it starts. All values are read and held against their bounds
//! before; they are held against them again when a document is read. A document has every field
//! and none besides, so that no process runs another job than it was given.

use std::io::Read;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_load::presets::Stage;
use weir_load::{Direction, Zone};

/// A run: the jobs, where they run, for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// Its workload.
    pub workload: Workload,
    /// Where; `None`: each job says where, as `oltp` does.
    #[serde(deserialize_with = "Option::deserialize")]
    pub target: Option<String>,
    /// How long to measure, in all stages together; `None`: as the jobs say.
    #[serde(deserialize_with = "Option::deserialize")]
    pub runtime: Option<Duration>,
    /// How long to run before, each stage.
    pub ramp: Duration,
    /// Seed of everything random that has none of its own.
    pub seed: u64,
    /// Whether it may write over what others keep on its targets.
    pub destroy: bool,
    /// Whether its targets are written before it.
    pub prepare: Prepare,
    /// Notes on the jobs as they were read, a sentence each.
    pub notes: Vec<String>,
    /// The command line that asked for it, for the saved document.
    pub command: Vec<String>,
}

/// Whether targets are written before they are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Prepare {
    /// What is weir's own to write is: memory, and the holes of files that weir has made.
    #[default]
    Auto,
    /// Nothing is.
    No,
    /// All that the jobs touch is, whatever it holds.
    Fill,
    /// Memory alone: all else was prepared before the first of several runs.
    Memory,
}

/// The workload asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Stages one after the other.
    Stages(Vec<Stage>),
    /// The `oltp` preset.
    Oltp(Oltp),
}

/// Transactions: how many sessions, and where their data and their redo are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oltp {
    /// Users, each with its own part in the load.
    pub users: u16,
    /// Sessions of each.
    pub threads: u16,
    /// Statements in 100 that change what they read.
    pub update_percent: u8,
    /// Accesses in 100 that go to the hot set, and its share of the blocks.
    pub hot: Zone,
    /// The targets of the data, a group that is striped over.
    pub data: Vec<String>,
    /// Those of the redo; none: it is at the end of the data's.
    pub redo: Vec<String>,
}

/// How long a run may be measured: below the least, the clock is what is measured.
pub const RUNTIME: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(30 * 24 * 3600);
/// How long it may run before that.
pub const RAMP_TIME: RangeInclusive<Duration> = Duration::ZERO..=*RUNTIME.end();
/// The longest document that is read, bytes: some ten thousand jobs.
const DOCUMENT_MAX: u64 = 64 << 20;

impl Oltp {
    /// Users that there may be.
    pub const USERS: RangeInclusive<u64> = 1..=1000;
    /// Sessions that each may have.
    pub const THREADS: RangeInclusive<u64> = 1..=64;
    /// Statements in 100 that may change what they read.
    pub const UPDATE_PERCENT: RangeInclusive<u64> = 0..=100;
    /// Shares in 100 of the hot set.
    pub const HOT: RangeInclusive<u64> = 1..=100;

    fn check(&self) -> Result<(), String> {
        let Oltp { users, threads, update_percent, hot: Zone { access, size }, .. } = *self;
        for (name, value, bounds) in [
            ("users", users.into(), Oltp::USERS),
            ("threads", threads.into(), Oltp::THREADS),
            ("update_percent", update_percent.into(), Oltp::UPDATE_PERCENT),
            ("hot.access", access.into(), Oltp::HOT),
            ("hot.size", size.into(), Oltp::HOT),
        ] {
            if !bounds.contains(&value) {
                let (least, most) = (bounds.start(), bounds.end());
                return Err(format!("oltp: {name}={value} is outside {least}..={most}"));
            }
        }
        Ok(())
    }
}

impl RunSpec {
    /// A run of this workload where and as long as its jobs say, with the first of seeds.
    #[must_use]
    pub fn of(workload: Workload) -> RunSpec {
        let (notes, command) = (Vec::new(), Vec::new());
        let (target, runtime, ramp) = (None, None, Duration::ZERO);
        let (seed, destroy, prepare) = (1, false, Prepare::Auto);
        RunSpec { workload, target, runtime, ramp, seed, destroy, prepare, notes, command }
    }

    /// Whether anything is written or trimmed.
    #[must_use]
    pub fn changes(&self) -> bool {
        match &self.workload {
            Workload::Oltp(_) => true,
            Workload::Stages(stages) => {
                stages.iter().flat_map(|stage| &stage.jobs).any(|job| job.changes())
            }
        }
    }

    /// Whether there are both reads and writes.
    #[must_use]
    pub fn has_reads_and_writes(&self) -> bool {
        let Workload::Stages(stages) = &self.workload else { return true };
        let does = |wanted: &[Direction]| {
            stages.iter().flat_map(|stage| &stage.jobs).any(|job| wanted.contains(&job.direction))
        };
        let writes = [Direction::Write, Direction::Mixed, Direction::TrimWrite];
        does(&[Direction::Read, Direction::Mixed]) && does(&writes)
    }

    /// Reads a document to its end.
    ///
    /// # Errors
    /// Line and column of what is no such document, the end of one that was cut off among them; a
    /// figure with its value and its bound.
    pub fn read(from: impl Read) -> Result<RunSpec, String> {
        let mut text = String::new();
        let read = from.take(DOCUMENT_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        if text.len() as u64 > DOCUMENT_MAX {
            return Err(format!("it is longer than {DOCUMENT_MAX} bytes"));
        }
        let spec: RunSpec = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        spec.check()?;
        Ok(spec)
    }

    /// The document.
    ///
    /// # Errors
    /// None that the fields can cause.
    pub fn document(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let times = [("runtime", self.runtime, RUNTIME), ("ramp", Some(self.ramp), RAMP_TIME)];
        for (name, time, bounds) in times {
            if let Some(time) = time.filter(|time| !bounds.contains(time)) {
                let (least, most) = (bounds.start(), bounds.end());
                return Err(format!("{name}={time:?} is outside {least:?}..={most:?}"));
            }
        }
        match &self.workload {
            Workload::Oltp(oltp) => match &self.target {
                Some(target) => Err(format!("target={target:?} is not for oltp, which has data")),
                None => oltp.check(),
            },
            Workload::Stages(stages) => {
                let mut jobs = stages.iter().flat_map(|stage| &stage.jobs);
                jobs.try_for_each(|job| job.check().map_err(|error| error.to_string()))
            }
        }
    }

    /// Whether it ends when its jobs have done what they have to do.
    #[must_use]
    pub fn ends_by_itself(&self) -> bool {
        match &self.workload {
            Workload::Stages(stages) => {
                stages.iter().flat_map(|stage| &stage.jobs).all(|job| !job.time_based)
            }
            Workload::Oltp(_) => false,
        }
    }

    /// How long it runs before it is measured, of its stages the longest.
    #[must_use]
    pub fn longest_ramp(&self) -> Duration {
        let Workload::Stages(stages) = &self.workload else { return self.ramp };
        let jobs = stages.iter().flat_map(|stage| &stage.jobs);
        let longest = jobs.map(|job| Duration::from_nanos(job.ramp_ns)).max();
        longest.unwrap_or_default().max(self.ramp)
    }

    /// The same run on other disks and with another seed, also of jobs that have seeds of their
    /// own; `redo` is for `oltp` alone.
    #[must_use]
    pub fn on(&self, targets: &[String], redo: &[String], seed: u64) -> RunSpec {
        let mut spec = RunSpec { seed, ..self.clone() };
        match &mut spec.workload {
            Workload::Oltp(oltp) => {
                (oltp.data, oltp.redo) = (targets.to_vec(), redo.to_vec());
            }
            Workload::Stages(stages) => {
                spec.target = targets.first().cloned();
                stages.iter_mut().flat_map(|stage| &mut stage.jobs).for_each(|job| job.seed = seed);
            }
        }
        spec
    }
}
