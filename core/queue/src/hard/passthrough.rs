//! Passthrough commands in front of a driver queue. One on a reserved tag waits for that alone: it
//! is sent although every other tag is out or lost, and without a place of the budget.

use weir_bio::Nanos;

use super::{BURST, HardQueue};
use crate::event::Sink;
use crate::request::RequestClaim;

impl HardQueue {
    #[cold]
    pub(super) fn take_command(&mut self, mut claim: RequestClaim) {
        let carried = claim.carried().expect("a passthrough request has a command");
        match (carried.command.reserved, carried.command.first) {
            (true, true) => self.commands.insert(0, claim),
            (true, false) => self.commands.push(claim),
            (false, true) => self.dispatch.push_front(claim),
            (false, false) => self.dispatch.push_back(claim),
        }
    }

    /// Gives reserved tags to the commands that wait for one; they are the head of the burst.
    #[cold]
    pub(super) fn gather_commands(&mut self, now: Nanos, sink: impl Sink) {
        while !self.commands.is_empty()
            && self.burst.len() < BURST
            && let Some(tag) = self.tags.take_reserved()
        {
            let claim = self.commands.remove(0);
            self.start_with(tag, claim, now, sink);
            self.reserved += 1;
        }
    }
}
