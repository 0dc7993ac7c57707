//! The kind of target `scsi-sim`, and the simulated targets that this process has open: disks that
//! name the same file are logical units of one target, or paths to one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_bio::units::parse_number;
use weir_driver_scsi::{Host, HostOptions, Unit, UnitOptions};
use weir_proto_scsi::Lun;
use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, NoticeListener, OpenedBacking, Speaker,
    TargetKind, TargetOption, Written,
};
use weir_sim_target::{PortId, Spec};

use super::link::{Patience, Route};
use super::shared::{SharedTarget, TargetTime};
use super::transport::SimTransport;

/// Commands of each session.
const DEPTH: u16 = 128;

/// A simulated SCSI target.
pub const KIND: TargetKind = TargetKind {
    names: &["scsi-sim"],
    syntax: &["scsi-sim:FILE.toml"],
    example: "scsi-sim:DIR/target.toml",
    doc: "A logical unit of a simulated SCSI target, in memory; disks of one process that name the \
          same file share the target, by one port or by several.",
    options: &[
        TargetOption {
            name: "port",
            values: "1 to 65535",
            default: "the file's first",
            doc: "The target port, by its `id`.",
        },
        TargetOption {
            name: "lun",
            values: "0 to 16383",
            default: "the file's first",
            doc: "The logical unit, by its `number`.",
        },
        TargetOption {
            name: "sessions",
            values: "1 to 64",
            default: "1",
            doc: "Sessions with the port, each a hard queue.",
        },
        TargetOption {
            name: "replacement_timeout",
            values: "0 to 86400",
            default: "120",
            doc: "Seconds that commands wait for a port that gives no answer; after twice that a \
                  write no longer lands.",
        },
    ],
    parse,
};

/// A logical unit behind a port.
#[derive(Clone, Debug)]
struct SimUnit {
    path: PathBuf,
    /// `None`: the first.
    port: Option<u16>,
    /// `None`: the first.
    lun: Option<u32>,
    sessions: u16,
    replacement_s: u64,
}

fn parse(written: &Written<'_>) -> Result<Box<dyn Backing>, String> {
    if written.rest.is_empty() {
        return Err(format!("target {:?} names no file", written.text));
    }
    let path = PathBuf::from(written.rest);
    let (port, lun, sessions, replacement_s) = (None, None, 1, 120);
    Ok(Box::new(SimUnit { path, port, lun, sessions, replacement_s }))
}

/// A target that is open, by its file.
struct OpenTarget {
    path: PathBuf,
    text: String,
    spec: Spec,
    target: Weak<SharedTarget>,
    /// Ways to it, which their logical units share.
    hosts: Vec<(HostKey, Weak<Host>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct HostKey {
    port: u16,
    sessions: u16,
    replacement_s: u64,
}

/// Disks of one process reach the same target; nothing else brings them together.
static OPEN: Mutex<Vec<OpenTarget>> = Mutex::new(Vec::new());

fn failed(path: &Path, what: impl std::fmt::Display) -> DriverError {
    DriverError { what: format!("{}: {what}", path.display()), source: None }
}

impl SimUnit {
    /// The host of the port, new or shared, and the logical unit.
    fn host(&self) -> Result<(Arc<Host>, Lun), DriverError> {
        let read = std::fs::read_to_string(&self.path);
        let canonical = self.path.canonicalize();
        let (text, path) = match (read, canonical) {
            (Ok(text), Ok(path)) => (text, path),
            (Err(why), _) | (_, Err(why)) => {
                let what = self.path.display().to_string();
                return Err(DriverError { what, source: Some(why) });
            }
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|one| one.target.strong_count() > 0);
        let known = open.iter().position(|one| one.path == path);
        let (at, target) = match known.and_then(|at| Some((at, open[at].target.upgrade()?))) {
            Some((at, _)) if open[at].text != text => {
                let what = "the file has changed since a disk of this process was opened with it";
                return Err(failed(&self.path, what));
            }
            Some(there) => there,
            None => {
                let spec = Spec::parse(&text).map_err(|why| failed(&self.path, why))?;
                let target = SharedTarget::new(spec.clone(), TargetTime::Clock);
                let shared = Arc::new(target.map_err(|why| failed(&self.path, why))?);
                let (target, hosts) = (Arc::downgrade(&shared), Vec::new());
                open.push(OpenTarget { path, text, spec, target, hosts });
                (open.len() - 1, shared)
            }
        };
        let (port, lun) = self.pick(&open[at].spec)?;
        Ok((self.host_of(&mut open[at], &target, port), lun))
    }

    fn host_of(&self, open: &mut OpenTarget, target: &Arc<SharedTarget>, port: u16) -> Arc<Host> {
        let SimUnit { sessions, replacement_s, .. } = *self;
        let key = HostKey { port, sessions, replacement_s };
        open.hosts.retain(|(_, host)| host.strong_count() > 0);
        let there = open.hosts.iter().find(|(known, _)| *known == key);
        if let Some(host) = there.and_then(|(_, host)| host.upgrade()) {
            return host;
        }
        let route = Route {
            name: format!("{} port {port}", self.path.display()),
            port: PortId(port),
            sessions,
            depth: DEPTH,
            patience: Patience::new(replacement_s * 1_000_000_000),
        };
        let transport = SimTransport::new(target, route).of_file(&self.path);
        let host = Host::new(Arc::new(transport), HostOptions::default());
        open.hosts.push((key, Arc::downgrade(&host)));
        host
    }

    /// The port and the logical unit that are meant.
    fn pick(&self, spec: &Spec) -> Result<(u16, Lun), DriverError> {
        let ports: Vec<u16> = spec.ports.iter().map(|port| port.id).collect();
        let luns: Vec<u32> = spec.luns.iter().map(|lun| lun.number).collect();
        let none = |what: String, there: String| {
            failed(&self.path, format!("{what} is none of its own: {there}"))
        };
        let port = self.port.unwrap_or(ports[0]);
        if !ports.contains(&port) {
            return Err(none(format!("port={port}"), joined(&ports)));
        }
        let lun = self.lun.or(luns.first().copied());
        let Some(lun) = lun.filter(|lun| luns.contains(lun)) else {
            let what = lun.map_or(String::from("a logical unit"), |lun| format!("lun={lun}"));
            return Err(none(what, joined(&luns)));
        };
        Ok((port, Lun::new(lun).expect("a number that was checked")))
    }
}

fn joined<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

struct HostSpeaker(Arc<Host>);

impl Speaker for HostSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.notices().listen(listener);
    }
}

impl Backing for SimUnit {
    fn kind(&self) -> &'static TargetKind {
        &KIND
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match option {
            "port" => self.port = Some(parse_number(option, value, 1, 65_535)? as u16),
            "lun" => self.lun = Some(parse_number(option, value, 0, 16_383)? as u32),
            "sessions" => self.sessions = parse_number(option, value, 1, 64)? as u16,
            "replacement_timeout" => self.replacement_s = parse_number(option, value, 0, 86_400)?,
            _ => unreachable!("no option {option} is declared"),
        }
        Ok(())
    }

    fn check(&self, config: &Config, queues_given: bool, text: &str) -> Result<(), String> {
        let (queues, sessions) = (config.queues, self.sessions);
        if queues_given && queues != sessions {
            return Err(format!(
                "queues={queues} in {text:?}: a scsi-sim target has as many as sessions={sessions}"
            ));
        }
        Ok(())
    }

    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError> {
        let (host, lun) = self.host()?;
        let unit = Unit::open(&host, lun, UnitOptions { read_only: config.read_only })?;
        let speaker: Box<dyn Speaker> = Box::new(HostSpeaker(host));
        Ok(OpenedBacking { speaker: Some(speaker), ..OpenedBacking::silent(unit) })
    }

    fn queues(&self, driver: &dyn Driver, _homes: u16) -> u16 {
        driver.queues().max.clamp(1, 64)
    }

    /// Paths to one logical unit are one device.
    fn identity(&self) -> Identity {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let lun = self.lun.map_or_else(String::new, |lun| lun.to_string());
        Identity::Remote(format!("scsi-sim:{}", path.display()), lun)
    }

    fn settings(&self) -> String {
        format!("{:?}", (self.sessions, self.replacement_s))
    }

    fn keeps(&self) -> Keeps {
        Keeps::WhileOpen
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}
