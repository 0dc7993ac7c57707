//! The kernel's own scheduler of a block device: switched for each run, and put back.
//!
//! The values of the queue's files are written to a state file before the first switch. It is put
//! back when the value goes, also when the program is told to end or panics; and where the program
//! is killed, by the next comparison on the device, or by `--put-back`.
//!
//! A switch gives `nr_requests`, `iosched/*` and `wbt_lat_usec` their defaults (Linux,
//! Documentation/ABI/stable/sysfs-block). So every file of the queue that can be written is kept,
//! and whichever reads differently afterwards is written.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Access, FlockOperation, OFlags, access, flock};
use serde::{Deserialize, Serialize};
use weir_access::folder;

use super::disk::Disk;

/// The settings of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Before {
    /// The device, as it was named.
    device: String,
    /// Its queue's folder.
    queue: PathBuf,
    /// Which start of the machine this was true of; device numbers change with the next.
    boot_id: String,
    /// Which disk had its number: the kernel counts those that come. Empty before Linux 5.15.
    #[serde(default)]
    diskseq: String,
    /// Its scheduler.
    scheduler: String,
    /// The files of the queue and of its scheduler that can be written, by path below the queue.
    files: BTreeMap<String, String>,
}

/// A device whose scheduler may be switched, as long as this value lives.
#[derive(Debug)]
pub struct Switch {
    kept: Arc<Kept>,
    /// Settings left over from a comparison that was killed were put back first.
    pub recovered: bool,
}

/// Settings to be put back, once.
#[derive(Debug)]
pub struct Kept {
    before: Before,
    state: PathBuf,
    /// Holds the lock on the state file: no other comparison switches this device meanwhile.
    _lock: File,
    done: AtomicBool,
}

impl Switch {
    /// Takes a block device, writes what its queue is like to a file that all users of this machine
    /// share, and sees that it takes each of `schedulers`.
    ///
    /// # Errors
    /// A path that is no block device, has no scheduler to choose, needs other rights, is switched
    /// by another comparison, or does not take a scheduler. The device is as before then.
    pub fn take(device: &Path, schedulers: &[String]) -> Result<Switch, String> {
        let disk = disk_of(device)?;
        Switch::of_disk(device, &disk, schedulers, &FOLDERS.map(Path::new))
    }

    /// The same of a disk that is known.
    ///
    /// # Errors
    /// As [`Switch::take`].
    pub fn take_disk(disk: &Disk, schedulers: &[String]) -> Result<Switch, String> {
        let folders = FOLDERS.map(Path::new);
        Switch::of_disk(Path::new(&disk.name), &disk.folder, schedulers, &folders)
    }

    fn of_disk(
        device: &Path,
        disk: &Path,
        schedulers: &[String],
        folders: &[&Path],
    ) -> Result<Switch, String> {
        let queue = disk.join("queue");
        // Before the rights are asked for: what has no queue needs none.
        let text = fs::read_to_string(queue.join(SCHEDULER));
        text.map_err(|e| format!("{}: {e}", queue.join(SCHEDULER).display()))?;
        let state = state_folder(folders)?.join(state_name(disk)?);
        let (lock, left) = open_state(&state, true)?;
        let recovered = match left {
            Some(before) if before.queue == queue && before.is_of_this_disk() => {
                put_back(&before)?;
                true
            }
            _ => false,
        };
        let before = Before::of(device, &queue)?;
        before.save(&lock, &state)?;
        let kept = Kept { before, state, _lock: lock, done: AtomicBool::new(false) };
        let switch = Switch { kept: Arc::new(kept), recovered };
        // Found out now rather than in the middle; the value puts back what was done. The list is
        // not asked: one that is a module is in it from when its name is first written.
        for name in schedulers {
            switch.to(name).map_err(|why| {
                let listed = fs::read_to_string(queue.join(SCHEDULER)).unwrap_or_default();
                let listed = listed.trim().replace(['[', ']'], "");
                format!("kernel scheduler {name:?}: {} has {listed}: {why}", device.display())
            })?;
        }
        Ok(switch)
    }

    /// Switches.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn to(&self, scheduler: &str) -> Result<(), String> {
        let path = self.kept.before.queue.join(SCHEDULER);
        write(&path, scheduler)?;
        let now = active(&fs::read_to_string(&path).unwrap_or_default());
        if now == scheduler {
            return Ok(());
        }
        Err(format!("{}: {now} after {scheduler} was written", path.display()))
    }

    /// The settings to be put back, for a signal handler when this value cannot do it.
    #[must_use]
    pub fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// The part that could not be put back; the file that says how it was is still there then, and
    /// named.
    pub fn put_back(self) -> Result<(), String> {
        self.kept.put_back()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Err(error) = self.kept.put_back() {
            let _ = writeln!(std::io::stderr(), "weir: {error}");
        }
    }
}

impl Kept {
    /// Puts everything back, unless that was done.
    ///
    /// # Errors
    /// The part that could not be put back; the file that says how it was is still there then, and
    /// named.
    pub fn put_back(&self) -> Result<(), String> {
        if self.done.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let done = put_back(&self.before);
        let state = self.state.display();
        done.map_err(|error| format!("{error}; {state} says how it was: --put-back {state}"))?;
        fs::remove_file(&self.state).map_err(|error| format!("{state}: {error}"))
    }
}

/// Puts back what a comparison that was killed left behind, from the file it wrote; the device.
///
/// # Errors
/// A file that is no state file, that a user other than root could have written, that is of another
/// start of the machine, still in use, or of no queue of the kernel; or a value that could not be
/// put back.
pub fn put_back_from(state: &Path) -> Result<String, String> {
    put_back_trusting(state, Trust { owner: 0, queues: Path::new("/sys") })
}

/// The owner that a state file must have, and where the queue that it names must be.
#[derive(Clone, Copy)]
struct Trust<'a> {
    owner: u32,
    queues: &'a Path,
}

impl Trust<'_> {
    /// A state file can be written by root alone.
    fn check_file(&self, file: &File) -> Result<(), String> {
        let data = file.metadata().map_err(|error| error.to_string())?;
        let (owner, mode) = (data.uid(), data.mode() & 0o7777);
        if !data.is_file() {
            return Err(String::from("is no regular file"));
        }
        if owner != self.owner {
            let must = self.owner;
            return Err(format!("belongs to user {owner}, and is trusted only if to user {must}"));
        }
        if mode & 0o022 != 0 {
            return Err(format!("has mode {mode:04o}: others may have written it"));
        }
        Ok(())
    }

    /// Checks that it names a queue, by its own path.
    fn check_queue(&self, queue: &Path) -> Result<(), String> {
        let own = fs::canonicalize(queue).is_ok_and(|path| path == queue);
        if own && queue.starts_with(self.queues) && queue.ends_with("queue") {
            return Ok(());
        }
        Err(format!("{} is no queue of a disk under {}", queue.display(), self.queues.display()))
    }
}

fn put_back_trusting(state: &Path, trust: Trust<'_>) -> Result<String, String> {
    if !state.exists() {
        return Err(format!("{}: No such file: nothing is to be put back", state.display()));
    }
    let shown = state.display();
    let (lock, left) = open_state(state, false)?;
    trust.check_file(&lock).map_err(|why| format!("{shown} {why}"))?;
    let before = left.ok_or_else(|| format!("{shown} does not say how a device was"))?;
    trust.check_queue(&before.queue).map_err(|why| format!("{shown}: {why}"))?;
    if before.boot_id != boot_id() {
        let device = before.device;
        return Err(format!("{shown}: {device} was so before the machine was last started"));
    }
    if !before.is_of_this_disk() {
        let device = before.device;
        return Err(format!("{shown}: {device} is another disk now than the one that was so"));
    }
    put_back(&before)?;
    fs::remove_file(state).map_err(|error| format!("{shown}: {error}"))?;
    Ok(before.device)
}

const SCHEDULER: &str = "scheduler";

impl Before {
    fn of(device: &Path, queue: &Path) -> Result<Before, String> {
        let text = fs::read_to_string(queue.join(SCHEDULER));
        let text = text.map_err(|e| format!("{}: {e}", queue.join(SCHEDULER).display()))?;
        let files = files(queue);
        let device = device.display().to_string();
        let (queue, scheduler) = (queue.to_owned(), active(&text));
        let diskseq = diskseq(&queue);
        Ok(Before { device, queue, boot_id: boot_id(), diskseq, scheduler, files })
    }

    /// Whether what has the device's number now is what had it then: a loop device that was given
    /// another file is not.
    fn is_of_this_disk(&self) -> bool {
        self.boot_id == boot_id() && self.diskseq == diskseq(&self.queue)
    }

    fn save(&self, mut file: &File, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("strings are JSON");
        let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        let written = written.and_then(|()| file.sync_all());
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The files of a queue and of its scheduler that can be written, by path below the queue.
fn files(queue: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for folder in ["", "iosched"] {
        let listed = fs::read_dir(queue.join(folder)).into_iter().flatten().flatten();
        for entry in listed {
            let name = Path::new(folder).join(entry.file_name());
            let can_be_written = entry
                .metadata()
                .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o200 != 0);
            // A file that cannot be read could not be compared.
            if let Ok(text) = fs::read_to_string(entry.path())
                && can_be_written
                && name != Path::new(SCHEDULER)
            {
                files.insert(name.display().to_string(), text);
            }
        }
    }
    files
}

/// Writes what differs, and only to files that the queue has now.
fn put_back(before: &Before) -> Result<(), String> {
    let mut errors = Vec::new();
    errors.extend(write(&before.queue.join(SCHEDULER), &before.scheduler).err());
    // Those of the scheduler have come with it.
    let there = files(&before.queue);
    for (name, text) in &before.files {
        match there.get(name) {
            Some(now) if now == text => {}
            Some(_) => errors.extend(write(&before.queue.join(name), text.trim()).err()),
            None => errors.push(format!("{name:?}: the queue has no such file")),
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("{} is not as it was: {}", before.device, errors.join("; ")))
}

/// The scheduler in use: the one in brackets, or the only one.
fn active(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    String::from(inside.map_or(text, |(name, _)| name).trim())
}

/// In one call, as a shell's echo makes.
fn write(path: &Path, text: &str) -> Result<(), String> {
    let opened = OpenOptions::new().write(true).truncate(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("{}: {error}; only root may switch schedulers", path.display())
        }
        _ => format!("{}: {text:?}: {error}", path.display()),
    })
}

/// Where state files are: the first of these that can be written. It must not depend on the user or
/// the working folder, or two comparisons of one device would not know of each other; and only root
/// may put files there.
const FOLDERS: [&str; 2] = ["/run/weir", "/var/lib/weir"];

/// The first folder that is there, or can be made, in which files can be written, and which belongs
/// to root alone.
fn state_folder<'a>(folders: &[&'a Path]) -> Result<&'a Path, String> {
    let mut errors = Vec::new();
    for path in folders {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        let writable = made.and_then(|()| Ok(access(*path, Access::WRITE_OK | Access::EXEC_OK)?));
        let writable = writable.map_err(|error| format!("{}: {error}", path.display()));
        match writable.and_then(|()| folder::check(path)) {
            Ok(()) => return Ok(path),
            Err(error) => errors.push(error),
        }
    }
    Err(format!("{}; only root may switch schedulers", errors.join("; ")))
}

/// The name of a disk's state file: by its number, for it has many names.
fn state_name(disk: &Path) -> Result<String, String> {
    let path = disk.join("dev");
    let number = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("kernel-scheduler-{}.json", number.trim()))
}

/// The state file, made if it may be, locked, and what a comparison that was killed left in it.
fn open_state(path: &Path, make: bool) -> Result<(File, Option<Before>), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let in_use =
        || format!("{}: another comparison switches this device's scheduler", path.display());
    let mut how = OpenOptions::new();
    // Neither a link is followed nor a pipe waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    how.read(true).append(true).create(make).mode(0o644).custom_flags(flags);
    let mut file = how.open(path).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| in_use())?;
    // The holder before may have removed the file meanwhile; that lock would keep no other
    // comparison out.
    let held = file.metadata().map_err(failed)?.ino();
    if fs::symlink_metadata(path).map_err(failed)?.ino() != held {
        return Err(in_use());
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok((file, serde_json::from_str(&text).ok()))
}

/// The folder of a device's disk, which has the queue; a partition has that of its disk.
fn disk_of(device: &Path) -> Result<PathBuf, String> {
    let shown = device.display();
    let data = fs::metadata(device).map_err(|error| format!("{shown}: {error}"))?;
    if !data.file_type().is_block_device() {
        return Err(format!("{shown} is no block device: the kernel has no scheduler for it"));
    }
    let (major, minor) = (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let path = fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let disk = if path.join("partition").exists() { path.parent() } else { Some(path.as_path()) };
    Ok(disk.unwrap_or(&path).to_owned())
}

/// The number of the disk that a queue is of (Linux, Documentation/ABI/stable/sysfs-block).
fn diskseq(queue: &Path) -> String {
    let text = fs::read_to_string(queue.with_file_name("diskseq")).unwrap_or_default();
    String::from(text.trim())
}

fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    String::from(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like a device's queue; a file takes whatever is written.
    struct Paper(PathBuf);

    impl Paper {
        fn new(name: &str) -> Paper {
            let folder = std::env::temp_dir().join(format!("weir-{}-{name}", std::process::id()));
            fs::create_dir_all(folder.join("queue/iosched")).expect("a folder");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&folder, mode).expect("a mode");
            fs::write(folder.join("dev"), "259:3\n").expect("a file");
            fs::write(folder.join("diskseq"), "17\n").expect("a file");
            let paper = Paper(folder);
            for (file, text) in [
                (SCHEDULER, "mq-deadline"),
                ("nr_requests", "256\n"),
                ("iosched/fifo_batch", "7\n"),
            ] {
                fs::write(paper.queue().join(file), text).expect("a file");
            }
            paper
        }

        fn queue(&self) -> PathBuf {
            self.0.join("queue")
        }

        fn take(&self) -> Switch {
            let state = self.0.join("state.json");
            let (lock, _) = open_state(&state, true).expect("nobody else has it");
            let before = Before::of(Path::new("/dev/paper"), &self.queue()).expect("it is there");
            before.save(&lock, &state).expect("it is written");
            let kept = Kept { before, state, _lock: lock, done: AtomicBool::new(false) };
            Switch { kept: Arc::new(kept), recovered: false }
        }

        /// As root does on a queue of the kernel.
        fn put_back_from(&self, state: &Path) -> Result<String, String> {
            let owner = rustix::process::geteuid().as_raw();
            put_back_trusting(state, Trust { owner, queues: &self.0 })
        }

        /// A state file as a comparison that was killed leaves it.
        fn left(&self, change: impl FnOnce(&mut Before)) -> PathBuf {
            let mut before = Before::of(Path::new("/dev/paper"), &self.queue()).expect("a queue");
            change(&mut before);
            let state = self.0.join("left.json");
            // A file that is there may be a link.
            let _ = fs::remove_file(&state);
            fs::write(&state, serde_json::to_string(&before).expect("JSON")).expect("a file");
            fs::set_permissions(&state, fs::Permissions::from_mode(0o644)).expect("a mode");
            state
        }

        /// As a switch does: the tunables are others, and of other values.
        fn switch(&self, switch: &Switch) {
            switch.to("bfq").expect("a file takes anything");
            fs::write(self.queue().join("nr_requests"), "64\n").expect("a file");
            fs::write(self.queue().join("iosched/fifo_batch"), "16\n").expect("a file");
        }

        fn text(&self, file: &str) -> String {
            fs::read_to_string(self.queue().join(file)).expect("a file").trim().to_owned()
        }

        fn assert_as_before(&self) {
            let files = [SCHEDULER, "nr_requests", "iosched/fifo_batch"];
            assert_eq!(files.map(|file| self.text(file)), ["mq-deadline", "256", "7"]);
            assert!(!self.0.join("state.json").exists());
        }
    }

    impl Drop for Paper {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_scheduler_and_what_a_switch_resets_are_put_back_when_asked_and_when_dropped() {
        let paper = Paper::new("asked");
        let switch = paper.take();
        paper.switch(&switch);
        assert_eq!(paper.text(SCHEDULER), "bfq");
        switch.put_back().expect("all can be written");
        paper.assert_as_before();
        let switch = paper.take();
        paper.switch(&switch);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _switch = switch;
            panic!("in the middle");
        }));
        assert!(panicked.is_err());
        paper.assert_as_before();
    }

    #[test]
    fn what_a_killed_comparison_left_is_put_back_from_its_file() {
        let paper = Paper::new("killed");
        let switch = paper.take();
        paper.switch(&switch);
        let state = paper.0.join("state.json");
        let held = paper.put_back_from(&state).expect_err("it is in use");
        assert!(held.contains("another comparison"), "{held}");
        // As if it had been killed: the lock goes with the process, and nothing is put back.
        switch.kept.done.store(true, Ordering::Release);
        drop(switch);
        assert_eq!(paper.put_back_from(&state), Ok(String::from("/dev/paper")));
        paper.assert_as_before();
        let nothing = paper.put_back_from(&state).expect_err("nothing is left");
        assert!(nothing.contains("nothing is to be put back"), "{nothing}");
    }

    #[test]
    fn a_state_file_writes_only_what_the_queue_has_and_only_if_it_is_to_be_trusted() {
        let paper = Paper::new("trusted");
        let victim = paper.0.join("victim");
        fs::write(&victim, "kept").expect("a file");
        fs::create_dir(paper.0.join("queue/iosched/deep")).expect("a folder");
        fs::write(paper.0.join("queue/iosched/deep/file"), "kept").expect("a file");
        let refused = |state: &Path, part: &str| {
            let why = paper.put_back_from(state).expect_err(part);
            assert!(why.contains(part), "{why}");
            assert_eq!(fs::read_to_string(&victim).expect("it is there"), "kept");
        };
        let absolute = victim.display().to_string();
        for name in ["../victim", "iosched/../../victim", absolute.as_str(), "iosched/deep/file"] {
            let entry = (String::from(name), String::from("overwritten"));
            let state = paper.left(|before| before.files.extend([entry]));
            refused(&state, &format!("{name:?}: the queue has no such file"));
        }
        let deep = fs::read_to_string(paper.0.join("queue/iosched/deep/file"));
        assert_eq!(deep.expect("it is there"), "kept");
        // A name that the queue has, but as a link.
        std::os::unix::fs::symlink(&victim, paper.queue().join("linked")).expect("a link");
        let entry = (String::from("linked"), String::from("overwritten"));
        refused(&paper.left(|before| before.files.extend([entry])), "no such file");
        for queue in ["/etc", "/sys/block", &format!("{absolute}/../queue")] {
            refused(&paper.left(|before| before.queue = queue.into()), "is no queue of a disk");
        }
        let state = paper.left(|_| ());
        fs::set_permissions(&state, fs::Permissions::from_mode(0o664)).expect("a mode");
        refused(&state, "has mode 0664");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o644)).expect("a mode");
        let other = Trust { owner: rustix::process::geteuid().as_raw() + 1, queues: &paper.0 };
        let why = put_back_trusting(&state, other).expect_err("another's");
        assert!(why.contains("belongs to user"), "{why}");
        let link = paper.0.join("link.json");
        std::os::unix::fs::symlink(&state, &link).expect("a link");
        assert!(paper.put_back_from(&link).is_err());
        // As the command asks: of root, and under /sys.
        let why = put_back_from(&state).expect_err("it is elsewhere");
        assert!(why.contains("under /sys") || why.contains("belongs to user"), "{why}");
        fs::remove_file(paper.queue().join("linked")).expect("ours");
        assert_eq!(paper.put_back_from(&state), Ok(String::from("/dev/paper")));
    }

    #[test]
    fn one_disk_has_one_state_file_whatever_it_is_called_and_its_holder_keeps_others_out() {
        let paper = Paper::new("named");
        let take = |device: &str| {
            let none = paper.0.join("plain/folder");
            fs::write(paper.0.join("plain"), "").expect("a file");
            let folders = [none.as_path(), &paper.0.join("run")];
            let names = [String::from("mq-deadline")];
            Switch::of_disk(Path::new(device), &paper.0, &names, &folders)
        };
        let first = take("/dev/paper").expect("nobody has it");
        let state = paper.0.join("run/kernel-scheduler-259:3.json");
        assert!(state.exists(), "in the first folder that takes it");
        let second = take("/dev/disk/by-id/paper").expect_err("it is in use");
        assert!(second.contains("another comparison"), "{second}");
        paper.switch(&first);
        // As if it had been killed.
        first.kept.done.store(true, Ordering::Release);
        drop(first);
        let next = take("/dev/paper1").expect("nobody has it");
        assert!(next.recovered);
        assert_eq!(next.kept.before.scheduler, "mq-deadline");
        next.put_back().expect("all can be written");
        paper.assert_as_before();
        assert!(!state.exists());
    }

    #[test]
    fn what_was_left_of_one_disk_is_not_put_back_on_another_of_the_same_number() {
        let paper = Paper::new("replaced");
        let names = [String::from("mq-deadline")];
        let device = Path::new("/dev/paper");
        let take = || Switch::of_disk(device, &paper.0, &names, &[&paper.0]).expect("it is free");
        let killed = take();
        paper.switch(&killed);
        killed.kept.done.store(true, Ordering::Release);
        drop(killed);
        fs::write(paper.0.join("diskseq"), "18\n").expect("a file");
        let state = paper.0.join("kernel-scheduler-259:3.json");
        let why = paper.put_back_from(&state).expect_err("it is another disk");
        assert!(why.contains("/dev/paper is another disk now"), "{why}");
        assert_eq!(paper.text("nr_requests"), "64");
        let next = take();
        assert!(!next.recovered);
        assert_eq!(next.kept.before.files["nr_requests"], "64\n", "as the new one came");
    }

    #[test]
    fn a_scheduler_that_is_not_listed_is_tried_and_one_that_is_not_taken_is_named() {
        let paper = Paper::new("tried");
        let take = |name: &str| {
            let device = Path::new("/dev/paper");
            Switch::of_disk(device, &paper.0, &[String::from(name)], &[&paper.0])
        };
        // As a module that the write loads.
        let switch = take("kyber").expect("it is tried");
        assert_eq!(paper.text(SCHEDULER), "kyber");
        switch.put_back().expect("all can be written");
        paper.assert_as_before();
        // The scheduler read back is another, as if the first had not been taken.
        let why = take("a [b]").map(drop).expect_err("it is not taken");
        assert!(why.starts_with("kernel scheduler \"a [b]\": /dev/paper has "), "{why}");
        paper.assert_as_before();
        assert!(!paper.0.join("kernel-scheduler-259:3.json").exists());
    }

    #[test]
    fn without_a_folder_for_the_state_nothing_is_switched() {
        let paper = Paper::new("nowhere");
        fs::write(paper.0.join("plain"), "").expect("a file");
        let folders = [paper.0.join("plain/a"), paper.0.join("plain/b")];
        let why =
            state_folder(&folders.each_ref().map(|path| path.as_path())).expect_err("no folder");
        assert!(why.contains("plain/a") && why.contains("plain/b"), "{why}");
        assert!(why.ends_with("only root may switch schedulers"), "{why}");
    }

    #[test]
    fn what_cannot_be_switched_is_refused_by_name() {
        let take = |device: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().copied().map(String::from).collect();
            Switch::take(Path::new(device), &names).map(drop)
        };
        let null = take("/dev/null", &["none"]).expect_err("a character device");
        assert_eq!(null, "/dev/null is no block device: the kernel has no scheduler for it");
        assert!(take("/dev/nothing-here", &[]).is_err_and(|e| e.starts_with("/dev/nothing-here:")));
    }

    #[test]
    fn the_active_scheduler_is_the_one_in_brackets() {
        assert_eq!(active("none [mq-deadline] kyber\n"), "mq-deadline");
        assert_eq!(active("none\n"), "none");
    }
}
