//! File systems and databases on a kernel block device over the disk's file, while its schedulers
//! are switched: what they read back is what they wrote, and the checkers find nothing.
//!
//! A server whose requests in flight share a buffer corrupts data in exactly this set-up, with
//! direct I/O on.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::outside::leave_out;
use daemon::program::{A_MOMENT, Running, program, run};
use daemon::{Daemon, Folder, weir};
use weir_control::ControlClient;

/// I/Os that end between two switches.
const BETWEEN: u64 = 64;

/// In a mount namespace of its own, so that `/mnt` is its own: `$1` file system, `$2` direct I/O of
/// the loop device, `$3` tree, `$4` folder for a checksum.
const STORY: &str = r#"
set -eu
device=$(losetup --find --show --direct-io="$2" "$3/dev/sda")
trap 'umount /mnt 2>/dev/null || true; losetup --detach "$device"' EXIT
if [ "$2" = on ]; then
    [ "$(losetup --noheadings --output DIO "$device" | tr -d ' ')" = 1 ]
fi
"mkfs.$1" -q "$device"
mount "$device" /mnt

for direct in 0 1; do
    fio --name=verify --directory=/mnt --direct=$direct --ioengine=libaio --iodepth=16 \
        --numjobs=2 --size=16m --rw=randwrite --bsrange=4k-64k --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --fsync=32 --unlink=1
done

sqlite3 /mnt/db 'PRAGMA journal_mode=WAL; CREATE TABLE t (id INTEGER PRIMARY KEY, noise BLOB)'
for round in 1 2 3 4 5 6 7 8; do
    sqlite3 /mnt/db 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500)
        INSERT INTO t (noise) SELECT randomblob(1000) FROM n; DELETE FROM t WHERE id % 7 = 3;
        PRAGMA wal_checkpoint(FULL)'
done
[ "$(sqlite3 /mnt/db 'PRAGMA integrity_check')" = ok ]
sqlite3 /mnt/db .dump | sha256sum > "$4/sum"

bin=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -n 1)
as() { (cd /mnt && setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"); }
install -d -o postgres /mnt/pg
as "$bin/initdb" --data-checksums --auth=trust -D /mnt/pg/data
as "$bin/pg_ctl" -D /mnt/pg/data -w -l /mnt/pg/log -o "-k /mnt/pg -c listen_addresses=" start
as "$bin/pgbench" -h /mnt/pg -i -s 2 -q postgres
as "$bin/pgbench" -h /mnt/pg -c 4 -j 2 -t 150 postgres
totals=$(as "$bin/psql" -h /mnt/pg -Atc 'SELECT (SELECT sum(abalance) FROM pgbench_accounts) =
    ALL (ARRAY[(SELECT sum(bbalance) FROM pgbench_branches),
               (SELECT sum(tbalance) FROM pgbench_tellers),
               (SELECT sum(delta) FROM pgbench_history)]),
    (SELECT count(*) FROM pgbench_history)' postgres)
[ "$totals" = 't|600' ]
postmaster=$(head -n 1 /mnt/pg/data/postmaster.pid)
as "$bin/pg_ctl" -D /mnt/pg/data -w -m fast stop
# It stands in the folder of its data for a moment longer than it says.
tail --pid="$postmaster" --sleep-interval=0.1 -f /dev/null

umount /mnt
mount "$device" /mnt
[ "$(sqlite3 /mnt/db 'PRAGMA integrity_check')" = ok ]
sqlite3 /mnt/db .dump | sha256sum -c "$4/sum"
as "$bin/pg_checksums" --check -D /mnt/pg/data
umount /mnt
case $1 in ext4) e2fsck -f -n "$device" ;; xfs) xfs_repair -n "$device" ;; esac
"#;

/// Reads, writes and flushes that have ended.
fn ended(client: &mut ControlClient) -> u64 {
    let stat = client.read("block/sda/stat").expect("a disk");
    let fields: Vec<u64> = stat.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    fields[0] + fields[4] + fields[15]
}

/// Switches among all schedulers of the disk as long as `story` goes on; how often.
fn switch_beside(story: &mut Running, client: &mut ControlClient) -> usize {
    let listed = client.read("block/sda/queue/scheduler").expect("a disk");
    let names: Vec<_> =
        listed.split_whitespace().map(|name| name.trim_matches(['[', ']'])).collect();
    assert!(names.len() > 2, "{listed}");
    let (mut switches, mut last) = (0, ended(client));
    while story.is_running() {
        let now = ended(client);
        if now < last + BETWEEN {
            std::thread::sleep(A_MOMENT);
            continue;
        }
        let name = names[switches % names.len()];
        let written = client.write("block/sda/queue/scheduler", name.as_bytes());
        written.unwrap_or_else(|error| panic!("{name}: {error}"));
        (last, switches) = (now, switches + 1);
    }
    switches
}

/// Whether a loop device and a mount can be had here; says so if not.
fn may_mount(file_system: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let known = known.split_whitespace().any(|name| name == file_system);
    let root = rustix::process::geteuid().is_root();
    let may = known
        && root
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists());
    if !may {
        leave_out(&format!("needs root, /dev/fuse, loop devices and {file_system} in the kernel"));
    }
    may
}

fn tell_the_story(file_system: &str, direct: &str, options: &str) {
    let folder = Folder::new();
    let tree = folder.near("tree");
    fs::create_dir(&tree).expect("a folder");
    let mut serve = weir(&folder);
    serve.args(["serve", "--disk", &folder.file_disk("sda", "1GiB", options)]);
    serve.args(["--nbd", "unix:nbd.sock", "--tree"]).arg(&tree);
    let daemon = Daemon::spawn(serve);
    let mut client =
        ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
    // Whatever the story started ends with it.
    let mut command = program("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["bash", "-c", STORY, "bash", file_system, direct]);
    command.arg(&tree).arg(folder.path());
    let mut story = Running::start(command);
    let switches = switch_beside(&mut story, &mut client);
    story.succeed();
    println!("{file_system}, direct I/O {direct}, {options}: {switches} switches");
    assert!(switches > 20, "{switches} switches are no proof");
    let said = daemon.said();
    // Where it may not use io_uring it says so, with the system's error.
    let is_error = |line: &str| line.contains("error") && !line.contains("io_uring cannot be used");
    assert!(!said.lines().any(is_error), "{said}");
    drop(client);
    daemon.stop();
    let image = folder.image("sda").display().to_string();
    match file_system {
        "ext4" => run("e2fsck", &["-f", "-n", &image]),
        _ => run("xfs_repair", &["-n", "-f", &image]),
    };
}

#[test]
#[ignore = "needs losetup, mkfs.ext4, e2fsck, mount, fio, sqlite3, postgresql"]
fn databases_on_ext4_are_whole_whatever_the_scheduler() {
    if may_mount("ext4") {
        tell_the_story("ext4", "on", ",queues=2");
        tell_the_story("ext4", "off", ",queue_mode=sq");
    }
}

#[test]
#[ignore = "needs losetup, mkfs.xfs, xfs_repair, mount, fio, sqlite3, postgresql"]
fn databases_on_xfs_are_whole_whatever_the_scheduler() {
    if may_mount("xfs") {
        tell_the_story("xfs", "on", ",queue_mode=sq");
        tell_the_story("xfs", "off", ",queues=2");
    }
}
