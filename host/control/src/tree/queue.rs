//! The table of `block/<disk>/queue`: names, units, defaults, what may be written and what that
//! does (docs/behaviour/block-layer.md, section 15.1).
//!
//! Not in the table: `throttle_sample_time`, which kernels without the feature do not show either,
//! and the files that only zoned disks have.

use weir_bio::SECTOR;
use weir_queue::WbtTarget;

use super::entry::{self, Entry};
use crate::errno::Failure;
use crate::number::{boolean, shown, signed, unsigned};

type Attribute = entry::Attribute<Entry>;

const SECTOR_BYTES: u64 = SECTOR;

/// The longest name of a scheduler that is looked at (Linux's ELV_NAME_MAX, less the NUL).
const SCHEDULER_NAME_MAX: usize = 15;

fn zero(_: &Entry) -> String {
    String::from("0")
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

fn bytes(sectors: u32) -> String {
    (u64::from(sectors) * SECTOR_BYTES).to_string()
}

const fn never(name: &'static str, unit: &'static str, meaning: &'static str) -> Attribute {
    Attribute::tells(name, unit, "0", meaning, zero)
}

const BOOL: &str = "a number; other than 0 is 1";

/// Every file of `queue`, in the order a directory lists them.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute::tells("add_random", "", "0", "Kept; weir gathers no entropy.", |entry| {
        flag(entry.kept().add_random)
    })
    .takes(BOOL, |entry, text| {
        entry.kept().add_random = boolean("add_random", text)?;
        Ok(())
    }),
    Attribute::tells(
        "atomic_write_boundary_bytes",
        "bytes",
        "driver",
        "No atomic write crosses a multiple of this.",
        |entry| bytes(entry.limits().atomic_write_boundary_sectors),
    ),
    Attribute::tells(
        "atomic_write_max_bytes",
        "bytes",
        "driver",
        "Largest write that is whole or not at all.",
        |entry| bytes(entry.limits().atomic_write_max_sectors),
    ),
    Attribute::tells(
        "atomic_write_unit_max_bytes",
        "bytes",
        "driver",
        "Largest unit of an atomic write.",
        |entry| bytes(entry.limits().atomic_write_unit_max_sectors),
    ),
    Attribute::tells(
        "atomic_write_unit_min_bytes",
        "bytes",
        "driver",
        "Smallest unit of an atomic write.",
        |entry| bytes(entry.limits().atomic_write_unit_min_sectors),
    ),
    Attribute::tells("chunk_sectors", "sectors", "driver", "No request crosses these.", |entry| {
        entry.limits().chunk_sectors.to_string()
    }),
    never("dax", "", "Whether it is memory that can be mapped."),
    Attribute::tells("discard_granularity", "bytes", "driver", "Unit of discard.", |entry| {
        entry.limits().discard_granularity.to_string()
    }),
    Attribute::tells("discard_max_bytes", "bytes", "driver", "Largest discard.", |entry| {
        // As Linux shows it: not in whole granules, to which the splitting rounds.
        let limits = entry.limits();
        bytes(limits.max_hw_discard_sectors.min(limits.max_user_discard_sectors))
    })
    .takes("a multiple of discard_granularity; 0 forbids discard for good", store_discard_max),
    Attribute::tells(
        "discard_max_hw_bytes",
        "bytes",
        "driver",
        "Largest discard the device can do.",
        |entry| bytes(entry.limits().max_hw_discard_sectors),
    ),
    never("discard_zeroes_data", "", "Of old kernels."),
    Attribute::tells("dma_alignment", "", "driver", "Mask of memory addresses.", |entry| {
        entry.limits().dma_alignment.to_string()
    }),
    Attribute::tells("fua", "", "driver", "Whether the device does FUA writes itself.", |entry| {
        let limits = entry.limits();
        flag(limits.fua && limits.volatile_cache)
    }),
    Attribute::tells("hw_sector_size", "bytes", "driver", "As logical_block_size.", |entry| {
        entry.limits().logical_block_size.to_string()
    }),
    never("io_poll", "", "No poll queues, so nothing may be written.")
        .takes("nothing: no disk has poll queues", |_, text| {
            Failure::invalid(format!("{}: there are no poll queues", shown("io_poll", text)))
        }),
    Attribute::tells("io_poll_delay", "us", "-1", "Of old kernels.", |_| String::from("-1"))
        .takes("anything, without effect", |_, _| Ok(())),
    Attribute::tells("io_timeout", "ms", "30000", "Time a request has for its answer.", |entry| {
        (entry.disk.settings().timeout_ns / NS_PER_MS).to_string()
    })
    .takes("1 to 4294967295", store_io_timeout),
    Attribute::tells("iostats", "", "1", "Whether I/O is counted.", |entry| {
        flag(entry.disk.settings().iostats)
    })
    .takes(BOOL, |entry, text| {
        let counted = boolean("iostats", text)?;
        entry.change(|parts| parts.iostats = counted)
    }),
    Attribute::tells(
        "iostats_passthrough",
        "",
        "0",
        "Kept; no front submits passthrough I/O.",
        |entry| flag(entry.kept().iostats_passthrough),
    )
    .takes(BOOL, |entry, text| {
        entry.kept().iostats_passthrough = boolean("iostats_passthrough", text)?;
        Ok(())
    }),
    Attribute::tells(
        "logical_block_size",
        "bytes",
        "driver",
        "Smallest addressable unit.",
        |entry| entry.limits().logical_block_size.to_string(),
    ),
    Attribute::tells("max_discard_segments", "", "driver", "Ranges in one discard.", |entry| {
        entry.limits().max_discard_segments.to_string()
    }),
    Attribute::tells(
        "max_hw_sectors_kb",
        "KiB",
        "driver",
        "Largest request the device can do.",
        |entry| kib(entry.limits().max_hw_sectors),
    ),
    never("max_integrity_segments", "", "Segments of integrity data."),
    Attribute::tells(
        "max_sectors_kb",
        "KiB",
        "driver, at most 4096",
        "Largest request.",
        |entry| kib(entry.limits().max_sectors()),
    )
    .takes("4 and more, cut down to max_hw_sectors_kb; 0 is the default", store_max_sectors),
    Attribute::tells("max_segment_size", "bytes", "driver", "Largest segment.", |entry| {
        entry.limits().max_segment_size.to_string()
    }),
    Attribute::tells("max_segments", "", "driver", "Segments of one request.", |entry| {
        entry.limits().max_segments.to_string()
    }),
    never("max_write_streams", "", "Write streams the device tells apart."),
    Attribute::tells("minimum_io_size", "bytes", "driver", "Preferred minimum.", |entry| {
        entry.limits().io_min.to_string()
    }),
    Attribute::tells(
        "nomerges",
        "",
        "0",
        "0 merges everything, 1 only what is cheap to find, 2 nothing.",
        |entry| entry.disk.settings().nomerges.to_string(),
    )
    .takes("a number; 2 is 2, other than 0 is 1", store_nomerges),
    Attribute::tells("nr_requests", "requests", "mode", "Requests the queue holds.", |entry| {
        entry.disk.settings().nr_requests.to_string()
    })
    .takes("up to 2048 with a scheduler, up to the tags without; below 4 is 4", store_nr_requests),
    never("nr_zones", "", "Zones of a zoned disk."),
    Attribute::tells("optimal_io_size", "bytes", "driver", "Preferred size.", |entry| {
        entry.limits().io_opt.to_string()
    }),
    Attribute::tells(
        "physical_block_size",
        "bytes",
        "driver",
        "Unit written without reading first.",
        |entry| entry.limits().physical_block_size.to_string(),
    ),
    Attribute::tells(
        "read_ahead_kb",
        "KiB",
        "128, or twice optimal_io_size",
        "Kept for who reads ahead; the core does not.",
        |entry| entry.kept().read_ahead_kb.to_string(),
    )
    .takes("any, rounded down to pages of 4 KiB", |entry, text| {
        entry.kept().read_ahead_kb = unsigned("read_ahead_kb", text)? / 4 * 4;
        Ok(())
    }),
    Attribute::tells("rotational", "", "driver", "Whether seeks cost time.", |entry| {
        flag(entry.limits().rotational)
    })
    .takes(BOOL, store_rotational),
    Attribute::tells(
        "rq_affinity",
        "",
        "1",
        "Kept; a completion goes to the thread that submitted.",
        |entry| entry.kept().rq_affinity.to_string(),
    )
    .takes("0, 1 or 2; other numbers change nothing", |entry, text| {
        let affinity = unsigned("rq_affinity", text)?;
        if affinity <= 2 {
            entry.kept().rq_affinity = affinity;
        }
        Ok(())
    }),
    Attribute::tells("scheduler", "", "rule", "The schedulers, the active one in [].", scheduler)
        .takes("a name of the list, or an alias", store_scheduler),
    Attribute::tells(
        "stable_writes",
        "",
        "0",
        "Kept; an I/O owns its bytes, so they are always stable.",
        |entry| flag(entry.kept().stable_writes),
    )
    .takes(BOOL, |entry, text| {
        entry.kept().stable_writes = boolean("stable_writes", text)?;
        Ok(())
    }),
    Attribute::tells("virt_boundary_mask", "", "driver", "Where gaps may be.", |entry| {
        entry.limits().virt_boundary_mask.to_string()
    }),
    Attribute::tells(
        WBT,
        "us",
        "2000; 75000 if rotational",
        "Latency that reads are kept to by throttling writes; 0 throttles none.",
        |entry| entry.disk.settings().wbt.us().to_string(),
    )
    .takes("-1 for the default, 0 for off, up to 18446744073709551", store_wbt),
    Attribute::tells(
        "write_cache",
        "",
        "driver",
        "Whether flushes are needed: `write back` or `write through`.",
        |entry| {
            let cached = entry.limits().volatile_cache;
            String::from(if cached { "write back" } else { "write through" })
        },
    )
    .takes("`write back`, `write through` or `none`", store_write_cache),
    never("write_same_max_bytes", "bytes", "Of old kernels."),
    never("write_stream_granularity", "bytes", "Unit of write streams."),
    Attribute::tells(
        "write_zeroes_max_bytes",
        "bytes",
        "driver",
        "Largest write-zeroes.",
        |entry| bytes(entry.limits().max_write_zeroes_sectors),
    ),
    never("write_zeroes_unmap_max_bytes", "bytes", "Largest write-zeroes that unmaps.").takes(
        "0",
        |_, text| match unsigned("write_zeroes_unmap_max_bytes", text)? {
            0 => Ok(()),
            _ => {
                let written = shown("write_zeroes_unmap_max_bytes", text);
                Failure::invalid(format!("{written} is neither 0 nor the device's 0"))
            }
        },
    ),
    never("write_zeroes_unmap_max_hw_bytes", "bytes", "The same, of the device."),
    never("zone_append_max_bytes", "bytes", "Largest zone append."),
    never("zone_write_granularity", "bytes", "Unit of writes to a zone."),
    Attribute::tells("zoned", "", "none", "Kind of zones.", |_| String::from("none")),
];

const NS_PER_MS: u64 = 1_000_000;

fn kib(sectors: u32) -> String {
    (sectors / 2).to_string()
}

fn store_discard_max(entry: &Entry, text: &str) -> Result<(), Failure> {
    let asked = unsigned("discard_max_bytes", text)?;
    // 0 forbids discards for good: there is no granularity then that anything is a multiple of.
    let granularity = entry.limits().discard_granularity;
    let whole = if granularity == 0 { asked == 0 } else { asked.is_multiple_of(granularity) };
    if !whole {
        let written = shown("discard_max_bytes", text);
        return Failure::invalid(format!("{written} is no multiple of {granularity}"));
    }
    entry.change(|parts| parts.limits.max_user_discard_sectors = asked / SECTOR_BYTES as u32)
}

fn store_io_timeout(entry: &Entry, text: &str) -> Result<(), Failure> {
    match unsigned("io_timeout", text)? {
        0 => Failure::invalid(format!("io_timeout 0 is outside 1..={}", u32::MAX)),
        ms => entry.change(|parts| parts.timeout_ns = u64::from(ms) * NS_PER_MS),
    }
}

fn store_max_sectors(entry: &Entry, text: &str) -> Result<(), Failure> {
    let kib = unsigned("max_sectors_kb", text)?;
    if (1..4).contains(&kib) {
        let written = shown("max_sectors_kb", text);
        return Failure::invalid(format!("{written} is less than a page (4)"));
    }
    entry.change(|parts| parts.limits.max_user_sectors = kib.saturating_mul(2))
}

fn store_nomerges(entry: &Entry, text: &str) -> Result<(), Failure> {
    let nomerges = match unsigned("nomerges", text)? {
        0 => 0,
        2 => 2,
        _ => 1,
    };
    entry.change(|parts| parts.nomerges = nomerges)
}

/// Requests that a queue holds at most, whatever its disk and scheduler.
const NR_REQUESTS_MAX: u16 = 2048;

fn store_nr_requests(entry: &Entry, text: &str) -> Result<(), Failure> {
    let asked = unsigned("nr_requests", text)?;
    let reserved = entry.disk.tags().1;
    match u16::try_from(asked) {
        Ok(count) if count.max(4) > reserved => entry.change(|parts| parts.nr_requests = count),
        Ok(_) => Failure::invalid(format!("nr_requests {asked}: {reserved} tags are reserved")),
        Err(_) => Failure::invalid(format!("nr_requests={asked} is above {NR_REQUESTS_MAX}")),
    }
}

fn store_rotational(entry: &Entry, text: &str) -> Result<(), Failure> {
    let rotational = boolean("rotational", text)?;
    let news = entry.limits().rotational != rotational;
    entry.change(|parts| parts.limits.rotational = rotational)?;
    if news {
        let (name, scheduler) = (entry.name(), entry.disk.scheduler());
        tracing::info!(
            "disk {name}: rotational is {} from now on; its scheduler stays {scheduler}, because \
             the default is chosen when a disk is opened",
            u8::from(rotational)
        );
    }
    Ok(())
}

/// A disk that has no write-back throttle does not show it.
pub(super) const WBT: &str = "wbt_lat_usec";

fn store_wbt(entry: &Entry, text: &str) -> Result<(), Failure> {
    let settings = entry.disk.settings();
    let us = match signed(WBT, text)? {
        -1 => WbtTarget::default_us(settings.limits.rotational),
        us => match u64::try_from(us) {
            Ok(us) => us,
            Err(_) => return Failure::invalid(format!("{WBT}={us} is below -1")),
        },
    };
    let mut target = settings.wbt;
    target.write(us).map_err(Failure::from)?;
    if target == settings.wbt {
        // The same again holds up no I/O.
        return Ok(());
    }
    entry.change(|parts| parts.wbt = target)
}

fn scheduler(entry: &Entry) -> String {
    let active = entry.disk.scheduler();
    let names = entry.disk.schedulers();
    if names == ["none"] {
        return active;
    }
    // Linux ends each name with a blank, the last one too.
    let shown =
        |name: &&str| if *name == active { format!("[{name}] ") } else { format!("{name} ") };
    names.iter().map(shown).collect()
}

fn store_scheduler(entry: &Entry, text: &str) -> Result<(), Failure> {
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= SCHEDULER_NAME_MAX)
        .last();
    let name = text[..end.unwrap_or(0)].trim();
    // Linux compares four letters.
    let name = if name.starts_with("none") { "none" } else { name };
    if name.is_empty() {
        return Failure::invalid("scheduler \"\" is no name");
    }
    Ok(entry.disk.set_scheduler(name)?)
}

pub(super) fn store_write_cache(entry: &Entry, text: &str) -> Result<(), Failure> {
    let cache = entry.disk.write_cache();
    if text.starts_with("write back") {
        // A device without a cache does not get one by being told.
        return entry.change(|parts| parts.limits.set_write_cache(cache));
    }
    if text.starts_with("write through") || text.starts_with("none") {
        let news = entry.limits().volatile_cache;
        entry.change(|parts| parts.limits.volatile_cache = false)?;
        if cache.volatile && news {
            let name = entry.name();
            tracing::warn!(
                "disk {name}: write_cache says `write through` of a device with a volatile cache: \
                 flushes do not reach it, not even those of clients that were told of the cache, \
                 and a power loss loses what was written"
            );
        }
        return Ok(());
    }
    let written = shown("write_cache", text);
    Failure::invalid(format!("{written} is neither \"write back\", \"write through\" nor \"none\""))
}
