//! Faults: rules that say which commands fare how.
//!
//! A rule is asked when a command arrives. Of the rules that fit it the first counts, and only
//! that one; how often it was met is counted, and its dice are thrown, only then.

use serde::Deserialize;
use weir_bio::{Nanos, Prng};
use weir_proto_scsi::{AdditionalSense, Opcode, ScsiCommand, ScsiStatus, SenseKey};

use crate::nexus::{InitiatorId, PortId};

/// A rule. What is left out fits everything.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// Commands through this port, by RELATIVE TARGET PORT IDENTIFIER.
    pub port: Option<u16>,
    /// Commands of this initiator.
    pub initiator: Option<u32>,
    /// Commands to this logical unit.
    pub lun: Option<u32>,
    /// Commands of this class: `read`, `write`, `flush`, `other`. Default: any.
    pub class: Option<CommandClass>,
    /// Commands with this operation code.
    pub opcode: Option<u8>,
    /// Commands whose range has blocks at or behind this one.
    pub first_block: Option<u64>,
    /// Commands whose range has blocks at or before this one. With `first_block` alone: that one.
    pub last_block: Option<u64>,
    /// Commands that arrive at this time or later. Default 0.
    #[serde(rename = "from", deserialize_with = "crate::read::time")]
    pub from_ns: u64,
    /// Commands that arrive before this time.
    #[serde(rename = "until", deserialize_with = "crate::read::time_if_any")]
    pub until_ns: Option<u64>,
    /// So many commands that fit are let off first. Default 0.
    pub skip: u64,
    /// The rule counts for so many commands, and then no more.
    pub times: Option<u64>,
    /// The chance of each command that fits, percent. Default 100.
    #[serde(deserialize_with = "crate::read::percent")]
    pub chance: u32,
    /// What happens. Default `stuck`.
    pub effect: Effect,
}

/// What a command does, as far as rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandClass {
    /// READ.
    Read,
    /// All that change blocks: WRITE, WRITE SAME, UNMAP, COMPARE AND WRITE.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// All others.
    Other,
}

impl CommandClass {
    pub(crate) const fn of(command: &ScsiCommand) -> Self {
        match command {
            ScsiCommand::Read(_) => Self::Read,
            ScsiCommand::Write(_)
            | ScsiCommand::WriteSame(_)
            | ScsiCommand::Unmap { .. }
            | ScsiCommand::CompareAndWrite(_) => Self::Write,
            ScsiCommand::SynchronizeCache(_) => Self::Flush,
            _ => Self::Other,
        }
    }
}

/// What happens to a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Effect {
    /// It arrives and never ends, until a task management function or the end of its nexus ends
    /// it. It holds its place in the task set.
    #[default]
    Stuck,
    /// It never arrives: the target does not know it.
    Dropped,
    /// It is carried out, and its answer is lost.
    Unanswered {
        /// So much later than it would have been.
        #[serde(rename = "after", deserialize_with = "crate::read::time")]
        after_ns: u64,
    },
    /// It takes so much longer.
    Delayed {
        /// The time.
        #[serde(rename = "by", deserialize_with = "crate::read::time")]
        by_ns: u64,
    },
    /// It ends with this status and no sense, and is not carried out.
    Status(u8),
    /// It ends with CHECK CONDITION, and is not carried out.
    Sense {
        /// SENSE KEY, 0 to 15.
        key: u8,
        /// ADDITIONAL SENSE CODE and its qualifier, as 0x1100.
        code: u16,
        /// It is carried out before, as RECOVERED ERROR says. Default false.
        #[serde(default)]
        done: bool,
    },
    /// Its blocks cannot be read: MEDIUM ERROR 11h/00h with the first block that the rule names
    /// in INFORMATION; the blocks before are carried out.
    Medium,
    /// It ends as it would, and the next command of its nexus to the logical unit ends with a
    /// deferred error, and is not carried out.
    Deferred {
        /// SENSE KEY, 0 to 15.
        key: u8,
        /// ADDITIONAL SENSE CODE and its qualifier.
        code: u16,
    },
    /// It ends with CHECK CONDITION and random bytes for sense.
    Garbled,
    /// It ends with CHECK CONDITION and no sense at all.
    Senseless,
}

impl Default for Fault {
    fn default() -> Self {
        Self {
            port: None,
            initiator: None,
            lun: None,
            class: None,
            opcode: None,
            first_block: None,
            last_block: None,
            from_ns: 0,
            until_ns: None,
            skip: 0,
            times: None,
            chance: 100,
            effect: Effect::Stuck,
        }
    }
}

impl Effect {
    /// It ends with a status and no sense.
    #[must_use]
    pub const fn status(status: ScsiStatus) -> Self {
        Self::Status(status.0)
    }

    /// It ends with sense, and is not carried out.
    #[must_use]
    pub const fn sense(key: SenseKey, code: AdditionalSense) -> Self {
        Self::Sense { key: key as u8, code: code.0, done: false }
    }
}

/// A command as rules see it.
pub(crate) struct Seen<'a> {
    pub port: PortId,
    pub initiator: InitiatorId,
    pub lun: Option<u32>,
    pub opcode: Opcode,
    pub command: Option<&'a ScsiCommand>,
    /// First block and how many; `None` of a command without a range.
    pub range: Option<(u64, u64)>,
    pub now: Nanos,
}

impl Fault {
    fn fits(&self, seen: &Seen<'_>) -> bool {
        let same = |wanted: Option<u32>, is: Option<u32>| wanted.is_none() || wanted == is;
        let class = seen.command.map(CommandClass::of);
        same(self.port.map(u32::from), Some(u32::from(seen.port.0)))
            && same(self.initiator, Some(seen.initiator.0))
            && same(self.lun, seen.lun)
            && same(self.opcode.map(u32::from), Some(u32::from(seen.opcode.0)))
            && (self.class.is_none() || self.class == class)
            && self.from_ns <= seen.now.0
            && self.until_ns.is_none_or(|until| seen.now.0 < until)
            && self.meets(seen.range)
    }

    /// Whether a range has blocks of the rule.
    fn meets(&self, range: Option<(u64, u64)>) -> bool {
        let Some((first, last)) = self.blocks() else { return true };
        range.is_some_and(|(lba, blocks)| {
            blocks > 0 && lba <= last && first <= lba.saturating_add(blocks - 1)
        })
    }

    /// First and last block of the rule, if it names any.
    fn blocks(&self) -> Option<(u64, u64)> {
        match (self.first_block, self.last_block) {
            (None, None) => None,
            (Some(first), last) => Some((first, last.unwrap_or(first))),
            (None, Some(last)) => Some((0, last)),
        }
    }

    /// The first block of a range that the rule names.
    pub(crate) fn first_flaw(&self, lba: u64) -> u64 {
        self.blocks().map_or(lba, |(first, _)| first.max(lba))
    }
}

/// The rules with their counts.
#[derive(Debug, Default)]
pub(crate) struct FaultBook {
    rules: Vec<(Fault, u64)>,
}

impl FaultBook {
    pub(crate) fn add(&mut self, fault: Fault) {
        self.rules.push((fault, 0));
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
    }

    /// The effect on a command, and the rule's first block of its range.
    pub(crate) fn judge(&mut self, seen: &Seen<'_>, dice: &mut Prng) -> Option<(Effect, u64)> {
        for (rule, met) in &mut self.rules {
            let spent = rule.times.is_some_and(|times| *met >= rule.skip.saturating_add(times));
            if spent || !rule.fits(seen) {
                continue;
            }
            if *met < rule.skip {
                *met += 1;
                continue;
            }
            if !dice.percent(rule.chance) {
                continue;
            }
            *met += 1;
            return Some((rule.effect, rule.first_flaw(seen.range.map_or(0, |(lba, _)| lba))));
        }
        None
    }
}
