//! The commands a target has, and when each is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_bio::Nanos;
use weir_proto_scsi::{Cdb, Lun, Opcode};

use crate::fault::Effect;
use crate::nexus::NexusId;

/// The name of a command on its nexus. The initiator keeps the names of its commands apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskTag(pub u32);

/// The number of a command, by the order of arrival, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandNumber(pub u64);

/// What becomes of a command, decided as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is carried out.
    Normal,
    /// A rule has its way; with the first block that the rule names.
    Faulty(Effect, u64),
    /// The task set had no room.
    Refused(weir_proto_scsi::ScsiStatus),
}

/// A command without its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub number: CommandNumber,
    pub nexus: NexusId,
    pub tag: TaskTag,
    pub lun: Lun,
    /// Index of the logical unit, if there was one.
    pub unit: Option<usize>,
    pub cdb: [u8; Cdb::MAX_LEN],
    pub cdb_len: u8,
    pub expected_in: u32,
    pub fate: Fate,
    /// It has a place in the task set.
    pub counts: bool,
    /// The answer gets through.
    pub answers: bool,
}

impl Task {
    pub(crate) fn cdb(&self) -> &[u8] {
        &self.cdb[..usize::from(self.cdb_len)]
    }

    pub(crate) const fn opcode(&self) -> Opcode {
        Opcode(self.cdb[0])
    }
}

/// A place in memory for a command.
#[derive(Debug, Default)]
struct Place {
    task: Option<Task>,
    data: Vec<u8>,
}

/// All commands. Memory that was used before is used again.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    places: Vec<Place>,
    free: Vec<usize>,
    /// Times with the command's number and place. What was taken out before stays until its time.
    due: BinaryHeap<Reverse<(Nanos, CommandNumber, usize)>>,
}

impl Tasks {
    /// Takes a command in; without a time it is never due.
    pub(crate) fn put(&mut self, task: Task, data: &[u8], due: Option<Nanos>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        let number = task.number;
        self.places[place].task = Some(task);
        self.places[place].data.clear();
        self.places[place].data.extend_from_slice(data);
        if let Some(due) = due {
            self.due.push(Reverse((due, number, place)));
        }
    }

    /// When the next is due. Times of commands that are no more are forgotten on the way.
    pub(crate) fn next_due(&mut self) -> Option<Nanos> {
        while let Some(&Reverse((due, number, place))) = self.due.peek() {
            if self.is_there(number, place) {
                return Some(due);
            }
            self.due.pop();
        }
        None
    }

    /// The time of [`Tasks::next_due`] for a caller who may change nothing.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let there = self.due.iter().filter(|Reverse((_, number, at))| self.is_there(*number, *at));
        match self.due.peek() {
            Some(Reverse((due, number, place))) if self.is_there(*number, *place) => Some(*due),
            _ => there.map(|Reverse((due, ..))| *due).min(),
        }
    }

    fn is_there(&self, number: CommandNumber, place: usize) -> bool {
        self.places[place].task.is_some_and(|task| task.number == number)
    }

    /// Takes out the command that is due next, which [`Tasks::next_due`] has found. Its data are
    /// given back with [`Tasks::recycle`].
    pub(crate) fn take(&mut self) -> Option<(Task, Vec<u8>, usize)> {
        let Reverse((_, _, place)) = self.due.pop()?;
        let task = self.places[place].task.take()?;
        Some((task, std::mem::take(&mut self.places[place].data), place))
    }

    pub(crate) fn recycle(&mut self, place: usize, data: Vec<u8>) {
        self.places[place].data = data;
        self.free.push(place);
    }

    /// Takes out the commands that fit, and tells of each.
    pub(crate) fn remove(&mut self, fits: impl Fn(&Task) -> bool, mut tell: impl FnMut(Task)) {
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Some(task) = place.task.take_if(|task| fits(task)) {
                self.free.push(at);
                tell(task);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
