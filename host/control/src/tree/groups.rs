//! The files of `cgroup/<path>`: weights, caps and use of a group, in the syntax of cgroup v2.
//!
//! Weights and caps of a group hold for all disks of the daemon, the caps for all of them together.
//! A line for one disk is therefore a line for each; what was used is told apart.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Instant;

use weir_bio::SECTOR;
use weir_bio::units::parse_size;
use weir_queue::{Caps, Direction, GroupEntry, Groups, Used, WEIGHT_MAX, WEIGHT_MIN};

use super::entry::{self, Entry};
use super::history::{History, Moved};
use crate::errno::{Errno, Failure};
use crate::number::{any_base, shown};

type Attribute = entry::Attribute<Group>;

/// A group in the tree.
pub struct Group {
    pub(crate) groups: Arc<Groups>,
    pub(crate) entry: GroupEntry,
    pub(crate) disks: Vec<Arc<Entry>>,
    /// Partitions, each with the name of its pool.
    pub(crate) partitions: Arc<Vec<(String, Arc<Entry>)>>,
    /// What was read of shares lately.
    pub(crate) history: Arc<History>,
}

/// Every file of a group; the root has `io.stat` alone, as in Linux.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute::tells(
        "io.bfq.weight",
        "",
        "default 100",
        "Its weight among its siblings.",
        |here| format!("default {}", here.entry.weight),
    )
    .takes("1 to 1000, with or without `default ` in front", store_weight),
    Attribute::tells(
        "io.max",
        "I/Os or bytes a second",
        "no line",
        "Its caps, which hold for the group and all below it, on all disks together.",
        max,
    )
    .takes(
        "`riops=`, `wiops=`, `rbps=`, `wbps=` with a number or `max`, bytes also as a size \
         (`wbps=50MiB`), and `burst=` with seconds, behind a disk's numbers or `default` or \
         nothing",
        store_max,
    ),
    Attribute::tells(
        "io.stat",
        "bytes and I/Os",
        "0",
        "What it and all below it have used of each disk; discards count as writes.",
        stat,
    ),
    Attribute::tells(
        "weir.share",
        "percent",
        "by weight",
        "Its part among its siblings: by weight, of the bytes moved since the start, and of those \
         moved in the last seconds: at least ten, or as many as lie between two readings.",
        share,
    ),
];

impl Group {
    pub(crate) fn is_root(&self) -> bool {
        self.entry.parent.is_none()
    }

    /// The use of disks of these names by a group and all groups below it.
    fn used(&self, entry: &GroupEntry, disks: &[String], all: &[GroupEntry]) -> Used {
        let mut used = Used::default();
        let below = |path: &str| {
            path.strip_prefix(entry.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for group in all.iter().filter(|group| below(&group.path)) {
            disks.iter().for_each(|disk| used += self.groups.used_on(group.id, disk));
        }
        used
    }

    /// The names under which the I/O of a disk is counted: its own, and those of its partitions,
    /// whose I/O is the disk's as well.
    fn names(&self, disk: &Entry) -> Vec<String> {
        let here = self.partitions.iter().filter(|(pool, _)| pool == disk.name());
        let names = here.map(|(_, partition)| String::from(partition.name()));
        std::iter::once(String::from(disk.name())).chain(names).collect()
    }
}

/// A line for each disk, without the newline at the end.
fn lines(here: &Group, line: impl Fn(&Entry) -> String) -> String {
    let lines = here.disks.iter().map(|disk| format!("{} {}", disk.numbers(), line(disk)));
    lines.collect::<Vec<_>>().join("\n")
}

fn store_weight(here: &Group, text: &str) -> Result<(), Failure> {
    let text = text.trim();
    let number = text.strip_prefix("default").map_or(text, str::trim_start);
    let Some(weight) = any_base(number) else {
        let what = shown("io.bfq.weight", text);
        let bounds = format!("{WEIGHT_MIN} to {WEIGHT_MAX}");
        return Failure::invalid(format!("{what} is no whole number from {bounds}"));
    };
    match u16::try_from(weight) {
        Ok(weight) if (WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) => {
            Ok(here.groups.set_weight(here.entry.id, weight)?)
        }
        _ => Err(Failure::new(
            Errno::Range,
            format!("io.bfq.weight {weight} is outside {WEIGHT_MIN}..={WEIGHT_MAX}"),
        )),
    }
}

const NS_PER_S: u64 = 1_000_000_000;

fn max(here: &Group) -> String {
    let caps = here.entry.caps;
    if caps == Caps::default() {
        return String::new();
    }
    let told = |rate: Option<NonZeroU64>| {
        rate.map_or_else(|| String::from("max"), |rate| rate.to_string())
    };
    let [rbps, wbps, riops, wiops] = [caps.rbps, caps.wbps, caps.riops, caps.wiops].map(told);
    let burst = match caps.burst_ns {
        0 => String::new(),
        ns => format!(" burst={}", ns as f64 / NS_PER_S as f64),
    };
    lines(here, |_| format!("rbps={rbps} wbps={wbps} riops={riops} wiops={wiops}{burst}"))
}

fn store_max(here: &Group, text: &str) -> Result<(), Failure> {
    let mut words = text.split_ascii_whitespace().peekable();
    match words.next_if(|word| !word.contains('=')) {
        None | Some("default") => {}
        Some(numbers) if here.disks.iter().any(|disk| disk.numbers() == numbers) => {}
        Some(word) if is_numbers(word) => {
            return Err(Failure::new(Errno::NoDevice, format!("there is no disk {word}")));
        }
        Some(_) => {
            return Failure::invalid(format!("{} names no disk", shown("io.max", text)));
        }
    }
    if words.peek().is_none() {
        return Failure::invalid(format!("{} sets nothing", shown("io.max", text)));
    }
    let mut caps = here.entry.caps;
    words.try_for_each(|word| set_cap(&mut caps, word))?;
    Ok(here.groups.set_caps(here.entry.id, caps)?)
}

fn is_numbers(word: &str) -> bool {
    let number = |part: &str| part.parse::<u32>().is_ok();
    word.split_once(':').is_some_and(|(major, minor)| number(major) && number(minor))
}

fn set_cap(caps: &mut Caps, word: &str) -> Result<(), Failure> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    if key == "burst" {
        // set_caps knows how long a burst may be; what is beyond any number of ns is too long.
        let seconds = value.parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0);
        let Some(seconds) = seconds else {
            return Failure::invalid(format!("{} is no number of seconds", shown("io.max", word)));
        };
        caps.burst_ns = (seconds * NS_PER_S as f64) as u64;
        return Ok(());
    }
    let rate = match key {
        "rbps" => &mut caps.rbps,
        "wbps" => &mut caps.wbps,
        "riops" => &mut caps.riops,
        "wiops" => &mut caps.wiops,
        _ => {
            let what = shown("io.max", word);
            return Failure::invalid(format!("{what} is none of rbps, wbps, riops, wiops, burst"));
        }
    };
    let is_bytes = matches!(key, "rbps" | "wbps");
    let number = match value.parse::<u64>() {
        Err(_) if is_bytes => parse_size(value).map_err(drop),
        parsed => parsed.map_err(drop),
    };
    *rate = match (value, number) {
        ("max", _) => None,
        (_, Ok(0)) => {
            let what = format!("{} is outside 1..={}", shown("io.max", word), u64::MAX);
            return Err(Failure::new(Errno::Range, what));
        }
        (_, Ok(number)) => NonZeroU64::new(number),
        (_, Err(_)) => {
            let or_size = if is_bytes { ", a size as in 50MiB" } else { "" };
            return Failure::invalid(format!(
                "{} is neither a number in 1..={}{or_size} nor max",
                shown("io.max", word),
                u64::MAX
            ));
        }
    };
    Ok(())
}

fn stat(here: &Group) -> String {
    let all = here.groups.all();
    lines(here, |disk| {
        // The root has all I/O of a disk, of every submitter.
        let Used { ios, bytes } = match here.is_root() {
            true => total(disk),
            false => here.used(&here.entry, &here.names(disk), &all),
        };
        format!("rbytes={} wbytes={} rios={} wios={}", bytes[0], bytes[1], ios[0], ios[1])
    })
}

/// All I/O of a disk, by its own count.
fn total(disk: &Entry) -> Used {
    let [reads, writes, discards] = disk.disk.stats().directions;
    let bios = |direction: &Direction| direction.ios + direction.merges;
    Used {
        ios: [bios(&reads), bios(&writes) + bios(&discards)],
        bytes: [reads.sectors * SECTOR, (writes.sectors + discards.sectors) * SECTOR],
    }
}

fn share(here: &Group) -> String {
    let all = here.groups.all();
    let siblings = all.iter().filter(|group| group.parent == here.entry.parent);
    let siblings: Vec<&GroupEntry> = siblings.collect();
    let weights = siblings.iter().map(|group| u64::from(group.weight)).sum();
    let configured = percent(here.entry.weight.into(), weights);
    lines(here, |disk| {
        let names = here.names(disk);
        let moved = |group: &GroupEntry| here.used(group, &names, &all).bytes.iter().sum::<u64>();
        let own = moved(&here.entry);
        let moved = Moved { own, of_all: siblings.iter().map(|group| moved(group)).sum() };
        let key = (here.entry.path.clone(), String::from(disk.name()));
        let (recent, over) = here.history.since(key, moved, Instant::now());
        format!(
            "configured={configured} reported={} recent={} seconds={}.{}",
            percent(moved.own, moved.of_all),
            percent(recent.own, recent.of_all),
            over.as_secs(),
            over.subsec_millis() / 100
        )
    })
}

/// A part of a whole, with two places; 0 of nothing.
fn percent(part: u64, whole: u64) -> String {
    let hundredths = u128::from(part) * 10_000 / u128::from(whole.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
