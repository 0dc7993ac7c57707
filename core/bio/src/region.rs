//! The memory of a pool of buffers, cut into places of whole pages.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::line::{TaskLine, Waiting};
use crate::pages::Pages;

/// Places of one size. The last buffer or handle of its pool frees them.
pub(crate) struct Region {
    pages: Pages,
    /// Bytes of a place.
    step: usize,
    free: Mutex<Free>,
}

/// Places that are free.
struct Free {
    /// By number.
    places: Vec<u32>,
    /// So many of them, the first, have been emptied since their last use.
    empty: usize,
    /// Tasks that wait for one.
    tasks: TaskLine,
}

impl Free {
    /// One that has its memory, if there is one.
    fn pop(&mut self) -> Option<u32> {
        let place = self.places.pop()?;
        self.empty = self.empty.min(self.places.len());
        Some(place)
    }
}

impl Region {
    /// Places of zeros, each of `step` bytes, whole pages; `bytes` in all, at least one place.
    /// `None`: there is no memory for them.
    pub(crate) fn zeroed(step: usize, bytes: usize) -> Option<Region> {
        let pages = Pages::zeroed(bytes)?;
        // In this order the first one is taken first.
        let places = (0..(bytes / step) as u32).rev().collect();
        let free = Mutex::new(Free { places, empty: 0, tasks: TaskLine::new() });
        Some(Region { pages, step, free })
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        // Nothing panics under the lock, so nothing is half done.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a place begins that was free and is the caller's now.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        let place = self.free().pop()?;
        Some(self.start_of(place))
    }

    fn start_of(&self, place: u32) -> NonNull<u8> {
        // SAFETY: the places lie in the pages.
        unsafe { self.pages.start().add(place as usize * self.step) }
    }

    /// As [`take`](Region::take), for a task: one that finds none is woken when there may be one.
    /// It keeps `waiting` until then, or gives it back to [`leave_line`](Region::leave_line).
    pub(crate) fn take_or_wait(&self, waiting: &mut Waiting, waker: &Waker) -> Option<NonNull<u8>> {
        let mut free = self.free();
        let Some(place) = free.pop() else {
            let before = free.tasks.wait(waiting, waker);
            // A waker may drop anything, so no lock is held.
            drop(free);
            drop(before);
            return None;
        };
        let left = free.tasks.leave(waiting);
        drop(free);
        drop(left);
        Some(self.start_of(place))
    }

    /// The task waits no more; a place that it was woken for is the next one's.
    pub(crate) fn leave_line(&self, waiting: &mut Waiting) {
        let mut free = self.free();
        let left = free.tasks.leave(waiting);
        let next = match left.was_woken && !free.places.is_empty() {
            true => free.tasks.first(),
            false => None,
        };
        drop(free);
        drop(left);
        if let Some(next) = next {
            next.wake();
        }
    }

    /// The last piece of the place that begins here is gone.
    pub(crate) fn put_back(&self, start: NonNull<u8>) {
        let offset = start.as_ptr() as usize - self.pages.start().as_ptr() as usize;
        let mut free = self.free();
        free.places.push((offset / self.step) as u32);
        let next = free.tasks.first();
        drop(free);
        // Outside the lock: a waker may poll on the spot.
        if let Some(next) = next {
            next.wake();
        }
    }

    /// Places that are free.
    pub(crate) fn count_free(&self) -> usize {
        self.free().places.len()
    }

    /// Of them those that have not been emptied since their last use.
    pub(crate) fn count_backed(&self) -> usize {
        let free = self.free();
        free.places.len() - free.empty
    }

    /// Gives the memory of the places that are free back to the system, if it is mapped. One is
    /// zeros then when it is next taken.
    pub(crate) fn empty_free(&self) {
        let mut free = self.free();
        for place in &free.places[free.empty..] {
            // SAFETY: the place lies in the pages, and has no user as long as the lock is held.
            unsafe { self.pages.empty(*place as usize * self.step, self.step) };
        }
        free.empty = free.places.len();
    }

    /// Bytes of all places.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// Places in all.
    pub(crate) fn count(&self) -> usize {
        self.bytes() / self.step
    }
}

// SAFETY: a region is an address; each of its places is reached through the one buffer that it was
// taken for, and the list of free ones is behind a lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}
