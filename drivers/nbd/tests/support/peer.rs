//! Servers played by the test, byte by byte, over a UNIX socket.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use weir_bio::Prng;
use weir_driver_nbd::Address;
use weir_proto_nbd::server::{
    Checked, Chunk, Decoded, Export, Handshake, Negotiated, Range, Replies, Settings, StatusQuery,
    Step, decode,
};
use weir_proto_nbd::wire::{Extent, Mode, ReplyTo, Request, StatusFlags};

use super::{Folder, PATIENCE_S};

/// Size of the export these servers play, in bytes.
pub const SIZE: u64 = 4 << 20;

/// A server's place.
pub struct Peer {
    listener: UnixListener,
    socket: PathBuf,
    _folder: Folder,
}

impl Peer {
    pub fn new() -> Peer {
        let folder = Folder::new();
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).expect("a socket");
        Peer { listener, socket, _folder: folder }
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// The next client, before anything was said.
    pub fn connection(&self) -> UnixStream {
        let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&patience));
        assert_eq!(ready, Ok(1), "no client in {PATIENCE_S} s");
        let (stream, _) = self.listener.accept().expect("a client");
        let patience = Some(Duration::from_secs(PATIENCE_S as u64));
        stream.set_read_timeout(patience).expect("a time limit");
        stream.set_write_timeout(patience).expect("a time limit");
        stream
    }

    /// Whether a client waits to be let in.
    pub fn has_client(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&at_once));
        ready.expect("a socket that can be asked") > 0
    }

    /// The next client, after a handshake about this export.
    pub fn session(&self, export: Export, settings: Settings) -> Session {
        Session::over(self.connection(), export, settings)
    }

    /// The next client, after a handshake in this mode.
    pub fn session_in(&self, mode: Mode) -> Session {
        self.session(Export::new("", SIZE), settings(mode))
    }
}

/// Settings that come to this mode with a client that wants everything.
pub fn settings(mode: Mode) -> Settings {
    let (structured, extended) = (mode != Mode::Simple, mode == Mode::Extended);
    Settings { structured, extended, ..Settings::default() }
}

/// One client in transmission.
pub struct Session {
    pub stream: UnixStream,
    pub agreed: Negotiated,
    /// Received and not used.
    held: Vec<u8>,
}

impl Session {
    fn over(mut stream: UnixStream, export: Export, settings: Settings) -> Session {
        let mut out = Vec::new();
        let mut handshake = Handshake::new(vec![export], settings, &mut out);
        let mut held: Vec<u8> = Vec::new();
        loop {
            stream.write_all(&out).expect("the client listens");
            out.clear();
            let step = handshake.input(&held, &mut out);
            held.drain(..step.consumed);
            match step.step {
                Step::Transmission(agreed) => {
                    stream.write_all(&out).expect("the client listens");
                    return Session { stream, agreed, held };
                }
                Step::Close(why) => panic!("handshake: {why:?}"),
                Step::StartTls => panic!("handshake: this server has no TLS"),
                Step::Answered => {}
                Step::NeedMore => {
                    let mut piece = [0; 512];
                    let got = stream.read(&mut piece).expect("the client speaks");
                    assert!(got > 0, "the client left in the handshake");
                    held.extend_from_slice(&piece[..got]);
                }
            }
        }
    }

    pub fn replies(&self) -> Replies {
        self.agreed.replies()
    }

    /// The next request header; `None` when the client has left.
    pub fn header(&mut self) -> Option<Request> {
        loop {
            match decode(self.agreed.mode, &self.held) {
                Decoded::Request(request) => {
                    self.held.drain(..self.agreed.mode.request_len());
                    return Some(request);
                }
                Decoded::BadMagic(bad) => panic!("{bad}"),
                Decoded::NeedMore => {
                    if !self.receive() {
                        return None;
                    }
                }
            }
        }
    }

    /// The payload behind a header.
    pub fn payload(&mut self, request: &Request) -> Vec<u8> {
        let length = request.payload_len(self.agreed.mode) as usize;
        while self.held.len() < length {
            assert!(self.receive(), "the client left in the middle of a payload");
        }
        self.held.drain(..length).collect()
    }

    /// The next request with its payload.
    pub fn request(&mut self) -> Option<(Request, Vec<u8>)> {
        let request = self.header()?;
        let payload = self.payload(&request);
        Some((request, payload))
    }

    /// False when the client has left.
    fn receive(&mut self) -> bool {
        let mut piece = vec![0; 64 << 10];
        // A client that gave up on this server leaves without reading what it was sent.
        let got = self.stream.read(&mut piece).unwrap_or(0);
        self.held.extend_from_slice(&piece[..got]);
        got > 0
    }

    /// Sends what an encoder appends.
    pub fn say(&mut self, put: impl FnOnce(&Replies, &mut Vec<u8>)) {
        let mut out = Vec::new();
        put(&self.replies(), &mut out);
        self.send(&out);
    }

    pub fn send(&mut self, bytes: &[u8]) {
        // The client may have left already; what it makes of that is what is tested.
        let _ = self.stream.write_all(bytes);
    }

    /// Whether the client has said that it sends nothing more, and has sent nothing else.
    pub fn has_end(&self) -> bool {
        assert!(self.held.is_empty(), "requests that were not looked at");
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut [0; 1][..], flags) {
            Ok((0, _)) => true,
            Err(Errno::AGAIN) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Everything that is still to come from the client, to its end.
    pub fn rest(mut self) -> Vec<u8> {
        while self.receive() {}
        self.held
    }

    /// Waits until the client has left.
    pub fn until_left(mut self) {
        while self.receive() {
            self.held.clear();
        }
    }

    /// Takes one request and leaves.
    pub fn vanish(mut self) {
        self.request();
    }

    /// Serves this disk until the client leaves, one request after the other.
    pub fn serve(mut self, disk: &Disk) {
        while let Some((request, payload)) = self.request() {
            let mut out = Vec::new();
            if !disk.answer(&self.agreed, &request, &payload, None, &mut out) {
                return;
            }
            self.send(&out);
        }
    }

    /// The same, as awkwardly as the protocol allows: whole batches in any order, reads in pieces
    /// in any order with holes where there are zeros, bytes in any fragments.
    pub fn serve_awkwardly(mut self, disk: &Disk, seed: u64) {
        let mut prng = Prng::new(seed);
        while let Some(first) = self.request() {
            let mut batch = vec![first];
            while self.held.len() >= self.agreed.mode.request_len() && batch.len() < 20 {
                batch.extend(self.request());
            }
            let mut replies = Vec::new();
            for (request, payload) in &batch {
                let mut out = Vec::new();
                if !disk.answer(&self.agreed, request, payload, Some(&mut prng), &mut out) {
                    return;
                }
                replies.push(out);
            }
            while !replies.is_empty() {
                let reply = replies.swap_remove(prng.below(replies.len() as u64) as usize);
                let mut rest = &reply[..];
                while !rest.is_empty() {
                    let cut = 1 + prng.below(rest.len().min(20_000) as u64) as usize;
                    let cut = if prng.percent(50) { cut } else { rest.len() };
                    self.send(&rest[..cut]);
                    rest = &rest[cut..];
                }
            }
        }
    }
}

/// A disk in memory.
pub struct Disk(pub Mutex<Vec<u8>>);

impl Disk {
    pub fn new() -> Disk {
        Disk(Mutex::new(vec![0; SIZE as usize]))
    }

    /// Does what is asked and appends the reply; false for a DISC.
    fn answer(
        &self,
        agreed: &Negotiated,
        request: &Request,
        payload: &[u8],
        prng: Option<&mut Prng>,
        out: &mut Vec<u8>,
    ) -> bool {
        let (replies, to) = (agreed.replies(), request.reply_to());
        let checked = match agreed.geometry().check(request) {
            Ok(checked) => checked,
            Err(reject) => {
                replies.reject(to, &reject, out);
                return true;
            }
        };
        let mut disk = self.0.lock().expect("a disk");
        let slice = |range: &Range| range.offset as usize..(range.offset + range.length) as usize;
        match checked {
            Checked::Disconnect => return false,
            Checked::Read { range, .. } => {
                let data = &disk[slice(&range)];
                match prng {
                    Some(prng) if agreed.mode != Mode::Simple => {
                        in_pieces(replies, to, range, data, prng, out);
                    }
                    _ => {
                        replies.read_header(to, range.length as u32, out);
                        out.extend_from_slice(data);
                    }
                }
                return true;
            }
            Checked::BlockStatus { range, one } => {
                let context = agreed.allocation.expect("it was asked for");
                let query = StatusQuery { context, length: range.length, one };
                // Every other 64 KiB is a hole, for all that is said.
                let extents = (range.offset..range.offset + range.length).step_by(1 << 16);
                let extents = extents.map(|at| Extent {
                    length: 1 << 16,
                    flags: if at >> 16 & 1 == 1 { StatusFlags::HOLE } else { StatusFlags::EMPTY },
                });
                replies.block_status(to, query, extents, out);
                return true;
            }
            Checked::Write { range, .. } => disk[slice(&range)].copy_from_slice(payload),
            Checked::WriteZeroes { range, .. } => disk[slice(&range)].fill(0),
            Checked::Trim { .. } | Checked::Flush | Checked::Cache { .. } => {}
            Checked::Unaligned { .. } => unreachable!("its block is a byte"),
        }
        replies.done(to, out);
        true
    }
}

/// A read in up to five pieces in any order, with zeros as holes and sometimes an empty end.
fn in_pieces(
    replies: Replies,
    to: ReplyTo,
    range: Range,
    data: &[u8],
    prng: &mut Prng,
    out: &mut Vec<u8>,
) {
    let mut cuts = vec![0, data.len()];
    cuts.extend((0..prng.below(5)).map(|_| prng.below(data.len() as u64) as usize));
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces: Vec<(usize, usize)> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
    let empty_end = prng.percent(30);
    while !pieces.is_empty() {
        let (start, end) = pieces.swap_remove(prng.below(pieces.len() as u64) as usize);
        let last = pieces.is_empty() && !empty_end;
        let offset = range.offset + start as u64;
        let chunk = Chunk { offset, length: (end - start) as u32, last };
        if data[start..end].iter().all(|byte| *byte == 0) {
            replies.hole(to, chunk, out);
        } else {
            replies.data_header(to, chunk, out);
            out.extend_from_slice(&data[start..end]);
        }
    }
    if empty_end {
        replies.done(to, out);
    }
}
