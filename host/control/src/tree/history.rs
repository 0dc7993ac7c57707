//! Shares over the last seconds, from readings alone: nothing is counted for them, and no timer
//! looks.
//!
//! A reading is kept for a while, and a later one tells what has moved since the youngest that is
//! [`WINDOW`] old; where there is none so old, since the oldest; before the first, since the start.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is looked back on, if it was read often enough.
const WINDOW: Duration = Duration::from_secs(10);

/// Readings closer together are one: so many are kept at most, and one more.
const APART: Duration = Duration::from_millis(500);

/// Shares that have not been read for so long are forgotten.
const KEPT: Duration = Duration::from_secs(600);

/// Bytes moved since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// By a group.
    pub(crate) own: u64,
    /// By it and its siblings.
    pub(crate) of_all: u64,
}

/// A group and a disk.
type Key = (String, String);

/// The readings.
pub(crate) struct History {
    began: Instant,
    read: Mutex<Readings>,
}

#[derive(Default)]
struct Readings {
    of: BTreeMap<Key, VecDeque<(Instant, Moved)>>,
    /// When it was last looked which are to be forgotten.
    swept: Option<Instant>,
}

impl Default for History {
    fn default() -> History {
        History { began: Instant::now(), read: Mutex::default() }
    }
}

impl History {
    /// What has moved in the last seconds, and how many these are. Takes note of this reading.
    pub(crate) fn since(&self, key: Key, moved: Moved, now: Instant) -> (Moved, Duration) {
        let mut all = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let age = |at: Instant| now.saturating_duration_since(at);
        // Not for each of a thousand disks of one file.
        if all.swept.is_none_or(|at| age(at) >= WINDOW) {
            all.of.retain(|_, read| read.back().is_some_and(|(at, _)| age(*at) < KEPT));
            all.swept = Some(now);
        }
        let read = all.of.entry(key).or_default();
        // The second of two that are both old enough does for all that comes.
        while read.get(1).is_some_and(|(at, _)| age(*at) >= WINDOW) {
            read.pop_front();
        }
        let (at, before) = read.front().copied().unwrap_or((self.began, Moved::default()));
        // Groups that come and go under a name, and siblings that do, count from 0 again.
        let since = Moved {
            own: moved.own.saturating_sub(before.own),
            of_all: moved.of_all.saturating_sub(before.of_all),
        };
        if read.back().is_none_or(|(last, _)| age(*last) >= APART) {
            read.push_back((now, moved));
        }
        (since, age(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_last_ten_seconds_where_it_was_read_and_else_since_it_was() {
        let history = History::default();
        let start = history.began;
        let read = |second: u64, own, of_all| {
            let key = (String::from("a"), String::from("sda"));
            let now = start + Duration::from_secs(second);
            let (since, over) = history.since(key, Moved { own, of_all }, now);
            (since.own, since.of_all, over.as_secs())
        };
        assert_eq!(read(100, 50, 100), (50, 100, 100), "before a reading: since the start");
        assert_eq!(read(140, 60, 140), (10, 40, 40), "since the last, however long ago");
        for second in 141..=150 {
            read(second, 60 + (second - 140), 140 + 10 * (second - 140));
        }
        assert_eq!(read(151, 71, 250), (10, 100, 10), "then of ten seconds");
        assert_eq!(read(151, 71, 250), (10, 100, 10), "again at the same moment");
        assert_eq!(read(200, 171, 350), (100, 100, 49));
        assert_eq!(read(201, 0, 10), (0, 0, 50), "a group of that name that is new");
    }

    #[test]
    fn few_readings_are_kept_however_often_it_is_read() {
        let history = History::default();
        let at = |ms| history.began + Duration::from_millis(ms);
        for ms in 0..100_000 {
            let key = (String::from("a"), format!("disk{}", ms % 3));
            history.since(key, Moved { own: ms, of_all: ms }, at(ms));
        }
        let all = history.read.lock().unwrap();
        assert!(
            all.of.values().all(|read| read.len() <= 22),
            "{:?}",
            all.of.values().map(VecDeque::len).max()
        );
        drop(all);
        let key = (String::from("b"), String::from("sda"));
        history.since(key, Moved::default(), at(1_000_000));
        assert_eq!(history.read.lock().unwrap().of.len(), 1, "what is not read is forgotten");
    }
}
