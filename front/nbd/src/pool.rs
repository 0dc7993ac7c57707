//! Memory that connections of one reactor take and give back, so that a steady stream of I/O
//! allocates nothing and an idle connection holds nothing.

use weir_bio::{Buf, Data, PAGE};

use crate::arena::Arena;

/// The largest piece; longer data is made of several. A hostile length therefore costs no memory
/// before that many bytes have really arrived.
pub(crate) const PIECE: usize = 1 << 20;

/// Pieces come in powers of two from one page on.
const CLASSES: usize = (PIECE / PAGE).ilog2() as usize + 1;

/// Free memory kept, bytes; more is given back to the system.
const HELD_MAX: usize = 16 << 20;

/// Free reply blocks kept.
const ARENAS_MAX: usize = 32;

/// Bytes received at once.
const INPUT: usize = 256 << 10;

/// The spare memory of one reactor's connections.
#[derive(Default)]
pub(crate) struct Pool {
    classes: [Vec<Buf>; CLASSES],
    held: usize,
    arenas: Vec<Arena>,
    input: Vec<u8>,
    /// The same for records.
    sealed: Vec<u8>,
    /// Where one reply is encoded before it is put in its place.
    pub(crate) scratch: Vec<u8>,
}

/// Memory that data of `len` bytes takes.
#[inline]
pub(crate) fn room(len: usize) -> usize {
    let rest = len % PIECE;
    let tail = if rest == 0 { 0 } else { rest.next_power_of_two().max(PAGE) };
    len - rest + tail
}

fn class_of(len: usize) -> usize {
    (len.next_power_of_two().max(PAGE) / PAGE).ilog2() as usize
}

impl Pool {
    /// A buffer of `len` bytes, 1..=[`PIECE`], with whatever it held last.
    #[inline]
    pub(crate) fn buf(&mut self, len: usize) -> Buf {
        let class = class_of(len);
        let mut buf = match self.classes[class].pop() {
            Some(buf) => {
                self.held -= buf.capacity();
                buf
            }
            None => Buf::filled(PAGE << class, |_| ()),
        };
        buf.resize(len);
        buf
    }

    /// Memory of `len` bytes, at least 1.
    #[inline]
    pub(crate) fn data(&mut self, len: usize) -> Data {
        if len <= PIECE {
            return Data::One(self.buf(len));
        }
        let pieces = (0..len).step_by(PIECE).map(|at| self.buf(PIECE.min(len - at)));
        Data::Many(pieces.collect::<Vec<Buf>>().into())
    }

    /// Takes a buffer back. One of another make, or one too many, is freed.
    #[inline]
    pub(crate) fn give(&mut self, buf: Buf) {
        let capacity = buf.capacity();
        let ours = capacity.is_power_of_two() && (PAGE..=PIECE).contains(&capacity);
        if ours && self.held + capacity <= HELD_MAX {
            self.held += capacity;
            self.classes[class_of(capacity)].push(buf);
        }
    }

    /// Takes back what of this memory can be used again.
    #[inline]
    pub(crate) fn give_data(&mut self, data: Data) {
        match data {
            Data::One(buf) => self.give(buf),
            Data::Zero { spare, .. } => spare.into_iter().for_each(|buf| self.give(buf)),
            Data::Many(mut bufs) => bufs.drain(..).for_each(|buf| self.give(buf)),
            Data::None => {}
        }
    }

    /// An empty reply block.
    #[inline]
    pub(crate) fn arena(&mut self) -> Arena {
        self.arenas.pop().unwrap_or_else(Arena::new)
    }

    /// Takes a reply block back.
    pub(crate) fn give_arena(&mut self, mut arena: Arena) {
        if self.arenas.len() < ARENAS_MAX {
            arena.clear();
            self.arenas.push(arena);
        }
    }

    /// The receive buffer, to be [given back](Pool::give_input).
    pub(crate) fn input(&mut self) -> Vec<u8> {
        let mut input = std::mem::take(&mut self.input);
        input.resize(INPUT, 0);
        input
    }

    /// Takes the receive buffer back.
    pub(crate) fn give_input(&mut self, input: Vec<u8>) {
        self.input = input;
    }

    /// The receive buffer for records, to be [given back](Pool::give_sealed).
    pub(crate) fn sealed(&mut self) -> Vec<u8> {
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.resize(INPUT, 0);
        sealed
    }

    /// Takes the receive buffer for records back.
    pub(crate) fn give_sealed(&mut self, sealed: Vec<u8>) {
        self.sealed = sealed;
    }

    /// Whether there is anything to [trim](Pool::trim).
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0 && self.arenas.is_empty() && self.input.is_empty() && self.sealed.is_empty()
    }

    /// Gives all free memory back to the system.
    pub(crate) fn trim(&mut self) {
        *self = Pool::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_back_is_used_again_for_any_length_of_its_class() {
        let mut pool = Pool::default();
        for (first, then) in [(512, 4096), (5000, 8192), (PIECE, PIECE / 2 + 1)] {
            let buf = pool.buf(first);
            let start = buf.as_ptr();
            pool.give(buf);
            let again = pool.buf(then);
            assert_eq!((again.as_ptr(), again.len()), (start, then));
        }
        assert_eq!(pool.held, 0);
    }

    #[test]
    fn long_data_comes_in_pieces_of_exactly_its_length() {
        let mut pool = Pool::default();
        let data = pool.data(3 * PIECE + 512);
        let lengths: Vec<usize> = data.bufs().iter().map(|buf| buf.len()).collect();
        assert_eq!(lengths, [PIECE, PIECE, PIECE, 512]);
        pool.give_data(data);
        assert_eq!(pool.held, 3 * PIECE + PAGE);
    }

    #[test]
    fn free_memory_is_bounded_and_can_be_trimmed() {
        let mut pool = Pool::default();
        let data: Vec<Data> = (0..3).map(|_| pool.data(HELD_MAX)).collect();
        data.into_iter().for_each(|data| pool.give_data(data));
        assert_eq!(pool.held, HELD_MAX);
        let mut cut = Buf::zeroed(8192);
        let tail = cut.split_off(4096);
        pool.give(cut);
        pool.give(tail);
        assert_eq!(pool.held, HELD_MAX, "a piece of another buffer is not ours to keep");
        pool.trim();
        assert!(pool.is_empty());
    }
}
