//! Sessions that turn their disk on their own thread: the same calls and the same answers as those
//! of a disk on reactors, and their own ends, waits and changes.

mod bed;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bed::cached::Cached;
use bed::{Folder, Model, exercise, seed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{
    Bio, Buf, Completion, Config, Device, Disk, Flags, InlineSession, Limited, QueueMode, Session,
    Status, Turner,
};
use weir_bio::Prng;
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::Driver;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every way of putting queues in front of a driver.
const QUEUES: [&str; 7] = [
    "",
    ",queues=3,scheduler=mq-deadline",
    ",queues=2,scheduler=bfq",
    ",queues=2,nr_requests=4",
    ",queue_mode=sq",
    ",queue_mode=sq,nr_requests=4",
    ",queues=2,spread=round-robin",
];

fn inline(target: &str) -> InlineSession {
    Disk::builder(target).name("sda").close_limit(PATIENCE).open_inline().unwrap()
}

fn device(mode: QueueMode, driver: impl Driver + 'static) -> Device {
    Device::new(Config { name: "sda".into(), mode, ..Config::default() }, Arc::new(driver)).unwrap()
}

fn write(sector: u64) -> Bio {
    Bio::write(sector, Buf::zeroed(4096))
}

/// A driver that loses every request, for which a cancel comes too late.
fn stuck() -> Faulty {
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    Faulty::new(Arc::new(Ram::new(1 << 20).unwrap()), plan, 1)
}

#[test]
fn every_byte_is_as_on_a_disk_with_reactors_in_front_of_memory_and_of_a_file() {
    let folder = Folder::new();
    for (number, queues) in QUEUES.into_iter().enumerate() {
        let mut prng = Prng::new(seed());
        let file = folder.join(&format!("disk{number}"));
        for backing in [String::from("ram:1MiB"), format!("file:{},size=1M", file.display())] {
            let mut model = Model::zeros(0, 1 << 20);
            let mut session = inline(&format!("{backing}{queues}"));
            let block = u64::from(session.device().limits().logical_block_size);
            exercise(&mut session, &mut model, block, &mut prng, 60);
            session.close().unwrap();
            if backing.starts_with("file") {
                // It is there for the next one, which is turned by reactors.
                let disk = Disk::open(&format!("{backing}{queues}")).unwrap();
                exercise(&mut disk.session().unwrap(), &mut model, block, &mut prng, 20);
                disk.close().unwrap();
            }
        }
    }
}

/// Submits I/Os with cookies of every kind, blocking calls in between, and takes all back.
fn each_comes_back_with_its_cookie<T: Turner>(session: &mut Session<T>) {
    let marks = [0, 1 << 63, 1 << 62, 3 << 62];
    let mut cookies: Vec<u64> = (0..50).flat_map(|low| marks.map(|mark| mark | low)).collect();
    cookies.push(u64::MAX);
    let mut ended = Vec::new();
    for cookie in &cookies {
        if cookie % 7 == 0 {
            session.write_at(cookie % 4 * 4096, &[1; 8192]).unwrap();
        }
        session.submit(write(cookie % 100 * 8).cookie(*cookie));
    }
    assert_eq!(session.in_flight(), cookies.len() as u64);
    while session.in_flight() > 0 {
        session.wait(|completion| {
            assert_eq!(completion.status, Status::Ok);
            ended.push(completion.cookie);
        });
    }
    cookies.sort_unstable();
    ended.sort_unstable();
    assert_eq!(ended, cookies);
}

#[test]
fn any_cookie_comes_back_once_on_both_kinds_of_sessions() {
    for queues in QUEUES {
        let target = format!("ram:1MiB{queues}");
        let mut session = inline(&target);
        each_comes_back_with_its_cookie(&mut session);
        session.close().unwrap();
        let disk = Disk::open(&target).unwrap();
        each_comes_back_with_its_cookie(&mut disk.session().unwrap());
        disk.close().unwrap();
    }
}

#[test]
fn a_session_that_spins_and_one_that_sleeps_do_the_same() {
    for spins in [true, false] {
        let mut session = inline("null:1MiB,latency_us=100");
        session.spin(spins);
        each_comes_back_with_its_cookie(&mut session);
        session.close().unwrap();
    }
}

/// Waits for some of what is in flight: for as many as it names, and no longer than told.
fn waits_for_so_many<T: Turner>(session: &mut Session<T>) {
    assert_eq!(session.wait_for(1, PATIENCE, |_| panic!("nothing is in flight")), 0);
    (0..8).for_each(|block| session.submit(write(block * 16)));
    let mut told = 0;
    let count = session.wait_for(5, PATIENCE, |_| told += 1);
    assert!(count >= 5 && told == count, "{count} of 5, {told} told");
    let rest = session.wait_for(usize::MAX, PATIENCE, |_| told += 1);
    assert_eq!((count + rest, told), (8, 8), "not more than there are");
}

#[test]
fn a_wait_is_for_as_many_as_it_says_and_no_longer_than_told() {
    waits_for_so_many(&mut inline("null:1MiB,latency_us=100"));
    let disk = Disk::open("null:1MiB,latency_us=100").unwrap();
    waits_for_so_many(&mut disk.session().unwrap());
    disk.close().unwrap();
    // Of a disk that never answers the time is the end.
    let limit = Duration::from_millis(20);
    let device = device(QueueMode::Mq, stuck());
    let builder = Disk::builder(device).close_limit(limit);
    let mut session = builder.open_inline().unwrap();
    session.submit(write(0));
    assert_eq!(session.wait_for(1, limit, |_| panic!("it never ends")), 0);
    assert_eq!(session.in_flight(), 1);
}

#[test]
fn a_disk_that_never_answers_is_told_of_and_left_when_the_time_is_over() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        for drops in [false, true] {
            let device = device(mode, stuck());
            let limit = Duration::from_millis(50);
            let builder = Disk::builder(device.clone()).close_limit(limit);
            let mut session = builder.open_inline().unwrap();
            session.submit(write(64));
            session.poll(|_| panic!("it never ends"));
            if drops {
                drop(session);
            } else {
                let error = session.close().unwrap_err().to_string();
                let begins = "disk sda: 1 request unfinished, the oldest after ";
                assert!(error.starts_with(begins), "{error}");
            }
            assert_eq!(device.stats().in_flight, 1, "it is left with its memory");
        }
    }
}

#[test]
fn a_time_out_comes_in_a_wait_that_nothing_else_ends() {
    let config = Config { name: "sda".into(), timeout_ns: 20_000_000, ..Config::default() };
    let device = Device::new(config, Arc::new(stuck())).unwrap();
    let limit = Duration::from_millis(50);
    let mut session = Disk::builder(device).close_limit(limit).open_inline().unwrap();
    session.submit(write(0));
    assert_eq!(session.wait(|ended| assert_eq!(ended.status, Status::Timeout)), 1);
}

#[test]
fn what_is_in_flight_when_a_session_is_dropped_is_finished_first() {
    let folder = Folder::new();
    let path = folder.join("disk");
    for spec in ["", ",queue_mode=sq", ",queues=2,scheduler=bfq"] {
        let mut session = inline(&format!("file:{},size=1M{spec}", path.display()));
        for block in 0..40_u64 {
            let buf = Buf::filled(4096, |bytes| bytes.fill(block as u8 + 1));
            session.submit(Bio::write(block * 8, buf));
        }
        drop(session);
        let bytes = std::fs::read(&path).unwrap();
        let wrong = (0..40 << 12).find(|at| bytes[*at] != (at >> 12) as u8 + 1);
        assert_eq!(wrong, None, "a byte that was not written{spec}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_close_and_a_drop_leave_nothing_unflushed() {
    for (mode, drops) in [(QueueMode::Mq, false), (QueueMode::Sq, false), (QueueMode::Mq, true)] {
        let (driver, cache) = Cached::new(Null::new(1 << 20).unwrap());
        let device = device(mode, driver);
        let mut session = Disk::builder(device).open_inline().unwrap();
        session.write_at(0, &[1; 8192]).unwrap();
        assert!(cache.lost() > 0);
        if drops {
            drop(session)
        } else {
            session.close().unwrap()
        }
        assert_eq!(cache.lost(), 0, "{mode:?}, drops={drops}");
    }
}

#[test]
fn a_disk_that_another_thread_closes_ends_what_comes_later_as_offline() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let (driver, cache) = Cached::new(Null::new(1 << 20).unwrap().latency_ns(20_000));
        let device = device(mode, driver);
        let mut session = Disk::builder(device.clone()).open_inline().unwrap();
        session.write_at(0, &[1; 4096]).unwrap();
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| Limited::of(&device).close().unwrap());
            let (mut next, mut offline) = (0, false);
            while !offline || session.in_flight() > 0 {
                while !offline && session.in_flight() < 8 {
                    session.submit(write(next % 128 * 8));
                    next += 1;
                }
                session.wait(|ended| match ended.status {
                    Status::Ok => {}
                    Status::Offline => offline = true,
                    other => panic!("a write ended {other:?}"),
                });
            }
            closer.join().unwrap();
        });
        assert_eq!(cache.lost(), 0, "{mode:?}: acknowledged and not durable");
        assert_eq!(session.flush().unwrap_err().status, Status::Offline);
        session.close().unwrap();
    }
}

#[test]
fn the_scheduler_changes_under_a_session_by_its_own_thread_and_by_another() {
    let mut session = inline("ram:1MiB,queues=2");
    let device = session.device().clone();
    let names = ["mq-deadline", "bfq", "kyber", "none"];
    for name in names {
        (0..40).for_each(|block| session.submit(write(block * 8)));
        session.change(PATIENCE, |disk, watch| disk.begin_switch(watch, name)).unwrap().unwrap();
        assert_eq!(session.in_flight(), 40, "those that ended meanwhile are kept");
        while session.in_flight() > 0 {
            session.wait(|ended| assert_eq!(ended.status, Status::Ok));
        }
    }
    let error = Limited::of(&device).set_scheduler("bfq").unwrap_err().to_string();
    assert!(error.contains("would wait for itself"), "{error}");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40 {
                Limited::of(&device).set_scheduler(names[round % 4]).unwrap();
                // The null and the ram driver take any number.
                Limited::of(&device).set_queues(1 + round as u16 % 3).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            (0..20).for_each(|block| session.submit(write(block * 8)));
            while session.in_flight() > 0 {
                session.wait(|ended| assert_eq!(ended.status, Status::Ok));
            }
        }
    });
    each_comes_back_with_its_cookie(&mut session);
    session.close().unwrap();
}

#[test]
fn a_change_that_does_not_come_to_an_end_is_given_up_and_says_why() {
    let limit = Duration::from_millis(20);
    let device = device(QueueMode::Mq, stuck());
    let mut session = Disk::builder(device).close_limit(limit).open_inline().unwrap();
    session.submit(write(0));
    let change = session.change(limit, |disk, watch| disk.begin_switch(watch, "bfq"));
    let error = change.map(drop).unwrap_err().to_string();
    assert!(error.contains("sda") && error.contains("1 request"), "{error}");
    assert!(session.try_submit(write(8)).is_ok(), "the gate is open again");
}

/// Sleeps on the sessions' descriptors until each has been handed what it is owed.
fn serve(sessions: &mut [InlineSession], owed: u64) {
    let mut ended = vec![0; sessions.len()];
    while ended.iter().any(|ended| *ended < owed) {
        let mut sleeps = true;
        for (session, ended) in sessions.iter_mut().zip(&mut ended) {
            session.poll(|completion| {
                assert_eq!(completion.status, Status::Ok);
                *ended += 1;
            });
            sleeps &= session.arm().unwrap();
        }
        if !sleeps || ended.iter().all(|ended| *ended == owed) {
            continue;
        }
        let mut fds: Vec<_> =
            sessions.iter().map(|session| PollFd::new(session, PollFlags::IN)).collect();
        let time = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let count = poll(&mut fds, Some(&time)).unwrap();
        assert!(count > 0, "no descriptor became readable: {ended:?} of {owed}");
    }
}

#[test]
fn two_sessions_of_one_thread_are_served_by_one_loop_over_their_descriptors() {
    let folder = Folder::new();
    let file = format!("file:{},size=1M", folder.join("disk").display());
    for other in ["null:1MiB,latency_us=10000", "ram:1MiB,queue_mode=sq"] {
        let mut sessions = [inline(&file), inline(other)];
        for _ in 0..20 {
            for session in &mut sessions {
                (0..4).for_each(|block| session.submit(write(block * 16)));
            }
            serve(&mut sessions, 4);
        }
        let [first, second] = sessions;
        second.close().unwrap();
        first.close().unwrap();
    }
}

#[test]
fn the_descriptor_of_a_driver_without_events_is_readable_when_an_answer_is_due() {
    let mut sessions = [inline("null:1MiB,latency_us=10000")];
    (0..4).for_each(|block| sessions[0].submit(write(block * 16)));
    serve(&mut sessions, 4);
}

#[test]
fn what_comes_while_a_session_is_armed_is_said_by_the_next_arming() {
    let folder = Folder::new();
    let file = |io: &str| format!("file:{},size=1M,io={io}", folder.join(io).display());
    for target in ["null:1MiB,latency_us=2000", &file("threads"), &file("auto")] {
        let (mut session, mut slept) = (inline(target), 0);
        for _ in 0..20 {
            session.submit(Bio::read(0, Buf::zeroed(4096)));
            let is_ok = |end: weir::Completion| assert_eq!(end.status, Status::Ok);
            let mut armed = session.arm().unwrap();
            while !armed && session.in_flight() > 0 {
                session.poll(is_ok);
                armed = session.arm().unwrap();
            }
            if armed && session.in_flight() > 0 {
                slept += 1;
                // A loop that watches by edges has had the one there is.
                let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::new(&session, PollFlags::IN)], Some(&limit));
                assert_eq!(ready, Ok(1), "{target}");
                assert!(!session.arm().unwrap(), "{target}: it would wait for ever");
            }
            while session.in_flight() > 0 {
                session.wait(is_ok);
            }
        }
        println!("{target}: {slept} of 20 sleeps");
        assert!(slept > 0 || !target.starts_with("null"), "it never slept");
        session.close().unwrap();
    }
}

/// Another thread has the scheduler changed, and no number of hard queues, while this one makes
/// such calls.
fn while_another_changes_it(session: &mut InlineSession, mut call: impl FnMut(&mut InlineSession)) {
    let device = session.device().clone();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = Limited::of(&device).set_queues(2).unwrap_err().to_string();
            assert!(error.contains("serves hard queue 0 alone"), "{error}");
            // It wakes a thread that sleeps.
            Limited::of(&device).set_scheduler("bfq").unwrap();
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            call(session);
        }
    });
}

#[test]
fn a_session_that_waits_in_the_driver_does_the_same_with_one_hard_queue() {
    let folder = Folder::new();
    let target = format!("file:{},size=1M", folder.join("disk").display());
    let mut session = inline(&target);
    if !session.wait_in_driver() {
        // The kernel has no io_uring for this process: there is no such way.
        return session.close().unwrap();
    }
    let mut prng = Prng::new(seed());
    exercise(&mut session, &mut Model::zeros(0, 1 << 20), 4096, &mut prng, 60);
    each_comes_back_with_its_cookie(&mut session);
    while_another_changes_it(&mut session, |session| session.write_at(0, &[1; 4096]).unwrap());
    let error = session.arm().unwrap_err().to_string();
    assert!(error.contains("waits in the driver"), "{error}");
    session.close().unwrap();
    assert!(!inline("ram:1MiB").wait_in_driver());
}

fn is_ok(ended: Completion) {
    assert!(ended.status.is_ok(), "{}", ended.status);
}

#[test]
fn a_session_that_may_block_does_the_same_with_one_hard_queue() {
    let folder = Folder::new();
    for io in ["auto", "threads"] {
        let path = folder.join(io);
        let mut session = inline(&format!("file:{},size=1M,io={io}", path.display()));
        assert!(session.may_block(), "{io}");
        let mut prng = Prng::new(seed());
        exercise(&mut session, &mut Model::zeros(0, 1 << 20), 4096, &mut prng, 60);
        each_comes_back_with_its_cookie(&mut session);
        let mut next = 0;
        let mut durable = || {
            next += 1;
            Bio::write(next % 16 * 8, Buf::filled(4096, |b| b.fill(next as u8))).with(Flags::FUA)
        };
        for _ in 0..20 {
            session.submit(durable());
            session.wait(is_ok);
        }
        for _ in 0..20 {
            (0..4).for_each(|_| session.submit(durable()));
            while session.in_flight() > 0 {
                session.wait(is_ok);
            }
        }
        session.flush().unwrap();
        // What others ask for waits for the end of a call at most.
        while_another_changes_it(&mut session, |session| {
            session.submit(durable());
            session.wait(is_ok);
        });
        session.close().unwrap();
    }
    assert!(!inline("ram:1MiB").may_block());
    let path = folder.join("single");
    for options in ["queue_mode=sq", "queues=2"] {
        let mut session = inline(&format!("file:{},size=1M,{options}", path.display()));
        assert!(!session.may_block(), "{options}");
        session.write_at(0, &[1; 4096]).unwrap();
        session.close().unwrap();
    }
}

#[test]
fn a_thread_asleep_on_the_descriptor_wakes_for_the_change_of_another() {
    let mut session = inline("ram:1MiB");
    session.write_at(0, &[1; 4096]).unwrap();
    let device = session.device().clone();
    let (armed, done) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            armed.wait();
            Limited::of(&device).set_scheduler("mq-deadline").unwrap();
            Limited::of(&device).set_queues(2).unwrap();
            done.store(true, Ordering::Release);
            // A freeze rings too, and after that it is done.
            drop(Limited::of(&device).freeze().unwrap());
        });
        while !session.arm().unwrap() {
            session.poll(|_| panic!("nothing is in flight"));
        }
        armed.wait();
        while !done.load(Ordering::Acquire) {
            let mut fds = [PollFd::new(&session, PollFlags::IN)];
            let time = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            assert!(poll(&mut fds, Some(&time)).unwrap() > 0, "it was not woken");
            session.poll(|_| panic!("nothing is in flight"));
            while !session.arm().unwrap() {
                session.poll(|_| panic!("nothing is in flight"));
            }
        }
    });
    assert_eq!(device.queues(), 2);
    session.close().unwrap();
}

#[test]
fn disks_below_are_turned_by_the_same_thread_or_by_their_reactors() {
    let mut model = Model::zeros(0, 2 << 20);
    let mut prng = Prng::new(seed());
    let mut session = inline("linear:ram:1M+ram:1M");
    exercise(&mut session, &mut model, 512, &mut prng, 60);
    session.close().unwrap();

    let legs = ["sdx", "sdy"].map(|name| Disk::builder("ram:1M").name(name).open().unwrap());
    let builder = Disk::builder("striped:64KiB:sdx+sdy").name("md0").over(&legs);
    let mut session = builder.open_inline().unwrap();
    exercise(&mut session, &mut Model::zeros(0, 2 << 20), 512, &mut prng, 60);
    let error = legs[0].close().unwrap_err().to_string();
    assert_eq!(error, "disk sdx is not closed: disk md0 lies on it and is open");
    drop(session);
    legs.iter().for_each(|leg| leg.close().unwrap());
}

#[test]
fn what_is_for_reactors_is_refused_and_what_cannot_be_opened_leaves_nothing() {
    let refused = |builder: weir::Builder| {
        let error = builder.name("sda").open_inline().map(drop).unwrap_err();
        error.to_string()
    };
    for (builder, what) in [
        (Disk::builder("ram:1M").reactors(2), "reactors"),
        (Disk::builder("ram:1M").host(Arc::new(weir::Host::new(1).unwrap())), "host"),
        (Disk::builder("ram:1M").backlog(7), "backlog"),
    ] {
        let error = refused(builder);
        let told = format!("disk sda: {what} is for a disk that reactors turn");
        assert!(error.starts_with(&told), "{error}");
    }
    let error = refused(Disk::builder("linear:sdx"));
    assert!(error.contains("its disk \"sdx\" is not open"), "{error}");
    let leg = Disk::builder("ram:1M").name("sdx").open().unwrap();
    leg.close().unwrap();
    let error = refused(Disk::builder("linear:sdx").over([&leg]));
    assert!(error.contains("sdx"), "{error}");
}

#[test]
fn a_completion_whose_receiver_panics_leaves_the_session_in_order() {
    let mut session = inline("ram:1MiB");
    (0..4).for_each(|block| session.submit(write(block * 16)));
    let (sender, receiver) = channel();
    let panics = std::panic::AssertUnwindSafe(|| {
        session.wait_for(4, PATIENCE, |_| {
            sender.send(()).unwrap();
            panic!("as arranged");
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!(receiver.try_iter().count(), 1);
    session.write_at(0, &[1; 4096]).unwrap();
    session.close().unwrap();
}

#[test]
fn a_burst_is_submitted_in_one_call_whatever_places_there_are() {
    for target in ["ram:4MiB", "ram:4MiB,nr_requests=4", "ram:4MiB,queue_mode=sq,nr_requests=4"] {
        let burst = |byte: u64| {
            (0..256).map(move |block| {
                let buf = Buf::filled(4096, |bytes| bytes.fill((byte + block) as u8));
                Bio::write(block * 8, buf).cookie(block)
            })
        };
        let mut inline = Disk::builder(target).open_inline().unwrap();
        let disk = Disk::open(target).unwrap();
        let mut hosted = disk.session().unwrap();
        let mut ended = [0_u64; 2];
        inline.submit_all(burst(1));
        while inline.in_flight() > 0 {
            inline.wait(|write| {
                assert_eq!(write.status, Status::Ok);
                ended[0] += write.cookie;
            });
        }
        hosted.submit_all(burst(2));
        while hosted.in_flight() > 0 {
            hosted.wait(|write| {
                assert_eq!(write.status, Status::Ok);
                ended[1] += write.cookie;
            });
        }
        assert_eq!(ended, [255 * 128; 2], "{target}: each once");
        let mut found = vec![0; 256 * 4096];
        inline.read_at(0, &mut found).unwrap();
        assert!(found.chunks(4096).zip(1..).all(|(block, byte)| block == [byte as u8; 4096]));
        hosted.read_at(0, &mut found).unwrap();
        assert!(found.chunks(4096).zip(2..).all(|(block, byte)| block == [byte as u8; 4096]));
        inline.close().unwrap();
        drop(hosted);
        disk.close().unwrap();
    }
}
