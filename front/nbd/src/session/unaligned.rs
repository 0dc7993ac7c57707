//! Requests that begin or end inside a block of the device.
//!
//! | request | becomes |
//! |---|---|
//! | READ | a read of whole blocks; the answer is cut |
//! | WRITE | a patch ([`weir_queue::Submitter::submit_patch`]): a read-modify-write |
//! | WRITE_ZEROES | its whole blocks as ever, then a patch for each block at an end |
//! | TRIM | its whole blocks; without any it is done |
//! | CACHE | the blocks that it touches |
//! | BLOCK_STATUS | the blocks that it touches; the answer is cut |
//!
//! A WRITE_ZEROES with FAST_ZERO and without a whole block is refused: it would be a write.

use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, SECTOR};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::server::{Act, Range};
use weir_proto_nbd::wire::{Extent, ReplyTo};
use weir_queue::Kept;

use super::effects::{Wanted, zeroing_flags};
use super::{Held, Session};
use crate::outbox::Outbox;
use crate::payload::Payload;
use crate::pool::{Pool, room};
use crate::slots::{Slot, Work};
use crate::survey;

/// Bytes that an answer leaves out at either end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) front: u32,
    pub(super) back: u32,
}

/// The blocks of an effect of which only some bytes are meant.
#[derive(Debug)]
pub(super) struct Edges {
    /// The effect.
    slot: u32,
    flags: Flags,
    /// First sector, length in sectors, and what of it is kept; the next is the last.
    left: Vec<(u64, u32, Kept)>,
}

/// The blocks that a range touches, and those that lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocks {
    touched: Range,
    /// The bytes of the touched blocks outside the range.
    kept: Kept,
    /// May be empty.
    whole: Range,
}

impl Blocks {
    fn of(range: Range, block: u32) -> Blocks {
        let block = u64::from(block);
        let end = range.offset + range.length;
        let (start, stop) = (range.offset / block * block, end.next_multiple_of(block));
        let (first, last) = (range.offset.next_multiple_of(block), end / block * block);
        let kept = Kept { lead: (range.offset - start) as u32, trail: (stop - end) as u32 };
        Blocks {
            touched: Range { offset: start, length: stop - start },
            kept,
            whole: Range { offset: first, length: last.saturating_sub(first) },
        }
    }

    /// The touched blocks that do not lie in the range, the last one first.
    fn edges(&self, block: u32) -> Vec<(u64, u32, Kept)> {
        let Blocks { touched, kept, whole } = *self;
        let (first, sectors) = (touched.offset / SECTOR, block / SECTOR as u32);
        if whole.length == 0 {
            return vec![(first, (touched.length / SECTOR) as u32, kept)];
        }
        let last = (whole.offset + whole.length) / SECTOR;
        let tail = (last, sectors, Kept { lead: 0, ..kept });
        let head = (first, sectors, Kept { trail: 0, ..kept });
        let mut edges = Vec::new();
        edges.extend(Some(tail).filter(|_| kept.trail > 0));
        edges.extend(Some(head).filter(|_| kept.lead > 0));
        edges
    }
}

impl Session {
    /// Deals with one; returns how many bytes behind its header it used.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "those of `request`, taken apart")]
    pub(super) fn unaligned(
        &mut self,
        to: ReplyTo,
        range: Range,
        act: Act,
        behind: &[u8],
        out: &mut Outbox,
        pool: &mut Pool,
        now: Nanos,
    ) -> usize {
        let block = self.geometry.device_block;
        let blocks = Blocks::of(range, block);
        let Blocks { touched, kept, whole } = blocks;
        match act {
            Act::Read { .. } | Act::Cache | Act::BlockStatus { .. } if self.deaf => {}
            Act::Read { whole } => {
                let work = Work::Cut { whole, front: kept.lead, length: range.length as u32 };
                self.read(to, touched, work, pool, now);
            }
            Act::Write { fua } => {
                let payload = Payload::of_patch(to, range, fua, kept);
                return self.receive(payload, behind, pool, now);
            }
            Act::Trim { fua } if whole.length > 0 => {
                let (op, flags) = (Op::Discard, Flags::SYNC);
                let wanted = Wanted { op, flags, range: whole, fua, fast: false, edged: false };
                self.begin_effect(to, wanted);
                self.submit_pieces(now);
            }
            Act::Trim { .. } => {
                let replies = self.replies;
                out.put(pool, |out| replies.done(to, out));
            }
            Act::Cache => {
                let (op, flags) = (Op::Prefetch, Flags::NONE);
                let (fua, fast, edged) = (false, false, false);
                self.begin_effect(to, Wanted { op, flags, range: touched, fua, fast, edged });
                self.submit_pieces(now);
            }
            Act::WriteZeroes { fast: true, .. } if whole.length == 0 => {
                let (replies, error) = (self.replies, NbdError::NotSup);
                out.put(pool, |out| replies.error(to, error, "no whole block to be zeroed", out));
            }
            Act::WriteZeroes { fua, no_hole, fast } => {
                let flags = zeroing_flags(no_hole, fast);
                let op = Op::WriteZeroes;
                // The whole blocks come first: what cannot be done fast has changed nothing then.
                let wanted = Wanted { op, flags, range: whole, fua, fast, edged: true };
                let slot = self.begin_effect(to, wanted);
                let left = blocks.edges(block);
                self.forget_edges(slot);
                self.edges.push(Edges { slot, flags: Flags::SYNC, left });
                self.submit_pieces(now);
            }
            Act::BlockStatus { one } => {
                self.question(to, touched, one, Cut { front: kept.lead, back: kept.trail });
            }
        }
        0
    }

    /// Memory that one takes, bytes.
    #[cold]
    pub(super) fn unaligned_needs(&self, range: Range, act: Act) -> usize {
        let touched = Blocks::of(range, self.geometry.device_block).touched;
        match act {
            Act::Write { .. } => room(touched.length as usize),
            Act::Read { .. } if !self.deaf => room(touched.length as usize),
            Act::BlockStatus { one } if !self.deaf => survey::price(touched, one) as usize,
            _ => 0,
        }
    }

    /// Submits a WRITE whose payload is whole.
    #[cold]
    pub(super) fn submit_patch_of(&mut self, payload: Payload, now: Nanos) {
        let Payload { to, range, fua, kept, .. } = payload;
        let data = payload.into_data();
        let bytes = self.lend(&data);
        let durable = if fua { Flags::FUA } else { Flags::NONE };
        let slot = self.slots.add(Slot { to, bytes, work: Work::Plain });
        let sector = (range.offset - u64::from(kept.lead)) / SECTOR;
        let sectors = (data.len() as u64 / SECTOR) as u32;
        let bio = Bio::new(Op::Write, sector, sectors, data);
        let bio = bio.with(Flags::SYNC | Flags::IDLE | durable).cookie(u64::from(slot));
        self.submit_patch(bio, kept, now);
    }

    fn submit_patch(&mut self, mut bio: Bio, kept: Kept, now: Nanos) {
        self.dress(&mut bio);
        if !self.held.is_empty() {
            self.held.push_back(Held { bio, kept });
            return;
        }
        if let Err(refused) = self.seat.submitter.submit_patch(bio, kept, now) {
            self.hold_back(refused.into_bio(), kept);
        }
    }

    /// Submits the next block of which an effect has a part, if its group's caps accept it.
    #[cold]
    pub(super) fn submit_edge(&mut self, slot: u32, now: Nanos) -> Result<(), Nanos> {
        let place = self.edges.iter().position(|edges| edges.slot == slot);
        let place = place.expect("an effect with edges");
        let edges = &mut self.edges[place];
        let &(sector, sectors, kept) = edges.left.last().expect("an edge that is left");
        let bytes = u64::from(sectors) * SECTOR;
        if !self.stopping {
            self.member.admit(true, bytes, now)?;
        }
        let flags = edges.flags;
        edges.left.pop();
        if edges.left.is_empty() {
            self.edges.swap_remove(place);
            if let Work::Effect(effect) = &mut self.slots.at(slot).work {
                effect.edged = false;
            }
        }
        self.pieces += 1;
        (self.pieces_first, self.yields) = (false, true);
        let zeros = Data::One(Buf::zeroed(bytes as usize));
        let bio = Bio::new(Op::Write, sector, sectors, zeros).with(flags);
        self.submit_patch(bio.cookie(u64::from(slot)), kept, now);
        Ok(())
    }

    /// The slot was another effect's, which may have failed before its edges were submitted.
    fn forget_edges(&mut self, slot: u32) {
        self.edges.retain(|edges| edges.slot != slot);
    }
}

/// The extents of `length` bytes behind the first `front`.
pub(super) fn cut_extents(
    extents: &[Extent],
    mut front: u64,
    mut length: u64,
) -> impl Iterator<Item = Extent> + '_ {
    extents.iter().map(move |extent| {
        let skipped = front.min(extent.length);
        front -= skipped;
        let left = (extent.length - skipped).min(length);
        length -= left;
        Extent { length: left, flags: extent.flags }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_taken_apart_into_whole_blocks_and_edges() {
        let blocks = |offset, length| Blocks::of(Range { offset, length }, 512);
        let range = |offset, length| Range { offset, length };
        let kept = |lead, trail| Kept { lead, trail };
        let one = blocks(700, 10);
        assert_eq!((one.touched, one.kept), (range(512, 512), kept(188, 314)));
        assert_eq!(one.whole.length, 0);
        assert_eq!(one.edges(512), [(1, 1, kept(188, 314))]);
        let two = blocks(700, 400);
        assert_eq!(two.touched, range(512, 1024));
        assert_eq!((two.whole.length, two.edges(512)), (0, vec![(1, 2, kept(188, 436))]));
        let many = blocks(700, 5000);
        assert_eq!(many.whole, range(1024, 4608));
        let edges = [(11, 1, kept(0, 444)), (1, 1, kept(188, 0))];
        assert_eq!(many.edges(512), edges);
        let head = blocks(700, 1024 - 700 + 512);
        assert_eq!((head.whole, head.edges(512)), (range(1024, 512), vec![(1, 1, kept(188, 0))]));
        let tail = blocks(512, 600);
        assert_eq!((tail.whole, tail.edges(512)), (range(512, 512), vec![(2, 1, kept(0, 424))]));
    }

    #[test]
    fn extents_are_cut_to_what_was_asked_about() {
        use weir_proto_nbd::wire::StatusFlags;
        let extent = |length, flags| Extent { length, flags };
        let (data, hole) = (StatusFlags::EMPTY, StatusFlags::HOLE);
        let found = [extent(512, data), extent(1024, hole), extent(512, data)];
        let cut = |front, length| cut_extents(&found, front, length).collect::<Vec<_>>();
        assert_eq!(cut(0, 2048), found);
        assert_eq!(cut(500, 13), [extent(12, data), extent(1, hole), extent(0, data)]);
        assert_eq!(cut(512, 1100), [extent(0, data), extent(1024, hole), extent(76, data)]);
    }
}
