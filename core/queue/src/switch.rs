//! The scheduler of a device: which one there is, switching it under load, and its tunables.

use std::sync::Arc;

use weir_bio::{GroupId, Nanos};
use weir_sched::{Family, SCHEDULERS, Scheduler, Tunable, TunableError};

use crate::config::{
    Attached, Config, Error, QueueMode, Spread, find_scheduler, nr_requests, slots,
};
use crate::device::Device;
use crate::dispatcher::NO_HOST;
use crate::elevator::Elevator;
use crate::freeze::{Freezing, Progress, Step, Ticket, Wait, Watch, wait};
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
        let began = wait(|watch| self.begin_switch(watch, name), clock)?;
        Ok(began.map_or(Nanos::ZERO, |began| Nanos(clock().since(began))))
    }

    /// Begins to [switch](Device::set_scheduler), when the changes begun before have ended. What
    /// comes of it is the time at which the gate was closed; none if the scheduler was there
    /// already.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_switch(&self, watch: &Watch, name: &str) -> Switching {
        Switching {
            freezing: None,
            ticket: Some(Ticket::draw(self, watch)),
            device: self.clone(),
            watch: watch.clone(),
            wanted: Some(self.find_wanted(name)),
            built: None,
            began: Nanos::ZERO,
        }
    }

    fn find_wanted(&self, name: &str) -> Result<Wanted, Error> {
        // Linux takes whatever starts with it.
        let name = if name.starts_with("none") { "none" } else { name };
        let mut config = self.shared.config.clone();
        config.scheduler = Some(String::from(name));
        config.nr_requests = None;
        let attached = match find_scheduler(&config, "none") {
            Err(_) if config.compat.is_some() => {
                // The level was for the scheduler the device was built with.
                config.compat = None;
                find_scheduler(&config, "none")?
            }
            found => found?,
        };
        Ok(Wanted { config, attached })
    }

    /// Everything the new scheduler needs; `None` if it is there already.
    fn build_wanted(&self, wanted: Wanted) -> Result<Option<Built>, Error> {
        let shared = &self.shared;
        let Wanted { mut config, attached } = wanted;
        if attached.name == self.scheduler() {
            return Ok(None);
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
        Ok(Some(Built { elevator, nr_requests, attached }))
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

    /// Takes its groups' weights from this tree, now and whenever they change, and holds what is
    /// submitted to their caps. The first tree stays. A submitter that was there before notices
    /// the tree when it has nothing under way.
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

/// A scheduler that was looked up, and the configuration it is for.
struct Wanted {
    config: Config,
    attached: Attached,
}

/// A scheduler that was built, or none.
struct Built {
    elevator: Option<Elevator>,
    nr_requests: u16,
    attached: Attached,
}

/// A switch of schedulers under way.
pub struct Switching {
    // In this order: the gate opens before the next change may begin.
    freezing: Option<Freezing>,
    ticket: Option<Ticket>,
    device: Device,
    watch: Watch,
    wanted: Option<Result<Wanted, Error>>,
    built: Option<Built>,
    began: Nanos,
}

impl Switching {
    fn end(&mut self, out: <Self as Step>::Out) -> Progress<<Self as Step>::Out> {
        (self.freezing, self.ticket) = (None, None);
        Progress::Ended(out)
    }
}

impl Step for Switching {
    type Out = Result<Option<Nanos>, Error>;

    fn poll(&mut self, now: Nanos) -> Progress<Self::Out> {
        if let Some(Err(error)) = self.wanted.take_if(|wanted| wanted.is_err()) {
            return self.end(Err(error));
        }
        if !self.ticket.as_ref().is_some_and(Ticket::is_first) {
            return Progress::Waits;
        }
        if let Some(Ok(wanted)) = self.wanted.take() {
            match self.device.build_wanted(wanted) {
                Ok(Some(built)) => self.built = Some(built),
                Ok(None) => return self.end(Ok(None)),
                Err(error) => return self.end(Err(error)),
            }
            self.began = now;
            self.freezing = Some(self.device.begin_freeze(&self.watch));
        }
        let freezing = self.freezing.as_mut().expect("a step that has ended is not polled again");
        let Progress::Ended(frozen) = freezing.poll(now) else { return Progress::Waits };
        let Built { elevator, nr_requests, attached } = self.built.take().expect("it was built");
        self.device.replace(elevator, nr_requests);
        let shared = &self.device.shared;
        *shared.attached.lock().expect("the lock of the scheduler's name") = attached;
        drop(frozen);
        let began = self.began;
        self.end(Ok(Some(began)))
    }

    fn waits_for(&self) -> Wait {
        self.freezing.as_ref().map_or(Wait::Change, Step::waits_for)
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
