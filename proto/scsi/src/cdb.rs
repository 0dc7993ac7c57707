//! The bytes of a command, and why bytes are none.

use std::fmt;

use crate::codes::{AdditionalSense, Opcode};
use crate::sense::{FieldPointer, Sense, SenseKey};

/// A command descriptor block of 6, 10, 12 or 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cdb {
    bytes: [u8; Cdb::MAX_LEN],
    len: u8,
}

impl Cdb {
    /// Bytes of the longest one that is spoken here, and of the field an iSCSI header has for it.
    pub const MAX_LEN: usize = 16;

    pub(crate) fn new(opcode: Opcode) -> Self {
        let len = opcode.cdb_len().expect("an operation code of a group with a length");
        let mut bytes = [0; Self::MAX_LEN];
        bytes[0] = opcode.0;
        Self { bytes, len: len as u8 }
    }

    /// With a field written at `at`.
    pub(crate) fn with<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        debug_assert!(at + N < usize::from(self.len), "the last byte is CONTROL");
        self.bytes[at..at + N].copy_from_slice(&field);
        self
    }

    /// Its bytes, as many as its operation code has.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Its bytes and zeros behind them.
    #[must_use]
    pub const fn padded(&self) -> &[u8; Self::MAX_LEN] {
        &self.bytes
    }

    /// Its operation code.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.bytes[0])
    }
}

impl fmt::Debug for Cdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.opcode())?;
        self.bytes().iter().try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

/// Why bytes are no command: what a target answers with [`InvalidCdb::sense`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidCdb {
    /// Not spoken here.
    Opcode(Opcode),
    /// The bytes end before those of the operation code.
    Short {
        /// The operation code; zero if there is no byte at all.
        opcode: Opcode,
        /// Bytes there are.
        len: usize,
        /// Bytes it has.
        least: usize,
    },
    /// A reserved bit is set, or a field has a value that is not spoken here.
    Field {
        /// The operation code.
        opcode: Opcode,
        /// The first byte with something wrong.
        at: u16,
    },
}

impl InvalidCdb {
    /// The sense of the refusal: INVALID COMMAND OPERATION CODE, or INVALID FIELD IN CDB with a
    /// pointer to the byte.
    #[must_use]
    pub fn sense(self) -> Sense {
        let at = match self {
            Self::Opcode(_) => {
                let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
                return Sense::new(SenseKey::IllegalRequest, code);
            }
            Self::Short { len, .. } => u16::try_from(len).unwrap_or(u16::MAX),
            Self::Field { at, .. } => at,
        };
        let pointer = FieldPointer { in_cdb: true, byte: at, bit: None };
        Sense {
            specific: Some(pointer.encode()),
            ..Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }
}

impl fmt::Display for InvalidCdb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => write!(f, "operation code {opcode} is not spoken here"),
            Self::Short { opcode, len, least } => {
                write!(f, "CDB of {opcode}: {len} bytes are fewer than {least}")
            }
            Self::Field { opcode, at } => {
                write!(f, "CDB of {opcode}: byte {at} has a value that is not spoken here")
            }
        }
    }
}

impl std::error::Error for InvalidCdb {}
