//! The options of a job, once: names, values, meanings. Job files, flags of the command and their
//! help come from this table.
//!
//! Names, units and defaults are fio's, where fio has them.

mod pace;
mod places;

use weir_bio::{Class, IoPrio};

use crate::engine::{self, Engine};
use crate::job::{
    Arrival, ByDirection, CLONES, DEPTH, Job, RATE, RUNTIME_MAX, RUNTIME_MIN, Verify,
};
use crate::place::Distribution;
use crate::quantity::{amount, time, whole, yes};
use crate::sizes::Sizes;

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
    engine: Option<Engine>,
    zones: places::Zones,
    /// Length of the file.
    file_size: Option<u64>,
    /// Whether each random place comes once, with a map or without.
    covers: bool,
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

    pub(crate) fn engine(&self) -> Engine {
        self.engine.unwrap_or_default()
    }
}

const SECOND: u64 = 1_000_000_000;

/// Every option of a job.
pub const OPTIONS: &[JobOption] = &[
    option(
        "rw",
        "PATTERN",
        "Direction and pattern: read, write, randread, randwrite, rw, randrw, trim, randtrim, \
         trimwrite, randtrimwrite; of sequential ones with :SIZE what is left out after each I/O, \
         with :-SIZE backwards",
        places::rw,
    ),
    option(
        "rwmixwrite",
        "PERCENT",
        "Writes in 100 I/Os, for rw and randrw (default 50)",
        |s, v| {
            s.job.read_percent = 100 - whole(v, 0..=100)? as u8;
            Ok(())
        },
    ),
    option("rwmixread", "PERCENT", "Reads in 100 I/Os, for rw and randrw (default 50)", |s, v| {
        s.job.read_percent = whole(v, 0..=100)? as u8;
        Ok(())
    }),
    option(
        "bs",
        "SIZE[,SIZE[,SIZE]]",
        "Size of one I/O: of reads, writes and trims (default 4k)",
        |s, v| by_direction(&mut s.job.sizes, v, Sizes::fixed),
    ),
    option("bsrange", "SIZE-SIZE[,...]", "Random sizes, multiples of the first", |s, v| {
        by_direction(&mut s.job.sizes, v, Sizes::range)
    }),
    option("bssplit", "SIZE/PERCENT:...[,...]", "Random sizes with shares in 100", |s, v| {
        by_direction(&mut s.job.sizes, v, Sizes::split)
    }),
    option(
        "iodepth",
        "COUNT",
        "I/Os each clone of the job keeps under way (default 1; from flags on a block device 32)",
        |s, v| {
            s.job.depth = whole(v, DEPTH)? as u16;
            Ok(())
        },
    ),
    option(
        "iodepth_batch",
        "COUNT",
        "I/Os begun together: that many when that many can be, 0 for the depth (default: one by \
         one, but several at once on a target that answers faster than a thread hands over)",
        pace::batch,
    )
    .flag("iodepth-batch"),
    option(
        "iodepth_batch_complete_min",
        "COUNT",
        "With the depth full, I/Os that must have ended before more are begun (default 1)",
        pace::batch_complete,
    )
    .flag("iodepth-batch-complete-min"),
    option(
        "iodepth_batch_complete_max",
        "COUNT",
        "Accepted: all that has ended is taken",
        pace::batch_complete_max,
    )
    .flag("iodepth-batch-complete-max"),
    option(
        "iodepth_low",
        "COUNT",
        "With the depth full, I/Os left under way when more are begun (default: the depth)",
        pace::depth_low,
    )
    .flag("iodepth-low"),
    bare(
        "collect",
        "Whether I/Os wait for up to 24 us to be begun together on a target that ends them faster \
         than a thread hands over (default 1)",
        |s, v| {
            s.job.batching.at_once = !yes(v)?;
            Ok(())
        },
    ),
    option(
        "numjobs",
        "COUNT",
        "Clones that do the same with different seeds (default 1)",
        |s, v| {
            s.job.clones = whole(v, CLONES)? as u16;
            Ok(())
        },
    ),
    option(
        "size",
        "SIZE|PERCENT%",
        "Length of the range; the rest of the target if not given",
        |s, v| {
            s.job.size = Some(amount(v)?);
            Ok(())
        },
    ),
    option("offset", "SIZE|PERCENT%", "Start of the range (default 0)", |s, v| {
        s.job.offset = amount(v)?;
        Ok(())
    }),
    option(
        "io_size",
        "SIZE|PERCENT%",
        "Bytes to move, over the range again or only in a part of it (default: its length)",
        pace::io_size,
    )
    .flag("io-size"),
    option("filesize", "SIZE", "Length of the file, which bounds the range", places::file_size),
    option("loops", "COUNT", "How often the job does all that it does (default 1)", pace::loops),
    option(
        "offset_increment",
        "SIZE|PERCENT%",
        "How much later each clone's range begins than that of the one before (default 0)",
        places::offset_increment,
    )
    .flag("offset-increment"),
    option("runtime", "TIME", "How long to measure at most, in seconds without a unit", |s, v| {
        let ns = time(v, SECOND)?;
        if !(RUNTIME_MIN..=RUNTIME_MAX).contains(&ns) {
            return Err(String::from("outside 1ms..=2592000s"));
        }
        s.job.runtime_ns = Some(ns);
        Ok(())
    }),
    bare("time_based", "Run for the whole runtime, however much that moves", |s, v| {
        s.job.time_based = yes(v)?;
        Ok(())
    })
    .flag("time-based"),
    option(
        "ramp_time",
        "TIME",
        "How long to run before measuring, in seconds without a unit",
        |s, v| {
            s.job.ramp_ns = bounded(v, SECOND, RUNTIME_MAX)?;
            Ok(())
        },
    )
    .flag("ramp-time"),
    option(
        "rate_iops",
        "COUNT[,COUNT[,COUNT]]",
        "I/Os a second at most: of reads, writes and trims (default 0: no bound); one that those \
         before it hold up is late from when it was due, and its latency says so",
        |s, v| by_direction(&mut s.job.rate, v, |v| Ok(whole(v, RATE)? as u32)),
    )
    .flag("rate-iops"),
    option(
        "rate_process",
        "linear|poisson",
        "How the times of a rate are spread (default linear)",
        |s, v| {
            s.job.arrival = match v {
                "linear" => Arrival::Even,
                "poisson" => Arrival::Poisson,
                _ => return Err(String::from("takes linear or poisson")),
            };
            Ok(())
        },
    )
    .flag("rate-process"),
    option(
        "startdelay",
        "TIME[-TIME]",
        "Wait before the first I/O, in seconds without a unit; of a range each clone draws one",
        pace::start_delay,
    ),
    option(
        "thinktime",
        "TIME",
        "Pause after each I/O, in microseconds without a unit",
        pace::think_time,
    ),
    option("thinktime_blocks", "COUNT", "I/Os between two pauses (default 1)", pace::think_blocks)
        .flag("thinktime-blocks"),
    option(
        "thinktime_blocks_type",
        "complete|issue",
        "Whether a pause begins when they have ended or when they are begun (default complete)",
        pace::think_blocks_type,
    )
    .flag("thinktime-blocks-type"),
    option(
        "thinktime_iotime",
        "TIME",
        "Time between two pauses, in seconds without a unit, however many I/Os that is",
        pace::think_io_time,
    )
    .flag("thinktime-iotime"),
    option("thinktime_spin", "TIME", "Refused unless 0: a pause takes no CPU", pace::think_spin)
        .flag("thinktime-spin"),
    option(
        "random_distribution",
        "NAME[:VALUE]",
        "Where random I/O goes: random, zipf:THETA, pareto:H or zoned:ACCESS/SIZE:...",
        |s, v| {
            s.job.distribution = Distribution::parse(v)?;
            Ok(())
        },
    )
    .flag("random-distribution"),
    bare(
        "norandommap",
        "Random I/O may come to a place again before it was everywhere (default: to each once in \
         a pass, where all places are alike)",
        places::no_map,
    ),
    option(
        "random_generator",
        "NAME",
        "tausworthe, tausworthe64 or lfsr, of which the last comes to each place once",
        places::generator,
    )
    .flag("random-generator"),
    option(
        "blockalign",
        "SIZE",
        "What random places are multiples of (default: the smallest I/O); without a random map",
        places::align,
    ),
    option(
        "zonemode",
        "none|strided",
        "strided: the range in parts one after the other, with gaps; of one alone where random",
        places::zone_mode,
    ),
    option("zonesize", "SIZE", "Bytes moved in a part before the next", places::zone_bytes),
    option("zonerange", "SIZE", "Length of a part (default: zonesize)", places::zone_range),
    option("zoneskip", "SIZE", "Bytes between two parts (default 0)", places::zone_skip),
    option("randseed", "NUMBER", "Seed of everything random (default 1)", |s, v| {
        s.job.seed = whole(v, 0..=u64::MAX)?;
        Ok(())
    }),
    option("prio", "LEVEL", "Level of priority, 0 (first) to 7", |s, v| {
        let level = whole(v, 0..=7)? as u8;
        let class = match s.job.ioprio.class() {
            Class::None => Class::BestEffort,
            class => class,
        };
        s.job.ioprio = IoPrio::new(class, level);
        Ok(())
    }),
    option(
        "prioclass",
        "CLASS",
        "Class of priority: 0 none, 1 real-time, 2 best-effort, 3 idle",
        |s, v| {
            let class = match whole(v, 0..=3)? {
                1 => Class::RealTime,
                2 => Class::BestEffort,
                3 => Class::Idle,
                _ => Class::None,
            };
            s.job.ioprio = IoPrio::new(class, s.job.ioprio.level());
            Ok(())
        },
    ),
    option(
        "fsync",
        "COUNT",
        "A flush after so many writes of a clone (default 0: never)",
        |s, v| set_flush(s, 0, v),
    ),
    option(
        "fdatasync",
        "COUNT",
        "The same, as a block device has no metadata; of both the more frequent counts",
        |s, v| set_flush(s, 1, v),
    ),
    option(
        "verify",
        "crc32c|md5|sha256|pattern",
        "What is written says what it is, and what is read is checked; clones that write have \
         a part of the range each",
        |s, v| {
            s.job.verify = Some(match v {
                "crc32c" | "crc32c-intel" => Verify::Crc32c,
                "md5" => Verify::Md5,
                "sha256" => Verify::Sha256,
                "pattern" => Verify::Pattern,
                _ => return Err(String::from("takes crc32c, md5, sha256 or pattern")),
            });
            Ok(())
        },
    ),
    bare("do_verify", "Whether what was written is read back at the end (default 1)", |s, v| {
        s.job.read_back = yes(v)?;
        Ok(())
    })
    .flag("do-verify"),
    bare("group_reporting", "Accepted: clones are always told as one", |s, v| {
        if !yes(v)? {
            s.notes.push(String::from("group_reporting=0: clones are always told as one"));
        }
        Ok(())
    })
    .flag("group-reporting"),
    bare(
        "direct",
        "Whether files are opened for direct I/O, and not with the page cache",
        |s, v| {
            s.job.buffered = Some(!yes(v)?);
            Ok(())
        },
    ),
    bare("buffered", "Whether files are opened with the page cache: direct=0", |s, v| {
        s.job.buffered = Some(yes(v)?);
        Ok(())
    }),
    option("sync", "none|sync|dsync", "Whether a write ends when it is durable", |s, v| {
        s.job.durable = match v {
            "none" | "0" => false,
            "sync" | "dsync" | "1" => true,
            _ => return Err(String::from("takes none, sync or dsync")),
        };
        Ok(())
    }),
    option(
        "filename",
        "FILE|TARGET",
        "What the job runs on, unless a target is given for all",
        |s, v| {
            s.job.target = Some(String::from(v));
            Ok(())
        },
    ),
    option(
        "ioengine",
        "NAME",
        "Weir drives the target itself: one I/O at a time for an engine that does (sync, psync)",
        places::engine,
    ),
];

const fn option(
    name: &'static str,
    value: &'static str,
    doc: &'static str,
    set: fn(&mut Section, &str) -> Result<(), String>,
) -> JobOption {
    JobOption { name, flag: name, value, doc, bare: false, set }
}

const fn bare(
    name: &'static str,
    doc: &'static str,
    set: fn(&mut Section, &str) -> Result<(), String>,
) -> JobOption {
    JobOption { name, flag: name, value: "0|1", doc, bare: true, set }
}

impl JobOption {
    const fn flag(self, flag: &'static str) -> JobOption {
        JobOption { flag, ..self }
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
