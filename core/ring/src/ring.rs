//! A bounded ring from one thread to one other.
//!
//! The producer writes any number of items and publishes them with one store; the consumer gives
//! places back likewise. Each side keeps the other's position at hand and looks again only when it
//! runs out.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use crate::sync::{Alone, Arc, AtomicUsize, LINE, Ordering, UnsafeCell, fetch, fetch_to_write};

struct Shared<T> {
    /// Items published, ever; written by the producer.
    published: Alone<AtomicUsize>,
    /// Items taken, ever; written by the consumer.
    taken: Alone<AtomicUsize>,
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a cell is written by the producer before it is published and read by the consumer after,
// and not again before it was given back; items move between threads, so they must be `Send`.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn cell(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // The length is a power of two.
        &self.cells[position & (self.cells.len() - 1)]
    }
}

/// Where the cells are, kept at hand by both ends: the way over the shared part is two loads more.
struct Cells<T> {
    first: NonNull<UnsafeCell<MaybeUninit<T>>>,
    mask: usize,
}

// SAFETY: it is used by the ends alone, which are as the ring itself.
unsafe impl<T: Send> Send for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Cells<T> {}

impl<T> Cells<T> {
    fn of(shared: &Shared<T>) -> Cells<T> {
        Cells { first: NonNull::from(&*shared.cells).cast(), mask: shared.cells.len() - 1 }
    }

    /// The cell of this position.
    ///
    /// # Safety
    /// The shared part, which owns the cells and never moves them, is alive.
    #[inline]
    unsafe fn at(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        // SAFETY: the index is within the cells, whose number is a power of two; the caller's
        // promise does the rest.
        unsafe { self.first.add(position & self.mask).as_ref() }
    }

    #[inline]
    fn len(&self) -> usize {
        self.mask + 1
    }

    /// Calls `fetch` with a place on each line of `count` cells from this position, or nearly: the
    /// last may be missing, and those inside of cells that are larger than a line.
    #[inline]
    fn each_line(
        &self,
        position: usize,
        count: usize,
        fetch: fn(*const UnsafeCell<MaybeUninit<T>>),
    ) {
        let step = (LINE / size_of::<T>().max(1)).max(1);
        for offset in (0..count).step_by(step) {
            fetch(self.first.as_ptr().wrapping_add(position.wrapping_add(offset) & self.mask));
        }
    }
}

/// The writing end of a ring: writes entries and publishes them, many at once if wanted.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    cells: Cells<T>,
    written: usize,
    published: usize,
    taken_seen: usize,
}

/// The reading end of a ring: takes published entries in order.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    cells: Cells<T>,
    taken: usize,
    published_seen: usize,
}

/// A ring for at least `capacity` items (the next power of two).
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let cells =
        (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        published: Alone(AtomicUsize::new(0)),
        taken: Alone(AtomicUsize::new(0)),
        cells,
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        cells: Cells::of(&shared),
        written: 0,
        published: 0,
        taken_seen: 0,
    };
    (producer, Consumer { cells: Cells::of(&shared), shared, taken: 0, published_seen: 0 })
}

impl<T: Send> Producer<T> {
    /// Writes an item, which the consumer does not see before [`publish`](Producer::publish), or
    /// before the producer is dropped: that publishes too, so that no item is lost with its writer.
    ///
    /// # Errors
    /// The item, when every place is taken.
    #[inline(always)]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.written.wrapping_sub(self.taken_seen) == self.cells.len() && !self.has_room() {
            return Err(item);
        }
        // SAFETY: the shared part is alive.
        let cell = unsafe { self.cells.at(self.written) };
        cell.with_mut(|cell| {
            // SAFETY: this cell was given back (just checked) and is not published yet.
            unsafe { (*cell).write(item) };
        });
        self.written = self.written.wrapping_add(1);
        Ok(())
    }

    /// Writes all of these.
    ///
    /// # Panics
    /// When there is no room for them.
    #[inline]
    pub fn push_each(&mut self, items: impl ExactSizeIterator<Item = T>) {
        let (count, room) = (items.len(), self.room(items.len()));
        assert!(count <= room, "{count} items, room for {room}");
        // No more than it said, whatever it says now.
        items.take(room).for_each(|item| {
            // SAFETY: the shared part is alive.
            let cell = unsafe { self.cells.at(self.written) };
            cell.with_mut(|cell| {
                // SAFETY: this cell was given back (just checked) and is not published yet.
                unsafe { (*cell).write(item) };
            });
            self.written = self.written.wrapping_add(1);
        });
    }

    #[cold]
    fn has_room(&mut self) -> bool {
        // Acquire: the consumer is done with the cells it gave back.
        self.taken_seen = self.shared.taken.load(Ordering::Acquire);
        self.written.wrapping_sub(self.taken_seen) != self.cells.len()
    }

    /// For how many items there is room, as far as is known: what the consumer says is looked at
    /// only where that would be less than `wanted`.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        let known = self.cells.len() - self.written.wrapping_sub(self.taken_seen);
        if known >= wanted {
            return known;
        }
        // Acquire: the consumer is done with the cells it gave back.
        self.taken_seen = self.shared.taken.load(Ordering::Acquire);
        self.cells.len() - self.written.wrapping_sub(self.taken_seen)
    }

    /// Brings the places of the next `count` items nearer, while their writer does something else:
    /// the consumer's CPU has them.
    #[inline]
    pub fn fetch(&self, count: usize) {
        self.cells.each_line(self.written, count.min(self.cells.len()), fetch_to_write);
    }

    /// Items written and not published.
    #[inline]
    #[must_use]
    pub fn unpublished(&self) -> usize {
        self.written.wrapping_sub(self.published)
    }

    /// Calls `with` with the newest item, if it is not published yet.
    #[inline(always)]
    pub fn with_newest<R>(&mut self, with: impl FnOnce(&mut T) -> R) -> Option<R> {
        if self.written == self.published {
            return None;
        }
        // SAFETY: the shared part is alive.
        let cell = unsafe { self.cells.at(self.written.wrapping_sub(1)) };
        Some(cell.with_mut(|cell| {
            // SAFETY: the cell was written and is not published, so it is still the producer's.
            with(unsafe { (*cell).assume_init_mut() })
        }))
    }

    /// Takes the newest item back, if it is not published yet.
    #[inline]
    pub fn take_newest(&mut self) -> Option<T> {
        if self.written == self.published {
            return None;
        }
        self.written = self.written.wrapping_sub(1);
        // SAFETY: the shared part is alive.
        let cell = unsafe { self.cells.at(self.written) };
        Some(cell.with(|cell| {
            // SAFETY: the cell was written and is not published, so it is still the producer's; it
            // is read once, as `written` has moved back.
            unsafe { (*cell).assume_init_read() }
        }))
    }

    /// Shows the consumer everything written. True when there was something new.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.published = self.written;
        self.shared.published.store(self.written, Ordering::Release);
        true
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest published item. Its place is given back by
    /// [`release`](Consumer::release).
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.taken == self.published_seen && !self.refresh() {
            return None;
        }
        // SAFETY: the shared part is alive.
        let cell = unsafe { self.cells.at(self.taken) };
        let item = cell.with(|cell| {
            // SAFETY: the cell was published (just checked) and is read once, as `taken` moves on.
            unsafe { (*cell).assume_init_read() }
        });
        self.taken = self.taken.wrapping_add(1);
        Some(item)
    }

    /// Takes up to `max` of the oldest published items, gives their places back, and says how many
    /// there were.
    #[inline]
    pub fn pop_each(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let known = self.published_seen.wrapping_sub(self.taken);
        // Fewer than asked for means that there are no more, whatever was seen before.
        if known < max && !self.refresh() {
            return 0;
        }
        let count = max.min(self.published_seen.wrapping_sub(self.taken));
        let from = self.taken;
        // Moved on before `each` is called, so that nothing is read twice if that panics.
        self.taken = from.wrapping_add(count);
        for offset in 0..count {
            // SAFETY: the shared part is alive.
            let cell = unsafe { self.cells.at(from.wrapping_add(offset)) };
            each(cell.with(|cell| {
                // SAFETY: the cell was published (just checked) and is read once.
                unsafe { (*cell).assume_init_read() }
            }));
        }
        self.release();
        count
    }

    /// Looks for items that were published since; the position behind the last of all.
    #[inline]
    pub fn see(&mut self) -> usize {
        self.refresh();
        self.published_seen
    }

    /// That position now, for those who only ask whether there is more than they saw.
    #[inline]
    #[must_use]
    pub fn end(&self) -> usize {
        self.shared.published.load(Ordering::Acquire)
    }

    /// Shows `each` the items from this position on that were [seen](Consumer::see) and not taken,
    /// oldest first, until it answers false. Answers the position behind the last for which it
    /// answered true, or where it began. None is taken.
    #[inline]
    pub fn look(&mut self, from: usize, mut each: impl FnMut(&T) -> bool) -> usize {
        let mut at = self.first_left(from);
        while at != self.published_seen {
            // SAFETY: the shared part is alive.
            let cell = unsafe { self.cells.at(at) };
            let goes_on = cell.with(|cell| {
                // SAFETY: the cell was published and is not taken (`first_left`).
                each(unsafe { (*cell).assume_init_ref() })
            });
            if !goes_on {
                break;
            }
            at = at.wrapping_add(1);
        }
        at
    }

    /// How many of those that were seen and not taken are before this position.
    #[inline]
    #[must_use]
    pub fn left_before(&self, position: usize) -> usize {
        self.first_left(position).wrapping_sub(self.taken)
    }

    /// This position, if it is one of what was seen and not taken, or behind that; else where that
    /// begins.
    #[inline]
    fn first_left(&self, position: usize) -> usize {
        let seen = self.published_seen.wrapping_sub(self.taken);
        if position.wrapping_sub(self.taken) > seen { self.taken } else { position }
    }

    /// Brings the next `count` items nearer, while their reader does something else: the
    /// producer's CPU has them, if they are published.
    #[inline]
    pub fn fetch(&self, count: usize) {
        self.fetch_behind(self.taken, count);
    }

    /// The same for what is published from this position on.
    #[inline]
    pub fn fetch_behind(&self, position: usize, count: usize) {
        fetch(&raw const *self.shared.published);
        self.cells.each_line(position, count.min(self.cells.len()), fetch);
    }

    #[inline]
    fn refresh(&mut self) -> bool {
        // Acquire: the items up to here are written.
        self.published_seen = self.shared.published.load(Ordering::Acquire);
        self.taken != self.published_seen
    }

    /// Whether nothing published is left.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.taken == self.published_seen && !self.refresh()
    }

    /// Whether something published is left, for those who may not take it.
    #[inline]
    #[must_use]
    pub fn has_items(&self) -> bool {
        self.taken != self.shared.published.load(Ordering::Acquire)
    }

    /// Published items that are left. There may be more a moment later.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        self.shared.published.load(Ordering::Acquire).wrapping_sub(self.taken)
    }

    /// Gives the places of everything taken back to the producer.
    #[inline]
    pub fn release(&mut self) {
        self.shared.taken.store(self.taken, Ordering::Release);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone, and each stored its position when it went.
        let end = self.published.load(Ordering::Acquire);
        let mut at = self.taken.load(Ordering::Acquire);
        while at != end {
            self.cell(at).with_mut(|cell| {
                // SAFETY: published and never taken.
                unsafe { (*cell).assume_init_drop() };
            });
            at = at.wrapping_add(1);
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // Items that were written and not published belong to the consumer now, or else to the
        // ring's own drop.
        self.shared.published.store(self.written, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.taken.store(self.taken, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_and_a_full_ring_gives_the_item_back() {
        let (mut tx, mut rx) = ring(2);
        assert_eq!((tx.push(1), tx.push(2), tx.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(rx.pop(), None, "nothing is published yet");
        assert!(tx.publish());
        assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(1), Some(2), None));
        assert_eq!(tx.push(3), Err(3), "the places were not given back yet");
        rx.release();
        assert_eq!(tx.push(3), Ok(()));
    }

    #[test]
    fn the_newest_can_be_taken_back_until_it_is_published() {
        let (mut tx, mut rx) = ring(2);
        assert_eq!(tx.take_newest(), None);
        tx.push(1).unwrap();
        tx.publish();
        assert_eq!(tx.take_newest(), None, "it is the consumer's");
        tx.push(2).unwrap();
        assert_eq!((tx.take_newest(), tx.take_newest()), (Some(2), None));
        assert!(!tx.publish(), "nothing is new");
        tx.push(3).unwrap();
        tx.publish();
        assert_eq!((rx.pop(), rx.pop(), rx.pop()), (Some(1), Some(3), None));
    }

    #[test]
    fn items_taken_together_come_in_order_and_no_more_than_asked_for() {
        let (mut tx, mut rx) = ring(4);
        let mut seen = Vec::new();
        for round in 0..5 {
            (0..3).for_each(|n| tx.push(round * 3 + n).unwrap());
            tx.publish();
            assert_eq!(rx.pop_each(2, |item| seen.push(item)), 2);
            assert_eq!(rx.pop_each(2, |item| seen.push(item)), 1);
            assert_eq!(rx.pop_each(2, |item| seen.push(item)), 0);
        }
        assert_eq!(seen, (0..15).collect::<Vec<_>>());
    }

    #[test]
    fn items_written_together_go_where_one_after_the_other_would() {
        let (mut tx, mut rx) = ring(4);
        for round in 0..5 {
            let items = round * 3..round * 3 + 3;
            tx.fetch(3);
            tx.push_each(items.clone());
            assert!(tx.publish());
            rx.fetch(3);
            assert_eq!(
                std::iter::from_fn(|| rx.pop()).collect::<Vec<_>>(),
                items.collect::<Vec<_>>()
            );
            rx.release();
        }
    }

    #[test]
    fn more_items_than_there_is_room_for_are_refused_before_any_is_written() {
        let (mut tx, mut rx) = ring(4);
        tx.push(0).unwrap();
        let more = std::panic::AssertUnwindSafe(|| tx.push_each(1..5));
        assert!(std::panic::catch_unwind(more).is_err());
        tx.publish();
        assert_eq!((rx.pop(), rx.pop()), (Some(0), None));
        assert_eq!(tx.room(4), 3, "nothing is given back yet");
        rx.release();
        assert_eq!((tx.room(3), tx.room(4)), (3, 4), "it looks only where it must");
    }

    #[test]
    fn items_that_are_looked_at_stay_and_are_shown_from_any_of_them_on() {
        let (mut tx, mut rx) = ring(4);
        let looked = |rx: &mut Consumer<usize>, from, until| {
            let mut seen = Vec::new();
            let position = rx.look(from, |item| {
                seen.push(*item);
                *item != until
            });
            (position, seen)
        };
        for at in (0..20).step_by(4) {
            (at..at + 4).for_each(|n| tx.push(n).unwrap());
            assert_eq!((rx.see(), rx.end(), looked(&mut rx, at, 99)), (at, at, (at, vec![])));
            tx.publish();
            assert_eq!((rx.end(), looked(&mut rx, at, 99)), (at + 4, (at, vec![])), "not seen");
            assert_eq!(rx.see(), at + 4);
            assert_eq!(looked(&mut rx, at, 99), (at + 4, (at..at + 4).collect()));
            assert_eq!(looked(&mut rx, at + 1, at + 2), (at + 2, vec![at + 1, at + 2]));
            assert_eq!((rx.left_before(at), rx.left_before(at + 3)), (0, 3));
            assert_eq!((rx.pop(), rx.pop()), (Some(at), Some(at + 1)));
            assert_eq!(looked(&mut rx, at, 99), (at + 4, vec![at + 2, at + 3]), "the rest");
            assert_eq!((rx.left_before(at), rx.left_before(at + 3)), (0, 1));
            assert_eq!(looked(&mut rx, at + 4, 99), (at + 4, vec![]));
            assert_eq!(rx.pop_each(9, |_| {}), 2);
            assert_eq!((looked(&mut rx, at, 99), rx.left_before(at)), ((at + 4, vec![]), 0));
        }
    }

    #[test]
    fn fewer_than_asked_for_means_that_there_are_no_more() {
        let (mut tx, mut rx) = ring(4);
        tx.push(1).unwrap();
        tx.publish();
        assert!(!rx.is_empty());
        tx.push(2).unwrap();
        tx.publish();
        let mut seen = Vec::new();
        assert_eq!((rx.pop_each(3, |item| seen.push(item)), seen), (2, vec![1, 2]));
    }

    #[test]
    fn what_is_left_in_a_ring_is_dropped_with_it() {
        let counted = Arc::new(());
        let (mut tx, mut rx) = ring(4);
        for _ in 0..3 {
            tx.push(Arc::clone(&counted)).unwrap();
        }
        tx.publish();
        drop(rx.pop());
        tx.push(Arc::clone(&counted)).unwrap();
        drop(rx);
        drop(tx);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
