//! Closing a disk that is in use: in one go, with everything durable that was acknowledged, and
//! with nothing left behind when it does not come to an end.

mod bed;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use bed::cached::Cached;
use weir::{Bio, Buf, Config, Device, Disk, QueueMode, Session, Status};
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};

fn config(mode: QueueMode) -> Config {
    Config { name: "sda".into(), mode, ..Config::default() }
}

fn write(sector: u64) -> Bio {
    Bio::write(sector, Buf::zeroed(4096))
}

/// Keeps 8 writes under way until one ends offline, and says how many others there were.
fn write_on(session: &mut Session) -> u64 {
    let (mut ended, mut offline, mut next) = (0, false, 0);
    loop {
        while !offline && session.in_flight() < 8 {
            session.submit(write(next % 128 * 8));
            next += 1;
        }
        if session.in_flight() == 0 {
            return ended;
        }
        session.wait(|completion| match completion.status {
            Status::Ok => ended += 1,
            Status::Offline => offline = true,
            other => panic!("a write ended {other:?}"),
        });
    }
}

fn close_while_two_sessions_write(mode: QueueMode, iostats: bool) {
    let (driver, cache) = Cached::new(Null::new(1 << 20).unwrap().latency_ns(50_000));
    let device = Device::new(config(mode), Arc::new(driver)).unwrap();
    device.reconfigure(|parts| parts.iostats = iostats).unwrap();
    let disk =
        Disk::builder(device).reactors(2).close_limit(Duration::from_secs(30)).open().unwrap();
    let begun = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = disk.session().unwrap();
                // Something of its own was answered: it is at it when the disk closes.
                session.write_at(0, &[1; 4096]).unwrap();
                begun.wait();
                write_on(&mut session);
            });
        }
        begun.wait();
        disk.close().unwrap();
        assert_eq!(cache.lost(), 0, "{mode:?}, iostats={iostats}: acknowledged and not durable");
    });
    assert_eq!((cache.lost(), disk.stats().in_flight), (0, 0));
}

#[test]
fn a_busy_disk_closes_in_one_go_with_all_durable_that_was_acknowledged() {
    for _ in 0..8 {
        for mode in [QueueMode::Mq, QueueMode::Sq] {
            close_while_two_sessions_write(mode, true);
        }
    }
}

#[test]
fn a_close_without_statistics_leaves_nothing_acknowledged_unflushed() {
    for _ in 0..8 {
        close_while_two_sessions_write(QueueMode::Mq, false);
    }
}

/// Waits until this process has no thread of this name: one that was joined may still be listed for
/// a moment.
fn wait_for_no_thread(name: &str) {
    let began = Instant::now();
    while threads_called(name) > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{name} is left behind");
        std::thread::yield_now();
    }
}

/// Threads of this process by the name they have.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|found| found.trim() == name).count()
}

#[test]
fn a_close_that_is_given_up_lets_i_o_in_again_and_leaves_no_thread() {
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let faulty = Faulty::new(Arc::new(Ram::new(1 << 20).unwrap()), plan, 1);
    let device = Device::new(config(QueueMode::Mq), Arc::new(faulty)).unwrap();
    let disk = Disk::builder(device).close_limit(Duration::from_millis(200)).open().unwrap();
    let mut session = disk.session().unwrap();
    for unfinished in 1..=3 {
        let taken = session.try_submit(write(unfinished * 64));
        assert!(taken.is_ok(), "the gate is shut after a close that failed: {taken:?}");
        session.flush_plug();
        let error = disk.close().unwrap_err().to_string();
        let begins = format!("disk sda: {unfinished} request");
        assert!(error.starts_with(&begins), "{error}");
        assert!(error.contains(" unfinished, the oldest after "), "{error}");
        wait_for_no_thread("weir-drain");
    }
}

#[test]
fn a_close_that_is_given_up_lets_futures_and_callbacks_in_again() {
    let limit = Duration::from_millis(200);
    let disk = Disk::builder("ram:1MiB,queues=1").close_limit(limit).open().unwrap();
    let mut session = disk.session().unwrap();
    // Its completion is not taken, so it counts as unfinished.
    session.submit(write(0));
    session.flush_plug();
    disk.close().unwrap_err();
    assert_eq!(disk.start(write(64)).wait().status, Status::Ok);
    assert_eq!(session.wait(|completion| assert_eq!(completion.status, Status::Ok)), 1);
    disk.close().unwrap();
    assert_eq!(disk.start(write(64)).wait().status, Status::Offline);
}
