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
    Introduce(Introduction),
    Pause(Arc<Acks>),
    Resume,
    /// Requests of a lane that can send nothing.
    Take(Vec<RequestClaim>),
    /// A hold that was taken, on its way through the lanes.
    Settle(RequestClaim),
    /// Requests past soft queue and scheduler: of a read-modify-write, or of a lane that closes.
    Send(Vec<RequestClaim>),
}

/// Of submitters that come and go.
pub(crate) enum Introduction {
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
}

/// The ways of a lane from its submitters (soft queues) and back to them (replies).
#[derive(Default)]
pub(crate) struct Ways {
    pub(crate) soft: Soft,
    pub(crate) replies: Replies,
}

impl Ways {
    #[cold]
    pub(crate) fn hear(&mut self, introduction: Introduction) {
        match introduction {
            Introduction::Attach { submitter, port, ring } => {
                self.replies.attach(submitter, port);
                if let Some(ring) = ring {
                    self.soft.attach(submitter, ring);
                }
            }
            Introduction::Detach { submitter } => {
                self.soft.detach(submitter);
                self.replies.detach(submitter);
            }
            Introduction::Unfeed => self.soft.detach_all(),
        }
    }
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

    /// Notes which submitters came and went in what a closed lane keeps: as messages they would
    /// gather for as long as it is closed. One that is just opened or closed is left alone, which
    /// may take as long as its driver does; what waits is noted when the next submitter goes.
    pub(crate) fn note_if_closed(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        if state.open {
            return;
        }
        let introduction = |message| match message {
            Control::Introduce(introduction) => Ok(introduction),
            other => Err(other),
        };
        while let Some(introduction) = self.control.take_kind(introduction) {
            state.kept.get_or_insert_default().hear(introduction);
        }
    }
}
