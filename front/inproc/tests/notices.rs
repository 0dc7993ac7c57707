//! What a disk tells its program beside the ends of I/O.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use weir::{Bio, Buf, Disk, Driver, Limits, Notice, Status, Target};
use weir_local::Ram;
use weir_map::{FaultPlan, Faulty};
use weir_queue::{ChangeListener, DriverError, DriverQueue, Queues};

/// As [`Faulty`], and says that it has changed when its test does.
struct Changing {
    inner: Faulty,
    listener: Arc<Mutex<Option<ChangeListener>>>,
}

impl Driver for Changing {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.inner.open(index, depth)
    }

    fn on_change(&self, listener: ChangeListener) {
        *self.listener.lock().unwrap() = Some(listener);
    }
}

fn tell(sender: Sender<String>) -> impl Fn(Notice<'_>) + Send + Sync {
    let sender = Mutex::new(sender);
    move |notice| {
        let told = match notice {
            Notice::Fails(told) => String::from(told),
            Notice::MayHaveGrown => String::from("grown"),
            _ => String::from("another"),
        };
        sender.lock().unwrap().send(told).unwrap();
    }
}

#[test]
fn a_listener_hears_that_i_o_begins_to_fail_and_that_the_disk_may_have_grown() {
    let plan = FaultPlan { failed: 100, errors: vec![Status::Medium], ..FaultPlan::default() };
    let inner = Faulty::new(Arc::new(Ram::new(1 << 20).unwrap()), plan, 1);
    let listener = Arc::<Mutex<Option<ChangeListener>>>::default();
    let driver = Changing { inner, listener: Arc::clone(&listener) };
    let disk = Disk::builder(Target::driver(Arc::new(driver))).name("sda").open().unwrap();
    let (sender, heard) = channel();
    disk.on_notice(tell(sender));
    for _ in 0..3 {
        let read = disk.start(Bio::read(8, Buf::zeroed(4096))).wait();
        assert_eq!(read.status, Status::Medium);
    }
    let told = heard.recv().unwrap();
    assert!(told.contains("read of 4096 bytes at sector 8: medium error"), "{told}");
    let tell_change = || {
        let changed = listener.lock().unwrap().clone().expect("it listens to the driver");
        changed();
    };
    tell_change();
    assert_eq!(heard.recv().unwrap(), "grown", "a kind of failure is told once");
    // Another listener takes its place.
    let (sender, newer) = channel();
    disk.on_notice(tell(sender));
    assert!(heard.recv().is_err(), "the first one is gone");
    tell_change();
    assert_eq!(newer.recv().unwrap(), "grown");
    assert_eq!(disk.device().failures()[0].count, 3);
    // Nothing was written, so there is nothing to flush.
    disk.close().unwrap();
}
