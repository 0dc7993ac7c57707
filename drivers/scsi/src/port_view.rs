//! What is known of the target port group that leads to a logical unit, what is wanted of it, and
//! the device above that hears of it: [`weir_queue::TargetPort`].
//!
//! The commands for it are sent by a lane of the unit (`carrier/talk.rs`). A wish is left in one
//! word, which each lane reads when it reaps, and a lane is woken for it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::Nanos;
use weir_proto_scsi::alua::{AccessState, PathIo};
use weir_queue::{Activation, PortListener};

use crate::probe::Access;

/// How long a group may be between two states if the target does not say.
const TRANSITION_NS: u64 = 60_000_000_000;

/// The state is to be asked for.
pub(crate) const REFRESH: u8 = 1;
/// The group is to carry I/O.
pub(crate) const ACTIVATE: u8 = 1 << 1;

/// What is known of the group, and what is wanted of it.
#[derive(Default)]
pub(crate) struct PortView {
    known: Mutex<Known>,
    wishes: AtomicU8,
    listener: Mutex<Option<Arc<dyn PortListener>>>,
}

#[derive(Default)]
struct Known {
    access: Option<Access>,
    /// What the listener knows.
    told: Option<Access>,
    /// Since when it is between two states.
    between_since: Option<Nanos>,
    /// When the target said so last.
    between_said: Option<Nanos>,
    /// How long it may be, ns.
    transition_ns: Option<u64>,
    /// The target refuses the extended header.
    has_plain_header: bool,
}

/// What a lane is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortWish {
    /// Besides asking for the state.
    pub(crate) activates: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks, so nothing is half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PortView {
    pub(crate) fn new(access: Option<Access>) -> PortView {
        let known = Known { access, told: access, ..Known::default() };
        PortView { known: Mutex::new(known), ..PortView::default() }
    }

    pub(crate) fn access(&self) -> Option<Access> {
        lock(&self.known).access
    }

    /// What a probe found; the listener hears of it after the next answer to a lane.
    pub(crate) fn set(&self, access: Option<Access>) -> bool {
        let mut known = lock(&self.known);
        let is_between = access.is_some_and(|access| access.state == AccessState::Transitioning);
        if !is_between {
            known.between_since = None;
        }
        std::mem::replace(&mut known.access, access) != access
    }

    /// What the target answered to a lane, with the time that its transitions take at most.
    pub(crate) fn set_answered(
        &self,
        access: Option<Access>,
        transition_s: u8,
        now: Nanos,
    ) -> bool {
        if transition_s > 0 {
            lock(&self.known).transition_ns = Some(u64::from(transition_s) * 1_000_000_000);
        }
        if access.is_some_and(|access| access.state == AccessState::Transitioning) {
            self.is_between(now);
        }
        self.set(access)
    }

    /// The group is between two states.
    pub(crate) fn is_between(&self, now: Nanos) {
        let mut known = lock(&self.known);
        // The end of a transition is not told. One that was not heard of for so long is over.
        let said = known.between_said.replace(now);
        if said.is_none_or(|said| now.since(said) > TRANSITION_NS) {
            known.between_since = None;
        }
        known.between_since.get_or_insert(now);
    }

    /// When the transition that it is in has taken too long.
    pub(crate) fn transition_ends(&self) -> Option<Nanos> {
        let known = lock(&self.known);
        Some(known.between_since? + known.transition_ns.unwrap_or(TRANSITION_NS))
    }

    /// Whether I/O is taken, as far as is known.
    pub(crate) fn takes_io(&self) -> bool {
        self.access().is_none_or(|access| access.state.io() == PathIo::Allowed)
    }

    pub(crate) fn has_plain_header(&self) -> bool {
        lock(&self.known).has_plain_header
    }

    /// The target refuses the extended header.
    pub(crate) fn use_plain_header(&self) {
        lock(&self.known).has_plain_header = true;
    }

    /// Whether a lane is to do something.
    #[inline]
    pub(crate) fn has_wish(&self) -> bool {
        self.wishes.load(Ordering::Relaxed) != 0
    }

    /// Takes what a lane is to do; each is taken once.
    pub(crate) fn take_wish(&self) -> Option<PortWish> {
        let wishes = self.wishes.swap(0, Ordering::AcqRel);
        (wishes != 0).then_some(PortWish { activates: wishes & ACTIVATE != 0 })
    }

    /// Leaves a wish, [`REFRESH`] or [`ACTIVATE`], for a lane.
    pub(crate) fn wish(&self, wish: u8) {
        self.wishes.fetch_or(wish, Ordering::AcqRel);
    }

    pub(crate) fn set_listener(&self, listener: Arc<dyn PortListener>) {
        *lock(&self.listener) = Some(listener);
    }

    fn listener(&self) -> Option<Arc<dyn PortListener>> {
        lock(&self.listener).clone()
    }

    /// Tells the listener what it does not know. Not under the lock of a port.
    pub(crate) fn tell_change(&self, now: Nanos) {
        let mut known = lock(&self.known);
        let access = known.access;
        let is_news = std::mem::replace(&mut known.told, access) != access;
        drop(known);
        if is_news && let Some(listener) = self.listener() {
            listener.changed(now);
        }
    }

    /// Tells the listener how an activation ended. Not under the lock of a port.
    pub(crate) fn tell_activated(&self, how: Activation, now: Nanos) {
        if let Some(listener) = self.listener() {
            listener.activated(how, now);
        }
    }
}
