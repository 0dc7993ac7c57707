//! A scheduler that hands out tokens across hard queues, as kyber does, with nothing else to it:
//! each hard queue has a list of its own, and all draw on the same few tokens. Discards need none.

use std::collections::{BTreeMap, VecDeque};

use weir_bio::{Nanos, Op, Rq, SchedTag, SubmitterId};
use weir_sched::merge::Side;
use weir_sched::{Absorbed, End, Merge, NoTunables, Scheduler, Setup, Tunables, Wants};

/// How long a token rests before it can be used again, ns, where it does.
pub const REST_NS: u64 = 50_000;

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
    tunables: NoTunables,
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
            tunables: NoTunables,
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

    fn wants(&self) -> Wants {
        Wants::Counts
    }

    fn merge(&mut self, _bio: &Rq, _now: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, at: End, _now: Nanos, _absorbed: &mut Absorbed) {
        let home = self.homes[&rq.id.submitter().0];
        let list = &mut self.lists[usize::from(home)];
        match at {
            End::Tail => list.push_back(rq),
            End::Head => list.push_front(rq),
        }
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

    fn finish(&mut self, tag: SchedTag, now: Nanos) {
        let Some(index) = self.holders.iter().position(|holder| *holder == tag) else { return };
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

    fn tunables(&self) -> &dyn Tunables {
        &self.tunables
    }

    fn tunables_mut(&mut self) -> &mut dyn Tunables {
        &mut self.tunables
    }

    fn boxed_clone(&self) -> Box<dyn Scheduler> {
        Box::new(self.clone())
    }

    fn take_out(&mut self, tag: SchedTag, _now: Nanos) -> Rq {
        let lists = self.lists.iter_mut();
        let mut found = lists.filter_map(|list| {
            let place = list.iter().position(|rq| rq.tag == tag)?;
            list.remove(place)
        });
        found.next().expect("a request that is staged")
    }

    fn force_merge(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        unreachable!("no queue merges {bio:?} with {tag:?} by force, at {side:?}")
    }
}
