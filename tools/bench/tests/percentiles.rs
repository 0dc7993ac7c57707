//! weir's percentiles against fio's, over the same latencies: fio logs each, and counts them into a
//! histogram of its own.
//!
//! fio's buckets are 1 ns wide up to 128 ns and then 64 to each power of two, told by their middle
//! (`clat_ns/bins` of `--output-format=json+`). Those of weir's documents are 128 to each power of
//! two, so that each of them lies in one of fio's. Both take as the percentile p of N latencies the
//! ceil(p*N)th.

#![forbid(unsafe_code)]

#[path = "../../../tests/daemon/outside.rs"]
mod outside;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use outside::{installed, mortal};
use serde_json::Value;
use weir_bench::engine::tally::{Tally, Took};
use weir_bench::results::outcome::latency;
use weir_bio::Nanos;
use weir_load::Times;
use weir_load::times::QUANTILE_ERROR;

/// I/Os of each direction. No multiple of 1000: of those fio takes one more than 99.9 of 100,
/// which it keeps as a floating-point number a little above.
const IOS: u64 = 4999;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let name = format!("weir-percentiles-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).expect("a folder for the test");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed is in the build's own folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// fio's result for one direction's job, after it has logged each of its latencies.
fn fio(folder: &Folder, rw: &str) -> Value {
    let mut fio = mortal("fio");
    fio.args([
        "--name=job",
        "--filename=disk.img",
        "--size=16m",
        "--io_size=1g",
        "--ioengine=psync",
    ]);
    fio.args(["--bssplit=4k/70:128k/30", "--norandommap", "--randseed=7"]);
    fio.args([&format!("--rw={rw}"), &format!("--number_ios={IOS}")]);
    fio.args([&format!("--write_lat_log={rw}"), "--log_avg_msec=0"]);
    fio.args(["--percentile_list=50:90:95:99:99.9", "--output-format=json+"]);
    let ended = fio.current_dir(&folder.0).output().expect("fio runs");
    assert!(ended.status.success(), "fio: {}", String::from_utf8_lossy(&ended.stderr));
    let said = String::from_utf8_lossy(&ended.stdout);
    let json = said.find('{').map_or("", |at| &said[at..]);
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {said}"))
}

/// The latencies of a log, ns: `ms, ns, direction, bytes, priority`, a line for each I/O.
fn logged(folder: &Folder, rw: &str) -> Vec<u64> {
    let log = folder.0.join(format!("{rw}_clat.1.log"));
    let text = fs::read_to_string(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
    let ns = |line: &str| line.split(", ").nth(1).and_then(|field| field.parse().ok());
    text.lines().map(|line| ns(line).unwrap_or_else(|| panic!("no latency in {line:?}"))).collect()
}

/// They, counted as a bench counts them.
fn counted(latencies: &[u64]) -> Times {
    let mut tally = Tally::new(vec![true], Nanos::ZERO);
    tally.open(0, Nanos::ZERO);
    latencies.iter().for_each(|ns| tally.count(0, 8, Took::whole(*ns)));
    tally.settle();
    tally.row(0).expect("there are latencies").total.clone()
}

/// The middle of fio's bucket that a latency falls into, as fio writes it down.
fn middle(ns: u64) -> u64 {
    let width = width(ns);
    ns / width * width + width / 2
}

/// The width of fio's bucket around a latency, ns.
fn width(ns: u64) -> u64 {
    1 << ns.max(1).ilog2().saturating_sub(6)
}

#[test]
fn percentiles_of_fios_own_latencies_fall_into_fios_own_buckets() {
    if !installed("fio") {
        return;
    }
    let folder = Folder::new();
    for (rw, direction) in [("randread", "read"), ("randwrite", "write")] {
        let said = fio(&folder, rw);
        let theirs = &said["jobs"][0][direction]["clat_ns"];
        let mut latencies = logged(&folder, rw);
        assert_eq!(theirs["N"], IOS, "{theirs}");
        assert_eq!(latencies.len() as u64, IOS, "one line for each I/O");
        let times = counted(&latencies);
        latencies.sort_unstable();
        let ours = latency(&times);
        assert_eq!((theirs["max"].as_u64(), latencies.last()), (Some(ours.max), Some(&ours.max)));
        let mean = theirs["mean"].as_f64().expect("a mean");
        assert!((ours.mean - mean).abs() < 0.01, "a mean of {} ns, fio's is {mean}", ours.mean);
        for (name, ns, [part, whole]) in [
            ("50.000000", ours.p50, [1, 2]),
            ("90.000000", ours.p90, [9, 10]),
            ("95.000000", ours.p95, [19, 20]),
            ("99.000000", ours.p99, [99, 100]),
            ("99.900000", ours.p999, [999, 1000]),
        ] {
            let exact = latencies[(part * IOS).div_ceil(whole) as usize - 1];
            let off = (ns as f64 / exact as f64 - 1.0).abs();
            assert!(off <= QUANTILE_ERROR, "{rw}, {name}: {ns} ns instead of {exact}");
            let their = theirs["percentile"][name].as_u64().expect("a percentile");
            assert_eq!(middle(ns), their, "{rw}, {name}: {ns} ns lie in another bucket");
        }
        let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
        for (top, count) in times.buckets() {
            *bins.entry(middle(top)).or_default() += count;
        }
        let of_theirs = theirs["bins"].as_object().expect("bins").iter();
        let of_theirs = of_theirs
            .map(|(middle, count)| (middle.parse().expect("ns"), count.as_u64().expect("a count")));
        assert_eq!(bins, of_theirs.collect(), "{rw}: every bin holds as many");
    }
}
