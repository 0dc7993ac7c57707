//! `weir compare`: the same job on two or more variants, interleaved, with a verdict.

mod command;
mod flags;
mod go_on;
pub(crate) mod help;
mod leaving;
mod output;
mod preparing;
mod simulated;
mod variants;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use weir::Target;
use weir_bench::compare::interval::Looks;
use weir_bench::compare::summary::Judging;
use weir_bench::compare::{
    Compared, Earlier, Length, Plan, Program, Switch, Variant, Work, kernel, summary,
};
use weir_bench::workload::devices;
use weir_bench::workload::spec::{Prepare, RunSpec};
use weir_trace::document::{self, CompareDocument, Comparison, Document, Point, SweepDocument};

use crate::bench::{self, Window};
use crate::log;
use crate::output::{print, print_line};
use crate::values::{RAMP_TIME, RUNTIME, whole};
use crate::{Failure, completion, report};
use command::CommandFlags;
use flags::{JobFlags, Sweep, VariantFlags, time};
use go_on::GoesOn;
use leaving::{Scratch, signals};
use variants::{all_differ, like_with_like};

/// The target where none is given.
const TARGET: &str = "ram:1GiB";
/// How long a run measures, and runs before that, where nothing is said and the job has no end of
/// its own.
const RUN: Duration = Duration::from_secs(2);
const RAMP: Duration = Duration::from_millis(500);
/// The most rounds of a comparison.
const MOST_ROUNDS: u32 = 1000;
/// Where results go.
const FOLDER: &str = "weir-data";

/// The primary metric of `hpc`.
const WRITE_LATENCY: &str = "write_latency_mean_ns";

/// What ends a comparison with exit status 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FailIf {
    /// A variant is slower than the first one.
    Slower,
    /// Any two variants differ.
    Different,
}

impl FailIf {
    /// The first comparison by the primary metric that is a failure.
    fn found_in(self, compare: &document::Compare) -> Option<&Comparison> {
        let first = compare.variants.first().map(|variant| variant.name.as_str());
        let fails = |found: &&Comparison| match self {
            FailIf::Slower => Some(found.a.as_str()) == first && summary::is_worse(found),
            FailIf::Different => summary::differs(found),
        };
        summary::by_primary(compare).find(fails)
    }
}

/// Runs the same job on two or more variants in turn and says whether they differ.
///
/// Each round has one run of every variant, in random order, each a process of its own; a run that
/// the host disturbed is made again. Jobs that end by themselves are compared by the time that
/// takes. OPTS are options of the target (a=b,c=d), or a whole target, and job.FLAG=VALUE for a
/// variant whose job differs. For oltp --target can be
/// given several times, as for `weir bench`, and OPTS are options of each.
/// Without --a and --b the legacy path is compared with multi-queue. A variant of the other queue
/// mode than the first one's that says no scheduler has the counterpart of the first one's: none
/// for noop, mq-deadline for deadline, bfq for cfq. A preset, a job file or
/// flags, as for `weir bench`, say what is run; without any, and without --target, it is oltp on
/// ram:1GiB; what a job names as its file is the target too. --run runs a command of yours instead,
/// and switches the kernel's scheduler of the disk below it between runs. Exit status: 0 if the
/// variants were compared, whatever came of it, 1 if --fail-if says so, 2 if nothing could be
/// compared, as where too few rounds count.
///
/// Example: weir compare --target ram:1GiB --a scheduler=none --b scheduler=bfq --iodepth 32
/// Example: weir compare --target file:/dev/sdb --kernel-scheduler none,mq-deadline,bfq --rw read
/// Example: weir compare --kernel-scheduler none,mq-deadline,bfq --device sda --run 'make -j8'
/// Example: weir compare --a queue_mode=sq,job.threads=4 --b queue_mode=mq,job.threads=2
/// Example: weir compare --sim icpe24 --a scheduler=none --b scheduler=bfq --set processes=8
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Compare {
    /// The target: KIND:REST[,OPTION=VALUE]...; ram:1GiB if neither this nor the job names one. For
    /// oltp several are a group that the data is striped over.
    #[arg(long, add = completion::targets())]
    target: Vec<String>,
    #[command(flatten)]
    variants: VariantFlags,
    /// The kernel's own schedulers as variants, switched on the block device of --target, or on
    /// --device (root).
    #[arg(long, value_name = "NAMES", value_delimiter = ',', add = completion::schedulers())]
    kernel_scheduler: Vec<String>,
    #[command(flatten)]
    command: CommandFlags,
    /// Simulate instead of measuring: a scene of weir sim list, or FILE.toml. OPTS are settings,
    /// and rounds are seeds; without --a and --b each case that the settings come to is a variant.
    #[arg(
        long,
        value_name = "SCENE|FILE.toml",
        conflicts_with_all = ["target", "kernel_scheduler", "destroy", "prepare", "run"]
    )]
    sim: Option<String>,
    /// A setting of what is simulated.
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "sim")]
    set: Vec<String>,
    /// Repeat the comparison with each value of a flag of the job, an option of the target, or a
    /// setting of what is simulated.
    #[arg(long, value_name = "NAME=V1,V2,...")]
    sweep: Option<Sweep>,
    /// So many rounds, each with one run of every variant, whatever they say; fewer than three
    /// decide nothing. If not given, as many as it takes until the primary metric decides.
    #[arg(long, value_parser = whole::<u32>(3..=u64::from(MOST_ROUNDS)))]
    rounds: Option<u32>,
    /// The most rounds it may take to decide.
    #[arg(
        long,
        value_name = "ROUNDS",
        default_value_t = MOST_ROUNDS,
        conflicts_with_all = ["rounds", "sim"],
        value_parser = whole::<u32>(3..=u64::from(MOST_ROUNDS))
    )]
    max_rounds: u32,
    /// The longest it may take to decide: if not given two minutes, or ten rounds where those take
    /// longer.
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with_all = ["rounds", "sim"],
        value_parser = time(RUNTIME)
    )]
    max_time: Option<Duration>,
    /// Go on with a comparison that was saved: more rounds of the same, by the same rules.
    #[arg(
        long = "continue",
        value_name = "FILE",
        conflicts_with_all = [
            "rounds", "target", "kernel_scheduler", "sim", "set", "sweep", "metric", "runtime",
            "ramp_time", "randseed", "same", "run", "device", "figure", "unit", "setup", "between",
            "run_timeout"
        ]
    )]
    continues: Option<PathBuf>,
    /// The primary metric, which comes first and which --fail-if goes by; if not given, what
    /// --figure finds, the time to finish where all jobs end by themselves, commits a second of
    /// oltp, the mean latency of writes of hpc, else I/Os a second.
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(summary::metrics()))]
    metric: Option<String>,
    /// Differences up to this do not matter: what is known to be smaller is "the same within" it.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    within: Option<f64>,
    /// Exit with status 1 if by the primary metric a variant is slower than the first one, or if
    /// any two are different.
    #[arg(long, value_name = "WHAT")]
    fail_if: Option<FailIf>,
    /// How long each run measures: 2s if not given, and where all jobs end by themselves until
    /// they have.
    #[arg(long, value_parser = time(RUNTIME))]
    runtime: Option<Duration>,
    /// How long each run runs before that: 500ms if not given, and not at all where all jobs end by
    /// themselves.
    #[arg(long, value_parser = time(RAMP_TIME))]
    ramp_time: Option<Duration>,
    /// Seed of the order and of everything random in the runs; drawn from the clock, and told, if
    /// not given.
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX))]
    randseed: Option<u64>,
    /// Write over what others keep on a target: a file system, a partition table, any data that no
    /// job of weir has written.
    #[arg(long)]
    destroy: bool,
    /// Write the target before the first round: auto what is weir's own, memory and the holes of
    /// files that weir has made; fill all that the job touches; no nothing.
    #[arg(long, value_name = "WHAT", default_value = "auto", value_parser = bench::prepare())]
    prepare: Prepare,
    /// Let a variant be the same as another, to see what noise does.
    #[arg(long)]
    same: bool,
    /// Where every run is saved as JSON; ./weir-data/compare-<UTC time>.json if not given.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Where the report is written; ./weir-data/compare-<UTC time>.html if not given.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write words and tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the figures of every run as CSV to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Put back the scheduler that a killed comparison left switched, from the file it wrote.
    #[arg(long, value_name = "FILE", exclusive = true)]
    put_back: Option<PathBuf>,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    job: JobFlags,
    /// What `--continue` goes on with.
    #[arg(skip)]
    goes_on: Option<GoesOn>,
}

impl Compare {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if let Some(state) = &self.put_back {
            let device = kernel::put_back_from(state)?;
            return print_line(&format!("{device} is as it was"));
        }
        if let Some(file) = self.continues.take() {
            return self.of_saved(&file)?.run();
        }
        if let Some(scene) = self.sim.clone() {
            return self.simulate(&scene);
        }
        if self.command.run.is_some() {
            return self.run_command();
        }
        if self.target.is_empty() && self.variants.need_a_target() {
            self.target.extend(self.job.target()?);
        }
        self.check_group()?;
        let seed = *self.randseed.get_or_insert_with(seed_of_the_clock);
        let variants = self.variants()?;
        let mut points = self.points(&variants)?;
        for (_, variants, job) in &mut points {
            self.give_jobs(variants, job, seed)?;
        }
        let specs = points.iter().map(|(_, variants, job)| self.spec(job, &variants[0], seed));
        let mut specs = specs.collect::<Result<Vec<RunSpec>, Failure>>()?;
        let own = points.iter().zip(&specs).flat_map(|((_, variants, _), spec)| {
            variants.iter().map(|variant| variant.spec(spec)).collect::<Vec<_>>()
        });
        let own: Vec<RunSpec> = own.collect();
        self.choose_metric(&own)?;
        let changes = own.iter().any(RunSpec::changes);
        try_to_open(points.iter().flat_map(|(_, variants, _)| variants), changes)?;
        self.outputs().try_for_each(output::probe)?;
        let stop = signals()?;
        let variants_of = points.iter().map(|(_, variants, _)| &variants[..]);
        preparing::before_all(&mut specs, variants_of, &stop)?;
        let switch = self.switch(&variants)?;
        let folder = Scratch::new()?;
        let mut done = Vec::new();
        let mut stopped = None;
        let path = std::env::current_exe().map_err(|e| format!("the command itself: {e}"))?;
        for ((value, variants, _), spec) in points.iter().zip(specs) {
            let (path, folder) = (path.clone(), folder.path().to_owned());
            let program = Program { path, spec, folder };
            let plan = Plan {
                variants,
                work: Work::Program(&program),
                length: self.length(),
                earlier: self.earlier(),
                seed,
                judging: judging(&self),
                switch: switch.as_ref(),
                stop: &stop,
            };
            let mut compared = self.at(value, &plan);
            stopped = compared.stopped.take();
            done.push((value.clone(), compared.document));
            if stopped.is_some() {
                break;
            }
        }
        // The scheduler is put back before results are written: other programs may use the device.
        let back = switch.map_or(Ok(()), Switch::put_back);
        let ended = self.end(done, stopped);
        back?;
        ended
    }

    /// How many rounds there are.
    fn length(&self) -> Length {
        let until = Length::UntilDecided { rounds: self.max_rounds, time: self.max_time };
        self.rounds.map_or(until, Length::Rounds)
    }

    /// What was measured before.
    fn earlier(&self) -> Earlier {
        self.goes_on.as_ref().map(|goes_on| goes_on.earlier.clone()).unwrap_or_default()
    }

    /// The command line, to do it again with the same seed.
    fn command(&self, seed: u64) -> Vec<String> {
        self.goes_on.as_ref().map_or_else(|| command(seed), |goes_on| goes_on.command.clone())
    }

    /// A run of this job. One that ends by itself is judged by the time it takes, so none of it is
    /// done before that is measured.
    fn spec(&self, job: &JobFlags, first: &Variant, seed: u64) -> Result<RunSpec, Failure> {
        let of = |runtime, ramp| {
            let window = Window { runtime, ramp, seed: Some(seed) };
            job.spec(&first.targets, window)
        };
        let ends = of(self.runtime, None)?.ends_by_itself();
        let (runtime, ramp) = if ends { (None, Duration::ZERO) } else { (Some(RUN), RAMP) };
        let spec = of(self.runtime.or(runtime), Some(self.ramp_time.unwrap_or(ramp)))?;
        let (destroy, prepare) = (self.destroy, self.prepare);
        Ok(RunSpec { command: self.command(seed), destroy, prepare, ..spec })
    }

    /// One comparison, with its progress; what it is called goes into its document.
    fn at(&self, value: &str, plan: &Plan<'_>) -> Compared {
        let mut progress = output::Progress::new(self.quiet, value, plan.variants);
        let mut compared = plan.run(&mut |now| progress.show(&now));
        progress.end();
        compared.document.command = self.command(plan.seed);
        let shown: Vec<_> =
            self.targets().iter().map(|target| weir::target::shown(target)).collect();
        compared.document.target = self.command.device.clone().unwrap_or_else(|| shown.join(" "));
        compared
    }

    /// Saves, draws, prints, and says how it ended: the results are saved also where the output is
    /// not read.
    fn end(
        &self,
        done: Vec<(String, CompareDocument)>,
        stopped: Option<String>,
    ) -> Result<(), Failure> {
        let before = self.goes_on.as_ref().map_or(0, |goes_on| goes_on.earlier.runs.len());
        let measured = done.iter().any(|(_, document)| document.runs.len() > before);
        if !measured && let Some(why) = stopped {
            return Err(Failure::Bad(why));
        }
        let started = done.first().map(|(_, document)| document.started_at.replace(':', ""));
        let started = started.unwrap_or_default();
        let of_now = |kind: &str| Path::new(FOLDER).join(format!("compare-{started}.{kind}"));
        let saved = self.save.clone().unwrap_or_else(|| of_now("json"));
        let page = self.report.clone().unwrap_or_else(|| of_now("html"));
        let ended = ended(&done, stopped, &saved).and_then(|()| self.judge(&done));
        let mut text = String::new();
        for (value, document) in &done {
            let swept = self.sweep.as_ref().map(|sweep| (sweep.name.as_str(), value.as_str()));
            output::tables(&mut text, swept, document);
        }
        let undecided = self.rounds.is_none() && self.sweep.is_none() && self.sim.is_none();
        let undecided = undecided
            && done.iter().any(|(_, document)| summary::unsettled(&document.compare).is_some());
        let document = self.document(done).ok_or("nothing was compared")?;
        let kept = output::save(&saved, &document);
        let answer = output::json(&document)?;
        let (words, table) = (self.markdown.as_deref(), self.csv.as_deref());
        let drawn = report::write(&[document], Some(&page), words, table);
        if self.json {
            text = answer;
        } else {
            output::written(&mut text, "every run", &saved, &kept);
            output::written(&mut text, "report", &page, &drawn);
            if undecided && kept.is_ok() {
                text += &format!("more rounds: weir compare --continue {}\n", saved.display());
            }
        }
        let said = print(&text);
        // The verdict is the answer also where a file could not be written.
        if ended.is_err() {
            for (what, failed) in [("every run", &kept), ("the report", &drawn)] {
                if let Err(Failure::Bad(why) | Failure::No(why)) = failed {
                    log::say(&format!("weir: {what}: {why}"));
                }
            }
        }
        ended.and(kept).and(drawn).and(said)
    }

    /// Chooses the primary metric where the job has one of its own, or sees that it has the one
    /// that is asked for.
    fn choose_metric(&mut self, specs: &[RunSpec]) -> Result<(), Failure> {
        // What was published of its model is the latency of writes.
        let is_hpc = self.job.is("hpc") && specs.iter().all(RunSpec::has_reads_and_writes);
        // Jobs that end by themselves are compared by when they do.
        let ends = specs.iter().all(RunSpec::ends_by_itself);
        if self.metric.is_none() && is_hpc && !ends {
            self.metric = Some(String::from(WRITE_LATENCY));
        }
        let metric = self.metric.as_deref().unwrap_or_default();
        let is_of = |kind: &str| metric.starts_with(kind);
        let (has, why) = match () {
            () if is_of("commit") => (self.job.is_oltp(), "only the preset oltp commits"),
            () if is_of("makespan") => (ends, "the job does not end by itself"),
            () if is_of("read") || is_of("write") => (
                specs.iter().all(RunSpec::has_reads_and_writes),
                "the job has not both reads and writes; where all is of one kind, iops and \
                 latency_... are that kind's",
            ),
            () => return Ok(()),
        };
        if has { Ok(()) } else { Err(Failure::Bad(format!("--metric {metric}: {why}"))) }
    }

    /// Whether what was found is a failure, by what was asked for.
    fn judge(&self, done: &[(String, CompareDocument)]) -> Result<(), Failure> {
        let Some(fail_if) = self.fail_if else { return Ok(()) };
        // What was not compared has not passed.
        let unanswered = done.iter().find_map(|(_, d)| summary::unanswered(&d.compare));
        if let Some(why) = unanswered {
            return Err(Failure::Bad(format!("--fail-if cannot tell: {why}")));
        }
        let found = done.iter().find_map(|(value, document)| {
            fail_if.found_in(&document.compare).map(|found| (value, found))
        });
        let Some((value, Comparison { a, b, metric, verdict, .. })) = found else { return Ok(()) };
        let at = match &self.sweep {
            Some(sweep) => format!("{}={value}: ", sweep.name),
            None => String::new(),
        };
        Err(Failure::No(format!("{at}{verdict} ({metric}, {b} against {a})")))
    }

    /// All that was compared as one document; none if nothing was.
    fn document(&self, done: Vec<(String, CompareDocument)>) -> Option<Document> {
        let Some(sweep) = &self.sweep else {
            return done.into_iter().next().map(|(_, d)| Document::Compare(Box::new(d)));
        };
        let points = done.into_iter().map(|(value, document)| Point { value, document }).collect();
        let name = sweep.name.clone();
        let sweep = SweepDocument { name, points, ..SweepDocument::default() };
        Some(Document::Sweep(Box::new(sweep)))
    }

    /// The files that are to be written; one whose name will have the time, as it is in any other.
    fn outputs(&self) -> impl Iterator<Item = PathBuf> {
        let given = [&self.save, &self.report, &self.markdown, &self.csv];
        let timed = [(&self.save, "compare.json"), (&self.report, "compare.html")];
        let timed = timed.into_iter().filter(|(given, _)| given.is_none());
        let timed = timed.map(|(_, name)| Path::new(FOLDER).join(name));
        given.into_iter().flatten().cloned().chain(timed).collect::<Vec<_>>().into_iter()
    }

    fn targets(&self) -> Vec<String> {
        match &self.target[..] {
            [] => vec![String::from(TARGET)],
            given => given.to_vec(),
        }
    }

    /// That several targets are a group of the job, and of one that has groups.
    fn check_group(&self) -> Result<(), Failure> {
        let count = self.target.len();
        if count > 1 && !self.kernel_scheduler.is_empty() {
            return Err(Failure::Bad(format!(
                "--kernel-scheduler switches one device, and --target is given {count} times"
            )));
        }
        if count > 1 && !self.job.is_oltp() {
            return Err(Failure::Bad(format!(
                "--target is given {count} times: only the preset oltp takes several; other jobs \
                 run on all of them as on a stripe, --target striped:1MiB:A+B"
            )));
        }
        Ok(())
    }

    /// The comparisons to be made: the value swept, the variants and the job.
    #[allow(clippy::type_complexity)] // Rows of one list, taken apart where they are made.
    fn points(
        &self,
        variants: &[Variant],
    ) -> Result<Vec<(String, Vec<Variant>, JobFlags)>, Failure> {
        let job = if self.target.is_empty() && self.variants.are_options() {
            self.job.or_default(self.sweep.as_ref())
        } else {
            self.job.clone()
        };
        let targets = self.targets();
        let with_redo = |variants: &[Variant], job: JobFlags| {
            let (redo, variants) = (job.redo(), like_with_like(variants.to_vec()));
            let varied = variants.iter().map(|variant| match redo.is_empty() {
                true => Ok(variant.clone()),
                false => variant.with_redo(&targets, redo),
            });
            Ok((varied.collect::<Result<Vec<Variant>, String>>()?, job))
        };
        let Some(sweep) = &self.sweep else {
            let (variants, job) = with_redo(variants, job).map_err(Failure::Bad)?;
            return Ok(vec![(String::new(), variants, job)]);
        };
        let point = |value: &String| {
            if let Some(job) = sweep.on_job(&job, value) {
                let (variants, job) = with_redo(variants, job?)?;
                return Ok((value.clone(), variants, job));
            }
            let swept: Result<Vec<Variant>, String> =
                variants.iter().map(|variant| variant.with(&sweep.name, value)).collect();
            let swept = swept.map_err(|error| format!("--sweep {}: {error}", sweep.name))?;
            if !self.same {
                all_differ(&swept).map_err(|why| format!("--sweep {}: {why}", sweep.name))?;
            }
            let (swept, job) = with_redo(&swept, job.clone())?;
            Ok((value.clone(), swept, job))
        };
        let points: Result<Vec<_>, String> = sweep.values.iter().map(point).collect();
        Ok(points?)
    }
}

/// By what it is judged.
fn judging(asked: &Compare) -> Judging<'_> {
    let is_fixed = asked.rounds.is_some() || asked.sim.is_some();
    let looks = if is_fixed { Looks::Once } else { Looks::AnyTime };
    Judging { metric: asked.metric.as_deref(), within: asked.within, looks }
}

/// The command line, to do it again with the same seed.
fn command(seed: u64) -> Vec<String> {
    let mut command: Vec<String> =
        std::env::args().map(|word| weir::target::shown(&word)).collect();
    if !command.iter().any(|word| word.starts_with("--randseed")) {
        command.push(format!("--randseed={seed}"));
    }
    command
}

/// Whether all was compared that should be.
fn ended(
    done: &[(String, CompareDocument)],
    stopped: Option<String>,
    saved: &Path,
) -> Result<(), Failure> {
    let undecided = done.iter().find_map(|(_, d)| summary::undecided(&d.compare));
    stopped.or(undecided).map_or(Ok(()), |why| {
        // Behind what a command printed it would look like a part of that.
        let then = if why.contains('\n') { "\n" } else { "; " };
        Err(Failure::Bad(format!("{why}{then}what was measured is in {}", saved.display())))
    })
}

/// Takes a share in per cent, `1%` or `1`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let percent = number.ok().filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| String::from("not above 0% and up to 100%"))
}

/// Opens each target once and lets go of it: what never starts is refused before round one.
fn try_to_open<'a>(
    variants: impl Iterator<Item = &'a Variant>,
    changes: bool,
) -> Result<(), Failure> {
    let mut tried = BTreeSet::new();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let of = |v: &'a Variant| v.targets.iter().chain(&v.redo).map(move |target| (&v.name, target));
    let named = variants.flat_map(of);
    for (name, target) in named.filter(|(_, target)| tried.insert(*target)) {
        let mut wanted = Target::parse(target)?;
        if !changes {
            devices::read_held(&mut wanted);
        }
        let opened = devices::open(target, &wanted, cpus);
        opened.map_err(|why| format!("variant {name}: {why}"))?;
    }
    Ok(())
}

/// A seed that no other comparison is likely to have, short enough to be typed.
fn seed_of_the_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64 ^ u64::from(std::process::id()) << 12) % 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pair: [&str; 2], ratio: f64, verdict: &str) -> Comparison {
        Comparison {
            a: pair[0].into(),
            b: pair[1].into(),
            metric: "iops".into(),
            ratio: Some(ratio),
            ci99: Some([ratio * 0.99, ratio * 1.01]),
            verdict: verdict.into(),
            ..Comparison::default()
        }
    }

    #[test]
    fn slower_is_slower_than_the_first_variant_and_different_is_any_two() {
        let variant = |name: &str| document::Variant { name: name.into(), ..Default::default() };
        let mut compare = document::Compare {
            variants: ["a", "b", "c"].map(variant).to_vec(),
            comparisons: vec![
                found(["a", "b"], 1.5, "b is faster"),
                found(["a", "c"], 1.0, "no detectable difference"),
                found(["b", "c"], 0.7, "c is slower"),
            ],
            metric: "iops".into(),
            ..Default::default()
        };
        let pair = |fail_if: FailIf, compare: &document::Compare| {
            fail_if.found_in(compare).map(|found| (found.a.clone(), found.b.clone()))
        };
        let of = |a: &str, b: &str| Some((String::from(a), String::from(b)));
        assert_eq!(pair(FailIf::Slower, &compare), None, "c is slower than b alone");
        assert_eq!(pair(FailIf::Different, &compare), of("a", "b"));
        compare.comparisons[1] = found(["a", "c"], 0.9, "c is slower");
        assert_eq!(pair(FailIf::Slower, &compare), of("a", "c"));
        compare.metric = "latency_mean_ns".into();
        assert_eq!(pair(FailIf::Different, &compare), None, "not the primary metric");
    }

    #[test]
    fn a_share_is_told_in_per_cent_within_its_bounds() {
        for (text, share) in [("1%", 0.01), ("2.5", 0.025), ("100%", 1.0)] {
            assert_eq!(percent(text), Ok(share), "{text}");
        }
        for text in ["0", "0%", "-1", "101%", "NaN", "inf", "", "%"] {
            assert_eq!(percent(text).unwrap_err(), "not above 0% and up to 100%", "{text:?}");
        }
    }
}
