//! Targets that stand in others on a command line: measured, compared, and used by `oltp`.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;

use daemon::program::{Ended, Running, wait_for_writes};
use daemon::words::{attempt, expect_refused, told};
use daemon::{Folder, weir};
use rustix::process::Signal;
use serde_json::Value;

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

/// Two ports to one logical unit.
const TARGET: &str = "[[port]]\nid = 1\n[[port]]\nid = 2\n[[lun]]\nnumber = 0\nsize = \"4MiB\"\n";

#[test]
fn a_disk_over_unnamed_disks_is_measured_and_holds_what_was_written() {
    let folder = Folder::new();
    fs::write(folder.near("t.toml"), TARGET).expect("a file");
    for (target, bytes) in [
        ("striped:64KiB:null:1GiB+null:1GiB", 2_u64 << 30),
        ("linear:null:1MiB+null:3MiB,queue_mode=sq,scheduler=deadline", 4 << 20),
        (r"multipath:scsi-sim:t.toml\,port=1+scsi-sim:t.toml\,port=2,queues=2", 4 << 20),
        (r"striped:4KiB:linear:null:1MiB\+null:2MiB+null:3MiB", 6 << 20),
    ] {
        let words =
            ["bench", "--target", target, "--rw", "randrw", "--bs", "16k", "--iodepth", "8"];
        let more =
            ["--numjobs", "3", "--runtime", "100ms", "--ramp-time", "0", "--json", "--quiet"];
        let said = json(&told(&folder, &[&words[..], &more].concat()));
        assert!(said["ios"].as_u64() > Some(0) && said["errors"] == 0, "{target}: {said}");
        assert_eq!(said["job"]["size"], bytes, "{target}: {said}");
        assert_eq!(said["target"], target);
    }
    // Blocks that lie on both disks.
    let files = r"striped:4KiB:file:a\,size=1MiB+file:b\,size=2MiB";
    let words = ["bench", "--target", files, "--rw", "write", "--bs", "24k", "--verify", "crc32c"];
    let more = ["--size", "1944k", "--ramp-time", "0", "--json", "--quiet"];
    let said = json(&told(&folder, &[&words[..], &more].concat()));
    assert_eq!((&said["verified_blocks"], &said["errors"]), (&81.into(), &0.into()), "{said}");
    let length = |name: &str| fs::metadata(folder.near(name)).expect("a file").len();
    assert_eq!((length("a"), length("b")), (1 << 20, 2 << 20));
}

#[test]
fn variants_of_a_disk_over_unnamed_disks_are_compared() {
    let folder = Folder::new();
    let words = ["compare", "--target", "striped:64KiB:ram:8MiB+ram:8MiB", "--bs", "4k"];
    let variants = ["--a", "queue_mode=sq", "--b", "queue_mode=mq,scheduler=bfq"];
    let short = ["--rounds", "3", "--runtime", "500ms", "--ramp-time", "0"];
    let kept = ["--save", "kept.json", "--quiet", "--json"];
    let Ended { code, stderr, .. } =
        attempt(&folder, &[&words[..], &variants, &short, &kept].concat());
    // On a busy machine too few rounds may count for a verdict.
    assert!(code == Some(0) || stderr.contains("not compared: "), "{stderr}");
    let saved = json(&fs::read_to_string(folder.near("kept.json")).expect("it is saved"));
    let runs = saved["runs"].as_array().expect("runs");
    let scheduler = |run: &Value| run["document"]["bench"]["options"]["scheduler"].clone();
    let found: std::collections::BTreeSet<String> =
        runs.iter().map(|run| scheduler(run).to_string()).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["\"bfq\"", "\"noop\""]);
}

#[test]
fn a_database_on_a_disk_over_files_that_is_killed_has_every_commit_it_acknowledged() {
    let folder = Folder::new();
    let data =
        r"striped:1MiB:file:d0\,size=16MiB+linear:file:d1\\\,size=8MiB\+file:d2\\\,size=8MiB";
    let redo = r"striped:64KiB:file:r0\,size=1MiB+file:r1\,size=1MiB";
    let commits = folder.near("commits");
    fs::write(&commits, "").expect("a file of commits");
    let on = ["--target", data, "--redo", redo];
    let words = ["bench", "oltp", "--commits", "commits", "--runtime", "1h", "--users", "8"];
    let mut command = weir(&folder);
    command.args(words).args(on).arg("--quiet");
    let load = Running::start(command);
    wait_for_writes(&commits, 2000);
    load.signal(Signal::KILL);
    assert_eq!(load.end().code, None);
    let check = [&["bench", "oltp", "--commits", "commits", "--check"][..], &on].concat();
    let said = told(&folder, &check);
    let text = fs::read_to_string(&commits).expect("a file of commits");
    let count = text.lines().filter(|line| line.starts_with("commit ")).count();
    assert!(count >= 2000 && said.starts_with(&format!("{count} acknowledged")), "{said}");
    // One of the files that loses all is found out.
    fs::write(folder.near("d2"), vec![0; 8 << 20]).expect("a file");
    let Ended { code, stderr, .. } = attempt(&folder, &check);
    assert!(code == Some(1) && stderr.contains("was never written"), "{stderr}");
}

#[test]
fn what_cannot_be_under_a_target_is_refused_by_its_name() {
    let folder = Folder::new();
    let bench = ["bench", "--runtime", "10ms", "--target"];
    for (target, parts) in [
        ("striped:64KiB:nul:1GiB+null:1GiB", &["\"nul:1GiB\" does not start with"][..]),
        (r"linear:ram:1MiB\,frob=1", &["unknown option \"frob\" of a ram target"]),
        ("linear:sda+sdb", &["linear:sda+sdb", "its disk \"sda\" is not open"]),
        ("striped:2MiB:ram:1MiB+ram:1MiB", &["its smallest disk has 2048 sectors"]),
    ] {
        expect_refused(&folder, &[&bench[..], &[target]].concat(), parts);
    }
    // What redo would overwrite is under the data, and memory forgets.
    let oltp = ["bench", "oltp", "--runtime", "10ms", "--target"];
    let data = r"linear:file:a\,size=8MiB+file:b\,size=8MiB";
    let shared = [&oltp[..], &[data, "--redo", "file:./b,size=8MiB"]].concat();
    expect_refused(&folder, &shared, &["one device", "file:./b,size=8MiB"]);
    let memory = [&oltp[..], &["striped:1MiB:ram:8MiB+ram:8MiB", "--commits", "commits"]].concat();
    expect_refused(&folder, &memory, &["is memory of this program", "no commit is durable"]);
    let disk = "md0=linear:ram:1MiB+ram:1MiB";
    let serve = ["serve", "--disk", disk, "--nbd", "unix:x.sock"];
    expect_refused(&folder, &serve, &["md0", "ram:1MiB", "[[disk]] of its own"]);
}
