//! I/O that a device failed: how, how often, and when last, kept by status and told.
//!
//! The submitter hears of each; this is for the operator, who else sees a number only.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Nanos, Op, SECTOR, Status};

use crate::notices::Notices;

/// After so long without a failure of a kind the next one is told again.
const QUIET_NS: u64 = 60 * 1_000_000_000;

/// What of a device failed in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How it ended.
    pub status: Status,
    /// How often, since the device was opened.
    pub count: u64,
    /// When last, by the clock of its submitters.
    pub at: Nanos,
    /// The last one: what it was.
    pub op: Op,
    /// Its first sector, from the start of the disk.
    pub sector: u64,
    /// Its length in sectors.
    pub sectors: u32,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { status, op, sector, sectors, .. } = self;
        let bytes = u64::from(*sectors) * SECTOR;
        write!(f, "{} of {bytes} bytes at sector {sector}: {status}", word(*op))
    }
}

impl Failure {
    /// What the last one was, in a word.
    #[must_use]
    pub fn what(&self) -> &'static str {
        word(self.op)
    }

    /// Whether it says that data cannot be read or written, and not that the way to it is lost or
    /// slow, or that a target refuses, which is told as long as it is.
    #[must_use]
    pub fn is_of_medium(&self) -> bool {
        use Status::{IoErr, Medium, NoSpc, Protection};
        matches!(self.status, IoErr | Medium | NoSpc | Protection)
    }
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Discard => "discard",
        Op::SecureErase => "secure erase",
        Op::WriteZeroes => "write of zeros",
        Op::Flush | Op::Prefetch | Op::DrvIn | Op::DrvOut => "request",
    }
}

/// The failures of a device or partition.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    seen: Mutex<Vec<Failure>>,
    notices: Notices,
}

impl Failures {
    /// Another one, whose count does not matter. What says nothing of the device is left out: it
    /// cannot do this, would have had to wait, or is closed. What is refused before it reaches the
    /// device does not come here.
    pub(crate) fn note(&self, failure: Failure) {
        use Status::{Again, DevResource, NotSupp, Offline, Ok, Resource};
        if let Ok | NotSupp | Again | Offline | Resource | DevResource = failure.status {
            return;
        }
        let mut seen = self.seen();
        let begins = match seen.iter_mut().find(|known| known.status == failure.status) {
            Some(known) => {
                let begins = failure.at.since(known.at) >= QUIET_NS;
                let (count, at) = (known.count + 1, known.at.max(failure.at));
                *known = Failure { count, at, ..failure };
                begins
            }
            None => {
                seen.push(Failure { count: 1, ..failure });
                true
            }
        };
        drop(seen);
        if begins {
            let further = "further ones are counted, and told again after a minute without one";
            self.notices.add(format!("an I/O failed: {failure}; {further}"));
        }
    }

    pub(crate) fn all(&self) -> Vec<Failure> {
        self.seen().clone()
    }

    pub(crate) fn listen(&self, listener: Arc<dyn Fn(&str) + Send + Sync>) {
        self.notices.listen(listener);
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Failure>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Status, second: u64, sector: u64) -> Failure {
        let at = Nanos(second * 1_000_000_000);
        Failure { status, count: 0, at, op: Op::Write, sector, sectors: 8 }
    }

    #[test]
    fn a_kind_of_failure_is_told_when_it_begins_and_counted_from_then_on() {
        let failures = Failures::default();
        failures.note(failed(Status::NoSpc, 1, 8));
        failures.note(failed(Status::Medium, 2, 16));
        for second in 2..100 {
            failures.note(failed(Status::NoSpc, second, 24));
        }
        assert_eq!(failures.notices.all().len(), 2, "{:?}", failures.notices.all());
        let first = failures.notices.all().remove(0);
        let said = "an I/O failed: write of 4096 bytes at sector 8: no space left on device";
        assert!(first.starts_with(said), "{first}");
        let last = Failure { count: 99, ..failed(Status::NoSpc, 99, 24) };
        assert_eq!(failures.all(), [last, Failure { count: 1, ..failed(Status::Medium, 2, 16) }]);
        failures.note(failed(Status::NoSpc, 99 + 59, 0));
        assert_eq!(failures.notices.all().len(), 2);
        failures.note(failed(Status::NoSpc, 158 + 60, 0));
        assert_eq!(failures.notices.all().len(), 3);
    }

    #[test]
    fn what_says_nothing_of_the_device_is_none_of_its_failures() {
        let failures = Failures::default();
        for status in Status::ALL {
            failures.note(failed(status, 1, 0));
        }
        let kept: Vec<Status> = failures.all().iter().map(|failure| failure.status).collect();
        use Status::{
            Inval, IoErr, Medium, NoSpc, Protection, ReadOnly, ResvConflict, Target, Timeout,
            Transport,
        };
        let told = [
            Timeout,
            NoSpc,
            Transport,
            Target,
            ResvConflict,
            Medium,
            Protection,
            Inval,
            IoErr,
            ReadOnly,
        ];
        assert_eq!(kept, told);
    }
}
