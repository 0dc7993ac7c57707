//! The addresses of a server: which there are, what is served at each, and what is said of who can
//! reach it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use weir_access::{Address, Inherited, Listen, Rights, SocketFile, TlsRule};
use weir_control::config::Export;

use super::secure;
use crate::gate::Scope;
use crate::plan::Nbd;
use crate::server::Server;

/// An address of the server.
struct Entry {
    listen: Listen,
    scope: Scope,
    /// The socket, if a supervisor passed it.
    passed: Option<OwnedFd>,
}

/// Sockets that listen already.
pub(super) struct Sockets {
    /// Those of a supervisor.
    pub(super) passed: Vec<OwnedFd>,
    /// Those of the daemon before.
    pub(super) inherited: Vec<Inherited>,
}

impl Sockets {
    /// Those of a supervisor: from itself, or else from the daemon before, which had them.
    fn take_passed(&mut self) -> Vec<OwnedFd> {
        let of_supervisor = self.inherited.extract_if(.., |socket| socket.passed);
        let before: Vec<OwnedFd> = of_supervisor.map(|socket| socket.fd).collect();
        if self.passed.is_empty() { before } else { std::mem::take(&mut self.passed) }
    }

    /// The one at an address.
    fn take(&mut self, address: &Address) -> Option<OwnedFd> {
        let place = self.inherited.iter().position(|socket| socket.address == *address)?;
        Some(self.inherited.swap_remove(place).fd)
    }
}

/// Opens every address that applies; sockets a supervisor passed stand for those of `[nbd]` and of
/// `--nbd`, and `default` is where to listen if nothing says so. Returns them with the ports the
/// system chose.
pub(super) fn open(
    server: &Server,
    nbd: &Nbd,
    exports: &[&Export],
    mut sockets: Sockets,
    default: impl FnOnce() -> Result<PathBuf, String>,
) -> Result<Vec<(Address, TlsRule)>, String> {
    let mut entries = Vec::new();
    for fd in sockets.take_passed() {
        let listen = Listen::from(local_address(&fd));
        entries.push(Entry { listen, scope: Scope::All, passed: Some(fd) });
    }
    if entries.is_empty() {
        for listen in wanted(nbd, exports, default)? {
            add(&mut entries, listen, Scope::All)?;
        }
    }
    for listen in exports.iter().flat_map(|export| &export.listen) {
        add(&mut entries, listen.clone(), Scope::Named)?;
    }
    let mut addresses = Vec::new();
    for mut entry in entries {
        complete(&mut entry.listen, nbd);
        let security = secure::of(&entry.listen)?;
        let (listen, scope) = (&entry.listen, entry.scope);
        let before = sockets.take(&listen.address).map(|fd| inherit(fd, listen)).transpose()?;
        let address = match (entry.passed, before.flatten()) {
            (Some(fd), _) => {
                check_passed(listen, &listen.address)?;
                server.listen_on(fd, listen, scope, security);
                listen.address.clone()
            }
            (None, Some((fd, file))) => {
                let address = local_address(&fd);
                server.listen_on_inherited(fd, file, listen, scope, security);
                address
            }
            (None, None) => {
                let bound = server.listen_secured(listen, scope, security);
                bound.map_err(|error| error.to_string())?
            }
        };
        tell(&address, &entry.listen);
        addresses.push((address, entry.listen.tls.rule.unwrap_or(TlsRule::Off)));
    }
    for socket in sockets.inherited {
        tracing::info!("{}: the daemon before listened there, this one does not", socket.address);
    }
    Ok(addresses)
}

/// The socket of the daemon before with its file; `None` if that is gone, so that no client finds
/// the socket any more.
fn inherit(fd: OwnedFd, listen: &Listen) -> Result<Option<(OwnedFd, Option<SocketFile>)>, String> {
    match &listen.address {
        Address::Unix(path) => match SocketFile::inherit(path, listen.rights) {
            Ok(file) => Ok(Some((fd, Some(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot listen on {}: {error}", listen.address)),
        },
        Address::Tcp(_) => {
            check_passed(listen, &local_address(&fd))?;
            Ok(Some((fd, None)))
        }
    }
}

/// The addresses at which every export is served that names none.
fn wanted(
    nbd: &Nbd,
    exports: &[&Export],
    default: impl FnOnce() -> Result<PathBuf, String>,
) -> Result<Vec<Listen>, String> {
    for stated in [&nbd.named, &nbd.listen] {
        if !stated.is_empty() {
            return Ok(stated.clone());
        }
    }
    if exports.iter().all(|export| !export.listen.is_empty()) {
        return Ok(Vec::new());
    }
    Ok(vec![Address::Unix(default()?).into()])
}

/// Adds an address, unless it is there. Its options are stated once; elsewhere it is named alone.
fn add(entries: &mut Vec<Entry>, listen: Listen, scope: Scope) -> Result<(), String> {
    let same = |entry: &&mut Entry| entry.listen.address == listen.address;
    let Some(there) = entries.iter_mut().find(same) else {
        entries.push(Entry { listen, scope, passed: None });
        return Ok(());
    };
    let plain = Listen::from(listen.address.clone());
    if there.listen == plain {
        there.listen = listen;
    } else if listen != plain && listen != there.listen {
        let address = &listen.address;
        let why = format!("address {address} is given twice, with different options");
        return Err(why);
    }
    Ok(())
}

/// Completes an address with the settings of `[nbd]` that it does not state itself.
fn complete(listen: &mut Listen, nbd: &Nbd) {
    listen.insecure |= nbd.insecure;
    secure::complete(&mut listen.tls, nbd);
    if listen.allow.is_empty() {
        listen.allow = nbd.allow.clone();
    }
}

/// A supervisor's port is held to the same as one that is opened here.
fn check_passed(listen: &Listen, address: &Address) -> Result<(), String> {
    if reach(address) == Reach::Network && !listen.may_be_remote() {
        return Err(format!(
            "the passed socket {address} is reached by other hosts, and everything on it is \
             neither encrypted nor asked for a name: pass a loopback address, require TLS with \
             tls = \"require\" in [nbd], or say that this is meant with insecure = true there"
        ));
    }
    Ok(())
}

/// From where an address can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    File,
    Loopback,
    Network,
}

/// Of an address that is bound, so a number.
fn reach(address: &Address) -> Reach {
    match address {
        Address::Unix(_) => Reach::File,
        Address::Tcp(place) => match place.parse::<SocketAddr>() {
            Ok(place) if place.ip().to_canonical().is_loopback() => Reach::Loopback,
            _ => Reach::Network,
        },
    }
}

/// Says in the log who can reach an address, where that is more than one user.
fn tell(address: &Address, listen: &Listen) {
    let Listen { rights: Rights { mode, .. }, allow, tls, .. } = listen;
    if tls.rule == Some(TlsRule::Require) {
        if tls.verify_peer == Some(false) && allow.is_empty() {
            tracing::warn!("{address}: everybody who reaches it is let in, over TLS");
        }
        return;
    }
    match reach(address) {
        Reach::File if mode & 0o002 != 0 && allow.is_empty() => {
            tracing::warn!("{address}: every user of this machine is let in (mode={mode:04o})");
        }
        Reach::File => {}
        Reach::Loopback => tracing::warn!("{address}: every user of this machine is let in"),
        // Not to be overheard with --quiet either.
        Reach::Network if allow.is_empty() => tracing::error!(
            "INSECURE: {address}: every host that reaches it is let in, and nothing is encrypted"
        ),
        Reach::Network => tracing::error!(
            "INSECURE: {address}: nothing is encrypted, and only addresses keep others out than \
             {allow}"
        ),
    }
}

/// The address of a socket that was passed in.
fn local_address(fd: &impl AsFd) -> Address {
    let name = rustix::net::getsockname(fd);
    match name.ok().and_then(|name| rustix::net::SocketAddr::try_from(name).ok()) {
        Some(address) => Address::Tcp(address.to_string()),
        None => Address::Unix(unix_path(fd).unwrap_or_default()),
    }
}

fn unix_path(fd: &impl AsFd) -> Option<PathBuf> {
    let name = rustix::net::getsockname(fd).ok()?;
    let unix = rustix::net::SocketAddrUnix::try_from(name).ok()?;
    let path = unix.path()?.to_str().ok()?.to_owned();
    Some(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_an_address_are_stated_once() {
        let listen = |text: &str| text.parse::<Listen>().expect("an address");
        let mut entries = Vec::new();
        let mut give = |text: &str, scope| add(&mut entries, listen(text), scope);
        give("unix:a", Scope::All).expect("it is new");
        give("unix:b,mode=0660", Scope::Named).expect("it is new");
        give("unix:a,allow=uid:1", Scope::Named).expect("its options");
        give("unix:a", Scope::Named).expect("the same");
        give("unix:b,mode=0660", Scope::Named).expect("the same");
        let error = give("unix:b,mode=0600,group=0", Scope::Named).expect_err("others");
        assert!(error.contains("unix:b is given twice"), "{error}");
        let there: Vec<_> = entries.iter().map(|entry| (&entry.listen, entry.scope)).collect();
        let expected = [listen("unix:a,allow=uid:1"), listen("unix:b,mode=0660")];
        assert_eq!(there, [(&expected[0], Scope::All), (&expected[1], Scope::Named)]);
    }

    #[test]
    fn what_is_not_a_number_of_loopback_counts_as_the_network() {
        for (address, expected) in [
            ("unix:x", Reach::File),
            ("127.9.9.9:1", Reach::Loopback),
            ("[::1]:1", Reach::Loopback),
            ("[::ffff:127.0.0.1]:1", Reach::Loopback),
            ("0.0.0.0:1", Reach::Network),
            ("[::]:1", Reach::Network),
            ("localhost:1", Reach::Network),
        ] {
            assert_eq!(reach(&address.parse().expect("an address")), expected, "{address}");
        }
    }
}
