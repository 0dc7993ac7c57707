//! After a crash: is every commit that was acknowledged still there?
//!
//! A commit is there if its redo is in the log; or if its redo has been overwritten, which is
//! allowed once its data blocks are durable: then a later redo block carries a checkpoint above it,
//! and one of a later round stands in its place, or was being written there.
//! Of commits below the checkpoint every data block must hold their change or a later one: of those
//! that were acknowledged, whose blocks are told with them, and of those whose redo is still there.

use std::collections::BTreeMap;

use super::LOG_WRITE_MAX;
use super::format::{self, LogBlock, RECORDS, REDO_BYTES};

/// The content of the log of one instance of one run.
#[derive(Clone, Debug)]
pub struct Audit {
    run: u64,
    instance: u16,
    /// Blocks of the log.
    redo_blocks: u64,
    /// The redo blocks that are there, by their first transaction: number, last transaction.
    redo: BTreeMap<u64, (u64, u64)>,
    /// By transaction: the blocks it changed.
    found: BTreeMap<u64, [u64; format::CHANGES]>,
    /// The newest redo block, and the checkpoint it carries.
    newest: Option<(u64, u64)>,
}

/// A data block to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub block: u64,
    /// The change it must hold, unless it holds a later one.
    pub least: u64,
    /// Whether it may be torn: a change above the checkpoint was perhaps being written, and its
    /// redo is there.
    pub torn: bool,
}

/// The fate of the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the log.
    pub in_log: u64,
    /// Overwritten in the log, below its checkpoint.
    pub checkpointed: u64,
}

impl Audit {
    /// An audit of the redo of one instance, a log of so many blocks.
    #[must_use]
    pub fn new(run: u64, instance: u16, redo_blocks: u64) -> Audit {
        let (redo, found) = (BTreeMap::new(), BTreeMap::new());
        Audit { run, instance, redo_blocks: redo_blocks.max(1), redo, found, newest: None }
    }

    /// Looks at a piece of its log: whole redo blocks, the first of which is in this place, from 0.
    /// A block in the place of another one does not count: recovery looks for each block in its own
    /// place.
    pub fn take_redo(&mut self, first: u64, bytes: &[u8]) {
        for (place, bytes) in (first..).zip(bytes.chunks(REDO_BYTES as usize)) {
            let Some(block) = LogBlock::decode(bytes) else { continue };
            if block.run != self.run || block.instance != self.instance {
                continue;
            }
            if block.number % self.redo_blocks != place {
                continue;
            }
            if self.newest.is_none_or(|(number, _)| number < block.number) {
                self.newest = Some((block.number, block.checkpoint));
            }
            if let (Some(first), Some(last)) = (block.records.first(), block.records.last()) {
                self.redo.insert(first.id, (block.number, last.id));
            }
            self.found.extend(block.records.into_iter().map(|record| (record.id, record.blocks)));
        }
    }

    /// All transactions below this have their data on the medium, as the log says.
    #[must_use]
    pub fn checkpoint(&self) -> u64 {
        self.newest.map_or(1, |(_, checkpoint)| checkpoint)
    }

    /// Whether the redo block of a transaction that is not in the log may have been overwritten by
    /// one of a later round. Transactions count on from block to block without a gap, and each
    /// block holds one to [`RECORDS`] of them: so its neighbours say which block it was in.
    fn may_be_overwritten(&self, id: u64) -> bool {
        let Some((newest, _)) = self.newest else { return false };
        let before = self.redo.range(..id).next_back();
        let least = before.map_or(0, |(_, (number, last))| {
            number + id.saturating_sub(*last).div_ceil(RECORDS as u64)
        });
        let after = self.redo.range(id..).next();
        let least = after
            .map_or(least, |(first, (number, _))| least.max(number.saturating_sub(first - id)));
        // A write that was under way may have torn what stood behind the newest block, as far as
        // one write goes: not beyond the end of the log.
        let next = newest + 1;
        let round_end = (next / self.redo_blocks + 1) * self.redo_blocks;
        least + self.redo_blocks < round_end.min(next + LOG_WRITE_MAX as u64)
    }

    /// The data blocks a transaction changed, if its redo is there.
    #[must_use]
    pub fn found(&self, id: u64) -> Option<&[u64; format::CHANGES]> {
        self.found.get(&id)
    }

    /// The data blocks that must hold a change, or a later one. `acknowledged` are the commits that
    /// were acknowledged, each with the blocks it changed.
    #[must_use]
    pub fn wanted(&self, acknowledged: &BTreeMap<u64, [u64; format::CHANGES]>) -> Vec<Wanted> {
        let checkpoint = self.checkpoint();
        let mut wanted: BTreeMap<u64, Wanted> = BTreeMap::new();
        for (id, blocks) in
            [&self.found, acknowledged].into_iter().flat_map(|m| m.range(..checkpoint))
        {
            for block in blocks {
                let new = Wanted { block: *block, least: *id, torn: false };
                let known = wanted.entry(*block).or_insert(new);
                known.least = known.least.max(*id);
            }
        }
        for (_, blocks) in self.found.range(checkpoint..) {
            for block in blocks {
                wanted.entry(*block).and_modify(|wanted| wanted.torn = true);
            }
        }
        wanted.into_values().collect()
    }

    /// Looks at what a data block holds.
    ///
    /// # Errors
    /// The block, what it holds and what it should.
    pub fn take_data(&self, wanted: Wanted, bytes: &[u8]) -> Result<(), String> {
        let (run, instance, Wanted { block, least, torn }) = (self.run, self.instance, wanted);
        match format::decode_data(run, instance, block, bytes) {
            Some(newest) if newest >= least => Ok(()),
            Some(newest) => Err(format!(
                "instance {instance}: data block {block} holds change {newest}, but {least} is \
                 below the checkpoint {}",
                self.checkpoint()
            )),
            None if torn => Ok(()),
            None => Err(format!(
                "instance {instance}: data block {block} is torn or was never written, but change \
                 {least} is below the checkpoint {}",
                self.checkpoint()
            )),
        }
    }

    /// Holds the acknowledged commits against what was found.
    ///
    /// # Errors
    /// The commits that are lost: how many, and the first. One whose redo tells of other blocks
    /// than it changed.
    pub fn verdict(
        &self,
        acknowledged: &BTreeMap<u64, [u64; format::CHANGES]>,
    ) -> Result<Found, String> {
        let (mut found, mut lost) = (Found { in_log: 0, checkpointed: 0 }, Vec::new());
        for (id, blocks) in acknowledged {
            if let Some(in_log) = self.found.get(id) {
                if in_log != blocks {
                    return Err(format!(
                        "instance {}: the redo of commit {id} has the blocks {in_log:?}, but it \
                         changed {blocks:?}",
                        self.instance
                    ));
                }
                found.in_log += 1;
            } else if *id < self.checkpoint() && self.may_be_overwritten(*id) {
                found.checkpointed += 1;
            } else {
                lost.push(*id);
            }
        }
        match lost.first() {
            None => Ok(found),
            Some(first) => Err(format!(
                "instance {}: {} of {} acknowledged commits are lost, the first is {first}",
                self.instance,
                lost.len(),
                acknowledged.len()
            )),
        }
    }
}
