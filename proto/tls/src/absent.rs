//! The types of this crate without `rustls`: credentials cannot be read, so no session can be.

use std::io::{self, IoSlice};
use std::path::Path;

use crate::TlsError;

/// As with TLS.
pub const SEALED_MAX: usize = 128 << 10;

/// Credentials of a server, of which there can be none.
#[derive(Clone, Debug)]
pub enum ServerTls {}

/// Credentials of a client, of which there can be none.
#[derive(Clone, Debug)]
pub enum ClientTls {}

/// One end of a connection, of which there can be none.
#[derive(Debug)]
pub enum Session {}

fn absent(folder: &Path) -> TlsError {
    let folder = folder.display();
    TlsError(format!("TLS: {folder}: this program was built without the feature `tls`"))
}

impl ServerTls {
    /// Reads nothing.
    ///
    /// # Errors
    /// That the program was built without TLS.
    pub fn read(folder: &Path, _: bool, _: &[String]) -> Result<Self, TlsError> {
        Err(absent(folder))
    }

    /// As with TLS.
    ///
    /// # Errors
    /// None.
    pub fn session(&self) -> Result<Session, TlsError> {
        match *self {}
    }
}

impl ClientTls {
    /// Reads nothing.
    ///
    /// # Errors
    /// That the program was built without TLS.
    pub fn read(folder: &Path, _: &str) -> Result<Self, TlsError> {
        Err(absent(folder))
    }

    /// As with TLS.
    ///
    /// # Errors
    /// None.
    pub fn session(&self) -> Result<Session, TlsError> {
        match *self {}
    }
}

impl Session {
    /// As with TLS.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        match *self {}
    }

    /// As with TLS.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match *self {}
    }

    /// As with TLS.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match *self {}
    }

    /// As with TLS.
    ///
    /// # Errors
    /// None.
    pub fn open<E: From<TlsError>>(
        &mut self,
        _: &[u8],
        _: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match *self {}
    }

    /// As with TLS.
    ///
    /// # Errors
    /// None.
    pub fn seal(&mut self, _: &[IoSlice<'_>]) -> Result<usize, TlsError> {
        match *self {}
    }

    /// As with TLS.
    ///
    /// # Errors
    /// None.
    pub fn send(&mut self, _: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        match *self {}
    }

    /// As with TLS.
    pub fn end(&mut self) {
        match *self {}
    }

    /// As with TLS.
    #[must_use]
    pub fn peer_names(&self) -> Vec<String> {
        match *self {}
    }
}
