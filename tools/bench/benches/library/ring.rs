//! An io_uring as one writes it for one file and nothing else.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode, squeue};
use rustix::io::ReadWriteFlags;
use weir::{Buf, Segment};

/// An address and a length for the kernel, as readv(2) has them.
#[repr(C)]
pub struct Iovec {
    start: NonNull<u8>,
    len: usize,
}

impl Iovec {
    pub fn of(Segment { start, len }: Segment) -> Iovec {
        Iovec { start, len: len as usize }
    }
}

/// A ring whose completions wait until its thread asks for them.
pub struct Ring {
    ring: IoUring,
}

impl Ring {
    /// One of so many entries, for a file past the page cache.
    pub fn open(path: &Path, entries: usize) -> Ring {
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(entries as u32).expect("an io_uring of Linux 6.1");
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(direct).open(path);
        let file = file.expect("a file system that can go past the page cache");
        // The ring has the file from now on.
        ring.submitter().register_files(&[file.as_raw_fd()]).expect("its file");
        Ring { ring }
    }

    /// Queues a read; `wait` hands it over.
    ///
    /// # Safety
    /// The table and its memory live, unused, until the read has ended.
    pub unsafe fn read(&mut self, offset: u64, table: &[Iovec], number: u64) {
        let entry = opcode::Readv::new(Fixed(0), table.as_ptr().cast(), table.len() as u32);
        let entry = entry.offset(offset).build().user_data(number);
        // SAFETY: the caller's promise.
        unsafe { self.push(&entry) };
    }

    /// Makes a write, and returns when it is durable.
    pub fn write_durably(&mut self, offset: u64, bytes: Buf) -> Buf {
        let entry = opcode::Write::new(Fixed(0), bytes.as_ptr(), bytes.len() as u32);
        let flags = ReadWriteFlags::DSYNC.bits() as i32;
        let entry = entry.offset(offset).rw_flags(flags).build();
        // SAFETY: it has ended when this returns, or the process has.
        unsafe { self.push(&entry) };
        let mut ended = None;
        while ended.is_none() {
            self.wait(|_, result| ended = Some(result));
        }
        assert_eq!(ended, Some(bytes.len() as i32));
        bytes
    }

    /// # Safety
    /// The entry's memory lives until it has ended.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller's promise.
        unsafe { self.ring.submission().push(entry) }.expect("a place for each");
    }

    /// Hands over what is queued, and waits until one at least has ended.
    pub fn wait(&mut self, mut each: impl FnMut(u64, i32)) {
        self.ring.submit_and_wait(1).expect("it is entered");
        for completion in self.ring.completion() {
            each(completion.user_data(), completion.result());
        }
    }
}
