//! A lane: one hard queue with a home thread, turned by `turn(now)`.
//!
//! On the multi-queue path the lane owns its [`HardQueue`]; on the single-queue path it is a way to
//! the one under the lock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::{Nanos, Status};
use weir_ring::Consumer;

use crate::arrivals::Arrivals;
use crate::bell::{LaneBell, Port};
use crate::config::Spread;
use crate::dispatcher::{Link, NO_HOST, TAKES_NONE};
use crate::driver::Waiter;
use crate::freeze::Acks;
use crate::hard::{HardQueue, Source};
use crate::reply::Replies;
use crate::request::RequestClaim;
use crate::shared::{ELEVATOR, LaneState, NUDGE, Shared, Snapshot};
use crate::soft::Soft;

mod ask;
mod need;

/// How long a lane counts on the host: what it takes to sleep and be woken.
const PATIENCE_NS: u64 = 20_000;

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
    /// Requests of a lane that can send nothing.
    Take(Vec<RequestClaim>),
}

/// One hard queue, to be turned by its home.
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
    event: Option<OwnedFd>,
    multi: Option<Box<Multi>>,
    /// Its place at this home, on the single-queue path.
    bell: Option<LaneBell>,
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
    /// A time has come that it was told, and it has not been at the elevator since.
    due: bool,
    link: Link,
    arrivals: Arrivals,
    refused: Vec<RequestClaim>,
    /// Since when something of it is left for others to take over.
    left_at: Option<Nanos>,
    /// It could not take all there may be, or does not know.
    again: bool,
    paused: u32,
    /// The driver keeps every tag, answers nothing or refuses everything for long.
    needs: bool,
    /// A lane that is well is to be told of what the scheduler has staged for this one.
    tells: bool,
    /// Nothing is sent from here for long, and no other lane could: all requests come here, so that
    /// each ends in its time.
    hoards: bool,
}

impl Lane {
    pub(crate) fn multi(
        shared: Arc<Shared>,
        index: usize,
        (hard, event): (HardQueue, Option<OwnedFd>),
        state: &mut LaneState,
    ) -> Lane {
        let snapshot = shared.snapshot();
        // What is there was said by one who had it before.
        shared.lanes[index].credit.set(TAKES_NONE);
        if snapshot.scheduled {
            // Something may have been staged for it while it was closed.
            shared.lanes[index].pending.mark(ELEVATOR);
        }
        let link = match snapshot.queues {
            1 => Link::default(),
            _ => shared.with_right(|dispatcher| dispatcher.open(index)),
        };
        let mut multi = Multi {
            hard,
            ways: state.kept.take().unwrap_or_default(),
            snapshot,
            ask_elevator: false,
            elevator_wake: None,
            due: false,
            link,
            arrivals: Arrivals::default(),
            refused: Vec::new(),
            left_at: None,
            again: false,
            paused: state.quiesced,
            needs: false,
            tells: false,
            hoards: false,
        };
        multi.follow();
        Lane { shared, index, event, multi: Some(Box::new(multi)), bell: None, wake_at: None }
    }

    pub(crate) fn single(shared: Arc<Shared>, event: Option<OwnedFd>, bell: LaneBell) -> Lane {
        Lane { shared, index: 0, event, multi: None, bell: Some(bell), wake_at: None }
    }

    /// Its number among the device's hard queues.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its place in the [roster](crate::Bell::roster) of its home. It is the lane's for as long as
    /// the device lives, also while the lane is closed.
    #[must_use]
    pub fn place(&self) -> usize {
        let own = self.bell.as_ref().or_else(|| self.shared.lanes[self.index].bell.get());
        own.map_or(0, |home| home.place)
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

    /// A way for its home to wait for the driver, or until `beside` becomes readable, where the
    /// driver has one that takes less than polling the [event](Lane::event_fd), which is of no use
    /// any more from then on.
    #[must_use]
    pub fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        match &mut self.multi {
            Some(multi) => multi.hard.waiter(beside),
            None => self.shared.single.as_ref().and_then(|single| single.waiter(beside)),
        }
    }

    /// Whether the bell was rung for this lane since its last turn.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let multi = self.multi.as_ref();
        multi.is_some_and(|multi| multi.is_waited_for(&self.shared, self.index))
            || self.shared.lanes[self.index].has_work()
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
            Some(multi) => {
                multi.hard.len() == 0 && multi.ways.soft.is_empty() && !multi.link.is_waiting()
            }
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
        multi.take_control(&self.shared, self.index, Nanos::ZERO);
        multi.leave_need(&self.shared, self.index);
        state.open = false;
        let Multi { link, mut ways, mut refused, .. } = *multi;
        let host = &self.shared.host;
        // A panic elsewhere may have poisoned it, and this may be what unwinds.
        let heirs = self.shared.dispatcher.take_whole().map_or(0, |mut dispatcher| {
            if host.read() == self.index as u64 {
                host.set(NO_HOST);
            }
            let heirs = dispatcher.close(self.index as u16, link, &mut refused);
            self.shared.let_go(dispatcher);
            heirs
        });
        refuse(&mut refused, &mut ways.replies);
        ways.replies.post();
        state.kept = Some(ways);
        // The driver goes outside the lock.
        drop(state);
        self.shared.kick_each(heirs);
    }
}

/// With a scheduler nothing comes to the driver past it.
struct Nothing;

impl Source for Nothing {
    fn give(&mut self, _: bool, _: usize, _: &mut impl FnMut(RequestClaim)) -> usize {
        0
    }
}

/// Ends what would have had to wait for a scheduler's tag, and may not.
#[cold]
fn refuse(refused: &mut Vec<RequestClaim>, replies: &mut Replies) {
    for mut claim in refused.drain(..) {
        (claim.status, claim.refused) = (Status::Again, true);
        (claim.issued_at, claim.done_at) = (claim.accepted_at, claim.accepted_at);
        replies.push(claim);
    }
}

impl Multi {
    #[inline]
    fn turn(&mut self, shared: &Shared, index: usize, now: Nanos) {
        let port = &shared.lanes[index];
        if port.control.is_waiting() {
            self.take_control(shared, index, now);
        }
        if shared.in_need.read() != 0 {
            self.hard.stand_beside();
        }
        self.hard.reap(now);
        while self.hard.end_one(now, &mut self.ways.replies) {}
        self.hard.scan(now, self.paused > 0, &mut self.ways.replies);
        port.pending.take(|source| match source {
            ELEVATOR => self.ask_elevator = true,
            NUDGE => {}
            submitter => self.ways.soft.mark(submitter),
        });
        self.refresh(shared);
        if self.needs || self.hard.is_in_need(now) {
            self.see_to_need(shared, index, now);
        }
        if self.snapshot.scheduled {
            self.gather(shared, now);
        }
        if self.snapshot.scheduled {
            self.turn_elevator(shared, index, now);
            if self.needs && std::mem::take(&mut self.tells) {
                self.tell_heirs(shared, index);
            }
            if self.paused == 0 {
                self.hard.issue(now, &mut self.ways.replies, &mut Nothing);
            }
        } else if self.paused == 0 {
            let short = self.hard.issue(now, &mut self.ways.replies, &mut self.ways.soft);
            if short {
                self.stage(shared, now);
            }
        }
        self.ways.replies.post();
        if self.hard.end_pass() {
            // Tags came back to a set others draw on.
            self.hard.tags().tell_waiting(|lane| shared.nudge(lane));
        }
        self.tell_of_fences(shared, index);
    }

    /// Tags or the driver ran short: what waits is merged where it can be, and taken in turn.
    #[inline(never)]
    fn stage(&mut self, shared: &Shared, now: Nanos) {
        // A ring may hold what was submitted since this turn began, under newer limits.
        self.refresh(shared);
        let spread = shared.config.spread;
        let nomerges = if spread == Spread::RoundRobin { 2 } else { self.snapshot.nomerges };
        if self.ways.soft.stage(&self.snapshot.limits, nomerges) {
            self.hard.count_shortage();
            self.hard.keeps_waiting(shared.in_need.read() != 0, now);
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
            self.forget_elevator();
        }
    }

    /// There is nothing to ask for, and nothing to come back for.
    fn forget_elevator(&mut self) {
        (self.ask_elevator, self.again, self.due) = (false, false, false);
        (self.elevator_wake, self.left_at) = (None, None);
    }

    /// Takes what its submitters have handed over: to the elevator, or past it what is for the
    /// flush machine.
    fn gather(&mut self, shared: &Shared, now: Nanos) {
        let Multi { hard, ways: Ways { soft, replies }, arrivals, .. } = self;
        soft.give(false, usize::MAX, &mut |claim| {
            if claim.flush_step.is_sequenced() {
                hard.take_in(claim, now, replies);
            } else {
                arrivals.collect(claim);
            }
        });
        arrivals.look();
        if self.arrivals.is_empty() {
            return;
        }
        // Some may have been handed over since this turn began. With them inside, there is no
        // switch until they have ended.
        self.refresh(shared);
        if !self.snapshot.scheduled {
            let Multi { hard, ways, arrivals, .. } = self;
            arrivals.claims().for_each(|claim| hard.take_in(claim, now, &mut ways.replies));
        }
    }

    #[inline(never)]
    fn turn_elevator(&mut self, shared: &Shared, index: usize, now: Nanos) {
        if index >= usize::from(self.snapshot.queues) {
            // Its home drops it when it comes to it; the scheduler does not know it any more.
            return self.forget_elevator();
        }
        if self.left_at.is_some() && !shared.asks.has(index) {
            self.left_at = None;
        }
        self.due |= self.paused == 0 && self.elevator_wake.is_some_and(|at| at <= now);
        let waited = self.left_at.is_some_and(|at| now >= at + PATIENCE_NS);
        let has = !self.arrivals.is_empty() || !self.hard.ended.is_empty();
        if has || self.ask_elevator || self.due || waited || self.is_host(shared, index) {
            self.ask(shared, index, now);
        } else if self.again && self.paused == 0 {
            // It may have room again although nothing of the scheduler's has ended.
            let said = shared.lanes[index].credit.read();
            if said == TAKES_NONE || self.credit() > said {
                self.ask(shared, index, now);
            }
        }
        self.receive(now);
    }

    /// Whether others count on this lane.
    fn is_host(&self, shared: &Shared, index: usize) -> bool {
        shared.asks.any() && shared.host.read() == index as u64
    }

    /// Whether something was sent to this lane, or others count on it.
    fn is_waited_for(&self, shared: &Shared, index: usize) -> bool {
        self.link.is_waiting() || self.is_host(shared, index)
    }

    /// Receives what was picked for this lane by others.
    #[inline]
    fn receive(&mut self, now: Nanos) {
        let Multi { hard, ways, link, .. } = self;
        link.receive(|claim| hard.take_in(claim, now, &mut ways.replies));
    }

    #[cold]
    fn take_control(&mut self, shared: &Shared, index: usize, now: Nanos) {
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
                    self.say_credit(shared, index);
                    acks.acknowledge();
                }
                Control::Resume => self.paused = self.paused.saturating_sub(1),
                Control::Take(claims) => self.take_over(claims, now),
            }
        }
    }

    fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let paused = self.paused > 0;
        let elevator = self.elevator_wake.filter(|_| !paused);
        let left = self.left_at.map(|at| at + PATIENCE_NS);
        [self.hard.wake_at(now, paused), elevator, left].into_iter().flatten().min()
    }
}
