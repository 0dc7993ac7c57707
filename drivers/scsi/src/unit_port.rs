//! A unit as the [`TargetPort`] of its device.

use std::sync::Arc;

use weir_bio::Nanos;
use weir_proto_scsi::alua::AccessState;
use weir_queue::{Activation, PortAccess, PortListener, PortState, TargetPort};

use crate::port_view::{ACTIVATE, REFRESH};
use crate::probe::Access;
use crate::unit::UnitShared;

impl UnitShared {
    /// Has a lane do what is wished; without one, an activation has failed.
    pub(crate) fn pass_on_port_wish(&self, now: Nanos) {
        if self.port.has_wish()
            && !self.places.wake_any()
            && self.port.take_wish().is_some_and(|wish| wish.activates)
        {
            self.port.tell_activated(Activation::Failed, now);
        }
    }

    fn wish_of_port(&self, wish: u8, now: Nanos) {
        self.port.wish(wish);
        self.pass_on_port_wish(now);
    }
}

impl TargetPort for UnitShared {
    fn state(&self) -> Option<PortState> {
        let Access { state, preferred, .. } = self.port.access()?;
        Some(PortState { access: access_of(state), preferred })
    }

    fn refresh(&self, now: Nanos) {
        self.wish_of_port(REFRESH, now);
    }

    fn activate(&self, now: Nanos) {
        self.wish_of_port(ACTIVATE, now);
    }

    fn listen(&self, listener: Arc<dyn PortListener>) {
        self.port.set_listener(listener);
    }
}

fn access_of(state: AccessState) -> PortAccess {
    match state {
        AccessState::ActiveOptimized => PortAccess::Optimized,
        AccessState::ActiveNonOptimized => PortAccess::NonOptimized,
        AccessState::Standby => PortAccess::Standby,
        // A state of a later standard carries no I/O that is known of.
        AccessState::Unavailable | AccessState::Reserved(_) => PortAccess::Unavailable,
        AccessState::LbaDependent => PortAccess::BlockDependent,
        AccessState::Offline => PortAccess::Offline,
        AccessState::Transitioning => PortAccess::Transitioning,
    }
}
