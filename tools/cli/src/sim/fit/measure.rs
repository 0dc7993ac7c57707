//! Jobs on a target, to fit a model to.

use std::time::Duration;

use clap::Args;
use weir::{QueueMode, Target};
use weir_bench::engine::run::{self, Measured};
use weir_bench::workload::{conduct, devices};
use weir_bio::units::{parse_size, parse_time_ns};
use weir_load::{Access, Job, Sizes, Times};
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
    /// Measure jobs under these schedulers too, in turn with the others, and print how far the
    /// model is off: it knows nothing of them.
    #[arg(long, value_name = "SCHEDULER,...", value_delimiter = ',',
          value_parser = clap::builder::PossibleValuesParser::new(PREDICTED))]
    predict: Vec<String>,
    /// Depths of those jobs, between the least and the greatest of --depth; the same as --depth if
    /// not given.
    #[arg(long, value_name = "N,...", value_delimiter = ',', requires = "predict",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    predict_depth: Vec<u16>,
}

/// What is run before it is measured.
const RAMP: Duration = Duration::from_millis(100);

/// A disk takes commands of a page.
const BLOCK_LEAST: u64 = 4096;

/// How long a job lasts, ns.
const RUNTIME: std::ops::RangeInclusive<u64> = 10_000_000..=3_600_000_000_000;

/// I/Os under way while a scheduler is measured, beside one alone, and how long.
const NULL_DEPTH: u16 = 32;
const NULL_RUNTIME: Duration = Duration::from_millis(30);
const NULL_RAMP: Duration = Duration::from_millis(5);

impl Jobs {
    /// The first that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--depth", !self.depth.is_empty()),
            ("--bs", self.bs.is_some()),
            ("--rounds", self.rounds.is_some()),
            ("--runtime", self.runtime.is_some()),
            ("--predict", !self.predict.is_empty()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// Measures and fits; what it was fitted to, and the model.
    pub(super) fn run(&self, text: &str, quiet: bool) -> Result<(String, Model), Failure> {
        let depths = rising(&self.depth).unwrap_or_else(|| vec![1, 4, 16, 64]);
        let predicted = rising(&self.predict_depth).unwrap_or_else(|| depths.clone());
        let seen = depths[0]..=depths[depths.len() - 1];
        if let Some(depth) = predicted.iter().find(|depth| !seen.contains(depth)) {
            let (least, most) = (seen.start(), seen.end());
            let what =
                format!("--predict-depth={depth} is outside the {least}..={most} of --depth");
            return Err(Failure::Bad(what));
        }
        let block = self.bs.unwrap_or(BLOCK_LEAST);
        if block < BLOCK_LEAST {
            return Err(Failure::Bad(format!("--bs={block} is below {BLOCK_LEAST} bytes")));
        }
        let runtime = self.runtime.unwrap_or(500_000_000);
        if !RUNTIME.contains(&runtime) {
            let (least, most) = (RUNTIME.start(), RUNTIME.end());
            return Err(Failure::Bad(format!("--runtime={runtime}ns is outside {least}..={most}")));
        }
        let under = |scheduler: &str, depths: &[u16]| -> Result<Vec<Subject>, Failure> {
            let target = of_text(text, scheduler)?;
            let of = |depth: &u16| Subject { target: target.clone(), depth: *depth };
            Ok(depths.iter().map(of).collect())
        };
        let mut others = Vec::new();
        for scheduler in &self.predict {
            others.extend(under(scheduler, &predicted)?);
        }
        let asked = Asked {
            text,
            block,
            rounds: self.rounds.unwrap_or(6).next_multiple_of(2),
            runtime: Duration::from_nanos(runtime),
            fitted: under("none", &depths)?,
            others,
        };
        if !quiet {
            log::say(&format!("measures {text} for some {:.0} s", asked.takes_s()));
        }
        let model = asked.fit()?;
        let depths: Vec<String> = depths.iter().map(u16::to_string).collect();
        let source = format!(
            "{}: random reads of {block} bytes by one thread without a scheduler, depths {}, \
             {} rounds of {} ms",
            weir::target::shown(text),
            depths.join(", "),
            asked.rounds,
            asked.runtime.as_millis()
        );
        Ok((source, model))
    }
}

/// Numbers that were given, each once; `None` if none were.
fn rising(given: &[u16]) -> Option<Vec<u16>> {
    let mut numbers = given.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    (!numbers.is_empty()).then_some(numbers)
}

/// A job's target, with its scheduler, and depth.
struct Subject {
    target: Target,
    depth: u16,
}

/// What is to be measured.
struct Asked<'a> {
    text: &'a str,
    block: u64,
    rounds: u16,
    runtime: Duration,
    fitted: Vec<Subject>,
    others: Vec<Subject>,
}

/// What is known of a target once it is open: bytes, tags, whether it turns.
type Ground = (u64, u16, bool);

impl Asked<'_> {
    fn takes_s(&self) -> f64 {
        let jobs = (self.fitted.len() + self.others.len()) as f64;
        let job = (RAMP + self.runtime).as_secs_f64();
        let alone = (NULL_RAMP + NULL_RUNTIME).as_secs_f64() * 2.0 * (MULTI_QUEUE.len() + 1) as f64;
        f64::from(self.rounds) * (jobs * job + alone)
    }

    /// Measures all in turn, round by round: a shared processor is at one speed now and at another
    /// in a moment.
    fn fit(&self) -> Result<Model, Failure> {
        let (mut fitted, mut held, mut others, mut ground) = (vec![], vec![], vec![], None);
        let mut null = Null::default();
        for round in 0..self.rounds {
            let into = if round % 2 == 0 { &mut fitted } else { &mut held };
            for subject in &self.fitted {
                into.push(self.measure(subject, round, &mut ground)?);
            }
            for subject in &self.others {
                others.push(self.measure(subject, round, &mut ground)?);
            }
            null.measure(u64::from(round))?;
        }
        let (size, tags, rotational) = ground.expect("there are rounds and depths");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let (schedulers, paces) = (null.added(), priced::paces(&null.alone));
        let block = self.block;
        let setting = Setting { size, tags, rotational, block, cpus, schedulers, paces };
        let model = priced::fit(&fitted, &held, &others, &setting);
        model.map_err(|why| Failure::Bad(format!("{}: {why}", self.text)))
    }

    fn measure(
        &self,
        subject: &Subject,
        round: u16,
        ground: &mut Option<Ground>,
    ) -> Result<Ran, Failure> {
        let Subject { target, depth } = subject;
        let opened = devices::open(self.text, target, 1)?;
        if ground.is_none() {
            opened.notices.iter().chain(&opened.warnings).for_each(|notice| log::say(notice));
            let holes = conduct::holes(self.text, &*target.backing);
            holes.iter().for_each(|notice| log::say(notice));
        }
        let tags = opened.device.depth();
        if *depth > tags {
            let what = format!("--depth={depth} is above the {tags} of {}", self.text);
            return Err(Failure::Bad(what));
        }
        let bytes = run::ground(&opened.device).bytes;
        ground.get_or_insert((bytes, tags, opened.device.limits().rotational));
        let job = random_reads(*depth, self.block, u64::from(round));
        let measured = run::one(&job, &opened.device, RAMP, self.runtime)?;
        ran(target.config.scheduler.as_deref().unwrap_or_default(), *depth, &measured)
    }
}

/// A target that is read, under this scheduler.
fn of_text(text: &str, scheduler: &str) -> Result<Target, Failure> {
    let bad = |why: String| Failure::Bad(format!("--target {text}: {why}"));
    let mut target = Target::parse(text).map_err(|why| bad(why.to_string()))?;
    if target.config.mode == QueueMode::Sq {
        return Err(bad(String::from("queue_mode=sq: the jobs run on the multi-queue path")));
    }
    if let Some(other) = target.config.scheduler.as_ref().filter(|name| *name != "none") {
        let what = format!("scheduler={other}: the jobs run without one, and those of --predict");
        return Err(bad(what + " under its own"));
    }
    target.config.scheduler = Some(scheduler.to_owned());
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

fn ran(scheduler: &str, depth: u16, of: &Measured) -> Result<Ran, Failure> {
    match &of.failure {
        Some(why) => Err(Failure::Bad(why.clone())),
        None => Ok(Ran {
            scheduler: scheduler.to_owned(),
            depth,
            wall_ns: of.wall.as_nanos() as u64,
            cpu_ns: of.cpu.total().as_nanos() as u64,
            row: of.tally.all(),
        }),
    }
}

/// The schedulers of the multi-queue path.
const MULTI_QUEUE: [&str; 3] = ["mq-deadline", "kyber", "bfq"];

/// Those that jobs can be predicted under.
const PREDICTED: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

/// CPU times of an I/O on a null device, ns: with one under way, and with [`NULL_DEPTH`].
type CpuTimes = [f64; 2];

/// What was measured on a null device.
#[derive(Default)]
struct Null {
    /// Of each round, without a scheduler and with each of [`MULTI_QUEUE`].
    rounds: Vec<[CpuTimes; 1 + MULTI_QUEUE.len()]>,
    /// Times of I/Os that were alone, without a scheduler.
    alone: Times,
}

impl Null {
    fn measure(&mut self, round: u64) -> Result<(), Failure> {
        let mut of_round = [[0.0; 2]; 1 + MULTI_QUEUE.len()];
        for (name, times) in ["none"].into_iter().chain(MULTI_QUEUE).zip(&mut of_round) {
            for (depth, cpu) in [1, NULL_DEPTH].into_iter().zip(times) {
                let ran = on_null(name, depth, round)?;
                *cpu = ran.cpu_ns as f64 / ran.row.ios.max(1) as f64;
                if name == "none" && depth == 1 {
                    self.alone.add(&ran.row.total);
                }
            }
        }
        self.rounds.push(of_round);
        Ok(())
    }

    /// What each scheduler adds to the CPU time of an I/O.
    fn added(&self) -> Vec<Added> {
        let added = |(number, name): (usize, &&str)| {
            let more = [0, 1].map(|depth| {
                let of = |round: &[CpuTimes; 4]| round[number + 1][depth] - round[0][depth];
                middle(self.rounds.iter().map(of).collect())
            });
            Added::of(name, NULL_DEPTH, more)
        };
        MULTI_QUEUE.iter().enumerate().map(added).collect()
    }
}

/// The mean without the lowest and the highest eighth: what was disturbed does not count.
fn middle(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    let left_out = of.len() / 8;
    let kept = &of[left_out..of.len() - left_out];
    kept.iter().sum::<f64>() / kept.len() as f64
}

fn on_null(scheduler: &str, depth: u16, round: u64) -> Result<Ran, Failure> {
    let text = format!("null:64GiB,scheduler={scheduler}");
    let target = Target::parse(&text).map_err(|why| Failure::Bad(why.to_string()))?;
    let opened = devices::open(&text, &target, 1)?;
    let job = random_reads(depth, BLOCK_LEAST, round);
    ran(scheduler, depth, &run::one(&job, &opened.device, NULL_RAMP, NULL_RUNTIME)?)
}
