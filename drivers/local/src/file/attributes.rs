//! Queue attributes of the device below a file, as sysfs shows them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

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
pub(super) fn turned_read_only(block_device: bool, (major, minor): (u32, u32)) -> Option<String> {
    if block_device {
        let read = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).ok()?;
        return (read.trim() == "1").then(|| "the kernel has it read-only now".to_owned());
    }
    let mounts = fs::read_to_string(MOUNTS).ok()?;
    is_read_only(&mounts, (major, minor))
        .then(|| "its file system is read-only now, as one is after a failure".to_owned())
}

const MOUNTS: &str = "/proc/self/mountinfo";

/// Whether the file system of this number is read-only, whichever way it is mounted: the last field
/// of proc_pid_mountinfo(5). ext4 has a word of its own for one that a failure made so.
fn is_read_only(mounts: &str, (major, minor): (u32, u32)) -> bool {
    let number = format!("{major}:{minor}");
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number));
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
25 22 254:3 / /mnt/d rw - ext4 /dev/vdd rw,emergency_ro\n";
        let found = |minor| is_read_only(mounts, (254, minor));
        assert_eq!([0, 1, 2, 3, 4].map(found), [false, true, false, true, false]);
        assert!(!is_read_only("25 22 8:1", (8, 1)) && !is_read_only("", (8, 1)));
    }
}
