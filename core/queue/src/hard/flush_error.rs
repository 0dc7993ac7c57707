//! The error of the first flush of a device that failed: kept, and reported once.
//!
//! Later failures add nothing: writes from before may be gone, and the first error says best why.

use std::sync::{Arc, Mutex, PoisonError};

use weir_bio::Status;

use crate::notices::Notices;

/// The first error of a device, shared by its hard queues.
#[derive(Debug, Default)]
pub(crate) struct FlushError {
    first: Mutex<Option<Status>>,
    notices: Notices,
}

impl FlushError {
    /// A flush has failed.
    #[cold]
    pub(crate) fn note(&self, status: Status) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_some() {
            return;
        }
        *first = Some(status);
        // The listener may ask for it.
        drop(first);
        self.notices.add(format!(
            "a flush has failed: {status}: what was written before it may not be durable"
        ));
    }

    pub(crate) fn first(&self) -> Option<Status> {
        *self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listen(&self, listener: Arc<dyn Fn(&str) + Send + Sync>) {
        self.notices.listen(listener);
    }
}
