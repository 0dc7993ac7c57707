//! The calls of a submitter for a caller that listens to events.

use weir_bio::{Bio, Nanos};

use super::Submitter;
use crate::completion::{Completion, Refused};
use crate::event::Sink;

impl Submitter {
    /// As [`submit`](Submitter::submit); `sink` hears what happens.
    ///
    /// # Errors
    /// As [`submit`](Submitter::submit).
    #[inline]
    pub fn submit_telling(&mut self, bio: Bio, now: Nanos, sink: impl Sink) -> Result<(), Refused> {
        self.submit_as::<false>(bio, now, sink)
    }

    /// As [`submit_paid`](Submitter::submit_paid); `sink` hears what happens.
    ///
    /// # Errors
    /// As [`submit_paid`](Submitter::submit_paid).
    pub fn submit_paid_telling(
        &mut self,
        bio: Bio,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Refused> {
        self.submit_as::<true>(bio, now, sink)
    }

    /// As [`flush_plug`](Submitter::flush_plug); `sink` hears what happens.
    #[inline]
    pub fn flush_plug_telling(&mut self, now: Nanos, sink: impl Sink) {
        self.core().flush_plug(now, sink);
    }

    /// As [`complete`](Submitter::complete); `sink` hears what happens, as parts of bios may be
    /// sent on here.
    #[inline]
    pub fn complete_telling(
        &mut self,
        now: Nanos,
        each: impl FnMut(Completion),
        sink: impl Sink,
    ) -> usize {
        self.core().complete(now, each, sink)
    }
}
