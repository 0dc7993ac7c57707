//! Trim, zeroes and prefetch: cut into pieces that take turns, each paid for as it is submitted.

use weir_bio::{Bio, Data, Flags, Nanos, Op, SECTOR};
use weir_proto_nbd::server::{Checked, Range};
use weir_proto_nbd::wire::ReplyTo;
use weir_queue::{CAPS_AGAIN_NS, price};

use super::{CAPPED_MAX, End, MARK_MAX, MOVE_MAX, PIECES_MAX, Session, YIELD_NS};
use crate::slots::{Effect, Slot, Work};

/// An effect as it is asked for.
pub(super) struct Wanted {
    pub(super) op: Op,
    pub(super) flags: Flags,
    /// Whole blocks.
    pub(super) range: Range,
    pub(super) fua: bool,
    pub(super) fast: bool,
    /// Bytes in blocks beside it follow.
    pub(super) edged: bool,
}

impl Session {
    /// Trim, zeroes and prefetch: what has a range and no data.
    pub(super) fn effect(&mut self, to: ReplyTo, checked: Checked, now: Nanos) {
        let (op, range, flags, fua, fast) = match checked {
            Checked::Trim { range, fua } => (Op::Discard, range, Flags::SYNC, fua, false),
            Checked::Cache { range } => (Op::Prefetch, range, Flags::NONE, false, false),
            Checked::WriteZeroes { range, fua, no_hole, fast } => {
                (Op::WriteZeroes, range, zeroing_flags(no_hole, fast), fua, fast)
            }
            other => unreachable!("{other:?} is not an effect"),
        };
        self.begin_effect(to, Wanted { op, flags, range, fua, fast, edged: false });
        self.submit_pieces(now);
    }

    /// Adds an effect to those that wait for their turn; its range is whole blocks.
    pub(super) fn begin_effect(&mut self, to: ReplyTo, wanted: Wanted) -> u32 {
        let Wanted { op, flags, range, fua, fast, edged } = wanted;
        let (sector, left) = (range.offset / SECTOR, range.length / SECTOR);
        let piece = self.longest_piece(op, flags);
        let effect = Effect { op, piece, flags, sector, left, fua, fast, edged };
        let slot = self.slots.add(Slot { to, bytes: 0, work: Work::Effect(effect) });
        self.waiting.push_back(slot);
        slot
    }

    /// The longest piece of an effect, sectors: what the device takes as one request, and less if
    /// it costs as many bytes as it covers.
    fn longest_piece(&self, op: Op, flags: Flags) -> u32 {
        let most = match op {
            Op::Discard => self.limits.max_discard_sectors(),
            Op::WriteZeroes => self.limits.max_write_zeroes_sectors,
            _ => MARK_MAX,
        };
        let moving = if self.member.is_capped() { CAPPED_MAX } else { MOVE_MAX };
        let moves = price(op, flags, moving, &self.limits)
            .is_some_and(|(_, bytes)| bytes == u64::from(moving) * SECTOR);
        // Neither is a piece empty where the device takes none: then it says so.
        most.min(if moves { moving } else { MARK_MAX }).max(self.limits.block_sectors())
    }

    /// Submits pieces of the effects that wait, in turn, as far as the caps of its group let them.
    pub(super) fn submit_pieces(&mut self, now: Nanos) {
        // A cap may have room for one of the two only.
        let requests_first = |it: &Session| it.throttled_until.is_some() && !it.pieces_first;
        while self.pieces < PIECES_MAX
            && self.pieces_until.is_none()
            && !requests_first(self)
            && let Some(slot) = self.waiting.pop_front()
        {
            let Err(until) = self.submit_piece(slot, now) else { continue };
            if self.deaf {
                // The client has left and waits for no answer, so the connection does not wait for
                // the cap.
                self.slots.remove(slot);
                self.end = self.end.take().or(Some(End::HeldBack));
                continue;
            }
            self.waiting.push_front(slot);
            let until = if self.yields { until + YIELD_NS } else { until };
            self.yields &= until > now + CAPS_AGAIN_NS;
            self.pieces_until = Some(until.min(now + CAPS_AGAIN_NS));
        }
    }

    /// Goes on with the effects that a cap held back, if it is to be asked again.
    #[inline]
    pub(crate) fn resume_pieces(&mut self, now: Nanos) {
        if !self.waiting.is_empty() {
            self.submit_pieces(now);
            self.flush(now);
        }
    }

    /// Submits the next piece of an effect, if its group's caps accept it.
    fn submit_piece(&mut self, slot: u32, now: Nanos) -> Result<(), Nanos> {
        let Work::Effect(effect) = &mut self.slots.at(slot).work else {
            unreachable!("slot {slot} is no effect")
        };
        if effect.left == 0 {
            return self.submit_edge(slot, now);
        }
        let sectors = effect.left.min(u64::from(effect.piece)) as u32;
        let price = price(effect.op, effect.flags, sectors, &self.limits);
        if let Some((write, bytes)) = price.filter(|_| !self.stopping) {
            self.member.admit(write, bytes, now)?;
        }
        let mut bio = Bio::new(effect.op, effect.sector, sectors, Data::None);
        bio.flags = effect.flags;
        effect.sector += u64::from(sectors);
        effect.left -= u64::from(sectors);
        self.pieces += 1;
        (self.pieces_first, self.yields) = (false, true);
        self.submit(bio.cookie(u64::from(slot)), now);
        Ok(())
    }
}

/// The flags of a WRITE_ZEROES.
pub(super) fn zeroing_flags(no_hole: bool, fast: bool) -> Flags {
    let mut flags = Flags::SYNC;
    if no_hole {
        flags |= Flags::NOUNMAP;
    }
    if fast {
        flags |= Flags::NOFALLBACK;
    }
    flags
}
