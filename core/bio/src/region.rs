//! The memory of a pool of buffers: one allocation, cut into places of whole pages.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::PAGE;

/// Places of one size. The last buffer or handle of its pool frees them.
pub(crate) struct Region {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes of a place.
    step: usize,
    /// Places that are free, by number.
    free: Mutex<Vec<u32>>,
}

impl Region {
    /// Places of zeros, each of `step` bytes, whole pages; `bytes` in all, at least one place.
    pub(crate) fn zeroed(step: usize, bytes: usize) -> Region {
        let layout = Layout::from_size_align(bytes, PAGE).expect("a page-aligned layout");
        assert!(bytes > 0, "a region without bytes");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        // In this order the first one is taken first.
        let free = Mutex::new((0..(bytes / step) as u32).rev().collect());
        Region { start, layout, step, free }
    }

    fn free(&self) -> MutexGuard<'_, Vec<u32>> {
        // Nothing panics under the lock, so nothing is half done.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a place begins that was free and is the caller's now.
    pub(crate) fn take(&self) -> Option<NonNull<u8>> {
        let place = self.free().pop()?;
        // SAFETY: the places lie in the allocation.
        Some(unsafe { self.start.add(place as usize * self.step) })
    }

    /// The last piece of the place that begins here is gone.
    pub(crate) fn put_back(&self, start: NonNull<u8>) {
        let offset = start.as_ptr() as usize - self.start.as_ptr() as usize;
        self.free().push((offset / self.step) as u32);
    }

    /// Places that are free.
    pub(crate) fn count_free(&self) -> usize {
        self.free().len()
    }

    /// Bytes of all places.
    pub(crate) fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// Places in all.
    pub(crate) fn count(&self) -> usize {
        self.bytes() / self.step
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it came from an allocation of this layout in `zeroed`. Each buffer that lies in
        // it keeps it, so none is left.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

// SAFETY: a region is an address; each of its places is reached through the one buffer that it was
// taken for, and the list of free ones is behind a lock.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}
