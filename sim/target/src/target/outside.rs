//! What happens to the target from outside: its script, and what a test does to it.

use weir_bio::Nanos;
use weir_proto_scsi::AdditionalSense;
use weir_proto_scsi::alua::StateCause;

use crate::nexus::PortId;
use crate::script::{Action, LunChange, PortHealth};
use crate::spec::SpecError;
use crate::state::Target;
use crate::unit::Readiness;

impl Target {
    /// Makes something happen now.
    ///
    /// # Errors
    /// What of it does not fit the spec.
    pub fn apply(&mut self, action: Action, now: Nanos) -> Result<(), SpecError> {
        if let Some((_, what)) = self.spec.misfit_of_action(&action) {
            return Err(SpecError { line: None, what });
        }
        match action {
            Action::Group { id, state } => {
                let at = self.groups.iter().position(|group| group.id == id);
                let at = at.expect("a group that was checked");
                self.change_group(at, state, StateCause::IMPLICIT, None, now);
            }
            Action::Port { id, health } => {
                let port = self.ports.iter_mut().find(|port| port.id.0 == id);
                port.expect("a port that was checked").health = health;
            }
            Action::Lun { number, change } => {
                let at = self.units.binary_search_by_key(&number, |unit| unit.spec.number);
                self.change_unit(at.expect("a LUN that was checked"), change);
            }
            Action::PowerCut => self.cut_power(now),
        }
        Ok(())
    }

    /// The health of all ports as it is now, in the order of the spec.
    pub fn health(&self) -> impl Iterator<Item = PortHealth> {
        self.ports.iter().map(|port| port.health)
    }

    /// The health of a port, if there is one of that number.
    #[must_use]
    pub fn port_health(&self, id: PortId) -> Option<PortHealth> {
        self.ports.iter().find(|port| port.id == id).map(|port| port.health)
    }

    /// When the script or a group's transition goes on.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let script = self.script.get(self.played).map(|event| Nanos(event.at_ns));
        let changes = self.groups.iter().filter_map(|group| Some(group.change?.due));
        changes.chain(script).min()
    }

    /// Makes happen what is due at a time.
    pub(super) fn play(&mut self, at: Nanos) {
        for group in 0..self.groups.len() {
            if let Some(change) = self.groups[group].change.take_if(|change| change.due <= at) {
                self.settle(group, change);
            }
        }
        while let Some(event) = self.script.get(self.played).filter(|event| event.at_ns <= at.0) {
            let action = event.action.clone();
            self.played += 1;
            self.apply(action, at).expect("an event that was checked");
        }
    }

    fn change_unit(&mut self, at: usize, change: LunChange) {
        let unit = &mut self.units[at];
        match change {
            LunChange::Remove | LunChange::Add => {
                unit.present = change == LunChange::Add;
                self.raise(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, None, None);
            }
            LunChange::Offline => unit.readiness = Readiness::Becoming,
            LunChange::Online => {
                unit.readiness = Readiness::Ready;
                self.raise(AdditionalSense::MEDIUM_MAY_HAVE_CHANGED, Some(at), None);
            }
            LunChange::Resize(size) => {
                unit.blocks = size / u64::from(unit.spec.block);
                unit.image.truncate(size, &mut self.dice);
                self.raise(AdditionalSense::CAPACITY_DATA_HAS_CHANGED, Some(at), None);
            }
            LunChange::WriteCache(on) => self.set_write_cache(at, on, None),
        }
    }

    /// All commands and nexuses end, caches are lost, and what is not kept over a power cycle is
    /// as it was at first.
    fn cut_power(&mut self, now: Nanos) {
        self.abort(now, |_| true);
        self.nexuses.iter_mut().for_each(|nexus| nexus.alive = false);
        for unit in &mut self.units {
            unit.image.cut_power(unit.spec.block, &mut self.dice);
            unit.reservations = Default::default();
            unit.reset();
        }
    }
}
