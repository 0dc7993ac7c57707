//! The kind of target of this crate: an export of an NBD server, named in the short form of weir or
//! as a URI, with TLS where the name says `nbds`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weir_bio::units::parse_number;
use weir_proto_nbd::wire::PORT;
use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, NoticeListener, OpenedBacking, Speaker,
    TargetKind, TargetOption, Written,
};

use crate::{Address, ClientTls, Nbd, Options};

/// The parameters of TLS, as libnbd's URIs and the options of a target have them.
const CERTIFICATES: &str = "tls-certificates";
const HOSTNAME: &str = "tls-hostname";

/// An export of an NBD server.
pub const KIND: TargetKind = TargetKind {
    names: &["nbd", "nbd+unix", "nbds", "nbds+unix"],
    syntax: &[
        "nbd:HOST:PORT[/EXPORT]",
        "nbd+unix:PATH[?EXPORT]",
        "nbd://HOST[:PORT][/EXPORT]",
        "nbd+unix:///[EXPORT]?socket=PATH",
        "one of these with `nbds` for TLS",
    ],
    example: "nbd://127.0.0.1/disk,connections=4",
    doc: "An export of an NBD server.",
    options: &[
        TargetOption {
            name: "connections",
            values: "NUMBER",
            default: "1",
            doc: "Connections to the server, each a hard queue.",
        },
        TargetOption {
            name: "reconnect",
            values: "SECONDS",
            default: "io_timeout",
            doc: "How long requests wait for a server that is lost; 0: they fail at once.",
        },
        TargetOption {
            name: CERTIFICATES,
            values: "DIR",
            default: "none",
            doc: "The folder with `ca-cert.pem` and, where the server asks for a certificate, \
                  `client-cert.pem` and `client-key.pem`.",
        },
        TargetOption {
            name: HOSTNAME,
            values: "NAME",
            default: "the host, or localhost",
            doc: "The name that the server's certificate has to bear.",
        },
    ],
    parse,
};

#[derive(Clone, Debug)]
struct NbdTarget {
    server: Address,
    /// Empty for the default one.
    export: String,
    connections: u16,
    /// `None`: as long as the disk's `io_timeout`.
    reconnect_s: Option<u64>,
    /// `None`: it is not spoken.
    tls: Option<Tls>,
}

/// How TLS is spoken to a server.
#[derive(Clone, Debug, Default)]
struct Tls {
    certificates: PathBuf,
    hostname: Option<String>,
}

/// The one spelling of a host that may be written in several. The addresses of this machine's
/// loopback are one host: a server at one of them is as a rule at all.
fn one_name(host: &str) -> String {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.parse::<IpAddr>().map(|address| address.to_canonical());
    match address {
        Ok(IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST)) => {
            String::from("localhost")
        }
        Ok(address) => address.to_string(),
        Err(_) => host,
    }
}

fn parse(written: &Written<'_>) -> Result<Box<dyn Backing>, String> {
    let Written { name, rest, text } = *written;
    let mut tls = name.starts_with("nbds").then(Tls::default);
    if tls.is_some() && !weir_tls::IS_BUILT_IN {
        // Nothing else that may be wrong with it counts.
        return Err(format!("target {text:?}: {name}: takes the feature `tls` of weir-block"));
    }
    let uri = rest.strip_prefix("//");
    let (server, export) = if name.ends_with("+unix") {
        let (path, export) = match uri {
            Some(uri) => parse_unix_uri(uri, text)?,
            None => rest.split_once('?').unwrap_or((rest, "")),
        };
        if let (Some(uri), Some(tls)) = (uri, &mut tls) {
            take_parameters(uri, tls, text)?;
        }
        if path.is_empty() {
            return Err(format!("target {text:?} names no socket"));
        }
        (Address::Unix(PathBuf::from(path)), String::from(export))
    } else {
        match (uri, &mut tls) {
            (Some(uri), Some(tls)) => {
                let uri = take_parameters(uri, tls, text)?;
                parse_tcp(uri.trim_end_matches('/'), Some(PORT), text)?
            }
            (Some(uri), None) => parse_tcp(uri.trim_end_matches('/'), Some(PORT), text)?,
            (None, _) => parse_tcp(rest, None, text)?,
        }
    };
    Ok(Box::new(NbdTarget { server, export, connections: 1, reconnect_s: None, tls }))
}

/// `HOST:PORT[/EXPORT]`; IPv6 addresses in brackets.
fn parse_tcp(rest: &str, default: Option<u16>, text: &str) -> Result<(Address, String), String> {
    let (address, export) = rest.split_once('/').unwrap_or((rest, ""));
    let after_host = address.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match (address[after_host..].rfind(':'), default) {
        (Some(colon), _) => {
            let (host, port) = address.split_at(after_host + colon);
            let port = port[1..].parse().map_err(|_| {
                format!("port {:?} in {text:?} is not a number in 0..=65535", &port[1..])
            })?;
            (host, port)
        }
        (None, Some(port)) => (address, port),
        (None, None) => return Err(format!("target {text:?} names no port: nbd:HOST:PORT")),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(format!("target {text:?} names no host"));
    }
    Ok((Address::Tcp { host: String::from(host), port }, String::from(export)))
}

/// `[/EXPORT]?socket=PATH`, the standard form behind `nbd+unix://`.
fn parse_unix_uri<'a>(uri: &'a str, text: &str) -> Result<(&'a str, &'a str), String> {
    let (export, query) = uri.split_once('?').unwrap_or((uri, ""));
    let path = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    let path = path.ok_or_else(|| format!("target {text:?} has no ?socket=PATH"))?;
    Ok((path, export.trim_start_matches('/')))
}

/// Takes the parameters of TLS behind a URI's `?`; what stands before it.
fn take_parameters<'a>(uri: &'a str, tls: &mut Tls, text: &str) -> Result<&'a str, String> {
    let (before, query) = uri.split_once('?').unwrap_or((uri, ""));
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("socket", _)) => {}
            Some((name @ (CERTIFICATES | HOSTNAME), value)) => tls.set(name, value),
            _ => {
                return Err(format!(
                    "parameter {pair:?} in {text:?} is neither {CERTIFICATES}=DIR nor \
                     {HOSTNAME}=NAME"
                ));
            }
        }
    }
    Ok(before)
}

impl Tls {
    fn set(&mut self, name: &str, value: &str) {
        match name {
            HOSTNAME => self.hostname = Some(String::from(value)),
            _ => self.certificates = PathBuf::from(value),
        }
    }

    fn read(&self, server: &Address) -> Result<ClientTls, DriverError> {
        let name = match (&self.hostname, server) {
            (Some(name), _) => name,
            (None, Address::Tcp { host, .. }) => host,
            // As nbdkit and qemu-nbd are asked for on their own machine.
            (None, Address::Unix(_)) => "localhost",
        };
        let read = ClientTls::read(&self.certificates, name);
        read.map_err(|error| DriverError { what: error.to_string(), source: None })
    }
}

impl Backing for NbdTarget {
    fn kind(&self) -> &'static TargetKind {
        &KIND
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "connections" => self.connections = parse_number(option, value, 1, 64)? as u16,
            "reconnect" => {
                let seconds = parse_number(option, value, 0, u64::from(u32::MAX) / 1000)?;
                self.reconnect_s = Some(seconds);
            }
            // One of TLS.
            _ => match &mut self.tls {
                Some(tls) => tls.set(option, value),
                None => {
                    return Err(format!(
                        "{option}={value} of a target without TLS, which begins with nbds"
                    ));
                }
            },
        }
        Ok(())
    }

    fn check(&self, config: &Config, queues_given: bool, text: &str) -> Result<(), String> {
        let (queues, connections) = (config.queues, self.connections);
        if queues_given && queues != connections {
            return Err(format!(
                "queues={queues} in {text:?}: an nbd target has as many as \
                 connections={connections}"
            ));
        }
        match &self.tls {
            Some(tls) if tls.certificates.as_os_str().is_empty() => {
                Err(format!("target {text:?} names no folder: {CERTIFICATES}=DIR"))
            }
            _ => Ok(()),
        }
    }

    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError> {
        let reconnect = match (self.reconnect_s, config.timeout_ns) {
            (Some(seconds), _) => Duration::from_secs(seconds),
            // A disk that never gives a request up never gives its server up.
            (None, 0) => Duration::MAX,
            (None, timeout_ns) => Duration::from_nanos(timeout_ns),
        };
        let options = Options {
            connections: self.connections,
            barriers_off: !config.barriers,
            read_only: config.read_only,
            reconnect,
            ..Options::default()
        };
        let tls = self.tls.as_ref().map(|tls| tls.read(&self.server)).transpose()?;
        let nbd = Nbd::connect_over(self.server.clone(), &self.export, options, tls)?;
        let (notices, nbd) = (nbd.notices(), Arc::new(nbd));
        let speaker: Box<dyn Speaker> = Box::new(NbdSpeaker(Arc::clone(&nbd)));
        Ok(OpenedBacking { driver: nbd, notices, speaker: Some(speaker), map: None })
    }

    fn queues(&self, driver: &dyn Driver, _homes: u16) -> u16 {
        driver.queues().max.clamp(1, 64)
    }

    fn identity(&self) -> Identity {
        match &self.server {
            Address::Unix(path) => Identity::Socket(path.clone(), self.export.clone()),
            Address::Tcp { host, port } => {
                let tcp = Address::Tcp { host: one_name(host), port: *port };
                Identity::Remote(tcp.to_string(), self.export.clone())
            }
        }
    }

    fn settings(&self) -> String {
        format!("{:?}", (&self.export, self.connections, self.reconnect_s, &self.tls))
    }

    fn keeps(&self) -> Keeps {
        Keeps::Flushed
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

struct NbdSpeaker(Arc<Nbd>);

impl Speaker for NbdSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.on_notice(move |notice| listener(notice));
    }
}
