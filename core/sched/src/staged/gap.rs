//! A sorted array of tags with its free room kept where it was last changed.
//!
//! The entries that a sweep takes out lie next to the gap, so only inserts move entries, and an
//! entry is two bytes.

use weir_bio::SchedTag;

/// A gap buffer with room for a fixed number of tags.
#[derive(Clone, Debug)]
pub(crate) struct GapBuffer {
    /// The entries are those before `gap` and those from `resume` on. Made with the first use:
    /// most orders never need one.
    cells: Vec<SchedTag>,
    room: u16,
    gap: usize,
    resume: usize,
}

impl GapBuffer {
    pub(crate) fn new(room: u16) -> GapBuffer {
        GapBuffer { cells: Vec::new(), room, gap: 0, resume: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.gap + self.cells.len() - self.resume
    }

    /// Forgets all entries, and has room for new ones.
    pub(crate) fn clear(&mut self) {
        self.cells.resize(usize::from(self.room), SchedTag::NONE);
        (self.gap, self.resume) = (0, self.cells.len());
    }

    /// The entry at `index`, which is below [`len`](GapBuffer::len).
    #[inline]
    pub(crate) fn at(&self, index: usize) -> SchedTag {
        let skipped = if index < self.gap { 0 } else { self.resume - self.gap };
        self.cells[index + skipped]
    }

    /// Makes `tag` the entry at `index`, before the one that is there.
    pub(crate) fn insert(&mut self, index: usize, tag: SchedTag) {
        assert!(self.gap < self.resume, "{} tags fill the gap buffer", self.len());
        self.move_gap(index);
        self.cells[self.gap] = tag;
        self.gap += 1;
    }

    /// Takes the entry at `index` out.
    pub(crate) fn remove(&mut self, index: usize) {
        if index < self.gap {
            self.move_gap(index + 1);
            self.gap -= 1;
        } else {
            self.move_gap(index);
            self.resume += 1;
        }
    }

    fn move_gap(&mut self, to: usize) {
        if to < self.gap {
            let moved = self.gap - to;
            self.cells.copy_within(to..self.gap, self.resume - moved);
            self.resume -= moved;
        } else {
            let moved = to - self.gap;
            self.cells.copy_within(self.resume..self.resume + moved, self.gap);
            self.resume += moved;
        }
        self.gap = to;
    }

    /// How many entries, from the start, satisfy `holds`; it must hold for a first part only.
    #[inline]
    pub(crate) fn partition_point(&self, holds: impl Fn(SchedTag) -> bool) -> usize {
        let (mut least, mut most) = (0, self.len());
        while least < most {
            let middle = usize::midpoint(least, most);
            if holds(self.at(middle)) {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Prng;

    #[test]
    fn it_holds_what_a_vector_holds_wherever_the_gap_is() {
        let seed = 0x6A9;
        println!("seed {seed:#x}");
        let mut prng = Prng::new(seed);
        let (mut gap, mut model) = (GapBuffer::new(40), Vec::new());
        gap.clear();
        for step in 0..20_000 {
            let insert = model.is_empty() || model.len() < 40 && prng.percent(52);
            let index = prng.below(model.len() as u64 + u64::from(insert)) as usize;
            if insert {
                let tag = SchedTag(prng.below(1000) as u16);
                gap.insert(index, tag);
                model.insert(index, tag);
            } else {
                gap.remove(index);
                model.remove(index);
            }
            let held: Vec<_> = (0..gap.len()).map(|index| gap.at(index)).collect();
            assert_eq!(held, model, "step {step}");
        }
    }

    #[test]
    fn the_partition_point_is_where_the_answer_changes() {
        let mut gap = GapBuffer::new(8);
        gap.clear();
        for tag in 0..6 {
            gap.insert(usize::from(tag), SchedTag(tag));
        }
        gap.move_gap(3);
        for bound in 0..=7 {
            let point = gap.partition_point(|tag| tag.0 < bound);
            assert_eq!(point, usize::from(bound.min(6)), "below {bound}");
        }
    }
}
