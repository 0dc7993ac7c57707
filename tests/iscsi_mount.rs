//! A file system made and used in place on a disk over iSCSI: the kernel's loop device on the
//! disk's file in weir's mounted tree, ext4 on that, and the image on the target's side at the end.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::outside::leave_out;
use daemon::program::{Running, program, run};
use daemon::tgtd::Tgtd;
use daemon::{Daemon, Folder, weir};

const NAME: &str = "iqn.2024-01.test:mounted";

/// In a mount namespace of its own, so that `/mnt` is its own: `$1` direct I/O of the loop device,
/// `$2` the disk's file, `$3` a folder for a checksum.
const STORY: &str = r#"
set -eu
device=$(losetup --find --show --direct-io="$1" "$2")
trap 'umount /mnt 2>/dev/null || true; losetup --detach "$device"' EXIT
if [ "$1" = on ]; then
    [ "$(losetup --noheadings --output DIO "$device" | tr -d ' ')" = 1 ]
fi
mkfs.ext4 -q "$device"
mount "$device" /mnt
for direct in 0 1; do
    fio --name=verify --directory=/mnt --direct=$direct --ioengine=libaio --iodepth=16 \
        --numjobs=2 --size=16m --rw=randwrite --bsrange=4k-64k --verify=crc32c \
        --verify_fatal=1 --verify_state_save=0 --fsync=32
    rm /mnt/verify.*
done
head -c 20000000 /dev/urandom > /mnt/file
sha256sum /mnt/file > "$3/sum"
umount /mnt
e2fsck -f -n "$device"
mount "$device" /mnt
sha256sum -c "$3/sum"
umount /mnt
"#;

/// Whether a loop device and a mount can be had here; says so if not.
fn may_mount() -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let may = known.split_whitespace().any(|name| name == "ext4")
        && rustix::process::geteuid().is_root()
        && ["/dev/fuse", "/dev/loop-control"].iter().all(|path| Path::new(path).exists());
    if !may {
        leave_out("needs root, /dev/fuse, loop devices and ext4 in the kernel");
    }
    may
}

#[test]
#[ignore = "needs tgtd, losetup, mkfs.ext4, e2fsck, mount, fio"]
fn a_file_system_made_in_place_on_a_disk_over_iscsi_is_whole_on_both_sides() {
    if !may_mount() {
        return;
    }
    for (direct, options) in [("on", ",sessions=2"), ("off", ",queue_mode=sq,data_digest=crc32c")] {
        println!("direct I/O {direct}, options {options:?}");
        let folder = Folder::new();
        let under = folder.path().display().to_string();
        let Some(tgtd) = Tgtd::start(&under, "mounted") else { return };
        tgtd.target(1, NAME);
        if options.contains("data_digest") {
            tgtd.parameter("1", "DataDigest", "CRC32C");
        }
        tgtd.unit(1, 1, &tgtd.image("image", 192 << 20), &[]);
        let tree = folder.near("tree");
        fs::create_dir(&tree).expect("a folder");
        let disk = format!("sda=iscsi://127.0.0.1:{}/{NAME}/1{options}", tgtd.port);
        let mut serve = weir(&folder);
        serve.args(["serve", "--disk", &disk, "--nbd", "unix:nbd.sock", "--tree"]).arg(&tree);
        let daemon = Daemon::spawn(serve);
        // Whatever the story started ends with it.
        let mut command = program("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["bash", "-c", STORY, "bash", direct]);
        command.arg(tree.join("dev/sda")).arg(folder.path());
        Running::start(command).succeed();
        // The system lets go of a loop device some time after its last user.
        daemon.wait_for(|line| line.contains("disk is a file no more"));
        let said = daemon.stop();
        assert!(!said.contains("error") && !said.contains("WARN"), "{said}");
        run("e2fsck", &["-f", "-n", &tgtd.folder.join("image").display().to_string()]);
    }
}
