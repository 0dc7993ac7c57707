//! The requests of one connection that have no reply yet, by the number their bio carries.

use weir_bio::{Flags, Op};
use weir_proto_nbd::wire::ReplyTo;

/// One request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The request to answer.
    pub(crate) to: ReplyTo,
    /// Bytes of memory that travel with it.
    pub(crate) bytes: u32,
    /// The work left when the request's bio ends.
    pub(crate) work: Work,
}

/// The work that a request needs beyond its bio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Answer with the data, in one piece if `whole`.
    Read {
        /// DF was set.
        whole: bool,
    },
    /// Answer with a part of the data.
    Cut {
        /// DF was set.
        whole: bool,
        /// Bytes in front of it.
        front: u32,
        /// Bytes of it.
        length: u32,
    },
    /// Answer how it ended.
    Plain,
    /// Carry out the next part, or make the whole durable.
    Effect(Effect),
    /// Nothing: the export's surveyor finds the answer.
    Status {
        /// Bytes asked about.
        length: u64,
        /// Exactly one extent.
        one: bool,
        /// Bytes of the first extent that were not asked about.
        front: u32,
    },
}

/// A trim, zeroing or prefetch, which may take several bios.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) op: Op,
    /// Sectors that are handed in at once at most.
    pub(crate) piece: u32,
    pub(crate) flags: Flags,
    /// First sector of what is still to be submitted.
    pub(crate) sector: u64,
    /// Sectors of it.
    pub(crate) left: u64,
    /// Flush before the answer.
    pub(crate) fua: bool,
    /// FAST_ZERO: "not supported" is an answer.
    pub(crate) fast: bool,
    /// Blocks of which only some bytes are meant follow.
    pub(crate) edged: bool,
}

/// The requests of one connection. Free places are linked.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    places: Vec<Place>,
    free: Option<u32>,
    len: usize,
}

#[derive(Debug)]
enum Place {
    Taken(Slot),
    Free(Option<u32>),
}

/// An empty list gives its memory back above so many places.
const PLACES_KEPT: usize = 256;

impl Slots {
    /// Requests under way.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn add(&mut self, slot: Slot) -> u32 {
        self.len += 1;
        let Some(index) = self.free else {
            self.places.push(Place::Taken(slot));
            return (self.places.len() - 1) as u32;
        };
        let place = &mut self.places[index as usize];
        if let Place::Free(next) = *place {
            self.free = next;
        }
        *place = Place::Taken(slot);
        index
    }

    /// Forgets every request whose answer is looked for elsewhere; the bytes that travelled with
    /// them.
    pub(crate) fn drop_questions(&mut self) -> usize {
        let mut bytes = 0;
        for index in 0..self.places.len() {
            if let Some(Place::Taken(Slot { work: Work::Status { .. }, .. })) =
                self.places.get(index)
            {
                bytes += self.remove(index as u32).bytes as usize;
            }
        }
        bytes
    }

    /// # Panics
    /// When nothing is there: a bio has ended twice.
    #[inline]
    pub(crate) fn at(&mut self, index: u32) -> &mut Slot {
        match &mut self.places[index as usize] {
            Place::Taken(slot) => slot,
            Place::Free(_) => panic!("request {index} has ended already"),
        }
    }

    /// # Panics
    /// As [`Slots::at`].
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Slot {
        let slot = *self.at(index);
        self.places[index as usize] = Place::Free(self.free);
        self.free = Some(index);
        self.len -= 1;
        if self.len == 0 && self.places.len() > PLACES_KEPT {
            *self = Slots::default();
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(cookie: u64) -> Slot {
        Slot { to: ReplyTo { cookie, offset: 0 }, bytes: 0, work: Work::Plain }
    }

    #[test]
    fn places_are_used_again_and_never_two_at_once() {
        let mut slots = Slots::default();
        let numbers: Vec<u32> = (0..4).map(|cookie| slots.add(slot(cookie))).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(slots.remove(1).to.cookie, 1);
        assert_eq!(slots.remove(3).to.cookie, 3);
        assert_eq!([slots.add(slot(4)), slots.add(slot(5)), slots.add(slot(6))], [3, 1, 4]);
        assert_eq!((slots.len(), slots.at(1).to.cookie), (5, 5));
    }

    #[test]
    #[should_panic(expected = "request 0 has ended already")]
    fn a_request_that_ends_twice_is_found_out() {
        let mut slots = Slots::default();
        slots.add(slot(1));
        slots.add(slot(2));
        slots.remove(0);
        slots.remove(0);
    }
}
