//! What the parts of a device share: its snapshot, its gate, and the ways to its lanes and
//! submitters.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use weir_bio::{Limits, Nanos, Op, SubmitterId};
use weir_ring::sync::Alone;
use weir_ring::{
    BusyStamp, Counter, Gate, Held, Mailbox, Pending, Producer, Right, SharedCounter, ring,
};

use crate::bell::{Bell, LaneBell, Port};
use crate::config::{Attached, Config, Error, Spread, invalid};
use crate::dispatcher::{Dispatcher, TAKES_NONE};
use crate::driver::{Driver, Queues};
use crate::elevator::Elevator;
use crate::fence::Fences;
use crate::freeze::{Changes, Watchers};
use crate::group::Groups;
use crate::lane::{Control, Ways};
use crate::queues::LaneHomes;
use crate::request::RequestClaim;
use crate::single::Single;
use crate::split::whole_sectors;
use crate::stats::{LaneGauges, Ledger};
use crate::submitter::Core;
use crate::tags::TagSet;

/// The pending source of a lane that stands for the elevator.
pub(crate) const ELEVATOR: usize = Pending::SOURCES_MAX - 1;

/// The pending source of a lane that stands for everything but requests: look again.
pub(crate) const NUDGE: usize = ELEVATOR - 1;

/// Most submitters of a device at one time. One place more is kept for the flush of its end.
pub const SUBMITTERS_MAX: usize = NUDGE - 1;

/// What submitters and lanes need to know and never see change under an I/O.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    pub(crate) limits: Limits,
    pub(crate) nomerges: u8,
    pub(crate) barriers: bool,
    /// I/O is counted.
    pub(crate) iostats: bool,
    /// A request is timed out after so long, ns; 0 = never.
    pub(crate) timeout_ns: u64,
    /// A scheduler is attached (multi-queue path).
    pub(crate) scheduled: bool,
    /// It wants to know the times of what has ended.
    pub(crate) timed: bool,
    /// Everything ends with `Offline`.
    pub(crate) offline: bool,
    /// A bio of one segment up to so many sectors is never split.
    pub(crate) whole_sectors: u32,
    /// The same for plain reads and writes, by op; 0 when they need a closer look.
    pub(crate) plain_sectors: [u32; 2],
    /// A plain bio from here on needs a closer look as well: it may reach beyond the end.
    pub(crate) plain_end: u64,
    /// Bits that no address or length in sectors may have.
    pub(crate) block_mask: u64,
    /// Bits that no address in memory may have.
    pub(crate) memory_mask: u64,
    /// Bits in which two addresses of one segment agree.
    pub(crate) beyond_segment: u64,
    /// Slots of a submitter.
    pub(crate) slots: u16,
    pub(crate) nr_requests: u16,
    /// Lanes in use: the first so many.
    pub(crate) queues: u16,
    /// How often that number has changed.
    pub(crate) layout: u64,
}

impl Snapshot {
    /// With what follows from the rest worked out.
    pub(crate) fn derived(mut self) -> Snapshot {
        self.whole_sectors = whole_sectors(&self.limits);
        let room = self.limits.capacity.checked_sub(u64::from(self.whole_sectors));
        self.plain_end = room.map_or(0, |room| room + 1);
        let plain = if self.offline { 0 } else { self.whole_sectors };
        self.plain_sectors[Op::Read as usize] = plain;
        self.plain_sectors[Op::Write as usize] = if self.limits.read_only { 0 } else { plain };
        self.block_mask = u64::from(self.limits.block_sectors() - 1);
        self.memory_mask = u64::from(self.limits.dma_alignment);
        self.beyond_segment = !self.limits.seg_boundary_mask;
        self
    }
}

/// What a device's parts share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// `None` once the device is offline.
    pub(crate) driver: Mutex<Option<Arc<dyn Driver>>>,
    pub(crate) queues: Queues,
    pub(crate) depth: u16,
    pub(crate) gate: Gate,
    pub(crate) version: SharedCounter,
    pub(crate) snapshot: Mutex<Arc<Snapshot>>,
    /// All there can be; see [`Snapshot::queues`].
    pub(crate) lanes: LanePorts,
    /// Who opens and closes lanes, while somebody turns them.
    pub(crate) lane_homes: Mutex<Option<Weak<dyn LaneHomes>>>,
    pub(crate) submitters: Mutex<Submitters>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) stamp: BusyStamp,
    /// The round-robin spread's one shared counter.
    pub(crate) turn: SharedCounter,
    pub(crate) dispatcher: Right<Dispatcher>,
    /// The lanes that found the right taken and left something.
    pub(crate) asks: Pending,
    /// The lane that sees to all, while lanes get in each other's way; written with the right.
    pub(crate) host: Alone<Counter>,
    /// What the elevator's scheduler, or none, was made from.
    pub(crate) attached: Mutex<Attached>,
    /// Where the scheduler's weights come from.
    pub(crate) groups: OnceLock<Arc<Groups>>,
    pub(crate) single: Option<Single>,
    pub(crate) tags: Option<Arc<TagSet>>,
    pub(crate) fences: Arc<Fences>,
    /// Lanes whose drivers keep every tag, answer nothing or refuse everything for long.
    pub(crate) in_need: SharedCounter,
    /// The homes that turn the single queue, or did.
    pub(crate) homes: Mutex<Vec<SingleHome>>,
    pub(crate) orphans: Mutex<Vec<Core>>,
    pub(crate) orphan_count: SharedCounter,
    /// Callers of control steps.
    pub(crate) watchers: Watchers,
    /// Whose turn it is to change parts; begins before the gate is closed.
    pub(crate) changes: Changes,
}

#[derive(Default)]
pub(crate) struct Submitters {
    ports: Vec<Option<Arc<Port>>>,
}

/// What others reach of a lane.
#[repr(align(128))] // One lane's marks share no line with another's.
pub(crate) struct LanePort {
    pub(crate) pending: Pending,
    pub(crate) control: Mailbox<Control>,
    pub(crate) bell: OnceLock<LaneBell>,
    pub(crate) gauges: Arc<LaneGauges>,
    /// Requests it was ever sent by the dispatcher, and how many more it can take, or
    /// [`TAKES_NONE`]. Its home writes it.
    pub(crate) credit: Alone<Counter>,
    /// 1 while the lane is one of those. Its home writes it.
    pub(crate) needs: Counter,
    state: Mutex<LaneState>,
}

/// A home of the single queue. It keeps its place while the lane is closed.
pub(crate) struct SingleHome {
    pub(crate) bell: LaneBell,
    pub(crate) open: bool,
}

/// What changes when a lane is opened or closed, or the device quiesced.
#[derive(Default)]
pub(crate) struct LaneState {
    pub(crate) open: bool,
    /// How many hold the device quiesced.
    pub(crate) quiesced: u32,
    /// The ways from and to its submitters, while it is closed.
    pub(crate) kept: Option<Ways>,
}

/// The ports of all lanes there can be. Those beyond the ones a device begins with are made when
/// it is given more: an idle disk is not to pay for queues it does not have.
pub(crate) struct LanePorts {
    first: Box<[LanePort]>,
    rest: OnceLock<Box<[LanePort]>>,
    most: usize,
}

impl LanePorts {
    /// Of a device that begins with so many lanes and may have so many.
    pub(crate) fn new(first: u16, most: u16) -> LanePorts {
        let first = (0..first).map(|_| LanePort::new()).collect();
        LanePorts { first, rest: OnceLock::new(), most: usize::from(most) }
    }

    /// How many there can be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Those of all lanes that were ever in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LanePort> {
        self.first.iter().chain(self.rest.get().into_iter().flatten())
    }

    /// Those of all there can be, each of which has to know.
    pub(crate) fn all(&self) -> impl Iterator<Item = &LanePort> {
        (0..self.most).map(|lane| &self[lane])
    }

    pub(crate) fn get(&self, index: usize) -> Option<&LanePort> {
        (index < self.most).then(|| &self[index])
    }

    #[cold]
    fn beyond(&self, index: usize) -> &LanePort {
        let rest = self.most - self.first.len();
        let rest = self.rest.get_or_init(|| (0..rest).map(|_| LanePort::new()).collect());
        &rest[index - self.first.len()]
    }
}

impl std::ops::Index<usize> for LanePorts {
    type Output = LanePort;

    #[inline]
    fn index(&self, index: usize) -> &LanePort {
        match self.first.get(index) {
            Some(port) => port,
            None => self.beyond(index),
        }
    }
}

impl LanePort {
    pub(crate) fn new() -> LanePort {
        LanePort {
            pending: Pending::new(Pending::SOURCES_MAX),
            control: Mailbox::default(),
            bell: OnceLock::new(),
            gauges: Arc::default(),
            credit: Alone(Counter::new(TAKES_NONE)),
            needs: Counter::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().expect("a lane's lock")
    }

    /// Lane `index` of this device has its home at this bell. A lane opened again keeps its first
    /// bell: homes are for life.
    ///
    /// # Errors
    /// The home has no place left; or it keeps a roster, and another bell is the lane's, so that it
    /// would never be told to turn the lane.
    pub(crate) fn settle(&self, name: &str, index: usize, bell: &Arc<Bell>) -> Result<(), Error> {
        if self.bell.get().is_none() {
            let home = LaneBell::new(bell)?;
            self.bell.get_or_init(|| home);
        }
        let is_own = self.bell.get().is_some_and(|home| Arc::ptr_eq(&home.bell, bell));
        if bell.roster().is_some() && !is_own {
            return invalid(format!("hard queue {index} of {name} has another home for life"));
        }
        Ok(())
    }

    /// Whether its home looks at its lanes before it sleeps.
    pub(crate) fn is_awake(&self) -> bool {
        self.bell.get().is_some_and(|home| !home.bell.doorbell().is_asleep())
    }

    pub(crate) fn has_work(&self) -> bool {
        self.pending.any() || self.control.is_waiting()
    }

    /// Tells the lane that `source` has published something. The mark is what its home looks at
    /// before it sleeps: a bell alone is not heard by one who is awake.
    #[inline]
    fn kick(&self, source: usize) {
        self.pending.mark(source);
        self.ring_fenced();
    }

    /// Has its home turn it after something was published, and a fence.
    #[inline]
    pub(crate) fn ring_fenced(&self) {
        if let Some(home) = self.bell.get() {
            home.ring_fenced();
        }
    }

    pub(crate) fn post(&self, message: Control) {
        self.control.post(message);
        if let Some(home) = self.bell.get() {
            home.ring();
        }
    }
}

impl Submitters {
    pub(crate) fn add(&mut self, port: &Arc<Port>, most: usize) -> Result<SubmitterId, Error> {
        let free = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        if free >= most {
            return invalid(format!("submitters={} is above {most}", free + 1));
        }
        if free == self.ports.len() {
            self.ports.push(None);
        }
        self.ports[free] = Some(Arc::clone(port));
        Ok(SubmitterId(free as u16))
    }

    /// All of them, by number.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (usize, &Arc<Port>)> {
        self.ports.iter().enumerate().filter_map(|(id, port)| Some((id, port.as_ref()?)))
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

    /// The lanes in use.
    pub(crate) fn lanes_in_use(&self) -> impl Iterator<Item = &LanePort> {
        (0..usize::from(self.snapshot().queues)).map(|lane| &self.lanes[lane])
    }

    /// Makes a submitter known to every lane in use, and gives it a ring into each that it feeds:
    /// all in round-robin spread, else number `lane` modulo their number.
    pub(crate) fn attach(
        &self,
        id: SubmitterId,
        port: &Arc<Port>,
        lane: usize,
        snapshot: &Snapshot,
    ) -> Vec<Producer<RequestClaim>> {
        let mut rings = Vec::new();
        let lanes = usize::from(snapshot.queues);
        for index in 0..lanes {
            let feeds = index == lane % lanes || self.config.spread == Spread::RoundRobin;
            let (submitter, port) = (usize::from(id.0), Arc::clone(port));
            let consumer = feeds.then(|| {
                let (producer, consumer) = ring(usize::from(snapshot.slots));
                rings.push(producer);
                consumer
            });
            self.lanes[index].post(Control::Attach { submitter, port, ring: consumer });
        }
        rings
    }

    /// Calls `with` on the elevator of the multi-queue path, if there is one, under the right. It
    /// has heard of all that its callers know to have ended.
    pub(crate) fn with_dispatcher<T>(&self, with: impl FnOnce(&mut Option<Elevator>) -> T) -> T {
        self.with_right(|dispatcher| {
            dispatcher.settle();
            with(&mut dispatcher.elevator)
        })
    }

    /// Calls `with` under the right, for which it waits.
    pub(crate) fn with_right<T>(&self, with: impl FnOnce(&mut Dispatcher) -> T) -> T {
        let mut held = self.dispatcher.take();
        let answer = with(&mut held);
        self.let_go(held);
        answer
    }

    /// Lets go of the right; whoever was turned away meanwhile asks again.
    pub(crate) fn let_go(&self, held: Held<'_, Dispatcher>) {
        Right::let_go(held);
        self.asks.take(|lane| self.kick(lane, ELEVATOR));
    }

    /// Tells a lane that `source` has published something.
    #[inline]
    pub(crate) fn kick(&self, lane: usize, source: usize) {
        self.lanes[lane].kick(source);
    }

    /// Tells lanes, a bit each, to ask the elevator.
    #[inline]
    pub(crate) fn kick_each(&self, mut lanes: u64) {
        while lanes != 0 {
            self.kick(lanes.trailing_zeros() as usize, ELEVATOR);
            lanes &= lanes - 1;
        }
    }

    /// Wakes the homes of lanes, a bit each, that were sent something before a fence.
    #[inline]
    pub(crate) fn ring_each_fenced(&self, mut lanes: u64) {
        while lanes != 0 {
            self.lanes[lanes.trailing_zeros() as usize].ring_fenced();
            lanes &= lanes - 1;
        }
    }

    /// Makes a lane take a turn.
    pub(crate) fn nudge(&self, lane: usize) {
        self.kick(lane, NUDGE);
    }

    /// Makes the single queue take a turn: by the calling home if it is one, which looks before it
    /// sleeps, else by the first.
    pub(crate) fn restart_single(&self, caller: Option<&LaneBell>) {
        match caller {
            Some(home) => {
                self.lanes[0].pending.mark(NUDGE);
                home.mark_fenced();
            }
            None => self.nudge(0),
        }
    }

    /// Whether any driver queue of the `queues` in use holds a request.
    pub(crate) fn is_busy(&self, queues: u16) -> bool {
        (0..usize::from(queues)).any(|lane| self.lanes[lane].gauges.in_driver() != [0, 0])
    }

    pub(crate) fn nudge_all(&self) {
        for port in self.submitters.lock().expect("the submitters' lock").ports.iter().flatten() {
            port.nudge();
        }
        self.lanes_in_use().for_each(|lane| lane.kick(NUDGE));
    }

    /// A submitter's last I/O has ended behind a closed gate.
    #[cold]
    pub(crate) fn tell_freezer(&self) {
        self.watchers.tell();
    }

    /// Forgets a submitter that has nothing under way.
    pub(crate) fn retire(&self, core: Core) {
        let id = usize::from(core.id.0);
        self.ledger.lock().expect("the ledger's lock").retire(&core.stats);
        let Core { member, .. } = core;
        self.gate.leave(member);
        // A panic elsewhere may have poisoned the lock, and this may be what unwinds.
        if !std::thread::panicking() {
            let lanes =
                self.with_elevator(|elevator| elevator.context_ended(SubmitterId(id as u16)));
            match &self.single {
                Some(_) => self.nudge(0),
                None => self.kick_each(lanes.unwrap_or(0)),
            }
        }
        // Under the lock: which lanes are in use must not change meanwhile.
        let mut submitters = self.submitters.lock().expect("the submitters' lock");
        match &self.single {
            Some(single) => single.detach(id),
            None => {
                let lanes = self.lanes_in_use();
                lanes.for_each(|lane| lane.post(Control::Detach { submitter: id }));
            }
        }
        submitters.ports[id] = None;
    }

    /// Keeps a submitter whose thread has let go of it until its I/O has ended.
    pub(crate) fn adopt_orphan(&self, core: Core) {
        self.orphans.lock().expect("the orphans' lock").push(core);
        self.orphan_count.next();
        self.lanes_in_use().for_each(|lane| lane.kick(NUDGE));
        // The home whose bell the lane keeps may have let go of the single queue.
        let homes = self.homes.lock().expect("the homes' lock");
        homes.iter().filter(|home| home.open).for_each(|home| home.bell.ring());
    }

    #[inline]
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphan_count.read() != 0
    }

    /// Sends on what orphans have not sent, takes what has ended for them, and retires those that
    /// have nothing left.
    #[cold]
    pub(crate) fn tend_orphans(&self, now: Nanos) {
        let mut done = Vec::new();
        {
            let mut orphans = self.orphans.lock().expect("the orphans' lock");
            for core in orphans.iter_mut() {
                core.complete(now, drop);
                core.send_backlog(now);
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

    /// A home takes part in turning the single queue.
    ///
    /// # Errors
    /// It has no place left for the lane.
    pub(crate) fn single_opened(&self, bell: &Arc<Bell>) -> Result<LaneBell, Error> {
        let mut homes = self.homes.lock().expect("the homes' lock");
        // A home has at most one lane of it open.
        let known = homes.iter_mut().find(|home| !home.open && Arc::ptr_eq(&home.bell.bell, bell));
        if let Some(home) = known {
            home.open = true;
            return Ok(home.bell.clone());
        }
        // The first home is the lane's.
        let first = self.lanes[0].bell.get().filter(|home| Arc::ptr_eq(&home.bell, bell));
        let bell = first.cloned().map_or_else(|| LaneBell::new(bell), Ok)?;
        homes.push(SingleHome { bell: bell.clone(), open: true });
        Ok(bell)
    }

    /// A home lets go of the single queue. The last one takes the hard queue with it.
    pub(crate) fn single_closed(&self, single: &Single, index: usize, bell: &LaneBell) {
        let mut state = self.lanes[index].state();
        let mut homes = self.homes.lock().expect("the homes' lock");
        let is_it = |home: &&mut SingleHome| home.open && home.bell.is(bell);
        if let Some(home) = homes.iter_mut().find(is_it) {
            home.open = false;
        }
        if homes.iter().any(|home| home.open) {
            // The queue's next time may be known to the one that goes alone.
            homes.iter().filter(|home| home.open).for_each(|home| home.bell.ring());
        } else {
            drop(single.uninstall());
            state.open = false;
        }
    }
}
