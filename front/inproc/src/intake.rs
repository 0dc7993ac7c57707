//! The service behind [`Pending`](crate::Pending) and callbacks: one on each reactor that has a
//! lane of the disk, or may get one.
//!
//! Other threads put jobs in a list under a lock; the first one to a list that was empty wakes the
//! reactor, so that a burst costs one wake. The reactor takes the whole list and submits it.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};

use weir_bio::{Bio, Nanos};
use weir_live::{Handle, Host, Readiness, Seat, Service, Turn};
use weir_queue::{Completion, Device, Error, Refused};

use crate::pending::Reply;

/// An I/O on its way to a reactor.
pub(crate) struct Job {
    pub(crate) bio: Bio,
    pub(crate) reply: Reply,
}

/// The way to an intake from any thread.
pub(crate) struct Door {
    arrivals: Arc<Arrivals>,
    handle: Handle<Intake>,
}

#[derive(Default)]
struct Arrivals {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    jobs: Vec<Job>,
    /// Those who want to know when nothing is left.
    closing: Vec<Sender<()>>,
    /// Nothing comes in any more.
    closed: bool,
    /// The intake does not exist any more.
    gone: bool,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("the lock of arriving I/O")
    }
}

impl Door {
    /// Puts an intake for `device` on reactor `index`.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor.
    pub(crate) fn open(host: &Host, index: usize, device: &Device) -> Result<Door, Error> {
        let arrivals = Arc::new(Arrivals::default());
        let (inside, device) = (Arc::clone(&arrivals), device.clone());
        let (failed, failure) = channel();
        let handle = host.install(index, move |turn| {
            let seat = turn.submitter(&device, 0).map_err(|error| failed.send(error)).ok();
            Intake::new(inside, seat)
        });
        match failure.try_recv() {
            Ok(error) => {
                handle.remove();
                Err(error)
            }
            Err(_) => Ok(Door { arrivals, handle }),
        }
    }

    /// Sends a job in. On a closed disk its reply says so at once.
    pub(crate) fn enter(&self, job: Job) {
        let mut list = self.arrivals.lock();
        if list.closed {
            drop(list);
            // Outside the lock: a reply may call anything, this included.
            drop(job);
            return;
        }
        let first = list.jobs.is_empty();
        list.jobs.push(job);
        drop(list);
        if first {
            self.handle.post(|intake, turn| intake.arrive(turn.now()));
        }
    }

    /// Lets nothing in any more. The channel closes when everything that came before has ended.
    pub(crate) fn close(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        let mut list = self.arrivals.lock();
        list.closed = true;
        if !list.gone {
            list.closing.push(sender);
        }
        drop(list);
        self.handle.post(|intake, turn| {
            intake.arrive(turn.now());
            intake.tell_closers();
        });
        receiver
    }

    /// Takes the intake away from its reactor. What is under way there ends as offline.
    pub(crate) fn remove(&self) {
        self.handle.post(|intake, turn| {
            if let Some(seat) = intake.seat.take() {
                turn.leave(seat);
            }
        });
        self.handle.remove();
    }
}

/// See the module.
pub(crate) struct Intake {
    arrivals: Arc<Arrivals>,
    /// `None` only when there was none to be had, or at the end.
    seat: Option<Seat>,
    /// An empty list to put in the place of a full one; kept for its memory.
    spare: Vec<Job>,
    /// Not accepted yet.
    waiting: VecDeque<Job>,
    under_way: Table,
    /// Ended, and about to be told; kept for its memory.
    ended: Vec<(Reply, Completion)>,
}

/// Replies by the cookie their I/O travels with.
#[derive(Default)]
struct Table {
    replies: Vec<Option<Reply>>,
    free: Vec<usize>,
}

impl Table {
    /// The cookie the next reply will have.
    fn next(&self) -> u64 {
        self.free.last().copied().unwrap_or(self.replies.len()) as u64
    }

    fn put(&mut self, reply: Reply) {
        match self.free.pop() {
            Some(index) => self.replies[index] = Some(reply),
            None => self.replies.push(Some(reply)),
        }
    }

    fn take(&mut self, cookie: u64) -> Reply {
        let reply = self.replies[cookie as usize].take();
        self.free.push(cookie as usize);
        reply.expect("an I/O ends once")
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.replies.len()
    }
}

impl Intake {
    fn new(arrivals: Arc<Arrivals>, seat: Option<Seat>) -> Intake {
        Intake {
            arrivals,
            seat,
            spare: Vec::new(),
            waiting: VecDeque::new(),
            under_way: Table::default(),
            ended: Vec::new(),
        }
    }

    fn arrive(&mut self, now: Nanos) {
        let spare = std::mem::take(&mut self.spare);
        let mut jobs = std::mem::replace(&mut self.arrivals.lock().jobs, spare);
        self.waiting.extend(jobs.drain(..));
        self.spare = jobs;
        self.send(now);
    }

    /// Submits what waits, as far as it is accepted. A refusal is followed by a nudge.
    fn send(&mut self, now: Nanos) {
        let Some(seat) = &mut self.seat else { return };
        while let Some(Job { mut bio, reply }) = self.waiting.pop_front() {
            bio.cookie = self.under_way.next();
            match seat.submitter.submit(bio, now) {
                Ok(()) => self.under_way.put(reply),
                Err(Refused::Full(bio) | Refused::Frozen(bio)) => {
                    self.waiting.push_front(Job { bio, reply });
                    break;
                }
            }
        }
        seat.submitter.flush_plug(now);
    }

    fn tell_closers(&mut self) {
        if self.waiting.is_empty() && self.under_way.is_empty() {
            let mut list = self.arrivals.lock();
            if list.jobs.is_empty() {
                list.closing.clear();
            }
        }
    }
}

impl Service for Intake {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let Some(seat) = &mut self.seat else { return };
        let (under_way, ended) = (&mut self.under_way, &mut self.ended);
        seat.submitter.complete(turn.now(), |completion| {
            ended.push((under_way.take(completion.cookie), completion));
        });
        // Only now are they counted in the statistics, and whoever is told may look there.
        ended.drain(..).for_each(|(reply, completion)| reply.end(completion));
        self.send(turn.now());
        self.tell_closers();
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Whatever is left, here and in the fields, says in its own drop that the disk is gone.
        let mut list = self.arrivals.lock();
        list.closed = true;
        list.gone = true;
        let left = (std::mem::take(&mut list.jobs), std::mem::take(&mut list.closing));
        // Outside the lock: a reply may call anything.
        drop(list);
        drop(left);
    }
}
