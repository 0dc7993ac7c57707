//! A logical unit as a driver.

use std::any::Any;
use std::sync::Arc;

use weir_bio::{Limits, Size, WriteCache};
use weir_proto_scsi::Lun;
use weir_proto_scsi::inquiry::Tpgs;
use weir_queue::{
    Affinity, Budget, ChangeListener, DeviceAttributes, Driver, DriverError, DriverQueue, Queues,
    TagSet, TargetPort, Unflushed,
};

use crate::counters::Counts;
use crate::host::Host;
use crate::lane::UnitQueue;
use crate::limits::limits;
use crate::probe::{Access, Facts};
use crate::unit::{UnitShared, UnitState, Wish};

/// How a logical unit is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitOptions {
    /// For reading only.
    pub read_only: bool,
}

/// A disk: a logical unit of a [`Host`].
pub struct Unit {
    host: Arc<Host>,
    shared: Arc<UnitShared>,
    options: UnitOptions,
    limits: Limits,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Unit({:?})", self.shared)
    }
}

impl Unit {
    /// Identifies a logical unit and opens it.
    ///
    /// # Errors
    /// The target cannot be reached, there is no such disk, or its limits contradict themselves.
    pub fn open(host: &Arc<Host>, lun: Lun, options: UnitOptions) -> Result<Unit, DriverError> {
        let facts = host.identify(lun)?;
        Unit::of_facts(host, facts, options)
    }

    /// Opens a logical unit that was identified. Paths to one unit may share what was found out.
    ///
    /// # Errors
    /// Its limits contradict themselves.
    pub fn of_facts(
        host: &Arc<Host>,
        facts: impl Into<Arc<Facts>>,
        options: UnitOptions,
    ) -> Result<Unit, DriverError> {
        let facts = facts.into();
        let limits = limits(&facts.disk_limits(), host.adapter(), options.read_only);
        let limits = limits.validate().map_err(|why| DriverError {
            what: format!("{}: LUN {}: {why}", host.name(), facts.lun),
            source: None,
        })?;
        let shared = UnitShared::new(&host.shared, facts);
        host.units.join(&shared);
        Ok(Unit { host: Arc::clone(host), shared, options, limits })
    }

    /// The host it is of.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// What was found out about it last.
    #[must_use]
    pub fn facts(&self) -> Arc<Facts> {
        self.shared.facts()
    }

    /// The state of its target port group, if there are such states.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        self.shared.port.access()
    }

    /// What it has counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Whether it is used.
    #[must_use]
    pub fn state(&self) -> UnitState {
        self.shared.state()
    }

    /// The administrator uses it, or does not.
    pub fn set_state(&self, state: UnitState) {
        self.shared.set_state(state, "the administrator");
    }

    /// Commands that it may have at once.
    #[must_use]
    pub fn queue_depth(&self) -> u16 {
        self.shared.depth()
    }

    /// Sets how many commands it may have at once.
    ///
    /// # Errors
    /// The bound.
    pub fn set_queue_depth(&self, depth: u16) -> Result<(), String> {
        let tags = self.host.tags();
        let most = tags.depth() - tags.reserved();
        if !(1..=most).contains(&depth) {
            return Err(format!("queue_depth={depth} is outside 1..={most}"));
        }
        self.shared.set_depth(depth);
        Ok(())
    }

    /// The time of a command of the error handler, nanoseconds.
    #[must_use]
    pub fn eh_timeout_ns(&self) -> u64 {
        self.shared.eh_timeout_ns()
    }

    /// Sets that time, for commands that are sent from now on.
    pub fn set_eh_timeout(&self, timeout_ns: u64) {
        self.shared.set_eh_timeout(timeout_ns);
    }

    /// How long after the last step, and after the last full task set, the depth rises by one,
    /// nanoseconds.
    #[must_use]
    pub fn queue_ramp_up_period_ns(&self) -> u64 {
        self.shared.ramp_up_period_ns()
    }

    /// Sets that time.
    pub fn set_queue_ramp_up_period(&self, period_ns: u64) {
        self.shared.set_ramp_up_period(period_ns);
    }

    /// Takes a wish that the target has left, such as to be asked for its capacity again;
    /// [`rescan`](Unit::rescan) takes all.
    #[must_use]
    pub fn take_wish(&self, wish: Wish) -> bool {
        self.shared.take_wish(wish)
    }

    /// Asks everything anew. One that cannot be asked is taken for one with a volatile cache until
    /// it is: that may have been turned on meanwhile.
    ///
    /// # Errors
    /// The target cannot be reached, or there is another disk now.
    pub fn rescan(&self) -> Result<Size, DriverError> {
        let shared = &self.shared;
        let asking = shared.begin_asking();
        let asked = self.ask_anew().inspect_err(|_| shared.take_for_cached());
        drop(asking);
        asked
    }

    fn ask_anew(&self) -> Result<Size, DriverError> {
        let shared = &self.shared;
        if shared.take_wish(Wish::Luns) {
            self.host.look_for_units().inspect_err(|_| shared.put_back(Wish::Luns))?;
        }
        // Taken before the target is asked: what changes meanwhile leaves another.
        _ = shared.take_wish(Wish::Capacity) | shared.take_wish(Wish::Pages);
        let now = self.host.identify(shared.lun)?;
        if now.is_silent_of(&shared.facts()) {
            // Its port takes no I/O now, so it tells no size: it is asked again once it does.
            shared.put_size_off();
            shared.set_access(now.access);
            shared.change_facts(|facts| facts.disk.caching = now.disk.caching);
            return Ok(self.known_size());
        }
        if let Some(difference) = shared.facts().difference(&now) {
            let what = format!("{}: it is another disk now: {difference}", shared.name);
            return Err(DriverError { what, source: None });
        }
        // A write that is refused from here on is told again.
        shared.set_refused(false);
        shared.set_access(now.access);
        let before = shared.facts().disk.capacity.sectors();
        let after = now.disk_limits().capacity;
        if before != after {
            shared.tell(&format!("it has {after} sectors, before {before}"));
        }
        shared.change_facts(|facts| *facts = now);
        Ok(self.known_size())
    }

    fn known_size(&self) -> Size {
        let disk = self.shared.disk_limits();
        limits(&disk, self.host.adapter(), self.options.read_only).size()
    }
}

impl Driver for Unit {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn write_cache(&self) -> WriteCache {
        limits(&self.shared.disk_limits(), self.host.adapter(), self.options.read_only)
            .write_cache()
    }

    fn queues(&self) -> Queues {
        let tags = self.host.tags();
        Queues {
            max: self.host.adapter().queues,
            depth: tags.depth(),
            reserved: tags.reserved(),
            shared_tags: true,
            home: Affinity::Any,
        }
    }

    fn tag_set(&self) -> Option<Arc<TagSet>> {
        Some(Arc::clone(self.host.tags()))
    }

    fn takes_commands(&self) -> bool {
        true
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        Some(Arc::clone(&self.shared.places) as Arc<dyn Budget>)
    }

    fn follow_timeout(&self, timeout_ns: u64) {
        self.shared.set_timeout(timeout_ns);
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        self.host.transport().prepare(index)
    }

    fn open(&self, index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let counters = self.shared.new_counters();
        let channel = &self.host.channels[usize::from(index)];
        let entered = channel.enter(&self.shared, Arc::clone(&counters))?;
        Ok(Box::new(UnitQueue::new(&self.host, &self.shared, index, entered, counters)))
    }

    fn target_port(&self) -> Option<Arc<dyn TargetPort>> {
        let has_states = self.shared.facts().inquiry.tpgs != Tpgs::None;
        has_states.then(|| Arc::clone(&self.shared) as Arc<dyn TargetPort>)
    }

    fn attributes(&self) -> Option<&dyn DeviceAttributes> {
        Some(self)
    }

    fn on_change(&self, listener: ChangeListener) {
        self.shared.set_on_change(listener);
    }

    fn likeness(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self.facts())
    }

    /// An earlier write that was answered has failed: what it wrote is lost on every path.
    fn unflushed(&self) -> Unflushed {
        if self.shared.is_doubtful() { Unflushed::Gone } else { Unflushed::Kept }
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.host.transport().faults();
        if self.shared.is_protected() && !self.limits.read_only {
            faults.push(format!("{}: the target has it write-protected now", self.shared.name));
        }
        faults
    }

    fn enlarge(&self, _sectors: u64) -> Result<Size, DriverError> {
        self.rescan()
    }
}
