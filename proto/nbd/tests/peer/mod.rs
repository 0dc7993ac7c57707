//! A small server over a disk in memory, and a client's ear, for tests: what a front and a driver
//! do with this crate, without a socket.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{Event, Pending, Replies as ClientReplies, ServerInfo};
use weir_proto_nbd::server::{
    Checked, Chunk, CloseReason, Export, Handshake, Negotiated, Requests, Settings, StatusQuery,
    Step, Then,
};
use weir_proto_nbd::wire::{BlockSizes, Extent, Mode, StatusFlags, TransmissionFlags};

/// Size of the disk in bytes; its first half is data, 0x5a, its second half a hole.
pub const DISK: usize = 65536;
const HALF: u64 = DISK as u64 / 2;

/// The exports of every test server: a disk that can do everything, and a read-only spare one.
pub fn exports() -> Vec<Export> {
    let mut disk = Export::new("disk", DISK as u64);
    disk.description = "half a hole".to_owned();
    let mut spare = Export::new("spare", 4096);
    spare.flags = TransmissionFlags::READ_ONLY | TransmissionFlags::CAN_MULTI_CONN;
    spare.allocation = false;
    vec![disk, spare]
}

enum Phase {
    Handshake(Box<Handshake<Vec<Export>>>),
    Transmission(Negotiated),
    Closed,
}

/// The server of one connection.
pub struct Server {
    phase: Phase,
    disk: Vec<u8>,
    /// Bytes received and not used up yet.
    inbox: Vec<u8>,
    /// Why the handshake ended the session, if it did.
    pub closed: Option<CloseReason>,
}

impl Server {
    pub fn new(settings: Settings, out: &mut Vec<u8>) -> Self {
        let handshake = Box::new(Handshake::new(exports(), settings, out));
        let mut disk = vec![0; DISK];
        disk[..DISK / 2].fill(0x5a);
        Self { phase: Phase::Handshake(handshake), disk, inbox: Vec::new(), closed: None }
    }

    pub fn negotiated(&self) -> Option<&Negotiated> {
        match &self.phase {
            Phase::Transmission(agreed) => Some(agreed),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.inbox.extend_from_slice(bytes);
        loop {
            let before = self.inbox.len();
            match &mut self.phase {
                Phase::Handshake(handshake) => {
                    let input = handshake.input(&self.inbox, out);
                    self.inbox.drain(..input.consumed);
                    match input.step {
                        Step::NeedMore => return,
                        Step::Answered => {}
                        // The stand-in for TLS changes no byte.
                        Step::StartTls => handshake.secured(),
                        Step::Transmission(agreed) => self.phase = Phase::Transmission(agreed),
                        Step::Close(why) => {
                            self.closed = Some(why);
                            self.phase = Phase::Closed;
                        }
                    }
                }
                Phase::Transmission(agreed) => {
                    let agreed = agreed.clone();
                    self.transmission(&agreed, out);
                    if self.inbox.len() == before {
                        return;
                    }
                }
                Phase::Closed => return,
            }
        }
    }

    fn transmission(&mut self, agreed: &Negotiated, out: &mut Vec<u8>) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut used = 0;
        let mut requests = Requests::new(agreed.mode, &inbox);
        while let Some(incoming) = requests.next() {
            let Ok(incoming) = incoming else {
                self.phase = Phase::Closed;
                return;
            };
            let request = incoming.request;
            match agreed.geometry().check(&request) {
                // This server waits for whole payloads; a front would not.
                _ if incoming.missing > 0 && incoming.missing < 1 << 26 => break,
                Ok(checked) => {
                    self.execute(agreed, request.reply_to(), checked, incoming.payload, out)
                }
                Err(reject) => {
                    agreed.replies().reject(request.reply_to(), &reject, out);
                    if reject.then == Then::Close {
                        self.phase = Phase::Closed;
                    }
                }
            }
            used = requests.consumed();
        }
        self.inbox = inbox[used..].to_vec();
    }

    fn execute(
        &mut self,
        agreed: &Negotiated,
        to: weir_proto_nbd::wire::ReplyTo,
        checked: Checked,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) {
        let replies = agreed.replies();
        match checked {
            Checked::Read { range, whole } => {
                let (start, end) = (range.offset, range.offset + range.length);
                let data = &self.disk[start as usize..end as usize];
                if agreed.mode == Mode::Simple || whole || end <= HALF || start >= HALF {
                    replies.read_header(to, range.length as u32, out);
                    return out.extend_from_slice(data);
                }
                let length = (HALF - start) as u32;
                replies.data_header(to, Chunk { offset: start, length, last: false }, out);
                out.extend_from_slice(&data[..length as usize]);
                let length = (end - HALF) as u32;
                return replies.hole(to, Chunk { offset: HALF, length, last: true }, out);
            }
            Checked::BlockStatus { range, one } => {
                let context = agreed.allocation.expect("checked");
                let query = StatusQuery { context, length: range.length, one };
                let data = HALF.saturating_sub(range.offset);
                let hole = DISK as u64 - range.offset - data;
                let extents = [
                    Extent { length: data, flags: StatusFlags::EMPTY },
                    Extent { length: hole, flags: StatusFlags::HOLE | StatusFlags::ZERO },
                ];
                return replies.block_status(to, query, extents, out);
            }
            Checked::Unaligned { .. } => unreachable!("its block is a byte"),
            Checked::WriteZeroes { fast: true, .. } => {
                return replies.error(to, NbdError::NotSup, "zeroing is as slow as writing", out);
            }
            Checked::Write { range, .. } => {
                self.disk[range.offset as usize..][..payload.len()].copy_from_slice(payload);
            }
            Checked::WriteZeroes { range, .. } | Checked::Trim { range, .. } => {
                self.disk[range.offset as usize..][..range.length as usize].fill(0);
            }
            Checked::Disconnect => {
                self.phase = Phase::Closed;
                return;
            }
            Checked::Flush | Checked::Cache { .. } => {}
        }
        replies.done(to, out);
    }
}

/// The events a client hears, one line each; neighbouring pieces of data are one event.
pub struct Ear {
    replies: ClientReplies,
    pub in_flight: BTreeMap<u64, Pending>,
    lines: Vec<String>,
    data: Option<(u64, u64, Vec<u8>)>,
}

impl Ear {
    pub fn new(mode: Mode, context: Option<u32>) -> Self {
        let replies = ClientReplies::new(mode, context);
        Self { replies, in_flight: BTreeMap::new(), lines: Vec::new(), data: None }
    }

    pub fn input(&mut self, mut bytes: &[u8]) {
        loop {
            let event = self.replies.next(&mut bytes, &mut self.in_flight);
            if let Ok(Event::Data { cookie, offset, bytes }) = event {
                match &mut self.data {
                    Some((c, o, held)) if *c == cookie && *o + held.len() as u64 == offset => {
                        held.extend_from_slice(bytes);
                    }
                    _ => {
                        self.flush_data();
                        self.data = Some((cookie, offset, bytes.to_vec()));
                    }
                }
                continue;
            }
            if event != Ok(Event::NeedMore) {
                self.flush_data();
            }
            let line = match event {
                Ok(Event::NeedMore) => return,
                Ok(Event::Data { .. }) => continue,
                Ok(Event::Hole { cookie, offset, length }) => {
                    format!("hole {cookie} at {offset}: {length}")
                }
                Ok(Event::Extent { cookie, offset, extent: Extent { length, flags } }) => {
                    format!("extent {cookie} at {offset}: {length} flags {}", flags.bits())
                }
                Ok(Event::Error { cookie, error, at }) => {
                    let at = at.map_or(String::new(), |at| format!(" at {at}"));
                    format!("error {cookie} {error}{at}: {}", self.replies.words())
                }
                Ok(Event::Done { cookie, result }) => {
                    self.in_flight.remove(&cookie);
                    format!("done {cookie} {}", result.map_or_else(|e| e.name(), |()| "ok"))
                }
                Err(why) => {
                    self.lines.push(format!("lost {why}"));
                    return;
                }
            };
            self.lines.push(line);
        }
    }

    /// The events since the last call.
    pub fn lines(&mut self) -> Vec<String> {
        self.flush_data();
        std::mem::take(&mut self.lines)
    }

    fn flush_data(&mut self) {
        if let Some((cookie, offset, bytes)) = self.data.take() {
            self.lines.push(format!("data {cookie} at {offset}: {}", runs(&bytes)));
        }
    }
}

/// Bytes as hex, repeated ones counted: `5a*512 00*512`.
pub fn runs(bytes: &[u8]) -> String {
    let mut text = String::new();
    for run in bytes.chunk_by(|a, b| a == b) {
        let space = if text.is_empty() { "" } else { " " };
        write!(text, "{space}{:02x}*{}", run[0], run.len()).expect("a string takes everything");
    }
    text
}

/// A server's answer to a client's wishes, in one line.
pub fn describe(info: &ServerInfo) -> String {
    let BlockSizes { minimum, preferred, maximum } = info.block;
    let context = info.allocation.map_or("none".to_owned(), |id| id.to_string());
    format!(
        "ready {:?} size {} flags {:04x} blocks {minimum} {preferred} {maximum} context {context}",
        info.mode,
        info.size,
        info.flags.bits()
    )
}
