//! Memory for a long read, taken piece by piece over several rounds: new memory has to be cleared,
//! and the other clients of the reactor wait meanwhile.

use weir_bio::{Buf, Data, Flags, Nanos, Op};
use weir_proto_nbd::server::Range;
use weir_proto_nbd::wire::ReplyTo;

use super::Session;
use crate::pool::{PIECE, Pool, room};
use crate::slots::{Slot, Work};

/// A read that waits for its memory. Nothing behind it is taken in meanwhile.
pub(super) struct Gathering {
    to: ReplyTo,
    range: Range,
    work: Work,
    pieces: Vec<Buf>,
    /// Bytes for which there is no memory yet.
    missing: usize,
}

impl Session {
    /// Submits a read of whole sectors, now or as soon as there is memory for all of it.
    #[inline]
    pub(super) fn read(
        &mut self,
        to: ReplyTo,
        range: Range,
        work: Work,
        pool: &mut Pool,
        now: Nanos,
    ) {
        let length = range.length as usize;
        let bytes = room(length);
        self.lent += bytes;
        if length > PIECE {
            let pieces = Vec::with_capacity(length.div_ceil(PIECE));
            self.gathering = Some(Gathering { to, range, work, pieces, missing: length });
            self.gather(pool, now);
            return;
        }
        let slot = Slot { to, bytes: bytes as u32, work };
        self.submit_range(Op::Read, Flags::NONE, range, Data::One(pool.buf(length)), slot, now);
    }

    /// Takes memory for the read that waits for it, as much as there is in this round, and submits
    /// the read when that is all; true when it did.
    #[inline]
    pub(crate) fn gather(&mut self, pool: &mut Pool, now: Nanos) -> bool {
        self.gathering.is_some() && self.gather_more(pool, now)
    }

    #[cold]
    fn gather_more(&mut self, pool: &mut Pool, now: Nanos) -> bool {
        let Some(gathering) = &mut self.gathering else { return false };
        while gathering.missing > 0 {
            let len = gathering.missing.min(PIECE);
            if !pool.serves(len) {
                return false;
            }
            gathering.pieces.push(pool.buf(len));
            gathering.missing -= len;
        }
        let Some(gathered) = self.gathering.take() else { return false };
        let Gathering { to, range, work, pieces, .. } = gathered;
        let slot = Slot { to, bytes: room(range.length as usize) as u32, work };
        self.submit_range(Op::Read, Flags::NONE, range, Data::Many(pieces.into()), slot, now);
        self.flush(now);
        true
    }

    /// Forgets the read that waits for memory: its client is gone.
    pub(super) fn drop_gathering(&mut self, pool: &mut Pool) {
        if let Some(Gathering { range, pieces, .. }) = self.gathering.take() {
            self.lent -= room(range.length as usize);
            pieces.into_iter().for_each(|piece| pool.give(piece));
        }
    }
}
