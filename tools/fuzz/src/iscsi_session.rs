//! A session of the iSCSI initiator against a target that knows its protocol and breaks one field
//! of a PDU now and then: sequence numbers, tags, offsets and lengths are right until the input
//! says otherwise, so that what is behind the first check is reached.
//!
//! - The same input gives the same session, however the bytes are cut, and whether data is taken as
//!   events or received past the decoder.
//! - A task ends at most once; nothing of a task that has ended is put into its memory or sent from
//!   it; a success means that all data has moved that the residual does not take away.
//! - Nothing is put out beyond the budget of a call but the rest of one PDU. Memory is bounded.
//! - A session that goes on has a time to be looked at; one that is over says the same for ever.
//!
//! Input: a byte of wishes, two lengths of pieces, then steps: a byte each, whose low five bits are
//! the kind and whose high bits break it, and the bytes that the kind takes.

use weir_proto_iscsi::login::{Agreed, Isid, LoggedIn};
use weir_proto_iscsi::session::{
    Ask, Command, Completion, Direction, Event, Keeping, Outgoing, Payload, Session, TaskTag,
};
use weir_proto_iscsi::wire::{
    AsyncMessage, Attribute, BHS_LEN, Bhs, Crc, DataIn, Digests, LogoutResponse, NO_TAG, NopIn,
    Numbers, Opcode, R2t, Reject, Residual, ScsiResponse, Serial, TaskResponse, padding, put_pdu,
};

use crate::cuts::{Cuts, pieces, ways};

/// Slots of the session.
const DEPTH: usize = 4;
/// Lengths of the data of commands.
const LENGTHS: [u32; 4] = [512, 1024, 5000, 20 << 10];
const SEGMENT_MAX: u32 = 1024;
/// The most that a session holds beside a segment, in a buffer that grows by doubling.
const HELD_MAX: usize = 8 << 10;
/// Bytes put out by one call.
const BUDGET: u64 = 2000;
/// The largest PDU of the initiator: a header with its digest, a segment with its own.
const PDU_MAX: u64 = 48 + 4 + 512 + 4;

/// The bits of a step that break its PDU: a byte is changed before the digests are made, or behind
/// them, or the PDU comes twice.
const BROKEN: u8 = 0x80;
const BROKEN_BEHIND: u8 = 0x40;
const TWICE: u8 = 0x20;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[wishes, first, second], steps)) = bytes.split_first_chunk() else { return };
    let [whole, bytewise, cut] = ways([first, second]);
    let run = |cuts, direct| Scene::new(wishes, cuts, direct).all(steps);
    let expected = run(whole, false);
    for (cuts, direct) in [(bytewise, false), (cut, false), (bytewise, true), (cut, true)] {
        assert_eq!(run(cuts, direct), expected, "cut or taken otherwise the session is another");
    }
}

fn start(wishes: u8) -> LoggedIn {
    let agreed = Agreed {
        digests: Digests { header: wishes & 1 != 0, data: wishes & 2 != 0 },
        initial_r2t: wishes & 4 != 0,
        immediate_data: wishes & 8 != 0,
        segment_in: SEGMENT_MAX,
        segment_out: 512,
        burst_max: 4096,
        first_burst: if wishes & 16 == 0 { 2048 } else { 512 },
        r2ts: 2,
        time2wait_s: 2,
        time2retain_s: 0,
    };
    let (exp_stat_sn, cmd_sn) = (Serial(u32::MAX - 3), Serial(u32::MAX - 2));
    let max_cmd_sn = Serial(if wishes & 32 == 0 { 60 } else { u32::MAX });
    let numbers = Numbers { stat_sn: exp_stat_sn, exp_cmd_sn: cmd_sn, max_cmd_sn };
    let isid = Isid([0x80, 0, 0, 0, 0, 0]);
    let (group, alias, chap) = (None, None, None);
    LoggedIn { agreed, isid, tsih: 1, cmd_sn, exp_stat_sn, numbers, group, alias, chap }
}

/// A command as the target knows it.
#[derive(Clone, Copy)]
struct Known {
    tag: TaskTag,
    direction: Direction,
    data_sn: u32,
    next: u32,
}

/// What goes out, counted, and held against the tasks that are there.
#[derive(Default)]
struct Sent {
    bytes: Vec<u8>,
    payload: u64,
    lengths: [u32; DEPTH],
}

impl Outgoing for Sent {
    fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn payload(&mut self, payload: Payload, _: Option<&mut Crc>) {
        let end = u64::from(payload.offset) + u64::from(payload.length);
        let length = self.lengths[usize::from(payload.task.slot())];
        assert!(payload.length > 0 && end <= u64::from(length), "{payload:?} of {length}");
        self.payload += u64::from(payload.length);
    }
}

/// The session, its memory, and the target that it talks to.
struct Scene {
    session: Session,
    cuts: Cuts,
    direct: bool,
    now: u64,
    sent: Sent,
    /// The memory of the task in each slot, and its direction.
    tasks: [Option<(Direction, Vec<u8>)>; DEPTH],
    /// The tasks as the target knows them, also when they have ended.
    known: [Option<Known>; DEPTH],
    asked: Option<TaskTag>,
    numbers: Numbers,
    digests: Digests,
    log: Vec<String>,
    over: bool,
}

/// The bytes of the input that are left.
struct Dice<'a>(&'a [u8]);

impl Dice<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn below(&mut self, bound: u32) -> u32 {
        let number = u32::from(u16::from_be_bytes([self.byte(), self.byte()]));
        number % bound.max(1)
    }
}

impl Scene {
    fn new(wishes: u8, cuts: Cuts, direct: bool) -> Scene {
        let start = start(wishes);
        Scene {
            session: Session::new(&start, Keeping::with_depth(DEPTH as u16), 0),
            cuts,
            direct,
            now: 0,
            sent: Sent::default(),
            tasks: Default::default(),
            known: [None; DEPTH],
            asked: None,
            numbers: start.numbers,
            digests: start.agreed.digests,
            log: Vec::new(),
            over: false,
        }
    }

    fn all(mut self, steps: &[u8]) -> Vec<String> {
        let mut dice = Dice(steps);
        while !dice.0.is_empty() && !self.over {
            self.step(&mut dice);
            self.look();
        }
        self.log.push(format!("{} {:?}", self.sent.payload, self.sent.bytes));
        self.log
    }

    /// What holds after each step.
    fn look(&self) {
        let held = self.session.held_bytes();
        assert!(held <= HELD_MAX + 2 * SEGMENT_MAX as usize, "{held} bytes held");
        assert_eq!(self.session.wake_at().is_none(), self.session.over().is_some());
        let there = self.tasks.iter().flatten().count();
        assert_eq!(usize::from(self.session.in_flight()), there);
        for (tag, _) in self.session.outstanding(u64::MAX) {
            assert!(self.tasks[usize::from(tag.slot())].is_some(), "{tag:?}");
        }
    }

    fn step(&mut self, dice: &mut Dice<'_>) {
        let kind = dice.byte();
        match kind & 0x1f {
            0 | 1 => self.command(dice),
            2 => {
                let before = self.session.position();
                let more = self.session.send(BUDGET, &mut self.sent);
                let put = self.session.position() - before;
                assert!(put < BUDGET + PDU_MAX, "{put} bytes are beyond the budget");
                assert!(!more || put >= BUDGET, "{put} bytes: there was room for more");
            }
            3 => self.manage(dice),
            4 => {
                self.now += u64::from(dice.byte()) * 100_000_000;
                match self.session.tick(self.now, &mut self.sent) {
                    Ok(expired) => self.log.push(format!("{expired:?}")),
                    Err(over) => self.end(format!("{over}")),
                }
            }
            5 => self.session.logout(self.now + 5_000_000_000, &mut self.sent),
            6 => {
                let slot = usize::from(dice.byte()) % DEPTH;
                if let Some(known) = self.known[slot] {
                    let was = self.session.forget(known.tag);
                    assert_eq!(was, self.tasks[slot].take().is_some());
                }
            }
            7 => {
                let length = usize::from(dice.byte()).min(dice.0.len());
                let (raw, rest) = dice.0.split_at(length);
                dice.0 = rest;
                self.hear(raw);
            }
            _ => {
                let (bhs, data) = self.pdu(kind & 0x1f, dice);
                let bytes = self.broken(kind, bhs, &data, dice);
                self.hear(&bytes);
                if kind & TWICE != 0 && !self.over {
                    self.hear(&bytes);
                }
            }
        }
    }

    fn command(&mut self, dice: &mut Dice<'_>) {
        let (slot, length) = (usize::from(dice.byte()) % DEPTH, dice.byte());
        if self.tasks[slot].is_some() {
            return;
        }
        let bytes = LENGTHS[usize::from(length >> 2) % LENGTHS.len()];
        let direction = match length & 3 {
            0 => Direction::None,
            1 => Direction::Write(bytes),
            _ => Direction::Read(bytes),
        };
        let command = Command {
            slot: slot as u16,
            lun: u64::from(length & 1) << 48,
            cdb: &[0; 10],
            direction,
            attribute: Attribute::Simple,
        };
        self.sent.lengths[slot] = if let Direction::Write(length) = direction { length } else { 0 };
        if let Ok(tag) = self.session.command(&command, &mut self.sent) {
            let unasked = self.session.agreed();
            let length = self.sent.lengths[slot];
            let first = length.min(unasked.first_burst);
            let immediate = if unasked.immediate_data { first.min(512) } else { 0 };
            let next = if unasked.initial_r2t { immediate } else { first };
            self.known[slot] = Some(Known { tag, direction, data_sn: 0, next });
            let memory = if let Direction::Read(length) = direction { length } else { 0 };
            self.tasks[slot] = Some((direction, vec![0; memory as usize]));
            self.numbers.exp_cmd_sn = self.numbers.exp_cmd_sn.next();
        }
    }

    fn manage(&mut self, dice: &mut Dice<'_>) {
        let slot = usize::from(dice.byte());
        let ask = match slot >> 6 {
            0 => Ask::LunReset(u64::from(slot as u8 & 1) << 48),
            1 => Ask::TargetWarmReset,
            _ => match self.known[slot % DEPTH] {
                Some(known) => Ask::Abort(known.tag),
                None => return,
            },
        };
        let tag = self.session.manage(ask, self.now + 1_000_000_000, &mut self.sent);
        self.asked = tag.ok().or(self.asked);
    }

    /// The numbers of a PDU that StatSN counts.
    fn count(&mut self) -> Numbers {
        let numbers = self.numbers;
        self.numbers.stat_sn = numbers.stat_sn.next();
        numbers
    }

    /// A PDU that is right as far as the target knows.
    fn pdu(&mut self, kind: u8, dice: &mut Dice<'_>) -> (Bhs, Vec<u8>) {
        let slot = usize::from(dice.byte()) % DEPTH;
        let Some(known) = self.known[slot] else {
            let numbers = self.numbers;
            return (NopIn { lun: 0, itt: NO_TAG, ttt: NO_TAG, numbers }.encode(), Vec::new());
        };
        let itt = known.tag.0;
        match kind {
            8..=13 => self.data_in(slot, known, kind >= 11, dice),
            14..=16 => self.r2t(slot, known, dice),
            17..=20 => {
                let (status, sense) = (dice.byte() & 2, usize::from(dice.byte()));
                let residual = self.residual(known, dice);
                let (numbers, response) = (self.count(), u8::from(kind == 20));
                let head = ScsiResponse {
                    response,
                    status,
                    itt,
                    numbers,
                    exp_data_sn: known.data_sn,
                    residual,
                };
                let length = (sense as u16).to_be_bytes();
                let sense = [&length[..], &vec![0x70; sense]].concat();
                (head.encode(), if status == 0 { Vec::new() } else { sense })
            }
            21 => {
                let (numbers, ttt) = (self.numbers, u32::from(dice.byte()));
                (NopIn { lun: 0, itt: NO_TAG, ttt, numbers }.encode(), Vec::new())
            }
            22 => {
                // The first pings of a session have these tags.
                let itt = u32::from(dice.byte()) << 16 | 0xfff0;
                let numbers = self.count();
                (NopIn { lun: 0, itt, ttt: NO_TAG, numbers }.encode(), Vec::new())
            }
            23 | 24 => {
                let (response, numbers) = (dice.byte() & 1, self.count());
                let itt = self.asked.map_or(0xff00, |tag| tag.0);
                (TaskResponse { response, itt, numbers }.encode(), Vec::new())
            }
            25 => {
                let (event, numbers) = (dice.byte() % 6, self.count());
                let parameters = [0, u16::from(dice.byte()), 1];
                let message = AsyncMessage { lun: 0, numbers, event, code: 0, parameters };
                (message.encode(), vec![0; usize::from(dice.byte())])
            }
            26 => {
                let (reason, numbers) = (dice.byte(), self.count());
                let opcodes = [Opcode::NOP_OUT, Opcode::TASK_REQUEST, Opcode::SCSI_COMMAND];
                let rejected = opcodes[usize::from(reason) % opcodes.len()];
                let itt = self.asked.map_or(0xfff0, |tag| tag.0);
                let rejected = Bhs::new(rejected).with_word(16, itt);
                (Reject { reason, numbers }.encode(), rejected.bytes().to_vec())
            }
            27 => {
                let numbers = self.count();
                (LogoutResponse { response: 0, itt: 0xfff1, numbers }.encode(), Vec::new())
            }
            // The window: it opens by so much, and may close.
            _ => {
                let by = u32::from(dice.byte());
                let last = self.numbers.exp_cmd_sn.0.wrapping_add(by).wrapping_sub(1);
                self.numbers.max_cmd_sn = Serial(last);
                let numbers = self.numbers;
                (NopIn { lun: 0, itt: NO_TAG, ttt: NO_TAG, numbers }.encode(), Vec::new())
            }
        }
    }

    fn residual(&self, known: Known, dice: &mut Dice<'_>) -> Residual {
        let length = match known.direction {
            Direction::None => 0,
            Direction::Read(length) | Direction::Write(length) => length,
        };
        match dice.byte() & 3 {
            0 => Residual::None,
            3 => Residual::Over(5),
            _ => Residual::Under(length.saturating_sub(known.next)),
        }
    }

    fn data_in(
        &mut self,
        slot: usize,
        mut known: Known,
        status: bool,
        dice: &mut Dice<'_>,
    ) -> (Bhs, Vec<u8>) {
        let length = if let Direction::Read(length) = known.direction { length } else { 512 };
        let left = length.saturating_sub(known.next).min(SEGMENT_MAX);
        // All of it, or a part.
        let part = dice.below(left + 1);
        let here = if part & 1 == 0 { left } else { part };
        let head = DataIn {
            last: status,
            status: None,
            itt: known.tag.0,
            numbers: self.numbers,
            data_sn: known.data_sn,
            offset: known.next,
        };
        known.data_sn += 1;
        known.next += here;
        self.known[slot] = Some(known);
        let data = vec![dice.byte(); here as usize];
        if !status {
            return (head.encode(), data);
        }
        let status = Some((0, self.residual(known, dice)));
        let numbers = self.count();
        (DataIn { status, numbers, ..head }.encode(), data)
    }

    fn r2t(&mut self, slot: usize, mut known: Known, dice: &mut Dice<'_>) -> (Bhs, Vec<u8>) {
        let length = if let Direction::Write(length) = known.direction { length } else { 512 };
        let left = length.saturating_sub(known.next).min(4096);
        let length = 1 + dice.below(left.max(1));
        let head = R2t {
            lun: 0,
            itt: known.tag.0,
            ttt: u32::from(dice.byte()),
            numbers: self.numbers,
            r2t_sn: known.data_sn,
            offset: known.next,
            length: length.min(left.max(1)),
        };
        known.data_sn += 1;
        known.next += head.length;
        self.known[slot] = Some(known);
        (head.encode(), Vec::new())
    }

    /// The PDU as it goes out, perhaps with one byte changed.
    fn broken(&self, kind: u8, bhs: Bhs, data: &[u8], dice: &mut Dice<'_>) -> Vec<u8> {
        let mut plain = Vec::new();
        put_pdu(&mut plain, bhs, data, Digests::NONE);
        let change = |bytes: &mut Vec<u8>, dice: &mut Dice<'_>| {
            // A byte of the header, where the fields are, or any.
            let (at, by) = (usize::from(dice.byte()), dice.byte());
            let at = if at < 240 { at % BHS_LEN } else { at % bytes.len() };
            bytes[at] ^= by;
        };
        if kind & BROKEN != 0 {
            change(&mut plain, dice);
        }
        let mut bytes = plain[..BHS_LEN].to_vec();
        let of = |bytes: &[u8]| {
            let mut crc = Crc::new();
            crc.update(bytes);
            crc.bytes()
        };
        if self.digests.header {
            bytes.extend(of(&plain[..BHS_LEN]));
        }
        let segment = &plain[BHS_LEN..];
        debug_assert_eq!(segment.len(), data.len() + padding(data.len() as u32));
        bytes.extend(segment);
        if self.digests.data && !segment.is_empty() {
            bytes.extend(of(segment));
        }
        if kind & BROKEN_BEHIND != 0 {
            change(&mut bytes, dice);
        }
        bytes
    }

    fn end(&mut self, why: String) {
        self.over = true;
        let again = self.session.next(&mut &[0; BHS_LEN][..], self.now);
        assert!(again.is_err_and(|over| over.to_string() == why), "it is over once and for ever");
        assert!(!self.session.is_open() && !self.session.send(BUDGET, &mut Sent::default()));
        self.log.push(why);
    }

    fn hear(&mut self, bytes: &[u8]) {
        for piece in pieces(bytes, self.cuts) {
            if !self.over {
                self.take(piece);
            }
        }
    }

    fn place(&mut self, slot: u16, offset: u32, bytes: &[u8]) {
        let (_, memory) = self.tasks[usize::from(slot)].as_mut().expect("a task in flight");
        memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn take(&mut self, mut piece: &[u8]) {
        loop {
            if let Some(missing) = self.session.missing().filter(|_| self.direct) {
                let (part, rest) = piece.split_at(piece.len().min(missing.length as usize));
                self.place(missing.task.slot(), missing.offset, part);
                self.session.received(part, self.now);
                piece = rest;
            }
            match self.session.next(&mut piece, self.now) {
                Err(over) => return self.end(over.to_string()),
                Ok(Event::NeedMore) => {
                    assert!(piece.is_empty(), "input is left and more is wanted");
                    return;
                }
                Ok(Event::Data { task, offset, bytes }) => self.place(task.slot(), offset, bytes),
                Ok(event) => self.event(event),
            }
        }
    }

    fn event(&mut self, event: Event<'_>) {
        self.log.push(format!("{event:?}"));
        let (task, outcome) = match event {
            Event::Done { task, outcome } => (task, Some(outcome)),
            Event::Aborted { task } => (task, None),
            _ => return,
        };
        let slot = usize::from(task.slot());
        let (direction, memory) = self.tasks[slot].take().expect("a task ends once");
        let Some(outcome) = outcome else { return };
        let length = match direction {
            Direction::None => 0,
            Direction::Read(length) | Direction::Write(length) => length,
        };
        let under = if let Residual::Under(under) = outcome.residual { under } else { 0 };
        if outcome.completion == Completion::Status(0) {
            assert_eq!(outcome.moved, length - under, "{outcome:?}");
        }
        assert!(outcome.moved <= length);
        let sense = self.session.sense();
        assert!(sense.len() <= SEGMENT_MAX as usize);
        self.log.push(format!("{memory:?} {sense:?}"));
    }
}
