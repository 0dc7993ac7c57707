//! An address that is listened on.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{SocketFlags, accept_with};
use weir_access::{Address, Allow, Listen, Peer, SocketFile, listen_tcp, listen_unix};

/// A socket that listens.
pub(crate) struct Place {
    pub(crate) socket: OwnedFd,
    /// With the port that the system chose.
    pub(crate) address: Address,
    allow: Allow,
    /// Removed with the value.
    _file: Option<SocketFile>,
}

/// Why an address cannot be listened on.
#[derive(Debug)]
pub struct ListenError {
    address: Address,
    source: io::Error,
}

impl ListenError {
    pub(crate) fn new(address: &Address, source: io::Error) -> ListenError {
        ListenError { address: address.clone(), source }
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenError { address, source } = self;
        match source.kind() {
            io::ErrorKind::AddrInUse => write!(f, "metrics address {address} is in use"),
            _ => write!(f, "metrics cannot be served at {address}: {source}"),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Place {
    /// Binds and listens. A TCP address beyond loopback has to be meant.
    pub(crate) fn open(listen: &Listen) -> Result<Place, ListenError> {
        let allow = listen.allow.clone();
        let opened = match &listen.address {
            Address::Unix(path) => listen_unix(path, listen.rights).map(|(socket, file)| Place {
                socket,
                address: listen.address.clone(),
                allow,
                _file: Some(file),
            }),
            Address::Tcp(address) => listen_tcp(address, listen.insecure).map(|(socket, place)| {
                Place { socket, address: Address::Tcp(place.to_string()), allow, _file: None }
            }),
        };
        opened.map_err(|source| ListenError { address: listen.address.clone(), source })
    }

    /// The next peer, whether it may come in or not.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, bool)> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let admitted = self.allow.is_empty() || self.allow.admits(&Peer::of(&socket));
        Ok((socket, admitted))
    }
}
