//! Persistent reservations: which initiators are registered, and what the holder leaves to others.
//!
//! Layouts: SPC-4, "PERSISTENT RESERVE IN command" and "PERSISTENT RESERVE OUT command". Left out:
//! the parameter list of REGISTER AND MOVE, and the TransportIDs of SPEC_I_PT.

use crate::wire::{WireError, at_least, bit_at, claimed, flag, set, u8_at, u16_at, u32_at, u64_at};

codes! {
    /// SERVICE ACTION of PERSISTENT RESERVE IN.
    ReserveInAction: u8 {
        /// The keys that are registered.
        READ_KEYS = 0,
        /// The reservation, if there is one.
        READ_RESERVATION = 1,
        /// What the target can do.
        REPORT_CAPABILITIES = 2,
        /// Each registration with its initiator.
        READ_FULL_STATUS = 3,
    }
}

codes! {
    /// SERVICE ACTION of PERSISTENT RESERVE OUT.
    ReserveOutAction: u8 {
        /// Registers a key, or takes it away with a new key of zero.
        REGISTER = 0,
        /// Reserves.
        RESERVE = 1,
        /// Releases.
        RELEASE = 2,
        /// Releases, and takes every key away.
        CLEAR = 3,
        /// Takes another's key and reservation away.
        PREEMPT = 4,
        /// The same, and aborts its commands.
        PREEMPT_AND_ABORT = 5,
        /// Registers whatever key there was.
        REGISTER_AND_IGNORE_EXISTING_KEY = 6,
        /// Registers another initiator, and moves the reservation there.
        REGISTER_AND_MOVE = 7,
        /// Ends the state after a reservation was lost.
        REPLACE_LOST_RESERVATION = 8,
    }
}

codes! {
    /// TYPE of a reservation, 4 bits.
    ReservationType: u8 {
        /// Others may read.
        WRITE_EXCLUSIVE = 1,
        /// Others may neither read nor write.
        EXCLUSIVE_ACCESS = 3,
        /// The registered may write, all may read.
        WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 5,
        /// The registered may read and write.
        EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 6,
        /// As 5, and all the registered hold it.
        WRITE_EXCLUSIVE_ALL_REGISTRANTS = 7,
        /// As 6, and all the registered hold it.
        EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 8,
    }
}

/// RESERVATION KEY: an initiator's own number; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationKey(pub u64);

/// The parameter list of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveOutList {
    /// RESERVATION KEY of the sender.
    pub key: ReservationKey,
    /// SERVICE ACTION RESERVATION KEY: the new key, or the one that is preempted.
    pub action_key: ReservationKey,
    /// SPEC_I_PT: TransportIDs follow, which is not spoken here.
    pub names_initiators: bool,
    /// ALL_TG_PT: for all ports of the target.
    pub all_target_ports: bool,
    /// APTPL: kept over a power cycle.
    pub through_power_loss: bool,
}

impl ReserveOutList {
    /// Bytes of the list: PARAMETER LIST LENGTH.
    pub const LEN: usize = 24;

    /// Appends the list.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::LEN];
        set(&mut bytes, 0, &self.key.0.to_be_bytes());
        set(&mut bytes, 8, &self.action_key.0.to_be_bytes());
        bytes[20] = flag(self.names_initiators, 0x08)
            | flag(self.all_target_ports, 0x04)
            | flag(self.through_power_loss, 0x01);
        out.extend_from_slice(&bytes);
    }

    /// Reads the list.
    ///
    /// # Errors
    /// [`WireError::Short`] if it is cut.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        at_least("PERSISTENT RESERVE OUT parameter list", bytes, Self::LEN)?;
        Ok(Self {
            key: ReservationKey(u64_at(bytes, 0)),
            action_key: ReservationKey(u64_at(bytes, 8)),
            names_initiators: bit_at(bytes, 20, 0x08),
            all_target_ports: bit_at(bytes, 20, 0x04),
            through_power_loss: bit_at(bytes, 20, 0x01),
        })
    }
}

/// Bytes before what PERSISTENT RESERVE IN lists: PRGENERATION and ADDITIONAL LENGTH.
const HEADER_LEN: usize = 8;
const WHAT: &str = "PERSISTENT RESERVE IN data";

/// The list in the data of PERSISTENT RESERVE IN, for three of its service actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveInList<'a> {
    /// PRGENERATION: counts the changes of registrations.
    pub generation: u32,
    /// ADDITIONAL LENGTH: bytes of the list, as the target claims.
    pub length: u32,
    list: &'a [u8],
}

impl<'a> ReserveInList<'a> {
    /// Reads the header; the list is as long as its length and the data allow.
    ///
    /// # Errors
    /// [`WireError::Short`] if the header is cut.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        at_least(WHAT, bytes, HEADER_LEN)?;
        let length = u32_at(bytes, 4);
        let list = claimed(&bytes[HEADER_LEN..], usize::try_from(length).unwrap_or(usize::MAX));
        Ok(Self { generation: u32_at(bytes, 0), length, list })
    }

    /// The ALLOCATION LENGTH that takes the whole list, by the target's claim.
    #[must_use]
    pub const fn whole_len(&self) -> u32 {
        self.length.saturating_add(HEADER_LEN as u32)
    }

    /// The keys of READ KEYS that are there whole.
    pub fn keys(&self) -> impl Iterator<Item = ReservationKey> + 'a {
        self.list.chunks_exact(8).map(|key| ReservationKey(u64_at(key, 0)))
    }

    /// The reservation of READ RESERVATION, if there is one.
    #[must_use]
    pub fn reservation(&self) -> Option<Reservation> {
        (self.list.len() >= 14).then(|| Reservation {
            key: ReservationKey(u64_at(self.list, 0)),
            scope: self.list[13] >> 4,
            kind: ReservationType(self.list[13] & 0x0f),
        })
    }

    /// The registrations of READ FULL STATUS, up to the first that is cut.
    #[must_use]
    pub const fn registrations(&self) -> Registrations<'a> {
        Registrations(self.list)
    }
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// RESERVATION KEY of the holder; zero if all the registered hold it.
    pub key: ReservationKey,
    /// SCOPE, 4 bits; zero is the logical unit.
    pub scope: u8,
    /// TYPE.
    pub kind: ReservationType,
}

impl Reservation {
    /// SCOPE and TYPE, as they share a byte.
    const fn scope_and_type(self) -> u8 {
        self.scope << 4 | self.kind.0 & 0x0f
    }
}

/// One registration of READ FULL STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration<'a> {
    /// RESERVATION KEY.
    pub key: ReservationKey,
    /// ALL_TG_PT: for all ports of the target.
    pub all_target_ports: bool,
    /// R_HOLDER with SCOPE and TYPE: the registration holds the reservation.
    pub holds: Option<Reservation>,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub port: u16,
    /// TransportID of the initiator.
    pub initiator: &'a [u8],
}

/// Bytes of a registration without the initiator's name.
const REGISTRATION_LEN: usize = 24;

/// Walks registrations.
#[derive(Clone, Debug)]
pub struct Registrations<'a>(&'a [u8]);

impl<'a> Iterator for Registrations<'a> {
    type Item = Registration<'a>;

    fn next(&mut self) -> Option<Registration<'a>> {
        let (head, rest) = self.0.split_at_checked(REGISTRATION_LEN)?;
        let len = usize::try_from(u32_at(head, 20)).ok()?;
        let (initiator, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        let key = ReservationKey(u64_at(head, 0));
        let kind = ReservationType(head[13] & 0x0f);
        let holds =
            bit_at(head, 12, 0x01).then_some(Reservation { key, scope: head[13] >> 4, kind });
        Some(Registration {
            key,
            all_target_ports: bit_at(head, 12, 0x02),
            holds,
            port: u16_at(head, 18),
            initiator,
        })
    }
}

/// Appends the header of PERSISTENT RESERVE IN data and what `list` appends.
///
/// # Panics
/// If the list has 4 GiB or more.
fn put_list(out: &mut Vec<u8>, generation: u32, list: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&generation.to_be_bytes());
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    list(out);
    let length = u32::try_from(out.len() - start - 4).expect("a list below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends the data of READ KEYS.
pub fn put_keys(out: &mut Vec<u8>, generation: u32, keys: &[ReservationKey]) {
    put_list(out, generation, |out| {
        keys.iter().for_each(|key| out.extend_from_slice(&key.0.to_be_bytes()));
    });
}

/// Appends the data of READ RESERVATION.
pub fn put_reservation(out: &mut Vec<u8>, generation: u32, reservation: Option<Reservation>) {
    put_list(out, generation, |out| {
        if let Some(is) = reservation {
            out.extend_from_slice(&is.key.0.to_be_bytes());
            out.extend_from_slice(&[0, 0, 0, 0, 0, is.scope_and_type(), 0, 0]);
        }
    });
}

/// Appends the data of READ FULL STATUS.
///
/// # Panics
/// If an initiator's name has 4 GiB or more.
pub fn put_registrations(out: &mut Vec<u8>, generation: u32, registrations: &[Registration<'_>]) {
    put_list(out, generation, |out| {
        for one in registrations {
            let mut head = [0; REGISTRATION_LEN];
            set(&mut head, 0, &one.key.0.to_be_bytes());
            head[12] = flag(one.all_target_ports, 0x02) | flag(one.holds.is_some(), 0x01);
            head[13] = one.holds.map_or(0, Reservation::scope_and_type);
            set(&mut head, 18, &one.port.to_be_bytes());
            let len = u32::try_from(one.initiator.len()).expect("a name below 4 GiB");
            set(&mut head, 20, &len.to_be_bytes());
            out.extend_from_slice(&head);
            out.extend_from_slice(one.initiator);
        }
    });
}

/// The data of REPORT CAPABILITIES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReserveCapabilities {
    /// CRH: RESERVE(6) and RELEASE(6) get along with it.
    pub compatible: bool,
    /// SIP_C: SPEC_I_PT is known.
    pub specifies_initiators: bool,
    /// ATP_C: ALL_TG_PT is known.
    pub all_target_ports: bool,
    /// PTPL_C: APTPL is known.
    pub through_power_loss: bool,
    /// PTPL_A: it is in force.
    pub through_power_loss_active: bool,
    /// The types, a bit each by number, if TMV says that they are told.
    pub types: Option<ReservationTypes>,
}

/// A set of reservation types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationTypes(u16);

impl ReservationTypes {
    /// Those of 1 to 8 that are named; of others there is no bit.
    pub const KNOWN: u16 = 1 << 1 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8;

    /// The set of these types; unknown ones are left out.
    #[must_use]
    pub fn new(types: &[ReservationType]) -> Self {
        let bits = types.iter().filter(|kind| kind.0 <= 8).map(|kind| 1 << kind.0);
        Self(bits.fold(0, |all: u16, bit: u16| all | bit) & Self::KNOWN)
    }

    /// Whether a type is among them.
    #[must_use]
    pub const fn has(self, kind: ReservationType) -> bool {
        kind.0 <= 8 && self.0 & 1 << kind.0 != 0
    }
}

impl ReserveCapabilities {
    /// Bytes of the data.
    pub const LEN: usize = 8;

    /// Reads the data.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer than 8 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        at_least("REPORT CAPABILITIES data", bytes, Self::LEN)?;
        // The byte's bit number is the type's; type 8 begins the next byte.
        let types = u16::from(u8_at(bytes, 4)) | u16::from(u8_at(bytes, 5)) << 8;
        Ok(Self {
            compatible: bit_at(bytes, 2, 0x10),
            specifies_initiators: bit_at(bytes, 2, 0x08),
            all_target_ports: bit_at(bytes, 2, 0x04),
            through_power_loss: bit_at(bytes, 2, 0x01),
            through_power_loss_active: bit_at(bytes, 3, 0x01),
            types: bit_at(bytes, 3, 0x80)
                .then_some(ReservationTypes(types & ReservationTypes::KNOWN)),
        })
    }

    /// Appends the data.
    pub fn put(&self, out: &mut Vec<u8>) {
        let can = flag(self.compatible, 0x10)
            | flag(self.specifies_initiators, 0x08)
            | flag(self.all_target_ports, 0x04)
            | flag(self.through_power_loss, 0x01);
        let is = flag(self.types.is_some(), 0x80) | flag(self.through_power_loss_active, 0x01);
        let [low, high] = self.types.unwrap_or_default().0.to_le_bytes();
        out.extend_from_slice(&[0, Self::LEN as u8, can, is, low, high, 0, 0]);
    }
}
