//! The driver of a simulated device: it hands commands to the engine, which starts them on the
//! modelled disk when the processor that sends them has come so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Flags, Limits, Nanos, SECTOR, Status};
use weir_queue::{Affinity, Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag};
use weir_sim_disk::{Job, Spec};

/// Hard queues of a device at most.
pub(crate) const QUEUES_MAX: u16 = 256;

/// One hard queue's side towards the engine.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// Commands sent and not yet started.
    pub(crate) sent: Vec<Job>,
    /// Tags of commands that have ended and were not reaped.
    pub(crate) ended: Vec<u16>,
}

/// The engine and a driver queue run in one thread: the lock is never waited for.
pub(crate) type SharedPort = Arc<Mutex<Port>>;

pub(crate) fn lock(port: &SharedPort) -> MutexGuard<'_, Port> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lane and the tag that a command's name holds.
pub(crate) fn split_name(id: u32) -> (usize, u16) {
    ((id >> 16) as usize, id as u16)
}

/// A device whose times are a model's.
pub(crate) struct SimDriver {
    spec: Spec,
    ports: Vec<SharedPort>,
    /// The number of its first lane.
    lanes_from: usize,
}

impl SimDriver {
    pub(crate) fn new(spec: Spec, queues: u16, lanes_from: usize) -> SimDriver {
        SimDriver { spec, ports: (0..queues).map(|_| SharedPort::default()).collect(), lanes_from }
    }

    pub(crate) fn port(&self, index: usize) -> SharedPort {
        Arc::clone(&self.ports[index])
    }
}

impl Driver for SimDriver {
    fn limits(&self) -> Limits {
        Limits {
            capacity: self.spec.size / SECTOR,
            rotational: self.spec.rotational,
            volatile_cache: self.spec.has_volatile_cache(),
            // The bound of one command is the user's, as max_sectors of Linux is.
            max_hw_sectors: self.spec.command_sectors().unwrap_or(u32::MAX).min(1 << 17),
            ..Limits::default()
        }
    }

    fn queues(&self) -> Queues {
        let (max, depth) = (QUEUES_MAX, self.spec.depth);
        Queues { max, depth, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let port = self.port(usize::from(index));
        let lane = (self.lanes_from + usize::from(index)) as u32;
        Ok(Box::new(SimQueue { lane, port, tags: vec![None; usize::from(depth)], in_flight: 0 }))
    }
}

struct SimQueue {
    lane: u32,
    port: SharedPort,
    tags: Vec<Option<Tag>>,
    in_flight: usize,
}

impl DriverQueue for SimQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        let mut port = lock(&self.port);
        while let Some((tag, request)) = batch.peek() {
            port.sent.push(Job {
                id: self.lane << 16 | u32::from(tag.0),
                op: request.op(),
                sector: request.offset() / SECTOR,
                sectors: (request.len() / SECTOR) as u32,
                fua: request.flags().has(Flags::FUA),
            });
            self.tags[usize::from(tag.0)] = Some(tag);
            self.in_flight += 1;
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {}

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut port = lock(&self.port);
        for number in &port.ended {
            let tag = self.tags[usize::from(*number)].take().expect("a command ends once");
            done.push(tag, Status::Ok);
        }
        self.in_flight -= port.ended.len();
        port.ended.clear();
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
