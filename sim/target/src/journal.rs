//! What a target did, in order, and the writes that landed too late.

use std::collections::{BTreeMap, VecDeque};

use weir_bio::Nanos;
use weir_proto_scsi::ScsiStatus;

use crate::nexus::NexusId;
use crate::task::{CommandNumber, TaskTag};

/// A range of blocks of a logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunRange {
    /// Number of the logical unit.
    pub lun: u32,
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u64,
}

/// What happened to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It changed these blocks.
    Landed(LunRange),
    /// It ended, and the answer was given.
    Answered(ScsiStatus),
    /// It never arrived.
    Dropped,
    /// It was carried out, and its answer was lost.
    Unanswered,
    /// It was ended by task management, or with its nexus.
    Aborted,
}

/// An entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Nanos,
    /// The command.
    pub command: CommandNumber,
    /// Its nexus.
    pub nexus: NexusId,
    /// Its tag.
    pub tag: TaskTag,
    /// What happened to it.
    pub deed: Deed,
}

/// A write that landed on blocks of a newer one that had been acknowledged.
///
/// Newer is what arrived later. An initiator that has overlapping writes in flight, whose order
/// SAM leaves open, may see these without a fault of its fencing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleLanding {
    /// When.
    pub at: Nanos,
    /// The command that landed.
    pub older: CommandNumber,
    /// One that it overwrote.
    pub newer: CommandNumber,
    /// What the older changed.
    pub range: LunRange,
}

/// The journal, and what it takes to find stale landings.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub entries: VecDeque<Entry>,
    pub stale: Vec<StaleLanding>,
    most: usize,
    /// By logical unit and first block: the block behind the last, and the newest command that was
    /// acknowledged.
    newest: BTreeMap<(u32, u64), (u64, CommandNumber)>,
    pieces: Vec<(u64, u64, CommandNumber)>,
}

impl Journal {
    pub(crate) fn new(most: u32) -> Self {
        Self { most: most as usize, ..Self::default() }
    }

    pub(crate) fn put(&mut self, entry: Entry) {
        if self.most == 0 {
            return;
        }
        if self.entries.len() == self.most {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        if let Deed::Landed(range) = entry.deed
            && let Some(newer) = self.newer(range, entry.command)
            && self.stale.len() < self.most
        {
            self.stale.push(StaleLanding { at: entry.at, older: entry.command, newer, range });
        }
    }

    /// The pieces of a range that have been acknowledged.
    fn overlaps(
        &self,
        range: LunRange,
    ) -> impl Iterator<Item = ((u32, u64), (u64, CommandNumber))> {
        let end = range.lba.saturating_add(range.blocks);
        // Pieces do not overlap each other, so one at most begins before the range and meets it.
        let before = self.newest.range((range.lun, 0)..(range.lun, range.lba)).next_back();
        let inside = self.newest.range((range.lun, range.lba)..(range.lun, end));
        let pieces = before.into_iter().chain(inside);
        pieces
            .filter(move |(_, (piece_end, _))| *piece_end > range.lba && end > range.lba)
            .map(|(a, b)| (*a, *b))
    }

    fn newer(&self, range: LunRange, than: CommandNumber) -> Option<CommandNumber> {
        self.overlaps(range).map(|(_, (_, number))| number).filter(|number| *number > than).max()
    }

    /// A write was acknowledged: its blocks are of that age, but for those of a newer one.
    pub(crate) fn acknowledge(&mut self, range: LunRange, command: CommandNumber) {
        if self.most == 0 || range.blocks == 0 {
            return;
        }
        let LunRange { lun, lba, blocks } = range;
        let end = lba.saturating_add(blocks);
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        pieces.extend(self.overlaps(range).map(|((_, start), (end, number))| (start, end, number)));
        for &(start, ..) in &pieces {
            self.newest.remove(&(lun, start));
        }
        let mut at = lba;
        for &(start, piece_end, number) in &pieces {
            let (from, to) = (start.max(lba), piece_end.min(end));
            self.stamp(lun, (start, from), number);
            self.stamp(lun, (at, from), command);
            self.stamp(lun, (from, to), number.max(command));
            self.stamp(lun, (to, piece_end), number);
            at = to;
        }
        self.stamp(lun, (at, end), command);
        self.pieces = pieces;
    }

    fn stamp(&mut self, lun: u32, (start, end): (u64, u64), number: CommandNumber) {
        if start < end {
            self.newest.insert((lun, start), (end, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::Prng;

    use super::*;

    #[test]
    fn of_each_block_the_newest_acknowledged_command_is_known_whatever_the_order() {
        for seed in 0..500 {
            let mut dice = Prng::new(seed);
            let mut journal = Journal::new(1);
            let mut plain = [[CommandNumber(0); 24]; 2];
            for _ in 0..40 {
                let lba = dice.below(24);
                let blocks = dice.below(24 - lba + 1);
                let lun = dice.below(2) as u32;
                let (range, command) =
                    (LunRange { lun, lba, blocks }, CommandNumber(dice.below(9)));
                let blocks = &mut plain[lun as usize][lba as usize..][..blocks as usize];
                let newer = blocks.iter().copied().filter(|is| *is > command).max();
                assert_eq!(journal.newer(range, command), newer, "seed {seed}");
                journal.acknowledge(range, command);
                blocks.iter_mut().for_each(|is| *is = command.max(*is));
            }
        }
    }
}
