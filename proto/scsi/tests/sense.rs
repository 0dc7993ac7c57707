//! Sense: both formats, cut anywhere, and with lengths that lie.

mod bytes;

use bytes::hex;
use weir_proto_scsi::sense::{FieldPointer, SenseFormat};
use weir_proto_scsi::{AdditionalSense, Sense, SenseKey, WireError};

const MEDIUM: Sense = Sense::new(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);

fn fixed(sense: &Sense) -> Vec<u8> {
    let mut out = Vec::new();
    sense.put(SenseFormat::Fixed, &mut out);
    out
}

fn described(sense: &Sense) -> Vec<u8> {
    let mut out = Vec::new();
    sense.put(SenseFormat::Descriptors, &mut out);
    out
}

#[test]
fn each_field_of_fixed_sense_stands_at_its_place() {
    let pair = Sense { code: AdditionalSense(0x1234), ..MEDIUM };
    for (sense, text) in [
        (pair, "70 00 03 00000000 0a 00000000 12 34 00 000000"),
        (Sense { deferred: true, ..pair }, "71 00 03 00000000 0a 00000000 12 34 00 000000"),
        (
            Sense { information: Some(0x0102_0304), ..pair },
            "f0 00 03 01020304 0a 00000000 12 34 00 000000",
        ),
        (Sense { information: Some(0), ..pair }, "f0 00 03 00000000 0a 00000000 12 34 00 000000"),
        (
            Sense { command: Some(0x0102_0304), ..pair },
            "70 00 03 00000000 0a 01020304 12 34 00 000000",
        ),
        (Sense { unit: 0x56, ..pair }, "70 00 03 00000000 0a 00000000 12 34 56 000000"),
        (Sense { incorrect_length: true, ..pair }, "70 00 23 00000000 0a 00000000 12 34 00 000000"),
        (
            Sense { specific: Some([0xcd, 0x01, 0x02]), ..pair },
            "70 00 03 00000000 0a 00000000 12 34 00 cd0102",
        ),
    ] {
        assert_eq!(fixed(&sense), hex(text));
        assert_eq!(Sense::decode(&hex(text)), Ok(sense), "{text}");
    }
    let wide = Sense { information: Some(1 << 32), command: Some(1 << 40), ..pair };
    assert_eq!(fixed(&wide), fixed(&pair), "what needs more than 32 bits is left out");
}

#[test]
fn each_field_of_descriptor_sense_stands_at_its_place() {
    let pair = Sense { code: AdditionalSense(0x1234), ..MEDIUM };
    for (sense, text) in [
        (pair, "72 03 12 34 000000 00"),
        (Sense { deferred: true, ..pair }, "73 03 12 34 000000 00"),
        (
            Sense { information: Some(0x0102_0304_0506_0708), ..pair },
            "72 03 12 34 000000 0c 00 0a 80 00 0102030405060708",
        ),
        (
            Sense { command: Some(0x0102_0304_0506_0708), ..pair },
            "72 03 12 34 000000 0c 01 0a 00 00 0102030405060708",
        ),
        (
            Sense { specific: Some([0xcd, 1, 2]), ..pair },
            "72 03 12 34 000000 08 02 06 0000 cd0102 00",
        ),
        (Sense { unit: 0x56, ..pair }, "72 03 12 34 000000 04 03 02 00 56"),
        (Sense { incorrect_length: true, ..pair }, "72 03 12 34 000000 04 05 02 00 20"),
    ] {
        assert_eq!(described(&sense), hex(text));
        assert_eq!(Sense::decode(&hex(text)), Ok(sense), "{text}");
    }
    let all = Sense {
        information: Some(1),
        command: Some(2),
        unit: 3,
        incorrect_length: true,
        specific: Some([0x80, 4, 5]),
        ..pair
    };
    let text = "72 03 12 34 000000 28 00 0a 80 00 0000000000000001 01 0a 00 00 0000000000000002 \
        02 06 0000 800405 00 03 02 00 03 05 02 00 20";
    assert_eq!(described(&all), hex(text));
    assert_eq!(Sense::decode(&hex(text)), Ok(all));
    let strange =
        hex("72 03 12 34 000000 18 80 02 aa bb 00 0a 00 00 0000000000000009 06 00 80 04 01020304");
    assert_eq!(Sense::decode(&strange), Ok(pair), "unknown descriptors, and one that is not valid");
    let twice = hex("72 03 12 34 000000 08 03 02 00 56 03 02 00 57");
    assert_eq!(Sense::decode(&twice), Ok(Sense { unit: 0x56, ..pair }), "the first counts");
}

#[test]
fn fixed_sense_cut_at_any_byte_keeps_the_fields_before_the_cut() {
    let whole = Sense {
        information: Some(0x0102_0304),
        command: Some(0x1112_1314),
        unit: 0x56,
        specific: Some([0xcd, 1, 2]),
        ..MEDIUM
    };
    let bytes = fixed(&whole);
    for len in 0..=bytes.len() {
        let expected = match len {
            0 => Err(WireError::Short { what: "sense", len, least: 1 }),
            1 | 2 => Err(WireError::Short { what: "fixed sense", len, least: 3 }),
            _ => Ok(Sense {
                information: whole.information.filter(|_| len >= 7),
                command: whole.command.filter(|_| len >= 12),
                code: match len {
                    ..13 => AdditionalSense::NONE,
                    _ => whole.code,
                },
                unit: if len >= 15 { whole.unit } else { 0 },
                specific: whole.specific.filter(|_| len >= 18),
                ..whole
            }),
        };
        assert_eq!(Sense::decode(&bytes[..len]), expected, "{len}");
        // The same if ADDITIONAL SENSE LENGTH lies, and the bytes are there.
        if len >= 8 {
            let mut lies = bytes.clone();
            lies[7] = len as u8 - 8;
            assert_eq!(Sense::decode(&lies), expected, "{len}");
        }
    }
    let mut longer = bytes.clone();
    longer[7] = 255;
    assert_eq!(Sense::decode(&longer), Ok(whole));
    let qualifier = hex("70 00 03 00000000 0a 00000000 12 34");
    assert_eq!(Sense::decode(&qualifier[..13]).unwrap().code, AdditionalSense(0x1200));
    assert_eq!(Sense::decode(&qualifier).unwrap().code, AdditionalSense(0x1234));
}

#[test]
fn descriptor_sense_cut_at_any_byte_keeps_the_descriptors_before_the_cut() {
    let whole = Sense {
        information: Some(0x0102_0304_0506_0708),
        command: Some(9),
        unit: 0x56,
        specific: Some([0xcd, 1, 2]),
        incorrect_length: true,
        code: AdditionalSense(0x1234),
        ..MEDIUM
    };
    let bytes = described(&whole);
    for len in 0..=bytes.len() {
        let expected = match len {
            0 => Err(WireError::Short { what: "sense", len, least: 1 }),
            1 => Err(WireError::Short { what: "sense with descriptors", len, least: 2 }),
            _ => Ok(Sense {
                code: AdditionalSense([0, 0, 0, 0x1200, 0x1234][len.min(4)]),
                information: whole.information.filter(|_| len >= 20),
                command: whole.command.filter(|_| len >= 32),
                specific: whole.specific.filter(|_| len >= 40),
                unit: if len >= 44 { whole.unit } else { 0 },
                incorrect_length: len >= 48,
                ..whole
            }),
        };
        assert_eq!(Sense::decode(&bytes[..len]), expected, "{len}");
        if len >= 8 {
            let mut lies = bytes.clone();
            lies[7] = len as u8 - 8;
            assert_eq!(Sense::decode(&lies), expected, "{len}");
        }
    }
    let mut lies = bytes.clone();
    lies[9] = 255;
    let none = Sense::decode(&lies).unwrap();
    assert_eq!(none, Sense { code: whole.code, ..MEDIUM }, "a descriptor's length lies");
    let short = hex("72 03 12 34 000000 08 00 02 80 00 03 02 00 56");
    let unit = Sense { code: whole.code, unit: 0x56, ..MEDIUM };
    assert_eq!(Sense::decode(&short), Ok(unit), "an information descriptor of two bytes");
}

#[test]
fn a_response_code_of_no_format_is_no_sense() {
    for code in [0x00, 0x6f, 0x74, 0x7f, 0xff] {
        let error = Sense::decode(&[code; 18]).unwrap_err();
        let expected = u64::from(code & 0x7f);
        assert!(matches!(error, WireError::Field { at: 0, value, .. } if value == expected));
    }
    let error = Sense::decode(&[0x7f; 18]).unwrap_err();
    assert_eq!(error.to_string(), "sense: RESPONSE CODE at byte 0 is 0x7f, not 70h to 73h");
}

#[test]
fn keys_have_their_numbers_and_names() {
    for (number, key) in (0..16).zip(SenseKey::ALL) {
        assert_eq!((key as u8, SenseKey::from_bits(0xf0 | number)), (number, key));
    }
    let names = SenseKey::ALL.map(SenseKey::name).join(",");
    let expected = "NO SENSE,RECOVERED ERROR,NOT READY,MEDIUM ERROR,HARDWARE ERROR,\
        ILLEGAL REQUEST,UNIT ATTENTION,DATA PROTECT,BLANK CHECK,VENDOR SPECIFIC,COPY ABORTED,\
        ABORTED COMMAND,RESERVED,VOLUME OVERFLOW,MISCOMPARE,COMPLETED";
    assert_eq!(names, expected);
}

#[test]
fn what_is_specific_to_a_key_is_a_pointer_or_a_progress() {
    let pointer = FieldPointer { in_cdb: true, byte: 0x0102, bit: Some(5) };
    assert_eq!(pointer.encode(), [0xcd, 1, 2]);
    let list = FieldPointer { in_cdb: false, byte: 3, bit: None };
    assert_eq!(list.encode(), [0x80, 0, 3]);
    let illegal = Sense { key: SenseKey::IllegalRequest, specific: Some([0xcd, 1, 2]), ..MEDIUM };
    assert_eq!(illegal.field_pointer(), Some(pointer));
    assert_eq!(FieldPointer::decode(list.encode()), list);
    assert_eq!((illegal.progress(), MEDIUM.field_pointer()), (None, None));
    for key in [SenseKey::NoSense, SenseKey::NotReady] {
        let busy = Sense { key, specific: Some([0x80, 0x40, 0x01]), ..MEDIUM };
        assert_eq!((busy.progress(), busy.field_pointer()), (Some(0x4001), None));
    }
}

#[test]
fn sense_is_shown_as_key_pair_and_name() {
    assert_eq!(MEDIUM.to_string(), "MEDIUM ERROR, 11h/00h UNRECOVERED READ ERROR");
    let odd = Sense { deferred: true, code: AdditionalSense(0x8901), ..MEDIUM };
    assert_eq!(odd.to_string(), "MEDIUM ERROR (deferred), 89h/01h");
    let none = Sense::new(SenseKey::NoSense, AdditionalSense::NONE);
    assert_eq!(none.to_string(), "NO SENSE, 00h/00h");
}
