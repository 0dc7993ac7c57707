//! The interface of a server to the tree: who its clients are, and a way to class them anew.

use weir_bio::{Class, GroupId, IoPrio};

use crate::errno::Failure;

/// A client as the tree shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Its number: never used again while the server runs.
    pub number: u64,
    /// The name of its export.
    pub export: String,
    /// Where it comes from: host and port, or user, group and process.
    pub address: String,
    /// The group its I/O counts in.
    pub group: GroupId,
    /// The priority of its I/O.
    pub ioprio: IoPrio,
    /// The disk behind the export.
    pub disk: String,
    /// I/Os that ended.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The hard queue of its disk that it feeds; none if it is not one alone.
    pub hard_queue: Option<u16>,
}

/// Memory that a server's clients share, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The most that all clients together may hold.
    pub bound: u64,
    /// Bytes that the clients hold now.
    pub held: u64,
}

/// A server: asked and told by any thread.
pub trait Clients: Send + Sync {
    /// The names of its exports.
    fn exports(&self) -> Vec<String>;

    /// The clients that are connected now.
    fn connected(&self) -> Vec<Connected>;

    /// The memory its clients share.
    fn memory(&self) -> Memory;

    /// Gives a client another group or priority; its I/O from then on has them. False if it is
    /// gone.
    ///
    /// # Errors
    /// No such group.
    fn reclassify(
        &self,
        number: u64,
        group: Option<GroupId>,
        ioprio: Option<IoPrio>,
    ) -> Result<bool, Failure>;
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
