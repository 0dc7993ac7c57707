//! RAM with a volatile cache and a simulated power loss, for tests of everything that promises
//! durability.
//!
//! It is as strict as the contract allows: a flush makes durable only what was *answered* before
//! the flush was submitted, a FUA write only itself, and a FUA flag on a device without FUA is not
//! seen at all. Data not promised to be durable may survive or not, sector by sector, as the seed
//! decides.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Flags, Limits, Nanos, Op, Prng, SECTOR, Status};
use weir_queue::{
    Affinity, Batch, Done, Driver, DriverError, DriverQueue, Extent, Queues, Request, Tag,
};

use super::ledger::{Horizon, Ledger, WriteId};
use super::store::Store;

/// Largest discard or write-zeroes, sectors: each sector is remembered on its own.
const ZEROES_SECTORS_MAX: u32 = 8192;

/// The cache that the device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// A write that was answered is durable only after a flush.
    pub volatile: bool,
    /// A FUA write is durable when it is answered.
    pub fua: bool,
}

/// A device in memory that can lose its power.
pub struct CrashRam {
    inner: Arc<Inner>,
    cache: Cache,
}

/// The images found after a crash. Each image is independent of the device it came from.
#[derive(Debug)]
pub struct Crash {
    /// Everything the device took: the image found when only the program died.
    pub live: Store,
    /// Exactly the data promised to be durable.
    pub durable: Store,
    /// The data promised, and a random part of the rest, torn at sectors.
    pub torn: Store,
}

struct Inner {
    live: Store,
    /// Held while a write goes to `live` too, so that both see one order of writes.
    ledger: Mutex<Ledger>,
}

impl CrashRam {
    /// A device of `bytes` bytes that reads as zeros, durably.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub fn new(bytes: u64, cache: Cache) -> Result<CrashRam, DriverError> {
        Ok(CrashRam::from_image(Store::new(bytes)?, cache))
    }

    /// A device that starts with what an earlier one left.
    #[must_use]
    pub fn from_image(image: Store, cache: Cache) -> CrashRam {
        let ledger = Mutex::new(Ledger::new(image.duplicate()));
        CrashRam { inner: Arc::new(Inner { live: image, ledger }), cache }
    }

    /// The images that a crash at this moment leaves; the seed decides about data not promised to
    /// be durable. The device itself goes on.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Crash {
        let ledger = self.inner.ledger();
        Crash {
            live: self.inner.live.duplicate(),
            durable: ledger.durable(),
            torn: ledger.torn(&mut Prng::new(seed)),
        }
    }

    /// Writes that a crash at this moment may take.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.inner.ledger().unflushed()
    }
}

impl fmt::Debug for CrashRam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CrashRam({:?}, {:?})", self.inner.live, self.cache)
    }
}

impl Inner {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for CrashRam {
    fn limits(&self) -> Limits {
        Limits {
            volatile_cache: self.cache.volatile,
            fua: self.cache.fua,
            fua_ranges: self.cache.fua,
            max_hw_discard_sectors: ZEROES_SECTORS_MAX,
            max_write_zeroes_sectors: ZEROES_SECTORS_MAX,
            ..Limits::of_memory(self.inner.live.capacity())
        }
    }

    fn queues(&self) -> Queues {
        Queues {
            max: u16::MAX,
            depth: crate::DEPTH,
            reserved: 0,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    fn open(&self, _index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(CrashQueue {
            inner: Arc::clone(&self.inner),
            cache: self.cache,
            taken: Vec::with_capacity(usize::from(depth)),
        }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        Ok(self.inner.live.allocation(sector, sectors))
    }
}

/// The change of the ledger when a request is answered.
#[derive(Clone, Copy)]
enum Effect {
    None,
    Written(WriteId),
    WrittenDurably(WriteId),
    Flushed(Horizon),
}

/// A queue of [`CrashRam`].
struct CrashQueue {
    inner: Arc<Inner>,
    cache: Cache,
    taken: Vec<(Tag, Status, Effect)>,
}

impl DriverQueue for CrashQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        let inner = Arc::clone(&self.inner);
        let mut ledger = inner.ledger();
        while let Some((tag, request)) = batch.peek() {
            let (status, effect) = self.serve(&mut ledger, request);
            self.taken.push((tag, status, effect));
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut ledger = self.inner.ledger();
        for (tag, status, effect) in self.taken.drain(..) {
            match effect {
                Effect::None => {}
                Effect::Written(id) => ledger.answer(id),
                Effect::WrittenDurably(id) => {
                    ledger.answer(id);
                    ledger.persist(id);
                }
                Effect::Flushed(horizon) => ledger.flush(horizon),
            }
            done.push(tag, status);
        }
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

impl CrashQueue {
    fn serve(&self, ledger: &mut Ledger, request: &mut Request) -> (Status, Effect) {
        let horizon = ledger.horizon();
        let status = super::serve(&self.inner.live, request);
        let effect = match request.op() {
            _ if !status.is_ok() => Effect::None,
            Op::Flush => Effect::Flushed(horizon),
            Op::Write | Op::Discard | Op::WriteZeroes => {
                let id = self.record(ledger, request);
                let fua = self.cache.fua && request.flags().has(Flags::FUA);
                if fua || !self.cache.volatile {
                    Effect::WrittenDurably(id)
                } else {
                    Effect::Written(id)
                }
            }
            Op::Read | Op::Prefetch | Op::SecureErase | Op::DrvIn | Op::DrvOut => Effect::None,
        };
        (status, effect)
    }

    /// Notes what each sector holds now that the write has been done on the live bytes.
    fn record(&self, ledger: &mut Ledger, request: &Request) -> WriteId {
        let rq = request.rq();
        let live = &self.inner.live;
        let first = request.offset() / SECTOR;
        ledger.record(first..first + u64::from(rq.sectors), |sector| {
            if rq.op != Op::Write {
                return None;
            }
            let mut bytes = Box::new([0; SECTOR as usize]);
            live.read(sector * SECTOR, &mut bytes[..]);
            Some(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::{Bio, Buf};
    use weir_queue::rig::Rig;

    use super::*;

    const VOLATILE: Cache = Cache { volatile: true, fua: false };

    fn rig(ram: &CrashRam) -> Rig {
        Rig::new(ram.open(0, 16).unwrap(), 16)
    }

    fn filled(byte: u8) -> Buf {
        Buf::filled(4096, |bytes| bytes.fill(byte))
    }

    fn flush() -> Bio {
        Bio::new(Op::Flush, 0, 0, weir_bio::Data::None)
    }

    fn first(store: &Store, sector: u64) -> u8 {
        let mut bytes = [0xEE; 512];
        store.read(sector * SECTOR, &mut bytes);
        bytes[0]
    }

    fn turn(rig: &mut Rig, bios: Vec<Bio>) {
        let count = bios.len();
        assert!(rig.submit(bios, Nanos::ZERO).is_none());
        let answered = rig.reap(Nanos::ZERO);
        assert!(answered.iter().all(|answer| answer.status.is_ok()));
        assert_eq!(answered.len(), count);
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_submitted_and_nothing_else() {
        let ram = CrashRam::new(1 << 20, VOLATILE).unwrap();
        let mut rig = rig(&ram);
        turn(&mut rig, vec![Bio::write(0, filled(1))]);
        assert_eq!(first(&ram.crash(0).durable, 0), 0);
        // The second write is submitted with the flush, so it is not answered before it.
        turn(&mut rig, vec![Bio::write(8, filled(2)), flush()]);
        let crash = ram.crash(0);
        assert_eq!((first(&crash.durable, 0), first(&crash.durable, 8)), (1, 0));
        assert_eq!((first(&crash.live, 0), first(&crash.live, 8)), (1, 2));
        assert_eq!(ram.unflushed(), 1);
        turn(&mut rig, vec![flush()]);
        assert_eq!((first(&ram.crash(0).durable, 8), ram.unflushed()), (2, 0));
    }

    #[test]
    fn a_flush_is_no_promise_before_it_is_answered() {
        let ram = CrashRam::new(1 << 20, VOLATILE).unwrap();
        let mut rig = rig(&ram);
        turn(&mut rig, vec![Bio::write(0, filled(1))]);
        assert!(rig.submit(vec![flush()], Nanos::ZERO).is_none());
        assert_eq!(first(&ram.crash(0).durable, 0), 0);
        assert_eq!(rig.reap(Nanos::ZERO).len(), 1);
        assert_eq!(first(&ram.crash(0).durable, 0), 1);
    }

    #[test]
    fn a_flush_on_one_queue_covers_the_writes_of_another() {
        let ram = CrashRam::new(1 << 20, VOLATILE).unwrap();
        let (mut one, mut other) = (rig(&ram), rig(&ram));
        turn(&mut one, vec![Bio::write(0, filled(1))]);
        turn(&mut other, vec![flush()]);
        assert_eq!(first(&ram.crash(0).durable, 0), 1);
    }

    #[test]
    fn fua_is_durable_only_where_the_device_has_it_and_everything_is_without_a_cache() {
        for (volatile, fua, expected) in
            [(true, true, 1), (true, false, 0), (false, true, 1), (false, false, 1)]
        {
            let ram = CrashRam::new(1 << 20, Cache { volatile, fua }).unwrap();
            let limits = ram.limits();
            assert_eq!((limits.volatile_cache, limits.fua), (volatile, fua));
            turn(&mut rig(&ram), vec![Bio::write(0, filled(1)).with(Flags::FUA)]);
            let durable = first(&ram.crash(0).durable, 0);
            assert_eq!(durable, expected, "volatile={volatile} fua={fua}");
        }
    }

    #[test]
    fn an_older_write_answered_late_does_not_come_back_over_a_durable_newer_one() {
        let ram = CrashRam::new(1 << 20, Cache { volatile: true, fua: true }).unwrap();
        let (mut slow, mut fast) = (rig(&ram), rig(&ram));
        assert!(slow.submit(vec![Bio::write(0, filled(1))], Nanos::ZERO).is_none());
        turn(&mut fast, vec![Bio::write(0, filled(2)).with(Flags::FUA)]);
        assert_eq!(slow.reap(Nanos::ZERO).len(), 1);
        turn(&mut fast, vec![flush()]);
        assert_eq!(first(&ram.crash(0).durable, 0), 2);
    }

    #[test]
    fn a_torn_image_keeps_what_was_flushed_and_mixes_old_and_new_sectors_of_the_rest() {
        let ram = CrashRam::new(1 << 20, VOLATILE).unwrap();
        let mut rig = rig(&ram);
        turn(&mut rig, vec![Bio::write(0, filled(1)), Bio::write(8, filled(1))]);
        turn(&mut rig, vec![flush()]);
        turn(&mut rig, vec![Bio::write(8, filled(2))]);
        let (mut lost, mut whole, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let image = ram.crash(seed).torn;
            assert!((0..8).all(|sector| first(&image, sector) == 1), "seed {seed}");
            let new = (8..16).filter(|sector| first(&image, *sector) == 2).count();
            let old = (8..16).filter(|sector| first(&image, *sector) == 1).count();
            assert_eq!(new + old, 8, "seed {seed}");
            match new {
                0 => lost += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(lost > 20 && whole > 20 && torn > 20, "{lost} lost, {whole} whole, {torn} torn");
    }

    #[test]
    fn a_discard_is_a_write_of_zeros_that_a_crash_may_undo() {
        let ram = CrashRam::new(1 << 20, VOLATILE).unwrap();
        let mut rig = rig(&ram);
        turn(&mut rig, vec![Bio::write(0, filled(1))]);
        turn(&mut rig, vec![flush()]);
        turn(&mut rig, vec![Bio::new(Op::Discard, 0, 8, weir_bio::Data::None)]);
        let crash = ram.crash(0);
        assert_eq!((first(&crash.live, 0), first(&crash.durable, 0)), (0, 1));
        turn(&mut rig, vec![flush()]);
        assert_eq!(first(&ram.crash(0).durable, 0), 0);
    }

    #[test]
    fn a_device_made_from_an_image_starts_durable() {
        let ram = CrashRam::new(1 << 20, Cache { volatile: false, fua: false }).unwrap();
        turn(&mut rig(&ram), vec![Bio::write(0, filled(9))]);
        let again = CrashRam::from_image(ram.crash(1).torn, VOLATILE);
        assert_eq!((first(&again.crash(1).durable, 0), again.unflushed()), (9, 0));
    }
}
