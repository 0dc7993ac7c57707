//! weir: the multi-queue block layer for user space, as a library.
//!
//! Like Linux blk-mq in a kernel, for one process: I/O is split to what a disk can take, merged,
//! scheduled, spread over hardware queues, timed and counted, in front of files, RAM, or an NBD
//! server.
//!
//! # Which way in?
//!
//! | you have | take | what blocks |
//! |---|---|---|
//! | a thread that reads and writes | a [`Session`]'s [blocking calls] | each, until its end |
//! | a thread with many I/Os in flight | a [`Session`]: [submit], [wait] | `submit` while full |
//! | one thread, alone with the disk | an [`InlineSession`], with the same calls | as a session |
//! | some threads, each to itself | a [`LaneDisk`], with such a session each | as a session |
//! | tasks of an async runtime | [`Disk::enqueue`], then a [`Pending`] | nothing |
//! | threads that wait for a few | [`Disk::start`]: a [`Pending`] | `start` at the [backlog] |
//! | code that goes on at an end | [`Disk::submit`]: a callback | as `start` |
//! | threads and a loop of your own | [`Device::submitter`], a [`Lane`] | nothing |
//! | clients in other processes | an [`nbd::Server`] (feature `server`) | nothing |
//! | a disk of your own | [`BlockingDriver`], or a [`Driver`] | only the calls of the first |
//! | a scheduler of your own | a [`Scheduler`] in [`Schedulers`] | no call may |
//!
//! What may block has a call beside it that never does: [`Session::try_submit`] and
//! [`Session::poll`], [`Disk::try_start`], [`Disk::try_submit`].
//!
//! [blocking calls]: Session::read_at
//! [submit]: Session::submit
//! [wait]: Session::wait
//! [backlog]: Builder::backlog
//!
//! ```
//! use weir::{Bio, Buf, Disk};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = Disk::builder("ram:64MiB,queues=2").name("sda").open()?;
//!
//! // A thread's own way in: blocking calls, in bytes.
//! let mut session = disk.session()?;
//! session.write_at(4096, &[7; 4096])?;
//! session.flush()?;
//! let mut bytes = [0; 4096];
//! session.read_at(4096, &mut bytes)?;
//! assert_eq!(bytes, [7; 4096]);
//!
//! // The same session with several I/Os in flight, in sectors of 512 bytes.
//! for sector in [0, 8, 16] {
//!     session.submit(Bio::read(sector, Buf::zeroed(4096)).cookie(sector));
//! }
//! while session.in_flight() > 0 {
//!     session.wait(|ended| assert!(ended.status.is_ok()));
//! }
//!
//! // From any thread: a future, which a thread may also wait for, or a callback.
//! let read = disk.start(Bio::read(8, Buf::zeroed(4096)));
//! assert_eq!(read.wait().into_result()?.to_vec(), [7; 4096]);
//! let (sender, receiver) = std::sync::mpsc::channel();
//! disk.submit(Bio::read(8, Buf::zeroed(4096)), move |ended| {
//!     sender.send(ended.status).expect("the receiver waits");
//! });
//! assert!(receiver.recv()?.is_ok());
//!
//! drop(session);
//! println!("{}", disk.stats().line());
//! disk.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Targets
//! A [`Target`] says where the bytes go and how the queues in front are built, as one string:
//! `null:1G`, `ram:64MiB`, `file:/x.img,size=1G`, `nbd:host:10809/export`,
//! `nbd+unix:/path.sock?export`, `nbds://host,tls-certificates=/dir`, each with options as in
//! `,queue_mode=sq,scheduler=noop`. `linear:sda+sdb` and `striped:64KiB:sda+sdb` lie on disks that
//! are open ([`Builder::over`]).
//!
//! # Disks
//! A [`Disk`] is a target opened: a [`Device`] (queues in front of a driver) on the reactors of a
//! [`Host`], its own or one that several disks share. Handles are cloned freely; [`Disk::close`]
//! finishes and flushes.
//!
//! # Sessions
//! A [`Session`] is the fast way in, and the simple one: one thread's own queue, with no lock
//! between it and the disk. It submits and waits, or makes blocking calls whose errors
//! ([`IoError`]) turn into [`std::io::Error`].
//!
//! # A disk of one thread
//! An [`InlineSession`] has the same calls and turns its disk itself, on its own thread: no reactor
//! and no hop to another thread. It has a descriptor for event loops. A [`LaneDisk`] has a hard
//! queue for each of several threads, with such a session each.
//!
//! # Futures and callbacks
//! [`Disk::start`] and [`Disk::submit`] take I/O from any thread and hand it to a reactor. A
//! [`Pending`] is a plain [`Future`] and needs no particular runtime.
//!
//! [`Disk::enqueue`] is awaited where `start` would block, [`Disk::reserve`] before there is memory
//! for an I/O, and [`BufPool::acquire`] for a buffer of a pool.
//!
//! # I/O and its end
//! A [`Bio`] is one I/O in sectors of 512 bytes, whatever the disk's logical block; it owns its
//! memory ([`Buf`]) until its [`Completion`] gives it back. How it ended is its [`Status`]; why a
//! control call failed is an [`Error`]. A write is durable after a flush that was submitted when
//! the write had ended, or by itself with [`Flags::FUA`].
//!
//! # What blocks, and on which thread
//! - [`Builder::open`], [`Disk::close`] and the drop of a disk's last handle block: a connection is
//!   made, I/O under way is waited for, the last flush. So do the calls of a [`Device`] that change
//!   it (`reconfigure`, `set_scheduler`, `freeze`).
//! - **Threads**: the disks of a process share its reactors, one for each processor and at most 8,
//!   unless a disk was told of a [`Host`] or of [reactors](Builder::reactors) of its own. A
//!   `Blocking` driver has threads besides ([`BlockingOptions::threads`]), an inline disk none. A
//!   `Session` belongs to one thread at a time, an `InlineSession` to one for life; a `Disk` to any
//!   number. A task uses [`Builder::open_async`] and [`Disk::close_async`].
//! - **fork**: threads do not come along, so a disk that was opened before has no reactors in the
//!   child. A child opens its disks itself, and does not use or drop those of its parent.
//! - **Panics**: a callback, a driver's queue or a scheduler that panics does so on a reactor and
//!   ends the process, as others wait for that reactor. The calls of a [`BlockingDriver`] may
//!   panic, and so may [`Driver::allocation`] under a server: the request or the question fails.
//!   Threads of weir's own that make calls of files for others answer with an error. A request
//!   that a [`Driver`]'s own thread took along when it panicked ends [`Timeout`](Status::Timeout).
//! - **Cancel**: [`Disk::cancel`] ends an I/O that was not accepted yet. Dropping a [`Pending`] or
//!   a [`Session`] calls nothing back; the I/O goes on, and its memory is freed when the device has
//!   let go of it. One without an answer ends [`Timeout`](Status::Timeout) after `io_timeout` (30 s
//!   if not told), and its sectors stay fenced until the device answers: reads and writes that
//!   overlap them wait, and end `Timeout` when their own time is up.
//! - **Log**: it goes to the crate `tracing`, and is seen in a program with a subscriber.
//!
//! # Features
//! None is there unless asked for; memory, files, mapped disks and drivers of the program's own
//! need none.
//!
//! | feature | brings |
//! |---|---|
//! | `nbd` | targets `nbd:`, `nbd+unix:`, and `nbds:` with `tls` |
//! | `iscsi` | targets `iscsi:` |
//! | `server` | [`nbd::Server`], and addresses to listen on |
//! | `tls` | TLS for both, by `rustls` |
//! | `scsi-sim` | targets `scsi-sim:`, for tests |
//! | `full` | all of these |
//!
//! # What lies below
//! [`Device`], [`Submitter`], [`Lane`] and [`Bell`] are the queue core for those who bring their
//! own threads; [`Host`] turns it on threads of its own.
//!
#![cfg_attr(feature = "server", doc = "[`nbd::Server`]: nbd::Server")]
#![cfg_attr(not(feature = "server"), doc = "[`nbd::Server`]: #features")]
#![forbid(unsafe_code)]

mod aside;
mod boot;
pub mod cmdline;
pub mod disk;
pub mod drivers;
mod enqueue;
pub mod error;
mod lease;
#[cfg(feature = "server")]
pub mod nbd;
pub mod open;
pub mod page;
pub mod pending;
mod pool;
#[cfg(feature = "scsi-sim")]
pub mod scsi_sim;
pub mod session;
mod shared;
mod slot;
pub mod stated;
pub mod target;

/// The examples of docs/library.md, which are compiled and run with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
pub struct LibraryDocument;

/// Those of README.md, if it has some.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct ReadmeDocument;

pub use aside::Aside;
pub use cmdline::Cmdline;
pub use disk::{Builder, Disk, Notice, Source};
pub use drivers::{Blocking, BlockingDriver, BlockingOptions, Io};
pub use enqueue::{Enqueue, Permit, Reserve};
pub use error::{Cause, IoError};
#[cfg(feature = "server")]
pub use nbd::{Export, Server};
pub use open::{Error, ErrorKind, Opened, open, open_over, open_unreached};
pub use pending::Pending;
pub use pool::{OpenedPool, check_partition, open_in_pool, open_pool};
pub use session::{Hosted, Inline, InlineSession, LaneDisk, Session, Turner};
pub use target::Target;
#[cfg(feature = "server")]
pub use weir_access::{Address, Allow, Listen};
pub use weir_bio::units;
pub use weir_bio::{
    Acquire, Bio, Buf, BufPool, Data, Flags, GroupId, IoPrio, Limits, Nanos, Op, Owner, Piece,
    RqId, Segment, Segments, Size, Status, WriteCache,
};
pub use weir_live::{
    Clock, EventWake, Host, Limited, PollCounts, PollMode, PollRule, Polling, Unpark,
};
pub use weir_queue::{
    Affinity, Backing, Batch, Bell, Budget, Cancel, Caps, Completion, Config, Device, Done, Driver,
    DriverError, DriverQueue, EXTENTS_MAX, Extent, Groups, Home, Identity, Lane, Latencies,
    MapControl, Progress, QueueMode, Queues, Refused, Request, Schedulers, Spread, Stats, Step,
    Submitter, Tag, TagSet, TargetKind, TargetOption, Unflushed, Waiter, Wake, Watch,
};
pub use weir_sched::{Absorbed, Ended, Family, Merge, Rq, SchedTag, Scheduler, Setup};
