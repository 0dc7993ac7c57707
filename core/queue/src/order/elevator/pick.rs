//! The ways out of the elevator: a request is picked by the scheduler, or taken out because none
//! may wait there any more.

use weir_bio::{Nanos, Rq, SchedTag};

use super::{Elevator, Outlets};
use crate::event::{Sink, What, lane_tells};
use crate::order::arrivals::Picked;
use crate::request::ALL;

/// A list takes everything.
impl Outlets for Vec<Picked> {
    fn send(&mut self, _: u16, picked: Picked) -> bool {
        self.push(picked);
        true
    }
}

/// These were picked for this lane.
#[inline(always)]
fn told<S: Sink>(picked: &[Rq], lane: u16, now: Nanos, sink: S) {
    if S::LISTENS {
        for rq in picked {
            lane_tells(sink, lane, now, || What::Picked { rq: *rq, lane });
        }
    }
}

impl Elevator {
    /// Requests for a lane with room for so many, `most` in all; false if there may be more, and
    /// how many came out.
    pub(crate) fn pull_for(
        &mut self,
        lane: u16,
        mut room: usize,
        most: usize,
        now: Nanos,
        out: &mut impl Outlets,
        sink: impl Sink,
    ) -> (bool, usize) {
        let (mut exhausted, mut all) = (false, 0);
        let room_asked = room;
        if room_asked == ALL {
            self.pull_parked(lane, ALL, out, sink);
        }
        while room > 0 && all < most && !exhausted {
            let (asked, mut given) = (room.min(most - all), 0);
            while given < asked
                && let Some(picked) = self.returned.pop_front()
            {
                given += 1;
                room -= usize::from(out.send(lane, picked));
            }
            let mut picked = self.pick(lane, asked - given, now, sink);
            given += picked.len();
            for rq in picked.drain(..) {
                let picked = self.take_out(&rq);
                room -= usize::from(out.send(lane, picked));
            }
            self.picked = picked;
            exhausted = given < asked;
            all += given;
        }
        if room_asked == ALL {
            for rq in self.pick_rest(lane, now, sink) {
                let picked = self.take_out(&rq);
                _ = out.send(lane, picked);
            }
        }
        (exhausted, all)
    }

    /// Takes out the requests that the scheduler would keep back, because it waits for more or
    /// because enough is under way.
    #[cold]
    fn pick_rest(&mut self, lane: u16, now: Nanos, sink: impl Sink) -> Vec<Rq> {
        let mut rest = Vec::new();
        self.scheduler.drain(&mut rest, now);
        assert_eq!(self.scheduler.staged(), 0, "a drained scheduler keeps nothing");
        self.flying += rest.len();
        told(&rest, lane, now, sink);
        rest
    }

    /// Hands out up to so many of those that wait for a tag: these go on without.
    #[cold]
    pub(crate) fn pull_parked(
        &mut self,
        lane: u16,
        room: usize,
        out: &mut impl Outlets,
        sink: impl Sink,
    ) -> usize {
        let mut given = 0;
        while given < room
            && let Some(claim) = self.parked.next_held_back(0).or_else(|| self.parked.next())
        {
            lane_tells(sink, lane, self.last_now, || What::Picked { rq: claim.rq, lane });
            let (flags, home) = (claim.rq.flags, self.home_of(claim.rq.id.submitter()));
            out.send(lane, Picked::new(claim, flags, SchedTag::NONE, home));
            given += 1;
        }
        given
    }

    /// Up to `max` requests for this hard queue, appended to `out`.
    pub(crate) fn pull(
        &mut self,
        lane: u16,
        max: usize,
        now: Nanos,
        out: &mut Vec<Picked>,
        sink: impl Sink,
    ) {
        let now = self.clamp(now);
        if max == ALL {
            self.pull_parked(lane, ALL, out, sink);
        }
        let returned = self.returned.len().min(max);
        out.extend(self.returned.drain(..returned));
        let mut picked = self.pick(lane, max - returned, now, sink);
        out.extend(picked.drain(..).map(|rq| self.take_out(&rq)));
        self.picked = picked;
        if max == ALL {
            out.extend(self.pick_rest(lane, now, sink).iter().map(|rq| self.take_out(rq)));
        }
    }

    /// Has the scheduler pick up to `max`, in the list that is kept for it.
    #[inline]
    fn pick(&mut self, lane: u16, max: usize, now: Nanos, sink: impl Sink) -> Vec<Rq> {
        let mut picked = std::mem::take(&mut self.picked);
        self.scheduler.dispatch_batch(lane, max, &mut picked, now);
        self.flying += picked.len();
        told(&picked, lane, now, sink);
        picked
    }

    /// A picked request leaves its place.
    #[inline]
    fn take_out(&mut self, rq: &Rq) -> Picked {
        let claim = self.take_claim(rq.tag);
        debug_assert_eq!((claim.rq.sector, claim.rq.sectors), (rq.sector, rq.sectors));
        Picked::new(claim, rq.flags, rq.tag, self.home_of(rq.id.submitter()))
    }
}
