//! Job files as `weir bench` runs them: stages, files of their own, the page cache, and jobs that
//! end by themselves.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;

use daemon::Folder;
use daemon::words::{expect_refused, told};
use serde_json::Value;

#[track_caller]
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

#[test]
fn stages_of_a_job_file_run_in_turn_and_find_what_those_before_them_left() {
    let folder = Folder::new();
    // What is read is what was written, also in memory, and the second file of a stripe too.
    let jobs = "[global]\nsize=256k\nverify=sha256\n[write]\nrw=randwrite\n\
                [read]\nstonewall\nrw=read\n";
    fs::write(folder.near("stages.fio"), jobs).expect("a file");
    let words = ["bench", "stages.fio", "--json", "--quiet", "--target"];
    for target in ["ram:1MiB", "file:disk.img,size=1MiB"] {
        let said = parse(&told(&folder, &[&words[..], &[target]].concat()));
        let ios = |group: &Value| group["ios"].as_u64().expect("a count");
        let groups = said["groups"].as_array().expect("groups");
        let of = |name: &str, op: &str| {
            groups.iter().filter(|g| g["name"] == name && g["op"] == op).map(ios).sum::<u64>()
        };
        assert_eq!((of("write", "write"), of("read", "read")), (64, 64), "{target}: {said}");
        assert_eq!((&said["errors"], &said["verified_blocks"]), (&0.into(), &128.into()));
    }
    // A job without a file has one of its own.
    let jobs = "[alone]\nrw=randwrite\nsize=256k\nioengine=psync\n\
                [pair]\nrw=write\nsize=128k\nfilename=a.img:b.img\n";
    fs::write(folder.near("own.fio"), jobs).expect("a file");
    let said = parse(&told(&folder, &["bench", "own.fio", "--json", "--quiet"]));
    assert_eq!(said["bytes"], 384 << 10, "{said}");
    let holes = |name: &str| {
        let bytes = fs::read(folder.near(name)).expect("a file");
        bytes.chunks(4096).filter(|block| !block.starts_with(b"weirload")).count() as u64
    };
    assert_eq!([holes("alone.0.0"), holes("a.img"), holes("b.img")], [0; 3]);
}

#[test]
fn a_file_that_is_to_be_buffered_is_and_a_target_without_a_page_cache_is_refused() {
    let folder = Folder::new();
    let words = ["bench", "--rw", "write", "--size", "64k", "--time-based=0", "--direct=0"];
    let on =
        |target: &'static str| [&words[..], &["--json", "--quiet", "--target", target]].concat();
    expect_refused(&folder, &on("ram:1MiB"), &["direct=0", "ram:1MiB has no page cache"]);
    let said = parse(&told(&folder, &on("file:disk.img,size=64k")));
    assert_eq!((&said["ios"], &said["job"]["direct"]), (&16.into(), &false.into()), "{said}");
}

#[test]
fn a_job_of_flags_that_is_not_time_based_does_its_io_and_ends() {
    let folder = Folder::new();
    let words = ["bench", "--target", "ram:1MiB", "--rw", "randwrite", "--time-based=0"];
    let said = parse(&told(&folder, &[&words[..], &["--json", "--quiet"]].concat()));
    assert_eq!((&said["bytes"], &said["job"]["random_map"]), (&(1 << 20).into(), &true.into()));
    fs::write(folder.near("a.fio"), "[a]\nrw=read\nsize=64k\n").expect("a file");
    let words = ["bench", "a.fio", "--target", "ram:1MiB", "--runtime", "1h", "--time-based=0"];
    let said = parse(&told(&folder, &[&words[..], &["--json", "--quiet"]].concat()));
    assert_eq!(said["ios"], 16);
}

/// The rows of a log, each as its columns.
fn rows(folder: &Folder, file: &str) -> Vec<Vec<u64>> {
    let text = fs::read_to_string(folder.near(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
    let columns = |line: &str| line.split(", ").map(|n| n.parse().expect("a number")).collect();
    text.lines().map(columns).collect()
}

#[test]
fn logs_of_a_job_file_have_a_row_for_each_io_or_each_window() {
    let folder = Folder::new();
    let jobs = "[global]\nsize=64k\nbs=4k\n\
                [a]\nrw=randwrite\nnumjobs=2\nwrite_lat_log\nwrite_iops_log=y\nlog_offset=1\n\
                [b]\nstonewall\nrw=rw\nwrite_bw_log=z\nper_job_logs=0\n\
                [c]\nstonewall\nrw=read\nwrite_lat_log\nlog_avg_msec=3600000\n";
    fs::write(folder.near("logs.fio"), jobs).expect("a file");
    let words = ["bench", "logs.fio", "--target", "ram:1MiB", "--json", "--quiet"];
    told(&folder, &words);
    for clone in [1, 2] {
        let [all, queue, device] =
            ["lat", "slat", "clat"].map(|end| rows(&folder, &format!("a_{end}.{clone}.log")));
        // Time, latency, direction, size, place, priority.
        assert!(all.iter().all(|row| row.len() == 6 && row[2..4] == [1, 4096] && row[5] == 0));
        let mut places: Vec<_> = all.iter().map(|row| row[4]).collect();
        places.sort_unstable();
        assert_eq!(places, (0..16).map(|block| block * 4096).collect::<Vec<_>>());
        for ((all, queue), device) in all.iter().zip(queue).zip(device) {
            assert_eq!((all[1], all[4]), (queue[1] + device[1], queue[4]));
        }
        let ios = rows(&folder, &format!("y_iops.{clone}.log"));
        assert!(ios.len() == 16 && ios.iter().all(|row| row[1] == 1));
    }
    let of_b = rows(&folder, "z_bw.log");
    let count = |op: u64| of_b.iter().filter(|row| row[2] == op && row.len() == 5).count();
    assert_eq!(count(0) + count(1), 16);
    assert!(of_b.iter().all(|row| row[1] > 0));
    let of_c = rows(&folder, "c_lat.4.log");
    assert!(of_c.len() == 1 && of_c[0][2..] == [0, 0, 0], "{of_c:?}");
    // What a shared log holds stays.
    told(&folder, &words);
    assert_eq!(rows(&folder, "z_bw.log").len(), 32);
    assert_eq!(rows(&folder, "a_lat.1.log").len(), 16);
    let words = ["compare", "logs.fio", "--target", "ram:1MiB"];
    expect_refused(&folder, &words, &["job a writes logs"]);
    let words = ["bench", "--rw=read", "--size=4k", "--time-based=0", "--target", "ram:1MiB"];
    told(&folder, &[&words[..], &["--json", "--quiet", "--write-lat-log"]].concat());
    assert_eq!(rows(&folder, "job_lat.1.log").len(), 1);
}

#[test]
fn flows_patterns_and_checks_of_a_job_file_are_carried_out() {
    let folder = Folder::new();
    let jobs = "[global]\nrw=randread\nsize=1m\nruntime=300ms\ntime_based\n\
                [a]\nflow=1\n[b]\nflow=4\niodepth=4\n";
    fs::write(folder.near("flow.fio"), jobs).expect("a file");
    let words = ["bench", "flow.fio", "--target", "null:1MiB", "--json", "--quiet"];
    let said = parse(&told(&folder, &words));
    let ios = |name: &str| {
        let groups = said["groups"].as_array().expect("groups");
        let group = groups.iter().find(|group| group["name"] == name && group["op"] == "read");
        group.expect(name)["ios"].as_u64().expect("a count")
    };
    // Either may be a weight ahead, and what was under way at the end is not counted.
    assert!(ios("b").abs_diff(4 * ios("a")) <= 24 && ios("a") > 0, "{said}");
    let jobs = "[global]\nfilename=disk.img\nsize=64k\nbs=8k\n\
                [fill]\nrw=write\nbuffer_pattern=\"abcd\"\n\
                [look]\nstonewall\nrw=read\nverify=pattern\nverify_pattern=\"abcd\"\n\
                [some]\nstonewall\nrw=randwrite\nverify=md5\nverify_interval=512\n\
                verify_backlog=2\n";
    fs::write(folder.near("bytes.fio"), jobs).expect("a file");
    let said = parse(&told(&folder, &["bench", "bytes.fio", "--json", "--quiet"]));
    assert_eq!((&said["errors"], &said["verified_blocks"]), (&0.into(), &136.into()), "{said}");
    // The pattern is none of weir's, so what it has filled is not overwritten unasked.
    fs::write(
        folder.near("one.fio"),
        "[a]\nrw=write\nsize=64k\nfilename=p.img\nbuffer_pattern=7\n",
    )
    .expect("a file");
    told(&folder, &["bench", "one.fio", "--json", "--quiet"]);
    assert_eq!(fs::read(folder.near("p.img")).expect("a file"), [7; 64 << 10]);
    expect_refused(&folder, &["bench", "one.fio"], &["p.img", "--destroy"]);
    let jobs = "[a]\nrw=read\nsize=64k\nfilename=none.img\nallow_file_create=0\n";
    fs::write(folder.near("none.fio"), jobs).expect("a file");
    expect_refused(&folder, &["bench", "none.fio"], &["allow_file_create=0, and none.img"]);
}

#[test]
fn a_trace_that_was_written_is_replayed() {
    let folder = Folder::new();
    let jobs = "[a]\nrw=randrw\nsize=64k\nfsync=4\niodepth=4\nfilename=disk.img\nwrite_iolog=t\n";
    fs::write(folder.near("write.fio"), jobs).expect("a file");
    told(&folder, &["bench", "write.fio", "--json", "--quiet"]);
    let lines = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(folder.near(file)).expect(file);
        text.lines().map(String::from).collect()
    };
    let first = lines("t");
    let of = folder.near("disk.img").display().to_string();
    assert_eq!(first[..2], [String::from("fio version 2 iolog"), format!("{of} add")]);
    let ios = |lines: &[String], what: &str| lines.iter().filter(|l| l.contains(what)).count();
    assert_eq!(ios(&first, " read ") + ios(&first, " write "), 16, "{first:?}");
    assert_eq!(ios(&first, " datasync "), ios(&first, " write ") / 4);
    assert_eq!(first.last(), Some(&format!("{of} close")));
    let jobs = "[a]\nfilename=disk.img\nread_iolog=t\nwrite_iolog=u\niodepth=4\n";
    fs::write(folder.near("read.fio"), jobs).expect("a file");
    told(&folder, &["bench", "read.fio", "--json", "--quiet"]);
    assert_eq!(lines("u"), first);
}

#[test]
fn each_clone_of_a_run_has_a_log_of_its_own() {
    let folder = Folder::new();
    let job = "size=16k\nfilename=disk.img\nrw=write\n";
    let jobs = format!("[a]\n{job}[b]\n{job}stonewall\n");
    fs::write(folder.near("two.fio"), jobs).expect("a file");
    let flags = ["--numjobs=2", "--write-lat-log=x", "--quiet"];
    told(&folder, &[&["bench", "two.fio"], &flags[..]].concat());
    for clone in 1..=4 {
        let name = format!("x_lat.{clone}.log");
        let rows = fs::read_to_string(folder.near(&name)).expect("a log");
        assert_eq!(rows.lines().count(), 4, "{name}: {rows}");
    }
}

#[test]
fn a_run_that_is_refused_leaves_the_logs_of_another_as_they_are() {
    let folder = Folder::new();
    let job = |size: &str| format!("rw=read\nfilename=disk.img\nsize={size}\n");
    fs::write(folder.near("disk.img"), [1; 65536]).expect("a file");
    let one = format!("[a]\nwrite_lat_log=x\n{}", job("8k"));
    fs::write(folder.near("one.fio"), &one).expect("a file");
    told(&folder, &["bench", "one.fio", "--quiet"]);
    let log = fs::read(folder.near("x_lat.1.log")).expect("a log");
    assert!(!log.is_empty());
    // The trace of the second job goes beyond its size.
    fs::write(folder.near("trace"), "fio version 2 iolog\n/a read 32768 4096\n").expect("a file");
    let two = format!("{one}[b]\nread_iolog=trace\n{}", job("16k"));
    fs::write(folder.near("two.fio"), two).expect("a file");
    expect_refused(&folder, &["bench", "two.fio", "--quiet"], &["job b", "beyond size=16384"]);
    assert_eq!(fs::read(folder.near("x_lat.1.log")).expect("a log"), log);
}
