//! A request: one bio on its way, and the bios merged into it.
//!
//! It lives in a slot of its submitter's pool and is reached through a [`Claim`]; the holder of the
//! claim may touch it. Its buffers can be lent to a driver that needs them beyond one call.

use std::collections::VecDeque;

use weir_bio::{Bio, Data, Flags, Nanos, Op, Rq, RqId, SchedTag, Status};
use weir_ring::Claim;
use weir_sched::merge::Side;

use crate::command::Carried;
use crate::wbt::Kind;

/// A claim on a request: moved from queue to queue, never copied.
pub type RequestClaim = Claim<Request>;

/// As many requests as there are, those included that wait for a scheduler's tag: they are to wait
/// where each ends in its time.
pub(crate) const ALL: usize = usize::MAX;

/// The slots of a submitter from here on are those of its read-modify-writes: their requests go
/// past plug, scheduler and soft queue, and hold the sectors that they touch. Below are as many as
/// a queue of the largest depth needs.
pub(crate) const HOLDERS: u16 = 0xf000;

/// The slots of a submitter from here on are those of its commands, and how many there are.
pub(crate) const COMMANDS: u16 = 0xe000;
pub(crate) const COMMANDS_MAX: u16 = 1024;

/// The mark of a request that the dispatcher picked with a place of its device's budget, on its way
/// to the hard queue. No driver sees it.
pub(crate) const HAS_PLACE: Flags = Flags(1 << 31);

/// Whether a request is part of a read-modify-write.
#[inline]
pub(crate) fn is_holder(id: RqId) -> bool {
    // The device flush has the last slot, and no sector.
    id.slot() >= HOLDERS
}

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In its submitter's pool.
    Free,
    /// Accepted, and queued above the driver.
    Idle,
    /// The driver has it.
    InFlight,
    /// Ended; on its way to its submitter.
    Complete,
}

/// One bio on its way through the layer, with those merged into it.
///
/// Two lines of memory with the link of its claim, and laid out by hand: where submitter and lane
/// are threads of two CPUs, each line travels there and back.
#[derive(Debug)]
#[repr(C)]
pub struct Request {
    pub(crate) rq: Rq,
    merged: Option<Box<Merged>>,
    pub(crate) flush_step: FlushStep,
    pub(crate) state: State,
    pub(crate) status: Status,
    /// The counts it is in until it has ended.
    pub(crate) counted: Counted,
    /// Merged into another: it is no request of its own in the statistics.
    pub(crate) absorbed: bool,

    pub(crate) data: Data,
    pub(crate) accepted_at: Nanos,
    pub(crate) issued_at: Nanos,
    /// When it ended. Of one that the driver handed back, until then: when the driver first had it,
    /// for its time goes on.
    pub(crate) done_at: Nanos,
    pub(crate) cookie: u64,
    /// Which split this is a part of, [`Request::WHOLE`] if none.
    pub(crate) split: u32,
    /// It would have had to wait for a scheduler's tag or a fence, and may not: it never was a
    /// request.
    pub(crate) refused: bool,
    /// Its group has paid for it. Only said of one that may be refused.
    pub(crate) charged: bool,
    /// The driver has had it and handed it back, to be sent again.
    pub(crate) handed_back: bool,
    /// The bits of its sector that name a partition, which its driver does not see.
    pub(crate) partition_bits: u8,
}

const _: () = assert!(size_of::<Request>() + size_of::<usize>() <= 128);

/// The counts that a request is in, a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted(u8);

impl Counted {
    pub(crate) const NONE: Counted = Counted(0);
    /// Against `nr_requests` of the single queue.
    pub(crate) const POOL: Counted = Counted(1);

    /// Among the writes of a kind that the write-back throttle has let through.
    pub(crate) fn throttled(kind: Kind) -> Counted {
        Counted(2 << kind as u8)
    }

    pub(crate) fn add(&mut self, other: Counted) {
        self.0 |= other.0;
    }

    pub(crate) fn is_in(self, other: Counted) -> bool {
        self.0 & other.0 != 0
    }

    /// The kind as which the throttle counts it.
    pub(crate) fn kind(self) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| self.is_in(Counted::throttled(*kind)))
    }
}

/// The steps that the flush machine still has to take for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushStep {
    pub(crate) preflush: bool,
    pub(crate) data: bool,
    pub(crate) postflush: bool,
    /// The data is under way, and the machine is to hear of its end.
    pub(crate) in_data: bool,
}

impl FlushStep {
    /// Data and nothing else.
    pub(crate) const DATA: FlushStep =
        FlushStep { preflush: false, data: true, postflush: false, in_data: false };
}

/// The other bios of a merged request, ascending by sector around its own.
#[derive(Debug, Default)]
struct Merged {
    before: Vec<RequestClaim>,
    after: Vec<RequestClaim>,
    /// The command, in place of other bios.
    command: Option<Box<Carried>>,
}

impl Request {
    pub(crate) const WHOLE: u32 = u32::MAX;

    /// In place of a split: it is a command.
    pub(crate) const COMMAND: u32 = u32::MAX - 1;

    /// A free slot with this name.
    pub(crate) fn free(id: RqId) -> Request {
        Request {
            rq: Rq {
                sector: 0,
                sectors: 0,
                id,
                flags: Flags::NONE,
                group: weir_bio::GroupId(0),
                ioprio: weir_bio::IoPrio::NONE,
                hint: 0,
                tag: SchedTag::NONE,
                op: Op::Read,
                segments: 0,
            },
            data: Data::None,
            merged: None,
            cookie: 0,
            accepted_at: Nanos::ZERO,
            issued_at: Nanos::ZERO,
            done_at: Nanos::ZERO,
            split: Self::WHOLE,
            flush_step: FlushStep::default(),
            state: State::Free,
            status: Status::Ok,
            absorbed: false,
            counted: Counted::NONE,
            refused: false,
            charged: false,
            handed_back: false,
            partition_bits: 0,
        }
    }

    /// Puts a bio into a free slot.
    #[inline(always)]
    pub(crate) fn fill(&mut self, bio: &mut Bio, step: FlushStep, now: Nanos) {
        debug_assert_eq!(self.state, State::Free, "a slot is filled while in use");
        self.rq = rq_of(bio, self.rq.id.next_generation(), segments_of(&bio.data));
        self.data.put(match std::mem::take(&mut bio.data) {
            // Piece by piece: to read in one go what was written in two a moment ago is to wait.
            Data::One(buf) => Data::One(buf),
            other => other,
        });
        self.cookie = bio.cookie;
        self.accepted_at = now;
        self.split = Self::WHOLE;
        self.state = State::Idle;
        self.status = Status::Ok;
        self.absorbed = false;
        self.counted = Counted::NONE;
        self.refused = false;
        self.handed_back = false;
        self.flush_step = step;
    }

    /// The small view policies see.
    #[must_use]
    #[inline]
    pub fn rq(&self) -> &Rq {
        &self.rq
    }

    /// Its op.
    #[must_use]
    #[inline]
    pub fn op(&self) -> Op {
        self.rq.op
    }

    /// How.
    #[must_use]
    #[inline]
    pub fn flags(&self) -> Flags {
        self.rq.flags
    }

    /// First byte on the device: of a partition's request on the partition.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> u64 {
        ((self.rq.sector << self.partition_bits) >> self.partition_bits) * weir_bio::SECTOR
    }

    /// Length on the device, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        u64::from(self.rq.sectors) * weir_bio::SECTOR
    }

    /// Whether it covers nothing: a flush.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rq.sectors == 0
    }

    /// Bios in it.
    #[must_use]
    pub fn bios(&self) -> usize {
        1 + self.merged.as_ref().map_or(0, |m| m.before.len() + m.after.len())
    }

    /// The command block, of a passthrough command.
    #[must_use]
    pub fn cdb(&self) -> Option<&[u8]> {
        let carried = self.merged.as_ref()?.command.as_ref()?;
        Some(carried.command.cdb())
    }

    pub(crate) fn put_command(&mut self, carried: Carried) {
        self.merged.get_or_insert_default().command = Some(Box::new(carried));
    }

    pub(crate) fn carried(&mut self) -> Option<&mut Carried> {
        self.merged.as_mut()?.command.as_deref_mut()
    }

    pub(crate) fn take_command(&mut self) -> Carried {
        let carried = self.merged.as_mut().and_then(|merged| merged.command.take());
        *carried.expect("a command in its slot")
    }

    /// The memory of a read or write that is one bio; `None`: there are others in it, or it has
    /// none.
    #[inline]
    pub fn lone_data(&mut self) -> Option<&mut Data> {
        (self.rq.op.has_data() && self.merged.is_none()).then_some(&mut self.data)
    }

    /// Calls `visit` with the memory of each bio, ascending by sector.
    #[inline]
    pub fn for_each_data(&mut self, mut visit: impl FnMut(&mut Data)) {
        let Some(merged) = &mut self.merged else { return visit(&mut self.data) };
        for part in &mut merged.before {
            visit(&mut part.data);
        }
        visit(&mut self.data);
        for part in &mut merged.after {
            visit(&mut part.data);
        }
    }

    /// Answers a read with zeros, without writing them but to segments; does nothing to what is no
    /// read.
    #[inline(always)] // A call for each request of a driver that does little else is 5 % of it.
    pub fn read_as_zeros(&mut self) {
        let read = self.rq.op == Op::Read;
        match &self.merged {
            None => self.data.become_zeros_if(read),
            Some(_) => self.all_become_zeros_if(read),
        }
    }

    #[inline(never)]
    fn all_become_zeros_if(&mut self, zeros: bool) {
        self.for_each_data(|data| data.become_zeros_if(zeros));
    }

    /// Moves all memory to `lent`, so that the driver owns it while it may still be touched. It
    /// comes back with [`Done::push_lent`](crate::driver::Done::push_lent), in the same order. A
    /// request without data lends [`Data::None`] for each bio, which comes back likewise: all
    /// requests can be treated alike. One that was not lent is answered with
    /// [`Done::push`](crate::driver::Done::push).
    pub fn lend(&mut self, lent: &mut Vec<Data>) {
        self.for_each_data(|data| lent.push(std::mem::take(data)));
    }

    /// Takes lent memory back, which is the first so many of `lent`.
    #[inline(always)]
    pub(crate) fn take_back(&mut self, pieces: usize, lent: &mut VecDeque<Data>) {
        if pieces == 1 && self.merged.is_none() {
            return self.data.put(lent.pop_front().expect("a piece of memory"));
        }
        self.take_all_back(pieces, lent);
    }

    #[inline(never)]
    fn take_all_back(&mut self, pieces: usize, lent: &mut VecDeque<Data>) {
        let mut lent = lent.drain(..pieces);
        self.for_each_data(|data| {
            *data = lent.next().expect("a driver gives back all the memory it was lent");
        });
        assert!(lent.next().is_none(), "a driver gives back more memory than it was lent");
    }

    /// Joins `gone` at this side.
    pub(crate) fn absorb(&mut self, gone: RequestClaim, side: Side) {
        match side {
            Side::Back => self.absorb_back(gone),
            Side::Front => self.absorb_front(gone),
        }
    }

    /// Joins `gone`, which starts where this one ends.
    pub(crate) fn absorb_back(&mut self, mut gone: RequestClaim) {
        self.rq.take_in(&gone.rq);
        gone.absorbed = true;
        let (before, after) = gone.take_merged();
        let merged = self.merged.get_or_insert_default();
        merged.after.extend(before);
        merged.after.push(gone);
        merged.after.extend(after);
    }

    /// Joins `gone`, which ends where this one starts.
    pub(crate) fn absorb_front(&mut self, mut gone: RequestClaim) {
        self.rq.take_in(&gone.rq);
        gone.absorbed = true;
        let (before, after) = gone.take_merged();
        let merged = self.merged.get_or_insert_default();
        merged.before.splice(0..0, before.into_iter().chain([gone]).chain(after));
    }

    /// The driver has handed it back.
    #[cold]
    pub(crate) fn hand_back(&mut self) {
        self.done_at = self.begun_at();
        self.handed_back = true;
    }

    /// When a driver first had it.
    pub(crate) fn begun_at(&self) -> Nanos {
        if self.handed_back { self.done_at } else { self.issued_at }
    }

    fn take_merged(&mut self) -> (Vec<RequestClaim>, Vec<RequestClaim>) {
        let Some(merged) = &mut self.merged else { return (Vec::new(), Vec::new()) };
        merged.leave_own(&mut self.rq);
        (std::mem::take(&mut merged.before), std::mem::take(&mut merged.after))
    }

    /// When the oldest of its bios was accepted.
    #[cold]
    pub(crate) fn oldest(&self) -> Nanos {
        let merged =
            self.merged.iter().flat_map(|merged| merged.before.iter().chain(&merged.after));
        merged.map(|part| part.accepted_at).fold(self.accepted_at, Nanos::min)
    }

    /// Whether bios were ever merged into this slot: then it may hold some now.
    #[inline]
    pub(crate) fn is_merged(&self) -> bool {
        self.merged.is_some()
    }

    /// Gives each merged bio this request's outcome and times and hands it to `release`; what is
    /// left is this request's own bio.
    #[inline(never)]
    pub(crate) fn release_merged(&mut self, mut release: impl FnMut(RequestClaim)) {
        let Some(merged) = &mut self.merged else { return };
        merged.leave_own(&mut self.rq);
        for mut part in merged.before.drain(..).chain(merged.after.drain(..)) {
            part.issued_at = self.issued_at;
            part.done_at = self.done_at;
            (part.status, part.refused) = (self.status, self.refused);
            part.state = State::Complete;
            release(part);
        }
    }
}

/// A bio as policies see it.
#[inline(always)]
pub(crate) fn rq_of(bio: &Bio, id: RqId, segments: u8) -> Rq {
    Rq {
        sector: bio.sector,
        sectors: bio.sectors,
        id,
        flags: bio.flags,
        group: bio.group,
        ioprio: bio.ioprio,
        hint: bio.hint,
        tag: SchedTag::NONE,
        op: bio.op,
        segments,
    }
}

impl Merged {
    /// Cuts `rq` back to what its own bio covers. The parts have been cut back when they joined.
    #[inline]
    fn leave_own(&self, rq: &mut Rq) {
        for part in &self.before {
            rq.sector += u64::from(part.rq.sectors);
            rq.sectors -= part.rq.sectors;
        }
        for part in &self.after {
            rq.sectors -= part.rq.sectors;
        }
    }
}

const _: () = assert!(
    std::mem::size_of::<Request>() <= 120,
    "a slot is two cache lines, and a claim's link takes 8 bytes of them"
);

#[inline]
fn segments_of(data: &Data) -> u8 {
    match data {
        Data::None => 0,
        Data::Zero { .. } | Data::One(_) => 1,
        Data::Many(bufs) => bufs.len().min(255) as u8,
        Data::Segments(segments) => segments.as_slice().len().min(255) as u8,
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        // A request that disappears unfinished is a caller waiting for ever.
        if self.state != State::Free && !std::thread::panicking() {
            debug_assert_eq!(self.state, State::Free, "request {:?} dropped unfinished", self.rq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{Buf, SubmitterId};

    #[test]
    fn the_time_of_one_that_is_handed_back_goes_on_from_when_the_driver_first_had_it() {
        let mut request = Request::free(RqId::new(SubmitterId(0), 0, 0));
        let fill = |request: &mut Request| {
            request.fill(&mut Bio::read(0, Buf::zeroed(512)), FlushStep::DATA, Nanos(1));
        };
        fill(&mut request);
        request.issued_at = Nanos(5);
        assert_eq!(request.begun_at(), Nanos(5));
        for again in [9, 14] {
            request.hand_back();
            request.issued_at = Nanos(again);
            assert_eq!(request.begun_at(), Nanos(5), "sent again at {again}");
        }
        (request.done_at, request.state) = (Nanos(20), State::Free);
        request.data = Data::None;
        fill(&mut request);
        request.issued_at = Nanos(30);
        assert_eq!(request.begun_at(), Nanos(30), "the slot has another bio");
        request.state = State::Free;
    }
}
