//! Which queues have their next request close to a sector. Source: docs/behaviour/bfq.md, section
//! 12.2.
//!
//! A grid: a cell is as wide as what is close to a sector, so it lies in two cells at most, and a
//! queue enters and leaves a cell in a few steps however many are busy. Cells share chains by their
//! hash.

use super::entity::QueueId;

/// Positions no farther apart are close, sectors.
pub(super) const CLOSE: u64 = 8192;
/// Width of a cell: twice that, and a power of two.
const CELL_SHIFT: u32 = CLOSE.trailing_zeros() + 1;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// Queues by the sector of their next request.
#[derive(Clone, Debug)]
pub(super) struct Positions {
    /// The first queue of each chain: at least as many chains as queues.
    chains: Vec<u32>,
    /// Bits of a hash that are no part of a chain's number.
    shift: u32,
    /// At the index of the queue.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The sector; none while it is in no chain.
    at: Option<u64>,
    before: u32,
    after: u32,
}

impl Default for Positions {
    fn default() -> Positions {
        Positions::of_chains(64)
    }
}

impl Positions {
    fn of_chains(count: usize) -> Positions {
        let shift = u64::BITS - count.trailing_zeros();
        Positions { chains: vec![NONE; count], shift, places: Vec::new() }
    }

    #[inline(always)]
    fn chain(&self, cell: u64) -> usize {
        (cell.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// The next request of queue `id` is at `sector`, or it has none that counts.
    #[inline(always)]
    pub(super) fn place(&mut self, id: QueueId, sector: Option<u64>) {
        if id.index() >= self.places.len() {
            self.make_room(id.index() + 1);
        }
        let old = self.places[id.index()].at;
        if old == sector {
            return;
        }
        if let Some(old) = old {
            self.unlink(id, old);
        }
        if let Some(new) = sector {
            self.link(id, new);
        }
        self.places[id.index()].at = sector;
    }

    #[inline(always)]
    fn link(&mut self, id: QueueId, sector: u64) {
        let chain = self.chain(sector >> CELL_SHIFT);
        let after = std::mem::replace(&mut self.chains[chain], id.0);
        let place = &mut self.places[id.index()];
        (place.before, place.after) = (NONE, after);
        if let Some(after) = self.places.get_mut(after as usize) {
            after.before = id.0;
        }
    }

    #[inline(always)]
    fn unlink(&mut self, id: QueueId, sector: u64) {
        let Place { before, after, .. } = self.places[id.index()];
        match self.places.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => {
                let chain = self.chain(sector >> CELL_SHIFT);
                self.chains[chain] = after;
            }
        }
        if let Some(after) = self.places.get_mut(after as usize) {
            after.before = before;
        }
    }

    #[cold]
    fn make_room(&mut self, queues: usize) {
        self.places.resize(queues, Place { at: None, before: NONE, after: NONE });
        if queues <= self.chains.len() {
            return;
        }
        let places = std::mem::take(&mut self.places);
        *self = Positions { places, ..Positions::of_chains(2 * queues.next_power_of_two()) };
        for id in (0..queues as u32).map(QueueId) {
            if let Some(sector) = self.places[id.index()].at {
                self.link(id, sector);
            }
        }
    }

    /// The queues that are close to `sector`, and where they are.
    #[inline(always)]
    pub(super) fn close_to(&self, sector: u64) -> impl Iterator<Item = (u64, QueueId)> {
        let first = sector.saturating_sub(CLOSE) >> CELL_SHIFT;
        let last = sector.saturating_add(CLOSE) >> CELL_SHIFT;
        (first..=last).flat_map(move |cell| {
            let mut at = self.chains[self.chain(cell)];
            std::iter::from_fn(move || {
                while let Some(place) = self.places.get(at as usize) {
                    let id = QueueId(std::mem::replace(&mut at, place.after));
                    let there = place.at.filter(|place| {
                        place >> CELL_SHIFT == cell && place.abs_diff(sector) <= CLOSE
                    });
                    if let Some(there) = there {
                        return Some((there, id));
                    }
                }
                None
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    #[test]
    fn those_within_the_distance_are_found_wherever_they_went() {
        let seed = 3;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mut positions = Positions::default();
        let mut model = vec![None; 500];
        for step in 0..20_000_u64 {
            // More and more queues; near each other, far apart, at the ends of the range, and at
            // distances that share chains.
            let id = prng.below(1 + step / 40) as u32;
            let sector = match prng.below(5) {
                0 => None,
                1 => Some(prng.below(100_000)),
                2 => Some(u64::MAX - prng.below(100_000)),
                3 => Some(prng.below(1 << 40)),
                _ => Some(prng.below(64) << 34),
            };
            positions.place(QueueId(id), sector);
            model[id as usize] = sector;
            let around = match prng.below(3) {
                0 => prng.below(120_000),
                1 => u64::MAX - prng.below(120_000),
                _ => (prng.below(64) << 34) + prng.below(2 * CLOSE),
            };
            let mut found: Vec<_> = positions.close_to(around).collect();
            found.sort_unstable_by_key(|(_, id)| *id);
            let close = |at: &u64| at.abs_diff(around) <= CLOSE;
            let due = (0..).zip(&model).filter_map(|(id, at)| Some((at.filter(close)?, id)));
            assert!(found.into_iter().eq(due.map(|(at, id)| (at, QueueId(id)))), "{around}");
        }
    }

    #[test]
    fn a_queue_is_close_up_to_the_distance_itself_on_either_side() {
        let mut positions = Positions::default();
        positions.place(QueueId(7), Some(100_000));
        for (sector, close) in
            [(91_807, false), (91_808, true), (100_000, true), (108_192, true), (108_193, false)]
        {
            assert_eq!(positions.close_to(sector).count(), usize::from(close), "{sector}");
        }
    }
}
