//! One session on one connection: bytes out, bytes in.
//!
//! A link only moves bytes. When it breaks, the port decides what becomes of its commands.

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, recv};
use weir_bio::{Data, Nanos};
use weir_driver_scsi::{Command, Direction, Ends, Refusal};
use weir_proto_iscsi::session::{
    self, Answer, Ask, Completion, Event, Expired, Keeping, Missing, Notice, Outcome, Over,
    Refused, Session, TaskTag,
};
use weir_proto_iscsi::wire::Attribute;
use weir_proto_scsi::ScsiStatus;
use weir_proto_scsi::decide::Delivery;

use crate::dial::Opened;
use crate::output::{Outlet, Output};
use crate::slots::{End, Slots};

/// Places one system call receives into: the pieces of one read, and the window.
const PLACES: usize = 16;

/// Bytes received by one system call, when small answers come in numbers: some 60 of 4 KiB.
pub(crate) const WINDOW: usize = 256 << 10;

/// A reap that has received so many bytes leaves the rest for the next one, before which the target
/// is given new commands; a target that never stops sending does not keep the thread.
pub(crate) const REAPED_MAX: usize = WINDOW;

/// Of the window, this much is received into while large reads wait for their data: enough for
/// many headers, and little of a payload that should go where it belongs at once.
const SMALL_WINDOW: usize = 16 << 10;

/// Notices of a target that are kept until they are acted on.
const NOTICES_MAX: usize = 64;

/// Bytes that may wait to be sent before further data of writes is put out.
const OUTPUT_MAX: u64 = 1 << 20;

/// A session and its socket.
pub(crate) struct Link {
    socket: OwnedFd,
    session: Session,
    output: Output,
    /// Why nothing can be sent any more. Bytes received before may still be read.
    broken: Option<Errno>,
    /// Bytes that came with the end of the login.
    behind: Vec<u8>,
    /// The portal group of the session.
    pub(crate) group: Option<u16>,
}

/// Why a session is of no more use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// The target closed the connection.
    Closed,
    Receive(Errno),
    Send(Errno),
    Watch(Errno),
    Over(Over),
    /// The mid-layer asked for it.
    Reset,
    /// The target asked to be left, and was.
    Left,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Closed => f.write_str("the target closed the connection"),
            Loss::Receive(errno) => write!(f, "receive: {errno}"),
            Loss::Send(errno) => write!(f, "send: {errno}"),
            Loss::Watch(errno) => write!(f, "epoll: {errno}"),
            Loss::Over(why) => why.fmt(f),
            Loss::Reset => f.write_str("the session is reset"),
            Loss::Left => f.write_str("the target asked for the session to be left"),
        }
    }
}

/// The outcome of one receiving system call.
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// There may be more.
    pub(crate) more: bool,
}

/// What was received besides the ends of commands.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) answers: Vec<(TaskTag, Answer)>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) logged_out: bool,
}

impl Heard {
    /// Keeps a notice until it is acted on. Of more than are kept the rest is dropped: the target
    /// says them without pause, and nothing is lost but their words.
    fn notice(&mut self, notice: Notice) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }
}

/// Where answers go.
pub(crate) struct Answers<'a> {
    pub(crate) slots: &'a mut Slots,
    pub(crate) ends: &'a mut Ends,
    pub(crate) heard: &'a mut Heard,
}

impl Link {
    /// Starts a session with places for so many commands.
    pub(crate) fn new(opened: Opened, keeping: Keeping, now: Nanos) -> Link {
        let Opened { socket, start, behind } = opened;
        let session = Session::new(&start, keeping, now.0);
        let output = Output::default();
        Link { socket, session, output, broken: None, behind, group: start.group }
    }

    /// Seconds to wait for after its loss, before the next login.
    pub(crate) fn time2wait_s(&self, why: Loss) -> u16 {
        match why {
            Loss::Over(Over::Dropped { wait_s, .. }) => wait_s,
            Loss::Left => 0,
            _ => self.session.agreed().time2wait_s,
        }
    }

    /// Whether it waits until the socket can be written to.
    #[inline]
    pub(crate) fn wants_write(&self) -> bool {
        !self.output.is_empty() && self.broken.is_none()
    }

    /// Why sending has failed, if it has.
    pub(crate) fn broken(&self) -> Option<Loss> {
        self.broken.map(Loss::Send)
    }

    /// Whether a reap has something to do that nothing announces.
    pub(crate) fn is_due(&self) -> bool {
        self.broken.is_some() || !self.behind.is_empty() || self.session.over().is_some()
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.session.in_flight()
    }

    /// When [`Link::tick`] has something to do.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        self.session.wake_at().map(Nanos)
    }

    /// The target was there at this time. A session that was opened without a clock begins so.
    pub(crate) fn heard_at(&mut self, now: Nanos) {
        self.session.received(&[], now.0);
    }

    /// Encodes a command and borrows its memory.
    #[inline]
    pub(crate) fn take(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        slots: &mut Slots,
    ) -> Result<(), Refusal> {
        if self.broken.is_some() {
            return Err(Refusal::Down);
        }
        if self.session.room() == 0 || slots.next().is_none() {
            let open = self.session.is_open();
            return Err(if open { Refusal::Busy } else { Refusal::Down });
        }
        let place = slots.lend(command.direction, memory);
        let wire = session::Command {
            slot: place,
            lun: u64::from_be_bytes(command.lun.0),
            cdb: command.cdb,
            direction: match command.direction {
                Direction::None => session::Direction::None,
                Direction::In(length) => session::Direction::Read(length),
                Direction::Out(length) => session::Direction::Write(length),
            },
            attribute: Attribute::Simple,
        };
        let mut outlet = Outlet { output: &mut self.output, slots };
        match self.session.command(&wire, &mut outlet) {
            Ok(_) => {
                slots.take(place, command.slot);
                Ok(())
            }
            Err(refused) => {
                slots.take_back(place, memory);
                Err(if refused == Refused::Window { Refusal::Busy } else { Refusal::Down })
            }
        }
    }

    /// Sends what the socket takes.
    #[inline]
    pub(crate) fn send(&mut self, slots: &mut Slots) {
        while self.broken.is_none() {
            let budget = OUTPUT_MAX.saturating_sub(self.output.waiting());
            let mut outlet = Outlet { output: &mut self.output, slots };
            let more = self.session.send(budget, &mut outlet);
            self.broken = self.output.send(&self.socket, slots).err();
            if !more || !self.output.is_empty() {
                return;
            }
        }
    }

    /// Receives once and answers what is complete.
    ///
    /// # Errors
    /// Why the session is lost.
    pub(crate) fn receive(
        &mut self,
        window: &mut [u8],
        to: &mut Answers<'_>,
        now: Nanos,
    ) -> Result<Received, Loss> {
        if !self.behind.is_empty() {
            let behind = std::mem::take(&mut self.behind);
            self.digest(&behind, to, now)?;
        }
        let most = if to.slots.expects_large() { SMALL_WINDOW } else { window.len() };
        let window = &mut window[..most];
        let missing = self.session.missing();
        let (received, direct, room) = match missing {
            None => (recv(&self.socket, &mut *window, RecvFlags::DONTWAIT), 0, most),
            Some(Missing { task, offset, length }) => {
                let mut places: [IoSliceMut<'_>; PLACES] =
                    std::array::from_fn(|_| IoSliceMut::new(&mut []));
                let read = (task.slot(), offset, length);
                let (mut used, laid) = to.slots.scatter(read, &mut places[..PLACES - 1]);
                let mut room = laid;
                if laid == length as usize {
                    places[used] = IoSliceMut::new(&mut *window);
                    (used, room) = (used + 1, room + most);
                }
                let got = readv(&self.socket, &mut places[..used]);
                (got.map(|got| (got, got)), laid, room)
            }
        };
        let got = match received {
            Ok((0, _)) => return Err(Loss::Closed),
            Ok((got, _)) => got,
            Err(Errno::AGAIN) => return Ok(Received { bytes: 0, more: false }),
            Err(Errno::INTR) => return Ok(Received { bytes: 0, more: true }),
            Err(errno) => return Err(Loss::Receive(errno)),
        };
        let direct = direct.min(got);
        if let Some(Missing { task, offset, .. }) = missing {
            for piece in to.slots.pieces(task.slot(), offset, direct as u32) {
                self.session.received(piece, now.0);
            }
        }
        self.digest(&window[..got - direct], to, now)?;
        // Less than there was room for: the socket is empty, and need not be asked again.
        Ok(Received { bytes: got, more: got == room })
    }

    /// Follows the stream through these bytes.
    fn digest(&mut self, mut bytes: &[u8], to: &mut Answers<'_>, now: Nanos) -> Result<(), Loss> {
        loop {
            match self.session.next(&mut bytes, now.0).map_err(Loss::Over)? {
                Event::NeedMore => return Ok(()),
                Event::Data { task, offset, bytes } => to.slots.put(task.slot(), offset, bytes),
                Event::Done { task, outcome } => {
                    let sense = self.session.sense();
                    to.slots.finish(task.slot(), end_of(&outcome), sense, to.ends);
                }
                Event::Aborted { task } => {
                    let end = End::without(Delivery::Aborted);
                    to.slots.finish(task.slot(), end, &[], to.ends);
                }
                Event::Managed { tag, answer, late: false, .. } => {
                    to.heard.answers.push((tag, answer));
                }
                Event::Managed { .. } | Event::Pong => {}
                Event::Notice(notice) => {
                    if let Notice::Scsi { lun } = notice {
                        let sense = self.session.sense();
                        let sense = &sense[..sense.len().min(252)];
                        to.ends.event_sense.extend_from_slice(sense);
                        let lun = weir_proto_scsi::Lun(lun.to_be_bytes());
                        to.ends.events.push((lun, sense.len() as u8));
                    } else {
                        to.heard.notice(notice);
                    }
                }
                // Nothing comes behind it.
                Event::LoggedOut { .. } => {
                    to.heard.logged_out = true;
                    return Ok(());
                }
            }
        }
    }

    /// Looks at the time: a ping to a target that is quiet, and late answers.
    ///
    /// # Errors
    /// Why the session is lost.
    pub(crate) fn tick(
        &mut self,
        now: Nanos,
        slots: &mut Slots,
        mut expired: impl FnMut(TaskTag),
    ) -> Result<(), Loss> {
        if self.session.wake_at().is_none_or(|at| at > now.0) {
            return Ok(());
        }
        let mut outlet = Outlet { output: &mut self.output, slots };
        while let Some(Expired { tag, .. }) =
            self.session.tick(now.0, &mut outlet).map_err(Loss::Over)?
        {
            expired(tag);
        }
        Ok(())
    }

    /// Asks the target to end tasks.
    pub(crate) fn manage(
        &mut self,
        ask: Manage,
        deadline: Nanos,
        slots: &mut Slots,
    ) -> Result<TaskTag, Refused> {
        let ask = match ask {
            Manage::Abort(place) => {
                let mut open = self.session.outstanding(u64::MAX);
                let task = open.find(|(task, _)| task.slot() == place);
                Ask::Abort(task.ok_or(Refused::NoTask)?.0)
            }
            Manage::LunReset(lun) => Ask::LunReset(lun),
            Manage::TargetReset => Ask::TargetWarmReset,
        };
        let mut outlet = Outlet { output: &mut self.output, slots };
        self.session.manage(ask, deadline.0, &mut outlet)
    }

    /// Says to the target that it is left.
    pub(crate) fn log_out(&mut self, deadline: Nanos, slots: &mut Slots) {
        let mut outlet = Outlet { output: &mut self.output, slots };
        self.session.logout(deadline.0, &mut outlet);
        self.send(slots);
    }

    /// The session is lost: what the target may have is in limbo, and the rest ends.
    #[cold]
    pub(crate) fn lose(self, slots: &mut Slots) {
        for (task, left) in self.session.outstanding(self.output.gone()) {
            slots.lose(task.slot(), left);
        }
        slots.lose_output();
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a target is asked, with the place of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manage {
    Abort(u16),
    LunReset(u64),
    TargetReset,
}

/// How a command ended that the target answered.
#[inline]
fn end_of(outcome: &Outcome) -> End {
    let moved = outcome.moved;
    match outcome.completion {
        Completion::Status(status) => {
            End { delivery: Delivery::Delivered, status: ScsiStatus(status), moved }
        }
        Completion::TargetFailure(_) => End { moved, ..End::without(Delivery::Error) },
    }
}
