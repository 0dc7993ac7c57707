//! The vocabulary every room of weir speaks: what is asked ([`Bio`]), the small view policies see
//! ([`Rq`]), how it ended ([`Status`]), what a device can take ([`Limits`]), whose memory it is
//! ([`Buf`], [`Segments`], [`Data`]), and the seeded generator ([`Prng`]).
//!
//! It holds data and pure rules only: no clock, no thread, no queue. Sector means 512 bytes
//! everywhere, whatever the logical block size (Linux' rule).
//!
//! `unsafe` lives in [`buf`], aligned memory that can be cut in pieces, in `region` and `pages`,
//! the memory of [`pool`], in [`segments`], memory that an owner outside weir keeps, and in two
//! functions of [`data`].

#![warn(missing_docs)]

pub mod bio;
pub mod buf;
pub mod cmdline;
pub mod data;
pub mod limits;
pub mod line;
pub mod op;
mod pages;
pub mod pool;
pub mod prng;
mod region;
pub mod rq;
pub mod segments;
pub mod status;
pub mod time;
pub mod units;

pub use bio::Bio;
pub use buf::Buf;
pub use data::{Data, Piece, Pieces};
pub use limits::{Limits, LimitsError, Size, WriteCache};
pub use op::{Flags, Op};
pub use pool::{Acquire, BufPool};
pub use prng::Prng;
pub use rq::{Class, GroupId, IoPrio, Rq, RqId, SchedTag, SubmitterId};
pub use segments::{Owner, Segment, Segments};
pub use status::Status;
pub use time::Nanos;

/// Bytes in a sector, the unit of every address and length in weir.
pub const SECTOR: u64 = 512;

/// Bytes in a page: the alignment of buffers and the floor of several limits.
pub const PAGE: usize = 4096;
