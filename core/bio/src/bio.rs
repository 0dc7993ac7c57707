//! One I/O as a caller hands it in.

use crate::buf::Buf;
use crate::data::Data;
use crate::op::{Flags, Op};
use crate::rq::{GroupId, IoPrio};

/// One I/O as a caller submits it.
#[derive(Debug)]
pub struct Bio {
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// Its op.
    pub op: Op,
    /// How.
    pub flags: Flags,
    /// Priority.
    pub ioprio: IoPrio,
    /// Write lifetime hint, 0 if none.
    pub hint: u16,
    /// Group for weights and caps.
    pub group: GroupId,
    /// The caller's own word, handed back with the answer.
    pub cookie: u64,
    /// The memory: as long as the range for reads and writes, else none.
    pub data: Data,
}

impl Bio {
    /// An I/O of `op` on `sectors` sectors from `sector`, with nothing special about it.
    #[must_use]
    #[inline]
    pub fn new(op: Op, sector: u64, sectors: u32, data: Data) -> Bio {
        Bio {
            sector,
            sectors,
            op,
            flags: Flags::NONE,
            ioprio: IoPrio::NONE,
            hint: 0,
            group: GroupId(0),
            cookie: 0,
            data,
        }
    }

    /// A read that fills `buf`; its length must be whole sectors.
    #[must_use]
    pub fn read(sector: u64, buf: Buf) -> Bio {
        Bio::new(Op::Read, sector, sectors_of(&buf), Data::One(buf))
    }

    /// A write of `buf`, SYNC and IDLE as direct I/O is; its length must be whole sectors.
    #[must_use]
    pub fn write(sector: u64, buf: Buf) -> Bio {
        Bio::new(Op::Write, sector, sectors_of(&buf), Data::One(buf))
            .with(Flags::SYNC | Flags::IDLE)
    }

    /// A read into memory of any kind: a vector, several, [segments](crate::Segments); whole
    /// sectors. It comes back with the completion, and is that memory still:
    /// [`Data::into_vecs`].
    #[must_use]
    pub fn read_into(sector: u64, data: impl Into<Data>) -> Bio {
        let data = data.into();
        Bio::new(Op::Read, sector, sectors_in(data.len()), data)
    }

    /// A write of memory of any kind, as [`read_into`](Bio::read_into), with the flags of
    /// [`write`](Bio::write).
    #[must_use]
    pub fn write_from(sector: u64, data: impl Into<Data>) -> Bio {
        let data = data.into();
        Bio::new(Op::Write, sector, sectors_in(data.len()), data).with(Flags::SYNC | Flags::IDLE)
    }

    /// A pure flush: everything acknowledged before it is durable when it completes. It is a write
    /// of nothing, and its completion says [`Op::Write`].
    #[must_use]
    pub fn flush() -> Bio {
        Bio::new(Op::Write, 0, 0, Data::None).with(Flags::PREFLUSH | Flags::SYNC)
    }

    /// The same with more flags.
    #[must_use]
    #[inline]
    pub fn with(mut self, flags: Flags) -> Bio {
        self.flags |= flags;
        self
    }

    /// The same with the caller's own word.
    #[must_use]
    pub fn cookie(mut self, cookie: u64) -> Bio {
        self.cookie = cookie;
        self
    }

    /// The sector after the last one; saturates.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.sector.saturating_add(u64::from(self.sectors))
    }
}

fn sectors_of(buf: &Buf) -> u32 {
    sectors_in(buf.len())
}

fn sectors_in(bytes: usize) -> u32 {
    (bytes as u64 / crate::SECTOR) as u32
}
