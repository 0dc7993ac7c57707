//! Mapped devices: drivers whose bytes lie on other devices, their legs.
//!
//! - [`Layout`] is arithmetic alone: which sector lies where (linear, striped), and which nowhere
//!   (zero, error);
//! - [`Mapped`] is the driver of such a layout;
//! - [`Outgoing`] is shared by all mappers: the requests of one driver queue whose bios are under
//!   way below, and the memory that they were lent;
//! - [`multipath`] is one device over several paths to it.
//!
//! Every mapper keeps to the contract of [`weir_queue::Legs`]. Absent on purpose: names, files,
//! threads, and a clock.

#![forbid(unsafe_code)]

mod delay;
mod fault;
mod faulty;
mod flakey;
pub mod kinds;
mod layout;
mod limits;
mod mapped;
pub mod multipath;
mod names;
mod outgoing;
mod over;
pub mod table;

pub use faulty::{FaultCounts, FaultPlan, Faulty};
pub use kinds::KINDS;
pub use layout::{Area, ERROR, Layout, Piece, Place, Shape, ZERO};
pub use limits::stacked;
pub use mapped::Mapped;
pub use outgoing::{OWN_COOKIES, Outgoing, Route};
