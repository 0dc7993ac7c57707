//! An object storage server of Lustre before a disk-based array, with dm-multipath: the legacy path
//! and the multi-queue one (arXiv 1504.07481, of which the abstract alone has figures here).
//!
//! The two differ by what their queues are. Prices are those of `dell-slob`, and nothing was added.

use weir_load::{Direction, Job};
use weir_map::multipath::table::Policy;
use weir_queue::{Config, QueueMode};
use weir_sim_disk::{Kind, Spec};

use super::settings::{Bounds, Setting, Settings};
use super::{Bound, Case, Row, Scene, SceneError, Source, Span, rows_of};
use crate::cpu::CpuTime;
use crate::figures::Figures;
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::{HostSpec, Ports, San};

const MS: u64 = 1_000_000;

pub(super) const SCENE: Scene = Scene {
    name: "lustre-scsi-mq",
    about: "writers of a Lustre server over dm-multipath: the legacy path and multi-queue",
    settings: &[
        Setting {
            name: "mode",
            bounds: Bounds::Words(&["legacy", "mq"]),
            default: "legacy,mq",
            meaning: "the block layer",
        },
        Setting {
            name: "writers",
            bounds: Bounds::Wholes(1, 512),
            default: "36,72,144",
            meaning: "service threads, each with one write under way",
        },
        Setting {
            name: "size_kib",
            bounds: Bounds::Wholes(1, 1024),
            default: "4,1024",
            meaning: "KiB of a write",
        },
        Setting {
            name: "cores",
            bounds: Bounds::Whole(1, 64),
            default: "4",
            meaning: "processors of each of the two sockets",
        },
        Setting {
            name: "write_engine_ns",
            bounds: Bounds::Whole(1, 1_000_000),
            default: "5400",
            meaning: "what the array's engine does for a write, one after the other",
        },
        Setting {
            name: "paths",
            bounds: Bounds::Whole(1, 64),
            default: "16",
            meaning: "paths of a volume, over four adapters at most",
        },
        Setting {
            name: "volumes",
            bounds: Bounds::Whole(1, 64),
            default: "16",
            meaning: "volumes: object storage targets",
        },
    ],
    cases,
    derive,
    sources: SOURCES,
    raw: &[],
    notes: &[
        "The abstract says that SCSI write latency is less by as much as 13.6 %, and that idle \
         time of the processors is 7 times as much with 3.18 and blk-mq as with 2.6.32. It names \
         neither host nor array nor writers: these are assumptions, which docs/fidelity.md lists.",
    ],
};

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let mut cases = Vec::new();
    for size in settings.wholes("size_kib") {
        for writers in settings.wholes("writers") {
            for mode in settings.words("mode") {
                cases.push(Case {
                    name: format!("size_kib={size} writers={writers} mode={mode}"),
                    host: host(settings, size << 10, writers as usize, mode == "mq"),
                    span: Span::Time { warm_up: 20 * MS, ns: 100 * MS },
                    rows: figures,
                });
            }
        }
    }
    Ok(cases)
}

fn host(settings: &Settings, size: u64, writers: usize, is_mq: bool) -> HostSpec {
    let mut profile = Profile::known("broadwell-2sock-4.1").expect("a profile of ours");
    profile.machine.cores = settings.whole("cores") as usize;
    let cpus = profile.machine.sockets * profile.machine.cores;
    let mut disk = Spec::preset("powermax-8000").expect("a disk of ours");
    let Kind::Array(array) = &mut disk.kind else { unreachable!("the preset is an array") };
    array.write_engine = Some(settings.whole("write_engine_ns"));
    let queues = |depth| Config {
        mode: if is_mq { QueueMode::Mq } else { QueueMode::Sq },
        queues: 1,
        scheduler: Some(String::from(if is_mq { "none" } else { "deadline" })),
        depth: Some(depth),
        timeout_ns: 0,
        wbt_lat_us: Some(0),
        ..Config::default()
    };
    let paths = settings.whole("paths") as usize;
    let job = Job::random(Direction::Write, size);
    HostSpec {
        profile,
        config: queues(256),
        disk,
        disks: settings.whole("volumes") as usize,
        san: Some(San {
            hosts: vec![cpus],
            paths,
            adapters: paths.min(4),
            link: 1_600_000_000,
            path: queues(32),
            selector: Policy::ServiceTime,
            ports: Ports::default(),
        }),
        processes: vec![Processes::new("ost", writers, Habit::default(), job)],
        weights: Vec::new(),
        seed: 0,
    }
}

fn figures(case: &str, figures: &Figures) -> Vec<Row> {
    let CpuTime { user, system, spin, .. } = figures.time;
    let busy = (user + system + spin) as f64 / (figures.ns * figures.cpus) as f64;
    let rows = [
        ("iops", figures.iops()),
        ("write_latency_us", figures.latency_ns() / 1e3),
        ("device_us", figures.all.device.mean_ns() / 1e3),
        ("cpu_idle_pct", (1.0 - busy).max(0.0) * 100.0),
        ("lock_wait_pct", figures.spin_percent()),
    ];
    rows_of(case, rows)
}

/// The multi-queue path against the legacy one with the same writers.
fn derive(rows: &[Row]) -> Vec<Row> {
    let mut derived = Vec::new();
    for legacy in rows.iter().filter(|row| row.metric == "write_latency_us") {
        let Some(of) = legacy.case.strip_suffix(" mode=legacy") else { continue };
        let value = |mode: &str, metric: &str| {
            let case = format!("{of} mode={mode}");
            let found = rows.iter().find(|row| row.metric == metric && row.case == case);
            found.map(|row| row.value)
        };
        let ratio = |metric: &str| {
            Some(value("mq", metric)? / value("legacy", metric).filter(|v| *v > 0.0)?)
        };
        let mut add = |metric, value: Option<f64>| {
            derived.extend(value.map(|value| Row { case: of.to_owned(), metric, value }));
        };
        let latency = ratio("write_latency_us").map(|ratio| (1.0 - ratio) * 100.0);
        add("write_latency_reduction_pct", latency);
        add("iops_gain_pct", ratio("iops").map(|ratio| (ratio - 1.0) * 100.0));
        add("cpu_idle_factor", ratio("cpu_idle_pct"));
    }
    derived
}

const OF: &str = "size_kib=4 writers=72";

const SOURCES: &[Source] = &[
    Source {
        case: OF,
        metric: "write_latency_reduction_pct",
        value: 13.6,
        fitted: true,
        bound: Bound::Between(10.0, 14.0),
        missed: false,
    },
    Source {
        case: OF,
        metric: "cpu_idle_factor",
        value: 7.0,
        fitted: true,
        bound: Bound::Between(5.0, 9.0),
        missed: false,
    },
];
