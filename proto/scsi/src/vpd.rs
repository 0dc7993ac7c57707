//! Vital product data: the pages INQUIRY answers with EVPD.
//!
//! Layouts: SPC-4 for the pages 00h, 80h and 83h, SBC-3 for B0h, B1h and B2h.

mod block;
mod designator;

pub use block::{BlockCharacteristics, BlockLimits, Provisioning, ProvisioningType};
pub use designator::{Association, Designator, DesignatorKind, Wwid};

use crate::inquiry::Peripheral;
use crate::wire::{WireError, ascii, at_least, claimed, u16_at};

/// Supported VPD pages.
pub const SUPPORTED_PAGES: u8 = 0x00;
/// Unit serial number.
pub const UNIT_SERIAL_NUMBER: u8 = 0x80;
/// Device identification.
pub const DEVICE_IDENTIFICATION: u8 = 0x83;
/// Block limits.
pub const BLOCK_LIMITS: u8 = 0xb0;
/// Block device characteristics.
pub const BLOCK_CHARACTERISTICS: u8 = 0xb1;
/// Logical block provisioning.
pub const PROVISIONING: u8 = 0xb2;

/// Bytes before the body of a page.
const HEADER_LEN: usize = 4;

/// A page as it was received: its header checked, its body as long as PAGE LENGTH and the data
/// allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VpdPage<'a> {
    /// What the logical unit is.
    pub peripheral: Peripheral,
    /// PAGE CODE.
    pub code: u8,
    /// What follows the header.
    pub body: &'a [u8],
    /// PAGE LENGTH: if it is more than `body` has, asking for `whole_len` bytes gives the rest.
    pub length: u16,
    /// Header and body. Offsets of the standard are into these.
    page: &'a [u8],
}

impl<'a> VpdPage<'a> {
    /// Reads a page that was asked for by its code. A target without EVPD answers with standard
    /// data instead; this is found by the code.
    ///
    /// # Errors
    /// [`WireError`] if the header is not there, or is another page's.
    pub fn decode(code: u8, bytes: &'a [u8]) -> Result<Self, WireError> {
        at_least("VPD page", bytes, HEADER_LEN)?;
        if bytes[1] != code {
            return Err(WireError::Field {
                what: "VPD page",
                field: "PAGE CODE",
                at: 1,
                value: u64::from(bytes[1]),
                bound: "the code asked for",
            });
        }
        let length = u16_at(bytes, 2);
        let page = claimed(bytes, HEADER_LEN + usize::from(length));
        Ok(Self { peripheral: Peripheral(bytes[0]), code, body: &page[HEADER_LEN..], length, page })
    }

    /// Bytes of the page without a cut.
    #[must_use]
    pub const fn whole_len(&self) -> usize {
        HEADER_LEN + self.length as usize
    }

    /// Whether the data ends before the page does.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.body.len() < self.length as usize
    }

    /// Whether page 00h lists a page.
    #[must_use]
    pub fn lists(&self, code: u8) -> bool {
        self.body.contains(&code)
    }

    /// The text of page 80h, without blanks around it.
    #[must_use]
    pub fn serial(&self) -> String {
        ascii(self.body)
    }

    /// The designators of page 83h, up to the first that is cut.
    #[must_use]
    pub const fn designators(&self) -> Designators<'a> {
        Designators(self.body)
    }

    /// The limits of page B0h.
    #[must_use]
    pub fn block_limits(&self) -> BlockLimits {
        BlockLimits::decode(self.page)
    }

    /// The characteristics of page B1h.
    #[must_use]
    pub fn characteristics(&self) -> BlockCharacteristics {
        BlockCharacteristics::decode(self.page)
    }

    /// The provisioning of page B2h.
    #[must_use]
    pub fn provisioning(&self) -> Provisioning {
        Provisioning::decode(self.page)
    }
}

/// Walks the designators of page 83h.
#[derive(Clone, Debug)]
pub struct Designators<'a>(&'a [u8]);

impl<'a> Iterator for Designators<'a> {
    type Item = Designator<'a>;

    fn next(&mut self) -> Option<Designator<'a>> {
        let (designator, rest) = Designator::split(self.0)?;
        self.0 = rest;
        Some(designator)
    }
}

/// Appends a page whose body `body` appends; PAGE LENGTH is filled in afterwards.
///
/// # Panics
/// If the body has more than 65,535 bytes.
pub fn put_page(
    out: &mut Vec<u8>,
    peripheral: Peripheral,
    code: u8,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[peripheral.0, code, 0, 0]);
    body(out);
    let length = u16::try_from(out.len() - start - HEADER_LEN).expect("a body below 64 KiB");
    out[start + 2..start + HEADER_LEN].copy_from_slice(&length.to_be_bytes());
}
