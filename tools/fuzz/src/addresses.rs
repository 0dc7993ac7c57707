//! Addresses to listen on, with their options, against any text.
//!
//! - What is taken is read as the same address from what it is shown as.
//! - No option widens what the address itself does not say: an entry of `allow` is read again as
//!   it is shown, and only `insecure` or required TLS lets other hosts in.

use std::net::{IpAddr, SocketAddr};

use weir_access::{Address, Allow, Listen, Peer, SOCKET_PATH_MAX, TlsRule};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let listen = match text.parse::<Listen>() {
        Ok(listen) => listen,
        Err(why) => return assert!(!why.is_empty(), "no reason"),
    };
    let shown = listen.address.to_string();
    assert_eq!(shown.parse::<Address>().as_ref(), Ok(&listen.address), "as it is shown");
    match &listen.address {
        Address::Unix(path) => {
            assert!((1..=SOCKET_PATH_MAX).contains(&path.as_os_str().len()), "{shown}");
            assert!(!listen.insecure, "{text:?} is no port");
        }
        Address::Tcp(_) => {}
    }
    assert!(listen.rights.mode <= 0o777, "mode {:o}", listen.rights.mode);
    let tls = listen.tls.rule == Some(TlsRule::Require);
    assert_eq!(listen.may_be_remote(), listen.insecure || tls, "{text:?}");
    list(&listen.allow);
}

/// A list is read from what it is shown as, and each network in it lets its first host in.
fn list(allow: &Allow) {
    // Names of certificates may hold what stands between entries.
    let shown = allow.to_string();
    if allow.names().any(|name| name.contains(", ")) {
        return;
    }
    let mut again = Allow::default();
    for entry in shown.split(", ").filter(|entry| !entry.is_empty()) {
        assert_eq!(again.push(entry), Ok(()), "{entry} as it is shown");
        let address = entry.split_once('/').and_then(|(address, _)| address.parse().ok());
        if let Some(address) = address.filter(|_: &IpAddr| !entry.starts_with("tls:")) {
            let first = Peer::Host(SocketAddr::new(address, 1));
            assert!(allow.admits(&first), "{entry} lets nobody in");
        }
    }
    assert_eq!(&again, allow, "a list as it is shown");
}
