//! `weir iscsi`: what can be had over iSCSI.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weir::drivers::iscsi::{
    self, Credentials, Discovered, Iscsi, IscsiName, Options, Portal, read_secret,
};

use crate::output::{print, print_line};
use crate::values::whole;
use crate::{Failure, log};

/// Looks at targets of iSCSI.
#[derive(Debug, Args)]
pub(crate) struct Command {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Discover(Discover),
}

/// Asks a portal for its targets, and each target for its disks: one line for each disk, as a
/// target to paste.
///
/// A target whose disks are not told has a line without a number, and the reason on standard error.
///
/// Example: weir iscsi discover 10.0.0.1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Discover {
    /// The portal: [USER@]HOST[:PORT], an IPv6 address in brackets.
    portal: String,
    /// The file with the user's CHAP secret, which no other user may read.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The name with which each target has to prove itself.
    #[arg(long, value_name = "USER", requires = "target_secret_file")]
    target_user: Option<String>,
    /// The file with the targets' CHAP secret.
    #[arg(long, value_name = "FILE", requires = "target_user")]
    target_secret_file: Option<PathBuf>,
    /// The initiator's name; made of the host's name if not given.
    #[arg(long, value_name = "IQN")]
    initiator: Option<String>,
    /// How long each login may take, seconds.
    #[arg(long, default_value_t = 15, value_parser = whole::<u64>(1..=600))]
    login_timeout: u64,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let What::Discover(discover) = &self.what;
        discover.run()
    }
}

/// A target with what was found out about it.
struct Found {
    name: IscsiName,
    portals: Vec<Portal>,
    /// The numbers of its disks, or why they are not known.
    disks: Result<Vec<u32>, String>,
}

impl Discover {
    fn run(&self) -> Result<(), Failure> {
        let (user, portal) = match self.portal.rsplit_once('@') {
            Some((user, _)) if user.contains('%') => {
                return Err(Failure::from(
                    "a secret in the portal is in the list of processes: --secret-file FILE",
                ));
            }
            Some((user, portal)) => (Some(user), portal),
            None => (None, self.portal.as_str()),
        };
        let portal = Portal::new(portal).map_err(|why| Failure::Bad(why.to_string()))?;
        let options = self.options(user, portal.clone())?;
        let targets = iscsi::discover(&options).map_err(|why| Failure::No(why.to_string()))?;
        targets.refused.iter().for_each(|what| log::say(&format!("weir: passed over: {what}")));
        let look = |target| look(target, &portal, &options);
        let found: Vec<_> = targets.targets.into_iter().map(look).collect();
        if self.json {
            let all: Vec<_> = found.iter().map(|found| self.as_json(found, user)).collect();
            return print_line(&json!(all).to_string());
        }
        for found in &found {
            if let Err(why) = &found.disks {
                log::say(&format!("weir: the disks of {} are not known: {why}", found.name));
            }
        }
        print(&found.iter().flat_map(|found| self.lines(found, user)).collect::<String>())
    }

    fn options(&self, user: Option<&str>, portal: Portal) -> Result<Options, Failure> {
        let proof = |user: &str, file: &PathBuf| {
            let secret = read_secret(file).map_err(Failure::Bad)?;
            Credentials::new(user, secret).map_err(|why| Failure::Bad(why.to_string()))
        };
        let initiator_secret = match (user, &self.secret_file) {
            (Some(user), Some(file)) => Some(proof(user, file)?),
            (None, None) => None,
            (Some(_), None) => {
                return Err(Failure::from("a user needs a secret: --secret-file FILE"));
            }
            (None, Some(_)) => {
                return Err(Failure::from("--secret-file needs a user: USER@HOST"));
            }
        };
        let target_secret = match (&self.target_user, &self.target_secret_file) {
            (Some(_), _) if initiator_secret.is_none() => {
                let why = "--target-user needs a user and secret of this side: USER@HOST";
                return Err(Failure::from(why));
            }
            (Some(user), Some(file)) => Some(proof(user, file)?),
            _ => None,
        };
        let name = self.initiator.as_deref().map(IscsiName::new).transpose();
        Ok(Options {
            initiator: name.map_err(|why| Failure::Bad(why.to_string()))?,
            initiator_secret,
            target_secret,
            login_timeout: Duration::from_secs(self.login_timeout),
            ..Options::new(vec![portal])
        })
    }

    /// The options that a target needs to be opened as it was looked at.
    fn target_options(&self, portals: &[Portal]) -> String {
        let mut options = String::new();
        if let Some(more) = portals.get(1..).filter(|more| !more.is_empty()) {
            let more: Vec<_> = more.iter().map(address).collect();
            options.push_str(&format!(",portals={}", more.join("+")));
        }
        for (name, file) in
            [("secret_file", &self.secret_file), ("target_secret_file", &self.target_secret_file)]
        {
            if let Some(file) = file {
                options.push_str(&format!(",{name}={}", escaped(&file.display().to_string())));
            }
        }
        for (name, value) in [("target_user", &self.target_user), ("initiator", &self.initiator)] {
            if let Some(value) = value {
                options.push_str(&format!(",{name}={}", escaped(value)));
            }
        }
        options
    }

    fn target(&self, found: &Found, user: Option<&str>, disk: Option<u32>) -> String {
        let user = user.map_or_else(String::new, |user| format!("{}@", escaped(user)));
        let disk = disk.map_or_else(String::new, |disk| format!("/{disk}"));
        let (portal, options) = (address(&found.portals[0]), self.target_options(&found.portals));
        format!("iscsi://{user}{portal}/{}{disk}{options}", found.name)
    }

    fn lines(&self, found: &Found, user: Option<&str>) -> Vec<String> {
        let line = |disk| self.target(found, user, disk) + "\n";
        match &found.disks {
            Ok(disks) => disks.iter().map(|disk| line(Some(*disk))).collect(),
            Err(_) => vec![line(None)],
        }
    }

    fn as_json(&self, found: &Found, user: Option<&str>) -> Value {
        let portals: Vec<_> = found.portals.iter().map(Portal::to_string).collect();
        let disks = found.disks.as_ref().map(|disks| {
            let disk = |disk: &u32| {
                json!({ "lun": disk, "target": self.target(found, user, Some(*disk)) })
            };
            disks.iter().map(disk).collect::<Vec<_>>()
        });
        json!({
            "name": found.name.as_str(),
            "portals": portals,
            "disks": disks.as_ref().ok(),
            "error": disks.err(),
        })
    }
}

/// Asks a target for its disks. The portal that was asked comes first, because it can be reached.
fn look(target: Discovered, asked: &Portal, options: &Options) -> Found {
    let Discovered { name, mut portals } = target;
    if portals.is_empty() {
        portals.push(asked.clone());
    }
    portals.sort_by_key(|portal| (&portal.host, portal.port) != (&asked.host, asked.port));
    let options = Options { portals: portals.clone(), ..options.clone() };
    let disks = Iscsi::new(name.clone(), options).and_then(|target| iscsi::units(&target));
    let disks = disks.map(|disks| disks.iter().filter_map(|lun| lun.number()).collect());
    Found { name, portals, disks: disks.map_err(|why| why.to_string()) }
}

/// Host and port, without the group.
fn address(portal: &Portal) -> String {
    Portal { group: None, ..portal.clone() }.to_string()
}

/// Text as it stands in a target.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,").replace('+', "\\+")
}
