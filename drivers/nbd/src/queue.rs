//! A hard queue: one connection, and how it is made again when it is lost.
//!
//! Nothing here blocks. Time comes from the caller; a connection on its way is turned by the same
//! calls that turn requests.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use weir_bio::{Nanos, Status};
use weir_queue::{Batch, Cancel, Done, DriverError, DriverQueue, Tag};

use crate::agreed;
use crate::connection::{Answers, Connection, Lost, Received};
use crate::dial::{Dial, Opened, Progress};
use crate::parting::{Fate, Parting};
use crate::shared::Shared;
use crate::slots::{Slots, Unanswered};

/// Bytes received by one system call, when small replies come in numbers: some 60 of 4 KiB.
const WINDOW: usize = 256 << 10;

/// A reap that has received so many bytes leaves the rest for the next one, before which the server
/// is given new requests; a server that never stops sending does not keep the thread. The bytes
/// left make the event descriptor readable again.
const REAPED_MAX: usize = WINDOW;

/// A cancel receives so much in search of the answer: more than any socket holds.
const SEARCHED_MAX: usize = 64 << 20;

/// Wait between attempts to reconnect. The first comes at once and the next ones soon, because a
/// server that is restarted by its supervisor is back within a second; then every 5 s, which costs
/// a server that stays away little and finds one that comes back in time for most `reconnect`s.
const BACKOFF_MIN_NS: u64 = 100_000_000;
const BACKOFF_MAX_NS: u64 = 5_000_000_000;

/// A connection that stood so long ends an outage. One that is lost sooner goes on with it, so that
/// a request that brings the server down each time is not sent for ever.
const STANDING_NS: u64 = 10_000_000_000;

/// Connections given up that may be there at a time; with so many no further one is made.
const PARTING_MAX: usize = 8;

/// How often connections given up, and flushes that wait for one, are looked at.
const LOOK_NS: u64 = 1_000_000_000;
const LOOK_HELD_NS: u64 = 100_000_000;

/// The notice given when the device comes to be in doubt.
const DOUBT: &str = "writes answered and not flushed may be gone: flushes fail until the device is \
                     opened anew";

/// One hard queue of an NBD disk: its connection, and the requests that wait for it.
pub(crate) struct NbdQueue {
    shared: Arc<Shared>,
    index: u16,
    /// Lives as long as the queue, whatever becomes of its sockets.
    epoll: OwnedFd,
    /// The events that the current socket is watched for; `None` before it is watched.
    watched: Option<EventFlags>,
    state: State,
    slots: Slots,
    /// The last receive has emptied the socket and answered all that was asked. The turn that sends
    /// the next request comes behind it, and need not look again; the one after it does.
    emptied: bool,
    window: Box<[u8]>,
    /// Which of the server's places is tried next.
    place: usize,
    backoff_ns: u64,
    /// Connections given up whose servers have not let go.
    parting: Vec<Parting>,
    /// Since when the device cannot be reached, for certain.
    outage: Option<Nanos>,
    connected_at: Nanos,
    /// When this queue was turned last.
    now: Nanos,
    look_at: Option<Nanos>,
    /// Answers received by a cancel.
    aside: Done,
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
            emptied: false,
            window: vec![0; WINDOW].into_boxed_slice(),
            place: 0,
            backoff_ns: 0,
            parting: Vec::new(),
            outage: None,
            connected_at: Nanos::ZERO,
            now: Nanos::ZERO,
            look_at: None,
            aside: Done::default(),
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
            self.lose(now, Lost::Watch(errno));
        }
    }

    fn notice(&self, what: &str) {
        self.shared.notices.add(format!("{}: connection {}: {what}", self.shared.site, self.index));
    }

    /// The connection is of no more use. Once the server has let go of it, all that is in flight
    /// is sent again; else the connection is given up.
    #[cold]
    fn lose(&mut self, now: Nanos, why: Lost) {
        self.drop_connection(now, why, None);
    }

    #[cold]
    fn drop_connection(&mut self, now: Nanos, why: Lost, cancelled: Option<Tag>) {
        let State::Connected(connection) = std::mem::replace(&mut self.state, State::Gone) else {
            return self.retry(now);
        };
        if now.since(self.connected_at) >= STANDING_NS {
            self.outage = None;
        }
        self.outage.get_or_insert(now);
        self.leave_by = None;
        self.reported = false;
        self.shared.lost().insert(self.index, None);
        let in_flight = self.slots.waiting();
        let doubtful = self.shared.durability.lost(connection.life());
        let mut vouched = false;
        let fate = Fate { cancelled, end: self.end_of_lost(now) };
        if connection.is_leaving() && connection.is_idle(&self.slots) {
            connection.part(&mut self.slots);
        } else {
            let unanswered = self.slots.take_all();
            if why.is_end() {
                for one in unanswered {
                    self.slots.give_back(one.tag, one.lent, fate.of(one.tag));
                }
            } else {
                vouched = self.give_up(connection, &why, unanswered, fate, now);
            }
        }
        self.notice(&format!("lost with {in_flight} requests in flight: {why}"));
        if doubtful && !vouched {
            self.notice(DOUBT);
        }
        self.retry(now);
    }

    /// Keeps a connection until its server has let go; whether it may yet answer for its writes.
    fn give_up(
        &mut self,
        connection: Connection,
        why: &Lost,
        unanswered: Vec<Unanswered>,
        fate: Fate,
        now: Nanos,
    ) -> bool {
        let (slots, durability) = (&mut self.slots, &self.shared.durability);
        let remains = connection.remains();
        let parting = Parting::new(remains, why, unanswered, fate, slots, durability, now);
        if parting.is_over() {
            return false;
        }
        // Its answers are found at the next look if they cannot be announced.
        let _ = epoll::modify(&self.epoll, parting.socket(), EventData::new_u64(0), EventFlags::IN);
        let vouches = parting.vouches();
        self.parting.push(parting);
        self.look_at = Some(now + LOOK_NS);
        vouches
    }

    /// Until when requests wait for the server.
    fn patience_end(&self) -> Nanos {
        self.outage.map_or(Nanos(u64::MAX), |since| since + self.shared.reconnect_ns)
    }

    /// How requests end whose connection is lost; `None`: they are sent again.
    fn end_of_lost(&self, now: Nanos) -> Option<Status> {
        let patient = self.shared.reconnect_ns > 0 && now < self.patience_end();
        (!patient).then_some(Status::Transport)
    }

    /// Whether requests cannot be sent but may be later.
    fn is_out(&self) -> bool {
        match &self.state {
            State::Connected(connection) => !connection.is_sound() && self.outage.is_some(),
            State::Down { .. } | State::Dialing { .. } => true,
            State::Gone => false,
        }
    }

    /// Waits before the next attempt.
    fn retry(&mut self, now: Nanos) {
        self.watched = None;
        self.state = State::Down { retry_at: now + self.backoff_ns };
        self.backoff_ns = (self.backoff_ns * 2).clamp(BACKOFF_MIN_NS, BACKOFF_MAX_NS);
    }

    /// Sees to connections given up, and to flushes that wait for them.
    #[cold]
    fn look(&mut self, now: Nanos) {
        let end = self.end_of_lost(now);
        let connected = matches!(self.state, State::Connected(_));
        let (slots, durability) = (&mut self.slots, &self.shared.durability);
        let mut doubtful = false;
        for parting in &mut self.parting {
            let vouched = parting.vouches();
            parting.step(&mut self.window, end, slots, durability, now);
            doubtful |= vouched && !parting.vouches() && durability.is_in_doubt();
            if parting.falls_silent() {
                // One that is not watched tells of nothing either.
                _ = epoll::delete(&self.epoll, parting.socket());
            }
            if connected {
                parting.urge(self.connected_at, now);
            }
        }
        self.parting.retain(|parting| !parting.is_over());
        let waits = match &self.state {
            State::Connected(connection) => durability.waits(connection.life()),
            State::Down { .. } | State::Dialing { .. } | State::Gone => false,
        };
        if !waits {
            self.slots.release_held();
        }
        self.look_at = match (self.slots.holds_any(), self.parting.is_empty()) {
            (true, _) => Some(now + LOOK_HELD_NS),
            (false, false) => Some(now + LOOK_NS),
            (false, true) => None,
        };
        if doubtful {
            self.notice(DOUBT);
        }
        self.tell_failure();
    }

    /// Receives until this request is answered, or nothing is left: what is in the socket is not
    /// overdue.
    #[cold]
    fn search(&mut self, tag: Tag) -> Option<Lost> {
        let State::Connected(connection) = &mut self.state else { return None };
        let durability = &self.shared.durability;
        let mut received = 0;
        while received < SEARCHED_MAX && self.slots.is_waiting(tag) {
            let mut to = Answers { slots: &mut self.slots, done: &mut self.aside, durability };
            match connection.receive(&mut self.window, &mut to) {
                Ok(Received { bytes, more }) => {
                    received += bytes;
                    if !more {
                        break;
                    }
                }
                Err(why) => return Some(why),
            }
        }
        None
    }

    /// Receives and answers; sends what could not be sent before.
    fn step(&mut self, now: Nanos, done: &mut Done) {
        let State::Connected(connection) = &mut self.state else { return };
        let before = done.len();
        connection.patient = self.shared.reconnect_ns > 0
            && self.outage.is_none_or(|since| now.since(since) < self.shared.reconnect_ns);
        let mut to = Answers { slots: &mut self.slots, done, durability: &self.shared.durability };
        let (mut reaped, mut lost) = (0, None);
        let passes = std::mem::take(&mut self.emptied) && to.slots.waiting() == 0;
        while reaped < REAPED_MAX && !passes {
            match connection.receive(&mut self.window, &mut to) {
                Ok(Received { bytes, more }) => {
                    reaped += bytes;
                    if !more {
                        self.emptied = bytes > 0 && to.slots.waiting() == 0;
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
            self.outage.get_or_insert(now);
            let patience = self.shared.connect_timeout_ns();
            let by = *self.leave_by.get_or_insert(now + patience);
            let over = connection.is_idle(&self.slots) || by <= now;
            lost = over.then_some(Lost::Leaving);
        }
        if done.len() > before {
            self.backoff_ns = 0;
        }
        self.tell_failure();
        if let Some(why) = lost {
            self.lose(now, why);
        }
    }

    /// Tells of the first flush that the server failed.
    #[inline]
    fn tell_failure(&self) {
        if let Some(error) = self.shared.durability.news() {
            self.notice(&format!(
                "the server failed a flush with {error}: flushes fail until the device is opened \
                 anew"
            ));
        }
    }

    /// Begins to connect again.
    fn dial(&mut self, now: Nanos) {
        let place = &self.shared.places[self.place % self.shared.places.len()];
        self.place = self.place.wrapping_add(1);
        match Dial::start(place, self.shared.errand()) {
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
            self.shared.lost().insert(self.index, Some(difference));
            self.watched = None;
            self.state = State::Gone;
            return;
        }
        match Connection::new(opened, &self.shared.durability) {
            Ok(connection) => {
                self.shared.lost().remove(&self.index);
                self.notice("is back");
                self.emptied = false;
                // The socket is the one that was watched while it was on its way.
                self.state = State::Connected(connection);
                self.connected_at = now;
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

    /// Refuses or ends requests offered while there is no connection.
    fn submit_disconnected(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        match &self.state {
            State::Gone => self.end_all(batch, Status::Offline),
            // If it is about to be lost, the wait has only just begun.
            _ => match self.end_of_lost(now) {
                None => batch.refuse(Status::Resource),
                Some(status) => self.end_all(batch, status),
            },
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
        self.now = now;
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Dialing { dial, until } => self.advance(dial, until, now),
            State::Down { retry_at } if retry_at <= now && self.parting.len() < PARTING_MAX => {
                self.dial(now);
            }
            state => self.state = state,
        }
        self.step(now, done);
        self.watch_or_lose(now);
        if !self.parting.is_empty() || self.slots.holds_any() {
            self.look(now);
        }
        for (tag, status, mut lent) in self.aside.drain() {
            done.push_lent(tag, status, &mut lent);
        }
        self.slots.give_ended(done);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        if self.slots.forget_held(tag) {
            return Cancel::Done;
        }
        if let Some(answer) = self.parting.iter_mut().find_map(|parting| parting.cancel(tag)) {
            return answer;
        }
        let lost = self.search(tag);
        if lost.is_some() || self.slots.is_waiting(tag) {
            self.drop_connection(self.now, lost.unwrap_or(Lost::Silent), Some(tag));
        }
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        if self.slots.has_ended() || !self.aside.is_empty() {
            return Some(Nanos::ZERO);
        }
        let own = match &self.state {
            State::Connected(connection) if connection.is_broken() => Some(Nanos::ZERO),
            State::Connected(_) => self.leave_by,
            State::Down { .. } if self.parting.len() >= PARTING_MAX => None,
            State::Down { retry_at } => Some(*retry_at),
            State::Dialing { until, .. } => Some(*until),
            State::Gone => None,
        };
        [own, self.look_at, self.outage_until()].into_iter().flatten().min()
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.is_out().then(|| self.patience_end()).filter(|end| self.now < *end)
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.slots.taken() + self.aside.len()
    }
}

impl Drop for NbdQueue {
    fn drop(&mut self) {
        self.shared.lost().remove(&self.index);
        if let State::Connected(mut connection) = std::mem::replace(&mut self.state, State::Gone) {
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
        let held: usize = self.parting.iter().map(Parting::held).sum();
        if held > 0 {
            self.notice(&format!("closed while the server may still carry out {held} writes"));
        }
        for parting in self.parting.drain(..) {
            parting.drop_all(&self.shared.durability);
        }
    }
}
