//! The full feature phase: against a disk, and against targets of malice.

mod support;

use proptest::prelude::*;
use support::{AGREED, BLOCK, Disk, Initiator, Memory, logged_in, session};
use weir_proto_iscsi::IscsiName;
use weir_proto_iscsi::login::{Agreed, DigestOffer, Isid, LoggedIn, Offer, SessionKind, Settings};
use weir_proto_iscsi::session::{
    Answer, Ask, Completion, DEPTH_MAX, Direction, Event, Keeping, MANAGEMENTS_MAX, Outcome, Over,
    PINGS_OWED_MAX, Refused, Session, TaskTag, Violation,
};
use weir_proto_iscsi::target::{Asked, Profile};
use weir_proto_iscsi::wire::{
    AsyncMessage, BHS_LEN, Bhs, DataIn, DataOut, Digests, Function, LogoutResponse, NO_TAG, NopIn,
    NopOut, Numbers, Opcode, R2t, Reject, Residual, ScsiCommand, ScsiResponse, Segment, Serial,
    TaskRequest, TaskResponse, WireError, put_pdu,
};

fn settings(offer: Offer, cmd_sn: u32) -> Settings {
    let name = |text| IscsiName::new(text).expect("a name");
    let session = SessionKind::Normal(name("iqn.2001-04.com.example:disk"));
    let initiator = name("iqn.2001-04.com.example:host");
    let isid = Isid::random([1, 2, 3], 4);
    Settings { offer, cmd_sn: Serial(cmd_sn), ..Settings::new(initiator, session, isid) }
}

fn profile(offer: Offer) -> Profile {
    let name = IscsiName::new("iqn.2001-04.com.example:disk").expect("a name");
    Profile { offer, ..Profile::new(name) }
}

fn offer(agreed: Agreed) -> Offer {
    let digest = |on| if on { DigestOffer::Require } else { DigestOffer::Never };
    Offer {
        header_digest: digest(agreed.digests.header),
        data_digest: digest(agreed.digests.data),
        initial_r2t: agreed.initial_r2t,
        immediate_data: agreed.immediate_data,
        segment_max: agreed.segment_out,
        burst_max: agreed.burst_max,
        first_burst: agreed.first_burst,
        r2ts: agreed.r2ts,
        ..Offer::default()
    }
}

/// Both ends of a session of these values.
fn pair(agreed: Agreed, cmd_sn: u32, depth: u16) -> (Initiator, Disk) {
    let ours = Offer { segment_max: agreed.segment_in, ..offer(agreed) };
    let (start, target) = session(settings(ours, cmd_sn), profile(offer(agreed)));
    assert_eq!(start.agreed, agreed);
    (Initiator::new(&start, depth), Disk::new(target, 1 << 20))
}

fn noise(length: u32, seed: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// Lets both ends talk in pieces of so many bytes until neither has anything to say.
fn settle(initiator: &mut Initiator, disk: &mut Disk, cut: usize) {
    loop {
        let sent = initiator.send();
        let mut answers = Vec::new();
        sent.chunks(cut).for_each(|part| answers.extend(disk.hear(part)));
        if sent.is_empty() && answers.is_empty() {
            return;
        }
        answers.chunks(cut).for_each(|part| initiator.hear(part).expect("a sound target"));
    }
}

const GOOD: Completion = Completion::Status(0);

fn every_session() -> Vec<Agreed> {
    let mut all = Vec::new();
    for digests in [Digests::NONE, Digests { header: true, data: true }] {
        for initial_r2t in [false, true] {
            for immediate_data in [false, true] {
                all.push(Agreed { digests, initial_r2t, immediate_data, ..AGREED });
            }
        }
    }
    all.push(Agreed { digests: Digests { header: true, data: false }, ..AGREED });
    all.push(Agreed { digests: Digests { header: false, data: true }, ..AGREED });
    all
}

#[test]
fn what_is_written_is_read_back_however_the_bytes_are_cut() {
    for agreed in every_session() {
        for cut in [1, 7, 47, 48, 49, 513, 1 << 20] {
            for direct in [false, true] {
                let (mut initiator, mut disk) = pair(agreed, 1, 4);
                initiator.direct = direct;
                let lengths = [512, 4096, 8192, 66_048];
                for (slot, length) in lengths.into_iter().enumerate() {
                    let (slot, block) = (slot as u16, slot as u32 * 256);
                    initiator.write(slot, block, noise(length, block)).expect("room");
                }
                settle(&mut initiator, &mut disk, cut);
                for (slot, length) in lengths.into_iter().enumerate() {
                    initiator.read(slot as u16, slot as u32 * 256, length).expect("room");
                }
                settle(&mut initiator, &mut disk, cut);
                assert_eq!(initiator.done.len(), 8, "{agreed:?} {cut}");
                for (slot, length) in lengths.into_iter().enumerate() {
                    let read = &initiator.memory.slots[&(slot as u16)];
                    assert!(*read == noise(length, slot as u32 * 256), "{agreed:?} {cut}");
                }
                let whole =
                    |(_, outcome, _): &(TaskTag, Outcome, Vec<u8>)| outcome.completion == GOOD;
                assert!(initiator.done.iter().all(whole));
                let moved: Vec<u32> = initiator.done.iter().map(|(_, o, _)| o.moved).collect();
                assert_eq!(moved.iter().sum::<u32>(), 2 * lengths.iter().sum::<u32>());
                assert_eq!(initiator.session.in_flight(), 0);
                assert!(initiator.told.is_empty(), "{:?}", initiator.told);
            }
        }
    }
}

/// Immediate bytes, unsolicited bytes and requests for a write of this length.
fn ways(initial_r2t: bool, immediate_data: bool, length: u32) -> (u32, u32, u32) {
    let (mut initiator, mut disk) = pair(Agreed { initial_r2t, immediate_data, ..AGREED }, 1, 4);
    initiator.write(0, 0, noise(length, 1)).expect("room");
    settle(&mut initiator, &mut disk, 1 << 20);
    assert_eq!(initiator.done.len(), 1);
    disk.ways[0]
}

/// A segment of the target is 4096 bytes, a first burst 8192, a burst 16384.
#[test]
fn data_goes_unasked_up_to_the_first_burst_and_the_rest_when_it_is_asked_for() {
    for (initial_r2t, immediate, length, expected) in [
        (true, true, 1024, (1024, 0, 0)),
        (true, true, 4096, (4096, 0, 0)),
        (true, true, 4608, (4096, 0, 1)),
        (true, true, 32_768, (4096, 0, 2)),
        (true, false, 512, (0, 0, 1)),
        (true, false, 16_384, (0, 0, 1)),
        (true, false, 16_896, (0, 0, 2)),
        (false, true, 4096, (4096, 0, 0)),
        (false, true, 6144, (4096, 2048, 0)),
        (false, true, 8192, (4096, 4096, 0)),
        (false, true, 8704, (4096, 4096, 1)),
        (false, false, 512, (0, 512, 0)),
        (false, false, 40_960, (0, 8192, 2)),
    ] {
        let found = ways(initial_r2t, immediate, length);
        assert_eq!(found, expected, "InitialR2T {initial_r2t} ImmediateData {immediate} {length}");
    }
}

#[test]
fn a_burst_is_sent_by_segments_and_within_the_budget_of_a_call() {
    let mut initiator = Initiator::new(&logged_in(AGREED, 1, 8), 2);
    let tag = initiator.write(0, 0, noise(20_480, 1)).expect("room");
    initiator.memory.out.clear();
    initiator.hear(&r2t(100, tag, 7, (0, 4096, 16_384))).expect("a sound target");
    let mut heads = Vec::new();
    let mut calls = 0;
    loop {
        let before = initiator.session.position();
        let more = initiator.session.send(5000, &mut initiator.memory);
        assert!(initiator.session.position() - before <= 5000 + 48 + 4096);
        let mut out = &std::mem::take(&mut initiator.memory.out)[..];
        while let Some((head, rest)) = out.split_first_chunk::<BHS_LEN>() {
            let bhs = Bhs::from_bytes(*head);
            let data = DataOut::decode(&bhs);
            assert_eq!((data.itt, data.ttt, data.lun), (tag.0, 7, 5 << 48));
            heads.push((data.data_sn, data.offset, bhs.data_len(), data.last));
            out = &rest[bhs.data_len() as usize..];
        }
        calls += 1;
        if !more {
            break;
        }
    }
    let expected = [
        (0, 4096, 4096, false),
        (1, 8192, 4096, false),
        (2, 12_288, 4096, false),
        (3, 16_384, 4096, true),
    ];
    assert_eq!(heads, expected);
    assert_eq!(calls, 2);
}

#[test]
fn unasked_data_follows_in_the_order_of_the_commands() {
    let agreed = Agreed { initial_r2t: false, immediate_data: false, ..AGREED };
    let mut initiator = Initiator::new(&logged_in(agreed, 1, 8), 2);
    let first = initiator.write(1, 0, noise(8192, 1)).expect("room");
    let second = initiator.write(0, 0, noise(4096, 1)).expect("room");
    initiator.send();
    let order: Vec<_> = initiator.memory.payloads.iter().map(|p| (p.task, p.offset)).collect();
    assert_eq!(order, [(first, 0), (first, 4096), (second, 0)]);
}

#[test]
fn a_cdb_of_more_than_16_bytes_is_sent_in_an_additional_header() {
    for digests in [Digests::NONE, Digests { header: true, data: true }] {
        let (mut initiator, mut disk) = pair(Agreed { digests, ..AGREED }, 1, 2);
        let cdb: Vec<u8> = (1..=33).collect();
        let position = initiator.session.position();
        initiator.command(0, 0, &cdb, Direction::None).expect("room");
        let sent = initiator.send();
        assert_eq!(initiator.session.position() - position, sent.len() as u64);
        let (mut input, mut out) = (&sent[..], Vec::new());
        match disk.target.next(&mut input, &mut out).expect("a sound initiator") {
            Asked::Command { command, extended } => {
                assert_eq!(command.cdb[..], cdb[..16]);
                assert_eq!(extended[..17], cdb[16..]);
                assert_eq!(extended.len(), 20);
            }
            other => panic!("{other:?}"),
        }
        // The length counts the reserved byte: RFC 7143, section 11.2.2.3.
        assert_eq!(sent[48..52], [0, 18, 1, 0]);
    }
}

#[test]
fn commands_wait_for_the_window_and_immediate_ones_do_not() {
    let mut initiator = Initiator::new(&logged_in(AGREED, 5, 2), 4);
    assert_eq!(initiator.session.room(), 2);
    let first = initiator.command(0, 0, &[0], Direction::None).expect("room");
    initiator.command(1, 0, &[0], Direction::None).expect("room");
    let before = initiator.memory.out.len();
    let refused = initiator.command(2, 0, &[0], Direction::None);
    assert_eq!((refused, initiator.memory.out.len()), (Err(Refused::Window), before));
    let ask = Ask::Abort(first);
    initiator.session.manage(ask, 10, &mut initiator.memory).expect("immediate");
    let head = Bhs::from_bytes(*initiator.memory.out[before..].first_chunk().expect("a PDU"));
    let request = TaskRequest::decode(&head).expect("a function");
    assert!(head.is_immediate());
    assert_eq!((request.cmd_sn, request.ref_cmd_sn), (Serial(7), Serial(5)));
    assert_eq!((request.function, request.referenced), (Function::AbortTask, first.0));
    // A PDU that answers nothing opens it.
    initiator.hear(&pdu(nop_in(NO_TAG, NO_TAG, numbers(100, 7, 7)))).expect("a sound target");
    assert_eq!(initiator.session.room(), 1);
    initiator.command(2, 0, &[0], Direction::None).expect("room");
    assert_eq!(initiator.session.room(), 0);
}

/// The target of this crate refuses a command out of order or beyond its window.
#[test]
fn ten_thousand_commands_keep_their_order_across_the_wrap() {
    let (mut initiator, mut disk) = pair(AGREED, u32::MAX - 5000, 8);
    let mut sent = 0_u32;
    while sent < 10_000 {
        for slot in 0..8 {
            let taken = match slot % 3 {
                0 => initiator.command(slot, 0, &[0], Direction::None),
                1 => initiator.read(slot, 3, BLOCK),
                _ => initiator.write(slot, 5, noise(BLOCK, sent)),
            };
            taken.expect("room");
            sent += 1;
        }
        settle(&mut initiator, &mut disk, 1 << 20);
        assert_eq!(initiator.done.len() as u32, sent);
    }
    assert_eq!(disk.target.numbers().exp_cmd_sn, Serial((u32::MAX - 5000).wrapping_add(sent)));
    let mut tags: Vec<TaskTag> = initiator.done.iter().map(|(tag, _, _)| *tag).collect();
    tags.sort_by_key(|tag| tag.0);
    tags.dedup();
    assert_eq!(tags.len() as u32, sent, "no tag is used twice");
}

fn numbers(stat: u32, exp: u32, max: u32) -> Numbers {
    Numbers { stat_sn: Serial(stat), exp_cmd_sn: Serial(exp), max_cmd_sn: Serial(max) }
}

fn at(stat: u32) -> Numbers {
    numbers(stat, 1, 8)
}

fn pdu(bhs: Bhs) -> Vec<u8> {
    with(bhs, &[])
}

fn with(bhs: Bhs, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_pdu(&mut out, bhs, data, Digests::NONE);
    out
}

fn nop_in(itt: u32, ttt: u32, numbers: Numbers) -> Bhs {
    NopIn { lun: 0, itt, ttt, numbers }.encode()
}

fn r2t(stat: u32, tag: TaskTag, ttt: u32, (r2t_sn, offset, length): (u32, u32, u32)) -> Vec<u8> {
    let lun = 5 << 48;
    pdu(R2t { lun, itt: tag.0, ttt, numbers: at(stat), r2t_sn, offset, length }.encode())
}

fn data(tag: TaskTag, data_sn: u32, offset: u32, length: usize) -> Vec<u8> {
    let head = DataIn { last: false, status: None, itt: tag.0, numbers: at(0), data_sn, offset };
    with(head.encode(), &vec![7; length])
}

fn last(tag: TaskTag, (data_sn, offset): (u32, u32), length: usize, stat: u32) -> Vec<u8> {
    let status = Some((0, Residual::None));
    let head = DataIn { last: true, status, itt: tag.0, numbers: at(stat), data_sn, offset };
    with(head.encode(), &vec![7; length])
}

fn response(tag: TaskTag, stat: u32, status: u8, residual: Residual, data: &[u8]) -> Vec<u8> {
    let head = ScsiResponse {
        response: 0,
        status,
        itt: tag.0,
        numbers: at(stat),
        exp_data_sn: 0,
        residual,
    };
    with(head.encode(), data)
}

/// A session with a read of 1024 bytes in slot 0, a write of 20 KiB in slot 1, of which 4096 bytes
/// have gone, and a command without data in slot 2.
fn busy() -> (Initiator, [TaskTag; 3]) {
    let mut initiator = Initiator::new(&logged_in(AGREED, 1, 8), 4);
    let tags = [
        initiator.read(0, 0, 1024).expect("room"),
        initiator.write(1, 0, noise(20_480, 1)).expect("room"),
        initiator.command(2, 9 << 48, &[0], Direction::None).expect("room"),
    ];
    initiator.send();
    (initiator, tags)
}

#[track_caller]
fn violates(pdus: &[Vec<u8>], expected: Violation) {
    let (mut initiator, _) = busy();
    let bytes = pdus.concat();
    assert_eq!(initiator.hear(&bytes), Err(Over::Violation(expected)));
    // It stays over, and names what was in flight.
    assert_eq!(initiator.session.next(&mut &[][..], 0), Err(Over::Violation(expected)));
    assert_eq!(initiator.session.over(), Some(Over::Violation(expected)));
    assert_eq!(initiator.command(3, 0, &[0], Direction::None), Err(Refused::Closed));
    let ask = Ask::TargetWarmReset;
    assert_eq!(initiator.session.manage(ask, 1, &mut initiator.memory), Err(Refused::Closed));
    assert_eq!((initiator.session.room(), initiator.session.wake_at()), (0, None));
    assert!(initiator.session.tick(u64::MAX, &mut Memory::default()).is_err());
    assert!(initiator.session.outstanding(0).count() + initiator.done.len() == 3);
}

#[test]
fn data_that_does_not_fit_its_read_ends_the_session() {
    let (_, [read, write, none]) = busy();
    let itt = read.0;
    let range =
        |offset, length, expected| Violation::Range { itt, offset, length, expected, end: 1024 };
    violates(&[data(read, 0, 0, 1025)], range(0, 1025, 0));
    violates(&[data(read, 0, 512, 512)], range(512, 512, 0));
    violates(&[data(read, 0, 0, 512), data(read, 1, 0, 512)], range(0, 512, 512));
    violates(&[data(read, 0, 0, 512), data(read, 1, 512, 513)], range(512, 513, 512));
    violates(&[data(read, 0, u32::MAX, 512)], range(u32::MAX, 512, 0));
    violates(&[data(read, 1, 0, 512)], Violation::DataSn { itt, found: 1, expected: 0 });
    let twice = [data(read, 0, 0, 512), data(read, 0, 512, 512)];
    violates(&twice, Violation::DataSn { itt, found: 0, expected: 1 });
    let opcode = Opcode::DATA_IN;
    for task in [write, none] {
        violates(&[data(task, 0, 0, 512)], Violation::Direction { opcode, itt: task.0 });
    }
    let short = Violation::Short { itt, moved: 512, due: 1024 };
    violates(&[last(read, (0, 0), 512, 100)], short);
    let by_one = Violation::Short { itt, moved: 1023, due: 1024 };
    violates(&[last(read, (0, 0), 1023, 100)], by_one);
    let status = [data(read, 0, 0, 512), response(read, 100, 0, Residual::None, &[])];
    violates(&status, short);
    let residual = [response(read, 100, 0, Residual::Under(1025), &[])];
    violates(&residual, Violation::Residual { itt, residual: 1025 });
    let head = data(read, 0, 0, 0);
    let bad = Bhs::from_bytes(*head.first_chunk().expect("a header")).with_byte(1, 0x01);
    violates(&[pdu(bad.with_word(24, 100))], Violation::Malformed(opcode));
}

#[test]
fn a_request_for_data_that_does_not_fit_its_write_ends_the_session() {
    let (_, [read, write, none]) = busy();
    let itt = write.0;
    let range =
        |offset, length, expected| Violation::Range { itt, offset, length, expected, end: 20_480 };
    let ask = |at| r2t(100, write, 7, at);
    violates(&[ask((0, 4096, 0))], Violation::Burst { length: 0, bound: 16_384 });
    violates(&[ask((0, 4096, 16_385))], Violation::Burst { length: 16_385, bound: 16_384 });
    violates(&[ask((0, 0, 4096))], range(0, 4096, 4096));
    violates(&[ask((0, 8192, 4096))], range(8192, 4096, 4096));
    violates(&[ask((0, 20_480, 512))], range(20_480, 512, 4096));
    let beyond = [ask((0, 4096, 16_000)), ask((1, 20_096, 512))];
    violates(&beyond, range(20_096, 512, 20_096));
    violates(&[ask((1, 4096, 512))], Violation::DataSn { itt, found: 1, expected: 0 });
    let many = [ask((0, 4096, 512)), ask((1, 4608, 512)), ask((2, 5120, 512))];
    violates(&many, Violation::R2ts { itt, bound: 2 });
    let opcode = Opcode::R2T;
    violates(&[r2t(100, write, NO_TAG, (0, 4096, 512))], Violation::Malformed(opcode));
    for task in [read, none] {
        let direction = Violation::Direction { opcode, itt: task.0 };
        violates(&[r2t(100, task, 7, (0, 0, 512))], direction);
    }
    // A success before the data has gone.
    let early = response(write, 100, 0, Residual::None, &[]);
    let short = Violation::Short { itt, moved: 4096, due: 20_480 };
    violates(std::slice::from_ref(&early), short);
    violates(&[ask((0, 4096, 16_384)), early], short);
}

#[test]
fn tags_and_numbers_of_no_one_end_the_session() {
    let (_, [read, write, none]) = busy();
    let unknown = |opcode, itt| Violation::UnknownTask { opcode, itt };
    let next = TaskTag(read.0 + (1 << 16));
    let (free, beyond) = (TaskTag(3), TaskTag(4));
    for tag in [next, free, beyond, TaskTag(NO_TAG)] {
        violates(&[data(tag, 0, 0, 512)], unknown(Opcode::DATA_IN, tag.0));
        violates(&[r2t(0, tag, 1, (0, 0, 512))], unknown(Opcode::R2T, tag.0));
        let ended = response(tag, 100, 0, Residual::None, &[]);
        violates(&[ended], unknown(Opcode::SCSI_RESPONSE, tag.0));
    }
    let managed = TaskResponse { response: 0, itt: 0xff00, numbers: at(100) };
    violates(&[pdu(managed.encode())], unknown(Opcode::TASK_RESPONSE, 0xff00));
    let managed = TaskResponse { response: 0, itt: none.0, numbers: at(100) };
    violates(&[pdu(managed.encode())], unknown(Opcode::TASK_RESPONSE, none.0));
    violates(&[pdu(nop_in(5, NO_TAG, at(100)))], unknown(Opcode::NOP_IN, 5));
    let logout = LogoutResponse { response: 0, itt: 0xfff1, numbers: at(100) };
    violates(&[pdu(logout.encode())], unknown(Opcode::LOGOUT_RESPONSE, 0xfff1));
    for opcode in [Opcode::LOGIN_RESPONSE, Opcode::TEXT_RESPONSE, Opcode::NOP_OUT, Opcode(0x3e)] {
        violates(&[pdu(Bhs::new(opcode).with_word(24, 100))], Violation::Unexpected(opcode));
    }
    for found in [99, 101, 0] {
        let ended = response(none, found, 0, Residual::None, &[]);
        violates(&[ended], Violation::StatSn { found, expected: 100 });
        violates(&[last(read, (0, 0), 1024, found)], Violation::StatSn { found, expected: 100 });
    }
    let twice = response(none, 100, 0, Residual::None, &[]);
    violates(&[twice.clone(), twice], Violation::StatSn { found: 100, expected: 101 });
    for sense in [&[0][..], &[0, 1], &[0, 4, 1, 2, 3], &[0xff, 0xff, 0]] {
        let ended = response(write, 100, 2, Residual::None, sense);
        violates(&[ended], Violation::Sense { itt: write.0 });
    }
    let both = response(none, 100, 0, Residual::None, &[]);
    let both = Bhs::from_bytes(*both.first_chunk().expect("a header")).with_byte(1, 0x86);
    violates(&[pdu(both)], Violation::Malformed(Opcode::SCSI_RESPONSE));
    violates(
        &[pdu(Reject { reason: 4, numbers: at(100) }.encode())],
        Violation::Malformed(Opcode::REJECT),
    );
}

#[test]
fn statuses_residuals_and_sense_are_told() {
    let (mut initiator, [read, write, none]) = busy();
    let bytes = [
        data(read, 0, 0, 300),
        response(read, 100, 0, Residual::Under(724), &[]),
        response(write, 101, 2, Residual::Under(20_480), &[0, 3, 0x70, 0, 6, 9]),
        response(none, 102, 0x28, Residual::Over(9), &[0, 0]),
    ];
    initiator.hear(&bytes.concat()).expect("a sound target");
    let done = |completion, residual, moved| Outcome { completion, residual, moved };
    let (busy, check) = (Completion::Status(0x28), Completion::Status(2));
    let expected = [
        (read, done(GOOD, Residual::Under(724), 300), vec![]),
        (write, done(check, Residual::Under(20_480), 0), vec![0x70, 0, 6]),
        (none, done(busy, Residual::Over(9), 0), vec![]),
    ];
    assert_eq!(initiator.done, expected);
    assert_eq!(initiator.session.outstanding(u64::MAX).count(), 0);
    let tag = initiator.command(0, 0, &[0], Direction::None).expect("room");
    let failed = ScsiResponse {
        response: 1,
        status: 0,
        itt: tag.0,
        numbers: at(103),
        exp_data_sn: 0,
        residual: Residual::None,
    };
    initiator.hear(&pdu(failed.encode())).expect("a sound target");
    assert_eq!(initiator.done[3].1.completion, Completion::TargetFailure(1));
    // The answers are acknowledged by the next PDU.
    initiator.send();
    initiator.command(0, 0, &[0], Direction::None).expect("room");
    let head = Bhs::from_bytes(*initiator.send().first_chunk().expect("a PDU"));
    assert_eq!(ScsiCommand::decode(&head).expect("a command").exp_stat_sn, Serial(104));
}

#[test]
fn what_comes_for_a_task_that_was_let_go_of_is_dropped() {
    let (mut initiator, [read, write, none]) = busy();
    // In the middle of its data.
    let piece = data(read, 0, 0, 512);
    initiator.hear(&piece[..100]).expect("a sound target");
    assert_eq!(initiator.session.missing().expect("data is due").offset, 52);
    assert!(initiator.session.forget(read) && !initiator.session.forget(read));
    assert!(initiator.session.forget(write));
    assert_eq!(initiator.session.missing(), None);
    let again = initiator.read(0, 8, 512).expect("room");
    assert_eq!(again.slot(), read.slot());
    let bytes = [
        piece[100..].to_vec(),
        data(read, 1, 512, 512),
        r2t(0, write, 7, (0, 4096, 512)),
        response(read, 100, 0, Residual::None, &[]),
        last(again, (0, 0), 512, 101),
        response(none, 102, 0, Residual::None, &[]),
    ];
    initiator.hear(&bytes.concat()).expect("a sound target");
    assert_eq!(initiator.done.iter().map(|done| done.0).collect::<Vec<_>>(), [again, none]);
    assert_eq!(initiator.memory.slots[&0], [7; 512]);
    assert_eq!(initiator.session.late(), 3);
    initiator.memory.payloads.clear();
    initiator.send();
    assert!(initiator.memory.payloads.is_empty(), "no data for a write that is gone");
}

#[test]
fn an_abort_ends_its_task_and_sends_no_more_of_it() {
    for (response, answer, ends) in [
        (0, Answer::Complete, true),
        (1, Answer::NoTask, true),
        (2, Answer::NoLun, false),
        (5, Answer::Unsupported, false),
        (255, Answer::Rejected, false),
        (9, Answer::Other(9), false),
    ] {
        let (mut initiator, [_, write, _]) = busy();
        initiator.hear(&r2t(0, write, 7, (0, 4096, 512))).expect("a sound target");
        let memory = &mut initiator.memory;
        let tag = initiator.session.manage(Ask::Abort(write), 10, memory).expect("a task");
        memory.payloads.clear();
        // The target does not know yet, and may ask for all that it could have.
        for (sn, at) in [(1, 4608), (2, 5120), (3, 5632)] {
            initiator.hear(&r2t(0, write, 8, (sn, at, 512))).expect("a sound target");
            initiator.send();
        }
        assert!(initiator.memory.payloads.is_empty());
        let managed = TaskResponse { response, itt: tag.0, numbers: at(100) };
        initiator.hear(&pdu(managed.encode())).expect("a sound target");
        let ask = Ask::Abort(write);
        let mut expected = vec![format!("{:?}", Event::Managed { tag, ask, answer, late: false })];
        if ends {
            expected.insert(0, format!("{:?}", Event::Aborted { task: write }));
        }
        assert_eq!(initiator.told, expected);
        assert_eq!(initiator.session.forget(write), !ends);
    }
    let (mut initiator, [read, _, none]) = busy();
    let memory = &mut initiator.memory;
    initiator.session.manage(Ask::Abort(none), 10, memory).expect("a task");
    // The command may end by itself before.
    initiator.hear(&response(none, 100, 0, Residual::None, &[])).expect("a sound target");
    let managed = TaskResponse { response: 1, itt: 0xff00, numbers: at(101) };
    initiator.hear(&pdu(managed.encode())).expect("a sound target");
    assert_eq!((initiator.done.len(), initiator.told.len()), (1, 1), "{:?}", initiator.told);
    let refused = initiator.session.manage(Ask::Abort(none), 10, &mut initiator.memory);
    assert_eq!(refused, Err(Refused::NoTask));
    assert!(initiator.session.forget(read));
}

#[test]
fn a_reset_ends_the_tasks_that_were_sent_before_it() {
    let lun = 1 << 48;
    for (ask, of_lun) in
        [(Ask::LunReset(lun), true), (Ask::TargetWarmReset, false), (Ask::TargetColdReset, false)]
    {
        let (mut initiator, [read, write, none]) = busy();
        let tag = initiator.session.manage(ask, 10, &mut initiator.memory).expect("room");
        let head = Bhs::from_bytes(*initiator.send().first_chunk().expect("a PDU"));
        let request = TaskRequest::decode(&head).expect("a function");
        assert_eq!((request.referenced, request.lun), (NO_TAG, if of_lun { lun } else { 0 }));
        let after = initiator.read(3, 0, 512).expect("room");
        let managed = TaskResponse { response: 0, itt: tag.0, numbers: at(100) };
        initiator.hear(&pdu(managed.encode())).expect("a sound target");
        let aborted = |task| format!("{:?}", Event::Aborted { task });
        let mut expected = vec![aborted(read), aborted(write)];
        if !of_lun {
            expected.push(aborted(none));
        }
        let answer = Answer::Complete;
        expected.push(format!("{:?}", Event::Managed { tag, ask, answer, late: false }));
        assert_eq!(initiator.told, expected);
        let left: Vec<_> = initiator.session.outstanding(0).map(|(tag, _)| tag).collect();
        assert_eq!(left, if of_lun { vec![none, after] } else { vec![after] });
    }
}

#[test]
fn an_answer_that_is_late_is_told_twice_and_known_when_it_comes() {
    let (mut initiator, [read, _, _]) = busy();
    let memory = &mut initiator.memory;
    let session = &mut initiator.session;
    let first = session.manage(Ask::Abort(read), 10, memory).expect("a task");
    let second = session.manage(Ask::LunReset(3), 8, memory).expect("room");
    assert_ne!(first, second);
    assert_eq!(session.wake_at(), Some(8));
    assert_eq!(session.tick(7, memory), Ok(None));
    let expired = session.tick(10, memory).expect("a session").expect("a late one");
    assert_eq!((expired.tag, expired.ask), (first, Ask::Abort(read)));
    let expired = session.tick(10, memory).expect("a session").expect("another");
    assert_eq!((expired.tag, expired.ask), (second, Ask::LunReset(3)));
    assert_eq!(session.tick(10, memory), Ok(None));
    let managed = TaskResponse { response: 0, itt: first.0, numbers: at(100) };
    initiator.hear(&pdu(managed.encode())).expect("a sound target");
    assert!(initiator.told[1].contains("late: true"), "{:?}", initiator.told);
    // Its place is free, and its tag is used no more.
    let memory = &mut initiator.memory;
    let third = initiator.session.manage(Ask::LunReset(3), 8, memory).expect("room");
    assert_eq!(third.slot(), first.slot());
    assert_ne!(third, first);
    for _ in 2..MANAGEMENTS_MAX {
        initiator.session.manage(Ask::LunReset(3), 8, memory).expect("room");
    }
    let refused = initiator.session.manage(Ask::LunReset(3), 8, memory);
    assert_eq!(refused, Err(Refused::Managements));
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_quiet_target_is_pinged_and_a_silent_one_is_given_up() {
    let (mut initiator, _) = busy();
    let memory = &mut initiator.memory;
    let session = &mut initiator.session;
    assert_eq!(session.wake_at(), Some(5 * SECOND));
    assert_eq!(session.tick(5 * SECOND - 1, memory), Ok(None));
    assert!(memory.out.is_empty());
    assert_eq!(session.tick(5 * SECOND, memory), Ok(None));
    let head = Bhs::from_bytes(*memory.out.first_chunk().expect("a ping"));
    let ping = NopOut::decode(&head);
    assert!(ping.is_ping() && head.is_immediate());
    assert_eq!((ping.ttt, ping.cmd_sn, memory.out.len()), (NO_TAG, Serial(4), 48));
    // One at a time.
    assert_eq!(session.tick(6 * SECOND, memory), Ok(None));
    assert_eq!((memory.out.len(), session.wake_at()), (48, Some(10 * SECOND)));
    let answer = pdu(nop_in(ping.itt, NO_TAG, at(100)));
    assert_eq!(session.next(&mut &answer[..], 9 * SECOND), Ok(Event::Pong));
    assert_eq!(session.wake_at(), Some(14 * SECOND));
    memory.out.clear();
    assert_eq!(session.tick(14 * SECOND, memory), Ok(None));
    let second = NopOut::decode(&Bhs::from_bytes(*memory.out.first_chunk().expect("a ping")));
    assert_ne!(second.itt, ping.itt);
    // Anything heard is a sign of life, so a long answer to a read is waited for.
    assert_eq!(session.next(&mut &[0x25][..], 18 * SECOND), Ok(Event::NeedMore));
    assert_eq!(session.tick(19 * SECOND, memory), Ok(None));
    assert_eq!(session.tick(23 * SECOND - 1, memory), Ok(None));
    assert_eq!(session.tick(23 * SECOND, memory), Err(Over::Silent));
    assert_eq!(session.outstanding(u64::MAX).count(), 3);
}

#[test]
fn data_that_the_caller_receives_is_a_sign_of_life() {
    let (mut initiator, [read, ..]) = busy();
    let (session, memory) = (&mut initiator.session, &mut initiator.memory);
    let piece = data(read, 0, 0, 512);
    assert_eq!(session.next(&mut &piece[..48], SECOND), Ok(Event::NeedMore));
    session.received(&[7; 100], 4 * SECOND);
    assert_eq!(session.missing().map(|missing| (missing.offset, missing.length)), Some((100, 412)));
    assert_eq!(session.wake_at(), Some(9 * SECOND));
    assert_eq!(session.tick(8 * SECOND, memory), Ok(None));
    assert!(memory.out.is_empty());
}

#[test]
fn pings_of_the_target_are_answered_and_bounded() {
    let (mut initiator, _) = busy();
    let asks = NopIn { lun: 5 << 48, itt: NO_TAG, ttt: 77, numbers: at(100) };
    initiator.hear(&pdu(asks.encode())).expect("a sound target");
    let out = initiator.send();
    let answer = NopOut::decode(&Bhs::from_bytes(*out.first_chunk().expect("an answer")));
    assert_eq!((answer.itt, answer.ttt, answer.lun), (NO_TAG, 77, 5 << 48));
    assert_eq!(out.len(), 48);
    // One that wants no answer only tells the numbers.
    initiator.hear(&pdu(nop_in(NO_TAG, NO_TAG, at(100)))).expect("a sound target");
    assert!(initiator.send().is_empty());
    let many = vec![pdu(asks.encode()); PINGS_OWED_MAX].concat();
    initiator.hear(&many).expect("as many as are kept");
    let one = initiator.hear(&pdu(asks.encode()));
    assert_eq!(one, Err(Over::Violation(Violation::Pings)));
    assert!(initiator.send().is_empty(), "a session that is over sends nothing");
}

#[test]
fn answers_to_pings_keep_to_the_budget_so_that_they_do_not_pile_up() {
    let (mut initiator, _) = busy();
    let asks = pdu(NopIn { lun: 0, itt: NO_TAG, ttt: 77, numbers: at(100) }.encode());
    initiator.hear(&vec![asks.clone(); 3].concat()).expect("a sound target");
    let Initiator { session, memory, .. } = &mut initiator;
    for (budget, bytes) in [(0, 0), (1, 48), (49, 144)] {
        assert_eq!(session.send(budget, memory), bytes < 144, "budget {budget}");
        assert_eq!(memory.out.len(), bytes, "budget {budget}");
    }
    // A target that does not read: nothing may be put out any more.
    for _ in 0..PINGS_OWED_MAX {
        initiator.hear(&asks).expect("as many as are kept");
        assert!(initiator.session.send(0, &mut initiator.memory));
    }
    assert_eq!(initiator.hear(&asks), Err(Over::Violation(Violation::Pings)));
    assert_eq!(initiator.memory.out.len(), 144);
}

fn message(event: u8, parameters: [u16; 3]) -> Bhs {
    AsyncMessage { lun: 3 << 48, numbers: at(100), event, code: 5, parameters }.encode()
}

#[test]
fn what_a_target_says_unasked_is_told_or_ends_the_session() {
    for (event, words) in [
        (0, "Notice(Scsi { lun: 844424930131968 })"),
        (1, "Notice(LogoutWanted { within_s: 30 })"),
        (4, "Notice(NegotiationWanted { within_s: 30 })"),
        (255, "Notice(Other { event: 255, code: 5 })"),
        (9, "Notice(Other { event: 9, code: 5 })"),
    ] {
        let (mut initiator, [.., none]) = busy();
        let bytes = [
            with(message(event, [10, 20, 30]), &[0, 2, 0x70, 0]),
            response(none, 101, 0, Residual::None, &[]),
        ];
        initiator.hear(&bytes.concat()).expect("a sound target");
        assert_eq!(initiator.told, [words]);
        assert_eq!(initiator.done.len(), 1, "the message is counted");
    }
    for event in [2, 3] {
        let (mut initiator, _) = busy();
        let over = Over::Dropped { wait_s: 20, retain_s: 30 };
        assert_eq!(initiator.hear(&pdu(message(event, [10, 20, 30]))), Err(over));
    }
    let (mut initiator, _) = busy();
    let mut event = &with(message(0, [0; 3]), &[0, 2, 0x70, 9])[..];
    assert!(matches!(initiator.session.next(&mut event, 0), Ok(Event::Notice(_))));
    assert_eq!(initiator.session.sense(), [0x70, 9]);
}

fn reject(bhs: &Bhs) -> Vec<u8> {
    with(Reject { reason: 6, numbers: at(100) }.encode(), bhs.bytes())
}

#[test]
fn a_rejected_ping_or_function_is_answered_and_a_rejected_command_ends_the_session() {
    let (mut initiator, [read, ..]) = busy();
    initiator.session.tick(5 * SECOND, &mut initiator.memory).expect("a session");
    let ping = Bhs::from_bytes(*initiator.send().first_chunk().expect("a ping"));
    initiator.hear(&reject(&ping)).expect("a sound target");
    assert_eq!(initiator.told, ["Pong"]);
    let memory = &mut initiator.memory;
    let tag = initiator.session.manage(Ask::Abort(read), 10, memory).expect("a task");
    let request = Bhs::from_bytes(*initiator.send().first_chunk().expect("a request"));
    let mut rejected = reject(&request);
    rejected[27] = 101;
    initiator.hear(&rejected).expect("a sound target");
    let answer = Answer::Rejected;
    let managed = Event::Managed { tag, ask: Ask::Abort(read), answer, late: false };
    assert_eq!(initiator.told[1], format!("{managed:?}"));
    let (mut initiator, _) = busy();
    let opcode = Opcode::SCSI_COMMAND;
    let over = Over::Rejected { reason: 6, opcode };
    assert_eq!(initiator.hear(&reject(&Bhs::new(opcode))), Err(over));
    let (mut initiator, _) = busy();
    let unknown = Violation::UnknownTask { opcode: Opcode::REJECT, itt: 0 };
    let function = Bhs::new(Opcode::TASK_REQUEST);
    assert_eq!(initiator.hear(&reject(&function)), Err(Over::Violation(unknown)));
}

#[test]
fn a_logout_is_answered_or_waited_for_so_long() {
    let (mut initiator, mut disk) = pair(AGREED, 1, 4);
    initiator.session.logout(10, &mut initiator.memory);
    initiator.session.logout(10, &mut initiator.memory);
    assert!(!initiator.session.is_open());
    assert_eq!(initiator.command(0, 0, &[0], Direction::None), Err(Refused::Closed));
    let sent = initiator.send();
    assert_eq!(sent.len(), 48, "once");
    let answers = disk.hear(&sent);
    let mut answers = &answers[..];
    let left = initiator.session.next(&mut answers, 0);
    assert_eq!(left, Ok(Event::LoggedOut { response: 0 }));
    assert_eq!(initiator.session.next(&mut answers, 0), Err(Over::LoggedOut));
    let (mut initiator, _) = pair(AGREED, 1, 4);
    initiator.session.logout(10, &mut initiator.memory);
    assert_eq!(initiator.session.wake_at(), Some(10));
    assert_eq!(initiator.session.tick(9, &mut initiator.memory), Ok(None));
    assert_eq!(initiator.session.tick(10, &mut initiator.memory), Err(Over::Silent));
}

#[test]
fn tasks_that_never_left_are_told_apart_from_those_that_may_have() {
    let mut initiator = Initiator::new(&logged_in(AGREED, 1, 8), 4);
    let tags: Vec<_> = (0..3)
        .map(|slot| initiator.command(slot, 0, &[0], Direction::None).expect("room"))
        .collect();
    for (gone, reached) in [(0, 0), (1, 1), (48, 1), (49, 2), (96, 2), (97, 3), (144, 3)] {
        let outstanding: Vec<_> = initiator.session.outstanding(gone).collect();
        let expected: Vec<_> =
            tags.iter().enumerate().map(|(at, tag)| (*tag, at < reached)).collect();
        assert_eq!(outstanding, expected, "{gone} bytes gone");
    }
    for agreed in every_session() {
        let (mut initiator, mut disk) = pair(agreed, 1, 4);
        let mut gone = 0;
        for round in 0..3 {
            initiator.write(round, 0, noise(30_208, 3)).expect("room");
            loop {
                let sent = initiator.send();
                gone += sent.len() as u64;
                assert_eq!(initiator.session.position(), gone);
                let answers = disk.hear(&sent);
                if sent.is_empty() && answers.is_empty() {
                    break;
                }
                initiator.hear(&answers).expect("a sound target");
            }
        }
    }
}

#[test]
fn a_wrong_digest_ends_the_session_and_the_read_is_in_flight() {
    let digests = Digests { header: true, data: true };
    let (mut initiator, mut disk) = pair(Agreed { digests, ..AGREED }, 1, 4);
    initiator.read(0, 0, 1024).expect("room");
    let mut answers = disk.hear(&initiator.send());
    let end = answers.len() - 1;
    answers[end] ^= 1;
    match initiator.hear(&answers) {
        Err(Over::Wire(WireError::Digest { of, .. })) => assert_eq!(of, Segment::Data),
        other => panic!("{other:?}"),
    }
    assert!(initiator.done.is_empty());
    assert_eq!(initiator.session.outstanding(u64::MAX).count(), 1);
}

#[test]
fn a_segment_beyond_what_was_declared_ends_the_session() {
    let (mut initiator, [read, ..]) = busy();
    let long = WireError::TooLong { length: 8193, bound: 8192 };
    assert_eq!(initiator.hear(&data(read, 0, 0, 8193)), Err(Over::Wire(long)));
}

#[test]
fn a_hostile_target_cannot_make_the_memory_of_a_session_grow() {
    let mut initiator = Initiator::new(&logged_in(AGREED, 1, u32::MAX >> 1), 4);
    let mut most = 0;
    // Data is asked for again and again, and each write ended before it is sent; one write keeps
    // the front of the queue.
    let numbers = |stat| numbers(stat, 1, 1 << 30);
    let front = initiator.write(0, 0, noise(20_480, 1)).expect("room");
    initiator.hear(&r2t(0, front, 7, (0, 4096, 512))).expect("a sound target");
    for round in 0..10_000_u32 {
        let slot = 1 + (round % 3) as u16;
        let tag = initiator.write(slot, 0, noise(20_480, 1)).expect("room");
        initiator.memory.out.clear();
        initiator.hear(&r2t(0, tag, 7, (0, 4096, 512))).expect("a sound target");
        initiator.hear(&r2t(0, tag, 8, (1, 4608, 512))).expect("a sound target");
        let head = ScsiResponse {
            response: 0,
            status: 2,
            itt: tag.0,
            numbers: numbers(100 + round),
            exp_data_sn: 0,
            residual: Residual::None,
        };
        let sense = [&[0x1f, 0xf0][..], &vec![1; 0x1ff0 - 2], &[0, 0]].concat();
        initiator.hear(&with(head.encode(), &sense)).expect("a sound target");
        most = most.max(initiator.session.held_bytes());
    }
    assert!(most < 20_000, "{most} bytes");
}

#[test]
#[should_panic(expected = "outside 1..=")]
fn a_session_has_a_depth() {
    let _ = Session::new(&logged_in(AGREED, 1, 1), Keeping::with_depth(DEPTH_MAX + 1), 0);
}

fn any_session() -> impl Strategy<Value = (LoggedIn, usize)> {
    (any::<u32>(), 1..200_usize, 0..10_usize)
        .prop_map(|(sn, cut, at)| (logged_in(every_session()[at], sn, 8), cut))
}

/// The kind of a PDU, and a byte of its header that may have another value.
fn any_error() -> impl Strategy<Value = (usize, usize, u8, bool)> {
    (0..12_usize, 0..48_usize, any::<u8>(), any::<bool>())
}

proptest! {
    #[test]
    fn any_writes_and_reads_are_whole_in_any_segmentation(
        (start, cut) in any_session(),
        direct in any::<bool>(),
        lengths in prop::collection::vec(1..60_u32, 1..6),
    ) {
        let (mut initiator, mut disk) = pair(start.agreed, start.cmd_sn.0, 6);
        initiator.direct = direct;
        for (slot, blocks) in lengths.iter().enumerate() {
            let data = noise(blocks * BLOCK, slot as u32);
            initiator.write(slot as u16, slot as u32 * 64, data).expect("room");
        }
        settle(&mut initiator, &mut disk, cut);
        for (slot, blocks) in lengths.iter().enumerate() {
            initiator.read(slot as u16, slot as u32 * 64, blocks * BLOCK).expect("room");
        }
        settle(&mut initiator, &mut disk, cut);
        prop_assert_eq!(initiator.done.len(), 2 * lengths.len());
        for (slot, blocks) in lengths.iter().enumerate() {
            let read = &initiator.memory.slots[&(slot as u16)];
            prop_assert!(*read == noise(blocks * BLOCK, slot as u32));
        }
    }

    #[test]
    fn a_target_of_any_bytes_ends_the_session_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let (mut initiator, _) = busy();
        let _ = initiator.hear(&bytes);
        initiator.send();
        prop_assert!(initiator.session.held_bytes() < 20_000);
    }

    /// Headers that are right but for a byte or two.
    #[test]
    fn a_target_that_errs_a_little_ends_the_session_without_a_panic(
        pdus in prop::collection::vec(any_error(), 1..12),
    ) {
        let (mut initiator, [read, write, none]) = busy();
        let mut stat = 100;
        for (kind, place, value, errs) in pdus {
            let mut bytes = match kind {
                0 => data(read, 0, 0, 512),
                1 => last(read, (1, 512), 512, stat),
                2 => r2t(stat, write, 5, (0, 4096, 512)),
                3 => r2t(stat, write, 6, (1, 4608, 512)),
                4 => response(none, stat, 0, Residual::None, &[0, 1, 7]),
                5 => response(write, stat, 2, Residual::Under(20_480), &[]),
                6 => pdu(nop_in(NO_TAG, 9, at(stat))),
                7 => pdu(AsyncMessage { lun: 0, numbers: at(stat), event: 1, code: 0,
                    parameters: [0; 3] }.encode()),
                8 => with(Reject { reason: 6, numbers: at(stat) }.encode(), &[2; 48]),
                9 => pdu(TaskResponse { response: 0, itt: 0xff00, numbers: at(stat) }.encode()),
                10 => data(read, 1, 512, 100),
                _ => pdu(LogoutResponse { response: 0, itt: 0xfff1, numbers: at(stat) }.encode()),
            };
            if errs {
                bytes[place] = value;
            }
            if initiator.hear(&bytes).is_err() {
                break;
            }
            stat = stat.wrapping_add(u32::from(!matches!(kind, 0 | 2 | 3 | 6 | 10)));
            initiator.send();
        }
        for (_, outcome, _) in &initiator.done {
            prop_assert!(outcome.moved <= 20_480);
        }
        prop_assert!(initiator.memory.slots[&0].len() == 1024);
    }
}
