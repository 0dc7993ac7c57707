//! Replies beyond the golden exchanges: what an encoder keeps to whatever it is given, and what a
//! decoder does with a server that breaks the rules.

mod peer;

use peer::Ear;
use std::collections::BTreeMap;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{Event, Replies as Decoder, Requests};
use weir_proto_nbd::server::{Chunk, Replies, StatusQuery};
use weir_proto_nbd::wire::{
    ChunkType, Command, CommandFlags, ErrorChunk, ExtendedHeader, Extent, Mode, ReplyFlags,
    ReplyTo, Request, SimpleReply, StatusFlags, StructuredHeader,
};

const TO: ReplyTo = ReplyTo { cookie: 1, offset: 4096 };
const CHUNKED: [Mode; 2] = [Mode::Structured, Mode::Extended];

/// A client of the mode with one request in flight: cookie 1, 4096 bytes at 4096.
fn ear(mode: Mode, command: Command) -> Ear {
    ear_of(mode, Request::new(command, 1, 4096, 4096))
}

fn ear_of(mode: Mode, request: Request) -> Ear {
    let mut ear = Ear::new(mode, Some(1));
    let pending = Requests::new(mode).push(&request, &mut Vec::new()).expect("it fits");
    ear.in_flight.insert(request.cookie, pending);
    ear
}

/// The events the client hears of these bytes.
fn heard(mut ear: Ear, bytes: &[u8]) -> Vec<String> {
    ear.input(bytes);
    ear.lines()
}

fn chunk(mode: Mode, kind: ChunkType, done: bool, payload: &[u8]) -> Vec<u8> {
    let flags = if done { ReplyFlags::DONE } else { ReplyFlags::EMPTY };
    let ReplyTo { cookie, offset } = TO;
    let len = payload.len();
    let mut bytes = if mode == Mode::Extended {
        ExtendedHeader { flags, chunk: kind, cookie, offset, length: len as u64 }.encode().to_vec()
    } else {
        StructuredHeader { flags, chunk: kind, cookie, length: len as u32 }.encode().to_vec()
    };
    bytes.extend_from_slice(payload);
    bytes
}

fn data(mode: Mode, offset: u64, len: usize, done: bool) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], &vec![7; len]].concat();
    chunk(mode, ChunkType::OFFSET_DATA, done, &payload)
}

fn extent(length: u64, bits: u64) -> Extent {
    Extent { length, flags: StatusFlags::from_bits(bits) }
}

/// The extents a client is told, as length and flags, for a status over 4096 bytes at 4096.
fn reported(mode: Mode, length: u64, one: bool, extents: &[Extent]) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let query = StatusQuery { context: 1, length, one };
    Replies::new(mode).block_status(TO, query, extents.iter().copied(), &mut out);
    let mut request = Request::new(Command::BLOCK_STATUS, 1, 4096, length);
    if one {
        request = request.with(CommandFlags::REQ_ONE);
    }
    let mut ear = ear_of(mode, request);
    ear.input(&out);
    let mut lines = ear.lines();
    assert_eq!(lines.pop().as_deref(), Some("done 1 ok"), "{lines:?}");
    lines
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!((words[0], words[2], words[5]), ("extent", "at", "flags"), "{line}");
            (words[4].parse().expect("a length"), words[6].parse().expect("flags"))
        })
        .collect()
}

#[test]
fn a_status_keeps_the_rules_whatever_extents_come_in() {
    for mode in CHUNKED {
        let pieces = [extent(1024, 0), extent(0, 3), extent(1024, 0), extent(512, 3)];
        assert_eq!(reported(mode, 4096, false, &pieces), [(2048, 0), (512, 3)], "joined");
        let long = [extent(2048, 0), extent(8192, 3), extent(512, 0)];
        assert_eq!(reported(mode, 4096, false, &long), [(2048, 0), (8192, 3)], "the last overruns");
        assert_eq!(reported(mode, 2048, false, &long), [(2048, 0)], "none starts behind the end");
        assert_eq!(reported(mode, 4096, true, &long), [(2048, 0)], "REQ_ONE: one");
        assert_eq!(reported(mode, 4096, true, &long[1..]), [(4096, 3)], "REQ_ONE: cut");
        assert_eq!(reported(mode, 4096, false, &[]), [(4096, 0)], "nothing known is always true");
    }
}

#[test]
fn a_long_extent_fits_64_bits_and_is_cut_to_32() {
    let tib = [extent(1 << 40, 3), extent(512, 0)];
    assert_eq!(reported(Mode::Extended, 2 << 40, false, &tib), [(1 << 40, 3), (512, 0)]);
    let cut = 0xffff_0000;
    assert_eq!(reported(Mode::Structured, u64::from(u32::MAX), false, &tib), [(cut, 3)]);
    let barely = [extent(cut + 512, 3), extent(512, 0)];
    assert_eq!(reported(Mode::Structured, u64::from(u32::MAX), false, &barely), [(cut, 3)]);
    let after = [extent(512, 0), extent(1 << 40, 3)];
    assert_eq!(reported(Mode::Structured, 1 << 30, false, &after), [(512, 0), (cut, 3)]);
}

#[test]
fn a_status_has_at_most_two_to_the_twenty_extents() {
    let stripes = (0..2_000_000).map(|at| extent(512, at % 2)).collect::<Vec<_>>();
    for mode in CHUNKED {
        let told = reported(mode, 1 << 31, false, &stripes);
        assert_eq!(told.len(), 1 << 20);
    }
}

#[test]
fn an_error_message_is_cut_between_characters() {
    for mode in CHUNKED {
        let words = "é".repeat(3000);
        let mut out = Vec::new();
        Replies::new(mode).error(TO, NbdError::Io, &words, &mut out);
        let lines = heard(ear(mode, Command::WRITE), &out);
        assert_eq!(lines, [format!("error 1 EIO: {}", "é".repeat(2048)), "done 1 EIO".to_owned()]);
    }
}

#[test]
fn an_error_at_an_offset_ends_a_read_of_which_data_has_come() {
    for mode in CHUNKED {
        let replies = Replies::new(mode);
        let mut out = Vec::new();
        replies.data_header(TO, Chunk { offset: 4096, length: 512, last: false }, &mut out);
        out.extend_from_slice(&[7; 512]);
        replies.error_at(TO, NbdError::Io, 4608, "sector lost", &mut out);
        assert_eq!(
            heard(ear(mode, Command::READ), &out),
            ["data 1 at 4096: 07*512", "error 1 EIO at 4608: sector lost", "done 1 EIO"]
        );
    }
}

#[test]
fn of_several_errors_the_first_is_how_the_request_ended() {
    for mode in CHUNKED {
        let error = |code: u32| {
            let mut payload = Vec::new();
            ErrorChunk { error: code, message: b"", offset: Some(4096) }.put(&mut payload);
            chunk(mode, ChunkType::ERROR_OFFSET, code == 28, &payload)
        };
        assert_eq!(
            heard(ear(mode, Command::WRITE), &[error(5), error(28)].concat()),
            ["error 1 EIO at 4096: ", "error 1 ENOSPC at 4096: ", "done 1 EIO"]
        );
    }
}

#[test]
fn headers_are_appended_and_what_stands_before_is_left_alone() {
    for mode in [Mode::Simple, Mode::Structured, Mode::Extended] {
        let mut arena = b"before".to_vec();
        Replies::new(mode).read_header(TO, 512, &mut arena);
        assert_eq!(&arena[..6], b"before");
        assert_eq!(arena.len(), 6 + mode.read_header_len());
        let capacity = arena.capacity();
        arena.clear();
        Replies::new(mode).read_header(TO, 512, &mut arena);
        assert_eq!(arena.capacity(), capacity, "an arena that is large enough is not touched");
    }
}

#[test]
fn data_received_by_the_caller_counts_as_data() {
    for mode in [Mode::Simple, Mode::Structured, Mode::Extended] {
        let mut out = Vec::new();
        Replies::new(mode).read_header(TO, 4096, &mut out);
        out.extend_from_slice(&[7; 96]);
        let mut ear = ear(mode, Command::READ);
        let mut decoder = Decoder::new(mode, None);
        let mut rest = &out[..];
        let event = decoder.next(&mut rest, &mut ear.in_flight).expect("in step");
        assert_eq!(event, Event::Data { cookie: 1, offset: 4096, bytes: &[7; 96] });
        assert_eq!(decoder.next(&mut rest, &mut ear.in_flight), Ok(Event::NeedMore));
        let missing = decoder.missing().expect("data is due");
        assert_eq!((missing.cookie, missing.offset, missing.length), (1, 4192, 4000));
        decoder.received(3999);
        assert_eq!(decoder.missing().map(|missing| missing.length), Some(1));
        decoder.received(1);
        assert_eq!(decoder.missing(), None);
        let done = decoder.next(&mut &[][..], &mut ear.in_flight);
        assert_eq!(done, Ok(Event::Done { cookie: 1, result: Ok(()) }));
    }
}

#[test]
#[should_panic(expected = "5 bytes received where no data is due")]
fn a_caller_that_received_what_was_not_due_is_told() {
    Decoder::new(Mode::Simple, None).received(5);
}

#[test]
fn chunks_of_a_read_may_come_in_any_order() {
    for mode in CHUNKED {
        let bytes = [
            data(mode, 6144, 2048, false),
            data(mode, 4096, 1024, false),
            chunk(mode, ChunkType::OFFSET_HOLE, false, &[0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 4, 0]),
            chunk(mode, ChunkType::NONE, true, &[]),
        ];
        assert_eq!(
            heard(ear(mode, Command::READ), &bytes.concat()),
            [
                "data 1 at 6144: 07*2048",
                "data 1 at 4096: 07*1024",
                "hole 1 at 5120: 1024",
                "done 1 ok"
            ]
        );
    }
}

/// The last thing a client hears of these bytes.
#[track_caller]
fn assert_lost(mode: Mode, command: Command, bytes: &[Vec<u8>], words: &str) {
    let lines = heard(ear(mode, command), &bytes.concat());
    let last = lines.last().map_or("", String::as_str);
    assert!(last.starts_with("lost ") && last.contains(words), "{mode:?} {command}: {lines:?}");
}

#[test]
fn a_read_is_only_done_when_every_byte_has_come_exactly_once() {
    for mode in CHUNKED {
        let read = |bytes: &[Vec<u8>], words| assert_lost(mode, Command::READ, bytes, words);
        let none = chunk(mode, ChunkType::NONE, true, &[]);
        read(std::slice::from_ref(&none), "done with 4096 bytes missing");
        read(&[data(mode, 4096, 4095, true)], "done with 1 bytes missing");
        read(&[data(mode, 4096, 512, false), data(mode, 4607, 512, false)], "came before");
        read(&[data(mode, 4095, 512, false)], "were not asked for");
        read(&[data(mode, 4608, 4096, false)], "were not asked for");
        read(&[data(mode, u64::MAX, 512, false)], "were not asked for");
        read(&[data(mode, 4096, 4097, false)], "payload of 4105 bytes");
        read(&[data(mode, 4096, 0, false)], "payload of 8 bytes");
        let hole = |len: u32| [&4096u64.to_be_bytes()[..], &len.to_be_bytes()].concat();
        let hole = |len| chunk(mode, ChunkType::OFFSET_HOLE, false, &hole(len));
        read(&[hole(0)], "0 bytes at 4096 were not asked for");
        read(&[hole(u32::MAX)], "were not asked for");
        read(&[hole(512), hole(512)], "came before");
        let scattered: Vec<_> = (0..9).map(|at| data(mode, 4096 + at * 16, 8, false)).collect();
        read(&scattered, "more than 8 separate places");
    }
}

#[test]
fn a_chunk_that_cannot_answer_its_request_loses_the_stream() {
    for mode in CHUNKED {
        let flush = |bytes: &[Vec<u8>], words| assert_lost(mode, Command::FLUSH, bytes, words);
        flush(&[data(mode, 4096, 1, true)], "OFFSET_DATA cannot answer FLUSH");
        flush(&[chunk(mode, ChunkType(77), true, &[])], "0x4d cannot answer FLUSH");
        flush(&[chunk(mode, ChunkType::NONE, false, &[])], "NONE with a payload of 0 bytes");
        flush(&[chunk(mode, ChunkType::NONE, true, &[0])], "NONE with a payload of 1 bytes");
        let done = chunk(mode, ChunkType::NONE, true, &[]);
        flush(&[done.clone(), done.clone()], "unknown cookie 0x1");
        let status = |bytes: &[Vec<u8>], words| {
            assert_lost(mode, Command::BLOCK_STATUS, bytes, words);
        };
        status(&[done], "done without a status");
        let (this, other) = match mode {
            Mode::Extended => (ChunkType::BLOCK_STATUS_EXT, ChunkType::BLOCK_STATUS),
            _ => (ChunkType::BLOCK_STATUS, ChunkType::BLOCK_STATUS_EXT),
        };
        status(&[chunk(mode, other, true, &[0; 24])], "cannot answer BLOCK_STATUS");
        status(&[chunk(mode, this, true, &[0; 8])], "payload of 8 bytes");
        status(&[chunk(mode, this, true, &[9; 4])], "payload of 4 bytes");
    }
    assert_lost(
        Mode::Simple,
        Command::READ,
        &[data(Mode::Structured, 4096, 512, true)],
        "0x668e33ef",
    );
    assert_lost(
        Mode::Structured,
        Command::READ,
        &[data(Mode::Extended, 4096, 512, true)],
        "0x6e8a",
    );
    let simple = SimpleReply { error: 0, cookie: 1 }.encode().to_vec();
    assert_lost(Mode::Extended, Command::FLUSH, &[simple.clone(), vec![0; 16]], "0x67446698");
    assert_lost(Mode::Structured, Command::READ, &[simple], "simple reply to READ");
}

/// A status chunk made by hand: context, count for the 64-bit form, extents.
fn status(mode: Mode, context: u32, count: u32, extents: &[Extent]) -> Vec<u8> {
    let mut payload = context.to_be_bytes().to_vec();
    if mode == Mode::Extended {
        payload.extend_from_slice(&count.to_be_bytes());
        extents.iter().for_each(|extent| extent.put_extended(&mut payload));
        return chunk(mode, ChunkType::BLOCK_STATUS_EXT, true, &payload);
    }
    extents.iter().for_each(|extent| extent.put_compact(&mut payload).expect("32 bits"));
    chunk(mode, ChunkType::BLOCK_STATUS, true, &payload)
}

#[test]
fn extents_that_were_not_due_lose_the_stream() {
    for mode in CHUNKED {
        let lost = |bytes: Vec<u8>, words| {
            assert_lost(mode, Command::BLOCK_STATUS, &[bytes], words);
        };
        lost(status(mode, 2, 1, &[extent(512, 0)]), "context 2 was not due");
        lost(status(mode, 1, 1, &[extent(0, 0)]), "extent of 0 bytes");
        let beyond = [extent(4096, 0), extent(512, 3)];
        lost(status(mode, 1, 2, &beyond), "extent of 512 bytes at 8192 was not due");
    }
    for mode in CHUNKED {
        let mut twice = status(mode, 1, 1, &[extent(512, 0)]).repeat(2);
        // The first of the two is not the last chunk.
        twice[5] = 0;
        let words = "context 1 was not due";
        assert_lost(mode, Command::BLOCK_STATUS, &[twice], words);
    }
    let miscounted = status(Mode::Extended, 1, 2, &[extent(512, 0)]);
    assert_lost(Mode::Extended, Command::BLOCK_STATUS, &[miscounted], "payload of 24 bytes");
    let one = Request::new(Command::BLOCK_STATUS, 1, 4096, 4096).with(CommandFlags::REQ_ONE);
    for mode in CHUNKED {
        for extents in [&[extent(512, 0), extent(512, 3)][..], &[extent(4097, 0)]] {
            let bytes = status(mode, 1, extents.len() as u32, extents);
            let lines = heard(ear_of(mode, one), &bytes);
            assert!(lines.last().is_some_and(|l| l.contains("was not due")), "{lines:?}");
        }
    }
}

#[test]
fn an_extended_reply_has_to_repeat_the_offset_of_its_request() {
    let mut out = Vec::new();
    Replies::new(Mode::Extended).done(ReplyTo { cookie: 1, offset: 0 }, &mut out);
    let words = "reply to 0x1 repeats offset 0, asked was 4096";
    assert_lost(Mode::Extended, Command::WRITE, &[out], words);
}

#[test]
fn an_unknown_error_type_fails_its_request_and_nothing_else() {
    for mode in CHUNKED {
        let mut payload = Vec::new();
        ErrorChunk { error: 7777, message: b"odd\xff", offset: None }.put(&mut payload);
        payload.extend_from_slice(&[1, 2, 3]);
        let bytes = chunk(mode, ChunkType(0x8077), true, &payload);
        let lines = heard(ear(mode, Command::TRIM), &bytes);
        assert_eq!(lines, ["error 1 EINVAL: odd\u{fffd}", "done 1 EINVAL"]);
    }
}

#[test]
fn an_error_chunk_that_lies_about_its_size_loses_the_stream() {
    for mode in CHUNKED {
        let error = |payload: &[u8], words| {
            let bytes = chunk(mode, ChunkType::ERROR, true, payload);
            assert_lost(mode, Command::TRIM, &[bytes], words);
        };
        error(&[0, 0, 0, 5, 0, 9, b'x'], "its message too long");
        error(&[0, 0, 0, 0, 0, 0], "error chunk without error");
        error(&[0, 0, 0, 5, 0], "payload of 5 bytes");
        error(&[1; 5000], "payload of 5000 bytes");
        let offset = chunk(mode, ChunkType::ERROR_OFFSET, true, &[0, 0, 0, 5, 0, 0, 1]);
        assert_lost(mode, Command::TRIM, &[offset], "its message too long");
    }
}

#[test]
fn a_lost_stream_stays_lost() {
    let mut decoder = Decoder::new(Mode::Simple, None);
    let mut in_flight = std::collections::BTreeMap::new();
    let why = decoder.next(&mut &[0; 16][..], &mut in_flight).expect_err("no magic");
    let reply = SimpleReply { error: 0, cookie: 1 }.encode();
    assert_eq!(decoder.next(&mut &reply[..], &mut in_flight), Err(why));
}

#[test]
fn a_request_too_long_for_its_mode_is_not_encoded() {
    let mut out = Vec::new();
    for (mode, command) in [
        (Mode::Structured, Command::TRIM),
        (Mode::Simple, Command::WRITE_ZEROES),
        (Mode::Extended, Command::READ),
        (Mode::Extended, Command::WRITE),
    ] {
        let request = Request::new(command, 1, 0, 1 << 32);
        let why = Requests::new(mode).push(&request, &mut out).expect_err("too long");
        assert_eq!(
            why.to_string(),
            format!("{command} of 4294967296 bytes exceeds the 4294967295 a request can carry")
        );
    }
    assert!(out.is_empty());
    let trim = Request::new(Command::TRIM, 1, 0, 1 << 32);
    Requests::new(Mode::Extended).push(&trim, &mut out).expect("64 bits");
}

const MODES: [Mode; 3] = [Mode::Simple, Mode::Structured, Mode::Extended];

/// The result of the short cut for these bytes with a READ of 4096 bytes at 4096 in flight, as
/// cookie and bytes of data, and how many bytes it leaves.
fn shortcut(mode: Mode, command: Command, bytes: &[u8]) -> (Option<(u64, usize)>, usize) {
    let mut in_flight = BTreeMap::new();
    let request = Request::new(command, 1, 4096, 4096);
    let pending = Requests::new(mode).push(&request, &mut Vec::new()).expect("it fits");
    in_flight.insert(1, pending);
    let mut input = bytes;
    let taken = Decoder::new(mode, None).whole_read(&mut input, &mut in_flight);
    (taken.map(|(cookie, data)| (cookie, data.len())), input.len())
}

#[test]
fn a_read_that_lies_there_whole_is_taken_at_once_in_every_mode() {
    for mode in MODES {
        let mut bytes = Vec::new();
        Replies::new(mode).read_header(TO, 4096, &mut bytes);
        bytes.resize(bytes.len() + 4096, 7);
        let whole = bytes.len();
        bytes.extend_from_slice(b"next");
        assert_eq!(shortcut(mode, Command::READ, &bytes), (Some((1, 4096)), 4), "{mode:?}");
        for cut in [0, 15, 16, 27, 28, 40, whole - 1] {
            assert_eq!(shortcut(mode, Command::READ, &bytes[..cut]), (None, cut), "{mode:?}");
        }
    }
}

#[test]
fn the_short_cut_leaves_everything_out_of_the_ordinary_alone() {
    for mode in MODES {
        let odd = |put: &dyn Fn(&Replies, &mut Vec<u8>)| {
            let mut bytes = Vec::new();
            put(&Replies::new(mode), &mut bytes);
            bytes.resize(bytes.len() + 4096, 7);
            bytes
        };
        let stranger = ReplyTo { cookie: 2, ..TO };
        let mut strange = vec![
            odd(&|replies, out| replies.error(TO, NbdError::Io, "", out)),
            odd(&|replies, out| replies.read_header(stranger, 4096, out)),
            vec![0; 5000],
        ];
        if mode != Mode::Simple {
            let part = |offset, length, last| Chunk { offset, length, last };
            for chunk in [part(4096, 4096, false), part(4096, 512, true), part(4608, 512, true)] {
                strange.push(odd(&|replies, out| replies.data_header(TO, chunk, out)));
            }
            strange.push(odd(&|replies, out| replies.hole(TO, part(4096, 4096, true), out)));
        }
        for bytes in strange {
            assert_eq!(shortcut(mode, Command::READ, &bytes), (None, bytes.len()), "{bytes:?}");
        }
        let read = odd(&|replies, out| replies.read_header(TO, 4096, out));
        assert_eq!(shortcut(mode, Command::WRITE, &read), (None, read.len()), "{mode:?}");
    }
}

#[test]
fn the_short_cut_stays_closed_once_a_part_of_the_read_has_come() {
    for mode in CHUNKED {
        let mut in_flight = BTreeMap::new();
        let request = Request::new(Command::READ, 1, 4096, 4096);
        let pending = Requests::new(mode).push(&request, &mut Vec::new()).expect("it fits");
        in_flight.insert(1, pending);
        let mut replies = Decoder::new(mode, None);
        let part = data(mode, 4096, 512, false);
        let mut input = &part[..];
        while replies.next(&mut input, &mut in_flight) != Ok(Event::NeedMore) {}
        let whole = data(mode, 4096, 4096, true);
        assert_eq!(replies.whole_read(&mut &whole[..], &mut in_flight), None, "{mode:?}");
    }
}
