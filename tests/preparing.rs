//! Targets are written before they are measured: what weir has made by itself, all else only where
//! that is said.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use daemon::Folder;
use daemon::words::{attempt, expect_refused, told};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A short run of `weir bench`, as its document.
#[track_caller]
fn bench(folder: &Folder, target: &str, rw: &str, also: &[&str]) -> Value {
    let words = ["bench", "--target", target, "--rw", rw, "--bs", "64k", "--json", "--quiet"];
    let short = ["--runtime", "30ms", "--ramp-time", "0"];
    let text = told(folder, &[&words[..], &short, also].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn prepared(document: &Value) -> Vec<&str> {
    let all = document["prepared"].as_array().expect("a list");
    all.iter().map(|told| told.as_str().expect("words")).collect()
}

/// Bytes of a file that stand on a disk.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("a file").blocks() * 512
}

/// A file that is a hole but for such bytes at its start.
fn sparse(folder: &Folder, name: &str, bytes: &[u8], size: u64) -> (PathBuf, String) {
    let path = folder.near(name);
    let file = fs::File::create(&path).expect("a file");
    file.set_len(size).expect("a file");
    file.write_all_at(bytes, 0).expect("a file");
    let target = format!("file:{}", path.display());
    (path, target)
}

#[test]
fn memory_is_written_by_each_run_as_far_as_its_jobs_touch_it() {
    let folder = Folder::new();
    let all = bench(&folder, "ram:8MiB", "randread", &[]);
    assert_eq!(prepared(&all), ["ram:8MiB: 8 MiB were written before each run"]);
    let part = bench(&folder, "ram:8MiB", "read", &["--size", "2m", "--offset", "1m"]);
    assert_eq!(prepared(&part), ["ram:8MiB: 2 MiB were written before each run"]);
    assert_eq!(prepared(&bench(&folder, "ram:8MiB", "read", &["--prepare", "no"])), [""; 0]);
    assert_eq!(prepared(&bench(&folder, "null:8MiB", "read", &[])), [""; 0], "it keeps nothing");
    // What a stage wrote is there for the next, and is not written over.
    let stages = "[global]\nbs=4k\nsize=1m\nverify=crc32c\n[write]\nrw=write\ndo_verify=0\n\
                  [check]\nstonewall\nrw=read\n";
    fs::write(folder.near("stages.fio"), stages).expect("a file");
    told(&folder, &["bench", "stages.fio", "--target", "ram:8MiB", "--quiet"]);
}

#[test]
fn the_holes_of_a_file_that_weir_makes_are_written_before_it_is_read() {
    let folder = Folder::new();
    let path = folder.near("disk");
    let target = format!("file:{},size=8MiB", path.display());
    bench(&folder, &target, "randread", &["--prepare", "no"]);
    assert_eq!(allocated(&path), 0, "nothing was written");
    let first = bench(&folder, &target, "randread", &["--size", "2m"]);
    assert_eq!(prepared(&first).len(), 1, "{first}");
    assert!(prepared(&first)[0].contains("2 MiB of holes were written before"), "{first}");
    assert_eq!(allocated(&path), 2 * MIB, "no more than the job touches");
    // It is marked as weir's own now, and its length needs not be said.
    let again = bench(&folder, &format!("file:{}", path.display()), "randread", &[]);
    assert!(prepared(&again)[0].contains("6 MiB of holes"), "{again}");
    assert_eq!(allocated(&path), 8 * MIB);
    assert_eq!(prepared(&bench(&folder, &target, "randread", &[])), [""; 0], "it is full");
}

#[test]
fn what_is_not_weir_s_own_is_written_first_only_where_that_is_said() {
    let folder = Folder::new();
    let (path, target) = sparse(&folder, "notes", b"not to be lost", 8 * MIB);
    let before = (fs::read(&path).expect("the file"), allocated(&path));
    bench(&folder, &target, "randread", &[]);
    let words = ["bench", "--target", &target, "--rw", "read", "--prepare", "fill", "--quiet"];
    expect_refused(&folder, &words, &["at byte 0", "--destroy"]);
    assert_eq!((fs::read(&path).expect("the file"), allocated(&path)), before);
    let filled = bench(&folder, &target, "read", &["--prepare", "fill", "--destroy"]);
    assert!(prepared(&filled)[0].contains("8 MiB were written before the first run"), "{filled}");
    let bytes = fs::read(&path).expect("the file");
    assert!(bytes.chunks(512).all(|sector| sector.starts_with(b"weirload")));
    // Zeros of others may be a disk of theirs as well: one that only reads leaves them.
    let (path, target) = sparse(&folder, "zeros", b"", 8 * MIB);
    assert_eq!(prepared(&bench(&folder, &target, "randread", &[])), [""; 0]);
    assert_eq!(allocated(&path), 0);
    let written = bench(&folder, &target, "randwrite", &[]);
    assert!(prepared(&written)[0].contains("8 MiB of holes"), "{written}");
}

#[test]
fn holes_that_there_is_no_room_for_stay_and_are_refused_where_they_are_to_be_written() {
    let folder = Folder::new();
    let size = 8_u64 << 40;
    let path = folder.near("huge");
    let target = format!("file:{},size=8TiB", path.display());
    let told = bench(&folder, &target, "randread", &[]);
    assert!(prepared(&told)[0].contains("there is room for"), "{told}");
    assert_eq!((fs::metadata(&path).expect("a file").len(), allocated(&path)), (size, 0));
    let words = ["bench", "--target", &target, "--rw", "read", "--prepare", "fill", "--quiet"];
    expect_refused(&folder, &words, &["were never written", "has room for"]);
    assert_eq!(allocated(&path), 0);
}

#[test]
fn a_comparison_prepares_before_its_first_round_and_every_run_knows() {
    let folder = Folder::new();
    let path = folder.near("disk");
    let target = format!("file:{},size=8MiB", path.display());
    let words = ["compare", "--target", &target, "--rw", "randread", "--a", "nomerges=0"];
    let short = ["--b", "nomerges=2", "--rounds", "3", "--runtime", "30ms", "--ramp-time", "0"];
    let ended = attempt(&folder, &[&words[..], &short, &["--save", "runs.json"]].concat());
    assert!(ended.stderr.contains("8 MiB that were never written are written first"), "{ended:?}");
    assert_eq!(allocated(&path), 8 * MIB);
    let text = fs::read_to_string(folder.near("runs.json")).expect("it is saved");
    let saved: Value = serde_json::from_str(&text).expect("JSON");
    for run in saved["runs"].as_array().expect("runs") {
        let document = &run["document"];
        assert_eq!(document["bench"]["prepared"], Value::Array(Vec::new()), "not by a run");
        let notices = document["notices"].as_array().expect("notices");
        let knows = |notice: &Value| {
            notice.as_str().is_some_and(|text| text.contains("written before the first run"))
        };
        assert!(notices.iter().any(knows), "{document}");
    }
    let between = &saved["compare"]["environment"]["between_runs"];
    assert!(between[0].as_str().is_some_and(|text| text.contains("is dropped")), "{between}");
    assert!(ended.stdout.contains("note: a, b: "), "{}", ended.stdout);
}

/// Whether the page cache has a block of a file; `None` where the file system does not tell.
fn is_cached(path: &Path, offset: u64) -> Option<bool> {
    let file = fs::File::open(path).expect("the file");
    let mut bytes = [0; 4096];
    let mut one = [IoSliceMut::new(&mut bytes)];
    match preadv2(&file, &mut one, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(read > 0),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

#[test]
fn the_page_cache_forgets_a_file_before_each_run_unless_it_is_to_stay_as_it_is() {
    let folder = Folder::new();
    let (path, target) = sparse(&folder, "disk", b"", 8 * MIB);
    fs::write(&path, vec![0; 8 << 20]).expect("a file");
    fs::File::open(&path).expect("the file").sync_all().expect("it is written out");
    let after = |prepare: &str| {
        fs::read(&path).expect("the file");
        let before = is_cached(&path, 4 * MIB);
        let words = ["compare", "--target", &target, "--rw", "randread", "--a", "nomerges=0"];
        let short = ["--b", "nomerges=2", "--rounds", "3", "--runtime", "30ms", "--ramp-time", "0"];
        attempt(&folder, &[&words[..], &short, &["--prepare", prepare]].concat());
        (before, is_cached(&path, 4 * MIB))
    };
    let (before, then) = after("auto");
    if before == Some(true) {
        assert_eq!(then, Some(false), "runs read past it, and none has filled it again");
    }
    // Short of memory the kernel drops pages by itself: then a second look tells.
    let stays = (0..3).map(|_| after("no")).any(|(before, then)| before == then);
    assert!(stays, "--prepare no");
}

#[test]
fn what_is_only_allocated_is_written_like_a_hole() {
    let folder = Folder::new();
    let path = folder.near("allocated");
    let file = fs::File::create(&path).expect("a file");
    let flags = rustix::fs::FallocateFlags::empty();
    if let Err(errno) = rustix::fs::fallocate(&file, flags, 0, 8 * MIB) {
        return daemon::outside::leave_out(&format!("the file system of {path:?} says {errno}"));
    }
    let written = bench(&folder, &format!("file:{}", path.display()), "randwrite", &[]);
    assert!(prepared(&written)[0].contains("8 MiB of holes"), "{written}");
}

#[test]
fn of_a_striped_disk_each_file_is_prepared_and_none_that_is_only_read() {
    let folder = Folder::new();
    let path = |name: &str| folder.near(name);
    // Marked as weir's own by the first write of a job, and a hole but for that.
    for name in ["a", "b", "c"] {
        let target = format!("file:{},size=8MiB", path(name).display());
        let first = ["--size", "64k", "--prepare", "no"];
        bench(&folder, &target, "write", &first);
        assert!(allocated(&path(name)) < MIB, "{name}");
    }
    let striped = |two: &str, options: &str| {
        let leg = |name: &str| format!("file\\:{}", path(name).display());
        format!("striped:64KiB:{}+{}{options}", leg("a"), leg(two))
    };
    bench(&folder, &striped("b", "\\,readonly"), "randread", &[]);
    assert_eq!(allocated(&path("a")), 8 * MIB);
    assert!(allocated(&path("b")) < MIB, "it is only read");
    let [a, b] = [striped("b", ""), striped("c", "")];
    let words = ["compare", "--rw", "randread", "--a", &a, "--b", &b, "--rounds", "3"];
    let short = ["--runtime", "30ms", "--ramp-time", "0"];
    attempt(&folder, &[&words[..], &short].concat());
    for name in ["b", "c"] {
        assert_eq!(allocated(&path(name)), 8 * MIB, "{name}");
    }
}
