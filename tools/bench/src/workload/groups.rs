//! Where the data and the redo of `oltp` lie: each on a disk or on a group of disks, or the redo at
//! the end of the data's.
//!
//! A group is a striped disk over its own, with a chunk of one allocation unit: as Oracle ASM
//! stripes a disk group coarsely, over all its disks in units of 1 MB ("Striping Using Oracle ASM",
//! VLDB and Partitioning Guide, 12c release 1). Disks of one size are what that guide asks for; of
//! larger ones the rest is not used. There is no mirror in it, as in a group of external
//! redundancy.

use weir::{Device, Disk, Opened, Target};
use weir_load::Range;
use weir_load::oltp::format::{BLOCK_BYTES, REDO_BYTES};
use weir_load::oltp::{DATA_LEAST, REDO_LEAST};

/// Bytes of an allocation unit.
pub(crate) const UNIT_BYTES: u64 = 1 << 20;
/// Disks of a group at most.
const DISKS_MAX: usize = 64;

/// Bytes of redo at most, where it has disks of its own, and where it shares them.
const REDO_ALONE: u64 = 256 << 20;
const REDO_SHARED: u64 = 64 << 20;

/// The disks of data and redo, by number among the devices of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups {
    /// Of the data.
    pub(crate) data: Vec<usize>,
    /// Of the redo; the same where it has none of its own.
    pub(crate) redo: Vec<usize>,
}

/// The part of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of the bytes of the data's group.
    pub(crate) data: Range,
    /// Of those of the redo's.
    pub(crate) redo: Range,
}

/// That `flag` did not name more disks than a group has.
fn check_count(flag: &str, disks: usize) -> Result<(), String> {
    if (1..=DISKS_MAX).contains(&disks) {
        return Ok(());
    }
    Err(format!("{flag} is given {disks} times: a group has 1 to {DISKS_MAX} disks"))
}

/// The target of a group over disks that are open under these names.
fn striped<'a>(disks: impl Iterator<Item = &'a str>) -> Result<Target, String> {
    Target::parse(&format!("striped:{UNIT_BYTES}:{}", disks.collect::<Vec<_>>().join("+")))
}

/// The device of a group over several devices, which have the names of disks, for so many threads.
///
/// # Errors
/// Devices that cannot be striped over.
pub(crate) fn open(disks: &[Device], threads: usize) -> Result<Opened, String> {
    let target = striped(disks.iter().map(|disk| disk.config().name.as_str()))?;
    let known = |name: &str| disks.iter().find(|disk| disk.config().name == name).cloned();
    weir::open_over(GROUP, &target, threads, known).map_err(|error| of_group(&error.to_string()))
}

/// The name of a group while it is open.
const GROUP: &str = "group";

/// What is said of a group, which people know by its disks.
fn of_group(said: &str) -> String {
    let rest = said.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(": "));
    String::from(rest.unwrap_or(said))
}

/// The same over disks that are open: one alone is its own group.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_disk(disks: Vec<Disk>) -> Result<Disk, String> {
    match <[Disk; 1]>::try_from(disks) {
        Ok([alone]) => Ok(alone),
        Err(disks) => {
            let target = striped(disks.iter().map(Disk::name))?;
            let group = Disk::builder(target).name(GROUP).over(&disks).open();
            group.map_err(|error| of_group(&error.to_string()))
        }
    }
}

impl Groups {
    /// The groups of such targets; `of` has the number of the device behind each, those of the data
    /// first.
    ///
    /// # Errors
    /// Too many; one device twice in a group; some that are in both groups and others that are not.
    pub(crate) fn of(data: &[String], redo: &[String], of: &[usize]) -> Result<Groups, String> {
        check_count("--target", data.len())?;
        let (of_data, of_redo) = of.split_at(data.len());
        if !redo.is_empty() {
            check_count("--redo", redo.len())?;
        }
        for (names, of) in [(data, of_data), (redo, of_redo)] {
            each_once(names, of)?;
        }
        if of_redo.is_empty() || of_redo == of_data {
            return Ok(Groups { data: of_data.to_vec(), redo: of_data.to_vec() });
        }
        for (name, disk) in redo.iter().zip(of_redo) {
            if let Some(place) = of_data.iter().position(|known| known == disk) {
                return Err(format!(
                    "--redo {name} is a disk of the data, --target {}: data and redo are on the \
                     same disks in the same order, or share none",
                    data[place]
                ));
            }
        }
        Ok(Groups { data: of_data.to_vec(), redo: of_redo.to_vec() })
    }

    /// Whether the redo is at the end of the data's disks.
    pub(crate) fn is_shared(&self) -> bool {
        self.data == self.redo
    }

    /// That each disk of a group has room for a part of it, by the names and sizes of the devices.
    ///
    /// # Errors
    /// A disk that is too small for its group, or too large.
    pub(crate) fn check(&self, devices: &[(String, u64)]) -> Result<(), String> {
        [&self.data, &self.redo].into_iter().try_for_each(|disks| check_sizes(disks, devices))
    }

    /// The parts of so many instances, on devices of these names, where data and redo have so many
    /// bytes.
    ///
    /// # Errors
    /// A group that is too small for its instances.
    pub(crate) fn parts(
        &self,
        instances: u16,
        names: &[String],
        [all, of_redo]: [u64; 2],
    ) -> Result<Vec<Part>, String> {
        let (data_bytes, redo) = if self.is_shared() {
            let redo = (all / 8).min(REDO_SHARED);
            let at = (all - redo) / UNIT_BYTES * UNIT_BYTES;
            (at, Range { offset: at, bytes: all - at })
        } else {
            (all, Range { offset: 0, bytes: of_redo.min(REDO_ALONE) })
        };
        let data = Range { offset: 0, bytes: data_bytes };
        let part = |range: Range, number: u16, grain: u64| {
            let bytes = range.bytes / u64::from(instances) / grain * grain;
            Range { offset: range.offset + u64::from(number) * bytes, bytes }
        };
        for (what, disks, range, grain, least) in [
            ("data", &self.data, data, BLOCK_BYTES, DATA_LEAST),
            ("redo", &self.redo, redo, REDO_BYTES, REDO_LEAST),
        ] {
            if part(range, 0, grain).bytes < least {
                let names: Vec<&str> = disks.iter().map(|disk| names[*disk].as_str()).collect();
                return Err(format!(
                    "{}: {} bytes for the {what} of {instances} instances: each takes at least \
                     {least}",
                    names.join(" "),
                    range.bytes
                ));
            }
        }
        let parts = (0..instances).map(|number| Part {
            data: part(data, number, BLOCK_BYTES),
            redo: part(redo, number, REDO_BYTES),
        });
        Ok(parts.collect())
    }
}

/// That no two of them are one device.
fn each_once(names: &[String], of: &[usize]) -> Result<(), String> {
    for (place, disk) in of.iter().enumerate() {
        let Some(first) = of[..place].iter().position(|known| known == disk) else { continue };
        let (first, second) = (&names[first], &names[place]);
        return Err(match first == second {
            true => format!("{first} is given twice: a group has each disk once"),
            false => {
                format!("{first} and {second} are one device: a group has each disk once")
            }
        });
    }
    Ok(())
}

fn check_sizes(disks: &[usize], devices: &[(String, u64)]) -> Result<(), String> {
    let count = disks.len() as u64;
    let small = disks.iter().map(|disk| &devices[*disk]).min_by_key(|(_, bytes)| *bytes);
    let Some((name, smallest)) = small.filter(|_| count > 1) else { return Ok(()) };
    if *smallest < UNIT_BYTES {
        return Err(format!(
            "{name} has {smallest} bytes: a disk of a group has at least {UNIT_BYTES}, one \
             allocation unit"
        ));
    }
    if smallest.checked_mul(count).is_none() {
        return Err(format!(
            "{name} has {smallest} bytes: {count} disks of a group have at most 2^64 - 1 of them"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| String::from(*name)).collect()
    }

    fn sizes(sizes: &[u64]) -> Vec<(String, u64)> {
        sizes.iter().enumerate().map(|(n, bytes)| (format!("disk{n}"), *bytes)).collect()
    }

    fn range(offset: u64, bytes: u64) -> Range {
        Range { offset, bytes }
    }

    #[test]
    fn a_group_has_each_disk_once_and_shares_all_with_the_other_or_none() {
        let of =
            |data: &[&str], redo: &[&str], of: &[usize]| Groups::of(&names(data), &names(redo), of);
        let two = of(&["a", "b"], &["c"], &[0, 1, 2]).expect("three disks");
        assert_eq!((two.data.as_slice(), two.redo.as_slice()), (&[0, 1][..], &[2][..]));
        assert!(of(&["a", "b"], &[], &[0, 1]).expect("two disks").is_shared());
        assert!(of(&["a", "b"], &["a", "./b"], &[0, 1, 0, 1]).expect("two").is_shared());
        let why = of(&["a", "./a"], &[], &[0, 0]).expect_err("one disk");
        assert_eq!(why, "a and ./a are one device: a group has each disk once");
        let why = of(&["a"], &["b", "c", "b"], &[0, 1, 2, 1]).expect_err("one disk twice");
        assert_eq!(why, "b is given twice: a group has each disk once");
        let why = of(&["a", "b"], &["c", "b"], &[0, 1, 2, 1]).expect_err("one of both");
        assert!(why.starts_with("--redo b is a disk of the data, --target b"), "{why}");
        let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
        let why = Groups::of(&many, &[], &(0..65).collect::<Vec<_>>()).expect_err("too many");
        assert_eq!(why, "--target is given 65 times: a group has 1 to 64 disks");
    }

    #[test]
    fn instances_have_parts_of_a_whole_group_and_redo_its_end_where_it_has_none() {
        let devices = names(&["disk0", "disk1"]);
        let apart = Groups { data: vec![0], redo: vec![1] };
        let parts = apart.parts(2, &devices, [24 * MIB, 8 * MIB]).expect("room");
        assert_eq!([parts[0].data, parts[1].data], [range(0, 12 * MIB), range(12 * MIB, 12 * MIB)]);
        assert_eq!([parts[0].redo, parts[1].redo], [range(0, 4 * MIB), range(4 * MIB, 4 * MIB)]);
        let shared = Groups { data: vec![0, 1], redo: vec![0, 1] };
        let parts = shared.parts(1, &devices, [32 * MIB; 2]).expect("room");
        assert_eq!(parts, [Part { data: range(0, 28 * MIB), redo: range(28 * MIB, 4 * MIB) }]);
        // A disk alone is used to its end.
        let alone = Groups { data: vec![0], redo: vec![0] };
        let parts = alone.parts(1, &devices, [8 * MIB + 4096; 2]).expect("room");
        assert_eq!(parts, [Part { data: range(0, 7 * MIB), redo: range(7 * MIB, MIB + 4096) }]);
    }

    #[test]
    fn what_is_too_small_is_named_with_its_size_and_the_bound() {
        let groups = Groups { data: vec![0, 1], redo: vec![2] };
        assert_eq!(groups.check(&sizes(&[MIB, MIB, 4096])), Ok(()), "one alone is no group");
        let why = groups.check(&sizes(&[2 * MIB, 4096, MIB])).expect_err("too small");
        assert!(why.starts_with("disk1 has 4096 bytes: ") && why.contains("1048576"), "{why}");
        let why = groups.check(&sizes(&[u64::MAX, 1 << 63, MIB])).expect_err("too large");
        let expected = "disk1 has 9223372036854775808 bytes: 2 disks of a group have at most 2^64";
        assert!(why.starts_with(expected), "{why}");
        let devices = names(&["disk0", "disk1", "disk2"]);
        let why = groups.parts(4, &devices, [2 * MIB, 8192]).expect_err("no redo");
        let expected = "disk2: 8192 bytes for the redo of 4 instances: each takes at least 262144";
        assert_eq!(why, expected);
        let why = groups.parts(5, &devices, [2 * MIB, 8 * MIB]).expect_err("no data");
        assert!(why.starts_with("disk0 disk1: 2097152 bytes for the data of 5"), "{why}");
    }

    #[test]
    fn a_group_has_its_units_on_each_disk_in_turn_as_much_as_the_smallest_has() {
        let disk = |(number, bytes): (usize, &u64)| {
            let ram = format!("ram:{bytes}");
            Disk::builder(ram).name(format!("disk{number}")).reactors(1).open().expect("memory")
        };
        let sizes = [9 * MIB, 2 * MIB + 512, 10 * MIB];
        let disks: Vec<Disk> = sizes.iter().enumerate().map(disk).collect();
        let group = open_disk(disks.clone()).expect("a group");
        assert_eq!(group.size(), 3 * 2 * MIB);
        let mut session = group.session().expect("a way in");
        (0..6).for_each(|unit| {
            session.write_at(unit * MIB + 5 * 4096, &[unit as u8; 4096]).expect("a write");
        });
        for unit in 0..6 {
            let mut found = [9; 4096];
            let mut session = disks[unit % 3].session().expect("a way in");
            session.read_at((unit / 3) as u64 * MIB + 5 * 4096, &mut found).expect("a read");
            assert_eq!(found, [unit as u8; 4096], "unit {unit}");
        }
        let alone = open_disk(vec![disks[1].clone()]).expect("a disk");
        assert_eq!(alone.size(), 2 * MIB + 512, "one alone is as it is");
    }
}
