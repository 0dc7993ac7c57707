//! A disk of which only times are known.

use serde::Deserialize;
use weir_bio::{Nanos, Prng};

use crate::ends::Ends;
use crate::machine::{Job, Machine};
use crate::read;
use crate::servers::{Pool, Server, transfer_ns};

/// So many commands at once, each for a time; then a link that all of them share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fixed {
    /// Commands that are served at once.
    pub units: u32,
    /// What each takes, ns.
    #[serde(deserialize_with = "read::time")]
    pub latency: u64,
    /// What a write takes instead; `None`: as a read.
    #[serde(deserialize_with = "read::time_if_any")]
    pub write_latency: Option<u64>,
    /// What each takes besides, at random between 0 and this, ns.
    #[serde(deserialize_with = "read::time")]
    pub spread: u64,
    /// Added where a command does not begin at the end of the one before, ns.
    #[serde(deserialize_with = "read::time")]
    pub jump: u64,
    /// A write is answered before it is on the medium: flushes are sent, each a command as long as
    /// a read.
    pub volatile: bool,
    /// Bytes a second of the link; 0: no bound. A single unit transfers while it serves.
    #[serde(deserialize_with = "read::size")]
    pub bandwidth: u64,
}

impl Default for Fixed {
    fn default() -> Fixed {
        Fixed {
            units: 1,
            latency: 0,
            write_latency: None,
            spread: 0,
            jump: 0,
            volatile: false,
            bandwidth: 0,
        }
    }
}

impl Fixed {
    pub(crate) fn check(&self) -> Result<(), String> {
        read::between("units", u64::from(self.units), 1, 65_536)?;
        read::times([
            ("latency", self.latency),
            ("write_latency", self.write_latency.unwrap_or(0)),
            ("spread", self.spread),
            ("jump", self.jump),
        ])
    }
}

#[derive(Debug)]
pub(crate) struct FixedDisk {
    spec: Fixed,
    units: Pool,
    link: Server,
    /// The sector behind the last command.
    behind: Option<u64>,
    prng: Prng,
}

impl FixedDisk {
    pub(crate) fn new(spec: Fixed, seed: u64) -> FixedDisk {
        let units = Pool::new(spec.units);
        FixedDisk { spec, units, link: Server::default(), behind: None, prng: Prng::new(seed) }
    }
}

impl Machine for FixedDisk {
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends) {
        let Fixed { latency, write_latency, spread, jump, bandwidth, units, .. } = self.spec;
        let own = match write_latency {
            Some(write) if job.changes() => write,
            _ => latency,
        };
        let chance = if spread > 0 { self.prng.below(spread + 1) } else { 0 };
        let is_elsewhere = self.behind.replace(job.sector + u64::from(job.sectors))
            != Some(job.sector)
            && job.sectors > 0;
        let service = own + chance + if is_elsewhere { jump } else { 0 };
        let transfer = transfer_ns(job.moved_bytes(), bandwidth);
        let at = match units {
            1 => self.units.serve(now, service.saturating_add(transfer)).1,
            _ => {
                let (_, served) = self.units.serve(now, service);
                self.link.serve(served, transfer)
            }
        };
        ends.add(job.id, at);
    }
}
