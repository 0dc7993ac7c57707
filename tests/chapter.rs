//! The shell commands of the documents that weir answers to, word for word: the tree is bound over
//! `/sys/block`, `/sys/class/block`, `/sys/module` and `/proc/diskstats` in a private mount
//! namespace.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use daemon::outside::leave_out;
use daemon::program::{Ended, Running, program};
use daemon::{Daemon, Folder, PATIENCE, WEIR, weir};
use rustix::process::Signal;

/// Between two looks whether a file is there.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A daemon with a mounted tree; `None` where that cannot be done.
fn mounted(folder: &Folder, disks: &[&str]) -> Option<Daemon> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        leave_out("mounting needs /dev/fuse and root");
        return None;
    }
    let tree = folder.near("tree");
    fs::create_dir(&tree).expect("a folder");
    let mut serve = weir(folder);
    serve.args(["serve", "--nbd", "unix:nbd.sock", "--tree"]).arg(&tree);
    disks.iter().for_each(|disk| _ = serve.args(["--disk", disk]));
    Some(Daemon::spawn(serve))
}

/// A shell that finds the tree where a kernel has its own.
#[track_caller]
fn shell(folder: &Folder, script: &str) -> Ended {
    let bind = "mount --bind \"$0/block\" /sys/block && mount --bind \"$0/block\" /sys/class/block \
        && mount --bind \"$0/module\" /sys/module \
        && mount --bind \"$0/proc/diskstats\" /proc/diskstats || exit 99\ncd \"$0\"\n";
    let mut command = program("unshare");
    command.args(["--mount", "bash", "-c", &format!("{bind}{script}")]).arg(folder.near("tree"));
    Running::start(command).end()
}

/// The output of a script, which has to succeed.
#[track_caller]
fn told(folder: &Folder, script: &str) -> String {
    let Ended { code, stdout, stderr } = shell(folder, script);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{script}\n{stdout}");
    stdout
}

#[test]
#[ignore = "needs unshare, mount"]
fn the_commands_of_the_chapter_choose_and_tune_a_legacy_disk() {
    let folder = Folder::new();
    let disk = "sda=ram:64MiB,queue_mode=sq,scheduler=cfq";
    let Some(daemon) = mounted(&folder, &[disk]) else { return };
    let shown = told(&folder, "cat /sys/block/sda/queue/scheduler");
    assert_eq!(shown.trim_end(), "noop deadline [cfq]");
    // The chapter's disk is one that seeks; cfq asks when it is attached.
    told(&folder, "echo 1 > /sys/block/sda/queue/rotational");
    for name in ["noop", "deadline", "cfq"] {
        let script = format!(
            "echo {name} > /sys/block/sda/queue/scheduler && cat /sys/block/sda/queue/scheduler"
        );
        assert!(told(&folder, &script).contains(&format!("[{name}]")), "{name}");
    }
    // Tables 12.1 and 12.2: what stands there, with the defaults that are stated.
    for (scheduler, tunables) in [
        (
            "cfq",
            &[
                ("slice_idle", "8"),
                ("group_idle", "8"),
                ("quantum", "8"),
                ("low_latency", "1"),
                ("target_latency", "300"),
                ("back_seek_max", "16384"),
                ("back_seek_penalty", "2"),
                ("fifo_expire_async", "250"),
                ("fifo_expire_sync", "125"),
            ][..],
        ),
        (
            "deadline",
            &[
                ("writes_starved", "2"),
                ("read_expire", "500"),
                ("write_expire", "5000"),
                ("front_merges", "1"),
                ("fifo_batch", "16"),
            ][..],
        ),
    ] {
        told(&folder, &format!("echo {scheduler} > /sys/block/sda/queue/scheduler"));
        for (tunable, default) in tunables {
            let file = format!("/sys/block/sda/queue/iosched/{tunable}");
            let script = format!("cat {file}; echo 1 > {file}; cat {file}; echo 0 > {file}");
            assert_eq!(told(&folder, &script), format!("{default}\n1\n"), "{scheduler} {tunable}");
        }
    }
    daemon.stop();
}

#[test]
#[ignore = "needs unshare, mount"]
fn the_commands_of_the_chapter_choose_and_tune_a_multi_queue_disk() {
    let folder = Folder::new();
    let Some(daemon) = mounted(&folder, &["sda=ram:64MiB,queues=1"]) else { return };
    let shown = told(&folder, "cat /sys/block/sda/queue/scheduler");
    assert_eq!(shown.trim_end(), "none [mq-deadline] kyber bfq");
    assert_eq!(told(&folder, "cat /sys/module/scsi_mod/parameters/use_blk_mq"), "Y\n");
    assert_eq!(told(&folder, "cat /sys/module/dm_mod/parameters/use_blk_mq"), "Y\n");
    assert_eq!(told(&folder, "cat /sys/class/block/sd*/queue/scheduler | head"), shown);
    // Tables 12.2 to 12.4, with their defaults; `timeout_sync` counts ticks of the kernel there.
    for (scheduler, tunables) in [
        (
            "mq-deadline",
            &[("read_expire", "500"), ("write_expire", "5000"), ("fifo_batch", "16")][..],
        ),
        (
            "bfq",
            &[
                ("slice_idle", "8"),
                ("slice_idle_us", "8000"),
                ("low_latency", "1"),
                ("back_seek_max", "16384"),
                ("back_seek_penalty", "2"),
                ("fifo_expire_async", "250"),
                ("fifo_expire_sync", "125"),
                ("max_budget", "0"),
                ("strict_guarantees", "0"),
            ][..],
        ),
        ("kyber", &[("read_lat_nsec", "2000000"), ("write_lat_nsec", "10000000")][..]),
    ] {
        told(&folder, &format!("echo {scheduler} > /sys/block/sda/queue/scheduler"));
        for (tunable, default) in tunables {
            let file = format!("/sys/block/sda/queue/iosched/{tunable}");
            let script = format!("cat {file}; echo {default} > {file}; cat {file}");
            let twice = format!("{default}\n{default}\n");
            assert_eq!(told(&folder, &script), twice, "{scheduler} {tunable}");
        }
    }
    told(&folder, "echo none > /sys/block/sda/queue/scheduler");
    let none = shell(&folder, "ls /sys/block/sda/queue/iosched");
    assert!(none.stderr.contains("No such file"), "{none:?}");
    let legacy = shell(&folder, "echo cfq > /sys/block/sda/queue/scheduler");
    assert!(legacy.stderr.contains("Invalid argument"), "{legacy:?}");
    daemon.stop();
}

/// The files of a folder with what they say, as `NAME VALUE` in the order of names.
const SHOW_IOSCHED: &str = "export LC_ALL=C
cd /sys/block/sda/queue/iosched && for file in *; do echo $file $(cat $file); done";

const TABLE_12_1: &str = "\
back_seek_max 16384
back_seek_penalty 2
fifo_expire_async 250
fifo_expire_sync 125
group_idle 8
group_idle_us 8000
low_latency 1
quantum 8
slice_async 40
slice_async_rq 2
slice_async_us 40000
slice_idle 8
slice_idle_us 8000
slice_sync 100
slice_sync_us 100000
target_latency 300
target_latency_us 300000
";

const TABLE_12_2: &str = "\
fifo_batch 16
front_merges 1
read_expire 500
write_expire 5000
writes_starved 3
";

const TABLE_12_3: &str = "\
back_seek_max 16384
back_seek_penalty 2
fifo_expire_async 250
fifo_expire_sync 125
low_latency 1
max_budget 0
slice_idle 8
slice_idle_us 8000
strict_guarantees 0
timeout_sync 124
";

const TABLE_12_4: &str = "read_lat_nsec 2000000\nwrite_lat_nsec 10000000\n";

#[test]
#[ignore = "needs unshare, mount"]
fn sles12_is_what_the_tables_say_on_disks_that_seek_and_on_others() {
    for (mode, rotational, list, tables) in [
        ("sq", 1, "noop deadline [cfq]", &[("cfq", TABLE_12_1), ("deadline", TABLE_12_2)][..]),
        ("sq", 0, "noop [deadline] cfq", &[("deadline", TABLE_12_2), ("cfq", TABLE_12_1)]),
        ("mq", 1, "[mq-deadline] kyber bfq none", MQ_TABLES),
        ("mq", 0, "[mq-deadline] kyber bfq none", MQ_TABLES),
    ] {
        let folder = Folder::new();
        let disk = format!(
            "sda=ram:64MiB,queue_mode={mode},queues=1,rotational={rotational},compat=sles12"
        );
        let Some(daemon) = mounted(&folder, &[&disk]) else { return };
        assert_eq!(told(&folder, "cat /sys/block/sda/queue/scheduler").trim_end(), list, "{disk}");
        for (scheduler, table) in tables {
            let script =
                format!("echo {scheduler} > /sys/block/sda/queue/scheduler\n{SHOW_IOSCHED}");
            assert_eq!(told(&folder, &script), *table, "{disk}: {scheduler}");
        }
        daemon.stop();
    }
}

const MQ_TABLES: &[(&str, &str)] =
    &[("mq-deadline", TABLE_12_2), ("kyber", TABLE_12_4), ("bfq", TABLE_12_3)];

/// 32 writers at once, as the chapter's `dd-test.sh` has them.
const DD_TEST: &str = "
echo 1 > /sys/block/sda/queue/iosched/low_latency
for i in $(seq 0 31); do
    dd if=/dev/zero of=dev/sda bs=1M count=1 seek=$i conv=notrunc status=none &
done
wait
echo 0 > /sys/block/sda/queue/iosched/low_latency
cat /sys/block/sda/queue/iosched/low_latency";

#[test]
#[ignore = "needs unshare, mount, iostat"]
fn iostat_reads_the_disks_of_the_tree() {
    let folder = Folder::new();
    let disks = ["sda=ram:64MiB,queue_mode=sq,scheduler=cfq", "vdb=ram:64MiB"];
    let Some(daemon) = mounted(&folder, &disks) else { return };
    assert_eq!(told(&folder, DD_TEST), "0\n");
    told(&folder, "dd if=dev/vdb of=/dev/null bs=64k count=64 iflag=direct status=none");
    let stat = told(&folder, "iostat -d -k sda vdb");
    let row = |name: &str| -> Vec<String> {
        let line = stat.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {stat}"));
        line.split_whitespace().map(String::from).collect()
    };
    // Device tps kB_read/s kB_wrtn/s kB_dscd/s kB_read kB_wrtn kB_dscd
    let (sda, vdb) = (row("sda"), row("vdb"));
    assert_eq!((sda[5].as_str(), sda[6].as_str()), ("0", "32768"), "{stat}");
    assert_eq!((vdb[5].as_str(), vdb[6].as_str()), ("4096", "0"), "{stat}");
    let extended = told(&folder, "iostat -x -d sda vdb");
    assert!(extended.contains("%util") && extended.contains("vdb"), "{extended}");
    daemon.stop();
}

/// Of docs/documents.md the script of example 12.1 by dd.
fn dd_test() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/documents.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, block) = page.split_once("```sh\n# dd-test.sh\n").expect("the script");
    let (script, _) = block.split_once("```\n").expect("its end");
    String::from(script)
}

/// How often the disk was given a request of another writer than the one before: the script with
/// `low_latency` at this level, recorded. The writers have 16 MiB each.
fn turns_of_dd(folder: &Folder, level: u8) -> usize {
    told(folder, &format!("echo {level} > /sys/block/sda/queue/iosched/low_latency"));
    let file = folder.near(&format!("{level}.replay"));
    let mut command = weir(folder);
    command.args(["record", "sda", "--force", "-o"]).arg(&file);
    let mut recording = Running::start(command);
    let began = Instant::now();
    while !file.exists() {
        assert!(began.elapsed() < PATIENCE && recording.is_running(), "no recording");
        std::thread::sleep(LOOK_AGAIN);
    }
    let mut script = program("sh");
    script.args(["-c", &dd_test()]).current_dir(folder.path());
    let written = Running::start(script).end();
    assert_eq!(written.code, Some(0), "{written:?}");
    let copied = written.stderr.matches("10485760 bytes (10 MB").count();
    assert_eq!(copied, 32, "writers that wrote all: {written:?}");
    recording.signal(Signal::INT);
    let recorded = recording.end();
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    let text = fs::read_to_string(&file).expect("a recording");
    fs::remove_file(&file).expect("it is there");
    let fields = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let number = |field: &str| field.parse::<u64>().expect("a number");
    let sent = fields.filter(|fields| fields.get(1) == Some(&"D"));
    let sent: Vec<[u64; 2]> = sent.map(|at| [number(at[3]), number(at[4])]).collect();
    let sectors: u64 = sent.iter().map(|[_, sectors]| sectors).sum();
    assert_eq!(sectors, 32 * 20_480, "all that they wrote was recorded");
    let writer = |[sector, _]: &[u64; 2]| sector / 32_768;
    sent.chunk_by(|one, next| writer(one) == writer(next)).count()
}

#[test]
#[ignore = "needs unshare, mount, dd"]
fn dd_takes_fewer_turns_without_low_latency_as_the_example_of_the_guide() {
    let folder = Folder::new();
    let disk = "sda=model:dd32,size=1GiB,depth=2,queue_mode=sq,compat=sles12";
    let Some(daemon) = mounted(&folder, &[disk]) else { return };
    // A machine that is busy starts the writers one by one: there is nothing to share out then.
    let mut seen = Vec::new();
    let is_shown = (0..3).any(|_| {
        let [on, off] = [1, 0].map(|level| turns_of_dd(&folder, level));
        seen.push((on, off));
        10 * on > 13 * off
    });
    assert!(is_shown, "turns with low_latency and without: {seen:?}");
    println!("turns with low_latency and without: {seen:?}");
    daemon.stop();
}

/// `weir tree exec` with the tree of the test.
#[track_caller]
fn executed(folder: &Folder, before: &[&str], command: &[&str]) -> Ended {
    let tree = folder.near("tree").display().to_string();
    let words = [before, &[WEIR, "tree", "exec", &tree, "--"], command].concat();
    let mut program = std::process::Command::new(words[0]);
    program.args(&words[1..]).current_dir(folder.path());
    Running::start(program).end()
}

#[test]
#[ignore = "needs mount, iostat, setpriv"]
fn a_command_finds_the_disks_of_the_tree_where_a_kernel_has_its_own_and_no_other_does() {
    let folder = Folder::new();
    let disks = ["wsa=ram:64MiB,queue_mode=sq,scheduler=cfq", "wsb=ram:64MiB"];
    let Some(daemon) = mounted(&folder, &disks) else { return };
    let write = ["dd", "if=/dev/zero", "bs=1M", "count=8", "conv=notrunc", "status=none"];
    let wsb = format!("of={}", folder.near("tree/dev/wsb").display());
    // It is there besides what it stands for.
    let written = executed(&folder, &[], &[&write[..], &[&wsb]].concat());
    assert_eq!(written.code, Some(0), "{written:?}");
    // Without the right to make a mount namespace it is in a user namespace.
    let unprivileged = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"];
    for before in [&[][..], &unprivileged] {
        let shown = executed(&folder, before, &["iostat", "-x", "-d", "wsa", "wsb"]);
        if !before.is_empty() && shown.stderr.contains("may make no mount namespace") {
            leave_out("a user namespace: this kernel lets no user make one");
            continue;
        }
        assert_eq!(shown.code, Some(0), "{shown:?}");
        assert!(shown.stdout.contains("%util") && shown.stdout.contains("\nwsa "), "{shown:?}");
        let sums = executed(&folder, before, &["iostat", "-d", "-k", "wsb"]);
        let row = sums.stdout.lines().find(|line| line.starts_with("wsb "));
        // Device tps kB_read/s kB_wrtn/s kB_dscd/s kB_read kB_wrtn kB_dscd
        let wrote = row.and_then(|row| row.split_whitespace().nth(6));
        assert_eq!(wrote, Some("8192"), "{sums:?}");
        // Its rate is over the time that the daemon has run, whatever that of the host.
        let rate = row.and_then(|row| row.split_whitespace().nth(3)?.parse::<f64>().ok());
        let uptime = executed(&folder, before, &["cat", "/proc/uptime"]).stdout;
        let later = uptime.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        let (rate, later) = (rate.expect("a rate"), later.expect("seconds"));
        assert!(rate * later > 0.99 * 8192.0, "{rate} kB/s over {later} s at most: {sums:?}");
        let script = "ls /sys/block /sys/class/block; cat /sys/block/wsa/queue/scheduler; id -u; \
            ulimit -Sn; grep SigIgn /proc/self/status | tail -c 8; exit 7";
        let there = executed(&folder, before, &["sh", "-c", script]);
        assert_eq!(there.code, Some(7), "its status is the command's: {there:?}");
        let lines: Vec<&str> = there.stdout.lines().collect();
        let expected = [
            "/sys/block:",
            "wsa",
            "wsb",
            "",
            "/sys/class/block:",
            "wsa",
            "wsb",
            "noop deadline [cfq] ",
            "0",
        ];
        assert_eq!(lines[..9], expected, "{there:?}");
        let plain = Running::start({
            let mut shell = program("sh");
            shell.args(["-c", "ulimit -Sn; grep SigIgn /proc/self/status | tail -c 8"]);
            shell
        })
        .end();
        assert_eq!(lines[9..].join("\n"), plain.stdout.trim_end(), "limits and signals stay");
    }
    assert!(!Path::new("/sys/block/wsa").exists(), "nothing is seen outside");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.lines().any(|line| line.contains(" /sys/block ")), "{mounts}");
    daemon.stop();
}

#[test]
#[ignore = "needs mount"]
fn what_is_no_tree_or_no_command_is_refused_and_a_signal_reaches_the_command() {
    let folder = Folder::new();
    let Some(daemon) = mounted(&folder, &["wsa=ram:1MiB"]) else { return };
    let refused = |words: &[&str], parts: &[&str]| {
        let mut command = weir(&folder);
        command.args(["tree", "exec"]).args(words);
        let Ended { code, stdout, stderr } = Running::start(command).end();
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{words:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{words:?}: {stderr}");
    };
    refused(&["tree", "--", "no-such-command", "x"], &["no-such-command: No such file"]);
    refused(&["none", "--", "true"], &["none: No such file"]);
    refused(&["/", "--", "true"], &["/ is no tree of weir: it is no FUSE file system"]);
    refused(&["tree/block", "--", "true"], &["tree/block is no tree of weir: it has no block"]);
    refused(&["tree"], &["COMMAND"]);
    let mut command = weir(&folder);
    command.args(["tree", "exec", "tree", "--", "sh", "-c", "echo $$; exec sleep 60"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
    assert_eq!(line.trim_end(), child.id().to_string(), "the command has its place");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let status = child.wait().expect("it ends");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{status}");
    daemon.stop();
}
