//! A pool of buffers of one length.
//!
//! An aligned allocation of one page costs an allocator about two. A place of a pool costs its own
//! bytes, and to take it costs a lock and two small allocations. A pool of 2 MiB or more lies in
//! huge pages where the system has some: to read into a long buffer of it past the page cache, or
//! to write from it, costs the system less, as its memory is in one run.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::PAGE;
use crate::buf::Buf;
use crate::line::Waiting;
use crate::region::Region;

/// Buffers of one length, for any thread. A [`Buf`] that was taken goes back with its drop, on
/// whichever thread that is, also when the pool itself is gone.
///
/// ```
/// use weir_bio::{Bio, BufPool};
///
/// let pool = BufPool::new(4096, 64);
/// assert_eq!(pool.bytes(), 64 * 4096);
/// let mut buf = pool.take().expect("all are free");
/// buf.fill(7);
/// let bio = Bio::write(0, buf);
/// assert_eq!(pool.free(), 63);
/// drop(bio);
/// assert_eq!(pool.free(), 64);
/// ```
#[derive(Clone)]
pub struct BufPool {
    region: Arc<Region>,
    len: u32,
}

impl BufPool {
    /// Most bytes of a pool: 64 GiB.
    pub const BYTES_MAX: usize = 64 << 30;

    /// A pool of `count` buffers of `len` bytes. Each takes whole pages.
    ///
    /// # Panics
    /// When `len` is outside 1..=[`Buf::LEN_MAX`], or `count` is 0, or they are above
    /// [`BYTES_MAX`](BufPool::BYTES_MAX) together. Where there is no memory for them the process
    /// ends, as with every allocation.
    #[must_use]
    pub fn new(len: usize, count: usize) -> BufPool {
        BufPool::try_new(len, count).unwrap_or_else(|| {
            let bytes = len.next_multiple_of(PAGE) * count;
            let layout = Layout::from_size_align(bytes, PAGE);
            handle_alloc_error(layout.expect("a page-aligned layout"))
        })
    }

    /// As [`new`](BufPool::new), where the program can go on without: `None` when there is no
    /// memory for them.
    ///
    /// # Panics
    /// As [`new`](BufPool::new).
    #[must_use]
    pub fn try_new(len: usize, count: usize) -> Option<BufPool> {
        assert!((1..=Buf::LEN_MAX).contains(&len), "buffers of {len} bytes, 1..={}", Buf::LEN_MAX);
        let step = len.next_multiple_of(PAGE);
        let bytes = step.checked_mul(count).filter(|bytes| (1..=Self::BYTES_MAX).contains(bytes));
        let Some(bytes) = bytes else {
            panic!("{count} buffers of {step} bytes: 1..={} in all", Self::BYTES_MAX)
        };
        let region = Arc::new(Region::zeroed(step, bytes)?);
        Some(BufPool { region, len: len as u32 })
    }

    /// A buffer of the pool's length, if one is free. Its bytes are those of its last use, zeros at
    /// first.
    #[must_use]
    pub fn take(&self) -> Option<Buf> {
        let start = self.region.take()?;
        Some(Buf::of_pool(start, self.len, Arc::clone(&self.region)))
    }

    /// As [`take`](BufPool::take), for a task, which waits until one is free: a [`Future`] of the
    /// buffer, for any runtime or none.
    pub fn acquire(&self) -> Acquire {
        Acquire { pool: self.clone(), waiting: Waiting::default() }
    }

    /// Buffers that are free now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.region.count_free()
    }

    /// Buffers that are free now and have not been [emptied](BufPool::empty_free) since their last
    /// use.
    #[must_use]
    pub fn backed(&self) -> usize {
        self.region.count_backed()
    }

    /// Gives the memory of the buffers that are free now back to the system. They stay in the pool,
    /// and are taken when no other is free; they are zeros then, and get memory when they are
    /// written. Of a huge page with other buffers in use the system takes the free part when it is
    /// short of memory. Pools below 2 MiB, buffers that are not whole pages of the system, and
    /// memory that is locked (mlock) stay as they are.
    pub fn empty_free(&self) {
        self.region.empty_free();
    }

    /// Bytes of all its buffers, taken or not: the memory that it has, but for a few bytes for each
    /// that is taken.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, count, len) = (self.free(), self.region.count(), self.len);
        write!(f, "BufPool({free} of {count} buffers of {len} bytes free)")
    }
}

/// A wait for a buffer of a pool. Those that wait are woken in order; one that comes just then may
/// be quicker. One that was woken and is dropped wakes the next.
#[must_use = "no buffer is taken before it is awaited"]
pub struct Acquire {
    pool: BufPool,
    waiting: Waiting,
}

impl Future for Acquire {
    type Output = Buf;

    /// Polled again when it was ready, it waits for another buffer.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Buf> {
        let Acquire { pool, waiting } = &mut *self;
        match pool.region.take_or_wait(waiting, context.waker()) {
            Some(start) => Poll::Ready(Buf::of_pool(start, pool.len, Arc::clone(&pool.region))),
            None => Poll::Pending,
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.pool.region.leave_line(&mut self.waiting);
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Acquire({:?})", self.pool)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::Data;

    #[derive(Default)]
    struct Tally(AtomicU32);

    impl Wake for Tally {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Tally {
        fn poll(self: &Arc<Self>, acquire: &mut Acquire) -> Poll<Buf> {
            let waker = Waker::from(Arc::clone(self));
            Pin::new(acquire).poll(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn tasks_wait_for_a_buffer_in_order_and_one_that_goes_leaves_it_to_the_next() {
        let pool = BufPool::new(512, 1);
        let (mut first, mut second, mut third) = (pool.acquire(), pool.acquire(), pool.acquire());
        let [one, other, last] = [(); 3].map(|()| Arc::new(Tally::default()));
        let Poll::Ready(buf) = one.poll(&mut first) else { panic!("it is free") };
        assert!(other.poll(&mut second).is_pending());
        assert!(other.poll(&mut second).is_pending(), "in line once");
        assert!(last.poll(&mut third).is_pending());
        drop(buf);
        assert_eq!((other.woken(), last.woken()), (1, 0), "the first in line");
        drop(second);
        assert_eq!((last.woken(), pool.free()), (1, 1), "what was meant for the one that went");
        // One that was quicker: the task stands where it stood.
        let quick = pool.take().unwrap();
        assert!(last.poll(&mut third).is_pending());
        let mut behind = pool.acquire();
        assert!(other.poll(&mut behind).is_pending());
        drop(quick);
        assert_eq!((last.woken(), other.woken()), (2, 1));
        assert!(last.poll(&mut third).is_ready());
        drop(third);
        assert_eq!(other.woken(), 2, "its buffer was free again");
        drop(behind);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn buffers_lie_page_by_page_and_each_is_there_once() {
        let pool = BufPool::new(4096, 16);
        let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((bufs.len(), pool.free(), pool.bytes()), (16, 0, 16 * 4096));
        let first = bufs[0].start().as_ptr() as usize;
        for (number, buf) in bufs.iter_mut().enumerate() {
            assert_eq!(buf.start().as_ptr() as usize, first + number * 4096, "4 KiB take 4 KiB");
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(number as u8);
        }
        assert!(bufs.iter().enumerate().all(|(number, buf)| buf[4095] == number as u8));
        let kept = bufs.swap_remove(7);
        drop(bufs);
        assert_eq!(pool.free(), 15);
        drop(kept);
        assert_eq!(pool.take().unwrap()[0], 7, "the bytes of its last use");
    }

    #[test]
    fn a_place_is_free_again_with_its_last_piece_and_can_be_reused_when_joined() {
        let pool = BufPool::new(5000, 1);
        let mut buf = pool.take().unwrap();
        assert_eq!((buf.len(), buf.capacity(), buf.as_ptr() as usize % PAGE), (5000, 5000, 0));
        let mut tail = buf.split_off(3000);
        let end = tail.split_off(1000);
        assert_eq!(buf.capacity(), 0);
        tail.join(end).unwrap();
        buf.join(tail).unwrap();
        assert_eq!((buf.len(), buf.capacity()), (5000, 5000));
        let tail = buf.split_off(100);
        drop(buf);
        assert_eq!(pool.free(), 0);
        drop(tail);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn zeros_without_memory_keep_the_place_as_their_spare_one() {
        let pool = BufPool::new(4096, 1);
        let mut data = Data::One(pool.take().unwrap());
        let start = data.segments().next().unwrap().start;
        data.become_zeros();
        assert_eq!(pool.free(), 0);
        data.materialise();
        assert_eq!(data.segments().next().unwrap().start, start, "it is the same memory");
        drop(data);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter has no pages")]
    fn free_buffers_that_are_emptied_are_zeros_and_those_in_use_keep_their_bytes() {
        let pool = BufPool::new(256 << 10, 8);
        let mut bufs: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
        for (number, buf) in bufs.iter_mut().enumerate() {
            buf.fill(number as u8 + 1);
        }
        let kept = [bufs.remove(5), bufs.remove(2)];
        let start = bufs[3].start();
        drop(bufs);
        assert_eq!((pool.free(), pool.backed()), (6, 6));
        pool.empty_free();
        assert_eq!((pool.free(), pool.backed()), (6, 0));
        assert!(kept[0].iter().all(|byte| *byte == 6) && kept[1].iter().all(|byte| *byte == 3));
        drop(kept);
        assert_eq!((pool.free(), pool.backed()), (8, 2));
        let first: Vec<Buf> = (0..2).filter_map(|_| pool.take()).collect();
        assert_eq!((first[0][0], first[1][0]), (3, 6), "those with memory come first");
        let rest: Vec<Buf> = std::iter::from_fn(|| pool.take()).collect();
        assert!(rest.iter().any(|buf| buf.start() == start));
        assert!(rest.len() == 6 && rest.iter().all(|buf| buf.iter().all(|byte| *byte == 0)));
        drop(rest);
        assert_eq!(pool.backed(), 6, "they may have memory again");
    }

    #[test]
    fn a_short_pool_keeps_its_memory() {
        let pool = BufPool::new(4096, 4);
        pool.take().unwrap().fill(7);
        pool.empty_free();
        assert_eq!((pool.free(), pool.take().unwrap()[0]), (4, 7));
    }

    #[test]
    fn a_buffer_outlives_its_pool_and_goes_back_from_any_thread() {
        let pool = BufPool::new(512, 4);
        let bufs: Vec<Buf> = (0..4).map(|_| pool.take().unwrap()).collect();
        let other = pool.clone();
        std::thread::scope(|scope| {
            for buf in bufs {
                scope.spawn(move || drop(buf));
            }
        });
        assert_eq!(other.free(), 4);
        let mut last = other.take().unwrap();
        drop((pool, other));
        last.fill(1);
        assert!(last.iter().all(|byte| *byte == 1));
    }

    #[test]
    #[should_panic(expected = "0 buffers of 4096 bytes")]
    fn a_pool_of_no_buffer_is_refused() {
        let _ = BufPool::new(4096, 0);
    }
}
