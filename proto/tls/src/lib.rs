//! TLS for NBD, sans-IO: bytes in, bytes out.
//!
//! This crate is the only one that uses `rustls`. A [`Session`] is one end of one connection; a
//! [`ServerTls`] or [`ClientTls`] has the credentials that its sessions share, read from a folder
//! as nbdkit, qemu-nbd and libnbd take it:
//!
//! | file | a server | a client |
//! |---|---|---|
//! | `ca-cert.pem` | judges clients' certificates, unless it asks for none | judges the server's |
//! | `ca-crl.pem` | certificates taken back, if the file is there | the same |
//! | `server-cert.pem`, `server-key.pem` | its own | |
//! | `client-cert.pem`, `client-key.pem` | | its own, if both are there |
//!
//! It has no socket, and no rule about when TLS is spoken: `weir-proto-nbd` negotiates that. The
//! clock is read by `rustls` alone, when it judges a certificate's dates.
//!
//! Sessions are never resumed: each client shows its certificate anew, and a server keeps nothing
//! of those that have gone. TLS 1.3 and 1.2 are spoken.
//!
//! Without the feature `rustls` all types are here and their credentials cannot be read, so those
//! who use this crate need no feature of their own.
//!
//! A private key is read, handed to `rustls` and never shown: no type here prints one. A key file
//! that every user of the machine can read or write is refused, because a warning in a log comes
//! after the key has been out for long; members of the file's group may read it, for services
//! commonly share a key that way.

#![forbid(unsafe_code)]

#[cfg(not(feature = "rustls"))]
mod absent;
#[cfg(feature = "rustls")]
mod credentials;
#[cfg(feature = "rustls")]
mod names;
#[cfg(feature = "rustls")]
mod session;

#[cfg(not(feature = "rustls"))]
pub use absent::{ClientTls, SEALED_MAX, ServerTls, Session};
#[cfg(feature = "rustls")]
pub use credentials::{ClientTls, ServerTls};
#[cfg(feature = "rustls")]
pub use session::{SEALED_MAX, Session};

use std::fmt;

#[cfg(feature = "rustls")]
use rustls::{CertificateError, Error};

/// Whether credentials can be read: the feature `rustls` is there.
pub const IS_BUILT_IN: bool = cfg!(feature = "rustls");

/// Why TLS cannot be spoken, or no longer: a sentence without a key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

#[cfg(feature = "rustls")]
impl From<Error> for TlsError {
    fn from(error: Error) -> TlsError {
        match error {
            // Ours: it is a sentence already.
            Error::InvalidCertificate(CertificateError::Other(why)) => {
                TlsError(format!("TLS: {}", why.0))
            }
            error => TlsError(format!("TLS: {error}")),
        }
    }
}
