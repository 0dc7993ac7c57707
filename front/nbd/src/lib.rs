//! The NBD server.
//!
//! A [`Server`] serves [`Export`]s, names for devices, on the reactors of a [`weir_live::Host`]. A
//! connection lives on one reactor with a submitter of its own, mapped to a lane of that reactor:
//! no I/O changes threads. Requests that arrive together are decoded, submitted, answered and sent
//! together.
//!
//! The protocol itself is in `weir-proto-nbd`; this crate carries its commands out on a device:
//!
//! | command | bio |
//! |---|---|
//! | READ | read |
//! | WRITE | synchronous write, FUA as asked |
//! | FLUSH | a pure flush |
//! | TRIM | discard; with FUA a flush behind it |
//! | WRITE_ZEROES | the same op, NO_HOLE as NOUNMAP, FAST_ZERO as NOFALLBACK; flush as for TRIM |
//! | CACHE | prefetch |
//! | BLOCK_STATUS | [`weir_queue::Device::allocation`], on a thread that may block, in turns |
//!
//! The [`Allow`] lists of an address and of each export decide, when a connection is accepted,
//! whether the client may come in and which exports it finds.
//!
//! The memory that a client can make the server hold is bounded: requests under way and bytes owed,
//! beyond which it is no longer listened to; memory for a payload is taken only as its bytes
//! arrive. That comes to 32 MiB owed, the one request that crosses them, and a payload: 96 MiB at
//! the very most. A TLS session adds 128 KiB of sealed records, and a record or 64 KiB of handshake
//! that have not come whole. Memory is shared by the connections of a reactor, so an idle one holds
//! none. The memory that all clients hold together is bounded as well (`budget.rs`), and so are the
//! connections of a peer (`admission.rs`).

#![forbid(unsafe_code)]

mod admission;
mod answers;
mod arena;
mod budget;
mod channel;
mod connection;
mod export;
mod front;
mod gate;
mod listen;
mod outbox;
mod payload;
mod plan;
mod pool;
mod server;
mod service;
mod session;
mod settings;
mod share;
mod shared;
mod slots;
mod socket;
mod survey;

pub use channel::Security;
pub use export::{Export, Slice};
pub use front::KIND;
pub use gate::Scope;
pub use listen::ListenError;
pub use server::{ExportError, Server};
pub use settings::Settings;
pub use weir_access::{Address, Allow, Listen, Peer};
pub use weir_control::{Client, Clients};
pub use weir_tls::ServerTls;
