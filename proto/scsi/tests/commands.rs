//! Every field of every CDB stands where SPC-4 and SBC-3 have it, values that do not fit are
//! refused by name, and so are bits that are not spoken here.

mod bytes;

use bytes::hex;
use weir_proto_scsi::command::{
    CompareAndWrite, ModeSelect, ModeSense, PageControl, ReportOpcode, ReserveOut, StartStopUnit,
    SynchronizeCache, Transfer, WriteSame,
};
use weir_proto_scsi::reservation::{ReservationType, ReserveInAction, ReserveOutAction};
use weir_proto_scsi::sense::FieldPointer;
use weir_proto_scsi::{
    AdditionalSense, CdbSize, InvalidCdb, Opcode, ScsiCommand, SenseKey, WireError,
};

const TRANSFER: Transfer =
    Transfer { size: CdbSize::Ten, lba: 0x1234_5678, blocks: 0x9abc, dpo: false, fua: false };
const SIXTEEN: Transfer = Transfer {
    size: CdbSize::Sixteen,
    lba: 0x0123_4567_89ab_cdef,
    blocks: 0xfedc_ba98,
    dpo: false,
    fua: false,
};
const TWELVE: Transfer = Transfer { size: CdbSize::Twelve, blocks: 0x89ab_cdef, ..TRANSFER };
const SIX: Transfer = Transfer { size: CdbSize::Six, lba: 0x12_3456, blocks: 0x78, ..TRANSFER };
const SAME: WriteSame = WriteSame {
    size: CdbSize::Sixteen,
    lba: 0x0123_4567_89ab_cdef,
    blocks: 0xfedc_ba98,
    unmap: false,
    anchor: false,
    ndob: false,
};
const SAME_10: WriteSame =
    WriteSame { size: CdbSize::Ten, lba: 0x1234_5678, blocks: 0x9abc, ..SAME };
const CACHE: SynchronizeCache =
    SynchronizeCache { size: CdbSize::Ten, lba: 0, blocks: 0, immediate: false };
const SENSE_6: ModeSense = ModeSense {
    ten: false,
    no_descriptors: false,
    control: PageControl::Current,
    page: 0x08,
    subpage: 0,
    allocation: 0xff,
};
const SELECT: ModeSelect = ModeSelect { ten: false, page_format: true, save: false, length: 0x18 };
const START: StartStopUnit = StartStopUnit {
    immediate: false,
    power_condition: 0,
    no_flush: false,
    load_eject: false,
    start: true,
};
const OPCODE: ReportOpcode = ReportOpcode {
    timeouts: false,
    opcode: Opcode::WRITE_SAME_16,
    service_action: None,
    allocation: 0x0102_0304,
};
const OUT: ReserveOut = ReserveOut {
    action: ReserveOutAction::PREEMPT,
    scope: 0,
    kind: ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY,
    length: 24,
};

/// Commands and their bytes, each field with a value of its own.
fn primary() -> Vec<(ScsiCommand, &'static str)> {
    use ScsiCommand as C;
    vec![
        (C::TestUnitReady, "00 00 00 00 00 00"),
        (C::RequestSense { descriptors: false, allocation: 252 }, "03 00 00 00 fc 00"),
        (C::RequestSense { descriptors: true, allocation: 252 }, "03 01 00 00 fc 00"),
        (C::Inquiry { page: None, allocation: 0x0124 }, "12 00 00 01 24 00"),
        (C::Inquiry { page: Some(0x83), allocation: 0x0124 }, "12 01 83 01 24 00"),
        (C::Inquiry { page: Some(0), allocation: 255 }, "12 01 00 00 ff 00"),
        (C::ModeSense(SENSE_6), "1a 00 08 00 ff 00"),
        (C::ModeSense(ModeSense { no_descriptors: true, ..SENSE_6 }), "1a 08 08 00 ff 00"),
        (
            C::ModeSense(ModeSense { control: PageControl::Changeable, page: 0x3f, ..SENSE_6 }),
            "1a 00 7f 00 ff 00",
        ),
        (
            C::ModeSense(ModeSense { control: PageControl::Default, subpage: 0x21, ..SENSE_6 }),
            "1a 00 88 21 ff 00",
        ),
        (
            C::ModeSense(ModeSense { ten: true, control: PageControl::Saved, ..SENSE_6 }),
            "5a 00 c8 00 00 00 00 00 ff 00",
        ),
        (
            C::ModeSense(ModeSense {
                ten: true,
                no_descriptors: true,
                subpage: 0x21,
                allocation: 0x1234,
                ..SENSE_6
            }),
            "5a 08 08 21 00 00 00 12 34 00",
        ),
        (C::ModeSelect(SELECT), "15 10 00 00 18 00"),
        (C::ModeSelect(ModeSelect { save: true, page_format: false, ..SELECT }), "15 01 0000 1800"),
        (
            C::ModeSelect(ModeSelect { ten: true, length: 0x1234, ..SELECT }),
            "55 10 00 00 00 00 00 12 34 00",
        ),
        (C::StartStopUnit(START), "1b 00 00 00 01 00"),
        (C::StartStopUnit(StartStopUnit { start: false, ..START }), "1b 00 00 00 00 00"),
        (C::StartStopUnit(StartStopUnit { immediate: true, ..START }), "1b 01 00 00 01 00"),
        (C::StartStopUnit(StartStopUnit { load_eject: true, ..START }), "1b 00 00 00 03 00"),
        (C::StartStopUnit(StartStopUnit { no_flush: true, ..START }), "1b 00 00 00 05 00"),
        (C::StartStopUnit(StartStopUnit { power_condition: 0xa, ..START }), "1b 00 00 00 a1 00"),
    ]
}

/// Those about targets, ports and reservations.
fn reports() -> Vec<(ScsiCommand, &'static str)> {
    use ScsiCommand as C;
    vec![
        (C::ReportLuns { select: 2, allocation: 0x0102_0304 }, "a0 00 02 000000 01020304 00 00"),
        (
            C::ReportTargetPortGroups { extended: false, allocation: 0x0102_0304 },
            "a3 0a 00000000 01020304 00 00",
        ),
        (
            C::ReportTargetPortGroups { extended: true, allocation: 0x0102_0304 },
            "a3 2a 00000000 01020304 00 00",
        ),
        (C::SetTargetPortGroups { length: 0x0102_0304 }, "a4 0a 00000000 01020304 00 00"),
        (C::ReportOpcode(OPCODE), "a3 0c 01 93 0000 01020304 00 00"),
        (
            C::ReportOpcode(ReportOpcode { timeouts: true, ..OPCODE }),
            "a30c 81 93 0000 010203040000",
        ),
        (
            C::ReportOpcode(ReportOpcode { timeouts: true, service_action: Some(1), ..OPCODE }),
            "a3 0c 82 93 0001 01020304 00 00",
        ),
        (
            C::ReportOpcode(ReportOpcode { service_action: Some(0x1234), ..OPCODE }),
            "a3 0c 02 93 1234 01020304 00 00",
        ),
        (
            C::ReserveIn { action: ReserveInAction::READ_FULL_STATUS, allocation: 0x1234 },
            "5e 03 0000000000 1234 00",
        ),
        (C::ReserveOut(OUT), "5f 04 05 0000 00000018 00"),
        (
            C::ReserveOut(ReserveOut { scope: 2, length: 0x0102_0304, ..OUT }),
            "5f 04 25 0000 01020304 00",
        ),
    ]
}

/// Those on blocks.
fn block() -> Vec<(ScsiCommand, &'static str)> {
    use ScsiCommand as C;
    let compare =
        CompareAndWrite { lba: 0x0123_4567_89ab_cdef, blocks: 0x42, dpo: false, fua: false };
    vec![
        (C::ReadCapacity10, "25 00 00000000 0000 00 00"),
        (C::ReadCapacity16 { allocation: 0x0102_0304 }, "9e 10 0000000000000000 01020304 00 00"),
        (C::Read(SIX), "08 12 3456 78 00"),
        (C::Write(SIX), "0a 12 3456 78 00"),
        (C::Read(Transfer { lba: 0x1f_ffff, blocks: 256, ..SIX }), "08 1f ffff 00 00"),
        (C::Read(TRANSFER), "28 00 12345678 00 9abc 00"),
        (C::Write(TRANSFER), "2a 00 12345678 00 9abc 00"),
        (C::Write(Transfer { fua: true, ..TRANSFER }), "2a 08 12345678 00 9abc 00"),
        (C::Read(Transfer { dpo: true, ..TRANSFER }), "28 10 12345678 00 9abc 00"),
        (C::Read(TWELVE), "a8 00 12345678 89abcdef 00 00"),
        (C::Write(Transfer { fua: true, dpo: true, ..TWELVE }), "aa 18 12345678 89abcdef 00 00"),
        (C::Read(SIXTEEN), "88 00 0123456789abcdef fedcba98 00 00"),
        (C::Write(Transfer { fua: true, ..SIXTEEN }), "8a 08 0123456789abcdef fedcba98 00 00"),
        (C::CompareAndWrite(compare), "89 00 0123456789abcdef 000000 42 00 00"),
        (
            C::CompareAndWrite(CompareAndWrite { fua: true, ..compare }),
            "89 08 0123456789abcdef 000000 42 00 00",
        ),
        (
            C::CompareAndWrite(CompareAndWrite { dpo: true, ..compare }),
            "89 10 0123456789abcdef 000000 42 00 00",
        ),
        (C::SynchronizeCache(CACHE), "35 00 00000000 00 0000 00"),
        (
            C::SynchronizeCache(SynchronizeCache {
                lba: 0x1234_5678,
                blocks: 0x9abc,
                immediate: true,
                ..CACHE
            }),
            "35 02 12345678 00 9abc 00",
        ),
        (
            C::SynchronizeCache(SynchronizeCache {
                size: CdbSize::Sixteen,
                lba: 0x0123_4567_89ab_cdef,
                blocks: 0xfedc_ba98,
                ..CACHE
            }),
            "91 00 0123456789abcdef fedcba98 00 00",
        ),
        (C::WriteSame(SAME), "93 00 0123456789abcdef fedcba98 00 00"),
        (C::WriteSame(WriteSame { unmap: true, ..SAME }), "93 08 0123456789abcdef fedcba98 0000"),
        (C::WriteSame(WriteSame { anchor: true, ..SAME }), "93 10 0123456789abcdef fedcba98 0000"),
        (C::WriteSame(WriteSame { ndob: true, ..SAME }), "93 01 0123456789abcdef fedcba98 0000"),
        (C::WriteSame(SAME_10), "41 00 12345678 00 9abc 00"),
        (C::WriteSame(WriteSame { unmap: true, ..SAME_10 }), "41 08 12345678 00 9abc 00"),
        (C::WriteSame(WriteSame { anchor: true, ..SAME_10 }), "41 10 12345678 00 9abc 00"),
        (C::Unmap { anchor: false, length: 0x1234 }, "42 00 0000000000 1234 00"),
        (C::Unmap { anchor: true, length: 24 }, "42 01 0000000000 0018 00"),
    ]
}

fn all() -> impl Iterator<Item = (ScsiCommand, &'static str)> {
    primary().into_iter().chain(reports()).chain(block())
}

#[test]
fn each_field_of_a_cdb_stands_at_its_place_both_ways() {
    for (command, text) in all() {
        let cdb = command.encode().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert_eq!(cdb.bytes(), hex(text), "{command:?}");
        assert_eq!(cdb.opcode(), command.opcode());
        assert_eq!(ScsiCommand::decode(&hex(text)), Ok(command), "{text}");
        // The field of an iSCSI header has 16 bytes whatever the length.
        assert_eq!(ScsiCommand::decode(cdb.padded()), Ok(command), "{text}");
        assert!(cdb.padded()[cdb.bytes().len()..].iter().all(|&byte| byte == 0));
    }
}

#[test]
fn a_cdb_cut_at_any_byte_is_short_and_says_by_how_much() {
    for (command, text) in all() {
        let whole = hex(text);
        for len in 1..whole.len() {
            let short = InvalidCdb::Short { opcode: command.opcode(), len, least: whole.len() };
            assert_eq!(ScsiCommand::decode(&whole[..len]), Err(short), "{text}");
            let pointer = FieldPointer { in_cdb: true, byte: len as u16, bit: None };
            assert_eq!(short.sense().field_pointer(), Some(pointer));
        }
    }
    let none = InvalidCdb::Short { opcode: Opcode::TEST_UNIT_READY, len: 0, least: 6 };
    assert_eq!(ScsiCommand::decode(&[]), Err(none));
}

#[test]
fn every_bit_that_no_field_has_is_refused_at_its_byte() {
    for (command, text) in all() {
        let whole = hex(text);
        for at in 1..whole.len() {
            for bit in 0..8 {
                let mut bent = whole.clone();
                bent[at] ^= 1 << bit;
                match ScsiCommand::decode(&bent) {
                    // Another value of a field: it is kept.
                    Ok(other) => assert_eq!(other.encode().expect("fits").bytes(), bent),
                    Err(InvalidCdb::Field { opcode, at: said }) => {
                        assert_eq!(opcode, command.opcode(), "{text}");
                        // A bit that says how to read a field makes that field's byte wrong.
                        let near = usize::from(said) >= at && usize::from(said) < whole.len();
                        assert!(near, "{text}: bit {bit} of byte {at}, said {said}");
                    }
                    Err(other) => panic!("{text}: {other}"),
                }
            }
        }
        let mut control = whole.clone();
        *control.last_mut().unwrap() = 0x04;
        let at = whole.len() as u16 - 1;
        let invalid = InvalidCdb::Field { opcode: command.opcode(), at };
        assert_eq!(ScsiCommand::decode(&control), Err(invalid), "NACA of {text}");
    }
    let protected = InvalidCdb::Field { opcode: Opcode::READ_10, at: 1 };
    let read = hex("28 20 00000000 00 0001 00");
    assert_eq!(ScsiCommand::decode(&read), Err(protected), "RDPROTECT");
    let page = InvalidCdb::Field { opcode: Opcode::INQUIRY, at: 2 };
    assert_eq!(ScsiCommand::decode(&hex("12 00 83 00 ff 00")), Err(page), "a page without EVPD");
    let all = InvalidCdb::Field { opcode: Opcode::MAINTENANCE_IN, at: 2 };
    assert_eq!(ScsiCommand::decode(&hex("a30c 00 00 0000 00000100 0000")), Err(all), "all codes");
    let ndob = InvalidCdb::Field { opcode: Opcode::WRITE_SAME_10, at: 1 };
    assert_eq!(ScsiCommand::decode(&hex("41 01 00000000 00 0001 00")), Err(ndob), "NDOB");
}

#[test]
fn a_refused_cdb_is_answered_with_the_sense_of_the_standard() {
    let unknown = ScsiCommand::decode(&hex("c1 000000000000000000")).unwrap_err();
    assert_eq!(unknown, InvalidCdb::Opcode(Opcode(0xc1)));
    assert_eq!(unknown.to_string(), "operation code c1h is not spoken here");
    let sense = unknown.sense();
    assert_eq!(sense.key, SenseKey::IllegalRequest);
    assert_eq!(sense.code, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    assert_eq!(ScsiCommand::decode(&hex("37 000000000000000000")).unwrap_err().sense(), sense);

    let action = ScsiCommand::decode(&hex("a3 05 00000000 00000000 0000")).unwrap_err();
    assert_eq!(action, InvalidCdb::Field { opcode: Opcode::MAINTENANCE_IN, at: 1 });
    let sense = action.sense();
    assert_eq!(sense.code, AdditionalSense::INVALID_FIELD_IN_CDB);
    let pointer = FieldPointer { in_cdb: true, byte: 1, bit: None };
    assert_eq!(sense.field_pointer(), Some(pointer));
    for text in ["9e 11 0000000000000000 00000000 0000", "a4 0b 00000000 00000000 0000"] {
        let error = ScsiCommand::decode(&hex(text)).unwrap_err();
        assert!(matches!(error, InvalidCdb::Field { at: 1, .. }), "{text}: {error}");
    }
}

#[test]
fn a_value_that_its_field_cannot_hold_is_refused_by_name() {
    use ScsiCommand as C;
    let lba = |transfer: Transfer| Transfer { lba: transfer.size.lba_max() + 1, ..transfer };
    let many = |transfer: Transfer| Transfer { blocks: transfer.size.blocks_max() + 1, ..transfer };
    let same = |size| WriteSame { size, ..SAME };
    let cache = |size| SynchronizeCache { size, ..CACHE };
    for (command, field, at) in [
        (C::Read(lba(SIX)), "LOGICAL BLOCK ADDRESS", 2),
        (C::Write(lba(TRANSFER)), "LOGICAL BLOCK ADDRESS", 2),
        (C::Write(lba(TWELVE)), "LOGICAL BLOCK ADDRESS", 2),
        (C::Read(many(SIX)), "TRANSFER LENGTH", 7),
        (C::Read(many(TRANSFER)), "TRANSFER LENGTH", 7),
        (C::Read(Transfer { blocks: 0, ..SIX }), "TRANSFER LENGTH", 4),
        (C::Write(Transfer { fua: true, ..SIX }), "DPO and FUA", 1),
        (C::Write(Transfer { dpo: true, ..SIX }), "DPO and FUA", 1),
        (C::WriteSame(same(CdbSize::Six)), "CDB size", 0),
        (C::WriteSame(same(CdbSize::Twelve)), "CDB size", 0),
        (C::WriteSame(WriteSame { ndob: true, ..SAME_10 }), "NDOB", 1),
        (C::SynchronizeCache(cache(CdbSize::Six)), "CDB size", 0),
        (C::SynchronizeCache(cache(CdbSize::Twelve)), "CDB size", 0),
        (C::ModeSense(ModeSense { page: 0x40, ..SENSE_6 }), "PAGE CODE", 2),
        (C::ModeSense(ModeSense { allocation: 256, ..SENSE_6 }), "ALLOCATION LENGTH", 4),
        (C::ModeSelect(ModeSelect { length: 256, ..SELECT }), "PARAMETER LIST LENGTH", 4),
        (C::StartStopUnit(StartStopUnit { power_condition: 16, ..START }), "POWER CONDITION", 4),
        (C::ReserveIn { action: ReserveInAction(32), allocation: 0 }, "SERVICE ACTION", 1),
        (C::ReserveOut(ReserveOut { action: ReserveOutAction(32), ..OUT }), "SERVICE ACTION", 1),
        (C::ReserveOut(ReserveOut { scope: 16, ..OUT }), "SCOPE", 2),
        (C::ReserveOut(ReserveOut { kind: ReservationType(16), ..OUT }), "TYPE", 2),
    ] {
        match command.encode() {
            Err(WireError::Field { field: said, at: place, .. }) => {
                assert_eq!((said, place), (field, at), "{command:?}");
            }
            other => panic!("{command:?}: {other:?}"),
        }
    }
    let error = C::Read(many(TRANSFER)).encode().unwrap_err();
    assert_eq!(
        error.to_string(),
        "READ: TRANSFER LENGTH at byte 7 is 0x10000, not within the form's field"
    );
}

#[test]
fn the_group_of_an_operation_code_gives_its_length() {
    for (code, len) in [(0x1f, 6), (0x20, 10), (0x5f, 10), (0x80, 16), (0x9f, 16), (0xa0, 12)] {
        assert_eq!(Opcode(code).cdb_len(), Some(len), "{code:#x}");
    }
    for code in [0x60, 0x7f, 0xc0, 0xff] {
        assert_eq!(Opcode(code).cdb_len(), None, "{code:#x}");
        assert_eq!(ScsiCommand::decode(&[code; 16]), Err(InvalidCdb::Opcode(Opcode(code))));
    }
}
