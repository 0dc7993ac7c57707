//! What becomes of calls that fail, panic, are cut short or never return, and of the threads.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::Thread;

use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, Status};
use weir_blocking::{Blocking, BlockingDriver, BlockingOptions};
use weir_laws::driver::{Kept, hold};
use weir_laws::seeds;
use weir_queue::rig::{Answered, Rig};
use weir_queue::{Cancel, Driver, Extent, Wake};

const SIZE: u64 = 1 << 20;
const DEPTH: u16 = 16;

/// Memory, with a call in its way that a test chooses: with its op and its offset.
struct Memory<F> {
    bytes: Mutex<Vec<u8>>,
    before: F,
    /// Bytes that a call moves at most.
    most: usize,
}

type Before = dyn Fn(Op, u64) -> io::Result<()> + Send + Sync;

impl<F: Fn(Op, u64) -> io::Result<()> + Send + Sync + 'static> Memory<F> {
    fn new(before: F) -> Memory<F> {
        Memory { bytes: Mutex::new(vec![0; SIZE as usize]), before, most: usize::MAX }
    }
}

impl<F: Fn(Op, u64) -> io::Result<()> + Send + Sync + 'static> BlockingDriver for Memory<F> {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        (self.before)(Op::Read, offset)?;
        let len = bytes.len().min(self.most);
        let from = offset as usize..offset as usize + len;
        bytes[..len].copy_from_slice(&self.bytes.lock().unwrap()[from]);
        Ok(len)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        (self.before)(Op::Write, offset)?;
        let len = bytes.len().min(self.most);
        let to = offset as usize..offset as usize + len;
        self.bytes.lock().unwrap()[to].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&self) -> io::Result<()> {
        (self.before)(Op::Flush, 0)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        (self.before)(Op::Discard, offset)?;
        self.bytes.lock().unwrap()[offset as usize..(offset + len) as usize].fill(0xEE);
        Ok(())
    }
}

/// What a call of `zero` says, by what it was told to keep.
type Zero = fn(bool) -> io::Result<()>;

/// What is allocated of so many sectors.
type Answers = fn(u64) -> io::Result<Vec<Extent>>;

/// As [`Memory`], that makes zeros and knows what is allocated: what is told it.
struct Zeroing {
    memory: Memory<fn(Op, u64) -> io::Result<()>>,
    zero: Zero,
    allocation: Answers,
    /// Calls of `zero`, with what they were told to keep.
    zeroed: Zeroed,
}

impl BlockingDriver for Zeroing {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.memory.read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.memory.write(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64, keep: bool) -> io::Result<()> {
        self.zeroed.lock().unwrap().push((offset, len, keep));
        (self.zero)(keep)?;
        self.memory.bytes.lock().unwrap()[offset as usize..(offset + len) as usize].fill(0);
        Ok(())
    }

    fn allocation(&self, _: u64, len: u64) -> io::Result<Vec<Extent>> {
        (self.allocation)(len / 512)
    }
}

type Zeroed = Arc<Mutex<Vec<(u64, u64, bool)>>>;

/// With bytes that are no zeros, and the calls of `zero`.
fn zeroing(zero: Zero, allocation: Answers) -> (Blocking, Zeroed) {
    let memory = Memory::new((|_, _| Ok(())) as fn(Op, u64) -> io::Result<()>);
    memory.bytes.lock().unwrap().fill(7);
    let zeroed = Zeroed::default();
    let driver = Zeroing { memory, zero, allocation, zeroed: Arc::clone(&zeroed) };
    (Blocking::new(driver, BlockingOptions::new().zero()).unwrap(), zeroed)
}

fn no_answer(_: u64) -> io::Result<Vec<Extent>> {
    panic!("it is not asked")
}

#[test]
fn zeros_are_made_by_the_driver_or_written_where_it_cannot_and_that_is_allowed() {
    let range = |flags| Bio::new(Op::WriteZeroes, 8, 16, Data::None).with(flags);
    let cannot: Zero = |_| Err(io::ErrorKind::Unsupported.into());
    let full: Zero = |_| Err(io::Error::from_raw_os_error(28));
    for (zero, flags, told, is_zero) in [
        ((|_| Ok(())) as Zero, Flags::NONE, Status::Ok, true),
        (|_| Ok(()), Flags::NOUNMAP, Status::Ok, true),
        (cannot, Flags::NONE, Status::Ok, true),
        (cannot, Flags::NOFALLBACK, Status::NotSupp, false),
        (full, Flags::NONE, Status::NoSpc, false),
    ] {
        let (driver, zeroed) = zeroing(zero, no_answer);
        let limits = driver.limits();
        assert!(limits.max_write_zeroes_sectors >= 16 && limits.fast_write_zeroes);
        let mut rig = open(&driver);
        assert_eq!(status(&mut rig, range(flags)), told, "{flags:?}");
        let keep = flags.has(Flags::NOUNMAP);
        assert_eq!(*zeroed.lock().unwrap(), [(4096, 8192, keep)], "{flags:?}");
        let found = run(&mut rig, vec![Bio::read(0, Buf::zeroed(16384))]).remove(0);
        let found = found.data.to_vec();
        let inside = if is_zero { 0 } else { 7 };
        assert!(found[..4096].iter().chain(&found[12288..]).all(|byte| *byte == 7), "around");
        assert!(found[4096..12288].iter().all(|byte| *byte == inside), "{flags:?}");
    }
    // One that offers none is not asked.
    let memory = Memory::new(|_, _| Ok(()));
    assert_eq!(blocking(memory, 1).limits().max_write_zeroes_sectors, 0);
}

#[test]
fn what_is_allocated_is_the_drivers_answer_if_it_is_one() {
    let hole = |sectors| Extent { sectors, hole: true, zero: true };
    let data = |sectors| Extent { sectors, hole: false, zero: false };
    let of = |answer: Answers| {
        let (driver, _) = zeroing(|_| Ok(()), answer);
        (driver.allocation(8, 64), driver.notices())
    };
    let (told, notices) = of(|sectors| {
        let part = |hole, sectors| Extent { sectors, hole, zero: hole };
        Ok(vec![part(true, 8), part(false, sectors - 16)])
    });
    assert_eq!(told.unwrap(), [hole(8), data(48)], "its beginning is enough");
    assert!(notices.is_empty());
    let bad: [Answers; 4] = [
        |_| Ok(Vec::new()),
        |sectors| Ok(vec![Extent { sectors: sectors + 1, hole: true, zero: true }]),
        |_| Ok(vec![Extent { sectors: 0, hole: true, zero: true }]),
        |_| Ok(vec![Extent { sectors: u64::MAX, hole: true, zero: true }; 2]),
    ];
    for answer in bad {
        let (told, notices) = of(answer);
        assert_eq!(told.unwrap(), [data(64)]);
        assert!(notices[0].contains("allocation of 64 sectors: "), "{notices:?}");
    }
    let (told, _) = of(|_| Err(io::Error::from_raw_os_error(5)));
    let told = told.unwrap_err();
    assert_eq!(told.what, "blocking driver: allocation of 32768 bytes at offset 4096");
    assert_eq!(told.source.unwrap().raw_os_error(), Some(5));
    let (told, _) = of(|_| panic!("no table"));
    assert_eq!(told.unwrap_err().source.unwrap().to_string(), "panicked: no table");
    // Without an answer of its own, everything is data.
    let plain = blocking(Memory::new(|_, _| Ok(())), 1);
    assert_eq!(plain.allocation(0, 2048).unwrap(), [data(2048)]);
}

fn blocking(driver: impl BlockingDriver, threads: u16) -> Blocking {
    Blocking::new(driver, BlockingOptions::new().threads(threads).trim()).unwrap()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// A queue that wakes this thread.
fn open(driver: &Blocking) -> Rig {
    let mut queue = driver.open(0, DEPTH).unwrap();
    assert!(queue.announces());
    queue.at_home(Arc::new(Unpark(std::thread::current())));
    Rig::new(queue, DEPTH)
}

/// Sends and waits for so many answers, in the order of their cookies.
fn wait_for(rig: &mut Rig, count: usize) -> Vec<Answered> {
    let mut ended = rig.reap(Nanos(1));
    while ended.len() < count {
        std::thread::park();
        ended.extend(rig.reap(Nanos(1)));
    }
    assert_eq!(ended.len(), count);
    ended.sort_by_key(|answer| answer.cookie);
    ended
}

fn run(rig: &mut Rig, bios: Vec<Bio>) -> Vec<Answered> {
    let count = bios.len();
    let bios = bios.into_iter().zip(0..).map(|(bio, at)| bio.cookie(at));
    assert!(rig.submit(bios.collect(), Nanos(1)).is_none());
    wait_for(rig, count)
}

fn status(rig: &mut Rig, bio: Bio) -> Status {
    run(rig, vec![bio]).remove(0).status
}

fn read(sector: u64) -> Bio {
    Bio::read(sector, Buf::zeroed(4096))
}

fn write(sector: u64) -> Bio {
    Bio::write(sector, Buf::filled(4096, |bytes| bytes.fill(7)))
}

fn flush() -> Bio {
    Bio::new(Op::Flush, 0, 0, Data::None)
}

#[test]
fn the_contract_of_drivers_is_kept_with_any_number_of_threads_and_any_block() {
    let seeds = seeds("DRIVER", 6);
    for (threads, block, most) in [(1, 512, usize::MAX), (4, 4096, usize::MAX), (3, 512, 700)] {
        let memory = Memory { most, ..Memory::new(|_, _| Ok(())) };
        let options = BlockingOptions::new().threads(threads).block(block).trim();
        hold(&Blocking::new(memory, options).unwrap(), Kept::All, seeds.clone());
    }
}

#[test]
fn an_error_is_its_errno_and_an_interrupted_call_is_made_again() {
    let failing = |op: Op, offset: u64| match (op, offset) {
        (Op::Read, 0) => Err(io::Error::from_raw_os_error(61)),
        (Op::Write, 0) => Err(io::ErrorKind::StorageFull.into()),
        (Op::Discard, 0) => Err(io::Error::other("no trim today")),
        _ => Ok(()),
    };
    let driver = blocking(Memory::new(failing), 2);
    let mut rig = open(&driver);
    assert_eq!(status(&mut rig, read(0)), Status::Medium);
    assert_eq!(status(&mut rig, write(0)), Status::NoSpc);
    assert_eq!(status(&mut rig, Bio::new(Op::Discard, 0, 8, Data::None)), Status::IoErr);
    assert_eq!(status(&mut rig, read(8)), Status::Ok);
    assert!(driver.notices().is_empty(), "{:?}", driver.notices());

    let calls = AtomicUsize::new(0);
    let interrupted = move |_: Op, offset: u64| match calls.fetch_add(1, Ordering::Relaxed) {
        at if at < 5 || offset > 0 => Err(io::ErrorKind::Interrupted.into()),
        _ => Ok(()),
    };
    let driver = blocking(Memory::new(interrupted), 1);
    let mut rig = open(&driver);
    assert_eq!(status(&mut rig, read(0)), Status::Ok);
    assert_eq!(status(&mut rig, read(8)), Status::IoErr, "but not for ever");
    assert!(driver.notices()[0].contains("read was interrupted 1000 times"));
}

#[test]
fn a_panic_fails_its_request_alone_and_is_told_once() {
    let panicking = |op: Op, offset: u64| match (op, offset) {
        (Op::Read, 0) => panic!("no such sector"),
        _ => Ok(()),
    };
    let driver = blocking(Memory::new(panicking), 1);
    let (sender, told) = channel();
    driver.on_notice(move |notice| sender.send(notice.to_owned()).unwrap());
    let mut rig = open(&driver);
    for _ in 0..3 {
        let ended = run(&mut rig, vec![read(0), write(8), read(8)]);
        let statuses: Vec<Status> = ended.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses, [Status::IoErr, Status::Ok, Status::Ok]);
        assert!(ended[2].data.to_vec() == [7; 4096]);
        assert_eq!(driver.threads(), 1);
    }
    drop(rig);
    drop(driver);
    let told: Vec<String> = told.iter().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("read panicked: no such sector"), "{told:?}");
}

#[test]
fn a_call_that_moves_nothing_or_too_much_is_an_error_that_is_told() {
    struct Liar(fn(usize) -> usize);
    impl BlockingDriver for Liar {
        fn size(&self) -> u64 {
            SIZE
        }
        fn read(&self, _: u64, bytes: &mut [u8]) -> io::Result<usize> {
            Ok(self.0(bytes.len()))
        }
        fn write(&self, _: u64, bytes: &[u8]) -> io::Result<usize> {
            Ok(self.0(bytes.len()))
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }
    for (answer, told) in [
        (Liar(|_| 0), "moved none of 4096 bytes"),
        (Liar(|len| len + 1), "says that it moved 4097 of 4096 bytes"),
    ] {
        let driver = blocking(answer, 1);
        let mut rig = open(&driver);
        assert_eq!(status(&mut rig, read(0)), Status::IoErr);
        assert_eq!(status(&mut rig, write(0)), Status::IoErr);
        let notices = driver.notices();
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(notices.iter().all(|notice| notice.contains(told)), "{notices:?}");
    }
}

#[test]
fn after_a_failed_flush_nothing_is_called_durable_again() {
    let fails = Arc::new(AtomicUsize::new(1));
    let left = Arc::clone(&fails);
    let failing = move |op: Op, _: u64| match op {
        Op::Flush if left.swap(0, Ordering::Relaxed) > 0 => Err(io::Error::from_raw_os_error(28)),
        _ => Ok(()),
    };
    let driver = blocking(Memory::new(failing), 2);
    let mut rig = open(&driver);
    assert_eq!(status(&mut rig, flush()), Status::NoSpc);
    assert_eq!(status(&mut rig, write(0)), Status::Ok);
    assert_eq!(status(&mut rig, flush()), Status::NoSpc, "although the driver is content");
    let faults = driver.faults();
    assert_eq!(faults, ["blocking driver: a flush has failed (no space left on device)"]);
}

/// A call at byte 0 that says when it has begun, and returns when it is let.
fn stuck() -> (Memory<Box<Before>>, Receiver<()>, Sender<()>) {
    let ((begun, has_begun), (let_go, lets)) = (channel(), channel());
    let lets = Mutex::new(lets);
    let before = move |op: Op, offset: u64| {
        if op == Op::Read && offset == 0 {
            begun.send(()).unwrap();
            lets.lock().unwrap().recv().unwrap();
        }
        Ok(())
    };
    (Memory::new(Box::new(before)), has_begun, let_go)
}

#[test]
fn a_call_that_does_not_return_holds_up_no_other_and_comes_back_late() {
    let (memory, has_begun, let_go) = stuck();
    let driver = blocking(memory, 2);
    let mut rig = open(&driver);
    assert!(rig.submit(vec![read(0).cookie(99)], Nanos(1)).is_none());
    has_begun.recv().unwrap();
    for sector in 1..50 {
        assert_eq!(status(&mut rig, write(sector * 8)), Status::Ok);
    }
    assert!(driver.faults().is_empty());
    assert_eq!(rig.cancel_all(Nanos(2)), [Cancel::Pending]);
    assert_eq!(driver.faults(), ["blocking driver: 1 of 2 threads are in calls given up"]);
    assert_eq!(status(&mut rig, read(8)), Status::Ok);
    let_go.send(()).unwrap();
    // Its memory comes back, to nothing that waits for it.
    while rig.queue().in_flight() > 0 {
        assert!(rig.reap(Nanos(3)).is_empty());
        std::thread::yield_now();
    }
    assert!(driver.faults().is_empty());
    assert_eq!(status(&mut rig, read(16)), Status::Ok);
}

#[test]
fn a_request_that_waits_for_a_thread_is_given_back_without_a_call() {
    let (memory, has_begun, let_go) = stuck();
    let memory = Arc::new(memory);
    let driver = blocking(Arc::clone(&memory), 1);
    let mut rig = open(&driver);
    assert!(rig.submit(vec![read(0), write(8)], Nanos(1)).is_none());
    has_begun.recv().unwrap();
    assert_eq!(rig.cancel_all(Nanos(2)), [Cancel::Pending; 2]);
    // The write was still in line; the read is in its call.
    assert!(rig.reap(Nanos(3)).is_empty());
    assert_eq!(rig.queue().in_flight(), 1);
    let_go.send(()).unwrap();
    while rig.queue().in_flight() > 0 {
        assert!(rig.reap(Nanos(3)).is_empty());
        std::thread::yield_now();
    }
    assert!(memory.bytes.lock().unwrap().iter().all(|byte| *byte == 0), "it was written after all");
}

#[test]
fn threads_are_as_many_as_stated_and_end_with_the_last_queue() {
    /// Reads that wait until so many are under way.
    struct Meeting {
        there: Mutex<usize>,
        met: Condvar,
    }
    let inside = Meeting { there: Mutex::new(0), met: Condvar::new() };
    let meet = move |op: Op, _: u64| {
        if op != Op::Read {
            return Ok(());
        }
        let mut there = inside.there.lock().unwrap();
        *there += 1;
        inside.met.notify_all();
        let goal = there.div_ceil(3) * 3;
        drop(inside.met.wait_while(there, |there| *there < goal).unwrap());
        Ok(())
    };
    let driver = blocking(Memory::new(meet), 3);
    assert_eq!(driver.threads(), 0, "none before a queue is open");
    for _ in 0..3 {
        let mut rigs = [open(&driver), open(&driver)];
        assert_eq!(driver.threads(), 3, "for both queues together");
        let ended = run(&mut rigs[0], (0..9).map(|at| read(at * 8)).collect());
        assert!(ended.iter().all(|answer| answer.status.is_ok()));
        let [first, second] = rigs;
        drop(first);
        assert_eq!(driver.threads(), 3);
        drop(second);
        assert_eq!(driver.threads(), 0);
    }
}

#[test]
fn a_queue_that_is_closed_in_a_call_leaves_its_thread_to_it_and_no_other() {
    let (memory, has_begun, let_go) = stuck();
    let driver = blocking(memory, 3);
    let mut rig = open(&driver);
    assert!(rig.submit(vec![read(0)], Nanos(1)).is_none());
    has_begun.recv().unwrap();
    assert_eq!(rig.cancel_all(Nanos(2)), [Cancel::Pending]);
    drop(rig);
    assert_eq!(driver.threads(), 1);
    assert!(driver.notices()[0].contains("closed with 1 call under way"), "{:?}", driver.notices());
    // It counts against the bound when the device is opened again.
    let mut rig = open(&driver);
    assert_eq!(driver.threads(), 3);
    assert_eq!(status(&mut rig, read(8)), Status::Ok);
    drop(rig);
    let_go.send(()).unwrap();
    while driver.threads() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_value_outside_its_bound_is_named_with_it() {
    struct Sized(u64);
    impl BlockingDriver for Sized {
        fn size(&self) -> u64 {
            self.0
        }
        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
            unreachable!("nothing is read")
        }
        fn write(&self, _: u64, _: &[u8]) -> io::Result<usize> {
            unreachable!("nothing is written")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }
    let of = |size, options| Blocking::new(Sized(size), options).unwrap_err().to_string();
    let options = BlockingOptions::new;
    assert_eq!(of(SIZE, options().threads(0)), "blocking driver: threads=0 is outside 1..=64");
    assert_eq!(of(SIZE, options().threads(65)), "blocking driver: threads=65 is outside 1..=64");
    let told = "blocking driver: block=1000 is not a power of two of at least 512 bytes";
    assert_eq!(of(SIZE, options().block(1000)), told);
    let told = "blocking driver: size=1536 is not a positive multiple of block=4096";
    assert_eq!(of(1536, options().block(4096)), told);
    assert!(of(0, options()).contains("size=0"));
}
