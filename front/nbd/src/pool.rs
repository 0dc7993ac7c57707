//! Memory that connections of one reactor take and give back, so that a steady stream of I/O
//! allocates nothing and an idle connection holds nothing.

mod slabs;

use weir_bio::{Buf, Data, PAGE};

use crate::arena::Arena;
use slabs::{SLAB, Slabs};

/// The largest piece, a place of a slab; longer data is made of several. A hostile length therefore
/// costs no memory before that many bytes have really arrived.
pub(crate) const PIECE: usize = 256 << 10;

/// Smaller pieces come in powers of two from one page on.
const CLASSES: usize = (PIECE / PAGE).ilog2() as usize;

/// Free memory kept in smaller pieces, and as much again in slabs, bytes; more is given back to the
/// system, round by round.
const HELD_MAX: usize = 16 << 20;

/// Free memory beyond which a further piece is given back at once, bytes.
const BACKLOG_MAX: usize = 3 * HELD_MAX;

/// New memory in one round, bytes, but for what the last piece or slab has beyond it. New memory is
/// cleared first: 1 MiB takes some 300 us, and every connection of the reactor waits meanwhile.
const FRESH: usize = 256 << 10;

/// Memory given back to the system in one round, bytes. 1 MiB takes some 70 us.
const GIVEN_BACK: usize = 2 << 20;

/// Free reply blocks kept.
const ARENAS_MAX: usize = 32;

/// Bytes received at once.
const INPUT: usize = 256 << 10;

/// The spare memory of one reactor's connections.
#[derive(Default)]
pub(crate) struct Pool {
    classes: [Vec<Buf>; CLASSES],
    /// Bytes in the classes.
    held: usize,
    slabs: Slabs,
    /// Bytes of new memory in this round.
    fresh: usize,
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
        let mut buf = match self.classes.get_mut(class).map(Vec::pop) {
            Some(Some(buf)) => {
                self.held -= buf.capacity();
                buf
            }
            Some(None) => {
                self.fresh += PAGE << class;
                Buf::filled(PAGE << class, |_| ())
            }
            None => self.piece(),
        };
        buf.resize(len);
        buf
    }

    /// One of the largest. Where there is no memory for a slab, there may be for the piece alone.
    fn piece(&mut self) -> Buf {
        if let Some(piece) = self.slabs.take() {
            return piece;
        }
        if let Some(piece) = self.slabs.take_empty() {
            self.fresh += PIECE;
            return piece;
        }
        self.fresh += SLAB;
        self.slabs.grow().unwrap_or_else(|| Buf::filled(PIECE, |_| ()))
    }

    /// Whether no more new memory is to be taken in this round.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.fresh >= FRESH
    }

    /// Whether the memory for the first piece of `len` bytes of data may be taken in this round.
    #[inline]
    pub(crate) fn serves(&self, len: usize) -> bool {
        !self.is_spent()
            || match self.classes.get(class_of(len.min(PIECE))) {
                Some(class) => !class.is_empty(),
                None => self.slabs.has_free(),
            }
    }

    /// The next round begins. Some of what is held beyond its bound is given back to the system;
    /// true when more is left.
    pub(crate) fn next_round(&mut self) -> bool {
        self.fresh = 0;
        let slabs_left = self.slabs.give_back(HELD_MAX);
        let places_left = self.slabs.empty(self.slabs.in_use().max(HELD_MAX));
        self.give_back(HELD_MAX) | slabs_left | places_left
    }

    /// Gives some of the free memory back until no more than `kept` bytes are left; true when there
    /// still are more.
    fn give_back(&mut self, kept: usize) -> bool {
        let least = self.held.saturating_sub(GIVEN_BACK).max(kept);
        for class in self.classes.iter_mut().rev() {
            while self.held > least
                && let Some(buf) = class.pop()
            {
                self.held -= buf.capacity();
            }
        }
        self.held > kept
    }

    /// Takes a buffer back. One of another make, or one too many, is freed; a place of a slab goes
    /// back there.
    #[inline]
    pub(crate) fn give(&mut self, buf: Buf) {
        let capacity = buf.capacity();
        if capacity == PIECE {
            return self.slabs.give(buf);
        }
        let ours = capacity.is_power_of_two() && (PAGE..PIECE).contains(&capacity);
        if ours && self.held + capacity <= BACKLOG_MAX {
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
            Data::None | Data::Segments(_) => {}
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

    /// Whether there are slabs, free or in use.
    pub(crate) fn has_slabs(&self) -> bool {
        !self.slabs.is_empty()
    }

    /// Finds the pieces that came back without a word. Whether there is any that is free.
    pub(crate) fn look(&mut self) -> bool {
        self.slabs.look();
        self.slabs.has_free()
    }

    /// Whether there is anything to [trim](Pool::trim).
    pub(crate) fn is_empty(&self) -> bool {
        self.held == 0
            && self.slabs.is_empty()
            && self.arenas.is_empty()
            && self.input.is_empty()
            && self.sealed.is_empty()
    }

    /// Gives free memory back to the system; true when there is more to give back.
    pub(crate) fn trim(&mut self) -> bool {
        self.slabs.look();
        if self.slabs.give_back(0) | self.slabs.empty(0) | self.give_back(0) {
            return true;
        }
        // Slabs that are in use stay known, so that what is free in them is used again.
        let slabs = std::mem::take(&mut self.slabs);
        *self = Pool { fresh: self.fresh, slabs, ..Pool::default() };
        false
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn a_buffer_given_back_is_used_again_for_any_length_of_its_class() {
        let mut pool = Pool::default();
        for (first, then) in
            [(512, 4096), (5000, 8192), (PIECE / 2, PIECE / 4 + 1), (PIECE, PIECE - 1)]
        {
            let buf = pool.buf(first);
            let start = buf.as_ptr();
            pool.give(buf);
            let again = pool.buf(then);
            assert_eq!((again.as_ptr(), again.len()), (start, then));
        }
        assert_eq!(pool.held, 0);
    }

    #[test]
    fn a_round_takes_so_much_new_memory_and_any_amount_of_what_is_held() {
        let mut pool = Pool::default();
        let first = pool.buf(FRESH / 2);
        assert!(pool.serves(PIECE), "the last piece may be larger than what is left");
        let mut pieces = vec![pool.buf(PIECE)];
        assert!(pool.is_spent() && !pool.serves(PAGE));
        while pool.serves(PIECE) {
            pieces.push(pool.buf(PIECE));
        }
        assert_eq!(pieces.len(), SLAB / PIECE, "a slab, and no other in this round");
        let third = pool.buf(8 * PAGE);
        pool.give(pieces.remove(3));
        assert!(pool.serves(PIECE) && pool.serves(32 * PIECE), "a piece is held");
        assert!(!pool.serves(PAGE));
        pool.next_round();
        assert!(pool.serves(PAGE) && !pool.is_spent());
        drop((first, third));
    }

    #[test]
    fn free_memory_is_bounded_and_can_be_trimmed() {
        let mut pool = Pool::default();
        let len = PIECE / 2;
        let pieces: Vec<Buf> = (0..BACKLOG_MAX / len + 4).map(|_| pool.buf(len)).collect();
        pool.give_data(Data::Many(pieces.into()));
        assert_eq!(pool.held, BACKLOG_MAX);
        pool.give(Buf::zeroed(len));
        assert_eq!(pool.held, BACKLOG_MAX, "as much as is given back in a moment");
        let rounds = (BACKLOG_MAX - HELD_MAX) / GIVEN_BACK;
        assert_eq!((0..rounds).filter(|_| pool.next_round()).count(), rounds - 1);
        assert_eq!(pool.held, HELD_MAX);
        assert!(!pool.next_round());
        let mut cut = Buf::zeroed(8192);
        let tail = cut.split_off(4096);
        pool.give(cut);
        pool.give(tail);
        assert_eq!(pool.held, HELD_MAX, "a piece of another buffer is not ours to keep");
        let steps = HELD_MAX / GIVEN_BACK;
        assert_eq!((0..steps).filter(|_| pool.trim()).count(), steps - 1);
        assert!(pool.is_empty());
    }

    #[test]
    fn what_is_free_beside_pieces_in_use_is_bounded_by_them_and_is_given_back_in_a_pause() {
        for (slabs, kept_most) in [(40, HELD_MAX), (120, 120 * PIECE)] {
            let mut pool = Pool::default();
            let mut kept = Vec::new();
            let pieces: Vec<Buf> = (0..slabs * (SLAB / PIECE)).map(|_| pool.buf(PIECE)).collect();
            for (number, piece) in pieces.into_iter().enumerate() {
                match number % (SLAB / PIECE) {
                    0 => kept.push(piece),
                    _ => pool.give(piece),
                }
            }
            assert_eq!(pool.slabs.in_use(), slabs * PIECE);
            while pool.next_round() {}
            let backed = pool.slabs.free_backed() * PIECE;
            assert!((kept_most - SLAB..=kept_most).contains(&backed), "{slabs}: {backed}");
            while pool.trim() {}
            assert_eq!((pool.slabs.free_backed(), pool.slabs.in_use()), (0, slabs * PIECE));
            // They come back without a word.
            drop(kept);
            assert!(!pool.is_empty());
            while pool.trim() {}
            assert!(pool.is_empty());
        }
    }

    #[test]
    fn places_without_memory_are_new_memory() {
        let mut pool = Pool::default();
        let kept = pool.buf(PIECE);
        pool.trim();
        pool.next_round();
        assert!(!pool.is_spent());
        let piece = pool.buf(PIECE);
        assert!(pool.is_spent() && !pool.serves(PIECE), "one of them");
        drop((kept, piece));
    }

    #[test]
    fn a_piece_is_had_alone_where_there_is_no_memory_for_a_slab() {
        // In a process of its own: the limit counts for all of its threads.
        let name = "pool::tests::with_little_room";
        let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
        let output = child.args(["--exact", name]).env(CHILD, "").output().expect("a child");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{told}");
    }

    /// Set in the process of its own.
    const CHILD: &str = "WEIR_TEST_WITH_LITTLE_ROOM";

    #[test]
    fn with_little_room() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this system has one");
        let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
        let mapped = pages.expect("a number of pages") * rustix::param::page_size() as u64;
        let before = getrlimit(Resource::As);
        // A slab takes twice its length for a moment.
        let little = Rlimit { current: Some(mapped + (3 << 20)), ..before };
        setrlimit(Resource::As, little).expect("a lower limit");
        let mut pool = Pool::default();
        let piece = pool.buf(PIECE);
        setrlimit(Resource::As, before).expect("the limit that was");
        assert!(!pool.has_slabs() && piece.len() == PIECE);
        pool.give(piece);
        assert!(pool.is_empty());
    }
}
