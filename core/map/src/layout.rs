//! Where the sectors of a mapped device lie. Pure arithmetic, after docs/behaviour/mapped.md,
//! section 1.

use std::cmp::Ordering;

/// In place of the number of a leg: reads are zeros, and what is written is dropped.
pub const ZERO: usize = usize::MAX;

/// In place of the number of a leg: every I/O fails.
pub const ERROR: usize = usize::MAX - 1;

/// A range of one leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the leg, or [`ZERO`] or [`ERROR`].
    pub leg: usize,
    /// Its first sector there.
    pub sector: u64,
    /// Its length in sectors.
    pub sectors: u32,
}

/// The beginning of something on a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the leg.
    pub leg: usize,
    /// The first sector there.
    pub offset: u64,
}

/// How the sectors of an area lie on its legs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One behind the other on one leg.
    Linear(Place),
    /// Chunk by chunk on several legs in turn.
    Striped {
        /// Sectors of a chunk, at least 1.
        chunk: u32,
        /// The stripes, at least one.
        stripes: Vec<Place>,
    },
    /// On no leg: zeros, and what is written is dropped.
    Zero,
    /// On no leg: every I/O fails.
    Error,
}

impl Shape {
    /// The places on its legs, of which some shapes have none.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        match self {
            Shape::Linear(place) => std::slice::from_ref(place),
            Shape::Striped { stripes, .. } => stripes,
            Shape::Zero | Shape::Error => &[],
        }
    }
}

/// A run of sectors of the mapped device that lie alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first sector.
    pub start: u64,
    /// Its length in sectors, at least 1.
    pub sectors: u64,
    /// How they lie.
    pub shape: Shape,
}

/// The areas of a mapped device, one behind the other from sector 0 on.
#[derive(Clone, Debug)]
pub struct Layout {
    areas: Vec<Area>,
    /// The same as they are asked about.
    runs: Vec<Run>,
}

/// An area: stripes, of which a linear one has one.
#[derive(Clone, Debug)]
struct Run {
    start: u64,
    end: u64,
    /// Sectors of a chunk; all of an area without.
    chunk: Divisor,
    stripes: Divisor,
    places: Box<[Place]>,
}

/// A number to divide by. Nearly all are powers of two, and a division by one that the compiler
/// does not know takes longer than the rest of the way through a mapper.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    number: u64,
    /// Its logarithm if it is a power of two, else [`NONE`](Divisor::NONE).
    shift: u32,
}

impl Divisor {
    const NONE: u32 = u32::MAX;

    fn new(number: u64) -> Divisor {
        let shift = if number.is_power_of_two() { number.trailing_zeros() } else { Self::NONE };
        Divisor { number, shift }
    }

    /// Quotient and remainder.
    #[inline]
    fn divide(self, value: u64) -> (u64, u64) {
        match self.shift {
            Self::NONE => (value / self.number, value % self.number),
            shift => (value >> shift, value & (self.number - 1)),
        }
    }

    #[inline]
    fn times(self, value: u64) -> u64 {
        value * self.number
    }
}

impl Layout {
    /// The layout of these areas.
    ///
    /// # Panics
    /// When they leave a gap, overlap, or one is empty: that is checked where they come from.
    #[must_use]
    pub fn new(areas: Vec<Area>) -> Layout {
        let mut end = 0;
        let runs = areas.iter().map(|area| {
            assert!(area.start == end && area.sectors > 0, "an area out of place: {area:?}");
            end += area.sectors;
            Run::of(area)
        });
        Layout { runs: runs.collect(), areas }
    }

    /// One leg behind the other: of each the first so many sectors, legs without any left out.
    #[must_use]
    pub fn linear(lengths: &[u64]) -> Layout {
        let mut start = 0;
        let used = lengths.iter().enumerate().filter(|(_, sectors)| **sectors > 0);
        let areas = used.map(|(leg, &sectors)| {
            let area = Area { start, sectors, shape: Shape::Linear(Place { leg, offset: 0 }) };
            start += sectors;
            area
        });
        Layout::new(areas.collect())
    }

    /// The areas.
    #[must_use]
    pub fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Sectors in all areas.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// The longest beginning of a range that lies in one piece, for a range that is not empty and
    /// inside the device.
    #[inline(always)] // Less than what a call of it takes.
    #[must_use]
    pub fn front(&self, sector: u64, sectors: u32) -> Piece {
        let run = self.run_of(sector);
        let at = sector - run.start;
        if let [place] = &*run.places {
            let left = run.end - sector;
            let sectors = if u64::from(sectors) <= left { sectors } else { left as u32 };
            return Piece { leg: place.leg, sector: place.offset + at, sectors };
        }
        let (number, within) = run.chunk.divide(at);
        let (row, stripe) = run.stripes.divide(number);
        let place = run.places[stripe as usize];
        let sector = place.offset + run.chunk.times(row) + within;
        // An area is whole chunks: the end of a chunk is never beyond the area's.
        let sectors = sectors.min((run.chunk.number - within) as u32);
        Piece { leg: place.leg, sector, sectors }
    }

    /// Calls `visit` with the pieces of a range in which no memory has its place: one for each
    /// stripe, however many chunks the range covers.
    pub fn ranges(&self, sector: u64, sectors: u32, mut visit: impl FnMut(Piece)) {
        let end = sector + u64::from(sectors);
        let mut at = sector;
        while at < end {
            let run = self.run_of(at);
            let (first, last) = (at - run.start, end.min(run.end) - run.start);
            for (stripe, place) in run.places.iter().enumerate() {
                let below = |sector| run.below(stripe as u64, sector);
                let (first, last) = (below(first), below(last));
                if first < last {
                    let (sector, sectors) = (place.offset + first, (last - first) as u32);
                    visit(Piece { leg: place.leg, sector, sectors });
                }
            }
            at = run.start + last;
        }
    }

    #[inline]
    fn run_of(&self, sector: u64) -> &Run {
        match &*self.runs {
            [only] => only,
            runs => &runs[runs.partition_point(|run| run.end <= sector)],
        }
    }
}

impl Run {
    fn of(area: &Area) -> Run {
        let nowhere = |leg| (area.sectors, vec![Place { leg, offset: area.start }]);
        let (chunk, places) = match &area.shape {
            Shape::Linear(place) => (area.sectors, vec![*place]),
            Shape::Striped { chunk, stripes } => (u64::from(*chunk), stripes.clone()),
            Shape::Zero => nowhere(ZERO),
            Shape::Error => nowhere(ERROR),
        };
        Run {
            start: area.start,
            end: area.start + area.sectors,
            chunk: Divisor::new(chunk),
            stripes: Divisor::new(places.len() as u64),
            places: places.into(),
        }
    }

    /// Sectors of a stripe that are before this sector of the area.
    fn below(&self, stripe: u64, sector: u64) -> u64 {
        let (number, within) = self.chunk.divide(sector);
        let (row, at) = self.stripes.divide(number);
        self.chunk.times(row)
            + match stripe.cmp(&at) {
                Ordering::Less => self.chunk.number,
                Ordering::Equal => within,
                Ordering::Greater => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    fn striped(legs: usize, chunk: u32, rows: u64, offset: u64) -> Layout {
        let stripes = (0..legs).map(|leg| Place { leg, offset: offset + leg as u64 }).collect();
        let sectors = legs as u64 * u64::from(chunk) * rows;
        Layout::new(vec![Area { start: 0, sectors, shape: Shape::Striped { chunk, stripes } }])
    }

    /// Areas of all shapes: linear, striped over other legs, on no leg, and linear on a leg that is
    /// striped as well.
    fn mixed(prng: &mut Prng) -> Layout {
        let chunk = 1 + prng.below(20) as u32;
        let stripes: Vec<Place> = (1..2 + prng.below(5) as usize)
            .map(|leg| Place { leg, offset: 100 + prng.below(9) })
            .collect();
        let (first, last) = (1 + prng.below(50), 1 + prng.below(50));
        let middle = u64::from(chunk) * stripes.len() as u64 * (1 + prng.below(9));
        let linear = |leg, offset| Shape::Linear(Place { leg, offset });
        Layout::new(vec![
            Area { start: 0, sectors: first, shape: linear(0, 7) },
            Area { start: first, sectors: middle, shape: Shape::Striped { chunk, stripes } },
            Area { start: first + middle, sectors: 5, shape: Shape::Error },
            Area { start: first + middle + 5, sectors: 3, shape: Shape::Zero },
            Area { start: first + middle + 8, sectors: last, shape: linear(1, 0) },
        ])
    }

    /// All sectors of a range, each with the place that the definition gives it.
    fn defined(layout: &Layout, sector: u64, sectors: u32) -> Vec<(usize, u64)> {
        let place = |at: u64| {
            let area = layout.areas().iter().find(|a| at < a.start + a.sectors).unwrap();
            let (whole, at) = (at, at - area.start);
            match &area.shape {
                Shape::Zero => (ZERO, whole),
                Shape::Error => (ERROR, whole),
                Shape::Linear(place) => (place.leg, place.offset + at),
                Shape::Striped { chunk, stripes } => {
                    let (chunk, count) = (u64::from(*chunk), stripes.len() as u64);
                    let number = at / chunk;
                    let place = stripes[(number % count) as usize];
                    (place.leg, place.offset + number / count * chunk + at % chunk)
                }
            }
        };
        (sector..sector + u64::from(sectors)).map(place).collect()
    }

    fn sectors_of(piece: Piece) -> impl Iterator<Item = (usize, u64)> {
        (piece.sector..piece.sector + u64::from(piece.sectors)).map(move |at| (piece.leg, at))
    }

    /// The places of a range's sectors in their order, piece by piece.
    fn walked(layout: &Layout, mut sector: u64, mut sectors: u32) -> Vec<(usize, u64)> {
        let mut places = Vec::new();
        while sectors > 0 {
            let piece = layout.front(sector, sectors);
            assert!(piece.sectors > 0 && piece.sectors <= sectors, "{piece:?}");
            places.extend(sectors_of(piece));
            (sector, sectors) = (sector + u64::from(piece.sectors), sectors - piece.sectors);
        }
        places
    }

    #[test]
    fn a_chunk_lies_whole_on_one_stripe_and_the_next_on_the_next() {
        let layout = striped(3, 8, 4, 1000);
        let piece = |leg, sector, sectors| Piece { leg, sector, sectors };
        assert_eq!(layout.front(0, 100), piece(0, 1000, 8));
        assert_eq!(layout.front(8, 1), piece(1, 1001, 1));
        assert_eq!(layout.front(23, 100), piece(2, 1009, 1));
        assert_eq!(layout.front(24, 5), piece(0, 1008, 5));
        assert_eq!(layout.front(5 * 8 + 3, 100), piece(2, 1002 + 8 + 3, 5));
    }

    #[test]
    fn every_sector_lands_exactly_once_whatever_widths_chunks_and_sizes() {
        for seed in 0..400 {
            let mut prng = Prng::new(seed);
            let layout = match seed % 2 {
                0 => mixed(&mut prng),
                _ => {
                    let (legs, chunk) = (1 + prng.below(9) as usize, 1 + prng.below(40) as u32);
                    striped(legs, chunk, 1 + prng.below(6), prng.below(100))
                }
            };
            let all = layout.sectors() as u32;
            let mut places = walked(&layout, 0, all);
            assert_eq!(places, defined(&layout, 0, all), "seed {seed}");
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), all as usize, "seed {seed}: a place is used twice");
            for _ in 0..50 {
                let sector = prng.below(u64::from(all));
                let sectors = 1 + prng.below(u64::from(all) - sector) as u32;
                let mut right = defined(&layout, sector, sectors);
                assert_eq!(walked(&layout, sector, sectors), right, "seed {seed}");
                let (mut found, mut pieces) = (Vec::new(), Vec::new());
                layout.ranges(sector, sectors, |piece| {
                    found.extend(sectors_of(piece));
                    pieces.push(piece);
                });
                right.sort_unstable();
                found.sort_unstable();
                assert_eq!(found, right, "seed {seed}: {sectors} from {sector}");
                assert!(pieces.iter().all(|piece| piece.sectors > 0), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_range_without_memory_is_one_piece_for_each_stripe_it_touches() {
        let layout = striped(4, 8, 100, 0);
        let pieces = |sector, sectors| {
            let mut pieces = Vec::new();
            layout.ranges(sector, sectors, |piece| {
                pieces.push((piece.leg, piece.sector - piece.leg as u64, piece.sectors));
            });
            pieces
        };
        assert_eq!(pieces(0, 3200), [(0, 0, 800), (1, 0, 800), (2, 0, 800), (3, 0, 800)]);
        assert_eq!(pieces(10, 12), [(1, 2, 6), (2, 0, 6)]);
        // From inside the second stripe of a row to inside the first of the row after the next.
        assert_eq!(pieces(12, 55), [(0, 8, 11), (1, 4, 12), (2, 0, 16), (3, 0, 16)]);
    }

    #[test]
    fn legs_one_behind_the_other_are_used_from_their_start_and_empty_ones_not_at_all() {
        let layout = Layout::linear(&[10, 0, 5]);
        assert_eq!((layout.sectors(), layout.areas().len()), (15, 2));
        assert_eq!(layout.front(8, 7), Piece { leg: 0, sector: 8, sectors: 2 });
        assert_eq!(layout.front(10, 7), Piece { leg: 2, sector: 0, sectors: 5 });
    }

    #[test]
    #[should_panic(expected = "an area out of place")]
    fn areas_that_leave_a_gap_are_no_layout() {
        let shape = Shape::Linear(Place { leg: 0, offset: 0 });
        let area = |start| Area { start, sectors: 8, shape: shape.clone() };
        let _ = Layout::new(vec![area(0), area(9)]);
    }
}
