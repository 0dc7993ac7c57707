//! What a real target says, byte for byte: tgt 1.0.85 of Debian bookworm, asked over iSCSI on a
//! loopback address by a recorder that prints the data and the sense as they came.
//!
//! LUN 1 is a file of 256 MiB with `thin_provisioning=1`, `vendor_id=WEIR`, `product_id=TESTDISK`
//! and `scsi_sn=w0001`; LUN 2 is offline (`online=0`); LUN 3 is of `bstype` null; LUN 4 has blocks
//! of 4096 bytes; LUN 0 is tgt's controller; LUN 9 is not there.

mod bytes;

use bytes::hex;
use weir_bio::{Flags, Status};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::decide::{
    Attempt, Delivery, Disposition, Notice, Purpose, ScsiEnd, UnitTraits, decide,
};
use weir_proto_scsi::inquiry::{Inquiry, Peripheral, Tpgs};
use weir_proto_scsi::limits::{CdbRule, DiscardBy, DiskLimits, DiskPages};
use weir_proto_scsi::mode::{ModeData, ModeForm};
use weir_proto_scsi::report_luns::LunList;
use weir_proto_scsi::reservation::{
    ReservationKey, ReservationType, ReserveCapabilities, ReserveInList,
};
use weir_proto_scsi::supported::CommandSupport;
use weir_proto_scsi::vpd::{DesignatorKind, VpdPage, Wwid};
use weir_proto_scsi::{AdditionalSense, CdbSize, Opcode, ScsiCommand, ScsiStatus, Sense, SenseKey};

const INQUIRY: &str = "\
    000005123d0000025745495220202020544553544449534b2020202020202020303030310000000000000000 \
    000000000000000000000000000004c0096003000000";
const INQUIRY_LUN_0: &str = "\
    0c0005123d0000024945542020202020436f6e74726f6c6c6572202020202020303030310000000000000000 \
    000000000000000000000000000004c0096001fb0000";
const PAGE_00: &str = "00000006008083b0b1b2";
const PAGE_80: &str = "\
    00800024202020202020202020202020202020202020202020202020202020202020207730303031";
const PAGE_83: &str = "\
    0083004802010024494554202020202030303031303030310000000000000000000000000000000000000000 \
    0103000830000001000000010103001060000000000000000e00000000010001";
const PAGE_B0: &str = "\
    00b0003c00800000000000000000000000000000ffffffffffffffff00000000000000000000000000000000 \
    0000000000000000000000000000000000000000";
const PAGE_B0_LUN_4: &str = "\
    00b0003c00800000000000000000000000000000000000000000000000000000000000000000000000000000 \
    0000000000000000000000000000000000000000";
const PAGE_B1: &str = "\
    00b1004000000000000000000000000000000000000000000000000000000000000000000000000000000000 \
    000000000000000000000000000000000000000000000000";
const PAGE_B2: &str = "00b2000400e40200";
const PAGE_B2_LUN_4: &str = "00b2000400000000";
const CAPACITY_16: &str = "000000000007ffff000002000003c00000000000000000000000000000000000";
const CAPACITY_16_LUN_4: &str = "000000000000ffff000010000000000000000000000000000000000000000000";
const LUNS: &str = "\
    0000002800000000000000000000000000010000000000000002000000000000000300000000000000040000 \
    00000000";
const MODE_6: &str = "1f001008000000000000020008121400ffff0000ffffffff8014000000000000";
const MODE_6_ALL: &str = "\
    6900100800000000000002000000020e8080000a0000000000000000000008121400ffff0000ffffffff8014 \
    0000000000000a0a021000000000000002004a01001c04000000000000000000000000000000000000000000 \
    0000000000001c0a08000000000000000000";
const MODE_10_DBD: &str = "001a00100000000008121400ffff0000ffffffff8014000000000000";

fn page(code: u8, text: &str, look: impl FnOnce(VpdPage<'_>)) {
    look(VpdPage::decode(code, &hex(text)).expect("a page"));
}

#[test]
fn tgts_disks_say_who_they_are() {
    let is = Inquiry::decode(&hex(INQUIRY)).unwrap();
    assert!(is.peripheral.is_disk() && is.has_vpd() && is.queuing && is.hierarchical);
    assert!(!is.removable && !is.aca && !is.multiport && !is.protect && !is.third_party_copy);
    assert_eq!((is.version, is.format, is.tpgs), (5, 2, Tpgs::None));
    assert_eq!(is.vendor_text(), "WEIR");
    assert_eq!(is.product_text(), "TESTDISK");
    assert_eq!(is.revision_text(), "0001");
    assert_eq!(is.versions[..4], [0x04c0, 0x0960, 0x0300, 0]);
    // The first 36 bytes are asked for alone at first, and are the same but for nothing.
    let first = Inquiry::decode(&hex(INQUIRY)[..36]).unwrap();
    assert_eq!(Inquiry { versions: is.versions, ..first }, is);
    assert_eq!(Inquiry::whole_len(hex(INQUIRY)[4]), hex(INQUIRY).len());
    let mut again = Vec::new();
    is.put(&mut again);
    assert_eq!((again[..4].to_vec(), again[5..66].to_vec()), {
        let bytes = hex(INQUIRY);
        (bytes[..4].to_vec(), bytes[5..].to_vec())
    });
    let controller = Inquiry::decode(&hex(INQUIRY_LUN_0)).unwrap();
    assert_eq!(controller.peripheral, Peripheral(0x0c));
    assert_eq!(controller.product_text(), "Controller");
}

#[test]
fn tgts_vpd_pages_name_the_disk() {
    page(0x00, PAGE_00, |page| {
        assert!([0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2].into_iter().all(|code| page.lists(code)));
        assert!(!page.lists(0xb3) && !page.lists(0x06), "the length is no page");
    });
    page(0x80, PAGE_80, |page| assert_eq!(page.serial(), "w0001"));
    page(0x83, PAGE_83, |page| {
        let kinds: Vec<_> = page.designators().map(|name| (name.kind, name.bytes.len())).collect();
        let expected =
            [(DesignatorKind::T10, 36), (DesignatorKind::NAA, 8), (DesignatorKind::NAA, 16)];
        assert_eq!(kinds, expected);
        let wwid = Wwid::choose(page.designators(), Some("w0001")).unwrap();
        assert_eq!(wwid.to_string(), "naa.60000000000000000e00000000010001");
        let best = |keep: &[usize]| {
            let some = page.designators().enumerate().filter(|(at, _)| keep.contains(at));
            Wwid::choose(some.map(|(_, name)| name), Some("w0001")).unwrap().to_string()
        };
        assert_eq!(best(&[0, 1]), "naa.3000000100000001");
        assert_eq!(best(&[0]), "t10.IET     00010001");
        assert_eq!(best(&[]), "serial.w0001");
    });
    page(0xb1, PAGE_B1, |page| {
        assert_eq!(page.characteristics().rotation, 0);
        assert!(page.characteristics().is_rotational());
    });
}

/// What LUN 1 told.
fn pages() -> DiskPages {
    let (b0, b1, b2, mode) = (hex(PAGE_B0), hex(PAGE_B1), hex(PAGE_B2), hex(MODE_6));
    let mode = ModeData::decode_sense(ModeForm::Six, &mode).unwrap();
    let support = hex("0003001093f8ffffffffffffffffffffffff0007");
    DiskPages {
        capacity: Capacity::decode_16(&hex(CAPACITY_16)).unwrap(),
        limits: Some(VpdPage::decode(0xb0, &b0).unwrap().block_limits()),
        characteristics: Some(VpdPage::decode(0xb1, &b1).unwrap().characteristics()),
        provisioning: Some(VpdPage::decode(0xb2, &b2).unwrap().provisioning()),
        device: mode.device,
        caching: mode.caching(),
        write_same_16: CommandSupport::decode(&support).unwrap().support.is_standard(),
        ..DiskPages::default()
    }
}

#[test]
fn tgts_thin_disk_has_these_limits() {
    assert_eq!(
        DiskLimits::new(&pages()),
        DiskLimits {
            capacity: 256 << 11,
            logical_block_size: 512,
            physical_block_size: 4096,
            max_dev_sectors: 0xffff,
            max_sectors: 2560,
            io_min: 4096,
            io_opt: 0,
            discard: DiscardBy::Unmap,
            max_discard_sectors: 0x7f_ffff,
            max_discard_segments: 4095,
            discard_granularity: 4096,
            discard_alignment: 0,
            zeros_unmapping: Some(CdbSize::Sixteen),
            zeros_writing: Some(CdbSize::Sixteen),
            max_write_zeroes_sectors: 0xffff,
            rotational: true,
            read_only: false,
            volatile_cache: true,
            fua: true,
            cdbs: CdbRule::TenOrSixteen,
        }
    );
}

#[test]
fn tgts_disk_of_4_kib_blocks_that_is_not_thin_has_these() {
    let (b0, b2) = (hex(PAGE_B0_LUN_4), hex(PAGE_B2_LUN_4));
    let pages = DiskPages {
        capacity: Capacity::decode_16(&hex(CAPACITY_16_LUN_4)).unwrap(),
        limits: Some(VpdPage::decode(0xb0, &b0).unwrap().block_limits()),
        provisioning: Some(VpdPage::decode(0xb2, &b2).unwrap().provisioning()),
        ..pages()
    };
    let limits = DiskLimits::new(&pages);
    assert_eq!((limits.capacity, limits.logical_block_size), (256 << 11, 4096));
    assert_eq!((limits.physical_block_size, limits.max_dev_sectors), (4096, 0xffff * 8));
    assert_eq!((limits.discard, limits.max_discard_sectors), (DiscardBy::None, 0));
    assert_eq!((limits.zeros_unmapping, limits.zeros_writing), (None, Some(CdbSize::Sixteen)));
}

#[test]
fn tgts_capacities_agree() {
    let long = Capacity::decode_16(&hex(CAPACITY_16)).unwrap();
    assert!(long.provisioned && long.reads_zeros);
    assert_eq!((long.physical_exponent, long.lowest_aligned, long.protection), (3, 0, None));
    let short = Capacity::decode_10(&hex("0007ffff00000200")).unwrap().unwrap();
    assert_eq!((short.last_lba, short.block_len), (long.last_lba, long.block_len));
    let mut again = Vec::new();
    long.put_16(&mut again);
    assert_eq!(again, hex(CAPACITY_16));
    let null = Capacity::decode_10(&hex("7fffffff00000200")).unwrap().unwrap();
    assert_eq!(null.sectors(), 1 << 31, "the null LUN has 1 TiB");
}

#[test]
fn tgts_lists_are_read() {
    let bytes = hex(LUNS);
    let list = LunList::decode(&bytes).unwrap();
    let numbers: Vec<_> = list.luns().map(|lun| lun.number()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4].map(Some));
    assert!(!list.is_cut());
    // Asked for 16 bytes, it tells the length of the whole list.
    let cut = hex("00000028000000000000000000000000");
    let cut = LunList::decode(&cut).unwrap();
    assert_eq!((cut.luns().count(), cut.whole_len(), cut.is_cut()), (1, 48, true));

    for (form, text) in
        [(ModeForm::Six, MODE_6), (ModeForm::Six, MODE_6_ALL), (ModeForm::Ten, MODE_10_DBD)]
    {
        let bytes = hex(text);
        let data = ModeData::decode_sense(form, &bytes).unwrap();
        assert!(data.device.dpo_fua && !data.device.write_protected);
        let caching = data.caching().expect("the caching page");
        assert!(caching.write_cache() && caching.read_cache());
    }
    let bytes = hex(MODE_6_ALL);
    let all = ModeData::decode_sense(ModeForm::Six, &bytes).unwrap();
    let codes: Vec<_> = all.pages().map(|page| page.code).collect();
    assert_eq!(codes, [0x00, 0x02, 0x08, 0x0a, 0x0a, 0x1c]);
    let subpages: Vec<_> = all.pages().filter_map(|page| page.subpage).collect();
    assert_eq!(subpages, [0x01], "the control extension page");
    // The first question is for four bytes.
    let head = ModeData::decode_sense(ModeForm::Six, &bytes[..4]).unwrap();
    assert_eq!((head.device, head.length), (all.device, 0x69));

    let known = hex("0003000a42010000000000ffff07");
    let known = CommandSupport::decode(&known).unwrap();
    assert!(known.support.is_standard() && known.usage.len() == 10 && known.usage[0] == 0x42);
}

#[test]
fn tgts_reservations_are_read() {
    let none = hex("0000000000000000");
    let none = ReserveInList::decode(&none).unwrap();
    assert_eq!((none.keys().count(), none.reservation()), (0, None));
    let bytes = hex("00000001000000081122334455667788");
    let keys = ReserveInList::decode(&bytes).unwrap();
    assert_eq!(keys.generation, 1);
    assert!(keys.keys().eq([ReservationKey(0x1122_3344_5566_7788)]));
    let bytes = hex("000000010000001011223344556677880000000000050000");
    let held = ReserveInList::decode(&bytes).unwrap().reservation().unwrap();
    assert_eq!(held.key, ReservationKey(0x1122_3344_5566_7788));
    assert_eq!((held.scope, held.kind), (0, ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY));
    let can = ReserveCapabilities::decode(&hex("00080080ea010000")).unwrap();
    assert!(ReservationType::NAMED.iter().all(|&kind| can.types.unwrap().has(kind)));
    assert!(!can.compatible && !can.through_power_loss && !can.all_target_ports);
}

/// The commands that were sent, as the recorder wrote them.
#[test]
fn the_commands_tgt_took_are_those_that_are_encoded() {
    for text in [
        "000000000000",
        "03000000fc00",
        "12000000ff00",
        "12018300ff00",
        "25000000000000000000",
        "9e100000000000000000000000200000",
        "a00000000000000010000000",
        "1a000800ff00",
        "5a080800000000010000",
        "a30a00000000000001000000",
        "a30c01930000000001000000",
        "a30c029e0010000001000000",
        "5e020000000000010000",
        "5f010500000000001800",
        "2a080000000000000100",
        "28180000000000000100",
        "88080000000000000000000000010000",
        "a80800000000000000010000",
        "080000000100",
        "42000000000000001800",
        "93090000000000000004000000020000",
        "41080000000400000200",
        "35000000000000000000",
        "91000000000000000000000000000000",
        "1b0000000100",
    ] {
        let command = ScsiCommand::decode(&hex(text)).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(command.encode().unwrap().bytes(), hex(text));
    }
    // And the one it did not know.
    let unknown = ScsiCommand::decode(&hex("c1000000000000000000")).unwrap_err();
    let sense = Sense::decode(&hex("700005000000000a00000000200000000000")).unwrap();
    assert_eq!(unknown.sense(), sense);
    let mut bytes = Vec::new();
    sense.put(weir_proto_scsi::sense::SenseFormat::Fixed, &mut bytes);
    assert_eq!(bytes, hex("700005000000000a00000000200000000000"));
    assert_eq!(Opcode(0xc1).name(), None);
}

fn decided(purpose: Purpose, status: ScsiStatus, sense: &str) -> (Disposition, Option<Notice>) {
    let sense = Sense::decode(&hex(sense)).unwrap();
    let attempt = Attempt {
        purpose,
        flags: Flags::NONE,
        retries: 0,
        retries_allowed: 5,
        out_of_time: false,
        unit: UnitTraits::default(),
    };
    let end = ScsiEnd { delivery: Delivery::Delivered, status, sense: Some(sense) };
    let decision = decide(&end, &attempt);
    (decision.disposition, decision.notice)
}

#[test]
fn tgts_sense_is_decided_as_it_is_meant() {
    use Disposition::{Complete, Fail, Retry, RetryUncounted};
    use ScsiStatus as S;
    for (what, purpose, status, sense, expected) in [
        (
            "the first TEST UNIT READY of a session",
            Purpose::TestUnitReady,
            S::CHECK_CONDITION,
            "700006000000000a00000000290000000000",
            (RetryUncounted, Some(Notice::WasReset)),
        ),
        (
            "LUN 2, which is offline",
            Purpose::TestUnitReady,
            S::CHECK_CONDITION,
            "700002000000000a00000000040100000000",
            (Retry, None),
        ),
        (
            "LUN 9, which is not there",
            Purpose::TestUnitReady,
            S::CHECK_CONDITION,
            "700005000000000a00000000250000000000",
            (Fail(Status::IoErr), Some(Notice::LunGone)),
        ),
        (
            "a READ behind the end",
            Purpose::Transfer,
            S::CHECK_CONDITION,
            "700005000000000a00000000210000000000",
            (Fail(Status::Target), None),
        ),
        (
            "UNMAP of a LUN that is not thin",
            Purpose::Unmap,
            S::CHECK_CONDITION,
            "700005000000000a00000000200000000000",
            (Fail(Status::NotSupp), Some(Notice::UnmapRefused)),
        ),
        (
            "UNMAP that was carried out, with sense beside GOOD",
            Purpose::Unmap,
            S::GOOD,
            "700005000000000a00000000250000000000",
            (Complete, None),
        ),
    ] {
        assert_eq!(decided(purpose, status, sense), expected, "{what}");
    }
    let sense = Sense::decode(&hex("700000000000000a00000000000000000000")).unwrap();
    assert_eq!(sense, Sense::new(SenseKey::NoSense, AdditionalSense::NONE), "REQUEST SENSE");
}
