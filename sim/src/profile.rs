//! Profiles: what the events of the core cost the processors of a host. Each is a file that says
//! where its figures are from.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// What work costs on a kind of host. All times are nanoseconds of one processor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its processors.
    pub machine: Machine,
    /// The way of one I/O, without schedulers.
    pub path: Path,
    /// Locks and what they protect.
    pub lock: LockPrice,
    /// The queue that all share where requests are dealt out in turn.
    pub shared_queue: SharedQueue,
    /// The SCSI mid-layer with the driver of the adapter, of each path of a disk.
    #[serde(default)]
    pub scsi: ScsiPrice,
    /// The mapper of the paths.
    #[serde(default)]
    pub mapper: MapperPrice,
    /// What schedulers cost besides, by name. One that is not named costs nothing.
    #[serde(default)]
    pub scheduler: BTreeMap<String, SchedulerPrice>,
}

/// The processors of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Sockets.
    pub sockets: usize,
    /// Processors of each.
    pub cores: usize,
    /// A cache line goes to another processor of the socket.
    pub line: u64,
    /// The same to another socket.
    pub far_line: u64,
    /// A process that has waited takes the processor from one that has run for so long.
    pub slice: u64,
    /// From one process to another.
    pub switch: u64,
    /// A processor that rested begins to work.
    pub idle_exit: u64,
    /// What work takes of its price in each eighth of the time, percent, where processors are not
    /// always as fast: one of these for each [`PACE_NS`], as if drawn. Waiting for a lock and for
    /// its cache lines is not work.
    #[serde(default)]
    pub paces: Option<Paces>,
}

/// Shares of the time that processors are as fast in.
pub type Paces = [u16; 8];

/// How long processors are equally fast, ns: longer than an I/O takes, and short enough that a run
/// has seen them all.
pub const PACE_NS: u64 = 250_000;

/// Percent of its price that work may take.
const PACE: std::ops::RangeInclusive<u16> = 10..=10_000;

/// The way of one I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Into the kernel and out again, once for all I/Os that go together.
    pub syscall: u64,
    /// Makes up an I/O and checks it; the process's own work.
    pub make: u64,
    /// Accepts a bio: a request, a place in the soft queue.
    pub submit: u64,
    /// Hands a request to the driver; under the lock of a single queue.
    pub issue: u64,
    /// Rings the device, once for all requests of a burst.
    pub doorbell: u64,
    /// Processors that the interrupts of a disk are spread over, at most.
    pub vectors: usize,
    /// Takes an interrupt, once for all that have ended.
    pub interrupt: u64,
    /// Ends a request; under the lock of a single queue.
    pub end: u64,
    /// Makes a sleeping process ready.
    pub wake: u64,
    /// The process takes note of an end.
    pub complete: u64,
}

/// Locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockPrice {
    /// Taken and let go by the processor that had it last.
    pub near: u64,
    /// Cache lines that come over when another processor had it: the lock's own and those that it
    /// protects.
    pub lines: u64,
    /// So many processors may wait without the holder feeling them.
    pub crowd_from: u64,
    /// Each beyond that prolongs a section by so many percent.
    pub crowd: u64,
    /// So many processors wait actively for a lock; those behind them sleep meanwhile.
    pub spinners: u64,
}

/// A queue with a lock that every I/O passes: its critical sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedQueue {
    /// A request is put down.
    pub enter: u64,
    /// A request is moved from the waiting to the running ones.
    pub start: u64,
    /// A request is taken out.
    pub leave: u64,
    /// A look whether there is more.
    pub look: u64,
    /// One in so many of these sections is held up: its processor is taken away. 0: none.
    pub stall_every: u64,
    /// For so long.
    pub stall: u64,
}

/// The SCSI mid-layer and the driver of an adapter. On the single-queue path both sections are
/// under the lock of the adapter, which the paths of all disks over it share, and the queue's lock
/// is let go of and had again around each; on the multi-queue path under none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScsiPrice {
    /// A command is made and sent.
    pub send: u64,
    /// It has ended.
    pub done: u64,
    /// Cache lines with counters of the adapter that both change where no lock covers them.
    pub counters: u64,
}

/// A mapper: what a request costs beside its way through the queue of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapperPrice {
    /// A path is chosen, and the request copied for it.
    pub map: u64,
    /// The copy has ended, and so does the request.
    pub end: u64,
}

/// A scheduler's cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerPrice {
    /// Each lane has a lock of its own, instead of one for all.
    #[serde(default)]
    pub lane: bool,
    /// Outside its lock, for each request.
    pub own: u64,
    /// The same once for all requests that are inserted in one turn.
    #[serde(default)]
    pub turn: u64,
    /// Cache lines of a request and its bookkeeping that come over outside a critical section, when
    /// another processor was in the one before.
    #[serde(default)]
    pub after: u64,
    /// Its critical sections for each request that is inserted.
    #[serde(default)]
    pub insert: Vec<u64>,
    /// For each that is picked.
    #[serde(default)]
    pub pick: Vec<u64>,
    /// For each that ends.
    #[serde(default)]
    pub end: Vec<u64>,
}

/// Processors of a host at most.
pub(crate) const CPUS_MAX: usize = 256;

/// The largest figure of a profile, so that no sum or product of some is too large: a second.
const FIGURE_MAX: i64 = 1_000_000_000;

/// The first figure that is too large, in words.
fn above_most(name: &str, value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Integer(figure) if *figure > FIGURE_MAX => {
            Some(format!("{name} = {figure} is above {FIGURE_MAX}"))
        }
        toml::Value::Array(values) => values.iter().find_map(|value| above_most(name, value)),
        toml::Value::Table(table) => {
            table.iter().find_map(|(inner, value)| above_most(&format!("{name}.{inner}"), value))
        }
        _ => None,
    }
}

/// Why a text is no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// What is wrong, with its line.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let refused = |error: toml::de::Error| ProfileError(error.to_string().trim().into());
        let profile: Profile = toml::from_str(text).map_err(refused)?;
        profile.checked(&text.parse().map_err(refused)?)
    }

    /// Reads a profile from a table of a text that has more in it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(table: &toml::Table) -> Result<Profile, ProfileError> {
        let read = Profile::deserialize(table.clone());
        let profile = read.map_err(|error| ProfileError(error.to_string().trim().into()))?;
        profile.checked(table)
    }

    fn checked(self, all: &toml::Table) -> Result<Profile, ProfileError> {
        let Machine { sockets, cores, .. } = self.machine;
        match sockets.saturating_mul(cores) {
            1..=CPUS_MAX => {}
            cpus => {
                let what = format!("sockets * cores = {cpus} is outside 1..={CPUS_MAX}");
                return Err(ProfileError(what));
            }
        }
        let mut paces = self.machine.paces.iter().flatten();
        if let Some(pace) = paces.find(|pace| !PACE.contains(pace)) {
            let (least, most) = (PACE.start(), PACE.end());
            return Err(ProfileError(format!("machine.paces: {pace} is outside {least}..={most}")));
        }
        let too_large = all.iter().find_map(|(name, value)| above_most(name, value));
        too_large.map_or(Ok(self), |what| Err(ProfileError(what)))
    }

    /// Whether it has prices for what lies between a host and a disk that it reaches over paths.
    pub(crate) fn has_paths(&self) -> bool {
        self.scsi != ScsiPrice::default() && self.mapper != MapperPrice::default()
    }

    /// The profiles that do.
    pub(crate) fn with_paths() -> Vec<&'static str> {
        let has = |name: &&str| Profile::known(name).is_ok_and(|profile| profile.has_paths());
        PROFILES.iter().map(|(name, _)| *name).filter(has).collect()
    }

    /// A profile that is known by name, one of [`PROFILES`].
    ///
    /// # Errors
    /// There is none of this name.
    pub fn known(name: &str) -> Result<Profile, ProfileError> {
        let Some((_, text)) = PROFILES.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
            let what = format!("no profile {name:?}; there are {}", names.join(", "));
            return Err(ProfileError(what));
        };
        Profile::parse(text)
    }
}

/// Profiles that are known by name, and their texts.
pub const PROFILES: &[(&str, &str)] = &[
    ("illumos-2019", include_str!("../profiles/illumos-2019.toml")),
    ("cascade-1sock-6.3", include_str!("../profiles/cascade-1sock-6.3.toml")),
    ("broadwell-2sock-4.1", include_str!("../profiles/broadwell-2sock-4.1.toml")),
    ("guest-1cpu-6.12", include_str!("../profiles/guest-1cpu-6.12.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_profile_is_one_and_another_name_is_refused_with_theirs() {
        for (name, _) in PROFILES {
            assert!(Profile::known(name).is_ok(), "{name}: {:?}", Profile::known(name));
        }
        let refused = Profile::known("abacus").expect_err("none").to_string();
        assert!(refused.contains("\"abacus\"; there are illumos-2019"), "{refused}");
    }

    #[test]
    fn a_profile_without_processors_or_with_an_unknown_word_is_refused() {
        let text = PROFILES[0].1;
        let none = text.replace("sockets = 2", "sockets = 0");
        assert!(Profile::parse(&none).expect_err("none").to_string().contains("outside 1..=256"));
        let dear = text.replace("syscall = ", "syscall = 9000000");
        let why = Profile::parse(&dear).expect_err("a price").to_string();
        assert!(why.starts_with("path.syscall = 9000000") && why.contains("above"), "{why}");
        let word = text.replace("sockets", "sackets");
        assert!(Profile::parse(&word).expect_err("word").to_string().contains("sackets"));
    }
}
