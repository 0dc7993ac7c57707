//! Opens a pool: one queue, of which several targets are the partitions.

use std::sync::Arc;

use weir_queue::{Config, Device, Driver, OpenedBacking};

use crate::drivers::pool_over;
use crate::open::{Error, Opened, applied, opened_on};
use crate::target::Target;

/// A pool that is open.
pub struct OpenedPool {
    /// The queue; its lanes are not open yet.
    pub pool: Opened,
    /// Its disks, in the order in which they were given.
    pub disks: Vec<Opened>,
}

/// Opens these targets as partitions of the pool `name`, whose queue is built as `queue` says; its
/// own backing is not opened. It has a hard queue for each of `homes` threads, or as many as each
/// of its disks can have.
///
/// # Errors
/// The fault in a target, or a driver's failure.
pub fn open_pool(
    name: &str,
    queue: &Target,
    disks: &[(&str, &Target)],
    homes: usize,
) -> Result<OpenedPool, Error> {
    let mut parts = Vec::new();
    for (disk, target) in disks {
        check_partition(target).map_err(|why| Error::new(format!("{disk}: {why}")))?;
        let mut config = target.config.clone();
        config.name = String::from(*disk);
        let opened = opened_backing(target, &config)?;
        parts.push((config, opened));
    }
    let drivers: Vec<Arc<dyn Driver>> =
        parts.iter().map(|(_, opened)| Arc::clone(&opened.driver)).collect();
    let (mut target, told) = applied(name, queue);
    let driver = pool_over(&drivers);
    let homes = homes.clamp(1, usize::from(driver.driver.queues().max));
    target.config.queues = homes.min(64) as u16;
    target.queues_given = true;
    let config = target.config.clone();
    let mut pool = opened_on(&target, config, driver, homes)?;
    pool.notices.extend(told);
    let mut opened = Vec::new();
    for (config, part) in parts {
        let disk = config.name.clone();
        let device = pool.device.open_partition(config, Arc::clone(&part.driver));
        opened.push(opened_part(&disk, device, part)?);
    }
    Ok(OpenedPool { pool, disks: opened })
}

/// Opens a target as one more partition of a pool that is in use. It has no sector yet: it takes on
/// the size of its backing as a disk does that has grown below.
///
/// # Errors
/// The fault in the target, the driver's failure, or a pool that cannot have it.
pub fn open_in_pool(pool: &Device, disk: &str, target: &Target) -> Result<Opened, Error> {
    check_partition(target).map_err(|why| Error::new(format!("{disk}: {why}")))?;
    let mut config = target.config.clone();
    config.name = String::from(disk);
    let part = opened_backing(target, &config)?;
    let device = pool.attach_partition(config, Arc::clone(&part.driver));
    opened_part(disk, device, part)
}

/// The backing of a partition, open, as its target states it.
fn opened_backing(target: &Target, config: &Config) -> Result<OpenedBacking, Error> {
    let disk = &config.name;
    let opened = target.backing.open(config);
    let opened = opened.map_err(|e| Error::of_driver(disk, e))?;
    target.stated.over(disk, opened).map_err(Error::new)
}

fn opened_part(
    disk: &str,
    device: Result<Device, weir_queue::Error>,
    part: OpenedBacking,
) -> Result<Opened, Error> {
    let device = device.map_err(|e| Error::of_device(disk, e))?;
    let (notices, speaker) = (part.notices, part.speaker);
    let warnings = Vec::new();
    Ok(Opened { device, notices, warnings, map: None, below: Vec::new(), speaker })
}

/// Whether a target can be a partition: it has a backing of its own, and says nothing of a queue,
/// which is the pool's.
///
/// # Errors
/// What it says, and where that is said.
pub fn check_partition(target: &Target) -> Result<(), String> {
    if target.backing.is_mapped() {
        return Err(String::from("a disk on other disks cannot be in a pool"));
    }
    let of_queue = "the queue is the pool's: state scheduler, nr_requests and depth in [[pool]]";
    let mut rest = target.config.clone();
    rest.read_only = false;
    let stated = format!("{rest:?}") != format!("{:?}", Config::default());
    let is_told = target.queues_given || target.mode_given || !target.attributes.is_empty();
    if stated || is_told {
        return Err(format!(
            "its target states more than a backing, its blocks and readonly; {of_queue}"
        ));
    }
    Ok(())
}
