//! What a job needs beside its I/Os: how long a file.

use weir_bio::SECTOR;

use crate::job::Job;
use crate::quantity::Amount;

impl Job {
    /// How long a file must be for all of its clones, whole sectors, if the job says so in bytes.
    #[must_use]
    pub fn extent(&self) -> Option<u64> {
        let (Some(Amount::Bytes(size)), Amount::Bytes(offset), Amount::Bytes(step)) =
            (self.size, self.offset, self.offset_increment)
        else {
            return None;
        };
        let last = step.checked_mul(u64::from(self.clones.max(1)) - 1)?;
        size.checked_add(offset)?.checked_add(last)?.checked_next_multiple_of(SECTOR)
    }
}
