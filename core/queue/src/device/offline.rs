//! The end of a device: everything submitted afterwards is answered, and nothing reaches a lane.
//!
//! The order is that of docs/behaviour/block-layer.md, section 10.4. The last flush comes under the
//! freeze: behind the closed gate, after everything inside has ended. So nothing is acknowledged
//! between that flush and the end, and a busy device comes to rest in one go.

use std::sync::Arc;

use weir_bio::{Bio, Nanos, Status};

use super::Device;
use super::freeze::{Freezing, Frozen, Ticket};
use crate::directory::Partition;
use crate::driver::{Driver, Unflushed};
use crate::error::{Error, Wait};
use crate::shared::Path;
use crate::snapshot::Snapshot;
use crate::step::{Progress, Step, Watch, wait};
use crate::submit::submitter::Submitter;

/// The state to leave a device in that has come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It is flushed, and its lanes may be closed and opened again.
    Rests,
    /// It is flushed and offline, for good.
    Ends,
    /// As [`Ends`](Then::Ends), of a device below others that have been flushed and are offline. It
    /// is flushed only if it ever had submitters beside theirs, or was below a device that ended
    /// unflushed: all that the others wrote is durable, be it by another path.
    EndsBelow,
    /// It is offline, for good, without a flush: its lanes need not be turned.
    EndsUnflushed,
}

impl Device {
    /// Begins to bring the device to rest, when the changes begun before have ended: lets nothing
    /// in, waits until all that was accepted has ended, flushes, and then does what `then` says.
    /// No home opens or closes lanes of it for [`set_queues`](Device::set_queues) any more.
    ///
    /// It ends with the frozen device, or with the status of the flush if that was not
    /// [`Ok`](Status::Ok): then the device goes on as before. Lanes have to be turned meanwhile.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_close(&self, watch: &Watch, then: Then) -> Closing {
        Closing {
            flushing: Flushing::Owed,
            freezing: None,
            frozen: None,
            ticket: Some(Ticket::draw(self, watch)),
            urged: None,
            device: self.clone(),
            watch: watch.clone(),
            then,
        }
    }

    /// Waits until all that was accepted has ended; whatever is submitted afterwards ends with
    /// [`Status::Offline`](weir_bio::Status::Offline), for good. It does not flush:
    /// [`begin_close`](Device::begin_close) does. Then the lanes may be dropped although submitters
    /// are left, and with them the last of the driver goes: the device itself has let go of it. Not
    /// for a thread that turns lanes or has a submitter with I/O under way: it would wait for
    /// itself.
    pub fn take_offline(&self) {
        let ended = wait(|watch| self.begin_close(watch, Then::EndsUnflushed), || Nanos::ZERO);
        drop(ended);
    }

    /// Ends everything that comes from now on; the device is frozen.
    fn go_offline(&self) {
        if let Some(partition) = &self.partition {
            return self.leave_pool(partition);
        }
        let shared = &self.shared;
        let before = shared.current.get();
        // Nothing is inside, so each submitter looks at the snapshot before its next I/O.
        shared.put_in_force(Snapshot {
            version: before.version + 1,
            offline: true,
            ..Snapshot::clone(&before)
        });
        let driver = self.control.driver.lock().expect("the driver's lock").take();
        let partitions = shared.directory.iter().flat_map(|directory| directory.all());
        let of_partitions: Vec<_> = partitions.map(|partition| partition.driver().take()).collect();
        // Outside the locks: it may close connections.
        drop((driver, of_partitions));
        // The single queue's lanes do not own it, and no lane turns it any more. One with a home
        // goes with its lane, on that thread.
        if let Path::Sq(sq) = &shared.path
            && sq.any_home
        {
            drop(sq.uninstall());
        }
    }

    /// Whether it was [taken offline](Device::take_offline).
    #[must_use]
    pub fn is_offline(&self) -> bool {
        let is_gone = |of: &Partition| of.driver().is_none();
        self.shared.current.get().offline || self.partition.as_deref().is_some_and(is_gone)
    }

    /// The faults that its driver knows of now, and those of the disks that it lies on with their
    /// names, a sentence each; none of its driver's if it is offline.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.driver().map(|driver| driver.faults()).unwrap_or_default();
        for leg in self.legs() {
            let name = &leg.config().name;
            faults.extend(leg.faults().into_iter().map(|fault| format!("{name}: {fault}")));
        }
        faults
    }

    /// The worst that its driver, and those of the disks that it lies on, know of writes that were
    /// answered and not flushed.
    #[must_use]
    pub fn unflushed(&self) -> Unflushed {
        let own = self.driver().map(|driver| driver.unflushed()).unwrap_or_default();
        self.legs().iter().map(Device::unflushed).fold(own, Unflushed::max)
    }

    /// Whether no I/O is let in now: a change of the device waits for what is inside, or has it
    /// stand.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shared.gate.is_closed() && !self.is_offline()
    }

    /// The driver, unless the device is offline.
    pub(crate) fn driver(&self) -> Result<Arc<dyn Driver>, Error> {
        let Some(partition) = &self.partition else { return self.driver_of_pool() };
        let driver = partition.driver().clone();
        driver.ok_or_else(|| Error::Dying(self.config().name.clone()))
    }
}

/// A device on its way to rest.
pub struct Closing {
    // In this order: the flush is let go of before the gate opens, and that opens before the next
    // change may begin.
    flushing: Flushing,
    freezing: Option<Freezing>,
    frozen: Option<Frozen>,
    ticket: Option<Ticket>,
    urged: Option<Urged>,
    device: Device,
    watch: Watch,
    then: Then,
}

/// A driver that was told that its device comes to rest, until it is told that this is over.
struct Urged(Arc<dyn Driver>);

impl Drop for Urged {
    fn drop(&mut self) {
        self.0.comes_to_rest(false);
    }
}

/// The last flush.
enum Flushing {
    Owed,
    /// Another freeze keeps it out.
    Waits(Submitter, Bio),
    UnderWay(Submitter),
    Ended,
}

impl Closing {
    /// Flushes behind the closed gate. `None` while that is not done.
    fn flush(&mut self, now: Nanos) -> Option<Status> {
        self.flushing = match std::mem::replace(&mut self.flushing, Flushing::Ended) {
            Flushing::Ended => return Some(Status::Ok),
            Flushing::Owed => {
                let (bell, token) = self.watch.bell();
                match self.device.last_submitter(bell, token) {
                    Ok(submitter) => Self::submit(submitter, Bio::flush(), now),
                    // The flush of a close that was given up has the place.
                    Err(_) => return Some(Status::Resource),
                }
            }
            Flushing::Waits(submitter, bio) => Self::submit(submitter, bio, now),
            Flushing::UnderWay(submitter) => Flushing::UnderWay(submitter),
        };
        let Flushing::UnderWay(submitter) = &mut self.flushing else { return None };
        let mut ended = None;
        submitter.complete(now, |completion| ended = Some(completion.status));
        if ended.is_some() {
            self.flushing = Flushing::Ended;
        }
        ended
    }

    fn submit(mut submitter: Submitter, bio: Bio, now: Nanos) -> Flushing {
        match submitter.submit(bio, now) {
            Ok(()) => {
                submitter.flush_plug(now);
                Flushing::UnderWay(submitter)
            }
            Err(refused) => Flushing::Waits(submitter, refused.into_bio()),
        }
    }

    fn end(&mut self, out: <Self as Step>::Out) -> Progress<<Self as Step>::Out> {
        // Of a frozen device the caller has the gate now.
        (self.freezing, self.frozen, self.ticket, self.urged) = (None, None, None, None);
        Progress::Ended(out)
    }
}

impl Step for Closing {
    type Out = Result<Frozen, Status>;

    fn poll(&mut self, now: Nanos) -> Progress<Self::Out> {
        if !self.ticket.as_ref().is_some_and(Ticket::is_first) {
            return Progress::Waits;
        }
        if self.urged.is_none()
            && let Ok(driver) = self.device.driver()
        {
            driver.comes_to_rest(true);
            self.urged = Some(Urged(driver));
        }
        if self.frozen.is_none() {
            let Closing { freezing, device, watch, .. } = self;
            let freezing = freezing.get_or_insert_with(|| device.begin_freeze(watch));
            let Progress::Ended(frozen) = freezing.poll(now) else { return Progress::Waits };
            self.frozen = Some(frozen);
        }
        // Asked behind the closed gate: a submitter that comes now finds the device offline.
        let is_owed = match self.then {
            // A device that went offline before was brought to rest then.
            _ if self.device.is_offline() => false,
            Then::Rests | Then::Ends => true,
            Then::EndsBelow => self.device.shared.submitters().owes_flush,
            Then::EndsUnflushed => false,
        };
        if is_owed {
            match self.flush(now) {
                None => return Progress::Waits,
                Some(Status::Ok) => {}
                Some(status) => return self.end(Err(status)),
            }
        }
        if self.device.partition.is_none() {
            self.device.forget_homes();
        }
        // The driver goes with the device.
        self.urged = None;
        if self.then != Then::Rests && !self.device.is_offline() {
            if self.then == Then::EndsUnflushed && self.device.partition.is_none() {
                self.device.control.ends_unflushed();
            }
            self.device.go_offline();
        }
        let frozen = self.frozen.take().expect("it is frozen");
        self.end(Ok(frozen))
    }

    fn waits_for(&self) -> Wait {
        match (&self.flushing, &self.frozen, &self.freezing) {
            (Flushing::Waits(..), ..) => Wait::Freeze,
            (_, Some(_), _) => Wait::Flush,
            (_, None, Some(freezing)) => freezing.waits_for(),
            (_, None, None) => Wait::Change,
        }
    }
}
