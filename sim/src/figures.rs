//! The figures of a stretch of simulated time.

use weir_bio::{Nanos, Op};
use weir_queue::{Histogram, Latencies};

use crate::cpu::CpuTime;

/// The figures of a stretch of simulated time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How long it was, ns.
    pub ns: u64,
    /// I/Os that ended.
    pub ios: u64,
    /// Their latencies, in all, ns.
    pub latency: u64,
    /// The processors.
    pub cpus: u64,
    /// Their time.
    pub time: CpuTime,
    /// Commands that the disks were sent.
    pub commands: Commands,
    /// What processes of each kind got, in the order of the spec.
    pub kinds: Vec<KindFigures>,
}

/// Commands by op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Reads.
    pub reads: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes and all others.
    pub changes: u64,
}

impl Commands {
    pub(crate) fn count(&mut self, op: Op) {
        let count = match op {
            Op::Read => &mut self.reads,
            Op::Flush => &mut self.flushes,
            _ => &mut self.changes,
        };
        *count += 1;
    }
}

/// What processes of one kind got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindFigures {
    /// The kind's name.
    pub name: String,
    /// All of them together; they have finished when the last has.
    pub all: Service,
    /// Each.
    pub each: Vec<Service>,
}

/// What a process got, or several. Quantiles are known to within 12.5 %, the maximum exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// I/Os that ended, flushes apart.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flushes that ended.
    pub flushes: u64,
    /// The latencies of the I/Os, in all, ns.
    pub latency: u64,
    /// Half of them took no longer, ns.
    pub p50: u64,
    /// Of a hundred, 95 took no longer, ns.
    pub p95: u64,
    /// Of a hundred, 99 took no longer, ns.
    pub p99: u64,
    /// Of a thousand, 999 took no longer, ns.
    pub p999: u64,
    /// The longest, ns.
    pub max: u64,
    /// When it began.
    pub began: Nanos,
    /// When it had finished; `None`: it has not.
    pub finished: Option<Nanos>,
}

impl Service {
    /// Its I/Os a second.
    #[must_use]
    pub fn iops(&self, ns: u64) -> f64 {
        self.ios as f64 * 1e9 / ns as f64
    }

    /// The mean latency, ns; 0 of none.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        self.latency as f64 / self.ios.max(1) as f64
    }

    /// From its beginning to its end, s.
    #[must_use]
    pub fn lasted_s(&self) -> Option<f64> {
        self.finished.map(|end| end.since(self.began) as f64 / 1e9)
    }
}

/// Counts what a process gets.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    bytes: u64,
    flushes: u64,
    latencies: Histogram,
}

impl Tally {
    /// An I/O of so many bytes has ended; a flush has none.
    pub(crate) fn count(&mut self, bytes: u64, latency: u64) {
        if bytes == 0 {
            self.flushes += 1;
            return;
        }
        self.bytes += bytes;
        self.latencies.record(latency);
    }
}

/// A process's tally, and between which times it worked.
pub(crate) struct Worked<'a> {
    pub(crate) tally: &'a Tally,
    pub(crate) began: Nanos,
    pub(crate) finished: Option<Nanos>,
}

/// What these got together.
pub(crate) fn service(of: &[Worked<'_>]) -> Service {
    let mut latencies = Latencies::default();
    let (mut bytes, mut flushes) = (0, 0);
    for Worked { tally, .. } in of {
        tally.latencies.add_to(&mut latencies);
        bytes += tally.bytes;
        flushes += tally.flushes;
    }
    let all_finished = of.iter().all(|one| one.finished.is_some());
    Service {
        ios: latencies.count(),
        bytes,
        flushes,
        latency: latencies.sum_ns(),
        p50: latencies.quantile_ns(500),
        p95: latencies.quantile_ns(950),
        p99: latencies.quantile_ns(990),
        p999: latencies.quantile_ns(999),
        max: latencies.max_ns(),
        began: of.iter().map(|one| one.began).min().unwrap_or_default(),
        finished: of.iter().filter_map(|one| one.finished).max().filter(|_| all_finished),
    }
}

impl Figures {
    /// I/Os a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ios as f64 * 1e9 / self.ns as f64
    }

    /// The mean latency, ns.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        self.latency as f64 / self.ios as f64
    }

    /// The share of the time in which processors did something that they spent waiting for locks,
    /// percent.
    #[must_use]
    pub fn spin_percent(&self) -> f64 {
        let busy = self.time.user + self.time.system + self.time.spin;
        self.time.spin as f64 * 100.0 / busy as f64
    }

    /// The share of all processors' time that was spent in the system, percent.
    #[must_use]
    pub fn system_percent(&self) -> f64 {
        let system = self.time.system + self.time.spin;
        system as f64 * 100.0 / (self.ns * self.cpus) as f64
    }

    /// What the processes of this kind got.
    ///
    /// # Panics
    /// If there is no such kind.
    #[must_use]
    pub fn kind(&self, name: &str) -> &KindFigures {
        self.kinds.iter().find(|kind| kind.name == name).expect("a kind of the host's")
    }
}
