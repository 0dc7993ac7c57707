//! Disks for the tests of the tree: a real device, and one that has schedulers to switch.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use weir_bio::{Limits, Nanos, Size, Status, WriteCache};
use weir_control::{ControlCalls, Disk, LiveDisk, Parameters, Tree};
use weir_local::Ram;
use weir_queue::{
    Affinity, Config, Device, DeviceAttribute, Driver, DriverError, DriverQueue, Error,
    LiveRecording, Queues, Settings, Stats, WbtTarget,
};
use weir_sched::{Number, Tunable, TunableError, Unit, tunable};

/// The size of a device in memory.
pub const BYTES: u64 = 64 << 20;

/// A device in memory that no home turns: no I/O is under way in it.
pub fn device(config: Config) -> Device {
    Device::new(config, Arc::new(Ram::new(BYTES).unwrap())).unwrap()
}

/// Calls that wait for as long as it takes.
struct Unlimited;

impl ControlCalls for Unlimited {
    fn reconfigure(
        &self,
        device: &Device,
        change: &mut dyn FnMut(&mut Settings),
    ) -> Result<(), Error> {
        device.reconfigure(change)
    }

    fn set_scheduler(&self, device: &Device, name: &str) -> Result<Nanos, Error> {
        device.set_scheduler(name, &|| Nanos(1))
    }

    fn set_queues(&self, device: &Device, queues: u16) -> Result<(), Error> {
        device.set_queues(queues)
    }

    fn record(&self, device: &Device) -> Result<LiveRecording, Error> {
        device.record(&|| Nanos(1))
    }
}

/// The same as a disk of the tree.
pub fn live(device: Device) -> LiveDisk {
    LiveDisk::new(device, Unlimited, || Nanos(1))
}

/// A driver without a cache until one is turned on; its queues are never opened.
#[derive(Clone, Default)]
pub struct CacheLater {
    pub cache: Arc<Mutex<WriteCache>>,
    /// It does not say how large it is.
    pub silent: bool,
}

impl Driver for CacheLater {
    fn limits(&self) -> Limits {
        Limits { capacity: 1024, ..Limits::default() }
    }

    fn write_cache(&self) -> WriteCache {
        *self.cache.lock().unwrap()
    }

    fn enlarge(&self, _: u64) -> Result<Size, DriverError> {
        match self.silent {
            false => Ok(self.limits().size()),
            true => Err(DriverError { what: String::from("it says nothing"), source: None }),
        }
    }

    fn queues(&self) -> Queues {
        Paper(self.limits()).queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Paper(self.limits()).open(index, depth)
    }
}

/// A driver whose queues are never opened: only its limits can be asked.
pub struct Paper(pub Limits);

impl Driver for Paper {
    fn limits(&self) -> Limits {
        self.0.clone()
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 128, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Err(DriverError { what: String::from("it is made of paper"), source: None })
    }
}

/// A tree of one disk, for two threads.
pub fn tree(disk: impl Disk + 'static) -> Tree {
    let tree = Tree::new(Parameters::default());
    tree.add(Arc::new(disk), 2);
    tree
}

const fn number(name: &'static str, default: i128) -> Tunable {
    Tunable {
        name,
        unit: Unit::Requests,
        default,
        least: 0,
        most: i32::MAX as i128,
        number: Number::Signed32,
        when: weir_sched::When::AtOnce,
        meaning: "For tests.",
    }
}

/// Tunables of each kind.
const TUNABLES: &[Tunable] = &[
    number("fifo_batch", 16),
    number("prio_aging_expire", 10_000),
    Tunable {
        most: u64::MAX as i128,
        number: Number::Unsigned64,
        ..number("read_lat_nsec", 2_000_000)
    },
];

/// A disk whose settings are plain values, with four schedulers; `none` has no tunables.
pub struct Model {
    config: Config,
    write_cache: WriteCache,
    state: Mutex<State>,
}

struct State {
    parts: Settings,
    queues: u16,
    scheduler: &'static str,
    values: BTreeMap<&'static str, i128>,
    switches: u64,
    /// What its driver lets be written.
    depth: Option<u16>,
    /// What its driver shows of its cache.
    cache: Option<&'static str>,
}

/// What a driver with a cache shows of it.
const CACHE: DeviceAttribute =
    DeviceAttribute { name: "cache_type", unit: "", accepted: "", meaning: "Its cache." };

const DEVICE: [DeviceAttribute; 2] = [
    DeviceAttribute { name: "model", unit: "", accepted: "", meaning: "Its name." },
    DeviceAttribute { name: "queue_depth", unit: "", accepted: "a number", meaning: "Its depth." },
];

pub const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

impl Model {
    pub fn new(name: &str, limits: Limits) -> Model {
        let values = TUNABLES.iter().map(|row| (row.name, row.default)).collect();
        let config = Config { name: String::from(name), ..Config::default() };
        let wbt = WbtTarget::first(None, limits.rotational).unwrap();
        let write_cache = limits.write_cache();
        let parts = Settings::first(&config, limits, 128, wbt);
        let state = State {
            parts,
            queues: 1,
            scheduler: "none",
            values,
            switches: 0,
            depth: None,
            cache: None,
        };
        Model { config, write_cache, state: Mutex::new(state) }
    }

    /// The same with a driver that shows its queue depth.
    pub fn with_depth(mut self, depth: u16) -> Model {
        self.state.get_mut().unwrap().depth = Some(depth);
        self
    }

    /// The same, and what its driver shows of its cache.
    pub fn with_cache(mut self, kind: &'static str) -> Model {
        self.state.get_mut().unwrap().cache = Some(kind);
        self
    }

    /// The same, begun with so many hard queues.
    pub fn begun_with(mut self, queues: u16) -> Model {
        self.config.queues = queues;
        self.state.get_mut().unwrap().queues = queues;
        self
    }
}

impl Disk for Model {
    fn write_cache(&self) -> WriteCache {
        self.write_cache
    }

    fn bring_into_bounds(&self, scheduler: &str, parts: &mut Settings) -> Result<(), Error> {
        let most = if scheduler == "none" { 128 } else { 2048 };
        parts.nr_requests = parts.nr_requests.max(4);
        if parts.nr_requests > most {
            return Err(Error::Invalid(format!("nr_requests is above {most}")));
        }
        parts.limits = parts.limits.clone().validate()?;
        Ok(())
    }

    fn find_scheduler(&self, name: &str) -> Result<(&'static str, u16), Error> {
        let name = if name == "deadline" { "mq-deadline" } else { name };
        let known = SCHEDULERS.into_iter().find(|known| *known == name);
        let known = known.ok_or_else(|| Error::Invalid(format!("no scheduler {name:?}")))?;
        Ok((known, if known == "none" { 128 } else { 256 }))
    }

    fn queues_max(&self) -> u16 {
        64
    }

    fn is_durability_disabled(&self) -> bool {
        !self.config.barriers
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn settings(&self) -> Settings {
        self.state.lock().unwrap().parts.clone()
    }

    fn change(&self, change: &mut dyn FnMut(&mut Settings)) -> Result<(), Error> {
        let mut parts = self.settings();
        change(&mut parts);
        self.bring_into_bounds(&self.scheduler(), &mut parts)?;
        self.state.lock().unwrap().parts = parts;
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn queues(&self) -> u16 {
        self.state.lock().unwrap().queues
    }

    fn set_queues(&self, queues: u16) -> Result<(), Error> {
        self.state.lock().unwrap().queues = queues;
        Ok(())
    }

    fn enlarge(&self, _sectors: u64) -> Result<u64, Error> {
        Ok(self.settings().limits.capacity)
    }

    fn tags(&self) -> (u16, u16) {
        (128, 0)
    }

    fn scheduler(&self) -> String {
        String::from(self.state.lock().unwrap().scheduler)
    }

    fn schedulers(&self) -> Vec<&'static str> {
        SCHEDULERS.into()
    }

    fn set_scheduler(&self, name: &str) -> Result<(), Error> {
        let (known, nr_requests) = self.find_scheduler(name)?;
        let mut state = self.state.lock().unwrap();
        if state.scheduler != known {
            state.switches += 1;
            state.parts.nr_requests = nr_requests;
            state.parts.wbt = state.parts.wbt.beside(known);
        }
        state.scheduler = known;
        Ok(())
    }

    fn record(&self) -> Result<LiveRecording, Error> {
        Err(Error::Invalid(String::from("a model has nothing to record")))
    }

    fn has_wbt(&self) -> bool {
        true
    }

    fn uptime_ms(&self) -> u64 {
        90_000
    }

    fn attributes(&self) -> Vec<&'static DeviceAttribute> {
        let state = self.state.lock().unwrap();
        let depth = DEVICE.iter().filter(|_| state.depth.is_some());
        state.cache.iter().map(|_| &CACHE).chain(depth).collect()
    }

    fn attribute(&self, name: &str) -> Option<String> {
        let state = self.state.lock().unwrap();
        if name == CACHE.name {
            return state.cache.map(String::from);
        }
        let depth = state.depth?;
        Some(if name == "model" { "MODEL".to_owned() } else { depth.to_string() })
    }

    fn set_attribute(&self, name: &str, text: &str) -> Option<Result<(), String>> {
        let mut state = self.state.lock().unwrap();
        state.depth?;
        match text.trim().parse() {
            Ok(depth) => state.depth = Some(depth),
            Err(_) => return Some(Err(format!("{name}={text} is no number"))),
        }
        Some(Ok(()))
    }

    fn failures(&self) -> Vec<(weir_queue::Failure, u64)> {
        Vec::new()
    }

    fn flush_error(&self) -> Option<Status> {
        None
    }

    fn last_switch_us(&self) -> u64 {
        self.state.lock().unwrap().switches
    }

    fn tunables(&self) -> &'static [Tunable] {
        if self.scheduler() == "none" { &[] } else { TUNABLES }
    }

    fn tunable(&self, name: &str) -> Result<String, TunableError> {
        let row = tunable::row(self.tunables(), name)?;
        Ok(self.state.lock().unwrap().values[row.name].to_string())
    }

    fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError> {
        let row = tunable::row(self.tunables(), name)?;
        let value = row.parse(text)?;
        self.state.lock().unwrap().values.insert(row.name, value);
        Ok(())
    }
}
