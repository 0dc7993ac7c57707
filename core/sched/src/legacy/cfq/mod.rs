//! `cfq`: completely fair queueing, time slices of the device for each process. Source:
//! docs/behaviour/cfq.md (CFQ as in Linux 4.14 to 4.20).
//!
//! Each process has a queue for its reads and sync writes; async writes go to queues that a group
//! shares. One queue at a time has the device, for a slice of time. Groups divide the device by
//! weight (`group.rs`); within a group real-time comes before best effort before idle, and the
//! queues of a class stand in three service trees (`turns.rs`). An empty queue is waited for when
//! that is likely to pay (`idling.rs`); who may cut in is in `preemption.rs`.
//!
//! Requests leave one by one, so what the legacy path calls a dispatch round has one request and
//! needs no sorting.

mod cooperation;
mod group;
mod idling;
mod knobs;
mod merging;
mod names;
mod preemption;
mod process;
mod queue;
mod selection;
mod slices;
mod staged;
#[cfg(test)]
mod tests;
mod turns;

use weir_bio::{GroupId, Limits, Nanos, Rq, SchedTag, SubmitterId};

use crate::contract::{Absorbed, Ended, MayQueue, Merge, Replay, Scheduler, Setup};
use crate::fair::nearest::{Reach, is_favoured, rank};
use crate::fair::queueing::{DeviceLoad, LeastLoad, QueueingDetector, QueueingRule};
use crate::fair::sorted::Sorted;
use crate::hash::MergeHash;
use crate::merge::Side;
use crate::staged::node::{Node, unstaged};
use crate::staged::order::Order;
use crate::tunable::Tunables;
use crate::{Entry, Family, SLES12};

pub use group::GroupUse;
pub use knobs::TUNABLES;

use group::Groups;
use knobs::Knobs;
use names::QueueId;
use process::Process;
use queue::Queue;
use staged::{Holder, Whereabouts};
use turns::Workload;

/// The kernel's rounding of times, which some rules name; weir has none but keeps the amount.
const TICK_NS: u64 = 1_000_000;
/// When a device counts as one that keeps several requests at once.
const QUEUEING: QueueingRule =
    QueueingRule { load: LeastLoad::Either(5), busy: 5, samples: 50, depth: 5, forgets: false };
/// A request no longer than this may be the beginning of a longer one, sectors (4 KiB).
const SMALL_SECTORS: u32 = 8;
/// At attach the last late sync request is taken to be so long ago.
const NEVER_LATE_NS: i64 = 1_000_000_000;

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "cfq",
    family: Family::Legacy,
    counterpart: "bfq",
    compat: &["4.20", SLES12],
    levels: &[(SLES12, "`slice_idle` is 8 on every disk, also where seeks cost nothing")],
    tunables: TUNABLES,
    make: Some(|setup| Box::new(Cfq::new(setup))),
    replay: Some(|setup| Box::new(Cfq::new(setup))),
};

/// Completely fair queueing.
#[derive(Clone)]
pub struct Cfq {
    knobs: Knobs,
    limits: Limits,
    nomerges: u8,
    nodes: Vec<Node>,
    holders: Vec<Holder>,
    hash: MergeHash,
    last_merge: Option<SchedTag>,
    /// Counts queues that come to a service tree, so that equals keep their order.
    sequence: u64,
    queues: Vec<Queue>,
    /// The staged requests of each queue by sector.
    orders: Vec<Order>,
    free_queues: Vec<QueueId>,
    processes: Vec<Option<Process>>,
    groups: Groups,
    /// Whether groups were charged in requests last, instead of in time.
    charges_requests: bool,
    /// Requests in the queues.
    staged: usize,
    /// Requests with the device: async, sync.
    in_flight: [u32; 2],
    busy_queues: u32,
    busy_sync_queues: u32,
    /// Busy queues by the sector of their next request, for each level.
    close: [Sorted<(u64, QueueId)>; 8],
    /// The queue in service.
    active: Option<QueueId>,
    /// Whose request it sent to the device last.
    active_process: Option<SubmitterId>,
    /// Until when the empty queue in service is waited for.
    idle_until: Option<Nanos>,
    /// Something other than a request or an answer ended the wait.
    kicked: bool,
    workload: Workload,
    /// The end of the request dispatched last, sectors.
    position: u64,
    /// When a sync request older than fifo_expire_sync ended last.
    last_late_sync_ns: Option<i64>,
    queueing: QueueingDetector,
    /// The verdict on queueing, if it is given from outside.
    given_queueing: Option<bool>,
}

impl Cfq {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> Cfq {
        Cfq {
            knobs: Knobs::new(setup.limits.rotational || setup.compat == SLES12),
            limits: setup.limits.clone(),
            nomerges: setup.nomerges,
            nodes: unstaged(setup.nr_requests),
            holders: vec![Holder::NOBODY; usize::from(setup.nr_requests)],
            hash: MergeHash::new(setup.nr_requests),
            last_merge: None,
            sequence: 0,
            queues: Vec::new(),
            orders: Vec::new(),
            free_queues: Vec::new(),
            processes: Vec::new(),
            groups: Groups::new(),
            charges_requests: !setup.limits.rotational,
            staged: 0,
            in_flight: [0; 2],
            busy_queues: 0,
            busy_sync_queues: 0,
            close: std::array::from_fn(|_| Sorted::default()),
            active: None,
            active_process: None,
            idle_until: None,
            kicked: false,
            workload: Workload::NONE,
            position: 0,
            last_late_sync_ns: None,
            queueing: QueueingDetector::new(QUEUEING),
            given_queueing: None,
        }
    }

    /// Says whether the device keeps several requests at once, instead of finding it out.
    pub fn set_queueing(&mut self, queueing: bool) {
        self.given_queueing = Some(queueing);
    }

    /// A group's own processes have this weight (1..=1000) against its child groups.
    pub fn leaf_weight_changed(&mut self, group: GroupId, weight: u16) {
        let at = self.groups.find(group);
        self.groups.set_leaf_weight(at, weight);
    }

    /// The use of the device by a group so far, its child groups not included.
    #[must_use]
    pub fn group_use(&self, group: GroupId) -> GroupUse {
        self.groups.known(group).map_or(GroupUse::default(), |at| self.groups[at].used)
    }

    fn queue(&self, id: QueueId) -> &Queue {
        &self.queues[id.0 as usize]
    }

    fn queue_mut(&mut self, id: QueueId) -> &mut Queue {
        &mut self.queues[id.0 as usize]
    }

    fn node(&self, tag: SchedTag) -> &Node {
        &self.nodes[tag.index()]
    }

    fn holder(&self, tag: SchedTag) -> &Holder {
        &self.holders[usize::from(tag.0)]
    }

    fn is_queueing(&self) -> bool {
        self.given_queueing.unwrap_or_else(|| self.queueing.is_queueing())
    }

    /// Whether service is counted in requests: `slice_idle` is 0, and the device queues.
    fn counts_requests(&self) -> bool {
        self.knobs.slice_idle_ns == 0 && self.is_queueing()
    }

    /// Adds a request to its queue, whose turn begins if it was not busy.
    fn add(&mut self, rq: Rq, queue: QueueId, now: Nanos) {
        let deadline = now + self.knobs.fifo_expire_ns(rq.is_sync());
        self.holders[usize::from(rq.tag.0)] = Holder { at: Whereabouts::Staged, queue };
        let node = &mut self.nodes[rq.tag.index()];
        (node.rq, node.deadline, node.band) = (rq, deadline, rank(&rq));
        self.staged += 1;
        self.sort_in(rq.tag);
        let Cfq { queues, nodes, .. } = self;
        let owner = &mut queues[queue.index()];
        owner.fifo.push(nodes, rq.tag);
        owner.favoured += u32::from(is_favoured(&rq));
        if rq.is_mergeable() {
            self.hash.add(rq.tag, rq.end());
            self.last_merge.get_or_insert(rq.tag);
        }
        if self.queue(queue).place.is_none() {
            self.place(queue, false, now);
        }
    }

    /// Puts a staged request where its sector belongs, and makes it the next if it is nearest.
    fn sort_in(&mut self, tag: SchedTag) {
        let queue = self.holder(tag).queue;
        let next = match self.queue(queue).next {
            Some(next) if self.prefers(next, tag, self.position) => next,
            _ => tag,
        };
        self.orders[queue.index()].insert(&mut self.nodes, tag);
        let owner = self.queue_mut(queue);
        owner.queued += 1;
        owner.next = Some(next);
        self.update_close(queue);
    }

    /// Whether `a` goes before `b`, both of one queue, with the head at sector `head`.
    fn prefers(&self, a: SchedTag, b: SchedTag, head: u64) -> bool {
        let back = self.knobs.back_seek();
        let [a, b] = [a, b].map(|tag| self.node(tag));
        let [a, b] = [a, b].map(|node| Reach::of(node.band, node.rq.sector, head, back));
        a.is_before(b)
    }

    /// Takes a staged request out of its sorted place only. The next one is found from there.
    fn sort_out(&mut self, tag: SchedTag) {
        let queue = self.holder(tag).queue;
        let Node { rq: Rq { sector, .. }, before, after, .. } = *self.node(tag);
        self.orders[queue.index()].remove(&mut self.nodes, tag);
        let mut next = self.queue(queue).next;
        if next == Some(tag) {
            let first = self.orders[queue.index()].first();
            let above = if after == SchedTag::NONE { first } else { Some(after) };
            next = match above {
                Some(above) if before != SchedTag::NONE => {
                    Some(if self.prefers(above, before, sector) { above } else { before })
                }
                above => above,
            };
        }
        let owner = self.queue_mut(queue);
        owner.queued -= 1;
        owner.next = next;
        self.update_close(queue);
    }

    /// Takes a staged request out of everything.
    fn remove(&mut self, tag: SchedTag) -> Rq {
        self.sort_out(tag);
        let rq = self.node(tag).rq;
        let Cfq { queues, nodes, holders, .. } = self;
        let holder = &mut holders[usize::from(tag.0)];
        holder.at = Whereabouts::Absent;
        let owner = &mut queues[holder.queue.index()];
        owner.fifo.remove(nodes, tag);
        owner.favoured -= u32::from(is_favoured(&rq));
        self.staged -= 1;
        self.hash.remove(tag);
        self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        rq
    }

    /// Hands a staged request of the queue in service to the device.
    fn take(&mut self, tag: SchedTag, now: Nanos) -> Rq {
        let rq = self.remove(tag);
        let holder = &mut self.holders[usize::from(tag.0)];
        holder.at = Whereabouts::InFlight;
        let queue = holder.queue;
        let owner = self.queue_mut(queue);
        owner.in_flight += 1;
        let group = owner.group;
        owner.slot.dispatched += 1;
        owner.slot.must_dispatch = false;
        // Whatever was waited for is on its way.
        self.idle_until = None;
        self.active_process = Some(rq.id.submitter());
        let group = &mut self.groups[group];
        group.in_flight += 1;
        group.used.requests += 1;
        group.used.sectors += u64::from(rq.sectors);
        self.in_flight[usize::from(rq.is_sync())] += 1;
        self.position = rq.end();
        self.last_late_sync_ns.get_or_insert(now.0 as i64 - NEVER_LATE_NS);
        rq
    }

    /// Takes a request off the books of what is in flight.
    fn take_back(&mut self, tag: SchedTag) -> (Rq, QueueId) {
        let holder = &mut self.holders[usize::from(tag.0)];
        let is_in_flight = holder.at == Whereabouts::InFlight;
        assert!(is_in_flight, "tag {} ended and is not in flight", tag.0);
        holder.at = Whereabouts::Absent;
        let queue = holder.queue;
        let rq = self.node(tag).rq;
        self.in_flight[usize::from(rq.is_sync())] -= 1;
        let owner = self.queue_mut(queue);
        owner.in_flight -= 1;
        let group = owner.group;
        self.groups[group].in_flight -= 1;
        (rq, queue)
    }

    fn watch_device(&mut self) {
        let idler = self.active.map(|id| self.queue(id)).filter(|queue| queue.idle_window);
        let load = DeviceLoad {
            staged: self.staged,
            in_flight: self.in_flight.iter().sum::<u32>() as usize,
            idler: idler.map(|queue| (queue.queued + queue.in_flight) as usize),
        };
        self.queueing.note_depth(load.in_flight);
        self.queueing.sample(load);
    }

    /// A request of ours ended: thinking begins, and the queue in service may have to wait or go.
    fn account_end(&mut self, rq: &Rq, queue: QueueId, accepted_at: Nanos, now: Nanos) {
        let (group, tree) = (self.queue(queue).group, self.queue(queue));
        let tree = tree.place.map_or(tree.tree(), |(tree, _)| tree);
        if rq.is_sync() {
            let submitter = usize::from(rq.id.submitter().0);
            if let Some(process) = self.processes.get_mut(submitter).and_then(Option::as_mut) {
                process.think.ended(now);
            }
            self.groups[group].trees[tree.index()].think.ended(now);
            if accepted_at + self.knobs.fifo_expire_sync_ns <= now {
                self.last_late_sync_ns = Some(now.0 as i64);
            }
        }
        self.groups[group].think.ended(now);
        if self.active == Some(queue) {
            self.active_ended_one(queue, rq.is_sync(), now);
        }
        self.release(queue);
    }

    fn active_ended_one(&mut self, id: QueueId, sync: bool, now: Nanos) {
        if self.queue(id).slot.started_at.is_none() {
            self.start_slice(id, now);
        }
        if self.should_wait_busy(id, now) {
            let slice_idle = self.knobs.slice_idle_ns;
            let more = if slice_idle > 0 { slice_idle } else { self.knobs.group_idle_ns };
            let slot = &mut self.queue_mut(id).slot;
            slot.ends_at = now + more;
            slot.waits_busy = true;
        }
        let queue = self.queue(id);
        if queue.slot.is_used(now) || queue.is_idle_class() {
            self.expire(true, now);
        } else if sync && queue.is_empty() && self.close_cooperator(id).is_none() {
            self.arm_idle_timer(id, now);
        }
    }

    fn enqueue(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        let queue = self.queue_for(&rq, now);
        if self.joins_staged(&rq, queue, absorbed) {
            return;
        }
        self.add(rq, queue, now);
        self.note_arrival(&rq, queue, now);
        self.react(&rq, queue, now);
    }

    /// Reacts to the arrival of `rq`: preempts the queue in service, or ends its idling.
    fn react(&mut self, rq: &Rq, queue: QueueId, now: Nanos) {
        if self.active != Some(queue) {
            if self.should_preempt(queue, rq, now) {
                self.preempt(queue, now);
            }
            return;
        }
        if self.idle_until.is_none() {
            return;
        }
        if rq.sectors > SMALL_SECTORS || self.busy_queues > 1 {
            self.idle_until = None;
        } else {
            // More may come that merges with it, so the timer runs on; a dispatch may take the
            // request before.
            self.queue_mut(queue).slot.must_dispatch = true;
        }
    }
}

impl Scheduler for Cfq {
    fn name(&self) -> &'static str {
        "cfq"
    }

    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge {
        self.catch_up(now);
        self.merge_bio(bio)
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        self.catch_up(now);
        self.enqueue(rq, now, absorbed);
    }

    fn dispatch(&mut self, _hard_queue: u16, now: Nanos) -> Option<Rq> {
        self.catch_up(now);
        self.dispatch_one(now)
    }

    /// Group by group in the order of their turns, and queue by queue in the order of position.
    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        self.expire(false, now);
        while let Some(queue) = self.first_of_all() {
            self.set_active(queue, now);
            while let Some(tag) = self.queue(queue).next {
                out.push(self.take(tag, now));
            }
            self.expire(false, now);
        }
    }

    fn wants_times(&self) -> bool {
        true
    }

    fn ended(&mut self, end: &Ended, now: Nanos) {
        self.catch_up(now);
        if end.handed_back {
            let (_, queue) = self.take_back(end.tag);
            return self.release(queue);
        }
        self.watch_device();
        let (rq, queue) = self.take_back(end.tag);
        self.account_end(&rq, queue, end.accepted_at, now);
    }

    fn staged(&self) -> usize {
        self.staged
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.idle_until
    }

    fn on_timer(&mut self, now: Nanos) {
        if self.idle_until.is_some_and(|at| at <= now) {
            self.idled_enough(now);
        }
    }

    fn take_kicked(&mut self) -> u64 {
        u64::from(std::mem::take(&mut self.kicked))
    }

    fn may_queue(&self, bio: &Rq) -> MayQueue {
        // Nothing else would end that wait.
        let is_waited_for = bio.is_sync() && self.idles_for() == Some(bio.id.submitter());
        if is_waited_for { MayQueue::Must } else { MayQueue::May }
    }

    fn idles_for(&self) -> Option<SubmitterId> {
        self.active_process.filter(|_| self.idle_until.is_some())
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        assert_eq!(self.staged(), 0, "the depth changes while nothing is staged");
        // Places of requests in flight stay.
        let places = (self.nodes.len() as u16).max(nr_requests);
        self.nodes.resize(usize::from(places), Node::EMPTY);
        self.holders.resize(usize::from(places), Holder::NOBODY);
        self.orders.fill(Order::new(places));
        self.hash = MergeHash::new(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.limits = limits.clone();
        self.nomerges = nomerges;
    }

    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        self.catch_up(now);
        self.process_ended(context, now);
    }

    fn group_weight_changed(&mut self, group: GroupId, weight: u16, _now: Nanos) {
        let at = self.groups.find(group);
        self.groups.set_weight(at, weight);
    }

    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        let [at, above] = [group, parent].map(|id| self.groups.find(id));
        self.groups.set_parent(at, above);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        &mut self.knobs
    }
}

impl Replay for Cfq {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Rq {
        self.catch_up(now);
        let queue = self.holder(tag).queue;
        if self.active != Some(queue) {
            self.expire(true, now);
            self.set_active(queue, now);
            self.workload = Workload::of(self.queue(queue));
        }
        let rq = self.take(tag, now);
        self.end_capped_slice(queue, now);
        rq
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        match side {
            Side::Back => self.append(tag, bio),
            Side::Front => self.prepend(tag, bio),
        }
    }
}
