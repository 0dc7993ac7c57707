//! The way to a daemon's tree: the control socket.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_access::SOCKET_PATH_MAX;
use weir_control::{Server, Tree};

use crate::Failure;
use crate::data_folder::default_folder;

/// The control socket of a daemon, if it has one. Dropping it closes the socket.
pub(crate) struct Reach(Option<Server>);

impl Reach {
    /// Opens the control socket at `named`, or at `default`.
    ///
    /// A socket that was named and cannot be had is an error. Without its default socket the daemon
    /// serves all the same, and says so. `before` is that of the daemon whose place this one takes.
    pub(crate) fn open(
        tree: &Arc<Tree>,
        named: Option<PathBuf>,
        default: Option<&str>,
        before: Option<OwnedFd>,
    ) -> Result<Reach, Failure> {
        let place = named.as_deref().or(default.map(Path::new));
        if let (Some(socket), Some(path)) = (before, place) {
            let server = Server::inherit(socket, path, Arc::clone(tree));
            return Ok(Reach(Some(server.map_err(|error| refused(path, &error))?)));
        }
        Ok(Reach(match (named, default) {
            (Some(path), _) => {
                check_socket_path(&format!("control socket {:?}", path.display()), &path)?;
                Some(Server::open(&path, Arc::clone(tree)).map_err(|e| refused(&path, &e))?)
            }
            (None, Some(path)) => open_default(Path::new(path), tree),
            (None, None) => None,
        }))
    }

    /// Closes it and leaves its file: the socket goes on in another process.
    pub(crate) fn leave(self) {
        if let Some(server) = self.0 {
            server.leave();
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.0.as_ref().map(Server::path)
    }

    /// Says where it is.
    pub(crate) fn introduce(&self) -> String {
        let line = |server: &Server| format!("control socket:\n  {}\n", server.path().display());
        self.0.as_ref().map(line).unwrap_or_default()
    }
}

/// Refuses the path of a socket, called `what`, that the system could not take.
fn check_socket_path(what: &str, path: &Path) -> Result<(), Failure> {
    match path.as_os_str().len() {
        1..=SOCKET_PATH_MAX => Ok(()),
        bytes => Err(Failure::Bad(format!(
            "{what} has a path of {bytes} bytes; a socket takes 1..={SOCKET_PATH_MAX}"
        ))),
    }
}

fn refused(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::AddrInUse => format!("control socket {path} is in use"),
        _ => format!("control socket {path}: {error}"),
    }
}

fn open_default(path: &Path, tree: &Arc<Tree>) -> Option<Server> {
    let open = || Server::open(path, Arc::clone(tree)).map_err(|error| refused(path, &error));
    match default_folder().and_then(|()| open()) {
        Ok(server) => Some(server),
        Err(why) => {
            tracing::warn!("{why}; no `weir get` or `set` for this daemon without --control SOCK");
            None
        }
    }
}
