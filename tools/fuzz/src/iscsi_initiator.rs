//! The initiator's side of iSCSI against any bytes of a target.
//!
//! - The same bytes give the same session, however they are cut, and whether data is taken as
//!   events or received past the decoder.
//! - A task ends at most once, and only one that is in flight; data stays within its memory, and a
//!   success means that all of it has moved, as far as the target's residual says.
//! - What breaks the protocol is told once and for ever. Memory is bounded.
//!
//! Input: a byte of wishes, two lengths of pieces, then the stream: of a login and what follows, of
//! a session in which tasks are in flight, or of a discovery.

use weir_proto_iscsi::IscsiName;
use weir_proto_iscsi::discovery::{self, Discovery};
use weir_proto_iscsi::login::{Agreed, Isid, LoggedIn, Login, SessionKind, Settings, Step};
use weir_proto_iscsi::session::{
    Ask, Command, Completion, Direction, Event, Keeping, Outgoing, Payload, Session,
};
use weir_proto_iscsi::wire::{Attribute, Crc, Digests, Numbers, Residual, Serial};

use crate::cuts::{Cuts, pieces, ways};

/// The tasks in flight.
const ASKED: [Direction; 5] = [
    Direction::Read(1024),
    Direction::Write(20 << 10),
    Direction::None,
    Direction::Read(8),
    Direction::Write(512),
];
const SEGMENT_MAX: u32 = 1024;
/// The most that a session holds beside a segment, in a buffer that grows by doubling: data due of
/// each task.
const HELD_MAX: usize = 8 << 10;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&[wishes, first, second], stream)) = bytes.split_first_chunk() else { return };
    let [whole, bytewise, cut] = ways([first, second]);
    let run = |cuts, direct| match wishes & 3 {
        0 => login(stream, cuts, direct),
        1 => discover(wishes, stream, cuts),
        _ => Tasks::new(&start(wishes), direct).all(stream, cuts),
    };
    let expected = run(whole, false);
    for (cuts, direct) in [(bytewise, false), (cut, false), (bytewise, true), (cut, true)] {
        assert_eq!(run(cuts, direct), expected, "cut or taken otherwise the session is another");
    }
}

fn start(wishes: u8) -> LoggedIn {
    let agreed = Agreed {
        digests: Digests { header: wishes & 4 != 0, data: wishes & 8 != 0 },
        initial_r2t: wishes & 16 != 0,
        immediate_data: wishes & 32 != 0,
        segment_in: SEGMENT_MAX,
        segment_out: 512,
        burst_max: 4096,
        first_burst: 2048,
        r2ts: 2,
        time2wait_s: 2,
        time2retain_s: 0,
    };
    let (exp_stat_sn, cmd_sn) = (Serial(1), Serial(u32::MAX - 2));
    let numbers = Numbers { stat_sn: exp_stat_sn, exp_cmd_sn: cmd_sn, max_cmd_sn: Serial(9) };
    let isid = Isid([0x80, 0, 0, 0, 0, 0]);
    let (group, alias, chap) = (None, None, None);
    LoggedIn { agreed, isid, tsih: 1, cmd_sn, exp_stat_sn, numbers, group, alias, chap }
}

fn login(stream: &[u8], cuts: Cuts, direct: bool) -> Vec<String> {
    let name = |text| IscsiName::new(text).expect("a name");
    let session = SessionKind::Normal(name("iqn.2001-04.com.example:disk"));
    let isid = Isid([0x80, 0, 0, 0, 0, 0]);
    let settings = Settings::new(name("iqn.2001-04.com.example:host"), session, isid);
    let (mut sent, mut log) = (Vec::new(), Vec::new());
    let mut login = Login::new(settings, &mut sent).expect("settings");
    let mut tasks: Option<Tasks> = None;
    for mut piece in pieces(stream, cuts) {
        if tasks.is_none() {
            match login.input(&mut piece, &mut sent) {
                Step::NeedMore => assert!(piece.is_empty(), "input is left and more is wanted"),
                Step::Ready(start) => tasks = Some(Tasks::new(&start, direct)),
                Step::Moved { portal, for_good } => return vec![format!("{portal} {for_good}")],
                Step::Failed(why) => {
                    let again = login.input(&mut &[0; 48][..], &mut sent);
                    assert!(matches!(again, Step::Failed(same) if same == why));
                    return vec![why.to_string()];
                }
            }
        }
        if let Some(tasks) = &mut tasks
            && !tasks.take(piece)
        {
            break;
        }
    }
    assert!(sent.len() < 1 << 20, "{} bytes to a target", sent.len());
    log.push(format!("{sent:?}"));
    log.extend(tasks.into_iter().flat_map(Tasks::end));
    log
}

fn discover(wishes: u8, stream: &[u8], cuts: Cuts) -> Vec<String> {
    let mut sent = Vec::new();
    let mut discovery = Discovery::new(&start(wishes), &mut sent);
    for mut piece in pieces(stream, cuts) {
        match discovery.input(&mut piece, &mut sent) {
            discovery::Step::NeedMore => assert!(piece.is_empty()),
            discovery::Step::Found(found) => return vec![format!("{found:?} {sent:?}")],
            discovery::Step::Failed(why) => return vec![why.to_string()],
        }
    }
    vec![format!("{sent:?}")]
}

/// A session with tasks in flight, and what became of them.
struct Tasks {
    session: Session,
    /// The memory of reads; that of a task that has ended is taken away.
    memory: [Option<Vec<u8>>; ASKED.len()],
    direct: bool,
    log: Vec<String>,
}

/// Counts what goes out.
#[derive(Default)]
struct Sent(Vec<u8>, u64);

impl Outgoing for Sent {
    fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    fn payload(&mut self, payload: Payload, _: Option<&mut Crc>) {
        let end = u64::from(payload.offset) + u64::from(payload.length);
        let Some(Direction::Write(length)) = ASKED.get(usize::from(payload.task.slot())) else {
            panic!("data of slot {}, which writes nothing", payload.task.slot())
        };
        assert!(payload.length > 0 && end <= u64::from(*length), "{payload:?} of {length}");
        self.1 += u64::from(payload.length);
    }
}

impl Tasks {
    fn new(start: &LoggedIn, direct: bool) -> Tasks {
        let mut session = Session::new(start, Keeping::with_depth(ASKED.len() as u16), 0);
        let mut sent = Sent::default();
        let mut memory = ASKED.map(|_| None);
        for (slot, direction) in ASKED.into_iter().enumerate() {
            let (slot, attribute) = (slot as u16, Attribute::Simple);
            let command = Command { slot, lun: 0, cdb: &[0; 10], direction, attribute };
            // A login may end with a closed window.
            if session.command(&command, &mut sent).is_ok() {
                let length = if let Direction::Read(length) = direction { length } else { 0 };
                memory[usize::from(slot)] = Some(vec![0; length as usize]);
            }
        }
        let _ = session.manage(Ask::LunReset(1), 1, &mut sent);
        Tasks { session, memory, direct, log: Vec::new() }
    }

    fn all(mut self, stream: &[u8], cuts: Cuts) -> Vec<String> {
        for piece in pieces(stream, cuts) {
            if !self.take(piece) {
                break;
            }
        }
        self.end()
    }

    fn place(&mut self, slot: u16, offset: u32, bytes: &[u8]) {
        let memory = self.memory[usize::from(slot)].as_mut().expect("a task in flight");
        memory[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Takes a piece of the stream. Whether the session goes on.
    fn take(&mut self, mut piece: &[u8]) -> bool {
        loop {
            if let Some(missing) = self.session.missing().filter(|_| self.direct) {
                let (part, rest) = piece.split_at(piece.len().min(missing.length as usize));
                self.place(missing.task.slot(), missing.offset, part);
                self.session.received(part, 0);
                piece = rest;
            }
            let event = match self.session.next(&mut piece, 0) {
                Ok(event) => event,
                Err(over) => {
                    assert_eq!(self.session.next(&mut &[0; 48][..], 0), Err(over));
                    self.log.push(over.to_string());
                    return false;
                }
            };
            let held = self.session.held_bytes();
            let most = HELD_MAX + 2 * self.session.agreed().segment_in as usize;
            assert!(held <= most, "{held} bytes held");
            match event {
                Event::NeedMore => {
                    assert!(piece.is_empty(), "input is left and more is wanted");
                    return true;
                }
                Event::Data { task, offset, bytes } => self.place(task.slot(), offset, bytes),
                Event::Done { task, outcome } => {
                    let slot = usize::from(task.slot());
                    let memory = self.memory[slot].take().expect("a task ends once");
                    let length = match ASKED[slot] {
                        Direction::None => 0,
                        Direction::Read(length) | Direction::Write(length) => length,
                    };
                    let under =
                        if let Residual::Under(under) = outcome.residual { under } else { 0 };
                    if outcome.completion == Completion::Status(0) {
                        assert_eq!(outcome.moved, length - under, "{outcome:?}");
                    }
                    assert!(outcome.moved <= length);
                    let sense = self.session.sense();
                    self.log.push(format!("{event:?} {memory:?} {sense:?}"));
                }
                Event::Aborted { task } => {
                    self.memory[usize::from(task.slot())].take().expect("a task ends once");
                    self.log.push(format!("{event:?}"));
                }
                event => self.log.push(format!("{event:?}")),
            }
        }
    }

    fn end(mut self) -> Vec<String> {
        let mut sent = Sent::default();
        while self.session.send(100, &mut sent) {}
        self.log.push(format!("{} bytes of data, {:?}", sent.1, sent.0));
        let left: Vec<_> = self.session.outstanding(0).map(|(tag, _)| tag.slot()).collect();
        for slot in 0..ASKED.len() {
            let in_flight = left.contains(&(slot as u16));
            assert_eq!(in_flight, self.memory[slot].is_some(), "slot {slot}");
        }
        self.log.push(format!("{left:?} {:?}", self.memory));
        self.log
    }
}
