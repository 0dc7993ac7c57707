//! The logs that a job asks for; the engine that runs it writes them.

use serde::{Deserialize, Serialize};

/// Which logs there are, and what is in them. Names are without their ends; an empty one stands for
/// the job's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// Of latencies.
    #[serde(deserialize_with = "Option::deserialize")]
    pub latency: Option<String>,
    /// Of bandwidth.
    #[serde(deserialize_with = "Option::deserialize")]
    pub bandwidth: Option<String>,
    /// Of I/Os.
    #[serde(deserialize_with = "Option::deserialize")]
    pub iops: Option<String>,
    /// A row for so long; 0: one for each I/O.
    pub window_ns: u64,
    /// What is told of all in it.
    pub told: Told,
    /// Whether rows say where an I/O was.
    pub offset: bool,
    /// Whether they say its priority, and not only whether it is real-time.
    pub priority: bool,
    /// Whether they say when an I/O was issued.
    pub issue_time: bool,
    /// Whether jobs of one name have one file, behind whatever it holds.
    pub shared: bool,
    /// Number of the job's first clone among all clones of its file.
    pub first: u32,
}

/// What a window's row says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// The mean.
    #[default]
    Average,
    /// The largest.
    Most,
    /// One and the other.
    Both,
}

impl Logs {
    /// Whether there is none.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.latency.is_none() && self.bandwidth.is_none() && self.iops.is_none()
    }
}
