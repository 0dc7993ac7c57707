//! Which parts of a read have come.
//!
//! A server may send the chunks of a read in any order, may not overlap them, and may not call
//! the read done while a byte is missing. Holding it to that keeps stale bytes of the buffer from
//! being taken for data. Servers send chunks in order, so a few separate places are enough.

/// Separate places of one read that are kept account of at a time. Neighbours grow together, so
/// chunks in order take one place, however many there are.
pub(super) const PLACES: usize = 8;

/// The parts of a read that have come, as sorted, separate, not touching ranges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// First byte and the byte behind the last, counted from the start of the read.
    places: [(u32, u32); PLACES],
    used: u8,
}

/// Why a part cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Overlap,
    Scattered,
}

impl Coverage {
    /// Bytes that have come.
    pub(super) fn bytes(&self) -> u64 {
        self.used().iter().map(|&(start, end)| u64::from(end - start)).sum()
    }

    /// Whether nothing has come.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn used(&self) -> &[(u32, u32)] {
        &self.places[..usize::from(self.used)]
    }

    /// Adds the part from `start` to before `end`, which are in order.
    pub(super) fn add(&mut self, start: u32, end: u32) -> Result<(), Refused> {
        let at = self.used().partition_point(|&(_, e)| e <= start);
        if self.used().get(at).is_some_and(|&(s, _)| s < end) {
            return Err(Refused::Overlap);
        }
        let joins_left = at > 0 && self.places[at - 1].1 == start;
        let joins_right = self.used().get(at).is_some_and(|&(s, _)| s == end);
        let used = usize::from(self.used);
        match (joins_left, joins_right) {
            (true, true) => {
                self.places[at - 1].1 = self.places[at].1;
                self.places.copy_within(at + 1..used, at);
                self.used -= 1;
            }
            (true, false) => self.places[at - 1].1 = end,
            (false, true) => self.places[at].0 = start,
            (false, false) if used == PLACES => return Err(Refused::Scattered),
            (false, false) => {
                self.places.copy_within(at..used, at + 1);
                self.places[at] = (start, end);
                self.used += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Coverage, PLACES, Refused};

    #[test]
    fn chunks_in_any_order_grow_together_and_an_overlap_is_refused() {
        let mut coverage = Coverage::default();
        for (start, end) in [(10, 20), (30, 40), (0, 10), (20, 30)] {
            coverage.add(start, end).expect("a part that is new");
        }
        assert_eq!((coverage.bytes(), coverage.used), (40, 1));
        for (start, end) in [(0, 1), (39, 50), (0, 100), (15, 25)] {
            assert_eq!(coverage.add(start, end), Err(Refused::Overlap), "{start}..{end}");
        }
        assert_eq!(coverage.bytes(), 40);
    }

    #[test]
    fn one_place_too_many_is_refused_and_those_that_touch_still_fit() {
        let mut coverage = Coverage::default();
        for at in 0..PLACES as u32 {
            coverage.add(at * 10, at * 10 + 5).expect("a free place");
        }
        assert_eq!(coverage.add(1000, 1001), Err(Refused::Scattered));
        coverage.add(5, 10).expect("closes a gap");
        coverage.add(1000, 1001).expect("the place that became free");
    }
}
