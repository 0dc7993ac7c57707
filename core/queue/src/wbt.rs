//! Write-back throttling: writes that no submitter waits for are held back while reads wait too
//! long behind them (docs/behaviour/block-layer.md, section 16).
//!
//! A submitter asks before it takes a slot for such a write ([`Wbt::enter`]), and keeps the bio if
//! the answer is no (`submit/submitter/held.rs`). Those that wait stand in one line for all
//! submitters, and are let go on from its head: each that may go is a grant to its submitter, so
//! that a thread that is slow to take its own keeps no other waiting. The lane in which a request
//! ends counts it out. The windows in which the reads are judged are ended by the lane that turns
//! next: the first one and those whose submitters have writes that wait come back for it, as the
//! thread of any other may be elsewhere for long. Writes that such a thread has and does not go on
//! with keep no other waiting either (`wbt/under_way.rs`).
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
mod under_way;

pub use setting::{WbtState, WbtTarget};
pub(crate) use throttle::{DIRECT, Kind, Window};

use throttle::{Class, Throttle};
use under_way::{Absence, UnderWay};

/// How long another's I/O is reason enough to let fewer writes through, ns.
const BESIDE_NS: u64 = 100_000_000;

/// The write-back throttle of a device.
pub(crate) struct Wbt {
    state: Mutex<State>,
    /// The number of the window that is open, 0 if none is; and its end. Written under the lock.
    window: Counter,
    ends_at: Counter,
    /// The lanes of submitters with writes that wait, a bit each; set until none waits at all.
    /// Written under the lock.
    waiting: Counter,
}

/// A submitter with a write, and the lane that it feeds.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) submitter: SubmitterId,
    pub(crate) port: &'a Arc<Port>,
    pub(crate) lane: usize,
}

/// What is known of a window that ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) window: Window,
    /// Lanes that may have writes and have not turned in it, a bit each.
    pub(crate) idle: u64,
}

struct State {
    throttle: Throttle,
    /// What is written stays in a cache of the device at first.
    volatile: bool,
    /// Let through and not ended.
    under_way: UnderWay,
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
    lane: usize,
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
    /// It waits, and has a place in the line if it may. The bool says that it is the first of its
    /// lane that waits, or that a window was opened, of which the lane is to know.
    Waits(bool),
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
            under_way: UnderWay::default(),
            lines: Default::default(),
            granted: Vec::new(),
            windows: 0,
        };
        Wbt {
            state: Mutex::new(state),
            window: Counter::default(),
            ends_at: Counter::default(),
            waiting: Counter::default(),
        }
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
                assert!(state.under_way.is_empty(), "a frozen device has no request");
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

    /// Whether a write waits of a submitter that feeds this lane, or did since none waited.
    #[inline]
    pub(crate) fn waits_at(&self, lane: usize) -> bool {
        self.waiting.read() >> lane & 1 != 0
    }

    /// Whether a write may go on now. `waits` says that it is to have a place in the line if not;
    /// `touched` when there was other I/O.
    pub(crate) fn enter(
        &self,
        bio: &Bio,
        kind: Kind,
        asker: Asker<'_>,
        waits: bool,
        now: Nanos,
        touched: impl FnOnce() -> u64,
    ) -> Entry {
        let state = &mut *self.lock();
        let Asker { submitter, port, lane } = asker;
        let class = Class::of(bio);
        let (is_first, beside) = (state.is_first(kind, lane), state.under_way.beside(kind, lane));
        if is_first && beside < state.limit(class, || is_beside(touched(), now)) {
            state.under_way.send(kind, lane);
            let opens = self.window.read() == 0;
            if opens {
                self.open(state, now);
            }
            return Entry::Passes(opens);
        }
        if !waits {
            return Entry::Waits(false);
        }
        // It may wait for writes that count no more, which end no window that would let it go on.
        let opens = self.window.read() == 0;
        if opens {
            self.open(state, now);
        }
        let port = Arc::clone(port);
        state.lines[kind as usize].push_back(Waiting { class, submitter, lane, port });
        let tell = opens || !self.waits_at(lane);
        if tell {
            self.waiting.set(self.waiting.read() | 1 << lane);
        }
        Entry::Waits(tell)
    }

    /// Takes one of a submitter's writes of this kind that may go on.
    pub(crate) fn take_grant(
        &self,
        (submitter, lane): (SubmitterId, usize),
        kind: Kind,
        now: Nanos,
    ) -> bool {
        let state = &mut *self.lock();
        let granted = state.granted.get_mut(usize::from(submitter.0));
        let Some(is_counted) = granted.and_then(|granted| granted[kind as usize].take()) else {
            return false;
        };
        state.under_way.take_granted(kind, u32::from(is_counted));
        state.under_way.send(kind, lane);
        // It may come late, when there is no window any more.
        if self.window.read() == 0 {
            self.open(state, now);
        }
        true
    }

    /// One of a submitter's writes that wait does so no more: it leaves the line, or what was
    /// granted to it ends.
    pub(crate) fn leave(
        &self,
        (submitter, lane): (SubmitterId, usize),
        kind: Kind,
        now: Nanos,
        touched: impl FnOnce() -> u64,
    ) {
        let mut state = self.lock();
        let line = &mut state.lines[kind as usize];
        let place = line.iter().rposition(|waiting| waiting.submitter == submitter);
        if let Some(place) = place {
            line.remove(place);
            return self.note_waiting(&state);
        }
        drop(state);
        if self.take_grant((submitter, lane), kind, now) {
            let mut ends = TrackedEnds::default();
            ends.count(kind, Status::Ok);
            self.end(ends, now, touched);
        }
    }

    /// Requests have ended, or were not sent after all; those that wait go on as the limits allow.
    pub(crate) fn end(&self, ends: TrackedEnds, now: Nanos, touched: impl FnOnce() -> u64) {
        let state = &mut *self.lock();
        state.under_way.end(ends);
        if ends.timed_out {
            state.release();
            return self.note_waiting(state);
        }
        if !state.any_waits() {
            return state.under_way.none_waits();
        }
        let beside = is_beside(touched(), now);
        for kind in Kind::ALL {
            if state.throttle.wakes(kind, state.under_way.of(kind), state.volatile) {
                state.grant(kind, beside);
            }
        }
        self.note_waiting(state);
    }

    /// Lets all go on that wait.
    #[cold]
    pub(crate) fn release(&self) {
        let mut state = self.lock();
        state.release();
        self.note_waiting(&state);
    }

    /// Ends the open window if its time has come, and opens the next while that is of use.
    /// `observe` says what was seen in it. Lanes that are asked to turn, a bit each.
    pub(crate) fn tick(
        &self,
        now: Nanos,
        observe: impl FnOnce(u64) -> Seen,
        touched: impl FnOnce() -> u64,
    ) -> u64 {
        let state = &mut *self.lock();
        // Another lane, or another home of the single queue, may have been here first.
        if self.ends_at().is_none_or(|at| at > now) {
            return 0;
        }
        let Seen { window, idle } = observe(state.windows);
        let Absence { changed, asked } = state.look_for_absent(idle);
        let writes_on = state.under_way.any();
        let verdict = state.throttle.judge(&Window { writes_on, ..window });
        let grew = state.throttle.apply(verdict);
        let makes_room = state.age_grants();
        if writes_on || state.any_waits() || state.throttle.is_scaled() {
            self.open(state, now);
        } else {
            self.close();
        }
        if grew || makes_room || changed {
            let beside = is_beside(touched(), now);
            Kind::ALL.into_iter().for_each(|kind| state.grant(kind, beside));
            self.note_waiting(state);
        }
        asked
    }

    /// Some may wait no more.
    fn note_waiting(&self, state: &State) {
        if self.waiting.read() != 0 && !state.any_waits() {
            self.waiting.set(0);
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

    fn any_waits(&self) -> bool {
        self.lines.iter().any(|line| !line.is_empty())
    }

    /// Whether a new write of a submitter that feeds this lane waits for no other.
    fn is_first(&self, kind: Kind, lane: usize) -> bool {
        let line = &self.lines[kind as usize];
        // Its own come first, although they wait for their lane.
        line.is_empty() || self.first(kind).is_none() && !self.under_way.is_absent(lane)
    }

    /// The place in its line of the write that is to go on next. One whose lane is absent keeps no
    /// other waiting.
    fn first(&self, kind: Kind) -> Option<usize> {
        let line = &self.lines[kind as usize];
        if self.under_way.any_absent() {
            line.iter().position(|waiting| !self.under_way.is_absent(waiting.lane))
        } else {
            (!line.is_empty()).then_some(0)
        }
    }

    /// Lets those that come first in a line go on, as far as the limits allow.
    fn grant(&mut self, kind: Kind, beside: bool) {
        while let Some(first) = self.first(kind)
            && let class = self.lines[kind as usize][first].class
            && self.under_way.of(kind) < self.limit(class, || beside)
        {
            self.grant_at(kind, first);
        }
    }

    fn grant_at(&mut self, kind: Kind, place: usize) {
        let line = kind as usize;
        let Some(waiting) = self.lines[line].remove(place) else { return };
        let submitter = usize::from(waiting.submitter.0);
        if self.granted.len() <= submitter {
            self.granted.resize(submitter + 1, Default::default());
        }
        self.granted[submitter][line].counted[0] += 1;
        self.under_way.grant(kind);
        let _ = waiting.port.nudge();
    }

    /// What was granted in the window before the one that ends counts no more; whether there was
    /// such.
    fn age_grants(&mut self) -> bool {
        let mut any = false;
        for granted in &mut self.granted {
            for kind in Kind::ALL {
                let aged = granted[kind as usize].age();
                self.under_way.take_granted(kind, aged);
                any |= aged > 0;
            }
        }
        any
    }

    /// A window has ended in which these lanes did not turn.
    fn look_for_absent(&mut self, idle: u64) -> Absence {
        let waits = Kind::ALL.map(|kind| self.first(kind).is_some());
        self.under_way.end_window(waits, idle)
    }

    fn release(&mut self) {
        for kind in Kind::ALL {
            while !self.lines[kind as usize].is_empty() {
                self.grant_at(kind, 0);
            }
        }
    }
}
