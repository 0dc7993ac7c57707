//! Owned, page-aligned memory for I/O, which can be cut in pieces and joined again.
//!
//! A `Buf` is the only holder of its bytes: a device that may still write owns them, so a caller
//! that vanished cannot be written to. Cutting shares the allocation, never the bytes.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::PAGE;
use crate::region::Region;

/// A page-aligned run of bytes with one owner. It is a single pointer, because it is moved far more
/// often than it is looked into.
#[repr(transparent)]
pub struct Buf(Box<Run>);

struct Run {
    start: NonNull<u8>,
    len: u32,
    /// Bytes of the allocation when this run has it alone; 0 for a piece.
    capacity: u32,
    /// `None`: it owns the allocation, and frees it.
    shared: Option<Arc<Allocation>>,
}

/// An allocation several pieces point into, or a place of a pool; the last one frees it.
struct Allocation {
    start: NonNull<u8>,
    capacity: u32,
    pool: Option<Arc<Region>>,
}

impl Buf {
    /// Longest buffer: 1 GiB, so that lengths fit everywhere they travel.
    pub const LEN_MAX: usize = 1 << 30;

    /// `len` bytes of zeros, starting on a page.
    ///
    /// # Panics
    /// When `len` is 0 or above [`Buf::LEN_MAX`].
    #[must_use]
    pub fn zeroed(len: usize) -> Buf {
        let layout = layout(len);
        // SAFETY: the layout's size is not zero (checked in `layout`).
        let start = unsafe { alloc_zeroed(layout) };
        Buf::from_allocation(start, len, layout)
    }

    /// `len` bytes starting on a page, filled by `fill`, which sees them as 0xAA so that memory
    /// that was never written is not mistaken for data.
    #[must_use]
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Buf {
        let layout = layout(len);
        // SAFETY: as in `zeroed`.
        let start = unsafe { alloc(layout) };
        let Some(first) = NonNull::new(start) else { handle_alloc_error(layout) };
        // SAFETY: the allocation is `layout.size()` bytes long, and no other pointer to it exists
        // yet.
        unsafe { first.as_ptr().write_bytes(0xAA, layout.size()) };
        let mut buf = Buf::from_allocation(start, len, layout);
        fill(&mut buf);
        buf
    }

    fn from_allocation(start: *mut u8, len: usize, layout: Layout) -> Buf {
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let (len, capacity) = (len as u32, layout.size() as u32);
        Buf(Box::new(Run { start, len, capacity, shared: None }))
    }

    /// A place of a pool, which goes back there with the last piece of it.
    pub(crate) fn of_pool(start: NonNull<u8>, len: u32, pool: Arc<Region>) -> Buf {
        let shared = Some(Arc::new(Allocation { start, capacity: len, pool: Some(pool) }));
        Buf(Box::new(Run { start, len, capacity: len, shared }))
    }

    /// Where the bytes begin: for the kernel, and for raw copies.
    #[must_use]
    #[inline]
    pub fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Bytes this buffer could be [resized](Buf::resize) to; 0 for a piece cut from another.
    #[must_use]
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.capacity as usize
    }

    /// Changes the length within the capacity; bytes beyond the old length keep what they held.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity(), "length {len} above capacity {}", self.capacity());
        self.0.len = len as u32;
    }

    /// Cuts off and returns everything from byte `at` on.
    ///
    /// # Panics
    /// When `at` is beyond the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buf {
        assert!(at <= self.len(), "split at {at} beyond {} bytes", self.len());
        let run = &mut *self.0;
        let shared = run.shared.get_or_insert_with(|| {
            let (start, capacity) = (run.start, run.capacity);
            Arc::new(Allocation { start, capacity, pool: None })
        });
        let shared = Some(Arc::clone(shared));
        // SAFETY: `at` is within this piece, so the result stays inside the allocation.
        let start = unsafe { run.start.add(at) };
        let rest = Run { start, len: run.len - at as u32, capacity: 0, shared };
        (run.len, run.capacity) = (at as u32, 0);
        Buf(Box::new(rest))
    }

    /// Joins `next` to the end if it was cut from there; else gives it back.
    ///
    /// # Errors
    /// `next` itself, when it does not lie directly behind this piece.
    pub fn join(&mut self, next: Buf) -> Result<(), Buf> {
        let (Some(mine), Some(its)) = (&self.0.shared, &next.0.shared) else { return Err(next) };
        // SAFETY: the end of a piece is at most one past its allocation.
        let end = unsafe { self.0.start.add(self.len()) };
        if !Arc::ptr_eq(mine, its) || end != next.0.start {
            return Err(next);
        }
        self.0.len += next.0.len;
        drop(next);
        let run = &mut *self.0;
        // Whole again: the allocation is this one owner's, so that it can be reused.
        if let Some(shared) = &mut run.shared
            && let Some(whole) = Arc::get_mut(shared)
            && whole.start == run.start
        {
            run.capacity = whole.capacity;
            if whole.pool.is_none() {
                // The run frees it from now on.
                let whole = run.shared.take().and_then(Arc::into_inner);
                std::mem::forget(whole);
            }
        }
        Ok(())
    }
}

fn layout(len: usize) -> Layout {
    assert!((1..=Buf::LEN_MAX).contains(&len), "buffer of {len} bytes, 1..={}", Buf::LEN_MAX);
    Layout::from_size_align(len.next_multiple_of(PAGE), PAGE).expect("page-aligned layout")
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + len` lies in a live, initialised allocation, and no other piece
        // covers these bytes.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len as usize) }
    }
}

impl DerefMut for Buf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.len as usize) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.shared.is_none() {
            // SAFETY: nothing was cut off, so `start` and `capacity` are those of the
            // allocation, which this run owns.
            unsafe { free(self.start, self.capacity) };
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.pool.take() {
            // SAFETY: the last piece is gone.
            None => unsafe { free(self.start, self.capacity) },
            Some(pool) => pool.put_back(self.start),
        }
    }
}

/// # Safety
/// `start` came from an allocation of `capacity` bytes made by this module and is not used again.
unsafe fn free(start: NonNull<u8>, capacity: u32) {
    // SAFETY: the caller's promise; the layout is the one `layout` made.
    unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(capacity as usize, PAGE)) };
}

// SAFETY: a run is the only way to its bytes, so it may be used from any one thread at a time,
// and shared references only read; the allocation is freed once, by whichever piece is last.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}
// SAFETY: `Allocation` is touched only when the last piece drops it.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_starts_on_a_page() {
        for len in [1, 512, 4096, 5000] {
            let buf = Buf::zeroed(len);
            assert_eq!(buf.as_ptr() as usize % PAGE, 0);
            assert!(buf.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn a_joined_buffer_can_be_reused_and_a_cut_one_cannot() {
        let mut buf = Buf::zeroed(8192);
        let tail = buf.split_off(4096);
        assert_eq!(buf.capacity(), 0);
        buf.join(tail).unwrap();
        assert_eq!((buf.len(), buf.capacity()), (8192, 8192));
        buf.resize(100);
        assert_eq!(buf.len(), 100);
    }

    #[test]
    fn pieces_of_different_buffers_do_not_join() {
        let mut a = Buf::zeroed(4096);
        let mut b = Buf::zeroed(4096);
        let _tail = a.split_off(2048);
        let other = b.split_off(2048);
        assert!(a.join(other).is_err());
    }

    #[test]
    fn pieces_may_be_dropped_in_any_order() {
        let mut a = Buf::zeroed(3 * PAGE);
        let c = a.split_off(2 * PAGE);
        let b = a.split_off(PAGE);
        drop(a);
        assert_eq!(b.len() + c.len(), 2 * PAGE);
        drop(c);
        assert!(b.iter().all(|byte| *byte == 0));
    }
}
