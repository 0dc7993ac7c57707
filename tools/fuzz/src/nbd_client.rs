//! The client's side of NBD against any bytes of a server.
//!
//! - The same bytes give the same events and the same end, however they are cut, and whether data
//!   is taken as events, by the short cut for whole reads, or received past the decoder.
//! - A request ends at most once, and only one that is in flight; a read succeeds only if each of
//!   its bytes has come once; what breaks the protocol is told once and for ever.
//! - Memory is bounded whatever lengths are announced.
//!
//! Input: a byte of wishes, two lengths of pieces, a byte of how data is taken, then the stream.

use std::collections::BTreeMap;

use weir_proto_nbd::client::{
    ERROR_PAYLOAD_MAX, Event, Handshake, Pending, REPLY_DATA_MAX, Replies, Requests, ServerInfo,
    Step, Wanted,
};
use weir_proto_nbd::wire::{Command, CommandFlags, Mode, Request};

use crate::cuts::{Cuts, pieces, ways};

/// The requests in flight when transmission begins: command, first byte, bytes, flags.
const ASKED: [(Command, u64, u64, CommandFlags); 7] = [
    (Command::READ, 0, 512, CommandFlags::EMPTY),
    (Command::READ, 4096, 24, CommandFlags::DF),
    (Command::WRITE, 512, 512, CommandFlags::EMPTY),
    (Command::FLUSH, 0, 0, CommandFlags::EMPTY),
    (Command::BLOCK_STATUS, 0, 65536, CommandFlags::EMPTY),
    (Command::BLOCK_STATUS, 512, 512, CommandFlags::REQ_ONE),
    (Command::TRIM, 1 << 40, 1 << 20, CommandFlags::EMPTY),
];

/// The longest output of one call: one option with its data.
const OUT_MAX: usize = 512;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[wishes, first, second, take], stream)) = bytes.split_first_chunk() else { return };
    let names = ["disk", "", "spare", "n\u{f6}chster"];
    let wanted = Wanted {
        export: names[usize::from(wishes & 3)].to_owned(),
        structured: wishes & 4 == 0,
        extended: wishes & 8 == 0,
        allocation: wishes & 16 == 0,
        tls: wishes & 0xe0 == 0xe0,
    };
    let sessions = ways([first, second]).map(|cuts| session(&wanted, stream, cuts, 0));
    let past = session(&wanted, stream, [usize::from(second) + 1, usize::from(first) + 1], take);
    for other in [&sessions[1], &sessions[2], &past] {
        assert_eq!(other, &sessions[0], "cut or taken otherwise the session is another");
    }
}

/// The bytes sent in the handshake, and the events of requests by cookie, in order.
type Log = (Vec<u8>, Vec<String>, BTreeMap<u64, Vec<String>>);

fn session(wanted: &Wanted, stream: &[u8], cuts: Cuts, take: u8) -> Log {
    let mut handshake = Handshake::new(wanted.clone()).expect("a name of the protocol");
    let (mut sent, mut heard) = (Vec::new(), Vec::new());
    let mut ear: Option<Ear> = None;
    'stream: for mut piece in pieces(stream, cuts) {
        while ear.is_none() {
            let mut out = Vec::new();
            let input = handshake.input(piece, &mut out);
            piece = &piece[input.consumed..];
            assert!(out.len() <= OUT_MAX, "one step sends {} bytes", out.len());
            let held = handshake.held_bytes();
            assert!(held <= 2 * REPLY_DATA_MAX as usize, "{held} bytes are held");
            sent.extend_from_slice(&out);
            match input.step {
                Step::NeedMore => {
                    assert!(piece.is_empty(), "it asks for more");
                    continue 'stream;
                }
                // The first note of TLS counts the bytes that had come before it.
                Step::StartTls => {
                    heard.push("STARTTLS".to_owned());
                    handshake.secured(&mut sent);
                }
                Step::Ready(info) => {
                    heard.push(format!("{info:?}"));
                    ear = Some(Ear::new(&info, take));
                }
                Step::Failed(why) => {
                    let again = handshake.input(piece, &mut Vec::new()).step;
                    assert!(matches!(again, Step::Failed(_)), "{again:?} behind {why}");
                    heard.push(why.to_string());
                    break 'stream;
                }
            }
        }
        let ear = ear.as_mut().expect("transmission has begun");
        if !ear.input(piece) {
            break;
        }
    }
    if wanted.tls {
        let before = heard.iter().position(|line| line.contains("STARTTLS"));
        if before.is_some() {
            return Log::default();
        }
    }
    (sent, heard, ear.map(Ear::end).unwrap_or_default())
}

struct Ear {
    replies: Replies,
    in_flight: BTreeMap<u64, Pending>,
    /// By cookie: what has come of a read.
    came: BTreeMap<u64, Vec<u8>>,
    lines: BTreeMap<u64, Vec<String>>,
    /// By cookie: the bytes in the order they came, whatever pieces they came in.
    data: BTreeMap<u64, Vec<u8>>,
    /// Bit 0: whole reads are taken off first; bit 1: data is received past the decoder.
    take: u8,
}

impl Ear {
    fn new(info: &ServerInfo, take: u8) -> Ear {
        let requests = Requests::new(info.mode);
        let mut ear = Ear {
            replies: Replies::new(info.mode, info.allocation),
            in_flight: BTreeMap::new(),
            came: BTreeMap::new(),
            lines: BTreeMap::new(),
            data: BTreeMap::new(),
            take,
        };
        for (cookie, (command, offset, length, flags)) in (1..).zip(ASKED) {
            let flags = if info.mode == Mode::Simple { CommandFlags::EMPTY } else { flags };
            let request = Request::new(command, cookie, offset, length).with(flags);
            let pending = requests.push(&request, &mut Vec::new()).expect("it fits");
            ear.in_flight.insert(cookie, pending);
            if command == Command::READ {
                ear.came.insert(cookie, vec![0; length as usize]);
            }
        }
        ear
    }

    /// Takes a piece; false once the server has lost its step.
    fn input(&mut self, mut piece: &[u8]) -> bool {
        loop {
            if self.take & 1 == 1
                && let Some((cookie, data)) =
                    self.replies.whole_read(&mut piece, &mut self.in_flight)
            {
                let offset = self.in_flight[&cookie].offset();
                self.take_data(cookie, offset, data);
                self.done(cookie, "ok");
                continue;
            }
            if self.take & 2 == 2
                && let Some(missing) = self.replies.missing()
                && !piece.is_empty()
            {
                let here =
                    usize::try_from(missing.length).map_or(piece.len(), |m| m.min(piece.len()));
                let (data, rest) = piece.split_at(here);
                piece = rest;
                self.take_data(missing.cookie, missing.offset, data);
                self.replies.received(here as u64);
            }
            let event = self.replies.next(&mut piece, &mut self.in_flight);
            let held = self.replies.held_bytes();
            assert!(held <= 8 * ERROR_PAYLOAD_MAX as usize, "{held} bytes are held");
            match event {
                Ok(Event::NeedMore) => {
                    assert!(piece.is_empty(), "it asks for more");
                    return true;
                }
                Ok(Event::Data { cookie, offset, bytes }) => self.take_data(cookie, offset, bytes),
                Ok(Event::Hole { cookie, offset, length }) => {
                    self.take_data(cookie, offset, &vec![0; length as usize]);
                }
                Ok(Event::Extent { cookie, offset, extent }) => {
                    self.line(cookie, format!("{offset} {extent:?}"));
                }
                Ok(Event::Error { cookie, error, at }) => {
                    let words = self.replies.words().to_owned();
                    self.line(cookie, format!("{error} at {at:?}: {words}"));
                }
                Ok(Event::Done { cookie, result: Ok(()) }) => self.done(cookie, "ok"),
                Ok(Event::Done { cookie, result: Err(error) }) => self.done(cookie, error.name()),
                Err(why) => {
                    let again = self.replies.next(&mut piece, &mut self.in_flight);
                    assert_eq!(again, Err(why), "what is lost stays lost");
                    self.line(0, why.to_string());
                    return false;
                }
            }
        }
    }

    fn line(&mut self, cookie: u64, line: String) {
        self.lines.entry(cookie).or_default().push(line);
    }

    /// Counts each byte of a read that has come.
    fn take_data(&mut self, cookie: u64, offset: u64, bytes: &[u8]) {
        let start = offset - self.in_flight[&cookie].offset();
        let came = self.came.get_mut(&cookie).expect("only reads have data");
        let start = usize::try_from(start).expect("inside the read");
        for (count, byte) in came[start..start + bytes.len()].iter_mut().zip(bytes) {
            assert_eq!(*count, 0, "a byte of read {cookie} comes twice");
            *count = 1;
            self.data.entry(cookie).or_default().push(*byte);
        }
    }

    fn done(&mut self, cookie: u64, how: &str) {
        assert!(self.in_flight.remove(&cookie).is_some(), "request {cookie} ends twice");
        let came = self.came.get(&cookie);
        let whole = came.is_none_or(|came| came.iter().all(|count| *count == 1));
        assert!(how != "ok" || whole, "read {cookie} succeeds without all its bytes");
        self.line(cookie, how.to_owned());
    }

    fn end(mut self) -> BTreeMap<u64, Vec<String>> {
        for (cookie, bytes) in std::mem::take(&mut self.data) {
            self.line(cookie, format!("{bytes:02x?}"));
        }
        self.lines
    }
}
