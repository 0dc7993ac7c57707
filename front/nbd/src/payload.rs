//! The payload of one WRITE on its way in.

use weir_bio::{Buf, Data};
use weir_proto_nbd::server::Range;
use weir_proto_nbd::wire::ReplyTo;
use weir_queue::Kept;

use crate::pool::{PIECE, Pool, room};

/// The payload of a WRITE on its way in. Memory is taken piece by piece, as bytes arrive.
pub(crate) struct Payload {
    pub(crate) to: ReplyTo,
    pub(crate) range: Range,
    pub(crate) fua: bool,
    /// Bytes of the first and the last block that are not written: there is memory for them.
    pub(crate) kept: Kept,
    full: Vec<Buf>,
    /// The piece being filled, and how far it is.
    piece: Option<Buf>,
    filled: usize,
    missing: usize,
    /// Bytes for which there is no memory yet.
    unplaced: usize,
}

impl Payload {
    #[inline]
    pub(crate) fn new(to: ReplyTo, range: Range, fua: bool) -> Payload {
        // The check has seen that it is at most the maximum payload.
        let missing = range.length as usize;
        Payload {
            to,
            range,
            fua,
            kept: Kept::default(),
            full: Vec::new(),
            piece: None,
            filled: 0,
            missing,
            unplaced: missing,
        }
    }

    /// The payload of a write of which a few bytes around it are kept. Pieces are whole blocks, so
    /// the last of them has room for what is kept behind it.
    #[cold]
    pub(crate) fn of_patch(to: ReplyTo, range: Range, fua: bool, kept: Kept) -> Payload {
        let plain = Payload::new(to, range, fua);
        let unplaced = plain.missing + (kept.lead + kept.trail) as usize;
        Payload { kept, filled: kept.lead as usize, unplaced, ..plain }
    }

    /// Bytes that have not arrived.
    #[inline]
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Bytes whose memory has to be taken before the next byte can be received.
    #[inline]
    pub(crate) fn unplaced(&self) -> usize {
        if self.piece.is_some() { 0 } else { self.unplaced }
    }

    /// Memory that it takes when it is whole.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        room(self.range.length as usize + (self.kept.lead + self.kept.trail) as usize)
    }

    /// Where the next bytes belong: at least one, at most those missing. None must be missing.
    pub(crate) fn room(&mut self, pool: &mut Pool) -> &mut [u8] {
        let piece = self.piece.get_or_insert_with(|| {
            let len = self.unplaced.min(PIECE);
            self.unplaced -= len;
            pool.buf(len)
        });
        let end = piece.len().min(self.filled + self.missing);
        &mut piece[self.filled..end]
    }

    /// Says that so many bytes of the room are filled.
    pub(crate) fn fill(&mut self, count: usize) {
        self.filled += count;
        self.missing -= count;
        if self.piece.as_ref().is_some_and(|piece| piece.len() == self.filled) {
            self.full.extend(self.piece.take());
            self.filled = 0;
        }
    }

    /// Copies bytes that have arrived elsewhere, at most those missing.
    #[inline]
    pub(crate) fn copy_in(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        if bytes.len() == self.unplaced && self.piece.is_none() && bytes.len() <= PIECE {
            // All of it at once, as small writes come: no list is made.
            let mut piece = pool.buf(bytes.len());
            piece.copy_from_slice(bytes);
            (self.missing, self.unplaced) = (0, 0);
            self.piece = Some(piece);
            return;
        }
        while !bytes.is_empty() {
            let room = self.room(pool);
            let count = room.len().min(bytes.len());
            let (now, rest) = bytes.split_at(count);
            room[..count].copy_from_slice(now);
            bytes = rest;
            self.fill(count);
        }
    }

    /// The whole payload.
    #[inline]
    pub(crate) fn into_data(mut self) -> Data {
        debug_assert_eq!(self.missing, 0, "the payload is not whole");
        match self.piece.take() {
            Some(piece) if self.full.is_empty() => Data::One(piece),
            Some(piece) => {
                self.full.push(piece);
                Data::Many(self.full.into())
            }
            None if self.full.len() == 1 => Data::One(self.full.remove(0)),
            None => Data::Many(self.full.into()),
        }
    }

    /// Gives back what has arrived: the client is gone.
    pub(crate) fn discard(self, pool: &mut Pool) {
        self.full.into_iter().chain(self.piece).for_each(|buf| pool.give(buf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(length: usize) -> Payload {
        let range = Range { offset: 0, length: length as u64 };
        Payload::new(ReplyTo { cookie: 1, offset: 0 }, range, false)
    }

    #[test]
    fn bytes_arrive_in_any_portions_and_lie_in_order() {
        let mut pool = Pool::default();
        let bytes: Vec<u8> = (0..2 * PIECE + 5 * 512).map(|i| (i % 253) as u8).collect();
        for portion in [511, 4096, PIECE, PIECE + 1, bytes.len()] {
            let mut payload = payload(bytes.len());
            for (index, part) in bytes.chunks(portion).enumerate() {
                if index % 2 == 0 {
                    payload.copy_in(part, &mut pool);
                    continue;
                }
                let mut part = part;
                while !part.is_empty() {
                    let room = payload.room(&mut pool);
                    let count = room.len().min(part.len()).min(1000);
                    room[..count].copy_from_slice(&part[..count]);
                    payload.fill(count);
                    part = &part[count..];
                }
            }
            assert_eq!(payload.missing(), 0);
            let data = payload.into_data();
            let mut copy = vec![0; bytes.len()];
            data.copy_to(&mut copy);
            assert!(copy == bytes, "portions of {portion}");
            pool.give_data(data);
        }
    }

    #[test]
    fn the_payload_of_a_patch_lies_between_what_is_kept() {
        let mut pool = Pool::default();
        for (offset, length) in
            [(1, 1), (511, 2), (700, 5000), (513, PIECE), (3, PIECE - 3), (7, 2 * PIECE + 100)]
        {
            let lead = (offset % 512) as u32;
            let trail = ((512 - (offset + length) % 512) % 512) as u32;
            let bytes: Vec<u8> = (0..length).map(|i| (i % 253) as u8).collect();
            for portion in [1000, PIECE, length] {
                let range = Range { offset: offset as u64, length: length as u64 };
                let to = ReplyTo { cookie: 1, offset: 0 };
                let mut payload = Payload::of_patch(to, range, false, Kept { lead, trail });
                for (index, mut part) in bytes.chunks(portion).enumerate() {
                    if index % 2 == 1 {
                        payload.copy_in(part, &mut pool);
                        continue;
                    }
                    while !part.is_empty() {
                        let missing = payload.missing();
                        let room = payload.room(&mut pool);
                        assert!((1..=missing).contains(&room.len()));
                        let count = room.len().min(part.len());
                        room[..count].copy_from_slice(&part[..count]);
                        payload.fill(count);
                        part = &part[count..];
                    }
                }
                assert_eq!(payload.missing(), 0);
                let data = payload.into_data();
                let mut copy = vec![0; data.len()];
                data.copy_to(&mut copy);
                assert_eq!(copy.len(), lead as usize + length + trail as usize);
                assert!(copy[lead as usize..][..length] == bytes, "{length} bytes at {offset}");
                pool.give_data(data);
            }
        }
    }

    #[test]
    fn no_memory_is_taken_before_bytes_arrive() {
        let mut pool = Pool::default();
        let mut payload = payload(32 << 20);
        payload.copy_in(&[], &mut pool);
        assert!(payload.piece.is_none());
        payload.copy_in(&[1; 100], &mut pool);
        assert_eq!(payload.piece.as_ref().map(|piece| piece.capacity()), Some(PIECE));
        assert_eq!(payload.missing(), (32 << 20) - 100);
    }
}
