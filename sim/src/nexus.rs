//! A nexus: one hardware queue of the SCSI mid-layer at one port of the target, and the commands
//! that are under way over it. It is the mid-layer's own transport in virtual time.
//!
//! The mid-layer sends commands here and reaps their ends; the engine takes what was sent to its
//! links and disks and puts down what has come back. What crossed the border in a call is counted:
//! that is what the sections of an adapter's driver are paid for, whatever the mid-layer sent and
//! for whatever reason.
//!
//! An adapter's interrupt names the unit: a lane that is turned reaps the ends of its unit alone,
//! and the lanes of others are turned for theirs. Only I/O comes to a disk; the port answers other
//! commands itself. What the target was asked to end, it ends when its disk has: an abort is
//! answered then.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Data, Nanos, Op};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{ScsiCommand, ScsiStatus, SenseKey};
use weir_sim_disk::Job;

use crate::driver::SharedPort;
use crate::midlayer::{
    Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port, Refusal,
};
use crate::spec::{PortFault, PortFaultKind};

/// The engine and the mid-layer run in one thread: the lock is never waited for.
pub(crate) type SharedNexus = Arc<Mutex<Nexus>>;

pub(crate) fn lock(nexus: &SharedNexus) -> MutexGuard<'_, Nexus> {
    nexus.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Commands and ends that crossed the border between mid-layer and adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) sent: u64,
    pub(crate) ended: u64,
}

/// A command that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its name, and what it asks of the disk.
    pub(crate) job: Job,
    /// Bytes that go with it.
    pub(crate) out: u64,
    /// The port answers it itself.
    pub(crate) is_question: bool,
}

/// What a lane hands its commands to.
pub(crate) enum Outlet {
    /// A disk that its host reaches directly.
    Disk(SharedPort),
    /// A unit over a nexus.
    Nexus(SharedNexus, u32),
    /// The devices below, by their own submitters.
    Legs,
}

/// What becomes of a command that has come to the port of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The disk begins with it.
    Begins,
    /// The port answers it.
    Answered,
    /// It gets no answer.
    Lost,
}

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nowhere: the slot is free.
    Free,
    /// Under way: it will come back.
    Out,
    /// Nowhere: it will not come back by itself.
    Gone,
    /// Back, and not reaped.
    Back,
}

/// A command in its slot.
#[derive(Debug)]
struct Held {
    stage: Stage,
    unit: u32,
    memory: Vec<Data>,
    /// Bytes that it moves, and how many of them back to the host.
    bytes: u32,
    inbound: u32,
    is_question: bool,
    delivery: Delivery,
    status: ScsiStatus,
}

/// A logical unit at a port of the target. All hard queues to that port are one nexus to the
/// target, so it has one task set and one unit attention for them.
#[derive(Debug, Default)]
pub(crate) struct TargetUnit {
    /// Commands that the target has.
    commands: AtomicU32,
    /// It has said that it was reset.
    attended: AtomicBool,
}

/// A logical unit as it is reached over the nexus.
#[derive(Debug)]
struct UnitSide {
    lane: usize,
    at_target: Arc<TargetUnit>,
    /// What its lane's processor has sent and the adapter has not: it may be for another unit.
    sent: Vec<Sent>,
    ended: Vec<u16>,
    answers: Vec<(u32, ManagementAnswer)>,
}

/// What the target was asked to end.
#[derive(Debug)]
struct Ending {
    token: u32,
    deadline: Nanos,
    /// The unit whose lane asked.
    by: u32,
    /// The slots whose ends it waits for; `None`: it was not heard.
    waits: Option<Vec<u16>>,
}

/// One hardware queue at one port of the target.
#[derive(Debug)]
pub(crate) struct Nexus {
    fault: Option<PortFault>,
    /// Commands of a unit that the target takes at its port; 0: no bound.
    task_set: u32,
    units: Vec<UnitSide>,
    held: Vec<Held>,
    /// The unit whose lane is being turned.
    turned: u32,
    moved: Moved,
    endings: Vec<Ending>,
    /// Lanes that have something to reap, and were not told.
    rung: Vec<usize>,
}

impl Nexus {
    pub(crate) fn new(task_set: u32, fault: Option<PortFault>) -> Nexus {
        Nexus {
            fault,
            task_set,
            units: Vec::new(),
            held: Vec::new(),
            turned: 0,
            moved: Moved::default(),
            endings: Vec::new(),
            rung: Vec::new(),
        }
    }

    /// One more unit, which this lane reaches; its number.
    pub(crate) fn add_unit(&mut self, lane: usize, at_target: &Arc<TargetUnit>) -> u32 {
        self.units.push(UnitSide {
            lane,
            at_target: Arc::clone(at_target),
            sent: Vec::new(),
            ended: Vec::new(),
            answers: Vec::new(),
        });
        (self.units.len() - 1) as u32
    }

    /// The lane of this unit is about to be turned.
    pub(crate) fn turn(&mut self, unit: u32) {
        self.turned = unit;
    }

    /// What crossed the border since last asked.
    pub(crate) fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// A lane that has something to reap, and was not told of it.
    pub(crate) fn take_rung(&mut self) -> Option<usize> {
        self.rung.pop()
    }

    /// What the processor of a unit's lane has sent, for `kept` memory.
    pub(crate) fn take_sent(&mut self, unit: u32, kept: Vec<Sent>) -> Vec<Sent> {
        std::mem::replace(&mut self.units[unit as usize].sent, kept)
    }

    fn has(&self, kind: PortFaultKind, now: Nanos) -> bool {
        self.fault.is_some_and(|fault| fault.kind == kind && fault.covers(now))
    }

    /// A command has come to the port of the target.
    pub(crate) fn arrives(&mut self, slot: u16, now: Nanos) -> Arrival {
        if self.has(PortFaultKind::Silent, now) {
            let held = &mut self.held[usize::from(slot)];
            if held.delivery == Delivery::Delivered {
                held.stage = Stage::Gone;
                return Arrival::Lost;
            }
            // The adapter ends it in any case.
            return Arrival::Answered;
        }
        let is_busy = self.has(PortFaultKind::Busy, now);
        let was_reset = self.has(PortFaultKind::Attention, now);
        let held = &mut self.held[usize::from(slot)];
        let TargetUnit { commands, attended } = &*self.units[held.unit as usize].at_target;
        held.status = if was_reset && !attended.swap(true, Ordering::Relaxed) {
            ScsiStatus::CHECK_CONDITION
        } else if held.is_question {
            ScsiStatus::GOOD
        } else if is_busy {
            ScsiStatus::BUSY
        } else if self.task_set > 0 && commands.load(Ordering::Relaxed) >= self.task_set {
            ScsiStatus::TASK_SET_FULL
        } else {
            commands.fetch_add(1, Ordering::Relaxed);
            return Arrival::Begins;
        };
        Arrival::Answered
    }

    /// The target answers a command; bytes that go back with that.
    pub(crate) fn leaves(&mut self, slot: u16) -> u64 {
        let held = &self.held[usize::from(slot)];
        let unit = &self.units[held.unit as usize].at_target;
        let before = unit.commands.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a command leaves the target once");
        u64::from(held.inbound)
    }

    /// An end has come to the adapter; whether its lane has something to reap.
    pub(crate) fn comes_back(&mut self, slot: u16, now: Nanos) -> bool {
        let (silent, lost) =
            (self.has(PortFaultKind::Silent, now), self.has(PortFaultKind::Lost, now));
        let held = &mut self.held[usize::from(slot)];
        assert_eq!(held.stage, Stage::Out, "a command comes back once");
        if held.delivery == Delivery::Delivered {
            if silent {
                held.stage = Stage::Gone;
                return false;
            }
            if lost {
                held.delivery = Delivery::FailFast;
            }
        }
        self.put_back(slot);
        for at in (0..self.endings.len()).rev() {
            let Some(waits) = &mut self.endings[at].waits else { continue };
            waits.retain(|waited| *waited != slot);
            if waits.is_empty() {
                let Ending { token, by, .. } = self.endings.swap_remove(at);
                self.answer(by, token, ManagementAnswer::Complete);
            }
        }
        true
    }

    /// A command can be reaped; the lane whose unit it is of.
    fn put_back(&mut self, slot: u16) -> usize {
        let held = &mut self.held[usize::from(slot)];
        held.stage = Stage::Back;
        let unit = &mut self.units[held.unit as usize];
        unit.ended.push(slot);
        unit.lane
    }

    fn answer(&mut self, unit: u32, token: u32, answer: ManagementAnswer) {
        let unit = &mut self.units[unit as usize];
        unit.answers.push((token, answer));
        self.rung.push(unit.lane);
    }

    fn take(&mut self, command: &Command<'_>, memory: &mut Vec<Data>) {
        let unit = command.lun.number().expect("units have numbers");
        let lane = self.units[unit as usize].lane;
        let (bytes, inbound, out) = match command.direction {
            Direction::None => (0, 0, 0),
            Direction::In(bytes) => (bytes, bytes, 0),
            Direction::Out(bytes) => (bytes, 0, u64::from(bytes)),
        };
        let io = io_of(command.cdb);
        let at = usize::from(command.slot);
        while self.held.len() <= at {
            self.held.push(Held::FREE);
        }
        let held = &mut self.held[at];
        assert_eq!(held.stage, Stage::Free, "slot {at} is in use");
        held.memory.append(memory);
        (held.stage, held.unit, held.is_question) = (Stage::Out, unit, io.is_none());
        (held.bytes, held.inbound) = (bytes, inbound);
        (held.delivery, held.status) = (Delivery::Delivered, ScsiStatus::GOOD);
        let none = Io { op: Op::Read, sector: 0, sectors: 0, fua: false };
        let Io { op, sector, sectors, fua } = io.unwrap_or(none);
        let id = (lane as u32) << 16 | u32::from(command.slot);
        let job = Job { id, op, sector, sectors, fua };
        let by = &mut self.units[self.turned as usize];
        by.sent.push(Sent { job, out, is_question: io.is_none() });
        self.moved.sent += 1;
    }

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        let unit = &mut self.units[self.turned as usize];
        for slot in unit.ended.drain(..) {
            let held = &mut self.held[usize::from(slot)];
            let good = held.delivery == Delivery::Delivered && held.status == ScsiStatus::GOOD;
            let sense =
                if held.status == ScsiStatus::CHECK_CONDITION { &WAS_RESET[..] } else { &[] };
            ends.commands.push(Delivered {
                slot,
                delivery: held.delivery,
                status: held.status,
                moved: if good { held.bytes } else { 0 },
                sense: sense.len() as u8,
                memory: held.memory.len() as u16,
            });
            ends.sense.extend_from_slice(sense);
            ends.memory.append(&mut held.memory);
            held.stage = Stage::Free;
            self.moved.ended += 1;
        }
        ends.managements.append(&mut unit.answers);
        if !self.endings.is_empty() {
            let late = self.endings.extract_if(.., |ending| ending.deadline <= now);
            ends.managements.extend(late.map(|ending| (ending.token, ManagementAnswer::Late)));
        }
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let by = self.turned;
        if what != Management::SessionReset {
            if self.has(PortFaultKind::Lost, now) {
                return Err(Refusal::Lost);
            }
            if self.has(PortFaultKind::Silent, now) {
                self.endings.push(Ending { token, deadline, by, waits: None });
                return Ok(());
            }
        }
        let delivery = match what {
            Management::Abort { .. } => Delivery::Aborted,
            _ => Delivery::Reset,
        };
        let mut waits = Vec::new();
        for slot in 0..self.held.len() {
            let held = &mut self.held[slot];
            let is_meant = match what {
                Management::Abort { slot: meant } => usize::from(meant) == slot,
                Management::LunReset(lun) => lun.number() == Some(held.unit),
                Management::TargetReset | Management::SessionReset => true,
            };
            match held.stage {
                Stage::Out if is_meant => {
                    held.delivery = delivery;
                    waits.push(slot as u16);
                }
                Stage::Gone if is_meant => {
                    held.delivery = delivery;
                    let lane = self.put_back(slot as u16);
                    self.rung.push(lane);
                }
                _ => {}
            }
        }
        if waits.is_empty() {
            self.answer(by, token, ManagementAnswer::Complete);
        } else {
            self.endings.push(Ending { token, deadline, by, waits: Some(waits) });
        }
        Ok(())
    }
}

impl Held {
    const FREE: Held = Held {
        stage: Stage::Free,
        unit: 0,
        memory: Vec::new(),
        bytes: 0,
        inbound: 0,
        is_question: false,
        delivery: Delivery::Delivered,
        status: ScsiStatus::GOOD,
    };
}

/// What a command asks of the disk.
#[derive(Clone, Copy)]
struct Io {
    op: Op,
    sector: u64,
    sectors: u32,
    fua: bool,
}

/// Blocks are sectors. `None`: it asks nothing of the disk.
fn io_of(cdb: &[u8]) -> Option<Io> {
    match ScsiCommand::decode(cdb).ok()? {
        ScsiCommand::Read(of) => {
            Some(Io { op: Op::Read, sector: of.lba, sectors: of.blocks, fua: of.fua })
        }
        ScsiCommand::Write(of) => {
            Some(Io { op: Op::Write, sector: of.lba, sectors: of.blocks, fua: of.fua })
        }
        ScsiCommand::SynchronizeCache(_) => {
            Some(Io { op: Op::Flush, sector: 0, sectors: 0, fua: false })
        }
        _ => None,
    }
}

/// Fixed format sense data: UNIT ATTENTION, POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
const WAS_RESET: [u8; 18] = {
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7]) = (0x70, SenseKey::UnitAttention as u8, 10);
    sense[12] = 0x29;
    sense
};

/// The mid-layer's side of a nexus.
pub(crate) struct NexusPort(pub(crate) SharedNexus);

impl Port for NexusPort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let mut nexus = lock(&self.0);
        if nexus.has(PortFaultKind::Lost, now) {
            return Err(Refusal::Lost);
        }
        nexus.take(command, memory);
        Ok(())
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        lock(&self.0).reap(now, ends);
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        lock(&self.0).manage(what, token, deadline, now)
    }

    fn wake_at(&self) -> Option<Nanos> {
        lock(&self.0).endings.iter().map(|ending| ending.deadline).min()
    }

    fn announces(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use weir_proto_scsi::Lun;

    use super::*;

    const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];

    /// A nexus to two units, each with a command at its disk: slots 0 and 1.
    fn at_disks(kind: PortFaultKind) -> Nexus {
        let fault = PortFault { kind, paths: 1, from: 100, lasts: 100 };
        let mut nexus = Nexus::new(0, Some(fault));
        for slot in 0..2_u16 {
            let unit = nexus.add_unit(slot.into(), &Arc::default());
            nexus.turn(unit);
            let lun = Lun::new(unit).expect("a number");
            let direction = Direction::In(4096);
            nexus.take(&Command { slot, lun, cdb: &READ_10, direction }, &mut Vec::new());
            assert_eq!(nexus.arrives(slot, Nanos(1)), Arrival::Begins);
        }
        nexus
    }

    /// The disk of this slot is through with its command, and the end comes to the adapter.
    fn ends(nexus: &mut Nexus, slot: u16, now: u64) -> bool {
        nexus.leaves(slot);
        nexus.comes_back(slot, Nanos(now))
    }

    /// How commands fared, by slot, and the answers of managements.
    type Reaped = (Vec<(u16, Delivery)>, Vec<(u32, ManagementAnswer)>);

    /// What the lane of a unit reaps.
    fn reaped(nexus: &mut Nexus, unit: u32, now: u64) -> Reaped {
        let mut ends = Ends::default();
        nexus.turn(unit);
        nexus.reap(Nanos(now), &mut ends);
        let commands = ends.commands.iter().map(|one| (one.slot, one.delivery)).collect();
        (commands, ends.managements)
    }

    fn ask(nexus: &mut Nexus, what: Management, now: u64) {
        nexus.turn(0);
        nexus.manage(what, 7, Nanos(now + 50), Nanos(now)).expect("it is heard");
    }

    #[test]
    fn what_comes_back_over_a_connection_that_was_lost_meanwhile_has_failed() {
        let mut nexus = at_disks(PortFaultKind::Lost);
        assert!(ends(&mut nexus, 0, 99) && ends(&mut nexus, 1, 100));
        assert_eq!(reaped(&mut nexus, 0, 150).0, [(0, Delivery::Delivered)]);
        assert_eq!(reaped(&mut nexus, 1, 150).0, [(1, Delivery::FailFast)]);
    }

    #[test]
    fn what_would_come_back_in_silence_does_not_until_it_is_aborted() {
        let mut nexus = at_disks(PortFaultKind::Silent);
        assert!(!ends(&mut nexus, 0, 150));
        assert_eq!(reaped(&mut nexus, 0, 250), (vec![], vec![]));
        ask(&mut nexus, Management::Abort { slot: 0 }, 250);
        let complete = vec![(7, ManagementAnswer::Complete)];
        assert_eq!(reaped(&mut nexus, 0, 250), (vec![(0, Delivery::Aborted)], complete));
    }

    #[test]
    fn an_abort_is_answered_when_the_disk_is_through_with_the_command() {
        let mut nexus = at_disks(PortFaultKind::Busy);
        ask(&mut nexus, Management::Abort { slot: 0 }, 10);
        assert_eq!(reaped(&mut nexus, 0, 20), (vec![], vec![]), "the disk has it");
        ends(&mut nexus, 0, 30);
        let complete = vec![(7, ManagementAnswer::Complete)];
        assert_eq!(reaped(&mut nexus, 0, 30), (vec![(0, Delivery::Aborted)], complete));
        ends(&mut nexus, 1, 40);
        assert_eq!(reaped(&mut nexus, 1, 40).0, [(1, Delivery::Delivered)], "not meant");
    }

    #[test]
    fn a_reset_of_a_unit_ends_its_commands_and_no_others() {
        let mut nexus = at_disks(PortFaultKind::Busy);
        ask(&mut nexus, Management::LunReset(Lun::new(0).expect("a number")), 10);
        ends(&mut nexus, 0, 20);
        ends(&mut nexus, 1, 20);
        assert_eq!(reaped(&mut nexus, 0, 20).0, [(0, Delivery::Reset)]);
        assert_eq!(reaped(&mut nexus, 1, 20).0, [(1, Delivery::Delivered)]);
        let mut nexus = at_disks(PortFaultKind::Busy);
        ask(&mut nexus, Management::TargetReset, 10);
        ends(&mut nexus, 1, 20);
        assert_eq!(reaped(&mut nexus, 0, 20), (vec![], vec![]), "one of two is at its disk");
        assert_eq!(reaped(&mut nexus, 1, 20).0, [(1, Delivery::Reset)]);
    }

    #[test]
    fn what_has_no_answer_by_its_deadline_is_answered_late_at_that_time() {
        let mut nexus = at_disks(PortFaultKind::Busy);
        ask(&mut nexus, Management::Abort { slot: 0 }, 10);
        assert_eq!(reaped(&mut nexus, 0, 59).1, []);
        assert_eq!(reaped(&mut nexus, 0, 60).1, [(7, ManagementAnswer::Late)]);
        assert_eq!(reaped(&mut nexus, 0, 61).1, [], "once");
    }
}
