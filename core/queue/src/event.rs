//! The events of a request, in one declared list, told to a sink where they happen.
//!
//! A [`Sink`] is handed to the calls of a [`Submitter`](crate::Submitter) and a
//! [`Lane`](crate::Lane) that end in `_telling`; the calls without that end are the same with
//! [`Silent`], of which nothing is left in the program. It is a parameter of calls, so that no type
//! carries it, and a home may listen in one turn and not in the next.
//!
//! Of each request:
//!
//! - [`Accepted`](What::Accepted) comes first, and then once either [`Merged`](What::Merged),
//!   [`TurnedAway`](What::TurnedAway) or [`Ended`](What::Ended), which is its last;
//! - [`Issued`](What::Issued) is followed, under the same driver tag and before the next `Issued`,
//!   by one of [`Answered`](What::Answered), [`Refused`](What::Refused),
//!   [`Requeued`](What::Requeued) and [`GivenUp`](What::GivenUp).
//!
//! The device's own flushes are requests too: they are issued and answered, under the last id of
//! all. A bio that ends before it is a request, such as a malformed one, is told of by its
//! completion alone. The events of a closing lane, or of a submitter that was dropped, are told to
//! no sink. Statistics ([`Stats`](crate::Stats)) are kept apart from this: they are always counted.

use weir_bio::{Nanos, Rq, RqId, SchedTag, Status, SubmitterId};
use weir_sched::merge::Side;

use crate::driver::Tag;

/// One event: its time, its place and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time of the call in which it happened.
    pub at: Nanos,
    /// The submitter or lane whose call that was.
    pub by: Place,
    /// The kind of the event.
    pub what: What,
}

/// A submitter or a lane of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// This submitter.
    Submitter(SubmitterId),
    /// The lane with this number.
    Lane(u16),
}

/// The kinds of events.
///
/// In each, `rq` is the request as it is at that moment, with its name, op, sector and sectors;
/// `tag` is its place in the driver, or in the scheduler where that takes it; `to` and `lane` are
/// where it goes; `status` is how it ended, or why it was not taken.
#[expect(missing_docs, reason = "fields that are named alike mean the same, which stands above")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A bio, or a part of one, has passed the gate and has a slot.
    Accepted { rq: Rq },
    /// The single queue had no request left for it: its bio went back to the caller.
    TurnedAway { rq: Rq },
    /// It is part of another request now, at this end.
    Merged { rq: Rq, into: RqId, side: Side },
    /// It waits in its submitter's plug.
    Plugged { rq: Rq },
    /// A submitter has sent on what its plug held: so many requests.
    Unplugged { requests: u32 },
    /// The lane is short of tags: it waits in the soft queue of its submitter, where it may merge.
    Staged { rq: Rq },
    /// It waits for a tag of the scheduler: none is free, or those under its depth limit are out.
    Parked { rq: Rq, limit: Option<u16>, free: u16 },
    /// The scheduler has it, under this tag.
    Inserted { rq: Rq, tag: SchedTag },
    /// The scheduler gave it for this lane.
    Picked { rq: Rq, lane: u16 },
    /// It was sent to another lane, its submitter's, ahead of that lane's asking.
    SentAhead { rq: Rq, to: u16 },
    /// It was offered to the driver, under this tag.
    Issued { rq: Rq, tag: Tag },
    /// The driver did not take it; it is offered again.
    Refused { rq: Rq, tag: Tag, status: Status },
    /// The driver handed it back, to be sent again after so long.
    Requeued { rq: Rq, tag: Tag, after_ns: u64 },
    /// The driver answered.
    Answered { rq: Rq, tag: Tag, status: Status },
    /// Its time was up while the driver had it.
    GivenUp { rq: Rq, tag: Tag },
    /// It is on its way back to its submitter.
    Ended { rq: Rq, status: Status },
    /// The scheduler's right, or the lock of the single queue, was taken.
    RightTaken,
    /// The right was let go of, or the lock.
    RightLetGo,
    /// The lane's work for the scheduler was left for the holder of the right.
    Delegated,
    /// A lane's home was rung for, or a submitter told; it slept and was woken.
    Doorbell { to: Place, woke: bool },
}

/// Listens to events.
pub trait Sink: Copy {
    /// Whether it listens at all.
    const LISTENS: bool = true;

    /// This happened. `event` is called at most once; it costs nothing when it is not.
    fn tell(self, event: impl FnOnce() -> Event);
}

/// Listens to nothing: the cost of events in a program that asks for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silent;

impl Sink for Silent {
    const LISTENS: bool = false;

    #[inline(always)]
    fn tell(self, _event: impl FnOnce() -> Event) {}
}

const _: () = assert!(std::mem::size_of::<Silent>() == 0, "silence takes no room");

/// Listens to the calls that a mapper's queues make at a device below it, which have no sink of
/// their own: the calls of a driver queue carry none.
pub trait Listener: Send + Sync {
    /// This happened.
    fn hear(&self, event: Event);
}

impl Sink for &dyn Listener {
    fn tell(self, event: impl FnOnce() -> Event) {
        self.hear(event());
    }
}

/// Keeps events in a list.
impl Sink for &std::cell::RefCell<Vec<Event>> {
    fn tell(self, event: impl FnOnce() -> Event) {
        self.borrow_mut().push(event());
    }
}

/// This happens in a call of a lane.
#[inline(always)]
pub(crate) fn lane_tells(sink: impl Sink, lane: u16, at: Nanos, what: impl FnOnce() -> What) {
    sink.tell(|| Event { at, by: Place::Lane(lane), what: what() });
}

/// This happens in a call of a submitter.
#[inline(always)]
pub(crate) fn submitter_tells(
    sink: impl Sink,
    id: SubmitterId,
    at: Nanos,
    what: impl FnOnce() -> What,
) {
    sink.tell(|| Event { at, by: Place::Submitter(id), what: what() });
}
