//! Task management functions that wait for their answers.

use super::tasks::TaskTag;
use crate::wire::{Function, Serial};

/// Functions that may wait at a time.
pub const MANAGEMENTS_MAX: usize = 16;
/// The slots of their tags begin here.
const FIRST_SLOT: u16 = 0xff00;

/// What is asked of a target about its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// To end one task.
    Abort(TaskTag),
    /// To end the tasks of a logical unit and reset it.
    LunReset(u64),
    /// To end all tasks.
    TargetWarmReset,
    /// To end all tasks, and all connections.
    TargetColdReset,
}

impl Ask {
    pub(super) const fn function(self) -> Function {
        match self {
            Self::Abort(_) => Function::AbortTask,
            Self::LunReset(_) => Function::LunReset,
            Self::TargetWarmReset => Function::TargetWarmReset,
            Self::TargetColdReset => Function::TargetColdReset,
        }
    }
}

/// A target's answer to a task management function. RFC 7143, section 11.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The function is complete: none of its tasks does anything any more.
    Complete,
    /// The target has no such task.
    NoTask,
    /// The target has no such logical unit.
    NoLun,
    /// The target does not support the function.
    Unsupported,
    /// The target rejects it.
    Rejected,
    /// Another failure.
    Other(u8),
}

impl Answer {
    pub(super) const fn from_wire(value: u8) -> Self {
        match value {
            0 => Self::Complete,
            1 => Self::NoTask,
            2 => Self::NoLun,
            5 => Self::Unsupported,
            255 => Self::Rejected,
            other => Self::Other(other),
        }
    }
}

/// A function that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Management {
    pub(super) ask: Ask,
    /// CmdSN of the request: it concerns the tasks before it.
    pub(super) cmd_sn: Serial,
    /// When its answer is late; `None` once that has been told.
    pub(super) deadline: Option<u64>,
}

impl Management {
    /// Whether an answer ends this task.
    pub(super) const fn ends(&self, answer: Answer, tag: TaskTag, lun: u64, sn: Serial) -> bool {
        match (self.ask, answer) {
            // A target that does not know it any more will not answer it either.
            (Ask::Abort(aborted), Answer::Complete | Answer::NoTask) => aborted.0 == tag.0,
            (Ask::LunReset(of), Answer::Complete) => of == lun && sn.is_before(self.cmd_sn),
            (Ask::TargetWarmReset | Ask::TargetColdReset, Answer::Complete) => {
                sn.is_before(self.cmd_sn)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    generation: u16,
    waiting: Option<Management>,
}

/// The functions that wait.
#[derive(Debug, Default)]
pub(super) struct Managements {
    places: [Place; MANAGEMENTS_MAX],
}

impl Managements {
    /// The tag for the next one, if there is room.
    pub(super) fn tag(&self) -> Option<TaskTag> {
        let at = self.places.iter().position(|place| place.waiting.is_none())?;
        Some(TaskTag::new(FIRST_SLOT + at as u16, self.places[at].generation))
    }

    pub(super) fn begin(&mut self, tag: TaskTag, management: Management) {
        let at = usize::from(tag.slot() - FIRST_SLOT);
        self.places[at].waiting = Some(management);
    }

    /// Takes the one of this tag.
    pub(super) fn end(&mut self, itt: u32) -> Option<Management> {
        let tag = TaskTag(itt);
        let at = usize::from(tag.slot().checked_sub(FIRST_SLOT)?);
        let place = self.places.get_mut(at).filter(|p| p.generation == tag.generation())?;
        let taken = place.waiting.take()?;
        place.generation = place.generation.wrapping_add(1);
        Some(taken)
    }

    /// One whose answer is late, told once.
    pub(super) fn expire(&mut self, now: u64) -> Option<(TaskTag, Ask)> {
        for (at, place) in self.places.iter_mut().enumerate() {
            if let Some(waiting) = &mut place.waiting
                && waiting.deadline.is_some_and(|deadline| deadline <= now)
            {
                waiting.deadline = None;
                let tag = TaskTag::new(FIRST_SLOT + at as u16, place.generation);
                return Some((tag, waiting.ask));
            }
        }
        None
    }

    /// The next deadline.
    pub(super) fn wake_at(&self) -> Option<u64> {
        self.places.iter().filter_map(|place| place.waiting?.deadline).min()
    }
}
