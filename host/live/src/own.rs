//! The home of a thread that turns its lanes itself, between its other work: no reactor, no
//! services, one descriptor to sleep on.
//!
//! It is not for a thread that never comes back: what its lanes hold goes on in its calls alone.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;

use weir_bio::Nanos;
use weir_queue::{
    Bell, Completion, Device, DriverError, Error, Home, Lane, LaneAnswer, LaneHomes, QueueMode,
    Submitter, Waiter,
};
use weir_ring::Mailbox;

use crate::clock::Clock;
use crate::poll::{Descriptors, Interest, Poller};
use crate::wake::EventWake;

/// Keys of the descriptors; those of lanes are their places.
const WAKE: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// Lanes whose home is the thread that made this, and stays so: it cannot be sent to another.
///
/// The thread makes rounds as [`Home`] has them: it submits and flushes plugs, [turns](Self::turn)
/// the lanes, takes what has ended. In between it [sleeps](Self::sleep) here, or anywhere else that
/// looks at the [descriptor](AsFd::as_fd) after [`arm`](Self::arm).
///
/// Dropping it closes its lanes. One that still holds requests is left as it is, for ever: its
/// driver may yet write to their memory.
pub struct OwnLanes {
    home: Home,
    wake: EventWake,
    poller: Poller,
    /// The bell writes to the descriptor: the thread may be asleep on it.
    armed: bool,
    /// The events of drivers, with the place of their lane.
    events: Vec<(usize, OwnedFd)>,
    /// The way to block in the only lane's driver, which has no event any more.
    waiter: Option<Box<dyn Waiter>>,
    /// The only lane's driver may make calls that sleep.
    blocks: bool,
    desk: Arc<OwnDesk>,
    one_thread: PhantomData<*const ()>,
}

/// The part that other threads reach.
struct OwnDesk {
    thread: ThreadId,
    bell: Arc<Bell>,
    orders: Mailbox<Order>,
}

/// Another number of hard queues needs this lane open, or closed.
enum Order {
    Open(Device, usize, LaneAnswer),
    Close(Device, usize, LaneAnswer),
}

impl OwnDesk {
    fn post(&self, order: Order) {
        self.orders.post(order);
        self.bell.doorbell().ring();
    }
}

impl LaneHomes for OwnDesk {
    fn open(&self, device: &Device, index: usize, answer: LaneAnswer) {
        self.post(Order::Open(device.clone(), index, answer));
    }

    fn close(&self, device: &Device, index: usize, answer: LaneAnswer) {
        self.post(Order::Close(device.clone(), index, answer));
    }

    fn is_here(&self) -> bool {
        std::thread::current().id() == self.thread
    }
}

impl OwnLanes {
    /// A home of the calling thread, without lanes, whose bell has `tokens` tokens.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn new(tokens: usize) -> io::Result<OwnLanes> {
        let wake = EventWake::new()?;
        let bell = Bell::new(Box::new(wake.clone()), tokens);
        OwnLanes::at(wake, bell)
    }

    /// The same at a bell that wakes by this, of a home that is no more.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    pub fn at(wake: EventWake, bell: Arc<Bell>) -> io::Result<OwnLanes> {
        let poller = Poller::new(Descriptors::new()?, TIMER)?;
        // By its level: another set looks at this one, which has no edges of its own.
        poller.add(wake.as_fd(), WAKE, Interest::READ)?;
        let desk = OwnDesk {
            thread: std::thread::current().id(),
            bell: Arc::clone(&bell),
            orders: Mailbox::default(),
        };
        Ok(OwnLanes {
            home: Home::new(bell),
            wake,
            poller,
            armed: false,
            events: Vec::new(),
            waiter: None,
            blocks: false,
            desk: Arc::new(desk),
            one_thread: PhantomData,
        })
    }

    /// What its bell wakes by.
    #[must_use]
    pub fn wake(&self) -> &EventWake {
        &self.wake
    }

    /// Where its submitters and steps are told.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        self.home.bell()
    }

    /// Opens all lanes of a device here. Waits for its driver where that has to prepare them.
    ///
    /// # Errors
    /// That of the first lane that could not be opened; then none of the device is left open.
    pub fn adopt(&mut self, device: &Device) -> Result<(), Error> {
        let lanes = match device.config().mode {
            QueueMode::Sq => 1,
            QueueMode::Mq => usize::from(device.queues()),
        };
        device.attach_clock(|| Clock.now());
        for index in 0..lanes {
            let opened = device.prepare_lane(index).and_then(|()| self.open(device, index));
            if let Err(error) = opened {
                self.close(|lane| device.owns(lane));
                return Err(error);
            }
        }
        let desk: Arc<dyn LaneHomes> = Arc::clone(&self.desk) as _;
        device.attach_homes(Arc::downgrade(&desk));
        Ok(())
    }

    /// Opens one lane of a device here; others may be opened on other threads. Waits for the driver
    /// where that has to prepare it. The number of hard queues does not change while such a lane is
    /// open.
    ///
    /// # Errors
    /// That the lane could not be opened.
    pub fn adopt_lane(&mut self, device: &Device, index: usize) -> Result<(), Error> {
        device.attach_clock(|| Clock.now());
        device.prepare_lane(index)?;
        self.open(device, index)
    }

    /// Whether nothing waits for a turn, and no lane holds a request.
    pub fn is_idle(&mut self, now: Nanos) -> bool {
        !self.has_work(now) && self.home.is_idle()
    }

    fn open(&mut self, device: &Device, index: usize) -> Result<(), Error> {
        let lane = device.open_lane(index, self.home.bell())?;
        let event = lane.event()?;
        let place = self.home.put(lane);
        let Some(event) = event else { return Ok(()) };
        self.poller.add(event.as_fd(), place as u64, Interest::READ).map_err(|source| {
            let what = format!("watching hard queue {index} of {}", device.config().name);
            Error::Driver(DriverError { what, source: Some(source) })
        })?;
        self.events.push((place, event));
        Ok(())
    }

    /// Closes those lanes; whether none of them held a request. One that does is left as it is.
    pub fn close(&mut self, which: impl Fn(&Lane) -> bool) -> bool {
        let OwnLanes { home, poller, events, .. } = self;
        let mut at_rest = true;
        home.extract(which, |place, mut lane| {
            events.retain(|(of, event)| {
                if *of == place {
                    // It is a duplicate of a descriptor that may live on.
                    let _ = poller.remove(event.as_fd());
                }
                *of != place
            });
            if lane.is_idle() {
                drop(lane);
            } else {
                at_rest = false;
                std::mem::forget(lane);
            }
        });
        at_rest
    }

    /// When the oldest request was accepted that a lane holds of those.
    #[must_use]
    pub fn oldest(&self, which: impl Fn(&Lane) -> bool) -> Option<Nanos> {
        self.home.lanes().filter(|lane| which(lane)).filter_map(Lane::oldest).min()
    }

    /// Turns the lanes, a second time if the first one has handed something to a driver that may
    /// have its answers at once. Afterwards submitters take what has ended.
    #[inline]
    pub fn turn(&mut self, now: Nanos) {
        self.begin();
        self.home.turn(now);
        if !self.home.bell().ready().any() && self.home.wants_turn(now) {
            // With a time of its own: a driver may have done the work while it took it.
            self.home.turn(Clock.now());
        }
    }

    /// The same for a submitter of this thread: its plug is flushed, and what has ended is handed
    /// to `each`. The bell's tokens are taken; that of the submitter may be set again afterwards.
    #[inline(always)] // `each` stays where it is, as in `Submitter::complete`.
    pub fn pass(
        &mut self,
        submitter: &mut Submitter,
        now: Nanos,
        mut each: impl FnMut(Completion),
    ) {
        self.begin();
        // Before the look: what comes afterwards sets it again.
        self.home.bell().ready().take(|_| ());
        let (mut at, mut is_first) = (now, true);
        // In one place, so that `each` is called in one place.
        loop {
            let ended = self.home.pass(submitter, at, || Clock.now(), &mut each);
            if ended > 0 || !is_first || !self.home.wants_turn(at) {
                return;
            }
            // With a time of its own, as above.
            (at, is_first) = (Clock.now(), false);
        }
    }

    /// What comes before a round.
    #[inline]
    fn begin(&mut self) {
        if self.armed {
            self.disarm();
        }
        if self.desk.orders.is_waiting() {
            self.obey();
        }
    }

    #[cold]
    fn obey(&mut self) {
        while let Some(order) = self.desk.orders.take() {
            match order {
                Order::Open(device, index, answer) if self.waiter.is_some() || self.blocks => {
                    let name = &device.config().name;
                    let why = "its thread serves hard queue 0 alone (wait_in_driver or may_block)";
                    let what = format!("hard queue {index} of {name}: {why}");
                    answer.give(Err(Error::Invalid(what)));
                }
                Order::Open(device, index, answer) => answer.give(self.open(&device, index)),
                Order::Close(device, index, answer) => {
                    self.close(|lane| device.owns(lane) && lane.index() == index);
                    answer.give(Ok(()));
                }
            }
        }
    }

    /// Whether a turn now would find something.
    fn has_work(&self, now: Nanos) -> bool {
        self.home.wants_turn(now) || self.desk.orders.is_waiting()
    }

    /// Has [`sleep`](Self::sleep) block in the driver of its only lane, where that has a way that
    /// takes fewer system calls. The [descriptor](AsFd::as_fd) is of no use any more then, and no
    /// other lane can be opened. False: there is no such way, and nothing has changed.
    pub fn wait_in_driver(&mut self) -> bool {
        if self.waiter.is_none() {
            self.disarm();
            self.waiter = self.home.waiter(self.wake.as_fd());
        }
        self.waiter.is_some()
    }

    /// Lets the driver of its only lane make calls that sleep in a [turn](Self::turn)
    /// ([`Lane::may_block`]). No other lane can be opened then. False: there is more than one lane,
    /// or the driver makes no such calls.
    pub fn may_block(&mut self) -> bool {
        self.blocks = self.blocks || self.home.may_block();
        self.blocks
    }

    /// Blocks until a turn would find something, or until then. Not at all if it would now.
    pub fn sleep(&mut self, until: Option<Nanos>) {
        self.disarm();
        let now = Clock.now();
        let at = Nanos::first_of(until, self.home.wake_at());
        if self.has_work(now) || at.is_some_and(|at| at <= now) {
            return;
        }
        if !self.home.before_sleep(now, || self.desk.orders.is_waiting()) {
            return;
        }
        if let Some(waiter) = &mut self.waiter {
            waiter.wait(at.map(|at| at.since(now)));
            if self.home.awake() || !self.has_work(now) {
                // A wake that came too late for the last time is as good as one that is new.
                self.wake.clear();
            }
            return;
        }
        let waited = self.poller.wait(at);
        self.home.awake();
        waited.expect("an epoll set of this thread can be waited for");
        self.look_at_events();
    }

    /// The thread is about to sleep on the [descriptor](AsFd::as_fd) elsewhere. False: there is
    /// something to do, and it is to [turn](Self::turn) instead. True: the descriptor becomes
    /// readable when there is; the next turn takes that back.
    ///
    /// # Errors
    /// The system's, of the timer; a thread that [waits in a driver](Self::wait_in_driver).
    pub fn arm(&mut self) -> io::Result<bool> {
        if self.waiter.is_some() {
            let what = "a thread that waits in the driver has no descriptor to sleep on";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        if std::mem::take(&mut self.armed) {
            self.home.awake();
        }
        // What is there already makes no new edge for who watches the descriptor by edges, and a
        // timer that has rung is set anew only if that was seen.
        let seen = self.look();
        let now = Clock.now();
        let at = self.home.wake_at();
        if seen || self.has_work(now) || at.is_some_and(|at| at <= now) {
            return Ok(false);
        }
        if let Some(at) = at {
            self.poller.ring_by(at)?;
        }
        self.armed = self.home.before_sleep(now, || self.desk.orders.is_waiting());
        Ok(self.armed)
    }

    fn disarm(&mut self) {
        if std::mem::take(&mut self.armed) {
            self.home.awake();
            self.look();
        }
    }

    /// Takes the events that are there; whether there was one.
    fn look(&mut self) -> bool {
        self.poller.look().expect("an epoll set of this thread can be looked at");
        self.look_at_events()
    }

    fn look_at_events(&mut self) -> bool {
        let mut index = 0;
        while let Some((key, _)) = self.poller.event(index) {
            index += 1;
            match key {
                WAKE => self.wake.clear(),
                place => self.home.hear(place as usize),
            }
        }
        index > 0
    }
}

impl AsFd for OwnLanes {
    /// Readable when a turn would find something, after [`arm`](OwnLanes::arm) has said so. It can
    /// be polled, or watched by another epoll set; its bytes are none of the caller's.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

impl Drop for OwnLanes {
    fn drop(&mut self) {
        // An order that came too late is answered by its drop: the home is gone.
        drop(self.desk.orders.close());
        self.close(|_| true);
    }
}
