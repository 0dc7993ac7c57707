//! The state of a target, and the changes of it that commands, task management and the script have
//! in common.

use weir_bio::{Nanos, Prng};
use weir_proto_scsi::alua::{AccessState, StateCause};
use weir_proto_scsi::{AdditionalSense, Lun, Opcode};

use crate::fault::FaultBook;
use crate::journal::{Deed, Entry, Journal, LunRange};
use crate::nexus::{Nexus, NexusId, PortId};
use crate::reserve::Registrant;
use crate::script::{Event, PortHealth};
use crate::spec::{Spec, Speed};
use crate::task::{Task, Tasks};
use crate::unit::Unit;

#[derive(Debug)]
pub(crate) struct Port {
    pub id: PortId,
    /// Index of its group.
    pub group: usize,
    pub speed: Speed,
    pub health: PortHealth,
    /// Its bandwidth is used until then.
    pub busy_until: Nanos,
}

impl Port {
    pub(crate) const fn is_dead(&self) -> bool {
        matches!(self.health, PortHealth::Dead { .. })
    }
}

/// A change of a group's state that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub due: Nanos,
    pub state: AccessState,
    pub cause: StateCause,
    /// The nexus that asked for it is not told.
    pub by: Option<NexusId>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub id: u16,
    pub preferred: bool,
    pub state: AccessState,
    pub cause: StateCause,
    pub change: Option<Change>,
}

/// A simulated SCSI target.
///
/// # Contract
/// `now` never goes back. Before time moves on, the ends of the time before are taken:
/// [`Target::next_end`] is called until it answers `None`, and again at [`Target::wake_at`].
/// The same spec and the same calls give the same ends.
#[derive(Debug)]
pub struct Target {
    pub(crate) spec: Spec,
    pub(crate) ports: Vec<Port>,
    pub(crate) groups: Vec<Group>,
    /// In the order of their numbers.
    pub(crate) units: Vec<Unit>,
    pub(crate) nexuses: Vec<Nexus>,
    pub(crate) dice: Prng,
    pub(crate) journal: Journal,
    /// What the command under way has changed.
    pub(crate) landed: Vec<LunRange>,
    /// Data that the command under way answers with, unless they are blocks.
    pub(crate) reply: Vec<u8>,
    /// Bytes that the command under way has taken from its data.
    pub(crate) taken: usize,
    pub(crate) tasks: Tasks,
    /// Commands in all task sets.
    pub(crate) queued: u32,
    pub(crate) arrived: u64,
    pub(crate) faults: FaultBook,
    /// In the order of their times; those before `played` have happened.
    pub(crate) script: Vec<Event>,
    pub(crate) played: usize,
    pub(crate) sense: Vec<u8>,
}

impl Target {
    /// The index of a nexus that has not ended.
    pub(crate) fn slot_of(&self, nexus: NexusId) -> Option<usize> {
        let slot = nexus.slot as usize;
        let there = self.nexuses.get(slot)?;
        (there.alive && there.generation == nexus.generation).then_some(slot)
    }

    /// The index of a logical unit that is in the map.
    pub(crate) fn unit_of(&self, lun: Lun) -> Option<usize> {
        let number = lun.number()?;
        let at = self.units.binary_search_by_key(&number, |unit| unit.spec.number).ok()?;
        self.units[at].present.then_some(at)
    }

    pub(crate) fn registrant(&self, nexus: usize) -> Registrant {
        let nexus = &self.nexuses[nexus];
        Registrant { initiator: nexus.initiator, port: self.ports[nexus.port].id }
    }

    pub(crate) fn id_of(&self, slot: usize) -> NexusId {
        NexusId { slot: slot as u32, generation: self.nexuses[slot].generation }
    }

    /// Ends commands without an answer; how many.
    pub(crate) fn abort(&mut self, now: Nanos, fits: impl Fn(&Task) -> bool) -> usize {
        let mut count = 0;
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.remove(fits, |task| {
            count += 1;
            self.uncount(&task);
            self.note(&task, now, Deed::Aborted);
        });
        self.tasks = tasks;
        count
    }

    /// Takes the place back.
    pub(crate) fn uncount(&mut self, task: &Task) {
        if !task.counts {
            return;
        }
        self.queued -= 1;
        if let Some(at) = task.unit {
            self.units[at].tasks -= 1;
            self.nexuses[task.nexus.slot as usize].told[at].tasks -= 1;
        }
    }

    pub(crate) fn note(&mut self, task: &Task, at: Nanos, deed: Deed) {
        let Task { number: command, nexus, tag, .. } = *task;
        self.journal.put(Entry { at, command, nexus, tag, deed });
    }

    /// Sets a unit attention aside for all nexuses but one, of one logical unit or of all.
    pub(crate) fn raise(
        &mut self,
        code: AdditionalSense,
        unit: Option<usize>,
        but: Option<NexusId>,
    ) {
        for slot in 0..self.nexuses.len() {
            if !self.nexuses[slot].alive || Some(self.id_of(slot)) == but {
                continue;
            }
            for (at, told) in self.nexuses[slot].told.iter_mut().enumerate() {
                if unit.is_none_or(|unit| unit == at) {
                    told.raise(code);
                }
            }
        }
    }

    /// Sends a group to another state, over a transition if the spec has a time for it.
    pub(crate) fn change_group(
        &mut self,
        at: usize,
        state: AccessState,
        cause: StateCause,
        by: Option<NexusId>,
        now: Nanos,
    ) {
        let change = Change { due: now + self.spec.transition_ns, state, cause, by };
        if self.spec.transition_ns == 0 {
            return self.settle(at, change);
        }
        self.groups[at].state = AccessState::Transitioning;
        self.groups[at].cause = cause;
        self.groups[at].change = Some(change);
    }

    pub(crate) fn settle(&mut self, at: usize, change: Change) {
        self.groups[at].state = change.state;
        self.groups[at].cause = change.cause;
        self.raise(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED, None, change.by);
    }

    /// The operation codes with which this target does something.
    pub(crate) fn speaks(&self, opcode: Opcode, unit: usize) -> bool {
        match opcode {
            Opcode::UNMAP => self.units[unit].spec.thin != 0,
            Opcode::MAINTENANCE_OUT => self.spec.explicit_alua,
            _ => Opcode::NAMED.contains(&opcode),
        }
    }
}
