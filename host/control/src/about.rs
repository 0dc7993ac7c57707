//! What a daemon tells the tree of itself.

use crate::config::Host;

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
    /// How its threads wait, and the cost and gain of that.
    pub polling: Box<dyn Fn() -> Polled + Send + Sync>,
}

/// How the threads of a daemon wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// The rule where no client of an export has another.
    pub rule: Host,
    /// Each thread since the start.
    pub threads: Vec<ThreadPolled>,
}

/// The cost and the gain of polling on one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPolled {
    /// The rule that it follows now: the strongest among those of its clients.
    pub rule: Host,
    /// Waits that were polled.
    pub polls: u64,
    /// Those that ended meanwhile: each saved a sleep.
    pub met: u64,
    /// CPU time for it, us.
    pub polled_us: u64,
    /// That of it after which a sleep came after all, us.
    pub vain_us: u64,
}

/// A place at which a daemon can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `control`, `metrics` or the kind of a front.
    pub kind: &'static str,
    /// An address, a socket or a folder.
    pub place: String,
}
