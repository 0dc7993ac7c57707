//! What a driver over several drivers asks of a batch and of a reap: which of them has what.

use weir_bio::Status;

use super::{Batch, Done, Tag};
use crate::partition::{PARTITION_SHIFT, partition_of};
use crate::request::Request;

impl<'a> Batch<'a> {
    /// Offers the requests at the head that are of one partition to its driver queue, which sees
    /// sectors that count from its start; `each` sees them before. Those that it took.
    #[inline]
    pub fn offer_partition(
        &mut self,
        mut each: impl FnMut(Tag, &Request),
        other: impl FnOnce(&mut Batch<'_>),
    ) -> &'a [Tag] {
        let left = &self.tags[self.taken..];
        let mut number = None;
        let mut count = 0;
        for tag in left {
            let request = self.table.request(*tag);
            let of = partition_of(request.rq.sector);
            if *number.get_or_insert(of) != of {
                break;
            }
            request.partition_bits = (u64::BITS - PARTITION_SHIFT) as u8;
            each(*tag, request);
            count += 1;
        }
        let before = self.taken;
        self.offer(count, other);
        &self.tags[before..self.taken]
    }

    /// Whether the rest was [refused](Batch::refuse).
    #[must_use]
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Whether the rest was [refused](Batch::refuse) to be asked again later: then it is refused no
    /// more. A driver over several goes on with those that are for another.
    pub fn forgive_shortage(&mut self) -> bool {
        self.refused.take_if(|reason| *reason == Status::Resource).is_some()
    }

    /// Offers the request last peeked at, and no other, to another driver queue, and leaves it
    /// where it is; whether it was taken there. A wrapping driver that does this more than once has
    /// each of them answer, and answers itself when all have.
    pub fn share(&mut self, other: impl FnOnce(&mut Batch<'_>)) -> bool {
        let mut part = Batch::new(&self.tags[self.taken..=self.taken], self.table);
        other(&mut part);
        part.outcome().0 == 1
    }
}

impl Done {
    /// The tags of the answers from a place on, oldest first.
    pub fn answered_since(&self, place: usize) -> impl Iterator<Item = Tag> {
        self.answers[place..].iter().map(|answer| answer.tag)
    }

    /// Requests handed back so far, and the tags of those from a place on.
    #[must_use]
    pub fn requeued(&self) -> usize {
        self.requeued.len()
    }

    /// The tags of requests that were handed back, from a place on.
    pub fn requeued_since(&self, place: usize) -> impl Iterator<Item = Tag> {
        self.requeued[place..].iter().map(|back| back.tag)
    }

    /// Takes out the handing back of a request without memory, if it is there from a place on.
    pub fn withdraw_requeued(&mut self, place: usize, tag: Tag) -> bool {
        let found = self.requeued[place..].iter().position(|back| back.tag == tag);
        found.is_some_and(|found| {
            self.requeued.remove(place + found);
            true
        })
    }

    /// Takes out the answer to a request without memory, such as a flush, if it is there from a
    /// place on: how a wrapping driver collects the answers of several.
    pub fn withdraw(&mut self, place: usize, tag: Tag) -> Option<Status> {
        let found = self.answers[place..].iter().position(|answer| answer.tag == tag)?;
        Some(self.answers.remove(place + found).status)
    }
}
