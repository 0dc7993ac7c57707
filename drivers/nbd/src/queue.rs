//! A hard queue: one connection, and how it is made again when it is lost.
//!
//! Nothing here blocks. Time comes from the caller; a connection on its way is turned by the same
//! calls that turn requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use weir_bio::{Nanos, Status};
use weir_queue::{Batch, Done, DriverError, DriverQueue};

use crate::agreed;
use crate::connection::{Answers, Connection, Lost, Received};
use crate::dial::{Dial, Opened, Progress};
use crate::nbd::Shared;
use crate::slots::Slots;

/// Bytes received by one system call, when small replies come in numbers: some 60 of 4 KiB.
const WINDOW: usize = 256 << 10;

/// A reap that has received so many bytes leaves the rest for the next one, before which the
/// server is given new requests; a server that never stops sending does not keep the thread. What
/// is left makes the event descriptor readable again.
const REAPED_MAX: usize = WINDOW;

/// Wait before the first attempt to reconnect, and between the last ones.
const BACKOFF_MIN_NS: u64 = 1_000_000_000;
const BACKOFF_MAX_NS: u64 = 30_000_000_000;

/// What is told when the device has come to be in doubt.
const DOUBT: &str = "writes answered and not flushed may be gone: flushes fail until the device is \
                     opened anew";

/// See the module.
pub(crate) struct NbdQueue {
    shared: Arc<Shared>,
    index: u16,
    /// Lives as long as the queue, whatever becomes of its sockets.
    epoll: OwnedFd,
    /// What the current socket is watched for; `None` before it is.
    watched: Option<EventFlags>,
    state: State,
    slots: Slots,
    window: Box<[u8]>,
    /// Which of the server's places is tried next.
    place: usize,
    backoff_ns: u64,
    lost_at: Nanos,
    /// Until then a server that is going away may answer what it took.
    leave_by: Option<Nanos>,
    /// A failed attempt has been reported since the connection was lost.
    reported: bool,
}

enum State {
    Connected(Connection),
    /// Lost, until then.
    Down {
        retry_at: Nanos,
    },
    Dialing {
        dial: Dial,
        until: Nanos,
    },
    /// The server is no longer the one that was agreed with.
    Gone,
}

impl NbdQueue {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: u16,
        depth: u16,
        opened: Opened,
    ) -> Result<NbdQueue, DriverError> {
        let failed = |what: &str, source: Option<std::io::Error>| DriverError {
            what: format!("{}: connection {index}: {what}", shared.site),
            source,
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC)
            .map_err(|errno| failed("epoll", Some(errno.into())))?;
        let connection = Connection::new(opened, &shared.durability)
            .map_err(|lost| failed(&lost.to_string(), None))?;
        let mut queue = NbdQueue {
            shared: Arc::clone(&shared),
            index,
            epoll,
            watched: None,
            state: State::Connected(connection),
            slots: Slots::new(depth),
            window: vec![0; WINDOW].into_boxed_slice(),
            place: 0,
            backoff_ns: BACKOFF_MIN_NS,
            lost_at: Nanos::ZERO,
            leave_by: None,
            reported: false,
        };
        queue.watch().map_err(|errno| failed("epoll", Some(errno.into())))?;
        Ok(queue)
    }

    /// Sees to it that the event descriptor tells of what is waited for.
    fn watch(&mut self) -> Result<(), rustix::io::Errno> {
        let (socket, write, read) = match &self.state {
            State::Connected(connection) => (connection.socket(), connection.wants_write(), true),
            State::Dialing { dial, .. } => (dial.socket(), dial.wants_write(), !dial.wants_write()),
            State::Down { .. } | State::Gone => return Ok(()),
        };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, read);
        wanted.set(EventFlags::OUT, write);
        if self.watched == Some(wanted) {
            return Ok(());
        }
        let data = EventData::new_u64(0);
        match self.watched {
            None => epoll::add(&self.epoll, socket, data, wanted)?,
            Some(_) => epoll::modify(&self.epoll, socket, data, wanted)?,
        }
        self.watched = Some(wanted);
        Ok(())
    }

    /// The same; a socket that cannot be watched is as good as lost.
    fn watch_or_lose(&mut self, now: Nanos) {
        if let Err(errno) = self.watch() {
            self.lose(now, &Lost::Watch(errno));
        }
    }

    fn notice(&self, what: &str) {
        self.shared.notices.add(format!("{}: connection {}: {what}", self.shared.site, self.index));
    }

    /// Ends everything on the connection and lets some time pass.
    fn lose(&mut self, now: Nanos, why: &Lost) {
        let State::Connected(connection) = std::mem::replace(&mut self.state, State::Gone) else {
            return self.retry(now);
        };
        let in_flight = self.slots.waiting();
        let doubtful = self.shared.durability.lost(connection.life());
        if connection.is_leaving() {
            connection.part(&mut self.slots);
        }
        self.slots.lose_all();
        self.lost_at = now;
        self.leave_by = None;
        self.reported = false;
        self.notice(&format!("lost with {in_flight} requests in flight: {why}"));
        if doubtful {
            self.notice(DOUBT);
        }
        self.retry(now);
    }

    /// Waits before the next attempt.
    fn retry(&mut self, now: Nanos) {
        self.watched = None;
        self.state = State::Down { retry_at: now + self.backoff_ns };
        self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_MAX_NS);
    }

    /// Receives and answers; sends what could not be sent before.
    fn turn(&mut self, now: Nanos, done: &mut Done) {
        let State::Connected(connection) = &mut self.state else { return };
        let before = self.slots.taken();
        let mut to = Answers { slots: &mut self.slots, done, durability: &self.shared.durability };
        let (mut reaped, mut lost) = (0, None);
        while reaped < REAPED_MAX {
            match connection.receive(&mut self.window, &mut to) {
                Ok(Received { bytes, more }) => {
                    reaped += bytes;
                    if !more {
                        break;
                    }
                }
                Err(why) => {
                    lost = Some(why);
                    break;
                }
            }
        }
        if lost.is_none() {
            connection.send(&mut self.slots);
            lost = connection.broken();
        }
        if lost.is_none() && connection.is_leaving() {
            let patience = self.shared.connect_timeout_ns();
            let by = *self.leave_by.get_or_insert(now + patience);
            let over = connection.is_idle(&self.slots) || by <= now;
            lost = over.then_some(Lost::Leaving);
        }
        if self.slots.taken() < before {
            self.backoff_ns = BACKOFF_MIN_NS;
        }
        if let Some(why) = lost {
            self.lose(now, &why);
        }
    }

    /// Begins to connect again.
    fn dial(&mut self, now: Nanos) {
        let place = &self.shared.places[self.place % self.shared.places.len()];
        self.place = self.place.wrapping_add(1);
        match Dial::start(place, &self.shared.wanted) {
            Ok(dial) => {
                let until = now + self.shared.connect_timeout_ns();
                self.advance(dial, until, now);
            }
            Err(why) => self.dial_failed(now, &why.to_string()),
        }
    }

    /// Takes a connection on its way as far as it goes.
    fn advance(&mut self, dial: Dial, until: Nanos, now: Nanos) {
        match dial.step() {
            Ok(Progress::Waiting(dial)) if now < until => {
                self.state = State::Dialing { dial, until };
            }
            Ok(Progress::Waiting(dial)) => {
                let what = format!("the server owed {} for too long", dial.due());
                self.dial_failed(now, &what);
            }
            Ok(Progress::Ready(opened)) => self.connected(opened, now),
            Err(why) => self.dial_failed(now, &why.to_string()),
        }
    }

    fn dial_failed(&mut self, now: Nanos, why: &str) {
        if !self.reported {
            self.reported = true;
            self.notice(&format!("cannot reconnect, and goes on trying: {why}"));
        }
        self.retry(now);
    }

    fn connected(&mut self, opened: Opened, now: Nanos) {
        if let Some(difference) = agreed::difference(&self.shared.info, &opened.info) {
            self.notice(&format!("the server is back with another export: {difference}"));
            self.watched = None;
            self.state = State::Gone;
            return;
        }
        match Connection::new(opened, &self.shared.durability) {
            Ok(connection) => {
                self.notice("is back");
                // The socket is the one that was watched while it was on its way.
                self.state = State::Connected(connection);
            }
            Err(lost) => self.dial_failed(now, &lost.to_string()),
        }
    }

    /// Answers everything offered without a connection.
    fn end_all(&mut self, batch: &mut Batch<'_>, status: Status) {
        while let Some((tag, _)) = batch.peek() {
            self.slots.end_here(tag, status);
            batch.take();
        }
    }

    /// What happens to requests offered while there is no connection.
    fn submit_disconnected(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let patience = self.shared.reconnect_timeout_ns();
        match &self.state {
            State::Gone => self.end_all(batch, Status::Offline),
            // About to be lost: the wait has only just begun.
            State::Connected(_) if patience > 0 => batch.refuse(Status::Resource),
            _ if now.since(self.lost_at) < patience => batch.refuse(Status::Resource),
            _ => self.end_all(batch, Status::Transport),
        }
    }
}

impl DriverQueue for NbdQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let NbdQueue { state, slots, shared, .. } = self;
        let connection = match state {
            State::Connected(connection) if connection.is_sound() => connection,
            _ => return self.submit_disconnected(batch, now),
        };
        while let Some((tag, request)) = batch.peek() {
            connection.take(tag, request, &shared.terms, slots, &shared.durability);
            batch.take();
        }
    }

    fn commit(&mut self, now: Nanos) {
        if let State::Connected(connection) = &mut self.state {
            connection.send(&mut self.slots);
            self.watch_or_lose(now);
        }
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Dialing { dial, until } => self.advance(dial, until, now),
            State::Down { retry_at } if retry_at <= now => self.dial(now),
            state => self.state = state,
        }
        self.turn(now, done);
        self.watch_or_lose(now);
        self.slots.give_ended(done);
    }

    fn wake_at(&self) -> Option<Nanos> {
        if self.slots.has_ended() {
            return Some(Nanos::ZERO);
        }
        match &self.state {
            State::Connected(connection) if connection.is_broken() => Some(Nanos::ZERO),
            State::Connected(_) => self.leave_by,
            State::Down { retry_at } => Some(*retry_at),
            State::Dialing { until, .. } => Some(*until),
            State::Gone => None,
        }
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.slots.taken()
    }
}

impl Drop for NbdQueue {
    fn drop(&mut self) {
        if let State::Connected(connection) = std::mem::replace(&mut self.state, State::Gone) {
            // A loss that no reap has come to see is a loss.
            let durability = &self.shared.durability;
            let doubtful = match connection.is_sound() && connection.is_alive() {
                true => durability.parted(connection.life()),
                false => durability.lost(connection.life()),
            };
            if doubtful {
                self.notice(DOUBT);
            }
            connection.part(&mut self.slots);
        }
    }
}
