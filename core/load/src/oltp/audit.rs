//! After a crash: is every commit that was acknowledged still there?
//!
//! A commit is there if its redo is in the log; or if its redo has been overwritten, which is
//! allowed once its data blocks are durable: then a later redo block carries a checkpoint above it.
//! Of commits below the checkpoint whose redo is still there, every data block must hold their
//! change or a later one.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{self, LogBlock, REDO_BYTES};

/// What the log of one instance of one run holds.
#[derive(Clone, Debug)]
pub struct Audit {
    run: u64,
    instance: u16,
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

/// What became of the commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// In the log.
    pub in_log: u64,
    /// Overwritten in the log, below its checkpoint.
    pub checkpointed: u64,
}

impl Audit {
    /// An audit of the redo of one instance.
    #[must_use]
    pub fn new(run: u64, instance: u16) -> Audit {
        Audit { run, instance, found: BTreeMap::new(), newest: None }
    }

    /// Looks at a piece of its log: whole redo blocks.
    pub fn take_redo(&mut self, bytes: &[u8]) {
        for bytes in bytes.chunks(REDO_BYTES as usize) {
            let Some(block) = LogBlock::decode(bytes) else { continue };
            if block.run != self.run || block.instance != self.instance {
                continue;
            }
            if self.newest.is_none_or(|(number, _)| number < block.number) {
                self.newest = Some((block.number, block.checkpoint));
            }
            self.found.extend(block.records.into_iter().map(|record| (record.id, record.blocks)));
        }
    }

    /// All transactions below this have their data on the medium, as the log says.
    #[must_use]
    pub fn checkpoint(&self) -> u64 {
        self.newest.map_or(1, |(_, checkpoint)| checkpoint)
    }

    /// The data blocks that must hold a change, or a later one.
    #[must_use]
    pub fn wanted(&self) -> Vec<Wanted> {
        let checkpoint = self.checkpoint();
        let mut wanted: BTreeMap<u64, Wanted> = BTreeMap::new();
        for (id, blocks) in self.found.range(..checkpoint) {
            wanted.extend(
                blocks
                    .iter()
                    .map(|block| (*block, Wanted { block: *block, least: *id, torn: false })),
            );
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
    /// The commits that are lost: how many, and the first.
    pub fn verdict(&self, acknowledged: &BTreeSet<u64>) -> Result<Found, String> {
        let (mut found, mut lost) = (Found { in_log: 0, checkpointed: 0 }, Vec::new());
        for id in acknowledged {
            if self.found.contains_key(id) {
                found.in_log += 1;
            } else if *id < self.checkpoint() {
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
