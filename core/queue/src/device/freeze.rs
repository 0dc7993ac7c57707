//! Freezing a device, so that nothing is inside, and quiescing it, so that nothing is sent; and the
//! order in which changes of a device come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::Nanos;

use super::Device;
use crate::error::Wait;
use crate::shared::{Path, Shared};
use crate::step::{Acks, Progress, Step, Watch, wait};

/// A caller's place among the watchers, while its step lives.
pub(crate) struct Watching {
    shared: Arc<Shared>,
    watch: Arc<Watch>,
}

impl Watching {
    pub(crate) fn new(shared: &Arc<Shared>, watch: &Watch) -> Watching {
        let watch = shared.watchers.join(watch);
        Watching { shared: Arc::clone(shared), watch }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.shared.watchers.leave(&self.watch);
    }
}

/// The order in which a device is changed: one change at a time, first come, first served. A gate
/// lets several freezers in at once.
#[derive(Default)]
pub(crate) struct Changes(Mutex<Tickets>);

#[derive(Default)]
struct Tickets {
    next: u64,
    tickets: VecDeque<u64>,
}

/// A change's place in that order. Its turn ends when it is dropped.
pub(crate) struct Ticket {
    device: Device,
    number: u64,
    _watching: Watching,
}

impl Ticket {
    pub(crate) fn draw(device: &Device, watch: &Watch) -> Ticket {
        let _watching = Watching::new(&device.shared, watch);
        let mut line = device.control.changes.lock();
        let number = line.next;
        line.next += 1;
        line.tickets.push_back(number);
        drop(line);
        Ticket { device: device.clone(), number, _watching }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.device.control.changes.lock().tickets.front() == Some(&self.number)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Device { shared, control, .. } = &self.device;
        control.changes.lock().tickets.retain(|ticket| *ticket != self.number);
        shared.watchers.tell();
    }
}

impl Changes {
    fn lock(&self) -> MutexGuard<'_, Tickets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device on its way to be frozen: its gate is closed, and what was accepted is waited for.
pub struct Freezing {
    frozen: Option<Frozen>,
    shared: Arc<Shared>,
    _watching: Watching,
}

/// A frozen device; dropping it lets I/O in again.
#[must_use = "the device stays frozen until this is dropped"]
pub struct Frozen {
    shared: Arc<Shared>,
}

impl Step for Freezing {
    type Out = Frozen;

    fn poll(&mut self, _: Nanos) -> Progress<Frozen> {
        if !self.shared.gate.is_empty() {
            return Progress::Waits;
        }
        Progress::Ended(self.frozen.take().expect("a step that has ended is not polled again"))
    }

    fn waits_for(&self) -> Wait {
        Wait::Requests(self.shared.gate.inside())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let last = self.shared.gate.open();
        // One who may be the only one left that holds it.
        self.shared.watchers.tell();
        if last {
            self.shared.nudge_all();
        }
    }
}

/// A device on its way to be quiesced: its open lanes were asked to stop.
pub struct Quiescing {
    quiesced: Option<Quiesced>,
    /// Answers of the lanes; `None`: the single queue has stopped at once.
    acks: Option<Arc<Acks>>,
}

/// A quiesced device; dropping it resumes dispatch.
#[must_use = "the device stays quiesced until this is dropped"]
pub struct Quiesced {
    shared: Arc<Shared>,
}

impl Step for Quiescing {
    type Out = Quiesced;

    fn poll(&mut self, _: Nanos) -> Progress<Quiesced> {
        if !self.acks.as_ref().is_none_or(|acks| acks.are_complete()) {
            return Progress::Waits;
        }
        Progress::Ended(self.quiesced.take().expect("a step that has ended is not polled again"))
    }

    fn waits_for(&self) -> Wait {
        Wait::Lanes
    }
}

impl Drop for Quiesced {
    fn drop(&mut self) {
        match &self.shared.path {
            Path::Mq(mq) => mq.resume(),
            Path::Sq(sq) => sq.resume(),
        }
    }
}

impl Device {
    /// Begins to freeze: nothing new is let in from now on. Nests.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_freeze(&self, watch: &Watch) -> Freezing {
        let shared = Arc::clone(&self.shared);
        let _watching = Watching::new(&shared, watch);
        shared.gate.close();
        // What the write-back throttle holds back was accepted, and is waited for.
        shared.wbt.release();
        shared.nudge_all();
        Freezing { frozen: Some(Frozen { shared: Arc::clone(&shared) }), shared, _watching }
    }

    /// Begins to quiesce: dispatch stops, what is queued is kept, completions go on. Nests.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_quiesce(&self, watch: &Watch) -> Quiescing {
        let shared = Arc::clone(&self.shared);
        let acks = match &shared.path {
            Path::Mq(mq) => Some(mq.pause(watch)),
            Path::Sq(sq) => {
                sq.pause();
                None
            }
        };
        Quiescing { quiesced: Some(Quiesced { shared }), acks }
    }

    /// Stops new I/O and waits until all that was accepted has ended. Nests. Not for a thread that
    /// turns lanes or has a submitter with I/O under way: it would wait for itself.
    pub fn freeze(&self) -> Frozen {
        wait(|watch| self.begin_freeze(watch), || Nanos::ZERO)
    }

    /// Stops dispatch and keeps what is queued; completions go on. Waits until every open lane has
    /// stopped. Not for a thread that turns lanes.
    pub fn quiesce(&self) -> Quiesced {
        wait(|watch| self.begin_quiesce(watch), || Nanos::ZERO)
    }
}
