//! Lives: runs of the core, each of which its kind and its seed decide.

pub mod cut;
pub mod paths;
pub mod queue;
pub mod stripes;

use weir_bio::Nanos;

/// How far a life came: two of one seed came equally far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Bios that were sent.
    pub bios: u64,
    /// The time at its end.
    pub until: Nanos,
    /// Turns that its homes took.
    pub turns: u64,
}
