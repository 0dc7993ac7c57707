//! Commands that are to be sent again by the mid-layer itself: each keeps its tag, its memory and
//! its place meanwhile. They go before anything new, in the order in which they came back.

use weir_bio::{Data, Status};

use super::{Carrier, Wakes};
use crate::slot::{Prepared, Stage};
use crate::transport::Refusal;
use crate::unit::UnitState;

/// A command that is to be sent again, with its memory.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) slot: u16,
    pub(super) memory: Vec<Data>,
}

impl Carrier {
    /// Keeps a command that has come back, to send it again.
    #[cold]
    pub(super) fn keep(&mut self, slot: u16, memory: Vec<Data>) {
        self.slots[usize::from(slot)].stage = Stage::Kept;
        self.kept.push_back(Kept { slot, memory });
    }

    /// The same as another command.
    #[cold]
    pub(super) fn keep_as(&mut self, slot: u16, prepared: Prepared, memory: Vec<Data>) {
        self.slots[usize::from(slot)].prepared = prepared;
        self.keep(slot, memory);
    }

    /// Sends what is kept as far as the port takes it.
    #[cold]
    pub(super) fn send_kept(&mut self, wakes: &mut Wakes) {
        for _ in 0..self.kept.len() {
            let Some(Kept { slot: number, mut memory }) = self.kept.pop_front() else { return };
            let mut slot = self.slots[usize::from(number)];
            let seat = self.seat_mut(slot.seat);
            if seat.unit.state() == UnitState::Offline {
                self.finish(number, Status::Offline, memory, wakes);
                continue;
            }
            if !self.admits(slot.seat) {
                self.kept.push_back(Kept { slot: number, memory });
                continue;
            }
            (slot.stage, slot.sent_at) = (Stage::Sent, self.now);
            match self.send(number, slot, &mut memory) {
                Ok(()) => {
                    let counters = &self.seat_mut(slot.seat).counters;
                    counters.sent(1);
                    counters.retried();
                }
                Err(Refusal::Busy | Refusal::Down) => {
                    return self.kept.push_front(Kept { slot: number, memory });
                }
                Err(Refusal::Lost) => self.finish(number, Status::Transport, memory, wakes),
                Err(Refusal::Gone) => self.finish(number, Status::Offline, memory, wakes),
            }
        }
    }

    /// Takes a command out that is kept.
    #[cold]
    pub(super) fn take_kept(&mut self, slot: u16) -> Option<Vec<Data>> {
        let at = self.kept.iter().position(|kept| kept.slot == slot)?;
        self.kept.remove(at).map(|kept| kept.memory)
    }
}
