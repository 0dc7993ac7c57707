//! What a target states of its device in the place of the device: whether seeks cost time, and
//! the sizes of its blocks.
//!
//! The device is told by a driver in front of its own. No I/O passes that: hard queues are opened
//! by the driver behind it.

use std::any::Any;
use std::sync::Arc;

use weir_bio::{Limits, SECTOR, Size, WriteCache};
use weir_queue::{
    Budget, ChangeListener, DeviceAttributes, Driver, DriverError, DriverQueue, EXTENTS_MAX,
    Extent, OpenedBacking, Partitions, Queues, TagSet, TargetPort,
};

/// The limits that a target states; what it does not state is as the driver says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    /// Whether seeks cost time.
    pub rotational: Option<bool>,
    /// Smallest addressable unit, bytes.
    pub logical_block_size: Option<u32>,
    /// Unit written without read-modify-write, bytes.
    pub physical_block_size: Option<u32>,
}

/// The bounds of a logical block: what disks have, and Linux allows on pages of 4 KiB.
pub(crate) const LOGICAL_BLOCK: (u64, u64) = (512, 4096);

/// The bounds of a physical block.
pub(crate) const PHYSICAL_BLOCK: (u64, u64) = (512, 65536);

impl Stated {
    /// Holds what is stated against itself.
    pub(crate) fn check(&self) -> Result<(), String> {
        match (self.logical_block_size, self.physical_block_size) {
            (Some(logical), Some(physical)) if physical < logical => {
                Err(format!("physical_block_size={physical} is below logical_block_size={logical}"))
            }
            _ => Ok(()),
        }
    }

    /// Puts what is stated in front of a backing that was opened.
    ///
    /// # Errors
    /// A value that the device of this name cannot have.
    pub(crate) fn over(&self, name: &str, opened: OpenedBacking) -> Result<OpenedBacking, String> {
        if *self == Stated::default() {
            return Ok(opened);
        }
        let limits = opened.driver.limits();
        let (own, bytes) = (limits.logical_block_size, limits.size().bytes());
        let fault = |what: String| Err(format!("{name}: {what}"));
        if let Some(stated) = self.logical_block_size {
            if stated < own {
                return fault(format!(
                    "logical_block_size={stated} is below that of its device, which is {own}"
                ));
            }
            if stated > own && !bytes.is_multiple_of(u64::from(stated)) {
                return fault(format!(
                    "logical_block_size={stated}: its size of {bytes} bytes is no multiple of it"
                ));
            }
        }
        if let Some(stated) = self.physical_block_size
            && stated < own
        {
            return fault(format!(
                "physical_block_size={stated} is below the logical block of its device, which is \
                 {own}"
            ));
        }
        let driver = Arc::new(StatedDriver { inner: opened.driver, stated: *self });
        Ok(OpenedBacking { driver, ..opened })
    }
}

/// A driver whose limits are partly those that its target states.
struct StatedDriver {
    inner: Arc<dyn Driver>,
    stated: Stated,
}

impl StatedDriver {
    /// A logical block larger than the device's own, sectors.
    fn larger_block(&self) -> Option<u64> {
        let stated = self.stated.logical_block_size?;
        let is_larger = stated > self.inner.limits().logical_block_size;
        is_larger.then_some(u64::from(stated) / SECTOR)
    }

    /// A size in blocks as stated: of a device that has grown the part in whole blocks.
    fn in_blocks(&self, size: Size) -> Size {
        match self.larger_block() {
            None => size,
            Some(block) => {
                let sectors = size.bytes() / SECTOR;
                Size { sectors: sectors - sectors % block, padding: 0 }
            }
        }
    }
}

impl Driver for StatedDriver {
    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        let Stated { rotational, logical_block_size, physical_block_size } = self.stated;
        limits.rotational = rotational.unwrap_or(limits.rotational);
        if let Some(physical) = physical_block_size {
            limits.physical_block_size = physical;
        }
        let size = self.in_blocks(limits.size());
        (limits.capacity, limits.padding) = (size.sectors, size.padding);
        if let Some(block) = logical_block_size {
            limits.logical_block_size = block;
            let sectors = limits.block_sectors();
            // A part of a longer request has to be whole blocks.
            limits.max_write_zeroes_sectors -= limits.max_write_zeroes_sectors % sectors;
            if limits.atomic_write_unit_min_sectors > 0 {
                let least = limits.atomic_write_unit_min_sectors.max(sectors);
                let fits = least <= limits.atomic_write_unit_max_sectors;
                // Without a unit there are no atomic writes.
                limits.atomic_write_unit_min_sectors = if fits { least } else { 0 };
            }
        }
        limits
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn tag_set(&self) -> Option<Arc<TagSet>> {
        self.inner.tag_set()
    }

    fn is_bio_based(&self) -> bool {
        self.inner.is_bio_based()
    }

    fn takes_commands(&self) -> bool {
        self.inner.takes_commands()
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        self.inner.budget()
    }

    fn follow_timeout(&self, timeout_ns: u64) {
        self.inner.follow_timeout(timeout_ns);
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        self.inner.prepare(index)
    }

    fn comes_to_rest(&self, begins: bool) {
        self.inner.comes_to_rest(begins);
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.inner.open(index, depth)
    }

    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        self.inner.enlarge(sectors).map(|size| self.in_blocks(size))
    }

    fn write_cache(&self) -> WriteCache {
        self.inner.write_cache()
    }

    fn on_change(&self, listener: ChangeListener) {
        self.inner.on_change(listener);
    }

    fn faults(&self) -> Vec<String> {
        self.inner.faults()
    }

    fn attributes(&self) -> Option<&dyn DeviceAttributes> {
        self.inner.attributes()
    }

    fn target_port(&self) -> Option<Arc<dyn TargetPort>> {
        self.inner.target_port()
    }

    fn likeness(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.inner.likeness()
    }

    fn partitions(&self) -> Option<&dyn Partitions> {
        self.inner.partitions()
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let extents = self.inner.allocation(sector, sectors)?;
        Ok(match self.larger_block() {
            None => extents,
            Some(block) => whole_blocks(&extents, block),
        })
    }
}

/// The same extents, each of whole blocks: one with data in it is data. They begin at a block; the
/// last block is left out if it is not whole, unless it is the only one.
fn whole_blocks(extents: &[Extent], block: u64) -> Vec<Extent> {
    let mut found: Vec<Extent> = Vec::new();
    let mut put = |extent: Extent| match found.last_mut() {
        _ if extent.sectors == 0 => {}
        Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => {
            last.sectors += extent.sectors;
        }
        _ => found.push(extent),
    };
    // The block that has begun, as far as it was seen.
    let mut begun = Extent { sectors: 0, hole: true, zero: true };
    for extent in extents {
        let mut left = extent.sectors;
        if begun.sectors > 0 {
            let more = left.min(block - begun.sectors);
            left -= more;
            begun.sectors += more;
            (begun.hole, begun.zero) = (begun.hole & extent.hole, begun.zero & extent.zero);
            if begun.sectors < block {
                continue;
            }
            put(begun);
        }
        put(Extent { sectors: left - left % block, ..*extent });
        begun = Extent { sectors: left % block, ..*extent };
    }
    if found.is_empty() {
        found.push(Extent { sectors: block, hole: false, zero: false });
    }
    found.truncate(EXTENTS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(of: &[(u64, bool)]) -> Vec<Extent> {
        of.iter()
            .map(|(sectors, hole)| Extent { sectors: *sectors, hole: *hole, zero: *hole })
            .collect()
    }

    #[test]
    fn a_block_with_data_in_it_is_data_and_the_others_stay_as_they_are() {
        for (of, expected) in [
            (&[(16, true)][..], &[(16, true)][..]),
            (&[(16, true), (8, false), (8, true)], &[(16, true), (8, false), (8, true)]),
            (&[(9, true), (2, false), (13, true)], &[(8, true), (8, false), (8, true)]),
            (&[(3, false), (1, true), (4, false), (8, true)], &[(8, false), (8, true)]),
            (&[(20, false), (20, true)], &[(24, false), (16, true)]),
            // What covers the beginning alone covers it in whole blocks.
            (&[(8, true), (5, false)], &[(8, true)]),
            (&[(5, true)], &[(8, false)]),
        ] {
            assert_eq!(whole_blocks(&extents(of), 8), extents(expected), "{of:?}");
        }
    }
}
