//! What a session makes of the PDUs that it receives.

use super::manage::Answer;
use super::over::{Over, Violation};
use super::tasks::{Direction, Found, TaskTag};
use super::{
    Completion, Event, LOGOUT_TAG, Notice, Outcome, PINGS_OWED_MAX, Phase, Session, Sweep, Under,
};
use crate::session::output::Due;
use crate::wire::{
    AsyncMessage, Bhs, DataIn, LogoutResponse, NO_TAG, NopIn, Numbers, Opcode, R2t, Reject,
    Residual, ScsiResponse, TaskResponse,
};

/// The status of a command that is a success.
const GOOD: u8 = 0;

/// Whether StatSN counts a PDU: all that answer something, and what a target says unasked.
fn is_counted(bhs: &Bhs) -> bool {
    match bhs.opcode() {
        Opcode::DATA_IN => bhs.byte(1) & 0x01 != 0,
        Opcode::NOP_IN => bhs.itt() != NO_TAG,
        Opcode::R2T => false,
        _ => true,
    }
}

impl Session {
    /// Judges a header, before its data: where the data goes.
    #[inline]
    pub(super) fn header(&mut self) -> Result<Under, Over> {
        let bhs = *self.decoder.header();
        if is_counted(&bhs) {
            let (found, expected) = (Numbers::decode(&bhs).stat_sn, self.exp_stat_sn);
            if found != expected {
                return Err(Violation::StatSn { found: found.0, expected: expected.0 }.into());
            }
        }
        match bhs.opcode() {
            Opcode::DATA_IN => self.data_in(&bhs),
            Opcode::SCSI_RESPONSE
            | Opcode::NOP_IN
            | Opcode::TASK_RESPONSE
            | Opcode::R2T
            | Opcode::ASYNC
            | Opcode::REJECT
            | Opcode::LOGOUT_RESPONSE => {
                self.segment.clear();
                Ok(Under::Gather)
            }
            opcode => Err(Violation::Unexpected(opcode).into()),
        }
    }

    /// Finds the task of a PDU: `None` if it has ended, so that the PDU is late.
    fn task(&mut self, opcode: Opcode, itt: u32) -> Result<Option<TaskTag>, Violation> {
        match self.tasks.find(itt) {
            Found::Task(_) => Ok(Some(TaskTag(itt))),
            Found::Ended => {
                self.late += 1;
                Ok(None)
            }
            Found::Unknown => Err(Violation::UnknownTask { opcode, itt }),
        }
    }

    fn data_in(&mut self, bhs: &Bhs) -> Result<Under, Over> {
        let opcode = Opcode::DATA_IN;
        let data = DataIn::decode(bhs).ok_or(Violation::Malformed(opcode))?;
        let (itt, length, found) = (data.itt, bhs.data_len(), data.data_sn);
        let task = match self.tasks.find(itt) {
            Found::Task(task) => task,
            Found::Ended => {
                self.late += 1;
                return Ok(Under::Late);
            }
            Found::Unknown => return Err(Violation::UnknownTask { opcode, itt }.into()),
        };
        let Direction::Read(end) = task.direction else {
            return Err(Violation::Direction { opcode, itt }.into());
        };
        if found != task.data_sn {
            return Err(Violation::DataSn { itt, found, expected: task.data_sn }.into());
        }
        let (offset, expected) = (data.offset, task.next);
        // Both orders are agreed on, so the data of a read comes without gaps.
        if offset != expected || length > end - expected {
            return Err(Violation::Range { itt, offset, length, expected, end }.into());
        }
        task.data_sn = found.wrapping_add(1);
        Ok(Under::Data { task: TaskTag(itt), status: data.status })
    }

    /// Acts on a whole PDU.
    pub(super) fn end(&mut self, under: Under) -> Result<Option<Event<'static>>, Over> {
        let bhs = *self.decoder.header();
        let numbers = Numbers::decode(&bhs);
        self.window.update(numbers);
        if is_counted(&bhs) {
            self.exp_stat_sn = numbers.stat_sn.next();
        }
        match (under, bhs.opcode()) {
            (Under::Late, _) | (Under::Data { status: None, .. }, _) => Ok(None),
            (Under::Data { task, status: Some((status, residual)) }, _) => {
                self.segment.clear();
                self.finish(task, Completion::Status(status), residual)
            }
            (Under::Gather, Opcode::SCSI_RESPONSE) => self.response(&bhs),
            (Under::Gather, Opcode::R2T) => self.r2t(&bhs),
            (Under::Gather, Opcode::NOP_IN) => self.nop_in(&bhs),
            (Under::Gather, Opcode::TASK_RESPONSE) => {
                let TaskResponse { response, itt, .. } = TaskResponse::decode(&bhs);
                self.managed(Opcode::TASK_RESPONSE, itt, Answer::from_wire(response))
            }
            (Under::Gather, Opcode::ASYNC) => self.message(&bhs),
            (Under::Gather, Opcode::REJECT) => self.reject(&bhs),
            (Under::Gather, _) => self.logged_out(&bhs),
        }
    }

    /// Ends a task.
    fn finish(
        &mut self,
        tag: TaskTag,
        completion: Completion,
        residual: Residual,
    ) -> Result<Option<Event<'static>>, Over> {
        let task = self.tasks.at(tag).expect("it was found for this PDU");
        let (length, moved) = match task.direction {
            Direction::None => (0, 0),
            Direction::Read(length) => (length, task.next),
            Direction::Write(length) => (length, task.sent),
        };
        let under = if let Residual::Under(bytes) = residual { bytes } else { 0 };
        let itt = tag.0;
        let due = length.checked_sub(under).ok_or(Violation::Residual { itt, residual: under })?;
        if completion == Completion::Status(GOOD) && moved < due {
            return Err(Violation::Short { itt, moved, due }.into());
        }
        self.tasks.end(tag);
        let outcome = Outcome { completion, residual, moved: moved.min(due) };
        Ok(Some(Event::Done { task: tag, outcome }))
    }

    fn response(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let opcode = Opcode::SCSI_RESPONSE;
        let response = ScsiResponse::decode(bhs).ok_or(Violation::Malformed(opcode))?;
        let itt = response.itt;
        let Some(task) = self.task(opcode, itt)? else { return Ok(None) };
        // The sense data stands behind its length.
        let length = match self.segment.first_chunk() {
            Some(length) => usize::from(u16::from_be_bytes(*length)),
            None if self.segment.is_empty() => 0,
            None => return Err(Violation::Sense { itt }.into()),
        };
        let behind = self.segment.len().saturating_sub(2);
        if length > behind {
            return Err(Violation::Sense { itt }.into());
        }
        self.segment.truncate(length + 2);
        let completion = match response.response {
            0 => Completion::Status(response.status),
            code => Completion::TargetFailure(code),
        };
        self.finish(task, completion, response.residual)
    }

    fn r2t(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let opcode = Opcode::R2T;
        let R2t { lun, itt, ttt, r2t_sn: found, offset, length, .. } = R2t::decode(bhs);
        let Some(tag) = self.task(opcode, itt)? else { return Ok(None) };
        let (bound, burst) = (self.agreed.r2ts, self.agreed.burst_max);
        let task = self.tasks.at(tag).expect("found above");
        let Direction::Write(end) = task.direction else {
            return Err(Violation::Direction { opcode, itt }.into());
        };
        if ttt == NO_TAG {
            return Err(Violation::Malformed(opcode).into());
        }
        if found != task.data_sn {
            return Err(Violation::DataSn { itt, found, expected: task.data_sn }.into());
        }
        if length == 0 || length > burst {
            return Err(Violation::Burst { length, bound: burst }.into());
        }
        let expected = task.next;
        if offset != expected || length > end - expected {
            return Err(Violation::Range { itt, offset, length, expected, end }.into());
        }
        if task.stopped {
            (task.data_sn, task.next) = (found.wrapping_add(1), offset + length);
            return Ok(None);
        }
        if task.r2ts == bound {
            return Err(Violation::R2ts { itt, bound }.into());
        }
        (task.data_sn, task.next) = (found.wrapping_add(1), offset + length);
        task.r2ts += 1;
        let due = Due { task: tag, ttt, lun, offset, end: offset + length, data_sn: 0 };
        self.owe(due);
        Ok(None)
    }

    fn nop_in(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let NopIn { lun, itt, ttt, .. } = NopIn::decode(bhs);
        if itt != NO_TAG {
            return match self.ping.take_if(|ping| ping.tag.0 == itt) {
                Some(_) => Ok(Some(Event::Pong)),
                None => Err(Violation::UnknownTask { opcode: Opcode::NOP_IN, itt }.into()),
            };
        }
        if ttt != NO_TAG {
            if self.pings.len() == PINGS_OWED_MAX {
                return Err(Violation::Pings.into());
            }
            self.pings.push((lun, ttt));
        }
        Ok(None)
    }

    /// Takes the answer to a task management function: the tasks that it ends are told first.
    fn managed(
        &mut self,
        opcode: Opcode,
        itt: u32,
        answer: Answer,
    ) -> Result<Option<Event<'static>>, Over> {
        let management = self.managements.end(itt);
        let management = management.ok_or(Violation::UnknownTask { opcode, itt })?;
        self.sweep = Some(Sweep { slot: 0, tag: TaskTag(itt), management, answer });
        Ok(None)
    }

    fn message(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let AsyncMessage { lun, event, code, parameters: [_, wait, third], .. } =
            AsyncMessage::decode(bhs);
        let notice = match event {
            0 => Notice::Scsi { lun },
            1 => Notice::LogoutWanted { within_s: third },
            2 | 3 => return Err(Over::Dropped { wait_s: wait, retain_s: third }),
            4 => Notice::NegotiationWanted { within_s: third },
            event => Notice::Other { event, code },
        };
        Ok(Some(Event::Notice(notice)))
    }

    /// A PDU of ours was rejected. Of a ping that is an answer like another, and so it is of a task
    /// management function; anything else leaves the two sides of different minds.
    fn reject(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let reason = Reject::decode(bhs).reason;
        let rejected = self.segment.first_chunk().map(|bytes| Bhs::from_bytes(*bytes));
        let rejected = rejected.ok_or(Violation::Malformed(Opcode::REJECT))?;
        match rejected.opcode() {
            Opcode::NOP_OUT if self.ping.is_some_and(|ping| ping.tag.0 == rejected.itt()) => {
                self.ping = None;
                Ok(Some(Event::Pong))
            }
            Opcode::TASK_REQUEST => self.managed(Opcode::REJECT, rejected.itt(), Answer::Rejected),
            opcode => Err(Over::Rejected { reason, opcode }),
        }
    }

    fn logged_out(&mut self, bhs: &Bhs) -> Result<Option<Event<'static>>, Over> {
        let LogoutResponse { response, itt, .. } = LogoutResponse::decode(bhs);
        if !matches!(self.phase, Phase::Leaving { .. }) || itt != LOGOUT_TAG.0 {
            let opcode = Opcode::LOGOUT_RESPONSE;
            return Err(Violation::UnknownTask { opcode, itt }.into());
        }
        self.over = Some(Over::LoggedOut);
        Ok(Some(Event::LoggedOut { response }))
    }
}
