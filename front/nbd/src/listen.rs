//! Sockets that listen.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use weir_access::{Address, Inherited, Listen, SocketFile, listen_tcp, listen_unix};

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

/// An address that is listened on, for as long as the server does.
pub(crate) struct Held {
    /// As the configuration states it.
    stated: Address,
    passed: bool,
    fd: Arc<OwnedFd>,
    file: Option<SocketFile>,
}

impl Held {
    pub(crate) fn new(fd: &Arc<OwnedFd>, stated: &Address, file: Option<SocketFile>) -> Held {
        Held { stated: stated.clone(), passed: false, fd: Arc::clone(fd), file }
    }

    /// One that a supervisor passed, whose file is the supervisor's.
    pub(crate) fn passed(fd: &Arc<OwnedFd>, stated: &Address) -> Held {
        Held { passed: true, ..Held::new(fd, stated, None) }
    }

    /// The socket for another daemon.
    pub(crate) fn inherited(&self) -> io::Result<Inherited> {
        let fd = self.fd.as_fd().try_clone_to_owned()?;
        Ok(Inherited { address: self.stated.clone(), passed: self.passed, fd })
    }

    /// Leaves its file.
    pub(crate) fn keep(self) {
        if let Some(file) = self.file {
            file.keep();
        }
    }
}
