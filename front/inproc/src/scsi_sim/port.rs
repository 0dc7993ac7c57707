//! One hardware queue: commands on their way to a nexus of the target and back.

use std::sync::Arc;

use weir_bio::{Data, Nanos};
use weir_driver_scsi::{Command, Direction, Ends, Management, ManagementAnswer, Port, Refusal};
use weir_proto_scsi::decide::Delivery;
use weir_sim_target::{Command as Task, Managed, Management as Function};

use super::link::{Patience, Route};
use super::shared::{Outstanding, SharedTarget, State, Unanswered, tag_of};

/// The time of what has none.
const NEVER: Nanos = Nanos(u64::MAX);

/// A port of the mid-layer: a nexus of the target.
pub(super) struct SimPort {
    shared: Arc<SharedTarget>,
    patience: Patience,
    at: usize,
    wake_at: Option<Nanos>,
    outage_until: Option<Nanos>,
    notices: Vec<String>,
    /// Data of several pieces on their way out.
    gathered: Vec<u8>,
}

impl SimPort {
    pub(super) fn new(
        shared: &Arc<SharedTarget>,
        route: &Route,
        initiator: u32,
        slots: usize,
    ) -> SimPort {
        let at = shared.enter(route.port, initiator, slots);
        SimPort {
            shared: Arc::clone(shared),
            patience: route.patience,
            at,
            wake_at: None,
            outage_until: None,
            notices: Vec::new(),
            gathered: Vec::new(),
        }
    }

    /// Keeps what is asked without the lock. The time stands until the next call: a command is
    /// never due earlier than was known when it was sent.
    fn look(&mut self, state: &mut State) {
        let next = state.target.wake_at();
        let place = state.place(self.at);
        let has_commands = place.outstanding > 0;
        let ready = place.ends.commands.len() + place.ends.managements.len() > 0;
        let deadlines = place.unanswered.iter().map(|one| one.deadline);
        let times = [
            next.filter(|_| has_commands),
            place.link.wake_at(&self.patience, has_commands),
            ready.then_some(Nanos::ZERO),
            // One that no keep-alive looks at: without a time the core would poll.
            has_commands.then_some(NEVER),
        ];
        let wake_at = times.into_iter().flatten().chain(deadlines).min();
        self.wake_at = wake_at.map(|at| self.shared.outside(at));
        let outage = place.link.outage_until(&self.patience);
        self.outage_until = outage.map(|until| self.shared.outside(until));
        self.notices.append(&mut place.notices);
    }
}

/// All bytes of a command's memory, in one piece.
fn gather<'a>(memory: &'a [Data], gathered: &'a mut Vec<u8>) -> &'a [u8] {
    if let [Data::One(buf)] = memory {
        return buf;
    }
    gathered.clear();
    for data in memory {
        let at = gathered.len();
        gathered.resize(at + data.len(), 0);
        data.copy_to(&mut gathered[at..]);
    }
    gathered
}

impl Port for SimPort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let shared = Arc::clone(&self.shared);
        let (mut state, now) = shared.at(now);
        state.tend(self.at, &self.patience, now);
        let place = state.place(self.at);
        if let Some(refusal) = place.link.refusal(&self.patience, now) {
            self.look(&mut state);
            return Err(refusal);
        }
        let nexus = place.link.nexus().expect("a link that is not lost has a nexus");
        if place.outstanding == 0 {
            place.link.heard(now);
        }
        let (data_out, expected_in) = match command.direction {
            Direction::None => (&[][..], 0),
            Direction::In(bytes) => (&[][..], bytes),
            Direction::Out(_) => (gather(memory, &mut self.gathered), 0),
        };
        let (tag, lun, cdb) = (tag_of(command.slot), command.lun, command.cdb);
        let task = Task { tag, lun, cdb, data_out, expected_in };
        state.target.command(nexus, task, now).expect("a nexus that was seen to");
        state.moved();
        let place = state.place(self.at);
        let (lun, direction) = (command.lun, command.direction);
        let one = Outstanding { lun, direction, memory: std::mem::take(memory) };
        let before = place.out[usize::from(command.slot)].replace(one);
        assert!(before.is_none(), "slot {} is in use", command.slot);
        place.outstanding += 1;
        Ok(())
    }

    fn commit(&mut self, now: Nanos) {
        let shared = Arc::clone(&self.shared);
        let (mut state, _) = shared.at(now);
        self.look(&mut state);
    }

    fn reap(&mut self, now: Nanos, ends: &mut Ends) {
        let shared = Arc::clone(&self.shared);
        let (mut state, now) = shared.at(now);
        state.take_due(now);
        state.tend(self.at, &self.patience, now);
        let there = &mut state.place(self.at).ends;
        ends.commands.append(&mut there.commands);
        ends.sense.append(&mut there.sense);
        ends.memory.append(&mut there.memory);
        ends.managements.append(&mut there.managements);
        self.look(&mut state);
    }

    fn manage(
        &mut self,
        what: Management,
        token: u32,
        deadline: Nanos,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let shared = Arc::clone(&self.shared);
        let deadline = shared.inside(deadline);
        let (mut state, now) = shared.at(now);
        // An abort does not overtake an end.
        state.take_due(now);
        state.tend(self.at, &self.patience, now);
        let resets = what == Management::SessionReset;
        if !resets && let Some(refusal) = state.place(self.at).link.refusal(&self.patience, now) {
            self.look(&mut state);
            return Err(refusal);
        }
        let answer = state.manage(self.at, what, now);
        state.moved();
        let place = state.place(self.at);
        match answer {
            Some(answer) => place.answer(token, answer),
            None => place.unanswered.push(Unanswered { token, deadline, resets }),
        }
        self.look(&mut state);
        Ok(())
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.outage_until
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    fn notices(&mut self, tell: &mut dyn FnMut(String)) {
        self.notices.drain(..).for_each(tell);
    }
}

impl Drop for SimPort {
    fn drop(&mut self) {
        self.shared.leave(self.at);
    }
}

impl State {
    /// Ends tasks; the answer, if one comes.
    fn manage(&mut self, at: usize, what: Management, now: Nanos) -> Option<ManagementAnswer> {
        let function = match what {
            Management::Abort { slot } => Function::AbortTask(tag_of(slot)),
            Management::LunReset(lun) => Function::LunReset(lun),
            Management::TargetReset => Function::TargetWarmReset,
            Management::SessionReset => {
                self.connect(at, now);
                return self.place(at).link.is_up().then_some(ManagementAnswer::Complete);
            }
        };
        let nexus = self.place(at).link.nexus()?;
        let answer = match self.target.manage(nexus, function, now) {
            Managed::Lost => return None,
            Managed::NoLun => ManagementAnswer::NoLun,
            Managed::Complete => ManagementAnswer::Complete,
            Managed::NoTask => ManagementAnswer::NoTask,
        };
        // The target has none of these any more: without one, it ended unheard or never arrived.
        let place = self.place(at);
        match what {
            Management::Abort { slot } => {
                place.end_without(Delivery::Aborted, |at, _| at == slot);
            }
            Management::LunReset(lun) if answer == ManagementAnswer::Complete => {
                place.end_without(Delivery::Reset, |_, one| one.lun == lun);
            }
            Management::TargetReset => place.end_without(Delivery::Reset, |_, _| true),
            Management::LunReset(_) | Management::SessionReset => {}
        }
        place.link.heard(now);
        Some(answer)
    }
}
