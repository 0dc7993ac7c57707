//! The data of REPORT LUNS: which logical units a target has.
//!
//! Layout: SPC-4, "REPORT LUNS command".

use crate::lun::Lun;
use crate::wire::{WireError, at_least, claimed, u32_at};

/// Bytes before the list, and the fewest that may be asked for is twice as much.
const HEADER_LEN: usize = 8;

/// The list as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LunList<'a> {
    /// LUN LIST LENGTH, bytes, as the target claims it.
    pub length: u32,
    list: &'a [u8],
}

impl<'a> LunList<'a> {
    /// Reads the header; the list is as long as its length and the data allow.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer bytes than the length has.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        at_least("REPORT LUNS data", bytes, 4)?;
        let length = u32_at(bytes, 0);
        let list = bytes.get(HEADER_LEN..).unwrap_or_default();
        Ok(Self { length, list: claimed(list, usize::try_from(length).unwrap_or(usize::MAX)) })
    }

    /// The LUNs that are there whole.
    pub fn luns(&self) -> impl Iterator<Item = Lun> + 'a {
        let (luns, _cut) = self.list.as_chunks();
        luns.iter().map(|lun| Lun(*lun))
    }

    /// The ALLOCATION LENGTH that takes the whole list, by the target's claim.
    #[must_use]
    pub const fn whole_len(&self) -> u32 {
        self.length.saturating_add(HEADER_LEN as u32)
    }

    /// Whether the data ends before the list does.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.list.len() < self.length as usize
    }
}

/// Appends the data of a list.
///
/// # Panics
/// If it has half a billion LUNs or more.
pub fn put_lun_list(out: &mut Vec<u8>, luns: &[Lun]) {
    let length = u32::try_from(luns.len() * Lun::LEN).expect("a list below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    luns.iter().for_each(|lun| out.extend_from_slice(&lun.0));
}
