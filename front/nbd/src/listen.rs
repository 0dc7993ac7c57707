//! Sockets that listen.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use weir_access::{Address, Listen, SocketFile, listen_tcp, listen_unix};

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
    pub(crate) path: Option<SocketFile>,
}

/// Binds and listens.
pub(crate) fn bind(listen: &Listen) -> Result<Bound, ListenError> {
    let bound = match &listen.address {
        Address::Unix(path) => listen_unix(path, listen.rights).map(|(fd, file)| Bound {
            fd,
            address: listen.address.clone(),
            path: Some(file),
        }),
        Address::Tcp(address) => listen_tcp(address, listen.may_be_remote())
            .map(|(fd, place)| Bound { fd, address: Address::Tcp(place.to_string()), path: None }),
    };
    bound.map_err(|source| ListenError { address: listen.address.clone(), source })
}
