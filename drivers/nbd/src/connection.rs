//! One connection in transmission: requests go out, replies come in.
//!
//! A connection only moves bytes. When it breaks, the queue decides what happens to its requests.

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, readv};
use rustix::net::{RecvFlags, recv};
use weir_bio::{Op, Status};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{Event, Replies, ReplyError, Requests};
use weir_proto_nbd::wire::{Command, CommandFlags, Request as Wire};
use weir_queue::{Done, Request, Tag};
use weir_tls::TlsError;

use crate::channel::Channel;
use crate::dial::Opened;
use crate::durability::{Durability, Leave, Life};
use crate::output::Output;
use crate::slots::{Effect, LARGE, Slots};
use crate::translate::{self, Terms};

/// Places one system call receives into: the pieces of one read, and the window.
const PLACES: usize = 16;

/// Of the window, this much is received into while large reads wait for their data: enough for
/// many headers, and little of a payload that should go where it belongs at once.
const SMALL_WINDOW: usize = 16 << 10;

/// A connection in transmission.
pub(crate) struct Connection {
    channel: Channel,
    requests: Requests,
    replies: Replies,
    output: Output,
    life: Life,
    /// Why nothing can be sent any more. Bytes received before may still be read.
    broken: Option<Errno>,
    /// The server has said that it is going away.
    leaving: bool,
    /// Requests that a leaving server refuses are sent again, to the server that comes after it.
    pub(crate) patient: bool,
}

/// Why a connection is of no more use.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    Closed,
    /// The stream ended, and TLS had not.
    Cut,
    /// The record received is not the one the server sealed, or the server refuses the session.
    Tls(TlsError),
    Receive(Errno),
    Send(Errno),
    Watch(Errno),
    /// It is going away, and everything it took is answered, or not in time.
    Leaving,
    Protocol(ReplyError),
    /// A write was granted before all of it had been sent: the server writes what it does not have.
    Early,
    /// A request got no answer in time.
    Silent,
}

impl Lost {
    /// Whether the server has let go of what it was sent: it has ended the connection, or the
    /// kernel has found nothing at its other end any more.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            // A server that is killed does not end TLS, so a cut has to do.
            Lost::Closed | Lost::Cut => true,
            // A shortage of this machine says nothing of the server, nor does a session of TLS that
            // has failed.
            Lost::Receive(errno) | Lost::Send(errno) => {
                !matches!(*errno, Errno::NOMEM | Errno::NOBUFS | Errno::PROTO)
            }
            Lost::Watch(_) | Lost::Leaving | Lost::Silent => false,
            Lost::Protocol(_) | Lost::Early | Lost::Tls(_) => false,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Closed => f.write_str("the server closed it"),
            Lost::Cut => f.write_str("the server closed it without ending TLS"),
            Lost::Tls(why) => why.fmt(f),
            Lost::Receive(errno) => write!(f, "receive: {errno}"),
            Lost::Send(errno) => write!(f, "send: {errno}"),
            Lost::Watch(errno) => write!(f, "epoll: {errno}"),
            Lost::Leaving => f.write_str("the server is shutting down"),
            Lost::Silent => f.write_str("a request got no answer in time"),
            Lost::Early => f.write_str("the server granted a write before it had been sent whole"),
            Lost::Protocol(why) => write!(f, "the server broke the protocol: {why}"),
        }
    }
}

/// The outcome of one receiving system call.
pub(crate) struct Received {
    pub(crate) bytes: usize,
    /// There may be more.
    pub(crate) more: bool,
}

/// The ways of answers: the queue's completions and its slots.
pub(crate) struct Answers<'a> {
    pub(crate) slots: &'a mut Slots,
    pub(crate) done: &'a mut Done,
    pub(crate) durability: &'a Durability,
}

impl Connection {
    /// Starts transmission.
    ///
    /// # Errors
    /// When the server sent something that was not asked for.
    pub(crate) fn new(opened: Opened, durability: &Durability) -> Result<Connection, Lost> {
        let Opened { channel, info, behind } = opened;
        let mut replies = Replies::new(info.mode, info.allocation);
        // Nothing is in flight, so whatever stands here is an error; an incomplete one is found
        // out when the rest comes.
        replies.next(&mut &behind[..], &mut Slots::new(0)).map_err(Lost::Protocol)?;
        let requests = Requests::new(info.mode);
        let output = Output::default();
        let (broken, leaving, patient) = (None, false, false);
        let life = durability.born();
        Ok(Connection { channel, requests, replies, output, life, broken, leaving, patient })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    /// Whether it waits until the socket can be written to.
    pub(crate) fn wants_write(&self) -> bool {
        (!self.output.is_empty() || self.channel.has_unsent()) && self.broken.is_none()
    }

    /// Whether new requests may go out.
    pub(crate) fn is_sound(&self) -> bool {
        self.broken.is_none() && !self.leaving
    }

    /// Whether the peer is there, as far as an idle connection can tell: only silence is a sign of
    /// life.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.channel.is_silent()
    }

    /// Whether sending has failed, and the next reap will find the connection lost.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether the server has said that it is going away: nothing new is asked of it, and it is
    /// left once it has answered.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Whether nothing is due in either direction.
    pub(crate) fn is_idle(&self, slots: &Slots) -> bool {
        slots.waiting() == 0
            && self.output.is_empty()
            && !self.channel.has_unsent()
            && self.broken.is_none()
    }

    /// Why sending has failed, if it has.
    pub(crate) fn broken(&self) -> Option<Lost> {
        self.broken.map(Lost::Send)
    }

    /// Encodes a request and borrows its memory.
    #[inline]
    pub(crate) fn take(
        &mut self,
        tag: Tag,
        request: &mut Request,
        terms: &Terms,
        slots: &mut Slots,
        durability: &Durability,
    ) {
        let (op, length) = (request.op(), request.len());
        let (command, flags) = match translate::command(op, request.flags(), length, terms) {
            Ok(wire) => wire,
            Err(status) => return slots.end_here(tag, status),
        };
        let effect = match op {
            Op::Write | Op::WriteZeroes | Op::Discard if !flags.contains(CommandFlags::FUA) => {
                Effect::Written
            }
            Op::Write | Op::WriteZeroes | Op::Discard => Effect::Durable,
            Op::Flush => match durability.flush(&self.life) {
                Leave::Go(ticket) => Effect::Flushed(ticket),
                Leave::Wait if self.patient => return slots.hold(tag),
                Leave::Wait | Leave::Fail => return slots.end_here(tag, Status::IoErr),
            },
            _ => Effect::None,
        };
        let (cookie, start) = (slots.cookie(tag), self.output.end());
        let wire = Wire::new(command, cookie, request.offset(), length).with(flags);
        let Ok(pending) = self.requests.push(&wire, self.output.arena()) else {
            return slots.end_here(tag, Status::Inval);
        };
        let large = command == Command::WRITE && length >= LARGE;
        if op.has_data() {
            let lent = slots.lend(tag, request, op == Op::Read);
            if large {
                self.output.splice(tag, length);
            } else if command == Command::WRITE {
                self.output.copy(lent);
            }
        }
        slots.take(tag, pending, effect, large, start);
    }

    /// Sends what the socket takes.
    #[inline]
    pub(crate) fn send(&mut self, slots: &mut Slots) {
        if self.broken.is_none() {
            self.broken = self.output.send(&mut self.channel, slots).err();
        }
    }

    /// Receives once and answers what is complete.
    ///
    /// # Errors
    /// Why the connection is lost.
    pub(crate) fn receive(
        &mut self,
        window: &mut [u8],
        to: &mut Answers<'_>,
    ) -> Result<Received, Lost> {
        if self.channel.is_secure() {
            return self.receive_sealed(window, to);
        }
        let most = if to.slots.expects_large() { SMALL_WINDOW } else { window.len() };
        let window = &mut window[..most];
        let (received, direct, room) = match self.replies.missing() {
            None => (recv(self.socket(), &mut *window, RecvFlags::DONTWAIT), 0, most),
            Some(missing) => {
                let mut places: [IoSliceMut<'_>; PLACES] =
                    std::array::from_fn(|_| IoSliceMut::new(&mut []));
                let (mut used, laid) = to.slots.scatter(missing, &mut places[..PLACES - 1]);
                let mut room = laid as usize;
                if laid == missing.length {
                    places[used] = IoSliceMut::new(&mut *window);
                    (used, room) = (used + 1, room + most);
                }
                let got = readv(self.socket(), &mut places[..used]);
                (got.map(|got| (got, got)), laid as usize, room)
            }
        };
        let got = match received {
            Ok((0, _)) => return Err(Lost::Closed),
            Ok((got, _)) => got,
            Err(Errno::AGAIN) => return Ok(Received { bytes: 0, more: false }),
            Err(Errno::INTR) => return Ok(Received { bytes: 0, more: true }),
            Err(errno) => return Err(Lost::Receive(errno)),
        };
        let direct = direct.min(got);
        self.replies.received(direct as u64);
        self.digest(&window[..got - direct], to)?;
        // Less than there was room for: the socket is empty, and need not be asked again.
        Ok(Received { bytes: got, more: got == room })
    }

    /// Receives records once and answers what is complete. Nothing stays in the session that the
    /// socket does not tell of.
    fn receive_sealed(
        &mut self,
        window: &mut [u8],
        to: &mut Answers<'_>,
    ) -> Result<Received, Lost> {
        let got = match recv(self.socket(), &mut *window, RecvFlags::DONTWAIT) {
            Ok((0, _)) if self.channel.has_ended() => return Err(Lost::Closed),
            Ok((0, _)) => return Err(Lost::Cut),
            Ok((got, _)) => got,
            Err(Errno::AGAIN) => return Ok(Received { bytes: 0, more: false }),
            Err(Errno::INTR) => return Ok(Received { bytes: 0, more: true }),
            Err(errno) => return Err(Lost::Receive(errno)),
        };
        if let Some(mut session) = self.channel.take_session() {
            let opened = session.open(&window[..got], |plain| self.digest(plain, to));
            self.channel.put_session(session);
            opened?;
        }
        Ok(Received { bytes: got, more: got == window.len() })
    }

    /// Follows the stream of replies through these bytes.
    fn digest(&mut self, mut bytes: &[u8], to: &mut Answers<'_>) -> Result<(), Lost> {
        loop {
            while let Some((cookie, data)) = self.replies.whole_read(&mut bytes, to.slots) {
                let offset = to.slots.offset(cookie);
                to.slots.put(cookie, offset, data);
                to.slots.answered(cookie, Status::Ok, to.done);
            }
            match self.replies.next(&mut bytes, to.slots).map_err(Lost::Protocol)? {
                Event::NeedMore => return Ok(()),
                Event::Data { cookie, offset, bytes } => to.slots.put(cookie, offset, bytes),
                Event::Hole { cookie, offset, length } => {
                    to.slots.zero(cookie, offset, u64::from(length));
                }
                Event::Done { cookie, result } => self.done(cookie, result, to)?,
                // The error comes again with Done; a queue never asks for extents.
                Event::Error { .. } | Event::Extent { .. } => {}
            }
        }
    }

    fn done(
        &mut self,
        cookie: u64,
        result: Result<(), NbdError>,
        to: &mut Answers<'_>,
    ) -> Result<(), Lost> {
        let status = match result {
            Ok(()) if to.slots.is_sending(cookie) => return Err(Lost::Early),
            Ok(()) => match to.slots.effect(cookie) {
                Effect::None | Effect::Durable => Status::Ok,
                Effect::Written => {
                    to.durability.written(&mut self.life);
                    Status::Ok
                }
                Effect::Flushed(ticket) if to.durability.flushed(ticket) => Status::Ok,
                Effect::Flushed(_) => Status::IoErr,
            },
            Err(error) => {
                if let Some(promise) = to.slots.effect(cookie).promise() {
                    to.durability.failed(promise, error);
                }
                self.leaving |= error == NbdError::Shutdown;
                if self.patient && error == NbdError::Shutdown {
                    to.slots.refused(cookie);
                    return Ok(());
                }
                translate::status(error)
            }
        };
        to.slots.answered(cookie, status, to.done);
        Ok(())
    }

    /// Takes leave of the server, if nothing is left to be said. Never blocks.
    pub(crate) fn part(mut self, slots: &mut Slots) {
        let farewell = Wire::new(Command::DISC, 0, 0, 0);
        if self.is_idle(slots) && self.requests.push(&farewell, self.output.arena()).is_ok() {
            self.send(slots);
        }
        self.channel.farewell();
    }
}

impl From<TlsError> for Lost {
    fn from(why: TlsError) -> Lost {
        Lost::Tls(why)
    }
}

/// A connection taken apart.
pub(crate) struct Remains {
    pub(crate) channel: Channel,
    pub(crate) requests: Requests,
    pub(crate) replies: Replies,
    pub(crate) life: Life,
    /// Bytes of the stream that went out.
    pub(crate) gone: u64,
    /// Nothing was left to be sent, so that the stream is at the end of a request.
    pub(crate) whole: bool,
}

impl Connection {
    /// Takes it apart, to be given up.
    #[cold]
    pub(crate) fn remains(self) -> Remains {
        let Connection { channel, requests, replies, output, life, broken, .. } = self;
        let whole = output.is_empty() && !channel.has_unsent() && broken.is_none();
        Remains { channel, requests, replies, life, gone: output.gone(), whole }
    }
}
