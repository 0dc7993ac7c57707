//! The built `weir` as a process of its own: started on a socket in a folder of its own, waited
//! for by its own word, stopped by its pid and looked at from outside.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod blocks;
pub mod client;
pub mod istgt;
pub mod loop_device;
pub mod outside;
pub mod program;
pub mod tgtd;
pub mod words;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use outside::{leave_out, mortal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// How long anything may take that is not measured, on a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Whether the kernel gives io_uring to what a test starts; says so if not.
pub fn has_uring() -> bool {
    let ring = io_uring::IoUring::new(1);
    if let Err(why) = &ring {
        leave_out(&format!("io_uring cannot be used: {why}"));
    }
    ring.is_ok()
}

/// The ways of a file to be read and written that there are here.
pub fn ways_of_files() -> &'static [&'static str] {
    if has_uring() { &["uring", "threads"] } else { &["threads"] }
}

/// The time in which the daemon promises to end, with room for a machine that is busy with other
/// things.
pub const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A folder for one test: sockets in a place whose path is short, images on the disk that holds
/// the build. Both go away with the value.
pub struct Folder {
    sockets: PathBuf,
    images: PathBuf,
}

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-{}-{count}", std::process::id());
        let sockets = std::env::temp_dir().join(&name);
        let images = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        for folder in [&sockets, &images] {
            fs::create_dir_all(folder).expect("a folder for the test");
        }
        // Others may not connect to what is being tested.
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).expect("a mode");
        Folder { sockets, images }
    }

    /// The socket most daemons of a test listen on.
    pub fn socket(&self) -> PathBuf {
        self.sockets.join("nbd.sock")
    }

    /// A path for another socket, or another small file.
    pub fn near(&self, name: &str) -> PathBuf {
        self.sockets.join(name)
    }

    /// Where small files are.
    pub fn path(&self) -> &Path {
        &self.sockets
    }

    /// A path for something large.
    pub fn image(&self, name: &str) -> PathBuf {
        self.images.join(name)
    }

    /// The URI of an export at [`Folder::socket`].
    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket().display())
    }

    /// A disk `NAME` in a sparse file of so many bytes, as the argument of `--disk`.
    pub fn file_disk(&self, name: &str, size: &str, options: &str) -> String {
        format!("{name}=file:{},size={size}{options}", self.image(name).display())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A daemon that is killed, as by a test that fails, leaves its tree mounted.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
        for place in places.filter(|place| place.starts_with(&self.sockets)) {
            let _ = Command::new("umount").arg("-l").arg(place).stderr(Stdio::null()).status();
        }
        let _ = fs::remove_dir_all(&self.sockets);
        let _ = fs::remove_dir_all(&self.images);
    }
}

/// The built command.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// `weir` in a folder, with nothing of the environment that would change what it does.
pub fn weir(folder: &Folder) -> Command {
    let mut command = mortal(WEIR);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    for name in
        ["WEIR_LOG", "WEIR_CONTROL", "XDG_RUNTIME_DIR", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET"]
    {
        command.env_remove(name);
    }
    // One that is killed cleans nothing up.
    command.env("TMPDIR", folder.path());
    command
}

/// A running daemon. Dropping it kills it; [`Daemon::stop`] is the orderly way.
pub struct Daemon {
    child: Child,
    log: Arc<Log>,
    stopped: bool,
}

impl Daemon {
    /// Serves these disks at the folder's socket.
    #[track_caller]
    pub fn start(folder: &Folder, disks: &[&str]) -> Daemon {
        let mut command = weir(folder);
        command.arg("serve").arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
        disks.iter().for_each(|disk| _ = command.args(["--disk", disk]));
        Daemon::spawn(command)
    }

    /// Starts a daemon and waits until it says that it is ready.
    #[track_caller]
    pub fn spawn(command: Command) -> Daemon {
        let daemon = Daemon::spawn_unready(command);
        assert!(
            daemon.log.wait_for(|line| line == "weir: ready").is_some(),
            "the daemon ended before it was ready"
        );
        daemon
    }

    /// Starts a daemon and does not wait.
    #[track_caller]
    pub fn spawn_unready(mut command: Command) -> Daemon {
        command.stderr(Stdio::piped());
        let serves = command.get_program() == WEIR && command.get_args().any(|it| it == "serve");
        // What a configuration file states is that test's own, and a flag would stand above it.
        let says_how = command.get_args().any(|argument| argument == "--poll" || argument == "-c");
        if let Some(poll) = std::env::var_os("WEIR_TEST_POLL").filter(|_| serves && !says_how) {
            command.arg("--poll").arg(poll);
        }
        let mut child = command.spawn().expect("weir can be started");
        let log = Arc::new(Log::default());
        let (errors, log_of_reader) = (child.stderr.take().expect("piped"), Arc::clone(&log));
        // The thread ends when the daemon does, and the pipe with it.
        std::thread::spawn(move || log_of_reader.fill(BufReader::new(errors)));
        Daemon { child, log, stopped: false }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Everything it has said on standard error so far.
    pub fn said(&self) -> String {
        self.log.text()
    }

    /// Waits for a line of standard error.
    #[track_caller]
    pub fn wait_for(&self, matches: impl Fn(&str) -> bool) -> String {
        self.log.wait_for(matches).expect("a line before the daemon's end")
    }

    /// Waits until it has said so many lines that match.
    #[track_caller]
    pub fn wait_for_many(&self, many: usize, matches: impl Fn(&str) -> bool) {
        let count = |lines: &[String]| lines.iter().filter(|line| matches(line)).count();
        let waited = self.log.wait_until(|lines| (count(lines) >= many).then_some(()));
        waited.expect("so many lines before the daemon's end");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running daemon");
    }

    /// Asks it to stop, and holds it to its word: exit status 0 within 5 s.
    #[track_caller]
    pub fn stop(mut self) -> String {
        let (status, took) = self.terminate();
        assert_eq!(status.code(), Some(0), "{status}: {}", self.said());
        assert!(took <= STOP_LIMIT, "it took {took:?} to stop");
        self.said()
    }

    /// Asks it to stop, and waits for the end: how it ended and how long that took.
    #[track_caller]
    pub fn terminate(&mut self) -> (ExitStatus, Duration) {
        let asked = Instant::now();
        self.signal(Signal::TERM);
        let status = self.wait();
        (status, asked.elapsed())
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let status = wait(&mut self.child, PATIENCE).expect("the daemon ends");
        self.stopped = true;
        // Not before the pipe is at its end is the log whole.
        assert_eq!(self.log.wait_for(|_| false), None);
        status
    }

    /// Ends it without warning.
    #[track_caller]
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Memory it occupies, KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a running daemon");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
    }

    /// Descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        fs::read_dir(path).expect("a running daemon").count()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.stopped {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let said = self.log.text();
            let last: Vec<_> = said.lines().rev().take(30).collect();
            println!("the daemon said last:");
            last.into_iter().rev().for_each(|line| println!("{line}"));
        }
    }
}

/// The output of a daemon, line by line.
#[derive(Default)]
struct Log {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

impl Log {
    fn fill(&self, errors: impl BufRead) {
        for line in errors.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            self.lines.lock().expect("the log").0.push(line);
            self.grown.notify_all();
        }
        self.lines.lock().expect("the log").1 = true;
        self.grown.notify_all();
    }

    /// The first line that matches; `None` if there was none until the end.
    #[track_caller]
    fn wait_for(&self, matches: impl Fn(&str) -> bool) -> Option<String> {
        self.wait_until(|lines| lines.iter().find(|line| matches(line)).cloned())
    }

    /// The answer that all lines so far give, once they give one; `None` if not until the end.
    #[track_caller]
    fn wait_until<T>(&self, find: impl Fn(&[String]) -> Option<T>) -> Option<T> {
        let lines = self.lines.lock().expect("the log");
        let pending = |state: &mut (Vec<String>, bool)| find(&state.0).is_none() && !state.1;
        let waited = self.grown.wait_timeout_while(lines, PATIENCE, pending);
        let (lines, timeout) = waited.expect("the log");
        assert!(!timeout.timed_out(), "waited in vain; the daemon said: {:#?}", lines.0);
        find(&lines.0)
    }

    fn text(&self) -> String {
        self.lines.lock().map_or(String::new(), |lines| lines.0.join("\n"))
    }
}

/// Waits for the end of a child; `None` if it still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    if let Some(status) = child.try_wait().expect("a child") {
        return Some(status);
    }
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).expect("a child");
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    let ended = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit)).expect("poll");
    (ended > 0).then(|| child.wait().expect("an ended child"))
}
