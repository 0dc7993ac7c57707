//! The figures of one bio that has ended alone.

use weir_bio::Op;

use super::{PLACES, Run, Stamps, SubmitterStats, Times};

impl SubmitterStats {
    /// Writes down one bio that ended well, as a streak of it alone would.
    #[inline(always)]
    pub(crate) fn account_one(&self, op: Op, absorbed: bool, sectors: u32, stamps: Stamps) {
        if let Some(group) = self.groups.get(usize::from(PLACES[op as usize])) {
            let run = Run { bios: 1, absorbed: u64::from(absorbed), sectors: u64::from(sectors) };
            group.add(run, &Times::of(stamps));
        }
    }
}
