//! A driver of four calls that block, as a plugin of nbdkit is: read, write, flush, trim.
//!
//! [`Blocking`] makes a weir driver of a [`BlockingDriver`]. The calls are made by threads of its
//! own, so no reactor waits for one; this crate says how many there are, what becomes of a call
//! that panics, is cut short or never returns, and when the threads end.

#![forbid(unsafe_code)]

mod call;
mod crew;
mod outlet;
mod queue;

use std::fmt;
use std::io;
use std::sync::Arc;

use weir_bio::{Limits, SECTOR};
use weir_queue::{Affinity, Driver, DriverError, DriverQueue, Extent, Queues};

use crate::crew::Crew;
use crate::queue::BlockingQueue;

/// Tags of a hard queue.
const DEPTH: u16 = 128;

/// Hard queues at most: one for each reactor that a host may have.
const QUEUES_MAX: u16 = 64;

/// Largest read or write, sectors: 1 MiB.
const SECTORS_MAX: u32 = 2048;

/// Largest discard or zeroing, sectors: 1 GiB.
const TRIM_SECTORS_MAX: u32 = 1 << 21;

/// Most sectors of a range of zeros, 32 MiB: they may have to be written, within the time of one
/// request.
const ZERO_SECTORS_MAX: u32 = 1 << 16;

/// Threads if nothing is said.
const THREADS: u16 = 4;

/// Bounds of the number of threads.
const THREADS_MIN: u16 = 1;
const THREADS_MAX: u16 = 64;

/// A disk whose calls block.
///
/// Several threads call it at once, as many as [`BlockingOptions::threads`] says; with one thread
/// there is one call at a time. Ranges are inside the disk and whole blocks, but for the rest of a
/// call that moved fewer bytes, which begins behind those.
///
/// # Errors of the calls
/// An error keeps its errno ([`io::Error::raw_os_error`]), or gets that of its kind; any other is
/// EIO. [`Interrupted`](io::ErrorKind::Interrupted) has the call made again.
///
/// # A call that does not do what it should
/// - One that is **cut short** is made again for the rest. One that moves nothing, or says that it
///   moved more than it was given, fails its request with EIO.
/// - One that **panics** fails its request with EIO, and the thread goes on (in a program whose
///   panics unwind).
/// - One that **does not return** keeps its thread and its memory. Its request ends with ETIMEDOUT
///   (EIO for a client over NBD, which has no word for it) when its time is up (`io_timeout`, 30 s
///   if not told), and its sectors stay fenced: reads and writes that overlap them wait, up to
///   their own `io_timeout`. The other threads go on; with the last one gone every request times
///   out. [`Driver::faults`] says how many such calls there are. Time-outs are looked for once a
///   second.
///
/// # Errors of a part
/// A call may be for several I/Os that were merged, and its error ends all of them. Where sectors
/// fail for themselves, the disk is opened with the option `nomerges=2`.
pub trait BlockingDriver: Send + Sync + 'static {
    /// Its size in bytes, whole blocks. Asked once, by [`Blocking::new`].
    fn size(&self) -> u64;

    /// Reads from byte `offset` on; how many bytes, at least 1.
    ///
    /// # Errors
    /// See the trait.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes from byte `offset` on; how many bytes, at least 1.
    ///
    /// # Errors
    /// See the trait.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Makes durable what was written before this call, by whichever thread.
    ///
    /// # Errors
    /// What was written may be lost. No later flush can be believed then, so none is asked for any
    /// more: each fails with this error, until another [`Blocking`] is made of the driver.
    fn flush(&self) -> io::Result<()>;

    /// The contents of a range are no longer needed. Called where
    /// [`BlockingOptions::trim`] offers it.
    ///
    /// # Errors
    /// See the trait.
    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Makes a range zeros, quicker than a write of them. With `keep` it stays allocated, so that
    /// later writes into it have room. Called where [`BlockingOptions::zero`] offers it.
    ///
    /// # Errors
    /// See the trait. With [`Unsupported`](io::ErrorKind::Unsupported), or EOPNOTSUPP, zeros are
    /// written instead, unless the request was to end rather than that.
    fn zero(&self, offset: u64, len: u64, keep: bool) -> io::Result<()> {
        let _ = (offset, len, keep);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Which of a range is allocated: extents in the disk's order, from `offset` on, that cover the
    /// range or its beginning; in sectors of 512 bytes, 1,024 extents at most. "Everything is data"
    /// is always correct. Called by a thread that asks, not by those of the driver, and it may
    /// block.
    ///
    /// # Errors
    /// The failure, for the one who asks.
    fn allocation(&self, offset: u64, len: u64) -> io::Result<Vec<Extent>> {
        let _ = offset;
        Ok(vec![Extent { sectors: len / SECTOR, hole: false, zero: false }])
    }
}

impl<D: BlockingDriver + ?Sized> BlockingDriver for Arc<D> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        (**self).read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        (**self).write(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).trim(offset, len)
    }

    fn zero(&self, offset: u64, len: u64, keep: bool) -> io::Result<()> {
        (**self).zero(offset, len, keep)
    }

    fn allocation(&self, offset: u64, len: u64) -> io::Result<Vec<Extent>> {
        (**self).allocation(offset, len)
    }
}

/// What a [`BlockingDriver`] is like.
#[derive(Clone, Debug)]
pub struct BlockingOptions {
    threads: u16,
    block: u32,
    trim: bool,
    zero: bool,
    read_only: bool,
}

impl Default for BlockingOptions {
    /// 4 threads, blocks of 512 bytes, no trim, no zeroing, written to.
    fn default() -> BlockingOptions {
        let block = SECTOR as u32;
        BlockingOptions { threads: THREADS, block, trim: false, zero: false, read_only: false }
    }
}

impl BlockingOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> BlockingOptions {
        BlockingOptions::default()
    }

    /// How many threads make its calls, 1 to 64.
    #[must_use]
    pub fn threads(self, threads: u16) -> BlockingOptions {
        BlockingOptions { threads, ..self }
    }

    /// The logical block, bytes: a power of two of at least 512.
    #[must_use]
    pub fn block(self, block: u32) -> BlockingOptions {
        BlockingOptions { block, ..self }
    }

    /// Offers discards.
    #[must_use]
    pub fn trim(self) -> BlockingOptions {
        BlockingOptions { trim: true, ..self }
    }

    /// Offers writes of zeros that bring none.
    #[must_use]
    pub fn zero(self) -> BlockingOptions {
        BlockingOptions { zero: true, ..self }
    }

    /// Refuses writes before they come to it.
    #[must_use]
    pub fn read_only(self) -> BlockingOptions {
        BlockingOptions { read_only: true, ..self }
    }
}

/// A [`BlockingDriver`] as a driver.
///
/// Its threads are started when its first hard queue is opened, and have ended when its last one is
/// closed, but for those in a call that has not returned: such a thread ends when the call does.
/// There are never more of them than were asked for, however often it is opened.
pub struct Blocking {
    crew: Arc<Crew>,
    limits: Limits,
}

impl Blocking {
    /// A driver that calls this one.
    ///
    /// # Errors
    /// A size, a block or a number of threads outside its bound.
    pub fn new(
        driver: impl BlockingDriver,
        options: BlockingOptions,
    ) -> Result<Blocking, DriverError> {
        let fault = |what: String| {
            let what = format!("blocking driver: {what}");
            Err(DriverError { what, source: None })
        };
        let BlockingOptions { threads, block, trim, zero, read_only } = options;
        if !(THREADS_MIN..=THREADS_MAX).contains(&threads) {
            return fault(format!("threads={threads} is outside {THREADS_MIN}..={THREADS_MAX}"));
        }
        if u64::from(block) < SECTOR || !block.is_power_of_two() {
            return fault(format!(
                "block={block} is not a power of two of at least {SECTOR} bytes"
            ));
        }
        let size = driver.size();
        if size == 0 || !size.is_multiple_of(block.into()) {
            return fault(format!("size={size} is not a positive multiple of block={block}"));
        }
        let limits = Limits {
            capacity: size / SECTOR,
            read_only,
            volatile_cache: true,
            logical_block_size: block,
            physical_block_size: block,
            io_min: block,
            max_hw_sectors: SECTORS_MAX.max(block / SECTOR as u32),
            max_segments: u16::MAX,
            max_segment_size: u32::MAX,
            seg_boundary_mask: u64::MAX,
            dma_alignment: 0,
            max_hw_discard_sectors: if trim { TRIM_SECTORS_MAX } else { 0 },
            discard_granularity: block,
            max_write_zeroes_sectors: if zero { ZERO_SECTORS_MAX } else { 0 },
            fast_write_zeroes: zero,
            ..Limits::default()
        };
        Ok(Blocking { crew: Arc::new(Crew::new(Arc::new(driver), threads)), limits })
    }

    /// Threads that there are now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.crew.threads()
    }

    /// Tells `listener` when something happens that no request alone should tell of: a call that
    /// panics or breaks the contract (once for each kind of call), threads that cannot be started,
    /// a close that leaves calls behind. By the thread that saw it. A second listener takes the
    /// first one's place.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.crew.notices.listen(Arc::new(listener));
    }

    /// The same if there is no listener yet.
    pub fn on_notice_by_default(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.crew.notices.listen_by_default(Arc::new(listener));
    }

    /// The newest notices.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.crew.notices.all()
    }
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, threads) = (self.limits.capacity * SECTOR, self.threads());
        write!(f, "Blocking({bytes} bytes, {threads} threads)")
    }
}

impl Driver for Blocking {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        Queues {
            max: QUEUES_MAX,
            depth: DEPTH,
            reserved: 0,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    fn open(&self, _index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let opened = BlockingQueue::open(&self.crew, depth);
        let queue = opened.map_err(|source| DriverError {
            what: String::from("blocking driver: no thread can be started"),
            source: Some(source),
        })?;
        Ok(Box::new(queue))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.crew.allocation(sector, sectors)
    }

    fn faults(&self) -> Vec<String> {
        self.crew.faults()
    }
}
