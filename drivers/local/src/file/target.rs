//! The open file or block device: finding it, making it, locking it, and learning whether it can be
//! read past the page cache.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use weir_bio::{Buf, PAGE, SECTOR, Size, Status};
use weir_queue::DriverError;

use super::attributes::{mount_of, numbers};
use super::errors::{error, is};
use super::flushes::Flushes;
use super::zeroing::Zeroing;
use super::{FileOptions, locks, making};
use weir_queue::Notices;

/// Largest logical block tried for direct I/O, bytes.
const BLOCK_MAX: u32 = 64 << 10;

/// A lock that is held is waited for so long. An io_uring that was left behind is gone within
/// tenths of a second; who holds the lock longer means to.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// A lock that is held is asked for again after so long: flock(2) has no time limit.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// The type that statfs(2) gives for a FUSE file system: FUSE_SUPER_MAGIC in linux/magic.h.
const FUSE_SUPER_MAGIC: i128 = 0x6573_5546;

/// The open file or device, shared by all queues.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) file: fs::File,
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
    pub(super) block_device: bool,
    /// The device that it is or lies on, as the kernel numbers it; found when it was opened, since
    /// asking a network file system may wait for its server.
    pub(super) device: (u32, u32),
    /// It had a name when it was opened.
    pub(super) linked: bool,
    /// The mount that it was opened by, as the kernel numbers them.
    pub(super) mount: Option<u64>,
    /// The calls are answered by a process: a FUSE file system.
    pub(super) fuse: bool,
    /// I/O goes past the page cache.
    pub(super) direct: bool,
    /// Size, bytes; of a regular file it may be any.
    bytes: AtomicU64,
    /// Smallest addressable unit, bytes.
    pub(super) block: u32,
    /// Alignment of memory, bytes.
    pub(super) memory_alignment: u32,
    pub(super) zeroing: Zeroing,
    /// Fallbacks chosen at opening, and what went wrong at closing.
    pub(super) notices: Notices,
    /// Where all queues flush through the description that I/O goes through.
    pub(super) flushes: Arc<Flushes>,
    /// The errno of the first flush that failed, else 0.
    flush_errno: AtomicI32,
    /// Held while the file is made longer: a second one would cut it.
    growing: Mutex<()>,
}

impl Target {
    /// Opens `path`, making it first if it does not exist and the options give a size.
    pub(super) fn open(path: &Path, options: &FileOptions) -> Result<Target, DriverError> {
        if let Some(bytes) = options.size
            && !path.exists()
        {
            making::create(path, bytes, options)?;
        }
        let found = fs::metadata(path).map_err(|source| {
            let missing = source.kind() == io::ErrorKind::NotFound;
            let hint = if missing { " (size=SIZE would make it)" } else { "" };
            error(path, &format!("cannot be opened{hint}"), Some(source))
        })?;
        let block_device = found.file_type().is_block_device();
        if !block_device && !found.is_file() {
            return Err(error(path, "is neither a regular file nor a block device", None));
        }
        let mut notices = Vec::new();
        let file = open_file(path, block_device, options, &mut notices)?;
        lock(&file, path, options.read_only, &mut notices)?;
        let fuse = !block_device
            && rustix::fs::fstatfs(&file)
                .is_ok_and(|found| i128::from(found.f_type) == FUSE_SUPER_MAGIC);
        let mut target = Target {
            bytes: AtomicU64::new(size(&file, path, options)?),
            mount: mount_of(&file),
            linked: found.nlink() > 0,
            file,
            path: path.to_owned(),
            read_only: options.read_only,
            block_device,
            device: match block_device {
                true => numbers(found.rdev()),
                false => numbers(found.dev()),
            },
            fuse,
            direct: false,
            block: SECTOR as u32,
            memory_alignment: 1,
            zeroing: Zeroing::default(),
            notices: Notices::default(),
            flushes: Arc::default(),
            flush_errno: AtomicI32::new(0),
            growing: Mutex::new(()),
        };
        target.tell(notices);
        target.settle_direct()?;
        if !target.read_only {
            target.zeroing = match block_device {
                true => Zeroing::of_device(&target.file),
                false => Zeroing::of_file(&target.file, path, target.bytes()),
            };
        }
        Ok(target)
    }

    /// Its size in bytes, as requests are held against it.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Its size in blocks. The last one of a file in the page cache need not be whole; direct I/O
    /// and devices take whole ones only, and what is left over behind these is not theirs.
    pub(super) fn size(&self) -> Size {
        let (bytes, block) = (self.bytes(), u64::from(self.block));
        let whole = match self.direct || self.block_device {
            true => bytes / block * block,
            false => bytes.next_multiple_of(block),
        };
        Size { sectors: whole / SECTOR, padding: whole.saturating_sub(bytes) as u32 }
    }

    /// Makes the file so many sectors long if it is shorter, durably; its size now.
    pub(super) fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        let failed = |what: &str, source| error(&self.path, what, Some(source));
        let _one_at_a_time = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = self.bytes_now()?;
        let wanted = sectors.checked_mul(SECTOR).ok_or_else(|| {
            let what = format!("cannot be made {sectors} sectors long: no file is");
            error(&self.path, &what, None)
        })?;
        if bytes < wanted && !self.read_only && !self.block_device {
            let made = self.file.set_len(wanted).and_then(|()| self.file.sync_all());
            made.map_err(|e| failed(&format!("cannot be made {wanted} bytes long"), e))?;
        }
        // One that was cut from outside stays as long as it was said to be.
        self.bytes.fetch_max(self.bytes_now()?, Ordering::Relaxed);
        Ok(self.size())
    }

    fn bytes_now(&self) -> Result<u64, DriverError> {
        // The position of the file is used by no call.
        end_of(&self.file, &self.path)
    }

    /// One more open file description of the target. The kernel tells each once of a write that was
    /// lost, so that each user who flushes needs one.
    pub(super) fn describe(&self) -> Result<fs::File, DriverError> {
        let open = |path: &Path| {
            // The path may lead to a FIFO by now.
            let flags = OFlags::NONBLOCK.bits() as i32;
            fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
        };
        let own = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        // Without a /proc the path has to do, if it still leads there.
        let made = open(&own).or_else(|_| open(&self.path));
        let made = made.map_err(|source| {
            error(&self.path, "cannot be opened once more, to be flushed", Some(source))
        })?;
        let same = |one: &fs::Metadata, other: &fs::Metadata| {
            (one.dev(), one.ino()) == (other.dev(), other.ino())
        };
        match (self.file.metadata(), made.metadata()) {
            (Ok(ours), Ok(found)) if same(&ours, &found) => Ok(made),
            _ => Err(error(&self.path, "is another file by now: it cannot be flushed", None)),
        }
    }

    /// The status of the first flush that failed, if one did.
    pub(super) fn failed_flush(&self) -> Option<Status> {
        match self.flush_errno.load(Ordering::Acquire) {
            0 => None,
            errno => Some(Status::from_errno(errno)),
        }
    }

    /// Adds notices.
    pub(super) fn tell(&self, notices: impl IntoIterator<Item = String>) {
        notices.into_iter().for_each(|notice| self.notices.add(notice));
    }

    /// Remembers that something written may never have become durable.
    pub(super) fn flush_has_failed(&self, errno: Errno) {
        // The first error is the one that tells what happened.
        let errno = errno.raw_os_error();
        _ = self.flush_errno.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Decides between direct and buffered I/O, and with it the logical block.
    fn settle_direct(&mut self) -> Result<(), DriverError> {
        let opened_direct =
            rustix::fs::fcntl_getfl(&self.file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        if self.block_device {
            let block = rustix::fs::ioctl_blksszget(&self.file);
            self.block = block.map_err(|errno| {
                error(&self.path, "logical block size cannot be read", Some(errno.into()))
            })?;
        }
        if !opened_direct {
            return Ok(());
        }
        let reason = match self.direct_block() {
            Some(block) if self.bytes().is_multiple_of(u64::from(block)) => {
                (self.direct, self.block) = (true, block);
                return Ok(());
            }
            Some(block) => {
                let bytes = self.bytes();
                format!("its {bytes} bytes are no multiple of the {block} direct I/O needs")
            }
            None => "an aligned direct read failed".to_owned(),
        };
        let flags = rustix::fs::fcntl_getfl(&self.file).map(|flags| flags - OFlags::DIRECT);
        flags.and_then(|flags| rustix::fs::fcntl_setfl(&self.file, flags)).map_err(|errno| {
            error(&self.path, "cannot be switched to buffered I/O", Some(errno.into()))
        })?;
        self.memory_alignment = 1;
        self.notices.add(format!("file: {}: buffered I/O: {reason}", self.path.display()));
        Ok(())
    }

    /// The smallest block a direct read was seen to accept.
    fn direct_block(&mut self) -> Option<u32> {
        self.memory_alignment = SECTOR as u32;
        let mut first = self.block;
        let told = rustix::fs::statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        if let Ok(told) = told
            && told.stx_mask & StatxFlags::DIOALIGN.bits() != 0
        {
            // The kernel's way to say that this file has no direct I/O.
            if told.stx_dio_offset_align == 0 {
                return None;
            }
            first = first.max(told.stx_dio_offset_align);
            self.memory_alignment = told.stx_dio_mem_align.max(1);
        }
        if !self.memory_alignment.is_power_of_two() || self.memory_alignment > PAGE as u32 {
            return None;
        }
        let tried = [first, 4096, BLOCK_MAX];
        let fitting = tried
            .into_iter()
            .filter(|block| *block >= first && *block <= BLOCK_MAX && block.is_power_of_two());
        fitting.into_iter().find(|block| {
            let mut buf = Buf::zeroed(*block as usize);
            rustix::io::pread(&self.file, &mut buf[..], 0).is_ok()
        })
    }
}

#[cfg(test)]
impl Target {
    /// A file of so many bytes that no folder lists any more.
    pub(super) fn nameless(bytes: u64) -> Target {
        use std::sync::atomic::AtomicU32;
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-local-target-{}-{count}.img", std::process::id());
        let path = std::env::temp_dir().join(name);
        let options = FileOptions { size: Some(bytes), ..FileOptions::default() };
        let target = Target::open(&path, &options);
        _ = fs::remove_file(path);
        target.expect("a file in the folder for temporary files")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A FUSE server is asked at close(2), and the thread that closes waits for its answer.
        if self.fuse
            && let Ok((stand_in, _)) = io::pipe()
        {
            let file = std::mem::replace(&mut self.file, OwnedFd::from(stand_in).into());
            let close = move || unlock(&file);
            // Without a thread the closure is dropped here, and this thread waits.
            _ = thread::Builder::new().name("weir-file-close".to_owned()).spawn(close);
        } else {
            unlock(&self.file);
        }
    }
}

/// Lets go of the lock now: a ring that is being taken down may hold the file open for longer.
fn unlock(file: &fs::File) {
    locks::release(file);
    _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

fn open_file(
    path: &Path,
    block_device: bool,
    options: &FileOptions,
    notices: &mut Vec<String>,
) -> Result<fs::File, DriverError> {
    let open = |direct: bool| {
        let mut flags = OFlags::empty();
        if direct {
            flags |= OFlags::DIRECT;
        }
        // On a block device this claims it against mounts and other users in the kernel.
        if block_device && !options.read_only {
            flags |= OFlags::EXCL;
        }
        if !options.follow {
            flags |= OFlags::NOFOLLOW;
        }
        let mut how = fs::OpenOptions::new();
        how.read(true).write(!options.read_only).custom_flags(flags.bits() as i32).open(path)
    };
    let mut file = open(options.direct);
    if options.direct && file.as_ref().is_err_and(|e| is(e, Errno::INVAL)) {
        let why = "the file system refuses O_DIRECT";
        notices.push(format!("file: {}: buffered I/O: {why}", path.display()));
        file = open(false);
    }
    file.map_err(|source| {
        let what = if block_device && is(&source, Errno::BUSY) {
            "is in use by the kernel: mounted, or part of another device"
        } else if !options.follow && is(&source, Errno::LOOP) {
            "is a symbolic link, which is not followed here"
        } else {
            "cannot be opened"
        };
        error(path, what, Some(source))
    })
}

/// Takes the advisory locks: one writer, or any number of readers.
fn lock(
    file: &fs::File,
    path: &Path,
    read_only: bool,
    notices: &mut Vec<String>,
) -> Result<(), DriverError> {
    let operation = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    // The kernel takes an io_uring down after its process has ended, once the I/O in it has, and
    // holds the file and its lock that long. So a daemon that is started again at once waits: for
    // the lock, and with it for the last writes of the one that was killed.
    let until = Instant::now() + LOCK_PATIENCE;
    let settle = |take: &dyn Fn() -> Result<(), Errno>| {
        loop {
            match take() {
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOCK_PAUSE),
                ended => break ended,
            }
        }
    };
    let flock = settle(&|| rustix::fs::flock(file, operation));
    let ranges = match flock {
        Err(Errno::WOULDBLOCK) => Ok(()),
        _ => settle(&|| locks::take(file, read_only)),
    };
    for (locked, others) in [(flock, ""), (ranges, ": a program of QEMU's, or one that locks so")] {
        match locked {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let what = if read_only { "for writing" } else { "already" };
                let what = format!("is in use {what}: somebody else holds its lock{others}");
                return Err(error(path, &what, None));
            }
            Err(errno) => {
                let whom = if others.is_empty() { "other users" } else { "QEMU's programs" };
                let path = path.display();
                notices.push(format!("file: {path}: not locked against {whom}: {errno}"));
            }
        }
    }
    Ok(())
}

fn end_of(file: &fs::File, path: &Path) -> Result<u64, DriverError> {
    let bytes = rustix::fs::seek(file, SeekFrom::End(0));
    bytes.map_err(|errno| error(path, "size cannot be read", Some(errno.into())))
}

/// The size in bytes, held against what was asked for.
fn size(file: &fs::File, path: &Path, options: &FileOptions) -> Result<u64, DriverError> {
    let bytes = end_of(file, path)?;
    let block_device = file.metadata().is_ok_and(|found| found.file_type().is_block_device());
    if let Some(asked) = options.size
        && asked > bytes
    {
        let what = format!("has {bytes} bytes, less than size={asked}");
        return Err(error(path, &what, None));
    }
    if block_device && (bytes == 0 || !bytes.is_multiple_of(SECTOR)) {
        let what = format!("has {bytes} bytes, which is not a positive multiple of {SECTOR}");
        return Err(error(path, &what, None));
    }
    Ok(bytes)
}
