//! Opens a pool: one queue, of which several targets are the partitions.

use std::sync::Arc;

use weir_queue::{Config, Driver};

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
        let opened = target.backing.open(&config);
        parts.push((config, opened.map_err(|e| Error::new(format!("{disk}: {e}")))?));
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
        let device = pool.device.open_partition(config, part.driver);
        let device = device.map_err(|e| Error::new(format!("{disk}: {e}")))?;
        let (notices, speaker) = (part.notices, part.speaker);
        opened.push(Opened { device, notices, map: None, below: Vec::new(), speaker });
    }
    Ok(OpenedPool { pool, disks: opened })
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
        return Err(format!("its target states more than a backing and readonly; {of_queue}"));
    }
    Ok(())
}
