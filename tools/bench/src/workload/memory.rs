//! Disks in memory, from stage to stage of a run.

use weir::{Device, Target};
use weir_load::presets::Stage;

use crate::workload::conduct::threads_of;
use crate::workload::devices;

/// Disks in memory, which stages without names share: the later ones find there what those before
/// them have left. A named one is a measurement of its own.
pub(super) struct Memory {
    kept: Vec<(String, Device, Vec<Device>)>,
    /// Threads of the largest stage, if there is anything to keep.
    pub(super) threads: Option<usize>,
    /// What was written before it was measured.
    pub(super) prepared: Vec<String>,
}

impl Memory {
    pub(super) fn of(stages: &[Stage], prepared: Vec<String>) -> Memory {
        let keeps = stages.len() > 1 && stages.iter().all(|stage| stage.name.is_none());
        let threads = keeps.then(|| stages.iter().map(threads_of).max()).flatten();
        Memory { kept: Vec::new(), threads, prepared }
    }

    pub(super) fn note_prepared(&mut self, done: String) {
        if !self.prepared.contains(&done) {
            self.prepared.push(done);
        }
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
