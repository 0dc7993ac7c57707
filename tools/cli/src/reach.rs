//! The ways to a daemon's tree: the control socket and the mount.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir::{Device, Host};
use weir_access::SOCKET_PATH_MAX;
use weir_control::{Server, Tree};
use weir_fuse::{Mount, Others};

use crate::Failure;
use crate::data_folder::default_folder;

/// The ways into a daemon that are open. Dropping it closes both.
pub(crate) struct Reach {
    mount: Option<Mount>,
    control: Option<Server>,
}

impl Reach {
    /// Opens the control socket at `named`, or at `default`, and mounts the tree at `folder`, with
    /// the disks themselves under `dev`.
    ///
    /// A socket or folder that was named and cannot be had is an error. Without its default socket
    /// the daemon serves all the same, and says so.
    pub(crate) fn open(
        tree: &Arc<Tree>,
        named: Option<PathBuf>,
        default: Option<&str>,
        folder: Option<(&Path, Others)>,
        (host, devices): (&Arc<Host>, &[Device]),
    ) -> Result<Reach, Failure> {
        let control = match (named, default) {
            (Some(path), _) => {
                check_socket_path(&format!("control socket {:?}", path.display()), &path)?;
                Some(Server::open(&path, Arc::clone(tree)).map_err(|e| refused(&path, &e))?)
            }
            (None, Some(path)) => open_default(Path::new(path), tree),
            (None, None) => None,
        };
        let open =
            |(folder, others)| Mount::open(folder, Arc::clone(tree), (host, devices), others);
        let mount = folder.map(open).transpose();
        let mount = mount.map_err(|error| Failure::Bad(error.to_string()))?;
        Ok(Reach { mount, control })
    }

    /// The mounted tree.
    pub(crate) fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    /// Says where they are.
    pub(crate) fn introduce(&self) -> String {
        let control = self
            .control
            .as_ref()
            .map(|control| format!("control socket:\n  {}\n", control.path().display()));
        let mount =
            self.mount.as_ref().map(|mount| format!("tree:\n  {}\n", mount.folder().display()));
        [control, mount].into_iter().flatten().collect()
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
