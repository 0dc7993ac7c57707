//! Several ways to one simulated device: each is a driver of its own over the same sectors, and
//! can be broken, or fall silent, by itself.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use weir_bio::{Data, Limits, Nanos, Op, Size, Status};
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::Table;
use weir_queue::driver::Affinity;
use weir_queue::{
    Activation, Batch, Cancel, Config, Detail, Device, Done, Driver, DriverError, DriverQueue,
    MapControl, PortListener, PortState, Queues, Tag, TargetPort, Unflushed,
};
use weir_ring::Wake;

use super::device::{Plan, Shape, Sim};
use super::path::Path;

/// Lanes of the simulated device that belong to each way.
pub const LANES: usize = 8;

/// The state of one way.
#[derive(Default)]
pub struct Way {
    /// It answers everything with this, and carries nothing out; 0: it is well.
    error: AtomicU32,
    /// Its driver takes commands, and answers them so.
    pub commands: Mutex<Option<(Status, Detail)>>,
    /// Commands that came.
    pub asked: AtomicU32,
    /// Requests that came, by op: flushes and others.
    pub flushes: AtomicU32,
    /// Requests but flushes.
    pub requests: AtomicU32,
    /// Requests that came without FAILFAST_TRANSPORT.
    pub patient: AtomicU32,
    /// Its target port, if it has one.
    pub port: Arc<WayPort>,
    /// Every answer comes so much later, ns.
    pub delay: Mutex<Option<Arc<AtomicU64>>>,
    /// Its size, once that has changed: sectors.
    pub grown: Mutex<Option<u64>>,
    /// Why it does not tell its size, if it does not.
    pub size_refused: Mutex<Option<&'static str>>,
    /// How often it was asked for its size.
    pub size_asked: AtomicU32,
    /// What its driver knows of writes that it has not flushed.
    pub unflushed: Mutex<Unflushed>,
}

/// The target port of a way, as the scene has it.
#[derive(Default)]
pub struct WayPort {
    /// The state that it tells when asked; none: it has not said.
    pub state: Mutex<Option<PortState>>,
    /// The state that it comes to have before it is listened to.
    pub state_before: Mutex<Option<PortState>>,
    listener: Mutex<Option<Arc<dyn PortListener>>>,
    /// Activations that were begun, and states that were asked for.
    pub activations: AtomicU32,
    /// How often its state was asked for.
    pub refreshes: AtomicU32,
}

impl WayPort {
    /// The target tells another state.
    pub fn becomes(&self, state: PortState, now: Nanos) {
        *self.state.lock().unwrap() = Some(state);
        self.listener().changed(now);
    }

    /// An activation has ended.
    pub fn activated(&self, how: Activation, now: Nanos) {
        self.listener().activated(how, now);
    }

    fn listener(&self) -> Arc<dyn PortListener> {
        Arc::clone(self.listener.lock().unwrap().as_ref().expect("the device listens"))
    }
}

impl TargetPort for WayPort {
    fn state(&self) -> Option<PortState> {
        *self.state.lock().unwrap()
    }

    fn refresh(&self, _: Nanos) {
        self.refreshes.fetch_add(1, Ordering::SeqCst);
    }

    fn activate(&self, _: Nanos) {
        self.activations.fetch_add(1, Ordering::SeqCst);
    }

    fn listen(&self, listener: Arc<dyn PortListener>) {
        if let Some(state) = self.state_before.lock().unwrap().take() {
            *self.state.lock().unwrap() = Some(state);
        }
        *self.listener.lock().unwrap() = Some(listener);
    }
}

impl Way {
    /// Answers everything with this from now on; `None`: it is well again.
    pub fn fail_with(&self, status: Option<Status>) {
        self.error.store(status.map_or(0, |status| status as u32), Ordering::SeqCst);
    }

    /// Changes with everything that it answers itself.
    pub fn moves(&self) -> u64 {
        u64::from(self.requests.load(Ordering::SeqCst) + self.flushes.load(Ordering::SeqCst))
    }

    fn error(&self) -> Option<Status> {
        let error = self.error.load(Ordering::SeqCst);
        (error != 0).then(|| Status::ALL[error as usize])
    }
}

/// A driver: one way to the device.
struct WayDriver {
    sim: Arc<Sim>,
    way: Arc<Way>,
    number: usize,
    queues: Queues,
    has_port: bool,
}

impl Driver for WayDriver {
    fn limits(&self) -> Limits {
        self.sim.limits()
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    fn unflushed(&self) -> Unflushed {
        *self.way.unflushed.lock().unwrap()
    }

    fn takes_commands(&self) -> bool {
        self.way.commands.lock().unwrap().is_some()
    }

    fn target_port(&self) -> Option<Arc<dyn TargetPort>> {
        self.has_port.then(|| Arc::clone(&self.way.port) as Arc<_>)
    }

    fn enlarge(&self, _: u64) -> Result<Size, DriverError> {
        self.way.size_asked.fetch_add(1, Ordering::SeqCst);
        if let Some(why) = *self.way.size_refused.lock().unwrap() {
            return Err(DriverError { what: String::from(why), source: None });
        }
        let grown = self.way.grown.lock().unwrap().map(|sectors| Size { sectors, padding: 0 });
        Ok(grown.unwrap_or(self.limits().size()))
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        assert!(usize::from(index) < LANES);
        let inner = self.sim.open((self.number * LANES) as u16 + index, depth)?;
        Ok(Box::new(WayQueue {
            inner,
            way: Arc::clone(&self.way),
            own: Vec::new(),
            delayed: Vec::new(),
        }))
    }
}

struct WayQueue {
    inner: Box<dyn DriverQueue>,
    way: Arc<Way>,
    /// Requests that the broken way answers.
    own: Vec<(Tag, Status, Vec<Data>)>,
    /// Answers on their way: when they are there, and what they are.
    delayed: Vec<(Nanos, Tag, Status, Vec<Data>)>,
}

impl DriverQueue for WayQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            if request.cdb().is_some() {
                self.way.asked.fetch_add(1, Ordering::SeqCst);
                self.own.push((tag, Status::Ok, Vec::new()));
                batch.take();
                continue;
            }
            let is_flush = request.op() == Op::Flush;
            let count = if is_flush { &self.way.flushes } else { &self.way.requests };
            count.fetch_add(1, Ordering::SeqCst);
            let hasty = request.flags().has(weir_bio::Flags::FAILFAST_TRANSPORT);
            if !is_flush && !hasty {
                self.way.patient.fetch_add(1, Ordering::SeqCst);
            }
            if let Some(status) = self.way.error() {
                let mut lent = Vec::new();
                if request.op().has_data() {
                    request.lend(&mut lent);
                }
                self.own.push((tag, status, lent));
                batch.take();
                continue;
            }
            batch.offer(1, |one| self.inner.submit(one, now));
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.inner.at_home(lane);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let delay = self.way.delay.lock().unwrap().clone();
        match delay {
            None => self.inner.reap(now, done),
            Some(delay) => {
                let at = now + delay.load(Ordering::SeqCst);
                let mut early = Done::default();
                self.inner.reap(now, &mut early);
                for (tag, status, lent) in early.drain() {
                    self.delayed.push((at, tag, status, lent));
                }
            }
        }
        for (_, tag, status, mut lent) in self.delayed.extract_if(.., |(at, ..)| *at <= now) {
            done.push_lent(tag, status, &mut lent);
        }
        for (tag, status, mut lent) in self.own.drain(..) {
            match status {
                // A command.
                Status::Ok => {
                    let (status, detail) = self.way.commands.lock().unwrap().clone().unwrap();
                    done.push(tag, status);
                    done.push_detail(tag, detail);
                }
                status => done.push_lent(tag, status, &mut lent),
            }
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        match self.own.iter().any(|(own, ..)| *own == tag) {
            true => Cancel::Pending,
            false => self.inner.cancel(tag),
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        let delayed = self.delayed.iter().map(|(at, ..)| *at);
        let own = self.own.iter().map(|_| Nanos::ZERO);
        own.chain(delayed).chain(self.inner.wake_at()).min()
    }

    fn in_flight(&self) -> usize {
        self.own.len() + self.delayed.len() + self.inner.in_flight()
    }
}

/// A device with several ways to it.
pub struct Fabric {
    /// The device at the end of all ways.
    pub sim: Arc<Sim>,
    /// The state of each way.
    pub ways: Vec<Arc<Way>>,
    /// The device of each way.
    pub legs: Vec<Device>,
}

/// How the ways are built.
pub struct Build {
    /// How many.
    pub ways: usize,
    /// The way through the core of each leg.
    pub path: Path,
    /// The limits of the device.
    pub limits: Limits,
    /// The faults of the device.
    pub plan: Plan,
    /// The settings of each leg.
    pub config: Config,
    /// Tags of a queue.
    pub depth: u16,
    /// The seed of the device.
    pub seed: u64,
    /// Drivers take passthrough commands.
    pub takes_commands: bool,
    /// The states of the ways' target ports; empty: they have none.
    pub ports: Vec<Option<PortState>>,
}

impl Fabric {
    /// The ways, in front of a device of zeros.
    pub fn new(build: Build) -> Fabric {
        let Build { ways, path, limits, plan, config, depth, seed, takes_commands, ports } = build;
        let (shared_tags, announced, home) = (false, false, path.home);
        let sim = Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed });
        let (mut states, mut legs) = (Vec::new(), Vec::new());
        for number in 0..ways {
            let way = Arc::new(Way::default());
            if takes_commands {
                *way.commands.lock().unwrap() = Some((Status::Ok, Detail::default()));
            }
            let max = LANES as u16;
            let queues = Queues { max, depth, reserved: 0, shared_tags: false, home };
            let (sim, state) = (Arc::clone(&sim), Arc::clone(&way));
            let has_port = !ports.is_empty();
            *way.port.state.lock().unwrap() = ports.get(number).copied().flatten();
            let driver = WayDriver { sim, way: state, number, queues, has_port };
            legs.push(path.device(config.clone(), Arc::new(driver)));
            states.push(way);
        }
        Fabric { sim, ways: states, legs }
    }

    /// The multipath driver of a table over the ways.
    pub fn multipath(
        &self,
        table: &str,
        options: &[(&str, &str)],
        shape: (u16, Affinity),
    ) -> Arc<Narrow> {
        let mut settings = Settings::default();
        for (name, value) in options {
            assert!(settings.set(name, value).unwrap(), "{name} is an option");
        }
        let table = Table::parse(table).unwrap();
        let multipath = Multipath::new(table, self.legs.clone(), settings).unwrap();
        let map = multipath.control();
        Arc::new(Narrow { multipath, map, depth: shape.0, home: shape.1 })
    }

    /// The answers of a way come so much later.
    pub fn delay(&self, way: usize, by: Arc<AtomicU64>) {
        *self.ways[way].delay.lock().unwrap() = Some(by);
    }

    /// A way answers nothing from now on; what came before as well.
    pub fn silence(&self, way: usize, from: Nanos, until: Nanos) {
        let mut world = self.sim.world();
        let lanes = way * LANES..(way + 1) * LANES;
        world.plan.silences.extend(lanes.map(|lane| (lane, from, until)));
    }
}

/// The multipath device with as many tags as a scene wants.
pub struct Narrow {
    /// The mapper.
    pub multipath: Multipath,
    /// Its control.
    pub map: Arc<dyn MapControl>,
    depth: u16,
    home: Affinity,
}

impl Driver for Narrow {
    fn limits(&self) -> Limits {
        self.multipath.limits()
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, self.home);
        Queues { max: LANES as u16, depth, home, ..self.multipath.queues() }
    }

    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        self.multipath.enlarge(sectors)
    }

    fn comes_to_rest(&self, begins: bool) {
        self.multipath.comes_to_rest(begins);
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.multipath.open(index, depth)
    }
}
