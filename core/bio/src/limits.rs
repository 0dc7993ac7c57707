//! The limits of one request on a device, and how the limits of stacked devices combine.
//!
//! Names, defaults and derivations: docs/behaviour/block-layer.md, section 2.1 (Linux's queue
//! limits).

use std::fmt;

use crate::{PAGE, SECTOR};

/// Cap of `max_sectors` when neither user nor device says otherwise: 4 MiB, in sectors.
const MAX_SECTORS_CAP: u32 = 4096 * 2;

/// Everything a device says about itself. Sectors are 512 bytes.
///
/// [`of_memory`](Limits::of_memory) is a start for a driver in memory, [`Limits::default`] for any
/// other; each says its values. An op that the limits do not offer never reaches the driver:
///
/// | op | reaches the driver if | else |
/// |---|---|---|
/// | flush | `volatile_cache` | ends at once, as what is answered is durable |
/// | FUA on a write | `fua` and `volatile_cache` | a flush follows the write, if `volatile_cache` |
/// | discard | `max_hw_discard_sectors` and `max_user_discard_sectors` are not 0 | ends `NotSupp` |
/// | zeroes | `max_write_zeroes_sectors` is not 0 | ends `NotSupp` |
/// | write | `read_only` is false | refused |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the device, sectors.
    pub capacity: u64,
    /// Bytes of the last block that lie beyond the end, if that is inside it: they read as zeros,
    /// and what is written there is dropped.
    pub padding: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Seeks cost time.
    pub rotational: bool,
    /// Completed writes may sit in a cache that power loss empties. False: no flush comes.
    pub volatile_cache: bool,
    /// The device does FUA writes itself. Means nothing without `volatile_cache`.
    pub fua: bool,
    /// So it does zeroes and discards with FUA.
    pub fua_ranges: bool,
    /// Smallest addressable unit, bytes: a power of two, at least 512.
    pub logical_block_size: u32,
    /// Unit written without read-modify-write, bytes.
    pub physical_block_size: u32,
    /// Preferred minimum I/O, bytes.
    pub io_min: u32,
    /// Preferred I/O, bytes; 0 if unknown.
    pub io_opt: u32,
    /// Hard ceiling of one request, sectors.
    pub max_hw_sectors: u32,
    /// Device-reported ceiling, sectors; 0 = none.
    pub max_dev_sectors: u32,
    /// The user's wish (`max_sectors_kb`), sectors; 0 = default.
    pub max_user_sectors: u32,
    /// Memory segments of one request.
    pub max_segments: u16,
    /// Bytes of one segment.
    pub max_segment_size: u32,
    /// A segment may not cross a multiple of this mask + 1.
    pub seg_boundary_mask: u64,
    /// Gaps between segments must fall on this mask; 0 = gaps anywhere.
    pub virt_boundary_mask: u64,
    /// No request crosses a multiple of this, sectors; 0 = none.
    pub chunk_sectors: u32,
    /// Alignment mask of memory, bytes - 1.
    pub dma_alignment: u32,
    /// The driver reaches memory by address and length, so it takes [`Data::Segments`]; one that
    /// does not is given the bytes in a buffer.
    ///
    /// [`Data::Segments`]: crate::Data::Segments
    pub takes_segments: bool,
    /// One discard, sectors; 0 = no discard.
    pub max_hw_discard_sectors: u32,
    /// The part of it that the user allows, sectors.
    pub max_user_discard_sectors: u32,
    /// Ranges in one discard.
    pub max_discard_segments: u16,
    /// Unit of discard, bytes.
    pub discard_granularity: u32,
    /// Offset of the first discardable unit, bytes.
    pub discard_alignment: u32,
    /// One secure erase, sectors; 0 = none.
    pub max_secure_erase_sectors: u32,
    /// One write-zeroes, sectors; 0 = none.
    pub max_write_zeroes_sectors: u32,
    /// Whether write-zeroes is fast (no data travels): NBD's FAST_ZERO.
    pub fast_write_zeroes: bool,
    /// Whether a prefetch reads data; where it does not it does nothing.
    pub prefetch: bool,
    /// Largest request of atomic writes that a device carries out whole, sectors; 0 = none.
    pub atomic_write_max_sectors: u32,
    /// Smallest atomic write, and its unit, sectors: a power of two.
    pub atomic_write_unit_min_sectors: u32,
    /// Largest atomic write, sectors: a power of two; 0 = none. Merged ones do not exceed it
    /// either.
    pub atomic_write_unit_max_sectors: u32,
    /// No atomic write crosses a multiple of this, sectors: a power of two; 0 = no such bound.
    pub atomic_write_boundary_sectors: u32,
}

/// A device of one way to be written to and read from, and of capacity 0, which is to be set:
/// blocks of 512 bytes; requests of at most 255 sectors (`max_hw_sectors`) and 128 segments of
/// 64 KiB; memory aligned to 512 bytes, in buffers. No discard, zeroes, secure erase, prefetch or
/// atomic write; no cache, so no flush comes. Not rotational, may be written.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            capacity: 0,
            padding: 0,
            read_only: false,
            rotational: false,
            volatile_cache: false,
            fua: false,
            fua_ranges: false,
            logical_block_size: SECTOR as u32,
            physical_block_size: SECTOR as u32,
            io_min: SECTOR as u32,
            io_opt: 0,
            max_hw_sectors: 255,
            max_dev_sectors: 0,
            max_user_sectors: 0,
            max_segments: 128,
            max_segment_size: 65536,
            seg_boundary_mask: 0xffff_ffff,
            virt_boundary_mask: 0,
            chunk_sectors: 0,
            dma_alignment: 511,
            takes_segments: false,
            max_hw_discard_sectors: 0,
            max_user_discard_sectors: u32::MAX,
            max_discard_segments: 1,
            discard_granularity: 0,
            discard_alignment: 0,
            max_secure_erase_sectors: 0,
            max_write_zeroes_sectors: 0,
            fast_write_zeroes: false,
            prefetch: false,
            atomic_write_max_sectors: 0,
            atomic_write_unit_min_sectors: 0,
            atomic_write_unit_max_sectors: 0,
            atomic_write_boundary_sectors: 0,
        }
    }
}

/// Where a device may hold what it has answered, and whether a single write can pass by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCache {
    /// It has a cache that a power loss empties: writes are safe once they are flushed.
    pub volatile: bool,
    /// A write with FUA is safe when it is answered.
    pub fua: bool,
}

/// The size of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Sectors of whole blocks.
    pub sectors: u64,
    /// Bytes of the last block that lie beyond the end.
    pub padding: u32,
}

impl Size {
    /// The true size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        (self.sectors * SECTOR).saturating_sub(u64::from(self.padding))
    }
}

/// A set of limits that contradicts itself: which one, its value and its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsError {
    /// The limit's name.
    pub name: &'static str,
    /// The value it had.
    pub value: u64,
    /// Its bound.
    pub bound: &'static str,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} is not {}", self.name, self.value, self.bound)
    }
}

impl std::error::Error for LimitsError {}

/// Largest request of a device in memory: 32 MiB, the largest an NBD client may send unasked.
const MEMORY_SECTORS_MAX: u32 = 32 << 11;

impl Limits {
    /// The limits of a device in memory, or on nothing at all: any address, any pieces, any length
    /// that a range has. Reads and writes of at most 32 MiB; discard and fast zeroes, each in units
    /// of 512 bytes and of any length; [foreign memory](Limits::takes_segments). The rest is as in
    /// [`Limits::default`]: no cache, so no flush comes.
    #[must_use]
    pub fn of_memory(capacity: u64) -> Limits {
        Limits {
            capacity,
            max_hw_sectors: MEMORY_SECTORS_MAX,
            max_segments: u16::MAX,
            max_segment_size: u32::MAX,
            seg_boundary_mask: u64::MAX,
            dma_alignment: 0,
            takes_segments: true,
            max_hw_discard_sectors: u32::MAX,
            discard_granularity: SECTOR as u32,
            max_write_zeroes_sectors: u32::MAX,
            fast_write_zeroes: true,
            ..Limits::default()
        }
    }

    /// The largest read or write, sectors: hardware, device and user ceiling, whole blocks.
    #[must_use]
    pub fn max_sectors(&self) -> u32 {
        let wanted = if self.max_user_sectors != 0 {
            self.max_user_sectors
        } else if self.io_opt / SECTOR as u32 > MAX_SECTORS_CAP {
            self.io_opt / SECTOR as u32
        } else {
            (self.io_min / SECTOR as u32).max(MAX_SECTORS_CAP)
        };
        let device = if self.max_dev_sectors == 0 { u32::MAX } else { self.max_dev_sectors };
        self.whole_blocks(self.max_hw_sectors.min(device).min(wanted))
    }

    /// The largest discard, sectors, whole granules; 0 = not supported.
    #[must_use]
    pub fn max_discard_sectors(&self) -> u32 {
        let most = self.max_hw_discard_sectors.min(self.max_user_discard_sectors);
        let granule = (self.discard_granularity / SECTOR as u32).max(1);
        if most < granule { most } else { most - most % granule }
    }

    /// The size of the device.
    #[must_use]
    pub fn size(&self) -> Size {
        Size { sectors: self.capacity, padding: self.padding }
    }

    /// Its write cache.
    #[must_use]
    pub fn write_cache(&self) -> WriteCache {
        WriteCache { volatile: self.volatile_cache, fua: self.fua }
    }

    /// Another write cache.
    pub fn set_write_cache(&mut self, cache: WriteCache) {
        (self.volatile_cache, self.fua) = (cache.volatile, cache.fua);
    }

    /// Takes over a size, if that is larger.
    pub fn grow_to(&mut self, size: Size) {
        if size.bytes() > self.size().bytes() {
            (self.capacity, self.padding) = (size.sectors, size.padding);
        }
    }

    /// Sectors in a logical block.
    #[must_use]
    #[inline]
    pub fn block_sectors(&self) -> u32 {
        self.logical_block_size / SECTOR as u32
    }

    fn whole_blocks(&self, sectors: u32) -> u32 {
        sectors - sectors % self.block_sectors()
    }

    /// Raises what is derived and refuses what contradicts itself.
    ///
    /// # Errors
    /// The first limit outside its bound.
    pub fn validate(mut self) -> Result<Limits, LimitsError> {
        let page_sectors = PAGE as u32 / SECTOR as u32;
        let block = self.logical_block_size;
        check(block.is_power_of_two() && block >= 512, "logical_block_size", block, BLOCK)?;
        self.physical_block_size = self.physical_block_size.max(block);
        let physical = self.physical_block_size;
        check(physical.is_power_of_two(), "physical_block_size", physical, BLOCK)?;
        self.io_min = self.io_min.max(physical);
        self.io_opt -= self.io_opt % physical;
        let hw = self.max_hw_sectors;
        check(hw >= page_sectors, "max_hw_sectors", hw, "at least one page (8 sectors)")?;
        check(hw >= self.block_sectors(), "max_hw_sectors", hw, "at least one logical block")?;
        self.max_hw_sectors = self.whole_blocks(hw);
        let size = self.max_segment_size;
        check(size >= PAGE as u32, "max_segment_size", size, "at least one page (4096 bytes)")?;
        check(self.max_segments > 0, "max_segments", 0_u32, "at least 1")?;
        let aligned = self.capacity.is_multiple_of(u64::from(self.block_sectors()));
        check(aligned, "capacity", self.capacity, "a whole number of logical blocks (in sectors)")?;
        let inside = self.padding == 0 || self.padding < block && self.capacity > 0;
        check(inside, "padding", self.padding, "less than a block of the device")?;
        if self.chunk_sectors != 0 {
            let whole = self.chunk_sectors.is_multiple_of(self.block_sectors());
            check(whole, "chunk_sectors", self.chunk_sectors, "whole logical blocks")?;
        }
        // As in Linux 6.18: who forbids discards takes their granularity away with them.
        if self.max_hw_discard_sectors == 0 || self.max_user_discard_sectors == 0 {
            self.discard_granularity = 0;
        } else {
            self.discard_granularity = self.discard_granularity.max(physical);
        }
        self.settle_atomic_writes()?;
        // FUA without a cache to write through has no meaning.
        self.fua &= self.volatile_cache;
        Ok(self)
    }

    /// Without a unit there are no atomic writes at all.
    fn settle_atomic_writes(&mut self) -> Result<(), LimitsError> {
        let (least, most) =
            (self.atomic_write_unit_min_sectors, self.atomic_write_unit_max_sectors);
        if least == 0 || most == 0 || self.atomic_write_max_sectors == 0 {
            self.atomic_write_max_sectors = 0;
            self.atomic_write_unit_min_sectors = 0;
            self.atomic_write_unit_max_sectors = 0;
            self.atomic_write_boundary_sectors = 0;
            return Ok(());
        }
        let whole = least.is_power_of_two() && least >= self.block_sectors();
        check(whole, "atomic_write_unit_min_sectors", least, UNIT)?;
        let whole = most.is_power_of_two() && most >= least;
        check(
            whole,
            "atomic_write_unit_max_sectors",
            most,
            "a power of two, and not below the min",
        )?;
        let max = self.atomic_write_max_sectors;
        check(max >= most, "atomic_write_max_sectors", max, "at least the largest unit")?;
        let boundary = self.atomic_write_boundary_sectors;
        let whole = boundary == 0 || boundary.is_power_of_two() && boundary >= most;
        check(whole, "atomic_write_boundary_sectors", boundary, "a power of two no unit exceeds")
    }

    /// Whether an atomic write of this range is whole or not at all (docs/behaviour/block-layer.md,
    /// section 1.2): a power of two of units, at a multiple of its own length, as Linux asks of
    /// RWF_ATOMIC, and in one piece between two boundaries.
    #[must_use]
    pub fn takes_atomic_write(&self, sector: u64, sectors: u32) -> bool {
        let (least, most) =
            (self.atomic_write_unit_min_sectors, self.atomic_write_unit_max_sectors);
        (1..=most).contains(&sectors)
            && sectors.is_power_of_two()
            && sectors.is_multiple_of(least.max(1))
            && sector.is_multiple_of(u64::from(sectors))
            && self.within_atomic_boundary(sector, u64::from(sectors))
    }

    /// Whether no boundary of atomic writes lies inside this range.
    #[must_use]
    pub fn within_atomic_boundary(&self, sector: u64, sectors: u64) -> bool {
        let boundary = u64::from(self.atomic_write_boundary_sectors);
        boundary == 0 || sector % boundary + sectors <= boundary
    }

    /// The limits of a device made of these two (docs/behaviour/mapped.md, section 3): requests
    /// that both can take, ops that one of them has. Capacity is the mapper's business and stays
    /// this one's.
    #[must_use]
    pub fn stack(&self, lower: &Limits) -> Limits {
        let physical = self.physical_block_size.max(lower.physical_block_size);
        let io_opt = least_common_multiple(self.io_opt, lower.io_opt);
        let granularity = self.discard_granularity.max(lower.discard_granularity);
        let discard_alignment =
            least_common_multiple(self.discard_alignment, lower.discard_alignment);
        Limits {
            capacity: self.capacity,
            padding: self.padding,
            read_only: self.read_only | lower.read_only,
            rotational: self.rotational | lower.rotational,
            volatile_cache: self.volatile_cache | lower.volatile_cache,
            // A leg that cannot do it flushes behind the write.
            fua: self.fua | lower.fua,
            fua_ranges: self.fua_ranges | lower.fua_ranges,
            logical_block_size: self.logical_block_size.max(lower.logical_block_size),
            physical_block_size: physical,
            io_min: self.io_min.max(lower.io_min),
            io_opt: if io_opt.is_multiple_of(physical.max(1)) { io_opt } else { 0 },
            max_hw_sectors: self.max_hw_sectors.min(lower.max_hw_sectors),
            max_dev_sectors: min_not_zero(self.max_dev_sectors, lower.max_dev_sectors),
            max_user_sectors: min_not_zero(self.max_user_sectors, lower.max_user_sectors),
            max_segments: self.max_segments.min(lower.max_segments),
            max_segment_size: self.max_segment_size.min(lower.max_segment_size),
            seg_boundary_mask: self.seg_boundary_mask.min(lower.seg_boundary_mask),
            virt_boundary_mask: min_not_zero(self.virt_boundary_mask, lower.virt_boundary_mask),
            chunk_sectors: greatest_common_divisor(self.chunk_sectors, lower.chunk_sectors),
            dma_alignment: self.dma_alignment.max(lower.dma_alignment),
            takes_segments: self.takes_segments & lower.takes_segments,
            max_hw_discard_sectors: min_not_zero(
                self.max_hw_discard_sectors,
                lower.max_hw_discard_sectors,
            ),
            max_user_discard_sectors: self
                .max_user_discard_sectors
                .min(lower.max_user_discard_sectors),
            max_discard_segments: self.max_discard_segments.min(lower.max_discard_segments),
            discard_granularity: granularity,
            discard_alignment: discard_alignment.checked_rem(granularity).unwrap_or(0),
            max_secure_erase_sectors: self
                .max_secure_erase_sectors
                .min(lower.max_secure_erase_sectors),
            max_write_zeroes_sectors: self
                .max_write_zeroes_sectors
                .min(lower.max_write_zeroes_sectors),
            fast_write_zeroes: self.fast_write_zeroes & lower.fast_write_zeroes,
            prefetch: self.prefetch | lower.prefetch,
            atomic_write_max_sectors: self
                .atomic_write_max_sectors
                .min(lower.atomic_write_max_sectors),
            atomic_write_unit_min_sectors: self
                .atomic_write_unit_min_sectors
                .max(lower.atomic_write_unit_min_sectors),
            atomic_write_unit_max_sectors: self
                .atomic_write_unit_max_sectors
                .min(lower.atomic_write_unit_max_sectors),
            atomic_write_boundary_sectors: min_not_zero(
                self.atomic_write_boundary_sectors,
                lower.atomic_write_boundary_sectors,
            ),
        }
    }
}

const UNIT: &str = "a power of two of at least one logical block";
const BLOCK: &str = "a power of two of at least 512 bytes";

fn check(
    holds: bool,
    name: &'static str,
    value: impl Into<u64>,
    bound: &'static str,
) -> Result<(), LimitsError> {
    if holds { Ok(()) } else { Err(LimitsError { name, value: value.into(), bound }) }
}

/// The lesser of two bounds, of which 0 is none.
fn min_not_zero<T: Ord + Default>(a: T, b: T) -> T {
    let none = T::default();
    match (a == none, b == none) {
        (true, _) => b,
        (_, true) => a,
        _ => a.min(b),
    }
}

/// Of two units, of which 0 is none, the largest that both are multiples of.
fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}

/// Of two units, of which 0 is none, the least that is a multiple of both; the larger where that
/// has no 32 bits.
fn least_common_multiple(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 {
        return a.max(b);
    }
    (a / greatest_common_divisor(a, b)).checked_mul(b).unwrap_or(a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_sectors_is_the_least_ceiling_in_whole_blocks() {
        let limits = Limits { max_hw_sectors: 255, logical_block_size: 4096, ..Limits::default() };
        assert_eq!(limits.validate().unwrap().max_sectors(), 248);
        let limits = Limits { max_hw_sectors: 1 << 20, ..Limits::default() };
        assert_eq!(limits.max_sectors(), MAX_SECTORS_CAP);
        let limits = Limits { max_user_sectors: 128, ..limits };
        assert_eq!(limits.max_sectors(), 128);
        let limits = Limits { max_dev_sectors: 64, ..limits };
        assert_eq!(limits.max_sectors(), 64);
    }

    #[test]
    fn a_bad_limit_is_refused_by_name() {
        let bad = Limits { logical_block_size: 1000, ..Limits::default() };
        assert_eq!(
            bad.validate().unwrap_err().to_string(),
            "logical_block_size=1000 is not a power of two of at least 512 bytes"
        );
        let bad = Limits { max_segment_size: 512, ..Limits::default() };
        assert_eq!(bad.validate().unwrap_err().name, "max_segment_size");
    }

    #[test]
    fn fua_without_a_cache_is_cleared() {
        let limits = Limits { fua: true, ..Limits::default() }.validate().unwrap();
        assert!(!limits.fua);
    }

    fn atomic() -> Limits {
        Limits {
            atomic_write_max_sectors: 128,
            atomic_write_unit_min_sectors: 8,
            atomic_write_unit_max_sectors: 64,
            atomic_write_boundary_sectors: 64,
            ..Limits::default()
        }
    }

    #[test]
    fn an_atomic_write_is_a_power_of_two_of_units_at_its_own_multiple() {
        let limits = atomic().validate().unwrap();
        for (sector, sectors) in [(0, 8), (8, 8), (0, 64), (128, 64), (32, 32)] {
            assert!(limits.takes_atomic_write(sector, sectors), "{sectors} at {sector}");
        }
        // Below the unit, above it, no power of two, not aligned to themselves, empty.
        for (sector, sectors) in [(0, 4), (0, 128), (0, 24), (8, 16), (4, 8), (0, 0)] {
            assert!(!limits.takes_atomic_write(sector, sectors), "{sectors} at {sector}");
        }
        assert!(!Limits::default().takes_atomic_write(0, 1), "none at all");
    }

    #[test]
    fn limits_of_atomic_writes_hold_together_or_are_refused() {
        let none = Limits { atomic_write_unit_min_sectors: 0, ..atomic() }.validate().unwrap();
        assert_eq!((none.atomic_write_max_sectors, none.atomic_write_unit_max_sectors), (0, 0));
        for bad in [
            Limits { atomic_write_unit_min_sectors: 3, ..atomic() },
            Limits { atomic_write_unit_max_sectors: 4, ..atomic() },
            Limits { atomic_write_max_sectors: 32, ..atomic() },
            Limits { atomic_write_boundary_sectors: 32, ..atomic() },
            Limits { logical_block_size: 8192, ..atomic() },
        ] {
            assert!(bad.validate().unwrap_err().name.starts_with("atomic_write"));
        }
        assert_eq!(atomic().stack(&Limits::default()).atomic_write_unit_max_sectors, 0);
    }

    #[test]
    fn a_stacked_device_takes_requests_that_both_take() {
        let a = Limits {
            max_hw_sectors: 100,
            max_segments: 8,
            max_dev_sectors: 0,
            seg_boundary_mask: 0xffff,
            virt_boundary_mask: 0,
            chunk_sectors: 24,
            dma_alignment: 511,
            logical_block_size: 512,
            ..Limits::default()
        };
        let b = Limits {
            max_hw_sectors: 64,
            max_segments: 9,
            max_dev_sectors: 48,
            seg_boundary_mask: 0xfff,
            virt_boundary_mask: 0xfff,
            chunk_sectors: 16,
            dma_alignment: 3,
            logical_block_size: 4096,
            physical_block_size: 4096,
            read_only: true,
            ..Limits::default()
        };
        for both in [a.stack(&b), b.stack(&a)] {
            let bounds = (both.max_hw_sectors, both.max_segments, both.max_dev_sectors);
            assert_eq!(bounds, (64, 8, 48));
            assert_eq!((both.seg_boundary_mask, both.virt_boundary_mask), (0xfff, 0xfff));
            assert_eq!((both.chunk_sectors, both.dma_alignment), (8, 511));
            assert_eq!((both.logical_block_size, both.physical_block_size), (4096, 4096));
            assert!(both.read_only);
        }
    }

    #[test]
    fn a_stacked_device_has_a_cache_fua_discard_and_seeks_if_one_of_its_legs_has() {
        let cached = Limits {
            volatile_cache: true,
            fua: true,
            rotational: true,
            max_hw_discard_sectors: 128,
            discard_granularity: 4096,
            max_write_zeroes_sectors: 64,
            fast_write_zeroes: true,
            ..Limits::default()
        };
        for both in [cached.stack(&Limits::default()), Limits::default().stack(&cached)] {
            assert!(both.volatile_cache && both.fua && both.rotational);
            assert_eq!((both.max_hw_discard_sectors, both.discard_granularity), (128, 4096));
            // What one cannot do is not offered: it would have to be written.
            assert_eq!((both.max_write_zeroes_sectors, both.fast_write_zeroes), (0, false));
        }
        let narrow = Limits { max_hw_discard_sectors: 64, ..cached.clone() };
        assert_eq!(cached.stack(&narrow).max_hw_discard_sectors, 64);
    }

    #[test]
    fn the_preferred_size_suits_both_or_is_none() {
        let of = |io_opt| Limits { io_opt, ..Limits::default() };
        assert_eq!(of(3 * 4096).stack(&of(2 * 4096)).io_opt, 6 * 4096);
        assert_eq!(of(0).stack(&of(8192)).io_opt, 8192);
        let coarse = Limits { physical_block_size: 4096, ..of(4096) };
        assert_eq!(of(1536).stack(&coarse).io_opt, 3 * 4096);
        let coarse = Limits { physical_block_size: 4096, ..of(0) };
        assert_eq!(of(1536).stack(&coarse).io_opt, 0, "no whole physical blocks");
    }
}
