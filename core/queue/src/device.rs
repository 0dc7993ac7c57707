//! A device: the control side. It builds lanes and submitters, freezes, reconfigures and sums up.

use std::sync::{Arc, Condvar, Mutex, OnceLock};

use weir_bio::{Limits, Nanos, SubmitterId};
use weir_ring::{BusyStamp, Gate, Mailbox, Pending, SharedCounter, ring};
use weir_sched::{Family, Scheduler, Setup};

use crate::bell::{Bell, Port};
use crate::config::{Config, Error, QueueMode, Spread, invalid};
use crate::driver::{Driver, Extent, Home, Queues};
use crate::elevator::Elevator;
use crate::hard::HardQueue;
use crate::lane::{Control, Lane, event_of};
use crate::request::RequestClaim;
use crate::single::Single;
use crate::stats::{LaneGauges, Ledger, Stats};
use crate::submitter::{Attachment, Core, Submitter};
use crate::tags::{TagSet, Tags};

/// The pending source of a lane that stands for the elevator.
pub(crate) const ELEVATOR: usize = Pending::SOURCES_MAX - 1;

/// The pending source of a lane that stands for tags somebody gave back to a shared set.
pub(crate) const TAGS: usize = Pending::SOURCES_MAX - 2;

/// Most submitters of a device at one time.
pub const SUBMITTERS_MAX: usize = TAGS - 1;

/// Tag depth a driver queue may have (block-core section 7.1).
const DEPTH_MAX: u16 = 10240;

/// Bounds of `nr_requests` (block-core section 15).
const NR_REQUESTS_MIN: u16 = 4;
const NR_REQUESTS_MAX: u16 = 2048;

/// What submitters and lanes need to know and never see change under an I/O.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) limits: Limits,
    pub(crate) nomerges: u8,
    pub(crate) barriers: bool,
    /// A scheduler is attached (multi-queue path).
    pub(crate) scheduled: bool,
    /// Everything ends with `Offline`.
    pub(crate) offline: bool,
    /// A bio of one segment up to so many sectors is never split.
    pub(crate) whole_sectors: u32,
    /// The same for plain reads and writes; 0 when they need a closer look.
    pub(crate) plain_read_sectors: u32,
    pub(crate) plain_write_sectors: u32,
    /// Bits that no address or length in sectors may have.
    pub(crate) block_mask: u64,
    /// Slots of a submitter.
    pub(crate) slots: u16,
    pub(crate) nr_requests: u16,
}

/// What a device's parts share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    driver: Arc<dyn Driver>,
    queues: Queues,
    depth: u16,
    pub(crate) gate: Gate,
    version: SharedCounter,
    snapshot: Mutex<Arc<Snapshot>>,
    /// Held while the snapshot is being replaced: freezers that overlap do not exclude each other.
    pub(crate) change: Mutex<()>,
    pub(crate) lanes: Box<[LanePort]>,
    submitters: Mutex<Submitters>,
    ledger: Mutex<Ledger>,
    pub(crate) stamp: BusyStamp,
    /// The round-robin spread's one shared counter.
    pub(crate) turn: SharedCounter,
    pub(crate) elevator: Mutex<Option<Elevator>>,
    pub(crate) single: Option<Single>,
    tags: Option<Arc<TagSet>>,
    /// Bells of the homes that turn the single queue.
    homes: Mutex<Vec<Arc<Bell>>>,
    orphans: Mutex<Vec<Core>>,
    orphan_count: SharedCounter,
    frozen: (Mutex<()>, Condvar),
}

#[derive(Default)]
struct Submitters {
    ports: Vec<Option<Arc<Port>>>,
}

/// What others reach of a lane.
pub(crate) struct LanePort {
    pub(crate) pending: Pending,
    pub(crate) control: Mailbox<Control>,
    bell: OnceLock<Arc<Bell>>,
    gauges: Arc<LaneGauges>,
    open: Mutex<bool>,
}

impl LanePort {
    fn new() -> LanePort {
        LanePort {
            pending: Pending::new(Pending::SOURCES_MAX),
            control: Mailbox::default(),
            bell: OnceLock::new(),
            gauges: Arc::default(),
            open: Mutex::new(false),
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.pending.any() || self.control.is_waiting()
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell.doorbell().ring();
        }
    }

    fn post(&self, message: Control) {
        self.control.post(message);
        self.ring();
    }
}

/// Counts answers to a question put to several lanes.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    missing: Mutex<usize>,
    changed: Condvar,
}

impl Acks {
    fn expect(missing: usize) -> Arc<Acks> {
        Arc::new(Acks { missing: Mutex::new(missing), changed: Condvar::new() })
    }

    pub(crate) fn acknowledge(&self) {
        *self.missing.lock().expect("acks") -= 1;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let missing = self.missing.lock().expect("acks");
        drop(self.changed.wait_while(missing, |missing| *missing > 0).expect("acks"));
    }
}

/// A block device behind its queues: the control handle, shared and slow.
#[derive(Clone)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
}

/// What a reconfiguration may change.
#[derive(Debug)]
pub struct Parts {
    /// The device's limits.
    pub limits: Limits,
    /// 0: every merge, 1: cheap ones only, 2: none.
    pub nomerges: u8,
    /// Whether flushes reach the device.
    pub barriers: bool,
    /// Requests the queue holds.
    pub nr_requests: u16,
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
        let depth = config.depth.unwrap_or(queues.depth);
        if depth <= queues.reserved || depth > DEPTH_MAX {
            return invalid(format!(
                "depth={depth} is outside {}..={DEPTH_MAX}",
                queues.reserved + 1
            ));
        }
        let mut limits = driver.limits();
        limits.max_user_sectors = config.max_user_sectors;
        limits.read_only |= config.read_only;
        let limits = limits.validate()?;
        let nr_requests = nr_requests(&config, depth)?;
        let scheduler = make_scheduler(&config, &limits, nr_requests)?;
        let tags =
            (queues.shared_tags && config.queues > 1).then(|| TagSet::new(depth, queues.reserved));
        let (mut elevator, mut single) = (None, None);
        match (config.mode, scheduler) {
            (QueueMode::Sq, Some(scheduler)) => {
                // A pool for each direction.
                let elevator = Elevator::new(scheduler, nr_requests * 2);
                single = Some(Single::new(elevator, nr_requests, queues.home == Home::Any));
            }
            (QueueMode::Sq, None) => return invalid("the single-queue path needs a scheduler"),
            (QueueMode::Mq, scheduler) => {
                elevator = scheduler.map(|scheduler| Elevator::new(scheduler, nr_requests));
            }
        }
        let snapshot = Snapshot {
            version: 0,
            limits,
            nomerges: config.nomerges,
            barriers: config.barriers,
            scheduled: elevator.is_some(),
            offline: false,
            slots: slots(nr_requests),
            nr_requests,
            ..Snapshot::default()
        }
        .derived();
        Ok(Device {
            shared: Arc::new(Shared {
                lanes: (0..config.queues).map(|_| LanePort::new()).collect(),
                config,
                driver,
                queues,
                depth,
                gate: Gate::default(),
                version: SharedCounter::default(),
                snapshot: Mutex::new(Arc::new(snapshot)),
                change: Mutex::default(),
                submitters: Mutex::default(),
                ledger: Mutex::default(),
                stamp: BusyStamp::default(),
                turn: SharedCounter::default(),
                elevator: Mutex::new(elevator),
                single,
                tags,
                homes: Mutex::default(),
                orphans: Mutex::default(),
                orphan_count: SharedCounter::default(),
                frozen: (Mutex::new(()), Condvar::new()),
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

    /// The scheduler's name, `none` without one.
    #[must_use]
    pub fn scheduler(&self) -> &'static str {
        match &self.shared.single {
            Some(single) => single.with_elevator(|elevator| elevator.name()),
            None => self.shared.lock_elevator().as_ref().map_or("none", Elevator::name),
        }
    }

    /// Whether a lane may be turned by any thread.
    #[must_use]
    pub fn any_home(&self) -> bool {
        self.shared.queues.home == Home::Any
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
        let Some(port) = shared.lanes.get(index) else {
            return invalid(format!("hard queue {index} of {name}: it has {}", shared.lanes.len()));
        };
        let mut open = port.open.lock().expect("a lane's lock");
        if *open && shared.single.as_ref().is_some_and(|single| single.any_home) {
            shared.homes.lock().expect("the homes' lock").push(Arc::clone(bell));
            return Ok(Lane::single(Arc::clone(shared), None));
        }
        if *open {
            return invalid(format!("hard queue {index} of {name} is open already"));
        }
        let driver = shared.driver.open(index as u16, shared.depth)?;
        let tags = match &shared.tags {
            Some(set) => Tags::shared(Arc::clone(set), index),
            None => Tags::own(shared.depth, shared.queues.reserved),
        };
        let (timeout, gauges) = (shared.config.timeout_ns, Arc::clone(&port.gauges));
        let hard = HardQueue::new(driver, shared.depth, tags, timeout, gauges);
        // A lane opened again keeps its first bell: homes are for life.
        port.bell.get_or_init(|| Arc::clone(bell));
        *open = true;
        let Some(single) = &shared.single else {
            return Ok(Lane::multi(Arc::clone(shared), index, hard));
        };
        let event = event_of(&hard);
        single.install(hard);
        shared.homes.lock().expect("the homes' lock").push(Arc::clone(bell));
        Ok(Lane::single(Arc::clone(shared), event))
    }

    /// A new submitter for the calling thread; completions are announced as `token` on `bell`.
    /// It uses lane `lane` (taken modulo their number).
    ///
    /// # Errors
    /// When [`SUBMITTERS_MAX`] are there already, or the device is
    /// [offline](Device::take_offline).
    pub fn submitter(
        &self,
        bell: &Arc<Bell>,
        token: usize,
        lane: usize,
    ) -> Result<Submitter, Error> {
        let shared = &self.shared;
        if self.is_offline() {
            return Err(Error::Dying(shared.config.name.clone()));
        }
        let lane = lane % shared.lanes.len();
        let port = Arc::new(Port { inbox: Default::default(), bell: Arc::clone(bell), token });
        let id = {
            let mut submitters = shared.submitters.lock().expect("the submitters' lock");
            submitters.add(&port)?
        };
        let member = shared.gate.join();
        let stats = shared.ledger.lock().expect("the ledger's lock").open();
        let mut rings = Vec::new();
        match &shared.single {
            Some(single) => single.attach(usize::from(id.0), Arc::clone(&port)),
            None => {
                let slots = usize::from(shared.snapshot().slots);
                for (index, lane_port) in shared.lanes.iter().enumerate() {
                    let feeds = index == lane || shared.config.spread == Spread::RoundRobin;
                    let (submitter, port) = (usize::from(id.0), Arc::clone(&port));
                    let consumer = feeds.then(|| {
                        let (producer, consumer) = ring::<RequestClaim>(slots);
                        rings.push(producer);
                        consumer
                    });
                    lane_port.post(Control::Attach { submitter, port, ring: consumer });
                }
            }
        }
        let homes = shared.homes.lock().expect("the homes' lock");
        let turns_single = homes.iter().any(|home| Arc::ptr_eq(home, bell));
        let shared = Arc::clone(shared);
        let with = Attachment { shared, id, member, stats, port, rings, lane, turns_single };
        Ok(Submitter::new(with))
    }

    /// What is allocated in a range, as the driver says. May block: not for a home thread whose
    /// driver is remote.
    ///
    /// # Errors
    /// The driver's, or a range beyond the end.
    pub fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, Error> {
        let capacity = self.shared.snapshot().limits.capacity;
        if sector.checked_add(sectors).is_none_or(|end| end > capacity) {
            return invalid(format!("range {sector}+{sectors} is beyond sector {capacity}"));
        }
        Ok(self.shared.driver.allocation(sector, sectors)?)
    }

    /// Statistics, summed now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = self.shared.ledger.lock().expect("the ledger's lock").sum();
        self.shared.lanes.iter().for_each(|lane| stats.add_lane(&lane.gauges));
        stats.in_flight = self.shared.gate.inside().saturating_sub(stats.handing_over);
        stats
    }

    /// Stops new I/O and waits until all that was accepted has ended. Nests. Not for a thread that
    /// turns lanes or has a submitter with I/O under way: it would wait for itself.
    #[must_use = "the device stays frozen until this is dropped"]
    pub fn freeze(&self) -> Frozen<'_> {
        self.shared.gate.close();
        self.shared.nudge_all();
        let (lock, changed) = &self.shared.frozen;
        let guard = lock.lock().expect("the freezer's lock");
        drop(
            changed
                .wait_while(guard, |()| !self.shared.gate.is_empty())
                .expect("the freezer's lock"),
        );
        Frozen { shared: &self.shared }
    }

    /// Stops dispatch and keeps what is queued; completions go on. Waits until every open lane has
    /// stopped. Not for a thread that turns lanes.
    #[must_use = "the device stays quiesced until this is dropped"]
    pub fn quiesce(&self) -> Quiesced<'_> {
        let shared = &self.shared;
        if let Some(single) = &shared.single {
            single.pause();
            return Quiesced { shared };
        }
        let open: Vec<_> =
            shared.lanes.iter().filter(|lane| *lane.open.lock().expect("a lane's lock")).collect();
        let acks = Acks::expect(open.len());
        open.iter().for_each(|lane| lane.post(Control::Pause(Arc::clone(&acks))));
        acks.wait();
        Quiesced { shared }
    }

    /// Freezes the device, lets `change` alter its parts, and puts them in force. A refused change
    /// leaves everything as it was.
    ///
    /// # Errors
    /// A value outside its bound.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Parts)) -> Result<(), Error> {
        let shared = &self.shared;
        let _alone = shared.change.lock().expect("the lock of changes");
        let _frozen = self.freeze();
        let before = shared.snapshot();
        let mut parts = Parts {
            limits: before.limits.clone(),
            nomerges: before.nomerges,
            barriers: before.barriers,
            nr_requests: before.nr_requests,
        };
        change(&mut parts);
        let limits = parts.limits.validate()?;
        let most = if self.scheduler() == "none" { shared.depth } else { NR_REQUESTS_MAX };
        let nr_requests = parts.nr_requests.max(NR_REQUESTS_MIN.min(most));
        if nr_requests > most {
            return invalid(format!("nr_requests={nr_requests} is above {most}"));
        }
        let nomerges = parts.nomerges.min(2);
        if nr_requests != before.nr_requests {
            self.resize(&limits, nomerges, nr_requests)?;
        }
        self.tell_scheduler(&limits, nomerges);
        shared.replace_snapshot(Snapshot {
            version: before.version + 1,
            limits,
            nomerges,
            barriers: parts.barriers,
            scheduled: before.scheduled,
            offline: before.offline,
            slots: slots(nr_requests).max(before.slots),
            nr_requests,
            ..Snapshot::default()
        });
        Ok(())
    }

    fn tell_scheduler(&self, limits: &Limits, nomerges: u8) {
        if let Some(single) = &self.shared.single {
            single.limits_changed(limits, nomerges);
        }
        if let Some(elevator) = self.shared.lock_elevator().as_mut() {
            elevator.limits_changed(limits, nomerges);
        }
    }

    /// Gives the scheduler another number of tags; everything is drained.
    fn resize(&self, limits: &Limits, nomerges: u8, nr_requests: u16) -> Result<(), Error> {
        let shared = &self.shared;
        let config = Config { nomerges, ..shared.config.clone() };
        let Some(scheduler) = make_scheduler(&config, limits, nr_requests)? else { return Ok(()) };
        match &shared.single {
            Some(single) => {
                assert!(single.is_empty(), "a frozen device has no request");
                single.replace_elevator(Elevator::new(scheduler, nr_requests * 2), nr_requests);
            }
            None => *shared.lock_elevator() = Some(Elevator::new(scheduler, nr_requests)),
        }
        Ok(())
    }
}

/// A frozen device; dropping it lets I/O in again.
pub struct Frozen<'a> {
    shared: &'a Shared,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if self.shared.gate.open() {
            self.shared.nudge_all();
        }
    }
}

/// A quiesced device; dropping it resumes dispatch.
pub struct Quiesced<'a> {
    shared: &'a Shared,
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        if let Some(single) = &self.shared.single {
            single.resume();
            self.shared.ring(0);
            return;
        }
        for lane in &self.shared.lanes {
            if *lane.open.lock().expect("a lane's lock") {
                lane.post(Control::Resume);
            }
        }
    }
}

fn check_queues(config: &Config, queues: &Queues) -> Result<(), Error> {
    let (asked, name) = (config.queues, &config.name);
    let most = queues.max.min(64);
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

fn nr_requests(config: &Config, depth: u16) -> Result<u16, Error> {
    let scheduled = config.mode == QueueMode::Sq
        || config.scheduler.as_deref().is_some_and(|name| name != "none");
    let (default, most) = match (config.mode, scheduled) {
        (QueueMode::Sq, _) => (128, NR_REQUESTS_MAX),
        (QueueMode::Mq, true) => (2 * depth.min(128), NR_REQUESTS_MAX),
        (QueueMode::Mq, false) => (depth, depth),
    };
    let asked = config.nr_requests.unwrap_or(default);
    let least = NR_REQUESTS_MIN.min(most);
    if asked < least && config.nr_requests.is_some() || asked > most {
        return invalid(format!("nr_requests={asked} is outside {least}..={most}"));
    }
    Ok(asked.max(1))
}

fn make_scheduler(
    config: &Config,
    limits: &Limits,
    nr_requests: u16,
) -> Result<Option<Box<dyn Scheduler>>, Error> {
    let (family, default) = match config.mode {
        QueueMode::Sq => (Family::Legacy, "noop"),
        QueueMode::Mq => (Family::Multi, "none"),
    };
    let name = config.scheduler.as_deref().unwrap_or(default);
    if config.spread == Spread::RoundRobin && name != "none" {
        return invalid(format!("scheduler={name}: spread=round-robin takes none only"));
    }
    let entry = weir_sched::find(family, name).map_err(Error::Invalid)?;
    let setup = Setup {
        limits: limits.clone(),
        // The single queue has a pool of this size for each direction.
        nr_requests: if family == Family::Legacy { nr_requests * 2 } else { nr_requests },
        hard_queues: config.queues,
        nomerges: config.nomerges,
    };
    Ok(entry.make.map(|make| make(&setup)))
}

/// Twice what the queue holds, so that merged bios find a slot as well.
fn slots(nr_requests: u16) -> u16 {
    nr_requests.saturating_mul(2).max(8)
}

impl Snapshot {
    /// With what follows from the rest worked out.
    fn derived(mut self) -> Snapshot {
        self.whole_sectors = whole_sectors(&self.limits);
        let plain = if self.offline { 0 } else { self.whole_sectors };
        self.plain_read_sectors = plain;
        self.plain_write_sectors = if self.limits.read_only { 0 } else { plain };
        self.block_mask = u64::from(self.limits.block_sectors() - 1);
        self
    }
}

fn whole_sectors(limits: &Limits) -> u32 {
    let simple = limits.chunk_sectors == 0 && limits.max_segments > 0;
    let segment = limits.max_segment_size / weir_bio::SECTOR as u32;
    let discards =
        if limits.max_hw_discard_sectors == 0 { u32::MAX } else { limits.max_discard_sectors() };
    let zeroes = match limits.max_write_zeroes_sectors {
        0 => u32::MAX,
        most => most,
    };
    if simple { limits.max_sectors().min(segment).min(discards).min(zeroes) } else { 0 }
}

impl Submitters {
    fn add(&mut self, port: &Arc<Port>) -> Result<SubmitterId, Error> {
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        if free >= SUBMITTERS_MAX {
            return invalid(format!("submitters={} is above {SUBMITTERS_MAX}", free + 1));
        }
        if free == self.ports.len() {
            self.ports.push(None);
        }
        self.ports[free] = Some(Arc::clone(port));
        Ok(SubmitterId(free as u16))
    }
}

impl Shared {
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock().expect("the snapshot's lock"))
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.read()
    }

    pub(crate) fn replace_snapshot(&self, snapshot: Snapshot) {
        *self.snapshot.lock().expect("the snapshot's lock") = Arc::new(snapshot.derived());
        self.version.next();
    }

    fn lock_elevator(&self) -> std::sync::MutexGuard<'_, Option<Elevator>> {
        self.elevator.lock().expect("the elevator's lock")
    }

    /// Hands a plug to the elevator (multi-queue path).
    pub(crate) fn elevate(&self, plug: &mut Vec<RequestClaim>, now: Nanos) {
        let mut elevator = self.lock_elevator();
        let elevator = elevator.as_mut().expect("a scheduler is attached");
        for claim in plug.drain(..) {
            elevator.insert(claim, now);
        }
    }

    /// Tells a lane that `source` has published something.
    #[inline]
    pub(crate) fn kick(&self, lane: usize, source: usize) {
        let port = &self.lanes[lane];
        port.pending.mark(source);
        if let Some(bell) = port.bell.get() {
            bell.doorbell().ring_fenced();
        }
    }

    /// Makes a lane take a turn.
    pub(crate) fn ring(&self, lane: usize) {
        self.lanes[lane].ring();
    }

    /// Whether any driver queue holds a request.
    pub(crate) fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| lane.gauges.in_driver() != [0, 0])
    }

    fn nudge_all(&self) {
        for port in self.submitters.lock().expect("the submitters' lock").ports.iter().flatten() {
            port.nudge();
        }
        self.lanes.iter().for_each(LanePort::ring);
    }

    /// A submitter's last I/O has ended behind a closed gate.
    #[cold]
    pub(crate) fn tell_freezer(&self) {
        let (lock, changed) = &self.frozen;
        drop(lock.lock().expect("the freezer's lock"));
        changed.notify_all();
    }

    /// Forgets a submitter that has nothing under way.
    pub(crate) fn retire(&self, core: Core) {
        let id = usize::from(core.id.0);
        match &self.single {
            Some(single) => single.detach(id),
            None => self.lanes.iter().for_each(|l| l.post(Control::Detach { submitter: id })),
        }
        self.ledger.lock().expect("the ledger's lock").retire(&core.stats);
        let Core { member, .. } = core;
        self.gate.leave(member);
        self.submitters.lock().expect("the submitters' lock").ports[id] = None;
    }

    /// Keeps a submitter whose thread has let go of it until its I/O has ended.
    pub(crate) fn adopt_orphan(&self, core: Core) {
        self.orphans.lock().expect("the orphans' lock").push(core);
        self.orphan_count.next();
        self.lanes.iter().for_each(LanePort::ring);
    }

    #[inline]
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphan_count.read() != 0
    }

    /// Takes what has ended for orphans, and retires those that have nothing left.
    #[cold]
    pub(crate) fn tend_orphans(&self, now: Nanos) {
        let mut done = Vec::new();
        {
            let mut orphans = self.orphans.lock().expect("the orphans' lock");
            for core in orphans.iter_mut() {
                core.complete(now, drop);
            }
            let mut index = 0;
            while index < orphans.len() {
                if orphans[index].member.inside() == 0 {
                    done.push(orphans.swap_remove(index));
                    self.orphan_count.down();
                } else {
                    index += 1;
                }
            }
        }
        done.into_iter().for_each(|core| self.retire(core));
    }

    pub(crate) fn lane_closed(&self, index: usize) {
        if let Some(single) = &self.single {
            // Other homes may still hold the single queue; it goes with the device.
            if !single.any_home {
                drop(single.uninstall());
                *self.lanes[index].open.lock().expect("a lane's lock") = false;
            }
            return;
        }
        *self.lanes[index].open.lock().expect("a lane's lock") = false;
    }
}
