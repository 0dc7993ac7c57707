//! Processes that share NVMe disks by way of each scheduler: the raw outputs of an ICPE 2024
//! paper (fio with io_uring, random reads of 4 KiB, 128 under way for each process; Linux 6.3.8
//! with forced synchronous dispatch; one socket of 10 cores, disks Samsung 980 Pro).

use weir_load::{Direction, Job};
use weir_queue::Config;
use weir_sim_disk::Spec;

use super::settings::{Bounds, Setting, Settings};
use super::{Bound, Case, Row, Scene, SceneError, Source, Span, rows_of};
use crate::figures::Figures;
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::HostSpec;

const MS: u64 = 1_000_000;

pub(super) const SCENE: Scene = Scene {
    name: "icpe24",
    about: "processes that share NVMe disks by way of none, kyber, mq-deadline and bfq",
    settings: &[
        Setting {
            name: "scheduler",
            bounds: Bounds::Words(&["none", "kyber", "mq-deadline", "bfq"]),
            default: "none,kyber,mq-deadline,bfq",
            meaning: "the scheduler of each disk",
        },
        Setting {
            name: "processes",
            bounds: Bounds::Wholes(1, 128),
            default: "1,2,3,4,5,10,15",
            meaning: "processes, bound to the cores in turn",
        },
        Setting {
            name: "ssds",
            bounds: Bounds::Wholes(1, 16),
            default: "1",
            meaning: "disks; each process uses all of them in turn",
        },
        Setting {
            name: "depth",
            bounds: Bounds::Whole(1, 1024),
            default: "128",
            meaning: "reads that each process keeps under way",
        },
        Setting {
            name: "cores",
            bounds: Bounds::Whole(1, 64),
            default: "10",
            meaning: "cores of the one socket; each has a hard queue of each disk",
        },
    ],
    cases,
    derive,
    sources: SOURCES,
    raw: &[],
    notes: &[],
};

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let mut profile = Profile::known("cascade-1sock-6.3").expect("a profile of ours");
    profile.machine.cores = settings.whole("cores") as usize;
    let mut cases = Vec::new();
    for scheduler in settings.words("scheduler") {
        for processes in settings.wholes("processes") {
            for ssds in settings.wholes("ssds") {
                let host = host(&profile, scheduler, (processes, ssds), settings.whole("depth"));
                cases.push(Case {
                    name: name(scheduler, processes, ssds),
                    host,
                    span: Span::Time { warm_up: 10 * MS, ns: 50 * MS },
                    rows: figures,
                });
            }
        }
    }
    Ok(cases)
}

fn name(scheduler: &str, processes: u64, ssds: u64) -> String {
    format!("scheduler={scheduler} processes={processes} ssds={ssds}")
}

fn host(profile: &Profile, scheduler: &str, (processes, ssds): (u64, u64), depth: u64) -> HostSpec {
    let cores = profile.machine.cores as u16;
    // fio hands in each read by itself unless it is told otherwise.
    let habit = Habit { depth: depth as u16, ..Habit::default() };
    let job = Job::random(Direction::Read, 4096);
    HostSpec {
        profile: profile.clone(),
        config: Config {
            queues: cores,
            scheduler: Some(scheduler.to_owned()),
            // Linux has 256 for each of its hard queues; all of them are one pool here.
            nr_requests: (scheduler != "none").then(|| (cores * 256).min(2048)),
            wbt_lat_us: Some(0),
            timeout_ns: 0,
            ..Config::default()
        },
        disk: Spec::preset("nvme-980pro").expect("a disk of ours"),
        disks: ssds as usize,
        san: None,
        processes: vec![Processes::new("fio", processes as usize, habit, job)],
        weights: Vec::new(),
        seed: 0,
    }
}

fn figures(case: &str, figures: &Figures) -> Vec<Row> {
    let rows = [
        ("iops", figures.iops()),
        ("latency_us", figures.latency_ns() / 1e3),
        ("lock_wait_pct", figures.spin_percent()),
    ];
    rows_of(case, rows)
}

/// At how many processes each scheduler has its peak, where there are several.
fn derive(rows: &[Row]) -> Vec<Row> {
    let mut derived = Vec::new();
    for scheduler in ["mq-deadline", "bfq"] {
        let of = |row: &&Row| {
            let ours = format!("scheduler={scheduler} ");
            row.metric == "iops" && row.case.starts_with(&ours) && row.case.ends_with(" ssds=1")
        };
        let points: Vec<&Row> = rows.iter().filter(of).collect();
        if points.len() < 2 {
            continue;
        }
        // Of equals the first.
        let peak = points.iter().rev().max_by(|a, b| a.value.total_cmp(&b.value));
        let processes = peak.and_then(|row| {
            let (_, rest) = row.case.split_once("processes=")?;
            rest.split(' ').next()?.parse::<f64>().ok()
        });
        let case = format!("scheduler={scheduler} ssds=1");
        let value = processes.expect("a case's name has its processes");
        derived.push(Row { case, metric: "peak_processes", value });
    }
    derived
}

macro_rules! sources {
    ($($scheduler:literal: $($processes:literal $kiops:literal $fitted:literal),+;)+) => {
        &[$($(Source {
            case: concat!(
                "scheduler=", $scheduler, " processes=", $processes, " ssds=1"
            ),
            metric: "iops",
            value: $kiops as f64 * 1e3,
            fitted: $fitted,
            bound: Bound::Percent(10.0), missed: false,
        },)+)+
        Source {
            case: "scheduler=mq-deadline ssds=1",
            metric: "peak_processes",
            value: 3.0,
            fitted: true,
            bound: Bound::Percent(0.0), missed: false,
        },
        Source {
            case: "scheduler=bfq ssds=1",
            metric: "peak_processes",
            value: 5.0,
            fitted: true,
            bound: Bound::Percent(0.0), missed: false,
        }]
    };
}

/// All points of `mq-deadline` and `bfq` were looked at while their locks were chosen.
const SOURCES: &[Source] = sources! {
    "none": 1 381 true, 2 727 false, 3 786 true, 4 784 false, 5 778 false, 10 776 false,
        15 775 false;
    "kyber": 1 304 true, 2 605 false, 3 787 true, 4 786 false, 5 782 false, 10 774 false,
        15 773 false;
    "mq-deadline": 1 310 true, 2 505 true, 3 569 true, 4 499 true, 5 488 true, 10 470 true,
        15 477 true;
    "bfq": 1 241 true, 2 294 true, 3 310 true, 4 309 true, 5 315 true, 10 274 true,
        15 273 true;
};
