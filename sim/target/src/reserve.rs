//! Persistent reservations of one logical unit. Rules: SPC-4, "Reservations".

use weir_proto_scsi::reservation::{
    Reservation, ReservationKey, ReservationType, ReserveOutAction, ReserveOutList,
};

use crate::access::Access;
use crate::nexus::{InitiatorId, PortId};

/// A nexus as reservations know it: over connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub initiator: InitiatorId,
    pub port: PortId,
}

/// Why a PERSISTENT RESERVE OUT is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveError {
    /// RESERVATION CONFLICT.
    Conflict,
    /// A field of the CDB.
    Cdb,
    /// A field of the parameter list.
    List,
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    Release,
}

/// What others are to be told, and lose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consequences {
    /// Their registration was preempted.
    pub preempted: Vec<Registrant>,
    /// They are registered, and the reservation was released.
    pub released: Vec<Registrant>,
    /// Their registration and the reservation went with CLEAR.
    pub cleared: Vec<Registrant>,
    /// The commands of the preempted are aborted.
    pub abort: bool,
}

/// A logical unit's registrations and reservation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    pub generation: u32,
    pub registered: Vec<(Registrant, ReservationKey)>,
    holder: Option<(Registrant, ReservationType)>,
}

const NO_KEY: ReservationKey = ReservationKey(0);

const fn is_type(kind: ReservationType) -> bool {
    matches!(kind.0, 1 | 3 | 5..=8)
}

const fn all_registrants(kind: ReservationType) -> bool {
    matches!(kind.0, 7 | 8)
}

impl Reservations {
    fn key_of(&self, who: Registrant) -> Option<ReservationKey> {
        self.registered.iter().find(|(other, _)| *other == who).map(|(_, key)| *key)
    }

    /// Whether a registration holds the reservation.
    pub(crate) fn holds(&self, who: Registrant) -> bool {
        self.holder.is_some_and(|(holder, kind)| {
            holder == who || (all_registrants(kind) && self.key_of(who).is_some())
        })
    }

    /// The reservation as PERSISTENT RESERVE IN tells it.
    pub(crate) fn reservation(&self) -> Option<Reservation> {
        let (holder, kind) = self.holder?;
        let key = if all_registrants(kind) { NO_KEY } else { self.key_of(holder)? };
        Some(Reservation { key, scope: 0, kind })
    }

    /// Whether a nexus may do something.
    pub(crate) fn allows(&self, who: Registrant, access: Access) -> bool {
        let Some((_, kind)) = self.holder else { return true };
        let registered = self.key_of(who).is_some();
        let inside = self.holds(who) || (kind.0 >= 5 && registered);
        match access {
            Access::Free => true,
            Access::Read => inside || matches!(kind.0, 1 | 5 | 7),
            Access::Write => inside,
        }
    }

    /// Carries out a service action.
    pub(crate) fn change(
        &mut self,
        who: Registrant,
        (action, kind): (ReserveOutAction, ReservationType),
        list: &ReserveOutList,
    ) -> Result<Consequences, ReserveError> {
        let own = self.key_of(who);
        match action {
            ReserveOutAction::REGISTER | ReserveOutAction::REGISTER_AND_IGNORE_EXISTING_KEY => {
                let ignores = action == ReserveOutAction::REGISTER_AND_IGNORE_EXISTING_KEY;
                if !ignores && list.key != own.unwrap_or(NO_KEY) {
                    return Err(ReserveError::Conflict);
                }
                return Ok(self.register(who, list.action_key));
            }
            _ if own.is_none() || own != Some(list.key) => return Err(ReserveError::Conflict),
            _ => {}
        }
        match action {
            ReserveOutAction::RESERVE => self.reserve(who, kind),
            ReserveOutAction::RELEASE => self.release(who, kind),
            ReserveOutAction::CLEAR => {
                let cleared = self.others(who);
                self.registered.clear();
                self.holder = None;
                self.generation = self.generation.wrapping_add(1);
                Ok(Consequences { cleared, ..Consequences::default() })
            }
            ReserveOutAction::PREEMPT => self.preempt(who, kind, list.action_key),
            ReserveOutAction::PREEMPT_AND_ABORT => {
                let consequences = self.preempt(who, kind, list.action_key)?;
                Ok(Consequences { abort: true, ..consequences })
            }
            _ => Err(ReserveError::Cdb),
        }
    }

    fn others(&self, who: Registrant) -> Vec<Registrant> {
        self.registered.iter().map(|(other, _)| *other).filter(|other| *other != who).collect()
    }

    fn register(&mut self, who: Registrant, key: ReservationKey) -> Consequences {
        let mut consequences = Consequences::default();
        self.generation = self.generation.wrapping_add(1);
        if key != NO_KEY {
            match self.registered.iter_mut().find(|(other, _)| *other == who) {
                Some((_, old)) => *old = key,
                None => self.registered.push((who, key)),
            }
            return consequences;
        }
        let held = self.holds(who);
        self.registered.retain(|(other, _)| *other != who);
        let Some((holder, kind)) = self.holder.filter(|_| held) else { return consequences };
        match self.registered.first() {
            // All the registered hold it, so it stays as long as one is left.
            Some(&(next, _)) if all_registrants(kind) => {
                self.holder = Some((if holder == who { next } else { holder }, kind));
            }
            _ => {
                self.holder = None;
                if kind.0 >= 5 {
                    consequences.released = self.others(who);
                }
            }
        }
        consequences
    }

    fn reserve(
        &mut self,
        who: Registrant,
        kind: ReservationType,
    ) -> Result<Consequences, ReserveError> {
        if !is_type(kind) {
            return Err(ReserveError::Cdb);
        }
        match self.holder {
            None => self.holder = Some((who, kind)),
            Some((_, held)) if self.holds(who) && held == kind => {}
            Some(_) => return Err(ReserveError::Conflict),
        }
        Ok(Consequences::default())
    }

    fn release(
        &mut self,
        who: Registrant,
        kind: ReservationType,
    ) -> Result<Consequences, ReserveError> {
        let mut consequences = Consequences::default();
        let Some((_, held)) = self.holder.filter(|_| self.holds(who)) else {
            return Ok(consequences);
        };
        if held != kind {
            return Err(ReserveError::Release);
        }
        self.holder = None;
        if held.0 >= 5 {
            consequences.released = self.others(who);
        }
        Ok(consequences)
    }

    fn preempt(
        &mut self,
        who: Registrant,
        kind: ReservationType,
        key: ReservationKey,
    ) -> Result<Consequences, ReserveError> {
        let all_hold = self.holder.is_some_and(|(_, kind)| all_registrants(kind));
        let takes_over = match self.holder {
            Some(_) if all_hold => key == NO_KEY,
            Some((holder, _)) => self.key_of(holder) == Some(key),
            None => false,
        };
        if key == NO_KEY && !all_hold {
            return Err(ReserveError::List);
        }
        if takes_over && !is_type(kind) {
            return Err(ReserveError::Cdb);
        }
        let goes = |(other, theirs): &(Registrant, ReservationKey)| {
            *other != who && (*theirs == key || key == NO_KEY)
        };
        let preempted: Vec<_> =
            self.registered.iter().filter(|one| goes(one)).map(|(other, _)| *other).collect();
        if preempted.is_empty() && !takes_over {
            return Err(ReserveError::Conflict);
        }
        self.registered.retain(|one| !goes(one));
        self.generation = self.generation.wrapping_add(1);
        if takes_over {
            self.holder = Some((who, kind));
        }
        Ok(Consequences { preempted, ..Consequences::default() })
    }
}
