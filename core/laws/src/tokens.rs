//! A scheduler that hands out tokens across hard queues, as kyber does, with nothing else to it:
//! each hard queue has a list of its own, and all draw on the same few tokens. Discards need none.

use std::collections::{BTreeMap, VecDeque};

use weir_bio::{Nanos, Op, Rq, SchedTag, SubmitterId};
use weir_sched::{Absorbed, DepthRule, Ended, Merge, Scheduler, Setup};

/// How long a token rests before it can be used again, ns, where it does.
pub const REST_NS: u64 = 50_000;

/// The scheduler.
#[derive(Clone)]
pub struct Tokens {
    homes: BTreeMap<u16, u16>,
    lists: Vec<VecDeque<Rq>>,
    /// Tokens that can be had, and from when on the others can.
    free: usize,
    resting: VecDeque<Nanos>,
    rests: bool,
    holders: Vec<SchedTag>,
    waiting: VecDeque<u16>,
    kicked: u64,
}

/// One token, free as soon as its holder has ended.
pub fn one(setup: &Setup) -> Box<dyn Scheduler> {
    Box::new(Tokens::new(setup, 1, false))
}

/// Two tokens that rest in between.
pub fn two_that_rest(setup: &Setup) -> Box<dyn Scheduler> {
    Box::new(Tokens::new(setup, 2, true))
}

impl Tokens {
    fn new(setup: &Setup, free: usize, rests: bool) -> Tokens {
        Tokens {
            homes: BTreeMap::new(),
            lists: vec![VecDeque::new(); usize::from(setup.hard_queues)],
            free,
            resting: VecDeque::new(),
            rests,
            holders: Vec::new(),
            waiting: VecDeque::new(),
            kicked: 0,
        }
    }

    fn call_one(&mut self) {
        if let Some(hard_queue) = self.waiting.pop_front() {
            self.kicked |= 1 << hard_queue;
        }
    }
}

impl Scheduler for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn merge(&mut self, _bio: &Rq, _now: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, _now: Nanos, _absorbed: &mut Absorbed) {
        let home = self.homes[&rq.id.submitter().0];
        self.lists[usize::from(home)].push_back(rq);
    }

    fn dispatch(&mut self, hard_queue: u16, _now: Nanos) -> Option<Rq> {
        let list = &mut self.lists[usize::from(hard_queue)];
        let needs = list.front()?.op != Op::Discard;
        if needs && self.free == 0 {
            if !self.waiting.contains(&hard_queue) {
                self.waiting.push_back(hard_queue);
            }
            return None;
        }
        let rq = list.pop_front()?;
        if needs {
            self.free -= 1;
            self.holders.push(rq.tag);
            self.waiting.retain(|waits| *waits != hard_queue);
        }
        Some(rq)
    }

    fn drain(&mut self, out: &mut Vec<Rq>, _now: Nanos) {
        out.extend(self.lists.iter_mut().flat_map(|list| list.drain(..)));
    }

    fn ended(&mut self, end: &Ended, now: Nanos) {
        let holder = self.holders.iter().position(|holder| *holder == end.tag);
        let Some(index) = holder else { return };
        self.holders.swap_remove(index);
        if self.rests {
            self.resting.push_back(now + REST_NS);
        } else {
            self.free += 1;
            self.call_one();
        }
    }

    fn has_work(&self, hard_queue: u16) -> bool {
        !self.lists[usize::from(hard_queue)].is_empty()
    }

    fn staged(&self) -> usize {
        self.lists.iter().map(VecDeque::len).sum()
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.resting.front().copied()
    }

    fn on_timer(&mut self, now: Nanos) {
        while self.resting.front().is_some_and(|at| *at <= now) {
            self.resting.pop_front();
            self.free += 1;
            self.call_one();
        }
    }

    fn take_kicked(&mut self) -> u64 {
        std::mem::take(&mut self.kicked)
    }

    fn context_started(&mut self, context: SubmitterId, hard_queue: u16) {
        self.homes.insert(context.0, hard_queue);
    }

    /// As with limits that depend on the moment, each request is asked about.
    fn depth_rule(&self, _batch: &[Rq], _now: Nanos) -> DepthRule {
        DepthRule::Each
    }
}
