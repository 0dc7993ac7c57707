//! A FUSE file system of one file, served by a process of its own that a test can stop: a disk
//! whose device stalls.
//!
//! The process is this test program, run again for its test `server`. A watchdog ends it when a
//! test takes too long: the kernel then ends all calls that wait for it with an error, so that the
//! test fails and does not hang.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyWrite,
    Request, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::FlockOperation;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::outside::leave_out;

/// Names the folder to mount on to the process that serves.
const FOLDER: &str = "WEIR_TEST_FUSE_FOLDER";

/// The word that the process prints when the file is there.
const MOUNTED: &str = "mounted";

/// The file's size, bytes.
pub const BYTES: usize = 1 << 20;

/// The file's inode; its folder's is the root's.
const FILE: INodeNo = INodeNo(2);

/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted file `disk`; dropping it ends the process that serves it, and unmounts.
pub struct StallingFile {
    folder: PathBuf,
    server: Child,
    watchdog: Option<(Sender<()>, JoinHandle<bool>)>,
}

impl StallingFile {
    /// Mounts a file of zeros; `None`, said aloud, where that cannot be.
    pub fn new() -> Option<StallingFile> {
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            leave_out("mounting needs /dev/fuse and root");
            return None;
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-stalling-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let (_, module) = module_path!().split_once("::").expect("a module of a crate");
        let mut server = Command::new(std::env::current_exe().expect("a program"))
            .args(["--exact", "--ignored", &format!("{module}::server")])
            .env(FOLDER, &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program runs again");
        let mut said = String::new();
        let mut told = BufReader::new(server.stderr.take().expect("a pipe"));
        _ = told.read_line(&mut said);
        let pid = Pid::from_child(&server);
        let (over, ended) = mpsc::channel();
        let watchdog = std::thread::spawn(move || {
            let bites = ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
            if bites {
                _ = kill_process(pid, Signal::KILL);
            }
            bites
        });
        let file = StallingFile { folder, server, watchdog: Some((over, watchdog)) };
        if said.trim() == MOUNTED {
            return Some(file);
        }
        _ = told.read_to_string(&mut said);
        leave_out(&format!("the file system cannot be mounted: {}", said.trim()));
        None
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// From now on no call is answered.
    pub fn stall(&self) {
        let pid = Pid::from_child(&self.server);
        kill_process(pid, Signal::STOP).expect("a process");
        let stopped = waitpid(Some(pid), WaitOptions::UNTRACED).expect("a child");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }

    /// From now on calls are answered, first those that wait.
    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.server), Signal::CONT).expect("a process");
    }
}

impl Drop for StallingFile {
    fn drop(&mut self) {
        let mut late = false;
        if let Some((over, watchdog)) = self.watchdog.take() {
            drop(over);
            late = watchdog.join().expect("a watchdog");
        }
        _ = self.server.kill();
        _ = self.server.wait();
        _ = unmount(&self.folder, UnmountFlags::DETACH);
        _ = std::fs::remove_dir(&self.folder);
        assert!(!late || std::thread::panicking(), "the test took longer than {PATIENCE:?}");
    }
}

/// Whether another open file has the lock of this one.
pub fn is_locked(file: impl AsFd) -> bool {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            rustix::fs::flock(&file, FlockOperation::Unlock).expect("a lock to let go of");
            false
        }
        Err(errno) => {
            assert_eq!(errno, rustix::io::Errno::WOULDBLOCK);
            true
        }
    }
}

/// Looks again and again until `happened`.
pub fn wait_until(mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < until, "it does not happen");
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "the process that serves the file of other tests"]
fn server() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("weir-stalling".to_owned())];
    config.acl = SessionACL::Owner;
    let calls = Calls(Mutex::new(vec![0; BYTES]));
    let mounted = fuser::spawn_mount(calls, folder, &config);
    let said = mounted.as_ref().map_or_else(ToString::to_string, |_| MOUNTED.to_owned());
    _ = writeln!(std::io::stderr(), "{said}");
    // Until the process that runs the test has ended.
    _ = std::io::stdin().read(&mut [0]);
}

/// The calls that the kernel has made.
struct Calls(Mutex<Vec<u8>>);

impl Calls {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn attr(ino: INodeNo) -> FileAttr {
    let folder = ino == INodeNo::ROOT;
    FileAttr {
        ino,
        size: if folder { 0 } else { BYTES as u64 },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if folder { FileType::Directory } else { FileType::RegularFile },
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Filesystem for Calls {
    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&Duration::MAX, &attr(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&PATIENCE, &attr(ino));
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = BYTES.min(offset as usize + size as usize);
        reply.data(&self.bytes()[end.min(offset as usize)..end]);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.bytes()[offset as usize..][..data.len()].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut bytes = self.bytes();
        let size = size.map_or(bytes.len(), |size| size as usize);
        bytes.resize(size, 0);
        reply.attr(&PATIENCE, &FileAttr { size: size as u64, ..attr(ino) });
    }

    /// A new size cannot be made durable.
    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        if self.bytes().len() == BYTES { reply.ok() } else { reply.error(Errno::ENOSPC) }
    }
}
