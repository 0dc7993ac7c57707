//! Every scheduler against any sequence of calls that its contract allows: the lives of its law
//! suite (`core/sched/tests/bed/life.rs`), with the bytes for dice.
//!
//! The ledger beside it holds each answer against the contract: what goes in leaves once, counts
//! agree, work is not stranded, a copy does as the original, a batch as its parts. In the end
//! everything is let out, and the next scheduler takes the queue over.
//!
//! Input: for each life a byte of the scheduler, then its choices up to the byte 255 where a life
//! may end.

// The bed is that of the suites, which use more of it.
#[path = "../../../core/sched/tests/bed/mod.rs"]
mod bed;

use bed::dice::Dice;
use bed::every;
use bed::life::Life;

/// Calls of a life.
const STEPS: usize = 400;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&which, told)) = bytes.split_first() else { return };
    let all: Vec<_> = every().collect();
    let (entry, compat) = all[usize::from(which) % all.len()];
    let mut life = Life::new(entry, compat, Dice::told(told));
    life.steps(STEPS);
    life.end();
}
