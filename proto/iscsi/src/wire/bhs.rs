//! The basic header segment: 48 bytes in front of every PDU. RFC 7143, section 11.2.1.

use std::fmt;

/// Bytes of a basic header segment.
pub const BHS_LEN: usize = 48;
/// The reserved value of both task tags: no task, or no answer wanted.
pub const NO_TAG: u32 = u32::MAX;

/// Bit of byte 0: the PDU is for immediate delivery, and takes no place in the command window.
const IMMEDIATE: u8 = 0x40;
/// The bits of byte 0 that are the opcode.
const OPCODE: u8 = 0x3f;

/// The kind of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

macro_rules! opcodes {
    ($($name:ident = $value:literal $text:literal;)*) => {
        impl Opcode {
            $(#[doc = concat!($text, ".")] pub const $name: Self = Self($value);)*

            /// The name in RFC 7143, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    NOP_OUT = 0x00 "NOP-Out";
    SCSI_COMMAND = 0x01 "SCSI Command";
    TASK_REQUEST = 0x02 "Task Management Function Request";
    LOGIN_REQUEST = 0x03 "Login Request";
    TEXT_REQUEST = 0x04 "Text Request";
    DATA_OUT = 0x05 "SCSI Data-Out";
    LOGOUT_REQUEST = 0x06 "Logout Request";
    SNACK = 0x10 "SNACK Request";
    NOP_IN = 0x20 "NOP-In";
    SCSI_RESPONSE = 0x21 "SCSI Response";
    TASK_RESPONSE = 0x22 "Task Management Function Response";
    LOGIN_RESPONSE = 0x23 "Login Response";
    TEXT_RESPONSE = 0x24 "Text Response";
    DATA_IN = 0x25 "SCSI Data-In";
    LOGOUT_RESPONSE = 0x26 "Logout Response";
    R2T = 0x31 "Ready To Transfer";
    ASYNC = 0x32 "Asynchronous Message";
    REJECT = 0x3f "Reject";
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

/// A basic header segment: any 48 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bhs([u8; BHS_LEN]);

impl Bhs {
    /// A header of this kind, all else zero.
    #[must_use]
    pub const fn new(opcode: Opcode) -> Self {
        let mut bytes = [0; BHS_LEN];
        bytes[0] = opcode.0;
        Self(bytes)
    }

    /// Any bytes as a header.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; BHS_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; BHS_LEN] {
        &self.0
    }

    /// The kind.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.0[0] & OPCODE)
    }

    /// Whether it is for immediate delivery.
    #[must_use]
    pub const fn is_immediate(&self) -> bool {
        self.0[0] & IMMEDIATE != 0
    }

    /// Bytes of the additional header segments behind it.
    #[must_use]
    pub const fn ahs_len(&self) -> usize {
        self.0[4] as usize * 4
    }

    /// Bytes of the data segment, without padding.
    #[must_use]
    pub const fn data_len(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    /// The logical unit number, all eight bytes.
    #[must_use]
    pub fn lun(&self) -> u64 {
        u64::from(self.word(8)) << 32 | u64::from(self.word(12))
    }

    /// The initiator task tag.
    #[must_use]
    pub fn itt(&self) -> u32 {
        self.word(16)
    }

    /// The byte at this place.
    #[must_use]
    pub const fn byte(&self, at: usize) -> u8 {
        self.0[at]
    }

    /// The two bytes from this place on.
    #[must_use]
    pub const fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    /// The four bytes from this place on.
    #[must_use]
    #[inline]
    pub const fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// With the mark of immediate delivery, or without.
    #[must_use]
    pub const fn with_immediate(mut self, immediate: bool) -> Self {
        if immediate {
            self.0[0] |= IMMEDIATE;
        }
        self
    }

    /// With this length of the data segment.
    ///
    /// # Panics
    /// If it takes more than 24 bits.
    #[must_use]
    pub const fn with_data_len(mut self, length: u32) -> Self {
        let [high, a, b, c] = length.to_be_bytes();
        assert!(high == 0, "a data segment has a length of 24 bits");
        (self.0[5], self.0[6], self.0[7]) = (a, b, c);
        self
    }

    /// With so many bytes of additional header segments, which are whole words.
    #[must_use]
    pub const fn with_ahs_len(mut self, bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(4) && bytes <= 255 * 4, "additional headers are whole words");
        self.0[4] = (bytes / 4) as u8;
        self
    }

    /// With this byte.
    #[must_use]
    pub const fn with_byte(mut self, at: usize, value: u8) -> Self {
        self.0[at] = value;
        self
    }

    /// With these bytes.
    #[must_use]
    #[inline]
    pub const fn with<const N: usize>(mut self, at: usize, value: [u8; N]) -> Self {
        let mut i = 0;
        while i < N {
            self.0[at + i] = value[i];
            i += 1;
        }
        self
    }

    /// With this word.
    #[must_use]
    #[inline]
    pub const fn with_word(self, at: usize, value: u32) -> Self {
        self.with(at, value.to_be_bytes())
    }

    /// With this half word.
    #[must_use]
    pub const fn with_half(self, at: usize, value: u16) -> Self {
        self.with(at, value.to_be_bytes())
    }

    /// With this logical unit number.
    #[must_use]
    #[inline]
    pub const fn with_lun(self, lun: u64) -> Self {
        self.with(8, lun.to_be_bytes())
    }
}

impl fmt::Debug for Bhs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [", self.opcode())?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("]")
    }
}
