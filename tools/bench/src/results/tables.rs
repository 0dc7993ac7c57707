//! The tables of the documents, with our figures beside theirs.

use std::fmt::Write;

use serde_json::Value;
use weir_trace::document::{Bench, Group};

use crate::engine::run::Measured;

/// vdbench, half reads and half writes of 4 KiB (illumos issue 11827): threads, IOPS before and
/// after, response time before and after in ms.
const VDBENCH: [(&str, u32, u32, f64, f64); 4] = [
    ("8 threads", 70_691, 81_217, 0.107, 0.093),
    ("16 threads", 100_434, 135_867, 0.153, 0.112),
    ("32 threads", 128_122, 205_450, 0.244, 0.152),
    ("64 threads", 163_194, 247_028, 0.388, 0.256),
];

/// hdparm on an eMMC disk: legacy and multi-queue, MB/s; a MB of hdparm's is 2^20 bytes.
const HDPARM: [(&str, f64, f64); 2] = [("cached", 1304.82, 1485.04), ("buffered", 108.51, 110.24)];

/// The dd experiment of SUSE's tuning guide, from its two listings: the fastest writer in seconds,
/// the slowest over that, standard deviation over mean, and its totals in seconds.
const DD32: [(&str, [f64; 4]); 2] = [
    ("low_latency=1", [2.625, 1.86, 0.134, 4.978]),
    ("low_latency=0", [0.788, 5.20, 0.460, 3.505]),
];

/// The table of a preset, if its document has one.
#[must_use]
pub fn table(preset: &str, outcome: &Bench, measured: &[(Option<String>, Measured)]) -> String {
    let mut text = String::new();
    let written = match preset {
        "vdbench" => vdbench(&mut text, outcome),
        "hdparm" => hdparm(&mut text, outcome),
        "dd32" => dd32(&mut text, measured),
        _ => Ok(()),
    };
    written.expect("a string takes text");
    text
}

/// All groups of one stage: I/Os a second, and their mean time in ms.
fn stage(outcome: &Bench, name: &str) -> Option<(f64, f64)> {
    let groups = || outcome.groups.iter().filter(|group| group.name == name && group.op != "flush");
    let ios: u64 = groups().map(|group| group.figures.ios).sum();
    let ns = |group: &Group| group.figures.latency_ns.mean * group.figures.ios as f64;
    let ns: f64 = groups().map(ns).sum();
    let iops = groups().map(|group| group.figures.iops).sum();
    (ios > 0).then(|| (iops, ns / ios as f64 / 1e6))
}

fn vdbench(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    writeln!(
        text,
        "\n4 KiB, half reads, half writes; the document: illumos blkdev, one and many queues"
    )?;
    writeln!(
        text,
        "{:10} {:>10} {:>12}   {:>10} {:>10} {:>8}   {:>9} {:>9} {:>8}",
        "",
        "IOPS",
        "response ms",
        "doc before",
        "doc after",
        "gain",
        "before ms",
        "after ms",
        "less"
    )?;
    for (name, before, after, before_ms, after_ms) in VDBENCH {
        let Some((iops, ms)) = stage(outcome, name) else { continue };
        let gain = 100.0 * (f64::from(after) / f64::from(before) - 1.0);
        let less = 100.0 * (1.0 - after_ms / before_ms);
        writeln!(
            text,
            "{name:10} {iops:>10.0} {ms:>12.3}   {before:>10} {after:>10} {gain:>+7.1}%   \
             {before_ms:>9.3} {after_ms:>9.3} {less:>7.1}%",
        )?;
    }
    writeln!(
        text,
        "The document prints 47 and 44 % less response time for 32 and 64 threads; its own rows \
         give 37.7 and 34.0 %."
    )
}

fn hdparm(text: &mut String, outcome: &Bench) -> std::fmt::Result {
    writeln!(text, "\n{:10} {:>12} {:>14} {:>14}", "", "MiB/s", "doc legacy", "doc mq")?;
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
        "The document's disk is an eMMC card, which scsi_mod.use_blk_mq does not touch, and its \
         +74 % transactions are averages since boot over 240 s and 136 s: the work was the same."
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

/// The times of the writers of each stage, and the document's beside them.
fn dd32(text: &mut String, measured: &[(Option<String>, Measured)]) -> std::fmt::Result {
    let mut rows = Vec::new();
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
    }
    for (level, [fastest, max_over_min, variation, makespan]) in DD32 {
        rows.push((format!("document, {level}"), fastest, max_over_min, variation, makespan));
    }
    let [fastest, ratio, variation, makespan] = ["fastest s", "max/min", "variation", "makespan s"];
    writeln!(text, "\n{:26} {fastest:>9} {ratio:>8} {variation:>10} {makespan:>11}", "")?;
    for (name, fastest, ratio, variation, makespan) in rows {
        writeln!(text, "{name:26} {fastest:>9.3} {ratio:>8.2} {variation:>10.3} {makespan:>11.3}")?;
    }
    writeln!(
        text,
        "The document: SUSE's tuning guide, example 12.1, cfq. Eight of its times for \
         low_latency=0 exceed its total."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unevenness_is_what_the_document_computes_from_its_times() {
        let writers = Writers::new(vec![4.0, 1.0, 2.0, 3.0]).expect("four writers");
        assert_eq!((writers.max_over_min, writers.makespan), (4.0, 4.0));
        assert!((writers.variation - 1.25_f64.sqrt() / 2.5).abs() < 1e-12);
        assert_eq!(Writers::new(Vec::new()), None);
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
