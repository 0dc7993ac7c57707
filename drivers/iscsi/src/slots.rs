//! The commands of one port: one place for each that can be in flight, with the memory it was lent
//! and how it ends if it cannot be told at once.
//!
//! The mid-layer's slots are those of the whole adapter; a port has places for as many as it can
//! have in flight, and a table that leads from one to the other. The number of a place is the one
//! that the session's task has.

use std::io::IoSliceMut;

use weir_bio::Data;
use weir_driver_scsi::{Delivered, Direction, Ends};
use weir_proto_scsi::ScsiStatus;
use weir_proto_scsi::decide::Delivery;

/// Payloads of at least this many bytes are worth a place of their own in a system call: they are
/// sent from, and received into, the memory of the command. Below, copying once is cheaper than one
/// more piece to gather.
pub(crate) const LARGE: u32 = 16 << 10;

/// The bytes of sense data that are handed on, as many as the standard has.
const SENSE_MAX: usize = 252;

const BUFS: &str = "memory of weir's own";
const NONE: u16 = u16::MAX;

/// Zeros to send where a write brings no memory.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How a command ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) delivery: Delivery,
    pub(crate) status: ScsiStatus,
    pub(crate) moved: u32,
}

impl End {
    /// Without the target's answer.
    pub(crate) const fn without(delivery: Delivery) -> End {
        End { delivery, status: ScsiStatus::GOOD, moved: 0 }
    }
}

/// Where a command stands.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Free,
    /// The target has it, or will.
    Sent,
    /// Its session was lost after it had left: the target may still carry it out.
    Limbo,
    /// It has ended, and its payload is still being sent; or the next reap tells of it.
    Ended(End),
}

struct Place {
    /// The mid-layer's number.
    slot: u16,
    stage: Stage,
    lent: Vec<Data>,
    direction: Direction,
    /// Payloads that are being sent from the memory.
    splices: u32,
    /// Sense data of an end that is told later.
    sense: Vec<u8>,
}

/// The commands of one port.
pub(crate) struct Slots {
    places: Vec<Place>,
    free: Vec<u16>,
    /// The place of each slot.
    place_of: Box<[u16]>,
    /// Large reads that wait for their data.
    large: usize,
    /// Places whose end the next reap tells.
    told: Vec<u16>,
}

impl Slots {
    /// With places for `depth` commands, for an adapter with so many slots.
    pub(crate) fn new(depth: u16, slots: usize) -> Slots {
        let place = |_| Place {
            slot: NONE,
            stage: Stage::Free,
            lent: Vec::with_capacity(1),
            direction: Direction::None,
            splices: 0,
            sense: Vec::new(),
        };
        Slots {
            places: (0..depth).map(place).collect(),
            free: (0..depth).rev().collect(),
            place_of: vec![NONE; slots].into_boxed_slice(),
            large: 0,
            told: Vec::with_capacity(depth.into()),
        }
    }

    /// Whether a large read waits for its data.
    #[inline]
    pub(crate) fn expects_large(&self) -> bool {
        self.large > 0
    }

    /// Whether there are ends that nothing will announce.
    #[inline]
    pub(crate) fn has_ends(&self) -> bool {
        !self.told.is_empty()
    }

    /// The place of a slot, if a command is in it.
    pub(crate) fn place_of(&self, slot: u16) -> Option<u16> {
        self.place_of.get(usize::from(slot)).copied().filter(|place| *place != NONE)
    }

    /// Whether the command in this place waits for the target, or for the end of its session.
    pub(crate) fn is_open(&self, place: u16) -> bool {
        matches!(self.places[usize::from(place)].stage, Stage::Sent | Stage::Limbo)
    }

    /// The next free place.
    #[inline]
    pub(crate) fn next(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes a command's memory into the [next](Slots::next) place. A read that brought none gets
    /// some.
    ///
    /// # Panics
    /// When the memory is not as long as the data: the stream would lose its step.
    #[inline]
    pub(crate) fn lend(&mut self, direction: Direction, memory: &mut Vec<Data>) -> u16 {
        let at = *self.free.last().expect("asked for before");
        let place = &mut self.places[usize::from(at)];
        place.lent.append(memory);
        place.direction = direction;
        let expected = match direction {
            Direction::None => 0,
            Direction::Out(length) => length,
            Direction::In(length) => {
                place.lent.iter_mut().for_each(Data::materialise);
                length
            }
        };
        let bytes: usize = place.lent.iter().map(Data::len).sum();
        assert_eq!(bytes, expected as usize, "bytes of memory for a command of so many");
        at
    }

    /// The command was not sent after all: gives its memory back.
    #[cold]
    pub(crate) fn take_back(&mut self, at: u16, memory: &mut Vec<Data>) {
        memory.append(&mut self.places[usize::from(at)].lent);
    }

    /// The command in the next place was sent, and has this slot.
    #[inline]
    pub(crate) fn take(&mut self, at: u16, slot: u16) {
        self.free.pop();
        let place = &mut self.places[usize::from(at)];
        (place.slot, place.stage) = (slot, Stage::Sent);
        self.large += usize::from(place.is_large_read());
        self.place_of[usize::from(slot)] = at;
    }

    /// The bytes of a write's memory from `from` on, piece by piece.
    #[inline]
    pub(crate) fn pieces(&self, at: u16, from: u32, length: u32) -> impl Iterator<Item = &[u8]> {
        let (mut skip, mut left) = (from as usize, length as usize);
        let all = self.places[usize::from(at)].lent.iter().flat_map(pieces_to_send);
        all.filter_map(move |piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let rest = &piece[skipped..];
            let here = left.min(rest.len());
            left -= here;
            (here > 0).then(|| &rest[..here])
        })
    }

    /// A payload waits to be sent from this memory.
    pub(crate) fn spliced_in(&mut self, at: u16) {
        self.places[usize::from(at)].splices += 1;
    }

    /// One was sent.
    pub(crate) fn spliced_out(&mut self, at: u16) {
        let place = &mut self.places[usize::from(at)];
        place.splices -= 1;
        if place.splices == 0 && matches!(place.stage, Stage::Ended(_)) {
            self.told.push(at);
        }
    }

    /// Puts a part of a read where it belongs; the session has held it against the command.
    #[inline]
    pub(crate) fn put(&mut self, at: u16, offset: u32, mut bytes: &[u8]) {
        let place = &mut self.places[usize::from(at)];
        if let [Data::One(buf)] = &mut place.lent[..] {
            let offset = offset as usize;
            return buf[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        for piece in place.pieces_mut(offset) {
            let (here, rest) = bytes.split_at(bytes.len().min(piece.len()));
            piece[..here.len()].copy_from_slice(here);
            bytes = rest;
        }
    }

    /// The memory of a read from `offset` on, at most `length` bytes, as far as there are places:
    /// places and bytes laid out.
    pub(crate) fn scatter<'a>(
        &'a mut self,
        (at, offset, length): (u16, u32, u32),
        places: &mut [IoSliceMut<'a>],
    ) -> (usize, usize) {
        let (mut used, mut left) = (0, length as usize);
        for piece in self.places[usize::from(at)].pieces_mut(offset) {
            if left == 0 || used == places.len() {
                break;
            }
            let here = left.min(piece.len());
            places[used] = IoSliceMut::new(&mut piece[..here]);
            (used, left) = (used + 1, left - here);
        }
        (used, length as usize - left)
    }

    /// The command has ended.
    #[inline]
    pub(crate) fn finish(&mut self, at: u16, end: End, sense: &[u8], ends: &mut Ends) {
        let place = &mut self.places[usize::from(at)];
        if !matches!(place.stage, Stage::Sent | Stage::Limbo) {
            return;
        }
        self.large -= usize::from(place.is_large_read());
        let sense = &sense[..sense.len().min(SENSE_MAX)];
        if place.splices > 0 {
            // The rest of the payload still has to go out, and it lies in the lent memory.
            place.stage = Stage::Ended(end);
            place.sense.extend_from_slice(sense);
            return;
        }
        ends.sense.extend_from_slice(sense);
        self.hand_over(at, end, sense.len() as u8, ends);
    }

    #[inline]
    fn hand_over(&mut self, at: u16, end: End, sense: u8, ends: &mut Ends) {
        let place = &mut self.places[usize::from(at)];
        let End { delivery, status, moved } = end;
        let (slot, memory) = (place.slot, place.lent.len() as u16);
        ends.memory.append(&mut place.lent);
        ends.commands.push(Delivered { slot, delivery, status, moved, sense, memory });
        (place.stage, place.slot) = (Stage::Free, NONE);
        self.place_of[usize::from(slot)] = NONE;
        self.free.push(at);
    }

    /// The session is lost, and its output with it. The command of `at` may be with the target if
    /// it has `left`; else it ends at once.
    #[cold]
    pub(crate) fn lose(&mut self, at: u16, left: bool) {
        let place = &mut self.places[usize::from(at)];
        if !matches!(place.stage, Stage::Sent) {
            return;
        }
        self.large -= usize::from(place.is_large_read());
        if left {
            place.stage = Stage::Limbo;
        } else {
            place.stage = Stage::Ended(End::without(Delivery::Disrupted));
        }
    }

    /// The output is gone: what had ended and was still being sent is told.
    #[cold]
    pub(crate) fn lose_output(&mut self) {
        let told = &mut self.told;
        for (at, place) in (0..).zip(&mut self.places) {
            place.splices = 0;
            if matches!(place.stage, Stage::Ended(_)) && !told.contains(&at) {
                told.push(at);
            }
        }
    }

    /// Ends commands that a lost session left in limbo: all, or only those that change nothing.
    #[cold]
    pub(crate) fn end_limbo(&mut self, delivery: Delivery, all: bool) {
        for (at, place) in (0..).zip(&mut self.places) {
            let harmless = matches!(place.direction, Direction::In(_));
            if matches!(place.stage, Stage::Limbo) && (all || harmless) {
                place.stage = Stage::Ended(End::without(delivery));
                self.told.push(at);
            }
        }
    }

    /// Commands that a lost session left in limbo.
    pub(crate) fn in_limbo(&self) -> usize {
        self.places.iter().filter(|place| matches!(place.stage, Stage::Limbo)).count()
    }

    /// Hands over the ends that waited.
    #[inline]
    pub(crate) fn tell(&mut self, ends: &mut Ends) {
        while let Some(at) = self.told.pop() {
            let place = &mut self.places[usize::from(at)];
            let Stage::Ended(end) = place.stage else { continue };
            let sense = place.sense.len() as u8;
            ends.sense.append(&mut place.sense);
            self.hand_over(at, end, sense, ends);
        }
    }
}

impl Place {
    fn is_large_read(&self) -> bool {
        matches!(self.direction, Direction::In(length) if length >= LARGE)
    }

    /// The lent memory from byte `from` on.
    fn pieces_mut(&mut self, from: u32) -> impl Iterator<Item = &mut [u8]> {
        let mut from = from as usize;
        let bufs = self.lent.iter_mut().flat_map(|data| data.bufs_mut().expect(BUFS));
        bufs.filter_map(move |buf| {
            let skipped = from.min(buf.len());
            from -= skipped;
            let rest = &mut buf[skipped..];
            (!rest.is_empty()).then_some(rest)
        })
    }
}

/// The bytes of a write's memory, piece by piece.
fn pieces_to_send(data: &Data) -> impl Iterator<Item = &[u8]> {
    let mut zeros = match data {
        Data::Zero { len, .. } => *len as usize,
        Data::None | Data::One(_) | Data::Many(_) | Data::Segments(_) => 0,
    };
    let zeros = std::iter::from_fn(move || {
        let here = zeros.min(ZEROS.len());
        zeros -= here;
        (here > 0).then(|| &ZEROS[..here])
    });
    data.bufs().expect(BUFS).iter().map(|buf| &buf[..]).chain(zeros)
}
