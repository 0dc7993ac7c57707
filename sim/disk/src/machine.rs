//! What a model is to the outside: commands in, ends out.

use std::fmt;

use weir_bio::{Nanos, Op, SECTOR};

use crate::ends::Ends;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The caller's name for it.
    pub id: u32,
    /// What it does.
    pub op: Op,
    /// Where it begins, sectors of 512 bytes.
    pub sector: u64,
    /// How long it is, sectors; 0 of a flush.
    pub sectors: u32,
    /// A write that is to be on the medium when it ends.
    pub fua: bool,
}

impl Job {
    /// Whether it changes the medium.
    pub(crate) fn changes(&self) -> bool {
        self.op.is_write() && !self.op.is_passthrough()
    }

    /// Bytes that pass the link.
    pub(crate) fn moved_bytes(&self) -> u64 {
        if self.op.has_data() { u64::from(self.sectors) * SECTOR } else { 0 }
    }
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its name.
    pub id: u32,
    /// When it ended.
    pub at: Nanos,
}

/// The inside of a model.
pub(crate) trait Machine: fmt::Debug + Send {
    /// Takes a command. Its end is added now or at a later [`wake`](Machine::wake).
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends);

    /// When it has something to decide.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Decides what is due at `now`, which is what [`wake_at`](Machine::wake_at) said.
    fn wake(&mut self, _now: Nanos, _ends: &mut Ends) {}

    /// Commands whose end is not known yet.
    fn undecided(&self) -> usize {
        0
    }
}
