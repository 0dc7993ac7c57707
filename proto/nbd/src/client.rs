//! The client's side of a session.
//!
//! [`Handshake`] until the server is [`Step::Ready`]; then [`Requests`] encodes what goes out and
//! [`Replies`] decodes what comes in. For every request in flight the caller keeps the
//! [`Pending`] that [`Requests::push`] returned, where [`Outstanding::find`] finds it by cookie:
//! the decoder holds the server's answer against it.
//!
//! ```no_run
//! use std::collections::BTreeMap;
//! use weir_proto_nbd::client::{Event, Handshake, Replies, Requests, Step, Wanted};
//! use weir_proto_nbd::wire::{Command, Request};
//! # fn receive() -> Vec<u8> { vec![] }
//! # fn send(_: &mut Vec<u8>) {}
//!
//! let mut out = Vec::new();
//! let mut handshake = Handshake::new(Wanted::everything("sda")).expect("a name that fits");
//! let server = loop {
//!     match handshake.input(&receive(), &mut out).step {
//!         Step::NeedMore => send(&mut out),
//!         Step::StartTls => unreachable!("TLS was not wanted"),
//!         Step::Ready(server) => break server,
//!         Step::Failed(why) => panic!("{why}"),
//!     }
//! };
//!
//! let mut in_flight = BTreeMap::new();
//! let read = Request::new(Command::READ, 7, 0, 4096);
//! in_flight.insert(7, Requests::new(server.mode).push(&read, &mut out).expect("32-bit length"));
//! send(&mut out);
//!
//! let mut replies = Replies::new(server.mode, server.allocation);
//! let bytes = receive();
//! let mut rest = &bytes[..];
//! loop {
//!     match replies.next(&mut rest, &mut in_flight).expect("a server in step") {
//!         Event::Data { offset, bytes, .. } => { /* copy to offset - 0 */ }
//!         Event::Hole { offset, length, .. } => { /* zero it */ }
//!         Event::Done { cookie, result } => {
//!             in_flight.remove(&cookie);
//!             break;
//!         }
//!         Event::Extent { .. } | Event::Error { .. } => {}
//!         Event::NeedMore => { /* receive, perhaps straight into the buffer of the read */ }
//!     }
//! }
//! ```

mod coverage;
mod failure;
mod handshake;
mod pending;
mod replies;

pub use failure::{HandshakeError, REPLIES_MAX, REPLY_DATA_MAX, ReplyError};
pub use handshake::{Handshake, Input, ServerInfo, Step, Wanted};
pub use pending::{Outstanding, Pending, Requests, TooLong};
pub use replies::{ERROR_PAYLOAD_MAX, Event, Missing, Replies};
