//! The eight bytes that name a logical unit.
//!
//! Source: SAM-5, "Logical unit number": the two upper bits of the first byte are the ADDRESS
//! METHOD; a second level of addressing may follow in the next bytes, and is zero where there is
//! one level.

use std::fmt;

/// The highest number of the flat space address method.
const FLAT_MAX: u32 = (1 << 14) - 1;
/// The highest number of the extended flat space address method, three bytes.
const EXTENDED_FLAT_MAX: u32 = (1 << 24) - 1;
/// The first byte of the extended method with a length of three bytes and flat numbers.
const EXTENDED_FLAT: u8 = 0xd2;
/// The first byte of the extended method with a length of one byte and well-known numbers.
const WELL_KNOWN: u8 = 0xc1;

/// A logical unit number as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lun(pub [u8; 8]);

/// What a [`Lun`] says, if it has one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunAddress {
    /// Peripheral device, method 00b, of bus 0.
    Peripheral(u8),
    /// Flat space, method 01b, 14 bits.
    Flat(u16),
    /// Extended flat space, method 11b, 24 bits.
    ExtendedFlat(u32),
    /// A well-known logical unit, method 11b.
    WellKnown(u8),
    /// Any other form: another bus, a second level, method 10b, or a reserved one.
    Other,
}

impl Lun {
    /// Bytes on the wire.
    pub const LEN: usize = 8;
    /// The logical unit that always answers REPORT LUNS for its target, if it is there.
    pub const ZERO: Self = Self([0; 8]);
    /// The well-known logical unit REPORT LUNS.
    pub const REPORT_LUNS: Self = Self([WELL_KNOWN, 1, 0, 0, 0, 0, 0, 0]);

    /// The LUN of a number: peripheral below 256, flat below 16,384, else extended flat. `None`
    /// above 24 bits.
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        let [_, high, mid, low] = number.to_be_bytes();
        let [b0, b1, b2, b3] = match number {
            0..=0xff => [0, low, 0, 0],
            0x100..=FLAT_MAX => [0x40 | mid, low, 0, 0],
            0x4000..=EXTENDED_FLAT_MAX => [EXTENDED_FLAT, high, mid, low],
            _ => return None,
        };
        Some(Self([b0, b1, b2, b3, 0, 0, 0, 0]))
    }

    /// What the bytes say.
    #[must_use]
    pub const fn address(self) -> LunAddress {
        match self.0 {
            [0, lun, 0, 0, 0, 0, 0, 0] => LunAddress::Peripheral(lun),
            [first @ 0x40..=0x7f, low, 0, 0, 0, 0, 0, 0] => {
                LunAddress::Flat(u16::from_be_bytes([first & 0x3f, low]))
            }
            [EXTENDED_FLAT, a, b, c, 0, 0, 0, 0] => {
                LunAddress::ExtendedFlat(u32::from_be_bytes([0, a, b, c]))
            }
            [WELL_KNOWN, number, 0, 0, 0, 0, 0, 0] => LunAddress::WellKnown(number),
            _ => LunAddress::Other,
        }
    }

    /// The number, whatever the method; `None` for a well-known logical unit and for other forms.
    /// A target may use flat addresses for small numbers too, so two LUNs that differ can have
    /// one number.
    #[must_use]
    pub const fn number(self) -> Option<u32> {
        match self.address() {
            LunAddress::Peripheral(lun) => Some(lun as u32),
            LunAddress::Flat(lun) => Some(lun as u32),
            LunAddress::ExtendedFlat(lun) => Some(lun),
            LunAddress::WellKnown(_) | LunAddress::Other => None,
        }
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number() {
            Some(number) => write!(f, "{number}"),
            None => write!(f, "{:016x}h", u64::from_be_bytes(self.0)),
        }
    }
}

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({self})")
    }
}
