//! The iSCSI protocol, sans-IO: bytes in, events out.
//!
//! It has no socket, no clock and no thread: times are passed in, and bytes as they come. Source of
//! every layout, number and rule: RFC 7143.

#![forbid(unsafe_code)]

pub mod chap;
pub mod discovery;
pub mod login;
mod name;
mod portal;
mod secret;
pub mod session;
pub mod target;
pub mod text;
pub mod wire;

pub use name::{IscsiName, NAME_MAX, NameError};
pub use portal::{Portal, PortalError};
pub use secret::{SECRET_MIN, Secret};
