//! The bytes: every PDU both ways, and the stream in any fragmentation.

use proptest::prelude::*;
use weir_proto_iscsi::text::{PAIR_MAX, Text, TextError, put};
use weir_proto_iscsi::wire::{
    AsyncMessage, Attribute, BHS_LEN, Bhs, Crc, DataIn, DataOut, Decoder, Digests, Function,
    LoginRequest, LoginResponse, LogoutReason, LogoutRequest, LogoutResponse, NO_TAG, NopIn,
    NopOut, Numbers, Opcode, Piece, R2t, Reject, Residual, ScsiCommand, ScsiResponse, Segment,
    Serial, TaskRequest, TaskResponse, TextRequest, TextResponse, WireError, pdu_len, put_head,
    put_pdu, put_tail,
};

const ALL_DIGESTS: [Digests; 4] = [
    Digests::NONE,
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

fn bytes(bhs: &Bhs) -> String {
    bhs.bytes().chunks(4).map(|word| word.iter().map(|b| format!("{b:02x}")).collect()).fold(
        String::new(),
        |mut all, word: String| {
            all.push_str(&word);
            all.push(' ');
            all
        },
    )
}

/// Each header of an initiator, in hexadecimal, word by word.
#[test]
fn the_headers_of_an_initiator_have_the_layout_of_the_rfc() {
    let command = ScsiCommand {
        last: true,
        read: true,
        write: false,
        attribute: Attribute::Ordered,
        lun: 0x0001_0000_0000_0002,
        itt: 0x1122_3344,
        expected: 0x5566,
        cmd_sn: Serial(7),
        exp_stat_sn: Serial(8),
        cdb: *b"0123456789abcdef",
    };
    assert_eq!(
        bytes(&command.encode()),
        "01c20000 00000000 00010000 00000002 11223344 00005566 00000007 00000008 \
         30313233 34353637 38396162 63646566 "
    );
    assert_eq!(ScsiCommand::decode(&command.encode()), Some(command));
    let write = ScsiCommand { last: false, read: false, write: true, ..command };
    assert_eq!(write.encode().byte(1), 0x22);
    assert_eq!(ScsiCommand::decode(&write.encode()), Some(write));
    assert_eq!(ScsiCommand::decode(&write.encode().with_byte(1, 0x05)), None);

    let data = DataOut {
        last: true,
        lun: 1 << 48,
        itt: 2,
        ttt: 3,
        exp_stat_sn: Serial(4),
        data_sn: 5,
        offset: 6,
    };
    assert_eq!(
        bytes(&data.encode().with_data_len(0x01_0203)),
        "05800000 00010203 00010000 00000000 00000002 00000003 00000000 00000004 \
         00000000 00000005 00000006 00000000 "
    );
    assert_eq!(DataOut::decode(&data.encode()), data);

    let nop =
        NopOut { lun: 1 << 48, itt: NO_TAG, ttt: 3, cmd_sn: Serial(4), exp_stat_sn: Serial(5) };
    assert_eq!(
        bytes(&nop.encode()),
        "40800000 00000000 00010000 00000000 ffffffff 00000003 00000004 00000005 \
         00000000 00000000 00000000 00000000 "
    );
    assert_eq!(NopOut::decode(&nop.encode()), nop);
    assert!(!nop.is_ping());
}

#[test]
fn the_header_of_a_task_request_has_the_layout_of_the_rfc() {
    for (function, code) in [
        (Function::AbortTask, 0x81),
        (Function::LunReset, 0x85),
        (Function::TargetWarmReset, 0x86),
        (Function::TargetColdReset, 0x87),
    ] {
        let task = TaskRequest {
            function,
            lun: 1,
            itt: 2,
            referenced: 3,
            cmd_sn: Serial(4),
            exp_stat_sn: Serial(5),
            ref_cmd_sn: Serial(6),
        };
        assert_eq!(
            bytes(&task.encode().with_byte(1, 0)),
            "42000000 00000000 00000000 00000001 00000002 00000003 00000004 00000005 \
             00000006 00000000 00000000 00000000 "
        );
        assert_eq!(task.encode().byte(1), code);
        assert_eq!(TaskRequest::decode(&task.encode()), Some(task));
    }
    assert_eq!(TaskRequest::decode(&Bhs::new(Opcode::TASK_REQUEST).with_byte(1, 0x82)), None);
}

#[test]
fn the_headers_of_login_text_and_logout_have_the_layout_of_the_rfc() {
    let login = LoginRequest {
        transit: true,
        more: false,
        stage: 1,
        next: 3,
        isid: [0x80, 1, 2, 3, 4, 5],
        tsih: 0x0607,
        itt: 8,
        cid: 9,
        cmd_sn: Serial(10),
        exp_stat_sn: Serial(11),
    };
    assert_eq!(
        bytes(&login.encode()),
        "43870000 00000000 80010203 04050607 00000008 00090000 0000000a 0000000b \
         00000000 00000000 00000000 00000000 "
    );
    let more = LoginRequest { transit: false, more: true, stage: 0, next: 0, ..login };
    assert_eq!(more.encode().byte(1), 0x40);
    for login in [login, more] {
        assert_eq!(LoginRequest::decode(&login.encode()), login);
    }
    let text =
        TextRequest { last: true, itt: 1, ttt: 2, cmd_sn: Serial(3), exp_stat_sn: Serial(4) };
    assert_eq!(
        bytes(&text.encode()),
        "04800000 00000000 00000000 00000000 00000001 00000002 00000003 00000004 \
         00000000 00000000 00000000 00000000 "
    );
    assert_eq!(TextRequest::decode(&text.encode()), text);
    for (reason, code) in
        [(LogoutReason::CloseSession, 0x80), (LogoutReason::CloseConnection, 0x81)]
    {
        let logout =
            LogoutRequest { reason, itt: 1, cid: 2, cmd_sn: Serial(3), exp_stat_sn: Serial(4) };
        assert_eq!(logout.encode().byte(1), code);
        assert_eq!(
            bytes(&logout.encode().with_byte(1, 0)),
            "46000000 00000000 00000000 00000000 00000001 00020000 00000003 00000004 \
             00000000 00000000 00000000 00000000 "
        );
        assert_eq!(LogoutRequest::decode(&logout.encode()), Some(logout));
    }
    assert_eq!(LogoutRequest::decode(&Bhs::new(Opcode::LOGOUT_REQUEST).with_byte(1, 0x82)), None);
}

const NUMBERS: Numbers =
    Numbers { stat_sn: Serial(0xa1), exp_cmd_sn: Serial(0xa2), max_cmd_sn: Serial(0xa3) };

#[test]
fn the_headers_of_data_and_responses_have_the_layout_of_the_rfc() {
    let data = DataIn {
        last: true,
        status: Some((0x08, Residual::Under(0x55))),
        itt: 1,
        numbers: NUMBERS,
        data_sn: 2,
        offset: 3,
    };
    assert_eq!(
        bytes(&data.encode()),
        "25830008 00000000 00000000 00000000 00000001 ffffffff 000000a1 000000a2 \
         000000a3 00000002 00000003 00000055 "
    );
    let first = DataIn { last: false, status: None, ..data };
    for data in [data, first] {
        assert_eq!(DataIn::decode(&data.encode()), Some(data));
    }
    assert_eq!(DataIn::decode(&data.encode().with_byte(1, 0x01)), None, "no end of a sequence");
    assert_eq!(DataIn::decode(&data.encode().with_byte(1, 0x87)), None, "both residuals");
    let response = ScsiResponse {
        response: 1,
        status: 2,
        itt: 3,
        numbers: NUMBERS,
        exp_data_sn: 4,
        residual: Residual::Over(5),
    };
    assert_eq!(
        bytes(&response.encode()),
        "21840102 00000000 00000000 00000000 00000003 00000000 000000a1 000000a2 \
         000000a3 00000004 00000000 00000005 "
    );
    assert_eq!(ScsiResponse::decode(&response.encode()), Some(response));
    assert_eq!(ScsiResponse::decode(&response.encode().with_byte(1, 0x86)), None);
    let r2t =
        R2t { lun: 9 << 48, itt: 1, ttt: 2, numbers: NUMBERS, r2t_sn: 3, offset: 4, length: 5 };
    assert_eq!(
        bytes(&r2t.encode()),
        "31800000 00000000 00090000 00000000 00000001 00000002 000000a1 000000a2 \
         000000a3 00000003 00000004 00000005 "
    );
    assert_eq!(R2t::decode(&r2t.encode()), r2t);
    let message =
        AsyncMessage { lun: 9 << 48, numbers: NUMBERS, event: 1, code: 2, parameters: [3, 4, 5] };
    assert_eq!(
        bytes(&message.encode()),
        "32800000 00000000 00090000 00000000 ffffffff 00000000 000000a1 000000a2 \
         000000a3 01020003 00040005 00000000 "
    );
    assert_eq!(AsyncMessage::decode(&message.encode()), message);
}

#[test]
fn the_other_headers_of_a_target_have_the_layout_of_the_rfc() {
    let tail = "000000a1 000000a2 000000a3 00000000 00000000 00000000 ";
    let expect = |bhs: Bhs, head: &str| assert_eq!(bytes(&bhs), format!("{head}{tail}"));
    let nop = NopIn { lun: 9 << 48, itt: NO_TAG, ttt: 2, numbers: NUMBERS };
    expect(nop.encode(), "20800000 00000000 00090000 00000000 ffffffff 00000002 ");
    assert_eq!(NopIn::decode(&nop.encode()), nop);
    let task = TaskResponse { response: 5, itt: 1, numbers: NUMBERS };
    expect(task.encode(), "22800500 00000000 00000000 00000000 00000001 00000000 ");
    assert_eq!(TaskResponse::decode(&task.encode()), task);
    let text = TextResponse { last: false, more: true, itt: 1, ttt: 2, numbers: NUMBERS };
    expect(text.encode(), "24400000 00000000 00000000 00000000 00000001 00000002 ");
    assert_eq!(TextResponse::decode(&text.encode()), text);
    let logout = LogoutResponse { response: 3, itt: 1, numbers: NUMBERS };
    expect(logout.encode(), "26800300 00000000 00000000 00000000 00000001 00000000 ");
    assert_eq!(LogoutResponse::decode(&logout.encode()), logout);
    let reject = Reject { reason: 9, numbers: NUMBERS };
    expect(reject.encode(), "3f800900 00000000 00000000 00000000 ffffffff 00000000 ");
    assert_eq!(Reject::decode(&reject.encode()), reject);
    let login = LoginResponse {
        transit: true,
        more: false,
        stage: 0,
        next: 1,
        version_max: 0,
        version: 0,
        isid: [1, 2, 3, 4, 5, 6],
        tsih: 7,
        itt: 8,
        numbers: NUMBERS,
        status: 0x0201,
    };
    assert_eq!(
        bytes(&login.encode()),
        "23810000 00000000 01020304 05060007 00000008 00000000 000000a1 000000a2 \
         000000a3 02010000 00000000 00000000 "
    );
    assert_eq!(LoginResponse::decode(&login.encode()), login);
}

/// A header, what is additional to it, and data.
type Pdu = (Bhs, Vec<u8>, Vec<u8>);

/// What a stream was cut into.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cut {
    pdus: Vec<Pdu>,
    whole: usize,
}

impl Cut {
    fn take(&mut self, decoder: &mut Decoder, mut input: &[u8]) -> Result<(), WireError> {
        loop {
            match decoder.next(&mut input)? {
                Piece::NeedMore => {
                    assert!(input.is_empty());
                    return Ok(());
                }
                Piece::Header => {
                    self.pdus.push((*decoder.header(), decoder.ahs().to_vec(), Vec::new()));
                }
                Piece::Data(bytes) => self.pdus.last_mut().unwrap().2.extend_from_slice(bytes),
                Piece::End => self.whole += 1,
            }
        }
    }
}

/// PDUs with and without additional headers and data, as bytes.
fn stream(digests: Digests) -> (Vec<u8>, Vec<Pdu>) {
    let (mut out, mut pdus) = (Vec::new(), Vec::new());
    for (index, (ahs, data)) in
        [(0, 0), (0, 1), (8, 5), (0, 512), (1020, 3), (4, 0), (0, 2)].into_iter().enumerate()
    {
        let data: Vec<u8> = (0..data).map(|at: u32| (at * 7 + index as u32) as u8).collect();
        let ahs = vec![index as u8; ahs];
        let bhs = Bhs::new(Opcode::DATA_IN)
            .with_word(16, index as u32)
            .with_ahs_len(ahs.len())
            .with_data_len(data.len() as u32);
        let start = out.len();
        if ahs.is_empty() {
            put_pdu(&mut out, bhs, &data, digests);
            assert_eq!((out.len() - start) as u64, pdu_len(data.len() as u32, digests));
        } else {
            put_head(&mut out, &bhs, &ahs, digests);
            out.extend_from_slice(&data);
            let mut crc = Crc::new();
            crc.update(&data);
            put_tail(&mut out, data.len() as u32, crc, digests);
        }
        assert!(out.len().is_multiple_of(4));
        pdus.push((bhs, ahs, data));
    }
    (out, pdus)
}

#[test]
fn a_stream_cut_anywhere_is_the_same_pdus() {
    for digests in ALL_DIGESTS {
        let (bytes, pdus) = stream(digests);
        for at in 0..=bytes.len() {
            let (mut decoder, mut cut) = (Decoder::new(digests, 512), Cut::default());
            cut.take(&mut decoder, &bytes[..at]).expect("a sound stream");
            cut.take(&mut decoder, &bytes[at..]).expect("a sound stream");
            assert_eq!((cut.whole, &cut.pdus), (pdus.len(), &pdus), "{digests:?} at {at}");
        }
        let (mut decoder, mut cut) = (Decoder::new(digests, 512), Cut::default());
        bytes.iter().for_each(|byte| {
            cut.take(&mut decoder, std::slice::from_ref(byte)).expect("a sound stream");
        });
        assert_eq!((cut.whole, &cut.pdus), (pdus.len(), &pdus), "{digests:?} by bytes");
    }
}

#[test]
fn data_received_by_the_caller_counts_for_the_digest() {
    for flip in [0, 1] {
        let digests = Digests { header: true, data: true };
        let mut bytes = Vec::new();
        put_pdu(&mut bytes, Bhs::new(Opcode::DATA_IN), &[3; 10], digests);
        let mut decoder = Decoder::new(digests, 10);
        let (mut head, behind) = bytes.split_at(BHS_LEN + 4);
        assert_eq!(decoder.next(&mut head), Ok(Piece::Header));
        assert_eq!(decoder.missing(), 10);
        decoder.received(&[3; 4]);
        assert_eq!(decoder.missing(), 6);
        decoder.received(&[3, 3, 3, 3, 3, 3 ^ flip]);
        assert_eq!(decoder.missing(), 0);
        let end = decoder.next(&mut &behind[10..]);
        let found: [u8; 4] = behind[12..].try_into().expect("a digest");
        match flip {
            0 => assert_eq!(end, Ok(Piece::End)),
            _ => match end {
                Err(WireError::Digest { of, found: told, .. }) => {
                    assert_eq!((of, told), (Segment::Data, found));
                }
                other => panic!("{other:?}"),
            },
        }
    }
}

#[test]
fn a_flipped_bit_is_found_by_its_digest_and_stays_found() {
    let digests = Digests { header: true, data: true };
    let (bytes, _) = stream(digests);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        let (mut decoder, mut cut) = (Decoder::new(digests, u32::MAX), Cut::default());
        match cut.take(&mut decoder, &bytes) {
            Err(why @ WireError::Digest { .. }) => {
                assert_eq!(decoder.next(&mut &bytes[..]), Err(why));
            }
            // A length that grew waits for bytes that do not come.
            other => {
                assert_eq!(other, Ok(()), "at {at}");
                assert!(cut.whole < 7, "at {at}");
            }
        }
    }
}

#[test]
fn a_segment_longer_than_declared_is_refused_before_it_comes() {
    let bhs = Bhs::new(Opcode::NOP_IN);
    let mut decoder = Decoder::new(Digests::NONE, 512);
    let at_bound = bhs.with_data_len(512);
    assert_eq!(decoder.next(&mut &at_bound.bytes()[..]), Ok(Piece::Header));
    let mut decoder = Decoder::new(Digests::NONE, 512);
    let longer = bhs.with_data_len(513);
    let refused = Err(WireError::TooLong { length: 513, bound: 512 });
    assert_eq!(decoder.next(&mut &longer.bytes()[..]), refused);
    assert_eq!(decoder.next(&mut &[0; 48][..]), refused);
}

fn pairs(cuts: &[&[u8]]) -> Result<Vec<(String, String)>, TextError> {
    let (mut text, mut found) = (Text::new(), Vec::new());
    for cut in cuts {
        text.take(cut, |key, value| {
            found.push((key.to_owned(), value.to_owned()));
            Ok::<(), TextError>(())
        })?;
    }
    text.end().map(|()| found)
}

#[test]
fn text_cut_anywhere_is_the_same_pairs() {
    let mut bytes = Vec::new();
    put(&mut bytes, "InitiatorName", "iqn.2001-04.com.example");
    put(&mut bytes, "MaxBurstLength", 262_144);
    put(&mut bytes, "X-empty", "");
    let expected = pairs(&[&bytes]).expect("text");
    assert_eq!(expected.len(), 3);
    assert_eq!(expected[1], ("MaxBurstLength".to_owned(), "262144".to_owned()));
    for at in 0..bytes.len() {
        assert_eq!(pairs(&[&bytes[..at], &bytes[at..]]), Ok(expected.clone()), "{at}");
    }
    assert_eq!(pairs(&[&bytes[..bytes.len() - 1]]), Err(TextError::Cut));
    assert_eq!(pairs(&[b"A=1\0\0\0"]), pairs(&[b"A=1\0"]), "filled up with NULs");
}

#[test]
fn a_pair_without_end_costs_bounded_memory() {
    let long = [b"Key=", &vec![b'x'; PAIR_MAX - 4][..]].concat();
    assert!(pairs(&[&long, b"\0"]).is_ok());
    assert_eq!(pairs(&[&long, b"x"]), Err(TextError::TooLong));
    assert_eq!(pairs(&[&long, b"x\0"]), Err(TextError::TooLong));
    assert_eq!(pairs(&[&[&long[..], b"x\0"].concat()]), Err(TextError::TooLong));
}

proptest! {
    #[test]
    fn any_bytes_are_cut_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        cuts in prop::collection::vec(1..40_usize, 0..40),
        digests in 0..4_usize,
    ) {
        let (mut decoder, mut cut) = (Decoder::new(ALL_DIGESTS[digests], 100), Cut::default());
        let mut rest = &bytes[..];
        for at in cuts {
            let (part, behind) = rest.split_at(at.min(rest.len()));
            rest = behind;
            if cut.take(&mut decoder, part).is_err() {
                return Ok(());
            }
        }
        prop_assert!(cut.pdus.iter().all(|(bhs, _, data)| data.len() <= bhs.data_len() as usize));
    }

    #[test]
    fn any_bytes_are_read_as_text_without_a_panic(
        bytes in prop::collection::vec(prop_oneof![Just(0), Just(b'='), any::<u8>()], 0..300),
    ) {
        let _ = pairs(&[&bytes]);
    }

    #[test]
    fn any_header_is_read_without_a_panic(words in prop::array::uniform32(any::<u8>())) {
        let mut bytes = [0; BHS_LEN];
        bytes[..32].copy_from_slice(&words);
        bytes[16..].copy_from_slice(&words);
        let bhs = Bhs::from_bytes(bytes);
        let _ = (ScsiCommand::decode(&bhs), TaskRequest::decode(&bhs), DataIn::decode(&bhs));
        let _ = (ScsiResponse::decode(&bhs), LogoutRequest::decode(&bhs), format!("{bhs:?}"));
    }
}
