//! What is to be simulated, and its bounds.

use std::fmt;

use weir_bio::Nanos;
use weir_load::{Direction, Sizes};
use weir_map::multipath::table::Policy;
use weir_queue::Config;
use weir_sim_disk::measured::{Access, Use};
use weir_sim_disk::{Kind, Spec};

use crate::process::{Habit, Processes};
use crate::profile::{CPUS_MAX, Profile};

/// A host that is to be simulated.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// What work costs on it, and its processors.
    pub profile: Profile,
    /// How the queues of each device are built.
    pub config: Config,
    /// Its disks, all of one kind.
    pub disk: Spec,
    /// How many. Over a network those of a storage array are volumes of one array.
    pub disks: usize,
    /// How they are reached; `None`: directly, by one host.
    pub san: Option<San>,
    /// The processes of each host, by kind. What is of one kind is named once.
    pub processes: Vec<Processes>,
    /// Weights of groups, by path; 100 for those that are not named.
    pub weights: Vec<(String, u16)>,
    /// What chance begins with.
    pub seed: u64,
}

/// A storage network: hosts, and the paths from each to each disk. A path leads over one of its
/// host's adapters, which has a link.
#[derive(Clone, Debug)]
pub struct San {
    /// Processors of each host; they share out over the sockets that the profile has.
    pub hosts: Vec<usize>,
    /// Paths from a host to a disk.
    pub paths: usize,
    /// Adapters of a host; the paths of a disk go round them.
    pub adapters: usize,
    /// Bytes a second that an adapter's link carries each way; 0: no bound.
    pub link: u64,
    /// How the queues of a path are built.
    pub path: Config,
    /// What chooses the path of a request.
    pub selector: Policy,
    /// The ports of the target: a path of each disk leads to each of them.
    pub ports: Ports,
}

/// The ports of a target, as a host's SCSI mid-layer meets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Commands of all disks at one port at once, on each hard queue; `None`: as many as the paths
    /// of all disks may have, but 512 at most.
    pub can_queue: Option<u16>,
    /// Commands of a disk that the target takes over a path: to one more it answers TASK SET FULL.
    /// 0: no bound.
    pub task_set: u32,
    /// What is the matter with some of them.
    pub fault: Option<PortFault>,
}

/// What is the matter with ports of a target, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFault {
    /// Its kind.
    pub kind: PortFaultKind,
    /// So many ports have it, and so many paths of each disk: the first.
    pub paths: usize,
    /// When it begins, ns.
    pub from: u64,
    /// How long it lasts, ns.
    pub lasts: u64,
}

impl PortFault {
    pub(crate) fn covers(&self, now: Nanos) -> bool {
        (self.from..self.from.saturating_add(self.lasts)).contains(&now.0)
    }
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFaultKind {
    /// The connection is lost, and the adapter knows it.
    Lost,
    /// Nothing that is sent arrives, and nothing comes back.
    Silent,
    /// I/O is answered BUSY.
    Busy,
    /// Each disk says once that it was reset.
    Attention,
}

impl San {
    /// Whether a path may fail: something is the matter with one, or time may be up.
    pub(crate) fn may_fail(&self) -> bool {
        self.ports.fault.is_some() || self.path.timeout_ns > 0
    }

    fn check_ports(&self) -> Result<(), HostError> {
        let Ports { can_queue, fault, .. } = self.ports;
        between("can_queue", can_queue.unwrap_or(1).into(), 1, 10_000)?;
        let Some(fault) = fault else { return Ok(()) };
        between("fault_paths", fault.paths as u64, 1, self.paths as u64)?;
        if fault.kind == PortFaultKind::Silent && self.path.timeout_ns == 0 {
            let what = "fault=silent with timeout=0: what is sent would be waited for for ever";
            return Err(HostError(what.to_owned()));
        }
        Ok(())
    }
}

/// Disks at most.
const DISKS_MAX: usize = 1024;

/// Processes at most: as many as the bell tells apart.
const PROCESSES_MAX: usize = 4096;

/// Commands of all disks at one port of a target, where that is not stated, unless a disk alone may
/// have more: each path has a place in memory for each of them.
const CAN_QUEUE: usize = 512;

/// Commands of all hard queues of a port at once at most: the mid-layer has no more tags.
const PORT_TAGS_MAX: usize = 10_240;

/// Pairs of a process and a disk at most.
const PAIRS_MAX: usize = 1 << 20;

/// Paths from a host to a disk at most.
const PATHS_MAX: usize = 64;

/// Hard queues of all devices at most: as many as one home turns.
const LANES_MAX: usize = 65_536;

/// Tags of all hard queues at most: each has its place in memory, used or not.
const TAGS_MAX: usize = 1 << 26;

impl HostSpec {
    pub(crate) fn check(&self) -> Result<(), HostError> {
        let cpus = self.hosts().iter().copied().fold(0, usize::saturating_add);
        let hosts = self.hosts().len();
        let each = self.processes.iter().map(|kind| kind.count).fold(0, usize::saturating_add);
        let processes = each.saturating_mul(hosts);
        let pairs = processes.saturating_mul(self.disks);
        let over =
            self.san.as_ref().map_or(0, |san| san.paths.saturating_mul(san.path.queues.into()));
        let lanes = (over + usize::from(self.config.queues)) * hosts;
        let tags = self.tags().saturating_mul(hosts).saturating_mul(self.disks);
        for (name, value, most) in [
            ("processors", cpus, CPUS_MAX),
            ("vectors", self.profile.path.vectors, CPUS_MAX),
            ("disks", self.disks, DISKS_MAX),
            ("processes", processes, PROCESSES_MAX),
            ("processes * disks", pairs, PAIRS_MAX),
            ("hard queues", lanes.saturating_mul(self.disks), LANES_MAX),
            ("hard queues * depth", tags, TAGS_MAX),
        ] {
            between(name, value as u64, 1, most as u64)?;
        }
        if let Some(san) = &self.san {
            between("paths", san.paths as u64, 1, PATHS_MAX as u64)?;
            between("adapters", san.adapters as u64, 1, san.paths as u64)?;
            san.hosts.iter().try_for_each(|cpus| between("cpus", *cpus as u64, 1, 256))?;
            san.check_ports()?;
        }
        self.processes.iter().try_for_each(|kind| self.check_kind(kind))?;
        let memory = self.processes.iter().fold(0_u64, |sum, kind| {
            let each = u64::from(kind.habit.depth).saturating_mul(kind.job.buffer_bytes());
            sum.saturating_add(each.saturating_mul((kind.count * hosts) as u64))
        });
        between("bytes of all I/Os under way", memory, 0, MEMORY_MAX)?;
        self.check_measured()
    }

    /// Nothing is asked of a disk that was measured but what was seen of it.
    fn check_measured(&self) -> Result<(), HostError> {
        let Kind::Measured(measured) = &self.disk.kind else { return Ok(()) };
        let hosts = self.hosts().len() as u64;
        let asked = |kind: &Processes| u64::from(kind.habit.depth) * kind.count as u64 * hosts;
        // With several disks a process uses one after the other.
        let each = self.processes.iter().map(asked).sum::<u64>().div_ceil(self.disks as u64);
        let in_flight = each.min(self.tags() as u64 * hosts);
        let least = measured.least_in_flight();
        for kind in &self.processes {
            let Habit { think, think_spread, pause, pause_spread, .. } = kind.habit;
            let pauses = [think, think_spread, pause, pause_spread, kind.start, kind.stagger];
            if least > 1 && pauses.iter().any(|ns| *ns > 0) {
                return Err(HostError(format!(
                    "process {}: it pauses, so that fewer than {least} commands are at once, which \
                     is the fewest that was measured of the disk",
                    kind.name
                )));
            }
        }
        for kind in &self.processes {
            let Processes { name, job, .. } = kind;
            let sizes = job.directions().iter().map(|direction| &job.sizes[*direction]);
            let least = sizes.clone().map(Sizes::least).min().unwrap_or_default();
            let most = sizes.map(Sizes::most).max().unwrap_or_default();
            let of = Use {
                in_flight,
                read_percent: match job.direction {
                    Direction::Read => 100,
                    Direction::Mixed => job.read_percent,
                    Direction::Write | Direction::Trim | Direction::TrimWrite => 0,
                },
                sizes: [least, most],
                access: match job.access {
                    weir_load::Access::Random => Access::Random,
                    weir_load::Access::Sequential => Access::Sequential,
                },
                flushes: job.flush_every > 0,
            };
            measured.beyond(&of).map_err(|why| {
                HostError(format!("process {name}: {why} of what was measured of the disk"))
            })?;
        }
        Ok(())
    }

    /// The tags of what one host reaches one disk by.
    fn tags(&self) -> usize {
        let own = usize::from(self.config.depth.unwrap_or(self.disk.depth));
        // A path has a place for each tag of its port.
        let over = self.san.as_ref().map_or(0, |san| {
            let queues = usize::from(san.path.queues);
            // All hard queues of a host together have no more tags than that, and each a place for
            // every one of them.
            let of_host = (queues * usize::from(self.can_queue(san))).min(PORT_TAGS_MAX);
            san.paths.saturating_mul(queues * of_host)
        });
        (usize::from(self.config.queues) * own).saturating_add(over)
    }

    /// Commands of all disks at one port of the target at once, on each hard queue.
    pub(crate) fn can_queue(&self, san: &San) -> u16 {
        let depth = san.path.depth.unwrap_or(self.disk.depth);
        let all = usize::from(depth).saturating_mul(self.disks).min(CAN_QUEUE);
        san.ports.can_queue.unwrap_or(depth.max(all as u16))
    }

    /// Processors of each host.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        let machine = self.profile.machine;
        match &self.san {
            Some(san) => san.hosts.clone(),
            None => vec![machine.sockets.saturating_mul(machine.cores)],
        }
    }

    fn check_kind(&self, kind: &Processes) -> Result<(), HostError> {
        let Processes { habit, start, stagger, .. } = kind;
        between("count", kind.count as u64, 1, PROCESSES_MAX as u64)?;
        between("depth", habit.depth.into(), 1, u16::MAX.into())?;
        between("batch", habit.batch.into(), 1, u16::MAX.into())?;
        between("spacing", kind.spacing, 1, 1 << 20)?;
        between("ios", kind.ios.unwrap_or(1), 1, u64::MAX)?;
        for (name, ns) in [
            ("think", habit.think),
            ("think_spread", habit.think_spread),
            ("pause", habit.pause),
            ("pause_spread", habit.pause_spread),
            ("start", *start),
            ("stagger", *stagger),
        ] {
            between(name, ns, 0, TIME_MAX)?;
        }
        let name = &kind.name;
        if self.processes.iter().filter(|other| other.name == *name).count() > 1 {
            return Err(HostError(format!("two kinds of processes are called {name:?}")));
        }
        if kind.job.flush_every > 0 && self.disks > 1 {
            let (every, disks) = (kind.job.flush_every, self.disks);
            let what = format!("flush_every={every} with disks={disks}: a flush is for one disk");
            return Err(HostError(what));
        }
        Ok(())
    }
}

/// What all I/Os under way have for memory at most, bytes.
const MEMORY_MAX: u64 = 2 << 30;

/// The longest time of a process, ns: a thousand seconds.
const TIME_MAX: u64 = 1_000_000_000_000;

fn between(name: &str, value: u64, least: u64, most: u64) -> Result<(), HostError> {
    match value {
        value if (least..=most).contains(&value) => Ok(()),
        value => Err(HostError(format!("{name}={value} is outside {least}..={most}"))),
    }
}

/// Why a host cannot be simulated.
#[derive(Debug)]
pub struct HostError(pub(crate) String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}
