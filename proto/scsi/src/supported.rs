//! The data of REPORT SUPPORTED OPERATION CODES for one command: whether a target knows it.
//!
//! Layout: SPC-4, "One_command parameter data format". The list of all commands is left out: a
//! target answers for one command that is asked for.

use crate::wire::{WireError, at_least, claimed, flag, u16_at};

/// SUPPORT, 3 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// 0: nothing can be told now.
    Unknown,
    /// 1: the command is not known.
    Unsupported,
    /// 3: it is known, as the standard has it.
    Standard,
    /// 5: it is known, in the vendor's own way.
    Vendor,
    /// A reserved value.
    Reserved(u8),
}

impl Support {
    /// Whether the command may be sent and means what the standard says.
    #[must_use]
    pub const fn is_standard(self) -> bool {
        matches!(self, Self::Standard)
    }
}

/// What a target says of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSupport<'a> {
    /// Whether it knows the command.
    pub support: Support,
    /// CTDP: a descriptor of timeouts follows the usage.
    pub timeouts: bool,
    /// CDB USAGE DATA: a mask of the bits it looks at. Empty unless the command is known.
    pub usage: &'a [u8],
}

const HEADER_LEN: usize = 4;

impl<'a> CommandSupport<'a> {
    /// Reads the data; CDB SIZE counts as far as there is data.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer than 4 bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        at_least("REPORT SUPPORTED OPERATION CODES data", bytes, HEADER_LEN)?;
        let support = match bytes[1] & 7 {
            0 => Support::Unknown,
            1 => Support::Unsupported,
            3 => Support::Standard,
            5 => Support::Vendor,
            other => Support::Reserved(other),
        };
        let usage = claimed(&bytes[HEADER_LEN..], usize::from(u16_at(bytes, 2)));
        Ok(Self { support, timeouts: bytes[1] & 0x80 != 0, usage })
    }

    /// Appends the data.
    ///
    /// # Panics
    /// If the usage has more than 65,535 bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let support = match self.support {
            Support::Unknown => 0,
            Support::Unsupported => 1,
            Support::Standard => 3,
            Support::Vendor => 5,
            Support::Reserved(other) => other & 7,
        };
        let size = u16::try_from(self.usage.len()).expect("a CDB below 64 KiB").to_be_bytes();
        out.extend_from_slice(&[0, support | flag(self.timeouts, 0x80), size[0], size[1]]);
        out.extend_from_slice(self.usage);
    }
}
