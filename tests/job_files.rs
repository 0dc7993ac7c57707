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
