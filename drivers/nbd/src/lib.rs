//! The NBD client as a driver: an export of any NBD server becomes a device, each connection one
//! of its hard queues.
//!
//! The protocol itself is in `weir-proto-nbd`; this crate has the sockets, the memory and the
//! recovery from a lost connection. A burst of requests leaves in one system call, and the replies
//! to many are received by one. Requests are found by their tag, and nothing is allocated for a
//! request once the buffers have grown to what the load needs.
//!
//! # When a connection is lost
//!
//! A server that ends the connection has let go of everything in flight on it: it is handed back to
//! be sent again. The queue connects again in the background, at once and then at most every 5 s.
//! Meanwhile requests wait, at most [`Options::reconnect`] from the loss; then everything ends with
//! `Transport` at once until the server is back. A server that comes back with another size, or
//! that can do less, is not taken for the same device: its requests end with `Offline`.
//!
//! A request whose time is up gives the connection up: a silent server is of no use. It may still
//! carry out what it was sent, when it goes on. So reads are sent again at once, and what changes
//! sectors keeps its tag until the server has answered it on the old socket or has ended that
//! socket. At most 8 such sockets are kept for a queue. A TCP peer whose machine does not answer
//! counts as gone after 60 s, or after `net.ipv4.tcp_retries2` (some 15 minutes) with data under
//! way. TCP_USER_TIMEOUT is not set: it would also end the connection to a server that is stopped
//! and whose machine answers, and such a server carries its requests out later.
//!
//! Writes that were answered and not flushed may be lost with the server, and a flush on the new
//! connection would not know. So after such a loss flushes fail until the device is connected
//! anew, unless a connection that survived can vouch for the writes; everything else goes on. A
//! connection that is given up is sent a flush as its last request; flushes on the new one wait
//! until it is answered, and fail if it never is.
//!
//! A server that answers with ESHUTDOWN is asked nothing more and left once it has answered what it
//! took. A server that breaks the protocol in a way that loses the step of the stream is a lost
//! connection, with a notice that says what was wrong.
//!
//! # TLS
//!
//! A device that is connected [over TLS](Nbd::connect_over) has no connection without it, also none
//! that is made anew. A stream that ends before TLS has ended counts as ended by the server all the
//! same, with a notice: a server that is killed says no more than that. Records that cannot be
//! opened are a stream that has lost its step.

#![forbid(unsafe_code)]

mod address;
mod agreed;
mod allocation;
mod channel;
mod connection;
mod dial;
mod durability;
mod kind;
mod nbd;
mod output;
mod parting;
mod queue;
mod shared;
mod slots;
mod translate;

use std::time::Duration;

pub use address::Address;
pub use kind::KIND;
pub use nbd::Nbd;
pub use weir_tls::ClientTls;

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
    /// How long requests wait for the server from the loss of its connection; then, and from the
    /// start if it is zero, they end with `Transport` until the server is back. [`Duration::MAX`]:
    /// without limit.
    pub reconnect: Duration,
}

impl Default for Options {
    /// One connection, barriers on, extended headers, 10 s to connect, 30 s to wait for the server.
    fn default() -> Options {
        Options {
            connections: 1,
            barriers_off: false,
            extended: true,
            read_only: false,
            connect_timeout: Duration::from_secs(10),
            reconnect: Duration::from_secs(30),
        }
    }
}
