//! Multipath: one device over several paths to it, in priority groups. A path that fails is left
//! out, its requests go down another, and a check brings it back.
//!
//! - [`table`]: dm's constructor line;
//! - [`selector`]: which path of a group carries the next request;
//! - [`control`]: which paths are valid, which group is in use, what is due; pure;
//! - [`settings`], [`port`]: what a user says beside the table, and what the SCSI side knows;
//! - [`Multipath`]: the driver. Its queues (`lane.rs`) choose by a copy of the state each
//!   (`view.rs`), look at one word for changes in each burst, and meet in `shared.rs` only when
//!   something changes.

mod asked;
mod checks;
pub mod control;
mod doubt;
mod driver;
mod lane;
pub mod port;
pub mod selector;
pub mod settings;
mod shared;
mod slow;
pub mod table;
mod tally;
pub(crate) mod target;
mod view;
mod words;

pub use driver::Multipath;
pub use target::MULTIPATH;
