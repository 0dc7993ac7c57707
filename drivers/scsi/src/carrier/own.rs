//! Commands of the mid-layer's own: a test by the error handler, the sense of a command that came
//! without, a start, and the states of target port groups. Each has a slot that no request has, and
//! a time. One that gives no answer in time is abandoned: no lane waits for it any more, and the
//! target is asked to abort it, again and again until the port hands it over and its slot is free.

use weir_bio::{Buf, Data, Nanos, Status};
use weir_proto_scsi::command::StartStopUnit;
use weir_proto_scsi::decide::{Delivery, ScsiEnd};
use weir_proto_scsi::sense::SENSE_LEN_MAX;
use weir_proto_scsi::{ScsiCommand, ScsiStatus, Sense, SenseKey};

use super::keep::Kept;
use super::{Carrier, Wakes};
use crate::slot::{Slot, Stage, Tries};
use crate::translate::of_command;
use crate::transport::{Command, Delivered, Direction};

/// The seat of a command of the mid-layer's own.
pub(super) const NOBODY: u16 = u16::MAX;

/// The seat of a command whose lane is gone.
pub(super) const ORPHAN: u16 = u16::MAX - 1;

/// How long a start may take.
const START_NS: u64 = 60_000_000_000;

/// The deadline of a command whose abort is awaited.
const NEVER: Nanos = Nanos(u64::MAX);

/// A command of the mid-layer's own.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) slot: u16,
    pub(super) seat: u16,
    pub(super) deadline: Nanos,
    pub(super) what: What,
}

/// Its purpose.
#[derive(Debug)]
pub(super) enum What {
    /// TEST UNIT READY of the error handler.
    Test,
    /// REQUEST SENSE for this command, which ended so.
    Sense(Kept, ScsiEnd),
    /// START STOP UNIT for this command.
    Start(Kept),
    /// A step of the conversation about the unit's port group.
    Talk(Step),
    /// Its time was up, or its lane has gone; no answer is waited for. At its deadline the target
    /// is asked to abort it.
    Abandoned,
}

/// A step of a conversation about a port group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// REPORT TARGET PORT GROUPS.
    State,
    /// SET TARGET PORT GROUPS.
    Set,
    /// READ CAPACITY of a unit whose port takes I/O now.
    Size,
}

/// The memory of a command.
pub(super) enum Carried {
    Nothing,
    /// So many bytes that are to come.
    In(u32),
    /// What goes.
    Out(Buf),
}

impl Carrier {
    /// Whether a slot is one of the mid-layer's own commands.
    pub(super) fn is_own(&self, slot: u16) -> bool {
        self.slots[usize::from(slot)].seat == NOBODY
    }

    /// Sends a command for the unit of a seat; false if it cannot be sent now. `what` is given back
    /// then.
    pub(super) fn send_own(
        &mut self,
        seat: u16,
        command: &ScsiCommand,
        carried: Carried,
        time_ns: u64,
        what: What,
    ) -> Result<(), What> {
        match self.host.take_own_slot() {
            Some(number) => self.send_own_in(number, seat, command, carried, (time_ns, what)),
            None => Err(what),
        }
    }

    /// The same in a slot that was taken.
    pub(super) fn send_own_in(
        &mut self,
        number: u16,
        seat: u16,
        command: &ScsiCommand,
        carried: Carried,
        (time_ns, what): (u64, What),
    ) -> Result<(), What> {
        let lun = self.seat_mut(seat).unit.lun;
        let (direction, memory) = match carried {
            Carried::Nothing => (Direction::None, None),
            Carried::In(bytes) => (Direction::In(bytes), Some(Buf::zeroed(bytes as usize))),
            Carried::Out(buf) => (Direction::Out(buf.len() as u32), Some(buf)),
        };
        let prepared = of_command(command, direction);
        let mut memory: Vec<Data> = memory.map(Data::One).into_iter().collect();
        let sent = Command { slot: number, lun, cdb: prepared.cdb(), direction };
        if self.port.send(&sent, &mut memory, self.now).is_err() {
            self.host.give_own_slot(number);
            return Err(what);
        }
        self.uncommitted = true;
        self.slots[usize::from(number)] = Slot {
            stage: Stage::Sent,
            tries: Tries::first(self.now),
            seat: NOBODY,
            sent_at: self.now,
            prepared,
            ..Slot::FREE
        };
        self.jobs.push(Job { slot: number, seat, deadline: self.now + time_ns, what });
        Ok(())
    }

    /// One of them has ended.
    #[cold]
    pub(super) fn own_ended(
        &mut self,
        end: &Delivered,
        sense: &[u8],
        memory: &[Data],
        wakes: &mut Wakes,
    ) {
        self.slots[usize::from(end.slot)].stage = Stage::Free;
        self.host.give_own_slot(end.slot);
        let Some(at) = self.jobs.iter().position(|job| job.slot == end.slot) else { return };
        let Job { seat, what, .. } = self.jobs.swap_remove(at);
        let good = end.delivery == Delivery::Delivered && end.status == ScsiStatus::GOOD;
        if !matches!(what, What::Abandoned) {
            self.heed_own(seat, end, sense, wakes);
        }
        match what {
            What::Abandoned => {}
            What::Test => self.tested(seat, is_ready(end), wakes),
            What::Sense(kept, ended) => {
                let data = if good { bytes_of(memory, end.moved) } else { Vec::new() };
                self.sense_fetched(kept, ended, &data, wakes);
            }
            What::Start(kept) => self.started(kept, good, wakes),
            What::Talk(step) => {
                let data = bytes_of(memory, end.moved);
                let ended = if good { Ok(&data[..]) } else { Err(Sense::decode(sense).ok()) };
                self.step_ended(seat, step, ended, wakes);
            }
        }
        self.feed_talk(wakes);
    }

    /// Those whose time is up are abandoned, and aborted.
    #[cold]
    pub(super) fn look_at_deadlines(&mut self, wakes: &mut Wakes) {
        let now = self.now;
        for at in 0..self.jobs.len() {
            let job = &mut self.jobs[at];
            if job.deadline > now {
                continue;
            }
            let (slot, seat) = (job.slot, job.seat);
            let what = std::mem::replace(&mut job.what, What::Abandoned);
            self.jobs[at].deadline = self.abort_own(slot);
            match what {
                What::Test => self.tested(seat, false, wakes),
                What::Sense(kept, ended) => self.sense_fetched(kept, ended, &[], wakes),
                What::Start(kept) => self.started(kept, false, wakes),
                What::Talk(step) => self.talk_failed(seat, step, wakes),
                What::Abandoned => {}
            }
        }
    }

    /// Asks the target to abort an abandoned command; when to ask again.
    fn abort_own(&mut self, slot: u16) -> Nanos {
        let ask_again = self.now + self.host.options.eh_timeout_ns;
        if self.port.outage_until().is_some_and(|until| self.now < until) {
            // The transport hands it over with the others, and there is no target to be asked.
            return ask_again;
        }
        if self.ask_to_abort_own(slot) { NEVER } else { ask_again }
    }

    /// The answer to an abort of an own command, which the port has handed over if it helped.
    pub(super) fn own_abort_answered(&mut self, slot: u16) {
        let deadline = self.now + self.host.options.eh_timeout_ns;
        let abandoned = |job: &&mut Job| job.slot == slot && matches!(job.what, What::Abandoned);
        if let Some(job) = self.jobs.iter_mut().find(abandoned) {
            job.deadline = deadline;
        }
    }

    /// The lane is gone.
    pub(super) fn abandon_jobs(&mut self, seat: u16) {
        for job in self.jobs.iter_mut().filter(|job| job.seat == seat) {
            if !matches!(job.what, What::Abandoned) {
                (job.what, job.deadline) = (What::Abandoned, self.now);
            }
        }
    }

    /// A command failed and did not say why.
    #[cold]
    pub(super) fn fetch_sense(
        &mut self,
        slot: u16,
        end: ScsiEnd,
        memory: Vec<Data>,
        wakes: &mut Wakes,
    ) {
        let command =
            ScsiCommand::RequestSense { descriptors: false, allocation: SENSE_LEN_MAX as u8 };
        let seat = self.slots[usize::from(slot)].seat;
        self.slots[usize::from(slot)].stage = Stage::Kept;
        let what = What::Sense(Kept { slot, memory }, end);
        let (time, carried) =
            (self.seat_mut(seat).unit.eh_timeout_ns(), Carried::In(SENSE_LEN_MAX as u32));
        if let Err(What::Sense(kept, end)) = self.send_own(seat, &command, carried, time, what) {
            self.sense_fetched(kept, end, &[], wakes);
        }
    }

    fn sense_fetched(&mut self, kept: Kept, end: ScsiEnd, sense: &[u8], wakes: &mut Wakes) {
        let Kept { slot, memory } = kept;
        match Sense::decode(sense).ok() {
            // It is asked for once: a second time it would say nothing either.
            None => self.finish(slot, Status::IoErr, memory, wakes),
            // The target has forgotten why. The command has failed all the same.
            Some(Sense { key: SenseKey::NoSense | SenseKey::RecoveredError, .. }) => {
                self.retry_or_fail(slot, memory, wakes);
            }
            Some(sense) => {
                let seat = self.slots[usize::from(slot)].seat;
                self.seat_mut(seat).counters.sense(sense.key);
                let end = ScsiEnd { sense: Some(sense), ..end };
                self.carry_out(slot, &end, memory, wakes);
            }
        }
    }

    /// The unit is stopped, and may be started.
    #[cold]
    pub(super) fn start_unit(&mut self, slot: u16, memory: Vec<Data>, wakes: &mut Wakes) {
        let start = StartStopUnit { start: true, ..StartStopUnit::default() };
        let seat = self.slots[usize::from(slot)].seat;
        self.slots[usize::from(slot)].stage = Stage::Kept;
        let what = What::Start(Kept { slot, memory });
        let command = ScsiCommand::StartStopUnit(start);
        if let Err(What::Start(kept)) =
            self.send_own(seat, &command, Carried::Nothing, START_NS, what)
        {
            self.started(kept, false, wakes);
        }
    }

    /// A start is one retry of the command, whether it helped or not.
    fn started(&mut self, kept: Kept, started: bool, wakes: &mut Wakes) {
        let Kept { slot, memory } = kept;
        let tries = &mut self.slots[usize::from(slot)].tries;
        tries.retries += 1;
        let spent = tries.retries > weir_proto_scsi::decide::RETRIES_ALLOWED;
        if spent || !started {
            return self.finish(slot, Status::IoErr, memory, wakes);
        }
        self.keep(slot, memory);
    }
}

/// Whether the target answers for the unit, whatever it says but that it is busy.
fn is_ready(end: &Delivered) -> bool {
    end.delivery == Delivery::Delivered
        && !matches!(end.status, ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL)
}

/// The bytes that came.
fn bytes_of(memory: &[Data], moved: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for data in memory {
        let at = bytes.len();
        bytes.resize(at + data.len(), 0);
        data.copy_to(&mut bytes[at..]);
    }
    bytes.truncate(moved as usize);
    bytes
}
