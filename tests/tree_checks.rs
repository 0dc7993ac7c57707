//! What administrators look at to see which path their disks take, as the documents and the tools
//! of SCSI hosts have it: the whole tree stands in the place of `/sys` in a private mount
//! namespace.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::outside::leave_out;
use daemon::program::{Ended, Running, program};
use daemon::{Daemon, Folder, weir};

/// Two ports to one logical unit with a cache.
const TARGET: &str = "[[port]]\nid = 1\n[[port]]\nid = 2\n[[lun]]\nnumber = 5\nsize = \"8MiB\"\n";

/// Both are paths of a map. `OPTIONS` are those of a path.
const CONFIG: &str = r#"kernel_cmdline = "CMDLINE"
[nbd]
listen = ["unix:nbd.sock"]
[fuse]
tree = "tree"
[[disk]]
name = "sda"
target = "scsi-sim:t.toml,port=1OPTIONS"
[[disk]]
name = "sdb"
target = "scsi-sim:t.toml,port=2OPTIONS"
[[disk]]
name = "mpatha"
target = "multipath:sda+sdb,path_grouping_policy=multibus"
"#;

/// A daemon of that configuration; `None` where a tree cannot be mounted.
fn serve(folder: &Folder, cmdline: &str, options: &str) -> Option<Daemon> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        leave_out("mounting needs /dev/fuse and root");
        return None;
    }
    fs::create_dir(folder.near("tree")).expect("a folder");
    fs::write(folder.near("t.toml"), TARGET).expect("a file");
    let config = CONFIG.replace("CMDLINE", cmdline).replace("OPTIONS", options);
    fs::write(folder.near("weir.toml"), config).expect("a file");
    let mut serve = weir(folder);
    serve.args(["serve", "-c", "weir.toml"]);
    Some(Daemon::spawn(serve))
}

/// A shell that finds the tree where a kernel has its own; `$0` is where it is mounted.
#[track_caller]
fn shell(folder: &Folder, script: &str) -> Ended {
    let bind = "mount --bind \"$0\" /sys || exit 99\n";
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

/// The three checks of Dell's report on Oracle over blk-mq, and that of the map.
const MODULES: &str = "cat /sys/module/scsi_mod/parameters/use_blk_mq\n\
                       cat /sys/module/dm_mod/parameters/use_blk_mq";
const SCHEDULERS: &str = "cat /sys/class/block/sd*/queue/scheduler | head";
const MAP: &str = "cat /sys/block/mpatha/dm/use_blk_mq";

#[test]
#[ignore = "needs unshare, mount"]
fn the_checks_of_the_report_tell_the_legacy_path_from_the_multi_queue_path() {
    let (on, off) = ("scsi_mod.use_blk_mq=1", "scsi_mod.use_blk_mq=0");
    let by_rule = "none [mq-deadline] kyber bfq \n";
    let none = "[none] mq-deadline kyber bfq \n";
    for (scsi, dm, options, modules, schedulers) in [
        (on, "y", "", "Y\nY\n", by_rule),
        // The report's kernel had no other: there is none when working with MQ.
        (on, "n", ",scheduler=none", "Y\nN\n", none),
        (off, "y", "", "N\nY\n", "noop [deadline] cfq \n"),
        (off, "n", "", "N\nN\n", "noop [deadline] cfq \n"),
    ] {
        let folder = Folder::new();
        let cmdline = format!("{scsi} dm_mod.use_blk_mq={dm}");
        let Some(daemon) = serve(&folder, &cmdline, options) else { return };
        assert_eq!(told(&folder, MODULES), modules, "{cmdline}");
        assert_eq!(told(&folder, SCHEDULERS), schedulers.repeat(2), "{cmdline}");
        let map = if dm == "y" { ("1\n", none) } else { ("0\n", "[noop] deadline cfq \n") };
        let map_scheduler = told(&folder, "cat /sys/block/mpatha/queue/scheduler");
        assert_eq!((&*told(&folder, MAP), &*map_scheduler), map, "{cmdline}");
        let refused = shell(&folder, "echo N > /sys/module/scsi_mod/parameters/use_blk_mq");
        assert!(refused.stderr.contains("Permission denied"), "a reboot changes it: {refused:?}");
        daemon.stop();
    }
}

#[test]
#[ignore = "needs unshare, mount"]
fn a_scsi_disk_and_its_map_are_described_where_a_kernel_describes_them() {
    let folder = Folder::new();
    let Some(daemon) = serve(&folder, "scsi_mod.use_blk_mq=1", "") else { return };
    let device = |script: &str| told(&folder, &format!("cd /sys/block/sda/device; {script}"));
    for (name, text) in [
        ("state", "running\n"),
        ("timeout", "30\n"),
        ("eh_timeout", "10\n"),
        ("queue_type", "simple\n"),
        ("type", "0\n"),
    ] {
        assert_eq!(device(&format!("cat {name}")), text, "{name}");
    }
    // As wide as INQUIRY has them.
    assert_eq!(device("cat vendor model rev | wc -c"), format!("{}\n", 8 + 16 + 4 + 3));
    assert_eq!(device("echo 8 > queue_depth; cat queue_depth"), "8\n");
    let refused = shell(&folder, "echo 0 > /sys/block/sda/device/queue_depth");
    assert!(refused.stderr.contains("Invalid argument"), "{refused:?}");
    // Counters are hexadecimal; a read through the map raises those of a path.
    let counts = "for disk in sda sdb; do cd /sys/class/block/$disk/device; \
                  echo $(cat iorequest_cnt) $(cat iodone_cnt) $(cat ioerr_cnt); done";
    let sum = |text: &str| -> u64 {
        let words = text.split_whitespace().map(|word| word.strip_prefix("0x").expect("hex"));
        words.map(|word| u64::from_str_radix(word, 16).expect("a number")).sum()
    };
    let before = sum(&told(&folder, counts));
    told(&folder, "for at in 1 2 3 4 5 6 7 8; do head -c 4096 \"$0/dev/mpatha\"; done > /dev/null");
    assert!(sum(&told(&folder, counts)) >= before + 2, "a request and its end");
    let map = |script: &str| told(&folder, &format!("cd /sys/block/mpatha; {script}"));
    assert_eq!(
        map("cat dm/name dm/suspended dm/use_blk_mq; ls slaves"),
        "mpatha\n0\n1\nsda\nsdb\n"
    );
    assert_eq!(told(&folder, "ls /sys/block/sda/holders"), "mpatha\n");
    let wwid = device("cat wwid");
    let name = wwid.trim_end().strip_prefix("naa.").expect("a name in the world");
    assert_eq!(map("cat dm/uuid"), format!("mpath-3{name}\n"));
    daemon.stop();
}

#[test]
#[ignore = "needs unshare, mount"]
fn the_cache_of_a_scsi_disk_is_taken_for_another_kind_for_a_time() {
    let folder = Folder::new();
    let Some(daemon) = serve(&folder, "scsi_mod.use_blk_mq=1", "") else { return };
    let sda = |script: &str| told(&folder, &format!("cd /sys/block/sda; {script}"));
    let both = "cat device/cache_type queue/write_cache";
    assert_eq!(sda(both), "write back\nwrite back\n");
    let through = format!("echo 'temporary write through' > device/cache_type; {both}");
    assert_eq!(sda(&through), "write through\nwrite through\n");
    let back = format!("echo 'temporary write back' > device/cache_type; {both}");
    assert_eq!(sda(&back), "write back\nwrite back\n");
    for kind in ["write through", "temporary", "temporary frob"] {
        let refused = shell(&folder, &format!("echo '{kind}' > /sys/block/sda/device/cache_type"));
        assert!(refused.stderr.contains("Invalid argument"), "{kind}: {refused:?}");
    }
    assert_eq!(sda(both), "write back\nwrite back\n");
    daemon.stop();
}
