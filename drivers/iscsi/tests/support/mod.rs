//! A port with memory for its commands, turned by the thread of the test.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod fake;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_bio::{Buf, Data, Nanos};
use weir_driver_iscsi::{Credentials, Iscsi, IscsiName, Options, Portal, Secret};
use weir_driver_scsi::{
    Asked, Asker, Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port, Refusal,
    Transport,
};
use weir_proto_scsi::command::{ScsiCommand, SynchronizeCache, Transfer};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{CdbSize, Lun, ScsiStatus};

/// A wait that ends only if something is wrong.
const HANGS: Duration = Duration::from_secs(100);

pub fn lun(number: u32) -> Lun {
    Lun::new(number).expect("a number")
}

pub fn name(text: &str) -> IscsiName {
    IscsiName::new(text).expect("a name")
}

pub fn user(name: &str, secret: &str) -> Credentials {
    Credentials::new(name, Secret::new(secret.as_bytes().to_vec())).expect("a user")
}

pub fn portals(ports: &[u16]) -> Vec<Portal> {
    let portal = |port| Portal::new(&format!("127.0.0.1:{port}")).expect("a portal");
    ports.iter().map(portal).collect()
}

/// Options for a target at this port.
pub fn options(port: u16) -> Options {
    Options::new(portals(&[port]))
}

/// How a command ended, with its data.
#[derive(Debug)]
pub struct Ended {
    pub end: Delivered,
    pub data: Vec<u8>,
    pub sense: Vec<u8>,
}

impl Ended {
    pub fn is_good(&self) -> bool {
        self.end.delivery == Delivery::Delivered && self.end.status == ScsiStatus::GOOD
    }
}

/// An open port.
pub struct Bed {
    pub transport: Iscsi,
    pub port: Box<dyn Port>,
    began: Instant,
    /// Added to the time that has passed.
    pub ahead: u64,
    pub ended: BTreeMap<u16, Ended>,
    pub managed: BTreeMap<u32, ManagementAnswer>,
    pub told: Vec<String>,
    /// The sense of events, with their units.
    pub events: Vec<(Lun, Vec<u8>)>,
    ends: Ends,
}

impl Bed {
    pub fn open(target: &str, options: Options) -> Bed {
        Bed::try_open(target, options).expect("a session")
    }

    pub fn try_open(target: &str, options: Options) -> Result<Bed, String> {
        let transport = Iscsi::new(name(target), options).map_err(|why| why.to_string())?;
        Bed::try_with(transport)
    }

    /// On this transport.
    pub fn with(transport: Iscsi) -> Bed {
        Bed::try_with(transport).expect("a session")
    }

    /// Of a target that need not be there, and is to have the unit that this page names.
    #[track_caller]
    pub fn unreached(target: &str, options: Options, page: &[u8]) -> Bed {
        let transport = Iscsi::new(name(target), options).expect("an address");
        Bed::with(transport.unreached(lun(1), page).expect("a unit's name"))
    }

    fn try_with(transport: Iscsi) -> Result<Bed, String> {
        transport.prepare(0).map_err(|why| why.to_string())?;
        let port = transport.open(0).map_err(|why| why.to_string())?;
        let (ended, managed) = (BTreeMap::new(), BTreeMap::new());
        let (began, ends, told) = (Instant::now(), Ends::default(), Vec::new());
        let events = Vec::new();
        let mut bed = Bed { transport, port, began, ahead: 0, ended, managed, told, events, ends };
        bed.turn(Duration::ZERO);
        Ok(bed)
    }

    pub fn now(&self) -> Nanos {
        Nanos(1 + self.ahead + self.began.elapsed().as_nanos() as u64)
    }

    /// Waits until the port has something to do, at most so long, and reaps.
    pub fn turn(&mut self, at_most: Duration) {
        let now = self.now();
        let wake = self.port.wake_at().map_or(at_most, |at| Duration::from_nanos(at.since(now)));
        let wait = wake.min(at_most);
        let wait =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let event = self.port.event_fd().expect("it has an event");
        poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&wait)).expect("poll");
        let now = self.now();
        self.port.reap(now, &mut self.ends);
        let (mut memory, mut sense) = (self.ends.memory.drain(..), &self.ends.sense[..]);
        for end in &self.ends.commands {
            let mut data = Vec::new();
            for piece in memory.by_ref().take(end.memory.into()) {
                let at = data.len();
                data.resize(at + piece.len(), 0);
                piece.copy_to(&mut data[at..]);
            }
            let (own, rest) = sense.split_at(end.sense.into());
            sense = rest;
            let ended = Ended { end: *end, data, sense: own.to_vec() };
            let twice = self.ended.insert(end.slot, ended);
            assert!(twice.is_none(), "slot {} ended twice: {twice:?}", end.slot);
        }
        assert!(memory.next().is_none() && sense.is_empty(), "more memory than the ends have");
        drop(memory);
        self.managed.extend(self.ends.managements.drain(..));
        let mut sense = &self.ends.event_sense[..];
        for (lun, length) in &self.ends.events {
            let (own, rest) = sense.split_at((*length).into());
            sense = rest;
            self.events.push((*lun, own.to_vec()));
        }
        self.ends.clear();
        self.port.notices(&mut |notice| self.told.push(notice));
    }

    /// Turns until this holds.
    #[track_caller]
    pub fn until(&mut self, mut holds: impl FnMut(&mut Bed) -> bool) {
        let end = Instant::now() + HANGS;
        while !holds(self) {
            assert!(Instant::now() < end, "it hangs: {:?}", self.told);
            self.turn(Duration::from_millis(50));
        }
    }

    /// Turns until a notice has these words.
    #[track_caller]
    pub fn until_told(&mut self, words: &str) {
        self.until(|bed| bed.told.iter().any(|notice| notice.contains(words)));
    }

    /// Sends a command, with memory in pieces of at most so many bytes.
    pub fn send(
        &mut self,
        slot: u16,
        command: &ScsiCommand,
        data: Transferred<'_>,
        piece: usize,
    ) -> Result<(), Refusal> {
        let cdb = command.encode().expect("a command");
        let (direction, mut memory) = match data {
            Transferred::Nothing => (Direction::None, Vec::new()),
            Transferred::In(length) => {
                let all = vec![0xee; length];
                (Direction::In(length as u32), pieces(&all, piece))
            }
            Transferred::Out(bytes) => (Direction::Out(bytes.len() as u32), pieces(bytes, piece)),
        };
        let now = self.now();
        let command = Command { slot, lun: lun(1), cdb: cdb.bytes(), direction };
        let sent = self.port.send(&command, &mut memory, now);
        assert_eq!(sent.is_ok(), memory.is_empty() || data.is_empty(), "{sent:?}");
        sent
    }

    /// Sends it as soon as the port takes it.
    #[track_caller]
    pub fn push(&mut self, slot: u16, command: &ScsiCommand, data: Transferred<'_>, piece: usize) {
        let end = Instant::now() + HANGS;
        while let Err(why) = self.send(slot, command, data, piece) {
            assert!(matches!(why, Refusal::Busy | Refusal::Down), "{why:?} {:?}", self.told);
            assert!(Instant::now() < end, "{why:?} {:?}", self.told);
            self.commit();
            self.turn(Duration::from_millis(50));
        }
    }

    pub fn commit(&mut self) {
        let now = self.now();
        self.port.commit(now);
    }

    /// Runs one command to its end, again as often as it is disrupted or a unit attention is in its
    /// way.
    #[track_caller]
    pub fn run(&mut self, command: &ScsiCommand, data: Transferred<'_>) -> Ended {
        for _ in 0..10 {
            self.push(0, command, data, usize::MAX);
            self.commit();
            self.until(|bed| bed.ended.contains_key(&0));
            let ended = self.ended.remove(&0).expect("it has ended");
            let attention = ended.sense.get(2).is_some_and(|key| key & 0xf == 6);
            if ended.end.delivery != Delivery::Disrupted && !attention {
                return ended;
            }
        }
        panic!("disrupted each time: {:?}", self.told);
    }

    #[track_caller]
    pub fn read(&mut self, block: u64, length: usize) -> Vec<u8> {
        let ended = self.run(&transfer(false, block, length, false), Transferred::In(length));
        assert!(ended.is_good(), "{ended:?}");
        ended.data
    }

    #[track_caller]
    pub fn write(&mut self, block: u64, data: &[u8]) {
        let command = transfer(true, block, data.len(), false);
        let ended = self.run(&command, Transferred::Out(data));
        assert!(ended.is_good(), "{ended:?}");
    }

    #[track_caller]
    pub fn manage(&mut self, what: Management, deadline: Duration) -> ManagementAnswer {
        let token = 7;
        let now = self.now();
        let by = now + deadline.as_nanos() as u64;
        self.port.manage(what, token, by, now).expect("it can be asked");
        self.commit();
        self.until(|bed| bed.managed.contains_key(&token));
        self.managed.remove(&token).expect("it was answered")
    }
}

/// The data of a command.
#[derive(Clone, Copy)]
pub enum Transferred<'a> {
    Nothing,
    In(usize),
    Out(&'a [u8]),
}

impl Transferred<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Transferred::Nothing => true,
            Transferred::In(length) => *length == 0,
            Transferred::Out(bytes) => bytes.is_empty(),
        }
    }
}

fn pieces(bytes: &[u8], piece: usize) -> Vec<Data> {
    let one =
        |part: &[u8]| Data::One(Buf::filled(part.len(), |memory| memory.copy_from_slice(part)));
    bytes.chunks(piece.max(1)).map(one).collect()
}

/// A READ or WRITE of blocks of 512 bytes.
pub fn transfer(write: bool, lba: u64, length: usize, fua: bool) -> ScsiCommand {
    let blocks = (length / 512) as u32;
    let size = if lba + u64::from(blocks) > 1000 { CdbSize::Sixteen } else { CdbSize::Ten };
    let transfer = Transfer { size, lba, blocks, dpo: false, fua };
    if write { ScsiCommand::Write(transfer) } else { ScsiCommand::Read(transfer) }
}

pub fn flush() -> ScsiCommand {
    let all = SynchronizeCache { size: CdbSize::Ten, lba: 0, blocks: 0, immediate: false };
    ScsiCommand::SynchronizeCache(all)
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    weir_bio::Prng::new(seed).fill(&mut bytes);
    bytes
}

/// Asks LUN 1 for the page that names it, on a session of its own.
pub fn ask_for_identity(transport: &dyn Transport) -> ScsiStatus {
    struct Question(Option<ScsiStatus>);
    impl Asker for Question {
        fn next(&mut self) -> Option<(Lun, Vec<u8>, Asked)> {
            let command = ScsiCommand::Inquiry { page: Some(0x83), allocation: 512 };
            let cdb = command.encode().expect("a command").bytes().to_vec();
            self.0.is_none().then(|| (lun(1), cdb, Asked::In(512)))
        }

        fn answer(&mut self, delivery: Delivery, status: ScsiStatus, data: &[u8], _: &[u8]) {
            assert_eq!(delivery, Delivery::Delivered);
            assert!(data.len() > 4 && data[1] == 0x83, "{data:02x?}");
            self.0 = Some(status);
        }
    }
    let mut question = Question(None);
    transport.ask(&mut question).expect("an answer");
    question.0.expect("it was answered")
}
