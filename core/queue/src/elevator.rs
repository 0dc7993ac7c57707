//! The elevator: holds the scheduler, the requests it has staged, and its tags.
//!
//! The scheduler works on 32-byte views and tags alone; the claims stay here, a place for each
//! scheduler tag. Callers serialise access: one lock in `sq` mode and in `mq` mode alike.

use std::collections::VecDeque;

use weir_bio::{GroupId, Limits, Nanos, Rq, SchedTag, Status};
use weir_sched::{Absorbed, End, Ended, Merge, Scheduler, Wants};

use crate::request::RequestClaim;

/// A scheduler at work.
pub(crate) struct Elevator {
    scheduler: Box<dyn Scheduler>,
    places: Vec<Place>,
    free: Vec<SchedTag>,
    /// Requests that found no tag, in the order they came; those under a depth limit apart, so
    /// that they cannot block the others.
    waiting: VecDeque<RequestClaim>,
    waiting_limited: VecDeque<RequestClaim>,
    limited: u16,
    absorbed: Absorbed,
    picked: Vec<Rq>,
    last_now: Nanos,
}

#[derive(Default)]
struct Place {
    claim: Option<RequestClaim>,
    limited: bool,
}

/// A request's end, as the elevator needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedTag {
    pub(crate) tag: SchedTag,
    pub(crate) status: Status,
    pub(crate) accepted_at: Nanos,
    pub(crate) issued_at: Nanos,
}

impl Elevator {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>, nr_requests: u16) -> Elevator {
        Elevator {
            scheduler,
            places: (0..nr_requests).map(|_| Place::default()).collect(),
            free: (0..nr_requests).rev().map(SchedTag).collect(),
            waiting: VecDeque::new(),
            waiting_limited: VecDeque::new(),
            limited: 0,
            absorbed: Vec::new(),
            picked: Vec::new(),
            last_now: Nanos::ZERO,
        }
    }

    pub(crate) fn scheduler(&mut self) -> &mut dyn Scheduler {
        self.scheduler.as_mut()
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
        self.places = (0..nr_requests).map(|_| Place::default()).collect();
        self.free = (0..nr_requests).rev().map(SchedTag).collect();
        self.scheduler.depth_changed(nr_requests);
    }

    /// Stamps of two threads may be out of order; a scheduler's time never goes back.
    fn clamp(&mut self, now: Nanos) -> Nanos {
        self.last_now = self.last_now.max(now);
        self.last_now
    }

    /// Tries to merge a bio into a staged request; gives it back if nothing fits.
    pub(crate) fn merge(&mut self, bio: RequestClaim, now: Nanos) -> Option<RequestClaim> {
        let now = self.clamp(now);
        match self.scheduler.merge(&bio.rq, now) {
            Merge::No => return Some(bio),
            Merge::Back(tag) => self.claim(tag).absorb_back(bio),
            Merge::Front(tag) => self.claim(tag).absorb_front(bio),
            Merge::BackJoined { kept, gone } => {
                self.claim(kept).absorb_back(bio);
                self.join(kept, gone, now);
            }
            Merge::FrontJoined { kept, gone } => {
                self.claim(gone).absorb_front(bio);
                self.join(kept, gone, now);
            }
        }
        None
    }

    /// Takes a request in: merges it, or gives it a tag and inserts it, or lets it wait for one.
    pub(crate) fn insert(&mut self, claim: RequestClaim, now: Nanos) {
        let now = self.clamp(now);
        let Some(claim) = self.merge(claim, now) else { return };
        if let Some(claim) = self.admit(claim, now) {
            let limited = self.depth_limit(&claim.rq).is_some();
            if limited { &mut self.waiting_limited } else { &mut self.waiting }.push_back(claim);
        }
    }

    fn depth_limit(&self, rq: &Rq) -> Option<u16> {
        self.scheduler.depth_limit(rq.op, rq.is_sync(), rq.id.submitter())
    }

    /// Gives a request a tag and inserts it; gives it back when there is no tag for it.
    fn admit(&mut self, mut claim: RequestClaim, now: Nanos) -> Option<RequestClaim> {
        let limit = self.depth_limit(&claim.rq);
        if limit.is_some_and(|limit| self.limited >= limit) {
            return Some(claim);
        }
        let Some(tag) = self.free.pop() else { return Some(claim) };
        claim.rq.tag = tag;
        self.limited += u16::from(limit.is_some());
        let rq = claim.rq;
        self.places[usize::from(tag.0)] = Place { claim: Some(claim), limited: limit.is_some() };
        let mut absorbed = std::mem::take(&mut self.absorbed);
        self.scheduler.insert(rq, End::Tail, now, &mut absorbed);
        for (kept, gone) in absorbed.drain(..) {
            self.join(kept, gone, now);
        }
        self.absorbed = absorbed;
        None
    }

    fn claim(&mut self, tag: SchedTag) -> &mut RequestClaim {
        let place = &mut self.places[usize::from(tag.0)];
        place.claim.as_mut().expect("a scheduler names a request it holds")
    }

    fn take_claim(&mut self, tag: SchedTag) -> RequestClaim {
        let place = &mut self.places[usize::from(tag.0)];
        place.claim.take().expect("a scheduler names a request it holds")
    }

    /// `gone` becomes the tail of `kept`; its tag is free at once.
    fn join(&mut self, kept: SchedTag, gone: SchedTag, now: Nanos) {
        let claim = self.take_claim(gone);
        self.claim(kept).absorb_back(claim);
        if self.scheduler.wants() != Wants::Nothing {
            self.scheduler.finish(gone, now);
        }
        self.free_tag(gone);
    }

    fn free_tag(&mut self, tag: SchedTag) {
        let place = &mut self.places[usize::from(tag.0)];
        self.limited -= u16::from(std::mem::take(&mut place.limited));
        self.free.push(tag);
    }

    /// Up to `max` requests for this hard queue, appended to `out`.
    pub(crate) fn pull(
        &mut self,
        hard_queue: u16,
        max: usize,
        now: Nanos,
        out: &mut Vec<RequestClaim>,
    ) {
        let now = self.clamp(now);
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            self.scheduler.on_timer(now);
        }
        let mut picked = std::mem::take(&mut self.picked);
        self.scheduler.dispatch_batch(hard_queue, max, &mut picked, now);
        for rq in picked.drain(..) {
            let mut claim = self.take_claim(rq.tag);
            debug_assert_eq!((claim.rq.sector, claim.rq.sectors), (rq.sector, rq.sectors));
            claim.rq.flags = rq.flags;
            out.push(claim);
        }
        self.picked = picked;
    }

    /// The driver took it.
    pub(crate) fn started(&mut self, tag: SchedTag, now: Nanos) {
        let now = self.clamp(now);
        self.scheduler.started(tag, now);
    }

    /// Requests are gone: tells the scheduler, frees the tags, lets in those that waited.
    pub(crate) fn ended(&mut self, ended: &[EndedTag], now: Nanos) {
        let now = self.clamp(now);
        for end in ended {
            let EndedTag { tag, status, accepted_at, issued_at } = *end;
            let wants = self.scheduler.wants();
            if wants == Wants::Each {
                self.scheduler.completed(&Ended { tag, status, accepted_at, issued_at }, now);
            }
            if wants != Wants::Nothing {
                self.scheduler.finish(tag, now);
            }
            self.free_tag(tag);
        }
        self.let_in(now);
    }

    fn let_in(&mut self, now: Nanos) {
        while !self.free.is_empty() {
            let Some(claim) = self.waiting.pop_front() else { break };
            let Some(claim) = self.merge(claim, now) else { continue };
            if let Some(claim) = self.admit(claim, now) {
                // A limit appeared while it waited.
                self.waiting_limited.push_back(claim);
            }
        }
        while let Some(claim) = self.waiting_limited.pop_front() {
            if let Some(claim) = self.admit(claim, now) {
                self.waiting_limited.push_front(claim);
                return;
            }
        }
    }

    /// Whether a pull could find something, now or later.
    pub(crate) fn has_work(&self, hard_queue: u16) -> bool {
        self.scheduler.has_work(hard_queue)
    }

    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        if self.scheduler.staged() == 0 { None } else { self.scheduler.wake_at() }
    }

    /// Requests staged or waiting for a tag.
    pub(crate) fn len(&self) -> usize {
        self.scheduler.staged() + self.waiting.len() + self.waiting_limited.len()
    }

    /// Whether every tag is free.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.free.len() == self.places.len()
    }

    pub(crate) fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.scheduler.limits_changed(limits, nomerges);
    }
}
