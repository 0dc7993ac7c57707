//! What the lanes of one multipath device share: the state machine under its lock, and its version
//! beside it, which each lane reads once in a burst.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_bio::Nanos;
use weir_queue::{Activation, Notices, PortListener, PortState, TargetPort, Wake};

use super::control::{Control, Order};
use super::port::takes_io;
use super::tally::{LaneTally, PathSum};

/// Read by every lane, written when something changes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Published {
    version: AtomicU64,
    /// [`Control::wake_at`].
    wake_at: AtomicU64,
    /// There are checks to be made.
    has_checks: AtomicBool,
}

pub(super) struct Shared {
    published: Published,
    control: Mutex<Control>,
    /// By number. A lane that was closed leaves its counters.
    lanes: Mutex<Vec<LaneEntry>>,
    /// Checks that lane 0 is to make.
    checks: Mutex<Vec<usize>>,
    /// When a path on probation may have its next request.
    probes: Box<[AtomicU64]>,
    /// Of each path, where it has one.
    ports: Box<[Option<Arc<dyn TargetPort>>]>,
    pub(super) notices: Notices,
}

#[derive(Default)]
struct LaneEntry {
    tally: Option<Arc<LaneTally>>,
    wake: Option<Arc<dyn Wake>>,
}

/// One request a second goes to a path on probation.
const PROBE_NS: u64 = 1_000_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks, so nothing is half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The state machine over paths with these ports, which are listened to from now on.
    pub(super) fn new(control: Control, ports: Box<[Option<Arc<dyn TargetPort>>]>) -> Arc<Shared> {
        let paths = control.table().paths().count();
        let published = Published::default();
        let wake_at = control.wake_at().map_or(u64::MAX, |at| at.0);
        published.wake_at.store(wake_at, Ordering::Relaxed);
        published.version.store(control.version(), Ordering::Relaxed);
        let shared = Arc::new(Shared {
            published,
            control: Mutex::new(control),
            lanes: Mutex::default(),
            checks: Mutex::default(),
            probes: (0..paths).map(|_| AtomicU64::new(0)).collect(),
            ports,
            notices: Notices::default(),
        });
        for (path, port) in shared.ports.iter().enumerate() {
            let Some(port) = port else { continue };
            let listener = PathListener { shared: Arc::downgrade(&shared), path };
            port.listen(Arc::new(listener));
            // What changed before it was listened to is not told.
            let mut control = lock(&shared.control);
            control.begin_with_port(path, port.state());
        }
        shared
    }

    /// The version of what lanes follow.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.published.version.load(Ordering::Acquire)
    }

    /// When the state machine has something to do.
    #[inline]
    pub(super) fn wake_at(&self) -> Nanos {
        Nanos(self.published.wake_at.load(Ordering::Relaxed))
    }

    /// Looks at the state machine.
    pub(super) fn look<R>(&self, at: impl FnOnce(&Control) -> R) -> R {
        at(&lock(&self.control))
    }

    /// Changes it, and does what follows: events are told, activations begin, and lanes are woken
    /// if there is something for them.
    pub(super) fn change<R>(&self, now: Nanos, act: impl FnOnce(&mut Control) -> R) -> R {
        let mut control = lock(&self.control);
        let before = (control.version(), control.wake_at());
        let result = act(&mut control);
        let after = (control.version(), control.wake_at());
        let (events, orders) = (control.take_events(), control.take_orders());
        self.published.wake_at.store(after.1.map_or(u64::MAX, |at| at.0), Ordering::Relaxed);
        self.published.version.store(after.0, Ordering::Release);
        drop(control);
        for event in events {
            self.notices.add(event.0);
        }
        let mut wakes_first = before.1 != after.1;
        for order in orders {
            match order {
                Order::Check(path) => {
                    lock(&self.checks).push(path);
                    self.published.has_checks.store(true, Ordering::Release);
                    wakes_first = true;
                }
                Order::Activate(path) => self.activate(path, now),
            }
        }
        if before.0 != after.0 {
            self.wake_lanes(usize::MAX);
        } else if wakes_first {
            self.wake_lanes(1);
        }
        result
    }

    fn activate(&self, path: usize, now: Nanos) {
        match &self.ports[path] {
            Some(port) => port.activate(now),
            // Without a port nothing has to be done for it.
            None => self.change(now, |control| control.activated(path, Activation::Done, now)),
        }
    }

    fn wake_lanes(&self, most: usize) {
        // Not under the lock: a wake may do anything.
        let lanes = lock(&self.lanes);
        let wakes: Vec<_> = lanes.iter().take(most).filter_map(|lane| lane.wake.clone()).collect();
        drop(lanes);
        wakes.iter().for_each(|wake| wake.wake());
    }

    /// Whether a path on probation may have a request now: one lane is told yes.
    pub(super) fn claims_probe(&self, path: usize, now: Nanos) -> bool {
        let at = self.probes[path].load(Ordering::Relaxed);
        let next = (now + PROBE_NS).0;
        let (order, late) = (Ordering::Relaxed, Ordering::Relaxed);
        at <= now.0 && self.probes[path].compare_exchange(at, next, order, late).is_ok()
    }

    /// The checks that lane 0 is to make.
    #[inline]
    pub(super) fn take_checks(&self) -> Vec<usize> {
        if !self.published.has_checks.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut checks = lock(&self.checks);
        self.published.has_checks.store(false, Ordering::Relaxed);
        std::mem::take(&mut checks)
    }

    pub(super) fn port_state(&self, path: usize) -> Option<PortState> {
        self.ports[path].as_ref()?.state()
    }

    /// Whether the port of a path takes I/O, as far as is known.
    pub(super) fn port_takes_io(&self, path: usize) -> bool {
        self.port_state(path).is_none_or(|state| takes_io(state.access))
    }

    /// Has the state of a path's port asked for.
    pub(super) fn refresh_port(&self, path: usize, now: Nanos) {
        if let Some(port) = &self.ports[path] {
            port.refresh(now);
        }
    }

    /// The counters of lane `index`.
    pub(super) fn tally(&self, index: u16, paths: usize) -> Arc<LaneTally> {
        let mut lanes = lock(&self.lanes);
        if lanes.len() <= usize::from(index) {
            lanes.resize_with(usize::from(index) + 1, LaneEntry::default);
        }
        let tally = &mut lanes[usize::from(index)].tally;
        Arc::clone(tally.get_or_insert_with(|| Arc::new(LaneTally::new(paths))))
    }

    /// The way to wake lane `index`; `None`: it is closed.
    pub(super) fn set_wake(&self, index: u16, wake: Option<Arc<dyn Wake>>) {
        lock(&self.lanes)[usize::from(index)].wake = wake;
    }

    /// What all lanes count of a path.
    pub(super) fn sum(&self, path: usize) -> PathSum {
        let mut sum = PathSum::default();
        let lanes = lock(&self.lanes);
        lanes.iter().filter_map(|lane| lane.tally.as_ref()).for_each(|tally| {
            sum.add(tally.path(path));
        });
        sum
    }
}

/// Takes what a path's port tells to the state machine. It keeps no path open.
struct PathListener {
    shared: Weak<Shared>,
    path: usize,
}

impl PortListener for PathListener {
    fn changed(&self, now: Nanos) {
        if let Some(shared) = self.shared.upgrade() {
            // The state is read behind the machine's lock: of two changes the newer one stays.
            let state = || shared.port_state(self.path);
            shared.change(now, |control| control.port_is(self.path, state(), now));
        }
    }

    fn activated(&self, how: Activation, now: Nanos) {
        if let Some(shared) = self.shared.upgrade() {
            shared.change(now, |control| control.activated(self.path, how, now));
        }
    }
}
