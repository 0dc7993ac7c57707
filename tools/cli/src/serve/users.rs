//! The users of each disk at the moment its daemon stops.

use std::sync::Arc;

use weir::Device;
use weir_front::Front;

/// Says of each disk by whom it is used, in a warning where no protocol tells its users that the
/// disk goes: I/O on it fails next.
pub(super) fn tell(disks: &[Device], fronts: &[Arc<dyn Front>]) {
    for disk in disks {
        let name = &disk.config().name;
        let users: Vec<_> = fronts.iter().map(|front| front.users(name)).collect();
        let unwarned = users.iter().any(|users| users.unwarned);
        let listed: Vec<String> = users.into_iter().flat_map(|users| users.listed).collect();
        let listed = listed.join(", ");
        if unwarned {
            tracing::warn!("disk {name} is still used, and the daemon stops: {listed}");
        } else if !listed.is_empty() {
            tracing::debug!("disk {name} is still used, and the daemon stops: {listed}");
        }
    }
}
