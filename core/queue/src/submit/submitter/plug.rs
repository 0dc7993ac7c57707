//! The plug of a submitter: where requests wait for the end of its pass, and neighbours merge.

use weir_bio::{Bio, Flags, Nanos, SubmitterId};
use weir_ring::Producer;
use weir_sched::merge::{Fit, fit};

use super::Core;
use crate::completion::Why;
use crate::config::Spread;
use crate::event::{Place, Sink, What, submitter_tells};
use crate::lanes::Lanes;
use crate::request::{Request, RequestClaim, State};
use crate::shared::{Path, Shared};

/// Requests a plug holds before it is flushed.
pub(crate) const PLUG_MAX: usize = 32;

/// A newest request so large flushes the plug before the next is added, in sectors (128 KiB).
const PLUG_FLUSH_SECTORS: u32 = 128 * 1024 / 512;

/// Where a plain request of the multi-queue path waits for the plug to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In the part of the one ring that is not published yet.
    Ring,
    /// Not to be said in short: the single queue, or requests spread over many rings.
    General,
}

impl Way {
    pub(crate) fn of(shared: &Shared) -> Way {
        match &shared.path {
            Path::Mq(mq) if mq.spread == Spread::Submitter => Way::Ring,
            Path::Mq(_) | Path::Sq(_) => Way::General,
        }
    }
}

impl Core {
    pub(crate) fn plug(
        &mut self,
        claim: RequestClaim,
        bio: &mut Bio,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        if self.way != Way::General {
            self.plug_plain(claim, now, sink);
            return Ok(());
        }
        self.plug_for_single(claim, bio, now, sink)
    }

    /// The plug is the part of the ring that is not published yet.
    #[inline(always)]
    pub(crate) fn plug_plain(&mut self, claim: RequestClaim, now: Nanos, sink: impl Sink) {
        let ring = &mut self.rings[0];
        let mut flush = ring.unpublished() >= PLUG_MAX;
        if self.snapshot.nomerges < 2 {
            let newest = ring.with_newest(|newest| {
                (newest.rq.touches(&claim.rq), newest.rq.sectors >= PLUG_FLUSH_SECTORS)
            });
            let (touches, large) = newest.unwrap_or((false, false));
            flush |= large;
            if touches {
                return self.plug_next_to(claim, flush, now, sink);
            }
        }
        if flush {
            self.flush_plug(now, sink);
        }
        self.push(0, claim, sink);
    }

    /// The newest in the plug starts or ends where this one ends or starts.
    fn plug_next_to(&mut self, claim: RequestClaim, flush: bool, now: Nanos, sink: impl Sink) {
        let (ring, limits) = (&mut self.rings[0], &self.snapshot.limits);
        match ring.with_newest(|newest| fit(&newest.rq, &claim.rq, limits)) {
            None | Some(Fit::Apart) => {}
            Some(Fit::TooLarge) => {
                ring.with_newest(|newest| newest.rq.flags |= Flags::NOMERGE);
            }
            Some(Fit::Joins(side)) => {
                let id = self.id;
                ring.with_newest(|newest| {
                    let (rq, into) = (claim.rq, newest.rq.id);
                    submitter_tells(sink, id, now, || What::Merged { rq, into, side });
                    newest.absorb(claim, side);
                });
                return;
            }
        }
        if flush {
            self.flush_plug(now, sink);
        }
        self.push(0, claim, sink);
    }

    /// Joins a request to the newest in the plug; gives it back if it does not fit, with the plug
    /// flushed if that is due.
    fn join_newest(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<RequestClaim> {
        let merging = self.snapshot.nomerges < 2;
        let Some(newest) = self.plug.last_mut() else { return Some(claim) };
        if merging {
            match fit(&newest.rq, &claim.rq, &self.snapshot.limits) {
                Fit::Apart => {}
                Fit::TooLarge => newest.rq.flags |= Flags::NOMERGE,
                Fit::Joins(side) => {
                    let (rq, into) = (claim.rq, newest.rq.id);
                    submitter_tells(sink, self.id, now, || What::Merged { rq, into, side });
                    newest.absorb(claim, side);
                    return None;
                }
            }
        }
        let large = merging && newest.rq.sectors >= PLUG_FLUSH_SECTORS;
        if large || self.plug.len() >= PLUG_MAX {
            self.flush_plug(now, sink);
        }
        Some(claim)
    }

    /// The single queue has to have a place for it.
    fn plug_for_single(
        &mut self,
        claim: RequestClaim,
        bio: &mut Bio,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        let Some(mut claim) = self.join_newest(claim, now, sink) else { return Ok(()) };
        if let Path::Sq(sq) = &self.shared.path {
            match sq.offer(claim, now, sink) {
                Ok(request) => claim = request,
                Err(None) => return Ok(()),
                Err(Some(claim)) => return self.refuse_claim(claim, bio, sink),
            }
        }
        submitter_tells(sink, self.id, now, || What::Plugged { rq: claim.rq });
        self.plug.push(claim);
        Ok(())
    }

    /// The single queue has no request left: the bio goes back out of its slot.
    #[cold]
    pub(crate) fn refuse_claim(
        &mut self,
        mut claim: RequestClaim,
        bio: &mut Bio,
        sink: impl Sink,
    ) -> Result<(), Why> {
        if claim.split != Request::WHOLE {
            // A part of an accepted bio cannot be refused; it goes ahead without a place.
            let at = claim.accepted_at;
            submitter_tells(sink, self.id, at, || What::Plugged { rq: claim.rq });
            self.plug.push(claim);
            return Ok(());
        }
        let at = claim.accepted_at;
        submitter_tells(sink, self.id, at, || What::TurnedAway { rq: claim.rq });
        bio.data = std::mem::take(&mut claim.data);
        claim.state = State::Free;
        if let Some(kind) = claim.counted.kind() {
            self.give_up_throttled(kind, at);
        }
        self.free.push(claim);
        Err(Why::Full)
    }

    /// The plug is about to be flushed: the busy time until now depends on what was there before.
    #[inline(always)]
    pub(super) fn account_unplugged(&mut self, now: Nanos) {
        self.last_now = now;
        let shared = &self.shared;
        if self.snapshot.iostats {
            self.stats.account_busy(&shared.stamp, now, || shared.is_busy(self.snapshot.queues));
            if let Some(partition) = &self.partition {
                let is_busy = || partition.gauges.in_driver() != [0, 0];
                self.stats.account_partition(&partition.stamp, now, is_busy);
            }
        }
    }

    pub(crate) fn flush_plug<S: Sink>(&mut self, now: Nanos, sink: S) {
        if self.plug.is_empty() && self.touched == 0 {
            return;
        }
        self.account_unplugged(now);
        let mq = match &self.shared.path {
            Path::Mq(mq) => mq,
            Path::Sq(sq) => {
                let requests = self.plug.len() as u32;
                submitter_tells(sink, self.id, now, || What::Unplugged { requests });
                sq.insert(self.id, &mut self.plug, self.inline, now, sink);
                self.touched = 0;
                sq.restart(self.turns_single.as_deref().filter(|_| sq.any_home));
                return;
            }
        };
        let touched = std::mem::take(&mut self.touched);
        if self.way == Way::Ring {
            if touched != 0 {
                show(&mut self.rings[0], self.id, &mq.lanes, self.lane, now, sink);
            }
            return;
        }
        for (index, ring) in self.rings.iter_mut().enumerate() {
            if touched & 1 << (index % 64) != 0 {
                let lane = if mq.spread == Spread::RoundRobin { index } else { self.lane };
                show(ring, self.id, &mq.lanes, lane, now, sink);
            }
        }
    }
}

/// Shows a lane all that its ring holds.
#[inline(always)]
fn show<S: Sink>(
    ring: &mut Producer<RequestClaim>,
    id: SubmitterId,
    lanes: &Lanes,
    lane: usize,
    now: Nanos,
    sink: S,
) {
    let requests = if S::LISTENS { ring.unpublished() as u32 } else { 0 };
    submitter_tells(sink, id, now, || What::Unplugged { requests });
    if ring.publish() {
        let woke = lanes.feed(lane, usize::from(id.0));
        let to = Place::Lane(lane as u16);
        submitter_tells(sink, id, now, || What::Doorbell { to, woke });
    }
}
