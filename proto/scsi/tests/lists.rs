//! Every field of the data and the parameter lists stands where the standards have it, both ways.
//! Each field has a value of its own, so that a field at another place shows.

mod bytes;

use bytes::hex;
use weir_proto_scsi::alua::{
    AccessState, PortGroupReport, PortGroups, StateCause, StateWish, SupportedStates,
    put_port_groups, put_state_wishes, state_wishes,
};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::inquiry::{Inquiry, Peripheral, Tpgs};
use weir_proto_scsi::lun::LunAddress;
use weir_proto_scsi::mode::{
    CachingPage, DeviceSpecific, ModeData, ModeForm, ModePage, put_mode_data,
};
use weir_proto_scsi::report_luns::{LunList, put_lun_list};
use weir_proto_scsi::reservation::{
    Registration, Reservation, ReservationKey, ReservationType, ReservationTypes,
    ReserveCapabilities, ReserveInList, ReserveOutList, put_keys, put_registrations,
    put_reservation,
};
use weir_proto_scsi::supported::{CommandSupport, Support};
use weir_proto_scsi::unmap::{
    UNMAP_RANGES_MAX, UnmapRange, put_unmap_list, unmap_list_len, unmap_ranges,
};
use weir_proto_scsi::vpd::{
    self, Association, BlockCharacteristics, BlockLimits, Designator, DesignatorKind, Provisioning,
    ProvisioningType, VpdPage, Wwid,
};
use weir_proto_scsi::{Lun, WireError};

/// What a function appends.
fn put(appends: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    appends(&mut out);
    out
}

const PLAIN: Inquiry = Inquiry {
    peripheral: Peripheral(0x2c),
    removable: false,
    version: 6,
    aca: false,
    hierarchical: false,
    format: 2,
    tpgs: Tpgs::None,
    third_party_copy: false,
    protect: false,
    multiport: false,
    queuing: false,
    vendor: *b"WEIR    ",
    product: *b"TESTDISK        ",
    revision: *b"0001",
    versions: [0; 8],
};

#[test]
fn each_field_of_inquiry_data_stands_at_its_place() {
    let text = "574549522020202054455354444953 4b202020202020202030303031";
    let with = |head: &str| hex(&format!("{head} {text}"));
    let is = PLAIN;
    for (inquiry, bytes) in [
        (is.clone(), with("2c 00 06 02 1f 00 00 00")),
        (Inquiry { removable: true, ..is.clone() }, with("2c 80 06 02 1f 00 00 00")),
        (Inquiry { aca: true, ..is.clone() }, with("2c 00 06 22 1f 00 00 00")),
        (Inquiry { hierarchical: true, format: 1, ..is.clone() }, with("2c 00 06 11 1f 00 00 00")),
        (Inquiry { tpgs: Tpgs::Implicit, ..is.clone() }, with("2c 00 06 02 1f 10 00 00")),
        (Inquiry { tpgs: Tpgs::Explicit, ..is.clone() }, with("2c 00 06 02 1f 20 00 00")),
        (Inquiry { tpgs: Tpgs::Both, ..is.clone() }, with("2c 00 06 02 1f 30 00 00")),
        (Inquiry { third_party_copy: true, ..is.clone() }, with("2c 00 06 02 1f 08 00 00")),
        (Inquiry { protect: true, ..is.clone() }, with("2c 00 06 02 1f 01 00 00")),
        (Inquiry { multiport: true, ..is.clone() }, with("2c 00 06 02 1f 00 10 00")),
        (Inquiry { queuing: true, ..is.clone() }, with("2c 00 06 02 1f 00 00 02")),
    ] {
        assert_eq!(put(|out| inquiry.put(out)), bytes);
        assert_eq!(Inquiry::decode(&bytes), Ok(inquiry));
    }
    let versions = [0x00c0, 0x0960, 0x0460, 4, 5, 6, 7, 0x0123];
    let long = Inquiry { versions, ..is };
    let bytes = put(|out| long.put(out));
    assert_eq!((bytes.len(), bytes[4]), (74, 69));
    assert_eq!(bytes[58..64], hex("00c0 0960 0460"));
    assert_eq!(bytes[72..], hex("0123"));
    assert_eq!(Inquiry::decode(&bytes), Ok(long));
}

/// Of each byte the bits that, alone, make a difference to what is decoded from zeros.
fn bits_that_count<T: PartialEq>(mut zeros: Vec<u8>, decode: impl Fn(&[u8]) -> T) -> Vec<u8> {
    let nothing = decode(&zeros);
    let mut masks = vec![0; zeros.len()];
    for at in 0..zeros.len() {
        for bit in 0..8 {
            zeros[at] ^= 1 << bit;
            masks[at] |= u8::from(decode(&zeros) != nothing) << bit;
            zeros[at] ^= 1 << bit;
        }
    }
    masks
}

#[test]
fn no_bit_counts_that_no_field_has() {
    let mut inquiry = vec![0; 36];
    inquiry[4] = 31;
    let masks = bits_that_count(inquiry, |bytes| {
        let is = Inquiry::decode(bytes).unwrap();
        (is.peripheral, is.removable, is.version, is.aca, is.hierarchical, is.format, is.tpgs)
            == (Peripheral(0), false, 0, false, false, 0, Tpgs::None)
            && !(is.third_party_copy || is.protect || is.multiport || is.queuing)
    });
    assert_eq!(masks[..8], hex("ff 80 ff 3f 00 39 10 02"));

    let page = |code| hex(&format!("00 {code} 0008 00000000 00000000"));
    let masks =
        bits_that_count(page("b2"), |bytes| VpdPage::decode(0xb2, bytes).map(|p| p.provisioning()));
    assert_eq!(masks[4..], hex("ff fe 07 00 00000000"));
    let masks = bits_that_count(page("b1"), |bytes| {
        VpdPage::decode(0xb1, bytes).map(|p| p.characteristics())
    });
    assert_eq!(masks[4..], hex("ffff 00 0f 30 000000"));
    let masks =
        bits_that_count(page("b0"), |bytes| VpdPage::decode(0xb0, bytes).map(|p| p.block_limits()));
    assert_eq!(masks[4..], hex("01 ff ffff ffffffff"));
    // P_TYPE says nothing without PROT_EN.
    let masks = bits_that_count(vec![0; 32], Capacity::decode_16);
    assert_eq!(masks[12..17], hex("01 0f ff ff 00"));
    assert_eq!(
        bits_that_count(vec![0; 24], ReserveOutList::decode)[16..],
        hex("00000000 0d 000000")
    );
    let masks = bits_that_count(hex("0000 00 80 0000 0000"), ReserveCapabilities::decode);
    assert_eq!(masks, hex("0000 1d 81 ea01 0000"));
    let masks = bits_that_count(vec![0; 4], |bytes| {
        CommandSupport::decode(bytes).map(|told| (told.support, told.timeouts))
    });
    assert_eq!(masks, hex("00 87 0000"));
    let masks = bits_that_count(vec![0; 8], |bytes| {
        ModeData::decode_select(ModeForm::Six, bytes).map(|data| data.device)
    });
    assert_eq!(masks[1..3], hex("00 90"));
    let masks = bits_that_count(hex("00000008 00000000 00000000"), |bytes| {
        let group = PortGroups::decode(bytes).unwrap().groups().next();
        group.map(|it| (it.preferred, it.state, it.supported, it.group, it.cause))
    });
    // Bits 4 to 6 of the first byte say that the header is another; bit 7 of the last, that there
    // are ports.
    assert_eq!(masks[4..11], hex("9f ff ffff 00 ff 00"));
}

#[test]
fn the_first_byte_tells_a_disk_from_what_is_absent_or_no_disk() {
    assert!(Peripheral::DISK.is_disk() && !Peripheral::ABSENT.is_disk());
    assert_eq!((Peripheral(0x6c).qualifier(), Peripheral(0x6c).device_type()), (3, 0x0c));
    assert!(!Peripheral(0x20).is_disk(), "it could be there and is not");
    let has_vpd = |version| Inquiry { version, ..PLAIN }.has_vpd();
    assert!(has_vpd(5) && has_vpd(7) && !has_vpd(4));
}

#[test]
fn a_cut_or_lying_inquiry_has_blank_and_zero_fields_behind_its_end() {
    let whole = put(|out| Inquiry { queuing: true, protect: true, ..PLAIN }.put(out));
    for len in 0..5 {
        let short = WireError::Short { what: "INQUIRY data", len, least: 5 };
        assert_eq!(Inquiry::decode(&whole[..len]), Err(short));
    }
    let cut = Inquiry::decode(&whole[..12]).unwrap();
    assert_eq!((cut.vendor, cut.product), (*b"WEIR    ", [b' '; 16]));
    let mut lies = whole.clone();
    lies[4] = 1;
    let less = Inquiry::decode(&lies).unwrap();
    assert!(less.protect && !less.queuing, "six bytes count");
    assert_eq!((less.vendor_text(), less.product_text()), (String::new(), String::new()));
    lies[4] = 255;
    assert_eq!(Inquiry::decode(&lies), Inquiry::decode(&whole));
    assert_eq!(Inquiry::whole_len(255), 260);
    let odd = Inquiry { vendor: *b"A\0\x01\xffB\0\0\0", ..PLAIN };
    assert_eq!(odd.vendor_text(), "A ..B");
    assert_eq!((PLAIN.product_text(), PLAIN.revision_text()), ("TESTDISK".into(), "0001".into()));
}

const LIMITS: BlockLimits = BlockLimits {
    write_same_not_zero: true,
    max_compare_and_write: 0x12,
    optimal_granularity: 0x3456,
    max_transfer: 0x0102_0304,
    optimal_transfer: 0x1112_1314,
    max_prefetch: 0x2122_2324,
    max_unmap: 0x3132_3334,
    max_unmap_descriptors: 0x4142_4344,
    unmap_granularity: 0x5152_5354,
    unmap_alignment: Some(0x6162_6364),
    max_write_same: 0x7172_7374_7576_7778,
};
const LIMITS_PAGE: &str = "00 b0 003c 01 12 3456 01020304 11121314 21222324 31323334 41424344 \
    51525354 e1626364 7172737475767778 00000000 00000000 00000000 00000000 00000000";

#[test]
fn each_field_of_the_block_pages_stands_at_its_place() {
    let page = put(|out| {
        vpd::put_page(out, Peripheral::DISK, vpd::BLOCK_LIMITS, |out| LIMITS.put(out));
    });
    assert_eq!(page, hex(LIMITS_PAGE));
    assert_eq!(VpdPage::decode(0xb0, &page).unwrap().block_limits(), LIMITS);
    let mut none = page.clone();
    none[32] &= 0x7f;
    let limits = VpdPage::decode(0xb0, &none).unwrap().block_limits();
    assert_eq!(limits, BlockLimits { unmap_alignment: None, ..LIMITS }, "UGAVALID");

    let is = BlockCharacteristics { rotation: 0x1c20, form_factor: 5, zoned: 2 };
    let page = put(|out| vpd::put_page(out, Peripheral::DISK, 0xb1, |out| is.put(out)));
    assert_eq!(page[..9], hex("00 b1 003c 1c20 00 05 20"));
    assert_eq!(page.len(), 64);
    assert_eq!(VpdPage::decode(0xb1, &page).unwrap().characteristics(), is);
    let turns = |rotation| BlockCharacteristics { rotation, ..is }.is_rotational();
    assert!(turns(0) && turns(7200) && !turns(1), "not reported counts as rotating");

    let none = Provisioning { threshold_exponent: 0x0a, ..Provisioning::default() };
    for (provisioning, body) in [
        (none, "0a 00 00 00"),
        (Provisioning { unmap: true, ..none }, "0a 80 00 00"),
        (Provisioning { write_same_16: true, ..none }, "0a 40 00 00"),
        (Provisioning { write_same_10: true, ..none }, "0a 20 00 00"),
        (Provisioning { reads: 5, ..none }, "0a 14 00 00"),
        (Provisioning { anchors: true, ..none }, "0a 02 00 00"),
        (Provisioning { kind: ProvisioningType::Resource, ..none }, "0a 00 01 00"),
        (Provisioning { kind: ProvisioningType::Thin, ..none }, "0a 00 02 00"),
        (Provisioning { kind: ProvisioningType::Other(7), ..none }, "0a 00 07 00"),
    ] {
        assert_eq!(put(|out| provisioning.put(out)), hex(body));
        let page = hex(&format!("00 b2 0004 {body}"));
        assert_eq!(VpdPage::decode(0xb2, &page).unwrap().provisioning(), provisioning);
    }
    let zeros = |reads| Provisioning { reads, ..none }.reads_zeros();
    assert!(zeros(1) && zeros(5) && !zeros(0) && !zeros(2), "010b is the vendor's pattern");
}

#[test]
fn a_vpd_page_cut_at_any_byte_keeps_the_fields_before_the_cut() {
    let page = hex(LIMITS_PAGE);
    let field_ends = [5, 6, 8, 12, 16, 20, 24, 28, 32, 36, 44];
    let told = |limits: BlockLimits| {
        [
            limits.write_same_not_zero,
            limits.max_compare_and_write != 0,
            limits.optimal_granularity != 0,
            limits.max_transfer != 0,
            limits.optimal_transfer != 0,
            limits.max_prefetch != 0,
            limits.max_unmap != 0,
            limits.max_unmap_descriptors != 0,
            limits.unmap_granularity != 0,
            limits.unmap_alignment.is_some(),
            limits.max_write_same != 0,
        ]
    };
    for len in 4..=page.len() {
        let cut = VpdPage::decode(0xb0, &page[..len]).unwrap();
        assert_eq!(told(cut.block_limits()), field_ends.map(|end| end <= len), "{len}");
        assert_eq!((cut.is_cut(), cut.whole_len()), (len < 64, 64));
        // The same if PAGE LENGTH lies, and the bytes are there.
        let mut lies = page.clone();
        lies[2..4].copy_from_slice(&(len as u16 - 4).to_be_bytes());
        let lies = VpdPage::decode(0xb0, &lies).unwrap();
        assert_eq!(lies.block_limits(), cut.block_limits());
        assert!(!lies.is_cut());
    }
    for len in 0..4 {
        let short = WireError::Short { what: "VPD page", len, least: 4 };
        assert_eq!(VpdPage::decode(0xb0, &page[..len]), Err(short));
    }
    let other = VpdPage::decode(0xb1, &page).unwrap_err();
    assert_eq!(other.to_string(), "VPD page: PAGE CODE at byte 1 is 0xb0, not the code asked for");
}

#[test]
fn designators_come_one_by_one_until_one_is_cut() {
    let names = [
        Designator {
            code_set: 1,
            association: Association::LogicalUnit,
            kind: DesignatorKind::NAA,
            bytes: &hex("6001 0203 0405 0607 0809 0a0b 0c0d 0e0f"),
        },
        Designator {
            code_set: 1,
            association: Association::TargetPort,
            kind: DesignatorKind::RELATIVE_TARGET_PORT,
            bytes: &hex("0000 1234"),
        },
        Designator {
            code_set: 1,
            association: Association::TargetPort,
            kind: DesignatorKind::TARGET_PORT_GROUP,
            bytes: &hex("0000 5678"),
        },
        Designator {
            code_set: 3,
            association: Association::TargetDevice,
            kind: DesignatorKind::SCSI_NAME,
            bytes: b"iqn.2024-01.test:t1\0",
        },
    ];
    let page = put(|out| {
        vpd::put_page(out, Peripheral::DISK, vpd::DEVICE_IDENTIFICATION, |out| {
            names.iter().for_each(|name| name.put(out));
        });
    });
    let head = "00 83 003c 01 03 00 10 600102030405060708090a0b0c0d0e0f 01 14 00 04 00001234 01 15";
    assert_eq!(page[..34], hex(head));
    assert_eq!(page[40..44], hex("03 28 00 14"));
    let walked: Vec<_> = VpdPage::decode(0x83, &page).unwrap().designators().collect();
    assert_eq!(walked, names);
    assert_eq!(walked.iter().find_map(Designator::relative_target_port), Some(0x1234));
    assert_eq!(walked.iter().find_map(Designator::target_port_group), Some(0x5678));
    assert_eq!(walked[0].relative_target_port(), None);
    let ends = [24, 32, 40, 64];
    for len in 4..=page.len() {
        let whole = ends.iter().filter(|&&end| end <= len).count();
        let page = VpdPage::decode(0x83, &page[..len]).unwrap();
        assert_eq!(page.designators().count(), whole, "{len}");
    }
}

#[test]
fn the_name_of_a_logical_unit_is_the_best_of_its_designators() {
    let name = |kind, bytes| Designator {
        code_set: 1,
        association: Association::LogicalUnit,
        kind,
        bytes,
    };
    let ones = [1; 17];
    let (naa_16, naa_8) = (hex("60010203040506070809 0a0b0c0d0e0f"), hex("5001020304050607"));
    let (eui, other) = (hex("0102030405060708"), hex("9001020304050607"));
    let ranked = [
        (name(DesignatorKind::NAA, &naa_16[..]), "naa.600102030405060708090a0b0c0d0e0f"),
        (name(DesignatorKind::NAA, &naa_8[..]), "naa.5001020304050607"),
        (name(DesignatorKind::EUI_64, &eui[..]), "eui.0102030405060708"),
        (name(DesignatorKind::T10, b"WEIR    disk 1  "), "t10.WEIR    disk 1"),
    ];
    let choose = |names: &[Designator<'_>], serial| {
        Wwid::choose(names.iter().copied(), serial).map(|wwid| wwid.to_string())
    };
    for (at, (_, text)) in ranked.iter().enumerate() {
        // The worst comes first.
        let names: Vec<_> = ranked[at..].iter().rev().map(|(name, _)| *name).collect();
        assert_eq!(choose(&names, Some("s1")).as_deref(), Some(*text));
    }
    let port = |name| Designator { association: Association::TargetPort, ..name };
    let bad = [
        port(ranked[0].0),
        name(DesignatorKind::NAA, &other),
        name(DesignatorKind::NAA, &naa_8[..7]),
        name(DesignatorKind::EUI_64, &eui[..7]),
        name(DesignatorKind::T10, b"  "),
        name(DesignatorKind::NAA, b""),
        name(DesignatorKind::VENDOR, &naa_8),
        name(DesignatorKind::SCSI_NAME, &naa_8),
    ];
    assert_eq!(choose(&bad, Some("s1")).as_deref(), Some("serial.s1"));
    assert_eq!((choose(&bad, Some("")), choose(&bad, None)), (None, None));
    for len in [8, 12, 16] {
        let chosen = Wwid::choose([name(DesignatorKind::EUI_64, &ones[..len])].into_iter(), None);
        assert_eq!(chosen, Some(Wwid::Eui(vec![1; len])));
    }
    let named = [0x2f, 0x3f, 0x5f, 0x6f].map(|first| [first, 2, 3, 4, 5, 6, 7, 8]);
    for bytes in &named {
        assert!(choose(&[name(DesignatorKind::NAA, bytes)], None).is_some(), "{bytes:x?}");
    }
    let second = hex("5001020304050699");
    let two = [ranked[1].0, name(DesignatorKind::NAA, &second)];
    assert_eq!(choose(&two, None).as_deref(), Some(ranked[1].1), "the first of one rank");
}

#[test]
fn each_field_of_the_capacity_stands_at_its_place() {
    let is = Capacity {
        last_lba: 0x0123_4567_89ab_cdef,
        block_len: 0x0000_1000,
        protection: None,
        physical_exponent: 0,
        provisioned: false,
        reads_zeros: false,
        lowest_aligned: 0,
    };
    for (capacity, rest) in [
        (is, "00 00 0000"),
        (Capacity { protection: Some(1), ..is }, "01 00 0000"),
        (Capacity { protection: Some(8), ..is }, "0f 00 0000"),
        (Capacity { physical_exponent: 0xa, ..is }, "00 0a 0000"),
        (Capacity { provisioned: true, ..is }, "00 00 8000"),
        (Capacity { reads_zeros: true, ..is }, "00 00 4000"),
        (Capacity { lowest_aligned: 0x1234, ..is }, "00 00 1234"),
        (Capacity { lowest_aligned: 0x3fff, provisioned: true, ..is }, "00 00 bfff"),
    ] {
        let mut bytes = hex(&format!("0123456789abcdef 00001000 {rest}"));
        bytes.resize(32, 0);
        assert_eq!(put(|out| capacity.put_16(out)), bytes);
        assert_eq!(Capacity::decode_16(&bytes), Ok(capacity));
        for len in 12..16 {
            let cut = Capacity::decode_16(&bytes[..len]).unwrap();
            assert_eq!((cut.last_lba, cut.block_len), (is.last_lba, is.block_len));
        }
        assert_eq!(Capacity::decode_16(&bytes[..12]), Ok(is));
        assert!(Capacity::decode_16(&bytes[..11]).is_err());
    }
    let small = Capacity { last_lba: 0x0001_0203, block_len: 512, ..Capacity::default() };
    assert_eq!(put(|out| small.put_10(out)), hex("00010203 00000200"));
    assert_eq!(Capacity::decode_10(&hex("00010203 00000200")), Ok(Some(small)));
    assert_eq!(Capacity::decode_10(&hex("ffffffff 00000200")), Ok(None), "ask with 16 bytes");
    assert_eq!(put(|out| is.put_10(out)), hex("ffffffff 00001000"));
    assert!(Capacity::decode_10(&[0; 7]).is_err());
}

#[test]
fn a_size_is_counted_in_sectors_or_is_none() {
    let of =
        |last_lba, block_len| Capacity { last_lba, block_len, ..Capacity::default() }.sectors();
    assert_eq!([of(99, 512), of(99, 1024), of(99, 2048), of(99, 4096)], [100, 200, 400, 800]);
    assert_eq!([of(99, 0), of(99, 520), of(99, 256), of(99, 8192)], [0; 4]);
    assert_eq!(of(u64::MAX, 512), 0, "no disk has 2^64 blocks");
    assert_eq!(of(u64::MAX / 8, 4096), 0);
    assert_eq!(of(u64::MAX - 1, 512), u64::MAX);
}

#[test]
fn luns_are_listed_as_far_as_the_list_is_there() {
    let luns = [Lun::ZERO, Lun::new(5).unwrap(), Lun::new(300).unwrap(), Lun::REPORT_LUNS];
    let bytes = put(|out| put_lun_list(out, &luns));
    let text = "00000020 00000000 0000000000000000 0005000000000000 412c000000000000 \
        c101000000000000";
    assert_eq!(bytes, hex(text));
    for len in 4..=bytes.len() {
        let list = LunList::decode(&bytes[..len]).unwrap();
        assert_eq!(list.luns().count(), len.saturating_sub(8) / 8, "{len}");
        assert_eq!((list.whole_len(), list.is_cut()), (40, len < 40), "{len}");
    }
    assert!(LunList::decode(&bytes[..3]).is_err());
    assert!(LunList::decode(&bytes).unwrap().luns().eq(luns));
    for (length, count) in [(0_u32, 0), (7, 0), (8, 1), (31, 3), (40, 4), (u32::MAX, 4)] {
        let mut lies = bytes.clone();
        lies[..4].copy_from_slice(&length.to_be_bytes());
        let list = LunList::decode(&lies).unwrap();
        assert_eq!(list.luns().count(), count, "{length}");
        assert_eq!((list.is_cut(), list.whole_len()), (length > 32, length.saturating_add(8)));
    }
}

#[test]
fn a_lun_has_the_form_of_its_number() {
    for (number, text) in [
        (0, "0000"),
        (1, "0001"),
        (255, "00ff"),
        (256, "4100"),
        (16383, "7fff"),
        (16384, "d2004000"),
        (0x00ab_cdef, "d2abcdef"),
        (0x00ff_ffff, "d2ffffff"),
    ] {
        let mut bytes = hex(text);
        bytes.resize(8, 0);
        let lun = Lun::new(number).unwrap();
        assert_eq!(lun.0[..], bytes, "{number}");
        assert_eq!(lun.number(), Some(number));
        assert_eq!(lun.to_string(), number.to_string());
    }
    assert_eq!(Lun::new(1 << 24), None);
    assert_eq!(Lun(hex("4005000000000000").try_into().unwrap()).number(), Some(5), "flat, small");
    let other = ["0100", "0001 0001", "8001", "c100 0001", "d3000001", "c101", "0000 0000 0000 01"];
    for text in other {
        let mut bytes = hex(text);
        bytes.resize(8, 0);
        assert_eq!(Lun(bytes.try_into().unwrap()).number(), None, "{text}");
    }
    assert_eq!(Lun::REPORT_LUNS.to_string(), "c101000000000000h");
    assert_eq!(Lun::REPORT_LUNS.address(), LunAddress::WellKnown(1));
}

#[test]
fn ranges_to_deallocate_are_as_many_as_both_lengths_allow() {
    let ranges = [
        UnmapRange { lba: 0x0123_4567_89ab_cdef, blocks: 0x1122_3344 },
        UnmapRange { lba: 7, blocks: 0 },
    ];
    let bytes = put(|out| put_unmap_list(out, &ranges).unwrap());
    let text = "0026 0020 00000000 0123456789abcdef 11223344 00000000 0000000000000007 00000000 \
        00000000";
    assert_eq!(bytes, hex(text));
    assert_eq!(unmap_list_len(2), Some(40));
    for len in 0..=bytes.len() {
        let count = unmap_ranges(&bytes[..len]).map(Iterator::count);
        if len < 8 {
            let short = WireError::Short { what: "UNMAP parameter list", len, least: 8 };
            assert_eq!(count, Err(short));
        } else {
            assert_eq!(count, Ok((len - 8) / 16));
        }
    }
    assert!(unmap_ranges(&bytes).unwrap().eq(ranges));
    for (outer, inner, count) in [
        (0_u16, 32_u16, 0),
        (21, 32, 0),
        (22, 32, 1),
        (0xffff, 32, 2),
        (38, 31, 1),
        (38, 0xffff, 2),
    ] {
        let mut lies = bytes.clone();
        lies[..2].copy_from_slice(&outer.to_be_bytes());
        lies[2..4].copy_from_slice(&inner.to_be_bytes());
        assert_eq!(unmap_ranges(&lies).unwrap().count(), count, "{outer} {inner}");
    }
    let most = vec![ranges[1]; UNMAP_RANGES_MAX + 1];
    let mut out = Vec::new();
    assert!(put_unmap_list(&mut out, &most).is_err() && out.is_empty());
    put_unmap_list(&mut out, &most[1..]).unwrap();
    assert_eq!(unmap_ranges(&out).unwrap().count(), UNMAP_RANGES_MAX);
}

fn groups() -> [PortGroupReport; 2] {
    [
        PortGroupReport {
            preferred: true,
            state: AccessState::ActiveNonOptimized,
            supported: SupportedStates(0xdf),
            group: 0x1234,
            cause: StateCause::IMPLICIT,
            ports: vec![0x0001, 0xabcd],
        },
        PortGroupReport {
            preferred: false,
            state: AccessState::Transitioning,
            supported: SupportedStates(0x81),
            group: 2,
            cause: StateCause::EXPLICIT,
            ports: vec![],
        },
    ]
}

const GROUPS: &str = "81 df 1234 00 02 00 02 0000 0001 0000 abcd 8f 81 0002 00 01 00 00";

#[test]
fn each_field_of_a_target_port_group_stands_at_its_place() {
    let mut reports = groups();
    reports[1].preferred = true;
    for (transition, text) in
        [(None, format!("00000018 {GROUPS}")), (Some(0x2a), format!("0000001c 102a0000 {GROUPS}"))]
    {
        let bytes = put(|out| put_port_groups(out, transition, &reports));
        assert_eq!(bytes, hex(&text));
        let data = PortGroups::decode(&bytes).unwrap();
        assert_eq!(data.transition_s, transition.unwrap_or(0));
        assert_eq!((data.whole_len() as usize, data.is_cut()), (bytes.len(), false));
        let read: Vec<_> = data.groups().collect();
        assert_eq!(read.len(), 2);
        for (group, report) in read.iter().zip(&reports) {
            assert_eq!(group.preferred, report.preferred);
            assert_eq!((group.state, group.supported), (report.state, report.supported));
            assert_eq!((group.group, group.cause), (report.group, report.cause));
            assert!(group.ports().eq(report.ports.iter().copied()));
        }
    }
    let plain = put(|out| put_port_groups(out, None, &groups()));
    assert!(!PortGroups::decode(&plain).unwrap().groups().nth(1).unwrap().preferred);
}

#[test]
fn port_groups_cut_at_any_byte_or_with_a_lying_length_are_told_as_far_as_they_are_whole() {
    let bytes = put(|out| put_port_groups(out, Some(5), &groups()));
    for len in 0..=bytes.len() {
        let Ok(data) = PortGroups::decode(&bytes[..len]) else {
            assert!(len < 4, "{len}");
            continue;
        };
        let whole = [24, 32].iter().filter(|&&end| end <= len).count();
        assert_eq!(data.groups().count(), whole, "{len}");
        assert_eq!(data.is_cut(), len < 32);
    }
    for (length, whole) in [(0_u32, 0), (4, 0), (19, 0), (20, 1), (27, 1), (28, 2), (u32::MAX, 2)] {
        let mut lies = bytes.clone();
        lies[..4].copy_from_slice(&length.to_be_bytes());
        let data = PortGroups::decode(&lies).unwrap();
        assert_eq!(data.groups().count(), whole, "{length}");
    }
    let mut reserved = bytes.clone();
    reserved[4] |= 0x80;
    let data = PortGroups::decode(&reserved).unwrap();
    assert_eq!((data.transition_s, data.groups().count()), (5, 2), "a reserved bit of the header");
    let mut ports = bytes.clone();
    ports[15] = 255;
    assert_eq!(PortGroups::decode(&ports).unwrap().groups().count(), 0, "a count of ports lies");
}

#[test]
fn states_have_their_bits_names_priorities_and_ios() {
    use weir_proto_scsi::alua::PathIo::{Allowed, Later, Refused};
    for (bits, name, priority, preferred, io, supported) in [
        (0x0, "active/optimized", 50, 50, Allowed, 0x01),
        (0x1, "active/non-optimized", 10, 90, Allowed, 0x02),
        (0x2, "standby", 1, 81, Refused, 0x04),
        (0x3, "unavailable", 0, 80, Refused, 0x08),
        (0x4, "LBA dependent", 5, 85, Allowed, 0x10),
        (0xe, "offline", 0, 80, Refused, 0x40),
        (0xf, "transitioning", 0, 80, Later, 0x80),
        (0x7, "reserved", 0, 80, Refused, 0x00),
    ] {
        let state = AccessState::from_bits(0xf0 | bits);
        assert_eq!((state.bits(), state.name(), state.io()), (bits, name, io));
        assert_eq!(state.priority(false, false), priority, "{name}");
        assert_eq!(state.priority(false, true), priority, "{name}");
        assert_eq!(state.priority(true, false), preferred, "{name}");
        assert_eq!(state.priority(true, true), priority + 80, "{name}");
        assert_eq!(SupportedStates(supported).has(state), supported != 0, "{name}");
        assert!(!SupportedStates(!supported).has(state), "{name}");
    }
}

#[test]
fn wishes_for_states_are_read_as_they_were_put() {
    assert_eq!([StateCause::NONE.0, StateCause::EXPLICIT.0, StateCause::IMPLICIT.0], [0, 1, 2]);
    let wishes = [
        StateWish { state: AccessState::ActiveOptimized, group: 0x1234 },
        StateWish { state: AccessState::Standby, group: 2 },
    ];
    let bytes = put(|out| put_state_wishes(out, &wishes));
    assert_eq!(bytes, hex("00000000 00 00 1234 02 00 0002"));
    assert!(state_wishes(&bytes).unwrap().eq(wishes));
    for len in 0..=bytes.len() {
        let count = state_wishes(&bytes[..len]).map(Iterator::count).ok();
        assert_eq!(count, (len >= 4).then(|| (len - 4) / 4), "{len}");
    }
}

#[test]
fn mode_data_have_a_header_of_four_or_eight_bytes() {
    let wp = DeviceSpecific { write_protected: true, dpo_fua: false };
    let fua = DeviceSpecific { write_protected: false, dpo_fua: true };
    let page = CachingPage::new(true, true);
    let body = "08 12 04 00 0000000000000000 0000000000000000";
    for (form, device, head) in [
        (ModeForm::Six, Some(wp), "17 00 80 00"),
        (ModeForm::Six, Some(fua), "17 00 10 00"),
        (ModeForm::Six, None, "00 00 00 00"),
        (ModeForm::Ten, Some(wp), "001a 00 80 0000 0000"),
        (ModeForm::Ten, Some(fua), "001a 00 10 0000 0000"),
        (ModeForm::Ten, None, "0000 00 00 0000 0000"),
    ] {
        let bytes = put(|out| put_mode_data(out, form, device, |out| page.put(out)));
        assert_eq!(bytes, hex(&format!("{head} {body}")));
        let data = match device {
            Some(_) => ModeData::decode_sense(form, &bytes),
            None => ModeData::decode_select(form, &bytes),
        };
        let data = data.unwrap();
        assert_eq!(data.device, device.unwrap_or_default());
        assert_eq!(data.caching(), Some(page));
        let header = hex(head).len();
        for len in 0..=bytes.len() {
            let cut = ModeData::decode_select(form, &bytes[..len]);
            assert_eq!(cut.is_ok(), len >= header, "{len}");
            let whole = cut.is_ok_and(|cut| cut.caching().is_some());
            assert_eq!(whole, len == bytes.len(), "{len}");
        }
    }
    let lies = hex("03 00 90 00 08 12 04 00 0000000000000000 0000000000000000");
    let data = ModeData::decode_sense(ModeForm::Six, &lies).unwrap();
    assert_eq!(data.device, DeviceSpecific { write_protected: true, dpo_fua: true });
    assert_eq!(data.pages().count(), 0, "MODE DATA LENGTH ends before the page");
    let lies = hex("03 00 90 ff 08 12 04 00 0000000000000000 0000000000000000");
    let data = ModeData::decode_select(ModeForm::Six, &lies).unwrap();
    assert_eq!((data.descriptors.len(), data.pages().count()), (20, 0));
    let ten = hex("0000 42 10 0000 0004 aabbccdd 08 01 04");
    let data = ModeData::decode_select(ModeForm::Ten, &ten).unwrap();
    assert_eq!((data.medium, data.descriptors), (0x42, &hex("aabbccdd")[..]));
    assert!(data.caching().unwrap().write_cache(), "a page of one byte has the bits");
}

#[test]
fn pages_and_subpages_are_walked_and_a_select_changes_one_bit() {
    let sub = ModePage { code: 0x0a, subpage: Some(0x21), savable: true, body: &[1, 2, 3] };
    let own = ModePage { code: 0x1c, subpage: None, savable: false, body: &[9] };
    let bytes = put(|out| {
        put_mode_data(out, ModeForm::Six, None, |out| {
            sub.put(out);
            own.put(out);
        });
    });
    assert_eq!(bytes[4..], hex("ca 21 0003 010203 1c 01 09"));
    let data = ModeData::decode_select(ModeForm::Six, &bytes).unwrap();
    assert_eq!(data.pages().collect::<Vec<_>>(), [sub, own]);
    assert_eq!(data.caching(), None);

    let body = hex("ff aa 0102 0304 0506 0708 ff 09 0a0b 00 0c0d0e");
    let page = ModePage { code: 0x08, subpage: None, savable: true, body: &body };
    let caching = CachingPage::of(&page).unwrap();
    assert!(caching.write_cache() && !caching.read_cache() && caching.is_savable());
    let off = caching.with_write_cache(false);
    assert!(!off.write_cache());
    let mut expected = hex("08 12");
    expected.extend(&body);
    expected[2] = 0xfb;
    assert_eq!(put(|out| off.for_select().put(out)), expected);
    assert_eq!(off.with_write_cache(true), caching);
    let short = CachingPage::of(&ModePage { body: &body[..10], ..page }).unwrap();
    assert_eq!(put(|out| short.put(out))[..2], hex("88 0a"), "the page of SCSI-2 keeps its length");
    assert_eq!(CachingPage::of(&ModePage { body: &[], ..page }), None);
    assert_eq!(CachingPage::of(&ModePage { subpage: Some(0), ..page }), None);
    assert_eq!(CachingPage::of(&ModePage { code: 9, ..page }), None);
    assert!(!CachingPage::new(false, true).write_cache());
    assert!(!CachingPage::new(true, false).read_cache());
}

const HOLDER: Reservation = Reservation {
    key: ReservationKey(0x0102_0304_0506_0708),
    scope: 2,
    kind: ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
};

#[test]
fn each_field_of_reservations_stands_at_its_place() {
    let list = ReserveOutList {
        key: ReservationKey(0x0102_0304_0506_0708),
        action_key: ReservationKey(0x1112_1314_1516_1718),
        ..ReserveOutList::default()
    };
    for (list, flags) in [
        (list, "00"),
        (ReserveOutList { names_initiators: true, ..list }, "08"),
        (ReserveOutList { all_target_ports: true, ..list }, "04"),
        (ReserveOutList { through_power_loss: true, ..list }, "01"),
    ] {
        let bytes = hex(&format!("0102030405060708 1112131415161718 00000000 {flags} 000000"));
        assert_eq!(put(|out| list.put(out)), bytes);
        assert_eq!(ReserveOutList::decode(&bytes), Ok(list));
        assert!(ReserveOutList::decode(&bytes[..23]).is_err());
    }

    let keys = [ReservationKey(1), ReservationKey(0x1112_1314_1516_1718)];
    let bytes = put(|out| put_keys(out, 0x0a0b_0c0d, &keys));
    assert_eq!(bytes, hex("0a0b0c0d 00000010 0000000000000001 1112131415161718"));
    let list = ReserveInList::decode(&bytes).unwrap();
    assert_eq!((list.generation, list.whole_len()), (0x0a0b_0c0d, 24));
    assert!(list.keys().eq(keys));

    let bytes = put(|out| put_reservation(out, 7, Some(HOLDER)));
    assert_eq!(bytes, hex("00000007 00000010 0102030405060708 00000000 00 26 0000"));
    assert_eq!(ReserveInList::decode(&bytes).unwrap().reservation(), Some(HOLDER));
    let bytes = put(|out| put_reservation(out, 7, None));
    assert_eq!(bytes, hex("00000007 00000000"));
    assert_eq!(ReserveInList::decode(&bytes).unwrap().reservation(), None);
}

#[test]
fn registrations_come_one_by_one_until_one_is_cut() {
    let name = hex("45 00 000c");
    let one = Registration {
        key: HOLDER.key,
        all_target_ports: false,
        holds: Some(HOLDER),
        port: 0x1234,
        initiator: &name,
    };
    let two = Registration { all_target_ports: true, holds: None, initiator: &[], ..one };
    let bytes = put(|out| put_registrations(out, 1, &[one, two]));
    let text = "00000001 00000034 \
        0102030405060708 00000000 01 26 00000000 1234 00000004 4500000c \
        0102030405060708 00000000 02 00 00000000 1234 00000000";
    assert_eq!(bytes, hex(text));
    for len in 8..=bytes.len() {
        let list = ReserveInList::decode(&bytes[..len]).unwrap();
        let read: Vec<_> = list.registrations().collect();
        let whole = [36, 60].iter().filter(|&&end| end <= len).count();
        assert_eq!(read, [one, two][..whole], "{len}");
    }
    assert!(ReserveInList::decode(&bytes[..7]).is_err());
    let mut lies = bytes.clone();
    lies[28..32].copy_from_slice(&[0xff; 4]);
    assert_eq!(ReserveInList::decode(&lies).unwrap().registrations().count(), 0);
    lies[4..8].copy_from_slice(&[0xff; 4]);
    let list = ReserveInList::decode(&lies).unwrap();
    assert_eq!((list.whole_len(), list.keys().count()), (u32::MAX, 6));
}

#[test]
fn capabilities_name_the_types_that_are_known() {
    use ReservationType as T;
    let none = ReserveCapabilities::default();
    let types = |types: &[T]| Some(ReservationTypes::new(types));
    for (can, text) in [
        (none, "0008 00 00 0000 0000"),
        (ReserveCapabilities { compatible: true, ..none }, "0008 10 00 0000 0000"),
        (ReserveCapabilities { specifies_initiators: true, ..none }, "0008 08 00 0000 0000"),
        (ReserveCapabilities { all_target_ports: true, ..none }, "0008 04 00 0000 0000"),
        (ReserveCapabilities { through_power_loss: true, ..none }, "0008 01 00 0000 0000"),
        (ReserveCapabilities { through_power_loss_active: true, ..none }, "0008 00 01 0000 0000"),
        (ReserveCapabilities { types: types(&[]), ..none }, "0008 00 80 0000 0000"),
        (ReserveCapabilities { types: types(&[T::WRITE_EXCLUSIVE]), ..none }, "00080080 0200 0000"),
        (
            ReserveCapabilities { types: types(&[T::EXCLUSIVE_ACCESS_ALL_REGISTRANTS]), ..none },
            "0008 00 80 0001 0000",
        ),
        (ReserveCapabilities { types: types(T::NAMED), ..none }, "0008 00 80 ea01 0000"),
    ] {
        assert_eq!(put(|out| can.put(out)), hex(text));
        assert_eq!(ReserveCapabilities::decode(&hex(text)), Ok(can));
    }
    let all = ReserveCapabilities::decode(&hex("0008 00 80 ffff 0000")).unwrap().types.unwrap();
    assert!(T::NAMED.iter().all(|&kind| all.has(kind)));
    assert!(![0, 2, 4, 9, 15, 255].into_iter().any(|kind| all.has(T(kind))));
    assert!(!ReservationTypes::new(&[T(2), T(9), T(200)]).has(T(2)));
    assert!(ReserveCapabilities::decode(&[0; 7]).is_err());
}

#[test]
fn support_of_a_command_is_told_with_the_bits_it_looks_at() {
    for (support, bits) in [
        (Support::Unknown, "00"),
        (Support::Unsupported, "01"),
        (Support::Standard, "03"),
        (Support::Vendor, "05"),
        (Support::Reserved(7), "07"),
    ] {
        let told = CommandSupport { support, timeouts: false, usage: &[0x93, 0xf8] };
        let bytes = hex(&format!("00 {bits} 0002 93f8"));
        assert_eq!(put(|out| told.put(out)), bytes);
        assert_eq!(CommandSupport::decode(&bytes), Ok(told));
        assert_eq!(support.is_standard(), bits == "03");
    }
    let unknown = CommandSupport { support: Support::Unknown, timeouts: true, usage: &[] };
    assert_eq!(put(|out| unknown.put(out)), hex("00 80 0000"));
    let bytes = hex("00 83 0010 93");
    let timed = CommandSupport::decode(&bytes).unwrap();
    assert!(timed.timeouts && timed.usage == [0x93], "CDB SIZE lies");
    assert_eq!(put(|out| timed.put(out))[..4], hex("00 83 0001"));
    assert!(CommandSupport::decode(&[0; 3]).is_err());
}
