//! The entry of a call: what the kernel is asked for.

use io_uring::types::{Fixed, FsyncFlags};
use io_uring::{opcode, squeue};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::ReadWriteFlags;

use super::super::job::Call;
use super::super::vectors::Iovec;
use super::Slot;

/// The registered files: what I/O goes through, and what flushes go through.
const FILE: Fixed = Fixed(0);
const FLUSHED: Fixed = Fixed(1);

impl Slot {
    /// The entry for the next call of this slot's job; `flags` are those of transfers.
    pub(super) fn entry(&mut self, flags: ReadWriteFlags) -> Option<squeue::Entry> {
        let job = self.job.as_mut()?;
        let (file, at, left) = (FILE, job.at, job.left);
        Some(match job.call {
            Call::Read => {
                self.iovecs.clear();
                self.iovecs.extend(job.pieces().map(Iovec::of));
                let flags = flags.bits() as i32;
                match &self.iovecs[..] {
                    [one] => opcode::Read::new(file, one.base, one.len as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                    many => opcode::Readv::new(file, many.as_ptr().cast(), many.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Call::Write | Call::WriteDurably => {
                self.iovecs.clear();
                // The kernel only reads this memory.
                self.iovecs.extend(job.pieces().map(Iovec::of));
                let durable = job.call == Call::WriteDurably;
                let durable = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let flags = (flags | durable).bits() as i32;
                match &self.iovecs[..] {
                    [one] => opcode::Write::new(file, one.base, one.len as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                    many => opcode::Writev::new(file, many.as_ptr().cast(), many.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Call::Flush => opcode::Fsync::new(FLUSHED).flags(FsyncFlags::DATASYNC).build(),
            Call::PunchHole => fallocate(FallocateFlags::PUNCH_HOLE, at, left),
            Call::ZeroRange => fallocate(FallocateFlags::ZERO_RANGE, at, left),
            Call::WillNeed => {
                opcode::Fadvise::new(file, left as i64, Advice::WillNeed as i32).offset(at).build()
            }
            Call::Nothing(_) => opcode::Nop::new().build(),
        })
    }
}

fn fallocate(mode: FallocateFlags, at: u64, len: u64) -> squeue::Entry {
    let mode = (mode | FallocateFlags::KEEP_SIZE).bits() as i32;
    opcode::Fallocate::new(FILE, len).offset(at).mode(mode).build()
}
