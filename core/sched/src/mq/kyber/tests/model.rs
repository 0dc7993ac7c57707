//! kyber as docs/behaviour/kyber.md words it, with nothing done for speed: the model that the
//! scheduler is compared with. Depths are not its business: they are told to it.

use weir_bio::{Flags, Limits, Rq, SchedTag};

use crate::contract::Merge;
use crate::merge::{Fit, Side, fit};

use super::Level;

#[derive(Clone, Default)]
struct Queue {
    flushed: [Vec<Rq>; 4],
    /// By list, the context behind the one that was flushed first the last time.
    next: [usize; 4],
    domain: usize,
    batching: u32,
}

pub struct Model {
    level: Level,
    limits: Limits,
    /// By context: its hard queue, and a list for each domain.
    contexts: Vec<(usize, [Vec<Rq>; 4])>,
    queues: Vec<Queue>,
    pub depth: [u32; 4],
    pub in_use: [u32; 4],
    waiting: [Vec<usize>; 4],
    pub kicked: u64,
}

impl Model {
    pub fn new(level: Level, limits: &Limits, homes: &[u16], hard_queues: u16) -> Model {
        Model {
            level,
            limits: limits.clone(),
            contexts: homes.iter().map(|home| (usize::from(*home), Default::default())).collect(),
            queues: vec![Queue::default(); usize::from(hard_queues)],
            depth: [0; 4],
            in_use: [0; 4],
            waiting: Default::default(),
            kicked: 0,
        }
    }

    fn list(&mut self, rq: &Rq) -> &mut Vec<Rq> {
        let list = if self.level == Level::K6 { self.level.domain_of(rq) } else { 0 };
        &mut self.contexts[usize::from(rq.id.submitter().0)].1[list]
    }

    pub fn merge(&mut self, bio: &Rq) -> Merge {
        let limits = self.limits.clone();
        for rq in self.list(bio).iter_mut().rev().take(8) {
            match fit(rq, bio, &limits) {
                Fit::Apart => {}
                Fit::TooLarge => {
                    rq.flags |= Flags::NOMERGE;
                    return Merge::No;
                }
                Fit::Joins(side) => {
                    rq.take_in(bio);
                    if side == Side::Back {
                        return Merge::Back(rq.tag);
                    }
                    return Merge::Front(rq.tag);
                }
            }
        }
        Merge::No
    }

    pub fn insert(&mut self, rq: Rq) {
        self.list(&rq).push(rq);
    }

    pub fn staged(&self, queue: usize) -> usize {
        let flushed: usize = self.queues[queue].flushed.iter().map(Vec::len).sum();
        let own = self.contexts.iter().filter(|(home, _)| *home == queue);
        flushed + own.flat_map(|(_, lists)| lists).map(Vec::len).sum::<usize>()
    }

    fn flush(&mut self, queue: usize, list: usize) {
        let count = self.contexts.len();
        let from = self.queues[queue].next[list];
        let mut first = None;
        for context in (0..count).map(|step| (from + step) % count) {
            let (home, lists) = &mut self.contexts[context];
            if *home != queue || lists[list].is_empty() {
                continue;
            }
            for rq in lists[list].drain(..) {
                let domain = self.level.domain_of(&rq);
                self.queues[queue].flushed[domain].push(rq);
            }
            first.get_or_insert(context);
        }
        if let Some(first) = first {
            self.queues[queue].next[list] = first + 1;
        }
    }

    fn token(&mut self, domain: usize, queue: usize) -> bool {
        let free = self.in_use[domain] < self.depth[domain];
        let waiting = &mut self.waiting[domain];
        if free {
            self.in_use[domain] += 1;
            waiting.retain(|waits| *waits != queue);
        } else if !waiting.contains(&queue) {
            waiting.push(queue);
        }
        free
    }

    fn serve(&mut self, queue: usize, domain: usize, flushed: &mut bool) -> Option<Rq> {
        let empty = |model: &Model| model.queues[queue].flushed[domain].is_empty();
        if self.level == Level::K4 {
            if empty(self) && !*flushed {
                *flushed = true;
                self.flush(queue, 0);
            }
            if empty(self) || !self.token(domain, queue) {
                return None;
            }
        } else {
            let own = self.contexts.iter().filter(|(home, _)| *home == queue);
            let unflushed = own.map(|(_, lists)| lists[domain].len()).sum::<usize>();
            if empty(self) && unflushed == 0 || !self.token(domain, queue) {
                return None;
            }
            if empty(self) {
                self.flush(queue, domain);
            }
        }
        let queue = &mut self.queues[queue];
        queue.batching += 1;
        Some(queue.flushed[domain].remove(0))
    }

    pub fn dispatch(&mut self, queue: usize) -> Option<Rq> {
        let domains = self.level.domains();
        let mut flushed = false;
        let current = self.queues[queue].domain;
        if self.queues[queue].batching < domains[current].batch
            && let Some(rq) = self.serve(queue, current, &mut flushed)
        {
            return Some(rq);
        }
        self.queues[queue].batching = 0;
        for _ in 0..domains.len() {
            self.queues[queue].domain = (self.queues[queue].domain + 1) % domains.len();
            let domain = self.queues[queue].domain;
            if let Some(rq) = self.serve(queue, domain, &mut flushed) {
                return Some(rq);
            }
        }
        None
    }

    pub fn turn(&self, queue: usize) -> (usize, u32) {
        (self.queues[queue].domain, self.queues[queue].batching)
    }

    pub fn waits(&self, domain: usize) -> u64 {
        self.waiting[domain].iter().map(|queue| 1 << queue).sum()
    }

    pub fn release(&mut self, rq: &Rq) {
        let domain = self.level.domain_of(rq);
        self.in_use[domain] -= 1;
        self.call(domain, 1);
    }

    pub fn resize(&mut self, domain: usize, depth: u32) {
        let before = self.depth[domain].max(self.in_use[domain]);
        self.depth[domain] = depth;
        self.call(domain, depth.saturating_sub(before) as usize);
    }

    fn call(&mut self, domain: usize, count: usize) {
        let waiting = &mut self.waiting[domain];
        for queue in waiting.drain(..count.min(waiting.len())) {
            self.kicked |= 1 << queue;
        }
    }

    /// The tags staged, in no order.
    pub fn tags(&self) -> Vec<SchedTag> {
        let flushed = self.queues.iter().flat_map(|queue| queue.flushed.iter().flatten());
        let lists = self.contexts.iter().flat_map(|(_, lists)| lists.iter().flatten());
        flushed.chain(lists).map(|rq| rq.tag).collect()
    }
}
