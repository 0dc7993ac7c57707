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
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}
