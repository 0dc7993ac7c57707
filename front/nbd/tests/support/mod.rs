//! A server on real sockets, a client made of the protocol's client side, and a driver that tells
//! what it was asked and can be held.

#![allow(dead_code)] // Each test program uses a part of it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_bio::{Data, Flags, Limits, Nanos, Op, Status};
use weir_front_nbd::{Address, Export, Scope, Server, Settings};
use weir_live::Host;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::{
    Event, Handshake, Pending, Replies, Requests, ServerInfo, Step, Wanted,
};
use weir_proto_nbd::wire::{Command, CommandFlags, Mode, Request, StatusFlags};
use weir_queue::{
    Batch, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, Extent, Queues, Tag,
};

pub const SECOND: u64 = 1_000_000_000;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A server with one address.
pub struct Fixture {
    pub host: Host,
    pub server: Option<Server>,
    pub devices: Vec<Device>,
    pub path: PathBuf,
}

/// A device of this name on `driver`.
pub fn device(config: Config, driver: Arc<dyn Driver>) -> Device {
    Device::new(config, driver).expect("a valid configuration")
}

pub fn ram(bytes: u64) -> Arc<dyn Driver> {
    Arc::new(weir_local::Ram::new(bytes).expect("a size in sectors"))
}

pub fn socket_path() -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("weir-nbd-{}-{number}.sock", std::process::id()))
}

impl Fixture {
    pub fn new(reactors: usize, exports: Vec<Export>, settings: Settings) -> Fixture {
        let host = Host::new(reactors).expect("threads");
        let mut devices: Vec<Device> = Vec::new();
        for export in &exports {
            if !devices.iter().any(|device| device.is(&export.device)) {
                host.adopt(&export.device).expect("lanes open");
                devices.push(export.device.clone());
            }
        }
        let server = Server::new(&host, exports, settings).expect("valid exports");
        let path = socket_path();
        server.listen(&Address::Unix(path.clone()).into(), Scope::All).expect("a free path");
        Fixture { host, server: Some(server), devices, path }
    }

    /// One export `sda` on `driver`, two reactors, a lane each.
    pub fn on(driver: Arc<dyn Driver>) -> Fixture {
        let config = Config { name: "sda".into(), queues: 2, ..Config::default() };
        let device = device(config, driver);
        Fixture::new(2, vec![Export::new("sda", device)], Settings::default())
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("a server until it is stopped")
    }

    pub fn socket(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn client(&self, wanted: Wanted) -> Client {
        Client::over(self.socket(), wanted)
    }

    /// Waits until there are so many connections.
    pub fn wait_for_connections(&self, count: usize) {
        wait_until(&format!("{count} connections"), || self.server().connections() == count);
    }

    /// Stops everything; no client may be cut off, no request left unfinished.
    pub fn stop(mut self) {
        let server = self.server.take().expect("stopped once");
        assert_eq!(server.stop(20 * SECOND), 0, "connections cut off");
        drop(server);
        assert!(!self.path.exists(), "the socket file is removed");
        self.host.stop(20 * SECOND).expect("everything ends");
    }
}

/// Looks again and again until it is so.
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Descriptors this process has open.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a proc file system").count()
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub error: Option<NbdError>,
    pub words: String,
    pub data: Vec<u8>,
    /// Content chunks that came.
    pub chunks: usize,
    /// How many of them were holes.
    pub holes: usize,
    pub extents: Vec<(u64, StatusFlags)>,
}

impl Reply {
    pub fn ok(self) -> Reply {
        assert_eq!(self.error, None, "{}", self.words);
        self
    }
}

/// A blocking client that may have many requests under way.
pub struct Client {
    pub stream: UnixStream,
    pub info: ServerInfo,
    requests: Requests,
    replies: Replies,
    pending: BTreeMap<u64, Pending>,
    parts: BTreeMap<u64, Reply>,
    done: BTreeMap<u64, Reply>,
    /// Cookies in the order their replies ended.
    pub order: Vec<u64>,
    next: u64,
    input: Vec<u8>,
}

impl Client {
    pub fn over(stream: UnixStream, wanted: Wanted) -> Client {
        Client::try_over(stream, wanted).expect("a server that agrees")
    }

    pub fn try_over(mut stream: UnixStream, wanted: Wanted) -> Result<Client, String> {
        let handshake = Handshake::new(wanted).expect("a name that fits");
        Client::go_on(&mut stream, handshake, Vec::new())
    }

    /// Goes on with a handshake that has begun, first sending what it has to say.
    pub fn go_on(
        stream: &mut UnixStream,
        mut handshake: Handshake,
        mut out: Vec<u8>,
    ) -> Result<Client, String> {
        let mut part = vec![0; 4096];
        stream.write_all(&out).map_err(|error| error.to_string())?;
        out.clear();
        let (info, input) = loop {
            let count = stream.read(&mut part).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err(format!("closed while waiting for {}", handshake.waiting_for()));
            }
            let step = handshake.input(&part[..count], &mut out);
            stream.write_all(&out).map_err(|error| error.to_string())?;
            out.clear();
            match step.step {
                Step::NeedMore => {}
                Step::StartTls => return Err("TLS is another client's business".into()),
                Step::Ready(info) => break (info, part[step.consumed..count].to_vec()),
                Step::Failed(why) => return Err(why.to_string()),
            }
        };
        Ok(Client {
            stream: stream.try_clone().expect("a descriptor"),
            info,
            requests: Requests::new(info.mode),
            replies: Replies::new(info.mode, info.allocation),
            pending: BTreeMap::new(),
            parts: BTreeMap::new(),
            done: BTreeMap::new(),
            order: Vec::new(),
            next: 1,
            input,
        })
    }

    /// Encodes a request without sending it.
    pub fn encode(&mut self, request: Request, payload: &[u8], out: &mut Vec<u8>) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let pending = self.requests.push(&Request { cookie, ..request }, out).expect("it fits");
        if request.command != Command::DISC {
            self.pending.insert(cookie, pending);
            self.parts.insert(cookie, Reply::default());
        }
        out.extend_from_slice(payload);
        cookie
    }

    pub fn send(&mut self, request: Request, payload: &[u8]) -> u64 {
        let mut out = Vec::new();
        let cookie = self.encode(request, payload, &mut out);
        self.stream.write_all(&out).expect("a server that reads");
        cookie
    }

    /// Waits for the reply of one request, keeping others that come before it.
    pub fn wait(&mut self, cookie: u64) -> Reply {
        loop {
            if let Some(reply) = self.done.remove(&cookie) {
                return reply;
            }
            assert!(self.pending.contains_key(&cookie), "{cookie} was never asked");
            self.receive().expect("a server that answers");
        }
    }

    /// Receives once and decodes it. An error is the end of the connection.
    pub fn receive(&mut self) -> Result<(), String> {
        let mut part = vec![0; 1 << 16];
        if self.input.is_empty() {
            let count = self.stream.read(&mut part).map_err(|error| error.to_string())?;
            if count == 0 {
                return Err("closed".into());
            }
            self.input.extend_from_slice(&part[..count]);
        }
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        loop {
            let event = self.replies.next(&mut rest, &mut self.pending);
            match event.map_err(|error| error.to_string())? {
                Event::NeedMore => return Ok(()),
                Event::Data { cookie, offset, bytes } => {
                    let at = (offset - self.pending[&cookie].offset()) as usize;
                    let reply = self.parts.get_mut(&cookie).unwrap();
                    reply.data.resize(reply.data.len().max(at + bytes.len()), 0xEE);
                    reply.data[at..at + bytes.len()].copy_from_slice(bytes);
                    reply.chunks += usize::from(at == 0);
                }
                Event::Hole { cookie, offset, length } => {
                    let at = (offset - self.pending[&cookie].offset()) as usize;
                    let reply = self.parts.get_mut(&cookie).unwrap();
                    let end = at + length as usize;
                    reply.data.resize(reply.data.len().max(end), 0xEE);
                    reply.data[at..end].fill(0);
                    reply.chunks += 1;
                    reply.holes += 1;
                }
                Event::Extent { cookie, extent, .. } => {
                    let reply = self.parts.get_mut(&cookie).unwrap();
                    reply.extents.push((extent.length, extent.flags));
                }
                Event::Error { cookie, .. } => {
                    self.parts.get_mut(&cookie).unwrap().words = self.replies.words().to_owned();
                }
                Event::Done { cookie, result } => {
                    self.pending.remove(&cookie);
                    let mut reply = self.parts.remove(&cookie).unwrap();
                    reply.error = result.err();
                    self.done.insert(cookie, reply);
                    self.order.push(cookie);
                }
            }
        }
    }

    pub fn call(&mut self, request: Request, payload: &[u8]) -> Reply {
        let cookie = self.send(request, payload);
        self.wait(cookie)
    }

    pub fn ask(&mut self, command: Command, flags: CommandFlags, at: u64, length: u64) -> Reply {
        self.call(Request::new(command, 0, at, length).with(flags), &[])
    }

    pub fn read(&mut self, at: u64, length: u64) -> Vec<u8> {
        self.ask(Command::READ, CommandFlags::EMPTY, at, length).ok().data
    }

    pub fn write(&mut self, at: u64, payload: &[u8]) -> Reply {
        self.call(Request::new(Command::WRITE, 0, at, payload.len() as u64), payload)
    }

    pub fn flush(&mut self) -> Reply {
        self.ask(Command::FLUSH, CommandFlags::EMPTY, 0, 0)
    }

    /// Says goodbye and waits until the server has closed.
    pub fn disconnect(mut self) -> Vec<u64> {
        self.send(Request::new(Command::DISC, 0, 0, 0), &[]);
        while self.receive().is_ok() {}
        assert!(self.pending.is_empty(), "unanswered: {:?}", self.pending.keys());
        self.order
    }

    /// Reads all replies while `sender` still sends, says goodbye and waits until the server has
    /// closed; how many requests were answered.
    pub fn disconnect_behind(
        mut self,
        sender: std::thread::JoinHandle<std::io::Result<()>>,
    ) -> usize {
        while !self.pending.is_empty() {
            self.receive().expect("a server that answers");
        }
        sender.join().expect("no panic").expect("a server that reads");
        self.disconnect().len()
    }

    /// Reads until the connection ends, which has to be an orderly end or a reset.
    pub fn read_to_end(&mut self) {
        let start = Instant::now();
        let mut part = [0; 65536];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return,
                Ok(_) => assert!(start.elapsed() < PATIENCE, "the server goes on and on"),
                Err(error) => {
                    assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it does not end");
                    return;
                }
            }
        }
    }
}

/// Each mode, with the options that a client negotiates to come to it.
pub fn every_mode() -> [(Mode, Wanted); 3] {
    let extended = Wanted::everything("sda");
    let structured = Wanted { extended: false, ..extended.clone() };
    [
        (Mode::Simple, Wanted::nothing("sda")),
        (Mode::Structured, structured),
        (Mode::Extended, extended),
    ]
}

/// A pattern that differs from place to place and from seed to seed.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut prng = weir_bio::Prng::new(seed);
    (0..length.div_ceil(8)).flat_map(|_| prng.next().to_le_bytes()).take(length).collect()
}

/// The state that a [`Recorder`] shares with its test.
#[derive(Default)]
pub struct Record {
    /// Everything that reached the driver, in order.
    pub log: Mutex<Vec<(Op, Flags, u64, u64)>>,
    /// While set, nothing is answered.
    pub held: AtomicBool,
    /// The status answered instead of success.
    pub status: Mutex<Option<Status>>,
    /// While set, allocation queries wait.
    pub map_held: AtomicBool,
}

impl Record {
    pub fn ops(&self) -> Vec<Op> {
        self.log.lock().unwrap().iter().map(|(op, ..)| *op).collect()
    }

    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }
}

/// RAM behind a volatile cache that remembers what it was asked and answers when it may.
pub struct Recorder {
    inner: Arc<dyn Driver>,
    limits: Limits,
    pub record: Arc<Record>,
}

impl Recorder {
    pub fn new(bytes: u64, change: impl FnOnce(&mut Limits)) -> (Arc<Recorder>, Arc<Record>) {
        let inner = ram(bytes);
        let mut limits = Limits { volatile_cache: true, ..inner.limits() };
        change(&mut limits);
        let record = Arc::new(Record::default());
        (Arc::new(Recorder { inner, limits, record: Arc::clone(&record) }), record)
    }
}

impl Driver for Recorder {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let inner = self.inner.open(index, depth)?;
        let record = Arc::clone(&self.record);
        let (below, answered, now) = (Done::default(), Vec::new(), Nanos::ZERO);
        Ok(Box::new(RecorderQueue { inner, record, below, answered, now }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        wait_until("the map", || !self.record.map_held.load(Ordering::SeqCst));
        self.inner.allocation(sector, sectors)
    }
}

struct RecorderQueue {
    inner: Box<dyn DriverQueue>,
    record: Arc<Record>,
    below: Done,
    answered: Vec<(Tag, Status, Vec<Data>)>,
    now: Nanos,
}

impl DriverQueue for RecorderQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.now = now;
        while let Some((_, request)) = batch.peek() {
            let entry = (request.op(), request.flags(), request.offset(), request.len());
            let before = self.inner.in_flight();
            batch.offer(1, |one| self.inner.submit(one, now));
            if self.inner.in_flight() > before {
                self.record.log.lock().unwrap().push(entry);
            }
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.now = now;
        self.inner.reap(now, &mut self.below);
        self.answered.extend(self.below.drain());
        if self.record.held.load(Ordering::SeqCst) {
            return;
        }
        let instead = *self.record.status.lock().unwrap();
        for (tag, status, mut lent) in self.answered.drain(..) {
            done.push_lent(tag, instead.unwrap_or(status), &mut lent);
        }
    }

    fn cancel(&mut self, _: Tag) -> Cancel {
        Cancel::Pending
    }

    fn wake_at(&self) -> Option<Nanos> {
        (!self.answered.is_empty() || self.inner.in_flight() > 0).then(|| self.now + 200_000)
    }

    fn in_flight(&self) -> usize {
        self.answered.len() + self.inner.in_flight()
    }
}
