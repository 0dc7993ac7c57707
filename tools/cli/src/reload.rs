//! The settings that a daemon applies at its start and again on `weir set --reload`: rules, and the
//! part of the configuration that may change while disks run.
//!
//! A reload makes what the configuration and the rules together say true, whatever was written to
//! the tree meanwhile, and sets back what they said before and do no longer. A change that needs a
//! restart is listed as long as it differs from the start of the daemon.

mod boot_line;
mod disk;
pub(crate) mod polling;
mod pool;
mod same;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir::{Caps, Cmdline, Device, GroupId, Groups, Host, Limited, Target};
use weir_access::folder;
use weir_control::config::{self, Config};
use weir_control::rules::Event;
use weir_control::{Errno, LiveDisk, Rules, Tree};
use weir_front::{Front, Plan, Reloaded, Restated};

use crate::Failure;
use crate::data_folder::DEFAULT_DIR;
pub(crate) use crate::reload::boot_line::{cmdline, tell_passed_over};
use crate::reload::disk::{Spoken, Turn};
pub(crate) use crate::reload::same::to_be_made;
use crate::reload::same::{BLOCK_DEVICES, Index, Places};
use crate::served::Served;
use crate::weights;

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
    parts: Parts,
    /// One reload at a time: each is made of many changes.
    applied: Mutex<Applied>,
}

/// The settings applied last.
#[derive(Default)]
struct Applied {
    /// The disks that are served, as they were stated when they were opened.
    there: Vec<config::Disk>,
    /// The targets of those and of pools.
    targets: BTreeMap<String, Target>,
    /// Of disks, by name.
    disks: BTreeMap<String, Spoken>,
    /// Paths of groups.
    groups: BTreeSet<String>,
    /// How the reactors wait.
    host: config::Host,
    /// What was told of reactors that leave no CPU to others.
    polling_remark: Option<String>,
    /// What was told of weights that act on nothing.
    unfelt: BTreeSet<String>,
}

/// The target of a disk, with the boot parameters for all disks before its own.
fn target(disk: &config::Disk, config: &Config, all: &Cmdline) -> Result<Target, Failure> {
    let fault = |what: String| config.fault_of_disk(&disk.name, &what).to_string();
    let mut target = Target::parse(&disk.target()).map_err(fault)?;
    if disk.pool.is_some() {
        if target.cmdline != Cmdline::default() {
            return Err(fault(String::from("kernel_cmdline: its queue is the pool's")).into());
        }
        weir::check_partition(&target).map_err(fault)?;
        return Ok(target);
    }
    // They are told with those of the other disks.
    target.cmdline.others.clear();
    target.cmdline = all.clone().then(&target.cmdline);
    Ok(target)
}

/// The parts of a daemon that a reload changes.
pub(crate) struct Parts {
    /// Those that the plans asked for.
    pub(crate) fronts: Vec<Arc<dyn Front>>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) served: Arc<Served>,
    /// Its reactors submit to the disks.
    pub(crate) host: Arc<Host>,
    /// A disk as the tree has it.
    pub(crate) shown: fn(&Device) -> LiveDisk,
    /// Kept up to date by each reload.
    pub(crate) latest: Arc<Mutex<Latest>>,
}

/// The configuration as it was read last, and the disks that are served.
#[derive(Default)]
pub(crate) struct Latest {
    /// Of the file, if there is one.
    pub(crate) text: String,
    /// The same at the start: all that it states was opened once.
    pub(crate) first: String,
    /// As they were stated when they were opened.
    pub(crate) disks: Vec<config::Disk>,
    /// The configuration itself.
    pub(crate) config: Config,
}

impl Latest {
    /// That of a start.
    pub(crate) fn of(config: &Config) -> Latest {
        let text = String::from(config.text());
        let (disks, config) = (config.disk.clone(), config.clone());
        Latest { first: text.clone(), text, disks, config }
    }
}

impl Reload {
    pub(crate) fn new(source: Source, started: Stated, parts: Parts) -> Reload {
        let paths = started.config.group.iter().map(|group| group.path.clone()).collect();
        let (there, host) = (started.config.disk.clone(), started.config.host);
        let applied = Applied { groups: paths, there, host, ..Applied::default() };
        let applied = Mutex::new(applied);
        Reload { source, started, parts, applied }
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
        applied.targets = targets(&self.started.config)?;
        let targets = applied.targets.clone();
        let mut lines = remarks(rules);
        self.set_disks(tree, rules, &targets, &mut applied, &mut lines);
        applied.polling_remark = self.polling_remark(&applied.host);
        if let Some(remark) = &applied.polling_remark {
            tracing::warn!("{remark}");
        }
        // The start itself tells these.
        applied.unfelt = self.unfelt(&self.started.config);
        for line in lines {
            match line.starts_with(CHANGED) {
                true => tracing::info!("rules: {line}"),
                false => tracing::warn!("rules: {line}"),
            }
        }
        Ok(())
    }

    /// What is to be told of weights that act on nothing.
    fn unfelt(&self, config: &Config) -> BTreeSet<String> {
        let remarks = weights::remarks(config, &self.parts.served.disks());
        remarks.into_iter().map(|(_, remark)| remark).collect()
    }

    /// Reads everything before anything is changed.
    fn run(&self, tree: &Tree) -> Result<Vec<String>, Failure> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        let rules = Self::read_rules(&self.source.rules)?;
        let stated = (self.source.configuration)()?;
        let config = &stated.config;
        let now = targets(config)?;
        tell_passed_over(config);
        let wanted = config.groups().map_err(|e| e.to_string())?;
        let mut lines = remarks(&rules);
        self.follow_pools(tree, config, &now, &mut applied, &mut lines);
        let mut latest = self.parts.latest.lock().unwrap_or_else(PoisonError::into_inner);
        (latest.text, latest.disks) = (String::from(config.text()), applied.there.clone());
        latest.config = config.clone();
        drop(latest);
        self.reload_fronts(&stated, &mut lines);
        self.compare(&stated, &applied.there, &mut lines);
        self.set_polling(config, &mut applied, &mut lines);
        self.set_groups(config, &wanted, &mut lines);
        self.set_back_groups(config, &mut applied.groups, &mut lines);
        let new = now.keys().filter(|name| !applied.targets.contains_key(*name));
        let failed = |name: &&String| {
            let failed = format!("{FAILED}disk {name} of pool ");
            !lines.iter().any(|line| line.starts_with(&failed))
        };
        let new: Vec<&String> = new.filter(failed).collect();
        lines.extend(new.into_iter().map(|name| {
            let is_pool = config.pool.iter().any(|pool| pool.name == *name);
            format!("{RESTART}{} {name} is new", if is_pool { "pool" } else { "disk" })
        }));
        self.set_disks(tree, &rules, &now, &mut applied, &mut lines);
        let any = |with: &str| lines.iter().any(|line| line.starts_with(with));
        if !any(CHANGED) && !any(FAILED) {
            let until = if any(RESTART) { " while it runs" } else { "" };
            lines.push(format!("nothing to change{until}"));
        }
        // Behind the changes: a scheduler may be another one now.
        let unfelt = self.unfelt(config);
        lines.extend(unfelt.difference(&applied.unfelt).map(|remark| format!("{NOTE}{remark}")));
        applied.unfelt = unfelt;
        Ok(lines)
    }

    /// Gives every disk of the start what its target and the rules say. One that the configuration
    /// names no longer keeps what it said.
    fn set_disks(
        &self,
        tree: &Tree,
        rules: &Rules,
        now: &BTreeMap<String, Target>,
        applied: &mut Applied,
        lines: &mut Vec<String>,
    ) {
        for device in &self.parts.served.queues() {
            let name = &device.config().name;
            if applied.disks.contains_key(name) {
                lines.extend(take_on(device).lines());
            }
            let started = &applied.targets[name].clone();
            if device.partition().is_some() {
                // What is to be said of a queue is said of its pool's.
                applied.disks.entry(name.clone()).or_default();
                continue;
            }
            let known = applied.disks.contains_key(name);
            let event = if known { Event::Change } else { Event::Add };
            let now = now.get(name).unwrap_or(started);
            let spoken = applied.disks.entry(name.clone()).or_default();
            Turn { tree, device, rules, event, started, now }.run(spoken, lines);
        }
    }

    /// Tells what differs from the start and stays as it is.
    fn compare(&self, stated: &Stated, there: &[config::Disk], lines: &mut Vec<String>) {
        let (started, config) = (&self.started.config, &stated.config);
        let mut restart = |what: String| lines.push(format!("{RESTART}{what}"));
        if config.kernel_cmdline != started.kernel_cmdline {
            restart(String::from("kernel_cmdline"));
        }
        if config.metrics != started.metrics {
            restart(String::from("addresses or hosts of [metrics]"));
        }
        let named: BTreeMap<&str, &config::Disk> =
            config.disk.iter().map(|disk| (disk.name.as_str(), disk)).collect();
        for disk in there.iter().filter(|disk| !named.contains_key(disk.name.as_str())) {
            restart(format!("disk {} is gone", disk.name));
        }
        for disk in there {
            let now = named.get(disk.name.as_str());
            let target = |disk: &config::Disk| disk.pool.as_ref().map(|_| disk.target());
            match now {
                Some(now) if now.pool != disk.pool => {
                    restart(format!("disk {} is in another pool, or in none", disk.name));
                }
                Some(now) if target(now) != target(disk) => {
                    restart(format!("disk {} differs in its target", disk.name));
                }
                _ => {}
            }
        }
        for pool in
            started.pool.iter().filter(|pool| !config.pool.iter().any(|p| p.name == pool.name))
        {
            restart(format!("pool {} is gone", pool.name));
        }
    }

    /// Has each front take on what is stated now. What several of them say of one export is told
    /// once.
    fn reload_fronts(&self, stated: &Stated, lines: &mut Vec<String>) {
        let exports = stated.config.exports();
        for (plan, started) in stated.plans.iter().zip(&self.started.plans) {
            let kind = plan.kind().name;
            let front = self.parts.fronts.iter().find(|front| front.kind().name == kind);
            let reloaded = match front {
                Some(front) => front.reload(&Restated { plan: &**plan, exports: &exports }),
                None => Reloaded::of_fixed(&**started, &**plan),
            };
            let Reloaded { changed, failed, restart } = reloaded;
            let told = [(CHANGED, changed), (FAILED, failed), (RESTART, restart)];
            for line in told
                .into_iter()
                .flat_map(|(how, what)| what.into_iter().map(move |what| format!("{how}{what}")))
            {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }

    /// Gives groups the weights and caps the configuration states.
    fn set_groups(&self, config: &Config, wanted: &Groups, lines: &mut Vec<String>) {
        let wanted = wanted.all();
        for group in &config.group {
            let path = &group.path;
            let entry = wanted.iter().find(|entry| entry.path == *path);
            let Some(entry) = entry else { continue };
            let id = match self.parts.groups.create(path) {
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
        let all = self.parts.groups.all();
        let Some(now) = all.iter().find(|known| known.id == id) else { return };
        if now.weight != weight {
            let what = format!("group {path:?}: weight {} -> {weight}", now.weight);
            lines.push(outcome(what, self.parts.groups.set_weight(id, weight)));
        }
        if now.caps != caps {
            let what = format!("group {path:?}: its caps");
            lines.push(outcome(what, self.parts.groups.set_caps(id, caps)));
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
            // Its clients stay in it until the next start.
            let exports = self.started.config.exports();
            if exports.iter().any(|export| export.group.as_ref() == Some(&path)) {
                lines.push(format!("{RESTART}group {path:?} is gone"));
                continue;
            }
            let any = &Groups::default().all()[0];
            if let Some(id) = self.parts.groups.find(&path) {
                self.set_group(&path, id, (any.weight, any.caps), lines);
            }
            stated.remove(&path);
        }
        stated.extend(now);
    }
}

/// The targets of all disks, by name.
pub(crate) fn targets(config: &Config) -> Result<BTreeMap<String, Target>, Failure> {
    let all = cmdline(config)?;
    let target = |disk: &config::Disk| Ok((disk.name.clone(), target(disk, config, &all)?));
    let mut targets: BTreeMap<_, _> =
        config.disk.iter().map(target).collect::<Result<_, Failure>>()?;
    check_files(config, &targets)?;
    for pool in &config.pool {
        targets.insert(pool.name.clone(), queue_of(pool, config, &all)?);
    }
    Ok(targets)
}

/// Refuses a file, or a disk of a server, that stands in a pool and elsewhere as well: each would
/// write to it behind the back of the other.
fn check_files(config: &Config, targets: &BTreeMap<String, Target>) -> Result<(), Failure> {
    if config.pool.is_empty() {
        return Ok(());
    }
    let devices = Path::new(BLOCK_DEVICES);
    let mut known = Index::default();
    for (number, disk) in config.disk.iter().enumerate() {
        let places = Places::of(&targets[&disk.name], devices);
        // Two disks without a pool may be one: that is their user's part.
        if let Some(other) = known.find(&places, disk.pool.is_none()) {
            let other = &config.disk[other].name;
            let what = format!("target={:?} is that of disk {other:?} too", disk.target());
            return Err(config.fault_of_disk(&disk.name, &what).to_string().into());
        }
        known.add(number, &places, disk.pool.is_some());
    }
    Ok(())
}

/// The target that says how the queue of a pool is built; no backing of its own is opened.
fn queue_of(pool: &config::Pool, config: &Config, all: &Cmdline) -> Result<Target, Failure> {
    let mut text = String::from("null:4KiB");
    if let Some(scheduler) = &pool.scheduler {
        // As in a target string, a comma would begin the next option.
        text.push_str(&format!(
            ",scheduler={}",
            scheduler.replace('\\', r"\\").replace(',', r"\,")
        ));
    }
    if let Some(nr_requests) = pool.nr_requests {
        text.push_str(&format!(",nr_requests={nr_requests}"));
    }
    let fault = |what: String| config.fault_of_pool(&pool.name, &what).to_string();
    let mut target = Target::parse(&text).map_err(fault)?;
    if let Some(depth) = pool.depth {
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(fault(format!("depth={depth} is outside 1..={DEPTH_MAX}")).into());
        }
        target.config.depth = Some(depth);
    }
    target.cmdline = all.clone();
    Ok(target)
}

/// Tags of a hard queue at most (docs/behaviour/block-layer.md, section 7.1).
const DEPTH_MAX: u16 = 10240;

/// What is to be said of a disk that takes on what has changed below it.
#[derive(Default)]
pub(crate) struct TakenOn {
    changed: Vec<String>,
    /// The disk is to be asked again.
    pub(crate) failed: Option<String>,
}

impl TakenOn {
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        self.changed.into_iter().chain(self.failed)
    }
}

/// Puts in force what was made larger below a disk, and has a write cache flushed that was turned
/// on below it.
pub(crate) fn take_on(device: &Device) -> TakenOn {
    let name = &device.config().name;
    let before = device.limits();
    let mut taken = TakenOn::default();
    let failed = |error| Some(format!("{FAILED}block/{name}/size: {error}"));
    let now = device.enlarge(0).unwrap_or_else(|error| {
        taken.failed = failed(error);
        before.size()
    });
    let (has_grown, cache) = (now.bytes() > before.size().bytes(), device.new_write_cache());
    if !has_grown && cache.is_none() {
        return taken;
    }
    if let Err(error) = Limited::of(device).reconfigure(|parts| parts.limits.grow_to(now)) {
        taken.failed = failed(error);
        return taken;
    }
    if has_grown {
        let (was, is) = (before.size().sectors, now.sectors);
        let line = format!("{CHANGED}block/{name}/size {was} -> {is} (it has grown below)");
        taken.changed.push(line);
    }
    if cache.is_some() && !before.volatile_cache {
        taken.changed.push(format!(
            "{CHANGED}block/{name}/queue/write_cache write through -> write back (its device has a \
             cache now, or cannot be asked)"
        ));
    }
    taken
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use weir_control::{Client, Clients, Memory, Parameters};
    use weir_front::{FrontKind, Grounds, Users};

    const KIND: FrontKind = FrontKind {
        name: "added",
        doc: "A front of this test.",
        options: &[],
        fixed: "the doors of [added]",
        room: "added",
        plan: |_| Ok(Box::new(Added { doors: 0 })),
    };

    /// A plan with its one option, and the front of it.
    #[derive(Clone, Debug)]
    struct Added {
        doors: u32,
    }

    impl Plan for Added {
        fn kind(&self) -> &'static FrontKind {
            &KIND
        }

        fn set(&mut self, _: &str, values: &[String]) -> Result<(), String> {
            self.doors = values.len() as u32;
            Ok(())
        }

        fn start(&self, _: &Grounds<'_>) -> Result<Option<Arc<dyn Front>>, String> {
            Ok(Some(Arc::new(self.clone())))
        }
    }

    impl Front for Added {
        fn kind(&self) -> &'static FrontKind {
            &KIND
        }

        fn clients(&self) -> Arc<dyn Clients> {
            Arc::new(self.clone())
        }

        fn open(&self, _: Vec<OwnedFd>) -> Result<(), String> {
            Ok(())
        }

        fn reload(&self, now: &Restated<'_>) -> Reloaded {
            let names: Vec<&str> = now.exports.iter().map(|export| &*export.name).collect();
            let mut reloaded = Reloaded::of_fixed(self, now.plan);
            reloaded.restart.extend([String::from("the same"), String::from("the same")]);
            reloaded.changed.push(format!("added: {}", names.join(" ")));
            reloaded.failed.push(format!("added: no more doors than {}", self.doors));
            reloaded
        }

        fn add_disk(&self, _: &Device, _: &[weir_front::Export]) -> Result<(), String> {
            Ok(())
        }

        fn remove_disk(&self, _: &Device) -> usize {
            0
        }

        fn adopt(&self, _: OwnedFd, _: &str) -> Result<Box<dyn FnOnce() + Send>, String> {
            Err(String::from("it has no connections"))
        }

        fn introduce(&self) -> String {
            String::new()
        }

        fn example(&self, _: &Device) -> Option<String> {
            None
        }

        fn users(&self, _: &str) -> Users {
            Users::default()
        }

        fn stop(&self, _: Duration) -> Vec<String> {
            Vec::new()
        }
    }

    impl Clients for Added {
        fn kind(&self) -> &'static str {
            KIND.name
        }

        fn exports(&self) -> Vec<String> {
            Vec::new()
        }

        fn clients(&self) -> Vec<Client> {
            Vec::new()
        }

        fn times(&self, _: u64) -> Option<weir_queue::ClientTimes> {
            None
        }

        fn memory(&self) -> Option<Memory> {
            None
        }

        fn reclassify(
            &self,
            _: u64,
            _: weir_control::Classing,
        ) -> Result<bool, weir_control::Failure> {
            Ok(false)
        }

        fn dismiss(&self, _: u64) -> bool {
            false
        }
    }

    /// A reload of this text on a daemon that was started with none of it, its front too if it
    /// `has_front`.
    fn reloaded(text: &'static str, plan: u32, has_front: bool) -> String {
        let stated = |text: &str, plan| {
            let config = Config::parse(text, &[KIND.name]).expect("a configuration");
            Stated { config, plans: vec![Box::new(Added { doors: plan })] }
        };
        let configuration = Box::new(move || Ok(stated(text, plan)));
        let source = Source { rules: Vec::new(), configuration };
        let fronts: Vec<Arc<dyn Front>> =
            if has_front { vec![Arc::new(Added { doors: 0 })] } else { Vec::new() };
        let tree = Tree::new(Parameters::default());
        let parts = Parts {
            fronts,
            groups: Arc::default(),
            served: Arc::new(Served::new(Vec::new(), Vec::new())),
            host: Arc::new(Host::new(1).expect("a thread")),
            shown: |_| unreachable!("there is no disk"),
            latest: Arc::default(),
        };
        Reload::new(source, stated("", 0), parts).attach(&tree);
        tree.reload().unwrap_or_else(|failure| panic!("{failure:?}"))
    }

    const TEXT: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1M\"\n";

    #[test]
    fn a_front_that_is_added_is_told_of_a_reload_and_what_it_says_is_told_once() {
        assert_eq!(
            reloaded(TEXT, 1, true),
            "changed: added: sda\n\
             failed: added: no more doors than 0\n\
             needs a restart: the doors of [added]\n\
             needs a restart: the same\n\
             needs a restart: disk sda is new\n"
        );
    }

    #[test]
    fn a_front_that_was_not_started_needs_a_restart_for_a_plan_that_differs() {
        let restart = "needs a restart: the doors of [added]\nnothing to change while it runs\n";
        assert_eq!(reloaded("", 1, false), restart);
        assert_eq!(reloaded("", 0, false), "nothing to change\n");
    }
}
