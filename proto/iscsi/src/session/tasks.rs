//! The tasks in flight, one slot for each tag of the caller.
//!
//! An initiator task tag is the slot and a count of the slot's uses, so that a PDU finds its task
//! without a search, and one for a task that has ended is not taken for another's.

use std::fmt;

use crate::wire::Serial;

/// Slots that a caller may have. Those above are the session's own.
pub const DEPTH_MAX: u16 = 0xff00;

/// The name of one task, or of a task management function: its initiator task tag.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskTag(pub u32);

impl TaskTag {
    pub(super) const fn new(slot: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | slot as u32)
    }

    /// The slot.
    #[must_use]
    pub const fn slot(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    pub(super) const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

impl fmt::Debug for TaskTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

/// The data of a command and its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// So many bytes come.
    Read(u32),
    /// So many bytes go.
    Write(u32),
}

/// A task in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) direction: Direction,
    pub(super) lun: u64,
    pub(super) cmd_sn: Serial,
    /// Where in the outgoing stream its command begins.
    pub(super) start: u64,
    /// The next DataSN or R2TSN.
    pub(super) data_sn: u32,
    /// Bytes received of a read; of a write, bytes that are asked for or unsolicited.
    pub(super) next: u32,
    /// Bytes of a write that were put out.
    pub(super) sent: u32,
    /// Requests for data that are not answered whole.
    pub(super) r2ts: u16,
    /// It is being aborted: no more data goes out.
    pub(super) stopped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The count of the next use, or of the one under way.
    generation: u16,
    task: Option<Task>,
}

/// What a tag stands for.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A task in flight.
    Task(&'a mut Task),
    /// One that has ended.
    Ended,
    /// None that ever was, as far as the count of uses can tell.
    Unknown,
}

/// The slots.
#[derive(Debug)]
pub(super) struct Tasks {
    slots: Box<[Slot]>,
    in_flight: u16,
}

impl Tasks {
    pub(super) fn new(depth: u16) -> Self {
        assert!((1..=DEPTH_MAX).contains(&depth), "depth {depth} is outside 1..={DEPTH_MAX}");
        let slots = vec![Slot { generation: 0, task: None }; depth.into()].into_boxed_slice();
        Self { slots, in_flight: 0 }
    }

    pub(super) const fn in_flight(&self) -> u16 {
        self.in_flight
    }

    pub(super) const fn depth(&self) -> u16 {
        self.slots.len() as u16
    }

    /// The tag for the next task in a slot.
    ///
    /// # Panics
    /// If a task is in it.
    #[inline]
    pub(super) fn tag(&self, slot: u16) -> TaskTag {
        let Slot { generation, task } = self.slots[usize::from(slot)];
        assert!(task.is_none(), "slot {slot} has a task in flight");
        TaskTag::new(slot, generation)
    }

    #[inline]
    pub(super) fn begin(&mut self, tag: TaskTag, task: Task) {
        self.in_flight += 1;
        self.slots[usize::from(tag.slot())].task = Some(task);
    }

    #[inline]
    pub(super) fn find(&mut self, itt: u32) -> Found<'_> {
        let tag = TaskTag(itt);
        let Some(slot) = self.slots.get_mut(usize::from(tag.slot())) else { return Found::Unknown };
        // Uses are counted around the wrap.
        match (&mut slot.task, slot.generation.wrapping_sub(tag.generation()).cast_signed()) {
            (Some(task), 0) => Found::Task(task),
            (_, behind) if behind > 0 => Found::Ended,
            _ => Found::Unknown,
        }
    }

    /// The task of a tag that is known to be in flight.
    #[inline]
    pub(super) fn at(&mut self, tag: TaskTag) -> Option<&mut Task> {
        match self.find(tag.0) {
            Found::Task(task) => Some(task),
            Found::Ended | Found::Unknown => None,
        }
    }

    /// Ends a task. Whether it was in flight.
    #[inline]
    pub(super) fn end(&mut self, tag: TaskTag) -> bool {
        let in_flight = self.at(tag).is_some();
        if in_flight {
            let slot = &mut self.slots[usize::from(tag.slot())];
            (slot.task, slot.generation) = (None, slot.generation.wrapping_add(1));
            self.in_flight -= 1;
        }
        in_flight
    }

    /// The task in a slot.
    pub(super) fn in_slot(&self, slot: u16) -> Option<(TaskTag, &Task)> {
        let Slot { generation, task } = &self.slots[usize::from(slot)];
        task.as_ref().map(|task| (TaskTag::new(slot, *generation), task))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (TaskTag, &Task)> {
        (0..self.depth()).filter_map(|slot| self.in_slot(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::{Direction, Found, Task, TaskTag, Tasks};
    use crate::wire::Serial;

    fn task() -> Task {
        Task {
            direction: Direction::None,
            lun: 0,
            cmd_sn: Serial(0),
            start: 0,
            data_sn: 0,
            next: 0,
            sent: 0,
            r2ts: 0,
            stopped: false,
        }
    }

    #[test]
    fn a_tag_of_a_task_that_ended_is_known_as_such_and_one_to_come_is_not() {
        let mut tasks = Tasks::new(2);
        // Around the wrap of the count.
        for _ in 0..0x1_0010 {
            let tag = tasks.tag(1);
            assert!(matches!(tasks.find(tag.0), Found::Unknown));
            tasks.begin(tag, task());
            assert!(matches!(tasks.find(tag.0), Found::Task(_)));
            let next = TaskTag::new(1, tag.generation().wrapping_add(1));
            assert!(matches!(tasks.find(next.0), Found::Unknown));
            assert!(tasks.end(tag) && !tasks.end(tag));
            assert!(matches!(tasks.find(tag.0), Found::Ended));
        }
        assert!(matches!(tasks.find(2), Found::Unknown), "no such slot");
        assert!(matches!(tasks.find(u32::MAX), Found::Unknown));
        assert_eq!(tasks.in_flight(), 0);
    }

    #[test]
    #[should_panic(expected = "slot 1 has a task in flight")]
    fn a_slot_has_one_task_at_a_time() {
        let mut tasks = Tasks::new(2);
        tasks.begin(tasks.tag(1), task());
        tasks.tag(1);
    }
}
