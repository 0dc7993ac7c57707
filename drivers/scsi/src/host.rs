//! A host: the adapter of one transport, what its logical units share, and how they are found.

use std::sync::{Arc, Mutex, PoisonError};

use weir_proto_scsi::Lun;
use weir_queue::{DriverError, Notices, TagSet};

use crate::carrier::Channel;
use crate::probe::{Facts, LunProbe, Probe};
use crate::shared::{HostOptions, HostShared};
use crate::transport::{Adapter, Transport};
use crate::units::Units;

/// The adapter of one transport with everything its logical units share: tags, ports, slots.
pub struct Host {
    pub(crate) shared: Arc<HostShared>,
    pub(crate) units: Arc<Units>,
    pub(crate) channels: Vec<Channel>,
    /// Logical units that were told of and are no disks here.
    told: Mutex<Vec<Lun>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Host({}, {:?})", self.shared.name, self.shared.adapter)
    }
}

impl Host {
    /// The host of a transport.
    ///
    /// # Panics
    /// If the adapter has no queue, carries no command on one, or has no slot for commands of the
    /// error handler.
    #[must_use]
    pub fn new(transport: Arc<dyn Transport>, options: HostOptions) -> Arc<Host> {
        let shared = HostShared::new(transport, options);
        let units = Arc::<Units>::default();
        let channel = |index| Channel::new(&shared, &units, index);
        let channels = (0..shared.adapter.queues).map(channel).collect();
        Arc::new(Host { shared, units, channels, told: Mutex::default() })
    }

    /// Its transport.
    #[must_use]
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.shared.transport
    }

    /// What it can carry.
    #[must_use]
    pub fn adapter(&self) -> &Adapter {
        &self.shared.adapter
    }

    /// The target as messages call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What happened to its target and units, as sentences.
    #[must_use]
    pub fn notices(&self) -> &Notices {
        &self.shared.notices
    }

    /// The tags that its units share.
    #[must_use]
    pub fn tags(&self) -> &Arc<TagSet> {
        &self.shared.tags
    }

    /// The logical units that the target has.
    ///
    /// # Errors
    /// The target cannot be reached, or does not say.
    pub fn luns(&self) -> Result<Vec<Lun>, DriverError> {
        let mut probe = LunProbe::default();
        self.transport().ask(&mut probe)?;
        probe.finish().map_err(|why| self.failed(&why.to_string()))
    }

    /// Asks which logical units the target has, and tells of those that no disk here is: each once,
    /// until it is gone.
    pub(crate) fn look_for_units(&self) -> Result<(), DriverError> {
        let there = self.luns()?;
        let open: Vec<Lun> = self.units.all().iter().map(|unit| unit.lun).collect();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|lun| there.contains(lun));
        for lun in there.into_iter().filter(|lun| !open.contains(lun)) {
            if told.contains(&lun) {
                continue;
            }
            told.push(lun);
            let line = self.transport().target_line(lun);
            let line = line.map_or_else(String::new, |line| format!(": {line}"));
            let name = self.name();
            self.notices().add(format!("{name}: LUN {lun} is there, and no disk here{line}"));
        }
        Ok(())
    }

    /// Identifies a logical unit.
    ///
    /// # Errors
    /// The target cannot be reached, there is no disk, or the command that failed.
    pub fn identify(&self, lun: Lun) -> Result<Facts, DriverError> {
        let mut probe = Probe::new(lun);
        self.transport().ask(&mut probe)?;
        probe.finish().map_err(|why| self.failed(&format!("LUN {lun}: {why}")))
    }

    fn failed(&self, what: &str) -> DriverError {
        DriverError { what: format!("{}: {what}", self.name()), source: None }
    }
}
