//! The table of options.

use weir_bio::{Class, IoPrio};

use super::{
    JobOption, SECOND, Section, bounded, by_direction, content, logs, pace, places, priority,
    set_flush,
};
use crate::job::{Arrival, CLONES, DEPTH, RATE, RUNTIME_MAX, RUNTIME_MIN};
use crate::place::Distribution;
use crate::quantity::{Amount, amount, time, whole, yes};
use crate::sizes::Sizes;

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
    bare(
        "poll",
        "Whether the job's threads look for ends without sleeping; each keeps a CPU busy \
         (default 0: they sleep until they are woken)",
        |s, v| {
            s.job.poll = yes(v)?;
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
        s.job.offset = if v == "0%" { Amount::Bytes(0) } else { amount(v)? };
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
        "none|strided|zbd",
        "strided: the range in parts one after the other, with gaps; of one alone where random; \
         zbd: conventional zones, which sequential reads do not cross",
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
            let class = priority::class_of(v)?;
            s.job.ioprio = IoPrio::new(class, s.job.ioprio.level());
            Ok(())
        },
    ),
    option(
        "cmdprio_percentage",
        "PERCENT[,PERCENT]",
        "The part of reads and of writes that has another priority (default 0)",
        priority::percent,
    )
    .flag("cmdprio-percentage"),
    option(
        "cmdprio_class",
        "CLASS[,CLASS]",
        "Its class, as for prioclass (default 1)",
        priority::class,
    )
    .flag("cmdprio-class"),
    option("cmdprio", "LEVEL[,LEVEL]", "Its level (default 0)", priority::level),
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
        "crc32c|md5|sha256|pattern|meta",
        "What is written says what it is, and what is read is checked; clones that write have \
         a part of the range each",
        content::verify,
    ),
    option(
        "verify_interval",
        "SIZE",
        "Bytes of the blocks that say what they are, where an I/O has several (default: its size)",
        content::interval,
    )
    .flag("verify-interval"),
    option(
        "verify_backlog",
        "COUNT",
        "Writes after which these are read and checked, before there are more (default 0: at the \
         end)",
        |s, v| content::backlog(s, 0, v),
    )
    .flag("verify-backlog"),
    option(
        "verify_backlog_batch",
        "COUNT",
        "How many of them: fewer leave some unchecked, more check some twice (default: all)",
        |s, v| content::backlog(s, 1, v),
    )
    .flag("verify-backlog-batch"),
    option(
        "verify_pattern",
        "BYTES",
        "What blocks that are verified hold behind their header; with verify=pattern all that \
         they hold: 0xHEX, a number, \"TEXT\", 'FILE', or several",
        content::verify_pattern,
    )
    .flag("verify-pattern"),
    option(
        "buffer_pattern",
        "BYTES",
        "What is written where nothing is verified, in the same way (default: random bytes)",
        content::buffer_pattern,
    )
    .flag("buffer-pattern"),
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
        let durable = match v {
            "none" | "0" => false,
            "sync" | "dsync" | "1" => true,
            _ => return Err(String::from("takes none, sync or dsync")),
        };
        s.set_durable(0, durable)
    }),
    bare("writefua", "Whether each write ends when it is durable: sync=dsync", |s, v| {
        s.set_durable(1, yes(v)?)
    }),
    bare(
        "serialize_overlap",
        "No two I/Os of a clone are under way on one byte (default 0; always so with verify)",
        |s, v| {
            s.job.serialize_overlap = yes(v)?;
            Ok(())
        },
    )
    .flag("serialize-overlap"),
    bare("fill_device", "The range ends with the target, whatever size says", |s, v| {
        s.fills_device = yes(v)?;
        Ok(())
    })
    .flag("fill-device"),
    bare(
        "allow_file_create",
        "Whether a file that is missing is made; 0: that is an error (default 1)",
        |s, v| {
            s.job.must_exist = !yes(v)?;
            Ok(())
        },
    )
    .flag("allow-file-create"),
    option(
        "flow",
        "WEIGHT",
        "I/Os of each clone while another flow of weight 1 begins one (default 0: no share)",
        pace::flow,
    ),
    option("flow_id", "NUMBER", "Flows of one number share (default 0)", |s, v| {
        s.job.flow.id = whole(v, 0..=u64::MAX)?;
        Ok(())
    })
    .flag("flow-id"),
    option(
        "flow_sleep",
        "TIME",
        "How long one that is ahead waits, in microseconds without a unit (default 20)",
        pace::flow_sleep,
    )
    .flag("flow-sleep"),
    name(
        "write_lat_log",
        "Logs of latencies, as fio's: NAME_lat.N.log in all, NAME_slat.N.log until the device \
         had the I/O, NAME_clat.N.log from then on; N counts clones",
        |s, v| {
            s.job.logs.latency = Some(String::from(v));
            Ok(())
        },
    )
    .flag("write-lat-log"),
    name("write_bw_log", "A log of bandwidth, as fio's: NAME_bw.N.log", |s, v| {
        s.job.logs.bandwidth = Some(String::from(v));
        Ok(())
    })
    .flag("write-bw-log"),
    name("write_iops_log", "A log of I/Os, as fio's: NAME_iops.N.log", |s, v| {
        s.job.logs.iops = Some(String::from(v));
        Ok(())
    })
    .flag("write-iops-log"),
    option(
        "log_avg_msec",
        "TIME",
        "A row of a log for so long, in ms without a unit (default 0: one for each I/O)",
        logs::window,
    )
    .flag("log-avg-msec"),
    option(
        "log_window_value",
        "avg|max|both",
        "Of the latencies of a window the mean, the largest, or both (default avg)",
        logs::told,
    )
    .flag("log-window-value"),
    bare("log_offset", "Whether rows of logs say where an I/O was (default 0)", |s, v| {
        s.job.logs.offset = yes(v)?;
        Ok(())
    })
    .flag("log-offset"),
    bare(
        "log_prio",
        "Whether they say its priority in hexadecimal, and not 1 if it is real-time (default 0)",
        |s, v| {
            s.job.logs.priority = yes(v)?;
            Ok(())
        },
    )
    .flag("log-prio"),
    bare("log_issue_time", "Whether they say when it was issued, in ns (default 0)", |s, v| {
        s.job.logs.issue_time = yes(v)?;
        Ok(())
    })
    .flag("log-issue-time"),
    option(
        "write_iolog",
        "FILE",
        "A trace of the I/Os in the order in which they begin, behind what the file holds, to be \
         replayed by read_iolog",
        |s, v| {
            s.job.trace = Some(String::from(v));
            Ok(())
        },
    )
    .flag("write-iolog"),
    option(
        "read_iolog",
        "FILE",
        "The I/Os of a trace (\"fio version 2 iolog\") instead of those that rw and others say",
        |s, v| {
            s.job.replay = Some(String::from(v));
            Ok(())
        },
    )
    .flag("read-iolog"),
    bare(
        "per_job_logs",
        "Whether each clone has logs of its own; 0: NAME_bw.log, behind what it holds (default 1)",
        |s, v| {
            s.job.logs.shared = !yes(v)?;
            Ok(())
        },
    )
    .flag("per-job-logs"),
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

/// An option whose value is a name that there need not be.
const fn name(
    name: &'static str,
    doc: &'static str,
    set: fn(&mut Section, &str) -> Result<(), String>,
) -> JobOption {
    JobOption { name, flag: name, value: "NAME", doc, bare: true, set }
}
