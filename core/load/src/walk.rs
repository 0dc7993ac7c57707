//! Where sequential I/O goes on, and the part of the range that I/O goes to at present.

use crate::order::Strides;

/// The place behind the last sequential I/O of one direction, from the range's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    at: i64,
    step: i64,
}

impl Walk {
    /// At its beginning: the start of a window, or its end where it goes backwards.
    pub(crate) fn new(step: i64) -> Walk {
        Walk { at: if step < 0 { i64::MIN } else { 0 }, step }
    }

    /// The place of the next I/O in a window of the range: behind the last, and from the beginning
    /// again where that would leave the window.
    pub(crate) fn next(&mut self, Window { start, bytes: len }: Window, bytes: u64) -> u64 {
        let fits =
            |at: i64| u64::try_from(at).is_ok_and(|at| at >= start && at + bytes <= start + len);
        let first = match self.step {
            ..0 => start + (len / bytes * bytes).saturating_sub(bytes),
            _ => start,
        };
        let at = if fits(self.at) { self.at as u64 } else { first };
        self.at = ((at + bytes) as i64).saturating_add(self.step);
        at
    }
}

/// A part of the range, from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

/// The strides of a clone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stride {
    strides: Strides,
    start: u64,
    moved: u64,
}

impl Stride {
    pub(crate) fn new(strides: Strides) -> Stride {
        Stride { strides, start: 0, moved: 0 }
    }

    /// The part for an I/O of so many bytes in a range of `whole`; `None` once behind the last.
    pub(crate) fn next(&mut self, whole: u64, bytes: u64) -> Option<Window> {
        let Strides { bytes: each, range, skip } = self.strides;
        if self.moved >= each {
            self.moved = 0;
            self.start += range + skip;
        }
        let len = range.min(whole.saturating_sub(self.start));
        if len < bytes {
            (self.start, self.moved) = (0, 0);
            return None;
        }
        self.moved += bytes;
        Some(Window { start: self.start, bytes: len })
    }
}
