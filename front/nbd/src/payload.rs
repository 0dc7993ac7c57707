//! The payload of one WRITE on its way in.

use weir_bio::{Buf, Data};
use weir_proto_nbd::server::Range;
use weir_proto_nbd::wire::ReplyTo;

use crate::pool::{PIECE, Pool, room};

/// Memory is taken piece by piece, as bytes arrive.
pub(crate) struct Payload {
    pub(crate) to: ReplyTo,
    pub(crate) range: Range,
    pub(crate) fua: bool,
    full: Vec<Buf>,
    /// The piece being filled, and how far it is.
    piece: Option<Buf>,
    filled: usize,
    missing: usize,
}

impl Payload {
    #[inline]
    pub(crate) fn new(to: ReplyTo, range: Range, fua: bool) -> Payload {
        // The check has seen that it is at most the maximum payload.
        let missing = range.length as usize;
        Payload { to, range, fua, full: Vec::new(), piece: None, filled: 0, missing }
    }

    /// Bytes that have not arrived.
    #[inline]
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// Memory that it takes when it is whole.
    #[inline]
    pub(crate) fn memory(&self) -> usize {
        room(self.range.length as usize)
    }

    /// Where the next bytes belong: at least one, at most those missing. None must be missing.
    pub(crate) fn room(&mut self, pool: &mut Pool) -> &mut [u8] {
        let len = self.missing.min(PIECE);
        let piece = self.piece.get_or_insert_with(|| pool.buf(len));
        &mut piece[self.filled..]
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
        if bytes.len() == self.missing && self.piece.is_none() && bytes.len() <= PIECE {
            // All of it at once, as small writes come: no list is made.
            let mut piece = pool.buf(bytes.len());
            piece.copy_from_slice(bytes);
            self.missing = 0;
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
