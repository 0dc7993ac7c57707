//! The server's side of a session.
//!
//! [`Handshake`] until transmission starts; then [`Requests`] (or [`decode`]) for what comes in,
//! [`Geometry::check`] for what is allowed, [`Replies`] for what goes out. The last three are
//! plain values without state between calls: the transmission phase needs none.
//!
//! ```
//! use weir_proto_nbd::server::{Export, Handshake, Requests, Settings, Step};
//! use weir_proto_nbd::wire::{OptionCode, put_info_query, put_option};
//!
//! let disk = Export::new("sda", 1 << 30);
//! let mut out = Vec::new();
//! let mut handshake = Handshake::new(vec![disk], Settings::default(), &mut out);
//!
//! let mut client = vec![0, 0, 0, 3];
//! put_option(&mut client, OptionCode::GO, |out| put_info_query(out, "sda", &[]));
//! let step = handshake.input(&client, &mut out);
//! let Step::Transmission(agreed) = step.step else { panic!("{step:?}") };
//! assert_eq!(agreed.size, 1 << 30);
//!
//! let (geometry, replies) = (agreed.geometry(), agreed.replies());
//! for incoming in Requests::new(agreed.mode, &client[step.consumed..]) {
//!     let incoming = incoming.expect("a client in step");
//!     match geometry.check(&incoming.request) {
//!         Ok(_checked) => { /* do it, then one of the encoders of `replies` */ }
//!         Err(reject) => replies.reject(incoming.request.reply_to(), &reject, &mut out),
//!     }
//! }
//! ```

mod check;
mod export;
mod handshake;
mod options;
mod replies;
mod requests;
mod settings;
mod step;

pub use check::{Act, Checked, DRAIN_MAX, Geometry, Range, Reject, Then, Why};
pub use export::{Export, Negotiated, Offer};
pub use handshake::{Handshake, Input};
pub use replies::{Chunk, Replies, StatusQuery};
pub use requests::{BadMagic, Decoded, Incoming, Requests, decode};
pub use settings::{Settings, Tls};
pub use step::{CloseReason, Step};
