//! The limits of requests to an open file or block device.

use weir_bio::Limits;

use super::attributes::queue_attribute;
use super::target::Target;

/// Largest request, sectors: 32 MiB, the largest an NBD client may send unasked.
const REQUEST_SECTORS_MAX: u32 = 32 << 11;

/// Longest range handed to one fallocate, sectors: 2 GiB, so that one call stays well within the
/// time a request may take.
const FALLOCATE_SECTORS_MAX: u32 = 2 << 21;

/// Longest range of zeros written as data, sectors: 8 MiB.
const WRITTEN_ZEROES_SECTORS_MAX: u32 = 8 << 11;

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
        true => queue_attribute(&target.file, "discard_granularity").unwrap_or(0),
        false => physical,
    };
    let io_opt = match target.block_device {
        true => queue_attribute(&target.file, "optimal_io_size").unwrap_or(0),
        false => 0,
    };
    Limits {
        capacity: target.size().sectors,
        padding: target.size().padding,
        read_only: target.read_only,
        rotational: queue_attribute::<u8>(&target.file, "rotational") == Some(1),
        volatile_cache: true,
        fua: true,
        fua_ranges: true,
        logical_block_size: target.block,
        physical_block_size: physical,
        io_min: physical,
        io_opt,
        max_hw_sectors: REQUEST_SECTORS_MAX,
        max_segments: super::job::PIECES_MAX as u16,
        max_segment_size: 1 << 30,
        seg_boundary_mask: u64::MAX,
        dma_alignment: target.memory_alignment - 1,
        takes_segments: true,
        max_hw_discard_sectors: if zeroing.punch { FALLOCATE_SECTORS_MAX } else { 0 },
        discard_granularity: if zeroing.punch { granularity.max(target.block) } else { 0 },
        max_write_zeroes_sectors: if target.read_only { 0 } else { zeroes },
        fast_write_zeroes: zeroing.fast,
        prefetch: !target.direct,
        ..Limits::default()
    }
}
