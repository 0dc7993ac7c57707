//! How a port that is closed leaves its target.

use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use weir_bio::Nanos;
use weir_driver_scsi::Ends;

use super::{IscsiPort, State};
use crate::link::Answers;
use crate::socket;

/// How long the answer to the logout is waited for.
const FAREWELL: Duration = Duration::from_millis(100);

impl Drop for IscsiPort {
    /// Leaves the target, so that it keeps nothing of the session. Waits for the answer a little:
    /// a socket that is closed with bytes unread may take the logout back.
    fn drop(&mut self) {
        self.peer.closed(self.index);
        let State::Up(mut link) = std::mem::replace(&mut self.state, State::Gone) else { return };
        if link.broken().is_some() || link.is_due() {
            return;
        }
        link.log_out(Nanos(u64::MAX), &mut self.slots);
        let end = Instant::now() + FAREWELL;
        let (ends, heard) = (&mut Ends::default(), &mut self.heard);
        let mut to = Answers { slots: &mut self.slots, ends, heard };
        while !to.heard.logged_out {
            let ready = socket::wait(&link, PollFlags::IN, end);
            if !ready.unwrap_or(false) || link.receive(&mut self.window, &mut to, self.now).is_err()
            {
                return;
            }
            link.send(to.slots);
            to.ends.clear();
        }
    }
}
