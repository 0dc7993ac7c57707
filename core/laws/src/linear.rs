//! A mapper for tests: the sectors of several devices, one behind the other. It is what
//! `weir_queue::Legs` tells mappers to be.

use std::sync::Arc;

use weir_bio::{Bio, Data, Limits, Nanos, Op, Rq, SECTOR, Status};
use weir_queue::{
    Affinity, Batch, Cancel, Device, Done, Driver, DriverError, DriverQueue, Legs, Queues, Tag,
};
use weir_ring::Wake;

/// The driver.
pub struct Linear {
    legs: Vec<Device>,
    /// Where each begins, and the end.
    starts: Vec<u64>,
    queues: Queues,
}

impl Linear {
    /// The sectors of `legs` in their order, by queues of so many tags.
    pub fn new(legs: &[Device], depth: u16, home: Affinity) -> Arc<Linear> {
        let mut starts = vec![0];
        for leg in legs {
            starts.push(starts[starts.len() - 1] + leg.limits().capacity);
        }
        let queues = Queues { max: 8, depth, reserved: 0, shared_tags: false, home };
        Arc::new(Linear { legs: legs.to_vec(), starts, queues })
    }
}

impl Driver for Linear {
    fn limits(&self) -> Limits {
        let first = self.legs[0].limits();
        let stacked = self.legs.iter().fold(first, |all, leg| all.stack(&leg.limits()));
        Limits { capacity: *self.starts.last().unwrap(), ..stacked }
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let legs = Legs::open(&self.legs, usize::from(index))
            .map_err(|error| DriverError { what: error.to_string(), source: None })?;
        let out = (0..depth).map(|_| None).collect();
        let (starts, lane) = (self.starts.clone(), None);
        Ok(Box::new(LinearQueue { legs, starts, out, in_flight: 0, ended: Vec::new(), lane }))
    }
}

struct LinearQueue {
    legs: Legs,
    starts: Vec<u64>,
    /// By tag number.
    out: Vec<Option<Out>>,
    in_flight: usize,
    /// Requests of which nothing is under way and that were not answered.
    ended: Vec<u16>,
    lane: Option<Arc<dyn Wake>>,
}

/// A request under way below.
struct Out {
    tag: Tag,
    left: usize,
    status: Status,
    /// The lengths of the memory that was lent.
    lent: Vec<usize>,
    /// Memory that came back, by its first sector.
    pieces: Vec<(u64, Data)>,
}

/// The name of a bio: its request's tag, and its first sector in that.
fn cookie(tag: Tag, at: u64) -> u64 {
    u64::from(tag.0) << 32 | at
}

fn tag_of(cookie: u64) -> usize {
    (cookie >> 32) as usize
}

impl Out {
    fn take(&mut self, at: u64, status: Status, data: Data) -> bool {
        if self.status.is_ok() || status == Status::Timeout {
            self.status = status;
        }
        self.pieces.push((at, data));
        self.left -= 1;
        self.left == 0
    }

    /// The memory in the pieces in which it was lent.
    fn memory(&mut self) -> Vec<Data> {
        self.pieces.sort_by_key(|(at, _)| *at);
        let mut all = Data::None;
        self.pieces.drain(..).for_each(|(_, piece)| all.append(piece));
        if all.len() < self.lent.iter().sum() {
            assert_eq!(self.status, Status::Timeout, "memory is lost");
            return self.lent.iter().map(|_| Data::None).collect();
        }
        let mut back = Vec::new();
        for len in self.lent.drain(..) {
            let rest = all.split_off(len);
            back.push(std::mem::replace(&mut all, rest));
        }
        back
    }
}

impl LinearQueue {
    /// Sends the parts of a request; says how many.
    fn send(&mut self, tag: Tag, rq: &Rq, mut data: Data, now: Nanos) -> usize {
        if rq.op == Op::Flush {
            let legs = self.starts.len() - 1;
            (0..legs).for_each(|leg| self.legs.send(leg, Bio::flush().cookie(cookie(tag, 0)), now));
            return legs;
        }
        let (mut at, mut parts) = (rq.sector, 0);
        while at < rq.end() {
            let leg = self.starts.partition_point(|start| *start <= at) - 1;
            let end = rq.end().min(self.starts[leg + 1]);
            let sectors = (end - at) as u32;
            let rest = match rq.op.has_data() {
                true => data.split_off(sectors as usize * SECTOR as usize),
                false => Data::None,
            };
            let piece = std::mem::replace(&mut data, rest);
            let mut bio = Bio::new(rq.op, at - self.starts[leg], sectors, piece);
            (bio.flags, bio.group, bio.ioprio, bio.hint) = (rq.flags, rq.group, rq.ioprio, rq.hint);
            self.legs.send(leg, bio.cookie(cookie(tag, at - rq.sector)), now);
            (at, parts) = (end, parts + 1);
        }
        parts
    }
}

impl DriverQueue for LinearQueue {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.lane = Some(Arc::clone(&lane));
        self.legs.at_home(lane);
    }

    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let rq = *request.rq();
            let mut lent = Vec::new();
            if rq.op.has_data() {
                request.lend(&mut lent);
            }
            let lens = lent.iter().map(Data::len).collect();
            let mut data = Data::None;
            lent.into_iter().for_each(|piece| data.append(piece));
            let left = self.send(tag, &rq, data, now);
            let out = Out { tag, left, status: Status::Ok, lent: lens, pieces: Vec::new() };
            let before = self.out[usize::from(tag.0)].replace(out);
            assert!(before.is_none(), "a tag that is out is given out again");
            self.in_flight += 1;
            batch.take();
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.legs.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let LinearQueue { legs, out, ended, .. } = self;
        legs.reap(now, |_, end| {
            let tag = tag_of(end.cookie);
            let out = out[tag].as_mut().expect("a bio of a request that is out");
            if out.take(end.cookie & 0xffff_ffff, end.status, end.data) {
                ended.push(tag as u16);
            }
        });
        for tag in self.ended.drain(..) {
            let mut out = self.out[usize::from(tag)].take().expect("out");
            self.in_flight -= 1;
            match out.lent.is_empty() {
                true => done.push(out.tag, out.status),
                false => done.push_lent(out.tag, out.status, &mut out.memory()),
            }
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        // What was not sent is not sent any more. What was sent, or lent, is answered.
        let LinearQueue { legs, out, ended, lane, .. } = self;
        let of_it = out[usize::from(tag.0)].as_mut().expect("out");
        let mut has_ended = false;
        legs.recall(
            |cookie| tag_of(cookie) == usize::from(tag.0),
            |_, bio| {
                has_ended |= of_it.take(bio.cookie & 0xffff_ffff, Status::Timeout, bio.data);
            },
        );
        if has_ended {
            ended.push(tag.0);
            lane.as_ref().expect("at home").wake();
        }
        Cancel::Pending
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}
