//! The disk that is meant where a device, a partition, a mapped device or a mounted file system is
//! named: the one whose queue has a scheduler.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A disk of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name, as `sda`.
    pub name: String,
    /// Its number, `MAJOR:MINOR`.
    pub number: String,
    /// Its folder in `/sys`.
    pub folder: PathBuf,
    /// How it was come to, where that is not what was named.
    pub notice: Option<String>,
}

/// Where the kernel tells of its devices and its mounts.
const SYS: &str = "/sys";
const MOUNTS: &str = "/proc/self/mountinfo";
/// Mapped devices that may lie on each other; more is no set-up but a circle.
const LEVELS: usize = 16;

impl Disk {
    /// The disk of `sda`, `/dev/sda`, a partition, a mapped device on one disk, or the file system
    /// that a path is on.
    ///
    /// # Errors
    /// A name of nothing; a file system without a device; a device that lies on several disks,
    /// which are named, or has no scheduler to choose.
    pub fn named(named: &str) -> Result<Disk, String> {
        let sys = Path::new(SYS);
        let folder = match named_in(sys, named) {
            Some(folder) => folder,
            None => folder_of(sys, &number_of(Path::new(named))?)?,
        };
        lowest(&folder, named)
    }

    /// Whether the kernel counts its I/O, as far as it says.
    pub(super) fn counts(&self) -> Option<bool> {
        let text = fs::read_to_string(self.folder.join("queue/iostats")).ok()?;
        Some(text.trim() != "0")
    }

    fn at(folder: &Path) -> Result<Disk, String> {
        let shown = |error| format!("{}: {error}", folder.display());
        let number = fs::read_to_string(folder.join("dev")).map_err(shown)?.trim().to_owned();
        let (name, folder) = (name_of(folder), folder.to_owned());
        Ok(Disk { name, number, folder, notice: None })
    }
}

/// The folder of a device with this name.
fn named_in(sys: &Path, named: &str) -> Option<PathBuf> {
    let is_name = !named.is_empty() && !named.contains('/') && !named.starts_with('.');
    // A device with a slash in its name has an exclamation mark there.
    let folder = sys.join("class/block").join(named);
    is_name.then(|| fs::canonicalize(folder).ok()).flatten()
}

/// The folder of the device of this number.
fn folder_of(sys: &Path, number: &str) -> Result<PathBuf, String> {
    let path = sys.join("dev/block").join(number);
    fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The number of the device that a path is, or that its file system is on.
fn number_of(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let data = fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!("--device {shown}: neither a block device nor a path")
        }
        _ => format!("--device {shown}: {error}"),
    })?;
    let kind = data.file_type();
    if kind.is_char_device() {
        return Err(format!("--device {shown} is no block device"));
    }
    let number = if kind.is_block_device() { data.rdev() } else { data.dev() };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    if major != 0 {
        return Ok(format!("{major}:{minor}"));
    }
    // File systems of several devices have a number of their own; what they are on is in the list
    // of mounts.
    let mounts = fs::read_to_string(MOUNTS).map_err(|error| format!("{MOUNTS}: {error}"))?;
    let source = source_of(&mounts, &format!("{major}:{minor}"));
    let (kind, source) = source.unwrap_or(("unknown", ""));
    let device = fs::metadata(source).ok().filter(|data| data.file_type().is_block_device());
    let device = device.ok_or_else(|| {
        format!("--device {shown} is on a file system ({kind}) that is on no block device")
    })?;
    let (major, minor) = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
    Ok(format!("{major}:{minor}"))
}

/// Kind and source of the file system of this number, from proc(5), `/proc/PID/mountinfo`.
fn source_of<'a>(mounts: &'a str, number: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (about, on) = line.split_once(" - ")?;
        if about.split(' ').nth(2)? != number {
            return None;
        }
        let mut on = on.split(' ');
        Some((on.next()?, on.next()?))
    })
}

fn name_of(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The schedulers that a disk's queue lists; none where it has no such file.
fn schedulers(folder: &Path) -> Option<usize> {
    let text = fs::read_to_string(folder.join("queue/scheduler")).ok()?;
    Some(text.split_whitespace().count())
}

/// The disk with a scheduler that a device is, is a part of, or lies on.
fn lowest(folder: &Path, named: &str) -> Result<Disk, String> {
    let mut disks = Vec::new();
    below(folder, LEVELS, &mut disks);
    let names: Vec<String> = disks.iter().map(|disk| name_of(disk)).collect();
    let disk = match &disks[..] {
        [disk] => Disk::at(disk)?,
        _ => {
            return Err(format!(
                "--device {named} lies on several disks: {}; a scheduler is switched on one at a \
                 time, so name one of them",
                names.join(", ")
            ));
        }
    };
    if schedulers(&disk.folder).is_none() {
        return Err(format!(
            "--device {named}: {} has no queue with a scheduler ({} is not there)",
            disk.name,
            disk.folder.join("queue/scheduler").display()
        ));
    }
    let whole = whole(folder);
    let notice = (whole != disk.folder)
        .then(|| format!("{} lies on {}, whose scheduler is switched", name_of(&whole), disk.name));
    Ok(Disk { notice, ..disk })
}

/// The disk that a partition is a part of; any other device is one itself.
fn whole(folder: &Path) -> PathBuf {
    let part = folder.join("partition").exists();
    folder.parent().filter(|_| part).unwrap_or(folder).to_owned()
}

/// The disks with a scheduler below a device, each once, in order.
fn below(folder: &Path, levels: usize, found: &mut Vec<PathBuf>) {
    let disk = whole(folder);
    let listed = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
    let mut slaves: Vec<PathBuf> =
        listed.filter_map(|entry| fs::canonicalize(entry.path()).ok()).collect();
    slaves.sort();
    // A mapped device that has schedulers of its own is what is meant.
    let has_own = schedulers(&disk).is_some_and(|count| count > 1);
    if slaves.is_empty() || has_own || levels == 0 {
        if !found.contains(&disk) {
            found.push(disk);
        }
        return;
    }
    for slave in slaves {
        below(&slave, levels - 1, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder that looks like `/sys`.
    struct Paper(PathBuf);

    impl Paper {
        fn new(name: &str) -> Paper {
            let folder =
                std::env::temp_dir().join(format!("weir-disk-{}-{name}", std::process::id()));
            fs::create_dir_all(folder.join("class/block")).expect("a folder");
            fs::create_dir_all(folder.join("dev/block")).expect("a folder");
            Paper(fs::canonicalize(folder).expect("it is there"))
        }

        /// A device at a path below `devices`, with these schedulers and on these others.
        fn device(&self, path: &str, number: &str, schedulers: Option<&str>, on: &[&str]) {
            let folder = self.0.join("devices").join(path);
            fs::create_dir_all(folder.join("slaves")).expect("a folder");
            fs::write(folder.join("dev"), format!("{number}\n")).expect("a file");
            if let Some(text) = schedulers {
                fs::create_dir_all(folder.join("queue")).expect("a folder");
                fs::write(folder.join("queue/scheduler"), text).expect("a file");
            }
            for link in [
                self.0.join("class/block").join(name_of(&folder)),
                self.0.join("dev/block").join(number),
            ] {
                symlink(&folder, link).expect("a link");
            }
            for slave in on {
                let at = self.0.join("devices").join(slave);
                symlink(&at, folder.join("slaves").join(name_of(&at))).expect("a link");
            }
        }

        fn part(&self, path: &str, number: &str) {
            self.device(path, number, None, &[]);
            fs::write(self.0.join("devices").join(path).join("partition"), "1\n").expect("a file");
        }

        fn find(&self, name: &str) -> Result<Disk, String> {
            lowest(&named_in(&self.0, name).expect("a device"), name)
        }
    }

    impl Drop for Paper {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const SEVERAL: Option<&str> = Some("[none] mq-deadline bfq\n");
    const NONE: Option<&str> = Some("none\n");

    fn paper(name: &str) -> Paper {
        let paper = Paper::new(name);
        paper.device("sda", "8:0", SEVERAL, &[]);
        paper.part("sda/sda1", "8:1");
        paper.part("sda/sda2", "8:2");
        paper.device("sdb", "8:16", SEVERAL, &[]);
        paper.device("dm-0", "254:0", NONE, &["sda/sda1", "sda/sda2"]);
        paper.device("dm-1", "254:1", None, &["dm-0"]);
        paper.device("md0", "9:0", None, &["sda/sda1", "sdb"]);
        paper.device("dm-2", "254:2", SEVERAL, &["sda", "sdb"]);
        paper.device("zram0", "253:0", None, &[]);
        paper
    }

    #[test]
    fn a_disk_its_partitions_and_what_lies_on_it_alone_are_that_disk() {
        let paper = paper("one");
        for name in ["sda", "sda1", "sda2"] {
            let disk = paper.find(name).expect("a disk");
            assert_eq!((disk.name.as_str(), disk.number.as_str()), ("sda", "8:0"), "{name}");
            assert_eq!(disk.notice, None, "{name}");
        }
        for name in ["dm-0", "dm-1"] {
            let disk = paper.find(name).expect("a disk");
            assert_eq!(disk.name, "sda", "{name}");
            let notice = format!("{name} lies on sda, whose scheduler is switched");
            assert_eq!(disk.notice, Some(notice));
        }
        assert_eq!(folder_of(&paper.0, "8:1"), Ok(paper.0.join("devices/sda/sda1")));
    }

    #[test]
    fn a_mapped_device_with_schedulers_of_its_own_is_meant_itself() {
        let paper = paper("own");
        assert_eq!(paper.find("dm-2").expect("a disk").name, "dm-2");
    }

    #[test]
    fn several_disks_below_are_named_and_a_device_without_a_scheduler_is_refused() {
        let paper = paper("several");
        let why = paper.find("md0").expect_err("two disks");
        assert!(why.contains("--device md0 lies on several disks: sda, sdb;"), "{why}");
        let why = paper.find("zram0").expect_err("no queue");
        assert!(why.contains("--device zram0: zram0 has no queue with a scheduler"), "{why}");
    }

    #[test]
    fn what_is_neither_a_device_nor_a_path_is_refused() {
        let why = Disk::named("/nothing/here").expect_err("nothing");
        assert_eq!(why, "--device /nothing/here: neither a block device nor a path");
        let why = Disk::named("/dev/null").expect_err("a character device");
        assert_eq!(why, "--device /dev/null is no block device");
        let why = Disk::named("/proc").expect_err("no device");
        assert!(why.contains("file system (proc) that is on no block device"), "{why}");
        assert_eq!(named_in(Path::new("/sys"), ".."), None);
    }

    #[test]
    fn the_source_of_a_mount_is_found_by_its_number() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                      40 35 0:45 / /data rw shared:7 - btrfs /dev/sdc1 rw,subvol=/\n";
        assert_eq!(source_of(mounts, "0:45"), Some(("btrfs", "/dev/sdc1")));
        assert_eq!(source_of(mounts, "0:46"), None);
    }
}
