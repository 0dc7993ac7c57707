//! What is issued once the lock was waited for.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use weir_bio::{Bio, Buf, Limits, Nanos, Status};
use weir_ring::NoWake;

use super::Sq;
use crate::driver::{Affinity, Batch, Done, Driver, DriverError, DriverQueue, Queues, Tag};
use crate::shared::Path;
use crate::{Bell, Config, Device, QueueMode};

/// When requests came to the driver.
type Taken = Arc<Mutex<Vec<Nanos>>>;

struct Clocked(Taken);

impl Driver for Clocked {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(ClockedQueue { taken: Arc::clone(&self.0), held: Vec::new() }))
    }
}

struct ClockedQueue {
    taken: Taken,
    held: Vec<Tag>,
}

impl DriverQueue for ClockedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let before = self.held.len();
        batch.take_all(|tag, _| self.held.push(tag));
        let new = self.held.len() - before;
        self.taken.lock().unwrap().extend(std::iter::repeat_n(now, new));
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        self.held.drain(..).for_each(|tag| done.push(tag, Status::Ok));
    }

    fn wake_at(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then_some(Nanos::ZERO)
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }
}

fn sq(device: &Device) -> &Sq {
    let Path::Sq(sq) = &device.shared.path else { panic!("it is the single queue") };
    sq
}

/// When the driver is given a read that was submitted at 1,000 ns, while another thread has the
/// lock until the clock says 7,000, or no thread has it.
fn issued_at(clock: Option<fn() -> Nanos>, contended: bool) -> Nanos {
    let taken = Taken::default();
    let config =
        Config { mode: QueueMode::Sq, scheduler: Some(String::from("noop")), ..Config::default() };
    let device = Device::new(config, Arc::new(Clocked(Arc::clone(&taken)))).unwrap();
    if let Some(clock) = clock {
        device.attach_clock(clock);
    }
    let bell = Bell::new(Box::new(NoWake), 1);
    let mut lane = device.open_lane(0, &bell).unwrap();
    let mut submitter = device.submitter(&bell, 0, 0).unwrap();
    submitter.submit(Bio::read(0, Buf::zeroed(4096)), Nanos(1000)).expect("a request");
    let locked = contended.then(|| sq(&device).lock());
    let (done, is_done) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            submitter.flush_plug(Nanos(1000));
            done.send(submitter).expect("the other waits");
        });
        // It does not wait for ever for a wait that is not counted.
        for _ in 0..10_000 {
            if !contended || sq(&device).waits.load(Ordering::SeqCst) > 0 {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        drop(locked);
    });
    let mut submitter = is_done.recv().expect("the submitter");
    lane.run(Nanos(9000));
    let mut ended = 0;
    submitter.complete(Nanos(9000), |end| {
        assert_eq!(end.status, Status::Ok);
        ended += 1;
    });
    assert_eq!(ended, 1);
    let taken = taken.lock().unwrap();
    assert_eq!(taken.len(), 1, "{taken:?}");
    taken[0]
}

#[test]
fn who_waits_for_the_lock_waits_in_the_queue_and_not_at_the_device() {
    assert_eq!(issued_at(Some(|| Nanos(7000)), true), Nanos(7000));
}

#[test]
fn without_a_wait_or_a_clock_what_is_issued_has_the_time_of_the_call() {
    assert_eq!(issued_at(Some(|| Nanos(7000)), false), Nanos(1000));
    assert_eq!(issued_at(None, true), Nanos(1000));
    // A clock that is behind takes nothing back.
    assert_eq!(issued_at(Some(|| Nanos(500)), true), Nanos(1000));
}
