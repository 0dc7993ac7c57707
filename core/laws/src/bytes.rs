//! A device of bytes that answers when it is told to. A read sees what has landed when it is
//! answered, and a write lands then.

use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Buf, Data, Flags, Limits, Nanos, Op, SECTOR, Status};
use weir_queue::driver::Affinity;
use weir_queue::{Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag};

/// The device's contents and behaviour.
#[derive(Default)]
pub struct World {
    /// Its contents.
    pub bytes: Vec<u8>,
    /// Ops that are taken and not answered.
    pub withheld: Vec<Op>,
    /// Ops that fail.
    pub failing: Vec<(Op, Status)>,
    /// Requests that arrived: op, sector, sectors, flags.
    pub log: Vec<(Op, u64, u32, Flags)>,
    flying: Vec<Flight>,
}

struct Flight {
    lane: u16,
    tag: Tag,
    op: Op,
    sector: u64,
    lent: Vec<Data>,
}

/// The driver.
pub struct Bytes {
    world: Arc<Mutex<World>>,
    limits: Limits,
    depth: u16,
    home: Affinity,
}

impl Bytes {
    /// A device of zeros with queues of so many tags.
    pub fn new(limits: Limits, depth: u16, home: Affinity) -> Arc<Bytes> {
        let bytes = vec![0; (limits.capacity * SECTOR) as usize];
        let world = Arc::new(Mutex::new(World { bytes, ..World::default() }));
        Arc::new(Bytes { world, limits, depth, home })
    }

    /// Its state, until the guard is dropped.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the device's lock")
    }

    /// Ops and sectors that arrived since last asked.
    pub fn arrived(&self) -> Vec<(Op, u64, u32)> {
        let log = std::mem::take(&mut self.world().log);
        log.into_iter().map(|(op, sector, sectors, _)| (op, sector, sectors)).collect()
    }
}

impl Driver for Bytes {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        Queues { max: 8, depth: self.depth, reserved: 0, shared_tags: false, home: self.home }
    }

    fn open(&self, index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(BytesQueue { world: Arc::clone(&self.world), lane: index }))
    }
}

struct BytesQueue {
    world: Arc<Mutex<World>>,
    lane: u16,
}

impl World {
    /// Lanes whose next reap finds something.
    pub fn has_answers(&self) -> Vec<usize> {
        let ready = self.flying.iter().filter(|flight| !self.withheld.contains(&flight.op));
        ready.map(|flight| usize::from(flight.lane)).collect()
    }

    fn carry_out(&mut self, flight: &mut Flight) {
        let mut at = (flight.sector * SECTOR) as usize;
        for data in &mut flight.lent {
            let place = &mut self.bytes[at..at + data.len()];
            match flight.op {
                Op::Read => data.copy_from_at(0, place),
                _ => data.copy_to(place),
            }
            at += data.len();
        }
    }
}

impl DriverQueue for BytesQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        let lane = self.lane;
        let mut world = self.world.lock().expect("the device's lock");
        batch.take_all(|tag, request| {
            let rq = *request.rq();
            let mut lent = Vec::new();
            request.lend(&mut lent);
            world.log.push((rq.op, rq.sector, rq.sectors, rq.flags));
            world.flying.push(Flight { lane, tag, op: rq.op, sector: rq.sector, lent });
        });
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut world = self.world.lock().expect("the device's lock");
        let mut flying = std::mem::take(&mut world.flying);
        let withheld = world.withheld.clone();
        let answered =
            |flight: &mut Flight| flight.lane == self.lane && !withheld.contains(&flight.op);
        for mut flight in flying.extract_if(.., answered) {
            let failing = world.failing.iter().find(|(op, _)| *op == flight.op);
            let status = failing.map_or(Status::Ok, |(_, status)| *status);
            if status.is_ok() {
                world.carry_out(&mut flight);
            }
            done.push_lent(flight.tag, status, &mut flight.lent);
        }
        world.flying = flying;
    }

    fn wake_at(&self) -> Option<Nanos> {
        Some(Nanos(u64::MAX))
    }

    fn in_flight(&self) -> usize {
        let world = self.world.lock().expect("the device's lock");
        world.flying.iter().filter(|flight| flight.lane == self.lane).count()
    }
}

/// A write of `bytes` at byte `offset` as a patch of whole blocks: its first sector, its memory,
/// and the bytes kept at either end. The memory that is to be kept holds rubbish.
pub fn patch(offset: u64, bytes: &[u8], block: u32) -> (u64, Data, weir_queue::Kept) {
    let block = u64::from(block);
    let (start, end) = (offset / block * block, offset + bytes.len() as u64);
    let whole = end.next_multiple_of(block);
    let lead = (offset - start) as usize;
    let mut buf = Buf::filled((whole - start) as usize, |memory| memory.fill(0xee));
    buf[lead..lead + bytes.len()].copy_from_slice(bytes);
    let kept = weir_queue::Kept { lead: lead as u32, trail: (whole - end) as u32 };
    (start / SECTOR, Data::One(buf), kept)
}
