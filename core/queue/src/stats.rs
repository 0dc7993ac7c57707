//! Counters with one writer each, summed when read (docs/behaviour/block-layer.md, section 11).

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_bio::{Nanos, Op};
use weir_ring::gate::Inside;
use weir_ring::{BusyStamp, Counter};

use crate::wbt::observed::Observed;

mod one;
mod reading;

pub use reading::{ClientTimes, QueueUse, quantile_with_held};

/// Nanoseconds in a tick: the granularity of `io_ticks` (HZ = 250).
pub const TICK_NS: u64 = 4_000_000;

/// Direction groups of the `stat` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Reads.
    Read = 0,
    /// Writes, and everything else that goes towards the device.
    Write = 1,
    /// Discards.
    Discard = 2,
}

impl Group {
    /// The group an op counts in.
    #[must_use]
    #[inline]
    pub fn of(op: Op) -> Group {
        GROUPS[op as usize]
    }
}

/// Where an op counts among those with the driver: 0 for reads, 1 for all that goes towards the
/// device. A flush does, although its number is even.
#[inline]
pub(crate) fn direction(op: Op) -> usize {
    usize::from(Group::of(op) as u8 != Group::Read as u8)
}

/// Where each op counts in a streak.
const PLACES: [u8; 36] = {
    let mut places = [0; 36];
    let mut op = 0;
    while op < places.len() {
        places[op] = GROUPS[op] as u8;
        op += 1;
    }
    (places[Op::DrvIn as usize], places[Op::DrvOut as usize]) = (3, 3);
    places
};

/// The group of each op, by its number: a look-up where a branch could not be predicted.
const GROUPS: [Group; 36] = {
    let mut groups = [Group::Write; 36];
    groups[Op::Read as usize] = Group::Read;
    groups[Op::Prefetch as usize] = Group::Read;
    groups[Op::DrvIn as usize] = Group::Read;
    groups[Op::Discard as usize] = Group::Discard;
    groups
};

/// The counters of one submitter; written by its thread alone.
#[derive(Debug, Default)]
#[repr(align(128))] // Its writer shares no line with another submitter's.
pub(crate) struct SubmitterStats {
    pub(crate) groups: [GroupStats; 3],
    pub(crate) busy_ticks: Counter,
    /// The same of its partition.
    pub(crate) partition_ticks: Counter,
    pub(crate) errors: Counter,
    /// Bios that have ended and are being handed back: inside the gate still, in flight no more.
    pub(crate) handing_over: Counter,
}

/// One direction of one submitter.
#[derive(Debug, Default)]
pub(crate) struct GroupStats {
    pub(crate) ios: Counter,
    pub(crate) merges: Counter,
    pub(crate) sectors: Counter,
    pub(crate) ns: Counter,
    pub(crate) total: Histogram,
    pub(crate) wait: Histogram,
    pub(crate) device: Histogram,
}

/// Bios that ended with the same times, counted together: those of one batch usually do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    pub(crate) stamps: Stamps,
    /// By group; the last counts passthrough, which no figure is made of, as in Linux.
    groups: [Run; 4],
    /// The groups of which any ended, a bit each.
    used: u8,
}

/// One direction of a streak.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    bios: u64,
    absorbed: u64,
    sectors: u64,
}

/// The times of a streak, each with its place in a histogram: the directions have them in common.
struct Times {
    total: Measured,
    wait: Measured,
    device: Measured,
}

/// A time and the bucket that it belongs to.
struct Measured {
    ns: u64,
    bucket: usize,
}

impl Measured {
    #[inline]
    fn of(ns: u64) -> Measured {
        Measured { ns, bucket: bucket(ns) }
    }
}

impl Streak {
    /// Counts one ended bio; `sectors` is 0 for one that failed.
    #[inline]
    pub(crate) fn count(&mut self, op: Op, absorbed: bool, sectors: u32) {
        let place = PLACES[op as usize];
        self.used |= 1 << place;
        let run = &mut self.groups[usize::from(place)];
        run.bios += 1;
        run.absorbed += u64::from(absorbed);
        run.sectors += u64::from(sectors);
    }
}

/// When bios were accepted, issued and done.
type Stamps = (Nanos, Nanos, Nanos);

impl Times {
    #[inline(always)]
    fn of((accepted, issued, done): Stamps) -> Times {
        let (wait_ns, device_ns) = (issued.since(accepted), done.since(issued));
        Times {
            total: Measured::of(wait_ns + device_ns),
            wait: Measured::of(wait_ns),
            device: Measured::of(device_ns),
        }
    }
}

impl SubmitterStats {
    /// Writes down what a streak holds.
    #[inline]
    pub(crate) fn account(&self, streak: &mut Streak) {
        let times = Times::of(streak.stamps);
        // Mostly one alone, and which one is chance: so it is the next bit and no branch.
        let mut used = std::mem::take(&mut streak.used);
        while used != 0 {
            let place = used.trailing_zeros() as usize;
            used &= used - 1;
            let run = std::mem::take(&mut streak.groups[place]);
            if let Some(group) = self.groups.get(place) {
                group.add(run, &times);
            }
        }
    }

    /// Accounts busy time up to `now`; `busy` says whether anything was in flight until now.
    #[inline]
    pub(crate) fn account_busy(&self, stamp: &BusyStamp, now: Nanos, busy: impl Fn() -> bool) {
        let ticks = stamp.advance(now.0 / TICK_NS);
        if ticks != 0 && busy() {
            self.busy_ticks.add(ticks);
        }
    }
}

impl SubmitterStats {
    /// As [`account_busy`](SubmitterStats::account_busy), for the partition that it is of.
    pub(crate) fn account_partition(&self, stamp: &BusyStamp, now: Nanos, busy: impl Fn() -> bool) {
        let ticks = stamp.advance(now.0 / TICK_NS);
        if ticks != 0 && busy() {
            self.partition_ticks.add(ticks);
        }
    }
}

/// The figures of one submitter, read by any thread while it goes on; a submitter that is gone
/// leaves its last figures.
#[derive(Clone, Debug)]
pub struct Tally {
    stats: Arc<SubmitterStats>,
    inside: Inside,
    wanted: usize,
}

impl Tally {
    pub(crate) fn new(stats: Arc<SubmitterStats>, inside: Inside, wanted: usize) -> Tally {
        Tally { stats, inside, wanted }
    }

    /// Bios that ended, merged ones too.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.stats.groups.iter().map(|group| group.ios.read() + group.merges.read()).sum()
    }

    /// Sectors of 512 bytes that were moved.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.stats.groups.iter().map(|group| group.sectors.read()).sum()
    }

    /// Sectors of one direction that were moved.
    #[must_use]
    pub fn sectors_of(&self, group: Group) -> u64 {
        self.stats.groups[group as usize].sectors.read()
    }

    /// Bios that were accepted and have not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        // Those that are being handed back have ended.
        let handing_over = self.stats.handing_over.read();
        self.inside.read().saturating_sub(handing_over)
    }

    /// The hard queue it feeds, of so many.
    #[must_use]
    pub fn hard_queue(&self, queues: u16) -> u16 {
        // Below the divisor, which is a u16.
        (self.wanted % usize::from(queues.max(1))) as u16
    }
}

/// The gauges of one hard queue; written by the thread that turns it.
#[derive(Debug, Default)]
#[repr(align(128))] // Its writer shares no line with another lane's.
pub struct LaneGauges {
    /// Requests handed to the driver, and ended: reads, and all that goes towards the device.
    pub(crate) issued: [Counter; 2],
    pub(crate) ended: [Counter; 2],
    pub(crate) flushes: Counter,
    pub(crate) flush_ns: Counter,
    pub(crate) quarantined: Counter,
    /// Answers beyond the first to requests that were cancelled.
    pub(crate) strays: Counter,
    pub(crate) observed: Observed,
}

impl GroupStats {
    #[inline(always)]
    fn add(&self, run: Run, times: &Times) {
        let Run { bios, absorbed, sectors } = run;
        let Times { total, wait, device } = times;
        self.ios.add(bios - absorbed);
        self.merges.add(absorbed);
        self.sectors.add(sectors);
        self.ns.add((bios - absorbed).wrapping_mul(total.ns));
        self.total.add(total, bios);
        self.wait.add(wait, bios);
        self.device.add(device, bios);
    }
}

impl LaneGauges {
    /// Requests with the driver: reads, writes.
    pub(crate) fn in_driver(&self) -> [u64; 2] {
        QueueUse::of(self).in_driver
    }
}

/// Buckets of a histogram: 8 for each power of two that 64 bits can hold.
/// The few above, up to the next power of two, make an index of 9 bits always valid.
const BUCKETS: usize = 512;

/// Buckets that get their memory together: those of 8 powers of two.
const STRIPE: usize = 64;

/// A log-linear histogram of nanoseconds: buckets an eighth of a power of two wide, so a value is
/// known to within 12.5 %. One writer.
///
/// Times of one device lie in two stripes of the eight, mostly, and those of an idle one in none: a
/// mapped device with many paths has ten histograms for each, and memory for all buckets would be
/// most of what a path takes. So the first value in a stripe allocates: a histogram does it eight
/// times at most.
#[derive(Debug, Default)]
pub struct Histogram {
    sum: Counter,
    max: Counter,
    stripes: [OnceLock<Box<Stripe>>; BUCKETS / STRIPE],
}

/// The counts of neighbouring buckets.
#[derive(Debug)]
struct Stripe([Counter; STRIPE]);

impl Stripe {
    #[cold]
    fn empty() -> Box<Stripe> {
        Box::new(Stripe([const { Counter::zero() }; STRIPE]))
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    let ns = ns.max(8);
    let log = ns.ilog2();
    ((log as usize - 3) * 8 + ((ns >> (log - 3)) & 7) as usize) & (BUCKETS - 1)
}

/// The highest value a bucket holds.
fn bucket_top(index: usize) -> u64 {
    let (log, part) = (index / 8 + 3, index as u64 % 8);
    if log > 63 { u64::MAX } else { ((8 + part) << (log - 3)) + ((1 << (log - 3)) - 1) }
}

impl Histogram {
    /// Adds one value.
    #[inline]
    pub fn record(&self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Adds the same value so many times.
    #[inline]
    pub fn record_many(&self, ns: u64, times: u64) {
        self.add(&Measured::of(ns), times);
    }

    #[inline(always)]
    fn add(&self, time: &Measured, times: u64) {
        // The masks change nothing, and spare checks.
        let stripe = &self.stripes[(time.bucket / STRIPE) & (BUCKETS / STRIPE - 1)];
        let stripe = stripe.get_or_init(Stripe::empty);
        stripe.0[time.bucket & (STRIPE - 1)].add(times);
        self.sum.add(time.ns.wrapping_mul(times));
        self.max.raise(time.ns);
    }

    /// Adds what is here to `sum`.
    pub fn add_to(&self, sum: &mut Latencies) {
        for (mine, total) in self.stripes.iter().zip(sum.counts.chunks_exact_mut(STRIPE)) {
            let Some(mine) = mine.get() else { continue };
            mine.0.iter().zip(total).for_each(|(mine, total)| *total += mine.read());
        }
        sum.sum_ns += self.sum.read();
        sum.max_ns = sum.max_ns.max(self.max.read());
    }
}

/// A histogram as read: values in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: Vec<u64>,
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { counts: vec![0; BUCKETS], sum_ns: 0, max_ns: 0 }
    }
}

impl Latencies {
    /// Values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean, ns; 0 when there is none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }

    /// The largest, ns.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Their sum, ns.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The value that `per_mille` of 1000 do not exceed, to within a bucket (12.5 %), ns.
    #[must_use]
    pub fn quantile_ns(&self, per_mille: u32) -> u64 {
        let count = self.count();
        let wanted = (u128::from(count) * u128::from(per_mille)).div_ceil(1000) as u64;
        let mut seen = 0;
        for (index, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= wanted && seen > 0 {
                return bucket_top(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Adds the values of another.
    pub fn add(&mut self, other: &Latencies) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The values after `earlier`, a reading of the same histogram; all of them, if it began anew
    /// in between, as that of a daemon that was replaced. The maximum stays that of all.
    #[must_use]
    pub fn since(&self, earlier: &Latencies) -> Latencies {
        let pairs = || self.counts.iter().zip(&earlier.counts);
        if pairs().any(|(now, then)| now < then) || self.sum_ns < earlier.sum_ns {
            return self.clone();
        }
        let counts = self.counts.iter().zip(&earlier.counts).map(|(a, b)| a - b).collect();
        Latencies { counts, sum_ns: self.sum_ns - earlier.sum_ns, max_ns: self.max_ns }
    }
}

/// One direction of a device.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Requests ended.
    pub ios: u64,
    /// Bios merged into them.
    pub merges: u64,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Sum of their times from acceptance to end, ns.
    pub ns: u64,
    /// From acceptance to end, per bio.
    pub total: Latencies,
    /// From acceptance to the driver, per bio.
    pub wait: Latencies,
    /// From the driver to the end, per bio.
    pub device: Latencies,
}

/// A device's statistics as read. Exact at rest; a reading under load may be a few I/Os apart.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Reads, writes, discards.
    pub directions: [Direction; 3],
    /// Bios accepted and not ended.
    pub in_flight: u64,
    pub(crate) handing_over: u64,
    /// Requests the driver holds: reads, writes.
    pub in_driver: [u64; 2],
    /// Busy time in ticks of [`TICK_NS`].
    pub busy_ticks: u64,
    /// Device flushes executed, and their time in ns.
    pub flushes: u64,
    /// Time of those flushes, ns.
    pub flush_ns: u64,
    /// Bios that ended with an error.
    pub errors: u64,
    /// Tags whose request was timed out and that the driver still holds.
    pub quarantined: u64,
    /// Answers beyond the first to requests that were cancelled.
    pub strays: u64,
}

impl Stats {
    pub(crate) fn add_submitter(&mut self, from: &SubmitterStats) {
        for (sum, group) in self.directions.iter_mut().zip(&from.groups) {
            sum.ios += group.ios.read();
            sum.merges += group.merges.read();
            sum.sectors += group.sectors.read();
            sum.ns += group.ns.read();
            group.total.add_to(&mut sum.total);
            group.wait.add_to(&mut sum.wait);
            group.device.add_to(&mut sum.device);
        }
        self.handing_over += from.handing_over.read();
        self.busy_ticks += from.busy_ticks.read();
        self.errors += from.errors.read();
    }

    /// The same for the figures of the submitter's partition.
    pub(crate) fn add_of_partition(&mut self, from: &SubmitterStats) {
        let busy_ticks = self.busy_ticks + from.partition_ticks.read();
        self.add_submitter(from);
        self.busy_ticks = busy_ticks;
    }

    pub(crate) fn add_lane(&mut self, from: &LaneGauges) {
        let [reads, writes] = from.in_driver();
        self.in_driver[0] += reads;
        self.in_driver[1] += writes;
        self.flushes += from.flushes.read();
        self.flush_ns += from.flush_ns.read();
        self.quarantined += from.quarantined.read();
        self.strays += from.strays.read();
    }

    /// The 17 fields of the `stat` file, in its units.
    #[must_use]
    pub fn fields(&self) -> [u64; 17] {
        let [r, w, d] = &self.directions;
        let ms = |ns: u64| ns / 1_000_000;
        let queue_ns = r.ns + w.ns + d.ns + self.flush_ns;
        [
            r.ios,
            r.merges,
            r.sectors,
            ms(r.ns),
            w.ios,
            w.merges,
            w.sectors,
            ms(w.ns),
            self.in_flight,
            ms(self.busy_ticks * TICK_NS),
            ms(queue_ns),
            d.ios,
            d.merges,
            d.sectors,
            ms(d.ns),
            self.flushes,
            ms(self.flush_ns),
        ]
    }

    /// The line of the `stat` file: each field right-aligned to 8 columns.
    #[must_use]
    pub fn line(&self) -> String {
        self.fields().map(|field| format!("{field:8}")).join(" ")
    }
}

/// The counters of submitters that are gone, and of those that are there.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    retired: Option<Box<Stats>>,
    live: Vec<Live>,
}

/// A submitter that is there.
#[derive(Debug)]
struct Live {
    stats: Arc<SubmitterStats>,
    /// The number of its partition; 0 of none.
    partition: u16,
    inside: Inside,
}

impl Ledger {
    pub(crate) fn open(&mut self, partition: u16, inside: Inside) -> Arc<SubmitterStats> {
        let stats = Arc::new(SubmitterStats::default());
        self.live.push(Live { stats: Arc::clone(&stats), partition, inside });
        stats
    }

    pub(crate) fn retire(&mut self, stats: &Arc<SubmitterStats>, retired: Option<&Mutex<Stats>>) {
        self.live.retain(|live| !Arc::ptr_eq(&live.stats, stats));
        if let Some(retired) = retired {
            let mut retired = retired.lock().unwrap_or_else(PoisonError::into_inner);
            retired.add_of_partition(stats);
        }
        self.retired.get_or_insert_default().add_submitter(stats);
    }

    pub(crate) fn sum(&self) -> Stats {
        let mut sum = self.retired.as_deref().cloned().unwrap_or_default();
        self.live.iter().for_each(|live| sum.add_submitter(&live.stats));
        sum
    }

    /// Adds the figures of those of a partition to `sum`, and says how many bios they have under
    /// way.
    pub(crate) fn sum_of(&self, partition: u16, sum: &mut Stats) -> u64 {
        let of = self.live.iter().filter(|live| live.partition == partition);
        let inside = of.map(|live| {
            sum.add_of_partition(&live.stats);
            live.inside.read()
        });
        let inside: u64 = inside.sum();
        inside.saturating_sub(std::mem::take(&mut sum.handing_over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_a_bucket_whose_top_is_at_most_an_eighth_above() {
        for ns in [8, 9, 15, 16, 17, 1000, 1_000_000, 123_456_789] {
            let top = bucket_top(bucket(ns));
            assert!(top >= ns && top - ns <= ns / 8, "{ns} is in a bucket up to {top}");
        }
    }

    #[test]
    fn quantiles_follow_the_counts() {
        let histogram = Histogram::default();
        for ns in 1..=1000 {
            histogram.record(ns * 1000);
        }
        let mut read = Latencies::default();
        histogram.add_to(&mut read);
        assert_eq!(read.count(), 1000);
        let median = read.quantile_ns(500);
        assert!((500_000..=563_000).contains(&median), "{median}");
        assert_eq!(read.quantile_ns(1000), 1_000_000);
    }

    #[test]
    fn a_histogram_has_memory_for_the_times_that_it_has_seen() {
        let histogram = Histogram::default();
        let stripes = |histogram: &Histogram| {
            histogram.stripes.iter().filter(|stripe| stripe.get().is_some()).count()
        };
        assert_eq!(stripes(&histogram), 0);
        for (ns, most) in [(2_048, 1), (524_287, 1), (524_288, 2), (u64::MAX, 3), (3_000, 3)] {
            histogram.record(ns);
            assert_eq!(stripes(&histogram), most, "{ns}");
        }
        let mut read = Latencies::default();
        histogram.add_to(&mut read);
        let quantiles = [200, 400, 600, 800].map(|of| read.quantile_ns(of));
        assert_eq!((read.count(), quantiles), (5, [2_303, 3_071, 524_287, 589_823]));
        assert_eq!(read.quantile_ns(1000), u64::MAX);
    }

    #[test]
    fn a_streak_counts_in_each_direction_with_the_times_it_has_in_common() {
        let stats = SubmitterStats::default();
        let stamps = (Nanos(1_000), Nanos(21_000), Nanos(321_000));
        let mut streak = Streak { stamps, ..Streak::default() };
        streak.count(Op::Read, false, 8);
        streak.count(Op::Read, true, 8);
        streak.count(Op::Write, false, 16);
        stats.account(&mut streak);
        let read = |histogram: &Histogram| {
            let mut read = Latencies::default();
            histogram.add_to(&mut read);
            (read.count(), read.sum_ns(), read.quantile_ns(500))
        };
        let [reads, writes, discards] = &stats.groups;
        for (group, bios, requests, sectors) in [(reads, 2, 1, 16), (writes, 1, 1, 16)] {
            let figures = [&group.ios, &group.merges, &group.sectors, &group.ns].map(Counter::read);
            assert_eq!(figures, [requests, bios - requests, sectors, requests * 320_000]);
            assert_eq!(read(&group.wait), (bios, bios * 20_000, 20_000));
            assert_eq!(read(&group.device), (bios, bios * 300_000, 300_000));
            assert_eq!(read(&group.total), (bios, bios * 320_000, 320_000));
        }
        assert_eq!(read(&discards.total).0, 0);
    }

    #[test]
    fn the_stat_line_has_17_fields_of_8_columns() {
        let line = Stats::default().line();
        assert_eq!(line.len(), 17 * 8 + 16);
        assert_eq!(line.split_whitespace().count(), 17);
    }
}
