//! The null driver: answers everything and keeps nothing. A measurement on it measures the layer
//! above.
//!
//! Writes are dropped; reads are answered as zeros without touching their memory. It allocates
//! nothing and makes no system call per request.

use std::collections::VecDeque;

use weir_bio::{Limits, Nanos, Op, Status};
use weir_queue::{
    Affinity, Batch, Done, Driver, DriverError, DriverQueue, Extent, Queues, Request, Tag,
};

use crate::whole_sectors;

/// A device of a size that keeps nothing.
#[derive(Clone, Debug)]
pub struct Null {
    capacity: u64,
    latency_ns: u64,
    depth: u16,
    answers_per_reap: usize,
}

impl Null {
    /// A device of `bytes` bytes that answers at the next reap.
    ///
    /// # Errors
    /// When `bytes` is 0 or not a whole number of sectors.
    pub fn new(bytes: u64) -> Result<Null, DriverError> {
        Ok(Null {
            capacity: whole_sectors("null", bytes)?,
            latency_ns: 0,
            depth: crate::DEPTH,
            answers_per_reap: usize::MAX,
        })
    }

    /// The same, answering each request `latency_ns` nanoseconds after it was submitted.
    #[must_use]
    pub fn latency_ns(self, latency_ns: u64) -> Null {
        Null { latency_ns, ..self }
    }

    /// The same, answering at most `answers` requests (at least 1) at a reap, so that a queue stays
    /// as deep as its submitter makes it. Has no effect on a null device with a latency.
    #[must_use]
    pub fn answers_per_reap(self, answers: usize) -> Null {
        Null { answers_per_reap: answers.max(1), ..self }
    }

    /// The same with `depth` tags per queue, at least 1.
    #[must_use]
    pub fn depth(self, depth: u16) -> Null {
        Null { depth: depth.max(1), ..self }
    }
}

impl Driver for Null {
    fn limits(&self) -> Limits {
        Limits::of_memory(self.capacity)
    }

    fn queues(&self) -> Queues {
        Queues {
            max: u16::MAX,
            depth: self.depth,
            reserved: 0,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    fn open(&self, _index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let depth = usize::from(depth);
        Ok(match self.latency_ns {
            0 => Box::new(Prompt {
                taken: Vec::with_capacity(2 * depth),
                answered: 0,
                depth,
                answers_per_reap: self.answers_per_reap,
            }),
            latency_ns => Box::new(Delayed { latency_ns, taken: VecDeque::with_capacity(depth) }),
        })
    }

    fn allocation(&self, _sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        Ok(vec![Extent { sectors, hole: true, zero: true }])
    }
}

/// The answer to a request: everything but passthrough succeeds.
#[inline]
fn serve(request: &mut Request) -> Status {
    request.read_as_zeros();
    match request.op() {
        Op::DrvIn | Op::DrvOut | Op::SecureErase => Status::NotSupp,
        _ => Status::Ok,
    }
}

/// A queue that answers at the next reap.
struct Prompt {
    taken: Vec<(Tag, Status)>,
    /// How many of `taken` have been answered. They are cleared away when they are as many as
    /// there are tags, or all: to do it for each is to move all others for each.
    answered: usize,
    depth: usize,
    answers_per_reap: usize,
}

impl DriverQueue for Prompt {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        if self.answered == self.taken.len() || self.answered >= self.depth {
            self.taken.drain(..self.answered);
            self.answered = 0;
        }
        batch.take_all(|tag, request| self.taken.push((tag, serve(request))));
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let waiting = &self.taken[self.answered..];
        let answers = waiting.len().min(self.answers_per_reap);
        done.push_all(&waiting[..answers]);
        self.answered += answers;
    }

    fn in_flight(&self) -> usize {
        self.taken.len() - self.answered
    }
}

/// A queue that answers when the latency has passed. All requests wait equally long, so the oldest
/// is due first.
struct Delayed {
    latency_ns: u64,
    taken: VecDeque<(Nanos, Tag, Status)>,
}

impl DriverQueue for Delayed {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let due = now + self.latency_ns;
        batch.take_all(|tag, request| self.taken.push_back((due, tag, serve(request))));
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        while let Some(&(due, tag, status)) = self.taken.front()
            && due <= now
        {
            self.taken.pop_front();
            done.push(tag, status);
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.taken.front().map(|(due, ..)| *due)
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::{Bio, Buf, Data};
    use weir_queue::rig::Rig;

    use super::*;

    fn page() -> Buf {
        Buf::filled(4096, |bytes| bytes.fill(7))
    }

    #[test]
    fn a_read_is_answered_as_zeros_with_its_memory_unwritten() {
        let mut rig = Rig::new(Null::new(1 << 20).unwrap().open(0, 4).unwrap(), 4);
        assert!(rig.submit(vec![Bio::read(0, page())], Nanos::ZERO).is_none());
        let answer = rig.reap(Nanos::ZERO).remove(0);
        assert_eq!(answer.status, Status::Ok);
        let Data::Zero { len, spare } = answer.data else { panic!("{:?}", answer.data) };
        assert_eq!((len, spare.unwrap()[0]), (4096, 7));
    }

    #[test]
    fn latency_holds_answers_back_in_order_and_says_when_they_come() {
        let null = Null::new(1 << 20).unwrap().latency_ns(100);
        let mut rig = Rig::new(null.open(0, 4).unwrap(), 4);
        assert!(rig.submit(vec![Bio::write(0, page()).cookie(1)], Nanos(10)).is_none());
        assert!(rig.submit(vec![Bio::write(0, page()).cookie(2)], Nanos(50)).is_none());
        assert_eq!(rig.queue().wake_at(), Some(Nanos(110)));
        assert!(rig.reap(Nanos(109)).is_empty());
        let first: Vec<u64> = rig.reap(Nanos(110)).iter().map(|answer| answer.cookie).collect();
        assert_eq!((first, rig.queue().wake_at()), (vec![1], Some(Nanos(150))));
        assert_eq!(rig.reap(Nanos(200))[0].cookie, 2);
        assert_eq!((rig.queue().in_flight(), rig.queue().wake_at()), (0, None));
    }

    #[test]
    fn a_size_that_is_not_whole_sectors_is_refused() {
        let error = Null::new(1000).unwrap_err();
        assert_eq!(error.to_string(), "null: size=1000 is not a positive multiple of 512 bytes");
    }
}
