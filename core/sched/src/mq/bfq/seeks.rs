//! Whether a queue's requests are far apart. Source: docs/behaviour/bfq.md, section 16.3.

/// Farther apart than this counts as a seek, sectors.
const SEEK_DISTANCE: u64 = 800;
/// On a device without seeks a larger request than this is none, sectors.
const SEEK_SIZE: u32 = 64;
/// More seeks than this among the last 32 requests make a queue seeky.
const SEEKY_ABOVE: u32 = 19;

/// The last 32 requests, one bit each, set for a seek.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeekHistory(u32);

impl SeekHistory {
    pub(super) fn new() -> SeekHistory {
        SeekHistory(1)
    }

    pub(super) fn note(&mut self, seek: bool) {
        self.0 = self.0 << 1 | u32::from(seek);
    }

    pub(super) fn is_seeky(self) -> bool {
        self.0.count_ones() > SEEKY_ABOVE
    }

    pub(super) fn is_full(self) -> bool {
        self.0 == u32::MAX
    }
}

/// Whether going from `position` (0: unknown) to a request is a seek.
#[inline]
pub(super) fn is_seek(position: u64, sector: u64, sectors: u32, rotational: bool) -> bool {
    let (known, far) = (position != 0, position.abs_diff(sector) > SEEK_DISTANCE);
    // Each of them is by chance, so none decides a branch.
    known & far & (rotational | (sectors < SEEK_SIZE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_seeky_from_the_twentieth_seek_of_32() {
        let mut seeks = SeekHistory::new();
        (0..18).for_each(|_| seeks.note(true));
        assert!(!seeks.is_seeky(), "19 bits with the one it starts with");
        seeks.note(true);
        assert!(seeks.is_seeky() && !seeks.is_full());
        (0..14).for_each(|_| seeks.note(true));
        assert!(seeks.is_full(), "32 in a row");
        seeks.note(false);
        assert!(!seeks.is_full());
        (0..32).for_each(|_| seeks.note(false));
        assert!(!seeks.is_seeky());
    }

    #[test]
    fn a_seek_is_far_and_without_rotation_small_as_well() {
        assert!(!is_seek(0, 1 << 30, 8, true), "unknown position");
        assert!(!is_seek(1000, 1800, 8, true));
        assert!(is_seek(1000, 1801, 8, true) && is_seek(1000, 199, 8, true));
        assert!(is_seek(1000, 1 << 20, 63, false) && !is_seek(1000, 1 << 20, 64, false));
    }
}
