//! Fits a model of a disk to what was measured of it, and says how far off the model is on a part
//! of the measurement that it was not fitted to.
//!
//! [`recorded`] takes a recording of a live disk's scheduler: times by commands at once, from
//! dispatch to completion. [`priced`] takes jobs that were measured on a disk at some depths: the
//! same, and what an I/O costs the processor of the host.
//!
//! Both give a [`Model`]: a disk of the kind [`Measured`], and maybe prices. What the times are of
//! is in it, so that nothing is simulated that was not seen.

pub mod priced;
pub mod recorded;
mod shares;
mod text;

use std::fmt;

use weir_sim_disk::Measured;

use crate::profile::Profile;

/// A disk that was fitted.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its times, and what they are of.
    pub disk: Measured,
    /// Its bytes.
    pub size: u64,
    /// Commands that it takes at once: those beyond the most that were seen wait in it.
    pub depth: u16,
    /// Whether it says that it turns.
    pub rotational: bool,
    /// What work costs on the host that it was measured on, if that was measured.
    pub host: Option<Profile>,
    /// How a model of the rest compares with the part that was held back: this one, or one like it
    /// where this one is of all that was measured.
    pub held_back: Vec<Held>,
    /// How it compares with jobs of which it knows nothing.
    pub predicted: Vec<Predicted>,
}

/// A job of which the model knows nothing, beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The scheduler it ran under.
    pub scheduler: String,
    /// Its figures.
    pub held: Held,
}

/// A part of what was held back, beside the model's.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Commands at once.
    pub in_flight: u32,
    /// `read` or `write`.
    pub op: &'static str,
    /// Commands of it in the part that was held back.
    pub commands: u64,
    /// Commands a second.
    pub rate: Pair,
    /// The median of their times, us.
    pub p50_us: Pair,
    /// The 99th percentile, us.
    pub p99_us: Pair,
}

/// A figure as measured, and the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// As measured.
    pub measured: f64,
    /// The model's.
    pub model: f64,
}

impl Pair {
    /// How far the model is off, percent.
    #[must_use]
    pub fn error_pct(self) -> f64 {
        (self.model / self.measured - 1.0) * 100.0
    }
}

/// Why nothing can be fitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitError(pub(crate) String);

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FitError {}

/// Commands of one direction at one depth at least, without which their times are not known.
pub const LEAST: usize = 200;
