//! A device: the control side. It builds lanes and submitters, and sums up.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use weir_bio::Limits;
use weir_ring::sync::Alone;
use weir_ring::{BusyStamp, Counter, Gate, Member, Pending, Right, SharedCounter};
use weir_sched::Make;

use crate::bell::{Bell, Port};
use crate::config::{
    Attached, Config, Error, QueueMode, check_queues, default_scheduler, find_scheduler, invalid,
    nr_requests, slots,
};
use crate::dispatcher::{Dispatcher, NO_HOST};
use crate::driver::{Driver, DriverError, Extent, Home};
use crate::elevator::Elevator;
use crate::fence::Fences;
use crate::hard::{self, HardQueue};
use crate::lane::Lane;
use crate::queues::QUEUES_MAX;
use crate::shared::{LanePorts, SUBMITTERS_MAX, Shared, Snapshot};
use crate::single::Single;
use crate::stats::Stats;
use crate::submitter::{Attachment, Submitter};
use crate::switch::apply_tunables;
use crate::tags::{TagSet, Tags};

/// Tag depth a driver queue may have (block-core section 7.1).
const DEPTH_MAX: u16 = 10240;

/// The elevator a device begins with, its tunables as the configuration has them.
fn first_elevator(
    config: &Config,
    limits: &Limits,
    nr_requests: u16,
    attached: Attached,
) -> Result<Option<Elevator>, Error> {
    let Some(make) = attached.make else {
        return match config.tunables.first() {
            None => Ok(None),
            Some((name, _)) => invalid(format!("{name}: scheduler=none has no tunables")),
        };
    };
    // On the single-queue path there is a pool for each direction.
    let tags = if config.mode == QueueMode::Sq { nr_requests * 2 } else { nr_requests };
    let mut scheduler = make(&config.setup(limits, tags, config.nomerges, attached.compat));
    apply_tunables(scheduler.as_mut(), &config.tunables)?;
    Ok(Some(Elevator::new(scheduler, tags)))
}

/// A descriptor of the lane's own for the driver's event, which may sit behind a lock.
///
/// # Errors
/// The system's: no descriptor is left. Without one the lane would not hear of answers.
fn event_of(hard: &HardQueue, device: &str, index: usize) -> Result<Option<OwnedFd>, Error> {
    let event = hard.driver().event_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    event.map_err(|source| {
        let what = format!("disk {device}: a descriptor for the event of hard queue {index}");
        Error::Driver(DriverError { what, source: Some(source) })
    })
}

/// How a submitter comes in.
#[derive(Clone, Copy)]
enum Passage {
    /// As anybody does.
    Gate,
    /// As the freezer, behind the closed gate.
    Freezer,
}

impl Passage {
    fn submitters_max(self) -> usize {
        match self {
            Passage::Gate => SUBMITTERS_MAX,
            Passage::Freezer => SUBMITTERS_MAX + 1,
        }
    }

    fn join(self, gate: &Gate) -> Member {
        match self {
            Passage::Gate => gate.join(),
            Passage::Freezer => gate.join_past(),
        }
    }
}

/// What submitters and lanes know at the start.
fn first_snapshot(
    config: &Config,
    limits: Limits,
    nr_requests: u16,
    elevator: Option<&Elevator>,
) -> Snapshot {
    Snapshot {
        version: 0,
        limits,
        nomerges: config.nomerges,
        barriers: config.barriers,
        iostats: true,
        timeout_ns: config.timeout_ns,
        scheduled: elevator.is_some(),
        timed: elevator.is_some_and(Elevator::wants_times),
        slots: slots(nr_requests),
        nr_requests,
        queues: config.queues,
        ..Snapshot::default()
    }
    .derived()
}

/// A block device behind its queues: the control handle, shared and slow.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
}

impl Device {
    /// Builds the queues in front of `driver`. Its lanes are to be [opened](Device::open_lane) by
    /// their homes.
    ///
    /// # Errors
    /// A value of `config` outside its bound, or limits that contradict themselves.
    pub fn new(config: Config, driver: Arc<dyn Driver>) -> Result<Device, Error> {
        let queues = driver.queues();
        check_queues(&config, &queues)?;
        let rotational = driver.limits().rotational;
        let attached = find_scheduler(&config, default_scheduler(&config, rotational, &queues))?;
        Device::build(config, driver, attached)
    }

    /// As [`new`](Device::new), on the multi-queue path and with a scheduler that need not be in
    /// the list: for tests of the path.
    ///
    /// # Errors
    /// As [`new`](Device::new).
    #[doc(hidden)]
    pub fn with_scheduler(
        config: Config,
        driver: Arc<dyn Driver>,
        make: Make,
    ) -> Result<Device, Error> {
        check_queues(&config, &driver.queues())?;
        let attached = Attached { name: "unlisted", make: Some(make), compat: "" };
        Device::build(config, driver, attached)
    }

    fn build(config: Config, driver: Arc<dyn Driver>, attached: Attached) -> Result<Device, Error> {
        let queues = driver.queues();
        let depth = config.depth.unwrap_or(queues.depth);
        if depth <= queues.reserved || depth > DEPTH_MAX {
            let least = queues.reserved + 1;
            return invalid(format!("depth={depth} is outside {least}..={DEPTH_MAX}"));
        }
        let mut limits = driver.limits();
        limits.max_user_sectors = config.max_user_sectors;
        limits.read_only |= config.read_only;
        let limits = limits.validate()?;
        let nr_requests = nr_requests(&config, depth, queues.reserved, attached.make.is_some())?;
        let elevator = first_elevator(&config, &limits, nr_requests, attached)?;
        let lanes = match config.mode {
            QueueMode::Sq => 1,
            QueueMode::Mq => queues.max.min(QUEUES_MAX),
        };
        let tags = (queues.shared_tags && lanes > 1).then(|| TagSet::new(depth, queues.reserved));
        let (elevator, single) = match (config.mode, elevator) {
            (QueueMode::Mq, elevator) => (elevator, None),
            (QueueMode::Sq, Some(elevator)) => {
                (None, Some(Single::new(elevator, nr_requests, queues.home == Home::Any)))
            }
            (QueueMode::Sq, None) => return invalid("the single-queue path needs a scheduler"),
        };
        let snapshot = first_snapshot(&config, limits, nr_requests, elevator.as_ref());
        Ok(Device {
            shared: Arc::new(Shared {
                lanes: LanePorts::new(config.queues, lanes),
                config,
                driver: Mutex::new(Some(driver)),
                queues,
                depth,
                gate: Gate::default(),
                version: SharedCounter::default(),
                snapshot: Mutex::new(Arc::new(snapshot)),
                submitters: Mutex::default(),
                ledger: Mutex::default(),
                stamp: BusyStamp::default(),
                turn: SharedCounter::default(),
                dispatcher: Right::new(Dispatcher::new(elevator)),
                host: Alone(Counter::new(NO_HOST)),
                asks: Pending::new(usize::from(QUEUES_MAX)),
                attached: Mutex::new(attached),
                lane_homes: Mutex::default(),
                groups: Default::default(),
                single,
                tags,
                fences: Arc::new(Fences::new(QUEUES_MAX)),
                in_need: SharedCounter::default(),
                homes: Mutex::default(),
                orphans: Mutex::default(),
                orphan_count: SharedCounter::default(),
                watchers: Default::default(),
                changes: Default::default(),
            }),
        })
    }

    /// Whether both are handles of one device.
    #[must_use]
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// How the device was built.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The device's limits as they are now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.snapshot().limits.clone()
    }

    /// Requests the queue holds.
    #[must_use]
    pub fn nr_requests(&self) -> u16 {
        self.shared.snapshot().nr_requests
    }

    /// Tags of a hard queue.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.shared.depth
    }

    /// Those among them that are for the driver's own use.
    #[must_use]
    pub fn reserved_tags(&self) -> u16 {
        self.shared.queues.reserved
    }

    /// Whether a lane may be turned by any thread.
    #[must_use]
    pub fn any_home(&self) -> bool {
        self.shared.queues.home == Home::Any
    }

    /// Has the driver do what opening hard queue `index` would have to wait for. May block: to be
    /// called before [`open_lane`](Device::open_lane), on a thread that turns no lanes.
    ///
    /// # Errors
    /// The driver's, or a device that is offline.
    pub fn prepare_lane(&self, index: usize) -> Result<(), Error> {
        Ok(self.driver()?.prepare(index as u16)?)
    }

    /// Opens hard queue `index` on the calling thread, which becomes its home and must turn it
    /// whenever `bell` rings, its event is ready, or its time has come.
    ///
    /// On the single-queue path with a driver that any thread may call, every home may open lane 0.
    ///
    /// # Errors
    /// The driver's, or a lane that does not exist or is open already.
    pub fn open_lane(&self, index: usize, bell: &Arc<Bell>) -> Result<Lane, Error> {
        let shared = &self.shared;
        let name = &shared.config.name;
        let queues = usize::from(self.queues());
        if index >= queues {
            return invalid(format!("hard queue {index} of {name}: it has {queues}"));
        }
        let port = &shared.lanes[index];
        let mut state = port.state();
        if state.open && shared.single.as_ref().is_some_and(|single| single.any_home) {
            let home = shared.single_opened(bell)?;
            return Ok(Lane::single(Arc::clone(shared), None, home));
        }
        if state.open {
            return invalid(format!("hard queue {index} of {name} is open already"));
        }
        port.settle(name, index, bell)?;
        let driver = self.driver()?.open(index as u16, shared.depth)?;
        let tags = match &shared.tags {
            Some(set) => Tags::shared(Arc::clone(set), index),
            None => Tags::own(shared.depth, shared.queues.reserved),
        };
        let hard = HardQueue::new(hard::Make {
            driver,
            depth: shared.depth,
            tags,
            lane: index as u16,
            fences: Arc::clone(&shared.fences),
            gauges: Arc::clone(&port.gauges),
        });
        let event = event_of(&hard, name, index)?;
        let Some(single) = &shared.single else {
            state.open = true;
            return Ok(Lane::multi(Arc::clone(shared), index, (hard, event), &mut state));
        };
        let home = shared.single_opened(bell)?;
        state.open = true;
        single.install(hard);
        single.follow(&shared.snapshot());
        Ok(Lane::single(Arc::clone(shared), event, home))
    }

    /// A new submitter for the calling thread; completions are announced as `token` on `bell`.
    /// It uses lane `lane`, taken modulo their number, whatever that is at the time.
    ///
    /// # Errors
    /// When [`SUBMITTERS_MAX`](crate::SUBMITTERS_MAX) are there already, or the device is
    /// [offline](Device::take_offline).
    pub fn submitter(
        &self,
        bell: &Arc<Bell>,
        token: usize,
        lane: usize,
    ) -> Result<Submitter, Error> {
        self.submitter_of(bell, token, lane, Passage::Gate)
    }

    /// A submitter that may pass the gate behind the one freezer that holds it closed, in the place
    /// that is kept for it.
    ///
    /// # Errors
    /// As [`submitter`](Device::submitter).
    pub(crate) fn last_submitter(
        &self,
        bell: &Arc<Bell>,
        token: usize,
    ) -> Result<Submitter, Error> {
        self.submitter_of(bell, token, 0, Passage::Freezer)
    }

    fn submitter_of(
        &self,
        bell: &Arc<Bell>,
        token: usize,
        lane: usize,
        passage: Passage,
    ) -> Result<Submitter, Error> {
        let shared = &self.shared;
        if self.is_offline() {
            return Err(Error::Dying(shared.config.name.clone()));
        }
        if token >= bell.submitters() {
            let (name, most) = (&shared.config.name, bell.submitters());
            return invalid(format!("token={token} of a submitter of {name} is outside 0..{most}"));
        }
        let port = Arc::new(Port { inbox: Default::default(), bell: Arc::clone(bell), token });
        // Held until the lanes know it: which of them are in use must not change meanwhile.
        let mut submitters = shared.submitters.lock().expect("the submitters' lock");
        let id = submitters.add(&port, passage.submitters_max())?;
        let member = passage.join(&shared.gate);
        let stats = shared.ledger.lock().expect("the ledger's lock").open();
        let snapshot = shared.snapshot();
        let rings = match &shared.single {
            Some(single) => {
                single.attach(usize::from(id.0), Arc::clone(&port));
                Vec::new()
            }
            None => shared.attach(id, &port, lane, &snapshot),
        };
        drop(submitters);
        let homes = shared.homes.lock().expect("the homes' lock");
        let own = homes.iter().find(|home| home.open && Arc::ptr_eq(&home.bell.bell, bell));
        let turns_single = own.map(|home| Box::new(home.bell.clone()));
        let shared = Arc::clone(shared);
        let with =
            Attachment { shared, snapshot, id, member, stats, port, rings, lane, turns_single };
        Ok(Submitter::new(with))
    }

    /// What is allocated in a range or its beginning, as the driver says. May block: not for a home
    /// thread whose driver is remote.
    ///
    /// # Errors
    /// The driver's, or a range beyond the end.
    pub fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, Error> {
        let capacity = self.shared.snapshot().limits.capacity;
        if sector.checked_add(sectors).is_none_or(|end| end > capacity) {
            return invalid(format!("range {sector}+{sectors} is beyond sector {capacity}"));
        }
        Ok(self.driver()?.allocation(sector, sectors)?)
    }

    /// Has the driver make the device at least so many sectors large if it can; how large it is
    /// below. That is in force once a [reconfiguration](Device::reconfigure) has put it in the
    /// limits. May block.
    ///
    /// # Errors
    /// The driver's, or a device that is offline.
    pub fn enlarge(&self, sectors: u64) -> Result<u64, Error> {
        Ok(self.driver()?.enlarge(sectors)?)
    }

    /// Statistics, summed now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.ledger.lock().expect("the ledger's lock").sum();
        self.shared.lanes.iter().for_each(|lane| stats.add_lane(&lane.gauges));
        stats.in_flight = self.shared.gate.inside().saturating_sub(stats.handing_over);
        stats
    }
}
