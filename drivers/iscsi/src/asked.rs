//! Task management that waits for its answer.

use weir_bio::Nanos;
use weir_driver_scsi::{Ends, ManagementAnswer};
use weir_proto_iscsi::session::{Answer, TaskTag};

use crate::slots::Slots;

/// What an answer waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// The target's answer; the slot of a command that is to be aborted.
    Target(TaskTag, Option<u16>),
    /// The command in this slot is handed over.
    Slot(u16),
    /// A session, with nothing left of the one before.
    Session,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: u32,
    deadline: Nanos,
    wait: Wait,
}

/// The task management of one port.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    waiting: Vec<Waiting>,
    /// Answers for the next reap.
    answered: Vec<(u32, ManagementAnswer)>,
}

impl Asked {
    pub(crate) fn wait(&mut self, token: u32, deadline: Nanos, wait: Wait) {
        self.waiting.push(Waiting { token, deadline, wait });
    }

    /// Whether there are answers that nothing will announce.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        self.waiting.iter().map(|waiting| waiting.deadline).min()
    }

    /// The target has answered, or is late.
    pub(crate) fn answer(&mut self, tag: TaskTag, answer: ManagementAnswer) {
        let of = |waiting: &Waiting| matches!(waiting.wait, Wait::Target(one, _) if one == tag);
        if let Some(at) = self.waiting.iter().position(of) {
            let Waiting { token, .. } = self.waiting.swap_remove(at);
            self.answered.push((token, answer));
        }
    }

    /// The session is lost: the target answers no more. A command that was to be aborted ends with
    /// it; a reset has failed, because the session's end says nothing of others' commands.
    #[cold]
    pub(crate) fn lose(&mut self) {
        let answered = &mut self.answered;
        self.waiting.retain_mut(|waiting| match waiting.wait {
            Wait::Target(_, Some(slot)) => {
                waiting.wait = Wait::Slot(slot);
                true
            }
            Wait::Target(_, None) => {
                answered.push((waiting.token, ManagementAnswer::Failed));
                false
            }
            Wait::Slot(_) | Wait::Session => true,
        });
    }

    /// Hands over what has been answered. `whole`: there is a session, and nothing in limbo.
    pub(crate) fn tell(&mut self, now: Nanos, whole: bool, slots: &Slots, ends: &mut Ends) {
        if !self.waiting.is_empty() {
            let answered = &mut self.answered;
            self.waiting.retain(|waiting| {
                let answer = match waiting.wait {
                    Wait::Slot(slot) if slots.place_of(slot).is_none() => ManagementAnswer::NoTask,
                    Wait::Session if whole => ManagementAnswer::Complete,
                    _ if waiting.deadline <= now => ManagementAnswer::Late,
                    _ => return true,
                };
                answered.push((waiting.token, answer));
                false
            });
        }
        ends.managements.append(&mut self.answered);
    }
}

/// The target's answer in the mid-layer's words.
pub(crate) fn answer_of(answer: Answer) -> ManagementAnswer {
    match answer {
        Answer::Complete => ManagementAnswer::Complete,
        Answer::NoTask => ManagementAnswer::NoTask,
        Answer::NoLun => ManagementAnswer::NoLun,
        Answer::Unsupported => ManagementAnswer::Unsupported,
        Answer::Rejected | Answer::Other(_) => ManagementAnswer::Failed,
    }
}
