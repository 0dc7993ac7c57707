//! Control steps: how a change of a device is polled, waited for, or given up, and how its caller
//! is told to poll again. Which changes there are is in `device/`.
//!
//! A [`Step`] never blocks. Its caller polls it when the [`Watch`] it was begun with is marked, and
//! sleeps meanwhile; dropping a step undoes what it has begun. The blocking calls of
//! [`Device`](crate::Device) are loops around steps.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use weir_bio::Nanos;
use weir_ring::Wake;

use crate::bell::Bell;
use crate::error::Wait;

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
        self.bell.doorbell().ring_ordered();
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

/// A change of a device under way.
///
/// # Contract
/// [`poll`](Step::poll) does not block and may be called for no reason. Dropping a step that has
/// not ended gives it up: the gate opens, lanes go on, and everything is as it was before, but
/// where the step says otherwise.
pub trait Step {
    /// The result of the step.
    type Out;

    /// Goes on as far as it can.
    fn poll(&mut self, now: Nanos) -> Progress<Self::Out>;

    /// The thing it waits for, after a poll that has not ended it.
    fn waits_for(&self) -> Wait;

    /// Ends it before its time. Returns the result of a change that could not be undone any more.
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

    /// This caller is told from now on, until it [leaves](Watchers::leave).
    pub(crate) fn join(&self, watch: &Watch) -> Arc<Watch> {
        let watch = Arc::new(watch.clone());
        self.lock().push(Arc::clone(&watch));
        watch
    }

    pub(crate) fn leave(&self, gone: &Arc<Watch>) {
        self.lock().retain(|watch| !Arc::ptr_eq(watch, gone));
    }

    #[cold]
    pub(crate) fn tell(&self) {
        self.lock().iter().for_each(|watch| watch.nudge());
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
