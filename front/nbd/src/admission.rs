//! Which connections get a place.
//!
//! Places are bounded, all together and for each peer: the user of a local client, the address of
//! another. When all are taken, a newcomer of a peer with places of its own left waits a moment
//! while room is made, in this order:
//!
//! 1. The connection that is longest in its handshake is closed, if that is [`HANDSHAKE_LEAST_NS`]
//!    or more.
//! 2. Of the peer with the most places, the client that did nothing for the longest time is closed,
//!    if that is [`Settings::idle_least_ns`](crate::Settings) or more. It has no request under way
//!    and nothing left to read. That peer keeps at least as many places as the newcomer's then has:
//!    one that has a single connection, as a mounted disk's client may be, does not lose it, and no
//!    client loses its place to another of its own peer.
//!
//! Otherwise the newcomer is refused: closed without a word.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weir_access::Peer;
use weir_bio::Nanos;
use weir_live::Clock;

use crate::budget::Budget;
use crate::gate::Visitor;
use crate::settings::Settings;

/// A handshake that lasts shorter makes no room, ns: many that come at once would end each other.
const HANDSHAKE_LEAST_NS: u64 = 1_000_000_000;

/// Newcomers that wait while room is made.
const WAITING_MAX: usize = 16;

/// A peer whose places are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kin {
    User(u32),
    Address(IpAddr),
    Unknown,
}

impl Kin {
    pub(crate) fn of(peer: &Peer) -> Kin {
        match peer {
            Peer::Process { uid, .. } => Kin::User(*uid),
            Peer::Host(address) => Kin::Address(address.ip().to_canonical()),
            Peer::Unknown => Kin::Unknown,
        }
    }
}

/// A connection as all reactors know it.
struct Entry {
    kin: Kin,
    reactor: usize,
    since: Nanos,
    is_open: bool,
}

/// A client that might make room: when it last did something, its number and its reactor.
pub(crate) type Idler = (Nanos, u64, usize);

#[derive(Default)]
struct Book {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    /// Connections on each reactor.
    loads: Vec<usize>,
    waiting: VecDeque<Visitor>,
    /// Room is being made.
    busy: bool,
    /// Reactors that have not said which of their clients is idle, and the idlest so far.
    unheard: usize,
    idlest: Option<Idler>,
}

/// A task of the connections of one reactor.
pub(crate) enum Errand {
    /// Greet a connection that was admitted there.
    Welcome(Visitor, Ticket),
    /// Close this connection if it is still in its handshake.
    EndHandshake(u64),
    /// Find the client of this peer that has been idle the longest.
    TellIdlest(Kin),
    /// Close this client if it has done nothing since.
    EndIdle(u64, Nanos),
}

/// Hands an errand to the connections of a reactor.
type Tell = Box<dyn Fn(usize, Errand) + Send + Sync>;

/// The places of a server.
pub(crate) struct Admission {
    settings: Settings,
    budget: Arc<Budget>,
    book: Mutex<Book>,
    left: Condvar,
    tell: OnceLock<Tell>,
}

/// A place, until it is dropped.
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    pub(crate) number: u64,
    pub(crate) reactor: usize,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.admission.leave(self.number);
    }
}

/// The next action, done when the book's lock is released.
enum Step {
    Nothing,
    /// Close this connection if it is still in its handshake.
    EndHandshake(u64, usize),
    /// Find out who of this peer is idle.
    Search(Kin),
    /// These find no place.
    Refuse(Vec<Visitor>),
}

/// Why a connection gets no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All are taken.
    Full,
    /// Its peer has as many as it may.
    Peer,
    /// I/O of clients that left takes all memory.
    Memory,
}

impl Admission {
    /// Places on so many reactors.
    pub(crate) fn new(settings: Settings, budget: Arc<Budget>, reactors: usize) -> Arc<Admission> {
        let book = Book { loads: vec![0; reactors], ..Book::default() };
        let (book, left, tell) = (Mutex::new(book), Condvar::new(), OnceLock::new());
        Arc::new(Admission { settings, budget, book, left, tell })
    }

    /// Sets the way to the connections of each reactor. Set once, before the first connection.
    pub(crate) fn on_errand(&self, tell: impl Fn(usize, Errand) + Send + Sync + 'static) {
        assert!(self.tell.set(Box::new(tell)).is_ok(), "said once");
    }

    fn tell(&self, reactor: usize, errand: Errand) {
        (self.tell.get().expect("connections come after the way to them"))(reactor, errand);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections there are.
    pub(crate) fn count(&self) -> usize {
        self.book().entries.len()
    }

    /// Whether a connection is of this peer.
    pub(crate) fn is_of(&self, kin: Kin, number: u64) -> bool {
        self.book().entries.get(&number).is_some_and(|entry| entry.kin == kin)
    }

    /// The handshake of a connection is over.
    pub(crate) fn opened(&self, number: u64) {
        if let Some(entry) = self.book().entries.get_mut(&number) {
            entry.is_open = true;
        }
    }

    /// Waits until there is no connection, `limit_ns` at most; whether it came to that.
    pub(crate) fn wait_until_empty(&self, limit_ns: u64) -> bool {
        let busy = |book: &mut Book| !book.entries.is_empty();
        let limit = Duration::from_nanos(limit_ns);
        let waited = self.left.wait_timeout_while(self.book(), limit, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Refuses those that wait for a place.
    pub(crate) fn close(&self) {
        let waiting = std::mem::take(&mut self.book().waiting);
        drop(waiting);
    }
}

impl Book {
    /// The places that a peer has, and those that it waits for: it may get every one of them.
    fn places_of(&self, kin: Kin) -> usize {
        let waiting = self.waiting.iter().filter(|visitor| Kin::of(&visitor.peer) == kin);
        self.entries.values().filter(|entry| entry.kin == kin).count() + waiting.count()
    }

    /// Takes a place on the reactor with the fewest.
    fn take(&mut self, kin: Kin, since: Nanos) -> (u64, usize) {
        let least = (0..self.loads.len()).min_by_key(|&reactor| self.loads[reactor]);
        let reactor = least.expect("a server has reactors");
        self.loads[reactor] += 1;
        self.next += 1;
        let entry = Entry { kin, reactor, since, is_open: false };
        self.entries.insert(self.next, entry);
        (self.next, reactor)
    }

    /// How room is made for the first that waits.
    fn make_room(&mut self, now: Nanos) -> Step {
        let Some(first) = self.waiting.front() else { return Step::Nothing };
        if self.busy {
            return Step::Nothing;
        }
        let kin = Kin::of(&first.peer);
        // Numbers ascend, so the first has been there the longest.
        let half_open = self.entries.iter().find(|(_, entry)| !entry.is_open);
        if let Some((number, entry)) = half_open
            && entry.since + HANDSHAKE_LEAST_NS <= now
        {
            self.busy = true;
            return Step::EndHandshake(*number, entry.reactor);
        }
        let mut counts = BTreeMap::new();
        self.entries.values().for_each(|entry| *counts.entry(entry.kin).or_insert(0) += 1);
        let most = counts.iter().max_by_key(|(_, count)| **count);
        if let Some((greediest, count)) = most
            && *count > counts.get(&kin).copied().unwrap_or(0) + 1
        {
            (self.busy, self.unheard, self.idlest) = (true, self.loads.len(), None);
            return Step::Search(*greediest);
        }
        Step::Refuse(self.waiting.drain(..).collect())
    }
}

impl Admission {
    /// A place for a connection; it may wait for one, or be refused.
    pub(crate) fn place(self: &Arc<Admission>, visitor: Visitor) -> Option<(Visitor, Ticket)> {
        match self.admit(&visitor.peer) {
            Ok(ticket) => return Some((visitor, ticket)),
            Err(NoPlace::Full) => self.wait_for_room(visitor),
            Err(why) => self.refuse(&visitor, why),
        }
        None
    }

    /// Sends a connection to the reactor that its place is on.
    pub(crate) fn send(&self, visitor: Visitor, ticket: Ticket) {
        self.tell(ticket.reactor, Errand::Welcome(visitor, ticket));
    }

    /// Gives a new connection a place on the reactor with the fewest.
    pub(crate) fn admit(self: &Arc<Admission>, peer: &Peer) -> Result<Ticket, NoPlace> {
        if self.budget.is_overdrawn() {
            return Err(NoPlace::Memory);
        }
        let kin = Kin::of(peer);
        let mut book = self.book();
        if book.places_of(kin) >= self.settings.connections_per_peer {
            return Err(NoPlace::Peer);
        }
        if book.entries.len() >= self.settings.connections_max || !book.waiting.is_empty() {
            return Err(NoPlace::Full);
        }
        let (number, reactor) = book.take(kin, Clock.now());
        Ok(Ticket { admission: Arc::clone(self), number, reactor })
    }

    /// Lets a newcomer wait while room is made, or refuses it.
    fn wait_for_room(self: &Arc<Admission>, visitor: Visitor) {
        let mut book = self.book();
        if book.waiting.len() >= WAITING_MAX {
            drop(book);
            return self.refuse(&visitor, NoPlace::Full);
        }
        book.waiting.push_back(visitor);
        let step = book.make_room(Clock.now());
        drop(book);
        self.go(step);
    }

    /// An attempt to make room has ended: goes on with the next visitor.
    pub(crate) fn go_on(self: &Arc<Admission>) {
        let mut book = self.book();
        book.busy = false;
        let step = book.make_room(Clock.now());
        drop(book);
        self.go(step);
    }

    fn go(self: &Arc<Admission>, step: Step) {
        match step {
            Step::Nothing => {}
            Step::EndHandshake(number, reactor) => {
                self.tell(reactor, Errand::EndHandshake(number));
            }
            Step::Search(kin) => {
                let reactors = self.book().loads.len();
                (0..reactors).for_each(|reactor| self.tell(reactor, Errand::TellIdlest(kin)));
            }
            Step::Refuse(visitors) => self.refuse_all(&visitors),
        }
    }

    /// A reactor says which of its clients has been idle the longest.
    pub(crate) fn hear_of(self: &Arc<Admission>, idlest: Option<Idler>) {
        let mut book = self.book();
        book.idlest = [book.idlest, idlest].into_iter().flatten().min();
        book.unheard -= 1;
        if book.unheard > 0 {
            return;
        }
        let found = book.idlest.take();
        let refused: Vec<Visitor> = match found {
            Some(_) => Vec::new(),
            None => {
                book.busy = false;
                book.waiting.drain(..).collect()
            }
        };
        drop(book);
        self.refuse_all(&refused);
        if let Some((touched, number, reactor)) = found {
            self.tell(reactor, Errand::EndIdle(number, touched));
        }
    }

    fn refuse_all(&self, visitors: &[Visitor]) {
        visitors.iter().for_each(|visitor| self.refuse(visitor, NoPlace::Full));
    }

    /// Says that a newcomer gets no place; dropping it closes it.
    fn refuse(&self, visitor: &Visitor, why: NoPlace) {
        let (peer, settings) = (&visitor.name, &self.settings);
        match why {
            NoPlace::Full => {
                let limit = settings.connections_max;
                tracing::warn!(%peer, limit, "connection refused: too many");
            }
            NoPlace::Peer => {
                let limit = settings.connections_per_peer;
                tracing::warn!(%peer, limit, "connection refused: too many of this peer");
            }
            NoPlace::Memory => {
                let held = self.budget.held();
                tracing::warn!(%peer, held, "connection refused: no memory beside orphaned I/O");
            }
        }
    }

    /// A connection has ended; its place goes to the first that waits for one.
    fn leave(self: &Arc<Admission>, number: u64) {
        let mut book = self.book();
        let Some(entry) = book.entries.remove(&number) else { return };
        book.loads[entry.reactor] -= 1;
        self.left.notify_all();
        let Some(visitor) = book.waiting.pop_front() else { return };
        let (number, reactor) = book.take(Kin::of(&visitor.peer), Clock.now());
        drop(book);
        let ticket = Ticket { admission: Arc::clone(self), number, reactor };
        self.send(visitor, ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use weir_access::Allow;

    use crate::channel::Security;
    use crate::gate::{Gate, Scope};

    fn visitor(uid: u32) -> Visitor {
        let gate = Gate {
            address: None,
            allow: Allow::default(),
            scope: Scope::All,
            security: Security::default(),
        };
        let peer = Peer::Process { uid, gid: 0, pid: 0 };
        let fd = UnixStream::pair().expect("a pair").0.into();
        Visitor { fd, peer, name: String::new(), gate: Arc::new(gate) }
    }

    /// A book in which these users have so many places, taken one second after the other.
    fn book(places: &[(u32, usize)]) -> Book {
        let mut book = Book { loads: vec![0; 2], ..Book::default() };
        for (uid, count) in places {
            for _ in 0..*count {
                let since = Nanos(book.next * 1_000_000_000);
                let (number, _) = book.take(Kin::User(*uid), since);
                book.entries.get_mut(&number).expect("just taken").is_open = true;
            }
        }
        book
    }

    fn step(book: &mut Book, uid: u32) -> Step {
        book.busy = false;
        book.waiting.clear();
        book.waiting.push_back(visitor(uid));
        book.make_room(Nanos(60_000_000_000))
    }

    #[test]
    fn the_oldest_handshake_goes_first_unless_it_has_just_begun() {
        let mut book = book(&[(1, 3), (2, 3)]);
        for number in [3, 5] {
            book.entries.get_mut(&number).expect("a place").is_open = false;
        }
        assert!(matches!(step(&mut book, 9), Step::EndHandshake(3, 0)));
        assert!(matches!(book.make_room(Nanos(0)), Step::Nothing), "one at a time");
        book.entries.get_mut(&3).expect("a place").since = Nanos(59_000_000_001);
        assert!(matches!(step(&mut book, 9), Step::Search(_)), "young handshakes are let be");
    }

    #[test]
    fn only_the_peer_with_the_most_places_is_looked_at_and_keeps_as_many_as_the_newcomer() {
        for (places, uid, searched) in [
            (&[(1, 5), (2, 3)][..], 9, Some(1)),
            (&[(1, 5), (2, 3)], 2, Some(1)),
            (&[(1, 5), (2, 4)], 2, None),
            (&[(1, 5), (2, 3)], 1, None),
            (&[(1, 2), (2, 1)], 9, Some(1)),
            (&[(1, 1), (2, 1)], 9, None),
        ] {
            match step(&mut book(places), uid) {
                Step::Search(kin) => assert_eq!(Some(kin), searched.map(Kin::User), "{places:?}"),
                Step::Refuse(refused) => assert!(searched.is_none() && refused.len() == 1),
                Step::Nothing | Step::EndHandshake(..) => panic!("{places:?}"),
            }
        }
    }

    #[test]
    fn newcomers_that_wait_count_among_the_places_of_their_peer() {
        let mut book = book(&[(1, 3), (2, 1)]);
        book.waiting.extend([visitor(2), visitor(2), visitor(3)]);
        let counts = [1, 2, 3, 4].map(|uid| book.places_of(Kin::User(uid)));
        assert_eq!(counts, [3, 3, 1, 0]);
    }

    #[test]
    fn an_address_is_one_peer_whatever_its_port_and_form() {
        let kin = |address: &str| Kin::of(&Peer::Host(address.parse().expect("an address")));
        assert_eq!(kin("10.0.0.1:1"), kin("10.0.0.1:2"));
        assert_eq!(kin("10.0.0.1:1"), kin("[::ffff:10.0.0.1]:1"));
        assert_ne!(kin("10.0.0.1:1"), kin("10.0.0.2:1"));
    }
}
