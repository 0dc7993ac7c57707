//! I/O schedulers: pure state machines that decide which staged request goes to the device next.
//!
//! [`Scheduler`] is the contract, `tests/laws.rs` the suite that holds every implementation to it.
//! A scheduler owns no clock, thread, lock or memory of an I/O: it sees [`Rq`]s and answers with
//! them, so the same code runs live and in a simulator.
//!
//! What is here: `noop` for the single-queue path, `bfq` for the multi-queue path. `none` is the
//! absence of a scheduler and needs no code: the multi-queue path then feeds hard queues straight
//! from its soft queues.

#![forbid(unsafe_code)]

pub mod contract;
pub mod hash;
pub mod legacy;
pub mod merge;
pub mod mq;
pub mod tunable;

pub use contract::{Absorbed, End, Ended, Merge, Scheduler, Setup, Wants};
pub use tunable::{NoTunables, Number, Tunable, TunableError, Tunables, Unit};
pub use weir_bio::{Rq, SchedTag};

/// Which path a scheduler is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// The single-queue path.
    Legacy,
    /// The multi-queue path.
    Multi,
}

/// Makes a scheduler for the device described.
pub type Make = fn(&Setup) -> Box<dyn Scheduler>;

/// One entry of the list of schedulers.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name, as in the `scheduler` attribute.
    pub name: &'static str,
    /// Which path it serves.
    pub family: Family,
    /// Its counterpart on the other path.
    pub counterpart: &'static str,
    /// Whose behaviour it can have; the first is the default.
    pub compat: &'static [&'static str],
    /// Its tunables.
    pub tunables: &'static [Tunable],
    /// Makes one; `None` for the multi-queue path's `none`.
    pub make: Option<Make>,
}

/// Every scheduler, in the order the `scheduler` attribute lists them.
pub const SCHEDULERS: &[Entry] = &[
    Entry {
        name: "none",
        family: Family::Multi,
        counterpart: "noop",
        compat: &["6.18"],
        tunables: &[],
        make: None,
    },
    Entry {
        name: "bfq",
        family: Family::Multi,
        counterpart: "cfq",
        compat: &["6.18"],
        tunables: mq::bfq::TUNABLES,
        make: Some(|setup| Box::new(mq::bfq::Bfq::new(setup))),
    },
    Entry {
        name: "noop",
        family: Family::Legacy,
        counterpart: "none",
        compat: &["4.16"],
        tunables: &[],
        make: Some(|setup| Box::new(legacy::noop::Noop::new(setup))),
    },
];

/// Looks a scheduler up by the name used on `family`'s path.
///
/// # Errors
/// A sentence naming the valid names, and the counterpart for a name of the other path.
pub fn find(family: Family, name: &str) -> Result<&'static Entry, String> {
    let valid: Vec<_> = SCHEDULERS.iter().filter(|e| e.family == family).map(|e| e.name).collect();
    let valid = valid.join(", ");
    match SCHEDULERS.iter().find(|entry| entry.name == name) {
        Some(entry) if entry.family == family => Ok(entry),
        Some(entry) => Err(format!(
            "scheduler {name} belongs to the other queue mode; its counterpart here is {}",
            entry.counterpart
        )),
        None => Err(format!("unknown scheduler {name:?}; valid here: {valid}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_other_path_is_refused_with_its_counterpart() {
        let error = find(Family::Multi, "noop").unwrap_err();
        assert!(error.contains("counterpart here is none"), "{error}");
        let error = find(Family::Multi, "cfg").unwrap_err();
        assert!(error.contains("valid here: none, bfq"), "{error}");
        assert_eq!(find(Family::Legacy, "noop").unwrap().name, "noop");
    }
}
