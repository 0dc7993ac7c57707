//! Bounds on the clients of a daemon: memory and connections.

use clap::Args;
use weir_control::config::{CLIENTS_MAX, parse_memory};

use crate::values::whole;

/// Flags that stand above `[nbd]`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Bounds {
    /// What all clients together may hold, 64MiB or more: requests under way and replies that they
    /// have not read; a quarter of the machine's memory if not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<u64>,
    /// Connections that one local user or one address may have at a time, of the 1,024 that there
    /// are; 256 if not given.
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u16>(1..=CLIENTS_MAX.into()))]
    clients_per_peer: Option<u16>,
}

impl Bounds {
    /// The options of `[nbd]` that were given.
    pub(super) fn stated(&self) -> [(&'static str, Option<String>); 2] {
        let memory = self.memory.map(|bytes| bytes.to_string());
        let clients = self.clients_per_peer.map(|clients| clients.to_string());
        [("memory", memory), ("clients_per_peer", clients)]
    }
}
