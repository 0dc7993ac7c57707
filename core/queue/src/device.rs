//! A device: the control side, shared and slow. It builds lanes and submitters, sums up, and
//! changes its parts while I/O goes on (the files in `device/`). No I/O comes through here.

use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

use weir_bio::{Limits, Size};
use weir_ring::{BusyStamp, Combiner, Gate, Member, SharedCounter, Wake};
use weir_sched::{Scheduler, Setup};

use crate::attributes::DeviceAttributes;
use crate::bell::{Bell, Port};
use crate::config::{
    Attached, Config, QueueMode, check_queues, default_scheduler, find_scheduler, first_wbt,
    has_wbt, nr_requests,
};
use crate::directory::Partition;
use crate::driver::{Affinity, ChangeListener, Driver, Extent, Queues};
use crate::error::{Error, invalid};
use crate::event::Listener;
use crate::grown::Grown;
use crate::hard::fence::Fences;
use crate::hard::flushes::Flushes;
use crate::hard::tags::Tags;
use crate::hard::{self, HardQueue};
use crate::lane::Lane;
use crate::lanes::{Lanes, QUEUES_MAX, SUBMITTERS_MAX};
use crate::mq::Mq;
use crate::order::dispatcher::Dispatcher;
use crate::order::elevator::Elevator;
use crate::settings::Settings;
use crate::shared::{Path, Shared, SharedTags};
use crate::snapshot::{Current, Snapshot};
use crate::sq::{self, Sq};
use crate::stats::LaneGauges;
use crate::submit::submitter::{Attachment, Submitter};
use crate::tag_set::TagSet;
use crate::target_port::TargetPort;
use crate::wbt::Wbt;

mod control;
mod failing;
pub(crate) mod freeze;
pub(crate) mod offline;
mod pool;
pub(crate) mod queues;
mod reading;
pub(crate) mod reconfigure;
pub(crate) mod recording;
pub(crate) mod switch;

use control::Control;
use switch::apply_tunables;

/// Tag depth a driver queue may have (docs/behaviour/block-layer.md, section 7.1).
const DEPTH_MAX: u16 = 10240;

/// The elevator a device begins with, its tunables as the configuration has them.
fn first_elevator(
    config: &Config,
    limits: &Limits,
    nr_requests: u16,
    attached: &Attached,
) -> Result<Option<Elevator>, Error> {
    if attached.make.is_none() {
        return match config.tunables.first() {
            None => Ok(None),
            Some((name, _)) => invalid(format!("{name}: scheduler=none has no tunables")),
        };
    }
    // On the single-queue path there is a pool for each direction.
    let tags = if config.mode == QueueMode::Sq { sq::tags(nr_requests) } else { nr_requests };
    let setup = config.setup(limits, tags, config.nomerges, attached.compat);
    let Some(mut scheduler) = attached.made(&setup)? else { return Ok(None) };
    apply_tunables(scheduler.as_mut(), &config.tunables)?;
    Ok(Some(Elevator::new(scheduler, tags)))
}

/// The limits of a device as its driver and its user want them.
fn first_limits(config: &Config, driver: &dyn Driver) -> Result<Limits, Error> {
    let mut limits = driver.limits();
    limits.max_user_sectors = config.max_user_sectors;
    limits.read_only |= config.read_only;
    Ok(limits.validate()?)
}

/// The depth of a device that draws on this set of tags, as do others.
fn depth_of_set(config: &Config, queues: &mut Queues, set: &TagSet) -> Result<u16, Error> {
    let depth = set.depth();
    if let Some(asked) = config.depth
        && asked != depth
    {
        return invalid(format!("depth={asked}: the tags are those of a set of {depth}"));
    }
    (queues.shared_tags, queues.reserved) = (true, set.reserved());
    Ok(depth)
}

/// Has a lane turned, for its driver. It keeps no device alive: the driver's queue may be the
/// device's own.
struct LaneWake(Weak<Shared>, usize);

impl Wake for LaneWake {
    fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.path.lanes().nudge(self.1);
        }
    }
}

/// How a submitter comes in.
#[derive(Clone, Copy)]
enum Passage {
    /// As any submitter: through the open gate.
    Gate,
    /// As the driver of a device above ([`Legs`](crate::Legs)): as any submitter, but it dispatches
    /// nothing inline, because it is called by a lane that dispatches.
    Driver,
    /// As the freezer, behind the closed gate.
    Freezer,
}

impl Passage {
    fn submitters_max(self) -> usize {
        match self {
            Passage::Gate | Passage::Driver => SUBMITTERS_MAX,
            Passage::Freezer => SUBMITTERS_MAX + 1,
        }
    }

    fn join(self, gate: &Gate) -> Member {
        match self {
            Passage::Gate | Passage::Driver => gate.join(),
            Passage::Freezer => gate.join_past(),
        }
    }
}

/// The first snapshot of submitters and lanes.
fn first_snapshot(config: &Config, settings: Settings, elevator: Option<&Elevator>) -> Snapshot {
    Snapshot {
        scheduled: elevator.is_some(),
        timed: elevator.is_some_and(Elevator::wants_times),
        ..Snapshot::first(settings, config.queues)
    }
    .derived()
}

/// A block device behind its queues: the control handle, shared and slow.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
    control: Arc<Control>,
    /// The partition that this is a handle of, if it is not one of the whole device.
    pub(crate) partition: Option<Arc<Partition>>,
}

impl Device {
    /// Builds the queues in front of `driver`. Its lanes are to be [opened](Device::open_lane) by
    /// their homes.
    ///
    /// # Errors
    /// A value of `config` outside its bound, or limits that contradict themselves.
    pub fn new(config: Config, driver: Arc<dyn Driver>) -> Result<Device, Error> {
        let mut queues = driver.queues();
        check_queues(&config, &queues)?;
        queues.shared_tags |= driver.tag_set().is_some();
        let rotational = driver.limits().rotational;
        let attached = find_scheduler(&config, default_scheduler(&config, rotational, &queues))?;
        Device::build(config, driver, attached)
    }

    /// As [`new`](Device::new), on the multi-queue path and with the scheduler that `make` makes,
    /// whatever it is called: for tests of a path or a scheduler. A program that has schedulers of
    /// its own states them in [`Config::schedulers`].
    ///
    /// # Errors
    /// As [`new`](Device::new).
    pub fn with_scheduler<F>(
        config: Config,
        driver: Arc<dyn Driver>,
        make: F,
    ) -> Result<Device, Error>
    where
        F: Fn(&Setup) -> Box<dyn Scheduler> + Send + Sync + 'static,
    {
        check_queues(&config, &driver.queues())?;
        let make = Some(Arc::new(make) as _);
        let attached = Attached { name: "unlisted", make, compat: "", own: false };
        Device::build(config, driver, attached)
    }

    fn build(config: Config, driver: Arc<dyn Driver>, attached: Attached) -> Result<Device, Error> {
        let (mut queues, set) = (driver.queues(), driver.tag_set());
        let depth = match &set {
            None => config.depth.unwrap_or(queues.depth),
            Some(set) => depth_of_set(&config, &mut queues, set)?,
        };
        if depth <= queues.reserved || depth > DEPTH_MAX {
            let least = queues.reserved + 1;
            return invalid(format!("depth={depth} is outside {least}..={DEPTH_MAX}"));
        }
        let limits = first_limits(&config, driver.as_ref())?;
        let nr_requests = nr_requests(&config, depth, queues.reserved, attached.make.is_some())?;
        let elevator = first_elevator(&config, &limits, nr_requests, &attached)?;
        let lanes = match config.mode {
            QueueMode::Sq => 1,
            QueueMode::Mq => queues.max.min(QUEUES_MAX),
        };
        let has_wbt = has_wbt(&config, driver.as_ref());
        let wbt = first_wbt(&config, limits.rotational, has_wbt)?.beside(attached.name);
        let settings = Settings::first(&config, limits, nr_requests, wbt);
        let snapshot = first_snapshot(&config, settings, elevator.as_ref());
        driver.follow_timeout(snapshot.timeout_ns);
        let path = match (config.mode, elevator) {
            (QueueMode::Mq, elevator) => Path::Mq(Mq {
                lanes: Lanes::new(config.queues, lanes),
                ports: Grown::new(config.queues, lanes),
                dispatcher: Combiner::new(
                    Dispatcher::new(elevator, depth, driver.budget()),
                    usize::from(QUEUES_MAX),
                ),
                spread: config.spread,
            }),
            (QueueMode::Sq, Some(elevator)) => {
                Path::Sq(Sq::new(elevator, nr_requests, queues.home == Affinity::Any))
            }
            (QueueMode::Sq, None) => return invalid("the single-queue path needs a scheduler"),
        };
        let tags = match set {
            Some(set) => Some(SharedTags { set, alone: false }),
            None => (queues.shared_tags && lanes > 1)
                .then(|| SharedTags { set: TagSet::new(depth, queues.reserved), alone: true }),
        };
        let shared = Shared {
            config,
            tags,
            queues,
            takes_commands: driver.takes_commands(),
            depth,
            gate: Gate::default(),
            has_wbt,
            wbt: Wbt::new(&snapshot, depth),
            current: Current::new(snapshot),
            path,
            submitters: Mutex::default(),
            ledger: Mutex::default(),
            stamp: BusyStamp::default(),
            next_ring: SharedCounter::default(),
            groups: Default::default(),
            listener: Default::default(),
            fences: Arc::new(Fences::new(QUEUES_MAX)),
            flush_error: Arc::default(),
            failures: Default::default(),
            directory: driver.partitions().map(|_| Arc::default()),
            orphans: Mutex::default(),
            orphan_count: SharedCounter::default(),
            watchers: Default::default(),
        };
        let control = Control::new(driver, attached);
        Ok(Device { shared: Arc::new(shared), control: Arc::new(control), partition: None })
    }

    /// Whether both are handles of one device.
    #[must_use]
    pub fn is(&self, other: &Device) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.partition() == other.partition()
    }

    /// Tells that it is a mapped device over these, which its driver reaches: they are kept, and
    /// are to be closed after it. Later calls change nothing.
    pub fn lies_on(&self, legs: &[Device]) {
        self.control.lie_on(legs);
    }

    /// The devices that it lies on, each once.
    #[must_use]
    pub fn legs(&self) -> &[Device] {
        self.control.legs()
    }

    /// Whether this is a lane of the device.
    #[must_use]
    pub fn owns(&self, lane: &Lane) -> bool {
        lane.is_of(&self.shared)
    }

    /// How the device was built.
    #[must_use]
    pub fn config(&self) -> &Config {
        self.partition.as_ref().map_or(&self.shared.config, |partition| &partition.config)
    }

    /// Whether a request that ran out of time, and which the driver has not given back, may still
    /// change one of these sectors. Its submitter was told before: a mapper that has another way to
    /// these sectors asks, as the fence stands on this way only. Takes a lock.
    #[must_use]
    pub fn may_change_late(&self, sectors: std::ops::Range<u64>) -> bool {
        self.shared.fences.any() && self.shared.fences.is_fenced(&sectors)
    }

    /// The device's limits as they are now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.seen(&self.shared.current.get()).limits
    }

    /// Requests the queue holds.
    #[must_use]
    pub fn nr_requests(&self) -> u16 {
        self.shared.current.get().nr_requests
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
        self.shared.queues.home == Affinity::Any
    }

    /// Has the driver do what opening hard queue `index` would have to wait for. May block: to be
    /// called before [`open_lane`](Device::open_lane), on a thread that turns no lanes.
    ///
    /// # Errors
    /// The driver's, or a device that is offline.
    pub fn prepare_lane(&self, index: usize) -> Result<(), Error> {
        Ok(self.driver()?.prepare(index as u16)?)
    }

    /// What its driver tells of it for other paths to it: see [`Driver::likeness`]. `None` of a
    /// device that is offline too.
    #[must_use]
    pub fn likeness(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.driver().ok()?.likeness()
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
        let queues = usize::from(self.queues());
        if index >= queues {
            let name = &shared.config.name;
            return invalid(format!("hard queue {index} of {name}: it has {queues}"));
        }
        match &shared.path {
            Path::Mq(mq) => self.open_multi(mq, index, bell),
            Path::Sq(sq) => self.open_single(sq, index, bell),
        }
    }

    fn open_multi(&self, mq: &Mq, index: usize, bell: &Arc<Bell>) -> Result<Lane, Error> {
        let (shared, port) = (&self.shared, &mq.ports[index]);
        let mut state = port.state();
        if state.open {
            return self.refuse_open(index);
        }
        mq.lanes[index].set_home(&shared.config.name, index, bell)?;
        let hard = self.hard_queue(index, &port.gauges)?;
        state.open = true;
        Ok(Lane::multi(shared, index, hard, &mut state))
    }

    fn open_single(&self, sq: &Sq, index: usize, bell: &Arc<Bell>) -> Result<Lane, Error> {
        let shared = &self.shared;
        let mut open = sq.is_open();
        if *open && sq.any_home {
            return Ok(Lane::single(shared, false, sq.join(bell)?));
        }
        if *open {
            return self.refuse_open(index);
        }
        sq.lanes[index].set_home(&shared.config.name, index, bell)?;
        let hard = self.hard_queue(index, &sq.gauges)?;
        let (home, announces) = (sq.join(bell)?, hard.announces());
        *open = true;
        sq.install(hard);
        sq.follow(&shared.current.get());
        Ok(Lane::single(shared, announces, home))
    }

    fn refuse_open(&self, index: usize) -> Result<Lane, Error> {
        invalid(format!("hard queue {index} of {} is open already", self.shared.config.name))
    }

    /// Hard queue `index` in front of the driver's.
    fn hard_queue(&self, index: usize, gauges: &Arc<LaneGauges>) -> Result<HardQueue, Error> {
        let (depth, fences) = (self.shared.depth, Arc::clone(&self.shared.fences));
        let wake: Arc<dyn Wake> = Arc::new(LaneWake(Arc::downgrade(&self.shared), index));
        let tags = match &self.shared.tags {
            Some(SharedTags { set, alone }) => Tags::shared(set, *alone, Arc::clone(&wake))?,
            None => Tags::own(depth, self.shared.queues.reserved),
        };
        let mut driver = self.driver_of_pool()?.open(index as u16, depth)?;
        driver.at_home(wake);
        let (lane, gauges) = (index as u16, Arc::clone(gauges));
        let flush_error = Arc::clone(&self.shared.flush_error);
        let budget = self.driver_of_pool()?.budget();
        let flushes = Flushes::new(flush_error, self.shared.directory.clone());
        let make = hard::Make { driver, depth, tags, lane, fences, gauges, flushes, budget };
        Ok(HardQueue::new(make))
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

    /// A submitter of a driver queue of a device above.
    ///
    /// # Errors
    /// As [`submitter`](Device::submitter).
    pub(crate) fn submitter_of_driver(
        &self,
        bell: &Arc<Bell>,
        token: usize,
        lane: usize,
    ) -> Result<Submitter, Error> {
        self.submitter_of(bell, token, lane, Passage::Driver)
    }

    /// Has `listener` hear what the submitters of mappers do here, whose queues are opened from now
    /// on. The first listener stays.
    pub fn listen_to_mappers(&self, listener: Arc<dyn Listener>) {
        // A second one is not heard of, which is what is promised.
        let _ = self.shared.listener.set(listener);
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
            return Err(Error::Dying(self.config().name.clone()));
        }
        self.check_passage(passage)?;
        if token >= bell.submitters() {
            let (name, most) = (&shared.config.name, bell.submitters());
            return invalid(format!("token={token} of a submitter of {name} is outside 0..{most}"));
        }
        let port = Arc::new(Port { inbox: Default::default(), bell: Arc::clone(bell), token });
        // Held until the lanes know it: which of them are in use must not change meanwhile.
        let mut submitters = shared.submitters();
        let id = submitters.add(&port, passage.submitters_max())?;
        let member = passage.join(&shared.gate);
        submitters.owes_flush |= matches!(passage, Passage::Gate);
        let stats = shared.ledger().open(self.partition().unwrap_or(0), member.seen());
        let snapshot = shared.current.get();
        let rings = shared.path.attach(id, &port, lane, &snapshot);
        drop(submitters);
        let turns_single = match &shared.path {
            Path::Mq(_) => None,
            Path::Sq(sq) => sq.home_of(bell).map(Box::new),
        };
        let (shared, inline) = (Arc::clone(shared), !matches!(passage, Passage::Driver));
        let with = Attachment {
            shared,
            snapshot,
            partition: self.partition.clone(),
            id,
            member,
            stats,
            port,
            rings,
            lane,
            turns_single,
            inline,
        };
        Ok(Submitter::new(with))
    }

    /// The extents of a range or its beginning, as the driver reports them. May block: not for a
    /// home thread whose driver is remote.
    ///
    /// # Errors
    /// The driver's, or a range beyond the end.
    pub fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, Error> {
        let capacity = self.limits().capacity;
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
    pub fn enlarge(&self, sectors: u64) -> Result<Size, Error> {
        Ok(self.fitting(self.driver()?.enlarge(sectors)?))
    }

    /// Tells `listener` when [`enlarge`](Device::enlarge) may find something that it did not
    /// before: on the thread that turns a lane, which waits for it. A second listener takes the
    /// first one's place.
    pub fn on_change(&self, listener: ChangeListener) {
        if let Ok(driver) = self.driver() {
            driver.on_change(listener);
        }
    }

    /// What its driver shows of itself, if it shows anything and is there.
    pub fn with_attributes<T>(&self, with: impl FnOnce(&dyn DeviceAttributes) -> T) -> Option<T> {
        self.driver().ok()?.attributes().map(with)
    }

    /// The target port that its requests pass, if it has one and its driver is there.
    #[must_use]
    pub fn target_port(&self) -> Option<Arc<dyn TargetPort>> {
        self.driver().ok()?.target_port()
    }

    /// Whether a flush reaches its driver: not of a device without a volatile cache, or whose
    /// barriers are off.
    #[must_use]
    pub fn sends_flushes(&self) -> bool {
        let settings = self.settings();
        settings.barriers && settings.limits.volatile_cache
    }
}
