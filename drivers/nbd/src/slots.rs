//! What is in flight on one queue: a slot a tag, with what the decoder has to know of the request
//! and the memory it was lent.
//!
//! A request's cookie is its tag and a count of the slot's uses, so that a reply is found without
//! searching, and one that comes twice is not taken for another request's.

use std::io::{IoSlice, IoSliceMut};

use weir_bio::{Buf, Data, Status};
use weir_proto_nbd::client::{Missing, Outstanding, Pending};
use weir_queue::{Done, Request, Tag};

use crate::durability::Ticket;

/// Bits of a cookie that hold the tag; the slot's uses are counted above them.
const TAG_BITS: u32 = 16;

/// Payloads of at least this many bytes are worth a place of their own in a system call: they are
/// sent from, and received into, the memory of the request. Below, copying once is cheaper than
/// one more piece to gather.
pub(crate) const LARGE: u64 = 16 << 10;

/// Zeros to send where a write brings no memory.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What the success of a request means for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Something that a flush has to make durable.
    Written,
    Flushed(Ticket),
}

/// The slots of one queue.
pub(crate) struct Slots {
    slots: Vec<Slot>,
    /// Requests taken and not answered.
    taken: usize,
    /// Large reads among them that wait for their reply.
    large: usize,
    /// Answers that wait for the next reap.
    ended: Vec<(Tag, Status)>,
}

struct Slot {
    cookie: u64,
    /// What the decoder keeps; `None` unless the request waits for a reply.
    pending: Option<Pending>,
    effect: Effect,
    lent: Vec<Data>,
    /// Its payload is being sent from the lent memory.
    sending: bool,
    /// The reply came before the payload was sent.
    early: Option<Status>,
}

impl Outstanding for Slots {
    #[inline]
    fn find(&mut self, cookie: u64) -> Option<&mut Pending> {
        let slot = self.slots.get_mut(tag_of(cookie))?;
        if slot.cookie == cookie { slot.pending.as_mut() } else { None }
    }
}

#[inline]
const fn tag_of(cookie: u64) -> usize {
    (cookie & ((1 << TAG_BITS) - 1)) as usize
}

impl Slots {
    pub(crate) fn new(depth: u16) -> Slots {
        let slot = |tag| Slot {
            cookie: u64::from(tag),
            pending: None,
            effect: Effect::None,
            lent: Vec::new(),
            sending: false,
            early: None,
        };
        Slots {
            slots: (0..depth).map(slot).collect(),
            taken: 0,
            large: 0,
            ended: Vec::with_capacity(usize::from(depth)),
        }
    }

    /// Requests taken and not answered.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Requests that wait for the server.
    pub(crate) fn waiting(&self) -> usize {
        self.taken - self.ended.len()
    }

    /// Whether a large read waits for its data.
    pub(crate) fn expects_large(&self) -> bool {
        self.large > 0
    }

    /// Whether there are answers that nothing will announce.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The cookie for the next request under this tag.
    pub(crate) fn cookie(&self, tag: Tag) -> u64 {
        self.slots[usize::from(tag.0)].cookie
    }

    /// Takes a request that is answered without asking the server.
    pub(crate) fn end_here(&mut self, tag: Tag, status: Status) {
        self.taken += 1;
        self.ended.push((tag, status));
    }

    /// Borrows the request's memory. A read that brought none gets some.
    ///
    /// # Panics
    /// When the memory is not as long as the range: the stream would lose its step.
    #[inline]
    pub(crate) fn lend(&mut self, tag: Tag, request: &mut Request, read: bool) -> &[Data] {
        let lent = &mut self.slots[usize::from(tag.0)].lent;
        debug_assert!(lent.is_empty(), "tag {} is in flight", tag.0);
        request.lend(lent);
        if read {
            lent.iter_mut().for_each(materialise);
        }
        let bytes: u64 = lent.iter().map(|data| data.len() as u64).sum();
        assert_eq!(bytes, request.len(), "bytes of memory for a request of so many");
        lent
    }

    /// Takes a request whose header, and small payload, stand in the output.
    #[inline]
    pub(crate) fn take(&mut self, tag: Tag, pending: Pending, effect: Effect, sending: bool) {
        self.taken += 1;
        self.large += usize::from(is_large_read(&pending));
        let slot = &mut self.slots[usize::from(tag.0)];
        slot.pending = Some(pending);
        slot.effect = effect;
        slot.sending = sending;
    }

    /// First byte of the request's range on the export.
    #[inline]
    pub(crate) fn offset(&self, cookie: u64) -> u64 {
        self.slots[tag_of(cookie)].pending.as_ref().map_or(0, Pending::offset)
    }

    /// Puts a part of a read where it belongs; the decoder has held it against the request.
    #[inline]
    pub(crate) fn put(&mut self, cookie: u64, offset: u64, mut bytes: &[u8]) {
        let slot = &mut self.slots[tag_of(cookie)];
        let start = slot.pending.as_ref().map_or(0, Pending::offset);
        if let [Data::One(buf)] = &mut slot.lent[..] {
            let at = (offset - start) as usize;
            return buf[at..at + bytes.len()].copy_from_slice(bytes);
        }
        for piece in slot.pieces(offset - start) {
            let (here, rest) = bytes.split_at(bytes.len().min(piece.len()));
            piece[..here.len()].copy_from_slice(here);
            bytes = rest;
        }
    }

    /// Makes a part of a read zeros.
    pub(crate) fn zero(&mut self, cookie: u64, offset: u64, length: u64) {
        let slot = &mut self.slots[tag_of(cookie)];
        let Some(pending) = &slot.pending else { return };
        if (pending.offset(), pending.length()) == (offset, length)
            && slot.lent.iter().all(|data| matches!(data, Data::One(_)))
        {
            // The whole read: saying so is cheaper than writing it.
            return slot.lent.iter_mut().for_each(Data::become_zeros);
        }
        let start = pending.offset();
        let mut left = length as usize;
        for piece in slot.pieces(offset - start) {
            let here = left.min(piece.len());
            piece[..here].fill(0);
            left -= here;
        }
    }

    /// Lays out where the missing data belongs, as far as there are places. Returns the places
    /// and bytes laid out.
    pub(crate) fn scatter<'a>(
        &'a mut self,
        missing: Missing,
        places: &mut [IoSliceMut<'a>],
    ) -> (usize, u64) {
        let slot = &mut self.slots[tag_of(missing.cookie)];
        let start = slot.pending.as_ref().map_or(0, Pending::offset);
        let (mut used, mut left) = (0, missing.length);
        for piece in slot.pieces(missing.offset - start) {
            if left == 0 || used == places.len() {
                break;
            }
            let here = left.min(piece.len() as u64);
            places[used] = IoSliceMut::new(&mut piece[..here as usize]);
            (used, left) = (used + 1, left - here);
        }
        (used, missing.length - left)
    }

    /// Lays out the payload of a write from byte `from` on, as far as there are places. Returns
    /// the places and bytes laid out.
    pub(crate) fn gather<'a>(
        &'a self,
        tag: Tag,
        mut from: u64,
        places: &mut [IoSlice<'a>],
    ) -> (usize, u64) {
        let (mut used, mut bytes) = (0, 0);
        for data in &self.slots[usize::from(tag.0)].lent {
            for piece in pieces_to_send(data) {
                if used == places.len() {
                    return (used, bytes);
                }
                let skipped = from.min(piece.len() as u64);
                from -= skipped;
                let rest = &piece[skipped as usize..];
                if !rest.is_empty() {
                    places[used] = IoSlice::new(rest);
                    (used, bytes) = (used + 1, bytes + rest.len() as u64);
                }
            }
        }
        (used, bytes)
    }

    /// What the success of this request means for durability.
    #[inline]
    pub(crate) fn effect(&self, cookie: u64) -> Effect {
        self.slots[tag_of(cookie)].effect
    }

    /// The reply is complete.
    #[inline]
    pub(crate) fn answered(&mut self, cookie: u64, status: Status, done: &mut Done) {
        let tag = tag_of(cookie);
        let slot = &mut self.slots[tag];
        let Some(pending) = slot.pending.take() else { return };
        self.large -= usize::from(is_large_read(&pending));
        if slot.sending {
            // The rest of the payload still has to go out, and it lies in the lent memory.
            slot.early = Some(status);
            return;
        }
        self.taken -= 1;
        slot.free();
        done.push_lent(Tag(tag as u16), status, &mut slot.lent);
    }

    /// The payload of this write has been sent.
    pub(crate) fn sent(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.0)];
        slot.sending = false;
        if let Some(status) = slot.early.take() {
            slot.free();
            self.ended.push((tag, status));
        }
    }

    /// The connection is lost: everything on it ends.
    pub(crate) fn lose_all(&mut self) {
        for (tag, slot) in self.slots.iter_mut().enumerate() {
            let answer = slot.early.take().or(slot.pending.take().map(|_| Status::Transport));
            if let Some(status) = answer {
                slot.sending = false;
                slot.free();
                self.ended.push((Tag(tag as u16), status));
            }
        }
        self.large = 0;
    }

    /// Hands over the answers that waited.
    pub(crate) fn give_ended(&mut self, done: &mut Done) {
        self.taken -= self.ended.len();
        for (tag, status) in self.ended.drain(..) {
            done.push_lent(tag, status, &mut self.slots[usize::from(tag.0)].lent);
        }
    }
}

impl Slot {
    /// Its cookie is used up.
    #[inline]
    fn free(&mut self) {
        self.cookie = self.cookie.wrapping_add(1 << TAG_BITS);
    }

    /// The lent memory from byte `from` on.
    fn pieces(&mut self, mut from: u64) -> impl Iterator<Item = &mut [u8]> {
        let bufs = self.lent.iter_mut().flat_map(|data| data.bufs_mut().iter_mut());
        bufs.filter_map(move |buf| {
            let skipped = from.min(buf.len() as u64);
            from -= skipped;
            let rest = &mut buf[skipped as usize..];
            (!rest.is_empty()).then_some(rest)
        })
    }
}

fn is_large_read(pending: &Pending) -> bool {
    pending.command() == weir_proto_nbd::wire::Command::READ && pending.length() >= LARGE
}

/// The bytes of a write's memory, piece by piece.
pub(crate) fn pieces_to_send(data: &Data) -> impl Iterator<Item = &[u8]> {
    let mut zeros = match data {
        Data::Zero { len, .. } => *len as usize,
        Data::None | Data::One(_) | Data::Many(_) => 0,
    };
    let zeros = std::iter::from_fn(move || {
        let here = zeros.min(ZEROS.len());
        zeros -= here;
        (here > 0).then(|| &ZEROS[..here])
    });
    data.bufs().iter().map(|buf| &buf[..]).chain(zeros)
}

/// Gives a read memory to be filled where its caller brought none, using the spare if it fits.
fn materialise(data: &mut Data) {
    let Data::Zero { len, spare } = data else { return };
    let len = *len as usize;
    *data = match spare.take() {
        Some(mut buf) if buf.capacity() >= len => {
            buf.resize(len);
            Data::One(buf)
        }
        _ if len == 0 => Data::None,
        _ => Data::One(Buf::zeroed(len)),
    };
}
