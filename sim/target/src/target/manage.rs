//! Task management, and the beginning and end of nexuses.

use weir_bio::Nanos;
use weir_proto_scsi::{AdditionalSense, Lun};

use super::ConnectError;
use crate::fault::Fault;
use crate::nexus::{InitiatorId, Nexus, NexusId, PortId, Told};
use crate::spec::SpecError;
use crate::state::Target;
use crate::task::TaskTag;

/// A task management function. Source: SAM-5, "Task management functions".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// Ends a command of this nexus.
    AbortTask(TaskTag),
    /// Ends all commands of this nexus to a logical unit.
    AbortTaskSet(Lun),
    /// Ends all commands to a logical unit; nexuses that lose one are told by a unit attention.
    ClearTaskSet(Lun),
    /// Ends all commands to a logical unit, and resets it.
    LunReset(Lun),
    /// Does so with all logical units.
    TargetWarmReset,
    /// The same, and ends all nexuses.
    TargetColdReset,
}

/// What a task management function answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// It is done: the commands change no block any more, and have no end.
    Complete,
    /// There is no such command: it ended, or never arrived.
    NoTask,
    /// There is no such logical unit.
    NoLun,
    /// No answer comes, and nothing was done: the port is dead.
    Lost,
}

impl Target {
    /// Connects an initiator to a port. A nexus of the same two ends, as a session that is
    /// reinstated. Each logical unit has a unit attention for the new one.
    ///
    /// # Errors
    /// [`ConnectError`], and the old nexus goes on.
    pub fn connect(
        &mut self,
        port: PortId,
        initiator: InitiatorId,
        now: Nanos,
    ) -> Result<NexusId, ConnectError> {
        let at = self.ports.iter().position(|there| there.id == port);
        let port = at.ok_or(ConnectError::NoPort)?;
        if self.ports[port].is_dead() {
            return Err(ConnectError::Dead);
        }
        let same =
            |nexus: &Nexus| nexus.alive && nexus.port == port && nexus.initiator == initiator;
        if let Some(slot) = self.nexuses.iter().position(same) {
            self.disconnect(self.id_of(slot), now);
        }
        let slot = self.nexuses.iter().position(|nexus| !nexus.alive).unwrap_or_else(|| {
            let told = vec![Told::default(); self.units.len()];
            self.nexuses.push(Nexus { generation: 0, alive: false, port, initiator, told });
            self.nexuses.len() - 1
        });
        let nexus = &mut self.nexuses[slot];
        nexus.generation += 1;
        (nexus.alive, nexus.port, nexus.initiator) = (true, port, initiator);
        for told in &mut nexus.told {
            *told = Told::default();
            told.raise(AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
        }
        Ok(self.id_of(slot))
    }

    /// Ends a nexus with all its commands, also those whose answers were lost. One that has ended
    /// is left alone.
    pub fn disconnect(&mut self, nexus: NexusId, now: Nanos) {
        if let Some(slot) = self.slot_of(nexus) {
            self.abort(now, |task| task.nexus == nexus);
            self.nexuses[slot].alive = false;
        }
    }

    /// Whether a nexus has not ended.
    #[must_use]
    pub fn is_connected(&self, nexus: NexusId) -> bool {
        self.slot_of(nexus).is_some()
    }

    /// Carries a task management function out. Ends that were due are to be taken before.
    pub fn manage(&mut self, nexus: NexusId, function: Management, now: Nanos) -> Managed {
        let Some(slot) = self.slot_of(nexus) else { return Managed::Lost };
        if self.ports[self.nexuses[slot].port].is_dead() {
            return Managed::Lost;
        }
        let lun = match function {
            Management::AbortTask(tag) => {
                let there = self.abort(now, |task| task.nexus == nexus && task.tag == tag);
                return if there == 0 { Managed::NoTask } else { Managed::Complete };
            }
            Management::TargetWarmReset | Management::TargetColdReset => {
                for at in 0..self.units.len() {
                    self.reset(at, now);
                }
                self.abort(now, |_| true);
                if function == Management::TargetColdReset {
                    self.nexuses.iter_mut().for_each(|nexus| nexus.alive = false);
                }
                return Managed::Complete;
            }
            Management::AbortTaskSet(lun)
            | Management::ClearTaskSet(lun)
            | Management::LunReset(lun) => lun,
        };
        let Some(at) = self.unit_of(lun) else { return Managed::NoLun };
        match function {
            Management::LunReset(_) => self.reset(at, now),
            Management::ClearTaskSet(_) => self.clear(at, Some(nexus), now),
            _ => {
                self.abort(now, |task| task.nexus == nexus && task.unit == Some(at));
            }
        }
        Managed::Complete
    }

    /// Adds a rule behind those there are.
    ///
    /// # Errors
    /// What of the rule does not fit the spec.
    pub fn add_fault(&mut self, fault: Fault) -> Result<(), SpecError> {
        match self.spec.misfit_of_fault(&fault) {
            Some((_, what)) => Err(SpecError { line: None, what }),
            None => {
                self.faults.add(fault);
                Ok(())
            }
        }
    }

    /// Takes all rules away. Commands that met one before go on as it says.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Ends all commands of a logical unit; other nexuses than `by` that lose one are told.
    fn clear(&mut self, at: usize, by: Option<NexusId>, now: Nanos) {
        for slot in 0..self.nexuses.len() {
            let nexus = &mut self.nexuses[slot];
            if nexus.alive && nexus.told[at].tasks > 0 && Some(self.id_of(slot)) != by {
                let code = AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR;
                self.nexuses[slot].told[at].raise(code);
            }
        }
        self.abort(now, |task| task.unit == Some(at));
    }

    fn reset(&mut self, at: usize, now: Nanos) {
        self.abort(now, |task| task.unit == Some(at));
        self.units[at].reset();
        self.raise(AdditionalSense::POWER_ON_OR_RESET_OCCURRED, Some(at), None);
    }
}
