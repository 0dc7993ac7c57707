//! The server's part on one reactor: its connections, and on the first one the listeners.

mod farewell;
mod memory;
mod room;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use weir_access::{Peer, Spell};
use weir_bio::Nanos;
use weir_control::{Classing, PeerPriority};
use weir_live::{Interest, PollRule, Readiness, Service, Turn};
use weir_proto_nbd::server::{Handshake, Settings, Tls};
use weir_queue::Member;

use crate::admission::Ticket;
use crate::connection::{Connection, Introduction, Phase};
use crate::export::Served;
use crate::gate::{Gate, Visitor};
use crate::pool::Pool;
use crate::session::Session;
use crate::shared::{Figures, Shared};
use crate::socket::prepare;
use crate::survey::Found;
use memory::Holder;

/// Tokens of listeners have this bit, those of connections do not.
const LISTENER: u32 = 1 << 31;

/// Connections taken from a listener at once.
const ACCEPTS: usize = 64;

/// No timer of an idle server is faster, ns.
const COARSE_NS: u64 = 1_000_000_000;

/// A place for a connection; the generation tells its tenants apart.
#[derive(Default)]
struct Place {
    generation: u32,
    tenant: Option<Box<Connection>>,
}

/// Names a connection of one service, and no later one in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    place: u32,
    generation: u32,
}

/// A socket that is listened on.
struct Listener {
    fd: Arc<OwnedFd>,
    gate: Arc<Gate>,
    /// No longer asked, because the system had no descriptor left.
    paused: bool,
}

/// The connections of one reactor.
pub(crate) struct NbdService {
    shared: Arc<Shared>,
    index: usize,
    pool: Pool,
    places: Vec<Place>,
    free: Vec<u32>,
    listeners: Vec<Listener>,
    /// Accepting fails again and again.
    shortage: Spell,
    /// Connections something has happened to in this pass.
    dirty: VecDeque<u32>,
    /// Connections that have used up their share of this pass.
    paused: Vec<u32>,
    /// Connections that a cap holds back, and until when.
    throttled: Vec<(Nanos, u32)>,
    /// How often caps were asked again.
    rounds: usize,
    /// No deadline of a connection is earlier; `None`: none has one.
    next_deadline: Option<Nanos>,
    /// Last time a connection had something to do, while there is memory to give back.
    active: Option<Nanos>,
    /// When memory that may come back without a word is next looked for.
    look: Option<Nanos>,
    /// When its connections are next asked for memory that they do not need.
    sweep: Option<Nanos>,
    /// The connection that has the turn of a large request, if that is one of these.
    holder: Option<Holder>,
    stopping: bool,
}

impl NbdService {
    pub(crate) fn new(shared: Arc<Shared>, index: usize) -> NbdService {
        NbdService {
            shared,
            index,
            pool: Pool::default(),
            places: Vec::new(),
            free: Vec::new(),
            listeners: Vec::new(),
            shortage: Spell::default(),
            dirty: VecDeque::new(),
            paused: Vec::new(),
            throttled: Vec::new(),
            rounds: 0,
            next_deadline: None,
            active: None,
            look: None,
            sweep: None,
            holder: None,
            stopping: false,
        }
    }

    /// Listens on a socket that is bound and listening.
    pub(crate) fn listen(&mut self, turn: &mut Turn<'_>, fd: Arc<OwnedFd>, gate: Arc<Gate>) {
        if self.stopping {
            return;
        }
        let token = LISTENER | self.listeners.len() as u32;
        match turn.watch(&fd, token, Interest::READ) {
            Ok(()) => self.listeners.push(Listener { fd, gate, paused: false }),
            Err(error) => tracing::error!(%error, "a listening socket cannot be watched"),
        }
    }

    fn accept(&mut self, turn: &mut Turn<'_>, index: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else { return };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match acceptfrom_with(&listener.fd, flags) {
                Ok((fd, address)) => {
                    let peer = Peer::accepted(&fd, address);
                    let gate = Arc::clone(&listener.gate);
                    self.place(turn, Visitor { fd, peer, name: peer.to_string(), gate });
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return self.pause(turn, index, error),
            }
        }
    }

    /// Accepting fails and would fail again at once: asks again in a second.
    fn pause(&mut self, turn: &mut Turn<'_>, index: usize, error: Errno) {
        if self.shortage.begins(Duration::from_nanos(turn.now().0)) {
            tracing::warn!(
                %error,
                "accepting connections fails: clients wait, and it is tried again each second; \
                 this is told once as long as it lasts"
            );
        }
        let listener = &mut self.listeners[index];
        let nothing = Interest { read: false, write: false };
        if turn.rewatch(&listener.fd, LISTENER | index as u32, nothing).is_ok() {
            listener.paused = true;
            self.wake_by(turn.now() + COARSE_NS);
        }
    }

    fn unpause(&mut self, turn: &mut Turn<'_>) {
        for (index, listener) in self.listeners.iter_mut().enumerate().filter(|(_, l)| l.paused) {
            let token = LISTENER | index as u32;
            listener.paused = turn.rewatch(&listener.fd, token, Interest::READ).is_err();
        }
    }

    /// Gives a new connection to the reactor with the fewest, unless it may not come in here or
    /// there are too many.
    fn place(&mut self, turn: &mut Turn<'_>, visitor: Visitor) {
        let Visitor { name: peer, gate, .. } = &visitor;
        if gate.way_in(&visitor.peer).is_none() {
            let address = gate.address.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%peer, %address, "connection refused: not in the address's allow list");
            return;
        }
        let admission = &self.shared.admission;
        match admission.place(visitor) {
            Some((visitor, ticket)) if ticket.reactor == self.index => {
                self.welcome(turn, visitor, ticket);
            }
            Some((visitor, ticket)) => admission.send(visitor, ticket),
            None => {}
        }
    }

    /// Greets a connection that has been admitted here.
    pub(crate) fn welcome(&mut self, turn: &mut Turn<'_>, visitor: Visitor, ticket: Ticket) {
        if self.stopping {
            return;
        }
        let Visitor { fd, peer: who, name: peer, gate } = visitor;
        if let Err(error) = prepare(&fd) {
            return tracing::warn!(%peer, %error, "connection refused");
        }
        tracing::debug!(%peer, "connection accepted");
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let deadline = turn.now() + self.shared.settings.handshake_timeout_ns;
        let mut greeting = Vec::new();
        let exports = self.shared.exports();
        // The client was let in, or adopted by a gate that lets all clients in.
        let (tls, session) = gate.way_in(&who).unwrap_or((Tls::Require, None));
        let settings = Settings { tls, ..self.shared.settings.handshake };
        let handshake = Handshake::new(exports.advertised_now(), settings, &mut greeting)
            .offering(gate.offers(&exports.served, &who, &[]));
        let tls = session.cloned().map(|tls| {
            let (exports, gate) = (Arc::clone(&exports), Arc::clone(&gate));
            let offers = move |names: &[String]| gate.offers(&exports.served, &who, names);
            Introduction { tls, offers: Box::new(offers) }
        });
        let mut connection = Connection::new(fd, peer, handshake, tls, deadline);
        connection.ticket = Some(ticket);
        connection.vote = Some(turn.vote(PollRule::default()));
        connection.who = who;
        connection.exports = Some(exports);
        connection.out.put(&mut self.pool, |out| out.append(&mut greeting));
        self.places[place as usize].tenant = Some(Box::new(connection));
        self.wake_by(deadline);
        self.touch(place);
        // It is sent when the service settles, and so is the interest in what comes.
        turn.again();
    }

    /// Notes that a connection has to be settled.
    fn touch(&mut self, place: u32) {
        if let Some(Some(connection)) = self.places.get_mut(place as usize).map(|p| &mut p.tenant)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push_back(place);
        }
    }

    /// Connections that have used up their share go on in the next pass. The first of them gets new
    /// memory in any case, so each is the first in its turn.
    fn go_on_next_round(&mut self, turn: &mut Turn<'_>) {
        if self.paused.is_empty() {
            return;
        }
        let mut paused = std::mem::take(&mut self.paused);
        self.rounds = self.rounds.wrapping_add(1);
        let first = self.rounds % paused.len();
        paused.rotate_left(first);
        paused.drain(..).for_each(|place| self.touch(place));
        self.paused = paused;
        turn.again();
    }

    fn tenant(&mut self, place: u32) -> Option<&mut Connection> {
        self.places.get_mut(place as usize)?.tenant.as_deref_mut()
    }

    fn wake_by(&mut self, at: Nanos) {
        self.next_deadline = Some(self.next_deadline.map_or(at, |earliest| earliest.min(at)));
    }

    /// Brings one connection up to date: starts its session, sends, takes in what there is room
    /// for again, listens to what it may, and ends it when it is over.
    fn settle_one(&mut self, turn: &mut Turn<'_>, place: u32) {
        let now = turn.now();
        let Place { generation, tenant } = &mut self.places[place as usize];
        let Some(connection) = tenant else { return };
        connection.dirty = false;
        connection.touched = now;
        let name = Name { place, generation: *generation };
        loop {
            if let Phase::Agreed(_) = connection.phase {
                start(&self.shared, self.index, connection, &mut self.pool, turn, place);
                turn.again();
            }
            ask(turn, name, connection);
            connection.send(&mut self.pool);
            if !connection.resume(&mut self.pool, now) {
                break;
            }
            turn.again();
        }
        if connection.is_over() {
            return self.close(turn, place);
        }
        if let Err(error) = connection.watch(turn, place) {
            tracing::error!(peer = %connection.peer, %error, "a connection cannot be watched");
            return self.end(turn, place, "closed by us: it cannot be watched");
        }
        if connection.is_paused() {
            self.paused.push(place);
        }
        match connection.throttled_until() {
            Some(until) if !connection.throttled => {
                connection.throttled = true;
                connection.note_backlog(now);
                self.throttled.push((until, place));
            }
            Some(_) => {}
            None => connection.end_backlog(),
        }
        if connection.deadline.is_none() && connection.lingers() {
            let deadline = now + self.shared.settings.handshake_timeout_ns;
            connection.deadline = Some(deadline);
            self.wake_by(deadline);
        }
        if self.tenant(place).and_then(Connection::session).is_some_and(|s| s.quota.has_drawn()) {
            self.account(now, name);
        }
    }

    /// Ends a connection that would go on, for this reason.
    fn end(&mut self, turn: &mut Turn<'_>, place: u32, why: &'static str) {
        if let Some(connection) = self.tenant(place) {
            connection.ended = Some(why);
        }
        self.close(turn, place);
    }

    /// Ends a connection.
    fn close(&mut self, turn: &mut Turn<'_>, place: u32) {
        let entry = &mut self.places[place as usize];
        let Some(mut connection) = entry.tenant.take() else { return };
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(place);
        self.throttled.retain(|(_, throttled)| *throttled != place);
        let gone = connection.client.and_then(|client| self.shared.forget_client(client));
        farewell::tell(&connection, gone.as_ref(), turn.now());
        // Its place is given away when everything else is.
        let ticket = connection.ticket.take();
        if let Some(seat) = connection.dissolve(&mut self.pool) {
            turn.leave(seat);
        }
        drop(ticket);
    }
}

impl NbdService {
    /// Refuses whatever is new from now on, and ends connections as they fall idle.
    pub(crate) fn shut_down(&mut self, turn: &mut Turn<'_>) {
        self.stopping = true;
        for listener in self.listeners.drain(..) {
            // A descriptor that was handed to us may have duplicates elsewhere.
            turn.unwatch(&listener.fd);
        }
        let now = turn.now();
        for place in 0..self.places.len() as u32 {
            if let Some(connection) = self.places[place as usize].tenant.as_deref_mut() {
                connection.shut_down(&mut self.pool, now);
                self.touch(place);
            }
        }
        turn.again();
    }

    /// Ends every connection, whatever it owes.
    pub(crate) fn cut(&mut self, turn: &mut Turn<'_>) {
        let why = "closed by us: the stop did not wait any longer";
        (0..self.places.len() as u32).for_each(|place| self.end(turn, place, why));
    }

    /// Lets those in again whose caps may have room by now.
    fn ask_caps_again(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        let due = self.throttled.extract_if(.., |(until, _)| *until <= now);
        let mut due: Vec<u32> = due.map(|(_, place)| place).collect();
        if !due.is_empty() {
            // The connection that asks first takes what a cap has left for all of them.
            self.rounds = self.rounds.wrapping_add(1);
            let first = self.rounds % due.len();
            due.rotate_left(first);
        }
        for place in due {
            let Some(connection) = self.tenant(place) else { continue };
            connection.throttled = false;
            // What came meanwhile came now, as far as is known.
            connection.note_backlog(now);
            if let Some(session) = connection.session() {
                session.ask_caps_again();
            }
            self.touch(place);
            turn.again();
        }
    }

    /// Gives a client's I/O another class, unless it has gone meanwhile.
    pub(crate) fn reclassify(
        &mut self,
        turn: &mut Turn<'_>,
        place: u32,
        client: u64,
        member: Option<Member>,
        to: Classing,
    ) {
        let Some(connection) = self.tenant(place) else { return };
        if connection.client != Some(client) {
            return;
        }
        if let Some(session) = connection.session() {
            session.reclassify(member, to);
        }
        self.touch(place);
        turn.again();
    }

    /// Has the clients of an export ask for its rule of polling, which is another one now.
    pub(crate) fn vote_anew(&mut self, turn: &mut Turn<'_>, export: &Arc<Served>) {
        let connections = self.places.iter_mut().filter_map(|place| place.tenant.as_deref_mut());
        for connection in connections {
            if connection.session().is_some_and(|session| Arc::ptr_eq(&session.export, export)) {
                connection.vote = Some(turn.vote(export.polling()));
            }
        }
    }

    /// Ends a client, whatever it is owed, unless it has gone meanwhile.
    pub(crate) fn dismiss(&mut self, turn: &mut Turn<'_>, place: u32, client: u64) {
        let Some(connection) = self.tenant(place) else { return };
        if connection.client == Some(client) {
            self.end(turn, place, "closed by us, as it was asked for");
        }
    }

    /// Brings the answer to a question.
    fn found(&mut self, turn: &mut Turn<'_>, name: Name, slot: u32, found: &Found) {
        let Place { generation, tenant } = &mut self.places[name.place as usize];
        if *generation != name.generation {
            return;
        }
        if let Some(connection) = tenant {
            connection.found(slot, found, &mut self.pool);
            self.touch(name.place);
            turn.again();
        }
    }
}

impl Service for NbdService {
    fn ready(&mut self, turn: &mut Turn<'_>, token: u32, readiness: Readiness) {
        if token & LISTENER != 0 {
            return self.accept(turn, (token & !LISTENER) as usize);
        }
        let now = turn.now();
        let Some(Place { tenant: Some(connection), .. }) = self.places.get_mut(token as usize)
        else {
            return;
        };
        if readiness.closed {
            connection.peer_closed(&mut self.pool, now);
        } else {
            if readiness.writable {
                connection.writable();
            }
            if readiness.readable {
                connection.receive(&mut self.pool, now);
            }
        }
        self.touch(token);
    }

    fn completed(&mut self, turn: &mut Turn<'_>, token: u32) {
        if let Some(Place { tenant: Some(connection), .. }) = self.places.get_mut(token as usize) {
            connection.completed(&mut self.pool, turn.now());
            self.touch(token);
        }
    }

    fn settle(&mut self, turn: &mut Turn<'_>) {
        if !self.dirty.is_empty() {
            while let Some(place) = self.dirty.pop_front() {
                self.settle_one(turn, place);
            }
            self.go_on_next_round(turn);
            self.note_memory(turn.now());
        }
        if self.pool.next_round() {
            turn.again();
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        let trim = self.active.map(|at| at + COARSE_NS);
        let throttled = self.throttled.iter().map(|(until, _)| *until).min();
        let turn = self.holder.as_ref().map(|holder| holder.until);
        let times = [self.next_deadline, trim, self.look, throttled, self.sweep, turn];
        times.into_iter().flatten().min()
    }

    fn timer(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now();
        self.give_memory_back(now);
        self.ask_caps_again(turn);
        self.sweep(turn);
        self.watch_holder(turn);
        if self.next_deadline.is_none_or(|at| now < at) {
            return;
        }
        self.unpause(turn);
        let mut next = None;
        for place in 0..self.places.len() as u32 {
            let deadline = self.tenant(place).and_then(|connection| connection.deadline);
            match deadline {
                Some(at) if at <= now => {
                    self.end(turn, place, "closed by us: it took too long");
                }
                Some(at) => next = Some(next.map_or(at, |earliest: Nanos| earliest.min(at))),
                None => {}
            }
        }
        if self.listeners.iter().any(|listener| listener.paused) {
            next = Some(now);
        }
        self.next_deadline = next.map(|at| at.max(now + COARSE_NS));
    }
}

/// Gives a connection whose handshake is over its session.
fn start(
    shared: &Arc<Shared>,
    reactor: usize,
    connection: &mut Connection,
    pool: &mut Pool,
    turn: &mut Turn<'_>,
    place: u32,
) {
    let Phase::Agreed(agreed) = &connection.phase else { return };
    let exports = connection.exports.take().expect("it has them until it has a session");
    let export = &exports.served[agreed.export];
    match turn.submitter(&export.device, place) {
        Ok(seat) => {
            let peer = &connection.peer;
            let disk = &export.device.config().name;
            let member = shared.groups.join_on(export.group, disk);
            let member = member.expect("checked when the server began");
            let quota = shared.budget.quota(reactor);
            let (tally, limits) = (seat.submitter.tally(), export.device.limits());
            let process = PeerPriority::of(&connection.who, turn.now());
            let priority = process.seen();
            let session = Session::new(seat, limits, agreed, member, export, quota, process);
            let figures = Figures { tally, held: Arc::clone(&session.backlog.held), priority };
            let told = farewell::negotiated(agreed, connection.is_sealed());
            let name = &agreed.name;
            let at = (reactor, place);
            let client = shared.add_client(export, at, peer, figures, turn.now());
            tracing::info!(%peer, export = %name, client, negotiated = %told, "client connected");
            connection.client = Some(client);
            connection.vote = Some(turn.vote(export.polling()));
            if let Some(ticket) = &connection.ticket {
                shared.admission.opened(ticket.number);
            }
            connection.start(session, pool, turn.now());
            // One that goes now has ended the clients that were noted before.
            if !shared.has(export) {
                turn.handle().post(move |service: &mut NbdService, turn| {
                    service.dismiss(turn, place, client);
                });
            }
        }
        Err(error) => {
            tracing::error!(peer = %connection.peer, %error, "no submitter for a client");
            connection.phase = Phase::Closing(error.to_string());
        }
    }
}

/// Sends a session's questions to those who may block over them.
fn ask(turn: &Turn<'_>, name: Name, connection: &mut Connection) {
    let Phase::Session(session) = &mut connection.phase else { return };
    let questions = session.take_questions();
    if questions.is_empty() {
        return;
    }
    let export = Arc::clone(&session.export);
    let surveyor = &export.surveyor;
    let asker = session.asker.get_or_insert_with(|| surveyor.asker());
    for question in questions {
        let handle = turn.handle();
        let slot = question.slot;
        let answer = move |found: Found| {
            handle.post(move |service: &mut NbdService, turn| {
                service.found(turn, name, slot, &found);
            });
        };
        surveyor.ask(asker, question.range, question.one, answer);
    }
}
