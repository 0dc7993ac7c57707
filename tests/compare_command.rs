//! `weir compare --run`: a command under each of the kernel's schedulers, the device as it was
//! afterwards, and nothing of the command left running. And what else holds for block devices of
//! the kernel.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use daemon::loop_device::Loop;
use daemon::outside::{leave_out, mortal};
use daemon::program::{Ended, Running, program, run};
use daemon::words::{attempt, expect_refused};
use daemon::{Folder, WEIR, weir};
use rustix::process::Signal;
use serde_json::Value;

fn compare(folder: &Folder, words: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.args(["compare", "--quiet"]).args(words);
    Running::start(command).end()
}

fn saved(folder: &Folder, name: &str) -> Value {
    let text = fs::read_to_string(folder.near(name)).expect("it is saved");
    serde_json::from_str(&text).expect("JSON")
}

fn runs(document: &Value) -> &Vec<Value> {
    document["runs"].as_array().expect("runs")
}

/// 64 writes of 4 KiB to the device itself.
fn writes(device: &Loop) -> String {
    let device = device.device.display();
    format!("dd if=/dev/zero of={device} bs=4k count=64 oflag=direct 2>/dev/null")
}

#[test]
fn a_command_runs_under_each_scheduler_and_the_device_is_left_as_it_was() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let (before, name) = (device.state(), device.name());
    let scheduler = device.queue().join("scheduler").display().to_string();
    let command = format!(
        "{}; cat {scheduler}; echo of $WEIR_VARIANT $WEIR_SCHEDULER $WEIR_ROUND $WEIR_DEVICE; \
         echo score $((WEIR_ROUND + 10)).5",
        writes(&device)
    );
    let words = ["--kernel-scheduler", "none,bfq", "--device", &name, "--run", &command];
    let also = ["--figure", "score ([0-9.]+)", "--rounds", "3", "--save", "runs.json"];
    let ended = compare(&folder, &[&words[..], &also].concat());
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    assert_eq!(device.state(), before);
    assert!(!Path::new(&device.state_file()).exists());
    let document = saved(&folder, "runs.json");
    assert_eq!(
        (&document["target"], &document["compare"]["metric"]),
        (&name.as_str().into(), &"figure".into())
    );
    for run in runs(&document) {
        let (variant, round) = (run["variant"].as_str().expect("a name"), &run["round"]);
        let bench = &run["document"]["bench"];
        let output = bench["command_run"]["output"].as_str().expect("an output");
        assert!(output.contains(&format!("[{variant}]")), "{output}");
        let told = format!("of {variant} {variant} {round} {name}");
        assert!(output.contains(&told), "{output}");
        let figure = bench["command_run"]["figure"]["value"].as_f64().expect("a figure");
        assert_eq!(figure, round.as_f64().expect("a round") + 10.5);
        // What else is written on a device over a file is none of ours.
        let device = &bench["command_run"]["device"];
        let seconds = bench["command_run"]["wall_s"].as_f64().expect("a time");
        let wrote = device["writes_per_s"].as_f64().expect("a rate") * seconds;
        assert!((63.5..200.0).contains(&wrote), "{device}");
        assert!(device["write_latency_ns"].is_f64() && device["utilisation"].is_f64(), "{device}");
    }
    assert!(ended.stdout.contains(&format!("{name}, in /proc/diskstats")), "{}", ended.stdout);
}

#[test]
fn a_run_that_fails_once_is_made_again_and_more_rounds_can_be_added() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let name = device.name();
    // A folder can be made once.
    let command = "if [ $WEIR_ROUND$WEIR_SCHEDULER = 2bfq ] && mkdir once; then exit 9; fi";
    let words = ["--kernel-scheduler", "none,bfq", "--device", &name, "--run", command];
    let setup =
        ["--setup", "echo >> setup; sleep 1000 & echo $! > left", "--between", "echo >> each"];
    let also = ["--max-rounds", "5", "--save", "runs.json"];
    let ended = compare(&folder, &[&words[..], &setup, &also].concat());
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    let document = saved(&folder, "runs.json");
    let why = |run: &Value| run["voided"].as_str().map(String::from).unwrap_or_default();
    let failed: Vec<_> = runs(&document).iter().filter(|run| why(run).contains("failed")).collect();
    let [failed] = failed[..] else { panic!("{failed:?}") };
    assert_eq!(why(failed), "failed: the command ended with status 9");
    let same = |run: &&Value| (&run["round"], &run["variant"]) == (&2.into(), &"bfq".into());
    assert!(runs(&document).iter().filter(same).count() > 1, "made again");
    let lines = |file: &str| fs::read_to_string(folder.near(file)).expect("a file").lines().count();
    assert_eq!((lines("setup"), lines("each")), (1, runs(&document).len()));
    let left = fs::read_to_string(folder.near("left")).expect("a number");
    let stat = fs::read_to_string(format!("/proc/{}/stat", left.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "it went with the comparison: {stat}");
    if let Some(told) = ended.stdout.lines().find(|line| line.starts_with("more rounds: ")) {
        assert!(told.ends_with("--continue runs.json"), "{told}");
    }
    let words = ["--continue", "runs.json", "--max-rounds", "5", "--save", "more.json"];
    let open =
        |mode| fs::set_permissions(folder.near("runs.json"), fs::Permissions::from_mode(mode));
    open(0o666).expect("its own");
    let refused = ["mode 0666", "others may have written it"];
    expect_refused(&folder, &[&["compare"], &words[..]].concat(), &refused);
    open(0o600).expect("its own");
    let ended = compare(&folder, &words);
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    let more = saved(&folder, "more.json");
    let last = runs(&more).last().map(|run| run["round"].clone());
    assert_eq!(last, Some(10.into()));
    assert_eq!(runs(&more)[..runs(&document).len()], runs(&document)[..]);
}

#[test]
fn a_command_that_always_fails_ends_it_with_its_last_lines_and_all_is_put_back() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let (before, name) = (device.state(), device.name());
    let words = ["--kernel-scheduler", "none,bfq", "--device", &name, "--rounds", "3"];
    let ended = compare(&folder, &[&words[..], &["--run", "echo no such table; exit 3"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in ["3 runs failed", "ended with status 3", "no such table"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    let hangs = ["--run", "echo waits; sleep 1000", "--run-timeout", "50ms"];
    let ended = compare(&folder, &[&words[..], &hangs].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("did not end within 50ms"), "{}", ended.stderr);
    let figure = ["--run", "echo nothing", "--figure", "tps = ([0-9]+)"];
    let ended = compare(&folder, &[&words[..], &figure].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for part in [r#""tps = ([0-9]+)" is not found"#, "printed:\nnothing"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    let setup = ["--run", "echo > ran", "--setup", "echo no room; exit 4"];
    let ended = compare(&folder, &[&words[..], &setup].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--setup: it ended with status 4"), "{}", ended.stderr);
    assert!(!folder.near("ran").exists(), "nothing is run after that");
    assert_eq!(device.state(), before);
    assert!(!Path::new(&device.state_file()).exists());
}

#[test]
fn the_device_is_put_back_and_the_command_ended_on_a_signal() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let (before, name) = (device.state(), device.name());
    let begun = |file: &str| {
        let command = format!("echo $$ > {file}; sleep 1000 & wait");
        let mut weir = weir(&folder);
        weir.args(["compare", "--quiet", "--kernel-scheduler", "bfq,none", "--device", &name]);
        weir.args(["--run", &command]);
        let running = Running::start(weir);
        let path = folder.near(file);
        let pid = loop {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<u32>() {
                break pid;
            }
            std::thread::yield_now();
        };
        (running, pid)
    };
    for (signal, file) in [(Signal::INT, "int"), (Signal::TERM, "term")] {
        let (running, pid) = begun(file);
        running.signal(signal);
        assert_eq!(running.end().code, Some(2), "{signal:?}");
        assert_eq!(device.state(), before, "{signal:?}");
        expect_over(pid);
    }
    let (running, pid) = begun("kill");
    running.signal(Signal::KILL);
    let _ = running.end();
    // What was killed could end nothing.
    run("kill", &["-KILL", "--", &format!("-{pid}")]);
    let state = device.state_file();
    let ended = attempt(&folder, &["compare", "--put-back", &state]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(device.state(), before);
}

/// That no process of this group goes on.
#[track_caller]
fn expect_over(group: u32) {
    let listed = fs::read_dir("/proc").expect("processes").flatten();
    for entry in listed {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let is_of_it = fields.get(2) == Some(&group.to_string().as_str());
        assert!(!is_of_it || fields[0] == "Z", "{stat}");
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is() {
    let folder = Folder::new();
    let run = ["compare", "--kernel-scheduler", "none,bfq", "--run", "echo > ran"];
    let here = folder.path().display().to_string();
    for (words, parts) in [
        (&["--device", "/dev/null"][..], &["--device /dev/null is no block device"][..]),
        (&["--device", "nosuchdisk"], &["nosuchdisk: neither a block device nor a path"]),
        (&["--device", "/proc"], &["(proc) that is on no block device"]),
        (&[], &["--device <DEV>"]),
        (&["--device", &here, "--a", "x"], &["--a and --run both say"]),
        (&["--device", &here, "--bs", "4k"], &["--bs and --run both say"]),
        (&["--device", &here, "--target", "ram:1MiB"], &["--target", "--run"]),
        (&["--device", &here, "--figure", "tps"], &["--figure", "no group"]),
        (&["--device", &here, "--figure", "(x"], &["--figure", "unclosed group"]),
        (&["--device", &here, "--unit", "ms"], &["--figure <REGEX>"]),
        (&["--device", &here, "--metric", "figure"], &["--metric figure: there is no --figure"]),
        (&["--device", &here, "--metric", "latency_p99_ns"], &["counts means alone"]),
        (&["--device", &here, "--run-timeout", "0"], &["--run-timeout", "1ms"]),
    ] {
        expect_refused(&folder, &[&run[..], words].concat(), parts);
    }
    let one = ["compare", "--kernel-scheduler", "none", "--device", &here, "--run", "echo > ran"];
    expect_refused(&folder, &one, &["none", "one scheduler"]);
    let none = ["compare", "--device", &here, "--run", "echo > ran"];
    expect_refused(&folder, &none, &["--kernel-scheduler <NAMES>"]);
    let alone = ["compare", "--figure", "(x)"];
    expect_refused(&folder, &alone, &["--run <COMMAND>"]);
    assert!(!folder.near("ran").exists());
    assert!(!folder.near("weir-data").exists());
}

#[test]
fn users_other_than_root_are_told_so_before_anything_runs() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let before = device.state();
    let mut command = mortal("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", WEIR, "compare"]);
    command.args(["--kernel-scheduler", "none,bfq", "--run", "echo > ran"]);
    command.args(["--device", &device.name()]).current_dir("/");
    let ended = Running::start(command).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("only root may switch schedulers"), "{}", ended.stderr);
    assert_eq!(device.state(), before);
}

#[test]
fn a_job_on_a_block_device_is_deep_and_has_the_threads_that_it_asks_for() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let target = device.target();
    let bench = |also: &[&str]| {
        let words = ["bench", "--target", &target, "--rw", "randread", "--json"];
        let length = ["--runtime", "300ms", "--ramp-time", "0"];
        let ended = attempt(&folder, &[&words[..], &length, also].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str::<Value>(&ended.stdout).expect("JSON")
    };
    let deep = bench(&[]);
    assert_eq!(deep["job"]["iodepth"], 32);
    // All CPUs of the machine, and what they did for each I/O.
    let cores = deep["cores"].as_array().expect("a list");
    let busy = |core: &Value| {
        core["user_s"].as_f64().expect("a time") + core["sys_s"].as_f64().expect("a time")
    };
    let machine: f64 = cores.iter().map(busy).sum();
    let told = |name: &str| deep["cpu"][name].as_f64().expect("a time");
    assert!((told("machine_s") - machine).abs() < 1e-9, "{deep}");
    let ios = deep["ios"].as_f64().expect("a count");
    assert!((told("machine_ns") / (machine * 1e9 / ios) - 1.0).abs() < 1e-9, "{deep}");
    assert_eq!(bench(&["--iodepth", "2"])["job"]["iodepth"], 2);
    assert_eq!(bench(&["--ioengine", "psync"])["job"]["iodepth"], 1);
    let memory =
        attempt(&folder, &["bench", "--target", "ram:1MiB", "--runtime", "200ms", "--json"]);
    let memory: Value = serde_json::from_str(&memory.stdout).expect("JSON");
    assert_eq!(
        (&memory["job"]["iodepth"], &memory["cpu"]["machine_ns"]),
        (&1.into(), &Value::Null)
    );

    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let clones = cpus + 3;
    let mut command = weir(&folder);
    command.args(["bench", "--target", &target, "--rw", "randread", "--runtime", "1d", "--quiet"]);
    command.args(["--numjobs", &clones.to_string()]);
    let mut running = Running::start(command);
    let tasks = format!("/proc/{}/task", running.pid().as_raw_nonzero());
    let named = || {
        let listed = fs::read_dir(&tasks).into_iter().flatten().flatten();
        let names = listed.filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok());
        names.filter(|name| name.starts_with("bench-")).count()
    };
    // With others it would go on until the test gives up on it. A thread that one of them has just
    // started has its name for a moment.
    let began = std::time::Instant::now();
    let mut alike = 0;
    while alike < 10 && running.is_running() && began.elapsed() < daemon::PATIENCE {
        std::thread::yield_now();
        alike = if named() == clones { alike + 1 } else { 0 };
    }
    assert_eq!(alike, 10, "{} threads", named());
    running.signal(Signal::INT);
    running.end();
}

/// In a mount namespace of its own: `$1` device, `$2` weir, `$3` folder for what it saves.
const POSTGRESQL: &str = r#"
set -eu
mkfs.ext4 -q "$1"
mount "$1" /mnt
bin=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -n 1)
as() { (cd /mnt && setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"); }
install -d -o postgres /mnt/pg
as "$bin/initdb" --auth=trust -D /mnt/pg/data
as "$bin/pg_ctl" -D /mnt/pg/data -w -l /mnt/pg/log -o "-k /mnt/pg -c listen_addresses=" start
trap 'as "$bin/pg_ctl" -D /mnt/pg/data -w -m immediate stop; cd /; umount /mnt' EXIT
as "$bin/createdb" -h /mnt/pg bench
cd "$3"
"$2" compare --kernel-scheduler none,mq-deadline,bfq --device /mnt/pg --rounds 3 --quiet \
    --setup "$bin/pgbench -h /mnt/pg -U postgres -i -s 2 -q bench" \
    --between "$bin/psql -h /mnt/pg -U postgres -qc CHECKPOINT bench" \
    --run "$bin/pgbench -h /mnt/pg -U postgres -c 4 -j 2 -T 1 bench" \
    --figure 'tps = ([0-9.]+)' --unit tps --save runs.json
"#;

#[test]
#[ignore = "needs losetup, mkfs.ext4, mount, postgresql"]
fn pgbench_is_compared_under_all_schedulers_of_the_disk_below_its_file_system() {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.split_whitespace().any(|name| name == "ext4") {
        leave_out("needs ext4 in the kernel");
        return;
    }
    let folder = Folder::new();
    let Some(device) = Loop::of(&folder, 1 << 30) else { return };
    let before = device.state();
    let mut command = program("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["bash", "-c", POSTGRESQL, "bash"]).arg(&device.device).arg(WEIR);
    command.arg(folder.path());
    let ended = Running::start(command).end();
    assert!(ended.code.is_some_and(|code| code == 0 || code == 2), "{ended:?}");
    println!("{}", ended.stdout);
    assert_eq!(device.state(), before);
    let document = saved(&folder, "runs.json");
    assert!(runs(&document).len() >= 9, "{ended:?}");
    for run in runs(&document) {
        let command_run = &run["document"]["bench"]["command_run"];
        assert_eq!(run["document"]["failure"], Value::Null, "{run}");
        assert!(command_run["figure"]["value"].as_f64().is_some_and(|tps| tps > 0.0), "{run}");
        assert_eq!(command_run["figure"]["unit"], "tps");
        let device = &command_run["device"];
        for figure in ["writes_per_s", "write_bytes_per_s", "utilisation", "depth_mean"] {
            assert!(device[figure].as_f64().is_some_and(|value| value > 0.0), "{figure}: {run}");
        }
        // The server is no child of the client; its time is in the machine's.
        let cpu = &run["document"]["bench"]["cpu"];
        let of_command = cpu["user_s"].as_f64().zip(cpu["sys_s"].as_f64());
        let of_command = of_command.map(|(user, sys)| user + sys).expect("times");
        assert!(cpu["machine_s"].as_f64().is_some_and(|all| all > of_command), "{cpu}");
    }
    let tables = &ended.stdout;
    // The heading is in two lines.
    assert!(tables.contains("Figure of the ") && tables.contains("CPU, machine"), "{tables}");
}
