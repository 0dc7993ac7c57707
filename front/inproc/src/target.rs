//! The one parser of target strings: `KIND:REST[,OPTION=VALUE]...`.
//!
//! A comma inside a path is written `\,`, a plus `\+`, a backslash `\\`; those in the value of an
//! option that stands in double quotes need nothing. What it yields is checked as far as text can
//! be; the rest is up to the driver.

use std::path::PathBuf;

use weir_driver_nbd::Address;
use weir_local::Io;
use weir_queue::{Config, QueueMode, Spread};
use weir_sched::SCHEDULERS;

use crate::cmdline::Cmdline;
use crate::units::{parse_size, parse_time_ns};

/// Where the bytes really go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nowhere.
    Null {
        /// Size in bytes.
        bytes: u64,
        /// Delay of each answer.
        latency_ns: u64,
    },
    /// Sparse memory.
    Ram {
        /// Size in bytes.
        bytes: u64,
    },
    /// A file or a block device.
    File {
        /// Which.
        path: PathBuf,
        /// Its size if it must be created.
        size: Option<u64>,
        /// Who makes the calls to the kernel.
        io: Io,
        /// `cache=none`: go past the page cache where that is possible; else `cache=writeback`.
        direct: bool,
        /// A symbolic link at the end of the path is followed.
        follow: bool,
    },
    /// An NBD server.
    Nbd {
        /// Where it listens.
        server: Address,
        /// The export's name; empty for the default one.
        export: String,
        /// Connections, each a hard queue.
        connections: u16,
        /// Seconds for which requests wait for a server that is lost; `None`: as long as the
        /// disk's `io_timeout`.
        reconnect_s: Option<u64>,
        /// How TLS is spoken; `None`: it is not.
        tls: Option<Tls>,
    },
}

/// How TLS is spoken to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A folder with `ca-cert.pem`, and `client-cert.pem` and `client-key.pem` where the server
    /// asks for a certificate.
    pub certificates: PathBuf,
    /// The name the server's certificate has to bear; `None`: the host's, or `localhost` behind a
    /// UNIX socket.
    pub hostname: Option<String>,
}

/// A target, parsed.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where the bytes go.
    pub backing: Backing,
    /// How the queues in front of it are built; `queues` counts only if
    /// [`queues_given`](Target::queues_given).
    pub config: Config,
    /// Whether the number of hard queues was stated.
    pub queues_given: bool,
    /// Whether the queue mode was stated.
    pub mode_given: bool,
    /// The boot parameters for this disk alone.
    pub cmdline: Cmdline,
    /// The attributes of `queue` in the tree that were stated, each as its file there takes it;
    /// the last of a name counts.
    pub attributes: Vec<(&'static str, u64)>,
}

/// The port NBD uses by default.
pub const NBD_PORT: u16 = 10809;

/// One option: its name, which kinds have it, and what it takes, for messages.
struct Known {
    name: &'static str,
    kind: Option<&'static str>,
    set: fn(&mut Target, &str) -> Result<(), String>,
}

const OPTIONS: &[Known] = &[
    Known { name: "queue_mode", kind: None, set: set_queue_mode },
    Known { name: "queues", kind: None, set: set_queues },
    Known { name: "spread", kind: None, set: set_spread },
    Known {
        name: "scheduler",
        kind: None,
        set: |target, value| {
            target.config.scheduler = Some(String::from(value));
            Ok(())
        },
    },
    Known {
        name: "compat",
        kind: None,
        set: |target, value| {
            target.config.compat = Some(String::from(value));
            Ok(())
        },
    },
    Known {
        name: "nr_requests",
        kind: None,
        set: |target, value| {
            let count = target.attribute("nr_requests", value, 4, 2048)?;
            target.config.nr_requests = Some(count as u16);
            Ok(())
        },
    },
    Known {
        name: "nomerges",
        kind: None,
        set: |target, value| {
            target.config.nomerges = target.attribute("nomerges", value, 0, 2)? as u8;
            Ok(())
        },
    },
    Known {
        name: "max_sectors_kb",
        kind: None,
        set: |target, value| {
            let kib = target.attribute("max_sectors_kb", value, 4, 1 << 20)?;
            target.config.max_user_sectors = kib as u32 * 2;
            Ok(())
        },
    },
    Known {
        name: "io_timeout",
        kind: None,
        set: |target, value| {
            let ms = target.attribute("io_timeout", value, 1, u64::from(u32::MAX))?;
            target.config.timeout_ns = ms * 1_000_000;
            Ok(())
        },
    },
    Known {
        name: "barriers",
        kind: None,
        set: |target, value| {
            target.config.barriers = switch("barriers", value)?;
            Ok(())
        },
    },
    Known {
        name: "readonly",
        kind: None,
        set: |target, value| {
            target.config.read_only = switch("readonly", value)?;
            Ok(())
        },
    },
    Known {
        name: "kernel_cmdline",
        kind: None,
        set: |target, value| {
            let line = match value.strip_prefix('"') {
                None => value,
                Some(rest) => rest.strip_suffix('"').ok_or_else(|| {
                    format!("kernel_cmdline={value} has no closing quote before the next option")
                })?,
            };
            target.cmdline = Cmdline::parse(line)?;
            Ok(())
        },
    },
    Known { name: "latency_us", kind: Some("null"), set: set_latency },
    Known { name: "size", kind: Some("file"), set: set_file_size },
    Known { name: "io", kind: Some("file"), set: set_file_io },
    Known { name: "cache", kind: Some("file"), set: set_file_cache },
    Known {
        name: "follow",
        kind: Some("file"),
        set: |target, value| {
            let on = switch("follow", value)?;
            if let Backing::File { follow, .. } = &mut target.backing {
                *follow = on;
            }
            Ok(())
        },
    },
    Known { name: "connections", kind: Some("nbd"), set: set_connections },
    Known { name: "reconnect", kind: Some("nbd"), set: set_reconnect },
    Known { name: "tls-certificates", kind: Some("nbd"), set: |t, v| set_tls(t, CERTIFICATES, v) },
    Known { name: "tls-hostname", kind: Some("nbd"), set: |t, v| set_tls(t, HOSTNAME, v) },
];

/// The parameters of TLS, as libnbd's URIs and the options of a target have them.
const CERTIFICATES: &str = "tls-certificates";
const HOSTNAME: &str = "tls-hostname";

impl Target {
    /// Parses a target string.
    ///
    /// # Errors
    /// A sentence naming the part that is wrong and what would be right.
    pub fn parse(text: &str) -> Result<Target, String> {
        let mut parts = split_at_commas(text).into_iter();
        let head = parts.next().unwrap_or_default();
        let (kind, rest) = head.split_once(':').ok_or_else(|| kind_error(text))?;
        let (kind, backing) = parse_backing(kind, rest, text)?;
        let config = Config::default();
        let (queues_given, mode_given, cmdline) = (false, false, Cmdline::default());
        let attributes = Vec::new();
        let mut target = Target { backing, config, queues_given, mode_given, cmdline, attributes };
        for option in parts {
            target.apply(kind, &option)?;
        }
        target.check(text)?;
        Ok(target)
    }

    fn apply(&mut self, kind: &'static str, option: &str) -> Result<(), String> {
        // `readonly` alone means `readonly=on`.
        let (name, value) = option.split_once('=').unwrap_or((option, "on"));
        let of_kind = |known: &&Known| known.kind.is_none_or(|only| only == kind);
        let Some(known) = OPTIONS.iter().filter(of_kind).find(|known| known.name == name) else {
            let tunables = SCHEDULERS.iter().flat_map(|entry| entry.tunables);
            if tunables.clone().any(|tunable| tunable.name == name) && option.contains('=') {
                self.config.tunables.push((String::from(name), String::from(value)));
                return Ok(());
            }
            let valid: Vec<_> = OPTIONS.iter().filter(of_kind).map(|known| known.name).collect();
            return Err(format!(
                "unknown option {name:?} of a {kind} target; valid: {}, and the tunables of its \
                 scheduler",
                valid.join(", ")
            ));
        };
        if !option.contains('=') && name != "readonly" {
            return Err(format!("option {name} needs a value, as in {name}=..."));
        }
        (known.set)(self, value)
    }

    /// Reads the number of an attribute, and keeps that it was stated.
    fn attribute(
        &mut self,
        name: &'static str,
        text: &str,
        least: u64,
        most: u64,
    ) -> Result<u64, String> {
        let value = number(name, text, least, most)?;
        self.attributes.retain(|(known, _)| *known != name);
        self.attributes.push((name, value));
        Ok(value)
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let config = &self.config;
        if config.mode == QueueMode::Sq && self.queues_given && config.queues != 1 {
            return Err(format!("queues={} in {text:?}: queue_mode=sq has 1", config.queues));
        }
        if config.mode == QueueMode::Sq && config.spread == Spread::RoundRobin {
            return Err(format!(
                "spread=round-robin in {text:?}: queue_mode=sq has one list and nothing to spread"
            ));
        }
        if let Backing::Nbd { connections, .. } = &self.backing
            && self.queues_given
            && config.queues != *connections
        {
            return Err(format!(
                "queues={} in {text:?}: an nbd target has as many as connections={connections}",
                config.queues
            ));
        }
        if let Backing::Nbd { tls: Some(tls), .. } = &self.backing
            && tls.certificates.as_os_str().is_empty()
        {
            return Err(format!("target {text:?} names no folder: {CERTIFICATES}=DIR"));
        }
        Ok(())
    }
}

fn kind_error(text: &str) -> String {
    format!(
        "target {text:?} does not start with null:SIZE, ram:SIZE, file:PATH, \
         nbd:HOST:PORT[/EXPORT], nbd+unix:PATH[?EXPORT] or one of these with nbds for TLS"
    )
}

fn parse_backing(kind: &str, rest: &str, text: &str) -> Result<(&'static str, Backing), String> {
    match kind {
        "null" => Ok(("null", Backing::Null { bytes: device_size(rest)?, latency_ns: 0 })),
        "ram" => Ok(("ram", Backing::Ram { bytes: device_size(rest)? })),
        "file" if rest.is_empty() => Err(format!("target {text:?} names no file")),
        "file" => {
            let path = PathBuf::from(rest);
            Ok((
                "file",
                Backing::File { path, size: None, io: Io::Auto, direct: true, follow: true },
            ))
        }
        "nbd" | "nbds" => {
            let mut tls = (kind == "nbds").then(Tls::default);
            let (server, export) = match rest.strip_prefix("//") {
                Some(uri) => {
                    let uri = match &mut tls {
                        Some(tls) => take_parameters(uri, tls, text)?,
                        None => uri,
                    };
                    parse_tcp(uri.trim_end_matches('/'), Some(NBD_PORT), text)?
                }
                None => parse_tcp(rest, None, text)?,
            };
            Ok(("nbd", Backing::Nbd { server, export, connections: 1, reconnect_s: None, tls }))
        }
        "nbd+unix" | "nbds+unix" => {
            let mut tls = (kind == "nbds+unix").then(Tls::default);
            let (path, export) = match rest.strip_prefix("//") {
                Some(uri) => {
                    let found = parse_unix_uri(uri, text)?;
                    if let Some(tls) = &mut tls {
                        take_parameters(uri, tls, text)?;
                    }
                    found
                }
                None => rest.split_once('?').unwrap_or((rest, "")),
            };
            if path.is_empty() {
                return Err(format!("target {text:?} names no socket"));
            }
            let server = Address::Unix(PathBuf::from(path));
            let export = String::from(export);
            Ok(("nbd", Backing::Nbd { server, export, connections: 1, reconnect_s: None, tls }))
        }
        _ => Err(kind_error(text)),
    }
}

fn device_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes == 0 || !bytes.is_multiple_of(512) {
        return Err(format!("size {text:?} is not a multiple of 512 bytes above 0"));
    }
    Ok(bytes)
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
}

fn set_tls(target: &mut Target, name: &str, value: &str) -> Result<(), String> {
    match &mut target.backing {
        Backing::Nbd { tls: Some(tls), .. } => {
            tls.set(name, value);
            Ok(())
        }
        _ => Err(format!("{name}={value} of a target without TLS, which begins with nbds")),
    }
}

/// Cuts a target string at commas that neither a backslash nor quotes protect, and takes the
/// backslashes away: the kind with its rest, then the options.
#[must_use]
pub fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let options = parts.len() > 1;
        let part = parts.last_mut().expect("one part");
        match c {
            '\\' => match chars.next() {
                Some(c @ (',' | '+' | '\\')) => part.push(c),
                Some(c) => part.extend(['\\', c]),
                None => part.push('\\'),
            },
            ',' if !quoted => parts.push(String::new()),
            // Quotes open behind the first `=` of an option and close before the next option: those
            // between, as in a boot parameter, are part of the value.
            '"' if quoted => {
                quoted = !matches!(chars.as_str().chars().next(), None | Some(','));
                part.push(c);
            }
            '"' => {
                let opens = part.find('=').is_some_and(|at| at + 1 == part.len());
                quoted = options && opens && closes(chars.as_str());
                part.push(c);
            }
            c => part.push(c),
        }
    }
    parts
}

/// Whether quotes that were opened close further on.
fn closes(text: &str) -> bool {
    text.ends_with('"') || text.contains("\",")
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, String> {
    let error = || format!("{name}={text} is not a number in {least}..={most}");
    let value: u64 = text.parse().map_err(|_| error())?;
    if (least..=most).contains(&value) { Ok(value) } else { Err(error()) }
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" | "1" | "true" | "yes" => Ok(true),
        "off" | "0" | "false" | "no" => Ok(false),
        _ => Err(format!("{name}={text} is neither on nor off")),
    }
}

fn set_queue_mode(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.mode = match value {
        "sq" => QueueMode::Sq,
        "mq" => QueueMode::Mq,
        _ => return Err(format!("queue_mode={value} is neither sq nor mq")),
    };
    target.mode_given = true;
    Ok(())
}

fn set_queues(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.queues = number("queues", value, 1, 64)? as u16;
    target.queues_given = true;
    Ok(())
}

fn set_spread(target: &mut Target, value: &str) -> Result<(), String> {
    target.config.spread = match value {
        "submitter" => Spread::Submitter,
        "round-robin" => Spread::RoundRobin,
        _ => return Err(format!("spread={value} is neither submitter nor round-robin")),
    };
    Ok(())
}

fn set_latency(target: &mut Target, value: &str) -> Result<(), String> {
    let us = number("latency_us", value, 0, 3_600_000_000)?;
    if let Backing::Null { latency_ns, .. } = &mut target.backing {
        *latency_ns = us * 1000;
    }
    Ok(())
}

fn set_file_size(target: &mut Target, value: &str) -> Result<(), String> {
    let bytes = device_size(value)?;
    if let Backing::File { size, .. } = &mut target.backing {
        *size = Some(bytes);
    }
    Ok(())
}

fn set_file_io(target: &mut Target, value: &str) -> Result<(), String> {
    let chosen = match value {
        "auto" => Io::Auto,
        "uring" => Io::Uring,
        "threads" => Io::Threads,
        _ => return Err(format!("io={value} is neither auto, uring nor threads")),
    };
    if let Backing::File { io, .. } = &mut target.backing {
        *io = chosen;
    }
    Ok(())
}

fn set_file_cache(target: &mut Target, value: &str) -> Result<(), String> {
    let chosen = match value {
        "none" => true,
        "writeback" => false,
        _ => return Err(format!("cache={value} is neither none nor writeback")),
    };
    if let Backing::File { direct, .. } = &mut target.backing {
        *direct = chosen;
    }
    Ok(())
}

fn set_connections(target: &mut Target, value: &str) -> Result<(), String> {
    let count = number("connections", value, 1, 64)? as u16;
    if let Backing::Nbd { connections, .. } = &mut target.backing {
        *connections = count;
    }
    Ok(())
}

fn set_reconnect(target: &mut Target, value: &str) -> Result<(), String> {
    let seconds = number("reconnect", value, 0, u64::from(u32::MAX) / 1000)?;
    if let Backing::Nbd { reconnect_s, .. } = &mut target.backing {
        *reconnect_s = Some(seconds);
    }
    Ok(())
}

/// A time option of a command, for callers that have no target to set.
///
/// # Errors
/// See [`parse_time_ns`].
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    parse_time_ns(text).map(std::time::Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(text: &str) -> Backing {
        Target::parse(text).unwrap().backing
    }

    fn error(text: &str) -> String {
        Target::parse(text).unwrap_err()
    }

    #[test]
    fn each_kind_is_understood() {
        assert_eq!(backing("null:1G"), Backing::Null { bytes: 1 << 30, latency_ns: 0 });
        assert_eq!(
            backing("null:1G,latency_us=5"),
            Backing::Null { bytes: 1 << 30, latency_ns: 5000 }
        );
        assert_eq!(backing("ram:64MiB"), Backing::Ram { bytes: 64 << 20 });
        assert_eq!(
            backing(r"file:/a\,b.img,size=1M"),
            Backing::File {
                path: PathBuf::from("/a,b.img"),
                size: Some(1 << 20),
                io: Io::Auto,
                direct: true,
                follow: true
            }
        );
        let threads = backing("file:/a,io=threads");
        for (text, past) in [("cache=none", true), ("cache=writeback", false)] {
            let file = backing(&format!("file:/a,{text}"));
            assert!(matches!(file, Backing::File { direct, .. } if direct == past), "{file:?}");
        }
        let why = Target::parse("file:/a,cache=unsafe").unwrap_err();
        assert!(why.contains("cache=unsafe is neither none nor writeback"), "{why}");
        assert!(Target::parse("ram:1M,cache=none").is_err());
        let unfollowed = backing("file:/a,follow=off");
        assert!(matches!(unfollowed, Backing::File { follow: false, .. }), "{unfollowed:?}");
        assert!(matches!(threads, Backing::File { io: Io::Threads, .. }), "{threads:?}");
    }

    #[test]
    fn an_option_that_begins_with_a_quote_is_an_error_like_any_other() {
        assert_eq!(split_at_commas("ram:1M,\"a,b\""), ["ram:1M", "\"a", "b\""]);
        assert!(error("ram:1M,\"").starts_with("unknown option \"\\\"\" of a ram target"));
    }

    #[test]
    fn commas_in_quotes_belong_to_the_value() {
        for (text, elevator, others) in [
            (
                r#"ram:1M,kernel_cmdline="console=ttyS0,115200 elevator=noop",nomerges=2"#,
                Some("noop"),
                &["console=ttyS0,115200"][..],
            ),
            (
                r#"ram:1M,kernel_cmdline="foo="a, b" elevator=noop",nomerges=2"#,
                Some("noop"),
                &[r#"foo="a, b""#],
            ),
            (
                r#"ram:1M,kernel_cmdline=console=ttyS0\,115200,nomerges=2"#,
                None,
                &["console=ttyS0,115200"],
            ),
            (r#"ram:1M,nomerges=2,kernel_cmdline="a,b""#, None, &["a,b"]),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.cmdline.elevator.as_deref(), elevator, "{text}");
            assert_eq!(target.cmdline.others, others, "{text}");
            assert_eq!(target.config.nomerges, 2, "{text}: the options behind it hold");
        }
        let path = backing(r#"file:/a"b,size=1M"#);
        assert!(matches!(&path, Backing::File { path, .. } if path.ends_with("a\"b")), "{path:?}");
    }

    #[test]
    fn a_server_over_tls_has_a_folder_of_certificates_and_perhaps_a_name() {
        for (text, certificates, name) in [
            ("nbds://host,tls-certificates=/c", "/c", None),
            ("nbds://host:1/x?tls-certificates=/c&tls-hostname=h", "/c", Some("h")),
            ("nbds:host:1/x,tls-certificates=/c,tls-hostname=h", "/c", Some("h")),
            ("nbds+unix:///x?socket=/s&tls-certificates=/c", "/c", None),
            ("nbds+unix:/s?x,tls-certificates=/c", "/c", None),
        ] {
            let Backing::Nbd { tls: Some(tls), server, export, .. } = backing(text) else {
                panic!("{text}")
            };
            assert_eq!((tls.certificates, tls.hostname.as_deref()), (certificates.into(), name));
            assert!(!format!("{server}{export}").contains("tls"), "{server} {export}");
        }
        for (text, words) in [
            ("nbds://host", "tls-certificates=DIR"),
            ("nbds://host?tls-psk-file=/k", "tls-psk-file"),
            ("nbd://host,tls-certificates=/c", "begins with nbds"),
        ] {
            let why = Target::parse(text).expect_err(text);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn nbd_servers_are_named_in_four_ways() {
        let tcp = |host: &str, port, export: &str| Backing::Nbd {
            tls: None,
            server: Address::Tcp { host: String::from(host), port },
            export: String::from(export),
            connections: 1,
            reconnect_s: None,
        };
        let unix = |path: &str, export: &str| Backing::Nbd {
            tls: None,
            server: Address::Unix(PathBuf::from(path)),
            export: String::from(export),
            connections: 1,
            reconnect_s: None,
        };
        assert_eq!(backing("nbd:localhost:20000/a"), tcp("localhost", 20000, "a"));
        assert_eq!(backing("nbd:[::1]:20000"), tcp("::1", 20000, ""));
        assert_eq!(backing("nbd://host"), tcp("host", NBD_PORT, ""));
        assert_eq!(backing("nbd://host:1/x"), tcp("host", 1, "x"));
        assert_eq!(backing("nbd+unix:/s.sock?disk"), unix("/s.sock", "disk"));
        assert_eq!(backing("nbd+unix:///e?socket=/s"), unix("/s", "e"));
        assert_eq!(backing("nbd+unix://?socket=s.sock"), unix("s.sock", ""));
    }

    #[test]
    fn a_server_is_waited_for_as_long_as_is_stated() {
        for (text, expected) in [("nbd:h:1", None), ("nbd:h:1,reconnect=0", Some(0))] {
            let Backing::Nbd { reconnect_s, .. } = backing(text) else { panic!("{text}") };
            assert_eq!(reconnect_s, expected, "{text}");
        }
    }

    #[test]
    fn options_reach_the_configuration() {
        let target = Target::parse(
            "ram:1M,queue_mode=sq,scheduler=noop,nr_requests=64,nomerges=2,barriers=off,readonly,\
             max_sectors_kb=64,io_timeout=500",
        )
        .unwrap();
        let config = target.config;
        assert_eq!(config.mode, QueueMode::Sq);
        assert_eq!((config.nr_requests, config.nomerges), (Some(64), 2));
        assert!(!config.barriers && config.read_only);
        assert_eq!((config.max_user_sectors, config.timeout_ns), (128, 500_000_000));
        let stated = [("nr_requests", 64), ("nomerges", 2), ("max_sectors_kb", 64)];
        assert_eq!(target.attributes[..3], stated);
        let twice = Target::parse("ram:1M,nr_requests=8,nr_requests=064").unwrap();
        assert_eq!(twice.attributes, [("nr_requests", 64)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, part) in [
            ("disk:1G", "does not start with"),
            ("ram", "does not start with"),
            ("ram:1000", "multiple of 512"),
            ("ram:1G,latency_us=1", "valid: queue_mode"),
            ("ram:1G,nr_requests=3", "nr_requests=3 is not a number in 4..=2048"),
            ("ram:1G,queue_mode=xq", "neither sq nor mq"),
            ("ram:1G,queue_mode=sq,queues=2", "queue_mode=sq has 1"),
            ("ram:1G,queue_mode=sq,spread=round-robin", "spread=round-robin in"),
            ("ram:1G,nomerges", "needs a value"),
            ("ram:1G,kernel_cmdline=\"dm_mod.use_blk_mq=maybe\"", "dm_mod.use_blk_mq=maybe"),
            ("ram:1G,kernel_cmdline=\"quiet", "has no closing quote"),
            ("ram:1G,kernel_cmdline=\"", "has no closing quote"),
            ("nbd:host", "names no port"),
            ("nbd:host:99999", "99999"),
            ("nbd:h:1,connections=2,queues=3", "connections=2"),
            ("nbd:h:1,reconnect=soon", "reconnect=soon is not a number in 0..=4294967"),
            ("ram:1M,reconnect=1", "unknown option \"reconnect\""),
            ("nbd+unix:", "names no socket"),
            ("file:", "names no file"),
            ("file:/a,io=aio", "neither auto, uring nor threads"),
            ("ram:1M,io=uring", "unknown option \"io\""),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }
}
