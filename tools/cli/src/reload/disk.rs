//! One disk's reload: the settings that configuration and rules state together, and their
//! application.
//!
//! A file gets the value that a rule states for it, else that of the target. A file that was stated
//! before and no longer is goes back to its default, so that the disk is as after a start. Files
//! that were never stated are left as they are.

use std::collections::{BTreeMap, BTreeSet};

use weir::target::attributes;
use weir::{Config, Device, QueueMode, Spread, Target};
use weir_control::rules::{Event, Plan, TreeDisk, turn_of};
use weir_control::{Rules, Tree};
use weir_sched::{Family, Scheduler, Setup};

use super::{CHANGED, FAILED, NOTE, RESTART};

const SCHEDULER: &str = "queue/scheduler";
const QUEUES: &str = "weir/queues";
const TUNABLES: &str = "queue/iosched/";

/// The settings applied to a disk before.
#[derive(Default)]
pub(super) struct Spoken {
    /// Files its target spoke of, and those that could not be set back.
    stated: BTreeSet<String>,
    /// Files that rules have written.
    ruled: BTreeMap<String, Ruled>,
}

/// A file that a rule has written.
#[derive(Clone)]
struct Ruled {
    /// The rule: its place and its text.
    place: String,
    text: String,
    value: String,
    /// The value of the file before the first of its rules.
    before: Option<String>,
}

/// A write to be made.
struct Write {
    file: String,
    /// `None`: whatever the default is by then.
    value: Option<String>,
    /// Why, for the line that tells of it; empty for what the target states.
    why: String,
    /// Whether it is made only after something reset the file.
    only_if_reset: bool,
}

/// A disk on its way to what is said of it.
pub(super) struct Turn<'a> {
    pub(super) tree: &'a Tree,
    pub(super) device: &'a Device,
    pub(super) rules: &'a Rules,
    pub(super) event: Event,
    /// Its target at the start of the daemon.
    pub(super) started: &'a Target,
    /// Its target now.
    pub(super) now: &'a Target,
}

impl Turn<'_> {
    /// Makes what is said of the disk true and adds what came of it to `lines`.
    pub(super) fn run(&self, spoken: &mut Spoken, lines: &mut Vec<String>) {
        let name = self.name();
        if differs_for_good(self.started, self.now) {
            lines.push(format!("{RESTART}disk {name} differs in more than scheduler and tunables"));
        }
        let plan = self.rules.plan(&TreeDisk { tree: self.tree, name }, self.event);
        lines.extend(plan.warnings.iter().map(|warning| format!("{NOTE}{warning}")));
        let stated = self.stated();
        let writes = self.writes(&plan, &stated, spoken);
        self.remember(&plan, stated, spoken);
        let mut reset = false;
        for write in writes {
            if write.only_if_reset && !reset {
                continue;
            }
            let told = self.make(&write, spoken);
            let begins = |with: &str| told.as_ref().is_some_and(|line| line.starts_with(with));
            reset |= begins(CHANGED) && matches!(&*write.file, QUEUES | SCHEDULER);
            if write.value.is_none() && (begins(FAILED) || begins(RESTART)) {
                spoken.stated.insert(write.file);
            }
            lines.extend(told);
        }
    }

    fn name(&self) -> &str {
        &self.device.config().name
    }

    fn path(&self, file: &str) -> String {
        format!("block/{}/{file}", self.name())
    }

    /// The files that the target states: each with its value.
    fn stated(&self) -> BTreeMap<String, String> {
        let now = self.now;
        // A setting of the other path waits for the start that takes it.
        if now.config.mode != self.started.config.mode {
            return BTreeMap::new();
        }
        let mut stated = BTreeMap::new();
        if now.queues_given && *now.backing == *self.started.backing {
            stated.insert(String::from(QUEUES), now.config.queues.to_string());
        }
        let tunables = &now.config.tunables;
        let scheduler = match &now.config.scheduler {
            // Tunables are those of the scheduler that a start would pick.
            None => (!tunables.is_empty()).then(|| self.default_scheduler()),
            stated => stated.clone(),
        };
        stated.extend(scheduler.map(|name| (String::from(SCHEDULER), name)));
        let attributes = now.attributes.iter();
        stated.extend(attributes.map(|(name, n)| (format!("queue/{name}"), n.to_string())));
        stated.extend(tunables.iter().map(|(name, n)| (format!("{TUNABLES}{name}"), n.clone())));
        stated
    }

    /// Everything to be written, in the order in which it holds.
    fn writes(
        &self,
        plan: &Plan,
        stated: &BTreeMap<String, String>,
        spoken: &Spoken,
    ) -> Vec<Write> {
        let mut writes: Vec<Write> = Vec::new();
        let mut known = BTreeSet::new();
        for planned in &plan.writes {
            known.insert(planned.name.as_str());
            let (file, value) = (planned.name.clone(), Some(planned.value.clone()));
            let why = format!(" ({})", planned.rule);
            writes.push(Write { file, value, why, only_if_reset: false });
        }
        // A rule that is still there and does not match this time has said what it had to say:
        // what it wrote stays, unless the scheduler it wrote it to begins anew.
        for (file, ruled) in spoken.ruled.iter().filter(|(_, ruled)| self.rules.has(&ruled.text)) {
            if known.insert(file) && depends_on_scheduler(file) {
                let (file, value) = (file.clone(), Some(ruled.value.clone()));
                let why = format!(" ({})", ruled.place);
                writes.push(Write { file, value, why, only_if_reset: true });
            }
        }
        for (file, value) in stated {
            if known.insert(file) {
                let (file, value, why) = (file.clone(), Some(value.clone()), String::new());
                writes.push(Write { file, value, why, only_if_reset: false });
            }
        }
        for file in spoken.stated.iter().chain(spoken.ruled.keys()) {
            if known.insert(file) {
                let (file, why) = (file.clone(), String::from(" (no longer stated)"));
                writes.push(Write { file, value: None, why, only_if_reset: false });
            }
        }
        writes.sort_by_key(|write| turn_of(&write.file));
        writes
    }

    /// Keeps who speaks of which file, for the next time.
    fn remember(&self, plan: &Plan, stated: BTreeMap<String, String>, spoken: &mut Spoken) {
        let gone = |ruled: &Ruled| !self.rules.has(&ruled.text);
        spoken.ruled.retain(|file, ruled| !gone(ruled) || !stated.contains_key(file));
        spoken.stated = stated.into_keys().collect();
        for planned in &plan.writes {
            let text = plan.matched.iter().find(|(place, _)| *place == planned.rule);
            let known = spoken.ruled.get(&planned.name).map(|known| known.before.clone());
            let ruled = Ruled {
                place: planned.rule.clone(),
                text: text.map(|(_, text)| text.clone()).unwrap_or_default(),
                value: planned.value.clone(),
                before: known.unwrap_or_else(|| self.read(&planned.name)),
            };
            spoken.ruled.insert(planned.name.clone(), ruled);
        }
    }

    /// Makes one write; what is to be said of it.
    fn make(&self, write: &Write, spoken: &mut Spoken) -> Option<String> {
        let file = write.file.as_str();
        let Some(value) = &write.value else {
            let before = spoken.ruled.remove(file).and_then(|ruled| ruled.before);
            return self.set_back(file, before, &write.why);
        };
        if write.only_if_reset && self.read(file).is_none() {
            return None;
        }
        // A rule's value is taken as any write to the tree is.
        if let Some(tunable) = file.strip_prefix(TUNABLES)
            && write.why.is_empty()
            && let Err(told) = self.check_tunable(tunable, value, spoken)
        {
            return Some(told);
        }
        self.set(file, value, &write.why)
    }

    /// A file that is no longer stated gets its default, or its value from before any rule wrote to
    /// it.
    fn set_back(&self, file: &str, before: Option<String>, why: &str) -> Option<String> {
        if let Some(tunable) = file.strip_prefix(TUNABLES) {
            // One of a scheduler that is gone went with it.
            let mut fresh = self.fresh()?;
            let value = fresh.tunables().show(tunable).ok()?;
            return self.set(file, &value, why);
        }
        let stated = |name: &str| attributes().find(|(known, _)| *known == name);
        let default = match (file, file.strip_prefix("queue/").and_then(stated)) {
            (SCHEDULER, _) => Some(self.default_scheduler()),
            (_, Some((_, attribute))) => {
                let own = (attribute.of)(&Config::default()).map(|own| own.to_string());
                Some(own.unwrap_or_else(|| self.default_of(file)))
            }
            _ => before,
        };
        match default {
            Some(value) => self.set(file, &value, why),
            None => {
                let now = self.read(file).unwrap_or_default();
                let path = self.path(file);
                Some(format!("{RESTART}{path} stays {now:?}, which nothing states any more"))
            }
        }
    }

    /// Writes to a file unless it says so already; what came of it, if anything did.
    fn set(&self, file: &str, value: &str, why: &str) -> Option<String> {
        let before = self.read(file).unwrap_or_default();
        if before == value {
            return None;
        }
        let path = self.path(file);
        match self.tree.write(&path, value.as_bytes()) {
            Ok(()) => {
                let after = self.read(file).unwrap_or_default();
                (after != before).then(|| format!("{CHANGED}{path} {before} -> {after}{why}"))
            }
            Err(failure) => Some(format!("{FAILED}{failure}{why}")),
        }
    }

    /// The value of a file: of a list of schedulers the one that is chosen.
    fn read(&self, file: &str) -> Option<String> {
        let text = self.tree.read(&self.path(file)).ok()?;
        let text = text.trim_end();
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let chosen = chosen.filter(|_| file == SCHEDULER).map(|(chosen, _)| chosen);
        Some(String::from(chosen.unwrap_or(text)))
    }

    /// A target is strict, at a reload as at the start: what the tree would cut down to its range
    /// is refused here. A tunable of a scheduler that a rule replaced waits for that rule to go.
    fn check_tunable(&self, name: &str, value: &str, spoken: &Spoken) -> Result<(), String> {
        let (disk, scheduler) = (self.name(), self.device.scheduler());
        let judged = match self.fresh() {
            Some(mut fresh) => fresh.tunables().set_strict(name, value),
            None => weir_sched::tunable::row(&[], name).map(drop),
        };
        let Err(error) = judged else { return Ok(()) };
        let unknown = matches!(error, weir_sched::TunableError::Unknown(_));
        Err(match spoken.ruled.get(SCHEDULER).filter(|_| unknown) {
            Some(Ruled { place, .. }) => format!(
                "{NOTE}disk {disk}: {name}={value} does nothing while {place} has it use \
                 {scheduler}"
            ),
            None => format!("{FAILED}disk {disk}: scheduler {scheduler}: {error}"),
        })
    }

    /// The disk's scheduler as it is when it begins, beside the one at work.
    fn fresh(&self) -> Option<Box<dyn Scheduler>> {
        let config = self.device.config();
        let entry = weir_sched::find(self.family(), self.device.scheduler()).ok()?;
        let parts = self.device.settings();
        let compat = config.compat.as_deref();
        let level = entry.compat.iter().find(|level| Some(**level) == compat);
        let setup = Setup {
            limits: parts.limits,
            nr_requests: match config.mode {
                QueueMode::Sq => parts.nr_requests * 2,
                QueueMode::Mq => parts.nr_requests,
            },
            hard_queues: self.device.queues(),
            nomerges: parts.nomerges,
            compat: level.copied().unwrap_or_default(),
        };
        entry.make.map(|make| make(&setup))
    }

    fn family(&self) -> Family {
        match self.device.config().mode {
            QueueMode::Sq => Family::Legacy,
            QueueMode::Mq => Family::Multi,
        }
    }

    /// The scheduler that a start picks for a target that states none
    /// (docs/behaviour/block-layer.md, section 13.3).
    fn default_scheduler(&self) -> String {
        let mut target = self.started.clone();
        target.config.scheduler = None;
        let cmdline = target.cmdline.clone();
        // Its words without effect were reported at the start.
        let _ = cmdline.apply(self.name(), &mut target);
        if let Some(elevator) = target.config.scheduler {
            return elevator;
        }
        let stated = self.started.stated.rotational;
        let rotational = stated.unwrap_or_else(|| self.device.limits().rotational);
        let given = self.now.queues_given.then_some(self.now.config.queues);
        let one_queue = given.unwrap_or_else(|| self.device.queues()) == 1;
        String::from(match self.device.config().spread {
            Spread::RoundRobin => "none",
            Spread::Submitter => weir_sched::default_name(self.family(), rotational, one_queue),
        })
    }

    /// What is written to a file of `queue` whose default is the disk's.
    fn default_of(&self, file: &str) -> String {
        match file {
            "queue/nr_requests" => self.default_nr_requests().to_string(),
            // Its own word for its default.
            _ => String::from("-1"),
        }
    }

    /// The `nr_requests` that a switch to the present scheduler sets
    /// (docs/behaviour/block-layer.md, section 7.4).
    fn default_nr_requests(&self) -> u16 {
        let depth = self.device.depth();
        match (self.device.config().mode, self.device.scheduler()) {
            (QueueMode::Sq, _) => 128,
            (QueueMode::Mq, "none") => depth,
            (QueueMode::Mq, _) => 2 * depth.min(128),
        }
    }
}

/// Whether another scheduler resets this file.
fn depends_on_scheduler(file: &str) -> bool {
    file == "queue/nr_requests" || file.starts_with(TUNABLES)
}

/// Whether two targets differ in what only a start can change.
fn differs_for_good(started: &Target, now: &Target) -> bool {
    let rest = |target: &Target| {
        let mut rest = target.clone();
        let (fresh, mode) = (Config::default(), target.config.mode);
        (rest.queues_given, rest.attributes) = (false, Vec::new());
        (rest.config.scheduler, rest.config.tunables) = (None, Vec::new());
        (rest.config.nr_requests, rest.config.wbt_lat_us) = (None, None);
        for (_, attribute) in attributes() {
            if let Some(own) = (attribute.of)(&fresh) {
                (attribute.set)(&mut rest.config, own);
            }
        }
        (rest.config.queues, rest.config.mode) = (fresh.queues, mode);
        format!("{rest:?}")
    };
    rest(started) != rest(now)
}
