//! Driver tags of one lane: its own, or a share of a set several lanes draw on.

use std::sync::Arc;

use weir_ring::{Pending, SharedCounter, TagWords};

use crate::driver::Tag;

/// How many tags a lane takes from, or gives back to, a shared set in one step.
const MAGAZINE: usize = 32;

/// The least share a lane of a shared set is always allowed (block-core section 7.5).
const FAIR_SHARE_FLOOR: u16 = 4;

/// Tags several lanes share: the lanes of one device, or of several disks behind one adapter.
#[derive(Debug)]
pub struct TagSet {
    words: TagWords,
    reserved: u16,
    /// Lanes that used a tag lately.
    active: SharedCounter,
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
            waiting: Pending::new(Pending::SOURCES_MAX),
        })
    }

    /// Tags that are out.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.words.out()
    }

    /// Most tags one lane may hold while others are active.
    fn fair_share(&self) -> u16 {
        match self.active.read() {
            0 | 1 => self.words.depth(),
            users => self.words.depth().div_ceil(users as u16).max(FAIR_SHARE_FLOOR),
        }
    }

    /// The lanes to be told that tags came back.
    pub(crate) fn take_waiting(&self, visit: impl FnMut(usize)) {
        self.waiting.take(visit);
    }
}

/// The tags a lane works with.
#[derive(Debug)]
pub(crate) enum Tags {
    Own { free: Vec<Tag>, depth: u16 },
    Shared(Share),
}

/// A lane's part in a shared set.
#[derive(Debug)]
pub(crate) struct Share {
    set: Arc<TagSet>,
    lane: usize,
    magazine: Vec<u16>,
    out: u16,
    active: bool,
}

impl Tags {
    pub(crate) fn own(depth: u16, reserved: u16) -> Tags {
        // Popped from the end: low tags first, and a tag just freed is used again while warm.
        Tags::Own { free: (reserved..depth).rev().map(Tag).collect(), depth: depth - reserved }
    }

    pub(crate) fn shared(set: Arc<TagSet>, lane: usize) -> Tags {
        Tags::Shared(Share { set, lane, magazine: Vec::new(), out: 0, active: false })
    }

    /// A free tag, or `None`: then whoever frees one tells this lane.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Tag> {
        match self {
            Tags::Own { free, .. } => free.pop(),
            Tags::Shared(share) => share.take(),
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, tag: Tag) {
        match self {
            Tags::Own { free, .. } => free.push(tag),
            Tags::Shared(share) => share.give(tag),
        }
    }

    /// Tags that could be taken now.
    pub(crate) fn free(&self) -> usize {
        match self {
            Tags::Own { free, .. } => free.len(),
            Tags::Shared(share) => usize::from(share.allowed()),
        }
    }

    /// Tags out of this lane's own; what it holds of a shared set.
    pub(crate) fn out(&self) -> usize {
        match self {
            Tags::Own { free, depth } => usize::from(*depth) - free.len(),
            Tags::Shared(share) => usize::from(share.out),
        }
    }

    /// The lane has nothing in flight: give back what it hoards.
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Tags::Own { .. } => false,
            Tags::Shared(share) => share.rest(),
        }
    }

    pub(crate) fn set(&self) -> Option<&Arc<TagSet>> {
        match self {
            Tags::Own { .. } => None,
            Tags::Shared(share) => Some(&share.set),
        }
    }
}

impl Share {
    fn allowed(&self) -> u16 {
        self.set.fair_share().saturating_sub(self.out)
    }

    fn take(&mut self) -> Option<Tag> {
        if !self.active {
            self.active = true;
            self.set.active.next();
        }
        if self.allowed() == 0 {
            return self.wait_then_take();
        }
        self.take_one().or_else(|| self.wait_then_take())
    }

    fn take_one(&mut self) -> Option<Tag> {
        if self.magazine.is_empty() {
            let wanted = usize::from(self.allowed()).min(MAGAZINE);
            let hint = self.lane % self.set.words.words();
            self.set.words.take(hint, wanted, self.set.reserved, &mut self.magazine);
        }
        let tag = self.magazine.pop()?;
        self.out += 1;
        Some(Tag(tag))
    }

    /// Says that this lane waits, then looks once more: either the one who frees sees the mark, or
    /// this sees the tag.
    fn wait_then_take(&mut self) -> Option<Tag> {
        self.set.waiting.mark(self.lane);
        if self.allowed() == 0 {
            return None;
        }
        self.take_one()
    }

    fn give(&mut self, tag: Tag) {
        self.out -= 1;
        // Straight back while somebody waits or the share is used up; else kept at hand.
        if self.magazine.len() < MAGAZINE && !self.set.waiting.any() {
            self.magazine.push(tag.0);
        } else {
            self.set.words.free(tag.0);
            self.release();
        }
    }

    fn release(&mut self) {
        for tag in self.magazine.drain(..) {
            self.set.words.free(tag);
        }
    }

    fn rest(&mut self) -> bool {
        if self.out != 0 || !self.active {
            return false;
        }
        self.release();
        self.active = false;
        self.set.active.down();
        true
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
        b.give(first);
        assert!(b.rest());
        held.into_iter().for_each(|tag| a.give(tag));
        assert_eq!(std::iter::from_fn(|| a.take()).count(), 16);
    }

    #[test]
    fn a_lane_that_found_no_tag_is_known_to_the_set() {
        let set = TagSet::new(4, 0);
        let mut a = Tags::shared(Arc::clone(&set), 7);
        while a.take().is_some() {}
        let mut told = Vec::new();
        set.take_waiting(|lane| told.push(lane));
        assert_eq!(told, [7]);
    }

    #[test]
    fn reserved_tags_are_not_handed_out() {
        let mut tags = Tags::own(4, 1);
        let all: Vec<_> = std::iter::from_fn(|| tags.take()).collect();
        assert_eq!(all, [Tag(1), Tag(2), Tag(3)]);
    }
}
