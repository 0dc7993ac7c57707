//! One thread's own way into a disk: a queue of its own, and blocking calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, SECTOR, Status};
use weir_live::Clock;
use weir_queue::{Bell, CAPS_AGAIN_NS, Completion, Refused, Submitter};
use weir_ring::Wake;

use crate::error::{Cause, IoError};
use crate::open::Error;
use crate::shared::Open;

/// A blocking transfer travels in pieces of so many bytes, so that its buffers can be used again.
const PIECE: u64 = 256 << 10;

/// Pieces of a blocking call under way at one time, and buffers kept for the next.
const PIECES: usize = 8;

/// A range without data travels in parts of so many bytes (1 TiB): a bio counts its sectors in 32
/// bits.
const RANGE: u64 = 1 << 40;

/// Marks the cookies of pieces of a blocking call; the session's own, callers never see them.
const OWN: u64 = 1 << 63;

/// One thread's way into a disk. It can be moved to another thread between calls; several threads
/// have a session each. It keeps the disk open.
///
/// There are two ways to use it, side by side:
/// - [`submit`](Session::submit) as many I/Os as fit, then [`wait`](Session::wait) or
///   [`poll`](Session::poll) for those that have ended. Neighbours merge in the session's plug,
///   which `wait` and `poll` flush;
/// - the blocking calls, which take byte offsets and the caller's memory.
///
/// The blocking calls copy the caller's bytes in and out of buffers of the session: a device may
/// write to the memory of an I/O after its caller has given up on it (a timeout, a thread that
/// unwinds), so that memory is never the caller's. A caller that wants no copy uses `submit`, whose
/// [`Buf`]s travel with the I/O and come back.
///
/// Completions that are not taken count as unfinished: a session that has submitted and then
/// neither polls nor is dropped holds up a reconfiguration, a freeze and the closing of its disk.
///
/// Dropping it with I/O under way is allowed: that is finished, and its completions are dropped.
pub struct Session {
    submitter: Submitter,
    bell: Arc<Bell>,
    sleeper: Arc<Sleeper>,
    cookies: Cookies,
    /// Completions that came while a call waited for something else.
    ended: VecDeque<Completion>,
    /// Pieces of the blocking call that have ended.
    pieces: Vec<Completion>,
    spare: Vec<Buf>,
    // After the submitter: dropping it may close the disk.
    open: Arc<Open>,
    one_thread: PhantomData<Cell<()>>,
}

impl Session {
    pub(crate) fn new(open: Arc<Open>) -> Result<Session, Error> {
        let sleeper = Arc::new(Sleeper(Mutex::new(std::thread::current())));
        let bell = Bell::new(Box::new(SleeperWake(Arc::clone(&sleeper))), 1);
        let submitter = open.device.submitter(&bell, 0, open.next_lane())?;
        Ok(Session {
            submitter,
            bell,
            sleeper,
            cookies: Cookies::default(),
            ended: VecDeque::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
            open,
            one_thread: PhantomData,
        })
    }

    /// I/Os submitted whose completions were not handed over yet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.submitter.in_flight() + self.ended.len() as u64
    }

    /// Hands in one I/O; blocks while the session is full, the disk frozen, or a cap of the I/O's
    /// group holds it back. It waits in the plug,
    /// where neighbours merge, until a call flushes that. A malformed one is accepted and ends with
    /// its status.
    pub fn submit(&mut self, mut bio: Bio) {
        while let Err(refused) = self.try_submit(bio) {
            bio = self.wait_to_submit(refused);
        }
    }

    /// As [`submit`](Session::submit), without blocking.
    ///
    /// # Errors
    /// [`Refused`], with the bio: the session is full, or the disk is frozen. Then
    /// [`poll`](Session::poll) or [`wait`](Session::wait), and try again. Or a cap of its group
    /// holds it back, for which nothing rings: try again at the time it says, by the clock of
    /// [`Clock`].
    pub fn try_submit(&mut self, mut bio: Bio) -> Result<(), Refused> {
        let cookie = bio.cookie;
        bio.cookie = self.cookies.put(cookie);
        let index = bio.cookie;
        let refused = match self.submitter.submit(bio, Clock.now()) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        self.cookies.take(index);
        Err(match refused {
            Refused::Full(bio) => Refused::Full(bio.cookie(cookie)),
            Refused::Frozen(bio) => Refused::Frozen(bio.cookie(cookie)),
            Refused::Capped { bio, until } => Refused::Capped { bio: bio.cookie(cookie), until },
        })
    }

    /// Sends on what the plug holds.
    pub fn flush_plug(&mut self) {
        self.submitter.flush_plug(Clock.now());
    }

    /// Sends on what the plug holds, hands each I/O that has ended to `each`, and says how many
    /// there were. Does not block.
    pub fn poll(&mut self, mut each: impl FnMut(Completion)) -> usize {
        self.look();
        let count = self.ended.len();
        self.ended.drain(..).for_each(&mut each);
        count
    }

    /// As [`poll`](Session::poll), but blocks until at least one has ended. Returns 0 at once when
    /// none is in flight.
    pub fn wait(&mut self, mut each: impl FnMut(Completion)) -> usize {
        loop {
            let count = self.poll(&mut each);
            if count > 0 || self.in_flight() == 0 {
                return count;
            }
            self.sleep();
        }
    }

    /// Reads `out.len()` bytes from byte `offset` on. After an error `out` may be partly filled.
    ///
    /// # Errors
    /// [`IoError`]: how it ended, or what was wrong with the range. Offset and length must be
    /// multiples of the [logical block](weir_bio::Limits::logical_block_size); no bytes are no
    /// I/O.
    pub fn read_at(&mut self, offset: u64, out: &mut [u8]) -> Result<(), IoError> {
        let ask = self.ask(Op::Read, offset, out.len() as u64)?;
        let make = |spare: &mut Vec<Buf>, at: Range<u64>| {
            let len = at.end - at.start;
            Bio::read((offset + at.start) / SECTOR, buffer(spare, len))
        };
        self.carry_out(&ask, PIECE, make, |at, data| {
            data.copy_to(&mut out[at.start as usize..at.end as usize]);
        })
    }

    /// Writes `bytes` from byte `offset` on. They are durable after a later
    /// [`flush`](Session::flush). After an error some may have been written.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.write(offset, bytes, Flags::NONE)
    }

    /// As [`write_at`](Session::write_at), and durable when it returns (FUA). That is so for these
    /// bytes alone, not for what was written before.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_at_durable(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoError> {
        self.write(offset, bytes, Flags::FUA)
    }

    fn write(&mut self, offset: u64, bytes: &[u8], flags: Flags) -> Result<(), IoError> {
        let ask = self.ask(Op::Write, offset, bytes.len() as u64)?;
        let make = |spare: &mut Vec<Buf>, at: Range<u64>| {
            let mut buf = buffer(spare, at.end - at.start);
            buf.copy_from_slice(&bytes[at.start as usize..at.end as usize]);
            Bio::write((offset + at.start) / SECTOR, buf).with(flags)
        };
        self.carry_out(&ask, PIECE, make, |_, _| ())
    }

    /// Makes everything durable whose write was answered, to whomever, before this call.
    ///
    /// # Errors
    /// [`IoError`]: how it ended. Then nothing can be said of any write since the last flush.
    pub fn flush(&mut self) -> Result<(), IoError> {
        let ask = Ask { op: Op::Flush, offset: 0, len: 0 };
        self.carry_out(&ask, 1, |_, _| Bio::flush(), |_, _| ())
    }

    /// Says that a range's contents are no longer needed; what it reads as afterwards is not
    /// defined.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at); [`Status::NotSupp`] when the disk cannot.
    pub fn discard(&mut self, offset: u64, len: u64) -> Result<(), IoError> {
        let ask = self.ask(Op::Discard, offset, len)?;
        let make = |_: &mut Vec<Buf>, at: Range<u64>| ask.bare(Op::Discard, at, Data::None);
        self.carry_out(&ask, RANGE, make, |_, _| ())
    }

    /// Makes a range read as zeros. `may_unmap` says whether its space may be given back. A disk
    /// that has no command for it is written to.
    ///
    /// # Errors
    /// As [`read_at`](Session::read_at).
    pub fn write_zeroes(&mut self, offset: u64, len: u64, may_unmap: bool) -> Result<(), IoError> {
        let ask = self.ask(Op::WriteZeroes, offset, len)?;
        let flags = if may_unmap { Flags::NONE } else { Flags::NOUNMAP };
        let command = |_: &mut Vec<Buf>, at: Range<u64>| {
            ask.bare(Op::WriteZeroes, at, Data::None).with(flags | Flags::SYNC)
        };
        match self.carry_out(&ask, RANGE, command, |_, _| ()) {
            Err(error) if error.status == Status::NotSupp => {}
            ended => return ended,
        }
        let write = |_: &mut Vec<Buf>, at: Range<u64>| {
            let zeros = Data::Zero { len: (at.end - at.start) as u32, spare: None };
            ask.bare(Op::Write, at, zeros).with(Flags::SYNC)
        };
        self.carry_out(&ask, PIECE, write, |_, _| ())
    }

    /// Checks a blocking call's range.
    fn ask(&self, op: Op, offset: u64, len: u64) -> Result<Ask, IoError> {
        let (block, size) = (self.open.block, self.open.size);
        let ask = Ask { op, offset, len };
        if (offset | len) & u64::from(block - 1) != 0 {
            return Err(self.error(&ask, Status::Inval, Cause::Misaligned { block }));
        }
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let status = if op == Op::Write { Status::NoSpc } else { Status::Inval };
            return Err(self.error(&ask, status, Cause::BeyondEnd { size }));
        }
        Ok(ask)
    }

    fn error(&self, ask: &Ask, status: Status, cause: Cause) -> IoError {
        let Ask { op, offset, len } = *ask;
        IoError { disk: self.open.name().to_owned(), op, offset, len, status, cause }
    }

    /// Does a blocking call in parts of `step` bytes, several at a time. `make` makes the I/O of a
    /// part, by its place in the call; `take` sees the memory of one that succeeded.
    fn carry_out(
        &mut self,
        ask: &Ask,
        step: u64,
        mut make: impl FnMut(&mut Vec<Buf>, Range<u64>) -> Bio,
        mut take: impl FnMut(Range<u64>, &Data),
    ) -> Result<(), IoError> {
        let parts = if ask.op == Op::Flush { 1 } else { ask.len.div_ceil(step) };
        let place = |part: u64| part * step..((part + 1) * step).min(ask.len);
        let mut failed: Option<(u64, Status)> = None;
        let (mut next, mut left) = (0, 0);
        loop {
            while next < parts && left < PIECES && failed.is_none() {
                let bio = make(&mut self.spare, place(next));
                self.submit_own(bio.cookie(OWN | next));
                (next, left) = (next + 1, left + 1);
            }
            if left == 0 {
                break;
            }
            self.wait_for_piece();
            let mut pieces = std::mem::take(&mut self.pieces);
            for piece in pieces.drain(..) {
                let part = piece.cookie & !OWN;
                left -= 1;
                match piece.status {
                    Status::Ok => take(place(part), &piece.data),
                    status if failed.is_none_or(|(first, _)| part < first) => {
                        failed = Some((part, status));
                    }
                    _ => {}
                }
                self.keep(piece.data);
            }
            // For its memory.
            self.pieces = pieces;
        }
        match failed {
            None => Ok(()),
            Some((_, status)) => {
                let read_only = status == Status::ReadOnly;
                let cause = if read_only { Cause::ReadOnly } else { Cause::Disk };
                Err(self.error(ask, status, cause))
            }
        }
    }

    fn submit_own(&mut self, mut bio: Bio) {
        while let Err(refused) = self.submitter.submit(bio, Clock.now()) {
            bio = self.wait_to_submit(refused);
        }
    }

    fn wait_for_piece(&mut self) {
        loop {
            self.look();
            if !self.pieces.is_empty() {
                return;
            }
            self.sleep();
        }
    }

    /// After a refusal: waits until it may have become different. The bell is cleared only
    /// afterwards, so nothing between the refusal and now is missed.
    fn wait_to_submit(&mut self, refused: Refused) -> Bio {
        self.flush_plug();
        match &refused {
            Refused::Capped { until, .. } => self.sleep_until(*until),
            Refused::Full(_) | Refused::Frozen(_) => self.sleep(),
        }
        self.look();
        refused.into_bio()
    }

    /// Flushes the plug and takes what has ended.
    fn look(&mut self) {
        let now = Clock.now();
        // Before looking: what comes afterwards sets it again.
        self.bell.ready().take(|_| ());
        self.submitter.flush_plug(now);
        let Session { submitter, cookies, ended, pieces, .. } = self;
        submitter.complete(now, |mut completion| {
            if completion.cookie & OWN != 0 {
                pieces.push(completion);
            } else {
                completion.cookie = cookies.take(completion.cookie);
                ended.push_back(completion);
            }
        });
    }

    /// Parks the calling thread until the bell has something new.
    fn sleep(&mut self) {
        self.sleeper.bind();
        // A token from before, or from elsewhere, ends a park early.
        self.bell.doorbell().wait_until(|| self.bell.ready().any(), std::thread::park);
    }

    /// The same until a cap is to be asked again.
    #[cold]
    fn sleep_until(&mut self, until: Nanos) {
        self.sleeper.bind();
        let until = until.min(Clock.now() + CAPS_AGAIN_NS);
        let left = || until.since(Clock.now());
        let is_over = || self.bell.ready().any() || left() == 0;
        let park = || std::thread::park_timeout(Duration::from_nanos(left()));
        self.bell.doorbell().wait_until(is_over, park);
    }

    /// Keeps a buffer for the next piece.
    fn keep(&mut self, data: Data) {
        if self.spare.len() < PIECES {
            self.spare.extend(data.into_spare().filter(|buf| buf.capacity() <= PIECE as usize));
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({}, {} in flight)", self.open.name(), self.in_flight())
    }
}

/// The arguments of a blocking call; offset and length in bytes.
struct Ask {
    op: Op,
    offset: u64,
    len: u64,
}

impl Ask {
    /// An I/O on a part of the range, with no memory of its own.
    fn bare(&self, op: Op, at: Range<u64>, data: Data) -> Bio {
        let (sector, sectors) = ((self.offset + at.start) / SECTOR, (at.end - at.start) / SECTOR);
        Bio::new(op, sector, sectors as u32, data)
    }
}

/// A buffer of `len` bytes, used before if possible. Its old contents are overwritten, or never
/// looked at.
fn buffer(spare: &mut Vec<Buf>, len: u64) -> Buf {
    let len = len as usize;
    let fits = spare.iter().rposition(|buf| buf.capacity() >= len);
    let mut buf = match fits {
        Some(index) => spare.swap_remove(index),
        None => {
            // One that is too small makes way for one that serves both.
            spare.pop();
            Buf::filled(len.next_power_of_two(), |_| ())
        }
    };
    buf.resize(len);
    buf
}

/// The callers' cookies, by those their I/O travels with.
#[derive(Default)]
struct Cookies {
    theirs: Vec<u64>,
    free: Vec<u64>,
}

impl Cookies {
    fn put(&mut self, theirs: u64) -> u64 {
        match self.free.pop() {
            Some(index) => {
                self.theirs[index as usize] = theirs;
                index
            }
            None => {
                self.theirs.push(theirs);
                self.theirs.len() as u64 - 1
            }
        }
    }

    fn take(&mut self, index: u64) -> u64 {
        self.free.push(index);
        self.theirs[index as usize]
    }
}

/// The thread to wake: whichever waits.
struct Sleeper(Mutex<Thread>);

impl Sleeper {
    /// Makes it the calling thread.
    fn bind(&self) {
        let here = std::thread::current();
        let mut thread = self.0.lock().expect("the sleeper's lock");
        if thread.id() != here.id() {
            *thread = here;
        }
    }
}

struct SleeperWake(Arc<Sleeper>);

impl Wake for SleeperWake {
    fn wake(&self) {
        self.0.0.lock().expect("the sleeper's lock").unpark();
    }
}
