//! Where the requests of tags are: which queue each belongs to, and whether it is still there.

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

/// The holder of a tag, at the index of the tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder {
    pub(super) at: Whereabouts,
    pub(super) queue: QueueId,
}

impl Holder {
    pub(super) const NOBODY: Holder = Holder { at: Whereabouts::Absent, queue: QueueId(0) };
}
