//! The server: who is let in, and what is answered where.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use weir_access::{Address, Listen, Spell};
use weir_control::Tree;

use crate::families::metrics;
use crate::http::{Head, Hosts, Peer, Refusal};
use crate::live::{Live, WATCHERS_MAX};
use crate::page::Page;
use crate::place::{ListenError, Place};

/// Peers at one time; further ones wait to be accepted.
pub const PEERS_MAX: usize = 32;

/// How long no peer is accepted after the system was short of memory or descriptors.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long the end of peers is waited for when the server ends.
const END_LIMIT: Duration = Duration::from_secs(2);

/// How long a text of `/metrics` is given to others who ask.
const FRESH: Duration = Duration::from_secs(1);

/// Bytes of the stack of a peer's thread.
const STACK: usize = 512 << 10;

const METRICS_KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const EVENTS: &str = "text/event-stream";
const TEXT: &str = "text/plain; charset=utf-8";

/// The figures of a daemon at one address. Dropping it ends it: peers are cut off.
pub struct Server {
    place: Arc<Place>,
    house: Arc<House>,
    accepting: Option<JoinHandle<()>>,
}

/// What the threads of a server share.
struct House {
    tree: Arc<Tree>,
    hosts: Hosts,
    /// The last text of `/metrics`: made one at a time, and at most once a second, however many
    /// ask, so peers that do not read hold the same few.
    text: Mutex<Option<(Instant, Arc<str>)>>,
    live: Live,
    peers: Mutex<Peers>,
    /// A peer has gone, or all are to go.
    changed: Condvar,
}

#[derive(Default)]
struct Peers {
    next: u64,
    there: BTreeMap<u64, OwnedFd>,
    closed: bool,
}

impl Server {
    /// Serves the figures of `tree` at an address. A UNIX socket is its owner's alone unless the
    /// address says otherwise; a TCP port beyond loopback has to be meant. It may be asked by
    /// number, as `localhost`, by the name that `listen` has, and by those of `hosts`.
    ///
    /// # Errors
    /// An address that cannot be listened on.
    pub fn open(listen: &Listen, hosts: &[String], tree: Arc<Tree>) -> Result<Server, ListenError> {
        let own = match &listen.address {
            Address::Tcp(address) => address.rsplit_once(':').map(|(host, _)| String::from(host)),
            Address::Unix(_) => None,
        };
        let hosts = Hosts::new(hosts.iter().cloned().chain(own));
        let place = Arc::new(Place::open(listen)?);
        let (text, peers, live) = (Mutex::default(), Mutex::default(), Live::default());
        let house = Arc::new(House { tree, hosts, text, live, peers, changed: Condvar::new() });
        let (ours, theirs) = (Arc::clone(&place), Arc::clone(&house));
        let accept = move || accept(&ours, &theirs);
        let thread = std::thread::Builder::new().name("weir-metrics".into()).spawn(accept);
        let accepting = thread.map_err(|source| ListenError::new(&listen.address, source))?;
        Ok(Server { place, house, accepting: Some(accepting) })
    }

    /// Where it is, with the port that the system chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.place.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut peers = self.house.peers();
        peers.closed = true;
        for socket in peers.there.values() {
            // It may have gone by itself.
            let _ = shutdown(socket, Shutdown::Both);
        }
        drop(peers);
        self.house.changed.notify_all();
        // Wakes the thread that accepts; the system refuses only what is no socket.
        let _ = shutdown(&self.place.socket, Shutdown::Both);
        if let Some(accepting) = self.accepting.take() {
            // A thread that panicked accepts no peer any more either.
            let _ = accepting.join();
        }
        let (house, there) = (&self.house, |peers: &mut Peers| !peers.there.is_empty());
        // One that still sums what it was asked for goes when it has.
        drop(house.changed.wait_timeout_while(house.peers(), END_LIMIT, there));
    }
}

/// A place among the peers, given back when it is dropped.
struct Seat {
    house: Arc<House>,
    number: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.house.peers().there.remove(&self.number);
        self.house.changed.notify_all();
    }
}

impl House {
    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for another peer; false if the server ends.
    fn has_room(&self) -> bool {
        let full = |peers: &mut Peers| peers.there.len() >= PEERS_MAX && !peers.closed;
        let peers = self.changed.wait_while(self.peers(), full);
        !peers.unwrap_or_else(PoisonError::into_inner).closed
    }

    /// A place among the peers; `None` if the server ends.
    fn enter(self: &Arc<House>, peer: &Peer) -> io::Result<Option<Seat>> {
        let mut peers = self.peers();
        if peers.closed {
            return Ok(None);
        }
        let twin = peer.twin()?;
        peers.next += 1;
        let number = peers.next;
        peers.there.insert(number, twin);
        drop(peers);
        Ok(Some(Seat { house: Arc::clone(self), number }))
    }

    fn metrics(&self) -> Arc<str> {
        let mut last = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(text);
        }
        let text: Arc<str> = metrics(self.tree.census()).into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        text
    }
}

/// Accepts peers until the socket is shut down.
fn accept(place: &Place, house: &Arc<House>) {
    let (begun, mut spell) = (Instant::now(), Spell::default());
    let mut told = |what: &str, error: &io::Error| {
        if spell.begins(begun.elapsed()) {
            tracing::warn!("metrics: {what}: {error}; this is told once as long as it lasts");
        }
    };
    while house.has_room() {
        let (socket, admitted) = match place.accept() {
            Ok(accepted) => accepted,
            Err(_) if house.peers().closed => return,
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    told("a peer cannot be accepted, and waits", &error);
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
                continue;
            }
        };
        if !admitted {
            tracing::warn!("metrics: a peer is turned away: not in the allow list");
            continue;
        }
        let peer = Peer::new(socket);
        let seat = loop {
            match house.enter(&peer) {
                Ok(seat) => break seat,
                Err(error) => {
                    told("a peer cannot be served, and waits", &error);
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
            }
        };
        let Some(seat) = seat else { continue };
        let serve = move || {
            serve(peer, &seat.house);
            drop(seat);
        };
        let thread = std::thread::Builder::new().name("weir-metrics-peer".into()).stack_size(STACK);
        if let Err(error) = thread.spawn(serve) {
            told("a peer is turned away: no thread", &error);
        }
    }
}

/// Serves one peer to its end.
fn serve(peer: Peer, house: &House) {
    let answered = match peer.request(&house.hosts) {
        None => return,
        Some(Err(Refusal(status, what))) => say(&peer, status, &what),
        Some(Ok(request)) => {
            let head_only = request.head_only;
            match &*request.path {
                "/metrics" => {
                    let text = house.metrics();
                    let length = Some(text.len());
                    let head = Head { status: OK, kind: METRICS_KIND, fields: &[], length };
                    peer.answer(&head, if head_only { b"" } else { text.as_bytes() })
                }
                "/" => page(&peer, head_only),
                "/events" => watch(&peer, house, head_only),
                path => {
                    let there = "there are /, /events and /metrics";
                    say(&peer, "404 Not Found", &format!("{path}: {there}"))
                }
            }
        }
    };
    // A peer that does not read its answer has no farewell.
    if answered.is_ok() {
        peer.part();
    }
}

fn page(peer: &Peer, head_only: bool) -> io::Result<()> {
    let Page { text, policy } = Page::new()?;
    let fields = &[("Content-Security-Policy", &*policy), ("Referrer-Policy", "no-referrer")];
    let head = Head { status: OK, kind: HTML, fields, length: Some(text.len()) };
    peer.answer(&head, if head_only { b"" } else { text.as_bytes() })
}

/// Sends events until the peer goes, or takes none for [`ANSWER_LIMIT`](crate::http::ANSWER_LIMIT).
fn watch(peer: &Peer, house: &House, head_only: bool) -> io::Result<()> {
    let Some(mut watcher) = house.live.enter() else {
        let what = format!("{WATCHERS_MAX} watch already, and no more are served");
        return say(peer, "503 Service Unavailable", &what);
    };
    let head = Head { status: OK, kind: EVENTS, fields: &[], length: None };
    peer.keep_little()?;
    peer.answer(&head, b"")?;
    if head_only {
        return Ok(());
    }
    while let Some(event) = watcher.next(&house.tree, || house.peers().closed || peer.is_gone()) {
        peer.send_within(event.as_bytes())?;
    }
    Ok(())
}

const OK: &str = "200 OK";

fn say(peer: &Peer, status: &'static str, what: &str) -> io::Result<()> {
    let body = format!("{what}\n");
    peer.answer(
        &Head { status, kind: TEXT, fields: &[], length: Some(body.len()) },
        body.as_bytes(),
    )
}
