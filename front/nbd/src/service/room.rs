//! Connections of a reactor that make room for a newcomer: `admission.rs` says which.

use weir_bio::Nanos;
use weir_live::Turn;

use super::NbdService;
use crate::admission::{Errand, Idler, Kin};
use crate::connection::Phase;

impl NbdService {
    /// Does what the admission asks of the connections here.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_>, errand: Errand) {
        match errand {
            Errand::Welcome(visitor, ticket) => self.welcome(turn, visitor, ticket),
            Errand::EndHandshake(number) => self.end_handshake(turn, number),
            Errand::TellIdlest(kin) => self.tell_idlest(turn, kin),
            Errand::EndIdle(number, touched) => self.end_idle(turn, number, touched),
        }
    }

    /// Closes a connection that is still in its handshake.
    fn end_handshake(&mut self, turn: &mut Turn<'_>, number: u64) {
        let half_open = self.place_of(number).filter(|place| {
            let phase = self.tenant(*place).map(|connection| &connection.phase);
            matches!(phase, Some(Phase::Handshake(_) | Phase::Closing(_)))
        });
        self.make_room(turn, half_open, "it was half-open");
    }

    /// Closes a client that has done nothing since.
    fn end_idle(&mut self, turn: &mut Turn<'_>, number: u64, touched: Nanos) {
        let idle = self.place_of(number).filter(|place| {
            self.tenant(*place)
                .is_some_and(|connection| connection.touched == touched && connection.is_idle())
        });
        self.make_room(turn, idle, "it was idle");
    }

    /// Says which client of this peer here has been idle the longest, if any was for long.
    fn tell_idlest(&mut self, turn: &Turn<'_>, kin: Kin) {
        let (now, least) = (turn.now(), self.shared.settings.idle_least_ns);
        let of_kin = |kin: Kin, number: u64| self.shared.admission.is_of(kin, number);
        let tenants = self.places.iter().filter_map(|place| place.tenant.as_deref());
        let idle = tenants.filter(|it| it.is_idle() && it.touched + least <= now);
        let idler = idle.filter_map(|it| {
            let ticket = it.ticket.as_ref().filter(|ticket| of_kin(kin, ticket.number))?;
            Some((it.touched, ticket.number, ticket.reactor))
        });
        let idlest: Option<Idler> = idler.min();
        self.shared.admission.hear_of(idlest);
    }

    fn place_of(&self, number: u64) -> Option<u32> {
        let is_it = |place: &super::Place| {
            let ticket = place.tenant.as_ref().and_then(|tenant| tenant.ticket.as_ref());
            ticket.is_some_and(|ticket| ticket.number == number)
        };
        self.places.iter().position(is_it).map(|place| place as u32)
    }

    fn make_room(&mut self, turn: &mut Turn<'_>, place: Option<u32>, why: &str) {
        if let Some(place) = place {
            if let Some(connection) = self.tenant(place) {
                let peer = &connection.peer;
                tracing::warn!(%peer, why, "connection closed to make room for another");
            }
            self.end(turn, place, "closed by us, to make room for another");
        }
        self.shared.admission.go_on();
    }
}
