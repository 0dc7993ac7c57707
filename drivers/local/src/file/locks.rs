//! The byte-range locks that QEMU's tools take, beside flock(2), so that `qemu-img` and weir keep
//! each other away from a file.
//!
//! Their meaning was observed with strace(1) of qemu-img, qemu-io and qemu-nbd 7.2: a process that
//! uses a permission has a shared lock on byte 100 + n, one that does not share it has one on byte
//! 200 + n, and both are taken first and then asked for on the other side. The permissions: 0 is
//! reading, 1 is writing, 3 is a change of size. The locks are those of the open file description.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

const USED: i64 = 100;
const UNSHARED: i64 = 200;

const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// The permissions that a writer does not share: no other process may write or resize the file.
const ALONE: [i64; 2] = [WRITE, RESIZE];

/// Takes the locks of a reader or a writer, or none.
///
/// # Errors
/// `EWOULDBLOCK` where they are held against us, or the system's, where there are no such locks.
pub(super) fn take(file: &fs::File, read_only: bool) -> Result<(), Errno> {
    let used: &[i64] = if read_only { &[READ] } else { &[READ, WRITE, RESIZE] };
    let taken = used.iter().map(|n| USED + n).chain(ALONE.map(|n| UNSHARED + n));
    let against = used.iter().map(|n| UNSHARED + n).chain(ALONE.map(|n| USED + n));
    let locked = (|| {
        for byte in taken {
            lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte)?;
        }
        for byte in against {
            // A lock that would exclude all others finds each of them.
            if lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)? != libc::F_UNLCK {
                return Err(Errno::WOULDBLOCK);
            }
        }
        Ok(())
    })();
    if locked.is_err() {
        release(file);
    }
    locked
}

/// Lets go of the locks.
pub(super) fn release(file: &fs::File) {
    for byte in [READ, WRITE, RESIZE].into_iter().flat_map(|n| [USED + n, UNSHARED + n]) {
        // Of a lock that is not held nothing is to be let go.
        _ = lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
    }
}

/// One call for one byte; the type of lock that it leaves in its argument.
#[expect(unsafe_code)]
fn lock(file: &fs::File, command: i32, kind: i32, byte: i64) -> Result<i32, Errno> {
    let mut range = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the commands take a pointer to such a structure, which outlives the call.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) };
    if done == 0 {
        return Ok(i32::from(range.l_type));
    }
    let error = io::Error::last_os_error();
    Err(error.raw_os_error().map_or(Errno::IO, |errno| match errno {
        // For a lock that is held fcntl(2) has two names.
        libc::EACCES | libc::EAGAIN => Errno::WOULDBLOCK,
        errno => Errno::from_raw_os_error(errno),
    }))
}
