//! The scheduler of a device: which one there is, switching it under load, and its tunables.

use std::sync::{Arc, PoisonError};

use weir_bio::{GroupId, Nanos};
use weir_sched::{Family, SCHEDULERS, Scheduler, Tunable, TunableError};

use crate::config::{Error, QueueMode, Spread, find_scheduler, nr_requests, slots};
use crate::device::Device;
use crate::dispatcher::NO_HOST;
use crate::elevator::Elevator;
use crate::group::Groups;
use crate::shared::{Shared, Snapshot};

impl Device {
    /// The scheduler's name, `none` without one.
    #[must_use]
    pub fn scheduler(&self) -> &'static str {
        self.shared.with_elevator(|elevator| elevator.scheduler().name()).unwrap_or("none")
    }

    /// The names this device takes, in the order the `scheduler` attribute lists them.
    #[must_use]
    pub fn schedulers(&self) -> Vec<&'static str> {
        let config = self.config();
        if config.spread == Spread::RoundRobin {
            return vec!["none"];
        }
        let family = family(config.mode);
        SCHEDULERS.iter().filter(|entry| entry.family == family).map(|entry| entry.name).collect()
    }

    /// Switches the scheduler: builds the new one, waits until every request has ended, and swaps.
    /// `nr_requests` and all tunables become the new one's defaults. Choosing the one that is there
    /// changes nothing. Not for a thread that turns lanes or has I/O under way.
    ///
    /// Returns how long nothing was let in, by `clock`.
    ///
    /// # Errors
    /// A name this device does not take. The old scheduler stays then.
    pub fn set_scheduler(&self, name: &str, clock: &dyn Fn() -> Nanos) -> Result<Nanos, Error> {
        let shared = &self.shared;
        // Linux takes whatever starts with it.
        let name = if name.starts_with("none") { "none" } else { name };
        let mut config = shared.config.clone();
        config.scheduler = Some(String::from(name));
        config.nr_requests = None;
        let compat = shared.config.compat.clone();
        let attached = match find_scheduler(&config, "none") {
            Err(_) if compat.is_some() => {
                // The level was for the scheduler the device was built with.
                config.compat = None;
                find_scheduler(&config, "none")?
            }
            found => found?,
        };
        let _alone = shared.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.name == self.scheduler() {
            return Ok(Nanos::ZERO);
        }
        let before = shared.snapshot();
        config.queues = before.queues;
        let nr_requests =
            nr_requests(&config, shared.depth, shared.queues.reserved, attached.make.is_some())?;
        let tags = match &shared.single {
            Some(_) => nr_requests * 2,
            None => nr_requests,
        };
        let elevator = attached.make.map(|make| {
            let setup = config.setup(&before.limits, tags, before.nomerges, attached.compat);
            Elevator::new(make(&setup), tags)
        });
        let began = clock();
        let frozen = self.freeze();
        self.replace(elevator, nr_requests);
        *shared.attached.lock().expect("the lock of the scheduler's name") = attached;
        drop(frozen);
        Ok(Nanos(clock().since(began)))
    }

    /// Puts a new scheduler, or none, in force; the device is frozen.
    pub(crate) fn replace(&self, elevator: Option<Elevator>, nr_requests: u16) {
        let shared = &self.shared;
        let scheduled = shared.single.is_none() && elevator.is_some();
        let timed = elevator.as_ref().is_some_and(Elevator::wants_times);
        self.swap(elevator, nr_requests);
        if let Some(groups) = shared.groups.get() {
            groups.tell(shared);
        }
        let before = shared.snapshot();
        shared.replace_snapshot(Snapshot {
            version: before.version + 1,
            limits: before.limits.clone(),
            scheduled,
            timed,
            slots: slots(nr_requests).max(before.slots),
            nr_requests,
            ..*before
        });
    }

    fn swap(&self, elevator: Option<Elevator>, nr_requests: u16) {
        match (&self.shared.single, elevator) {
            (Some(single), Some(elevator)) => {
                assert!(single.is_empty(), "a frozen device has no request");
                single.replace_elevator(elevator, nr_requests);
            }
            (Some(_), None) => unreachable!("every legacy scheduler is one"),
            (None, elevator) => {
                self.shared.with_dispatcher(|now| {
                    let idle = now.as_ref().is_none_or(Elevator::is_idle);
                    assert!(idle, "a frozen device has no request");
                    *now = elevator;
                    self.shared.host.set(NO_HOST);
                });
            }
        }
    }

    /// Takes its groups' weights from this tree, now and whenever they change. The first tree
    /// stays.
    pub fn attach_groups(&self, groups: &Arc<Groups>) {
        if self.shared.groups.set(Arc::clone(groups)).is_ok() {
            groups.attach(&self.shared);
        }
    }

    /// The scheduler's tunables; none without a scheduler.
    #[must_use]
    pub fn tunables(&self) -> &'static [Tunable] {
        self.shared.with_elevator(|elevator| elevator.scheduler().tunables().table()).unwrap_or(&[])
    }

    /// A tunable's value as sysfs shows it.
    ///
    /// # Errors
    /// [`TunableError::Unknown`].
    pub fn tunable(&self, name: &str) -> Result<String, TunableError> {
        self.shared
            .with_elevator(|elevator| elevator.scheduler().tunables().show(name))
            .unwrap_or_else(|| no_scheduler(name))
    }

    /// Sets a tunable from text, as a write to the tree does. It holds from the next event on.
    ///
    /// # Errors
    /// See [`Tunable::parse`]; nothing changes then.
    pub fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError> {
        self.shared
            .with_elevator(|elevator| elevator.scheduler().tunables_mut().set(name, text))
            .unwrap_or_else(|| no_scheduler(name))?;
        // Another depth, or no more idling: what waits may go now.
        let lanes = self.shared.with_elevator(Elevator::look_again);
        match &self.shared.single {
            Some(_) => self.shared.nudge(0),
            None => self.shared.kick_each(lanes.unwrap_or(0)),
        }
        Ok(())
    }
}

impl Shared {
    /// Calls `with` on the elevator, under its lock; `None` without one.
    pub(crate) fn with_elevator<T>(&self, with: impl FnOnce(&mut Elevator) -> T) -> Option<T> {
        match &self.single {
            Some(single) => Some(single.with_elevator(with)),
            None => self.with_dispatcher(|elevator| elevator.as_mut().map(with)),
        }
    }

    /// Tells the scheduler where a group stands and what it weighs.
    pub(crate) fn tell_group(&self, group: GroupId, parent: Option<GroupId>, weight: u16) {
        self.with_elevator(|elevator| elevator.group_changed(group, parent, weight));
    }
}

fn no_scheduler<T>(name: &str) -> Result<T, TunableError> {
    Err(TunableError::Unknown(format!("no tunable {name:?}: there is no scheduler")))
}

pub(crate) fn family(mode: QueueMode) -> Family {
    match mode {
        QueueMode::Sq => Family::Legacy,
        QueueMode::Mq => Family::Multi,
    }
}

/// Sets a new scheduler's tunables as the configuration has them.
pub(crate) fn apply_tunables(
    scheduler: &mut dyn Scheduler,
    tunables: &[(String, String)],
) -> Result<(), Error> {
    for (name, text) in tunables {
        let set = scheduler.tunables_mut().set_strict(name, text);
        set.map_err(|error| Error::Invalid(error.to_string()))?;
    }
    Ok(())
}
