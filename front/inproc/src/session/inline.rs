//! A session that turns its disk itself, on its own thread: no reactor, no hop to another thread.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_bio::Nanos;
use weir_live::{Clock, OwnLanes, Unfinished};
use weir_queue::{Completion, Device, Late, Progress, Step, Submitter, Then, Watch};

use super::parts::{Lent, Parts};
use super::{Session, Turner, sealed};
use crate::open::{Error, ErrorKind};
use crate::shared::{Open, carry, uncarry};

/// Tokens of the bell: that of the session's submitter, and that of changes it carries out.
const SUBMITTER: usize = 0;
const CHANGES: usize = 1;

/// The session turns its disk's lanes itself.
pub struct Inline {
    name: String,
    lanes: OwnLanes,
    /// Those turned here, each after those that it lies on: at the end its disk.
    devices: Vec<Device>,
    notices: Vec<String>,
    /// The disks it lies on that are open beside it.
    legs: Vec<Arc<Open>>,
    /// Its hard queue of a disk that has one for each of several threads.
    lent: Option<Lent>,
    close_limit: Duration,
    /// Until when its end is waited for, once that has begun.
    until: Option<Nanos>,
    closed: bool,
    /// Where a close that is waited for hears how it went.
    told: Option<Rc<Cell<Result<(), Error>>>>,
}

/// A disk of one thread, and that thread's way into it: a [`Session`] that turns the disk's lanes
/// in its own calls, without a reactor. [`Builder::open_inline`](crate::Builder::open_inline) opens
/// it.
///
/// ```
/// use weir::{Bio, Buf, Disk};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut session = Disk::builder("ram:64MiB").name("log").open_inline()?;
/// session.write_at(0, &[7; 4096])?;
/// for sector in [0, 8, 16] {
///     session.submit(Bio::read(sector, Buf::zeroed(4096)).cookie(sector));
/// }
/// while session.in_flight() > 0 {
///     session.wait(|ended| assert!(ended.status.is_ok()));
/// }
/// session.close()?; // finishes what is under way and flushes
/// # Ok(())
/// # }
/// ```
///
/// It stays on the thread that opened it: the lanes of a disk have one home for life, and some
/// drivers serve one thread only. A thread may have several, of one disk each.
///
/// ```compile_fail,E0277
/// fn may_go_to_another_thread<T: Send>() {}
/// may_go_to_another_thread::<weir::InlineSession>();
/// ```
///
/// The disk goes on in the calls of the session and in no other thread. So a program that is
/// elsewhere for long comes back for a [`poll`](Session::poll), or watches the
/// [descriptor](AsFd::as_fd); until then time-outs, changes that other threads make through
/// [`device`](Session::device), and their close wait.
///
/// Dropping it is [`close`](Session::close), which blocks as long; what goes wrong then is logged
/// as an error. After a `fork` it is the parent's alone: the child must neither use nor drop it.
pub type InlineSession = Session<Inline>;

impl Session<Inline> {
    pub(crate) fn inline(parts: Parts) -> Result<InlineSession, Error> {
        let Parts { device, below, notices, legs, is_carried, close_limit } = parts;
        let name = device.config().name.clone();
        let lanes = OwnLanes::new(CHANGES + 1).map_err(|e| Error::refused(&name, e))?;
        let bell = Arc::clone(lanes.bell());
        if !is_carried {
            carry(&legs, &name)?;
        }
        // From here on its drop closes what was opened.
        let mut turner = Inline {
            name,
            lanes,
            devices: Vec::new(),
            notices,
            legs,
            lent: None,
            close_limit,
            until: None,
            closed: false,
            told: None,
        };
        for device in below.iter().chain([&device]) {
            turner.lanes.adopt(device)?;
            turner.devices.push(device.clone());
        }
        let submitter = device.submitter(&bell, SUBMITTER, 0)?;
        Ok(Session::of(&device, submitter, bell, turner))
    }

    /// Of one hard queue of a disk.
    pub(super) fn of_lane(index: usize, mut lent: Lent) -> Result<InlineSession, Error> {
        let device = lent.device().clone();
        let name = device.config().name.clone();
        let opened = own_lanes(&mut lent, &name).and_then(|mut lanes| {
            lanes.adopt_lane(&device, index)?;
            Ok(lanes)
        });
        let lanes = match opened {
            Ok(lanes) => lanes,
            Err(error) => {
                lent.give_back();
                return Err(error);
            }
        };
        let bell = Arc::clone(lanes.bell());
        let turner = Inline {
            name,
            lanes,
            devices: Vec::new(),
            notices: Vec::new(),
            legs: Vec::new(),
            close_limit: lent.close_limit(),
            until: None,
            lent: Some(lent),
            closed: false,
            told: None,
        };
        let submitter = device.submitter(&bell, SUBMITTER, index)?;
        Ok(Session::of(&device, submitter, bell, turner))
    }

    /// The device below: its limits, its statistics, its scheduler's name. A call of it that waits
    /// is for other threads; this one uses [`change`](Session::change).
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Notices for the user about how the disk was opened, a sentence each.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.turner.notices
    }

    /// Carries a change of the disk out on this thread, and turns the disk meanwhile. I/O that ends
    /// in the meantime is kept for the next [`poll`](Session::poll).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut session = weir::Disk::builder("ram:1MiB").open_inline()?;
    /// let limit = Duration::from_secs(10);
    /// session.change(limit, |disk, watch| disk.begin_switch(watch, "mq-deadline"))??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It was given up after `limit`, and everything is as it was before; the error says what it
    /// waited for.
    pub fn change<S: Step>(
        &mut self,
        limit: Duration,
        begin: impl FnOnce(&Device, &Watch) -> S,
    ) -> Result<S::Out, Error> {
        let began = Clock.now();
        let until = began + nanos(limit);
        let mut step = begin(&self.device, &Watch::new(&self.bell, CHANGES));
        loop {
            self.look();
            let now = Clock.now();
            if let Progress::Ended(out) = step.poll(now) {
                return Ok(out);
            }
            if now >= until {
                let (device, wait) = (self.device.config().name.clone(), step.waits_for());
                let late = Late { device, wait, waited_ns: now.since(began) };
                return step.give_up().ok_or(weir_queue::Error::Late(late).into());
            }
            self.rest(Some(until));
        }
    }

    /// Has calls that wait block in the driver itself, where it has a way that takes fewer system
    /// calls than its event: io_uring has, with one hard queue. It is for a thread that sleeps in
    /// these calls alone: the session's descriptor tells nothing any more, and the disk keeps its
    /// one hard queue. False: the driver has no such way, and nothing has changed.
    pub fn wait_in_driver(&mut self) -> bool {
        self.turner.lanes.wait_in_driver()
    }

    /// Lets the driver make calls that sleep in this thread, in calls of the session that turn its
    /// disk: `file:` makes a write with FUA, or a flush, that is the only I/O of its hard queue
    /// with one call that returns when it is durable. A log of one writer has nothing to do
    /// meanwhile, and to be told of the end by another thread takes longer; on a virtual machine
    /// much longer.
    ///
    /// As long as the device does not answer such a call does not return: no time-out ends the
    /// I/O, `poll` and `submit` block too, and changes of the disk by other threads wait. So it is
    /// for disks of this machine, and for threads that would wait anyway. There is no way back, and
    /// the session keeps its one hard queue.
    ///
    /// False, and nothing has changed: the driver makes no such calls, the disk has a single queue
    /// (`queue_mode=sq`), or the session has several hard queues.
    pub fn may_block(&mut self) -> bool {
        self.turner.lanes.may_block()
    }

    /// The thread is about to sleep on the session's [descriptor](AsFd::as_fd). False: there is
    /// something to do, and it is to [`poll`](Session::poll) instead. True: the descriptor becomes
    /// readable when there is. It may be readable for nothing now and then.
    ///
    /// # Errors
    /// The system's, of a timer; a session that [waits in the driver](Self::wait_in_driver).
    pub fn arm(&mut self) -> io::Result<bool> {
        self.flush_plug();
        if self.bell.ready().any() {
            // Mostly that of a pass which has taken all: a look costs less than to arm in vain.
            self.look();
        }
        let has_news = !self.ended.is_empty() || self.submitter.has_completions();
        Ok(!has_news && self.turner.lanes.arm()?)
    }

    /// Closes the disk: finishes what was accepted, flushes, and gives its file or its connections
    /// up. Completions that were not taken are dropped. The session of one hard queue of a
    /// [`LaneDisk`](crate::LaneDisk) finishes what it was given, without a flush, and gives the
    /// hard queue back.
    ///
    /// # Errors
    /// I/O that did not end in time, with the disk, how many I/Os and the age of the oldest, or a
    /// flush that failed. The session is gone all the same, and memory that the back end may still
    /// touch is never freed.
    pub fn close(mut self) -> Result<(), Error> {
        let end = Rc::new(Cell::new(Ok(())));
        self.turner.told = Some(Rc::clone(&end));
        drop(self);
        end.replace(Ok(()))
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().min(u128::from(u64::MAX)) as u64
}

impl Inline {
    /// One limit for all that its end waits for.
    fn until(&mut self) -> Nanos {
        *self.until.get_or_insert_with(|| Clock.now() + nanos(self.close_limit))
    }

    fn close(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let until = self.until();
        if let Some(lent) = self.lent.take() {
            return give_back(&mut self.lanes, lent, until);
        }
        let (mut then, mut end) = (Then::Ends, Ok(()));
        for device in std::mem::take(&mut self.devices).iter().rev() {
            // The lower ones go on while an upper one is not at rest.
            if end.is_ok() {
                end = bring_to_rest(&mut self.lanes, device, then, until);
            }
            if end.is_ok() {
                self.lanes.close(|lane| device.owns(lane));
            }
            then = Then::EndsBelow;
        }
        self.lanes.close(|_| true);
        uncarry(&self.legs, &self.name);
        // The last handles may be among them, which closes those disks.
        self.legs.clear();
        end.map_err(|late| Error::of(ErrorKind::Unfinished, late))
    }
}

/// Closes a disk whose hard queues no session has any more.
pub(super) fn close(parts: Parts) -> Result<(), Error> {
    InlineSession::inline(parts)?.close()
}

/// The home of a hard queue, at the bell that all its sessions have.
fn own_lanes(lent: &mut Lent, name: &str) -> Result<OwnLanes, Error> {
    let made = match lent.bell.take() {
        Some((wake, bell)) => OwnLanes::at(wake, bell),
        None => OwnLanes::new(CHANGES + 1),
    };
    let lanes = made.map_err(|error| Error::refused(name, error))?;
    lent.bell = Some((lanes.wake().clone(), Arc::clone(lanes.bell())));
    Ok(lanes)
}

/// Finishes what a hard queue was given, and closes it. The last session closes the disk if its
/// handle has gone.
fn give_back(lanes: &mut OwnLanes, lent: Lent, until: Nanos) -> Result<(), Error> {
    let bell = Arc::clone(lanes.bell());
    loop {
        lanes.turn(Clock.now());
        bell.ready().take(|_| ());
        let now = Clock.now();
        let is_idle = lanes.is_idle(now);
        if !is_idle && now < until {
            lanes.sleep(Some(until));
            continue;
        }
        let oldest_ns = lanes.oldest(|_| true).map(|at| now.since(at));
        // Another lane may have sent it something meanwhile, which is looked at once more.
        if lanes.close(|_| true) && is_idle {
            return lent.give_back().map_or(Ok(()), close);
        }
        let device = lent.device();
        let (name, requests) = (device.config().name.clone(), device.stats().in_flight);
        lent.lose();
        let late = Unfinished { device: name, requests, oldest_ns, flush: None, obstacle: None };
        return Err(Error::of(ErrorKind::Unfinished, late));
    }
}

/// Has all ended that a submitter was given, or gives that up then.
fn finish(lanes: &mut OwnLanes, submitter: &mut Submitter, until: Nanos) {
    let bell = Arc::clone(lanes.bell());
    loop {
        let now = Clock.now();
        submitter.flush_plug(now);
        lanes.turn(now);
        bell.ready().take(|_| ());
        // No call takes what ends now.
        submitter.complete(now, drop);
        if submitter.in_flight() == 0 || now >= until {
            return;
        }
        lanes.sleep(Some(until));
    }
}

/// Finishes and flushes what a device was given, whose lanes are these, and does what `then` says.
fn bring_to_rest(
    lanes: &mut OwnLanes,
    device: &Device,
    then: Then,
    until: Nanos,
) -> Result<(), Unfinished> {
    let bell = Arc::clone(lanes.bell());
    let mut closing = device.begin_close(&Watch::new(&bell, CHANGES), then);
    let unfinished = |lanes: &OwnLanes, flush| Unfinished {
        device: device.config().name.clone(),
        requests: device.stats().in_flight,
        oldest_ns: lanes.oldest(|lane| device.owns(lane)).map(|at| Clock.now().since(at)),
        flush,
        obstacle: None,
    };
    loop {
        lanes.turn(Clock.now());
        bell.ready().take(|_| ());
        let now = Clock.now();
        match closing.poll(now) {
            Progress::Ended(Ok(_)) => return Ok(()),
            Progress::Ended(Err(status)) => return Err(unfinished(lanes, Some(status))),
            Progress::Waits if now >= until => return Err(unfinished(lanes, None)),
            Progress::Waits => lanes.sleep(Some(until)),
        }
    }
}

impl Drop for Inline {
    fn drop(&mut self) {
        let end = self.close();
        match (&self.told, end) {
            (Some(told), end) => told.set(end),
            (None, Err(error)) => {
                tracing::error!(disk = self.name, %error, "the disk was not closed in order");
            }
            (None, Ok(())) => {}
        }
    }
}

impl Turner for Inline {}

impl sealed::Turner for Inline {
    #[inline(always)] // `each` stays where it is, as in `Submitter::complete`.
    fn pass(&mut self, submitter: &mut Submitter, now: Nanos, each: impl FnMut(Completion)) {
        self.lanes.pass(submitter, now, each);
    }

    fn sleep(&mut self, until: Option<Nanos>) {
        self.lanes.sleep(until);
    }

    fn end(&mut self, submitter: &mut Submitter) {
        // A whole disk goes on until all has ended. A hard queue is closed, and what it does not
        // hold yet, as the scheduler has it, no other thread need turn.
        if self.lent.is_some() {
            let until = self.until();
            finish(&mut self.lanes, submitter, until);
        }
    }
}

impl AsFd for InlineSession {
    /// Readable when a [`poll`](Session::poll) would find something, once [`arm`](Session::arm) has
    /// said so: for `poll`, `epoll` or a runtime's event loop. Its bytes are none of the caller's.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.turner.lanes.as_fd()
    }
}
