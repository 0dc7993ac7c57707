//! `deadline`: batches in sector order, and a deadline for each request. Source:
//! docs/behaviour/deadline.md, section 5.
//!
//! Each direction has an order by sector and a FIFO. A batch goes on from one request to its
//! successor, looking at no clock; between batches the direction is chosen, and the oldest of that
//! direction goes first if its time is up. The position is a request, not a sector: it is fixed
//! when its predecessor leaves, so what arrives in between waits for a later sweep.
//!
//! `mq-deadline` at its 4.12 level is the same machine.

use weir_bio::{Limits, Nanos, Rq, SchedTag};

use crate::contract::{Absorbed, Merge, Replay, Scheduler, Setup};
use crate::deadline::{self, Deadlines, READ, Settings, WRITE};
use crate::merge::Side;
use crate::staged::{Arrival, Staged};
use crate::tunable::{Row, Tunable, Tunables, Tuned, tunables};
use crate::{Entry, Family, SLES12};

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "deadline",
    family: Family::Legacy,
    counterpart: "mq-deadline",
    compat: COMPAT,
    levels: &[(SLES12, "`writes_starved` is 3")],
    tunables: TUNABLES,
    make: Some(|setup| Box::new(Deadline::new(setup))),
    replay: Some(|setup| Box::new(Deadline::new(setup))),
};

/// Whose behaviour it can have. `sles12` has the guide's `writes_starved` of 3 (SUSE tuning guide,
/// table 12.2); every kernel tree has 2.
pub const COMPAT: &[&str] = &["4.16", SLES12];

/// Its tunables, with the defaults of `4.16`.
pub const TUNABLES: &[Tunable] = &tunables(&ROWS);

const ROWS: [Row<Deadline>; 5] = deadline::rows();

/// The deadline scheduler of the single-queue path.
#[derive(Clone)]
pub struct Deadline {
    name: &'static str,
    /// Band 0 reads, band 1 writes; the cursor is the batch's next request.
    staged: Staged<true>,
    settings: Settings,
    batching: u32,
    starved: i64,
}

impl Deadline {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> Deadline {
        Deadline::named("deadline", setup)
    }

    /// The same machine as the multi-queue path first had it: I/O priorities play no part.
    pub(crate) fn of_4_12(setup: &Setup) -> Deadline {
        Deadline::named("mq-deadline", setup)
    }

    fn named(name: &'static str, setup: &Setup) -> Deadline {
        let mut settings = Settings::default();
        if setup.compat == SLES12 {
            settings.writes_starved = 3;
        }
        Deadline { name, staged: Staged::new(setup, 2), settings, batching: 0, starved: 0 }
    }

    /// The next request of the batch, or the first of a new one.
    #[inline]
    fn choose(&mut self, now: Nanos) -> Option<SchedTag> {
        let next = self.staged.cursor;
        if next != SchedTag::NONE && self.batching < self.settings.fifo_batch {
            return Some(next);
        }
        let waiting = [READ, WRITE].map(|band| !self.staged.fifo(band).is_empty());
        let direction = self.settings.direction(waiting, &mut self.starved)?;
        self.batching = 0;
        let oldest = self.staged.fifo(direction).oldest;
        let goes_on =
            next != SchedTag::NONE && usize::from(self.staged.node(next).band) == direction;
        let expired = now >= self.staged.node(oldest).deadline;
        Some(if goes_on && !expired { next } else { oldest })
    }

    /// Takes the chosen one out; its successor is next.
    #[inline]
    fn serve(&mut self, chosen: SchedTag) -> Rq {
        self.batching = self.batching.saturating_add(1);
        self.staged.cursor = chosen;
        *self.staged.unlink(chosen)
    }
}

impl Scheduler for Deadline {
    fn name(&self) -> &'static str {
        self.name
    }

    fn merge(&mut self, bio: &Rq, _now: Nanos) -> Merge {
        self.staged.merge(bio, usize::from(bio.op.is_write()))
    }

    fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        let band = usize::from(rq.op.is_write());
        let expire_ns = self.settings.expire_ns[band];
        self.staged.insert(rq, Arrival { band, now, expire_ns }, absorbed);
    }

    fn dispatch(&mut self, _hard_queue: u16, now: Nanos) -> Option<Rq> {
        self.choose(now).map(|chosen| self.serve(chosen))
    }

    fn staged(&self) -> usize {
        self.staged.len()
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        self.staged.resize(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.staged.limits_changed(limits, nomerges);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        self
    }
}

impl Replay for Deadline {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, now: Nanos) -> Rq {
        let mut trial = self.clone();
        if let Some(rq) = trial.dispatch(0, now).filter(|rq| rq.tag == tag) {
            *self = trial;
            return rq;
        }
        // Not what the batch goes on with, so a new batch begins with it.
        let direction = usize::from(self.staged.node(tag).band);
        let waiting = [READ, WRITE].map(|band| !self.staged.fifo(band).is_empty());
        self.settings.force_direction(direction, waiting, &mut self.starved);
        self.batching = 0;
        self.serve(tag)
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        self.staged.join_bio(tag, bio, side);
    }
}

impl Deadlines for Deadline {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    fn set_front_merges(&mut self, wanted: bool) {
        self.staged.front_merges = wanted;
    }
}

impl Tuned for Deadline {
    const ROWS: &'static [Row<Deadline>] = &ROWS;
    const TABLE: &'static [Tunable] = TUNABLES;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staged::tests::{Inspect, bands_agree, batches_are_sweeps, setup};

    impl Inspect for Deadline {
        fn bands(&mut self) -> Vec<(Vec<SchedTag>, Vec<SchedTag>)> {
            (0..2).map(|band| self.staged.band(band)).collect()
        }

        fn batching(&self) -> u32 {
            self.batching
        }
    }

    #[test]
    fn orders_and_fifos_hold_the_same_and_the_next_request_is_among_them() {
        bands_agree(|| Deadline::new(&setup()), |deadline| deadline.staged.cursor);
        bands_agree(|| Deadline::of_4_12(&setup()), |deadline| deadline.staged.cursor);
    }

    #[test]
    fn within_a_batch_the_direction_stays_and_sectors_never_go_down() {
        batches_are_sweeps(Deadline::new);
    }
}
