//! A connection that was given up while its server may still carry out what it was sent.
//!
//! A server that is stopped, or behind a line that is cut, has our requests in its receive buffer
//! and carries them out when it goes on. So what changes sectors keeps its tag until the server has
//! answered it here, or has ended the connection. An answer that comes so late acknowledges
//! nothing: a write goes out again on the new connection, whose flushes then cover it.
//!
//! The socket is not shut at once. Some servers (qemu-nbd 7.2) end a connection when they find its
//! end of file, before what they carry out has ended, so an answer is the better proof. Only a
//! server that works on a new connection and has been silent here for [`GRACE_NS`] is asked to end
//! this one.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use weir_bio::{Data, Nanos, Status};
use weir_proto_nbd::client::{Event, Outstanding, Pending, Replies};
use weir_proto_nbd::wire::{Command, Request as Wire};
use weir_queue::{Cancel, Tag};
use weir_tls::TlsError;

use crate::channel::Channel;
use crate::connection::{Lost, Remains};
use crate::durability::{Durability, Promise, Ticket};
use crate::slots::{Slots, Unanswered};

/// How long a server that works elsewhere may be silent here before it is asked to end.
pub(crate) const GRACE_NS: u64 = 10_000_000_000;

/// Bytes received in one turn.
const TURN_MAX: usize = 1 << 20;

/// The cookie of the last flush: no tag has so large an index.
const LAST: u64 = u64::MAX;

/// A connection that was given up.
pub(crate) struct Parting {
    channel: Channel,
    /// `None`: the stream has lost its step, and only its end is waited for.
    replies: Option<Replies>,
    owed: Vec<Owed>,
    /// The last flush, until it has ended.
    vouch: Option<Ticket>,
    heard_at: Nanos,
    shut: bool,
    /// Whether the queue's event tells of it.
    announced: bool,
}

/// A request that the server may still carry out.
struct Owed {
    cookie: u64,
    pending: Pending,
    /// The request's tag and memory, for the answer; `None` if the request changes nothing.
    held: Option<Held>,
    promise: Option<Promise>,
}

struct Held {
    tag: Tag,
    lent: Vec<Data>,
    cancelled: bool,
}

struct Table<'a>(&'a mut Vec<Owed>);

impl Outstanding for Table<'_> {
    fn find(&mut self, cookie: u64) -> Option<&mut Pending> {
        let owed = self.0.iter_mut().find(|owed| owed.cookie == cookie);
        owed.map(|owed| &mut owed.pending)
    }
}

/// How the queue wants requests to end.
#[derive(Clone, Copy)]
pub(crate) struct Fate {
    /// The request whose time is up.
    pub(crate) cancelled: Option<Tag>,
    /// How others end; `None`: they are sent again.
    pub(crate) end: Option<Status>,
}

impl Fate {
    /// How the request with this tag ends. The submitter of one that was cancelled has been told.
    pub(crate) fn of(self, tag: Tag) -> Option<Status> {
        if self.cancelled == Some(tag) { Some(Status::Timeout) } else { self.end }
    }
}

impl Parting {
    /// Gives a connection up that has been counted as lost. Requests that change nothing, and those
    /// that never went out, go back to `slots`.
    pub(crate) fn new(
        remains: Remains,
        why: &Lost,
        unanswered: Vec<Unanswered>,
        fate: Fate,
        slots: &mut Slots,
        durability: &Durability,
        now: Nanos,
    ) -> Parting {
        let Remains { channel, requests, replies, life, gone, whole } = remains;
        let in_step = !matches!(why, Lost::Protocol(_) | Lost::Early | Lost::Tls(_));
        let replies = in_step.then_some(replies);
        let (shut, announced) = (false, true);
        let (owed, vouch) = (Vec::new(), None);
        let mut parting = Parting { channel, replies, owed, vouch, heard_at: now, shut, announced };
        for Unanswered { tag, cookie, pending, lent, start, promise } in unanswered {
            let changes =
                matches!(pending.command(), Command::WRITE | Command::WRITE_ZEROES | Command::TRIM);
            let held = if changes && start < gone {
                Some(Held { tag, lent, cancelled: fate.cancelled == Some(tag) })
            } else {
                slots.give_back(tag, lent, fate.of(tag));
                None
            };
            if start < gone {
                parting.owed.push(Owed { cookie, pending, held, promise });
            }
        }
        if !in_step {
            parting.shut();
        } else if whole && let Some(ticket) = durability.vouch(&life) {
            parting.vouch = Some(ticket);
            let mut bytes = Vec::new();
            let flush = Wire::new(Command::FLUSH, LAST, 0, 0);
            let pending = requests.push(&flush, &mut bytes);
            match (pending, parting.channel.send(&bytes)) {
                (Ok(pending), Ok(sent)) if sent == bytes.len() && !parting.channel.has_unsent() => {
                    let (cookie, promise) = (LAST, Some(Promise::Everything));
                    parting.owed.push(Owed { cookie, pending, held: None, promise });
                }
                _ => parting.end_vouch(durability, false),
            }
        }
        parting
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Whether its event is to be left out from now on: what comes here is nonsense, and a server
    /// that never stops sending it would keep the thread. Its end is found at the next look.
    pub(crate) fn falls_silent(&mut self) -> bool {
        self.replies.is_none() && std::mem::take(&mut self.announced)
    }

    /// Whether the last flush has not ended.
    pub(crate) fn vouches(&self) -> bool {
        self.vouch.is_some()
    }

    /// Requests that keep their tags.
    pub(crate) fn held(&self) -> usize {
        self.owed.iter().filter(|owed| owed.held.is_some()).count()
    }

    /// Whether nothing is waited for any more.
    pub(crate) fn is_over(&self) -> bool {
        self.vouch.is_none() && self.held() == 0
    }

    fn shut(&mut self) {
        self.shut = true;
        self.channel.shut();
    }

    fn end_vouch(&mut self, durability: &Durability, well: bool) {
        if let Some(ticket) = self.vouch.take() {
            durability.vouched(ticket, well);
        }
    }

    /// A request whose time is up; `None` when it is not one of these.
    pub(crate) fn cancel(&mut self, tag: Tag) -> Option<Cancel> {
        let mut held = self.owed.iter_mut().filter_map(|owed| owed.held.as_mut());
        held.find(|held| held.tag == tag)?.cancelled = true;
        Some(Cancel::Pending)
    }

    /// Asks the server to end, if it works elsewhere since `alive_since` and is silent here.
    pub(crate) fn urge(&mut self, alive_since: Nanos, now: Nanos) {
        if !self.shut && now >= self.heard_at.max(alive_since) + GRACE_NS {
            self.shut();
        }
    }

    /// Receives what is there, and gives requests back that the server has answered; all of them
    /// when it has ended the connection, which is over then.
    pub(crate) fn step(
        &mut self,
        window: &mut [u8],
        end: Option<Status>,
        slots: &mut Slots,
        durability: &Durability,
        now: Nanos,
    ) {
        let mut received = 0;
        while received < TURN_MAX {
            match recv(self.socket(), &mut *window, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.end_all(end, slots, durability),
                Ok((got, _)) => {
                    received += got;
                    self.heard_at = now;
                    self.take_in(&window[..got], end, slots, durability);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(errno) if Lost::Receive(errno).is_end() => {
                    return self.end_all(end, slots, durability);
                }
                Err(_) => return,
            }
        }
    }

    /// Takes in what was received, in records or not.
    fn take_in(
        &mut self,
        bytes: &[u8],
        end: Option<Status>,
        slots: &mut Slots,
        durability: &Durability,
    ) {
        let Some(mut session) = self.channel.take_session() else {
            return self.digest(bytes, end, slots, durability);
        };
        let opened = session.open(bytes, |plain| {
            self.digest(plain, end, slots, durability);
            Ok::<(), TlsError>(())
        });
        self.channel.put_session(session);
        if opened.is_err() {
            self.replies = None;
            self.end_vouch(durability, false);
            self.shut();
        }
    }

    /// Follows the stream for as long as it can be followed.
    fn digest(
        &mut self,
        mut bytes: &[u8],
        end: Option<Status>,
        slots: &mut Slots,
        durability: &Durability,
    ) {
        let Some(mut replies) = self.replies.take() else { return };
        loop {
            match replies.next(&mut bytes, &mut Table(&mut self.owed)) {
                Ok(Event::NeedMore) => break,
                Ok(Event::Done { cookie, result }) => {
                    let place = self.owed.iter().position(|owed| owed.cookie == cookie);
                    let owed = self.owed.swap_remove(place.expect("the decoder has found it"));
                    if let (Some(promise), Err(error)) = (owed.promise, result) {
                        durability.failed(promise, error);
                    }
                    if cookie == LAST {
                        self.end_vouch(durability, result.is_ok());
                    }
                    give_back(owed, end, slots);
                }
                Ok(_) => {}
                Err(_) => {
                    self.end_vouch(durability, false);
                    return self.shut();
                }
            }
        }
        self.replies = Some(replies);
    }

    /// The server has let go of everything.
    fn end_all(&mut self, end: Option<Status>, slots: &mut Slots, durability: &Durability) {
        for owed in std::mem::take(&mut self.owed) {
            give_back(owed, end, slots);
        }
        self.end_vouch(durability, false);
    }

    /// The queue is closed.
    pub(crate) fn drop_all(mut self, durability: &Durability) {
        self.end_vouch(durability, false);
    }
}

fn give_back(owed: Owed, end: Option<Status>, slots: &mut Slots) {
    if let Some(Held { tag, lent, cancelled }) = owed.held {
        slots.give_back(tag, lent, if cancelled { Some(Status::Timeout) } else { end });
    }
}
