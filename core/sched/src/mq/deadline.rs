//! `mq-deadline`: batches in sector order, a deadline for each request, and priority classes.
//! Source: docs/behaviour/mq-deadline.md.
//!
//! Each class has an order by sector and a FIFO of each direction. The position is the sector of
//! the last request served, looked up at every step, so a late arrival just ahead of it is seen.
//! A class is served only while no higher one has anything staged or in flight, except for what has
//! waited `prio_aging_expire`. All hard queues share one instance.

use weir_bio::{Class, Limits, Nanos, Op, Rq, SchedTag, SubmitterId};

use crate::contract::{Absorbed, DepthRule, Ended, Merge, Replay, Scheduler, Setup};
use crate::deadline::{self, Deadlines, READ, Settings, WRITE, ms_of_ns, ns_of_ms};
use crate::legacy::deadline::Deadline;
use crate::merge::Side;
use crate::staged::{Arrival, Node, Staged};
use crate::tunable::{Number, Row, Tunable, Tunables, Tuned, Unit, When, tunables};
use crate::{Entry, Family, SLES12};

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "mq-deadline",
    family: Family::Multi,
    counterpart: "deadline",
    compat: COMPAT,
    levels: &[
        (OLDEST, "as deadline: no I/O priorities, and no `async_depth` or `prio_aging_expire`"),
        (SLES12, "as 4.12, and `writes_starved` is 3"),
    ],
    tunables: TUNABLES,
    make: Some(|setup| make(setup)),
    replay: Some(make),
};

/// Whose behaviour it can have.
pub const COMPAT: &[&str] = &["6.18", OLDEST, SLES12];

/// The multi-queue path's first deadline scheduler: no classes, a fixed position.
const OLDEST: &str = "4.12";

/// Its tunables, with the defaults of `6.18`.
pub const TUNABLES: &[Tunable] = &tunables(&ROWS);

const ASYNC_DEPTH: Tunable = Tunable {
    name: "async_depth",
    unit: Unit::Requests,
    default: 256,
    least: 1,
    most: i32::MAX as i128,
    number: Number::Signed32,
    when: When::AtOnce,
    meaning: "How many of the nr_requests scheduler tags all but reads may hold; \
              nr_requests, and that again whenever nr_requests changes.",
};

const PRIO_AGING_EXPIRE: Tunable = Tunable {
    name: "prio_aging_expire",
    unit: Unit::Milliseconds,
    default: 10_000,
    // As in Linux 6.1 and 6.18 (loop device), below 0 is 0: best effort and idle requests go
    // first whenever a higher class is busy.
    least: 0,
    most: i32::MAX as i128,
    number: Number::Signed32,
    when: When::AtOnce,
    meaning: "Time after which a request is served although a higher class is busy; \
              with 0 at once, and so before that class.",
};

const ROWS: [Row<MqDeadline>; 7] = {
    let [read, write, starved, front, batch] = deadline::rows();
    let async_depth = Row::new(
        ASYNC_DEPTH,
        |own: &MqDeadline| i128::from(own.async_depth),
        |own, requests| own.async_depth = requests as u32,
    );
    let prio_aging_expire = Row::new(
        PRIO_AGING_EXPIRE,
        |own: &MqDeadline| ms_of_ns(own.prio_aging_expire_ns),
        |own, ms| own.prio_aging_expire_ns = ns_of_ms(ms),
    );
    [read, write, starved, front, batch, async_depth, prio_aging_expire]
};

/// Classes in the order they are served: real time, best effort, idle.
const CLASSES: usize = 3;
const REAL_TIME: usize = 0;
const BEST_EFFORT: usize = 1;
const IDLE: usize = 2;

/// Makes the scheduler of the level that `setup` names.
#[must_use]
fn make(setup: &Setup) -> Box<dyn Replay> {
    if [OLDEST, SLES12].contains(&setup.compat) {
        Box::new(Deadline::of_4_12(setup))
    } else {
        Box::new(MqDeadline::new(setup))
    }
}

/// The deadline scheduler of the multi-queue path.
#[derive(Clone)]
pub struct MqDeadline {
    /// Band 2c reads of class c, band 2c + 1 its writes.
    staged: Staged<true>,
    settings: Settings,
    async_depth: u32,
    nr_requests: u16,
    prio_aging_expire_ns: u64,
    classes: [Tally; CLASSES],
    last_direction: usize,
    batching: u32,
    starved: i64,
    /// When it last answered that nothing may go, although something is staged.
    held_at: Option<Nanos>,
}

/// The state of a class. The counters wrap.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// First sector of the last request served, of reads and of writes.
    position: [u64; 2],
    inserted: u32,
    merged: u32,
    dispatched: u32,
    completed: u32,
}

impl Tally {
    /// Requests staged or in flight.
    #[inline]
    fn queued(&self) -> u32 {
        self.inserted.wrapping_sub(self.completed)
    }
}

/// The figures of the read-only files beside the tunables. Arrays are by class: real time, best
/// effort, idle; the counters wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Requests served since the batch began.
    pub batching: u32,
    /// Batches of reads chosen over waiting writes.
    pub starved: i64,
    /// Requests staged or in flight.
    pub queued: [u32; 3],
    /// Requests in flight.
    pub owned_by_driver: [u32; 3],
    /// Requests ever inserted.
    pub inserted: [u32; 3],
    /// Requests that disappeared into others.
    pub merged: [u32; 3],
    /// Requests given to the driver.
    pub dispatched: [u32; 3],
    /// Requests that are gone.
    pub completed: [u32; 3],
}

#[inline]
fn class_of(rq: &Rq) -> usize {
    match rq.ioprio.class() {
        Class::RealTime => REAL_TIME,
        Class::None | Class::BestEffort => BEST_EFFORT,
        Class::Idle => IDLE,
    }
}

#[inline]
fn band_of(rq: &Rq) -> usize {
    2 * class_of(rq) + usize::from(rq.op.is_write())
}

impl MqDeadline {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> MqDeadline {
        MqDeadline {
            staged: Staged::new(setup, 2 * CLASSES),
            settings: Settings::default(),
            async_depth: u32::from(setup.nr_requests),
            nr_requests: setup.nr_requests,
            prio_aging_expire_ns: ns_of_ms(PRIO_AGING_EXPIRE.default),
            classes: [Tally::default(); CLASSES],
            last_direction: WRITE,
            batching: 0,
            starved: 0,
            held_at: None,
        }
    }

    /// Its state as the read-only files show it.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let each = |of: fn(&Tally) -> u32| self.classes.each_ref().map(of);
        Figures {
            batching: self.batching,
            starved: self.starved,
            queued: each(Tally::queued),
            owned_by_driver: each(|class| {
                class.dispatched.wrapping_add(class.merged).wrapping_sub(class.completed)
            }),
            inserted: each(|class| class.inserted),
            merged: each(|class| class.merged),
            dispatched: each(|class| class.dispatched),
            completed: each(|class| class.completed),
        }
    }

    #[inline]
    fn waiting(&self, class: usize) -> [bool; 2] {
        [READ, WRITE].map(|direction| !self.staged.fifo(2 * class + direction).is_empty())
    }

    /// The request of a class that is next by position.
    #[inline]
    fn next(&mut self, class: usize, direction: usize) -> Option<SchedTag> {
        let position = self.classes[class].position[direction];
        self.staged.first_from(2 * class + direction, position)
    }

    /// Which request of a class would go now: the batch's next, or the first of a new batch.
    #[inline]
    fn choose(&mut self, class: usize, now: Nanos) -> Option<SchedTag> {
        if self.batching < self.settings.fifo_batch
            && let Some(next) = self.next(class, self.last_direction)
        {
            return Some(next);
        }
        self.begin_batch(class, now)
    }

    fn begin_batch(&mut self, class: usize, now: Nanos) -> Option<SchedTag> {
        let waiting = self.waiting(class);
        let direction = self.settings.direction(waiting, &mut self.starved)?;
        let oldest = self.staged.fifo(2 * class + direction).oldest;
        let expired = now >= self.staged.node(oldest).deadline;
        let next = if expired { None } else { self.next(class, direction) };
        self.last_direction = direction;
        self.batching = 0;
        Some(next.unwrap_or(oldest))
    }

    /// The choice of an ageing pass goes only if it has waited long enough. The pass happens also
    /// when it does not, and what it changed stays changed (docs/behaviour/mq-deadline.md, section
    /// 4, quirk Q3).
    fn choose_aged(&mut self, class: usize, now: Nanos) -> Option<SchedTag> {
        let chosen = self.choose(class, now)?;
        let latest = now.0.checked_sub(self.prio_aging_expire_ns)?;
        (self.staged.node(chosen).arrived.0 <= latest).then_some(chosen)
    }

    fn select(&mut self, now: Nanos) -> Option<SchedTag> {
        if self.is_shared() {
            for class in [BEST_EFFORT, IDLE] {
                if let Some(chosen) = self.choose_aged(class, now) {
                    return Some(chosen);
                }
            }
        }
        for class in REAL_TIME..CLASSES {
            // Nothing of it is staged either then, so there is nothing to choose.
            if self.classes[class].queued() != 0 {
                return self.choose(class, now);
            }
        }
        None
    }

    /// The class that has all there is staged or in flight, if it is one alone.
    #[inline]
    fn only_class(&self) -> Option<usize> {
        let queued = self.classes.each_ref().map(|class| class.queued() != 0);
        let only = queued.iter().filter(|queued| **queued).count() == 1;
        queued.iter().position(|queued| *queued && only)
    }

    /// Whether several classes have requests staged or in flight.
    #[inline]
    fn is_shared(&self) -> bool {
        self.classes.iter().filter(|class| class.queued() != 0).count() > 1
    }

    /// The next request to go.
    fn pick(&mut self, now: Nanos) -> Option<SchedTag> {
        self.held_at = None;
        let chosen = self.select(now);
        match chosen {
            Some(chosen) => self.serve(chosen),
            None if self.staged.len() > 0 => self.held_at = Some(now),
            None => {}
        }
        chosen
    }

    /// As [`pick`](MqDeadline::pick) again and again, while all there is belongs to one class:
    /// nothing comes between, so behind the last request in sector order is
    /// the next.
    fn pick_of(&mut self, class: usize, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        let mut left = max;
        while left > 0 {
            let Some(chosen) = self.choose(class, now) else { return };
            let batch = self.settings.fifo_batch.saturating_sub(self.batching).max(1) as usize;
            let taken = self.staged.unlink_run(chosen, batch.min(left), out);
            left -= taken;
            self.batching = self.batching.saturating_add(taken as u32);
            let tally = &mut self.classes[class];
            tally.position[self.last_direction] = out.last().expect("one at least").sector;
            tally.dispatched = tally.dispatched.wrapping_add(taken as u32);
        }
    }

    /// As [`pick_of`](MqDeadline::pick_of) where one request is all there is staged: it goes. Which
    /// batch it is of, its direction and its sector say, and that is chance: so no branch.
    fn pick_only(&mut self, class: usize, out: &mut Vec<Rq>) {
        let [read, write] = [READ, WRITE].map(|of| self.staged.fifo(2 * class + of).oldest);
        let writes = read == SchedTag::NONE;
        let (tag, direction) = (if writes { write } else { read }, usize::from(writes));
        let rq = *self.staged.unlink(tag);
        let tally = &mut self.classes[class];
        let goes_on = (self.batching < self.settings.fifo_batch)
            & (direction == self.last_direction)
            & (rq.sector >= tally.position[direction]);
        let before = if goes_on { self.batching } else { 0 };
        self.batching = before.saturating_add(1);
        // Reads have gone before a write only as long as that write is staged.
        debug_assert!(writes | (self.starved == 0));
        self.starved = 0;
        self.last_direction = direction;
        tally.position[direction] = rq.sector;
        tally.dispatched = tally.dispatched.wrapping_add(1);
        out.push(rq);
    }

    fn serve(&mut self, chosen: SchedTag) {
        self.batching = self.batching.saturating_add(1);
        self.staged.unlink(chosen);
        self.leaves(chosen);
    }

    fn leaves(&mut self, tag: SchedTag) {
        let Node { rq, band, .. } = self.staged.node(tag);
        let class = &mut self.classes[usize::from(band / 2)];
        class.position[usize::from(band % 2)] = rq.sector;
        class.dispatched = class.dispatched.wrapping_add(1);
    }

    /// Counts the requests that a merge or an insert made disappear.
    fn count_gone(&mut self, merge: Merge, absorbed: &[(SchedTag, SchedTag)]) {
        if let Merge::BackJoined { gone, .. } | Merge::FrontJoined { gone, .. } = merge {
            self.count_merged(gone);
        }
        absorbed.iter().for_each(|(_, gone)| self.count_merged(*gone));
    }

    fn count_merged(&mut self, gone: SchedTag) {
        let class = usize::from(self.staged.node(gone).band / 2);
        self.classes[class].merged = self.classes[class].merged.wrapping_add(1);
        self.count_completed(gone);
    }

    #[inline]
    fn count_completed(&mut self, gone: SchedTag) {
        let class = &mut self.classes[usize::from(self.staged.node(gone).band / 2)];
        class.completed = class.completed.wrapping_add(1);
    }

    /// When the next staged request of a band has aged that had not at `seen`.
    fn ages_at(&self, band: usize, seen: Nanos) -> Option<Nanos> {
        // By age: merges leave a request's time of arrival at its place in the FIFO.
        let mut at = self.staged.fifo(band).oldest;
        while at != SchedTag::NONE {
            let node = self.staged.node(at);
            let aged_at = node.arrived + self.prio_aging_expire_ns;
            if aged_at > seen {
                return Some(aged_at);
            }
            at = node.newer;
        }
        None
    }
}

impl Scheduler for MqDeadline {
    fn name(&self) -> &'static str {
        "mq-deadline"
    }

    fn merge(&mut self, bio: &Rq, _now: Nanos) -> Merge {
        let merge = self.staged.merge(bio, band_of(bio));
        self.count_gone(merge, &[]);
        merge
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        let band = band_of(&rq);
        let class = &mut self.classes[band / 2];
        class.inserted = class.inserted.wrapping_add(1);
        let expire_ns = self.settings.expire_ns[band % 2];
        let before = absorbed.len();
        self.staged.insert(rq, Arrival { band, now, expire_ns }, absorbed);
        self.count_gone(Merge::No, &absorbed[before..]);
    }

    fn stage_batch(&mut self, batch: &[Rq], now: Nanos, absorbed: &mut Absorbed) -> (usize, Merge) {
        for (before, rq) in batch.iter().enumerate() {
            let band = band_of(rq);
            let expire_ns = self.settings.expire_ns[band % 2];
            let arrival = Arrival { band, now, expire_ns };
            let merge = self.staged.merge_or_insert(rq, arrival, absorbed);
            if merge == Merge::No {
                let class = &mut self.classes[band / 2];
                class.inserted = class.inserted.wrapping_add(1);
            }
            if merge != Merge::No || !absorbed.is_empty() {
                self.count_gone(merge, absorbed);
                return (before + 1, merge);
            }
        }
        (batch.len(), Merge::No)
    }

    fn dispatch(&mut self, _hard_queue: u16, now: Nanos) -> Option<Rq> {
        self.pick(now).map(|tag| self.staged.node(tag).rq)
    }

    fn dispatch_batch(&mut self, _hard_queue: u16, max: usize, out: &mut Vec<Rq>, now: Nanos) {
        if max == 0 {
            return;
        }
        if let Some(class) = self.only_class() {
            self.held_at = None;
            if self.staged.len() == 1 {
                self.pick_only(class, out);
            } else {
                self.pick_of(class, max, out, now);
            }
            return;
        }
        for _ in 0..max {
            let Some(tag) = self.pick(now) else { return };
            out.push(self.staged.node(tag).rq);
        }
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        out.extend(self.staged.tags().into_iter().map(|tag| self.take_out(tag, now)));
    }

    fn ended(&mut self, end: &Ended, _now: Nanos) {
        self.count_completed(end.tag);
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    /// When a request of a lower class ages, if the last answer was that none may go. A request
    /// that ages while the driver takes nothing needs no wake: the next completion asks again.
    fn wake_at(&self) -> Option<Nanos> {
        let seen = self.held_at.filter(|_| self.is_shared())?;
        (2 * BEST_EFFORT..2 * CLASSES).filter_map(|band| self.ages_at(band, seen)).min()
    }

    fn on_timer(&mut self, now: Nanos) {
        self.held_at = self.held_at.map(|held_at| held_at.max(now));
    }

    /// Reads always get a tag; all else, synchronous or not, shares `async_depth`.
    fn depth_limit(&self, op: Op, sync: bool, _context: SubmitterId) -> Option<u16> {
        let limited = op.is_write() || !sync && op != Op::Read;
        match self.depth_rule(&[], Nanos::ZERO) {
            DepthRule::Writes(depth) if limited => Some(depth),
            _ => None,
        }
    }

    fn depth_rule(&self, _batch: &[Rq], _now: Nanos) -> DepthRule {
        match u16::try_from(self.async_depth) {
            Ok(depth) if depth < self.nr_requests => DepthRule::Writes(depth),
            _ => DepthRule::Free,
        }
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.staged.resize(nr_requests);
        self.nr_requests = nr_requests;
        self.async_depth = u32::from(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.staged.limits_changed(limits, nomerges);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        self
    }
}

impl Replay for MqDeadline {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Rq {
        let mut trial = self.clone();
        if let Some(rq) = trial.dispatch(0, now).filter(|rq| rq.tag == tag) {
            *self = trial;
            return rq;
        }
        // Not what the batch goes on with, so a new batch begins with it.
        let band = usize::from(self.staged.node(tag).band);
        let waiting = self.waiting(band / 2);
        self.settings.force_direction(band % 2, waiting, &mut self.starved);
        self.last_direction = band % 2;
        self.batching = 0;
        self.serve(tag);
        self.staged.node(tag).rq
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        self.staged.join_bio(tag, bio, side);
    }
}

impl Deadlines for MqDeadline {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    fn set_front_merges(&mut self, wanted: bool) {
        self.staged.front_merges = wanted;
    }
}

impl Tuned for MqDeadline {
    const ROWS: &'static [Row<MqDeadline>] = &ROWS;
    const TABLE: &'static [Tunable] = TUNABLES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::tests::{Inspect, bands_agree, batches_are_sweeps, request, setup};
    use weir_bio::{IoPrio, Prng};

    impl Inspect for MqDeadline {
        fn bands(&mut self) -> Vec<(Vec<SchedTag>, Vec<SchedTag>)> {
            (0..2 * CLASSES).map(|band| self.staged.band(band)).collect()
        }

        fn batching(&self) -> u32 {
            self.batching
        }
    }

    #[test]
    fn orders_and_fifos_hold_the_same_requests() {
        bands_agree(|| MqDeadline::new(&setup()), |_| SchedTag::NONE);
    }

    #[test]
    fn within_a_batch_the_direction_stays_and_sectors_never_go_down() {
        batches_are_sweeps(MqDeadline::new);
    }

    #[test]
    fn a_request_that_is_alone_goes_as_the_first_of_several_does() {
        for seed in 0..500 {
            println!("seed {seed}");
            let mut prng = Prng::new(seed);
            let mut single = MqDeadline::new(&setup());
            single.settings.fifo_batch = prng.below(5) as u32;
            let mut lone = single.clone();
            let mut free: Vec<_> = (0..setup().nr_requests).map(SchedTag).collect();
            for ms in 0..200 {
                let now = Nanos::from_ms(ms * (1 + prng.below(9)));
                for _ in 0..[0, 1, 1, 1, 2][prng.below(5) as usize] {
                    let Some(tag) = free.pop() else { break };
                    // Mostly of one class: another one's batch may go on in this one.
                    let sector = 64 * prng.below(99);
                    let ioprio = IoPrio::new(Class::BestEffort, 0);
                    let rq = Rq { sector, ..request(&mut prng, tag) };
                    let rq = if prng.percent(90) { Rq { ioprio, ..rq } } else { rq };
                    single.insert(rq, now, &mut Absorbed::new());
                    let staged = lone.stage_batch(&[rq], now, &mut Absorbed::new());
                    assert_eq!(staged, (1, Merge::No));
                }
                let mut picked = Vec::new();
                lone.dispatch_batch(0, 1, &mut picked, now);
                assert_eq!(single.dispatch(0, now), picked.first().copied());
                for rq in picked {
                    single.ended(&Ended::untimed(rq.tag), now);
                    lone.ended(&Ended::untimed(rq.tag), now);
                    free.push(rq.tag);
                }
                assert_eq!(single.figures(), lone.figures());
                assert_eq!(single.last_direction, lone.last_direction);
                let positions = |of: &MqDeadline| of.classes.map(|class| class.position);
                assert_eq!(positions(&single), positions(&lone));
            }
        }
    }
}
