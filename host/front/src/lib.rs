//! How a front's crate declares what it is, and how the daemon deals with it: a kind with its
//! section of the configuration, a plan, and a front that was started.
//!
//! A new front is a crate with a [`FrontKind`] and a line in the list of kinds; no other code names
//! it. All of it is control: nothing here is called for an I/O.

#![forbid(unsafe_code)]

mod kind;
mod memory;
mod page;
mod polling;

pub use kind::{Export, Front, FrontKind, FrontOption, Grounds, Plan, Reloaded, Restated, Users};
pub use memory::default_memory;
pub use page::page;
pub use polling::{poll_mode, poll_rule, stated_mode, stated_rule};
