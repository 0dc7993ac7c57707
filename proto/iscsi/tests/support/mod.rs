//! An initiator's session with memory for its tasks, and a target with a disk of RAM.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;

use weir_proto_iscsi::login::{Agreed, Isid, LoggedIn};
use weir_proto_iscsi::session::{
    Command, Direction, Event, Keeping, Outcome, Outgoing, Over, Payload, Refused, Session, TaskTag,
};
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{
    Attribute, Crc, Digests, NO_TAG, Numbers, Residual, ScsiCommand, Serial,
};

/// Bytes of a block of the disk.
pub const BLOCK: u32 = 512;

/// Values that a session may have.
pub const AGREED: Agreed = Agreed {
    digests: Digests::NONE,
    initial_r2t: true,
    immediate_data: true,
    segment_in: 8192,
    segment_out: 4096,
    burst_max: 16384,
    first_burst: 8192,
    r2ts: 2,
    time2wait_s: 2,
    time2retain_s: 0,
};

/// A session of these values with a window of `window` commands.
pub fn logged_in(agreed: Agreed, cmd_sn: u32, window: u32) -> LoggedIn {
    let (cmd_sn, stat_sn) = (Serial(cmd_sn), Serial(100));
    let max_cmd_sn = Serial(cmd_sn.0.wrapping_add(window).wrapping_sub(1));
    LoggedIn {
        agreed,
        isid: Isid::random([1, 2, 3], 4),
        tsih: 1,
        cmd_sn,
        exp_stat_sn: stat_sn,
        numbers: Numbers { stat_sn, exp_cmd_sn: cmd_sn, max_cmd_sn },
        group: None,
        alias: None,
        chap: None,
    }
}

/// The initiator's end: the stream that goes out, and the memory of each slot.
#[derive(Default)]
pub struct Memory {
    pub out: Vec<u8>,
    pub slots: BTreeMap<u16, Vec<u8>>,
    pub payloads: Vec<Payload>,
}

impl Outgoing for Memory {
    fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn payload(&mut self, payload: Payload, digest: Option<&mut Crc>) {
        let Payload { task, offset, length } = payload;
        assert!(length > 0);
        let bytes = &self.slots[&task.slot()][offset as usize..][..length as usize];
        if let Some(crc) = digest {
            crc.update(bytes);
        }
        self.out.extend_from_slice(bytes);
        self.payloads.push(payload);
    }
}

/// A read or write of a disk: 10 bytes as SBC has them.
pub fn cdb(write: bool, block: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = if write { 0x2a } else { 0x28 };
    cdb[2..6].copy_from_slice(&block.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The initiator.
pub struct Initiator {
    pub session: Session,
    pub memory: Memory,
    pub done: Vec<(TaskTag, Outcome, Vec<u8>)>,
    /// Everything else that was told, as text.
    pub told: Vec<String>,
    /// Data is received straight into memory wherever it can be.
    pub direct: bool,
}

impl Initiator {
    pub fn new(start: &LoggedIn, depth: u16) -> Initiator {
        let session = Session::new(start, Keeping::with_depth(depth), 0);
        let (memory, done, told) = (Memory::default(), Vec::new(), Vec::new());
        Initiator { session, memory, done, told, direct: false }
    }

    pub fn command(
        &mut self,
        slot: u16,
        lun: u64,
        cdb: &[u8],
        direction: Direction,
    ) -> Result<TaskTag, Refused> {
        let command = Command { slot, lun, cdb, direction, attribute: Attribute::Simple };
        self.session.command(&command, &mut self.memory)
    }

    pub fn write(&mut self, slot: u16, block: u32, data: Vec<u8>) -> Result<TaskTag, Refused> {
        let length = data.len() as u32;
        self.memory.slots.insert(slot, data);
        let cdb = cdb(true, block, (length / BLOCK) as u16);
        self.command(slot, 1 << 48, &cdb, Direction::Write(length))
    }

    pub fn read(&mut self, slot: u16, block: u32, length: u32) -> Result<TaskTag, Refused> {
        self.memory.slots.insert(slot, vec![0; length as usize]);
        let cdb = cdb(false, block, (length / BLOCK) as u16);
        self.command(slot, 1 << 48, &cdb, Direction::Read(length))
    }

    pub fn send(&mut self) -> Vec<u8> {
        while self.session.send(u64::MAX, &mut self.memory) {}
        std::mem::take(&mut self.memory.out)
    }

    /// Takes bytes of the target in.
    pub fn hear(&mut self, mut bytes: &[u8]) -> Result<(), Over> {
        loop {
            if let Some(missing) = self.session.missing().filter(|_| self.direct) {
                let here = bytes.len().min(missing.length as usize);
                let (part, rest) = bytes.split_at(here);
                let memory = self.memory.slots.get_mut(&missing.task.slot()).expect("memory");
                memory[missing.offset as usize..][..here].copy_from_slice(part);
                self.session.received(part, 0);
                bytes = rest;
            }
            match self.session.next(&mut bytes, 0)? {
                Event::NeedMore => {
                    assert!(bytes.is_empty());
                    return Ok(());
                }
                Event::Data { task, offset, bytes } => {
                    let memory = self.memory.slots.get_mut(&task.slot()).expect("memory");
                    memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Event::Done { task, outcome } => {
                    self.done.push((task, outcome, self.session.sense().to_vec()));
                }
                event => {
                    self.told.push(format!("{event:?}"));
                    // Nothing comes behind it.
                    if matches!(event, Event::LoggedOut { .. }) {
                        return Ok(());
                    }
                }
            }
        }
    }
}

struct Write {
    command: ScsiCommand,
    received: u32,
    asked: u32,
    /// Requests that are not answered whole: tag, and the end of each.
    asks: Vec<(u32, u32)>,
    r2t_sn: u32,
    unasked: bool,
    unsolicited: u32,
}

/// A target with a disk of RAM.
pub struct Disk {
    pub target: Target,
    pub blocks: Vec<u8>,
    pub agreed: Agreed,
    writes: BTreeMap<u32, Write>,
    next_ttt: u32,
    /// Immediate bytes, unsolicited bytes and requests of each write that has ended.
    pub ways: Vec<(u32, u32, u32)>,
    immediate: BTreeMap<u32, u32>,
}

impl Disk {
    pub fn new(target: Target, bytes: usize) -> Disk {
        let agreed = *target.agreed().expect("a session");
        Disk {
            target,
            agreed,
            blocks: vec![0; bytes],
            writes: BTreeMap::new(),
            next_ttt: 1,
            ways: Vec::new(),
            immediate: BTreeMap::new(),
        }
    }

    /// Takes bytes of the initiator in: what is to be answered.
    pub fn hear(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            match self.target.next(&mut bytes, &mut out).expect("a sound initiator") {
                Asked::NeedMore => return out,
                Asked::Command { command, .. } => self.command(command, &mut out),
                Asked::Data { itt, offset, bytes } => {
                    let write = self.writes.get_mut(&itt).expect("a write under way");
                    assert_eq!(offset, write.received, "data comes in order");
                    write.received += bytes.len() as u32;
                    let start = block(&write.command) + offset as usize;
                    self.blocks[start..][..bytes.len()].copy_from_slice(bytes);
                }
                Asked::DataEnd { itt, ttt, last, data_sn } => {
                    self.data_end(itt, ttt, last, data_sn, &mut out);
                }
                Asked::Manage(request) => self.target.managed(request.itt, 0, &mut out),
                Asked::Pong(_) | Asked::LoggedOut | Asked::LoggedIn => {}
            }
        }
    }

    fn command(&mut self, command: ScsiCommand, out: &mut Vec<u8>) {
        self.target.open(64);
        if command.write {
            let unasked = !command.last;
            let write = Write {
                command,
                received: 0,
                asked: 0,
                asks: Vec::new(),
                r2t_sn: 0,
                unasked,
                unsolicited: 0,
            };
            self.writes.insert(command.itt, write);
            if !unasked && !self.has_immediate() {
                self.ask(command.itt, out);
            }
            return;
        }
        if !command.read {
            return self.target.respond(command.itt, (0, 0), Residual::None, &[], out);
        }
        let (start, length) = (block(&command), command.expected as usize);
        let data = self.blocks[start..][..length].to_vec();
        let mut offset = 0;
        for (data_sn, part) in data.chunks(self.agreed.segment_out as usize).enumerate() {
            let last = offset + part.len() == length;
            let status = last.then_some((0, Residual::None));
            self.target.data_in((command.itt, data_sn as u32, offset as u32), part, status, out);
            offset += part.len();
        }
    }

    /// Whether the PDU under way has data of its own.
    fn has_immediate(&self) -> bool {
        self.agreed.immediate_data
    }

    fn data_end(
        &mut self,
        itt: u32,
        ttt: u32,
        last: bool,
        data_sn: Option<u32>,
        out: &mut Vec<u8>,
    ) {
        let write = self.writes.get_mut(&itt).expect("a write under way");
        match data_sn {
            None => {
                self.immediate.insert(itt, write.received);
                write.asked = write.received;
            }
            Some(_) if ttt == NO_TAG => {
                assert!(write.unasked, "unsolicited data that was not announced");
                write.asked = write.received;
                write.unsolicited = write.received - self.immediate.get(&itt).unwrap_or(&0);
            }
            Some(_) => {
                let (asked, end) = write.asks[0];
                assert_eq!(ttt, asked, "requests are answered in order");
                assert_eq!(last, write.received == end, "the sequence ends with its request");
                if last {
                    write.asks.remove(0);
                }
            }
        }
        write.unasked &= !last;
        if !write.unasked {
            self.ask(itt, out);
        }
    }

    /// Asks for what is missing of a write, or ends it.
    fn ask(&mut self, itt: u32, out: &mut Vec<u8>) {
        let write = self.writes.get_mut(&itt).expect("a write under way");
        let ScsiCommand { expected, lun, .. } = write.command;
        while write.asked < expected && write.asks.len() < usize::from(self.agreed.r2ts) {
            let length = (expected - write.asked).min(self.agreed.burst_max);
            let (ttt, r2t_sn, at) = (self.next_ttt, write.r2t_sn, write.asked);
            write.asks.push((ttt, at + length));
            (write.asked, write.r2t_sn) = (at + length, r2t_sn + 1);
            self.next_ttt += 1;
            self.target.ask((itt, ttt, r2t_sn), lun, (at, length), out);
        }
        if write.received == expected {
            let immediate = self.immediate.remove(&itt).unwrap_or(0);
            self.ways.push((immediate, write.unsolicited, write.r2t_sn));
            self.writes.remove(&itt);
            self.target.respond(itt, (0, 0), Residual::None, &[], out);
        }
    }
}

fn block(command: &ScsiCommand) -> usize {
    let block = u32::from_be_bytes(*command.cdb[2..].first_chunk().expect("a block"));
    (block * BLOCK) as usize
}

/// A session of both ends, after the login of these settings.
pub fn session(
    settings: weir_proto_iscsi::login::Settings,
    profile: Profile,
) -> (LoggedIn, Target) {
    use weir_proto_iscsi::login::{Login, Step};
    let (mut to_target, mut to_us) = (Vec::new(), Vec::new());
    let mut login = Login::new(settings, &mut to_target).expect("settings");
    let mut target = Target::new(profile);
    loop {
        let sent = std::mem::take(&mut to_target);
        assert!(matches!(
            target.next(&mut &sent[..], &mut to_us),
            Ok(Asked::NeedMore | Asked::LoggedIn)
        ));
        let sent = std::mem::take(&mut to_us);
        match login.input(&mut &sent[..], &mut to_target) {
            Step::NeedMore => {}
            Step::Ready(start) => return (*start, target),
            step => panic!("{step:?}"),
        }
    }
}
