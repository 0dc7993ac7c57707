//! A lane: one hard queue with a home thread, turned by `turn(now)`.
//!
//! On the multi-queue path the lane owns its [`HardQueue`]; on the single-queue path it is a way to
//! the one under the lock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::{Nanos, Status};
use weir_ring::{Consumer, Right};

use crate::arrivals::Arrivals;
use crate::bell::{Bell, Port};
use crate::config::{Error, Spread};
use crate::dispatcher::{Link, NO_HOST, Outcome, TAKES_NONE, Turn};
use crate::driver::{DriverError, Waiter};
use crate::freeze::Acks;
use crate::hard::{ALL, HardQueue, Source};
use crate::reply::Replies;
use crate::request::RequestClaim;
use crate::shared::{ELEVATOR, LaneState, NUDGE, Shared, Snapshot};
use crate::soft::Soft;

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
        let mut multi = Multi {
            hard,
            ways: state.kept.take().unwrap_or_default(),
            snapshot,
            ask_elevator: false,
            elevator_wake: None,
            due: false,
            link: shared.with_right(|dispatcher| dispatcher.open(index)),
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

/// A descriptor of the lane's own for the driver's event, which may sit behind a lock.
///
/// # Errors
/// The system's: no descriptor is left. Without one the lane would not hear of answers.
pub(crate) fn event_of(
    hard: &HardQueue,
    device: &str,
    index: usize,
) -> Result<Option<OwnedFd>, Error> {
    let event = hard.driver().event_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    event.map_err(|source| {
        let what = format!("disk {device}: a descriptor for the event of hard queue {index}");
        Error::Driver(DriverError { what, source: Some(source) })
    })
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

    /// The lane to which this one leaves what it has, the right being free or not: the host,
    /// unless that does not come round, or would have to be woken: that takes longer than to carry
    /// the scheduler's state here.
    fn host(&self, shared: &Shared, index: usize, now: Nanos) -> Option<usize> {
        let host = usize::try_from(shared.host.read()).ok()?;
        let waits = self.left_at.is_none_or(|at| now < at + PATIENCE_NS);
        let (bell, own) = (shared.lanes.get(host)?.bell.get()?, shared.lanes[index].bell.get()?);
        // With a host on its own thread it need not hand anything over.
        let counts = waits && !Arc::ptr_eq(bell, own) && !bell.doorbell().is_asleep();
        counts.then_some(host)
    }

    /// How many requests it can have been sent before the driver has no place.
    fn credit(&self) -> u64 {
        self.link.credit(self.hard.tags().free(), self.hard.waiting())
    }

    /// Requests it takes from the scheduler.
    #[inline]
    fn room(&self) -> usize {
        match self.needs {
            false => self.hard.room(),
            true if self.hoards => ALL,
            true => self.hard.room().min(self.hard.probes()),
        }
    }

    /// Says how much it can be sent; none while it is paused or in need.
    #[inline]
    fn say_credit(&self, shared: &Shared, index: usize) {
        let takes = self.paused == 0 && !self.needs;
        let credit = if takes { self.credit() } else { TAKES_NONE };
        shared.lanes[index].credit.set(credit);
    }

    /// Leaves what it has to whoever is at the elevator, if there is room for it.
    fn leave(&mut self, shared: &Shared, index: usize, now: Nanos) -> bool {
        let timed = self.snapshot.timed;
        if !self.link.leave(&mut self.arrivals, &mut self.hard.ended, timed) {
            return false;
        }
        self.say_credit(shared, index);
        // Whoever serves it sees to the scheduler's time, but does not know that it has come.
        self.elevator_wake = self.due.then_some(now + PATIENCE_NS);
        (self.ask_elevator, self.again) = (false, true);
        let since = self.left_at.filter(|at| now < *at + PATIENCE_NS);
        self.left_at = since.or(Some(now));
        shared.asks.mark(index);
        true
    }

    /// Goes to the elevator, or leaves what it has to whoever is there.
    fn ask(&mut self, shared: &Shared, index: usize, now: Nanos) {
        // The host would not know that a time has come.
        if !self.due
            && let Some(host) = self.host(shared, index, now)
            && self.leave(shared, index, now)
        {
            // Marked: its home sees it before it sleeps, or is woken.
            shared.lanes[host].ring_fenced();
            return;
        }
        let mut next = shared.dispatcher.try_take();
        if next.is_none() {
            next = match self.leave(shared, index, now) {
                true => shared.dispatcher.try_take(),
                false => Some(shared.dispatcher.take()),
            };
        }
        let mut turns = 0;
        while let Some(mut held) = next {
            turns += 1;
            // Nobody else sends anything now.
            self.receive(now);
            if self.left_at.take().is_some_and(|at| now >= at + PATIENCE_NS) {
                // The host does not come round.
                shared.host.set(NO_HOST);
            }
            let room = (self.paused == 0).then(|| self.room());
            let excess = self.hard.waiting().saturating_sub(self.hard.tags().free());
            let mut turn = Turn {
                lane: index as u16,
                arrivals: &mut self.arrivals,
                ended: &mut self.hard.ended,
                room,
                excess,
                due: std::mem::take(&mut self.due),
                now,
                dispatch: &mut self.hard.dispatch,
                refused: &mut self.refused,
            };
            let outcome = held.serve(shared, &mut turn);
            self.say_credit(shared, index);
            Right::let_go(held);
            let more = outcome.more || turns > 1;
            self.follow_up(shared, index, outcome, now);
            // Who was turned away meanwhile counts on this lane; if it has been here for long, it
            // comes back for them.
            next = None;
            if shared.asks.any() {
                match more {
                    true => shared.kick(index, ELEVATOR),
                    false => next = shared.dispatcher.try_take(),
                }
            }
        }
    }

    /// What a turn at the elevator came to.
    fn follow_up(&mut self, shared: &Shared, index: usize, outcome: Outcome, now: Nanos) {
        (self.ask_elevator, self.again) = (outcome.again, false);
        // What is staged for a lane in need is for others to pick, also when the scheduler withheld
        // it before.
        self.tells |= outcome.again;
        if outcome.again {
            self.hard.keeps_waiting(shared.in_need.read() != 0, now);
        }
        if self.paused == 0 {
            self.elevator_wake = outcome.wake_at;
        }
        // Without the right: whoever is told will want it. To let go of it was the fence.
        shared.kick_each(outcome.kicked);
        shared.ring_each_fenced(outcome.sent);
        if !self.refused.is_empty() {
            // They may be of submitters that have come since this turn began.
            self.take_control(shared, index, now);
            refuse(&mut self.refused, &mut self.ways.replies);
        }
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
                Control::Resume => self.resume(now),
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
