//! The interface to a service supervisor: listening sockets and readiness.
//!
//! Source: the manual pages sd_listen_fds(3) and sd_notify(3).

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

/// The first descriptor a supervisor passes.
const FIRST: i32 = 3;

/// Listening sockets passed by `LISTEN_FDS`, if they are meant for this process.
///
/// # Errors
/// A number that is none, or a descriptor that is not open.
pub(crate) fn listeners() -> Result<Vec<OwnedFd>, String> {
    let meant = std::env::var("LISTEN_PID").ok().and_then(|pid| pid.parse().ok());
    if meant != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let Ok(text) = std::env::var("LISTEN_FDS") else { return Ok(Vec::new()) };
    let count: i32 = text
        .parse()
        .ok()
        .filter(|count| (0..=1024).contains(count))
        .ok_or_else(|| format!("LISTEN_FDS={text} is not a number in 0..=1024"))?;
    (FIRST..FIRST + count).map(take).collect()
}

/// Opens a passed descriptor anew, so that this process owns what it uses.
fn take(fd: i32) -> Result<OwnedFd, String> {
    let path = format!("/proc/self/fd/{fd}");
    if !std::fs::exists(&path).unwrap_or(false) {
        return Err(format!("LISTEN_FDS: descriptor {fd} is not open"));
    }
    duplicate(fd).map_err(|e| format!("LISTEN_FDS: descriptor {fd}: {e}"))
}

/// A socket cannot be opened through its path in /proc, so it is asked for from ourselves by
/// pidfd, which needs no unsafe adoption of a number.
fn duplicate(fd: i32) -> std::io::Result<OwnedFd> {
    let own = rustix::process::getpid();
    let pid = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())?;
    let flags = rustix::process::PidfdGetfdFlags::empty();
    Ok(rustix::process::pidfd_getfd(&pid, fd, flags)?)
}

/// Tells the supervisor something, if there is one. Trouble is not the daemon's: it goes on.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let Ok(socket) = UnixDatagram::unbound() else { return };
    let sent = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => abstract_address(name)
            .and_then(|address| socket.send_to_addr(state.as_bytes(), &address)),
        None => socket.send_to(state.as_bytes(), &path),
    };
    if let Err(error) = sent {
        tracing::warn!(%error, "the service supervisor could not be told {state:?}");
    }
}

fn abstract_address(name: &str) -> std::io::Result<std::os::unix::net::SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    std::os::unix::net::SocketAddr::from_abstract_name(name)
}
