//! Addresses of targets: `HOST[:PORT][,GROUP]`, where an IPv6 address is in brackets. RFC 7143,
//! section 13.8.

use std::fmt;
use std::net::Ipv6Addr;

use crate::wire::PORT;

/// Bytes of the longest host.
const HOST_MAX: usize = 255;

/// A place where a target listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Portal {
    /// A domain name or an address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The portal group tag: portals of one group share sessions.
    pub group: Option<u16>,
}

/// Why a text is no address of a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalError {
    address: String,
    what: &'static str,
}

impl fmt::Display for PortalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "portal address {:?}: {}", self.address, self.what)
    }
}

impl std::error::Error for PortalError {}

impl Portal {
    /// Reads an address.
    ///
    /// # Errors
    /// The address and what is wrong with it.
    pub fn new(address: &str) -> Result<Self, PortalError> {
        let error = |what| {
            let address = address.chars().take(HOST_MAX + 1).collect();
            PortalError { address, what }
        };
        let number = |text: &str| -> Option<u16> {
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        };
        let (place, group) = match address.split_once(',') {
            None => (address, None),
            Some((place, group)) => {
                let group = number(group);
                let group = group.ok_or_else(|| error("the group is no number 0..=65535"))?;
                (place, Some(group))
            }
        };
        let (host, port) = if let Some(rest) = place.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(|| error("a [ without ]"))?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(error("in brackets is no IPv6 address"));
            }
            let port = match rest {
                "" => None,
                _ => Some(rest.strip_prefix(':').ok_or_else(|| error("text behind ]"))?),
            };
            (host, port)
        } else {
            match place.split_once(':') {
                None => (place, None),
                Some((host, port)) => (host, Some(port)),
            }
        };
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"[]/".contains(&byte);
        if host.is_empty() || host.len() > HOST_MAX || !host.bytes().all(visible) {
            return Err(error("no host of 1 to 255 visible characters"));
        }
        let port = match port {
            None => PORT,
            Some(text) => number(text)
                .filter(|port| *port > 0)
                .ok_or_else(|| error("the port is no number 1..=65535"))?,
        };
        Ok(Self { host: host.to_owned(), port, group })
    }
}

impl fmt::Display for Portal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        self.group.map_or(Ok(()), |group| write!(f, ",{group}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Portal;

    #[test]
    fn addresses_of_all_forms_are_read_and_shown_again() {
        for (text, shown) in [
            ("10.0.0.1", "10.0.0.1:3260"),
            ("10.0.0.1:5003,1", "10.0.0.1:5003,1"),
            ("[1080::8:800:200C:417A],65535", "[1080::8:800:200C:417A]:3260,65535"),
            ("[::1]:21260,0", "[::1]:21260,0"),
            ("disk.example.com:3260,23", "disk.example.com:3260,23"),
        ] {
            let portal = Portal::new(text).expect(text);
            assert_eq!(portal.to_string(), shown);
            assert_eq!(Portal::new(shown), Ok(portal));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "host"),
            (":3260", "host"),
            ("a b", "host"),
            ("a:0", "port"),
            ("a:65536", "port"),
            ("a:+1", "port"),
            ("a:", "port"),
            ("::1", "host"),
            ("fe80::1:3260", "port"),
            ("[::1", "without"),
            ("[host]:1", "IPv6"),
            ("[::1]1", "behind"),
            ("a,", "group"),
            ("a,65536", "group"),
            ("a,1,2", "group"),
        ] {
            let error = Portal::new(text).expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Portal::new(&"a".repeat(256)).is_err());
    }
}
