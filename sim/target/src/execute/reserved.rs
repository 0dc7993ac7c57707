//! PERSISTENT RESERVE IN and OUT.

use weir_proto_scsi::command::ReserveOut;
use weir_proto_scsi::reservation::{
    Registration, ReservationKey, ReservationType, ReservationTypes, ReserveCapabilities,
    ReserveInAction, ReserveOutList, put_keys, put_registrations, put_reservation,
};
use weir_proto_scsi::{AdditionalSense, ScsiStatus};

use super::{BAD_LIST, CUT_LIST, DataIn, Job, Outcome, Refusal, illegal};
use crate::nexus::InitiatorId;
use crate::reserve::{Consequences, Registrant, ReserveError};
use crate::state::Target;

/// The TransportID of an initiator, as iSCSI has it: the protocol, a length, and a name that ends
/// with a NUL, in words.
fn transport_id(initiator: InitiatorId) -> Vec<u8> {
    let name = format!("iqn.2024-01.invalid.weir:initiator-{}", initiator.0);
    let len = (name.len() + 1).next_multiple_of(4);
    let mut id = vec![0x05, 0];
    id.extend_from_slice(&(len as u16).to_be_bytes());
    id.extend(name.bytes());
    id.resize(4 + len, 0);
    id
}

impl Target {
    pub(super) fn reserve_in(
        &mut self,
        unit: usize,
        job: Job<'_>,
        action: ReserveInAction,
        allocation: u16,
    ) -> Outcome {
        let is = &self.units[unit].reservations;
        let out = &mut self.reply;
        match action {
            ReserveInAction::READ_KEYS => {
                let keys: Vec<_> = is.registered.iter().map(|(_, key)| *key).collect();
                put_keys(out, is.generation, &keys);
            }
            ReserveInAction::READ_RESERVATION => {
                put_reservation(out, is.generation, is.reservation());
            }
            ReserveInAction::REPORT_CAPABILITIES => {
                let types = [1, 3, 5, 6, 7, 8].map(ReservationType);
                let types = Some(ReservationTypes::new(&types));
                ReserveCapabilities { types, ..ReserveCapabilities::default() }.put(out);
            }
            ReserveInAction::READ_FULL_STATUS => {
                let names: Vec<_> =
                    is.registered.iter().map(|(who, _)| transport_id(who.initiator)).collect();
                let one = |((who, key), name): (&(Registrant, ReservationKey), _)| Registration {
                    key: *key,
                    all_target_ports: false,
                    holds: is.reservation().filter(|_| is.holds(*who)),
                    port: who.port.0,
                    initiator: name,
                };
                let all: Vec<_> =
                    is.registered.iter().zip(names.iter().map(Vec::as_slice)).map(one).collect();
                put_registrations(out, is.generation, &all);
            }
            _ => return Err(job.bad_field(1)),
        }
        Ok(DataIn::Reply { most: u32::from(allocation) })
    }

    pub(super) fn reserve_out(&mut self, unit: usize, job: Job<'_>, out: ReserveOut) -> Outcome {
        if out.scope != 0 {
            return Err(job.bad_field(2));
        }
        if out.length as usize != ReserveOutList::LEN {
            return Err(illegal(CUT_LIST));
        }
        let list = ReserveOutList::decode(job.data).map_err(|_| illegal(CUT_LIST))?;
        if list.names_initiators || list.all_target_ports || list.through_power_loss {
            return Err(illegal(BAD_LIST));
        }
        let who = self.registrant(job.nexus);
        let changed = self.units[unit].reservations.change(who, (out.action, out.kind), &list);
        let consequences = changed.map_err(|error| match error {
            ReserveError::Conflict => Refusal::Status(ScsiStatus::RESERVATION_CONFLICT),
            ReserveError::Cdb => job.bad_field(1),
            ReserveError::List => illegal(BAD_LIST),
            ReserveError::Release => {
                illegal(AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION)
            }
        })?;
        self.taken = ReserveOutList::LEN;
        self.tell_consequences(unit, job, &consequences);
        Ok(DataIn::None)
    }

    fn tell_consequences(&mut self, unit: usize, job: Job<'_>, consequences: &Consequences) {
        let Consequences { preempted, released, cleared, abort } = consequences;
        let told = [
            (preempted, AdditionalSense::REGISTRATIONS_PREEMPTED),
            (released, AdditionalSense::RESERVATIONS_RELEASED),
            (cleared, AdditionalSense::RESERVATIONS_PREEMPTED),
        ];
        for (them, code) in told {
            for slot in 0..self.nexuses.len() {
                if !self.nexuses[slot].alive || !them.contains(&self.registrant(slot)) {
                    continue;
                }
                self.nexuses[slot].told[unit].raise(code);
                if *abort {
                    let theirs = self.id_of(slot);
                    self.abort(job.now, |task| task.nexus == theirs && task.unit == Some(unit));
                }
            }
        }
    }
}
