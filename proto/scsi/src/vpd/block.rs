//! The pages about blocks: B0h, B1h and B2h. Offsets are from the start of the page. Pages have
//! grown with each edition; what an older one does not have reads as zero, which says "not
//! reported" in all of these fields.

use crate::wire::{bit_at, flag, set, u8_at, u16_at, u32_at, u64_at};

/// Page B0h: how large commands may be, in logical blocks. Zero is "no limit reported".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockLimits {
    /// WSNZ: a WRITE SAME with a length of zero is refused.
    pub write_same_not_zero: bool,
    /// MAXIMUM COMPARE AND WRITE LENGTH; zero is none at all.
    pub max_compare_and_write: u8,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY.
    pub optimal_granularity: u16,
    /// MAXIMUM TRANSFER LENGTH.
    pub max_transfer: u32,
    /// OPTIMAL TRANSFER LENGTH.
    pub optimal_transfer: u32,
    /// MAXIMUM PREFETCH LENGTH.
    pub max_prefetch: u32,
    /// MAXIMUM UNMAP LBA COUNT; zero is no UNMAP.
    pub max_unmap: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT; zero is no UNMAP.
    pub max_unmap_descriptors: u32,
    /// OPTIMAL UNMAP GRANULARITY.
    pub unmap_granularity: u32,
    /// UNMAP GRANULARITY ALIGNMENT, if UGAVALID; 31 bits.
    pub unmap_alignment: Option<u32>,
    /// MAXIMUM WRITE SAME LENGTH.
    pub max_write_same: u64,
}

/// UGAVALID, in the word of UNMAP GRANULARITY ALIGNMENT.
const UGAVALID: u32 = 1 << 31;

impl BlockLimits {
    /// Bytes of the body as it is put; the atomic writes of SBC-4 read as not reported.
    pub const BODY_LEN: usize = 0x3c;

    pub(super) fn decode(page: &[u8]) -> Self {
        let alignment = u32_at(page, 32);
        Self {
            write_same_not_zero: bit_at(page, 4, 0x01),
            max_compare_and_write: u8_at(page, 5),
            optimal_granularity: u16_at(page, 6),
            max_transfer: u32_at(page, 8),
            optimal_transfer: u32_at(page, 12),
            max_prefetch: u32_at(page, 16),
            max_unmap: u32_at(page, 20),
            max_unmap_descriptors: u32_at(page, 24),
            unmap_granularity: u32_at(page, 28),
            unmap_alignment: (alignment & UGAVALID != 0).then_some(alignment & !UGAVALID),
            max_write_same: u64_at(page, 36),
        }
    }

    /// Appends the body of the page.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut page = [0; super::HEADER_LEN + Self::BODY_LEN];
        page[4] = flag(self.write_same_not_zero, 0x01);
        page[5] = self.max_compare_and_write;
        set(&mut page, 6, &self.optimal_granularity.to_be_bytes());
        set(&mut page, 8, &self.max_transfer.to_be_bytes());
        set(&mut page, 12, &self.optimal_transfer.to_be_bytes());
        set(&mut page, 16, &self.max_prefetch.to_be_bytes());
        set(&mut page, 20, &self.max_unmap.to_be_bytes());
        set(&mut page, 24, &self.max_unmap_descriptors.to_be_bytes());
        set(&mut page, 28, &self.unmap_granularity.to_be_bytes());
        let alignment = self.unmap_alignment.map_or(0, |alignment| alignment | UGAVALID);
        set(&mut page, 32, &alignment.to_be_bytes());
        set(&mut page, 36, &self.max_write_same.to_be_bytes());
        out.extend_from_slice(&page[super::HEADER_LEN..]);
    }
}

/// Page B1h: what kind of medium it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCharacteristics {
    /// MEDIUM ROTATION RATE: 0 not reported, 1 does not rotate, else revolutions a minute.
    pub rotation: u16,
    /// NOMINAL FORM FACTOR, 4 bits.
    pub form_factor: u8,
    /// ZONED, 2 bits: 0 not reported, 1 host aware, 2 device managed.
    pub zoned: u8,
}

impl BlockCharacteristics {
    /// Bytes of the body as it is put.
    pub const BODY_LEN: usize = 0x3c;

    pub(super) fn decode(page: &[u8]) -> Self {
        Self {
            rotation: u16_at(page, 4),
            form_factor: u8_at(page, 7) & 0x0f,
            zoned: u8_at(page, 8) >> 4 & 3,
        }
    }

    /// Appends the body of the page.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut page = [0; super::HEADER_LEN + Self::BODY_LEN];
        set(&mut page, 4, &self.rotation.to_be_bytes());
        page[7] = self.form_factor & 0x0f;
        page[8] = (self.zoned & 3) << 4;
        out.extend_from_slice(&page[super::HEADER_LEN..]);
    }

    /// Whether seeks cost time. A medium of which nothing is reported counts as rotating.
    #[must_use]
    pub const fn is_rotational(&self) -> bool {
        self.rotation != 1
    }
}

/// PROVISIONING TYPE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProvisioningType {
    /// Not reported, or fully provisioned.
    #[default]
    Full,
    /// Resource provisioned.
    Resource,
    /// Thin provisioned.
    Thin,
    /// A reserved value, 3 to 7.
    Other(u8),
}

/// Page B2h: how blocks are deallocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provisioning {
    /// THRESHOLD EXPONENT.
    pub threshold_exponent: u8,
    /// LBPU: UNMAP.
    pub unmap: bool,
    /// LBPWS: WRITE SAME(16) with UNMAP.
    pub write_same_16: bool,
    /// LBPWS10: WRITE SAME(10) with UNMAP.
    pub write_same_10: bool,
    /// LBPRZ, 3 bits: see [`Provisioning::reads_zeros`].
    pub reads: u8,
    /// ANC_SUP: blocks can be anchored.
    pub anchors: bool,
    /// PROVISIONING TYPE. Value 1 of the standard, fully provisioned with resources, is
    /// [`ProvisioningType::Resource`].
    pub kind: ProvisioningType,
}

impl Provisioning {
    /// Bytes of the body as it is put, without a provisioning group.
    pub const BODY_LEN: usize = 4;

    pub(super) fn decode(page: &[u8]) -> Self {
        Self {
            threshold_exponent: u8_at(page, 4),
            unmap: bit_at(page, 5, 0x80),
            write_same_16: bit_at(page, 5, 0x40),
            write_same_10: bit_at(page, 5, 0x20),
            reads: u8_at(page, 5) >> 2 & 7,
            anchors: bit_at(page, 5, 0x02),
            kind: match u8_at(page, 6) & 7 {
                0 => ProvisioningType::Full,
                1 => ProvisioningType::Resource,
                2 => ProvisioningType::Thin,
                other => ProvisioningType::Other(other),
            },
        }
    }

    /// Appends the body of the page.
    pub fn put(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            ProvisioningType::Full => 0,
            ProvisioningType::Resource => 1,
            ProvisioningType::Thin => 2,
            ProvisioningType::Other(other) => other & 7,
        };
        let how = flag(self.unmap, 0x80)
            | flag(self.write_same_16, 0x40)
            | flag(self.write_same_10, 0x20)
            | (self.reads & 7) << 2
            | flag(self.anchors, 0x02);
        out.extend_from_slice(&[self.threshold_exponent, how, kind, 0]);
    }

    /// Whether blocks that were deallocated read as zeros: LBPRZ of xx1b (SBC-4; of SBC-3's one
    /// bit this is the bit).
    #[must_use]
    pub const fn reads_zeros(&self) -> bool {
        self.reads & 1 != 0
    }
}
