//! The scheduler of a device: which one there is, switching it under load, and its tunables.

use std::sync::Arc;

use weir_bio::Nanos;
use weir_sched::{Scheduler, Tunable, TunableError};

use super::Device;
use super::freeze::{Freezing, Ticket};
use crate::config::{Attached, Config, Spread, family, find_scheduler, nr_requests, slots};
use crate::error::{Error, Wait};
use crate::group::Groups;
use crate::order::elevator::Elevator;
use crate::settings::Settings;
use crate::shared::Path;
use crate::snapshot::Snapshot;
use crate::step::{Progress, Step, Watch, wait};

impl Device {
    /// The scheduler's name, `none` without one.
    #[must_use]
    pub fn scheduler(&self) -> &'static str {
        self.shared.path.with_elevator(|elevator| elevator.scheduler().name()).unwrap_or("none")
    }

    /// The names this device takes, in the order the `scheduler` attribute lists them.
    #[must_use]
    pub fn schedulers(&self) -> Vec<&'static str> {
        let config = self.config();
        if config.spread == Spread::RoundRobin {
            return vec!["none"];
        }
        let family = family(config.mode);
        let listed = weir_sched::listed(family, config.compat.as_deref());
        listed.into_iter().chain(config.schedulers.names(family)).collect()
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

    /// Begins to [switch](Device::set_scheduler), when the changes begun before have ended. It ends
    /// with the time at which the gate was closed; none if the scheduler was there already.
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

    /// The scheduler that it would [switch](Device::set_scheduler) to by this name, by its own
    /// name, and the `nr_requests` beside it. Nothing is switched.
    ///
    /// # Errors
    /// A name it cannot have.
    pub fn find_scheduler(&self, name: &str) -> Result<(&'static str, u16), Error> {
        let Wanted { config, attached } = self.find_wanted(name)?;
        let now = self.settings().nr_requests;
        if attached.name == self.scheduler() {
            return Ok((attached.name, now));
        }
        let (depth, reserved) = (self.shared.depth, self.shared.queues.reserved);
        Ok((attached.name, nr_requests(&config, depth, reserved, attached.make.is_some())?))
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
        let before = shared.current.get();
        config.queues = before.queues;
        let nr_requests =
            nr_requests(&config, shared.depth, shared.queues.reserved, attached.make.is_some())?;
        let tags = match &shared.path {
            Path::Mq(_) => nr_requests,
            Path::Sq(_) => crate::sq::tags(nr_requests),
        };
        let setup = config.setup(&before.limits, tags, before.nomerges, attached.compat);
        let elevator = attached.made(&setup)?.map(|made| Elevator::new(made, tags));
        Ok(Some(Built { elevator, nr_requests, attached }))
    }

    /// Puts a new scheduler, or none, in force; the device is frozen.
    pub(crate) fn replace(&self, elevator: Option<Elevator>, nr_requests: u16) {
        let shared = &self.shared;
        let scheduled = matches!(shared.path, Path::Mq(_)) && elevator.is_some();
        let timed = elevator.as_ref().is_some_and(Elevator::wants_times);
        self.swap(elevator, nr_requests);
        if let Some(groups) = shared.groups.get() {
            groups.tell(shared.as_ref());
        }
        let before = shared.current.get();
        let wbt = before.wbt.beside(self.scheduler());
        shared.put_in_force(Snapshot {
            version: before.version + 1,
            settings: Settings { nr_requests, wbt, ..before.settings.clone() },
            scheduled,
            timed,
            slots: slots(nr_requests).max(before.slots),
            ..Snapshot::clone(&before)
        });
    }

    fn swap(&self, elevator: Option<Elevator>, nr_requests: u16) {
        match (&self.shared.path, elevator) {
            (Path::Mq(mq), elevator) => {
                let mut changing = mq.dispatcher.take();
                changing.hear_ends();
                let idle = changing.elevator.as_ref().is_none_or(Elevator::is_idle);
                assert!(idle, "a frozen device has no request");
                changing.elevator = elevator;
                mq.dispatcher.dismiss(&mut changing);
                mq.let_go(changing);
            }
            (Path::Sq(sq), Some(elevator)) => {
                assert!(sq.is_empty(), "a frozen device has no request");
                sq.replace_elevator(elevator, nr_requests);
            }
            (Path::Sq(_), None) => unreachable!("every legacy scheduler is one"),
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
        self.shared
            .path
            .with_elevator(|elevator| elevator.scheduler().tunables().table())
            .unwrap_or(&[])
    }

    /// A tunable's value as sysfs shows it.
    ///
    /// # Errors
    /// [`TunableError::Unknown`].
    pub fn tunable(&self, name: &str) -> Result<String, TunableError> {
        self.shared
            .path
            .with_elevator(|elevator| elevator.scheduler().tunables().show(name))
            .unwrap_or_else(|| no_scheduler(name))
    }

    /// Sets a tunable from text, as a write to the tree does. It holds from the next event on.
    ///
    /// # Errors
    /// See [`Tunable::parse`]; nothing changes then.
    pub fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError> {
        self.shared
            .path
            .with_elevator(|elevator| elevator.set_tunable(name, text))
            .unwrap_or_else(|| no_scheduler(name))?;
        // Another depth, or no more idling: what waits may go now.
        self.shared.path.stir(Elevator::look_again);
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
        *self.device.control.attached.lock().expect("the lock of the scheduler's name") = attached;
        drop(frozen);
        let began = self.began;
        self.end(Ok(Some(began)))
    }

    fn waits_for(&self) -> Wait {
        self.freezing.as_ref().map_or(Wait::Change, Step::waits_for)
    }
}

fn no_scheduler<T>(name: &str) -> Result<T, TunableError> {
    Err(TunableError::Unknown(format!("no tunable {name:?}: there is no scheduler")))
}

/// Sets a new scheduler's tunables as the configuration has them.
pub(crate) fn apply_tunables(
    scheduler: &mut dyn Scheduler,
    tunables: &[(String, String)],
) -> Result<(), Error> {
    for (name, text) in tunables {
        let set = scheduler.tunables().set_strict(name, text);
        set.map_err(|error| Error::Invalid(error.to_string()))?;
    }
    Ok(())
}
