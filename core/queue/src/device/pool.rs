//! A pool: a device whose disks are its partitions, each with a driver of its own.
//!
//! A handle of a partition is a [`Device`] that counts sectors from the partition's start, and
//! has its size, its driver and its figures. What is the queue's (scheduler, tags, tunables) is the
//! pool's, whichever handle is asked.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use weir_bio::{Limits, Size};
use weir_ring::BusyStamp;

use super::{Device, Passage};
use crate::config::Config;
use crate::directory::Partition;
use crate::driver::Driver;
use crate::error::{Error, invalid};
use crate::failures::Failures;
use crate::hard::flush_error::FlushError;
use crate::partition::{PARTITION_SECTORS_MAX, PARTITIONS_MAX, PartitionGauges};
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::stats::Stats;

impl Device {
    /// Whether it is a pool, or a partition of one.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        self.shared.directory.is_some()
    }

    /// The number of this partition, from 1 on; `None` of a whole device.
    #[must_use]
    pub fn partition(&self) -> Option<u16> {
        self.partition.as_ref().map(|partition| partition.id.number)
    }

    /// The pool that this is a partition of, or the device itself.
    #[must_use]
    pub fn whole(&self) -> Device {
        Device { partition: None, ..self.clone() }
    }

    /// The partitions of a pool, by number.
    #[must_use]
    pub fn partitions(&self) -> Vec<Device> {
        let all = self.shared.directory.iter().flat_map(|directory| directory.all());
        let there = all.filter(|partition| partition.driver().is_some());
        there.map(|partition| self.handle_of(partition)).collect()
    }

    fn handle_of(&self, partition: Arc<Partition>) -> Device {
        Device { partition: Some(partition), ..self.clone() }
    }

    /// Makes `driver` the partition `name` of this pool. It has no sector yet: it grows to its
    /// driver's size as any disk grows, by [`enlarge`](Device::enlarge) and a
    /// [reconfiguration](Device::reconfigure), or by [`open_partition`](Device::open_partition).
    ///
    /// # Errors
    /// A device that is no pool, a driver whose queues cannot be those of the pool, a name that is
    /// there, or [`PARTITIONS_MAX`] partitions.
    pub fn attach_partition(
        &self,
        config: Config,
        driver: Arc<dyn Driver>,
    ) -> Result<Device, Error> {
        let (pool, name) = (&self.shared.config.name, config.name.clone());
        let Some(directory) = &self.shared.directory else {
            return invalid(format!("{pool} is no pool"));
        };
        check_queues(&name, driver.as_ref(), self)?;
        if self.partitions().iter().any(|known| known.config().name == name) {
            return invalid(format!("pool {pool} has a partition {name} already"));
        }
        (0..self.queues()).try_for_each(|queue| driver.prepare(queue))?;
        driver.follow_timeout(self.settings().timeout_ns);
        let gauges = Arc::<PartitionGauges>::default();
        let pool_driver = self.driver_of_pool()?;
        let in_use = |sectors: &Range<u64>| self.may_change_late(sectors.clone());
        let partition = directory.add(in_use, |id| Partition {
            id,
            config: Config { name, ..config },
            driver: Mutex::new(Some(Arc::clone(&driver))),
            pool: Arc::downgrade(&pool_driver),
            stamp: BusyStamp::default(),
            gauges: Arc::clone(&gauges),
            flush_error: Arc::default(),
            failures: Failures::default(),
            retired: Mutex::default(),
        });
        let Some(partition) = partition else {
            return invalid(format!("pool {pool} has {PARTITIONS_MAX} partitions, the most"));
        };
        if let Some(partitions) = pool_driver.partitions() {
            partitions.attach(partition.id.number, driver, gauges);
        }
        Ok(self.handle_of(partition))
    }

    /// As [`attach_partition`](Device::attach_partition), as large as its driver is.
    ///
    /// # Errors
    /// As there, and the driver's.
    pub fn open_partition(&self, config: Config, driver: Arc<dyn Driver>) -> Result<Device, Error> {
        let partition = self.attach_partition(config, driver)?;
        let size = partition.enlarge(0)?;
        partition.reconfigure(|parts| parts.limits.grow_to(size))?;
        Ok(partition)
    }

    /// The driver of the queue, whichever handle this is.
    pub(super) fn driver_of_pool(&self) -> Result<Arc<dyn Driver>, Error> {
        let driver = self.control.driver.lock().expect("the driver's lock").clone();
        driver.ok_or_else(|| Error::Dying(self.shared.config.name.clone()))
    }

    /// Settings as this handle shows them: a partition has a size of its own.
    pub(super) fn seen(&self, snapshot: &Snapshot) -> Settings {
        let mut settings = snapshot.settings.clone();
        if let Some(partition) = &self.partition {
            settings.limits = settings.limits_of(partition.id);
        }
        settings
    }

    /// Limits before a change by this handle: a partition's are those of its driver, with the size
    /// that is in force.
    pub(super) fn limits_to_change(&self, limits: Limits) -> Result<Limits, Error> {
        if self.partition.is_none() {
            return Ok(limits);
        }
        let mut own = self.driver()?.limits();
        own.set_write_cache(self.write_cache());
        own.read_only |= self.config().read_only;
        Ok(Limits { capacity: limits.capacity, padding: limits.padding, ..own })
    }

    /// Puts what a change by the handle of a partition came to in the settings of the pool.
    pub(super) fn put_in_pool(
        &self,
        settings: &mut Settings,
        before: &Settings,
    ) -> Result<(), Error> {
        let Some(partition) = &self.partition else { return Ok(()) };
        let own = settings.limits.clone().validate()?;
        let name = &partition.config.name;
        if own.capacity > PARTITION_SECTORS_MAX {
            let sectors = own.capacity;
            return invalid(format!(
                "partition {name} has {sectors} sectors, at most {PARTITION_SECTORS_MAX}"
            ));
        }
        let directory = self.shared.directory.as_deref();
        // A partition that was dropped and not closed is let go of here.
        settings.keep_partitions(|id| directory.is_some_and(|directory| directory.has(id)));
        let (block, blocks) = (own.logical_block_size, before.limits.logical_block_size);
        if block > blocks && settings.partitions.iter().any(|partition| partition.sectors > 0) {
            return invalid(format!(
                "partition {name} has logical blocks of {block} bytes, and others of the pool, \
                 which have {blocks}, are in use"
            ));
        }
        let bytes = own.size().bytes();
        if block < blocks && !bytes.is_multiple_of(u64::from(blocks)) {
            return invalid(format!(
                "partition {name} has {bytes} bytes, no multiple of the pool's logical blocks of \
                 {blocks}"
            ));
        }
        // Strictest, but for what each partition has for itself.
        let lower = Limits { read_only: false, ..own.clone() };
        settings.limits = before.limits.stack(&lower);
        if let Some(known) = settings.extent_of(partition.id).cloned() {
            // It was told of these before, and may have been set otherwise since.
            if known.rotational == own.rotational {
                settings.limits.rotational = before.limits.rotational;
            }
            if known.volatile_cache == own.volatile_cache && known.fua == own.fua {
                settings.limits.set_write_cache(before.limits.write_cache());
            }
        }
        settings.put_partition(partition.id, &own);
        Ok(())
    }

    /// Takes this partition out of its pool; the pool is frozen.
    pub(super) fn leave_pool(&self, partition: &Partition) {
        let shared = &self.shared;
        // The submitters look when the snapshot is another one.
        let driver = partition.detach();
        let before = shared.current.get();
        let mut settings = before.settings.clone();
        settings.keep_partitions(|id| id != partition.id);
        let version = before.version + 1;
        shared.put_in_force(Snapshot { version, settings, ..Snapshot::clone(&before) });
        // Its queues are closed by the threads that turn the lanes.
        shared.nudge_lanes();
        drop(driver);
    }

    /// Statistics of a partition, summed now.
    pub(super) fn stats_of(&self, partition: &Partition) -> Stats {
        // A submitter that goes meanwhile is in the one or in the other.
        let ledger = self.shared.ledger();
        let mut stats = partition.retired().clone();
        stats.in_flight = ledger.sum_of(partition.id.number, &mut stats);
        drop(ledger);
        stats.in_driver = partition.gauges.in_driver();
        stats
    }

    /// The flush error of this handle.
    pub(super) fn own_flush_error(&self) -> &FlushError {
        let whole = &self.shared.flush_error;
        self.partition.as_ref().map_or(whole, |partition| &partition.flush_error)
    }

    /// The failures of this handle.
    pub(super) fn own_failures(&self) -> &Failures {
        self.partition.as_ref().map_or(&self.shared.failures, |partition| &partition.failures)
    }

    /// A pool has no sector of its own: only its last flush comes in by the whole of it.
    pub(super) fn check_passage(&self, passage: Passage) -> Result<(), Error> {
        if self.is_pool() && self.partition.is_none() && !matches!(passage, Passage::Freezer) {
            let name = &self.shared.config.name;
            return invalid(format!("pool {name} has no I/O but that of its disks"));
        }
        Ok(())
    }

    /// The size of a device as its driver has it below: of a partition what fits in its room.
    pub(super) fn fitting(&self, size: Size) -> Size {
        match self.partition {
            Some(_) if size.sectors > PARTITION_SECTORS_MAX => {
                Size { sectors: PARTITION_SECTORS_MAX, padding: 0 }
            }
            _ => size,
        }
    }
}

/// Whether the queues of a pool can be in front of a driver's.
fn check_queues(name: &str, driver: &dyn Driver, pool: &Device) -> Result<(), Error> {
    let (queues, of) = (driver.queues(), &pool.shared.config.name);
    if driver.tag_set().is_some() || driver.budget().is_some() || queues.reserved > 0 {
        return invalid(format!(
            "{name} cannot be in pool {of}: its driver shares tags with other disks, or keeps some"
        ));
    }
    let lanes = pool.queues_max();
    if queues.max < lanes {
        let most = queues.max;
        return invalid(format!(
            "{name} cannot be in pool {of}, which has {lanes} hard queues: it has {most} at most"
        ));
    }
    Ok(())
}
