//! The plain case of a stream: I/Os of one size, without pauses and with nothing to keep track of.

use weir_bio::Prng;

use crate::ask::Io;
use crate::map::Order;

/// The fields of the plain case, side by side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    /// So many I/Os are begun here: none where this is not the plain case, all where it is bounded
    /// by time alone.
    pub(crate) until: u64,
    /// Reads in 2^32 I/Os, so that the choice costs a compare.
    pub(crate) reads: u64,
    pub(crate) next: Next,
    /// The I/O if it is no read, and if it is one; only the place is missing.
    pub(crate) choices: [Io; 2],
    pub(crate) first: u64,
    pub(crate) blocks: u64,
    pub(crate) sectors: u64,
    pub(crate) at: u64,
    pub(crate) order: Order,
}

/// Where the next I/O of the plain case goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// The upper bits of what chose the direction choose the block.
    Narrow,
    /// The block has a draw of its own.
    Wide,
    /// Where the map has it.
    Mapped,
    /// Behind the last.
    Along,
}

impl Plain {
    #[inline(always)]
    pub(crate) fn draw(&mut self, prng: &mut Prng) -> Io {
        let random = prng.next();
        let read = random & 0xffff_ffff < self.reads;
        let block = match self.next {
            Next::Narrow => scaled(random, self.blocks),
            Next::Wide => scaled(prng.next(), self.blocks),
            Next::Mapped => self.order.next(),
            Next::Along => {
                let at = self.at;
                self.at = if at + 1 == self.blocks { 0 } else { at + 1 };
                at
            }
        };
        // A look-up, not a branch: the direction cannot be predicted.
        let mut io = self.choices[usize::from(read)];
        io.sector = self.first + block * self.sectors;
        io
    }
}

/// A number below `bound` from one of 64 bits.
#[inline(always)]
fn scaled(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}
