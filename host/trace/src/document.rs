//! The documents that benches and comparisons save, as types.
//!
//! The inner documents are those that `--json` prints; around them stand the samples, histograms
//! and circumstances that a chart needs. A field that is missing has its zero, so that the result
//! of a run that broke off can be read, and an unknown field is passed over.

mod command;
mod latency;
mod sim;
mod used;

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

pub use command::{CommandRun, DeviceUse, Figure};
pub use latency::{LatencyNs, Unfinished};
pub use sim::{SimChecked, SimDocument, SimKind, SimRaw, SimRow, SimTimes};
pub use used::{Core, Cpu, HardQueue, StageUse};

/// A saved result of any kind; its field `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Document {
    /// One run.
    Bench(Box<BenchDocument>),
    /// Variants in turn.
    Compare(Box<CompareDocument>),
    /// A comparison for each of several values.
    Sweep(Box<SweepDocument>),
    /// The I/O of a running daemon's disks.
    Iostat(Box<IostatDocument>),
    /// Cases of a scene in virtual time.
    Sim(Box<SimDocument>),
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Document, D::Error> {
        let value = Value::deserialize(from)?;
        let kind = value.get("kind").and_then(Value::as_str).map(String::from);
        let read = match kind.as_deref() {
            Some("bench") => serde_json::from_value(value).map(Document::Bench),
            Some("compare") => serde_json::from_value(value).map(Document::Compare),
            Some("sweep") => serde_json::from_value(value).map(Document::Sweep),
            Some("iostat") => serde_json::from_value(value).map(Document::Iostat),
            Some("sim") => serde_json::from_value(value).map(Document::Sim),
            Some(other) => {
                let what = format!("kind={other:?} is none of {KINDS}");
                return Err(D::Error::custom(what));
            }
            None => return Err(D::Error::custom(format!("kind is missing: one of {KINDS}"))),
        };
        read.map_err(|error| D::Error::custom(format!("{}: {error}", kind.unwrap_or_default())))
    }
}

const KINDS: &str = "bench, compare, sweep, iostat, sim";

/// The document that `weir bench --save` writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchDocument {
    /// Always `bench`.
    pub kind: BenchKind,
    /// The document that `weir bench --json` prints.
    pub bench: Bench,
    /// The command line, to do it again.
    pub command: Vec<String>,
    /// Measured time, one entry per 100 ms.
    pub series: Vec<Sample>,
    /// Histograms of all I/O and of groups.
    pub histograms: Vec<Histogram>,
    /// Where it ran.
    pub environment: Environment,
    /// The time of each CPU of the machine in the measured time.
    pub cores: Vec<Core>,
    /// Whether the run broke off.
    pub partial: bool,
    /// The failure that broke it off, and where.
    pub failure: Option<String>,
    /// Notices about the figures, a sentence each.
    pub notices: Vec<String>,
}

/// The kind of a [`BenchDocument`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BenchKind {
    /// The only one.
    #[default]
    Bench,
}

/// The figures of a run, as `weir bench --json` prints them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bench {
    /// weir's version.
    pub weir: String,
    /// The target as given.
    pub target: String,
    /// The device's options as they took effect.
    pub options: Map<String, Value>,
    /// The job.
    pub job: Value,
    /// Seed of everything random.
    pub seed: u64,
    /// Measured time, seconds.
    pub duration_s: f64,
    /// How long the jobs took to do all they were to do, nanoseconds; none where one of them has no
    /// end of its own, or did not reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_ns: Option<u64>,
    /// I/Os that ended with an error, and blocks that were not what they should be.
    pub errors: u64,
    /// All I/O.
    #[serde(flatten)]
    pub figures: Figures,
    /// The most that a percentile of the figures is off by, as a part of it; none where there are
    /// no percentiles, and in older documents, whose are off by a 128th.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile_error: Option<f64>,
    /// CPU time of the process, or of a command and what it waited for; and the machine's.
    pub cpu: Cpu,
    /// The time of each CPU of the machine in the measured time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<Core>,
    /// The requests of each hard queue of each disk in the measured time; none in older documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hard_queues: Vec<HardQueue>,
    /// The command, where one was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_run: Option<CommandRun>,
    /// By job and direction.
    pub groups: Vec<Group>,
    /// The stages that have names, one after the other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageUse>,
    /// Transactions, for a job that has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<Transactions>,
    /// What was written of the target before it was measured, a sentence each.
    pub prepared: Vec<String>,
    /// The targets whose flushes made nothing durable, because that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub durability_disabled: Vec<String>,
    /// Blocks that held what they should, for jobs that verify; those read back at the end are
    /// among them, and are no I/Os of the figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_blocks: Option<u64>,
}

/// The figures of all I/O, or of one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// I/Os that ended.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// I/Os per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// From when an I/O was to begin until its answer was taken.
    pub latency_ns: LatencyNs,
    /// From when it was to begin until the driver had it.
    #[serde(deserialize_with = "or_nothing")]
    pub queue_wait_ns: LatencyNs,
    /// From then until the driver's answer. The rest of the latency is the time until the thread
    /// looked for the answer; on a disk in memory it copied the bytes of other I/Os meanwhile.
    #[serde(deserialize_with = "or_nothing")]
    pub device_ns: LatencyNs,
    /// What had not ended when the time was up; nothing in older documents.
    pub unfinished: Unfinished,
}

/// Null is what was not measured.
fn or_nothing<'de, D: Deserializer<'de>>(from: D) -> Result<LatencyNs, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// One group: a job's reads, its writes, or a step of its transactions.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Group {
    /// The job's or the step's name.
    pub name: String,
    /// `read`, `write`, `trim` or `flush`; `execution` or `commit` of what is made of many I/Os.
    pub op: String,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
}

impl Group {
    /// Whether it is made of many I/Os, so that no driver has seen it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        ["execution", "commit"].contains(&self.op.as_str())
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Figures { ios, bytes, iops, bytes_per_s, latency_ns, unfinished, .. } = &self.figures;
        let part = |part| (!self.is_whole()).then_some(part);
        let mut fields = to.serialize_map(None)?;
        fields.serialize_entry("name", &self.name)?;
        fields.serialize_entry("op", &self.op)?;
        fields.serialize_entry("ios", ios)?;
        fields.serialize_entry("bytes", bytes)?;
        fields.serialize_entry("iops", iops)?;
        fields.serialize_entry("bytes_per_s", bytes_per_s)?;
        fields.serialize_entry("latency_ns", latency_ns)?;
        fields.serialize_entry("queue_wait_ns", &part(&self.figures.queue_wait_ns))?;
        fields.serialize_entry("device_ns", &part(&self.figures.device_ns))?;
        fields.serialize_entry("unfinished", unfinished)?;
        fields.end()
    }
}

/// Rates of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transactions {
    /// Executions per second.
    pub executions_per_s: f64,
    /// Commits per second.
    pub commits_per_s: f64,
}

/// One interval of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Its end, seconds from the start of the measured time.
    pub at_s: f64,
    /// I/Os that ended in it.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their mean latency, nanoseconds.
    pub latency_mean_ns: f64,
}

/// How often which time was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// `all`, or the name of a group.
    pub name: String,
    /// `all`, or the op of a group.
    pub op: String,
    /// `latency`, `queue_wait` or `device`.
    pub what: String,
    /// The upper bound of each bucket that is not empty, nanoseconds, and its count; ascending.
    pub buckets: Vec<(u64, u64)>,
}

/// Where a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// CPUs of the machine.
    pub cpus: u32,
    /// Their model.
    pub cpu_model: String,
    /// Release of the kernel.
    pub kernel: String,
    /// weir's version.
    pub weir: String,
    /// When it began, UTC, as `2026-01-02T03:04:05Z`.
    pub started_at: String,
}

/// The document that `weir compare --save` writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompareDocument {
    /// Always `compare`.
    pub kind: CompareKind,
    /// The document that `weir compare --json` prints.
    pub compare: Compare,
    /// The command line, to do it again.
    pub command: Vec<String>,
    /// The target as given.
    pub target: String,
    /// The job.
    pub job: Value,
    /// Every run, voided ones too, in the order in which they were made.
    pub runs: Vec<Run>,
    /// The figures of the control around the rounds.
    pub control: Vec<Control>,
    /// When it began, UTC, as `2026-01-02T03:04:05Z`.
    pub started_at: String,
}

/// The kind of a [`CompareDocument`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompareKind {
    /// The only one.
    #[default]
    Compare,
}

/// A comparison, as `weir compare --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Compare {
    /// The variants compared.
    pub variants: Vec<Variant>,
    /// Each pair and metric, with a verdict.
    pub comparisons: Vec<Comparison>,
    /// The primary metric: the one that answers the question. Empty in older documents.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metric: String,
    /// Differences up to this share do not matter; none if all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// What its intervals hold for.
    pub inference: Inference,
    /// Where it ran.
    pub environment: CompareEnvironment,
}

/// What the intervals of a comparison hold for; read from `fixed` or `anytime`, and what is unknown
/// as the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", rename_all = "lowercase")]
pub enum Inference {
    /// One look, after a number of rounds that was said before.
    #[default]
    Fixed,
    /// Any look after any round, also the one that ended it.
    Anytime,
}

impl From<String> for Inference {
    fn from(text: String) -> Inference {
        if text == "anytime" { Inference::Anytime } else { Inference::Fixed }
    }
}

/// One of the things compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variant {
    /// Its name: `a`, `b` and so on.
    pub name: String,
    /// The options that set it apart.
    pub options: Value,
    /// The rounds that count.
    pub rounds: Vec<Bench>,
    /// I/Os per second.
    pub iops: Estimate,
    /// Mean latency, nanoseconds.
    pub latency_mean_ns: Estimate,
    /// Half of the latencies are at most this, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_p50_ns: Option<Estimate>,
    /// 99 % of the latencies are at most this, nanoseconds.
    pub latency_p99_ns: Estimate,
    /// CPU time of an I/O, nanoseconds.
    pub cpu_ns_per_io: Estimate,
    /// Commits per second, for a job that has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits_per_s: Option<Estimate>,
    /// Time to finish, nanoseconds, for jobs that do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub makespan_ns: Option<Estimate>,
    /// Metrics of reads, of writes and of commits alone, by name, where the job has several kinds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub of_one_kind: BTreeMap<String, Estimate>,
    /// The rate that a command printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure: Option<Estimate>,
    /// The time that a command printed, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figure_ns: Option<Estimate>,
    /// CPU time of the machine, as [`Cpu::machine_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_cpu_ns: Option<Estimate>,
}

/// A mean over rounds and how well it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The 95 % confidence interval; none for a single round.
    pub ci95: Option<[f64; 2]>,
    /// The 99 % confidence interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci99: Option<[f64; 2]>,
    /// The geometric mean: those of two variants have the ratio that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gmean: Option<f64>,
}

/// The comparison of two variants by one metric.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Comparison {
    /// The variant compared with.
    pub a: String,
    /// The variant compared.
    pub b: String,
    /// The metric: a name of [`METRICS`](crate::metric::METRICS).
    pub metric: String,
    /// b's value divided by a's; none where it cannot be formed.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of the ratio.
    pub ci95: Option<[f64; 2]>,
    /// The confidence interval of the ratio that decides the verdict: those of the primary metric
    /// together hold in 99 % of comparisons, and those of all others together. In older documents
    /// each by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ci99: Option<[f64; 2]>,
    /// The smallest difference that would have been seen in four of five such comparisons, as a
    /// share of a's value.
    pub min_detectable_effect: Option<f64>,
    /// The value of the second run of a round over that of the first, both variants taken alike,
    /// where it is known to differ from 1; the ratio is without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second_run: Option<Estimate>,
    /// `b is faster`, `b is slower` or `no detectable difference`, with the variant's name; of CPU
    /// time `b takes less CPU` or `b takes more CPU` (in older documents as of any other);
    /// `the same within 1 %` where differences up to that do not matter; `not compared: ` and why.
    pub verdict: String,
}

/// Where a comparison was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompareEnvironment {
    /// CPUs of the machine.
    pub cpus: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// CPU time that the hypervisor kept for others, per cent.
    pub steal_pct: f64,
    /// Rounds that were disturbed and do not count.
    pub voided_rounds: u64,
    /// Its further fields.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// One run of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The name of its variant.
    pub variant: String,
    /// Its round, from 1.
    pub round: u32,
    /// Why it does not count; none if it does.
    pub voided: Option<String>,
    /// Its figures.
    pub document: BenchDocument,
}

/// The figures of the control micro-benchmark around a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Control {
    /// The round, from 1.
    pub round: u32,
    /// How long the fixed work took, nanoseconds.
    pub ns: f64,
    /// CPU time that the hypervisor kept for others, per cent.
    pub steal_pct: f64,
}

/// The document that `weir compare --sweep --save` writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepDocument {
    /// Always `sweep`.
    pub kind: SweepKind,
    /// The name of the swept flag or option, as `iodepth`.
    pub name: String,
    /// A comparison for each value, in the order given.
    pub points: Vec<Point>,
}

/// The kind of a [`SweepDocument`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SweepKind {
    /// The only one.
    #[default]
    Sweep,
}

/// One value of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// The value.
    pub value: String,
    /// The comparison at this value.
    pub document: CompareDocument,
}

/// The document that `weir iostat --json` prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IostatDocument {
    /// Always `iostat`.
    pub kind: IostatKind,
    /// The reports, in the order in which they were made.
    pub reports: Vec<IostatReport>,
}

/// The kind of an [`IostatDocument`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IostatKind {
    /// The only one.
    #[default]
    Iostat,
}

/// The I/O of disks in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IostatReport {
    /// Whether it is the average over all time since the daemon started.
    pub since_start: bool,
    /// The interval, seconds.
    pub interval_s: f64,
    /// Each disk.
    pub disks: Vec<IostatDisk>,
}

/// The I/O of one disk in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IostatDisk {
    /// Its name.
    pub name: String,
    /// The columns by the names of `iostat -x`, as `r/s`, in its units.
    pub columns: Map<String, Value>,
}

impl IostatDocument {
    /// Seconds of the intervals after the average since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let intervals = self.reports.iter().filter(|report| !report.since_start);
        intervals.map(|report| report.interval_s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_says_which_document_it_is_and_an_empty_one_is_read() {
        for kind in ["bench", "compare", "sweep", "iostat", "sim"] {
            let text = format!(r#"{{"kind":"{kind}","nobody":"knows this"}}"#);
            let document: Document = serde_json::from_str(&text).expect("a document");
            let again = serde_json::to_value(&document).expect("JSON");
            assert_eq!(again["kind"], kind);
            assert_eq!(again.get("nobody"), None);
        }
    }

    #[test]
    fn a_document_of_no_known_kind_is_refused_by_name() {
        let read = |text| serde_json::from_str::<Document>(text).map_err(|e| e.to_string());
        let unknown = read(r#"{"kind":"poem"}"#).expect_err("no such kind");
        assert!(unknown.contains("kind=\"poem\" is none of bench, compare"), "{unknown}");
        let missing = read(r#"{"bench":{}}"#).expect_err("no kind");
        assert!(missing.contains("kind is missing"), "{missing}");
        let wrong = read(r#"{"kind":"bench","bench":{"ios":"many"}}"#).expect_err("no number");
        assert!(wrong.contains("bench: ") && wrong.contains("many"), "{wrong}");
    }

    #[test]
    fn figures_stand_beside_the_other_fields_of_a_bench() {
        let text = r#"{"kind":"bench","bench":{"weir":"0.1.0","ios":7,"iops":3.5,
            "latency_ns":{"mean":1.5,"p50":1},"cpu":{"ns_per_io":null},
            "groups":[{"name":"job","op":"read","ios":7}],
            "transactions":{"commits_per_s":2.0}},"partial":true,"failure":"the target is gone"}"#;
        let document: Document = serde_json::from_str(text).expect("a document");
        let Document::Bench(bench) = &document else { panic!("a bench") };
        assert_eq!((bench.bench.figures.ios, bench.bench.groups[0].figures.ios), (7, 7));
        assert_eq!(bench.bench.cpu.ns_per_io, None);
        assert!(bench.partial && bench.failure.is_some());
        let value = serde_json::to_value(&document).expect("JSON");
        assert_eq!(value["bench"]["latency_ns"]["mean"], 1.5);
        assert_eq!(value["bench"]["transactions"]["commits_per_s"], 2.0);
        assert_eq!(serde_json::from_value::<Document>(value).expect("JSON"), document);
    }

    #[test]
    fn what_is_made_of_many_ios_has_neither_wait_nor_device_time() {
        for (op, is_null) in [("commit", true), ("execution", true), ("write", false)] {
            let group = Group { op: String::from(op), ..Group::default() };
            let value = serde_json::to_value(&group).expect("JSON");
            for part in ["queue_wait_ns", "device_ns"] {
                assert_eq!(value[part].is_null(), is_null, "{op}: {value}");
            }
            assert_eq!(serde_json::from_value::<Group>(value).expect("a group"), group);
        }
    }

    #[test]
    fn an_interval_that_is_null_is_one_nobody_knows() {
        let text = r#"{"kind":"sweep","name":"iodepth","points":[{"value":"1","document":{
            "kind":"compare","compare":{"variants":[{"name":"a","iops":{"mean":2.0,"ci95":null}}],
            "environment":{"cpus":2,"weir":"0.1.0"}}}}]}"#;
        let document: Document = serde_json::from_str(text).expect("a document");
        let Document::Sweep(sweep) = document else { panic!("a sweep") };
        let compare = &sweep.points[0].document.compare;
        assert_eq!(compare.variants[0].iops, Estimate { mean: 2.0, ..Estimate::default() });
        assert_eq!(compare.environment.other["weir"], "0.1.0");
    }
}
