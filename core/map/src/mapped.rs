//! The driver of a layout: linear, striped, or areas of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_bio::{Flags, Limits, Nanos, Rq, Status, WriteCache};
use weir_queue::{
    Affinity, Batch, Cancel, Device, Done, Driver, DriverError, DriverQueue, EXTENTS_MAX, Extent,
    MapControl, NoticeListener, Notices, Queues, Speaker, Tag, Wake,
};

use crate::layout::{ERROR, Layout, Piece, ZERO};
use crate::limits::stacked;
use crate::outgoing::{Outgoing, Route};
use crate::table::{status_text, table_text};

/// A device whose sectors lie on others as a layout says.
///
/// It has no order and no limit of its own: that is the queue's above and the legs' below.
pub struct Mapped {
    layout: Arc<Layout>,
    legs: Vec<Device>,
    limits: Limits,
    faults: Arc<Faults>,
}

/// The errors of the legs, by number.
struct Faults {
    counts: Vec<AtomicU32>,
    names: Vec<String>,
    notices: Notices,
}

/// Errors of a leg that are told, as dm raises an event for so many of a stripe.
const FAULTS_TOLD: u32 = 15;

impl Faults {
    /// A bio of this leg has ended with an error. One of read-ahead says nothing of the leg, nor
    /// does an op that it has not.
    #[cold]
    fn count(&self, leg: usize, status: Status, flags: Flags) {
        if flags.has(Flags::RAHEAD) || matches!(status, Status::NotSupp | Status::Again) {
            return;
        }
        let before = self.counts[leg].fetch_add(1, Ordering::Relaxed);
        if before < FAULTS_TOLD {
            let last = if before + 1 == FAULTS_TOLD { "; further ones are not told" } else { "" };
            self.notices.add(format!("its disk {}: {status}{last}", self.names[leg]));
        }
    }
}

/// Fewest and most tags of a queue: the default of all drivers, and that of dm_mq_queue_depth.
const DEPTH: std::ops::RangeInclusive<u32> = 128..=2048;

impl Mapped {
    /// A device over `legs`, of which the layout knows no further one.
    #[must_use]
    pub fn new(layout: Layout, legs: Vec<Device>) -> Mapped {
        let limits: Vec<Limits> = legs.iter().map(Device::limits).collect();
        let limits = stacked(&layout, &limits);
        let counts = legs.iter().map(|_| AtomicU32::new(0)).collect();
        let names = legs.iter().map(|leg| leg.config().name.clone()).collect();
        let faults = Arc::new(Faults { counts, names, notices: Notices::default() });
        Mapped { layout: Arc::new(layout), legs, limits, faults }
    }

    /// Where its notices come from: the errors of its legs.
    #[must_use]
    pub fn speaker(&self) -> Box<dyn Speaker> {
        Box::new(FaultSpeaker(Arc::clone(&self.faults)))
    }

    /// What it is asked while it runs.
    #[must_use]
    pub fn control(&self) -> Arc<dyn MapControl> {
        Arc::new(LayoutControl {
            layout: Arc::clone(&self.layout),
            faults: Arc::clone(&self.faults),
        })
    }

    /// Where its sectors lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn extents_of(&self, piece: Piece) -> Result<Vec<Extent>, DriverError> {
        let sectors = u64::from(piece.sectors);
        match piece.leg {
            ZERO => Ok(vec![Extent { sectors, hole: true, zero: true }]),
            // A reader finds the error where it takes this for data.
            ERROR => Ok(vec![Extent { sectors, hole: false, zero: false }]),
            leg => self.legs[leg]
                .allocation(piece.sector, sectors)
                .map_err(|error| DriverError { what: error.to_string(), source: None }),
        }
    }
}

struct FaultSpeaker(Arc<Faults>);

impl Speaker for FaultSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.notices.listen(listener);
    }
}

struct LayoutControl {
    layout: Arc<Layout>,
    faults: Arc<Faults>,
}

impl MapControl for LayoutControl {
    fn table(&self) -> String {
        table_text(&self.layout, &self.faults.names)
    }

    fn status(&self) -> String {
        let has_failed = |leg: usize| self.faults.counts[leg].load(Ordering::Relaxed) > 0;
        status_text(&self.layout, &self.faults.names, has_failed)
    }

    fn message(&self, text: &str, _now: Nanos) -> Result<(), String> {
        Err(format!("message {text:?}: linear, striped, zero and error lines take no messages"))
    }
}

/// The tags of a mapper's queue: as many as those of its legs together, so that it holds nothing
/// back that a leg could take.
pub(crate) fn queues_over(legs: &[Device]) -> Queues {
    let depth = legs.iter().map(|leg| u32::from(leg.depth())).sum::<u32>();
    let depth = depth.clamp(*DEPTH.start(), *DEPTH.end()) as u16;
    Queues { max: u16::MAX, depth, reserved: 0, shared_tags: false, home: Affinity::Any }
}

/// The write cache of a device over `legs`, as they are set now: what one of them has, all have.
pub(crate) fn write_cache_over(legs: &[Device]) -> WriteCache {
    let each = legs.iter().map(|leg| leg.limits().write_cache());
    each.fold(WriteCache::default(), |all, leg| WriteCache {
        volatile: all.volatile | leg.volatile,
        fua: all.fua | leg.fua,
    })
}

impl Driver for Mapped {
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
        let route = LayoutRoute { layout: Arc::clone(&self.layout), legs: self.legs.len() };
        Ok(Box::new(MappedQueue { outgoing, route, faults: Arc::clone(&self.faults) }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (sector, sector + sectors);
        while at < end && extents.len() < EXTENTS_MAX {
            let most = u32::try_from(end - at).unwrap_or(u32::MAX);
            let found = self.extents_of(self.layout.front(at, most))?;
            for extent in found {
                at += extent.sectors;
                match extents.last_mut() {
                    Some(last) if (last.hole, last.zero) == (extent.hole, extent.zero) => {
                        last.sectors += extent.sectors;
                    }
                    _ => extents.push(extent),
                }
            }
        }
        extents.truncate(EXTENTS_MAX);
        Ok(extents)
    }
}

struct MappedQueue {
    outgoing: Outgoing,
    route: LayoutRoute,
    faults: Arc<Faults>,
}

struct LayoutRoute {
    layout: Arc<Layout>,
    legs: usize,
}

impl Route for LayoutRoute {
    #[inline(always)]
    fn front(&mut self, _rq: &Rq, sector: u64, sectors: u32) -> Piece {
        self.layout.front(sector, sectors)
    }

    fn ranges(&mut self, rq: &Rq, visit: &mut dyn FnMut(Piece)) {
        self.layout.ranges(rq.sector, rq.sectors, visit);
    }

    fn flush(&mut self, visit: &mut dyn FnMut(usize)) {
        (0..self.legs).for_each(visit);
    }
}

impl DriverQueue for MappedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.outgoing.submit(batch, &mut self.route, now);
    }

    fn commit(&mut self, now: Nanos) {
        self.outgoing.commit(now);
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.outgoing.at_home(lane);
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let MappedQueue { outgoing, faults, .. } = self;
        outgoing.reap_seeing(now, done, |leg, end, rq| {
            if !end.status.is_ok() {
                faults.count(leg, end.status, rq.flags);
            }
        });
        outgoing.answer(done);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.outgoing.cancel(tag)
    }

    fn in_flight(&self) -> usize {
        self.outgoing.in_flight()
    }
}
