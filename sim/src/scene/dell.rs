//! Oracle's SLOB on one and three hosts before a PowerMax 8000, the block layer's legacy path and
//! the multi-queue one, with dm-multipath over 16 paths.

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
    name: "dell-slob",
    about: "Oracle SLOB before a storage array: the legacy path and multi-queue, 1 and 3 servers",
    settings: &[
        Setting {
            name: "servers",
            bounds: Bounds::Wholes(1, 8),
            default: "1,3",
            meaning: "hosts before the array",
        },
        Setting {
            name: "hit",
            bounds: Bounds::Wholes(0, 100),
            default: "6,60",
            meaning: "reads in 100 that find their data in the array's cache",
        },
        Setting {
            name: "mode",
            bounds: Bounds::Words(&["legacy", "mq"]),
            default: "legacy,mq",
            meaning: "the block layer of all hosts",
        },
        Setting {
            name: "processes",
            bounds: Bounds::Wholes(1, 512),
            default: "80,160,320",
            meaning: "processes of a server that is alone",
        },
        Setting {
            name: "processes_each",
            bounds: Bounds::Wholes(1, 512),
            default: "107",
            meaning: "processes of each of several servers",
        },
        Setting {
            name: "paths",
            bounds: Bounds::Whole(1, 64),
            default: "16",
            meaning: "paths of a volume",
        },
        Setting {
            name: "volumes",
            bounds: Bounds::Whole(1, 64),
            default: "16",
            meaning: "volumes with data",
        },
        Setting {
            name: "queues",
            bounds: Bounds::Whole(1, 32),
            default: "1",
            meaning: "hard queues of each path and volume on the multi-queue path",
        },
        Setting {
            name: "scsi_percent",
            bounds: Bounds::Whole(0, 1000),
            default: "100",
            meaning: "of what sending and ending a command takes by the profile, on both paths",
        },
    ],
    cases,
    derive,
    sources: SOURCES,
    raw: &[],
    notes: &[
        "The document's tables were pictures: of the case with one server and 60 % hits it says \
         that the gain is very similar to that with 6 %, and of three servers it has round \
         figures.",
        "Read latency is said to be 26 % less, from 320 processes on the legacy path to 160 on \
         the other. By its own rates and Little's law the time of a process from one I/O to the \
         next is 59 % less (1.72 and 0.70 ms). A model in which a read's latency has the wait \
         for a processor in it cannot have both; that row is known to be off.",
        "device_us is a read's time below the queue of its volume.",
        "How many processes each of three servers had is not said: 107 are 80 users with 4 \
         threads, shared out.",
    ],
};

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let mut cases = Vec::new();
    for servers in settings.wholes("servers") {
        for hit in settings.wholes("hit") {
            for mode in settings.words("mode") {
                let processes = if servers == 1 { "processes" } else { "processes_each" };
                for processes in settings.wholes(processes) {
                    let shape = Shape {
                        servers: servers as usize,
                        hit: hit as u32,
                        mode: if mode == "mq" { QueueMode::Mq } else { QueueMode::Sq },
                        processes: processes as usize,
                        paths: settings.whole("paths") as usize,
                        volumes: settings.whole("volumes") as usize,
                        queues: settings.whole("queues") as u16,
                        scsi_percent: settings.whole("scsi_percent"),
                    };
                    cases.push(Case {
                        name: format!(
                            "servers={servers} hit={hit} mode={mode} processes={processes}"
                        ),
                        host: host(&shape),
                        span: Span::Time { warm_up: 20 * MS, ns: 150 * MS },
                        rows: figures,
                    });
                }
            }
        }
    }
    Ok(cases)
}

struct Shape {
    servers: usize,
    hit: u32,
    mode: QueueMode,
    /// Of each server.
    processes: usize,
    paths: usize,
    volumes: usize,
    /// Of each path and volume on the multi-queue path.
    queues: u16,
    /// Of the profile's time for sending and ending a command.
    scsi_percent: u64,
}

/// What a SLOB process computes between two reads on average, ns, with what the database does for
/// it: fitted to one server on the multi-queue path. At random up to twice that.
const THINK: u64 = 80_500;

fn host(shape: &Shape) -> HostSpec {
    let mut profile = Profile::known("broadwell-2sock-4.1").expect("a profile of ours");
    for price in [&mut profile.scsi.send, &mut profile.scsi.done] {
        *price = *price * shape.scsi_percent / 100;
    }
    let mut disk = Spec::preset("powermax-8000").expect("a disk of ours");
    let Kind::Array(array) = &mut disk.kind else { unreachable!("the preset is an array") };
    array.hit_percent = shape.hit;
    let is_mq = shape.mode == QueueMode::Mq;
    let queues = |depth| Config {
        mode: shape.mode,
        queues: if is_mq { shape.queues } else { 1 },
        scheduler: Some(String::from(if is_mq { "none" } else { "deadline" })),
        depth: Some(depth),
        timeout_ns: 0,
        wbt_lat_us: Some(0),
        ..Config::default()
    };
    let job = Job::random(Direction::Read, 8192);
    let habit = Habit { think: 0, think_spread: 2 * THINK, ..Habit::default() };
    // The first two servers have 28 processors, the others 20.
    let hosts = (0..shape.servers).map(|host| if host < 2 { 28 } else { 20 }).collect();
    HostSpec {
        profile,
        config: queues(256),
        disk,
        disks: shape.volumes,
        san: Some(San {
            hosts,
            paths: shape.paths,
            adapters: shape.paths.min(4),
            link: 1_600_000_000,
            path: queues(32),
            selector: Policy::ServiceTime,
            ports: Ports::default(),
        }),
        processes: vec![Processes::new("slob", shape.processes, habit, job)],
        weights: Vec::new(),
        seed: 0,
    }
}

fn figures(case: &str, figures: &Figures) -> Vec<Row> {
    let CpuTime { user, system, spin, .. } = figures.time;
    let busy = (user + system + spin) as f64 / (figures.ns * figures.cpus) as f64;
    let device = &figures.all.device;
    let rows = [
        ("iops", figures.iops()),
        ("read_latency_us", figures.latency_ns() / 1e3),
        ("device_us", device.mean_ns() / 1e3),
        ("cpu_busy_pct", busy * 100.0),
        ("lock_wait_pct", figures.spin_percent()),
    ];
    rows_of(case, rows)
}

/// A case as its name tells it, without the number of processes, and that number.
fn split(case: &str) -> Option<(&str, u64)> {
    let (of, processes) = case.split_once(" processes=")?;
    Some((of, processes.parse().ok()?))
}

/// Where the legacy path has its peak, and the other path against it with the fewest processes that
/// reach that.
fn derive(rows: &[Row]) -> Vec<Row> {
    let mut derived = Vec::new();
    let iops = |of: &str| -> Vec<(u64, f64)> {
        let rows = rows.iter().filter(|row| row.metric == "iops");
        let split = rows.filter_map(|row| Some((split(&row.case)?, row.value)));
        split.filter(|((case, _), _)| *case == of).map(|((_, count), iops)| (count, iops)).collect()
    };
    let latency = |case: &str| {
        let found = rows.iter().find(|row| row.metric == "read_latency_us" && row.case == case);
        found.map(|row| row.value)
    };
    let mut servers: Vec<&str> = Vec::new();
    for (of, _) in rows.iter().filter_map(|row| split(&row.case)) {
        let Some(of) = of.strip_suffix(" mode=legacy") else { continue };
        if !servers.contains(&of) {
            servers.push(of);
        }
    }
    for of in servers {
        let [legacy, mq] = ["legacy", "mq"].map(|mode| format!("{of} mode={mode}"));
        let peak = iops(&legacy).into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((processes, most)) = peak else { continue };
        let add = |rows: &mut Vec<Row>, case: &str, metric, value| {
            rows.push(Row { case: case.to_owned(), metric, value });
        };
        add(&mut derived, &legacy, "peak_processes", processes as f64);
        let mut others = iops(&mq);
        others.sort_by_key(|(count, _)| *count);
        let fewest = others.iter().find(|(_, iops)| *iops > 0.99 * most);
        let Some((count, reached)) = fewest else { continue };
        add(&mut derived, &mq, "processes_to_reach_it", *count as f64);
        add(&mut derived, of, "iops_gain_pct", (reached / most - 1.0) * 100.0);
        let [before, after] = [(&legacy, processes), (&mq, *count)]
            .map(|(case, count)| latency(&format!("{case} processes={count}")));
        if let (Some(before), Some(after)) = (before, after) {
            add(&mut derived, of, "latency_reduction_pct", (1.0 - after / before) * 100.0);
        }
    }
    derived
}

const fn source(
    case: &'static str,
    metric: &'static str,
    value: f64,
    fitted: bool,
    bound: Bound,
) -> Source {
    Source { case, metric, value, fitted, bound, missed: false }
}

/// It was used to set a parameter, or looked at while one was chosen.
const FITTED: bool = true;
const PREDICTED: bool = false;

const ONE: &str = "servers=1 hit=6";
const THREE_6: &str = "servers=3 hit=6";
const THREE_60: &str = "servers=3 hit=60";
const LEGACY_6: &str = "servers=3 hit=6 mode=legacy processes=107";
const MQ_6: &str = "servers=3 hit=6 mode=mq processes=107";
const LEGACY_60: &str = "servers=3 hit=60 mode=legacy processes=107";
const MQ_60: &str = "servers=3 hit=60 mode=mq processes=107";

/// Latencies as far as they were rounded.
const ABOUT_900: Bound = Bound::Between(850.0, 950.0);
const ABOUT_600: Bound = Bound::Between(550.0, 650.0);

const SOURCES: &[Source] = &[
    source(
        "servers=1 hit=6 mode=legacy processes=320",
        "iops",
        186_214.0,
        FITTED,
        Bound::Percent(3.0),
    ),
    source("servers=1 hit=6 mode=mq processes=160", "iops", 228_886.0, FITTED, Bound::Percent(3.0)),
    source(
        "servers=1 hit=6 mode=legacy",
        "peak_processes",
        320.0,
        FITTED,
        Bound::Between(320.0, 320.0),
    ),
    source(
        "servers=1 hit=6 mode=mq",
        "processes_to_reach_it",
        160.0,
        PREDICTED,
        Bound::Between(160.0, 160.0),
    ),
    source(ONE, "iops_gain_pct", 22.9, FITTED, Bound::Between(18.0, 28.0)),
    Source {
        missed: true,
        ..source(ONE, "latency_reduction_pct", 26.0, PREDICTED, Bound::Between(21.0, 31.0))
    },
    Source {
        missed: true,
        ..source("servers=1 hit=60", "iops_gain_pct", 22.9, PREDICTED, Bound::Between(18.0, 28.0))
    },
    source(LEGACY_6, "iops", 330_000.0, FITTED, Bound::Percent(3.0)),
    source(LEGACY_6, "read_latency_us", 900.0, FITTED, ABOUT_900),
    source(MQ_6, "iops", 330_000.0, FITTED, Bound::Percent(3.0)),
    source(MQ_6, "read_latency_us", 900.0, FITTED, ABOUT_900),
    source(THREE_6, "iops_gain_pct", 0.0, FITTED, Bound::Between(-2.0, 2.0)),
    source(LEGACY_60, "iops", 477_000.0, PREDICTED, Bound::Percent(3.0)),
    source(LEGACY_60, "read_latency_us", 600.0, PREDICTED, ABOUT_600),
    source(MQ_60, "iops", 494_000.0, FITTED, Bound::Percent(3.0)),
    source(MQ_60, "read_latency_us", 600.0, PREDICTED, ABOUT_600),
    Source {
        missed: true,
        ..source(THREE_60, "iops_gain_pct", 3.6, PREDICTED, Bound::Between(2.6, 4.6))
    },
];
