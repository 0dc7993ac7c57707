//! A disk's bounded queue, awaited: for an I/O, or for a place before there is one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use weir_bio::Bio;
use weir_live::{Job, Place, Waiting};

use crate::pending::{Pending, Reply};
use crate::shared::Open;

/// An I/O that waits for a place in the disk's [backlog](crate::Builder::backlog): a [`Future`] of
/// its [`Pending`], for any runtime or none. Back-pressure for tasks: a stuck disk holds up those
/// that submit, and their memory stays their own.
///
/// One that was woken has the place kept for it until it is polled or dropped: those behind it
/// wait meanwhile. Dropped before it is ready, the I/O was never started;
/// [`into_bio`](Enqueue::into_bio) gives it back.
#[must_use = "nothing is started before it is awaited"]
pub struct Enqueue {
    bio: Option<Bio>,
    waiting: Waiting,
    /// Which of the disk's doors it waits at.
    door: usize,
    open: Arc<Open>,
}

impl Enqueue {
    pub(crate) fn new(bio: Bio, open: Arc<Open>) -> Enqueue {
        Enqueue { bio: Some(bio), waiting: Waiting::default(), door: open.next_door(), open }
    }

    /// The I/O, if it was not started.
    #[must_use]
    pub fn into_bio(mut self) -> Option<Bio> {
        self.bio.take()
    }
}

impl Future for Enqueue {
    type Output = Pending;

    /// # Panics
    /// When it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Pending> {
        let Enqueue { bio, waiting, door, open } = &mut *self;
        assert!(bio.is_some(), "an Enqueue is polled after it was ready");
        let Some(entry) = open.doors[*door].room_for(waiting, context.waker()) else {
            return Poll::Pending;
        };
        let bio = bio.take().expect("it has just been seen");
        let (pending, reply) = Pending::new(&bio, open.refusal(&bio));
        entry.put(Job::new(bio, reply));
        Poll::Ready(pending)
    }
}

impl Drop for Enqueue {
    fn drop(&mut self) {
        self.open.doors[self.door].leave_line(&mut self.waiting);
    }
}

impl std::fmt::Debug for Enqueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Enqueue({})", if self.bio.is_some() { "waits for room" } else { "started" })
    }
}

/// A wait for a place in the disk's [backlog](crate::Builder::backlog), before there is memory for
/// an I/O: a [`Future`] of a [`Permit`], for any runtime or none. Places are given as to an
/// [`Enqueue`], with which it stands in one line.
#[must_use = "no place is kept before it is awaited"]
pub struct Reserve {
    waiting: Waiting,
    /// Which of the disk's doors it waits at.
    door: usize,
    open: Arc<Open>,
}

impl Reserve {
    pub(crate) fn new(open: Arc<Open>) -> Reserve {
        Reserve { waiting: Waiting::default(), door: open.next_door(), open }
    }
}

impl Future for Reserve {
    type Output = Permit;

    /// Polled again when it was ready, it waits for another place.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let Reserve { waiting, door, open } = &mut *self;
        match open.doors[*door].room_for(waiting, context.waker()) {
            Some(entry) => {
                let place = entry.keep();
                Poll::Ready(Permit { place, door: *door, open: Arc::clone(open) })
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.open.doors[self.door].leave_line(&mut self.waiting);
    }
}

impl std::fmt::Debug for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reserve(disk {})", self.open.name())
    }
}

/// A place in a disk's backlog, kept for one I/O. It keeps the disk open, and counts against the
/// backlog until it is used or dropped.
#[must_use = "the place is free again when it is dropped"]
pub struct Permit {
    place: Place<Reply>,
    door: usize,
    open: Arc<Open>,
}

impl Permit {
    pub(crate) fn at_once(open: &Arc<Open>) -> Option<Permit> {
        let door = open.next_door();
        let place = open.doors[door].room()?.keep();
        Some(Permit { place, door, open: Arc::clone(open) })
    }

    /// Starts an I/O at the place, without blocking. On a disk that was closed meanwhile it ends
    /// [`Offline`](weir_bio::Status::Offline), with its memory.
    pub fn start(self, bio: Bio) -> Pending {
        let Permit { place, door, open } = self;
        let (pending, reply) = Pending::new(&bio, open.refusal(&bio));
        open.doors[door].put(place, Job::new(bio, reply));
        pending
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit(disk {})", self.open.name())
    }
}
