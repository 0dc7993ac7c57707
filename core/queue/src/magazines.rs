//! The free scheduler tags: a magazine for each hard queue, so that it uses its own tags again.
//!
//! What a scheduler and the elevator keep for a tag was last touched where the tag was freed. With
//! one stack for all, every tag would wander from core to core, and its lines with it.

use weir_bio::SchedTag;

/// Free scheduler tags, each in the magazine of the hard queue that freed it last.
pub(crate) struct Magazines {
    /// Those nobody has used yet.
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
        let index = usize::from(hard_queue);
        if index >= self.own.len() {
            self.own.resize(index + 1, Vec::new());
        }
        self.own[index].push(tag);
        self.len += 1;
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
}
