//! Path selectors: which path of a group carries the next request. Pure: time is an argument.
//!
//! Each lane has selectors of its own, so a choice reads and writes nothing that another thread
//! does. Counts under way are those of the lane: each lane spreads its own requests evenly, and the
//! sum over lanes is then even up to one request per lane and path. To sum over all lanes for each
//! request would be a cache miss for each of them.
//!
//! Rules, ties included, are dm's: each selector keeps the valid paths in a list; the path chosen
//! goes to the end of it, so that of equals the one longest unused is first.
//! Rules: docs/behaviour/multipath.md, section 1.2.

mod affinity;
mod historical;
mod queue_length;
mod round_robin;
mod service_time;

use weir_bio::Nanos;

use super::table::{GroupLine, Policy};

/// A request as a selector sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Its length, bytes.
    pub bytes: u64,
    /// The CPU that submits it.
    pub cpu: u32,
}

/// Chooses among the paths of one group, by number within the group. All are valid at first, in the
/// order of the table.
pub trait Selector: Send {
    /// The path for a request, if any is valid. It counts from [`started`](Selector::started) on.
    fn choose(&mut self, load: Load, now: Nanos) -> Option<usize>;

    /// The path is valid no more.
    fn fail(&mut self, path: usize);

    /// The path is valid again.
    fn reinstate(&mut self, path: usize);

    /// A request was sent down a path.
    fn started(&mut self, path: usize, bytes: u64) {
        let _ = (path, bytes);
    }

    /// One that was sent at `sent_at` has come back.
    fn ended(&mut self, path: usize, bytes: u64, sent_at: Nanos, now: Nanos) {
        let _ = (path, bytes, sent_at, now);
    }

    /// The figures of the status line for a path.
    fn figures(&self, path: usize) -> Figures {
        let _ = path;
        Figures::default()
    }
}

/// What selectors count for a path. Which of these a status line shows depends on the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests under way.
    pub outstanding: u64,
    /// Bytes under way.
    pub bytes: u64,
    /// Historical service time, in 1/1024 ns.
    pub service_time: u64,
    /// When that is out of date.
    pub stale_after: Nanos,
    /// IO affinity: requests of a CPU whose path was not valid.
    pub misses: u64,
}

impl Figures {
    /// The words of a status line.
    #[must_use]
    pub fn text(&self, policy: Policy, relative_throughput: u32) -> Vec<String> {
        let words = match policy {
            Policy::RoundRobin => vec![],
            Policy::QueueLength => vec![self.outstanding],
            Policy::ServiceTime => vec![self.bytes, u64::from(relative_throughput)],
            Policy::HistoricalServiceTime { .. } => {
                vec![self.service_time, self.outstanding, self.stale_after.0]
            }
            Policy::IoAffinity => vec![self.misses],
        };
        words.iter().map(u64::to_string).collect()
    }

    /// How many words that are.
    #[must_use]
    pub fn words(policy: Policy) -> usize {
        Figures::default().text(policy, 0).len()
    }

    /// These of one lane with those of another.
    pub fn add(&mut self, other: Figures) {
        self.outstanding += other.outstanding;
        self.bytes += other.bytes;
        self.misses += other.misses;
        self.service_time = self.service_time.max(other.service_time);
        self.stale_after = self.stale_after.max(other.stale_after);
    }
}

/// The selector of a group, for one lane. `node_of` says on which NUMA node a CPU is.
#[must_use]
pub fn selector(group: &GroupLine, node_of: fn(u32) -> u32) -> Box<dyn Selector> {
    let paths = group.paths.len();
    match group.policy {
        Policy::RoundRobin => Box::new(round_robin::RoundRobin::new(paths)),
        Policy::QueueLength => Box::new(queue_length::QueueLength::new(paths)),
        Policy::ServiceTime => {
            let throughputs = group.paths.iter().map(|path| path.relative_throughput);
            Box::new(service_time::ServiceTime::new(throughputs.collect()))
        }
        Policy::HistoricalServiceTime { base_weight, threshold_multiplier } => {
            Box::new(historical::Historical::new(paths, base_weight, threshold_multiplier))
        }
        Policy::IoAffinity => {
            let masks: Vec<u128> = group.paths.iter().map(|path| path.cpus).collect();
            Box::new(affinity::Affinity::new(&masks, node_of))
        }
    }
}

/// The valid paths, the one longest unused first.
#[derive(Clone, Debug)]
struct Order(Vec<u16>);

impl Order {
    fn new(paths: usize) -> Order {
        Order((0..paths as u16).collect())
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|path| usize::from(*path))
    }

    /// Takes the path at this place, which goes to the end.
    #[inline]
    fn use_at(&mut self, place: usize) -> usize {
        self.0[place..].rotate_left(1);
        usize::from(self.0[self.0.len() - 1])
    }

    fn remove(&mut self, path: usize) {
        self.0.retain(|other| usize::from(*other) != path);
    }

    fn push(&mut self, path: usize) {
        self.remove(path);
        self.0.push(path as u16);
    }

    fn push_first(&mut self, path: usize) {
        self.remove(path);
        self.0.insert(0, path as u16);
    }

    /// Takes the first of the paths of which no other is better; `is_better` compares one with
    /// the best so far.
    #[inline]
    fn use_best(&mut self, mut is_better: impl FnMut(usize, usize) -> bool) -> Option<usize> {
        let mut best = 0;
        let first = usize::from(*self.0.first()?);
        let mut best_path = first;
        for (place, path) in self.0.iter().enumerate().skip(1) {
            let path = usize::from(*path);
            if is_better(path, best_path) {
                (best, best_path) = (place, path);
            }
        }
        Some(self.use_at(best))
    }
}
