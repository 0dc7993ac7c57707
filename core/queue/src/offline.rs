//! The end of a device: everything submitted afterwards is answered, and nothing reaches a lane.
//!
//! Removal in block-core section 11.5: mark dying, wake all waiters, fail what is new, drain.

use crate::device::Device;
use crate::shared::Snapshot;

impl Device {
    /// Waits until all that was accepted has ended; whatever is submitted afterwards ends with
    /// [`Status::Offline`](weir_bio::Status::Offline), for good. Then the lanes may be dropped
    /// although submitters are left. Not for a thread that turns lanes or has a submitter with I/O
    /// under way: it would wait for itself.
    pub fn take_offline(&self) {
        let shared = &self.shared;
        let _alone = shared.changing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _frozen = self.freeze();
        let before = shared.snapshot();
        // Nobody is inside, so each submitter looks at the snapshot before its next I/O.
        shared.replace_snapshot(Snapshot {
            version: before.version + 1,
            offline: true,
            ..Snapshot::clone(&before)
        });
    }

    /// Whether it was [taken offline](Device::take_offline).
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.shared.snapshot().offline
    }
}
