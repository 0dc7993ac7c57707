//! What a job needs beside its I/Os: how long a file, and how much memory to keep track with.

use weir_bio::SECTOR;

use crate::blocks::Blocks;
use crate::job::{Ground, Job};
use crate::map::Map;
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

    /// Bytes of memory in which all of its clones keep track of places and of blocks that they
    /// verify; 0 where it is refused.
    #[must_use]
    pub fn kept_bytes(&self, ground: Ground) -> u64 {
        let Ok(range) = self.range_of(ground, 0) else { return 0 };
        let of_clone = Map::bytes(self, range) + Blocks::bytes(self, range);
        of_clone.saturating_mul(u64::from(self.clones))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Direction, Verify};

    #[test]
    fn a_backlog_of_writes_takes_two_words_for_each() {
        let ground = Ground { bytes: 1 << 20, block: 512, read_only: false };
        let verifies = |every| Job {
            direction: Direction::Write,
            verify: Some(Verify::Crc32c),
            verify_backlog: [every, 0],
            clones: 2,
            ..Job::default()
        };
        let more = verifies(1000).kept_bytes(ground) - verifies(0).kept_bytes(ground);
        assert_eq!(more, 2 * 1000 * 16);
    }
}
