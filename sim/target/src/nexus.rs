//! Nexuses: an initiator at a port, and what each logical unit has to tell it.

use weir_proto_scsi::{AdditionalSense, Sense};

/// A target port by its RELATIVE TARGET PORT IDENTIFIER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// An initiator, by a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorId(pub u32);

/// A nexus, from [`crate::Target::connect`] to its end. The name of one that has ended is never
/// used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Attentions that wait at most; more than there are kinds that are raised here.
const ATTENTIONS_MAX: usize = 16;

/// What a logical unit has to tell one nexus.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    attentions: [AdditionalSense; ATTENTIONS_MAX],
    waiting: usize,
    /// The sense of a deferred error.
    pub deferred: Option<Sense>,
    /// Commands of the nexus in the task set.
    pub tasks: u32,
}

impl Default for Told {
    fn default() -> Self {
        let attentions = [AdditionalSense::NONE; ATTENTIONS_MAX];
        Self { attentions, waiting: 0, deferred: None, tasks: 0 }
    }
}

impl Told {
    /// Sets an attention aside. One that waits already is not told twice, and a reset takes the
    /// place of all that were there before, as SPC-4 lets it.
    pub(crate) fn raise(&mut self, code: AdditionalSense) {
        if code == AdditionalSense::POWER_ON_OR_RESET_OCCURRED {
            (self.waiting, self.deferred) = (0, None);
        }
        if !self.list().contains(&code) && self.waiting < ATTENTIONS_MAX {
            self.attentions[self.waiting] = code;
            self.waiting += 1;
        }
    }

    /// The attention that is told next; it is told once.
    pub(crate) fn next(&mut self) -> Option<AdditionalSense> {
        let first = *self.list().first()?;
        self.forget(first);
        Some(first)
    }

    /// Takes an attention back.
    pub(crate) fn forget(&mut self, code: AdditionalSense) {
        if let Some(at) = self.list().iter().position(|waits| *waits == code) {
            self.attentions.copy_within(at + 1..self.waiting, at);
            self.waiting -= 1;
        }
    }

    fn list(&self) -> &[AdditionalSense] {
        &self.attentions[..self.waiting]
    }
}

/// A nexus.
#[derive(Debug)]
pub(crate) struct Nexus {
    pub generation: u32,
    pub alive: bool,
    /// Index of its port.
    pub port: usize,
    pub initiator: InitiatorId,
    /// By index of the logical unit.
    pub told: Vec<Told>,
}
