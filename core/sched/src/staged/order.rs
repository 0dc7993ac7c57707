//! Staged requests in the order of their first sectors; equal sectors in the order they came.
//!
//! A linked list holds the order itself, so a neighbour is one link away. As long as walks along it
//! are short, that is all: `bfq` has an order for each queue, and of a thousand with two requests
//! each none should have memory of its own. With the first walk of more than 4 steps there is an
//! index: 256 buckets of equal width over the range that is staged, without its widest gaps, with a
//! bitmap of those in use.
//! That costs a fifth of a balanced tree at 128 requests (measured, insert and first at or after
//! and remove), as long as no bucket is crowded. When a walk inside one passes 16 steps, the
//! buckets are laid over the range once more; when that was done a moment ago (some sectors that
//! are crowded whatever the width), a gap buffer takes over until the order is empty, or buckets
//! would not be crowded any more.

use weir_bio::{Rq, SchedTag};

use super::buckets::{Buckets, Ends};
use super::gap::GapBuffer;
use super::node::Node;

/// Steps of a walk along the list after which there is an index, for good.
const LIST_WALK_MAX: u32 = 4;

/// Steps of a walk inside a bucket after which it is crowded.
const WALK_MAX: u32 = 16;

/// So many are passed over that start within a bio, before who starts at its end is searched for.
const OVERLAPS_MAX: usize = 4;

/// The requests of one band by sector. All calls bring the nodes the links live in.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    first: SchedTag,
    last: SchedTag,
    seq: u32,
    /// How many requests it can hold; the least number of inserts between two layouts, and between
    /// two attempts to leave the gap buffer.
    room: u16,
    /// None as long as the list is enough.
    index: Option<Box<Index>>,
}

/// Finds places in the list.
#[derive(Clone, Debug)]
struct Index {
    uses_gap: bool,
    /// Inserts since the buckets were laid out, or found crowded; at most `room`.
    since_layout: u16,
    /// That of the order.
    room: u16,
    buckets: Buckets,
    gap: GapBuffer,
}

/// Where a request belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// Its neighbours.
    before: SchedTag,
    after: SchedTag,
    /// Its bucket, or its place in the gap buffer.
    index: usize,
    /// Steps it took to find.
    steps: u32,
}

impl Spot {
    /// In no order.
    pub(crate) const NOWHERE: Spot =
        Spot { before: SchedTag::NONE, after: SchedTag::NONE, index: 0, steps: 0 };
}

impl Index {
    #[inline(never)]
    fn spot_in_gap(&self, nodes: &[Node], sector: u64) -> Spot {
        let index = self.gap.partition_point(|held| nodes[held.index()].rq.sector <= sector);
        let before = if index == 0 { SchedTag::NONE } else { self.gap.at(index - 1) };
        let after = if index == self.gap.len() { SchedTag::NONE } else { self.gap.at(index) };
        Spot { before, after, index, steps: 0 }
    }

    /// The first whose sector is `sector` or higher, or none.
    #[inline(never)]
    fn first_in_gap(&self, nodes: &[Node], sector: u64) -> SchedTag {
        let at = self.gap.partition_point(|held| nodes[held.index()].rq.sector < sector);
        if at == self.gap.len() { SchedTag::NONE } else { self.gap.at(at) }
    }

    /// The list from `at` on is in the gap buffer from now on, and in no bucket.
    fn use_gap(&mut self, nodes: &[Node], mut at: SchedTag) {
        self.uses_gap = true;
        self.gap.clear();
        while at != SchedTag::NONE {
            self.gap.insert(self.gap.len(), at);
            at = nodes[at.index()].after;
        }
        self.buckets.clear();
    }

    /// Leaves the gap buffer if buckets would not be crowded now.
    #[cold]
    fn try_buckets(&mut self, nodes: &[Node], list: Ends) {
        self.since_layout = 0;
        self.buckets = Buckets::with(nodes, list);
        if self.buckets.is_crowded(nodes, list.first, WALK_MAX) {
            self.buckets.clear();
        } else {
            self.uses_gap = false;
        }
    }

    /// `tag` is in the gap buffer no more, which is done with when it was the last.
    #[inline(never)]
    fn leave_gap(&mut self, nodes: &[Node], tag: SchedTag) {
        let node = &nodes[tag.index()];
        let sector = node.rq.sector;
        let at = self.gap.partition_point(|held| {
            let held = &nodes[held.index()];
            // Which came first holds across the counter's wrap.
            let came_first = (held.seq.wrapping_sub(node.seq) as i32) < 0;
            held.rq.sector < sector || held.rq.sector == sector && came_first
        });
        debug_assert_eq!(self.gap.at(at), tag, "the gap buffer lost sector {sector}");
        self.gap.remove(at);
        if self.gap.len() == 0 {
            // The first layout after the gap buffer is not put off.
            (self.uses_gap, self.since_layout) = (false, self.room);
        }
    }
}

impl Order {
    /// For tags 0..`room`.
    pub(crate) fn new(room: u16) -> Order {
        Order { first: SchedTag::NONE, last: SchedTag::NONE, seq: 0, room, index: None }
    }

    /// Adds `tag` at its request's sector, behind those of the same sector.
    pub(crate) fn insert(&mut self, nodes: &mut [Node], tag: SchedTag) {
        let spot = self.spot(nodes, nodes[tag.index()].rq.sector);
        self.insert_at(nodes, tag, spot);
    }

    /// Where a request of this sector belongs, behind those of the same sector.
    #[inline(always)]
    pub(crate) fn spot(&self, nodes: &[Node], sector: u64) -> Spot {
        let (bucket, mut after) = match &self.index {
            None => (0, SchedTag::NONE),
            Some(index) if index.uses_gap => return index.spot_in_gap(nodes, sector),
            Some(index) => {
                // Whether the bucket is in use is chance, and so no branch: its last one, or who
                // comes before it, is the one before the first of the buckets behind.
                let bucket = index.buckets.of(sector);
                (bucket, index.buckets.first_behind(bucket))
            }
        };
        let mut before = nodes.get(after.index()).map_or(self.last, |after| after.before);
        // From there: what comes in ascending or equal sectors takes no step.
        let mut steps = 0;
        while let Some(node) = nodes.get(before.index())
            && node.rq.sector > sector
        {
            (after, before) = (before, node.before);
            steps += 1;
        }
        Spot { before, after, index: bucket, steps }
    }

    /// Where a request of this sector belongs in an empty order.
    #[inline]
    pub(crate) fn spot_alone(&self, sector: u64) -> Spot {
        let index = self.index.as_ref().map_or(0, |index| index.buckets.of(sector));
        Spot { index, ..Spot::NOWHERE }
    }

    /// Adds `tag` at the spot of its request's sector, found since the order last changed.
    #[inline(always)]
    pub(crate) fn insert_at(&mut self, nodes: &mut [Node], tag: SchedTag, spot: Spot) {
        let Spot { before, after, index: at, steps } = spot;
        self.seq = self.seq.wrapping_add(1);
        self.link(nodes, before, after, Ends { first: tag, last: tag });
        let node = &mut nodes[tag.index()];
        (node.seq, node.before, node.after) = (self.seq, before, after);
        let most = match &mut self.index {
            None => LIST_WALK_MAX,
            Some(index) => {
                index.since_layout = index.since_layout.saturating_add(1).min(index.room);
                if index.uses_gap {
                    index.gap.insert(at, tag);
                    if index.since_layout == index.room {
                        index.try_buckets(nodes, Ends { first: self.first, last: self.last });
                    }
                    return;
                }
                index.buckets.enter(at, tag, before, after);
                WALK_MAX
            }
        };
        if steps > most {
            self.ease(nodes);
        }
    }

    /// Takes `first` out and then those behind it, up to `max` in all and one at least; calls
    /// `each` with each. Says how many. Their requests must have the sectors they were added with.
    #[inline(always)]
    pub(crate) fn remove_run(
        &mut self,
        nodes: &mut [Node],
        first: SchedTag,
        max: usize,
        mut each: impl FnMut(&mut [Node], SchedTag),
    ) -> usize {
        if self.index.as_ref().is_some_and(|index| index.uses_gap) {
            self.remove(nodes, first);
            each(nodes, first);
            return 1;
        }
        let before = nodes[first.index()].before;
        let (mut at, mut count) = (first, 0);
        loop {
            let node = &nodes[at.index()];
            let after = node.after;
            if let Some(index) = &mut self.index {
                index.buckets.leave(node.rq.sector, at, before, after);
            }
            each(nodes, at);
            (at, count) = (after, count + 1);
            if at == SchedTag::NONE || count >= max {
                break;
            }
        }
        self.close_up(nodes, before, at);
        count
    }

    /// Takes `tag` out; its request must have the sector it was added with.
    #[inline(always)]
    pub(crate) fn remove(&mut self, nodes: &mut [Node], tag: SchedTag) {
        let Node { rq: Rq { sector, .. }, before, after, .. } = nodes[tag.index()];
        match &mut self.index {
            None => {}
            Some(index) if index.uses_gap => index.leave_gap(nodes, tag),
            Some(index) => index.buckets.leave(sector, tag, before, after),
        }
        self.close_up(nodes, before, after);
    }

    /// The entries between these two are gone.
    #[inline(always)]
    fn close_up(&mut self, nodes: &mut [Node], before: SchedTag, after: SchedTag) {
        self.link(nodes, before, after, Ends { first: after, last: before });
    }

    /// Has `before` see the first of `between` behind it, and `after` the last of it before it: of
    /// what has come there, or each the other. `NONE` is an end of the order.
    #[inline(always)]
    fn link(&mut self, nodes: &mut [Node], before: SchedTag, after: SchedTag, between: Ends) {
        match before {
            SchedTag::NONE => self.first = between.first,
            before => nodes[before.index()].after = between.first,
        }
        match after {
            SchedTag::NONE => self.last = between.last,
            after => nodes[after.index()].before = between.last,
        }
    }

    /// The one of the lowest sector.
    #[inline]
    pub(crate) fn first(&self) -> Option<SchedTag> {
        (self.first != SchedTag::NONE).then_some(self.first)
    }

    /// The first whose sector is `sector` or higher.
    #[inline]
    pub(crate) fn first_from(&mut self, nodes: &[Node], sector: u64) -> Option<SchedTag> {
        let (found, steps) = self.search(nodes, sector);
        if steps > if self.index.is_none() { LIST_WALK_MAX } else { WALK_MAX } {
            self.ease(nodes);
        }
        (found != SchedTag::NONE).then_some(found)
    }

    /// The same, or none, and how many steps it took.
    #[inline]
    fn search(&self, nodes: &[Node], sector: u64) -> (SchedTag, u32) {
        let Some(index) = &self.index else { return self.walk(nodes, sector) };
        if index.uses_gap {
            return (index.first_in_gap(nodes, sector), 0);
        }
        let bucket = index.buckets.of(sector);
        if !index.buckets.is_used(bucket) {
            return (index.buckets.first_from(bucket), 0);
        }
        let Ends { first, last } = index.buckets.ends_of(bucket);
        let (mut at, mut steps) = (first, 0);
        while nodes[at.index()].rq.sector < sector {
            steps += 1;
            let beyond = at == last;
            at = nodes[at.index()].after;
            if beyond {
                break;
            }
        }
        (at, steps)
    }

    /// As [`search`](Order::search), along the list. What ascends is beyond the last one.
    #[inline]
    fn walk(&self, nodes: &[Node], sector: u64) -> (SchedTag, u32) {
        if nodes.get(self.last.index()).is_none_or(|last| last.rq.sector < sector) {
            return (SchedTag::NONE, 0);
        }
        let (mut at, mut steps) = (self.first, 0);
        while nodes[at.index()].rq.sector < sector {
            (at, steps) = (nodes[at.index()].after, steps + 1);
        }
        (at, steps)
    }

    /// The oldest of those that start exactly at `end`, which lies behind the sector of `spot`.
    #[inline(always)]
    pub(crate) fn starting_behind(
        &self,
        nodes: &[Node],
        spot: &Spot,
        end: u64,
    ) -> Option<SchedTag> {
        let mut at = spot.after;
        for _ in 0..OVERLAPS_MAX {
            if at == SchedTag::NONE || nodes[at.index()].rq.sector > end {
                return None;
            }
            if nodes[at.index()].rq.sector == end {
                return Some(at);
            }
            at = nodes[at.index()].after;
        }
        // Without easing, after which the spot would be another.
        let (found, _) = self.search(nodes, end);
        (found != SchedTag::NONE && nodes[found.index()].rq.sector == end).then_some(found)
    }

    /// The oldest of those that start exactly at `sector`.
    #[inline]
    pub(crate) fn starting_at(&mut self, nodes: &[Node], sector: u64) -> Option<SchedTag> {
        if let Some(index) = &self.index
            && !index.uses_gap
            && !index.buckets.is_used(index.buckets.of(sector))
        {
            return None;
        }
        self.first_from(nodes, sector).filter(|found| nodes[found.index()].rq.sector == sector)
    }

    /// A walk was long: the list gets an index, or the buckets of the index are laid out anew, or
    /// are used no more.
    #[cold]
    fn ease(&mut self, nodes: &[Node]) {
        let ends = Ends { first: self.first, last: self.last };
        let Some(index) = &mut self.index else {
            // What is staged so far says little of the range, so it may be laid out anew at once.
            let buckets = Buckets::with(nodes, ends);
            let (room, gap) = (self.room, GapBuffer::new(self.room));
            let index = Index { uses_gap: false, since_layout: room, room, buckets, gap };
            self.index = Some(Box::new(index));
            return;
        };
        if index.since_layout < self.room {
            index.since_layout = 0;
            return index.use_gap(nodes, self.first);
        }
        index.since_layout = 0;
        index.buckets = Buckets::with(nodes, ends);
    }
}

#[cfg(test)]
impl Order {
    pub(crate) fn uses_gap(&self) -> bool {
        self.index.as_ref().is_some_and(|index| index.uses_gap)
    }

    pub(crate) fn has_index(&self) -> bool {
        self.index.is_some()
    }

    pub(crate) fn begin_counting_at(&mut self, seq: u32) {
        self.seq = seq;
    }
}
