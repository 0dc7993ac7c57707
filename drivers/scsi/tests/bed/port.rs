//! A transport whose ends are written by a test.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Data, Nanos};
use weir_driver_scsi::{
    Adapter, Asker, Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port,
    Refusal, Transport,
};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::DriverError;

use super::disk::Disk;

/// A command that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    pub port: u16,
    pub slot: u16,
    pub lun: Lun,
    pub cdb: Vec<u8>,
    pub bytes: u32,
    /// The data sent.
    pub out: Vec<u8>,
    pub at: Nanos,
}

/// How a command ends, or that it does not.
#[derive(Clone, Debug)]
pub enum Reply {
    End {
        delivery: Delivery,
        status: ScsiStatus,
        sense: Vec<u8>,
        moved: Option<u32>,
        data: Vec<u8>,
    },
    Never,
}

impl Reply {
    pub fn good() -> Reply {
        Reply::status(ScsiStatus::GOOD)
    }

    pub fn status(status: ScsiStatus) -> Reply {
        let delivery = Delivery::Delivered;
        Reply::End { delivery, status, sense: Vec::new(), moved: None, data: Vec::new() }
    }

    pub fn delivery(delivery: Delivery) -> Reply {
        let status = ScsiStatus::GOOD;
        Reply::End { delivery, status, sense: Vec::new(), moved: Some(0), data: Vec::new() }
    }

    pub fn sense(sense: Vec<u8>) -> Reply {
        let (delivery, status) = (Delivery::Delivered, ScsiStatus::CHECK_CONDITION);
        Reply::End { delivery, status, sense, moved: Some(0), data: Vec::new() }
    }

    pub fn data(data: Vec<u8>) -> Reply {
        let (delivery, status) = (Delivery::Delivered, ScsiStatus::GOOD);
        let moved = Some(data.len() as u32);
        Reply::End { delivery, status, sense: Vec::new(), moved, data }
    }
}

/// How a management is answered: `None` is never, but for the deadline. With it the commands that
/// it ends are handed over, unless `keeps`.
#[derive(Clone, Copy, Debug)]
pub struct Managed {
    pub answer: Option<ManagementAnswer>,
    pub keeps: bool,
    pub with: Delivery,
}

impl Managed {
    pub fn done() -> Managed {
        Managed { answer: Some(ManagementAnswer::Complete), keeps: false, with: Delivery::Aborted }
    }

    pub fn answer(answer: ManagementAnswer) -> Managed {
        Managed { answer: Some(answer), keeps: true, with: Delivery::Aborted }
    }

    pub fn never() -> Managed {
        Managed { answer: None, keeps: true, with: Delivery::Aborted }
    }
}

type ReplyRule = Box<dyn FnMut(&Arrived) -> Reply + Send>;
type ManageRule = Box<dyn FnMut(Management) -> Managed + Send>;

struct Held {
    slot: u16,
    lun: Lun,
    memory: Vec<Data>,
    expected: u32,
    reply: Reply,
}

/// All ports of the transport.
pub struct State {
    pub adapter: Adapter,
    pub disks: BTreeMap<Lun, Disk>,
    pub rule: ReplyRule,
    pub manage: ManageRule,
    pub arrived: Vec<Arrived>,
    pub managed: Vec<(u16, Management, Nanos)>,
    /// Commands that a port takes; then it is busy.
    pub room: usize,
    pub refusal: Option<Refusal>,
    pub outage: Option<Nanos>,
    /// Ends handed over by one reap, at most.
    pub ends_at_once: usize,
    held: BTreeMap<u16, VecDeque<Held>>,
    questions: BTreeMap<u16, Vec<(u32, Management, Nanos, Managed)>>,
    pub events: Vec<(Lun, Vec<u8>)>,
    pub open: usize,
    /// Ports have an event, so that lanes are turned for a reason only.
    pub announced: bool,
    /// Ports have none, and the test turns lanes when there is something for them.
    pub turned: bool,
    /// Most commands at once, on all ports.
    pub peak: usize,
    /// The next conversation tells that it has begun, and waits.
    hold: Option<(Sender<()>, Receiver<()>)>,
}

impl State {
    /// Commands that the ports have.
    pub fn held(&self) -> usize {
        self.held.values().map(VecDeque::len).sum()
    }

    /// Commands that never end by themselves end so now.
    pub fn release(&mut self, reply: &Reply) {
        for held in self.held.values_mut().flatten() {
            if matches!(held.reply, Reply::Never) {
                held.reply = reply.clone();
            }
        }
    }

    /// The connections are no more, and what they had.
    pub fn drop_held(&mut self) {
        self.held.clear();
        self.questions.clear();
    }

    /// CDBs that arrived, by their first byte.
    pub fn opcodes(&self) -> Vec<u8> {
        self.arrived.iter().map(|one| one.cdb[0]).collect()
    }
}

/// A transport that a test turns.
#[derive(Clone)]
pub struct Script(Arc<Mutex<State>>);

pub fn adapter() -> Adapter {
    Adapter {
        queues: 1,
        can_queue: 32,
        own_slots: 8,
        cmd_per_lun: 32,
        segments_max: 128,
        sectors_max: 1024,
        cdb_max: 16,
    }
}

impl Script {
    pub fn new(adapter: Adapter) -> Script {
        Script(Arc::new(Mutex::new(State {
            adapter,
            disks: BTreeMap::from([(Lun::ZERO, Disk::default())]),
            rule: Box::new(|_| Reply::good()),
            manage: Box::new(|_| Managed::done()),
            arrived: Vec::new(),
            managed: Vec::new(),
            room: usize::MAX,
            refusal: None,
            outage: None,
            ends_at_once: usize::MAX,
            held: BTreeMap::new(),
            questions: BTreeMap::new(),
            events: Vec::new(),
            open: 0,
            announced: false,
            turned: false,
            peak: 0,
            hold: None,
        })))
    }

    /// Holds the next conversation: what tells that it has begun, and what has it go on.
    pub fn hold_asking(&self) -> (Receiver<()>, Sender<()>) {
        let ((begun, told), (go, goes_on)) = (mpsc::channel(), mpsc::channel());
        self.state().hold = Some((begun, goes_on));
        (told, go)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("the script's lock")
    }

    pub fn reply(&self, rule: impl FnMut(&Arrived) -> Reply + Send + 'static) {
        self.state().rule = Box::new(rule);
    }

    pub fn manage(&self, rule: impl FnMut(Management) -> Managed + Send + 'static) {
        self.state().manage = Box::new(rule);
    }

    pub fn take_arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut self.state().arrived)
    }
}

impl Transport for Script {
    fn adapter(&self) -> Adapter {
        self.state().adapter
    }

    fn name(&self) -> String {
        "script".to_owned()
    }

    fn target_line(&self, lun: Lun) -> Option<String> {
        Some(format!("script:{lun}"))
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        let lun = asker.next().map(|(lun, ..)| lun);
        let Some(lun) = lun else { return Ok(()) };
        let hold = self.state().hold.take();
        if let Some((begun, goes_on)) = hold {
            begun.send(()).expect("the test waits for it");
            goes_on.recv().expect("the test has it go on");
        }
        let mut state = self.state();
        match state.disks.get_mut(&lun) {
            Some(disk) => disk.ask(asker),
            None => return Err(DriverError { what: format!("no LUN {lun}"), source: None }),
        }
        Ok(())
    }

    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError> {
        let mut state = self.state();
        state.open += 1;
        let event = state.announced.then(|| UnixStream::pair().expect("a pair of sockets"));
        drop(state);
        Ok(Box::new(ScriptPort { script: self.clone(), index, event }))
    }
}

struct ScriptPort {
    script: Script,
    index: u16,
    event: Option<(UnixStream, UnixStream)>,
}

impl Port for ScriptPort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let mut state = self.script.state();
        if let Some(refusal) = state.refusal {
            return Err(refusal);
        }
        let all = state.held();
        if state.held.get(&self.index).map_or(0, VecDeque::len) >= state.room {
            return Err(Refusal::Busy);
        }
        let known = |held: &VecDeque<Held>| held.iter().any(|held| held.slot == command.slot);
        assert!(!state.held.values().any(known), "slot {} is in use", command.slot);
        let len: usize = memory.iter().map(Data::len).sum();
        let (bytes, out) = match command.direction {
            Direction::None => (0, false),
            Direction::In(bytes) => (bytes, false),
            Direction::Out(bytes) => (bytes, true),
        };
        assert_eq!(len, bytes as usize, "the memory is as long as the data");
        assert!(!memory.iter().any(|data| matches!(data, Data::Zero { .. })), "real memory only");
        let arrived = Arrived {
            port: self.index,
            slot: command.slot,
            lun: command.lun,
            cdb: command.cdb.to_vec(),
            bytes,
            out: if out { bytes_of(memory) } else { Vec::new() },
            at: now,
        };
        let reply = (state.rule)(&arrived);
        state.arrived.push(arrived);
        let held = Held {
            slot: command.slot,
            lun: command.lun,
            memory: std::mem::take(memory),
            expected: bytes,
            reply,
        };
        state.held.entry(self.index).or_default().push_back(held);
        state.peak = state.peak.max(all + 1);
        Ok(())
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        let mut state = self.script.state();
        let state = &mut *state;
        let held = state.held.entry(self.index).or_default();
        let mut left = state.ends_at_once;
        let mut at = 0;
        while at < held.len() && left > 0 {
            if matches!(held[at].reply, Reply::Never) {
                at += 1;
                continue;
            }
            let one = held.remove(at).expect("it is there");
            hand_over(one, ends);
            left -= 1;
        }
        for (lun, sense) in state.events.drain(..) {
            ends.events.push((lun, sense.len() as u8));
            ends.event_sense.extend(sense);
        }
        let questions = state.questions.entry(self.index).or_default();
        let answered = questions.extract_if(.., |(_, _, deadline, managed)| {
            managed.answer.is_some() || *deadline <= now
        });
        for (token, what, _, managed) in answered.collect::<Vec<_>>() {
            if !managed.keeps {
                let hit = |one: &Held| match what {
                    Management::Abort { slot } => one.slot == slot,
                    Management::LunReset(lun) => one.lun == lun,
                    Management::TargetReset | Management::SessionReset => true,
                };
                let held = state.held.entry(self.index).or_default();
                let (gone, rest): (Vec<Held>, Vec<Held>) = held.drain(..).partition(hit);
                held.extend(rest);
                for mut one in gone {
                    one.reply = Reply::delivery(managed.with);
                    hand_over(one, ends);
                }
            }
            ends.managements.push((token, managed.answer.unwrap_or(ManagementAnswer::Late)));
        }
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let mut state = self.script.state();
        if let Some(refusal) = state.refusal
            && what != Management::SessionReset
        {
            return Err(refusal);
        }
        state.managed.push((self.index, what, now));
        let managed = (state.manage)(what);
        state.questions.entry(self.index).or_default().push((token, what, deadline, managed));
        Ok(())
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|(event, _)| event.as_fd())
    }

    fn announces(&self) -> bool {
        self.event.is_some() || self.script.state().turned
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.script.state().outage
    }
}

impl Drop for ScriptPort {
    fn drop(&mut self) {
        self.script.state().open -= 1;
    }
}

fn hand_over(held: Held, ends: &mut Ends) {
    let Held { slot, mut memory, expected, reply, .. } = held;
    let Reply::End { delivery, status, sense, moved, data } = reply else {
        panic!("a command without an end is handed over")
    };
    for (piece, bytes) in memory.first_mut().into_iter().zip([&data]) {
        piece.copy_from_at(0, &bytes[..bytes.len().min(piece.len())]);
    }
    ends.commands.push(Delivered {
        slot,
        delivery,
        status,
        moved: moved.unwrap_or(expected).min(expected),
        sense: sense.len() as u8,
        memory: memory.len() as u16,
    });
    ends.sense.extend(sense);
    ends.memory.append(&mut memory);
}

pub fn bytes_of(memory: &[Data]) -> Vec<u8> {
    let mut all = Vec::new();
    for data in memory {
        let at = all.len();
        all.resize(at + data.len(), 0);
        data.copy_to(&mut all[at..]);
    }
    all
}
