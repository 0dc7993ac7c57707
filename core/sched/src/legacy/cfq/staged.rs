//! Requests by their scheduler tag: where each is, and the FIFO it stands in.

use weir_bio::{Nanos, Rq, SchedTag};

use super::names::QueueId;

/// Where a tag's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// Not here, or past the policy at the head.
    Absent,
    /// In its queue.
    Staged,
    /// With the device, charged to its queue.
    InFlight,
}

/// A place for each tag, made once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) rq: Option<Rq>,
    pub(super) at: Whereabouts,
    pub(super) queue: QueueId,
    /// When it is served next whatever its position.
    pub(super) deadline: Nanos,
    /// Its turn among requests of the same sector.
    pub(super) order: u64,
    pub(super) older: SchedTag,
    pub(super) younger: SchedTag,
}

impl Node {
    pub(super) const ABSENT: Node = Node {
        rq: None,
        at: Whereabouts::Absent,
        queue: QueueId(0),
        deadline: Nanos::ZERO,
        order: 0,
        older: SchedTag::NONE,
        younger: SchedTag::NONE,
    };

    pub(super) fn request(&self) -> &Rq {
        self.rq.as_ref().expect("a staged tag has a request")
    }
}

/// The two ends of a queue's FIFO; the links are in the nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fifo {
    pub(super) oldest: SchedTag,
    youngest: SchedTag,
}

impl Fifo {
    pub(super) const EMPTY: Fifo = Fifo { oldest: SchedTag::NONE, youngest: SchedTag::NONE };

    pub(super) fn push(&mut self, nodes: &mut [Node], tag: SchedTag) {
        self.link_after(nodes, self.youngest, tag);
    }

    pub(super) fn remove(&mut self, nodes: &mut [Node], tag: SchedTag) {
        let Node { older, younger, .. } = nodes[usize::from(tag.0)];
        match older {
            SchedTag::NONE => self.oldest = younger,
            older => nodes[usize::from(older.0)].younger = younger,
        }
        match younger {
            SchedTag::NONE => self.youngest = older,
            younger => nodes[usize::from(younger.0)].older = older,
        }
    }

    /// `tag` leaves its place for that of `other`, which leaves the FIFO.
    pub(super) fn replace(&mut self, nodes: &mut [Node], other: SchedTag, tag: SchedTag) {
        self.remove(nodes, tag);
        let before = nodes[usize::from(other.0)].older;
        self.remove(nodes, other);
        self.link_after(nodes, before, tag);
    }

    fn link_after(&mut self, nodes: &mut [Node], older: SchedTag, tag: SchedTag) {
        let younger = match older {
            SchedTag::NONE => std::mem::replace(&mut self.oldest, tag),
            older => std::mem::replace(&mut nodes[usize::from(older.0)].younger, tag),
        };
        match younger {
            SchedTag::NONE => self.youngest = tag,
            younger => nodes[usize::from(younger.0)].older = tag,
        }
        let node = &mut nodes[usize::from(tag.0)];
        (node.older, node.younger) = (older, younger);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(fifo: &Fifo, nodes: &[Node]) -> Vec<u16> {
        let mut tags = Vec::new();
        let mut at = fifo.oldest;
        while at != SchedTag::NONE {
            tags.push(at.0);
            at = nodes[usize::from(at.0)].younger;
        }
        tags
    }

    #[test]
    fn a_request_takes_the_place_of_the_older_one_it_took_in() {
        let mut nodes = [Node::ABSENT; 4];
        let mut fifo = Fifo::EMPTY;
        for tag in 0..4 {
            fifo.push(&mut nodes, SchedTag(tag));
        }
        fifo.replace(&mut nodes, SchedTag(0), SchedTag(2));
        assert_eq!(order(&fifo, &nodes), [2, 1, 3]);
        fifo.replace(&mut nodes, SchedTag(1), SchedTag(3));
        assert_eq!(order(&fifo, &nodes), [2, 3]);
        // Neighbours, either way round.
        fifo.replace(&mut nodes, SchedTag(2), SchedTag(3));
        assert_eq!(order(&fifo, &nodes), [3]);
        fifo.push(&mut nodes, SchedTag(1));
        fifo.remove(&mut nodes, SchedTag(3));
        assert_eq!(order(&fifo, &nodes), [1]);
    }
}
