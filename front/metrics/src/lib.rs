//! The figures of a daemon over HTTP: metrics in OpenMetrics' text, and a live page.
//!
//! Nothing is counted for it: each reading sums what the data path counts anyway, on the thread of
//! the one who asks, at most once a second however many ask. A peer costs a thread of a bounded
//! number, a bounded head and a bounded time.
//!
//! - [`Server`]: an address, until it is dropped;
//! - [`metrics`]: the text of `/metrics` and the table of families behind it;
//! - `live`: the events of the page at `/`, made once a second for all who watch.

#![forbid(unsafe_code)]

mod families;
mod http;
mod label;
mod live;
mod page;
mod place;
mod server;

pub use families::{FAMILIES, Family, metrics};
pub use live::WATCHERS_MAX;
pub use place::ListenError;
pub use server::{PEERS_MAX, Server};
