//! What a session sends: commands, data, pings, task management, logout.
//!
//! Headers are appended to the caller's arena in one pass; payload is named, never copied here.

use super::manage::{Ask, Management};
use super::over::Refused;
use super::tasks::{Direction, Task, TaskTag};
use super::{LOGOUT_TAG, PING_SLOT, Phase, Session};
use crate::wire::{
    AHS_MAX, Attribute, BHS_LEN, Bhs, CDB_MAX, Crc, DataOut, LogoutReason, LogoutRequest, NO_TAG,
    NopOut, ScsiCommand, TaskRequest, pdu_len, put_head, put_pdu, put_tail,
};

/// The type of the additional header that has the rest of a long CDB.
const EXTENDED_CDB: u8 = 1;

/// The bytes that leave, in order. The caller decides whether it copies a payload or sends it from
/// where it lies.
pub trait Outgoing {
    /// The memory to which headers, padding and digests are appended.
    fn arena(&mut self) -> &mut Vec<u8>;

    /// Appends a part of a write's memory to the stream, behind what is in the arena, and takes it
    /// into the digest if there is one.
    fn payload(&mut self, payload: Payload, digest: Option<&mut Crc>);
}

/// A part of the memory of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The write.
    pub task: TaskTag,
    /// The first byte, from the start of its memory.
    pub offset: u32,
    /// Bytes, not zero.
    pub length: u32,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The slot it takes, in which no task is in flight.
    pub slot: u16,
    /// The logical unit.
    pub lun: u64,
    /// The CDB, of 1 to [`CDB_MAX`] bytes.
    pub cdb: &'a [u8],
    /// Its data.
    pub direction: Direction,
    /// Its order.
    pub attribute: Attribute,
}

/// Data of a write that may be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) task: TaskTag,
    /// The tag of the request for it, or [`NO_TAG`].
    pub(super) ttt: u32,
    /// The logical unit that the request names.
    pub(super) lun: u64,
    pub(super) offset: u32,
    pub(super) end: u32,
    pub(super) data_sn: u32,
}

impl Session {
    /// Commands that the target takes now.
    #[must_use]
    pub fn room(&self) -> u32 {
        if self.is_open() { self.window.room() } else { 0 }
    }

    /// Sends a command, with as much of a write's data as may come with it. Data that may follow
    /// unasked is left to [`Session::send`].
    ///
    /// # Errors
    /// [`Refused::Window`] and [`Refused::Closed`], with nothing appended.
    ///
    /// # Panics
    /// If a task is in flight in the slot, or the CDB is longer than [`CDB_MAX`] bytes.
    pub fn command(
        &mut self,
        command: &Command<'_>,
        out: &mut impl Outgoing,
    ) -> Result<TaskTag, Refused> {
        if !self.is_open() {
            return Err(Refused::Closed);
        }
        let tag = self.tasks.tag(command.slot);
        let cmd_sn = self.window.take().ok_or(Refused::Window)?;
        let agreed = &self.agreed;
        let (read, write, expected) = match command.direction {
            Direction::None => (false, false, 0),
            Direction::Read(length) => (true, false, length),
            Direction::Write(length) => (false, true, length),
        };
        let first = if write { expected.min(agreed.first_burst) } else { 0 };
        let immediate = if agreed.immediate_data { first.min(agreed.segment_out) } else { 0 };
        let unasked = if agreed.initial_r2t { immediate } else { first };
        let (start, cdb) = (self.position, command.cdb);
        let mut head = [0; 16];
        head[..cdb.len().min(16)].copy_from_slice(&cdb[..cdb.len().min(16)]);
        let bhs = ScsiCommand {
            last: immediate == unasked,
            read,
            write,
            attribute: command.attribute,
            lun: command.lun,
            itt: tag.0,
            expected,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: head,
        };
        let bhs = bhs.encode().with_data_len(immediate);
        if cdb.len() <= 16 {
            self.put(bhs, &[], Payload { task: tag, offset: 0, length: immediate }, out);
        } else {
            let (ahs, length) = extended(cdb);
            let payload = Payload { task: tag, offset: 0, length: immediate };
            self.put(bhs.with_ahs_len(length), &ahs[..length], payload, out);
        }
        let task = Task {
            direction: command.direction,
            lun: command.lun,
            cmd_sn,
            start,
            data_sn: 0,
            next: unasked,
            sent: immediate,
            r2ts: 0,
            stopped: false,
        };
        self.tasks.begin(tag, task);
        if unasked > immediate {
            let (offset, end) = (immediate, unasked);
            self.owe(Due { task: tag, ttt: NO_TAG, lun: 0, offset, end, data_sn: 0 });
        }
        Ok(tag)
    }

    /// Sends what is owed to the target: answers to its pings, and data of writes, until `budget`
    /// bytes of the stream have been put out. Whether there is more.
    pub fn send(&mut self, budget: u64, out: &mut impl Outgoing) -> bool {
        if self.over.is_some() {
            return false;
        }
        let limit = self.position.saturating_add(budget);
        // Also the answers to pings keep to the budget: a target that asks and does not read would
        // have them pile up. One that goes on asking meets the bound of those that are owed.
        while let Some((lun, ttt)) = self.pings.last().copied() {
            if self.position >= limit {
                return true;
            }
            self.pings.pop();
            self.nop(lun, NO_TAG, ttt, out);
        }
        while let Some(due) = self.dues.front().copied() {
            let Some(task) = self.tasks.at(due.task).filter(|task| !task.stopped) else {
                self.dues.pop_front();
                continue;
            };
            if self.position >= limit {
                return true;
            }
            let length = (due.end - due.offset).min(self.agreed.segment_out);
            let (offset, behind) = (due.offset, due.offset + length);
            let last = behind == due.end;
            task.sent = behind;
            if last {
                task.r2ts -= u16::from(due.ttt != NO_TAG);
                self.dues.pop_front();
            } else if let Some(front) = self.dues.front_mut() {
                (front.offset, front.data_sn) = (behind, due.data_sn + 1);
            }
            let bhs = DataOut {
                last,
                lun: due.lun,
                itt: due.task.0,
                ttt: due.ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: due.data_sn,
                offset,
            };
            let payload = Payload { task: due.task, offset, length };
            self.put(bhs.encode().with_data_len(length), &[], payload, out);
        }
        false
    }

    /// Notes data to be sent. Those of tasks that have ended are let go of before there are more
    /// than tasks in flight can have.
    pub(super) fn owe(&mut self, due: Due) {
        let most = usize::from(self.tasks.depth()) * (usize::from(self.agreed.r2ts) + 1);
        if self.dues.len() >= most {
            let Self { dues, tasks, .. } = self;
            dues.retain(|due| tasks.at(due.task).is_some());
        }
        self.dues.push_back(due);
    }

    /// Appends a PDU.
    #[inline]
    fn put(&mut self, bhs: Bhs, ahs: &[u8], payload: Payload, out: &mut impl Outgoing) {
        let (digests, length) = (self.agreed.digests, payload.length);
        put_head(out.arena(), &bhs, ahs, digests);
        if length > 0 {
            let mut crc = Crc::new();
            out.payload(payload, digests.data.then_some(&mut crc));
            put_tail(out.arena(), length, crc, digests);
        }
        self.position += pdu_len(length, digests) + ahs.len() as u64;
    }

    /// Appends a PDU without data.
    fn put_bare(&mut self, bhs: Bhs, out: &mut impl Outgoing) {
        put_pdu(out.arena(), bhs, &[], self.agreed.digests);
        self.position += pdu_len(0, self.agreed.digests);
    }

    fn nop(&mut self, lun: u64, itt: u32, ttt: u32, out: &mut impl Outgoing) {
        let (cmd_sn, exp_stat_sn) = (self.window.next(), self.exp_stat_sn);
        self.put_bare(NopOut { lun, itt, ttt, cmd_sn, exp_stat_sn }.encode(), out);
    }

    /// Sends a ping.
    pub(super) fn ping(&mut self, out: &mut impl Outgoing) -> TaskTag {
        let tag = TaskTag::new(PING_SLOT, self.ping_count);
        self.ping_count = self.ping_count.wrapping_add(1);
        self.nop(0, tag.0, NO_TAG, out);
        tag
    }

    /// Asks the target to end tasks. From then on no data of a task that is to be aborted goes out.
    /// The answer, and the end of each task, come as events; `deadline` is when
    /// [`Session::tick`] tells that there was none. A write whose abort fails stays without its
    /// data: a reset ends it, or the end of the session.
    ///
    /// # Errors
    /// [`Refused::NoTask`], [`Refused::Managements`] and [`Refused::Closed`]; then nothing is
    /// appended.
    pub fn manage(
        &mut self,
        ask: Ask,
        deadline: u64,
        out: &mut impl Outgoing,
    ) -> Result<TaskTag, Refused> {
        if !self.is_open() {
            return Err(Refused::Closed);
        }
        let tag = self.managements.tag().ok_or(Refused::Managements)?;
        let cmd_sn = self.window.next();
        let (lun, referenced, ref_cmd_sn) = match ask {
            Ask::Abort(task) => {
                let aborted = self.tasks.at(task).ok_or(Refused::NoTask)?;
                aborted.stopped = true;
                (aborted.lun, task.0, aborted.cmd_sn)
            }
            Ask::LunReset(lun) => (lun, NO_TAG, cmd_sn),
            Ask::TargetWarmReset | Ask::TargetColdReset => (0, NO_TAG, cmd_sn),
        };
        let request = TaskRequest {
            function: ask.function(),
            lun,
            itt: tag.0,
            referenced,
            cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn,
        };
        self.put_bare(request.encode(), out);
        self.managements.begin(tag, Management { ask, cmd_sn, deadline: Some(deadline) });
        Ok(tag)
    }

    /// Leaves the target. Nothing more is taken; tasks in flight end with the session. Without an
    /// answer until `deadline` the session is over.
    pub fn logout(&mut self, deadline: u64, out: &mut impl Outgoing) {
        if !self.is_open() {
            return;
        }
        self.phase = Phase::Leaving { deadline };
        let request = LogoutRequest {
            reason: LogoutReason::CloseSession,
            itt: LOGOUT_TAG.0,
            cid: 0,
            cmd_sn: self.window.next(),
            exp_stat_sn: self.exp_stat_sn,
        };
        self.put_bare(request.encode(), out);
    }
}

/// The additional header for a CDB of more than 16 bytes, and its length. RFC 7143, section
/// 11.2.2.
fn extended(cdb: &[u8]) -> ([u8; AHS_MAX], usize) {
    assert!(cdb.len() <= CDB_MAX, "a CDB of {} bytes exceeds {CDB_MAX}", cdb.len());
    let rest = &cdb[16..];
    let mut ahs = [0; AHS_MAX];
    // The length counts a reserved byte and the rest of the CDB.
    let [high, low] = (rest.len() as u16 + 1).to_be_bytes();
    (ahs[0], ahs[1], ahs[2]) = (high, low, EXTENDED_CDB);
    ahs[4..4 + rest.len()].copy_from_slice(rest);
    (ahs, (4 + rest.len()).next_multiple_of(4))
}

/// The largest header that a command takes.
const _: () = assert!(4 + CDB_MAX - 16 <= AHS_MAX && BHS_LEN == 48);
