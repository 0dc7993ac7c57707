//! What was simulated, as a document.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The document that `weir sim run --json` and `weir sim check --json` print of a scene.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimDocument {
    /// Always `sim`.
    pub kind: SimKind,
    /// The scene, or the file of a host.
    pub scene: String,
    /// The seed of everything random.
    pub seed: u64,
    /// What was set, by name.
    pub settings: Map<String, Value>,
    /// Simulated time of all cases, seconds.
    pub simulated_s: f64,
    /// Simulated I/Os of all cases.
    pub requests: u64,
    /// How long that took, seconds.
    pub wall_s: f64,
    /// The I/Os over that time.
    pub requests_per_wall_s: f64,
    /// Cases that were simulated at once at most.
    pub threads: usize,
    /// What is to be known beside the figures, a sentence each.
    pub notices: Vec<String>,
    /// The figures.
    pub rows: Vec<SimRow>,
    /// The source's figures that nothing of ours stands beside, where a check was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub raw: Vec<SimRaw>,
    /// Where the time of each case went.
    pub times: Vec<SimTimes>,
    /// It was broken off: cases are missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

/// The kind of a [`SimDocument`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SimKind {
    /// The only one.
    #[default]
    Sim,
}

/// A figure of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimRow {
    /// The case: what sets it apart, as `NAME=VALUE` with spaces between.
    pub case: String,
    /// What is measured; its unit is in its name.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// The source's figure beside it, where a check was made.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub checked: Option<SimChecked>,
}

/// How a figure stands to that of the source; all is null of one that the source does not have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimChecked {
    /// The source's.
    pub source: Option<f64>,
    /// How far ours is off, per cent.
    pub error_pct: Option<f64>,
    /// It was used to set a parameter, so its agreement is no prediction.
    pub fitted: Option<bool>,
    /// How far ours may be off, in words.
    pub bound: Option<String>,
    /// Ours is known to be farther off than that.
    pub known_miss: Option<bool>,
    /// Whether it is not.
    pub within: Option<bool>,
}

/// A figure of the source, before and after a change, that is compared with nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimRaw {
    /// What it is of, with its unit.
    pub what: String,
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// How much more, per cent.
    pub change_pct: f64,
    /// Why, in a sentence.
    pub why: String,
}

/// Where the time of a case went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SimTimes {
    /// The case.
    pub case: String,
    /// Shares of the time of all processors, per cent: what processes computed, what the system
    /// worked, what was spent waiting for locks, and what was left.
    pub user_pct: f64,
    /// See there.
    pub system_pct: f64,
    /// See there.
    pub waiting_pct: f64,
    /// See there.
    pub idle_pct: f64,
    /// Of the mean latency: until the driver had the request, ns.
    pub queue_wait_ns: f64,
    /// From then until the driver's answer, ns.
    pub device_ns: f64,
    /// From then until the process had it, ns.
    pub return_ns: f64,
}
