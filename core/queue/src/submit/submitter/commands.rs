//! Passthrough commands of a submitter. They have slots of their own, so that they do not wait for
//! a slot that a request has, and go past plug, soft queue and scheduler.

use weir_bio::{Bio, Nanos, RqId, Status};
use weir_ring::Claim;

use super::{Core, Submitter};
use crate::command::{Carried, Command, CommandEnd, Detail, RefusedCommand};
use crate::event::{Silent, Sink};
use crate::request::{COMMANDS, COMMANDS_MAX, FlushStep, Request, RequestClaim, State};
use crate::split;

/// The commands of a submitter.
#[derive(Default)]
pub(crate) struct Commands {
    free: Vec<RequestClaim>,
    slots: u16,
    ended: Vec<CommandEnd>,
}

impl Commands {
    pub(super) fn have_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}

impl Submitter {
    /// Hands in a command, which is sent at once. It ends at
    /// [`take_command_end`](Submitter::take_command_end), behind a
    /// [`complete`](Submitter::complete); with [`Status::NotSupp`] if the driver takes none
    /// ([`Driver::takes_commands`](crate::Driver::takes_commands)), or not this kind of memory
    /// ([`Limits::takes_segments`](weir_bio::Limits::takes_segments)).
    ///
    /// # Errors
    /// [`RefusedCommand`], with the command.
    pub fn submit_command(&mut self, command: Command, now: Nanos) -> Result<(), RefusedCommand> {
        self.core().submit_command(command, now, Silent)
    }

    /// The next command that [`complete`](Submitter::complete) found to have ended.
    pub fn take_command_end(&mut self) -> Option<CommandEnd> {
        let ended = &mut self.core().commands.ended;
        (!ended.is_empty()).then(|| ended.remove(0))
    }
}

impl Core {
    fn submit_command(
        &mut self,
        command: Command,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), RefusedCommand> {
        let Commands { free, slots, .. } = &mut *self.commands;
        if free.is_empty() {
            if *slots == COMMANDS_MAX {
                return Err(RefusedCommand::Full(command));
            }
            free.push(Claim::new(Request::free(RqId::new(self.id, COMMANDS + *slots, 0))));
            *slots += 1;
        }
        if !self.member.enter(&self.shared.gate) {
            self.shared.tell_freezer();
            return Err(RefusedCommand::Frozen(command));
        }
        if self.member.inside() == 1 {
            self.refresh();
        }
        let unfit = if self.snapshot.offline {
            Some(Status::Offline)
        } else if !self.shared.takes_commands || !split::takes(&command.data, &self.snapshot.limits)
        {
            Some(Status::NotSupp)
        } else {
            (command.reserved && self.shared.queues.reserved == 0).then_some(Status::Inval)
        };
        if let Some(status) = unfit {
            let Command { cookie, data, .. } = command;
            let detail = Detail::default();
            self.end_command(CommandEnd { cookie, status, detail, data, wait_ns: 0, device_ns: 0 });
            return Ok(());
        }
        let mut claim = self.commands.free.pop().expect("seen above");
        claim.fill_command(command, now);
        self.send_holder(claim, now, sink);
        Ok(())
    }

    /// A command has come back; its slot is free again.
    #[cold]
    pub(super) fn take_command(&mut self, mut claim: RequestClaim) {
        let Carried { command, detail } = claim.take_command();
        let end = CommandEnd {
            cookie: command.cookie,
            status: claim.status,
            detail,
            data: std::mem::take(&mut claim.data),
            wait_ns: claim.issued_at.since(claim.accepted_at),
            device_ns: claim.done_at.since(claim.issued_at),
        };
        claim.state = State::Free;
        self.commands.free.push(claim);
        self.end_command(end);
    }

    /// It is told by `take_command_end`, and is inside no more.
    fn end_command(&mut self, end: CommandEnd) {
        self.commands.ended.push(end);
        if self.member.leave(1, &self.shared.gate) {
            self.shared.tell_freezer();
        }
        let _ = self.port.nudge();
    }
}

impl Request {
    fn fill_command(&mut self, mut command: Command, now: Nanos) {
        let data = std::mem::take(&mut command.data);
        let mut bio = Bio::new(command.op, 0, 0, data).with(command.flags);
        self.fill(&mut bio, FlushStep::DATA, now);
        self.split = Request::COMMAND;
        self.put_command(Carried { command, detail: Detail::default() });
    }
}
