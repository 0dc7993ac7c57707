//! Segments of memory that an owner outside weir keeps: pages of a virtual machine, a registered
//! pool, a mapping that other processes write.
//!
//! Such memory may change at any time, so no reference to it is ever made: it is an address and a
//! length, for the kernel and for raw copies. A table of any number of segments is one allocation,
//! and so is a cut; the bytes are never copied by either.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::buf::Buf;

/// Keeps memory where it is. It is dropped with the last piece that lies in that memory, by the
/// thread that holds the piece: a submitter's, a lane's or a driver's.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// Address and length of one piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub start: NonNull<u8>,
    /// Bytes.
    pub len: u32,
}

/// Segments in ascending order of their bytes in the I/O, and the owner of their memory. It is a
/// single pointer, to a `Head` with the table behind it.
pub struct Segments(NonNull<Head>);

#[repr(C)]
struct Head {
    owner: Option<Owner>,
    /// Places in the table.
    places: u32,
    /// Segments in it.
    count: u32,
    /// Bytes of all segments.
    len: u32,
    /// The first segment was cut off the last one of the piece before.
    cut_inside: bool,
}

/// The owner that segments of buffers have.
struct Kept<T>(T);

/// The owner of memory of two owners.
struct Both(#[expect(dead_code)] Owner, #[expect(dead_code)] Owner);

impl Segments {
    /// Segments of memory that `owner` keeps. Empty ones are left out.
    ///
    /// # Safety
    /// Until the owner is dropped, which may be long after the device was closed or the caller is
    /// gone:
    ///
    /// - each segment is mapped, and may be read and written by any thread;
    /// - no Rust reference to its bytes is used; threads of this process that touch them do so by
    ///   volatile or atomic accesses, other processes and virtual machines as they like.
    ///
    /// # Panics
    /// When there are more than [`Buf::LEN_MAX`] bytes.
    #[must_use]
    pub unsafe fn new(owner: Owner, segments: &[Segment]) -> Segments {
        let mut new = Segments::with_places(segments.len());
        // SAFETY: the caller's promise.
        unsafe { new.refill(owner, segments) };
        new
    }

    /// Lets go of the owner and has no segment any more; the table stays, to be filled again.
    pub fn clear(&mut self) {
        let head = self.head_mut();
        (head.count, head.len, head.cut_inside) = (0, 0, false);
        head.owner = None;
    }

    /// Takes other segments in place of these, without an allocation if the table has held as many
    /// before.
    ///
    /// # Safety
    /// As [`new`](Segments::new).
    ///
    /// # Panics
    /// As [`new`](Segments::new).
    pub unsafe fn refill(&mut self, owner: Owner, segments: &[Segment]) {
        self.clear();
        self.reserve(segments.len());
        self.head_mut().owner = Some(owner);
        for segment in segments.iter().filter(|segment| segment.len > 0) {
            self.push(*segment);
        }
    }

    /// A buffer as segments of these lengths, in two allocations however many there are. What the
    /// lengths leave over belongs to no segment.
    ///
    /// # Panics
    /// When they are longer than the buffer.
    #[must_use]
    pub fn of_buf(buf: Buf, lengths: impl IntoIterator<Item = usize, IntoIter: Clone>) -> Segments {
        let lengths = lengths.into_iter();
        let mut segments = Segments::with_places(lengths.clone().count());
        let (mut at, all) = (buf.start(), buf.len());
        for len in lengths.filter(|len| *len > 0) {
            assert!(len <= all - segments.len(), "segments of more than {all} bytes");
            segments.push(Segment { start: at, len: len as u32 });
            // SAFETY: the end of these segments is at most one past those of the buffer.
            at = unsafe { at.add(len) };
        }
        segments.head_mut().owner = Some(Arc::new(Kept(buf)));
        segments
    }

    /// The buffer that [`of_buf`](Segments::of_buf) made segments of.
    ///
    /// # Errors
    /// The segments, when they are of other memory, or when another piece of it is left.
    pub fn into_buf(self) -> Result<Buf, Segments> {
        self.into_kept()
    }

    fn into_kept<T: Send + Sync + 'static>(mut self) -> Result<T, Segments> {
        let Some(owner) = self.head_mut().owner.take() else { return Err(self) };
        let kept = match owner.downcast::<Kept<T>>() {
            Ok(kept) => kept,
            Err(owner) => return Err(self.owned_by(owner)),
        };
        Arc::try_unwrap(kept).map(|kept| kept.0).map_err(|kept| self.owned_by(kept))
    }

    /// Vectors as one segment each, without a copy of their bytes. Empty ones are no segment.
    /// Memory that is not aligned as a driver needs it is copied on its way there.
    ///
    /// # Panics
    /// When they have more than [`Buf::LEN_MAX`] bytes together.
    #[must_use]
    pub fn of_vecs(mut vecs: Vec<Vec<u8>>) -> Segments {
        let len: usize = vecs.iter().map(Vec::len).sum();
        assert!(len <= Buf::LEN_MAX, "vectors of {len} bytes, at most {}", Buf::LEN_MAX);
        let mut segments = Segments::with_places(vecs.len());
        for vec in vecs.iter_mut().filter(|vec| !vec.is_empty()) {
            let len = vec.len() as u32;
            let start = NonNull::new(vec.as_mut_ptr()).expect("a vector's memory");
            segments.push(Segment { start, len });
        }
        segments.owned_by(Arc::new(Kept(vecs)))
    }

    /// The vectors that [`of_vecs`](Segments::of_vecs) made segments of.
    ///
    /// # Errors
    /// The segments, when they are of other memory, or when another piece of it is left.
    pub fn into_vecs(self) -> Result<Vec<Vec<u8>>, Segments> {
        self.into_kept()
    }

    fn owned_by(mut self, owner: Owner) -> Segments {
        self.head_mut().owner = Some(owner);
        self
    }

    /// Buffers as one segment each.
    pub(crate) fn of_bufs(bufs: Vec<Buf>) -> Segments {
        let mut segments = Segments::with_places(bufs.len());
        for buf in &bufs {
            segments.push(Segment { start: buf.start(), len: buf.len() as u32 });
        }
        segments.owned_by(Arc::new(Kept(bufs)))
    }

    /// Bytes of all segments.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.head().len as usize
    }

    /// Whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The owner of the memory; none after [`clear`](Segments::clear).
    #[must_use]
    pub fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.head().owner.as_deref()
    }

    /// The segments.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[Segment] {
        // SAFETY: the table has `count` segments that were written, and changes through `&mut self`
        // only.
        unsafe { std::slice::from_raw_parts(self.table(), self.head().count as usize) }
    }

    /// Cuts off and returns everything from byte `at` on: one allocation, whose table is that of
    /// the rest. The place of what was cut off stays here for [`join`](Segments::join).
    ///
    /// # Panics
    /// When `at` is beyond the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Segments {
        assert!(at <= self.len(), "split at {at} beyond {} bytes", self.len());
        let (mut before, mut index) = (0, 0);
        while let Some(segment) = self.as_slice().get(index)
            && before + segment.len as usize <= at
        {
            (before, index) = (before + segment.len as usize, index + 1);
        }
        let mut rest = Segments::with_places(self.as_slice().len() - index);
        rest.head_mut().owner.clone_from(&self.head().owner);
        let mut first = (at - before) as u32;
        rest.head_mut().cut_inside = first > 0;
        for segment in &self.as_slice()[index..] {
            // SAFETY: a cut is inside the segment.
            let start = unsafe { segment.start.add(first as usize) };
            rest.push(Segment { start, len: segment.len - std::mem::take(&mut first) });
        }
        if at > before {
            self.segment_mut(index).len = (at - before) as u32;
        }
        let head = self.head_mut();
        (head.count, head.len) = ((index + usize::from(at > before)) as u32, at as u32);
        rest
    }

    /// Puts `next` behind these. A segment that was cut is one again; of memory of another owner
    /// both owners are kept.
    ///
    /// # Panics
    /// When both have more than [`Buf::LEN_MAX`] bytes.
    pub fn join(&mut self, mut next: Segments) {
        if next.is_empty() {
            return;
        }
        if self.is_empty() {
            // Its table may be the larger one.
            self.head_mut().owner = None;
        }
        let inside = next.head().cut_inside && !self.is_empty();
        let same = match (&self.head().owner, next.head_mut().owner.take()) {
            (Some(mine), Some(its)) if Arc::ptr_eq(mine, &its) => true,
            (None, its) => {
                self.head_mut().owner = its;
                false
            }
            (Some(_), None) => false,
            (Some(mine), Some(its)) => {
                let both = Both(Arc::clone(mine), its);
                self.head_mut().owner = Some(Arc::new(both));
                false
            }
        };
        let mut more = next.as_slice();
        if let ([.., last], [first, rest @ ..]) = (self.as_slice(), more)
            // SAFETY: the end of a segment is at most one past its memory.
            && same && inside && unsafe { last.start.add(last.len as usize) } == first.start
        {
            let (index, len) = (self.as_slice().len() - 1, first.len);
            self.segment_mut(index).len += len;
            self.head_mut().len += len;
            more = rest;
        }
        self.reserve(self.as_slice().len() + more.len());
        more.iter().for_each(|segment| self.push(*segment));
    }

    /// Copies the bytes from byte `at` on into `out`. Where they change meanwhile, each byte is one
    /// that was there at some time of the copy.
    ///
    /// # Panics
    /// When `out` reaches beyond the end.
    pub fn copy_to(&self, at: usize, out: &mut [u8]) {
        let mut rest = &mut out[..];
        for (start, len) in self.runs(at, rest.len()) {
            let (here, behind) = rest.split_at_mut(len);
            // SAFETY: the run lies in a segment, which is mapped while its owner is here (`new`);
            // `here` is a reference, so it is elsewhere.
            unsafe { ptr::copy_nonoverlapping(start.as_ptr(), here.as_mut_ptr(), len) };
            rest = behind;
        }
        // What was copied is not read a second time from where it may be another by now.
        compiler_fence(Ordering::SeqCst);
    }

    /// Copies `bytes` to byte `at` and on.
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub fn copy_from(&mut self, at: usize, bytes: &[u8]) {
        let mut rest = bytes;
        for (start, len) in self.runs(at, rest.len()) {
            let (here, behind) = rest.split_at(len);
            // SAFETY: as in `copy_to`; it is writable, too.
            unsafe { ptr::copy_nonoverlapping(here.as_ptr(), start.as_ptr(), len) };
            rest = behind;
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// Makes `len` bytes from byte `at` on zeros.
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub fn fill_zeros(&mut self, at: usize, len: usize) {
        for (start, len) in self.runs(at, len) {
            // SAFETY: as in `copy_from`.
            unsafe { start.as_ptr().write_bytes(0, len) };
        }
        compiler_fence(Ordering::SeqCst);
    }

    /// The memory of `len` bytes from byte `at` on.
    fn runs(&self, at: usize, len: usize) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        let end = at.checked_add(len).filter(|end| *end <= self.len());
        assert!(end.is_some(), "{len} bytes at {at} of {}", self.len());
        let (mut skip, mut left) = (at, len);
        self.as_slice().iter().filter_map(move |segment| {
            let skipped = skip.min(segment.len as usize);
            skip -= skipped;
            let here = left.min(segment.len as usize - skipped);
            left -= here;
            // SAFETY: at most the whole segment is skipped.
            (here > 0).then(|| (unsafe { segment.start.add(skipped) }, here))
        })
    }

    /// An empty table with so many places.
    fn with_places(places: usize) -> Segments {
        let layout = layout(places);
        // SAFETY: the layout has a head, so its size is not zero.
        let memory = unsafe { alloc(layout) };
        let Some(head) = NonNull::new(memory.cast::<Head>()) else { handle_alloc_error(layout) };
        let places = places as u32;
        // SAFETY: the allocation is as large and as aligned as a head.
        unsafe { head.write(Head { owner: None, places, count: 0, len: 0, cut_inside: false }) };
        Segments(head)
    }

    /// Makes room for so many segments in all.
    fn reserve(&mut self, places: usize) {
        if places <= self.head().places as usize {
            return;
        }
        let mut larger = Segments::with_places(places);
        let mine = self.head_mut();
        let (owner, cut_inside) = (mine.owner.take(), mine.cut_inside);
        self.as_slice().iter().for_each(|segment| larger.push(*segment));
        let head = larger.head_mut();
        (head.owner, head.cut_inside) = (owner, cut_inside);
        *self = larger;
    }

    /// Adds a segment, for which there is a place.
    fn push(&mut self, segment: Segment) {
        let (count, places) = (self.head().count, self.head().places);
        let len = self.len() + segment.len as usize;
        assert!(count < places, "a table of {places} segments");
        assert!(len <= Buf::LEN_MAX, "segments of {len} bytes, at most {}", Buf::LEN_MAX);
        // SAFETY: `count` is below `places`, the length of the table.
        unsafe { self.table().add(count as usize).write(segment) };
        let head = self.head_mut();
        (head.count, head.len) = (count + 1, len as u32);
    }

    fn segment_mut(&mut self, index: usize) -> &mut Segment {
        assert!(index < self.head().count as usize, "segment {index} of fewer");
        // SAFETY: segments below `count` were written, and `self` is borrowed for as long.
        unsafe { &mut *self.table().add(index) }
    }

    /// The first place of the table.
    #[inline]
    fn table(&self) -> *mut Segment {
        // SAFETY: the table lies behind the head in the same allocation (`layout`), and the head's
        // size is a multiple of a segment's alignment.
        unsafe { self.0.as_ptr().add(1).cast() }
    }

    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: the head lives as long as `self`, its only holder, and is changed through `&mut
        // self` alone.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        // SAFETY: as in `head`, and `self` is borrowed alone.
        unsafe { self.0.as_mut() }
    }
}

const _: () = assert!(size_of::<Head>().is_multiple_of(align_of::<Segment>()));

/// A head with a table of so many places.
fn layout(places: usize) -> Layout {
    let table = Layout::array::<Segment>(places).expect("a table that fits");
    let (layout, offset) = Layout::new::<Head>().extend(table).expect("a table that fits");
    assert!(offset == size_of::<Head>() && u32::try_from(places).is_ok(), "{places} segments");
    layout
}

impl Drop for Segments {
    fn drop(&mut self) {
        let layout = layout(self.head().places as usize);
        // SAFETY: this is the only holder of the head, which was written by `with_places` with this
        // layout, and is not used again. Segments need no drop.
        unsafe {
            self.0.drop_in_place();
            dealloc(self.0.as_ptr().cast(), layout);
        }
    }
}

// SAFETY: the table has one holder; the owner may be dropped by any thread, and the memory it keeps
// is touched by raw copies only, from any thread as `new` has it.
unsafe impl Send for Segments {}
// SAFETY: a shared reference reads the table, and copies bytes out, which another thread may do at
// the same time.
unsafe impl Sync for Segments {}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments({} bytes in {})", self.len(), self.as_slice().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::Data;

    /// Memory of its own, and a count of how often it was let go.
    struct Guest {
        start: NonNull<u8>,
        dropped: Arc<AtomicUsize>,
    }

    const BYTES: usize = 64;

    // SAFETY: the address is never used but for the end of the memory.
    unsafe impl Send for Guest {}
    // SAFETY: as above.
    unsafe impl Sync for Guest {}

    impl Drop for Guest {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            // SAFETY: it came from an allocation of this layout in `guest`.
            unsafe { dealloc(self.start.as_ptr(), Layout::array::<u8>(BYTES).unwrap()) };
        }
    }

    /// Segments of these lengths, one behind the other with a byte between, whose bytes count up
    /// from 0, and the count of their end.
    fn guest(lengths: &[u32]) -> (Segments, Arc<AtomicUsize>) {
        let dropped = Arc::new(AtomicUsize::new(0));
        // SAFETY: the layout is not empty, and there are no more bytes than that.
        let start = NonNull::new(unsafe { alloc(Layout::array::<u8>(BYTES).unwrap()) }).unwrap();
        // SAFETY: the memory is that long.
        unsafe { start.as_ptr().write_bytes(0xee, BYTES) };
        let (mut at, mut byte, mut segments) = (0, 0, Vec::new());
        for len in lengths {
            // SAFETY: the lengths of the tests stay within the memory.
            segments.push(Segment { start: unsafe { start.add(at) }, len: *len });
            for _ in 0..*len {
                // SAFETY: as above.
                unsafe { start.add(at).write(byte) };
                (at, byte) = (at + 1, byte + 1);
            }
            at += 1;
        }
        let owner = Arc::new(Guest { start, dropped: Arc::clone(&dropped) });
        // SAFETY: the memory lives as long as its owner, and no reference to it is made.
        (unsafe { Segments::new(owner, &segments) }, dropped)
    }

    fn bytes(segments: &Segments) -> Vec<u8> {
        let mut out = vec![0xAA; segments.len()];
        segments.copy_to(0, &mut out);
        out
    }

    #[test]
    fn segments_cut_anywhere_and_joined_again_are_the_same_table() {
        let lengths = [5, 0, 1, 7, 3];
        let table = guest(&lengths).0.as_slice().iter().map(|each| each.len).collect::<Vec<_>>();
        assert_eq!(table, [5, 1, 7, 3], "an empty one is left out");
        for first in 0..=16 {
            for second in 0..=16 - first {
                let (mut all, dropped) = guest(&lengths);
                let (before, first_place) = (all.as_slice().to_vec(), all.table());
                let mut middle = all.split_off(first);
                let end = middle.split_off(second);
                assert_eq!(
                    (all.len(), middle.len(), end.len()),
                    (first, second, 16 - first - second)
                );
                let joined = [bytes(&all), bytes(&middle), bytes(&end)].concat();
                assert_eq!(joined, (0..16).collect::<Vec<u8>>(), "cut at {first} and {second}");
                middle.join(end);
                all.join(middle);
                assert_eq!(all.as_slice(), before, "cut at {first} and {second}");
                assert_eq!(all.table(), first_place, "its own table has the room");
                assert_eq!(dropped.load(Ordering::Relaxed), 0);
                drop(all);
                assert_eq!(dropped.load(Ordering::Relaxed), 1);
            }
        }
    }

    #[test]
    fn neighbours_that_were_not_one_segment_stay_two() {
        let buf = Buf::filled(12, |bytes| (0..12).for_each(|at| bytes[at] = at as u8));
        let mut all = Segments::of_buf(buf, [4, 8]);
        let rest = all.split_off(4);
        all.join(rest);
        assert_eq!(all.as_slice().iter().map(|each| each.len).collect::<Vec<_>>(), [4, 8]);
        assert_eq!(bytes(&all), (0..12).collect::<Vec<u8>>());
    }

    #[test]
    fn the_owner_is_let_go_with_the_last_piece_in_any_order() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let (mut all, dropped) = guest(&[16, 16]);
            let mut middle = all.split_off(10);
            let end = middle.split_off(10);
            let mut pieces = [Some(all), Some(middle), Some(end)];
            for (gone, index) in order.into_iter().enumerate() {
                assert_eq!(dropped.load(Ordering::Relaxed), 0, "{gone} pieces gone of {order:?}");
                assert_eq!(bytes(pieces[index].as_ref().unwrap())[0], 10 * index as u8);
                pieces[index] = None;
            }
            assert_eq!(dropped.load(Ordering::Relaxed), 1, "{order:?}");
        }
    }

    #[test]
    fn bytes_are_copied_in_and_out_at_any_place_and_nowhere_else() {
        for at in 0..=16 {
            for len in 0..=16 - at {
                let (mut all, _) = guest(&[5, 1, 7, 3]);
                let mut out = vec![0; len];
                all.copy_to(at, &mut out);
                assert_eq!(out, (at as u8..(at + len) as u8).collect::<Vec<u8>>());
                all.copy_from(at, &vec![99; len]);
                let expected = |byte: u8| if out.contains(&byte) { 99 } else { byte };
                assert_eq!(bytes(&all), (0..16).map(expected).collect::<Vec<u8>>());
                all.fill_zeros(at, len);
                let expected = |byte: u8| if out.contains(&byte) { 0 } else { byte };
                assert_eq!(bytes(&all), (0..16).map(expected).collect::<Vec<u8>>());
                // SAFETY: the byte behind the first segment is of the same memory.
                let between = unsafe { all.as_slice()[0].start.add(5).read() };
                assert_eq!(between, 0xee, "a byte between two segments");
            }
        }
    }

    #[test]
    #[should_panic(expected = "5 bytes at 12 of 16")]
    fn a_copy_beyond_the_end_is_no_copy() {
        guest(&[5, 1, 7, 3]).0.copy_to(12, &mut [0; 5]);
    }

    #[test]
    fn memory_of_several_owners_is_joined_and_keeps_them_all() {
        let ((first, one), (second, two)) = (guest(&[3]), guest(&[2]));
        let mut data = Data::Segments(first);
        data.append(Data::Zero { len: 2, spare: None });
        data.append(Data::Segments(second));
        data.append(Data::One(Buf::filled(1, |byte| byte[0] = 7)));
        let mut out = [0xAA; 8];
        data.copy_to(&mut out);
        assert_eq!(out, [0, 1, 2, 0, 0, 0, 1, 7]);
        let mut front = Data::Many(vec![Buf::zeroed(1), Buf::zeroed(1)].into());
        front.append(data);
        let rest = front.split_off(4);
        assert_eq!((front.len(), rest.len(), front.segments().len()), (4, 6, 3));
        drop(front);
        assert_eq!((one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)), (0, 0));
        drop(rest);
        assert_eq!((one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn zeros_are_written_where_the_owner_waits_for_them() {
        let mut data = Data::Segments(guest(&[5, 3]).0);
        data.become_zeros_if(false);
        assert_eq!(data.segments().len(), 2);
        data.become_zeros();
        let Data::Segments(segments) = &data else { panic!("{data:?}") };
        assert_eq!(bytes(segments), [0; 8]);
        assert!(data.bufs().is_none() && data.into_spare().is_none());
    }

    #[test]
    fn a_table_is_filled_again_in_its_place_and_lets_the_owner_go_before() {
        let (mut table, first) = guest(&[5, 1, 7]);
        let place = table.table();
        table.clear();
        assert_eq!(
            (first.load(Ordering::Relaxed), table.len(), table.owner().is_some()),
            (1, 0, false)
        );
        let (other, second) = guest(&[4, 4]);
        let owner = Arc::new(other);
        let segments = owner.as_slice().to_vec();
        // SAFETY: these segments are the owner's own.
        unsafe { table.refill(owner, &segments) };
        assert_eq!(bytes(&table), (0..8).collect::<Vec<u8>>());
        assert_eq!((table.table(), second.load(Ordering::Relaxed)), (place, 0));
        drop(table);
        assert_eq!(second.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_buffer_comes_back_whole_when_no_piece_of_it_is_left() {
        let mut all = Segments::of_buf(Buf::zeroed(4096), [512, 100]);
        all.copy_from(510, &[1, 2, 3, 4]);
        let rest = all.split_off(300);
        let mut all = all.into_buf().expect_err("a piece is left");
        all.join(rest);
        let buf = all.into_buf().unwrap();
        assert_eq!((buf.len(), &buf[510..514]), (4096, &[1, 2, 3, 4][..]));
        assert!(guest(&[4]).0.into_buf().is_err(), "no buffer of ours");
    }

    #[test]
    fn vectors_come_back_as_they_were_when_their_pieces_are_together_again() {
        let vecs = vec![vec![1; 3], Vec::new(), vec![2; 70]];
        let places: Vec<*const u8> = vecs.iter().map(|vec| vec.as_ptr()).collect();
        let mut all = Segments::of_vecs(vecs);
        assert_eq!(all.as_slice().iter().map(|each| each.len).collect::<Vec<_>>(), [3, 70]);
        all.copy_from(2, &[9, 9]);
        let rest = all.split_off(10);
        let mut all = all.into_vecs().unwrap_err();
        all.join(rest);
        assert!(Segments::of_buf(Buf::zeroed(8), [8]).into_vecs().is_err(), "it is of a buffer");
        let vecs = all.into_vecs().unwrap();
        assert_eq!(vecs.iter().map(|vec| vec.as_ptr()).collect::<Vec<_>>(), places);
        assert_eq!((vecs[0].as_slice(), vecs[2][0], vecs[2][1]), (&[1, 1, 9][..], 9, 2));
    }
}
