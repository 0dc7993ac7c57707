//! One opener of a disk: a submitter on a reactor, fed by the thread that takes the kernel's calls.
//!
//! Each call has memory of its own from the kernel's copy to its end, so that any number of them
//! may be under way. The first one to an empty list wakes the reactor, which takes the whole list.

use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use weir_bio::{Bio, Nanos, Status};
use weir_live::{Handle, Host, Readiness, Seat, Service, Turn};
use weir_queue::{Completion, Device, Error, Refused};

/// Whom to tell, and what.
pub(crate) enum Reply {
    /// A read: so many bytes behind so many that were read because blocks are whole.
    Read { reply: ReplyData, skip: usize, len: usize },
    /// A write of so many bytes.
    Write { reply: ReplyWrite, len: u32 },
    /// A flush.
    Flush(ReplyEmpty),
}

impl Reply {
    fn end(self, completion: &Completion) {
        let Completion { status, data, .. } = completion;
        match self {
            Reply::Read { reply, .. } if !status.is_ok() => reply.error(errno(*status)),
            Reply::Write { reply, .. } if !status.is_ok() => reply.error(errno(*status)),
            Reply::Flush(reply) if !status.is_ok() => reply.error(errno(*status)),
            Reply::Read { reply, skip, len } => match data.bufs() {
                [buf] => reply.data(&buf[skip..skip + len]),
                // Zeros that nobody wrote down, or pieces.
                _ => {
                    let mut bytes = vec![0; data.len()];
                    data.copy_to(&mut bytes);
                    reply.data(&bytes[skip..skip + len]);
                }
            },
            Reply::Write { reply, len } => reply.written(len),
            Reply::Flush(reply) => reply.ok(),
        }
    }
}

fn errno(status: Status) -> Errno {
    Errno::from_i32(status.errno())
}

/// An I/O on its way to a reactor.
pub(crate) struct Job {
    pub(crate) bio: Bio,
    pub(crate) reply: Reply,
}

/// The way to a port. Dropping it gives the submitter back.
pub(crate) struct Opener {
    arrivals: Arc<Arrivals>,
    handle: Handle<Port>,
}

#[derive(Default)]
struct Arrivals {
    jobs: Mutex<Vec<Job>>,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opener {
    /// A submitter into `device` on reactor `reactor` modulo their number.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor, or a device that is going away.
    pub(crate) fn open(host: &Host, reactor: usize, device: &Device) -> Result<Opener, Error> {
        let arrivals = Arc::new(Arrivals::default());
        let (inside, device) = (Arc::clone(&arrivals), device.clone());
        let (failed, failure) = channel();
        let handle = host.install(reactor, move |turn| {
            let seat = turn.submitter(&device, 0).map_err(|error| failed.send(error)).ok();
            let (spare, waiting) = (Vec::new(), VecDeque::new());
            let (under_way, free) = (Vec::new(), Vec::new());
            Port { arrivals: inside, seat, spare, waiting, under_way, free }
        });
        // The service was made before `install` came back, and its sender is gone.
        match failure.recv() {
            Ok(error) => {
                handle.remove();
                Err(error)
            }
            Err(_) => Ok(Opener { arrivals, handle }),
        }
    }

    /// Sends an I/O in. The kernel is told when it has ended.
    pub(crate) fn enter(&self, job: Job) {
        let mut jobs = self.arrivals.lock();
        let first = jobs.is_empty();
        jobs.push(job);
        drop(jobs);
        if first {
            self.handle.post(|port, turn| port.arrive(turn.now()));
        }
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.handle.post(|port, turn| {
            if let Some(seat) = port.seat.take() {
                turn.leave(seat);
            }
        });
        self.handle.remove();
    }
}

/// See the module.
struct Port {
    arrivals: Arc<Arrivals>,
    /// `None` only when there was none to be had, or at the end.
    seat: Option<Seat>,
    /// An empty list to put in the place of a full one; kept for its memory.
    spare: Vec<Job>,
    /// Not accepted yet.
    waiting: VecDeque<Job>,
    /// Replies by the cookie their I/O travels with.
    under_way: Vec<Option<Reply>>,
    free: Vec<usize>,
}

impl Port {
    fn arrive(&mut self, now: Nanos) {
        let spare = std::mem::take(&mut self.spare);
        let mut jobs = std::mem::replace(&mut *self.arrivals.lock(), spare);
        self.waiting.extend(jobs.drain(..));
        self.spare = jobs;
        self.send(now);
    }

    /// Submits what waits, as far as it is accepted. A refusal is followed by a nudge.
    fn send(&mut self, now: Nanos) {
        let Some(seat) = &mut self.seat else { return };
        while let Some(Job { mut bio, reply }) = self.waiting.pop_front() {
            let index = self.free.last().copied().unwrap_or(self.under_way.len());
            bio.cookie = index as u64;
            match seat.submitter.submit(bio, now) {
                Ok(()) => match self.free.pop() {
                    Some(_) => self.under_way[index] = Some(reply),
                    None => self.under_way.push(Some(reply)),
                },
                Err(Refused::Full(bio) | Refused::Frozen(bio)) => {
                    self.waiting.push_front(Job { bio, reply });
                    break;
                }
            }
        }
        seat.submitter.flush_plug(now);
    }
}

impl Service for Port {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let Some(seat) = &mut self.seat else { return };
        let (under_way, free) = (&mut self.under_way, &mut self.free);
        seat.submitter.complete(turn.now(), |completion| {
            let index = completion.cookie as usize;
            let reply = under_way[index].take().expect("an I/O ends once");
            free.push(index);
            reply.end(&completion);
        });
        self.send(turn.now());
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}
