//! The limits of a logical unit as the queue core knows limits.

use weir_bio::Limits;
use weir_proto_scsi::limits::DiskLimits;

use crate::transport::Adapter;

/// Sectors of one command where the adapter states none: Linux' default.
const SECTORS_MAX_DEFAULT: u32 = 1024;

/// The limits of a disk behind an adapter.
pub(crate) fn limits(disk: &DiskLimits, adapter: &Adapter, read_only: bool) -> Limits {
    let hw = match adapter.sectors_max {
        0 => SECTORS_MAX_DEFAULT,
        sectors => sectors,
    };
    Limits {
        capacity: disk.capacity,
        read_only: disk.read_only || read_only,
        rotational: disk.rotational,
        volatile_cache: disk.volatile_cache,
        fua: disk.fua,
        // WRITE SAME and UNMAP have no such bit.
        fua_ranges: false,
        logical_block_size: disk.logical_block_size,
        physical_block_size: disk.physical_block_size,
        io_min: disk.io_min,
        io_opt: disk.io_opt,
        max_hw_sectors: hw.max(disk.logical_block_size / 512),
        max_dev_sectors: disk.max_dev_sectors,
        max_segments: adapter.segments_max.max(1),
        max_segment_size: u32::MAX,
        seg_boundary_mask: u64::MAX,
        dma_alignment: 0,
        max_hw_discard_sectors: disk.max_discard_sectors,
        discard_granularity: disk.discard_granularity,
        discard_alignment: disk.discard_alignment,
        max_write_zeroes_sectors: disk.max_write_zeroes_sectors,
        ..Limits::default()
    }
}
