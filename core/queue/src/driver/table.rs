//! The tag table: the requests that a driver queue has.

use weir_bio::{Nanos, Op, Rq, RqId};

use super::{Answer, Tag};
use crate::command::Detail;
use crate::request::{Request, RequestClaim};

/// The tag table of one lane: driver tag to request in flight.
#[derive(Debug)]
pub(crate) struct TagTable {
    entries: Box<[Option<RequestClaim>]>,
    /// The generation of each number; empty before the first cancel.
    generations: Box<[u16]>,
    /// Tags without a request whose submitter was told TIMEOUT, and which the driver has not given
    /// back.
    quarantined: Vec<Tag>,
}

/// The entry of a tag that the driver gives back.
pub(crate) enum Returned {
    Request(RequestClaim),
    /// Nothing any more: its submitter was told TIMEOUT long ago.
    Quarantined,
    /// Nothing: it was given back before, after a cancel.
    Stray,
}

impl TagTable {
    pub(crate) fn new(depth: u16) -> TagTable {
        let entries = (0..depth).map(|_| None).collect();
        TagTable { entries, generations: Box::default(), quarantined: Vec::new() }
    }

    /// The tag with this number, as it is given out now.
    #[inline]
    pub(crate) fn current(&self, tag: Tag) -> Tag {
        // One predictable branch: the table exists only once something was cancelled.
        match self.generations.get(usize::from(tag.0)) {
            None => tag,
            Some(generation) => Tag(tag.0, *generation),
        }
    }

    /// Whether one of these answers is the first to its request.
    #[inline]
    pub(crate) fn has_news(&self, answers: &[Answer]) -> bool {
        let is_current = |answer: &Answer| self.current(answer.tag) == answer.tag;
        !answers.is_empty() && (self.generations.is_empty() || answers.iter().any(is_current))
    }

    #[inline]
    pub(crate) fn put(&mut self, tag: Tag, request: RequestClaim) {
        let before = self.entries[usize::from(tag.0)].replace(request);
        // The request that was there would never be answered.
        assert!(before.is_none(), "driver tag {} is in use", tag.0);
    }

    #[inline]
    pub(crate) fn request(&mut self, tag: Tag) -> &mut Request {
        match &mut self.entries[usize::from(tag.0)] {
            Some(request) => request,
            None => panic!("tag {} holds no request", tag.0),
        }
    }

    /// Takes out what is under a tag that the driver gives back.
    ///
    /// # Panics
    /// When the driver answers for a tag it does not hold and that was never cancelled.
    #[inline]
    pub(crate) fn end(&mut self, tag: Tag) -> Returned {
        if self.current(tag) != tag {
            return self.end_cancelled(tag);
        }
        match self.entries[usize::from(tag.0)].take() {
            Some(request) => Returned::Request(request),
            None => panic!("the driver answered twice for tag {}", tag.0),
        }
    }

    #[cold]
    fn end_cancelled(&mut self, tag: Tag) -> Returned {
        let Some(place) = self.quarantined.iter().position(|quarantined| *quarantined == tag)
        else {
            return Returned::Stray;
        };
        self.quarantined.swap_remove(place);
        Returned::Quarantined
    }

    /// The driver's words about a command that it has.
    #[cold]
    pub(crate) fn detail(&mut self, tag: Tag, detail: Detail) {
        if self.current(tag) == tag
            && let Some(request) = &mut self.entries[usize::from(tag.0)]
            && let Some(carried) = request.carried()
        {
            carried.detail = detail;
        }
    }

    /// Takes out the request that was offered to the driver and not taken.
    #[cold]
    pub(crate) fn refused(&mut self, tag: Tag) -> RequestClaim {
        let request = self.entries[usize::from(tag.0)].take();
        request.expect("a refused request is still in the table")
    }

    /// Takes out a request that was cancelled; `kept` says that the driver still has its tag.
    #[cold]
    pub(crate) fn cancelled(&mut self, tag: Tag, kept: bool) -> Option<RequestClaim> {
        let request = self.entries[usize::from(tag.0)].take()?;
        if self.generations.is_empty() {
            self.generations = self.entries.iter().map(|_| 0).collect();
        }
        let generation = &mut self.generations[usize::from(tag.0)];
        *generation = generation.wrapping_add(1);
        if kept {
            self.quarantined.push(tag);
        }
        Some(request)
    }

    /// Tags of requests that a driver first had at `before` or earlier.
    pub(crate) fn overdue(&self, before: Nanos, out: &mut Vec<Tag>) {
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.as_ref().is_some_and(|request| request.begun_at() <= before) {
                out.push(self.current(Tag::first(index as u16)));
            }
        }
    }

    /// Whether any request is of this kind.
    pub(crate) fn any(&self, is_of_kind: impl Fn(&Rq) -> bool) -> bool {
        self.entries.iter().flatten().any(|request| is_of_kind(&request.rq))
    }

    /// When the request longest in here was accepted.
    pub(crate) fn oldest(&self) -> Option<Nanos> {
        self.entries.iter().flatten().map(|request| request.accepted_at).min()
    }

    /// The read that was issued first.
    pub(crate) fn oldest_read(&self) -> Option<(Nanos, RqId)> {
        let reads = self.entries.iter().flatten().filter(|request| request.rq.op == Op::Read);
        reads.map(|read| (read.issued_at, read.rq.id)).min_by_key(|(issued_at, _)| *issued_at)
    }

    /// The request under a tag that the driver gives back, if it is there.
    pub(crate) fn ending(&self, tag: Tag) -> Option<&Request> {
        let entry = self.entries[usize::from(tag.0)].as_deref();
        entry.filter(|_| self.current(tag) == tag)
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{RqId, SubmitterId};
    use weir_ring::Claim;

    #[test]
    #[should_panic(expected = "driver tag 1 is in use")]
    fn a_tag_in_use_takes_no_other_request() {
        let mut table = TagTable::new(2);
        for n in 0..2 {
            table.put(Tag::first(1), Claim::new(Request::free(RqId::new(SubmitterId(0), n, 0))));
        }
    }
}
