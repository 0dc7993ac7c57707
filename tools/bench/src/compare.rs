//! `weir compare`: variants in turn, and what can be said about their difference.
//!
//! Every run is a process of its own, of the same length, with a ramp of its own. Rounds have one
//! run of each variant in random order; a run that was disturbed is voided and made again. Nothing
//! that was averaged since a start enters. Statistics ([`interval`], [`summary`]) and rules
//! ([`judge`]) are pure; [`rounds`] turns the crank; [`child`], [`control`] and [`mod@kernel`]
//! touch the machine.

pub mod child;
pub mod control;
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
use weir_trace::document::{BenchDocument, CompareDocument, CompareEnvironment};

use crate::results::document::{kernel, utc};

pub use child::Program;
pub use kernel::Switch;
use rounds::{Order, Reading, Stage, Stop};
pub use variant::Variant;

/// A comparison to be made.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The variants to compare; at least two.
    pub variants: &'a [Variant],
    /// How each run is started.
    pub program: &'a Program,
    /// Rounds that are to count.
    pub rounds: u32,
    /// The seed that order and seeds are drawn from.
    pub seed: u64,
    /// The kernel's scheduler, where that is switched.
    pub switch: Option<&'a Switch>,
    /// By what it is judged.
    pub judging: summary::Judging<'a>,
    /// Readable when the comparison is to stop.
    pub stop: &'a OwnedFd,
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
    /// Runs there will be if none has to be made again.
    pub planned: u32,
    /// The length of one run, seconds, as far as it is known.
    pub run_s: f64,
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
    /// The runs that may be made again: half as many as there are.
    fn reruns(&self) -> u32 {
        (self.rounds * self.variants.len() as u32).div_ceil(2)
    }

    /// How long runs may be waited with, altogether: a fifth of what they take.
    fn patience(&self) -> Duration {
        self.program.takes() * self.rounds * self.variants.len() as u32 / 5
    }

    /// Makes the comparison. The figures from before it had to stop are kept and marked: the
    /// environment has `partial` and `failure` then.
    ///
    /// # Panics
    /// Where two variants have one name: runs are told apart by that.
    pub fn run(&self, progress: &mut dyn FnMut(Progress<'_>)) -> Compared {
        let names: BTreeSet<&str> = self.variants.iter().map(|v| v.name.as_str()).collect();
        assert_eq!(names.len(), self.variants.len(), "each variant has a name of its own");
        let order = Order {
            variants: self.variants.iter().map(|variant| variant.name.clone()).collect(),
            rounds: self.rounds,
            reruns: self.reruns(),
            seed: self.seed,
            window_s: self.program.spec.runtime.unwrap_or_default().as_secs_f64(),
        };
        let started_at = utc(SystemTime::now());
        let mut host = Machine {
            plan: self,
            control: control::Host::new(self.patience()),
            progress,
            made: 0,
            took_s: self.program.takes().as_secs_f64(),
        };
        let taken = rounds::run(&order, &mut host);
        let described: Vec<(String, Value)> =
            self.variants.iter().map(|v| (v.name.clone(), v.options.clone())).collect();
        let environment = environment(&taken, self.seed);
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
    told.iter().map(|(notice, variants)| format!("{}: {notice}", variants.join(", "))).collect()
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

/// This machine, with children that run.
struct Machine<'a> {
    plan: &'a Plan<'a>,
    control: control::Host,
    progress: &'a mut dyn FnMut(Progress<'_>),
    made: u32,
    /// The length of the last run, seconds, with everything around it.
    took_s: f64,
}

impl Stage for Machine<'_> {
    fn control(&mut self, usual_ns: Option<f64>) -> Reading {
        self.control.read(usual_ns)
    }

    fn run(&mut self, variant: usize, round: u32, seed: u64) -> Result<BenchDocument, Stop> {
        let variants = self.plan.variants;
        let variant = &variants[variant];
        let Variant { name, kernel_scheduler, .. } = variant;
        (self.progress)(Progress {
            variant: name,
            round,
            made: self.made,
            planned: self.plan.rounds * variants.len() as u32,
            run_s: self.took_s,
        });
        let began = Instant::now();
        if let (Some(switch), Some(scheduler)) = (self.plan.switch, kernel_scheduler) {
            switch.to(scheduler).map_err(|why| Stop::Failed { why, measured: None })?;
        }
        let document = self.plan.program.run(variant, seed, self.plan.stop)?;
        self.made += 1;
        self.took_s = began.elapsed().as_secs_f64();
        Ok(document)
    }
}
