//! illumos issue 11827: blkdev with one queue, and with one for each submission queue of an NVMe
//! disk. vdbench: half reads and half writes of 4 KiB, each thread one at a time.

use weir_load::{Job, presets};
use weir_queue::{Config, Spread};
use weir_sim_disk::Spec;

use super::settings::{Bounds, Setting, Settings};
use super::{Bound, Case, Row, Scene, SceneError, Source, Span, rows_of};
use crate::figures::Figures;
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::HostSpec;

const MS: u64 = 1_000_000;

pub(super) const SCENE: Scene = Scene {
    name: "illumos-11827",
    about: "illumos blkdev before and after it had several queues: vdbench on an NVMe disk",
    settings: &[
        Setting {
            name: "threads",
            bounds: Bounds::Wholes(1, 256),
            default: "8,16,32,64",
            meaning: "threads of vdbench",
        },
        Setting {
            name: "queues_before",
            bounds: Bounds::Whole(1, 64),
            default: "1",
            meaning: "queues of the cases before",
        },
        Setting {
            name: "queues_after",
            bounds: Bounds::Whole(1, 64),
            default: "48",
            meaning: "queues of the cases after",
        },
        Setting {
            name: "cores",
            bounds: Bounds::Whole(1, 128),
            default: "30",
            meaning: "processors of each of the two sockets",
        },
    ],
    cases,
    derive,
    sources: SOURCES,
    raw: &[],
    notes: &[
        "The issue prints response times reduced by 13, 27, 47 and 44 %. By its own rows they \
         are reduced by 13.1, 26.8, 37.7 and 34.0 %: latency_reduction_pct is computed from \
         rows and is held against none of these.",
        "The issue does not say how many processors the host has, nor which disk: both are \
         fitted.",
    ],
};

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let mut profile = Profile::known("illumos-2019").expect("a profile of ours");
    profile.machine.cores = settings.whole("cores") as usize;
    let kinds = [("before", "queues_before"), ("after", "queues_after")];
    let mut cases = Vec::new();
    for (kind, queues) in kinds {
        for threads in settings.wholes("threads") {
            cases.push(Case {
                name: name(kind, threads),
                host: host(&profile, settings.whole(queues) as u16, threads),
                span: Span::Time { warm_up: 20 * MS, ns: 1_000 * MS },
                rows: figures,
            });
        }
    }
    Ok(cases)
}

fn name(kind: &str, threads: u64) -> String {
    format!("{kind} threads={threads}")
}

fn host(profile: &Profile, queues: u16, threads: u64) -> HostSpec {
    let stages = presets::stages("vdbench").expect("a preset of ours");
    let job: Job = stages[0].jobs[0].clone();
    let habit = Habit { think: THINK, think_spread: THINK_SPREAD, ..Habit::default() };
    HostSpec {
        profile: profile.clone(),
        config: Config { spread: Spread::RoundRobin, queues, timeout_ns: 0, ..Config::default() },
        disk: Spec::parse(DISK).expect("a disk of ours"),
        disks: 1,
        san: None,
        processes: vec![Processes::new("vdbench", threads as usize, habit, job)],
        weights: Vec::new(),
        seed: 0,
    }
}

/// The disk of the issue.
const DISK: &str = include_str!("../../disks/illumos-11827.toml");

/// What a thread of vdbench computes between two I/Os, ns, beside what every I/O costs its process
/// by the profile. By the law of Little the rows leave 3 to 6 us.
const THINK: u64 = 300;
const THINK_SPREAD: u64 = 2_000;

fn figures(case: &str, figures: &Figures) -> Vec<Row> {
    let rows = [
        ("iops", figures.iops()),
        ("latency_us", figures.latency_ns() / 1e3),
        ("cpu_sys_pct", figures.system_percent()),
    ];
    rows_of(case, rows)
}

/// By how much the response time is less after than before.
fn derive(rows: &[Row]) -> Vec<Row> {
    let latency = |row: &&Row| row.metric == "latency_us";
    let reduced = rows.iter().filter(latency).filter_map(|before| {
        let threads = before.case.strip_prefix("before ")?;
        let after = format!("after {threads}");
        let after = rows.iter().filter(latency).find(|row| row.case == after)?;
        let value = (1.0 - after.value / before.value) * 100.0;
        Some(Row { case: threads.to_owned(), metric: "latency_reduction_pct", value })
    });
    reduced.collect()
}

macro_rules! sources {
    ($($case:literal: $iops:literal $latency_ms:literal $cpu:literal;)+) => {
        &[$(
            Source {
                case: $case,
                metric: "iops",
                value: $iops as f64,
                fitted: true,
                bound: Bound::Percent(5.0),
                missed: false,
            },
            Source {
                case: $case,
                metric: "latency_us",
                value: $latency_ms * 1e3,
                fitted: true,
                bound: Bound::Percent(5.0), missed: false,
            },
            Source {
                case: $case,
                metric: "cpu_sys_pct",
                value: $cpu,
                fitted: true,
                bound: Bound::Percent(15.0),
                missed: false,
            },
        )+]
    };
}

const SOURCES: &[Source] = sources! {
    "before threads=8": 70691 0.107 4.5;
    "before threads=16": 100434 0.153 12.1;
    "before threads=32": 128122 0.244 20.2;
    "before threads=64": 163194 0.388 24.9;
    "after threads=8": 81217 0.093 3.7;
    "after threads=16": 135867 0.112 5.8;
    "after threads=32": 205450 0.152 6.5;
    "after threads=64": 247028 0.256 7.5;
};
