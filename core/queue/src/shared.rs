//! The state that all parts of a device share, whichever path its requests take. Each submitter and
//! each lane has a handle of it. State of control calls alone is in `device/`.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use weir_bio::{Bio, GroupId, Nanos, SubmitterId};
use weir_ring::{BusyStamp, Gate, Member, Producer, SharedCounter};

use crate::bell::Port;
use crate::config::Config;
use crate::directory::{Directory, Partition};
use crate::driver::Queues;
use crate::error::{Error, invalid};
use crate::event::Listener;
use crate::failures::Failures;
use crate::group::{Groups, SharesByWeight};
use crate::hard::fence::Fences;
use crate::hard::flush_error::FlushError;
use crate::lanes::Lanes;
use crate::mq::Mq;
use crate::order::elevator::Elevator;
use crate::request::RequestClaim;
use crate::snapshot::{Current, Snapshot};
use crate::sq::Sq;
use crate::stats::{LaneGauges, Ledger, SubmitterStats};
use crate::step::Watchers;
use crate::tag_set::TagSet;
use crate::wbt::{Entry, Kind, TrackedEnds, Wbt, Window};

/// The state that all parts of a device share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) queues: Queues,
    pub(crate) takes_commands: bool,
    pub(crate) depth: u16,
    pub(crate) gate: Gate,
    pub(crate) current: Current,
    pub(crate) path: Path,
    /// The tags of all lanes, if they have them together, with other devices or alone.
    pub(crate) tags: Option<SharedTags>,
    pub(crate) submitters: Mutex<Submitters>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) stamp: BusyStamp,
    /// The round-robin spread's one shared counter.
    pub(crate) next_ring: SharedCounter,
    /// Where the scheduler's weights come from.
    pub(crate) groups: OnceLock<Arc<Groups>>,
    /// Hears of what submitters of devices above do.
    pub(crate) listener: OnceLock<Arc<dyn Listener>>,
    pub(crate) fences: Arc<Fences>,
    pub(crate) flush_error: Arc<FlushError>,
    pub(crate) failures: Failures,
    /// The partitions of a pool.
    pub(crate) directory: Option<Arc<Directory>>,
    pub(crate) orphans: Mutex<Vec<Box<dyn Orphan>>>,
    pub(crate) orphan_count: SharedCounter,
    /// Callers of control steps.
    pub(crate) watchers: Watchers,
    pub(crate) has_wbt: bool,
    pub(crate) wbt: Wbt,
}

/// Tags that lanes have together.
pub(crate) struct SharedTags {
    pub(crate) set: Arc<TagSet>,
    /// The set is this device's.
    pub(crate) alone: bool,
}

/// Which way requests take, chosen when the device is built.
#[expect(clippy::large_enum_variant, reason = "one a device; a box is a further line of memory")]
pub(crate) enum Path {
    Mq(Mq),
    Sq(Sq),
}

#[derive(Default)]
pub(crate) struct Submitters {
    ports: Vec<Option<Arc<Port>>>,
    /// Something may have been written that no device above has flushed: a submitter is or was
    /// there beside those of devices above, or one of these ended without its flush.
    pub(crate) owes_flush: bool,
}

/// A submitter whose thread has let go of it while its I/O was under way.
pub(crate) trait Orphan: Send {
    /// Sends on what was not sent and takes what has ended; whether nothing is left.
    fn tend(&mut self, now: Nanos) -> bool;

    /// The rest of it that the device keeps.
    fn leave(self: Box<Self>) -> Leaving;
}

/// A submitter that has nothing under way and goes.
pub(crate) struct Leaving {
    pub(crate) id: SubmitterId,
    pub(crate) stats: Arc<SubmitterStats>,
    pub(crate) member: Member,
    pub(crate) partition: Option<Arc<Partition>>,
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

impl Path {
    pub(crate) fn lanes(&self) -> &Lanes {
        match self {
            Path::Mq(mq) => &mq.lanes,
            Path::Sq(sq) => &sq.lanes,
        }
    }

    /// The gauges of a hard queue.
    #[inline]
    pub(crate) fn gauges(&self, lane: usize) -> &LaneGauges {
        match self {
            Path::Mq(mq) => &mq.ports[lane].gauges,
            Path::Sq(sq) => &sq.gauges,
        }
    }

    /// The same of all that were ever in use.
    pub(crate) fn each_gauges(&self, each: impl FnMut(&LaneGauges)) {
        match self {
            Path::Mq(mq) => mq.ports.iter().map(|port| port.gauges.as_ref()).for_each(each),
            Path::Sq(sq) => std::iter::once(sq.gauges.as_ref()).for_each(each),
        }
    }

    /// When there was other I/O than throttled writes, ns; 0: never.
    pub(crate) fn touched(&self) -> u64 {
        match self {
            Path::Mq(mq) => mq.touched(),
            Path::Sq(sq) => sq.gauges.observed.touched(),
        }
    }

    /// Makes a submitter known to the lanes; its rings into those that it feeds.
    pub(crate) fn attach(
        &self,
        id: SubmitterId,
        port: &Arc<Port>,
        lane: usize,
        snapshot: &Snapshot,
    ) -> Vec<Producer<RequestClaim>> {
        match self {
            Path::Mq(mq) => mq.attach(id, port, lane, snapshot),
            Path::Sq(sq) => {
                sq.attach(usize::from(id.0), Arc::clone(port));
                Vec::new()
            }
        }
    }

    /// Has a hold that was taken settle, and go to its owner.
    #[cold]
    pub(crate) fn settle(&self, hold: RequestClaim, queues: u16) {
        match self {
            Path::Mq(mq) => mq.begin_to_settle(hold, queues),
            Path::Sq(sq) => sq.settle(hold),
        }
    }

    /// Calls `with` on the elevator, under its lock; `None` without one.
    pub(crate) fn with_elevator<T>(&self, with: impl FnOnce(&mut Elevator) -> T) -> Option<T> {
        match self {
            Path::Mq(mq) => mq.with_dispatcher(|elevator| elevator.as_mut().map(with)),
            Path::Sq(sq) => Some(sq.with_elevator(with)),
        }
    }

    /// Calls `with` on the elevator; the lanes that it names, a bit each, go there afterwards.
    pub(crate) fn stir(&self, with: impl FnOnce(&mut Elevator) -> u64) {
        let lanes = self.with_elevator(with);
        match self {
            Path::Mq(mq) => mq.lanes.kick_each(lanes.unwrap_or(0), |_, _| {}),
            Path::Sq(sq) => sq.lanes.nudge(0),
        }
    }
}

impl Shared {
    /// Puts other settings in force; nothing is inside.
    pub(crate) fn put_in_force(&self, snapshot: Snapshot) {
        self.current.replace(snapshot);
        self.wbt.follow(&self.current.get(), self.depth);
    }

    pub(crate) fn submitters(&self) -> MutexGuard<'_, Submitters> {
        self.submitters.lock().expect("the submitters' lock")
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("the ledger's lock")
    }

    /// Whether any driver queue of the `queues` in use holds a request.
    pub(crate) fn is_busy(&self, queues: u16) -> bool {
        (0..usize::from(queues)).any(|lane| self.path.gauges(lane).in_driver() != [0, 0])
    }

    /// Makes every lane in use take a turn.
    pub(crate) fn nudge_lanes(&self) {
        self.path.lanes().nudge_first(self.current.get().queues);
    }

    /// Makes all submitters and lanes look.
    pub(crate) fn nudge_all(&self) {
        self.submitters().ports().for_each(|(_, port)| _ = port.nudge());
        self.nudge_lanes();
    }

    /// A submitter's last I/O has ended behind a closed gate.
    #[cold]
    pub(crate) fn tell_freezer(&self) {
        self.watchers.tell();
    }

    /// Forgets a submitter that has nothing under way.
    pub(crate) fn retire(&self, leaving: Leaving) {
        let Leaving { id, stats, member, partition } = leaving;
        self.ledger().retire(&stats, partition.as_ref().map(|partition| &partition.retired));
        self.gate.leave(member);
        // A panic elsewhere may have poisoned the lock, and this may be what unwinds.
        if !std::thread::panicking() {
            self.path.stir(|elevator| elevator.context_ended(id));
        }
        let id = usize::from(id.0);
        // Under the lock: which lanes are in use must not change meanwhile.
        let mut submitters = self.submitters();
        match &self.path {
            Path::Mq(mq) => mq.detach(id, self.current.get().queues),
            Path::Sq(sq) => sq.detach(id),
        }
        submitters.ports[id] = None;
    }

    /// Keeps a submitter whose thread has let go of it until its I/O has ended.
    pub(crate) fn adopt_orphan(&self, orphan: Box<dyn Orphan>) {
        self.orphans.lock().expect("the orphans' lock").push(orphan);
        self.orphan_count.next();
        self.nudge_lanes();
        if let Path::Sq(sq) = &self.path {
            // The home whose bell the lane keeps may have let go of the single queue.
            sq.ring_homes();
        }
    }

    #[inline]
    pub(crate) fn has_orphans(&self) -> bool {
        self.orphan_count.read() != 0
    }

    /// Sees to all orphans, and retires those that have nothing left.
    #[cold]
    pub(crate) fn tend_orphans(&self, now: Nanos) {
        let done: Vec<_> = {
            let mut orphans = self.orphans.lock().expect("the orphans' lock");
            orphans.extract_if(.., |orphan| orphan.tend(now)).collect()
        };
        for orphan in done {
            self.orphan_count.down();
            self.retire(orphan.leave());
        }
    }
}

impl Shared {
    /// Whether a submitter's write may go on now; see [`Wbt::enter`].
    pub(crate) fn enter_throttle(
        &self,
        bio: &Bio,
        kind: Kind,
        submitter: (SubmitterId, &Arc<Port>),
        waits: bool,
        now: Nanos,
    ) -> bool {
        match self.wbt.enter(bio, kind, submitter, waits, now, || self.path.touched()) {
            Entry::Waits => false,
            Entry::Passes(opens) => {
                if opens {
                    // It is to come back when the window ends.
                    self.path.lanes().nudge(0);
                }
                true
            }
        }
    }

    /// A submitter's write does not wait any more; see [`Wbt::leave`].
    #[cold]
    pub(crate) fn leave_throttle(&self, submitter: SubmitterId, kind: Kind, now: Nanos) {
        self.wbt.leave(submitter, kind, now, || self.path.touched());
    }

    /// Throttled requests have ended.
    #[cold]
    pub(crate) fn end_throttled(&self, ends: TrackedEnds, now: Nanos) {
        self.wbt.end(ends, now, || self.path.touched());
    }

    /// Ends the throttle's window if its time has come; when the next does.
    #[inline]
    pub(crate) fn tick_throttle(&self, now: Nanos) -> Option<Nanos> {
        let ends_at = self.wbt.ends_at();
        if ends_at.is_some_and(|at| at <= now) {
            self.end_window(now);
            return self.wbt.ends_at();
        }
        ends_at
    }

    #[cold]
    fn end_window(&self, now: Nanos) {
        let observe = |number| {
            let mut window = Window::default();
            self.path.each_gauges(|gauges| gauges.observed.add_to(&mut window, number, now));
            window
        };
        self.wbt.tick(now, observe, || self.path.touched());
    }
}

impl SharesByWeight for Shared {
    fn tell_group(&self, group: GroupId, parent: Option<GroupId>, weight: u16) {
        self.path.with_elevator(|elevator| elevator.group_changed(group, parent, weight));
    }
}
