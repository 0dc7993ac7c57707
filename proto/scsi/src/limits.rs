//! What a disk's pages mean for requests: limits in bytes and sectors of 512 bytes, and how caches,
//! discards and zeros are done.
//!
//! The rules are those of Linux' SCSI disk driver. In the pages zero is "no limit reported", so of
//! a limit and the width of a field the smaller that is not zero counts.

mod carry;

pub use carry::{BlockPayload, CarriedCommand, SectorRange};

use weir_bio::{PAGE, SECTOR};

use crate::capacity::Capacity;
use crate::command::CdbSize;
use crate::mode::{CachingPage, DeviceSpecific};
use crate::unmap::UNMAP_RANGES_MAX;
use crate::vpd::{BlockCharacteristics, BlockLimits, Provisioning};

/// The default ceiling of one request, sectors: 1280 KiB.
const MAX_SECTORS_DEFAULT: u32 = 2560;
/// The most blocks of one UNMAP or WRITE SAME(16), whatever the disk says.
const MAX_SAME_16_BLOCKS: u64 = 0x7f_ffff;
/// The most blocks of one WRITE SAME(10), and what is assumed of a disk that reports no limit.
const MAX_SAME_10_BLOCKS: u64 = 0xffff;

/// Which CDBs a disk takes for reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CdbRule {
    /// It refused those of 10 bytes.
    SixOnly,
    /// 10 bytes, and 16 where these do not reach.
    #[default]
    TenOrSixteen,
    /// 16 bytes: it is large, or asks for them.
    SixteenOnly,
}

impl CdbRule {
    /// The most blocks a request is built for, by the field it will be in as a rule.
    #[must_use]
    pub const fn blocks_max(self) -> u32 {
        match self {
            Self::SixOnly => CdbSize::Six.blocks_max(),
            Self::TenOrSixteen => CdbSize::Ten.blocks_max(),
            Self::SixteenOnly => CdbSize::Sixteen.blocks_max(),
        }
    }

    /// The form for a range of blocks.
    #[must_use]
    pub const fn size(self, lba: u64, blocks: u32) -> CdbSize {
        match self {
            Self::SixOnly => CdbSize::Six,
            Self::TenOrSixteen
                if blocks <= CdbSize::Ten.blocks_max() && lba <= CdbSize::Ten.lba_max() =>
            {
                CdbSize::Ten
            }
            Self::TenOrSixteen | Self::SixteenOnly => CdbSize::Sixteen,
        }
    }
}

/// What a disk told: its pages as far as it has them, and what it refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskPages {
    /// READ CAPACITY.
    pub capacity: Capacity,
    /// VPD page B0h.
    pub limits: Option<BlockLimits>,
    /// VPD page B1h.
    pub characteristics: Option<BlockCharacteristics>,
    /// VPD page B2h.
    pub provisioning: Option<Provisioning>,
    /// The device-specific byte of MODE SENSE.
    pub device: DeviceSpecific,
    /// The caching page.
    pub caching: Option<CachingPage>,
    /// WRITE SAME(16) is known, by REPORT SUPPORTED OPERATION CODES, and was not refused.
    pub write_same_16: bool,
    /// WRITE SAME(10) is known, and was not refused.
    pub write_same_10: bool,
    /// UNMAP, or WRITE SAME with UNMAP, was refused: see
    /// [`Notice::UnmapRefused`](crate::decide::Notice::UnmapRefused).
    pub unmap_refused: bool,
    /// The disk refused 10 bytes, or asks for 16.
    pub cdbs: CdbRule,
}

/// How blocks are deallocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscardBy {
    /// Not at all.
    None,
    /// UNMAP.
    Unmap,
    /// WRITE SAME with UNMAP, of this form.
    WriteSame(CdbSize),
}

/// What requests on a disk may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// Size, sectors; zero if the block is not 512, 1024, 2048 or 4096 bytes.
    pub capacity: u64,
    /// Logical block, bytes; 512 if the disk's is not usable.
    pub logical_block_size: u32,
    /// Physical block, bytes.
    pub physical_block_size: u32,
    /// Ceiling of one read or write, sectors.
    pub max_dev_sectors: u32,
    /// Default ceiling of one request, sectors.
    pub max_sectors: u32,
    /// Preferred minimum I/O, bytes.
    pub io_min: u32,
    /// Preferred I/O, bytes; zero if not known.
    pub io_opt: u32,
    /// How blocks are deallocated.
    pub discard: DiscardBy,
    /// One discard, sectors; zero without.
    pub max_discard_sectors: u32,
    /// Ranges of one discard.
    pub max_discard_segments: u16,
    /// Unit of discard, bytes; zero without.
    pub discard_granularity: u32,
    /// Offset of the first unit, bytes.
    pub discard_alignment: u32,
    /// WRITE SAME with UNMAP gives zeros, in this form.
    pub zeros_unmapping: Option<CdbSize>,
    /// WRITE SAME writes zeros, in this form.
    pub zeros_writing: Option<CdbSize>,
    /// One write-zeroes, sectors; zero without.
    pub max_write_zeroes_sectors: u32,
    /// Seeks cost time.
    pub rotational: bool,
    /// Writes are refused.
    pub read_only: bool,
    /// Completed writes may sit in a volatile cache.
    pub volatile_cache: bool,
    /// FUA is known, and there is a cache that it goes past.
    pub fua: bool,
    /// Which CDBs carry reads and writes.
    pub cdbs: CdbRule,
}

impl DiskLimits {
    /// The limits that follow from a disk's pages.
    #[must_use]
    pub fn new(pages: &DiskPages) -> Self {
        let block = pages.capacity.usable_block().unwrap_or(SECTOR as u32);
        // Four bits of exponent: at most 4096 << 15 bytes.
        let physical = block << pages.capacity.physical_exponent.min(15);
        let limits = pages.limits.unwrap_or_default();
        let cdbs = cdb_rule(pages);
        let dev_blocks = min_not_zero(limits.max_transfer, cdbs.blocks_max());
        let max_dev_sectors = sectors(u64::from(dev_blocks), block);
        let io_opt = io_opt(limits.optimal_transfer, dev_blocks, block);
        let soft = if io_opt == 0 { MAX_SECTORS_DEFAULT } else { io_opt / SECTOR as u32 };
        let granularity = u32::from(limits.optimal_granularity) * block;
        let discard = discard_by(pages);
        let zeros = Zeros::of(pages);
        let cached = pages.caching.is_some_and(|page| page.write_cache());
        Self {
            capacity: pages.capacity.sectors(),
            logical_block_size: block,
            physical_block_size: physical,
            max_dev_sectors,
            max_sectors: soft.min(max_dev_sectors),
            io_min: if granularity == 0 { physical } else { granularity },
            io_opt,
            discard,
            max_discard_sectors: sectors(max_discard_blocks(discard, &limits), block),
            max_discard_segments: max_discard_segments(discard, &limits),
            discard_granularity: discard_granularity(discard, &limits, (block, physical)),
            discard_alignment: discard_alignment(discard, &limits, block),
            zeros_unmapping: zeros.unmapping,
            zeros_writing: zeros.writing,
            max_write_zeroes_sectors: sectors(zeros.max_blocks(&limits), block),
            rotational: pages.characteristics.is_none_or(|page| page.is_rotational()),
            read_only: pages.device.write_protected,
            volatile_cache: cached,
            fua: cached && pages.device.dpo_fua && cdbs != CdbRule::SixOnly,
            cdbs,
        }
    }
}

/// A disk of more than 2^32 blocks takes 16 bytes always.
fn cdb_rule(pages: &DiskPages) -> CdbRule {
    let large = pages.capacity.last_lba > u64::from(u32::MAX);
    if large { CdbRule::SixteenOnly } else { pages.cdbs }
}

/// Blocks as sectors, as many as 32 bits count in whole blocks.
fn sectors(blocks: u64, block: u32) -> u32 {
    let per_block = u64::from(block) / SECTOR;
    let most = u64::from(u32::MAX) / per_block;
    (blocks.min(most) * per_block) as u32
}

fn min_not_zero(limit: u32, width: u32) -> u32 {
    if limit == 0 { width } else { limit.min(width) }
}

/// OPTIMAL TRANSFER LENGTH, bytes, if it is one that requests can have: within the disk's own
/// maximum and 16 bits of blocks, and at least a page.
fn io_opt(optimal: u32, dev_blocks: u32, block: u32) -> u32 {
    if optimal > dev_blocks || optimal > CdbSize::Ten.blocks_max() {
        return 0;
    }
    let bytes = optimal * block;
    if bytes < PAGE as u32 { 0 } else { bytes }
}

/// MAXIMUM UNMAP LBA COUNT, if MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT allows a descriptor.
const fn unmap_blocks(limits: &BlockLimits) -> u32 {
    if limits.max_unmap_descriptors == 0 { 0 } else { limits.max_unmap }
}

fn discard_by(pages: &DiskPages) -> DiscardBy {
    if !pages.capacity.provisioned || pages.unmap_refused {
        return DiscardBy::None;
    }
    let unmaps = unmap_blocks(&pages.limits.unwrap_or_default()) > 0;
    let Some(page) = pages.provisioning else {
        let same = DiscardBy::WriteSame(CdbSize::Sixteen);
        return if unmaps { DiscardBy::Unmap } else { same };
    };
    if page.unmap && unmaps {
        DiscardBy::Unmap
    } else if page.write_same_16 {
        DiscardBy::WriteSame(CdbSize::Sixteen)
    } else if page.write_same_10 {
        DiscardBy::WriteSame(CdbSize::Ten)
    } else {
        DiscardBy::None
    }
}

fn max_discard_blocks(discard: DiscardBy, limits: &BlockLimits) -> u64 {
    let (limit, cap) = match discard {
        DiscardBy::None => return 0,
        DiscardBy::Unmap => (u64::from(unmap_blocks(limits)), MAX_SAME_16_BLOCKS),
        DiscardBy::WriteSame(CdbSize::Ten) => (limits.max_write_same, MAX_SAME_10_BLOCKS),
        DiscardBy::WriteSame(_) => (limits.max_write_same, MAX_SAME_16_BLOCKS),
    };
    if limit == 0 { cap } else { limit.min(cap) }
}

/// UNMAP takes several ranges, as many as the disk and the list's 16-bit length allow.
fn max_discard_segments(discard: DiscardBy, limits: &BlockLimits) -> u16 {
    match discard {
        DiscardBy::Unmap => limits.max_unmap_descriptors.min(UNMAP_RANGES_MAX as u32) as u16,
        DiscardBy::None | DiscardBy::WriteSame(_) => 1,
    }
}

/// OPTIMAL UNMAP GRANULARITY, bytes, and at least a physical block. One that 32 bits do not count
/// is no use and left out.
fn discard_granularity(
    discard: DiscardBy,
    limits: &BlockLimits,
    (block, physical): (u32, u32),
) -> u32 {
    let reported = limits.unmap_granularity.checked_mul(block).unwrap_or(0);
    if discard == DiscardBy::None { 0 } else { reported.max(physical) }
}

fn discard_alignment(discard: DiscardBy, limits: &BlockLimits, block: u32) -> u32 {
    let alignment = limits.unmap_alignment.and_then(|blocks| blocks.checked_mul(block));
    if discard == DiscardBy::None { 0 } else { alignment.unwrap_or(0) }
}

/// The two ways to zeros without sending them.
struct Zeros {
    unmapping: Option<CdbSize>,
    writing: Option<CdbSize>,
}

impl Zeros {
    fn of(pages: &DiskPages) -> Self {
        let page = pages.provisioning.unwrap_or_default();
        let reads_zeros = pages.capacity.reads_zeros || page.reads_zeros();
        let usable = pages.capacity.provisioned && reads_zeros && !pages.unmap_refused;
        let form = |sixteen, ten| match (sixteen, ten) {
            (true, _) => Some(CdbSize::Sixteen),
            (false, true) => Some(CdbSize::Ten),
            (false, false) => None,
        };
        Self {
            unmapping: form(usable && page.write_same_16, usable && page.write_same_10),
            writing: form(pages.write_same_16, pages.write_same_10),
        }
    }

    /// The most blocks that every form in use takes.
    fn max_blocks(&self, limits: &BlockLimits) -> u64 {
        let forms = [self.unmapping, self.writing];
        if forms == [None, None] {
            return 0;
        }
        let ten = forms.contains(&Some(CdbSize::Ten));
        let cap = if ten { MAX_SAME_10_BLOCKS } else { MAX_SAME_16_BLOCKS };
        let limit = limits.max_write_same;
        if limit == 0 { MAX_SAME_10_BLOCKS } else { limit.min(cap) }
    }
}
