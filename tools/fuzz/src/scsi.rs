//! What a SCSI target answers, against any bytes: sense, pages and lists.
//!
//! - No decoder panics, or says more than the bytes hold.
//! - What is understood, written again and read again is the same.
//!
//! Input: the bytes of an answer.

use weir_proto_scsi::alua::{PortGroups, state_wishes};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::inquiry::Inquiry;
use weir_proto_scsi::mode::{ModeData, ModeForm};
use weir_proto_scsi::report_luns::{LunList, put_lun_list};
use weir_proto_scsi::reservation::{ReserveCapabilities, ReserveInList, ReserveOutList};
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::supported::CommandSupport;
use weir_proto_scsi::unmap::unmap_ranges;
use weir_proto_scsi::vpd::{VpdPage, Wwid};
use weir_proto_scsi::{ScsiCommand, Sense};

pub(crate) fn check(bytes: &[u8]) {
    sense(bytes);
    pages(bytes);
    lists(bytes);
    if let Ok(command) = ScsiCommand::decode(bytes) {
        let cdb = command.encode().expect("what was decoded fits");
        assert_eq!(cdb.bytes(), &bytes[..cdb.bytes().len()]);
    }
    let _ = (Capacity::decode_10(bytes), Capacity::decode_16(bytes).map(|is| is.sectors()));
    if let Ok(told) = CommandSupport::decode(bytes) {
        assert!(told.usage.len() <= bytes.len());
    }
}

fn sense(bytes: &[u8]) {
    let Ok(sense) = Sense::decode(bytes) else { return };
    let _ = (sense.field_pointer(), sense.progress(), sense.to_string());
    // Both formats carry the key and the code; what else one has no field for is lost.
    for format in [SenseFormat::Fixed, SenseFormat::Descriptors] {
        let mut written = Vec::new();
        sense.put(format, &mut written);
        let again = Sense::decode(&written).expect("what was written");
        assert_eq!((again.key, again.code), (sense.key, sense.code));
    }
}

fn pages(bytes: &[u8]) {
    let most = bytes.len();
    if let Ok(inquiry) = Inquiry::decode(bytes) {
        let _ = (inquiry.vendor_text(), inquiry.product_text(), inquiry.revision_text());
    }
    for code in [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        let Ok(page) = VpdPage::decode(code, bytes) else { continue };
        assert!(page.body.len() + 4 <= most && page.body.len() <= usize::from(page.length));
        let _ = (page.lists(code), page.block_limits(), page.characteristics());
        let _ = page.provisioning();
        let named: usize = page.designators().map(|name| name.bytes.len() + 4).sum();
        assert!(named + 4 <= most);
        let _ = Wwid::choose(page.designators(), Some(&page.serial())).map(|id| id.to_string());
    }
    for form in [ModeForm::Six, ModeForm::Ten] {
        for data in [ModeData::decode_sense(form, bytes), ModeData::decode_select(form, bytes)] {
            let Ok(data) = data else { continue };
            assert!(data.pages().map(|page| 2 + page.body.len()).sum::<usize>() <= most);
            let _ = data.caching();
        }
    }
}

fn lists(bytes: &[u8]) {
    let most = bytes.len();
    if let Ok(list) = LunList::decode(bytes) {
        let luns: Vec<_> = list.luns().collect();
        assert!(luns.len() * 8 <= most);
        luns.iter().for_each(|lun| drop((lun.to_string(), lun.address())));
        let mut written = Vec::new();
        put_lun_list(&mut written, &luns);
        assert!(LunList::decode(&written).expect("what was written").luns().eq(luns));
    }
    if let Ok(data) = PortGroups::decode(bytes) {
        let ports: usize = data.groups().map(|group| 8 + 4 * group.ports().count()).sum();
        assert!(ports <= most);
    }
    if let Ok(wishes) = state_wishes(bytes) {
        assert!(wishes.count() * 4 <= most);
    }
    if let Ok(ranges) = unmap_ranges(bytes) {
        assert!(ranges.count() * 16 <= most);
    }
    if let Ok(list) = ReserveInList::decode(bytes) {
        assert!(list.keys().count() * 8 <= most);
        let _ = list.reservation();
        let named: usize = list.registrations().map(|one| 24 + one.initiator.len()).sum();
        assert!(named <= most);
    }
    let _ = (ReserveOutList::decode(bytes), ReserveCapabilities::decode(bytes));
}
