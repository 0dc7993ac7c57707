//! `weir sim`: scenes in virtual time.

mod fit;
mod fuzz;
pub(crate) mod subject;
pub(crate) mod turn;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use weir_load::Times;
use weir_sim::Figures;
use weir_sim::scene::{self, Case, Checked, Outcome, Raw, Row, SCENES, Scene, Setting, custom};
use weir_trace::document::{SimChecked, SimDocument, SimRaw, SimRow, SimTimes};

use crate::bench::interrupted;
use crate::output::{print, print_line};
use crate::{Failure, log};
use subject::{Subject, refused};

/// Simulates scenes: weir's own queues and schedulers on modelled processors and disks.
///
/// Example: weir sim run icpe24 --set scheduler=bfq --set processes=4
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Sim {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(List),
    Run(Run),
    Check(Check),
    Fit(fit::Fit),
    Fuzz(fuzz::Fuzz),
}

/// Lists the scenes with their settings: default, range, meaning.
///
/// Example: weir sim list
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct List {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Simulates a scene, or a host that a file describes, and prints its figures.
///
/// Example: weir sim run icpe24 --set scheduler=bfq,mq-deadline --set processes=1,2,4,8
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Run {
    /// Its name, or FILE.toml: what such a file states is at the end of weir sim list. One that
    /// weir sim fit wrote is a host with that disk and one process, `job`.
    #[arg(value_name = "SCENE|FILE.toml")]
    scene: String,
    /// A setting; several values are separated by commas, and the scene has a case for each.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Simulates scenes and puts the source's figures beside theirs. Exit status 1: a figure is further
/// off than its bound.
///
/// Example: weir sim check icpe24
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Check {
    /// A scene's name; all if not given.
    scene: Option<String>,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, Args)]
struct How {
    /// What chance begins with. The same seed gives the same figures on every machine.
    #[arg(long = "randseed", alias = "seed", value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Cases that are simulated at once; as many as there are processors if not given. It changes
    /// no figure.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Do not say how long it took.
    #[arg(long)]
    quiet: bool,
}

impl Sim {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::List(list) => list.run(),
            Action::Run(run) => run.run(),
            Action::Check(check) => check.run(),
            Action::Fit(fit) => fit.run(),
            Action::Fuzz(fuzz) => fuzz.run(),
        }
    }
}

impl List {
    fn run(&self) -> Result<(), Failure> {
        if self.json {
            let scenes = SCENES.iter().map(|scene| scene_as_json(scene)).chain([file_as_json()]);
            return print_line(&Value::Array(scenes.collect()).to_string());
        }
        let scenes = SCENES.iter().map(|scene| scene_as_text(scene)).chain([file_as_text()]);
        print(&scenes.collect::<Vec<String>>().join("\n"))
    }
}

/// What a file may state, as a scene among the others.
const FILE: [&str; 2] = ["FILE.toml", "a host that a file describes: lists of values are cases"];

fn file_as_json() -> Value {
    let [name, about] = FILE;
    json!({"name": name, "about": about, "settings": settings_as_json(custom::SETTINGS),
           "sources": 0, "notices": []})
}

fn file_as_text() -> String {
    let [name, about] = FILE;
    format!("{name}: {about}\n{}", settings_as_text(custom::SETTINGS))
}

fn settings_as_json(settings: &[Setting]) -> Value {
    let setting = |one: &Setting| {
        json!({"name": one.name, "default": one.default, "range": one.range(),
               "meaning": one.meaning})
    };
    settings.iter().map(setting).collect()
}

fn settings_as_text(settings: &[Setting]) -> String {
    let mut rows = vec![["setting", "default", "range", "meaning"].map(String::from)];
    let default = |one: &Setting| if one.default.is_empty() { "-" } else { one.default };
    rows.extend(
        settings
            .iter()
            .map(|one| [one.name.into(), default(one).into(), one.range(), one.meaning.into()]),
    );
    table(&rows)
}

fn scene_as_json(scene: &Scene) -> Value {
    let settings = settings_as_json(scene.settings);
    json!({"name": scene.name, "about": scene.about, "settings": settings,
           "sources": scene.sources.len(), "notices": scene.notes})
}

fn scene_as_text(scene: &Scene) -> String {
    format!("{}: {}\n{}", scene.name, scene.about, settings_as_text(scene.settings))
}

fn notes(of: &Subject) -> String {
    of.notes().iter().map(|note| format!("note: {note}\n")).collect()
}

/// Columns that are aligned, two spaces before each.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("  {cell:width$}"));
        let line: String = cells.collect();
        format!("{}\n", line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// What came of a scene.
struct Simulated {
    /// How many cases of how many, if not all.
    partial: Option<[usize; 2]>,
    rows: Vec<Row>,
    times: Vec<SimTimes>,
    requests: u64,
    ns: u64,
    took: Duration,
    threads: usize,
}

impl How {
    fn simulate(
        &self,
        subject: &Subject,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Simulated, Failure> {
        let cases = subject.cases(self.seed)?;
        let threads = turn::threads(self.threads, cases.len());
        let interrupted = Arc::clone(interrupted);
        let how = turn::How { threads, quiet: self.quiet, interrupted };
        let turned = turn::run_all(cases.clone(), &how)?;
        let (is_partial, all, took) = (turned.is_partial(), cases.len(), turned.took);
        let made = cases.iter().zip(turned.outcomes);
        let made: Vec<(&Case, Outcome)> =
            made.filter_map(|(case, outcome)| Some((case, outcome?))).collect();
        let times = made.iter().map(|(case, outcome)| times(case, &outcome.figures)).collect();
        let outcomes: Vec<Outcome> = made.into_iter().map(|(_, outcome)| outcome).collect();
        let requests: u64 = outcomes.iter().map(|one| one.requests).sum();
        if !self.quiet {
            let name = subject.name();
            let rate = requests as f64 / took.as_secs_f64();
            let took = took.as_secs_f64();
            log::say(&format!("{name}: {requests} requests in {took:.1} s, {rate:.0} a second"));
        }
        let ns = outcomes.iter().map(|one| one.ns).sum();
        let partial = is_partial.then_some([outcomes.len(), all]);
        let rows = subject.rows(&outcomes);
        Ok(Simulated { partial, rows, times, requests, ns, took, threads })
    }

    fn document(&self, of: &Subject, simulated: &Simulated, rows: Vec<SimRow>) -> SimDocument {
        let wall_s = simulated.took.as_secs_f64();
        SimDocument {
            scene: of.name().to_owned(),
            seed: self.seed,
            settings: of.settings(),
            simulated_s: simulated.ns as f64 / 1e9,
            requests: simulated.requests,
            wall_s,
            requests_per_wall_s: simulated.requests as f64 / wall_s,
            threads: simulated.threads,
            notices: of.notes().into_iter().map(String::from).collect(),
            rows,
            times: simulated.times.clone(),
            partial: simulated.partial.is_some(),
            ..SimDocument::default()
        }
    }
}

/// The documents as one: that of a scene asked for by name, or a list.
fn as_json<T: Serialize>(of: &T) -> Result<String, Failure> {
    Ok(serde_json::to_string(of).map_err(|error| error.to_string())?)
}

/// Where the time of a case went.
fn times(case: &Case, of: &Figures) -> SimTimes {
    let percent = |ns: u64| ns as f64 * 100.0 / (of.ns * of.cpus).max(1) as f64;
    let [total, wait, device] = [&of.all.total, &of.all.wait, &of.all.device].map(Times::mean_ns);
    SimTimes {
        case: case.name.clone(),
        user_pct: percent(of.time.user),
        system_pct: percent(of.time.system),
        waiting_pct: percent(of.time.spin),
        // A wait that began before the measured time is counted in it whole.
        idle_pct: (100.0 - percent(of.time.user + of.time.system + of.time.spin)).max(0.0),
        queue_wait_ns: wait,
        device_ns: device,
        return_ns: total - wait - device,
    }
}

impl Run {
    fn run(&self) -> Result<(), Failure> {
        let mut subject = Subject::open(&self.scene)?;
        self.set.iter().try_for_each(|text| subject.set(text))?;
        let interrupted = interrupted()?;
        let simulated = self.how.simulate(&subject, &interrupted)?;
        if self.how.json {
            let rows = simulated.rows.iter().map(row).collect();
            print_line(&as_json(&self.how.document(&subject, &simulated, rows))?)?;
            return simulated.ended();
        }
        let mut rows = vec![["case", "metric", "value"].map(String::from)];
        rows.extend(
            simulated.rows.iter().map(|row| [row.case.clone(), row.metric.into(), told(row.value)]),
        );
        print(&(table(&rows) + &notes(&subject)))?;
        simulated.ended()
    }
}

impl Simulated {
    /// Of what was broken off the figures are printed, and say nothing of the rest.
    fn ended(&self) -> Result<(), Failure> {
        self.partial.map_or(Ok(()), |[made, all]| {
            let what = format!("interrupted; the figures are partial, of {made} of {all} cases");
            Err(Failure::Bad(what))
        })
    }
}

fn row(of: &Row) -> SimRow {
    let Row { case, metric, value } = of;
    SimRow { case: case.clone(), metric: (*metric).to_owned(), value: *value, checked: None }
}

/// A figure with as many digits as say something.
fn told(value: f64) -> String {
    let digits = match value.abs() {
        1_000.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

impl Check {
    fn run(&self) -> Result<(), Failure> {
        let scenes = match &self.scene {
            Some(name) => vec![scene::find(name).map_err(refused)?],
            None => SCENES.to_vec(),
        };
        let (mut documents, mut text, mut off) = (Vec::new(), String::new(), 0);
        let (interrupted, mut ended) = (interrupted()?, Ok(()));
        for scene in scenes {
            let subject = Subject::of(scene);
            let simulated = self.how.simulate(&subject, &interrupted)?;
            ended = simulated.ended();
            let checked = match ended {
                Ok(()) => scene.check(&simulated.rows).map_err(refused)?,
                Err(_) => scene.beside(&simulated.rows),
            };
            off += checked.iter().filter(|one| one.is_off()).count();
            if self.how.json {
                let rows = checked.iter().map(checked_row).collect();
                let document = self.how.document(&subject, &simulated, rows);
                let raw = scene.raw.iter().map(raw_row).collect();
                documents.push(SimDocument { raw, ..document });
            } else {
                text += &checked_as_text(scene, &notes(&subject), &checked);
            }
            if ended.is_err() {
                break;
            }
        }
        match documents.len() {
            0 => print(&text)?,
            // One scene is one document, as a run of it is.
            1 if self.scene.is_some() => print_line(&as_json(&documents[0])?)?,
            _ => print_line(&as_json(&documents)?)?,
        }
        ended?;
        match off {
            0 => Ok(()),
            off => Err(Failure::No(format!("{off} figures are further off than their bounds"))),
        }
    }
}

fn checked_row(checked: &Checked) -> SimRow {
    let source = checked.source;
    let told = SimChecked {
        source: source.map(|source| source.value),
        error_pct: checked.error_pct(),
        fitted: source.map(|source| source.fitted),
        bound: source.map(|source| source.bound.to_string()),
        known_miss: source.map(|source| source.missed),
        within: checked.is_within(),
    };
    SimRow { checked: Some(told), ..row(&checked.row) }
}

fn checked_as_text(scene: &Scene, notes: &str, checked: &[Checked]) -> String {
    let heads = ["case", "metric", "source", "ours", "error", "bound", "", ""];
    let mut rows = vec![heads.map(String::from)];
    rows.extend(checked.iter().map(|one| {
        let of_source = |text: fn(scene::Source) -> String| one.source.map_or("-".into(), text);
        [
            one.row.case.clone(),
            one.row.metric.into(),
            of_source(|source| told(source.value)),
            told(one.row.value),
            one.error_pct().map_or("-".into(), |error| format!("{error:+.1} %")),
            of_source(|source| source.bound.to_string()),
            of_source(|source| (if source.fitted { "fitted" } else { "predicted" }).into()),
            match one.is_within() {
                Some(false) if one.is_off() => "OFF",
                Some(false) => "off, as is known",
                _ => "",
            }
            .into(),
        ]
    }));
    let raw = raw_as_text(scene.raw);
    format!("{}: {}\n{}{raw}{}\n", scene.name, scene.about, table(&rows), notes)
}

fn raw_row(raw: &Raw) -> SimRaw {
    let Raw { what, values: [before, after], why } = *raw;
    let change_pct = raw.change_pct();
    SimRaw { what: what.to_owned(), before, after, change_pct, why: why.to_owned() }
}

/// The source's figures that nothing of ours is beside, each with the reason under the table.
fn raw_as_text(raw: &[Raw]) -> String {
    if raw.is_empty() {
        return String::new();
    }
    let heads = ["of the source, compared with nothing", "before", "after", "change", ""];
    let mut rows = vec![heads.map(String::from)];
    rows.extend(raw.iter().zip(1..).map(|(one, number)| {
        let [before, after] = one.values.map(|value| value.to_string());
        let change = format!("{:+.1} %", one.change_pct());
        [one.what.into(), before, after, change, format!("[{number}]")]
    }));
    let reasons = raw.iter().zip(1..).map(|(one, number)| format!("[{number}] {}\n", one.why));
    table(&rows) + &reasons.collect::<String>()
}
