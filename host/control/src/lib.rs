//! Control of a daemon: what it is told (the configuration file), and what it can be asked and told
//! while it runs (the tree and the control socket).
//!
//! - [`Config`]: the configuration file and its checks;
//! - [`Tree`]: disks as files, with Linux's names and errors, over the trait [`Disk`], and beside
//!   them groups and, over the trait [`Clients`], the clients of each front;
//! - [`Rules`]: rule files in the form of udev's, and what they come to for a disk;
//! - [`Server`] and [`ControlClient`]: the tree over a socket.

#![forbid(unsafe_code)]

mod about;
mod census;
mod clients;
pub mod config;
mod disk;
pub mod document;
mod errno;
mod number;
mod priority;
pub mod rules;
mod socket;
mod status;
pub mod tree;
mod trial;

pub use about::{About, Listener, Polled, ThreadPolled};
pub use census::{Census, ClientSeen, DiskSeen};
pub use clients::{Classing, Client, Clients, Memory};
pub use config::{Config, ConfigError, Export};
pub use disk::{ControlCalls, Disk, LiveDisk};
pub use errno::{Errno, Failure};
pub use priority::{PeerPriority, Seen, priority_of};
pub use rules::Rules;
pub use socket::{CLIENTS_MAX, ClientError, ControlClient, END as RECORDING_END, Server, wire};
pub use tree::{Applicant, Node, Parameters, Tree};
pub use trial::Trial;
pub use weir_access::Inherited;
