//! When the I/Os of a job begin, and in which order it goes through its range.

use serde::{Deserialize, Serialize};

/// When a job pauses: after so many I/Os, after so long, or both, whatever is first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thinking {
    /// The length of each pause; 0: there is none.
    pub ns: u64,
    /// I/Os between two pauses; 0: one, or as many as fit in `io_ns`.
    pub ios: u32,
    /// Time between two pauses; 0: it does not count.
    pub io_ns: u64,
    /// Whether a pause begins when the I/O before it is begun, and not when all have ended.
    pub from_issue: bool,
}

/// How the I/Os that a clone keeps under way are begun and taken. All 0: as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batching {
    /// So many are begun together.
    pub submit: u16,
    /// When as many are under way as there may be, none is begun until so many have ended.
    pub complete: u16,
    /// Nor before so few are left under way.
    pub low: u16,
    /// Each is begun as soon as it can be, whatever that costs.
    pub at_once: bool,
}

impl Batching {
    /// Whether nothing is said of how many are begun together.
    #[must_use]
    pub fn is_open(self) -> bool {
        let at_once = Batching::default().at_once;
        Batching { at_once, ..self } == Batching::default()
    }

    /// Whether that is left to the engine.
    #[must_use]
    pub fn may_collect(self) -> bool {
        self == Batching::default()
    }
}

/// Parts of the range one behind the other, with gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strides {
    /// Bytes moved in a part before the next.
    pub bytes: u64,
    /// Bytes of a part.
    pub range: u64,
    /// Bytes from its end to the next.
    pub skip: u64,
}

/// The share of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// I/Os of each of its clones while those of another flow of weight 1 have one; 0: as many as
    /// it can.
    pub weight: u32,
    /// Flows of one number keep to shares of each other's.
    pub id: u64,
    /// How long one that is ahead waits before it looks again; 0: as short as is of use.
    pub sleep_ns: u64,
}

/// Weights that there may be.
pub(crate) const WEIGHT_MAX: u64 = 1000;
