//! The check of requests, and the cutting of a batch.

use weir_proto_nbd::NbdError;
use weir_proto_nbd::server::{
    Act, BadMagic, Checked, DRAIN_MAX, Decoded, Export, Geometry, Range, Reject, Requests, Then,
    decode,
};
use weir_proto_nbd::wire::{Command, CommandFlags as F, Mode, Request, TransmissionFlags as T};

const SIZE: u64 = 64 << 20;
const MODES: [Mode; 3] = [Mode::Simple, Mode::Structured, Mode::Extended];

fn geometry(mode: Mode) -> Geometry {
    let export = Export::new("disk", SIZE);
    Geometry {
        mode,
        size: SIZE,
        start: 0,
        minimum_block: 512,
        device_block: 512,
        payload_max: export.block.maximum,
        flags: export.advertised(mode),
        block_status: mode != Mode::Simple,
    }
}

/// A request as a well-behaved client of the mode sends it.
fn request(mode: Mode, command: Command, offset: u64, length: u64) -> Request {
    let request = Request::new(command, 1, offset, length);
    let payload = mode == Mode::Extended && command == Command::WRITE;
    if payload { request.with(F::PAYLOAD_LEN) } else { request }
}

#[track_caller]
fn rejected(geometry: Geometry, request: Request) -> Reject {
    geometry.check(&request).expect_err("not allowed")
}

const RANGED: [Command; 6] = [
    Command::READ,
    Command::WRITE,
    Command::TRIM,
    Command::CACHE,
    Command::WRITE_ZEROES,
    Command::BLOCK_STATUS,
];

fn ranged(mode: Mode) -> impl Iterator<Item = Command> {
    RANGED.into_iter().filter(move |&c| mode != Mode::Simple || c != Command::BLOCK_STATUS)
}

#[test]
fn every_command_is_allowed_in_its_range_and_keeps_its_flags() {
    for mode in MODES {
        let check = |command, flags| {
            geometry(mode).check(&request(mode, command, 512, 1024).with(flags)).expect("allowed")
        };
        let range = Range { offset: 512, length: 1024 };
        assert_eq!(check(Command::READ, F::EMPTY), Checked::Read { range, whole: false });
        assert_eq!(check(Command::WRITE, F::EMPTY), Checked::Write { range, fua: false });
        assert_eq!(check(Command::WRITE, F::FUA), Checked::Write { range, fua: true });
        assert_eq!(check(Command::TRIM, F::FUA), Checked::Trim { range, fua: true });
        assert_eq!(check(Command::CACHE, F::FUA), Checked::Cache { range });
        let all = F::FUA | F::NO_HOLE | F::FAST_ZERO;
        assert_eq!(
            check(Command::WRITE_ZEROES, all),
            Checked::WriteZeroes { range, fua: true, no_hole: true, fast: true }
        );
        if mode != Mode::Simple {
            assert_eq!(check(Command::READ, F::DF), Checked::Read { range, whole: true });
            let one = check(Command::BLOCK_STATUS, F::REQ_ONE);
            assert_eq!(one, Checked::BlockStatus { range, one: true });
        }
        let flush = request(mode, Command::FLUSH, 0, 0);
        assert_eq!(geometry(mode).check(&flush), Ok(Checked::Flush));
        assert_eq!(geometry(mode).check(&flush.with(F::FUA)), Ok(Checked::Flush));
    }
}

#[test]
fn a_disconnect_is_one_whatever_its_fields_hold() {
    for mode in MODES {
        let disc = Request::new(Command::DISC, 1, u64::MAX, 7).with(F::from_bits(0x8002));
        assert_eq!(geometry(mode).check(&disc), Ok(Checked::Disconnect));
    }
}

#[test]
fn an_unknown_command_or_flag_gets_einval() {
    for mode in MODES {
        for command in [Command::RESIZE, Command(9), Command(0xffff)] {
            let reject = rejected(geometry(mode), request(mode, command, 0, 512));
            assert_eq!((reject.error, reject.then), (NbdError::Inval, Then::Drain(0)));
            assert!(reject.to_string().starts_with("EINVAL: unknown command"), "{reject}");
        }
        for command in ranged(mode).chain([Command::FLUSH]) {
            for bit in 0..16 {
                let flag = F::from_bits(1 << bit);
                let valid = match command {
                    _ if flag == F::FUA => true,
                    Command::READ => flag == F::DF && mode != Mode::Simple,
                    Command::WRITE => flag == F::PAYLOAD_LEN && mode == Mode::Extended,
                    Command::WRITE_ZEROES => flag == F::NO_HOLE || flag == F::FAST_ZERO,
                    Command::BLOCK_STATUS => flag == F::REQ_ONE,
                    _ => false,
                };
                let length = if command == Command::FLUSH { 0 } else { 512 };
                let checked = geometry(mode).check(&request(mode, command, 0, length).with(flag));
                let error = checked.err().map(|reject| reject.error);
                let expected = (!valid).then_some(NbdError::Inval);
                assert_eq!(error, expected, "{mode:?} {command} {flag:?}");
            }
        }
    }
}

#[test]
fn what_the_export_does_not_offer_gets_einval() {
    for mode in MODES {
        let mut bare = geometry(mode);
        bare.flags = T::HAS_FLAGS;
        bare.block_status = false;
        for command in [Command::FLUSH, Command::TRIM, Command::WRITE_ZEROES, Command::BLOCK_STATUS]
        {
            let length = if command == Command::FLUSH { 0 } else { 512 };
            let reject = rejected(bare, request(mode, command, 0, length));
            assert_eq!(reject.error, NbdError::Inval, "{command}");
        }
        let fua = request(mode, Command::WRITE, 0, 512).with(F::FUA);
        assert_eq!(rejected(bare, fua).error, NbdError::Inval);
        let df = request(mode, Command::READ, 0, 512).with(F::DF);
        assert_eq!(rejected(bare, df).error, NbdError::Inval);
        let hint = request(mode, Command::CACHE, 0, 512);
        assert!(bare.check(&hint).is_ok(), "clients send CACHE without being offered it");
        let mut slow = geometry(mode);
        slow.flags = slow.flags.without(T::SEND_FAST_ZERO);
        let fast = request(mode, Command::WRITE_ZEROES, 0, 512).with(F::FAST_ZERO);
        assert_eq!(rejected(slow, fast).error, NbdError::Inval);
    }
}

#[test]
fn an_empty_or_misaligned_range_gets_einval_and_its_payload_is_dropped() {
    for mode in MODES {
        for command in ranged(mode) {
            for (offset, length) in [(0, 0), (1, 512), (512, 513), (0, 511), (u64::MAX, 512)] {
                let reject = rejected(geometry(mode), request(mode, command, offset, length));
                assert_eq!(reject.error, NbdError::Inval, "{command} {offset} {length}");
                let payload = if command == Command::WRITE { length as u32 } else { 0 };
                assert_eq!(reject.then, Then::Drain(payload));
            }
        }
    }
}

#[test]
fn a_range_inside_a_block_is_told_apart_where_the_export_takes_it() {
    for mode in MODES {
        for device_block in [512, 4096] {
            let fine = Geometry { minimum_block: 1, device_block, ..geometry(mode) };
            for command in ranged(mode) {
                let fua = if command == Command::READ { F::EMPTY } else { F::FUA };
                for (offset, length) in [(1, 512), (512, 513), (4096, 1), (4095, 4097)] {
                    let request = request(mode, command, offset, length).with(fua);
                    let checked = fine.check(&request).expect("allowed");
                    let Checked::Unaligned { range, act } = checked else { panic!("{checked:?}") };
                    assert_eq!(range, Range { offset, length });
                    let expected = match command {
                        Command::READ => Act::Read { whole: false },
                        Command::WRITE => Act::Write { fua: true },
                        Command::TRIM => Act::Trim { fua: true },
                        Command::CACHE => Act::Cache,
                        Command::WRITE_ZEROES => {
                            Act::WriteZeroes { fua: true, no_hole: false, fast: false }
                        }
                        _ => Act::BlockStatus { one: false },
                    };
                    assert_eq!(act, expected);
                }
                let whole = fine.check(&request(mode, command, 4096, 8192)).expect("allowed");
                assert!(!matches!(whole, Checked::Unaligned { .. }), "{whole:?}");
                for (offset, length) in [(1, 0), (0, 0), (SIZE - 1, 2), (u64::MAX, 1)] {
                    let reject = rejected(fine, request(mode, command, offset, length));
                    let writes = command == Command::WRITE || command == Command::WRITE_ZEROES;
                    let past = writes && length > 0;
                    let error = if past { NbdError::NoSpc } else { NbdError::Inval };
                    assert_eq!(reject.error, error, "{command} {offset} {length}");
                }
            }
            let coarse = Geometry { minimum_block: 1024, device_block, ..geometry(mode) };
            let read = |offset, length| request(mode, Command::READ, offset, length);
            assert_eq!(rejected(coarse, read(512, 1024)).error, NbdError::Inval);
            let unaligned = coarse.check(&read(1024, 1024)).expect("allowed");
            let is_it = matches!(unaligned, Checked::Unaligned { .. });
            assert_eq!(is_it, device_block == 4096, "{unaligned:?}");
        }
    }
}

#[test]
fn past_the_end_a_write_gets_enospc_and_everything_else_einval() {
    for mode in MODES {
        for command in ranged(mode) {
            for (offset, length) in
                [(SIZE, 512), (SIZE - 512, 1024), (!511, 512), (!511, 1024), (1 << 63, 512)]
            {
                let reject = rejected(geometry(mode), request(mode, command, offset, length));
                let writes = command == Command::WRITE || command == Command::WRITE_ZEROES;
                let expected = if writes { NbdError::NoSpc } else { NbdError::Inval };
                assert_eq!(reject.error, expected, "{command} {offset} {length}");
            }
            let last = request(mode, command, SIZE - 512, 512);
            assert!(geometry(mode).check(&last).is_ok(), "the last block is inside");
        }
    }
}

#[test]
fn writes_of_every_kind_on_a_read_only_export_get_eperm() {
    for mode in MODES {
        let mut export = Export::new("disk", SIZE);
        export.flags = export.flags | T::READ_ONLY;
        let read_only = Geometry { flags: export.advertised(mode), ..geometry(mode) };
        for command in [Command::WRITE, Command::TRIM, Command::WRITE_ZEROES] {
            let reject = rejected(read_only, request(mode, command, 0, 512));
            assert_eq!(reject.error, NbdError::Perm, "{command}");
        }
        for command in [Command::READ, Command::CACHE] {
            assert!(read_only.check(&request(mode, command, 0, 512)).is_ok(), "{command}");
        }
    }
}

#[test]
fn a_client_is_told_only_what_its_mode_and_the_export_allow() {
    let told = |flags, mode| {
        let mut export = Export::new("disk", SIZE);
        export.flags = flags;
        export.advertised(mode)
    };
    let all = T::KNOWN.without(T::READ_ONLY);
    let writable = all.without(T::SEND_RESIZE | T::BLOCK_STATUS_PAYLOAD);
    assert_eq!(told(all, Mode::Structured), writable);
    assert_eq!(told(all, Mode::Extended), writable);
    assert_eq!(told(all, Mode::Simple), writable.without(T::SEND_DF));
    assert_eq!(told(T::EMPTY, Mode::Simple), T::HAS_FLAGS);
    assert_eq!(told(T::SEND_FAST_ZERO, Mode::Simple), T::HAS_FLAGS);
    let writes = T::SEND_TRIM | T::SEND_WRITE_ZEROES | T::SEND_FAST_ZERO;
    let read_only = writable.without(writes) | T::READ_ONLY;
    assert_eq!(told(T::KNOWN, Mode::Extended), read_only);
}

#[test]
fn a_flush_with_a_range_gets_einval() {
    for (offset, length) in [(0, 512), (512, 0)] {
        let flush = Request::new(Command::FLUSH, 1, offset, length);
        assert_eq!(rejected(geometry(Mode::Simple), flush).error, NbdError::Inval);
    }
}

#[test]
fn a_read_longer_than_the_maximum_overflows_and_other_ranges_may_be_long() {
    for mode in MODES {
        let long = u64::from(DRAIN_MAX) + 512;
        let reject = rejected(geometry(mode), request(mode, Command::READ, 0, long));
        assert_eq!((reject.error, reject.then), (NbdError::Overflow, Then::Drain(0)));
        for command in ranged(mode).filter(|&c| c != Command::READ && c != Command::WRITE) {
            assert!(geometry(mode).check(&request(mode, command, 0, SIZE)).is_ok(), "{command}");
        }
    }
    let boundless = Geometry {
        payload_max: u32::MAX,
        size: u64::MAX,
        minimum_block: 1,
        ..geometry(Mode::Structured)
    };
    let read = Request::new(Command::READ, 1, 0, u64::from(u32::MAX));
    let reject = rejected(boundless, read);
    assert_eq!(reject.error, NbdError::Overflow, "a chunk cannot count more than 2^32 - 8");
}

#[test]
fn a_payload_too_long_is_dropped_up_to_a_bound_and_ends_the_session_above() {
    for mode in MODES {
        let small = Geometry { payload_max: 1 << 20, ..geometry(mode) };
        for (length, then) in [
            ((1 << 20) + 512, Then::Drain((1 << 20) + 512)),
            (u64::from(DRAIN_MAX), Then::Drain(DRAIN_MAX)),
            (u64::from(DRAIN_MAX) + 1, Then::Close),
            (u64::from(u32::MAX), Then::Close),
        ] {
            let reject = rejected(small, request(mode, Command::WRITE, 0, length));
            assert_eq!((reject.error, reject.then), (NbdError::Inval, then), "{length}");
        }
        let longest = request(mode, Command::WRITE, 0, 1 << 20);
        assert!(small.check(&longest).is_ok(), "the bound itself is allowed");
        let large = Geometry { payload_max: 64 << 20, ..geometry(mode) };
        let write = request(mode, Command::WRITE, 512, 64 << 20);
        assert_eq!(rejected(large, write).then, Then::Drain(64 << 20), "the bound of the export");
    }
}

#[test]
fn with_extended_headers_the_flag_decides_about_the_payload() {
    let mode = Mode::Extended;
    let bare = Request::new(Command::WRITE, 1, 0, 512);
    assert_eq!(bare.payload_len(mode), 0);
    let reject = rejected(geometry(mode), bare);
    assert_eq!((reject.error, reject.then), (NbdError::Inval, Then::Drain(0)));
    for command in ranged(mode).filter(|&c| c != Command::WRITE).chain([Command(99)]) {
        let loaded = Request::new(command, 1, 0, 512).with(F::PAYLOAD_LEN);
        assert_eq!(loaded.payload_len(mode), 512);
        let reject = rejected(geometry(mode), loaded);
        assert_eq!((reject.error, reject.then), (NbdError::Inval, Then::Drain(512)), "{command}");
        let hostile = Request { length: u64::MAX, ..loaded };
        assert_eq!(rejected(geometry(mode), hostile).then, Then::Close);
    }
    let compact = Request::new(Command::READ, 1, 0, 512).with(F::PAYLOAD_LEN);
    assert_eq!(compact.payload_len(Mode::Structured), 0, "compact requests know no such flag");
}

#[test]
fn a_batch_is_cut_behind_its_last_whole_header() {
    let mut bytes = Vec::new();
    for (cookie, command, length) in
        [(1, Command::READ, 4096), (2, Command::WRITE, 8), (3, Command::FLUSH, 0)]
    {
        Request::new(command, cookie, 0, length).put_compact(&mut bytes).expect("32 bits");
        if command == Command::WRITE {
            bytes.extend_from_slice(b"12345678");
        }
    }
    let whole = bytes.len();
    for len in 0..=whole {
        let mut requests = Requests::new(Mode::Simple, &bytes[..len]);
        let cookies: Vec<u64> =
            requests.by_ref().map(|r| r.expect("in step").request.cookie).collect();
        let (expected, consumed) = match len {
            0..28 => (vec![], 0),
            28..56 => (vec![1], 28),
            56..64 => (vec![1, 2], len),
            64..92 => (vec![1, 2], 64),
            _ => (vec![1, 2, 3], 92),
        };
        assert_eq!((cookies, requests.consumed()), (expected, consumed), "{len} bytes");
    }
}

#[test]
fn a_write_in_part_says_what_is_here_and_what_is_missing() {
    let mut bytes = Vec::new();
    Request::new(Command::WRITE, 7, 0, 4096).put_compact(&mut bytes).expect("32 bits");
    bytes.extend_from_slice(b"some");
    let mut requests = Requests::new(Mode::Structured, &bytes);
    let write = requests.next().expect("a header").expect("in step");
    assert_eq!((write.payload, write.missing), (&b"some"[..], 4092));
    assert_eq!(requests.consumed(), bytes.len());
    assert!(requests.next().is_none());
}

#[test]
fn a_wrong_magic_is_known_by_its_first_four_bytes_and_comes_once() {
    let mut extended = Vec::new();
    Request::new(Command::READ, 1, 0, 512).put_extended(&mut extended);
    let bad = BadMagic { found: 0x21e4_1c71, expected: 0x2560_9513 };
    assert_eq!(decode(Mode::Structured, &extended[..4]), Decoded::BadMagic(bad));
    assert_eq!(decode(Mode::Structured, &extended[..3]), Decoded::NeedMore);
    assert_eq!(bad.to_string(), "request starts with 0x21e41c71, not with 0x25609513");
    let all: Vec<_> = Requests::new(Mode::Structured, &extended).collect();
    assert_eq!(all, [Err(bad)]);
}
