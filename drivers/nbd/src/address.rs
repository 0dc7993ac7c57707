//! Where a server is, and a socket to it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with,
};

/// Bytes the kernel may hold of what goes out on a UNIX socket, if its own bound allows: a burst
/// of requests with their payload should leave in one call.
const UNIX_SEND_BUFFER: usize = 2 << 20;

/// A silent TCP peer is asked for a sign of life after this long, so that a machine that vanished
/// ends its requests although it never says so.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Where an NBD server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp {
        /// A name or a numeric address.
        host: String,
        /// The port; [`weir_proto_nbd::wire::PORT`] is the protocol's own.
        port: u16,
    },
    /// A UNIX socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "nbd:[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "nbd:{host}:{port}"),
            Address::Unix(path) => write!(f, "nbd+unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Every place the address stands for, in the order to try them. Blocks while a name is
    /// looked up, which is why reconnecting never does it again.
    pub(crate) fn resolve(&self) -> io::Result<Vec<Place>> {
        match self {
            Address::Unix(path) => Ok(vec![Place::Unix(path.clone())]),
            Address::Tcp { host, port } => {
                let places: Vec<Place> =
                    (host.as_str(), *port).to_socket_addrs()?.map(Place::Tcp).collect();
                match places.len() {
                    0 => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
                    _ => Ok(places),
                }
            }
        }
    }
}

/// One place to connect to, without a name left to look up.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Place {
    /// A non-blocking socket, and whether it is connected already. If not, it becomes writable
    /// when it is, or has failed.
    pub(crate) fn connect(&self) -> Result<(OwnedFd, bool), Errno> {
        let socket = self.socket()?;
        let connected = match self {
            Place::Tcp(address) => connect(&socket, address),
            Place::Unix(path) => connect(&socket, &SocketAddrUnix::new(path)?),
        };
        match connected {
            Ok(()) => Ok((socket, true)),
            Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, false)),
            Err(errno) => Err(errno),
        }
    }

    /// The same, waiting up to `patience` where only the connect itself can wait: a UNIX server
    /// whose backlog is full.
    pub(crate) fn connect_within(&self, patience: Duration) -> Result<(OwnedFd, bool), Errno> {
        let Place::Unix(path) = self else { return self.connect() };
        let socket = self.socket()?;
        // Zero would mean for ever.
        let patience = patience.max(Duration::from_millis(1));
        sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
        ioctl_fionbio(&socket, false)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        ioctl_fionbio(&socket, true)?;
        Ok((socket, true))
    }

    fn socket(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match self {
            Place::Unix(_) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                sockopt::set_socket_send_buffer_size(&socket, UNIX_SEND_BUFFER)?;
                Ok(socket)
            }
            Place::Tcp(address) => {
                let family =
                    if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
                let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
                // The buffers are left alone: setting them ends the kernel's own tuning, which
                // goes further than the bound an application is held to.
                sockopt::set_tcp_nodelay(&socket, true)?;
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
                sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_EVERY)?;
                sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
                // No user timeout: it would end the connection to a server that is stopped and
                // reads nothing, and that carries out what it was sent when it goes on.
                Ok(socket)
            }
        }
    }
}
