//! The host of one case.

use weir_bio::units::{parse_size, parse_time_ns};
use weir_bio::{Class, IoPrio};
use weir_load::{Access, Amount, Direction, Job, Sizes};
use weir_map::multipath::table::Policy;
use weir_queue::{Config, QueueMode, Spread};
use weir_sim_disk::Spec;

use super::{Chosen, row_of};
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::{HostSpec, PortFault, PortFaultKind, Ports, San};

/// What a case is made of: one value for each path.
pub(super) struct Build<'a> {
    pub(super) chosen: &'a Chosen<'a>,
    pub(super) kinds: &'a [String],
    pub(super) model: Option<&'a Spec>,
    pub(super) measured_on: Option<&'a Profile>,
}

impl Build<'_> {
    /// A value, or its default; empty where there is none.
    pub(super) fn word(&self, path: &str) -> &str {
        let default = || row_of(path).expect("a path of the table").default;
        self.chosen.get(path).copied().unwrap_or_else(default)
    }

    fn whole(&self, path: &str) -> Option<u64> {
        Some(self.word(path)).filter(|word| !word.is_empty())?.parse().ok()
    }

    pub(super) fn number(&self, path: &str) -> u64 {
        self.whole(path).expect("it has a default, and was checked when it was stated")
    }

    pub(super) fn time(&self, path: &str) -> u64 {
        parse_time_ns(self.word(path)).expect("checked when it was stated")
    }

    fn size(&self, path: &str) -> Option<u64> {
        let word = Some(self.word(path)).filter(|word| !word.is_empty())?;
        Some(parse_size(word).expect("checked when it was stated"))
    }

    /// Paths below this one, each without it, and their values.
    fn below<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = (&'s str, &'s str)> {
        let of =
            move |(path, value): (&&'s str, &&'s str)| Some((path.strip_prefix(prefix)?, *value));
        self.chosen.iter().filter_map(of)
    }

    pub(super) fn host(&self) -> Result<HostSpec, String> {
        let mut profile = match self.own_host() {
            Some(profile) => profile.clone(),
            None => Profile::known(self.word("host.profile")).map_err(|why| why.to_string())?,
        };
        let machine = &mut profile.machine;
        machine.sockets = self.whole("host.sockets").map_or(machine.sockets, |n| n as usize);
        machine.cores = self.whole("host.cores").map_or(machine.cores, |n| n as usize);
        let cpus = machine.sockets * machine.cores;
        let mut disk = match self.model {
            Some(model) => model.clone(),
            None => Spec::preset(self.word("disk.preset")).map_err(|why| why.to_string())?,
        };
        if let Some(depth) = self.whole("disk.depth") {
            disk.depth = depth as u16;
        }
        self.kinds.iter().try_for_each(|kind| self.check_places(kind, disk.size))?;
        let san = self.san(cpus)?;
        if san.is_some() && !profile.has_paths() {
            return Err(format!(
                "host.profile={} has no prices for paths; there are {}",
                self.word("host.profile"),
                Profile::with_paths().join(", ")
            ));
        }
        let weights = self.below("weights.").map(|(path, weight)| {
            (path.to_owned(), weight.parse().expect("checked when it was stated"))
        });
        Ok(HostSpec {
            profile,
            config: self.config(cpus),
            disk,
            disks: self.number("disk.count") as usize,
            san,
            processes: self.kinds.iter().map(|kind| self.processes(kind)).collect(),
            weights: weights.collect(),
            seed: 0,
        })
    }

    /// The host that the disk was measured on, where no other is stated.
    fn own_host(&self) -> Option<&Profile> {
        self.measured_on.filter(|_| !self.chosen.contains_key("host.profile"))
    }

    /// How the disks are reached; `None`: directly.
    fn san(&self, cpus: usize) -> Result<Option<San>, String> {
        let hosts = self.number("host.count") as usize;
        let paths = match self.whole("path.count") {
            Some(paths) => paths as usize,
            None if hosts > 1 => 1,
            None => {
                return match self.below("path.").next() {
                    Some((name, value)) => {
                        Err(format!("path.{name}={value} without path.count: there are no paths"))
                    }
                    None => Ok(None),
                };
            }
        };
        if let Some((name, value)) = self.below("path.fault_").next()
            && !self.chosen.contains_key("path.fault")
        {
            return Err(format!("path.fault_{name}={value} without path.fault: there is none"));
        }
        let stated = |path: &str| Some(self.word(path)).filter(|word| !word.is_empty());
        let mode = self.mode(stated("path.mode").unwrap_or(self.word("queue.mode")));
        let default = if mode == QueueMode::Sq { "noop" } else { "none" };
        let scheduler = stated("path.scheduler").unwrap_or(default);
        Ok(Some(San {
            hosts: vec![cpus; hosts],
            paths,
            adapters: self.whole("path.adapters").map_or(paths.min(4), |count| count as usize),
            link: self.size("path.link").expect("it has a default"),
            path: Config {
                mode,
                queues: self.whole("path.queues").unwrap_or(1) as u16,
                depth: self.whole("path.depth").map(|depth| depth as u16),
                scheduler: Some(scheduler.to_owned()),
                timeout_ns: self.time("path.timeout"),
                wbt_lat_us: Some(0),
                ..Config::default()
            },
            selector: match self.word("path.selector") {
                "round-robin" => Policy::RoundRobin,
                "queue-length" => Policy::QueueLength,
                _ => Policy::ServiceTime,
            },
            ports: self.ports(),
        }))
    }

    fn ports(&self) -> Ports {
        let kind = match self.word("path.fault") {
            "lost" => Some(PortFaultKind::Lost),
            "silent" => Some(PortFaultKind::Silent),
            "busy" => Some(PortFaultKind::Busy),
            "attention" => Some(PortFaultKind::Attention),
            _ => None,
        };
        Ports {
            can_queue: self.whole("path.can_queue").map(|count| count as u16),
            task_set: self.whole("path.task_set").unwrap_or(0) as u32,
            fault: kind.map(|kind| PortFault {
                kind,
                paths: self.number("path.fault_paths") as usize,
                from: self.time("path.fault_from"),
                lasts: self.time("path.fault_lasts"),
            }),
        }
    }

    fn mode(&self, word: &str) -> QueueMode {
        if word == "sq" { QueueMode::Sq } else { QueueMode::Mq }
    }

    fn config(&self, cpus: usize) -> Config {
        let mode = self.mode(self.word("queue.mode"));
        let all = if mode == QueueMode::Sq { 1 } else { cpus.min(256) as u64 };
        let tunables = self.below("queue.tunables.");
        let scheduler = Some(self.word("queue.scheduler")).filter(|word| !word.is_empty());
        Config {
            mode,
            spread: match self.word("queue.spread") {
                "round-robin" => Spread::RoundRobin,
                _ => Spread::Submitter,
            },
            queues: self.whole("queue.queues").unwrap_or(all) as u16,
            scheduler: scheduler.map(String::from),
            tunables: tunables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            nr_requests: self.whole("queue.nr_requests").map(|number| number as u16),
            nomerges: self.number("queue.nomerges") as u8,
            max_user_sectors: self.whole("queue.max_sectors_kb").map_or(0, |kib| kib as u32 * 2),
            timeout_ns: 0,
            wbt_lat_us: Some(0),
            ..Config::default()
        }
    }

    fn processes(&self, kind: &str) -> Processes {
        let path = |field: &str| format!("process.{kind}.{field}");
        let time = |field: &str| self.time(&path(field));
        let number = |field: &str| self.number(&path(field));
        let habit = Habit {
            depth: number("depth") as u16,
            think: time("think"),
            think_spread: time("think_spread"),
            // weir's own threads hand in together whatever they have.
            batch: match self.own_host() {
                Some(_) if !self.chosen.contains_key(path("batch").as_str()) => number("depth"),
                _ => number("batch"),
            } as u32,
            pause: time("pause"),
            pause_spread: time("pause_spread"),
        };
        Processes {
            group: self.word(&path("group")).to_owned(),
            start: time("start"),
            stagger: time("stagger"),
            ios: self.whole(&path("ios")),
            ..Processes::new(kind, number("count") as usize, habit, self.job(kind))
        }
    }

    fn job(&self, kind: &str) -> Job {
        let path = |field: &str| format!("process.{kind}.{field}");
        let word = |field: &str| self.word(&path(field));
        let number = |field: &str| self.number(&path(field));
        let class = match word("class") {
            "real-time" => Class::RealTime,
            "best-effort" => Class::BestEffort,
            "idle" => Class::Idle,
            _ => Class::None,
        };
        let bytes = self.size(&path("bytes"));
        let all = number("count").saturating_mul(self.number("host.count"));
        let sequential = word("access") == "sequential";
        Job {
            name: kind.to_owned(),
            access: if sequential { Access::Sequential } else { Access::Random },
            direction: match word("direction") {
                "write" => Direction::Write,
                "mixed" => Direction::Mixed,
                _ => Direction::Read,
            },
            read_percent: number("read_percent") as u8,
            sizes: [0; 3].map(|_| Sizes::Fixed(self.size(&path("size")).expect("a default"))),
            // Each has a part, on whatever host it is.
            size: bytes.map(|bytes| Amount::Bytes(bytes.saturating_mul(all))),
            parted: sequential || bytes.is_some(),
            time_based: bytes.is_none(),
            flush_every: number("flush_every") as u32,
            background: word("background") == "true",
            ioprio: match class {
                Class::None => IoPrio::NONE,
                class => IoPrio::new(class, number("level") as u8),
            },
            ..Job::default()
        }
    }
}
