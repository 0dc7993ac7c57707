//! weir: the multi-queue block layer for user space, as a library.
//!
//! Like Linux blk-mq in a kernel, for one process: I/O is split to what a disk can take, merged,
//! scheduled, spread over hardware queues, timed and counted, in front of files, RAM, or an NBD
//! server.
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
//! # Futures and callbacks
//! [`Disk::start`] and [`Disk::submit`] take I/O from any thread and hand it to a reactor. A
//! [`Pending`] is a plain [`Future`] and needs no particular runtime.
//!
//! # I/O and its end
//! A [`Bio`] is one I/O in sectors of 512 bytes, whatever the disk's logical block; it owns its
//! memory ([`Buf`]) until its [`Completion`] gives it back. How it ended is its [`Status`]; why a
//! control call failed is an [`Error`]. A write is durable after a flush that was submitted when
//! the write had ended, or by itself with [`Flags::FUA`].
//!
//! # What lies below
//! [`Device`], [`Submitter`], [`Lane`] and [`Bell`] are the queue core for those who bring their
//! own threads; [`Host`] turns it on threads of its own.

#![forbid(unsafe_code)]

mod boot;
pub mod cmdline;
pub mod disk;
pub mod drivers;
pub mod error;
pub mod open;
pub mod page;
pub mod pending;
mod pool;
pub mod scsi_sim;
pub mod session;
mod shared;
pub mod stated;
pub mod target;

/// The examples of docs/library.md, which are compiled and run with those of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
pub struct LibraryDocument;

pub use cmdline::Cmdline;
pub use disk::{Builder, Disk, Source};
pub use error::{Cause, IoError};
pub use open::{Error, Opened, open, open_over, open_unreached};
pub use pending::Pending;
pub use pool::{OpenedPool, check_partition, open_in_pool, open_pool};
pub use session::Session;
pub use target::Target;
pub use weir_bio::units;
pub use weir_bio::{
    Bio, Buf, Data, Flags, GroupId, IoPrio, Limits, Nanos, Op, Owner, Piece, Segment, Segments,
    Status,
};
pub use weir_live::{Clock, Host, Limited, Unpark};
pub use weir_queue::{
    Backing, Bell, Caps, Completion, Config, Device, Groups, Identity, Lane, Latencies, MapControl,
    QueueMode, Refused, Spread, Stats, Submitter, TargetKind, TargetOption,
};
