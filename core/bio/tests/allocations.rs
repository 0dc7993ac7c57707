//! How many allocations an I/O of several segments takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use weir_bio::{Buf, Data, Segment, Segments};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: each call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations that `run` takes, and its result.
fn counted<T>(run: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = run();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

/// So many segments of a page each, in memory that its owner keeps.
fn pages(count: usize) -> (Arc<Buf>, Vec<Segment>) {
    let memory = Buf::zeroed(count * 4096);
    let start = memory.start();
    // SAFETY: each page lies in the memory.
    let page = |index: usize| Segment { start: unsafe { start.add(index * 4096) }, len: 4096 };
    (Arc::new(memory), (0..count).map(page).collect())
}

#[test]
fn any_number_of_segments_is_one_allocation_and_a_cut_is_one_and_a_join_none() {
    for count in [1, 2, 16, 256] {
        let (owner, table) = pages(count);
        // SAFETY: the segments are the owner's, of which no reference is used meanwhile.
        let (made, segments) = counted(|| unsafe { Segments::new(owner, &table) });
        assert_eq!(made, 1, "{count} segments");
        let mut data = Data::Segments(segments);
        let (cut, rest) = counted(|| data.split_off(count * 4096 / 2 + 512));
        assert_eq!(cut, 1, "{count} segments");
        assert_eq!(counted(|| data.append(rest)).0, 0, "{count} segments");
        assert_eq!((data.len(), data.segments().len()), (count * 4096, count));
    }
}

#[test]
fn a_table_that_is_used_again_takes_no_allocation_at_all() {
    let (owner, table) = pages(16);
    let mut segments = Segments::of_buf(Buf::zeroed(4096 * 16), [4096; 16]);
    for len in [16, 3, 16] {
        let owner = Arc::clone(&owner);
        // SAFETY: the segments are the owner's, of which no reference is used meanwhile.
        let (again, ()) = counted(|| unsafe { segments.refill(owner, &table[..len]) });
        assert_eq!((again, segments.as_slice().len()), (0, len));
    }
}

#[test]
fn a_buffer_becomes_several_segments_and_one_again_without_an_allocation_for_each() {
    for count in [2, 16, 256] {
        let buf = Buf::zeroed(count * 512);
        let (made, segments) = counted(|| Segments::of_buf(buf, (0..count).map(|_| 512)));
        assert_eq!((made, segments.as_slice().len()), (2, count));
        let (back, buf) = counted(|| segments.into_buf().unwrap());
        assert_eq!((back, buf.len()), (0, count * 512));
    }
}
