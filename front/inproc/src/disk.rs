//! A disk of this process: a device, the reactors that turn its lanes, and the ways in.

mod own_threads;

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_bio::{Bio, Limits, Op, SECTOR, Status};
use weir_live::{Door, Host, Job};
use weir_queue::{Completion, Device, Driver, MapControl, Stats};

use crate::aside::Aside;
use crate::drivers::Blocking;
use crate::enqueue::{Enqueue, Permit, Reserve};
use crate::error::{Bounds, IoError};
use crate::lease::Lease;
use crate::open::{self, Error, Opened};
use crate::pending::{Pending, Reply};
use crate::session::Session;
use crate::shared::{Hosting, Open, Shared, carry, everywhere, uncarry};
use crate::target::Target;

/// How long a close waits unless told otherwise.
const CLOSE_LIMIT: Duration = Duration::from_secs(4);

/// I/Os that a reactor may be owed and has not accepted: 16 MiB of 4 KiB each.
const BACKLOG: usize = 4096;

/// A disk, opened in this process. Clones are handles of the same disk, for any thread.
///
/// Three ways in: a [`Session`] for a thread that wants its own queue or blocking calls,
/// [`start`](Disk::start) for futures and [`submit`](Disk::submit) for callbacks.
///
/// # When the last handle is dropped
/// [`close`](Disk::close) is the orderly end, because it can say what went wrong. Dropping the last
/// `Disk` or [`Session`] closes as well, and blocks for as long (on a reactor, where it must not
/// block, a thread of its own does it); what goes wrong then is logged as an error.
///
/// A back end that hangs cannot be waited for for ever. After the
/// [limit](Builder::close_limit) `close` gives up with an error and the disk goes on: I/O ends when
/// its time is up, and close may be tried again. The drop of the last handle is one more try and
/// waits as long again, because what was accepted is given up behind it;
/// [`Builder::drop_aside`] leaves that to a thread. Once the last handle is dropped as well, the
/// disk's own reactors end; every [`Pending`] and callback still open is told
/// [`Offline`](weir_bio::Status::Offline), and memory that the back end may still touch is never
/// freed.
#[derive(Clone)]
pub struct Disk {
    open: Arc<Open>,
}

impl Disk {
    /// Opens a target, as in `file:/x.img,size=1G,queues=2`, with everything else by default.
    ///
    /// # Errors
    /// See [`Builder::open`].
    pub fn open(target: &str) -> Result<Disk, Error> {
        Disk::builder(target).open()
    }

    /// A disk to be opened, with what it needs to be told.
    pub fn builder(source: impl Into<Source>) -> Builder {
        Builder {
            source: source.into(),
            name: None,
            reactors: None,
            host: None,
            close_limit: CLOSE_LIMIT,
            backlog: BACKLOG,
            drops_aside: false,
            over: Vec::new(),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.open.name()
    }

    /// Its size, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.open.size
    }

    /// The limits of one request.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.open.device.limits()
    }

    /// Its statistics, summed now. The I/O of a [`Session`] is counted when the session has taken
    /// the completion.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.open.device.stats()
    }

    /// The device below: reconfiguration, freezing, what is allocated.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.open.device
    }

    /// The host whose reactors turn it: for services beside it, such as an NBD server, and for
    /// other disks. Where it is the one that disks share which were told of none, a
    /// [`stop`](Host::stop) of it closes all of them; disks that are opened afterwards share a new
    /// one.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.open.host
    }

    /// Notices for the user about how the disk was opened, a sentence each.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.open.notices
    }

    /// What a mapped disk is asked and told: its table, its status, messages.
    #[must_use]
    pub fn map(&self) -> Option<&dyn MapControl> {
        self.open.map.as_deref()
    }

    /// A way in of one thread's own.
    ///
    /// # Errors
    /// A disk that is closed, or has [`SUBMITTERS_MAX`](weir_queue::SUBMITTERS_MAX) ways in.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(Arc::clone(&self.open))
    }

    /// Starts an I/O from any thread. It waits its turn if the disk is full or frozen, or a cap of
    /// its group holds it back. On a closed disk it ends [`Offline`](weir_bio::Status::Offline).
    ///
    /// A reactor may be owed as many I/Os that it has not accepted yet as the
    /// [backlog](Builder::backlog) has room for, 4096 if not told. Beyond that the call blocks
    /// until there is room; on a reactor of the disk, where it must not block, the I/O ends
    /// [`Again`](weir_bio::Status::Again) in the reactor's next round.
    pub fn start(&self, bio: Bio) -> Pending {
        let (pending, reply) = Pending::new(&bio, self.open.refusal(&bio));
        self.enter(Job::new(bio, reply));
        pending
    }

    /// As [`start`](Disk::start), and never blocks.
    ///
    /// # Errors
    /// The bio: the backlog is full.
    pub fn try_start(&self, bio: Bio) -> Result<Pending, Bio> {
        let Some(entry) = self.open.door().room() else { return Err(bio) };
        let (pending, reply) = Pending::new(&bio, self.open.refusal(&bio));
        entry.put(Job::new(bio, reply));
        Ok(pending)
    }

    /// As [`start`](Disk::start), for a task: where that would block, this waits in the task. Those
    /// that wait are woken in order; one that comes just then may be quicker.
    ///
    /// ```
    /// # async fn read(disk: weir::Disk) -> weir::Status {
    /// let pending = disk.enqueue(weir::Bio::read(0, weir::Buf::zeroed(4096))).await;
    /// pending.await.status
    /// # }
    /// ```
    pub fn enqueue(&self, bio: Bio) -> Enqueue {
        Enqueue::new(bio, Arc::clone(&self.open))
    }

    /// Waits, in the task, for a place in the [backlog](Builder::backlog) that is kept for one I/O:
    /// for a task that takes its memory only then. Tasks that share a pool of buffers either all
    /// take the place first or all the memory: two that wait for what the other has wait for ever.
    ///
    /// ```
    /// # async fn read(disk: weir::Disk, pool: weir::BufPool) -> weir::Status {
    /// let permit = disk.reserve().await;
    /// permit.start(weir::Bio::read(0, pool.acquire().await)).await.status
    /// # }
    /// ```
    pub fn reserve(&self) -> Reserve {
        Reserve::new(Arc::clone(&self.open))
    }

    /// As [`reserve`](Disk::reserve), without waiting. `None`: the backlog is full.
    pub fn try_reserve(&self) -> Option<Permit> {
        Permit::at_once(&self.open)
    }

    /// Has `listener` hear that I/O of the disk begins to fail, and that it may have grown; the log
    /// has the first as well. Disks that it lies on are not heard, nor that a server is lost and
    /// found again, which the log has. A second listener takes the first one's place. It lives as
    /// long as the device: one that holds a [`Disk`] of it keeps that open. It is called by the
    /// thread on which it happens, a reactor or the submitter of an I/O, which waits for it: it
    /// must not block, nor call what changes the disk.
    pub fn on_notice(&self, listener: impl Fn(Notice<'_>) + Send + Sync + 'static) {
        let listener = Arc::new(listener);
        let fails = Arc::clone(&listener);
        let name = String::from(self.name());
        self.device().on_failure(Arc::new(move |told| {
            // It takes the place of the one that an opened disk has.
            tracing::warn!("disk {name}: {told}");
            fails(Notice::Fails(told));
        }));
        self.device().on_change(Arc::new(move || listener(Notice::MayHaveGrown)));
    }

    /// Asks for an I/O to end that the disk has not accepted yet: one that waits behind a full
    /// queue, a frozen disk or a cap. It then ends [`Again`](weir_bio::Status::Again), with its
    /// memory. One that was accepted cannot be called back, as its memory is the device's; it ends
    /// as it would have. Either way `pending` is told, and nothing is changed for an I/O of another
    /// disk or one that has ended. Never blocks.
    pub fn cancel(&self, pending: &Pending) {
        for door in &self.open.doors {
            let slot = Arc::clone(&pending.slot);
            door.withdraw(move |reply| reply.is_for(&slot));
        }
    }

    /// Starts an I/O from any thread; `ended` is called when it has ended, once in every case. It
    /// waits and blocks as with [`start`](Disk::start).
    ///
    /// It is called on a reactor, which serves no other I/O meanwhile: it must not block, so it may
    /// start further I/O and send on channels, and not use a [`Session`] or [`Pending::wait`]. One
    /// that panics ends the process. On a closed disk a thread that submits calls it, with
    /// [`Offline`](weir_bio::Status::Offline), and what that callback submits is told when it has
    /// returned.
    pub fn submit(&self, bio: Bio, ended: impl FnOnce(Completion) + Send + 'static) {
        let reply = Reply::call(&bio, self.open.refusal(&bio), ended);
        self.enter(Job::new(bio, reply));
    }

    /// As [`submit`](Disk::submit), and never blocks.
    ///
    /// # Errors
    /// The bio and the callback, which was not called: the backlog is full.
    pub fn try_submit<F>(&self, bio: Bio, ended: F) -> Result<(), (Bio, F)>
    where
        F: FnOnce(Completion) + Send + 'static,
    {
        let Some(entry) = self.open.door().room() else { return Err((bio, ended)) };
        let reply = Reply::call(&bio, self.open.refusal(&bio), ended);
        entry.put(Job::new(bio, reply));
        Ok(())
    }

    /// The error of an I/O of so many sectors from `sector` on that ended with this status, with
    /// the sentence that the blocking calls of a [`Session`] give: a [`Completion`] has the status
    /// alone.
    #[must_use]
    pub fn error_of(&self, op: Op, sector: u64, sectors: u32, status: Status) -> IoError {
        // A write of nothing is a flush; one that is malformed has less than a sector.
        let is_flush = op == Op::Write && sectors == 0 && status != Status::Inval;
        let op = if is_flush { Op::Flush } else { op };
        let bytes = (sector.saturating_mul(SECTOR), u64::from(sectors) * SECTOR);
        IoError::of(&self.open.device, op, bytes, status)
    }

    /// Whether the disk would refuse an I/O for its place, bytes: what lies off a block or beyond
    /// the end. For a caller who checks before there is a bio.
    ///
    /// # Errors
    /// [`IoError`], with the sentence that the blocking calls of a [`Session`] give.
    pub fn check(&self, op: Op, offset: u64, len: u64) -> Result<(), IoError> {
        let bounds = Bounds { block: self.open.block, size: self.open.size };
        bounds.check(&self.open.device, op, (offset, len))
    }

    fn enter(&self, job: Job<Reply>) {
        self.open.door().enter(job, || self.open.host.is_here());
    }

    /// Closes the disk for all its handles: lets nothing in any more, finishes what was accepted,
    /// flushes, and gives its file or its connections up. Waits at most the
    /// [limit](Builder::close_limit). I/O that comes afterwards ends with
    /// [`Offline`](weir_bio::Status::Offline); closing again is nothing.
    ///
    /// `Ok` says that every write which ended well is durable. One that ended
    /// [`Timeout`](weir_bio::Status::Timeout) promised nothing and is not waited for: a driver that
    /// was not able to take it back may still carry it out, after the close too.
    /// [`Stats::quarantined`] counts those; a program that opens the same storage anew, or hands it
    /// on, closes only when it is 0.
    ///
    /// # Errors
    /// I/O that did not end in time, with the disk, how many I/Os and the age of the oldest; a
    /// flush that failed; a call from a reactor, which would wait for itself.
    pub fn close(&self) -> Result<(), Error> {
        self.open.close()
    }

    /// As [`close`](Disk::close), on a thread of its own: for a task, which must not block, and for
    /// a reactor.
    pub fn close_async(&self) -> Aside<()> {
        let shared = Arc::clone(&self.open.shared);
        Aside::call("weir-close", move || shared.close())
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}, {} bytes)", self.name(), self.size())
    }
}

/// What a listener of [`Disk::on_notice`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// The first flush has failed, or I/O begins to fail: a sentence about it. Failures of one kind
    /// are told once, and again after a minute without one; [`Device::failures`] counts them.
    Fails(&'a str),
    /// A server or a target says that it has changed, as when it was enlarged:
    /// [`Device::enlarge`] may find something.
    MayHaveGrown,
}

/// The source of a disk: a target, or a device made by the caller.
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "one for each disk that is opened")]
pub enum Source {
    /// A target string.
    Text(String),
    /// A target, parsed or made piece by piece.
    Target(Target),
    /// A device that no host has: one with queues of the caller's own making.
    Device(Device),
}

impl From<Arc<dyn Driver>> for Source {
    /// A driver of the program's own: see [`Target::driver`].
    fn from(driver: Arc<dyn Driver>) -> Source {
        Source::Target(Target::driver(driver))
    }
}

impl From<Blocking> for Source {
    /// Its notices are warnings of `tracing`, unless it was told of a listener.
    fn from(driver: Blocking) -> Source {
        driver.on_notice_by_default(|what| tracing::warn!("{what}"));
        Source::Target(Target::driver(Arc::new(driver)))
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Source {
        Source::Text(String::from(text))
    }
}

impl From<String> for Source {
    fn from(text: String) -> Source {
        Source::Text(text)
    }
}

impl From<Target> for Source {
    fn from(target: Target) -> Source {
        Source::Target(target)
    }
}

impl From<Device> for Source {
    fn from(device: Device) -> Source {
        Source::Device(device)
    }
}

/// A disk about to be opened.
#[must_use = "nothing is opened before `open`"]
pub struct Builder {
    source: Source,
    name: Option<String>,
    reactors: Option<usize>,
    host: Option<Arc<Host>>,
    close_limit: Duration,
    backlog: usize,
    drops_aside: bool,
    over: Vec<Disk>,
}

impl Builder {
    /// The disk's name, for messages; `disk` if it has none. A [`Source::Device`] has its own.
    pub fn name(self, name: impl Into<String>) -> Builder {
        Builder { name: Some(name.into()), ..self }
    }

    /// Gives the disk reactor threads of its own, so many and at least 1. Without this and
    /// [`host`](Builder::host) all disks of the process share some: one for each processor, at most
    /// 8, which are there as long as one of these disks is. A callback that takes long holds up the
    /// others of its reactor, also those of other disks. Without effect beside
    /// [`host`](Builder::host).
    pub fn reactors(self, count: usize) -> Builder {
        Builder { reactors: Some(count), ..self }
    }

    /// Uses reactors that are there already, which several disks may share. They outlive the disk;
    /// stopping the host closes the disk.
    pub fn host(self, host: Arc<Host>) -> Builder {
        Builder { host: Some(host), ..self }
    }

    /// How long [`Disk::close`], and the drop of the last handle, may take; 4 s if not told.
    pub fn close_limit(self, limit: Duration) -> Builder {
        Builder { close_limit: limit, ..self }
    }

    /// How many I/Os of [`start`](Disk::start) and [`submit`](Disk::submit) each reactor may be
    /// owed that it has not accepted yet, at least 1; 4096 if not told.
    pub fn backlog(self, count: usize) -> Builder {
        Builder { backlog: count.max(1), ..self }
    }

    /// Whether the drop of the last handle leaves the closing to a thread of its own, and does not
    /// block. Not so unless told, or [opened](Builder::open_async) by a task: a program that ends
    /// meanwhile ends the closing too, and with it the last flush. [`Disk::close`] and
    /// [`Disk::close_async`] say when it is done.
    pub fn drop_aside(self, aside: bool) -> Builder {
        Builder { drops_aside: aside, ..self }
    }

    /// As [`open`](Builder::open), on a thread of its own: for a task, which must not block. The
    /// drop of the disk's last handle does not block either: see
    /// [`drop_aside`](Builder::drop_aside).
    pub fn open_async(self) -> Aside<Disk> {
        Aside::call("weir-open", move || self.drop_aside(true).open())
    }

    /// The disks among which a mapped disk finds those that it lies on, by their names. It keeps
    /// them open, and none of them closes before it does. A disk that stands in its target by a
    /// target of its own, as in `linear:ram:1M+file:x`, is opened and closed with it.
    pub fn over<'a>(self, disks: impl IntoIterator<Item = &'a Disk>) -> Builder {
        Builder { over: disks.into_iter().cloned().collect(), ..self }
    }

    /// Opens it.
    ///
    /// # Errors
    /// The fault in the target, the driver's failure, or the call the system refused.
    pub fn open(self) -> Result<Disk, Error> {
        let Builder { source, name, reactors, host, close_limit, backlog, drops_aside, over } =
            self;
        let target = match source {
            Source::Device(device) => Err(device),
            Source::Target(target) => Ok(target.checked()?),
            Source::Text(text) => Ok(Target::parse(&text).map_err(Error::new)?),
        };
        let failed = |e| Error::refused("reactors", e);
        let (host, hosting) = match (host, reactors) {
            (Some(host), _) => (Arc::clone(&host), Hosting::of(&host)),
            (None, Some(count)) => (Arc::new(Host::new(count).map_err(failed)?), Hosting::Own),
            (None, None) => {
                let lease = Lease::take().map_err(failed)?;
                (Arc::clone(lease.host()), Hosting::Shared(lease))
            }
        };
        let name = name.as_deref().unwrap_or("disk");
        let mut over = over;
        if let Ok(target) = &target {
            for (leg, target) in target.nested().map_err(Error::new)? {
                if over.iter().all(|disk| disk.name() != leg) {
                    let leg = Disk::builder(target).name(leg).host(Arc::clone(&host));
                    over.push(leg.close_limit(close_limit).drop_aside(drops_aside).open()?);
                }
            }
        }
        let find = |name: &str| over.iter().find(|disk| disk.name() == name);
        let (device, notices, map) = match target {
            Ok(target) => {
                let device_of = |name: &str| find(name).map(|disk| disk.device().clone());
                let opened = open::open_over(name, &target, host.reactors(), device_of)?;
                let Opened { device, notices, warnings, map, .. } = opened;
                (device, [notices, warnings].concat(), map)
            }
            Err(device) => (device, Vec::new(), None),
        };
        let is_leg = |disk: &Disk| device.legs().iter().any(|leg| leg.is(disk.device()));
        let legs = over.iter().filter(|disk| is_leg(disk));
        let legs: Vec<Arc<Open>> = legs.map(|disk| Arc::clone(&disk.open)).collect();
        let first = if matches!(hosting, Hosting::Shared(_)) { Lease::next_home() } else { 0 };
        // A device that was given has a name of its own.
        let name = device.config().name.clone();
        let taken = carry(&legs, &name).and_then(|()| adopt(&host, &device, backlog, first));
        let doors = taken.inspect_err(|_| uncarry(&legs, &name))?;
        let limits = device.limits();
        let open = Open {
            shared: Arc::new(Shared {
                size: limits.capacity * SECTOR,
                block: limits.logical_block_size,
                device,
                notices,
                host,
                hosting: Mutex::new(Some(hosting)),
                homes: AtomicUsize::new(doors.len()),
                doors,
                turn: AtomicUsize::new(0),
                close_limit,
                drops_aside,
                closed: Mutex::new(false),
                map,
                legs: Mutex::new(legs),
                carries: Mutex::default(),
            }),
        };
        Ok(Disk { open: Arc::new(open) })
    }
}

/// Puts the device on the host, with a door on each reactor that turns a lane of it or may come to
/// do so.
fn adopt(
    host: &Host,
    device: &Device,
    backlog: usize,
    first: usize,
) -> Result<Vec<Door<Reply>>, Error> {
    host.adopt_at(device, first)?;
    let homes = if everywhere(device) { usize::MAX } else { usize::from(device.queues_max()) };
    let mut doors = Vec::new();
    for index in 0..host.reactors().min(homes) {
        match Door::open(host, host.home_of(device, index), device, backlog) {
            Ok(door) => doors.push(door),
            Err(error) => {
                doors.iter().for_each(Door::remove);
                // Nothing was submitted: there is nothing to wait for.
                let _ = host.retire(device, CLOSE_LIMIT.as_nanos() as u64);
                return Err(error.into());
            }
        }
    }
    Ok(doors)
}
