//! Disks as files (`DIR/dev/<disk>` of a mounted tree) beside one that has fallen silent under
//! many calls: those of other disks are answered, and the silent one's end with its file, its
//! daemon or its silence. The silent server below is another weir that is stopped by a signal.

#![forbid(unsafe_code)]

mod daemon;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use daemon::outside::leave_out;
use daemon::program::{Running, program};
use daemon::words::told;
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

/// What all calls may hold: the least that may be said.
const MEMORY: u64 = 64 * MIB;

/// The time a stop may take: its limit, and room for a busy machine.
const STOP_MAX: Duration = Duration::from_secs(12);

/// A disk over a server that can be made silent, and one in memory beside it, as files.
struct Pair {
    above: Daemon,
    below: Daemon,
    tree: PathBuf,
    /// Of the one below, and of the one above; they go last.
    _folders: [Folder; 2],
}

impl Pair {
    /// `None` where nothing can be mounted.
    fn new() -> Option<Pair> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            leave_out("mounting needs /dev/fuse and root");
            return None;
        }
        let folders = [Folder::new(), Folder::new()];
        let [lower, upper] = &folders;
        let below = Daemon::start(lower, &["a=ram:256MiB"]);
        let tree = upper.near("tree");
        fs::create_dir(&tree).expect("a folder");
        let mut serve = weir(upper);
        serve.args(["serve", "--nbd", "unix:nbd.sock", "--tree"]).arg(&tree);
        serve.args(["--tree-memory", "64MiB", "--disk", "sdb=ram:1MiB", "--disk"]);
        serve.arg(format!("sda=nbd+unix:{}?a", lower.socket().display()));
        let above = Daemon::spawn(serve);
        // A request has time without end, as far as tests go.
        told(upper, &["set", "block/sda/queue/io_timeout", "86400000"]);
        Some(Pair { above, below, tree, _folders: folders })
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.tree.join("dev").join(name)
    }

    fn open(&self, disk: &str) -> File {
        let options = OpenOptions::new().read(true).write(true).open(self.disk(disk));
        options.expect("a disk")
    }

    /// Bytes that all calls hold now. The tree is a mount of its own.
    #[track_caller]
    fn held(&self) -> u64 {
        let held = fs::read_to_string(self.tree.join("fuse/memory.current"));
        held.expect("an attribute").trim_end().parse().expect("a number")
    }

    /// Waits until the bytes that they hold are as expected.
    #[track_caller]
    fn wait_for_held(&self, expected: impl Fn(u64) -> bool) {
        let begun = Instant::now();
        while !expected(self.held()) {
            assert!(begun.elapsed() < PATIENCE, "{} bytes are held", self.held());
        }
    }

    /// Makes so many calls of a MiB each to the silent disk, each from a thread of its own.
    fn call(
        &self,
        calls: u64,
        call: impl Fn(&File, u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> Vec<JoinHandle<io::Result<()>>> {
        let (file, call) = (Arc::new(self.open("sda")), Arc::new(call));
        let thread = |number: u64| {
            let (file, call) = (Arc::clone(&file), Arc::clone(&call));
            std::thread::spawn(move || call(&file, number % 256 * MIB))
        };
        (0..calls).map(thread).collect()
    }

    /// Uses the other disk, and looks at both, in time.
    #[track_caller]
    fn use_other(&self) {
        let (file, dev) = (self.open("sdb"), self.tree.join("dev"));
        let used = aside(move || {
            for round in 0..300_u32 {
                // Each hundredth is as large as one call may be.
                let len = if round % 100 == 0 { MIB as usize } else { 4096 };
                let bytes = vec![(round % 255) as u8 + 1; len];
                file.write_all_at(&bytes, 0).expect("a write");
                let mut back = vec![0; len];
                file.read_exact_at(&mut back, 0).expect("a read");
                assert!(back == bytes, "round {round}");
            }
            file.sync_all().expect("a flush");
            assert_eq!(fs::read_dir(&dev).expect("a listing").count(), 2);
            for disk in ["sda", "sdb"] {
                drop(File::open(dev.join(disk)).expect("it is opened once more"));
            }
        });
        used.recv_timeout(PATIENCE).expect("the other disk is used in time");
    }
}

/// Does something on another thread, as it may not end.
fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        // It is not received any more if it came too late.
        let _ = sender.send(work());
    });
    receiver
}

fn read(file: &File, offset: u64) -> io::Result<()> {
    file.read_exact_at(&mut vec![0; MIB as usize], offset)
}

fn write(file: &File, offset: u64) -> io::Result<()> {
    file.write_all_at(&vec![7; MIB as usize], offset)
}

/// How all of these ended.
fn ends(calls: Vec<JoinHandle<io::Result<()>>>) -> Vec<Option<i32>> {
    let of = |call: JoinHandle<io::Result<()>>| {
        call.join().expect("a thread").err().and_then(|error| error.raw_os_error())
    };
    calls.into_iter().map(of).collect()
}

#[test]
fn reads_of_a_silent_disk_keep_no_other_disk_waiting() {
    let Some(pair) = Pair::new() else { return };
    pair.below.signal(Signal::STOP);
    let calls = pair.call(3 * MEMORY / MIB, read);
    // It has what one disk may have.
    pair.wait_for_held(|held| held > MEMORY / 3);
    pair.use_other();
    assert!(calls.iter().all(|call| !call.is_finished()), "they wait");
    assert!(pair.held() <= MEMORY / 2, "{} bytes of one disk", pair.held());
    pair.below.signal(Signal::CONT);
    assert!(ends(calls).iter().all(Option::is_none));
    pair.wait_for_held(|held| held == 0);
    pair.above.stop();
    pair.below.stop();
}

#[test]
fn writes_of_a_silent_disk_keep_none_waiting_up_to_three_quarters_of_the_memory() {
    let Some(pair) = Pair::new() else { return };
    pair.below.signal(Signal::STOP);
    // The kernel cuts each a little short, and each takes a little more.
    let most = MEMORY / 4 * 3 / MIB - 1;
    let calls = pair.call(most, write);
    pair.wait_for_held(|held| held > (most - 1) * MIB);
    pair.use_other();
    // Those behind them wait, and so do all calls, until one is answered.
    let more = pair.call(8, write);
    pair.below.signal(Signal::CONT);
    pair.use_other();
    assert!(ends(calls).iter().chain(&ends(more)).all(Option::is_none));
    assert!(pair.call(4, read).into_iter().all(|call| call.join().is_ok_and(|it| it.is_ok())));
    pair.above.stop();
    pair.below.stop();
}

/// How many of these ended with this error.
fn count(ends: &[Option<i32>], errno: i32) -> u64 {
    ends.iter().filter(|end| **end == Some(errno)).count() as u64
}

/// EIO and ENODEV: of a call that the disk had, and of one that waited.
const HAD: i32 = 5;
const WAITED: i32 = 19;

#[test]
fn the_end_of_a_client_ends_all_that_it_waits_for() {
    const CALLS: u64 = MEMORY / MIB;
    let Some(pair) = Pair::new() else { return };
    pair.below.signal(Signal::STOP);
    let first = pair.call(CALLS, read);
    pair.wait_for_held(|held| held > MEMORY / 3);
    // All that one disk may have is the first one's.
    let next = pair.call(CALLS, read);
    let clients = fs::read_dir(pair.tree.join("fuse/sda")).expect("a folder");
    let mut clients: Vec<PathBuf> = clients.map(|it| it.expect("a client").path()).collect();
    clients.sort();
    let end = |client: &Path| fs::write(client.join("delete"), "1").expect("it is ended");
    assert_eq!(clients.len(), 2);
    end(&clients[1]);
    let ended = aside(move || ends(next)).recv_timeout(PATIENCE).expect("all end");
    assert_eq!(count(&ended, WAITED), CALLS, "{ended:?}");
    assert!(first.iter().all(|call| !call.is_finished()), "another client's");
    end(&clients[0]);
    let ended = aside(move || ends(first)).recv_timeout(PATIENCE).expect("all end");
    assert_eq!(count(&ended, HAD) + count(&ended, WAITED), CALLS, "{ended:?}");
    assert!(count(&ended, WAITED) >= CALLS / 2, "{ended:?}");
    pair.wait_for_held(|held| held == 0);
    pair.use_other();
    pair.below.signal(Signal::CONT);
    pair.above.stop();
    pair.below.stop();
}

#[test]
fn a_daemon_stops_in_time_under_calls_for_a_silent_disk_and_ends_them() {
    // Reads that wait here, and writes of which one keeps the others in the kernel.
    for call in [read as fn(&File, u64) -> io::Result<()>, write] {
        let Some(mut pair) = Pair::new() else { return };
        pair.below.signal(Signal::STOP);
        let calls = pair.call(3 * MEMORY / MIB, call);
        pair.wait_for_held(|held| held > MEMORY / 3);
        let (status, took) = pair.above.terminate();
        assert!(took <= STOP_MAX, "it took {took:?} to stop");
        assert_eq!(status.code(), Some(1), "{}", pair.above.said());
        assert!(pair.above.said().contains("disk sda: "), "{}", pair.above.said());
        let ended = aside(move || ends(calls)).recv_timeout(PATIENCE).expect("all end");
        assert!(ended.iter().all(Option::is_some), "{ended:?}");
        // Nothing that waited goes to a disk that is to come to rest.
        assert!(count(&ended, WAITED) >= 2 * MEMORY / MIB, "{ended:?}");
        assert_eq!(fs::read_dir(&pair.tree).expect("the folder").count(), 0, "it is still mounted");
        pair.below.signal(Signal::CONT);
        pair.below.stop();
    }
}

/// More calls than the kernel of itself has in the background, and no more than blocks of the disk.
const ASYNCHRONOUS: u32 = 2000;

/// fio with so many asynchronous reads of a disk under way.
fn fio(file: &Path, depth: u32) -> std::process::Command {
    let mut fio = program("fio");
    fio.args(["--name=reads", "--ioengine=libaio", "--direct=1", "--rw=read", "--bs=512"]);
    fio.args(["--size=1M", "--iodepth_batch_submit=64", "--thread"]);
    fio.arg(format!("--iodepth={depth}")).arg(format!("--filename={}", file.display()));
    fio
}

#[test]
#[ignore = "needs fio"]
fn thousands_of_asynchronous_reads_of_a_silent_disk_keep_none_of_another_waiting() {
    let Some(pair) = Pair::new() else { return };
    pair.below.signal(Signal::STOP);
    let silent = Running::start(fio(&pair.disk("sda"), ASYNCHRONOUS));
    // They hold a block each, and what belongs to a call.
    let one = 512 + 512;
    pair.wait_for_held(|held| held >= u64::from(ASYNCHRONOUS) * one / 2);
    let other = pair.disk("sdb");
    let used = aside(move || Running::start(fio(&other, 32)).succeed());
    let used = used.recv_timeout(PATIENCE);
    // A process cannot end, nor be killed, before its asynchronous reads have.
    pair.below.signal(Signal::CONT);
    silent.succeed();
    used.expect("the other disk is read in time");
    pair.above.stop();
    pair.below.stop();
}
