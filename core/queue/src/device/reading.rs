//! The statistics of a device, summed when a caller asks for them.

use weir_bio::Nanos;

use super::Device;
use crate::stats::{QueueUse, Stats, TICK_NS};

impl Device {
    /// Statistics, summed at `now` by the clock of its submitters. Busy time is counted up to then
    /// while the driver holds a request, as Linux does where its statistics are read.
    #[must_use]
    pub fn stats_at(&self, now: Nanos) -> Stats {
        let snapshot = self.shared.current.get();
        let tick = now.0 / TICK_NS;
        match &self.partition {
            _ if !snapshot.iostats => {}
            Some(partition) if partition.gauges.in_driver() != [0, 0] => {
                partition.retired().busy_ticks += partition.stamp.advance(tick);
            }
            None if self.shared.is_busy(snapshot.queues) => {
                self.shared.ledger().charge(self.shared.stamp.advance(tick));
            }
            Some(_) | None => {}
        }
        self.stats()
    }

    /// Statistics, summed now; the busy time is that up to the last start or end of an I/O, or
    /// [reading](Device::stats_at).
    #[must_use]
    pub fn stats(&self) -> Stats {
        if let Some(partition) = &self.partition {
            return self.stats_of(partition);
        }
        let mut stats = self.shared.ledger().sum();
        self.shared.path.each_gauges(|gauges| stats.add_lane(gauges));
        stats.in_flight = self.shared.gate.inside().saturating_sub(stats.handing_over);
        stats
    }

    /// The use of each hard queue in turn; of those in use and of those that were before.
    #[must_use]
    pub fn queue_uses(&self) -> Vec<QueueUse> {
        let mut uses = Vec::new();
        self.shared.path.each_gauges(|gauges| uses.push(QueueUse::of(gauges)));
        uses
    }
}
