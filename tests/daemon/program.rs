//! Programs of other projects, run to their end or beside the test.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::outside::{installed, mortal};
use super::{Folder, PATIENCE, wait};

/// The exit code and output of a program.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A program, found also where ordinary users do not search.
pub fn program(name: &str) -> Command {
    at_home(Command::new(name))
}

/// The same for one that would otherwise outlive a test that is killed.
#[track_caller]
fn server(name: &str) -> Command {
    assert!(installed(name), "{name} is not installed; tests/packages.sh installs it");
    at_home(mortal(name))
}

fn at_home(mut command: Command) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
    // Some leave files where they are started.
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    // Some end their whole process group when they fail, as fio does when one of its jobs fails.
    command.process_group(0);
    command
}

/// A program that runs beside the test until it ends or the value is dropped.
pub struct Running {
    what: String,
    child: Option<Child>,
    stdout: fs::File,
    stderr: fs::File,
}

impl Running {
    #[track_caller]
    pub fn start(mut command: Command) -> Running {
        let what = format!("{command:?}");
        let (stdout, stderr) = (nameless_file(), nameless_file());
        command.stdout(stdout.try_clone().expect("a file"));
        command.stderr(stderr.try_clone().expect("a file"));
        let child = command.spawn().unwrap_or_else(|error| {
            let name = command.get_program().display();
            panic!("{name} cannot be started ({error}); tests/packages.sh installs it")
        });
        Running { what, child: Some(child), stdout, stderr }
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        let child = self.child.as_mut().expect("not waited for yet");
        child.try_wait().expect("a child").is_none()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("not waited for yet"))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a running program");
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(self) -> Ended {
        self.end_within(PATIENCE)
    }

    /// Waits for its end, so long.
    #[track_caller]
    pub fn end_within(mut self, limit: Duration) -> Ended {
        let mut child = self.child.take().expect("waited for once");
        let status = wait(&mut child, limit);
        if status.is_none() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let (stdout, stderr) = (whole(&mut self.stdout), whole(&mut self.stderr));
        let Some(status) = status else {
            panic!("{} did not end in {limit:?}\n{stdout}\n{stderr}", self.what)
        };
        Ended { code: status.code(), stdout, stderr }
    }

    /// Waits for its end, which must be a success.
    #[track_caller]
    pub fn succeed(self) -> Ended {
        self.succeed_within(PATIENCE)
    }

    /// Waits for its end, so long, which must be a success.
    #[track_caller]
    pub fn succeed_within(self, limit: Duration) -> Ended {
        let what = self.what.clone();
        let ended = self.end_within(limit);
        let Ended { code, stdout, stderr } = &ended;
        assert_eq!(*code, Some(0), "{what}\n{stdout}\n{stderr}");
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a program that has to succeed; what it said on standard output.
#[track_caller]
pub fn run<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[A]) -> String {
    let mut command = program(name);
    command.args(arguments);
    Running::start(command).succeed().stdout
}

/// Runs a program that may fail.
#[track_caller]
pub fn attempt<A: AsRef<std::ffi::OsStr>>(name: &str, arguments: &[A]) -> Ended {
    let mut command = program(name);
    command.args(arguments);
    Running::start(command).end()
}

/// The Python that has Debian's module for libnbd, with a script that stands beside the tests.
pub fn python(script: &str) -> Command {
    let mut command = program("/usr/bin/python3");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    command.arg("-B").arg(folder.join(script));
    command
}

fn nameless_file() -> fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create(c"output", flags).expect("memory for output").into()
}

fn whole(file: &mut fs::File) -> String {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).expect("output");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A server in the background that writes its pid to a file once it listens.
pub struct Server {
    running: Running,
    pub socket: PathBuf,
}

/// nbdkit with these arguments behind its own.
#[track_caller]
pub fn nbdkit(folder: &Folder, name: &str, arguments: &[&str]) -> Server {
    let (socket, pid) = vacated(folder, name);
    let mut command = server("nbdkit");
    command.arg("--foreground").arg("--unix").arg(&socket).arg("--pidfile").arg(&pid);
    command.args(arguments);
    background(folder, command, socket, &pid)
}

/// qemu-nbd on a raw image.
#[track_caller]
pub fn qemu_nbd(folder: &Folder, name: &str, image: &Path, arguments: &[&str]) -> Server {
    let (socket, pid) = vacated(folder, name);
    let mut command = server("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--socket"]).arg(&socket);
    command.arg(format!("--pid-file={}", pid.display()));
    command.args(arguments).arg(image);
    background(folder, command, socket, &pid)
}

/// A socket and a file for a pid, without what a server that was killed here has left.
fn vacated(folder: &Folder, name: &str) -> (PathBuf, PathBuf) {
    let (socket, pid) = (folder.near(name), folder.near(&format!("{name}.pid")));
    for left in [&socket, &pid] {
        let _ = fs::remove_file(left);
    }
    (socket, pid)
}

/// Any program that writes its pid to a file of the folder once it is ready.
#[track_caller]
pub fn background(folder: &Folder, command: Command, socket: PathBuf, pid: &Path) -> Server {
    let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    let watched = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&news, folder.path(), watched).expect("inotify");
    let running = Running::start(command);
    let end = pidfd_open(running.pid(), PidfdFlags::empty()).expect("a child");
    let mut bytes = [0; 4096];
    while !pid.exists() {
        let mut fds = [PollFd::new(&news, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
        poll(&mut fds, None).expect("poll");
        if fds[1].revents().contains(PollFlags::IN) {
            panic!("the server ended at once: {:?}", running.end());
        }
        rustix::io::read(&news, &mut bytes[..]).expect("news of the folder");
    }
    Server { running, socket }
}

impl Server {
    pub fn pid(&self) -> Pid {
        self.running.pid()
    }

    /// Stops it or lets it go on, with every thread it has.
    pub fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn ended(self) {
        self.running.succeed();
    }

    /// Ends it without warning. nbdkit, if it is asked, waits for its clients to go.
    #[track_caller]
    pub fn kill(self) {
        self.running.signal(Signal::KILL);
        self.running.end();
    }

    /// Ends it as an administrator would.
    #[track_caller]
    pub fn stop(self) {
        self.running.signal(Signal::TERM);
        self.running.end();
    }
}

/// Returns when an existing file has been written to so many times.
///
/// # Panics
/// When the writes stop: the writer has failed.
#[track_caller]
pub fn wait_for_writes(path: &Path, times: usize) {
    let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&news, path, inotify::WatchFlags::MODIFY).expect("inotify");
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    for time in 0..times {
        let ready = poll(&mut [PollFd::new(&news, PollFlags::IN)], Some(&patience));
        let path = path.display();
        assert_eq!(ready, Ok(1), "{path} was written to {time} times, not {times}");
        let mut bytes = [0; 4096];
        rustix::io::read(&news, &mut bytes[..]).expect("news of the file");
    }
}

/// Bytes that look random, the same for the same seed.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u64 {
        // Marsaglia's xorshift with a multiplication behind it.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Makes a file of noise.
    pub fn write_file(&mut self, path: &Path, bytes: u64) {
        let mut file = fs::File::create(path).expect("a file for noise");
        let mut left = bytes;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let now = left.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..now]);
            std::io::Write::write_all(&mut file, &buffer[..now]).expect("room for noise");
            left -= now as u64;
        }
    }
}

/// A checksum of a whole file, and its length.
#[track_caller]
pub fn checksum(path: &Path) -> (u64, u64) {
    let mut file = fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut buffer = vec![0; 1 << 20];
    let (mut sum, mut length) = (0xcbf2_9ce4_8422_2325_u64, 0);
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read(&mut buffer[filled..]).expect("a readable file") {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            return (sum, length);
        }
        buffer[filled..].fill(0);
        length += filled as u64;
        for word in buffer[..filled.next_multiple_of(8)].chunks_exact(8) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            sum = (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29);
        }
    }
}

/// How long a busy machine may need to notice that something has ended.
pub const A_MOMENT: Duration = Duration::from_millis(10);
