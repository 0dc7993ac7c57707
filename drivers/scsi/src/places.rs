//! The places of a logical unit: how many commands it may have at once, and how it is held back
//! after it has said that it is busy.
//!
//! A unit that is held back with commands in flight waits for one of their ends, which lets it go.
//! Without any it is tried again every 3 ms, and lets commands through at the seventh time. These
//! are the `device_busy` and `device_blocked` of Linux.
//!
//! Lanes get and give up places once a burst, so the count is shared by the lanes of a unit and
//! written twice a burst.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_queue::{Budget, Wake};

/// Attempts that a unit without commands is held back for.
const HELD_BACK: u32 = 7;

/// When a unit that is held back and has no command in flight is tried again.
pub(crate) const RETRY_NS: u64 = 3_000_000;

/// The places of one logical unit.
#[derive(Default)]
pub(crate) struct Places {
    depth: AtomicU32,
    busy: AtomicU32,
    held_back: AtomicU32,
    /// Some lane waits.
    waits: AtomicBool,
    lanes: Mutex<Lanes>,
}

/// The lanes of the unit, by number.
#[derive(Default)]
struct Lanes {
    wakes: Vec<Option<Arc<dyn Wake>>>,
    waiting: Vec<u16>,
}

impl Places {
    pub(crate) fn new(depth: u16) -> Places {
        Places { depth: AtomicU32::new(u32::from(depth)), ..Places::default() }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // Nothing panics under the lock, so nothing is half done.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a lane is turned.
    pub(crate) fn at_home(&self, lane: u16, wake: Option<Arc<dyn Wake>>) {
        let mut lanes = self.lanes();
        let lane = usize::from(lane);
        if lanes.wakes.len() <= lane {
            lanes.wakes.resize_with(lane + 1, || None);
        }
        lanes.wakes[lane] = wake;
    }

    /// Commands with a place.
    pub(crate) fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Sets how many there are.
    pub(crate) fn set_depth(&self, depth: u16) {
        self.depth.store(u32::from(depth), Ordering::Relaxed);
        self.tell();
    }

    /// Holds the unit back.
    pub(crate) fn hold_back(&self) {
        self.held_back.store(HELD_BACK, Ordering::Relaxed);
    }

    /// Whether lanes have to come back by themselves: nothing is in flight whose end would tell.
    pub(crate) fn needs_retry(&self) -> bool {
        self.held_back.load(Ordering::Relaxed) > 0
            && self.busy() == 0
            && self.waits.load(Ordering::Relaxed)
    }

    /// So many commands gave up their places; `ended`: by an end that lets the unit go on.
    pub(crate) fn give_up(&self, places: u32, ended: bool) {
        if ended && self.held_back.load(Ordering::Relaxed) > 0 {
            self.held_back.store(0, Ordering::Relaxed);
        }
        if places > 0 {
            let before = self.busy.fetch_sub(places, Ordering::Relaxed);
            assert!(before >= places, "{places} places are given up of {before}");
        }
        self.tell();
    }

    /// Has the lanes turned that wait, if there are places.
    fn tell(&self) {
        // A lane says that it waits, then looks once more; this looks for such a lane after it gave
        // up places.
        fence(Ordering::SeqCst);
        if !self.waits.load(Ordering::Relaxed) || !self.has_room() {
            return;
        }
        let woken: Vec<Arc<dyn Wake>> = {
            let mut lanes = self.lanes();
            self.waits.store(false, Ordering::Relaxed);
            let waiting = std::mem::take(&mut lanes.waiting);
            let wake = |lane: u16| lanes.wakes.get(usize::from(lane))?.clone();
            waiting.into_iter().filter_map(wake).collect()
        };
        woken.iter().for_each(|wake| wake.wake());
    }

    /// Has one of the unit's lanes turned; whether there is one.
    pub(crate) fn wake_any(&self) -> bool {
        let wake = self.lanes().wakes.iter().flatten().next().cloned();
        wake.is_some_and(|wake| {
            wake.wake();
            true
        })
    }

    fn has_room(&self) -> bool {
        self.held_back.load(Ordering::Relaxed) == 0
            && self.busy() < self.depth.load(Ordering::Relaxed)
    }

    /// Whether commands may go, after this attempt.
    fn admits(&self) -> bool {
        let held = self.held_back.load(Ordering::Relaxed);
        if held == 0 {
            return true;
        }
        if self.busy() > 0 {
            return false;
        }
        self.held_back.store(held - 1, Ordering::Relaxed);
        held == 1
    }
}

impl Budget for Places {
    fn get(&self, _: u16, wanted: usize) -> usize {
        if !self.admits() {
            return 0;
        }
        let depth = self.depth.load(Ordering::Relaxed);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let mut busy = self.busy();
        loop {
            let got = wanted.min(depth.saturating_sub(busy));
            if got == 0 {
                return 0;
            }
            let (relaxed, new) = (Ordering::Relaxed, busy + got);
            match self.busy.compare_exchange_weak(busy, new, relaxed, relaxed) {
                Ok(_) => return got as usize,
                Err(now) => busy = now,
            }
        }
    }

    fn put(&self, unused: usize) {
        self.give_up(unused as u32, false);
    }

    fn wait(&self, lane: u16) {
        {
            let mut lanes = self.lanes();
            if !lanes.waiting.contains(&lane) {
                lanes.waiting.push(lane);
            }
            self.waits.store(true, Ordering::Relaxed);
        }
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_unit_has_as_many_places_as_its_depth() {
        let places = Places::new(4);
        assert_eq!((places.get(0, 3), places.get(0, 3), places.get(0, 3)), (3, 1, 0));
        places.give_up(2, true);
        assert_eq!(places.get(0, 9), 2);
        places.set_depth(1);
        places.give_up(3, true);
        assert_eq!((places.busy(), places.get(0, 1)), (1, 0), "the depth fell below what is out");
    }

    #[test]
    fn a_unit_that_is_busy_waits_for_an_end_or_for_seven_attempts_without_any() {
        let places = Places::new(4);
        assert_eq!(places.get(0, 2), 2);
        places.hold_back();
        assert_eq!(places.get(0, 1), 0, "commands are in flight");
        places.give_up(1, true);
        assert_eq!(places.get(0, 1), 1, "an end lets it go");
        places.give_up(2, true);
        places.hold_back();
        let attempts: Vec<usize> = (0..8).map(|_| places.get(0, 1)).collect();
        assert_eq!(attempts, [0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_lane_that_waits_is_told_once_when_a_place_is_given_up() {
        let places = Places::new(1);
        let wakes = [Arc::new(Count::default()), Arc::new(Count::default())];
        for (lane, wake) in wakes.iter().enumerate() {
            places.at_home(lane as u16, Some(Arc::clone(wake) as Arc<dyn Wake>));
        }
        let told = || wakes.each_ref().map(|wake| wake.0.load(Ordering::Relaxed));
        assert_eq!(places.get(0, 1), 1);
        places.wait(1);
        places.wait(1);
        assert_eq!(told(), [0, 0]);
        places.give_up(1, true);
        places.give_up(0, true);
        assert_eq!(told(), [0, 1]);
        places.wait(0);
        assert_eq!(told(), [1, 1], "there is a place");
    }

    #[test]
    fn a_unit_held_back_without_commands_asks_to_be_tried_again_while_a_lane_waits() {
        let places = Places::new(1);
        places.hold_back();
        assert!(!places.needs_retry(), "no lane waits");
        assert_eq!(places.get(0, 1), 0);
        places.wait(0);
        assert!(places.needs_retry());
    }
}
