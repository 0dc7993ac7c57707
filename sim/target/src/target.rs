//! The target: where commands come in, and ends go out.

mod manage;
mod outside;

use std::fmt;
use std::ops::Deref;

use weir_bio::{Nanos, Prng};
use weir_proto_scsi::alua::StateCause;
use weir_proto_scsi::{Cdb, Lun, ScsiCommand, ScsiStatus};

pub use manage::{Managed, Management};

use crate::execute::{DataIn, Refusal, range_of};
use crate::fault::{Effect, FaultBook, Seen};
use crate::journal::{Deed, Entry, Journal, StaleLanding};
use crate::nexus::{NexusId, PortId};
use crate::script::PortHealth;
use crate::spec::{Spec, SpecError, Speed};
use crate::state::{Group, Port, Target};
use crate::task::{CommandNumber, Fate, Task, TaskTag, Tasks};
use crate::unit::Unit;

/// A command as it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// Its tag; no other command of its nexus has it until its end.
    pub tag: TaskTag,
    /// The logical unit.
    pub lun: Lun,
    /// Its CDB; bytes behind the first 16 are not looked at.
    pub cdb: &'a [u8],
    /// The data that come with it.
    pub data_out: &'a [u8],
    /// Bytes of data that it has room for.
    pub expected_in: u32,
}

/// Sense as bytes, none or more.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseBytes {
    bytes: [u8; SenseBytes::LEN_MAX],
    len: u8,
}

impl SenseBytes {
    /// Bytes of the longest.
    pub const LEN_MAX: usize = 64;
    /// No sense.
    pub const NONE: Self = Self { bytes: [0; Self::LEN_MAX], len: 0 };

    pub(crate) fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().min(Self::LEN_MAX);
        let mut sense = Self { len: len as u8, ..Self::NONE };
        sense.bytes[..len].copy_from_slice(&bytes[..len]);
        sense
    }
}

impl Deref for SenseBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for SenseBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", &**self)
    }
}

/// How far the data that moved are from those that were expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// As many.
    None,
    /// So many bytes fewer.
    Underflow(u32),
    /// So many bytes more would have been there.
    Overflow(u32),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its nexus.
    pub nexus: NexusId,
    /// Its tag, which is free now.
    pub tag: TaskTag,
    /// Its status.
    pub status: ScsiStatus,
    /// Its sense.
    pub sense: SenseBytes,
    /// Bytes that went to the initiator.
    pub moved_in: u32,
    /// Bytes that were taken from the initiator's data.
    pub moved_out: u32,
    /// The rest.
    pub residual: Residual,
}

/// Where a piece of data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPlace {
    /// The nexus of the command.
    pub nexus: NexusId,
    /// The command.
    pub tag: TaskTag,
    /// Bytes from the start of its memory.
    pub offset: u32,
}

/// Takes data on their way to an initiator. The pieces of a command come in order, before its end.
pub trait Sink {
    /// Takes a piece.
    fn put(&mut self, place: DataPlace, bytes: &[u8]);
}

impl<F: FnMut(DataPlace, &[u8])> Sink for F {
    fn put(&mut self, place: DataPlace, bytes: &[u8]) {
        self(place, bytes);
    }
}

/// The nexus has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NexusEnded;

/// Why an initiator cannot connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// There is no such port.
    NoPort,
    /// The port is dead: no answer comes.
    Dead,
}

impl Target {
    /// Builds a target.
    ///
    /// # Errors
    /// What of the spec does not hold.
    pub fn new(spec: Spec) -> Result<Self, SpecError> {
        spec.check()?;
        let group_of = |id| spec.groups.iter().position(|group| group.id == id);
        let ports = spec.ports.iter().map(|port| Port {
            id: PortId(port.id),
            group: group_of(port.group).expect("a group that was checked"),
            speed: port.speed,
            health: PortHealth::Up,
            busy_until: Nanos::ZERO,
        });
        let groups = spec.groups.iter().map(|group| Group {
            id: group.id,
            preferred: group.preferred,
            state: group.state,
            cause: StateCause::NONE,
            change: None,
        });
        let mut units: Vec<_> =
            spec.luns.iter().map(|lun| Unit::new(lun.clone(), spec.seed)).collect();
        units.sort_by_key(|unit| unit.spec.number);
        let mut script = spec.events.clone();
        script.sort_by_key(|event| event.at_ns);
        let mut faults = FaultBook::default();
        spec.faults.iter().for_each(|fault| faults.add(fault.clone()));
        Ok(Self {
            ports: ports.collect(),
            groups: groups.collect(),
            units,
            nexuses: Vec::new(),
            dice: Prng::new(spec.seed),
            journal: Journal::new(spec.journal),
            landed: Vec::new(),
            reply: Vec::new(),
            taken: 0,
            tasks: Tasks::default(),
            queued: 0,
            arrived: 0,
            faults,
            script,
            played: 0,
            sense: Vec::new(),
            spec,
        })
    }

    /// Takes a command in. It ends by [`Target::next_end`], unless its port or a rule loses it.
    ///
    /// # Errors
    /// The nexus has ended; the command does nothing.
    pub fn command(
        &mut self,
        nexus: NexusId,
        command: Command<'_>,
        now: Nanos,
    ) -> Result<CommandNumber, NexusEnded> {
        let slot = self.slot_of(nexus).ok_or(NexusEnded)?;
        self.arrived += 1;
        let number = CommandNumber(self.arrived);
        let len = command.cdb.len().min(Cdb::MAX_LEN);
        let mut cdb = [0; Cdb::MAX_LEN];
        cdb[..len].copy_from_slice(&command.cdb[..len]);
        let mut task = Task {
            number,
            nexus,
            tag: command.tag,
            lun: command.lun,
            unit: self.unit_of(command.lun),
            cdb,
            cdb_len: len as u8,
            expected_in: command.expected_in,
            fate: Fate::Normal,
            counts: false,
            answers: true,
        };
        let port = self.nexuses[slot].port;
        let mut later = 0;
        match self.ports[port].health {
            PortHealth::Up => {}
            PortHealth::Slow { by_ns } => later = by_ns,
            PortHealth::Dead { arrive, after_ns } => {
                if !self.dice.percent(arrive) {
                    self.note(&task, now, Deed::Dropped);
                    return Ok(number);
                }
                (task.answers, later) = (false, after_ns);
            }
        }
        task.fate = self.fate(&task, slot, now);
        match task.fate {
            Fate::Faulty(Effect::Dropped, _) => {
                self.note(&task, now, Deed::Dropped);
                return Ok(number);
            }
            Fate::Faulty(Effect::Unanswered { after_ns }, _) => {
                task.answers = false;
                later = later.saturating_add(after_ns);
            }
            Fate::Faulty(Effect::Delayed { by_ns }, _) => later = later.saturating_add(by_ns),
            Fate::Normal | Fate::Faulty(..) | Fate::Refused(_) => {}
        }
        let due = match task.fate {
            Fate::Faulty(Effect::Stuck, _) => None,
            Fate::Refused(_) => Some(now + self.ports[port].speed.latency_ns + later),
            Fate::Normal | Fate::Faulty(..) => {
                let bytes = command.data_out.len() as u64 + u64::from(command.expected_in);
                Some(self.due(&task, port, bytes, now) + later)
            }
        };
        if !matches!(task.fate, Fate::Refused(_)) {
            self.count(&mut task, slot);
        }
        self.tasks.put(task, command.data_out, due);
        Ok(number)
    }

    /// The next command that has ended by `now`; its data are put into `sink` before. What the
    /// script has for the time until then happens, too.
    pub fn next_end(&mut self, now: Nanos, sink: &mut dyn Sink) -> Option<End> {
        loop {
            let due = self.tasks.next_due().filter(|due| *due <= now);
            if let Some(at) = self.next_event().filter(|at| *at <= due.unwrap_or(now)) {
                self.play(at);
                continue;
            }
            let due = due?;
            let (task, data, place) = self.tasks.take().expect("a command that is due");
            let end = self.end(&task, &data, due, sink);
            self.tasks.recycle(place, data);
            if end.is_some() {
                return end;
            }
        }
    }

    /// When something happens next: an end, or an event of the script.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        [self.tasks.wake_at(), self.next_event()].into_iter().flatten().min()
    }

    /// What was done, the oldest that is kept first; see [`Spec::journal`].
    pub fn journal(&self) -> impl Iterator<Item = &Entry> {
        self.journal.entries.iter()
    }

    /// The writes that landed too late. Needs a journal.
    #[must_use]
    pub fn stale_landings(&self) -> &[StaleLanding] {
        &self.journal.stale
    }

    /// Commands that the target has.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Reads blocks of a logical unit from aside, as they would be read now. What lies outside
    /// reads as zeros; of a logical unit that is none nothing is read.
    pub fn peek(&self, lun: u32, lba: u64, out: &mut [u8]) {
        if let Ok(at) = self.units.binary_search_by_key(&lun, |unit| unit.spec.number) {
            let unit = &self.units[at];
            let mut done = 0;
            unit.image.read(lba * u64::from(unit.spec.block), out.len() as u64, |piece| {
                out[done..][..piece.len()].copy_from_slice(piece);
                done += piece.len();
            });
        }
    }

    fn fate(&mut self, task: &Task, slot: usize, now: Nanos) -> Fate {
        let full = self.queued >= self.spec.queue_depth
            || task.unit.is_some_and(|at| self.units[at].tasks >= self.units[at].spec.queue_depth);
        if full {
            // SAM-5, "TASK SET FULL": for a nexus that has no command there it is BUSY.
            let has = task.unit.is_some_and(|at| self.nexuses[slot].told[at].tasks > 0);
            return Fate::Refused(if has { ScsiStatus::TASK_SET_FULL } else { ScsiStatus::BUSY });
        }
        let decoded = ScsiCommand::decode(task.cdb()).ok();
        let nexus = &self.nexuses[slot];
        let seen = Seen {
            port: self.ports[nexus.port].id,
            initiator: nexus.initiator,
            lun: task.lun.number(),
            opcode: task.opcode(),
            command: decoded.as_ref(),
            range: decoded.as_ref().and_then(range_of),
            now,
        };
        match self.faults.judge(&seen, &mut self.dice) {
            Some((effect, block)) => Fate::Faulty(effect, block),
            None => Fate::Normal,
        }
    }

    /// When a command that arrives now is through.
    fn due(&mut self, task: &Task, port: usize, bytes: u64, now: Nanos) -> Nanos {
        let port = &mut self.ports[port];
        let mut due = pass(&mut port.busy_until, port.speed, bytes, now);
        let mut more = add_latency(port.speed, &mut self.dice);
        if let Some(at) = task.unit {
            let unit = &mut self.units[at];
            due = due.max(pass(&mut unit.busy_until, unit.spec.speed, bytes, now));
            more = more.saturating_add(add_latency(unit.spec.speed, &mut self.dice));
        }
        due + more
    }

    /// Gives a command its place in the task set.
    fn count(&mut self, task: &mut Task, slot: usize) {
        task.counts = true;
        self.queued += 1;
        if let Some(at) = task.unit {
            self.units[at].tasks += 1;
            self.nexuses[slot].told[at].tasks += 1;
        }
    }

    /// Carries a command out and answers it.
    fn end(&mut self, task: &Task, data: &[u8], now: Nanos, sink: &mut dyn Sink) -> Option<End> {
        self.uncount(task);
        self.landed.clear();
        self.reply.clear();
        self.taken = 0;
        let (data_in, refusal) = self.carry_out(task, data, now);
        let landed = std::mem::take(&mut self.landed);
        landed.iter().for_each(|range| self.note(task, now, Deed::Landed(*range)));
        let slot = task.nexus.slot as usize;
        let answers = task.answers && !self.ports[self.nexuses[slot].port].is_dead();
        let status = refusal.as_ref().map_or(ScsiStatus::GOOD, Refusal::status);
        if answers && status == ScsiStatus::GOOD {
            landed.iter().for_each(|range| self.journal.acknowledge(*range, task.number));
        }
        self.landed = landed;
        if !answers {
            self.note(task, now, Deed::Unanswered);
            return None;
        }
        self.note(task, now, Deed::Answered(status));
        let sense = refusal.map_or(SenseBytes::NONE, |why| self.sense_of(&why));
        let (there, moved_in) = self.deliver(task, data_in, sink);
        let taken = self.taken.min(data.len());
        let residual = match (data.len() - taken, there.saturating_sub(u64::from(moved_in))) {
            (left @ 1.., _) => Residual::Underflow(left as u32),
            (0, more @ 1..) => Residual::Overflow(u32::try_from(more).unwrap_or(u32::MAX)),
            (0, 0) if moved_in < task.expected_in => {
                Residual::Underflow(task.expected_in - moved_in)
            }
            (0, 0) => Residual::None,
        };
        let (nexus, tag) = (task.nexus, task.tag);
        Some(End { nexus, tag, status, sense, moved_in, moved_out: taken as u32, residual })
    }

    /// Puts the data of a command into the sink: how many there are, and how many there was room
    /// for.
    fn deliver(&self, task: &Task, data: DataIn, sink: &mut dyn Sink) -> (u64, u32) {
        let mut offset = 0;
        let mut put = |bytes: &[u8]| {
            sink.put(DataPlace { nexus: task.nexus, tag: task.tag, offset }, bytes);
            offset += bytes.len() as u32;
        };
        match data {
            DataIn::None => (0, 0),
            DataIn::Reply { most } => {
                let there = self.reply.len().min(most as usize);
                let room = there.min(task.expected_in as usize);
                if room > 0 {
                    put(&self.reply[..room]);
                }
                (there as u64, room as u32)
            }
            DataIn::Blocks { unit, at, len } => {
                let room = len.min(u64::from(task.expected_in));
                let mut left = room as usize;
                // The image has whole sectors.
                self.units[unit].image.read(at, room.next_multiple_of(512), |piece| {
                    let piece = &piece[..piece.len().min(left)];
                    left -= piece.len();
                    put(piece);
                });
                (len, room as u32)
            }
        }
    }

    fn sense_of(&mut self, refusal: &Refusal) -> SenseBytes {
        match refusal {
            Refusal::Check(sense) => {
                self.sense.clear();
                sense.put(weir_proto_scsi::sense::SenseFormat::Fixed, &mut self.sense);
                if sense.information.is_some_and(|value| u32::try_from(value).is_err()) {
                    self.sense.clear();
                    let format = weir_proto_scsi::sense::SenseFormat::Descriptors;
                    sense.put(format, &mut self.sense);
                }
                SenseBytes::new(&self.sense)
            }
            Refusal::Garbled => {
                let mut bytes = [0; SenseBytes::LEN_MAX];
                self.dice.fill(&mut bytes);
                let len = 1 + self.dice.below(SenseBytes::LEN_MAX as u64) as usize;
                SenseBytes::new(&bytes[..len])
            }
            Refusal::Senseless | Refusal::Status(_) => SenseBytes::NONE,
        }
    }
}

/// Passes bytes through a bandwidth.
fn pass(busy_until: &mut Nanos, speed: Speed, bytes: u64, now: Nanos) -> Nanos {
    let start = now.max(*busy_until);
    if speed.bandwidth == 0 {
        return now;
    }
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(speed.bandwidth);
    *busy_until = start + u64::try_from(ns).unwrap_or(u64::MAX);
    *busy_until
}

fn add_latency(speed: Speed, dice: &mut Prng) -> u64 {
    let spread = if speed.spread_ns == 0 { 0 } else { dice.below(speed.spread_ns + 1) };
    speed.latency_ns.saturating_add(spread)
}
