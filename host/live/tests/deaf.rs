//! A lane for whose event no descriptor is left. The limit on descriptors is the process's, so this
//! test has a process of its own.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_bio::{Limits, Nanos};
use weir_live::{EventWake, Host};
use weir_local::Null;
use weir_queue::{Batch, Config, Device, Done, Driver, DriverError, DriverQueue, Queues};

const SECOND: u64 = 1_000_000_000;

/// A driver with an event for each queue, which may take the last descriptor for it.
struct Greedy {
    inner: Null,
    takes_all: AtomicBool,
}

impl Driver for Greedy {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (inner, event) = (self.inner.open(index, depth)?, EventWake::new().unwrap());
        if self.takes_all.load(Ordering::SeqCst) {
            limit(4);
        }
        Ok(Box::new(Eventful { inner, event }))
    }
}

/// Lets the process open no descriptor from this number on.
fn limit(descriptors: u64) {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), maximum: most }).unwrap();
}

struct Eventful {
    inner: Box<dyn DriverQueue>,
    event: EventWake,
}

impl DriverQueue for Eventful {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.inner.submit(batch, now);
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.inner.reap(now, done);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}

#[test]
fn a_lane_for_whose_event_no_descriptor_is_left_is_not_opened() {
    let before = getrlimit(Resource::Nofile).current.unwrap();
    let driver =
        Arc::new(Greedy { inner: Null::new(1 << 20).unwrap(), takes_all: AtomicBool::new(true) });
    let config = Config { name: "sda".into(), ..Config::default() };
    let sda = Device::new(config, Arc::clone(&driver) as Arc<dyn Driver>).unwrap();
    let host = Host::new(1).unwrap();
    let opened = host.adopt(&sda);
    limit(before);
    let error = opened.expect_err("it would not hear of answers").to_string();
    let text = "disk sda: a descriptor for the event of hard queue 0: Too many open files";
    assert!(error.starts_with(text), "{error}");
    driver.takes_all.store(false, Ordering::SeqCst);
    host.adopt(&sda).unwrap();
    host.stop(10 * SECOND).unwrap();
}
