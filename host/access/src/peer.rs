//! The client at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{AddressFamily, SocketAddrAny};

/// The client at the other end of a connection, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, with its effective user and group when it connected.
    Process {
        /// Its user.
        uid: u32,
        /// Its group; supplementary groups are not told.
        gid: u32,
        /// Its number; 0 where it is in a process namespace that is not seen from here.
        pid: i32,
    },
    /// A host and port.
    Host(SocketAddr),
    /// The kernel tells neither: the client is in no list.
    Unknown,
}

impl Peer {
    /// The peer of a connected socket.
    pub fn of(socket: &impl AsFd) -> Peer {
        match rustix::net::sockopt::socket_domain(socket) {
            Ok(AddressFamily::UNIX) => Peer::process(socket),
            Ok(_) => rustix::net::getpeername(socket).ok().flatten().map_or(Peer::Unknown, host),
            Err(_) => Peer::Unknown,
        }
    }

    /// The peer of a socket that was accepted, from the address that came with it.
    pub fn accepted(socket: &impl AsFd, address: Option<SocketAddrAny>) -> Peer {
        match address.filter(|address| address.address_family() != AddressFamily::UNIX) {
            Some(address) => host(address),
            None => Peer::of(socket),
        }
    }

    // SO_PEERCRED, unix(7). The number of the process may be 0, which rustix's type cannot hold.
    fn process(socket: &impl AsFd) -> Peer {
        match getsockopt(socket, PeerCredentials) {
            Ok(seen) => Peer::Process { uid: seen.uid(), gid: seen.gid(), pid: seen.pid() },
            Err(_) => Peer::Unknown,
        }
    }
}

fn host(address: SocketAddrAny) -> Peer {
    SocketAddr::try_from(address).map_or(Peer::Unknown, Peer::Host)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Process { uid, gid, pid } => write!(f, "uid={uid} gid={gid} pid={pid}"),
            Peer::Host(address) => address.fmt(f),
            Peer::Unknown => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_client_is_known_by_its_credentials_and_a_remote_one_by_its_address() {
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let pid = std::process::id() as i32;
        assert_eq!(Peer::of(&ours), Peer::Process { uid, gid, pid });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("an address");
        let client = std::net::TcpStream::connect(place).expect("a connection");
        assert_eq!(Peer::of(&client), Peer::Host(place));
        assert_eq!(Peer::of(&listener), Peer::Unknown);
    }
}
