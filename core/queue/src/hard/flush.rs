//! The flush machine of one hard queue: turns PREFLUSH and FUA into device flushes, and lets many
//! waiters share one (docs/behaviour/block-layer.md, section 8).
//!
//! A waiter joins the pending list when the queue takes it in, and the flush is issued after that,
//! so everything acknowledged before the waiter was submitted is below the flush. A flush already
//! issued never covers a later waiter: it joins the other list.

use std::sync::Arc;

use weir_bio::{Flags, Limits, Nanos, Op, RqId, Status, SubmitterId};
use weir_ring::Claim;

use super::flush_error::FlushError;
use crate::partition::partition_start;
use crate::request::{FlushStep, Request, RequestClaim, State};

/// A pending flush waits at most so long for data steps to end (docs/behaviour/block-layer.md,
/// section 8.3).
const DEFERRAL_MAX_NS: u64 = 5_000_000_000;

impl FlushStep {
    /// Whether the flush machine must see the request at all.
    #[inline]
    pub(crate) fn is_sequenced(self) -> bool {
        self.preflush || self.postflush
    }
}

/// The steps that a bio's flags need on a device (docs/behaviour/block-layer.md, section 8.2), and
/// the flags its data travels with. `None`: no step is left.
#[inline]
pub(crate) fn steps(
    flags: Flags,
    op: Op,
    has_data: bool,
    limits: &Limits,
    barriers: bool,
) -> Option<(FlushStep, Flags)> {
    let stripped = flags.without(Flags::PREFLUSH | Flags::FUA);
    if !limits.volatile_cache || !barriers {
        return has_data.then_some((FlushStep::default(), stripped));
    }
    let native = limits.fua && (op == Op::Write || limits.fua_ranges);
    let step = FlushStep {
        preflush: flags.has(Flags::PREFLUSH),
        data: has_data,
        postflush: has_data && flags.has(Flags::FUA) && !native,
        in_data: false,
    };
    let fua = if native && has_data && flags.has(Flags::FUA) { Flags::FUA } else { Flags::NONE };
    let mut flags = stripped | fua | Flags::SYNC;
    if step.is_sequenced() {
        // A request in a sequence has exactly one bio.
        flags |= Flags::NOMERGE;
    }
    Some((step, flags))
}

/// The next action for a request.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send this to the device: a flush (before all else) or a data step.
    Issue(RequestClaim),
    /// This one is finished.
    Reply(RequestClaim),
}

/// Flush state of one hard queue.
#[derive(Debug)]
pub(crate) struct FlushMachine {
    pending: [Vec<RequestClaim>; 2],
    pending_index: usize,
    running_index: usize,
    in_data: usize,
    oldest: Nanos,
    /// The one flush request; `None` while the device has it.
    flush: Option<RequestClaim>,
    error: Arc<FlushError>,
}

impl FlushMachine {
    /// Of a device, or of a partition by its number.
    pub(crate) fn new(error: Arc<FlushError>, partition: u16) -> FlushMachine {
        let mut flush = Request::free(RqId::new(SubmitterId(0xfff), u16::MAX, 0));
        flush.rq.op = Op::Flush;
        flush.rq.sector = partition_start(partition);
        FlushMachine {
            pending: [Vec::new(), Vec::new()],
            pending_index: 0,
            running_index: 0,
            in_data: 0,
            oldest: Nanos::ZERO,
            flush: Some(Claim::new(flush)),
            error,
        }
    }

    /// Takes in a sequenced request.
    pub(crate) fn enter(&mut self, claim: RequestClaim, now: Nanos, orders: &mut Vec<Order>) {
        if claim.flush_step.preflush {
            self.wait(claim, now);
        } else {
            self.send_data(claim, orders);
        }
        self.kick(now, orders);
    }

    fn send_data(&mut self, mut claim: RequestClaim, orders: &mut Vec<Order>) {
        self.in_data += 1;
        claim.flush_step.in_data = true;
        orders.push(Order::Issue(claim));
    }

    fn wait(&mut self, claim: RequestClaim, now: Nanos) {
        let list = &mut self.pending[self.pending_index];
        if list.is_empty() {
            self.oldest = now;
        }
        list.push(claim);
    }

    /// Issues the device flush if it is time: none is in flight, a request waits, and either no
    /// data step is under way or the oldest waiter has waited long enough.
    pub(crate) fn kick(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        if self.pending_index != self.running_index
            || self.pending[self.pending_index].is_empty()
            || (self.in_data > 0 && now.since(self.oldest) < DEFERRAL_MAX_NS)
        {
            return;
        }
        let mut flush = self.flush.take().expect("no device flush is in flight");
        flush.state = State::Idle;
        flush.accepted_at = now;
        flush.handed_back = false;
        self.pending_index ^= 1;
        orders.push(Order::Issue(flush));
    }

    /// The device flush ended: its waiters go on, or fail with it.
    pub(crate) fn flush_ended(
        &mut self,
        mut flush: RequestClaim,
        now: Nanos,
        orders: &mut Vec<Order>,
    ) {
        let status = flush.status;
        if !status.is_ok() {
            self.error.note(status);
        }
        flush.state = State::Free;
        flush.rq.id = flush.rq.id.next_generation();
        let (issued_at, done_at) = (flush.issued_at, flush.done_at);
        self.flush = Some(flush);
        let waiters = std::mem::take(&mut self.pending[self.running_index]);
        self.running_index ^= 1;
        for mut claim in waiters {
            let step = claim.flush_step;
            claim.flush_step.preflush = false;
            if step.preflush && step.data && status.is_ok() {
                self.send_data(claim, orders);
                continue;
            }
            if status.is_ok() || step.preflush {
                claim.issued_at = issued_at;
            }
            claim.done_at = done_at;
            claim.status = status;
            claim.flush_step = FlushStep::default();
            orders.push(Order::Reply(claim));
        }
        self.kick(now, orders);
    }

    /// A data step ended.
    pub(crate) fn data_ended(
        &mut self,
        mut claim: RequestClaim,
        now: Nanos,
        orders: &mut Vec<Order>,
    ) {
        self.in_data -= 1;
        claim.flush_step.in_data = false;
        if claim.status.is_ok() && claim.flush_step.postflush {
            claim.flush_step.data = false;
            claim.state = State::Idle;
            self.wait(claim, now);
        } else {
            claim.flush_step = FlushStep::default();
            orders.push(Order::Reply(claim));
        }
        self.kick(now, orders);
    }

    /// Ends those that were accepted at `before` or earlier and still wait for a device flush to be
    /// issued.
    #[cold]
    pub(crate) fn expire(&mut self, before: Nanos, now: Nanos, orders: &mut Vec<Order>) {
        let waiting = &mut self.pending[self.pending_index];
        for mut claim in waiting.extract_if(.., |claim| claim.accepted_at <= before) {
            (claim.issued_at, claim.done_at) = (now, now);
            claim.status = Status::Timeout;
            self.error.note(Status::Timeout);
            claim.flush_step = FlushStep::default();
            orders.push(Order::Reply(claim));
        }
    }

    /// When to kick although nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let waiting = !self.pending[self.pending_index].is_empty();
        (waiting && self.pending_index == self.running_index).then(|| self.oldest + DEFERRAL_MAX_NS)
    }

    /// Whether it has neither a request nor a flush of its own under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.len() == 0 && self.flush.is_some()
    }

    /// Requests in any step.
    pub(crate) fn len(&self) -> usize {
        self.pending[0].len() + self.pending[1].len() + self.in_data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(preflush: bool, data: bool, postflush: bool) -> RequestClaim {
        let mut request = Request::free(RqId(0));
        request.flush_step = FlushStep { preflush, data, postflush, in_data: false };
        Claim::new(request)
    }

    fn end(mut claim: RequestClaim, status: Status) -> RequestClaim {
        claim.status = status;
        claim
    }

    /// The orders as (issued flushes, issued data steps, replies).
    fn sort(orders: &mut Vec<Order>) -> (Vec<RequestClaim>, Vec<RequestClaim>, Vec<RequestClaim>) {
        let (mut flushes, mut data, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for order in orders.drain(..) {
            let issued = matches!(order, Order::Issue(_));
            let (Order::Issue(mut claim) | Order::Reply(mut claim)) = order;
            // The test drops what it was given.
            claim.state = State::Free;
            match claim.rq.op {
                Op::Flush => flushes.push(claim),
                _ if issued => data.push(claim),
                _ => replies.push(claim),
            }
        }
        (flushes, data, replies)
    }

    const NOW: Nanos = Nanos(1);

    fn machine() -> FlushMachine {
        FlushMachine::new(Arc::default(), 0)
    }

    #[test]
    fn the_first_flush_that_failed_is_kept_and_told_once() {
        let (mut machine, mut orders) = (machine(), Vec::new());
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let listener = move |notice: &str| heard.lock().unwrap().push(notice.to_owned());
        machine.error.listen(Arc::new(listener));
        for status in [Status::Ok, Status::NoSpc, Status::IoErr, Status::Ok] {
            machine.enter(claim(true, false, false), NOW, &mut orders);
            let flush = sort(&mut orders).0.pop().unwrap();
            machine.flush_ended(end(flush, status), NOW, &mut orders);
            assert_eq!(sort(&mut orders).2[0].status, status);
            let first = (status != Status::Ok).then_some(Status::NoSpc);
            assert!(first.is_none() || machine.error.first() == first, "{status}");
        }
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && told[0].contains("no space left"), "{told:?}");
    }

    #[test]
    fn a_flush_that_waits_in_vain_for_the_device_has_failed_too() {
        let (mut machine, mut orders) = (machine(), Vec::new());
        machine.enter(claim(false, true, true), NOW, &mut orders);
        machine.enter(claim(true, false, false), NOW, &mut orders);
        machine.expire(NOW, NOW, &mut orders);
        sort(&mut orders);
        assert_eq!(machine.error.first(), Some(Status::Timeout));
    }

    #[test]
    fn the_table_of_steps_is_followed() {
        let cached = Limits { volatile_cache: true, ..Limits::default() };
        let writes = Limits { fua: true, ..cached.clone() };
        let native = Limits { fua_ranges: true, ..writes.clone() };
        let both = Flags::PREFLUSH | Flags::FUA;
        let row = |flags, data, limits: &Limits| {
            steps(flags, Op::Write, data, limits, true)
                .map(|(s, f)| (s.preflush, s.data, s.postflush, f.has(Flags::FUA)))
        };
        assert_eq!(row(Flags::PREFLUSH, false, &Limits::default()), None);
        assert_eq!(row(both, true, &Limits::default()), Some((false, false, false, false)));
        assert_eq!(row(Flags::PREFLUSH, false, &native), Some((true, false, false, false)));
        assert_eq!(row(Flags::PREFLUSH, true, &native), Some((true, true, false, false)));
        assert_eq!(row(Flags::FUA, true, &native), Some((false, true, false, true)));
        assert_eq!(row(both, true, &native), Some((true, true, false, true)));
        assert_eq!(row(Flags::FUA, true, &cached), Some((false, true, true, false)));
        assert_eq!(row(both, true, &cached), Some((true, true, true, false)));
        assert_eq!(row(Flags::FUA, true, &writes), Some((false, true, false, true)));
        for op in [Op::WriteZeroes, Op::Discard] {
            let row = |limits: &Limits| {
                let (step, flags) = steps(Flags::FUA, op, true, limits, true).expect("data");
                (step.postflush, flags.has(Flags::FUA))
            };
            let rows = (row(&native), row(&writes), row(&cached));
            assert_eq!(rows, ((false, true), (true, false), (true, false)), "{op:?}");
        }
        assert_eq!(steps(both, Op::Write, false, &cached, false), None, "barriers are off");
    }

    #[test]
    fn a_waiter_that_comes_after_the_flush_was_issued_waits_for_the_next_one() {
        let (mut machine, mut orders) = (machine(), Vec::new());
        machine.enter(claim(true, false, false), NOW, &mut orders);
        let (mut flushes, _, _) = sort(&mut orders);
        machine.enter(claim(true, false, false), NOW, &mut orders);
        machine.enter(claim(true, false, false), NOW, &mut orders);
        assert!(orders.is_empty(), "one flush is in flight");
        machine.flush_ended(end(flushes.pop().unwrap(), Status::Ok), NOW, &mut orders);
        let (mut second, _, replies) = sort(&mut orders);
        assert_eq!((second.len(), replies.len()), (1, 1));
        machine.flush_ended(end(second.pop().unwrap(), Status::Ok), NOW, &mut orders);
        assert_eq!(sort(&mut orders).2.len(), 2, "the two share one flush");
        assert_eq!(machine.len(), 0);
    }

    #[test]
    fn data_waits_for_its_preflush_and_is_not_sent_when_that_fails() {
        for status in [Status::Ok, Status::IoErr] {
            let (mut machine, mut orders) = (machine(), Vec::new());
            machine.enter(claim(true, true, true), NOW, &mut orders);
            let (mut flushes, data, _) = sort(&mut orders);
            assert!(data.is_empty());
            machine.flush_ended(end(flushes.pop().unwrap(), status), NOW, &mut orders);
            let (_, mut data, replies) = sort(&mut orders);
            if !status.is_ok() {
                assert_eq!((data.len(), replies[0].status), (0, Status::IoErr));
                continue;
            }
            machine.data_ended(end(data.pop().unwrap(), Status::Ok), NOW, &mut orders);
            let (mut post, _, replies) = sort(&mut orders);
            assert!(replies.is_empty(), "the data is not durable yet");
            machine.flush_ended(end(post.pop().unwrap(), Status::Ok), NOW, &mut orders);
            assert_eq!(sort(&mut orders).2.len(), 1);
        }
    }

    #[test]
    fn a_flush_waits_for_data_steps_but_not_longer_than_5_seconds() {
        let (mut machine, mut orders) = (machine(), Vec::new());
        machine.enter(claim(false, true, true), NOW, &mut orders);
        machine.enter(claim(true, false, false), NOW, &mut orders);
        let (flushes, data, _) = sort(&mut orders);
        assert_eq!((flushes.len(), data.len()), (0, 1));
        let due = machine.wake_at().unwrap();
        machine.kick(due - 1, &mut orders);
        assert!(orders.is_empty());
        machine.kick(due, &mut orders);
        assert_eq!(sort(&mut orders).0.len(), 1);
    }
}
