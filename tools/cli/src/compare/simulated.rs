//! `weir compare --sim`: variants of a scene in virtual time, over many seeds.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};
use weir_bench::compare::rounds::Order;
use weir_bench::compare::summary;
use weir_bench::results::document::{of_row, utc};
use weir_bench::results::outcome::figures;
use weir_load::times::{QUANTILE_ERROR, Row};
use weir_sim::scene::{Case, Outcome};
use weir_trace::document::{
    Bench, BenchDocument, CompareDocument, CompareEnvironment, Cpu, Environment, Group, Run,
};

use super::flags::NAMES;
use super::{Compare, command, judging};
use crate::sim::subject::Subject;
use crate::sim::turn;
use crate::{Failure, log};

/// What stands under every simulated comparison.
const NOTICE: &str = "simulated: the intervals are over seeds, and do not say how far the model is \
    from a real host; docs/fidelity.md does";

/// What stands under a comparison in which I/Os failed.
const FAILURES: &str = "I/Os failed: errors has how many, and no other figure counts them";

/// The seeds of each variant where nothing is said.
const SEEDS: u32 = 10;

/// A variant: its name, and a case without its seed.
struct Simulated {
    name: &'static str,
    subject: Subject,
    /// What it sets besides the others, or all that is set.
    options: Map<String, Value>,
}

impl Compare {
    /// Compares variants of a scene.
    pub(super) fn simulate(&self, scene: &str) -> Result<(), Failure> {
        self.check_simulated()?;
        let seed = self.randseed.unwrap_or_else(super::seed_of_the_clock);
        let mut subject = Subject::open(scene)?;
        self.set.iter().try_for_each(|text| subject.set(text))?;
        let points = match &self.sweep {
            None => vec![(String::new(), subject)],
            Some(sweep) => {
                let at = |value: &String| {
                    let mut at = subject.clone();
                    at.set(&format!("{}={value}", sweep.name))?;
                    Ok((value.clone(), at))
                };
                sweep.values.iter().map(at).collect::<Result<_, Failure>>()?
            }
        };
        let points = points.into_iter().map(|(value, subject)| {
            let variants = self.simulated_variants(&subject)?;
            self.check_simulated_metric(&variants)?;
            Ok((value, subject, variants))
        });
        // All that is asked for is looked at before anything is simulated.
        let points = points.collect::<Result<Vec<_>, Failure>>()?;
        self.outputs().try_for_each(super::output::probe)?;
        let runs: usize = points.iter().map(|(_, _, variants)| variants.len()).sum();
        if let Some(said) = many(runs * self.rounds.unwrap_or(SEEDS) as usize, points.len())
            && !self.quiet
        {
            log::say(&said);
        }
        let simulated = points.into_iter().map(|(value, subject, variants)| {
            let document = self.simulated_at(&subject, &variants, seed)?;
            Ok((value, document))
        });
        self.end(simulated.collect::<Result<Vec<_>, Failure>>()?, None)
    }

    /// That nothing is said of a run that is not made here.
    fn check_simulated(&self) -> Result<(), Failure> {
        let job = self.job.first_given();
        let flags =
            [("--runtime", self.runtime.is_some()), ("--ramp-time", self.ramp_time.is_some())];
        let flag = flags.iter().find(|(_, given)| *given).map(|(flag, _)| (*flag).to_owned());
        match job.or(flag) {
            Some(given) => Err(Failure::Bad(format!(
                "{given} beside --sim: what is simulated is said by the scene and --set"
            ))),
            None => Ok(()),
        }
    }

    /// That each variant has the primary metric.
    fn check_simulated_metric(&self, variants: &[Simulated]) -> Result<(), Failure> {
        let why = match self.metric.as_deref() {
            Some(metric) if metric.starts_with("commit") => "no simulated process commits",
            Some("makespan_ns") => {
                let ends = |one: &Simulated| -> Result<bool, Failure> {
                    Ok(one.subject.cases(0)?.iter().all(|case| case.takes().is_none()))
                };
                let all = variants.iter().map(ends).collect::<Result<Vec<bool>, Failure>>()?;
                if all.into_iter().all(|ends| ends) {
                    return Ok(());
                }
                "the case does not end by itself"
            }
            _ => return Ok(()),
        };
        let metric = self.metric.as_deref().unwrap_or_default();
        Err(Failure::Bad(format!("--metric {metric}: {why}")))
    }

    /// The variants: as they are given, or each case that the settings come to.
    fn simulated_variants(&self, subject: &Subject) -> Result<Vec<Simulated>, Failure> {
        if !self.variants.are_given() {
            return of_cases(subject);
        }
        let given = self.variants.given();
        if let [(name, _)] = given[..] {
            return Err(Failure::Bad(format!("--{name} alone has nothing to be compared with")));
        }
        let variant = |(name, options): &(&'static str, &str)| {
            let mut of = subject.clone();
            let mut own = Map::new();
            for option in options.split(',') {
                of.set(option).map_err(|why| format!("--{name} {options}: {why}"))?;
                let (key, value) = option.split_once('=').unwrap_or((option, ""));
                own.insert(key.to_owned(), json!(value));
            }
            let count = of.cases(0)?.len();
            if count != 1 {
                return Err(Failure::Bad(format!(
                    "--{name} {options}: the settings come to {count} cases, and a variant is one: \
                     give one value to each setting (weir sim list has them)"
                )));
            }
            Ok(Simulated { name, subject: of, options: own })
        };
        let made = given.iter().map(variant).collect::<Result<Vec<Simulated>, Failure>>()?;
        if !self.same {
            all_differ(&made)?;
        }
        Ok(made)
    }

    /// One comparison.
    fn simulated_at(
        &self,
        subject: &Subject,
        variants: &[Simulated],
        seed: u64,
    ) -> Result<CompareDocument, Failure> {
        let started_at = utc(SystemTime::now());
        let rounds = self.rounds.unwrap_or(SEEDS);
        let order = Order {
            variants: variants.iter().map(|variant| variant.name.to_owned()).collect(),
            rounds,
            is_open: false,
            reruns: 0,
            seed,
            window_s: 0.0,
        };
        let (mut cases, mut of) = (Vec::new(), Vec::new());
        for round in 1..=rounds {
            let seed = order.seed_of_round(round);
            for (index, variant) in variants.iter().enumerate() {
                cases.extend(variant.subject.cases(seed)?);
                of.push((index, round, seed));
            }
        }
        let threads = turn::threads(None, cases.len());
        // A signal ends a comparison at once: nothing but time is lost.
        let how = turn::How { threads, quiet: self.quiet, interrupted: Arc::default() };
        let turned = turn::run_all(cases.clone(), &how)?;
        let took = turned.took;
        let outcomes: Vec<Outcome> = turned.outcomes.into_iter().flatten().collect();
        let run = |(at, (variant, round, seed)): (usize, &(usize, u32, u64))| {
            let simulated: &Simulated = &variants[*variant];
            let document = simulated.document((&cases[at], &outcomes[at]), *seed, &started_at);
            Run { variant: simulated.name.to_owned(), round: *round, voided: None, document }
        };
        let runs: Vec<Run> = of.iter().enumerate().map(run).collect();
        let described: Vec<(String, Value)> = variants
            .iter()
            .map(|variant| (variant.name.to_owned(), Value::Object(variant.options.clone())))
            .collect();
        let environment = environment(&outcomes, took, seed);
        let judging = judging(self);
        Ok(CompareDocument {
            compare: summary::summary(&described, &runs, environment, judging),
            command: command(seed),
            target: format!("simulated {}", subject.name()),
            job: job(subject),
            runs,
            control: Vec::new(),
            started_at,
            ..CompareDocument::default()
        })
    }
}

/// Of so many runs the number is told before they are made; how long they take is said of each
/// comparison once its first run is through.
const MANY: usize = 200;

fn many(runs: usize, comparisons: usize) -> Option<String> {
    let of = if comparisons > 1 { format!(" in {comparisons} comparisons") } else { String::new() };
    (runs >= MANY).then(|| format!("{runs} runs are simulated{of}; --rounds says how many of each"))
}

/// Each case that the settings come to, as a variant.
fn of_cases(subject: &Subject) -> Result<Vec<Simulated>, Failure> {
    let several = subject.lists();
    let count = several.iter().map(|(_, values)| values.len()).product::<usize>();
    let names: Vec<String> =
        several.iter().map(|(name, values)| format!("{name}={}", values.join(","))).collect();
    if !(2..=NAMES.len()).contains(&count) {
        let what = match names.is_empty() {
            true => String::from("no setting with several values"),
            false => format!("{} ({count} cases)", names.join(" ")),
        };
        return Err(Failure::Bad(format!(
            "--sim {}: there is {what}, and 2 to {} cases can be compared: --set NAME=V1,V2 says \
             which, or --a NAME=VALUE --b NAME=VALUE",
            subject.name(),
            NAMES.len()
        )));
    }
    let variant = |(mut index, name): (usize, &&'static str)| {
        let (mut of, mut options) = (subject.clone(), Map::new());
        for (setting, values) in several.iter().rev() {
            let value = &values[index % values.len()];
            index /= values.len();
            of.set(&format!("{setting}={value}"))?;
            options.insert(setting.clone(), json!(value));
        }
        Ok(Simulated { name, subject: of, options })
    };
    NAMES.iter().take(count).enumerate().map(variant).collect()
}

/// That no two variants come to the same.
fn all_differ(variants: &[Simulated]) -> Result<(), Failure> {
    for (at, a) in variants.iter().enumerate() {
        let same = |b: &&Simulated| a.subject.settings() == b.subject.settings();
        if let Some(b) = variants[at + 1..].iter().find(same) {
            return Err(Failure::Bad(format!(
                "variants {} and {} are the same; --same compares them all the same",
                a.name, b.name
            )));
        }
    }
    Ok(())
}

/// What is simulated, for documents.
fn job(subject: &Subject) -> Value {
    let mut job = subject.settings();
    job.insert("name".into(), json!(subject.name()));
    Value::Object(job)
}

fn environment(outcomes: &[Outcome], took: Duration, seed: u64) -> CompareEnvironment {
    let mut environment = CompareEnvironment {
        cpus: outcomes.iter().map(|one| one.figures.cpus).max().unwrap_or_default() as u32,
        kernel: String::from("simulated"),
        ..CompareEnvironment::default()
    };
    let requests: u64 = outcomes.iter().map(|one| one.requests).sum();
    let simulated: u64 = outcomes.iter().map(|one| one.ns).sum();
    for (name, value) in [
        ("simulated_s", json!(simulated as f64 / 1e9)),
        ("requests", json!(requests)),
        ("wall_s", json!(took.as_secs_f64())),
        ("seed", json!(seed)),
    ] {
        environment.other.insert(name.to_owned(), value);
    }
    environment
}

impl Simulated {
    /// What came of one case, as a run has it.
    fn document(
        &self,
        (case, outcome): (&Case, &Outcome),
        seed: u64,
        started_at: &str,
    ) -> BenchDocument {
        let of = &outcome.figures;
        let time = Duration::from_nanos(of.ns);
        let system_ns = of.time.system + of.time.spin;
        let busy_ns = of.time.user + system_ns;
        let cpu = Cpu {
            user_s: of.time.user as f64 / 1e9,
            sys_s: system_ns as f64 / 1e9,
            ns_per_io: (of.ios > 0).then(|| busy_ns as f64 / of.ios as f64),
            ..Cpu::default()
        };
        let parts: Vec<(&str, &str, &Row)> = of
            .kinds
            .iter()
            .flat_map(|kind| kind.parts.iter().map(|(op, row)| (kind.name.as_str(), *op, row)))
            .collect();
        let group = |(name, op, row): &(&str, &str, &Row)| Group {
            name: (*name).to_owned(),
            op: (*op).to_owned(),
            figures: figures(row, time),
        };
        let bench = Bench {
            weir: String::from(env!("CARGO_PKG_VERSION")),
            target: format!("simulated {}", self.subject.name()),
            options: self.options.clone(),
            job: job(&self.subject),
            seed,
            duration_s: time.as_secs_f64(),
            // A case that has no length of its own lasts until all that end by themselves have.
            makespan_ns: case.takes().is_none().then_some(of.ns),
            errors: of.failed,
            figures: figures(&of.all, time),
            percentile_error: Some(QUANTILE_ERROR),
            cpu,
            groups: parts.iter().map(group).collect(),
            ..Bench::default()
        };
        let failures = (of.failed > 0).then_some(FAILURES);
        let mut histograms = of_row("all", "all", &of.all).to_vec();
        histograms.extend(parts.iter().flat_map(|(name, op, row)| of_row(name, op, row)));
        BenchDocument {
            bench,
            histograms,
            environment: Environment {
                cpus: of.cpus as u32,
                cpu_model: String::from("simulated"),
                kernel: String::from("simulated"),
                weir: String::from(env!("CARGO_PKG_VERSION")),
                started_at: started_at.to_owned(),
            },
            notices: [NOTICE].into_iter().chain(failures).map(String::from).collect(),
            ..BenchDocument::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_runs_there_are_is_told_of_many() {
        assert_eq!(many(199, 1), None);
        let told = "8000 runs are simulated in 10 comparisons; --rounds says how many of each";
        assert_eq!(many(8000, 10).as_deref(), Some(told));
        assert!(many(200, 1).is_some_and(|told| told.starts_with("200 runs are simulated; ")));
    }
}
