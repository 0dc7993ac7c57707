//! A socket to a portal, and the addresses that a portal's name stands for.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};
use weir_proto_iscsi::Portal;

/// A silent peer is asked for a sign of life by TCP after so long, where the pings of iSCSI are
/// switched off.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// The addresses of a portal, in the order to try them. Blocks while a name is looked up.
///
/// # Errors
/// The name is not known.
pub(crate) fn look_up(portal: &Portal) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = (portal.host.as_str(), portal.port).to_socket_addrs()?.collect();
    match found.len() {
        0 => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        _ => Ok(found),
    }
}

/// The address of a portal that is named by number.
pub(crate) fn numeric(portal: &Portal) -> Option<SocketAddr> {
    let address: IpAddr = portal.host.parse().ok()?;
    Some(SocketAddr::new(address, portal.port))
}

/// A non-blocking socket, and whether it is connected already. If not, it becomes writable when it
/// is, or has failed.
pub(crate) fn open(address: &SocketAddr) -> Result<(OwnedFd, bool), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    match connect(&socket, address) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok((socket, false)),
        Err(errno) => Err(errno),
    }
}

/// Whether a connect has ended well; an error if it has failed.
pub(crate) fn is_connected(socket: &OwnedFd) -> Result<bool, Errno> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&at_once)) {
        Ok(0) | Err(Errno::INTR) => Ok(false),
        Ok(_) => sockopt::socket_error(socket).unwrap_or_else(Err).map(|()| true),
        Err(errno) => Err(errno),
    }
}

/// Waits until the socket is ready; false when `end` comes first.
pub(crate) fn wait(socket: impl AsFd, flags: PollFlags, end: Instant) -> Result<bool, Errno> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&socket, flags)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
