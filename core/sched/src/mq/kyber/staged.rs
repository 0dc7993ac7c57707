//! The staged requests: a list for each context and domain, where requests can still be merged
//! with, and behind them a list for each hard queue and domain, where they wait for nothing but
//! their turn.
//!
//! A request is a node, found by its scheduler tag; lists run through the nodes, so staging
//! allocates nothing. Rules: docs/behaviour/kyber.md, sections 2, 3 and 4.

use weir_bio::{Flags, Limits, Rq, SchedTag, SubmitterId};

use crate::contract::Merge;
use crate::merge::{Fit, Side, fit};

use super::domain::DOMAINS_MAX;

/// How many of the newest requests of a list a merge looks at: as many as Linux does.
const LOOK_BACK: usize = 8;

/// The end of a list.
const NONE: u16 = u16::MAX;

/// A place for each scheduler tag.
#[derive(Clone, Debug)]
// Two of them never share a cache line, and none lies in two.
#[repr(align(64))]
pub(super) struct Node {
    pub(super) rq: Rq,
    next: u16,
    pub(super) domain: u8,
    /// Whether it holds a token of its domain.
    pub(super) holds: bool,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u16,
    last: u16,
}

/// One submitter's requests.
#[derive(Clone, Debug)]
struct Context {
    hard_queue: u16,
    lists: [List; DOMAINS_MAX],
    recent: [Recent; DOMAINS_MAX],
}

/// The newest requests of a list, so that a merge need not walk it. Slots are used in turn.
#[derive(Clone, Debug)]
struct Recent {
    /// The lower halves of sectors: a vector unit compares four at once, and who is met by chance
    /// is seen not to touch when it is looked at.
    starts: [u32; LOOK_BACK],
    ends: [u32; LOOK_BACK],
    tags: [u16; LOOK_BACK],
    next: u8,
    /// A bit for each slot in use: always the last ones before `next`.
    live: u8,
}

/// The contexts of a hard queue that have something in their list.
#[derive(Clone, Debug, Default)]
struct Marks {
    words: Vec<u64>,
    /// A bit for each word that is not zero.
    summary: u64,
    /// The context behind the one that was first when all were taken.
    next: usize,
}

/// One hard queue.
#[derive(Clone, Debug)]
pub(super) struct HardQueue {
    /// The domain being served, and how many in a row.
    pub(super) domain: usize,
    pub(super) batching: u32,
    /// Requests in its lists and its contexts' lists.
    pub(super) staged: u32,
    flushed: [List; DOMAINS_MAX],
    marks: [Marks; DOMAINS_MAX],
}

/// Everything staged.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) nodes: Vec<Node>,
    contexts: Vec<Context>,
    pub(super) queues: Vec<HardQueue>,
    pub(super) count: usize,
}

impl List {
    const EMPTY: List = List { first: NONE, last: NONE };

    #[inline]
    fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// Appends another, whose nodes are linked already.
    #[inline]
    fn append(&mut self, other: List, nodes: &mut [Node]) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            nodes[usize::from(self.last)].next = other.first;
            self.last = other.last;
        }
    }

    #[inline]
    fn push(&mut self, tag: u16, nodes: &mut [Node]) {
        nodes[usize::from(tag)].next = NONE;
        self.append(List { first: tag, last: tag }, nodes);
    }

    #[inline]
    fn pop(&mut self, nodes: &[Node]) -> Option<u16> {
        let first = self.first;
        if first == NONE {
            return None;
        }
        self.first = nodes[usize::from(first)].next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(first)
    }

    fn holds(mut self, tag: u16, nodes: &[Node]) -> bool {
        while let Some(first) = self.pop(nodes) {
            if first == tag {
                return true;
            }
        }
        false
    }

    /// Takes one out of the middle.
    fn remove(&mut self, tag: u16, nodes: &mut [Node]) {
        let mut rest = std::mem::replace(self, List::EMPTY);
        while let Some(first) = rest.pop(nodes) {
            if first != tag {
                self.push(first, nodes);
            }
        }
    }
}

impl Recent {
    const EMPTY: Recent = Recent { starts: [0; 8], ends: [0; 8], tags: [0; 8], next: 0, live: 0 };

    #[inline]
    fn set(&mut self, slot: usize, tag: u16, start: u64, end: u64) {
        (self.starts[slot], self.ends[slot], self.tags[slot]) = (start as u32, end as u32, tag);
        self.live |= 1 << slot;
    }

    #[inline]
    fn push(&mut self, tag: u16, start: u64, end: u64) {
        self.set(usize::from(self.next) % LOOK_BACK, tag, start, end);
        self.next = self.next.wrapping_add(1);
    }

    /// Whether a slot, in use or not, seems to hold what ends where `bio` starts or starts where it
    /// ends.
    #[inline]
    fn may_touch(&self, bio: &Rq) -> bool {
        let (start, end) = (bio.sector as u32, bio.end() as u32);
        let mut touches = 0;
        // Numbers as wide as what is compared: so they stay in the vector unit to the end.
        for slot in 0..LOOK_BACK {
            touches |= u32::from(self.ends[slot] == start) | u32::from(self.starts[slot] == end);
        }
        touches != 0
    }

    /// The slots in use, newest first, that hold such a request.
    fn touching(&self, bio: &Rq) -> impl Iterator<Item = usize> {
        let (start, end) = (bio.sector as u32, bio.end() as u32);
        let newest_first = (1..=LOOK_BACK as u8).map(|back| self.next.wrapping_sub(back));
        newest_first.map(|slot| usize::from(slot) % LOOK_BACK).filter(move |slot| {
            self.live & 1 << slot != 0 && (self.ends[*slot] == start || self.starts[*slot] == end)
        })
    }

    fn slot_of(&self, tag: u16) -> Option<usize> {
        (0..LOOK_BACK).find(|slot| self.live & 1 << slot != 0 && self.tags[*slot] == tag)
    }
}

impl Marks {
    #[inline]
    fn set(&mut self, context: usize) {
        let word = context / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (context % 64);
        self.summary |= 1 << word;
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.summary == 0
    }

    /// Takes the first context out, if there is one, that is not below `least`, or else the lowest.
    #[inline]
    fn take_from(&mut self, least: usize) -> Option<usize> {
        let context = self.first_from(least).or_else(|| self.first_from(0))?;
        let index = context / 64;
        self.words[index] &= !(1 << (context % 64));
        if self.words[index] == 0 {
            self.summary &= !(1 << index);
        }
        Some(context)
    }

    /// Takes all contexts out, in turn from the one behind that which was the first the last time.
    #[inline]
    fn take_all(&mut self, mut each: impl FnMut(usize)) {
        let Some(first) = self.take_from(self.next) else { return };
        self.next = first + 1;
        each(first);
        while let Some(context) = self.take_from(first) {
            each(context);
        }
    }

    /// The lowest context that is not below `least`.
    #[inline]
    fn first_from(&self, least: usize) -> Option<usize> {
        let index = least / 64;
        let word = self.words.get(index)? & (u64::MAX << (least % 64));
        if word != 0 {
            return Some(index * 64 + word.trailing_zeros() as usize);
        }
        let behind = self.summary & u64::MAX.checked_shl(index as u32 + 1).unwrap_or(0);
        if behind == 0 {
            return None;
        }
        let index = behind.trailing_zeros() as usize;
        Some(index * 64 + self.words[index].trailing_zeros() as usize)
    }
}

impl Staged {
    pub(super) fn new(nr_requests: u16, hard_queues: u16) -> Staged {
        let queue = HardQueue {
            domain: 0,
            batching: 0,
            staged: 0,
            flushed: [List::EMPTY; DOMAINS_MAX],
            marks: Default::default(),
        };
        let mut staged = Staged {
            nodes: Vec::new(),
            contexts: Vec::new(),
            queues: vec![queue; usize::from(hard_queues)],
            count: 0,
        };
        staged.resize(nr_requests);
        staged
    }

    /// Room for so many scheduler tags; none is out.
    pub(super) fn resize(&mut self, nr_requests: u16) {
        let rq = Rq {
            sector: 0,
            sectors: 0,
            id: weir_bio::RqId(0),
            flags: Flags::NONE,
            group: weir_bio::GroupId(0),
            ioprio: weir_bio::IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: weir_bio::Op::Read,
            segments: 0,
        };
        let free = Node { rq, next: NONE, domain: 0, holds: false };
        self.nodes = vec![free; usize::from(nr_requests)];
    }

    #[inline]
    fn context(&mut self, context: SubmitterId) -> &mut Context {
        let index = usize::from(context.0);
        if index >= self.contexts.len() {
            self.add_contexts(index + 1);
        }
        &mut self.contexts[index]
    }

    #[cold]
    fn add_contexts(&mut self, count: usize) {
        let context = Context {
            hard_queue: 0,
            lists: [List::EMPTY; DOMAINS_MAX],
            recent: [Recent::EMPTY; DOMAINS_MAX],
        };
        self.contexts.resize(count, context);
    }

    /// Moves a context, which has nothing staged, to a hard queue.
    pub(super) fn place(&mut self, context: SubmitterId, hard_queue: u16) {
        assert!(
            usize::from(hard_queue) < self.queues.len(),
            "context {} on hard queue {hard_queue} of {}",
            context.0,
            self.queues.len()
        );
        let context = self.context(context);
        let empty = context.lists.iter().all(|list| list.is_empty());
        assert!(empty, "a context changes its hard queue while it has requests staged");
        context.hard_queue = hard_queue;
    }

    /// Puts a request into `list` of its context.
    #[inline(always)]
    pub(super) fn insert(&mut self, rq: &Rq, domain: usize, list: usize) {
        let context = rq.id.submitter();
        let tag = rq.tag.0;
        let node = &mut self.nodes[usize::from(tag)];
        debug_assert!(!node.holds, "tag {tag} is inserted while it holds a token");
        *node = Node { rq: *rq, next: NONE, domain: domain as u8, holds: false };
        // Sees to it that it exists; looked up again, as the nodes are needed with it.
        let hard_queue = usize::from(self.context(context).hard_queue);
        let place = &mut self.contexts[usize::from(context.0)];
        let was_empty = place.lists[list].is_empty();
        place.lists[list].push(tag, &mut self.nodes);
        place.recent[list].push(tag, rq.sector, rq.end());
        let queue = &mut self.queues[hard_queue];
        if was_empty {
            queue.marks[list].set(usize::from(context.0));
        }
        queue.staged += 1;
        self.count += 1;
    }

    /// Joins a bio to one of the newest requests in `list` of its context, newest first. The first
    /// that would do but for its size ends the search, and is not tried again.
    #[inline(always)]
    pub(super) fn merge(&mut self, bio: &Rq, list: usize, limits: &Limits) -> Merge {
        let index = usize::from(bio.id.submitter().0);
        let Some(context) = self.contexts.get(index) else { return Merge::No };
        if !context.recent[list].may_touch(bio) {
            return Merge::No;
        }
        self.merge_one(index, list, bio, limits)
    }

    #[inline(never)]
    fn merge_one(&mut self, context: usize, list: usize, bio: &Rq, limits: &Limits) -> Merge {
        let recent = self.contexts[context].recent[list].clone();
        for slot in recent.touching(bio) {
            let tag = recent.tags[slot];
            let rq = &mut self.nodes[usize::from(tag)].rq;
            match fit(rq, bio, limits) {
                Fit::Apart => {}
                Fit::TooLarge => {
                    rq.flags |= Flags::NOMERGE;
                    return Merge::No;
                }
                Fit::Joins(side) => {
                    self.join(SchedTag(tag), bio);
                    return match side {
                        Side::Back => Merge::Back(SchedTag(tag)),
                        Side::Front => Merge::Front(SchedTag(tag)),
                    };
                }
            }
        }
        Merge::No
    }

    /// A staged request takes a bio in.
    pub(super) fn join(&mut self, tag: SchedTag, bio: &Rq) {
        let rq = &mut self.nodes[usize::from(tag.0)].rq;
        rq.take_in(bio);
        let (start, end) = (rq.sector, rq.end());
        let context = &mut self.contexts[usize::from(rq.id.submitter().0)];
        for recent in &mut context.recent {
            if let Some(slot) = recent.slot_of(tag.0) {
                recent.set(slot, tag.0, start, end);
            }
        }
    }

    /// Whether anything waits for its turn in this domain of a hard queue.
    #[inline]
    pub(super) fn has_flushed(&self, queue: usize, domain: usize) -> bool {
        !self.queues[queue].flushed[domain].is_empty()
    }

    /// Whether a context of this hard queue has something in `list`.
    #[inline]
    pub(super) fn has_unflushed(&self, queue: usize, list: usize) -> bool {
        !self.queues[queue].marks[list].is_empty()
    }

    /// The contexts' lists of one domain move behind the hard queue's own, context by context, and
    /// another one is the first each time: the last one's requests may be in the device when the
    /// next time comes, and it has fewer then.
    #[inline]
    pub(super) fn flush(&mut self, queue: usize, domain: usize) {
        let Staged { queues, contexts, nodes, .. } = self;
        let HardQueue { flushed, marks, .. } = &mut queues[queue];
        marks[domain].take_all(|context| {
            let context = &mut contexts[context];
            context.recent[domain].live = 0;
            let list = std::mem::replace(&mut context.lists[domain], List::EMPTY);
            flushed[domain].append(list, nodes);
        });
    }

    /// The same for contexts that keep all domains in their first list.
    pub(super) fn flush_mixed(&mut self, queue: usize) {
        let Staged { queues, contexts, nodes, .. } = self;
        let HardQueue { flushed, marks, .. } = &mut queues[queue];
        marks[0].take_all(|context| {
            let context = &mut contexts[context];
            context.recent[0].live = 0;
            let mut list = std::mem::replace(&mut context.lists[0], List::EMPTY);
            while let Some(tag) = list.pop(nodes) {
                let domain = usize::from(nodes[usize::from(tag)].domain);
                flushed[domain].push(tag, nodes);
            }
        });
    }

    /// Takes out the request whose turn it is in a domain; it holds a token from now on.
    #[inline]
    pub(super) fn pop(&mut self, queue: usize, domain: usize) -> Option<SchedTag> {
        let queue = &mut self.queues[queue];
        let tag = queue.flushed[domain].pop(&self.nodes)?;
        queue.staged -= 1;
        self.count -= 1;
        self.nodes[usize::from(tag)].holds = true;
        Some(SchedTag(tag))
    }

    /// [`pop`](Staged::pop) up to `max` times, calling `each` with what comes; says how many came.
    #[inline]
    pub(super) fn pop_each(
        &mut self,
        queue: usize,
        domain: usize,
        max: usize,
        mut each: impl FnMut(&Rq),
    ) -> usize {
        let Staged { nodes, queues, count, .. } = self;
        let queue = &mut queues[queue];
        let list = &mut queue.flushed[domain];
        let (mut first, mut popped) = (list.first, 0);
        while popped < max && first != NONE {
            let node = &mut nodes[usize::from(first)];
            node.holds = true;
            each(&node.rq);
            first = node.next;
            popped += 1;
        }
        list.first = first;
        if first == NONE {
            list.last = NONE;
        }
        queue.staged -= popped as u32;
        *count -= popped;
        popped
    }

    /// The tags of all that is staged, in order.
    pub(super) fn tags(&self) -> Vec<SchedTag> {
        let unflushed = self.contexts.iter().flat_map(|context| context.lists);
        let flushed = self.queues.iter().flat_map(|queue| queue.flushed);
        let mut tags = Vec::new();
        for mut list in unflushed.chain(flushed) {
            tags.extend(std::iter::from_fn(|| list.pop(&self.nodes)).map(SchedTag));
        }
        tags.sort_unstable();
        tags
    }

    /// Whether a request waits for nothing but its turn. Looks at all that do.
    pub(super) fn is_flushed(&self, queue: usize, tag: SchedTag) -> bool {
        let domain = usize::from(self.nodes[usize::from(tag.0)].domain);
        self.queues[queue].flushed[domain].holds(tag.0, &self.nodes)
    }

    /// Takes one out of turn. Its list has been flushed.
    pub(super) fn remove(&mut self, queue: usize, tag: SchedTag) -> &mut Node {
        assert!(self.is_flushed(queue, tag), "tag {} is not staged", tag.0);
        let domain = usize::from(self.nodes[usize::from(tag.0)].domain);
        let state = &mut self.queues[queue];
        state.flushed[domain].remove(tag.0, &mut self.nodes);
        state.staged -= 1;
        self.count -= 1;
        &mut self.nodes[usize::from(tag.0)]
    }

    /// The hard queue of a context.
    pub(super) fn queue_of(&self, context: SubmitterId) -> usize {
        self.contexts.get(usize::from(context.0)).map_or(0, |c| usize::from(c.hard_queue))
    }
}
