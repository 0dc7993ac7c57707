//! Freezing, quiescing and changing a device under load.

use std::sync::{Arc, PoisonError};

use weir_bio::Limits;

use crate::config::{Error, NR_REQUESTS_MAX, NR_REQUESTS_MIN, invalid, slots};
use crate::device::Device;
use crate::lane::Control;
use crate::shared::{Acks, Shared, Snapshot};

/// What a reconfiguration may change.
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
    /// What a reconfiguration may change, as it is now.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts::of(&self.shared.snapshot())
    }

    /// Stops new I/O and waits until all that was accepted has ended. Nests. Not for a thread that
    /// turns lanes or has a submitter with I/O under way: it would wait for itself.
    #[must_use = "the device stays frozen until this is dropped"]
    pub fn freeze(&self) -> Frozen<'_> {
        self.shared.gate.close();
        self.shared.nudge_all();
        let (lock, changed) = &self.shared.frozen;
        let guard = lock.lock().expect("the freezer's lock");
        drop(
            changed
                .wait_while(guard, |()| !self.shared.gate.is_empty())
                .expect("the freezer's lock"),
        );
        Frozen { shared: &self.shared }
    }

    /// Stops dispatch and keeps what is queued; completions go on. Waits until every open lane has
    /// stopped. Not for a thread that turns lanes.
    #[must_use = "the device stays quiesced until this is dropped"]
    pub fn quiesce(&self) -> Quiesced<'_> {
        let shared = &self.shared;
        if let Some(single) = &shared.single {
            single.pause();
            return Quiesced { shared };
        }
        let acks = Arc::new(Acks::default());
        for lane in &shared.lanes {
            // A lane that closes answers what it was asked before.
            let mut state = lane.state();
            state.quiesced += 1;
            if state.open {
                acks.expect();
                lane.post(Control::Pause(Arc::clone(&acks)));
            }
        }
        acks.wait();
        Quiesced { shared }
    }

    /// Freezes the device, lets `change` alter its parts, and puts them in force. A refused change
    /// leaves everything as it was.
    ///
    /// # Errors
    /// A value outside its bound.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Parts)) -> Result<(), Error> {
        let shared = &self.shared;
        // A gate lets several freezers in at once. What a panic in `change` leaves is whole.
        let _alone = shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _frozen = self.freeze();
        let before = shared.snapshot();
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
        shared.replace_snapshot(after);
        // Behind the replacement: a hard queue installed meanwhile follows one or the other way.
        if let Some(single) = &shared.single {
            single.follow(&shared.snapshot());
        }
        Ok(())
    }

    fn tell_scheduler(&self, limits: &Limits, nomerges: u8) {
        if let Some(single) = &self.shared.single {
            single.limits_changed(limits, nomerges);
        }
        self.shared.with_dispatcher(|elevator| {
            if let Some(elevator) = elevator {
                elevator.limits_changed(limits, nomerges);
            }
        });
    }

    /// Gives the scheduler another number of tags; everything is drained.
    fn resize(&self, nr_requests: u16) {
        match &self.shared.single {
            Some(single) => {
                assert!(single.is_empty(), "a frozen device has no request");
                single.resize(nr_requests);
            }
            None => {
                self.shared.with_dispatcher(|elevator| {
                    if let Some(elevator) = elevator {
                        elevator.resize(nr_requests);
                    }
                });
            }
        }
    }
}

/// A frozen device; dropping it lets I/O in again.
pub struct Frozen<'a> {
    shared: &'a Shared,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if self.shared.gate.open() {
            self.shared.nudge_all();
        }
    }
}

/// A quiesced device; dropping it resumes dispatch.
pub struct Quiesced<'a> {
    shared: &'a Shared,
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        if let Some(single) = &self.shared.single {
            single.resume();
            self.shared.nudge(0);
            return;
        }
        for lane in &self.shared.lanes {
            let mut state = lane.state();
            state.quiesced -= 1;
            if state.open {
                lane.post(Control::Resume);
            }
        }
    }
}
