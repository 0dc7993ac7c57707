//! The NBD client as a driver: an export of any NBD server becomes a device, each connection one
//! of its hard queues.
//!
//! What the protocol means is `weir-proto-nbd`'s business; here are the sockets, the memory and
//! what happens when a connection is lost. A burst of requests leaves in one system call, and the
//! replies to many are received by one. Requests are found by their tag, and nothing is allocated
//! for a request once the buffers have grown to what the load needs.
//!
//! # When a connection is lost
//!
//! Everything in flight on it ends with `Transport`, once. The queue then tries to connect again,
//! after 1 s and at most every 30 s, without blocking; until it succeeds new requests end with
//! `Transport` too, or are held back for [`Options::reconnect_timeout`]. A server that comes back
//! with another size, or that can do less, is not taken for the same device: its requests end
//! with `Offline`.
//!
//! Writes that were answered and not flushed may be lost with the server, and a flush on the new
//! connection would not know. So after such a loss flushes fail until the device is connected
//! anew, unless a connection that survived can vouch for the writes; everything else goes on.
//!
//! A server that answers with ESHUTDOWN is asked nothing more and left once it has answered what it
//! took. A server that breaks the protocol in a way that loses the step of the stream is a lost
//! connection, with a notice that says what was wrong.
//!
//! # Left out
//!
//! TLS. A request the server never answers keeps its tag and its memory: the core tells its
//! submitter when the time is up.

#![forbid(unsafe_code)]

mod address;
mod agreed;
mod allocation;
mod connection;
mod dial;
mod durability;
mod nbd;
mod notices;
mod output;
mod queue;
mod slots;
mod translate;

use std::time::Duration;

pub use address::Address;
pub use nbd::Nbd;

/// How to use a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Connections to open, each a hard queue; 1 is used unless the server offers
    /// CAN_MULTI_CONN. 1..=65535.
    pub connections: u16,
    /// Accept a writable export of a server without FLUSH: nothing written there is durable for
    /// certain.
    pub barriers_off: bool,
    /// Ask for extended headers first.
    pub extended: bool,
    /// Use a writable export for reading only.
    pub read_only: bool,
    /// How long connecting and the handshake may take altogether.
    pub connect_timeout: Duration,
    /// How long new requests are held back after a connection was lost; then, and from the start
    /// if it is zero, they end with `Transport` until the server is back.
    pub reconnect_timeout: Duration,
}

impl Default for Options {
    /// One connection, barriers on, extended headers, 10 s to connect, no holding back.
    fn default() -> Options {
        Options {
            connections: 1,
            barriers_off: false,
            extended: true,
            read_only: false,
            connect_timeout: Duration::from_secs(10),
            reconnect_timeout: Duration::ZERO,
        }
    }
}
