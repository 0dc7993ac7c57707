//! The figures of a stretch of simulated time.

use weir_bio::{Nanos, Op, SECTOR, Status};
use weir_load::Times;
use weir_load::times::Row;
use weir_queue::Completion;

use crate::cpu::CpuTime;

/// The figures of a stretch of simulated time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// How long it was, ns.
    pub ns: u64,
    /// I/Os that succeeded.
    pub ios: u64,
    /// Their latencies, in all, ns.
    pub latency: u64,
    /// I/Os that ended with an error. They are in no other figure: a path that fails at once would
    /// make a host look fast.
    pub failed: u64,
    /// The processors.
    pub cpus: u64,
    /// Their time.
    pub time: CpuTime,
    /// Commands that the disks were sent.
    pub commands: Commands,
    /// What all processes got.
    pub all: Row,
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// The kind's name.
    pub name: String,
    /// All of them together; they have finished when the last has.
    pub all: Service,
    /// Their reads, writes and discards, those of which there were any, by their op's name.
    pub parts: Vec<(&'static str, Row)>,
    /// Each.
    pub each: Vec<Service>,
}

/// What a process got, or several. Quantiles are known to within 0.8 %, the maximum exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// I/Os that succeeded, flushes apart.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flushes that succeeded.
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

/// An I/O of a process that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    pub(crate) begun: Nanos,
    pub(crate) status: Status,
    bytes: u64,
    op: Op,
    wait_ns: u64,
    device_ns: u64,
}

impl Returned {
    /// One that began to be asked for at `begun`, and that its device took at `taken`.
    pub(crate) fn new(begun: Nanos, taken: Nanos, of: &Completion) -> Returned {
        let Completion { op, sectors, status, wait_ns, device_ns, .. } = *of;
        let wait_ns = taken.since(begun) + wait_ns;
        Returned { begun, status, bytes: u64::from(sectors) * SECTOR, op, wait_ns, device_ns }
    }

    fn is_flush(&self) -> bool {
        self.bytes == 0
    }
}

/// Counts what a process gets.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    bytes: u64,
    flushes: u64,
    pub(crate) failed: u64,
    /// Of its I/Os, flushes apart; none so far has no memory.
    latencies: Option<Box<Times>>,
}

impl Tally {
    /// An I/O has succeeded.
    pub(crate) fn count(&mut self, one: &Returned, latency: u64) {
        if one.is_flush() {
            self.flushes += 1;
            return;
        }
        self.bytes += one.bytes;
        self.latencies.get_or_insert_default().record(latency, 1);
    }
}

/// The I/Os of one kind of processes, by op; flushes are not among them.
#[derive(Debug, Default)]
pub(crate) struct Parts([Option<Box<Row>>; 3]);

/// The names of the ops of [`Parts`].
const OPS: [&str; 3] = ["read", "write", "trim"];

impl Parts {
    /// An I/O has succeeded.
    pub(crate) fn count(&mut self, one: &Returned, latency: u64) {
        if one.is_flush() {
            return;
        }
        let at = match one.op {
            Op::Read => 0,
            Op::Discard => 2,
            _ => 1,
        };
        let row = self.0[at].get_or_insert_default();
        row.ios += 1;
        row.bytes += one.bytes;
        row.total.record(latency, 1);
        row.device.record(one.device_ns, 1);
        row.wait.record(one.wait_ns, 1);
    }

    /// Those of which there were any.
    pub(crate) fn told(&self) -> Vec<(&'static str, Row)> {
        let named = OPS.into_iter().zip(&self.0);
        named.filter_map(|(op, row)| Some((op, row.as_deref()?.clone()))).collect()
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
    let mut latencies = Times::default();
    let (mut bytes, mut flushes) = (0, 0);
    for Worked { tally, .. } in of {
        tally.latencies.iter().for_each(|own| latencies.add(own));
        bytes += tally.bytes;
        flushes += tally.flushes;
    }
    let all_finished = of.iter().all(|one| one.finished.is_some());
    Service {
        ios: latencies.count(),
        bytes,
        flushes,
        latency: latencies.sum_ns() as u64,
        p50: latencies.quantile_ns(0.5),
        p95: latencies.quantile_ns(0.95),
        p99: latencies.quantile_ns(0.99),
        p999: latencies.quantile_ns(0.999),
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

    /// The mean latency, ns; 0 of none.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        self.latency as f64 / self.ios.max(1) as f64
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
