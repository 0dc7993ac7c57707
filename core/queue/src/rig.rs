//! Turns one driver queue by hand: for tests of drivers and for tools that want no queue in
//! between.

use std::collections::VecDeque;

use weir_bio::{Bio, Data, Nanos, RqId, Status, SubmitterId};
use weir_ring::Claim;

use crate::driver::{Batch, Cancel, Done, DriverQueue, Returned, Tag, TagTable};
use crate::request::{FlushStep, Request, State};

/// A driver queue with its tags, and nothing else.
pub struct Rig {
    queue: Box<dyn DriverQueue>,
    table: TagTable,
    free: Vec<Tag>,
    done: Done,
    taken: u16,
}

/// How one bio ended.
#[derive(Debug)]
pub struct Answered {
    /// The bio's cookie.
    pub cookie: u64,
    /// How it ended.
    pub status: Status,
    /// Its memory.
    pub data: Data,
}

impl Rig {
    /// A rig of `depth` tags.
    #[must_use]
    pub fn new(queue: Box<dyn DriverQueue>, depth: u16) -> Rig {
        let free = (0..depth).rev().map(Tag::first).collect();
        Rig { queue, table: TagTable::new(depth), free, done: Done::default(), taken: 0 }
    }

    /// Offers bios in one burst and commits. Returns those refused, with the reason.
    ///
    /// # Panics
    /// When there are more bios than free tags.
    pub fn submit(&mut self, bios: Vec<Bio>, now: Nanos) -> Option<(Status, Vec<Bio>)> {
        let mut tags = Vec::new();
        for mut bio in bios {
            let tag = self.free.pop().expect("a free tag for every bio");
            let tag = self.table.current(tag);
            self.taken = self.taken.wrapping_add(1);
            let mut claim = Claim::new(Request::free(RqId::new(SubmitterId(0), self.taken, 0)));
            claim.fill(&mut bio, FlushStep::DATA, now);
            claim.issued_at = now;
            self.table.put(tag, claim);
            tags.push(tag);
        }
        let mut batch = Batch::new(&tags, &mut self.table);
        self.queue.submit(&mut batch, now);
        let (taken, refused) = batch.outcome();
        self.queue.commit(now);
        let reason = refused?;
        let rest = tags[taken..].iter().rev().map(|tag| {
            let mut request = self.table.refused(*tag);
            self.free.push(*tag);
            request.state = State::Free;
            let rq = *request.rq();
            let mut bio = Bio::new(rq.op, rq.sector, rq.sectors, std::mem::take(&mut request.data));
            (bio.flags, bio.cookie) = (rq.flags, request.cookie);
            bio
        });
        let mut rest: Vec<Bio> = rest.collect();
        rest.reverse();
        Some((reason, rest))
    }

    /// Everything answered by now. Answers for tags cancelled before are swallowed.
    pub fn reap(&mut self, now: Nanos) -> Vec<Answered> {
        self.queue.reap(now, &mut self.done);
        let Done { answers, lent, requeued, details, .. } = &mut self.done;
        details.clear();
        assert!(requeued.is_empty(), "a rig sends nothing twice: {requeued:?}");
        let mut lent = lent.drain(..);
        let mut ended = Vec::new();
        for answer in answers.drain(..) {
            let mut lent: VecDeque<Data> = lent.by_ref().take(answer.lent as usize).collect();
            let returned = self.table.end(answer.tag);
            if !matches!(returned, Returned::Stray) {
                self.free.push(answer.tag);
            }
            let Returned::Request(mut request) = returned else { continue };
            if !lent.is_empty() {
                request.take_back(lent.len(), &mut lent);
            }
            request.state = State::Free;
            ended.push(Answered {
                cookie: request.cookie,
                status: answer.status,
                data: std::mem::take(&mut request.data),
            });
        }
        ended
    }

    /// Asks the driver to cancel everything in flight, as the timeout scan does.
    pub fn cancel_all(&mut self, now: Nanos) -> Vec<Cancel> {
        let mut tags = Vec::new();
        self.table.overdue(now, &mut tags);
        let cancelled = tags.iter().map(|tag| {
            let answer = self.queue.cancel(*tag);
            if answer == Cancel::Recovering {
                return answer;
            }
            if answer == Cancel::Done {
                self.free.push(*tag);
            }
            if let Some(mut request) = self.table.cancelled(*tag, answer == Cancel::Pending) {
                request.state = State::Free;
            }
            answer
        });
        cancelled.collect()
    }

    /// The queue itself.
    pub fn queue(&mut self) -> &mut dyn DriverQueue {
        self.queue.as_mut()
    }
}
