//! The figures that other people published for the jobs that presets follow, beside ours, with
//! what in them contradicts itself.
//!
//! vdbench: illumos issue 11827. oltp: the Dell and Oracle comparison of legacy and multi-queue
//! paths with SLOB on a PowerMax. hdparm: the note on an x205ta. dd32: the low_latency experiment
//! of the SUSE tuning guide. streams: the DSS workload of the Dell article. hpc: Caldwell,
//! Improving Block-level Efficiency with scsi-mq (2015).

use serde_json::Value;

use crate::numbers::{NONE, change, count};
use crate::page::{Section, Table};

/// A preset whose model was published with figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    Oltp,
    Vdbench,
    Hdparm,
    Dd32,
    Streams,
    Hpc,
}

const PRESETS: [(&str, Preset); 6] = [
    ("streams", Preset::Streams),
    ("hpc", Preset::Hpc),
    ("oltp", Preset::Oltp),
    ("vdbench", Preset::Vdbench),
    ("hdparm", Preset::Hdparm),
    ("dd32", Preset::Dd32),
];

/// The preset of a job: what its description names, and where that names none, what its stages
/// are. The words of a command line say nothing, for a file may be called `vdbench` too.
pub(crate) fn preset(job: &Value) -> Option<Preset> {
    let named = |text: &str| PRESETS.iter().find(|(name, _)| *name == text).map(|(_, it)| *it);
    let told = job.as_str().or_else(|| job.get("preset").and_then(Value::as_str));
    told.map_or_else(|| by_shape(job), named)
}

/// The name of a preset.
pub(crate) fn name(preset: Preset) -> &'static str {
    PRESETS.iter().find(|(_, it)| *it == preset).map_or("", |(name, _)| name)
}

/// Stages that nothing but a preset has, with its names and its sizes.
fn by_shape(job: &Value) -> Option<Preset> {
    let number = |job: &Value, field: &str| job.get(field).and_then(Value::as_u64);
    let is = |job: &Value, name: &str, field: &str, value: u64| {
        job.get("name").and_then(Value::as_str) == Some(name) && number(job, field) == Some(value)
    };
    let is_dd = |job: &Value| is(job, "dd32", "numjobs", 32) && number(job, "bs") == Some(131_072);
    if is_dd(job) {
        return Some(Preset::Dd32);
    }
    if is(job, "streams", "numjobs", 8) && number(job, "bs") == Some(1 << 20) {
        return Some(Preset::Streams);
    }
    let jobs = job.get("jobs")?.as_array()?;
    if jobs.len() == 2 && jobs.iter().all(is_dd) {
        return Some(Preset::Dd32);
    }
    let are = |expected: &[(&str, &str, u64)]| {
        jobs.len() == expected.len()
            && jobs
                .iter()
                .zip(expected)
                .all(|(job, (name, field, value))| is(job, name, field, *value))
    };
    let threads = [8, 16, 32, 64].map(|threads| (format!("{threads} threads"), threads));
    let threads = threads.each_ref().map(|(name, threads)| (name.as_str(), "numjobs", *threads));
    if are(&threads) {
        return Some(Preset::Vdbench);
    }
    if are(&[("data", "bs", 1 << 20), ("metadata", "bs", 4096)]) {
        return Some(Preset::Hpc);
    }
    are(&[("cached", "bs", 2 << 20), ("buffered", "bs", 2 << 20)]).then_some(Preset::Hdparm)
}

/// One figure of ours for a place in a published table: the first variant's and the last's.
pub(crate) type Ours<'a> = &'a dyn Fn(&str) -> Option<[Option<f64>; 2]>;

/// The published figures with ours beside them. `labels` name our first variant and, if there are
/// several, the last; `ours` is asked for `iops 8`, `response_ms 8`, `iops`, `read_latency_ms`,
/// `executions`, `commits`, `cached`, `buffered`, `total_s`, `sys_pct 8`, `stage_s low_latency=1`,
/// `gb_per_s`, `data_write_ms`, `metadata_write_ms`, `idle_pct`.
pub(crate) fn section(preset: Preset, labels: &[&str], ours: Ours<'_>) -> Section {
    match preset {
        Preset::Vdbench => vdbench(labels, ours),
        Preset::Oltp => oltp(labels, ours),
        Preset::Hdparm => hdparm(labels, ours),
        Preset::Dd32 => dd32(labels, ours),
        Preset::Streams => streams(labels, ours),
        Preset::Hpc => hpc(labels, ours),
    }
}

const THREADS: [&str; 4] = ["8", "16", "32", "64"];
const IOPS: [[f64; 4]; 2] =
    [[70_691.0, 100_434.0, 128_122.0, 163_194.0], [81_217.0, 135_867.0, 205_450.0, 247_028.0]];
const RESPONSE_MS: [[f64; 4]; 2] = [[0.107, 0.153, 0.244, 0.388], [0.093, 0.112, 0.152, 0.256]];
const SYS_PCT: [[f64; 4]; 2] = [[4.5, 12.1, 20.2, 24.9], [3.7, 5.8, 6.5, 7.5]];
/// The reductions of the response time that the document prints, per cent.
const PRINTED_REDUCTION: [f64; 4] = [13.0, 27.0, 47.0, 44.0];

fn vdbench(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figures: vdbench on illumos blkdev");
    section.prose(
        "illumos issue 11827, 4 KiB, half reads: blkdev with one queue before, with several after.",
    );
    let mut table = Table::new("", ["threads", "8", "16", "32", "64"]);
    let gains = |rows: &[[f64; 4]; 2]| {
        (0..4).map(|at| change(rows[0][at], rows[1][at])).collect::<Vec<_>>()
    };
    let mut add = |name: String, cells: Vec<String>| {
        table.rows.push(std::iter::once(name).chain(cells).collect());
    };
    let shown = |row: &[f64; 4]| row.map(count).to_vec();
    add(String::from("IOPS before, published"), shown(&IOPS[0]));
    add(String::from("IOPS after, published"), shown(&IOPS[1]));
    add(String::from("gain, computed"), gains(&IOPS));
    our_rows("iops", "IOPS", labels, ours, &mut add);
    add(String::from("response ms before, published"), shown(&RESPONSE_MS[0]));
    add(String::from("response ms after, published"), shown(&RESPONSE_MS[1]));
    add(String::from("change, computed"), gains(&RESPONSE_MS));
    let printed = PRINTED_REDUCTION.map(|value| format!("−{value:.0} %")).to_vec();
    add(String::from("change, as printed"), printed);
    our_rows("response_ms", "response ms", labels, ours, &mut add);
    add(String::from("CPU sys % before, published"), shown(&SYS_PCT[0]));
    add(String::from("CPU sys % after, published"), shown(&SYS_PCT[1]));
    add(String::from("change, computed"), gains(&SYS_PCT));
    our_rows("sys_pct", "CPU sys %", labels, ours, &mut add);
    section.table(table);
    section.notes(vec![String::from(
        "The document contradicts itself: it prints response-time reductions of 13, 27, 47 and \
         44 %, and its own rows give 13.1, 26.8, 37.7 and 34.0 %. The computed ones stand above.",
    )]);
    section
}

fn our_rows(
    key: &str,
    name: &str,
    labels: &[&str],
    ours: Ours<'_>,
    add: &mut impl FnMut(String, Vec<String>),
) {
    let cells = THREADS.map(|threads| ours(&format!("{key} {threads}")).unwrap_or_default());
    if cells.iter().flatten().all(Option::is_none) {
        return;
    }
    let shown = |value: Option<f64>| value.map_or_else(|| String::from(NONE), count);
    for (side, label) in labels.iter().enumerate().take(2) {
        if cells.iter().any(|cell| cell[side].is_some()) {
            let row = cells.iter().map(|cell| shown(cell[side])).collect();
            add(format!("{name}, ours: {label}"), row);
        }
    }
    let gain = |cell: &[Option<f64>; 2]| {
        cell[0].zip(cell[1]).map_or_else(|| String::from(NONE), |(a, b)| change(a, b))
    };
    if cells.iter().any(|cell| cell[0].is_some() && cell[1].is_some()) {
        add(format!("{name}, ours: change"), cells.iter().map(gain).collect());
    }
}

/// A cell for each of our columns; see [`our_head`].
fn our_cells(labels: &[&str], ours: Ours<'_>, key: Option<&str>) -> Vec<String> {
    let [a, b] = key.and_then(ours).unwrap_or_default();
    let shown = |value: Option<f64>| value.map_or_else(|| String::from(NONE), count);
    if labels.len() < 2 {
        return vec![shown(a)];
    }
    let gain = a.zip(b).map_or_else(|| String::from(NONE), |(a, b)| change(a, b));
    vec![shown(a), shown(b), gain]
}

/// A column for each of our variants, and one for the change if there are two.
fn our_head(labels: &[&str]) -> Vec<String> {
    let ours = labels.iter().map(|label| format!("ours: {label}"));
    let gain = (labels.len() > 1).then(|| String::from("our change"));
    ours.chain(gain).collect()
}

/// A table with three published columns and ours.
fn beside(labels: &[&str]) -> Table {
    let mut table = Table::new("", ["", "legacy", "multi-queue", "published change"]);
    table.head.extend(our_head(labels));
    table
}

fn oltp(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figures: SLOB on a PowerMax");
    section.prose(
        "Dell and Oracle: SLOB, 80 users, 25 % updates, light redo; legacy path before, blk-mq \
         with scsi-mq and dm-multipath after. The result tables of the article are pictures; these \
         figures stand in its text. Ours come from this machine, so that the changes may be \
         compared and the rates may not.",
    );
    let mut table = beside(labels);
    let mut add = |name: &str, published: [&str; 3], key: Option<&str>| {
        let cells = published.map(String::from).into_iter().chain(our_cells(labels, ours, key));
        table.rows.push(std::iter::once(String::from(name)).chain(cells).collect());
    };
    let first = ["186,214 (320 processes)", "228,886 (160 processes)", "+23 % (computed +22.9 %)"];
    add("data IOPS, 1 server, 6 % read hits", first, Some("iops"));
    let latency = "data-file read latency, the same (ours in ms)";
    add(latency, [NONE, NONE, "−26 %"], Some("read_latency_ms"));
    add("executions, the same (ours per second)", [NONE, NONE, "+26 %"], Some("executions"));
    add("commits, the same (ours per second)", [NONE, NONE, "+26 %"], Some("commits"));
    add("1 server, 60 % read hits", [NONE, NONE, "“very similar”"], None);
    add("3 servers, 6 % read hits", ["~330,000 at 0.9 ms", "about the same", "none"], None);
    let last = ["~477,000 at 0.6 ms", "~494,000 at 0.6 ms", "+4 % (computed +3.6 %)"];
    add("3 servers, 60 % read hits", last, None);
    section.table(table);
    section.notes(vec![String::from(
        "The two 1-server rates were reached with different numbers of processes, 80 users times 4 \
         and times 2, so their ratio is not that of one load on two paths.",
    )]);
    section
}

fn hdparm(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figures: hdparm on an x205ta");
    let mut table = beside(labels);
    table.head[1] = String::from("before");
    table.head[2] = String::from("after");
    for (name, published, key) in [
        ("-T cached reads, MiB/s", ["1,304.82", "1,485.04", "+13.8 %"], "cached"),
        ("-t buffered reads, MiB/s", ["108.51", "110.24", "+1.6 %"], "buffered"),
    ] {
        let own = our_cells(labels, ours, Some(key));
        let cells = published.map(String::from).into_iter().chain(own);
        table.rows.push(std::iter::once(String::from(name)).chain(cells).collect());
    }
    section.table(table);
    section.notes(vec![
        String::from("hdparm prints these as MB/s; a MB of its is 2^20 bytes."),
        String::from(
            "Ours of -T come from the page cache of the host where the target is a file or a block \
             device of it. Memory and servers have none here: theirs are the same 2 MiB from the \
             target itself.",
        ),
        String::from(
            "The note's “+74 % tps” from iostat compares averages since boot over two uptimes, \
             about 240 s and 136 s: the work was the same, 15,469 and 15,292 I/Os. Such averages \
             are refused here.",
        ),
        String::from(
            "The parameter it switched, scsi_mod.use_blk_mq, does not touch an mmc device, which \
             is what was measured; the differences have another cause.",
        ),
    ]);
    section
}

fn dd32(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figures: 32 writers of 10 MiB under CFQ");
    let mut table = Table::new("", ["", "low_latency=1", "low_latency=0"]);
    table.head.extend(our_head(labels));
    let mut add = |published: [&str; 3], key: Option<&str>| {
        let cells = published.map(String::from).into_iter().chain(our_cells(labels, ours, key));
        table.rows.push(cells.collect());
    };
    add(["seconds of each writer", "2.62 to 4.88", "0.79 to 4.10"], None);
    add(["slowest / fastest", "1.86", "5.2"], None);
    add(["total seconds, as printed", "4.978", "3.505"], Some("total_s"));
    let stages = ["low_latency=1", "low_latency=0"].map(|level| ours(&format!("stage_s {level}")));
    if let [Some([Some(on), _]), Some([Some(off), _])] = stages {
        table.row([String::from("total seconds, ours"), count(on), count(off), NONE.into()]);
    }
    section.table(table);
    let own = "A saved result has no times of single writers: `weir bench dd32` prints them.";
    section.notes(vec![String::from(own), String::from(
        "With low_latency=0 the guide lists eight writers as slower than the printed total, 4.10 s \
         against 3.505 s: its listing is not one clean run. What can be compared is the shape: \
         fair \
         and slow against unfair and fast.",
    )]);
    section
}

fn streams(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figure: parallel query on a PowerMax");
    section.prose(
        "Dell: sequential reads of a large Oracle table, four nodes, a PowerMax 8000. With \
         multi-queue the bandwidth was “slightly better than without”.",
    );
    let mut table = Table::new("", ["", "published"]);
    table.head.extend(our_head(labels));
    let published = ["read bandwidth, GB/s", "close to 12"].map(String::from);
    table
        .rows
        .push(published.into_iter().chain(our_cells(labels, ours, Some("gb_per_s"))).collect());
    section.table(table);
    section
}

fn hpc(labels: &[&str], ours: Ours<'_>) -> Section {
    let mut section = Section::new("The published figures: scsi-mq below Lustre");
    section.prose(
        "Caldwell, Improving Block-level Efficiency with scsi-mq (2015): Linux 3.18 with blk-mq \
         against 2.6.32, an array of disks. The figures are bounds.",
    );
    let mut table = Table::new("", ["", "published change"]);
    table.head.extend(our_head(labels));
    for (name, published, key) in [
        ("write latency of data, ms", "as much as −13.6 %", "data_write_ms"),
        ("write latency of metadata, ms", "as much as −13.6 %", "metadata_write_ms"),
        ("CPU idle, %", "7 times as much", "idle_pct"),
    ] {
        let own = our_cells(labels, ours, Some(key));
        let row = [name, published].map(String::from);
        table.rows.push(row.into_iter().chain(own).collect());
    }
    section.table(table);
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_computed_reductions_are_those_of_the_published_rows() {
        let computed: Vec<String> =
            (0..4).map(|at| change(RESPONSE_MS[0][at], RESPONSE_MS[1][at])).collect();
        assert_eq!(computed, ["-13.1 %", "-26.8 %", "-37.7 %", "-34.0 %"]);
        let gains: Vec<String> = (0..4).map(|at| change(IOPS[0][at], IOPS[1][at])).collect();
        assert_eq!(gains, ["+14.9 %", "+35.3 %", "+60.4 %", "+51.4 %"]);
    }

    #[test]
    fn a_preset_is_known_by_its_job_and_not_by_a_name_alone() {
        assert_eq!(preset(&json!("oltp")), Some(Preset::Oltp));
        assert_eq!(preset(&json!({"preset": "vdbench"})), Some(Preset::Vdbench));
        assert_eq!(preset(&json!({"preset": "mine", "name": "dd32"})), None);
        assert_eq!(preset(&json!({"rw": "randread"})), None);
        let mut writers = json!({"name": "dd32", "numjobs": 32, "bs": 131_072});
        assert_eq!(preset(&writers), Some(Preset::Dd32));
        writers["numjobs"] = json!(4);
        assert_eq!(preset(&writers), None, "a section that happens to have the name");
        let stage =
            |threads: u32| json!({"name": format!("{threads} threads"), "numjobs": threads});
        let stages = [8, 16, 32, 64].map(stage);
        assert_eq!(preset(&json!({"jobs": stages})), Some(Preset::Vdbench));
        assert_eq!(preset(&json!({"jobs": [stage(8)]})), None);
        let dd = || json!({"name": "dd32", "numjobs": 32, "bs": 131_072});
        assert_eq!(preset(&json!({"jobs": [dd(), dd()]})), Some(Preset::Dd32));
        let streams = json!({"name": "streams", "numjobs": 8, "bs": 1 << 20});
        assert_eq!(preset(&streams), Some(Preset::Streams));
        let hpc = [json!({"name": "data", "bs": 1 << 20}), json!({"name": "metadata", "bs": 4096})];
        assert_eq!(preset(&json!({"jobs": hpc})), Some(Preset::Hpc));
        let read = |name: &str| json!({"name": name, "bs": 2 << 20});
        let both = json!({"jobs": [read("cached"), read("buffered")]});
        assert_eq!(preset(&both).map(name), Some("hdparm"));
    }

    #[test]
    fn a_single_run_has_one_column_beside_the_published_ones() {
        let ours = |key: &str| match key {
            "cached" => Some([Some(2000.0), None]),
            "total_s" => Some([Some(3.25), None]),
            _ => None,
        };
        let text = |preset| {
            let section = section(preset, &["this run"], &ours);
            serde_json::to_string(&section.blocks).expect("JSON")
        };
        let found = text(Preset::Hdparm);
        assert!(found.contains(r#""published change","ours: this run"]"#), "{found}");
        assert!(found.contains(r#""+13.8 %","2,000"]"#), "{found}");
        let found = text(Preset::Dd32);
        assert!(found.contains(r#""4.978","3.505","3.25"]"#), "{found}");
        assert!(!found.contains("total seconds, ours"), "one stage has no name: {found}");
    }

    #[test]
    fn stages_and_bounds_stand_beside_what_was_published_of_them() {
        let ours = |key: &str| match key {
            "stage_s low_latency=1" => Some([Some(4.9), None]),
            "stage_s low_latency=0" => Some([Some(3.4), None]),
            "gb_per_s" => Some([Some(1.5), None]),
            "data_write_ms" => Some([Some(2.5), None]),
            "sys_pct 64" => Some([Some(7.25), None]),
            _ => None,
        };
        let text = |preset| {
            let section = section(preset, &["this run"], &ours);
            serde_json::to_string(&section.blocks).expect("JSON")
        };
        for (preset, row) in [
            (Preset::Dd32, r#"["total seconds, ours","4.90","3.40","–"]"#),
            (Preset::Streams, r#"["read bandwidth, GB/s","close to 12","1.50"]"#),
            (Preset::Hpc, r#"["write latency of data, ms","as much as −13.6 %","2.50"]"#),
            (Preset::Vdbench, r#"["CPU sys %, ours: this run","–","–","–","7.25"]"#),
        ] {
            let found = text(preset);
            assert!(found.contains(row), "{row} is not in {found}");
        }
    }

    #[test]
    fn ours_stand_beside_and_a_place_without_one_is_empty() {
        let ours = |key: &str| match key {
            "iops 8" => Some([Some(10.0), Some(12.0)]),
            "iops 16" => Some([Some(20.0), None]),
            _ => None,
        };
        let section = section(Preset::Vdbench, &["sq", "mq"], &ours);
        let text = serde_json::to_string(&section.blocks).expect("JSON");
        assert!(text.contains(r#"["IOPS, ours: sq","10","20","–","–"]"#), "{text}");
        assert!(text.contains(r#"["IOPS, ours: change","+20.0 %","–","–","–"]"#), "{text}");
        assert!(!text.contains("response ms, ours"), "{text}");
    }
}
