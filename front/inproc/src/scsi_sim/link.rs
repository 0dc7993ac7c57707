//! The connection of one nexus, and how long each side waits for it.

use weir_bio::Nanos;
use weir_driver_scsi::Refusal;
use weir_sim_target::{NexusId, PortId};

/// How long a port with commands may be silent, and then how long it has to say that it is there.
const KEEP_ALIVE_NS: u64 = 5_000_000_000;

/// How long a transport waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A port that has commands and gave no answer for so long is asked whether it is there, and is
    /// lost if it does not say so within the same time; `None`: it is not asked.
    pub keep_alive_ns: Option<u64>,
    /// Commands wait so long for a connection that was lost.
    pub replacement_ns: u64,
    /// The target drops a session that is silent for so long: its commands do nothing any more.
    pub drops_ns: u64,
    /// After so long the transport takes for granted that it has. Less than `drops_ns` breaks the
    /// contract of `Port`: commands that are handed back may land.
    pub bound_ns: u64,
}

impl Patience {
    /// With this replacement time, and the bound of twice that.
    #[must_use]
    pub const fn new(replacement_ns: u64) -> Patience {
        let bound_ns = replacement_ns.saturating_mul(2);
        let keep_alive_ns = Some(KEEP_ALIVE_NS);
        Patience { keep_alive_ns, replacement_ns, drops_ns: bound_ns, bound_ns }
    }
}

/// The way to a target.
#[derive(Clone, Debug)]
pub struct Route {
    /// The target as messages call it.
    pub name: String,
    /// The target port.
    pub port: PortId,
    /// Hardware queues, each with a nexus of its own, 1 or more.
    pub sessions: u16,
    /// Commands of each, 1 or more.
    pub depth: u16,
    /// How long it waits.
    pub patience: Patience,
}

/// A connection.
pub(super) struct Link {
    /// That of the session that was lost, until it is reinstated or dropped.
    pub(super) nexus: Option<NexusId>,
    pub(super) lost: Option<Loss>,
    pub(super) heard: Nanos,
    /// When it was asked whether it is there.
    pub(super) asked: Option<Nanos>,
}

/// A connection that was lost.
pub(super) struct Loss {
    pub(super) since: Nanos,
    pub(super) retry_at: Nanos,
    pub(super) reads_ended: bool,
    pub(super) all_ended: bool,
}

impl Link {
    pub(super) fn new(now: Nanos) -> Link {
        Link { nexus: None, lost: None, heard: now, asked: None }
    }

    pub(super) fn nexus(&self) -> Option<NexusId> {
        self.nexus
    }

    pub(super) fn is_up(&self) -> bool {
        self.lost.is_none()
    }

    pub(super) fn heard(&mut self, now: Nanos) {
        (self.heard, self.asked) = (now, None);
    }

    /// Why nothing can be sent, if that is so.
    pub(super) fn refusal(&self, patience: &Patience, now: Nanos) -> Option<Refusal> {
        let until = self.outage_until(patience)?;
        Some(if now < until { Refusal::Down } else { Refusal::Lost })
    }

    pub(super) fn outage_until(&self, patience: &Patience) -> Option<Nanos> {
        self.lost.as_ref().map(|loss| loss.since + patience.replacement_ns)
    }

    /// When to look at it again.
    pub(super) fn wake_at(&self, patience: &Patience, has_commands: bool) -> Option<Nanos> {
        let Some(loss) = &self.lost else {
            let keep_alive = patience.keep_alive_ns.filter(|_| has_commands)?;
            return Some(self.asked.unwrap_or(self.heard) + keep_alive);
        };
        let reads = (!loss.reads_ended).then(|| loss.since + patience.replacement_ns);
        let bound = (!loss.all_ended).then(|| loss.since + patience.bound_ns);
        let drops = self.nexus.map(|_| loss.since + patience.drops_ns);
        [Some(loss.retry_at), reads, bound, drops].into_iter().flatten().min()
    }
}
