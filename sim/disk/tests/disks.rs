//! The disks that are known by name, held against what was measured of them, and what holds of any.

use std::collections::{BTreeMap, BTreeSet};

use weir_bio::{Nanos, Op, Prng, SECTOR};
use weir_sim_disk::{Disk, End, Job, PRESETS, Spec};

const SECOND: u64 = 1_000_000_000;
const KIB: u64 = 1024;

fn job(id: u32, op: Op, sector: u64, bytes: u64) -> Job {
    Job { id, op, sector, sectors: (bytes / SECTOR) as u32, fua: false }
}

/// What a load saw.
#[derive(Debug)]
struct Seen {
    iops: f64,
    mean_us: f64,
    bytes_per_s: f64,
}

/// Keeps `depth` commands under way until so many have ended, from the first on.
fn load(disk: &mut Disk, depth: u32, count: u64, mut next: impl FnMut(u32) -> Job) -> Seen {
    let (mut now, mut ended, mut bytes, mut waited) = (Nanos::ZERO, 0, 0, 0_u64);
    let mut under_way = BTreeMap::new();
    for id in 0..depth {
        let job = next(id);
        under_way.insert(id, (job, now));
        disk.start(job, now);
    }
    while ended < count {
        now = disk.wake_at().expect("something is under way").max(now);
        while let Some(End { id, at }) = disk.take_end(now) {
            let (job, since) = under_way.remove(&id).expect("it is under way");
            waited += at.since(since);
            (ended, bytes) = (ended + 1, bytes + u64::from(job.sectors) * SECTOR);
            let job = next(id);
            under_way.insert(id, (job, now));
            disk.start(job, now);
        }
    }
    let seconds = now.0 as f64 / SECOND as f64;
    Seen {
        iops: ended as f64 / seconds,
        mean_us: waited as f64 / ended as f64 / 1_000.0,
        bytes_per_s: bytes as f64 / seconds,
    }
}

/// Reads or writes of 4 KiB anywhere.
fn anywhere(spec: &Spec, op: Op, seed: u64) -> impl FnMut(u32) -> Job {
    let (blocks, mut prng) = (spec.size / (4 * KIB), Prng::new(seed));
    move |id| job(id, op, prng.below(blocks) * 8, 4 * KIB)
}

/// One after the other from the start.
fn in_order(op: Op, bytes: u64) -> impl FnMut(u32) -> Job {
    let mut sector = 0;
    move |id| {
        sector += bytes / SECTOR;
        job(id, op, sector - bytes / SECTOR, bytes)
    }
}

fn preset(name: &str) -> (Spec, Disk) {
    let spec = Spec::preset(name).expect("a preset");
    let disk = Disk::new(&spec, 1);
    (spec, disk)
}

#[track_caller]
fn assert_near(found: f64, expected: f64, percent: f64, what: &str) {
    let off = (found / expected - 1.0) * 100.0;
    println!("{what}: {found:.1}, expected {expected:.1} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{what}: {found} is {off:+.1} % off {expected}");
}

#[test]
fn whatever_is_asked_every_command_ends_once_and_not_before_it_came() {
    for preset in PRESETS {
        for seed in 0..20 {
            println!("{} seed {seed}", preset.name);
            let spec = Spec::parse(preset.text).expect("a preset");
            let (mut disk, mut prng) = (Disk::new(&spec, seed), Prng::new(seed));
            let (mut now, mut open) = (Nanos::ZERO, BTreeMap::new());
            let mut last = Nanos::ZERO;
            for id in 0..2_000 {
                let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][prng.below(4) as usize];
                let bytes = if op == Op::Flush { 0 } else { (1 + prng.below(64)) * 4 * KIB };
                let sector = prng.below((spec.size - bytes) / SECTOR);
                let fua = op == Op::Write && prng.percent(20);
                disk.start(Job { fua, ..job(id, op, sector, bytes) }, now);
                open.insert(id, now);
                if prng.percent(40) {
                    now = now + prng.below(3_000_000);
                }
                while let Some(End { id, at }) = disk.take_end(now) {
                    let since = open.remove(&id).expect("it is open, and ends once");
                    assert!(since <= at && last <= at && at <= now, "{since:?} {at:?} {now:?}");
                    last = at;
                }
                assert_eq!(disk.in_flight(), open.len());
            }
            while let Some(at) = disk.wake_at() {
                while let Some(End { id, .. }) = disk.take_end(at) {
                    open.remove(&id).expect("it is open, and ends once");
                }
            }
            assert_eq!((open.len(), disk.in_flight()), (0, 0), "no end came");
        }
    }
}

#[test]
fn one_seed_gives_the_same_ends_and_another_seed_others() {
    for preset in PRESETS {
        let spec = Spec::parse(preset.text).expect("a preset");
        let ends = |seed| {
            let (mut disk, mut next) = (Disk::new(&spec, seed), anywhere(&spec, Op::Read, 7));
            (0..500).for_each(|id| disk.start(next(id), Nanos(u64::from(id) * 1_000)));
            let mut ends = Vec::new();
            while let Some(at) = disk.wake_at() {
                ends.extend(std::iter::from_fn(|| disk.take_end(at)));
            }
            ends
        };
        assert_eq!(ends(1), ends(1), "{}", preset.name);
    }
    let ends: BTreeSet<u64> = (0..5)
        .map(|seed| {
            let spec = Spec::preset("nvme-illumos").expect("a preset");
            let mut disk = Disk::new(&spec, seed);
            disk.start(job(0, Op::Read, 0, 4 * KIB), Nanos::ZERO);
            disk.wake_at().expect("an end").0
        })
        .collect();
    assert!(ends.len() > 1, "chance: {ends:?}");
}

#[test]
fn a_980_pro_reads_as_fast_as_it_was_measured() {
    // ICPE 2024, raw output: the first and the last were fitted to, as was the fall between.
    for (depth, kilo_iops) in [(8, 125.0), (32, 400.0), (64, 590.0), (128, 736.0), (512, 790.0)] {
        let (spec, mut disk) = preset("nvme-980pro");
        let seen = load(&mut disk, depth, 200_000, anywhere(&spec, Op::Read, 3));
        assert_near(seen.iops / 1_000.0, kilo_iops, 8.0, &format!("K IOPS at depth {depth}"));
    }
    let (spec, mut disk) = preset("nvme-980pro");
    let seen = load(&mut disk, 1, 20_000, anywhere(&spec, Op::Read, 3));
    assert_near(seen.mean_us, 60.0, 5.0, "us at depth 1");
}

#[test]
fn an_array_gives_what_its_hosts_measured() {
    for (hit_percent, kilo_iops) in [(6, 330.0), (60, 494.0)] {
        let text = PRESETS.iter().find(|known| known.name == "powermax-8000").expect("it").text;
        let text = text.replace("hit_percent = 60", &format!("hit_percent = {hit_percent}"));
        let spec = Spec::parse(&text).expect("an array");
        let mut disk = Disk::new(&spec, 1);
        let seen = load(&mut disk, 300, 300_000, anywhere(&spec, Op::Read, 3));
        assert_near(seen.iops / 1_000.0, kilo_iops, 3.0, &format!("K IOPS, {hit_percent} % hits"));
    }
}

#[test]
fn a_cheetah_seeks_turns_and_streams_as_its_manual_says() {
    let (spec, mut disk) = preset("cheetah-15k7");
    // 3.4 ms for a seek, half of a turn of 4 ms, 0.03 ms for the data, 0.05 for the command.
    let one = load(&mut disk, 1, 20_000, anywhere(&spec, Op::Read, 3));
    assert_near(one.mean_us / 1_000.0, 5.45, 6.0, "ms of a random read");
    let (spec, mut disk) = preset("cheetah-15k7");
    let queued = load(&mut disk, 32, 20_000, anywhere(&spec, Op::Read, 3));
    assert!(queued.iops > 2.0 * one.iops, "the queue is ordered: {queued:?} beside {one:?}");
    for (bytes, depth) in [(64 * KIB, 1), (256 * KIB, 4)] {
        let (_, mut disk) = preset("cheetah-15k7");
        let stream = load(&mut disk, depth, 10_000, in_order(Op::Read, bytes));
        // A track of the rim is 1800 sectors in 4 ms, and each change of track costs its skew.
        let six_tracks_ms = 6.0 * 4.0 + 5.0 * 0.25 + 0.4;
        let expected = 6.0 * 1_800.0 * 512.0 / six_tracks_ms * 1_000.0 / 1e6;
        assert_near(stream.bytes_per_s / 1e6, expected, 3.0, "MB/s");
    }
}

#[test]
fn a_disk_with_a_write_cache_answers_at_once_until_it_is_full_and_a_flush_empties_it() {
    let (spec, mut disk) = preset("nearline-7200");
    let mut next = anywhere(&spec, Op::Write, 3);
    let room = 16 * KIB * KIB / (4 * KIB);
    (0..room as u32).for_each(|id| disk.start(next(id), Nanos::ZERO));
    let in_cache: Vec<End> = std::iter::from_fn(|| disk.take_end(Nanos(1_000_000))).collect();
    assert_eq!(in_cache.len(), room as usize, "each is answered from the cache");
    disk.start(job(90_000, Op::Flush, 0, 0), Nanos(1_000_000));
    let mut flushed = None;
    while let Some(at) = disk.wake_at() {
        flushed = std::iter::from_fn(|| disk.take_end(at)).last().or(flushed);
    }
    let flushed = flushed.expect("its end");
    assert_eq!(flushed.id, 90_000);
    // Four thousand places, in the order of their nearness: some ms each.
    assert!((4 * SECOND..40 * SECOND).contains(&flushed.at.0), "{flushed:?}");
    // With FUA the cache is no help.
    let fua = |sector| Job { fua: true, ..job(1, Op::Write, sector, 4 * KIB) };
    let begins = Nanos(flushed.at.0 + SECOND);
    disk.start(fua(0), begins);
    let end = disk.wake_at().expect("an end").since(begins);
    assert!(end > 500_000, "{end} ns for a write on the medium");
}

#[test]
fn reads_beside_a_full_cache_are_not_starved_nor_for_ever_preferred() {
    let (spec, mut disk) = preset("nearline-7200");
    let (mut writes, mut reads) = (anywhere(&spec, Op::Write, 3), anywhere(&spec, Op::Read, 4));
    let mut ended = [0_u32; 2];
    let mut now = Nanos::ZERO;
    for id in 0..32 {
        disk.start(if id < 8 { reads(id) } else { writes(id) }, now);
    }
    while now.0 < 60 * SECOND {
        now = disk.wake_at().expect("a load").max(now);
        while let Some(End { id, .. }) = disk.take_end(now) {
            ended[usize::from(id >= 8)] += 1;
            disk.start(if id < 8 { reads(id) } else { writes(id) }, now);
        }
    }
    println!("{ended:?}");
    assert!(ended[0] > 500 && ended[1] > 500, "{ended:?}");
}

#[test]
fn writes_of_an_ssd_fall_to_what_its_dies_program_and_collecting_costs_more() {
    let (spec, mut disk) = preset("mlc-mqsim");
    // 64 dies program two pages of 8 KiB in 750 us.
    let program = 64.0 * 2.0 * 8_192.0 / 750e-6;
    let fresh = load(&mut disk, 64, 400_000, anywhere(&spec, Op::Write, 3));
    assert_near(fresh.bytes_per_s, program, 25.0, "bytes a second, new");
    let worn = load(&mut disk, 64, 8_000_000, anywhere(&spec, Op::Write, 4));
    assert!(worn.bytes_per_s < fresh.bytes_per_s * 0.6, "{worn:?} beside {fresh:?}");
}

#[test]
fn what_is_no_disk_is_refused_with_value_and_bound() {
    let error = |text: &str| Spec::parse(text).expect_err(text).to_string();
    for (text, part) in [
        ("", "one of [fixed], [measured], [ssd], [hdd] and [array]"),
        ("[fixed]\n[ssd]", "one of [fixed], [measured], [ssd], [hdd] and [array]"),
        ("[fixed]\nunits = 0", "units=0 is outside 1..=65536"),
        ("[fixed]\nlatency = \"3 weeks\"", "line 2"),
        ("[fixed]\nlatancy = \"3us\"", "unknown field `latancy`"),
        ("[fixed]\nlatency = \"1000000000001ns\"", "latency=1000000000001 is outside 0..=1000"),
        ("[fixed]\nwrite_latency = \"1001s\"", "write_latency=1001000000000 is outside 0..=1000"),
        ("[fixed]\nspread = \"1001s\"", "spread=1001000000000 is outside"),
        ("[fixed]\njump = \"1001s\"", "jump=1001000000000 is outside"),
        ("[ssd]\nread = \"1001s\"", "read=1001000000000 is outside"),
        ("[ssd]\nread_spread = \"1001s\"", "read_spread=1001000000000 is outside"),
        ("[ssd]\nprogram = \"1001s\"", "program=1001000000000 is outside"),
        ("[ssd]\nerase = \"1001s\"", "erase=1001000000000 is outside"),
        ("[ssd]\nsuspend = \"1001s\"", "suspend=1001000000000 is outside"),
        ("[ssd]\ncommand = \"1001s\"", "command=1001000000000 is outside"),
        ("[ssd]\noverhead = \"1001s\"", "overhead=1001000000000 is outside"),
        ("[hdd]\nseek_base = \"1001s\"", "seek_base=1001000000000 is outside"),
        ("[hdd]\nseek_root = \"1001s\"", "seek_root=1001000000000 is outside"),
        ("[hdd]\nseek_linear = \"1001s\"", "seek_linear=1001000000000 is outside"),
        ("[hdd]\nsettle = \"1001s\"", "settle=1001000000000 is outside"),
        ("[hdd]\nhead_switch = \"1001s\"", "head_switch=1001000000000 is outside"),
        ("[hdd]\ntrack_skew = \"1001s\"", "track_skew=1001000000000 is outside"),
        ("[hdd]\ncylinder_skew = \"1001s\"", "cylinder_skew=1001000000000 is outside"),
        ("[hdd]\noverhead = \"1001s\"", "overhead=1001000000000 is outside"),
        ("[hdd]\npatience = \"1001s\"", "patience=1001000000000 is outside"),
        ("[array]\nhit_engine = \"1001s\"", "hit_engine=1001000000000 is outside"),
        ("[array]\nmiss_engine = \"1001s\"", "miss_engine=1001000000000 is outside"),
        ("[array]\nwrite_engine = \"1001s\"", "write_engine=1001000000000 is outside"),
        ("[array]\nhit_latency = \"1001s\"", "hit_latency=1001000000000 is outside"),
        ("[array]\nmiss_latency = \"1001s\"", "miss_latency=1001000000000 is outside"),
        ("depth = 0\n[fixed]", "depth=0 is outside 1..=10240"),
        ("size = \"1000\"\n[fixed]", "is not a multiple of 512 bytes"),
        ("[ssd]\nvalid_percent = 96", "valid_percent=96 is outside 0..=95"),
        ("[hdd]\nread_ahead = \"2GiB\"", "read_ahead=2147483648 is outside 0..=1073741824"),
        ("[hdd]\nrpm = 7200", "number of zones=0 is outside 1..=64"),
        ("size = \"1MiB\"\n[hdd]\nzones = [{ cylinders = 1, sectors = 9 }]", "outside 512..=9216"),
        (
            "[hdd]\nheads = 64\nzones = [{ cylinders = 16777217, sectors = 9 }]",
            "cylinders=16777217 is outside 1..=16777216",
        ),
        (
            "[hdd]\nheads = 64\nzones = [{ cylinders = 4294967296, sectors = 1048576 }]",
            "cylinders=4294967296 is outside 1..=16777216",
        ),
        (
            "[hdd]\nzones = [{ cylinders = 1, sectors = 65537 }]",
            "sectors of a track=65537 is outside 1..=65536",
        ),
        ("[array]\nhit_percent = 101", "hit_percent=101 is outside 0..=100"),
    ] {
        assert!(error(text).contains(part), "{text:?}: {}", error(text));
    }
    let none = Spec::preset("floppy").expect_err("none").to_string();
    assert!(none.contains("\"floppy\"") && none.contains("nvme-980pro"), "{none}");
}

#[test]
fn the_largest_disk_with_the_longest_times_has_an_end_for_each_command() {
    let zones = vec!["{ cylinders = 16777216, sectors = 65536 }"; 64].join(", ");
    let names = [
        "seek_base",
        "seek_root",
        "seek_linear",
        "settle",
        "head_switch",
        "track_skew",
        "cylinder_skew",
        "overhead",
    ];
    let times: String = names.iter().map(|name| format!("{name} = \"1000s\"\n")).collect();
    let text = format!("[hdd]\nrpm = 1000\nheads = 64\nzones = [{zones}]\n{times}");
    let spec = Spec::parse(&text).expect("a disk");
    let mut disk = Disk::new(&spec, 1);
    for (id, sector) in [(1, 0), (2, spec.size / SECTOR - 8), (3, spec.size / SECTOR / 2)] {
        let job = Job { id, op: Op::Write, sector, sectors: 8, fua: false };
        disk.start(job, Nanos::ZERO);
    }
    let mut ended = 0;
    while let Some(at) = disk.wake_at() {
        ended += std::iter::from_fn(|| disk.take_end(at)).count();
    }
    assert_eq!(ended, 3);
}

/// An option of a model with its bounds, as text; numbers and truths without quotes.
type Bounds = (&'static str, &'static [&'static str]);

const TIMES: &[&str] = &["\"0s\"", "\"1000s\""];
/// The least rate, the greatest, and none.
const RATES: &[&str] = &["\"0\"", "\"1\"", "\"9223372036854775807\""];
const BYTES: &[&str] = &["\"0\"", "\"9223372036854775807\""];
const TRUTHS: &[&str] = &["false", "true"];

const FIXED: &[Bounds] = &[
    ("units", &["1", "65536"]),
    ("latency", TIMES),
    ("write_latency", TIMES),
    ("spread", TIMES),
    ("jump", TIMES),
    ("volatile", TRUTHS),
    ("bandwidth", RATES),
];

const SSD: &[Bounds] = &[
    ("channels", &["1", "256"]),
    ("dies", &["1", "256"]),
    ("planes", &["1", "16"]),
    ("page", &["\"512\"", "\"1MiB\""]),
    ("pages", &["1", "1048576"]),
    ("read", TIMES),
    ("read_spread", TIMES),
    ("program", TIMES),
    ("erase", TIMES),
    ("suspend", TIMES),
    ("channel", RATES),
    ("link", RATES),
    ("command", TIMES),
    ("overhead", TIMES),
    ("write_cache", BYTES),
    ("protected", TRUTHS),
    ("spare", BYTES),
    ("valid_percent", &["0", "95"]),
];

const HDD: &[Bounds] = &[
    ("rpm", &["1000", "100000"]),
    ("heads", &["1", "64"]),
    (
        "zones",
        &[
            "[{ cylinders = 1, sectors = 65536 }, { cylinders = 1024, sectors = 64 }]",
            "[{ cylinders = 16777216, sectors = 65536 }, { cylinders = 16777216, sectors = 64 }]",
        ],
    ),
    ("seek_base", TIMES),
    ("seek_root", TIMES),
    ("seek_linear", TIMES),
    ("settle", TIMES),
    ("head_switch", TIMES),
    ("track_skew", TIMES),
    ("cylinder_skew", TIMES),
    ("overhead", TIMES),
    ("link", RATES),
    ("depth", &["1", "1024"]),
    ("patience", TIMES),
    ("read_ahead", &["\"0\"", "\"1GiB\""]),
    ("write_cache", BYTES),
];

const ARRAY: &[Bounds] = &[
    ("ports", &["1", "1024"]),
    ("port", RATES),
    ("hit_percent", &["0", "100"]),
    ("hit_engine", TIMES),
    ("miss_engine", TIMES),
    ("write_engine", TIMES),
    ("hit_latency", TIMES),
    ("miss_latency", TIMES),
    ("behind", &["1", "65536"]),
];

const MEASURED: &[Bounds] = &[
    ("of_size", &["\"4096\""]),
    ("least_size", &["\"0\"", "\"4096\""]),
    ("most_size", &["\"4096\"", "\"1TiB\""]),
    ("read_bandwidth", RATES),
    ("write_bandwidth", RATES),
    ("read_percent", &["[0, 100]"]),
    ("access", &["\"random\"", "\"both\""]),
    ("jump", TIMES),
];

/// Times of a measured disk: the least, the greatest, or from the one to the other.
fn level(in_flight: u32, prng: &mut Prng) -> String {
    let zeros = [0, 7, 14][prng.below(3) as usize];
    let times = |zeros: usize| {
        let time = |at: usize| if at < zeros { "\"0s\"" } else { "\"1000s\"" };
        (0..14).map(time).collect::<Vec<_>>().join(", ")
    };
    let [read, write] = [times(zeros), times(14 - zeros)];
    format!("[[measured.at]]\nin_flight = {in_flight}\nread = [{read}]\nwrite = [{write}]\n")
}

/// Disks of a kind with each option at one of its bounds.
fn at_the_bounds(kind: &str, bounds: &[Bounds]) {
    for seed in 0..300 {
        let mut prng = Prng::new(seed);
        let mut text = format!("[{kind}]\n");
        for (name, values) in bounds {
            let value = values[prng.below(values.len() as u64) as usize];
            text.push_str(&format!("{name} = {value}\n"));
        }
        if kind == "measured" {
            text.extend([level(1, &mut prng), level(65_536, &mut prng)]);
        }
        println!("seed {seed}: {text}");
        let spec = Spec::parse(&text).expect("within its bounds");
        // Where the time of a command takes a step for each piece of it, short ones will do.
        let most = if ["ssd", "hdd"].contains(&kind) { 1 << 14 } else { u64::from(u32::MAX) };
        end_each(&spec, seed, most.min(spec.size / SECTOR));
    }
}

#[test]
fn with_its_options_at_their_bounds_a_fixed_disk_ends_every_command_once() {
    at_the_bounds("fixed", FIXED);
}

#[test]
fn with_its_options_at_their_bounds_an_ssd_ends_every_command_once() {
    at_the_bounds("ssd", SSD);
}

#[test]
fn with_its_options_at_their_bounds_a_hard_disk_ends_every_command_once() {
    at_the_bounds("hdd", HDD);
}

#[test]
fn with_its_options_at_their_bounds_an_array_ends_every_command_once() {
    at_the_bounds("array", ARRAY);
}

#[test]
fn with_its_options_at_their_bounds_a_measured_disk_ends_every_command_once() {
    at_the_bounds("measured", MEASURED);
}

/// Commands of all lengths, at first all at once and then one after the other.
fn end_each(spec: &Spec, seed: u64, most: u64) {
    let (mut disk, mut prng) = (Disk::new(spec, seed), Prng::new(seed));
    let (mut now, mut open) = (Nanos::ZERO, BTreeMap::new());
    for id in 0..60 {
        let op = [Op::Read, Op::Write, Op::Flush, Op::Discard][prng.below(4) as usize];
        let length = [1, 8.min(most), most][prng.below(3) as usize];
        let sectors = if op == Op::Flush { 0 } else { length as u32 };
        let ends = [0, (spec.size / SECTOR - length) / 2, spec.size / SECTOR - length];
        let sector = ends[prng.below(3) as usize];
        let fua = op == Op::Write && prng.percent(20);
        disk.start(Job { id, op, sector, sectors, fua }, now);
        open.insert(id, now);
        while id >= 30 && !open.is_empty() {
            let at = disk.wake_at().expect("an end is to come");
            assert!(at >= now, "{at:?} is before {now:?}");
            now = at;
            while let Some(End { id, at }) = disk.take_end(now) {
                let since = open.remove(&id).expect("it is open, and ends once");
                assert!(since <= at && at <= now, "{since:?} {at:?} {now:?}");
            }
        }
    }
    assert_eq!((open.len(), disk.in_flight()), (0, 0), "no end came");
}
