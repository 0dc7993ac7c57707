//! The lanes of a device as submitters and other lanes reach them: marks that something waits, and
//! the bells of their homes. Lanes at work are in `mq/` and `sq.rs`.

use std::sync::Arc;

use weir_ring::sync::{Alone, Ordering, fence};
use weir_ring::{Counter, Latest, PendingBits, Roster, SharedCounter};

use crate::bell::{Bell, LaneBell};
use crate::error::{Error, invalid};
use crate::grown::Grown;

/// The pending source of a lane that stands for the elevator.
pub(crate) const ELEVATOR: usize = 1;

/// The pending source of a lane that stands for everything but requests: look again.
pub(crate) const NUDGE: usize = 0;

/// Most submitters of a device at one time. One place more is kept for the flush of its end.
pub const SUBMITTERS_MAX: usize = 4093;

/// Names of submitters: those there may be, and the place of the flush.
const FEEDERS: usize = SUBMITTERS_MAX + 1;

/// Most hard queues of a device: a bit each in the elevator's words.
pub(crate) const QUEUES_MAX: u16 = 64;

/// The credit of a lane that is paused, or that has not said how much it takes.
pub(crate) const TAKES_NONE: u64 = u64::MAX;

/// The marks of all lanes that a device can have.
pub(crate) struct Lanes {
    marks: Grown<LaneMarks>,
    /// Lanes whose drivers keep every tag, answer nothing or refuse everything for long.
    pub(crate) in_need: SharedCounter,
}

/// The part of a lane that other threads reach.
#[repr(align(128))] // One lane's marks share no line with another's.
pub(crate) struct LaneMarks {
    pub(crate) pending: PendingBits,
    /// The submitters whose rings the lane is to look at.
    pub(crate) feeders: Roster,
    pub(crate) bell: Latest<LaneBell>,
    /// Requests that the dispatcher ever sent the lane, and how many more the lane can take, or
    /// [`TAKES_NONE`]. Written by the lane's home.
    pub(crate) credit: Alone<Counter>,
    /// 1 while the lane is in need. Written by the lane's home.
    pub(crate) needs: Counter,
}

impl Lanes {
    /// Of a device that begins with so many lanes and may have so many.
    pub(crate) fn new(first: u16, most: u16) -> Lanes {
        Lanes { marks: Grown::new(first, most), in_need: SharedCounter::default() }
    }

    /// The number of lanes there can be.
    pub(crate) fn most(&self) -> usize {
        self.marks.most()
    }

    pub(crate) fn get(&self, lane: usize) -> Option<&LaneMarks> {
        self.marks.get(lane)
    }

    /// Tells a lane that `source` has published something; whether its home slept.
    #[inline]
    pub(crate) fn kick(&self, lane: usize, source: usize) -> bool {
        self[lane].kick(source)
    }

    /// Tells a lane that this submitter has published something; whether its home slept.
    #[inline]
    pub(crate) fn feed(&self, lane: usize, submitter: usize) -> bool {
        let lane = &self[lane];
        // Either the lane that has struck the submitter off sees what was published, or this sees
        // the mark clear; and an owner about to sleep sees it, or is seen asleep.
        fence(Ordering::SeqCst);
        lane.feeders.mark_ordered(submitter);
        lane.ring_ordered()
    }

    /// Tells lanes, a bit each, to ask the elevator; of each `told` hears whether its home slept.
    #[inline]
    pub(crate) fn kick_each(&self, mut lanes: u64, mut told: impl FnMut(usize, bool)) {
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            told(lane, self.kick(lane, ELEVATOR));
            lanes &= lanes - 1;
        }
    }

    /// Wakes the homes of lanes, a bit each, that were sent something, which is ordered.
    #[inline]
    pub(crate) fn ring_each_ordered(&self, mut lanes: u64, mut told: impl FnMut(usize, bool)) {
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize;
            told(lane, self[lane].ring_ordered());
            lanes &= lanes - 1;
        }
    }

    /// Makes a lane take a turn.
    pub(crate) fn nudge(&self, lane: usize) {
        let _ = self.kick(lane, NUDGE);
    }

    /// Makes the first so many lanes take a turn.
    pub(crate) fn nudge_first(&self, lanes: u16) {
        (0..usize::from(lanes)).for_each(|lane| self.nudge(lane));
    }
}

impl std::ops::Index<usize> for Lanes {
    type Output = LaneMarks;

    #[inline]
    fn index(&self, lane: usize) -> &LaneMarks {
        &self.marks[lane]
    }
}

impl Default for LaneMarks {
    fn default() -> LaneMarks {
        LaneMarks {
            pending: PendingBits::new(2),
            feeders: Roster::new(FEEDERS),
            bell: Latest::default(),
            credit: Alone(Counter::new(TAKES_NONE)),
            needs: Counter::default(),
        }
    }
}

impl LaneMarks {
    /// Lane `index` of this device has its home at this bell from now on. The caller turns the lane
    /// before it sleeps, so that a mark whose maker saw the bell of before is seen.
    ///
    /// A home with a roster is the lane's for life: its place there stays taken. A home without one
    /// that turns the lane meanwhile hears of it by no bell.
    ///
    /// # Errors
    /// The home has no place left; or it keeps a roster, and the lane had another home before.
    pub(crate) fn set_home(&self, name: &str, index: usize, bell: &Arc<Bell>) -> Result<(), Error> {
        let is_it = |home: &LaneBell| Arc::ptr_eq(&home.bell, bell);
        let stays = match self.bell.get() {
            Some(home) if is_it(home) => true,
            Some(_) if bell.roster().is_some() => {
                return invalid(format!("hard queue {index} of {name} has another home for life"));
            }
            Some(home) => home.bell.roster().is_some(),
            None => false,
        };
        if stays { Ok(()) } else { self.bell.set(is_it, || LaneBell::new(bell)) }
    }

    /// Whether its home looks at its lanes before it sleeps.
    pub(crate) fn is_awake(&self) -> bool {
        self.bell.get().is_some_and(|home| !home.bell.doorbell().is_asleep())
    }

    pub(crate) fn is_in_need(&self) -> bool {
        self.needs.read() != 0
    }

    /// Tells the lane that `source` has published something. The mark is what its home looks at
    /// before it sleeps: a bell alone is not heard by one who is awake.
    #[inline]
    fn kick(&self, source: usize) -> bool {
        self.pending.mark(source);
        self.ring_ordered()
    }

    /// Has its home turn it after something was published and ordered.
    #[inline]
    pub(crate) fn ring_ordered(&self) -> bool {
        self.bell.get().is_some_and(LaneBell::ring_ordered)
    }

    /// The same after something was published that is not ordered yet.
    pub(crate) fn ring(&self) {
        if let Some(home) = self.bell.get() {
            home.ring();
        }
    }
}
