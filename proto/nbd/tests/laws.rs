//! Laws over random input: every structure comes back as it went, fragmentation changes nothing,
//! garbage neither panics nor grows a buffer. A failing case prints its seed.

mod peer;

use peer::{DISK, Ear, Server, describe, exports};
use proptest::prelude::*;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{
    self, ERROR_PAYLOAD_MAX, REPLY_DATA_MAX, Requests as ClientRequests, Wanted,
};
use weir_proto_nbd::server::{self, Export, Geometry, Requests, Settings, Step, Tls};
use weir_proto_nbd::wire::{
    BlockSizes, ChunkType, Command, CommandFlags, ErrorChunk, ExportEntry, ExportSize,
    ExtendedHeader, Extent, Greeting, HandshakeFlags, Hole, InfoQuery, InfoType, MetaContext,
    MetaQuery, Mode, OPTION_DATA_MAX, OptionCode, OptionHeader, OptionReplyCode, OptionReplyHeader,
    ReplyFlags, Request, SimpleReply, StatusFlags, StructuredHeader, TransmissionFlags,
    put_block_sizes, put_export_entry, put_export_name_reply, put_export_size, put_info_query,
    put_info_text, put_meta_context, put_meta_query, put_option, put_option_reply,
};

const MODES: [Mode; 3] = [Mode::Simple, Mode::Structured, Mode::Extended];

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(&MODES[..])
}

/// Requests a client may well send, and some that are refused.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let block = 0..DISK as u64 / 512 + 2;
    let request = (0..9u16, block.clone(), block, 0..4u16, any::<bool>());
    prop::collection::vec(request, 0..12).prop_map(|parts| {
        let parts = parts.into_iter().zip(1..);
        parts
            .map(|((command, at, blocks, flags, odd), cookie)| {
                let command = Command(if command == 2 { 3 } else { command });
                let length = if odd { blocks * 512 } else { (blocks % 8) * 512 };
                let offset = at * 512 + u64::from(odd && flags == 3);
                let flags = CommandFlags::from_bits(flags);
                Request::new(command, cookie, offset, length).with(flags)
            })
            .collect()
    })
}

fn wishes() -> impl Strategy<Value = Wanted> {
    let name = prop::sample::select(&["disk", "", "spare", "nope"][..]);
    (name, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(export, structured, extended, allocation, tls)| Wanted {
            export: export.to_owned(),
            structured,
            extended,
            allocation,
            tls,
        },
    )
}

/// Cuts bytes into pieces of these lengths, over and over.
fn pieces<'a>(bytes: &'a [u8], cuts: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let cut = (*cuts.next()?).min(rest.len());
        let (piece, behind) = rest.split_at(cut);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A whole session of weir's client with weir's server, in both directions cut as told: what
/// the client hears, and every byte that went either way.
fn session(wanted: &Wanted, requests: &[Request], cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let mut to_client = Vec::new();
    let mut to_server = Vec::new();
    let mut transcript = Vec::new();
    let mut heard = Vec::new();
    let settings = Settings { tls: Tls::On, ..Settings::default() };
    let mut server = Server::new(settings, &mut to_client);
    let mut handshake = client::Handshake::new(wanted.clone()).expect("a name");
    let info = 'ready: loop {
        let bytes = std::mem::take(&mut to_client);
        transcript.extend_from_slice(&bytes);
        for piece in pieces(&bytes, cuts) {
            match handshake.input(piece, &mut to_server).step {
                client::Step::NeedMore => {}
                client::Step::StartTls => handshake.secured(&mut to_server),
                client::Step::Ready(info) => break 'ready info,
                client::Step::Failed(why) => return (vec![why.to_string()], transcript),
            }
        }
        let bytes = std::mem::take(&mut to_server);
        assert!(!bytes.is_empty(), "both wait; the client for {}", handshake.waiting_for());
        transcript.extend_from_slice(&bytes);
        pieces(&bytes, cuts).for_each(|piece| server.input(piece, &mut to_client));
    };
    heard.push(describe(&info));
    let mut ear = Ear::new(info.mode, info.allocation);
    for request in requests {
        let pending = ClientRequests::new(info.mode).push(request, &mut to_server).expect("short");
        ear.in_flight.insert(request.cookie, pending);
        if request.command == Command::WRITE {
            to_server.resize(to_server.len() + request.length as usize, request.cookie as u8);
        }
    }
    transcript.extend_from_slice(&to_server);
    pieces(&to_server, cuts).for_each(|piece| server.input(piece, &mut to_client));
    transcript.extend_from_slice(&to_client);
    pieces(&to_client, cuts).for_each(|piece| ear.input(piece));
    heard.extend(ear.lines());
    assert!(ear.in_flight.is_empty(), "no reply to {:?}: {heard:?}", ear.in_flight);
    (heard, transcript)
}

/// Bytes that begin like something, so that garbage comes further than the first magic.
fn garbage(starts: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(starts),
        2 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(&[0u8, 0, 0, 1, 4, 255][..]), 0..64),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn encoded(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out);
    out
}

/// The beginnings of everything a client can say in the handshake.
fn client_starts() -> Vec<Vec<u8>> {
    let head = |code: u32, len: u32| {
        let magic = 0x4948_4156_454f_5054u64.to_be_bytes();
        [&magic[..], &code.to_be_bytes(), &len.to_be_bytes()].concat()
    };
    let mut starts: Vec<_> =
        (0..13).flat_map(|code| [0, 6, 12, 40, 70_000].map(|len| head(code, len))).collect();
    starts.push(encoded(|out| put_option(out, OptionCode::STRUCTURED_REPLY, |_| ())));
    starts.push(encoded(|out| {
        put_option(out, OptionCode::SET_META_CONTEXT, |out| put_meta_query(out, "disk", &["base:"]))
    }));
    starts.push(encoded(|out| {
        put_option(out, OptionCode::INFO, |out| put_info_query(out, "disk", &[InfoType::NAME]))
    }));
    starts
}

/// The beginnings of everything a server can say in the handshake.
fn server_starts() -> Vec<Vec<u8>> {
    let mut starts = vec![encoded(|out| Greeting { flags: HandshakeFlags::KNOWN }.put(out))];
    for code in [1, 7, 8, 10, 11] {
        for reply in [1, 3, 4, 0x8000_0001, 0x8000_0006] {
            starts.push(encoded(|out| {
                put_option_reply(out, OptionCode(code), OptionReplyCode(reply), |_| ());
            }));
        }
    }
    let export = ExportSize { size: 4096, flags: TransmissionFlags::KNOWN };
    starts.push(encoded(|out| {
        put_option_reply(out, OptionCode::GO, OptionReplyCode::INFO, |out| {
            put_export_size(out, export);
        });
    }));
    starts
}

/// The beginnings of every request.
fn request_starts() -> Vec<Vec<u8>> {
    let mut starts = Vec::new();
    for command in 0..9 {
        for (length, flags) in [(0, 0), (512, 0x20), (4096, 1), (u64::MAX, 0x20), (8, 0xffff)] {
            let flags = CommandFlags::from_bits(flags);
            let request = Request::new(Command(command), 1, 0, length).with(flags);
            starts.push(encoded(|out| request.put_extended(out)));
            let short = Request { length: length & 0xffff_ffff, ..request };
            starts.push(encoded(|out| short.put_compact(out).expect("32 bits")));
        }
    }
    starts
}

/// The beginnings of every reply to cookies 1 to 3.
fn reply_starts() -> Vec<Vec<u8>> {
    let kinds = [0, 1, 2, 5, 6, 0x8001, 0x8002, 0x8003, 9].map(ChunkType);
    let mut starts = Vec::new();
    for cookie in 1..4u64 {
        starts.push(SimpleReply { error: 0, cookie }.encode().to_vec());
        starts.push(SimpleReply { error: 5, cookie }.encode().to_vec());
        for chunk in kinds {
            for (length, done) in [(0, 1), (6, 0), (12, 1), (20, 0), (24, 1), (520, 1), (4100, 0)] {
                let flags = ReplyFlags::from_bits(done);
                let short = StructuredHeader { flags, chunk, cookie, length };
                starts.push(short.encode().to_vec());
                let length = u64::from(length);
                let long = ExtendedHeader { flags, chunk, cookie, offset: 0, length };
                starts.push(long.encode().to_vec());
            }
        }
    }
    starts.push(vec![0, 0, 0, 0, 0, 0, 0, 0]);
    starts.push(vec![0, 0, 0, 0, 0, 0, 2, 0]);
    starts.push(vec![0, 0, 0, 1, 0, 0, 0, 1]);
    starts
}

proptest! {
    #[test]
    fn a_session_is_the_same_however_it_is_cut(
        wanted in wishes(),
        requests in requests(),
        cuts in prop::collection::vec(1..600usize, 1..8),
    ) {
        let whole = session(&wanted, &requests, &[usize::MAX]);
        prop_assert_eq!(&session(&wanted, &requests, &cuts), &whole);
        prop_assert_eq!(&session(&wanted, &requests, &[1]), &whole);
    }

    #[test]
    fn a_batch_is_the_same_as_its_requests_one_by_one(
        bytes in garbage(request_starts()),
        mode in modes(),
    ) {
        let mut batch = Requests::new(mode, &bytes);
        let mut at = 0;
        while let Some(Ok(incoming)) = batch.next() {
            let header = mode.request_len();
            let one = server::decode(mode, &bytes[at..]);
            prop_assert_eq!(one, server::Decoded::Request(incoming.request));
            let payload = incoming.request.payload_len(mode);
            let here = bytes.len() - at - header;
            prop_assert_eq!(incoming.payload.len() as u64, payload.min(here as u64));
            prop_assert_eq!(incoming.missing, payload.saturating_sub(here as u64));
            at += header + incoming.payload.len();
            prop_assert_eq!(batch.consumed(), at);
        }
    }

    #[test]
    fn a_checked_request_lies_inside_the_export_and_a_refused_one_stays_in_step(
        mode in modes(),
        command in 0..10u16,
        flags in any::<u16>(),
        (offset, length) in (any::<u64>(), any::<u64>()),
        (shift, minimum, block) in (0..64u32, 0..17u32, 9..17u32),
        (size, maximum, blocks) in (any::<u64>(), any::<u32>(), any::<u32>()),
        aligned in any::<bool>(),
    ) {
        // A device has no more than 2^63 bytes.
        let export = Export::new("disk", size >> shift.max(2));
        let start = u64::from(blocks) << block;
        let geometry = Geometry {
            mode,
            size: export.size,
            start,
            minimum_block: 1 << minimum,
            device_block: 1 << block,
            payload_max: maximum,
            flags: export.advertised(mode),
            block_status: true,
        };
        // Half of the cases get past the alignment rule, so that the others are reached.
        let mask = if aligned { !((1 << minimum) - 1) } else { u64::MAX };
        let length = (length >> shift) & mode.length_max() & mask;
        let request = Request {
            flags: CommandFlags::from_bits(flags & flags >> 3 & 0x3f),
            command: Command(command),
            cookie: 1,
            offset: (offset >> shift >> (offset % 4)) & mask,
            length,
        };
        use server::Checked as C;
        match geometry.check(&request) {
            Ok(C::Disconnect | C::Flush) => {}
            Ok(
                C::Read { range, .. } | C::Write { range, .. } | C::Trim { range, .. }
                | C::Cache { range } | C::WriteZeroes { range, .. } | C::BlockStatus { range, .. },
            ) => {
                prop_assert!(range.length > 0 && range.offset >= start);
                prop_assert_eq!(range.offset - start, request.offset);
                let end = (range.offset - start).checked_add(range.length);
                prop_assert!(end.is_some_and(|end| end <= geometry.size));
                prop_assert_eq!((request.offset | range.length) % (1 << minimum), 0);
                prop_assert_eq!((range.offset | range.length) % (1 << block), 0);
            }
            Ok(C::Unaligned { range, .. }) => {
                prop_assert!(range.length > 0 && range.offset >= start);
                prop_assert_eq!(range.offset - start, request.offset);
                let end = (range.offset - start).checked_add(range.length);
                prop_assert!(end.is_some_and(|end| end <= geometry.size));
                prop_assert_eq!((request.offset | range.length) % (1 << minimum), 0);
                prop_assert!((range.offset | range.length) % (1 << block) != 0);
            }
            Err(reject) => {
                let payload = request.payload_len(mode);
                match reject.then {
                    server::Then::Drain(len) => prop_assert_eq!(u64::from(len), payload),
                    server::Then::Close => prop_assert!(payload > u64::from(server::DRAIN_MAX)),
                }
                let mut out = Vec::new();
                server::Replies::new(mode).reject(request.reply_to(), &reject, &mut out);
                prop_assert!(out.len() < 256);
            }
        }
    }

    #[test]
    fn garbage_from_a_client_holds_no_more_than_one_option(
        bytes in garbage(client_starts()),
        cuts in prop::collection::vec(1..100usize, 1..4),
    ) {
        let mut out = Vec::new();
        let settings = Settings { tls: Tls::On, ..Settings::default() };
        let mut handshake = server::Handshake::new(exports(), settings, &mut out);
        let all = [&[0, 0, 0, 3][..], &bytes].concat();
        'session: for piece in pieces(&all, &cuts) {
            let mut rest = piece;
            loop {
                out.clear();
                let input = handshake.input(rest, &mut out);
                rest = &rest[input.consumed..];
                prop_assert!(out.len() < 1024);
                prop_assert!(handshake.held_bytes() <= 2 * OPTION_DATA_MAX as usize);
                match input.step {
                    Step::NeedMore => break,
                    Step::Answered => {}
                    Step::StartTls => handshake.secured(),
                    Step::Transmission(_) | Step::Close(_) => break 'session,
                }
            }
        }
    }

    #[test]
    fn garbage_from_a_server_holds_no_more_than_one_reply(
        bytes in garbage(server_starts()),
        cuts in prop::collection::vec(1..100usize, 1..4),
        greeted in any::<bool>(),
        wanted in wishes(),
    ) {
        let mut out = Vec::new();
        let mut handshake = client::Handshake::new(wanted).expect("a name");
        if greeted {
            let greeting = encoded(|out| Greeting { flags: HandshakeFlags::KNOWN }.put(out));
            handshake.input(&greeting, &mut out);
        }
        for piece in pieces(&bytes, &cuts) {
            let step = handshake.input(piece, &mut out).step;
            prop_assert!(out.len() < 512 && handshake.held_bytes() <= 2 * REPLY_DATA_MAX as usize);
            if step != client::Step::NeedMore {
                break;
            }
        }
    }

    #[test]
    fn garbage_as_replies_holds_no_more_than_one_message(
        bytes in garbage(reply_starts()),
        cuts in prop::collection::vec(1..100usize, 1..4),
        mode in modes(),
    ) {
        let mut decoder = client::Replies::new(mode, Some(1));
        let mut in_flight = std::collections::BTreeMap::new();
        for (cookie, command) in (1..).zip([Command::READ, Command::WRITE, Command::BLOCK_STATUS]) {
            let request = Request::new(command, cookie, 0, 4096);
            let pending = ClientRequests::new(mode).push(&request, &mut Vec::new());
            in_flight.insert(cookie, pending.expect("it fits"));
        }
        'stream: for mut piece in pieces(&bytes, &cuts) {
            loop {
                let before = piece.len();
                match decoder.next(&mut piece, &mut in_flight) {
                    Ok(client::Event::NeedMore) => break,
                    Ok(client::Event::Done { cookie, .. }) => {
                        prop_assert!(in_flight.remove(&cookie).is_some());
                    }
                    Ok(client::Event::Data { cookie, offset, bytes }) => {
                        prop_assert!(!bytes.is_empty() && before > piece.len());
                        prop_assert!(cookie == 1 && offset + bytes.len() as u64 <= 4096);
                    }
                    Ok(_) => {}
                    Err(_) => break 'stream,
                }
                prop_assert!(decoder.held_bytes() <= 8 * ERROR_PAYLOAD_MAX as usize);
            }
        }
    }

    #[test]
    fn every_transmission_structure_comes_back_as_it_went(
        (flags, kind, done) in (any::<u16>(), any::<u16>(), any::<bool>()),
        (cookie, offset, length, bits) in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        (short, error) in (any::<u32>(), any::<u32>()),
        (message, at) in (prop::collection::vec(any::<u8>(), 0..300), any::<Option<u64>>()),
    ) {
        let flags = CommandFlags::from_bits(flags);
        let long = Request { flags, command: Command(kind), cookie, offset, length };
        let bytes = encoded(|out| long.put_extended(out));
        prop_assert_eq!(Request::decode_extended(&bytes), Some(long));
        prop_assert_eq!((bytes.len(), Request::decode_compact(&bytes)), (32, None));
        let compact = Request { length: u64::from(short), ..long };
        let bytes = encoded(|out| compact.put_compact(out).expect("32 bits"));
        prop_assert_eq!(Request::decode_compact(&bytes), Some(compact));
        prop_assert_eq!((bytes.len(), Request::decode_extended(&bytes)), (28, None));

        let simple = SimpleReply { error, cookie };
        prop_assert_eq!(SimpleReply::decode(&simple.encode()), Some(simple));
        let flags = if done { ReplyFlags::DONE } else { ReplyFlags::EMPTY };
        let chunk = ChunkType(kind);
        let header = StructuredHeader { flags, chunk, cookie, length: short };
        prop_assert_eq!(StructuredHeader::decode(&header.encode()), Some(header));
        let header = ExtendedHeader { flags, chunk, cookie, offset, length };
        prop_assert_eq!(ExtendedHeader::decode(&header.encode()), Some(header));

        let hole = Hole { offset, length: short };
        prop_assert_eq!(Hole::decode(&encoded(|out| hole.put(out))), Some(hole));
        let extent = Extent { length, flags: StatusFlags::from_bits(bits) };
        let bytes = encoded(|out| extent.put_extended(out));
        prop_assert_eq!(Extent::decode_extended(&bytes), Some(extent));
        let extent = Extent { length: u64::from(short), flags: StatusFlags::from_bits(bits >> 32) };
        let bytes = encoded(|out| extent.put_compact(out).expect("32 bits"));
        prop_assert_eq!(Extent::decode_compact(&bytes), Some(extent));
        let failed = ErrorChunk { error, message: &message, offset: at };
        let bytes = encoded(|out| failed.put(out));
        prop_assert_eq!(bytes.len(), failed.len());
        prop_assert_eq!(ErrorChunk::decode(failed.chunk(), &bytes), Some(failed));
    }

    #[test]
    fn every_handshake_structure_comes_back_as_it_went(
        (code, reply, flags) in (any::<u32>(), any::<u32>(), any::<u16>()),
        (size, sizes) in (any::<u64>(), any::<[u32; 3]>()),
        (name, words) in (".{0,40}", ".{0,40}"),
        infos in prop::collection::vec(any::<u16>(), 0..9),
        queries in prop::collection::vec(".{0,20}", 0..9),
    ) {
        let greeting = Greeting { flags: HandshakeFlags::from_bits(flags) };
        prop_assert_eq!(Greeting::decode(&encoded(|out| greeting.put(out))), Some(greeting));

        let (code, reply) = (OptionCode(code), OptionReplyCode(reply));
        let length = name.len() as u32;
        let bytes = encoded(|out| put_option(out, code, |out| out.extend(name.bytes())));
        prop_assert_eq!(OptionHeader::decode(&bytes), Some(OptionHeader { code, length }));
        prop_assert_eq!(&bytes[OptionHeader::LEN..], name.as_bytes());
        let bytes = encoded(|out| {
            put_option_reply(out, code, reply, |out| out.extend(name.bytes()));
        });
        let header = OptionReplyHeader { option: code, code: reply, length };
        prop_assert_eq!(OptionReplyHeader::decode(&bytes), Some(header));
        prop_assert_eq!(&bytes[OptionReplyHeader::LEN..], name.as_bytes());

        let export = ExportSize { size, flags: TransmissionFlags::from_bits(flags) };
        let bytes = encoded(|out| put_export_name_reply(out, export, false));
        prop_assert_eq!((ExportSize::decode(&bytes), bytes.len()), (Some(export), 134));
        let bytes = encoded(|out| put_export_size(out, export));
        prop_assert_eq!(ExportSize::decode(&bytes[2..]), Some(export));
        let [minimum, preferred, maximum] = sizes;
        let sizes = BlockSizes { minimum, preferred, maximum };
        let bytes = encoded(|out| put_block_sizes(out, sizes));
        prop_assert_eq!((BlockSizes::decode(&bytes[2..]), bytes.len()), (Some(sizes), 14));
        let bytes = encoded(|out| put_info_text(out, InfoType::DESCRIPTION, &words));
        prop_assert_eq!((&bytes[..2], &bytes[2..]), (&[0, 2][..], words.as_bytes()));

        let bytes = encoded(|out| put_export_entry(out, &name, &words));
        let entry = ExportEntry { name: name.as_bytes(), description: words.as_bytes() };
        prop_assert_eq!(ExportEntry::decode(&bytes), Some(entry));
        let infos: Vec<_> = infos.into_iter().map(InfoType).collect();
        let bytes = encoded(|out| put_info_query(out, &name, &infos));
        let query = InfoQuery::decode(&bytes).expect("whole");
        prop_assert_eq!((query.name, query.infos().collect::<Vec<_>>()), (name.as_bytes(), infos));
        prop_assert_eq!(InfoQuery::decode(&bytes[..bytes.len() - 1]), None);
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(InfoQuery::decode(&longer), None);
        let asked: Vec<_> = queries.iter().map(String::as_str).collect();
        let bytes = encoded(|out| put_meta_query(out, &name, &asked));
        let query = MetaQuery::decode(&bytes).expect("whole");
        let read: Vec<_> = query.queries().collect();
        prop_assert_eq!(query.name, name.as_bytes());
        prop_assert!(read.iter().copied().eq(queries.iter().map(String::as_bytes)));
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(MetaQuery::decode(&longer), None);
        let bytes = encoded(|out| put_meta_context(out, minimum, &name));
        let context = MetaContext { id: minimum, name: name.as_bytes() };
        prop_assert_eq!(MetaContext::decode(&bytes), Some(context));
    }
}

#[test]
fn every_error_comes_back_and_unknown_ones_are_read_as_einval() {
    for error in NbdError::ALL {
        assert_eq!(NbdError::from_wire(error.to_wire()), Some(error));
    }
    assert_eq!(NbdError::from_wire(0), None);
    assert_eq!(NbdError::from_wire(4242), Some(NbdError::Inval));
}
