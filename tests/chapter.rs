//! The shell commands of the documents that weir answers to, word for word: the tree is bound over
//! `/sys/block`, `/sys/class/block`, `/sys/module` and `/proc/diskstats` in a private mount
//! namespace.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::outside::leave_out;
use daemon::program::{Ended, Running, program};
use daemon::{Daemon, Folder, weir};

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
