//! A hardware queue of the initiator: one session, and how it is made again when it is lost.
//!
//! Nothing here blocks but the farewell. Time comes from the caller; a session on its way is turned
//! by the same calls that turn commands.

mod farewell;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use weir_bio::{Data, Nanos};
use weir_driver_scsi::{Command, Ends, Management, ManagementAnswer, Port, Refusal};
use weir_proto_iscsi::session::{Notice, Refused};
use weir_proto_scsi::Lun;
use weir_proto_scsi::decide::Delivery;
use weir_queue::DriverError;

use crate::asked::{Asked, Wait, answer_of};
use crate::check::{self, Check, Verdict};
use crate::dial::{Dial, DialError, Opened, Progress};
use crate::link::{Answers, Heard, Link, Loss, Manage, REAPED_MAX, Received, WINDOW};
use crate::outage::{Backoff, Due, Limbo, Patience};
use crate::peer::{HOPS_MAX, OWN_SLOTS, Out, Peer};
use crate::slots::Slots;

/// Notices that wait to be told.
const NOTICES_MAX: usize = 64;

/// One session of a target, and the commands that wait for it.
pub(crate) struct IscsiPort {
    peer: Arc<Peer>,
    index: u16,
    /// Lives as long as the port, whatever becomes of its sockets.
    epoll: OwnedFd,
    /// The events that the current socket is watched for; `None` before it is watched.
    watched: Option<EventFlags>,
    state: State,
    /// The logical unit that is to be found, as long as there has been no session.
    unmet: Option<Lun>,
    /// The one that was found just now: the mid-layer is to be told.
    met: Option<Lun>,
    slots: Slots,
    asked: Asked,
    heard: Heard,
    window: Box<[u8]>,
    patience: Patience,
    backoff: Backoff,
    /// Attempts to log in, which go round the addresses.
    attempts: usize,
    /// Addresses that have refused this initiator since the session was lost.
    refused: Vec<SocketAddr>,
    /// Since when there is no session.
    outage: Option<Nanos>,
    limbo: Option<Limbo>,
    up_since: Nanos,
    /// The target wants the session to be left by then, and whether it was told.
    leave: Option<(Nanos, bool)>,
    /// When this port was turned last.
    now: Nanos,
    notices: Vec<String>,
    /// A failed attempt has been reported since the session was lost.
    reported: bool,
}

enum State {
    Up(Box<Link>),
    /// There is a session, and what it leads to is looked at.
    Checking(Box<Check>),
    /// Lost, until then.
    Down {
        retry_at: Nanos,
    },
    Dialing {
        dial: Box<Dial>,
        address: SocketAddr,
        until: Nanos,
        hops: u32,
    },
    /// The target is no longer the one it was.
    Gone,
}

impl IscsiPort {
    /// A port with a session.
    pub(crate) fn new(
        peer: Arc<Peer>,
        index: u16,
        opened: Opened,
    ) -> Result<IscsiPort, DriverError> {
        let depth = peer.options.depth + OWN_SLOTS;
        let link = Box::new(Link::new(opened, peer.keeping(depth), Nanos::ZERO));
        IscsiPort::begin(peer, index, State::Up(link))
    }

    /// A port that has yet to log in. Commands are refused until then, not held: nothing is known
    /// that would be worth their wait.
    pub(crate) fn unreached(
        peer: Arc<Peer>,
        index: u16,
        unit: Lun,
    ) -> Result<IscsiPort, DriverError> {
        let mut port = IscsiPort::begin(peer, index, State::Down { retry_at: Nanos::ZERO })?;
        (port.outage, port.unmet) = (Some(Nanos::ZERO), Some(unit));
        port.peer.is_out(index, Some(Out::Unmet));
        Ok(port)
    }

    fn begin(peer: Arc<Peer>, index: u16, state: State) -> Result<IscsiPort, DriverError> {
        let site = peer.site.clone();
        let no_event = |errno: Errno| DriverError {
            what: format!("{site}: session {index}: epoll"),
            source: Some(errno.into()),
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(no_event)?;
        let depth = peer.options.depth + OWN_SLOTS;
        let patience =
            Patience { replacement_ns: peer.replacement_ns(), bound_ns: peer.bound_ns() };
        let seed = peer.isid(index).0.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        let mut port = IscsiPort {
            index,
            epoll,
            watched: None,
            state,
            unmet: None,
            met: None,
            slots: Slots::new(depth, peer.slots()),
            asked: Asked::default(),
            heard: Heard::default(),
            window: vec![0; WINDOW].into_boxed_slice(),
            patience,
            backoff: Backoff::new(seed),
            attempts: usize::from(index),
            refused: Vec::new(),
            outage: None,
            limbo: None,
            up_since: Nanos::ZERO,
            leave: None,
            now: Nanos::ZERO,
            notices: Vec::new(),
            reported: false,
            peer,
        };
        port.watch().map_err(no_event)?;
        Ok(port)
    }

    /// Sees to it that the event descriptor tells of what is waited for.
    fn watch(&mut self) -> Result<(), Errno> {
        let (socket, write) = match &self.state {
            State::Up(link) => (link.as_fd(), link.wants_write()),
            State::Checking(check) => (check.as_fd(), check.wants_write()),
            State::Dialing { dial, .. } => (dial.as_fd(), dial.wants_write()),
            State::Down { .. } | State::Gone => return Ok(()),
        };
        let dialing = matches!(self.state, State::Dialing { .. });
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, !(dialing && write));
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
            self.lose(now, Loss::Watch(errno));
        }
    }

    fn notice(&mut self, what: &str) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(format!("{}: session {}: {what}", self.peer.site, self.index));
        }
    }

    /// Until when commands wait for a session.
    fn patience_end(&self) -> Nanos {
        if self.unmet.is_some() {
            return Nanos::ZERO;
        }
        let since = self.outage.unwrap_or(self.now);
        self.patience.replacement_ns.map_or(Nanos(u64::MAX), |time| since + time)
    }

    /// Why no command is taken without a session.
    fn refusal(&self, now: Nanos) -> Refusal {
        match self.state {
            State::Gone => Refusal::Gone,
            _ if self.outage.is_some() && self.patience_end() <= now => Refusal::Lost,
            _ => Refusal::Down,
        }
    }

    /// The session is of no more use. What never left ends; the rest waits for what becomes of it.
    #[cold]
    fn lose(&mut self, now: Nanos, why: Loss) {
        let State::Up(link) = std::mem::replace(&mut self.state, State::Gone) else {
            return self.dial_failed(now, &why.to_string());
        };
        let in_flight = link.in_flight();
        let wait = self.backoff.lost(self.up_since, now, link.time2wait_s(why));
        let group = link.group;
        link.lose(&mut self.slots);
        self.asked.lose();
        if self.slots.in_limbo() > 0 {
            self.limbo = Some(Limbo::after(self.limbo, group, now));
        }
        self.outage.get_or_insert(now);
        self.peer.is_out(self.index, Some(Out::Lost));
        (self.leave, self.reported) = (None, false);
        self.refused.clear();
        self.notice(&format!("lost with {in_flight} commands in flight: {why}"));
        self.retry_after(wait, now);
    }

    fn retry_after(&mut self, wait: u64, now: Nanos) {
        self.watched = None;
        self.state = State::Down { retry_at: now + wait };
    }

    /// The next address to try: those of all portals in turn, but none that has refused this
    /// initiator while there is another.
    fn next_address(&mut self) -> Option<SocketAddr> {
        let portals = self.peer.options.portals.iter();
        let all: Vec<_> = portals.filter_map(|portal| self.peer.known(portal)).flatten().collect();
        if all.iter().all(|address| self.refused.contains(address)) {
            self.refused.clear();
        }
        let order = (0..all.len()).map(|step| all[(self.attempts + step) % all.len()]);
        let found = order.into_iter().find(|address| !self.refused.contains(address));
        self.attempts = self.attempts.wrapping_add(1);
        found
    }

    /// Begins to log in again.
    fn dial(&mut self, now: Nanos) {
        let until = now + self.peer.login_timeout_ns();
        match self.next_address() {
            Some(address) => self.dial_at(address, until, HOPS_MAX, now),
            None => self.dial_failed(now, "no portal has an address that is known"),
        }
    }

    fn dial_at(&mut self, address: SocketAddr, until: Nanos, hops: u32, now: Nanos) {
        let settings = self.peer.settings(self.peer.isid(self.index));
        match settings.and_then(|settings| Dial::start(&address, settings)) {
            Ok(dial) => self.advance(dial, address, (until, hops), now),
            Err(why) => self.dial_failed(now, &why.to_string()),
        }
    }

    /// Takes a session on its way as far as it goes.
    fn advance(
        &mut self,
        dial: Box<Dial>,
        address: SocketAddr,
        (until, hops): (Nanos, u32),
        now: Nanos,
    ) {
        match dial.step() {
            Ok(Progress::Waiting(dial)) if now < until => {
                self.state = State::Dialing { dial, address, until, hops };
            }
            Ok(Progress::Waiting(_)) => self.dial_failed(now, &DialError::Silent.to_string()),
            Ok(Progress::Ready(opened)) => self.check(opened, now),
            Ok(Progress::Moved(portal)) => {
                let known = self.peer.known(&portal).and_then(|all| all.first().copied());
                self.watched = None;
                match known {
                    Some(address) if hops > 0 => self.dial_at(address, until, hops - 1, now),
                    Some(_) => self.dial_failed(now, "the target has moved too many times"),
                    None => {
                        let what = format!("moved to {portal}, whose address is not known");
                        self.dial_failed(now, &what);
                    }
                }
            }
            Err(why) => {
                // One that a portal leads to may refuse at each attempt.
                if why.is_refusal() && !self.refused.contains(&address) {
                    self.refused.push(address);
                }
                self.dial_failed(now, &why.to_string());
            }
        }
    }

    fn dial_failed(&mut self, now: Nanos, why: &str) {
        if !self.reported {
            self.reported = true;
            let again = if self.unmet.is_none() { " again" } else { "" };
            self.notice(&format!("cannot log in{again}, and goes on trying: {why}"));
        }
        let wait = self.backoff.failed();
        self.retry_after(wait, now);
    }

    /// There is a session again: looks at what it leads to.
    fn check(&mut self, opened: Opened, now: Nanos) {
        let depth = self.peer.options.depth + OWN_SLOTS;
        let link = Box::new(Link::new(opened, self.peer.keeping(depth), now));
        let until = now + self.peer.login_timeout_ns();
        // The socket is the one that was watched while it was on its way.
        let check = Check::new(link, self.peer.units(), until);
        self.go_on_checking(Box::new(check), now);
    }

    fn go_on_checking(&mut self, check: Box<Check>, now: Nanos) {
        match check.step(&mut self.window, now) {
            Verdict::Waiting(check) => self.state = State::Checking(check),
            Verdict::Same(link) => self.up(link, now),
            Verdict::NotYet(why) => self.dial_failed(now, &why),
            Verdict::Another(link, lun) => {
                self.reinstated(&link, Delivery::NoConnect);
                self.notice(&format!("the target is back with another logical unit {lun}"));
                (self.watched, self.state) = (None, State::Gone);
                self.peer.is_out(self.index, Some(Out::Gone));
            }
        }
    }

    /// The session is back.
    fn up(&mut self, link: Box<Link>, now: Nanos) {
        self.reinstated(&link, Delivery::Disrupted);
        self.notice(if self.unmet.is_none() { "is back" } else { "is there" });
        self.state = State::Up(link);
        self.peer.is_out(self.index, None);
        (self.outage, self.up_since, self.met) = (None, now, self.unmet.take());
    }

    /// Ends what the target has ended with this login.
    fn reinstated(&mut self, link: &Link, delivery: Delivery) {
        let Some(limbo) = self.limbo else { return };
        if limbo.is_reinstated_by(link.group) {
            self.slots.end_limbo(delivery, true);
            self.limbo = None;
        } else {
            let left = self.slots.in_limbo();
            self.notice(&format!(
                "logged in at another portal group: {left} commands wait until they cannot land"
            ));
        }
    }

    /// Goes on with the way back to a session.
    #[cold]
    fn come_back(&mut self, now: Nanos) {
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Dialing { dial, address, until, hops } => {
                self.advance(dial, address, (until, hops), now);
            }
            State::Checking(check) => self.go_on_checking(check, now),
            State::Down { retry_at } if retry_at <= now => self.dial(now),
            state => self.state = state,
        }
    }

    /// Receives and answers; sends what could not be sent before.
    fn step(&mut self, now: Nanos, ends: &mut Ends) {
        let State::Up(link) = &mut self.state else { return };
        if self.up_since == Nanos::ZERO {
            // The session was opened without a clock.
            self.up_since = now;
            link.heard_at(now);
        }
        let (asked, slots) = (&mut self.asked, &mut self.slots);
        let mut to = Answers { slots, ends, heard: &mut self.heard };
        let (mut reaped, mut lost) = (0, None);
        while reaped < REAPED_MAX {
            match link.receive(&mut self.window, &mut to, now) {
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
        for (tag, answer) in self.heard.answers.drain(..) {
            asked.answer(tag, answer_of(answer));
        }
        if lost.is_none() {
            let late = |tag| asked.answer(tag, ManagementAnswer::Late);
            lost = link.tick(now, slots, late).err();
        }
        if lost.is_none() {
            link.send(slots);
            lost = link.broken();
        }
        if std::mem::take(&mut self.heard.logged_out) {
            lost = Some(Loss::Left);
        }
        self.listen(now);
        if let Some(why) = lost {
            self.lose(now, why);
        } else if self.leave.is_some() {
            self.leave(now);
        }
    }

    /// Acts on what the target said of the session.
    fn listen(&mut self, now: Nanos) {
        while let Some(notice) = self.heard.notices.pop() {
            match notice {
                Notice::LogoutWanted { within_s } | Notice::NegotiationWanted { within_s } => {
                    // Half of the time is for commands in flight, the rest for the logout.
                    let by = now + u64::from(within_s) * 500_000_000;
                    self.leave.get_or_insert((by, false));
                    self.outage.get_or_insert(now);
                }
                Notice::Other { event, code } => {
                    self.notice(&format!("the target tells of event {event}, code {code}"));
                }
                Notice::Scsi { .. } => {}
            }
        }
    }

    /// Leaves a target that wants it, once nothing is in flight or there is no time left.
    #[cold]
    fn leave(&mut self, now: Nanos) {
        let (State::Up(link), Some((by, false))) = (&mut self.state, self.leave) else { return };
        if link.in_flight() == 0 || by <= now {
            link.log_out(now + 5_000_000_000, &mut self.slots);
            self.leave = Some((by, true));
        }
    }

    /// Ends what has waited for too long.
    #[cold]
    fn pass(&mut self, now: Nanos) {
        let Some(limbo) = &mut self.limbo else { return };
        match limbo.due(self.patience, now) {
            Due::Nothing => {}
            Due::Reads => self.slots.end_limbo(Delivery::FailFast, false),
            Due::All => {
                self.slots.end_limbo(Delivery::FailFast, true);
                self.limbo = None;
            }
        }
    }

    fn is_usable(&self) -> bool {
        matches!(self.state, State::Up(_)) && self.leave.is_none()
    }
}

impl Port for IscsiPort {
    #[inline]
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal> {
        match &mut self.state {
            State::Up(link) if self.leave.is_none() => link.take(command, memory, &mut self.slots),
            _ => Err(self.refusal(now)),
        }
    }

    fn commit(&mut self, now: Nanos) {
        if let State::Up(link) = &mut self.state {
            link.send(&mut self.slots);
            self.watch_or_lose(now);
        }
    }

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        self.now = now;
        if !matches!(self.state, State::Up(_)) {
            self.come_back(now);
        }
        self.step(now, ends);
        self.watch_or_lose(now);
        if self.limbo.is_some() {
            self.pass(now);
        }
        if let Some(unit) = self.met.take() {
            check::have_asked_anew(unit, ends);
        }
        self.slots.tell(ends);
        let whole = self.is_usable() && self.limbo.is_none();
        self.asked.tell(now, whole, &self.slots, ends);
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        if matches!(self.state, State::Gone) {
            return Err(Refusal::Gone);
        }
        let (ask, slot) = match what {
            Management::SessionReset => {
                if matches!(self.state, State::Up(_)) {
                    self.lose(now, Loss::Reset);
                }
                self.asked.wait(token, deadline, Wait::Session);
                return Ok(());
            }
            Management::Abort { slot } => match self.slots.place_of(slot) {
                Some(place) if self.slots.is_open(place) => (Manage::Abort(place), Some(slot)),
                _ => {
                    self.asked.wait(token, deadline, Wait::Slot(slot));
                    return Ok(());
                }
            },
            Management::LunReset(lun) => (Manage::LunReset(u64::from_be_bytes(lun.0)), None),
            Management::TargetReset => (Manage::TargetReset, None),
        };
        let State::Up(link) = &mut self.state else { return Err(self.refusal(now)) };
        match link.manage(ask, deadline, &mut self.slots) {
            Ok(tag) => self.asked.wait(token, deadline, Wait::Target(tag, slot)),
            // It was left in limbo by a session before this one.
            Err(Refused::NoTask) => {
                let slot = slot.expect("only an abort names a task");
                self.asked.wait(token, deadline, Wait::Slot(slot));
            }
            Err(Refused::Managements | Refused::Window) => return Err(Refusal::Busy),
            Err(Refused::Closed) => return Err(Refusal::Down),
        }
        Ok(())
    }

    fn outage_until(&self) -> Option<Nanos> {
        let is_out = !self.is_usable() && !matches!(self.state, State::Gone);
        is_out.then(|| self.patience_end()).filter(|end| self.now < *end)
    }

    fn wake_at(&self) -> Option<Nanos> {
        if self.slots.has_ends() || self.asked.has_answers() {
            return Some(Nanos::ZERO);
        }
        let own = match &self.state {
            State::Up(link) if link.is_due() => Some(Nanos::ZERO),
            State::Up(link) => {
                let leave = self.leave.filter(|(_, told)| !told).map(|(by, _)| by);
                [link.wake_at(), leave].into_iter().flatten().min()
            }
            State::Checking(check) => Some(check.until()),
            State::Down { retry_at } => Some(*retry_at),
            State::Dialing { until, .. } => Some(*until),
            State::Gone => None,
        };
        let limbo = self.limbo.and_then(|limbo| limbo.wake_at(self.patience));
        [own, limbo, self.asked.wake_at(), self.outage_until()].into_iter().flatten().min()
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn notices(&mut self, tell: &mut dyn FnMut(String)) {
        self.notices.drain(..).for_each(tell);
    }
}
