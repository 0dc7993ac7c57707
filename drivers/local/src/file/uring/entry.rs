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
        let (file, at, left, ioprio) = (FILE, job.at, job.left, job.ioprio);
        Some(match job.call {
            Call::Read => {
                self.iovecs.clear();
                self.iovecs.extend(job.pieces().map(Iovec::of));
                let flags = flags.bits() as i32;
                match &self.iovecs[..] {
                    [one] => opcode::Read::new(file, one.base, one.len as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .ioprio(ioprio)
                        .build(),
                    many => opcode::Readv::new(file, many.as_ptr().cast(), many.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .ioprio(ioprio)
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
                        .ioprio(ioprio)
                        .build(),
                    many => opcode::Writev::new(file, many.as_ptr().cast(), many.len() as u32)
                        .offset(at)
                        .rw_flags(flags)
                        .ioprio(ioprio)
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

#[cfg(test)]
mod tests {
    use super::super::super::job::Job;
    use super::*;
    use weir_bio::{Buf, Data};

    /// Where the kernel reads the priority in an entry: `struct io_uring_sqe`, io_uring_enter(2).
    fn ioprio_of(entry: &squeue::Entry) -> u16 {
        const BYTES: usize = 64;
        assert_eq!(size_of::<squeue::Entry>(), BYTES);
        // SAFETY: an entry is the kernel's structure, 64 bytes of plain numbers, all of which are
        // set when it is made.
        let bytes = unsafe { *std::ptr::from_ref(entry).cast::<[u8; BYTES]>() };
        u16::from_ne_bytes([bytes[2], bytes[3]])
    }

    #[test]
    fn every_transfer_has_the_priority_of_its_request_and_no_other_call() {
        let page = || Data::One(Buf::zeroed(4096));
        for (call, pages, expected) in [
            (Call::Read, 1, 0x4003),
            (Call::Read, 2, 0x4003),
            (Call::Write, 1, 0x4003),
            (Call::WriteDurably, 2, 0x4003),
            (Call::Flush, 0, 0),
        ] {
            let mut slot = Slot::new(0);
            let mut job = Job::of(call, (0..pages).map(|_| page()).collect());
            job.ioprio = 0x4003;
            slot.job = Some(job);
            let entry = slot.entry(ReadWriteFlags::empty()).expect("it has a job");
            assert_eq!(ioprio_of(&entry), expected, "{call:?} of {pages} pages");
        }
    }
}
