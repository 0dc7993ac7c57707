//! The settings that a daemon applies at its start and again on `weir set --reload`: rules, and the
//! part of the configuration that may change while disks run.
//!
//! A reload makes what the configuration and the rules together say true, whatever was written to
//! the tree meanwhile, and sets back what they said before and do no longer. A change that needs a
//! restart is listed as long as it differs from the start of the daemon.

mod disk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir::{Caps, Cmdline, Device, GroupId, Groups, Limited, Target};
use weir_access::folder;
use weir_control::config::{self, Config};
use weir_control::rules::Event;
use weir_control::{Errno, Rules, Tree};
use weir_front::Plan;
use weir_queue::Parts;

use crate::Failure;
use crate::data_folder::DEFAULT_DIR;
use crate::reload::disk::{Spoken, Turn};

/// The beginning of a line of the answer whose change was not made.
pub(crate) const FAILED: &str = "failed: ";
const CHANGED: &str = "changed: ";
const RESTART: &str = "needs a restart: ";
const NOTE: &str = "note: ";

/// Where the settings are read.
pub(crate) struct Source {
    /// The folders of rules that were named.
    pub(crate) rules: Vec<PathBuf>,
    /// Reads the configuration and checks it as a whole.
    pub(crate) configuration: Box<dyn Fn() -> Result<Stated, Failure> + Send + Sync>,
}

/// The configuration and the flags of a daemon.
pub(crate) struct Stated {
    pub(crate) config: Config,
    /// Of every kind of front.
    pub(crate) plans: Vec<Box<dyn Plan>>,
}

/// The facts of the start that a reload needs.
pub(crate) struct Reload {
    source: Source,
    started: Stated,
    groups: Arc<Groups>,
    devices: Vec<Device>,
    /// One reload at a time: each is made of many changes.
    applied: Mutex<Applied>,
}

/// The settings applied last.
#[derive(Default)]
struct Applied {
    /// Of disks, by name.
    disks: BTreeMap<String, Spoken>,
    /// Paths of groups.
    groups: BTreeSet<String>,
}

/// The boot parameters of a configuration that are for all disks; others are told here, once.
pub(crate) fn cmdline(config: &Config) -> Result<Cmdline, Failure> {
    let line = config.kernel_cmdline.as_deref().unwrap_or_default();
    let mut cmdline = Cmdline::parse(line).map_err(|e| format!("kernel_cmdline: {e}"))?;
    for word in cmdline.others.drain(..) {
        tracing::info!("kernel_cmdline: {word} is no parameter of disks and is passed over");
    }
    Ok(cmdline)
}

/// The target of a disk, with the boot parameters for all disks before its own.
pub(crate) fn target(disk: &config::Disk, all: &Cmdline) -> Result<Target, Failure> {
    let parsed = Target::parse(&disk.target).map_err(|e| format!("disk {}: {e}", disk.name));
    let mut target = parsed?;
    target.cmdline = all.clone().then(&target.cmdline);
    Ok(target)
}

impl Reload {
    pub(crate) fn new(
        source: Source,
        started: Stated,
        groups: Arc<Groups>,
        devices: Vec<Device>,
    ) -> Reload {
        let paths = started.config.group.iter().map(|group| group.path.clone()).collect();
        let applied = Mutex::new(Applied { groups: paths, ..Applied::default() });
        Reload { source, started, groups, devices, applied }
    }

    /// Has `tree` reload in this way.
    pub(crate) fn attach(self, tree: &Tree) {
        tree.on_reload(move |tree| match self.run(tree) {
            Ok(lines) => {
                lines.iter().for_each(|line| tracing::info!("reload: {line}"));
                Ok(lines.iter().map(|line| format!("{line}\n")).collect())
            }
            Err(Failure::No(what) | Failure::Bad(what)) => {
                tracing::warn!("reload: {what}");
                Err(weir_control::Failure::new(Errno::Invalid, what))
            }
        });
    }

    /// The rules of these folders, or of the default one if it is there.
    pub(crate) fn read_rules(folders: &[PathBuf]) -> Result<Rules, Failure> {
        let default = Path::new(DEFAULT_DIR).join("rules.d");
        let rules = match folders {
            [] if default.is_dir() => {
                // Rules of the default folder must come from this user.
                [Path::new(DEFAULT_DIR), &default].into_iter().try_for_each(folder::check)?;
                Rules::read(&[default])
            }
            folders => Rules::read(folders),
        };
        rules.map_err(|error| Failure::Bad(format!("rules: {error}")))
    }

    /// Applies rules to disks that are new.
    ///
    /// # Errors
    /// A fault of the configuration.
    pub(crate) fn start(&self, rules: &Rules, tree: &Tree) -> Result<(), Failure> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let targets = targets(&self.started.config)?;
        let mut lines = remarks(rules);
        self.set_disks(tree, rules, (&targets, &targets), &mut applied, &mut lines);
        for line in lines {
            match line.starts_with(CHANGED) {
                true => tracing::info!("rules: {line}"),
                false => tracing::warn!("rules: {line}"),
            }
        }
        Ok(())
    }

    /// Reads everything before anything is changed.
    fn run(&self, tree: &Tree) -> Result<Vec<String>, Failure> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = Self::read_rules(&self.source.rules)?;
        let stated = (self.source.configuration)()?;
        let config = &stated.config;
        let (before, now) = (targets(&self.started.config)?, targets(config)?);
        let wanted = config.groups().map_err(|e| e.to_string())?;
        let mut lines = remarks(&rules);
        self.compare(&stated, &mut lines);
        self.set_groups(config, &wanted, &mut lines);
        self.set_back_groups(config, &mut applied.groups, &mut lines);
        let new = now.keys().filter(|name| !before.contains_key(*name));
        lines.extend(new.map(|name| format!("{RESTART}disk {name} is new")));
        self.set_disks(tree, &rules, (&before, &now), &mut applied, &mut lines);
        let any = |with: &str| lines.iter().any(|line| line.starts_with(with));
        if !any(CHANGED) && !any(FAILED) {
            let until = if any(RESTART) { " while it runs" } else { "" };
            lines.push(format!("nothing to change{until}"));
        }
        Ok(lines)
    }

    /// Gives every disk of the start what its target and the rules say. One that the configuration
    /// names no longer keeps what it said.
    fn set_disks(
        &self,
        tree: &Tree,
        rules: &Rules,
        (before, now): (&BTreeMap<String, Target>, &BTreeMap<String, Target>),
        applied: &mut Applied,
        lines: &mut Vec<String>,
    ) {
        for device in &self.devices {
            let name = &device.config().name;
            if applied.disks.contains_key(name) {
                lines.extend(growth(device));
            }
            let started = &before[name];
            let known = applied.disks.contains_key(name);
            let event = if known { Event::Change } else { Event::Add };
            let now = now.get(name).unwrap_or(started);
            let spoken = applied.disks.entry(name.clone()).or_default();
            Turn { tree, device, rules, event, started, now }.run(spoken, lines);
        }
    }

    /// Tells what differs from the start and stays as it is.
    fn compare(&self, stated: &Stated, lines: &mut Vec<String>) {
        let (started, config) = (&self.started.config, &stated.config);
        let mut restart = |what: String| lines.push(format!("{RESTART}{what}"));
        for (plan, started) in stated.plans.iter().zip(&self.started.plans) {
            if plan != started {
                restart(String::from(plan.kind().fixed));
            }
        }
        if config.kernel_cmdline != started.kernel_cmdline {
            restart(String::from("kernel_cmdline"));
        }
        let gone = |disk: &&config::Disk| config.disk.iter().all(|known| known.name != disk.name);
        for disk in started.disk.iter().filter(gone) {
            restart(format!("disk {} is gone", disk.name));
        }
        let differs = |export: &&config::Export, others: &[config::Export]| {
            others.iter().find(|other| other.name == export.name) != Some(*export)
        };
        let new = config.export.iter().filter(|export| differs(export, &started.export));
        let old = started.export.iter().filter(|export| differs(export, &config.export));
        let names: BTreeSet<&str> = new.chain(old).map(|export| export.name.as_str()).collect();
        for name in names {
            restart(format!("export {name:?} has changed"));
        }
    }

    /// Gives groups the weights and caps the configuration states.
    fn set_groups(&self, config: &Config, wanted: &Groups, lines: &mut Vec<String>) {
        let wanted = wanted.all();
        for group in &config.group {
            let path = &group.path;
            let entry = wanted.iter().find(|entry| entry.path == *path);
            let Some(entry) = entry else { continue };
            let id = match self.groups.create(path) {
                Ok(id) => id,
                Err(error) => {
                    lines.push(format!("{FAILED}group {path:?}: {error}"));
                    continue;
                }
            };
            self.set_group(path, id, (entry.weight, entry.caps), lines);
        }
    }

    fn set_group(
        &self,
        path: &str,
        id: GroupId,
        (weight, caps): (u16, Caps),
        lines: &mut Vec<String>,
    ) {
        let all = self.groups.all();
        let Some(now) = all.iter().find(|known| known.id == id) else { return };
        if now.weight != weight {
            let what = format!("group {path:?}: weight {} -> {weight}", now.weight);
            lines.push(outcome(what, self.groups.set_weight(id, weight)));
        }
        if now.caps != caps {
            let what = format!("group {path:?}: its caps");
            lines.push(outcome(what, self.groups.set_caps(id, caps)));
        }
    }

    /// A group that was stated and is so no longer weighs and may use what any other does. One that
    /// is still behind an export stays as it is as long as that does.
    fn set_back_groups(
        &self,
        config: &Config,
        stated: &mut BTreeSet<String>,
        lines: &mut Vec<String>,
    ) {
        let now: BTreeSet<String> = config.group.iter().map(|group| group.path.clone()).collect();
        for path in stated.difference(&now).cloned().collect::<Vec<_>>() {
            if self.started.config.export.iter().any(|export| export.group.as_ref() == Some(&path))
            {
                lines.push(format!("{RESTART}group {path:?} is gone"));
                continue;
            }
            let any = &Groups::default().all()[0];
            if let Some(id) = self.groups.find(&path) {
                self.set_group(&path, id, (any.weight, any.caps), lines);
            }
            stated.remove(&path);
        }
        stated.extend(now);
    }
}

/// The targets of all disks, by name.
fn targets(config: &Config) -> Result<BTreeMap<String, Target>, Failure> {
    let all = cmdline(config)?;
    let target = |disk: &config::Disk| Ok((disk.name.clone(), target(disk, &all)?));
    config.disk.iter().map(target).collect()
}

/// Puts in force what was made larger below a disk; what is to be said of it.
fn growth(device: &Device) -> Option<String> {
    let name = &device.config().name;
    let before = device.limits().size();
    let failed = |error| Some(format!("{FAILED}block/{name}/size: {error}"));
    let now = match device.enlarge(0) {
        Ok(now) if now.bytes() > before.bytes() => now,
        Ok(_) => return None,
        Err(error) => return failed(error),
    };
    let grow = |parts: &mut Parts| parts.limits.grow_to(now);
    match Limited::of(device).reconfigure(grow) {
        Ok(()) => Some(format!(
            "{CHANGED}block/{name}/size {} -> {} (it has grown below)",
            before.sectors, now.sectors
        )),
        Err(error) => failed(error),
    }
}

fn outcome(what: String, result: Result<(), impl std::fmt::Display>) -> String {
    match result {
        Ok(()) => format!("{CHANGED}{what}"),
        Err(error) => format!("{FAILED}{what}: {error}"),
    }
}

/// The remarks on the rules as they were read.
fn remarks(rules: &Rules) -> Vec<String> {
    let errors = rules.errors().iter().map(|error| format!("{FAILED}{error}; it is left out"));
    errors.chain(rules.warnings().iter().map(|warning| format!("{NOTE}{warning}"))).collect()
}
