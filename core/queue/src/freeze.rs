//! Control steps: changes of a device that are polled, waited for, or given up.
//!
//! A [`Step`] never blocks. Its caller polls it when the [`Watch`] it was begun with is marked, and
//! sleeps meanwhile; dropping a step undoes what it has begun. The blocking calls of
//! [`Device`](crate::Device) are loops around steps.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use weir_bio::Nanos;
use weir_ring::Wake;

use crate::bell::Bell;
use crate::device::Device;
use crate::lane::Control;
use crate::shared::Shared;

/// Where the caller of a [`Step`] is told to poll it again: a token of a bell.
#[derive(Clone, Debug)]
pub struct Watch {
    bell: Arc<Bell>,
    token: usize,
}

impl Watch {
    /// Token `token` of `bell`. A step may also use it for the completions of its own I/O.
    ///
    /// # Panics
    /// When the bell has no such token.
    #[must_use]
    pub fn new(bell: &Arc<Bell>, token: usize) -> Watch {
        assert!(token < bell.submitters(), "token={token} of a bell with {}", bell.submitters());
        Watch { bell: Arc::clone(bell), token }
    }

    pub(crate) fn bell(&self) -> (&Arc<Bell>, usize) {
        (&self.bell, self.token)
    }

    pub(crate) fn nudge(&self) {
        self.bell.ready().mark(self.token);
        self.bell.doorbell().ring_fenced();
    }
}

/// How far a [`Step`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// It has ended. It is not to be polled again.
    Ended(T),
    /// It waits; its watch is marked when it may go on.
    Waits,
}

impl<T> Progress<T> {
    /// Whether it waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self, Progress::Waits)
    }
}

/// What a [`Step`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Another change of the device, begun before.
    Change,
    /// So many requests, accepted and not ended.
    Requests(u64),
    /// Another freeze, which has to be lifted.
    Freeze,
    /// The last flush.
    Flush,
    /// Lanes, which have to stop sending.
    Lanes,
    /// The home of this hard queue, which has to open it.
    Opening(usize),
    /// The home of this hard queue, which has to close it.
    Closing(usize),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::Change => f.write_str("another change of the disk"),
            Wait::Requests(1) => f.write_str("1 request to end"),
            Wait::Requests(count) => write!(f, "{count} requests to end"),
            Wait::Freeze => f.write_str("another freeze of the disk to be lifted"),
            Wait::Flush => f.write_str("the last flush"),
            Wait::Lanes => f.write_str("its hard queues to stop"),
            Wait::Opening(index) => write!(f, "hard queue {index} to open"),
            Wait::Closing(index) => write!(f, "hard queue {index} to close"),
        }
    }
}

/// A change of a device under way.
///
/// # Contract
/// [`poll`](Step::poll) does not block and may be called for no reason. Dropping a step that has
/// not ended gives it up: the gate opens, lanes go on, and everything is as it was before, but
/// where the step says otherwise.
pub trait Step {
    /// What comes of it.
    type Out;

    /// Goes on as far as it can.
    fn poll(&mut self, now: Nanos) -> Progress<Self::Out>;

    /// What it waits for, after a poll that has not ended it.
    fn waits_for(&self) -> Wait;

    /// Ends it before its time. What comes back is what came of it nonetheless: of a change that
    /// could not be undone any more.
    fn give_up(self) -> Option<Self::Out>
    where
        Self: Sized,
    {
        None
    }
}

/// The callers of a device's steps, told whenever one of these may go on. None is there, and none
/// is looked for, as long as nothing is changed.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Arc<Watch>>>);

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    pub(crate) fn tell(&self) {
        self.lock().iter().for_each(|watch| watch.nudge());
    }
}

/// A caller's place among the watchers, while its step lives.
pub(crate) struct Watching {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
}

impl Watching {
    pub(crate) fn new(shared: &Arc<Shared>, watch: &Watch) -> Watching {
        let watch = Arc::new(watch.clone());
        shared.watchers.lock().push(Arc::clone(&watch));
        Watching { shared: Arc::clone(shared), watch }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.watchers.lock().retain(|watch| !Arc::ptr_eq(watch, &self.watch));
    }
}

/// The order in which a device is changed: one change at a time, first come, first served. A gate
/// lets several freezers in at once.
#[derive(Default)]
pub(crate) struct Changes(Mutex<Line>);

#[derive(Default)]
struct Line {
    next: u64,
    tickets: VecDeque<u64>,
}

/// A change's place in that order. Its turn ends when it is dropped.
pub(crate) struct Ticket {
    watching: Watching,
    number: u64,
}

impl Ticket {
    pub(crate) fn draw(device: &Device, watch: &Watch) -> Ticket {
        let watching = Watching::new(&device.shared, watch);
        let mut line = device.shared.changes.lock();
        let number = line.next;
        line.next += 1;
        line.tickets.push_back(number);
        drop(line);
        Ticket { watching, number }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.watching.shared.changes.lock().tickets.front() == Some(&self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let shared = &self.watching.shared;
        shared.changes.lock().tickets.retain(|ticket| *ticket != self.number);
        shared.watchers.tell();
    }
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device on its way to be frozen: its gate is closed, and what was accepted is waited for.
pub struct Freezing {
    frozen: Option<Frozen>,
    shared: Arc<Shared>,
    _watching: Watching,
}

/// A frozen device; dropping it lets I/O in again.
#[must_use = "the device stays frozen until this is dropped"]
pub struct Frozen {
    shared: Arc<Shared>,
}

impl Step for Freezing {
    type Out = Frozen;

    fn poll(&mut self, _: Nanos) -> Progress<Frozen> {
        if !self.shared.gate.is_empty() {
            return Progress::Waits;
        }
        Progress::Ended(self.frozen.take().expect("a step that has ended is not polled again"))
    }

    fn waits_for(&self) -> Wait {
        Wait::Requests(self.shared.gate.inside())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let last = self.shared.gate.open();
        // One who may be the only one left that holds it.
        self.shared.watchers.tell();
        if last {
            self.shared.nudge_all();
        }
    }
}

/// A device on its way to be quiesced: its open lanes were asked to stop.
pub struct Quiescing {
    quiesced: Option<Quiesced>,
    acks: Arc<Acks>,
}

/// A quiesced device; dropping it resumes dispatch.
#[must_use = "the device stays quiesced until this is dropped"]
pub struct Quiesced {
    shared: Arc<Shared>,
}

impl Step for Quiescing {
    type Out = Quiesced;

    fn poll(&mut self, _: Nanos) -> Progress<Quiesced> {
        if !self.acks.are_complete() {
            return Progress::Waits;
        }
        Progress::Ended(self.quiesced.take().expect("a step that has ended is not polled again"))
    }

    fn waits_for(&self) -> Wait {
        Wait::Lanes
    }
}

impl Drop for Quiesced {
    fn drop(&mut self) {
        if let Some(single) = &self.shared.single {
            single.resume();
            self.shared.nudge(0);
            return;
        }
        for lane in self.shared.lanes.all() {
            let mut state = lane.state();
            state.quiesced -= 1;
            if state.open {
                lane.post(Control::Resume);
            }
        }
    }
}

/// Counts answers to a question put to several lanes.
#[derive(Debug)]
pub(crate) struct Acks {
    missing: Mutex<usize>,
    watch: Watch,
}

impl Acks {
    pub(crate) fn new(watch: &Watch) -> Arc<Acks> {
        Arc::new(Acks { missing: Mutex::default(), watch: watch.clone() })
    }

    /// One more answer is to come.
    pub(crate) fn expect(&self) {
        *self.missing.lock().expect("acks") += 1;
    }

    pub(crate) fn acknowledge(&self) {
        *self.missing.lock().expect("acks") -= 1;
        self.watch.nudge();
    }

    pub(crate) fn are_complete(&self) -> bool {
        *self.missing.lock().expect("acks") == 0
    }
}

impl Device {
    /// Begins to freeze: nothing new is let in from now on. Nests.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_freeze(&self, watch: &Watch) -> Freezing {
        let shared = Arc::clone(&self.shared);
        let _watching = Watching::new(&shared, watch);
        shared.gate.close();
        shared.nudge_all();
        Freezing { frozen: Some(Frozen { shared: Arc::clone(&shared) }), shared, _watching }
    }

    /// Begins to quiesce: dispatch stops, what is queued is kept, completions go on. Nests.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_quiesce(&self, watch: &Watch) -> Quiescing {
        let (shared, acks) = (Arc::clone(&self.shared), Acks::new(watch));
        match &shared.single {
            Some(single) => single.pause(),
            None => {
                for lane in shared.lanes.all() {
                    // A lane that closes answers what it was asked before.
                    let mut state = lane.state();
                    state.quiesced += 1;
                    if state.open {
                        acks.expect();
                        lane.post(Control::Pause(Arc::clone(&acks)));
                    }
                }
            }
        }
        Quiescing { quiesced: Some(Quiesced { shared }), acks }
    }

    /// Stops new I/O and waits until all that was accepted has ended. Nests. Not for a thread that
    /// turns lanes or has a submitter with I/O under way: it would wait for itself.
    pub fn freeze(&self) -> Frozen {
        wait(|watch| self.begin_freeze(watch), || Nanos::ZERO)
    }

    /// Stops dispatch and keeps what is queued; completions go on. Waits until every open lane has
    /// stopped. Not for a thread that turns lanes.
    pub fn quiesce(&self) -> Quiesced {
        wait(|watch| self.begin_quiesce(watch), || Nanos::ZERO)
    }
}

/// Blocks the calling thread until a step ends, however long that takes.
pub(crate) fn wait<S: Step>(begin: impl FnOnce(&Watch) -> S, clock: impl Fn() -> Nanos) -> S::Out {
    let bed = Arc::new(Bed::default());
    let bell = Bell::new(Box::new(BedWake(Arc::clone(&bed))), 1);
    let mut step = begin(&Watch::new(&bell, 0));
    loop {
        bell.ready().take(|_| ());
        if let Progress::Ended(out) = step.poll(clock()) {
            return out;
        }
        bell.doorbell().wait_until(|| bell.ready().any(), || bed.sleep());
    }
}

/// Where a blocking call sleeps.
#[derive(Default)]
struct Bed {
    woken: Mutex<bool>,
    changed: Condvar,
}

struct BedWake(Arc<Bed>);

impl Wake for BedWake {
    fn wake(&self) {
        *self.0.woken.lock().expect("a bed's lock") = true;
        self.0.changed.notify_one();
    }
}

impl Bed {
    fn sleep(&self) {
        let woken = self.woken.lock().expect("a bed's lock");
        let mut woken = self.changed.wait_while(woken, |woken| !*woken).expect("a bed's lock");
        *woken = false;
    }
}
