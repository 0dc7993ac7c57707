//! Driver tags of one lane: its own, or a share of a set several lanes draw on.

use std::ops::Range;
use std::sync::Arc;

use weir_ring::sync::{Ordering, fence};
use weir_ring::{Pending, SharedCounter, TagWords};

use crate::driver::Tag;

/// The least share a lane of a shared set is always allowed (docs/behaviour/block-layer.md, section
/// 7.5).
const FAIR_SHARE_FLOOR: u16 = 4;

/// Tags several lanes share: the lanes of one device, or of several disks behind one adapter.
#[derive(Debug)]
pub struct TagSet {
    words: TagWords,
    reserved: u16,
    /// Lanes that used a tag lately.
    active: SharedCounter,
    /// Tags that drivers keep beyond their requests' time.
    lost: SharedCounter,
    /// Lanes that found none; each waits to be nudged.
    waiting: Pending,
}

impl TagSet {
    /// `depth` tags, the first `reserved` of them for reserved requests.
    ///
    /// # Panics
    /// When no ordinary tag would be left.
    #[must_use]
    pub fn new(depth: u16, reserved: u16) -> Arc<TagSet> {
        assert!(reserved < depth, "{reserved} reserved tags leave none of {depth}");
        Arc::new(TagSet {
            words: TagWords::new(depth),
            reserved,
            active: SharedCounter::default(),
            lost: SharedCounter::default(),
            waiting: Pending::new(Pending::SOURCES_MAX),
        })
    }

    /// Tags that are out.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.words.out()
    }

    /// Most tags of `depth` that one lane may hold while others are active.
    fn fair_share(&self, depth: u16) -> u16 {
        match self.active.read() {
            0 | 1 => depth,
            users => depth.div_ceil(users as u16).max(FAIR_SHARE_FLOOR),
        }
    }

    /// Whether a lane waits, for one that has just given something back.
    fn is_waited_for(&self) -> bool {
        // Pairs with the fence of a lane that marks itself: it finds what came back, or this sees
        // its mark.
        fence(Ordering::SeqCst);
        self.waiting.any()
    }
}

/// The tags a lane works with.
#[derive(Debug)]
pub(crate) enum Tags {
    Own(Own),
    Shared(Share),
}

/// A lane's own tags.
#[derive(Debug)]
pub(crate) struct Own {
    free: Vec<Tag>,
    /// More than the lane is to use; they stand in for lost ones.
    aside: Vec<Tag>,
    /// Those in use: free, or out and not lost.
    used: u16,
    /// So many of them at most.
    most: u16,
    reserved: u16,
}

/// A lane's part in a shared set.
#[derive(Debug)]
pub(crate) struct Share {
    set: Arc<TagSet>,
    /// The lane takes tags below this, and one more for each that is lost.
    end: u16,
    lane: usize,
    /// Taken for this pass and not handed out yet.
    spare: Vec<u16>,
    /// Without those that were lost.
    out: u16,
    active: bool,
    /// When it last wanted a tag it found none.
    short: bool,
    /// Tags came or went in this pass, so that others may find what they missed before.
    moved: bool,
}

impl Tags {
    pub(crate) fn own(depth: u16, reserved: u16) -> Tags {
        // Popped from the end: low tags first, and a tag just freed is used again while warm.
        let (most, free) = (depth - reserved, (reserved..depth).rev().map(Tag::first).collect());
        Tags::Own(Own { free, aside: Vec::new(), used: most, most, reserved })
    }

    pub(crate) fn shared(set: Arc<TagSet>, lane: usize) -> Tags {
        let (active, short, moved) = (false, false, false);
        let (end, spare) = (set.words.depth(), Vec::new());
        Tags::Shared(Share { set, end, lane, spare, out: 0, active, short, moved })
    }

    /// From now on as if there were tags below `end` only.
    #[cold]
    pub(crate) fn bound(&mut self, end: u16) {
        match self {
            Tags::Own(own) => own.bound(end),
            Tags::Shared(share) => share.end = end.min(share.set.words.depth()),
        }
    }

    /// A free tag, or `None`: then the lane that frees one tells this lane.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Tag> {
        match self {
            Tags::Own(Own { free, .. }) => free.pop(),
            Tags::Shared(share) => share.take(),
        }
    }

    /// How many of `wanted` tags [`take`](Tags::take) will now give for certain; with 0, the lane
    /// that frees one tells this lane.
    #[inline]
    pub(crate) fn secure(&mut self, wanted: usize) -> usize {
        match self {
            Tags::Own(Own { free, .. }) => free.len().min(wanted),
            Tags::Shared(share) => share.secure(wanted),
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, tag: Tag) {
        match self {
            Tags::Own(own) => own.give(tag),
            Tags::Shared(share) => share.give(tag),
        }
    }

    /// The driver keeps a tag beyond its request's time: it counts no longer against this lane.
    pub(crate) fn lose(&mut self) {
        match self {
            Tags::Own(own) => own.lose(),
            Tags::Shared(share) => {
                share.out -= 1;
                share.set.lost.next();
                // Another tag takes its place.
                share.moved = true;
            }
        }
    }

    /// A tag that was [lost](Tags::lose) is back.
    pub(crate) fn give_lost(&mut self, tag: Tag) {
        match self {
            Tags::Own(own) => own.give_lost(tag),
            Tags::Shared(share) => {
                share.out += 1;
                share.set.lost.down();
                share.give(tag);
            }
        }
    }

    /// Whether the driver keeps every tag beyond its request's time.
    #[inline]
    pub(crate) fn are_lost(&self) -> bool {
        match self {
            Tags::Own(own) => own.used == 0 && own.aside.is_empty(),
            Tags::Shared(share) => share.are_lost(),
        }
    }

    /// Whether drivers keep tags of a shared set, this lane's or others', beyond their time.
    #[inline]
    pub(crate) fn are_short_of_lost(&self) -> bool {
        match self {
            Tags::Own(_) => false,
            Tags::Shared(share) => share.set.lost.read() > 0,
        }
    }

    /// Tags that could be taken now.
    pub(crate) fn free(&self) -> usize {
        match self {
            Tags::Own(Own { free, .. }) => free.len(),
            Tags::Shared(share) => share.allowed(),
        }
    }

    /// The pass is over: what was secured and not taken goes back, and a lane with nothing out
    /// counts no longer against the others' share. True when lanes wait for tags and this pass may
    /// have changed what they find. (One that only missed tags itself has nothing to tell: two such
    /// would wake each other for ever.)
    #[inline]
    pub(crate) fn end_pass(&mut self) -> bool {
        match self {
            Tags::Own(_) => false,
            Tags::Shared(share) => {
                share.release();
                share.rest();
                std::mem::take(&mut share.moved) && share.set.is_waited_for()
            }
        }
    }

    /// Calls `tell` with each lane that is to look for tags again.
    #[cold]
    pub(crate) fn tell_waiting(&self, tell: impl FnMut(usize)) {
        if let Tags::Shared(share) = self {
            share.tell_waiting(tell);
        }
    }
}

impl Own {
    fn bound(&mut self, end: u16) {
        let Own { free, aside, used, most, reserved } = self;
        let out = usize::from(*used) - free.len();
        free.append(aside);
        // Those taken first are the lowest, as at the start.
        free.sort_unstable_by_key(|tag| std::cmp::Reverse(tag.0));
        *most = end.saturating_sub(*reserved);
        let surplus = (out + free.len()).saturating_sub(usize::from(*most)).min(free.len());
        aside.extend(free.drain(..surplus));
        *used = (out + free.len()) as u16;
    }

    #[inline]
    fn give(&mut self, tag: Tag) {
        if self.used <= self.most {
            self.free.push(tag);
        } else {
            self.give_surplus(tag);
        }
    }

    /// A request that came under the new bound was started before the lane heard of it.
    #[cold]
    fn give_surplus(&mut self, tag: Tag) {
        self.used -= 1;
        self.aside.push(tag);
    }

    fn lose(&mut self) {
        self.used -= 1;
        if self.used < self.most
            && let Some(tag) = self.aside.pop()
        {
            self.used += 1;
            self.free.push(tag);
        }
    }

    fn give_lost(&mut self, tag: Tag) {
        if self.used < self.most {
            self.used += 1;
            self.free.push(tag);
        } else {
            self.aside.push(tag);
        }
    }
}

impl Share {
    fn allowed(&self) -> usize {
        usize::from(self.set.fair_share(self.end).saturating_sub(self.out))
    }

    /// The tags it may take now.
    fn within(&self) -> Range<u16> {
        let end = u64::from(self.end) + self.set.lost.read();
        self.set.reserved..end.min(u64::from(self.set.words.depth())) as u16
    }

    fn are_lost(&self) -> bool {
        let usable = self.set.words.depth() - self.set.reserved;
        self.set.lost.read() >= u64::from(usable)
    }

    fn take(&mut self) -> Option<Tag> {
        if self.spare.is_empty() && self.secure(1) == 0 {
            return None;
        }
        let tag = self.spare.pop()?;
        self.out += 1;
        Some(Tag::first(tag))
    }

    /// Holds up to `wanted` tags ready, within the fair share. Those not taken are to be released
    /// before the pass ends: another lane may want them.
    fn secure(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        if !self.active {
            self.active = true;
            self.set.active.next();
        }
        if self.fill(wanted) == 0 {
            // Says that this lane waits, then looks once more: either the one who frees sees the
            // mark, or this sees the tag.
            self.set.waiting.mark(self.lane);
            self.fill(wanted);
        }
        self.short = self.spare.is_empty();
        self.spare.len().min(wanted)
    }

    fn fill(&mut self, wanted: usize) -> usize {
        let wanted = wanted.min(self.allowed());
        if self.spare.len() < wanted {
            let missing = wanted - self.spare.len();
            let hint = self.lane % self.set.words.words();
            let taken = self.set.words.take(hint, missing, &self.within(), &mut self.spare);
            self.moved |= taken > 0;
        }
        self.spare.len().min(wanted)
    }

    fn give(&mut self, tag: Tag) {
        self.out -= 1;
        self.moved = true;
        self.set.words.free(tag.0);
    }

    fn release(&mut self) {
        for tag in self.spare.drain(..) {
            self.set.words.free(tag);
        }
    }

    fn tell_waiting(&self, mut tell: impl FnMut(usize)) {
        let Share { set, lane: own, short, .. } = self;
        let within = self.within();
        set.waiting.take(|lane| {
            if lane != *own {
                return tell(lane);
            }
            // A mark that it has no need of any more would make it tell itself for ever.
            if !*short {
                return;
            }
            // Others must find its mark again. A lane that gave a tag back while the mark was away
            // has told no lane, so this one looks once more itself.
            set.waiting.mark(*own);
            if set.out() < u32::from(within.end) {
                tell(*own);
            }
        });
    }

    fn rest(&mut self) {
        if self.out == 0 && self.active {
            // Not a move: who became active and has nothing out has taken tags, or found none.
            self.active = false;
            self.set.active.down();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_of_a_shared_set_gets_its_fair_share_while_another_is_active() {
        let set = TagSet::new(16, 0);
        let mut a = Tags::shared(Arc::clone(&set), 0);
        let mut b = Tags::shared(Arc::clone(&set), 1);
        let first = b.take().unwrap();
        let held: Vec<_> = std::iter::from_fn(|| a.take()).collect();
        assert_eq!(held.len(), 8);
        assert!(b.end_pass(), "the other one waits");
        b.give(first);
        b.end_pass();
        held.into_iter().for_each(|tag| a.give(tag));
        assert_eq!(std::iter::from_fn(|| a.take()).count(), 16);
    }

    #[test]
    fn a_lane_that_found_no_tag_is_known_to_the_set() {
        let set = TagSet::new(4, 0);
        let mut a = Tags::shared(Arc::clone(&set), 7);
        while a.take().is_some() {}
        let mut told = Vec::new();
        Tags::shared(set, 0).tell_waiting(|lane| told.push(lane));
        assert_eq!(told, [7]);
    }

    #[test]
    fn a_lane_hears_of_a_tag_that_came_back_while_it_told_others() {
        let set = TagSet::new(1, 0);
        let [mut first, mut own, mut last] =
            [0, 1, 2].map(|lane| Tags::shared(Arc::clone(&set), lane));
        let tag = last.take().expect("a tag");
        assert!(first.take().is_none() && own.take().is_none());
        let mut told = Vec::new();
        own.tell_waiting(|lane| {
            told.push(lane);
            if lane == 0 {
                last.give(tag);
                assert!(!last.end_pass(), "no mark is to be seen just now");
            }
        });
        assert_eq!(told, [0, 1]);
        // Nothing is free any more, so it waits in silence until another lane tells it.
        first.take().expect("the tag is back");
        own.tell_waiting(|lane| panic!("lane {lane} is told of nothing"));
        let mut told = Vec::new();
        first.tell_waiting(|lane| told.push(lane));
        assert_eq!(told, [1]);
    }

    #[test]
    fn a_lane_that_waits_no_more_does_not_tell_itself() {
        let set = TagSet::new(1, 0);
        let mut own = Tags::shared(Arc::clone(&set), 0);
        let tag = own.take().expect("a tag");
        assert!(own.take().is_none(), "now it is marked");
        own.give(tag);
        assert_eq!(own.secure(8), 1);
        assert!(own.end_pass(), "the mark is still there");
        own.tell_waiting(|lane| panic!("lane {lane} is told of nothing"));
        assert_eq!(own.secure(8), 1);
        assert!(!own.end_pass(), "it has gone");
    }

    fn all(tags: &mut Tags) -> Vec<Tag> {
        std::iter::from_fn(|| tags.take()).collect()
    }

    #[test]
    fn a_bound_holds_while_tags_are_lost_and_come_back_and_can_be_lifted() {
        let mut tags = Tags::own(8, 1);
        tags.bound(4);
        let held = all(&mut tags);
        assert_eq!(held, [Tag::first(1), Tag::first(2), Tag::first(3)]);
        let (lost, kept) = held.split_at(2);
        lost.iter().for_each(|_| tags.lose());
        let instead = all(&mut tags);
        assert_eq!(instead.len(), 2, "others take the place of what is lost");
        lost.iter().for_each(|tag| tags.give_lost(*tag));
        assert_eq!(all(&mut tags), []);
        kept.iter().chain(&instead).for_each(|tag| tags.give(*tag));
        tags.bound(u16::MAX);
        assert_eq!(all(&mut tags).len(), 7);
    }

    #[test]
    fn tags_that_are_out_when_the_bound_comes_do_not_pass_it_for_good() {
        let mut tags = Tags::own(8, 0);
        let held: Vec<_> = (0..6).filter_map(|_| tags.take()).collect();
        tags.bound(4);
        assert_eq!(all(&mut tags), []);
        tags.lose();
        held[1..].iter().for_each(|tag| tags.give(*tag));
        assert_eq!(all(&mut tags).len(), 4);
    }

    #[test]
    fn a_lost_tag_that_comes_back_below_the_bound_is_used_again() {
        let mut tags = Tags::own(4, 0);
        let held = all(&mut tags);
        (0..3).for_each(|_| tags.lose());
        tags.give(held[3]);
        tags.bound(2);
        held[..3].iter().for_each(|tag| tags.give_lost(*tag));
        assert_eq!(all(&mut tags).len(), 2);
    }

    #[test]
    fn lanes_of_a_shared_set_stay_below_a_bound() {
        let set = TagSet::new(16, 2);
        let [mut a, mut b] = [0, 1].map(|lane| Tags::shared(Arc::clone(&set), lane));
        [&mut a, &mut b].into_iter().for_each(|tags| tags.bound(6));
        let mut held = [all(&mut a), all(&mut b)].concat();
        held.sort_unstable_by_key(|tag| tag.0);
        assert_eq!(held, [Tag::first(2), Tag::first(3), Tag::first(4), Tag::first(5)]);
        a.lose();
        assert!(a.end_pass(), "whoever waits hears of the one instead");
        assert_eq!([all(&mut a), all(&mut b)].concat().len(), 1);
    }

    #[test]
    fn reserved_tags_are_not_handed_out() {
        let mut tags = Tags::own(4, 1);
        let all: Vec<_> = std::iter::from_fn(|| tags.take()).collect();
        assert_eq!(all, [Tag::first(1), Tag::first(2), Tag::first(3)]);
    }
}
