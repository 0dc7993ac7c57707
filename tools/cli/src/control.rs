//! The control socket of a running daemon, as commands reach it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use weir_control::{ClientError, ControlClient};

use crate::Failure;
use crate::output::harmless;

/// The control socket of a daemon that was told nothing.
pub(crate) const DEFAULT_CONTROL: &str = "weir-data/control.sock";

/// Where the socket of a daemon of this user, and of the system's, is looked for.
const OF_USER: &str = "XDG_RUNTIME_DIR";
const IN_RUNTIME_DIR: &str = "weir/control.sock";
const OF_SYSTEM: &str = "/run/weir/control.sock";

/// Where a daemon's control socket is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Control {
    /// The daemon's control socket; else $WEIR_CONTROL, else ./weir-data/control.sock. Commands
    /// that look for a daemon try $XDG_RUNTIME_DIR/weir/control.sock and /run/weir/control.sock
    /// after that.
    #[arg(long = "control", value_name = "SOCK")]
    socket: Option<PathBuf>,
}

impl Control {
    /// The socket that was named, by flag or environment.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        let environment = || std::env::var_os("WEIR_CONTROL").filter(|path| !path.is_empty());
        self.socket.clone().or_else(|| environment().map(PathBuf::from))
    }

    /// Connects to the daemon at the socket that was named, or at the first place where one
    /// answers.
    pub(crate) fn connect(&self) -> Result<ControlClient, Failure> {
        match self.named() {
            Some(path) => Ok(ControlClient::connect(&path)?),
            None => first_of(&places(std::env::var_os(OF_USER))),
        }
    }
}

/// The places of a daemon's control socket, in the order in which they are tried.
fn places(of_user: Option<OsString>) -> Vec<PathBuf> {
    // As the base directory specification has it: a relative one counts as none.
    let of_user = of_user.map(PathBuf::from).filter(|folder| folder.is_absolute());
    let of_user = of_user.map(|folder| folder.join(IN_RUNTIME_DIR));
    let first = PathBuf::from(DEFAULT_CONTROL);
    [Some(first), of_user, Some(PathBuf::from(OF_SYSTEM))].into_iter().flatten().collect()
}

/// Connects to the first of these that is there. One that does not answer is not passed over: the
/// daemon that is meant may have ended, and its disks' names may be those of another.
fn first_of(places: &[PathBuf]) -> Result<ControlClient, Failure> {
    let mut tried: Vec<String> = Vec::new();
    for place in places {
        check_owner(place)?;
        match ControlClient::connect(place) {
            Ok(client) => return Ok(client),
            Err(error) => {
                tried.push(reason(place, &error));
                if !is_absent(&error) {
                    break;
                }
            }
        }
    }
    Err(Failure::Bad(format!(
        "no daemon at control socket {}; --control SOCK or $WEIR_CONTROL names another",
        tried.join(", nor at ")
    )))
}

/// Refuses the socket of another user, who could answer what they like: root's and this user's are
/// taken unless one was named. Whose the system's is, root says, whose folder it is in; what its
/// daemon tells is shown and offered as that of a stranger.
pub(crate) fn check_owner(place: &Path) -> Result<(), Failure> {
    if place == Path::new(OF_SYSTEM) {
        return Ok(());
    }
    let Ok(data) = std::fs::metadata(place) else { return Ok(()) };
    let own = rustix::process::geteuid().as_raw();
    if [0, own].contains(&data.uid()) {
        return Ok(());
    }
    Err(Failure::Bad(format!(
        "control socket {} belongs to user {}, and is trusted only if to user {own} or root; \
         --control SOCK or $WEIR_CONTROL names it",
        place.display(),
        data.uid()
    )))
}

fn is_absent(error: &ClientError) -> bool {
    matches!(error, ClientError::Lost { source, .. } if source.kind() == ErrorKind::NotFound)
}

/// A place and why it has no daemon.
fn reason(place: &Path, error: &ClientError) -> String {
    match error {
        ClientError::Lost { path, source } => {
            let denied = source.kind() == ErrorKind::PermissionDenied;
            let hint = if denied { " (the daemon is another user's)" } else { "" };
            format!("{}: {source}{hint}", path.display())
        }
        ClientError::Refused(_) => format!("{}: {error}", place.display()),
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        // The reason that a daemon gives is its own text.
        Failure::Bad(harmless(&error.to_string()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_of_the_folder_comes_before_one_of_the_user_and_that_of_the_system() {
        let shown = |of_user: Option<&str>| -> Vec<String> {
            let places = places(of_user.map(OsString::from));
            places.iter().map(|place| place.display().to_string()).collect()
        };
        let (first, last) = ("weir-data/control.sock", "/run/weir/control.sock");
        assert_eq!(shown(Some("/run/user/7")), [first, "/run/user/7/weir/control.sock", last]);
        assert_eq!(shown(None), [first, last]);
        assert_eq!(shown(Some("relative")), [first, last]);
    }

    #[test]
    fn the_first_that_is_there_is_taken_and_an_error_lists_where_it_looked() {
        let folder = std::env::temp_dir().join(format!("weir-places-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let [none, dead, live] = ["none", "dead", "live"].map(|name| folder.join(name));
        let _ = (std::fs::remove_file(&dead), std::fs::remove_file(&live));
        drop(UnixListener::bind(&dead).expect("a socket"));
        let Err(Failure::Bad(why)) = first_of(&[none.clone(), dead.clone()]) else {
            panic!("there is no daemon")
        };
        let wanted = format!(
            "no daemon at control socket {}: No such file or directory (os error 2), nor at {}: \
             Connection refused (os error 111); --control SOCK or $WEIR_CONTROL names another",
            none.display(),
            dead.display()
        );
        assert_eq!(why, wanted);
        let listener = UnixListener::bind(&live).expect("a socket");
        assert!(first_of(&[none.clone(), live.clone()]).is_ok());
        // The daemon of the first place has ended: that of the next has other disks.
        let Err(Failure::Bad(why)) = first_of(&[dead, live.clone()]) else {
            panic!("the wrong daemon was taken")
        };
        assert!(why.contains("dead: Connection refused"), "{why}");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&live, Some(65534), None).expect("root may");
            let Err(Failure::Bad(why)) = first_of(&[none, live]) else { panic!("it is another's") };
            assert!(why.contains("belongs to user 65534"), "{why}");
        }
        drop(listener);
        std::fs::remove_dir_all(&folder).expect("a folder");
    }
}
