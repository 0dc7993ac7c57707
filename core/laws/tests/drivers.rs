//! The contract of drivers: weir's in memory keep it, and each way to break it is found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_bio::{Limits, Nanos, Op, Status};
use weir_laws::driver::{Kept, hold};
use weir_laws::seeds;
use weir_local::ram::{Cache, CrashRam};
use weir_local::{Null, Ram};
use weir_queue::{Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag};

const SIZE: u64 = 4 << 20;

#[test]
fn drivers_in_memory_keep_the_contract() {
    let seeds = seeds("DRIVER", 20);
    hold(&Ram::new(SIZE).unwrap(), Kept::All, seeds.clone());
    hold(&Null::new(SIZE).unwrap(), Kept::Nothing, seeds.clone());
    hold(&Null::new(SIZE).unwrap().latency_ns(1000), Kept::Nothing, seeds.clone());
    for fua in [false, true] {
        let driver = CrashRam::new(SIZE, Cache { volatile: true, fua }).unwrap();
        hold(&driver, Kept::All, seeds.clone());
    }
}

/// How a driver breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Limits,
    LosesAWrite,
    AnswersTwice,
    FailsAFlush,
    Miscounts,
    ChangesMemory,
}

/// Memory with a fault.
struct Broken(Ram, Fault);

struct BrokenQueue {
    inner: Box<dyn DriverQueue>,
    fault: Fault,
    /// Requests that are answered so and were not carried out.
    lost: Vec<(Tag, Status)>,
    seen: u32,
}

impl Driver for Broken {
    fn limits(&self) -> Limits {
        let limits = self.0.limits();
        match self.1 {
            Fault::Limits => Limits { logical_block_size: 1000, ..limits },
            _ => limits,
        }
    }

    fn queues(&self) -> Queues {
        self.0.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let inner = self.0.open(index, depth)?;
        Ok(Box::new(BrokenQueue { inner, fault: self.1, lost: Vec::new(), seen: 0 }))
    }
}

impl DriverQueue for BrokenQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((_, request)) = batch.peek() {
            self.seen += 1;
            let op = request.op();
            let now_and_then = self.seen.is_multiple_of(10);
            let lost = match self.fault {
                Fault::LosesAWrite if op == Op::Write && now_and_then => Some(Status::Ok),
                Fault::AnswersTwice if op == Op::Prefetch => Some(Status::Ok),
                Fault::FailsAFlush if op == Op::Flush => Some(Status::IoErr),
                _ => None,
            };
            if let Some(status) = lost {
                self.lost.push((batch.take(), status));
                continue;
            }
            if self.fault == Fault::ChangesMemory && op == Op::Write && now_and_then {
                request.for_each_data(|data| data.fill_zeros());
            }
            batch.offer(1, |one| self.inner.submit(one, now));
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.inner.reap(now, done);
        for (tag, status) in self.lost.drain(..) {
            done.push(tag, status);
            if self.fault == Fault::AnswersTwice {
                done.push(tag, status);
            }
        }
    }

    fn in_flight(&self) -> usize {
        let held = self.inner.in_flight() + self.lost.len();
        if self.fault == Fault::Miscounts { held / 2 } else { held }
    }
}

#[test]
fn each_way_to_break_the_contract_is_found_and_named() {
    for (fault, told) in [
        (Fault::Limits, "limits that hold together"),
        (Fault::LosesAWrite, "is not what was written"),
        (Fault::AnswersTwice, "answered twice"),
        (Fault::FailsAFlush, "a flush"),
        (Fault::Miscounts, "requests in flight"),
        (Fault::ChangesMemory, "its memory was changed"),
    ] {
        let driver = Broken(Ram::new(SIZE).unwrap(), fault);
        let held = catch_unwind(AssertUnwindSafe(|| hold(&driver, Kept::All, 0..20)));
        let why = held.expect_err("a broken driver");
        let why = why.downcast_ref::<String>().map(String::as_str).unwrap_or_default();
        assert!(why.contains(told), "{fault:?}: {why}");
    }
}
