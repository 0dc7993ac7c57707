//! What a target holds before a job writes there: what others keep is written over only if the
//! user says so.
//!
//! Looked at are the first and the last MiB of files and block devices: each sector is zeros, or
//! marked by a load that wrote it, or what others keep. A file system, a partition table, a member
//! of a volume or an array, and an image of another program are named, by numbers at known places.
//!
//! Disks of servers are not looked at: some servers end with their first client.

use weir::{Identity, Target};
use weir_bio::SECTOR;
use weir_load::mark::is_marked;

use crate::workload::devices::{leaves, open_known};
use crate::workload::mark::Bytes;

/// Bytes that are looked at, at either end.
const END: u64 = 1 << 20;

/// Refuses targets that hold what others keep, of those that a workload writes.
///
/// # Errors
/// The target, and what it holds; one that cannot be looked at.
pub(crate) fn refuse(devices: &[(String, Target)]) -> Result<(), String> {
    let leaves = devices.iter().flat_map(|(name, target)| leaves(name, target));
    for (number, (name, leaf)) in leaves.enumerate() {
        if !matches!(leaf.backing.identity(), Identity::Block(_) | Identity::File(..)) {
            continue;
        }
        if let Some(held) = look_at(number, &name, leaf)?.held {
            return Err(format!(
                "{name} holds {held}, and this job would write over it: --destroy allows that"
            ));
        }
    }
    Ok(())
}

/// The ends of a target, as they were found.
pub(crate) struct Found {
    /// What others keep there, if they do.
    pub(crate) held: Option<String>,
    /// Whether a job of weir has written there.
    pub(crate) is_marked: bool,
}

/// Looks at a file or a block device.
///
/// # Errors
/// One that cannot be looked at.
pub(crate) fn look(name: &str, target: &Target) -> Result<Found, String> {
    look_at(0, name, target.clone())
}

fn look_at(number: usize, name: &str, mut leaf: Target) -> Result<Found, String> {
    // A disk that is mounted can be looked at, and a look leaves no file longer than it was.
    leaf.config.read_only = true;
    let disk = open_known(number, name, &leaf)?;
    let failed = |error: String| format!("{name}: {error}");
    let mut session = disk.session().map_err(|error| failed(error.to_string()))?;
    let block = u64::from(disk.limits().logical_block_size);
    let size = disk.size() / block * block;
    let mut read = |from: u64, to: u64| {
        let mut bytes = vec![0; (to - from) as usize];
        match bytes.is_empty() {
            true => Ok(bytes),
            false => Bytes::read(&mut session, from, &mut bytes).map(|()| bytes).map_err(failed),
        }
    };
    let head_end = size.min(END);
    let tail_start = (size.saturating_sub(END) / block * block).max(head_end);
    let ends = Ends { head: read(0, head_end)?, tail: read(tail_start, size)?, tail_start, size };
    let is_marked = [&ends.head, &ends.tail].into_iter().any(|end| has_mark(end));
    Ok(Found { held: ends.held(), is_marked })
}

/// Whether a load has written any of these sectors.
fn has_mark(bytes: &[u8]) -> bool {
    bytes.chunks(SECTOR as usize).any(is_marked)
}

/// The ends of a disk.
struct Ends {
    head: Vec<u8>,
    /// What of its end is not in `head`.
    tail: Vec<u8>,
    tail_start: u64,
    /// Bytes of the disk.
    size: u64,
}

impl Ends {
    /// What others keep there.
    fn held(&self) -> Option<String> {
        if let Some(what) = self.signature() {
            return Some(String::from(what));
        }
        let ends = [(0, &self.head), (self.tail_start, &self.tail)];
        let at = ends.into_iter().find_map(|(start, bytes)| Some(start + foreign_byte(bytes)?))?;
        Some(format!("data that no job of weir has written, at byte {at}"))
    }

    fn signature(&self) -> Option<&'static str> {
        let known = SIGNATURES
            .iter()
            .find(|(_, place, number)| place.all(self.size).any(|at| self.is_at(at, number)));
        known.map(|(what, ..)| *what)
    }

    /// Whether others have written this number at this place.
    fn is_at(&self, at: u64, number: &[u8]) -> bool {
        let mark = self.at(at / SECTOR * SECTOR, 8);
        self.at(at, number.len()) == Some(number) && !mark.is_some_and(is_marked)
    }

    /// The bytes at a place, if they were read.
    fn at(&self, at: u64, len: usize) -> Option<&[u8]> {
        let of = |start: u64, bytes: &'_ Vec<u8>| {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            Some((from, from.checked_add(len)?)).filter(|(_, to)| *to <= bytes.len())
        };
        match of(0, &self.head) {
            Some((from, to)) => Some(&self.head[from..to]),
            None => of(self.tail_start, &self.tail).map(|(from, to)| &self.tail[from..to]),
        }
    }
}

/// The first byte that is not zero, in sectors that no load has written.
fn foreign_byte(bytes: &[u8]) -> Option<u64> {
    let sectors = bytes.chunks(SECTOR as usize).zip((0..).step_by(SECTOR as usize));
    let mut others = sectors.filter(|(sector, _)| !is_marked(sector));
    others.find_map(|(sector, start): (_, u64)| {
        let at = sector.iter().position(|byte| *byte != 0)?;
        Some(start + at as u64)
    })
}

/// Where a number stands that tells what a disk holds.
enum Place {
    /// At this byte.
    At(u64),
    /// At each of these.
    Any(&'static [u64]),
    /// So many bytes before the end, rounded down to a multiple of the second.
    Before(u64, u64),
    /// A multiple of the first, the last but one.
    LastButOne(u64),
}

impl Place {
    fn all(&self, size: u64) -> impl Iterator<Item = u64> + '_ {
        let (alone, many): (Option<u64>, &[u64]) = match self {
            Place::At(at) => (Some(*at), &[]),
            Place::Any(many) => (None, many),
            Place::Before(bytes, unit) => {
                (size.checked_sub(*bytes).map(|at| at / unit * unit), &[])
            }
            Place::LastButOne(unit) => ((size / unit * unit).checked_sub(*unit), &[]),
        };
        alone.into_iter().chain(many.iter().copied())
    }
}

/// The ends of pages of 4 to 64 KiB, ten bytes before them.
const PAGE_ENDS: [u64; 5] = [0xff6, 0x1ff6, 0x3ff6, 0x7ff6, 0xfff6];

/// What is known by a number. A boot sector comes last: several file systems begin with one.
const SIGNATURES: &[(&str, Place, &[u8])] = &[
    ("an ext2, ext3 or ext4 file system", Place::At(1080), b"\x53\xef"),
    ("an XFS file system", Place::At(0), b"XFSB"),
    ("a Btrfs file system", Place::At(0x1_0040), b"_BHRfS_M"),
    ("an F2FS file system", Place::At(1024), b"\x10\x20\xf5\xf2"),
    ("an NTFS file system", Place::At(3), b"NTFS    "),
    ("an exFAT file system", Place::At(3), b"EXFAT   "),
    ("a FAT file system", Place::At(82), b"FAT32   "),
    ("a FAT file system", Place::At(54), b"FAT1"),
    ("a JFS file system", Place::At(0x8000), b"JFS1"),
    ("an ISO 9660 file system", Place::At(0x8001), b"CD001"),
    ("a SquashFS file system", Place::At(0), b"hsqs"),
    ("an EROFS file system", Place::At(1024), b"\xe2\xe1\xf5\xe0"),
    ("swap space", Place::Any(&PAGE_ENDS), b"SWAPSPACE2"),
    ("swap space", Place::Any(&PAGE_ENDS), b"SWAP-SPACE"),
    ("a LUKS volume", Place::At(0), b"LUKS\xba\xbe"),
    ("an LVM physical volume", Place::Any(&[0, 512, 1024, 1536]), b"LABELONE"),
    ("a member of an md array", Place::Any(&[0, 4096]), b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", Place::Before(8192, 4096), b"\xfc\x4e\x2b\xa9"),
    ("a member of an md array", Place::LastButOne(65536), b"\xfc\x4e\x2b\xa9"),
    ("a Ceph OSD", Place::At(0), b"bluestore block device"),
    ("a qcow2 image", Place::At(0), b"QFI\xfb"),
    ("a VMDK image", Place::At(0), b"KDMV"),
    ("a VHDX image", Place::At(0), b"vhdxfile"),
    ("a GPT partition table", Place::Any(&[512, 4096]), b"EFI PART"),
    ("a GPT partition table", Place::Before(512, 512), b"EFI PART"),
    ("a GPT partition table", Place::Before(4096, 4096), b"EFI PART"),
    ("a partition table or a boot sector", Place::At(510), b"\x55\xaa"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    const SIZE: u64 = 64 << 20;

    /// A disk of this size with such bytes at such places.
    fn disk(size: u64, parts: &[(u64, &[u8])]) -> Ends {
        let tail_start = size.saturating_sub(END).max(size.min(END));
        let mut ends = Ends {
            head: vec![0; size.min(END) as usize],
            tail: vec![0; (size - tail_start) as usize],
            tail_start,
            size,
        };
        for (at, bytes) in parts {
            let (to, at) = match at.checked_sub(tail_start) {
                Some(at) => (&mut ends.tail, at),
                None => (&mut ends.head, *at),
            };
            to[at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        ends
    }

    #[test]
    fn each_number_is_known_at_each_of_its_places_and_nowhere_else() {
        for size in [SIZE, SIZE + 4096 + 512] {
            for (what, place, number) in SIGNATURES {
                for at in place.all(size) {
                    let held = disk(size, &[(at, number)]).held();
                    assert_eq!(held.as_deref(), Some(*what), "{what} at {at} of {size}");
                    let beside = disk(size, &[(at + 4, number)]).held().expect("it is no zeros");
                    assert!(beside.contains("no job of weir"), "{what} beside {at}: {beside}");
                }
            }
        }
    }

    #[test]
    fn what_a_job_of_weir_has_written_is_not_in_the_way_and_any_other_byte_is() {
        let mut written = vec![0; 4096];
        weir_load::mark::fill(&mut Prng::new(1), &mut written);
        for size in [0, 512, END - 512, END, END + 512, 2 * END, SIZE] {
            assert_eq!(disk(size, &[]).held(), None, "{size} bytes of zeros");
        }
        for at in [0, 4096, END - 4096, SIZE - END, SIZE - 4096] {
            assert_eq!(disk(SIZE, &[(at, &written)]).held(), None, "{at}");
        }
        for at in [0, 77, END - 1, SIZE - END, SIZE - 1] {
            let held = format!("data that no job of weir has written, at byte {at}");
            assert_eq!(disk(SIZE, &[(at, b"x")]).held(), Some(held));
        }
        // At the other end, and under a file system that was made since.
        let other = disk(SIZE, &[(0, &written), (SIZE - 1, b"x")]).held().expect("a byte");
        assert!(other.contains(&(SIZE - 1).to_string()), "{other}");
        let (mut sector, number) = ([7; 512], b"\x53\xef");
        assert_eq!(disk(SIZE, &[(0, &written), (1080, number)]).held(), None, "by chance");
        sector[56..58].copy_from_slice(number);
        let made = disk(SIZE, &[(0, &written), (1024, &sector)]).held();
        assert_eq!(made.as_deref(), Some("an ext2, ext3 or ext4 file system"));
    }
}
