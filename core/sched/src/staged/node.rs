//! A staged request, in one cache line, and the first-in-first-out lists such lines form.

use weir_bio::{Flags, GroupId, IoPrio, Nanos, Op, Rq, RqId, SchedTag};

/// The entry of a scheduler tag. Written by every insert, so it is one line of 64 bytes and holds
/// the links of all lists but the merge hash.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Node {
    pub(crate) rq: Rq,
    /// From then on it is served before sector order.
    pub(crate) deadline: Nanos,
    /// When it was inserted; an absorbed request's earlier time is taken over.
    pub(crate) arrived: Nanos,
    /// Which insertion into its order it was: tells equal sectors apart.
    pub(crate) seq: u32,
    /// Neighbours in sector order.
    pub(crate) before: SchedTag,
    pub(crate) after: SchedTag,
    /// Neighbours in its FIFO.
    pub(crate) older: SchedTag,
    pub(crate) newer: SchedTag,
    /// Its order and FIFO; with `bfq`, whose queues have one each, its
    /// [`rank`](crate::fair::nearest::rank). Stays when the request leaves, so that its end is
    /// counted there.
    pub(crate) band: u8,
    pub(crate) place: Place,
}

const _: () = assert!(std::mem::size_of::<Node>() == 64);

/// Where a tag's request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not staged: free, or with the driver.
    Out,
    /// In a band: in its FIFO, and in its order if bands have one.
    Band,
}

impl Node {
    pub(crate) const EMPTY: Node = Node {
        rq: Rq {
            sector: 0,
            sectors: 0,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Read,
            segments: 0,
        },
        deadline: Nanos::ZERO,
        arrived: Nanos::ZERO,
        seq: 0,
        before: SchedTag::NONE,
        after: SchedTag::NONE,
        older: SchedTag::NONE,
        newer: SchedTag::NONE,
        band: 0,
        place: Place::Out,
    };
}

/// The nodes of so many tags, at the index of the tag; none is staged. A loop over them holds them
/// as a slice, so that their place in memory is not looked up for each.
pub(crate) fn unstaged(tags: u16) -> Vec<Node> {
    vec![Node::EMPTY; usize::from(tags)]
}

/// The tags whose requests are at this place, in order.
pub(crate) fn tags_at(nodes: &[Node], place: Place) -> Vec<SchedTag> {
    let there = (0..).map(SchedTag).zip(nodes).filter(|(_, node)| node.place == place);
    there.map(|(tag, _)| tag).collect()
}

/// A list of tags by age, linked through their nodes.
#[derive(Clone, Debug)]
pub(crate) struct Fifo {
    pub(crate) oldest: SchedTag,
    pub(crate) newest: SchedTag,
}

impl Fifo {
    pub(crate) const EMPTY: Fifo = Fifo { oldest: SchedTag::NONE, newest: SchedTag::NONE };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == SchedTag::NONE
    }

    /// Puts `tag` behind all others.
    #[inline]
    pub(crate) fn push(&mut self, nodes: &mut [Node], tag: SchedTag) {
        self.link(nodes, tag, self.newest, SchedTag::NONE);
    }

    /// Puts `tag` before `other`, or behind all when that is [`SchedTag::NONE`].
    pub(crate) fn push_before(&mut self, nodes: &mut [Node], tag: SchedTag, other: SchedTag) {
        let older = if other == SchedTag::NONE { self.newest } else { nodes[other.index()].older };
        self.link(nodes, tag, older, other);
    }

    fn link(&mut self, nodes: &mut [Node], tag: SchedTag, older: SchedTag, newer: SchedTag) {
        let node = &mut nodes[tag.index()];
        (node.older, node.newer) = (older, newer);
        match older {
            SchedTag::NONE => self.oldest = tag,
            older => nodes[older.index()].newer = tag,
        }
        match newer {
            SchedTag::NONE => self.newest = tag,
            newer => nodes[newer.index()].older = tag,
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, nodes: &mut [Node], tag: SchedTag) {
        let Node { older, newer, .. } = nodes[tag.index()];
        match older {
            SchedTag::NONE => self.oldest = newer,
            older => nodes[older.index()].newer = newer,
        }
        match newer {
            SchedTag::NONE => self.newest = older,
            newer => nodes[newer.index()].older = older,
        }
    }
}
