//! How a submitter follows what has changed: settings, lanes, and the size of its partition.

use std::sync::Arc;

use super::Core;
use crate::directory::Partition;
use crate::snapshot::Snapshot;

impl Core {
    pub(super) fn refresh(&mut self) {
        self.payer.follow(&self.shared);
        if self.snapshot.version != self.shared.current.version() {
            let now = view(self.partition.as_deref(), self.shared.current.get());
            let before = std::mem::replace(&mut self.snapshot, now);
            if self.snapshot.layout != before.layout {
                self.find_lanes();
            }
        }
    }

    /// There are other lanes than before. None has anything of this submitter.
    #[cold]
    fn find_lanes(&mut self) {
        assert!(self.touched == 0 && self.plug.is_empty(), "a frozen device has no request");
        self.lane = self.wanted % usize::from(self.snapshot.queues);
        self.rings = self.shared.path.attach(self.id, &self.port, self.wanted, &self.snapshot);
        self.slots_max = self.snapshot.slots;
    }
}

/// The snapshot as the submitters of a partition use it: its end is the end of the device.
pub(super) fn view(of: Option<&Partition>, whole: Arc<Snapshot>) -> Arc<Snapshot> {
    let Some(partition) = of else { return whole };
    let mut limits = whole.settings.limits_of(partition.id);
    limits.capacity += partition.start();
    let mut snapshot = Snapshot::clone(&whole);
    snapshot.settings.limits = limits;
    snapshot.offline |= partition.driver().is_none();
    Arc::new(snapshot.derived())
}
