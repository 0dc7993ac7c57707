//! How a server treats its clients.

use weir_proto_nbd::server as proto;

/// How a server treats clients.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections at one time; for one more a half-open or idle one may be closed, or it is.
    pub connections_max: usize,
    /// Connections of one peer: of a local user, or of an address.
    pub connections_per_peer: usize,
    /// A client that did something so short a time ago does not lose its place to another, ns.
    pub idle_least_ns: u64,
    /// Bytes that all clients together may hold, 64 MiB at least: requests under way and replies
    /// owed, beyond 256 KiB of each connection.
    pub memory: usize,
    /// A handshake may take so long, and so may a client to read the last replies, ns.
    pub handshake_timeout_ns: u64,
    /// The options that clients may negotiate.
    pub handshake: proto::Settings,
}

impl Default for Settings {
    /// 1,024 connections, 256 of one peer, a minute, 1 GiB, 10 s, everything the protocol machine
    /// grants.
    fn default() -> Settings {
        Settings {
            connections_max: 1024,
            connections_per_peer: 256,
            idle_least_ns: 60_000_000_000,
            memory: 1 << 30,
            handshake_timeout_ns: 10_000_000_000,
            handshake: proto::Settings::default(),
        }
    }
}
