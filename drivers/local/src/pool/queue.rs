//! One hard queue of a pool: a driver queue of each partition, and who of them has what. A turn
//! costs by those that hold requests, and not by those that there are.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use weir_bio::{Nanos, Op, Status};
use weir_queue::{
    Batch, Cancel, Done, DriverError, DriverQueue, PartitionGauge, Request, Tag, Wake, partition_of,
};

use super::calls::Calls;
use super::{Part, Registry};

/// Driver queues without a request of this pool that are looked at in one reap: they may have an
/// event of their own, such as a server that was lost, which stays until they have seen to it.
const IDLE_AT_A_TIME: usize = 8;

/// Reaps of those that hold requests to one look at those that hold none.
const REAPS_PER_LOOK: u8 = 16;

/// One hard queue.
pub(super) struct PoolQueue {
    registry: Arc<Registry>,
    index: u16,
    depth: u16,
    generation: u64,
    /// By number.
    open: Vec<Option<Open>>,
    /// Numbers of those that hold requests.
    busy: Vec<u16>,
    /// Numbers of those that were given something since the last commit.
    given: Vec<u16>,
    /// Of partitions that are gone, until they have given back the last tag.
    leaving: Vec<Open>,
    /// Numbers of those that have an event.
    listens: Vec<u16>,
    /// The place in `listens` that is looked at next although it may hold nothing.
    next_idle: usize,
    /// Reaps until that.
    reaps_to_look: u8,
    /// Numbers of those that may name a time although they hold nothing, such as that of a lost
    /// server's next attempt.
    timed: Vec<u16>,
    /// By tag, whose it is.
    taken: Box<[Taken]>,
    /// Answers of the pool itself.
    own: Vec<(Tag, Status)>,
    /// Requests for a partition whose server is away, which are handed back.
    back: Vec<Tag>,
    flushes: Vec<WholeFlush>,
    events: Events,
    calls: Arc<Calls>,
}

/// The driver queue of a partition.
struct Open {
    since: u64,
    part: Part,
    queue: Box<dyn DriverQueue>,
    announces: bool,
    gauge: Arc<PartitionGauge>,
    is_busy: bool,
    is_given: bool,
}

/// A request that a partition's driver has.
#[derive(Clone, Copy, Default)]
struct Taken {
    number: u16,
    direction: u8,
}

impl Taken {
    /// One, if it goes towards the device.
    #[inline]
    fn writes(self) -> u64 {
        u64::from(self.direction)
    }
}

/// A flush of all partitions, until each has answered.
struct WholeFlush {
    tag: Tag,
    /// Those that have not answered, by [`Open::since`], which no other has.
    waits_for: Vec<u64>,
    status: Status,
    /// One could not take it, or has handed it back.
    again: bool,
}

/// One descriptor for the events of all driver queues.
struct Events(OwnedFd);

impl Events {
    fn new() -> io::Result<Events> {
        Ok(Events(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    fn add(&self, event: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.0, event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
    }

    fn remove(&self, event: BorrowedFd<'_>) {
        // It goes with its queue in any case.
        let _ = epoll::delete(&self.0, event);
    }
}

impl PoolQueue {
    pub(super) fn open(
        registry: &Arc<Registry>,
        index: u16,
        depth: u16,
    ) -> Result<PoolQueue, DriverError> {
        let events = Events::new().map_err(|source| DriverError {
            what: format!("an event for hard queue {index} of a pool"),
            source: Some(source),
        })?;
        let mut queue = PoolQueue {
            registry: Arc::clone(registry),
            index,
            depth,
            generation: 0,
            open: Vec::new(),
            busy: Vec::new(),
            given: Vec::new(),
            leaving: Vec::new(),
            listens: Vec::new(),
            next_idle: 0,
            reaps_to_look: 0,
            timed: Vec::new(),
            taken: vec![Taken::default(); usize::from(depth)].into(),
            own: Vec::new(),
            back: Vec::new(),
            flushes: Vec::new(),
            events,
            calls: Arc::default(),
        };
        match queue.follow_changes().into_iter().next() {
            None => Ok(queue),
            Some(error) => Err(error),
        }
    }

    /// Opens and closes driver queues if partitions have come or gone.
    #[inline]
    fn follow(&mut self) {
        if self.registry.generation.load(Ordering::Acquire) != self.generation {
            for error in self.follow_changes() {
                self.registry.notices.add(format!("its I/O fails: {error}"));
            }
        }
    }

    #[cold]
    fn follow_changes(&mut self) -> Vec<DriverError> {
        let registry = Arc::clone(&self.registry);
        let parts = registry.parts();
        self.generation = registry.generation.load(Ordering::Acquire);
        for number in 0..self.open.len() {
            let since = parts.get(&(number as u16)).map(|part| part.since);
            if self.open[number].as_ref().is_some_and(|open| Some(open.since) != since) {
                self.leaving.extend(self.open[number].take());
                let PoolQueue { busy, given, listens, timed, .. } = self;
                for list in [busy, given, listens, timed] {
                    list.retain(|listed| usize::from(*listed) != number);
                }
            }
        }
        let parts: Vec<(u16, Part)> = parts.iter().map(|(n, part)| (*n, part.clone())).collect();
        let mut errors = Vec::new();
        for (number, part) in parts {
            let place = usize::from(number);
            if self.open.len() <= place {
                self.open.resize_with(place + 1, || None);
            }
            if self.open[place].is_none() {
                match self.open_one(number, part) {
                    Ok(open) => self.open[place] = Some(open),
                    Err(error) => errors.push(error),
                }
            }
        }
        self.let_go();
        errors
    }

    fn open_one(&mut self, number: u16, part: Part) -> Result<Open, DriverError> {
        let mut queue = part.driver.open(self.index, self.depth)?;
        if let Some(event) = queue.event_fd() {
            self.events.add(event).map_err(|source| DriverError {
                what: format!("watching hard queue {} of a partition", self.index),
                source: Some(source),
            })?;
            self.listens.push(number);
        }
        if self.calls.has_lane() {
            queue.at_home(self.calls.of(number));
        }
        if queue.announces() {
            self.timed.push(number);
        }
        let (announces, gauge) = (queue.announces(), part.gauges.open());
        let since = part.since;
        Ok(Open { since, part, queue, announces, gauge, is_busy: false, is_given: false })
    }

    /// Closes those that are gone and hold nothing any more.
    fn let_go(&mut self) {
        let PoolQueue { events, leaving, flushes, .. } = self;
        leaving.retain(|open| {
            let stays = open.queue.in_flight() > 0;
            if !stays {
                if let Some(event) = open.queue.event_fd() {
                    events.remove(event);
                }
                // What it has not answered by now, it never will.
                for flush in &mut *flushes {
                    flush.waits_for.retain(|since| *since != open.since);
                }
            }
            stays
        });
    }

    /// Has every driver that holds writes back flush: one request, which all of them are given.
    #[cold]
    fn flush_whole(&mut self, batch: &mut Batch<'_>, tag: Tag, now: Nanos) {
        let mut flush = WholeFlush { tag, waits_for: Vec::new(), status: Status::Ok, again: false };
        let PoolQueue { registry, open, busy, given, .. } = self;
        for (number, part) in registry.parts().iter() {
            let is_open = open.get(usize::from(*number)).is_some_and(Option::is_some);
            if !is_open && part.driver.write_cache().volatile {
                // What other hard queues have written there would be left out.
                flush.status = Status::IoErr;
            }
        }
        for (number, open) in open.iter_mut().enumerate() {
            let Some(open) = open.as_mut().filter(|open| open.part.driver.write_cache().volatile)
            else {
                continue;
            };
            if batch.share(|part| open.queue.submit(part, now)) {
                flush.waits_for.push(open.since);
                open.note(number as u16, busy, given);
            } else {
                flush.again = true;
            }
        }
        if flush.waits_for.is_empty() && flush.again {
            batch.refuse(Status::Resource);
            return;
        }
        batch.take();
        match flush.waits_for.is_empty() {
            true => self.own.push((tag, flush.status)),
            false => self.flushes.push(flush),
        }
    }

    /// Answers the whole flushes that all have answered.
    #[cold]
    fn end_flushes(&mut self, done: &mut Done) {
        self.flushes.retain(|flush| {
            if !flush.waits_for.is_empty() {
                return true;
            }
            match flush.status {
                Status::Ok if flush.again => done.push_requeue(flush.tag, AGAIN_NS, Vec::new()),
                status => done.push(flush.tag, status),
            }
            false
        });
    }

    /// Reaps one driver queue that holds requests; whether it holds any after that.
    #[inline]
    fn reap_one(&mut self, number: u16, now: Nanos, done: &mut Done) -> bool {
        let at = Place { answers: done.len(), requeued: done.requeued() };
        let PoolQueue { open, flushes, taken, .. } = self;
        let Some(Some(open)) = open.get_mut(usize::from(number)) else { return false };
        open.queue.reap(now, done);
        if !flushes.is_empty() {
            gather_flushes(flushes, open.since, at, done);
        }
        let (mut count, mut writes) = (0, 0);
        for tag in done.answered_since(at.answers) {
            (count, writes) = (count + 1, writes + taken[usize::from(tag.0)].writes());
        }
        if done.requeued() > at.requeued {
            for tag in done.requeued_since(at.requeued) {
                (count, writes) = (count + 1, writes + taken[usize::from(tag.0)].writes());
            }
        }
        open.gauge.end([count - writes, writes]);
        open.is_busy = open.queue.in_flight() > 0;
        open.is_busy
    }

    /// Partition `number` holds no request any more.
    #[inline]
    fn comes_to_rest(&mut self, number: u16) {
        if self.open[usize::from(number)]
            .as_ref()
            .is_some_and(|open| open.announces && open.names_time())
        {
            self.note_time(number);
        }
    }

    /// It may have a time to be turned at.
    fn note_time(&mut self, number: u16) {
        if !self.timed.contains(&number) {
            self.timed.push(number);
        }
    }

    /// Reaps those whose time has come although they hold nothing.
    #[cold]
    fn reap_due(&mut self, now: Nanos, done: &mut Done) {
        let PoolQueue { open, timed, .. } = self;
        timed.retain(|number| {
            let Some(open) = open[usize::from(*number)].as_mut() else { return false };
            if !open.is_busy && open.queue.wake_at().is_some_and(|at| at <= now) {
                open.queue.reap(now, done);
            }
            !open.is_busy && open.names_time()
        });
    }

    /// Looks at those that have an event and hold nothing, in turn.
    #[inline(never)]
    fn look_at_idle(&mut self, now: Nanos, done: &mut Done) {
        let PoolQueue { open, listens, timed, next_idle, .. } = self;
        for _ in 0..listens.len().min(IDLE_AT_A_TIME) {
            *next_idle = if *next_idle + 1 < listens.len() { *next_idle + 1 } else { 0 };
            let number = listens[*next_idle];
            let idle = open[usize::from(number)].as_mut();
            if let Some(open) = idle.filter(|open| !open.is_busy) {
                open.queue.reap(now, done);
                if open.names_time() && !timed.contains(&number) {
                    timed.push(number);
                }
            }
        }
    }

    /// Reaps those that have asked for it, whatever they hold.
    #[cold]
    fn answer_calls(&mut self, called: &[u16], now: Nanos, done: &mut Done) {
        for &number in called {
            let idle = self.open.get_mut(usize::from(number)).and_then(Option::as_mut);
            if let Some(open) = idle.filter(|open| !open.is_busy) {
                open.queue.reap(now, done);
                if open.names_time() {
                    self.note_time(number);
                }
            }
        }
    }

    /// What is not there in most turns: partitions that leave, flushes of all, answers of its own.
    #[cold]
    fn reap_rest(&mut self, now: Nanos, done: &mut Done) {
        for open in &mut self.leaving {
            let at = Place { answers: done.len(), requeued: done.requeued() };
            open.queue.reap(now, done);
            gather_flushes(&mut self.flushes, open.since, at, done);
        }
        self.let_go();
        self.end_flushes(done);
        self.own.drain(..).for_each(|(tag, status)| done.push(tag, status));
        self.back.drain(..).for_each(|tag| done.push_requeue(tag, AGAIN_NS, Vec::new()));
    }

    fn has_rest(&self) -> bool {
        !(self.leaving.is_empty()
            && self.flushes.is_empty()
            && self.own.is_empty()
            && self.back.is_empty())
    }
}

/// Takes the answers to whole flushes out of those that the partition of `since` has given.
#[cold]
fn gather_flushes(flushes: &mut [WholeFlush], since: u64, at: Place, done: &mut Done) {
    for flush in flushes {
        if !flush.waits_for.contains(&since) {
            continue;
        }
        let handed_back = done.withdraw_requeued(at.requeued, flush.tag);
        let answer = done.withdraw(at.answers, flush.tag);
        if answer.is_none() && !handed_back {
            continue;
        }
        flush.waits_for.retain(|waits_for| *waits_for != since);
        flush.again |= handed_back;
        if let Some(status) = answer.filter(|_| flush.status.is_ok()) {
            flush.status = status;
        }
    }
}

/// How long a request waits that a driver could not take, ns.
const AGAIN_NS: u64 = 3_000_000;

/// Where what one driver queue has answered begins.
#[derive(Clone, Copy)]
struct Place {
    answers: usize,
    requeued: usize,
}

impl Open {
    /// It was given something.
    #[inline]
    fn note(&mut self, number: u16, busy: &mut Vec<u16>, given: &mut Vec<u16>) {
        if !std::mem::replace(&mut self.is_busy, true) {
            busy.push(number);
        }
        if !std::mem::replace(&mut self.is_given, true) {
            given.push(number);
        }
    }

    /// Holds requests, and announces no answer.
    fn is_polled(&self) -> bool {
        self.is_busy && !self.announces
    }

    /// Wants to be turned at some time, or has its requests wait until one.
    fn names_time(&self) -> bool {
        self.queue.wake_at().is_some() || self.queue.outage_until().is_some()
    }
}

impl DriverQueue for PoolQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.follow();
        while let Some((tag, request)) = batch.peek() {
            let number = partition_of(request.rq().sector);
            if number == 0 && request.op() == Op::Flush {
                self.flush_whole(batch, tag, now);
                continue;
            }
            let PoolQueue { open, busy, given, taken, timed, back, .. } = self;
            let Some(Some(open)) = open.get_mut(usize::from(number)) else {
                // Its queue could not be opened.
                batch.take();
                self.own.push((tag, Status::IoErr));
                continue;
            };
            let (mut count, mut writes) = (0, 0);
            let each = |tag: Tag, request: &Request| {
                let direction = u8::from(request.op() != Op::Read);
                taken[usize::from(tag.0)] = Taken { number, direction };
                (count, writes) = (count + 1, writes + u64::from(direction));
            };
            let queue = &mut open.queue;
            let offered = batch.offer_partition(each, |part| queue.submit(part, now));
            if offered.len() as u64 != count {
                count = offered.len() as u64;
                writes = offered.iter().map(|tag| taken[usize::from(tag.0)].writes()).sum();
            }
            open.gauge.issue([count - writes, writes]);
            open.note(number, busy, given);
            // One that waits for its server holds up no other.
            if batch.is_refused() && open.queue.outage_until().is_some() && batch.forgive_shortage()
            {
                if !timed.contains(&number) {
                    timed.push(number);
                }
                while let Some((_, request)) = batch.peek()
                    && partition_of(request.rq().sector) == number
                {
                    back.push(batch.take());
                }
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        let PoolQueue { open, given, .. } = self;
        for number in given.drain(..) {
            if let Some(open) = &mut open[usize::from(number)] {
                open.is_given = false;
                open.queue.commit(now);
            }
        }
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.calls.lead_to(lane);
        for (number, open) in self.open.iter_mut().enumerate() {
            if let Some(open) = open {
                open.queue.at_home(self.calls.of(number as u16));
            }
        }
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.follow();
        // Before the driver queues are asked: one that calls meanwhile is asked once more.
        let called = self.calls.take();
        let mut place = 0;
        while let Some(number) = self.busy.get(place).copied() {
            if self.reap_one(number, now, done) {
                place += 1;
            } else {
                self.busy.swap_remove(place);
                self.comes_to_rest(number);
            }
        }
        if let Some(called) = called {
            self.answer_calls(&called, now, done);
        }
        if !self.timed.is_empty() {
            self.reap_due(now, done);
        }
        if !self.listens.is_empty() {
            // Their events stay, so that the lane is turned again.
            if self.busy.is_empty() || self.reaps_to_look == 0 {
                self.look_at_idle(now, done);
                self.reaps_to_look = REAPS_PER_LOOK;
            }
            self.reaps_to_look -= 1;
        }
        if self.has_rest() {
            self.reap_rest(now, done);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        if self.flushes.iter().any(|flush| flush.tag == tag) {
            // The others have it as well: it ends when the last has answered.
            return Cancel::Pending;
        }
        if let Some(place) = self.back.iter().position(|back| *back == tag) {
            self.back.swap_remove(place);
            return Cancel::Done;
        }
        let Taken { number, direction } = self.taken[usize::from(tag.0)];
        let Some(Some(open)) = self.open.get_mut(usize::from(number)) else {
            return Cancel::Pending;
        };
        let cancelled = open.queue.cancel(tag);
        if cancelled == Cancel::Done {
            let writes = u64::from(direction);
            open.gauge.end([1 - writes, writes]);
        }
        cancelled
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.noticeable().filter_map(|open| open.queue.outage_until()).max()
    }

    fn wake_at(&self) -> Option<Nanos> {
        if !self.own.is_empty() || !self.back.is_empty() {
            return Some(Nanos::ZERO);
        }
        let of = |open: &Open| match open.queue.wake_at() {
            None if open.is_polled() => Some(Nanos::ZERO),
            at => at,
        };
        self.noticeable().filter_map(of).min()
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.0.as_fd())
    }

    fn in_flight(&self) -> usize {
        let of = |open: &Open| open.queue.in_flight();
        self.own.len() + self.back.len() + self.busy().chain(&self.leaving).map(of).sum::<usize>()
    }
}

impl PoolQueue {
    /// Those that hold requests, that have named a time, or that leave.
    fn noticeable(&self) -> impl Iterator<Item = &Open> {
        let numbers = self.busy.iter().chain(&self.timed);
        numbers.filter_map(|number| self.open[usize::from(*number)].as_ref()).chain(&self.leaving)
    }

    /// Those that hold requests.
    fn busy(&self) -> impl Iterator<Item = &Open> {
        self.busy.iter().filter_map(|number| self.open[usize::from(*number)].as_ref())
    }
}
