//! Drivers of what is on this machine: [`null`] (nothing), [`ram`] (memory, also with a volatile
//! cache that a simulated power loss empties), [`model`] (memory with the times of a modelled disk)
//! and [`file`](mod@file).
//!
//! They move bytes and nothing else: ranges, read-only and support for an op were checked above
//! them, and order is the queue core's business.

#![deny(unsafe_code)]

pub mod file;
pub mod kinds;
pub mod model;
pub mod null;
pub mod pool;
pub mod ram;

pub use file::{File, FileOptions, Io};
pub use kinds::KINDS;
pub use model::Model;
pub use null::Null;
pub use pool::Pool;
pub use ram::Ram;

use weir_bio::SECTOR;
use weir_bio::units::parse_size;
use weir_queue::{Driver, DriverError};

/// Tags per queue by default.
const DEPTH: u16 = 128;

/// The size of a device in sectors.
fn whole_sectors(kind: &str, bytes: u64) -> Result<u64, DriverError> {
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        let what = format!("{kind}: size={bytes} is not a positive multiple of {SECTOR} bytes");
        return Err(DriverError { what, source: None });
    }
    Ok(bytes / SECTOR)
}

/// The size of a target that states one.
fn device_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        return Err(format!("size {text:?} is not a multiple of {SECTOR} bytes above 0"));
    }
    Ok(bytes)
}

/// One hard queue for each thread that turns lanes.
fn one_each(driver: &dyn Driver, homes: u16) -> u16 {
    // Heads move for one request at a time.
    if driver.limits().rotational { 1 } else { homes.clamp(1, driver.queues().max) }
}
