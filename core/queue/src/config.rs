//! How a device's queues are to be built.

use std::sync::Arc;

use weir_bio::Limits;
use weir_sched::{Family, Scheduler, Setup};

use crate::driver::{Driver, Queues};
use crate::error::{Error, invalid};
use crate::lanes::QUEUES_MAX;
use crate::schedulers::{Maker, Schedulers};
use crate::wbt::WbtTarget;

/// Which path requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueMode {
    /// One list under one lock.
    Sq,
    /// Soft queues feeding hard queues, nothing shared per I/O.
    #[default]
    Mq,
}

/// How requests are spread over hard queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Each submitter has its hard queue.
    #[default]
    Submitter,
    /// One shared counter deals requests out in turn, as illumos blkdev does: no merging,
    /// plugging, splitting or scheduling.
    RoundRobin,
}

/// How a device is built.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device's name, for messages.
    pub name: String,
    /// Which path requests take.
    pub mode: QueueMode,
    /// How they are spread.
    pub spread: Spread,
    /// Hard queues to begin with, 1 in `sq` mode.
    pub queues: u16,
    /// The scheduler's name; `None` for the default.
    pub scheduler: Option<String>,
    /// Schedulers of the program's own that it may have.
    pub schedulers: Schedulers,
    /// Whose behaviour the scheduler has; `None` for its default.
    pub compat: Option<String>,
    /// The scheduler's tunables that are not at their defaults: name and text.
    pub tunables: Vec<(String, String)>,
    /// Requests a queue holds; `None` for the default of the mode and scheduler.
    pub nr_requests: Option<u16>,
    /// Tags of a hard queue; `None`: as the driver says.
    pub depth: Option<u16>,
    /// 0: every merge, 1: cheap ones only, 2: none.
    pub nomerges: u8,
    /// `false`: flushes and FUA are stripped at admission, and nothing is durable.
    pub barriers: bool,
    /// Refuse writes whatever the driver can do.
    pub read_only: bool,
    /// Whether I/O is counted in the statistics.
    pub iostats: bool,
    /// A request is timed out after so long, ns; 0 = never.
    pub timeout_ns: u64,
    /// Cap of one request, sectors; 0 = default.
    pub max_user_sectors: u32,
    /// The latency that the write-back throttle keeps reads to, us; 0: nothing is throttled;
    /// `None`: by default.
    pub wbt_lat_us: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: String::from("disk"),
            mode: QueueMode::Mq,
            spread: Spread::Submitter,
            queues: 1,
            scheduler: None,
            schedulers: Schedulers::new(),
            compat: None,
            tunables: Vec::new(),
            nr_requests: None,
            depth: None,
            nomerges: 0,
            barriers: true,
            read_only: false,
            iostats: true,
            timeout_ns: 30_000_000_000,
            max_user_sectors: 0,
            wbt_lat_us: None,
        }
    }
}

impl Config {
    /// The setup of a scheduler with so many tags.
    pub(crate) fn setup(
        &self,
        limits: &Limits,
        nr_requests: u16,
        nomerges: u8,
        compat: &'static str,
    ) -> Setup {
        let (limits, hard_queues) = (limits.clone(), self.queues);
        Setup { limits, nr_requests, hard_queues, nomerges, compat }
    }
}

/// A scheduler that was looked up.
#[derive(Clone)]
pub(crate) struct Attached {
    pub(crate) name: &'static str,
    /// `None` for the multi-queue path without one.
    pub(crate) make: Option<Maker>,
    pub(crate) compat: &'static str,
    /// The program's own, known by the name it was added with.
    pub(crate) own: bool,
}

impl Attached {
    /// Makes one; `None` without a scheduler.
    ///
    /// # Errors
    /// One of the program's own that calls itself something else.
    pub(crate) fn made(&self, setup: &Setup) -> Result<Option<Box<dyn Scheduler>>, Error> {
        let Some(make) = &self.make else { return Ok(None) };
        let made = make(setup);
        match made.name() {
            other if self.own && other != self.name => {
                invalid(format!("scheduler {} calls itself {other:?}", self.name))
            }
            _ => Ok(Some(made)),
        }
    }
}

/// Bounds of `nr_requests` (docs/behaviour/block-layer.md, section 7.4).
pub(crate) const NR_REQUESTS_MIN: u16 = 4;
pub(crate) const NR_REQUESTS_MAX: u16 = 2048;

pub(crate) fn check_queues(config: &Config, queues: &Queues) -> Result<(), Error> {
    let (asked, name) = (config.queues, &config.name);
    let most = queues.max.min(QUEUES_MAX);
    if asked == 0 || asked > most {
        return invalid(format!("queues={asked} of {name} is outside 1..={most}"));
    }
    if config.mode == QueueMode::Sq && asked != 1 {
        return invalid(format!("queues={asked} of {name}: queue_mode=sq has exactly 1"));
    }
    if config.mode == QueueMode::Sq && config.spread == Spread::RoundRobin {
        return invalid(format!("spread=round-robin of {name} needs queue_mode=mq"));
    }
    if config.nomerges > 2 {
        return invalid(format!("nomerges={} is outside 0..=2", config.nomerges));
    }
    Ok(())
}

/// Whether writes may be throttled in front of a driver. The round-robin spread does not: illumos
/// blkdev has nothing of the kind.
pub(crate) fn has_wbt(config: &Config, driver: &dyn Driver) -> bool {
    config.spread == Spread::Submitter && !driver.is_bio_based()
}

/// The write-back throttle of a device that begins.
pub(crate) fn first_wbt(
    config: &Config,
    rotational: bool,
    has_wbt: bool,
) -> Result<WbtTarget, Error> {
    match config.wbt_lat_us {
        None if !has_wbt => Ok(WbtTarget::OFF),
        stated => {
            let target = WbtTarget::first(stated, rotational)?;
            check_wbt(&config.name, target, has_wbt)?;
            Ok(target)
        }
    }
}

/// Refuses a throttle where there is none.
pub(crate) fn check_wbt(name: &str, target: WbtTarget, has_wbt: bool) -> Result<(), Error> {
    if target.is_on() && !has_wbt {
        let us = target.us();
        return invalid(format!("wbt_lat_usec={us}: {name} throttles no writes itself"));
    }
    Ok(())
}

/// `nr_requests` by `config`, in front of hard queues of so many tags, some of them reserved.
pub(crate) fn nr_requests(
    config: &Config,
    depth: u16,
    reserved: u16,
    scheduled: bool,
) -> Result<u16, Error> {
    let (default, least, most) = match (config.mode, scheduled) {
        (QueueMode::Sq, _) => (128, NR_REQUESTS_MIN, NR_REQUESTS_MAX),
        (QueueMode::Mq, true) => (2 * depth.min(128), NR_REQUESTS_MIN, NR_REQUESTS_MAX),
        (QueueMode::Mq, false) => (depth, NR_REQUESTS_MIN.min(depth).max(reserved + 1), depth),
    };
    match config.nr_requests {
        None => Ok(default),
        Some(asked) if (least..=most).contains(&asked) => Ok(asked),
        Some(asked) => invalid(format!("nr_requests={asked} is outside {least}..={most}")),
    }
}

/// The scheduler that `config` names, or the default rule picks.
pub(crate) fn find_scheduler(config: &Config, default: &'static str) -> Result<Attached, Error> {
    let name = config.scheduler.as_deref().unwrap_or(default);
    if config.spread == Spread::RoundRobin && name != "none" {
        return invalid(format!("scheduler={name}: spread=round-robin takes none only"));
    }
    let family = family(config.mode);
    if let Some((name, make)) = config.schedulers.find(family, name)? {
        return match &config.compat {
            None => Ok(Attached { name, make: Some(make), compat: "", own: true }),
            Some(asked) => invalid(format!("compat={asked} of scheduler {name}: it has none")),
        };
    }
    let entry = weir_sched::find(family, name).map_err(Error::Invalid)?;
    let compat = match config.compat.as_deref() {
        None => entry.compat[0],
        Some(asked) => *entry.compat.iter().find(|level| **level == asked).ok_or_else(|| {
            let valid = entry.compat.join(", ");
            Error::Invalid(format!("compat={asked} of scheduler {name}: it has {valid}"))
        })?,
    };
    let make = entry.make.map(|make| Arc::new(make) as Maker);
    Ok(Attached { name: entry.name, make, compat, own: false })
}

/// The schedulers of a path.
pub(crate) fn family(mode: QueueMode) -> Family {
    match mode {
        QueueMode::Sq => Family::Legacy,
        QueueMode::Mq => Family::Multi,
    }
}

/// The scheduler that the default rule picks for a disk.
pub(crate) fn default_scheduler(
    config: &Config,
    rotational: bool,
    queues: &Queues,
) -> &'static str {
    if config.spread == Spread::RoundRobin {
        return "none";
    }
    let one_queue = config.queues == 1 || queues.shared_tags;
    weir_sched::default_name(family(config.mode), rotational, one_queue)
}

/// Twice what the queue holds, so that merged bios find a slot as well.
pub(crate) fn slots(nr_requests: u16) -> u16 {
    nr_requests.saturating_mul(2).max(8)
}
