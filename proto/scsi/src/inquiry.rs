//! Standard INQUIRY data: what a logical unit is.
//!
//! Layout: SPC-4, "Standard INQUIRY data". Sources of the meaning of TPGS: the same, section of
//! asymmetric access.

use crate::wire::{WireError, ascii, at_least, bit_at, claimed, flag, set, text_at, u8_at, u16_at};

/// Bytes to ask for first: every target has so many.
pub const INQUIRY_LEN: usize = 36;
/// Version descriptors the data has room for.
const VERSIONS: usize = 8;
/// Where these begin.
const VERSIONS_AT: usize = 58;

/// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE, the first byte of INQUIRY data and VPD pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peripheral(pub u8);

impl Peripheral {
    /// A disk that is there.
    pub const DISK: Self = Self(0x00);
    /// No logical unit can be here.
    pub const ABSENT: Self = Self(0x7f);

    /// PERIPHERAL QUALIFIER: 0 is a logical unit that is there, 1 one that could be, 3 none.
    #[must_use]
    pub const fn qualifier(self) -> u8 {
        self.0 >> 5
    }

    /// PERIPHERAL DEVICE TYPE: 00h a disk by SBC, 0Ch a controller, 1Fh unknown.
    #[must_use]
    pub const fn device_type(self) -> u8 {
        self.0 & 0x1f
    }

    /// Whether a disk is there.
    #[must_use]
    pub const fn is_disk(self) -> bool {
        self.0 == Self::DISK.0
    }
}

/// TPGS: how the states of target port groups change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tpgs {
    /// There are no states.
    None,
    /// The target changes them.
    Implicit,
    /// SET TARGET PORT GROUPS changes them.
    Explicit,
    /// Both.
    Both,
}

/// Standard INQUIRY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// What it is, and whether it is there.
    pub peripheral: Peripheral,
    /// RMB: the medium can be taken out.
    pub removable: bool,
    /// VERSION: 5 is SPC-3, 6 SPC-4, 7 SPC-5.
    pub version: u8,
    /// NORMACA: ACA is known.
    pub aca: bool,
    /// HISUP: LUNs of more than one level.
    pub hierarchical: bool,
    /// RESPONSE DATA FORMAT, 4 bits; 2 is this one.
    pub format: u8,
    /// TPGS.
    pub tpgs: Tpgs,
    /// 3PC: third-party copies.
    pub third_party_copy: bool,
    /// PROTECT: protection information.
    pub protect: bool,
    /// MULTIP: more than one port.
    pub multiport: bool,
    /// CMDQUE: commands are queued.
    pub queuing: bool,
    /// T10 VENDOR IDENTIFICATION.
    pub vendor: [u8; 8],
    /// PRODUCT IDENTIFICATION.
    pub product: [u8; 16],
    /// PRODUCT REVISION LEVEL.
    pub revision: [u8; 4],
    /// VERSION DESCRIPTORS; zero is none.
    pub versions: [u16; VERSIONS],
}

impl Inquiry {
    /// Reads the data; bytes behind what ADDITIONAL LENGTH claims do not count.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer than the five bytes that say how long it is.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        at_least("INQUIRY data", bytes, 5)?;
        let bytes = claimed(bytes, Self::whole_len(bytes[4]));
        let mut versions = [0; VERSIONS];
        for (at, version) in (VERSIONS_AT..).step_by(2).zip(&mut versions) {
            *version = u16_at(bytes, at);
        }
        Ok(Self {
            peripheral: Peripheral(bytes[0]),
            removable: bit_at(bytes, 1, 0x80),
            version: bytes[2],
            aca: bit_at(bytes, 3, 0x20),
            hierarchical: bit_at(bytes, 3, 0x10),
            format: bytes[3] & 0x0f,
            tpgs: match u8_at(bytes, 5) >> 4 & 3 {
                0 => Tpgs::None,
                1 => Tpgs::Implicit,
                2 => Tpgs::Explicit,
                _ => Tpgs::Both,
            },
            third_party_copy: bit_at(bytes, 5, 0x08),
            protect: bit_at(bytes, 5, 0x01),
            multiport: bit_at(bytes, 6, 0x10),
            queuing: bit_at(bytes, 7, 0x02),
            vendor: text_at(bytes, 8),
            product: text_at(bytes, 16),
            revision: text_at(bytes, 32),
            versions,
        })
    }

    /// Bytes of the whole data by its ADDITIONAL LENGTH: the second time so many are asked for.
    #[must_use]
    pub const fn whole_len(additional: u8) -> usize {
        additional as usize + 5
    }

    /// Appends the data: 36 bytes, or 74 with version descriptors.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; VERSIONS_AT + 2 * VERSIONS];
        let versions = self.versions.iter().any(|&version| version != 0);
        let len = if versions { bytes.len() } else { INQUIRY_LEN };
        let start = [
            self.peripheral.0,
            flag(self.removable, 0x80),
            self.version,
            flag(self.aca, 0x20) | flag(self.hierarchical, 0x10) | self.format & 0x0f,
            (len - 5) as u8,
            (self.tpgs as u8) << 4 | flag(self.third_party_copy, 0x08) | flag(self.protect, 0x01),
            flag(self.multiport, 0x10),
            flag(self.queuing, 0x02),
        ];
        set(&mut bytes, 0, &start);
        set(&mut bytes, 8, &self.vendor);
        set(&mut bytes, 16, &self.product);
        set(&mut bytes, 32, &self.revision);
        for (at, version) in (VERSIONS_AT..).step_by(2).zip(self.versions) {
            set(&mut bytes, at, &version.to_be_bytes());
        }
        out.extend_from_slice(&bytes[..len]);
    }

    /// The vendor without blanks around it.
    #[must_use]
    pub fn vendor_text(&self) -> String {
        ascii(&self.vendor)
    }

    /// The product without blanks around it.
    #[must_use]
    pub fn product_text(&self) -> String {
        ascii(&self.product)
    }

    /// The revision without blanks around it.
    #[must_use]
    pub fn revision_text(&self) -> String {
        ascii(&self.revision)
    }

    /// Whether VPD pages may be asked for: SPC-3 and later.
    #[must_use]
    pub const fn has_vpd(&self) -> bool {
        self.version >= 5
    }
}
