//! Queue attributes of the device below a file, as sysfs shows them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// A number from the queue directory of the device that a file is or lies on, if sysfs shows one.
pub(super) fn queue_attribute<T: FromStr>(file: &fs::File, name: &str) -> Option<T> {
    let (major, minor) = device_numbers(file)?;
    let device = fs::canonicalize(PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))).ok()?;
    // A partition has no queue of its own: its disk's directory is the parent.
    let read = |device: &Path| fs::read_to_string(device.join("queue").join(name)).ok();
    let text = read(&device).or_else(|| read(device.parent()?))?;
    text.trim().parse().ok()
}

/// The device a file's blocks lie on, as sysfs names it: the device itself, if it is one.
fn device_numbers(file: &fs::File) -> Option<(u32, u32)> {
    let found = file.metadata().ok()?;
    let is_device = found.file_type().is_block_device();
    let device = if is_device { found.rdev() } else { found.dev() };
    Some(numbers(device))
}

/// Major and minor number of a device.
pub(super) fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

/// Why nothing can be written to a file or block device that was opened for writing, if the kernel
/// says so now. No call reaches the device or a server.
pub(super) fn turned_read_only(
    block_device: bool,
    (major, minor): (u32, u32),
    mount: Option<u64>,
) -> Option<String> {
    if block_device {
        let read = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).ok()?;
        return (read.trim() == "1").then(|| "the kernel has it read-only now".to_owned());
    }
    let mounts = fs::read_to_string(MOUNTS).ok()?;
    is_read_only(&mounts, mount, (major, minor))
        .then(|| "its file system is read-only now, as one is after a failure".to_owned())
}

const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether a file has no name any more: its bytes are gone as soon as it is closed. A server is not
/// asked.
pub(super) fn is_deleted(file: &fs::File) -> bool {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, c"", how, StatxFlags::NLINK).is_ok_and(|found| found.stx_nlink == 0)
}

/// The number of the mount that a file was opened by. A server is not asked.
pub(super) fn mount_of(file: &fs::File) -> Option<u64> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, c"", how, StatxFlags::MNT_ID).ok()?;
    let mask = StatxFlags::from_bits_retain(found.stx_mask);
    mask.contains(StatxFlags::MNT_ID).then_some(found.stx_mnt_id)
}

/// Whether the file system of a mount is read-only, whichever way it is mounted there: the last
/// field of proc_pid_mountinfo(5). ext4 has a word of its own for one that a failure made so. A
/// mount that is not listed (any more) is found by the number of the file system, which a file of
/// btrfs does not tell.
fn is_read_only(mounts: &str, mount: Option<u64>, (major, minor): (u32, u32)) -> bool {
    let (mount, number) = (mount.map(|id| id.to_string()), format!("{major}:{minor}"));
    let with = |at: usize, word: Option<&str>| {
        mounts.lines().find(|line| word.is_some() && line.split(' ').nth(at) == word)
    };
    let line = with(0, mount.as_deref()).or_else(|| with(2, Some(&number)));
    let options = line.and_then(|line| line.split_once(" - ")?.1.split(' ').nth(2));
    options.is_some_and(|all| all.split(',').any(|one| matches!(one, "ro" | "emergency_ro")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_read_only_itself_is_known_from_one_mounted_so() {
        let mounts = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro\n\
23 22 254:1 / /mnt/a\\040b rw shared:2 master:1 - ext4 /dev/vdb ro,errors=remount-ro\n\
24 22 254:2 /part /mnt/c ro - xfs /dev/vdc rw\n\
25 22 254:3 / /mnt/d rw - ext4 /dev/vdd rw,emergency_ro\n\
26 22 0:47 /home /home rw - btrfs /dev/vde ro,subvol=/home\n";
        let found = |minor| is_read_only(mounts, None, (254, minor));
        assert_eq!([0, 1, 2, 3, 4].map(found), [false, true, false, true, false]);
        // The mount counts before the number, and an unknown one not at all.
        let of = |mount, number| is_read_only(mounts, Some(mount), number);
        assert_eq!([22, 23, 24, 26].map(|mount| of(mount, (0, 50))), [false, true, false, true]);
        assert!(!of(22, (254, 1)) && of(99, (254, 1)) && !of(99, (0, 50)));
        assert!(!is_read_only("25 22 8:1", None, (8, 1)) && !is_read_only("", Some(1), (8, 1)));
    }

    #[test]
    fn the_mount_of_a_file_is_one_that_is_listed() {
        let file = fs::File::open("/proc/self/mountinfo").unwrap();
        let mount = mount_of(&file).expect("Linux 5.8 tells it").to_string();
        let mounts = fs::read_to_string(MOUNTS).unwrap();
        let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount));
        assert!(line.is_some_and(|line| line.contains(" - proc ")), "{mount} in {mounts}");
    }
}
