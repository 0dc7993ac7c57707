//! A hard queue: driver tags, the tag table, the dispatch list, the flush machine and timeouts in
//! front of one [`DriverQueue`]. Both paths use it; they decide its locking and its thread.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::{Nanos, Op, SchedTag, Status};
use weir_sched::Ended;

use crate::budget::Budget;
use crate::driver::{Answer, Batch, Done, DriverQueue, Returned, Tag, TagTable, Waiter};
use crate::event::{Sink, What, lane_tells};
use crate::request::{RequestClaim, State};
use crate::snapshot::Snapshot;
use crate::stats::{LaneGauges, direction};
use crate::wbt::observed::Observer;

pub(crate) mod fence;
pub(crate) mod flush;
pub(crate) mod flush_error;
pub(crate) mod flushes;
mod lone;
mod passthrough;
pub(crate) mod places;
pub(crate) mod reply;
mod returned;
pub(crate) mod settle;
mod still;
pub(crate) mod tags;
mod times;
mod watch;

use fence::Fences;
use flush::Order;
use flushes::Flushes;
use places::Places;
use reply::Replies;
use settle::Settling;
use tags::Tags;
use watch::Watch;

/// Requests offered to a driver in one call.
const BURST: usize = 64;

/// When to offer again what a driver with nothing in flight refused.
const RETRY_NS: u64 = 3_000_000;

/// When a request is sent again that waits until it is kicked.
const NEVER: Nanos = Nanos(u64::MAX);

/// How a burst ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// Nothing waits any more.
    All,
    /// There may be more.
    Full,
    /// Tags or places ran out.
    Short,
}

/// Where a hard queue gets requests from when its dispatch list is empty.
pub(crate) trait Source {
    /// Fewer than asked for are all there are: a scheduler may have more a moment later.
    const GIVES_ALL: bool;

    /// Hands up to `max` requests to `sink`, knowing whether the queue is busy; says how many.
    fn give(&mut self, busy: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize;

    /// How many of `most` requests there are to give; more than none if that is not known.
    fn holds(&self, most: usize) -> usize;
}

/// One hard queue: the requests in front of a driver queue and those it has.
pub(crate) struct HardQueue {
    driver: Box<dyn DriverQueue>,
    /// The driver has an event of its own.
    announced: bool,
    table: TagTable,
    tags: Tags,
    /// Its number among the device's.
    lane: u16,
    fences: Arc<Fences>,
    /// Leftovers, flushes and data steps, and what a scheduler has picked: before everything else.
    pub(crate) dispatch: VecDeque<RequestClaim>,
    /// Requests the driver wants to be sent again, and from when on.
    delayed: Vec<(Nanos, RequestClaim)>,
    flush: Flushes,
    orders: Vec<Order>,
    done: Done,
    /// Answers of `done` dealt with.
    answers_ended: usize,
    burst: Vec<Tag>,
    /// Average of refusals (docs/behaviour/block-layer.md, section 5); only zero or not matters.
    busy: u8,
    retry_at: Option<Nanos>,
    watch: Watch,
    settling: Box<Settling>,
    timeout_ns: u64,
    iostats: bool,
    /// Ended requests whose scheduler tags the elevator must hear of.
    pub(crate) ended: Vec<Ended>,
    gauges: Arc<LaneGauges>,
    places: Option<Box<Places>>,
    /// Commands that wait for a reserved tag.
    commands: Vec<RequestClaim>,
    /// Those in the burst, at its head.
    reserved: usize,
    observer: Observer,
}

/// The parts of a hard queue.
pub(crate) struct Make {
    pub(crate) driver: Box<dyn DriverQueue>,
    pub(crate) depth: u16,
    pub(crate) tags: Tags,
    pub(crate) lane: u16,
    pub(crate) fences: Arc<Fences>,
    pub(crate) gauges: Arc<LaneGauges>,
    pub(crate) flushes: Flushes,
    pub(crate) budget: Option<Arc<dyn Budget>>,
}

impl HardQueue {
    pub(crate) fn new(make: Make) -> HardQueue {
        let Make { driver, depth, tags, lane, fences, gauges, flushes, budget } = make;
        HardQueue {
            announced: driver.announces(),
            driver,
            table: TagTable::new(depth),
            tags,
            lane,
            fences,
            dispatch: VecDeque::new(),
            delayed: Vec::new(),
            flush: flushes,
            orders: Vec::new(),
            done: Done::default(),
            answers_ended: 0,
            burst: Vec::with_capacity(BURST),
            busy: 0,
            retry_at: None,
            watch: Watch::default(),
            settling: Box::default(),
            timeout_ns: 0,
            iostats: true,
            ended: Vec::new(),
            gauges,
            places: budget.map(|budget| Box::new(Places::new(budget, lane))),
            commands: Vec::new(),
            reserved: 0,
            observer: Observer::default(),
        }
    }

    /// Takes over what a snapshot says of hard queues.
    #[cold]
    pub(crate) fn follow(&mut self, snapshot: &Snapshot) {
        (self.timeout_ns, self.iostats) = (snapshot.timeout_ns, snapshot.iostats);
        self.observe_while(snapshot.throttled);
        if self.timeout_ns == 0 {
            // A scan that is still due would find everything overdue.
            self.watch.scan_at = None;
        }
    }

    /// Uses tags below `end` only; nothing is under way.
    #[cold]
    pub(crate) fn bound_tags(&mut self, end: u16) {
        self.tags.bound(end);
    }

    /// Asks the driver for answers; [`end_one`](HardQueue::end_one) deals with each.
    #[inline]
    pub(crate) fn reap(&mut self, now: Nanos, sink: impl Sink) {
        // Another home of the single queue may be in the middle of ending what it has reaped: the
        // lent memory comes in the order of the answers, so nothing may be put between.
        if !self.has_answers() {
            self.done.answers.clear();
            self.answers_ended = 0;
            self.driver.reap(now, &mut self.done);
            if self.observer.window != 0 {
                self.observe_answers(now);
            }
            if self.table.has_news(&self.done.answers) {
                self.watch.see_answer(now);
            }
            if !self.done.requeued.is_empty() {
                self.take_requeued(now, sink);
            }
            if !self.done.details.is_empty() {
                self.done
                    .details
                    .drain(..)
                    .for_each(|(tag, detail)| self.table.detail(tag, detail));
            }
            if self.done.kicked {
                self.kick_delayed(now);
            }
        }
    }

    #[inline]
    fn has_answers(&self) -> bool {
        self.answers_ended < self.done.answers.len()
    }

    /// Ends the next answered request; false when none is left.
    #[inline(always)]
    pub(crate) fn end_one(&mut self, now: Nanos, replies: &mut Replies, sink: impl Sink) -> bool {
        let Some(answer) = self.done.answers.get(self.answers_ended) else { return false };
        let Answer { tag, status, lent } = *answer;
        self.answers_ended += 1;
        match self.table.end(tag) {
            Returned::Request(mut claim) => {
                self.tags.give(tag);
                lane_tells(sink, self.lane, now, || What::Answered { rq: claim.rq, tag, status });
                if lent > 0 {
                    claim.take_back(lent as usize, &mut self.done.lent);
                }
                self.end(claim, status, now, replies, sink);
            }
            returned => self.end_late(&returned, tag, lent as usize, now),
        }
        true
    }

    /// An answer for which no request waits any more. Its memory goes.
    #[cold]
    fn end_late(&mut self, returned: &Returned, tag: Tag, lent: usize, now: Nanos) {
        self.done.lent.drain(..lent);
        match returned {
            Returned::Quarantined => self.end_quarantined(tag, now),
            _ => self.gauges.strays.add(1),
        }
    }

    /// Its submitter was told TIMEOUT long ago; the tag is whole again, and the request changes
    /// nothing any more.
    #[cold]
    fn end_quarantined(&mut self, tag: Tag, now: Nanos) {
        self.watch.see_answer(now);
        self.tags.give_lost(tag);
        self.watch.lifted |= self.fences.lift(self.lane, tag);
        self.gauges.quarantined.set(self.table.quarantined() as u64);
    }

    #[inline(always)]
    fn end(
        &mut self,
        claim: RequestClaim,
        status: Status,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        self.gauges.ended[direction(claim.rq.op)].add(1);
        self.finish(claim, status, now, replies, sink);
    }

    /// The same for one that the driver need not have had.
    #[inline(always)]
    fn finish(
        &mut self,
        mut claim: RequestClaim,
        status: Status,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        claim.status = status;
        claim.done_at = now;
        claim.state = State::Complete;
        if claim.rq.tag != SchedTag::NONE {
            self.ended.push(end_of(&claim, status, false, now));
        }
        if claim.rq.op == Op::Flush || claim.flush_step.in_data {
            self.end_step(claim, now, replies, sink);
        } else {
            replies.push(claim, self.lane, now, sink);
        }
    }

    /// A device flush, or the data of a sequence, has ended.
    #[cold]
    fn end_step(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        if claim.rq.op == Op::Flush {
            if self.iostats {
                self.gauges.flushes.add(1);
                self.gauges.flush_ns.add(now.since(claim.issued_at));
            }
            self.flush.flush_ended(claim, now, &mut self.orders);
        } else {
            self.flush.data_ended(claim, now, &mut self.orders);
        }
        self.carry_out(now, replies, sink);
    }

    #[cold]
    fn carry_out(&mut self, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        let lane = self.lane;
        for order in self.orders.drain(..) {
            match order {
                Order::Issue(claim) if claim.rq.op == Op::Flush => self.dispatch.push_front(claim),
                Order::Issue(mut claim) => {
                    claim.state = State::Idle;
                    self.dispatch.push_back(claim);
                }
                Order::Reply(claim) => replies.push(claim, lane, now, sink),
            }
        }
    }

    /// Takes a request that left the elevator or asks for the flush machine.
    #[inline(never)]
    pub(crate) fn take_in(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        if claim.rq.op.is_passthrough() {
            self.take_command(claim);
        } else if claim.flush_step.is_sequenced() {
            self.flush.enter(claim, now, &mut self.orders);
            self.carry_out(now, replies, sink);
        } else {
            self.dispatch.push_back(claim);
        }
    }

    /// Sends what waits to the driver: the dispatch list first, then what `source` gives, as far
    /// as tags and driver go; then rings the driver's doorbell. `source` is asked for at most so
    /// many requests, and told whether the queue is busy. True when tags or the driver ran short.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        now: Nanos,
        replies: &mut Replies,
        source: &mut impl Source,
        sink: impl Sink,
    ) -> bool {
        // This is the retry. If there is no tag for it, the lane that frees one tells this lane.
        self.retry_at = None;
        if self.flush.wake_at().is_some() {
            self.kick_flush(now, replies, sink);
        }
        if !self.delayed.is_empty() {
            self.take_delayed(now);
        }
        if self.watch.trouble {
            self.look_at_trouble(now, replies, source, sink);
        }
        let mut sent = false;
        let short = loop {
            let gathered = self.gather(now, replies, source, sink);
            if self.burst.is_empty() {
                break gathered == Gathered::Short;
            }
            let (taken, refused) = self.offer(now, sink);
            sent |= taken > 0;
            if refused || gathered == Gathered::Short {
                break true;
            }
            if gathered == Gathered::All {
                break false;
            }
        };
        if sent {
            self.driver.commit(now);
        }
        if sent || self.watch.trouble && self.unsent() > 0 {
            self.watch.begin(self.timeout_ns, now);
        }
        short
    }

    #[cold]
    fn kick_flush(&mut self, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        self.flush.kick(now, &mut self.orders);
        self.carry_out(now, replies, sink);
    }

    /// Gives tags to requests until a burst is full, nothing waits or the tags have run out.
    #[inline]
    fn gather<S: Source>(
        &mut self,
        now: Nanos,
        replies: &mut Replies,
        source: &mut S,
        sink: impl Sink,
    ) -> Gathered {
        self.burst.clear();
        if !self.commands.is_empty() {
            self.gather_commands(now, sink);
        }
        loop {
            let dispatch = self.dispatch.len();
            let wanted = |most| dispatch.max(source.holds(most)).min(most);
            let most = BURST - self.burst.len();
            let Some(mut room) = self.tags.secure(most, wanted) else {
                return if most == 0 { Gathered::Full } else { Gathered::All };
            };
            if room > 0 && self.places.is_some() {
                match self.secure_places(room, source) {
                    Some(places) => room = places,
                    None => return Gathered::Short,
                }
            }
            if room == 0 {
                let short = self.burst.len() < BURST && self.run_short(now, replies, source, sink);
                return if short { Gathered::Short } else { Gathered::Full };
            }
            let leftovers = room.min(self.dispatch.len());
            if leftovers > 0 {
                for _ in 0..leftovers {
                    let claim = self.dispatch.pop_front().expect("counted");
                    self.start_beside(claim, now, replies, sink);
                }
                continue;
            }
            let given = source.give(self.busy != 0, room, &mut |claim| {
                if claim.flush_step.is_sequenced() {
                    self.take_in(claim, now, replies, sink);
                } else {
                    self.start_beside(claim, now, replies, sink);
                }
            });
            // A source that has given all is not asked again, unless the flush machine has put a
            // step before what comes next.
            if given == 0 || given < room && S::GIVES_ALL && self.dispatch.is_empty() {
                return Gathered::All;
            }
        }
    }

    /// Starts a request, which is held against the fences if there are any. They are looked for
    /// after the request was taken from its ring: its submitter may have been told of a time-out
    /// since the pass began, and the fence was put before that.
    #[inline(always)]
    fn start_beside(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        if self.fences.any() {
            self.start_unless_fenced(claim, now, replies, sink);
        } else {
            self.start(claim, now, sink);
        }
    }

    /// Gives a request its tag, which was secured, and puts it into the burst.
    #[inline(always)]
    fn start(&mut self, claim: RequestClaim, now: Nanos, sink: impl Sink) {
        let tag = self.tags.take().expect("a tag was secured");
        self.start_with(tag, claim, now, sink);
    }

    #[inline(always)]
    fn start_with(&mut self, tag: Tag, mut claim: RequestClaim, now: Nanos, sink: impl Sink) {
        debug_assert_eq!(claim.state, State::Idle, "a request is started twice");
        let tag = self.table.current(tag);
        claim.state = State::InFlight;
        claim.issued_at = now;
        lane_tells(sink, self.lane, now, || What::Issued { rq: claim.rq, tag });
        self.gauges.issued[direction(claim.rq.op)].add(1);
        self.table.put(tag, claim);
        self.burst.push(tag);
    }

    /// Offers the burst to the driver; what it leaves goes back to the head of the dispatch list.
    #[inline]
    fn offer(&mut self, now: Nanos, sink: impl Sink) -> (usize, bool) {
        let mut batch = Batch::new(&self.burst, &mut self.table);
        self.driver.submit(&mut batch, now);
        let (taken, status) = batch.outcome();
        if self.observer.window != 0 {
            self.observe_issued(taken, now);
        }
        let refused = taken < self.burst.len();
        self.busy = (self.busy * 7 + if refused { 16 } else { 0 }) / 8;
        if taken > 0 {
            self.watch.refused_since = None;
        }
        if let Some(places) = &mut self.places {
            places.spend(taken.saturating_sub(self.reserved));
        }
        if refused {
            self.take_back_refused(taken, status, now, sink);
        }
        self.reserved = 0;
        (taken, refused)
    }

    /// Whether something was refused, or left waiting, of late.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy != 0
    }

    /// Something was left waiting although nothing was refused: counts like a refusal.
    pub(crate) fn count_shortage(&mut self) {
        self.busy = (self.busy * 7 + 16) / 8;
    }

    /// When this queue wants a turn although nothing happens; now, when the driver has answers that
    /// nothing else announces. Answers and timeouts are seen to even while dispatch is `paused`.
    #[inline]
    pub(crate) fn wake_at(&self, now: Nanos, paused: bool) -> Option<Nanos> {
        let own = match self.driver.wake_at() {
            None if !self.announced && self.driver.in_flight() > 0 => Some(now),
            at => at,
        };
        let unsent = if paused { None } else { self.unsent_until() };
        Nanos::first_of(unsent, Nanos::first_of(self.watch.scan_at, own))
    }

    /// When something is to be sent that waits for a time.
    #[inline]
    fn unsent_until(&self) -> Option<Nanos> {
        let flush = self.flush.wake_at();
        if flush.is_none() && self.retry_at.is_none() && self.delayed.is_empty() {
            return None;
        }
        let flush = flush.filter(|_| self.dispatch.is_empty());
        Nanos::first_of(Nanos::first_of(self.retry_at, self.delayed_until()), flush)
    }

    /// Places left in the driver for requests from a scheduler.
    pub(crate) fn room(&self) -> usize {
        self.tags.free().saturating_sub(self.dispatch.len())
    }

    /// Requests that wait for a place in the driver.
    pub(crate) fn waiting(&self) -> usize {
        self.dispatch.len()
    }

    /// The pass is over; lanes that wait for tags are told.
    #[inline]
    pub(crate) fn end_pass(&mut self) {
        if self.places.is_some() {
            self.put_places();
        }
        self.tags.end_pass();
    }

    pub(crate) fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Whether the driver says when there is something to reap.
    pub(crate) fn announces(&self) -> bool {
        self.announced
    }

    /// A descriptor of its own for that event.
    pub(crate) fn event(&self) -> std::io::Result<Option<OwnedFd>> {
        self.driver.event_fd().map(|event| event.try_clone_to_owned()).transpose()
    }

    /// The driver's own way to wait.
    pub(crate) fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        self.driver.waiter(beside)
    }

    pub(crate) fn may_block(&mut self) -> bool {
        self.driver.may_block()
    }

    /// Requests this queue knows of: waiting to be sent, in a flush sequence, in the driver.
    pub(crate) fn len(&self) -> usize {
        self.unsent() + self.driver.in_flight()
    }
}

/// The scheduler's news of a request that it is to hear of no more.
#[inline(always)]
fn end_of(claim: &RequestClaim, status: Status, handed_back: bool, now: Nanos) -> Ended {
    Ended {
        tag: claim.rq.tag,
        status,
        handed_back,
        accepted_at: claim.accepted_at,
        issued_at: claim.issued_at,
        done_at: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Bio, Buf, Data, Rq, RqId, SubmitterId};
    use weir_ring::Claim;

    use crate::event::Silent;
    use crate::request::Request;

    /// Borrows all memory and answers at the next reap, in order.
    #[derive(Default)]
    struct Lender(Vec<(Tag, Vec<Data>)>);

    impl DriverQueue for Lender {
        fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
            batch.take_all(|tag, request| {
                let mut lent = Vec::new();
                request.lend(&mut lent);
                self.0.push((tag, lent));
            });
        }

        fn commit(&mut self, _now: Nanos) {}

        fn reap(&mut self, _now: Nanos, done: &mut Done) {
            for (tag, mut lent) in self.0.drain(..) {
                done.push_lent(tag, Status::Ok, &mut lent);
            }
        }

        fn in_flight(&self) -> usize {
            self.0.len()
        }
    }

    /// Gives what it holds.
    struct Given(Vec<RequestClaim>);

    impl Source for Given {
        const GIVES_ALL: bool = true;

        fn holds(&self, most: usize) -> usize {
            self.0.len().min(most)
        }

        fn give(&mut self, _: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
            let given = max.min(self.0.len());
            self.0.drain(..given).for_each(sink);
            given
        }
    }

    /// A read whose sector is its length, so that memory of another shows.
    fn read(sectors: u32) -> RequestClaim {
        let id = RqId::new(SubmitterId(0), sectors as u16, 0);
        let mut claim = Claim::new(Request::free(id));
        let mut bio = Bio::read(u64::from(sectors), Buf::zeroed(sectors as usize * 512));
        claim.fill(&mut bio, crate::request::FlushStep::DATA, Nanos::ZERO);
        claim
    }

    fn hard(fences: &Arc<Fences>) -> HardQueue {
        hard_of(Tags::own(8, 0), 8, fences)
    }

    fn hard_of(tags: Tags, depth: u16, fences: &Arc<Fences>) -> HardQueue {
        HardQueue::new(Make {
            driver: Box::new(Lender::default()),
            depth,
            tags,
            lane: 0,
            fences: Arc::clone(fences),
            gauges: Arc::default(),
            flushes: Flushes::new(Arc::default(), None),
            budget: None,
        })
    }

    /// Another lane puts a fence around what is given, just before it is given.
    struct Fencing<'a>(&'a Fences, Given);

    impl Source for Fencing<'_> {
        const GIVES_ALL: bool = true;

        fn holds(&self, most: usize) -> usize {
            self.1.holds(most)
        }

        fn give(&mut self, busy: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
            for claim in &self.1.0 {
                self.0.put(1, Tag::first(3), &Rq { op: Op::Write, ..claim.rq });
            }
            self.1.give(busy, max, sink)
        }
    }

    #[test]
    fn a_fence_that_is_put_in_the_middle_of_a_pass_holds_what_is_taken_afterwards() {
        let fences = Arc::new(Fences::new(2));
        let mut hard = hard(&fences);
        let (mut replies, now) = (Replies::default(), Nanos::ZERO);
        let port = Arc::new(crate::bell::Port::silent());
        replies.attach(0, Arc::clone(&port));
        let mut source = Fencing(&fences, Given(vec![read(8)]));
        hard.issue(now, &mut replies, &mut source, Silent);
        assert_eq!((hard.driver.in_flight(), hard.len()), (0, 1), "it is held back");
        assert!(fences.lift(1, Tag::first(3)));
        hard.issue(now, &mut replies, &mut Given(Vec::new()), Silent);
        assert_eq!(hard.driver.in_flight(), 1);
        hard.reap(now, Silent);
        while hard.end_one(now, &mut replies, Silent) {}
        replies.post(0, now, Silent);
        port.inbox.take().for_each(|mut claim| claim.state = State::Free);
    }

    /// Counts how often it is asked.
    struct Counting(Given, u32);

    impl Source for Counting {
        const GIVES_ALL: bool = true;

        fn holds(&self, most: usize) -> usize {
            self.0.holds(most)
        }

        fn give(&mut self, busy: bool, max: usize, sink: &mut impl FnMut(RequestClaim)) -> usize {
            self.1 += 1;
            self.0.give(busy, max, sink)
        }
    }

    /// Ends all that the driver has, and gives the slots up.
    fn end_all(hard: &mut HardQueue, replies: &mut Replies, port: &crate::bell::Port) -> usize {
        let now = Nanos::ZERO;
        let mut ended = 0;
        while hard.len() > 0 {
            hard.reap(now, Silent);
            while hard.end_one(now, replies, Silent) {}
            replies.post(0, now, Silent);
            for mut claim in port.inbox.take() {
                claim.state = State::Free;
                ended += 1;
            }
            hard.issue(now, replies, &mut Given(Vec::new()), Silent);
        }
        ended
    }

    fn attached() -> (Replies, Arc<crate::bell::Port>) {
        let (mut replies, port) = (Replies::default(), Arc::new(crate::bell::Port::silent()));
        replies.attach(0, Arc::clone(&port));
        (replies, port)
    }

    #[test]
    fn all_of_a_source_is_sent_in_one_turn_and_a_last_burst_that_is_not_full_asks_no_more() {
        let set = crate::tag_set::TagSet::new(256, 0);
        let shared = || Tags::shared(&set, true, Arc::new(weir_ring::NoWake)).expect("a seat");
        let own = || Tags::own(256, 0);
        let burst = BURST as u32;
        for (tags, own) in [(own(), true), (shared(), false)] {
            let mut hard = hard_of(tags, 256, &Arc::new(Fences::new(1)));
            let (mut replies, port) = attached();
            // With none left behind the last full burst of a set it is not asked at all.
            for (count, asked) in [(5, 1), (burst, 1 + u32::from(own)), (2 * burst + 3, 3)] {
                let given = Given((1..=count).map(read).collect());
                let mut source = Counting(given, 0);
                let short = hard.issue(Nanos::ZERO, &mut replies, &mut source, Silent);
                assert_eq!((short, source.1), (false, asked), "{count} requests");
                assert_eq!(hard.driver.in_flight(), count as usize);
                assert_eq!(end_all(&mut hard, &mut replies, &port), count as usize);
            }
        }
    }

    #[test]
    fn a_flush_that_a_source_gives_is_sent_in_the_same_turn() {
        let mut hard = hard(&Arc::new(Fences::new(1)));
        let (mut replies, port) = attached();
        let mut flush = Claim::new(Request::free(RqId::new(SubmitterId(0), 9, 0)));
        let step = crate::request::FlushStep { preflush: true, ..Default::default() };
        flush.fill(&mut Bio::flush(), step, Nanos::ZERO);
        let mut source = Given(vec![flush, read(3)]);
        hard.issue(Nanos::ZERO, &mut replies, &mut source, Silent);
        assert_eq!(hard.driver.in_flight(), 2, "the device flush and the read");
        assert_eq!(end_all(&mut hard, &mut replies, &port), 2);
    }

    #[test]
    fn a_second_reap_in_between_does_not_mix_up_whose_memory_comes_back() {
        let mut hard = hard(&Arc::new(Fences::new(1)));
        let (mut replies, now) = (Replies::default(), Nanos::ZERO);
        let port = Arc::new(crate::bell::Port::silent());
        replies.attach(0, Arc::clone(&port));
        let send = |hard: &mut HardQueue, replies: &mut Replies, lengths: &[u32]| {
            hard.issue(
                now,
                replies,
                &mut Given(lengths.iter().map(|n| read(*n)).collect()),
                Silent,
            );
        };
        send(&mut hard, &mut replies, &[1, 2, 3]);
        hard.reap(now, Silent);
        assert!(hard.end_one(now, &mut replies, Silent));
        // The lock is free between two requests: another home submits and reaps.
        send(&mut hard, &mut replies, &[4]);
        for _ in 0..2 {
            hard.reap(now, Silent);
            while hard.end_one(now, &mut replies, Silent) {}
        }
        replies.post(0, now, Silent);
        let mut ended = 0;
        for mut claim in port.inbox.take() {
            assert_eq!(claim.data.len() as u64, claim.rq.sector * 512);
            claim.state = State::Free;
            ended += 1;
        }
        assert_eq!(ended, 4);
    }

    /// A queue whose requests may take two seconds, and the times of its scans.
    fn watched() -> HardQueue {
        let mut hard = hard(&Arc::new(Fences::new(1)));
        hard.timeout_ns = 2_000_000_000;
        hard
    }

    fn ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn a_driver_that_was_asked_for_nothing_is_not_silent_beside_others() {
        let (mut hard, (mut replies, _)) = (watched(), attached());
        hard.is_withheld_from(ms(10_000));
        hard.scan(ms(11_000), false, &mut replies, Silent);
        assert!(!hard.is_in_need(ms(11_000)));
        // What waits for its tags is something it was asked for.
        hard.keeps_waiting(true, ms(11_000));
        hard.scan(ms(12_000), false, &mut replies, Silent);
        assert!(hard.is_in_need(ms(12_000)));
    }

    #[test]
    fn a_driver_is_suspect_from_a_lost_request_until_it_answers_or_has_been_idle() {
        for (sent_again, is_silent) in [(2_500, true), (60_000, false)] {
            let (mut hard, (mut replies, port)) = (watched(), attached());
            hard.issue(ms(0), &mut replies, &mut Given(vec![read(3)]), Silent);
            // Of another request, so that the first one is not all that says something.
            hard.watch.see_answer(ms(1_000));
            for at in [1_000, 2_000] {
                hard.scan(ms(at), false, &mut replies, Silent);
            }
            assert!(!hard.is_in_need(ms(2_000)), "it answered a second ago");
            hard.issue(ms(sent_again), &mut replies, &mut Given(vec![read(4)]), Silent);
            let next = sent_again + 1_000;
            hard.scan(ms(next), false, &mut replies, Silent);
            assert_eq!(hard.is_in_need(ms(next)), is_silent, "sent at {sent_again} ms");
            hard.watch.see_answer(ms(next));
            assert!(!hard.is_in_need(ms(next)), "it is back");
            replies.post(0, ms(next), Silent);
            port.inbox.take().for_each(|mut claim| claim.state = State::Free);
            end_all(&mut hard, &mut replies, &port);
        }
    }
}
