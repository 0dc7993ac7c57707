//! A port of the iSCSI driver, with sockets, against a target that logs in and then does as the
//! input says: sound answers, answers with a byte changed, any bytes, silence, and the end of the
//! connection at any moment.
//!
//! - A command ends once, with all its memory, and at the latest when the bounds of time have
//!   passed, whatever the target does.
//! - Task management is answered once, by its deadline.
//! - The port never keeps its thread: each call comes back.
//!
//! Input: a byte of wishes, then steps: a byte each, and the bytes that it takes.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use weir_bio::{Buf, Data, Nanos};
use weir_driver_iscsi::{DigestOffer, Iscsi, Options, Portal};
use weir_driver_scsi::{Command, Direction, Ends, Management, Port, Transport};
use weir_proto_iscsi::IscsiName;
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{AsyncMessage, NO_TAG, Residual, ScsiCommand, put_pdu};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};

const NAME: &str = "iqn.2001-04.com.example:disk";
const SLOTS: usize = 6;
/// Lengths of data: copied, and sent from or received into the memory of the command.
const LENGTHS: [u32; 3] = [512, 4096, 40 << 10];
const SECOND: u64 = 1_000_000_000;
/// Real time that only a hang takes.
const HANGS: Duration = Duration::from_secs(20);

/// A session that the target's side has just logged in.
type Accepted = (TcpStream, Target);

/// Where the target listens. Each thread that runs this has one of its own.
struct Listening {
    port: u16,
    /// What the next session negotiates.
    wishes: Sender<u8>,
    sessions: Receiver<Accepted>,
}

thread_local! {
    static LISTENING: Listening = listen();
}

fn profile(wishes: u8) -> Profile {
    let mut profile = Profile::new(IscsiName::new(NAME).expect("a name"));
    let digest = |bit| if wishes & bit != 0 { DigestOffer::Require } else { DigestOffer::Never };
    let offer = &mut profile.offer;
    (offer.header_digest, offer.data_digest) = (digest(1), digest(2));
    (offer.initial_r2t, offer.immediate_data) = (wishes & 4 != 0, wishes & 8 != 0);
    (offer.segment_max, offer.first_burst, offer.burst_max) = (8192, 8192, 32 << 10);
    (offer.time2wait_s, profile.window) = (u16::from(wishes >> 6), 16);
    profile
}

fn listen() -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let ((wishes, wished), (sender, sessions)) = (channel(), channel());
    std::thread::spawn(move || {
        let mut wish = 0;
        for stream in listener.incoming().flatten() {
            wish = wished.try_iter().last().unwrap_or(wish);
            let session = log_in(stream, wish);
            if session.is_some_and(|session| sender.send(session).is_err()) {
                return;
            }
        }
    });
    Listening { port, wishes, sessions }
}

/// The honest half: a login. `None` if the initiator goes away.
fn log_in(mut stream: TcpStream, wishes: u8) -> Option<Accepted> {
    stream.set_read_timeout(Some(HANGS)).ok()?;
    stream.set_nodelay(true).ok()?;
    let (mut target, mut bytes) = (Target::new(profile(wishes)), [0; 8192]);
    loop {
        let got = stream.read(&mut bytes).ok().filter(|got| *got > 0)?;
        let (mut input, mut out) = (&bytes[..got], Vec::new());
        let ready = target.next(&mut input, &mut out).ok()? == Asked::LoggedIn;
        stream.write_all(&out).ok()?;
        if ready {
            stream.set_nonblocking(true).ok()?;
            return Some((stream, target));
        }
    }
}

pub fn check(bytes: &[u8]) {
    let Some((&wishes, steps)) = bytes.split_first() else { return };
    LISTENING.with(|listening| {
        while listening.sessions.try_recv().is_ok() {}
        listening.wishes.send(wishes).expect("the target listens");
        Scene::new(listening, wishes).all(steps);
    });
}

/// A port with what it was lent, and the target's end.
struct Scene<'a> {
    listening: &'a Listening,
    session: Option<Accepted>,
    /// Commands of the session that the target has read and not ended.
    commands: Vec<ScsiCommand>,
    port: Box<dyn Port>,
    now: Nanos,
    ends: Ends,
    /// Pieces and bytes lent with each command in flight, and its direction.
    lent: [Option<(usize, Direction)>; SLOTS],
    /// Deadlines of task management that has not been answered.
    asked: BTreeMap<u32, Nanos>,
    token: u32,
    /// Whether commands wait for a session for a bounded time.
    has_bound: bool,
    // Behind the port, which borrows nothing of it but is its own.
    _transport: Iscsi,
}

impl<'a> Scene<'a> {
    fn new(listening: &'a Listening, wishes: u8) -> Scene<'a> {
        let portal = Portal::new(&format!("127.0.0.1:{}", listening.port)).expect("a portal");
        let has_bound = wishes & 16 == 0;
        let digest =
            |bit| if wishes & bit != 0 { DigestOffer::Require } else { DigestOffer::Accept };
        let options = Options {
            header_digest: digest(1),
            data_digest: digest(2),
            depth: SLOTS as u16,
            replacement_timeout: has_bound.then_some(Duration::from_secs(5)),
            ..Options::new(vec![portal])
        };
        let name = IscsiName::new(NAME).expect("a name");
        let transport = Iscsi::new(name, options).expect("options");
        let port = transport.open(0).expect("a session");
        let session = listening.sessions.recv_timeout(HANGS).expect("it was logged in to");
        Scene {
            listening,
            session: Some(session),
            commands: Vec::new(),
            port,
            now: Nanos(SECOND),
            ends: Ends::default(),
            lent: Default::default(),
            asked: BTreeMap::new(),
            token: 0,
            has_bound,
            _transport: transport,
        }
    }

    fn all(mut self, mut steps: &[u8]) {
        // A life of bounded length, so that an input is.
        for _ in 0..64 {
            let Some((&kind, rest)) = steps.split_first() else { break };
            steps = rest;
            self.step(kind, &mut steps);
            self.turn();
        }
        self.hang_up();
        self.bounds_pass();
    }

    fn step(&mut self, kind: u8, steps: &mut &[u8]) {
        let mut byte = || {
            let (first, rest) = steps.split_first().unwrap_or((&0, &[]));
            *steps = rest;
            *first
        };
        match kind & 0xf {
            0..=2 => self.send(byte(), byte()),
            3..=8 => {
                let (which, how, place, by) = (byte(), byte(), byte(), byte());
                let broken = (kind & 0x80 != 0).then_some((place, by));
                self.answer(kind, which, how, broken);
            }
            9 => {
                let length = usize::from(byte()).min(steps.len());
                let (raw, rest) = steps.split_at(length);
                *steps = rest;
                self.say(raw);
            }
            10 => self.now = self.now + u64::from(byte()) * (SECOND / 20),
            11 => self.manage(byte()),
            12 => self.hang_up(),
            13 => self.accept(),
            // Everything that waits is served as it should be.
            _ => {
                while !self.commands.is_empty() {
                    self.answer(3, 0, 0, None);
                }
            }
        }
    }

    fn send(&mut self, slot: u8, how: u8) {
        let slot = usize::from(slot) % SLOTS;
        if self.lent[slot].is_some() {
            return;
        }
        let length = LENGTHS[usize::from(how >> 2) % LENGTHS.len()];
        let direction = match how & 3 {
            0 => Direction::None,
            1 => Direction::Out(length),
            _ => Direction::In(length),
        };
        let (pieces, zeros) = (1 + usize::from(how >> 5), how & 0x10 != 0);
        let mut memory: Vec<Data> = match direction {
            Direction::None => Vec::new(),
            Direction::Out(_) if zeros => vec![Data::Zero { len: length, spare: None }],
            _ => {
                let piece = (length as usize).div_ceil(pieces);
                let lengths = (0..length as usize).step_by(piece);
                let piece = |at| Data::One(Buf::zeroed(piece.min(length as usize - at)));
                lengths.map(piece).collect()
            }
        };
        let count = memory.len();
        let command = Command { slot: slot as u16, lun: Lun::ZERO, cdb: &[0x28; 10], direction };
        match self.port.send(&command, &mut memory, self.now) {
            Ok(()) => {
                assert!(memory.is_empty());
                self.lent[slot] = Some((count, direction));
            }
            Err(_) => assert_eq!(memory.len(), count, "a refusal takes no memory"),
        }
        self.port.commit(self.now);
    }

    fn manage(&mut self, how: u8) {
        let what = match how >> 6 {
            0 => Management::LunReset(Lun::ZERO),
            1 => Management::TargetReset,
            2 if how & 0x20 != 0 => Management::SessionReset,
            _ => Management::Abort { slot: u16::from(how) % SLOTS as u16 },
        };
        self.token += 1;
        let deadline = self.now + SECOND;
        if self.port.manage(what, self.token, deadline, self.now).is_ok() {
            self.asked.insert(self.token, deadline);
        }
        self.port.commit(self.now);
    }

    /// Gives bytes to the port, as far as the socket takes them.
    fn say(&mut self, bytes: &[u8]) {
        if let Some((stream, _)) = &mut self.session
            && !bytes.is_empty()
        {
            let _ = stream.write(bytes);
        }
    }

    /// Answers one of the commands, or says something else.
    fn answer(&mut self, kind: u8, which: u8, how: u8, broken: Option<(u8, u8)>) {
        let Some((_, target)) = &mut self.session else { return };
        let mut out = Vec::new();
        target.open(16);
        let count = self.commands.len();
        let command = (count > 0).then(|| self.commands[usize::from(which) % count]);
        match (kind & 0xf, command) {
            (3 | 4, Some(command)) => {
                self.commands.swap_remove(usize::from(which) % count);
                serve(target, &command, how, &mut out);
            }
            (5, Some(command)) => {
                // Data without its end.
                let length = command.expected.min(u32::from(how) * 64);
                target.data_in((command.itt, 0, 0), &vec![1; length as usize], None, &mut out);
            }
            (6, Some(command)) => {
                let offset = if which & 0x80 == 0 { 8192 } else { 0 };
                let length = command.expected.saturating_sub(offset).max(1);
                target.ask((command.itt, 9, 0), 0, (offset, length), &mut out);
            }
            (7, _) => target.managed(u32::from(how & 1) << 16 | 0xff00, how >> 7, &mut out),
            _ if how & 1 == 0 => {
                (0..which % 20).for_each(|ttt| target.ping(ttt.into(), &mut out));
                target.ping(NO_TAG, &mut out);
            }
            _ => {
                let (numbers, event) = (target.count(), which % 6);
                let parameters = [0, u16::from(how >> 4), u16::from(how >> 5)];
                let message = AsyncMessage { lun: 0, event, code: 0, parameters, numbers };
                put_pdu(&mut out, message.encode(), &[0, 2, 0x70, 0], target.digests());
            }
        }
        if let Some((at, by)) = broken
            && !out.is_empty()
        {
            // Most fields stand in the first header.
            let at = if at < 240 { usize::from(at) % 52 } else { usize::from(at) * 17 };
            let at = at % out.len();
            out[at] ^= by;
        }
        self.say(&out);
    }

    /// What the initiator has sent.
    fn hear(&mut self) {
        let Some((stream, target)) = &mut self.session else { return };
        let (mut bytes, mut out) = (vec![0; 64 << 10], Vec::new());
        loop {
            let got = match stream.read(&mut bytes) {
                Ok(got @ 1..) => got,
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                _ => return self.hang_up(),
            };
            let mut input = &bytes[..got];
            loop {
                match target.next(&mut input, &mut out) {
                    Ok(Asked::NeedMore) => break,
                    Ok(Asked::Command { command, .. }) => {
                        // A tag is used again once its command has ended.
                        self.commands.retain(|known| known.itt != command.itt);
                        self.commands.push(command);
                    }
                    Ok(Asked::LoggedOut) => {
                        let _ = stream.write(&out);
                        return self.hang_up();
                    }
                    Ok(_) => {}
                    Err(why) => panic!("the initiator is not sound: {why}"),
                }
            }
        }
        self.say(&out);
    }

    fn hang_up(&mut self) {
        self.commands.clear();
        if let Some((stream, _)) = self.session.take() {
            // With a reset, so that no socket is left waiting for late bytes.
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }

    /// Lets a session that was lost come back, if its time has come.
    fn accept(&mut self) {
        self.hear();
        if self.session.is_some() {
            return;
        }
        for _ in 0..20 {
            self.now = self.now + SECOND / 4;
            self.turn();
            if let Ok(session) = self.listening.sessions.recv_timeout(Duration::from_millis(2)) {
                self.session = Some(session);
                self.wait();
                return;
            }
        }
    }

    /// Waits for the port's event, a little.
    fn wait(&mut self) {
        let event = self.port.event_fd().expect("it has an event");
        let short = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        match poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&short)) {
            // A fuzzer's clock is a signal.
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => panic!("poll: {why}"),
        }
        self.turn();
    }

    /// One turn of the port, and of the target's ears.
    fn turn(&mut self) {
        self.now = self.now + 1;
        self.port.reap(self.now, &mut self.ends);
        self.told();
        self.port.commit(self.now);
        self.hear();
    }

    /// Holds what a reap handed over against what was lent.
    fn told(&mut self) {
        let mut memory = self.ends.memory.drain(..);
        let mut sense = 0;
        for end in &self.ends.commands {
            let slot = usize::from(end.slot);
            let (pieces, direction) = self.lent[slot].take().expect("a command ends once");
            assert_eq!(usize::from(end.memory), pieces, "{end:?}");
            let length: usize = memory.by_ref().take(pieces).map(|data| data.len()).sum();
            let expected = match direction {
                Direction::None => 0,
                Direction::In(length) | Direction::Out(length) => length,
            };
            assert_eq!(length, expected as usize);
            assert!(end.moved <= expected, "{end:?} of {expected}");
            assert!(end.delivery == Delivery::Delivered || end.status == ScsiStatus::GOOD);
            sense += usize::from(end.sense);
        }
        assert!(memory.next().is_none() && sense == self.ends.sense.len());
        drop(memory);
        for (token, _) in &self.ends.managements {
            assert!(self.asked.remove(token).is_some(), "an answer comes once");
        }
        assert!(self.asked.values().all(|deadline| *deadline > self.now), "an answer is late");
        self.ends.clear();
        self.port.notices(&mut drop);
    }

    /// Whether nothing is in flight any more.
    fn is_over(&self) -> bool {
        self.lent.iter().all(Option::is_none) && self.asked.is_empty()
    }

    /// After the bounds of time nothing is left, or a session is back that has ended it.
    fn bounds_pass(&mut self) {
        for _ in 0..64 {
            if self.is_over() {
                return;
            }
            self.now = self.now + SECOND;
            self.turn();
            if let Ok(session) = self.listening.sessions.try_recv() {
                self.session = Some(session);
                self.wait();
                self.hang_up();
            }
        }
        // Without a bound of patience they wait for as long as no session is back.
        let over = self.is_over() || !self.has_bound;
        assert!(over, "commands without an end: {:?}, {:?}", self.lent, self.asked);
    }
}

/// An answer that ends a command.
fn serve(target: &mut Target, command: &ScsiCommand, how: u8, out: &mut Vec<u8>) {
    let (itt, expected) = (command.itt, command.expected);
    if how & 1 != 0 || (!command.read && !command.write) {
        let status = if how & 1 != 0 { 2 } else { 0 };
        let sense: &[u8] = if status == 2 { &[0x70, 0, 6, 0, 0, 0, 0, 10] } else { &[] };
        let residual = if status == 2 { Residual::Under(expected) } else { Residual::None };
        return target.respond(itt, (how >> 7, status), residual, sense, out);
    }
    if command.write {
        // Sound only if all of its data has come; else the initiator has to see through it.
        return target.respond(itt, (0, 0), Residual::None, &[], out);
    }
    let (mut at, mut data_sn) = (0, 0);
    while at < expected {
        let here = (expected - at).min(8192);
        let status = (at + here == expected).then_some((0, Residual::None));
        target.data_in((itt, data_sn, at), &vec![0x5a; here as usize], status, out);
        (at, data_sn) = (at + here, data_sn + 1);
    }
}
