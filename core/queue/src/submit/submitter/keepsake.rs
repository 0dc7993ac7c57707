//! A value that outlives a submitter, together with its I/O.

use std::any::Any;

use super::Submitter;

/// A value dropped with the last I/O of a submitter.
pub(super) type Keepsake = Box<dyn Any + Send>;

impl Submitter {
    /// Has `keepsake` dropped when this is dropped and the last of its I/O has ended: what pays for
    /// the memory of that I/O.
    pub fn bequeath(&mut self, keepsake: impl Any + Send) {
        if let Some(core) = &mut self.core {
            core.keepsake = Some(Box::new(keepsake));
        }
    }
}
