//! Lists of those who may come in: `uid:1000`, `gid:107`, `10.0.0.0/8`, `tls:alice`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::Peer;
use crate::accounts;

/// A list of the clients that may come in. The empty list, which is the default, lets all clients
/// in; the list of a configuration file is never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<Entry>);

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    User(u32),
    Group(u32),
    Network {
        address: IpAddr,
        bits: u8,
    },
    /// A name in the certificate that a client shows over TLS.
    Name(String),
}

impl Allow {
    /// Whether a client may come in: no list was given, or an entry says so.
    #[must_use]
    pub fn admits(&self, peer: &Peer) -> bool {
        self.0.is_empty() || self.0.iter().any(|entry| entry.admits(peer))
    }

    /// The same for a client whose certificate bears these names.
    #[must_use]
    pub fn admits_named(&self, peer: &Peer, names: &[String]) -> bool {
        self.admits(peer) || self.names().any(|name| names.iter().any(|shown| shown == name))
    }

    /// The names of clients that may come in by their certificates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|entry| match entry {
            Entry::Name(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether there are names in it and nothing else.
    #[must_use]
    pub fn is_names_alone(&self) -> bool {
        !self.0.is_empty() && self.names().count() == self.0.len()
    }

    /// Whether all clients may come in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The entry, and what it would have to be.
    pub fn push(&mut self, text: &str) -> Result<(), String> {
        self.0.push(text.parse()?);
        Ok(())
    }
}

impl Entry {
    fn admits(&self, peer: &Peer) -> bool {
        match (self, peer) {
            (Entry::User(allowed), Peer::Process { uid, .. }) => allowed == uid,
            (Entry::Group(allowed), Peer::Process { gid, .. }) => allowed == gid,
            (Entry::Network { address, bits }, Peer::Host(host)) => {
                // A socket for both versions of IP tells 10.0.0.1 as ::ffff:10.0.0.1.
                let host = host.ip().to_canonical();
                host.is_ipv4() == address.is_ipv4() && network(host, *bits) == *address
            }
            _ => false,
        }
    }
}

/// An address with all but its first bits cleared.
fn network(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

/// The bits of IPv6 that say that an address of IPv4 follows: `::ffff:0:0/96`.
const MAPPED_BITS: u8 = 96;

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Entry, String> {
        let of = |error: String| format!("allow={text}: {error}");
        if let Some(user) = text.strip_prefix("uid:") {
            return accounts::user(user).map(Entry::User).map_err(of);
        }
        if let Some(group) = text.strip_prefix("gid:") {
            return accounts::group(group).map(Entry::Group).map_err(of);
        }
        if let Some(name) = text.strip_prefix("tls:") {
            return match name.is_empty() {
                true => Err(of(String::from("it names nobody"))),
                false => Ok(Entry::Name(String::from(name))),
            };
        }
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| {
            of(String::from(
                "it is none of uid:USER, gid:GROUP, tls:NAME, ADDRESS and ADDRESS/BITS",
            ))
        })?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok().filter(|bits| *bits <= most));
        let bits = bits.ok_or_else(|| of(format!("the bits are no number in 0..={most}")))?;
        // As its clients are compared: a network of mapped IPv4 addresses is one of IPv4.
        let (address, bits) = match address.to_canonical() {
            v4 if v4 != address && bits >= MAPPED_BITS => (v4, bits - MAPPED_BITS),
            _ => (address, bits),
        };
        let first = network(address, bits);
        if first != address {
            return Err(of(format!("{address} has bits behind its first {bits}: {first}/{bits}?")));
        }
        Ok(Entry::Network { address, bits })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::User(uid) => write!(f, "uid:{uid}"),
            Entry::Group(gid) => write!(f, "gid:{gid}"),
            Entry::Name(name) => write!(f, "tls:{name}"),
            Entry::Network { address, bits } => write!(f, "{address}/{bits}"),
        }
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<String> = self.0.iter().map(Entry::to_string).collect();
        f.write_str(&listed.join(", "))
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Entry, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Allow {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Allow, D::Error> {
        let entries = Vec::<Entry>::deserialize(from)?;
        if entries.is_empty() {
            let why = "allow=[] lets nobody in; without `allow` everybody is let in";
            return Err(serde::de::Error::custom(why));
        }
        Ok(Allow(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> Allow {
        let mut allow = Allow::default();
        entries.iter().for_each(|entry| allow.push(entry).expect("an entry"));
        allow
    }

    fn host(text: &str) -> Peer {
        Peer::Host(text.parse().expect("an address"))
    }

    #[test]
    fn who_is_in_the_list_may_come_in_and_nobody_else() {
        let local = |uid, gid| Peer::Process { uid, gid, pid: 1 };
        assert!(list(&[]).admits(&local(7, 7)) && list(&[]).admits(&Peer::Unknown));
        let some = list(&["uid:7", "gid:9", "10.1.0.0/16", "::1", "fe80::/10"]);
        for peer in [local(7, 1), local(1, 9), host("10.1.255.3:5"), host("[::ffff:10.1.0.1]:5")] {
            assert!(some.admits(&peer), "{peer}");
        }
        for peer in [host("[::1]:1"), host("[febf::1]:1")] {
            assert!(some.admits(&peer), "{peer}");
        }
        for peer in [local(9, 7), local(0, 0), host("10.2.0.1:5"), host("[fec0::1]:1")] {
            assert!(!some.admits(&peer), "{peer}");
        }
        assert!(!some.admits(&Peer::Unknown));
        let named = list(&["tls:alice", "uid:7"]);
        assert!(named.admits(&local(7, 1)) && !named.admits(&local(8, 1)));
        let names = |name: &str| [String::from(name)];
        assert!(named.admits_named(&local(8, 1), &names("alice")));
        assert!(!named.admits_named(&local(8, 1), &names("alic")));
        assert!(!named.admits_named(&local(8, 1), &names("uid:7")));
        assert!(list(&["0.0.0.0/0"]).admits(&host("1.2.3.4:5")));
        assert!(!list(&["0.0.0.0/0"]).admits(&host("[::1]:5")));
        assert!(list(&["::ffff:1.2.3.4"]).admits(&host("1.2.3.4:5")));
    }

    #[test]
    fn a_network_of_mapped_addresses_lets_in_the_clients_it_names() {
        let mapped = list(&["::ffff:10.1.0.0/112"]);
        assert_eq!(mapped, list(&["10.1.0.0/16"]));
        assert!(mapped.admits(&host("[::ffff:10.1.2.3]:5")) && mapped.admits(&host("10.1.2.3:5")));
        assert!(!mapped.admits(&host("10.2.0.1:5")));
        let error = Allow::default().push("::ffff:10.1.0.1/112").expect_err("bits behind");
        assert!(error.contains("10.1.0.0/16"), "{error}");
    }

    #[test]
    fn a_bad_entry_is_named_with_what_would_be_right() {
        for (entry, part) in [
            ("frob", "uid:USER"),
            ("tls:", "names nobody"),
            ("uid:", "/etc/passwd"),
            ("uid:nobody at all", "/etc/passwd"),
            ("gid:-1", "/etc/group"),
            ("uid:4294967295", "0..=4294967294"),
            ("10.0.0.0/33", "0..=32"),
            ("::/129", "0..=128"),
            ("10.0.0.0/x", "0..=32"),
            ("10.0.0.1/8", "10.0.0.0/8"),
        ] {
            let error = Allow::default().push(entry).expect_err(entry);
            assert!(error.starts_with(&format!("allow={entry}: ")), "{error}");
            assert!(error.contains(part), "{error}");
        }
    }
}
