//! The commands: what a CDB says, encoded and decoded.
//!
//! Layouts: SPC-4 and SBC-3, one table a command. Decoding accepts a CDB if and only if encoding
//! gives the same bytes again, so reserved and obsolete bits, service actions and protection that
//! are not spoken here are refused, and the first byte that differs is the field that is named.

use crate::cdb::{Cdb, InvalidCdb};
use crate::codes::Opcode;
use crate::wire::{WireError, bit_at, flag, u8_at, u16_at, u32_at, u64_at};

/// The form of a command on a range of blocks, by the bytes of its CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CdbSize {
    /// 21-bit address, 1 to 256 blocks; has neither FUA nor DPO.
    Six,
    /// 32-bit address, 16-bit length.
    Ten,
    /// 32-bit address, 32-bit length.
    Twelve,
    /// 64-bit address, 32-bit length.
    Sixteen,
}

impl CdbSize {
    /// The highest address its field holds.
    #[must_use]
    pub const fn lba_max(self) -> u64 {
        match self {
            Self::Six => 0x1f_ffff,
            Self::Ten | Self::Twelve => u32::MAX as u64,
            Self::Sixteen => u64::MAX,
        }
    }

    /// The most blocks its field holds. Zero of READ(6) and WRITE(6) means 256.
    #[must_use]
    pub const fn blocks_max(self) -> u32 {
        match self {
            Self::Six => 256,
            Self::Ten => u16::MAX as u32,
            Self::Twelve | Self::Sixteen => u32::MAX,
        }
    }
}

/// A READ or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The form.
    pub size: CdbSize,
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// TRANSFER LENGTH, blocks.
    pub blocks: u32,
    /// DPO: the data need not stay in the cache.
    pub dpo: bool,
    /// FUA: from or to the medium.
    pub fua: bool,
}

/// A SYNCHRONIZE CACHE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynchronizeCache {
    /// The form, 10 or 16.
    pub size: CdbSize,
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS; zero is all from `lba` on.
    pub blocks: u32,
    /// IMMED: the answer comes before the work, which is no flush.
    pub immediate: bool,
}

/// A WRITE SAME. One logical block is sent with it unless `ndob`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSame {
    /// The form, 10 or 16.
    pub size: CdbSize,
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS; zero is all from `lba` on.
    pub blocks: u32,
    /// UNMAP: the blocks may be deallocated instead.
    pub unmap: bool,
    /// ANCHOR: the blocks may be anchored instead.
    pub anchor: bool,
    /// NDOB: no block is sent, zeros are written; form 16 only.
    pub ndob: bool,
}

/// A COMPARE AND WRITE; twice as many blocks are sent as are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompareAndWrite {
    /// LOGICAL BLOCK ADDRESS.
    pub lba: u64,
    /// NUMBER OF LOGICAL BLOCKS.
    pub blocks: u8,
    /// DPO.
    pub dpo: bool,
    /// FUA.
    pub fua: bool,
}

/// Which values of a mode page are asked for: PC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageControl {
    /// Those in force.
    Current,
    /// A mask of the bits MODE SELECT can change.
    Changeable,
    /// Those of the factory.
    Default,
    /// Those kept over a power cycle.
    Saved,
}

/// A MODE SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// The form with 10 bytes, which has a longer header.
    pub ten: bool,
    /// DBD: without block descriptors.
    pub no_descriptors: bool,
    /// PC.
    pub control: PageControl,
    /// PAGE CODE, 6 bits; 3Fh is all pages.
    pub page: u8,
    /// SUBPAGE CODE.
    pub subpage: u8,
    /// ALLOCATION LENGTH, bytes; 8 bits in the form with 6 bytes.
    pub allocation: u16,
}

/// A MODE SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// The form with 10 bytes, which has a longer header.
    pub ten: bool,
    /// PF: the pages are those of the standard.
    pub page_format: bool,
    /// SP: the values are kept over a power cycle.
    pub save: bool,
    /// PARAMETER LIST LENGTH, bytes; 8 bits in the form with 6 bytes.
    pub length: u16,
}

/// A START STOP UNIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartStopUnit {
    /// IMMED: the answer comes before the work.
    pub immediate: bool,
    /// POWER CONDITION, 4 bits; zero goes by `start`.
    pub power_condition: u8,
    /// NO_FLUSH: a stop leaves the cache.
    pub no_flush: bool,
    /// LOEJ: load or eject the medium.
    pub load_eject: bool,
    /// START: start, else stop.
    pub start: bool,
}

/// A REPORT SUPPORTED OPERATION CODES for one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportOpcode {
    /// RCTD: with the command's timeouts.
    pub timeouts: bool,
    /// REQUESTED OPERATION CODE.
    pub opcode: Opcode,
    /// REQUESTED SERVICE ACTION, for a command that has them.
    pub service_action: Option<u16>,
    /// ALLOCATION LENGTH, bytes.
    pub allocation: u32,
}

/// A PERSISTENT RESERVE OUT; the parameter list is [`crate::reservation::ReserveOutList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveOut {
    /// SERVICE ACTION, 5 bits.
    pub action: crate::reservation::ReserveOutAction,
    /// SCOPE, 4 bits; zero is the logical unit, the only one that is not obsolete.
    pub scope: u8,
    /// TYPE, 4 bits.
    pub kind: crate::reservation::ReservationType,
    /// PARAMETER LIST LENGTH, bytes.
    pub length: u32,
}

/// A command with its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScsiCommand {
    /// TEST UNIT READY.
    TestUnitReady,
    /// REQUEST SENSE.
    RequestSense {
        /// DESC: in the descriptor format.
        descriptors: bool,
        /// ALLOCATION LENGTH, bytes.
        allocation: u8,
    },
    /// INQUIRY.
    Inquiry {
        /// The VPD page (EVPD set), or the standard data.
        page: Option<u8>,
        /// ALLOCATION LENGTH, bytes.
        allocation: u16,
    },
    /// MODE SENSE.
    ModeSense(ModeSense),
    /// MODE SELECT.
    ModeSelect(ModeSelect),
    /// START STOP UNIT.
    StartStopUnit(StartStopUnit),
    /// READ CAPACITY(10).
    ReadCapacity10,
    /// READ CAPACITY(16).
    ReadCapacity16 {
        /// ALLOCATION LENGTH, bytes.
        allocation: u32,
    },
    /// READ.
    Read(Transfer),
    /// WRITE.
    Write(Transfer),
    /// COMPARE AND WRITE.
    CompareAndWrite(CompareAndWrite),
    /// SYNCHRONIZE CACHE.
    SynchronizeCache(SynchronizeCache),
    /// WRITE SAME.
    WriteSame(WriteSame),
    /// UNMAP; the parameter list is [`crate::unmap`].
    Unmap {
        /// ANCHOR: the blocks may be anchored instead.
        anchor: bool,
        /// PARAMETER LIST LENGTH, bytes.
        length: u16,
    },
    /// REPORT LUNS.
    ReportLuns {
        /// SELECT REPORT: 0 is all but the well-known ones, 1 those, 2 both.
        select: u8,
        /// ALLOCATION LENGTH, bytes.
        allocation: u32,
    },
    /// REPORT TARGET PORT GROUPS.
    ReportTargetPortGroups {
        /// The extended header, which has the transition time.
        extended: bool,
        /// ALLOCATION LENGTH, bytes.
        allocation: u32,
    },
    /// SET TARGET PORT GROUPS.
    SetTargetPortGroups {
        /// PARAMETER LIST LENGTH, bytes.
        length: u32,
    },
    /// REPORT SUPPORTED OPERATION CODES.
    ReportOpcode(ReportOpcode),
    /// PERSISTENT RESERVE IN.
    ReserveIn {
        /// SERVICE ACTION, 5 bits.
        action: crate::reservation::ReserveInAction,
        /// ALLOCATION LENGTH, bytes.
        allocation: u16,
    },
    /// PERSISTENT RESERVE OUT.
    ReserveOut(ReserveOut),
}

mod decode;
mod encode;

const DPO: u8 = 0x10;
const FUA: u8 = 0x08;
const WRITE_SAME_ANCHOR: u8 = 0x10;
const WRITE_SAME_UNMAP: u8 = 0x08;
const NDOB: u8 = 0x01;
const READ_CAPACITY_16: u8 = 0x10;
const TARGET_PORT_GROUPS: u8 = 0x0a;
const SUPPORTED_OPERATION_CODES: u8 = 0x0c;
const EXTENDED_HEADER: u8 = 0x20;

impl ScsiCommand {
    /// The CDB.
    ///
    /// # Errors
    /// [`WireError::Field`] if a value does not fit its field, or the form has no such field.
    pub fn encode(&self) -> Result<Cdb, WireError> {
        encode::encode(self)
    }

    /// Reads a CDB; bytes behind its own length are not looked at.
    ///
    /// # Errors
    /// [`InvalidCdb`], which says what a target answers.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidCdb> {
        let opcode = Opcode(u8_at(bytes, 0));
        let Some(least) = opcode.cdb_len() else { return Err(InvalidCdb::Opcode(opcode)) };
        let Some(own) = bytes.get(..least) else {
            return Err(InvalidCdb::Short { opcode, len: bytes.len(), least });
        };
        let command = decode::decode(opcode, own)?;
        // The fields came out of bytes of their width, so they fit.
        let again = command.encode().map_err(|_| InvalidCdb::Field { opcode, at: 1 })?;
        match own.iter().zip(again.bytes()).position(|(a, b)| a != b) {
            Some(at) => Err(InvalidCdb::Field { opcode, at: at as u16 }),
            None => Ok(command),
        }
    }

    /// The operation code.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        encode::opcode(self)
    }
}
