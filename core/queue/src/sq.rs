//! The single-queue path: one list, one lock, taken to insert, to dispatch and to complete
//! (docs/behaviour/block-layer.md, section 13). It exists to be compared with. Any home may turn
//! it, if the driver can be called by any thread.
//!
//! The lock is taken once for each bio (merge attempt and request pool), once for each flushed
//! plug (insertion, and dispatch under it), once for each reap, once for each request that ends,
//! and once more to restart the queue.

mod pools;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

use weir_bio::{Flags, Nanos, SubmitterId};

use crate::bell::{Bell, LaneBell, Port};
use crate::driver::Waiter;
use crate::error::Error;
use crate::event::{Silent, Sink, What, lane_tells, submitter_tells};
use crate::hard::reply::Replies;
use crate::hard::settle::Onward;
use crate::hard::{HardQueue, Source};
use crate::lanes::{Lanes, NUDGE};
use crate::order::arrivals::{Arrival, Arrivals, Picked};
use crate::order::elevator::Elevator;
use crate::request::{Counted, Request, RequestClaim};
use crate::snapshot::Snapshot;
use crate::stats::LaneGauges;
use crate::wbt::TrackedEnds;
use pools::Pools;

/// Groups that may all have their pools full before a request waits for its scheduler tag.
const FULL_GROUPS: u32 = 4;

/// The scheduler tags of a device in `sq` mode: sync and async, half as many again for batchers.
pub(crate) fn tags(nr_requests: u16) -> u16 {
    (u32::from(nr_requests) * 3 * FULL_GROUPS).min(TAGS_MOST) as u16
}

const TAGS_MOST: u32 = 0x8000;

/// The one queue of a device in `sq` mode.
pub(crate) struct Sq {
    /// There is one.
    pub(crate) lanes: Lanes,
    pub(crate) gauges: Arc<LaneGauges>,
    queue: Mutex<Queue>,
    /// Whether any thread that holds the lock may call the driver, or its home alone.
    pub(crate) any_home: bool,
    /// The hard queue is installed.
    open: Mutex<bool>,
    /// The homes that turn the queue, or did.
    homes: Mutex<Vec<SqHome>>,
    /// What the time is once the lock was waited for. Without it, what it was before.
    clock: OnceLock<fn() -> Nanos>,
    /// How often the lock was waited for.
    #[cfg(test)]
    waits: std::sync::atomic::AtomicU32,
}

/// A home of the queue. It keeps its place while the lane is closed.
struct SqHome {
    bell: LaneBell,
    open: bool,
}

struct Queue {
    elevator: Elevator,
    /// Requests for the flush machine.
    sequenced: VecDeque<RequestClaim>,
    /// Holds that were taken.
    holds: Vec<RequestClaim>,
    hard: Option<HardQueue>,
    replies: Replies,
    pools: Pools,
    arrivals: Arrivals,
    pulled: Vec<Picked>,
    paused: u32,
}

impl Sq {
    pub(crate) fn new(elevator: Elevator, nr_requests: u16, any_home: bool) -> Sq {
        Sq {
            lanes: Lanes::new(1, 1),
            gauges: Arc::default(),
            open: Mutex::default(),
            homes: Mutex::default(),
            clock: OnceLock::new(),
            #[cfg(test)]
            waits: std::sync::atomic::AtomicU32::new(0),
            queue: Mutex::new(Queue {
                elevator,
                sequenced: VecDeque::new(),
                holds: Vec::new(),
                hard: None,
                replies: Replies::default(),
                pools: Pools::new(nr_requests),
                arrivals: Arrivals::default(),
                pulled: Vec::new(),
                paused: 0,
            }),
            any_home,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("the single queue's lock")
    }

    /// The lock and the time: `now`, or what the clock says if another thread had the lock. What is
    /// issued under it then waited in the queue, not at the device.
    fn lock_since(&self, now: Nanos) -> (MutexGuard<'_, Queue>, Nanos) {
        match self.queue.try_lock() {
            Ok(queue) => (queue, now),
            Err(TryLockError::Poisoned(poisoned)) => panic!("the single queue's lock: {poisoned}"),
            Err(TryLockError::WouldBlock) => self.wait_for_lock(now),
        }
    }

    #[cold]
    fn wait_for_lock(&self, now: Nanos) -> (MutexGuard<'_, Queue>, Nanos) {
        #[cfg(test)]
        self.waits.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let queue = self.lock();
        (queue, self.clock.get().map_or(now, |clock| now.max(clock())))
    }

    /// The clock that `now` is read from, for the time after a wait. The first one stays.
    pub(crate) fn attach_clock(&self, clock: fn() -> Nanos) {
        self.clock.get_or_init(|| clock);
    }

    /// The same where a panic elsewhere may have poisoned it, and this may be what unwinds.
    fn lock_anyway(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attach(&self, submitter: usize, port: Arc<Port>) {
        self.lock().replies.attach(submitter, port);
    }

    pub(crate) fn detach(&self, submitter: usize) {
        let mut queue = self.lock();
        queue.replies.detach(submitter);
        queue.pools.forget(submitter);
    }

    /// Installs the hard queue.
    pub(crate) fn install(&self, hard: HardQueue) {
        let before = self.lock().hard.replace(hard);
        assert!(before.is_none(), "the single queue has a hard queue already");
    }

    /// Under the lock: merges a bio into a staged request (`Err(None)`), or counts it against the
    /// pool of its group and direction; `Err(Some)` gives it back when it has to wait for one.
    pub(crate) fn offer(
        &self,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<RequestClaim, Option<RequestClaim>> {
        let id = claim.rq.id.submitter();
        let let_go = || submitter_tells(sink, id, now, || What::RightLetGo);
        submitter_tells(sink, id, now, || What::RightTaken);
        let mut queue = self.lock();
        let Some(mut claim) = queue.elevator.merge(claim, now, 0, sink) else {
            drop(queue);
            let_go();
            return Err(None);
        };
        let Queue { elevator, pools, .. } = &mut *queue;
        // A part of an accepted bio goes ahead without a place where there is none.
        let may_wait = claim.split == Request::WHOLE && !claim.rq.flags.has(Flags::NOWAIT);
        if !pools.take(&claim.rq, may_wait, now, || elevator.may_queue(&claim.rq)) {
            drop(queue);
            let_go();
            return Err(Some(claim));
        }
        claim.counted.add(Counted::POOL);
        drop(queue);
        let_go();
        Ok(claim)
    }

    /// Under the lock: inserts a flushed plug, sorted by sector, and dispatches if this thread may
    /// and the submitter does so `inline`.
    pub(crate) fn insert(
        &self,
        id: SubmitterId,
        plug: &mut Vec<RequestClaim>,
        inline: bool,
        now: Nanos,
        sink: impl Sink,
    ) {
        plug.sort_by_key(|claim| claim.rq.sector);
        submitter_tells(sink, id, now, || What::RightTaken);
        let (mut queue, now) = self.lock_since(now);
        let Queue { elevator, arrivals, .. } = &mut *queue;
        plug.drain(..).for_each(|claim| arrivals.push(Arrival::of(claim)));
        elevator.insert_all(0, arrivals, now, sink);
        // A request that may not wait was refused when it asked for its place.
        elevator.park(arrivals, sink);
        if self.any_home && inline {
            queue.run(now, sink);
        }
        drop(queue);
        submitter_tells(sink, id, now, || What::RightLetGo);
    }

    /// Under the lock: hands a request to the flush machine at the next dispatch.
    pub(crate) fn insert_sequenced(&self, claim: RequestClaim) {
        self.lock().sequenced.push_back(claim);
    }

    /// Under the lock: a hold that was taken goes to its owner, once what passed before has ended.
    #[cold]
    pub(crate) fn settle(&self, hold: RequestClaim) {
        self.lock().holds.push(hold);
        self.lanes.nudge(0);
    }

    /// One turn: reap, end each under a lock hold of its own, restart. Returns when to come back.
    /// `window` is that of the write-back throttle, and `ended` hears of what that counts.
    pub(crate) fn run(
        &self,
        now: Nanos,
        window: u64,
        ended: impl FnOnce(TrackedEnds),
        sink: impl Sink,
    ) -> Option<Nanos> {
        let held = |taken| {
            let what = if taken { What::RightTaken } else { What::RightLetGo };
            lane_tells(sink, 0, now, || what);
        };
        let now = {
            held(true);
            // Not before what was issued meanwhile.
            let (mut queue, now) = self.lock_since(now);
            let hard = queue.hard.as_mut();
            let reaped = hard.map(|hard| {
                hard.observe(window);
                hard.reap(now, sink);
            });
            drop(queue);
            held(false);
            reaped?;
            now
        };
        loop {
            held(true);
            let more = self.lock().end_one(now, sink);
            held(false);
            if !more {
                break;
            }
        }
        held(true);
        let (mut queue, now) = self.lock_since(now);
        queue.scan(now, sink);
        queue.run(now, sink);
        if let Some(ends) = queue.replies.take_throttled() {
            // Before their submitters hear of it: a frozen device has none under way.
            ended(ends);
        }
        queue.replies.post(0, now, sink);
        if let Some(hard) = &mut queue.hard {
            hard.note_pass(now);
        }
        let wake_at = queue.wake_at(now);
        drop(queue);
        held(false);
        wake_at
    }

    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.lock();
        queue.elevator.len() == 0
            && queue.sequenced.is_empty()
            && queue.hard.as_ref().is_none_or(|hard| hard.len() == 0)
    }

    /// When the oldest request of the hard queue was accepted.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        self.lock().hard.as_ref().and_then(HardQueue::oldest)
    }

    /// A descriptor of its own for the driver's event, if the driver has one.
    pub(crate) fn event(&self) -> std::io::Result<Option<OwnedFd>> {
        self.lock().hard.as_ref().map_or(Ok(None), HardQueue::event)
    }

    /// The driver's own way to wait, if it has but one home.
    pub(crate) fn waiter(&self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        let mut queue = self.lock();
        queue.hard.as_mut().filter(|_| !self.any_home).and_then(|hard| hard.waiter(beside))
    }

    /// Whether no request exists at all.
    pub(crate) fn is_empty(&self) -> bool {
        let queue = self.lock();
        queue.elevator.is_idle() && queue.pools.is_unused()
    }

    /// Replaces the elevator, which must be empty.
    pub(crate) fn replace_elevator(&self, elevator: Elevator, nr_requests: u16) {
        let mut queue = self.lock();
        assert!(queue.elevator.is_idle(), "the elevator is replaced while it has requests");
        queue.elevator = elevator;
        queue.pools.resize(nr_requests);
    }

    /// Changes how many requests there may be of each direction; there are none.
    pub(crate) fn resize(&self, nr_requests: u16) {
        let mut queue = self.lock();
        queue.elevator.resize(tags(nr_requests));
        queue.pools.resize(nr_requests);
    }

    pub(crate) fn with_elevator<T>(&self, with: impl FnOnce(&mut Elevator) -> T) -> T {
        with(&mut self.lock().elevator)
    }

    /// Takes over what a snapshot says of hard queues.
    pub(crate) fn follow(&self, snapshot: &Snapshot) {
        if let Some(hard) = self.lock().hard.as_mut() {
            hard.follow(snapshot);
        }
    }

    pub(crate) fn pause(&self) {
        self.lock().paused += 1;
    }

    pub(crate) fn resume(&self) {
        self.lock().paused -= 1;
        self.lanes.nudge(0);
    }

    /// Whether the hard queue is installed, for who installs it or takes it out.
    pub(crate) fn is_open(&self) -> MutexGuard<'_, bool> {
        self.open.lock().expect("the lane's lock")
    }

    fn homes(&self) -> MutexGuard<'_, Vec<SqHome>> {
        self.homes.lock().expect("the homes' lock")
    }

    /// A home takes part in turning the queue.
    ///
    /// # Errors
    /// It has no place left for the lane.
    pub(crate) fn join(&self, bell: &Arc<Bell>) -> Result<LaneBell, Error> {
        let mut homes = self.homes();
        // A home has at most one lane of it open.
        let is_it = |home: &&mut SqHome| !home.open && Arc::ptr_eq(&home.bell.bell, bell);
        if let Some(home) = homes.iter_mut().find(is_it) {
            home.open = true;
            return Ok(home.bell.clone());
        }
        // The first home is the lane's.
        let first = self.lanes[0].bell.get().filter(|home| Arc::ptr_eq(&home.bell, bell));
        let bell = first.cloned().map_or_else(|| LaneBell::new(bell), Ok)?;
        homes.push(SqHome { bell: bell.clone(), open: true });
        Ok(bell)
    }

    /// Makes the queue take a turn: by the calling home if it is one, which looks before it sleeps,
    /// else by the first.
    pub(crate) fn restart(&self, caller: Option<&LaneBell>) {
        match caller {
            Some(home) => {
                self.lanes[0].pending.mark(NUDGE);
                home.mark_ordered();
            }
            None => self.lanes.nudge(0),
        }
    }

    /// Wakes every home that has the lane open.
    pub(crate) fn ring_homes(&self) {
        each_open(&self.homes()).for_each(LaneBell::ring);
    }

    /// The place of this bell's home, if it has the lane open.
    pub(crate) fn home_of(&self, bell: &Arc<Bell>) -> Option<LaneBell> {
        let homes = self.homes();
        each_open(&homes).find(|home| Arc::ptr_eq(&home.bell, bell)).cloned()
    }

    /// A home lets go of the queue. The last one takes the hard queue with it.
    pub(crate) fn close(&self, bell: &LaneBell) {
        let mut open = self.is_open();
        let mut homes = self.homes();
        if let Some(home) = homes.iter_mut().find(|home| home.open && home.bell.is(bell)) {
            home.open = false;
        }
        if each_open(&homes).next().is_some() {
            // The queue's next time may be known to the one that goes alone.
            each_open(&homes).for_each(LaneBell::ring);
        } else {
            drop(self.uninstall());
            *open = false;
        }
    }

    /// Takes the hard queue out when its lane closes.
    pub(crate) fn uninstall(&self) -> Option<HardQueue> {
        self.lock_anyway().hard.take()
    }
}

fn each_open(homes: &[SqHome]) -> impl Iterator<Item = &LaneBell> {
    homes.iter().filter(|home| home.open).map(|home| &home.bell)
}

/// The elevator as the request function asks it.
struct FromElevator<'a, S> {
    elevator: &'a mut Elevator,
    pulled: &'a mut Vec<Picked>,
    now: Nanos,
    sink: S,
}

impl<S: Sink> Source for FromElevator<'_, S> {
    const GIVES_ALL: bool = false;

    fn holds(&self, most: usize) -> usize {
        self.elevator.len().min(most)
    }

    fn give(&mut self, _busy: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
        self.elevator.pull(0, max, self.now, self.pulled, self.sink);
        let given = self.pulled.len();
        self.pulled.drain(..).map(Picked::into_claim).for_each(sink);
        given
    }
}

impl Queue {
    fn end_one(&mut self, now: Nanos, sink: impl Sink) -> bool {
        let Some(hard) = &mut self.hard else { return false };
        let more = hard.end_one(now, &mut self.replies, sink);
        self.account_ended(now, sink);
        more
    }

    fn scan(&mut self, now: Nanos, sink: impl Sink) {
        let Some(hard) = &mut self.hard else { return };
        hard.scan(now, self.paused > 0, &mut self.replies, sink);
        self.account_ended(now, sink);
    }

    fn account_ended(&mut self, now: Nanos, sink: impl Sink) {
        let Some(hard) = &mut self.hard else { return };
        if !hard.ended.is_empty() {
            self.elevator.ended(0, &hard.ended, now, sink);
            hard.ended.clear();
        }
        let mut freed = std::mem::take(&mut self.replies.freed);
        for (group, is_sync) in freed.drain(..) {
            self.pools.give_back(group, is_sync, |submitter| self.replies.nudge(submitter));
        }
        self.replies.freed = freed;
    }

    /// The request function: feeds the driver from the dispatch list, then the elevator.
    fn run(&mut self, now: Nanos, sink: impl Sink) {
        let Some(hard) = &mut self.hard else { return };
        if self.paused > 0 {
            return hard.end_pass();
        }
        while let Some(claim) = self.sequenced.pop_front() {
            hard.take_in(claim, now, &mut self.replies, sink);
        }
        self.holds.drain(..).for_each(|hold| hard.settle(hold));
        self.elevator.fire(now);
        let mut source =
            FromElevator { elevator: &mut self.elevator, pulled: &mut self.pulled, now, sink };
        hard.issue(now, &mut self.replies, &mut source, sink);
        if let Some(Onward { settled, taken }) = hard.take_onward() {
            settled.into_iter().for_each(|hold| self.replies.push(hold, 0, now, Silent));
            self.holds.extend(taken);
            // Those are sent the same way.
            return self.run(now, sink);
        }
        if hard.take_refused() {
            // Their tags may be what others wait for.
            self.account_ended(now, sink);
            return self.run(now, sink);
        }
        if let Some(hard) = &mut self.hard {
            hard.end_pass();
        }
        if let Some(submitter) = self.elevator.idles_for() {
            self.pools.hurry(submitter, |submitter| self.replies.nudge(submitter));
        }
    }

    fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let paused = self.paused > 0;
        let hard = self.hard.as_ref().and_then(|hard| hard.wake_at(now, paused));
        let elevator = self.elevator.wake_at(now).filter(|_| !paused);
        Nanos::first_of(hard, elevator)
    }
}
