//! The class of a session's I/O: group, priority, and whether its writes are background writes.

use weir_bio::Bio;
use weir_control::Classing;
use weir_queue::Member;

use super::Session;

impl Session {
    /// From now on its I/O has another class; with a member it counts elsewhere.
    pub(crate) fn reclassify(&mut self, member: Option<Member>, to: Classing) {
        self.ioprio = to.ioprio.unwrap_or(self.ioprio);
        self.background = to.background.unwrap_or(self.background);
        if let Some(member) = member {
            self.member = member;
            self.ask_caps_again();
        }
    }

    /// Gives a bio the class of the session's I/O.
    #[inline]
    pub(super) fn dress(&self, bio: &mut Bio) {
        (bio.group, bio.ioprio) = (self.member.group(), self.ioprio);
        if self.background && bio.op.is_write() && bio.sectors > 0 {
            bio.flags = bio.flags.in_background();
        }
    }
}
