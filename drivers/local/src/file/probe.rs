//! The abilities of the file system or the device under a file, found without changing either.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use weir_bio::Limits;

use super::target::{Target, device_numbers};

/// Largest request, sectors: 32 MiB, the largest an NBD client may send unasked.
const REQUEST_SECTORS_MAX: u32 = 32 << 11;

/// Longest range handed to one fallocate, sectors: 2 GiB, so that one call stays well within the
/// time a request may take.
const FALLOCATE_SECTORS_MAX: u32 = 2 << 21;

/// Longest range of zeros written as data, sectors: 8 MiB.
const WRITTEN_ZEROES_SECTORS_MAX: u32 = 8 << 11;

/// Ways to make zeros without sending them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Zeroing {
    /// Freeing the range works.
    pub(super) punch: bool,
    /// Zeroing the range and leaving it allocated works.
    pub(super) range: bool,
    /// They do not write zeros behind the scenes.
    pub(super) fast: bool,
}

impl Zeroing {
    /// Finds out for an open, writable target.
    pub(super) fn probe(target: &Target) -> Zeroing {
        if target.block_device {
            // A block device takes both calls and zeroes by writing where it has no command for
            // it; freeing then fails, as it promises to be quick.
            let fast = queue_attribute(target, "write_zeroes_max_bytes").unwrap_or(0) > 0;
            return Zeroing { punch: fast, range: true, fast };
        }
        // A nameless file on the same file system stands in for the target.
        let directory = target.path.canonicalize().ok().and_then(|path| {
            let parent = path.parent()?;
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(parent, flags, Mode::RUSR | Mode::WUSR).ok()
        });
        let works = |mode| {
            let mode = mode | FallocateFlags::KEEP_SIZE;
            match &directory {
                Some(spare) => rustix::fs::fallocate(spare, mode, 0, 4096).is_ok(),
                // Freeing what lies behind the end changes nothing; zeroing there would allocate.
                None if mode.contains(FallocateFlags::PUNCH_HOLE) => {
                    rustix::fs::fallocate(&target.file, mode, target.bytes(), 4096).is_ok()
                }
                None => false,
            }
        };
        let punch = works(FallocateFlags::PUNCH_HOLE);
        let range = works(FallocateFlags::ZERO_RANGE);
        Zeroing { punch, range, fast: punch || range }
    }
}

/// The limits of requests to the target.
pub(super) fn limits(target: &Target) -> Limits {
    let preferred = match target.block_device {
        true => rustix::fs::ioctl_blkpbszget(&target.file).unwrap_or(target.block),
        false => rustix::fs::fstat(&target.file).map_or(4096, |stat| stat.st_blksize as u32),
    };
    let sane = preferred.is_power_of_two() && (target.block..=1 << 16).contains(&preferred);
    let physical = if sane { preferred } else { target.block };
    let zeroing = target.zeroing;
    let native = zeroing.punch || zeroing.range;
    let zeroes = if native { FALLOCATE_SECTORS_MAX } else { WRITTEN_ZEROES_SECTORS_MAX };
    let granularity = match target.block_device {
        true => queue_attribute(target, "discard_granularity").unwrap_or(0),
        false => physical,
    };
    let io_opt = match target.block_device {
        true => queue_attribute(target, "optimal_io_size").unwrap_or(0),
        false => 0,
    };
    Limits {
        capacity: target.size().sectors,
        padding: target.size().padding,
        read_only: target.read_only,
        rotational: queue_attribute::<u8>(target, "rotational") == Some(1),
        volatile_cache: true,
        fua: true,
        logical_block_size: target.block,
        physical_block_size: physical,
        io_min: physical,
        io_opt,
        max_hw_sectors: REQUEST_SECTORS_MAX,
        max_segments: super::job::PIECES_MAX as u16,
        max_segment_size: 1 << 30,
        seg_boundary_mask: u64::MAX,
        dma_alignment: target.memory_alignment - 1,
        max_hw_discard_sectors: if zeroing.punch { FALLOCATE_SECTORS_MAX } else { 0 },
        discard_granularity: if zeroing.punch { granularity.max(target.block) } else { 0 },
        max_write_zeroes_sectors: if target.read_only { 0 } else { zeroes },
        fast_write_zeroes: zeroing.fast,
        prefetch: !target.direct,
        ..Limits::default()
    }
}

/// A number from the queue directory of the device the target lies on, if sysfs shows one.
fn queue_attribute<T: FromStr>(target: &Target, name: &str) -> Option<T> {
    let (major, minor) = device_numbers(&target.file, target.block_device)?;
    let device = fs::canonicalize(PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))).ok()?;
    // A partition has no queue of its own: its disk's directory is the parent.
    let read = |device: &Path| fs::read_to_string(device.join("queue").join(name)).ok();
    let text = read(&device).or_else(|| read(device.parent()?))?;
    text.trim().parse().ok()
}
