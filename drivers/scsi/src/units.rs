//! The open logical units of a host.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_bio::Nanos;
use weir_proto_scsi::Lun;

use crate::shared::HostShared;
use crate::unit::UnitShared;

/// The open logical units of a host.
#[derive(Default)]
pub(crate) struct Units(Mutex<Vec<Weak<UnitShared>>>);

impl Units {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<UnitShared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A unit is opened.
    pub(crate) fn join(&self, unit: &Arc<UnitShared>) {
        let mut units = self.lock();
        if units.len() == units.capacity() {
            // Only then, so that a host of many units is not looked through for each of them.
            units.retain(|unit| unit.strong_count() > 0);
        }
        units.push(Arc::downgrade(unit));
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Arc<UnitShared>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// A task set of the target was full: the depth of each of its units is too high.
    #[cold]
    pub(crate) fn task_set_full(&self, now: Nanos) {
        self.all().iter().for_each(|unit| unit.task_set_full(now));
    }

    /// Each will say once that it was reset: `lun`, or all.
    #[cold]
    pub(crate) fn expect_attention(&self, lun: Option<Lun>) {
        for unit in self.all().iter().filter(|unit| lun.is_none_or(|lun| lun == unit.lun)) {
            unit.expect_attention(true);
        }
    }

    /// The target was reset from here, at this port: `lun` of it, or all. Commands at the other
    /// ports are gone without an answer.
    #[cold]
    pub(crate) fn were_reset(&self, shared: &HostShared, lun: Option<Lun>, port: u16) {
        self.expect_attention(lun);
        shared.suspect(lun, port);
    }
}
