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
use weir_queue::{Completion, Device, Error, HeldBack, Kept, Refused};

/// The reply to an I/O: the kernel's request to answer, and the bytes it counts.
pub(crate) enum Reply {
    /// A read: so many bytes behind so many that were read because blocks are whole.
    Read { reply: ReplyData, skip: usize, len: usize },
    /// A write of so many bytes.
    Write { reply: ReplyWrite, len: u32 },
    /// A flush.
    Flush(ReplyEmpty),
}

/// How the end of an I/O is told.
pub(crate) trait Answer: Send + 'static {
    fn end(self, completion: &Completion);
}

impl Answer for Reply {
    fn end(self, completion: &Completion) {
        let Completion { status, data, .. } = completion;
        match self {
            Reply::Read { reply, .. } if !status.is_ok() => reply.error(errno(*status)),
            Reply::Write { reply, .. } if !status.is_ok() => reply.error(errno(*status)),
            Reply::Flush(reply) if !status.is_ok() => reply.error(errno(*status)),
            Reply::Read { reply, skip, len } => match data.bufs() {
                [buf] => reply.data(&buf[skip..skip + len]),
                // Zeros without memory of their own, or pieces.
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
pub(crate) struct Job<R = Reply> {
    pub(crate) bio: Bio,
    /// The bytes that a write keeps of its first and its last block.
    pub(crate) kept: Kept,
    pub(crate) reply: R,
}

impl<R> Job<R> {
    /// Of whole blocks.
    pub(crate) fn new(bio: Bio, reply: R) -> Job<R> {
        Job { bio, kept: Kept::default(), reply }
    }
}

/// The way to a port. Dropping it gives the submitter back.
pub(crate) struct Opener<R: Answer = Reply> {
    arrivals: Arc<Arrivals<R>>,
    handle: Handle<Port<R>>,
}

struct Arrivals<R> {
    jobs: Mutex<Vec<Job<R>>>,
}

impl<R> Arrivals<R> {
    fn lock(&self) -> MutexGuard<'_, Vec<Job<R>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Answer> Opener<R> {
    /// A submitter into `device` on reactor `reactor` modulo their number.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor, or a device that is going away.
    pub(crate) fn open(host: &Host, reactor: usize, device: &Device) -> Result<Opener<R>, Error> {
        let arrivals = Arc::new(Arrivals { jobs: Mutex::default() });
        let (inside, device) = (Arc::clone(&arrivals), device.clone());
        let (failed, failure) = channel();
        let handle = host.install(reactor, move |turn| {
            let seat = turn.submitter(&device, 0).map_err(|error| failed.send(error)).ok();
            let (spare, waiting) = (Vec::new(), VecDeque::new());
            let (under_way, free) = (Vec::new(), Vec::new());
            let (held, refused) = (HeldBack::default(), false);
            Port { arrivals: inside, seat, spare, waiting, held, refused, under_way, free }
        })?;
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
    pub(crate) fn enter(&self, job: Job<R>) {
        let mut jobs = self.arrivals.lock();
        let first = jobs.is_empty();
        jobs.push(job);
        drop(jobs);
        if first {
            self.handle.post(|port, turn| port.arrive(turn.now()));
        }
    }
}

impl<R: Answer> Drop for Opener<R> {
    fn drop(&mut self) {
        self.handle.post(|port, turn| {
            if let Some(seat) = port.seat.take() {
                turn.leave(seat);
            }
        });
        self.handle.remove();
    }
}

/// One opener of a disk, as a service on its reactor.
struct Port<R> {
    arrivals: Arc<Arrivals<R>>,
    /// `None` only when there was none to be had, or at the end.
    seat: Option<Seat>,
    /// An empty list to put in the place of a full one; kept for its memory.
    spare: Vec<Job<R>>,
    /// Not accepted yet.
    waiting: VecDeque<Job<R>>,
    /// Not accepted yet because of caps.
    held: HeldBack<(Kept, R)>,
    /// The last one was refused for want of room, or by the gate.
    refused: bool,
    /// Replies by the cookie their I/O travels with.
    under_way: Vec<Option<R>>,
    free: Vec<usize>,
}

impl<R: Answer> Port<R> {
    fn arrive(&mut self, now: Nanos) {
        let spare = std::mem::take(&mut self.spare);
        let mut jobs = std::mem::replace(&mut *self.arrivals.lock(), spare);
        self.waiting.extend(jobs.drain(..));
        self.spare = jobs;
        self.send(now);
    }

    /// The next to be submitted: one whose time has come before one that is new.
    fn next(&mut self, now: Nanos) -> Option<(Bio, (Kept, R))> {
        if let Some(due) = self.held.pop_due(now) {
            return Some(due);
        }
        while let Some(Job { bio, kept, reply }) = self.waiting.pop_front() {
            if let Some(passed) = self.held.pass(bio, (kept, reply)) {
                return Some(passed);
            }
        }
        None
    }

    /// Submits what waits, as far as it is accepted. A refusal is followed by a nudge, or by the
    /// time a cap has told.
    fn send(&mut self, now: Nanos) {
        self.refused = false;
        while self.seat.is_some() {
            let Some((mut bio, (kept, reply))) = self.next(now) else { break };
            let Some(seat) = &mut self.seat else { return };
            let index = self.free.last().copied().unwrap_or(self.under_way.len());
            bio.cookie = index as u64;
            let submitted = match kept == Kept::default() {
                true => seat.submitter.submit(bio, now),
                false => seat.submitter.submit_unpaid_patch(bio, kept, now),
            };
            match submitted {
                Ok(()) => match self.free.pop() {
                    Some(_) => self.under_way[index] = Some(reply),
                    None => self.under_way.push(Some(reply)),
                },
                Err(Refused::Capped { bio, until }) => {
                    self.held.hold(bio, (kept, reply), until, now);
                }
                Err(Refused::Full(bio) | Refused::Frozen(bio)) => {
                    self.held.hold(bio, (kept, reply), now, now);
                    self.refused = true;
                    break;
                }
            }
        }
        if let Some(seat) = &mut self.seat {
            seat.submitter.flush_plug(now);
        }
    }
}

impl<R: Answer> Service for Port<R> {
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

    fn wake_at(&self) -> Option<Nanos> {
        self.held.wake_at().filter(|_| !self.refused)
    }

    fn timer(&mut self, turn: &mut Turn<'_>) {
        self.send(turn.now());
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::mpsc::{Receiver, Sender};

    use weir_bio::{Buf, Limits};
    use weir_queue::driver::Affinity;
    use weir_queue::{
        Batch, Caps, Config, Done, Driver, DriverError, DriverQueue, Groups, Queues, Tag,
    };

    use super::*;

    /// A disk that does nothing and answers at once.
    #[derive(Default)]
    struct Idle {
        taken: Vec<Tag>,
    }

    impl Driver for Idle {
        fn limits(&self) -> Limits {
            Limits { capacity: 2048, ..Limits::default() }
        }

        fn queues(&self) -> Queues {
            Queues { max: 1, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
        }

        fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
            Ok(Box::new(Idle::default()))
        }
    }

    impl DriverQueue for Idle {
        fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
            batch.take_all(|tag, _| self.taken.push(tag));
        }

        fn commit(&mut self, _: Nanos) {}

        fn reap(&mut self, _: Nanos, done: &mut Done) {
            self.taken.drain(..).for_each(|tag| done.push(tag, Status::Ok));
        }

        fn in_flight(&self) -> usize {
            self.taken.len()
        }
    }

    struct Told(Sender<Status>);

    impl Answer for Told {
        fn end(self, completion: &Completion) {
            // The test may have seen enough.
            let _ = self.0.send(completion.status);
        }
    }

    /// A disk open as a file, whose second read or write is due in minutes.
    struct Bed {
        host: Host,
        device: Device,
        groups: Arc<Groups>,
        opener: Opener<Told>,
        sender: Sender<Status>,
        answers: Receiver<Status>,
    }

    impl Bed {
        fn capped() -> Bed {
            let host = Host::new(1).unwrap();
            let config = Config { scheduler: Some("none".into()), ..Config::default() };
            let device = Device::new(config, Arc::new(Idle::default())).unwrap();
            let groups = Arc::new(Groups::default());
            device.attach_groups(&groups);
            let root = groups.create("").unwrap();
            let slow = NonZeroU64::new(1);
            groups.set_caps(root, Caps { rbps: slow, wbps: slow, ..Caps::default() }).unwrap();
            host.adopt(&device).unwrap();
            let opener = Opener::open(&host, 0, &device).unwrap();
            let (sender, answers) = channel();
            Bed { host, device, groups, opener, sender, answers }
        }

        fn enter(&self, bio: Bio, kept: Kept) {
            self.opener.enter(Job { bio, kept, reply: Told(self.sender.clone()) });
        }

        /// So many have ended well, and no more.
        #[track_caller]
        fn expect(&self, ended: usize) {
            let told: Vec<_> = self.answers.iter().take(ended).collect();
            assert_eq!(told, vec![Status::Ok; ended]);
            assert!(self.answers.try_recv().is_err(), "others are held back");
        }

        fn lift_caps(&self) {
            self.groups.set_caps(self.groups.find("").unwrap(), Caps::default()).unwrap();
        }

        /// Reads and writes that were paid for.
        fn paid(&self) -> [u64; 2] {
            self.groups.all()[0].used.ios
        }

        fn end(self) {
            drop(self.opener);
            self.host.retire(&self.device, 60_000_000_000).unwrap();
        }
    }

    #[test]
    fn a_file_keeps_to_the_caps_of_its_group_until_they_are_lifted() {
        let bed = Bed::capped();
        for number in 0..3 {
            bed.enter(Bio::read(8 * number, Buf::zeroed(4096)), Kept::default());
        }
        // A flush behind the reads is answered with the first of them alone.
        bed.enter(Bio::flush(), Kept::default());
        bed.expect(2);
        assert_eq!(bed.paid(), [1, 0]);
        bed.lift_caps();
        bed.expect(2);
        assert_eq!(bed.paid(), [3, 0]);
        bed.end();
    }

    #[test]
    fn a_write_that_ends_within_a_block_is_paid_for_once_and_kept_to_the_caps() {
        let bed = Bed::capped();
        for number in 0..3 {
            let kept = Kept { lead: 1, trail: 2 };
            bed.enter(Bio::write(8 * number, Buf::zeroed(4096)), kept);
        }
        bed.expect(1);
        assert_eq!(bed.paid(), [0, 1]);
        bed.lift_caps();
        bed.expect(2);
        // The write's reads of its own blocks are part of the write.
        assert_eq!(bed.paid(), [0, 3]);
        bed.end();
    }
}
