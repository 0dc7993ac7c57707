//! A socket, and how bytes travel on it: as they are, or in the records of TLS.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use weir_tls::{Session, TlsError};

/// No signal for a server that has gone, and no waiting for one that does not read.
const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// The socket of one connection, with or without TLS.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    tls: Option<Box<Session>>,
}

impl Channel {
    /// A channel without TLS, so far.
    pub(crate) fn new(socket: OwnedFd) -> Channel {
        Channel { socket, tls: None }
    }

    /// From now on there are records.
    pub(crate) fn start_tls(&mut self, session: Session) {
        self.tls = Some(Box::new(session));
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    #[inline]
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the handshake of TLS has not ended.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.is_handshaking())
    }

    /// Whether the peer has ended TLS, so that the end of the stream is what it meant.
    pub(crate) fn has_ended(&self) -> bool {
        self.tls.as_ref().is_none_or(|session| session.has_ended())
    }

    /// Whether bytes it was given have not gone out.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Sends bytes; how many of them are out of the caller's hands. In records they may still be
    /// here, and are the first to go with the next call.
    ///
    /// # Errors
    /// The socket's. `PROTO`: the TLS session has failed before.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match &mut self.tls {
            None => send(&self.socket, bytes, FLAGS),
            Some(session) => seal(session, &self.socket, &[IoSlice::new(bytes)]),
        }
    }

    /// The same for bytes that lie in pieces.
    ///
    /// # Errors
    /// As [`Channel::send`].
    #[inline]
    pub(crate) fn send_pieces(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        match &mut self.tls {
            None => sendmsg(&self.socket, pieces, &mut SendAncillaryBuffer::default(), FLAGS),
            Some(session) => seal(session, &self.socket, pieces),
        }
    }

    /// Sends records that are still here.
    ///
    /// # Errors
    /// The socket's; `AGAIN` when it takes no more.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        match &mut self.tls {
            None => Ok(()),
            Some(session) => flush(session, &self.socket),
        }
    }

    /// The session, so that records can be opened while the channel is borrowed; it is to be [put
    /// back](Channel::put_session).
    pub(crate) fn take_session(&mut self) -> Option<Box<Session>> {
        self.tls.take()
    }

    /// Puts the session back.
    pub(crate) fn put_session(&mut self, session: Box<Session>) {
        self.tls = Some(session);
    }

    /// Tells the peer that nothing follows, as far as the socket takes it at once. Not in the
    /// middle of a record: what is left of it is not to arrive.
    pub(crate) fn farewell(&mut self) {
        if let Some(session) = self.tls.as_mut().filter(|session| !session.wants_write()) {
            session.end();
            // A server that does not hear it finds the end of the stream.
            let _ = flush(session, &self.socket);
        }
    }

    /// Asks the peer to end: it hears the end of what is sent to it.
    pub(crate) fn shut(&mut self) {
        self.farewell();
        // A socket that cannot be shut has ended, as the next receive will find.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Whether nothing has come from the peer, not even an end. Records that bring no data, as
    /// servers send behind the handshake, are nothing.
    pub(crate) fn is_silent(&mut self) -> bool {
        let Some(session) = &mut self.tls else {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            return recv(&self.socket, &mut [0; 1][..], flags).err() == Some(Errno::AGAIN);
        };
        let mut piece = [0; 4096];
        loop {
            match recv(&self.socket, &mut piece[..], RecvFlags::DONTWAIT) {
                Err(Errno::AGAIN) => return !session.has_ended(),
                Err(Errno::INTR) => {}
                Ok((got @ 1.., _)) => {
                    let mut came = false;
                    let opened = session.open(&piece[..got], |_| {
                        came = true;
                        Ok::<(), TlsError>(())
                    });
                    if came || opened.is_err() {
                        return false;
                    }
                }
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

/// Seals what there is room for, once everything before has gone, and sends what the socket takes.
fn seal(session: &mut Session, socket: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    flush(session, socket)?;
    let sealed = session.seal(pieces).map_err(|_| Errno::PROTO)?;
    match flush(session, socket) {
        Ok(()) | Err(Errno::AGAIN) => Ok(sealed),
        Err(errno) => Err(errno),
    }
}

fn flush(session: &mut Session, socket: &OwnedFd) -> Result<(), Errno> {
    let mut short = false;
    let sent = session.send(|pieces| {
        // The socket is full, as the last call has shown.
        if short {
            return Err(Errno::AGAIN.into());
        }
        let sent = send_once(socket, pieces)?;
        short = sent < pieces.iter().map(|piece| piece.len()).sum();
        Ok(sent)
    });
    sent.map_err(|error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn send_once(socket: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    loop {
        match sendmsg(socket, pieces, &mut SendAncillaryBuffer::default(), FLAGS) {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}
