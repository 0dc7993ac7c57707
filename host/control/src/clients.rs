//! The interface of a front to the tree: its clients, and what may be done about one.

use weir_bio::{Class, GroupId, IoPrio, SECTOR};
use weir_queue::{ClientTimes, Device, QueueMode, Spread, Tally};

use crate::config::ExportPolling;
use crate::errno::Failure;

/// A client of a front: a connection, or a disk that is open as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number: never used again while the front runs.
    pub number: u64,
    /// The name of its export.
    pub export: String,
    /// Where it comes from: host and port, or user, group and process.
    pub peer: String,
    /// The group its I/O counts in.
    pub group: GroupId,
    /// The priority that was given to its I/O; not set: that of its process.
    pub ioprio: IoPrio,
    /// The priority of its process, as it was last seen.
    pub process_priority: IoPrio,
    /// Its writes are background writes, as write-back is: schedulers put others before them.
    pub background: bool,
    /// How its export has the thread wait that serves it.
    pub polling: ExportPolling,
    /// The disk behind the export.
    pub disk: String,
    /// I/Os that ended; one that was cut counts as its parts.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that its disk has accepted and that have not ended.
    pub in_flight: u64,
    /// The hard queue of its disk that it feeds; none if it feeds the one that all do, or each in
    /// turn.
    pub hard_queue: Option<u16>,
}

impl Client {
    /// The client with the figures that its submitter into `device` has now.
    #[must_use]
    pub fn seen(&self, tally: &Tally, device: &Device) -> Client {
        let config = device.config();
        // On the single path there is one queue for all, and a spread in turn uses every one.
        let feeds_one = config.mode == QueueMode::Mq && config.spread == Spread::Submitter;
        Client {
            ios: tally.ios(),
            bytes: tally.sectors() * SECTOR,
            in_flight: tally.in_flight(),
            hard_queue: feeds_one.then(|| tally.hard_queue(device.queues())),
            ..self.clone()
        }
    }

    /// The priority of its I/O: the one that was given, or else that of its process.
    #[must_use]
    pub fn in_effect(&self) -> IoPrio {
        if self.ioprio == IoPrio::NONE { self.process_priority } else { self.ioprio }
    }

    /// Takes a class for its I/O.
    pub fn take(&mut self, to: Classing) {
        self.group = to.group.unwrap_or(self.group);
        self.ioprio = to.ioprio.unwrap_or(self.ioprio);
        self.background = to.background.unwrap_or(self.background);
    }
}

/// Memory that a front's clients share, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most that all clients together may hold.
    pub bound: u64,
    /// Bytes that the clients hold now.
    pub held: u64,
}

/// The class of a client's I/O from now on; `None` leaves a part of it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classing {
    /// The group that it counts in.
    pub group: Option<GroupId>,
    /// Its priority.
    pub ioprio: Option<IoPrio>,
    /// Whether its writes are background writes.
    pub background: Option<bool>,
}

/// The clients of a front: asked and told by any thread.
pub trait Clients: Send + Sync {
    /// The front's kind: the name of its folder in the tree.
    fn kind(&self) -> &'static str;

    /// The names of its exports.
    fn exports(&self) -> Vec<String>;

    /// The exports that say how threads wait which serve their clients, each with that.
    fn polling(&self) -> Vec<(String, ExportPolling)> {
        Vec::new()
    }

    /// The clients there are now.
    fn clients(&self) -> Vec<Client>;

    /// The times of a client's I/O, summed now; `None` if it is gone.
    fn times(&self, number: u64) -> Option<ClientTimes>;

    /// The memory its clients share, if that is bounded.
    fn memory(&self) -> Option<Memory>;

    /// Gives a client's I/O another class from then on. False if it is gone.
    ///
    /// # Errors
    /// No such group.
    fn reclassify(&self, number: u64, to: Classing) -> Result<bool, Failure>;

    /// Ends a client without waiting for it; I/O that was accepted is finished. False if it is
    /// gone.
    fn dismiss(&self, number: u64) -> bool;
}

/// The classes by the names of the configuration file.
pub(crate) const CLASSES: [(&str, Class); 4] = [
    ("none", Class::None),
    ("real-time", Class::RealTime),
    ("best-effort", Class::BestEffort),
    ("idle", Class::Idle),
];

/// The level of I/O without a priority.
pub(crate) const LEVEL_DEFAULT: u8 = 4;
