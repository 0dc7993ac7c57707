//! `weir bench` as people use it: job files, what it says about bad ones, what it keeps when a
//! target fails it, and whether the commits of `oltp` survive.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::Write;
use std::process::Stdio;

use daemon::outside::leave_out;
use daemon::program::{Ended, Running, program, wait_for_writes};
use daemon::words::{attempt, expect_refused, told};
use daemon::{Daemon, Folder, WEIR, weir};
use rustix::process::Signal;
use serde_json::Value;

#[track_caller]
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

/// A weir that runs beside the test.
fn start(folder: &Folder, words: &[&str]) -> Running {
    let mut command = weir(folder);
    command.args(words).stdout(Stdio::piped());
    Running::start(command)
}

#[test]
fn a_bad_job_file_is_refused_with_its_line_and_what_is_allowed() {
    let folder = Folder::new();
    for (text, parts) in [
        ("[a]\nrw=randread\nfrob=1\n", &["bad.fio:3:", "frob", "rwmixread"][..]),
        ("[a]\nrw=sideways\n", &["bad.fio:2:", "rw=sideways", "randrw"]),
        ("[a]\nsize=0\n", &["size=0", "bs=4096"]),
        ("[a]\nsize=2m\n", &["size=2097152", "1048576"]),
        ("[a]\nbs=100\n", &["bs=100", "512"]),
        ("[a]\ntime_based\n", &["job a", "time_based", "runtime"]),
        ("[a]\nverify=crc32c\nbssplit=4k/50:6k/50\n", &["verify", "bs=6144"]),
        ("", &["no job section"]),
    ] {
        fs::write(folder.near("bad.fio"), text).expect("a file");
        expect_refused(&folder, &["bench", "bad.fio", "--target", "ram:1M"], parts);
    }
    fs::write(folder.near("lost.fio"), "[a]\nrw=read\n").expect("a file");
    expect_refused(&folder, &["bench", "lost.fio"], &["--target", "filename="]);
    let missing = ["bench", "missing.fio", "--target", "ram:1M"];
    expect_refused(&folder, &missing, &["'missing.fio'", "oltp", "No such file"]);
    let stray = ["bench", "--users", "3", "--target", "ram:1M"];
    expect_refused(&folder, &stray, &["--users", "weir bench oltp"]);
    let stray = ["bench", "oltp", "--bs", "4k", "--target", "ram:1G"];
    expect_refused(&folder, &stray, &["--bs", "oltp"]);
}

/// A job file with several targets, none of which is there yet.
const TWO_FILES: &str = "[global]\nrw=randwrite\nbs=4k,8k\nioengine=psync\n\
                         [small]\nfilename=small.img\nsize=256k\n\
                         [large]\nfilename=large.img\nrw=rw\nsize=1m\nfsync=4\niodepth=2\n";

#[test]
fn jobs_of_one_file_run_on_files_of_their_own_until_they_have_moved_their_size() {
    let folder = Folder::new();
    fs::write(folder.near("two.fio"), TWO_FILES).expect("a file");
    let said = parse(&told(&folder, &["bench", "two.fio", "--json", "--quiet"]));
    let bytes = |name: &str| -> u64 {
        let groups = said["groups"].as_array().expect("groups").iter();
        let mine = groups.filter(|group| group["name"] == name && group["op"] != "flush");
        mine.map(|group| group["bytes"].as_u64().expect("a count")).sum()
    };
    assert_eq!(bytes("small"), 256 << 10);
    // The last I/O may end beyond the size.
    assert!((1 << 20..(1 << 20) + 8192).contains(&bytes("large")), "{said}");
    let length = |name: &str| fs::metadata(folder.near(name)).expect("a file").len();
    assert_eq!((length("small.img"), length("large.img")), (256 << 10, 1 << 20));
}

#[test]
#[ignore = "needs fio"]
fn a_job_file_means_to_weir_what_it_means_to_fio() {
    let folder = Folder::new();
    let jobs = "[global]\nbs=4k\nsize=4m\nioengine=psync\nfilename=disk.img\n\
                [mixed]\nrw=randrw\nrwmixread=75\nrandseed=3\n\
                [slow]\nrw=read\nsize=25%\nrate_iops=400\n\
                [clones]\nrw=write\nnumjobs=3\n";
    fs::write(folder.near("jobs.fio"), jobs).expect("a file");
    fs::File::create(folder.near("disk.img")).expect("a file").set_len(4 << 20).expect("room");
    let mut fio = program("fio");
    fio.args(["--output-format=json", "jobs.fio"]).current_dir(folder.path());
    let theirs = Running::start(fio).succeed().stdout;
    let theirs = parse(&theirs[theirs.find('{').expect("an object")..]);
    let ours = ["bench", "jobs.fio", "--json", "--quiet", "--destroy"];
    let ours = parse(&told(&folder, &ours));
    let their = |name: &str, op: &str, field: &str| -> u64 {
        let jobs = theirs["jobs"].as_array().expect("jobs").iter();
        let mine = jobs.filter(|job| job["jobname"] == name);
        mine.map(|job| job[op][field].as_u64().expect("a count")).sum()
    };
    let our = |name: &str, op: &str, field: &str| -> u64 {
        let groups = ours["groups"].as_array().expect("groups").iter();
        let mine = groups.filter(|group| group["name"] == name && group["op"] == op);
        mine.map(|group| group[field].as_u64().expect("a count")).sum()
    };
    assert_eq!(our("clones", "write", "bytes"), their("clones", "write", "io_bytes"));
    assert_eq!(our("slow", "read", "bytes"), their("slow", "read", "io_bytes"));
    let all =
        |figure: &dyn Fn(&str, &str) -> u64| figure("mixed", "read") + figure("mixed", "write");
    let (mine, fios) =
        (all(&|name, op| our(name, op, "bytes")), all(&|name, op| their(name, op, "io_bytes")));
    assert!(mine.abs_diff(fios) <= 8192, "{mine} and {fios} bytes");
    // No rate can be outrun, whatever the machine does meanwhile: 256 I/Os, 400 a second.
    let group = |group: &&Value| group["name"] == "slow";
    let rate = ours["groups"].as_array().and_then(|groups| groups.iter().find(group).cloned());
    let rate = rate.expect("the slow job")["iops"].as_f64().expect("a rate");
    assert!(rate <= 402.0, "{rate} I/Os a second, 400 at most");
}

#[test]
fn what_is_written_is_verified_when_it_is_read_and_at_the_end() {
    let folder = Folder::new();
    for (how, more) in [
        ("crc32c", ["--rw", "randrw", "--bsrange", "4k-16k"]),
        ("pattern", ["--rw", "randwrite", "--bs", "4k"]),
    ] {
        let words = ["bench", "--target", "ram:4M", "--verify", how, "--iodepth", "8"];
        let time = ["--runtime", "300ms", "--ramp-time", "0", "--json", "--quiet"];
        let said = parse(&told(&folder, &[&words[..], &more, &time].concat()));
        assert_eq!(said["errors"], 0, "{said}");
        assert!(said["verified_blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{said}");
    }
    // A target that drops what is written is found out.
    let words = ["bench", "--target", "null:4M", "--rw", "write", "--verify", "crc32c"];
    let time = ["--runtime", "100ms", "--ramp-time", "0", "--quiet"];
    let ended = attempt(&folder, &[&words[..], &time].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for part in ["null:4M: verify of 4096 bytes at byte 0: expected", "found zeros"] {
        assert!(ended.stderr.contains(part), "{part:?}: {}", ended.stderr);
    }
}

/// Where nothing of a job is under way or due when its time is up, no bell rings for what is to be
/// read back. That is a matter of luck, so there are many at once.
#[test]
fn jobs_with_a_rate_read_back_when_their_time_is_up() {
    let folder = Folder::new();
    let start = |seed: u32| {
        let seed = seed.to_string();
        let words = ["bench", "--target", "ram:64M", "--verify", "crc32c", "--iodepth", "16"];
        let rate = ["--rw", "randrw", "--bsrange", "512-64k", "--rate_iops", "1000"];
        let time = ["--size", "8M", "--runtime", "1s", "--ramp-time", "0", "--randseed", &seed];
        start(&folder, &[&words[..], &rate, &time, &["--quiet"]].concat())
    };
    let jobs: Vec<_> = (1..=24).map(start).collect();
    jobs.into_iter().for_each(|job| _ = job.succeed());
}

/// The results kept of a run that failed; its message has these parts.
#[track_caller]
fn partial(folder: &Folder, ended: &Ended, parts: &[&str]) -> Value {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let kept = parse(&fs::read_to_string(folder.near("kept.json")).expect("a document"));
    assert_eq!((&kept["kind"], &kept["partial"]), (&"bench".into(), &true.into()));
    let failure = kept["failure"].as_str().expect("a reason");
    for part in parts {
        assert!(failure.contains(part), "{part:?} is not in {failure:?}");
    }
    assert!(ended.stderr.contains("partial"), "{}", ended.stderr);
    assert!(kept["bench"]["ios"].as_u64().expect("a count") > 0, "nothing was kept: {ended:?}");
    kept
}

#[test]
fn a_run_that_is_ended_by_any_signal_keeps_what_it_has_measured() {
    [Signal::INT, Signal::TERM, Signal::HUP].into_iter().for_each(end_by);
}

fn end_by(signal: Signal) {
    let folder = Folder::new();
    let image = folder.image("disk");
    fs::write(&image, [0; 1 << 20]).expect("an image");
    let target = format!("file:{}", image.display());
    let words = ["bench", "--target", &target, "--rw", "write", "--runtime", "1h"];
    let more = ["--ramp-time", "0", "--save", "kept.json", "--json", "--quiet"];
    let running = start(&folder, &[&words[..], &more].concat());
    wait_for_writes(&image, 100);
    running.signal(signal);
    // `timeout` sends it to the process and to its group.
    running.signal(signal);
    let ended = running.end();
    let kept = partial(&folder, &ended, &["interrupted"]);
    let mut printed = parse(&ended.stdout);
    let printed = printed.as_object_mut().expect("figures");
    assert_eq!(printed.remove("partial"), Some(true.into()));
    assert_eq!(printed.remove("failure"), Some("interrupted".into()));
    assert_eq!(Value::from(printed.clone()), kept["bench"]);
    let series = kept["series"].as_array().expect("a series");
    let sum: u64 = series.iter().map(|slot| slot["ios"].as_u64().expect("a count")).sum();
    assert_eq!(kept["bench"]["ios"], sum);
}

#[test]
fn figures_that_could_not_be_saved_are_not_measured() {
    let folder = Folder::new();
    let words = ["bench", "--target", "null:1MiB", "--runtime", "1h", "--save", "no/where.json"];
    expect_refused(&folder, &words, &["--save no/where.json", "No such file"]);
}

#[test]
fn what_is_to_be_known_of_the_figures_is_kept_with_them_and_said_though_quiet() {
    let folder = Folder::new();
    let target = "file:disk.img,size=1MiB,barriers=off";
    let words = ["bench", "--target", target, "--runtime", "10ms", "--ramp-time", "0"];
    // Holes that were written first are none to be told of.
    let words = [&words[..], &["--prepare", "no"]].concat();
    let ended = attempt(&folder, &[&words[..], &["--quiet", "--save", "kept.json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let kept = parse(&fs::read_to_string(folder.near("kept.json")).expect("a document"));
    let notices = kept["notices"].as_array().expect("notices");
    for part in ["durability disabled", "100 % of the bytes"] {
        let known = notices.iter().any(|notice| notice.as_str().is_some_and(|n| n.contains(part)));
        assert!(known && ended.stderr.contains(part), "{part:?}: {notices:?}, {}", ended.stderr);
    }
    assert_eq!(kept["bench"]["durability_disabled"], serde_json::json!([target]), "{kept}");
    assert!(ended.stdout.contains(&format!("\ndurability disabled: {target}\n")), "{ended:?}");
}

#[test]
fn durability_is_told_of_each_disk_that_gives_it_up_also_below_another_and_of_no_other() {
    let folder = Folder::new();
    let over = r"linear:ram:1MiB\,barriers=off";
    let told = |words: &[&str]| {
        let ended = attempt(&folder, &[&["bench"], words, &["--json"]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        parse(&ended.stdout)["durability_disabled"].clone()
    };
    let words = ["--rw", "write", "--size", "4k", "--target"];
    assert_eq!(told(&[&words[..], &[over]].concat()), serde_json::json!([over]));
    assert_eq!(told(&[&words[..], &["ram:1MiB"]].concat()), serde_json::Value::Null);
}

#[test]
fn a_log_on_the_disk_of_its_data_is_refused_whatever_it_is_called() {
    let folder = Folder::new();
    let _daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "64MiB", "")]);
    let first = format!("nbd+unix:{}", folder.socket().display());
    let named = format!("{first}?sda");
    let words = ["bench", "oltp", "--target", &first, "--redo", &named, "--runtime", "1s"];
    expect_refused(&folder, &words, &[&first, "one device under two names"]);
}

/// A program whose standard output is not read, and what came of it.
fn unread(folder: &Folder, words: &[&str], out: &str) -> Ended {
    let mut shell = program("/bin/sh");
    let script = "exec 3>&1; ( \"$@\"; echo $? >&3 ) ";
    shell.arg("-c").arg(format!("{script}{out}")).arg("sh").arg(WEIR).args(words);
    shell.current_dir(folder.path());
    Running::start(shell).end()
}

#[test]
fn a_reader_who_has_left_is_no_failure_and_a_full_disk_is() {
    let folder = Folder::new();
    let bench = ["bench", "--target", "null:1MiB", "--runtime", "10ms", "--ramp-time", "0"];
    let json = [&bench[..], &["--json"]].concat();
    let core = ["bench", "core", "--scheduler", "none", "--runtime", "10ms"];
    let list = ["schedulers"];
    for words in [&bench[..], &json, &core, &list, &["schedulers", "--json"]] {
        let full = unread(&folder, words, ">/dev/full");
        assert_eq!(full.stdout.trim(), "2", "weir {words:?}: {full:?}");
        assert!(full.stderr.contains("weir: standard output: "), "weir {words:?}: {full:?}");
        // The pipe has no reader before the first byte is written.
        let left = unread(&folder, words, "| true");
        assert_eq!(left.stdout.trim(), "0", "weir {words:?}: {left:?}");
        assert!(!left.stderr.contains("panicked"), "weir {words:?}: {left:?}");
    }
}

#[test]
fn a_server_that_vanishes_ends_the_run_which_keeps_what_it_has_measured() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "1MiB", "")]);
    let target = format!("nbd+unix:{}?sda,io_timeout=2000", folder.socket().display());
    let words = ["bench", "--target", &target, "--rw", "write", "--runtime", "1h"];
    let more = ["--ramp-time", "0", "--save", "kept.json", "--quiet"];
    let running = start(&folder, &[&words[..], &more].concat());
    wait_for_writes(&folder.image("sda"), 100);
    daemon.kill();
    partial(&folder, &running.end(), &[&target, "write of 4096 bytes at byte"]);
}

#[test]
fn a_full_disk_ends_the_run_which_keeps_what_it_has_measured() {
    let folder = Folder::new();
    let mut apart = program("unshare");
    apart.args(["--map-root-user", "--mount", "/bin/sh", "-c"]);
    let small = folder.near("small");
    fs::create_dir(&small).expect("a folder");
    let script = "mount -t tmpfs -o size=4m none small || exit 9; shift 0; exec \"$0\" \"$@\"";
    apart.arg(script).arg(WEIR).current_dir(folder.path());
    apart.args(["bench", "--target", "file:small/disk.img,size=16MiB", "--rw", "write"]);
    apart.args(["--bs", "64k", "--runtime", "1h", "--ramp-time", "0", "--save", "kept.json"]);
    let ended = Running::start(apart).end();
    if ended.code == Some(9) || ended.stderr.contains("unshare failed") {
        return leave_out("no file system of our own can be mounted here");
    }
    partial(&folder, &ended, &["file:small/disk.img", "write of 65536 bytes", "no space left"]);
}

#[test]
fn cpu_time_is_that_of_the_measured_time_and_of_no_other() {
    let folder = Folder::new();
    // The verification, which reads back at the end, is not measured.
    let job = "[a]\nrw=write\nbs=64k\nsize=96m\nverify=crc32c\nramp_time=0\n";
    fs::write(folder.near("a.fio"), job).expect("a file");
    let words = ["bench", "a.fio", "--target", "ram:96MiB", "--save", "kept.json", "--quiet"];
    let mut shell = program("sh");
    // The shell's last line has the CPU time of its children, by mode.
    shell.args(["-c", "\"$0\" \"$@\" > /dev/null && times", WEIR]).args(words);
    shell.current_dir(folder.path());
    let said = Running::start(shell).succeed().stdout;
    let times = said.lines().last().expect("times").split(['m', 's', ' ']);
    let times: Vec<f64> = times.filter_map(|number| number.parse().ok()).collect();
    let all: f64 = times.chunks(2).map(|time| time[0] * 60.0 + time[1]).sum();
    let kept = parse(&fs::read_to_string(folder.near("kept.json")).expect("a document"));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {value}"));
    let bench = &kept["bench"];
    let seconds = number(&bench["duration_s"]);
    assert_eq!(number(&bench["makespan_ns"]), (seconds * 1e9).round());
    let cpu = &bench["cpu"];
    let used = number(&cpu["user_s"]) + number(&cpu["sys_s"]);
    let of_ios = number(&cpu["ns_per_io"]) * number(&bench["ios"]) / 1e9;
    assert!((used - of_ios).abs() < 1e-6, "{used} s by mode, {of_ios} s by I/O");
    assert!(used < 0.9 * all, "{used} s of CPU time, of {all} s with what was read back");
    let cores = kept["cores"].as_array().expect("what each CPU did");
    assert!(!cores.is_empty(), "no CPU had anything to do, and none was idle");
    for core in cores {
        let parts = ["user_s", "sys_s", "idle_s", "steal_s"].map(|part| number(&core[part]));
        let sum: f64 = parts.iter().sum();
        assert!((sum - seconds).abs() < 1e-6, "{core} in {seconds} s");
    }
}

/// Kills `oltp` on this target once it has told of commits, without a word.
#[track_caller]
fn kill_oltp(folder: &Folder, target: &str, tellings: usize, more: &[&str]) {
    let commits = folder.near("commits");
    fs::write(&commits, "").expect("a file of commits");
    let words = ["bench", "oltp", "--target", target, "--commits", "commits", "--runtime", "1h"];
    let users = ["--users", "8", "--quiet"];
    let running = start(folder, &[&words[..], &users, more].concat());
    wait_for_writes(&commits, tellings);
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, None);
}

const CHECK: [&str; 6] = ["bench", "oltp", "--check", "--commits", "commits", "--target"];

/// How many commits of the last run were looked for and found.
#[track_caller]
fn looked_for(folder: &Folder, target: &str) -> u64 {
    count_of(&told(folder, &[&CHECK[..], &[target]].concat()))
}

#[track_caller]
fn count_of(said: &str) -> u64 {
    let count = said.split(' ').next().and_then(|word| word.parse().ok());
    count.unwrap_or_else(|| panic!("a count, not {said}"))
}

/// How many acknowledged commits were looked for and found, which are all in the file.
#[track_caller]
fn found(folder: &Folder, target: &str, more: &[&str]) -> u64 {
    let count = count_of(&told(folder, &[&CHECK[..], &[target], more].concat()));
    let text = fs::read_to_string(folder.near("commits")).expect("a file of commits");
    assert_eq!(count, text.lines().filter(|line| line.starts_with("commit ")).count() as u64);
    count
}

#[test]
fn a_database_that_is_killed_has_every_commit_it_acknowledged() {
    let folder = Folder::new();
    let target = format!("file:{},size=64MiB", folder.image("disk").display());
    // The same disk again and again: what another run has left there must not matter.
    for tellings in [10, 50, 500] {
        kill_oltp(&folder, &target, tellings, &[]);
        assert!(found(&folder, &target, &[]) > 0);
    }
    let json = parse(&told(&folder, &[&CHECK[..], &[&target, "--json"]].concat()));
    assert!(json["lost"].is_null() && json["found"]["commits"].as_u64() > Some(0), "{json}");
    let refused = [&CHECK[..], &[&target, "--runtime", "1s"]].concat();
    expect_refused(&folder, &refused, &["--runtime", "--check"]);
    // And one that lost its log is found out.
    let image = fs::OpenOptions::new().write(true).open(folder.image("disk")).expect("the image");
    image.set_len(32 << 20).expect("a shorter image");
    image.set_len(64 << 20).expect("a longer image");
    let ended = attempt(&folder, &[&CHECK[..], &[&target]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("acknowledged commits are lost"), "{}", ended.stderr);
}

#[test]
fn a_file_of_commits_survives_a_run_that_is_refused_and_a_line_without_its_end() {
    let folder = Folder::new();
    let target = format!("file:{},size=64MiB", folder.image("disk").display());
    kill_oltp(&folder, &target, 10, &[]);
    let before = found(&folder, &target, &[]);
    let commits = folder.near("commits");
    let run = ["bench", "oltp", "--target", &target, "--commits", "commits", "--runtime", "200ms"];
    // More sessions than an instance takes, of which there are as many as CPUs.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 16 {
        let many = [&run[..], &["--users", "1000", "--threads", "64"]].concat();
        expect_refused(&folder, &many, &["--users times --threads", "1..=4000"]);
        assert_eq!(found(&folder, &target, &[]), before, "another run hides what was acknowledged");
    } else {
        leave_out(&format!("a run that is refused late: {cpus} CPUs take all sessions there are"));
    }
    let mut file = fs::OpenOptions::new().append(true).open(&commits).expect("a file of commits");
    file.write_all(b"commit 0 99").expect("a line without its end");
    assert_eq!(looked_for(&folder, &target), before);
    told(&folder, &[&run[..], &["--users", "8", "--quiet"]].concat());
    let text = fs::read_to_string(&commits).expect("a file of commits");
    assert!(!text.contains("commit 0 99run"), "a run begins within a line");
    let after = text.rsplit_once(" disk 1 of 1 at ").map_or("", |(_, after)| after);
    let count = after.lines().filter(|line| line.starts_with("commit ")).count() as u64;
    assert!(count > 0);
    assert_eq!(looked_for(&folder, &target), count);
    // As a run that knew nothing of unfinished lines has left it.
    let heading = text.rfind(" data disk 1 of 1 at ").and_then(|at| text[..at].rfind('\n'));
    let heading = heading.expect("two runs") + 1;
    let old = format!("{}commit 0 99{}", &text[..heading], &text[heading..]);
    fs::write(&commits, old).expect("a file of commits");
    assert_eq!(looked_for(&folder, &target), count);
}

#[test]
fn a_log_that_starts_over_leaves_every_acknowledged_change_in_the_data() {
    let folder = Folder::new();
    let instances = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    let data = format!("file:{},size=64MiB", folder.image("disk").display());
    // The least that an instance takes: 64 blocks, seven commits each at most.
    let bytes = instances << 18;
    let redo = format!("file:{},size={bytes}", folder.image("redo").display());
    let apart = ["--redo", redo.as_str()];
    kill_oltp(&folder, &data, 800 * instances, &apart);
    // The file of commits says where the log is.
    assert!(found(&folder, &data, &[]) > 0);
    let commits = found(&folder, &data, &apart);
    let rounds = commits / (7 * 64 * instances as u64);
    assert!(rounds >= 2, "{commits} commits are {rounds} rounds of the log");
    // Blocks that only commits changed whose redo has long been overwritten: the first of each.
    let text = fs::read_to_string(folder.near("commits")).expect("a file of commits");
    let mut last = std::collections::BTreeMap::new();
    let mut ranges = std::collections::BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["commit", instance, id, blocks] => {
                let id: u64 = id.parse().expect("a number");
                last.extend(blocks.split(',').map(|block| ((instance, block), id)));
            }
            ["run", _, "instance", instance, "data", range, ..] => {
                let offset = range.split_once('+').expect("a range").0;
                ranges.insert(instance, offset.parse::<u64>().expect("a number"));
            }
            ["run", _, "data" | "redo", "disk", ..] => {}
            _ => panic!("{line}"),
        }
    }
    let lost: Vec<_> = last.iter().filter(|(_, id)| **id < 100).collect();
    assert!(!lost.is_empty(), "each block of the first commits was changed again");
    let image = fs::OpenOptions::new().write(true).open(folder.image("disk")).expect("the image");
    for ((instance, block), _) in lost {
        let at = ranges[instance] + block.parse::<u64>().expect("a number") * 8192;
        std::os::unix::fs::FileExt::write_all_at(&image, &[0; 8192], at).expect("a write");
    }
    let ended = attempt(&folder, &[&CHECK[..], &[&data], &apart].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("was never written"), "{}", ended.stderr);
}

/// Files of a group, as flags: so many of `flag`, each with its size.
fn group(folder: &Folder, flag: &str, names: &[&str], mib: u64) -> Vec<String> {
    let target = |name: &&str| format!("file:{},size={mib}MiB", folder.image(name).display());
    names.iter().flat_map(|name| [String::from(flag), target(name)]).collect()
}

#[test]
fn a_database_on_groups_of_disks_that_is_killed_has_every_commit_it_acknowledged() {
    let folder = Folder::new();
    let data = group(&folder, "--target", &["d0", "d1", "d2"], 16);
    let redo = group(&folder, "--redo", &["r0", "r1"], 2);
    let commits = folder.near("commits");
    for tellings in [10, 100, 2000] {
        fs::write(&commits, "").expect("a file of commits");
        let words = ["bench", "oltp", "--commits", "commits", "--runtime", "1h", "--users", "8"];
        let words: Vec<&str> = words.into_iter().chain(["--quiet"]).collect();
        let disks: Vec<&str> = data.iter().chain(&redo).map(String::as_str).collect();
        let running = start(&folder, &[&words[..], &disks].concat());
        wait_for_writes(&commits, tellings);
        running.signal(Signal::KILL);
        assert_eq!(running.end().code, None);
        // The file of commits says where the log is.
        let more: Vec<&str> = data[2..].iter().map(String::as_str).collect();
        assert!(found(&folder, &data[1], &more) > 0);
    }
    // Each disk holds its part: none can be given in the place of another, or left out.
    let check: Vec<&str> = CHECK[..5].to_vec();
    let turned: Vec<&str> =
        ["--target", &data[3], "--target", &data[1], "--target", &data[5]].to_vec();
    expect_refused(&folder, &[&check[..], &turned].concat(), &["data of the run", "order"]);
    expect_refused(&folder, &[&check[..], &turned[..4]].concat(), &["3 disks", "names 2"]);
    // The name of a disk, and its size if it is to be made, do not tell it from others.
    let bare = ["d0", "d1", "d2"].map(|name| format!("file:{}", folder.image(name).display()));
    let [d0, d1, d2] = [0, 1, 2].map(|disk| bare[disk].as_str());
    assert!(found(&folder, d0, &["--target", d1, "--target", d2]) > 0);
    let turned = ["--target", d1, "--target", d0, "--target", d2];
    expect_refused(&folder, &[&check[..], &turned].concat(), &["data of the run", "order"]);
    // And one that is not there is none that lost something.
    let aside = folder.image("aside");
    fs::rename(folder.image("d1"), &aside).expect("a disk that goes");
    let missing = [&check[..], &data.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    expect_refused(&folder, &missing, &[&format!("{}", folder.image("d1").display())]);
    assert!(!folder.image("d1").exists(), "looking at a disk made it");
    fs::rename(&aside, folder.image("d1")).expect("a disk that comes back");
    for lost in ["r0", "r1", "d0", "d2"] {
        let kept = fs::read(folder.image(lost)).expect("a disk");
        fs::write(folder.image(lost), vec![0; kept.len()]).expect("an empty disk");
        let more: Vec<&str> = data.iter().map(String::as_str).collect();
        let ended = attempt(&folder, &[&check[..], &more].concat());
        assert_eq!(ended.code, Some(1), "without {lost}: {ended:?}");
        fs::write(folder.image(lost), kept).expect("the disk as it was");
    }
}

#[test]
fn a_group_that_cannot_be_is_refused_with_its_disk_its_size_and_the_bound() {
    let folder = Folder::new();
    let oltp = ["bench", "oltp", "--runtime", "10ms"];
    let refused = |disks: &[&str], parts: &[&str]| {
        expect_refused(&folder, &[&oltp[..], disks].concat(), parts);
    };
    let twice = ["--target", "file:a.img,size=8MiB", "--target", "file:./a.img,size=8MiB"];
    refused(&twice, &["file:a.img,size=8MiB and file:./a.img,size=8MiB are one device"]);
    let both = ["--target", "ram:8MiB", "--target", "file:b,size=8M", "--redo", "file:./b,size=8M"];
    refused(&both, &["--redo file:./b,size=8M is a disk of the data"]);
    let small = ["--target", "ram:8MiB", "--target", "ram:64KiB"];
    refused(&small, &["ram:64KiB has 65536 bytes", "1048576"]);
    let redo = ["--target", "ram:8MiB", "--redo", "ram:16KiB"];
    refused(&redo, &["ram:16KiB: 16384 bytes for the redo", "262144"]);
    let group = ["--target", "ram:8MiB", "--target", "ram:9MiB"];
    let words = [&["bench", "vdbench"][..], &group].concat();
    expect_refused(&folder, &words, &["2 times", "oltp", "striped:1MiB:ram:8MiB+ram:9MiB"]);
    for words in [&["--iodepth", "4"][..], &["oltp", "--kernel-scheduler", "none,bfq"]] {
        let words = [&["compare"][..], words, &group].concat();
        expect_refused(&folder, &words, &["--target is given 2 times"]);
    }
}

#[test]
fn a_run_on_groups_says_what_each_disk_was() {
    let folder = Folder::new();
    let words = ["bench", "oltp", "--target", "ram:32MiB", "--target", "ram:33MiB,scheduler=kyber"];
    let redo = ["--redo", "ram:8MiB", "--redo", "ram:9MiB", "--save", "kept.json", "--quiet"];
    let time = ["--runtime", "200ms", "--ramp-time", "0", "--json"];
    let said = parse(&told(&folder, &[&words[..], &redo, &time].concat()));
    assert_eq!(said["target"], "ram:32MiB ram:33MiB,scheduler=kyber");
    let job = &said["job"];
    assert_eq!((&job["redo"], &job["stripe"]), (&"ram:8MiB ram:9MiB".into(), &(1 << 20).into()));
    assert_eq!(job["data_disks"][1]["options"]["scheduler"], "kyber");
    assert_eq!(job["redo_disks"][1]["target"], "ram:9MiB");
    told(&folder, &["report", "kept.json", "-o", "kept.html", "--markdown", "kept.md"]);
    let page = fs::read_to_string(folder.near("kept.md")).expect("a report");
    assert!(page.contains("data disk") && page.contains("ram:33MiB,scheduler=kyber: "), "{page}");
}

#[test]
fn commits_over_nbd_are_on_the_disk_of_a_server_that_is_killed() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "64MiB", "")]);
    let target = format!("nbd+unix:{}?sda,io_timeout=2000", folder.socket().display());
    let commits = folder.near("commits");
    fs::write(&commits, "").expect("a file of commits");
    let words = ["bench", "oltp", "--target", &target, "--commits", "commits", "--runtime", "1h"];
    let running = start(&folder, &[&words[..], &["--users", "8", "--quiet"]].concat());
    wait_for_writes(&commits, 100);
    daemon.kill();
    let ended = running.end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let target = format!("file:{}", folder.image("sda").display());
    assert!(found(&folder, &target, &[]) > 0);
}

#[test]
fn each_preset_runs_and_prints_the_table_of_its_document() {
    let folder = Folder::new();
    for (preset, parts) in [
        (
            "vdbench",
            &[
                "8 threads read",
                "64 threads write",
                "document, after             81217     135867     205450     247028",
                "computed, % reduction        13.1       26.8       37.7       34.0",
                "CPU busy (sys), %",
                "document, before              4.5       12.1       20.2       24.9",
                "document, after               3.7        5.8        6.5        7.5",
                "where its own rows give 37.7 and 34.0",
            ][..],
        ),
        ("hdparm", &["cached", "1485.04", "averages since boot", "no page cache, ram:512MiB"]),
        ("dd32", &["of each of 32 writers", "max/min", "document, low_latency=1"]),
        ("streams", &["read", "document: close to 12"]),
        (
            "hpc",
            &["data write", "metadata read", "metadata write", "13.6 % less", "7 times as much"],
        ),
        ("oltp", &["data read", "redo write", "executions", "228886", "-26 %", "commits a second"]),
    ] {
        let words = ["bench", preset, "--target", "ram:512MiB", "--ramp-time", "0", "--quiet"];
        let time = match preset {
            // Its writers have an end of their own.
            "dd32" => "1h",
            // Its writes of metadata are few beside those of 1 MiB.
            "hpc" => "4s",
            _ => "400ms",
        };
        let said = told(&folder, &[&words[..], &["--runtime", time]].concat());
        for part in parts {
            assert!(said.contains(part), "{preset} does not print {part:?} but {said}");
        }
    }
}

#[test]
fn the_dd_experiment_has_a_disk_of_its_own_and_says_on_others_what_to_expect() {
    let folder = Folder::new();
    // A tenth of what the document's writers wrote.
    let words = ["bench", "dd32", "--size", "32m", "--quiet"];
    let said = told(&folder, &words);
    for part in [
        "of each of 32 writers with low_latency=1",
        "of each of 32 writers with low_latency=0",
        "here, low_latency=1",
        "here, low_latency=0",
        "document, low_latency=1        2.625     1.86      0.134       4.978",
        "document, low_latency=0        0.788     5.20      0.460       3.505",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let parsed = parse(&told(&folder, &[&words[..], &["--json"]].concat()));
    let (jobs, groups) = (&parsed["job"]["jobs"], &parsed["groups"]);
    let disk = "model:dd32,size=1GiB,depth=2,queue_mode=sq,scheduler=cfq,low_latency=";
    for (stage, level) in [(0, 1), (1, 0)] {
        let group = &groups[stage];
        assert_eq!(group["name"], format!("low_latency={level}"));
        assert_eq!((&group["op"], &group["ios"]), (&"write".into(), &256.into()));
        let target = &jobs[stage]["target"];
        assert!(stage == 0 || *target == format!("{disk}{level}"), "{target}");
    }
    assert_eq!(parsed["target"], format!("{disk}1 {disk}0"));
    let on_memory = ["bench", "dd32", "--target", "ram:512MiB", "--quiet"];
    let said = start(&folder, &on_memory).end();
    let wanted = "all 128 I/Os of its writers fit in the driver of ram:512MiB";
    assert!(said.stderr.contains(wanted) && said.code == Some(0), "{said:?}");
}

#[test]
fn cpu_time_is_told_for_each_stage_that_has_a_name() {
    let folder = Folder::new();
    let words = ["bench", "vdbench", "--target", "ram:16MiB", "--ramp-time", "0", "--quiet"];
    let said = parse(&told(&folder, &[&words[..], &["--runtime", "800ms", "--json"]].concat()));
    let stages = said["stages"].as_array().expect("stages");
    let names: Vec<&Value> = stages.iter().map(|stage| &stage["name"]).collect();
    assert_eq!(names, ["8 threads", "16 threads", "32 threads", "64 threads"]);
    let sum = |of: &dyn Fn(&Value) -> f64| stages.iter().map(of).sum::<f64>();
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(
        (sum(&|stage| number(&stage["duration_s"])) - number(&said["duration_s"])).abs() < 1e-6
    );
    for mode in ["user_s", "sys_s"] {
        let all = number(&said["cpu"][mode]);
        assert!((sum(&|stage| number(&stage["cpu"][mode])) - all).abs() < 1e-6, "{mode}: {said}");
    }
    // Where the kernel did not tick there is none.
    let share =
        |stage: &Value| stage["sys_pct"].as_f64().is_none_or(|pct| (0.0..=100.0).contains(&pct));
    assert!(stages.iter().all(share), "{stages:?}");
    let one =
        ["bench", "--target", "ram:16MiB", "--runtime", "100ms", "--ramp-time", "0", "--json"];
    assert_eq!(parse(&told(&folder, &one))["stages"], Value::Null, "its stage has no name");
}

#[test]
fn transactions_are_told_where_there_are_some() {
    let folder = Folder::new();
    let words = ["bench", "oltp", "--target", "ram:64MiB", "--redo", "ram:16MiB", "--json"];
    let more = ["--runtime", "500ms", "--ramp-time", "0", "--quiet"];
    let said = parse(&told(&folder, &[&words[..], &more].concat()));
    let rate = |name: &str| said["transactions"][name].as_f64().expect("a rate");
    assert!(rate("executions_per_s") > rate("commits_per_s") && rate("commits_per_s") > 0.0);
    let names: Vec<_> =
        said["groups"].as_array().expect("groups").iter().map(|g| &g["name"]).collect();
    for name in ["data read", "redo write", "executions", "commit"] {
        assert!(names.contains(&&name.into()), "{name} is not among {names:?}");
    }
    // A job that is only called so has none.
    fs::write(folder.near("named.fio"), "[executions]\nrw=randread\nrandseed=42\nsize=1m\n")
        .expect("a file");
    let words = ["bench", "named.fio", "--target", "null:1MiB", "--json", "--quiet"];
    let said = parse(&told(&folder, &words));
    assert_eq!((&said["transactions"], &said["seed"]), (&Value::Null, &42.into()));
}

#[test]
fn an_option_of_a_target_that_is_given_as_a_flag_is_told_as_one() {
    let folder = Folder::new();
    let words = ["bench", "--target", "null:1MiB", "--scheduler", "bfq"];
    expect_refused(&folder, &words, &["--scheduler", "--target TARGET,scheduler=VALUE"]);
}
