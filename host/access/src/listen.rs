//! An address to listen on and its options: `unix:PATH,mode=0660,group=kvm`,
//! `HOST:PORT,insecure,allow=10.0.0.0/8`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{Allow, Rights, accounts};

/// Bytes of a path that fit into a UNIX socket address, without the NUL at the end: unix(7).
pub const SOCKET_PATH_MAX: usize = 107;

/// Where a server listens: `unix:PATH` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A TCP port: host and port as the resolver takes them.
    Tcp(String),
}

/// An address with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// Of a UNIX socket: who may open its file.
    pub rights: Rights,
    /// Of a TCP port: it may be reached from other hosts, although nothing is encrypted and no
    /// client is asked for a name.
    pub insecure: bool,
    /// Its TLS settings.
    pub tls: Tls,
    /// The clients that may come in.
    pub allow: Allow,
}

/// The TLS settings of an address; the rest is left to those who have a default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether it is spoken.
    pub rule: Option<TlsRule>,
    /// The folder with `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.
    pub certificates: Option<PathBuf>,
    /// Whether clients have to show a certificate of that authority.
    pub verify_peer: Option<bool>,
}

/// Whether TLS is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlsRule {
    /// It is not.
    Off,
    /// With clients that ask for it.
    On,
    /// Nothing is granted without it.
    Require,
}

/// One option: its name, whether it needs a value, which kind of address has it.
struct Known {
    name: &'static str,
    switch: bool,
    unix: bool,
    tcp: bool,
    set: fn(&mut Listen, &str) -> Result<(), String>,
}

const OPTIONS: &[Known] = &[
    Known { name: "mode", switch: false, unix: true, tcp: false, set: set_mode },
    Known {
        name: "owner",
        switch: false,
        unix: true,
        tcp: false,
        set: |listen, value| {
            let owner = accounts::user(value).map_err(|error| format!("owner={value}: {error}"))?;
            listen.rights.owner = Some(owner);
            Ok(())
        },
    },
    Known {
        name: "group",
        switch: false,
        unix: true,
        tcp: false,
        set: |listen, value| {
            let group =
                accounts::group(value).map_err(|error| format!("group={value}: {error}"))?;
            listen.rights.group = Some(group);
            Ok(())
        },
    },
    Known { name: "insecure", switch: true, unix: false, tcp: true, set: set_insecure },
    Known {
        name: "allow",
        switch: false,
        unix: true,
        tcp: true,
        set: |listen, value| listen.allow.push(value),
    },
    Known { name: "tls", switch: false, unix: true, tcp: true, set: set_tls },
    Known {
        name: "tls_certificates",
        switch: false,
        unix: true,
        tcp: true,
        set: |listen, value| {
            listen.tls.certificates = Some(PathBuf::from(value));
            Ok(())
        },
    },
    Known {
        name: "tls_verify_peer",
        switch: false,
        unix: true,
        tcp: true,
        set: |listen, value| {
            listen.tls.verify_peer = Some(on_or_off("tls_verify_peer", value)?);
            Ok(())
        },
    },
];

impl Listen {
    fn apply(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, "on"));
        let unix = matches!(self.address, Address::Unix(_));
        let of_kind = |known: &&Known| if unix { known.unix } else { known.tcp };
        let Some(known) = OPTIONS.iter().filter(of_kind).find(|known| known.name == name) else {
            let valid: Vec<_> = OPTIONS.iter().filter(of_kind).map(|known| known.name).collect();
            let kind = if unix { "UNIX" } else { "TCP" };
            return Err(format!(
                "unknown option {name:?} of a {kind} address; valid: {}",
                valid.join(", ")
            ));
        };
        if !known.switch && !option.contains('=') {
            return Err(format!("option {name} needs a value, as in {name}=..."));
        }
        (known.set)(self, value)
    }

    /// Whether the address may be opened to other hosts: that is said, or TLS is required.
    #[must_use]
    pub fn may_be_remote(&self) -> bool {
        self.insecure || self.tls.rule == Some(TlsRule::Require)
    }
}

fn set_mode(listen: &mut Listen, value: &str) -> Result<(), String> {
    let digits = value.bytes().all(|digit| digit.is_ascii_digit());
    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| digits && *mode <= 0o777);
    let mode = mode.ok_or_else(|| format!("mode={value} is not octal in 0..=0777"))?;
    listen.rights.mode = mode;
    Ok(())
}

fn set_insecure(listen: &mut Listen, value: &str) -> Result<(), String> {
    listen.insecure = on_or_off("insecure", value)?;
    Ok(())
}

fn set_tls(listen: &mut Listen, value: &str) -> Result<(), String> {
    listen.tls.rule = Some(match value {
        "off" => TlsRule::Off,
        "on" => TlsRule::On,
        "require" => TlsRule::Require,
        _ => return Err(format!("tls={value} is none of off, on and require")),
    });
    Ok(())
}

fn on_or_off(name: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err(format!("{name}={value} is neither on nor off")),
    }
}

impl From<Address> for Listen {
    /// Without an option: a UNIX socket for its owner alone.
    fn from(address: Address) -> Listen {
        let (rights, tls, allow) = (Rights::default(), Tls::default(), Allow::default());
        Listen { address, rights, insecure: false, tls, allow }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => f.write_str(address),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(format!("address {text:?} has no path behind unix:")),
                1..=SOCKET_PATH_MAX => Ok(Address::Unix(path.into())),
                bytes => Err(format!(
                    "address {text:?} has a path of {bytes} bytes; a socket takes \
                     1..={SOCKET_PATH_MAX}"
                )),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Address::Tcp(text.into()))
            }
            _ => Err(format!("address {text:?} is neither unix:PATH nor HOST:PORT")),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let mut parts = split_at_commas(text).into_iter();
        let address: Address = parts.next().unwrap_or_default().parse()?;
        let mut listen = Listen::from(address);
        for option in parts {
            listen.apply(&option).map_err(|why| format!("address {text:?}: {why}"))?;
        }
        Ok(listen)
    }
}

/// Cuts at commas without a backslash before them, and takes the backslashes away.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let c = match c {
            '\\' => chars.next_if(|next| [',', '\\'].contains(next)).unwrap_or('\\'),
            ',' => {
                parts.push(String::new());
                continue;
            }
            c => c,
        };
        parts.last_mut().expect("one part").push(c);
    }
    parts
}

/// An address as a table of the configuration file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    address: String,
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
    insecure: Option<bool>,
    tls: Option<String>,
    tls_certificates: Option<String>,
    tls_verify_peer: Option<bool>,
    allow: Option<Allow>,
}

impl TryFrom<Table> for Listen {
    type Error = String;

    fn try_from(table: Table) -> Result<Listen, String> {
        let mut listen: Listen = table.address.parse()?;
        let words = [
            ("mode", table.mode),
            ("owner", table.owner),
            ("group", table.group),
            ("insecure", table.insecure.map(|on| on.to_string())),
            ("tls", table.tls),
            ("tls_certificates", table.tls_certificates),
            ("tls_verify_peer", table.tls_verify_peer.map(|on| on.to_string())),
        ];
        for (name, value) in words {
            let Some(value) = value else { continue };
            let applied = listen.apply(&format!("{name}={value}"));
            applied.map_err(|why| format!("address {:?}: {why}", table.address))?;
        }
        listen.allow = table.allow.unwrap_or(listen.allow);
        Ok(listen)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Listen, D::Error> {
        from.deserialize_any(TextOrTable)
    }
}

struct TextOrTable;

impl<'de> Visitor<'de> for TextOrTable {
    type Value = Listen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address or a table { address = \"...\", allow = [...] }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Listen, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Listen, A::Error> {
        Table::deserialize(MapAccessDeserializer::new(map))?.try_into().map_err(A::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["unix:/run/weir/nbd.sock", "unix:a b", "127.0.0.1:10809", "[::1]:10809"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "localhost", ":10809", "localhost:nbd", "localhost:70000"] {
            assert!(text.parse::<Address>().unwrap_err().contains(&format!("{text:?}")));
        }
    }

    #[test]
    fn options_of_an_address_are_read_from_text_and_from_a_table_alike() {
        let text: Listen = r"unix:a\,b,mode=0660,owner=root,group=7,allow=uid:1,allow=gid:2"
            .parse()
            .expect("an address");
        let rights = Rights { mode: 0o660, owner: Some(0), group: Some(7) };
        assert_eq!((&text.address, &text.rights), (&Address::Unix("a,b".into()), &rights));
        assert_eq!(text.allow.to_string(), "uid:1, gid:2");
        #[derive(Deserialize)]
        struct File {
            listen: Vec<Listen>,
        }
        let file = r#"listen = [{ address = 'unix:a\,b', mode = "0660", owner = "root",
            group = "7", allow = ["uid:1", "gid:2"] }, { address = "[::]:1", insecure = true }]"#;
        let file: File = toml::from_str(file).expect("a file");
        assert_eq!(file.listen[0], text);
        assert_eq!(file.listen[1], "[::]:1,insecure".parse().expect("an address"));
        assert!(file.listen[1].may_be_remote() && !text.may_be_remote());
        let over: Listen = "[::]:1,tls=require,tls_certificates=/c,tls_verify_peer=off,allow=tls:a"
            .parse()
            .expect("an address");
        let file = r#"listen = [{ address = "[::]:1", tls = "require", tls_certificates = "/c",
            tls_verify_peer = false, allow = ["tls:a"] }]"#;
        let file: File = toml::from_str(file).expect("a file");
        assert_eq!(file.listen[0], over);
        assert!(over.may_be_remote() && over.tls.rule == Some(TlsRule::Require));
        let plain: Listen = "unix:x".parse().expect("an address");
        assert_eq!(plain.rights.mode, 0o600);
    }

    #[test]
    fn a_bad_option_is_named_with_its_address_and_what_would_be_right() {
        for (text, part) in [
            ("unix:x,frob=1", "unknown option \"frob\" of a UNIX address; valid: mode, owner"),
            ("unix:x,insecure", "valid: mode, owner, group, allow"),
            ("[::1]:1,mode=0600", "of a TCP address; valid: insecure, allow"),
            ("unix:x,mode=1777", "mode=1777 is not octal in 0..=0777"),
            ("unix:x,mode=+60", "mode=+60"),
            ("unix:x,mode=8", "mode=8"),
            ("unix:x,mode", "mode needs a value"),
            ("unix:x,owner=no one", "owner=no one: \"no one\" is neither"),
            ("unix:x,group=", "group=: \"\" is neither"),
            ("unix:x,allow=frob", "allow=frob: it is none of"),
            ("[::1]:1,insecure=x", "insecure=x is neither on nor off"),
            ("[::1]:1,tls=yes", "tls=yes is none of off, on and require"),
            ("unix:x,tls_verify_peer=2", "tls_verify_peer=2 is neither on nor off"),
        ] {
            let why = text.parse::<Listen>().expect_err(text);
            assert!(why.contains(&format!("address {text:?}: ")) && why.contains(part), "{why}");
        }
    }
}
