//! Carrying commands out, when they end: first what keeps one from it, in the order of SPC-4, then
//! the command.

mod blocks;
mod mode;
mod pages;
mod reserved;

use weir_bio::Nanos;
use weir_proto_scsi::command::{StartStopUnit, SynchronizeCache, WriteSame};
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::{AdditionalSense, InvalidCdb, ScsiCommand, ScsiStatus, Sense, SenseKey};

use crate::access::{access, needs_medium, refusal, tells_attention};
use crate::fault::{CommandClass, Effect};
use crate::state::Target;
use crate::task::{Fate, Task};
use crate::unit::Readiness;

/// The data a command answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataIn {
    None,
    /// What is in the target's `reply`, so many bytes at most.
    Reply {
        most: u32,
    },
    /// Bytes of a logical unit's image.
    Blocks {
        unit: usize,
        at: u64,
        len: u64,
    },
}

/// Why a command is not GOOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Check(Sense),
    Status(ScsiStatus),
    /// CHECK CONDITION with random bytes for sense.
    Garbled,
    /// CHECK CONDITION without sense.
    Senseless,
}

impl Refusal {
    pub(crate) const fn status(&self) -> ScsiStatus {
        match self {
            Self::Status(status) => *status,
            Self::Check(_) | Self::Garbled | Self::Senseless => ScsiStatus::CHECK_CONDITION,
        }
    }
}

pub(crate) type Outcome = Result<DataIn, Refusal>;

/// A command that is carried out.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub task: &'a Task,
    pub data: &'a [u8],
    /// Index of its nexus.
    pub nexus: usize,
    pub now: Nanos,
}

impl Job<'_> {
    /// INVALID FIELD IN CDB, with a pointer to the byte.
    fn bad_field(&self, at: u16) -> Refusal {
        Refusal::Check(InvalidCdb::Field { opcode: self.task.opcode(), at }.sense())
    }
}

pub(crate) fn check(key: SenseKey, code: AdditionalSense) -> Refusal {
    Refusal::Check(Sense::new(key, code))
}

fn illegal(code: AdditionalSense) -> Refusal {
    check(SenseKey::IllegalRequest, code)
}

const BAD_LIST: AdditionalSense = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
const CUT_LIST: AdditionalSense = AdditionalSense::PARAMETER_LIST_LENGTH_ERROR;

/// First block of a command's range, and how many.
pub(crate) fn range_of(command: &ScsiCommand) -> Option<(u64, u64)> {
    let to_the_end = |lba: u64, blocks: u32| match blocks {
        0 => (lba, u64::MAX - lba),
        blocks => (lba, u64::from(blocks)),
    };
    match *command {
        ScsiCommand::Read(it) | ScsiCommand::Write(it) => Some((it.lba, u64::from(it.blocks))),
        ScsiCommand::CompareAndWrite(it) => Some((it.lba, u64::from(it.blocks))),
        ScsiCommand::SynchronizeCache(SynchronizeCache { lba, blocks, .. })
        | ScsiCommand::WriteSame(WriteSame { lba, blocks, .. }) => Some(to_the_end(lba, blocks)),
        _ => None,
    }
}

/// The same command on the blocks before one.
fn before(command: ScsiCommand, block: u64) -> ScsiCommand {
    let fewer = |lba: u64| u32::try_from(block.saturating_sub(lba)).unwrap_or(u32::MAX);
    match command {
        ScsiCommand::Read(mut it) => {
            it.blocks = fewer(it.lba).min(it.blocks);
            ScsiCommand::Read(it)
        }
        ScsiCommand::Write(mut it) => {
            it.blocks = fewer(it.lba).min(it.blocks);
            ScsiCommand::Write(it)
        }
        // The others are whole or nothing: a test that the medium can be reached stands for them.
        _ => ScsiCommand::TestUnitReady,
    }
}

impl Target {
    /// Carries a command out as its fate is: its data, and why it is not GOOD.
    pub(crate) fn carry_out(
        &mut self,
        task: &Task,
        data: &[u8],
        now: Nanos,
    ) -> (DataIn, Option<Refusal>) {
        let job = Job { task, data, nexus: task.nexus.slot as usize, now };
        let decoded = ScsiCommand::decode(task.cdb());
        let outcome = match task.fate {
            Fate::Refused(status) => Err(Refusal::Status(status)),
            Fate::Normal => self.run(job, decoded),
            Fate::Faulty(effect, block) => match effect {
                Effect::Unanswered { .. } | Effect::Delayed { .. } => self.run(job, decoded),
                Effect::Status(status) => Err(Refusal::Status(ScsiStatus(status))),
                Effect::Garbled => Err(Refusal::Garbled),
                Effect::Senseless => Err(Refusal::Senseless),
                Effect::Sense { key, code, done } => {
                    let refusal = check(SenseKey::from_bits(key), AdditionalSense(code));
                    let outcome = if done { self.run(job, decoded) } else { Err(refusal) };
                    return split(outcome, Some(refusal));
                }
                Effect::Medium => {
                    let flaw = decoded.map(|command| medium_error(&command, block));
                    let outcome = self.run(job, decoded.map(|command| before(command, block)));
                    return split(outcome, flaw.ok());
                }
                Effect::Deferred { key, code } => {
                    let outcome = self.run(job, decoded);
                    if let Some(unit) = task.unit {
                        let code = AdditionalSense(code);
                        let sense = Sense::new(SenseKey::from_bits(key), code);
                        self.nexuses[job.nexus].told[unit].deferred =
                            Some(Sense { deferred: true, ..sense });
                    }
                    outcome
                }
                Effect::Stuck | Effect::Dropped => unreachable!("it is never due"),
            },
        };
        split(outcome, None)
    }

    fn run(&mut self, job: Job<'_>, decoded: Result<ScsiCommand, InvalidCdb>) -> Outcome {
        let Some(unit) = job.task.unit.filter(|&at| self.units[at].present) else {
            return self.without_unit(job, decoded);
        };
        let told = &mut self.nexuses[job.nexus].told[unit];
        if decoded.as_ref().map_or(true, tells_attention) {
            if let Some(sense) = told.deferred.take() {
                return Err(Refusal::Check(sense));
            }
            if let Some(code) = told.next() {
                return Err(check(SenseKey::UnitAttention, code));
            }
        }
        let command = decoded.map_err(|invalid| Refusal::Check(invalid.sense()))?;
        if !self.speaks(job.task.opcode(), unit) {
            return Err(illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE));
        }
        if !self.units[unit].reservations.allows(self.registrant(job.nexus), access(&command)) {
            return Err(Refusal::Status(ScsiStatus::RESERVATION_CONFLICT));
        }
        let port = &self.ports[self.nexuses[job.nexus].port];
        if let Some(code) = refusal(self.groups[port.group].state, &command) {
            return Err(check(SenseKey::NotReady, code));
        }
        let readiness = self.units[unit].readiness;
        if let Some(code) = readiness.refusal().filter(|_| needs_medium(&command)) {
            return Err(check(SenseKey::NotReady, code));
        }
        self.perform(unit, job, command)
    }

    /// Carries out what nothing keeps from it.
    fn perform(&mut self, unit: usize, job: Job<'_>, command: ScsiCommand) -> Outcome {
        match command {
            ScsiCommand::TestUnitReady => Ok(DataIn::None),
            ScsiCommand::RequestSense { descriptors, allocation } => {
                let sense = self.pending_sense(unit, job.nexus);
                Ok(self.put_sense(sense, descriptors, allocation))
            }
            ScsiCommand::Inquiry { page, allocation } => self.inquiry(unit, job, page, allocation),
            ScsiCommand::ModeSense(sense) => self.mode_sense(unit, job, sense),
            ScsiCommand::ModeSelect(select) => self.mode_select(unit, job, select),
            ScsiCommand::StartStopUnit(start) => self.start_stop(unit, job, start),
            ScsiCommand::ReadCapacity10 => {
                self.units[unit].capacity().put_10(&mut self.reply);
                Ok(DataIn::Reply { most: u32::MAX })
            }
            ScsiCommand::ReadCapacity16 { allocation } => {
                self.units[unit].capacity().put_16(&mut self.reply);
                Ok(DataIn::Reply { most: allocation })
            }
            ScsiCommand::Read(transfer) => self.read(unit, job, transfer),
            ScsiCommand::Write(transfer) => self.write(unit, job, transfer),
            ScsiCommand::CompareAndWrite(compare) => self.compare_and_write(unit, job, compare),
            ScsiCommand::SynchronizeCache(cache) => self.synchronize(unit, cache),
            ScsiCommand::WriteSame(same) => self.write_same(unit, job, same),
            ScsiCommand::Unmap { anchor, length } => self.deallocate(unit, job, anchor, length),
            ScsiCommand::ReportLuns { select, allocation } => {
                self.report_luns(job, select, allocation)
            }
            ScsiCommand::ReportTargetPortGroups { extended, allocation } => {
                Ok(self.report_groups(extended, allocation))
            }
            ScsiCommand::SetTargetPortGroups { length } => self.set_groups(job, length),
            ScsiCommand::ReportOpcode(report) => Ok(self.report_opcode(unit, report)),
            ScsiCommand::ReserveIn { action, allocation } => {
                self.reserve_in(unit, job, action, allocation)
            }
            ScsiCommand::ReserveOut(out) => self.reserve_out(unit, job, out),
        }
    }

    /// Three commands are answered where there is no logical unit.
    fn without_unit(&mut self, job: Job<'_>, decoded: Result<ScsiCommand, InvalidCdb>) -> Outcome {
        let absent = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
        match decoded {
            Ok(ScsiCommand::Inquiry { page: None, allocation }) => {
                Ok(self.inquiry_of_none(allocation))
            }
            Ok(ScsiCommand::ReportLuns { select, allocation }) => {
                self.report_luns(job, select, allocation)
            }
            Ok(ScsiCommand::RequestSense { descriptors, allocation }) => {
                let sense = Sense::new(SenseKey::IllegalRequest, absent);
                Ok(self.put_sense(sense, descriptors, allocation))
            }
            _ => Err(illegal(absent)),
        }
    }

    /// What REQUEST SENSE tells; an attention is told once.
    fn pending_sense(&mut self, unit: usize, nexus: usize) -> Sense {
        let told = &mut self.nexuses[nexus].told[unit];
        if let Some(sense) = told.deferred.take() {
            return sense;
        }
        if let Some(code) = told.next() {
            return Sense::new(SenseKey::UnitAttention, code);
        }
        let group = self.ports[self.nexuses[nexus].port].group;
        let state = refusal(self.groups[group].state, &ScsiCommand::TestUnitReady);
        match state.or(self.units[unit].readiness.refusal()) {
            Some(code) => Sense::new(SenseKey::NotReady, code),
            None => Sense::new(SenseKey::NoSense, AdditionalSense::NONE),
        }
    }

    fn put_sense(&mut self, sense: Sense, descriptors: bool, allocation: u8) -> DataIn {
        let format = if descriptors { SenseFormat::Descriptors } else { SenseFormat::Fixed };
        sense.put(format, &mut self.reply);
        DataIn::Reply { most: u32::from(allocation) }
    }

    fn start_stop(&mut self, unit: usize, job: Job<'_>, start: StartStopUnit) -> Outcome {
        if start.power_condition != 0 || start.load_eject {
            return Err(job.bad_field(4));
        }
        let unit = &mut self.units[unit];
        match (start.start, unit.readiness) {
            (true, Readiness::Stopped) => unit.readiness = Readiness::Ready,
            (false, Readiness::Ready) => {
                if !start.no_flush {
                    unit.image.flush_all();
                }
                unit.readiness = Readiness::Stopped;
            }
            _ => {}
        }
        Ok(DataIn::None)
    }
}

fn medium_error(command: &ScsiCommand, block: u64) -> Refusal {
    let code = match CommandClass::of(command) {
        CommandClass::Write => AdditionalSense::WRITE_ERROR,
        _ => AdditionalSense::UNRECOVERED_READ_ERROR,
    };
    let sense = Sense::new(SenseKey::MediumError, code);
    Refusal::Check(Sense { information: Some(block), ..sense })
}

/// Data and refusal of an outcome; one that is well ends with `finally`.
fn split(outcome: Outcome, finally: Option<Refusal>) -> (DataIn, Option<Refusal>) {
    match outcome {
        Ok(data) => (data, finally),
        Err(refusal) => (DataIn::None, Some(refusal)),
    }
}
