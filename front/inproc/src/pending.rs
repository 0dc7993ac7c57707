//! I/O that may be started from any thread, answered to a [`Pending`] or to a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use weir_bio::{Bio, Data, Op, Status};
use weir_live::Answer;
use weir_queue::Completion;

use crate::error::explained;
use crate::slot::{Slot, block_on};

/// An I/O under way: a [`Future`] of its [`Completion`], for any runtime or none.
///
/// It may be awaited, [waited](Pending::wait) for by a thread, or dropped at any time: then the I/O
/// goes on, and its memory is freed when the device has let go of it.
///
/// An error of the I/O is the completion's status. If the disk is closed or its host ends before
/// the I/O was answered, that is [`Status::Offline`]; an I/O that was not accepted by then brings
/// its memory back.
#[must_use = "to start an I/O and not look at how it ended is to lose its errors"]
pub struct Pending {
    pub(crate) slot: Arc<Slot<Completion>>,
}

impl Pending {
    /// The I/O's handle, and the way to answer it.
    pub(crate) fn new(bio: &Bio, refusal: Option<Status>) -> (Pending, Reply) {
        let slot = Slot::new();
        let pending = Pending { slot: Arc::clone(&slot) };
        (pending, Reply::new(bio, refusal, To::Pending(slot)))
    }

    /// Blocks the calling thread until the I/O has ended. Not for a callback, which runs on a
    /// reactor: that would wait for itself.
    ///
    /// # Panics
    /// When it was polled to its end before.
    pub fn wait(self) -> Completion {
        block_on(self)
    }

    /// Whether it has ended: the next poll is ready.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.slot.has_ended()
    }
}

impl Future for Pending {
    type Output = Completion;

    /// # Panics
    /// When it was ready before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        self.slot.poll(context, "a Pending")
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.has_ended() { "Pending(ended)" } else { "Pending(under way)" })
    }
}

/// The one answer an I/O gets: spent by [`end`](Reply::end), or by being dropped, which says that
/// the disk is gone.
pub(crate) struct Reply {
    cookie: u64,
    op: Op,
    sectors: u32,
    /// How it ends if the core refuses it.
    refusal: Option<Status>,
    to: Option<To>,
}

enum To {
    Pending(Arc<Slot<Completion>>),
    Call(Box<dyn FnOnce(Completion) + Send>),
}

impl Reply {
    fn new(bio: &Bio, refusal: Option<Status>, to: To) -> Reply {
        let Bio { cookie, op, sectors, .. } = *bio;
        Reply { cookie, op, sectors, refusal, to: Some(to) }
    }

    pub(crate) fn call(
        bio: &Bio,
        refusal: Option<Status>,
        call: impl FnOnce(Completion) + Send + 'static,
    ) -> Reply {
        Reply::new(bio, refusal, To::Call(Box::new(call)))
    }

    /// Whether this I/O is the one of that slot.
    pub(crate) fn is_for(&self, slot: &Arc<Slot<Completion>>) -> bool {
        matches!(&self.to, Some(To::Pending(own)) if Arc::ptr_eq(own, slot))
    }

    fn tell(&mut self, completion: Completion) {
        match self.to.take() {
            Some(To::Pending(slot)) => slot.end(completion),
            Some(To::Call(call)) => call(completion),
            None => {}
        }
    }
}

impl Answer for Reply {
    /// Hands the completion to its waiter, with the caller's cookie; on the way the I/O had one of
    /// the intake's.
    fn end(mut self, mut completion: Completion) {
        completion.cookie = self.cookie;
        completion.status = explained(completion.status, self.refusal);
        self.tell(completion);
    }

    fn gone(self, bio: Bio) {
        self.end(Completion::unsent(bio, Status::Offline));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Reply { cookie, op, sectors, .. } = *self;
        let gone = Bio::new(op, 0, sectors, Data::None).cookie(cookie);
        self.tell(Completion::unsent(gone, Status::Offline));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    struct Tally(AtomicU32);

    impl Wake for Tally {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tally() -> (Arc<Tally>, Waker) {
        let tally = Arc::new(Tally(AtomicU32::new(0)));
        (Arc::clone(&tally), Waker::from(tally))
    }

    fn completion(status: Status) -> Completion {
        Completion::unsent(Bio::flush().cookie(99), status)
    }

    #[test]
    fn the_last_waker_is_woken_once_and_the_cookie_is_the_callers() {
        let (mut pending, reply) = Pending::new(&Bio::flush().cookie(7), None);
        let (first, first_waker) = tally();
        let (second, second_waker) = tally();
        for waker in [&first_waker, &second_waker, &second_waker] {
            assert!(Pin::new(&mut pending).poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert!(!pending.has_ended());
        reply.end(completion(Status::Ok));
        assert_eq!(first.0.load(Ordering::Relaxed), 0);
        assert_eq!(second.0.load(Ordering::Relaxed), 1);
        assert!(pending.has_ended());
        assert_eq!(pending.wait().cookie, 7);
    }

    #[test]
    fn an_answer_that_is_dropped_says_offline_once() {
        let (pending, reply) = Pending::new(&Bio::flush().cookie(7), None);
        drop(reply);
        let ended = pending.wait();
        assert_eq!((ended.cookie, ended.status), (7, Status::Offline));
        let calls = Arc::new(AtomicU32::new(0));
        for drops in [true, false] {
            let calls = Arc::clone(&calls);
            let reply = Reply::call(&Bio::flush(), None, move |_| {
                calls.fetch_add(1, Ordering::Relaxed);
            });
            if drops { drop(reply) } else { reply.end(completion(Status::Ok)) }
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_answer_nobody_waits_for_is_freed_with_its_memory() {
        let (pending, reply) = Pending::new(&Bio::flush(), None);
        let slot = Arc::downgrade(&pending.slot);
        drop(pending);
        reply.end(completion(Status::Ok));
        assert!(slot.upgrade().is_none());
    }

    #[test]
    #[should_panic(expected = "polled after it was ready")]
    fn a_pending_polled_after_its_end_says_so() {
        let (mut pending, reply) = Pending::new(&Bio::flush(), None);
        reply.end(completion(Status::Ok));
        let (_, waker) = tally();
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut pending).poll(&mut context).is_ready());
        let _ = Pin::new(&mut pending).poll(&mut context);
    }
}
