//! Scenes: what is simulated, as data. Settings with their bounds, the cases that follow from
//! them, and the source's figures beside which ours are put.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::figures::Figures;
use crate::host::{simulate_to_the_end, simulate_watched};
use crate::spec::HostSpec;
use crate::watch::Watch;

mod bound;
pub mod custom;
mod dell;
mod icpe24;
mod illumos;
mod linux;
mod lustre;
mod settings;
mod suse;
mod x205ta;

pub use bound::Bound;
pub use custom::Custom;
pub use settings::{Bounds, Setting, Settings};

/// A scene.
#[derive(Debug)]
pub struct Scene {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// What can be set.
    pub settings: &'static [Setting],
    /// The cases that settings come to.
    cases: fn(&Settings) -> Result<Vec<Case>, SceneError>,
    /// Rows that follow from those of the cases.
    derive: fn(&[Row]) -> Vec<Row>,
    /// The source's figures, for the settings that are there by default.
    pub sources: &'static [Source],
    /// The source's figures that nothing of ours stands beside.
    pub raw: &'static [Raw],
    /// What is to be known beside the figures.
    pub notes: &'static [&'static str],
}

/// All scenes.
pub const SCENES: &[&Scene] = &[
    &illumos::SCENE,
    &icpe24::SCENE,
    &dell::SCENE,
    &lustre::SCENE,
    &linux::SCENE,
    &suse::SCENE,
    &x205ta::SCENE,
];

/// A figure of a source, before and after a change, that is compared with nothing of ours.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// What it is of, with its unit.
    pub what: &'static str,
    /// Before and after.
    pub values: [f64; 2],
    /// Why nothing of ours is beside it, a sentence.
    pub why: &'static str,
}

impl Raw {
    /// How much more it is after, percent.
    #[must_use]
    pub fn change_pct(&self) -> f64 {
        (self.values[1] / self.values[0] - 1.0) * 100.0
    }
}

/// A figure of a source.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The case.
    pub case: &'static str,
    /// What is measured.
    pub metric: &'static str,
    /// Its value there.
    pub value: f64,
    /// It was used to set a parameter, so its agreement is no prediction.
    pub fitted: bool,
    /// How far ours may be off.
    pub bound: Bound,
    /// Ours is known to be farther off than that, for a reason that docs/fidelity.md tells.
    pub missed: bool,
}

/// One case of a scene: a host for a time.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name within the scene.
    pub name: String,
    host: HostSpec,
    span: Span,
    rows: fn(&str, &Figures) -> Vec<Row>,
}

/// How long a case is simulated.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// For `ns`, after `warm_up`.
    Time { warm_up: u64, ns: u64 },
    /// Until the processes that finish by themselves have, which they do within so much, ns.
    ToTheEnd(u64),
}

/// A figure of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case.
    pub case: String,
    /// What is measured.
    pub metric: &'static str,
    /// Its value.
    pub value: f64,
}

/// What a case came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its figures.
    pub rows: Vec<Row>,
    /// I/Os that were simulated, those before and after the measured time as well.
    pub requests: u64,
    /// Simulated time, until the measured time was over, ns.
    pub ns: u64,
    /// What was counted in the measured time.
    pub figures: Figures,
}

/// One of ours, beside the source's if that has one.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Ours.
    pub row: Row,
    /// The source's.
    pub source: Option<Source>,
}

impl Checked {
    /// How far ours is off, percent.
    #[must_use]
    pub fn error_pct(&self) -> Option<f64> {
        let source = self.source.filter(|source| source.value != 0.0)?;
        Some((self.row.value / source.value - 1.0) * 100.0)
    }

    /// Whether it is within its bound; `None` where there is none.
    #[must_use]
    pub fn is_within(&self) -> Option<bool> {
        let Source { bound, value, .. } = self.source?;
        bound.holds(self.row.value, value)
    }

    /// Whether it is farther off than its bound, and not known to be.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.is_within() == Some(false) && self.source.is_some_and(|source| !source.missed)
    }
}

/// Why a scene cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SceneError(pub(crate) String);

impl fmt::Display for SceneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SceneError {}

/// The scene of this name.
///
/// # Errors
/// There is none; the names that there are.
pub fn find(name: &str) -> Result<&'static Scene, SceneError> {
    SCENES.iter().find(|scene| scene.name == name).copied().ok_or_else(|| {
        let names: Vec<&str> = SCENES.iter().map(|scene| scene.name).collect();
        SceneError(format!("no scene {name:?}; there are {}", names.join(", ")))
    })
}

impl Scene {
    /// The settings that are there by default.
    ///
    /// # Panics
    /// If a default is outside its own bounds.
    #[must_use]
    pub fn defaults(&self) -> Settings {
        Settings::new(self.settings)
    }

    /// The cases of these settings, each to be [run](Case::run) by itself.
    ///
    /// # Errors
    /// Settings that contradict each other.
    pub fn cases(&self, settings: &Settings, seed: u64) -> Result<Vec<Case>, SceneError> {
        let mut cases = (self.cases)(settings)?;
        cases.iter_mut().for_each(|case| case.host.seed = seed);
        Ok(cases)
    }

    /// The rows of all cases, in their order, and those that follow from them.
    #[must_use]
    pub fn rows(&self, outcomes: &[Outcome]) -> Vec<Row> {
        let mut rows = rows_of_all(outcomes);
        let derived = (self.derive)(&rows);
        rows.extend(derived);
        rows
    }

    /// Each row of ours, with the source's figure beside it if there is one.
    ///
    /// # Errors
    /// A figure of the source that no row stands for.
    pub fn check(&self, rows: &[Row]) -> Result<Vec<Checked>, SceneError> {
        let has_row = |source: &&Source| rows.iter().any(|row| is_of(row, source));
        if let Some(Source { case, metric, .. }) = self.sources.iter().find(|one| !has_row(one)) {
            let what = format!("{}: no case gives {metric} of {case}", self.name);
            return Err(SceneError(what));
        }
        Ok(self.beside(rows))
    }

    /// The same of some rows, whether there is one for each figure of the source or not.
    #[must_use]
    pub fn beside(&self, rows: &[Row]) -> Vec<Checked> {
        let of_source = |row: &Row| self.sources.iter().find(|source| is_of(row, source));
        let checked = |row: &Row| Checked { row: row.clone(), source: of_source(row).copied() };
        rows.iter().map(checked).collect()
    }
}

/// Whether a figure of the source is what this row is of.
fn is_of(row: &Row, source: &Source) -> bool {
    row.case == source.case && row.metric == source.metric
}

impl Case {
    /// Simulates it. Nothing but the case decides what comes of it.
    ///
    /// # Errors
    /// A figure of the host outside its bound.
    pub fn run(&self) -> Result<Outcome, SceneError> {
        self.run_watched(&Arc::default())
    }

    /// As [`run`](Case::run); `passed` is told how much simulated time has passed, ns.
    ///
    /// # Errors
    /// As there.
    pub fn run_watched(&self, passed: &Arc<AtomicU64>) -> Result<Outcome, SceneError> {
        let host = self.host.clone();
        let simulated = match self.span {
            Span::Time { warm_up, ns } => {
                let watch = Watch::new(Arc::clone(passed));
                simulate_watched(host, warm_up, ns, watch)
            }
            Span::ToTheEnd(most) => simulate_to_the_end(host, most),
        };
        let (figures, requests) =
            simulated.map_err(|why| SceneError(format!("{}: {why}", self.name)))?;
        let warm_up = match self.span {
            Span::Time { warm_up, .. } => warm_up,
            Span::ToTheEnd(_) => 0,
        };
        let rows = (self.rows)(&self.name, &figures);
        Ok(Outcome { rows, requests, ns: warm_up + figures.ns, figures })
    }

    /// How much simulated time it takes, ns; none where that is seen at the end.
    #[must_use]
    pub fn takes(&self) -> Option<u64> {
        match self.span {
            Span::Time { warm_up, ns } => Some(warm_up + ns),
            Span::ToTheEnd(_) => None,
        }
    }
}

/// The rows of all cases, in their order.
#[must_use]
pub fn rows_of_all(outcomes: &[Outcome]) -> Vec<Row> {
    outcomes.iter().flat_map(|one| one.rows.clone()).collect()
}

/// Rows of one case.
fn rows_of<const N: usize>(case: &str, figures: [(&'static str, f64); N]) -> Vec<Row> {
    let row = |(metric, value)| Row { case: case.to_owned(), metric, value };
    figures.into_iter().map(row).collect()
}
