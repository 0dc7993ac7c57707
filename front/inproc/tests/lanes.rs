//! A disk with a hard queue for each of several threads.

mod bed;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bed::{Folder, Model, exercise, seed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{
    Bio, Buf, Caps, Clock, Disk, ErrorKind, Flags, Groups, InlineSession, LaneDisk, Limited,
    Refused, Target,
};
use weir_bio::{Limits, Prng};
use weir_local::Ram;
use weir_queue::driver::{DriverQueue, Queues};
use weir_queue::{Driver, DriverError};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn lanes(target: &str, threads: usize) -> LaneDisk {
    Disk::builder(target).name("sda").close_limit(PATIENCE).open_lanes(threads).unwrap()
}

fn refusal(target: &str) -> String {
    let error = Disk::builder(target).name("sda").open_lanes(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    error.to_string()
}

#[test]
fn each_thread_has_a_hard_queue_of_its_own_and_sees_what_others_wrote() {
    let folder = Folder::new();
    let path = folder.join("disk");
    for (target, blocks) in
        [(format!("file:{},size=8M", path.display()), true), (String::from("ram:8MiB"), false)]
    {
        let disk = lanes(&target, 4);
        assert_eq!((disk.queues(), disk.size()), (4, 8 << 20), "{target}");
        let (written, seed) = (Barrier::new(4), seed());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (disk, written) = (&disk, &written);
                scope.spawn(move || {
                    let mut session = disk.session().unwrap();
                    if thread % 2 == 0 {
                        assert_eq!(session.may_block(), blocks);
                    }
                    let at = thread << 20;
                    let mut model = Model::zeros(at, 1 << 20);
                    exercise(&mut session, &mut model, 4096, &mut Prng::new(seed ^ thread), 60);
                    let mine = Buf::filled(4096, |bytes| bytes.fill(thread as u8 + 1));
                    session.submit(Bio::write(at / 512, mine).with(Flags::FUA));
                    session.wait(|ended| assert!(ended.status.is_ok(), "{}", ended.status));
                    session.flush().unwrap();
                    written.wait();
                    let mut block = [0; 4096];
                    for other in 0..4 {
                        session.read_at(other << 20, &mut block).unwrap();
                        assert_eq!(block, [other as u8 + 1; 4096]);
                    }
                    session.close().unwrap();
                });
            }
        });
        // Each hard queue had I/O.
        assert_eq!(disk.device().stats().in_flight, 0);
        disk.close().unwrap();
    }
    let mut disk = Disk::builder(Target::file(&path)).open_inline().unwrap();
    let mut block = [0; 4096];
    disk.read_at(3 << 20, &mut block).unwrap();
    assert_eq!(block, [4; 4096]);
    disk.close().unwrap();
}

#[test]
fn a_hard_queue_is_had_once_at_a_time_and_again_by_another_thread() {
    let disk = lanes("ram:1MiB", 2);
    let first = disk.session().unwrap();
    for round in 0..20_u8 {
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| {
                let mut second = disk.session().unwrap();
                let error = disk.session().unwrap_err();
                assert!(error.to_string().contains("hard queues, 2, has a session"), "{error}");
                second.write_at(4096, &[round; 4096]).unwrap();
                // Under way when it is dropped: finished all the same.
                for sector in 16..24 {
                    second.submit(Bio::write(sector, Buf::filled(512, |b| b.fill(round))));
                }
            });
            taken.join().unwrap();
        });
        let mut second = disk.session().unwrap();
        let mut bytes = [0; 4096];
        second.read_at(16 * 512, &mut bytes).unwrap();
        assert_eq!(bytes, [round; 4096]);
    }
    drop(first);
    disk.close().unwrap();
}

#[test]
fn a_thread_that_makes_no_call_holds_up_no_io_and_no_flush_of_the_others() {
    for target in ["ram:1MiB", "ram:1MiB,scheduler=none"] {
        let disk = lanes(target, 3);
        let mut idle = disk.session().unwrap();
        idle.write_at(0, &[1; 4096]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut busy = disk.session().unwrap();
                for _ in 0..100 {
                    busy.write_at(8192, &[2; 4096]).unwrap();
                    busy.flush().unwrap();
                }
            });
        });
        idle.close().unwrap();
        disk.close().unwrap();
    }
}

/// Waits until the session's descriptor says that there is something to do, and takes it.
fn poll_by_descriptor(session: &mut InlineSession) -> usize {
    if session.arm().unwrap() {
        let mut fds = [PollFd::new(&*session, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "it never becomes readable");
    }
    session.poll(|ended| assert!(ended.status.is_ok(), "{}", ended.status))
}

#[test]
fn writes_that_are_held_back_wait_for_no_thread_that_makes_no_call() {
    for (which, by_descriptor) in [(0, false), (1, false), (0, true), (1, true)] {
        let disk = lanes("ram:1MiB,scheduler=none", 2);
        let mut sessions = [disk.session().unwrap(), disk.session().unwrap()];
        let write = |at: u64| Bio {
            flags: Flags::BACKGROUND,
            ..Bio::write(at * 16, Buf::filled(4096, |bytes| bytes.fill(7)))
        };
        // As many as the throttle lets through are on their way, and none of them goes on.
        (0..20).for_each(|at| sessions[which].submit(write(at)));
        sessions[which].flush_plug();
        let busy = &mut sessions[1 - which];
        (20..40).for_each(|at| busy.submit(write(at)));
        let mut count = 0;
        while by_descriptor && count < 20 {
            count += poll_by_descriptor(busy);
        }
        if !by_descriptor {
            count = busy.wait_for(20, PATIENCE, |ended| assert!(ended.status.is_ok()));
        }
        assert_eq!(count, 20, "beside hard queue {which}");
        let idle = &mut sessions[which];
        assert_eq!(idle.wait_for(20, PATIENCE, |ended| assert!(ended.status.is_ok())), 20);
        sessions.into_iter().for_each(|session| session.close().unwrap());
        disk.close().unwrap();
    }
}

#[test]
fn io_that_a_cap_holds_back_goes_on_in_each_session_by_itself() {
    let disk = lanes("ram:1MiB", 3);
    let groups = Arc::new(Groups::default());
    disk.device().attach_groups(&groups);
    let slow = groups.create("slow").unwrap();
    groups.set_caps(slow, Caps { riops: NonZeroU64::new(1000), ..Caps::default() }).unwrap();
    // That of the first hard queue has I/O and makes no call.
    let mut idle = disk.session().unwrap();
    let read = || Bio { group: slow, ..Bio::read(0, Buf::zeroed(512)) };
    idle.submit(read());
    let mut busy = [disk.session().unwrap(), disk.session().unwrap()];
    let mut ended = 0;
    for _ in 0..40 {
        for session in &mut busy {
            // It waits as long as the cap says, also where it may not block.
            let mut bio = read();
            while let Err(refused) = session.try_submit(bio) {
                let Refused::Capped { until, .. } = refused else { panic!("{refused:?}") };
                let left = Duration::from_nanos(until.since(Clock.now()));
                ended += session.wait_for(usize::MAX, left, |_| ());
                bio = refused.into_bio();
            }
            session.submit(read());
        }
    }
    for session in &mut busy {
        while session.in_flight() > 0 {
            ended += session.wait(|ended| assert!(ended.status.is_ok()));
        }
    }
    assert_eq!((ended, groups.used_on(slow, "sda").ios), (160, [161, 0]));
    drop((idle, busy));
    disk.close().unwrap();
}

#[test]
fn a_change_waits_for_the_calls_of_each_thread() {
    let disk = lanes("ram:1MiB", 2);
    let (device, done) = (disk.device().clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (disk, done) = (&disk, &done);
            scope.spawn(move || {
                let mut session = disk.session().unwrap();
                while !done.load(Ordering::Acquire) {
                    session.write_at(thread * 4096, &[1; 4096]).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for scheduler in ["mq-deadline", "bfq", "kyber", "none"] {
                Limited::of(&device).set_scheduler(scheduler).unwrap();
            }
            let error = Limited::of(&device).set_queues(1).unwrap_err().to_string();
            assert!(error.contains("sda"), "{error}");
            done.store(true, Ordering::Release);
        });
    });
    disk.close().unwrap();
}

#[test]
fn the_last_session_closes_a_disk_whose_handle_has_gone() {
    let folder = Folder::new();
    let target = format!("file:{},size=1M", folder.join("disk").display());
    let disk = lanes(&target, 2);
    let mut session = disk.session().unwrap();
    let error = disk.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfinished);
    assert!(error.to_string().contains("sessions are left (1)"), "{error}");
    session.write_at(0, &[7; 4096]).unwrap();
    let error = Disk::open(&target).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    session.close().unwrap();
    let again = lanes(&target, 2);
    let session = again.session().unwrap();
    drop(again);
    drop(session);
    let disk = Disk::open(&target).unwrap();
    let mut block = [0; 4096];
    disk.session().unwrap().read_at(0, &mut block).unwrap();
    assert_eq!(block, [7; 4096]);
    disk.close().unwrap();
}

#[test]
fn what_has_no_hard_queue_for_each_thread_is_refused() {
    for (target, why) in [
        ("ram:1MiB,queue_mode=sq", "queue_mode=sq"),
        ("ram:1MiB,spread=round-robin", "spread=round-robin"),
        ("linear:ram:1MiB", "opened with the disks that it lies on"),
    ] {
        let error = refusal(target);
        assert!(error.contains(why), "{target}: {error}");
    }
    let error = Disk::builder("ram:1MiB").reactors(1).open_lanes(2).unwrap_err().to_string();
    assert!(error.contains("opened with lanes"), "{error}");
    assert!(Disk::builder("ram:1MiB").open_lanes(0).is_err());
    let error = Disk::builder("ram:1MiB,queues=2").open_lanes(3).unwrap_err().to_string();
    assert!(error.contains("3 threads are outside 1..=2"), "{error}");
    assert!(Disk::builder("ram:1MiB").open_lanes(65).is_err());
    let stated = lanes("ram:1MiB,queues=3", 2);
    assert_eq!(stated.queues(), 3);
    stated.close().unwrap();
}

/// A driver, and whether it refuses to open hard queues.
fn refusing() -> (Arc<dyn Driver>, Arc<AtomicBool>) {
    struct Refusing(Ram, Arc<AtomicBool>);
    impl Driver for Refusing {
        fn limits(&self) -> Limits {
            self.0.limits()
        }

        fn queues(&self) -> Queues {
            self.0.queues()
        }

        fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
            match self.1.load(Ordering::Acquire) {
                true => Err(DriverError { what: "no queue today".into(), source: None }),
                false => self.0.open(index, depth),
            }
        }
    }
    let refuses = Arc::new(AtomicBool::new(false));
    (Arc::new(Refusing(Ram::new(1 << 20).unwrap(), Arc::clone(&refuses))), refuses)
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn sessions_that_come_and_go_leave_nothing_behind_with_any_scheduler() {
    for scheduler in ["none", "mq-deadline", "bfq", "kyber"] {
        let disk = lanes(&format!("ram:1MiB,nr_requests=8,scheduler={scheduler}"), 4);
        let before = descriptors();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..200 {
                        let mut session = disk.session().unwrap();
                        for n in 0..12 {
                            let buf = Buf::filled(4096, |bytes| bytes.fill(round as u8));
                            session.submit(Bio::write((thread * 16 + n) * 8, buf));
                        }
                        // With I/O under way, and by the drop as well.
                        match round % 2 {
                            0 => session.close().unwrap(),
                            _ => drop(session),
                        }
                    }
                });
            }
        });
        assert_eq!(disk.device().stats().in_flight, 0, "{scheduler}");
        let stats = disk.device().stats();
        assert_eq!(stats.directions[1].total.count(), 9600, "{scheduler}");
        // Other tests of this process have some, for a while.
        let after = descriptors();
        assert!(after < before + 300, "{scheduler}: {before} and then {after} descriptors");
        disk.close().unwrap();
    }
}

#[test]
fn a_disk_whose_io_does_not_end_says_so_and_is_not_closed() {
    let builder = Disk::builder("null:1MiB,latency_us=10000000").name("sda");
    let disk = builder.close_limit(Duration::from_millis(50)).open_lanes(2).unwrap();
    let mut session = disk.session().unwrap();
    session.submit(Bio::write(0, Buf::zeroed(4096)));
    let error = session.close().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfinished, "{error}");
    // The other hard queue goes on.
    let error = disk.session().map(|_| disk.session().unwrap_err().to_string()).unwrap();
    assert!(error.contains("has a session"), "{error}");
    let error = disk.close().unwrap_err().to_string();
    assert!(error.contains("I/O of 1 of its hard queues did not end"), "{error}");
}

#[test]
fn a_disk_below_is_not_closed_before_the_one_with_lanes() {
    let below = Disk::builder("ram:1MiB").name("low").open().unwrap();
    let builder = Disk::builder("linear:low").name("high").over([&below]);
    let disk = builder.close_limit(PATIENCE).open_lanes(2).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let disk = &disk;
            scope.spawn(move || {
                let mut session = disk.session().unwrap();
                session.write_at(thread * 4096, &[thread as u8 + 1; 4096]).unwrap();
            });
        }
    });
    let error = below.close().unwrap_err().to_string();
    assert!(error.contains("high"), "{error}");
    disk.close().unwrap();
    let mut block = [0; 4096];
    below.session().unwrap().read_at(4096, &mut block).unwrap();
    assert_eq!(block, [2; 4096]);
    below.close().unwrap();
}

#[test]
fn a_hard_queue_that_could_not_be_opened_can_be_had_later() {
    let (driver, refuses) = refusing();
    let disk = Disk::builder(Target::driver(driver)).name("sda").open_lanes(2).unwrap();
    refuses.store(true, Ordering::Release);
    for _ in 0..5 {
        let error = disk.session().unwrap_err().to_string();
        assert!(error.contains("no queue today"), "{error}");
    }
    refuses.store(false, Ordering::Release);
    let sessions = [disk.session().unwrap(), disk.session().unwrap()];
    drop(sessions);
    disk.close().unwrap();
}
