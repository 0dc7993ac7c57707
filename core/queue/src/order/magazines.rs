//! The free scheduler tags: a magazine for each hard queue, so that it uses its own tags again.
//!
//! The memory that a scheduler and the elevator keep for a tag was last touched where the tag was
//! freed. With one stack for all, every tag would wander from core to core, and its lines with it.

use weir_bio::SchedTag;

/// Free scheduler tags, each in the magazine of the hard queue that freed it last.
pub(crate) struct Magazines {
    /// Tags that were not used yet.
    fresh: Vec<SchedTag>,
    /// By hard queue; only as many as have freed something.
    own: Vec<Vec<SchedTag>>,
    len: usize,
}

impl Magazines {
    /// All of 0..`tags`.
    pub(crate) fn new(tags: u16) -> Magazines {
        let fresh = (0..tags).rev().map(SchedTag).collect();
        Magazines { fresh, own: Vec::new(), len: usize::from(tags) }
    }

    /// How many are free.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A tag for a request of this hard queue, if there is any.
    #[inline]
    pub(crate) fn take(&mut self, hard_queue: u16) -> Option<SchedTag> {
        let own = self.own.get_mut(usize::from(hard_queue)).and_then(Vec::pop);
        let tag = own.or_else(|| self.take_elsewhere())?;
        self.len -= 1;
        Some(tag)
    }

    /// Tags for so many requests of this hard queue; there are as many.
    #[inline]
    pub(crate) fn take_each<'a>(
        &mut self,
        hard_queue: u16,
        tags: impl ExactSizeIterator<Item = &'a mut SchedTag>,
    ) {
        match self.own.get_mut(usize::from(hard_queue)) {
            Some(own) if own.len() >= tags.len() => {
                self.len -= tags.len();
                let kept = own.len() - tags.len();
                // The newest first, as one by one.
                for (tag, taken) in tags.zip(own[kept..].iter().rev()) {
                    *tag = *taken;
                }
                own.truncate(kept);
            }
            _ => tags.for_each(|tag| *tag = self.take(hard_queue).expect("there is one for each")),
        }
    }

    #[inline(never)]
    fn take_elsewhere(&mut self) -> Option<SchedTag> {
        if let Some(tag) = self.fresh.pop() {
            return Some(tag);
        }
        // From the fullest, so that others run short as late as can be.
        self.own.iter_mut().max_by_key(|own| own.len())?.pop()
    }

    /// This hard queue has no more use for it.
    #[inline]
    pub(crate) fn give(&mut self, tag: SchedTag, hard_queue: u16) {
        self.own(hard_queue).push(tag);
        self.len += 1;
    }

    /// The same for several, in order.
    #[inline]
    pub(crate) fn give_each(
        &mut self,
        hard_queue: u16,
        tags: impl ExactSizeIterator<Item = SchedTag>,
    ) {
        self.len += tags.len();
        self.own(hard_queue).extend(tags);
    }

    #[inline]
    fn own(&mut self, hard_queue: u16) -> &mut Vec<SchedTag> {
        let index = usize::from(hard_queue);
        if index >= self.own.len() {
            self.own.resize(index + 1, Vec::new());
        }
        &mut self.own[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hard_queue_uses_its_own_tags_again_and_those_of_others_when_it_has_none() {
        let mut magazines = Magazines::new(4);
        let first: Vec<_> = (0..2).map(|_| magazines.take(1).unwrap()).collect();
        let second: Vec<_> = (0..2).map(|_| magazines.take(3).unwrap()).collect();
        assert_eq!((magazines.take(1), magazines.len()), (None, 0));
        second.iter().for_each(|tag| magazines.give(*tag, 3));
        first.iter().for_each(|tag| magazines.give(*tag, 1));
        assert_eq!(magazines.len(), 4);
        let again: Vec<_> = (0..4).map(|_| magazines.take(3).unwrap()).collect();
        assert!(again[..2].iter().all(|tag| second.contains(tag)), "{again:?}");
        assert!(again[2..].iter().all(|tag| first.contains(tag)), "{again:?}");
        assert_eq!((magazines.take(3), magazines.len()), (None, 0));
    }

    #[test]
    fn several_tags_are_the_same_as_one_after_the_other() {
        let (mut several, mut single) = (Magazines::new(8), Magazines::new(8));
        // From unused tags, from its own and, where these do not do, from others'.
        for (hard_queue, wanted, given) in [(0, 5, 4), (1, 3, 3), (0, 2, 3), (1, 4, 1), (0, 3, 3)] {
            let mut tags = vec![SchedTag::NONE; wanted];
            several.take_each(hard_queue, tags.iter_mut());
            let expected: Vec<_> = (0..wanted).map(|_| single.take(hard_queue).unwrap()).collect();
            assert_eq!(tags, expected);
            several.give_each(hard_queue, tags[..given.min(wanted)].iter().copied());
            tags[..given.min(wanted)].iter().for_each(|tag| single.give(*tag, hard_queue));
            assert_eq!(several.len(), single.len());
        }
    }
}
