//! An allocator that counts, so that "no allocation per I/O" is measured and not believed.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The system's allocator with a count per thread. Counts only where it is the binary's global
/// allocator.
#[derive(Debug)]
pub struct Counting;

/// Allocations of the calling thread so far; 0 for ever where [`Counting`] is not installed.
#[must_use]
pub fn of_this_thread() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Bytes that the calling thread has allocated so far beyond those it has freed; 0 for ever where
/// [`Counting`] is not installed.
#[must_use]
pub fn bytes_of_this_thread() -> i64 {
    BYTES.with(Cell::get)
}

/// Whether [`Counting`] is the global allocator.
#[must_use]
pub fn is_counting() -> bool {
    let before = of_this_thread();
    drop(std::hint::black_box(Box::new(1_u8)));
    of_this_thread() != before
}

fn count(bytes: i64) {
    // A thread that is ending has no counter left, and its count is not read.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    weigh(bytes);
}

fn weigh(bytes: i64) {
    let _ = BYTES.try_with(|sum| sum.set(sum.get() + bytes));
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches neither the
// pointers nor the layouts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        weigh(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(start, layout) }
    }
}
