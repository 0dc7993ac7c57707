//! The kind of target of this crate: a logical unit, named by a URI as libiscsi's tools take it.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir_bio::units::parse_number;
use weir_driver_scsi::{Facts, Host, HostOptions, Transport, Unit, UnitOptions};
use weir_proto_scsi::Lun;
use weir_proto_scsi::vpd::DEVICE_IDENTIFICATION;
use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, NoticeListener, OpenedBacking, Speaker,
    TargetKind, TargetOption, Written,
};

use crate::{Credentials, DigestOffer, Iscsi, IscsiName, Options, Portal, Secret, read_secret};

/// A disk of an iSCSI target.
pub const KIND: TargetKind = TargetKind {
    names: &["iscsi"],
    syntax: &["iscsi://[USER[%SECRET]@]HOST[:PORT]/IQN/LUN"],
    example: "iscsi://127.0.0.1/iqn.2024-01.com.example:disks/1,sessions=2",
    doc: "A SCSI logical unit over iSCSI; `weir iscsi discover HOST` lists them.",
    options: OPTIONS,
    parse,
};

const OPTIONS: &[TargetOption] = &[
    TargetOption {
        name: "sessions",
        values: "1 to 64",
        default: "1",
        doc: "Sessions with the target, each a hard queue.",
    },
    TargetOption {
        name: "portals",
        values: "HOST[:PORT]+...",
        default: "none",
        doc: "Further portals of the target: sessions are spread over all of them, and one that \
              is lost is made anew at the next.",
    },
    TargetOption {
        name: "secret_file",
        values: "FILE",
        default: "none",
        doc: "The file with the user's CHAP secret, which no other user may read; one newline at \
              its end is no part of it.",
    },
    TargetOption {
        name: "target_user",
        values: "USER",
        default: "none",
        doc: "The name with which the target has to prove itself (mutual CHAP).",
    },
    TargetOption {
        name: "target_secret_file",
        values: "FILE",
        default: "none",
        doc: "The file with the target's CHAP secret.",
    },
    TargetOption {
        name: "initiator",
        values: "IQN",
        default: "iqn.2025-01.io.weir:weir-HOST",
        doc: "The initiator's name.",
    },
    TargetOption {
        name: "header_digest",
        values: "none|crc32c",
        default: "as the target wants",
        doc: "Whether headers have a check sum.",
    },
    TargetOption {
        name: "data_digest",
        values: "none|crc32c",
        default: "as the target wants",
        doc: "Whether data has a check sum.",
    },
    TargetOption {
        name: "replacement_timeout",
        values: "SECONDS|-1",
        default: "120",
        doc: "How long requests wait for a session that was lost; 0: they fail at once, -1: they \
              wait for ever. A write that may still land ends after twice that time, at least 10 \
              s.",
    },
    TargetOption {
        name: "login_timeout",
        values: "SECONDS",
        default: "15",
        doc: "How long a login may take.",
    },
    TargetOption {
        name: "noop_interval",
        values: "SECONDS",
        default: "5",
        doc: "How long a target may say nothing before it is asked whether it is there; 0: it is \
              not asked.",
    },
    TargetOption {
        name: "noop_timeout",
        values: "SECONDS",
        default: "5",
        doc: "How long it then has for its answer.",
    },
];

/// Seconds that an option takes, at most.
const SECONDS_MAX: u64 = 86_400;

#[derive(Clone, Debug)]
struct IscsiTarget {
    portals: Vec<Portal>,
    target: IscsiName,
    lun: u32,
    user: Option<String>,
    secret: Option<Hidden>,
    secret_file: Option<PathBuf>,
    target_user: Option<String>,
    target_secret_file: Option<PathBuf>,
    initiator: Option<IscsiName>,
    header_digest: DigestOffer,
    data_digest: DigestOffer,
    sessions: u16,
    /// `None`: for ever.
    replacement_s: Option<u64>,
    login_s: u64,
    noop_interval_s: u64,
    noop_timeout_s: u64,
}

/// A secret that stands in the target. Its text is a hash with a key of this process, so that two
/// targets can be told apart by their texts, and neither tells the secret.
#[derive(Clone)]
struct Hidden(String);

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        static KEY: OnceLock<RandomState> = OnceLock::new();
        write!(f, "hidden {:016x}", KEY.get_or_init(RandomState::new).hash_one(&self.0))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // The memory is cleared with the secret that it becomes.
        drop(Secret::new(std::mem::take(&mut self.0).into_bytes()));
    }
}

fn parse(written: &Written<'_>) -> Result<Box<dyn Backing>, String> {
    let Written { rest, text, .. } = *written;
    let wrong = |what: &str| format!("target {text:?}: {what}: {}", KIND.syntax[0]);
    let rest = rest.strip_prefix("//").ok_or_else(|| wrong("no // behind iscsi:"))?;
    // No name of a host or target has an @, so a secret may have any character.
    let (user, rest) = match rest.rsplit_once('@') {
        None => (None, rest),
        Some(("", _)) => return Err(wrong("no user before @")),
        Some((user, rest)) => (Some(user), rest),
    };
    let (user, secret) = match user.map(|user| user.split_once('%').ok_or(user)) {
        None => (None, None),
        Some(Err(user)) => (Some(user.to_owned()), None),
        Some(Ok((user, secret))) => (Some(user.to_owned()), Some(Hidden(secret.to_owned()))),
    };
    if user.as_deref() == Some("") || secret.as_ref().is_some_and(|secret| secret.0.is_empty()) {
        return Err(wrong("an empty user or secret"));
    }
    let parts: Vec<_> = rest.split('/').collect();
    let [portal, target, lun] = parts[..] else {
        return Err(wrong("not HOST, name and number of the unit, with / between them"));
    };
    let portal = Portal::new(portal).map_err(|why| wrong(&why.to_string()))?;
    let target = IscsiName::new(target).map_err(|why| wrong(&why.to_string()))?;
    let lun = parse_number("LUN", lun, 0, 0xff_ffff).map_err(|why| wrong(&why))? as u32;
    Ok(Box::new(IscsiTarget {
        portals: vec![portal],
        target,
        lun,
        user,
        secret,
        secret_file: None,
        target_user: None,
        target_secret_file: None,
        initiator: None,
        header_digest: DigestOffer::Accept,
        data_digest: DigestOffer::Accept,
        sessions: 1,
        replacement_s: Some(120),
        login_s: 15,
        noop_interval_s: 5,
        noop_timeout_s: 5,
    }))
}

fn digest(option: &str, value: &str) -> Result<DigestOffer, String> {
    match value.to_ascii_lowercase().as_str() {
        "none" => Ok(DigestOffer::Never),
        "crc32c" => Ok(DigestOffer::Require),
        _ => Err(format!("{option}={value} is neither none nor crc32c")),
    }
}

impl IscsiTarget {
    fn options(&self) -> Result<Options, DriverError> {
        let failed = |what| DriverError { what, source: None };
        let proof = |user: &str, secret| {
            Credentials::new(user, secret).map_err(|why| failed(why.to_string()))
        };
        let read = |path: &Path| read_secret(path).map_err(failed);
        let secret = match (&self.secret, &self.secret_file) {
            (Some(Hidden(secret)), _) => Some(Secret::new(secret.clone().into_bytes())),
            (None, Some(path)) => Some(read(path)?),
            (None, None) => None,
        };
        let initiator_secret = match (&self.user, secret) {
            (Some(user), Some(secret)) => Some(proof(user, secret)?),
            _ => None,
        };
        let target_secret = match (&self.target_user, &self.target_secret_file) {
            (Some(user), Some(path)) => Some(proof(user, read(path)?)?),
            _ => None,
        };
        Ok(Options {
            initiator: self.initiator.clone(),
            initiator_secret,
            target_secret,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            sessions: self.sessions,
            login_timeout: Duration::from_secs(self.login_s),
            replacement_timeout: self.replacement_s.map(Duration::from_secs),
            noop_interval: Duration::from_secs(self.noop_interval_s),
            noop_timeout: Duration::from_secs(self.noop_timeout_s),
            ..Options::new(self.portals.clone())
        })
    }

    fn lun(&self) -> Lun {
        Lun::new(self.lun).expect("checked when it was read")
    }

    fn open_with(
        &self,
        target: impl FnOnce(Iscsi) -> Option<Iscsi>,
        unit: impl FnOnce(&Arc<Host>, Lun) -> Result<Unit, DriverError>,
    ) -> Result<Option<OpenedBacking>, DriverError> {
        let options = self.options()?;
        let Some(iscsi) = target(Iscsi::new(self.target.clone(), options.clone())?) else {
            return Ok(None);
        };
        let mut notices = self.warnings(&options, &iscsi.name());
        let host = Host::new(Arc::new(iscsi), HostOptions::default());
        let unit = unit(&host, self.lun())?;
        notices.extend(host.notices().all());
        let speaker: Option<Box<dyn Speaker>> = Some(Box::new(HostSpeaker(host)));
        Ok(Some(OpenedBacking { driver: Arc::new(unit), notices, speaker, map: None }))
    }

    /// What is to be said of the secrets.
    fn warnings(&self, options: &Options, site: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.secret.as_ref().is_some_and(is_in_the_list_of_processes) {
            warnings.push(format!(
                "{site}: its secret stands on the command line, where every user reads it in the \
                 list of processes: use secret_file="
            ));
        }
        let of = |whose: &str, proof: &Option<Credentials>| {
            proof.as_ref().filter(|proof| proof.secret().is_short()).map(|_| {
                format!(
                    "{site}: the secret of the {whose} is shorter than 12 bytes: it can be guessed"
                )
            })
        };
        warnings.extend(of("initiator", &options.initiator_secret));
        warnings.extend(of("target", &options.target_secret));
        warnings
    }
}

/// Whether the command line of this process has the secret.
fn is_in_the_list_of_processes(secret: &Hidden) -> bool {
    let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    line.windows(secret.0.len()).any(|part| part == secret.0.as_bytes())
}

impl Backing for IscsiTarget {
    fn kind(&self) -> &'static TargetKind {
        &KIND
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let seconds = |least| parse_number(option, value, least, SECONDS_MAX);
        let name = |value| IscsiName::new(value).map_err(|why| format!("{option}: {why}"));
        match option {
            "sessions" => self.sessions = parse_number(option, value, 1, 64)? as u16,
            "portals" => {
                for portal in value.split('+') {
                    let portal = Portal::new(portal).map_err(|why| format!("{option}: {why}"))?;
                    self.portals.push(portal);
                }
            }
            "secret_file" => self.secret_file = Some(PathBuf::from(value)),
            "target_user" => self.target_user = Some(value.to_owned()),
            "target_secret_file" => self.target_secret_file = Some(PathBuf::from(value)),
            "initiator" => self.initiator = Some(name(value)?),
            "header_digest" => self.header_digest = digest(option, value)?,
            "data_digest" => self.data_digest = digest(option, value)?,
            "replacement_timeout" => {
                self.replacement_s = if value == "-1" { None } else { Some(seconds(0)?) };
            }
            "login_timeout" => self.login_s = seconds(1)?,
            "noop_interval" => self.noop_interval_s = seconds(0)?,
            "noop_timeout" => self.noop_timeout_s = seconds(1)?,
            _ => unreachable!("an option of this kind"),
        }
        Ok(())
    }

    fn check(&self, config: &Config, queues_given: bool, text: &str) -> Result<(), String> {
        let wrong = |what: String| Err(format!("target {text:?}: {what}"));
        let (queues, sessions) = (config.queues, self.sessions);
        if queues_given && queues != sessions {
            return wrong(format!(
                "queues={queues}: an iscsi target has as many as sessions={sessions}"
            ));
        }
        if self.secret.is_some() && self.secret_file.is_some() {
            return wrong("a secret and a secret_file".to_owned());
        }
        let has_secret = self.secret.is_some() || self.secret_file.is_some();
        if has_secret != self.user.is_some() {
            let lacks = if has_secret { "user: USER@HOST" } else { "secret: secret_file=FILE" };
            return wrong(format!("CHAP without a {lacks}"));
        }
        match (&self.target_user, &self.target_secret_file) {
            (None, None) => Ok(()),
            (Some(_), Some(_)) if has_secret => Ok(()),
            (Some(_), Some(_)) => {
                wrong("the target proves itself only to a user: USER@HOST".to_owned())
            }
            _ => wrong("target_user and target_secret_file go together".to_owned()),
        }
    }

    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError> {
        let unit = |host: &Arc<Host>, lun| Unit::open(host, lun, unit_options(config));
        self.open_with(Some, unit).map(|opened| opened.expect("a target that is asked"))
    }

    /// Another path to a unit is known by the unit's designators; without any there is nothing by
    /// which a target could be told from another.
    fn open_unreached(
        &self,
        config: &Config,
        likeness: &(dyn Any + Send + Sync),
    ) -> Option<Result<OpenedBacking, DriverError>> {
        let facts = likeness.downcast_ref::<Facts>()?;
        let unit =
            Facts { lun: self.lun(), port: None, group: None, access: None, ..facts.clone() };
        let page = facts.page(DEVICE_IDENTIFICATION)?;
        let target = |iscsi: Iscsi| iscsi.unreached(self.lun(), page);
        self.open_with(target, |host, _| Unit::of_facts(host, unit, unit_options(config)))
            .transpose()
    }

    fn queues(&self, driver: &dyn Driver, _homes: u16) -> u16 {
        driver.queues().max.clamp(1, 64)
    }

    fn identity(&self) -> Identity {
        let portal = format!("iscsi://{}", self.portals[0]);
        Identity::Remote(portal, format!("{}/{}", self.target, self.lun))
    }

    fn settings(&self) -> String {
        let portals = Vec::new();
        format!("{:?}", IscsiTarget { portals, ..self.clone() })
    }

    fn keeps(&self) -> Keeps {
        Keeps::Flushed
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

fn unit_options(config: &Config) -> UnitOptions {
    UnitOptions { read_only: config.read_only }
}

struct HostSpeaker(Arc<Host>);

impl Speaker for HostSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.notices().listen(listener);
    }
}
