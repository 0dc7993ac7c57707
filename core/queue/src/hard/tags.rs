//! Driver tags of one lane: its own, or a share of a set that several lanes draw on.

use std::sync::Arc;

use weir_ring::Wake;

use crate::driver::Tag;
use crate::error::{Error, invalid};
use crate::tag_set::{SEATS_MAX, Share, TagSet};

/// The tags a lane works with.
#[derive(Debug)]
pub(crate) enum Tags {
    Own(Own),
    Shared(Box<Share>),
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
    /// With so many in use, or more, a tag that comes back is looked at: one more than `most`, and
    /// none while a reserved tag is out.
    looked_at: u16,
    reserved: u16,
    /// Reserved tags that are free.
    spare: Vec<u16>,
}

impl Tags {
    pub(crate) fn own(depth: u16, reserved: u16) -> Tags {
        // Popped from the end: low tags first, and a tag just freed is used again while warm.
        let (most, free) = (depth - reserved, (reserved..depth).rev().map(Tag::first).collect());
        let (looked_at, spare) = (most + 1, (0..reserved).rev().collect());
        Tags::Own(Own { free, aside: Vec::new(), used: most, most, looked_at, reserved, spare })
    }

    /// A part in a set, for a lane that `wake` has turned; `alone`: the set is one device's.
    ///
    /// # Errors
    /// The set has no seat left.
    pub(crate) fn shared(
        set: &Arc<TagSet>,
        alone: bool,
        wake: Arc<dyn Wake>,
    ) -> Result<Tags, Error> {
        match Share::new(Arc::clone(set), alone, wake) {
            Some(share) => Ok(Tags::Shared(Box::new(share))),
            None => invalid(format!("a set of {} tags has at most {SEATS_MAX} lanes", set.depth())),
        }
    }

    /// From now on as if there were tags below `end` only.
    #[cold]
    pub(crate) fn bound(&mut self, end: u16) {
        match self {
            Tags::Own(own) => own.bound(end),
            Tags::Shared(share) => share.bound(end),
        }
    }

    /// A free tag, or `None`: then the lane that frees one tells this lane.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Tag> {
        match self {
            Tags::Own(Own { free, .. }) => free.pop(),
            Tags::Shared(share) => share.take().map(Tag::first),
        }
    }

    /// A free reserved tag, or `None`: then the lane that frees one tells this lane.
    #[cold]
    pub(crate) fn take_reserved(&mut self) -> Option<Tag> {
        match self {
            Tags::Own(own) => own.take_reserved(),
            Tags::Shared(share) => share.take_reserved().map(Tag::first),
        }
    }

    /// How many of `most` tags [`take`](Tags::take) will now give for certain; with 0, the lane
    /// that frees one tells this lane. `wanted` says how many there is a use for. Of a set none is
    /// held, or waited for, without one: that is `None`.
    #[inline]
    pub(crate) fn secure(
        &mut self,
        most: usize,
        wanted: impl FnOnce(usize) -> usize,
    ) -> Option<usize> {
        match self {
            Tags::Own(Own { free, .. }) => Some(free.len().min(most)),
            Tags::Shared(share) => match wanted(most) {
                0 => None,
                wanted => Some(share.secure(wanted)),
            },
        }
    }

    #[inline]
    pub(crate) fn give(&mut self, tag: Tag) {
        match self {
            Tags::Own(own) => own.give(tag),
            Tags::Shared(share) => share.give(tag.0),
        }
    }

    /// The driver keeps a tag beyond its request's time: it counts no longer against this lane.
    pub(crate) fn lose(&mut self, tag: Tag) {
        match self {
            Tags::Own(own) => own.lose(tag),
            Tags::Shared(share) => share.lose(tag.0),
        }
    }

    /// A tag that was [lost](Tags::lose) is back.
    pub(crate) fn give_lost(&mut self, tag: Tag) {
        match self {
            Tags::Own(own) => own.give_lost(tag),
            Tags::Shared(share) => share.give_lost(tag.0),
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
            Tags::Shared(share) => share.are_short(),
        }
    }

    /// Tags that could be taken now. Of a set it is at least one, unless the lane has all it may.
    pub(crate) fn free(&self) -> usize {
        match self {
            Tags::Own(Own { free, .. }) => free.len(),
            Tags::Shared(share) => share.room(),
        }
    }

    /// Whether [`take`](Tags::take) gives one of the lane's own for certain.
    #[inline]
    pub(crate) fn has_own(&self) -> bool {
        matches!(self, Tags::Own(Own { free, .. }) if !free.is_empty())
    }

    /// Whether no request has a tag of the lane's own.
    #[inline]
    pub(crate) fn are_own_and_free(&self) -> bool {
        matches!(self, Tags::Own(own) if own.free.len() == usize::from(own.used))
    }

    /// The pass is over: lanes that wait for tags hear of it if it may have changed what they find.
    #[inline]
    pub(crate) fn end_pass(&mut self) {
        if let Tags::Shared(share) = self
            && share.end_pass()
        {
            share.tell();
        }
    }
}

impl Own {
    fn bound(&mut self, end: u16) {
        let Own { free, aside, used, most, reserved, .. } = self;
        let out = usize::from(*used) - free.len();
        free.append(aside);
        // Those taken first are the lowest, as at the start.
        free.sort_unstable_by_key(|tag| std::cmp::Reverse(tag.0));
        *most = end.saturating_sub(*reserved);
        let surplus = (out + free.len()).saturating_sub(usize::from(*most)).min(free.len());
        aside.extend(free.drain(..surplus));
        *used = (out + free.len()) as u16;
        self.look_at_reserved();
    }

    #[inline]
    fn give(&mut self, tag: Tag) {
        if self.used < self.looked_at {
            self.free.push(tag);
        } else {
            self.give_surplus(tag);
        }
    }

    /// The tag is reserved; or its request was started before the lane heard of a new bound.
    #[cold]
    fn give_surplus(&mut self, tag: Tag) {
        if tag.0 < self.reserved {
            self.spare.push(tag.0);
            self.look_at_reserved();
        } else if self.used <= self.most {
            self.free.push(tag);
        } else {
            self.used -= 1;
            self.aside.push(tag);
        }
    }

    fn take_reserved(&mut self) -> Option<Tag> {
        let tag = self.spare.pop()?;
        self.look_at_reserved();
        Some(Tag::first(tag))
    }

    fn look_at_reserved(&mut self) {
        let all = self.spare.len() == usize::from(self.reserved);
        self.looked_at = if all { self.most.saturating_add(1) } else { 0 };
    }

    fn lose(&mut self, tag: Tag) {
        if tag.0 < self.reserved {
            return;
        }
        self.used -= 1;
        if self.used < self.most
            && let Some(tag) = self.aside.pop()
        {
            self.used += 1;
            self.free.push(tag);
        }
    }

    fn give_lost(&mut self, tag: Tag) {
        if tag.0 < self.reserved {
            self.give_surplus(tag);
        } else if self.used < self.most {
            self.used += 1;
            self.free.push(tag);
        } else {
            self.aside.push(tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        lost.iter().for_each(|tag| tags.lose(*tag));
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
        tags.lose(held[0]);
        held[1..].iter().for_each(|tag| tags.give(*tag));
        assert_eq!(all(&mut tags).len(), 4);
    }

    #[test]
    fn a_lost_tag_that_comes_back_below_the_bound_is_used_again() {
        let mut tags = Tags::own(4, 0);
        let held = all(&mut tags);
        held[..3].iter().for_each(|tag| tags.lose(*tag));
        tags.give(held[3]);
        tags.bound(2);
        held[..3].iter().for_each(|tag| tags.give_lost(*tag));
        assert_eq!(all(&mut tags).len(), 2);
    }

    #[test]
    fn reserved_tags_are_not_handed_out() {
        let mut tags = Tags::own(4, 1);
        let all: Vec<_> = std::iter::from_fn(|| tags.take()).collect();
        assert_eq!(all, [Tag::first(1), Tag::first(2), Tag::first(3)]);
    }
}
