//! Which disks of a configuration are one device below, or one of which holds the other: a file
//! and a loop device over it, a block device and a partition of it, two spellings of an address.
//!
//! What the kernel and the names themselves tell is known. Not known is what only a server knows:
//! two names of one host, two exports or units of one disk, a file by way of a network file system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, makedev, minor};
use weir::{Identity, Target};

/// Where the kernel tells of its block devices, by number.
pub(super) const BLOCK_DEVICES: &str = "/sys/dev/block";

/// The places of the bytes of one disk.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The devices that it is.
    own: Vec<Identity>,
    /// Devices that hold those.
    holders: Vec<Identity>,
}

/// What is to be said of a disk whose file is not there and is made as it is opened: an image that
/// was lost is one without data from then on.
pub(crate) fn to_be_made(name: &str, target: &Target) -> Option<String> {
    match target.backing.identity() {
        Identity::Missing(path) => {
            let path = path.display();
            Some(format!("disk {name}: {path} was not there: a new file without data was made"))
        }
        _ => None,
    }
}

impl Places {
    /// Those of a target: its own, or those of the targets that stand in it.
    pub(super) fn of(target: &Target, devices: &Path) -> Places {
        let mut places = Places::default();
        places.add(target, devices);
        places
    }

    fn add(&mut self, target: &Target, devices: &Path) {
        // What cannot be read was refused when the target was.
        let nested = target.nested().unwrap_or_default();
        nested.iter().for_each(|(_, leaf)| self.add(leaf, devices));
        if !nested.is_empty() {
            return;
        }
        match target.backing.identity() {
            Identity::Own => {}
            Identity::Missing(path) => self.own.push(Identity::Missing(canonical(&path))),
            Identity::Socket(path, disk) => {
                self.own.push(Identity::Socket(canonical(&path), disk));
            }
            Identity::Block(number) => {
                self.own.push(Identity::Block(number));
                self.add_holders(number, devices, DEPTH_MAX);
            }
            known @ (Identity::File(..) | Identity::Remote(..)) => self.own.push(known),
        }
    }

    /// The devices and files below a block device of the kernel.
    fn add_holders(&mut self, number: u64, devices: &Path, depth: u8) {
        // The entry there is a link into the folder of the device.
        let name = format!("{}:{}", major(number), minor(number));
        let Ok(folder) = devices.join(name).canonicalize() else { return };
        let mut below = Vec::new();
        if folder.join("partition").exists() {
            below.extend(folder.parent().and_then(number_of));
        }
        let slaves = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        below.extend(slaves.filter_map(|slave| number_of(&slave.path())));
        if let Ok(path) = fs::read_to_string(folder.join("loop/backing_file"))
            && let Ok(data) = fs::metadata(path.trim_end_matches('\n'))
        {
            let at = fs::read_to_string(folder.join("loop/offset"));
            // One that begins where its file does is the file; another one is a part of it.
            let is_whole = at.is_ok_and(|at| at.trim() == "0");
            let known = match data.file_type().is_block_device() {
                true => Identity::Block(data.rdev()),
                false => Identity::File(data.dev(), data.ino()),
            };
            if is_whole { &mut self.own } else { &mut self.holders }.push(known);
            below.extend(data.file_type().is_block_device().then_some(data.rdev()));
        }
        for number in below {
            self.holders.push(Identity::Block(number));
            if depth > 0 {
                self.add_holders(number, devices, depth - 1);
            }
        }
    }
}

/// The places of many disks: which of them a further one is, or holds, or lies in, is found without
/// a look at each.
#[derive(Debug, Default)]
pub(super) struct Index {
    own: BTreeMap<String, First>,
    holders: BTreeMap<String, First>,
}

/// The first disks with a device, by their numbers.
#[derive(Clone, Copy, Debug)]
struct First {
    any: usize,
    in_pool: Option<usize>,
}

impl Index {
    /// Adds those of disk `number`, which is in a pool or is not.
    pub(super) fn add(&mut self, number: usize, places: &Places, in_pool: bool) {
        let note = |all: &mut BTreeMap<String, First>, device: &Identity| {
            let first = all.entry(key(device)).or_insert(First { any: number, in_pool: None });
            first.any = first.any.min(number);
            if in_pool {
                first.in_pool = Some(first.in_pool.map_or(number, |known| known.min(number)));
            }
        };
        places.own.iter().for_each(|device| note(&mut self.own, device));
        places.holders.iter().for_each(|device| note(&mut self.holders, device));
    }

    /// The disk of the lowest number that these places are, hold or lie in; of those in pools only,
    /// if that is asked for.
    pub(super) fn find(&self, places: &Places, in_pools_only: bool) -> Option<usize> {
        let of = |all: &BTreeMap<String, First>, device: &Identity| {
            let first = all.get(&key(device))?;
            if in_pools_only { first.in_pool } else { Some(first.any) }
        };
        let own = places.own.iter();
        let found = own.flat_map(|device| [of(&self.own, device), of(&self.holders, device)]);
        let below = places.holders.iter().map(|device| of(&self.own, device));
        found.chain(below).flatten().min()
    }
}

/// Equal for equal devices, and for no others.
fn key(device: &Identity) -> String {
    format!("{device:?}")
}

/// Devices on devices that are looked at.
const DEPTH_MAX: u8 = 8;

/// The number of the device with this folder.
fn number_of(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A path under its one name, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
    let in_folder = || {
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(folder.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    impl Places {
        /// Whether one of them is the other, or holds it.
        fn overlap(&self, other: &Places) -> bool {
            let is_of = |one: &Identity, places: &Places| {
                places.own.contains(one) || places.holders.contains(one)
            };
            self.own.iter().any(|one| is_of(one, other))
                || other.own.iter().any(|one| is_of(one, self))
        }
    }

    #[test]
    fn an_index_finds_the_first_disk_that_a_look_at_each_finds() {
        let seed = 11;
        println!("seed {seed}");
        let mut dice = Prng::new(seed);
        for _ in 0..500 {
            let mut devices = |most: u64| {
                let count = dice.below(most);
                (0..count).map(|_| Identity::Block(dice.below(40))).collect::<Vec<_>>()
            };
            let all: Vec<(Places, bool)> = (0..12)
                .map(|number| (Places { own: devices(3), holders: devices(3) }, number % 3 == 0))
                .collect();
            let new = Places { own: devices(3), holders: devices(3) };
            let mut index = Index::default();
            // In any order.
            for (number, (places, in_pool)) in all.iter().enumerate().rev() {
                index.add(number, places, *in_pool);
            }
            for in_pools_only in [false, true] {
                let expected = all.iter().position(|(places, in_pool)| {
                    (*in_pool || !in_pools_only) && places.overlap(&new)
                });
                assert_eq!(index.find(&new, in_pools_only), expected, "{new:?} of {all:?}");
            }
        }
    }
    use std::os::unix::fs::symlink;

    /// A folder like that of the kernel, with a disk, two partitions of it, a device over the
    /// first, and two loop devices over a file.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let of = std::process::id();
            let folder = std::env::temp_dir().join(format!("weir-same-{name}-{of}"));
            let _ = fs::remove_dir_all(&folder);
            let machine = Machine(folder);
            machine.file("vm.img", "");
            machine.device("sda", 8, 0);
            machine.device("sda/sda1", 8, 1);
            machine.file("devices/sda/sda1/partition", "1\n");
            machine.device("sda/sda2", 8, 2);
            machine.file("devices/sda/sda2/partition", "2\n");
            machine.device("dm-0", 253, 0);
            fs::create_dir_all(machine.0.join("devices/dm-0/slaves")).expect("a folder");
            let slave = machine.0.join("devices/dm-0/slaves/sda1");
            symlink(machine.0.join("devices/sda/sda1"), slave).expect("a link");
            for (number, offset) in [(0, "0\n"), (1, "1048576\n")] {
                let name = format!("loop{number}");
                machine.device(&name, 7, number);
                let image = format!("{}\n", machine.image().display());
                machine.file(&format!("devices/{name}/loop/backing_file"), &image);
                machine.file(&format!("devices/{name}/loop/offset"), offset);
            }
            machine
        }

        fn image(&self) -> PathBuf {
            self.0.join("vm.img")
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        fn device(&self, path: &str, major: u32, minor: u32) {
            self.file(&format!("devices/{path}/dev"), &format!("{major}:{minor}\n"));
            let (link, to) = (self.0.join("block"), self.0.join("devices").join(path));
            fs::create_dir_all(&link).expect("a folder");
            symlink(to, link.join(format!("{major}:{minor}"))).expect("a link");
        }

        fn block(&self, major: u32, minor: u32) -> Places {
            let number = makedev(major, minor);
            let mut places = Places { own: vec![Identity::Block(number)], holders: Vec::new() };
            places.add_holders(number, &self.0.join("block"), DEPTH_MAX);
            places
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn of(target: &str) -> Places {
        Places::of(&Target::parse(target).expect("a target"), Path::new("/nowhere"))
    }

    #[test]
    fn a_device_is_that_of_what_it_is_a_part_of_and_not_of_another_part() {
        let machine = Machine::new("parts");
        let (disk, first, second) = (machine.block(8, 0), machine.block(8, 1), machine.block(8, 2));
        let mapped = machine.block(253, 0);
        assert!(disk.overlap(&first) && second.overlap(&disk) && first.overlap(&mapped));
        assert!(mapped.overlap(&disk));
        assert!(!first.overlap(&second) && !mapped.overlap(&second));
    }

    #[test]
    fn a_loop_device_is_that_of_its_file() {
        let machine = Machine::new("loops");
        let file = of(&format!("file:{}", machine.image().display()));
        let (whole, part) = (machine.block(7, 0), machine.block(7, 1));
        assert!(whole.overlap(&file) && file.overlap(&part) && whole.overlap(&part));
        assert!(!file.overlap(&of("file:/dev/null")) && !whole.overlap(&machine.block(8, 0)));
    }

    #[test]
    fn a_server_is_the_same_in_each_spelling_that_can_be_known() {
        for (one, other) in [
            ("nbd:localhost:20100/a", "nbd://127.0.0.1:20100/a"),
            ("nbd:LocalHost:20100/a", "nbd:[::1]:20100/a"),
            ("nbd:Storage.example:20100/a", "nbd:storage.example.:20100/a"),
            ("nbd:[fd00::1]:20100/a", "nbd:[fd00:0:0:0:0:0:0:1]:20100/a"),
            ("nbd+unix:/tmp/x.sock?a", "nbd+unix:/tmp/../tmp/x.sock?a"),
            ("file:/tmp/../tmp/none.img,size=1M", "file:/tmp/none.img,size=1M"),
        ] {
            assert!(of(one).overlap(&of(other)), "{one} {other}");
        }
        for (one, other) in [
            ("nbd:localhost:20100/a", "nbd:localhost:20100/b"),
            ("nbd:localhost:20100/a", "nbd:localhost:20101/a"),
            ("nbd:10.0.0.1:20100/a", "nbd:10.0.0.2:20100/a"),
            ("ram:1M", "ram:1M"),
        ] {
            assert!(!of(one).overlap(&of(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_disk_over_targets_is_where_these_are() {
        let mapped = of("linear:ram:1M+nbd:localhost:20100/a");
        assert!(mapped.overlap(&of("nbd:127.0.0.1:20100/a")));
        assert!(!mapped.overlap(&of("nbd:127.0.0.1:20100/b")));
    }
}
