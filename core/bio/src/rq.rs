//! The request as policy code sees it: 32 bytes, `Copy`, no memory behind it.

use crate::op::{Flags, Op};

/// Which submitter of a device; also the issuing context schedulers know (`ctx`). At most 4,096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubmitterId(pub u16);

/// A request's name for its life: submitter (12 bits), slot (16), generation (4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RqId(pub u32);

impl RqId {
    /// Puts the three parts together; each is cut to its width.
    #[must_use]
    pub fn new(submitter: SubmitterId, slot: u16, generation: u8) -> RqId {
        RqId(
            u32::from(submitter.0 & 0xfff) << 20
                | u32::from(slot) << 4
                | u32::from(generation & 0xf),
        )
    }

    /// The submitter the request belongs to.
    #[must_use]
    pub fn submitter(self) -> SubmitterId {
        SubmitterId((self.0 >> 20) as u16)
    }

    /// The slot in the submitter's slab.
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> 4) as u16
    }

    /// The same slot, used once more.
    #[must_use]
    pub fn next_generation(self) -> RqId {
        RqId(self.0 & !0xf | self.0.wrapping_add(1) & 0xf)
    }
}

/// A request's place inside a scheduler: 0..nr_requests. [`SchedTag::NONE`] while it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchedTag(pub u16);

impl SchedTag {
    /// Not in a scheduler.
    pub const NONE: SchedTag = SchedTag(u16::MAX);

    /// Its place in a table by tag.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Group of a bio for weights and caps; 0 is the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Priority class, numbered as ionice does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// Not set; counts as best-effort level 4.
    None = 0,
    /// Always first.
    RealTime = 1,
    /// The default.
    BestEffort = 2,
    /// Served only while no other class wants the disk.
    Idle = 3,
}

/// Priority as Linux encodes it: class in bits 15..13, level in bits 2..0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IoPrio(pub u16);

impl IoPrio {
    /// Not set.
    pub const NONE: IoPrio = IoPrio(0);

    /// `level` is 0 (best) to 7 and cut to three bits.
    #[must_use]
    pub const fn new(class: Class, level: u8) -> IoPrio {
        IoPrio((class as u16) << 13 | (level & 7) as u16)
    }

    /// The class; the unused encodings 4..7 count as not set.
    #[must_use]
    pub fn class(self) -> Class {
        match self.0 >> 13 {
            1 => Class::RealTime,
            2 => Class::BestEffort,
            3 => Class::Idle,
            _ => Class::None,
        }
    }

    /// The level, 0 (best) to 7.
    #[must_use]
    pub fn level(self) -> u8 {
        (self.0 & 7) as u8
    }
}

/// A request as a scheduler, a merge rule or a trace sees it. Two fit in a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rq {
    /// First sector.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// The request's name.
    pub id: RqId,
    /// How it is to be treated.
    pub flags: Flags,
    /// Group for weights and caps.
    pub group: GroupId,
    /// Priority.
    pub ioprio: IoPrio,
    /// Write lifetime hint, 0 if none.
    pub hint: u16,
    /// Its place in the scheduler.
    pub tag: SchedTag,
    /// Its op.
    pub op: Op,
    /// Memory segments, 255 for that many or more; with so many nothing merges.
    pub segments: u8,
}

impl Rq {
    /// The sector after the last one.
    #[must_use]
    #[inline]
    pub fn end(&self) -> u64 {
        self.sector + u64::from(self.sectors)
    }

    /// Whether one ends where the other starts.
    #[must_use]
    #[inline]
    pub fn touches(&self, other: &Rq) -> bool {
        self.end() == other.sector || other.end() == self.sector
    }

    /// Takes `other` in, which starts where this one ends or ends where it starts: place, length,
    /// segments, and the flags that only all may have.
    #[inline]
    pub fn take_in(&mut self, other: &Rq) {
        self.sector = self.sector.min(other.sector);
        self.sectors += other.sectors;
        self.segments = self.segments.saturating_add(other.segments);
        self.flags = self.flags.without(Flags::OF_ALL.without(other.flags));
    }

    /// Whether its submitter waits for it: every read, and writes carrying SYNC, FUA or PREFLUSH.
    #[must_use]
    #[inline]
    pub fn is_sync(&self) -> bool {
        // Reads and writes come mixed by chance, so no branch depends on which one this is.
        !self.op.is_write() | self.flags.any(Flags::SYNC | Flags::FUA | Flags::PREFLUSH)
    }

    /// Whether anything may be merged with it at all (docs/behaviour/block-layer.md, section 4.2).
    #[must_use]
    #[inline]
    pub fn is_mergeable(&self) -> bool {
        matches!(self.op, Op::Read | Op::Write | Op::Discard | Op::SecureErase)
            && !self.flags.any(Flags::NOMERGE | Flags::PREFLUSH | Flags::FUA)
    }

    /// Whether the two agree in everything that must be identical for a merge: op, priority,
    /// group, hint, atomicity, and which errors are not to be tried again. Place and size are
    /// judged separately.
    #[must_use]
    #[inline]
    pub fn is_like(&self, other: &Rq) -> bool {
        self.op == other.op
            && self.ioprio == other.ioprio
            && self.group == other.group
            && self.hint == other.hint
            && (self.flags.0 ^ other.flags.0) & Flags::ALIKE.0 == 0
    }
}

const _: () = assert!(std::mem::size_of::<Rq>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_parts_and_only_the_generation_moves_on() {
        let id = RqId::new(SubmitterId(0xabc), 0x1234, 15);
        assert_eq!((id.submitter(), id.slot()), (SubmitterId(0xabc), 0x1234));
        let next = id.next_generation();
        assert_eq!((next.submitter(), next.slot(), next.0 & 0xf), (SubmitterId(0xabc), 0x1234, 0));
    }

    #[test]
    fn the_last_id_of_all_starts_over_as_well() {
        // The flush machine's own request has it.
        let last = RqId(u32::MAX);
        assert_eq!(last.next_generation(), RqId(!0xf));
    }

    #[test]
    fn priorities_are_encoded_as_linux_does() {
        let prio = IoPrio::new(Class::BestEffort, 4);
        assert_eq!(prio.0, 2 << 13 | 4);
        assert_eq!((prio.class(), prio.level()), (Class::BestEffort, 4));
    }
}
