//! The data of READ CAPACITY: how many blocks there are, and how long they are.
//!
//! Layouts: SBC-3, "READ CAPACITY(10) command" and "READ CAPACITY(16) command".

use weir_bio::SECTOR;

use crate::wire::{WireError, at_least, flag, set, u8_at, u16_at, u32_at, u64_at};

/// Bytes of the data of READ CAPACITY(10).
pub const CAPACITY_10_LEN: usize = 8;
/// Bytes of the data of READ CAPACITY(16).
pub const CAPACITY_16_LEN: usize = 32;

/// What READ CAPACITY says. The short form says the first two only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block.
    pub last_lba: u64,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_len: u32,
    /// PROT_EN and P_TYPE: the type of protection in force, 1 to 8.
    pub protection: Option<u8>,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, 4 bits.
    pub physical_exponent: u8,
    /// LBPME: blocks can be deallocated.
    pub provisioned: bool,
    /// LBPRZ: what was deallocated reads as zeros.
    pub reads_zeros: bool,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS, 14 bits.
    pub lowest_aligned: u16,
}

impl Capacity {
    /// Reads the data of READ CAPACITY(10); `None` where the last block's address does not fit, so
    /// that READ CAPACITY(16) has to be asked.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer than 8 bytes.
    pub fn decode_10(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        at_least("READ CAPACITY(10) data", bytes, CAPACITY_10_LEN)?;
        let (last, block_len) = (u32_at(bytes, 0), u32_at(bytes, 4));
        let capacity = Self { last_lba: u64::from(last), block_len, ..Self::default() };
        Ok((last != u32::MAX).then_some(capacity))
    }

    /// Reads the data of READ CAPACITY(16); what lies behind the first 12 bytes may be missing.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer than 12 bytes.
    pub fn decode_16(bytes: &[u8]) -> Result<Self, WireError> {
        at_least("READ CAPACITY(16) data", bytes, 12)?;
        let protection = u8_at(bytes, 12);
        let provisioning = u16_at(bytes, 14);
        Ok(Self {
            last_lba: u64_at(bytes, 0),
            block_len: u32_at(bytes, 8),
            protection: (protection & 1 != 0).then_some((protection >> 1 & 7) + 1),
            physical_exponent: u8_at(bytes, 13) & 0x0f,
            provisioned: provisioning & LBPME != 0,
            reads_zeros: provisioning & LBPRZ != 0,
            lowest_aligned: provisioning & !(LBPME | LBPRZ),
        })
    }

    /// Appends the data of READ CAPACITY(10).
    pub fn put_10(&self, out: &mut Vec<u8>) {
        let last = u32::try_from(self.last_lba).unwrap_or(u32::MAX);
        out.extend_from_slice(&last.to_be_bytes());
        out.extend_from_slice(&self.block_len.to_be_bytes());
    }

    /// Appends the data of READ CAPACITY(16).
    pub fn put_16(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; CAPACITY_16_LEN];
        set(&mut bytes, 0, &self.last_lba.to_be_bytes());
        set(&mut bytes, 8, &self.block_len.to_be_bytes());
        bytes[12] = self.protection.map_or(0, |kind| (kind.saturating_sub(1) & 7) << 1 | 1);
        bytes[13] = self.physical_exponent & 0x0f;
        set(&mut bytes, 14, &(self.lowest_aligned & !(LBPME | LBPRZ)).to_be_bytes());
        bytes[14] |= flag(self.provisioned, 0x80) | flag(self.reads_zeros, 0x40);
        out.extend_from_slice(&bytes);
    }

    /// The logical block, bytes, if it is one that a disk is used with: 512, 1024, 2048 or 4096.
    #[must_use]
    pub const fn usable_block(&self) -> Option<u32> {
        match self.block_len {
            512 | 1024 | 2048 | 4096 => Some(self.block_len),
            _ => None,
        }
    }

    /// The size in sectors of 512 bytes. Zero if the block is not usable, or if there are more
    /// sectors than 64 bits count, which no disk has.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        let Some(block) = self.usable_block() else { return 0 };
        let blocks = self.last_lba.checked_add(1);
        blocks.and_then(|blocks| blocks.checked_mul(u64::from(block) / SECTOR)).unwrap_or(0)
    }
}

const LBPME: u16 = 0x8000;
const LBPRZ: u16 = 0x4000;
