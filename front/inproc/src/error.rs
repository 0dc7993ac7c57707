//! Why a blocking call failed, and why a disk refuses an I/O for its place: one judgement for all
//! ways in.

use std::fmt;
use std::io;

use weir_bio::{Bio, Limits, Op, SECTOR, Status};
use weir_queue::Device;

/// A blocking call that did not do what it was asked: what was asked of which disk, and why not.
///
/// It turns into an [`io::Error`] with the errno of [`errno`](IoError::errno).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoError {
    /// The disk's name.
    pub disk: String,
    /// The operation asked for.
    pub op: Op,
    /// Where, bytes from the disk's start; 0 for a flush.
    pub offset: u64,
    /// How much, bytes; 0 for a flush.
    pub len: u64,
    /// How it ended: that of the first part that failed, if it was carried out in parts.
    pub status: Status,
    /// The cause, as far as it is known.
    pub cause: Cause,
}

/// The cause of an error: the disk, or the caller's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The disk's: the status says it all.
    Disk,
    /// The caller's: offset or length is not a multiple of the logical block.
    Misaligned {
        /// The logical block, bytes.
        block: u32,
    },
    /// The caller's: the range ends beyond the disk.
    BeyondEnd {
        /// The disk's size, bytes.
        size: u64,
    },
    /// The disk may only be read.
    ReadOnly,
}

impl IoError {
    /// Linux' errno (positive), that of the [status](Status::errno).
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.status.errno()
    }
}

impl IoError {
    /// The error of an I/O at this place of a disk, bytes, that ended so.
    pub(crate) fn of(
        device: &Device,
        op: Op,
        (offset, len): (u64, u64),
        status: Status,
    ) -> IoError {
        let place = Place { offset: offset.into(), len: len.into() };
        let cause = match (status, refusal(op, place, &device.limits())) {
            (Status::ReadOnly, _) => Cause::ReadOnly,
            (_, Some((refused, cause))) if refused == status => cause,
            _ => Cause::Disk,
        };
        IoError { disk: device.config().name.clone(), op, offset, len, status, cause }
    }
}

/// The place of an I/O, bytes: 128 bits, as a bio may name a sector whose bytes have no 64.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u128,
    len: u128,
}

/// Why a disk with these limits refuses an I/O at this place, if it does: as Linux answers read(2)
/// and write(2) on a block device.
fn refusal(op: Op, place: Place, limits: &Limits) -> Option<(Status, Cause)> {
    let Place { offset, len } = place;
    let block = limits.logical_block_size;
    if (offset | len) & u128::from(block - 1) != 0 {
        return Some((Status::Inval, Cause::Misaligned { block }));
    }
    let size = limits.capacity * SECTOR;
    if offset + len <= u128::from(size) {
        return None;
    }
    let writes = matches!(op, Op::Write | Op::WriteZeroes);
    let status = if writes { Status::NoSpc } else { Status::Inval };
    Some((status, Cause::BeyondEnd { size }))
}

/// A disk's block and size in bytes as they were when it was opened: what lies inside is refused
/// for no place, and what does not is held against the limits as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) block: u32,
    pub(crate) size: u64,
}

impl Bounds {
    /// Checks a blocking call's range, bytes.
    pub(crate) fn check(
        self,
        device: &Device,
        op: Op,
        (offset, len): (u64, u64),
    ) -> Result<(), IoError> {
        let whole = (offset | len) & u64::from(self.block - 1) == 0;
        if whole && offset.checked_add(len).is_some_and(|end| end <= self.size) {
            return Ok(());
        }
        let place = Place { offset: offset.into(), len: len.into() };
        match refusal(op, place, &device.limits()) {
            Some((status, _)) => Err(IoError::of(device, op, (offset, len), status)),
            None => Ok(()),
        }
    }

    /// How a bio ends that the disk refuses for its place. `None`: it does not. It counts only if
    /// the core refuses the bio.
    #[inline]
    pub(crate) fn refusal(self, device: &Device, bio: &Bio) -> Option<Status> {
        let mask = u64::from(self.block) / SECTOR - 1;
        let whole = (bio.sector | u64::from(bio.sectors)) & mask == 0;
        if whole && bio.end() <= self.size / SECTOR { None } else { refusal_now(device, bio) }
    }
}

#[cold]
fn refusal_now(device: &Device, bio: &Bio) -> Option<Status> {
    let bytes = |sectors: u64| u128::from(sectors) * u128::from(SECTOR);
    let place = Place { offset: bytes(bio.sector), len: bytes(bio.sectors.into()) };
    refusal(bio.op, place, &device.limits()).map(|(status, _)| status)
}

/// The status that all ways in give to an I/O that ended so, and would be refused so.
pub(crate) fn explained(status: Status, refusal: Option<Status>) -> Status {
    match (status, refusal) {
        (Status::IoErr, Some(refused)) => refused,
        _ => status,
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IoError { disk, op, offset, len, status, cause } = self;
        write!(f, "disk {disk}: {}", verb(*op))?;
        if *op != Op::Flush {
            write!(f, " of {len} bytes at offset {offset}")?;
        }
        match cause {
            Cause::Disk => write!(f, ": {status}"),
            Cause::Misaligned { block } => {
                let (name, value) = match offset.is_multiple_of(u64::from(*block)) {
                    true => ("length", len),
                    false => ("offset", offset),
                };
                write!(f, ": {name}={value} is not a multiple of the logical block, {block} bytes")
            }
            Cause::BeyondEnd { size } => match offset.checked_add(*len) {
                Some(end) => write!(f, ": end={end} is beyond the disk's size, {size} bytes"),
                None => write!(f, ": its end is beyond the disk's size, {size} bytes"),
            },
            Cause::ReadOnly => write!(f, ": the disk is read-only"),
        }
    }
}

fn verb(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::SecureErase => "secure erase",
        Op::WriteZeroes => "write zeroes",
        Op::Prefetch => "prefetch",
        Op::DrvIn | Op::DrvOut => "passthrough",
    }
}

impl std::error::Error for IoError {}

impl From<IoError> for io::Error {
    fn from(error: IoError) -> io::Error {
        io::Error::from_raw_os_error(error.errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(op: Op, status: Status, cause: Cause) -> IoError {
        IoError { disk: "sda".into(), op, offset: 8192, len: 4096, status, cause }
    }

    #[test]
    fn an_error_names_the_disk_the_range_the_value_and_its_bound() {
        let of = |op, status, cause| error(op, status, cause).to_string();
        for (text, expected) in [
            (
                of(Op::Read, Status::Medium, Cause::Disk),
                "disk sda: read of 4096 bytes at offset 8192: medium error",
            ),
            (of(Op::Flush, Status::Timeout, Cause::Disk), "disk sda: flush: timed out"),
            (
                of(Op::Write, Status::Inval, Cause::Misaligned { block: 16384 }),
                "disk sda: write of 4096 bytes at offset 8192: offset=8192 is not a multiple of \
                 the logical block, 16384 bytes",
            ),
            (
                of(Op::Discard, Status::Inval, Cause::Misaligned { block: 8192 }),
                "disk sda: discard of 4096 bytes at offset 8192: length=4096 is not a multiple of \
                 the logical block, 8192 bytes",
            ),
            (
                of(Op::WriteZeroes, Status::NoSpc, Cause::BeyondEnd { size: 10240 }),
                "disk sda: write zeroes of 4096 bytes at offset 8192: end=12288 is beyond the \
                 disk's size, 10240 bytes",
            ),
            (
                of(Op::Write, Status::ReadOnly, Cause::ReadOnly),
                "disk sda: write of 4096 bytes at offset 8192: the disk is read-only",
            ),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn an_error_becomes_an_io_error_with_the_status_as_errno() {
        for status in Status::ALL.into_iter().filter(|status| !status.is_ok()) {
            let io = io::Error::from(error(Op::Read, status, Cause::Disk));
            assert_eq!(io.raw_os_error(), Some(status.errno()));
        }
        let io = io::Error::from(error(Op::Write, Status::ReadOnly, Cause::ReadOnly));
        assert_eq!(io.kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
}
