//! Mode parameters: the header, block descriptors and pages of MODE SENSE and MODE SELECT.
//!
//! Layouts: SPC-4, "Mode parameters"; the caching page and the device-specific byte: SBC-3.

use crate::wire::{WireError, at_least, bit_at, claimed, flag, u8_at, u16_at};

/// All pages at once.
pub const ALL_PAGES: u8 = 0x3f;
/// The caching page.
pub const CACHING: u8 = 0x08;

/// The header's two facts about a disk, in DEVICE-SPECIFIC PARAMETER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSpecific {
    /// WP: writes are refused.
    pub write_protected: bool,
    /// DPOFUA: DPO and FUA are known.
    pub dpo_fua: bool,
}

/// Mode parameters as they were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeData<'a> {
    /// MODE DATA LENGTH: bytes behind itself, as the target claims. Zero in MODE SELECT, where it
    /// is reserved.
    pub length: u16,
    /// MEDIUM TYPE.
    pub medium: u8,
    /// The two facts.
    pub device: DeviceSpecific,
    /// The block descriptors.
    pub descriptors: &'a [u8],
    /// The pages.
    pages: &'a [u8],
}

/// How the header looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeForm {
    /// Of MODE SENSE(6) and MODE SELECT(6): 4 bytes.
    Six,
    /// Of MODE SENSE(10) and MODE SELECT(10): 8 bytes.
    Ten,
}

impl<'a> ModeData<'a> {
    /// Reads what MODE SENSE answered: MODE DATA LENGTH counts.
    ///
    /// # Errors
    /// [`WireError::Short`] if the header is cut.
    pub fn decode_sense(form: ModeForm, bytes: &'a [u8]) -> Result<Self, WireError> {
        let claim = match form {
            ModeForm::Six => 1 + usize::from(u8_at(bytes, 0)),
            ModeForm::Ten => 2 + usize::from(u16_at(bytes, 0)),
        };
        Self::decode(form, claimed(bytes, claim))
    }

    /// Reads what MODE SELECT sent: MODE DATA LENGTH is reserved.
    ///
    /// # Errors
    /// [`WireError::Short`] if the header is cut.
    pub fn decode_select(form: ModeForm, bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::decode(form, bytes)
    }

    fn decode(form: ModeForm, bytes: &'a [u8]) -> Result<Self, WireError> {
        let (length, medium, device, descriptors, header) = match form {
            ModeForm::Six => {
                at_least("mode parameters", bytes, 4)?;
                (u16::from(bytes[0]), bytes[1], bytes[2], usize::from(bytes[3]), 4)
            }
            ModeForm::Ten => {
                at_least("mode parameters", bytes, 8)?;
                (u16_at(bytes, 0), bytes[2], bytes[3], usize::from(u16_at(bytes, 6)), 8)
            }
        };
        let rest = &bytes[header..];
        let (descriptors, pages) = rest.split_at(descriptors.min(rest.len()));
        let device =
            DeviceSpecific { write_protected: device & 0x80 != 0, dpo_fua: device & 0x10 != 0 };
        Ok(Self { length, medium, device, descriptors, pages })
    }

    /// The pages, up to the first that is cut.
    #[must_use]
    pub const fn pages(&self) -> ModePages<'a> {
        ModePages(self.pages)
    }

    /// The caching page, if it is among them.
    #[must_use]
    pub fn caching(&self) -> Option<CachingPage> {
        self.pages().find_map(|page| CachingPage::of(&page))
    }
}

/// Appends a header, and what `pages` appends behind it. MODE DATA LENGTH is filled in, or left
/// zero for MODE SELECT.
///
/// # Panics
/// If it becomes longer than the field's 8 or 16 bits count.
pub fn put_mode_data(
    out: &mut Vec<u8>,
    form: ModeForm,
    device: Option<DeviceSpecific>,
    pages: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let specific = device.map_or(0, |is| flag(is.write_protected, 0x80) | flag(is.dpo_fua, 0x10));
    match form {
        ModeForm::Six => out.extend_from_slice(&[0, 0, specific, 0]),
        ModeForm::Ten => out.extend_from_slice(&[0, 0, 0, specific, 0, 0, 0, 0]),
    }
    pages(out);
    if device.is_none() {
        return;
    }
    let len = out.len() - start;
    match form {
        ModeForm::Six => out[start] = u8::try_from(len - 1).expect("mode data of 256 bytes"),
        ModeForm::Ten => {
            let length = u16::try_from(len - 2).expect("mode data of 64 KiB");
            out[start..start + 2].copy_from_slice(&length.to_be_bytes());
        }
    }
}

/// One page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePage<'a> {
    /// PAGE CODE.
    pub code: u8,
    /// SUBPAGE CODE, of a page that has one (SPF).
    pub subpage: Option<u8>,
    /// PS: MODE SELECT can keep it over a power cycle.
    pub savable: bool,
    /// What follows PAGE LENGTH.
    pub body: &'a [u8],
}

impl ModePage<'_> {
    /// Appends the page.
    ///
    /// # Panics
    /// If the body is longer than PAGE LENGTH counts: 8 bits, or 16 of a subpage.
    pub fn put(&self, out: &mut Vec<u8>) {
        let first = self.code & 0x3f | flag(self.savable, 0x80);
        match self.subpage {
            None => {
                let len = u8::try_from(self.body.len()).expect("a page below 256 bytes");
                out.extend_from_slice(&[first, len]);
            }
            Some(subpage) => {
                let len = u16::try_from(self.body.len()).expect("a subpage below 64 KiB");
                out.extend_from_slice(&[first | 0x40, subpage]);
                out.extend_from_slice(&len.to_be_bytes());
            }
        }
        out.extend_from_slice(self.body);
    }
}

/// Walks mode pages.
#[derive(Clone, Debug)]
pub struct ModePages<'a>(&'a [u8]);

impl<'a> Iterator for ModePages<'a> {
    type Item = ModePage<'a>;

    fn next(&mut self) -> Option<ModePage<'a>> {
        let first = *self.0.first()?;
        let has_subpage = first & 0x40 != 0;
        let (header, len) = if has_subpage {
            (4, usize::from(u16_at(self.0, 2)))
        } else {
            (2, usize::from(u8_at(self.0, 1)))
        };
        let (head, rest) = self.0.split_at_checked(header)?;
        let (body, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some(ModePage {
            code: first & 0x3f,
            subpage: has_subpage.then(|| head[1]),
            savable: first & 0x80 != 0,
            body,
        })
    }
}

const WCE: u8 = 0x04;
const RCD: u8 = 0x01;

/// The caching page with all its bits, so that MODE SELECT changes none but the one that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachingPage {
    savable: bool,
    /// SCSI-2 has 10 bytes, later editions 18.
    body: [u8; Self::BODY_LEN],
    len: u8,
}

impl CachingPage {
    /// Bytes of the body in SBC-3.
    pub const BODY_LEN: usize = 18;

    /// A page that says two things about the cache.
    #[must_use]
    pub fn new(write_cache: bool, read_cache: bool) -> Self {
        let mut body = [0; Self::BODY_LEN];
        body[0] = flag(write_cache, WCE) | flag(!read_cache, RCD);
        Self { savable: false, body, len: Self::BODY_LEN as u8 }
    }

    /// Reads it out of a page; `None` if that is another, or has no byte with the bits. Of a page
    /// that is longer than the standard's the rest is left out.
    #[must_use]
    pub fn of(page: &ModePage<'_>) -> Option<Self> {
        if page.code != CACHING || page.subpage.is_some() || page.body.is_empty() {
            return None;
        }
        let mut body = [0; Self::BODY_LEN];
        let len = page.body.len().min(Self::BODY_LEN);
        body[..len].copy_from_slice(&page.body[..len]);
        Some(Self { savable: page.savable, body, len: len as u8 })
    }

    /// WCE: written data may sit in a volatile cache.
    #[must_use]
    pub const fn write_cache(&self) -> bool {
        self.body[0] & WCE != 0
    }

    /// RCD is not set: reads may come from the cache.
    #[must_use]
    pub fn read_cache(&self) -> bool {
        !bit_at(&self.body, 0, RCD)
    }

    /// PS: MODE SELECT can keep it over a power cycle.
    #[must_use]
    pub const fn is_savable(&self) -> bool {
        self.savable
    }

    /// The same page with WCE set or not.
    #[must_use]
    pub const fn with_write_cache(mut self, on: bool) -> Self {
        self.body[0] = (self.body[0] & !WCE) | flag(on, WCE);
        self
    }

    /// The same page as MODE SELECT takes it, where PS is reserved.
    #[must_use]
    pub const fn for_select(self) -> Self {
        Self { savable: false, ..self }
    }

    /// Appends the page.
    pub fn put(&self, out: &mut Vec<u8>) {
        let body = &self.body[..usize::from(self.len)];
        ModePage { code: CACHING, subpage: None, savable: self.savable, body }.put(out);
    }
}
