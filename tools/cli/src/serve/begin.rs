//! What a daemon begins with: its configuration, and the place of another if it takes one.

use std::path::{Path, PathBuf};

use weir_control::Rules;

use super::{Serve, Signals};
use crate::Failure;
use crate::control::{DEFAULT_CONTROL, check_owner};
use crate::handover::{Aside, Next, Sockets, Takeover};
use crate::reload::{Reload, Stated};

/// The beginning of a daemon.
pub(super) struct Beginning {
    pub(super) stated: Stated,
    pub(super) rules: Rules,
    /// Those of the daemon before, if there was one.
    pub(super) sockets: Sockets,
    /// The daemon before, as long as it may still take its place back.
    pub(super) before: Option<Takeover>,
    /// It serves again, after a daemon failed to take its place: no other one will, so it does with
    /// less where something is missing.
    pub(super) again: bool,
    /// Then its configuration at the start, where that was another.
    pub(super) first: Option<Stated>,
}

impl Beginning {
    /// Reads the configuration, and then takes the place of the running daemon if that is asked
    /// for. `None` for a daemon whose own place was taken.
    pub(super) fn of(serve: &Serve, signals: &Signals) -> Result<Option<Beginning>, Failure> {
        if let Some(aside) = Aside::here()? {
            return match aside.wait(signals.heard()) {
                Next::End => {
                    tracing::info!("another daemon serves in this one's place");
                    Ok(None)
                }
                Next::Stop => Ok(None),
                Next::Serve(configuration, sockets) => {
                    let [last, first] = configuration
                        .map_or([None, None], |[last, first]| [Some(last), Some(first)]);
                    let other = first.filter(|first| last.as_ref() != Some(first));
                    let first = other.map(|text| serve.stated_in(Some(text))).transpose()?;
                    let rules = Reload::read_rules(&serve.rules).unwrap_or_else(|failure| {
                        let (Failure::No(why) | Failure::Bad(why)) = failure;
                        tracing::error!("{why}: it serves without rules");
                        Rules::default()
                    });
                    let stated = serve.stated_in(last)?;
                    Ok(Some(Beginning { stated, rules, sockets, before: None, again: true, first }))
                }
            };
        }
        let stated = serve.stated()?;
        let rules = Reload::read_rules(&serve.rules)?;
        let mut before = None;
        if serve.replace {
            let control = control(serve);
            if serve.control.named().is_none() {
                check_owner(&control)?;
            }
            let exports = stated.config.exports().into_iter().map(|export| export.name);
            before = Takeover::ask(&control, &exports.collect::<Vec<_>>())?;
        }
        let taken = before.as_mut().map(|before| std::mem::take(&mut before.sockets));
        let sockets = taken.unwrap_or_default();
        Ok(Some(Beginning { stated, rules, sockets, before, again: false, first: None }))
    }
}

/// Whether a process listens at a socket; one whose queue is full is not waited for.
fn listens(place: &Path) -> bool {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (Ok(socket), Ok(address)) = (socket, SocketAddrUnix::new(place)) else { return false };
    matches!(connect(&socket, &address), Ok(()) | Err(rustix::io::Errno::AGAIN))
}

/// Where the daemon's control socket is to be.
fn control(serve: &Serve) -> PathBuf {
    serve.control.named().unwrap_or_else(|| PathBuf::from(DEFAULT_CONTROL))
}

/// Why it does not start; if a disk or an address is in use, and a daemon runs at the control
/// socket, that as well.
pub(super) fn beside(serve: &Serve, again: bool, failure: Failure) -> Failure {
    let (Failure::No(why) | Failure::Bad(why)) = &failure;
    let control = control(serve);
    // One that is begun anew has the socket itself.
    if again || serve.replace || serve.stdio || !why.contains("in use") || !listens(&control) {
        return failure;
    }
    let place = control.display();
    let hint = format!("a daemon runs at control socket {place}: --replace takes its place");
    match failure {
        Failure::No(why) => Failure::No(format!("{why}; {hint}")),
        Failure::Bad(why) => Failure::Bad(format!("{why}; {hint}")),
    }
}
