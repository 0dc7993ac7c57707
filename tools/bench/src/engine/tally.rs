//! The counts of one thread: a row for each kind of I/O, and how it went from one tenth of a second
//! to the next. Nothing here is shared; the rows of all threads are added at the end.

use weir_bio::{Nanos, SECTOR};
use weir_load::Times;
use weir_load::times::Row;

/// Length of an interval of the time series.
pub const INTERVAL_NS: u64 = 100_000_000;

/// One interval of the time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// I/Os that ended in it.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of their times, ns.
    pub ns: u64,
}

/// Kinds of I/O that one client has at most.
pub(crate) const KINDS: usize = 6;

/// How long one I/O took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// From when it was to begin until its answer was taken: as its client sees it, also while the
    /// queue did not accept it.
    pub total_ns: u64,
    /// From when it was to begin until the driver had it.
    pub wait_ns: u64,
    /// From then until the driver's answer.
    pub device_ns: u64,
    /// No driver has seen it: it has no parts.
    pub is_whole: bool,
}

impl Took {
    /// A group that is no I/O but made of many: neither wait nor device time is counted for it.
    #[must_use]
    pub fn whole(ns: u64) -> Took {
        Took { total_ns: ns, wait_ns: 0, device_ns: 0, is_whole: true }
    }
}

/// I/Os that ended with the same times, counted together: those of one batch usually do.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    took: Took,
    counts: [u32; KINDS],
    sectors: [u64; KINDS],
}

/// A thread's rows, by number; those that nothing fell into are empty.
#[derive(Debug)]
pub struct Tally {
    rows: Vec<Option<Box<Row>>>,
    /// By row: how long the I/Os had taken that had not ended when the time was up.
    unfinished: Vec<Option<Box<Times>>>,
    slots: Vec<Slot>,
    slot_end: Nanos,
    /// I/Os that failed, and blocks that were not what they should be.
    pub errors: u64,
    /// Of them, such blocks.
    pub faults: u64,
    /// Blocks that were looked at and were what they should be.
    pub verified: u64,
    streak: Streak,
    /// Row of the streak's first kind.
    base: usize,
    /// Which rows are I/O: the others are in no sum.
    is_io: Vec<bool>,
}

impl Tally {
    /// Rows for each kind, of which some are I/O; time is counted from `from`.
    #[must_use]
    pub fn new(is_io: Vec<bool>, from: Nanos) -> Tally {
        Tally {
            rows: vec![None; is_io.len()],
            unfinished: vec![None; is_io.len()],
            slots: vec![Slot::default()],
            slot_end: from + INTERVAL_NS,
            errors: 0,
            faults: 0,
            verified: 0,
            streak: Streak::default(),
            base: 0,
            is_io,
        }
    }

    /// The rows that follow are those of the client whose first is `base`, at `now`.
    #[inline]
    pub fn open(&mut self, base: usize, now: Nanos) {
        self.base = base;
        while now >= self.slot_end {
            self.slots.push(Slot::default());
            self.slot_end = self.slot_end + INTERVAL_NS;
        }
    }

    /// Counts one that has ended; `kind` is that of a row of its client.
    #[inline]
    pub fn count(&mut self, kind: u8, sectors: u32, took: Took) {
        if self.streak.took != took {
            self.settle();
            self.streak.took = took;
        }
        let kind = usize::from(kind) % KINDS;
        self.streak.counts[kind] += 1;
        self.streak.sectors[kind] += u64::from(sectors);
    }

    /// Writes down what the streak holds; to be called before the next client's are opened.
    pub fn settle(&mut self) {
        let Streak { took, counts, sectors } = self.streak;
        let Took { total_ns, wait_ns, device_ns, is_whole } = took;
        for (kind, (count, sectors)) in counts.into_iter().zip(sectors).enumerate() {
            if count == 0 {
                continue;
            }
            let (count, bytes) = (u64::from(count), sectors * SECTOR);
            let index = self.base + kind;
            let row = self.rows[index].get_or_insert_default();
            row.ios += count;
            row.bytes += bytes;
            row.total.record(total_ns, count);
            if !is_whole {
                row.wait.record(wait_ns, count);
                row.device.record(device_ns, count);
            }
            if self.is_io[index] {
                let slot = self.slots.last_mut().expect("there is always one");
                slot.ios += count;
                slot.bytes += bytes;
                slot.ns += total_ns * count;
            }
        }
        self.streak = Streak::default();
    }

    /// Counts the I/Os that the client whose first row is `base` had not ended when its time was
    /// up: kind and age of each.
    pub fn leave(&mut self, base: usize, unfinished: Vec<(u8, u64)>) {
        for (kind, ns) in unfinished {
            let index = base + usize::from(kind) % KINDS;
            self.unfinished[index].get_or_insert_default().record(ns, 1);
        }
    }

    /// Adds those of another thread.
    pub fn add(&mut self, other: &Tally) {
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().add(theirs);
            }
        }
        for (mine, theirs) in self.unfinished.iter_mut().zip(&other.unfinished) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().add(theirs);
            }
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (mine, theirs) in self.slots.iter_mut().zip(&other.slots) {
            mine.ios += theirs.ios;
            mine.bytes += theirs.bytes;
            mine.ns += theirs.ns;
        }
        self.errors += other.errors;
        self.faults += other.faults;
        self.verified += other.verified;
    }

    /// A row, if anything fell into it.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<&Row> {
        self.rows[index].as_deref()
    }

    /// How long those of a row had taken that had not ended when the time was up, if there are any.
    #[must_use]
    pub fn unfinished(&self, index: usize) -> Option<&Times> {
        self.unfinished[index].as_deref()
    }

    /// The same of all rows that are I/O.
    #[must_use]
    pub fn all_unfinished(&self) -> Times {
        let mut all = Times::default();
        for (times, is_io) in self.unfinished.iter().zip(&self.is_io) {
            times.iter().filter(|_| *is_io).for_each(|times| all.add(times));
        }
        all
    }

    /// The time series, one slot for each [`INTERVAL_NS`].
    #[must_use]
    pub fn series(&self) -> &[Slot] {
        &self.slots
    }

    /// The rows that are I/O, added.
    #[must_use]
    pub fn all(&self) -> Row {
        let mut all = Row::default();
        for (row, is_io) in self.rows.iter().zip(&self.is_io) {
            row.iter().filter(|_| *is_io).for_each(|row| all.add(row));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaks_come_to_the_same_as_single_ios() {
        let mut tally = Tally::new(vec![true, true, false], Nanos(1000));
        tally.open(0, Nanos(2000));
        for (kind, wait, device) in [(0, 10, 90), (1, 10, 90), (0, 10, 90), (0, 20, 180)] {
            let total_ns = wait + device;
            let took = Took { total_ns, wait_ns: wait, device_ns: device, is_whole: false };
            tally.count(kind, 8, took);
        }
        tally.count(2, 0, Took::whole(5000));
        tally.settle();
        let row = tally.row(0).expect("three reads");
        assert_eq!((row.ios, row.bytes, row.total.count()), (3, 3 * 4096, 3));
        assert!((row.total.mean_ns() - 400.0 / 3.0).abs() < 1e-9);
        assert_eq!((row.total.max_ns(), row.wait.max_ns()), (200, 20));
        assert_eq!(tally.row(1).expect("a write").ios, 1);
        let whole = tally.row(2).expect("what is made of many");
        let counts = [&whole.total, &whole.wait, &whole.device].map(Times::count);
        assert_eq!(counts, [1, 0, 0], "no driver has seen it");
        // A group that is no I/O is in no sum.
        assert_eq!(tally.all().ios, 4);
        assert_eq!(tally.series(), [Slot { ios: 4, bytes: 4 * 4096, ns: 500 }]);
    }

    #[test]
    fn each_interval_has_its_own_and_threads_are_added() {
        let mut tallies = [1, 3].map(|interval| {
            let mut tally = Tally::new(vec![true], Nanos(0));
            tally.open(0, Nanos(interval * INTERVAL_NS));
            tally.count(0, 1, Took::whole(7));
            tally.settle();
            tally
        });
        let [mine, theirs] = &mut tallies;
        mine.add(theirs);
        let ios: Vec<_> = mine.series().iter().map(|slot| slot.ios).collect();
        assert_eq!(ios, [0, 1, 0, 1]);
        assert_eq!(mine.all().total.count(), 2);
    }

    #[test]
    fn a_quantile_is_known_to_within_a_hundredth() {
        let mut times = Times::default();
        (1..=10_000).for_each(|n| times.record(n * 1000, 1));
        for (share, wanted) in [(0.5, 5e6), (0.99, 9.9e6), (1.0, 1e7)] {
            let found = times.quantile_ns(share) as f64;
            assert!((found / wanted - 1.0).abs() < 0.01, "{found} instead of {wanted}");
        }
        assert_eq!(times.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
    }
}
