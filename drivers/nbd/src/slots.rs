//! The requests in flight on one queue: one slot for each tag, with the facts that the decoder
//! needs of the request and the memory it was lent.
//!
//! A request's cookie is its tag and a count of the slot's uses, so that a reply is found without
//! searching, and one that comes twice is not taken for another request's.

use std::io::{IoSlice, IoSliceMut};

use weir_bio::{Data, Status};
use weir_proto_nbd::client::{Missing, Outstanding, Pending};
use weir_queue::{Done, Request, Tag};

use crate::durability::{Promise, Ticket};

/// Bits of a cookie that hold the tag; the slot's uses are counted above them.
const TAG_BITS: u32 = 16;

/// Payloads of at least this many bytes are worth a place of their own in a system call: they are
/// sent from, and received into, the memory of the request. Below, copying once is cheaper than
/// one more piece to gather.
pub(crate) const LARGE: u64 = 16 << 10;

/// The limits say that this driver takes no memory that others may change: bytes that go out again
/// after a connection was lost, or in two calls, are the same.
const BUFS: &str = "memory of weir's own";

/// Zeros to send where a write brings no memory.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The consequence of a request's success for durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Something that a flush has to make durable.
    Written,
    /// It was to be durable itself.
    Durable,
    Flushed(Ticket),
}

impl Effect {
    /// The writes that the request was to make durable.
    pub(crate) fn promise(self) -> Option<Promise> {
        match self {
            Effect::None | Effect::Written => None,
            Effect::Durable => Some(Promise::Itself),
            Effect::Flushed(_) => Some(Promise::Everything),
        }
    }
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
    /// Requests to be handed back at the next reap.
    requeued: Vec<Tag>,
    /// Flushes that wait until a server given up has answered for its writes, or has not.
    held: Vec<Tag>,
    /// Requests that were moved to connections given up.
    parted: usize,
}

struct Slot {
    cookie: u64,
    /// The record that the decoder keeps; `None` unless the request waits for a reply.
    sent: Option<Sent>,
    effect: Effect,
    lent: Vec<Data>,
    /// Its payload is being sent from the lent memory.
    sending: bool,
    /// The reply came before the payload was sent: how the request ends then, `None` if it is to be
    /// sent again.
    early: Option<(Tag, Option<Status>)>,
}

/// A request that waits for its reply.
struct Sent {
    tag: Tag,
    pending: Pending,
    /// Where it begins in the stream of its connection.
    start: u64,
}

/// A request that has been taken off its slot, with what it was lent.
pub(crate) struct Unanswered {
    pub(crate) tag: Tag,
    pub(crate) cookie: u64,
    pub(crate) pending: Pending,
    pub(crate) lent: Vec<Data>,
    /// Where it began in the stream of its connection.
    pub(crate) start: u64,
    pub(crate) promise: Option<Promise>,
}

impl Outstanding for Slots {
    #[inline]
    fn find(&mut self, cookie: u64) -> Option<&mut Pending> {
        let slot = self.slots.get_mut(tag_of(cookie))?;
        if slot.cookie == cookie { slot.sent.as_mut().map(|sent| &mut sent.pending) } else { None }
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
            sent: None,
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
            requeued: Vec::new(),
            held: Vec::new(),
            parted: 0,
        }
    }

    /// Requests taken and not answered.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Requests that wait for the server.
    pub(crate) fn waiting(&self) -> usize {
        self.taken - self.ended.len() - self.requeued.len() - self.held.len() - self.parted
    }

    /// Whether a large read waits for its data.
    pub(crate) fn expects_large(&self) -> bool {
        self.large > 0
    }

    /// Whether there are answers that nothing will announce.
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty() || !self.requeued.is_empty()
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

    /// Takes a flush that waits for a server that was given up.
    #[cold]
    pub(crate) fn hold(&mut self, tag: Tag) {
        self.taken += 1;
        self.held.push(tag);
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The flushes that waited are to be sent again, if they may still wait for anything.
    #[cold]
    pub(crate) fn release_held(&mut self) {
        self.requeued.append(&mut self.held);
    }

    /// Forgets a flush that waits; false when it is none.
    pub(crate) fn forget_held(&mut self, tag: Tag) -> bool {
        let before = self.held.len();
        self.held.retain(|held| *held != tag);
        self.taken -= before - self.held.len();
        before != self.held.len()
    }

    /// Whether the request waits for its reply.
    pub(crate) fn is_waiting(&self, tag: Tag) -> bool {
        let slot = &self.slots[usize::from(tag.0)];
        slot.sent.is_some() || slot.early.is_some()
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
            lent.iter_mut().for_each(Data::materialise);
        }
        let bytes: u64 = lent.iter().map(|data| data.len() as u64).sum();
        assert_eq!(bytes, request.len(), "bytes of memory for a request of so many");
        lent
    }

    /// Takes a request whose header, and small payload, stand in the output.
    #[inline]
    pub(crate) fn take(
        &mut self,
        tag: Tag,
        pending: Pending,
        effect: Effect,
        sending: bool,
        start: u64,
    ) {
        self.taken += 1;
        self.large += usize::from(is_large_read(&pending));
        let slot = &mut self.slots[usize::from(tag.0)];
        slot.sent = Some(Sent { tag, pending, start });
        slot.effect = effect;
        slot.sending = sending;
    }

    /// First byte of the request's range on the export.
    #[inline]
    pub(crate) fn offset(&self, cookie: u64) -> u64 {
        self.slots[tag_of(cookie)].start_byte()
    }

    /// Puts a part of a read where it belongs; the decoder has held it against the request.
    #[inline]
    pub(crate) fn put(&mut self, cookie: u64, offset: u64, mut bytes: &[u8]) {
        let slot = &mut self.slots[tag_of(cookie)];
        let start = slot.start_byte();
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
        let Some(Sent { pending, .. }) = &slot.sent else { return };
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
        let start = slot.start_byte();
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

    /// The consequence of this request's success for durability.
    #[inline]
    pub(crate) fn effect(&self, cookie: u64) -> Effect {
        self.slots[tag_of(cookie)].effect
    }

    /// Whether its payload has not gone out whole.
    #[inline]
    pub(crate) fn is_sending(&self, cookie: u64) -> bool {
        self.slots[tag_of(cookie)].sending
    }

    /// The reply is complete.
    #[inline]
    pub(crate) fn answered(&mut self, cookie: u64, status: Status, done: &mut Done) {
        let slot = &mut self.slots[tag_of(cookie)];
        let Some(Sent { tag, pending, .. }) = slot.sent.take() else { return };
        self.large -= usize::from(is_large_read(&pending));
        if slot.sending {
            // The rest of the payload still has to go out, and it lies in the lent memory.
            slot.early = Some((tag, Some(status)));
            return;
        }
        self.taken -= 1;
        slot.free();
        done.push_lent(tag, status, &mut slot.lent);
    }

    /// The server has refused the request because it goes away: it is to be sent again.
    #[cold]
    pub(crate) fn refused(&mut self, cookie: u64) {
        let slot = &mut self.slots[tag_of(cookie)];
        let Some(Sent { tag, pending, .. }) = slot.sent.take() else { return };
        self.large -= usize::from(is_large_read(&pending));
        if slot.sending {
            slot.early = Some((tag, None));
        } else {
            slot.free();
            self.requeued.push(tag);
        }
    }

    /// The payload of this write has been sent.
    pub(crate) fn sent(&mut self, tag: Tag) {
        let slot = &mut self.slots[usize::from(tag.0)];
        slot.sending = false;
        if let Some((tag, end)) = slot.early.take() {
            slot.free();
            self.end_early(tag, end);
        }
    }

    #[cold]
    fn end_early(&mut self, tag: Tag, end: Option<Status>) {
        match end {
            Some(status) => self.ended.push((tag, status)),
            None => self.requeued.push(tag),
        }
    }

    /// The connection is of no more use: takes every request on it off its slot. Those answered
    /// before their payload was sent end.
    #[cold]
    pub(crate) fn take_all(&mut self) -> Vec<Unanswered> {
        let (mut all, mut early) = (Vec::new(), Vec::new());
        for slot in &mut self.slots {
            if let Some(answer) = slot.early.take() {
                early.push(answer);
            } else if let Some(Sent { tag, pending, start }) = slot.sent.take() {
                let (lent, promise) = (std::mem::take(&mut slot.lent), slot.effect.promise());
                all.push(Unanswered { tag, cookie: slot.cookie, pending, lent, start, promise });
            } else {
                continue;
            }
            slot.sending = false;
            slot.free();
        }
        early.into_iter().for_each(|(tag, end)| self.end_early(tag, end));
        self.large = 0;
        self.parted += all.len();
        all
    }

    /// Puts a request taken off its slot back, to be sent again or to end.
    #[cold]
    pub(crate) fn give_back(&mut self, tag: Tag, lent: Vec<Data>, end: Option<Status>) {
        self.parted -= 1;
        self.slots[usize::from(tag.0)].lent = lent;
        match end {
            Some(status) => self.ended.push((tag, status)),
            None => self.requeued.push(tag),
        }
    }

    /// Hands over the answers that waited.
    pub(crate) fn give_ended(&mut self, done: &mut Done) {
        self.taken -= self.ended.len();
        for (tag, status) in self.ended.drain(..) {
            done.push_lent(tag, status, &mut self.slots[usize::from(tag.0)].lent);
        }
        if !self.requeued.is_empty() {
            self.give_requeued(done);
        }
    }

    #[cold]
    fn give_requeued(&mut self, done: &mut Done) {
        self.taken -= self.requeued.len();
        for tag in self.requeued.drain(..) {
            let lent = std::mem::take(&mut self.slots[usize::from(tag.0)].lent);
            done.push_requeue(tag, 0, lent);
        }
    }
}

impl Slot {
    /// First byte of the request's range on the export.
    #[inline]
    fn start_byte(&self) -> u64 {
        self.sent.as_ref().map_or(0, |sent| sent.pending.offset())
    }

    /// Its cookie is used up.
    #[inline]
    fn free(&mut self) {
        self.cookie = self.cookie.wrapping_add(1 << TAG_BITS);
    }

    /// The lent memory from byte `from` on.
    fn pieces(&mut self, mut from: u64) -> impl Iterator<Item = &mut [u8]> {
        let bufs = self.lent.iter_mut().flat_map(|data| data.bufs_mut().expect(BUFS));
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
        Data::None | Data::One(_) | Data::Many(_) | Data::Segments(_) => 0,
    };
    let zeros = std::iter::from_fn(move || {
        let here = zeros.min(ZEROS.len());
        zeros -= here;
        (here > 0).then(|| &ZEROS[..here])
    });
    data.bufs().expect(BUFS).iter().map(|buf| &buf[..]).chain(zeros)
}
