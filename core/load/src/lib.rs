//! Workloads as pure, seeded machines: what is asked next, and when it is due.
//!
//! The same machine is turned by a live run and by a simulated one. The same seed gives the same
//! I/Os in the same order, as long as their ends come in the same order.

#![forbid(unsafe_code)]

pub mod ask;
mod backlog;
pub mod blocks;
mod digest;
mod engine;
pub mod flow;
mod gate;
pub mod job;
pub mod jobfile;
pub mod logs;
mod map;
pub mod mark;
mod needs;
pub mod oltp;
pub mod options;
pub mod order;
mod overlaps;
pub mod pacer;
mod pairs;
mod pattern;
mod pauses;
pub mod place;
mod plain;
pub mod presets;
pub mod priority;
pub mod quantity;
mod replay;
pub mod sizes;
pub mod stream;
pub mod times;
pub mod verify;
mod walk;

pub use ask::{Ask, Event, Fault, Io, Workload};
pub use flow::Flows;
pub use job::{Access, Arrival, Direction, Ground, Job, JobError, Range, Verify};
pub use logs::{Logs, Told};
pub use order::{Batching, Flow, Strides, Thinking};
pub use place::{Distribution, Zone};
pub use priority::Urgent;
pub use quantity::Amount;
pub use sizes::Sizes;
pub use stream::Stream;
pub use times::Times;
