//! The random map: random places of which each comes once before any comes again.
//!
//! I/Os of one size need no memory of the places that were: a permutation of their numbers is
//! walked, by a few multiplications each and of 64 bytes of state however large the range is. It is
//! a Feistel network of two unequal halves, as in Black and Rogaway, "Ciphers with Arbitrary Finite
//! Domains" (CT-RSA 2002): the halves cover hardly more numbers than there are places, and those
//! above are passed over. I/Os of several sizes take a bit for each cell besides.

use weir_bio::Prng;

use crate::job::{Job, JobError, Range};
use crate::sizes::Sizes;

/// Cells that a map of several sizes can keep track of: a bit each, 512 MiB in all.
const CELLS_MAX: u64 = 1 << 32;

/// Odd numbers without pattern: the fraction of the golden section, and of square roots of primes.
const ODD: [u64; 5] = [
    0x9e37_79b9_7f4a_7c15,
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
];

/// The numbers `0..count` in an order of their own in each pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    count: u64,
    /// The number of the next place is `row` and, below it, `at`.
    row: u64,
    at: u64,
    rows: u64,
    /// Bits of `at`.
    bits: u32,
    mask: u64,
    keys: [u64; 2],
}

impl Order {
    /// The first pass over so many, at least 1; of the seed alone.
    pub(crate) fn new(count: u64, seed: u64) -> Order {
        assert!(count > 0, "an order is one of something");
        let width = u64::BITS - (count - 1).leading_zeros();
        // 64 to 128 rows leave out less than a 64th of the numbers; of few places, half the bits.
        let bits = (width / 2).max(width.saturating_sub(7));
        let mask = (1 << bits) - 1;
        let rows = count.div_ceil(1 << bits);
        let mut order = Order { count, row: 0, at: 0, rows, bits, mask, keys: [seed, 0] };
        order.begin();
        order
    }

    /// Another pass, in another order.
    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        let mut prng = Prng::new(self.keys[0] ^ self.keys[1].rotate_left(32));
        (self.keys, self.row, self.at) = ([prng.next(), prng.next()], 0, 0);
    }

    /// The next place; behind the last of a pass comes the first of another.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            let place = self.place();
            self.at = (self.at + 1) & self.mask;
            if self.at == 0 {
                self.row += 1;
                if self.row == self.rows {
                    self.begin();
                }
            }
            if place < self.count {
                return place;
            }
        }
    }

    /// One to one from `row` and `at`: each line changes one half by what can be had back from the
    /// other.
    #[inline(always)]
    fn place(&self) -> u64 {
        let Order { row, at, rows, bits, mask, keys, .. } = *self;
        let half = bits.div_ceil(2);
        let mut low = (at ^ (row.wrapping_mul(ODD[0]) ^ keys[0]) >> 32) & mask;
        low = low.wrapping_mul(ODD[1]) & mask;
        low ^= low >> half;
        low = low.wrapping_mul(ODD[2]) & mask;
        low ^= low >> half;
        let turn = scattered(low ^ keys[1], [ODD[3], ODD[4]]);
        let turned = row + ((u128::from(turn) * u128::from(rows)) >> 64) as u64;
        let high = if turned >= rows { turned - rows } else { turned };
        low = (low ^ (scattered(high ^ keys[0], [ODD[4], ODD[3]]) >> 32)) & mask;
        low = low.wrapping_mul(ODD[0]) & mask;
        low ^= low >> half;
        high << bits | low
    }
}

/// A number of 64 bits whose upper half neighbours do not share; one product would keep the
/// distance of any two.
#[inline(always)]
fn scattered(number: u64, factors: [u64; 2]) -> u64 {
    let product = number.wrapping_mul(factors[0]);
    (product ^ product >> 32).wrapping_mul(factors[1])
}

/// The cells of a range of which each I/O takes some that lie together: each is taken once in a
/// pass.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    order: Order,
    taken: Vec<u64>,
    left: u64,
}

impl Cover {
    fn new(count: u64, seed: u64) -> Cover {
        let taken = vec![0; count.div_ceil(64) as usize];
        Cover { order: Order::new(count, seed), taken, left: count }
    }

    /// The first of up to `wanted` cells that are free, and how many: fewer where one behind it is
    /// taken.
    fn next(&mut self, wanted: u64) -> (u64, u64) {
        if self.left == 0 {
            self.taken.fill(0);
            self.left = self.order.count;
        }
        let first = loop {
            let cell = self.order.next();
            if !self.is_taken(cell) {
                break cell;
            }
        };
        let end = (first + wanted.max(1)).min(self.order.count);
        let run = (first..end).take_while(|cell| !self.is_taken(*cell)).count() as u64;
        (first..first + run).for_each(|cell| self.taken[(cell / 64) as usize] |= 1 << (cell % 64));
        self.left -= run;
        (first, run)
    }

    fn is_taken(&self, cell: u64) -> bool {
        self.taken[(cell / 64) as usize] >> (cell % 64) & 1 == 1
    }
}

/// The map of a job's random I/Os: one for all its directions, in cells of the smallest I/O.
#[derive(Clone, Debug)]
pub(crate) enum Map {
    /// All are of one size.
    Order(Order),
    /// They are of several.
    Cover(Cover),
}

/// The bytes of a cell, and how many there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

impl Map {
    /// That of a job, and its cells; `None` where places are drawn without looking back.
    ///
    /// # Errors
    /// Sizes that are no multiples of the smallest; more cells than can be kept track of.
    pub(crate) fn of(job: &Job, range: Range, seed: u64) -> Result<Option<(Map, Cells)>, JobError> {
        if !job.is_mapped() {
            return Ok(None);
        }
        let (bytes, alike) = cells(job);
        let count = (range.bytes / bytes).max(1);
        let cells = Cells { bytes, count };
        if alike {
            return Ok(Some((Map::Order(Order::new(count, seed)), cells)));
        }
        if let Some(other) =
            placed_sizes(job).flat_map(|sizes| sizes.each()).find(|s| s % bytes != 0)
        {
            return Err(JobError(format!(
                "a random map needs sizes that are multiples of the smallest, {bytes}: bs={other} \
                 (norandommap does without)"
            )));
        }
        if count > CELLS_MAX {
            return Err(JobError(format!(
                "a random map of several sizes keeps track of {CELLS_MAX} blocks at most: \
                 size={} has {count} of bs={bytes} (norandommap does without)",
                range.bytes
            )));
        }
        Ok(Some((Map::Cover(Cover::new(count, seed)), cells)))
    }

    /// The bytes of memory that it would take.
    pub(crate) fn bytes(job: &Job, range: Range) -> u64 {
        let (bytes, alike) = cells(job);
        if job.is_mapped() && !alike { (range.bytes / bytes).div_ceil(64) * 8 } else { 0 }
    }

    /// The first of up to `wanted` cells, and how many.
    pub(crate) fn next(&mut self, wanted: u64) -> (u64, u64) {
        match self {
            Map::Order(order) => (order.next(), 1),
            Map::Cover(cover) => cover.next(wanted),
        }
    }
}

/// Sizes of the I/Os that a map finds places for.
fn placed_sizes(job: &Job) -> impl Iterator<Item = &Sizes> {
    job.placed().iter().map(|direction| &job.sizes[*direction])
}

/// The bytes of a cell, and whether each I/O takes one.
fn cells(job: &Job) -> (u64, bool) {
    let bytes = placed_sizes(job).map(Sizes::least).min().unwrap_or(1).max(1);
    (bytes, placed_sizes(job).all(|sizes| sizes.most() == bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One after the other by a generator of its own; the seed is in each message.
    const SEED: u64 = 0x5eed_0011;

    #[test]
    fn each_place_comes_once_in_every_pass_however_many_there_are() {
        let mut prng = Prng::new(SEED);
        let random: Vec<u64> = (0..60).map(|_| 1 + prng.below(70_000)).collect();
        for count in (1..300).chain([4095, 4096, 4097, 1 << 17]).chain(random) {
            let seed = prng.next();
            let mut order = Order::new(count, seed);
            let mut passes = Vec::new();
            for pass in 0..3 {
                let places: Vec<u64> = (0..count).map(|_| order.next()).collect();
                let mut seen = vec![false; count as usize];
                for place in &places {
                    let before = std::mem::replace(&mut seen[*place as usize], true);
                    assert!(!before, "{place} of {count} twice in pass {pass} (seed {seed:#x})");
                }
                passes.push(places);
            }
            // Of 12 there are 479,001,600 orders.
            assert!(count < 12 || passes[0] != passes[1], "{count} (seed {seed:#x})");
        }
    }

    #[test]
    fn the_order_looks_like_chance() {
        for count in [1 << 20, 1_000_003, 1 << 16, 40_000] {
            let mut order = Order::new(count, SEED);
            let places: Vec<u64> = (0..count).map(|_| order.next()).collect();
            // Each 16th of a pass is spread over 16 parts of the range, and over 16 remainders.
            let of_slice = count as usize / 16;
            let mean = of_slice as f64 / 16.0;
            for slice in places.chunks_exact(of_slice) {
                let (mut parts, mut remainders) = ([0_u32; 16], [0_u32; 16]);
                for place in slice {
                    parts[(place * 16 / count) as usize] += 1;
                    remainders[(place % 16) as usize] += 1;
                }
                let even = |n: &u32| (f64::from(*n) - mean).abs() < 6.0 * mean.sqrt();
                assert!(parts.iter().chain(&remainders).all(even), "{count}: {parts:?}");
            }
            // One goes on where the last was as often as chance has it, and turns as often.
            let next = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 8).count();
            let expected = 16.0;
            assert!((next as f64) < expected + 6.0 * 4.0, "{count}: {next} are neighbours");
            let rising = places.windows(2).filter(|pair| pair[0] < pair[1]).count() as f64;
            let middle = count as f64 / 2.0;
            assert!((rising - middle).abs() < 6.0 * middle.sqrt(), "{count}: {rising} rise");
        }
    }

    #[test]
    fn cells_of_several_sizes_are_taken_once_each_in_every_pass() {
        let mut prng = Prng::new(SEED);
        for count in [1, 2, 7, 64, 65, 1000, 4096] {
            let seed = prng.next();
            let mut cover = Cover::new(count, seed);
            for pass in 0..3 {
                let mut seen = vec![false; count as usize];
                let mut left = count;
                while left > 0 {
                    let wanted = 1 + prng.below(8);
                    let (first, cells) = cover.next(wanted);
                    assert!((1..=wanted).contains(&cells), "{cells} of {wanted} (seed {seed:#x})");
                    for cell in first..first + cells {
                        let before = std::mem::replace(&mut seen[cell as usize], true);
                        assert!(!before, "{cell} of {count} twice in {pass} (seed {seed:#x})");
                    }
                    left -= cells;
                }
            }
        }
    }

    #[test]
    fn an_order_of_any_disk_takes_no_memory() {
        assert!(size_of::<Order>() <= 80);
        // A pebibyte in blocks of 512 bytes.
        let mut order = Order::new(1 << 41, SEED);
        assert!((0..1000).all(|_| order.next() < 1 << 41));
    }
}
