//! `weir compare`: variants in turn, and what can be said about their difference.
//!
//! Every run is a process of its own, of the same length, with a ramp of its own. Rounds have one
//! run of each variant in random order; a run that was disturbed is voided and made again. Nothing
//! that was averaged since a start enters. Statistics ([`interval`], [`summary`]) and rules
//! ([`judge`]) are pure; [`rounds`] turns the crank; [`child`], [`command`], [`control`], [`disk`]
//! and [`mod@kernel`] touch the machine.

pub mod child;
pub mod command;
pub mod control;
pub mod disk;
pub mod interval;
pub mod judge;
pub mod kernel;
pub mod rounds;
pub mod summary;
pub mod table;
pub mod variant;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use weir_trace::document::{BenchDocument, CompareDocument, CompareEnvironment, Control, Run};
use weir_trace::labels::{jobs_differ, labels};

use crate::results::document::{kernel, utc};

pub use child::Program;
pub use command::CommandWork;
pub use disk::Disk;
pub use kernel::Switch;
use rounds::{Order, Reading, Stage, Stop};
pub use variant::Variant;

/// A comparison to be made.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The variants to compare; at least two.
    pub variants: &'a [Variant],
    /// What is run.
    pub work: Work<'a>,
    /// How many rounds are to count.
    pub length: Length,
    /// The runs of an earlier comparison that this one goes on with, and the control beside them.
    pub earlier: Earlier,
    /// The seed that order and seeds are drawn from.
    pub seed: u64,
    /// The kernel's scheduler, where that is switched.
    pub switch: Option<&'a Switch>,
    /// By what it is judged.
    pub judging: summary::Judging<'a>,
    /// Readable when the comparison is to stop.
    pub stop: &'a OwnedFd,
}

/// What is run in each round.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// A workload of weir, by `weir bench`.
    Program(&'a Program),
    /// A command of the user.
    Command(&'a CommandWork),
}

impl Work<'_> {
    /// The length of a run, as far as it is known before.
    fn takes(&self) -> Duration {
        match self {
            Work::Program(program) => program.takes(),
            Work::Command(_) => command::UNKNOWN,
        }
    }

    /// How long a run measures, where that is known before.
    fn window(&self) -> Option<Duration> {
        match self {
            Work::Program(program) => program.spec.runtime,
            Work::Command(_) => None,
        }
    }
}

/// How many rounds are to count.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// So many.
    Rounds(u32),
    /// Until each pair of variants has a verdict by the primary metric other than that no
    /// difference is seen: then the intervals hold at any time of looking.
    UntilDecided {
        /// The most of them.
        rounds: u32,
        /// The longest it takes; none is two minutes, or ten rounds where those take longer.
        time: Option<Duration>,
    },
}

/// How long it is tried to decide where nothing is said, and so many rounds where those take
/// longer.
pub const USUAL_TIME: Duration = Duration::from_secs(120);
const USUAL_ROUNDS: u32 = 10;
/// The field of the environment that says whose CPU time is in no figure.
const UNCOUNTED: &str = "cpu_not_counted";

/// What was made before.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// Its runs.
    pub runs: Vec<Run>,
    /// The figures of the control.
    pub control: Vec<Control>,
}

/// One more run is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Its variant.
    pub variant: &'a str,
    /// Its round, from 1.
    pub round: u32,
    /// Runs made so far.
    pub made: u32,
    /// Runs there will be if none has to be made again; where that depends on what they say, the
    /// most.
    pub planned: u32,
    /// The length of one run, seconds, as far as it is known.
    pub run_s: f64,
    /// What the rounds so far say; empty where that is nothing.
    pub known: &'a str,
}

/// The outcome, and why it ended early, if it did.
#[derive(Debug)]
pub struct Compared {
    /// To be printed, saved and drawn.
    pub document: CompareDocument,
    /// In words; none if it ran to its end.
    pub stopped: Option<String>,
}

impl Plan<'_> {
    /// Rounds, the most there may be, and whether they may end before.
    fn rounds(&self) -> (u32, bool) {
        match self.length {
            Length::Rounds(rounds) => (rounds, false),
            Length::UntilDecided { rounds, .. } => (rounds, true),
        }
    }

    /// The runs that may be made again: half as many as there are for sure.
    fn reruns(&self) -> u32 {
        let (rounds, is_open) = self.rounds();
        let sure = if is_open { rounds.min(rounds::SURE) } else { rounds };
        (sure * self.variants.len() as u32).div_ceil(2)
    }

    /// How long so many rounds take, as far as that is known before.
    fn takes(&self, rounds: u32) -> Duration {
        self.work.takes() * rounds * self.variants.len() as u32
    }

    /// How long runs may be waited with, altogether: a fifth of what they take.
    fn patience(&self) -> Duration {
        let takes = match self.length {
            Length::Rounds(rounds) => self.takes(rounds),
            Length::UntilDecided { rounds, time } => {
                let usual = USUAL_TIME.max(self.takes(USUAL_ROUNDS));
                self.takes(rounds).min(time.unwrap_or(usual))
            }
        };
        takes / 5
    }

    /// What a variant is called.
    fn label(&self, name: &str) -> String {
        let told: Vec<(&str, &Value)> =
            self.variants.iter().map(|one| (one.name.as_str(), &one.options)).collect();
        let at = told.iter().position(|(known, _)| *known == name);
        at.map_or_else(|| String::from(name), |at| labels(&told).swap_remove(at))
    }

    /// Makes the comparison. The figures from before it had to stop are kept and marked: the
    /// environment has `partial` and `failure` then.
    ///
    /// # Panics
    /// Where two variants have one name: runs are told apart by that.
    pub fn run(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Compared {
        let names: BTreeSet<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names.len(), self.variants.len(), "each variant has a name of its own");
        let (rounds, is_open) = self.rounds();
        let order = Order {
            variants: self.variants.iter().map(|variant| variant.name.clone()).collect(),
            rounds: rounds + self.earlier.last(),
            is_open,
            reruns: self.reruns(),
            seed: self.seed,
            window_s: self.work.window().unwrap_or_default().as_secs_f64(),
        };
        let started_at = utc(SystemTime::now());
        let mut host = Machine {
            plan: self,
            control: control::Host::new(self.patience()),
            progress,
            made: 0,
            took_s: self.work.takes().as_secs_f64(),
            began: Instant::now(),
            known: String::new(),
            failed: 0,
        };
        let Earlier { runs, control } = self.earlier.clone();
        let earlier = rounds::Taken { runs, control, ..rounds::Taken::default() };
        let taken = rounds::run(&order, earlier, &mut host);
        let mut environment = environment(&taken, self.seed);
        if let Work::Program(program) = self.work {
            let between = variant::between_runs(self.variants, program.spec.prepare);
            environment.other.insert(String::from("between_runs"), Value::from(between));
            let uncounted = variant::cpu_not_counted(self.variants);
            environment.other.insert(String::from(UNCOUNTED), Value::from(uncounted));
        }
        if jobs_differ(self.variants.iter().map(|variant| &variant.options)) {
            environment.other.insert(String::from("jobs_differ"), Value::from(true));
        }
        let described: Vec<(String, Value)> =
            self.variants.iter().map(|v| (v.name.clone(), v.options.clone())).collect();
        let compare = summary::summary(&described, &taken.runs, environment, self.judging);
        let first = taken.runs.first();
        let document = CompareDocument {
            compare,
            job: first.map(|run| run.document.bench.job.clone()).unwrap_or_default(),
            runs: taken.runs,
            control: taken.control,
            started_at,
            ..CompareDocument::default()
        };
        Compared { document, stopped: taken.stopped }
    }
}

impl Earlier {
    /// The last round of it; 0 where there is none.
    fn last(&self) -> u32 {
        self.runs.iter().map(|run| run.round).max().unwrap_or_default()
    }
}

/// The notices of runs, a sentence each, behind the variants of which it is true.
#[must_use]
pub fn notices(document: &CompareDocument) -> Vec<String> {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for run in &document.runs {
        let variant = run.variant.as_str();
        for notice in &run.document.notices {
            match told.iter_mut().find(|(known, _)| known == notice) {
                Some((_, variants)) if variants.contains(&variant) => {}
                Some((_, variants)) => variants.push(variant),
                None => told.push((notice, vec![variant])),
            }
        }
    }
    for (_, variants) in &mut told {
        variants.sort_unstable();
    }
    let of_runs =
        told.iter().map(|(notice, variants)| format!("{}: {notice}", variants.join(", ")));
    let uncounted = document.compare.environment.other.get(UNCOUNTED).and_then(Value::as_array);
    let uncounted = uncounted.into_iter().flatten().filter_map(Value::as_str).map(String::from);
    of_runs.chain(uncounted).collect()
}

fn environment(taken: &rounds::Taken, seed: u64) -> CompareEnvironment {
    let voided = || taken.runs.iter().filter(|run| run.voided.is_some());
    let rounds: BTreeSet<u32> = voided().map(|run| run.round).collect();
    let mut environment = CompareEnvironment {
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32),
        kernel: kernel(),
        steal_pct: taken.steal_pct,
        voided_rounds: rounds.len() as u64,
        ..CompareEnvironment::default()
    };
    environment.other.insert(String::from("voided_runs"), Value::from(voided().count()));
    environment.other.insert(String::from("seed"), Value::from(seed));
    if let Some(why) = &taken.stopped {
        environment.other.insert(String::from("partial"), Value::from(true));
        environment.other.insert(String::from("failure"), Value::from(why.as_str()));
    }
    environment
}

/// Whether a round more ends in the time that there is, where each takes as long as those made did.
fn ends_in_time(time: Option<Duration>, elapsed: Duration, rounds: u32) -> bool {
    let each = elapsed / rounds.max(1);
    elapsed + each <= time.unwrap_or(USUAL_TIME.max(each * USUAL_ROUNDS))
}

/// The seed of a run of this variant: that of its round, unless a server would have in its caches
/// what the run before came to.
fn own_seed(variants: &[Variant], variant: usize, of_round: u64) -> u64 {
    match variants[variant].is_served() {
        true => weir_bio::Prng::new(of_round.wrapping_add(variant as u64)).next(),
        false => of_round,
    }
}

/// This machine, with children that run.
struct Machine<'a> {
    plan: &'a Plan<'a>,
    control: control::Host,
    progress: &'a mut dyn FnMut(Progress<'_>),
    made: u32,
    /// The length of the last run, seconds, with everything around it.
    took_s: f64,
    began: Instant,
    /// What the rounds so far say.
    known: String,
    /// Runs that have failed one after the other.
    failed: u32,
}

/// So many runs of a command that fail one after the other end a comparison.
const FAILURES: u32 = 3;

impl Machine<'_> {
    /// Whether one more round ends in time.
    fn has_time(&self, runs: &[Run]) -> bool {
        let Length::UntilDecided { time, .. } = self.plan.length else { return true };
        let rounds = runs.last().map_or(0, |run| run.round) - self.plan.earlier.last();
        ends_in_time(time, self.began.elapsed(), rounds)
    }

    /// The most runs there will be, as far as that is known.
    fn planned(&self) -> u32 {
        let variants = self.plan.variants.len() as u32;
        let Length::UntilDecided { rounds, time } = self.plan.length else {
            return self.plan.rounds().0 * variants;
        };
        let round_s = self.took_s * f64::from(variants);
        let usual = USUAL_TIME.as_secs_f64().max(round_s * f64::from(USUAL_ROUNDS));
        let left_s = time.map_or(usual, |time| time.as_secs_f64());
        let left_s = (left_s - self.began.elapsed().as_secs_f64()).max(0.0);
        (self.made + (left_s / self.took_s.max(1e-3)) as u32).min(rounds * variants)
    }
}

impl Stage for Machine<'_> {
    fn control(&mut self, usual_ns: Option<f64>) -> Reading {
        self.control.read(usual_ns)
    }

    fn run(&mut self, variant: usize, round: u32, seed: u64) -> Result<BenchDocument, Stop> {
        let variants = self.plan.variants;
        let seed = own_seed(variants, variant, seed);
        let variant = &variants[variant];
        let Variant { name, kernel_scheduler, .. } = variant;
        let planned = self.planned();
        (self.progress)(Progress {
            variant: name,
            round,
            made: self.made,
            planned,
            run_s: self.took_s,
            known: &self.known,
        });
        let began = Instant::now();
        if let (Some(switch), Some(scheduler)) = (self.plan.switch, kernel_scheduler) {
            switch.to(scheduler).map_err(|why| Stop::Failed { why, measured: None })?;
        }
        let document = match self.plan.work {
            Work::Program(program) => program.run(variant, seed, self.plan.stop)?,
            Work::Command(command) => command.run(variant, round, self.plan.stop)?,
        };
        self.made += 1;
        self.took_s = began.elapsed().as_secs_f64();
        self.failed = if document.failure.is_some() { self.failed + 1 } else { 0 };
        match &document.failure {
            Some(why) if self.failed == FAILURES => {
                let said = document.bench.command_run.as_ref().map(|run| run.output.as_str());
                let said = command::behind(said.unwrap_or_default());
                let why = format!("{FAILURES} runs failed one after the other: {why}{said}");
                Err(Stop::Failed { why, measured: Some(Box::new(document)) })
            }
            _ => Ok(document),
        }
    }

    fn goes_on(&mut self, runs: &[Run]) -> bool {
        let names: Vec<&str> = self.plan.variants.iter().map(|v| v.name.as_str()).collect();
        let compare = summary::primary(&names, runs, self.plan.judging);
        self.known = table::so_far(&compare, &|name| self.plan.label(name));
        summary::unsettled(&compare).is_some() && self.has_time(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_round_have_one_seed_but_where_a_server_keeps_what_they_read() {
        let seeds = |target: &str, of_round: u64| {
            let of = |name| Variant::new(name, &[String::from(target)], "").expect("a variant");
            let variants = ["a", "b"].map(of);
            [0, 1].map(|variant| own_seed(&variants, variant, of_round))
        };
        for local in ["ram:1MiB", "file:missing,size=1MiB"] {
            assert_eq!(seeds(local, 7), [7, 7], "{local}");
        }
        let [first, second] = seeds("nbd+unix:/x?sda", 7);
        assert_ne!(first, second, "the second would find the blocks of the first");
        assert_eq!(seeds("nbd+unix:/x?sda", 7), [first, second], "they are repeated");
        assert!(!seeds("nbd+unix:/x?sda", 1 << 40).contains(&first), "another round has others");
    }

    #[test]
    fn a_round_is_begun_that_ends_in_time() {
        let s = Duration::from_secs;
        for (time, elapsed, rounds, ends) in [
            (Some(60), 50, 5, true),
            (Some(59), 50, 5, false),
            // Two minutes,
            (None, 110, 11, true),
            (None, 111, 11, false),
            // or ten rounds where those take longer.
            (None, 900, 9, true),
            (None, 1000, 10, false),
        ] {
            let told = format!("{time:?}, {rounds} rounds in {elapsed} s");
            assert_eq!(ends_in_time(time.map(s), s(elapsed), rounds), ends, "{told}");
        }
    }
}
