//! Handshakes off the straight path: fallbacks of the client, patience of the server.

mod peer;

use peer::{Server, exports};
use weir_proto_nbd::client::{self, HandshakeError, ServerInfo, Wanted};
use weir_proto_nbd::server::{CloseReason, Handshake, Offer, Settings, Step};
use weir_proto_nbd::wire::{
    BASE_ALLOCATION, BlockSizes, ClientFlags, ExportSize, Greeting, HandshakeFlags, InfoType,
    MetaContext, Mode, OPTION_DATA_MAX, OptionCode, OptionHeader, OptionReplyCode,
    OptionReplyHeader, TransmissionFlags, put_block_sizes, put_export_name_reply, put_export_size,
    put_info_query, put_meta_query, put_option, put_option_reply,
};

/// Runs weir's client against weir's server until the client is ready.
fn negotiate(settings: Settings, wanted: Wanted) -> (Result<ServerInfo, HandshakeError>, Server) {
    let mut to_client = Vec::new();
    let mut to_server = Vec::new();
    let mut server = Server::new(settings, &mut to_client);
    let mut handshake = client::Handshake::new(wanted).expect("a name");
    for _ in 0..100 {
        let input = handshake.input(&to_client, &mut to_server);
        to_client.drain(..input.consumed);
        if input.step == client::Step::StartTls {
            handshake.secured(&mut to_server);
        }
        server.input(&to_server, &mut to_client);
        to_server.clear();
        match input.step {
            client::Step::NeedMore | client::Step::StartTls => {}
            client::Step::Ready(info) => return (Ok(info), server),
            client::Step::Failed(why) => return (Err(why), server),
        }
    }
    panic!("the handshake waits for {}", handshake.waiting_for());
}

#[test]
fn both_ends_agree_on_the_best_that_both_want() {
    let yes_and_no = [true, false];
    for (structured, extended) in yes_and_no.iter().flat_map(|&s| yes_and_no.map(|e| (s, e))) {
        let settings = Settings { structured, extended, ..Settings::default() };
        for wanted in [Wanted::everything("disk"), Wanted::nothing("disk"), Wanted::everything("")]
        {
            let expected = match (extended && wanted.extended, structured && wanted.structured) {
                (true, _) => Mode::Extended,
                (false, true) => Mode::Structured,
                (false, false) => Mode::Simple,
            };
            let (info, server) = negotiate(settings, wanted.clone());
            let info = info.expect("the export is there");
            let agreed = server.negotiated().expect("both are in transmission");
            assert_eq!(info.mode, expected, "{settings:?} {wanted:?}");
            assert_eq!(
                (agreed.mode, agreed.size, agreed.flags, agreed.block, agreed.allocation),
                (info.mode, info.size, info.flags, info.block, info.allocation)
            );
            assert_eq!(agreed.allocation.is_some(), expected != Mode::Simple);
            assert_eq!((agreed.name.as_str(), agreed.export), ("disk", 0));
        }
    }
}

#[test]
fn an_export_without_allocation_grants_no_context() {
    let (info, server) = negotiate(Settings::default(), Wanted::everything("spare"));
    assert_eq!(info.expect("the export is there").allocation, None);
    assert!(server.negotiated().expect("transmission").is_read_only());
}

#[test]
fn a_client_that_is_refused_its_export_leaves_with_abort() {
    let (info, server) = negotiate(Settings::default(), Wanted::everything("nope"));
    let why = info.expect_err("there is no such export");
    assert_eq!(
        why.to_string(),
        "server refuses option GO with ERR_UNKNOWN: \"no export of that name is served here\""
    );
    assert_eq!(server.closed, Some(CloseReason::Aborted));
}

/// A server older than GO: what the client says is answered by hand.
struct OldServer {
    client: client::Handshake,
    said: Vec<u8>,
}

impl OldServer {
    fn greet(flags: HandshakeFlags) -> Self {
        let client = client::Handshake::new(Wanted::everything("disk")).expect("a name");
        let mut old = Self { client, said: Vec::new() };
        old.say(|out| Greeting { flags }.put(out));
        let answer = old.said.drain(..4).collect::<Vec<u8>>();
        assert_eq!(u32::from_be_bytes(answer.try_into().expect("four")), u32::from(flags.bits()));
        old
    }

    fn say(&mut self, bytes: impl FnOnce(&mut Vec<u8>)) -> client::Step {
        let mut out = Vec::new();
        bytes(&mut out);
        self.client.input(&out, &mut self.said).step
    }

    /// Which option the client has sent.
    fn asked(&mut self) -> OptionCode {
        let said = std::mem::take(&mut self.said);
        let header = OptionHeader::decode(&said).expect("one option");
        assert_eq!(said.len(), OptionHeader::LEN + header.length as usize, "one option at a time");
        header.code
    }

    fn reply(&mut self, option: OptionCode, code: OptionReplyCode) -> client::Step {
        self.say(|out| put_option_reply(out, option, code, |_| ()))
    }
}

const BOTH: HandshakeFlags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);
const EXPORT: ExportSize = ExportSize { size: 1 << 20, flags: TransmissionFlags::HAS_FLAGS };

#[test]
fn a_client_falls_back_to_export_name_where_nothing_else_is_known() {
    let mut old = OldServer::greet(BOTH);
    for option in [OptionCode::EXTENDED_HEADERS, OptionCode::STRUCTURED_REPLY, OptionCode::GO] {
        assert_eq!(old.asked(), option);
        assert_eq!(old.reply(option, OptionReplyCode::ERR_UNSUP), client::Step::NeedMore);
    }
    assert_eq!(old.asked(), OptionCode::EXPORT_NAME);
    assert!(old.client.waiting_for().contains("without an export \"disk\" answers by closing"));
    let step = old.say(|out| put_export_name_reply(out, EXPORT, true));
    let client::Step::Ready(info) = step else { panic!("{step:?}") };
    assert_eq!(
        (info.size, info.mode, info.block),
        (1 << 20, Mode::Simple, BlockSizes::UNADVERTISED)
    );
}

#[test]
fn a_server_before_fixed_newstyle_is_asked_for_nothing_but_its_export() {
    let mut old = OldServer::greet(HandshakeFlags::EMPTY);
    assert_eq!(old.asked(), OptionCode::EXPORT_NAME);
    let step = old.say(|out| out.extend_from_slice(&[0; 100]));
    assert_eq!(step, client::Step::NeedMore, "the zeroes belong to the answer");
    let mut old = OldServer::greet(HandshakeFlags::EMPTY);
    let step = old.say(|out| put_export_name_reply(out, EXPORT, false));
    assert!(matches!(step, client::Step::Ready(_)), "{step:?}");
}

#[test]
fn a_server_that_granted_extended_headers_may_not_be_asked_for_export_name() {
    let mut old = OldServer::greet(BOTH);
    old.reply(OptionCode::EXTENDED_HEADERS, OptionReplyCode::ACK);
    old.reply(OptionCode::SET_META_CONTEXT, OptionReplyCode::ERR_UNKNOWN);
    old.said.clear();
    let step = old.reply(OptionCode::GO, OptionReplyCode::ERR_UNSUP);
    assert!(matches!(step, client::Step::Failed(HandshakeError::Refused { .. })), "{step:?}");
    assert_eq!(old.asked(), OptionCode::ABORT);
}

#[test]
fn a_context_named_before_an_error_does_not_count() {
    let mut old = OldServer::greet(BOTH);
    old.reply(OptionCode::EXTENDED_HEADERS, OptionReplyCode::ACK);
    old.say(|out| {
        put_option_reply(out, OptionCode::SET_META_CONTEXT, OptionReplyCode::META_CONTEXT, |out| {
            out.extend_from_slice(&[0, 0, 0, 9]);
            out.extend_from_slice(BASE_ALLOCATION.as_bytes());
        });
    });
    old.reply(OptionCode::SET_META_CONTEXT, OptionReplyCode::ERR_TOO_BIG);
    old.say(|out| {
        put_option_reply(out, OptionCode::GO, OptionReplyCode::INFO, |out| {
            put_export_size(out, EXPORT);
        });
    });
    let step = old.reply(OptionCode::GO, OptionReplyCode::ACK);
    let client::Step::Ready(info) = step else { panic!("{step:?}") };
    assert_eq!((info.mode, info.allocation), (Mode::Extended, None));
}

/// The error of a client whose server answers its GO with these bytes.
fn after_go(bytes: impl FnOnce(&mut Vec<u8>)) -> HandshakeError {
    let mut old = OldServer::greet(BOTH);
    old.reply(OptionCode::EXTENDED_HEADERS, OptionReplyCode::ERR_UNSUP);
    old.reply(OptionCode::STRUCTURED_REPLY, OptionReplyCode::ERR_UNSUP);
    let step = old.say(bytes);
    let client::Step::Failed(why) = step else { panic!("{step:?}") };
    let again = old.say(|out| out.push(0));
    assert_eq!(again, client::Step::Failed(HandshakeError::Over), "a failure is final");
    why
}

#[test]
fn a_hostile_server_is_told_from_a_slow_one_by_a_clear_error() {
    use OptionCode as O;
    use OptionReplyCode as R;
    let info = |out: &mut Vec<u8>, sizes: BlockSizes| {
        put_option_reply(out, O::GO, R::INFO, |out| put_export_size(out, EXPORT));
        put_option_reply(out, O::GO, R::INFO, |out| put_block_sizes(out, sizes));
        put_option_reply(out, O::GO, R::ACK, |_| ());
    };
    let four_gib = |out: &mut Vec<u8>| {
        put_option_reply(out, O::GO, R::INFO, |_| ());
        let len = out.len();
        out[len - 4..].copy_from_slice(&u32::MAX.to_be_bytes());
    };
    let flags = TransmissionFlags::SEND_FLUSH;
    let cases: [(HandshakeError, &str); 9] = [
        (after_go(|out| out.extend_from_slice(&[7; 20])), "option reply starts with 0x0707070707"),
        (
            after_go(|out| put_option_reply(out, O::LIST, R::ACK, |_| ())),
            "server answers option LIST, asked was GO",
        ),
        (after_go(four_gib), "4294967295 bytes of data, the bound is 16384"),
        (after_go(|out| put_option_reply(out, O::GO, R::ACK, |_| ())), "without telling the size"),
        (
            after_go(|out| put_option_reply(out, O::GO, R::SERVER, |out| out.push(1))),
            "reply SERVER with 1 bytes does not fit option GO",
        ),
        (
            after_go(|out| {
                put_option_reply(out, O::GO, R::INFO, |out| {
                    put_export_size(out, EXPORT);
                    out.push(0);
                });
            }),
            "reply INFO with 13 bytes does not fit option GO",
        ),
        (
            after_go(|out| info(out, BlockSizes { minimum: 3, preferred: 4096, maximum: 1 << 20 })),
            "block sizes minimum 3,",
        ),
        (
            after_go(|out| {
                let export = ExportSize { size: 1, flags };
                put_option_reply(out, O::GO, R::INFO, |out| put_export_size(out, export));
                put_option_reply(out, O::GO, R::ACK, |_| ());
            }),
            "lack HAS_FLAGS",
        ),
        (
            after_go(|out| {
                for _ in 0..=client::REPLIES_MAX {
                    put_option_reply(out, O::GO, R::INFO, |out| put_export_size(out, EXPORT));
                }
            }),
            "more than 1000 replies to option GO",
        ),
    ];
    for (why, words) in cases {
        assert!(why.to_string().contains(words), "{why} does not say {words:?}");
    }
}

#[test]
fn a_client_knows_an_oldstyle_server_and_one_that_is_not_nbd() {
    for (greeting, words) in [
        (*b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\x00\x00", "oldstyle"),
        (*b"SSH-2.0-OpenSSH_9.", "not an NBD server"),
    ] {
        let mut handshake = client::Handshake::new(Wanted::nothing("")).expect("a name");
        let step = handshake.input(&greeting, &mut Vec::new()).step;
        let client::Step::Failed(why) = step else { panic!("{step:?}") };
        assert!(why.to_string().contains(words), "{why}");
    }
}

/// A server's handshake behind the greeting and the client's flags.
fn begun(settings: Settings) -> (Handshake<Vec<weir_proto_nbd::server::Export>>, Vec<u8>) {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(exports(), settings, &mut out);
    let input = handshake.input(&[0, 0, 0, 3], &mut out);
    assert_eq!((input.consumed, input.step), (4, Step::NeedMore));
    out.clear();
    (handshake, out)
}

fn option(code: OptionCode, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_option(&mut bytes, code, |out| out.extend_from_slice(data));
    bytes
}

#[test]
fn ten_thousand_options_at_once_end_the_session_and_never_pile_up_answers() {
    let (mut handshake, mut out) = begun(Settings::default());
    let one = option(OptionCode::LIST, &[]);
    let mut bytes = &one.repeat(10_000)[..];
    let mut answered = 0;
    let why = loop {
        out.clear();
        let input = handshake.input(bytes, &mut out);
        bytes = &bytes[input.consumed..];
        assert!(out.len() < 256, "{} bytes of answers to one option", out.len());
        assert!(handshake.held_bytes() < 256, "{} bytes held", handshake.held_bytes());
        match input.step {
            Step::Answered => answered += 1,
            Step::Close(why) => break why,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!((answered, &why), (1000, &CloseReason::TooManyOptions(1000)));
    assert_eq!(why.to_string(), "client sent more than 1000 options");
    let input = handshake.input(bytes, &mut out);
    assert_eq!((input.consumed, input.step), (0, Step::Close(CloseReason::Over)));
}

#[test]
fn an_option_of_four_gib_ends_the_session_without_memory() {
    let (mut handshake, mut out) = begun(Settings::default());
    let mut bytes = option(OptionCode(99), &[]);
    bytes[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    let step = handshake.input(&bytes, &mut out).step;
    let Step::Close(why) = step else { panic!("{step:?}") };
    assert_eq!(why.to_string(), "data of option 0x63 has 4294967295 bytes, the bound is 1048576");
    assert!(handshake.held_bytes() < 256 && out.is_empty());
}

#[test]
fn option_data_too_long_to_keep_is_dropped_and_the_stream_goes_on() {
    let (mut handshake, mut out) = begun(Settings::default());
    let data = vec![b'x'; OPTION_DATA_MAX as usize + 1];
    for (code, answer) in [
        (OptionCode::INFO, OptionReplyCode::ERR_TOO_BIG),
        (OptionCode(99), OptionReplyCode::ERR_UNSUP),
    ] {
        out.clear();
        let bytes = option(code, &data);
        for piece in bytes.chunks(1000) {
            let input = handshake.input(piece, &mut out);
            assert_eq!(input.consumed, piece.len());
        }
        let header = OptionReplyHeader::decode(&out).expect("an answer");
        assert_eq!((header.option, header.code), (code, answer));
        assert!(handshake.held_bytes() < 256, "{} bytes held", handshake.held_bytes());
    }
    out.clear();
    handshake.input(&option(OptionCode::LIST, &[]), &mut out);
    let header = OptionReplyHeader::decode(&out).expect("an answer");
    assert_eq!(header.code, OptionReplyCode::SERVER);
}

#[test]
fn every_client_that_cannot_be_answered_is_closed_with_its_reason() {
    let close = |bytes: &[u8]| {
        let (mut handshake, mut out) = begun(Settings::default());
        let mut rest = bytes;
        loop {
            let input = handshake.input(rest, &mut out);
            rest = &rest[input.consumed..];
            match input.step {
                Step::Answered => {}
                Step::Close(why) => return why.to_string(),
                step => panic!("{step:?}"),
            }
        }
    };
    let extended = option(OptionCode::EXTENDED_HEADERS, &[]);
    for (bytes, words) in [
        (vec![b'G'; 16], "option starts with 0x4747474747474747, not with 0x49484156454f5054"),
        (option(OptionCode::EXPORT_NAME, b"nope"), "no export is named \"nope\""),
        (option(OptionCode::EXPORT_NAME, b"a\0b"), "export name: string has a NUL at byte 1"),
        (option(OptionCode::EXPORT_NAME, b"a\xff"), "export name: string is not UTF-8 at byte 1"),
        (option(OptionCode::EXPORT_NAME, &[b'x'; 4097]), "has 4097 bytes, the bound is 4096"),
        (
            [extended, option(OptionCode::EXPORT_NAME, b"disk")].concat(),
            "forbidden once extended headers are agreed on",
        ),
        (option(OptionCode::ABORT, b"ignored"), "client aborted the handshake"),
    ] {
        let why = close(&bytes);
        assert!(why.contains(words), "{why} does not say {words:?}");
    }
}

#[test]
fn unknown_client_flags_end_the_session() {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(exports(), Settings::default(), &mut out);
    let step = handshake.input(&[0, 0, 0, 7], &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::ClientFlags(ClientFlags::from_bits(7))));
}

#[test]
fn a_server_without_exports_has_no_default() {
    let mut out = Vec::new();
    let mut handshake = Handshake::new(Vec::new(), Settings::default(), &mut out);
    handshake.input(&[0, 0, 0, 3], &mut out);
    let step = handshake.input(&option(OptionCode::EXPORT_NAME, b""), &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::UnknownExport(String::new())));
}

/// The type of the first answer to GO, and what the step was.
fn go(offers: &[Offer], name: &str) -> (u32, Step, Option<String>) {
    let (handshake, mut out) = begun(Settings::default());
    let mut handshake = handshake.offering(offers.into());
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&[0, 0]);
    let step = handshake.input(&option(OptionCode::GO, &data), &mut out).step;
    let kind = u32::from_be_bytes(out[12..16].try_into().expect("four bytes"));
    (kind, step, handshake.take_refused())
}

#[test]
fn an_export_is_refused_to_who_may_not_use_it_and_is_not_there_where_it_is_not_served() {
    use Offer::{Absent, Refused, Served};
    let refused = |name: &str| Some(name.to_owned());
    let (policy, unknown) = (0x8000_0002, 0x8000_0006);
    for (offers, name, kind, told) in [
        (&[Refused, Served][..], "disk", policy, refused("disk")),
        // The default is not another disk because the first one is refused.
        (&[Refused, Served], "", policy, refused("disk")),
        (&[Absent, Served], "disk", unknown, None),
        (&[Absent, Refused], "", policy, refused("spare")),
        (&[Absent, Absent], "", unknown, None),
    ] {
        let (answer, step, refused) = go(offers, name);
        assert_eq!((answer, refused), (kind, told), "{offers:?} {name:?}");
        assert_eq!(step, Step::Answered);
    }
    let (_, step, refused) = go(&[Absent, Served], "");
    let Step::Transmission(agreed) = step else { panic!("{step:?}") };
    assert_eq!((agreed.export, refused), (1, None));
}

#[test]
fn lists_leave_out_what_is_refused_and_export_name_ends_the_session_over_it() {
    let (handshake, mut out) = begun(Settings::default());
    let mut handshake = handshake.offering([Offer::Refused, Offer::Served].into());
    handshake.input(&option(OptionCode::LIST, &[]), &mut out);
    let listed = |name: &[u8]| out.windows(name.len()).any(|bytes| bytes == name);
    assert!(listed(b"spare") && !listed(b"disk"), "{out:x?}");
    let step = handshake.input(&option(OptionCode::EXPORT_NAME, b"disk"), &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::NotAllowed("disk".to_owned())));
    assert_eq!(handshake.take_refused().as_deref(), Some("disk"));
    assert_eq!(handshake.take_refused(), None);
    let (handshake, mut out) = begun(Settings::default());
    let mut handshake = handshake.offering([Offer::Absent].into());
    let step = handshake.input(&option(OptionCode::EXPORT_NAME, b"disk"), &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::UnknownExport("disk".to_owned())));
}

#[test]
fn half_a_handshake_waits() {
    let (mut handshake, mut out) = begun(Settings::default());
    let bytes = option(OptionCode::LIST, &[]);
    let input = handshake.input(&bytes[..15], &mut out);
    assert_eq!((input.consumed, input.step), (15, Step::NeedMore));
    assert_eq!(handshake.input(&[], &mut out).step, Step::NeedMore);
    assert!(out.is_empty());
    assert_eq!(handshake.input(&bytes[15..], &mut out).step, Step::Answered);
}

#[test]
fn while_shutting_down_every_option_but_abort_is_turned_away() {
    let (mut handshake, mut out) = begun(Settings::default());
    handshake.shut_down();
    for code in [OptionCode::GO, OptionCode::LIST, OptionCode(99), OptionCode::STRUCTURED_REPLY] {
        out.clear();
        handshake.input(&option(code, b""), &mut out);
        let header = OptionReplyHeader::decode(&out).expect("an answer");
        assert_eq!(header.code, OptionReplyCode::ERR_SHUTDOWN);
    }
    let step = handshake.input(&option(OptionCode::ABORT, b""), &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::Aborted));
    let (mut handshake, mut out) = begun(Settings::default());
    handshake.shut_down();
    let step = handshake.input(&option(OptionCode::EXPORT_NAME, b"disk"), &mut out).step;
    assert_eq!(step, Step::Close(CloseReason::Shutdown));
}

/// Which context a client ends up with after these options and a GO for "disk".
fn context_after(options: &[Vec<u8>]) -> Option<u32> {
    let (mut handshake, mut out) = begun(Settings::default());
    handshake.input(&option(OptionCode::STRUCTURED_REPLY, &[]), &mut out);
    for bytes in options {
        assert_eq!(handshake.input(bytes, &mut out).step, Step::Answered);
    }
    let mut go = Vec::new();
    put_option(&mut go, OptionCode::GO, |out| put_info_query(out, "disk", &[InfoType::NAME]));
    let step = handshake.input(&go, &mut out).step;
    let Step::Transmission(agreed) = step else { panic!("{step:?}") };
    agreed.allocation
}

fn set_meta(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_option(&mut bytes, OptionCode::SET_META_CONTEXT, |out| put_meta_query(out, name, queries));
    bytes
}

#[test]
fn the_last_selection_counts_and_only_for_the_export_that_is_entered() {
    let selected = set_meta("disk", &[BASE_ALLOCATION]);
    assert!(context_after(std::slice::from_ref(&selected)).is_some());
    assert!(context_after(&[set_meta("", &[BASE_ALLOCATION])]).is_some(), "the default export");
    for (later, why) in [
        (set_meta("disk", &[]), "no query selects nothing"),
        (set_meta("disk", &["base:", "base:other", "qemu:x", ""]), "none of them is a context"),
        (set_meta("spare", &[BASE_ALLOCATION]), "selected for another export"),
        (set_meta("nope", &[BASE_ALLOCATION]), "a failure replaces the selection too"),
        (option(OptionCode::SET_META_CONTEXT, b"x"), "a malformed one as well"),
        (option(OptionCode::SET_META_CONTEXT, &vec![0; 65537]), "and one too long to keep"),
    ] {
        assert_eq!(context_after(&[selected.clone(), later]), None, "{why}");
    }
}

#[test]
fn a_query_count_beyond_its_data_is_refused_at_once() {
    let (mut handshake, mut out) = begun(Settings::default());
    handshake.input(&option(OptionCode::STRUCTURED_REPLY, &[]), &mut out);
    out.clear();
    let mut data = Vec::new();
    put_meta_query(&mut data, "disk", &[BASE_ALLOCATION]);
    data[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    handshake.input(&option(OptionCode::SET_META_CONTEXT, &data), &mut out);
    let header = OptionReplyHeader::decode(&out).expect("an answer");
    assert_eq!(header.code, OptionReplyCode::ERR_INVALID);
}

#[test]
fn a_context_is_named_once_however_often_it_is_asked_for() {
    let (mut handshake, mut out) = begun(Settings::default());
    handshake.input(&option(OptionCode::STRUCTURED_REPLY, &[]), &mut out);
    out.clear();
    handshake.input(&set_meta("disk", &[BASE_ALLOCATION; 9]), &mut out);
    let context = MetaContext::decode(&out[OptionReplyHeader::LEN..]).expect("a context");
    assert_ne!(context.id, 0);
    assert_eq!(out.len(), 2 * OptionReplyHeader::LEN + 4 + BASE_ALLOCATION.len());
}
