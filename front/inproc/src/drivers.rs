//! The list of drivers: the one place outside their crates that knows them by name.

use std::sync::Arc;

pub use weir_blocking::{Blocking, BlockingDriver, BlockingOptions};
pub use weir_driver_iscsi as iscsi;
pub use weir_local::{File, FileOptions, Io, Null, Ram};
use weir_queue::{Backing, Driver, OpenedBacking, TargetKind};

/// Every kind of target there is, in the order in which messages and documents name them.
#[must_use]
pub fn kinds() -> Vec<&'static TargetKind> {
    let over = [&weir_driver_nbd::KIND, &weir_driver_iscsi::KIND, &crate::scsi_sim::KIND];
    [weir_local::KINDS, &over, weir_map::KINDS].concat()
}

/// The target of a file or block device.
pub(crate) fn file(path: std::path::PathBuf) -> Box<dyn Backing> {
    weir_local::kinds::file(path)
}

/// Whether targets of this kind lie on others, which stand in them.
pub(crate) fn lies_on_others(kind: &TargetKind) -> bool {
    weir_map::KINDS.iter().any(|known| known.names == kind.names)
}

/// The driver of a pool over these.
pub(crate) fn pool_over(drivers: &[Arc<dyn Driver>]) -> OpenedBacking {
    let pool = weir_local::Pool::for_drivers(drivers);
    let speaker = Some(pool.speaker());
    OpenedBacking { speaker, ..OpenedBacking::silent(pool) }
}

/// The kind of target that begins with this name.
#[must_use]
pub fn kind_of(name: &str) -> Option<&'static TargetKind> {
    kinds().into_iter().find(|kind| kind.names.contains(&name))
}
