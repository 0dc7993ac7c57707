//! The tables of the documents, with our figures beside theirs.

use std::fmt::Write;

use serde_json::Value;
use weir_trace::document::{Bench, Group};

use crate::engine::run::Measured;
use crate::results::outcome::share;

/// The runs of the vdbench table: illumos issue 11827, half reads and half writes of 4 KiB.
const THREADS: [&str; 4] = ["8 threads", "16 threads", "32 threads", "64 threads"];

/// One of the three parts of that table: before and after, by threads.
struct Part {
    title: &'static str,
    before: [f64; 4],
    after: [f64; 4],
    /// Digits behind the point.
    digits: usize,
    change: &'static str,
}

const VDBENCH: [Part; 3] = [
    Part {
        title: "IOPS",
        before: [70_691.0, 100_434.0, 128_122.0, 163_194.0],
        after: [81_217.0, 135_867.0, 205_450.0, 247_028.0],
        digits: 0,
        change: "% increase",
    },
    Part {
        title: "response time, ms",
        before: [0.107, 0.153, 0.244, 0.388],
        after: [0.093, 0.112, 0.152, 0.256],
        digits: 3,
        change: "% reduction",
    },
    Part {
        title: "CPU busy (sys), %",
        before: [4.5, 12.1, 20.2, 24.9],
        after: [3.7, 5.8, 6.5, 7.5],
        digits: 1,
        change: "% reduction",
    },
];

/// hdparm on an eMMC disk: legacy and multi-queue, MB/s; a MB of hdparm's is 2^20 bytes.
const HDPARM: [(&str, f64, f64); 2] = [("cached", 1304.82, 1485.04), ("buffered", 108.51, 110.24)];

/// The dd experiment of SUSE's tuning guide, from its two listings: the fastest writer in seconds,
/// the slowest over that, standard deviation over mean, and its totals in seconds.
const DD32: [(&str, [f64; 4]); 2] = [
    ("low_latency=1", [2.625, 1.86, 0.134, 4.978]),
    ("low_latency=0", [0.788, 5.20, 0.460, 3.505]),
];

/// Writes of each stage: 32 writers with 10 MiB in writes of 128 KiB.
const DD32_WRITES: u64 = 32 * 80;

/// The experiment on its embedded disk takes some 6 % of two CPUs: with less than this part idle
/// others had most of them.
const DD32_IDLE_PCT: f64 = 50.0;

/// The table of a preset, if its document has one.
#[must_use]
pub fn table(preset: &str, outcome: &Bench, measured: &[(Option<String>, Measured)]) -> String {
    let mut text = String::new();
    let written = match preset {
        "oltp" => oltp(&mut text, outcome),
        "streams" => streams(&mut text, outcome),
        "hpc" => hpc(&mut text, outcome),
        "vdbench" => vdbench(&mut text, outcome),
        "hdparm" => hdparm(&mut text, outcome),
        "dd32" => dd32(&mut text, outcome, measured),
        _ => Ok(()),
    };
    written.expect("a string takes text");
    text
}

/// Rate and mean time in ms of the groups that are wanted and move data.
fn together(outcome: &Bench, is_wanted: impl Fn(&Group) -> bool) -> Option<(f64, f64)> {
    let moves = |group: &&Group| ["read", "write"].contains(&group.op.as_str());
    let wanted = || outcome.groups.iter().filter(moves).filter(|group| is_wanted(group));
    let ios: u64 = wanted().map(|group| group.figures.ios).sum();
    let ns = |group: &Group| group.figures.latency_ns.mean * group.figures.ios as f64;
    let ns: f64 = wanted().map(ns).sum();
    let iops = wanted().map(|group| group.figures.iops).sum();
    (ios > 0).then(|| (iops, ns / ios as f64 / 1e6))
}

/// All groups of one stage: I/Os a second, and their mean time in ms.
fn stage(outcome: &Bench, name: &str) -> Option<(f64, f64)> {
    together(outcome, |group| group.name == name)
}

/// A figure, or the place of one that there is not.
fn shown(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::from("-"), |value| format!("{value:.digits$}"))
}

/// SLOB on a PowerMax (Dell and Oracle): its result tables were pictures, and these figures stand
/// in its text.
fn oltp(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    let (iops, _) = together(outcome, |group| group.name.starts_with("data")).unzip();
    let (_, read_ms) = together(outcome, |group| group.name == "data read").unzip();
    let rates = outcome.transactions;
    let rows = [
        ("data IOPS", shown(iops, 0), ["186214", "228886", "+23 %"]),
        ("read latency of data, ms", shown(read_ms, 3), ["-", "-", "-26 %"]),
        ("executions a second", shown(rates.map(|t| t.executions_per_s), 0), ["-", "-", "+26 %"]),
        ("commits a second", shown(rates.map(|t| t.commits_per_s), 0), ["-", "-", "+26 %"]),
    ];
    let head = ["here", "doc legacy", "doc mq", "doc change"];
    let [here, legacy, mq, change] = head;
    writeln!(text, "\n{:26} {here:>10} {legacy:>12} {mq:>12} {change:>12}", "")?;
    for (name, here, [legacy, mq, change]) in rows {
        writeln!(text, "{name:26} {here:>10} {legacy:>12} {mq:>12} {change:>12}")?;
    }
    writeln!(
        text,
        "The document: Dell, SLOB on Oracle and a PowerMax 8000, one server, 6 % read hits; 80 \
         users with 4 threads each on the legacy path (320 processes), with 2 on multi-queue \
         (160). 60 % read hits: \"very similar\". Three servers: some 330,000 at 0.9 ms either \
         way, and 477,000 against 494,000 at 0.6 ms (+4 %) with 60 %."
    )
}

/// Sequential reads of parallel queries, in the same document.
fn streams(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    let here = outcome.figures.bytes_per_s / 1e9;
    writeln!(text, "\nread bandwidth, GB/s: here {here:.2}; document: close to 12")?;
    writeln!(
        text,
        "The document: Dell, parallel query on Oracle and a PowerMax 8000, four nodes; multi-queue \
         was \"slightly better than without\"."
    )
}

/// Block-level efficiency with scsi-mq, below Lustre: bounds and no table.
fn hpc(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    let of = |name: &str| together(outcome, |group| group.name == name && group.op == "write");
    let [(_, data), (_, metadata)] = ["data", "metadata"].map(|name| of(name).unzip());
    let idle = share(&outcome.cores, |core| core.idle_s);
    writeln!(text, "\n{:32} {:>10}   document", "", "here")?;
    let less = "as much as 13.6 % less with scsi-mq";
    writeln!(text, "{:32} {:>10}   {less}", "write latency of data, ms", shown(data, 3))?;
    let metadata = shown(metadata, 3);
    writeln!(text, "{:32} {metadata:>10}   the same", "write latency of metadata, ms")?;
    let more = "7 times as much: blk-mq of 3.18 against 2.6.32";
    writeln!(text, "{:32} {:>10}   {more}", "CPU idle, %", shown(idle, 1))?;
    writeln!(
        text,
        "The document: Caldwell, Improving Block-level Efficiency with scsi-mq (2015), SCSI writes \
         below Lustre. Both are bounds of comparisons. weir compare hpc compares both \
         paths; CPU idle is in its report."
    )
}

fn vdbench(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    let here = THREADS.map(|name| {
        let used = outcome.stages.iter().find(|stage| stage.name == name);
        let (iops, ms) = stage(outcome, name).unzip();
        [iops, ms, used.and_then(|stage| stage.sys_pct)]
    });
    writeln!(
        text,
        "\n4 KiB, half reads, half writes; the document: illumos issue 11827, blkdev with one \
         queue (before) and with several (after)"
    )?;
    for (at, part) in VDBENCH.iter().enumerate() {
        let digits = part.digits;
        let [a, b, c, d] = THREADS;
        let title = part.title;
        writeln!(text, "{title:24} {a:>10} {b:>10} {c:>10} {d:>10}")?;
        let mut row = |name: &str, cells: [Option<f64>; 4], digits: usize| {
            let cell = |cell: Option<f64>| {
                cell.map_or(String::from("-"), |value| format!("{value:.digits$}"))
            };
            let [a, b, c, d] = cells.map(cell);
            writeln!(text, "  {name:22} {a:>10} {b:>10} {c:>10} {d:>10}")
        };
        let all = |values: [f64; 4]| values.map(Some);
        let change = |index: usize| {
            let ratio = part.after[index] / part.before[index];
            100.0 * (ratio - 1.0).abs()
        };
        row("here", here.map(|own| own[at]), digits)?;
        row("document, before", all(part.before), digits)?;
        row("document, after", all(part.after), digits)?;
        row(&format!("computed, {}", part.change), all([0, 1, 2, 3].map(change)), 1)?;
    }
    writeln!(
        text,
        "CPU is that of all CPUs and programs of the machine. The changes are computed from the \
         document's rows. It prints 14, 35, 60 and 51 % more IOPS, 18, 51, 67 and 70 % less CPU, \
         and 47 and 44 % less response time for 32 and 64 threads, where its own rows give 37.7 \
         and 34.0 %."
    )
}

fn hdparm(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    writeln!(text, "\n{:10} {:>12} {:>14} {:>14}", "", "MiB/s", "doc before", "doc after")?;
    for (name, legacy, mq) in HDPARM {
        let group = outcome.groups.iter().find(|group| group.name == name);
        let Some(group) = group else { continue };
        let rate = group.figures.bytes_per_s / f64::from(1 << 20);
        writeln!(text, "{name:10} {rate:>12.2} {legacy:>14.2} {mq:>14.2}")?;
    }
    let page_cache = |job: &Value| job.get("page_cache").and_then(Value::as_bool);
    let jobs = outcome.job.get("jobs").and_then(Value::as_array);
    match jobs.and_then(|jobs| jobs.iter().find_map(page_cache)) {
        Some(true) => writeln!(text, "cached comes from the page cache of this host.")?,
        Some(false) | None => writeln!(
            text,
            "cached comes from no page cache, {} has none here: it is the same 2 MiB from the \
             target itself.",
            outcome.target
        )?,
    }
    writeln!(
        text,
        "The document: a note on an x205ta (2016). Its disk is an eMMC card, which \
         scsi_mod.use_blk_mq does not touch, and its +74 % transactions are averages since boot \
         over 240 s and 136 s: the work was the same."
    )
}

/// How unevenly writers were served.
#[derive(Clone, Debug, PartialEq)]
pub struct Writers {
    /// When each had written all, seconds, the fastest first.
    pub times: Vec<f64>,
    /// The slowest over the fastest.
    pub max_over_min: f64,
    /// Standard deviation over mean.
    pub variation: f64,
    /// The slowest.
    pub makespan: f64,
}

impl Writers {
    /// From their times; `None` if one never came to its end.
    #[must_use]
    pub fn of(measured: &Measured) -> Option<Writers> {
        let ends = measured.ends.first()?.iter().copied().collect::<Option<Vec<_>>>()?;
        Writers::new(ends.iter().map(std::time::Duration::as_secs_f64).collect())
    }

    fn new(mut times: Vec<f64>) -> Option<Writers> {
        times.sort_by(f64::total_cmp);
        let (min, max) = (*times.first()?, *times.last()?);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / times.len() as f64;
        let variation = variance.sqrt() / mean;
        Some(Writers { max_over_min: max / min, variation, makespan: max, times })
    }
}

/// The document's shape, which the embedded disk is to show: docs/behaviour/cfq.md, section 13.
///
/// Returns a sentence for each band that was missed.
fn missed(on: &Writers, off: &Writers) -> Vec<String> {
    let ratio = on.makespan / off.makespan;
    let bands = [
        ("max/min with low_latency=1", on.max_over_min, 0.0..=2.5, "at most 2.5"),
        ("variation with low_latency=1", on.variation, 0.0..=0.20, "at most 0.20"),
        ("max/min with low_latency=0", off.max_over_min, 4.0..=f64::INFINITY, "at least 4"),
        ("variation with low_latency=0", off.variation, 0.40..=f64::INFINITY, "at least 0.40"),
        ("makespan with 1 over that with 0", ratio, 1.32..=1.52, "within 1.32..1.52"),
    ];
    let missed = bands.into_iter().filter(|(_, value, band, _)| !band.contains(value));
    missed
        .map(|(name, value, _, bound)| format!("missed: {name} is {value:.2}, not {bound}"))
        .collect()
}

/// What is told of bands that were missed: each of them, and whether the CPUs were short.
fn short(text: &mut String, outcome: &Bench, stages: &[(&str, Writers)]) -> std::fmt::Result {
    let of = |level: &str| stages.iter().find(|(name, _)| *name == level).map(|(_, own)| own);
    let (Some(on), Some(off)) = (of(DD32[0].0), of(DD32[1].0)) else { return Ok(()) };
    // Fewer bytes have another shape.
    let is_whole = |group: &&Group| group.name.starts_with("low_latency=") && group.op == "write";
    if outcome.groups.iter().filter(is_whole).any(|group| group.figures.ios != DD32_WRITES) {
        return Ok(());
    }
    let missed = missed(on, off);
    missed.iter().try_for_each(|line| writeln!(text, "{line}"))?;
    let idle = share(&outcome.cores, |core| core.idle_s);
    let Some(idle) = idle.filter(|_| !missed.is_empty()) else { return Ok(()) };
    let stolen = share(&outcome.cores, |core| core.steal_s).unwrap_or(0.0);
    let why = match idle < DD32_IDLE_PCT {
        true => {
            "they were short, and the disk's clock went on while writers waited for one: an idle \
             machine shows the document's figures"
        }
        false => "they were not short over the whole run",
    };
    writeln!(
        text,
        "missed: CPUs of this machine were idle {idle:.0} %, stolen {stolen:.0} %: {why}"
    )
}

/// The times of the writers of each stage, and the document's beside them.
fn dd32(
    text: &mut String,
    outcome: &Bench,
    measured: &[(Option<String>, Measured)],
) -> std::fmt::Result {
    let mut rows = Vec::new();
    let mut stages = Vec::new();
    for (stage, part) in measured {
        let of = stage.as_ref().map(|stage| format!(" with {stage}")).unwrap_or_default();
        let Some(writers) = Writers::of(part) else {
            writeln!(text, "\nNot every writer{of} came to its end.")?;
            continue;
        };
        let count = writers.times.len();
        writeln!(text, "\nseconds of each of {count} writers{of}, the fastest first:")?;
        for row in writers.times.chunks(8) {
            let row: Vec<_> = row.iter().map(|time| format!("{time:8.3}")).collect();
            writeln!(text, "{}", row.join(" "))?;
        }
        let Writers { max_over_min, variation, makespan, .. } = writers;
        let here = stage.as_ref().map_or(String::from("here"), |stage| format!("here, {stage}"));
        rows.push((here, writers.times[0], max_over_min, variation, makespan));
        stages.extend(stage.as_deref().map(|stage| (stage, writers)));
    }
    for (level, [fastest, max_over_min, variation, makespan]) in DD32 {
        rows.push((format!("document, {level}"), fastest, max_over_min, variation, makespan));
    }
    let [fastest, ratio, variation, makespan] = ["fastest s", "max/min", "variation", "makespan s"];
    writeln!(text, "\n{:26} {fastest:>9} {ratio:>8} {variation:>10} {makespan:>11}", "")?;
    for (name, fastest, ratio, variation, makespan) in rows {
        writeln!(text, "{name:26} {fastest:>9.3} {ratio:>8.2} {variation:>10.3} {makespan:>11.3}")?;
    }
    short(text, outcome, &stages)?;
    writeln!(
        text,
        "The document: SUSE's tuning guide, example 12.1, cfq. Eight of its times for \
         low_latency=0 exceed its total."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::{Core, StageUse};

    #[test]
    fn unevenness_is_what_the_document_computes_from_its_times() {
        let writers = Writers::new(vec![4.0, 1.0, 2.0, 3.0]).expect("four writers");
        assert_eq!((writers.max_over_min, writers.makespan), (4.0, 4.0));
        assert!((writers.variation - 1.25_f64.sqrt() / 2.5).abs() < 1e-12);
        assert_eq!(Writers::new(Vec::new()), None);
    }

    #[test]
    fn bands_of_the_dd_experiment_that_are_missed_are_told_with_the_cpus_beside() {
        let writers = |times: [f64; 2]| Writers::new(times.to_vec()).expect("two writers");
        let text = |on: [f64; 2], off: [f64; 2], ios: u64, idle_s: f64| {
            let group = |level: &str| {
                let mut group =
                    Group { name: level.into(), op: "write".into(), ..Group::default() };
                group.figures.ios = ios;
                group
            };
            let groups = DD32.map(|(level, _)| group(level)).to_vec();
            let cores = vec![Core { idle_s, sys_s: 10.0 - idle_s, ..Core::default() }];
            let outcome = Bench { groups, cores, ..Bench::default() };
            let mut text = String::new();
            let stages = [(DD32[0].0, writers(on)), (DD32[1].0, writers(off))];
            short(&mut text, &outcome, &stages).expect("text");
            text
        };
        let (on, off) = ([4.0, 4.9], [0.5, 3.45]);
        assert_eq!(text(on, off, DD32_WRITES, 9.0), "", "all bands hold");
        let uneven = text([1.5, 4.9], off, DD32_WRITES, 1.0);
        assert!(uneven.contains("missed: max/min with low_latency=1 is 3.27, not at most 2.5\n"));
        assert!(uneven.contains("variation with low_latency=1"), "{uneven}");
        assert!(uneven.contains("idle 10 %, stolen 0 %: they were short"), "{uneven}");
        let even = text(on, [3.0, 4.9], DD32_WRITES, 9.0);
        for part in [
            "missed: max/min with low_latency=0 is 1.63, not at least 4\n",
            "missed: variation with low_latency=0 is 0.24, not at least 0.40\n",
            "missed: makespan with 1 over that with 0 is 1.00, not within 1.32..1.52\n",
            "idle 90 %, stolen 0 %: they were not short",
        ] {
            assert!(even.contains(part), "{part:?} is not in {even}");
        }
        assert_eq!(text(on, [3.0, 4.9], DD32_WRITES / 10, 1.0), "", "a part of it has no bands");
    }

    #[test]
    fn each_number_of_threads_has_its_own_cpu_time_in_the_kernel() {
        let stage = |(name, pct): (&str, f64)| StageUse {
            name: String::from(name),
            sys_pct: Some(pct),
            ..StageUse::default()
        };
        let stages = THREADS.into_iter().zip([1.0, 2.0, 3.0, 4.5]).map(stage);
        let mut outcome = Bench { stages: stages.collect(), ..Bench::default() };
        let of_cpu = |outcome: &Bench| {
            let text = table("vdbench", outcome, &[]);
            let rows: Vec<&str> = text.lines().skip_while(|row| !row.starts_with("CPU")).collect();
            rows[1].split_whitespace().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(of_cpu(&outcome), ["here", "1.0", "2.0", "3.0", "4.5"]);
        outcome.stages[1].sys_pct = None;
        outcome.stages.pop();
        assert_eq!(of_cpu(&outcome), ["here", "1.0", "-", "3.0", "-"]);
    }

    #[test]
    fn a_preset_that_was_published_with_figures_has_them_beside_its_own() {
        for (preset, parts) in [
            ("oltp", &["186214", "228886", "+23 %", "-26 %", "+26 %", "160"][..]),
            ("streams", &["close to 12", "here 1.50;"]),
            ("hpc", &["13.6 %", "7 times as much"]),
        ] {
            let mut outcome = Bench::default();
            outcome.figures.bytes_per_s = 1.5e9;
            let text = table(preset, &outcome, &[]);
            assert!(parts.iter().all(|part| text.contains(part)), "{preset}: {text}");
            assert!(text.contains("The document: "), "{preset} has a source: {text}");
        }
    }

    #[test]
    fn the_table_of_hdparm_says_whether_a_page_cache_was_read() {
        let table = |page_cache: bool| {
            let jobs = serde_json::json!([{ "name": "cached", "page_cache": page_cache }, {}]);
            let job = serde_json::json!({ "jobs": jobs });
            let target = String::from("ram:1GiB");
            table("hdparm", &Bench { job, target, ..Bench::default() }, &[])
        };
        assert!(table(true).contains("cached comes from the page cache of this host."));
        let none = table(false);
        assert!(none.contains("no page cache, ram:1GiB has none here: it is the same"), "{none}");
    }
}
