//! Ended requests on their way back to their submitters, a chain for each.

use std::sync::Arc;

use weir_bio::{GroupId, Nanos, SubmitterId};
use weir_ring::{Incoming, Outgoing};

use crate::bell::Port;
use crate::event::{Place, Sink, What, lane_tells};
use crate::request::{Counted, Request, RequestClaim, State};
use crate::wbt::TrackedEnds;

/// The ways back to the submitters of a device.
#[derive(Default)]
pub(crate) struct Replies {
    lines: Vec<Option<ReplyChain>>,
    touched: Vec<u16>,
    /// Requests freed from the single queue's pools since last asked: the group, and whether sync.
    pub(crate) freed: Vec<(GroupId, bool)>,
    throttled: TrackedEnds,
}

struct ReplyChain {
    port: Arc<Port>,
    chain: Outgoing<Request>,
}

impl Replies {
    pub(crate) fn attach(&mut self, submitter: usize, port: Arc<Port>) {
        if self.lines.len() <= submitter {
            self.lines.resize_with(submitter + 1, || None);
        }
        self.lines[submitter] = Some(ReplyChain { port, chain: Outgoing::default() });
    }

    pub(crate) fn detach(&mut self, submitter: usize) {
        if let Some(line) = self.lines.get_mut(submitter) {
            *line = None;
        }
    }

    /// Puts an ended request, and each bio merged into it, on the way to its submitter.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut claim: RequestClaim, lane: u16, now: Nanos, sink: impl Sink) {
        lane_tells(sink, lane, now, || What::Ended { rq: claim.rq, status: claim.status });
        if claim.is_merged() {
            self.push_merged(&mut claim);
        }
        self.push_one(claim);
    }

    #[inline(never)]
    fn push_merged(&mut self, claim: &mut RequestClaim) {
        claim.release_merged(|part| self.push_one(part));
    }

    #[inline(always)] // A call saves and restores as many registers as the rest uses.
    fn push_one(&mut self, mut claim: RequestClaim) {
        claim.state = State::Complete;
        if claim.counted != Counted::NONE {
            self.count_out(&mut claim);
        }
        let submitter = claim.rq.id.submitter().0;
        let line = self.lines[usize::from(submitter)].as_mut();
        let line = line.expect("a request's submitter is attached while it has requests");
        if line.chain.is_empty() {
            self.touched.push(submitter);
        }
        line.chain.push(claim);
    }

    #[inline(never)]
    fn count_out(&mut self, claim: &mut RequestClaim) {
        if claim.counted.is_in(Counted::POOL) {
            self.freed.push((claim.rq.group, claim.rq.is_sync()));
        }
        if let Some(kind) = claim.counted.kind() {
            self.throttled.count(kind, claim.status);
        }
        claim.counted = Counted::NONE;
    }

    /// The requests of the write-back throttle that have ended since last asked.
    #[inline]
    pub(crate) fn take_throttled(&mut self) -> Option<TrackedEnds> {
        (!self.throttled.is_empty()).then(|| std::mem::take(&mut self.throttled))
    }

    /// Takes what has ended of a submitter whose thread this is: it need not go through the inbox.
    /// None if something waits there, which comes before it.
    #[inline]
    pub(crate) fn take_own(&mut self, submitter: SubmitterId) -> Incoming<Request> {
        match self.lines.get_mut(usize::from(submitter.0)) {
            Some(Some(line)) if line.port.inbox.is_empty() => {
                if self.touched == [submitter.0] {
                    self.touched.clear();
                }
                line.chain.take()
            }
            _ => Incoming::empty(),
        }
    }

    /// Whether something has ended that [`post`](Replies::post) or the throttle is to tell of.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        !self.touched.is_empty() || !self.throttled.is_empty()
    }

    /// Posts every chain; a submitter whose inbox was empty is told.
    #[inline]
    pub(crate) fn post(&mut self, lane: u16, now: Nanos, sink: impl Sink) {
        for submitter in self.touched.drain(..) {
            if let Some(line) = &mut self.lines[usize::from(submitter)]
                && line.port.inbox.post(&mut line.chain)
            {
                let (woke, to) = (line.port.nudge(), Place::Submitter(SubmitterId(submitter)));
                lane_tells(sink, lane, now, || What::Doorbell { to, woke });
            }
        }
    }

    /// Tells a submitter to look, although nothing was posted.
    pub(crate) fn nudge(&self, submitter: u16) {
        if let Some(Some(line)) = self.lines.get(usize::from(submitter)) {
            let _ = line.port.nudge();
        }
    }
}
