//! Another number of hard queues, under load.
//!
//! A lane beyond the number in use is closed and nothing is known of it: neither its mailbox nor
//! its marks gather anything. So a disk that uses two of 64 costs what two cost.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use crate::config::{Error, QueueMode, invalid, nr_requests};
use crate::device::Device;
use crate::elevator::Elevator;
use crate::lane::Control;
use crate::shared::{Shared, Snapshot};

/// Most hard queues of a device: a bit each in the elevator's words.
pub(crate) const QUEUES_MAX: u16 = 64;

/// Whoever turns a device's lanes, asked to open and to close some of them.
///
/// # Contract
/// Lane `i` has the same home thread whenever it is open. Both calls wait for that thread, so
/// they are not for it to make.
pub trait LaneHomes: Send + Sync {
    /// Has lane `index` [opened](Device::open_lane) by its home.
    ///
    /// # Errors
    /// The driver's; or there are no homes any more.
    fn open(&self, device: &Device, index: usize) -> Result<(), Error>;

    /// Has lane `index`, which is idle, dropped by its home. One that is about to end may drop it
    /// later.
    fn close(&self, device: &Device, index: usize);
}

impl Device {
    /// Hard queues in use.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.shared.snapshot().queues
    }

    /// The most it can have: what the driver can do, at most 64, and 1 on the single-queue path.
    #[must_use]
    pub fn queues_max(&self) -> u16 {
        self.shared.lanes.len() as u16
    }

    /// From now on these open and close lanes, when all in use are open.
    pub fn attach_homes(&self, homes: Weak<dyn LaneHomes>) {
        *self.shared.lane_homes.lock().expect("the lock of the lanes' homes") = Some(homes);
    }

    /// Nobody turns the lanes from now on: their number stays. Waits for a change under way.
    pub fn detach_homes(&self) {
        let _alone = self.shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        *self.shared.lane_homes.lock().expect("the lock of the lanes' homes") = None;
    }

    /// Changes the number of hard queues: has the driver prepare those to be opened, waits until
    /// every request has ended, opens or closes lanes at their homes, and begins anew with the
    /// scheduler, whose tunables and `nr_requests` become its defaults, as in Linux (block-core
    /// section 11.2). The number there is already changes nothing. Not for a thread that turns
    /// lanes or has I/O under way.
    ///
    /// # Errors
    /// A number outside `1..=`[`queues_max`](Device::queues_max), a device that no host turns or
    /// that is offline, a queue to close that has requests which timed out and were not answered,
    /// or what the driver says to another queue. Nothing changes then.
    pub fn set_queues(&self, queues: u16) -> Result<(), Error> {
        let shared = &self.shared;
        let (name, most) = (&shared.config.name, self.queues_max());
        if queues == 0 || queues > most {
            let why = match shared.config.mode {
                QueueMode::Sq => ": queue_mode=sq has exactly 1",
                QueueMode::Mq => "",
            };
            return invalid(format!("queues={queues} of {name} is outside 1..={most}{why}"));
        }
        let (_alone, before) = self.prepare_lanes(queues)?;
        if queues == before.queues {
            return Ok(());
        }
        // It cannot go offline, or lose its homes, while this one is changing it.
        self.driver()?;
        let homes = self.homes_for(queues)?;
        let mut config = shared.config.clone();
        (config.queues, config.nr_requests) = (queues, None);
        let attached = *shared.attached.lock().expect("the lock of the scheduler's name");
        let elevator = match attached.make {
            None => None,
            Some(make) => {
                let tags = nr_requests(&config, shared.depth, shared.queues.reserved, true)?;
                let setup = config.setup(&before.limits, tags, before.nomerges, attached.compat);
                Some((Elevator::new(make(&setup), tags), tags))
            }
        };
        let _frozen = self.freeze();
        // A lane that is opened now must not ask a scheduler that does not know it.
        let _quiesced = self.quiesce();
        self.change_lanes(homes.as_ref(), before.queues, queues)?;
        if let Some((elevator, nr_requests)) = elevator {
            self.replace(Some(elevator), nr_requests);
        }
        Ok(())
    }

    /// Waits for its turn to change the device, with everything prepared that takes so many queues.
    /// That may take long, so I/O goes on meanwhile, and whoever wants to end the device does not
    /// wait for it.
    fn prepare_lanes(&self, queues: u16) -> Result<(MutexGuard<'_, ()>, Arc<Snapshot>), Error> {
        let shared = &self.shared;
        let mut seen = shared.snapshot();
        loop {
            if seen.queues < queues {
                self.driver()?;
                self.homes_for(queues)?;
            }
            for index in seen.queues..queues {
                self.prepare_lane(usize::from(index))?;
            }
            let alone = shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
            let now = shared.snapshot();
            if now.layout == seen.layout {
                return Ok((alone, now));
            }
            // Another change came first: what was prepared may have been used.
            seen = now;
        }
    }

    /// Those who turn the lanes, for so many queues.
    fn homes_for(&self, queues: u16) -> Result<Arc<dyn LaneHomes>, Error> {
        let homes = self.shared.lane_homes.lock().expect("the lock of the lanes' homes").clone();
        let Some(homes) = homes.and_then(|homes| homes.upgrade()) else {
            let name = &self.shared.config.name;
            return invalid(format!("queues={queues} of {name}: no host turns its queues"));
        };
        Ok(homes)
    }

    /// Opens or closes lanes, with nothing inside and every lane quiesced. After an error all is as
    /// it was.
    fn change_lanes(&self, homes: &dyn LaneHomes, before: u16, after: u16) -> Result<(), Error> {
        let shared = &self.shared;
        for index in usize::from(after)..usize::from(before) {
            let lost = shared.lanes[index].gauges.quarantined.read();
            if lost > 0 {
                // Their memory is the driver's until it answers, and this lane would take it back.
                return invalid(format!(
                    "queues={after} of {}: hard queue {index} waits for {lost} answers to \
                     requests that timed out",
                    shared.config.name
                ));
            }
        }
        shared.use_lanes(after);
        for index in usize::from(before)..usize::from(after) {
            if let Err(error) = homes.open(self, index) {
                shared.use_lanes(before);
                (usize::from(before)..index).for_each(|open| homes.close(self, open));
                shared.forget_lanes(before);
                return Err(error);
            }
        }
        (usize::from(after)..usize::from(before)).for_each(|index| homes.close(self, index));
        shared.forget_lanes(after);
        Ok(())
    }
}

impl Shared {
    /// Makes the first `queues` lanes those in use. Each knows all submitters from now on, and
    /// feeds on none until that one finds its lane again, before its next I/O.
    fn use_lanes(&self, queues: u16) {
        let submitters = self.submitters.lock().expect("the submitters' lock");
        let before = self.snapshot();
        let kept = before.queues.min(queues);
        let (kept, rest) = self.lanes[..usize::from(queues)].split_at(usize::from(kept));
        kept.iter().for_each(|lane| lane.post(Control::Unfeed));
        for lane in rest {
            for (submitter, port) in submitters.ports() {
                let port = Arc::clone(port);
                lane.post(Control::Attach { submitter, port, ring: None });
            }
        }
        self.replace_snapshot(Snapshot {
            version: before.version + 1,
            layout: before.layout + 1,
            queues,
            limits: before.limits.clone(),
            ..*before
        });
    }

    /// Lets go of what closed lanes beyond the first `queues` knew. One whose home has not dropped
    /// it yet, because it is about to end, takes what is for it itself.
    fn forget_lanes(&self, queues: u16) {
        for lane in &self.lanes[usize::from(queues)..] {
            let mut state = lane.state();
            if state.open {
                continue;
            }
            while lane.control.take().is_some() {}
            lane.pending.take(|_| {});
            state.kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::{Limits, Nanos};

    use super::*;
    use crate::bell::Bell;
    use crate::config::Config;
    use crate::driver::{Batch, Done, Driver, DriverError, DriverQueue, Home, Queues};

    struct Idle;

    impl Driver for Idle {
        fn limits(&self) -> Limits {
            Limits { capacity: 1024, ..Limits::default() }
        }

        fn queues(&self) -> Queues {
            Queues { max: 2, depth: 8, reserved: 0, shared_tags: false, home: Home::Any }
        }

        fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
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

    struct NoWake;

    impl weir_ring::Wake for NoWake {
        fn wake(&self) {}
    }

    #[test]
    fn what_waits_for_a_lane_that_is_still_open_is_left_to_it() {
        let config = Config { queues: 2, scheduler: Some("none".into()), ..Config::default() };
        let device = Device::new(config, Arc::new(Idle)).unwrap();
        let bell = Bell::new(Box::new(NoWake), 1);
        let lane = device.open_lane(1, &bell).unwrap();
        device.shared.nudge(1);
        device.shared.forget_lanes(1);
        assert!(lane.has_work(), "its home takes it");
        drop(lane);
        device.shared.forget_lanes(1);
        assert!(!device.shared.lanes[1].has_work(), "nobody does any more");
        assert!(device.shared.lanes[1].state().kept.is_none());
    }
}
