//! Changing the parts of a device under load.

use weir_bio::{Limits, Nanos};

use super::Device;
use super::freeze::{Freezing, Ticket};
use crate::config::{NR_REQUESTS_MAX, NR_REQUESTS_MIN, slots};
use crate::error::{Error, Wait, invalid};
use crate::shared::Path;
use crate::snapshot::Snapshot;
use crate::step::{Progress, Step, Watch, wait};

/// The settings that a reconfiguration may change.
#[derive(Debug)]
pub struct Parts {
    /// The device's limits.
    pub limits: Limits,
    /// 0: every merge, 1: cheap ones only, 2: none.
    pub nomerges: u8,
    /// Whether flushes reach the device.
    pub barriers: bool,
    /// Requests the queue holds.
    pub nr_requests: u16,
    /// Whether I/O is counted in the statistics.
    pub iostats: bool,
    /// A request is timed out after so long, ns; 0 = never.
    pub timeout_ns: u64,
}

impl Parts {
    fn of(snapshot: &Snapshot) -> Parts {
        Parts {
            limits: snapshot.limits.clone(),
            nomerges: snapshot.nomerges,
            barriers: snapshot.barriers,
            nr_requests: snapshot.nr_requests,
            iostats: snapshot.iostats,
            timeout_ns: snapshot.timeout_ns,
        }
    }
}

impl Device {
    /// The present values of all that a reconfiguration may change.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts::of(&self.shared.current.get())
    }

    /// Freezes the device, lets `change` alter its parts, and puts them in force. A refused change
    /// leaves everything as it was.
    ///
    /// # Errors
    /// A value outside its bound.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Parts)) -> Result<(), Error> {
        wait(|watch| self.begin_reconfigure(watch, change), || Nanos::ZERO)
    }

    /// Begins to [reconfigure](Device::reconfigure), when the changes begun before have ended.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_reconfigure<F: FnOnce(&mut Parts)>(
        &self,
        watch: &Watch,
        change: F,
    ) -> Reconfiguring<F> {
        Reconfiguring {
            freezing: None,
            ticket: Some(Ticket::draw(self, watch)),
            device: self.clone(),
            watch: watch.clone(),
            change: Some(change),
        }
    }

    /// Puts changed parts in force; the device is frozen.
    fn apply(&self, change: impl FnOnce(&mut Parts)) -> Result<(), Error> {
        let shared = &self.shared;
        let before = shared.current.get();
        let mut parts = Parts::of(&before);
        change(&mut parts);
        let limits = parts.limits.validate()?;
        let (most, reserved) = match self.scheduler() {
            "none" => (shared.depth, shared.queues.reserved),
            _ => (NR_REQUESTS_MAX, 0),
        };
        let nr_requests = parts.nr_requests.max(NR_REQUESTS_MIN.min(most));
        if nr_requests > most {
            return invalid(format!("nr_requests={nr_requests} is above {most}"));
        }
        if nr_requests <= reserved {
            let least = reserved + 1;
            return invalid(format!("nr_requests={nr_requests} is below {least}"));
        }
        let nomerges = parts.nomerges.min(2);
        if nr_requests != before.nr_requests {
            self.resize(nr_requests);
        }
        self.tell_scheduler(&limits, nomerges);
        let after = Snapshot {
            version: before.version + 1,
            limits,
            nomerges,
            barriers: parts.barriers,
            iostats: parts.iostats,
            timeout_ns: parts.timeout_ns,
            scheduled: before.scheduled,
            timed: before.timed,
            offline: before.offline,
            slots: slots(nr_requests).max(before.slots),
            nr_requests,
            queues: before.queues,
            layout: before.layout,
            ..Snapshot::default()
        };
        shared.current.replace(after);
        // Behind the replacement: a hard queue installed meanwhile follows one or the other way.
        if let Path::Sq(sq) = &shared.path {
            sq.follow(&shared.current.get());
        }
        Ok(())
    }

    fn tell_scheduler(&self, limits: &Limits, nomerges: u8) {
        self.shared.path.with_elevator(|elevator| elevator.limits_changed(limits, nomerges));
    }

    /// Gives the scheduler another number of tags; everything is drained.
    fn resize(&self, nr_requests: u16) {
        match &self.shared.path {
            Path::Mq(mq) => mq.with_dispatcher(|elevator| {
                if let Some(elevator) = elevator {
                    elevator.resize(nr_requests);
                }
            }),
            Path::Sq(sq) => {
                assert!(sq.is_empty(), "a frozen device has no request");
                sq.resize(nr_requests);
            }
        }
    }
}

/// A reconfiguration under way.
pub struct Reconfiguring<F> {
    // In this order: the gate opens before the next change may begin.
    freezing: Option<Freezing>,
    ticket: Option<Ticket>,
    device: Device,
    watch: Watch,
    change: Option<F>,
}

impl<F: FnOnce(&mut Parts)> Step for Reconfiguring<F> {
    type Out = Result<(), Error>;

    fn poll(&mut self, now: Nanos) -> Progress<Self::Out> {
        if !self.ticket.as_ref().is_some_and(Ticket::is_first) {
            return Progress::Waits;
        }
        let Reconfiguring { freezing, device, watch, .. } = self;
        let freezing = freezing.get_or_insert_with(|| device.begin_freeze(watch));
        let Progress::Ended(frozen) = freezing.poll(now) else { return Progress::Waits };
        // A turn that a panic in `change` ends leaves everything whole.
        let applied = self.change.take().map_or(Ok(()), |change| device.apply(change));
        drop(frozen);
        (self.freezing, self.ticket) = (None, None);
        Progress::Ended(applied)
    }

    fn waits_for(&self) -> Wait {
        self.freezing.as_ref().map_or(Wait::Change, Step::waits_for)
    }
}
