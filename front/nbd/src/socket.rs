//! System calls on the socket of a connection.

use std::io::{self, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};
use weir_bio::Nanos;

use crate::pool::Pool;
use crate::session::Session;

/// Receives straight into the memory of a WRITE, and what comes behind it into `input`. Returns how
/// many bytes came, and how many of them lie in `input`.
pub(crate) fn receive_payload(
    fd: BorrowedFd<'_>,
    session: &mut Session,
    input: &mut [u8],
    pool: &mut Pool,
    now: Nanos,
) -> Result<(usize, usize), Errno> {
    let Some(payload) = session.payload() else { return Ok((0, 0)) };
    let missing = payload.missing();
    let room = payload.room(pool);
    let room_len = room.len();
    // Nothing may come behind it while a part of the payload is to follow elsewhere.
    let behind = if room_len == missing { input } else { &mut [] };
    let mut pieces = [IoSliceMut::new(room), IoSliceMut::new(behind)];
    let mut control = RecvAncillaryBuffer::default();
    let count = recvmsg(fd, &mut pieces, &mut control, RecvFlags::DONTWAIT)?.bytes;
    let filled = count.min(room_len);
    payload.fill(filled);
    session.payload_received(now);
    session.flush(now);
    Ok((count, count - filled))
}

/// A silent TCP client is asked for a sign of life after this long, as weir's own client asks a
/// server: one whose machine is gone says nothing for ever, and its place comes back in a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// See [`KEEPALIVE_IDLE`].
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
/// See [`KEEPALIVE_IDLE`].
const KEEPALIVE_PROBES: u32 = 3;

/// Makes a socket what a connection needs; what it does not know is no error.
pub(crate) fn prepare(fd: &OwnedFd) -> io::Result<()> {
    use rustix::net::{AddressFamily, sockopt};
    rustix::io::ioctl_fionbio(fd, true)?;
    // No size of a buffer is asked for: a UNIX socket has what the system gives, so that replies
    // are in the cache still when the client reads them, and TCP sizes its own.
    if sockopt::socket_domain(fd) != Ok(AddressFamily::UNIX) {
        let _ = sockopt::set_tcp_nodelay(fd, true);
        let _ = sockopt::set_socket_keepalive(fd, true);
        let _ = sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE);
        let _ = sockopt::set_tcp_keepintvl(fd, KEEPALIVE_EVERY);
        let _ = sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::sockopt;

    #[test]
    fn a_silent_tcp_client_is_asked_for_a_sign_of_life_within_a_minute() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = OwnedFd::from(listener.accept().unwrap().0);
        prepare(&fd).unwrap();
        assert!(sockopt::socket_keepalive(&fd).unwrap());
        let (idle, every) = (sockopt::tcp_keepidle(&fd), sockopt::tcp_keepintvl(&fd));
        let probes = sockopt::tcp_keepcnt(&fd).unwrap();
        assert_eq!(idle.unwrap() + every.unwrap() * probes, Duration::from_secs(60));
    }
}
