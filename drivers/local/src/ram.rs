//! The RAM driver: sparse memory that answers at the next reap.
//!
//! The bytes are copied inside `submit`, so a request is served by the thread that submits it and
//! no memory is ever lent. There is no cache and nothing survives the process; [`CrashRam`] is the
//! variant with a volatile cache and a simulated power loss.

pub mod crash;
mod ledger;
mod store;

use std::sync::Arc;

use weir_bio::{Data, Flags, Limits, Nanos, Op, SECTOR, Status};
use weir_queue::{
    Affinity, Batch, Done, Driver, DriverError, DriverQueue, Extent, Queues, Request, Tag,
};

/// Largest discard or write-zeroes, and what is zeroed in a turn, sectors: 4 MiB. The memory is
/// filled or freed by the thread that submits, which others wait for.
const ZEROES_SECTORS_MAX: u32 = 8192;

pub use crash::{Cache, Crash, CrashRam};
pub use store::{NoMemory, Store};

/// A device in memory.
#[derive(Debug)]
pub struct Ram {
    store: Arc<Store>,
    depth: u16,
}

impl Ram {
    /// A device of `bytes` bytes that reads as zeros.
    ///
    /// # Errors
    /// When `bytes` is 0, not a whole number of sectors, or above [`Store::BYTES_MAX`].
    pub fn new(bytes: u64) -> Result<Ram, DriverError> {
        Ok(Ram { store: Arc::new(Store::new(bytes)?), depth: crate::DEPTH })
    }

    /// The same with `depth` tags per queue, at least 1.
    #[must_use]
    pub fn depth(self, depth: u16) -> Ram {
        Ram { depth: depth.max(1), ..self }
    }
}

impl Driver for Ram {
    fn limits(&self) -> Limits {
        Limits {
            max_hw_discard_sectors: ZEROES_SECTORS_MAX,
            max_write_zeroes_sectors: ZEROES_SECTORS_MAX,
            ..Limits::of_memory(self.store.capacity())
        }
    }

    fn queues(&self) -> Queues {
        Queues {
            max: u16::MAX,
            depth: self.depth,
            reserved: 0,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    fn open(&self, _index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let taken = Vec::with_capacity(usize::from(depth));
        Ok(Box::new(RamQueue { store: Arc::clone(&self.store), taken, zeroed: 0 }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        Ok(self.store.allocation(sector, sectors))
    }
}

/// A queue of [`Ram`].
struct RamQueue {
    store: Arc<Store>,
    taken: Vec<(Tag, Status)>,
    /// Sectors zeroed since answers were last handed over.
    zeroed: u32,
}

impl DriverQueue for RamQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            if let Op::Discard | Op::WriteZeroes = request.op() {
                let sectors = (request.len() / SECTOR) as u32;
                if self.zeroed > 0 && self.zeroed + sectors > ZEROES_SECTORS_MAX {
                    // Other lanes of this thread have their turn before the next answers.
                    return batch.refuse(Status::DevResource);
                }
                self.zeroed += sectors;
            }
            self.taken.push((tag, serve(&self.store, request)));
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        for (tag, status) in self.taken.drain(..) {
            done.push(tag, status);
        }
        self.zeroed = 0;
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

/// Does on the store what the request asks.
fn serve(store: &Store, request: &mut Request) -> Status {
    let (at, len) = (request.offset(), request.len());
    let done = match request.op() {
        Op::Read => {
            read(store, at, len, request);
            Ok(())
        }
        Op::Write => write(store, at, request),
        Op::Discard => store.zero(at, len, false),
        Op::WriteZeroes => store.zero(at, len, request.flags().has(Flags::NOUNMAP)),
        // There is no cache to flush, and nothing is faster than memory already is.
        Op::Flush | Op::Prefetch => Ok(()),
        Op::SecureErase | Op::DrvIn | Op::DrvOut => return Status::NotSupp,
    };
    match done {
        Ok(()) => Status::Ok,
        // The writer gets the answer of a full disk: memory is this disk's medium.
        Err(NoMemory) => Status::NoSpc,
    }
}

fn read(store: &Store, mut at: u64, len: u64, request: &mut Request) {
    if store.is_hole(at, len) {
        return request.read_as_zeros();
    }
    request.for_each_data(|data| {
        store.read_into(at, data);
        at += data.len() as u64;
    });
}

fn write(store: &Store, mut at: u64, request: &mut Request) -> Result<(), NoMemory> {
    let mut written = Ok(());
    request.for_each_data(|data| {
        written = written.and_then(|()| match data {
            Data::Zero { len, .. } => store.zero(at, u64::from(*len), true),
            _ => store.write_from(at, data),
        });
        at += data.len() as u64;
    });
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Bio;
    use weir_queue::rig::Rig;

    #[test]
    fn a_turn_zeroes_so_much_and_no_more() {
        let ram = Ram::new(64 << 20).unwrap();
        assert_eq!(ram.limits().max_write_zeroes_sectors, ZEROES_SECTORS_MAX);
        for (op, flags) in [(Op::Discard, Flags::NONE), (Op::WriteZeroes, Flags::NOUNMAP)] {
            let mut rig = Rig::new(ram.open(0, 16).unwrap(), 16);
            let half = ZEROES_SECTORS_MAX / 2;
            let piece = |at: u32| Bio::new(op, u64::from(at * half), half, Data::None).with(flags);
            let mut rest: Vec<Bio> = (0..5).map(piece).collect();
            for left in [3, 1, 0] {
                let refused = rig.submit(rest, Nanos::ZERO);
                let (reason, after) = refused.unwrap_or((Status::DevResource, Vec::new()));
                assert_eq!((reason, after.len()), (Status::DevResource, left));
                let ended = rig.reap(Nanos::ZERO);
                assert!(ended.iter().all(|answer| answer.status.is_ok()) && !ended.is_empty());
                rest = after;
            }
        }
    }
}
