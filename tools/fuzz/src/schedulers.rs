//! Every scheduler against any sequence of calls that its contract allows: the lives of its law
//! suite (`core/sched/tests/bed/life.rs`), with the bytes for dice.
//!
//! The ledger beside it holds each answer against the contract: what goes in leaves once, counts
//! agree, work is not stranded, a copy does as the original, a batch as its parts. Half-way
//! everything is let out and another scheduler takes the queue over; in the end every bio was
//! answered.
//!
//! Input: a byte for each of the two schedulers, then the choices of the life.

// The bed is that of the suites, which use more of it.
#[path = "../../../core/sched/tests/bed/mod.rs"]
mod bed;

use bed::dice::Dice;
use bed::every;
use bed::life::Life;

/// Calls of a life under one scheduler.
const STEPS: usize = 200;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[first, second], told)) = bytes.split_first_chunk() else { return };
    let all: Vec<_> = every().collect();
    let [(entry, compat), (next, next_compat)] =
        [first, second].map(|which| all[usize::from(which) % all.len()]);
    let mut life = Life::new(entry, compat, Dice::told(told));
    life.steps(STEPS);
    life.switch(next, next_compat);
    life.steps(STEPS);
    life.end();
}
