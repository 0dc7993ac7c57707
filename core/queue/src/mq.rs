//! The multi-queue path: a lane for each hard queue, turned by its home. Submitters feed it through
//! soft queues; a scheduler, if there is one, stands behind the right that lanes hand to one
//! another (`order/`). Nothing here is shared for an I/O but marks and rings. Requests in front of
//! a driver are in `hard/`, submitters in `submit/`.

use std::sync::Arc;

use weir_bio::SubmitterId;
use weir_ring::{Changing, Combiner, Producer, ring};

use crate::bell::Port;
use crate::config::Spread;
use crate::grown::Grown;
use crate::lanes::{ELEVATOR, Lanes};
use crate::order::dispatcher::Dispatcher;
use crate::order::elevator::Elevator;
use crate::request::RequestClaim;
use crate::snapshot::Snapshot;
use crate::step::{Acks, Watch};

pub(crate) mod lane;
pub(crate) mod port;
pub(crate) mod soft;

use port::{Control, Introduction, LanePort};

/// The lanes of a device, with what they share.
pub(crate) struct Mq {
    /// All there can be; those in use are the first of them ([`Snapshot::queues`]).
    pub(crate) lanes: Lanes,
    pub(crate) ports: Grown<LanePort>,
    pub(crate) dispatcher: Combiner<Dispatcher>,
    pub(crate) spread: Spread,
}

impl Mq {
    /// When there was other I/O than throttled writes on a lane, ns; 0: never.
    pub(crate) fn touched(&self) -> u64 {
        self.ports.iter().map(|port| port.gauges.observed.touched()).max().unwrap_or(0)
    }

    /// Makes a submitter known to every lane in use, and gives it a ring into each that it feeds:
    /// all in round-robin spread, else number `lane` modulo their number.
    pub(crate) fn attach(
        &self,
        id: SubmitterId,
        port: &Arc<Port>,
        lane: usize,
        snapshot: &Snapshot,
    ) -> Vec<Producer<RequestClaim>> {
        let mut rings = Vec::new();
        let lanes = usize::from(snapshot.queues);
        for index in 0..lanes {
            let feeds = index == lane % lanes || self.spread == Spread::RoundRobin;
            let (submitter, port) = (usize::from(id.0), Arc::clone(port));
            let consumer = feeds.then(|| {
                let (producer, consumer) = ring(usize::from(snapshot.slots));
                rings.push(producer);
                consumer
            });
            let attach = Introduction::Attach { submitter, port, ring: consumer };
            self.post(index, Control::Introduce(attach));
        }
        rings
    }

    /// A submitter that has nothing under way is forgotten by each of the first so many lanes.
    pub(crate) fn detach(&self, submitter: usize, lanes: u16) {
        for lane in 0..usize::from(lanes) {
            self.post(lane, Control::Introduce(Introduction::Detach { submitter }));
            self.ports[lane].note_if_closed();
        }
    }

    pub(crate) fn post(&self, lane: usize, message: Control) {
        self.ports[lane].control.post(message);
        self.lanes[lane].ring();
    }

    /// Sends a hold that was taken to the first open lane from `lane` on; gives it back if there is
    /// none. One that is opened later finds the hold standing.
    #[cold]
    pub(crate) fn settle(
        &self,
        hold: RequestClaim,
        lane: usize,
        queues: u16,
    ) -> Option<RequestClaim> {
        for index in lane..usize::from(queues) {
            // Under the lock: a lane that closes takes its messages first.
            let state = self.ports[index].state();
            if state.open {
                self.post(index, Control::Settle(hold));
                return None;
            }
        }
        Some(hold)
    }

    /// Sends requests past soft queue and scheduler to this lane, or to the next that is open: a
    /// lane whose home has let go of it sends nothing. Without one they wait until this is opened.
    #[cold]
    pub(crate) fn send(&self, claims: Vec<RequestClaim>, lane: usize, queues: u16) {
        for index in (lane..usize::from(queues)).chain(0..lane) {
            // Under the lock: a lane that closes takes its messages first.
            let state = self.ports[index].state();
            if state.open {
                return self.post(index, Control::Send(claims));
            }
        }
        self.post(lane, Control::Send(claims));
    }

    /// Sends a hold that was taken to the first lane.
    #[cold]
    pub(crate) fn begin_to_settle(&self, hold: RequestClaim, queues: u16) {
        if let Some(hold) = self.settle(hold, 0, queues) {
            // Every lane is closed. The first one opened looks for it.
            self.post(0, Control::Settle(hold));
        }
    }

    /// Has every open lane stop sending; each answers when it has.
    pub(crate) fn pause(&self, watch: &Watch) -> Arc<Acks> {
        let acks = Acks::new(watch);
        for (lane, port) in self.ports.all().enumerate() {
            // A lane that closes answers what it was asked before.
            let mut state = port.state();
            state.quiesced += 1;
            if state.open {
                acks.expect();
                self.post(lane, Control::Pause(Arc::clone(&acks)));
            }
        }
        acks
    }

    /// Undoes one [`pause`](Mq::pause).
    pub(crate) fn resume(&self) {
        for (lane, port) in self.ports.all().enumerate() {
            let mut state = port.state();
            state.quiesced -= 1;
            if state.open {
                self.post(lane, Control::Resume);
            }
        }
    }

    /// Calls `with` on the elevator, if there is one, under the right. It has heard of all that its
    /// callers know to have ended.
    pub(crate) fn with_dispatcher<T>(&self, with: impl FnOnce(&mut Option<Elevator>) -> T) -> T {
        self.with_right(|dispatcher| {
            dispatcher.hear_ends();
            with(&mut dispatcher.elevator)
        })
    }

    /// Calls `with` under the right, for which it waits.
    pub(crate) fn with_right<T>(&self, with: impl FnOnce(&mut Dispatcher) -> T) -> T {
        let mut changing = self.dispatcher.take();
        let answer = with(&mut changing);
        self.let_go(changing);
        answer
    }

    /// Lets go of the right; lanes that were turned away meanwhile ask again.
    pub(crate) fn let_go(&self, changing: Changing<'_, Dispatcher>) {
        self.dispatcher.let_go(changing, |lane| _ = self.lanes.kick(lane, ELEVATOR));
    }
}
