//! The elevator: holds the scheduler, the requests it has staged, and its tags.
//!
//! The scheduler works on 32-byte views and tags alone; the claims stay here, a place for each
//! scheduler tag. The request of a claim is touched only to merge it: it is in the cache of another
//! CPU. Callers serialise access: a lock in `sq` mode, the right in `mq` mode.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Flags, GroupId, Limits, Nanos, Rq, SchedTag, SubmitterId};
use weir_sched::recorder::Cut;
use weir_sched::{Absorbed, DepthRule, Ended, MayQueue, Merge, Scheduler, TunableError};

use super::arrivals::{Arrival, Arrivals, Picked};
use super::magazines::Magazines;
use super::parked::{DepthUse, LimitPlace, Parked};
use crate::event::{Silent, Sink, What, lane_tells};
use crate::request::RequestClaim;
use crate::tape::TapeState;

mod joins;
mod lone;
mod pick;
mod waiting;

/// When to ask a scheduler again that has work, gives none, and names no time.
const ASK_AGAIN_NS: u64 = 3_000_000;

/// A scheduler at work: its staged requests, its tags, and the lanes that want some.
pub(crate) struct Elevator {
    scheduler: Box<dyn Scheduler>,
    /// By scheduler tag: what is staged.
    claims: Vec<Option<RequestClaim>>,
    /// By scheduler tag: the depth limit under which it is held, by its place.
    limits: Vec<LimitPlace>,
    free: Magazines,
    parked: Parked,
    held: DepthUse,
    absorbed: Absorbed,
    refused: Vec<RequestClaim>,
    picked: Vec<Rq>,
    /// Picked for a hard queue that has closed since.
    returned: VecDeque<Picked>,
    last_now: Nanos,
    /// Requests that were pulled and have not ended.
    flying: usize,
    /// The hard queue of each context, as the scheduler was told it.
    homes: Vec<u16>,
    lanes: Lanes,
    /// The scheduler is worn by a recorder, which has this.
    recorded: Option<Arc<TapeState>>,
}

/// The state of the hard queues that ask, a bit each.
#[derive(Default)]
struct Lanes {
    /// They are there to be asked for.
    open: u64,
    /// They had work at their last pass and were given less than they had room for.
    denied: u64,
    /// They had room left at their last pass: they come by themselves only when something of their
    /// own happens.
    sated: u64,
    /// They have a reason to ask, and are to be told.
    kicked: u64,
    /// The lane that comes back for the scheduler's time, and when.
    timer: Option<(u16, Nanos)>,
    /// The last request under way has ended, and no pass has looked at what that means.
    at_rest: bool,
}

/// The outcome of a lane's pass.
pub(crate) struct Pass {
    /// Lanes to be told that they should ask, a bit each.
    pub(crate) kicked: u64,
    /// The lane could not take all there may be: it is to ask again when it has room.
    pub(crate) again: bool,
    /// Requests that came out, for whichever lane.
    pub(crate) given: usize,
}

/// A request waits at its tag's place.
#[inline]
fn put(claims: &mut [Option<RequestClaim>], tag: SchedTag, claim: RequestClaim) {
    let before = claims[usize::from(tag.0)].replace(claim);
    // The request that was there would never be answered.
    assert!(before.is_none(), "scheduler tag {} is in use", tag.0);
}

/// The ways of picked requests to hard queues.
pub(crate) trait Outlets {
    /// Sends it to its own hard queue, or else to `lane`, which has room; true in that case, or if
    /// they are the same.
    fn send(&mut self, lane: u16, picked: Picked) -> bool;
}

impl Elevator {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>, nr_requests: u16) -> Elevator {
        Elevator {
            scheduler,
            claims: (0..nr_requests).map(|_| None).collect(),
            limits: vec![LimitPlace::FREE; usize::from(nr_requests)],
            free: Magazines::new(nr_requests),
            parked: Parked::default(),
            held: DepthUse::default(),
            refused: Vec::new(),
            absorbed: Vec::new(),
            picked: Vec::new(),
            returned: VecDeque::new(),
            last_now: Nanos::ZERO,
            flying: 0,
            homes: Vec::new(),
            lanes: Lanes::default(),
            recorded: None,
        }
    }

    /// The same, whose scheduler is worn by a recorder.
    pub(crate) fn recorded(self, state: &Arc<TapeState>) -> Elevator {
        Elevator { recorded: Some(Arc::clone(state)), ..self }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Takes the scheduler out of this recorder, if it is in it.
    pub(crate) fn unrecord(&mut self, state: &Arc<TapeState>) {
        if self.recorded.take_if(|recorded| Arc::ptr_eq(recorded, state)).is_some()
            && let Some(scheduler) = self.scheduler.take_inner()
        {
            self.scheduler = scheduler;
        }
    }

    /// Sets a tunable from text; a recording does not go on beyond that.
    pub(crate) fn set_tunable(&mut self, name: &str, text: &str) -> Result<(), TunableError> {
        self.scheduler.tunables().set(name, text)?;
        if let Some(recorded) = &self.recorded {
            recorded.cut(Cut::Tunable);
        }
        Ok(())
    }

    pub(crate) fn scheduler(&mut self) -> &mut dyn Scheduler {
        self.scheduler.as_mut()
    }

    /// Whether the times of what has ended make a difference to it.
    pub(crate) fn wants_times(&self) -> bool {
        self.scheduler.wants_times()
    }

    /// Where a group stands, if that is new, and what it weighs from now on.
    pub(crate) fn group_changed(&mut self, group: GroupId, parent: Option<GroupId>, weight: u16) {
        if let Some(parent) = parent {
            self.scheduler.group_parent(group, parent);
        }
        self.scheduler.group_weight_changed(group, weight, self.last_now);
    }

    /// Another number of tags, while all are free.
    pub(crate) fn resize(&mut self, nr_requests: u16) {
        assert!(self.is_idle(), "the number of tags changes while there are requests");
        self.claims = (0..nr_requests).map(|_| None).collect();
        self.limits = vec![LimitPlace::FREE; usize::from(nr_requests)];
        self.free = Magazines::new(nr_requests);
        self.scheduler.depth_changed(nr_requests);
    }

    /// Stamps of two threads may be out of order; a scheduler's time never goes back.
    pub(crate) fn clamp(&mut self, now: Nanos) -> Nanos {
        self.last_now = self.last_now.max(now);
        self.last_now
    }

    /// Requests of this context belong to this hard queue.
    #[inline]
    pub(crate) fn bind(&mut self, context: SubmitterId, lane: u16) {
        if self.homes.get(usize::from(context.0)) != Some(&lane) {
            self.bind_new(context, lane);
        }
    }

    #[cold]
    fn bind_new(&mut self, context: SubmitterId, lane: u16) {
        let index = usize::from(context.0);
        if self.homes.len() <= index {
            // No lane has this number, so each is told of before its first request.
            self.homes.resize(index + 1, u16::MAX);
        }
        self.homes[index] = lane;
        self.scheduler.context_started(context, lane);
    }

    /// This context sends nothing more; its number may be given to another. The lanes that may
    /// have a reason to ask, a bit each.
    pub(crate) fn context_ended(&mut self, context: SubmitterId) -> u64 {
        if let Some(home) = self.homes.get_mut(usize::from(context.0)) {
            *home = u16::MAX;
        }
        self.scheduler.context_ended(context, self.last_now);
        // The request for which the scheduler kept the device comes no more.
        self.take_kicked() | std::mem::take(&mut self.lanes.denied)
    }

    /// Takes in the requests of a hard queue, in order: merges each, or inserts it, or lets it wait
    /// for a tag. A request without a tag that may not wait is left in `arrivals`.
    pub(crate) fn insert_all(
        &mut self,
        lane: u16,
        arrivals: &mut Arrivals,
        now: Nanos,
        sink: impl Sink,
    ) {
        let now = self.clamp(now);
        if let Some(rule) = self.rule_of(&arrivals.rqs, now) {
            return self.stage(lane, arrivals, rule, now, sink);
        }
        let mut refused = std::mem::take(&mut self.refused);
        refused.extend(arrivals.claims().filter_map(|claim| self.insert(lane, claim, now, sink)));
        refused.drain(..).for_each(|claim| arrivals.push(Arrival::of(claim)));
        self.refused = refused;
    }

    /// Lets these wait for a tag.
    pub(crate) fn park(&mut self, arrivals: &mut Arrivals, sink: impl Sink) {
        let free = self.free.len() as u16;
        arrivals.claims().for_each(|claim| {
            let limit = None;
            lane_tells(sink, 0, self.last_now, || What::Parked { rq: claim.rq, limit, free });
            self.parked.push(claim);
        });
    }

    /// The depth limits of these, if none of them can have to wait for a tag.
    fn rule_of(&self, rqs: &[Rq], now: Nanos) -> Option<DepthRule> {
        if !self.parked.is_empty() {
            return None;
        }
        let rule = self.scheduler.depth_rule(rqs, now);
        // As if all of them were limited: to find out mostly costs more than it saves.
        let fits = match rule {
            DepthRule::Each => return None,
            DepthRule::Free => true,
            DepthRule::Writes(limit) | DepthRule::Async(limit) => self.has_room(limit, rqs.len()),
            DepthRule::Kinds { asyncs, sync_writes } => {
                let limits = rqs.iter().filter_map(|rq| rule.limit_of(rq));
                let kinds = [asyncs, sync_writes];
                kinds.iter().all(|kind| self.has_room(*kind, rqs.len()))
                    || self.held.admits_each(kinds, limits)
            }
        };
        (fits && rqs.len() <= self.free.len()).then_some(rule)
    }

    /// Whether so many requests under this limit may have tags.
    fn has_room(&self, limit: u16, requests: usize) -> bool {
        requests <= usize::from(self.held.left(limit))
    }

    /// Gives each a tag and all to the scheduler, in one call for those that stay what they are.
    fn stage<S: Sink>(
        &mut self,
        lane: u16,
        arrivals: &mut Arrivals,
        rule: DepthRule,
        now: Nanos,
        sink: S,
    ) {
        let Arrivals { rqs, claims } = arrivals;
        self.free.take_each(lane, rqs.iter_mut().map(|rq| &mut rq.tag));
        for (claim, rq) in claims.drain(..).zip(rqs.iter()) {
            put(&mut self.claims, rq.tag, claim);
        }
        if rule != DepthRule::Free {
            let places = self.held.places(rule.limits());
            rqs.iter().for_each(|rq| self.hold(rq.tag, places[DepthRule::kind(rq)]));
        }
        if S::LISTENS {
            for rq in rqs.iter() {
                lane_tells(sink, lane, now, || What::Inserted { rq: *rq, tag: rq.tag });
            }
        }
        let mut rest = rqs.as_slice();
        while !rest.is_empty() {
            let (taken, merge) = self.scheduler.stage_batch(rest, now, &mut self.absorbed);
            if merge != Merge::No {
                self.merge_staged(rest[taken - 1].tag, merge, lane, now, sink);
            }
            self.join_absorbed(now, lane, sink);
            rest = &rest[taken..];
        }
        rqs.clear();
    }

    /// Takes a request in: merges it, or gives it a tag and inserts it, or lets it wait for one,
    /// or gives it back if it may not wait.
    fn insert(
        &mut self,
        lane: u16,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        let claim = self.merge(claim, now, lane, sink)?;
        let like = self.parked.has_like(&claim.rq);
        let claim = if like { claim } else { self.admit(lane, claim, now, sink)? };
        // A merged one has the flag only if none of its bios may wait.
        if claim.rq.flags.has(Flags::NOWAIT) {
            return Some(claim);
        }
        lane_tells(sink, lane, now, || {
            let (limit, free) = (self.depth_limit(&claim.rq), self.free.len() as u16);
            What::Parked { rq: claim.rq, limit, free }
        });
        self.parked.push(claim);
        None
    }

    /// What the scheduler says of a request more on the single-queue path.
    pub(crate) fn may_queue(&self, bio: &Rq) -> MayQueue {
        self.scheduler.may_queue(bio)
    }

    /// The submitter for whose next request the scheduler keeps the device idle.
    pub(crate) fn idles_for(&self) -> Option<SubmitterId> {
        self.scheduler.idles_for()
    }

    fn depth_limit(&self, rq: &Rq) -> Option<u16> {
        self.scheduler.depth_limit(rq.op, rq.is_sync(), rq.id.submitter())
    }

    /// Gives a request a tag and inserts it; gives it back when there is no tag for it.
    fn admit(
        &mut self,
        lane: u16,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        let limit = self.depth_limit(&claim.rq);
        if limit.is_some_and(|limit| !self.held.admits(limit)) {
            return Some(claim);
        }
        let Some(tag) = self.free.take(lane) else { return Some(claim) };
        let [place] = self.held.places([limit]);
        self.hold(tag, place);
        let rq = Rq { tag, ..claim.rq };
        lane_tells(sink, lane, now, || What::Inserted { rq, tag });
        put(&mut self.claims, tag, claim);
        self.scheduler.insert(rq, now, &mut self.absorbed);
        self.join_absorbed(now, lane, sink);
        None
    }

    fn claim(&mut self, tag: SchedTag) -> &mut RequestClaim {
        let claim = &mut self.claims[usize::from(tag.0)];
        claim.as_mut().expect("a scheduler names a request it holds")
    }

    #[inline]
    fn take_claim(&mut self, tag: SchedTag) -> RequestClaim {
        let claim = &mut self.claims[usize::from(tag.0)];
        claim.take().expect("a scheduler names a request it holds")
    }

    /// A tag is out under the depth limit at this place.
    #[inline]
    fn hold(&mut self, tag: SchedTag, limit: LimitPlace) {
        self.held.add(limit);
        self.limits[usize::from(tag.0)] = limit;
    }

    /// It is no more, if it was.
    #[inline]
    fn release(&mut self, tag: SchedTag) {
        let limit = std::mem::replace(&mut self.limits[usize::from(tag.0)], LimitPlace::FREE);
        self.held.remove(limit);
    }

    /// The hard queue of a context, as the scheduler was told it; 0, the single queue's, if it was
    /// not.
    #[inline]
    fn home_of(&self, context: SubmitterId) -> u16 {
        self.homes.get(usize::from(context.0)).copied().unwrap_or(0)
    }

    fn free_tag(&mut self, tag: SchedTag, lane: u16) {
        self.release(tag);
        self.free.give(tag, lane);
    }

    /// A lane's pass: up to `room` requests come out, and each goes to its own hard queue if that
    /// takes it, else to this one, but `most` in all. Without room to name, the lane is paused:
    /// nothing comes out.
    /// `due` says that a time has come that a pass named.
    pub(crate) fn pass(
        &mut self,
        lane: u16,
        (room, most): (Option<usize>, usize),
        due: bool,
        now: Nanos,
        out: &mut impl Outlets,
        sink: impl Sink,
    ) -> Pass {
        let now = self.clamp(now);
        let own = 1 << lane;
        self.lanes.open |= own;
        let Some(room) = room else {
            return Pass { kicked: self.take_kicked() & !own, again: true, given: 0 };
        };
        let fired = self.fire(now);
        // The lane that asks now need not be told to.
        let kicked = self.take_kicked() & !own;
        let (exhausted, given) = self.pull_for(lane, room, most, now, out, sink);
        let denied = exhausted && self.has_work(lane);
        self.lanes.denied = if denied { self.lanes.denied | own } else { self.lanes.denied & !own };
        // Others were refused for a reason that time, or the end of the last request, has taken
        // away; and nothing else will make them ask.
        let idle = std::mem::take(&mut self.lanes.at_rest) && self.flying == 0;
        let surplus = !exhausted && self.has_work(lane);
        if idle || due || fired && !exhausted {
            self.lanes.kicked |= self.lanes.denied & !own;
            self.lanes.denied &= own;
        }
        self.lanes.sated = if exhausted { self.lanes.sated | own } else { self.lanes.sated & !own };
        if surplus {
            self.offer_surplus(own, room.min(most) > 0);
        }
        let kicked = kicked | self.take_kicked();
        Pass { kicked, again: surplus, given }
    }

    /// A lane has no room for all there is. One that had room left does not know of it; and one
    /// that was refused may get something now if the scheduler has just given something. (If it was
    /// not asked, its reason to refuse stands, and two lanes would wake each other for ever.)
    fn offer_surplus(&mut self, own: u64, gave: bool) {
        let Lanes { open, denied, sated, kicked, .. } = &mut self.lanes;
        let others = *open & !own;
        // One at a time: it takes what it has room for, and offers the rest in turn.
        let idle = *sated & others & !*denied;
        let first = idle & idle.wrapping_neg();
        *kicked |= first;
        if gave {
            *kicked |= *denied & others;
            *denied &= own;
        }
        *sated &= !first;
    }

    pub(crate) fn has_work(&self, lane: u16) -> bool {
        !self.returned.is_empty() || self.scheduler.has_work(lane)
    }

    /// The lanes to be told. If one of them is not open, a lane that was refused may have use for
    /// what it was to be told of.
    fn take_kicked(&mut self) -> u64 {
        let Lanes { open, denied, kicked, .. } = &mut self.lanes;
        let kicked = std::mem::take(kicked) | self.scheduler.take_kicked();
        if kicked & !*open == 0 { kicked } else { kicked | std::mem::take(denied) }
    }

    /// When this lane comes back: for the scheduler's time, unless another does earlier; or because
    /// some lane was refused and nothing is under way whose end could change that.
    pub(crate) fn wake_for(&mut self, lane: u16, now: Nanos) -> Option<Nanos> {
        let now = self.clamp(now);
        let at = self.wake_at(now);
        let timer = &mut self.lanes.timer;
        if timer.is_some_and(|(owner, _)| owner == lane) {
            *timer = None;
        }
        match at {
            Some(at) if timer.is_none_or(|(_, other)| at < other) => {
                *timer = Some((lane, at));
                Some(at)
            }
            Some(_) => None,
            None => (self.lanes.denied != 0 && self.flying == 0).then_some(now + ASK_AGAIN_NS),
        }
    }

    /// This lane comes back for no time it was told: another does, or is told anew.
    pub(crate) fn forget_timer(&mut self, lane: u16) {
        let timer = &mut self.lanes.timer;
        *timer = timer.filter(|(owner, _)| *owner != lane);
    }

    /// These were picked for a lane that is closing.
    pub(crate) fn take_back(&mut self, picked: Picked) {
        self.returned.push_back(picked);
    }

    /// The scheduler may have changed its mind: lets in whom it can. The lanes that are to ask, a
    /// bit each.
    pub(crate) fn look_again(&mut self) -> u64 {
        self.let_in(self.last_now, 0, Silent);
        self.take_kicked() | self.lanes.open
    }

    /// This lane asks no more. The lanes that take over what it was to see to, a bit each.
    pub(crate) fn closed(&mut self, lane: u16) -> u64 {
        self.forget_timer(lane);
        let Lanes { open, denied, sated, .. } = &mut self.lanes;
        *open &= !(1 << lane);
        *denied &= !(1 << lane);
        *sated &= !(1 << lane);
        *open
    }

    /// Turns the scheduler's timer, if it is time.
    pub(crate) fn fire(&mut self, now: Nanos) -> bool {
        let now = self.clamp(now);
        let due = self.scheduler.wake_at().is_some_and(|at| at <= now);
        if due {
            self.scheduler.on_timer(now);
        }
        due
    }

    /// Requests of this lane are gone: tells the scheduler, frees the tags, lets in those that
    /// waited.
    pub(crate) fn ended(&mut self, lane: u16, ended: &[Ended], now: Nanos, sink: impl Sink) {
        let now = self.clamp(now);
        self.flying -= ended.len();
        self.lanes.at_rest |= !ended.is_empty() && self.flying == 0;
        self.scheduler.ended_batch(ended, now);
        if self.held.is_any() {
            ended.iter().for_each(|end| self.release(end.tag));
        }
        self.free.give_each(lane, ended.iter().map(|end| end.tag));
        if !self.parked.is_empty() {
            self.let_in(now, lane, sink);
        }
    }

    /// When the scheduler wants to be asked again although nothing happens: later than now.
    pub(crate) fn wake_at(&self, now: Nanos) -> Option<Nanos> {
        let at = self.scheduler.wake_at()?;
        Some(if at > now { at } else { now + ASK_AGAIN_NS })
    }

    /// Requests staged or waiting for a tag.
    pub(crate) fn len(&self) -> usize {
        self.scheduler.staged() + self.parked.len() + self.returned.len()
    }

    /// Whether every tag is free.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.flying == 0 && self.free.len() == self.claims.len()
    }

    pub(crate) fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.scheduler.limits_changed(limits, nomerges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Bio, Buf, RqId};
    use weir_ring::Claim;
    use weir_sched::Setup;
    use weir_sched::mq::deadline::MqDeadline;

    use crate::request::{FlushStep, Request};

    fn hand_in_a_read(elevator: &mut Elevator, n: u16) {
        let mut claim = Claim::new(Request::free(RqId::new(SubmitterId(0), n, 0)));
        let mut bio = Bio::read(u64::from(n) * 64, Buf::zeroed(4096));
        claim.fill(&mut bio, FlushStep::DATA, Nanos::ZERO);
        let mut arrivals = Arrivals::default();
        arrivals.push(Arrival::of(claim));
        elevator.insert_all(0, &mut arrivals, Nanos::ZERO, Silent);
    }

    #[test]
    #[should_panic(expected = "scheduler tag 0 is in use")]
    fn a_tag_that_is_freed_while_its_request_is_staged_takes_no_other_request() {
        let limits = Limits { capacity: 1 << 20, ..Limits::default() };
        let setup = Setup { limits, nr_requests: 4, hard_queues: 1, nomerges: 0, compat: "" };
        let mut elevator = Elevator::new(Box::new(MqDeadline::new(&setup)), 4);
        hand_in_a_read(&mut elevator, 1);
        // As an end would that came twice, or named another request.
        elevator.free.give(SchedTag(0), 0);
        hand_in_a_read(&mut elevator, 2);
    }
}
