//! How completions and kicks reach the thread that owns their receiver.

use std::sync::Arc;

use weir_ring::{Doorbell, Inbox, Pending, Wake};

use crate::request::Request;

/// A home's bell: its doorbell, and which of its submitters have completions waiting.
#[derive(Debug)]
pub struct Bell {
    doorbell: Doorbell,
    ready: Pending,
}

impl Bell {
    /// A bell for up to `submitters` submitters of one thread, which `wake` wakes.
    #[must_use]
    pub fn new(wake: Box<dyn Wake>, submitters: usize) -> Arc<Bell> {
        Arc::new(Bell { doorbell: Doorbell::new(wake), ready: Pending::new(submitters) })
    }

    /// Submitters it is made for: their tokens are below this.
    #[must_use]
    pub fn submitters(&self) -> usize {
        self.ready.sources()
    }

    /// The doorbell.
    #[must_use]
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Which submitters (by token) have something since the last [`Pending::take`].
    #[must_use]
    pub fn ready(&self) -> &Pending {
        &self.ready
    }
}

/// Where a submitter's completions go.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) inbox: Inbox<Request>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) token: usize,
}

impl Port {
    /// A port nobody waits at.
    #[cfg(test)]
    pub(crate) fn silent() -> Port {
        struct NoWake;
        impl Wake for NoWake {
            fn wake(&self) {}
        }
        Port { inbox: Inbox::default(), bell: Bell::new(Box::new(NoWake), 1), token: 0 }
    }

    /// Tells the submitter to look: completions, the gate's opening, a free request.
    pub(crate) fn nudge(&self) {
        self.bell.ready.mark(self.token);
        self.bell.doorbell.ring_fenced();
    }
}
