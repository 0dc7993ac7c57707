//! The calls of the kernel, answered from the tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use weir_bio::SECTOR;
use weir_control::{Failure, Node, Tree};

use crate::budget::Share;
use crate::disks::{Disks, Process};
use crate::inodes::{Inodes, join, parent};
use crate::port::{Caller, Outcome, Short};

/// Nothing is kept by the kernel: `iosched/` comes and goes with its scheduler.
const KEPT: Duration = Duration::ZERO;

/// The length every attribute claims, bytes: a page, as in sysfs.
const CLAIMED_LEN: u64 = weir_control::tree::VALUE_MAX as u64;

/// Calls the kernel may have under way in the background, of all disks together: asynchronous ones
/// past the page cache, as those of a loop device. Further ones wait in it, and so those of other
/// disks for a disk that does not answer; so they are as many as can be said.
const BACKGROUND: u16 = u16::MAX;

/// The most that one call writes, bytes; the block layer cuts it to what the disk can take.
pub(crate) const WRITE_BYTES_MAX: u32 = 1 << 20;

/// Stores under way at one time, each on a thread of its own; a further one is told EBUSY.
const STORES_MAX: usize = 64;

/// The file system.
pub(crate) struct Files {
    tree: Arc<Tree>,
    disks: Arc<Disks>,
    inodes: Inodes,
    handles: Mutex<Handles>,
    stores: Arc<Mutex<usize>>,
    owner: (u32, u32),
    mounted_at: SystemTime,
}

/// The contents that open files last had.
#[derive(Default)]
struct Handles {
    texts: BTreeMap<u64, String>,
}

impl Files {
    /// Serves what stands at the path `root` and below.
    pub(crate) fn new(tree: Arc<Tree>, disks: Arc<Disks>, root: &str) -> Files {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Files {
            tree,
            disks,
            inodes: Inodes::new(root),
            handles: Mutex::default(),
            stores: Arc::default(),
            owner,
            mounted_at: SystemTime::now(),
        }
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, ino: INodeNo) -> Result<String, Errno> {
        self.inodes.path(ino.0).ok_or(Errno::ENOENT)
    }

    /// The entry at a path: file or directory, its length in bytes, its permissions.
    fn stat(&self, path: &str) -> Result<(FileType, u64, u16), Errno> {
        if path == DEV {
            // With less an ordinary user could not mount the disks there. Nothing is made in it.
            return Ok((FileType::Directory, 0, 0o755));
        }
        if let Some(name) = disk_of(path) {
            let (bytes, writable) = self.disks.describe(name).ok_or(Errno::ENOENT)?;
            return Ok((FileType::RegularFile, bytes, if writable { 0o600 } else { 0o400 }));
        }
        let node = self.tree.look_up(path).map_err(errno)?;
        let len = match node {
            Node::Directory => 0,
            // Files of proc have no length; programs read them to their end.
            Node::File { .. } if path.starts_with("proc/") => 0,
            Node::File { .. } => CLAIMED_LEN,
        };
        Ok((kind(node), len, node.mode()))
    }

    fn attributes(&self, path: &str) -> Result<FileAttr, Errno> {
        let (kind, size, perm) = self.stat(path)?;
        Ok(FileAttr {
            ino: INodeNo(self.inodes.number(path)),
            size,
            blocks: if disk_of(path).is_some() { size / SECTOR } else { 0 },
            atime: self.mounted_at,
            mtime: self.mounted_at,
            ctime: self.mounted_at,
            crtime: self.mounted_at,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: CLAIMED_LEN as u32,
            flags: 0,
        })
    }

    fn entry(&self, folder: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let name = name.to_str().filter(|name| !name.contains('/')).ok_or(Errno::ENOENT)?;
        self.attributes(&join(&self.path(folder)?, name))
    }

    /// A handle, if the file may be opened so. Permissions bind root as well, as in sysfs.
    fn open_file(
        &self,
        ino: INodeNo,
        flags: OpenFlags,
        request: &Request,
    ) -> Result<FileHandle, Errno> {
        let path = self.path(ino)?;
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        let handle = self.disks.number();
        if let Some(name) = disk_of(&path) {
            let (user, group, number) = (request.uid(), request.gid(), request.pid());
            self.disks.open(name, handle, Process { user, group, number }, writes)?;
            return Ok(FileHandle(handle));
        }
        let node = self.tree.look_up(&path).map_err(errno)?;
        if writes && node != (Node::File { writable: true }) {
            return Err(Errno::EACCES);
        }
        self.handles().texts.insert(handle, String::new());
        Ok(FileHandle(handle))
    }

    /// The bytes at `offset`. The text is made anew at its beginning, so that what is read in
    /// pieces fits together.
    fn text(&self, ino: INodeNo, fh: FileHandle, at: u64, len: u32) -> Result<Vec<u8>, Errno> {
        if at == 0 {
            let text = self.tree.read(&self.path(ino)?).map_err(errno)?;
            self.handles().texts.insert(fh.0, text);
        }
        let handles = self.handles();
        let text = handles.texts.get(&fh.0).map_or(&[][..], String::as_bytes);
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(len as usize).min(text.len());
        Ok(text[start..end].to_vec())
    }

    /// The names in a directory with their numbers, itself and the one above in front.
    fn names(&self, ino: INodeNo) -> Result<Vec<(u64, FileType, String)>, Errno> {
        let folder = self.path(ino)?;
        let above = self.inodes.number(parent(&folder));
        let mut names = vec![
            (ino.0, FileType::Directory, String::from(".")),
            (above, FileType::Directory, String::from("..")),
        ];
        if folder == DEV {
            for name in self.disks.names() {
                let number = self.inodes.number(&join(DEV, &name));
                names.push((number, FileType::RegularFile, name));
            }
            return Ok(names);
        }
        if folder.is_empty() {
            names.push((self.inodes.number(DEV), FileType::Directory, String::from(DEV)));
        }
        for (name, node) in self.tree.list(&folder).map_err(errno)? {
            names.push((self.inodes.number(&join(&folder, &name)), kind(node), name));
        }
        Ok(names)
    }

    /// Has a write carried out, which waits for memory if there is none. This thread waits with it:
    /// those behind it are in the kernel.
    fn when_paid(
        &self,
        mut caller: Caller,
        enter: impl Fn((Caller, Option<Share>)) -> Result<(), Short>,
    ) {
        let mut share = None;
        while let Err(short) = enter((caller, share)) {
            let (sender, receiver) = channel();
            self.disks.wait(short.need, move |share| {
                // It is received below.
                let _ = sender.send(share);
            });
            // Memory comes back when a disk answers, and no disk answers here.
            share = receiver.recv().ok().flatten();
            caller = short.caller;
        }
    }

    /// Carries a store out on a thread of its own, for it may wait for a disk.
    fn store(&self, path: String, value: Vec<u8>, written: u32, reply: ReplyWrite) {
        let Some(ticket) = Ticket::take(&self.stores) else { return reply.error(Errno::EBUSY) };
        let tree = Arc::clone(&self.tree);
        let work = move || {
            let outcome = tree.write(&path, &value);
            drop(ticket);
            match outcome {
                Ok(()) => reply.written(written),
                Err(failure) => reply.error(errno(failure)),
            }
        };
        let thread = std::thread::Builder::new().name("weir-store".into());
        if let Err(error) = thread.spawn(work) {
            // The reply went with the work, and says EIO when it is dropped.
            tracing::warn!("a write to the tree is refused: no thread: {error}");
        }
    }
}

/// A place among the stores under way.
struct Ticket(Arc<Mutex<usize>>);

impl Ticket {
    fn take(stores: &Arc<Mutex<usize>>) -> Option<Ticket> {
        let mut count = stores.lock().unwrap_or_else(PoisonError::into_inner);
        if *count >= STORES_MAX {
            return None;
        }
        *count += 1;
        Some(Ticket(Arc::clone(stores)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// The folder of the disks themselves, which the tree does not have.
pub(crate) const DEV: &str = "dev";

/// The disk that a path in it names.
fn disk_of(path: &str) -> Option<&str> {
    path.strip_prefix(DEV)?.strip_prefix('/')
}

fn kind(node: Node) -> FileType {
    match node {
        Node::Directory => FileType::Directory,
        Node::File { .. } => FileType::RegularFile,
    }
}

fn errno(failure: Failure) -> Errno {
    Errno::from_i32(failure.errno.number())
}

/// Why a call failed.
fn why(outcome: &Outcome<'_>) -> Errno {
    match outcome {
        Outcome::Failed(errno) => *errno,
        // The answer to another call.
        Outcome::Read(_) | Outcome::Written(_) | Outcome::Flushed => Errno::EIO,
    }
}

/// Agrees with the kernel on how a mount is served. One that has less of this, or a library that
/// takes less, serves as well.
pub(crate) fn agree(config: &mut KernelConfig) {
    let _ = config.set_max_background(BACKGROUND);
    let _ = config.set_max_write(WRITE_BYTES_MAX);
    let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        agree(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.entry(parent, name) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.path(ino).and_then(|path| self.attributes(&path)) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// A shell truncates before it writes, which changes nothing. Owner and mode are fixed.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.or(uid).or(gid).is_some() {
            return reply.error(Errno::EPERM);
        }
        match self.path(ino).and_then(|path| self.attributes(&path)) {
            Ok(attributes) => reply.attr(&KEPT, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(ino, flags, request) {
            // Past the page cache: each read asks, and each write is one store.
            Ok(handle) => {
                let parallel = FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
                reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO | parallel);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if self.disks.has(fh.0) {
            let caller = Caller::library(|outcome| match outcome {
                Outcome::Read(bytes) => reply.data(bytes),
                outcome => reply.error(why(&outcome)),
            });
            return self.disks.read(request.pid(), fh.0, (offset, size), caller);
        }
        match self.text(ino, fh, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.disks.has(fh.0) {
            let durable = flags.0 & OFlags::DSYNC.bits() as i32 != 0;
            let caller = Caller::library(|outcome| match outcome {
                Outcome::Written(len) => reply.written(len),
                outcome => reply.error(why(&outcome)),
            });
            let write = |paid| self.disks.write(request.pid(), fh.0, (offset, data), durable, paid);
            return self.when_paid(caller, write);
        }
        // As in sysfs: wherever it is put, a write is one store of at most a page.
        let taken = &data[..data.len().min(weir_control::tree::VALUE_MAX)];
        match self.path(ino) {
            Ok(path) => self.store(path, taken.to_vec(), taken.len() as u32, reply),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, request: &Request, _: INodeNo, fh: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.disks.has(fh.0) {
            let caller = Caller::library(|outcome| match outcome {
                Outcome::Flushed => reply.ok(),
                outcome => reply.error(why(&outcome)),
            });
            return self.disks.flush(request.pid(), fh.0, caller);
        }
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles().texts.remove(&fh.0);
        self.disks.release(fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.names(ino) {
            Ok(names) => names,
            Err(error) => return reply.error(error),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (number, kind, name)) in names.into_iter().enumerate().skip(from) {
            if reply.add(INodeNo(number), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    /// New files are refused as sysfs refuses them.
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EACCES);
    }
}
