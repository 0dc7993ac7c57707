//! The end of the daemon, and the lines of the log on how it went.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir::Device;

use super::Daemon;
use crate::Failure;

impl Daemon {
    /// Stops within `limit`: clients first, then every accepted write is finished and flushed.
    pub(super) fn stop(&self, limit: Duration) -> Result<(), Failure> {
        let started = Instant::now();
        let clients: usize = self.fronts.iter().map(|front| front.clients().clients().len()).sum();
        for front in &self.fronts {
            let left = (limit / 2).saturating_sub(started.elapsed());
            front.stop(left).iter().for_each(|what| tracing::warn!("{what}"));
        }
        let took = |since: Instant| format!("{:.2} s", since.elapsed().as_secs_f64());
        match clients {
            0 => {}
            1 => tracing::info!("1 client was waited for, {}", took(started)),
            many => tracing::info!("{many} clients were waited for, {}", took(started)),
        }
        let disks: Vec<(Device, &str)> =
            self.served.disks().into_iter().map(|disk| (disk.clone(), end_of(&disk))).collect();
        let left = (limit * 4 / 5).saturating_sub(started.elapsed());
        let stopped = self.host.stop(left.as_nanos() as u64);
        let late = stopped.as_ref().err().into_iter().flatten();
        let late: Vec<&str> = late.map(|late| late.device.as_str()).collect();
        // Of a pool it is the whole that is closed; a host that does not end names no disk.
        let is_late = |disk: &Device| {
            let whole = disk.whole();
            let names = [&disk.config().name, &whole.config().name];
            late.contains(&"") || names.iter().any(|name| late.contains(&name.as_str()))
        };
        let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (disk, end) in disks.iter().filter(|(disk, _)| !is_late(disk)) {
            ends.entry(end).or_default().push(&disk.config().name);
        }
        ends.iter().for_each(|(end, names)| tracing::info!("{end}: {}", names.join(", ")));
        match stopped {
            Ok(()) => {
                tracing::info!("stopped in {}", took(started));
                Ok(())
            }
            Err(late) => {
                if late.iter().all(|late| late.flush.is_some()) {
                    tracing::error!("not all disks were flushed when they were closed");
                } else {
                    tracing::error!("not all disks came to rest in {}", took(started));
                }
                let lines: Vec<String> = late.iter().map(ToString::to_string).collect();
                Err(Failure::No(lines.join("\nweir: ")))
            }
        }
    }
}

/// How a disk ends that comes to rest.
fn end_of(disk: &Device) -> &'static str {
    // Of a disk that lies on others it is theirs as well.
    match (disk.is_durability_disabled(), disk.settings().limits.volatile_cache) {
        (true, _) => "disks closed, durability disabled",
        (false, true) => "disks flushed and closed",
        (false, false) => "disks closed, which have no write cache to flush",
    }
}
