//! I/O from threads that turn no lane: a [`Door`] that any thread hands [`Job`]s to, and behind it
//! a service with a submitter on a reactor.
//!
//! Other threads put jobs in a list under a lock; the first one to a list that was empty wakes the
//! reactor, so that a burst costs one wake. The reactor takes the whole list and submits it. The
//! jobs handed over and not accepted yet are bounded; at the bound a thread waits, and a reactor,
//! which must not, is refused.
//!
//! An answer may call anything, this included. None is told under the lock. I/O that a callback
//! submits on an open disk gets the reactor's next round, whether it is refused or not; the end of
//! I/O submitted on a closed disk is told when the callback has returned.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::Waker;

use weir_bio::line::TaskLine;
use weir_bio::{Bio, GroupId, IoPrio, Nanos, Status};
use weir_queue::{
    ClientTimes, Completion, Device, Error, HeldBack, Histogram, Kept, Refused, Tally,
};

use crate::host::Host;
use crate::poll::Readiness;
use crate::polling::{PollRule, PollVote};
use crate::service::{Handle, Seat, Service, Turn};

mod entry;
mod table;

pub use entry::{Entry, Place};
use table::Table;
pub use weir_bio::line::Waiting;

/// The way in which the end of an I/O is told: once, by [`end`](Answer::end) or by being dropped,
/// which says that the disk is gone.
pub trait Answer: Send + 'static {
    /// Tells how the I/O ended. The completion's cookie is the intake's own. It runs on a reactor
    /// and must not block.
    fn end(self, completion: Completion);

    /// The disk is gone, and never accepted this I/O, whose memory is here. If it is not told
    /// otherwise, the memory goes and the answer is dropped.
    fn gone(self, bio: Bio)
    where
        Self: Sized,
    {
        drop(bio);
    }
}

/// An I/O on its way to a reactor.
pub struct Job<A> {
    bio: Bio,
    /// The bytes that a write keeps of its first and its last block.
    kept: Kept,
    answer: A,
}

impl<A> Job<A> {
    /// An I/O of whole blocks.
    pub fn new(bio: Bio, answer: A) -> Job<A> {
        Job { bio, kept: Kept::default(), answer }
    }

    /// A write that keeps bytes of its first and its last block: a read-modify-write of these.
    #[must_use]
    pub fn keeping(self, kept: Kept) -> Job<A> {
        Job { kept, ..self }
    }
}

/// The way to an intake from any thread.
pub struct Door<A: Answer> {
    arrivals: Arc<Arrivals<A>>,
    handle: Handle<Intake<A>>,
    tally: Tally,
}

struct Arrivals<A> {
    list: Mutex<List<A>>,
    /// There is room again, or nothing comes in any more.
    room: Condvar,
    /// I/Os that may be handed over and not accepted.
    most: usize,
    /// Times for which caps held I/O back; the intake adds them.
    cap_waits: Histogram,
}

struct List<A> {
    jobs: Vec<Job<A>>,
    /// Handed over and not accepted yet, on the list or beyond it.
    unaccepted: usize,
    /// Threads that wait for room.
    waiting: usize,
    /// Refused to a reactor, and not told yet.
    refused: Vec<Job<A>>,
    /// Tasks that wait for room.
    tasks: TaskLine,
    /// To be told that the disk is closed, with the I/O where that was not accepted.
    offline: Vec<(A, Option<Bio>)>,
    /// A thread is telling them.
    telling: bool,
    /// Closed when nothing is left.
    closing: Vec<Sender<()>>,
    /// Nothing comes in any more.
    closed: bool,
    /// The intake does not exist any more.
    gone: bool,
}

impl<A> Default for List<A> {
    fn default() -> List<A> {
        List {
            jobs: Vec::new(),
            unaccepted: 0,
            waiting: 0,
            tasks: TaskLine::new(),
            refused: Vec::new(),
            offline: Vec::new(),
            telling: false,
            closing: Vec::new(),
            closed: false,
            gone: false,
        }
    }
}

impl<A> Arrivals<A> {
    fn lock(&self) -> MutexGuard<'_, List<A>> {
        self.list.lock().expect("the lock of arriving I/O")
    }

    /// So many were accepted, or will never be.
    fn leave(&self, count: usize) {
        if count > 0 {
            let mut list = self.lock();
            list.unaccepted -= count;
            if list.waiting > 0 {
                self.room.notify_all();
            }
            let tasks = list.tasks.take(count);
            drop(list);
            // Outside the lock: a waker may poll on the spot.
            tasks.into_iter().for_each(Waker::wake);
        }
    }
}

impl<A: Answer> Arrivals<A> {
    /// Tells answers that the disk is closed, unless a thread does so already: it tells these as
    /// well. Those that come from an answer are told after it.
    fn tell_offline(&self) {
        if std::mem::replace(&mut self.lock().telling, true) {
            return;
        }
        let _telling = Telling(self);
        loop {
            let mut list = self.lock();
            let answers = std::mem::take(&mut list.offline);
            list.telling = !answers.is_empty();
            drop(list);
            if answers.is_empty() {
                return;
            }
            for (answer, bio) in answers {
                match bio {
                    Some(bio) => answer.gone(bio),
                    None => drop(answer),
                }
            }
        }
    }
}

/// A thread that tells answers; one that panics over it does so no longer.
struct Telling<'a, A>(&'a Arrivals<A>);

impl<A> Drop for Telling<'_, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().telling = false;
        }
    }
}

impl<A: Answer> Door<A> {
    /// Puts an intake for `device` on reactor `index` modulo their number. It takes `most` jobs
    /// that are not accepted yet.
    ///
    /// # Errors
    /// Too many submitters, in the device or on the reactor, or a device that is going away.
    pub fn open(host: &Host, index: usize, device: &Device, most: usize) -> Result<Door<A>, Error> {
        let (list, room) = (Mutex::default(), Condvar::new());
        let arrivals = Arc::new(Arrivals { list, room, most, cap_waits: Histogram::default() });
        let (inside, device) = (Arc::clone(&arrivals), device.clone());
        let (sender, receiver) = channel();
        let handle = host.install(index, move |turn| {
            let (told, seat) = match turn.submitter(&device, 0) {
                Ok(seat) => (Ok(seat.submitter.tally()), Some(seat)),
                Err(error) => (Err(error), None),
            };
            // It is received below.
            let _ = sender.send(told);
            Intake::new(inside, seat, turn.vote(PollRule::default()))
        })?;
        match receiver.recv().expect("the intake has been made") {
            Ok(tally) => Ok(Door { arrivals, handle, tally }),
            Err(error) => {
                handle.remove();
                Err(error)
            }
        }
    }

    /// The figures of its submitter.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The times of its I/O.
    pub fn times(&self) -> ClientTimes {
        let mut times = self.tally.times();
        self.arrivals.cap_waits.add_to(&mut times.held);
        times
    }

    /// Gives the I/O that comes from now on this group and priority, whatever the jobs say; without
    /// a priority each has its own. In the background its writes are as write-back's.
    pub fn reclassify(&self, group: GroupId, ioprio: IoPrio, background: bool) {
        self.handle.post(move |intake, _| intake.class = Some((group, ioprio, background)));
    }

    /// Has its reactor poll by the strongest of these rules at least, as long as the intake is
    /// there and no others are given. Without a call it asks for that of the host.
    pub fn vote(&self, rules: Vec<PollRule>) {
        self.handle.post(move |intake, turn| {
            intake.votes = rules.into_iter().map(|rule| turn.vote(rule)).collect();
        });
    }

    /// A place for a job, if there is one. A closed disk has room for all: their answers say so.
    #[must_use]
    pub fn room(&self) -> Option<Entry<'_, A>> {
        let list = self.arrivals.lock();
        let full = list.unaccepted >= self.arrivals.most && !list.closed;
        (!full).then(|| Entry { door: self, list, _waker: None })
    }

    /// Sends a job in at a place that was kept here.
    ///
    /// # Panics
    /// When the place is another door's.
    pub fn put(&self, mut place: Place<A>, job: Job<A>) {
        let kept = place.0.take().is_some_and(|kept| Arc::ptr_eq(&kept, &self.arrivals));
        assert!(kept, "a place of another door");
        let mut list = self.arrivals.lock();
        // It is the job's, which counts for itself.
        list.unaccepted -= 1;
        Entry { door: self, list, _waker: None }.put(job);
    }

    /// As [`room`](Door::room), for a task that waits for a place: it is woken when there may be
    /// one. It keeps `waiting` until then, or gives it back to [`leave_line`](Door::leave_line).
    pub fn room_for(&self, waiting: &mut Waiting, waker: &Waker) -> Option<Entry<'_, A>> {
        let mut list = self.arrivals.lock();
        if list.unaccepted >= self.arrivals.most && !list.closed {
            let before = list.tasks.wait(waiting, waker);
            drop(list);
            drop(before);
            return None;
        }
        let _waker = list.tasks.leave(waiting).waker;
        Some(Entry { door: self, list, _waker })
    }

    /// The task waits for no place any more; one that it was woken for is another's.
    pub fn leave_line(&self, waiting: &mut Waiting) {
        let mut list = self.arrivals.lock();
        let left = list.tasks.leave(waiting);
        let passes_on = left.was_woken && list.unaccepted < self.arrivals.most;
        let next = if passes_on { list.tasks.take(1) } else { Vec::new() };
        drop(list);
        next.into_iter().for_each(Waker::wake);
    }

    /// Ends the job whose answer is meant as AGAIN, with its memory, if the disk has not accepted
    /// it yet. Any other goes its way.
    pub fn withdraw(&self, is_meant: impl Fn(&A) -> bool + Send + 'static) {
        self.handle.post(move |intake, turn| {
            intake.arrive(turn.now());
            intake.withdraw(&is_meant);
        });
    }

    /// Sends a job in. For a place a thread waits; on a reactor, which must not, the job ends
    /// AGAIN in the reactor's next round.
    pub fn enter(&self, job: Job<A>, is_reactor: impl FnOnce() -> bool) {
        match self.room() {
            Some(entry) => entry.put(job),
            None if is_reactor() => self.refuse(job),
            None => self.wait_for_room().put(job),
        }
    }

    #[cold]
    fn refuse(&self, job: Job<A>) {
        let mut list = self.arrivals.lock();
        let first = list.refused.is_empty();
        list.refused.push(job);
        drop(list);
        if first {
            self.handle.post(|intake, _| intake.has_refused = true);
        }
    }

    #[cold]
    fn wait_for_room(&self) -> Entry<'_, A> {
        let Arrivals { room, most, .. } = &*self.arrivals;
        let mut list = self.arrivals.lock();
        list.waiting += 1;
        while list.unaccepted >= *most && !list.closed {
            list = room.wait(list).expect("the lock of arriving I/O");
        }
        list.waiting -= 1;
        Entry { door: self, list, _waker: None }
    }

    /// Lets nothing in any more. The channel closes when everything that came before has ended.
    pub fn close(&self) -> Receiver<()> {
        let (sender, receiver) = channel();
        let mut list = self.arrivals.lock();
        list.closed = true;
        if !list.gone {
            list.closing.push(sender);
        }
        self.arrivals.room.notify_all();
        let tasks = list.tasks.take(usize::MAX);
        drop(list);
        tasks.into_iter().for_each(Waker::wake);
        self.handle.post(|intake, turn| {
            intake.arrive(turn.now());
            intake.let_held_go();
            intake.tell_closers();
        });
        receiver
    }

    /// Lets I/O in again, after a close that was given up.
    pub fn reopen(&self) {
        let mut list = self.arrivals.lock();
        list.closed = list.gone;
        list.closing.clear();
    }

    /// Takes the intake away from its reactor. I/O under way there ends as offline.
    pub fn remove(&self) {
        self.handle.post(|intake, turn| {
            if let Some(seat) = intake.seat.take() {
                turn.leave(seat);
            }
        });
        self.handle.remove();
    }
}

/// The list of jobs of one reactor, and how full it may be.
struct Intake<A: Answer> {
    arrivals: Arc<Arrivals<A>>,
    /// `None` only when there was none to be had, or at the end.
    seat: Option<Seat>,
    /// The rules of polling that its user asks for: at first none of its own.
    votes: Vec<PollVote>,
    /// An empty list to put in the place of a full one; kept for its memory.
    spare: Vec<Job<A>>,
    /// Not accepted yet.
    waiting: VecDeque<Job<A>>,
    /// Not accepted yet because of caps.
    held: HeldBack<Waiter<A>>,
    /// The group and the priority of all I/O, if they are not the jobs' own.
    class: Option<(GroupId, IoPrio, bool)>,
    /// The last one was refused for want of room, or by the gate.
    refused: bool,
    /// There are jobs that a reactor was refused.
    has_refused: bool,
    under_way: Table<A>,
    /// Ended, and about to be told; kept for its memory.
    ended: Vec<(A, Completion)>,
}

/// The rest of a job whose I/O waits to be accepted.
struct Waiter<A> {
    kept: Kept,
    answer: A,
    /// When it came to be looked at.
    since: Nanos,
}

impl<A: Answer> Intake<A> {
    fn new(arrivals: Arc<Arrivals<A>>, seat: Option<Seat>, vote: PollVote) -> Intake<A> {
        Intake {
            arrivals,
            seat,
            votes: vec![vote],
            spare: Vec::new(),
            waiting: VecDeque::new(),
            held: HeldBack::default(),
            class: None,
            refused: false,
            has_refused: false,
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

    /// The next to be submitted: one whose time has come before one that is new.
    fn next(&mut self, now: Nanos) -> Option<(Bio, Waiter<A>)> {
        if let Some(due) = self.held.pop_due(now) {
            return Some(due);
        }
        while let Some(Job { mut bio, kept, answer }) = self.waiting.pop_front() {
            if let Some((group, ioprio, background)) = self.class {
                bio.group = group;
                if ioprio != IoPrio::NONE {
                    bio.ioprio = ioprio;
                }
                if background && bio.op.is_write() && bio.sectors > 0 {
                    bio.flags = bio.flags.in_background();
                }
            }
            if let Some(passed) = self.held.pass(bio, Waiter { kept, answer, since: now }) {
                return Some(passed);
            }
        }
        None
    }

    /// Submits what waits, as far as it is accepted. A refusal is followed by a nudge, or by the
    /// time a cap has told.
    fn send(&mut self, now: Nanos) {
        self.refused = false;
        let mut accepted = 0;
        while self.seat.is_some() {
            let Some((mut bio, waiter)) = self.next(now) else { break };
            let Some(seat) = &mut self.seat else { return };
            bio.cookie = self.under_way.next();
            let submitted = match waiter.kept == Kept::default() {
                true => seat.submitter.submit(bio, now),
                false => seat.submitter.submit_unpaid_patch(bio, waiter.kept, now),
            };
            match submitted {
                Ok(()) => {
                    self.under_way.put(waiter.answer);
                    if waiter.since < now {
                        self.arrivals.cap_waits.record(now.since(waiter.since));
                    }
                    accepted += 1;
                }
                Err(Refused::Capped { bio, until }) => {
                    self.held.hold(bio, waiter, until, now);
                }
                Err(refused) => {
                    let bio = refused.into_bio();
                    // No cap is the reason.
                    self.held.hold(bio, Waiter { since: Nanos(u64::MAX), ..waiter }, now, now);
                    self.refused = true;
                    break;
                }
            }
        }
        if let Some(seat) = &mut self.seat {
            seat.submitter.flush_plug(now);
        }
        self.arrivals.leave(accepted);
    }

    /// Tells jobs that a reactor was refused; what their callbacks submit has the next round.
    #[cold]
    fn tell_refused(&mut self) {
        self.has_refused = false;
        let refused = std::mem::take(&mut self.arrivals.lock().refused);
        for Job { bio, answer, .. } in refused {
            answer.end(Completion::unsent(bio, Status::Again));
        }
    }

    /// Ends a job that waits to be accepted and is meant.
    fn withdraw(&mut self, is_meant: &dyn Fn(&A) -> bool) {
        let at = self.waiting.iter().position(|job| is_meant(&job.answer));
        let withdrawn = match at.and_then(|at| self.waiting.remove(at)) {
            Some(Job { bio, answer, .. }) => Some((bio, answer)),
            None => {
                let held = self.held.withdraw(|waiter| is_meant(&waiter.answer));
                held.map(|(bio, waiter)| (bio, waiter.answer))
            }
        };
        if let Some((bio, answer)) = withdrawn {
            self.arrivals.leave(1);
            answer.end(Completion::unsent(bio, Status::Again));
            self.tell_closers();
        }
    }

    /// Ends as offline what caps hold back of a disk that closes: it was never accepted.
    fn let_held_go(&mut self) {
        if !self.refused {
            let held = self.held.drain();
            let answers: Vec<_> = held.map(|(bio, waiter)| (waiter.answer, Some(bio))).collect();
            self.arrivals.leave(answers.len());
            self.arrivals.lock().offline.extend(answers);
            self.arrivals.tell_offline();
        }
    }

    fn tell_closers(&mut self) {
        if self.waiting.is_empty() && self.held.is_empty() && self.under_way.is_empty() {
            let mut list = self.arrivals.lock();
            if list.jobs.is_empty() {
                list.closing.clear();
            }
        }
    }
}

impl<A: Answer> Service for Intake<A> {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let Some(seat) = &mut self.seat else { return };
        let (under_way, ended) = (&mut self.under_way, &mut self.ended);
        seat.submitter.complete(turn.now(), |completion| {
            ended.push((under_way.take(completion.cookie), completion));
        });
        // Only now are they counted in the statistics, where the receiver of an answer may look.
        ended.drain(..).for_each(|(answer, completion)| answer.end(completion));
        self.send(turn.now());
        self.tell_closers();
    }

    fn settle(&mut self, _: &mut Turn<'_>) {
        if self.has_refused {
            self.tell_refused();
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.held.wake_at().filter(|_| !self.refused)
    }

    fn timer(&mut self, turn: &mut Turn<'_>) {
        self.send(turn.now());
    }
}

impl<A: Answer> Drop for Intake<A> {
    fn drop(&mut self) {
        let mut list = self.arrivals.lock();
        list.closed = true;
        list.gone = true;
        list.closing.clear();
        let jobs = std::mem::take(&mut list.jobs).into_iter();
        let jobs = jobs.chain(std::mem::take(&mut list.refused)).chain(self.waiting.drain(..));
        list.offline.extend(jobs.map(|job| (job.answer, Some(job.bio))));
        let held = self.held.drain();
        list.offline.extend(held.map(|(bio, waiter)| (waiter.answer, Some(bio))));
        list.offline
            .extend(self.under_way.answers.drain(..).flatten().map(|answer| (answer, None)));
        list.offline.extend(self.ended.drain(..).map(|(answer, _)| (answer, None)));
        self.arrivals.room.notify_all();
        let tasks = list.tasks.take(usize::MAX);
        drop(list);
        tasks.into_iter().for_each(Waker::wake);
        self.arrivals.tell_offline();
    }
}
