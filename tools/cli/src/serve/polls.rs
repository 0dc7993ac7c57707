//! How the threads of a daemon wait, as flags.

use clap::Args;
use weir_control::config::{self, Poll};

use crate::values::whole;

/// Flags that stand above `[host]`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Polls {
    /// Whether a reactor with nothing to do polls before it sleeps: off, adaptive (while waits are
    /// short, within --poll-share) or always, which takes a whole CPU for each reactor; off if not
    /// given. Requests that come one by one are answered sooner.
    #[arg(long, value_name = "MODE")]
    poll: Option<Poll>,
    /// The part of its time, percent, that a reactor may poll with --poll adaptive; 80 if not
    /// given.
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(1..=100))]
    poll_share: Option<u8>,
}

impl Polls {
    /// Puts those that were given in place of what the configuration states.
    pub(super) fn put_over(&self, host: &mut config::Host) {
        host.poll = self.poll.unwrap_or(host.poll);
        host.poll_share = self.poll_share.unwrap_or(host.poll_share);
    }
}
