//! Memory as a virtual machine has it: mapped twice, and written through the other mapping while
//! the I/O is under way. It goes through the queue to drivers of this room, and to one that answers
//! when it is told to.

mod bed;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bed::TempFile;
use bed::outside::leave_out;
use weir_bio::{Bio, Data, Flags, Limits, Nanos, Op, Segment, Segments, Status};
use weir_local::ram::{Cache, CrashRam};
use weir_local::{File, FileOptions, Io, Null, Ram};
use weir_queue::driver::{Affinity, Cancel};
use weir_queue::{
    Batch, Bell, Completion, Config, Device, Done, Driver, DriverError, DriverQueue, Kept, Lane,
    NoWake, Queues, Submitter, Tag,
};

const PAGE: usize = 4096;
const SECOND: u64 = 1_000_000_000;

/// How long a file may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of the two mappings; dropping it unmaps it.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
    ended: Arc<AtomicUsize>,
}

// SAFETY: it is an address and a length, used by raw and volatile accesses only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the range was mapped by `Guest::new`, and no piece of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The memory of a guest: what weir is given, and what the guest sees.
struct Guest {
    given: Option<Arc<Mapping>>,
    own: Mapping,
    ended: Arc<AtomicUsize>,
}

impl Guest {
    fn new(pages: usize) -> Guest {
        let len = pages * PAGE;
        let ended = Arc::new(AtomicUsize::new(0));
        // SAFETY: plain system calls; each mapping is new, and lives until it is dropped.
        let map = |file, ended: &Arc<AtomicUsize>| unsafe {
            let how = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), len, how, libc::MAP_SHARED, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Mapping { start: NonNull::new(start.cast()).unwrap(), len, ended: Arc::clone(ended) }
        };
        // SAFETY: as above; the descriptor is closed once, and the mappings do not need it.
        unsafe {
            let file = libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, len as libc::off_t) == 0);
            let given = Some(Arc::new(map(file, &ended)));
            let own = map(file, &Arc::default());
            libc::close(file);
            Guest { given, own, ended }
        }
    }

    /// Segments by place and length.
    fn data(&self, table: &[(usize, usize)]) -> Data {
        let owner = Arc::clone(self.given.as_ref().expect("not left yet"));
        let segment = |&(at, len): &(usize, usize)| {
            assert!(at + len <= owner.len);
            // SAFETY: inside the mapping.
            Segment { start: unsafe { owner.start.add(at) }, len: len as u32 }
        };
        let segments: Vec<Segment> = table.iter().map(segment).collect();
        // SAFETY: the mapping lives as long as its owner, can be written, and no reference to it is
        // ever made.
        Data::Segments(unsafe { Segments::new(owner, &segments) })
    }

    /// The guest goes away: what weir still has keeps the memory.
    fn leave(&mut self) {
        self.given = None;
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }

    fn put(&self, at: usize, byte: u8) {
        assert!(at < self.own.len);
        // SAFETY: inside the mapping; volatile, as others may access it.
        unsafe { self.own.start.as_ptr().add(at).write_volatile(byte) };
    }

    fn fill(&self, table: &[(usize, usize)], mut byte: impl FnMut(usize) -> u8) {
        let places = table.iter().flat_map(|(at, len)| *at..at + len);
        places.enumerate().for_each(|(index, at)| self.put(at, byte(index)));
    }

    fn bytes(&self, table: &[(usize, usize)]) -> Vec<u8> {
        let places = table.iter().flat_map(|(at, len)| *at..at + len);
        // SAFETY: as in `put`; the mapping ends where the table's places may.
        places.map(|at| unsafe { self.own.start.as_ptr().add(at).read_volatile() }).collect()
    }

    /// Runs `work` while another thread writes 1 and 2 to each byte of the table again and again.
    fn scribbled<T>(&self, table: &[(usize, usize)], work: impl FnOnce() -> T) -> T {
        self.fill(table, |_| 1);
        let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    self.fill(table, |_| 2);
                    self.fill(table, |_| 1);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            while rounds.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let result = work();
            stop.store(true, Ordering::Relaxed);
            result
        })
    }
}

fn pattern(index: usize) -> u8 {
    (index % 251) as u8
}

/// A device turned by hand.
struct Scene {
    device: Device,
    lane: Lane,
    submitter: Option<Submitter>,
    now: Nanos,
}

impl Scene {
    fn new(driver: Arc<dyn Driver>) -> Scene {
        let config =
            Config { scheduler: Some("none".into()), timeout_ns: 2 * SECOND, ..Config::default() };
        let device = Device::new(config, driver).unwrap();
        let bell = Bell::new(Box::new(NoWake), 8);
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = Some(device.submitter(&bell, 0, 0).unwrap());
        Scene { device, lane, submitter, now: Nanos(SECOND) }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.as_mut().unwrap().submit(bio, self.now).expect("room for a bio");
    }

    /// One turn, at the same time.
    fn turn(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        if let Some(submitter) = &mut self.submitter {
            submitter.flush_plug(self.now);
        }
        self.lane.run(self.now);
        if let Some(submitter) = &mut self.submitter {
            submitter.complete(self.now, |completion| ended.push(completion));
        }
        ended
    }

    fn turns_for(&mut self, ns: u64) -> Vec<Completion> {
        let until = self.now + ns;
        let mut ended = Vec::new();
        while self.now < until {
            self.now = self.now + SECOND / 4;
            ended.extend(self.turn());
        }
        ended
    }

    /// Turns until so many have ended, by cookie.
    fn ended(&mut self, count: usize) -> Vec<Completion> {
        let mut ended = Vec::new();
        let until = Instant::now() + PATIENCE;
        while ended.len() < count {
            assert!(Instant::now() < until, "it does not end");
            ended.extend(self.turn());
            std::thread::yield_now();
        }
        assert_eq!(ended.len(), count);
        ended.sort_by_key(|completion| completion.cookie);
        ended
    }

    fn one(&mut self, bio: Bio) -> Completion {
        self.submit(bio);
        self.ended(1).remove(0)
    }
}

fn bio(op: Op, sector: u64, data: Data) -> Bio {
    let sectors = (data.len() / 512) as u32;
    Bio::new(op, sector, sectors, data)
}

/// One request of the patient driver: its tag, op, first sector and memory.
type Taken = (Tag, Op, u64, Vec<Data>);

#[derive(Default)]
struct World {
    bytes: Vec<u8>,
    taken: Vec<Taken>,
    /// Length of each request, and how many segments its memory had; 0 if it was a buffer.
    seen: Vec<(usize, usize)>,
    holds: bool,
}

/// A disk that keeps all memory it is lent until it answers.
#[derive(Clone)]
struct Patient {
    limits: Limits,
    world: Arc<Mutex<World>>,
}

impl Patient {
    fn new(limits: Limits) -> Patient {
        let capacity = 1024;
        let bytes = vec![0; capacity as usize * 512];
        let world = Arc::new(Mutex::new(World { bytes, ..World::default() }));
        Patient { limits: Limits { capacity, ..limits }, world }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn scene(&self) -> Scene {
        Scene::new(Arc::new(self.clone()))
    }
}

impl Driver for Patient {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 16, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(self.clone()))
    }
}

impl DriverQueue for Patient {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        let mut world = self.world();
        batch.take_all(|tag, request| {
            let mut lent = Vec::new();
            let (op, sector) = (request.op(), request.rq().sector);
            request.lend(&mut lent);
            let table = lent.iter().map(|data| match data {
                Data::Segments(segments) => segments.as_slice().len(),
                _ => 0,
            });
            world.seen.push((lent.iter().map(Data::len).sum(), table.sum()));
            world.taken.push((tag, op, sector, lent));
        });
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut world = self.world();
        let World { bytes, taken, holds, .. } = &mut *world;
        if *holds {
            return;
        }
        for (tag, op, sector, mut lent) in taken.drain(..) {
            let mut at = sector as usize * 512;
            for data in &mut lent {
                let place = &mut bytes[at..at + data.len()];
                match op {
                    Op::Read => data.copy_from_at(0, place),
                    _ => data.copy_to(place),
                }
                at += data.len();
            }
            done.push_lent(tag, Status::Ok, &mut lent);
        }
    }

    fn cancel(&mut self, _tag: Tag) -> Cancel {
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        Some(Nanos(u64::MAX))
    }

    fn in_flight(&self) -> usize {
        self.world().taken.len()
    }
}

fn narrow(takes_segments: bool) -> Limits {
    Limits { takes_segments, max_hw_sectors: 8, ..Limits::default() }
}

/// Pages that lie apart, in another order than in memory, and parts of pages.
const TABLE: [(usize, usize); 4] = [(8 * PAGE, PAGE), (2 * PAGE, 2 * PAGE), (0, 512), (PAGE, 3584)];

#[test]
fn segments_are_split_and_come_back_as_the_same_table_with_the_same_bytes() {
    for takes in [true, false] {
        let (mut guest, driver) = (Guest::new(10), Patient::new(narrow(takes)));
        let mut scene = driver.scene();
        guest.fill(&TABLE, pattern);
        let before: Vec<Segment> = guest.data(&TABLE).segments().collect();
        let written = scene.one(bio(Op::Write, 16, guest.data(&TABLE)));
        assert_eq!((written.status, written.data.len()), (Status::Ok, 4 * PAGE));
        assert_eq!(written.data.segments().collect::<Vec<_>>(), before);
        let expected: Vec<u8> = (0..4 * PAGE).map(pattern).collect();
        assert!(driver.world().bytes[16 * 512..][..4 * PAGE] == expected);
        // Two segments in the last one. Buffers are one each.
        let one = usize::from(takes);
        let seen = [one, one, one, 2 * one].map(|segments| (PAGE, segments));
        assert_eq!(driver.world().seen, seen);
        guest.fill(&TABLE, |_| 0);
        let read = scene.one(bio(Op::Read, 16, written.data));
        assert!(guest.bytes(&TABLE) == expected);
        assert_eq!(read.data.segments().collect::<Vec<_>>(), before);
        guest.leave();
        assert_eq!(guest.ended(), 0, "the caller has it");
        drop(read);
        assert_eq!(guest.ended(), 1);
    }
}

#[test]
fn segments_are_merged_in_the_plug_and_each_bio_gets_its_own_back() {
    for takes in [true, false] {
        let (guest, driver) = (Guest::new(10), Patient::new(narrow(takes)));
        let mut scene = driver.scene();
        guest.fill(&TABLE, pattern);
        let tables = [[(8 * PAGE, 512), (512, 512)], [(2 * PAGE, 1024), (0, 512)]];
        for (cookie, table) in tables.iter().enumerate() {
            let sector = 2 * cookie as u64;
            scene.submit(bio(Op::Write, sector, guest.data(table)).cookie(cookie as u64));
        }
        let expected = tables.map(|table| guest.bytes(&table));
        for (ended, table) in scene.ended(2).iter().zip(tables) {
            let before: Vec<Segment> = guest.data(&table).segments().collect();
            assert_eq!(ended.data.segments().collect::<Vec<_>>(), before);
        }
        assert_eq!(driver.world().bytes[..5 * 512], expected.concat());
        assert_eq!(driver.world().seen, [(5 * 512, if takes { 4 } else { 0 })]);
    }
}

#[test]
fn what_would_have_to_be_split_and_must_not_wait_comes_back_at_once() {
    for takes in [true, false] {
        let (mut guest, driver) = (Guest::new(10), Patient::new(narrow(takes)));
        let mut scene = driver.scene();
        let refused = scene.one(bio(Op::Write, 0, guest.data(&TABLE)).with(Flags::NOWAIT));
        assert_eq!((refused.status, refused.data.segments().len()), (Status::Again, 4));
        assert!(driver.world().seen.is_empty());
        guest.leave();
        drop(refused);
        assert_eq!(guest.ended(), 1);
    }
}

#[test]
fn memory_of_a_request_that_was_given_up_is_kept_until_the_driver_answers() {
    let (mut guest, driver) = (Guest::new(10), Patient::new(narrow(true)));
    let mut scene = driver.scene();
    driver.world().holds = true;
    scene.submit(bio(Op::Read, 0, guest.data(&TABLE[..1])));
    let ended = scene.turns_for(10 * SECOND);
    assert_eq!((ended.len(), ended[0].status, ended[0].data.len()), (1, Status::Timeout, 0));
    guest.leave();
    drop(ended);
    assert_eq!(guest.ended(), 0, "the driver may still write there");
    driver.world().bytes.fill(7);
    driver.world().holds = false;
    scene.turn();
    assert_eq!(guest.bytes(&TABLE[..1]), [7; PAGE], "and it has");
    assert_eq!(guest.ended(), 1);
}

#[test]
fn a_driver_that_is_given_a_buffer_in_its_place_keeps_that_one_alone() {
    let (mut guest, driver) = (Guest::new(10), Patient::new(narrow(false)));
    let mut scene = driver.scene();
    driver.world().holds = true;
    scene.submit(bio(Op::Read, 0, guest.data(&TABLE)));
    let ended = scene.turns_for(10 * SECOND);
    assert_eq!((ended.len(), ended[0].status), (1, Status::Timeout));
    guest.leave();
    drop(ended);
    assert_eq!(guest.ended(), 1, "the driver has never heard of it");
    driver.world().bytes.fill(7);
    driver.world().holds = false;
    scene.turn();
    assert_eq!(guest.bytes(&TABLE), vec![0; 4 * PAGE], "what comes too late is lost");
}

#[test]
fn memory_outlives_its_submitter_and_its_device() {
    for submitter_first in [true, false] {
        let (mut guest, driver) = (Guest::new(10), Patient::new(narrow(true)));
        let mut scene = driver.scene();
        driver.world().holds = true;
        scene.submit(bio(Op::Write, 0, guest.data(&TABLE)));
        scene.turn();
        guest.leave();
        if submitter_first {
            scene.submitter = None;
            scene.turn();
            driver.world().holds = false;
            assert_eq!(guest.ended(), 0);
            scene.turns_for(SECOND);
            assert_eq!(guest.ended(), 1, "it has ended, and there is no caller");
            continue;
        }
        let ended = scene.turns_for(10 * SECOND);
        assert_eq!((ended.len(), ended[0].status), (1, Status::Timeout));
        drop(ended);
        let Scene { device, lane, submitter, .. } = scene;
        drop(submitter);
        drop(lane);
        drop(device);
        assert_eq!(guest.ended(), 0, "the driver has it");
        driver.world().taken.clear();
        assert_eq!(guest.ended(), 1);
    }
}

#[test]
fn what_is_kept_of_a_block_never_lies_in_the_memory_of_a_guest() {
    let limits = Limits { logical_block_size: 4096, ..narrow(true) };
    let (guest, driver) = (Guest::new(10), Patient::new(limits));
    let mut scene = driver.scene();
    driver.world().bytes.fill(3);
    guest.fill(&TABLE, |_| 9);
    let patch = bio(Op::Write, 8, guest.data(&TABLE[..2]));
    let kept = Kept { lead: 100, trail: 200 };
    scene.submitter.as_mut().unwrap().submit_unpaid_patch(patch, kept, scene.now).unwrap();
    let ended = scene.ended(1).remove(0);
    assert_eq!((ended.status, ended.data.segments().len()), (Status::Ok, 2));
    assert!(driver.world().seen.iter().all(|(_, segments)| *segments == 0), "buffers alone");
    let bytes = driver.world().bytes[PAGE..][..3 * PAGE].to_vec();
    let expected = |at: usize| if (100..3 * PAGE - 200).contains(&at) { 9 } else { 3 };
    assert!(bytes == (0..3 * PAGE).map(expected).collect::<Vec<u8>>());
    assert!(guest.bytes(&TABLE).iter().all(|byte| *byte == 9), "the guest sees nothing of it");
}

#[test]
fn the_bytes_of_a_write_are_those_of_one_moment_for_a_driver_that_takes_no_segments() {
    let (guest, driver) = (Guest::new(10), Patient::new(narrow(false)));
    let mut scene = driver.scene();
    driver.world().holds = true;
    guest.fill(&TABLE, |_| 1);
    scene.submit(bio(Op::Write, 0, guest.data(&TABLE)));
    scene.turn();
    guest.fill(&TABLE, |_| 2);
    driver.world().holds = false;
    scene.ended(1);
    assert!(driver.world().bytes[..4 * PAGE].iter().all(|byte| *byte == 1));
}

/// Drivers that keep what is written, by name.
fn disks() -> Vec<(String, Arc<dyn Driver>, Option<TempFile>)> {
    let bytes = 4 << 20;
    let mut disks: Vec<(String, Arc<dyn Driver>, Option<TempFile>)> = vec![
        ("ram".into(), Arc::new(Ram::new(bytes).unwrap()), None),
        (
            "crash".into(),
            Arc::new(CrashRam::new(bytes, Cache { volatile: true, fua: true }).unwrap()),
            None,
        ),
    ];
    for io in [Io::Auto, Io::Threads] {
        for direct in [true, false] {
            let file = TempFile::on_disk();
            let options = FileOptions { size: Some(bytes), io, direct, ..FileOptions::default() };
            let driver = File::open(file.path(), &options).unwrap();
            if direct && driver.limits().dma_alignment == 0 {
                leave_out("a file past the page cache: the file system has no O_DIRECT");
            }
            let name = format!("file, {io:?}, {direct}, {}", driver.limits().dma_alignment);
            disks.push((name, Arc::new(driver), Some(file)));
        }
    }
    disks
}

/// Tables of 4 pages: whole pages, pieces of blocks, and pieces of any length at any place.
const TABLES: [&[(usize, usize)]; 4] = [
    &[(8 * PAGE, PAGE), (2 * PAGE, 2 * PAGE), (0, PAGE)],
    &[(8 * PAGE, 512), (2 * PAGE, 3584), (512, 512), (4 * PAGE, 3 * PAGE - 512)],
    &[(100, 4 * PAGE)],
    &[(8 * PAGE + 1, 1000), (3, 7), (2 * PAGE + 512, 3 * PAGE), (PAGE, 4 * PAGE - 3 * PAGE - 1007)],
];

#[test]
fn drivers_write_and_read_segments_at_any_place_byte_for_byte() {
    for (name, driver, file) in disks() {
        let mut scene = Scene::new(driver);
        for (index, table) in TABLES.iter().enumerate() {
            let guest = Guest::new(10);
            guest.fill(&[(0, 10 * PAGE)], |_| 0xee);
            guest.fill(table, |at| pattern(at + index));
            let flags = [Flags::NONE, Flags::FUA][index % 2];
            // Across two chunks of the memory of a `Ram`, 64 KiB each.
            let sector = 256 * index as u64 + 128 - 8;
            let written = scene.one(bio(Op::Write, sector, guest.data(table)).with(flags));
            assert_eq!(written.status, Status::Ok, "{name}: {table:?}");
            let expected: Vec<u8> = (0..4 * PAGE).map(|at| pattern(at + index)).collect();
            if let Some(file) = &file {
                let found = std::fs::read(file.path()).unwrap();
                assert!(
                    found[sector as usize * 512..][..4 * PAGE] == expected,
                    "{name}: {table:?}"
                );
            }
            // Into memory that lies in another way, with a hole of the disk behind.
            let (other, sector) = (Guest::new(12), sector + 8);
            other.fill(&[(0, 12 * PAGE)], |_| 0xee);
            let table = TABLES[(index + 1) % 4];
            let read = scene.one(bio(Op::Read, sector, other.data(table)));
            assert_eq!(read.status, Status::Ok, "{name}: {table:?}");
            let mut expected = expected[PAGE..].to_vec();
            expected.resize(4 * PAGE, 0);
            assert!(other.bytes(table) == expected, "{name}: {table:?}");
            let touched = other.bytes(&[(0, 12 * PAGE)]).iter().filter(|b| **b != 0xee).count();
            assert!(touched <= 4 * PAGE, "{name}: {table:?}: memory of others");
            // From the end of a chunk into a hole.
            other.fill(table, |_| 0xee);
            let sector = 256 * (index as u64 + 1) - 8;
            let read = scene.one(bio(Op::Read, sector, other.data(table)));
            assert_eq!(read.status, Status::Ok, "{name}: {table:?}");
            assert!(other.bytes(table) == [0; 4 * PAGE], "{name}: {table:?}: a hole");
        }
    }
}

#[test]
fn memory_that_changes_during_the_write_leaves_bytes_that_were_there_and_no_others() {
    for (name, driver, _file) in disks() {
        let mut scene = Scene::new(driver);
        for (index, table) in TABLES.iter().enumerate() {
            let guest = Guest::new(10);
            let sector = 64 * index as u64;
            guest.scribbled(table, || {
                for _ in 0..20 {
                    let written = scene.one(bio(Op::Write, sector, guest.data(table)));
                    assert_eq!(written.status, Status::Ok, "{name}");
                }
            });
            let other = Guest::new(10);
            let _ = scene.one(bio(Op::Read, sector, other.data(TABLES[0])));
            let bytes = other.bytes(TABLES[0]);
            assert!(bytes.iter().all(|byte| [1, 2].contains(byte)), "{name}: {table:?}");
        }
    }
}

#[test]
fn nothing_reads_as_zeros_in_the_memory_of_the_guest() {
    let drivers: [Arc<dyn Driver>; 2] =
        [Arc::new(Null::new(1 << 20).unwrap()), Arc::new(Ram::new(1 << 20).unwrap())];
    for driver in drivers {
        let (mut guest, mut scene) = (Guest::new(10), Scene::new(driver));
        guest.fill(&TABLE, |_| 0xee);
        let read = scene.one(bio(Op::Read, 0, guest.data(&TABLE)));
        assert_eq!((read.status, read.data.segments().len()), (Status::Ok, 4));
        assert_eq!(guest.bytes(&TABLE), vec![0; 4 * PAGE]);
        guest.leave();
        drop(read);
        assert_eq!(guest.ended(), 1);
    }
}
