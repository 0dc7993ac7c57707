//! What a driver queue hands over in a reap.

use std::collections::VecDeque;

use weir_bio::{Data, Status};

use crate::command::{Detail, SENSE_MAX};
use crate::driver::Tag;

/// For [`Done::push_requeue`]: the request waits until its driver [kicks](Done::kick), however long
/// that takes; its own time goes on.
pub const UNTIL_KICKED: u64 = u64::MAX;

/// The collector of a reap: answers, lent memory that comes back, and requests to be sent again.
#[derive(Debug, Default)]
pub struct Done {
    pub(crate) answers: Vec<Answer>,
    pub(crate) lent: VecDeque<Data>,
    pub(crate) requeued: Vec<Requeued>,
    pub(crate) kicked: bool,
    pub(crate) details: Vec<(Tag, Detail)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) tag: Tag,
    pub(crate) status: Status,
    pub(crate) lent: u32,
}

/// A request that a driver hands back unfinished.
#[derive(Debug)]
pub(crate) struct Requeued {
    pub(crate) tag: Tag,
    pub(crate) after_ns: u64,
    pub(crate) lent: Vec<Data>,
}

impl Done {
    /// An answer for a request whose memory was never lent.
    #[inline]
    pub fn push(&mut self, tag: Tag, status: Status) {
        self.answers.push(Answer { tag, status, lent: 0 });
    }

    /// Answers for requests whose memory was never lent.
    #[inline]
    pub fn push_all(&mut self, answers: &[(Tag, Status)]) {
        let answers = answers.iter().map(|&(tag, status)| Answer { tag, status, lent: 0 });
        self.answers.extend(answers);
    }

    /// An answer that brings back lent memory, in the order it was lent; `lent` is emptied and
    /// keeps its capacity.
    pub fn push_lent(&mut self, tag: Tag, status: Status, lent: &mut Vec<Data>) {
        self.answers.push(Answer { tag, status, lent: lent.len() as u32 });
        self.lent.extend(lent.drain(..));
    }

    /// The same for memory in one piece.
    #[inline]
    pub fn push_one(&mut self, tag: Tag, status: Status, data: Data) {
        self.answers.push(Answer { tag, status, lent: 1 });
        self.lent.push_back(data);
    }

    /// Hands a request back unfinished, with the memory it was lent, in the order it was lent. It
    /// is sent again before anything that waits, once `after_ns` nanoseconds have passed (0: at
    /// once), and its time for an answer begins anew. How often is for the driver to bound: the
    /// core never gives up (docs/behaviour/block-layer.md, section 6).
    ///
    /// The tag is free from here on, and may be another request's at once; this one gets a tag anew
    /// when it is sent. It is sound because the driver has forgotten the tag: it holds no memory,
    /// has no call under way that changes a sector, and swallows a late answer of its device, which
    /// the core would take for the next request's (the generation changes at a cancel alone).
    pub fn push_requeue(&mut self, tag: Tag, after_ns: u64, lent: Vec<Data>) {
        self.requeued.push(Requeued { tag, after_ns, lent });
    }

    /// Says more about the end of a [command](crate::Request::cdb), beside its answer in the same
    /// reap.
    pub fn push_detail(&mut self, tag: Tag, detail: Detail) {
        let len = detail.sense.as_ref().map_or(0, |sense| sense.len());
        assert!(len <= SENSE_MAX, "sense data of {len} bytes, at most {SENSE_MAX}");
        self.details.push((tag, detail));
    }

    /// Takes all that was said about ends of commands: how a wrapping driver hands it on.
    pub fn drain_details(&mut self) -> impl Iterator<Item = (Tag, Detail)> {
        self.details.drain(..)
    }

    /// Requests that were handed back [until kicked](UNTIL_KICKED) are sent again from now on,
    /// those of this reap included. A driver that hears of the reason elsewhere has its lane turned
    /// ([`at_home`](crate::driver::DriverQueue::at_home)), and kicks in the reap that follows.
    pub fn kick(&mut self) {
        self.kicked = true;
    }

    /// Whether a driver below has kicked since last asked: how a wrapping driver hands it on.
    pub fn take_kick(&mut self) -> bool {
        std::mem::take(&mut self.kicked)
    }

    /// Takes all requests out that were handed back: how a wrapping driver hands them on.
    pub fn drain_requeued(&mut self) -> impl Iterator<Item = (Tag, u64, Vec<Data>)> {
        self.requeued.drain(..).map(|back| (back.tag, back.after_ns, back.lent))
    }

    /// Takes all answers out, oldest first, each with the memory it brings back: how a wrapping
    /// driver sees what the driver below it answered.
    pub fn drain(&mut self) -> impl Iterator<Item = (Tag, Status, Vec<Data>)> {
        let mut lent = self.lent.drain(..);
        self.answers.drain(..).map(move |answer| {
            (answer.tag, answer.status, lent.by_ref().take(answer.lent as usize).collect())
        })
    }

    /// Answers collected.
    #[must_use]
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}
