//! The section `[nbd]` of the configuration.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use weir_access::{Allow, Listen, TlsRule};
use weir_control::config::{
    CLIENTS_MAX, memory_of, minimum_block, parse_memory, parse_minimum_block,
};
use weir_front::{FrontOption, default_memory};

use crate::settings::Settings;

/// The options of the section.
pub(crate) const OPTIONS: &[FrontOption] = &[
    FrontOption {
        name: "listen",
        values: "addresses with options, or tables of the same",
        default: "`unix:./weir-data/nbd.sock`",
        flag: Some("--nbd"),
        doc: "The addresses: `unix:PATH` or `HOST:PORT`.",
    },
    FrontOption {
        name: "insecure",
        values: "true, false",
        default: "false",
        flag: None,
        doc: "Addresses may be reached by other hosts, though nothing is encrypted.",
    },
    FrontOption {
        name: "allow",
        values: "a list, as in `[\"uid:1000\"]`",
        default: "all clients",
        flag: None,
        doc: "The clients that are let in at every address that states none.",
    },
    FrontOption {
        name: "memory",
        values: "a size, 64MiB or more",
        default: "a quarter of the machine's memory",
        flag: Some("--memory"),
        doc: "What all clients together may hold.",
    },
    FrontOption {
        name: "clients_per_peer",
        values: "1 to 1024",
        default: "256",
        flag: Some("--clients-per-peer"),
        doc: "Connections that one local user or one address may have at a time.",
    },
    FrontOption {
        name: "tls",
        values: "`off`, `on`, `require`",
        default: "`off`",
        flag: None,
        doc: "Whether TLS is spoken at addresses that do not say.",
    },
    FrontOption {
        name: "tls_certificates",
        values: "a folder",
        default: "",
        flag: None,
        doc: "The folder with `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.",
    },
    FrontOption {
        name: "tls_verify_peer",
        values: "true, false",
        default: "true",
        flag: None,
        doc: "Whether clients have to show a certificate of that authority.",
    },
    FrontOption {
        name: "minimum_block",
        values: "a power of two, 1 to 65536",
        default: "1",
        flag: Some("--minimum-block"),
        doc: "Requests have to be multiples of so many bytes, at every export that does not say.",
    },
];

/// `[nbd]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Nbd {
    pub(crate) listen: Vec<Listen>,
    /// The addresses of the flag, which stand for those of the file.
    #[serde(skip)]
    pub(crate) named: Vec<Listen>,
    pub(crate) insecure: bool,
    pub(crate) allow: Allow,
    #[serde(deserialize_with = "memory_of")]
    pub(crate) memory: Option<u64>,
    #[serde(deserialize_with = "clients_per_peer")]
    pub(crate) clients_per_peer: Option<u16>,
    pub(crate) tls: Option<TlsRule>,
    pub(crate) tls_certificates: Option<PathBuf>,
    pub(crate) tls_verify_peer: Option<bool>,
    #[serde(deserialize_with = "minimum_block")]
    pub(crate) minimum_block: Option<u32>,
}

impl Nbd {
    /// Puts the values of a flag in the place of an option.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    pub(crate) fn set(&mut self, option: &str, values: &[String]) -> Result<(), String> {
        let last = values.last().map_or("", String::as_str);
        match option {
            "listen" => {
                let parsed = values.iter().map(|text| text.parse());
                self.named = parsed.collect::<Result<_, _>>()?;
            }
            "memory" => self.memory = Some(parse_memory(last)?),
            "clients_per_peer" => {
                let refused = || format!("clients_per_peer={last} is outside 1..={CLIENTS_MAX}");
                let clients = last.parse().ok().filter(is_of_clients).ok_or_else(refused)?;
                self.clients_per_peer = Some(clients);
            }
            "minimum_block" => self.minimum_block = Some(parse_minimum_block(last)?),
            _ => return Err(format!("{option} of [nbd] has no flag")),
        }
        Ok(())
    }

    /// How a server treats its clients.
    pub(crate) fn settings(&self) -> Settings {
        let memory = self.memory.unwrap_or_else(default_memory);
        let memory = usize::try_from(memory).unwrap_or(usize::MAX / 2);
        let settings = Settings { memory, ..Settings::default() };
        let own = settings.connections_per_peer;
        let connections_per_peer = self.clients_per_peer.map_or(own, usize::from);
        Settings { connections_per_peer, ..settings }
    }
}

fn is_of_clients(clients: &u16) -> bool {
    (1..=CLIENTS_MAX).contains(clients)
}

// Values of a file are held to their bounds while it is read, because then their lines are known.

fn clients_per_peer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u16>, D::Error> {
    let value = i64::deserialize(from)?;
    let clients = u16::try_from(value).ok().filter(is_of_clients);
    let refused = || format!("clients_per_peer={value} is outside 1..={CLIENTS_MAX}");
    clients.map(Some).ok_or_else(|| serde::de::Error::custom(refused()))
}

#[cfg(test)]
mod tests {
    use weir_control::{Config, ConfigError};

    use super::*;

    fn section(text: &str) -> Result<Nbd, ConfigError> {
        Config::parse(&format!("[nbd]\n{text}\n"), &["nbd"])?.section("nbd")
    }

    fn error(text: &str) -> String {
        section(text).unwrap_err().to_string()
    }

    #[test]
    fn every_option_of_the_section_is_declared_and_no_other() {
        let told = error("frob = 1");
        assert!(told.starts_with("line 2: unknown field `frob`, expected one of "), "{told}");
        let read: Vec<&str> = told.split('`').skip(3).step_by(2).collect();
        let declared: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(read, declared);
        for option in OPTIONS {
            let refused = Nbd::default().set(option.name, &[]);
            let has_no_flag = refused == Err(format!("{} of [nbd] has no flag", option.name));
            assert_eq!(has_no_flag, option.flag.is_none(), "{}", option.name);
        }
    }

    #[test]
    fn what_clients_may_cost_is_held_to_its_bounds() {
        assert_eq!(section("memory = \"1GiB\"").unwrap().memory, Some(1 << 30));
        assert_eq!(section("").unwrap().memory, None);
        for (memory, told) in [
            ("\"63MiB\"", "line 2: memory=\"63MiB\" is below 64 MiB"),
            ("\"much\"", "line 2: \"much\" is not a size"),
            ("64", "line 2: invalid type: integer `64`"),
        ] {
            let error = error(&format!("memory = {memory}"));
            assert!(error.contains(told), "{memory}: {error}");
        }
        let clients = section("clients_per_peer = 1024").unwrap().clients_per_peer;
        assert_eq!(clients, Some(1024));
        for clients in [0, 1025, 65537] {
            let error = error(&format!("clients_per_peer = {clients}"));
            let told = format!("line 2: clients_per_peer={clients} is outside 1..=1024");
            assert!(error.contains(&told), "{error}");
        }
    }

    #[test]
    fn a_minimum_block_is_a_power_of_two_that_the_protocol_knows() {
        assert_eq!(section("minimum_block = 4096").unwrap().minimum_block, Some(4096));
        assert!(error("minimum_block = 3").starts_with("line 2: minimum_block=3 is no power"));
    }

    #[test]
    fn addresses_and_lists_of_clients_are_refused_with_their_line() {
        for (text, told) in [
            ("listen = [\"unix:a,frob=1\"]", "line 2: address \"unix:a,frob"),
            ("listen = [{ address = \"x\" }]", "line 2: address \"x\" is neither"),
            ("listen = [{ frob = 1 }]", "line 2: unknown field `frob`"),
            ("allow = [\"uid:no one\"]", "line 2: allow=uid:no one: \"no one\""),
        ] {
            let error = error(text);
            assert!(error.starts_with(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_flag_stands_above_the_file() {
        let mut nbd = section("memory = \"1GiB\"\nlisten = [\"unix:a\"]").unwrap();
        assert_eq!((nbd.settings().memory, nbd.settings().connections_per_peer), (1 << 30, 256));
        let set = |nbd: &mut Nbd, option, values: &[&str]| {
            let values: Vec<String> = values.iter().map(|value| String::from(*value)).collect();
            nbd.set(option, &values)
        };
        set(&mut nbd, "memory", &["2147483648"]).unwrap();
        set(&mut nbd, "clients_per_peer", &["7"]).unwrap();
        set(&mut nbd, "listen", &["unix:b", "127.0.0.1:1"]).unwrap();
        assert_eq!((nbd.settings().memory, nbd.settings().connections_per_peer), (2 << 30, 7));
        assert_eq!((nbd.named.len(), nbd.listen.len()), (2, 1), "the file's are known to a reload");
        assert!(set(&mut nbd, "clients_per_peer", &["1025"]).unwrap_err().contains("1..=1024"));
        assert!(set(&mut nbd, "listen", &["x"]).is_err());
    }
}
