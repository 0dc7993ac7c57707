//! Byte-exact exchanges, written by hand from the protocol text.
//!
//! `C:` are bytes of the client, `S:` of the server, as hex, `xx*N` for a repeated byte, and
//! text between quotes; `#` starts a comment. `=` is what the client's decoders make of the
//! server's bytes so far. A file may begin with `! client` and what weir's own client asks for:
//! then its handshake has to produce the file's client bytes. Without it, `! transmission MODE`
//! says where replies begin. `! settings MODE` is the best the server grants.
//!
//! Every file runs whole and byte by byte, through the server and through the client.

mod peer;

use peer::{Ear, Server, describe};
use weir_proto_nbd::client::{Handshake, Requests as ClientRequests, Step, Wanted};
use weir_proto_nbd::server::{Requests, Settings};
use weir_proto_nbd::wire::{
    BlockSizes, ExportEntry, ExportSize, Greeting, InfoType, MetaContext, Mode, OptionReplyCode,
    OptionReplyHeader,
};

enum Line {
    Client(Vec<u8>),
    Server(Vec<u8>),
    Heard(String),
    Transmission(Mode),
}

struct Golden {
    wanted: Option<Wanted>,
    settings: Settings,
    lines: Vec<Line>,
}

fn mode(word: &str) -> Mode {
    match word {
        "simple" => Mode::Simple,
        "structured" => Mode::Structured,
        "extended" => Mode::Extended,
        _ => panic!("no mode {word}"),
    }
}

/// Bytes of one line; quotes hold text, which may have blanks and hashes.
fn bytes(mut text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() || text.starts_with('#') {
            return bytes;
        }
        if let Some(quoted) = text.strip_prefix('"') {
            let (words, rest) = quoted.split_once('"').expect("a closing quote");
            bytes.extend_from_slice(words.as_bytes());
            text = rest;
            continue;
        }
        let (word, rest) = text.split_at(text.find(' ').unwrap_or(text.len()));
        text = rest;
        let (digits, count) = word.split_once('*').unwrap_or((word, "1"));
        let count = count.parse().expect("a count behind *");
        assert!(digits.len().is_multiple_of(2), "odd number of digits in {word}");
        let pairs = (0..digits.len()).step_by(2).map(|at| &digits[at..at + 2]);
        let unit: Vec<u8> =
            pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex digits")).collect();
        bytes.extend(unit.repeat(count));
    }
}

fn parse(text: &str) -> Golden {
    let mut golden = Golden { wanted: None, settings: Settings::default(), lines: Vec::new() };
    for line in text.lines() {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "" | "#" => {}
            "C:" => golden.lines.push(Line::Client(bytes(rest))),
            "S:" => golden.lines.push(Line::Server(bytes(rest))),
            "=" => golden.lines.push(Line::Heard(rest.to_owned())),
            "!" => {
                let words: Vec<&str> = rest.split(' ').collect();
                match words[0] {
                    "client" => {
                        golden.wanted = Some(Wanted {
                            export: "disk".to_owned(),
                            structured: words.contains(&"structured"),
                            extended: words.contains(&"extended"),
                            allocation: words.contains(&"allocation"),
                            tls: false,
                        });
                    }
                    "settings" => {
                        golden.settings.structured = words[1] == "structured";
                        golden.settings.extended = false;
                    }
                    "transmission" => golden.lines.push(Line::Transmission(mode(words[1]))),
                    word => panic!("no directive {word}"),
                }
            }
            _ => panic!("line {line:?} has no kind"),
        }
    }
    golden
}

/// Cuts bytes into pieces of at most `step`.
fn pieces(bytes: &[u8], step: usize) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(step)
}

/// The server, given the client's bytes, says the file's.
fn run_server(golden: &Golden, step: usize) {
    let mut out = Vec::new();
    let mut server = Server::new(golden.settings, &mut out);
    for (at, line) in golden.lines.iter().enumerate() {
        match line {
            Line::Client(bytes) => {
                assert!(out.is_empty(), "piece {at}: server says too much: {out:02x?}");
                pieces(bytes, step).for_each(|piece| server.input(piece, &mut out));
            }
            Line::Server(bytes) => {
                let len = bytes.len().min(out.len());
                let said: Vec<u8> = out.drain(..len).collect();
                assert_eq!(hex(&said), hex(bytes), "piece {at} of the server");
            }
            Line::Heard(_) | Line::Transmission(_) => {}
        }
    }
    assert!(out.is_empty(), "server says too much at the end: {out:02x?}");
}

fn hex(bytes: &[u8]) -> String {
    format!("{bytes:02x?}")
}

/// The client's decoders make of the server's bytes what the file says, and weir's client, if it
/// is the one in the file, says the file's bytes.
fn run_client(golden: &Golden, step: usize) {
    let mut handshake = golden.wanted.clone().map(|w| Handshake::new(w).expect("a name"));
    let mut ear: Option<Ear> = None;
    let mut mode = Mode::Simple;
    let mut said = Vec::new();
    let mut heard = Vec::new();
    let mut listed = Vec::new();
    for (at, line) in golden.lines.iter().enumerate() {
        match line {
            Line::Server(bytes) if ear.is_some() => {
                let ear = ear.as_mut().expect("checked");
                pieces(bytes, step).for_each(|piece| ear.input(piece));
                heard.extend(ear.lines());
            }
            Line::Server(bytes) => match &mut handshake {
                None => listed.extend_from_slice(bytes),
                Some(handshake) => {
                    for piece in pieces(bytes, step) {
                        match handshake.input(piece, &mut said).step {
                            Step::NeedMore => {}
                            Step::Ready(info) => {
                                heard.push(describe(&info));
                                mode = info.mode;
                                ear = Some(Ear::new(info.mode, info.allocation));
                            }
                            Step::StartTls => panic!("piece {at}: TLS was not wanted"),
                            Step::Failed(why) => panic!("piece {at}: {why}"),
                        }
                    }
                }
            },
            Line::Client(bytes) => match &mut ear {
                Some(ear) => repeat_requests(mode, bytes, ear),
                None if handshake.is_some() => {
                    let said: Vec<u8> = said.drain(..bytes.len().min(said.len())).collect();
                    assert_eq!(hex(&said), hex(bytes), "piece {at} of weir's client");
                }
                None => {}
            },
            Line::Transmission(agreed) => {
                mode = *agreed;
                ear = Some(Ear::new(mode, Some(1)));
            }
            Line::Heard(line) => {
                heard.extend(options(&mut listed));
                assert!(!heard.is_empty(), "piece {at}: nothing heard, expected {line:?}");
                assert_eq!(&heard.remove(0), line, "piece {at} as the client hears it");
            }
        }
    }
    heard.extend(options(&mut listed));
    assert_eq!(heard, Vec::<String>::new(), "heard at the end");
    assert!(said.is_empty(), "client says too much: {said:02x?}");
}

/// Encodes the file's requests again with the client's encoder, and puts them in flight.
fn repeat_requests(mode: Mode, bytes: &[u8], ear: &mut Ear) {
    let mut again = Vec::new();
    for incoming in Requests::new(mode, bytes) {
        let incoming = incoming.expect("the magic of the mode");
        let request = incoming.request;
        let pending = ClientRequests::new(mode).push(&request, &mut again).expect("it fits");
        ear.in_flight.insert(request.cookie, pending);
        again.extend_from_slice(incoming.payload);
    }
    assert_eq!(hex(&again), hex(bytes), "the client's encoder");
}

/// Describes the server's greeting and option replies that lie in `listed`, and takes them out.
fn options(listed: &mut Vec<u8>) -> Vec<String> {
    let mut lines = Vec::new();
    let bytes = std::mem::take(listed);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        if let Some(greeting) = Greeting::decode(rest) {
            rest = &rest[Greeting::LEN..];
            lines.push(format!("greeting {:02x}", greeting.flags.bits()));
        } else if let Some(header) = OptionReplyHeader::decode(rest) {
            let (data, behind) = rest[OptionReplyHeader::LEN..].split_at(header.length as usize);
            rest = behind;
            lines.push(format!("{} {}{}", header.option, header.code, reply_data(header, data)));
        } else {
            let export = ExportSize::decode(rest).expect("the answer to EXPORT_NAME");
            let zeroes = &rest[ExportSize::LEN..];
            assert!(zeroes.iter().all(|&byte| byte == 0));
            let (size, flags) = (export.size, export.flags.bits());
            lines.push(format!("size {size} flags {flags:04x} zeroes {}", zeroes.len()));
            rest = &[];
        }
    }
    lines
}

fn reply_data(header: OptionReplyHeader, data: &[u8]) -> String {
    let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    match header.code {
        OptionReplyCode::SERVER => {
            let entry = ExportEntry::decode(data).expect("an entry");
            format!(" {:?} {:?}", words(entry.name), words(entry.description))
        }
        OptionReplyCode::META_CONTEXT => {
            let context = MetaContext::decode(data).expect("a context");
            format!(" {} {:?}", context.id, words(context.name))
        }
        OptionReplyCode::INFO => match InfoType(u16::from_be_bytes([data[0], data[1]])) {
            InfoType::EXPORT => {
                let export = ExportSize::decode(&data[2..]).expect("a size");
                format!(" EXPORT {} {:04x}", export.size, export.flags.bits())
            }
            InfoType::BLOCK_SIZE => {
                let sizes = BlockSizes::decode(&data[2..]).expect("sizes");
                let BlockSizes { minimum, preferred, maximum } = sizes;
                format!(" BLOCK_SIZE {minimum} {preferred} {maximum}")
            }
            info => format!(" {info} {:?}", words(&data[2..])),
        },
        _ if data.is_empty() => String::new(),
        _ => format!(": {}", words(data)),
    }
}

fn run(text: &str) {
    let golden = parse(text);
    for step in [usize::MAX, 1, 7] {
        run_server(&golden, step);
        run_client(&golden, step);
    }
}

#[test]
fn go_with_structured_replies_and_base_allocation() {
    run(include_str!("golden/go.txt"));
}

#[test]
fn export_name_as_old_clients_do_it() {
    run(include_str!("golden/export_name.txt"));
}

#[test]
fn a_list_and_the_questions_that_change_nothing() {
    run(include_str!("golden/list.txt"));
}

#[test]
fn every_refusal_of_the_handshake() {
    run(include_str!("golden/refusals.txt"));
}

#[test]
fn simple_replies() {
    run(include_str!("golden/simple.txt"));
}

#[test]
fn structured_replies() {
    run(include_str!("golden/structured.txt"));
}

#[test]
fn extended_headers_from_greeting_to_disconnect() {
    run(include_str!("golden/extended.txt"));
}

#[test]
fn a_wrong_byte_in_a_golden_file_is_found() {
    let text = include_str!("golden/simple.txt").replacen("67446698", "67446699", 1);
    assert!(std::panic::catch_unwind(|| run(&text)).is_err());
}
