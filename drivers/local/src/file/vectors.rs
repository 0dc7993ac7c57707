//! Memory as the kernel wants it: vectors of addresses and lengths, to which no reference is made,
//! since the memory may be that of an owner who changes it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use weir_bio::Segment;

use super::job::Job;

/// A piece of memory as readv(2) wants it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Iovec {
    pub(super) base: *mut u8,
    pub(super) len: usize,
}

// SAFETY: it is an address and a length; the kernel alone uses them, while the memory is lent.
unsafe impl Send for Iovec {}

impl Iovec {
    /// This piece.
    pub(super) fn of(piece: Segment) -> Iovec {
        Iovec { base: piece.start.as_ptr(), len: piece.len as usize }
    }
}

/// Reads what is left of the job, which is a read.
pub(super) fn read(file: impl AsFd, job: &mut Job) -> Result<u32, Errno> {
    let vectors: Vec<Iovec> = job.pieces().map(Iovec::of).collect();
    let (fd, at) = (file.as_fd().as_raw_fd(), job.at as libc::off_t);
    // SAFETY: an `Iovec` is laid out as an iovec; the vectors lie in the memory that was lent to
    // the job, which keeps it during the call and is borrowed alone.
    let bytes =
        unsafe { libc::preadv(fd, vectors.as_ptr().cast(), vectors.len() as libc::c_int, at) };
    outcome(bytes)
}

/// Writes what is left of the job, which is a write; with RWF_DSYNC if `durably`.
pub(super) fn write(file: impl AsFd, job: &Job, durably: bool) -> Result<u32, Errno> {
    let vectors: Vec<Iovec> = job.pieces().map(Iovec::of).collect();
    let (fd, at) = (file.as_fd().as_raw_fd(), job.at as libc::off_t);
    let (start, count) = (vectors.as_ptr().cast(), vectors.len() as libc::c_int);
    // SAFETY: as in `read`, and the kernel only reads this memory.
    let bytes = unsafe {
        if durably {
            libc::pwritev2(fd, start, count, at, libc::RWF_DSYNC)
        } else {
            libc::pwritev(fd, start, count, at)
        }
    };
    outcome(bytes)
}

fn outcome(bytes: isize) -> Result<u32, Errno> {
    u32::try_from(bytes).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

const _: () = assert!(size_of::<Iovec>() == size_of::<libc::iovec>());
const _: () = assert!(size_of::<libc::off_t>() == 8, "a file may be longer than 2 GiB");
