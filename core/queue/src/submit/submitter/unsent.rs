//! Bios that come back or end without having been sent.

use weir_bio::{Bio, Flags, Status};

use super::Core;
use crate::completion::{Completion, Why};

impl Core {
    /// As [`refuse`](Core::refuse), of a bio that has passed the gate.
    #[cold]
    pub(super) fn refuse_inside(&mut self, bio: &mut Bio, why: Why) -> Result<(), Why> {
        if bio.flags.has(Flags::NOWAIT) {
            self.end_unsent(bio, Status::Again);
            return Ok(());
        }
        if self.member.leave(1, &self.shared.gate) {
            self.shared.tell_freezer();
        }
        Err(why)
    }

    /// The bio comes back, unless it asked not to wait: then it ends AGAIN, without ever having
    /// been inside.
    #[cold]
    pub(super) fn refuse(&mut self, bio: &mut Bio, why: Why) -> Result<(), Why> {
        if !bio.flags.has(Flags::NOWAIT) {
            return Err(why);
        }
        // It is answered through `complete` like any other, but was never inside.
        self.turned_away += 1;
        self.end_unsent(bio, Status::Again);
        Ok(())
    }

    #[cold]
    pub(crate) fn end_unsent(&mut self, bio: &mut Bio, status: Status) {
        self.end_early(Completion {
            cookie: bio.cookie,
            status,
            op: bio.op,
            sectors: bio.sectors,
            data: std::mem::take(&mut bio.data),
            wait_ns: 0,
            device_ns: 0,
        });
    }

    /// The same for one that may have been paid for.
    #[cold]
    pub(crate) fn end_unsent_unpaid(&mut self, bio: &mut Bio, status: Status, charged: bool) {
        if charged {
            self.payer.give_back(bio, &self.snapshot.limits);
        }
        self.end_unsent(bio, status);
    }

    /// It never came to the driver.
    pub(crate) fn end_early(&mut self, completion: Completion) {
        self.ended.push(completion);
        let _ = self.port.nudge();
    }
}
