//! The control side of a lane of the multi-queue path: messages to it, its gauges, and whether it
//! is open. None of it is looked at for an I/O, but whether there is a message.

use std::sync::{Arc, Mutex, MutexGuard};

use weir_ring::{Consumer, Mailbox};

use super::soft::Soft;
use crate::bell::Port;
use crate::hard::reply::Replies;
use crate::request::RequestClaim;
use crate::stats::LaneGauges;
use crate::step::Acks;

/// Control messages to a lane.
pub(crate) enum Control {
    Attach {
        submitter: usize,
        port: Arc<Port>,
        ring: Option<Consumer<RequestClaim>>,
    },
    Detach {
        submitter: usize,
    },
    /// No submitter feeds the lane any more, until each says so anew.
    Unfeed,
    Pause(Arc<Acks>),
    Resume,
    /// Requests of a lane that can send nothing.
    Take(Vec<RequestClaim>),
    /// A hold that was taken, on its way through the lanes.
    Settle(RequestClaim),
    /// Requests past soft queue and scheduler: of a read-modify-write, or of a lane that closes.
    Send(Vec<RequestClaim>),
}

/// The ways of a lane from its submitters (soft queues) and back to them (replies).
#[derive(Default)]
pub(crate) struct Ways {
    pub(crate) soft: Soft,
    pub(crate) replies: Replies,
}

/// The part of a lane that control calls reach.
#[derive(Default)]
pub(crate) struct LanePort {
    pub(crate) control: Mailbox<Control>,
    pub(crate) gauges: Arc<LaneGauges>,
    state: Mutex<LaneState>,
}

/// The state that changes when a lane is opened or closed, or the device quiesced.
#[derive(Default)]
pub(crate) struct LaneState {
    pub(crate) open: bool,
    /// How many hold the device quiesced.
    pub(crate) quiesced: u32,
    /// The ways from and to its submitters, while it is closed.
    pub(crate) kept: Option<Ways>,
}

impl LanePort {
    pub(crate) fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().expect("a lane's lock")
    }
}
