//! Targets are written before they are measured: what was never written is read without a disk, a
//! file with holes has fewer of them after each run, and memory is given by the kernel at the first
//! touch.
//!
//! What outlives this process is written once, before the first run; memory by each process, for
//! that is gone with it. By itself only what is weir's own is written: memory, and the holes of
//! files that weir has made. Nothing that others keep is touched unless the user says so, by the
//! rules that hold for every job that writes.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, SeekFrom, fadvise, fdatasync, fstatvfs, seek};
use rustix::io::Errno;
use weir::target::split_at_commas;
use weir::{Device, Identity, Target};
use weir_bio::Prng;
use weir_load::{Amount, Direction, Ground, Job, Range, Sizes, mark};

use crate::engine::run::{self, Load};
use crate::workload::content;
use crate::workload::devices::{self, Devices};
use crate::workload::files::Files;
use crate::workload::spec::{Prepare, RunSpec, Workload};

/// The longest that is taken where the user has not asked for it.
const AUTO_MOST: Duration = Duration::from_secs(120);
/// The longest that is taken where the user has.
const FILL_MOST: Duration = Duration::from_secs(3600);
/// Bytes of a write.
const PIECE: u64 = 1 << 20;
/// The part of a file system that holes leave free, one in so many: who else writes there needs it.
const LEFT_FREE: u64 = 20;
const MIB: u64 = 1 << 20;

/// Who asks, and who is told.
pub struct Asked<'a> {
    /// The run that targets are prepared for.
    pub spec: &'a RunSpec,
    /// Set to end it early.
    pub interrupted: &'a AtomicBool,
    /// Told what is about to be done.
    pub tell: &'a dyn Fn(&str),
}

/// Writes what outlives this process: what was done, a sentence for each target.
///
/// # Errors
/// A target that holds what others keep, has no room, cannot be written, or was not within its
/// time; the wish that it ends.
pub fn persistent(asked: &Asked<'_>) -> Result<Vec<String>, String> {
    let spec = asked.spec;
    if matches!(spec.prepare, Prepare::No | Prepare::Memory) {
        return Ok(Vec::new());
    }
    let mut done = Vec::new();
    for (name, target, jobs) in wanted(spec)? {
        if devices::is_memory(&target) || target.config.read_only {
            continue;
        }
        match spec.prepare {
            Prepare::Fill => done.extend(fill(asked, &name, &target, &jobs)?),
            _ => {
                let leaves = devices::leaves(&name, &target);
                let is_plain = leaves.len() == 1 && target.backing.legs().is_empty();
                let jobs = if is_plain { &jobs[..] } else { &[] };
                // A part may be one that is only read.
                for (leaf, target) in leaves.iter().filter(|(_, leaf)| !leaf.config.read_only) {
                    make(leaf, target);
                    done.extend(fill_own_holes(asked, leaf, target, jobs)?);
                }
            }
        }
    }
    Ok(done)
}

/// A file that is to be made is made first. Where that fails the run itself says why.
fn make(leaf: &str, target: &Target) {
    let is_missing = matches!(target.backing.identity(), Identity::Missing(_));
    if is_missing && is_to_be_made(target) {
        let _ = devices::open(leaf, target, 1);
    }
}

/// Whether the target says how long its file is to be.
fn is_to_be_made(target: &Target) -> bool {
    target.clone().backing.size_to_make().is_some_and(|size| size.is_some())
}

/// The devices of a run, and the jobs on each; none where all of it is used.
fn wanted(spec: &RunSpec) -> Result<Vec<(String, Target, Vec<Job>)>, String> {
    let (found, jobs): (Devices, Vec<Job>) = match &spec.workload {
        Workload::Oltp(oltp) => {
            (Devices::of_groups(&[&oltp.data[..], &oltp.redo].concat())?, Vec::new())
        }
        Workload::Stages(stages) => {
            let files = Files::of(stages, spec.target.as_deref());
            let jobs: Vec<Job> = stages.iter().flat_map(|stage| stage.jobs.clone()).collect();
            let targets = jobs.iter().map(|job| files.target_of(job));
            (Devices::of_jobs(&targets.collect::<Result<Vec<_>, _>>()?)?, jobs)
        }
    };
    let Devices { devices, of } = found;
    let on = |number: usize| {
        jobs.iter()
            .zip(&of)
            .filter(|(_, disk)| **disk == number)
            .map(|(job, _)| job.clone())
            .collect()
    };
    let numbered = devices.into_iter().enumerate();
    Ok(numbered.map(|(number, (name, target))| (name, target, on(number))).collect())
}

/// The bytes that jobs touch, each once, in their order; all where there are no jobs. What lies
/// between two of them is not theirs.
fn touched(jobs: &[Job], ground: Ground) -> Vec<Range> {
    if jobs.is_empty() {
        return vec![Range { offset: 0, bytes: ground.bytes }];
    }
    let mut spans: Vec<Range> = jobs.iter().filter_map(|job| job.span(ground).ok()).collect();
    spans.sort_by_key(|span| span.offset);
    let mut touched: Vec<Range> = Vec::new();
    for Range { offset, bytes } in spans {
        let end = offset.saturating_add(bytes).min(ground.bytes);
        match touched.last_mut().filter(|last| offset <= last.offset + last.bytes) {
            Some(last) => last.bytes = last.bytes.max(end.saturating_sub(last.offset)),
            None if end > offset => touched.push(Range { offset, bytes: end - offset }),
            None => {}
        }
    }
    touched
}

fn bytes_of(ranges: &[Range]) -> u64 {
    ranges.iter().map(|range| range.bytes).sum()
}

/// The holes of a file that is weir's own.
fn fill_own_holes(
    asked: &Asked<'_>,
    name: &str,
    target: &Target,
    jobs: &[Job],
) -> Result<Option<String>, String> {
    let (whole_name, name) = (name, plain(name));
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let Some(path) = target.backing.path().filter(|path| path.is_file()) else { return Ok(None) };
    let about = std::fs::metadata(path).map_err(failed)?;
    if !is_own(asked.spec, whole_name, target, &about)? {
        return Ok(None);
    }
    // With its locks no other program that heeds them begins to use it meanwhile. Where they cannot
    // be had, the run itself says why.
    let Ok(_held) = devices::open(whole_name, target, 1) else { return Ok(None) };
    let file = File::options().read(true).write(true).open(path).map_err(failed)?;
    let ground = Ground { bytes: about.len(), block: 512, read_only: false };
    let ranges = touched(jobs, ground);
    let missing = bytes_of(&holes(&file, &ranges).map_err(failed)?);
    if missing == 0 {
        return Ok(None);
    }
    let room = fstatvfs(&file).map_err(|errno| failed(errno.into()))?;
    let [free, whole] = [room.f_bavail, room.f_blocks].map(|blocks| blocks * room.f_frsize);
    if !leaves_room(missing, free, whole) {
        return Ok(Some(format!(
            "{name}: {} MiB of its holes stay, for there is room for {} MiB of which \
             1/{LEFT_FREE} of the file system is left free: reading them asks no disk",
            missing.div_ceil(MIB),
            free / MIB
        )));
    }
    (asked.tell)(&format!(
        "{name}: {} MiB that were never written are written first, in {} s at most; --prepare no \
         leaves them",
        missing.div_ceil(MIB),
        AUTO_MOST.as_secs()
    ));
    let written = write_holes(asked, &file, &ranges, Instant::now() + AUTO_MOST);
    let written =
        written.map_err(|error| format!("{name}: its holes were to be written: {error}"))?;
    forget(&file);
    let left = match missing - written.min(missing) {
        0 => String::new(),
        left => format!(", and {} MiB were not in time", left.div_ceil(MIB)),
    };
    let written = written.div_ceil(MIB);
    Ok(Some(format!("{name}: {written} MiB of holes were written before the first run{left}")))
}

/// Whether so many bytes fit in what is free of a file system and leave others their part of it.
fn leaves_room(missing: u64, free: u64, whole: u64) -> bool {
    free.checked_sub(missing).is_some_and(|left| left >= whole / LEFT_FREE)
}

/// Whether a file is weir's own to write: nothing in it is of others, and the job writes, or a job
/// of weir has, or there is nothing in it and the target says how long it is to be made.
fn is_own(
    spec: &RunSpec,
    name: &str,
    target: &Target,
    about: &std::fs::Metadata,
) -> Result<bool, String> {
    let found = content::look(name, target)?;
    let is_made = about.blocks() == 0 && is_to_be_made(target);
    let is_ours = spec.changes() || found.is_marked || is_made;
    Ok(is_ours && found.held.is_none())
}

/// The holes within ranges; none where the file system does not tell.
fn holes(file: &File, ranges: &[Range]) -> std::io::Result<Vec<Range>> {
    let mut holes = Vec::new();
    for range in ranges {
        holes_within(file, *range, &mut holes)?;
    }
    Ok(holes)
}

fn holes_within(file: &File, range: Range, holes: &mut Vec<Range>) -> std::io::Result<()> {
    let (mut at, end) = (range.offset, range.offset + range.bytes);
    while at < end {
        let hole = match seek(file, SeekFrom::Hole(at)) {
            Ok(hole) => hole.min(end),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
            Err(errno) => return Err(errno.into()),
        };
        let data = match seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => end,
            Err(errno) => return Err(errno.into()),
        };
        if data > hole {
            holes.push(Range { offset: hole, bytes: data - hole });
        }
        at = data.max(at + 1);
    }
    Ok(())
}

/// Writes them until they are, or the time is up; how many bytes.
fn write_holes(
    asked: &Asked<'_>,
    file: &File,
    ranges: &[Range],
    until: Instant,
) -> std::io::Result<u64> {
    let mut bytes = vec![0; PIECE as usize];
    mark::fill(&mut Prng::new(asked.spec.seed), &mut bytes);
    let mut written = 0;
    for Range { offset, bytes: length } in holes(file, ranges)? {
        for at in (offset..offset + length).step_by(PIECE as usize) {
            if asked.interrupted.load(Ordering::Acquire) {
                return Err(std::io::Error::other("interrupted"));
            }
            if Instant::now() >= until {
                break;
            }
            let piece = PIECE.min(offset + length - at);
            // What has been written there meanwhile stays.
            let (range, mut still) = (Range { offset: at, bytes: piece }, Vec::new());
            holes_within(file, range, &mut still)?;
            if still != [range] {
                continue;
            }
            file.write_all_at(&bytes[..piece as usize], at)?;
            written += piece;
        }
    }
    fdatasync(file)?;
    Ok(written)
}

/// Writes all that jobs touch of a target, whatever is there.
fn fill(
    asked: &Asked<'_>,
    name: &str,
    target: &Target,
    jobs: &[Job],
) -> Result<Option<String>, String> {
    if !asked.spec.destroy {
        content::refuse(&[(String::from(name), target.clone())])?;
    }
    let opened = devices::open(name, target, 1)?;
    let ground = run::ground(&opened.device);
    if ground.read_only {
        return Err(format!("{name}: it cannot be written, and --prepare fill would"));
    }
    let ranges = touched(jobs, ground);
    has_room(name, target, &ranges)?;
    let mib = bytes_of(&ranges).div_ceil(MIB);
    let most = FILL_MOST.as_secs() / 60;
    (asked.tell)(&format!("{name}: {mib} MiB are written first, in {most} min at most"));
    let written =
        write(name, &opened.device, &opened.below(), &ranges, (FILL_MOST, asked.interrupted));
    if written? < bytes_of(&ranges) {
        return Err(format!(
            "{name}: {mib} MiB were to be written first, and were not in {most} min"
        ));
    }
    Ok(Some(format!("{name}: {mib} MiB were written before the first run")))
}

/// That the files of a target have room for what they miss.
fn has_room(name: &str, target: &Target, ranges: &[Range]) -> Result<(), String> {
    let end = ranges.last().map_or(0, |range| range.offset + range.bytes);
    for (leaf, below) in devices::leaves(name, target) {
        let Some(path) = below.backing.path().filter(|path| path.is_file()) else { continue };
        let failed = |error: std::io::Error| format!("{leaf}: {error}");
        let file = File::open(path).map_err(failed)?;
        let room = fstatvfs(&file).map_err(|errno| failed(errno.into()))?;
        let room = room.f_bavail * room.f_frsize;
        // Those of a file below a mapped disk lie elsewhere in it: all of it is looked at.
        let all = [Range { offset: 0, bytes: end }];
        let is_plain = target.backing.legs().is_empty();
        let holes = holes(&file, if is_plain { ranges } else { &all });
        let missing = bytes_of(&holes.map_err(failed)?);
        if missing > room {
            let [missing, room] = [missing, room].map(|bytes| bytes / MIB);
            return Err(format!(
                "{leaf}: {missing} MiB of it were never written, and its file system has room for \
                 {room} MiB"
            ));
        }
    }
    Ok(())
}

/// Writes memory that a run has just opened, as far as its jobs touch it: what was done.
///
/// # Errors
/// Memory that there is not enough of, where the user asked for it; the wish that it ends.
pub(crate) fn memory(
    (spec, interrupted): (&RunSpec, &AtomicBool),
    (name, target): (&str, &Target),
    (device, below): (&Device, &[Device]),
    jobs: &[&Job],
) -> Result<Option<String>, String> {
    if spec.prepare == Prepare::No || !keeps_in_memory(target) || run::ground(device).read_only {
        return Ok(None);
    }
    let (whole_name, name) = (name, plain(name));
    let jobs: Vec<Job> = jobs.iter().copied().cloned().collect();
    let ranges = touched(&jobs, run::ground(device));
    let bytes = bytes_of(&ranges);
    let mib = bytes.div_ceil(MIB);
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let of_host = read("/proc/meminfo").and_then(|text| available(&text));
    let of_groups = read("/proc/self/cgroup")
        .and_then(|groups| left_to_groups(Path::new("/sys/fs/cgroup"), &groups));
    let free = of_host.into_iter().chain(of_groups).min();
    if free.is_some_and(|free| bytes > free / 2) {
        let why = format!("{name}: {mib} MiB are more than half of the memory that is free");
        return match spec.prepare {
            Prepare::Fill => Err(format!("{why}, and --prepare fill would write them")),
            _ => Ok(Some(format!("{why}: it was empty, and reading that copies nothing"))),
        };
    }
    let written = write(whole_name, device, below, &ranges, (AUTO_MOST, interrupted))?;
    let (written, how) = match written < bytes {
        true => (written.div_ceil(MIB), format!(" of {mib} in {} s", AUTO_MOST.as_secs())),
        false => (mib, String::new()),
    };
    Ok(Some(format!("{name}: {written} MiB{how} were written before each run")))
}

/// Whether all that a target holds is plain memory: a disk model takes its disk's time, which is
/// the same for what was written and what was not, and null keeps nothing.
fn keeps_in_memory(target: &Target) -> bool {
    let leaves = devices::leaves("", target);
    leaves.iter().all(|(_, leaf)| leaf.backing.kind().names.contains(&"ram"))
}

/// A target without its options, which say nothing of its bytes: variants of one disk are told of
/// in one sentence.
fn plain(name: &str) -> String {
    split_at_commas(name).swap_remove(0)
}

/// Bytes that the kernel could give, of `/proc/meminfo`.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Bytes that a process may have beside what its control groups use, of `/proc/self/cgroup`: who
/// takes more is killed. `None` where they set no limit.
fn left_to_groups(root: &Path, of_process: &str) -> Option<u64> {
    let left = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (root, [limit, used]) = match parts.next()? {
            "" => (root.to_owned(), ["memory.max", "memory.current"]),
            "memory" => (root.join("memory"), ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
            _ => return None,
        };
        let number = |folder: &Path, name: &str| {
            std::fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok()
        };
        let group = root.join(parts.next()?.trim_start_matches('/'));
        let above = group.ancestors().filter(|folder| folder.starts_with(&root));
        let left =
            |folder: &Path| Some(number(folder, limit)?.saturating_sub(number(folder, used)?));
        above.filter_map(left).min()
    };
    of_process.lines().filter_map(left).min()
}

/// Writes ranges through the device itself, as a job does; how many bytes.
fn write(
    name: &str,
    device: &Device,
    below: &[Device],
    ranges: &[Range],
    (most, interrupted): (Duration, &AtomicBool),
) -> Result<u64, String> {
    let until = Instant::now() + most;
    let parts = ranges.iter().flat_map(|range| {
        let whole = range.bytes / PIECE * PIECE;
        [(range.offset, whole, PIECE), (range.offset + whole, range.bytes - whole, 0)]
    });
    let mut written = 0;
    for (offset, bytes, size) in parts.filter(|(_, bytes, _)| *bytes > 0) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let job = Job {
            name: String::from("prepare"),
            direction: Direction::Write,
            sizes: [1, 1, 1].map(|_| Sizes::Fixed(if size == 0 { bytes } else { size })),
            depth: 4,
            offset: Amount::Bytes(offset),
            size: Some(Amount::Bytes(bytes)),
            ..Job::default()
        };
        let measured = run::run(&run::Options {
            loads: &[Load::Stream { job: Box::new(job), disk: 0 }],
            devices: vec![device],
            below,
            names: &[String::from(name)],
            threads: 1,
            ramp: Duration::ZERO,
            runtime: Some(left),
            interrupted,
            commits: None,
            heading: "",
            progress: &|_| (),
        })?;
        if let Some(why) = measured.failure {
            return Err(format!("while the target was written first: {why}"));
        }
        written += measured.tally.all().bytes;
    }
    Ok(written)
}

/// Has the page cache forget a file or a block device: what one run has read is no gift to the
/// next.
pub(crate) fn forget_cache(target: &Target) {
    for (_, leaf) in devices::leaves("", target) {
        let file = leaf.backing.path().and_then(|path: &Path| File::open(path).ok());
        file.iter().for_each(forget);
    }
}

fn forget(file: &File) {
    // Pages that were not written out stay; a kernel that declines leaves the cache as it is.
    let _ = fdatasync(file);
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_jobs_touch_is_what_they_do_and_nothing_between() {
        let ground = Ground { bytes: 1 << 30, block: 512, read_only: false };
        let job = |offset: u64, bytes: u64| Job {
            offset: Amount::Bytes(offset),
            size: Some(Amount::Bytes(bytes)),
            ..Job::default()
        };
        let range = |offset: u64, bytes: u64| Range { offset: offset << 20, bytes: bytes << 20 };
        assert_eq!(touched(&[], ground), [range(0, 1024)]);
        assert_eq!(touched(&[Job::default()], ground), [range(0, 1024)]);
        let two = [job(8 << 20, 1 << 20), job(1 << 20, 2 << 20)];
        assert_eq!(touched(&two, ground), [range(1, 2), range(8, 1)]);
        // One within another, one behind it, and one that goes on.
        let more = [job(1 << 20, 4 << 20), job(2 << 20, 1 << 20), job(5 << 20, 1 << 20)];
        assert_eq!(touched(&more, ground), [range(1, 5)]);
        // One that does not fit touches nothing; the run says why.
        assert_eq!(touched(&[job(1 << 31, 4096)], ground), []);
    }

    #[test]
    fn holes_leave_a_twentieth_of_a_file_system_free() {
        assert!(leaves_room(50, 100, 1000));
        assert!(!leaves_room(51, 100, 1000));
        assert!(!leaves_room(101, 100, 0), "more than there is");
        assert!(!leaves_room(1, 49, 1000));
    }

    #[test]
    fn variants_of_a_disk_are_told_of_by_its_name_alone() {
        for (name, known) in [
            ("ram:1MiB,queue_mode=sq,scheduler=noop", "ram:1MiB"),
            ("file:disk.img", "file:disk.img"),
            (r"file:a\,b,size=1M", "file:a,b"),
        ] {
            assert_eq!(plain(name), known);
        }
    }

    #[test]
    fn memory_that_is_there_is_what_the_kernel_says() {
        let text = "MemTotal:  100 kB\nMemFree: 7 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(available(text), Some(2 << 20));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn memory_that_groups_leave_is_what_the_narrowest_of_them_does() {
        let root = std::env::temp_dir().join(format!("weir-groups-{}", std::process::id()));
        let set = |folder: &str, names: [&str; 2], values: [&str; 2]| {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
            for (name, value) in names.into_iter().zip(values) {
                std::fs::write(root.join(folder).join(name), format!("{value}\n")).expect("a file");
            }
        };
        let now = ["memory.max", "memory.current"];
        set("a", now, ["1000", "600"]);
        set("a/b", now, ["max", "500"]);
        set("a/b/c", now, ["900", "100"]);
        assert_eq!(left_to_groups(&root, "0::/a/b/c\n"), Some(400), "the one above it");
        assert_eq!(left_to_groups(&root, "0::/a/b/none\n"), Some(400));
        set("a", now, ["5000", "600"]);
        assert_eq!(left_to_groups(&root, "0::/a/b/c\n"), Some(800));
        assert_eq!(left_to_groups(&root, "0::/\n"), None, "no limit");
        set("memory/d", ["memory.limit_in_bytes", "memory.usage_in_bytes"], ["70", "90"]);
        assert_eq!(left_to_groups(&root, "3:cpu:/d\n4:memory:/d\n0::/\n"), Some(0));
        std::fs::remove_dir_all(&root).expect("its own");
    }

    #[test]
    fn only_plain_memory_is_written_by_each_run() {
        for (target, is_so) in [
            ("ram:1MiB", true),
            ("striped:64KiB:ram\\:1MiB+ram\\:1MiB", true),
            ("null:1MiB", false),
            ("model:hdd,size=1MiB", false),
            ("file:Cargo.toml", false),
        ] {
            let Ok(parsed) = Target::parse(target) else { continue };
            assert_eq!(keeps_in_memory(&parsed), is_so, "{target}");
        }
    }

    #[test]
    fn a_device_is_written_whole_also_where_it_is_no_multiple_of_a_write() {
        let target = Target::parse("ram:2560KiB").expect("a target");
        let opened = devices::open("ram", &target, 1).expect("it opens");
        let range = Range { offset: 512, bytes: (5 << 19) - 512 };
        let none = AtomicBool::new(false);
        let written = write("ram", &opened.device, &[], &[range], (FILL_MOST, &none));
        assert_eq!(written, Ok(range.bytes));
        let two = [0, 2 << 20].map(|offset| Range { offset, bytes: 4096 });
        let written = write("ram", &opened.device, &[], &two, (FILL_MOST, &none));
        assert_eq!(written, Ok(8192));
    }

    #[test]
    fn holes_are_found_where_they_are_and_written_unless_the_user_wishes_to_end() {
        let name = format!("weir-holes-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = File::options().read(true).write(true).create_new(true).open(&path);
        let file = open.expect("a file of the test's own");
        std::fs::remove_file(&path).expect("it has no name any more");
        file.set_len(8 << 20).expect("a file");
        file.write_all_at(&[1; 1 << 20], 1 << 20).expect("room");
        let range = |from: u64, bytes: u64| Range { offset: from << 20, bytes: bytes << 20 };
        let found = holes(&file, &[range(0, 4)]).expect("holes");
        assert_eq!(found, [range(0, 1), range(2, 2)]);
        let spec = RunSpec::of(Workload::Stages(Vec::new()));
        let (stop, go) = (AtomicBool::new(true), AtomicBool::new(false));
        let tell = |_: &str| ();
        let asked = |interrupted| Asked { spec: &spec, interrupted, tell: &tell };
        let later = Instant::now() + FILL_MOST;
        let ended = write_holes(&asked(&stop), &file, &[range(0, 4)], later);
        assert!(ended.is_err_and(|error| error.to_string() == "interrupted"));
        assert_eq!(holes(&file, &[range(0, 4)]).expect("holes"), found, "nothing was written");
        let late = write_holes(&asked(&go), &file, &[range(0, 4)], Instant::now());
        assert_eq!(late.expect("no time"), 0);
        let written = write_holes(&asked(&go), &file, &[range(0, 4)], later);
        assert_eq!(written.expect("room"), 3 << 20);
        assert_eq!(holes(&file, &[range(0, 8)]).expect("holes"), [range(4, 4)]);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 1 << 20).expect("a byte");
        assert_eq!(byte, [1], "what stood there stands");
    }
}
