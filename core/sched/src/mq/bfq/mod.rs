//! `bfq`: budget fair queueing. Source: docs/behaviour/bfq.md.
//!
//! A process has a queue; one queue at a time holds the device, for as many sectors as its budget
//! allows, and is waited for when it has no request, if that is what its share or the throughput
//! needs. Which queue is next is B-WF2Q+'s choice, by weight, at every level of the groups.
//!
//! By file: the tree of entities (`entity`, `forest`, `heap`, `wf2q`), requests of a queue
//! (`queue`, `merging`), which queue a process has (`process`, `group`, `join` with `sharing`,
//! `positions` and `anchor`), the service loop (`insert` with `intake`, `dispatch`, `runs`,
//! `budget`, `idle`), what is learnt (`rate`, `seeks`, `think`), the heuristics (`raise` with
//! `raising`, `inject`, `waker`, `burst`), limits on tags (`limit`).
//!
//! Not here: actuators; a device is taken to have one.

mod anchor;
mod budget;
mod burst;
mod device_time;
mod dispatch;
mod entity;
mod forest;
mod group;
mod heap;
mod idle;
mod inject;
mod insert;
mod intake;
mod join;
mod limit;
mod merging;
mod positions;
mod process;
mod queue;
mod raise;
mod raising;
mod rate;
mod runs;
mod seeks;
mod sharing;
mod state;
#[cfg(test)]
mod tests;
mod think;
mod tunables;
mod waker;
mod wf2q;

use std::collections::BTreeMap;

use weir_bio::{GroupId, Limits, Nanos, Op, Rq, SchedTag, SubmitterId};

use crate::contract::{Absorbed, DepthRule, Ended, Merge, Replay, Scheduler, Setup};
use crate::fair::queueing::QueueingDetector;
use crate::hash::MergeHash;
use crate::merge::Side;
use crate::staged::node::{Node, unstaged};
use crate::staged::order::Order;
use crate::tunable::Tunables;
use crate::{Entry, Family, SLES12};

use burst::Burst;
use device_time::DeviceTime;
use entity::{LevelId, QueueId};
use forest::Forest;
use group::Group;
use idle::WeightCounts;
use inject::Sample;
use positions::Positions;
use process::Context;
use queue::{Handle, Owner, Queue, TagState};
use rate::RateMeter;
use tunables::Settings;

pub use queue::Expiry;
pub use state::{DeviceView, Features, QueueView};
pub use tunables::TUNABLES;

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "bfq",
    family: Family::Multi,
    counterpart: "cfq",
    compat: &["6.18", SLES12],
    levels: &[(SLES12, "no change: all tunables are those of table 12.3")],
    tunables: TUNABLES,
    make: Some(|setup| Box::new(Bfq::new(setup))),
    replay: Some(|setup| Box::new(Bfq::new(setup))),
};

/// Budget fair queueing.
#[derive(Clone)]
pub struct Bfq {
    set: Settings,
    features: Features,
    limits: Limits,
    rotational: bool,
    nomerges: u8,
    nr_requests: u16,

    nodes: Vec<Node>,
    owners: Vec<Owner>,
    hash: MergeHash,
    last_merge: Option<SchedTag>,
    /// Requests in queues.
    staged: usize,
    in_flight: u32,

    forest: Forest,
    groups: Vec<Group>,
    group_levels: BTreeMap<u32, LevelId>,
    queues: Vec<Queue>,
    free_queues: Vec<QueueId>,
    births: u64,
    contexts: Vec<Context>,

    in_service: Option<QueueId>,
    slot_started: Nanos,
    slot_deadline: Nanos,
    device_time: DeviceTime,
    /// The device is kept for the queue in service until then.
    idle_until: Option<Nanos>,
    idle_started: Nanos,
    /// Busy queues by class, and in the order they became busy.
    busy: [u32; 3],
    busy_first: Option<QueueId>,
    busy_last: Option<QueueId>,
    /// Times that a queue became busy.
    turns: u64,
    raised_busy: u32,
    /// Busy queues by the sector of their next request, as of when it was last brought up to date,
    /// and those that may stand elsewhere since.
    by_position: Positions,
    moved: Vec<QueueId>,
    weights: WeightCounts,
    pending_groups: u32,

    max_budget: u64,
    budgets_assigned: u64,
    rate: RateMeter,
    queueing: QueueingDetector,
    sample: Sample,
    burst: Burst,
    last_completed: Option<Handle>,
    last_completion: Nanos,
    last_now: Nanos,
    /// The sector after the last request dispatched.
    last_position: u64,
    in_service_position: u64,
    last_slot: Option<(Expiry, u64, u64)>,
    /// Every hard queue, a bit each; and those that are to ask again.
    hard_queues: u64,
    kicked: u64,
}

impl Bfq {
    /// Empty, for the device described by `setup`, with all heuristics.
    #[must_use]
    pub fn new(setup: &Setup) -> Bfq {
        Bfq::with_features(setup, Features::ALL)
    }

    /// As [`new`](Bfq::new), with the heuristics named.
    #[must_use]
    pub fn with_features(setup: &Setup, features: Features) -> Bfq {
        let rotational = setup.limits.rotational;
        let mut rate = RateMeter::new(rotational);
        rate.enabled = features.peak_rate;
        Bfq {
            set: Settings::new(),
            features,
            limits: setup.limits.clone(),
            rotational,
            nomerges: setup.nomerges,
            nr_requests: setup.nr_requests,
            nodes: unstaged(setup.nr_requests),
            owners: vec![Owner::NOBODY; usize::from(setup.nr_requests)],
            hash: MergeHash::new(setup.nr_requests),
            last_merge: None,
            staged: 0,
            in_flight: 0,
            forest: Forest::new(),
            groups: vec![Group::default()],
            group_levels: BTreeMap::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            births: 0,
            contexts: Vec::new(),
            in_service: None,
            slot_started: Nanos::ZERO,
            slot_deadline: Nanos::ZERO,
            device_time: DeviceTime::default(),
            idle_until: None,
            idle_started: Nanos::ZERO,
            busy: [0; 3],
            busy_first: None,
            busy_last: None,
            turns: 0,
            raised_busy: 0,
            by_position: Positions::default(),
            moved: Vec::new(),
            weights: WeightCounts::default(),
            pending_groups: 0,
            max_budget: budget::DEFAULT_MAX_BUDGET,
            budgets_assigned: 0,
            rate,
            queueing: QueueingDetector::new(idle::QUEUEING),
            sample: Sample::default(),
            burst: Burst::default(),
            last_completed: None,
            last_completion: Nanos::ZERO,
            last_now: Nanos::ZERO,
            last_position: 0,
            in_service_position: 0,
            last_slot: None,
            hard_queues: u64::MAX >> (64 - setup.hard_queues.clamp(1, 64)),
            kicked: 0,
        }
    }

    /// The device may no longer be kept for a queue: every hard queue is to ask.
    fn kick(&mut self) {
        self.kicked = self.hard_queues;
    }
}

impl Scheduler for Bfq {
    fn name(&self) -> &'static str {
        "bfq"
    }

    fn merge(&mut self, bio: &Rq, now: Nanos) -> Merge {
        self.catch_up(now);
        self.merge_bio(bio, now).0
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        self.catch_up(now);
        self.enqueue(&rq, None, now, absorbed);
    }

    fn dispatch(&mut self, _hard_queue: u16, now: Nanos) -> Option<Rq> {
        self.catch_up(now);
        self.pick(now)
    }

    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        self.catch_up(now);
        let mut taken = 0;
        loop {
            taken += self.add_run(&batch[taken..], now);
            let Some(rq) = batch.get(taken) else { break };
            let merge = self.merge_or_insert(rq, now, absorbed);
            taken += 1;
            if merge != Merge::No || !absorbed.is_empty() {
                return (taken, merge);
            }
        }
        (batch.len(), Merge::No)
    }

    fn dispatch_batch(&mut self, _hard_queue: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        if max == 0 {
            return;
        }
        self.catch_up(now);
        let mut left = max;
        while left > 0 {
            let Some(rq) = self.pick(now) else { return };
            out.push(rq);
            left -= 1;
            left -= self.serve_run(left, now, out);
        }
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        let staged = (0..self.nr_requests).map(SchedTag);
        let staged = staged.filter(|tag| self.owner(*tag).state == TagState::Staged);
        let staged: Vec<_> = staged.collect();
        out.extend(staged.into_iter().map(|tag| self.take_out(tag, now)));
    }

    fn ended(&mut self, end: &Ended, now: Nanos) {
        self.catch_up(now);
        self.account_end(end.tag, now);
    }

    fn ended_batch(&mut self, ends: &[Ended], now: Nanos) {
        if !ends.is_empty() {
            self.catch_up(now);
        }
        let mut told = 0;
        while let Some((end, rest)) = ends[told..].split_first() {
            let owner = *self.owner(end.tag);
            self.account_end(end.tag, now);
            told += 1 + self.end_run(owner, rest, now);
        }
    }

    fn staged(&self) -> usize {
        self.staged
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.idle_until
    }

    fn on_timer(&mut self, now: Nanos) {
        self.last_now = now;
        if let Some(due) = self.idle_until
            && due <= now
        {
            self.timer(due);
        }
    }

    fn take_kicked(&mut self) -> u64 {
        std::mem::take(&mut self.kicked)
    }

    fn depth_limit(&self, op: Op, sync: bool, context: SubmitterId) -> Option<u16> {
        self.tag_limit(op, sync, context)
    }

    fn depth_rule(&self, batch: &[Rq], now: Nanos) -> DepthRule {
        self.tag_rule(batch, now)
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        assert_eq!(self.staged(), 0, "the depth changes while nothing is staged");
        self.nr_requests = nr_requests;
        self.nodes = unstaged(nr_requests);
        self.owners.resize(usize::from(nr_requests), Owner::NOBODY);
        self.queues.iter_mut().for_each(|queue| queue.order = Order::new(nr_requests));
        self.hash = MergeHash::new(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.limits = limits.clone();
        self.nomerges = nomerges;
    }

    fn context_ended(&mut self, context: SubmitterId, now: Nanos) {
        self.catch_up(now);
        if usize::from(context.0) < self.contexts.len() {
            self.leave_queue(context, now);
            self.kick();
        }
    }

    fn group_weight_changed(&mut self, group: GroupId, weight: u16, now: Nanos) {
        self.catch_up(now);
        self.weigh_group(group, weight);
    }

    fn group_parent(&mut self, group: GroupId, parent: GroupId) {
        self.place_group(group, parent, self.last_now);
        self.kick();
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        self
    }
}

impl Replay for Bfq {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Rq {
        self.catch_up(now);
        let owner = self.owner(tag);
        assert_eq!(owner.state, TagState::Staged, "tag {} is not staged", tag.0);
        let id = owner.queue;
        self.serve(id, tag, self.charge_of(id, tag), now)
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        match side {
            Side::Back => self.append(tag, bio),
            Side::Front => self.prepend(tag, bio),
        }
        self.grown(tag);
    }
}
