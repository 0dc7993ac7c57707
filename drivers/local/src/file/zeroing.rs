//! The ways to make zeros in a file without sending them, found without changing it.

use std::fs;
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::attributes::queue_attribute;

/// Ways to make zeros without sending them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Zeroing {
    /// Freeing the range works.
    pub(super) punch: bool,
    /// Zeroing the range and leaving it allocated works.
    pub(super) range: bool,
    /// They do not write zeros behind the scenes.
    pub(super) fast: bool,
}

impl Zeroing {
    /// The ways of a block device. It takes both calls and zeroes by writing where it has no
    /// command for it; freeing then fails, as it promises to be quick.
    pub(super) fn of_device(device: &fs::File) -> Zeroing {
        let fast = queue_attribute(device, "write_zeroes_max_bytes").unwrap_or(0) > 0;
        Zeroing { punch: fast, range: true, fast }
    }

    /// The ways of a regular file of so many bytes that is open for writing.
    pub(super) fn of_file(file: &fs::File, path: &Path, bytes: u64) -> Zeroing {
        // A nameless file on the same file system stands in for it.
        let directory = path.canonicalize().ok().and_then(|path| {
            let parent = path.parent()?;
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(parent, flags, Mode::RUSR | Mode::WUSR).ok()
        });
        let works = |mode| {
            let mode = mode | FallocateFlags::KEEP_SIZE;
            match &directory {
                Some(spare) => rustix::fs::fallocate(spare, mode, 0, 4096).is_ok(),
                // Freeing what lies behind the end changes nothing; zeroing there would allocate.
                None if mode.contains(FallocateFlags::PUNCH_HOLE) => {
                    rustix::fs::fallocate(file, mode, bytes, 4096).is_ok()
                }
                None => false,
            }
        };
        let punch = works(FallocateFlags::PUNCH_HOLE);
        let range = works(FallocateFlags::ZERO_RANGE);
        Zeroing { punch, range, fast: punch || range }
    }
}
