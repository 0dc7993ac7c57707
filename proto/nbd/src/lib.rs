//! The NBD protocol, sans-IO: bytes in, events out.
//!
//! It has the wire format ([`wire`]), the server's side of a session ([`server`]) and the client's
//! side ([`client`]), so that both ends of weir use one declaration. It has no socket, no clock and
//! no thread. A peer that says nothing simply leaves a machine waiting; how long to wait is the
//! caller's rule.
//!
//! Source of every layout and number: the public NBD protocol document (`doc/proto.md` of the
//! NetworkBlockDevice project), and for extended headers its branch `extension-ext-header`.
//!
//! # A session
//!
//! ```text
//!  server                                         client
//!  server::Handshake::new   -- greeting -------->  client::Handshake::input
//!           ...input        <-- flags, options --          ...
//!           ...             -- option replies -->  Step::Ready(ServerInfo)
//!  Step::Transmission(Negotiated)
//!  server::Requests         <-- requests --------  client::Requests
//!  Geometry::check
//!  server::Replies          -- replies --------->  client::Replies
//! ```
//!
//! Both handshakes keep a small buffer of their own (bounded by [`wire::OPTION_DATA_MAX`] and
//! [`client::REPLY_DATA_MAX`]), consume what they are given and append what is to be sent to a
//! buffer of the caller. They negotiate one of three [`wire::Mode`]s for the transmission phase,
//! and everything after the handshake depends on that mode only.
//!
//! In the transmission phase nothing is buffered and nothing is allocated: the server decodes
//! request headers where they lie and learns how much payload follows, so the payload can be
//! received straight into the buffer of the write; replies are headers appended to the caller's
//! arena, the data goes right behind them. The client's decoder hands out data by pieces and says
//! how much is missing, for the same reason.
//!
//! # What a hostile peer can do
//!
//! End its own connection. No length it sends is ever reserved in advance, every buffer here has
//! a constant as its bound, no arithmetic on its numbers overflows, and after a violation that
//! loses the step of the stream the machine says `Close` or an error and stays there.
//!
//! # Left out
//!
//! The cryptography of TLS: STARTTLS is negotiated here, and what stands between the two machines'
//! bytes and the socket afterwards is the caller's business. The RESIZE extension, and the
//! BLOCK_STATUS payload form: neither flag is ever advertised, and a client that uses them gets
//! EINVAL in step.

#![forbid(unsafe_code)]

pub mod client;
mod error;
pub mod server;
pub mod wire;

pub use error::NbdError;
