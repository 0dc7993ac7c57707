//! Drivers and schedulers of the program's own below a disk, and what the errors of a disk say.

mod bed;

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bed::{Model, exercise, seed};
use weir::{
    Absorbed, Bio, Blocking, BlockingDriver, BlockingOptions, Buf, Disk, Driver, ErrorKind, Family,
    Host, Merge, Nanos, Rq, Scheduler, Schedulers, Setup, Status, Target,
};
use weir_bio::Prng;

/// Bytes of each disk.
const SIZE: u64 = 1 << 20;

/// Memory behind four calls. A read at byte 0 says that it has begun and waits, if there is one to
/// wait for.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    stuck: Option<(Sender<()>, Mutex<Receiver<()>>)>,
}

impl Memory {
    fn new() -> Memory {
        Memory { bytes: Mutex::new(vec![0; SIZE as usize]), stuck: None }
    }

    /// With what tells that a read at byte 0 has begun, and what lets it go on.
    fn stuck() -> (Memory, Receiver<()>, Sender<()>) {
        let ((begun, has_begun), (let_go, lets)) = (channel(), channel());
        (Memory { stuck: Some((begun, Mutex::new(lets))), ..Memory::new() }, has_begun, let_go)
    }
}

impl BlockingDriver for Memory {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if let (0, Some((begun, lets))) = (offset, &self.stuck) {
            begun.send(()).unwrap();
            lets.lock().unwrap().recv().unwrap();
        }
        bytes.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..bytes.len()]);
        Ok(bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.bytes.lock().unwrap()[offset as usize..][..len as usize].fill(0xEE);
        Ok(())
    }
}

fn blocking(memory: Memory, threads: u16) -> Arc<dyn Driver> {
    let options = BlockingOptions::new().threads(threads).trim();
    Arc::new(Blocking::new(memory, options).unwrap())
}

#[test]
fn a_disk_of_four_calls_keeps_what_is_written_by_every_path_and_scheduler() {
    let mut prng = Prng::new(seed());
    for (threads, options) in [
        (1, &[][..]),
        (4, &[("queues", "2")]),
        (3, &[("queue_mode", "sq")]),
        (2, &[("scheduler", "bfq")]),
        (2, &[("logical_block_size", "4096")]),
    ] {
        let mut target = Target::driver(blocking(Memory::new(), threads));
        for (name, value) in options {
            target = target.with(name, value).unwrap();
        }
        let disk = Disk::builder(target).reactors(2).open().unwrap();
        let block = u64::from(disk.limits().logical_block_size);
        let mut session = disk.session().unwrap();
        exercise(&mut session, &mut Model::zeros(0, SIZE), block, &mut prng, 300);
        drop(session);
        disk.close().unwrap();
    }
}

#[test]
fn a_call_that_never_returns_holds_up_neither_its_disk_nor_others_and_is_told() {
    let host = Arc::new(Host::new(1).unwrap());
    let (memory, has_begun, let_go) = Memory::stuck();
    let target = Target::driver(blocking(memory, 2)).with("io_timeout", 10_000).unwrap();
    let open = |target: Target| Disk::builder(target).host(Arc::clone(&host));
    let limit = Duration::from_millis(50);
    let stuck = open(target).name("stuck").close_limit(limit).open().unwrap();
    let other = open(Target::parse("ram:1MiB").unwrap()).open().unwrap();
    let lost = stuck.start(Bio::read(0, Buf::zeroed(4096)));
    has_begun.recv().unwrap();
    for disk in [&stuck, &other] {
        let mut session = disk.session().unwrap();
        session.write_at(8192, &[7; 4096]).unwrap();
        let mut found = [0; 4096];
        session.read_at(8192, &mut found).unwrap();
        assert_eq!(found, [7; 4096]);
    }
    assert_eq!(lost.wait().status, Status::Timeout);
    other.close().unwrap();
    let_go.send(()).unwrap();
    // Its memory has come back, or comes back meanwhile.
    while let Err(late) = stuck.close() {
        assert_eq!(late.kind(), ErrorKind::Unfinished, "{late}");
    }
}

#[test]
fn a_close_says_ok_beside_a_call_that_was_timed_out_and_the_statistics_count_it() {
    let (memory, has_begun, let_go) = Memory::stuck();
    let target = Target::driver(blocking(memory, 2)).with("io_timeout", 1).unwrap();
    let disk = Disk::builder(target).open().unwrap();
    let lost = disk.start(Bio::read(0, Buf::zeroed(4096)));
    has_begun.recv().unwrap();
    assert_eq!(lost.wait().status, Status::Timeout);
    assert_eq!(disk.stats().quarantined, 1);
    disk.close().unwrap();
    assert_eq!(disk.stats().quarantined, 1, "the call has not returned");
    let_go.send(()).unwrap();
}

#[test]
fn one_bad_sector_fails_all_that_was_merged_with_it_and_itself_alone_without_merging() {
    struct Bad(Memory);
    impl BlockingDriver for Bad {
        fn size(&self) -> u64 {
            SIZE
        }
        fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
            let bad = (offset..offset + bytes.len() as u64).contains(&(3 * 4096));
            if bad { Err(io::Error::from_raw_os_error(5)) } else { self.0.read(offset, bytes) }
        }
        fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(offset, bytes)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }
    for (nomerges, failed) in [("0", 8), ("2", 1)] {
        let driver = Blocking::new(Bad(Memory::new()), BlockingOptions::new()).unwrap();
        let target = Target::driver(Arc::new(driver)).with("nomerges", nomerges).unwrap();
        let disk = Disk::builder(target.with("queues", 1).unwrap()).open().unwrap();
        let mut session = disk.session().unwrap();
        for block in 0..8 {
            session.submit(Bio::read(block * 8, Buf::zeroed(4096)));
        }
        let mut bad = 0;
        while session.in_flight() > 0 {
            session.wait(|ended| bad += usize::from(!ended.status.is_ok()));
        }
        assert_eq!(bad, failed, "nomerges={nomerges}");
        drop(session);
        disk.close().unwrap();
    }
}

struct Fifo {
    staged: VecDeque<Rq>,
    name: &'static str,
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn merge(&mut self, _: &Rq, _: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, _: Nanos, _: &mut Absorbed) {
        self.staged.push_back(rq);
    }

    fn dispatch(&mut self, _: u16, _: Nanos) -> Option<Rq> {
        self.staged.pop_front()
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }
}

fn fifo(name: &'static str) -> Box<dyn Scheduler> {
    Box::new(Fifo { staged: VecDeque::new(), name })
}

#[test]
fn a_scheduler_of_the_programs_own_keeps_the_law_and_is_made_anew_for_each_use() {
    weir_laws::scheduler::hold(|_: &Setup| fifo("fifo"), 0..200);
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let make = move |_: &Setup| {
        count.fetch_add(1, Ordering::Relaxed);
        fifo("fifo")
    };
    let own = Schedulers::new().with("fifo", Family::Multi, make).unwrap();
    let target = Target::parse("ram:1MiB,queues=2").unwrap().schedulers(own);
    let target = target.with("scheduler", "fifo").unwrap();
    let disk = Disk::builder(target).reactors(2).open().unwrap();
    let device = disk.device();
    assert_eq!((device.scheduler(), made.load(Ordering::Relaxed)), ("fifo", 1));
    assert!(device.schedulers().ends_with(&["fifo"]), "{:?}", device.schedulers());
    let mut session = disk.session().unwrap();
    let mut prng = Prng::new(seed());
    let mut model = Model::zeros(0, SIZE);
    let clock = || weir::Clock.now();
    for (name, times) in [("none", 1), ("fifo", 2), ("kyber", 2), ("fifo", 3), ("fifo", 3)] {
        device.set_scheduler(name, &clock).unwrap();
        assert_eq!((device.scheduler(), made.load(Ordering::Relaxed)), (name, times));
        exercise(&mut session, &mut model, 512, &mut prng, 100);
    }
    // It belongs to this disk and to no other.
    let other = Disk::builder("ram:1MiB,scheduler=fifo").open().unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Invalid);
    assert!(other.to_string().contains("unknown scheduler \"fifo\""), "{other}");
}

#[test]
fn a_scheduler_that_is_not_what_it_was_added_as_is_refused_by_name() {
    let own = |name| Schedulers::new().with(name, Family::Multi, |_| fifo("lifo")).unwrap();
    let of = |target: &str| {
        let target = Target::parse(target).unwrap().schedulers(own("fifo"));
        target.with("scheduler", "fifo").unwrap()
    };
    let error = |target| Disk::builder(target).open().unwrap_err().to_string();
    assert_eq!(error(of("ram:1MiB")), "disk: scheduler fifo calls itself \"lifo\"");
    let told = error(of("ram:1MiB,queue_mode=sq"));
    assert_eq!(told, "disk: scheduler fifo belongs to queue_mode=mq");
    let told = error(of("ram:1MiB,compat=6.18"));
    assert_eq!(told, "disk: compat=6.18 of scheduler fifo: it has none");
    // One that is switched to is held to the same, and what was there stays.
    let target = Target::parse("ram:1MiB,scheduler=kyber").unwrap().schedulers(own("fifo"));
    let disk = Disk::builder(target).open().unwrap();
    let refused = disk.device().set_scheduler("fifo", &|| weir::Clock.now()).unwrap_err();
    assert_eq!(refused.to_string(), "scheduler fifo calls itself \"lifo\"");
    assert_eq!(disk.device().scheduler(), "kyber");
    disk.session().unwrap().write_at(0, &[1; 512]).unwrap();
}

#[test]
fn an_error_has_a_kind_and_what_the_system_said() {
    let refused = Disk::open("file:/nonexistent/disk.img").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    let source = refused.source().expect("what the system said");
    let source = source.downcast_ref::<io::Error>().expect("an error of the system");
    assert_eq!(source.kind(), io::ErrorKind::NotFound);
    for wrong in ["rom:1MiB", "ram:1MiB,queues=65", "ram:1MiB,scheduler=noop"] {
        let error = Disk::open(wrong).unwrap_err();
        assert_eq!((error.kind(), error.source().is_none()), (ErrorKind::Invalid, true), "{error}");
    }
    let leg = Disk::builder("ram:1MiB").name("sda").open().unwrap();
    let above = Disk::builder("linear:sda").over([&leg]).open().unwrap();
    assert_eq!(leg.close().unwrap_err().kind(), ErrorKind::Invalid, "a disk lies on it");
    above.close().unwrap();
    leg.close().unwrap();
    let error = Disk::builder("linear:sda").over([&leg]).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}
