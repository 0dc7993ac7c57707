//! Fenced retry: a write that may still land on the path that failed goes down no other.
//!
//! Which one that is follows from the contracts of `weir_queue`:
//!
//! - A status that a leg's *driver* answered, a path error included, ends the request:
//!   `DriverQueue` answers only what cannot change a sector any more. A driver whose transport
//!   breaks answers when its task is aborted, its session has ended, or its own bound has passed.
//!   Such a write goes down another path at once.
//! - *Timeout* is said by the leg's core, not by its driver. Where the driver forgot the request
//!   ([`Cancel::Done`](weir_queue::Cancel)), or never had it, nothing can land. Where it keeps it
//!   (`Pending`), its sectors are fenced on that leg until the driver answers, and until then the
//!   write is in doubt: [`Device::may_change_late`] says so.
//!
//! A write in doubt is looked at ten times a second: when the fence is lifted, or when twice the
//! `replacement_timeout` has passed, it goes on. It is unanswered meanwhile, so its submitter does
//! not take it for done or failed while it may land.
//! Rules: docs/behaviour/multipath.md, section 2.2.

use std::ops::Range;

use weir_bio::{Nanos, Op};
use weir_queue::{Completion, Device};

/// Between two looks.
const LOOK_NS: u64 = 100_000_000;

/// A write that may still land.
struct Doubt {
    leg: usize,
    sectors: Range<u64>,
    until: Nanos,
    end: Completion,
}

/// The writes in doubt of one lane.
#[derive(Default)]
pub(super) struct Doubts {
    writes: Vec<Doubt>,
    look_at: Option<Nanos>,
}

/// A write that was in doubt, and why it is no longer.
pub(super) struct Settled {
    pub(super) leg: usize,
    pub(super) end: Completion,
    /// Its fence stands: the bound of the transport has passed.
    pub(super) by_bound: bool,
}

/// Whether an op may leave other bytes behind if it lands late.
pub(super) fn changes(op: Op) -> bool {
    op.is_write()
}

impl Doubts {
    pub(super) fn add(
        &mut self,
        leg: usize,
        sectors: Range<u64>,
        end: Completion,
        (now, bound_ns): (Nanos, u64),
    ) {
        self.writes.push(Doubt { leg, sectors, until: now + bound_ns, end });
        self.look_at.get_or_insert(now + LOOK_NS);
    }

    pub(super) fn wake_at(&self) -> Option<Nanos> {
        self.look_at
    }

    /// Those that can no longer land.
    #[cold]
    pub(super) fn take_settled(&mut self, legs: &[Device], now: Nanos) -> Vec<Settled> {
        if self.look_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let lands = |doubt: &Doubt| legs[doubt.leg].may_change_late(doubt.sectors.clone());
        let settled = self.writes.extract_if(.., |doubt| doubt.until <= now || !lands(doubt));
        let settled = settled.map(|doubt| Settled {
            leg: doubt.leg,
            by_bound: legs[doubt.leg].may_change_late(doubt.sectors),
            end: doubt.end,
        });
        let settled = settled.collect();
        self.look_at = (!self.writes.is_empty()).then(|| now + LOOK_NS);
        settled
    }
}
