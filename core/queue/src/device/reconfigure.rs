//! Changing the settings of a device under load.

use weir_bio::{Limits, Nanos, WriteCache};

use super::Device;
use super::freeze::{Freezing, Ticket};
use crate::config::{NR_REQUESTS_MAX, NR_REQUESTS_MIN, check_wbt, slots};
use crate::error::{Error, Wait, invalid};
use crate::settings::Settings;
use crate::shared::Path;
use crate::snapshot::Snapshot;
use crate::step::{Progress, Step, Watch, wait};

impl Device {
    /// The present values of all that a reconfiguration may change.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.seen(&self.shared.current.get())
    }

    /// Whether it has a write-back throttle, which may be off. A device with a round-robin spread
    /// has none, nor has a mapped one whose driver is bio-based: the devices below throttle.
    #[must_use]
    pub fn has_wbt(&self) -> bool {
        self.shared.has_wbt
    }

    /// The write cache of its driver as far as is known now, whatever its limits were set to.
    /// Without a cache once it is offline.
    #[must_use]
    pub fn write_cache(&self) -> WriteCache {
        self.driver().map(|driver| driver.write_cache()).unwrap_or_default()
    }

    /// Whether a flush that ends well may leave what was written before it undurable because that
    /// was asked for: its barriers are off, its limits say that the cache of its driver is none, or
    /// one of the devices that it lies on is so.
    #[must_use]
    pub fn is_durability_disabled(&self) -> bool {
        let settings = self.settings();
        let is_unflushed = !settings.limits.volatile_cache && self.write_cache().volatile;
        let own = !settings.barriers || is_unflushed;
        own || self.legs().iter().any(Device::is_durability_disabled)
    }

    /// The write cache that its driver has now, if it has one that the limits in force do not know
    /// of. The next [reconfiguration](Device::reconfigure) has it flushed.
    #[must_use]
    pub fn new_write_cache(&self) -> Option<WriteCache> {
        let (now, known) = (self.write_cache(), self.known_write_cache());
        (now.volatile && now != known).then_some(now)
    }

    fn known_write_cache(&self) -> WriteCache {
        if let Some(partition) = &self.partition {
            let settings = &self.shared.current.get().settings;
            return settings.write_cache_of(partition.id);
        }
        *self.control.write_cache.lock().expect("the lock of the write cache")
    }

    /// Freezes the device, lets `change` alter its settings, and puts them in force. A refused
    /// change leaves everything as it was. `change` finds the driver's [new write
    /// cache](Device::new_write_cache) in the limits; one that is gone stays there, as its driver
    /// ends flushes without it.
    ///
    /// # Errors
    /// A value outside its bound.
    pub fn reconfigure(&self, change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        wait(|watch| self.begin_reconfigure(watch, change), || Nanos::ZERO)
    }

    /// Begins to [reconfigure](Device::reconfigure), when the changes begun before have ended.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_reconfigure<F: FnOnce(&mut Settings)>(
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

    /// Puts changed settings in force; the device is frozen.
    fn apply(&self, change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        let shared = &self.shared;
        let before = shared.current.get();
        let mut settings = before.settings.clone();
        settings.limits = self.limits_to_change(self.seen(&before).limits)?;
        let write_cache = self.write_cache();
        if write_cache.volatile && write_cache != self.known_write_cache() {
            settings.limits.set_write_cache(write_cache);
        }
        change(&mut settings);
        self.put_in_pool(&mut settings, &before.settings)?;
        self.bring_into_bounds(self.scheduler(), &mut settings)?;
        let nr_requests = settings.nr_requests;
        if nr_requests != before.nr_requests {
            self.resize(nr_requests);
        }
        self.tell_scheduler(&settings.limits, settings.nomerges);
        if settings.timeout_ns != before.timeout_ns
            && let Ok(driver) = self.driver_of_pool()
        {
            driver.follow_timeout(settings.timeout_ns);
        }
        let after = Snapshot {
            version: before.version + 1,
            slots: slots(nr_requests).max(before.slots),
            settings,
            ..Snapshot::clone(&before)
        };
        shared.put_in_force(after);
        if self.partition.is_none() {
            let mut known = self.control.write_cache.lock().expect("the lock of the write cache");
            *known = write_cache;
        }
        // Behind the replacement: a hard queue installed meanwhile follows one or the other way.
        if let Path::Sq(sq) = &shared.path {
            sq.follow(&shared.current.get());
        }
        Ok(())
    }

    /// Brings settings into their bounds, as a change does, beside the scheduler of this name; puts
    /// nothing in force.
    ///
    /// # Errors
    /// A value outside its bound.
    pub fn bring_into_bounds(&self, scheduler: &str, settings: &mut Settings) -> Result<(), Error> {
        let shared = &self.shared;
        settings.limits = settings.limits.clone().validate()?;
        check_wbt(&shared.config.name, settings.wbt, shared.has_wbt)?;
        let (most, reserved) = match scheduler {
            "none" => (shared.depth, shared.queues.reserved),
            _ => (NR_REQUESTS_MAX, 0),
        };
        let nr_requests = settings.nr_requests.max(NR_REQUESTS_MIN.min(most));
        if nr_requests > most {
            return invalid(format!("nr_requests={nr_requests} is above {most}"));
        }
        if nr_requests <= reserved {
            let least = reserved + 1;
            return invalid(format!("nr_requests={nr_requests} is below {least}"));
        }
        settings.nr_requests = nr_requests;
        settings.nomerges = settings.nomerges.min(2);
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

impl<F: FnOnce(&mut Settings)> Step for Reconfiguring<F> {
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
