//! A home: the lanes of one thread, and the tokens of submitters it has to tell.
//!
//! It owns no clock, thread or descriptor. Its thread makes rounds:
//!
//! 1. its users submit, and their plugs are flushed;
//! 2. [`turn`](Home::turn);
//! 3. [`take_told`](Home::take_told): the submitters with those tokens take what has ended;
//! 4. again from 1 while [`wants_turn`](Home::wants_turn), or while users have more. A thread with
//!    descriptors looks at them after a bounded number of rounds;
//! 5. [`before_sleep`](Home::before_sleep), and if that says so the thread blocks until its bell
//!    wakes it, a driver's event comes ([`hear`](Home::hear)) or it is
//!    [`wake_at`](Home::wake_at); then [`awake`](Home::awake).
//!
//! Threads differ in this only:
//!
//! | thread | lanes turned in a round | rounds of a pass | blocks in |
//! |---|---|---|---|
//! | reactor | with a reason | 16 | epoll: bell, events, sockets |
//! | bench thread | all | until nothing ends | poll, or its driver's ring |
//! | caller of a control step | none | one | park, up to its limit |
//! | simulator, test bed | with a reason | one | virtual time |
//!
//! A bench thread has few lanes and looks at no event while it is busy, so it turns all. With one
//! lane it blocks in the ring of that driver ([`waiter`](Home::waiter)). A test bed strikes a lane
//! off in the first round without a reason ([`strict`](Home::strict)).
//!
//! Which lanes a home turns is said by its bell: with a [roster](Bell::roster) those that are
//! marked in it, whose time has come, or whose driver's event has; else all of them.
//!
//! A lane that is marked is *listed*: it is turned in every round, looked at before the thread
//! sleeps, and its mark stays, so that a mark made in the meantime costs one load. After some quiet
//! rounds it is struck off. A lane whose driver has no event, and holds requests, wants its next
//! turn at once ([`Lane::wake_at`]), and so is never quiet.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::Roster;

use crate::bell::Bell;
use crate::completion::Completion;
use crate::device::Device;
use crate::driver::Waiter;
use crate::error::Error;
use crate::event::{Silent, Sink};
use crate::lane::Lane;
use crate::submit::submitter::Submitter;

pub(crate) mod alarms;

use alarms::Alarms;

/// Rounds in which a listed lane may have nothing to do. To strike a lane off and to list it again
/// takes some exchanges on a line that others read, which is not to happen for each of a few I/Os
/// in turn; and more rounds would be turns for nothing, for each lane that was used a moment ago.
const QUIET: u8 = 16;

/// The lanes of one thread.
pub struct Home {
    bell: Arc<Bell>,
    /// By place: in the roster, or in the order in which they were opened.
    places: Vec<Option<HomeLane>>,
    /// Places of those that are turned in each round.
    listed: Vec<u32>,
    alarms: Alarms,
    /// Rounds in which a listed lane may have nothing to do.
    quiet: u8,
}

struct HomeLane {
    lane: Lane,
    listed: bool,
    /// Rounds in which it had nothing to do, one after the other.
    quiet: u8,
    /// When it is to be looked at, if that is set.
    alarm: Option<Nanos>,
}

impl Home {
    /// The home of this bell, without lanes.
    #[must_use]
    pub fn new(bell: Arc<Bell>) -> Home {
        Home {
            bell,
            places: Vec::new(),
            listed: Vec::new(),
            alarms: Alarms::default(),
            quiet: QUIET,
        }
    }

    /// The same, which turns a lane only when that has a reason: a lane is struck off in the first
    /// round in which it has nothing to do.
    #[must_use]
    pub fn strict(bell: Arc<Bell>) -> Home {
        Home { quiet: 0, ..Home::new(bell) }
    }

    /// Where other threads ring.
    #[must_use]
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Opens a lane here, on the calling thread; its place.
    ///
    /// # Errors
    /// As [`Device::open_lane`].
    pub fn open(&mut self, device: &Device, index: usize) -> Result<usize, Error> {
        let lane = device.open_lane(index, &self.bell)?;
        Ok(self.put(lane))
    }

    /// A lane that was opened with this bell is turned here, first in the next round; its place.
    pub fn put(&mut self, lane: Lane) -> usize {
        let place = match self.bell.roster() {
            Some(_) => lane.place(),
            None => self.places.iter().position(Option::is_none).unwrap_or(self.places.len()),
        };
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        let mut home = HomeLane { lane, listed: false, quiet: 0, alarm: None };
        match self.bell.roster() {
            Some(roster) => roster.mark_ordered(place),
            None => {
                home.listed = true;
                self.listed.push(place as u32);
            }
        }
        self.places[place] = Some(home);
        place
    }

    /// Takes those lanes out, one by one, each with its place.
    pub fn extract(&mut self, which: impl Fn(&Lane) -> bool, mut each: impl FnMut(usize, Lane)) {
        for (place, slot) in self.places.iter_mut().enumerate() {
            let Some(mut home) = slot.take_if(|home| which(&home.lane)) else { continue };
            self.alarms.clear(&mut home.alarm, place as u32);
            self.listed.retain(|listed| *listed as usize != place);
            if let Some(roster) = self.bell.roster() {
                roster.strike(place);
            }
            each(place, home.lane);
        }
    }

    /// The lanes at home here.
    pub fn lanes(&self) -> impl Iterator<Item = &Lane> {
        self.places.iter().flatten().map(|home| &home.lane)
    }

    /// Whether no lane holds a request.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        self.lanes_mut().all(Lane::is_idle)
    }

    fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.places.iter_mut().flatten().map(|home| &mut home.lane)
    }

    /// Turns each lane that has a reason, or each there is.
    #[inline]
    pub fn turn(&mut self, now: Nanos) {
        self.turn_telling(now, Silent);
    }

    /// As [`turn`](Home::turn); `sink` hears what happens.
    #[inline]
    pub fn turn_telling(&mut self, now: Nanos, sink: impl Sink) {
        let Home { bell, places, listed, alarms, quiet } = self;
        let Some(roster) = bell.roster() else {
            return places.iter_mut().flatten().for_each(|home| home.lane.run_telling(now, sink));
        };
        while let Some(place) = alarms.take_due(now) {
            ring_alarm(places, alarms, place, now, roster);
        }
        list(places, listed, roster);
        listed.retain(|place| {
            let Some(home) = &mut places[*place as usize] else { return false };
            if home.has_work(now) {
                home.quiet = 0;
            }
            if home.quiet > *quiet {
                home.strike(*place, alarms, roster);
                return false;
            }
            home.quiet += 1;
            home.lane.run_telling(now, sink);
            true
        });
    }

    /// A round for a submitter of this thread: its plug is flushed, the lanes are turned, and what
    /// has ended is handed to `each`; says how many there were. [`Submitter::pass`] says why this
    /// takes less than three calls, and what `later` is for. A home with a roster turns the lane
    /// that the submitter feeds and no other, if that lane is here.
    #[inline(always)] // `each` stays where it is, as in `Submitter::complete`.
    pub fn pass(
        &mut self,
        submitter: &mut Submitter,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
        each: impl FnMut(Completion),
    ) -> usize {
        let own = self.turn_beside(submitter, now);
        submitter.pass(own, now, later, each)
    }

    /// Turns what is to be turned beside the lane that this submitter feeds; that lane, if it is
    /// here.
    #[inline]
    fn turn_beside(&mut self, submitter: &mut Submitter, now: Nanos) -> Option<&mut Lane> {
        let feeds =
            |home: &Option<HomeLane>| home.as_ref().is_some_and(|home| submitter.feeds(&home.lane));
        let Some(own) = self.places.iter().position(feeds) else {
            submitter.flush_plug(now);
            self.turn(now);
            return None;
        };
        match self.bell.roster() {
            // It is looked at before the thread sleeps, as if a mark had had it turned.
            Some(roster) => roster.mark_ordered(own),
            None => {
                // In their order: those that the own one lies on come before it.
                let others = self.places.iter_mut().enumerate().filter(|(place, _)| *place != own);
                others.filter_map(|(_, home)| home.as_mut()).for_each(|home| home.lane.run(now));
            }
        }
        self.places[own].as_mut().map(|home| &mut home.lane)
    }

    /// Turns every lane, as if each had a reason.
    pub fn turn_all(&mut self, now: Nanos) {
        self.turn_all_telling(now, Silent);
    }

    /// As [`turn_all`](Home::turn_all); `sink` hears what happens.
    pub fn turn_all_telling(&mut self, now: Nanos, sink: impl Sink) {
        (0..self.places.len()).for_each(|place| self.hear(place));
        self.turn_telling(now, sink);
    }

    /// Takes the tokens of submitters that have something: completions, room, an open gate.
    #[inline]
    pub fn take_told(&self, tokens: &mut Vec<usize>) {
        self.bell.ready().take(|token| tokens.push(token));
    }

    /// The event of the driver of the lane at this place is there, or may be.
    #[inline]
    pub fn hear(&mut self, place: usize) {
        if let Some(Some(home)) = self.places.get_mut(place) {
            home.quiet = 0;
            if let Some(roster) = self.bell.roster() {
                roster.mark_ordered(place);
            }
        }
    }

    /// Whether another round would find something.
    #[must_use]
    pub fn wants_turn(&self, now: Nanos) -> bool {
        let is_due = |at: Nanos| at <= now;
        self.bell.ready().any()
            || self.bell.roster().is_some_and(Roster::any)
            || self.alarms.earliest().is_some_and(is_due)
            || self.listed().any(|home| home.has_work(now))
    }

    /// When a lane wants a turn although nothing happens.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.listed().filter_map(|home| home.lane.wake_at()).chain(self.alarms.earliest()).min()
    }

    /// The thread is about to sleep, and looks once more, also at what `others` looks at. False:
    /// there is something, and it is awake. True: it is to block, and then to say that it is
    /// [`awake`](Home::awake).
    #[must_use]
    pub fn before_sleep(&self, now: Nanos, others: impl FnOnce() -> bool) -> bool {
        self.bell.doorbell().prepare_sleep();
        let sleeps = !self.wants_turn(now) && !others();
        if !sleeps {
            self.awake();
        }
        sleeps
    }

    /// The thread has slept; whether its bell woke it.
    pub fn awake(&self) -> bool {
        self.bell.doorbell().awake()
    }

    /// A way to block in the ring of the only lane's driver until that has answers or `beside` is
    /// readable, where the driver has one that costs less than polling its event. Afterwards the
    /// lane is to be turned: the event says nothing any more.
    #[must_use]
    pub fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        let mut lanes = self.lanes_mut();
        let only = lanes.next().filter(|_| lanes.next().is_none())?;
        only.waiter(beside)
    }

    /// Lets the driver of the only lane make calls that sleep ([`Lane::may_block`]). False: there
    /// are more lanes or none, or the lane has no such calls.
    pub fn may_block(&mut self) -> bool {
        let mut lanes = self.lanes_mut();
        let only = lanes.next().filter(|_| lanes.next().is_none());
        only.is_some_and(Lane::may_block)
    }

    fn listed(&self) -> impl Iterator<Item = &HomeLane> {
        self.listed.iter().filter_map(|place| self.places[*place as usize].as_ref())
    }
}

/// A time has come that a lane named, if it has not named another since.
fn ring_alarm(
    places: &mut [Option<HomeLane>],
    alarms: &mut Alarms,
    place: u32,
    now: Nanos,
    roster: &Roster,
) {
    let Some(home) = &mut places[place as usize] else { return };
    home.alarm = None;
    match home.lane.wake_at() {
        // It names its next time when it is struck off.
        _ if home.listed => {}
        Some(at) if at <= now => roster.mark_ordered(place as usize),
        at => alarms.set(&mut home.alarm, place, at),
    }
}

/// Lists what has been marked.
#[inline]
fn list(places: &mut [Option<HomeLane>], listed: &mut Vec<u32>, roster: &Roster) {
    roster.take(|place| match places.get_mut(place) {
        Some(Some(home)) if !home.listed => {
            (home.listed, home.quiet) = (true, 0);
            listed.push(place as u32);
        }
        Some(Some(_)) => {}
        // It was closed; a submitter that knows it still may mark it again.
        _ => roster.strike(place),
    });
}

impl HomeLane {
    #[inline]
    fn has_work(&self, now: Nanos) -> bool {
        self.lane.has_work() || self.lane.wake_at().is_some_and(|at| at <= now)
    }

    #[cold]
    fn strike(&mut self, place: u32, alarms: &mut Alarms, roster: &Roster) {
        self.listed = false;
        roster.strike(place as usize);
        if self.lane.has_work() {
            // It came a moment ago, and the mark was found set.
            roster.mark_ordered(place as usize);
        }
        alarms.set(&mut self.alarm, place, self.lane.wake_at());
    }
}
