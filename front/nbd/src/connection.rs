//! One client: its socket, the handshake and then its [`Session`].

mod sealed;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use weir_access::Peer;
use weir_bio::Nanos;
use weir_live::{Interest, PollVote, Turn};
use weir_proto_nbd::server::{Export, Handshake, Negotiated, Offer, Step};
use weir_tls::ServerTls;

use crate::admission::Ticket;
use crate::channel::{self, Channel};
use crate::export::Exports;
use crate::outbox::{Outbox, Sent};
use crate::pool::Pool;
use crate::session::{End, Session};
use crate::socket::receive_payload;
use crate::survey::Found;

/// Answers of the handshake that a client may leave unread before it is no longer listened to.
const UNREAD_MAX: usize = 64 << 10;

/// Receives from one client before others have their turn.
const RECEIVES: usize = 4;

/// How far a connection is.
pub(crate) enum Phase {
    /// Options are being talked about.
    Handshake(Box<Handshake<Arc<[Export]>>>),
    /// The handshake is over, and its outcome waits for a session.
    Agreed(Box<Negotiated>),
    /// Requests are being served.
    Session(Box<Session>),
    /// The rest of the output is sent, and then the connection ends; the reason, in words.
    Closing(String),
}

/// Tells how each export is offered to a client whose certificate bears these names.
type Offers = dyn FnOnce(&[String]) -> Box<[Offer]> + Send;

/// How a client makes itself known over TLS.
pub(crate) struct Introduction {
    /// The server's side of TLS, from which the session is made.
    pub(crate) tls: ServerTls,
    pub(crate) offers: Box<Offers>,
}

/// The outcome of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Bytes,
    Nothing,
}

/// How a connection has ended.
pub(crate) enum Parting {
    /// As the client wished, or because the server stops.
    InOrder,
    /// The client is not there any more.
    Lost,
    /// It broke the protocol, or was closed on.
    Fault,
}

/// One client's connection, from its greeting to its end.
pub(crate) struct Connection {
    fd: OwnedFd,
    channel: Channel,
    /// Until it has made itself known over TLS, if it may.
    introduction: Option<Introduction>,
    pub(crate) who: Peer,
    /// The same for people.
    pub(crate) peer: String,
    pub(crate) phase: Phase,
    pub(crate) out: Outbox,
    /// Received and not decoded: the beginning of a header, or what a full session left.
    stash: Vec<u8>,
    /// The client sends no more.
    eof: bool,
    /// The client reads no more, or cannot be reached at all.
    gone: bool,
    /// The socket took no more at the last send.
    blocked: bool,
    /// More was to be sent than one connection may have sent in a round.
    unsent: bool,
    /// The events that the socket is watched for; `None` while it is not watched.
    watched: Option<Interest>,
    /// When it is cut off: the end of the handshake's or of the farewell's patience.
    pub(crate) deadline: Option<Nanos>,
    /// Already on the list of those to be settled.
    pub(crate) dirty: bool,
    /// Already on the list of those a cap holds back.
    pub(crate) throttled: bool,
    /// When something last happened to it.
    pub(crate) touched: Nanos,
    /// Its place among all connections.
    pub(crate) ticket: Option<Ticket>,
    /// The exports that it was told of, until it has a session.
    pub(crate) exports: Option<Arc<Exports>>,
    /// Its number among the server's clients, once it has a session.
    pub(crate) client: Option<u64>,
    /// Its say in how its reactor waits: until it has a session it asks for the host's rule.
    pub(crate) vote: Option<PollVote>,
    /// Why the server ends it, if it does.
    pub(crate) ended: Option<&'static str>,
    /// That an export was refused to it stands in the log, where one line of each connection does.
    refusal_told: bool,
}

impl Connection {
    pub(crate) fn new(
        fd: OwnedFd,
        peer: String,
        handshake: Handshake<Arc<[Export]>>,
        introduction: Option<Introduction>,
        deadline: Nanos,
    ) -> Connection {
        Connection {
            fd,
            channel: Channel::Plain,
            introduction,
            who: Peer::Unknown,
            peer,
            phase: Phase::Handshake(Box::new(handshake)),
            out: Outbox::default(),
            stash: Vec::new(),
            eof: false,
            gone: false,
            blocked: false,
            unsent: false,
            watched: None,
            deadline: Some(deadline),
            dirty: false,
            throttled: false,
            touched: Nanos::ZERO,
            ticket: None,
            exports: None,
            client: None,
            vote: None,
            ended: None,
            refusal_told: false,
        }
    }

    /// Whether nothing may be taken in now.
    fn is_full(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) => {
                // Bytes that come before the answer to STARTTLS is sent are left to TLS.
                self.out.bytes() >= UNREAD_MAX || matches!(self.channel, Channel::Starting(_))
            }
            Phase::Agreed(_) => false,
            Phase::Session(session) => session.is_full(&self.out) || session.end.is_some(),
            Phase::Closing(_) => true,
        }
    }

    /// The events that the socket is to be watched for.
    pub(crate) fn interest(&self) -> Option<Interest> {
        let read = !self.eof && !self.is_full();
        let interest = Interest { read, write: self.blocked };
        // A client that is gone is reported for ever, so it is asked about only while the rest of
        // what it sent can be taken in.
        (read || !self.gone).then_some(interest)
    }

    /// Whether something is waiting to be sent.
    #[inline]
    fn has_unsent(&self) -> bool {
        !self.out.is_empty() || self.channel.wants_write()
    }

    /// Whether it goes on in the next round without being told.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.unsent || self.is_held_up()
    }

    /// Whether nothing is taken in until the next round.
    #[inline]
    fn is_held_up(&self) -> bool {
        matches!(&self.phase, Phase::Session(session) if session.is_paused())
    }

    /// Whether its client has a session in which nothing is under way or left to be read.
    pub(crate) fn is_idle(&self) -> bool {
        let Phase::Session(session) = &self.phase else { return false };
        let taken_in = session.is_idle() && !session.is_receiving() && self.stash.is_empty();
        taken_in && !self.has_unsent() && session.end.is_none() && !session.stopping
    }

    /// Whether there is nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        let unsent = !self.gone && self.has_unsent();
        match &self.phase {
            Phase::Handshake(_) => self.eof || self.gone,
            Phase::Agreed(_) => false,
            Phase::Closing(_) => !unsent,
            Phase::Session(session) => {
                let ends = session.end.is_some() || self.eof || session.stopping;
                let done = session.is_idle() && self.stash_is_done(session);
                // A client that left without a word waits for nothing; its I/O ends without it.
                let left = self.gone && session.end.is_none() && self.eof;
                left || (ends && done && !unsent)
            }
        }
    }

    /// Whether nothing of what has been received is still to be looked at.
    fn stash_is_done(&self, session: &Session) -> bool {
        session.end.is_some() || self.stash.len() < session.mode().request_len()
    }

    /// Whether all that keeps it is a client that does not read its last replies.
    pub(crate) fn lingers(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) | Phase::Agreed(_) => false,
            Phase::Closing(_) => true,
            Phase::Session(session) => {
                (session.end.is_some() || self.eof) && session.is_idle() && self.has_unsent()
            }
        }
    }

    /// Why it is over, for the log.
    pub(crate) fn reason(&self) -> String {
        let told = match &self.phase {
            _ if self.ended.is_some() => self.ended.unwrap_or_default(),
            Phase::Closing(why) => why,
            Phase::Session(session) => match &session.end {
                Some(End::Disconnect) => "it disconnected",
                Some(End::Violation(why)) => return format!("protocol error: {why}"),
                Some(End::HeldBack) => "connection lost while it was held back",
                None if session.stopping => "closed by us: the server is shutting down",
                None if self.channel.is_cut() => "connection lost: its stream has no end in TLS",
                None => "connection lost",
            },
            Phase::Handshake(_) | Phase::Agreed(_) => "connection lost in the handshake",
        };
        String::from(told)
    }

    /// How it has ended, for the log.
    pub(crate) fn parting(&self) -> Parting {
        match &self.phase {
            _ if self.ended.is_some() => Parting::Fault,
            Phase::Session(session) => match &session.end {
                Some(End::Disconnect) => Parting::InOrder,
                Some(End::Violation(_)) => Parting::Fault,
                None if session.stopping => Parting::InOrder,
                Some(End::HeldBack) | None => Parting::Lost,
            },
            _ => Parting::Lost,
        }
    }

    /// Whether it talks over TLS.
    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.channel, Channel::Secure(_))
    }

    /// The socket can be read.
    pub(crate) fn receive(&mut self, pool: &mut Pool, now: Nanos) {
        // Bytes received earlier are decoded first, and at most the beginning of a header is left
        // of them.
        self.resume(pool, now);
        if !self.eof && !self.is_full() && !self.is_held_up() {
            self.receive_once(pool, now);
        }
    }

    /// The client has closed both directions, or the socket is broken: takes what it sent before,
    /// as far as there is room.
    pub(crate) fn peer_closed(&mut self, pool: &mut Pool, now: Nanos) {
        self.lose_peer(pool);
        self.read_the_rest(pool, now);
    }

    /// Nothing that is sent will be read.
    fn lose_peer(&mut self, pool: &mut Pool) {
        self.gone = true;
        (self.blocked, self.unsent) = (false, false);
        self.out.close(pool);
        if let Phase::Session(session) = &mut self.phase {
            session.deafen(pool);
        }
    }

    /// Takes in what a client that is gone has sent, until its end, until there is no room, or
    /// until others are to have their turn: it may send without end.
    fn read_the_rest(&mut self, pool: &mut Pool, now: Nanos) {
        for _ in 0..RECEIVES {
            if !self.gone || self.eof || self.is_full() || self.is_held_up() {
                return;
            }
            if self.receive_once(pool, now) == Received::Nothing {
                self.eof = true;
            }
        }
    }

    fn receive_once(&mut self, pool: &mut Pool, now: Nanos) -> Received {
        if let Phase::Session(session) = &mut self.phase
            && !session.has_place(pool)
        {
            return Received::Bytes;
        }
        if let Channel::Secure(_) = self.channel {
            return self.receive_sealed(pool, now);
        }
        let mut input = pool.input();
        let received = match &mut self.phase {
            Phase::Session(session) if session.is_receiving() => {
                receive_payload(self.fd.as_fd(), session, &mut input, pool, now)
            }
            _ => {
                let held = self.stash.len();
                input[..held].copy_from_slice(&self.stash);
                let received = recv(&self.fd, &mut input[held..], RecvFlags::DONTWAIT);
                received.map(|(count, _)| (count, held + count))
            }
        };
        let received = match received {
            Ok((0, _)) => self.ended(),
            Ok((_, behind)) => {
                self.stash.clear();
                self.digest(&input[..behind], pool, now);
                Received::Bytes
            }
            Err(why) => self.failed(why, pool),
        };
        pool.give_input(input);
        received
    }

    /// A receive found the end of what the client sends.
    fn ended(&mut self) -> Received {
        self.eof = true;
        Received::Bytes
    }

    /// A receive gave nothing, for now or because the socket is broken.
    fn failed(&mut self, why: Errno, pool: &mut Pool) -> Received {
        if matches!(why, Errno::AGAIN | Errno::INTR) {
            return Received::Nothing;
        }
        self.lose_peer(pool);
        self.ended()
    }

    /// Takes in what lies in the stash, if there is room again; whether it took anything.
    #[inline]
    pub(crate) fn resume(&mut self, pool: &mut Pool, now: Nanos) -> bool {
        let mut progress = false;
        if let Phase::Session(session) = &mut self.phase {
            // Something may have come back since.
            (session.short, session.paused) = (false, false);
            progress = session.gather(pool, now);
            if session.pieces_first {
                session.resume_pieces(now);
            }
        }
        if !self.stash.is_empty() && !self.is_full() {
            let bytes = std::mem::take(&mut self.stash);
            self.digest(&bytes, pool, now);
            progress |= self.stash.len() != bytes.len();
        }
        if let Phase::Session(session) = &mut self.phase {
            session.resume_pieces(now);
        }
        if self.gone && !self.eof {
            self.read_the_rest(pool, now);
            progress |= self.eof;
        }
        progress
    }

    /// When a cap that holds its session back is to be asked again.
    pub(crate) fn throttled_until(&self) -> Option<Nanos> {
        match &self.phase {
            Phase::Session(session) => session.throttled_until(),
            _ => None,
        }
    }

    /// Takes a note of the requests that wait for the caps of its group.
    #[cold]
    pub(crate) fn note_backlog(&mut self, now: Nanos) {
        let unread = rustix::io::ioctl_fionread(&self.fd).unwrap_or(0);
        if let Phase::Session(session) = &mut self.phase {
            session.note_backlog(unread + self.stash.len() as u64, now);
        }
    }

    /// No cap holds its session back: nothing that comes later is one of those that waited.
    pub(crate) fn end_backlog(&mut self) {
        let goes_on = self.is_paused();
        if let Phase::Session(session) = &mut self.phase
            && !goes_on
        {
            session.end_backlog();
        }
    }

    /// Gives back what it may hold and does not need; whether a request of its waits for memory.
    pub(crate) fn shrink(&mut self) -> bool {
        let Phase::Session(session) = &mut self.phase else { return false };
        let held = session.memory(&self.out);
        session.quota.shrink(held);
        session.short
    }

    /// Bytes that its client is to send or to read before anything else can happen.
    pub(crate) fn owed(&self) -> usize {
        match &self.phase {
            Phase::Session(session) => session.owed(&self.out),
            _ => 0,
        }
    }

    /// Its session, while there is one.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Session(session) => Some(session),
            _ => None,
        }
    }

    /// Completions have come for its session.
    #[inline]
    pub(crate) fn completed(&mut self, pool: &mut Pool, now: Nanos) {
        if let Phase::Session(session) = &mut self.phase {
            session.complete(&mut self.out, pool, now);
        }
        self.resume(pool, now);
    }

    /// The answer to a question has come.
    pub(crate) fn found(&mut self, slot: u32, found: &Found, pool: &mut Pool) {
        if let Phase::Session(session) = &mut self.phase {
            session.answer(slot, found, &mut self.out, pool);
        }
    }

    /// Makes what is heard of the socket what there is to hear.
    #[inline]
    pub(crate) fn watch(&mut self, turn: &Turn<'_>, token: u32) -> io::Result<()> {
        let wanted = self.interest();
        if wanted == self.watched {
            return Ok(());
        }
        match (self.watched, wanted) {
            (None, Some(interest)) => turn.watch(&self.fd, token, interest)?,
            (Some(_), Some(interest)) => turn.rewatch(&self.fd, token, interest)?,
            (_, None) => turn.unwatch(&self.fd),
        }
        self.watched = wanted;
        Ok(())
    }

    /// Decodes bytes; what cannot be taken in now goes to the stash.
    fn digest(&mut self, mut bytes: &[u8], pool: &mut Pool, now: Nanos) {
        loop {
            let used = match &mut self.phase {
                Phase::Handshake(_) => self.negotiate(bytes, pool),
                Phase::Session(session) => {
                    let used = session.take_in(bytes, &mut self.out, pool, now);
                    session.flush(now);
                    used
                }
                Phase::Agreed(_) | Phase::Closing(_) => 0,
            };
            bytes = &bytes[used..];
            let go_on = matches!(self.phase, Phase::Handshake(_)) && !self.is_full();
            if used == 0 || bytes.is_empty() || !go_on {
                break;
            }
        }
        // The bytes behind the end are not asked for again.
        if !matches!(self.phase, Phase::Closing(_)) {
            self.stash.extend_from_slice(bytes);
        }
        if self.stash.is_empty() {
            self.stash = Vec::new();
        }
    }

    fn negotiate(&mut self, bytes: &[u8], pool: &mut Pool) -> usize {
        let Phase::Handshake(handshake) = &mut self.phase else { return 0 };
        let input = self.out.put(pool, |out| handshake.input(bytes, out));
        if let Some(export) = handshake.take_refused()
            && !std::mem::replace(&mut self.refusal_told, true)
        {
            let peer = &self.peer;
            tracing::warn!(%peer, %export, "export refused: not in the export's allow list");
        }
        match input.step {
            Step::NeedMore | Step::Answered => {}
            Step::StartTls => self.start_tls(),
            Step::Transmission(agreed) => self.phase = Phase::Agreed(Box::new(agreed)),
            Step::Close(why) => self.phase = Phase::Closing(why.to_string()),
        }
        input.consumed
    }

    /// The client has been granted TLS.
    fn start_tls(&mut self) {
        let session = self.introduction.as_ref().map(|introduction| introduction.tls.session());
        match session.expect("granted where there are certificates only") {
            Ok(session) => self.channel = Channel::Starting(Box::new(session)),
            Err(why) => self.phase = Phase::Closing(why.to_string()),
        }
    }

    /// Starts serving requests, beginning with those received already.
    pub(crate) fn start(&mut self, session: Session, pool: &mut Pool, now: Nanos) {
        self.phase = Phase::Session(Box::new(session));
        self.deadline = None;
        self.resume(pool, now);
    }

    /// From now on everything new is refused.
    pub(crate) fn shut_down(&mut self, pool: &mut Pool, now: Nanos) {
        match &mut self.phase {
            Phase::Handshake(handshake) => {
                handshake.shut_down();
                self.receive(pool, now);
                // Whatever it was about to ask, this is the time to close.
                if let Phase::Handshake(_) | Phase::Agreed(_) = self.phase {
                    self.phase = Phase::Closing("server is shutting down".into());
                }
            }
            Phase::Agreed(_) => self.phase = Phase::Closing("server is shutting down".into()),
            Phase::Session(session) => {
                session.stopping = true;
                // The caps that hold the session back no longer count.
                session.ask_caps_again();
                self.resume(pool, now);
                self.receive(pool, now);
            }
            Phase::Closing(_) => {}
        }
    }

    /// Sends what has gathered, unless the socket is known to take nothing.
    pub(crate) fn send(&mut self, pool: &mut Pool) {
        self.unsent = false;
        if self.gone {
            return self.out.close(pool);
        }
        if self.blocked || !self.has_unsent() {
            return;
        }
        let sent = match &mut self.channel {
            Channel::Plain | Channel::Starting(_) => self.out.send(&self.fd, pool),
            Channel::Secure(secure) => {
                channel::send(&mut secure.session, &self.fd, &mut self.out, pool)
            }
        };
        match sent {
            Ok(Sent::All) => self.channel.all_sent(),
            Ok(Sent::Blocked) => self.blocked = true,
            Ok(Sent::Paused) => self.unsent = true,
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "client reads no more");
                self.lose_peer(pool);
            }
        }
    }

    /// The socket takes bytes again.
    pub(crate) fn writable(&mut self) {
        self.blocked = false;
    }

    /// Gives back what the connection holds.
    pub(crate) fn dissolve(mut self, pool: &mut Pool) -> Option<weir_live::Seat> {
        if !self.gone && !self.blocked {
            self.channel.farewell(&self.fd);
        }
        self.out.close(pool);
        match self.phase {
            Phase::Session(session) => Some(session.dissolve(pool)),
            _ => None,
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    #[test]
    fn so_many_receives_are_a_turn_and_no_more() {
        // One receive takes one of the messages, however short.
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let mut greeting = Vec::new();
        let settings = weir_proto_nbd::server::Settings::default();
        let handshake = Handshake::new(Arc::from([]), settings, &mut greeting);
        let peer = String::from("nobody");
        let fd = ours.try_clone().unwrap();
        let mut connection = Connection::new(fd, peer, handshake, None, Nanos::ZERO);
        let option = [&b"IHAVEOPT"[..], &3_u32.to_be_bytes(), &[0; 4]].concat();
        send(&theirs, &3_u32.to_be_bytes(), SendFlags::empty()).unwrap();
        for _ in 0..19 {
            send(&theirs, &option, SendFlags::empty()).unwrap();
        }
        connection.peer_closed(&mut Pool::default(), Nanos::ZERO);
        assert!(!connection.eof, "there is more");
        let mut left = 0;
        while recv(&ours, &mut [0; 64], RecvFlags::empty()).is_ok() {
            left += 1;
        }
        assert_eq!(left, 20 - RECEIVES);
    }
}
