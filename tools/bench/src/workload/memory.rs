//! Disks in memory, from stage to stage of a run.

use std::sync::atomic::AtomicBool;

use weir::{Device, Opened, Target};
use weir_load::Job;
use weir_load::presets::Stage;

use crate::workload::spec::{Prepare, RunSpec};
use crate::workload::{devices, prepare};

/// Disks in memory, which stages without names share: the later ones find there what those before
/// them have left. A named one is a measurement of its own.
pub(super) struct Memory {
    kept: Vec<(String, Device, Vec<Device>)>,
    /// Threads of the largest stage, if there is anything to keep.
    pub(super) threads: Option<usize>,
    /// What was written before it was measured.
    pub(super) prepared: Vec<String>,
    /// The targets whose flushes make nothing durable, each once.
    pub(super) undurable: Vec<String>,
}

impl Memory {
    /// That of these stages, each of which has so many threads.
    pub(super) fn of(
        stages: &[Stage],
        threads_of: fn(&Stage) -> usize,
        prepared: Vec<String>,
    ) -> Memory {
        let keeps = stages.len() > 1 && stages.iter().all(|stage| stage.name.is_none());
        let threads = keeps.then(|| stages.iter().map(threads_of).max()).flatten();
        Memory { kept: Vec::new(), threads, prepared, undurable: Vec::new() }
    }

    /// Notes a target that was opened, if its flushes make nothing durable.
    fn note_durability(&mut self, name: &str, device: &Device) {
        let name = weir::target::shown(name);
        if device.is_durability_disabled() && !self.undurable.contains(&name) {
            self.undurable.push(name);
        }
    }

    /// Writes a device that was just opened, if that is for this process to do, notes it if its
    /// flushes make nothing durable, and has the page
    /// cache forget what the process before has left there; the devices that it lies on.
    pub(super) fn prepare(
        &mut self,
        asking: (&RunSpec, &AtomicBool),
        named: (&str, &Target),
        made: &Opened,
        jobs: &[&Job],
    ) -> Result<Vec<Device>, String> {
        self.note_durability(named.0, &made.device);
        let below: Vec<Device> = made.below().into_iter().collect();
        let done = prepare::memory(asking, named, (&made.device, &below), jobs)?;
        let is_new = |done: &String| !self.prepared.contains(done);
        self.prepared.extend(done.filter(is_new));
        if asking.0.prepare == Prepare::Memory {
            prepare::forget_cache(named.1);
        }
        Ok(below)
    }

    pub(super) fn find(&self, name: &str) -> Option<(Device, Vec<Device>)> {
        let found = self.kept.iter().find(|(known, ..)| known == name);
        found.map(|(_, device, below)| (device.clone(), below.clone()))
    }

    pub(super) fn keep(&mut self, name: &str, target: &Target, device: &Device, below: &[Device]) {
        if self.threads.is_some() && devices::is_memory(target) {
            self.kept.push((String::from(name), device.clone(), below.to_vec()));
        }
    }
}
