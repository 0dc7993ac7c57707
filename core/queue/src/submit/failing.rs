//! Requests that came back failed, on their way to what the device keeps of failures.

use weir_bio::Op;

use crate::directory::Partition;
use crate::failures::Failure;
use crate::request::Request;
use crate::shared::Shared;

/// A request to a device, or to a partition of it, has failed.
#[cold]
pub(super) fn note(shared: &Shared, partition: Option<&Partition>, request: &Request) {
    let failures = partition.map_or(&shared.failures, |partition| &partition.failures);
    let start = partition.map_or(0, Partition::start);
    let Request { status, done_at: at, rq, .. } = request;
    let sector = rq.sector.saturating_sub(start);
    let (op, sectors) = (rq.op, rq.sectors);
    // A flush that failed is told apart, also one that came as a write without data; and a command
    // is between its sender and the target.
    let is_flush = op == Op::Flush || (op == Op::Write && sectors == 0);
    if !is_flush && !matches!(op, Op::Prefetch | Op::DrvIn | Op::DrvOut) {
        failures.note(Failure { status: *status, count: 0, at: *at, op, sector, sectors });
    }
}
