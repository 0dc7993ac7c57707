//! Addresses, and sockets that listen on them.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens: `unix:PATH` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A TCP port: host and port as the resolver takes them.
    Tcp(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(format!("address {text:?} has no path behind unix:"));
            }
            return Ok(Address::Unix(path.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Address::Tcp(text.into()))
            }
            _ => Err(format!("address {text:?} is neither unix:PATH nor HOST:PORT")),
        }
    }
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub struct ListenError {
    /// The address.
    pub address: Address,
    /// The system's reason.
    pub source: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError { address, source } = self;
        if source.kind() == io::ErrorKind::AddrInUse {
            return write!(f, "address {address} is in use");
        }
        write!(f, "cannot listen on {address}: {source}")
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A socket that listens, and what it left in the file system.
pub(crate) struct Bound {
    pub(crate) fd: OwnedFd,
    pub(crate) address: Address,
    pub(crate) path: Option<BoundPath>,
}

/// A socket file of ours: removed when the server stops, unless another has taken its place.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    file: (u64, u64),
}

impl BoundPath {
    fn new(path: &Path) -> io::Result<BoundPath> {
        Ok(BoundPath { path: path.into(), file: identity(path)? })
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.file) {
            // Somebody who removes it at the same moment does our work.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What tells a file from any other: device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Binds and listens.
pub(crate) fn bind(address: &Address) -> Result<Bound, ListenError> {
    let bound = match address {
        Address::Unix(path) => bind_unix(path),
        Address::Tcp(address) => bind_tcp(address),
    };
    bound.map_err(|source| ListenError { address: address.clone(), source })
}

fn bind_tcp(address: &str) -> io::Result<Bound> {
    // It sets SO_REUSEADDR, so a restart does not wait for old connections to be forgotten.
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let address = Address::Tcp(listener.local_addr()?.to_string());
    Ok(Bound { fd: listener.into(), address, path: None })
}

fn bind_unix(path: &Path) -> io::Result<Bound> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left_over(path) => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    listener.set_nonblocking(true)?;
    let bound = BoundPath::new(path)?;
    Ok(Bound { fd: listener.into(), address: Address::Unix(path.into()), path: Some(bound) })
}

/// Whether a socket file was left by a server that did not live to remove it: nobody listens.
fn is_left_over(path: &Path) -> bool {
    let socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = || {
        let error = UnixStream::connect(path).err();
        error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    socket && refused()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["unix:/run/weir/nbd.sock", "unix:a b", "127.0.0.1:10809", "[::1]:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "localhost", ":10809", "localhost:nbd", "localhost:70000"] {
            assert!(text.parse::<Address>().unwrap_err().contains(&format!("{text:?}")));
        }
    }
}
