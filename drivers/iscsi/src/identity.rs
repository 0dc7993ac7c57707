//! What tells a logical unit from another under the same number: the designators of page 83h that
//! name the unit, not the port it is reached by.

use weir_proto_scsi::command::ScsiCommand;
use weir_proto_scsi::vpd::{Association, VpdPage};

/// The page's code.
const PAGE: u8 = 0x83;
/// Bytes that are asked for.
pub(crate) const LEN: u16 = 1024;

/// The command that asks for the page.
pub(crate) fn cdb() -> Vec<u8> {
    let inquiry = ScsiCommand::Inquiry { page: Some(PAGE), allocation: LEN };
    inquiry.encode().expect("a page's code and a length").bytes().to_vec()
}

/// Whether a command asks for the page.
pub(crate) fn is_asked_by(cdb: &[u8]) -> bool {
    matches!(cdb, [0x12, evpd, PAGE, ..] if evpd & 1 != 0)
}

/// The unit's designators; `None` if the data is no whole page, as of a unit that is not there.
pub(crate) fn of(page: &[u8]) -> Option<Vec<u8>> {
    // The peripheral qualifier: 0 is a unit that is there.
    if page.first().is_none_or(|peripheral| peripheral >> 5 != 0) {
        return None;
    }
    let page = VpdPage::decode(PAGE, page).ok().filter(|page| !page.is_cut())?;
    let mut identity = Vec::new();
    let units = page.designators().filter(|d| d.association == Association::LogicalUnit);
    units.for_each(|designator| designator.put(&mut identity));
    Some(identity)
}
