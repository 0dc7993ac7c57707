//! The engine's side of the contract, kept pedantically: scheduler tags, what is staged under
//! each, what is in flight. It calls the scheduler as the live engine does, and panics as soon as
//! an answer is not what the contract allows.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use weir_bio::{Flags, Nanos, Rq, SchedTag, Status, SubmitterId};
use weir_sched::merge::{Fit, Side, fit};
use weir_sched::{Absorbed, Ended, Entry, Merge, Replay, Scheduler, Setup};

/// Schedulers that leave a device idle while something is staged, because better is to come.
const IDLING: [&str; 2] = ["bfq", "cfq"];

/// The number of a bio, given by its client.
pub type Bio = u64;

/// Where an offered bio went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Into this staged request (which may have been joined to another since).
    Merged(SchedTag),
    /// It is a request of its own, or was absorbed while it became one.
    Inserted(SchedTag),
    /// No tag for it: it waits and goes in when one is free.
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Staged,
    InFlight,
}

#[derive(Clone, Debug)]
struct Place {
    state: State,
    rq: Rq,
    bios: Vec<Bio>,
    limited: bool,
    accepted_at: Nanos,
    issued_at: Nanos,
}

/// A request that left for the device.
#[derive(Clone, Debug)]
pub struct Issued {
    /// As the scheduler gave it.
    pub rq: Rq,
    /// The bios in it, in the order of their sectors.
    pub bios: Vec<Bio>,
}

/// A scheduler and the books about it.
pub struct Ledger {
    scheduler: Subject,
    setup: Setup,
    places: Vec<Place>,
    free: Vec<SchedTag>,
    waiting: VecDeque<(Rq, Bio, Nanos)>,
    waiting_limited: VecDeque<(Rq, Bio, Nanos)>,
    limited: u16,
    staged: usize,
    in_flight: usize,
    /// Hard queues that have a reason to ask, a bit each.
    pending: u64,
    /// By context: its hard queue, and whether the scheduler was told.
    homes: Vec<(u16, bool)>,
    now: Nanos,
}

/// A scheduler under test.
pub enum Subject {
    /// It can be copied, and led along a recording.
    Replayed(Box<dyn Replay>),
    Plain(Box<dyn Scheduler>),
}

impl Subject {
    /// The scheduler of an entry.
    pub fn new(entry: &Entry, setup: &Setup) -> Subject {
        match (entry.replay, entry.make) {
            (Some(replay), _) => Subject::Replayed(replay(setup)),
            (None, Some(make)) => Subject::Plain(make(setup)),
            (None, None) => panic!("{} is made of nothing", entry.name),
        }
    }

    fn copy(&self) -> Option<Box<dyn Replay>> {
        match self {
            Subject::Replayed(scheduler) => Some(scheduler.boxed_clone()),
            Subject::Plain(_) => None,
        }
    }
}

impl Deref for Subject {
    type Target = dyn Scheduler;

    fn deref(&self) -> &(dyn Scheduler + 'static) {
        match self {
            Subject::Replayed(scheduler) => &**scheduler,
            Subject::Plain(scheduler) => &**scheduler,
        }
    }
}

impl DerefMut for Subject {
    fn deref_mut(&mut self) -> &mut (dyn Scheduler + 'static) {
        match self {
            Subject::Replayed(scheduler) => &mut **scheduler,
            Subject::Plain(scheduler) => &mut **scheduler,
        }
    }
}

impl Clone for Ledger {
    fn clone(&self) -> Ledger {
        Ledger {
            scheduler: Subject::Replayed(self.scheduler.copy().expect("it can be copied")),
            setup: self.setup.clone(),
            places: self.places.clone(),
            free: self.free.clone(),
            waiting: self.waiting.clone(),
            waiting_limited: self.waiting_limited.clone(),
            homes: self.homes.clone(),
            ..*self
        }
    }
}

impl Ledger {
    /// Nothing staged, every tag free.
    pub fn new(scheduler: Subject, setup: Setup) -> Ledger {
        let mut ledger = Ledger {
            scheduler,
            places: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            waiting_limited: VecDeque::new(),
            limited: 0,
            staged: 0,
            in_flight: 0,
            pending: 0,
            homes: Vec::new(),
            now: Nanos::ZERO,
            setup,
        };
        ledger.make_places();
        ledger
    }

    fn make_places(&mut self) {
        let nothing = Place {
            state: State::Free,
            rq: request(SchedTag::NONE),
            bios: Vec::new(),
            limited: false,
            accepted_at: Nanos::ZERO,
            issued_at: Nanos::ZERO,
        };
        self.places = vec![nothing; usize::from(self.setup.nr_requests)];
        self.free = (0..self.setup.nr_requests).rev().map(SchedTag).collect();
    }

    /// The scheduler, to read.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.scheduler
    }

    /// The scheduler's state once more, if it can be replayed.
    pub fn copy(&self) -> Option<Box<dyn Replay>> {
        self.scheduler.copy()
    }

    /// The scheduler, for control calls (tunables, weights, ends of contexts).
    pub fn scheduler_mut(&mut self) -> &mut dyn Scheduler {
        &mut *self.scheduler
    }

    /// The setup of the scheduler, with the changes since.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Requests staged.
    pub fn staged(&self) -> usize {
        self.staged
    }

    /// Requests issued and not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bios that wait for a tag.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.waiting_limited.len()
    }

    /// Tags of what is staged.
    pub fn staged_tags(&self) -> Vec<SchedTag> {
        self.tags(State::Staged)
    }

    /// Tags of what is in flight.
    pub fn in_flight_tags(&self) -> Vec<SchedTag> {
        self.tags(State::InFlight)
    }

    /// Tags that are free, the next one first.
    pub fn free_tags(&self) -> Vec<SchedTag> {
        self.free.iter().rev().copied().collect()
    }

    fn tags(&self, state: State) -> Vec<SchedTag> {
        let places = self.places.iter().enumerate();
        places.filter(|(_, p)| p.state == state).map(|(tag, _)| SchedTag(tag as u16)).collect()
    }

    /// The request under a tag.
    pub fn rq(&self, tag: SchedTag) -> &Rq {
        &self.place(tag).rq
    }

    /// When the request under a tag (or its oldest part) was accepted.
    pub fn accepted_at(&self, tag: SchedTag) -> Nanos {
        self.place(tag).accepted_at
    }

    /// Whether anything a context sent is staged, in flight or waiting.
    pub fn has_any_of(&self, context: SubmitterId) -> bool {
        let mut places = self.places.iter().filter(|place| place.state != State::Free);
        let waits = |(rq, ..): &(Rq, Bio, Nanos)| rq.id.submitter() == context;
        places.any(|place| place.rq.id.submitter() == context)
            || self.waiting.iter().chain(&self.waiting_limited).any(waits)
    }

    fn place(&self, tag: SchedTag) -> &Place {
        &self.places[usize::from(tag.0)]
    }

    fn place_mut(&mut self, tag: SchedTag) -> &mut Place {
        &mut self.places[usize::from(tag.0)]
    }

    fn staged_place(&mut self, tag: SchedTag) -> &mut Place {
        let name = self.scheduler.name();
        let known = usize::from(tag.0) < self.places.len();
        assert!(known, "{name} names tag {} of {}", tag.0, self.places.len());
        let place = self.place_mut(tag);
        assert_eq!(place.state, State::Staged, "{name} names {tag:?}, which is not staged");
        place
    }

    fn moves_on(&mut self, now: Nanos) {
        assert!(now >= self.now, "time goes back from {:?} to {now:?}", self.now);
        self.now = now;
    }

    /// From now on what this context sends belongs to this hard queue; the scheduler is told with
    /// its next bio.
    pub fn home(&mut self, context: SubmitterId, hard_queue: u16) {
        let index = usize::from(context.0);
        if self.homes.len() <= index {
            self.homes.resize(index + 1, (0, true));
        }
        self.homes[index] = (hard_queue, false);
    }

    /// A context is gone.
    pub fn ended(&mut self, context: SubmitterId, now: Nanos) {
        self.scheduler.context_ended(context, now);
    }

    /// The hard queue of what a context sends.
    fn queue_of(&mut self, context: SubmitterId) -> u16 {
        let Some((hard_queue, told)) = self.homes.get_mut(usize::from(context.0)) else { return 0 };
        if !std::mem::replace(told, true) {
            self.scheduler.context_started(context, *hard_queue);
        }
        *hard_queue
    }

    fn must_ask(&mut self, context: SubmitterId) {
        let hard_queue = self.queue_of(context);
        self.pending |= 1 << hard_queue;
    }

    /// Hard queues that have a reason to ask: something of theirs came or ended, a timer fired,
    /// they were kicked; and that have not been answered `None` since.
    pub fn pending(&mut self) -> Vec<u16> {
        self.pending |= self.scheduler.take_kicked();
        (0..self.setup.hard_queues).filter(|queue| self.pending >> queue & 1 == 1).collect()
    }

    /// Offers a bio: merged, or inserted at the tail, or made to wait for a tag.
    pub fn offer(&mut self, bio: &Rq, number: Bio, now: Nanos) -> Offered {
        self.moves_on(now);
        let bio = Rq { tag: SchedTag::NONE, ..*bio };
        if let Some(tag) = self.merge(&bio, number, now) {
            return Offered::Merged(tag);
        }
        match self.admit(bio, number, now) {
            Some(tag) => Offered::Inserted(tag),
            None => {
                let limited = self.limit_of(&bio).is_some();
                if limited { &mut self.waiting_limited } else { &mut self.waiting }
                    .push_back((bio, number, now));
                Offered::Waits
            }
        }
    }

    fn merge(&mut self, bio: &Rq, number: Bio, now: Nanos) -> Option<SchedTag> {
        self.must_ask(bio.id.submitter());
        let into = match self.scheduler.merge(bio, now) {
            Merge::No => None,
            Merge::Back(tag) => {
                self.join_bio(tag, bio, number, Side::Back);
                Some(tag)
            }
            Merge::Front(tag) => {
                self.join_bio(tag, bio, number, Side::Front);
                Some(tag)
            }
            Merge::BackJoined { kept, gone } => {
                self.join_bio(kept, bio, number, Side::Back);
                self.join(kept, gone);
                Some(kept)
            }
            Merge::FrontJoined { kept, gone } => {
                self.join_bio(gone, bio, number, Side::Front);
                self.join(kept, gone);
                Some(kept)
            }
        };
        self.agrees();
        into
    }

    fn join_bio(&mut self, tag: SchedTag, bio: &Rq, number: Bio, side: Side) {
        let limits = self.setup.limits.clone();
        let place = self.staged_place(tag);
        let fits = fit(&place.rq, bio, &limits);
        assert_eq!(fits, Fit::Joins(side), "{bio:?} was joined to {:?}", place.rq);
        place.rq.take_in(bio);
        match side {
            Side::Back => place.bios.push(number),
            Side::Front => place.bios.insert(0, number),
        }
    }

    fn join(&mut self, kept: SchedTag, gone: SchedTag) {
        assert_ne!(kept, gone, "a request was joined to itself");
        let limits = self.setup.limits.clone();
        let end = self.staged_place(gone).clone();
        let place = self.staged_place(kept);
        let fits = fit(&place.rq, &end.rq, &limits);
        assert_eq!(fits, Fit::Joins(Side::Back), "{:?} was joined to {:?}", end.rq, place.rq);
        place.rq.take_in(&end.rq);
        place.bios.extend(end.bios);
        place.accepted_at = place.accepted_at.min(end.accepted_at);
        self.staged -= 1;
        self.release(gone);
    }

    /// Takes a tag back.
    fn release(&mut self, tag: SchedTag) {
        let place = self.place_mut(tag);
        place.state = State::Free;
        place.bios.clear();
        let limited = std::mem::take(&mut place.limited);
        self.limited -= u16::from(limited);
        self.free.push(tag);
    }

    fn limit_of(&self, rq: &Rq) -> Option<u16> {
        self.scheduler.depth_limit(rq.op, rq.is_sync(), rq.id.submitter())
    }

    /// Gives a request a tag and inserts it; `None` when there is no tag for it.
    pub fn admit(&mut self, rq: Rq, number: Bio, now: Nanos) -> Option<SchedTag> {
        self.moves_on(now);
        let limit = self.limit_of(&rq);
        if limit.is_some_and(|limit| self.limited >= limit) {
            return None;
        }
        let tag = self.free.pop()?;
        let limited = limit.is_some();
        self.limited += u16::from(limited);
        let rq = Rq { tag, ..rq };
        let bios = vec![number];
        let state = State::Staged;
        let issued_at = Nanos::ZERO;
        *self.place_mut(tag) = Place { state, rq, bios, limited, accepted_at: now, issued_at };
        self.staged += 1;
        self.insert(rq, now);
        Some(tag)
    }

    fn insert(&mut self, rq: Rq, now: Nanos) {
        self.must_ask(rq.id.submitter());
        let mut absorbed = Absorbed::new();
        self.scheduler.insert(rq, now, &mut absorbed);
        for (kept, gone) in absorbed {
            self.join(kept, gone);
        }
        self.agrees();
    }

    /// One opportunity of a hard queue.
    pub fn dispatch(&mut self, hard_queue: u16, now: Nanos) -> Option<Issued> {
        self.moves_on(now);
        self.pending |= self.scheduler.take_kicked();
        let rq = self.scheduler.dispatch(hard_queue, now);
        if rq.is_none() {
            self.pending &= !(1 << hard_queue);
        }
        let issued = rq.map(|rq| self.issue(rq, now));
        self.agrees();
        issued
    }

    /// Takes a staged request out, whatever the scheduler would choose, if it can be led so.
    pub fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Option<Issued> {
        self.moves_on(now);
        let Subject::Replayed(scheduler) = &mut self.scheduler else { return None };
        let rq = scheduler.take_out(tag, now);
        assert_eq!(rq.tag, tag, "another request was taken out");
        let issued = self.issue(rq, now);
        self.agrees();
        Some(issued)
    }

    /// Takes everything out, whatever the scheduler would keep back.
    pub fn drain(&mut self, now: Nanos) -> Vec<Issued> {
        self.moves_on(now);
        let mut out = Vec::new();
        self.scheduler.drain(&mut out, now);
        let issued = out.into_iter().map(|rq| self.issue(rq, now)).collect();
        self.agrees();
        assert_eq!(self.staged, 0, "{} keeps something", self.scheduler.name());
        issued
    }

    fn issue(&mut self, rq: Rq, now: Nanos) -> Issued {
        let place = self.staged_place(rq.tag);
        let same = Rq { flags: rq.flags, ..place.rq };
        assert_eq!(rq, same, "what is dispatched is not what was staged");
        let lost = place.rq.flags.without(rq.flags);
        assert_eq!(lost, Flags::NONE, "flags were lost on the way");
        let kept = rq.flags.without(place.rq.flags);
        assert!(!kept.any(Flags::OF_ALL), "{kept:?}: not every bio in it has these");
        place.rq = rq;
        place.state = State::InFlight;
        place.issued_at = now;
        let bios = place.bios.clone();
        self.staged -= 1;
        self.in_flight += 1;
        Issued { rq, bios }
    }

    /// The device ended a request: its bios. Those that waited for a tag are let in.
    pub fn completed(&mut self, tag: SchedTag, status: Status, now: Nanos) -> Vec<Bio> {
        self.end(tag, status, false, now)
    }

    /// The driver handed a request back; it is sent again without the scheduler. Else as
    /// [`completed`](Ledger::completed).
    pub fn handed_back(&mut self, tag: SchedTag, now: Nanos) -> Vec<Bio> {
        self.end(tag, Status::Ok, true, now)
    }

    fn end(&mut self, tag: SchedTag, status: Status, handed_back: bool, now: Nanos) -> Vec<Bio> {
        self.moves_on(now);
        let place = self.place_mut(tag);
        assert_eq!(place.state, State::InFlight, "{tag:?} ended and is not in flight");
        let bios = std::mem::take(&mut place.bios);
        let context = place.rq.id.submitter();
        let Place { accepted_at, issued_at, .. } = *place;
        let done_at = now;
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        self.scheduler.ended(&end, now);
        self.in_flight -= 1;
        self.must_ask(context);
        self.release(tag);
        self.agrees();
        self.let_in(now);
        bios
    }

    fn let_in(&mut self, now: Nanos) {
        while !self.free.is_empty() {
            let Some((bio, number, _)) = self.waiting.pop_front() else { break };
            if self.merge(&bio, number, now).is_some() {
                continue;
            }
            if self.admit(bio, number, now).is_none() {
                self.waiting_limited.push_back((bio, number, now));
            }
        }
        while let Some((bio, number, since)) = self.waiting_limited.pop_front() {
            if self.admit(bio, number, now).is_none() {
                self.waiting_limited.push_front((bio, number, since));
                return;
            }
        }
    }

    /// When the timer fires next; a moment that stays in the past counts as 3 ms from now.
    pub fn wake_at(&self) -> Option<Nanos> {
        let wake_at = self.scheduler.wake_at();
        wake_at.map(|at| if at > self.now { at } else { self.now + 3_000_000 })
    }

    /// Fires a timer that is due, and says whether one was.
    pub fn fire(&mut self, now: Nanos) -> bool {
        self.moves_on(now);
        let is_due = self.scheduler.wake_at().is_some_and(|at| at <= now);
        if is_due {
            self.scheduler.on_timer(now);
            self.pending = (1 << self.setup.hard_queues) - 1;
        }
        self.agrees();
        is_due
    }

    /// The scheduler counts as these books do.
    pub fn agrees(&self) {
        let name = self.scheduler.name();
        assert_eq!(self.scheduler.staged(), self.staged, "{name} counts what is staged");
        let hard_queues = 0..self.setup.hard_queues;
        let has_work = hard_queues.clone().any(|queue| self.scheduler.has_work(queue));
        assert_eq!(has_work, self.staged > 0, "{name} says whether it has work");
    }

    /// Asserts, after every hard queue that had a reason was asked and got nothing, that a request
    /// is in flight or a time is set, so the scheduler will be asked again.
    pub fn is_not_stranded(&mut self) {
        if self.staged == 0 || self.in_flight > 0 || !self.pending().is_empty() {
            return;
        }
        let (name, staged, now) = (self.scheduler.name(), self.staged, self.now);
        // Only a scheduler that idles for a process may let an idle device wait.
        let told = IDLING.contains(&name) && self.scheduler.wake_at().is_some();
        assert!(told, "{name} strands {staged} requests at {now:?}");
    }

    /// Whether every tag is free and no request waits.
    pub fn is_idle(&self) -> bool {
        self.free.len() == self.places.len() && self.waiting() == 0
    }

    /// Another `nr_requests`; only while it is idle.
    pub fn change_depth(&mut self, nr_requests: u16) {
        assert!(self.is_idle(), "the depth changes while nothing is staged or in flight");
        self.setup.nr_requests = nr_requests;
        self.scheduler.depth_changed(nr_requests);
        self.make_places();
    }

    /// Another scheduler takes over; only while it is idle.
    pub fn switch(&mut self, entry: &Entry, setup: Setup) {
        assert!(self.is_idle(), "the scheduler changes while something is staged or in flight");
        self.scheduler = Subject::new(entry, &setup);
        self.setup = setup;
        self.pending = 0;
    }

    /// Other limits; only while it is idle.
    pub fn change_limits(&mut self, change: impl FnOnce(&mut Setup)) {
        assert!(self.is_idle(), "limits change while nothing is staged or in flight");
        change(&mut self.setup);
        self.scheduler.limits_changed(&self.setup.limits, self.setup.nomerges);
    }
}

/// A plain read of 8 sectors from 0, to be changed.
pub fn request(tag: SchedTag) -> Rq {
    Rq {
        sector: 0,
        sectors: 8,
        id: weir_bio::RqId(0),
        flags: Flags::NONE,
        group: weir_bio::GroupId(0),
        ioprio: weir_bio::IoPrio::NONE,
        hint: 0,
        tag,
        op: weir_bio::Op::Read,
        segments: 1,
    }
}
