//! The file driver: a regular file or a block device.
//!
//! I/O goes past the page cache where the file system allows it, through one io_uring per hard
//! queue, or through threads where io_uring is not to be had or would stop the thread that uses it.
//! Calls that the kernel's workers leave undone are made by threads too (`uring/workers.rs`).
//! Flush is fdatasync(2), FUA is a write with RWF_DSYNC or, in the page cache, a write and then
//! fdatasync(2); discard and write-zeroes are fallocate(2) where it works.
//!
//! A file is locked while it is open, with flock(2) and as QEMU's tools lock it, so that neither
//! two daemons nor a daemon and `qemu-img` write it both.
//!
//! The kernel tells of a write that it lost once for each open file description, and may have
//! dropped the data. So each hard queue flushes through a description of its own, one call at a
//! time, and what waits for that call is told what it was told; on a FUSE file system, where a
//! server may know descriptions by themselves, all queues do so through one. After a flush has
//! failed nothing is called durable again until the file is opened anew.

mod attributes;
mod crew;
mod errors;
mod extents;
mod flushes;
mod ioprio;
mod job;
mod locks;
mod making;
mod pool;
mod probe;
mod target;
#[expect(unsafe_code)]
mod uring;
#[expect(unsafe_code)]
mod vectors;
mod zeroing;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Limits, Size};
use weir_queue::{Affinity, Driver, DriverError, DriverQueue, Extent, Queues};

use errors::error;
use flushes::Flushes;
use target::Target;

/// Hard queues at most: as many as a machine has CPUs, with room.
const QUEUES_MAX: u16 = 1024;

/// Tags per queue at most: the kernel's bound for a ring is 32,768 entries; no device needs that
/// many.
const DEPTH_MAX: u16 = 4096;

/// Why a ring is no back end for a file of a FUSE file system. Seen with Linux 6.18: a direct
/// transfer is made by the thread that hands it over, which sleeps until the server has answered.
const FUSE_STOPS: &str = "on a FUSE file system it stops its thread until the server answers";

/// How to open a file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Size in bytes: of the file to be made if there is none; else what it must have at least.
    pub size: Option<u64>,
    /// Writes are refused, and others may read too.
    pub read_only: bool,
    /// Go past the page cache where that is possible.
    pub direct: bool,
    /// A symbolic link at the end of the path is followed; else it is refused.
    pub follow: bool,
    /// How I/O calls reach the kernel.
    pub io: Io,
    /// Tags per queue, 1 to 4096.
    pub depth: u16,
    /// Threads per queue of the thread pool, at least 1; more than `depth` are not started. As many
    /// at most make the calls of a ring that io_uring's workers do not make.
    pub threads: u16,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions {
            size: None,
            read_only: false,
            direct: true,
            follow: true,
            io: Io::Auto,
            depth: crate::DEPTH,
            threads: 16,
        }
    }
}

/// How I/O calls reach the kernel: through io_uring or by threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring if it can be had and the file is none of a FUSE file system, else threads.
    #[default]
    Auto,
    /// io_uring, or the file is not opened.
    Uring,
    /// Threads.
    Threads,
}

/// The way of I/O in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// One io_uring per hard queue.
    Uring,
    /// So many threads per hard queue.
    Threads(u16),
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::Uring => f.write_str("io_uring"),
            Backend::Threads(count) => write!(f, "{count} threads per queue"),
        }
    }
}

/// An open file or block device.
#[derive(Debug)]
pub struct File {
    target: Arc<Target>,
    limits: Limits,
    backend: Backend,
    /// Threads for a hard queue whose ring cannot be made; none if only a ring will do.
    instead: Option<u16>,
    /// Threads at most for the calls of a hard queue that io_uring's workers do not make.
    threads: u16,
    depth: u16,
    /// Descriptions for queues that were prepared.
    described: Mutex<BTreeMap<u16, fs::File>>,
}

impl File {
    /// Opens `path`.
    ///
    /// # Errors
    /// When it does not exist and no size is given, is smaller than asked for, is in use by another
    /// process, or the operating system refuses.
    pub fn open(path: &Path, options: &FileOptions) -> Result<File, DriverError> {
        if !(1..=DEPTH_MAX).contains(&options.depth) {
            let what = format!("depth={} is outside 1..={DEPTH_MAX}", options.depth);
            return Err(error(path, &what, None));
        }
        let refusal =
            if options.io == Io::Threads { None } else { uring::usable(options.depth).err() };
        if options.io == Io::Uring && refusal.is_some() {
            return Err(error(path, "io_uring cannot be used", refusal));
        }
        let target = Target::open(path, options)?;
        let (backend, told) = backend(&target, options, refusal)?;
        target.tell(told);
        let cache = match (options.direct, target.direct) {
            (_, true) => "cache=none (direct I/O)",
            (true, false) => "cache=none is not to be had (buffered I/O)",
            (false, false) => "cache=writeback (buffered I/O)",
        };
        let (path, block) = (path.display(), target.block);
        target.tell([format!("file: {path}: {backend}, {cache}, {block}-byte blocks")]);
        let limits = probe::limits(&target);
        let threads = options.threads.clamp(1, options.depth);
        let instead = (options.io == Io::Auto).then_some(threads);
        let (target, depth, described) = (Arc::new(target), options.depth, Mutex::default());
        Ok(File { target, limits, backend, instead, threads, depth, described })
    }

    /// The newest notices, one line each, oldest first: after opening the fallbacks and then what
    /// is in use, later what went wrong when a queue was closed.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.target.notices.all()
    }

    /// Tells `listener` each further notice when it comes, on the thread that closes the queue
    /// concerned; a second listener takes the first one's place.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.target.notices.listen(Arc::new(listener));
    }

    /// The way of I/O in use.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Whether I/O goes past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.target.direct
    }

    fn described(&self) -> MutexGuard<'_, BTreeMap<u16, fs::File>> {
        self.described.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses who makes the calls, and says why it is not io_uring where it might have been.
fn backend(
    target: &Target,
    options: &FileOptions,
    refusal: Option<io::Error>,
) -> Result<(Backend, Option<String>), DriverError> {
    let path = target.path.display();
    let threads = Backend::Threads(options.threads.clamp(1, options.depth));
    Ok(match (options.io, refusal) {
        (Io::Threads, _) => (threads, None),
        (Io::Auto, _) if target.fuse => {
            (threads, Some(format!("file: {path}: io_uring is not used: {FUSE_STOPS}")))
        }
        (Io::Auto, Some(source)) => {
            (threads, Some(format!("file: {path}: io_uring cannot be used: {source}")))
        }
        (Io::Uring, None) if target.fuse => {
            return Err(error(&target.path, &format!("io=uring is refused: {FUSE_STOPS}"), None));
        }
        (Io::Auto | Io::Uring, None) => (Backend::Uring, None),
        (Io::Uring, source) => {
            return Err(error(&target.path, "io_uring cannot be used", source));
        }
    })
}

impl Driver for File {
    fn limits(&self) -> Limits {
        let Size { sectors: capacity, padding } = self.target.size();
        Limits { capacity, padding, ..self.limits.clone() }
    }

    fn queues(&self) -> Queues {
        Queues {
            max: QUEUES_MAX,
            depth: self.depth,
            reserved: 0,
            shared_tags: false,
            home: match self.backend {
                // A ring's requests end with the thread that submitted them.
                Backend::Uring => Affinity::Fixed,
                Backend::Threads(_) => Affinity::Any,
            },
        }
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        if !self.target.fuse {
            // On a network file system that asks a server.
            let described = self.target.describe()?;
            self.described().insert(index, described);
        }
        Ok(())
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let target = || Arc::clone(&self.target);
        let described = || match self.described().remove(&index) {
            Some(described) => Ok(described),
            None => self.target.describe(),
        };
        let pool = |threads| {
            let flushes = match self.target.fuse {
                // A FUSE server need not flush through one description the data written through
                // another.
                true => Arc::clone(&self.target.flushes),
                false => Arc::new(Flushes::through(described()?)),
            };
            pool::PoolQueue::new(target(), flushes, index, pool::Size { depth, threads })
        };
        let refused = match self.backend {
            Backend::Threads(count) => return Ok(Box::new(pool(count)?)),
            Backend::Uring => {
                let instead = crew::Make { index, threads: self.threads };
                match uring::RingQueue::new(target(), described()?, depth, instead) {
                    Ok(queue) => return Ok(Box::new(queue)),
                    Err(refused) => refused,
                }
            }
        };
        // The ring that was tried is gone; a limit may have no room for one more of this size.
        let Some(count) = self.instead else { return Err(refused) };
        let queue = pool(count)?;
        let instead = Backend::Threads(count);
        self.target.tell([format!("{refused}; hard queue {index} has {instead} instead")]);
        Ok(Box::new(queue))
    }

    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        self.target.enlarge(sectors)
    }

    fn faults(&self) -> Vec<String> {
        let target = &self.target;
        let turned =
            || attributes::turned_read_only(target.block_device, target.device, target.mount);
        let fault = |what| format!("{}: {what}", target.path.display());
        let deleted = || {
            let is_deleted =
                !target.block_device && target.linked && attributes::is_deleted(&target.file);
            let what = "the file was deleted, and what is in it is lost when the disk is closed";
            is_deleted.then(|| String::from(what))
        };
        let turned = (!target.read_only).then(turned).flatten();
        turned.into_iter().chain(deleted()).map(fault).collect()
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        extents::allocation(&self.target, sector, sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_file_is_served_by_threads_and_its_user_is_told_why() {
        let mut target = Target::nameless(4096);
        assert!(!target.fuse);
        let choose = |target: &Target, io| {
            let options = FileOptions { io, ..FileOptions::default() };
            backend(target, &options, None)
        };
        let (chosen, notice) = choose(&target, Io::Auto).expect("a back end");
        assert_eq!((chosen, notice), (Backend::Uring, None));
        target.fuse = true;
        let (chosen, notice) = choose(&target, Io::Auto).expect("a back end");
        assert_eq!(chosen, Backend::Threads(16));
        assert!(notice.is_some_and(|notice| notice.contains("FUSE")));
        let (chosen, notice) = choose(&target, Io::Threads).expect("a back end");
        assert_eq!((chosen, notice), (Backend::Threads(16), None));
        let refused = choose(&target, Io::Uring).expect_err("a ring was asked for").to_string();
        assert!(refused.contains("io=uring") && refused.contains("FUSE"), "{refused}");
    }
}
