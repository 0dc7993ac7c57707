//! The transmission phase of one connection: requests in, bios out, completions back, replies out.
//!
//! A session has no socket: bytes are handed in, replies go to an [`Outbox`]. Requests under way
//! are bounded in number and bytes; beyond that the session takes nothing in, and the client's own
//! socket fills up.

mod backlog;
mod class;
mod effects;
mod gather;
mod memory;
mod unaligned;

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Limits, Nanos, Op, SECTOR};
use weir_control::PeerPriority;
use weir_live::Seat;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::server::{
    Act, Checked, Decoded, Geometry, Negotiated, Range, Reject, Replies, Then, decode,
};
use weir_proto_nbd::wire::{Mode, ReplyTo, Request};
use weir_queue::{Kept, Member};

use crate::answers::Answers;
use crate::budget::Quota;
use crate::export::Served;
use crate::outbox::Outbox;
use crate::payload::Payload;
use crate::pool::{Pool, room};
use crate::share::Share;
use crate::slots::{Slot, Slots, Work};
use crate::survey::{self, Asker, Found, Question};
use backlog::Backlog;
use class::Priority;
use gather::Gathering;
use unaligned::Cut;

/// Requests a client may have under way.
const REQUESTS_MAX: usize = 2048;

/// Bytes owed to a client, read or to be read, and bytes it has written that are not done, beyond
/// which no further request is taken in.
const OWED_MAX: usize = 32 << 20;

/// Pieces of effects (trim, zeroes, prefetch) that one connection has with the device at a time.
const PIECES_MAX: usize = 2;

/// Longest piece of an effect that only marks a range, sectors: 1 TiB, or what the device takes.
const MARK_MAX: u32 = 1 << 31;

/// Longest piece of one that moves data, sectors: 8 MiB, and for a group with a cap 1 MiB, so that
/// what is ahead of the cap holds the others of the group back for a moment only.
const MOVE_MAX: u32 = 16 << 10;
/// See [`MOVE_MAX`].
const CAPPED_MAX: u32 = 2 << 10;

/// After a piece others of the group may ask a cap so much earlier, ns. Less than what a group may
/// be ahead of a cap, so that none of its allowance is lost.
const YIELD_NS: u64 = 5_000_000;

/// Why a connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It said so.
    Disconnect,
    /// It broke the protocol, in words.
    Violation(String),
    /// It went away before a cap of its group let in what it had sent.
    HeldBack,
}

/// A bio refused for now, with what it keeps of its blocks if it is a patch.
struct Held {
    bio: Bio,
    kept: Kept,
}

/// The transmission phase of one connection.
pub(crate) struct Session {
    pub(crate) seat: Seat,
    pub(crate) export: Arc<Served>,
    geometry: Geometry,
    replies: Replies,
    /// The id of `base:allocation`, where it was agreed on.
    pub(crate) context: u32,
    member: Member,
    priority: Priority,
    /// Its writes are background writes.
    background: bool,
    /// A cap of its group lets nothing in before this.
    throttled_until: Option<Nanos>,
    /// What caps have held back.
    pub(crate) backlog: Backlog,
    /// Effects of which no piece is with the device; they take turns.
    waiting: VecDeque<u32>,
    /// Pieces that are.
    pieces: usize,
    /// A cap of its group lets no further piece in before this.
    pieces_until: Option<Nanos>,
    /// A request was let in since a piece was: of the two, the piece is next.
    pub(crate) pieces_first: bool,
    /// One was let in since a cap was last waited for: others of the group come first now.
    yields: bool,
    /// The limits of the device.
    limits: Limits,
    slots: Slots,
    /// Bytes of memory with requests under way.
    lent: usize,
    /// The memory that the session may hold.
    pub(crate) quota: Quota,
    /// The next request is more than that: it stays where it is.
    pub(crate) short: bool,
    /// What it has taken in in this round.
    share: Share,
    /// The next request waits for the next round.
    pub(crate) paused: bool,
    /// A read that waits for its memory.
    gathering: Option<Gathering>,
    /// Bios refused for now, oldest first. While there are any, nothing is taken in.
    held: VecDeque<Held>,
    /// The ends of effects that begin or end inside a block.
    edges: Vec<unaligned::Edges>,
    /// The WRITE whose payload is being received.
    payload: Option<Payload>,
    /// Payload of a refused request that is still to come.
    drain: u32,
    /// Something was submitted since the plug was last flushed.
    submitted: bool,
    questions: Vec<Question>,
    /// The session's place in the lines of the surveyor, once it has asked something.
    pub(crate) asker: Option<Asker>,
    /// No request is taken in any more.
    pub(crate) end: Option<End>,
    /// Requests are refused from now on: the server is going away.
    pub(crate) stopping: bool,
    /// The client is gone: what it asked to be done is done as far as its caps let it in at once,
    /// what it wanted to know is not.
    deaf: bool,
}

impl Session {
    pub(crate) fn new(
        seat: Seat,
        limits: Limits,
        agreed: &Negotiated,
        member: Member,
        export: &Arc<Served>,
        quota: Quota,
        process: PeerPriority,
    ) -> Session {
        Session {
            seat,
            export: Arc::clone(export),
            geometry: Geometry { start: export.slice.offset, ..agreed.geometry() },
            replies: agreed.replies(),
            context: agreed.allocation.unwrap_or(0),
            member,
            priority: Priority::of(export.ioprio, process),
            background: export.background,
            throttled_until: None,
            backlog: Backlog::default(),
            waiting: VecDeque::new(),
            pieces: 0,
            pieces_until: None,
            pieces_first: false,
            yields: false,
            limits,
            slots: Slots::default(),
            lent: 0,
            quota,
            short: false,
            share: Share::default(),
            paused: false,
            gathering: None,
            held: VecDeque::new(),
            edges: Vec::new(),
            payload: None,
            drain: 0,
            submitted: false,
            questions: Vec::new(),
            asker: None,
            end: None,
            stopping: false,
            deaf: false,
        }
    }

    /// Whether no request may be taken in until something is done or sent.
    #[inline]
    pub(crate) fn is_full(&self, out: &Outbox) -> bool {
        !self.held.is_empty()
            || self.throttled_until.is_some()
            || self.short
            || self.slots.len() >= REQUESTS_MAX
            || self.lent + out.bytes() >= OWED_MAX
    }

    /// Whether everything taken in has been answered.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.len() == 0 && self.held.is_empty() && self.gathering.is_none()
    }

    /// Whether it goes on in the next round without being told.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused || self.gathering.is_some()
    }

    /// Whether memory for the next bytes of the payload may be taken in this round.
    pub(crate) fn has_place(&mut self, pool: &Pool) -> bool {
        let missing = self.payload.as_ref().map_or(0, Payload::unplaced);
        let placed = missing == 0 || pool.serves(missing);
        self.paused |= !placed;
        placed
    }

    /// Whether a payload is being received.
    pub(crate) fn is_receiving(&self) -> bool {
        self.payload.is_some()
    }

    /// The payload that is being received.
    pub(crate) fn payload(&mut self) -> Option<&mut Payload> {
        self.payload.as_mut()
    }

    /// Questions that came up since last asked.
    pub(crate) fn take_questions(&mut self) -> Vec<Question> {
        std::mem::take(&mut self.questions)
    }

    /// Takes requests off the front of `bytes`; how many bytes it used. It leaves the beginning of
    /// a header, and everything behind a point where the session is full or at its end.
    /// [`Session::flush`] has to follow.
    pub(crate) fn take_in(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        pool: &mut Pool,
        now: Nanos,
    ) -> usize {
        let mut at = self.drop_refused(bytes);
        self.priority.ask_again(now);
        while self.end.is_none() && !self.is_full(out) && !self.is_paused() {
            let request = match decode(self.geometry.mode, &bytes[at..]) {
                Decoded::Request(request) => request,
                Decoded::NeedMore => break,
                Decoded::BadMagic(bad) => {
                    self.end = Some(End::Violation(bad.to_string()));
                    break;
                }
            };
            let checked = self.geometry.check(&request);
            if !self.affords(&checked, out, pool, now)
                || checked.as_ref().is_ok_and(|checked| !self.admit(checked, now))
            {
                // The client has left and waits for no answer, so the connection does not wait for
                // the cap: the request is not done, nor are those behind it.
                self.end = (self.deaf && !self.paused).then_some(End::HeldBack);
                break;
            }
            at += self.geometry.mode.request_len();
            at += self.request(&request, checked, &bytes[at..], out, pool, now);
        }
        at
    }

    /// Whether the caps of its group accept a request now; if not, nothing is taken in for a while.
    /// Effects pay piece by piece. Requests that will not be carried out cost nothing: all requests
    /// once the server stops, and questions of a client that is gone.
    #[inline]
    fn admit(&mut self, checked: &Checked, now: Nanos) -> bool {
        let (write, bytes) = match checked {
            Checked::Read { range, .. } => (false, range.length),
            Checked::Write { range, .. } => (true, range.length),
            Checked::Unaligned { range, act: Act::Read { .. } } => (false, range.length),
            Checked::Unaligned { range, act: Act::Write { .. } } => (true, range.length),
            _ => return true,
        };
        if self.stopping || (self.deaf && !write) {
            return true;
        }
        if self.member.is_capped() {
            return self.admit_capped(write, bytes, now);
        }
        self.member.count(write, bytes);
        self.pieces_first = true;
        true
    }

    /// When a cap that holds it back is to be asked again.
    pub(crate) fn throttled_until(&self) -> Option<Nanos> {
        [self.throttled_until, self.pieces_until].into_iter().flatten().min()
    }

    /// Asks its caps again with the next request.
    pub(crate) fn ask_caps_again(&mut self) {
        (self.throttled_until, self.pieces_until) = (None, None);
    }

    /// Drops payload of a refused request; how much of it was in `bytes`.
    fn drop_refused(&mut self, bytes: &[u8]) -> usize {
        let dropped = bytes.len().min(self.drain as usize);
        self.drain -= dropped as u32;
        dropped
    }

    /// Deals with one request; returns how many bytes behind its header it used.
    #[inline]
    fn request(
        &mut self,
        request: &Request,
        checked: Result<Checked, Reject>,
        behind: &[u8],
        out: &mut Outbox,
        pool: &mut Pool,
        now: Nanos,
    ) -> usize {
        let to = request.reply_to();
        match checked {
            Ok(Checked::Disconnect) => {
                self.end = Some(End::Disconnect);
                0
            }
            Ok(_) if self.stopping => self.refuse_stopping(request, behind, out, pool),
            Ok(Checked::Read { .. } | Checked::Cache { .. } | Checked::BlockStatus { .. })
                if self.deaf =>
            {
                0
            }
            Ok(Checked::Read { range, whole }) => {
                self.read(to, range, Work::Read { whole }, pool, now);
                0
            }
            Ok(Checked::Write { range, fua }) => self.write(to, range, fua, behind, pool, now),
            Ok(Checked::Flush) => {
                let slot = self.slots.add(Slot { to, bytes: 0, work: Work::Plain });
                self.submit(Bio::flush().cookie(u64::from(slot)), now);
                0
            }
            Ok(Checked::BlockStatus { range, one }) => {
                self.question(to, range, one, Cut::default());
                0
            }
            Ok(Checked::Unaligned { range, act }) => {
                self.unaligned(to, range, act, behind, out, pool, now)
            }
            Ok(checked) => {
                self.effect(to, checked, now);
                0
            }
            Err(reject) => {
                out.put(pool, |out| self.replies.reject(to, &reject, out));
                self.refuse_payload(reject.then, behind, &reject)
            }
        }
    }

    /// Asks what is allocated in a range of whole sectors; the answer is cut.
    fn question(&mut self, to: ReplyTo, range: Range, one: bool, cut: Cut) {
        let length = range.length - u64::from(cut.front) - u64::from(cut.back);
        let work = Work::Status { length, one, front: cut.front };
        // Paid for before it is looked for.
        let bytes = survey::price(range, one);
        self.lent += bytes as usize;
        let slot = self.slots.add(Slot { to, bytes, work });
        self.questions.push(Question { slot, range, one });
    }

    /// Drops the payload of a refused request, or ends the session where that cannot be done.
    #[cold]
    fn refuse_payload(&mut self, then: Then, behind: &[u8], why: &dyn std::fmt::Display) -> usize {
        match then {
            Then::Drain(length) => {
                self.drain = length;
                self.drop_refused(behind)
            }
            Then::Close => {
                self.end = Some(End::Violation(why.to_string()));
                0
            }
        }
    }

    #[cold]
    fn refuse_stopping(
        &mut self,
        request: &Request,
        behind: &[u8],
        out: &mut Outbox,
        pool: &mut Pool,
    ) -> usize {
        let (to, words) = (request.reply_to(), "server is shutting down");
        out.put(pool, |out| self.replies.error(to, NbdError::Shutdown, words, out));
        // A request that passed the check has at most the maximum payload.
        self.drain = request.payload_len(self.geometry.mode) as u32;
        self.drop_refused(behind)
    }

    #[inline]
    fn write(
        &mut self,
        to: ReplyTo,
        range: Range,
        fua: bool,
        behind: &[u8],
        pool: &mut Pool,
        now: Nanos,
    ) -> usize {
        self.receive(Payload::new(to, range, fua), behind, pool, now)
    }

    #[inline]
    fn receive(
        &mut self,
        mut payload: Payload,
        behind: &[u8],
        pool: &mut Pool,
        now: Nanos,
    ) -> usize {
        let length = payload.missing();
        let here = length.min(behind.len());
        payload.copy_in(&behind[..here], pool);
        if here < length {
            self.payload = Some(payload);
        } else {
            self.submit_write(payload, now);
        }
        here
    }

    /// Submits the WRITE whose payload has just become whole, if it has.
    pub(crate) fn payload_received(&mut self, now: Nanos) {
        if let Some(payload) = self.payload.take_if(|payload| payload.missing() == 0) {
            self.submit_write(payload, now);
        }
    }

    #[inline]
    fn submit_write(&mut self, payload: Payload, now: Nanos) {
        let Payload { to, range, fua, kept, .. } = payload;
        if kept.lead | kept.trail != 0 {
            return self.submit_patch_of(payload, now);
        }
        let data = payload.into_data();
        let bytes = self.lend(&data);
        let durable = if fua { Flags::FUA } else { Flags::NONE };
        let flags = Flags::SYNC | Flags::IDLE | durable;
        let slot = Slot { to, bytes, work: Work::Plain };
        self.submit_range(Op::Write, flags, range, data, slot, now);
    }

    #[inline]
    fn lend(&mut self, data: &Data) -> u32 {
        let bytes = room(data.len());
        self.lent += bytes;
        bytes as u32
    }

    #[inline]
    fn submit_range(
        &mut self,
        op: Op,
        flags: Flags,
        range: Range,
        data: Data,
        slot: Slot,
        now: Nanos,
    ) {
        let slot = self.slots.add(slot);
        let sectors = (range.length / SECTOR) as u32;
        let bio = Bio::new(op, range.offset / SECTOR, sectors, data).with(flags);
        self.submit(bio.cookie(u64::from(slot)), now);
    }

    #[inline]
    fn submit(&mut self, mut bio: Bio, now: Nanos) {
        self.dress(&mut bio);
        if !self.held.is_empty() {
            self.held.push_back(Held { bio, kept: Kept::default() });
            return;
        }
        // Its group paid when the request was taken in.
        match self.seat.submitter.submit_paid(bio, now) {
            Ok(()) => self.submitted = true,
            Err(refused) => self.hold_back(refused.into_bio(), Kept::default()),
        }
    }

    #[cold]
    fn hold_back(&mut self, bio: Bio, kept: Kept) {
        self.held.push_back(Held { bio, kept });
    }

    /// Submits what was refused before, until something is refused again.
    #[cold]
    fn submit_held(&mut self, now: Nanos) {
        while let Some(Held { bio, kept }) = self.held.pop_front() {
            let submitter = &mut self.seat.submitter;
            let taken = match kept.lead | kept.trail {
                0 => submitter.submit_paid(bio, now),
                _ => submitter.submit_patch(bio, kept, now),
            };
            match taken {
                Ok(()) => self.submitted = true,
                Err(refused) => {
                    self.held.push_front(Held { bio: refused.into_bio(), kept });
                    break;
                }
            }
        }
    }

    /// Ends a burst of submissions.
    #[inline]
    pub(crate) fn flush(&mut self, now: Nanos) {
        if self.submitted {
            self.submitted = false;
            self.seat.submitter.flush_plug(now);
        }
    }

    /// Takes what has ended, puts the replies into `out`, and submits what follows: later parts,
    /// the flush behind a durable effect, and what was refused before.
    pub(crate) fn complete(&mut self, out: &mut Outbox, pool: &mut Pool, now: Nanos) {
        let (replies, mode) = (self.replies, self.geometry.mode);
        let (slots, lent) = (&mut self.slots, &mut self.lent);
        let onward = Vec::new();
        let mut answers = Answers { slots, lent, replies, mode, out, pool, onward, pieces: 0 };
        self.seat.submitter.complete(now, |completion| answers.take(completion));
        self.pieces -= answers.pieces;
        for slot in std::mem::take(&mut answers.onward) {
            match &self.slots.at(slot).work {
                Work::Effect(_) => self.waiting.push_back(slot),
                // The effect is done everywhere and only has to become durable.
                _ => self.submit(Bio::flush().cookie(u64::from(slot)), now),
            }
        }
        if !self.held.is_empty() {
            self.submit_held(now);
        }
        self.submit_pieces(now);
        self.flush(now);
    }

    /// The client reads no answers any more.
    pub(crate) fn deafen(&mut self, pool: &mut Pool) {
        self.deaf = true;
        self.drop_gathering(pool);
        self.asker = None;
        self.questions.clear();
        self.lent -= self.slots.drop_questions();
        self.ask_caps_again();
    }

    /// Answers a question.
    pub(crate) fn answer(&mut self, slot: u32, found: &Found, out: &mut Outbox, pool: &mut Pool) {
        if self.deaf {
            // Its slot is free, or another's.
            return;
        }
        let Slot { to, bytes, work } = self.slots.remove(slot);
        self.lent -= bytes as usize;
        let Work::Status { length, one, front } = work else {
            unreachable!("slot {slot} was not asked about")
        };
        let query = weir_proto_nbd::server::StatusQuery { context: self.context, length, one };
        let replies = self.replies;
        out.put(pool, |out| match found {
            Ok(extents) => {
                let cut = unaligned::cut_extents(extents, u64::from(front), length);
                replies.block_status(to, query, cut, out);
            }
            Err(words) => replies.error(to, NbdError::Io, words, out),
        });
    }

    /// Gives back the session's memory. Requests under way end without the session.
    pub(crate) fn dissolve(mut self, pool: &mut Pool) -> Seat {
        self.drop_gathering(pool);
        let Session { mut seat, mut quota, payload, held, lent, .. } = self;
        if let Some(payload) = payload {
            payload.discard(pool);
        }
        held.into_iter().for_each(|held| pool.give_data(held.bio.data));
        if seat.submitter.in_flight() > 0 {
            quota.outlive(lent);
            seat.submitter.bequeath(quota);
        }
        seat
    }

    /// How requests and replies look.
    pub(crate) fn mode(&self) -> Mode {
        self.geometry.mode
    }
}
