//! A disk on which writes are tried: it answers each as the disk would that it stands for, with
//! those before it made, and nothing reaches that disk.
//!
//! The values of the files of a driver, in `device/`, are the driver's business, and so is whether
//! what lies below grows: those are taken as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Status, WriteCache};
use weir_queue::{Config, DeviceAttribute, Error, LiveRecording, QueueMode, Settings, Stats};
use weir_sched::tunable::row;
use weir_sched::{Family, Tunable, TunableError, find};

use crate::disk::Disk;
use crate::errno::Failure;
use crate::tree::Tree;

/// Writes to one disk that are tried, one after the other.
pub struct Trial {
    /// The disk stands in it alone.
    tree: Tree,
    disk: String,
}

impl Trial {
    /// Of the disk of this name.
    ///
    /// # Errors
    /// ENOENT without such a disk.
    pub fn of(tree: &Tree, name: &str) -> Result<Trial, Failure> {
        let entry = tree.entry(name)?;
        let (disk, slots) = (Arc::clone(&entry.disk), entry.slots);
        let changed = Changed {
            settings: disk.settings(),
            scheduler: None,
            queues: disk.queues(),
            values: BTreeMap::new(),
        };
        let tree = Tree::default();
        tree.add(Arc::new(TrialDisk { disk, changed: Mutex::new(changed) }), slots);
        Ok(Trial { tree, disk: String::from(name) })
    }

    /// The name of the disk.
    #[must_use]
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// The answer to a write to a file of the disk, by its path in the tree.
    ///
    /// # Errors
    /// As [`Tree::write`](crate::Tree::write).
    pub fn write(&self, path: &str, value: &[u8]) -> Result<(), Failure> {
        // Nothing happens that a log could tell of.
        let silence = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(silence, || self.tree.write(path, value))
    }
}

/// What was changed on it.
struct Changed {
    settings: Settings,
    /// Another scheduler than the disk has.
    scheduler: Option<&'static str>,
    queues: u16,
    /// Of tunables that were written.
    values: BTreeMap<&'static str, String>,
}

struct TrialDisk {
    disk: Arc<dyn Disk>,
    changed: Mutex<Changed>,
}

impl TrialDisk {
    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for TrialDisk {
    fn config(&self) -> &Config {
        self.disk.config()
    }

    fn settings(&self) -> Settings {
        self.changed().settings.clone()
    }

    fn change(&self, change: &mut dyn FnMut(&mut Settings)) -> Result<(), Error> {
        let mut settings = self.settings();
        change(&mut settings);
        self.disk.bring_into_bounds(&self.scheduler(), &mut settings)?;
        self.changed().settings = settings;
        Ok(())
    }

    fn bring_into_bounds(&self, scheduler: &str, settings: &mut Settings) -> Result<(), Error> {
        self.disk.bring_into_bounds(scheduler, settings)
    }

    fn find_scheduler(&self, name: &str) -> Result<(&'static str, u16), Error> {
        self.disk.find_scheduler(name)
    }

    fn queues_max(&self) -> u16 {
        self.disk.queues_max()
    }

    fn has_wbt(&self) -> bool {
        self.disk.has_wbt()
    }

    fn stats(&self) -> Stats {
        self.disk.stats()
    }

    fn queues(&self) -> u16 {
        self.changed().queues
    }

    fn set_queues(&self, queues: u16) -> Result<(), Error> {
        let most = self.queues_max();
        if !(1..=most).contains(&queues) {
            let name = &self.config().name;
            let what = format!("queues={queues} of {name} is outside 1..={most}");
            return Err(Error::Invalid(what));
        }
        self.changed().queues = queues;
        Ok(())
    }

    fn enlarge(&self, sectors: u64) -> Result<u64, Error> {
        Ok(sectors)
    }

    fn tags(&self) -> (u16, u16) {
        self.disk.tags()
    }

    fn scheduler(&self) -> String {
        self.changed().scheduler.map_or_else(|| self.disk.scheduler(), String::from)
    }

    fn schedulers(&self) -> Vec<&'static str> {
        self.disk.schedulers()
    }

    fn set_scheduler(&self, name: &str) -> Result<(), Error> {
        let (name, nr_requests) = self.disk.find_scheduler(name)?;
        if name != self.scheduler() {
            let mut changed = self.changed();
            changed.scheduler = Some(name);
            changed.settings.nr_requests = nr_requests;
            changed.settings.wbt = changed.settings.wbt.beside(name);
            changed.values.clear();
        }
        Ok(())
    }

    fn record(&self) -> Result<LiveRecording, Error> {
        Err(Error::Invalid(String::from("a trial records nothing")))
    }

    fn last_switch_us(&self) -> u64 {
        self.disk.last_switch_us()
    }

    fn flush_error(&self) -> Option<Status> {
        self.disk.flush_error()
    }

    fn failures(&self) -> Vec<(weir_queue::Failure, u64)> {
        self.disk.failures()
    }

    fn uptime_ms(&self) -> u64 {
        self.disk.uptime_ms()
    }

    fn tunables(&self) -> &'static [Tunable] {
        let Some(name) = self.changed().scheduler else { return self.disk.tunables() };
        let family = match self.config().mode {
            QueueMode::Mq => Family::Multi,
            QueueMode::Sq => Family::Legacy,
        };
        find(family, name).map_or(&[], |entry| entry.tunables)
    }

    fn tunable(&self, name: &str) -> Result<String, TunableError> {
        let known = row(self.tunables(), name)?;
        let changed = self.changed();
        if let Some(value) = changed.values.get(known.name) {
            return Ok(value.clone());
        }
        match changed.scheduler {
            None => self.disk.tunable(name),
            Some(_) => Ok(known.default.to_string()),
        }
    }

    fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError> {
        let known = row(self.tunables(), name)?;
        let value = known.parse(text)?;
        self.changed().values.insert(known.name, value.to_string());
        Ok(())
    }

    fn attributes(&self) -> Vec<&'static DeviceAttribute> {
        self.disk.attributes()
    }

    fn attribute(&self, name: &str) -> Option<String> {
        self.disk.attribute(name)
    }

    fn set_attribute(&self, name: &str, _: &str) -> Option<Result<(), String>> {
        let known = self.attributes().into_iter().any(|known| known.name == name);
        known.then_some(Ok(()))
    }

    fn is_offline(&self) -> bool {
        self.disk.is_offline()
    }

    fn legs(&self) -> Vec<String> {
        self.disk.legs()
    }

    fn map(&self) -> Option<&dyn weir_queue::MapControl> {
        self.disk.map()
    }

    fn message(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn write_cache(&self) -> WriteCache {
        self.disk.write_cache()
    }

    fn is_durability_disabled(&self) -> bool {
        self.disk.is_durability_disabled()
    }
}
