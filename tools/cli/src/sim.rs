//! `weir sim`: scenes in virtual time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use weir_sim::scene::{self, Case, Checked, Outcome, Row, SCENES, Scene, SceneError, Settings};

use crate::output::{print, print_line};
use crate::{Failure, log};

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

/// Simulates a scene and prints its figures.
///
/// Example: weir sim run icpe24 --set scheduler=bfq,mq-deadline --set processes=1,2,4,8
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Run {
    /// Its name.
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
    #[arg(long, default_value_t = 1)]
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
        }
    }
}

impl List {
    fn run(&self) -> Result<(), Failure> {
        if self.json {
            let scenes: Vec<Value> = SCENES.iter().map(|scene| scene_as_json(scene)).collect();
            return print_line(&json!(scenes).to_string());
        }
        let scenes: Vec<String> = SCENES.iter().map(|scene| scene_as_text(scene)).collect();
        print(&scenes.join("\n"))
    }
}

fn scene_as_json(scene: &Scene) -> Value {
    let setting = |one: &scene::Setting| {
        json!({"name": one.name, "default": one.default, "range": one.range(),
               "meaning": one.meaning})
    };
    let settings: Vec<Value> = scene.settings.iter().map(setting).collect();
    json!({"name": scene.name, "about": scene.about, "settings": settings,
           "sources": scene.sources.len(), "notices": scene.notes})
}

fn scene_as_text(scene: &Scene) -> String {
    let mut rows = vec![["setting", "default", "range", "meaning"].map(String::from)];
    rows.extend(
        scene
            .settings
            .iter()
            .map(|one| [one.name.into(), one.default.into(), one.range(), one.meaning.into()]),
    );
    format!("{}: {}\n{}", scene.name, scene.about, table(&rows))
}

fn notes(scene: &Scene) -> String {
    scene.notes.iter().map(|note| format!("note: {note}\n")).collect()
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
    rows: Vec<Row>,
    requests: u64,
    ns: u64,
    took: Duration,
    threads: usize,
}

impl How {
    fn simulate(&self, scene: &Scene, settings: &Settings) -> Result<Simulated, Failure> {
        let cases = scene.cases(settings, self.seed).map_err(refused)?;
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.map_or(available, usize::from).min(cases.len());
        let begun = Instant::now();
        let outcomes = run_all(&cases, threads).map_err(refused)?;
        let took = begun.elapsed();
        let requests: u64 = outcomes.iter().map(|one| one.requests).sum();
        if !self.quiet {
            let rate = requests as f64 / took.as_secs_f64();
            log::say(&format!(
                "{}: {requests} requests in {:.1} s, {rate:.0} a second",
                scene.name,
                took.as_secs_f64()
            ));
        }
        let ns = outcomes.iter().map(|one| one.ns).sum();
        Ok(Simulated { rows: scene.rows(&outcomes), requests, ns, took, threads })
    }

    fn document(&self, scene: &Scene, settings: &Settings, of: &Simulated) -> Map<String, Value> {
        let wall_s = of.took.as_secs_f64();
        let settings: Map<String, Value> =
            settings.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let document = json!({
            "scene": scene.name, "seed": self.seed, "settings": settings,
            "simulated_s": of.ns as f64 / 1e9, "requests": of.requests, "wall_s": wall_s,
            "requests_per_wall_s": of.requests as f64 / wall_s, "threads": of.threads,
            "notices": scene.notes,
        });
        let Value::Object(document) = document else { unreachable!("it is written as one") };
        document
    }
}

fn refused(why: SceneError) -> Failure {
    Failure::Bad(why.to_string())
}

/// Simulates each case by itself; the outcomes in the order of the cases.
fn run_all(cases: &[Case], threads: usize) -> Result<Vec<Outcome>, SceneError> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![None; cases.len()]);
    let work = || {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(case) = cases.get(index)
        {
            let outcome = case.run();
            outcomes.lock().expect("no thread has panicked")[index] = Some(outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where the system has no more threads, fewer do the same.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let outcomes = outcomes.into_inner().expect("no thread has panicked");
    outcomes.into_iter().map(|outcome| outcome.expect("each case is simulated")).collect()
}

impl Run {
    fn run(&self) -> Result<(), Failure> {
        let scene = scene::find(&self.scene).map_err(refused)?;
        let mut settings = scene.defaults();
        self.set.iter().try_for_each(|text| settings.set(text)).map_err(refused)?;
        let simulated = self.how.simulate(scene, &settings)?;
        if self.how.json {
            let mut document = self.how.document(scene, &settings, &simulated);
            let rows = simulated.rows.iter().map(row_as_json).map(Value::Object);
            document.insert("rows".into(), rows.collect());
            return print_line(&Value::Object(document).to_string());
        }
        let mut rows = vec![["case", "metric", "value"].map(String::from)];
        rows.extend(
            simulated.rows.iter().map(|row| [row.case.clone(), row.metric.into(), told(row.value)]),
        );
        print(&(table(&rows) + &notes(scene)))
    }
}

fn row_as_json(row: &Row) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("case".into(), json!(row.case));
    map.insert("metric".into(), json!(row.metric));
    map.insert("value".into(), json!(row.value));
    map
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
        for scene in scenes {
            let settings = scene.defaults();
            let simulated = self.how.simulate(scene, &settings)?;
            let checked = scene.check(&simulated.rows).map_err(refused)?;
            off += checked.iter().filter(|one| one.is_off()).count();
            if self.how.json {
                let mut document = self.how.document(scene, &settings, &simulated);
                document.insert("rows".into(), checked.iter().map(checked_as_json).collect());
                documents.push(Value::Object(document));
            } else {
                text += &checked_as_text(scene, &checked);
            }
        }
        match documents.len() {
            0 => print(&text)?,
            // One scene is one document, as a run of it is.
            1 if self.scene.is_some() => print_line(&documents[0].to_string())?,
            _ => print_line(&json!(documents).to_string())?,
        }
        match off {
            0 => Ok(()),
            off => Err(Failure::No(format!("{off} figures are further off than their bounds"))),
        }
    }
}

fn checked_as_json(checked: &Checked) -> Value {
    let mut map = row_as_json(&checked.row);
    map.insert("source".into(), json!(checked.source.map(|source| source.value)));
    map.insert("error_pct".into(), json!(checked.error_pct()));
    map.insert("fitted".into(), json!(checked.source.map(|source| source.fitted)));
    map.insert("bound".into(), json!(checked.source.map(|source| source.bound.to_string())));
    map.insert("known_miss".into(), json!(checked.source.map(|source| source.missed)));
    map.insert("within".into(), json!(checked.is_within()));
    Value::Object(map)
}

fn checked_as_text(scene: &Scene, checked: &[Checked]) -> String {
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
    format!("{}: {}\n{}{}\n", scene.name, scene.about, table(&rows), notes(scene))
}
