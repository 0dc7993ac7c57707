//! The watch over a hard queue: no request waits for ever.
//!
//! Once a second it looks for two kinds of requests whose time (`io_timeout`) is up:
//!
//! - the driver has one for that long: it is cancelled. A driver that cannot let go keeps tag and
//!   memory, the sectors the request may still change are fenced, and its submitter is told;
//! - one waits in front of the driver for that long although the queue is in trouble: tags are
//!   quarantined, the driver answers nothing or refuses everything, a lane in need has handed its
//!   requests over, or a fence holds the request back.
//!
//! A queue that keeps tags beyond their time, has something waiting and answers nothing for a
//! time-out is silent: what waits for a fence keeps its scheduler's tag, for which others wait.
//!
//! A queue without trouble never ends what waits in front of the driver: a scheduler may keep an
//! idle-class request for as long as others want the disk. A request that the driver hands back
//! has no new time when it is sent again, or else a device that fails after a while each time would
//! keep it for ever.
//!
//! During an outage that the driver names time stands still, and in front of the driver while
//! dispatch is paused. It does not begin anew after that.

use weir_bio::{Flags, Nanos, Op, Status};

use super::reply::Replies;
use super::still::Still;
use super::{HardQueue, Source};
use crate::driver::{Cancel, Tag};
use crate::event::{Sink, What, lane_tells};
use crate::request::{ALL, RequestClaim};

/// How often requests are looked over.
const SCAN_NS: u64 = 1_000_000_000;

/// A scan that comes so much later than it was due finds a process that was stopped, or a machine
/// that was asleep: answers wait in sockets and rings, and are taken before anything is overdue.
const PAUSE_NS: u64 = 1_000_000_000;

/// The watch over one hard queue: the next scan, and the signs of trouble.
#[derive(Default)]
pub(super) struct Watch {
    /// When the next scan is due, if there is anything to look at.
    pub(super) scan_at: Option<Nanos>,
    /// The last scan that was due was put off.
    put_off: bool,
    /// Something may be waiting for longer than it should.
    pub(super) trouble: bool,
    /// Since when the driver has refused all it was offered.
    pub(super) refused_since: Option<Nanos>,
    /// When the driver last answered.
    pub(super) answered_at: Nanos,
    /// The driver has let requests run out of time since. Those that were sent after them have
    /// their own time, which says nothing of how long it has answered nothing.
    suspect: bool,
    /// When it was last seen to have nothing to do. After more than a scan of that the suspicion is
    /// gone: a disk may need long for the first request after a pause.
    idle_at: Nanos,
    /// And it has answered nothing for as long.
    silent: bool,
    /// Lanes of this device are in need, or tags of a set it draws on are lost.
    beside: bool,
    /// Something waits here for tags, in a scheduler or a soft queue.
    wanted: bool,
    /// The queue has taken in requests of a lane in need, and not sent all it has since.
    inherits: bool,
    /// Dispatch is paused.
    pub(super) paused: bool,
    /// When dispatch was last seen to be paused, or to go on.
    paused_at: Nanos,
    /// It has handed requests back, and not all has been sent since.
    returned: bool,
    /// The clock of what the driver has: it stands still during an outage.
    driven: Still,
    /// The clock of what waits: it also stands still while dispatch is paused.
    waiting: Still,
    /// Requests that a fence holds back, and how many fences had been lifted when they were.
    pub(super) held: Vec<RequestClaim>,
    seen_lifted: u64,
    /// Requests that may not wait have ended at a fence.
    pub(super) refused: bool,
    /// A fence of this queue was lifted, and the lanes that wait are not told yet.
    pub(super) lifted: bool,
    /// Holds are to be sent on.
    pub(super) onward: bool,
    overdue: Vec<Tag>,
}

impl Watch {
    /// Something is to be looked at from now on.
    #[inline]
    pub(super) fn begin(&mut self, timeout_ns: u64, now: Nanos) {
        if self.scan_at.is_none() && timeout_ns != 0 {
            self.scan_at = Some(now + SCAN_NS);
            self.suspect &= now.since(self.idle_at) <= SCAN_NS;
        }
    }

    /// The driver has answered.
    #[inline]
    pub(super) fn see_answer(&mut self, now: Nanos) {
        (self.answered_at, self.silent, self.suspect) = (now, false, false);
    }
}

impl HardQueue {
    /// Ends requests whose time is up, if it is time to look. Nothing in front of the driver is
    /// ended while dispatch is `paused`: it is kept on purpose.
    #[inline]
    pub(crate) fn scan(
        &mut self,
        now: Nanos,
        paused: bool,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        if paused != self.watch.paused {
            self.set_paused(paused, now);
        }
        // A request that has been answered is not overdue, even if it was not ended yet.
        if self.watch.scan_at.is_some_and(|at| at <= now) && !self.has_answers() {
            self.scan_now(now, replies, sink);
        }
    }

    /// Dispatch is paused, or goes on. No scan need be due meanwhile.
    #[cold]
    fn set_paused(&mut self, paused: bool, now: Nanos) {
        self.watch.paused = paused;
        self.watch.refused_since = None;
        self.set_clocks(now);
        let since = std::mem::replace(&mut self.watch.paused_at, now);
        if !paused {
            // The clock of what the driver has ran on; it is to have these again.
            let delayed = self.delayed.iter_mut().map(|(_, claim)| claim);
            let waiting = self.dispatch.iter_mut().chain(delayed).chain(&mut self.watch.held);
            let waiting = waiting.chain(&mut self.commands);
            for claim in waiting.filter(|claim| claim.handed_back) {
                claim.done_at = (claim.begun_at() + now.since(since)).min(now);
            }
        }
    }

    #[cold]
    fn scan_now(&mut self, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        let late = self.watch.scan_at.map_or(0, |at| now.since(at));
        self.watch.scan_at = Some(now + SCAN_NS);
        self.watch.put_off = late > PAUSE_NS && !self.watch.put_off;
        if self.watch.put_off {
            return;
        }
        self.set_clocks(now);
        if self.watch.waiting.stands() {
            self.watch.refused_since = None;
        }
        let needed = self.is_in_need(now);
        if let Some(before) = self.watch.driven.before(self.timeout_ns, now) {
            self.give_up(before, now, replies, sink);
            // An outage may begin with what was given up.
            self.set_clocks(now);
        }
        if !needed && self.is_in_need(now) {
            // Another lane may send the requests that wait here; what stays is seen to next.
            self.watch.scan_at = Some(now);
            return;
        }
        if let Some(before) = self.expiry(now) {
            self.expire(before, now, replies, sink);
        }
        self.watch.inherits &= self.unsent() > 0;
        self.watch.returned &= self.unsent() > 0;
        let waits = self.is_in_trouble() && self.unsent() > 0;
        self.watch.trouble = waits || self.watch.silent || self.settling.is_waiting();
        // A request that was given up is not looked for again.
        let watched = self.driver.in_flight() > self.table.quarantined() || waits;
        self.watch.scan_at = watched.then_some(now + SCAN_NS);
        if !watched {
            self.watch.idle_at = now;
            // How long it still lasts is not looked at any more.
            self.watch.driven.run(now);
            if !self.watch.paused {
                self.watch.waiting.run(now);
            }
        }
    }

    /// Stops the clocks during an outage, and that of what waits during a pause.
    #[cold]
    pub(super) fn set_clocks(&mut self, now: Nanos) {
        let outage = self.driver.outage_until().filter(|until| now < *until);
        match outage {
            Some(until) => self.watch.driven.stand(now, until),
            None => self.watch.driven.run(now),
        }
        match if self.watch.paused { Some(Nanos(u64::MAX)) } else { outage } {
            Some(until) => self.watch.waiting.stand(now, until),
            None => self.watch.waiting.run(now),
        }
    }

    /// Requests come back from the driver, to be sent again: each goes on with the time it has.
    #[cold]
    pub(super) fn see_returned(&mut self, now: Nanos) {
        (self.watch.returned, self.watch.trouble) = (true, true);
        self.watch.begin(self.timeout_ns, now);
        self.set_clocks(now);
    }

    fn is_in_trouble(&self) -> bool {
        self.table.quarantined() > 0
            || self.watch.silent
            || self.watch.inherits
            || self.watch.returned
            || self.watch.driven.stands()
            || self.tags.are_lost()
            || self.watch.refused_since.is_some()
            || !self.watch.held.is_empty()
    }

    /// Whether every tag is quarantined: the queue can send nothing until the driver gives one
    /// back.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.tags.are_lost()
    }

    /// Whether the queue is dead, or its driver answers nothing or refuses everything for as long
    /// as a request may take. Requests in a scheduler or a soft queue are to wait here then, so
    /// that each ends in its time.
    #[inline]
    pub(crate) fn is_in_need(&self, now: Nanos) -> bool {
        self.is_dead() || self.watch.silent || self.is_refused_for_long(now)
    }

    /// Requests that may stay here to show whether the driver is back: one at a time.
    #[cold]
    pub(crate) fn probes(&self) -> usize {
        let waits = self.driver.in_flight() > self.table.quarantined();
        usize::from(!waits && self.tags.free() > 0)
    }

    #[inline]
    fn is_refused_for_long(&self, now: Nanos) -> bool {
        self.watch.trouble
            && self.timeout_ns != 0
            && self.watch.refused_since.is_some_and(|since| {
                // By the clock that ends what waits here: a queue that is in need by another one
                // would be looked over in every turn, and end nothing.
                self.watch.waiting.passed(since, now) >= self.timeout_ns
            })
    }

    /// Takes out what another lane may send just as well: all but the steps of this queue's own
    /// flush machine, and what stays as a probe.
    #[cold]
    pub(crate) fn hand_over(&mut self, now: Nanos, out: &mut Vec<RequestClaim>) {
        let mut probes = self.probes();
        for _ in 0..self.dispatch.len() {
            let mut claim = self.dispatch.pop_front().expect("counted");
            if claim.rq.op == Op::Flush || claim.flush_step.in_data || probes > 0 {
                probes = probes.saturating_sub(1);
                self.dispatch.push_back(claim);
            } else {
                if claim.handed_back {
                    // The other lane's clock knows nothing of outages here.
                    let passed = self.watch.driven.passed(claim.begun_at(), now);
                    claim.done_at = Nanos(now.0.saturating_sub(passed));
                }
                out.push(claim);
            }
        }
    }

    /// Ends what another lane could not end in time: its time was over a scan ago, since when it
    /// was with a lane that fell silent, or waited for tags of one. The next lane would need a scan
    /// as well to be found silent. Requests of a driver that answered until now are not ended here.
    #[cold]
    pub(crate) fn end_overdue(&mut self, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        let before = self.expiry(now).and_then(|before| before.0.checked_sub(SCAN_NS)).map(Nanos);
        if let Some(before) = before.filter(|before| self.watch.answered_at <= *before) {
            self.expire(before, now, replies, sink);
        }
    }

    /// Requests that wait in front of the driver.
    pub(crate) fn unsent(&self) -> usize {
        self.dispatch.len()
            + self.commands.len()
            + self.delayed.len()
            + self.watch.held.len()
            + self.flush.len()
    }

    /// Takes in what another lane cannot send.
    #[cold]
    pub(crate) fn take_from_others(
        &mut self,
        claims: Vec<RequestClaim>,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        (self.watch.inherits, self.watch.trouble) = (true, true);
        claims.into_iter().for_each(|claim| self.take_in(claim, now, replies, sink));
    }

    /// Ends what was issued at `before` or earlier.
    fn give_up(&mut self, before: Nanos, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        let mut overdue = std::mem::take(&mut self.watch.overdue);
        self.table.overdue(before, &mut overdue);
        // A request that waits for a fence keeps its tag of the scheduler, and others wait for
        // that.
        let waits = self.table.quarantined() > 0 && self.unsent() > 0;
        self.watch.suspect |= !overdue.is_empty();
        // A driver that was asked for nothing is not silent, whatever others are.
        let has = self.driver.in_flight() > self.table.quarantined() || self.unsent() > 0;
        let wanted = std::mem::take(&mut self.watch.wanted) || has;
        let beside = std::mem::take(&mut self.watch.beside) && wanted;
        let suspect = self.watch.suspect || waits || beside;
        self.watch.silent |= suspect && self.watch.answered_at <= before;
        for tag in overdue.drain(..) {
            let kept = match self.driver.cancel(tag) {
                Cancel::Recovering => continue,
                Cancel::Pending => true,
                Cancel::Done => false,
            };
            let Some(claim) = self.table.cancelled(tag, kept) else { continue };
            lane_tells(sink, self.lane, now, || What::GivenUp { rq: claim.rq, tag });
            match kept {
                true => {
                    self.tags.lose(tag);
                    // Before its submitter is told: what that sends next must find the fence.
                    self.fences.put(self.lane, tag, &claim.rq);
                }
                false => self.tags.give(tag),
            }
            self.end(claim, Status::Timeout, now, replies, sink);
        }
        self.watch.overdue = overdue;
        self.gauges.quarantined.set(self.table.quarantined() as u64);
    }

    /// Ends what was accepted at `before` or earlier and waits in front of a driver in trouble, or
    /// for a fence.
    fn expire(&mut self, before: Nanos, now: Nanos, replies: &mut Replies, sink: impl Sink) {
        let old = |claim: &mut RequestClaim| claim.oldest() <= before;
        let mut expired: Vec<RequestClaim> = self.watch.held.extract_if(.., old).collect();
        let refused = self.watch.refused_since.is_some_and(|since| since <= before);
        let silent = self.watch.silent || self.watch.inherits || self.is_dead();
        let all = self.table.quarantined() > 0 || silent || refused;
        let over = |claim: &RequestClaim| match all {
            true => claim.oldest() <= before,
            false => claim.handed_back && claim.begun_at() <= before,
        };
        if all || self.watch.returned {
            let delayed = self.delayed.extract_if(.., |(_, claim)| over(claim));
            expired.extend(delayed.map(|(_, claim)| claim));
            expired.extend(self.commands.extract_if(.., |claim| over(claim)));
            for _ in 0..self.dispatch.len() {
                let claim = self.dispatch.pop_front().expect("counted");
                match over(&claim) {
                    true => expired.push(claim),
                    false => self.dispatch.push_back(claim),
                }
            }
        }
        if all {
            self.flush.expire(before, now, &mut self.orders);
            self.carry_out(now, replies, sink);
        }
        for mut claim in expired {
            if self.fences.any() {
                self.fences.passed(claim.rq.id, &mut self.settling.taken);
                self.watch.onward |= !self.settling.taken.is_empty();
            }
            claim.issued_at = now;
            if claim.rq.op == Op::Flush {
                // Not by way of the statistics: it was never executed.
                claim.status = Status::Timeout;
                self.flush.flush_ended(claim, now, &mut self.orders);
                self.carry_out(now, replies, sink);
            } else {
                self.finish(claim, Status::Timeout, now, replies, sink);
            }
        }
        if self.fences.any() {
            self.expire_holds(before, now, replies);
        }
    }

    /// There is no tag for what `source` has. True, as the queue is short of tags.
    #[inline]
    pub(super) fn run_short(
        &mut self,
        now: Nanos,
        replies: &mut Replies,
        source: &mut impl Source,
        sink: impl Sink,
    ) -> bool {
        if self.tags.are_lost() {
            self.hold_all_of(now, replies, source, sink);
        }
        true
    }

    /// Another lane is in need, or tags are lost that this one draws on: if its driver has answered
    /// nothing for long, it is in trouble as well.
    #[cold]
    pub(crate) fn stand_beside(&mut self) {
        (self.watch.beside, self.watch.trouble) = (true, true);
    }

    /// Something waits for tags, in a scheduler or a soft queue.
    #[inline]
    pub(crate) fn keeps_waiting(&mut self, beside: bool, now: Nanos) {
        if beside || self.tags.are_short_of_lost() {
            self.watch.wanted = true;
            self.is_withheld_from(now);
        }
    }

    /// A scheduler has something for a lane in need, and does not give it to this one.
    #[cold]
    pub(crate) fn is_withheld_from(&mut self, now: Nanos) {
        self.stand_beside();
        self.watch.begin(self.timeout_ns, now);
    }

    #[cold]
    fn hold_all_of(
        &mut self,
        now: Nanos,
        replies: &mut Replies,
        source: &mut impl Source,
        sink: impl Sink,
    ) {
        source.give(false, ALL, &mut |claim| self.take_in(claim, now, replies, sink));
        self.watch.trouble |= self.unsent() > 0;
        let before = self.expiry(now);
        if before.is_some_and(|at| self.dispatch.iter().any(|claim| claim.oldest() <= at)) {
            // Requests that come here may be old already.
            self.watch.scan_at = Some(now);
        }
    }

    /// The moment: requests that wait in front of the driver since then or longer have come to
    /// their end.
    fn expiry(&mut self, now: Nanos) -> Option<Nanos> {
        if self.timeout_ns == 0 { None } else { self.watch.waiting.before(self.timeout_ns, now) }
    }

    /// Requests that a fence held back are looked at again if one was lifted since; and what waits
    /// behind a driver that refuses everything comes here, to end in its time.
    #[cold]
    pub(super) fn look_at_trouble(
        &mut self,
        now: Nanos,
        replies: &mut Replies,
        source: &mut impl Source,
        sink: impl Sink,
    ) {
        if self.watch.driven.stands() {
            self.set_clocks(now);
        }
        if self.settling.is_waiting() {
            self.look_at_holds();
        }
        if self.is_in_need(now) {
            self.hold_all_of(now, replies, source, sink);
        }
        let lifted = self.fences.lifted();
        if self.watch.seen_lifted != lifted && !self.watch.held.is_empty() {
            self.watch.seen_lifted = lifted;
            for claim in self.watch.held.drain(..).rev() {
                self.dispatch.push_front(claim);
            }
        }
    }

    /// Starts a request that overlaps no fence; another is held back, or ends if it may not wait.
    #[cold]
    pub(super) fn start_unless_fenced(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        if self.fences.stop(&claim.rq) {
            if claim.rq.flags.has(Flags::NOWAIT) {
                return self.refuse(claim, now, replies, sink);
            }
            if self.watch.held.is_empty() {
                self.watch.seen_lifted = self.fences.lifted();
            }
            self.fences.wait(self.lane);
            if self.fences.stop_in_line(&claim.rq) {
                self.watch.trouble = true;
                return self.watch.held.push(claim);
            }
        }
        self.fences.passed(claim.rq.id, &mut self.settling.taken);
        self.watch.onward |= !self.settling.taken.is_empty();
        self.start(claim, now, sink);
    }

    /// Ends a request that would have to wait for a fence, and may not.
    fn refuse(
        &mut self,
        mut claim: RequestClaim,
        now: Nanos,
        replies: &mut Replies,
        sink: impl Sink,
    ) {
        (claim.issued_at, claim.refused) = (now, true);
        self.watch.refused = true;
        self.finish(claim, Status::Again, now, replies, sink);
    }

    /// Whether requests ended at a fence since last asked: what they had of the scheduler's is to
    /// go back to it.
    #[inline]
    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.watch.refused)
    }

    /// Whether fences of this queue were lifted since last asked: lanes that wait for that are to
    /// be told.
    #[inline]
    pub(crate) fn take_lifted(&mut self) -> bool {
        std::mem::take(&mut self.watch.lifted)
    }
}
