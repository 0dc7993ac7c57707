//! A hard queue that takes long to open, or panics, keeps no submitter of another from coming and
//! going.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_bio::{Limits, Nanos};
use weir_queue::{
    Affinity, Batch, Bell, Config, Device, Done, Driver, DriverError, DriverQueue, NoWake, Queues,
};

/// Hard queue 1 is opened when it is told to, as one that connects to a slow server.
struct Slow {
    opens: Sender<()>,
    goes_on: Mutex<Receiver<()>>,
}

struct Idle;

impl Driver for Slow {
    fn limits(&self) -> Limits {
        Limits { capacity: 1024, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 2, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, index: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        if index == 1 {
            self.opens.send(()).unwrap();
            self.goes_on.lock().unwrap().recv().unwrap();
        }
        Ok(Box::new(Idle))
    }
}

impl DriverQueue for Idle {
    fn submit(&mut self, _: &mut Batch<'_>, _: Nanos) {}
    fn commit(&mut self, _: Nanos) {}
    fn reap(&mut self, _: Nanos, _: &mut Done) {}
    fn in_flight(&self) -> usize {
        0
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may own threads; core may not")]
fn submitters_come_and_go_while_another_hard_queue_is_opened() {
    let (opens, is_opening) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let config = Config { queues: 2, scheduler: Some("none".into()), ..Config::default() };
    let driver = Slow { opens, goes_on: Mutex::new(goes_on) };
    let device = Device::new(config, Arc::new(driver)).unwrap();
    let opener = std::thread::spawn({
        let device = device.clone();
        move || {
            let bell = Bell::new(Box::new(NoWake), 1);
            drop(device.open_lane(1, &bell).unwrap());
        }
    });
    is_opening.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let bell = Bell::new(Box::new(NoWake), 1);
        let _lane = device.open_lane(0, &bell).unwrap();
        drop(device.submitter(&bell, 0, 0).unwrap());
        let _ = done.send(());
    });
    // Only a test that fails comes to the end of this.
    let came = is_done.recv_timeout(Duration::from_secs(20));
    go_on.send(()).unwrap();
    opener.join().unwrap();
    assert!(came.is_ok(), "it waited until the other hard queue was open");
}

#[test]
fn submitters_come_and_go_beside_a_hard_queue_that_panicked_when_it_was_opened() {
    let (opens, _is_opening) = mpsc::channel();
    let config = Config { queues: 2, scheduler: Some("none".into()), ..Config::default() };
    // It is never told to go on.
    let driver = Slow { opens, goes_on: Mutex::new(mpsc::channel().1) };
    let device = Device::new(config, Arc::new(driver)).unwrap();
    let bell = Bell::new(Box::new(NoWake), 1);
    let open = std::panic::AssertUnwindSafe(|| device.open_lane(1, &bell).map(drop));
    std::panic::catch_unwind(open).unwrap_err();
    let _lane = device.open_lane(0, &bell).unwrap();
    (0..2).for_each(|_| drop(device.submitter(&bell, 0, 0).unwrap()));
}
