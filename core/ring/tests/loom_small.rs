//! The parts of the crate that have no wake-up rule of their own: the mailbox, the counters and
//! the batched calls of the ring, under every interleaving and every stale read that loom finds.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p weir-ring --release --test loom_small
//! ```
//!
//! As in `tests/loom.rs`, data lies in loom's cells, so a missing ordering is two threads at one
//! cell, and a lost wake-up is a deadlock.

#![cfg(loom)]

use std::sync::atomic::AtomicUsize as Tally;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;
use weir_ring::sync::Ordering;
use weir_ring::{BusyStamp, Counter, Doorbell, Mailbox, SharedCounter, Wake, ring};

/// Preemptions per execution unless `LOOM_MAX_PREEMPTIONS` says otherwise; loom's guide
/// recommends 2 or 3.
const PREEMPTIONS_MAX: usize = 3;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(PREEMPTIONS_MAX));
    let executions = std::sync::Arc::new(Tally::new(0));
    let counted = std::sync::Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{executions} executions");
    assert!(executions > 5, "{executions} executions: nothing was interleaved");
}

/// Data without an order of its own: two threads at it at once fail the model.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn new(value: u32) -> Watched {
        Watched(UnsafeCell::new(value))
    }

    fn set(&self, to: u32) {
        // SAFETY: the model fails if another thread is here.
        self.0.with_mut(|value| unsafe { *value = to });
    }

    fn read(&self) -> u32 {
        // SAFETY: the model fails if another thread writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }
}

// SAFETY: loom holds the accesses apart, or fails.
unsafe impl Sync for Watched {}

struct Waker(Arc<Notify>);

impl Wake for Waker {
    fn wake(&self) {
        self.0.notify();
    }
}

// ---- the mailbox ----

#[test]
fn an_owner_asleep_beside_its_mailbox_gets_every_message_in_order() {
    model(|| {
        let bed = Arc::new(Notify::new());
        let bell = Doorbell::new(Box::new(Waker(Arc::clone(&bed))));
        let shared = Arc::new((Mailbox::default(), bell));
        let poster = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for value in 1..=2 {
                    shared.0.post(Watched::new(value));
                    shared.1.ring();
                }
            })
        };
        let (mailbox, bell) = &*shared;
        let mut taken = 0;
        while taken < 2 {
            while let Some(message) = mailbox.take() {
                taken += 1;
                assert_eq!(message.read(), taken, "messages keep their order");
            }
            bell.prepare_sleep();
            if taken < 2 && !mailbox.is_waiting() {
                bed.wait();
            }
            bell.awake();
        }
        poster.join().unwrap();
        assert!(mailbox.take().is_none() && !mailbox.is_waiting());
    });
}

#[test]
fn a_message_for_a_mailbox_that_closes_is_taken_or_given_back_once() {
    model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let poster = {
            let mailbox = Arc::clone(&mailbox);
            thread::spawn(move || {
                let back = (1..=2).filter_map(|value| mailbox.offer(Watched::new(value)).err());
                back.map(|message| message.read()).collect::<Vec<_>>()
            })
        };
        let taken = mailbox.take().map(|message| message.read());
        let closed = mailbox.close();
        let mut all: Vec<u32> = taken.into_iter().collect();
        all.extend(closed.iter().map(Watched::read));
        all.extend(poster.join().unwrap());
        assert_eq!(all, [1, 2]);
        assert!(!mailbox.is_waiting() && mailbox.offer(Watched::new(3)).is_err());
    });
}

// ---- the batched calls of the ring ----

#[test]
fn batches_go_through_a_ring_in_order_round_its_end() {
    model(|| {
        let (mut tx, mut rx) = ring(2);
        // One item on, so that the first batch goes round the end.
        tx.push_each([Watched::new(0)].into_iter());
        assert!(tx.publish());
        assert_eq!(rx.pop_each(2, |item| assert_eq!(item.read(), 0)), 1);

        let producer = thread::spawn(move || {
            let mut pushed = 0;
            for _ in 0..3 {
                let room = tx.room(2).min(2) as u32;
                let batch: Vec<_> = (1..=room).map(|n| Watched::new(pushed + n)).collect();
                tx.push_each(batch.into_iter());
                assert_eq!(tx.publish(), room > 0);
                pushed += room;
            }
            pushed
        });
        let mut popped = 0;
        let mut pop = |max| {
            rx.pop_each(max, |item| {
                popped += 1;
                assert_eq!(item.read(), popped);
            });
            popped
        };
        pop(1);
        pop(2);
        let pushed = producer.join().unwrap();
        assert!(pushed >= 2);
        // What is left fits into the ring, and one call takes it.
        assert_eq!(pop(4), pushed);
    });
}

// ---- the counters ----

#[test]
fn a_count_read_by_another_thread_never_goes_back() {
    model(|| {
        let counter = Arc::new(Counter::new(1));
        let writer = {
            let counter = Arc::clone(&counter);
            thread::spawn(move || {
                counter.add(1);
                counter.raise(1);
                counter.raise(4);
            })
        };
        let read = [counter.read(), counter.read(), counter.read()];
        assert!(read.is_sorted() && read.iter().all(|n| [1, 2, 4].contains(n)), "{read:?}");
        writer.join().unwrap();
        assert_eq!(counter.read(), 4);
    });
}

#[test]
fn a_shared_count_is_given_once_and_its_second_caller_sees_the_first_ones_data() {
    model(|| {
        let shared = Arc::new((SharedCounter::default(), [Watched::new(0), Watched::new(0)]));
        let threads = [0, 1].map(|own| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (counter, data) = &*shared;
                data[own].set(7);
                let count = counter.next();
                if count == 2 {
                    assert_eq!(data[1 - own].read(), 7);
                }
                count
            })
        });
        let counts: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!((counts, shared.0.read()), (3, 2));
        assert_eq!(shared.0.down(), 1);
    });
}

#[test]
fn each_tick_of_busy_time_is_counted_once() {
    model(|| {
        let stamp = Arc::new(BusyStamp::default());
        let threads = [2, 3].map(|tick| {
            let stamp = Arc::clone(&stamp);
            thread::spawn(move || stamp.advance(1) + stamp.advance(tick))
        });
        let counted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(counted + stamp.advance(10), 10);
    });
}
