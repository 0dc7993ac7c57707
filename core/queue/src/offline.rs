//! The end of a device: everything submitted afterwards is answered, and nothing reaches a lane.
//!
//! Removal in block-core section 11.5: mark dying, wake all waiters, fail what is new, drain.

use std::sync::Arc;

use crate::config::Error;
use crate::device::Device;
use crate::driver::Driver;
use crate::shared::Snapshot;

impl Device {
    /// Waits until all that was accepted has ended; whatever is submitted afterwards ends with
    /// [`Status::Offline`](weir_bio::Status::Offline), for good. Then the lanes may be dropped
    /// although submitters are left, and with them the last of the driver goes: the device itself
    /// has let go of it. Not for a thread that turns lanes or has a submitter with I/O
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
        let driver = shared.driver.lock().expect("the driver's lock").take();
        // Outside the lock: it may close connections.
        drop(driver);
        // The single queue's lanes do not own it, and nobody turns it any more. One with a home
        // goes with its lane, on that thread.
        if let Some(single) = shared.single.as_ref().filter(|single| single.any_home) {
            drop(single.uninstall());
        }
    }

    /// Whether it was [taken offline](Device::take_offline).
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.shared.snapshot().offline
    }

    /// The driver, unless the device is offline.
    pub(crate) fn driver(&self) -> Result<Arc<dyn Driver>, Error> {
        let driver = self.shared.driver.lock().expect("the driver's lock").clone();
        driver.ok_or_else(|| Error::Dying(self.config().name.clone()))
    }
}
