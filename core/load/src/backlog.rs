//! Writes of a verifying job that are read and checked before more are begun.

use crate::job::Job;

/// Blocks that one I/O is on: the first and the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What was written since it was checked last.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    /// So many writes are begun before those of them are checked,
    every: u64,
    /// and so many are looked at then.
    batch: u64,
    /// Begun since the last check.
    begun: u64,
    /// Those that have ended, in the order of their ends.
    ended: Vec<Span>,
    /// Reads of this check to come, and the place of the next.
    left: u64,
    next: usize,
}

impl Backlog {
    /// That of a job; `None` if all is checked at its end.
    pub(crate) fn of(job: &Job) -> Option<Backlog> {
        let [every, batch] = job.verify_backlog.map(u64::from);
        let batch = if batch == 0 { every } else { batch };
        let (begun, ended) = (0, Vec::new());
        (every > 0).then_some(Backlog { every, batch, begun, ended, left: 0, next: 0 })
    }

    /// A write has begun.
    pub(crate) fn begun(&mut self) {
        self.begun += 1;
    }

    /// It has ended well.
    pub(crate) fn written(&mut self, write: Span) {
        self.ended.push(write);
    }

    /// Whether as many have begun as are let before a check.
    pub(crate) fn is_due(&self) -> bool {
        self.left == 0 && self.begun >= self.every
    }

    /// The next write to look at in a check, which begins when it is due: all have ended then.
    pub(crate) fn next(&mut self) -> Option<Span> {
        if self.is_due() {
            (self.begun, self.next) = (0, 0);
            self.left = if self.ended.is_empty() { 0 } else { self.batch };
        }
        // More than there are: some are looked at again.
        (self.left > 0).then(|| self.ended[self.next % self.ended.len()])
    }

    /// It is being looked at.
    pub(crate) fn taken(&mut self) {
        (self.left, self.next) = (self.left - 1, self.next + 1);
        if self.left == 0 {
            self.ended.clear();
        }
    }

    /// Whether anything is left to be checked at the end.
    pub(crate) fn has_unchecked(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The next of that.
    pub(crate) fn next_unchecked(&mut self) -> Option<Span> {
        self.ended.pop()
    }
}
