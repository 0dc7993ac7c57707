//! A write cache that a target gets, or loses, while its device is in use.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Flags, Limits, Nanos, Op, Status, WriteCache};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Config, Device, Done, Driver, DriverError, DriverQueue, Home, NoWake, QueueMode,
    Queues, Submitter, Tag,
};

const NONE: WriteCache = WriteCache { volatile: false, fua: false };
const PLAIN: WriteCache = WriteCache { volatile: true, fua: false };
const WITH_FUA: WriteCache = WriteCache { volatile: true, fua: true };

#[derive(Default)]
struct State {
    cache: WriteCache,
    seen: Vec<(Op, bool)>,
}

/// A disk without a cache at first.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Driver for Disk {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn write_cache(&self) -> WriteCache {
        self.0.lock().unwrap().cache
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(DiskQueue { disk: self.clone(), held: Vec::new() }))
    }
}

struct DiskQueue {
    disk: Disk,
    held: Vec<Tag>,
}

impl DriverQueue for DiskQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, request| {
            let (op, fua) = (request.op(), request.flags().has(Flags::FUA));
            self.disk.0.lock().unwrap().seen.push((op, fua));
            self.held.push(tag);
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        self.held.drain(..).for_each(|tag| done.push(tag, Status::Ok));
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

struct Bench {
    disk: Disk,
    device: Device,
    home: Home,
    client: Submitter,
    now: Nanos,
}

impl Bench {
    fn new(mode: QueueMode) -> Bench {
        let disk = Disk::default();
        let config = Config { mode, ..Config::default() };
        let device = Device::new(config, Arc::new(disk.clone())).unwrap();
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 4));
        home.open(&device, 0).unwrap();
        let client = device.submitter(home.bell(), 0, 0).unwrap();
        Bench { disk, device, home, client, now: Nanos::ZERO }
    }

    fn has(&self, cache: WriteCache) {
        self.disk.0.lock().unwrap().cache = cache;
    }

    /// What reaches the disk of a flush and a write with FUA.
    fn seen(&mut self) -> Vec<(Op, bool)> {
        let write = Bio { flags: Flags::FUA | Flags::SYNC, ..Bio::write(0, Buf::zeroed(512)) };
        for bio in [Bio::flush(), write] {
            self.client.submit(bio, self.now).unwrap();
            self.client.flush_plug(self.now);
            let mut ended = 0;
            while ended == 0 {
                self.now = self.now + 1_000_000;
                assert!(self.now < Nanos(10_000_000_000), "it does not end");
                self.home.turn_all(self.now);
                self.client.complete(self.now, |end| {
                    assert_eq!(end.status, Status::Ok);
                    ended += 1;
                });
            }
        }
        std::mem::take(&mut self.disk.0.lock().unwrap().seen)
    }
}

const UNFLUSHED: [(Op, bool); 1] = [(Op::Write, false)];
const FLUSHED: [(Op, bool); 3] = [(Op::Flush, false), (Op::Write, false), (Op::Flush, false)];
const PASSED_BY: [(Op, bool); 2] = [(Op::Flush, false), (Op::Write, true)];

#[test]
fn a_cache_that_is_turned_on_is_flushed_from_the_next_reconfiguration_on() {
    for mode in [QueueMode::Sq, QueueMode::Mq] {
        let mut bench = Bench::new(mode);
        let device = bench.device.clone();
        assert_eq!((bench.seen().as_slice(), device.new_write_cache()), (&UNFLUSHED[..], None));
        bench.has(PLAIN);
        assert_eq!((device.write_cache(), device.new_write_cache()), (PLAIN, Some(PLAIN)));
        device.reconfigure(|parts| assert!(parts.limits.volatile_cache)).unwrap();
        assert_eq!((bench.seen().as_slice(), device.new_write_cache()), (&FLUSHED[..], None));
        // A write that passes by the cache is news as well.
        bench.has(WITH_FUA);
        assert_eq!(device.new_write_cache(), Some(WITH_FUA));
        device.reconfigure(|_| ()).unwrap();
        assert_eq!(bench.seen(), PASSED_BY);
    }
}

#[test]
fn a_refused_change_leaves_the_cache_to_be_taken_on() {
    let mut bench = Bench::new(QueueMode::Mq);
    let device = bench.device.clone();
    bench.has(PLAIN);
    device.reconfigure(|parts| parts.nr_requests = u16::MAX).unwrap_err();
    assert_eq!((bench.seen().as_slice(), device.new_write_cache()), (&UNFLUSHED[..], Some(PLAIN)));
    device.reconfigure(|_| ()).unwrap();
    assert_eq!(bench.seen(), FLUSHED);
}

#[test]
fn what_the_user_says_of_the_cache_holds_until_it_is_turned_on_again() {
    let mut bench = Bench::new(QueueMode::Mq);
    let device = bench.device.clone();
    bench.has(PLAIN);
    device.reconfigure(|parts| parts.limits.volatile_cache = false).unwrap();
    device.reconfigure(|parts| parts.nomerges = 2).unwrap();
    assert_eq!((bench.seen().as_slice(), device.new_write_cache()), (&UNFLUSHED[..], None));
    bench.has(NONE);
    assert_eq!(device.new_write_cache(), None);
    device.reconfigure(|_| ()).unwrap();
    bench.has(PLAIN);
    device.reconfigure(|_| ()).unwrap();
    assert_eq!(bench.seen(), FLUSHED);
}

#[test]
fn flushes_reach_a_driver_whose_cache_is_gone() {
    let mut bench = Bench::new(QueueMode::Mq);
    let device = bench.device.clone();
    bench.has(PLAIN);
    device.reconfigure(|_| ()).unwrap();
    bench.has(NONE);
    device.reconfigure(|_| ()).unwrap();
    assert_eq!((bench.seen().as_slice(), device.new_write_cache()), (&FLUSHED[..], None));
    device.take_offline();
    assert_eq!(device.write_cache(), NONE, "nobody to ask");
}
