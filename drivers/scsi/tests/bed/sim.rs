//! The simulated target as a transport: each port a nexus of its own. What is lost there, the port
//! loses; aborts, resets and reinstatement hand commands over as a session of iSCSI would.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Data, Nanos};
use weir_driver_scsi::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port,
    Refusal, Transport,
};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::DriverError;
use weir_sim_target::{
    Command as SimCommand, DataPlace, End, InitiatorId, Managed, Management as Function, NexusId,
    PortId, Target, TaskTag,
};

/// What the ports of one target share.
pub struct Shared {
    pub target: Target,
    ended: Vec<End>,
    /// Data on their way in, by nexus and tag.
    arrived: BTreeMap<(NexusKey, u32), Vec<u8>>,
}

type NexusKey = String;

fn key(nexus: NexusId) -> NexusKey {
    format!("{nexus:?}")
}

/// The transport.
#[derive(Clone)]
pub struct Simulated {
    shared: Arc<Mutex<Shared>>,
    adapter: Adapter,
}

impl Simulated {
    pub fn new(target: Target, adapter: Adapter) -> Simulated {
        let shared = Shared { target, ended: Vec::new(), arrived: BTreeMap::new() };
        Simulated { shared: Arc::new(Mutex::new(shared)), adapter }
    }

    pub fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("the target's lock")
    }
}

impl Shared {
    fn connect(&mut self, initiator: u32, now: Nanos) -> NexusId {
        self.target.connect(PortId(1), InitiatorId(initiator), now).expect("a port")
    }

    /// Takes the ends of all nexuses.
    fn pump(&mut self, now: Nanos) {
        loop {
            let arrived = &mut self.arrived;
            let mut sink = |place: DataPlace, bytes: &[u8]| {
                let data = arrived.entry((key(place.nexus), place.tag.0)).or_default();
                data.resize(place.offset as usize, 0);
                data.extend_from_slice(bytes);
            };
            match self.target.next_end(now, &mut sink) {
                Some(end) => self.ended.push(end),
                None => return,
            }
        }
    }
}

impl Transport for Simulated {
    fn adapter(&self) -> Adapter {
        self.adapter
    }

    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        let mut shared = self.shared();
        let nexus = shared.connect(1000, Nanos::ZERO);
        while let Some((lun, cdb, asked)) = asker.next() {
            let (data_out, expected_in) = match &asked {
                Asked::Nothing => (&[][..], 0),
                Asked::In(bytes) => (&[][..], *bytes),
                Asked::Out(bytes) => (&bytes[..], 0),
            };
            let tag = TaskTag(0);
            let command = SimCommand { tag, lun, cdb: &cdb, data_out, expected_in };
            shared.target.command(nexus, command, Nanos::ZERO).expect("a nexus");
            shared.pump(Nanos(1_000_000));
            let at = shared.ended.iter().position(|end| end.nexus == nexus).expect("an end");
            let end = shared.ended.remove(at);
            let data = shared.arrived.remove(&(key(nexus), 0)).unwrap_or_default();
            asker.answer(Delivery::Delivered, end.status, &data, &end.sense);
        }
        shared.target.disconnect(nexus, Nanos::ZERO);
        Ok(())
    }

    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError> {
        let nexus = self.shared().connect(u32::from(index), Nanos::ZERO);
        let port = SimPort {
            simulated: self.clone(),
            index,
            nexus,
            held: BTreeMap::new(),
            over: Vec::new(),
            answers: Vec::new(),
            late: Vec::new(),
        };
        Ok(Box::new(port))
    }
}

struct Held {
    lun: Lun,
    memory: Vec<Data>,
}

struct SimPort {
    simulated: Simulated,
    index: u16,
    nexus: NexusId,
    held: BTreeMap<u16, Held>,
    /// Commands that a management ended.
    over: Vec<(u16, Delivery)>,
    answers: Vec<(u32, ManagementAnswer)>,
    late: Vec<(u32, Nanos)>,
}

impl SimPort {
    fn hand_over(ends: &mut Ends, slot: u16, held: Held, delivery: Delivery, end: Option<&End>) {
        let mut memory = held.memory;
        ends.commands.push(Delivered {
            slot,
            delivery,
            status: end.map_or(ScsiStatus::GOOD, |end| end.status),
            moved: end.map_or(0, |end| end.moved_in + end.moved_out),
            sense: end.map_or(0, |end| end.sense.len() as u8),
            memory: memory.len() as u16,
        });
        if let Some(end) = end {
            ends.sense.extend_from_slice(&end.sense);
        }
        ends.memory.append(&mut memory);
    }

    fn end_held(&mut self, which: impl Fn(u16, &Held) -> bool, delivery: Delivery) {
        let slots = self.held.iter().filter(|(slot, held)| which(**slot, held));
        let slots: Vec<u16> = slots.map(|(slot, _)| *slot).collect();
        self.over.extend(slots.into_iter().map(|slot| (slot, delivery)));
    }
}

impl Port for SimPort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let (data_out, expected_in) = match command.direction {
            Direction::None => (Vec::new(), 0),
            Direction::In(bytes) => (Vec::new(), bytes),
            Direction::Out(_) => (super::port::bytes_of(memory), 0),
        };
        let sent = SimCommand {
            tag: TaskTag(u32::from(command.slot)),
            lun: command.lun,
            cdb: command.cdb,
            data_out: &data_out,
            expected_in,
        };
        let mut shared = self.simulated.shared();
        shared.target.command(self.nexus, sent, now).map_err(|_| Refusal::Gone)?;
        drop(shared);
        let held = Held { lun: command.lun, memory: std::mem::take(memory) };
        let before = self.held.insert(command.slot, held);
        assert!(before.is_none(), "slot {} is in use", command.slot);
        Ok(())
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        let simulated = self.simulated.clone();
        let mut shared = simulated.shared();
        shared.pump(now);
        let nexus = self.nexus;
        let own: Vec<End> = shared.ended.extract_if(.., |end| end.nexus == nexus).collect();
        for end in own {
            let data = shared.arrived.remove(&(key(nexus), end.tag.0));
            let slot = end.tag.0 as u16;
            let Some(mut held) = self.held.remove(&slot) else { continue };
            let mut rest = &data.unwrap_or_default()[..];
            for piece in &mut held.memory {
                let (own, more) = rest.split_at(piece.len().min(rest.len()));
                piece.copy_from_at(0, own);
                rest = more;
            }
            Self::hand_over(ends, slot, held, Delivery::Delivered, Some(&end));
        }
        for (slot, delivery) in self.over.drain(..) {
            if let Some(held) = self.held.remove(&slot) {
                Self::hand_over(ends, slot, held, delivery, None);
            }
        }
        ends.managements.append(&mut self.answers);
        let late = self.late.extract_if(.., |(_, deadline)| *deadline <= now);
        ends.managements.extend(late.map(|(token, _)| (token, ManagementAnswer::Late)));
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let simulated = self.simulated.clone();
        let mut shared = simulated.shared();
        shared.pump(now);
        let function = match what {
            Management::Abort { slot } => Function::AbortTask(TaskTag(u32::from(slot))),
            Management::LunReset(lun) => Function::LunReset(lun),
            Management::TargetReset => Function::TargetWarmReset,
            Management::SessionReset => {
                shared.target.disconnect(self.nexus, now);
                self.nexus = shared.connect(u32::from(self.index), now);
                drop(shared);
                self.end_held(|_, _| true, Delivery::Reset);
                self.answers.push((token, ManagementAnswer::Complete));
                return Ok(());
            }
        };
        let managed = shared.target.manage(self.nexus, function, now);
        let nexus = self.nexus;
        let has_ended = |slot: u16, shared: &Shared| {
            shared.ended.iter().any(|end| end.nexus == nexus && end.tag.0 == u32::from(slot))
        };
        let answer = match managed {
            Managed::Lost => {
                self.late.push((token, deadline));
                return Ok(());
            }
            Managed::NoLun => ManagementAnswer::NoLun,
            Managed::Complete => ManagementAnswer::Complete,
            Managed::NoTask => ManagementAnswer::NoTask,
        };
        match what {
            // One that has ended is handed over with its end; any other never arrived.
            Management::Abort { slot } if !has_ended(slot, &shared) => {
                self.over.push((slot, Delivery::Aborted));
            }
            Management::Abort { .. } | Management::SessionReset => {}
            Management::LunReset(lun) => self.end_held(
                |slot, held| held.lun == lun && !has_ended(slot, &shared),
                Delivery::Reset,
            ),
            Management::TargetReset => {
                self.end_held(|slot, _| !has_ended(slot, &shared), Delivery::Reset);
            }
        }
        self.answers.push((token, answer));
        Ok(())
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.simulated.shared().target.wake_at()
    }
}
