//! What of a device has failed.

use std::sync::Arc;

use weir_bio::Status;

use super::Device;
use crate::failures::Failure;

impl Device {
    /// How the first flush ended that failed, if one did.
    #[must_use]
    pub fn flush_error(&self) -> Option<Status> {
        self.own_flush_error().first()
    }

    /// The kinds of failures that its I/O had, in the order in which they first came. Those of the
    /// partitions of a pool are theirs.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.own_failures().all()
    }

    /// Tells `listener` that the first flush has failed, when it does, on the thread that turns its
    /// lane, and that I/O fails, when that begins, on the thread of its submitter; each waits for
    /// the listener. A second listener takes the first one's place.
    pub fn on_failure(&self, listener: Arc<dyn Fn(&str) + Send + Sync>) {
        self.own_flush_error().listen(Arc::clone(&listener));
        self.own_failures().listen(listener);
    }
}
