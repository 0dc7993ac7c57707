//! The operation of an I/O ([`Op`]) and its flags ([`Flags`]).

use std::ops::{BitOr, BitOrAssign};

/// The operation of an I/O. The numbers are Linux' (odd means data goes out); [`Op::Prefetch`] is
/// weir's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Device to memory.
    Read = 0,
    /// Memory to device. With no data and [`Flags::PREFLUSH`] it is a pure flush.
    Write = 1,
    /// Device cache flush. Only the flush machine makes these; a bio carrying it is refused.
    Flush = 2,
    /// The range's contents are no longer needed.
    Discard = 3,
    /// As discard, and the old contents must not be recoverable.
    SecureErase = 5,
    /// The range reads back as zeros afterwards.
    WriteZeroes = 9,
    /// The range will be read soon (NBD's CACHE); doing nothing is a correct answer.
    Prefetch = 14,
    /// Passthrough command returning data: never merged, never scheduled.
    DrvIn = 34,
    /// Passthrough command sending data: never merged, never scheduled.
    DrvOut = 35,
}

impl Op {
    /// Whether data or effect goes towards the device (Linux: the op number is odd).
    #[must_use]
    pub fn is_write(self) -> bool {
        self as u8 & 1 == 1
    }

    /// A command the block layer carries but does not understand.
    #[must_use]
    pub fn is_passthrough(self) -> bool {
        matches!(self, Op::DrvIn | Op::DrvOut)
    }

    /// Whether the op carries memory as long as its range.
    #[must_use]
    pub fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// How an I/O is to be treated; a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// The submitter waits for this write.
    pub const SYNC: Flags = Flags(1);
    /// Metadata.
    pub const META: Flags = Flags(1 << 1);
    /// Boost within its class.
    pub const PRIO: Flags = Flags(1 << 2);
    /// With SYNC: the submitter lets the device idle afterwards (direct I/O style).
    pub const IDLE: Flags = Flags(1 << 3);
    /// Background writeback.
    pub const BACKGROUND: Flags = Flags(1 << 4);
    /// Read-ahead: may fail at any time.
    pub const RAHEAD: Flags = Flags(1 << 5);
    /// Flush the device cache before this one's data.
    pub const PREFLUSH: Flags = Flags(1 << 6);
    /// Durable before it completes.
    pub const FUA: Flags = Flags(1 << 7);
    /// End with AGAIN instead of waiting.
    pub const NOWAIT: Flags = Flags(1 << 8);
    /// Wanted on a poll queue.
    pub const POLLED: Flags = Flags(1 << 9);
    /// Never merge.
    pub const NOMERGE: Flags = Flags(1 << 10);
    /// All or nothing on power loss. For writes that
    /// [`takes_atomic_write`](crate::Limits::takes_atomic_write) allows; all else ends with
    /// `Inval`, on a device without atomic writes too.
    pub const ATOMIC: Flags = Flags(1 << 11);
    /// No retry on a device error.
    pub const FAILFAST_DEV: Flags = Flags(1 << 12);
    /// No retry on a transport error.
    pub const FAILFAST_TRANSPORT: Flags = Flags(1 << 13);
    /// No retry on a driver error.
    pub const FAILFAST_DRIVER: Flags = Flags(1 << 14);
    /// WRITE_ZEROES must leave the range allocated (NBD's NO_HOLE).
    pub const NOUNMAP: Flags = Flags(1 << 15);
    /// WRITE_ZEROES must be fast or fail NOTSUPP without change (NBD's FAST_ZERO).
    pub const NOFALLBACK: Flags = Flags(1 << 16);
    /// Every failfast bit.
    pub const FAILFAST: Flags = Flags(0b111 << 12);
    /// Bios that differ in one of these are not merged: an error ends all bios of a request alike,
    /// so one that must fail at once cannot travel with one that is to be tried again.
    pub const ALIKE: Flags = Flags::ATOMIC.with(Flags::FAILFAST);
    /// A merged request has these only if every bio of it has: each allows an early failure, which
    /// a bio without the flag must not suffer.
    pub const OF_ALL: Flags = Flags::FAILFAST.with(Flags::RAHEAD).with(Flags::NOWAIT);

    /// The flags of a write that its submitter waits for, as those of a background write.
    #[must_use]
    pub const fn in_background(self) -> Flags {
        self.without(Flags::SYNC.with(Flags::IDLE)).with(Flags::BACKGROUND)
    }

    /// Whether all bits of `other` are set here.
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set here.
    #[must_use]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// These bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Both sets together, usable in constants.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Needs the flush machine's judgement: PREFLUSH or FUA.
    #[must_use]
    pub const fn is_flushish(self) -> bool {
        self.any(Flags::PREFLUSH.with(Flags::FUA))
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        self.with(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}
