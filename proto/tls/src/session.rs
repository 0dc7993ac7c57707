//! One end of one connection: records in, plaintext out, and the other way round.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};

use rustls::Connection;

use crate::{TlsError, names};

/// Plaintext that is sealed at once, bytes: eight full records. Sealed bytes cannot be reordered
/// with later replies, so it is no more than one call to the system takes.
pub const SEALED_MAX: usize = 128 << 10;

/// One end of a TLS connection.
///
/// Its memory is bounded: one record or 64 KiB of handshake that have not come whole, and what was
/// sealed and not sent, [`SEALED_MAX`] and its records' headers.
pub struct Session {
    inner: Connection,
    ended: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(mut inner: Connection) -> Session {
        inner.set_buffer_limit(Some(SEALED_MAX));
        Session { inner, ended: false }
    }

    /// Whether the handshake has not ended.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// Whether the peer has said that nothing follows. A connection that ends without it was cut.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether there is something to [send](Session::send).
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    /// Takes bytes as they came from the socket and gives the plaintext of every record that is
    /// whole to `give`, piece by piece and in order. Bytes behind the peer's end are dropped.
    ///
    /// # Errors
    /// The first of `give`, or why the peer cannot be talked to; an alert that tells it is to be
    /// sent then.
    pub fn open<E: From<TlsError>>(
        &mut self,
        mut bytes: &[u8],
        mut give: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() && !self.ended {
            self.inner.read_tls(&mut bytes).map_err(failed)?;
            let state = self.inner.process_new_packets().map_err(TlsError::from)?;
            self.ended |= state.peer_has_closed();
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let mut reader = self.inner.reader();
                let piece = reader.fill_buf().map_err(failed)?;
                let length = piece.len();
                give(piece)?;
                reader.consume(length);
                left = left.saturating_sub(length.max(1));
            }
        }
        Ok(())
    }

    /// Seals plaintext into records of up to 16 KiB, however it lies in pieces; how many bytes of
    /// it. [`SEALED_MAX`] at most, less if something is not sent yet, and none before the handshake
    /// has ended.
    ///
    /// # Errors
    /// The session has failed before.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, TlsError> {
        if self.is_handshaking() {
            return Ok(0);
        }
        self.inner.writer().write_vectored(pieces).map_err(failed)
    }

    /// Hands sealed records to `put`, which sends pieces and says how many bytes went, until none
    /// are left.
    ///
    /// # Errors
    /// The first of `put`.
    pub fn send(&mut self, put: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        let mut sink = Sink(put);
        while self.inner.wants_write() {
            self.inner.write_tls(&mut sink)?;
        }
        Ok(())
    }

    /// Tells the peer that nothing follows; it is to be [sent](Session::send).
    pub fn end(&mut self) {
        self.inner.send_close_notify();
    }

    /// The names in the peer's certificate: its common names and its DNS names; none if it showed
    /// no certificate.
    #[must_use]
    pub fn peer_names(&self) -> Vec<String> {
        let shown = self.inner.peer_certificates().and_then(<[_]>::first);
        shown.map(names::of).unwrap_or_default()
    }
}

fn failed(error: io::Error) -> TlsError {
    TlsError(format!("TLS: {error}"))
}

/// Sends what `rustls` writes.
struct Sink<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Sink<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
