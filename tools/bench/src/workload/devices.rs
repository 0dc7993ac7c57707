//! Which targets are one device, however they are written: it is opened once.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use weir::{Disk, Identity, Opened, Target};
use weir_load::Amount;

use crate::workload::mark::{self, Bytes, Marks, Open};

/// The name of every disk while it is measured; a number follows.
const DISK: &str = "bench";

/// Opens a target to be measured, with a queue for each of `homes` threads. People know it by its
/// target, `name`, and not by the name that it has here: so does what is said of it.
///
/// # Errors
/// A fault of the target, or a failure of its driver.
pub fn open(name: &str, target: &Target, homes: usize) -> Result<Opened, String> {
    open_number(0, name, target, homes)
}

/// Lets a block device be read while it is mounted or otherwise held: it is opened for no more.
pub fn read_held(target: &mut Target) {
    if let Identity::Block(_) = target.backing.identity() {
        target.config.read_only = true;
    }
}

/// The same, as the disk with this number among those that are measured.
pub(crate) fn open_number(
    number: usize,
    name: &str,
    target: &Target,
    homes: usize,
) -> Result<Opened, String> {
    let disk = disk_name(number);
    let opened = weir::open(&disk, target, homes);
    let mut opened = opened.map_err(|error| refusal(&disk, name, &error.to_string()))?;
    for notice in opened.notices.iter_mut().chain(&mut opened.warnings) {
        // Some are of a file or a server, and say of which.
        *notice = of_target(&disk, name, notice).unwrap_or_else(|| notice.clone());
    }
    Ok(opened)
}

/// The name of a disk while it is measured.
fn disk_name(number: usize) -> String {
    format!("{DISK}{number}")
}

/// What is said of a group of disks, which are known by the names of their targets.
pub(crate) fn of_group(names: &[&str], members: &[usize], said: &str) -> String {
    let mut text = String::from(said);
    for (member, name) in members.iter().zip(names) {
        text = text.replace(&disk_name(*member), name);
    }
    text
}

/// Opens a target to look at its present content: a file that is missing is not made.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_known(number: usize, name: &str, target: &Target) -> Result<Disk, String> {
    let disk = disk_name(number);
    open_known_as(&disk, target).map_err(|why| refusal(&disk, name, &why))
}

fn open_known_as(disk: &str, target: &Target) -> Result<Disk, String> {
    let mut target = target.clone();
    if let Some(size) = target.backing.size_to_make() {
        *size = None;
    }
    let nested = target.nested()?;
    let below = nested.iter().map(|(leg, target)| open_known_as(leg, target));
    let below = below.collect::<Result<Vec<Disk>, String>>()?;
    let opened = Disk::builder(target).name(disk).over(&below).open();
    opened.map_err(|error| error.to_string())
}

/// The targets in which the bytes of this one are: itself, or those that stand in it, each with its
/// name.
#[must_use]
pub fn leaves(name: &str, target: &Target) -> Vec<(String, Target)> {
    // What cannot be read was refused when the target was.
    let nested = target.nested().unwrap_or_default();
    match nested.is_empty() {
        true => vec![(String::from(name), target.clone())],
        false => nested.iter().flat_map(|(leg, target)| leaves(leg, target)).collect(),
    }
}

/// Whether any of the bytes of a target are on a block device of the kernel.
#[must_use]
pub fn is_of_kernel(name: &str, target: &Target) -> bool {
    let is_block = |leaf: &Target| matches!(leaf.backing.identity(), Identity::Block(_));
    leaves(name, target).iter().any(|(_, leaf)| is_block(leaf))
}

/// Why a target cannot be opened, behind its name.
fn refusal(disk: &str, name: &str, said: &str) -> String {
    of_target(disk, name, said).unwrap_or_else(|| format!("{name}: {said}"))
}

/// A notice of a device, with the name of its target in the place of the one it has here.
fn of_target(disk: &str, name: &str, said: &str) -> Option<String> {
    let rest = said.strip_prefix(disk)?.strip_prefix(": ")?;
    Some(format!("{name}: {rest}"))
}

/// The devices behind some targets.
#[derive(Debug)]
pub(crate) struct Devices {
    /// Each once, with its name as first written.
    pub(crate) devices: Vec<(String, Target)>,
    /// For each target, the number of its device.
    pub(crate) of: Vec<usize>,
}

/// The identity of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A device that has no other name than its target.
    Text(String),
    /// The identity that its driver gives, with the one name of a path.
    At(Identity),
}

impl Devices {
    /// Those of the targets of jobs: what is called the same is the same, as a file is. A file that
    /// is to be made gets the largest size asked for.
    ///
    /// # Errors
    /// A text that is no target; targets that are one device and differ in their options.
    pub(crate) fn of_jobs(targets: &[String]) -> Result<Devices, String> {
        Devices::of(targets, |_| false)
    }

    /// Those of the targets of groups. Memory has no name: each time it is given it is another
    /// disk, as large as that.
    ///
    /// # Errors
    /// As [`Devices::of_jobs`].
    pub(crate) fn of_groups(targets: &[String]) -> Result<Devices, String> {
        Devices::of(targets, is_memory)
    }

    /// Those of such targets, of which some are never the same as another.
    fn of(targets: &[String], is_alone: fn(&Target) -> bool) -> Result<Devices, String> {
        let mut found = Devices { devices: Vec::new(), of: Vec::new() };
        let mut places: Vec<Place> = Vec::new();
        for name in targets {
            let mut target =
                Target::parse(name).map_err(|why| match why.contains(name.as_str()) {
                    true => why,
                    false => format!("target {:?}: {why}", weir::target::shown(name)),
                })?;
            let place = place_of(name, &target);
            let known = || places.iter().position(|known| *known == place);
            let Some(known) = (!is_alone(&target)).then(known).flatten() else {
                found.of.push(found.devices.len());
                found.devices.push((weir::target::shown(name), target));
                places.push(place);
                continue;
            };
            let (first, opened) = &mut found.devices[known];
            if !agree(opened, &target) {
                return Err(format!(
                    "{first} and {} are one device: give it the same options everywhere",
                    weir::target::shown(name)
                ));
            }
            let asked = target.backing.size_to_make().map(|size| *size);
            if let (Some(mine), Some(asked)) = (opened.backing.size_to_make(), asked) {
                *mine = (*mine).max(asked);
            }
            found.of.push(known);
        }
        Ok(found)
    }
}

/// Whether what a target holds is memory of this process, or nothing.
pub(crate) fn is_memory(target: &Target) -> bool {
    let leaves = leaves("", target);
    leaves.iter().all(|(_, leaf)| leaf.backing.identity() == Identity::Own)
}

/// Two of these that are one device, or one of which is a part of the other. Their names may say
/// so, and of block devices the kernel; else marks of this run are written at each of `marks`,
/// looked for through all, and what stood there is put back. A device that is memory of this
/// process is one of its own.
///
/// # Errors
/// A target that cannot be opened, read or written, with its name; a mark that could not be
/// removed; the wish that the run ends.
pub(crate) fn same_device(
    devices: &[(String, Target)],
    marks: &[(usize, Amount)],
    run: u64,
    interrupted: &AtomicBool,
) -> Result<Option<[String; 2]>, String> {
    let names = |pair: [usize; 2]| Some(pair.map(|disk| devices[disk].0.clone()));
    // Of all leaves, whose each is.
    let (mut of, mut all) = (Vec::new(), Vec::new());
    for (number, (name, target)) in devices.iter().enumerate() {
        let leaves = leaves(name, target);
        of.extend(leaves.iter().map(|_| number));
        all.extend(leaves);
    }
    if let Some(pair) = with_one_leaf(&all, &of) {
        return Ok(names(pair));
    }
    let part = disk_and_part(&all, Path::new(BLOCK_DEVICES)).map(|pair| pair.map(|leaf| of[leaf]));
    if let Some(pair) = part.filter(|pair| pair[0] != pair[1]) {
        return Ok(names(pair));
    }
    let same = same_by_marks(devices, marks, (run, interrupted), |name, target| {
        let disk = Disk::builder(target.clone()).name(DISK).reactors(1).open();
        let disk = disk.map_err(|error| refusal(DISK, name, &error.to_string()))?;
        let session = disk.session().map_err(|error| refusal(DISK, name, &error.to_string()))?;
        Ok(Open { name, size: disk.size(), read_only: disk.limits().read_only, disk: session })
    })?;
    Ok(same.and_then(names))
}

/// Two devices that have a leaf in common by its name; `of` has the device of each.
fn with_one_leaf(leaves: &[(String, Target)], of: &[usize]) -> Option<[usize; 2]> {
    let places: Vec<Place> = leaves.iter().map(|(name, target)| place_of(name, target)).collect();
    let is_own = |place: &Place| matches!(place, Place::Text(_));
    places.iter().enumerate().filter(|(_, place)| !is_own(place)).find_map(|(at, place)| {
        let same = |other: usize| places[other] == *place && of[other] != of[at];
        Some([of[(0..at).find(|other| same(*other))?], of[at]])
    })
}

/// The same by marks alone, with a way to open a device: it is opened once.
fn same_by_marks<'a, B: Bytes>(
    devices: &'a [(String, Target)],
    marks: &[(usize, Amount)],
    (run, interrupted): (u64, &AtomicBool),
    mut open: impl FnMut(&'a str, &Target) -> Result<Open<'a, B>, String>,
) -> Result<Option<[usize; 2]>, String> {
    // Of those that are opened, which device each is.
    let (mut opened, mut of) = (Vec::new(), Vec::new());
    for (number, (name, target)) in devices.iter().enumerate() {
        if !is_memory(target) {
            opened.push(open(name, target)?);
            of.push(number);
        }
    }
    let place = |device: usize| of.iter().position(|known| *known == device);
    let marks: Vec<_> = marks.iter().filter_map(|(disk, at)| Some((place(*disk)?, *at))).collect();
    let same = first_same(&mut opened, &marks, run, interrupted)?;
    Ok(same.map(|pair| pair.map(|disk| of[disk])))
}

/// Two disks of which one shows a mark of the other: all are written first, and then each is read
/// once at every place that has any.
fn first_same<B: Bytes>(
    disks: &mut [Open<'_, B>],
    wanted: &[(usize, Amount)],
    run: u64,
    interrupted: &AtomicBool,
) -> Result<Option<[usize; 2]>, String> {
    let count = disks.len();
    let mut places = Vec::new();
    for (disk, offset) in wanted {
        let Open { size, read_only, .. } = disks[*disk];
        let at = offset.of(size, mark::BYTES) / mark::BYTES * mark::BYTES;
        // A disk that cannot be written is refused later, and by a better reason.
        if at + mark::BYTES <= size && !read_only && !places.contains(&(*disk, at)) {
            places.push((*disk, at));
        }
    }
    let mut marks = Marks::on(disks, run);
    let goes_on = || match interrupted.load(Ordering::Acquire) {
        true => Err(String::from("interrupted")),
        false => Ok(()),
    };
    let mut look = || {
        for (disk, at) in &places {
            goes_on()?;
            marks.write(*disk, *at)?;
        }
        for at in marks.places() {
            for disk in 0..count {
                goes_on()?;
                if let Some(written) = marks.shown_by(disk, at) {
                    return Ok(Some([written, disk]));
                }
            }
        }
        Ok(None)
    };
    let seen = look();
    match (seen, marks.put_back()) {
        (seen, Ok(())) => seen,
        (Ok(_), Err(left)) => Err(left),
        (Err(why), Err(left)) => Err(format!("{why}; {left}")),
    }
}

/// Where the kernel tells of its block devices, by number.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// Two of these of which one is a disk and the other a part of it.
fn disk_and_part(devices: &[(String, Target)], sysfs: &Path) -> Option<[usize; 2]> {
    let numbers: Vec<Option<u64>> = devices
        .iter()
        .map(|(name, target)| match place_of(name, target) {
            Place::At(Identity::Block(number)) => Some(number),
            _ => None,
        })
        .collect();
    numbers.iter().enumerate().find_map(|(part, number)| {
        let disk = disk_of(sysfs, (*number)?)?;
        Some([numbers.iter().position(|other| *other == Some(disk))?, part])
    })
}

/// The number of the disk of which the device of this number is a partition.
fn disk_of(sysfs: &Path, number: u64) -> Option<u64> {
    let named = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let device = sysfs.join(named);
    if !device.join("partition").exists() {
        return None;
    }
    // The entry there is a link into the folder of the disk.
    let disk = device.canonicalize().ok()?;
    let text = std::fs::read_to_string(disk.parent()?.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A path under its one name, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
    let in_directory = || {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_directory).unwrap_or_else(|| path.to_path_buf())
}

/// Where these targets are; what is none is nowhere but in its own name.
pub(crate) fn places(names: &[String]) -> Vec<Place> {
    let place = |name: &String| match Target::parse(name) {
        Ok(target) => place_of(name, &target),
        Err(_) => Place::Text(name.clone()),
    };
    names.iter().map(place).collect()
}

fn place_of(name: &str, target: &Target) -> Place {
    Place::At(match target.backing.identity() {
        Identity::Own => return Place::Text(String::from(name)),
        Identity::Missing(path) => Identity::Missing(canonical(&path)),
        Identity::Socket(path, disk) => Identity::Socket(canonical(&path), disk),
        named @ (Identity::Block(_) | Identity::File(..) | Identity::Remote(..)) => named,
    })
}

/// Whether two targets on one device say the same but for where it is, and how large it is to be.
fn agree(one: &Target, two: &Target) -> bool {
    // The configuration of a queue cannot be compared, but all of it is shown.
    let queues = |target: &Target| {
        let rest = Target { backing: one.backing.clone(), ..target.clone() };
        format!("{rest:?}")
    };
    one.backing.settings() == two.backing.settings() && queues(one) == queues(two)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    fn strings(targets: &[&str]) -> Vec<String> {
        targets.iter().map(|target| String::from(*target)).collect()
    }

    fn of(targets: &[&str]) -> Result<Devices, String> {
        Devices::of_jobs(&strings(targets))
    }

    #[test]
    fn a_file_that_is_to_be_made_is_one_device_of_the_largest_size() {
        let devices = of(&["file:nowhere.img,size=1MiB", "file:./nowhere.img,size=2MiB"]);
        let Devices { mut devices, of } = devices.expect("one device");
        assert_eq!((devices.len(), of), (1, vec![0, 0]));
        let size = devices[0].1.backing.size_to_make().expect("a file");
        assert_eq!(*size, Some(2 << 20));
    }

    #[test]
    fn a_device_is_the_same_in_every_spelling_and_others_are_not() {
        let devices = of(&["file:Cargo.toml", "file:src/../Cargo.toml", "file:src/lib.rs"]);
        assert_eq!(devices.expect("two files").of, [0, 0, 1]);
        let devices = of(&["nbd+unix:/x?a", "nbd+unix:///a?socket=/x", "nbd+unix:/x?b"]);
        assert_eq!(devices.expect("two exports").of, [0, 0, 1]);
        assert_eq!(of(&["ram:1M", "ram:1M", "ram:2M"]).expect("two").of, [0, 0, 1]);
    }

    #[test]
    fn memory_is_another_disk_each_time_a_group_names_it_and_a_file_is_not() {
        let names =
            ["ram:1M", "file:Cargo.toml", "ram:1M", "null:1M", "null:1M", "file:Cargo.toml"];
        let Devices { devices, of } = Devices::of_groups(&strings(&names)).expect("five");
        assert_eq!((devices.len(), of), (5, vec![0, 1, 2, 3, 4, 1]));
        // One that is called by no other name may have other options.
        let names = ["ram:1M,nr_requests=8", "ram:1M,nr_requests=9"];
        assert_eq!(Devices::of_groups(&strings(&names)).expect("two").of, [0, 1]);
    }

    #[test]
    fn what_a_mark_overwrites_is_put_back() {
        let folder = std::env::temp_dir().join(format!("weir-marks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (one, two) = (folder.join("one"), folder.join("two"));
        let bytes: Vec<u8> = (0..1 << 16).map(|n: u32| n as u8 | 1).collect();
        for path in [&one, &two] {
            std::fs::write(path, &bytes).expect("a file");
        }
        let target = |path: &Path| {
            let name = format!("file:{}", path.display());
            let target = Target::parse(&name).expect("a target");
            (name, target)
        };
        let marks = [(0, Amount::Bytes(8192))];
        let running = AtomicBool::new(false);
        let found = |devices: &[(String, Target)]| same_device(devices, &marks, 7, &running);
        let [one, two] = [target(&one), target(&two)];
        assert_eq!(found(&[one, two]), Ok(None));
        assert_eq!(std::fs::read(folder.join("one")).expect("a file"), bytes);
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn a_partition_is_a_part_of_its_disk_and_of_no_other() {
        let folder = std::env::temp_dir().join(format!("weir-sysfs-{}", std::process::id()));
        let (numbers, disk) = (folder.join("dev/block"), folder.join("devices/block/sda"));
        for (device, number) in [(disk.clone(), "8:0"), (disk.join("sda1"), "8:1")] {
            std::fs::create_dir_all(&device).expect("a folder");
            std::fs::create_dir_all(&numbers).expect("a folder");
            std::fs::write(device.join("dev"), format!("{number}\n")).expect("a file");
            std::os::unix::fs::symlink(&device, numbers.join(number)).expect("a link");
        }
        std::fs::write(disk.join("sda1/partition"), "1\n").expect("a file");
        let of = |major, minor| disk_of(&numbers, rustix::fs::makedev(major, minor));
        assert_eq!(of(8, 1), Some(rustix::fs::makedev(8, 0)));
        assert_eq!((of(8, 0), of(8, 16)), (None, None));
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn what_is_said_of_a_device_begins_with_its_target() {
        let open = |name: &str| open(name, &Target::parse(name).expect("a target"), 1);
        let notices = open("ram:1MiB,barriers=off").expect("it opens").warnings;
        assert!(notices[0].starts_with("ram:1MiB,barriers=off: barriers"), "{notices:?}");
        let why = open("file:/nonexistent/disk").err().expect("no such file");
        assert!(
            why.starts_with("file:/nonexistent/disk: file: /nonexistent/disk: cannot"),
            "{why}"
        );
    }

    /// The calls of some disks that are no devices.
    #[derive(Default)]
    struct Counts {
        opens: Cell<usize>,
        reads: Cell<usize>,
        writes: Cell<usize>,
    }

    struct Counted<'a>(&'a RefCell<Vec<u8>>, &'a Counts);

    impl Bytes for Counted<'_> {
        fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
            self.1.reads.update(|reads| reads + 1);
            bytes.copy_from_slice(&self.0.borrow()[at as usize..][..bytes.len()]);
            Ok(())
        }

        fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
            self.1.writes.update(|writes| writes + 1);
            self.0.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    /// Looks for one device among as many disks as `of` has, each of which is the one with that
    /// number; all but the first are marked at these places. The answer, and the calls it took.
    fn look(of: &[usize], at: &[u64], ends: bool) -> (Result<Option<[usize; 2]>, String>, Counts) {
        let name = |disk| format!("file:/nonexistent/{disk}");
        let target = |name: String| (name.clone(), Target::parse(&name).expect("a target"));
        let devices: Vec<_> = (0..of.len()).map(|disk| target(name(disk))).collect();
        let disks: Vec<_> = of.iter().map(|_| RefCell::new(vec![7; 1 << 16])).collect();
        let places = at.iter().map(|at| Amount::Bytes(*at));
        let marks = places.flat_map(|at| (1..of.len()).map(move |disk| (disk, at)));
        let (counts, ends) = (Counts::default(), AtomicBool::new(ends));
        let marks: Vec<_> = marks.collect();
        let found = same_by_marks(&devices, &marks, (7, &ends), |name, _| {
            let disk = &disks[of[counts.opens.get()]];
            counts.opens.update(|opens| opens + 1);
            Ok(Open { name, size: 1 << 16, read_only: false, disk: Counted(disk, &counts) })
        });
        let untouched = |disk: &RefCell<Vec<u8>>| disk.borrow().iter().all(|byte| *byte == 7);
        assert!(disks.iter().all(untouched), "all is put back");
        (found, counts)
    }

    #[test]
    fn each_of_many_disks_is_opened_once_and_read_once_for_the_marks_of_all() {
        let apart: Vec<usize> = (0..64).collect();
        let (found, counts) = look(&apart, &[0], false);
        assert_eq!((found, counts.opens.get()), (Ok(None), 64));
        // The blocks below 63 marks, and all 64 once.
        assert_eq!((counts.reads.get(), counts.writes.get()), (63 + 64, 2 * 63));
        let (found, counts) = look(&apart, &[0, 8192], false);
        assert_eq!((found, counts.reads.get()), (Ok(None), 2 * (63 + 64)));
    }

    #[test]
    fn two_of_many_disks_that_are_one_are_found_whether_both_are_marked_or_not() {
        for (of, pair) in
            [([0, 1, 2, 2, 4], [3, 2]), ([0, 1, 2, 3, 0], [4, 0]), ([0, 1, 2, 3, 1], [4, 1])]
        {
            for at in [&[0][..], &[4096, 0]] {
                assert_eq!(look(&of, at, false).0, Ok(Some(pair)), "{of:?} at {at:?}");
            }
        }
    }

    #[test]
    fn a_run_that_is_to_end_marks_nothing_more() {
        let (found, counts) = look(&[0, 1], &[0], true);
        assert_eq!((found, counts.writes.get()), (Err(String::from("interrupted")), 0));
    }

    #[test]
    fn an_option_that_is_wrong_is_named_with_its_target_and_its_bound() {
        let why = of(&["ram:1M", "ram:2M,nr_requests=abc"]).expect_err("no number");
        let expected =
            "target \"ram:2M,nr_requests=abc\": nr_requests=abc is not a number in 4..=2048";
        assert_eq!(why, expected);
        assert!(of(&["disk:1M"]).expect_err("no kind").starts_with("target \"disk:1M\" does not"));
    }

    #[test]
    fn one_device_with_other_options_is_refused_with_both_names() {
        let why = of(&["nbd+unix:/x?sda", "nbd+unix:/x?sda,connections=2"]).expect_err("one");
        assert!(why.contains("nbd+unix:/x?sda and ") && why.contains("connections=2"), "{why}");
    }
}
