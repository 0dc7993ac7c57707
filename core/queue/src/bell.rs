//! How completions and kicks reach the thread that owns their receiver.

use std::sync::{Arc, Mutex, PoisonError};

use weir_ring::sync::{Ordering, fence};
use weir_ring::{Doorbell, Inbox, PendingBits, Roster, Wake};

use crate::error::{Error, invalid};
use crate::request::Request;

/// Lanes of one home that keeps a roster.
const PLACES_MAX: usize = 65_536;

/// A home's bell: its doorbell, which of its submitters have completions waiting, and which of its
/// lanes are to be turned.
#[derive(Debug)]
pub struct Bell {
    doorbell: Doorbell,
    ready: PendingBits,
    roster: Option<Roster>,
    places: Mutex<Places>,
}

/// The places of a roster.
#[derive(Debug, Default)]
struct Places {
    used: usize,
    free: Vec<usize>,
}

impl Bell {
    /// A bell for up to `submitters` submitters of one thread, which `wake` wakes.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>, submitters: usize) -> Arc<Bell> {
        Arc::new(Bell {
            doorbell: Doorbell::new(wake),
            ready: PendingBits::new(submitters),
            roster: None,
            places: Mutex::default(),
        })
    }

    /// The same for a home that turns only those of its lanes that are marked in its
    /// [roster](Bell::roster), each at its own [place](crate::Lane::place).
    #[must_use]
    pub fn with_lanes(wake: Box<dyn Wake>, submitters: usize) -> Arc<Bell> {
        Arc::new(Bell {
            doorbell: Doorbell::new(wake),
            ready: PendingBits::new(submitters),
            roster: Some(Roster::new(PLACES_MAX)),
            places: Mutex::default(),
        })
    }

    /// Submitters it is made for: their tokens are below this.
    #[must_use]
    pub fn submitters(&self) -> usize {
        self.ready.sources()
    }

    /// The doorbell.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Which submitters (by token) have something since the last [`PendingBits::take`].
    #[must_use]
    pub fn ready(&self) -> &PendingBits {
        &self.ready
    }
}

impl Bell {
    /// The lanes that are to be turned, by place; `None` for a home that turns every one of its
    /// lanes whenever the bell rings.
    #[must_use]
    #[inline]
    pub fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref()
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        // Nothing panics under the lock, so nothing is half done.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(&self) -> Result<usize, Error> {
        let mut places = self.places();
        if let Some(place) = places.free.pop() {
            return Ok(place);
        }
        if places.used == PLACES_MAX {
            return invalid(format!(
                "hard queues={} of one reactor: at most {PLACES_MAX}",
                PLACES_MAX + 1
            ));
        }
        places.used += 1;
        Ok(places.used - 1)
    }
}

/// A lane's place at the bell of its home.
#[derive(Clone, Debug)]
pub(crate) struct LaneBell {
    pub(crate) bell: Arc<Bell>,
    pub(crate) place: usize,
    lease: Arc<Lease>,
}

/// A place goes to another lane when no way to this one is left.
#[derive(Debug)]
struct Lease {
    bell: Arc<Bell>,
    place: usize,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bell.roster.is_some() {
            self.bell.places().free.push(self.place);
        }
    }
}

impl LaneBell {
    /// A place at this bell.
    ///
    /// # Errors
    /// None is left.
    pub(crate) fn new(bell: &Arc<Bell>) -> Result<LaneBell, Error> {
        let place = if bell.roster.is_some() { bell.take_place()? } else { 0 };
        let lease = Arc::new(Lease { bell: Arc::clone(bell), place });
        Ok(LaneBell { bell: Arc::clone(bell), place, lease })
    }

    /// Whether both are one lane's place at one home.
    pub(crate) fn is(&self, other: &LaneBell) -> bool {
        Arc::ptr_eq(&self.lease, &other.lease)
    }

    /// Marks the lane in its home's roster, after something was published and ordered. Enough if
    /// the home is the caller: it looks before it sleeps.
    #[inline]
    pub(crate) fn mark_ordered(&self) {
        if let Some(roster) = &self.bell.roster {
            roster.mark_ordered(self.place);
        }
    }

    /// The same, and wakes the home; whether that slept.
    #[inline]
    pub(crate) fn ring_ordered(&self) -> bool {
        self.mark_ordered();
        self.bell.doorbell.ring_ordered()
    }

    /// The same after something was published that is not ordered yet.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        let _ = self.ring_ordered();
    }
}

/// Where a submitter's completions go.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) inbox: Inbox<Request>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) token: usize,
}

impl Port {
    /// A port at which no thread waits.
    #[cfg(test)]
    pub(crate) fn silent() -> Port {
        Port { inbox: Inbox::default(), bell: Bell::new(Box::new(weir_ring::NoWake), 1), token: 0 }
    }

    /// Tells the submitter to look: completions, the gate's opening, a free request. Whether it
    /// slept.
    pub(crate) fn nudge(&self) -> bool {
        self.bell.ready.mark(self.token);
        self.bell.doorbell.ring_ordered()
    }
}
