//! A block replies are put side by side in, which remembers where it holds zeros.
//!
//! Reads of what was never written are answered with zeros, and a block that is used again for
//! replies of the same shape holds them already: then only the headers are written.

/// A block is full from so many bytes on. At 4 KiB, copying into a block is cheaper for the system
/// than an iovec for each piece (docs/behaviour/nbd.md, section 5).
pub(crate) const FULL: usize = 128 << 10;

/// Bytes of a block: [`FULL`], and room for the reply that crosses it.
pub(crate) const ROOM: usize = FULL + (20 << 10);

/// Bytes `start..end` of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    end: usize,
}

/// One block of replies.
pub(crate) struct Arena {
    bytes: Vec<u8>,
    filled: usize,
    /// Zeros behind `filled`, ascending, from `next` on: left from the last use.
    known: Vec<Run>,
    next: usize,
    /// Zeros before `filled`.
    made: Vec<Run>,
}

impl Arena {
    /// An empty block.
    pub(crate) fn new() -> Arena {
        let known = vec![Run { start: 0, end: ROOM }];
        Arena { bytes: vec![0; ROOM], filled: 0, known, next: 0, made: Vec::new() }
    }

    /// The bytes in the arena.
    #[inline]
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Whether nothing more is to be put in.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.filled >= FULL
    }

    /// Whether so many bytes fit.
    #[inline]
    pub(crate) fn fits(&self, len: usize) -> bool {
        len <= ROOM - self.filled
    }

    /// Appends bytes, which have to [fit](Arena::fits).
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        self.bytes[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
    }

    /// Appends zeros, which have to [fit](Arena::fits), writing them only where there is something
    /// else.
    #[inline]
    pub(crate) fn put_zeros(&mut self, len: usize) {
        let run = Run { start: self.filled, end: self.filled + len };
        while self.known.get(self.next).is_some_and(|known| known.end < run.end) {
            self.next += 1;
        }
        if self.known.get(self.next).is_none_or(|known| run.start < known.start) {
            self.bytes[run.start..run.end].fill(0);
        }
        self.made.push(run);
        self.filled = run.end;
    }

    /// Empties it.
    pub(crate) fn clear(&mut self) {
        // Zeros behind what was filled this time are still there.
        let filled = self.filled;
        let rest = self.known[self.next.min(self.known.len())..].iter();
        let rest = rest.filter(|run| run.end > filled);
        self.made.extend(rest.map(|run| Run { start: run.start.max(filled), end: run.end }));
        std::mem::swap(&mut self.known, &mut self.made);
        self.made.clear();
        (self.filled, self.next) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    #[test]
    fn a_block_used_again_holds_exactly_what_was_put_in() {
        let seed = 4711;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut arena = Arena::new();
        for round in 0..3000 {
            let mut expected = Vec::new();
            // Every third round has the shape of most replies, so that zeros are found again.
            while !arena.is_full() && !prng.percent(3) {
                let header = [round as u8 | 1; 28];
                arena.put(&header);
                expected.extend_from_slice(&header);
                let len = if round % 3 == 0 { 4096 } else { 512 + prng.below(8000) as usize };
                if round % 3 != 0 && prng.percent(50) {
                    arena.put(&vec![0xAB; len]);
                    expected.extend(std::iter::repeat_n(0xAB, len));
                } else {
                    arena.put_zeros(len);
                    expected.extend(std::iter::repeat_n(0, len));
                }
            }
            assert!(arena.filled() == expected, "round {round}");
            arena.clear();
        }
    }

    #[test]
    fn zeros_in_the_same_places_are_not_written_again() {
        let mut arena = Arena::new();
        for round in 0..3 {
            for _ in 0..4 {
                arena.put(&[1; 16]);
                arena.put_zeros(4096);
            }
            // A mark that only a second writing would remove.
            assert_eq!(arena.bytes[100], if round == 1 { 7 } else { 0 });
            arena.bytes[100] = if round == 0 { 7 } else { 0 };
            arena.clear();
        }
    }
}
