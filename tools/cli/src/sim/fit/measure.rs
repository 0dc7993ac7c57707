//! Jobs on a target, to fit a model to.

use std::time::Duration;

use clap::Args;
use weir::{QueueMode, Target};
use weir_bench::engine::run::{self, Measured};
use weir_bench::workload::{conduct, devices};
use weir_bio::units::{parse_size, parse_time_ns};
use weir_load::{Access, Job, Sizes};
use weir_sim::fit::Model;
use weir_sim::fit::priced::{self, Added, Ran, Setting};

use crate::{Failure, log};

/// The jobs of --target.
#[derive(Debug, Args)]
pub(super) struct Jobs {
    /// Depths of the jobs; the model is for those between the least and the greatest. 1, 4, 16 and
    /// 64 if not given.
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: Vec<u16>,
    /// Bytes of an I/O; 4k if not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    bs: Option<u64>,
    /// Rounds in which each depth is measured once, even: half are held back. 6 if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    rounds: Option<u16>,
    /// How long each is measured, after a tenth of a second; 500ms if not given.
    #[arg(long, value_name = "TIME", value_parser = parse_time_ns)]
    runtime: Option<u64>,
}

/// What is run before it is measured.
const RAMP: Duration = Duration::from_millis(100);

/// A disk takes commands of a page.
const BLOCK_LEAST: u64 = 4096;

/// How long a job lasts, ns.
const RUNTIME: std::ops::RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;

/// How often each scheduler is measured beside none: the median counts.
const TURNS: u64 = 7;

/// I/Os under way while a scheduler is measured, beside one alone, and how long.
const NULL_DEPTH: u16 = 32;
const NULL_RUNTIME: Duration = Duration::from_millis(30);

impl Jobs {
    /// The first that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--depth", !self.depth.is_empty()),
            ("--bs", self.bs.is_some()),
            ("--rounds", self.rounds.is_some()),
            ("--runtime", self.runtime.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// Measures and fits; what it was fitted to, and the model.
    pub(super) fn run(&self, text: &str, quiet: bool) -> Result<(String, Model), Failure> {
        let mut depths = self.depth.clone();
        depths.sort_unstable();
        depths.dedup();
        if depths.is_empty() {
            depths = vec![1, 4, 16, 64];
        }
        let block = self.bs.unwrap_or(4096);
        let rounds = self.rounds.unwrap_or(6).next_multiple_of(2);
        if block < BLOCK_LEAST {
            return Err(Failure::Bad(format!("--bs={block} is below {BLOCK_LEAST} bytes")));
        }
        let runtime = self.runtime.unwrap_or(500_000_000);
        if !RUNTIME.contains(&runtime) {
            let (least, most) = (RUNTIME.start(), RUNTIME.end());
            return Err(Failure::Bad(format!("--runtime={runtime}ns is outside {least}..={most}")));
        }
        let runtime = Duration::from_nanos(runtime);
        let target = of_text(text)?;
        if !quiet {
            let jobs = f64::from(rounds) * depths.len() as f64;
            let schedulers = (NULL_RUNTIME + RAMP / 20).as_secs_f64() * TURNS as f64 * 12.0;
            let takes = jobs * (RAMP + runtime).as_secs_f64() + schedulers;
            log::say(&format!("measures {text} for some {takes:.0} s"));
        }
        let (mut fitted, mut held, mut setting) = (Vec::new(), Vec::new(), None);
        for round in 0..rounds {
            for depth in &depths {
                let opened = devices::open(text, &target, 1)?;
                if setting.is_none() {
                    opened.notices.iter().for_each(|notice| log::say(notice));
                    let holes = conduct::holes(text, &*target.backing);
                    holes.iter().for_each(|notice| log::say(notice));
                }
                let ground = run::ground(&opened.device);
                let tags = opened.device.depth();
                if *depth > tags {
                    return Err(Failure::Bad(format!(
                        "--depth={depth} is above the {tags} of {text}"
                    )));
                }
                setting.get_or_insert((ground.bytes, tags, opened.device.limits().rotational));
                let job = random_reads(*depth, block, u64::from(round));
                let measured = run::one(&job, &opened.device, RAMP, runtime)?;
                let into = if round % 2 == 0 { &mut fitted } else { &mut held };
                into.push(ran(*depth, &measured)?);
            }
        }
        let (size, tags, rotational) = setting.expect("there are rounds and depths");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let schedulers = schedulers()?;
        let setting = Setting { size, tags, rotational, block, cpus, schedulers };
        let model = priced::fit(&fitted, &held, &setting);
        let model = model.map_err(|why| Failure::Bad(format!("{text}: {why}")))?;
        let depths: Vec<String> = depths.iter().map(u16::to_string).collect();
        let depths = depths.join(", ");
        let source = format!(
            "{}: random reads of {block} bytes by one thread without a scheduler, depths {depths}, \
             {rounds} rounds of {} ms",
            weir::target::shown(text),
            runtime.as_millis()
        );
        Ok((source, model))
    }
}

/// A target that is read, without a scheduler.
fn of_text(text: &str) -> Result<Target, Failure> {
    let bad = |why: String| Failure::Bad(format!("--target {text}: {why}"));
    let mut target = Target::parse(text).map_err(|why| bad(why.to_string()))?;
    if target.config.mode == QueueMode::Sq {
        return Err(bad(String::from("queue_mode=sq: the jobs run on the multi-queue path")));
    }
    if let Some(other) = target.config.scheduler.as_ref().filter(|name| *name != "none") {
        return Err(bad(format!("scheduler={other}: the jobs run without a scheduler")));
    }
    target.config.scheduler = Some(String::from("none"));
    target.config.read_only = true;
    Ok(target)
}

fn random_reads(depth: u16, block: u64, seed: u64) -> Job {
    Job {
        access: Access::Random,
        sizes: [0; 3].map(|_| Sizes::Fixed(block)),
        depth,
        time_based: true,
        seed: seed + 1,
        ..Job::default()
    }
}

fn ran(depth: u16, of: &Measured) -> Result<Ran, Failure> {
    match &of.failure {
        Some(why) => Err(Failure::Bad(why.clone())),
        None => Ok(Ran {
            depth,
            wall_ns: of.wall.as_nanos() as u64,
            cpu_ns: of.cpu.total().as_nanos() as u64,
            row: of.tally.all(),
        }),
    }
}

/// What each scheduler adds to the CPU time of an I/O, on a null device.
fn schedulers() -> Result<Vec<Added>, Failure> {
    let mut added = Vec::new();
    for name in MULTI_QUEUE {
        let mut turns = Vec::new();
        for turn in 0..TURNS {
            // Side by side: a shared processor is at one speed now and at another in a second.
            let cpu = |scheduler: &str| -> Result<[f64; 2], Failure> {
                Ok([null_cpu(scheduler, 1, turn)?, null_cpu(scheduler, NULL_DEPTH, turn)?])
            };
            let (without, with) = (cpu("none")?, cpu(name)?);
            turns.push([0, 1].map(|at| with[at] - without[at]));
        }
        let median = |at: usize| {
            turns.sort_by(|one, other| one[at].total_cmp(&other[at]));
            turns[turns.len() / 2][at]
        };
        added.push(Added::of(name, NULL_DEPTH, [0, 1].map(median)));
    }
    Ok(added)
}

/// The CPU time of an I/O on a null device with this scheduler, ns.
fn null_cpu(scheduler: &str, depth: u16, turn: u64) -> Result<f64, Failure> {
    let text = format!("null:64GiB,scheduler={scheduler}");
    let target = Target::parse(&text).map_err(|why| Failure::Bad(why.to_string()))?;
    let opened = devices::open(&text, &target, 1)?;
    let job = random_reads(depth, 4096, turn);
    let measured = run::one(&job, &opened.device, RAMP / 20, NULL_RUNTIME)?;
    let Ran { cpu_ns, row, .. } = ran(depth, &measured)?;
    Ok(cpu_ns as f64 / row.ios.max(1) as f64)
}

/// The schedulers of the multi-queue path.
const MULTI_QUEUE: [&str; 3] = ["mq-deadline", "kyber", "bfq"];
