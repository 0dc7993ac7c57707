//! Sense: what is the matter with a command or a logical unit.
//!
//! Source: SPC-4, "Sense data". There are two formats, fixed (70h, 71h) and with descriptors (72h,
//! 73h), and each can be *deferred* (71h, 73h): about a command that was answered before, not
//! about this one.
//!
//! Targets cut sense short. The response code and the sense key have to be there; every other
//! field that lies behind the data, or behind what ADDITIONAL SENSE LENGTH claims, reads as absent.

use std::fmt;

use crate::codes::AdditionalSense;
use crate::wire::{WireError, at_least, bit_at, claimed, flag, set, u8_at, u32_at, u64_at};

/// The most bytes of sense (SPC-4: 252, and this is what REQUEST SENSE is asked for).
pub const SENSE_LEN_MAX: usize = 252;

/// SENSE KEY: the class of what is the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing is.
    NoSense = 0x0,
    /// The command succeeded with some effort of the device.
    RecoveredError = 0x1,
    /// The logical unit cannot be reached now.
    NotReady = 0x2,
    /// The medium has a flaw.
    MediumError = 0x3,
    /// The device failed.
    HardwareError = 0x4,
    /// The command or a parameter has no meaning for the target.
    IllegalRequest = 0x5,
    /// Something happened that each initiator is told once; the command was not carried out.
    UnitAttention = 0x6,
    /// The blocks may not be read or written.
    DataProtect = 0x7,
    /// A blank block was met.
    BlankCheck = 0x8,
    /// The vendor's own.
    VendorSpecific = 0x9,
    /// A copy was aborted.
    CopyAborted = 0xa,
    /// The target aborted the command.
    AbortedCommand = 0xb,
    /// Reserved.
    Reserved = 0xc,
    /// The medium ended inside the command.
    VolumeOverflow = 0xd,
    /// Compared blocks differ.
    Miscompare = 0xe,
    /// The command completed, and there is more to say.
    Completed = 0xf,
}

impl SenseKey {
    /// Every key, in the order of the numbers.
    pub const ALL: [Self; 16] = [
        Self::NoSense,
        Self::RecoveredError,
        Self::NotReady,
        Self::MediumError,
        Self::HardwareError,
        Self::IllegalRequest,
        Self::UnitAttention,
        Self::DataProtect,
        Self::BlankCheck,
        Self::VendorSpecific,
        Self::CopyAborted,
        Self::AbortedCommand,
        Self::Reserved,
        Self::VolumeOverflow,
        Self::Miscompare,
        Self::Completed,
    ];

    /// The key in the low four bits of a byte.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self::ALL[(bits & 0x0f) as usize]
    }

    /// The standard's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSense => "NO SENSE",
            Self::RecoveredError => "RECOVERED ERROR",
            Self::NotReady => "NOT READY",
            Self::MediumError => "MEDIUM ERROR",
            Self::HardwareError => "HARDWARE ERROR",
            Self::IllegalRequest => "ILLEGAL REQUEST",
            Self::UnitAttention => "UNIT ATTENTION",
            Self::DataProtect => "DATA PROTECT",
            Self::BlankCheck => "BLANK CHECK",
            Self::VendorSpecific => "VENDOR SPECIFIC",
            Self::CopyAborted => "COPY ABORTED",
            Self::AbortedCommand => "ABORTED COMMAND",
            Self::Reserved => "RESERVED",
            Self::VolumeOverflow => "VOLUME OVERFLOW",
            Self::Miscompare => "MISCOMPARE",
            Self::Completed => "COMPLETED",
        }
    }
}

impl fmt::Display for SenseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the field is that an ILLEGAL REQUEST is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// C/D: in the CDB, else in the parameter list.
    pub in_cdb: bool,
    /// FIELD POINTER, the byte.
    pub byte: u16,
    /// BIT POINTER with BPV: the highest bit of the field, 0 to 7.
    pub bit: Option<u8>,
}

impl FieldPointer {
    /// The three bytes that carry it.
    #[must_use]
    pub const fn encode(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let bit = match self.bit {
            Some(bit) => BPV | (bit & 0x07),
            None => 0,
        };
        [SKSV | flag(self.in_cdb, IN_CDB) | bit, high, low]
    }

    /// Reads the three bytes.
    #[must_use]
    pub const fn decode(bytes: [u8; 3]) -> Self {
        Self {
            in_cdb: bytes[0] & IN_CDB != 0,
            byte: u16::from_be_bytes([bytes[1], bytes[2]]),
            bit: if bytes[0] & BPV != 0 { Some(bytes[0] & 0x07) } else { None },
        }
    }
}

const SKSV: u8 = 0x80;
const IN_CDB: u8 = 0x40;
const BPV: u8 = 0x08;
const VALID: u8 = 0x80;
const ILI: u8 = 0x20;

/// Sense, whatever its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// About a command that was answered before.
    pub deferred: bool,
    /// The class.
    pub key: SenseKey,
    /// The reason.
    pub code: AdditionalSense,
    /// INFORMATION, if valid: in the fixed format 32 bits. For MEDIUM ERROR the first block with
    /// the flaw.
    pub information: Option<u64>,
    /// COMMAND-SPECIFIC INFORMATION, if it is not zero; in the fixed format 32 bits.
    pub command: Option<u64>,
    /// FIELD REPLACEABLE UNIT CODE; zero is none.
    pub unit: u8,
    /// ILI: the length asked for does not fit the block.
    pub incorrect_length: bool,
    /// The three SENSE KEY SPECIFIC bytes, if SKSV is set in the first: a [`FieldPointer`] for
    /// ILLEGAL REQUEST, a progress for NO SENSE and NOT READY.
    pub specific: Option<[u8; 3]>,
}

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenseFormat {
    /// 70h and 71h, 18 bytes.
    Fixed,
    /// 72h and 73h, 8 bytes and descriptors.
    Descriptors,
}

const WHAT: &str = "sense";

impl Sense {
    /// Sense of the current command that has no more than a key and a code.
    #[must_use]
    pub const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self {
            deferred: false,
            key,
            code,
            information: None,
            command: None,
            unit: 0,
            incorrect_length: false,
            specific: None,
        }
    }

    /// The field an ILLEGAL REQUEST is about.
    #[must_use]
    pub fn field_pointer(&self) -> Option<FieldPointer> {
        (self.key == SenseKey::IllegalRequest).then_some(self.specific?).map(FieldPointer::decode)
    }

    /// PROGRESS INDICATION of NO SENSE and NOT READY, in 65,536ths.
    #[must_use]
    pub fn progress(&self) -> Option<u16> {
        let [_, high, low] = self.specific?;
        matches!(self.key, SenseKey::NoSense | SenseKey::NotReady)
            .then(|| u16::from_be_bytes([high, low]))
    }

    /// Reads sense of either format.
    ///
    /// # Errors
    /// [`WireError`] if the key is not there, or the RESPONSE CODE is none of the four.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        at_least(WHAT, bytes, 1)?;
        match bytes[0] & 0x7f {
            code @ (0x70 | 0x71) => Self::decode_fixed(bytes, code == 0x71),
            code @ (0x72 | 0x73) => Self::decode_descriptors(bytes, code == 0x73),
            code => Err(WireError::Field {
                what: WHAT,
                field: "RESPONSE CODE",
                at: 0,
                value: u64::from(code),
                bound: "70h to 73h",
            }),
        }
    }

    fn decode_fixed(bytes: &[u8], deferred: bool) -> Result<Self, WireError> {
        at_least("fixed sense", bytes, 3)?;
        let valid = bytes[0] & VALID != 0;
        // Without the length itself there is no more than it could claim.
        let bytes = claimed(bytes, 8 + usize::from(u8_at(bytes, 7)));
        let sksv = bit_at(bytes, 15, SKSV) && bytes.len() >= 18;
        let command = u32_at(bytes, 8);
        Ok(Self {
            deferred,
            key: SenseKey::from_bits(bytes[2]),
            code: AdditionalSense::new(u8_at(bytes, 12), u8_at(bytes, 13)),
            information: (valid && bytes.len() >= 7).then(|| u64::from(u32_at(bytes, 3))),
            command: (command != 0).then_some(u64::from(command)),
            unit: u8_at(bytes, 14),
            incorrect_length: bytes[2] & ILI != 0,
            specific: sksv.then(|| [bytes[15], bytes[16], bytes[17]]),
        })
    }

    fn decode_descriptors(bytes: &[u8], deferred: bool) -> Result<Self, WireError> {
        at_least("sense with descriptors", bytes, 2)?;
        let code = AdditionalSense::new(u8_at(bytes, 2), u8_at(bytes, 3));
        let mut sense = Self { deferred, ..Self::new(SenseKey::from_bits(bytes[1]), code) };
        let mut rest = claimed(bytes, 8 + usize::from(u8_at(bytes, 7))).get(8..).unwrap_or(&[]);
        // A descriptor that is cut ends the list.
        while let Some(descriptor) = rest.get(..2 + usize::from(u8_at(rest, 1))) {
            sense.take(descriptor);
            rest = &rest[descriptor.len()..];
        }
        Ok(sense)
    }

    /// Takes what one descriptor says; of two of one type the first counts.
    fn take(&mut self, descriptor: &[u8]) {
        let len = descriptor.len();
        match descriptor[0] {
            0x00 if len >= 12 && descriptor[2] & VALID != 0 && self.information.is_none() => {
                self.information = Some(u64_at(descriptor, 4));
            }
            0x01 if len >= 12 && self.command.is_none() => {
                self.command = Some(u64_at(descriptor, 4)).filter(|&value| value != 0);
            }
            0x02 if len >= 7 && descriptor[4] & SKSV != 0 && self.specific.is_none() => {
                self.specific = Some([descriptor[4], descriptor[5], descriptor[6]]);
            }
            0x03 if len >= 4 && self.unit == 0 => self.unit = descriptor[3],
            0x05 if len >= 4 => self.incorrect_length |= descriptor[3] & ILI != 0,
            _ => {}
        }
    }

    /// Appends the sense in a format.
    ///
    /// In the fixed format INFORMATION is left out, and COMMAND-SPECIFIC INFORMATION is zero, if
    /// they need more than 32 bits, as SPC-4 asks.
    pub fn put(&self, format: SenseFormat, out: &mut Vec<u8>) {
        match format {
            SenseFormat::Fixed => self.put_fixed(out),
            SenseFormat::Descriptors => self.put_descriptors(out),
        }
    }

    fn put_fixed(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; 18];
        bytes[0] = 0x70 | u8::from(self.deferred);
        bytes[2] = self.key as u8 | flag(self.incorrect_length, ILI);
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            bytes[0] |= VALID;
            set(&mut bytes, 3, &information.to_be_bytes());
        }
        bytes[7] = 10;
        if let Some(command) = self.command.and_then(|value| u32::try_from(value).ok()) {
            set(&mut bytes, 8, &command.to_be_bytes());
        }
        bytes[12] = self.code.asc();
        bytes[13] = self.code.ascq();
        bytes[14] = self.unit;
        if let Some(specific) = self.specific {
            set(&mut bytes, 15, &specific);
        }
        out.extend_from_slice(&bytes);
    }

    fn put_descriptors(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let [asc, ascq] = self.code.0.to_be_bytes();
        let response = 0x72 | u8::from(self.deferred);
        out.extend_from_slice(&[response, self.key as u8, asc, ascq, 0, 0, 0, 0]);
        if let Some(information) = self.information {
            out.extend_from_slice(&[0x00, 0x0a, VALID, 0]);
            out.extend_from_slice(&information.to_be_bytes());
        }
        if let Some(command) = self.command {
            out.extend_from_slice(&[0x01, 0x0a, 0, 0]);
            out.extend_from_slice(&command.to_be_bytes());
        }
        if let Some([first, high, low]) = self.specific {
            out.extend_from_slice(&[0x02, 0x06, 0, 0, first, high, low, 0]);
        }
        if self.unit != 0 {
            out.extend_from_slice(&[0x03, 0x02, 0, self.unit]);
        }
        if self.incorrect_length {
            out.extend_from_slice(&[0x05, 0x02, 0, ILI]);
        }
        // At most 12 + 12 + 8 + 4 + 4 bytes.
        out[start + 7] = (out.len() - start - 8) as u8;
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdditionalSense(code) = self.code;
        let deferred = if self.deferred { " (deferred)" } else { "" };
        write!(f, "{}{deferred}, {:02x}h/{:02x}h", self.key, code >> 8, code & 0xff)?;
        match self.code.name() {
            Some(_) if code != 0 => write!(f, " {}", self.code),
            _ => Ok(()),
        }
    }
}
