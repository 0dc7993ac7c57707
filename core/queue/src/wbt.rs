//! Write-back throttling: writes that no submitter waits for are held back while reads wait too
//! long behind them (docs/behaviour/block-layer.md, section 16).
//!
//! A submitter asks before it takes a slot for such a write ([`Wbt::enter`]), and keeps the bio if
//! the answer is no (`submit/submitter/held.rs`). Those that wait stand in one line for all
//! submitters, and are let go on from its head: each that may go is a grant to its submitter, so
//! that a thread that is slow to take its own keeps no other waiting. The lane in which a request
//! ends counts it out, and the first lane ends the windows in which the reads are judged.
//!
//! The lock is taken for throttled writes alone, and once for a pass in which some end. Reads and
//! direct writes find a branch at their pass; while throttled writes are under way the lane also
//! notes their times (`wbt/observed.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Bio, Nanos, Status, SubmitterId};
use weir_ring::Counter;

use crate::bell::Port;
use crate::snapshot::Snapshot;

pub(crate) mod observed;
mod setting;
mod throttle;

pub use setting::{WbtState, WbtTarget};
pub(crate) use throttle::{DIRECT, Kind, Window};

use throttle::{Class, Throttle};

/// How long another's I/O is reason enough to let fewer writes through, ns.
const BESIDE_NS: u64 = 100_000_000;

/// The write-back throttle of a device.
pub(crate) struct Wbt {
    state: Mutex<State>,
    /// The number of the window that is open, 0 if none is; and its end. Written under the lock.
    window: Counter,
    ends_at: Counter,
}

struct State {
    throttle: Throttle,
    /// What is written stays in a cache of the device at first.
    volatile: bool,
    /// Let through and not ended, by kind.
    under_way: [u32; 2],
    /// Those that wait, in the order in which they came, by kind.
    lines: [VecDeque<Waiting>; 2],
    /// Those that may go on and have not been taken, by submitter.
    granted: Vec<[Grants; 2]>,
    /// Windows there have been.
    windows: u64,
}

/// A write that waits.
struct Waiting {
    class: Class,
    submitter: SubmitterId,
    port: Arc<Port>,
}

/// Writes of a submitter that may go on and that it has not sent yet.
///
/// A thread that does not look at its answers takes none of its own. What it was granted before the
/// last window ended counts as under way no more, so that it keeps no other thread's writes waiting
/// for ever; if it takes them after all, that many more are under way.
#[derive(Clone, Copy, Debug, Default)]
struct Grants {
    /// In this window and in the one before.
    counted: [u32; 2],
    overdue: u32,
}

impl Grants {
    /// Takes one, the oldest first; whether it counts as under way.
    fn take(&mut self) -> Option<bool> {
        let [new, old] = &mut self.counted;
        let (left, is_counted) = match (&mut self.overdue, old, new) {
            (overdue @ 1.., ..) => (overdue, false),
            (_, old @ 1.., _) => (old, true),
            (_, _, new) => (new, true),
        };
        *left = left.checked_sub(1)?;
        Some(is_counted)
    }

    /// A window has ended: those that count no more.
    fn age(&mut self) -> u32 {
        let [new, old] = self.counted;
        self.counted = [0, new];
        self.overdue += old;
        old
    }
}

/// The answer to a submitter with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It may go on. The bool says that a window was opened, of which the first lane is to know.
    Passes(bool),
    /// It waits, and has a place in the line if it may.
    Waits,
}

/// Requests of the throttle that have ended in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrackedEnds {
    /// By kind.
    pub(crate) ended: [u32; 2],
    /// One of them ran out of time: the device may answer nothing any more.
    pub(crate) timed_out: bool,
}

impl TrackedEnds {
    pub(crate) fn count(&mut self, kind: Kind, status: Status) {
        self.ended[kind as usize] += 1;
        self.timed_out |= status == Status::Timeout;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ended == [0; 2]
    }
}

impl Wbt {
    /// Of a device with so many tags.
    pub(crate) fn new(snapshot: &Snapshot, depth: u16) -> Wbt {
        let state = State {
            throttle: Throttle::new(snapshot.throttled_ns(), depth),
            volatile: snapshot.limits.volatile_cache,
            under_way: [0; 2],
            lines: Default::default(),
            granted: Vec::new(),
            windows: 0,
        };
        Wbt { state: Mutex::new(state), window: Counter::default(), ends_at: Counter::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere may have poisoned it, and requests are to end all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a snapshot says; the device is frozen.
    pub(crate) fn follow(&self, snapshot: &Snapshot, depth: u16) {
        let mut state = self.lock();
        state.volatile = snapshot.limits.volatile_cache;
        let target_ns = snapshot.throttled_ns();
        if target_ns != state.throttle.target_ns() {
            state.throttle = Throttle::new(target_ns, depth);
            if target_ns == 0 {
                assert_eq!(state.under_way, [0; 2], "a frozen device has no request");
                self.close();
            }
        }
    }

    /// The number of the open window, 0 without one.
    #[inline]
    pub(crate) fn window(&self) -> u64 {
        self.window.read()
    }

    /// When the open window ends.
    #[inline]
    pub(crate) fn ends_at(&self) -> Option<Nanos> {
        let at = self.ends_at.read();
        (at != 0).then_some(Nanos(at))
    }

    /// Whether a write may go on now. `waits` says that it is to have a place in the line if not;
    /// `touched` when there was other I/O.
    pub(crate) fn enter(
        &self,
        bio: &Bio,
        kind: Kind,
        (submitter, port): (SubmitterId, &Arc<Port>),
        waits: bool,
        now: Nanos,
        touched: impl FnOnce() -> u64,
    ) -> Entry {
        let mut state = self.lock();
        let (class, line) = (Class::of(bio), kind as usize);
        let is_first = state.lines[line].is_empty();
        if is_first && state.under_way[line] < state.limit(class, || is_beside(touched(), now)) {
            state.under_way[line] += 1;
            let opens = self.window.read() == 0;
            if opens {
                self.open(&mut state, now);
            }
            return Entry::Passes(opens);
        }
        if waits {
            state.lines[line].push_back(Waiting { class, submitter, port: Arc::clone(port) });
        }
        Entry::Waits
    }

    /// Takes one of a submitter's writes of this kind that may go on.
    pub(crate) fn take_grant(&self, submitter: SubmitterId, kind: Kind) -> bool {
        let state = &mut *self.lock();
        let granted = state.granted.get_mut(usize::from(submitter.0));
        let taken = granted.and_then(|granted| granted[kind as usize].take());
        if taken == Some(false) {
            state.under_way[kind as usize] += 1;
        }
        taken.is_some()
    }

    /// One of a submitter's writes that wait does so no more: it leaves the line, or what was
    /// granted to it ends.
    pub(crate) fn leave(
        &self,
        submitter: SubmitterId,
        kind: Kind,
        now: Nanos,
        touched: impl FnOnce() -> u64,
    ) {
        let mut state = self.lock();
        let line = &mut state.lines[kind as usize];
        let place = line.iter().rposition(|waiting| waiting.submitter == submitter);
        if let Some(place) = place {
            line.remove(place);
            return;
        }
        drop(state);
        if self.take_grant(submitter, kind) {
            let mut ends = TrackedEnds::default();
            ends.count(kind, Status::Ok);
            self.end(ends, now, touched);
        }
    }

    /// Requests have ended, or were not sent after all; those that wait go on as the limits allow.
    pub(crate) fn end(&self, ends: TrackedEnds, now: Nanos, touched: impl FnOnce() -> u64) {
        let mut state = self.lock();
        for (under_way, ended) in state.under_way.iter_mut().zip(ends.ended) {
            *under_way = under_way.checked_sub(ended).expect("a write ends once");
        }
        if ends.timed_out {
            return state.release();
        }
        if state.lines.iter().all(VecDeque::is_empty) {
            return;
        }
        let beside = is_beside(touched(), now);
        for kind in Kind::ALL {
            let under_way = state.under_way[kind as usize];
            if state.throttle.wakes(kind, under_way, state.volatile) {
                state.grant(kind, beside);
            }
        }
    }

    /// Lets all go on that wait.
    #[cold]
    pub(crate) fn release(&self) {
        self.lock().release();
    }

    /// Ends the open window if its time has come, and opens the next while that is of use.
    /// `observe` says what was seen in it.
    pub(crate) fn tick(
        &self,
        now: Nanos,
        observe: impl FnOnce(u64) -> Window,
        touched: impl FnOnce() -> u64,
    ) {
        let mut state = self.lock();
        // Another home of the single queue may have been here first.
        if self.ends_at().is_none_or(|at| at > now) {
            return;
        }
        let writes_on = state.under_way != [0; 2];
        let window = Window { writes_on, ..observe(state.windows) };
        let verdict = state.throttle.judge(&window);
        let grew = state.throttle.apply(verdict);
        let makes_room = state.age_grants();
        if writes_on || state.throttle.is_scaled() {
            self.open(&mut state, now);
        } else {
            self.close();
        }
        if grew || makes_room {
            let beside = is_beside(touched(), now);
            Kind::ALL.into_iter().for_each(|kind| state.grant(kind, beside));
        }
    }

    fn open(&self, state: &mut State, now: Nanos) {
        state.windows += 1;
        self.window.set(state.windows);
        self.ends_at.set((now + state.throttle.window_ns()).0);
    }

    fn close(&self) {
        self.window.set(0);
        self.ends_at.set(0);
    }
}

/// Whether other I/O, which was there at `touched` (0: never), is a moment ago.
fn is_beside(touched: u64, now: Nanos) -> bool {
    touched != 0 && now.since(Nanos(touched)) < BESIDE_NS
}

impl State {
    fn limit(&self, class: Class, beside: impl FnOnce() -> bool) -> u32 {
        let class = match class {
            Class::Normal if beside() => Class::Background,
            class => class,
        };
        self.throttle.limit(class)
    }

    /// Lets those at the head of a line go on, as far as the limits allow.
    fn grant(&mut self, kind: Kind, beside: bool) {
        let line = kind as usize;
        while let Some(first) = self.lines[line].front()
            && self.under_way[line] < self.limit(first.class, || beside)
        {
            self.grant_first(kind);
        }
    }

    fn grant_first(&mut self, kind: Kind) {
        let line = kind as usize;
        let Some(Waiting { submitter, port, .. }) = self.lines[line].pop_front() else { return };
        let submitter = usize::from(submitter.0);
        if self.granted.len() <= submitter {
            self.granted.resize(submitter + 1, Default::default());
        }
        self.granted[submitter][line].counted[0] += 1;
        self.under_way[line] += 1;
        let _ = port.nudge();
    }

    /// What was granted in the window before the one that ends counts no more; whether there was
    /// such.
    fn age_grants(&mut self) -> bool {
        let before = self.under_way;
        for granted in &mut self.granted {
            for (under_way, granted) in self.under_way.iter_mut().zip(granted) {
                *under_way -= granted.age();
            }
        }
        self.under_way != before
    }

    fn release(&mut self) {
        for kind in Kind::ALL {
            while !self.lines[kind as usize].is_empty() {
                self.grant_first(kind);
            }
        }
    }
}
