//! An NBD server in this process: disks of the program, for any NBD client.
//!
//! A [`Server`] serves [`Export`]s on the reactors of a host: each is a disk that this host has
//! ([`Disk::host`](crate::Disk::host)). It holds no disk open: I/O that comes after a
//! [close](crate::Disk::close) is answered with an error, so a program stops the server first.
//!
//! ```
//! use weir::nbd::{Export, Scope, Server, Settings};
//! use weir::{Address, Disk};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("weir-doc-{}.sock", std::process::id()));
//! let disk = Disk::builder("ram:64MiB").name("sda").open()?;
//! let exports = vec![Export::new("sda", disk.device().clone())];
//! let server = Server::new(disk.host(), exports, Settings::default())?;
//! server.listen(&Address::Unix(path).into(), Scope::All)?;
//! // Until the program ends:
//! assert_eq!(server.stop(1_000_000_000), 0, "clients that were cut off");
//! disk.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! An address on TCP that other hosts reach is refused unless it is secured or said to be
//! [`insecure`](Listen::insecure).

pub use weir_front_nbd::{
    Address, Allow, Export, ExportError, Listen, ListenError, Peer, Scope, Security, Server,
    ServerTls, Settings, Slice,
};
