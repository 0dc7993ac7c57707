//! Disks for tasks that must not block: a queue that is awaited, I/O called back, disks opened,
//! closed and dropped aside.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use weir::{
    Bio, Buf, BufPool, Caps, Completion, Config, Device, Disk, Enqueue, Flags, GroupId, Groups,
    Limits, Nanos, Pending, Status, Target,
};
use weir_local::Ram;
use weir_queue::driver::Tag;
use weir_queue::{Batch, Cancel, Done, Driver, DriverError, DriverQueue, Queues};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

const BACKLOG: usize = 4;

/// A disk of one reactor that accepts nothing more, as a cap of a byte a second is used up, with a
/// full backlog.
fn full() -> (Disk, Arc<Groups>, Vec<Pending>) {
    let disk = Disk::builder("ram:1M").reactors(1).backlog(BACKLOG).open().unwrap();
    let groups = Arc::new(Groups::default());
    disk.device().attach_groups(&groups);
    let caps = Caps { rbps: NonZeroU64::new(1), ..Caps::default() };
    groups.set_caps(GroupId(0), caps).unwrap();
    assert_eq!(end(disk.start(read())).status, Status::Ok);
    let held = (0..BACKLOG).map(|_| disk.try_start(read()).unwrap()).collect();
    (disk, groups, held)
}

fn read() -> Bio {
    Bio::read(0, Buf::zeroed(4096))
}

/// A read that merges with none.
fn alone() -> Bio {
    read().with(Flags::NOMERGE)
}

/// Counts how often it was woken.
#[derive(Default)]
struct Tally(AtomicU32);

impl Wake for Tally {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A task that waits for room, and how often it was woken.
fn waiting(disk: &Disk) -> (Enqueue, Arc<Tally>) {
    let (mut enqueue, tally) = (disk.enqueue(read().cookie(7)), Arc::new(Tally::default()));
    let waker = Waker::from(Arc::clone(&tally));
    assert!(Pin::new(&mut enqueue).poll(&mut Context::from_waker(&waker)).is_pending());
    (enqueue, tally)
}

fn woken(tally: &Arc<Tally>) -> u32 {
    tally.0.load(Ordering::SeqCst)
}

/// What a future comes to. One that is not told fails the test, and does not stop all of them.
#[track_caller]
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let began = Instant::now();
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => {
                let left = PATIENCE.saturating_sub(began.elapsed());
                assert!(!left.is_zero(), "not told of an end in {PATIENCE:?}");
                std::thread::park_timeout(left);
            }
        }
    }
}

/// How an I/O ends.
#[track_caller]
fn end(pending: Pending) -> Completion {
    block_on(pending)
}

#[test]
fn a_task_waits_for_room_and_its_i_o_is_started_when_there_is_some() {
    let (disk, groups, held) = full();
    let tasks: Vec<_> = (0..20)
        .map(|cookie| {
            let disk = disk.clone();
            let enqueue = disk.enqueue(read().cookie(cookie));
            std::thread::spawn(move || {
                let ended = block_on(async { enqueue.await.await });
                (ended.cookie, ended.status, ended.data.len())
            })
        })
        .collect();
    let (waits, _) = waiting(&disk);
    groups.set_caps(GroupId(0), Caps::default()).unwrap();
    for (cookie, task) in tasks.into_iter().enumerate() {
        assert_eq!(task.join().unwrap(), (cookie as u64, Status::Ok, 4096));
    }
    assert!(held.into_iter().all(|held| end(held).status == Status::Ok));
    drop(waits);
    disk.close().unwrap();
}

#[test]
fn a_place_wakes_the_first_task_in_line_and_is_passed_on_if_that_has_gone() {
    let (disk, _groups, mut held) = full();
    let [(first, to_first), (second, to_second), (third, to_third)] =
        [0; 3].map(|_| waiting(&disk));
    let told = || [&to_first, &to_second, &to_third].map(woken);
    drop(second);
    assert_eq!(told(), [0, 0, 0], "there was no place for it");
    disk.cancel(&held[0]);
    // It is told when the place has been given on.
    assert_eq!(end(held.remove(0)).status, Status::Again);
    assert_eq!(told(), [1, 0, 0]);
    drop(first);
    assert_eq!(told(), [1, 0, 1]);
    let pending = block_on(third);
    assert!(!pending.has_ended(), "it has taken the place, and waits for the cap");
    assert!(disk.try_start(read()).is_err(), "and there is no other");
    disk.close().unwrap();
}

#[test]
fn a_permit_keeps_its_place_until_it_is_used_or_dropped() {
    let (disk, groups, mut held) = full();
    assert!(disk.try_reserve().is_none(), "the backlog is full");
    let (mut reserve, tally) = (disk.reserve(), Arc::new(Tally::default()));
    let waker = Waker::from(Arc::clone(&tally));
    let mut context = Context::from_waker(&waker);
    assert!(Pin::new(&mut reserve).poll(&mut context).is_pending());
    disk.cancel(&held[0]);
    assert_eq!(end(held.remove(0)).status, Status::Again);
    assert_eq!(woken(&tally), 1);
    let Poll::Ready(permit) = Pin::new(&mut reserve).poll(&mut context) else {
        panic!("it was woken for a place")
    };
    drop(reserve);
    assert!(disk.try_start(read()).is_err(), "the place is kept");
    // Dropped, it is free, and the first in line is told.
    let (other, to_other) = waiting(&disk);
    drop(permit);
    assert_eq!(woken(&to_other), 1);
    let permit = disk.try_reserve().expect("the other has not come yet");
    // Used, it is the I/O's, and not free once more.
    let pending = permit.start(read().cookie(9));
    assert!(!pending.has_ended(), "it waits for the cap as the others do");
    assert!(disk.try_start(read()).is_err(), "one place for one I/O");
    assert!(disk.try_reserve().is_none());
    drop(other);
    groups.set_caps(GroupId(0), Caps::default()).unwrap();
    let ended = end(pending);
    assert_eq!((ended.cookie, ended.status), (9, Status::Ok));
    assert!(held.into_iter().all(|held| end(held).status == Status::Ok));
    // All places are there again: none was counted twice.
    let all: Vec<_> = std::iter::from_fn(|| disk.try_reserve()).collect();
    assert_eq!(all.len(), BACKLOG);
    // A permit does not hold up a close, and what is started with it then ends at once.
    disk.close().unwrap();
    for permit in all {
        let ended = end(permit.start(read()));
        assert_eq!((ended.status, ended.data.len()), (Status::Offline, 4096));
    }
    assert_eq!(end(block_on(disk.reserve()).start(read())).status, Status::Offline);
}

#[test]
fn tasks_take_turns_with_few_buffers_and_fewer_places() {
    let disk = Disk::builder("ram:1M").reactors(1).backlog(2).open().unwrap();
    let pool = BufPool::new(4096, 3);
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let (disk, pool) = (disk.clone(), pool.clone());
            std::thread::spawn(move || {
                block_on(async {
                    for block in 0..50 {
                        let permit = disk.reserve().await;
                        let mut buf = pool.acquire().await;
                        buf.fill(task as u8);
                        let written =
                            permit.start(Bio::write((task * 8 + block % 8) * 8, buf)).await;
                        assert_eq!(written.status, Status::Ok);
                    }
                });
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(pool.free(), 3);
    let mut found = vec![0; 8 * 8 * 4096];
    disk.session().unwrap().read_at(0, &mut found).unwrap();
    assert!(found.chunks(8 * 4096).zip(0..).all(|(blocks, task)| blocks == vec![task; 8 * 4096]));
    disk.close().unwrap();
}

#[test]
fn a_closed_disk_tells_tasks_that_wait_and_gives_memory_back_that_it_never_accepted() {
    let (disk, _groups, held) = full();
    let (enqueue, tally) = waiting(&disk);
    disk.close().unwrap();
    assert_eq!(woken(&tally), 1);
    let ended = block_on(block_on(enqueue));
    assert_eq!((ended.cookie, ended.status, ended.data.len()), (7, Status::Offline, 4096));
    for held in held {
        let ended = end(held);
        assert_eq!((ended.status, ended.data.len()), (Status::Offline, 4096));
    }
    let ended = end(disk.start(read()));
    assert_eq!((ended.status, ended.data.len()), (Status::Offline, 4096));
}

#[test]
fn an_i_o_that_was_not_started_is_the_callers_again() {
    let (disk, _groups, held) = full();
    let (enqueue, tally) = waiting(&disk);
    let bio = enqueue.into_bio().unwrap();
    assert_eq!((bio.cookie, bio.data.len(), woken(&tally)), (7, 4096, 0));
    drop(held);
    disk.close().unwrap();
}

#[test]
fn a_cancel_ends_what_waits_with_its_memory_and_leaves_the_rest_as_it_is() {
    let (disk, groups, mut held) = full();
    // The last in line, and the first, which a cap was asked for.
    for index in [BACKLOG - 1, 0] {
        disk.cancel(&held[index]);
        let ended = end(held.remove(index));
        assert_eq!((ended.status, ended.data.len()), (Status::Again, 4096));
    }
    // Of each there is a place again.
    let more = [0; 2].map(|_| disk.try_start(read()).unwrap());
    assert!(disk.try_start(read()).is_err());
    groups.set_caps(GroupId(0), Caps::default()).unwrap();
    for rest in held.into_iter().chain(more) {
        assert_eq!(end(rest).status, Status::Ok);
    }
    // One that has ended, and one of another disk.
    let other = Disk::open("ram:1M").unwrap();
    let ended = disk.start(read());
    other.cancel(&ended);
    assert_eq!(end(ended).status, Status::Ok);
    other.close().unwrap();
    disk.close().unwrap();
}

/// Memory that answers nothing until it may.
struct Gated {
    inner: Ram,
    open: Arc<AtomicBool>,
    gone: Mutex<Sender<()>>,
    /// When it is brought to rest.
    panics: bool,
}

impl Gated {
    fn new() -> (Gated, Arc<AtomicBool>, Receiver<()>) {
        let (open, (sender, gone)) = (Arc::new(AtomicBool::new(false)), channel());
        let inner = Ram::new(1 << 20).unwrap();
        let gone_to = Mutex::new(sender);
        (Gated { inner, open: Arc::clone(&open), gone: gone_to, panics: false }, open, gone)
    }

    fn device() -> (Device, Arc<AtomicBool>, Receiver<()>) {
        let (driver, open, gone) = Gated::new();
        let config = Config { name: "sda".into(), ..Config::default() };
        (Device::new(config, Arc::new(driver)).unwrap(), open, gone)
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        // Not every test wants to know.
        let _ = self.gone.lock().unwrap().send(());
    }
}

impl Driver for Gated {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn comes_to_rest(&self, begins: bool) {
        assert!(!(begins && self.panics), "as was asked for");
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (inner, open) = (self.inner.open(index, depth)?, Arc::clone(&self.open));
        Ok(Box::new(GatedQueue { inner, open }))
    }
}

struct GatedQueue {
    inner: Box<dyn DriverQueue>,
    open: Arc<AtomicBool>,
}

impl DriverQueue for GatedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.inner.submit(batch, now);
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        if self.open.load(Ordering::Acquire) {
            self.inner.reap(now, done);
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

#[test]
fn the_drop_of_a_disk_that_a_task_has_opened_leaves_the_closing_to_a_thread() {
    for from_task in [true, false] {
        let (device, open, gone) = Gated::device();
        let builder = Disk::builder(device.clone()).close_limit(PATIENCE);
        let disk = match from_task {
            true => block_on(builder.open_async()).unwrap(),
            false => builder.drop_aside(true).open().unwrap(),
        };
        let pending = disk.start(Bio::write(0, Buf::zeroed(4096)));
        // A drop that waited would wait for what is let go only afterwards.
        drop(disk);
        drop(device);
        open.store(true, Ordering::Release);
        assert_eq!(end(pending).status, Status::Ok);
        gone.recv_timeout(PATIENCE).expect("the disk was closed");
    }
}

#[test]
fn a_closing_that_panics_leaves_none_waiting_for_ever() {
    for aside in [true, false] {
        let (mut driver, _open, _gone) = Gated::new();
        driver.panics = true;
        let target = Target::driver(Arc::new(driver));
        let target = target.with("nr_requests", 4).unwrap().with("queues", 1).unwrap();
        let builder = Disk::builder(target).reactors(1).close_limit(Duration::from_millis(50));
        let disk = builder.drop_aside(aside).open().unwrap();
        // Some with the driver, the others in front of a queue that is full.
        let pending: Vec<_> = (0..64).map(|_| disk.start(alone())).collect();
        drop(disk);
        let ended: Vec<_> = pending.into_iter().map(|one| end(one).status).collect();
        assert!(ended.iter().all(|status| *status == Status::Offline), "{ended:?}");
    }
}

#[test]
fn a_cancel_of_what_waits_behind_a_full_queue_gives_the_memory_back() {
    for mode in ["mq", "sq"] {
        let (driver, open, _gone) = Gated::new();
        let mut target = Target::driver(Arc::new(driver));
        for (name, value) in [("queue_mode", mode), ("queues", "1"), ("nr_requests", "4")] {
            target = target.with(name, value).unwrap();
        }
        let disk = Disk::builder(target).reactors(1).open().unwrap();
        let mut pending: Vec<_> =
            (0..64).map(|number| disk.start(alone().cookie(number))).collect();
        // The last in line, one in the middle of the line, and the first, which the driver has.
        for number in [63, 40] {
            disk.cancel(&pending[number]);
            let ended = end(pending.remove(number));
            let told = (ended.status, ended.cookie, ended.data.len());
            assert_eq!(told, (Status::Again, number as u64, 4096), "{mode}");
        }
        disk.cancel(&pending[0]);
        open.store(true, Ordering::Release);
        for rest in pending {
            assert_eq!(end(rest).status, Status::Ok, "{mode}");
        }
        assert_eq!(disk.stats().directions[0].ios, 62);
        disk.close().unwrap();
    }
}

#[test]
fn a_close_that_is_awaited_says_what_a_close_says() {
    let (device, open, _gone) = Gated::device();
    let builder = Disk::builder(device.clone()).close_limit(Duration::from_millis(50));
    let disk = block_on(builder.open_async()).unwrap();
    let pending = disk.start(Bio::write(0, Buf::zeroed(4096)));
    let began = Instant::now();
    while device.stats().in_flight == 0 {
        assert!(began.elapsed() < PATIENCE, "the write does not come to the driver");
        std::thread::yield_now();
    }
    let error = block_on(disk.close_async()).unwrap_err().to_string();
    assert!(error.starts_with("disk sda: 1 request unfinished"), "{error}");
    open.store(true, Ordering::Release);
    assert_eq!(end(pending).status, Status::Ok);
    // A busy machine may need more than the limit.
    let began = Instant::now();
    while let Err(error) = block_on(disk.close_async()) {
        assert!(began.elapsed() < PATIENCE, "{error}");
    }
    disk.close().unwrap();
    let error = block_on(Disk::builder("frob:1M").name("sdb").open_async()).unwrap_err();
    assert_eq!(error.to_string(), Disk::open("frob:1M").unwrap_err().to_string());
}
