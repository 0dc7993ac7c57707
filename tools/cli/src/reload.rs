//! What a daemon applies at its start and again on `weir set --reload`: rules, and the part of the
//! configuration that may change while disks run.
//!
//! A reload makes what the configuration states true, whatever was written to the tree meanwhile;
//! rules come last, as they do at the start, and the files they write are theirs. What can only be
//! had by a restart is told as long as it differs from what the daemon was started with.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir::{Cmdline, Groups, Target};
use weir_control::config::{self, Config};
use weir_control::rules::{Event, Plan, TreeDisk};
use weir_control::{Errno, Rules, Tree};
use weir_sched::SCHEDULERS;

use crate::Failure;
use crate::serve::{DEFAULT_DIR, Serve};

/// What a line of the answer begins with whose change was not made.
pub(crate) const FAILED: &str = "failed: ";
const CHANGED: &str = "changed: ";
const RESTART: &str = "needs a restart: ";
const NOTE: &str = "note: ";

/// What a reload needs to know of the start.
pub(crate) struct Reload {
    serve: Serve,
    started: Config,
    groups: Arc<Groups>,
    /// One reload at a time: each is made of many changes.
    turn: Mutex<()>,
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
    pub(crate) fn new(serve: Serve, started: Config, groups: Arc<Groups>) -> Reload {
        Reload { serve, started, groups, turn: Mutex::default() }
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
            [] if default.is_dir() => Rules::read(&[default]),
            folders => Rules::read(folders),
        };
        rules.map_err(|error| Failure::Bad(format!("rules: {error}")))
    }

    /// Applies rules to disks that are new.
    pub(crate) fn at_start(rules: &Rules, tree: &Tree, config: &Config) {
        for line in remarks(rules).into_iter().chain(apply_rules(rules, tree, config, Event::Add)) {
            match line.starts_with(CHANGED) {
                true => tracing::info!("rules: {line}"),
                false => tracing::warn!("rules: {line}"),
            }
        }
    }

    /// Reads everything before anything is changed.
    fn run(&self, tree: &Tree) -> Result<Vec<String>, Failure> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = Self::read_rules(&self.serve.rules)?;
        let config = self.serve.configuration()?;
        let (before, now) = (cmdline(&self.started)?, cmdline(&config)?);
        let mut targets = Vec::new();
        for disk in &config.disk {
            targets.push((disk, target(disk, &now)?));
        }
        let wanted = config.groups().map_err(|e| e.to_string())?;
        let mut lines = remarks(&rules);
        self.compare(&config, &mut lines);
        self.set_groups(&config, &wanted, &mut lines);
        for (disk, target) in targets {
            match self.started.disk.iter().find(|known| known.name == disk.name) {
                Some(known) => {
                    let known = crate::reload::target(known, &before)?;
                    set_disk(tree, &rules, &disk.name, (&known, &target), &mut lines);
                }
                None => lines.push(format!("{RESTART}disk {} is new", disk.name)),
            }
        }
        lines.extend(apply_rules(&rules, tree, &self.started, Event::Change));
        if lines.is_empty() {
            lines.push(String::from("nothing to change"));
        }
        Ok(lines)
    }

    /// Tells what differs from the start and stays as it is.
    fn compare(&self, config: &Config, lines: &mut Vec<String>) {
        let started = &self.started;
        let mut restart = |what: String| lines.push(format!("{RESTART}{what}"));
        if config.nbd != started.nbd {
            restart(String::from("the addresses of [nbd]"));
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
        let lost = started
            .group
            .iter()
            .filter(|group| config.group.iter().all(|known| known.path != group.path));
        for group in lost {
            restart(format!("group {:?} is gone", group.path));
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
            let all = self.groups.all();
            let Some(now) = all.iter().find(|known| known.id == id) else { continue };
            if now.weight != entry.weight {
                let (old, new) = (now.weight, entry.weight);
                let what = format!("group {path:?}: weight {old} -> {new}");
                lines.push(outcome(what, self.groups.set_weight(id, new)));
            }
            if now.caps != entry.caps {
                let what = format!("group {path:?}: its caps");
                lines.push(outcome(what, self.groups.set_caps(id, entry.caps)));
            }
        }
    }
}

fn outcome(what: String, result: Result<(), impl std::fmt::Display>) -> String {
    match result {
        Ok(()) => format!("{CHANGED}{what}"),
        Err(error) => format!("{FAILED}{what}: {error}"),
    }
}

/// What is to be said of the rules as they were read.
fn remarks(rules: &Rules) -> Vec<String> {
    let errors = rules.errors().iter().map(|error| format!("{FAILED}{error}; it is left out"));
    errors.chain(rules.warnings().iter().map(|warning| format!("{NOTE}{warning}"))).collect()
}

/// Applies rules to every disk of a configuration.
fn apply_rules(rules: &Rules, tree: &Tree, config: &Config, event: Event) -> Vec<String> {
    let mut lines = Vec::new();
    for disk in &config.disk {
        let plan = plan(rules, tree, &disk.name, event);
        lines.extend(plan.warnings.iter().map(|warning| format!("{NOTE}{warning}")));
        for write in &plan.writes {
            let path = format!("block/{}/{}", disk.name, write.name);
            lines.extend(set(tree, &path, &write.value, &format!(" ({})", write.rule)));
        }
    }
    lines
}

fn plan(rules: &Rules, tree: &Tree, name: &str, event: Event) -> Plan {
    rules.plan(&TreeDisk { tree, name }, event)
}

/// Writes to a file unless it says so already; what came of it, if anything did.
fn set(tree: &Tree, path: &str, value: &str, why: &str) -> Option<String> {
    let before = tree.read(path).map(|text| shown(path, &text)).unwrap_or_default();
    if before == value {
        return None;
    }
    match tree.write(path, value.as_bytes()) {
        Ok(()) => {
            let after = tree.read(path).map(|text| shown(path, &text)).unwrap_or_default();
            (after != before).then(|| format!("{CHANGED}{path} {before} -> {after}{why}"))
        }
        Err(failure) => Some(format!("{FAILED}{failure}{why}")),
    }
}

/// The value of a file: of a list of schedulers the one that is chosen.
fn shown(path: &str, text: &str) -> String {
    let text = text.trim_end();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen.filter(|_| path.ends_with("/scheduler")) {
        Some((chosen, _)) => String::from(chosen),
        None => String::from(text),
    }
}

/// Gives a disk the scheduler and the tunables its target states, but for files that rules write.
fn set_disk(
    tree: &Tree,
    rules: &Rules,
    name: &str,
    (started, now): (&Target, &Target),
    lines: &mut Vec<String>,
) {
    let unchangeable = |target: &Target| {
        let mut rest = target.clone();
        (rest.config.scheduler, rest.config.tunables) = (None, Vec::new());
        format!("{rest:?}")
    };
    if unchangeable(started) != unchangeable(now) {
        lines.push(format!("{RESTART}disk {name} differs in more than scheduler and tunables"));
    }
    let planned: BTreeSet<String> = {
        let writes = plan(rules, tree, name, Event::Change).writes;
        writes.into_iter().map(|write| write.name).collect()
    };
    let queue = format!("block/{name}/queue");
    match (&now.config.scheduler, &started.config.scheduler) {
        (Some(_), _) if planned.contains("queue/scheduler") => {}
        (Some(scheduler), _) => {
            lines.extend(set(tree, &format!("{queue}/scheduler"), scheduler, ""));
        }
        (None, Some(was)) => {
            lines.push(format!("{RESTART}disk {name} no longer states scheduler={was}"));
        }
        (None, None) => {}
    }
    let scheduler = tree.read(&format!("{queue}/scheduler")).unwrap_or_default();
    let scheduler = shown("/scheduler", &scheduler);
    for (tunable, value) in &now.config.tunables {
        if planned.contains(&format!("queue/iosched/{tunable}")) {
            continue;
        }
        match check_tunable(&scheduler, tunable, value) {
            Ok(()) => {
                lines.extend(set(tree, &format!("{queue}/iosched/{tunable}"), value, ""));
            }
            Err(why) => lines.push(format!("{FAILED}disk {name}: {why}")),
        }
    }
    for (tunable, was) in &started.config.tunables {
        if now.config.tunables.iter().all(|(known, _)| known != tunable) {
            lines.push(format!("{RESTART}disk {name} no longer states {tunable}={was}"));
        }
    }
}

/// A configuration is strict: what the tree would cut down to its range is refused here.
fn check_tunable(scheduler: &str, name: &str, value: &str) -> Result<(), String> {
    let entry = SCHEDULERS.iter().find(|entry| entry.name == scheduler);
    let row = entry.and_then(|entry| entry.tunables.iter().find(|row| row.name == name));
    let Some(row) = row else {
        return Err(format!("scheduler {scheduler} has no tunable {name}"));
    };
    match value.parse::<i128>() {
        Ok(number) if (row.least..=row.most).contains(&number) => Ok(()),
        _ => Err(format!("{name}={value} is not a number in {}..={}", row.least, row.most)),
    }
}
