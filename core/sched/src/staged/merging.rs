//! The staged request that a bio merges into, and the requests that merge because of it.
//!
//! Source: docs/behaviour/deadline.md, section 3.

use weir_bio::{Flags, Rq, SchedTag};

use crate::contract::{Absorbed, Merge};
use crate::merge::{Fit, Side, fit};

use super::{Node, Staged};

/// The staged request that a bio touches, of those that may be merged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Nobody,
    Joins(SchedTag, Side),
    /// It would join this one, which may not become as large as that.
    Full(SchedTag),
}

impl<const SORTED: bool> Staged<SORTED> {
    /// Offers a bio of `band`: the cache, then the hash, then a request it would precede.
    pub(crate) fn merge(&mut self, bio: &Rq, band: usize) -> Merge {
        let touch = self.touching(bio, band);
        self.merge_with(touch, bio)
    }

    pub(super) fn merge_with(&mut self, touch: Touch, bio: &Rq) -> Merge {
        match touch {
            Touch::Nobody => Merge::No,
            Touch::Joins(tag, Side::Back) => self.merge_back(tag, bio),
            Touch::Joins(tag, Side::Front) => self.merge_front(tag, bio),
            Touch::Full(tag) => {
                self.close(tag);
                Merge::No
            }
        }
    }

    /// The request that a bio would join, of those that `nomerges` allows to look for.
    fn touching(&mut self, bio: &Rq, band: usize) -> Touch {
        if let Some(touch) = self.touching_behind(bio) {
            return touch;
        }
        if !SORTED || !self.front_merges {
            return Touch::Nobody;
        }
        match self.orders[band].starting_at(&self.nodes, bio.end()) {
            Some(tag) => self.touches_before(tag, bio),
            None => Touch::Nobody,
        }
    }

    /// The same, but for those that start where it ends; `None` when those are to be looked for.
    #[inline(always)]
    pub(super) fn touching_behind(&self, bio: &Rq) -> Option<Touch> {
        if self.nomerges == 2 || !bio.is_mergeable() {
            return Some(Touch::Nobody);
        }
        if self.last_merge != SchedTag::NONE {
            match self.judge(self.last_merge, bio) {
                Fit::Joins(side) => return Some(Touch::Joins(self.last_merge, side)),
                Fit::TooLarge => return Some(Touch::Full(self.last_merge)),
                Fit::Apart => {}
            }
        }
        if self.nomerges == 1 {
            return Some(Touch::Nobody);
        }
        if let Some(tag) = self.hash.find(bio.sector) {
            match self.judge(tag, bio) {
                Fit::Joins(_) => return Some(Touch::Joins(tag, Side::Back)),
                Fit::TooLarge => return Some(Touch::Full(tag)),
                Fit::Apart => {}
            }
        }
        None
    }

    /// How the request that starts where a bio ends fits to it.
    #[inline(never)]
    pub(super) fn touches_before(&self, tag: SchedTag, bio: &Rq) -> Touch {
        match self.judge(tag, bio) {
            Fit::Joins(Side::Front) => Touch::Joins(tag, Side::Front),
            Fit::TooLarge => Touch::Full(tag),
            Fit::Joins(Side::Back) | Fit::Apart => Touch::Nobody,
        }
    }

    #[inline]
    fn judge(&self, tag: SchedTag, bio: &Rq) -> Fit {
        fit(&self.nodes[tag.index()].rq, bio, &self.limits)
    }

    /// A request is full: it is not tried again.
    #[cold]
    fn close(&mut self, tag: SchedTag) {
        self.nodes[tag.index()].rq.flags |= Flags::NOMERGE;
        self.hash.remove(tag);
        self.forget(tag);
    }

    #[inline]
    pub(super) fn forget(&mut self, tag: SchedTag) {
        if self.last_merge == tag {
            self.last_merge = SchedTag::NONE;
        }
    }

    fn merge_back(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        self.append(tag, bio);
        let next =
            if SORTED { self.nodes[tag.index()].after } else { self.nodes[tag.index()].newer };
        if next == SchedTag::NONE || !self.continues(tag, next) {
            return Merge::Back(tag);
        }
        self.absorb(tag, next);
        Merge::BackJoined { kept: tag, gone: next }
    }

    fn merge_front(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        // The neighbour is the one at the old place, wherever the new start would belong.
        let Node { before, older, .. } = self.nodes[tag.index()];
        let previous = if SORTED { before } else { older };
        self.prepend(tag, bio);
        if previous == SchedTag::NONE || !self.continues(previous, tag) {
            return Merge::Front(tag);
        }
        self.absorb(previous, tag);
        Merge::FrontJoined { kept: previous, gone: tag }
    }

    /// Whether `gone` may become the tail of `kept`.
    #[inline]
    fn continues(&self, kept: SchedTag, gone: SchedTag) -> bool {
        let (kept, gone) = (&self.nodes[kept.index()].rq, &self.nodes[gone.index()].rq);
        fit(kept, gone, &self.limits) == Fit::Joins(Side::Back)
    }

    /// Makes `tail`, which starts where `tag` ends, the end of it.
    fn append(&mut self, tag: SchedTag, tail: &Rq) {
        let rq = &mut self.nodes[tag.index()].rq;
        rq.take_in(tail);
        let end = rq.end();
        self.hash.remove(tag);
        self.hash.add(tag, end);
        self.last_merge = tag;
    }

    /// Makes `start`, which ends where `tag` starts, the start of it. It keeps its end and with it
    /// its place in the hash, and moves to the place of its new sector.
    fn prepend(&mut self, tag: SchedTag, start: &Rq) {
        let band = usize::from(self.nodes[tag.index()].band);
        if SORTED {
            self.orders[band].remove(&mut self.nodes, tag);
        }
        let rq = &mut self.nodes[tag.index()].rq;
        rq.take_in(start);
        if SORTED {
            self.orders[band].insert(&mut self.nodes, tag);
        }
        self.last_merge = tag;
    }

    /// Joins a bio to a request on the given side, and nothing more.
    pub(crate) fn join_bio(&mut self, tag: SchedTag, bio: &Rq, side: Side) {
        match side {
            Side::Back => self.append(tag, bio),
            Side::Front => self.prepend(tag, bio),
        }
    }

    /// `kept` takes in `gone`, which starts where it ends. In sorted bands it also takes over an
    /// earlier deadline, and the place in the FIFO that goes with it.
    fn absorb(&mut self, kept: SchedTag, gone: SchedTag) {
        let Node { deadline, arrived, band, .. } = self.nodes[gone.index()];
        if SORTED && deadline < self.nodes[kept.index()].deadline {
            let fifo = &mut self.fifos[usize::from(band)];
            fifo.remove(&mut self.nodes, kept);
            fifo.push_before(&mut self.nodes, kept, gone);
            let node = &mut self.nodes[kept.index()];
            (node.deadline, node.arrived) = (deadline, arrived);
        }
        let gone = *self.unlink(gone);
        self.append(kept, &gone);
    }

    /// Lets a new request disappear into the one that ends where it starts, that one into the next
    /// such, and so on. Through the cache there is but one step.
    #[inline]
    pub(super) fn join(&mut self, new: SchedTag, absorbed: &mut Absorbed) -> bool {
        if self.nomerges == 2 {
            return false;
        }
        if self.last_merge != SchedTag::NONE && self.continues(self.last_merge, new) {
            absorbed.push((self.last_merge, new));
            let rq = self.nodes[new.index()].rq;
            self.append(self.last_merge, &rq);
            return true;
        }
        if self.nomerges == 1 {
            return false;
        }
        let mut gone = new;
        while let Some(kept) = self.hash.find(self.nodes[gone.index()].rq.sector) {
            if !self.continues(kept, gone) {
                break;
            }
            absorbed.push((kept, gone));
            if gone == new {
                let rq = self.nodes[new.index()].rq;
                self.append(kept, &rq);
            } else {
                self.absorb(kept, gone);
            }
            gone = kept;
        }
        gone != new
    }
}
