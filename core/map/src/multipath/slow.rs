//! Slow paths: which path of a group is so much slower than the others that it is better spared.
//! Pure: windows of latencies go in, decisions come out.
//! Rules: docs/behaviour/multipath.md, section 6.

use std::ops::Range;

use weir_bio::Nanos;
use weir_queue::Latencies;

/// The length of a window.
const WINDOW_NS: u64 = 10_000_000_000;

/// A path is slow above so many times the group's median path.
const FACTOR: u64 = 5;

/// Requests of a window below which it says nothing of a path.
const SAMPLES_MIN: u64 = 20;

/// Good windows after which a path is trusted again: 30 s.
const GOOD_WINDOWS: u32 = 3;

/// A decision about a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) path: usize,
    pub(super) on_probation: bool,
    pub(super) reason: String,
}

/// Watches the paths of a device.
pub(super) struct SlowPaths {
    ends_at: Option<Nanos>,
    paths: Vec<Watched>,
}

#[derive(Clone, Default)]
struct Watched {
    before: Latencies,
    /// It is on probation, and has had so many good windows.
    probation: Option<u32>,
}

/// What a window says of a path.
struct Seen {
    path: usize,
    count: u64,
    p99_ns: u64,
}

impl SlowPaths {
    pub(super) fn new(paths: usize) -> SlowPaths {
        SlowPaths { ends_at: None, paths: vec![Watched::default(); paths] }
    }

    pub(super) fn wake_at(&self) -> Nanos {
        self.ends_at.unwrap_or(Nanos::ZERO)
    }

    /// Judges the paths of these groups at the end of a window; `latencies` are all so far.
    pub(super) fn judge(
        &mut self,
        groups: &[Range<usize>],
        latencies: impl Fn(usize) -> Latencies,
        now: Nanos,
    ) -> Vec<Change> {
        let is_first = self.ends_at.is_none();
        if self.ends_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.ends_at = Some(now + WINDOW_NS);
        let mut changes = Vec::new();
        for group in groups {
            let mut seen = Vec::new();
            for path in group.clone() {
                let all = latencies(path);
                let window = all.since(&self.paths[path].before);
                self.paths[path].before = all;
                let (count, p99_ns) = (window.count(), window.quantile_ns(990));
                seen.push(Seen { path, count, p99_ns });
            }
            if !is_first {
                self.judge_group(&seen, &mut changes);
            }
        }
        changes
    }

    fn judge_group(&mut self, seen: &[Seen], changes: &mut Vec<Change>) {
        let trusted =
            |seen: &&Seen| seen.count >= SAMPLES_MIN && self.paths[seen.path].probation.is_none();
        let mut usual: Vec<u64> = seen.iter().filter(trusted).map(|seen| seen.p99_ns).collect();
        usual.sort_unstable();
        // Of two, the faster: else the slower one would be measured by itself.
        let Some(median) = usual.get(usual.len().saturating_sub(1) / 2).copied() else { return };
        for seen in seen {
            let is_slow = seen.p99_ns > median.saturating_mul(FACTOR);
            let reason = format!("p99 of {} us, usual is {} us", seen.p99_ns / 1000, median / 1000);
            let path = seen.path;
            match &mut self.paths[path].probation {
                None if is_slow && seen.count >= SAMPLES_MIN => {
                    self.paths[path].probation = Some(0);
                    changes.push(Change { path, on_probation: true, reason });
                }
                Some(good) if seen.count > 0 => {
                    *good = if is_slow { 0 } else { *good + 1 };
                    if *good >= GOOD_WINDOWS {
                        self.paths[path].probation = None;
                        changes.push(Change { path, on_probation: false, reason });
                    }
                }
                _ => {}
            }
        }
    }

    /// A path that has failed is on probation no more.
    pub(super) fn forget(&mut self, path: usize) {
        self.paths[path].probation = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_queue::Histogram;

    const SECOND: u64 = 1_000_000_000;

    struct Rig {
        slow: SlowPaths,
        seen: Vec<Histogram>,
        groups: Vec<Range<usize>>,
        now: Nanos,
    }

    impl Rig {
        fn new(ends: &[usize]) -> Rig {
            let paths = *ends.last().unwrap();
            let starts = [0].iter().chain(ends);
            let groups = starts.zip(ends).map(|(start, end)| *start..*end).collect();
            let seen = (0..paths).map(|_| Histogram::default()).collect();
            let mut rig = Rig { slow: SlowPaths::new(paths), seen, groups, now: Nanos(1) };
            assert_eq!(rig.judge(), []);
            rig
        }

        fn judge(&mut self) -> Vec<(usize, bool)> {
            let seen = &self.seen;
            let of = |path: usize| {
                let mut sum = Latencies::default();
                seen[path].add_to(&mut sum);
                sum
            };
            let changes = self.slow.judge(&self.groups, of, self.now);
            changes.into_iter().map(|change| (change.path, change.on_probation)).collect()
        }

        /// A window in which each path answers so many times in so many us.
        fn window(&mut self, answers: &[(u64, u64)]) -> Vec<(usize, bool)> {
            for (seen, (count, us)) in self.seen.iter().zip(answers) {
                seen.record_many(us * 1000, *count);
            }
            self.now = self.now + 10 * SECOND;
            self.judge()
        }
    }

    #[test]
    fn a_path_above_five_times_the_median_is_on_probation_until_30_seconds_were_good() {
        let mut rig = Rig::new(&[3]);
        assert_eq!(rig.window(&[(100, 100), (100, 110), (100, 480)]), [], "not five times");
        assert_eq!(rig.window(&[(100, 100), (100, 110), (100, 700)]), [(2, true)]);
        assert_eq!(rig.window(&[(100, 100), (100, 110), (9, 100)]), []);
        assert_eq!(rig.window(&[(100, 100), (100, 110), (9, 100)]), []);
        assert_eq!(rig.window(&[(100, 100), (100, 110), (9, 900)]), [], "not in a row");
        for _ in 0..2 {
            assert_eq!(rig.window(&[(100, 100), (100, 110), (9, 100)]), []);
        }
        assert_eq!(rig.window(&[(100, 100), (100, 110), (0, 0)]), [], "no answer is no good one");
        assert_eq!(rig.window(&[(100, 100), (100, 110), (9, 100)]), [(2, false)]);
        assert_eq!(rig.window(&[(100, 100), (100, 110), (100, 700)]), [(2, true)], "once more");
    }

    #[test]
    fn of_two_paths_the_slower_is_measured_by_the_faster() {
        let mut rig = Rig::new(&[2]);
        assert_eq!(rig.window(&[(100, 100), (100, 1000)]), [(1, true)]);
        // The one that is left is never slow by itself.
        assert_eq!(rig.window(&[(100, 100_000), (1, 1000)]), []);
    }

    #[test]
    fn groups_are_judged_apart_and_few_answers_say_nothing() {
        let mut rig = Rig::new(&[2, 4]);
        assert_eq!(rig.window(&[(100, 100), (100, 100), (100, 1000), (100, 1000)]), []);
        assert_eq!(rig.window(&[(100, 100), (19, 1000), (0, 0), (0, 0)]), []);
        assert_eq!(rig.window(&[(100, 100), (20, 1000), (0, 0), (0, 0)]), [(1, true)]);
    }

    #[test]
    fn a_window_is_ten_seconds() {
        let mut rig = Rig::new(&[2]);
        rig.seen[0].record_many(1000, 100);
        rig.seen[1].record_many(100_000, 100);
        rig.now = rig.now + (10 * SECOND - 1);
        assert_eq!(rig.judge(), []);
        rig.now = rig.now + 1;
        assert_eq!(rig.judge(), [(1, true)]);
        rig.slow.forget(1);
        assert_eq!(rig.window(&[(100, 1), (100, 100)]), [(1, true)], "it begins anew");
    }
}
