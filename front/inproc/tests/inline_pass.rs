//! A pass of an inline session: what it finds at once, and how often it asks the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir::{
    Affinity, Batch, Bio, Buf, Disk, Done, Driver, DriverError, DriverQueue, InlineSession, Limits,
    Nanos, Queues, Status, Tag,
};

fn read(number: u64) -> Bio {
    // Every other block: none is merged.
    Bio::read(number * 16, Buf::zeroed(4096)).cookie(number)
}

#[test]
fn what_the_driver_answers_at_once_is_there_after_one_poll_and_then_the_session_can_sleep() {
    for scheduler in ["none", "mq-deadline", "kyber", "bfq"] {
        for queues in [1, 2] {
            let target = format!("ram:4MiB,queues={queues},scheduler={scheduler}");
            let mut session = Disk::builder(target).open_inline().unwrap();
            for count in [1, 2, 32, 1, 3] {
                (0..count).for_each(|number| session.submit(read(number)));
                let mut cookies = Vec::new();
                session.poll(|ended| cookies.push(ended.cookie));
                cookies.sort_unstable();
                let what = format!("{scheduler}, {queues} hard queues, {count} at once");
                assert_eq!(cookies, (0..count).collect::<Vec<_>>(), "{what}");
                assert!(session.arm().unwrap(), "{what}: there is nothing left to do");
            }
            session.close().unwrap();
        }
    }
}

/// A driver that tells of no answer, and has one for each time that it is asked, after the first so
/// many.
struct Asked {
    silent: u64,
    asked: Arc<AtomicU64>,
}

struct Queue {
    silent: u64,
    asked: Arc<AtomicU64>,
    held: Vec<Tag>,
}

impl Driver for Asked {
    fn limits(&self) -> Limits {
        Limits { capacity: 8192, max_hw_sectors: 2048, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 64, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (silent, asked) = (self.silent, Arc::clone(&self.asked));
        Ok(Box::new(Queue { silent, asked, held: Vec::new() }))
    }
}

impl DriverQueue for Queue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, _| self.held.push(tag));
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        if self.held.is_empty() {
            return;
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.silent {
            0 => done.push(self.held.remove(0), Status::Ok),
            _ => self.silent -= 1,
        }
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

fn asked(silent: u64) -> (InlineSession, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let driver: Arc<dyn Driver> = Arc::new(Asked { silent, asked: Arc::clone(&asked) });
    (Disk::builder(driver).open_inline().unwrap(), asked)
}

#[test]
fn a_driver_that_is_to_be_asked_is_asked_once_for_what_it_was_given_and_once_in_a_later_poll() {
    for count in [1, 3] {
        let (mut session, asked) = asked(0);
        (0..count).for_each(|number| session.submit(read(number)));
        for ended in 1..=count {
            assert_eq!(session.poll(|_| ()), 1, "{ended} of {count}");
            assert_eq!(asked.load(Ordering::Relaxed), ended, "{ended} of {count}");
        }
        session.close().unwrap();
    }
}

#[test]
fn a_poll_does_not_wait_for_a_driver_that_has_no_answer_yet() {
    for count in [1, 3] {
        let (mut session, asked) = asked(10);
        (0..count).for_each(|number| session.submit(read(number)));
        let polls = (0..).take_while(|_| session.poll(|_| ()) == 0).count();
        assert!(
            polls >= 4,
            "{count}: {polls} polls, {} times asked",
            asked.load(Ordering::Relaxed)
        );
        session.close().unwrap();
    }
}

#[test]
fn a_look_that_tells_a_change_of_something_ends_all_the_same() {
    let mut session = Disk::builder("ram:1MiB").open_inline().unwrap();
    let limit = Duration::from_secs(60);
    // The lane says in the look that it has stopped.
    let quiesced = session.change(limit, |disk, watch| disk.begin_quiesce(watch)).unwrap();
    drop(quiesced);
    session.write_at(0, &[7; 4096]).unwrap();
    session.close().unwrap();
}
