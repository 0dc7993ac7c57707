//! What a block device did, from its line of `/proc/diskstats`.
//!
//! Fields and units: Linux, Documentation/admin-guide/iostats.rst. Sectors there have 512 bytes,
//! times are milliseconds. I/Os are counted when they end.

use std::time::Duration;

use weir_trace::document::DeviceUse;

/// Where the kernel counts.
const DISKSTATS: &str = "/proc/diskstats";
/// The bytes of a sector there.
const SECTOR: u64 = 512;

/// The counters of one device since it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    read: Kind,
    written: Kind,
    flushed: Kind,
    /// Time in which it had any I/O, milliseconds.
    busy_ms: u64,
    /// The same, times the I/Os that it had.
    queued_ms: u64,
}

/// I/Os of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Kind {
    ios: u64,
    sectors: u64,
    ms: u64,
}

impl Counters {
    /// Those of the device of this number, `MAJOR:MINOR`.
    pub(super) fn now(number: &str) -> Option<Counters> {
        Counters::in_text(&std::fs::read_to_string(DISKSTATS).ok()?, number)
    }

    fn in_text(text: &str, number: &str) -> Option<Counters> {
        let (major, minor) = number.split_once(':')?;
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            if (words.next()?, words.next()?) != (major, minor) {
                return None;
            }
            // Behind the name.
            let fields: Vec<u64> = words.skip(1).map_while(|word| word.parse().ok()).collect();
            // A kernel before 5.5 counts no flushes.
            let field = |at: usize| fields.get(at).copied().unwrap_or_default();
            let kind =
                |at: usize| Kind { ios: field(at), sectors: field(at + 2), ms: field(at + 3) };
            let flushed = Kind { ios: field(15), sectors: 0, ms: field(16) };
            let (busy_ms, queued_ms) = (field(9), field(10));
            Some(Counters { read: kind(0), written: kind(4), flushed, busy_ms, queued_ms })
        })
    }

    /// What it did since `before`, in so long a time.
    pub(super) fn since(&self, before: &Counters, name: &str, time: Duration) -> DeviceUse {
        let seconds = time.as_secs_f64().max(1e-9);
        let [read, written, flushed] = [
            self.read.since(before.read),
            self.written.since(before.written),
            self.flushed.since(before.flushed),
        ];
        let a_second = |count: u64| count as f64 / seconds;
        let share = |now: u64, before: u64| a_second(now.saturating_sub(before)) / 1e3;
        DeviceUse {
            name: String::from(name),
            reads_per_s: a_second(read.ios),
            writes_per_s: a_second(written.ios),
            flushes_per_s: a_second(flushed.ios),
            read_bytes_per_s: a_second(read.sectors * SECTOR),
            write_bytes_per_s: a_second(written.sectors * SECTOR),
            read_latency_ns: read.latency_ns(),
            write_latency_ns: written.latency_ns(),
            flush_latency_ns: flushed.latency_ns(),
            // The last millisecond is counted whole.
            utilisation: share(self.busy_ms, before.busy_ms).min(1.0),
            depth_mean: share(self.queued_ms, before.queued_ms),
        }
    }
}

impl Kind {
    fn since(self, before: Kind) -> Kind {
        Kind {
            ios: self.ios.saturating_sub(before.ios),
            sectors: self.sectors.saturating_sub(before.sectors),
            ms: self.ms.saturating_sub(before.ms),
        }
    }

    fn latency_ns(self) -> Option<f64> {
        (self.ios > 0).then(|| self.ms as f64 * 1e6 / self.ios as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9\n   \
                          8      16 sdb 100 5 800 50 200 6 1600 400 0 1000 3000 0 0 0 0 10 20\n";
    const AFTER: &str =
        "   8      16 sdb 300 5 2848 150 600 6 9792 2400 3 2000 7000 1 2 3 4 30 80\n";

    #[test]
    fn a_device_is_found_by_its_number_and_told_over_the_time_between() {
        let [before, after] =
            [BEFORE, AFTER].map(|text| Counters::in_text(text, "8:16").expect("it is there"));
        let found = after.since(&before, "sdb", Duration::from_secs(2));
        let expected = DeviceUse {
            name: String::from("sdb"),
            reads_per_s: 100.0,
            writes_per_s: 200.0,
            flushes_per_s: 10.0,
            read_bytes_per_s: 1024.0 * 512.0,
            write_bytes_per_s: 4096.0 * 512.0,
            read_latency_ns: Some(500_000.0),
            write_latency_ns: Some(5_000_000.0),
            flush_latency_ns: Some(3_000_000.0),
            utilisation: 0.5,
            depth_mean: 2.0,
        };
        assert_eq!(found, expected);
        assert_eq!(Counters::in_text(AFTER, "8:1"), None);
    }

    #[test]
    fn a_device_without_io_has_no_latency_and_an_older_kernel_no_flushes() {
        let old = "8 16 sdb 1 2 3 4 5 6 7 8 9 10 11";
        let old = Counters::in_text(old, "8:16").expect("it is there");
        assert_eq!((old.flushed, old.queued_ms), (Kind::default(), 11));
        let nothing = old.since(&old, "sdb", Duration::from_secs(1));
        let latencies =
            [nothing.read_latency_ns, nothing.write_latency_ns, nothing.flush_latency_ns];
        assert_eq!(latencies, [None; 3]);
    }

    #[test]
    fn utilisation_is_no_more_than_all_of_the_time() {
        let counters = |busy_ms| Counters { busy_ms, ..Counters::default() };
        let found = counters(1004).since(&counters(0), "sdb", Duration::from_secs(1));
        assert_eq!(found.utilisation, 1.0);
    }
}
