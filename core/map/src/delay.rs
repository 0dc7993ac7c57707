//! Delay: I/O that reaches a disk late, by a time of its own for reads, writes and flushes
//! (docs/behaviour/mapped.md, section 4).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::{Limits, Nanos, Op, Rq, WriteCache};
use weir_queue::{
    Backing, Batch, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, MapControl,
    OpenedBacking, Queues, Tag, TargetKind, Wake,
};

use crate::layout::{Area, Layout, Piece, Place, Shape};
use crate::limits::stacked;
use crate::mapped::{queues_over, write_cache_over};
use crate::outgoing::{Outgoing, Route};
use crate::over::{alike_over_disks, failed, not_open, of_multipath};
use crate::table::{Row, check_areas, number};

/// Where the I/O of a class goes, and how late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    place: Place,
    ms: u32,
}

/// The classes: reads, writes, and flushes.
const READS: usize = 0;
const WRITES: usize = 1;
const FLUSHES: usize = 2;

/// A line of a table whose type is `delay`.
#[derive(Clone, Debug)]
struct Delays {
    sectors: u64,
    names: Vec<String>,
    classes: [Class; 3],
    /// Sets of arguments: 1 to 3.
    sets: usize,
}

/// Reads a line of type `delay`: `DISK OFFSET MS`, once for all I/O, twice for reads and for
/// others, or three times for reads, writes and flushes.
///
/// # Errors
/// The value that is wrong, and its bound.
pub(crate) fn parse(row: &Row, kind: &'static TargetKind) -> Result<Box<dyn Backing>, String> {
    let words: Vec<&str> = row.arguments.split(' ').filter(|word| !word.is_empty()).collect();
    if !matches!(words.len(), 3 | 6 | 9) {
        return Err(format!("delay has {} arguments, not 3, 6 or 9", words.len()));
    }
    let mut names: Vec<String> = Vec::new();
    let mut sets = Vec::new();
    for set in words.chunks(3) {
        let known = names.iter().position(|name| name == set[0]);
        let leg = known.unwrap_or_else(|| {
            names.push(String::from(set[0]));
            names.len() - 1
        });
        let offset = number("offset", Some(set[1]), 0, u64::MAX)?;
        let ms = number("delay", Some(set[2]), 0, u32::MAX.into())? as u32;
        sets.push(Class { place: Place { leg, offset }, ms });
    }
    let writes = sets.get(1).copied().unwrap_or(sets[0]);
    let classes = [sets[0], writes, sets.get(2).copied().unwrap_or(writes)];
    let delays = Delays { sectors: row.sectors, names, classes, sets: sets.len() };
    Ok(Box::new(DelayTarget { delays, kind }))
}

#[derive(Clone)]
struct DelayTarget {
    delays: Delays,
    kind: &'static TargetKind,
}

impl fmt::Debug for DelayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.delays.fmt(f)
    }
}

impl Backing for DelayTarget {
    fn kind(&self) -> &'static TargetKind {
        self.kind
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        Err(of_multipath(option, value))
    }

    fn legs(&self) -> Vec<String> {
        self.delays.names.clone()
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Err(not_open(&self.delays.names))
    }

    fn open_over(&self, _config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let limits: Vec<Limits> = legs.iter().map(Device::limits).collect();
        let names: Vec<&str> = legs.iter().map(|leg| leg.config().name.as_str()).collect();
        let area = |class: &Class| Area {
            start: 0,
            sectors: self.delays.sectors,
            shape: Shape::Linear(class.place),
        };
        let areas: Vec<Area> = self.delays.classes.iter().map(area).collect();
        check_areas(&areas, &limits, &names).map_err(failed)?;
        // Of the limits only those of atomic writes depend on a place, which is that of writes.
        let limits = stacked(&Layout::new(vec![areas[WRITES].clone()]), &limits);
        let state = Arc::new(State { delays: self.delays.clone(), waiting: Default::default() });
        let driver = Delay { state: Arc::clone(&state), legs: legs.to_vec(), limits };
        let (driver, map): (_, Arc<dyn MapControl>) = (Arc::new(driver), state);
        Ok(OpenedBacking { map: Some(map), ..OpenedBacking::over(driver) })
    }

    alike_over_disks!();
}

struct State {
    delays: Delays,
    /// Bios in delay, by class.
    waiting: [AtomicU64; 3],
}

impl MapControl for State {
    fn table(&self) -> String {
        let Delays { sectors, names, classes, sets } = &self.delays;
        let set = |class: &Class| {
            let Class { place, ms } = class;
            format!(" {} {} {ms}", names[place.leg], place.offset)
        };
        let sets: String = classes[..*sets].iter().map(set).collect();
        format!("0 {sectors} delay{sets}\n")
    }

    fn status(&self) -> String {
        let [reads, writes, flushes] =
            self.waiting.each_ref().map(|count| count.load(Ordering::Relaxed));
        format!("0 {} delay {reads} {writes} {flushes}\n", self.delays.sectors)
    }

    fn message(&self, text: &str, _now: Nanos) -> Result<(), String> {
        Err(format!("message {text:?}: a delay takes no messages"))
    }
}

/// The driver.
struct Delay {
    state: Arc<State>,
    legs: Vec<Device>,
    limits: Limits,
}

impl Driver for Delay {
    fn is_bio_based(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn write_cache(&self) -> WriteCache {
        write_cache_over(&self.legs)
    }

    fn queues(&self) -> Queues {
        queues_over(&self.legs)
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let outgoing = Outgoing::open(&self.legs, index, depth)?;
        let route = DelayRoute { state: Arc::clone(&self.state), legs: self.legs.len() };
        Ok(Box::new(DelayQueue { outgoing, route }))
    }
}

struct DelayRoute {
    state: Arc<State>,
    legs: usize,
}

impl DelayRoute {
    fn piece(&self, rq: &Rq, sector: u64, sectors: u32) -> Piece {
        let place = self.state.delays.classes[class_of(rq)].place;
        Piece { leg: place.leg, sector: place.offset + sector, sectors }
    }
}

fn class_of(rq: &Rq) -> usize {
    match rq.op {
        Op::Flush => FLUSHES,
        op if op.is_write() => WRITES,
        _ => READS,
    }
}

impl Route for DelayRoute {
    fn front(&mut self, rq: &Rq, sector: u64, sectors: u32) -> Piece {
        self.count(rq);
        self.piece(rq, sector, sectors)
    }

    fn ranges(&mut self, rq: &Rq, visit: &mut dyn FnMut(Piece)) {
        self.count(rq);
        visit(self.piece(rq, rq.sector, rq.sectors));
    }

    fn flush(&mut self, visit: &mut dyn FnMut(usize)) {
        let waiting = &self.state.waiting[FLUSHES];
        // What was written by way of any class has to be durable.
        for leg in 0..self.legs {
            waiting.fetch_add(1, Ordering::Relaxed);
            visit(leg);
        }
    }

    fn hold(&self, rq: &Rq) -> Option<(usize, u64)> {
        let class = class_of(rq);
        Some((class, u64::from(self.state.delays.classes[class].ms) * 1_000_000))
    }
}

impl DelayRoute {
    fn count(&self, rq: &Rq) {
        self.state.waiting[class_of(rq)].fetch_add(1, Ordering::Relaxed);
    }

    fn uncount(&self, class: usize) {
        self.state.waiting[class].fetch_sub(1, Ordering::Relaxed);
    }
}

struct DelayQueue {
    outgoing: Outgoing,
    route: DelayRoute,
}

impl DriverQueue for DelayQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.outgoing.submit(batch, &mut self.route, now);
    }

    fn commit(&mut self, now: Nanos) {
        let DelayQueue { outgoing, route } = self;
        outgoing.send_held(now, |class| route.uncount(class));
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.outgoing.at_home(lane);
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let DelayQueue { outgoing, route } = self;
        outgoing.send_held(now, |class| route.uncount(class));
        outgoing.reap(now, done);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        let DelayQueue { outgoing, route } = self;
        outgoing.drop_held(tag, |class| route.uncount(class));
        outgoing.cancel(tag);
        outgoing.wake();
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.outgoing.held_until()
    }

    fn in_flight(&self) -> usize {
        self.outgoing.in_flight()
    }
}
