//! `kyber`: a few queues, and tokens that keep the device from taking more than it answers in time.
//! Source: docs/behaviour/kyber.md.
//!
//! Each kind of requests, a domain, has so many tokens for the whole device; latencies that miss
//! their target take tokens away from the domains that hold theirs. There is no order by sector,
//! no priority and no deadline. Level 6.18 judges by percentiles (`latency.rs`), level 4.12 by
//! means (`window.rs`).
//!
//! A hard queue serves its own contexts only, so a token that one frees may be what another waits
//! for: those are named by [`Scheduler::take_kicked`].

mod domain;
mod latency;
mod staged;
mod targets;
mod tokens;
mod window;

#[cfg(test)]
mod tests;

use std::fmt;

use weir_bio::{Limits, Nanos, Op, Rq, SchedTag, SubmitterId};

use crate::contract::{Absorbed, DepthRule, Ended, Merge, Replay, Scheduler, Setup};
use crate::merge::Side;
use crate::tunable::Tunables;
use crate::{Entry, Family, SLES12};

use domain::{Level, WATCHED};
use latency::Percentiles;
use staged::{HardQueue, Staged};
use targets::Targets;
use tokens::Tokens;
use window::Windows;

pub use targets::TUNABLES;

/// Its entry in the list of schedulers.
pub const ENTRY: Entry = Entry {
    name: "kyber",
    family: Family::Multi,
    counterpart: "deadline",
    compat: &["6.18", OLDEST, SLES12],
    levels: &[
        (OLDEST, "means of latency in a window, and one domain for all but reads and sync writes"),
        (SLES12, "as 4.12"),
    ],
    tunables: TUNABLES,
    make: Some(|setup| Box::new(Kyber::new(setup))),
    replay: Some(|setup| Box::new(Kyber::new(setup))),
};

/// The first release that had it.
const OLDEST: &str = "4.12";

/// The part of `nr_requests` that async requests may hold (docs/behaviour/kyber.md, section 7).
const ASYNC_PERCENT: u32 = 75;

/// Tokens by domain, steered by latency.
#[derive(Clone)]
pub struct Kyber {
    level: Level,
    staged: Staged,
    tokens: Tokens,
    monitor: Monitor,
    targets: Targets,
    limits: Limits,
    nomerges: u8,
    async_depth: u16,
}

#[derive(Clone, Debug)]
enum Monitor {
    Percentiles(Box<Percentiles>),
    Windows(Windows),
}

impl Kyber {
    /// Empty, for the device described by `setup`.
    #[must_use]
    pub fn new(setup: &Setup) -> Kyber {
        let level = match setup.compat {
            "" | "6.18" => Level::K6,
            OLDEST | SLES12 => Level::K4,
            other => unreachable!("kyber has no level {other:?}"),
        };
        Kyber {
            level,
            staged: Staged::new(setup.nr_requests, setup.hard_queues),
            tokens: Tokens::new(level.domains(), setup.hard_queues),
            monitor: match level {
                Level::K6 => Monitor::Percentiles(Box::new(Percentiles::new())),
                Level::K4 => Monitor::Windows(Windows::new()),
            },
            targets: Targets::new(),
            limits: setup.limits.clone(),
            nomerges: setup.nomerges,
            async_depth: async_depth(setup.nr_requests),
        }
    }

    /// Where a context keeps requests of this domain.
    #[inline]
    fn list_of(&self, domain: usize) -> usize {
        match self.level {
            Level::K6 => domain,
            Level::K4 => 0,
        }
    }

    /// Joins a bio to one of the newest requests like it.
    #[inline(always)]
    fn offer(&mut self, bio: &Rq) -> Merge {
        // There is no one-hit cache, so `nomerges` of 1 leaves everything as it is.
        if self.nomerges == 2 || !bio.is_mergeable() {
            return Merge::No;
        }
        let list = self.list_of(self.level.domain_of(bio));
        self.staged.merge(bio, list, &self.limits)
    }

    #[inline(always)]
    fn stage(&mut self, rq: &Rq) {
        let domain = self.level.domain_of(rq);
        self.staged.insert(rq, domain, self.list_of(domain));
    }

    /// The next request of a hard queue.
    fn next(&mut self, hard_queue: u16) -> Option<SchedTag> {
        let queue = usize::from(hard_queue);
        let domains = self.level.domains();
        let mut flushed = false;
        let mut domain = self.staged.queues[queue].domain;
        if self.staged.queues[queue].batching < domains[domain].batch
            && let Some(tag) = self.serve(hard_queue, domain, &mut flushed)
        {
            return Some(tag);
        }
        self.staged.queues[queue].batching = 0;
        for _ in 0..domains.len() {
            domain += 1;
            if domain == domains.len() {
                domain = 0;
            }
            self.staged.queues[queue].domain = domain;
            if let Some(tag) = self.serve(hard_queue, domain, &mut flushed) {
                return Some(tag);
            }
        }
        None
    }

    /// The next request of a domain, if there is one and a token for it.
    #[inline]
    fn serve(&mut self, hard_queue: u16, domain: usize, flushed: &mut bool) -> Option<SchedTag> {
        let queue = usize::from(hard_queue);
        match self.level {
            // Without a token nothing is flushed: it can still be merged with.
            Level::K6 => {
                let waits = self.staged.has_flushed(queue, domain);
                if !waits && !self.staged.has_unflushed(queue, domain) {
                    return None;
                }
                if !self.tokens.take(domain, hard_queue) {
                    return None;
                }
                if !waits {
                    self.staged.flush(queue, domain);
                }
            }
            Level::K4 => {
                if !self.staged.has_flushed(queue, domain) && !std::mem::replace(flushed, true) {
                    self.staged.flush_mixed(queue);
                }
                if !self.staged.has_flushed(queue, domain) || !self.tokens.take(domain, hard_queue)
                {
                    return None;
                }
            }
        }
        let tag = self.staged.pop(queue, domain).expect("a token is taken for a request");
        self.staged.queues[queue].batching += 1;
        Some(tag)
    }

    /// The next requests of a hard queue, as far as nothing has to be decided about them: they are
    /// of the domain in service, wait for nothing but their turn, and there are tokens for them.
    fn take_run(&mut self, hard_queue: u16, max: usize, out: &mut Vec<Rq>) -> usize {
        let queue = usize::from(hard_queue);
        let HardQueue { domain, batching, .. } = self.staged.queues[queue];
        let turns = self.level.domains()[domain].batch.saturating_sub(batching);
        let max = max.min(turns as usize).min(self.tokens.free(domain));
        let popped = self.staged.pop_each(queue, domain, max, |rq| out.push(*rq));
        if popped > 0 {
            self.tokens.take_several(domain, hard_queue, popped as u32);
            self.staged.queues[queue].batching += popped as u32;
        }
        popped
    }

    /// A request is gone, and its token with it.
    #[inline(always)]
    fn account_end(&mut self, end: &Ended, now: Nanos) {
        let node = &mut self.staged.nodes[end.tag.index()];
        let (domain, held) = (usize::from(node.domain), std::mem::take(&mut node.holds));
        self.sample(domain, end, now);
        if held {
            self.tokens.give(domain);
        }
    }

    #[inline(always)]
    fn sample(&mut self, domain: usize, ended: &Ended, now: Nanos) {
        if domain >= WATCHED || ended.handed_back {
            return;
        }
        let issued = ended.done_at.since(ended.issued_at);
        match &mut self.monitor {
            Monitor::Percentiles(percentiles) => {
                let since = [ended.done_at.since(ended.accepted_at), issued];
                percentiles.sample(domain, since, &self.targets, now);
            }
            Monitor::Windows(windows) => windows.sample(domain, issued, &self.targets, now),
        }
    }
}

fn async_depth(nr_requests: u16) -> u16 {
    // At least one: async requests have to go on, too.
    (u32::from(nr_requests) * ASYNC_PERCENT / 100).max(1) as u16
}

impl Scheduler for Kyber {
    fn name(&self) -> &'static str {
        "kyber"
    }

    fn merge(&mut self, bio: &Rq, _now: Nanos) -> Merge {
        self.offer(bio)
    }

    fn insert(&mut self, rq: Rq, _now: Nanos, _absorbed: &mut Absorbed) {
        self.stage(&rq);
    }

    fn stage_batch(
        &mut self,
        batch: &[Rq],
        _now: Nanos,
        _absorbed: &mut Absorbed,
    ) -> (usize, Merge) {
        for (before, rq) in batch.iter().enumerate() {
            let merge = self.offer(rq);
            if merge != Merge::No {
                return (before + 1, merge);
            }
            self.stage(rq);
        }
        (batch.len(), Merge::No)
    }

    fn dispatch(&mut self, hard_queue: u16, _now: Nanos) -> Option<Rq> {
        let tag = self.next(hard_queue)?;
        Some(self.staged.nodes[usize::from(tag.0)].rq)
    }

    // To ask a queue that holds nothing would end its batch: as in Linux it is not asked.
    fn dispatch_batch(&mut self, hard_queue: u16, max: usize, out: &mut Vec<Rq>, _now: Nanos) {
        let mut left = max;
        loop {
            left -= self.take_run(hard_queue, left, out);
            if left == 0 || self.staged.queues[usize::from(hard_queue)].staged == 0 {
                return;
            }
            let Some(tag) = self.next(hard_queue) else { return };
            out.push(self.staged.nodes[usize::from(tag.0)].rq);
            left -= 1;
        }
    }

    fn drain(&mut self, out: &mut Vec<Rq>, now: Nanos) {
        out.extend(self.staged.tags().into_iter().map(|tag| self.take_out(tag, now)));
    }

    fn wants_times(&self) -> bool {
        true
    }

    fn ended(&mut self, end: &Ended, now: Nanos) {
        self.account_end(end, now);
    }

    fn ended_batch(&mut self, ends: &[Ended], now: Nanos) {
        ends.iter().for_each(|end| self.account_end(end, now));
    }

    fn has_work(&self, hard_queue: u16) -> bool {
        self.staged.queues[usize::from(hard_queue)].staged > 0
    }

    fn staged(&self) -> usize {
        self.staged.count
    }

    fn wake_at(&self) -> Option<Nanos> {
        match &self.monitor {
            Monitor::Percentiles(percentiles) => percentiles.timer(),
            Monitor::Windows(windows) => windows.timer(),
        }
    }

    fn on_timer(&mut self, now: Nanos) {
        match &mut self.monitor {
            Monitor::Percentiles(percentiles) => percentiles.evaluate(&mut self.tokens, now),
            Monitor::Windows(windows) => windows.evaluate(&self.targets, &mut self.tokens, now),
        }
    }

    fn take_kicked(&mut self) -> u64 {
        self.tokens.take_kicked()
    }

    fn depth_limit(&self, _op: Op, sync: bool, _context: SubmitterId) -> Option<u16> {
        (!sync).then_some(self.async_depth)
    }

    fn depth_rule(&self, _batch: &[Rq], _now: Nanos) -> DepthRule {
        DepthRule::Async(self.async_depth)
    }

    fn depth_changed(&mut self, nr_requests: u16) {
        assert_eq!(self.staged(), 0, "the depth changes while nothing is staged");
        let flying = self.staged.nodes.iter().filter(|node| node.holds).count();
        assert_eq!(flying, 0, "the depth changes while nothing is in flight");
        self.staged.resize(nr_requests);
        self.async_depth = async_depth(nr_requests);
    }

    fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.limits = limits.clone();
        self.nomerges = nomerges;
    }

    fn context_started(&mut self, context: SubmitterId, hard_queue: u16) {
        self.staged.place(context, hard_queue);
    }

    fn tunables(&mut self) -> &mut dyn Tunables {
        &mut self.targets
    }
}

impl Replay for Kyber {
    fn boxed_clone(&self) -> Box<dyn Replay> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, _now: Nanos) -> Rq {
        let node = &self.staged.nodes[usize::from(tag.0)];
        let domain = usize::from(node.domain);
        let queue = self.staged.queue_of(node.rq.id.submitter());
        if !self.staged.is_flushed(queue, tag) {
            // A choice of this domain would have flushed it, now or earlier.
            match self.level {
                Level::K6 => self.staged.flush(queue, domain),
                Level::K4 => self.staged.flush_mixed(queue),
            }
        }
        let state = &mut self.staged.queues[queue];
        if state.domain == domain && state.batching < self.level.domains()[domain].batch {
            state.batching += 1;
        } else {
            (state.domain, state.batching) = (domain, 1);
        }
        self.tokens.take_anyway(domain, queue as u16);
        let node = self.staged.remove(queue, tag);
        node.holds = true;
        node.rq
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, _side: Side) {
        self.staged.join(tag, bio);
    }
}

impl fmt::Debug for Kyber {
    /// The state that Linux shows in debugfs: tokens by domain, and each hard queue's turn.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = self.level.domains();
        write!(f, "kyber")?;
        for (index, domain) in domains.iter().enumerate() {
            let (in_use, depth) = (self.tokens.in_use(index), self.tokens.depth(index));
            let waits = self.tokens.waits(index);
            write!(f, " {} {in_use}/{depth} waiting {waits:#x}", domain.name)?;
        }
        for (index, queue) in self.staged.queues.iter().enumerate() {
            let (name, batching) = (domains[queue.domain].name, queue.batching);
            write!(f, "; hctx{index} {name} batching {batching} staged {}", queue.staged)?;
        }
        Ok(())
    }
}
