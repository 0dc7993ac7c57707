//! Links: what has to pass one waits for what is before it.

use std::collections::VecDeque;

use weir_bio::Nanos;
use weir_sim_disk::Job;

/// What passes a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passing {
    /// A command, to a disk.
    Command(usize, Job),
    /// The end of a command, to a lane: its slot.
    End(usize, u16),
}

/// One way over a link.
#[derive(Debug, Default)]
pub(crate) struct Link {
    rate: u64,
    free_at: Nanos,
    pub(crate) passing: VecDeque<(Nanos, Passing)>,
}

impl Link {
    pub(crate) fn new(rate: u64) -> Link {
        Link { rate, ..Link::default() }
    }

    /// When so many bytes that come to it now have passed.
    pub(crate) fn passes(&mut self, bytes: u64, now: Nanos) -> Nanos {
        let ns = match self.rate {
            0 => 0,
            rate => (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64,
        };
        self.free_at = self.free_at.max(now) + ns;
        self.free_at
    }
}

/// The links of an adapter: to the disks, and from them.
pub(crate) fn links_of(adapter: usize) -> [usize; 2] {
    [2 * adapter, 2 * adapter + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_to_a_link_waits_for_what_is_before_it() {
        let mut link = Link::new(1_000_000_000);
        let passed =
            [(100, 10), (0, 20), (50, 200)].map(|(bytes, at)| link.passes(bytes, Nanos(at)));
        assert_eq!(passed, [Nanos(110), Nanos(110), Nanos(250)]);
        assert_eq!(Link::new(0).passes(u64::MAX, Nanos(7)), Nanos(7), "no bound");
    }
}
