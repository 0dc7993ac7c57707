//! The traits of a driver: [`Driver`] (control) and [`DriverQueue`] (data).

mod done;
mod pooled;
mod table;

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_bio::{Limits, Nanos, Size, Status, WriteCache};
use weir_ring::Wake;

use crate::attributes::DeviceAttributes;
use crate::budget::Budget;
use crate::partition::PartitionGauges;
use crate::request::Request;
use crate::tag_set::TagSet;
use crate::target_port::TargetPort;

pub(crate) use done::Answer;
pub use done::{Done, UNTIL_KICKED};
pub(crate) use table::{Returned, TagTable};

/// A driver tag: names a request between the core and one driver queue.
///
/// The number is below the queue's depth. Behind it stands a generation, which changes when a
/// request under this number was cancelled: a second answer to that request is told from the
/// answer to the next one. So a driver keeps the tag it was given and answers with that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
// Copied as one word: a tag written in halves and read whole a moment later makes a CPU wait until
// both have arrived, 5 ns where one request is sent.
#[repr(align(4))]
pub struct Tag(pub u16, u16);

impl Tag {
    /// The first generation of this number.
    #[must_use]
    pub const fn first(number: u16) -> Tag {
        Tag(number, 0)
    }
}

/// Why a driver could not do what a control call asked.
#[derive(Debug)]
pub struct DriverError {
    /// The action and its object, with value and bound.
    pub what: String,
    /// The operating system's or the peer's reason, if there was one.
    pub source: Option<std::io::Error>,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for DriverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// Which thread may turn a driver queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Any, one at a time.
    Any,
    /// The one that opened it: its kernel resources end with that thread.
    Fixed,
}

/// The requirements of a driver for its hard queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Most queues it can serve.
    pub max: u16,
    /// Tags per queue.
    pub depth: u16,
    /// Tags among them for the driver's own use.
    pub reserved: u16,
    /// All queues draw on one budget of `depth` tags.
    pub shared_tags: bool,
    /// Which thread may turn them.
    pub home: Affinity,
}

/// A run of sectors that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in sectors.
    pub sectors: u64,
    /// No space is allocated for it.
    pub hole: bool,
    /// It reads as zeros.
    pub zero: bool,
}

/// Extents a driver finds at once at most, so that a question about a fragmented disk costs bounded
/// memory and its asker can take turns with others.
pub const EXTENTS_MAX: usize = 1024;

/// What has become of the writes that a driver was answered and has not flushed since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unflushed {
    /// They are there: since the driver was opened it has been connected to one and the same other
    /// end, whose flush covers all that this end was ever told.
    #[default]
    Kept,
    /// None of them is known to be gone. The other end was lost in between, so a flush covers what
    /// it was told since.
    Renewed,
    /// Some may be gone with an other end that was lost. One that has been there all along, on
    /// another way to the same device, may still flush them.
    Doubtful,
    /// Some are gone: a flush of them has failed, and no later one covers them.
    Gone,
}

/// Hears that a device has changed below; it takes no lock of the driver.
pub type ChangeListener = Arc<dyn Fn() + Send + Sync>;

/// A device's control side: shared, slow, may block.
///
/// # Contract
/// Flush covers the device: a flush answered on any queue makes durable every write answered on
/// any queue before the flush was submitted. One over other devices keeps to
/// [`Legs`](crate::Legs) too.
pub trait Driver: Send + Sync {
    /// The limits of the device.
    fn limits(&self) -> Limits;

    /// The requirements for its queues.
    fn queues(&self) -> Queues;

    /// Default: `None`, tags of its own.
    ///
    /// Tags that the device shares with others, as the logical units behind one host adapter do:
    /// the set is made once, and each of their drivers names it. [`Queues::depth`], `reserved` and
    /// `shared_tags` mean nothing then. `None`: the device has its own. The answer never changes.
    ///
    /// A driver queue is dropped only when its device uses none of its tags any more: then another
    /// device may have them.
    fn tag_set(&self) -> Option<Arc<TagSet>> {
        None
    }

    /// Default: false.
    ///
    /// Whether it is a mapper that is bio-based, as dm's linear and striped targets are: what comes
    /// out of its queue goes through the queues of the devices below, which throttle writes.
    fn is_bio_based(&self) -> bool {
        false
    }

    /// Default: false.
    ///
    /// Whether its queues take passthrough commands: requests with a [command
    /// block](Request::cdb), whose memory may have any length. Without that none arrives.
    fn takes_commands(&self) -> bool {
        false
    }

    /// Default: `None`, no bound beside the tags.
    ///
    /// The places that its requests need beside their tags. `None`: tags are all. The answer never
    /// changes.
    fn budget(&self) -> Option<Arc<dyn Budget>> {
        None
    }

    /// Default: nothing, for a driver that leaves time-outs to the core.
    ///
    /// A request may take so long from now on, ns; 0: as long as it likes. Told when a device is
    /// made of the driver, and when its `io_timeout` changes: for a driver that ends what takes
    /// too long itself ([`Cancel::Recovering`]).
    fn follow_timeout(&self, timeout_ns: u64) {
        let _ = timeout_ns;
    }

    /// Default: nothing, for a queue that opens at once.
    ///
    /// Does what opening hard queue `index` would have to wait for, such as a connection. Called
    /// beforehand, and never on a thread that turns lanes: may block. It may be called again, and
    /// the queue may not be opened after all.
    ///
    /// # Errors
    /// The failure, naming the device.
    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        let _ = index;
        Ok(())
    }

    /// Default: nothing.
    ///
    /// The device is being brought to rest, or is not any more: it has come to rest, or goes on. A
    /// driver that lets requests wait for what may never come, such as a path, ends them meanwhile,
    /// because the device waits for their end. By any thread; it does not wait.
    fn comes_to_rest(&self, begins: bool) {
        let _ = begins;
    }

    /// Opens hard queue `index` with `depth` tags. Called on the thread that will turn it, which
    /// turns others as well: once [prepared](Driver::prepare) it waits for no server.
    ///
    /// # Errors
    /// The failure, naming the device.
    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError>;

    /// Default: the size in [`limits`](Driver::limits), unchanged: a device that does not grow.
    ///
    /// Makes the device at least so many sectors large if that can be, and says how large it is:
    /// what was enlarged from outside counts. It never shrinks. May block.
    ///
    /// # Errors
    /// The failure, naming the device.
    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        let _ = sectors;
        Ok(self.limits().size())
    }

    /// Default: that in [`limits`](Driver::limits).
    ///
    /// Its write cache as far as is known now: a target may be told to use one while it is in use,
    /// after its [limits](Driver::limits) were asked for.
    fn write_cache(&self) -> WriteCache {
        self.limits().write_cache()
    }

    /// Default: never tells.
    ///
    /// Tells `listener` when [`enlarge`](Driver::enlarge) may find something that it did not
    /// before, such as a larger size or a write cache: on the thread that turns a lane, which waits
    /// for it. A second listener takes the first one's place.
    fn on_change(&self, listener: ChangeListener) {
        drop(listener);
    }

    /// Default: `None`, nothing. What it shows of itself in the tree, beside what every device has.
    fn attributes(&self) -> Option<&dyn DeviceAttributes> {
        None
    }

    /// Default: `None`.
    ///
    /// The target port that its requests pass. `None`: every way to it is as good as another. The
    /// answer never changes.
    fn target_port(&self) -> Option<Arc<dyn TargetPort>> {
        None
    }

    /// Default: `None`.
    ///
    /// What is known of the device whatever the path to it, for
    /// [`Backing::open_unreached`](crate::Backing::open_unreached) of another path. `None`: it may
    /// have no other.
    fn likeness(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Default: none.
    ///
    /// The faults that it knows of on the way to the device now, a sentence each: a server that is
    /// lost, a connection that is down. By any thread; it does not wait.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Default: [`Unflushed::Kept`].
    ///
    /// What has become of the writes before the last flush. Its own flushes fail where they do not
    /// cover them; this is for a device that has several ways to one disk, where a flush that
    /// succeeds on one must not hide what was lost on another. By any thread; it does not wait.
    fn unflushed(&self) -> Unflushed {
        Unflushed::Kept
    }

    /// Default: `None`. The partitions that it has, if it is the driver of a pool.
    fn partitions(&self) -> Option<&dyn Partitions> {
        None
    }

    /// Default: everything is data, which is always correct.
    ///
    /// Which of `sectors` sectors from `sector` are allocated: consecutive extents, [`EXTENTS_MAX`]
    /// at most, that cover the range or its beginning. May block.
    ///
    /// # Errors
    /// The failure, naming the device.
    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let _ = sector;
        Ok(vec![Extent { sectors, hole: false, zero: false }])
    }
}

/// The driver of a pool as its device tells it of partitions.
pub trait Partitions: Send + Sync {
    /// Partition `number` has this driver from now on, and counts in `gauges`.
    fn attach(&self, number: u16, driver: Arc<dyn Driver>, gauges: Arc<PartitionGauges>);

    /// The partition `number` that counts in `gauges` is gone: nothing of it is under way. Another
    /// one may have its number already.
    fn detach(&self, number: u16, gauges: &Arc<PartitionGauges>);
}

/// The answer to [`DriverQueue::cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The driver forgot the request: it never answers for the tag again, holds no memory of it,
    /// and the request changes no sector any more. A driver that was lent memory says `Pending`
    /// and answers.
    Done,
    /// It still holds the tag and will answer later, or never. Until then the sectors the request
    /// may change are fenced: what overlaps them waits.
    Pending,
    /// It sees to the request's time itself, and ends the request or hands it back within a bound
    /// of its own, as a mid-layer does that has its target abort the request and sends it again.
    /// The request stays in flight, and is asked about again at each look of the watch.
    Recovering,
}

/// One hardware queue of a device: the data side, with a home thread for life. No call may block,
/// as the thread turns other queues too, unless it was said that it
/// [may](DriverQueue::may_block).
///
/// # One answer for all bios
/// A request is one bio or several neighbours that were merged, and its status ends all of them:
/// one bad sector fails each I/O of the request that touches it, and the core does not send them
/// again one by one. A driver cannot narrow an answer to a part. One whose sectors fail for
/// themselves has its disk opened with the option `nomerges=2`, which merges nothing; a submitter
/// keeps a single I/O apart with [`Flags::NOMERGE`](weir_bio::Flags::NOMERGE). Bios that differ in
/// one of [`Flags::ALIKE`](weir_bio::Flags::ALIKE) are never in one request.
///
/// # Contract
/// A request that `submit` takes is answered through `reap` exactly once, never inside `submit`:
/// with a status, or by handing the request back to be sent again ([`Done::push_requeue`]). The
/// range, read-only and support for the op were checked before; ops with a zero limit never arrive.
/// `commit` follows every burst of `submit`. A FUA write is answered when it is durable; a `Flush`
/// when everything answered before it was submitted is.
///
/// A request that was cancelled is answered, or handed back, only when it cannot change a sector
/// any more; the driver makes no new call for it. Answers to a cancelled request beyond the first
/// are counted and dropped.
pub trait DriverQueue: Send {
    /// Takes a prefix of `batch` and leaves the rest with the reason.
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos);

    /// The burst is over: ring the doorbell, once for all of it.
    fn commit(&mut self, now: Nanos);

    /// Default: drops `lane`, for a driver that needs no waking.
    ///
    /// The queue is open: [`lane.wake()`](Wake::wake) has its lane turned, and so itself reaped.
    /// For a driver whose answers come through another device, the queue of another lane, or
    /// threads. The driver wakes from any thread and at any time, also in a turn of that lane, as
    /// often as it likes; once for many answers is enough, if they were there before the call.
    ///
    /// A driver whose answers come from threads of the program takes this one, and answers true in
    /// [`announces`](DriverQueue::announces). [`event_fd`](DriverQueue::event_fd) is for a
    /// descriptor that there is anyway, such as a device's or a ring's.
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        let _ = lane;
    }

    /// Default: whether there is an [`event_fd`](DriverQueue::event_fd).
    ///
    /// Whether the driver says when there is something to reap: by its event, or by having its lane
    /// turned. Without that a lane that holds requests is turned in every round, so one that wakes
    /// its lane ([`at_home`](DriverQueue::at_home)) says true here.
    fn announces(&self) -> bool {
        self.event_fd().is_some()
    }

    /// Hands over what has been answered.
    fn reap(&mut self, now: Nanos, done: &mut Done);

    /// Default: [`Cancel::Pending`], right for a driver that cannot take a request back.
    ///
    /// Tries to end a request whose time is up. Asked once for each, and again after
    /// [`Cancel::Recovering`].
    fn cancel(&mut self, tag: Tag) -> Cancel {
        let _ = tag;
        Cancel::Pending
    }

    /// Default: `None`.
    ///
    /// Until when requests wait for a device that cannot be reached and may come back; their
    /// time-out does not run meanwhile. The driver ends what waits when that moment has passed.
    fn outage_until(&self) -> Option<Nanos> {
        None
    }

    /// Default: `None`.
    ///
    /// When to reap without being told, for drivers that model time. One that comes to name a time
    /// while it holds no request [announces](DriverQueue::announces).
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Default: `None`: answers come from [`wake_at`](DriverQueue::wake_at), after a
    /// [wake](DriverQueue::at_home), or are there at the next reap.
    ///
    /// Becomes readable when there is something to reap.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Default: `None`.
    ///
    /// A way to wait for answers, or until `beside` becomes readable, that takes less than polling
    /// [`event_fd`](DriverQueue::event_fd), which is readable no more from then on. For the home
    /// thread. `None`: there is none.
    fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        let _ = beside;
        None
    }

    /// Default: false; nothing has changed.
    ///
    /// The home thread is there for this queue alone: from now on a call of the queue may sleep on
    /// it until the device has answered, where that is quicker than to be told of the answer.
    /// While it sleeps the lane makes no turn, so nothing is submitted, cancelled or timed out.
    fn may_block(&mut self) -> bool {
        false
    }

    /// Requests taken and not answered.
    fn in_flight(&self) -> usize;
}

/// Waits for the answers of a [`DriverQueue`].
pub trait Waiter {
    /// Sleeps until there is something to reap, what was to be looked at beside becomes readable,
    /// or so many ns are over; it may also return early.
    fn wait(&mut self, at_most_ns: Option<u64>);
}

/// Requests offered to a driver, oldest first, each under its tag.
pub struct Batch<'a> {
    tags: &'a [Tag],
    table: &'a mut TagTable,
    taken: usize,
    refused: Option<Status>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(tags: &'a [Tag], table: &'a mut TagTable) -> Batch<'a> {
        Batch { tags, table, taken: 0, refused: None }
    }

    /// Requests not taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags.len() - self.taken
    }

    /// Whether all are taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next request, if any is left and none was refused. It stays in the batch until
    /// [`take`](Batch::take).
    #[inline]
    pub fn peek(&mut self) -> Option<(Tag, &mut Request)> {
        if self.refused.is_some() {
            return None;
        }
        let tag = *self.tags.get(self.taken)?;
        Some((tag, self.table.request(tag)))
    }

    /// Takes the request last peeked at: the driver answers for it from now on.
    ///
    /// # Panics
    /// When none is left.
    #[inline]
    pub fn take(&mut self) -> Tag {
        let tag = self.tags[self.taken];
        self.taken += 1;
        tag
    }

    /// Takes everything, showing each request to `serve`.
    #[inline]
    pub fn take_all(&mut self, mut serve: impl FnMut(Tag, &mut Request)) {
        if self.refused.is_some() {
            return;
        }
        for tag in &self.tags[self.taken..] {
            serve(*tag, self.table.request(*tag));
        }
        self.taken = self.tags.len();
    }

    /// Refuses the rest: [`Status::Resource`] to be asked again later, or
    /// [`Status::DevResource`] when one of this queue's own completions will free what is short.
    pub fn refuse(&mut self, reason: Status) {
        assert!(
            matches!(reason, Status::Resource | Status::DevResource),
            "a batch is refused for want of resources, not with {reason:?}"
        );
        self.refused = Some(reason);
    }

    /// Offers up to `most` of the requests left to another driver queue, as a wrapping driver does.
    /// Requests that it takes are taken here, a refusal refuses the rest here.
    pub fn offer(&mut self, most: usize, other: impl FnOnce(&mut Batch<'_>)) {
        if self.refused.is_some() {
            return;
        }
        let end = self.tags.len().min(self.taken.saturating_add(most));
        let mut part = Batch::new(&self.tags[self.taken..end], self.table);
        other(&mut part);
        let (taken, refused) = part.outcome();
        self.taken += taken;
        self.refused = refused;
    }

    pub(crate) fn outcome(&self) -> (usize, Option<Status>) {
        (self.taken, self.refused)
    }
}
