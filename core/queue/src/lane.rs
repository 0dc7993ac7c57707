//! A lane: one hard queue with a home thread, turned by `turn(now)`.
//!
//! On the multi-queue path the lane owns its [`HardQueue`]; on the single-queue path it is a way to
//! the one under the lock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::Consumer;

use crate::bell::{Bell, Port};
use crate::config::Spread;
use crate::hard::HardQueue;
use crate::reply::Replies;
use crate::request::RequestClaim;
use crate::shared::{Acks, ELEVATOR, LaneState, NUDGE, Shared, Snapshot};
use crate::soft::Soft;

/// Control messages to a lane.
pub(crate) enum Control {
    Attach {
        submitter: usize,
        port: Arc<Port>,
        ring: Option<Consumer<RequestClaim>>,
    },
    Detach {
        submitter: usize,
    },
    /// No submitter feeds it any more, until each says so anew.
    Unfeed,
    Pause(Arc<Acks>),
    Resume,
}

/// One hard queue, to be turned by its home.
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
    event: Option<OwnedFd>,
    multi: Option<Box<Multi>>,
    /// A home's bell, on the single-queue path.
    bell: Option<Arc<Bell>>,
    wake_at: Option<Nanos>,
}

/// From the submitters of a lane, and back to them.
#[derive(Default)]
pub(crate) struct Ways {
    soft: Soft,
    replies: Replies,
}

/// A hard queue of the multi-queue path.
pub(crate) struct Multi {
    hard: HardQueue,
    ways: Ways,
    snapshot: Arc<Snapshot>,
    ask_elevator: bool,
    elevator_wake: Option<Nanos>,
    pulled: Vec<RequestClaim>,
    paused: u32,
}

impl Lane {
    pub(crate) fn multi(
        shared: Arc<Shared>,
        index: usize,
        hard: HardQueue,
        state: &mut LaneState,
    ) -> Lane {
        let event = event_of(&hard);
        let snapshot = shared.snapshot();
        if snapshot.scheduled {
            // Something may have been staged for it while it was closed.
            shared.lanes[index].pending.mark(ELEVATOR);
        }
        let mut multi = Multi {
            hard,
            ways: state.kept.take().unwrap_or_default(),
            snapshot,
            ask_elevator: false,
            elevator_wake: None,
            pulled: Vec::new(),
            paused: state.quiesced,
        };
        multi.follow();
        Lane { shared, index, event, multi: Some(Box::new(multi)), bell: None, wake_at: None }
    }

    pub(crate) fn single(shared: Arc<Shared>, event: Option<OwnedFd>, bell: Arc<Bell>) -> Lane {
        Lane { shared, index: 0, event, multi: None, bell: Some(bell), wake_at: None }
    }

    /// Its number among the device's hard queues.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.shared.config.name
    }

    /// One turn: takes answers from the driver, sends what waits, posts completions. Never blocks.
    #[inline]
    pub fn turn(&mut self, now: Nanos) {
        match &mut self.multi {
            Some(multi) => {
                multi.turn(&self.shared, self.index, now);
                self.wake_at = multi.wake_at(now);
            }
            None => {
                let single = self.shared.single.as_ref().expect("a single-queue device");
                self.shared.lanes[self.index].pending.take(|_| {});
                self.wake_at = single.turn(now);
            }
        }
        if self.shared.has_orphans() {
            self.shared.tend_orphans(now);
        }
    }

    /// When it wants a turn although nobody rings and no descriptor is ready.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    /// Becomes readable when the driver has answers.
    #[must_use]
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    /// Whether the bell was rung for this lane since its last turn.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.shared.lanes[self.index].has_work()
    }

    /// When the oldest request that is with the driver or waits for it was accepted: for the report
    /// of a stop that took too long. Looks at every tag.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        match &self.multi {
            Some(multi) => multi.hard.oldest(),
            None => self.shared.single.as_ref().and_then(|single| single.oldest()),
        }
    }

    /// Whether no request is with the driver or waits for it. A lane with none may rest.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        match &mut self.multi {
            Some(multi) => multi.hard.len() == 0 && multi.ways.soft.is_empty(),
            None => self.shared.single.as_ref().is_none_or(|single| single.is_idle()),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let (Some(single), Some(bell)) = (&self.shared.single, &self.bell) {
            return self.shared.single_closed(single, self.index, bell);
        }
        let Some(mut multi) = self.multi.take() else { return };
        let mut state = self.shared.lanes[self.index].state();
        // Whoever waits for an answer gets it; whoever comes and goes meanwhile is known to the
        // next who opens the lane.
        multi.take_control(&self.shared, self.index);
        state.open = false;
        state.kept = Some(std::mem::take(&mut multi.ways));
        let elevator = &self.shared.elevator;
        // A panic elsewhere may have poisoned it, and this may be what unwinds.
        let heirs = elevator.lock().map_or(0, |mut elevator| {
            elevator.as_mut().map_or(0, |elevator| elevator.closed(self.index as u16))
        });
        // The driver goes outside the lock.
        drop(state);
        self.shared.kick_each(heirs);
    }
}

/// A descriptor of the lane's own for the driver's event, which may sit behind a lock.
pub(crate) fn event_of(hard: &HardQueue) -> Option<OwnedFd> {
    hard.driver().event_fd().and_then(|fd| fd.try_clone_to_owned().ok())
}

impl Multi {
    #[inline]
    fn turn(&mut self, shared: &Shared, index: usize, now: Nanos) {
        let port = &shared.lanes[index];
        if port.control.is_waiting() {
            self.take_control(shared, index);
        }
        self.hard.reap(now);
        while self.hard.end_one(now, &mut self.ways.replies) {}
        self.hard.scan(now, &mut self.ways.replies);
        port.pending.take(|source| match source {
            ELEVATOR => self.ask_elevator = true,
            NUDGE => {}
            submitter => self.ways.soft.mark(submitter),
        });
        self.refresh(shared);
        if self.snapshot.scheduled {
            self.turn_elevator(shared, index, now);
        }
        if self.paused == 0 {
            let short = self.hard.issue(now, &mut self.ways.replies, &mut self.ways.soft);
            if short {
                self.stage(shared);
            }
        }
        self.ways.replies.post();
        if self.hard.end_pass() {
            // Tags came back to a set others draw on.
            self.hard.tags().tell_waiting(|lane| shared.nudge(lane));
        }
    }

    /// Tags or the driver ran short: what waits is merged where it can be, and taken in turn.
    #[inline(never)]
    fn stage(&mut self, shared: &Shared) {
        // A ring may hold what was submitted since this turn began, under newer limits.
        self.refresh(shared);
        let spread = shared.config.spread;
        let nomerges = if spread == Spread::RoundRobin { 2 } else { self.snapshot.nomerges };
        if self.ways.soft.stage(&self.snapshot.limits, nomerges) {
            self.hard.count_shortage();
        }
    }

    #[inline]
    fn refresh(&mut self, shared: &Shared) {
        if self.snapshot.version != shared.version() {
            self.snapshot = shared.snapshot();
            self.follow();
        }
    }

    #[cold]
    fn follow(&mut self) {
        self.hard.follow(&self.snapshot);
        if self.snapshot.scheduled {
            self.hard.bound_tags(u16::MAX);
            // A pass under an older snapshot may have been this scheduler's already, and the time
            // it named forgotten.
            self.ask_elevator = true;
        } else {
            // Without a scheduler what the queue holds is what has a tag of the driver.
            self.hard.bound_tags(self.snapshot.nr_requests);
            // Nobody asks for the old scheduler's time any more.
            (self.ask_elevator, self.elevator_wake) = (false, None);
        }
    }

    #[inline(never)]
    fn turn_elevator(&mut self, shared: &Shared, index: usize, now: Nanos) {
        let paused = self.paused > 0;
        let due = !paused && self.elevator_wake.is_some_and(|at| at <= now);
        if self.hard.ended.is_empty() && !self.ask_elevator && !due {
            return;
        }
        let room = (!paused).then(|| self.hard.room());
        let ended = &self.hard.ended;
        let pass = {
            let mut elevator = shared.lock_elevator();
            let Some(elevator) = elevator.as_mut() else { return };
            elevator.pass(index as u16, room, ended, now, &mut self.pulled)
        };
        self.hard.ended.clear();
        self.ask_elevator = pass.again;
        if !paused {
            self.elevator_wake = pass.wake_at;
        }
        // Outside the lock: whoever is told will want it.
        shared.kick_each(pass.kicked);
        for claim in self.pulled.drain(..) {
            self.hard.take_in(claim, now, &mut self.ways.replies);
        }
    }

    #[cold]
    fn take_control(&mut self, shared: &Shared, index: usize) {
        while let Some(message) = shared.lanes[index].control.take() {
            match message {
                Control::Attach { submitter, port, ring } => {
                    self.ways.replies.attach(submitter, port);
                    if let Some(ring) = ring {
                        self.ways.soft.attach(submitter, ring);
                    }
                }
                Control::Detach { submitter } => {
                    self.ways.soft.detach(submitter);
                    self.ways.replies.detach(submitter);
                }
                Control::Unfeed => self.ways.soft.detach_all(),
                Control::Pause(acks) => {
                    self.paused += 1;
                    acks.acknowledge();
                }
                Control::Resume => self.paused = self.paused.saturating_sub(1),
            }
        }
    }

    fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let paused = self.paused > 0;
        let elevator = self.elevator_wake.filter(|_| !paused);
        [self.hard.wake_at(now, paused), elevator].into_iter().flatten().min()
    }
}
