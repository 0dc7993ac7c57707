//! The figures of a daemon over HTTP: metrics in OpenMetrics' text, and a live page.
//!
//! Nothing is counted for it: each reading sums what the data path counts anyway, on the thread of
//! the one who asks. A peer costs a thread of a bounded number, a bounded head and a bounded time.
//!
//! - [`Server`]: an address, until it is dropped;
//! - [`metrics`]: the text of `/metrics` and the table of families behind it.

#![forbid(unsafe_code)]

mod families;
mod http;
mod label;
mod place;
mod server;

pub use families::{FAMILIES, Family, metrics};
pub use place::ListenError;
pub use server::{PEERS_MAX, Server};
