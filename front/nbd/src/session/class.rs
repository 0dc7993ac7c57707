//! The class of a session's I/O: group, priority, and whether its writes are background writes.

use weir_bio::{Bio, IoPrio, Nanos};
use weir_control::{Classing, PeerPriority};
use weir_queue::Member;

use super::Session;

/// The priority of a session's I/O.
pub(super) struct Priority {
    given: IoPrio,
    /// That of its process, which counts where none was given.
    process: PeerPriority,
}

impl Priority {
    pub(super) fn of(given: IoPrio, process: PeerPriority) -> Priority {
        Priority { given, process }
    }

    /// Asks for that of the process, if it counts and it is time to.
    #[inline]
    pub(super) fn ask_again(&mut self, now: Nanos) {
        if self.given == IoPrio::NONE {
            self.process.ask_again(now);
        }
    }

    #[inline]
    fn get(&self) -> IoPrio {
        if self.given == IoPrio::NONE { self.process.get() } else { self.given }
    }
}

impl Session {
    /// From now on its I/O has another class; with a member it counts elsewhere.
    pub(crate) fn reclassify(&mut self, member: Option<Member>, to: Classing) {
        self.priority.given = to.ioprio.unwrap_or(self.priority.given);
        self.background = to.background.unwrap_or(self.background);
        if let Some(member) = member {
            self.member = member;
            self.ask_caps_again();
        }
    }

    /// Gives a bio the class of the session's I/O.
    #[inline]
    pub(super) fn dress(&self, bio: &mut Bio) {
        (bio.group, bio.ioprio) = (self.member.group(), self.priority.get());
        if self.background && bio.op.is_write() && bio.sectors > 0 {
            bio.flags = bio.flags.in_background();
        }
    }
}
