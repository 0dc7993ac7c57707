//! Bios that are carried out in parts: cut to the device's limits, and put together again.

use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Status};

use super::Core;
use crate::completion::{Completion, Why};
use crate::config::Spread;
use crate::event::Sink;
use crate::request::{Counted, FlushStep, Request, RequestClaim, is_holder};
use crate::split;

/// Requests of one patch that may be under way.
const OF_PATCH_MAX: u32 = 4;

/// A bio that is carried out in parts, of which there may be but one.
#[derive(Debug)]
pub(crate) struct SplitBio {
    /// Parts under way.
    left: u32,
    /// The rest of the bio, for which there is no slot yet.
    rest: Option<Bio>,
    step: FlushStep,
    /// One part after another, on this lane (round-robin spread).
    serial: Option<usize>,
    /// The patch that it is a step of.
    patch: Option<usize>,
    /// The write-back throttle has let the next part through.
    pub(super) granted: Counted,
    status: Status,
    cookie: u64,
    op: Op,
    sectors: u32,
    data: Vec<(u64, Data)>,
    /// The caller's memory of parts that travel with other memory, by their first sector.
    bounced: Vec<(u64, Data)>,
    wait_ns: u64,
    device_ns: u64,
}

impl Core {
    /// Whether one request of one segment carries it.
    pub(super) fn is_whole(&self, bio: &Bio) -> bool {
        bio.sectors <= self.snapshot.whole_sectors
            && split::is_one_segment(&bio.data, &self.snapshot.limits)
    }

    pub(crate) fn submit_large(
        &mut self,
        bio: &mut Bio,
        step: FlushStep,
        charged: bool,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        let limits = &self.snapshot.limits;
        let whole = |sectors| sectors == bio.sectors;
        match split::front(bio, limits) {
            Ok(sectors) if whole(sectors) && split::is_reachable(&bio.data, limits) => {
                let Some(counted) = self.pass_throttle(bio, step, now, false) else {
                    return self.hold_back(bio, step, charged);
                };
                let mut claim = self.measured(bio, step, now, sink);
                (claim.charged, claim.counted) = (charged, counted);
                self.route(claim, bio, now, sink)
            }
            // Looked at as a whole, so that nothing of it is sent. Memory that is moved may have to
            // be cut.
            Ok(sectors)
                if !whole(sectors) && !split::blocks_fit(bio, limits)
                    || bio.flags.has(Flags::ATOMIC) =>
            {
                self.end_unsent_unpaid(bio, Status::Inval, charged);
                Ok(())
            }
            Ok(_) => {
                let serial = (self.shared.config.spread == Spread::RoundRobin)
                    .then(|| (self.shared.next_ring.next() % self.rings.len() as u64) as usize);
                let bio = Bio { data: std::mem::take(&mut bio.data), ..*bio };
                let index = self.add_parts(SplitBio { serial, ..SplitBio::of(bio, step) });
                self.issue_parts(index, now, sink);
                Ok(())
            }
            Err(status) => {
                self.end_unsent_unpaid(bio, status, charged);
                Ok(())
            }
        }
    }

    pub(super) fn add_parts(&mut self, parts: SplitBio) -> usize {
        let index = self.parts.iter().position(Option::is_none).unwrap_or_else(|| {
            self.parts.push(None);
            self.parts.len() - 1
        });
        self.parts[index] = Some(parts);
        index
    }

    /// A slot with a bio in it whose memory is not simply one segment.
    fn measured(
        &mut self,
        bio: &mut Bio,
        step: FlushStep,
        now: Nanos,
        sink: impl Sink,
    ) -> RequestClaim {
        let limits = &self.snapshot.limits;
        let segments = split::segments(&bio.data, limits);
        if !split::starts_on_boundary(&bio.data, limits) {
            bio.flags |= Flags::NOMERGE;
        }
        let mut claim = self.slot_of(bio, step, now, sink);
        claim.rq.segments = segments;
        claim
    }

    /// Sends as many parts as there are slots for (one, if they follow one another).
    pub(super) fn issue_parts(&mut self, index: usize, now: Nanos, sink: impl Sink) {
        loop {
            let parts = self.parts[index].as_ref().expect("parts under way");
            let (under_way, of_patch) = (parts.left, parts.patch.is_some());
            let stays = parts.serial.is_some() && under_way > 0;
            if stays || of_patch && under_way >= OF_PATCH_MAX || parts.rest.is_none() {
                return;
            }
            if of_patch {
                self.push_holder();
            }
            let full = self.free.is_empty() && !self.make_slot();
            let parts = self.parts[index].as_mut().expect("parts under way");
            let Some(mut bio) = parts.rest.take() else { return };
            if full {
                parts.rest = Some(bio);
                self.backlog.push_back(index);
                return;
            }
            let (step, serial, granted) = (parts.step, parts.serial, parts.granted);
            parts.granted = Counted::NONE;
            let counted = match granted {
                _ if of_patch || serial.is_some() => Some(Counted::NONE),
                Counted::NONE => self.pass_throttle(&bio, step, now, true),
                granted => Some(granted),
            };
            let Some(counted) = counted else {
                self.hold(index, bio);
                return;
            };
            let parts = self.parts[index].as_mut().expect("parts under way");
            parts.left += 1;
            // An error was ruled out when the first part was cut: flags do not change.
            let sectors = match bio.sectors {
                0 => 0,
                all => split::front(&bio, &self.snapshot.limits).unwrap_or(all),
            };
            if sectors < bio.sectors {
                parts.rest = Some(split::cut(&mut bio, sectors));
            }
            if !split::is_reachable(&bio.data, &self.snapshot.limits) {
                parts.bounce(&mut bio, &self.snapshot.limits);
            }
            let mut claim = self.measured(&mut bio, step, now, sink);
            (claim.split, claim.counted) = (index as u32, counted);
            // Parts are put together by where they started; a front merge may move `rq.sector`.
            claim.cookie = claim.rq.sector;
            match serial {
                _ if of_patch => self.send_holder(claim, now, sink),
                Some(lane) => self.push(lane, claim, sink),
                None => {
                    let routed = self.route(claim, &mut bio, now, sink);
                    assert!(routed.is_ok(), "a part of an accepted bio is not refused");
                }
            }
        }
    }

    #[cold]
    pub(crate) fn send_backlog(&mut self, now: Nanos, sink: impl Sink) {
        for _ in 0..self.backlog.len() {
            if self.free.is_empty() {
                break;
            }
            let index = self.backlog.pop_front().expect("counted");
            self.issue_parts(index, now, sink);
        }
        self.flush_plug(now, sink);
    }

    /// As [`take_apart`](Core::take_apart) for a part of a bio. `None` while parts are missing.
    #[cold]
    pub(crate) fn take_part(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<Completion> {
        if claim.split == Request::COMMAND {
            self.take_command(claim);
            return None;
        }
        let (index, sector) = (claim.split as usize, claim.cookie);
        let of_patch = is_holder(claim.rq.id);
        if of_patch && claim.refused {
            return self.hold_taken(claim, now, sink);
        }
        let mut part = self.take_apart(claim);
        if of_patch {
            self.pop_holder();
        }
        let parts = self.parts[index].as_mut().expect("parts under way");
        parts.left -= 1;
        // The first error, but a time-out above all: the device may have some of the memory yet.
        if parts.status.is_ok() || part.status == Status::Timeout {
            parts.status = part.status;
        }
        parts.give_back_own(sector, &mut part);
        parts.data.push((sector, part.data));
        parts.wait_ns = parts.wait_ns.max(part.wait_ns);
        parts.device_ns = parts.device_ns.max(part.device_ns);
        // A window that failed is the last one (docs/behaviour/block-layer.md, section 14). And a
        // device that let one part run out of time is asked for no more: each further part would
        // have its own time.
        let in_turn = parts.serial.is_some() || of_patch;
        let fails = in_turn && !parts.status.is_ok();
        if (fails || parts.status == Status::Timeout)
            && let Some(rest) = parts.rest.take()
        {
            parts.data.push((rest.sector, rest.data));
            self.forget_waiting(index, now);
        }
        let parts = self.parts[index].as_mut().expect("parts under way");
        if parts.rest.is_some() {
            if of_patch || parts.serial.is_some() && parts.left == 0 {
                self.issue_parts(index, now, sink);
                self.flush_plug(now, sink);
            }
            return None;
        }
        if parts.left > 0 {
            return None;
        }
        let mut parts = self.parts[index].take().expect("parts under way");
        parts.data.sort_by_key(|(sector, _)| *sector);
        let mut data = Data::None;
        parts.data.into_iter().for_each(|(_, piece)| data.append(piece));
        let whole = Completion {
            cookie: parts.cookie,
            status: parts.status,
            op: parts.op,
            sectors: parts.sectors,
            data,
            wait_ns: parts.wait_ns,
            device_ns: parts.device_ns,
        };
        if let Some(patch) = parts.patch {
            return self.patch_step_ended(patch, whole, now, sink);
        }
        self.stats.errors.add(u64::from(!whole.status.is_ok()));
        Some(whole)
    }
}

impl SplitBio {
    /// A part that travelled with other memory gets the caller's back, with the bytes it read.
    fn give_back_own(&mut self, sector: u64, part: &mut Completion) {
        let Some(place) = self.bounced.iter().position(|(at, _)| *at == sector) else { return };
        let (_, mut own) = self.bounced.swap_remove(place);
        if part.op == Op::Read && part.status.is_ok() {
            copy(&part.data, &mut own);
        }
        part.data = own;
    }

    /// All of this bio.
    pub(super) fn of(bio: Bio, step: FlushStep) -> SplitBio {
        SplitBio {
            left: 0,
            step,
            serial: None,
            patch: None,
            granted: Counted::NONE,
            status: Status::Ok,
            cookie: bio.cookie,
            op: bio.op,
            sectors: bio.sectors,
            data: Vec::new(),
            bounced: Vec::new(),
            wait_ns: 0,
            device_ns: 0,
            rest: Some(bio),
        }
    }

    /// The rest of it cannot be sent yet.
    pub(super) fn put_back(&mut self, rest: Bio) {
        self.rest = Some(rest);
    }

    /// One I/O of a patch.
    pub(super) fn of_patch(patch: usize, bio: Bio, step: FlushStep) -> SplitBio {
        SplitBio { patch: Some(patch), ..SplitBio::of(bio, step) }
    }

    /// Gives a part memory that starts on a page, with what it is to write: the bytes of one
    /// moment, where the caller's may change. That memory may cross a boundary of segments where
    /// the caller's did not: then the part becomes shorter.
    #[cold]
    fn bounce(&mut self, bio: &mut Bio, limits: &Limits) {
        let data = Data::One(Buf::filled(bio.data.len(), |_| ()));
        let moved = Bio { data, flags: Flags::NONE, ..*bio };
        let sectors = split::front(&moved, limits).unwrap_or(bio.sectors);
        if sectors < bio.sectors {
            let mut rest = split::cut(bio, sectors);
            if let Some(behind) = self.rest.take() {
                rest.sectors += behind.sectors;
                rest.data.append(behind.data);
            }
            self.rest = Some(rest);
        }
        let Data::One(mut buf) = moved.data else { unreachable!("made so above") };
        buf.resize(bio.data.len());
        if bio.op != Op::Read {
            bio.data.copy_to(&mut buf);
        }
        self.bounced.push((bio.sector, std::mem::replace(&mut bio.data, Data::One(buf))));
    }
}

/// Copies what was read into a buffer to where the caller wants it; the lengths are the same.
fn copy(read: &Data, own: &mut Data) {
    let bufs = read.bufs().expect("a part that was moved travels in a buffer");
    if bufs.is_empty() {
        return own.fill_zeros();
    }
    let mut at = 0;
    for buf in bufs {
        own.copy_from_at(at, buf);
        at += buf.len();
    }
}
