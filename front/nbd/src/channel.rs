//! How a connection's bytes travel: as they are, or in the records of TLS.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use weir_proto_nbd::server::Tls;
use weir_tls::{ServerTls, Session};

use crate::outbox::{Outbox, Sent};
use crate::pool::Pool;
use crate::share;

/// The TLS rule of a server at one address.
#[derive(Clone, Debug, Default)]
pub struct Security {
    rule: Tls,
    tls: Option<ServerTls>,
    named: Option<ServerTls>,
}

impl Security {
    /// Clients that ask for TLS get it.
    #[must_use]
    pub fn on(tls: ServerTls) -> Security {
        Security { rule: Tls::On, tls: Some(tls), named: None }
    }

    /// Nothing is granted without TLS.
    #[must_use]
    pub fn require(tls: ServerTls) -> Security {
        Security { rule: Tls::Require, tls: Some(tls), named: None }
    }

    /// Clients that only the names in the address's list can let in have to show a certificate that
    /// satisfies this; without it such names admit no client.
    #[must_use]
    pub fn named(self, named: ServerTls) -> Security {
        Security { named: Some(named), ..self }
    }

    /// The rule for a client and what its session is made from, by whether the address's list
    /// admits it whatever its names are; `None`: it may not come in.
    pub(crate) fn of(&self, admitted: bool) -> Option<(Tls, Option<&ServerTls>)> {
        match admitted {
            true => Some((self.rule, self.tls.as_ref())),
            false => self.named.as_ref().map(|named| (Tls::Require, Some(named))),
        }
    }
}

/// How the bytes of one connection travel.
pub(crate) enum Channel {
    /// As they are.
    Plain,
    /// As they are until the answer to STARTTLS is sent; nothing is received meanwhile.
    Starting(Box<Session>),
    /// In records.
    Secure(Box<Secure>),
}

/// A TLS session on a socket.
pub(crate) struct Secure {
    pub(crate) session: Session,
    /// The NBD handshake knows that TLS has come to be.
    pub(crate) told: bool,
    /// The stream ended without the word by which TLS ends.
    pub(crate) cut: bool,
}

impl Channel {
    /// Whether records are waiting to be sent.
    #[inline]
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Channel::Plain | Channel::Starting(_) => false,
            Channel::Secure(secure) => secure.session.wants_write(),
        }
    }

    /// Whether the stream ended without the word by which TLS ends.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Channel::Secure(secure) if secure.cut)
    }

    /// Everything before has been sent: from now on there are records.
    #[inline]
    pub(crate) fn all_sent(&mut self) {
        if let Channel::Starting(_) = self
            && let Channel::Starting(session) = std::mem::replace(self, Channel::Plain)
        {
            let secure = Secure { session: *session, told: false, cut: false };
            *self = Channel::Secure(Box::new(secure));
        }
    }

    /// Tells the client that nothing follows, as far as the socket takes it at once.
    pub(crate) fn farewell(&mut self, fd: &OwnedFd) {
        if let Channel::Secure(secure) = self {
            secure.session.end();
            // A client that does not hear it finds the end of the connection.
            let _ = flush(&mut secure.session, fd);
        }
    }
}

/// Sends as much as the socket takes, and as one connection may have sent in a round: many replies
/// to a record and many records to a call.
///
/// # Errors
/// The socket's, or the session's: nothing more can be sent.
pub(crate) fn send(
    session: &mut Session,
    fd: &OwnedFd,
    out: &mut Outbox,
    pool: &mut Pool,
) -> io::Result<Sent> {
    let mut left = share::SEALED;
    loop {
        if flush(session, fd)? == Sent::Blocked {
            return Ok(Sent::Blocked);
        }
        if out.is_empty() || session.is_handshaking() {
            return Ok(Sent::All);
        }
        if left == 0 {
            return Ok(Sent::Paused);
        }
        let sealed = out.take(pool, |pieces| session.seal(pieces).map_err(io::Error::other))?;
        left = left.saturating_sub(sealed);
    }
}

/// Sends records that are there.
fn flush(session: &mut Session, fd: &OwnedFd) -> io::Result<Sent> {
    let mut short = false;
    let sent = session.send(|pieces| {
        // The socket is full, as the last call has shown.
        if short {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = send_pieces(fd, pieces)?;
        short = sent < pieces.iter().map(|piece| piece.len()).sum();
        Ok(sent)
    });
    match sent {
        Ok(()) => Ok(Sent::All),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Blocked),
        Err(error) => Err(error),
    }
}

fn send_pieces(fd: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(fd, pieces, &mut SendAncillaryBuffer::default(), flags) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}
