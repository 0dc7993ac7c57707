//! The interface of a disk to the tree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Limits, Nanos, Status, WriteCache};
use weir_queue::{
    Config, Device, DeviceAttribute, Error, Failure, LiveRecording, MapControl, QueueUse, RESCAN,
    Settings, Stats,
};
use weir_sched::{Tunable, TunableError};

/// A disk as the tree sees it: asked and told by any thread, slowly. Calls that change something
/// may wait until the I/O under way has ended.
pub trait Disk: Send + Sync {
    /// How it was built: name, queue mode, spread.
    fn config(&self) -> &Config;

    /// The present settings that a change may alter.
    fn settings(&self) -> Settings;

    /// Alters settings. A refused change leaves everything as it was.
    ///
    /// # Errors
    /// A value outside its bound, a disk that is going away, or one that did not come to rest in
    /// time.
    fn change(&self, change: &mut dyn FnMut(&mut Settings)) -> Result<(), Error>;

    /// Whether it has a write-back throttle.
    fn has_wbt(&self) -> bool;

    /// Statistics, summed now.
    fn stats(&self) -> Stats;

    /// The use of each hard queue, read now.
    fn queue_uses(&self) -> Vec<QueueUse> {
        Vec::new()
    }

    /// Hard queues.
    fn queues(&self) -> u16;

    /// Another number of hard queues.
    ///
    /// # Errors
    /// A number it cannot have, or a disk that did not come to rest in time.
    fn set_queues(&self, queues: u16) -> Result<(), Error>;

    /// Makes it at least so many sectors large if that can be, and puts in force how large it is
    /// then, also where it was enlarged from outside: sectors. It never shrinks. A write cache that
    /// was turned on from outside is flushed from then on.
    ///
    /// # Errors
    /// The driver's error, or a disk that did not come to rest in time.
    fn enlarge(&self, sectors: u64) -> Result<u64, Error>;

    /// Tags of a hard queue, and how many of them are reserved.
    fn tags(&self) -> (u16, u16);

    /// The active scheduler.
    fn scheduler(&self) -> String;

    /// The schedulers it may have, as the attribute lists them.
    fn schedulers(&self) -> Vec<&'static str>;

    /// Another scheduler, by name or alias.
    ///
    /// # Errors
    /// A name it cannot have, or a disk that did not come to rest in time.
    fn set_scheduler(&self, name: &str) -> Result<(), Error>;

    /// Records its scheduler from now on.
    ///
    /// # Errors
    /// A disk without one, one that is recorded already, or one that did not come to rest in time.
    fn record(&self) -> Result<LiveRecording, Error>;

    /// How long the last switch of schedulers kept I/O out, us; 0 before the first.
    fn last_switch_us(&self) -> u64;

    /// How the first flush ended that failed, if one did.
    fn flush_error(&self) -> Option<Status>;

    /// The kinds of failures that its I/O had, and how long ago each came last, ns.
    fn failures(&self) -> Vec<(Failure, u64)>;

    /// How long it has been there, ms: what its statistics since the start are averages over.
    fn uptime_ms(&self) -> u64;

    /// The tunables of the active scheduler.
    fn tunables(&self) -> &'static [Tunable];

    /// The value of one, as sysfs shows it.
    ///
    /// # Errors
    /// A name the active scheduler does not have.
    fn tunable(&self, name: &str) -> Result<String, TunableError>;

    /// Sets one from text as a write to sysfs does.
    ///
    /// # Errors
    /// A name it does not have, or a value it does not take.
    fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError>;

    /// The files of `device/` that its driver has, sorted by name.
    fn attributes(&self) -> Vec<&'static DeviceAttribute> {
        Vec::new()
    }

    /// The text of one of them.
    fn attribute(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Writes one of them. `None`: it has none of that name.
    fn set_attribute(&self, name: &str, text: &str) -> Option<Result<(), String>> {
        let _ = (name, text);
        None
    }

    /// Its target as it was stated, without secrets, if that is known.
    fn target(&self) -> Option<&str> {
        None
    }

    /// Whether it was closed for good.
    fn is_offline(&self) -> bool {
        false
    }

    /// Whether it lets no I/O in now, but may later.
    fn is_held(&self) -> bool {
        false
    }

    /// The faults that its driver knows of now, a sentence each.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Its number, if it is a partition of a pool.
    fn partition(&self) -> Option<u16> {
        None
    }

    /// The names of the disks that it lies on.
    fn legs(&self) -> Vec<String> {
        Vec::new()
    }

    /// The text of an attribute of the disks that it lies on, if they all have the same.
    fn leg_attribute(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }

    /// Its table and status, if it is mapped.
    fn map(&self) -> Option<&dyn MapControl> {
        None
    }

    /// Takes a message of `weir map message`.
    ///
    /// # Errors
    /// A disk that is not mapped, and a message that it does not know.
    fn message(&self, text: &str) -> Result<(), String> {
        Err(format!("message {text:?}: the disk is not mapped"))
    }

    /// The write cache of its driver as far as is known now, whatever its limits were set to.
    fn write_cache(&self) -> WriteCache;

    /// Brings settings into their bounds beside the scheduler of this name, as
    /// [`change`](Disk::change) does; puts nothing in force.
    ///
    /// # Errors
    /// A value outside its bound.
    fn bring_into_bounds(&self, scheduler: &str, settings: &mut Settings) -> Result<(), Error>;

    /// The scheduler that it would have by this name, by its own name, and the `nr_requests` beside
    /// it; nothing is switched.
    ///
    /// # Errors
    /// A name it cannot have.
    fn find_scheduler(&self, name: &str) -> Result<(&'static str, u16), Error>;

    /// The most hard queues that it can have.
    fn queues_max(&self) -> u16;

    /// The boot parameters for it, as they were stated.
    fn kernel_cmdline(&self) -> &str {
        ""
    }

    /// Whether flushes make nothing durable, because that was asked for.
    fn is_durability_disabled(&self) -> bool;

    /// Its limits as they are now.
    fn limits(&self) -> Limits {
        self.settings().limits
    }
}

/// The control calls of a device that wait for its I/O, as the host makes them: with a limit, after
/// which they are given up with [`Error::Late`].
pub trait ControlCalls: Send + Sync {
    /// As [`Device::reconfigure`].
    ///
    /// # Errors
    /// As there, and [`Error::Late`].
    fn reconfigure(
        &self,
        device: &Device,
        change: &mut dyn FnMut(&mut Settings),
    ) -> Result<(), Error>;

    /// As [`Device::set_scheduler`].
    ///
    /// # Errors
    /// As there, and [`Error::Late`].
    fn set_scheduler(&self, device: &Device, name: &str) -> Result<Nanos, Error>;

    /// As [`Device::set_queues`].
    ///
    /// # Errors
    /// As there, and [`Error::Late`].
    fn set_queues(&self, device: &Device, queues: u16) -> Result<(), Error>;

    /// As [`Device::begin_recording`].
    ///
    /// # Errors
    /// As there, and [`Error::Late`].
    fn record(&self, device: &Device) -> Result<LiveRecording, Error>;
}

/// A device as a disk of the tree.
pub struct LiveDisk {
    device: Device,
    calls: Box<dyn ControlCalls>,
    clock: fn() -> Nanos,
    begun: Nanos,
    last_switch: Mutex<Nanos>,
    map: Option<Arc<dyn MapControl>>,
    target: Option<String>,
    kernel_cmdline: String,
}

impl LiveDisk {
    /// The disk of `device`, changed through `calls`; `clock` is the one its submitters read.
    #[must_use]
    pub fn new(
        device: Device,
        calls: impl ControlCalls + 'static,
        clock: fn() -> Nanos,
    ) -> LiveDisk {
        let last_switch = Mutex::new(Nanos::ZERO);
        let calls = Box::new(calls);
        LiveDisk {
            device,
            calls,
            clock,
            begun: clock(),
            last_switch,
            map: None,
            target: None,
            kernel_cmdline: String::new(),
        }
    }

    /// The same, of a mapped disk that is asked and told in this way.
    #[must_use]
    pub fn mapped(self, map: Option<Arc<dyn MapControl>>) -> LiveDisk {
        LiveDisk { map, ..self }
    }

    /// The same, made of this target, which has no secret in it.
    #[must_use]
    pub fn of_target(self, target: String) -> LiveDisk {
        LiveDisk { target: Some(target), ..self }
    }

    /// The same, begun with these boot parameters.
    #[must_use]
    pub fn with_kernel_cmdline(self, kernel_cmdline: String) -> LiveDisk {
        LiveDisk { kernel_cmdline, ..self }
    }

    fn last_switch(&self) -> MutexGuard<'_, Nanos> {
        self.last_switch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for LiveDisk {
    fn config(&self) -> &Config {
        self.device.config()
    }

    fn settings(&self) -> Settings {
        self.device.settings()
    }

    fn change(&self, change: &mut dyn FnMut(&mut Settings)) -> Result<(), Error> {
        self.calls.reconfigure(&self.device, change)
    }

    fn has_wbt(&self) -> bool {
        self.device.has_wbt()
    }

    fn stats(&self) -> Stats {
        self.device.stats_at((self.clock)())
    }

    fn queue_uses(&self) -> Vec<QueueUse> {
        let mut uses = self.device.queue_uses();
        uses.truncate(self.queues().into());
        uses
    }

    fn queues(&self) -> u16 {
        self.device.queues()
    }

    fn set_queues(&self, queues: u16) -> Result<(), Error> {
        self.calls.set_queues(&self.device, queues)
    }

    fn enlarge(&self, sectors: u64) -> Result<u64, Error> {
        let below = self.device.enlarge(sectors);
        // One that cannot be asked may have a write cache now.
        let now = below.as_ref().map_or_else(|_| self.device.limits().size(), |size| *size);
        if now.bytes() > self.device.limits().size().bytes()
            || self.device.new_write_cache().is_some()
        {
            let grow = |parts: &mut Settings| parts.limits.grow_to(now);
            self.change(&mut { grow })?;
        }
        below?;
        Ok(self.device.limits().capacity)
    }

    fn write_cache(&self) -> WriteCache {
        self.device.write_cache()
    }

    fn bring_into_bounds(&self, scheduler: &str, settings: &mut Settings) -> Result<(), Error> {
        self.device.bring_into_bounds(scheduler, settings)
    }

    fn find_scheduler(&self, name: &str) -> Result<(&'static str, u16), Error> {
        self.device.find_scheduler(name)
    }

    fn queues_max(&self) -> u16 {
        self.device.queues_max()
    }

    fn kernel_cmdline(&self) -> &str {
        &self.kernel_cmdline
    }

    fn is_durability_disabled(&self) -> bool {
        self.device.is_durability_disabled()
    }

    fn tags(&self) -> (u16, u16) {
        (self.device.depth(), self.device.reserved_tags())
    }

    fn scheduler(&self) -> String {
        String::from(self.device.scheduler())
    }

    fn schedulers(&self) -> Vec<&'static str> {
        self.device.schedulers()
    }

    fn set_scheduler(&self, name: &str) -> Result<(), Error> {
        let took = self.calls.set_scheduler(&self.device, name)?;
        // Nothing was kept out when the scheduler was there already.
        if took > Nanos::ZERO {
            *self.last_switch() = took;
        }
        Ok(())
    }

    fn record(&self) -> Result<LiveRecording, Error> {
        self.calls.record(&self.device)
    }

    fn last_switch_us(&self) -> u64 {
        self.last_switch().0 / NS_PER_US
    }

    fn flush_error(&self) -> Option<Status> {
        self.device.flush_error()
    }

    fn failures(&self) -> Vec<(Failure, u64)> {
        let now = (self.clock)();
        let failures = self.device.failures().into_iter();
        failures.map(|failure| (failure, now.since(failure.at))).collect()
    }

    fn uptime_ms(&self) -> u64 {
        (self.clock)().since(self.begun) / NS_PER_MS
    }

    fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }

    fn is_offline(&self) -> bool {
        self.device.is_offline()
    }

    fn is_held(&self) -> bool {
        self.device.is_held()
    }

    fn faults(&self) -> Vec<String> {
        self.device.faults()
    }

    fn partition(&self) -> Option<u16> {
        self.device.partition()
    }

    fn legs(&self) -> Vec<String> {
        self.device.legs().iter().map(|leg| leg.config().name.clone()).collect()
    }

    fn leg_attribute(&self, name: &str) -> Option<String> {
        let legs = self.device.legs();
        let mut texts = legs
            .iter()
            .map(|leg| leg.with_attributes(|attributes| attributes.show(name)).flatten());
        let first = texts.next()??;
        texts.all(|text| text.as_ref() == Some(&first)).then_some(first)
    }

    fn map(&self) -> Option<&dyn MapControl> {
        self.map.as_deref()
    }

    fn message(&self, text: &str) -> Result<(), String> {
        match &self.map {
            Some(map) => map.message(text, (self.clock)()),
            None => Err(format!("message {text:?}: the disk is not mapped")),
        }
    }

    fn tunables(&self) -> &'static [Tunable] {
        self.device.tunables()
    }

    fn tunable(&self, name: &str) -> Result<String, TunableError> {
        self.device.tunable(name)
    }

    fn set_tunable(&self, name: &str, text: &str) -> Result<(), TunableError> {
        self.device.set_tunable(name, text)
    }

    fn attributes(&self) -> Vec<&'static DeviceAttribute> {
        self.device.with_attributes(|attributes| attributes.list()).unwrap_or_default()
    }

    fn attribute(&self, name: &str) -> Option<String> {
        self.device.with_attributes(|attributes| attributes.show(name)).flatten()
    }

    fn set_attribute(&self, name: &str, text: &str) -> Option<Result<(), String>> {
        let stored = self.device.with_attributes(|attributes| attributes.store(name, text))?;
        Some(match stored {
            Ok(()) if name == RESCAN => {
                self.enlarge(0).map(drop).map_err(|error| error.to_string())
            }
            stored => stored,
        })
    }
}

const NS_PER_US: u64 = 1000;
const NS_PER_MS: u64 = 1_000_000;
