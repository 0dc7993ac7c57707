//! The server's side of NBD against any bytes of a client.
//!
//! - The same bytes give the same requests, verdicts, answers and end, however they are cut.
//! - Each option has one final answer, and each request one reply, which weir's own client takes
//!   for the reply to that request, complete and in step.
//! - Memory is bounded whatever lengths are announced; a session that ends has a reason.
//!
//! Input: a byte of settings, two lengths of pieces, then the stream.

use std::collections::BTreeMap;

use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{self, Event};
use weir_proto_nbd::server::{
    Checked, Chunk, Export, Handshake, Negotiated, Reject, Requests, Settings, StatusQuery, Step,
    Then, Tls,
};
use weir_proto_nbd::wire::{
    Command, Extent, Mode, OPTION_DATA_MAX, OptionReplyCode, OptionReplyHeader, Request,
    StatusFlags, TransmissionFlags,
};

use crate::cuts::{Cuts, pieces, ways};

/// Bytes of the disk; its second half is a hole.
const DISK: u64 = 65536;
const HALF: u64 = DISK / 2;

/// The longest output of one option: a list of all exports, or what one of them is.
const ANSWER_MAX: usize = 4096;

/// Options a client may send.
const OPTIONS_MAX: u32 = 40;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[set, first, second], stream)) = bytes.split_first_chunk() else { return };
    let settings = Settings {
        structured: set & 1 == 0,
        extended: set & 2 == 0,
        tls: [Tls::Off, Tls::On, Tls::Require, Tls::Off][usize::from(set >> 2 & 3)],
        options_max: OPTIONS_MAX,
        skip_max: 1 << 10,
    };
    let [whole, others @ ..] = ways([first, second]).map(|cuts| session(settings, stream, cuts));
    for other in others {
        assert_eq!(other, whole, "cut otherwise the session is another");
    }
}

fn exports() -> Vec<Export> {
    let mut disk = Export::new("disk", DISK);
    disk.description = "half a hole".to_owned();
    let mut spare = Export::new("spare", 4096);
    spare.flags = TransmissionFlags::READ_ONLY | TransmissionFlags::CAN_MULTI_CONN;
    spare.allocation = false;
    let mut odd = Export::new("odd", 1001);
    odd.block.minimum = 1;
    odd.block.maximum = 4096;
    vec![disk, spare, odd]
}

/// The events of a session, in order: what it was and all that was sent for it.
type Log = Vec<(String, Vec<u8>)>;

fn session(settings: Settings, stream: &[u8], cuts: Cuts) -> Log {
    let mut session = Session::new(settings);
    for piece in pieces(stream, cuts) {
        session.input(piece);
    }
    // Where TLS begins it counts what had come with its option.
    let secured = session.log.iter().position(|(what, _)| what.contains("STARTTLS"));
    session.log.truncate(secured.unwrap_or(usize::MAX));
    session.log
}

enum Phase {
    Handshake(Box<Handshake<Vec<Export>>>),
    Transmission(Box<Transmission>),
    Closed,
}

struct Session {
    phase: Phase,
    log: Log,
    greeting: Vec<u8>,
}

struct Transmission {
    agreed: Negotiated,
    /// The part of a header that has come.
    held: Vec<u8>,
    /// Payload that is still to come, and the request it belongs to with the verdict on it.
    left: u64,
    open: Option<(Request, Result<Checked, Reject>)>,
    ear: client::Replies,
}

impl Session {
    fn new(settings: Settings) -> Session {
        let mut greeting = Vec::new();
        let handshake = Handshake::new(exports(), settings, &mut greeting);
        Session { phase: Phase::Handshake(Box::new(handshake)), log: Vec::new(), greeting }
    }

    fn input(&mut self, mut bytes: &[u8]) {
        assert_eq!(self.greeting.len(), 18, "the greeting");
        loop {
            match &mut self.phase {
                Phase::Handshake(handshake) => {
                    let mut out = Vec::new();
                    let input = handshake.input(bytes, &mut out);
                    bytes = &bytes[input.consumed..];
                    assert!(out.len() <= ANSWER_MAX, "one step answers {} bytes", out.len());
                    let held = handshake.held_bytes();
                    assert!(held <= 2 * OPTION_DATA_MAX as usize, "{held} bytes are held");
                    match input.step {
                        Step::NeedMore => {
                            assert!(bytes.is_empty() && out.is_empty(), "it asks for more");
                            return;
                        }
                        Step::Answered => {
                            assert_eq!(finals(&out), 1, "an option has one final answer");
                            self.log.push(("answered".to_owned(), out));
                        }
                        Step::StartTls => {
                            assert_eq!(finals(&out), 1, "an option has one final answer");
                            self.log.push(("STARTTLS".to_owned(), out));
                            handshake.secured();
                        }
                        Step::Transmission(agreed) => {
                            self.log.push((format!("{agreed:?}"), out));
                            self.phase = Phase::Transmission(Box::new(Transmission::new(agreed)));
                        }
                        Step::Close(why) => {
                            let again = handshake.input(bytes, &mut Vec::new()).step;
                            assert!(matches!(again, Step::Close(_)), "{again:?} behind {why}");
                            self.close(why.to_string(), out);
                        }
                    }
                }
                Phase::Transmission(transmission) => {
                    if let Some(why) = transmission.input(bytes, &mut self.log) {
                        self.close(why, Vec::new());
                    }
                    return;
                }
                Phase::Closed => return,
            }
        }
    }

    fn close(&mut self, why: String, out: Vec<u8>) {
        assert!(!why.is_empty(), "a session ended without a reason");
        self.log.push((why, out));
        self.phase = Phase::Closed;
    }
}

/// Replies that end the answer to an option.
fn finals(mut out: &[u8]) -> usize {
    let mut finals = 0;
    while !out.is_empty() {
        let header = OptionReplyHeader::decode(out).expect("an answer is replies to an option");
        let more = [OptionReplyCode::SERVER, OptionReplyCode::INFO, OptionReplyCode::META_CONTEXT];
        finals += usize::from(!more.contains(&header.code));
        out = &out[OptionReplyHeader::LEN + header.length as usize..];
    }
    finals
}

impl Transmission {
    fn new(agreed: Negotiated) -> Transmission {
        let ear = client::Replies::new(agreed.mode, agreed.allocation);
        Transmission { agreed, held: Vec::new(), left: 0, open: None, ear }
    }

    /// Takes a piece of the stream; why the session ends if it does.
    fn input(&mut self, mut bytes: &[u8], log: &mut Log) -> Option<String> {
        if self.left > 0 {
            let here = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
            bytes = &bytes[here..];
            self.left -= here as u64;
            if self.left > 0 {
                return None;
            }
            let (request, verdict) = self.open.take().expect("payload belongs to a request");
            self.answer(&request, verdict, log);
        }
        let held = std::mem::take(&mut self.held);
        let batch = [&held[..], bytes].concat();
        let mut requests = Requests::new(self.agreed.mode, &batch);
        for incoming in requests.by_ref() {
            let incoming = match incoming {
                Ok(incoming) => incoming,
                Err(magic) => return Some(magic.to_string()),
            };
            let request = incoming.request;
            let verdict = self.agreed.geometry().check(&request);
            let payload = incoming.payload.len() as u64 + incoming.missing;
            match verdict {
                Ok(Checked::Disconnect) => return Some("disconnect".to_owned()),
                Ok(_) => {
                    let bound = u64::from(self.agreed.block.maximum);
                    assert!(payload <= bound, "payload of {payload} bytes is taken, not {bound}");
                }
                Err(Reject { then: Then::Drain(len), .. }) => {
                    assert_eq!(u64::from(len), payload, "the refused payload is passed over");
                }
                Err(Reject { then: Then::Close, .. }) => {
                    self.answer(&request, verdict, log);
                    return Some("payload too long".to_owned());
                }
            }
            if incoming.missing > 0 {
                self.left = incoming.missing;
                self.open = Some((request, verdict));
            } else {
                self.answer(&request, verdict, log);
            }
        }
        self.held = batch[requests.consumed()..].to_vec();
        let header = self.agreed.mode.request_len();
        assert!(self.held.len() < header, "{} bytes are left of a header", self.held.len());
        None
    }

    /// Answers a request, and has the answer read by a client that asked this and nothing else.
    fn answer(&mut self, request: &Request, verdict: Result<Checked, Reject>, log: &mut Log) {
        let mut out = Vec::new();
        let result = match &verdict {
            Ok(checked) => self.execute(request, *checked, &mut out),
            Err(reject) => {
                self.agreed.replies().reject(request.reply_to(), reject, &mut out);
                Err(reject.error)
            }
        };
        // A length that weir's client does not ask for is refused, so it does not matter below.
        let length = match request.command {
            Command::READ | Command::WRITE => request.length.min(u64::from(u32::MAX)),
            _ => request.length,
        };
        let asked = Request { length, ..*request };
        let pending = client::Requests::new(self.agreed.mode).push(&asked, &mut Vec::new());
        let pending = pending.expect("a request of this mode");
        let mut in_flight = BTreeMap::from([(request.cookie, pending)]);
        let mut rest = &out[..];
        loop {
            match self.ear.next(&mut rest, &mut in_flight) {
                Ok(Event::NeedMore) => break,
                Ok(Event::Done { cookie, result: heard }) => {
                    assert_eq!(heard, result, "{request:?} ends as it was meant");
                    assert!(in_flight.remove(&cookie).is_some(), "{request:?} ends twice");
                }
                Ok(_) => {}
                Err(why) => panic!("the reply to {request:?} is none: {why}"),
            }
        }
        assert!(in_flight.is_empty(), "{request:?} has no reply");
        log.push((format!("{request:?} {verdict:?}"), out));
    }

    fn execute(
        &self,
        request: &Request,
        checked: Checked,
        out: &mut Vec<u8>,
    ) -> Result<(), NbdError> {
        let (replies, to) = (self.agreed.replies(), request.reply_to());
        let inside = |start: u64, length: u64| {
            let end = start.checked_add(length).expect("a range that ends");
            assert!(length > 0 && end <= self.agreed.size, "{request:?} leaves the export");
        };
        match checked {
            Checked::Read { range, whole } => {
                inside(range.offset, range.length);
                let (start, end) = (range.offset, range.offset + range.length);
                let length = |bytes: u64| u32::try_from(bytes).expect("bounded");
                if self.agreed.mode == Mode::Simple || whole || end <= HALF || start >= HALF {
                    replies.read_header(to, length(range.length), out);
                    out.resize(out.len() + range.length as usize, 0x5a);
                    return Ok(());
                }
                let data = Chunk { offset: start, length: length(HALF - start), last: false };
                replies.data_header(to, data, out);
                out.resize(out.len() + data.length as usize, 0x5a);
                let hole = Chunk { offset: HALF, length: length(end - HALF), last: true };
                replies.hole(to, hole, out);
                return Ok(());
            }
            Checked::BlockStatus { range, one } => {
                inside(range.offset, range.length);
                let context = self.agreed.allocation.expect("a context was agreed on");
                let data = HALF.min(self.agreed.size).saturating_sub(range.offset);
                let hole = self.agreed.size - range.offset - data;
                let extents = [
                    Extent { length: data, flags: StatusFlags::EMPTY },
                    Extent { length: hole, flags: StatusFlags::HOLE | StatusFlags::ZERO },
                ];
                let query = StatusQuery { context, length: range.length, one };
                replies.block_status(to, query, extents, out);
                return Ok(());
            }
            Checked::WriteZeroes { fast: true, .. } => {
                replies.error(to, NbdError::NotSup, "zeroing is as slow as writing", out);
                return Err(NbdError::NotSup);
            }
            Checked::Write { range, .. }
            | Checked::WriteZeroes { range, .. }
            | Checked::Trim { range, .. }
            | Checked::Cache { range }
            | Checked::Unaligned { range, .. } => inside(range.offset, range.length),
            Checked::Flush | Checked::Disconnect => {}
        }
        replies.done(to, out);
        Ok(())
    }
}
