//! What a daemon tells the tree of itself.

/// What a daemon tells of itself, beside its disks and clients.
pub struct About {
    /// Its version.
    pub version: &'static str,
    /// How long it has run, ms.
    pub uptime_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// How long the CPUs of the machine had nothing to do in that time, summed, ms.
    pub idle_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Where it can be reached now.
    pub listeners: Box<dyn Fn() -> Vec<Listener> + Send + Sync>,
}

/// A place at which a daemon can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `control`, `metrics` or the kind of a front.
    pub kind: &'static str,
    /// An address, a socket or a folder.
    pub place: String,
}
