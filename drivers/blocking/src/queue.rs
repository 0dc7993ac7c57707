//! One hard queue: requests become jobs of the crew, answers come by the queue's outlet.

use std::io;
use std::sync::Arc;

use weir_bio::{Data, Nanos, Op, Status};
use weir_queue::{Batch, Cancel, Done, DriverQueue, Tag, Wake};

use crate::crew::{Crew, Job};
use crate::outlet::{Answer, Outlet};

pub(crate) struct BlockingQueue {
    crew: Arc<Crew>,
    outlet: Arc<Outlet>,
    /// Jobs taken in this burst.
    taken: Vec<Job>,
    /// Answers that need no call.
    at_once: Vec<(Tag, Status)>,
    in_flight: usize,
    /// Empty vectors to lend memory into, and to take answers with.
    spare: Vec<Vec<Data>>,
    answers: Vec<Answer>,
}

impl BlockingQueue {
    /// Opens a queue of so many tags.
    ///
    /// # Errors
    /// The system's, which starts no thread.
    pub(crate) fn open(crew: &Arc<Crew>, depth: u16) -> io::Result<BlockingQueue> {
        crew.join()?;
        let depth = usize::from(depth);
        Ok(BlockingQueue {
            crew: Arc::clone(crew),
            outlet: Arc::default(),
            taken: Vec::with_capacity(depth),
            at_once: Vec::new(),
            in_flight: 0,
            spare: Vec::with_capacity(depth),
            answers: Vec::with_capacity(depth),
        })
    }
}

impl DriverQueue for BlockingQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let (op, offset, len) = (request.op(), request.offset(), request.len());
            match op {
                // To do nothing is a correct answer.
                Op::Prefetch => self.at_once.push((tag, Status::Ok)),
                Op::Read | Op::Write | Op::Flush | Op::Discard => {
                    let mut lent = self.spare.pop().unwrap_or_default();
                    if op.has_data() {
                        request.lend(&mut lent);
                    }
                    let outlet = Arc::clone(&self.outlet);
                    self.taken.push(Job { tag, op, offset, len, lent, outlet });
                }
                Op::SecureErase | Op::WriteZeroes | Op::DrvIn | Op::DrvOut => {
                    self.at_once.push((tag, Status::NotSupp));
                }
            }
            batch.take();
        }
    }

    fn commit(&mut self, _now: Nanos) {
        self.in_flight += self.taken.len() + self.at_once.len();
        self.crew.take_over(self.taken.drain(..));
        for (tag, status) in self.at_once.drain(..) {
            self.outlet.end(tag, status, Vec::new());
        }
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.outlet.at_home(lane);
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        self.outlet.take(&mut self.answers);
        self.in_flight -= self.answers.len();
        for (tag, status, mut lent) in self.answers.drain(..) {
            match lent.is_empty() {
                true => done.push(tag, status),
                false => done.push_lent(tag, status, &mut lent),
            }
            // That of an answer without a job was never taken from here.
            if lent.capacity() > 0 {
                self.spare.push(lent);
            }
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.crew.cancel(tag, &self.outlet);
        Cancel::Pending
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.taken.len() + self.at_once.len()
    }
}

impl Drop for BlockingQueue {
    fn drop(&mut self) {
        self.crew.leave(&self.outlet);
    }
}
