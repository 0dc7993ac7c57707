//! A server below that falls silent or dies under load: nbdkit, qemu-nbd or the server of a FUSE
//! file is stopped and goes on, or nbdkit or qemu-nbd is killed and started again, below a daemon
//! that fio and numbered blocks keep busy.
//!
//! No operation may hang, no block may be stale, and no operation may fail while the outage is
//! shorter than the limit the disk has for it: `io_timeout` for a stop, `reconnect` for a restart.
//! After a longer one the disk has to work again by itself. A flush may fail after a restart: data
//! that was answered before may be gone with the server.
//!
//! `WEIR_OUTAGE=nbdkit:bfq:stop=40` runs one case of any length, with the defaults of weir unless
//! `,io_timeout=SECONDS` or `,reconnect=SECONDS` follows; `cargo xtask ci long` has a list of them.
//! With `,slow=MS` nbdkit takes so long for each write that newer ones could overtake it.

#![forbid(unsafe_code)]

mod daemon;

use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use daemon::blocks::{EndsLoad, Job, Past, Progress, Seen};
use daemon::client::{Client, FLUSH};
use daemon::outside::leave_out;
use daemon::program::{Running, Server, nbdkit, program, qemu_nbd};
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::{
    Pid, PidfdFlags, Signal, geteuid, kill_process, pidfd_open, pidfd_send_signal,
};

/// Jobs of each load.
const JOBS: u64 = 4;

/// Size of the disk. The blocks of the jobs are below 8 MiB, fio's regions from 16 MiB on.
const DISK: u64 = 96 << 20;

/// Acknowledged writes of each job before the outage, and again after it; fewer if each is slow.
const WRITES: u64 = 200;
const SLOW_WRITES: u64 = 30;

/// `io_timeout` and `reconnect` unless a case names them, as weir has them.
const LIMIT: Duration = Duration::from_secs(30);

/// The time an operation may take beyond the limits of its disk, on a machine that is busy: weir
/// looks for late requests once a second, and connects again at most 5 s late.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Memory if it is only stopped, or else a file.
    Nbdkit,
    QemuNbd,
    /// Another weir, whose disk is a file in the tree it has mounted.
    Fuse,
}

/// The outage of the server, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outage {
    Stop(Duration),
    Kill(Duration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    kind: Kind,
    scheduler: String,
    outage: Outage,
    io_timeout: Duration,
    reconnect: Duration,
    /// nbdkit takes so long for each write, one at a time on each connection. Writes on a new
    /// connection then overtake those that still wait in an old one.
    slow: Option<Duration>,
}

impl Case {
    fn writes(&self) -> u64 {
        if self.slow.is_some() { SLOW_WRITES } else { WRITES }
    }

    fn length(&self) -> Duration {
        let (Outage::Stop(length) | Outage::Kill(length)) = self.outage;
        length
    }

    /// Whether no operation may fail.
    fn is_short(&self) -> bool {
        match self.outage {
            Outage::Stop(length) => length < self.io_timeout,
            Outage::Kill(length) => length < self.reconnect,
        }
    }

    /// The time an operation may take.
    fn operation_limit(&self) -> Duration {
        self.io_timeout + self.reconnect + GRACE
    }

    /// The time the whole case may take before everything is killed.
    fn limit(&self) -> Duration {
        self.length() + self.operation_limit() + 2 * PATIENCE
    }

    fn disk(&self, below: &Below) -> String {
        let Case { scheduler, io_timeout, reconnect, .. } = self;
        let target = match below {
            Below::Nbd(server) => {
                let socket = server.socket.display();
                format!("nbd+unix:{socket},connections=2,reconnect={}", reconnect.as_secs())
            }
            // By itself weir takes threads for it: a ring's thread would stand still with the file.
            Below::Fuse(tree) => format!("file:{}", tree.disk().display()),
        };
        format!("sda={target},scheduler={scheduler},io_timeout={}", io_timeout.as_millis())
    }
}

/// `SERVER:SCHEDULER:WHAT=SECONDS`; `,io_timeout=SECONDS`, `,reconnect=SECONDS` and `,slow=MS` may
/// follow.
impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let wrong = || format!("{text:?} is not SERVER:SCHEDULER:stop=SECONDS or :kill=SECONDS");
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or_else(wrong);
        let kind = match part()? {
            "nbdkit" => Kind::Nbdkit,
            "qemu-nbd" => Kind::QemuNbd,
            "fuse" => Kind::Fuse,
            _ => return Err(wrong()),
        };
        let scheduler = part()?.to_owned();
        let (mut outage, mut io_timeout, mut reconnect, mut slow) = (None, LIMIT, None, None);
        for word in part()?.split(',') {
            let (name, number) = word.split_once('=').ok_or_else(wrong)?;
            let number = number.parse().map_err(|_| wrong())?;
            let length = Duration::from_secs(number);
            match name {
                "stop" => outage = Some(Outage::Stop(length)),
                "kill" if kind != Kind::Fuse => outage = Some(Outage::Kill(length)),
                "io_timeout" => io_timeout = length,
                "reconnect" => reconnect = Some(length),
                "slow" if kind == Kind::Nbdkit => slow = Some(Duration::from_millis(number)),
                _ => return Err(wrong()),
            }
        }
        let outage = outage.ok_or_else(wrong)?;
        let reconnect = reconnect.unwrap_or(io_timeout);
        Ok(Case { kind, scheduler, outage, io_timeout, reconnect, slow })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { kind, scheduler, outage, io_timeout, reconnect, slow } = self;
        write!(f, "{kind:?} {scheduler} {outage:?} io_timeout {io_timeout:?} ")?;
        write!(f, "reconnect {reconnect:?}")?;
        slow.map_or(Ok(()), |slow| write!(f, " slow {slow:?}"))
    }
}

/// Kills everything of a case that takes too long.
struct Watchdog {
    watched: Arc<Mutex<Vec<OwnedFd>>>,
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn new(limit: Duration) -> Watchdog {
        let watched = Arc::new(Mutex::new(Vec::<OwnedFd>::new()));
        let (over, end) = mpsc::channel();
        let of_thread = Arc::clone(&watched);
        let thread = std::thread::spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the case has not ended after {limit:?}: everything is killed");
                for process in of_thread.lock().expect("processes").iter() {
                    // It may have ended. One that is stopped dies too.
                    let _ = pidfd_send_signal(process, Signal::KILL);
                }
            }
        });
        Watchdog { watched, over: Some(over), thread: Some(thread) }
    }

    fn watch(&self, pid: Pid) {
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("a child");
        self.watched.lock().expect("processes").push(process);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.over.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The server or the mounted tree below the disk.
enum Below {
    Nbd(Server),
    Fuse(Tree),
}

impl Below {
    fn pid(&self) -> Pid {
        match self {
            Below::Nbd(server) => server.pid(),
            Below::Fuse(tree) => tree.daemon.as_ref().expect("a daemon").pid(),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running server");
    }

    /// Where it serves the same bytes over NBD.
    fn socket(&self) -> PathBuf {
        match self {
            Below::Nbd(server) => server.socket.clone(),
            Below::Fuse(tree) => tree.folder.socket(),
        }
    }

    fn end(self) {
        match self {
            Below::Nbd(server) => server.kill(),
            Below::Fuse(mut tree) => _ = tree.daemon.take().expect("a daemon").stop(),
        }
    }
}

/// A daemon that has mounted its tree.
struct Tree {
    daemon: Option<Daemon>,
    folder: Folder,
}

impl Tree {
    fn mount() -> Tree {
        let folder = Folder::new();
        fs::create_dir(folder.near("tree")).expect("a folder");
        let mut serve = weir(&folder);
        serve.args(["serve", "--nbd", "unix:nbd.sock", "--tree", "tree"]);
        serve.arg("--disk").arg(format!("sda=ram:{DISK}"));
        Tree { daemon: Some(Daemon::spawn(serve)), folder }
    }

    fn disk(&self) -> PathBuf {
        self.folder.near("tree/dev/sda")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // One that is killed leaves its mount behind.
        if self.daemon.take().is_some() {
            let _ = program("umount").arg("--lazy").arg(self.folder.near("tree")).status();
        }
    }
}

/// The server below, which lives at one socket and, if it is to be killed, on one file.
#[track_caller]
fn start_below(folder: &Folder, case: &Case, watchdog: &Watchdog) -> Below {
    let image = folder.image("below");
    let in_file = case.kind == Kind::QemuNbd || matches!(case.outage, Outage::Kill(_));
    if in_file && !image.exists() {
        fs::File::create(&image).and_then(|file| file.set_len(DISK)).expect("an image");
    }
    let below = match case.kind {
        Kind::QemuNbd => Below::Nbd(qemu_nbd(folder, "below.sock", &image, &["--shared=16"])),
        Kind::Nbdkit => Below::Nbd(start_nbdkit(folder, case, in_file.then_some(image.as_path()))),
        Kind::Fuse => Below::Fuse(Tree::mount()),
    };
    watchdog.watch(below.pid());
    below
}

#[track_caller]
fn start_nbdkit(folder: &Folder, case: &Case, image: Option<&Path>) -> Server {
    let plugin = match image {
        Some(image) => ["file".to_owned(), image.display().to_string()],
        None => ["memory".to_owned(), DISK.to_string()],
    };
    let delay = case.slow.map(|slow| format!("wdelay={}ms", slow.as_millis()));
    let mut arguments = Vec::new();
    if delay.is_some() {
        arguments.extend(["--threads=1", "--filter=delay"]);
    }
    arguments.extend(plugin.iter().chain(&delay).map(String::as_str));
    nbdkit(folder, "below.sock", &arguments)
}

/// fio in regions of its own, for the outage and some seconds; then it reads everything back.
#[track_caller]
fn start_fio(folder: &Folder, case: &Case) -> Running {
    let mut fio = program("fio");
    fio.args(["--name=outage", "--ioengine=nbd", "--rw=randwrite", "--bsrange=4k-64k"]);
    fio.args(["--iodepth=8", "--numjobs=4", "--thread", "--size=4m", "--time_based"]);
    fio.args(["--offset=16m", "--offset_increment=16m", "--serialize_overlap=1"]);
    fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0"]);
    fio.args(["--group_reporting", "--randrepeat=1"]);
    fio.arg(format!("--runtime={}", case.length().as_secs() + 3));
    fio.arg(format!("--uri={}", folder.uri("sda")));
    Running::start(fio)
}

/// The outage, from its beginning to its end.
#[track_caller]
fn suffer(folder: &Folder, case: &Case, watchdog: &Watchdog, below: Below) -> Below {
    match case.outage {
        Outage::Stop(length) => {
            below.signal(Signal::STOP);
            std::thread::sleep(length);
            below.signal(Signal::CONT);
            below
        }
        Outage::Kill(length) => {
            below.end();
            std::thread::sleep(length);
            start_below(folder, case, watchdog)
        }
    }
}

/// Keeps the disk busy over an outage; the server, and what the blocks may hold.
#[track_caller]
fn load_over_outage(
    folder: &Folder,
    case: &Case,
    watchdog: &Watchdog,
    below: Below,
) -> (Below, Vec<Past>) {
    let limit = case.operation_limit();
    let progress = Progress::new(JOBS);
    std::thread::scope(|scope| {
        let ends = EndsLoad(&progress);
        let jobs = (0..JOBS).map(|job| Job::new(job, &folder.socket(), limit, &progress));
        let jobs: Vec<_> = jobs.collect();
        let jobs: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| job.run())).collect();
        progress.wait_for(case.writes(), PATIENCE);
        let below = suffer(folder, case, watchdog, below);
        progress.wait_for(case.writes(), limit + PATIENCE);
        drop(ends);
        let ended = jobs.into_iter().map(|job| job.join().expect("a job that saw no fault"));
        (below, ended.collect())
    })
}

/// Holds what the jobs have seen against what the case allows.
#[track_caller]
fn judge(case: &Case, seen: &Seen) {
    println!("{case}: {seen:?}");
    assert!(seen.longest <= case.operation_limit(), "an operation took {:?}", seen.longest);
    if case.is_short() {
        assert!(seen.longest >= case.length() * 9 / 10, "the outage was not felt: {seen:?}");
        assert_eq!((seen.failed_writes, seen.failed_reads), (0, 0), "{case}: {seen:?}");
        let restarted = matches!(case.outage, Outage::Kill(_));
        assert!(restarted || seen.failed_flushes == 0, "{case}: {seen:?}");
    }
}

#[track_caller]
fn hold(text: &str) {
    let case: Case = text.parse().expect("a case");
    let mounts = Path::new("/dev/fuse").exists() && geteuid().is_root();
    if case.kind == Kind::Fuse && !mounts {
        return leave_out("mounting needs /dev/fuse and root");
    }
    let folder = Folder::new();
    let watchdog = Watchdog::new(case.limit());
    let below = start_below(&folder, &case, &watchdog);
    let mut daemon = Daemon::start(&folder, &[&case.disk(&below)]);
    watchdog.watch(daemon.pid());
    let fio = case.is_short().then(|| {
        let fio = start_fio(&folder, &case);
        watchdog.watch(fio.pid());
        daemon.wait_for_many(JOBS as usize, |line| line.contains("client connected"));
        fio
    });
    let (below, jobs) = load_over_outage(&folder, &case, &watchdog, below);
    if let Some(fio) = fio {
        fio.succeed();
    }
    let mut client = Client::connect(&folder.socket(), "sda");
    jobs.iter().for_each(|past| past.verify(&mut client));
    let flushed = client.one(0, FLUSH, 0, 0).expect("an answer");
    drop(client);
    let (status, took) = daemon.terminate();
    println!("{case}: the last flush ended with {flushed}, weir with {status} after {took:?}");
    // After a restart of the server the daemon cannot vouch for what had been answered before.
    if matches!(case.outage, Outage::Stop(_)) {
        assert_eq!((flushed, status.code()), (0, Some(0)), "{}", daemon.said());
    }
    // A write that was given up has had its last effect by now: the daemon has gone.
    let mut direct = Client::connect(&below.socket(), "");
    jobs.iter().for_each(|past| past.verify(&mut direct));
    drop(direct);
    jobs.iter().for_each(|past| judge(&case, &past.seen));
    below.end();
}

#[test]
#[ignore = "needs nbdkit, fio"]
fn a_stop_within_io_timeout_costs_no_error() {
    hold("nbdkit:none:stop=1,io_timeout=2");
    hold("nbdkit:mq-deadline:stop=1,io_timeout=2");
}

#[test]
#[ignore = "needs nbdkit"]
fn after_a_stop_beyond_io_timeout_the_disk_works_and_no_block_is_stale() {
    hold("nbdkit:none:stop=4,io_timeout=2,reconnect=10,slow=20");
    hold("nbdkit:mq-deadline:stop=4,io_timeout=2,reconnect=1,slow=20");
}

#[test]
#[ignore = "needs qemu-nbd, fio"]
fn a_server_that_is_killed_and_comes_back_within_reconnect_costs_no_write() {
    hold("qemu-nbd:none:kill=1,io_timeout=10");
}

#[test]
#[ignore = "needs root, /dev/fuse, umount"]
fn after_a_file_stood_still_beyond_io_timeout_the_disk_works_and_no_block_is_stale() {
    hold("fuse:none:stop=4,io_timeout=2");
    hold("fuse:mq-deadline:stop=4,io_timeout=2");
}

#[test]
#[ignore = "needs nbdkit, qemu-nbd, fio; runs only with WEIR_OUTAGE"]
fn the_outage_that_the_environment_names_costs_no_more_than_it_may() {
    if let Ok(case) = std::env::var("WEIR_OUTAGE") {
        hold(&case);
    }
}

#[test]
fn a_case_says_what_happens_to_which_server() {
    let case: Case = "qemu-nbd:bfq:kill=3,io_timeout=20".parse().expect("a case");
    let seconds = Duration::from_secs;
    let expected = Case {
        kind: Kind::QemuNbd,
        scheduler: "bfq".to_owned(),
        outage: Outage::Kill(seconds(3)),
        io_timeout: seconds(20),
        reconnect: seconds(20),
        slow: None,
    };
    assert_eq!(case, expected);
    let case: Case = "nbdkit:none:stop=4,io_timeout=2,slow=20".parse().expect("a case");
    assert_eq!((case.slow, case.writes()), (Some(Duration::from_millis(20)), SLOW_WRITES));
    let case: Case = "nbdkit:none:stop=40".parse().expect("a case");
    assert_eq!((case.io_timeout, case.reconnect, case.is_short()), (LIMIT, LIMIT, false));
    for wrong in ["", "nbdkit", "nbdkit:none:stop", "nbdkit:none:pause=4", "fuse:none:kill=4"] {
        wrong.parse::<Case>().expect_err(wrong);
    }
}

#[test]
fn a_stale_block_is_found() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:96MiB"]);
    let progress = Progress::new(1);
    let past = std::thread::scope(|scope| {
        let ends = EndsLoad(&progress);
        let job = Job::new(0, &folder.socket(), PATIENCE, &progress);
        let job = scope.spawn(|| job.run());
        progress.wait_for(WRITES, PATIENCE);
        drop(ends);
        job.join().expect("a job that saw no fault")
    });
    let mut client = Client::connect(&folder.socket(), "sda");
    past.verify(&mut client);
    // A block that another write has replaced, as if that write had been carried out again.
    let (offset, older) = past.stale().expect("a block that was written twice");
    assert_eq!(client.write(0, offset, &older).expect("an answer"), 0);
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        past.verify(&mut client);
    }));
    let said = found.expect_err("the block is stale");
    let said = said.downcast_ref::<String>().expect("a sentence");
    assert!(said.contains("the last acknowledged is"), "{said}");
    drop(client);
    daemon.stop();
}
