//! Whether a queue jumps about: one bit for each of its last 32 requests. Source:
//! docs/behaviour/bfq.md, section 16.3, the rows of cfq.

use weir_bio::Rq;

/// A request begins a jump when it is farther than this from the end of the one before, sectors.
const FAR_SECTORS: u64 = 800;
/// Without seeks, what is smaller than this counts instead, sectors (32 KiB).
const SMALL_SECTORS: u32 = 64;
/// More bits than this make a queue seeky.
const SEEKY_BITS: u32 = 4;

/// The last 32 requests of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeekHistory {
    bits: u32,
    /// The end of the request inserted last, sectors; 0 while there was none.
    last_end: u64,
}

impl SeekHistory {
    /// Takes note of a request that is inserted.
    pub fn record(&mut self, rq: &Rq, rotational: bool) {
        let distance = if self.last_end == 0 { 0 } else { rq.sector.abs_diff(self.last_end) };
        let jumps = if rotational { distance > FAR_SECTORS } else { rq.sectors < SMALL_SECTORS };
        self.bits = self.bits << 1 | u32::from(jumps);
        self.last_end = rq.end();
    }

    /// Whether it jumps so often that waiting for its next request does not pay.
    #[must_use]
    pub fn is_seeky(&self) -> bool {
        self.bits.count_ones() > SEEKY_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, Op, RqId, SchedTag};

    fn read(sector: u64, sectors: u32) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Read,
            segments: 1,
        }
    }

    #[test]
    fn five_jumps_of_the_last_32_make_a_disks_queue_seeky() {
        let mut history = SeekHistory::default();
        history.record(&read(5_000_000, 8), true);
        for jump in 0..5 {
            assert!(!history.is_seeky(), "after {jump} jumps");
            history.record(&read(jump * 1_000_000, 8), true);
        }
        assert!(history.is_seeky());
        for step in 0..28 {
            assert!(history.is_seeky(), "after {step} steps");
            history.record(&read(4_000_008 + step * 8, 8), true);
        }
        assert!(!history.is_seeky(), "the first jump has left the register");
    }

    #[test]
    fn a_distance_of_800_sectors_is_no_jump() {
        let mut history = SeekHistory::default();
        for step in 0..32 {
            history.record(&read(1000 + step * 808, 8), true);
        }
        assert!(!history.is_seeky());
    }

    #[test]
    fn without_seeks_small_requests_count_wherever_they_are() {
        let mut small = SeekHistory::default();
        let mut large = SeekHistory::default();
        for step in 0..5 {
            small.record(&read(1000 + step * 63, 63), false);
            large.record(&read(step * 1_000_000, 64), false);
        }
        assert!(small.is_seeky() && !large.is_seeky());
    }
}
