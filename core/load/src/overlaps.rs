//! I/Os that are kept from being under way with others on the same bytes.

use std::collections::BTreeMap;

use crate::pairs::Piece;

/// What is under way, no two pieces of it on one byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlaps {
    /// By first byte: the byte behind the last.
    busy: BTreeMap<u64, u64>,
    /// By token: the first byte.
    going: Vec<u64>,
    free: Vec<u16>,
}

impl Overlaps {
    /// Notes a piece as under way; `None` if another is on one of its bytes.
    pub(crate) fn begin(&mut self, piece: Piece) -> Option<u16> {
        let Piece { offset, bytes } = piece;
        let before = self.busy.range(..offset + bytes).next_back();
        if before.is_some_and(|(_, end)| *end > offset) {
            return None;
        }
        self.busy.insert(offset, offset + bytes);
        let token = self.free.pop().unwrap_or_else(|| {
            self.going.push(0);
            (self.going.len() - 1) as u16
        });
        self.going[usize::from(token)] = offset;
        Some(token)
    }

    pub(crate) fn ended(&mut self, token: u16) {
        self.busy.remove(&self.going[usize::from(token)]);
        self.free.push(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_on_one_byte_are_one_after_the_other() {
        let piece = |offset, bytes| Piece { offset, bytes };
        let mut overlaps = Overlaps::default();
        let first = overlaps.begin(piece(4, 4)).expect("it is the first");
        for (offset, bytes) in [(4, 4), (0, 5), (7, 1), (6, 9), (0, 20)] {
            assert_eq!(overlaps.begin(piece(offset, bytes)), None, "{offset}, {bytes}");
        }
        let beside = [piece(0, 4), piece(8, 4)].map(|piece| overlaps.begin(piece));
        assert!(beside.iter().all(Option::is_some), "{beside:?}");
        overlaps.ended(first);
        assert!(overlaps.begin(piece(5, 3)).is_some());
    }
}
