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
            let flags = request.flags();
            match op {
                // To do nothing is a correct answer.
                Op::Prefetch => self.at_once.push((tag, Status::Ok)),
                Op::Read | Op::Write | Op::Flush | Op::Discard | Op::WriteZeroes => {
                    let mut lent = self.spare.pop().unwrap_or_default();
                    if op.has_data() {
                        request.lend(&mut lent);
                    }
                    let outlet = Arc::clone(&self.outlet);
                    self.taken.push(Job { tag, op, offset, len, flags, lent, outlet });
                }
                Op::SecureErase | Op::DrvIn | Op::DrvOut => {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use weir_bio::{Bio, Buf};
    use weir_queue::rig::Rig;

    use super::*;
    use crate::BlockingDriver;

    /// Takes and gives any bytes.
    struct Anything;

    impl BlockingDriver for Anything {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn read(&self, _: u64, bytes: &mut [u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn write(&self, _: u64, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Notes the most spare vectors that the queue has had, and the room in one.
    struct Watched {
        queue: BlockingQueue,
        most: Arc<[AtomicUsize; 2]>,
    }

    impl DriverQueue for Watched {
        fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
            self.queue.submit(batch, now);
        }

        fn commit(&mut self, now: Nanos) {
            self.queue.commit(now);
        }

        fn reap(&mut self, now: Nanos, done: &mut Done) {
            self.queue.reap(now, done);
            let room = self.queue.spare.iter().map(Vec::capacity).max().unwrap_or(0);
            self.most[0].fetch_max(self.queue.spare.len(), Ordering::Relaxed);
            self.most[1].fetch_max(room, Ordering::Relaxed);
        }

        fn in_flight(&self) -> usize {
            self.queue.in_flight()
        }
    }

    #[test]
    fn spare_memory_stays_within_the_depth_whatever_is_asked_for_how_often() {
        const DEPTH: usize = 8;
        let crew = Arc::new(Crew::new(Arc::new(Anything), 2));
        let most = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let queue = BlockingQueue::open(&crew, DEPTH as u16).expect("threads");
        let queue = Watched { queue, most: Arc::clone(&most) };
        let mut rig = Rig::new(Box::new(queue), DEPTH as u16);
        let page = || Buf::zeroed(4096);
        for round in 0..64 {
            let bios: Vec<Bio> = (0..DEPTH as u64)
                .map(|at| match (round + at) % 5 {
                    0 => Bio::new(Op::Prefetch, at * 8, 8, Data::None),
                    1 => Bio::flush(),
                    2 => Bio::new(Op::SecureErase, at * 8, 8, Data::None),
                    3 => Bio::read(at * 8, page()),
                    _ => Bio::write(at * 8, page()),
                })
                .collect();
            assert!(rig.submit(bios, Nanos(1)).is_none(), "a place for each");
            let mut answered = 0;
            while answered < DEPTH {
                answered += rig.reap(Nanos(2)).len();
                std::thread::yield_now();
            }
        }
        let [spare, room] = [0, 1].map(|which| most[which].load(Ordering::Relaxed));
        assert!((1..=DEPTH).contains(&spare), "{spare} vectors of a queue of depth {DEPTH}");
        assert!(room <= 16, "room for {room} pieces, where no request had more than one");
    }
}
