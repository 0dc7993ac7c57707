//! The options of a job, once: names, values, meanings. Job files, flags of the command and their
//! help come from this table.
//!
//! Names, units and defaults are fio's, where fio has them.

mod content;
mod logs;
mod pace;
mod places;
mod priority;
mod table;

use crate::engine::{self, Engine};
use crate::job::{ByDirection, Job};
use crate::quantity::{time, whole};
use crate::replay;

pub use table::OPTIONS;

/// One option.
#[derive(Debug)]
pub struct JobOption {
    /// As fio names it.
    pub name: &'static str,
    /// The same as flags are written, with hyphens.
    pub flag: &'static str,
    /// Its value.
    pub value: &'static str,
    /// Its effect, with unit and default.
    pub doc: &'static str,
    /// Whether its value may be left out.
    pub bare: bool,
    set: fn(&mut Section, &str) -> Result<(), String>,
}

/// A job while it is read, and what is to be said about it.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The job, of the options that say all by themselves.
    pub job: Job,
    /// Sentences.
    pub notes: Vec<String>,
    /// Writes between flushes, as `fsync` and as `fdatasync` have it; 0: never.
    flushes: [u32; 2],
    /// Whether writes are durable, as `sync` and as `writefua` have it.
    durable: [bool; 2],
    engine: Option<Engine>,
    zones: places::Zones,
    /// Length of the file.
    file_size: Option<u64>,
    /// Whether each random place comes once, with a map or without.
    covers: bool,
    content: content::Patterns,
    /// Whether the range is all of the target, whatever else is said.
    fills_device: bool,
}

impl Section {
    /// One that goes on from a job.
    #[must_use]
    pub fn of(job: Job) -> Section {
        Section { job, ..Section::default() }
    }

    /// What fio does where nothing else is said.
    #[must_use]
    pub fn of_fio() -> Section {
        Section::of(Job { map: true, ..Job::default() })
    }

    /// The job, of all options together.
    ///
    /// # Errors
    /// Options that need one another.
    pub fn whole(mut self) -> Result<Job, String> {
        places::bound_by_file(&mut self);
        let mut job = self.job;
        if self.fills_device {
            job.size = None;
        }
        self.content.set(&mut job)?;
        logs::check(&job.logs)?;
        replay::set(&mut job)?;
        self.zones.check_device(&job)?;
        job.strides = self.zones.strides(job.strides)?;
        job.map |= self.covers;
        match self.engine {
            Some(Engine::Alone) => job.depth = 1,
            Some(Engine::Elsewhere) => job.target = None,
            Some(Engine::Null) => engine::drop_target(&mut job)?,
            Some(Engine::Deep) | None => (),
        }
        Ok(job)
    }

    fn set_durable(&mut self, which: usize, durable: bool) -> Result<(), String> {
        self.durable[which] = durable;
        self.job.durable = self.durable.contains(&true);
        Ok(())
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine.unwrap_or_default()
    }
}

const SECOND: u64 = 1_000_000_000;

impl JobOption {
    const fn flag(self, flag: &'static str) -> JobOption {
        JobOption { flag, ..self }
    }

    /// The value for which it stands without one.
    #[must_use]
    pub fn left_out(&self) -> &'static str {
        match self.value {
            "0|1" => "1",
            _ => "",
        }
    }

    /// Reads its value into a section.
    ///
    /// # Errors
    /// The accepted values, or the bounds.
    pub fn read(&self, section: &mut Section, value: &str) -> Result<(), String> {
        if value.is_empty() && !self.bare {
            return Err(format!("needs a value: {}", self.value));
        }
        (self.set)(section, value)
    }
}

/// A time of at most so long, ns.
fn bounded(value: &str, unit_ns: u64, most: u64) -> Result<u64, String> {
    let ns = time(value, unit_ns)?;
    if ns > most {
        return Err(format!("outside 0ns..={}s", most / SECOND));
    }
    Ok(ns)
}

fn set_flush(section: &mut Section, which: usize, value: &str) -> Result<(), String> {
    section.flushes[which] = whole(value, 0..=4_294_967_295)? as u32;
    let often = section.flushes.into_iter().filter(|every| *every > 0).min();
    section.job.flush_every = often.unwrap_or(0);
    Ok(())
}

/// `A` for all three; `A,B` for reads, and for writes and trims; `A,B,C` for each. An empty place
/// leaves its direction as it was.
fn by_direction<T: Clone>(
    all: &mut ByDirection<T>,
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<(), String> {
    let parts: Vec<_> = text.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("{text:?} has more than three parts, for reads, writes and trims"));
    }
    for (direction, place) in all.iter_mut().enumerate() {
        let part = parts[direction.min(parts.len() - 1)];
        if !part.is_empty() {
            *place = read(part)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;
    use weir_bio::{Class, IoPrio};

    fn read(pairs: &[(&str, &str)]) -> Job {
        let mut section = Section::default();
        for (name, value) in pairs {
            let option = OPTIONS.iter().find(|option| option.name == *name).expect(name);
            option.read(&mut section, value).expect(value);
        }
        section.job
    }

    #[test]
    fn sizes_and_rates_may_differ_by_direction() {
        let fixed = |bytes| Sizes::Fixed(bytes);
        assert_eq!(read(&[("bs", "8k")]).sizes, [8192, 8192, 8192].map(fixed));
        assert_eq!(read(&[("bs", "8k,32k")]).sizes, [8192, 32768, 32768].map(fixed));
        assert_eq!(read(&[("bs", ",8k,")]).sizes, [4096, 8192, 4096].map(fixed));
        assert_eq!(read(&[("rate_iops", "100,,5")]).rate, [100, 0, 5]);
    }

    #[test]
    fn of_two_kinds_of_flushes_neither_turns_off_the_other() {
        assert_eq!(read(&[("fsync", "16"), ("fdatasync", "0")]).flush_every, 16);
        assert_eq!(read(&[("fdatasync", "8"), ("fsync", "16")]).flush_every, 8);
        assert_eq!(read(&[("fsync", "16"), ("fsync", "0")]).flush_every, 0);
    }

    #[test]
    fn priority_is_the_same_in_either_order() {
        let wanted = IoPrio::new(Class::RealTime, 3);
        assert_eq!(read(&[("prio", "3"), ("prioclass", "1")]).ioprio, wanted);
        assert_eq!(read(&[("prioclass", "1"), ("prio", "3")]).ioprio, wanted);
        assert_eq!(read(&[("prio", "3")]).ioprio, IoPrio::new(Class::BestEffort, 3));
    }

    #[test]
    fn every_option_of_the_documented_subset_is_there_and_explained() {
        for name in [
            "rw",
            "rwmixread",
            "bs",
            "bsrange",
            "bssplit",
            "iodepth",
            "numjobs",
            "size",
            "offset",
            "runtime",
            "time_based",
            "ramp_time",
            "rate_iops",
            "thinktime",
            "random_distribution",
            "norandommap",
            "randseed",
            "prio",
            "prioclass",
            "fsync",
            "fdatasync",
            "verify",
            "group_reporting",
            "direct",
            "filename",
            "ioengine",
        ] {
            let option = OPTIONS.iter().find(|option| option.name == name);
            assert!(option.is_some_and(|option| option.doc.len() > 10), "{name}");
        }
    }
}
