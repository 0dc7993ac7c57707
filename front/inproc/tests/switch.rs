//! Changes under load: several threads write, read back and check, on every path, while another
//! switches schedulers, sets tunables and changes how many requests and hard queues there are.

mod bed;
#[path = "../../../host/live/tests/noted/mod.rs"]
mod noted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bed::seed;
use noted::Noted;
use weir::{
    Bio, Buf, Clock, Completion, Config, Data, Device, Disk, Op, QueueMode, Session, Source,
    Spread, Status,
};
use weir_bio::{Limits, Prng};
use weir_local::Ram;
use weir_queue::{Driver, DriverError, DriverQueue, Queues};

/// Changes of each mode.
const CHANGES: u64 = 1000;

/// I/Os that end between two changes: without them the disk would hardly ever be open.
const BETWEEN: u64 = 20;

/// How long anything may take on a machine that is busy with other things, ns.
const PATIENCE: u64 = 60_000_000_000;

/// Threads that do I/O, I/Os each has under way, and blocks each has to itself.
const THREADS: u64 = 3;
const UNDER_WAY: usize = 24;
const BLOCKS: u64 = 128;

/// Bytes and sectors of a block.
const BLOCK: usize = 4096;
const SECTORS: u64 = 8;

/// Memory whose hard queues draw on one set of tags, if they are to, and which has so many of them
/// at most.
struct Memory {
    inner: Ram,
    shared_tags: bool,
    most: u16,
    /// Queues from this one on cannot be opened.
    broken_from: u16,
    /// Queues that a request has come to, a bit each.
    used: Arc<AtomicU64>,
}

impl Driver for Memory {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        let Memory { shared_tags, most, .. } = *self;
        Queues { shared_tags, max: most, depth: 16, ..self.inner.queues() }
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        if index >= self.broken_from {
            let what = format!("queue {index} of this memory is broken");
            return Err(DriverError { what, source: None });
        }
        let inner = self.inner.open(index, depth)?;
        Ok(Box::new(Noted { inner, bit: 1 << index, used: Arc::clone(&self.used) }))
    }
}

/// A way of putting queues in front of it.
#[derive(Clone, Copy, Debug)]
struct Path {
    mode: QueueMode,
    spread: Spread,
    queues: u16,
    shared_tags: bool,
}

const fn path(mode: QueueMode, queues: u16, shared_tags: bool) -> Path {
    Path { mode, spread: Spread::Submitter, queues, shared_tags }
}

const PATHS: [Path; 5] = [
    path(QueueMode::Sq, 1, false),
    path(QueueMode::Mq, 1, false),
    path(QueueMode::Mq, 2, false),
    path(QueueMode::Mq, 2, true),
    Path { spread: Spread::RoundRobin, ..path(QueueMode::Mq, 2, false) },
];

/// The most hard queues a path has in these tests.
const QUEUES_MAX: u16 = 5;

fn open(path: Path) -> Disk {
    open_broken(path, u16::MAX)
}

fn open_broken(path: Path, broken_from: u16) -> Disk {
    open_noted(path, broken_from, 2).0
}

/// The disk, and which of its queues were used.
fn open_noted(path: Path, broken_from: u16, reactors: usize) -> (Disk, Arc<AtomicU64>) {
    let Path { mode, spread, queues, shared_tags } = path;
    let most = if mode == QueueMode::Sq { 1 } else { QUEUES_MAX };
    let inner = Ram::new(THREADS * BLOCKS * BLOCK as u64).unwrap();
    let used = Arc::new(AtomicU64::new(0));
    let driver = Memory { inner, shared_tags, most, broken_from, used: Arc::clone(&used) };
    let config = Config { name: "sda".into(), mode, spread, queues, ..Config::default() };
    let device = Device::new(config, Arc::new(driver)).unwrap();
    (Disk::builder(Source::Device(device)).reactors(reactors).open().unwrap(), used)
}

/// The contents of a block after so many writes; zeros before the first.
fn contents(block: u64, writes: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    if writes > 0 {
        Prng::new(block << 32 | writes).fill(&mut bytes);
    }
    bytes
}

/// One thread's load: random writes and reads of its own blocks, one of a block at a time.
struct Load {
    session: Session,
    first: u64,
    /// By block: how often it was written.
    writes: Vec<u64>,
    busy: Vec<bool>,
    under_way: usize,
    prng: Prng,
}

/// The state that the loads share with the thread that changes the disk.
#[derive(Default)]
struct News {
    stop: AtomicBool,
    ended: AtomicU64,
}

impl Load {
    fn new(disk: &Disk, first: u64, seed: u64) -> Load {
        Load {
            session: disk.session().unwrap(),
            first,
            writes: vec![0; BLOCKS as usize],
            busy: vec![false; BLOCKS as usize],
            under_way: 0,
            prng: Prng::new(seed),
        }
    }

    /// Until it is told to stop; then reads everything once more.
    fn run(mut self, news: &News) {
        while !news.stop.load(Ordering::Relaxed) {
            while self.under_way < UNDER_WAY {
                self.start_one();
            }
            news.ended.fetch_add(self.take_some(), Ordering::Relaxed);
        }
        for block in 0..BLOCKS {
            while self.under_way > 0 {
                self.take_some();
            }
            self.start(Op::Read, block);
        }
        while self.under_way > 0 {
            self.take_some();
        }
    }

    fn start_one(&mut self) {
        // Now and then in order, so that there is something to merge.
        let from = self.prng.below(BLOCKS);
        let run = if self.prng.percent(30) { 4 } else { 1 };
        let op = if self.prng.percent(50) { Op::Write } else { Op::Read };
        for block in (from..BLOCKS).take(run) {
            if !self.busy[block as usize] {
                self.start(op, block);
            }
        }
    }

    fn start(&mut self, op: Op, block: u64) {
        let (index, place) = (block as usize, self.first + block);
        let mut buf = Buf::zeroed(BLOCK);
        if op == Op::Write {
            self.writes[index] += 1;
            buf.copy_from_slice(&contents(place, self.writes[index]));
        }
        self.busy[index] = true;
        self.under_way += 1;
        let bio = Bio::new(op, place * SECTORS, SECTORS as u32, Data::One(buf));
        self.session.submit(bio.cookie(block));
    }

    fn take_some(&mut self) -> u64 {
        let Load { session, first, writes, busy, under_way, .. } = self;
        session.wait(|completion| {
            let Completion { cookie: block, status, op, data, .. } = completion;
            let index = block as usize;
            let place = *first + block;
            assert_eq!(status, Status::Ok, "{op:?} of block {place}");
            if op == Op::Read {
                let mut bytes = [0; BLOCK];
                data.copy_to(&mut bytes);
                let right = bytes == contents(place, writes[index]);
                assert!(right, "block {place} is not what write {} left", writes[index]);
            }
            assert!(std::mem::replace(&mut busy[index], false), "block {place} ended twice");
            *under_way -= 1;
        }) as u64
    }
}

/// Lets every thread's load run on a disk while `change` is called so many times.
fn change_under_load(path: Path, seed: u64, mut change: impl FnMut(&Disk, &mut Prng)) {
    let disk = open(path);
    let news = News::default();
    let mut prng = Prng::new(seed);
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let load_seed = prng.next();
                let (disk, news) = (disk.clone(), &news);
                scope.spawn(move || Load::new(&disk, thread * BLOCKS, load_seed).run(news))
            })
            .collect();
        let end = StopAtEnd(&news);
        for change_number in 0..CHANGES {
            let (from, since) = (news.ended.load(Ordering::Relaxed), Clock.now());
            while news.ended.load(Ordering::Relaxed) < from + BETWEEN {
                let stuck = Clock.now().since(since) > PATIENCE;
                assert!(!stuck, "nothing ends after {change_number} changes");
                assert!(!loads.iter().any(|load| load.is_finished()), "a load failed");
                std::thread::yield_now();
            }
            change(&disk, &mut prng);
        }
        drop(end);
        loads.into_iter().for_each(|load| load.join().expect("a load that was right"));
    });
    let stats = disk.stats();
    assert_eq!((stats.in_flight, stats.errors), (0, 0));
    let ended = news.ended.into_inner();
    println!("{path:?}: {CHANGES} changes beside {ended} I/Os");
    disk.close().unwrap();
}

/// Loads end also when the changes fail.
struct StopAtEnd<'a>(&'a News);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Another scheduler than the one there is, if the path has another.
fn switch(device: &Device, prng: &mut Prng) {
    let before = device.scheduler();
    let others: Vec<_> = device.schedulers().into_iter().filter(|name| *name != before).collect();
    if others.is_empty() {
        return;
    }
    let name = others[prng.below(others.len() as u64) as usize];
    device.set_scheduler(name, &|| Clock.now()).unwrap();
    assert_eq!(device.scheduler(), name);
}

/// A small value for one of the scheduler's tunables. One that it does not take changes nothing.
fn tune(device: &Device, prng: &mut Prng) {
    let table = device.tunables();
    if table.is_empty() {
        return;
    }
    let tunable = &table[prng.below(table.len() as u64) as usize];
    let before = device.tunable(tunable.name).unwrap();
    let refused = device.set_tunable(tunable.name, &prng.below(6).to_string()).is_err();
    assert!(!refused || device.tunable(tunable.name).unwrap() == before, "{}", tunable.name);
}

fn resize(device: &Device, prng: &mut Prng) {
    let most = if device.scheduler() == "none" { u64::from(device.depth()) } else { 64 };
    let count = 4 + prng.below(most - 3) as u16;
    device.reconfigure(|parts| parts.nr_requests = count).unwrap();
    assert_eq!(device.nr_requests(), count);
}

#[test]
fn nothing_is_lost_while_schedulers_tunables_and_requests_change() {
    let seed = seed();
    for path in PATHS {
        change_under_load(path, seed, |disk, prng| {
            switch(disk.device(), prng);
            tune(disk.device(), prng);
            if prng.percent(25) {
                resize(disk.device(), prng);
            }
        });
    }
}

/// Another number of hard queues; the same scheduler, anew.
fn change_queues(device: &Device, prng: &mut Prng) {
    let most = device.queues_max();
    let count = 1 + prng.below(u64::from(most)) as u16;
    let before = (device.queues(), device.scheduler());
    device.set_queues(count).unwrap();
    assert_eq!((device.queues(), device.scheduler()), (count, before.1));
    let refused = device.set_queues(most + 1).unwrap_err().to_string();
    assert!(refused.contains("queues=6 of sda is outside 1..=5"), "{refused}");
}

#[test]
fn nothing_is_lost_while_the_number_of_hard_queues_changes() {
    let seed = seed();
    for path in PATHS.into_iter().filter(|path| path.mode == QueueMode::Mq) {
        let mut most = 0;
        change_under_load(path, seed, |disk, prng| {
            change_queues(disk.device(), prng);
            most = most.max(disk.device().queues());
            match prng.below(8) {
                0 | 1 => switch(disk.device(), prng),
                2 => resize(disk.device(), prng),
                // Submitters come and go as well.
                3 => disk.session().unwrap().flush().unwrap(),
                _ => {}
            }
        });
        assert_eq!(most, QUEUES_MAX);
    }
}

#[test]
fn futures_and_callbacks_use_the_queues_a_disk_gets_later() {
    let (disk, used) = open_noted(path(QueueMode::Mq, 1, false), u16::MAX, 4);
    for (queues, expected) in [(1, 0b1), (4, 0b1111), (2, 0b11), (4, 0b1111)] {
        disk.device().set_queues(queues).unwrap();
        // The reactor that began a run of neighbours ends it where it was.
        (0..64).for_each(|_| drop(disk.start(Bio::read(0, Buf::zeroed(BLOCK))).wait()));
        used.store(0, Ordering::Relaxed);
        (0..256).for_each(|_| drop(disk.start(Bio::read(0, Buf::zeroed(BLOCK))).wait()));
        assert_eq!(used.load(Ordering::Relaxed), expected, "{queues} queues");
    }
    disk.close().unwrap();
}

#[test]
fn a_queue_that_the_driver_refuses_leaves_everything_as_it_was() {
    let disk = open_broken(path(QueueMode::Mq, 2, false), 3);
    let device = disk.device();
    device.set_scheduler("kyber", &|| Clock.now()).unwrap();
    device.set_tunable("read_lat_nsec", "12345").unwrap();
    device.reconfigure(|parts| parts.nr_requests = 33).unwrap();
    let mut session = disk.session().unwrap();
    session.write_at(0, &contents(0, 1)).unwrap();
    for _ in 0..3 {
        let error = device.set_queues(5).unwrap_err().to_string();
        assert!(error.contains("queue 3 of this memory is broken"), "{error}");
        assert_eq!((device.queues(), device.scheduler()), (2, "kyber"));
        assert_eq!(device.tunable("read_lat_nsec").unwrap(), "12345");
        assert_eq!(device.nr_requests(), 33);
        let mut bytes = [0; BLOCK];
        session.read_at(0, &mut bytes).unwrap();
        assert!(bytes == contents(0, 1));
    }
    device.set_queues(3).unwrap();
    // Linux attaches the scheduler anew, and a new one has its defaults.
    assert_eq!((device.queues(), device.scheduler()), (3, "kyber"));
    assert_ne!(device.tunable("read_lat_nsec").unwrap(), "12345");
    assert_eq!(device.nr_requests(), 2 * device.depth());
    disk.close().unwrap();
}

#[test]
fn the_number_of_hard_queues_has_bounds_and_stays_when_nobody_turns_them() {
    let single = open(path(QueueMode::Sq, 1, false));
    single.device().set_queues(1).unwrap();
    let refused = single.device().set_queues(2).unwrap_err().to_string();
    assert!(refused.contains("queues=2 of sda is outside 1..=1: queue_mode=sq"), "{refused}");
    let disk = open(path(QueueMode::Mq, 2, false));
    let refused = disk.device().set_queues(0).unwrap_err().to_string();
    assert!(refused.contains("queues=0 of sda is outside 1..=5"), "{refused}");
    let device = disk.device().clone();
    disk.close().unwrap();
    let refused = device.set_queues(3).unwrap_err().to_string();
    assert!(refused.contains("sda is being removed"), "{refused}");
    let config = Config { name: "sdb".into(), ..Config::default() };
    let alone = Device::new(config, Arc::new(Ram::new(1 << 20).unwrap())).unwrap();
    let refused = alone.set_queues(2).unwrap_err().to_string();
    assert!(refused.contains("queues=2 of sdb: no host turns its queues"), "{refused}");
}
