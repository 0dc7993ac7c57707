//! A session whose disk is turned by reactors: it parks its thread while they work.

use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::Duration;

use weir_bio::Nanos;
use weir_live::Clock;
use weir_queue::{Bell, Completion, Submitter};
use weir_ring::Wake;

use super::{Session, Turner, sealed};
use crate::open::Error;
use crate::shared::Open;

/// The reactors of a disk turn its lanes.
pub struct Hosted {
    bell: Arc<Bell>,
    sleeper: Arc<Sleeper>,
    _open: Arc<Open>,
}

impl Session {
    pub(crate) fn new(open: Arc<Open>) -> Result<Session, Error> {
        let sleeper = Arc::new(Sleeper(Mutex::new(std::thread::current())));
        let bell = Bell::new(Box::new(SleeperWake(Arc::clone(&sleeper))), 1);
        let device = open.device.clone();
        let submitter = device.submitter(&bell, 0, open.next_lane())?;
        let turner = Hosted { bell: Arc::clone(&bell), sleeper, _open: open };
        Ok(Session::of(&device, submitter, bell, turner))
    }
}

impl Turner for Hosted {}

impl sealed::Turner for Hosted {
    #[inline(always)] // `each` stays where it is, as in `Submitter::complete`.
    fn pass(&mut self, submitter: &mut Submitter, now: Nanos, each: impl FnMut(Completion)) {
        submitter.flush_plug(now);
        // Before looking: what comes afterwards sets it again.
        self.bell.ready().take(|_| ());
        submitter.complete(now, each);
    }

    /// Parks the calling thread until the bell has something new.
    fn sleep(&mut self, until: Option<Nanos>) {
        self.sleeper.bind();
        // A token from before, or from elsewhere, ends a park early.
        let doorbell = self.bell.doorbell();
        let Some(until) = until else {
            return doorbell.wait_until(|| self.bell.ready().any(), std::thread::park);
        };
        let left = || until.since(Clock.now());
        let is_over = || self.bell.ready().any() || left() == 0;
        let park = || std::thread::park_timeout(Duration::from_nanos(left()));
        doorbell.wait_until(is_over, park);
    }
}

/// The thread to wake: whichever waits.
struct Sleeper(Mutex<Thread>);

impl Sleeper {
    /// Makes it the calling thread.
    fn bind(&self) {
        let here = std::thread::current();
        let mut thread = self.0.lock().expect("the sleeper's lock");
        if thread.id() != here.id() {
            *thread = here;
        }
    }
}

struct SleeperWake(Arc<Sleeper>);

impl Wake for SleeperWake {
    fn wake(&self) {
        self.0.0.lock().expect("the sleeper's lock").unpark();
    }
}
