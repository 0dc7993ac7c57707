//! The files of a disk beside its queue, and `proc/diskstats`.

use std::fmt::Write;
use std::sync::Arc;

use weir_queue::{QueueMode, Spread, partition_start};

use super::entry::{self, Entry, MAJOR};
use super::queue;
use crate::errno::Failure;
use crate::number::{any_base, shown, unsigned};

type Attribute = entry::Attribute<Entry>;

fn zero(_: &Entry) -> String {
    String::from("0")
}

fn one(_: &Entry) -> String {
    String::from("1")
}

/// The files of `block/<disk>`.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute::tells("alignment_offset", "bytes", "0", "First aligned byte.", zero),
    Attribute::tells("capability", "", "0", "Flags of old kernels.", zero),
    DEV,
    Attribute::tells("discard_alignment", "bytes", "driver", "First discardable byte.", |entry| {
        entry.limits().discard_alignment.to_string()
    }),
    Attribute::tells("diskseq", "", "driver", "Number of this medium.", |entry| {
        (entry.number + 1).to_string()
    }),
    Attribute::tells("ext_range", "", "1", "Partitions it may have, itself included.", one),
    Attribute::tells("hidden", "", "0", "Whether it is hidden from users; never.", zero),
    Attribute::tells("inflight", "requests", "0", "Reads and writes with the driver.", |entry| {
        let [reads, writes] = entry.disk.stats().in_driver;
        format!("{reads:8} {writes:8}")
    }),
    Attribute::tells("range", "", "1", "Minor numbers it has.", one),
    Attribute::tells("removable", "", "0", "Whether its medium can be taken out.", zero),
    Attribute::tells("ro", "", "driver", "Whether writes are refused.", |entry| {
        u8::from(entry.limits().read_only).to_string()
    }),
    Attribute::tells("size", "sectors", "driver", "Its size.", |entry| {
        entry.limits().capacity.to_string()
    })
    .takes("no less than it is, whole blocks; what is below it has to be able to grow", store_size),
    Attribute::tells("stat", "", "0", "The 17 statistics fields.", |entry| {
        entry.disk.stats().line()
    }),
];

/// The files of `block/<pool>/<disk>`, a partition of a pool, as Linux has them of one. What is the
/// queue's is the pool's.
pub const PARTITION: &[Attribute] = &[
    Attribute::tells("alignment_offset", "bytes", "0", "First aligned byte.", zero),
    DEV,
    Attribute::tells("discard_alignment", "bytes", "driver", "First discardable byte.", |entry| {
        entry.limits().discard_alignment.to_string()
    }),
    Attribute::tells("inflight", "requests", "0", "Reads and writes with the driver.", |entry| {
        let [reads, writes] = entry.disk.stats().in_driver;
        format!("{reads:8} {writes:8}")
    }),
    Attribute::tells("partition", "", "from 1 on", "Its number in the pool.", |entry| {
        entry.disk.partition().unwrap_or(0).to_string()
    }),
    Attribute::tells("ro", "", "driver", "Whether writes are refused.", |entry| {
        u8::from(entry.limits().read_only).to_string()
    }),
    Attribute::tells("size", "sectors", "driver", "Its size.", |entry| {
        entry.limits().capacity.to_string()
    })
    .takes("no less than it is, whole blocks; what is below it has to be able to grow", store_size),
    Attribute::tells("start", "sectors", "its number", "Where it begins in the pool.", |entry| {
        entry.disk.partition().map_or(0, partition_start).to_string()
    }),
    Attribute::tells("stat", "", "0", "The 17 statistics fields.", |entry| {
        entry.disk.stats().line()
    }),
];

/// No device node has them.
const DEV: Attribute = Attribute::tells(
    "dev",
    "",
    "its place",
    "Its numbers, as in `proc/diskstats` and `io.stat`.",
    Entry::numbers,
);

const FLUSH_ERROR: Attribute = Attribute::tells(
    "flush_error",
    "",
    "none",
    "How the first flush ended that failed: what was written before it may not be durable.",
    flush_error,
);

/// What `weir status` calls `durability disabled`. `queue/write_cache` keeps Linux's words.
const DURABILITY: Attribute = Attribute::tells(
    "durability",
    "",
    "enabled",
    "`disabled` if flushes and FUA make nothing durable because that was asked for: \
     `barriers=off`, a `write_cache` that says less than the device has, or either on a disk \
     below it.",
    |entry| String::from(if entry.disk.is_durability_disabled() { "disabled" } else { "enabled" }),
);

/// What `IMPORT{cmdline}` of a rule looks at.
const KERNEL_CMDLINE: Attribute = Attribute::tells(
    "kernel_cmdline",
    "",
    "none",
    "The boot parameters of the configuration and of its target, as they were stated.",
    |entry| String::from(entry.disk.kernel_cmdline()),
);

const TARGET: Attribute = Attribute::tells(
    "target",
    "",
    "the configuration's",
    "What the disk is made of, as it was stated, without secrets.",
    |entry| String::from(entry.disk.target().unwrap_or_default()),
);

const UPTIME: Attribute =
    Attribute::tells("uptime_ms", "ms", "0", "How long the disk has been there.", |entry| {
        entry.disk.uptime_ms().to_string()
    });

/// The files of `block/<pool>/<disk>/weir`.
pub const PARTITION_WEIR: &[Attribute] = &[DURABILITY, FLUSH_ERROR, TARGET, UPTIME];

fn flush_error(entry: &Entry) -> String {
    entry.disk.flush_error().map_or_else(|| "none".into(), |status| status.to_string())
}

/// The files of `block/<disk>/device` that the queue has a say in, in front of the driver's: the
/// time of a request, and what the driver's own file of that name begins with.
pub const DEVICE: &[Attribute] = &[
    Attribute::tells(
        "cache_type",
        "",
        "driver",
        "What its cache does with writes and reads, as the queue takes it.",
        cache_type,
    )
    .takes("`temporary write back` or `temporary write through`", store_cache_type),
    Attribute::tells(
        TIMEOUT,
        "s",
        "30",
        "Time of one attempt at a request: `queue/io_timeout`, in whole seconds.",
        |entry| (entry.disk.settings().timeout_ns / NS_PER_S).to_string(),
    )
    .takes("0 to 4294967, where 0 is without end", store_timeout),
];

/// The file of the time of a request, which every driver with a folder has.
pub(crate) const TIMEOUT: &str = "timeout";

fn store_timeout(entry: &Entry, text: &str) -> Result<(), Failure> {
    let seconds = unsigned("timeout", text)?;
    if seconds > TIMEOUT_MAX_S {
        let what = shown("timeout", text);
        return Failure::invalid(format!("{what} is outside 0..={TIMEOUT_MAX_S}"));
    }
    entry.change(|parts| parts.timeout_ns = u64::from(seconds) * NS_PER_S)
}

/// Whether the queue flushes the cache, as `queue/write_cache` takes it. The unit keeps its mode
/// page: without the word `temporary` Linux changes that.
fn store_cache_type(entry: &Entry, text: &str) -> Result<(), Failure> {
    match text.trim_end().strip_prefix("temporary ") {
        Some(kind @ ("write back" | "write through")) => queue::store_write_cache(entry, kind),
        _ => Failure::invalid(format!(
            "{} is neither \"temporary write back\" nor \"temporary write through\"",
            shown("cache_type", text)
        )),
    }
}

/// A cache that the queue no longer flushes writes through, as far as the queue knows.
fn cache_type(entry: &Entry) -> String {
    let said = entry.disk.attribute("cache_type").unwrap_or_default();
    match (entry.limits().volatile_cache, said.as_str()) {
        (false, "write back") => String::from("write through"),
        (false, "write back, no read (daft)") => String::from("none"),
        _ => said,
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// What 32 bits of milliseconds hold.
const TIMEOUT_MAX_S: u32 = u32::MAX / 1000;

/// The files of `block/<disk>/weir`.
pub const WEIR: &[Attribute] = &[
    DURABILITY,
    FLUSH_ERROR,
    KERNEL_CMDLINE,
    Attribute::tells("last_switch_us", "us", "0", "I/O kept out by the last switch.", |entry| {
        entry.disk.last_switch_us().to_string()
    }),
    Attribute::tells("queue_mode", "", "mq", "`mq` or `sq`.", |entry| {
        String::from(match entry.disk.config().mode {
            QueueMode::Mq => "mq",
            QueueMode::Sq => "sq",
        })
    }),
    Attribute::tells("queues", "", "driver", "Hard queues.", |entry| {
        entry.disk.queues().to_string()
    })
    .takes("1 to the submitter slots, or to what it began with if that is more", store_queues),
    Attribute::tells("spread", "", "submitter", "`submitter` or `round-robin`.", |entry| {
        String::from(match entry.disk.config().spread {
            Spread::Submitter => "submitter",
            Spread::RoundRobin => "round-robin",
        })
    }),
    TARGET,
    UPTIME,
];

/// Further files of `block/<disk>/weir` of a mapped disk.
pub const MAP: &[Attribute] = &[
    Attribute::tells(
        "listing",
        "",
        "its status",
        "What a person reads of it, such as groups and paths with their figures.",
        |entry| entry.disk.map().map(|map| map.listing().join("\n")).unwrap_or_default(),
    ),
    Attribute::tells("message", "", "", "Takes a message, as `dmsetup message` sends it.", |_| {
        String::new()
    })
    .takes("the messages of its type", store_message),
    Attribute::tells("status", "", "target", "Its status, a line for each target.", |entry| {
        entry.disk.map().map(|map| String::from(map.status().trim_end())).unwrap_or_default()
    }),
    Attribute::tells("table", "", "target", "Its table, a line for each target.", |entry| {
        entry.disk.map().map(|map| String::from(map.table().trim_end())).unwrap_or_default()
    }),
];

/// The files of `block/<disk>/dm` of a mapped disk.
pub const DM: &[Attribute] = &[
    Attribute::tells("name", "", "its name", "The name of the mapped disk.", |entry| {
        String::from(entry.name())
    }),
    Attribute::tells("suspended", "", "0", "Whether its I/O is suspended; never.", zero),
    Attribute::tells("use_blk_mq", "", "1", "Whether it takes the multi-queue path.", |entry| {
        u8::from(entry.disk.config().mode == QueueMode::Mq).to_string()
    }),
    Attribute::tells(
        "uuid",
        "",
        "none",
        "`mpath-` and the name in the world of a multipath disk's paths, as multipathd makes it.",
        uuid,
    ),
];

/// multipathd has the name as SCSI's page 83h gives it, behind the digit of its type: 3 of NAA, 2
/// of EUI-64, 1 of T10. Other mapped disks have a uuid if they are given one, and here none is.
fn uuid(entry: &Entry) -> String {
    let is_multipath = entry.disk.map().is_some_and(|map| {
        let table = map.table();
        table.split_whitespace().nth(2) == Some("multipath")
    });
    let wwid = is_multipath.then(|| entry.disk.leg_attribute("wwid")).flatten();
    let named = wwid.as_deref().and_then(|wwid| {
        let kinds = [("naa.", '3'), ("eui.", '2'), ("t10.", '1')];
        let of = |(prefix, digit)| Some((digit, wwid.strip_prefix(prefix)?));
        kinds.into_iter().find_map(of)
    });
    let words = |name: &str| name.split_whitespace().collect::<Vec<_>>().join("_");
    named.map(|(digit, name)| format!("mpath-{digit}{}", words(name))).unwrap_or_default()
}

fn store_message(entry: &Entry, text: &str) -> Result<(), Failure> {
    entry.disk.message(text.trim()).or_else(Failure::invalid)
}

/// A disk grows while it is used. Clients that are connected go on with the size they were told;
/// new ones have the new one.
fn store_size(entry: &Entry, text: &str) -> Result<(), Failure> {
    let limits = entry.limits();
    let (now, block) = (limits.capacity, u64::from(limits.block_sectors()));
    let Some(sectors) = any_base(text.trim_end()) else {
        return Failure::invalid(format!("{} is not a number of sectors", shown("size", text)));
    };
    if sectors < now {
        let what = shown("size", text);
        return Failure::invalid(format!("{what} is below {now} sectors, and a disk only grows"));
    }
    if !sectors.is_multiple_of(block) {
        let what = shown("size", text);
        return Failure::invalid(format!("{what} is no multiple of its blocks of {block} sectors"));
    }
    match entry.disk.enlarge(sectors)? {
        grown if grown >= sectors => Ok(()),
        grown => Failure::invalid(format!(
            "{}: the disk has {grown} sectors, and what is below it does not grow",
            shown("size", text)
        )),
    }
}

fn store_queues(entry: &Entry, text: &str) -> Result<(), Failure> {
    let queues = unsigned("queues", text)?;
    let most = match entry.disk.config().mode {
        QueueMode::Sq => 1,
        // More queues than threads are of use where each is a connection; what the disk began with
        // it may always have again.
        QueueMode::Mq => {
            (entry.slots.min(usize::from(u16::MAX)) as u32).max(entry.disk.config().queues.into())
        }
    };
    match u16::try_from(queues) {
        // No change is none, whatever may be changed (docs/behaviour/block-layer.md, section 10.2).
        Ok(count) if count == entry.disk.queues() => Ok(()),
        Ok(count) if (1..=most).contains(&queues) => Ok(entry.disk.set_queues(count)?),
        _ => Failure::invalid(format!("{} is outside 1..={most}", shown("queues", text))),
    }
}

/// The text of `proc/diskstats`: a line for each disk.
pub(crate) fn diskstats(entries: &[Arc<Entry>]) -> String {
    let mut text = String::new();
    for entry in entries {
        let fields = entry.disk.stats().fields().map(|field| field.to_string()).join(" ");
        writeln!(text, "{MAJOR:4} {:7} {} {fields}", entry.number, entry.name())
            .expect("a string takes everything");
    }
    text
}
