//! What a guest with Linux 6.12 made of whole scenarios (core/sched/tests/golden/outcomes.md), in
//! front of a disk that takes one command at a time.

use weir_load::{Access, Amount, Direction, Job, Sizes};
use weir_queue::Config;
use weir_sim_disk::Spec;

use super::settings::{Bounds, Setting, Settings};
use super::{Bound, Case, Row, Scene, SceneError, Source, Span, rows_of};
use crate::figures::{Figures, KindFigures};
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::HostSpec;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

pub(super) const SCENE: Scene = Scene {
    name: "linux-outcomes",
    about: "whole scenarios on Linux 6.12 before a disk with one command of 2.1 ms at a time",
    settings: &[
        Setting {
            name: "scenario",
            bounds: Bounds::Words(&["groups", "writers-32", "reader", "kyber", "flushes"]),
            default: "groups,writers-32,reader,kyber,flushes",
            meaning: "weighted groups; 32 finite writers; a reader beside 4 writers; reads beside \
                      writes before 8 commands at once; writers with fdatasync",
        },
        Setting {
            name: "scheduler",
            bounds: Bounds::Words(&["source", "none", "mq-deadline", "kyber", "bfq"]),
            default: "source",
            meaning: "the disk's scheduler; source: those that the scenario was measured with",
        },
        Setting {
            name: "writers",
            bounds: Bounds::Wholes(1, 64),
            default: "1,4,8",
            meaning: "writers of the scenario flushes",
        },
    ],
    cases,
    derive: |_| Vec::new(),
    sources: SOURCES,
    raw: &[],
    notes: &[
        "Nothing is fitted to these rows: the disk's times and the guest's work are means of \
         recordings made beside them. Bounds are those of core/sched/tests/outcomes.rs, made \
         before this scene: a mean is at most 15 % above the kernel's, or within 15 % where \
         nothing else takes part; shares may be more even. What that test leaves out (none, \
         flushes) has no bound.",
        "The writers beside the reader get several times what they got in the guest. What held \
         them back there is not known.",
    ],
};

/// A scenario: its name, the schedulers that it was measured with, and what it is made of.
struct Scenario {
    name: &'static str,
    /// Each with the value of `low_latency`, where that was told.
    measured: &'static [(&'static str, Option<&'static str>)],
    /// Processes.
    kinds: fn() -> Vec<Processes>,
    disk: &'static str,
    weights: &'static [(&'static str, u16)],
    span: Span,
    rows: fn(&str, &Figures) -> Vec<Row>,
}

/// From a command's beginning to its end, mean of the recordings, and their noise.
const ONE_AT_A_TIME: &str = "depth = 1\n[fixed]\nlatency = \"2001us\"\nspread = \"200us\"";
const EIGHT_AT_ONCE: &str = "depth = 8\n[fixed]\nunits = 8\nlatency = \"4ms\"";
const VOLATILE: &str =
    "depth = 32\n[fixed]\nunits = 32\nlatency = \"2001us\"\nspread = \"200us\"\nvolatile = true";

const STEADY: Span = Span::Time { warm_up: 2 * S, ns: 18 * S };

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "groups",
        measured: &[("bfq", Some("0"))],
        kinds: groups,
        disk: ONE_AT_A_TIME,
        weights: &[("light", 100), ("middle", 200), ("heavy", 400)],
        span: Span::Time { warm_up: 5 * S, ns: 20 * S },
        rows: group_rows,
    },
    Scenario {
        name: "writers-32",
        measured: &[("bfq", Some("1")), ("bfq", Some("0"))],
        kinds: writers_32,
        disk: ONE_AT_A_TIME,
        weights: &[],
        span: Span::ToTheEnd(60 * S),
        rows: end_rows,
    },
    Scenario {
        name: "reader",
        measured: &[("mq-deadline", None), ("bfq", Some("1")), ("none", None)],
        kinds: reader_and_writers,
        disk: ONE_AT_A_TIME,
        weights: &[],
        span: STEADY,
        rows: reader_rows,
    },
    Scenario {
        name: "kyber",
        measured: &[("kyber", None)],
        kinds: random_reader_and_writer,
        disk: EIGHT_AT_ONCE,
        weights: &[],
        span: STEADY,
        rows: mixed_rows,
    },
];

fn sequential(direction: Direction, kib: u64) -> Job {
    Job {
        access: Access::Sequential,
        direction,
        sizes: [0; 3].map(|_| Sizes::Fixed(kib << 10)),
        time_based: true,
        parted: true,
        ..Job::default()
    }
}

fn random(direction: Direction) -> Job {
    Job { access: Access::Random, parted: false, ..sequential(direction, 4) }
}

fn depth(depth: u16) -> Habit {
    Habit { depth, ..Habit::default() }
}

/// One behind the other, 700 ms apart: queues that begin together may become one.
fn groups() -> Vec<Processes> {
    let reader = |(place, name): (u64, &str)| Processes {
        group: name.to_owned(),
        start: place * 700 * MS,
        ..Processes::new(
            name,
            1,
            depth(4),
            Job { offset: Amount::Bytes(place << 34), ..sequential(Direction::Read, 32) },
        )
    };
    [(0, "light"), (1, "middle"), (2, "heavy")].map(reader).to_vec()
}

fn writers_32() -> Vec<Processes> {
    let job = Job { size: Some(Amount::Bytes(32 << 29)), ..sequential(Direction::Write, 16) };
    let writers = Processes::new("writers", 32, depth(4), job);
    // Nothing merged in the guest: 2,048 I/Os took it 2.2 ms each. So blocks do not touch here.
    vec![Processes { ios: Some(64), spacing: 2, ..writers }]
}

/// The reader thinks for 20 ms and up to a round of the disk longer, four commands of the writers
/// and its own: exactly 20 ms would meet one phase of that round for ever.
fn reader_and_writers() -> Vec<Processes> {
    let pause = Habit { pause: 20 * MS, pause_spread: 5 * 2_235_000, ..Habit::default() };
    let writers = Processes {
        start: MS,
        stagger: MS,
        ..Processes::new("writers", 4, depth(16), sequential(Direction::Write, 32))
    };
    vec![Processes::new("reader", 1, pause, random(Direction::Read)), writers]
}

fn random_reader_and_writer() -> Vec<Processes> {
    vec![
        Processes::new("reader", 1, depth(32), random(Direction::Read)),
        Processes::new("writer", 1, depth(32), random(Direction::Write)),
    ]
}

/// Each writes 4 KiB and has it made durable, 120 times.
fn flushing(writers: u64) -> Vec<Processes> {
    let job = Job {
        time_based: false,
        size: Some(Amount::Bytes(writers * 120 * 4096)),
        flush_every: 1,
        ..sequential(Direction::Write, 4)
    };
    vec![Processes::new("writers", writers as usize, depth(1), job)]
}

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let mut cases = Vec::new();
    for name in settings.words("scenario") {
        if let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) {
            let add = |(scheduler, low_latency)| case(scenario, scheduler, low_latency);
            cases.extend(wanted(settings, scenario.measured).into_iter().map(add));
            continue;
        }
        for (scheduler, _) in wanted(settings, &[("none", None)]) {
            for writers in settings.wholes("writers") {
                let name = format!("scenario=flushes scheduler={scheduler} writers={writers}");
                let host = host(scheduler, None, VOLATILE, flushing(writers));
                let span = Span::ToTheEnd(60 * S);
                cases.push(Case { name, host, span, rows: flush_rows });
            }
        }
    }
    Ok(cases)
}

type Measured = (&'static str, Option<&'static str>);

/// The schedulers that are asked for; bfq with each `low_latency` that it was measured with.
fn wanted(settings: &Settings, measured: &[Measured]) -> Vec<Measured> {
    let mut wanted = Vec::new();
    for word in settings.words("scheduler") {
        let known =
            ["none", "mq-deadline", "kyber", "bfq"].into_iter().find(|known| *known == word);
        let Some(known) = known else {
            wanted.extend_from_slice(measured);
            continue;
        };
        let levels = measured.iter().filter_map(|(_, level)| *level);
        match levels.clone().next() {
            Some(_) if known == "bfq" => wanted.extend(levels.map(|level| (known, Some(level)))),
            _ => wanted.push((known, None)),
        }
    }
    let mut seen = Vec::new();
    wanted.retain(|one| {
        !seen.contains(one) && {
            seen.push(*one);
            true
        }
    });
    wanted
}

fn case(scenario: &Scenario, scheduler: &str, low_latency: Option<&str>) -> Case {
    let level = low_latency.map(|level| format!(" low_latency={level}")).unwrap_or_default();
    let mut host = host(scheduler, low_latency, scenario.disk, (scenario.kinds)());
    host.weights =
        scenario.weights.iter().map(|(path, weight)| ((*path).into(), *weight)).collect();
    let name = format!("scenario={} scheduler={scheduler}{level}", scenario.name);
    Case { name, host, span: scenario.span, rows: scenario.rows }
}

fn host(
    scheduler: &str,
    low_latency: Option<&str>,
    disk: &str,
    processes: Vec<Processes>,
) -> HostSpec {
    let tunable = |level: &str| (String::from("low_latency"), level.to_owned());
    HostSpec {
        profile: Profile::known("guest-1cpu-6.12").expect("a profile of ours"),
        config: Config {
            scheduler: Some(scheduler.to_owned()),
            tunables: low_latency.map(tunable).into_iter().collect(),
            // With none it is the tags of the disk.
            nr_requests: (scheduler != "none").then_some(128),
            // A SCSI disk takes 512 KiB at once, as Linux drives it by default.
            max_user_sectors: 1024,
            wbt_lat_us: Some(0),
            timeout_ns: 0,
            ..Config::default()
        },
        disk: Spec::parse(disk).expect("a disk of ours"),
        disks: 1,
        san: None,
        processes,
        weights: Vec::new(),
        seed: 0,
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The least and the most of these.
fn ends(of: impl Iterator<Item = f64>) -> (f64, f64) {
    of.fold((f64::INFINITY, 0.0), |(least, most), one| (least.min(one), most.max(one)))
}

fn group_rows(case: &str, figures: &Figures) -> Vec<Row> {
    let iops = |name: &str| figures.kind(name).all.iops(figures.ns);
    let (light, middle, heavy) = (iops("light"), iops("middle"), iops("heavy"));
    let rows = [
        ("light_iops", light),
        ("middle_iops", middle),
        ("heavy_iops", heavy),
        ("middle_share", middle / light),
        ("heavy_share", heavy / light),
        ("iops", light + middle + heavy),
    ];
    rows_of(case, rows)
}

fn end_rows(case: &str, figures: &Figures) -> Vec<Row> {
    let each = &figures.kind("writers").each;
    let (first, last) = ends(each.iter().filter_map(|one| one.lasted_s()));
    let rows = [("first_end_s", first), ("last_end_s", last), ("last_to_first", last / first)];
    rows_of(case, rows)
}

fn reader_rows(case: &str, figures: &Figures) -> Vec<Row> {
    let reader = figures.kind("reader").all;
    let writers = &figures.kind("writers").each;
    let (least, most) = ends(writers.iter().map(|one| one.iops(figures.ns)));
    let rows = [
        ("reader_mean_ms", reader.latency_ns() / 1e6),
        ("reader_p50_ms", ms(reader.p50)),
        ("reader_p99_ms", ms(reader.p99)),
        ("reader_max_ms", ms(reader.max)),
        ("writers_least_iops", least),
        ("writers_most_iops", most),
        ("writers_most_to_least", most / least),
    ];
    rows_of(case, rows)
}

fn mixed_rows(case: &str, figures: &Figures) -> Vec<Row> {
    let of = |name: &str| {
        let KindFigures { all, .. } = figures.kind(name);
        (all.iops(figures.ns), all.latency_ns() / 1e6, ms(all.p99))
    };
    let (reads, writes) = (of("reader"), of("writer"));
    let rows = [
        ("reader_iops", reads.0),
        ("writer_iops", writes.0),
        ("reads_to_a_write", reads.0 / writes.0),
        ("reader_mean_ms", reads.1),
        ("writer_mean_ms", writes.1),
        ("reader_p99_ms", reads.2),
        ("writer_p99_ms", writes.2),
    ];
    rows_of(case, rows)
}

fn flush_rows(case: &str, figures: &Figures) -> Vec<Row> {
    let fsyncs = figures.kind("writers").all.flushes as f64;
    rows_of(case, [("fsyncs", fsyncs), ("device_flushes", figures.commands.flushes as f64)])
}

macro_rules! sources {
    ($($case:literal: $($metric:ident $value:literal $bound:expr ),+;)+) => {
        &[$($(Source {
            case: concat!("scenario=", $case),
            metric: stringify!($metric),
            value: $value as f64,
            fitted: false,
            bound: $bound,
            missed: false,
        },)+)+]
    };
}

const NEAR: Bound = Bound::Percent(15.0);

const fn at_most(kernel: f64) -> Bound {
    Bound::AtMost(kernel * 1.15)
}

const fn at_least(kernel: f64) -> Bound {
    Bound::AtLeast(kernel * 0.85)
}

const SOURCES: &[Source] = sources! {
    "groups scheduler=bfq low_latency=0":
        light_iops 124.6 Bound::None, middle_iops 227.4 Bound::None,
        heavy_iops 461.7 Bound::None, middle_share 1.83 Bound::Between(1.83, 2.17),
        heavy_share 3.71 Bound::Between(3.71, 4.29), iops 813.7 at_least(813.7);
    "writers-32 scheduler=bfq low_latency=1":
        first_end_s 4.95 Bound::None, last_end_s 5.64 at_most(5.64),
        last_to_first 1.14 at_most(1.14);
    "writers-32 scheduler=bfq low_latency=0":
        first_end_s 4.51 Bound::None, last_end_s 5.6 at_most(5.6),
        last_to_first 1.24 at_most(1.24);
    "reader scheduler=mq-deadline":
        reader_mean_ms 10.8 at_most(10.8), reader_p50_ms 7.9 at_most(7.9),
        reader_p99_ms 25.0 at_most(25.0), reader_max_ms 52.7 at_most(52.7),
        writers_least_iops 581 at_least(581.0), writers_most_iops 752 Bound::None,
        writers_most_to_least 1.29 at_most(1.29);
    "reader scheduler=bfq low_latency=1":
        reader_mean_ms 6.6 NEAR, reader_p50_ms 6.4 NEAR,
        reader_p99_ms 10.6 at_most(10.6), reader_max_ms 13.9 at_most(13.9),
        writers_least_iops 220 at_least(220.0), writers_most_iops 225 Bound::None,
        writers_most_to_least 1.02 at_most(1.02);
    "reader scheduler=none":
        reader_mean_ms 6.0 Bound::None, reader_p50_ms 5.1 Bound::None,
        reader_p99_ms 12.3 Bound::None, reader_max_ms 23.1 Bound::None,
        writers_least_iops 96 Bound::None, writers_most_iops 98 Bound::None,
        writers_most_to_least 1.02 Bound::None;
    "kyber scheduler=kyber":
        reader_iops 1195 NEAR, writer_iops 600 NEAR, reads_to_a_write 1.99 NEAR,
        reader_mean_ms 26.6 NEAR, writer_mean_ms 53.1 NEAR,
        reader_p99_ms 28.7 at_most(28.7), writer_p99_ms 57.3 at_most(57.3);
    "flushes scheduler=none writers=1":
        fsyncs 120 Bound::Percent(0.0), device_flushes 120 Bound::None;
    "flushes scheduler=none writers=4":
        fsyncs 480 Bound::Percent(0.0), device_flushes 240 Bound::None;
    "flushes scheduler=none writers=8":
        fsyncs 960 Bound::Percent(0.0), device_flushes 240 Bound::None;
};
