//! Access: which client may connect, and which files and folders of the machine may be trusted.
//!
//! - [`Listen`]: an address with its options, on a command line and in the configuration file;
//! - [`listen_unix`] and [`listen_tcp`]: sockets that are at no time more open than they were asked
//!   to be, and that two daemons never take from each other;
//! - [`Peer`] and [`Allow`]: the client at the other end, and the lists it has to stand in;
//!   [`io_priority`]: that of its process;
//! - [`Inherited`] and [`send_descriptors`]: sockets on their way to another process;
//! - [`Spell`]: failures of accepting that are told once;
//! - [`folder`]: folders that no other user can change; [`save`]: files written without following a
//!   link.
//!
//! Passwords, certificates and encryption are not here.

#![deny(unsafe_code)]

mod accounts;
mod allow;
pub mod folder;
mod listen;
mod pass;
mod peer;
mod process;
pub mod save;
mod socket;
mod spell;

pub use allow::Allow;
pub use listen::{Address, Listen, SOCKET_PATH_MAX, Tls, TlsRule};
pub use pass::{Inherited, receive_descriptors, send_descriptors};
pub use peer::Peer;
pub use process::io_priority;
pub use socket::{Rights, SocketFile, listen_tcp, listen_unix};
pub use spell::Spell;
