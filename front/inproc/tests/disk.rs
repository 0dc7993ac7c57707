//! The library as its users have it: disks, sessions, futures and callbacks, on real reactors.

mod bed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bed::{Folder, Model, exercise, seed};
use weir::{
    Bio, Buf, Cause, Clock, Config, Data, Device, Disk, Flags, Host, IoError, Limits, Op, Pending,
    QueueMode, Refused, Session, Status, Target,
};
use weir_bio::Prng;
use weir_local::Ram;
use weir_map::{FaultPlan, Faulty};
use weir_queue::{Driver, DriverError, DriverQueue, Extent, Queues};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every way of putting queues in front of a driver.
const QUEUES: [&str; 6] = [
    "",
    ",queues=1",
    ",queues=2,nr_requests=4",
    ",queue_mode=sq",
    ",queue_mode=sq,nr_requests=4",
    ",queues=2,spread=round-robin",
];

/// A driver that can do less than it could, and says when it is gone.
struct Told {
    inner: Arc<dyn Driver>,
    limit: fn(&mut Limits),
    gone: Mutex<Sender<()>>,
}

impl Told {
    fn new(inner: impl Driver + 'static, limit: fn(&mut Limits)) -> (Arc<Told>, Receiver<()>) {
        let (sender, receiver) = channel();
        (Arc::new(Told { inner: Arc::new(inner), limit, gone: Mutex::new(sender) }), receiver)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Not every test wants to know.
        let _ = self.gone.lock().unwrap().send(());
    }
}

impl Driver for Told {
    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        (self.limit)(&mut limits);
        limits
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.inner.open(index, depth)
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.inner.allocation(sector, sectors)
    }
}

fn ram(bytes: u64) -> Ram {
    Ram::new(bytes).unwrap()
}

fn faulty(plan: FaultPlan) -> Faulty {
    Faulty::new(Arc::new(ram(1 << 20)), plan, 1)
}

fn device(mode: QueueMode, driver: Arc<dyn Driver>) -> Device {
    Device::new(Config { name: "sda".into(), mode, ..Config::default() }, driver).unwrap()
}

fn read(sector: u64) -> Bio {
    Bio::read(sector, Buf::zeroed(4096)).cookie(sector)
}

fn bytes(data: &Data) -> Vec<u8> {
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes
}

/// Random things to a range through futures, a few under way at a time.
fn exercise_futures(disk: &Disk, model: &mut Model, prng: &mut Prng) {
    for round in 0..20_u64 {
        let sectors = 1 + prng.below(32);
        let first = model.offset / 512 + prng.below(model.len() / 512 - 8 * sectors);
        let places = (0..8).map(|i| first + i * sectors);
        let pending: Vec<(u64, Pending)> = places
            .map(|sector| {
                let mut buf = Buf::zeroed(sectors as usize * 512);
                if round % 2 == 1 {
                    return (sector, disk.start(Bio::read(sector, buf).cookie(sector)));
                }
                prng.fill(&mut buf);
                model.write(sector * 512, &buf);
                let fua = if prng.percent(20) { Flags::FUA } else { Flags::NONE };
                (sector, disk.start(Bio::write(sector, buf).with(fua).cookie(sector)))
            })
            .collect();
        for (sector, pending) in pending {
            let ended = pending.wait();
            assert_eq!((ended.cookie, ended.status), (sector, Status::Ok));
            if ended.op == Op::Read {
                model.check(sector * 512, &bytes(&ended.data));
            }
        }
    }
}

#[test]
fn four_sessions_and_two_threads_of_futures_read_back_what_each_wrote() {
    const SHARE: u64 = 1 << 20;
    let seed = seed();
    let folder = Folder::new();
    for (number, queues) in QUEUES.into_iter().enumerate() {
        let file = folder.join(&format!("disk{number}"));
        for target in [String::from("ram:6MiB"), format!("file:{},size=6M", file.display())] {
            let target = format!("{target}{queues}");
            println!("-- {target}");
            let disk = Disk::builder(target.as_str()).name("sda").reactors(2).open().unwrap();
            std::thread::scope(|scope| {
                for share in 0..6 {
                    let disk = disk.clone();
                    scope.spawn(move || {
                        let mut prng = Prng::new(seed ^ share);
                        let mut model = Model::zeros(share * SHARE, SHARE);
                        if share >= 4 {
                            return exercise_futures(&disk, &mut model, &mut prng);
                        }
                        let block = u64::from(disk.limits().logical_block_size);
                        let mut session = disk.session().unwrap();
                        exercise(&mut session, &mut model, block, &mut prng, 40);
                    });
                }
            });
            assert_eq!(disk.stats().in_flight, 0);
            disk.close().unwrap();
        }
    }
}

#[test]
fn every_callback_is_called_once_with_its_own_cookie() {
    for queues in QUEUES {
        let disk = Disk::builder(format!("ram:16MiB{queues}")).reactors(2).open().unwrap();
        let (sender, receiver) = channel();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (disk, sender) = (&disk, sender.clone());
                scope.spawn(move || {
                    for i in 0..1000 {
                        let sender = sender.clone();
                        let cookie = thread * 1000 + i;
                        disk.submit(read(i * 8).cookie(cookie), move |ended| {
                            sender.send((ended.cookie, cookie, ended.status)).unwrap();
                        });
                    }
                });
            }
        });
        drop(sender);
        let mut ended: Vec<_> = receiver.into_iter().collect();
        ended.sort_unstable_by_key(|(cookie, ..)| *cookie);
        let expected: Vec<_> = (0..4000).map(|cookie| (cookie, cookie, Status::Ok)).collect();
        assert!(ended == expected, "{queues}");
        disk.close().unwrap();
    }
}

#[test]
fn a_session_with_more_than_fits_gets_every_answer_once_and_its_cookies_back() {
    for queues in QUEUES {
        let disk = Disk::open(&format!("null:1G,latency_us=100{queues}")).unwrap();
        let mut session = disk.session().unwrap();
        let mut ended = Vec::new();
        for i in 0..2000_u64 {
            // Cookies of any kind, also those the session uses itself.
            session.submit(read(i * 64).cookie(u64::MAX - i));
            session.poll(|completion| ended.push(completion.cookie));
        }
        while session.in_flight() > 0 {
            assert!(session.wait(|completion| ended.push(completion.cookie)) > 0);
        }
        assert_eq!(session.wait(|_| panic!("nothing is in flight")), 0);
        ended.sort_unstable();
        assert!(ended.into_iter().eq((u64::MAX - 1999)..=u64::MAX), "{queues}");
    }
}

#[test]
fn blocking_calls_between_submit_and_wait_leave_the_others_their_completions() {
    let disk = Disk::open("ram:4MiB,queues=1,nr_requests=4").unwrap();
    let mut session = disk.session().unwrap();
    for sector in [0, 100, 200] {
        session.submit(read(sector));
    }
    session.write_at(1 << 20, &vec![5; 1 << 20]).unwrap();
    let mut found = vec![0; 1 << 20];
    session.read_at(1 << 20, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 5));
    let mut cookies = Vec::new();
    while session.in_flight() > 0 {
        session.wait(|ended| cookies.push(ended.cookie));
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [0, 100, 200]);
}

#[test]
fn a_full_session_refuses_with_the_bio_as_it_was() {
    let disk = Disk::open("null:1G,latency_us=20000,queues=1,nr_requests=4,nomerges=2").unwrap();
    let mut session = disk.session().unwrap();
    let refused = (0..1000).find_map(|i| session.try_submit(read(i * 64)).err()).unwrap();
    let in_flight = session.in_flight();
    let Refused::Full(bio) = refused else { panic!("{refused:?}") };
    assert_eq!((bio.cookie, bio.sector), (in_flight * 64, in_flight * 64));
    session.submit(bio);
    let mut last = 0;
    while session.in_flight() > 0 {
        session.wait(|ended| last = last.max(ended.cookie));
    }
    assert_eq!(last, in_flight * 64);
}

#[test]
fn a_frozen_disk_refuses_holds_back_and_goes_on() {
    for queues in QUEUES {
        let disk = Disk::open(&format!("ram:1MiB{queues}")).unwrap();
        let mut session = disk.session().unwrap();
        let frozen = disk.device().freeze();
        let refused = session.try_submit(read(8)).unwrap_err();
        assert!(matches!(refused, Refused::Frozen(Bio { cookie: 8, .. })), "{refused:?}");
        let pending = disk.start(read(16));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| session.write_at(0, &[1; 4096]));
            assert!(!pending.has_ended());
            drop(frozen);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(pending.wait().status, Status::Ok);
    }
}

#[test]
fn a_session_works_on_whichever_thread_has_it() {
    fn is_send<T: Send>(_: &T) {}
    let disk = Disk::open("null:1G,latency_us=2000").unwrap();
    let mut session = disk.session().unwrap();
    is_send(&session);
    for _ in 0..4 {
        session.submit(read(0));
        session.read_at(0, &mut [0; 4096]).unwrap();
        // The one that waits is not the one that submitted.
        session = std::thread::spawn(move || {
            assert!(session.in_flight() > 0);
            while session.in_flight() > 0 {
                session.wait(|ended| assert!(ended.status.is_ok()));
            }
            session
        })
        .join()
        .unwrap();
    }
}

#[test]
fn sessions_and_futures_dropped_with_io_under_way_leave_nothing_behind() {
    for queues in QUEUES {
        let disk = Disk::open(&format!("null:1G,latency_us=10000{queues}")).unwrap();
        for _ in 0..3 {
            let mut session = disk.session().unwrap();
            (0..8).for_each(|i| session.submit(read(i * 64)));
            drop(session);
            (0..8).for_each(|i| drop(disk.start(read(i * 64))));
        }
        disk.close().unwrap();
        let stats = disk.stats();
        let reads = &stats.directions[0];
        assert_eq!((stats.in_flight, reads.ios + reads.merges, stats.errors), (0, 48, 0));
    }
}

#[test]
fn a_reconfiguration_under_load_loses_and_mixes_up_nothing() {
    const SHARE: u64 = 256 << 10;
    let seed = seed();
    for queues in ["", ",queues=2", ",queue_mode=sq"] {
        let disk = Disk::builder(format!("ram:1MiB{queues}")).reactors(2).open().unwrap();
        let over = AtomicBool::new(false);
        let started = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for share in 0..4 {
                let (disk, over, started) = (&disk, &over, &started);
                scope.spawn(move || {
                    let mut prng = Prng::new(seed ^ share);
                    let mut model = Model::zeros(share * SHARE, SHARE);
                    let mut session = disk.session().unwrap();
                    while !over.load(Ordering::Relaxed) {
                        exercise(&mut session, &mut model, 512, &mut prng, 10);
                        exercise_futures(disk, &mut model, &mut prng);
                        started.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for round in 0..100_u16 {
                let change = |parts: &mut weir_queue::Settings| {
                    parts.nr_requests = 4 + round % 60;
                    parts.nomerges = (round % 3) as u8;
                };
                disk.device().reconfigure(change).unwrap();
            }
            while started.load(Ordering::Relaxed) < 8 {
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(disk.device().nr_requests(), 4 + 99 % 60);
        disk.close().unwrap();
    }
}

#[test]
fn a_wrong_range_is_refused_with_the_value_and_its_bound() {
    let disk = Disk::builder("ram:1MiB").name("sda").open().unwrap();
    let mut session = disk.session().unwrap();
    let text = |error: Result<(), IoError>, status: Status| {
        let error = error.unwrap_err();
        assert_eq!(error.status, status, "{error}");
        let text = error.to_string();
        assert_eq!(std::io::Error::from(error).raw_os_error(), Some(status.errno()));
        text
    };
    assert_eq!(
        text(session.read_at(7, &mut [0; 512]), Status::Inval),
        "disk sda: read of 512 bytes at offset 7: offset=7 is not a multiple of the logical \
         block, 512 bytes"
    );
    assert_eq!(
        text(session.write_at(512, &[0; 100]), Status::Inval),
        "disk sda: write of 100 bytes at offset 512: length=100 is not a multiple of the logical \
         block, 512 bytes"
    );
    assert_eq!(
        text(session.write_at_durable((1 << 20) - 512, &[0; 1024]), Status::NoSpc),
        "disk sda: write of 1024 bytes at offset 1048064: end=1049088 is beyond the disk's size, \
         1048576 bytes"
    );
    assert_eq!(
        text(session.discard(1 << 20, 512), Status::Inval),
        "disk sda: discard of 512 bytes at offset 1048576: end=1049088 is beyond the disk's \
         size, 1048576 bytes"
    );
    let last = u64::MAX - 511;
    assert_eq!(
        text(session.write_zeroes(last, 512, true), Status::NoSpc),
        format!(
            "disk sda: write zeroes of 512 bytes at offset {last}: its end is beyond the disk's \
             size, 1048576 bytes"
        )
    );
    session.read_at(1 << 20, &mut []).unwrap();
    session.write_at(512, &[]).unwrap();
    let reads = disk.stats().directions[0].ios;
    assert_eq!(reads, 0, "nothing of this was an I/O");
}

#[test]
fn the_kinds_of_failures_are_kept_with_statistics_and_without_also_of_io_in_parts() {
    for (mode, iostats) in [(QueueMode::Mq, true), (QueueMode::Mq, false), (QueueMode::Sq, false)] {
        let plan = FaultPlan { failed: 100, errors: vec![Status::Medium], ..FaultPlan::default() };
        let device = device(mode, Arc::new(faulty(plan)));
        let change = |parts: &mut weir_queue::Settings| {
            parts.iostats = iostats;
            parts.limits.max_user_sectors = 8;
        };
        device.reconfigure(change).unwrap();
        let disk = Disk::builder(device).open().unwrap();
        for (len, count) in [(4096, 1), (16 << 10, 5)] {
            assert_eq!(disk.start(Bio::read(8, Buf::zeroed(len))).wait().status, Status::Medium);
            let failures = disk.device().failures();
            let kinds: Vec<_> =
                failures.iter().map(|one| (one.status, one.op, one.count)).collect();
            assert_eq!(kinds, [(Status::Medium, Op::Read, count)], "{mode:?}, iostats={iostats}");
            assert_eq!((failures[0].sector % 8, failures[0].sectors), (0, 8));
        }
        // What the core refuses is no failure of the device.
        assert!(!disk.start(Bio::read(1 << 40, Buf::zeroed(4096))).wait().status.is_ok());
        assert_eq!(disk.device().failures().len(), 1);
        disk.close().unwrap();
    }
}

#[test]
fn what_the_disk_says_comes_through_as_status_text_and_errno() {
    let plan = FaultPlan { failed: 100, errors: vec![Status::Medium], ..FaultPlan::default() };
    let disk = Disk::builder(device(QueueMode::Mq, Arc::new(faulty(plan)))).open().unwrap();
    let mut session = disk.session().unwrap();
    let error = session.read_at(4096, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.to_string(), "disk sda: read of 4096 bytes at offset 4096: medium error");
    assert_eq!((error.op, error.offset, error.len), (Op::Read, 4096, 4096));
    assert_eq!(error.cause, Cause::Disk);
    assert_eq!(std::io::Error::from(error).raw_os_error(), Some(61));
    assert_eq!(disk.start(read(8)).wait().status, Status::Medium);

    let disk = Disk::builder("ram:1MiB,readonly").name("sdb").open().unwrap();
    let mut session = disk.session().unwrap();
    let error = session.write_at(0, &[0; 512]).unwrap_err();
    let text = "disk sdb: write of 512 bytes at offset 0: the disk is read-only";
    assert_eq!(error.to_string(), text);
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    session.read_at(0, &mut [0; 512]).unwrap();
}

#[test]
fn zeroes_are_written_to_a_disk_that_has_no_command_for_them() {
    let poor = |limits: &mut Limits| {
        limits.max_write_zeroes_sectors = 0;
        limits.fast_write_zeroes = false;
        limits.max_hw_discard_sectors = 0;
    };
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let (driver, _) = Told::new(ram(4 << 20), poor);
        let disk = Disk::builder(device(mode, driver)).open().unwrap();
        let mut session = disk.session().unwrap();
        session.write_at(0, &vec![9; 4 << 20]).unwrap();
        session.write_zeroes(4096, 3 << 20, false).unwrap();
        let mut found = vec![1; 4 << 20];
        session.read_at(0, &mut found).unwrap();
        let zeros = 4096..4096 + (3 << 20);
        let right = |(at, byte): (usize, &u8)| *byte == if zeros.contains(&at) { 0 } else { 9 };
        assert!(found.iter().enumerate().all(right));
        let error = session.discard(0, 4096).unwrap_err();
        let text = "disk sda: discard of 4096 bytes at offset 0: operation not supported";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn statistics_add_up_over_sessions_and_futures_alive_and_gone() {
    for queues in QUEUES {
        let disk = Disk::open(&format!("ram:16MiB{queues}")).unwrap();
        let mut kept = disk.session().unwrap();
        for round in 0..3 {
            let mut gone = disk.session().unwrap();
            for session in [&mut kept, &mut gone] {
                session.write_at(round << 16, &[1; 8192]).unwrap();
                session.read_at(round << 16, &mut [0; 4096]).unwrap();
                session.discard(round << 16, 4096).unwrap();
            }
            assert!(disk.start(read(64)).wait().status.is_ok());
        }
        let stats = disk.stats();
        let [reads, writes, discards] = &stats.directions;
        assert_eq!((reads.ios, reads.sectors), (9, 9 * 8), "{queues}");
        assert_eq!((writes.ios, writes.sectors), (6, 6 * 16), "{queues}");
        assert_eq!((discards.ios, discards.sectors), (6, 6 * 8), "{queues}");
        assert_eq!((stats.in_flight, stats.errors, stats.in_driver), (0, 0, [0, 0]));
        assert_eq!(reads.total.count(), 9);
        assert_eq!(stats.fields()[0], 9);
    }
}

#[test]
fn a_closed_disk_says_offline_to_everybody_and_lets_go_of_its_driver() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let (driver, gone) = Told::new(ram(1 << 20), |_| ());
        let disk = Disk::builder(device(mode, driver)).reactors(2).open().unwrap();
        let mut session = disk.session().unwrap();
        session.write_at(0, &[1; 4096]).unwrap();
        let before: Vec<_> = (0..100).map(|i| disk.start(read(i * 8))).collect();
        disk.close().unwrap();
        disk.close().unwrap();
        for pending in before {
            assert_eq!(pending.wait().status, Status::Ok, "it was started before");
        }
        assert_eq!(disk.start(read(8)).wait().status, Status::Offline);
        let (sender, receiver) = channel();
        let here = std::thread::current().id();
        disk.submit(read(8), move |ended| {
            assert_eq!(std::thread::current().id(), here);
            sender.send((ended.cookie, ended.status)).unwrap();
        });
        assert_eq!(receiver.try_recv(), Ok((8, Status::Offline)));
        let error = session.read_at(0, &mut [0; 4096]).unwrap_err();
        assert_eq!(error.to_string(), "disk sda: read of 4096 bytes at offset 0: device offline");
        assert_eq!(session.flush().unwrap_err().status, Status::Offline);
        session.submit(read(8));
        assert_eq!(session.wait(|ended| assert_eq!(ended.status, Status::Offline)), 1);
        assert_eq!(disk.session().unwrap_err().to_string(), "device sda is being removed");
        // Though disk and session are still there.
        gone.try_recv().expect("the driver is gone");
    }
}

#[test]
fn sessions_that_go_on_while_their_disk_closes_end_offline_and_none_hangs() {
    for queues in QUEUES {
        for _ in 0..10 {
            let disk = Disk::builder(format!("ram:1MiB{queues}")).reactors(2).open().unwrap();
            let ready = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for share in 0..3 {
                    let (disk, ready) = (&disk, &ready);
                    scope.spawn(move || {
                        let mut session = disk.session().unwrap();
                        ready.wait();
                        let error = loop {
                            let mut bytes = [0; 4096];
                            if let Err(error) = session.read_at(share << 16, &mut bytes) {
                                break error;
                            }
                            let ended = disk.start(read(share * 8)).wait().status;
                            assert!(matches!(ended, Status::Ok | Status::Offline), "{ended:?}");
                        };
                        assert_eq!(error.status, Status::Offline, "{error}");
                    });
                }
                ready.wait();
                disk.close().unwrap();
            });
            assert_eq!(disk.stats().in_flight, 0);
        }
    }
}

#[test]
fn a_back_end_that_hangs_is_named_and_its_pendings_end_with_the_last_handle() {
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let device = device(QueueMode::Mq, Arc::new(faulty(plan)));
    let limit = Duration::from_millis(300);
    let disk = Disk::builder(device).close_limit(limit).open().unwrap();
    let pending: Vec<_> = (0..3).map(|i| disk.start(read(i * 64))).collect();
    let (sender, receiver) = channel();
    disk.submit(read(512), move |ended| sender.send(ended.status).unwrap());
    let start = Clock.now();
    let error = disk.close().unwrap_err().to_string();
    let text = "disk sda: 4 requests unfinished, the oldest after ";
    assert!(error.starts_with(text), "{error}");
    let took = Duration::from_nanos(Clock.now().since(start));
    assert!((limit..limit + Duration::from_secs(20)).contains(&took), "{took:?}");
    assert!(pending.iter().all(|pending| !pending.has_ended()));
    assert!(receiver.try_recv().is_err());
    drop(disk);
    for (pending, cookie) in pending.into_iter().zip([0, 64, 128]) {
        let ended = pending.wait();
        assert_eq!((ended.status, ended.cookie), (Status::Offline, cookie));
    }
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(Status::Offline));
}

#[test]
fn completions_that_nobody_takes_are_named_as_the_reason_and_closing_works_once_they_are() {
    let limit = Duration::from_millis(300);
    let disk = Disk::builder("ram:1MiB").name("sda").close_limit(limit).open().unwrap();
    let mut session = disk.session().unwrap();
    session.submit(read(0));
    session.flush_plug();
    let error = disk.close().unwrap_err().to_string();
    assert_eq!(
        error,
        "disk sda: 1 request unfinished, none of it with the back end: does a session hold \
         completions it has not taken?"
    );
    assert_eq!(session.wait(|ended| assert_eq!(ended.status, Status::Ok)), 1);
    disk.close().unwrap();
}

#[test]
fn the_last_handle_may_go_in_a_callback_and_a_reactor_may_not_close() {
    let (driver, gone) = Told::new(ram(1 << 20), |_| ());
    let disk = Disk::builder(device(QueueMode::Mq, driver)).open().unwrap();
    let (sender, receiver) = channel();
    let held = disk.clone();
    disk.submit(read(0), move |_| {
        sender.send(held.close().unwrap_err().to_string()).unwrap();
    });
    drop(disk);
    let error = receiver.recv_timeout(PATIENCE).unwrap();
    assert_eq!(error, "disk sda: a reactor cannot close it, as it would wait for itself");
    gone.recv_timeout(PATIENCE).expect("the driver is dropped with the last handle");
}

#[test]
fn disks_share_a_host_and_close_one_by_one_or_with_it() {
    let host = Arc::new(Host::new(2).unwrap());
    let open = |name| {
        let target = Target::parse("ram:1MiB,queues=2").unwrap();
        Disk::builder(target).name(name).host(Arc::clone(&host)).open().unwrap()
    };
    // More than a reactor has places for submitters, were they not given back.
    for _ in 0..50 {
        let disk = open("sdx");
        disk.session().unwrap().write_at(0, &[1; 512]).unwrap();
        assert!(disk.start(read(0)).wait().status.is_ok());
    }
    let (sda, sdb) = (open("sda"), open("sdb"));
    sda.close().unwrap();
    let mut session: Session = sdb.session().unwrap();
    session.write_at(0, &[1; 4096]).unwrap();
    assert_eq!(bytes(&sdb.start(read(0)).wait().data), [1; 4096]);
    host.stop(10_000_000_000).unwrap();
    assert_eq!(session.write_at(0, &[1; 4096]).unwrap_err().status, Status::Offline);
    assert_eq!(sdb.start(read(0)).wait().status, Status::Offline);
    let start = Clock.now();
    sdb.close().unwrap();
    assert!(Clock.now().since(start) < 1_000_000_000, "there was nothing to wait for");
}

#[test]
fn what_cannot_be_opened_says_why() {
    for (target, part) in [
        ("ram", "does not start with"),
        ("file:/nonexistent/disk", "/nonexistent/disk"),
        ("ram:1MiB,queues=2,scheduler=best", "best"),
        ("ram:1MiB,nr_requests=2000", "nr_requests=2000"),
    ] {
        let error = Disk::open(target).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let disk = Disk::builder("null:1G,queues=2").name("sda").open().unwrap();
    assert_eq!((disk.name(), disk.size()), ("sda", 1 << 30));
    assert_eq!(format!("{disk:?}"), "Disk(sda, 1073741824 bytes)");
    let loud = Disk::open("ram:1MiB,barriers=off").unwrap();
    assert!(loud.notices()[0].contains("durability disabled"), "{:?}", loud.notices());
}
