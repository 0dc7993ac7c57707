//! The settings of a device that can be changed while it is in use.
//!
//! A setting is a field here, with its value to begin with; lanes and submitters read it from their
//! [`Snapshot`](crate::snapshot::Snapshot).

use std::sync::Arc;

use weir_bio::{Limits, WriteCache};

use crate::config::Config;
use crate::partition::{Extent, Extents, PartitionId};
use crate::wbt::WbtTarget;

/// What a [reconfiguration](crate::Device::reconfigure) may change.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The device's limits.
    pub limits: Limits,
    /// 0: every merge, 1: cheap ones only, 2: none.
    pub nomerges: u8,
    /// Whether flushes reach the device.
    pub barriers: bool,
    /// Requests the queue holds.
    pub nr_requests: u16,
    /// Whether I/O is counted in the statistics.
    pub iostats: bool,
    /// A request is timed out after so long, ns; 0 = never.
    pub timeout_ns: u64,
    /// The latency that the write-back throttle keeps reads to.
    pub wbt: WbtTarget,
    /// Of a pool: how large its partitions are.
    pub(crate) partitions: Extents,
}

impl Settings {
    /// Those that a device begins with.
    #[must_use]
    pub fn first(config: &Config, limits: Limits, nr_requests: u16, wbt: WbtTarget) -> Settings {
        let Config { nomerges, barriers, iostats, timeout_ns, .. } = *config;
        let partitions = Extents::default();
        Settings { limits, nomerges, barriers, nr_requests, iostats, timeout_ns, wbt, partitions }
    }
}

impl Settings {
    /// The limits of a partition: those of the pool, and its own where two disks of one queue may
    /// differ.
    pub(crate) fn limits_of(&self, id: PartitionId) -> Limits {
        let extent = self.extent_of(id).cloned().unwrap_or_default();
        let discard = match extent.max_hw_discard_sectors {
            0 => 0,
            most => self.limits.max_hw_discard_sectors.min(most),
        };
        Limits {
            capacity: extent.sectors,
            padding: extent.padding,
            read_only: self.limits.read_only | extent.read_only,
            volatile_cache: self.limits.volatile_cache & extent.volatile_cache,
            fua: self.limits.fua & extent.fua,
            max_hw_discard_sectors: discard,
            ..self.limits.clone()
        }
    }

    /// The write cache of a partition's driver as these settings were told of it.
    pub(crate) fn write_cache_of(&self, id: PartitionId) -> WriteCache {
        self.extent_of(id).map_or(WriteCache::default(), |of| WriteCache {
            volatile: of.volatile_cache,
            fua: of.fua,
        })
    }

    /// The extent of a partition; not that of one which had its number before.
    pub(crate) fn extent_of(&self, id: PartitionId) -> Option<&Extent> {
        self.partitions.get(usize::from(id.number)).filter(|extent| extent.of == id)
    }

    /// Has a partition be as these limits say.
    pub(crate) fn put_partition(&mut self, id: PartitionId, limits: &Limits) {
        let place = usize::from(id.number);
        let mut extents = Vec::clone(&self.partitions);
        if extents.len() <= place {
            extents.resize(place + 1, Extent::default());
        }
        extents[place] = Extent {
            of: id,
            sectors: limits.capacity,
            padding: limits.padding,
            read_only: limits.read_only,
            volatile_cache: limits.volatile_cache,
            fua: limits.fua,
            rotational: limits.rotational,
            max_hw_discard_sectors: limits.max_hw_discard_sectors,
        };
        self.partitions = Arc::new(extents);
    }

    /// Takes out the partitions that are not to stay.
    pub(crate) fn keep_partitions(&mut self, stays: impl Fn(PartitionId) -> bool) {
        if self.partitions.iter().all(|extent| extent.sectors == 0 || stays(extent.of)) {
            return;
        }
        let mut extents = Vec::clone(&self.partitions);
        for extent in extents.iter_mut().filter(|extent| !stays(extent.of)) {
            *extent = Extent::default();
        }
        self.partitions = Arc::new(extents);
    }
}
