//! A reactor: one thread that runs to completion.
//!
//! A pass: take the orders of other threads, let services receive and submit, turn the lanes that
//! have a reason, hand out completions, turn again while a lane has answers, let services send.
//! Then one blocking call on everything at once, until the earliest time that was named; before it
//! the same call without blocking, for as long as the rule for polling says (`polling.rs`). Lanes
//! are those of a [`Home`]; what has nothing to do costs a pass nothing, however many there are:
//! lanes and services (`services.rs`) alike.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_queue::{Bell, Device, DriverError, Error, Home, Lane};
use weir_ring::Mailbox;

use crate::clock::Clock;
use crate::poll::{Descriptors, Interest, Poller};
use crate::polling::{Counters, Polling, ShownRule, Votes, Waits};
use crate::service::desk::{Desk, MakeService, Orders, Remote, SUBMITTERS};
use crate::service::{Service, Turn, key};
use crate::services::Services;
use crate::wake::EventWake;

/// Rounds of one pass before descriptors are looked at again, so that a device with endless answers
/// does not keep them waiting.
const ROUNDS: usize = 16;

/// Looks at the bell between two calls that look at descriptors, while a reactor polls. A call
/// takes some 300 ns, and as much is left to the other thread of the core.
const LOOKS: usize = 8;

/// The "services" behind the reactor's own descriptors.
const WAKE: u32 = u32::MAX;
const LANE: u32 = u32::MAX - 1;

/// The timer, among the descriptors behind [`WAKE`].
const TIMER: u32 = 1;

/// One reactor: its home, its services and its one blocking call.
pub(crate) struct Reactor {
    desk: Desk,
    home: Home,
    /// The descriptors of drivers' events, by place of the lane.
    events: Vec<Option<OwnedFd>>,
    services: Services,
    waits: Waits,
    /// Bell tokens with something to hand out; kept for its memory.
    ready: Vec<usize>,
    pub(crate) stopping: bool,
}

/// The parts of a reactor that can fail to be made, made before its thread.
pub(crate) struct Seed {
    index: usize,
    reactors: usize,
    polling: Polling,
    remote: Arc<Remote>,
    wake: EventWake,
    descriptors: Descriptors,
}

impl Seed {
    /// For reactor `index` of so many.
    pub(crate) fn new(index: usize, reactors: usize, polling: Polling) -> io::Result<Seed> {
        let wake = EventWake::new()?;
        let bell = Bell::with_lanes(Box::new(wake.clone()), SUBMITTERS);
        let (polls, rule) = (Arc::new(Counters::default()), Arc::new(ShownRule::default()));
        // Seen before the thread is there.
        rule.set(polling);
        let remote = Arc::new(Remote { orders: Mailbox::default(), bell, polls, rule });
        Ok(Seed { index, reactors, polling, remote, wake, descriptors: Descriptors::new()? })
    }

    pub(crate) fn remote(&self) -> Arc<Remote> {
        Arc::clone(&self.remote)
    }
}

impl Reactor {
    /// A reactor of the calling thread.
    pub(crate) fn new(seed: Seed) -> Reactor {
        let Seed { index, reactors, polling, remote, wake, descriptors } = seed;
        let poller = Poller::new(descriptors, key(WAKE, TIMER)).expect("a timer can be watched");
        // The bell keeps the descriptor.
        poller.add_edge(wake.as_fd(), key(WAKE, 0)).expect("an eventfd can be watched");
        let home = Home::new(Arc::clone(&remote.bell));
        let now = Clock.now();
        let votes = Rc::new(Votes::new(polling, Arc::clone(&remote.rule)));
        let waits = Waits::new(Rc::clone(&votes), now, Arc::clone(&remote.polls));
        let desk = Desk {
            index,
            reactors,
            remote,
            now,
            poller,
            votes,
            rotor: 0,
            again: false,
            submitters: Vec::new(),
            free: Vec::new(),
        };
        let (events, services, ready) = (Vec::new(), Services::default(), Vec::new());
        Reactor { desk, home, events, services, waits, ready, stopping: false }
    }

    /// Runs until it is told to stop.
    pub(crate) fn run(mut self) {
        while !self.stopping {
            self.pass();
            if !self.stopping {
                self.sleep();
            }
        }
        // Nothing is ordered any more. Orders that came too late are dropped, which closes the
        // channels of those that wait for an answer.
        drop(self.desk.remote.orders.close());
        self.services.clear();
        // A lane with requests in it cannot be dropped: they are waited for. It is left as it is
        // when the process is about to end anyway.
        self.home.extract(
            |_| true,
            |_, mut lane| {
                if lane.is_idle() {
                    drop(lane);
                } else {
                    std::mem::forget(lane);
                }
            },
        );
    }

    /// Rounds until no lane and no service has work left.
    fn pass(&mut self) {
        for _ in 0..ROUNDS {
            self.desk.now = Clock.now();
            while let Some(order) = self.desk.remote.orders.take() {
                order(self);
            }
            self.run_timers();
            let now = self.desk.now;
            self.desk.again = false;
            self.home.turn(now);
            self.hand_out();
            self.settle();
            if self.stopping || !self.has_work(now) {
                return;
            }
        }
    }

    /// Whether a further round would find something.
    fn has_work(&self, now: Nanos) -> bool {
        self.is_ordered() || self.home.wants_turn(now)
    }

    /// Whether something is to be done beside lanes and submitters.
    fn is_ordered(&self) -> bool {
        self.desk.again || self.desk.remote.orders.is_waiting()
    }

    fn run_timers(&mut self) {
        let now = self.desk.now;
        while let Some(number) = self.services.take_due(now) {
            self.with_service(number, |service, turn| service.timer(turn));
        }
    }

    /// Tells services which of their submitters have something.
    fn hand_out(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.home.take_told(&mut ready);
        for bell_token in ready.drain(..) {
            if let Some(Some((service, token))) = self.desk.submitters.get(bell_token).copied() {
                // A single queue takes what is submitted now straight to the driver, and a home
                // that may call the driver has to look for its answers unasked.
                self.desk.again = true;
                self.with_service(service, |service, turn| service.completed(turn, token));
            }
        }
        self.ready = ready;
    }

    /// Lets each service send that was called in this round.
    fn settle(&mut self) {
        let mut called = self.services.take_called();
        for number in called.drain(..) {
            let again = std::mem::take(&mut self.desk.again);
            self.with_service(number, |service, turn| service.settle(turn));
            // One that has submitted settles again, in the round it has asked for.
            self.services.settled(number, self.desk.again);
            self.desk.again |= again;
        }
        self.services.keep(called);
    }

    /// Waits for descriptors, bell and time, then lets services see to what is ready.
    fn sleep(&mut self) {
        let begun = self.desk.now;
        let mut until = None;
        let mut idle = false;
        if !self.has_work(begun) {
            until = self.earliest();
            idle = until.is_none_or(|at| at > begun);
        }
        if idle && self.poll(until) {
            return self.look_at_events();
        }
        let sleeping = idle && self.home.before_sleep(self.desk.now, || self.is_ordered());
        let poller = &mut self.desk.poller;
        let waited = if sleeping { poller.wait(until) } else { poller.look() };
        if sleeping {
            self.home.awake();
        }
        waited.expect("an epoll set of this thread can be waited for");
        self.desk.now = Clock.now();
        if sleeping {
            self.waits.ended(begun, self.desk.now);
        }
        self.look_at_events();
    }

    /// Looks again and again without blocking, for as long as the rule says; whether something has
    /// come, or the time has.
    fn poll(&mut self, until: Option<Nanos>) -> bool {
        if !self.waits.polls() {
            return false;
        }
        // The round's work is behind it, and is no polling.
        let begun = Clock.now();
        let Some(end) = self.waits.begin(begun) else { return false };
        loop {
            self.desk.poller.look().expect("an epoll set of this thread can be looked at");
            let mut met = self.desk.poller.event(0).is_some();
            for _ in 0..LOOKS {
                met = met || self.has_work(begun);
                std::hint::spin_loop();
            }
            let now = Clock.now();
            met = met || self.has_work(now) || until.is_some_and(|at| at <= now);
            if met || now >= end {
                self.desk.now = now;
                self.waits.polled(begun, now, met);
                return met;
            }
        }
    }

    fn look_at_events(&mut self) {
        let mut index = 0;
        while let Some((key, readiness)) = self.desk.poller.event(index) {
            index += 1;
            let (service, token) = ((key >> 32) as u32, key as u32);
            match service {
                WAKE => {}
                LANE => self.home.hear(token as usize),
                _ => self.with_service(service, |s, turn| s.ready(turn, token, readiness)),
            }
        }
    }

    fn earliest(&self) -> Option<Nanos> {
        [self.home.wake_at(), self.services.earliest()].into_iter().flatten().min()
    }

    #[inline]
    fn with_service(&mut self, number: u32, call: impl FnOnce(&mut dyn Service, &mut Turn<'_>)) {
        if let Some(found) = self.services.call(number) {
            let (desk, home) = (&mut self.desk, &self.home);
            call(found, &mut Turn { service: number, desk, home });
        }
    }
}

impl Orders for Reactor {
    fn home(&self) -> &Home {
        &self.home
    }

    fn add_service(&mut self, make: MakeService<'_>) -> u32 {
        let number = self.services.reserve();
        let (desk, home) = (&mut self.desk, &self.home);
        let service = make(&mut Turn { service: number, desk, home });
        self.services.put(number, service);
        number
    }

    fn with_service(&mut self, number: u32, call: &mut dyn FnMut(&mut dyn Service, &mut Turn<'_>)) {
        Reactor::with_service(self, number, |service, turn| call(service, turn));
    }

    fn remove_service(&mut self, number: u32) {
        self.services.remove(number);
    }

    fn set_polling(&mut self, polling: Polling) {
        self.desk.votes.set_host(polling);
    }

    fn stop(&mut self) {
        self.stopping = true;
    }

    fn open_lane(&mut self, device: &Device, index: usize) -> Result<(), Error> {
        let lane = device.open_lane(index, self.home.bell())?;
        let (place, event) = (lane.place(), lane.event()?);
        if let Some(event) = &event {
            let key = key(LANE, place as u32);
            self.desk.poller.add(event.as_fd(), key, Interest::READ).map_err(|source| {
                let what = format!("watching hard queue {index} of {}", device.config().name);
                Error::Driver(DriverError { what, source: Some(source) })
            })?;
        }
        self.home.put(lane);
        if self.events.len() <= place {
            self.events.resize_with(place + 1, || None);
        }
        self.events[place] = event;
        Ok(())
    }

    fn close_lanes(&mut self, which: &dyn Fn(&Lane) -> bool) {
        let Reactor { desk, events, home, .. } = self;
        home.extract(which, |place, lane| {
            if let Some(event) = events[place].take() {
                // It is a duplicate of a descriptor that may live on.
                let _ = desk.poller.remove(event.as_fd());
            }
            drop(lane);
        });
    }
}
