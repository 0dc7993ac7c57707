//! The users of a disk as a file at the moment its daemon stops: what is mounted from it is about
//! to lose it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_front::Users;

use crate::disks::OpenDisk;

/// The loop devices over a disk in the tree mounted at `folder`, and the processes that have it
/// open.
pub(super) fn of(disk: &str, folder: &Path, open: &[OpenDisk]) -> Users {
    let mut listed = loops(&folder.join("dev").join(disk));
    let here = open.iter().filter(|open| open.disk == disk);
    listed.extend(processes(here, !listed.is_empty()));
    Users { unwarned: !listed.is_empty(), listed }
}

/// The loop devices over a file, each with where it is mounted.
fn loops(file: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let mut found = Vec::new();
    for device in devices.flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        if backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == file) {
            let name = format!("/dev/{}", device.file_name().to_string_lossy());
            let places = mounted(&mounts, &name);
            found.push(match places.is_empty() {
                true => name,
                false => format!("{name} (mounted at {})", places.join(" and ")),
            });
        }
    }
    found.sort();
    found
}

/// Where a device, or a partition of it, is mounted: field 5 of proc_pid_mountinfo(5), and the
/// second behind the hyphen.
fn mounted<'a>(mounts: &'a str, device: &str) -> Vec<&'a str> {
    let place = |line: &'a str| {
        let (front, behind) = line.split_once(" - ")?;
        let partition = behind.split(' ').nth(1)?.strip_prefix(device)?;
        let number = partition.strip_prefix('p').unwrap_or(partition);
        let whole = partition.is_empty();
        let ours = whole || number != partition && number.bytes().all(|b| b.is_ascii_digit());
        ours.then(|| front.split(' ').nth(4))?
    };
    mounts.lines().filter_map(place).collect()
}

/// The processes that have a disk open. One that has ended left the file to a loop device, or to
/// a process it started.
fn processes<'a>(open: impl Iterator<Item = &'a OpenDisk>, looped: bool) -> Vec<String> {
    let mut times = BTreeMap::new();
    open.for_each(|open| *times.entry(open.process).or_insert(0) += 1);
    let told = |(process, times): (u32, u32)| {
        let name = fs::read_to_string(format!("/proc/{process}/comm"));
        let times = if times > 1 { format!(", {times} times") } else { String::new() };
        match name {
            Ok(name) => Some(format!("process {process} ({}{times})", name.trim_end())),
            Err(_) if looped => None,
            Err(_) => Some(format!("whoever has it from process {process}, which has ended")),
        }
    };
    times.into_iter().filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_device_is_found_with_its_partitions_and_no_other() {
        let mounts = "\
            22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            40 22 7:1 / /mnt/a rw,noatime shared:1 - ext4 /dev/loop1 rw\n\
            41 22 7:1 / /mnt/b rw - vfat /dev/loop1p2 rw\n\
            42 22 7:11 / /mnt/c rw - ext4 /dev/loop11 rw\n";
        assert_eq!(mounted(mounts, "/dev/loop1"), ["/mnt/a", "/mnt/b"]);
        assert!(mounted(mounts, "/dev/loop2").is_empty());
    }
}
