//! The list of drivers: the one place outside their crates that knows them by name.

use std::sync::Arc;

pub use weir_blocking::{Blocking, BlockingDriver, BlockingOptions};
#[cfg(feature = "iscsi")]
pub use weir_driver_iscsi as iscsi;
pub use weir_local::{File, FileOptions, Io, Null, Ram};
use weir_queue::{Backing, Driver, OpenedBacking, TargetKind};

/// Every kind of target there is, in the order in which messages and documents name them.
#[must_use]
pub fn kinds() -> Vec<&'static TargetKind> {
    let over: &[&TargetKind] = &[
        #[cfg(feature = "nbd")]
        &weir_driver_nbd::KIND,
        #[cfg(feature = "iscsi")]
        &weir_driver_iscsi::KIND,
        #[cfg(feature = "scsi-sim")]
        &crate::scsi_sim::KIND,
    ];
    [weir_local::KINDS, over, weir_map::KINDS].concat()
}

/// The feature of this crate that a kind of target needs which is not built in.
pub(crate) fn feature_of(name: &str) -> Option<&'static str> {
    let found = OPTIONAL.iter().find(|(names, _)| names.contains(&name));
    found.filter(|_| kind_of(name).is_none()).map(|(_, feature)| *feature)
}

/// Kinds of target that features bring, by their names.
const OPTIONAL: [(&[&str], &str); 3] = [
    (&["nbd", "nbd+unix", "nbds", "nbds+unix"], "nbd"),
    (&["iscsi"], "iscsi"),
    (&["scsi-sim"], "scsi-sim"),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests have all features.
    #[test]
    fn each_kind_that_a_feature_brings_is_known_by_all_its_names() {
        for (names, feature) in OPTIONAL {
            let kind = kind_of(names[0]).unwrap_or_else(|| panic!("{feature} brings no kind"));
            assert_eq!(kind.names, names, "{feature}");
            assert_eq!(feature_of(names[0]), None, "it is built in");
        }
        assert_eq!(feature_of("rom"), None);
        let local = weir_local::KINDS.iter().chain(weir_map::KINDS).count();
        assert_eq!(kinds().len(), local + OPTIONAL.len(), "a feature that is not in the list");
    }
}
