//! Workloads as pure, seeded machines: what is asked next, and when it is due.
//!
//! The same machine is turned by a live run and by a simulated one. The same seed gives the same
//! I/Os in the same order, as long as their ends come in the same order.

#![forbid(unsafe_code)]

pub mod ask;
pub mod blocks;
mod digest;
mod engine;
mod gate;
pub mod job;
pub mod jobfile;
mod map;
pub mod mark;
mod needs;
pub mod oltp;
pub mod options;
pub mod order;
pub mod pacer;
mod pairs;
mod pauses;
pub mod place;
mod plain;
pub mod presets;
pub mod quantity;
pub mod sizes;
pub mod stream;
pub mod times;
pub mod verify;
mod walk;

pub use ask::{Ask, Event, Fault, Io, Workload};
pub use job::{Access, Arrival, Direction, Ground, Job, JobError, Range, Verify};
pub use order::{Batching, Strides, Thinking};
pub use place::{Distribution, Zone};
pub use quantity::Amount;
pub use sizes::Sizes;
pub use stream::Stream;
pub use times::Times;
