//! Multipath: one device over several paths to it, in priority groups. A path that fails is left
//! out, its requests go down another, and a check brings it back.
//!
//! - [`table`]: dm's constructor line;
//! - [`selector`]: which path of a group carries the next request;
//! - [`control`]: which paths are valid, which group is in use, what is due; pure;
//! - [`settings`], [`port`]: what a user says beside the table, and what the SCSI side knows.

pub mod control;
pub mod port;
pub mod selector;
pub mod settings;
pub mod table;
mod words;
