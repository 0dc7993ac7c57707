//! Closing a disk that is in use: in one go, with everything durable that was acknowledged, and
//! with nothing left behind when it does not come to an end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use weir::{Bio, Buf, Config, Device, Disk, Limits, Nanos, Op, QueueMode, Session, Status};
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::driver::Tag;
use weir_queue::{Batch, Cancel, Done, Driver, DriverError, DriverQueue, Queues};

/// A volatile cache: it counts what it answered and what of that no flush covers.
#[derive(Default)]
struct Cache {
    written: AtomicU64,
    durable: AtomicU64,
}

impl Cache {
    fn lost(&self) -> u64 {
        self.written.load(Ordering::SeqCst) - self.durable.load(Ordering::SeqCst)
    }
}

struct Cached {
    inner: Arc<dyn Driver>,
    cache: Arc<Cache>,
}

impl Cached {
    fn new(inner: impl Driver + 'static) -> (Cached, Arc<Cache>) {
        let cache = Arc::new(Cache::default());
        (Cached { inner: Arc::new(inner), cache: Arc::clone(&cache) }, cache)
    }
}

impl Driver for Cached {
    fn limits(&self) -> Limits {
        Limits { volatile_cache: true, ..self.inner.limits() }
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (inner, cache) = (self.inner.open(index, depth)?, Arc::clone(&self.cache));
        let ops = vec![(Op::Read, 0); usize::from(depth)];
        Ok(Box::new(CachedQueue { inner, cache, ops, below: Done::default() }))
    }
}

struct CachedQueue {
    inner: Box<dyn DriverQueue>,
    cache: Arc<Cache>,
    /// By tag: what was asked, and what a flush covers.
    ops: Vec<(Op, u64)>,
    below: Done,
}

impl DriverQueue for CachedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let covered = self.cache.written.load(Ordering::SeqCst);
            self.ops[usize::from(tag.0)] = (request.rq().op, covered);
            let before = batch.len();
            batch.offer(1, |one| self.inner.submit(one, now));
            if batch.len() == before {
                return;
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.inner.reap(now, &mut self.below);
        for (tag, status, mut lent) in self.below.drain() {
            let Cache { written, durable } = &*self.cache;
            match self.ops[usize::from(tag.0)] {
                (Op::Write, _) => drop(written.fetch_add(1, Ordering::SeqCst)),
                (Op::Flush, covered) => drop(durable.fetch_max(covered, Ordering::SeqCst)),
                _ => {}
            }
            done.push_lent(tag, status, &mut lent);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.inner.cancel(tag)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.inner.wake_at()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

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
        assert_eq!(threads_called("weir-drain"), 0, "left behind");
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
