//! The full feature phase of an initiator: one session of one connection, with error recovery level
//! 0.
//!
//! ```text
//!  command, manage, logout  -->  Outgoing: headers in an arena, payload by name
//!  send (data that is due)  -->
//!  next                     <--  bytes;  missing, received: data straight into a read's memory
//!  tick, wake_at                 pings, and answers that are late
//! ```
//!
//! In steady state nothing is allocated: tasks lie in slots that the caller names, and what is
//! gathered of a PDU is kept in memory that stays. The memory is bounded by the depth, by
//! MaxOutstandingR2T and by MaxRecvDataSegmentLength, whatever a target sends.
//!
//! Any error of the protocol, a digest and a silence end the session: every call says [`Over`] from
//! then on, and [`Session::outstanding`] names the tasks that were in flight, and which of them
//! never left. A target terminates them when the session is reinstated: a login with the same ISID.
//!
//! Source: RFC 7143, chapters 4, 7 and 11.

mod input;
mod manage;
mod output;
mod over;
mod tasks;
mod window;

pub use manage::{Answer, Ask, MANAGEMENTS_MAX};
pub use output::{Command, Outgoing, Payload};
pub use over::{Over, Refused, Violation};
pub use tasks::{DEPTH_MAX, Direction, TaskTag};

use std::collections::VecDeque;

use crate::login::{Agreed, LoggedIn};
use crate::wire::{Decoder, Piece, Residual, Serial};
use manage::{Management, Managements};
use output::Due;
use tasks::Tasks;
use window::Window;

/// Answers to pings of the target that may wait to be sent.
pub const PINGS_OWED_MAX: usize = 16;

const PING_SLOT: u16 = 0xfff0;
const LOGOUT_TAG: TaskTag = TaskTag(0xfff1);

/// How a session is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Slots for tasks, 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// A target that has said nothing for so long is asked whether it is there; in nanoseconds.
    pub ping_interval_ns: u64,
    /// A target that then says nothing for so long is not there; in nanoseconds.
    pub ping_timeout_ns: u64,
}

impl Keeping {
    /// With this depth, and with the times of open-iscsi: 5 s each.
    #[must_use]
    pub const fn with_depth(depth: u16) -> Self {
        Self { depth, ping_interval_ns: 5_000_000_000, ping_timeout_ns: 5_000_000_000 }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// With this SCSI status; [`Session::sense`] has its sense data.
    Status(u8),
    /// The target could not carry it out, for a reason outside SCSI.
    TargetFailure(u8),
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub completion: Completion,
    /// What the target says of bytes that did not move.
    pub residual: Residual,
    /// Bytes from the start of the memory that moved. Behind them the memory of a read is as it
    /// was.
    pub moved: u32,
}

/// What a target says unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event of a logical unit; [`Session::sense`] has its sense data.
    Scsi {
        /// The logical unit.
        lun: u64,
    },
    /// It wants the session to be left within so many seconds.
    LogoutWanted {
        /// Seconds.
        within_s: u16,
    },
    /// It wants to negotiate anew within so many seconds, which a new login does as well.
    NegotiationWanted {
        /// Seconds.
        within_s: u16,
    },
    /// An event of the vendor, or one that the standard does not know.
    Other {
        /// The event.
        event: u8,
        /// The vendor's code.
        code: u8,
    },
}

/// The next event in what the target sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing more in this input, which is all used up.
    NeedMore,
    /// A piece of the data of a read.
    Data {
        /// The read.
        task: TaskTag,
        /// Where the piece belongs, from the start of its memory.
        offset: u32,
        /// The piece, not empty.
        bytes: &'a [u8],
    },
    /// A command has ended, and its slot is free.
    Done {
        /// The command.
        task: TaskTag,
        /// How.
        outcome: Outcome,
    },
    /// A task was ended by a task management function, whose [`Event::Managed`] follows: it does
    /// nothing any more, and its slot is free.
    Aborted {
        /// The task.
        task: TaskTag,
    },
    /// A task management function was answered.
    Managed {
        /// Its tag.
        tag: TaskTag,
        /// What was asked.
        ask: Ask,
        /// The answer.
        answer: Answer,
        /// Whether [`Session::tick`] had told before that none came in time.
        late: bool,
    },
    /// The target answers a ping.
    Pong,
    /// The target says something of its own.
    Notice(Notice),
    /// The logout is answered, and the session over: 0 if all went well. The connection is to be
    /// closed.
    LoggedOut {
        /// The response. RFC 7143, section 11.15.1.
        response: u8,
    },
}

/// Data that is due and has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The read it belongs to.
    pub task: TaskTag,
    /// Where it belongs, from the start of the read's memory.
    pub offset: u32,
    /// Bytes, not zero.
    pub length: u32,
}

/// A task management function whose answer is late. The answer may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Its tag.
    pub tag: TaskTag,
    /// What was asked.
    pub ask: Ask,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Open,
    Leaving { deadline: u64 },
}

/// Where the data of the PDU under way goes.
#[derive(Clone, Copy, Debug)]
enum Under {
    /// Into the memory of a read.
    Data { task: TaskTag, status: Option<(u8, Residual)> },
    /// Nowhere: its task has ended.
    Late,
    /// It is gathered.
    Gather,
}

/// The end of tasks that is being told.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    slot: u16,
    tag: TaskTag,
    management: Management,
    answer: Answer,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    tag: TaskTag,
    sent: u64,
}

/// A session in the full feature phase.
#[derive(Debug)]
pub struct Session {
    agreed: Agreed,
    keeping: Keeping,
    phase: Phase,
    over: Option<Over>,
    decoder: Decoder,
    /// The PDU under way; `None` between two.
    under: Option<Under>,
    /// Data that is gathered.
    segment: Vec<u8>,
    window: Window,
    exp_stat_sn: Serial,
    tasks: Tasks,
    /// Data of writes that may be sent, in order.
    dues: VecDeque<Due>,
    managements: Managements,
    sweep: Option<Sweep>,
    /// Our ping that waits for its answer.
    ping: Option<Ping>,
    ping_count: u16,
    /// The target's pings that wait for ours: logical unit and tag.
    pings: Vec<(u64, u32)>,
    /// When the target was heard last.
    heard: u64,
    /// Bytes that were put out.
    position: u64,
    late: u64,
}

impl Session {
    /// The session that a login ended in, at this time.
    ///
    /// # Panics
    /// If the depth is outside 1 to [`DEPTH_MAX`].
    #[must_use]
    pub fn new(start: &LoggedIn, keeping: Keeping, now: u64) -> Self {
        let agreed = start.agreed;
        Self {
            agreed,
            keeping,
            phase: Phase::Open,
            over: None,
            decoder: Decoder::new(agreed.digests, agreed.segment_in),
            under: None,
            segment: Vec::new(),
            window: Window::new(start.cmd_sn, start.numbers),
            exp_stat_sn: start.exp_stat_sn,
            tasks: Tasks::new(keeping.depth),
            dues: VecDeque::new(),
            managements: Managements::default(),
            sweep: None,
            ping: None,
            ping_count: 0,
            pings: Vec::with_capacity(PINGS_OWED_MAX),
            heard: now,
            position: 0,
            late: 0,
        }
    }

    /// Whether it takes commands, as far as the session is concerned.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.over.is_none() && matches!(self.phase, Phase::Open)
    }

    /// Why it is over, if it is.
    #[must_use]
    pub const fn over(&self) -> Option<Over> {
        self.over
    }

    /// The values that were agreed on.
    #[must_use]
    pub const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    /// Tasks in flight.
    #[must_use]
    pub const fn in_flight(&self) -> u16 {
        self.tasks.in_flight()
    }

    /// PDUs that came for tasks that had ended, and were dropped.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Bytes of the stream that were put out, from the start of the session.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The sense data of the last [`Event::Done`] or [`Notice::Scsi`], until the next event.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        self.segment.get(2..).unwrap_or_default()
    }

    /// Heap bytes held beside the slots; bounded as the file says.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.segment.capacity() + self.dues.capacity() * size_of::<Due>()
    }

    /// The tasks in flight. `gone` is how many bytes of the stream were handed to the connection:
    /// with each task comes whether the target may have it.
    pub fn outstanding(&self, gone: u64) -> impl Iterator<Item = (TaskTag, bool)> {
        self.tasks.iter().map(move |(tag, task)| (tag, task.start < gone))
    }

    /// Lets go of a task that the caller ends itself. What still comes for it is dropped. Whether
    /// it was in flight.
    ///
    /// Its memory may still be named by what was put out for it, and a read's by
    /// [`Session::missing`] before.
    pub fn forget(&mut self, task: TaskTag) -> bool {
        if matches!(self.under, Some(Under::Data { task: current, .. }) if current == task) {
            self.under = Some(Under::Late);
        }
        self.tasks.end(task)
    }

    /// The data that is due next, if the stream stands in the middle of a read's.
    #[must_use]
    pub fn missing(&self) -> Option<Missing> {
        let Some(Under::Data { task, .. }) = self.under else { return None };
        let length = self.decoder.missing();
        let (_, at) = self.tasks.in_slot(task.slot())?;
        (length > 0).then_some(Missing { task, offset: at.next, length })
    }

    /// Reports that the caller has received the next bytes of the stream itself, which belong to
    /// [`Session::missing`]. Then [`Session::next`] has to be called, if only with an empty input:
    /// the PDU may be complete.
    ///
    /// # Panics
    /// If fewer bytes are missing.
    pub fn received(&mut self, bytes: &[u8], now: u64) {
        self.heard = now;
        if let Some(Under::Data { task, .. }) = self.under
            && let Some(task) = self.tasks.at(task)
        {
            task.next += u32::try_from(bytes.len()).expect("no more than is missing");
        }
        self.decoder.received(bytes);
    }

    /// Takes the next event off the front of `input`. Call it until [`Event::NeedMore`].
    ///
    /// # Errors
    /// Why the session is over; repeated by every later call.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8], now: u64) -> Result<Event<'a>, Over> {
        if let Some(over) = self.over {
            return Err(over);
        }
        if !input.is_empty() {
            self.heard = now;
        }
        let event = self.step(input);
        if let Err(over) = event {
            self.over = Some(over);
        }
        event
    }

    fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Event<'a>, Over> {
        loop {
            if let Some(event) = self.swept() {
                return Ok(event);
            }
            match self.decoder.next(input)? {
                Piece::NeedMore => return Ok(Event::NeedMore),
                Piece::Header => self.under = Some(self.header()?),
                Piece::Data(bytes) => match self.under {
                    Some(Under::Data { task: tag, .. }) => {
                        let task = self.tasks.at(tag).expect("its PDU is under way");
                        let offset = task.next;
                        task.next += bytes.len() as u32;
                        return Ok(Event::Data { task: tag, offset, bytes });
                    }
                    Some(Under::Gather) => self.segment.extend_from_slice(bytes),
                    Some(Under::Late) | None => {}
                },
                Piece::End => {
                    let under = self.under.take().expect("a header is before its end");
                    if let Some(event) = self.end(under)? {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Tells the next end of a task by a task management function, then the function's own.
    fn swept(&mut self) -> Option<Event<'static>> {
        let mut sweep = self.sweep?;
        let Sweep { tag, management, answer, .. } = sweep;
        while sweep.slot < self.tasks.depth() {
            let slot = sweep.slot;
            sweep.slot += 1;
            if let Some((task, at)) = self.tasks.in_slot(slot)
                && management.ends(answer, task, at.lun, at.cmd_sn)
            {
                self.sweep = Some(sweep);
                self.tasks.end(task);
                return Some(Event::Aborted { task });
            }
        }
        self.sweep = None;
        let late = management.deadline.is_none();
        Some(Event::Managed { tag, ask: management.ask, answer, late })
    }

    /// When [`Session::tick`] has something to do.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        if self.over.is_some() {
            return None;
        }
        let ping = match self.ping {
            None => self.heard.saturating_add(self.keeping.ping_interval_ns),
            Some(ping) => self.gives_up(ping),
        };
        let leave = match self.phase {
            Phase::Open => None,
            Phase::Leaving { deadline } => Some(deadline),
        };
        [Some(ping), leave, self.managements.wake_at()].into_iter().flatten().min()
    }

    /// When a target that has been asked counts as silent.
    fn gives_up(&self, ping: Ping) -> u64 {
        self.heard.max(ping.sent).saturating_add(self.keeping.ping_timeout_ns)
    }

    /// Looks at the time: pings a target that is quiet, and tells a task management function
    /// without an answer. Call it until `None`.
    ///
    /// # Errors
    /// [`Over::Silent`], or why the session was over before.
    pub fn tick(&mut self, now: u64, out: &mut impl Outgoing) -> Result<Option<Expired>, Over> {
        if let Some(over) = self.over {
            return Err(over);
        }
        let left = matches!(self.phase, Phase::Leaving { deadline } if deadline <= now);
        let silent = self.ping.is_some_and(|ping| self.gives_up(ping) <= now);
        if left || silent {
            self.over = Some(Over::Silent);
            return Err(Over::Silent);
        }
        let quiet = self.heard.saturating_add(self.keeping.ping_interval_ns) <= now;
        if self.ping.is_none() && quiet {
            let tag = self.ping(out);
            self.ping = Some(Ping { tag, sent: now });
        }
        Ok(self.managements.expire(now).map(|(tag, ask)| Expired { tag, ask }))
    }
}
