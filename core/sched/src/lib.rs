//! I/O schedulers: pure state machines that decide which staged request goes to the device next.
//!
//! [`Scheduler`] is the contract, `tests/laws.rs` the suite that holds every implementation to it.
//! A scheduler owns no clock, thread, lock or memory of an I/O: it sees [`Rq`]s and answers with
//! them, so the same code runs live and in a simulator.
//!
//! The parts: `noop`, `deadline` and `cfq` for the single-queue path, `mq-deadline`, `kyber` and
//! `bfq` for the multi-queue path. `none` is the absence of a scheduler and needs no code: the path
//! then feeds hard queues straight from its soft queues.

#![forbid(unsafe_code)]

pub mod contract;
mod deadline;
pub mod fair;
pub mod hash;
pub mod merge;
pub mod recorder;
pub mod replay;
mod staged;
pub mod tunable;

pub use contract::{Absorbed, DepthRule, Ended, MayQueue, Merge, Replay, Scheduler, Setup};
pub use tunable::{Number, Tunable, TunableError, Tunables, Unit, When};
pub use weir_bio::{Rq, SchedTag};

/// The schedulers of the single-queue path.
pub mod legacy {
    pub mod cfq;
    pub mod deadline;
    pub mod noop;
}

/// The schedulers of the multi-queue path.
pub mod mq {
    pub mod bfq;
    pub mod deadline;
    pub mod kyber;
}

/// Every scheduler, in the order the `scheduler` attribute lists them. Each file above has its
/// entry.
pub const SCHEDULERS: &[Entry] = &[
    NONE,
    mq::deadline::ENTRY,
    mq::kyber::ENTRY,
    mq::bfq::ENTRY,
    legacy::noop::ENTRY,
    legacy::deadline::ENTRY,
    legacy::cfq::ENTRY,
];

/// The level of SUSE Linux Enterprise 12 as its tuning guide describes it (chapter 12): every
/// scheduler has it, so that a disk keeps it when its scheduler is switched.
pub const SLES12: &str = "sles12";

/// Kernels of the time of the multi-queue path's first schedulers, where `none` came last.
const OLD_ORDER: &[&str] = &["4.12", SLES12];

/// The schedulers of a path, in the order in which the `scheduler` attribute lists them at a level.
#[must_use]
pub fn listed(family: Family, compat: Option<&str>) -> Vec<&'static str> {
    let of_family = SCHEDULERS.iter().filter(|entry| entry.family == family);
    let mut names: Vec<_> = of_family.map(|entry| entry.name).collect();
    if compat.is_some_and(|level| OLD_ORDER.contains(&level)) {
        names.sort_by_key(|name| *name == NONE.name);
    }
    names
}

/// No scheduler: it needs no file.
const NONE: Entry = Entry {
    name: "none",
    family: Family::Multi,
    counterpart: "noop",
    compat: &["6.18", SLES12],
    levels: &[(SLES12, "no change")],
    tunables: &[],
    make: None,
    replay: None,
};

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

/// Makes one that can be replayed.
pub type MakeReplay = fn(&Setup) -> Box<dyn Replay>;

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
    /// Each of these but the default, with what it changes.
    pub levels: &'static [(&'static str, &'static str)],
    /// Its tunables.
    pub tunables: &'static [Tunable],
    /// Makes one; `None` for the multi-queue path's `none`.
    pub make: Option<Make>,
    /// Makes the same one for replays; `None` for one that cannot be led along a recording.
    pub replay: Option<MakeReplay>,
}

/// Names a path understands besides its schedulers' own, as Linux does.
const ALIASES: &[(Family, &str, &str)] = &[(Family::Multi, "deadline", "mq-deadline")];

/// The name that a mistyped word is closest to: one letter off, or two in a word of five and more;
/// a letter is wrong, missing, one too many, or two of them changed places.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = if word.chars().count() < 5 { 1 } else { 2 };
    let all = names.into_iter().map(|name| (distance(word, name), name));
    let near = all.filter(|(distance, _)| (1..=most).contains(distance));
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// In how many letters two words differ (Damerau and Levenshtein, each letter changed once).
fn distance(one: &str, other: &str) -> usize {
    let [one, other] = [one, other].map(|word| word.chars().collect::<Vec<char>>());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let swapped = i > 0 && j > 0 && one[i - 1] == *b && other[j - 1] == *a;
            let swap = if swapped { rows[i - 1][j - 1] + 1 } else { usize::MAX };
            let change = rows[i][j] + usize::from(a != b);
            row.push(change.min(rows[i][j + 1] + 1).min(row[j] + 1).min(swap));
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

/// Looks a scheduler up by the name used on `family`'s path; `deadline` is understood as
/// `mq-deadline` on the multi-queue path.
///
/// # Errors
/// A sentence naming the valid names, and the counterpart for a name of the other path.
pub fn find(family: Family, name: &str) -> Result<&'static Entry, String> {
    let valid: Vec<_> = SCHEDULERS.iter().filter(|e| e.family == family).map(|e| e.name).collect();
    let valid = valid.join(", ");
    let alias = ALIASES.iter().find(|(path, alias, _)| (*path, *alias) == (family, name));
    let name = alias.map_or(name, |(_, _, name)| name);
    match SCHEDULERS.iter().find(|entry| entry.name == name) {
        Some(entry) if entry.family == family => Ok(entry),
        Some(entry) => Err(format!(
            "scheduler {name} belongs to the other queue mode; its counterpart here is {}",
            entry.counterpart
        )),
        None => {
            let names = SCHEDULERS.iter().filter(|entry| entry.family == family);
            let meant = nearest(name, names.map(|entry| entry.name));
            let meant = meant.map(|meant| format!(" (is {meant} meant?)")).unwrap_or_default();
            Err(format!("unknown scheduler {name:?}{meant}; valid here: {valid}"))
        }
    }
}

/// The scheduler of a new disk for which none is stated (docs/behaviour/block-layer.md, section
/// 13.3), among the schedulers there are.
#[must_use]
pub fn default_name(family: Family, rotational: bool, one_queue: bool) -> &'static str {
    let wanted: &[&'static str] = match family {
        Family::Legacy if rotational => &["cfq", "deadline", "noop"],
        Family::Legacy => &["deadline", "noop"],
        Family::Multi if one_queue => &["mq-deadline"],
        Family::Multi => &[],
    };
    let exists = |name: &&&str| SCHEDULERS.iter().any(|entry| entry.name == **name);
    wanted.iter().find(exists).copied().unwrap_or("none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_other_path_is_refused_with_its_counterpart() {
        let error = find(Family::Multi, "noop").unwrap_err();
        assert!(error.contains("counterpart here is none"), "{error}");
        let error = find(Family::Multi, "cfg").unwrap_err();
        assert!(error.contains("valid here: none, mq-deadline"), "{error}");
        let error = find(Family::Legacy, "mq-deadline").unwrap_err();
        assert!(error.contains("counterpart here is deadline"), "{error}");
        assert_eq!(find(Family::Legacy, "noop").unwrap().name, "noop");
    }

    #[test]
    fn deadline_means_what_each_path_has_of_it() {
        assert_eq!(find(Family::Legacy, "deadline").unwrap().name, "deadline");
        assert_eq!(find(Family::Multi, "deadline").unwrap().name, "mq-deadline");
    }

    #[test]
    fn each_tunable_begins_at_its_default_and_takes_its_bounds() {
        let limits = weir_bio::Limits { rotational: true, ..weir_bio::Limits::default() };
        let setup = Setup { limits, nr_requests: 256, hard_queues: 1, nomerges: 0, compat: "" };
        for entry in SCHEDULERS {
            let Some(make) = entry.make else { continue };
            for row in entry.tunables {
                let mut scheduler = make(&setup);
                let tunables = scheduler.tunables();
                assert_eq!(tunables.value(row.name), row.default, "{} {}", entry.name, row.name);
                for bound in [row.least, row.most] {
                    // Of a time longer than Linux can keep a part is left.
                    let kept = tunables.set_strict(row.name, &bound.to_string());
                    let cut = entry.name == "bfq" && row.name.starts_with("slice_idle");
                    assert!(kept.is_ok() || cut, "{} {kept:?}", entry.name);
                }
            }
        }
    }

    #[test]
    fn each_level_but_the_default_says_what_it_changes_and_all_have_sles12() {
        for entry in SCHEDULERS {
            let told: Vec<&str> = entry.levels.iter().map(|(level, _)| *level).collect();
            assert_eq!(told, entry.compat[1..], "{}", entry.name);
            assert_eq!(told.last(), Some(&SLES12), "{}", entry.name);
        }
    }

    #[test]
    fn names_are_listed_in_the_order_of_the_level() {
        for (level, expected) in [
            (None, "none mq-deadline kyber bfq"),
            (Some("6.18"), "none mq-deadline kyber bfq"),
            (Some("4.12"), "mq-deadline kyber bfq none"),
            (Some("sles12"), "mq-deadline kyber bfq none"),
        ] {
            assert_eq!(listed(Family::Multi, level).join(" "), expected, "{level:?}");
            assert_eq!(listed(Family::Legacy, level).join(" "), "noop deadline cfq", "{level:?}");
        }
    }

    #[test]
    fn a_counterpart_is_of_the_other_path_and_the_table_is_the_schedulers_own() {
        for entry in SCHEDULERS {
            if let Some(other) = SCHEDULERS.iter().find(|e| e.name == entry.counterpart) {
                assert_ne!(entry.family, other.family, "{}", entry.name);
                // Two may have the same counterpart, as the older path has fewer schedulers.
                let back = SCHEDULERS.iter().find(|e| e.name == other.counterpart);
                assert_eq!(back.map(|e| e.family), Some(entry.family), "{}", entry.name);
            }
            let Some(make) = entry.make else { continue };
            let limits = weir_bio::Limits::default();
            let setup = Setup { limits, nr_requests: 8, hard_queues: 1, nomerges: 0, compat: "" };
            let mut scheduler = make(&setup);
            assert_eq!(scheduler.name(), entry.name);
            assert_eq!(scheduler.tunables().table(), entry.tunables, "{}", entry.name);
        }
    }

    #[test]
    fn a_mistyped_name_is_taken_for_the_nearest_and_a_strange_one_for_none() {
        let names = ["none", "mq-deadline", "kyber", "bfq"];
        let of = |word: &str| nearest(word, names);
        for (word, meant) in [
            ("bqf", "bfq"),
            ("bf", "bfq"),
            ("bfqq", "bfq"),
            ("nine", "none"),
            ("kybre", "kyber"),
            ("kibbr", "kyber"),
            ("qm-deadine", "mq-deadline"),
        ] {
            assert_eq!(of(word), Some(meant), "{word}");
        }
        for word in ["", "q", "bfq", "fqb", "nnoo", "kerby-x", "xbyerr"] {
            assert_eq!(of(word), None, "{word}");
        }
        // The nearer of two.
        assert_eq!(nearest("abcdx", ["abcxx", "abcde"]), Some("abcxx"));
        assert_eq!(nearest("abcdef", ["abcdxy", "abcdeg"]), Some("abcdeg"));
        assert_eq!([distance("ab", "ba"), distance("", "abc"), distance("abc", "")], [1, 3, 3]);
        assert_eq!([distance("abc", "ca"), distance("kitten", "sitting")], [3, 3]);
    }
}
