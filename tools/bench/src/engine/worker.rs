//! One thread of a bench: the home of its share of the lanes of every device, all of which it turns
//! in each round. It serves the clients that were given to it.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{Bell, Clock, Device, QueueMode, Submitter};
use weir_bio::Nanos;
use weir_live::EventWake;
use weir_queue::{Home, Waiter};

use crate::engine::alarm::Alarm;
use crate::engine::client::{Client, Failed, Plan};
use crate::engine::seat::{Seat, Sink};
use crate::engine::tally::Tally;
use crate::engine::used::Used;

/// A lane that waits for less than this is not kept waiting by an alarm, ns.
const SOON_NS: u64 = 10_000_000;

/// The time that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Nanos,
    /// When the time of all clients is up; `None` if a client has no end.
    pub(crate) until: Option<Nanos>,
}

/// The news of a thread to the watcher.
pub(crate) enum News {
    /// It has what it needs, or not.
    Ready(Result<(), String>),
    /// An I/O failed, or a block was not what it should be.
    Failed(Failed),
    /// No client has a measured I/O to do any more.
    Over,
    /// All its clients have done.
    Done,
}

/// The state that all threads share.
pub(crate) struct Shared<'a> {
    pub(crate) devices: Vec<&'a Device>,
    /// Devices that no client uses but others lie on, each after those that it lies on itself.
    pub(crate) below: &'a [Device],
    pub(crate) threads: usize,
    /// All threads wait for it; `None`: the run does not begin.
    pub(crate) window: OnceLock<Option<Window>>,
    /// Nothing new is begun.
    pub(crate) stop: AtomicBool,
    /// Nor is what was written read back.
    pub(crate) abandon: AtomicBool,
    /// Threads whose clients have I/O to come.
    pub(crate) busy: AtomicUsize,
    pub(crate) used: Used,
    pub(crate) wakes: Vec<Arc<EventWake>>,
    /// Where acknowledged commits are told.
    pub(crate) commits: Option<&'a File>,
    pub(crate) is_io: Vec<bool>,
}

impl Shared<'_> {
    pub(crate) fn wake_all(&self) {
        self.wakes.iter().for_each(|wake| weir_ring::Wake::wake(wake.as_ref()));
    }
}

struct SharedWake(Arc<EventWake>);

impl weir_ring::Wake for SharedWake {
    fn wake(&self) {
        self.0.wake();
    }
}

/// The results of a thread.
pub(crate) struct Left {
    pub(crate) tally: Tally,
    /// For each of its clients: the first row, and what ended it.
    pub(crate) ends: Vec<(usize, End)>,
    /// Why a log is not complete.
    pub(crate) failure: Option<String>,
}

/// The end of a client, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It had done all; then its last I/O ended.
    Work(Nanos),
    /// Its time was up, unless the run was cut short before.
    Time(Nanos),
    /// It had no time of its own, and was cut short.
    Cut,
}

/// One thread's whole life; `None` if it never began.
pub(crate) fn thread(
    shared: &Shared<'_>,
    index: usize,
    plans: Vec<Plan>,
    news: &Sender<News>,
) -> Option<Left> {
    let _gone = Gone { shared, news };
    let made = Worker::new(shared, index, plans, news);
    let (worker, ready) = match made {
        Ok(worker) => (Some(worker), Ok(())),
        Err(why) => (None, Err(why)),
    };
    // The watcher waits for one answer from each thread before it lets any of them begin.
    let _ = news.send(News::Ready(ready));
    let window = (*shared.window.wait())?;
    Some(worker?.through(window))
}

/// Ends the run if its thread panics: the others would wait for it, and the reason would be lost.
struct Gone<'a> {
    shared: &'a Shared<'a>,
    news: &'a Sender<News>,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = String::from("a bench thread panicked");
            // The watcher may have gone with what it was told before.
            let _ = self.news.send(News::Failed(Failed { what, disk: usize::MAX }));
            let _ = self.news.send(News::Done);
            self.shared.abandon.store(true, Ordering::Release);
            let left = |busy: usize| busy.checked_sub(1);
            let _ = self.shared.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
            self.shared.wake_all();
        }
    }
}

/// Its clients hand in at seats of one kind: at those of devices, or at sinks.
pub(crate) struct Worker<'a, S> {
    shared: &'a Shared<'a>,
    news: &'a Sender<News>,
    wake: &'a EventWake,
    home: Home,
    /// Events of the drivers of its lanes.
    events: Vec<OwnedFd>,
    /// Its bell and its timer.
    alarm: Alarm,
    /// The way to wait of its only lane's driver, beside the alarm.
    waiter: Option<Box<dyn Waiter>>,
    clients: Vec<Client>,
    seats: Vec<S>,
    /// Whose each seat is.
    owners: Vec<usize>,
    tally: Tally,
    /// Clients to be asked in this pass, by number, each once.
    asked: Vec<usize>,
    is_asked: Vec<bool>,
    /// Seats that may have answers.
    ringing: Vec<usize>,
    /// The earliest time a client waits for.
    next_due: Option<Nanos>,
    told: String,
    told_failure: bool,
    /// Whether lanes are turned with a time of their own: where feeding takes long, or where I/O is
    /// carried out as it is handed in, that time would be counted nowhere. Time never goes back for
    /// a lane that was turned while feeding.
    turns_anew: bool,
    /// The next end of the measured time that it has not seen pass.
    edge: Option<Nanos>,
    /// When it last woke.
    awake_since: Nanos,
    /// Whether its clients have done all that is measured.
    measured: bool,
}

impl<'a> Worker<'a, Submitter> {
    fn new(
        shared: &'a Shared<'a>,
        index: usize,
        plans: Vec<Plan>,
        news: &'a Sender<News>,
    ) -> Result<Worker<'a, Submitter>, String> {
        let count: usize = plans.iter().map(|plan| plan.contexts().len()).sum();
        let mut home = home(shared, index, count);
        for device in shared.below.iter().chain(shared.devices.iter().copied()) {
            device.attach_clock(|| Clock.now());
            for lane in own_lanes(device, index, shared.threads) {
                home.open(device, lane).map_err(|e| e.to_string())?;
            }
        }
        Worker::at((shared, index, news), plans, home, |bell, token, disk| {
            let device = shared.devices[disk];
            let own = own_lanes(device, index, shared.threads);
            // Its own lanes in turn; if it has none, another thread's.
            let lane = if own.is_empty() { index } else { own[token % own.len()] };
            device.submitter(bell, token, lane).map_err(|e| e.to_string())
        })
    }
}

impl<'a> Worker<'a, Sink> {
    /// Thread `index` with clients that hand in nowhere.
    pub(crate) fn without_devices(
        shared: &'a Shared<'a>,
        index: usize,
        plans: Vec<Plan>,
        news: &'a Sender<News>,
    ) -> Result<Worker<'a, Sink>, String> {
        let home = home(shared, index, plans.len());
        Worker::at((shared, index, news), plans, home, |bell, token, _| Ok(Sink::new(bell, token)))
    }
}

/// The home of a thread, without lanes.
fn home(shared: &Shared<'_>, index: usize, seats: usize) -> Home {
    let wake = SharedWake(Arc::clone(&shared.wakes[index]));
    Home::new(Bell::new(Box::new(wake), seats.max(1)))
}

impl<'a, S: Seat> Worker<'a, S> {
    /// With a seat for each context of each plan, as `open` makes them for a place on the bell and
    /// a disk.
    fn at(
        (shared, index, news): (&'a Shared<'a>, usize, &'a Sender<News>),
        plans: Vec<Plan>,
        mut home: Home,
        open: impl Fn(&Arc<Bell>, usize, usize) -> Result<S, String>,
    ) -> Result<Worker<'a, S>, String> {
        let has_lanes = home.lanes().next().is_some();
        let alarm = Alarm::new(shared.wakes[index].as_fd())
            .map_err(|e| format!("nothing to wait for I/Os with: {e}"))?;
        let waiter = home.waiter(alarm.as_fd());
        let events = home.lanes().filter_map(|lane| lane.event().transpose());
        let events = events.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let (mut seats, mut owners, mut clients) = (Vec::new(), Vec::new(), Vec::new());
        for (number, plan) in plans.into_iter().enumerate() {
            let first = seats.len();
            for disk in plan.contexts() {
                seats.push(open(home.bell(), seats.len(), disk)?);
                owners.push(number);
            }
            let runtime = plan.runtime_ns.map(Nanos);
            let mut client = Client::new(plan, first);
            client.until = runtime;
            clients.push(client);
        }
        Ok(Worker {
            shared,
            news,
            wake: &shared.wakes[index],
            turns_anew: has_lanes
                && (clients.iter().any(|client| client.begins_anew || client.apart)
                    || shared.devices.iter().any(|device| device.config().mode == QueueMode::Sq)),
            alarm,
            waiter,
            home,
            events,
            asked: (0..clients.len()).collect(),
            is_asked: vec![true; clients.len()],
            clients,
            seats,
            owners,
            tally: Tally::new(shared.is_io.clone(), Nanos::ZERO),
            ringing: Vec::new(),
            next_due: None,
            told: String::new(),
            told_failure: false,
            edge: None,
            awake_since: Nanos::ZERO,
            measured: false,
        })
    }

    /// Runs the clients through the window; what they leave behind.
    pub(crate) fn through(mut self, window: Window) -> Left {
        self.tally = Tally::new(self.shared.is_io.clone(), window.from);
        for client in &mut self.clients {
            client.until = client.until.map(|runtime| window.from + runtime.0);
            client.begin_log(window.from);
        }
        // One that reads back has no time limit any more.
        let limits: Vec<_> = self.clients.iter().map(|client| client.until).collect();
        self.awake_since = Clock.now();
        self.run(window);
        for client in &mut self.clients {
            self.tally.leave(client.row, std::mem::take(&mut client.unfinished));
        }
        let clients = self.clients.iter_mut().zip(&limits);
        let finished = clients.map(|(client, limit)| client.finish_log(*limit));
        // All of them, also behind one that fails.
        let failures: Vec<String> = finished.filter_map(Result::err).collect();
        let failure = failures.into_iter().next();
        let ends = self.clients.iter().zip(limits).map(|(client, limit)| {
            let end = match (client.ended_by_work, limit) {
                (true, limit) => End::Work(limit.map_or(client.last, |at| at.min(client.last))),
                (false, Some(limit)) => End::Time(limit),
                (false, None) => End::Cut,
            };
            (client.row, end)
        });
        let ends = ends.collect();
        Left { tally: self.tally, ends, failure }
    }

    fn run(&mut self, window: Window) {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        self.edge = Some(window.from);
        let mut finished = false;
        let mut now = Clock.now();
        loop {
            self.feed(now);
            if self.turns_anew {
                now = Clock.now();
            }
            self.home.turn(now);
            // An I/O that a device answers at once has taken time all the same.
            now = Clock.now();
            if self.edge.is_some_and(|edge| edge <= now) {
                self.pass_edge(window, now);
            }
            if self.complete(window, now) == 0 {
                let stage = if finished { Stage::Finished } else { self.stage(now) };
                if stage == Stage::Verifying {
                    // A client that has just begun to read back has asked for nothing yet, and no
                    // bell would ring for it.
                    now = Clock.now();
                    continue;
                }
                if !finished && stage == Stage::Finished {
                    finished = true;
                    // The watcher may have gone with what it was told before.
                    let _ = self.news.send(News::Done);
                    if self.shared.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                        self.shared.wake_all();
                    }
                }
                if finished && self.shared.busy.load(Ordering::Acquire) == 0 {
                    return;
                }
                self.sleep(now);
                now = Clock.now();
            }
        }
    }

    /// Before the first I/O is counted, and when the last was.
    #[cold]
    fn pass_edge(&mut self, window: Window, now: Nanos) {
        let used = &self.shared.used;
        if self.edge == Some(window.from) {
            used.begin();
            self.edge = window.until;
        }
        if self.edge.is_some_and(|until| until <= now) {
            used.end();
            self.edge = None;
        }
    }

    fn ask(&mut self, client: usize) {
        if !std::mem::replace(&mut self.is_asked[client], true) {
            self.asked.push(client);
        }
    }

    /// Those whose time has come are asked.
    #[cold]
    fn ask_due(&mut self, now: Nanos) {
        self.next_due = None;
        for number in 0..self.clients.len() {
            match self.clients[number].due {
                Some(due) if due <= now => self.ask(number),
                due => self.next_due = due.into_iter().chain(self.next_due).min(),
            }
        }
    }

    /// Lets every client that can begin something begin it.
    #[inline]
    fn feed(&mut self, now: Nanos) {
        if self.shared.stop.load(Ordering::Acquire) {
            let measured = self.clients.iter_mut().filter(|client| !client.reading_back);
            measured.for_each(|client| client.stop(now));
        }
        if self.shared.abandon.load(Ordering::Relaxed) {
            self.clients.iter_mut().for_each(|client| client.stop(now));
        }
        if self.next_due.is_some_and(|due| due <= now) {
            self.ask_due(now);
        }
        let Worker { clients, seats, home, asked, is_asked, next_due, awake_since, .. } = self;
        let mut again = 0;
        for place in 0..asked.len() {
            let number = asked[place];
            let client = &mut clients[number];
            if client.until.is_some_and(|until| until <= now) {
                client.stop(now);
            }
            if client.is_hungry() {
                let mut now = now;
                client.awake_since = *awake_since;
                while client.feed(seats, now, || Clock.now()) {
                    // An I/O that a device answers at once has taken time, which is not the next
                    // one's.
                    now = Clock.now();
                    home.turn(now);
                }
                is_asked[number] = false;
                *next_due = client.due.into_iter().chain(*next_due).min();
            } else {
                asked[again] = number;
                again += 1;
            }
        }
        asked.truncate(again);
    }

    /// Takes everything that has ended.
    #[inline]
    fn complete(&mut self, window: Window, now: Nanos) -> usize {
        let Worker { clients, seats, owners, tally, ringing, home, told, asked, is_asked, .. } =
            self;
        ringing.clear();
        home.take_told(ringing);
        let mut ended = 0;
        for seat in ringing.iter() {
            let number = owners[*seat];
            let client = &mut clients[number];
            let counting = now >= window.from && client.until.is_none_or(|until| now < until);
            tally.open(client.row, now);
            let count = seats[*seat].complete(now, |completion| {
                client.take(completion, *seat, tally, counting, now);
            });
            client.events(tally, counting, told);
            tally.settle();
            client.passed(count, now);
            ended += count;
            if !std::mem::replace(&mut is_asked[number], true) {
                asked.push(number);
            }
        }
        if !self.told.is_empty() {
            self.tell_commits();
        }
        if ended > 0 && !self.told_failure {
            self.tell_failure();
        }
        // A seat that rang may have only room to offer: that is work as well.
        ended.max(self.ringing.len())
    }

    /// A commit that is told has been durable since before.
    #[cold]
    fn tell_commits(&mut self) {
        if let Some(mut file) = self.shared.commits
            && let Err(error) = file.write_all(self.told.as_bytes())
        {
            let what = format!("the file of commits: {error}");
            // The watcher may have gone with what it was told before.
            let _ = self.news.send(News::Failed(Failed { what, disk: usize::MAX }));
        }
        self.told.clear();
    }

    #[inline]
    fn tell_failure(&mut self) {
        if let Some(failed) = self.clients.iter().find_map(|client| client.failed.clone()) {
            self.told_failure = true;
            // The watcher may have gone with what it was told before.
            let _ = self.news.send(News::Failed(failed));
        }
    }

    /// Whether any client will do any more; one that verifies reads back first.
    #[cold]
    fn stage(&mut self, now: Nanos) -> Stage {
        let abandoned = self.shared.abandon.load(Ordering::Relaxed);
        let (mut finished, mut begun) = (true, false);
        for client in &mut self.clients {
            if client.until.is_some_and(|until| until <= now) {
                client.stop(now);
            }
        }
        self.has_measured();
        for number in 0..self.clients.len() {
            let client = &mut self.clients[number];
            let idle = client.done && client.live == 0;
            if idle && !abandoned && client.read_back() {
                self.ask(number);
                (finished, begun) = (false, true);
            }
            finished &= idle;
        }
        match (begun, finished) {
            (true, _) => Stage::Verifying,
            (false, true) => Stage::Finished,
            (false, false) => Stage::Working,
        }
    }

    /// The last thread whose clients have done all that is measured says so, before one of its
    /// clients reads back.
    fn has_measured(&mut self) {
        let mut clients = self.clients.iter();
        let idle = clients.all(|c| c.reading_back || (c.done && c.live == 0));
        let is_first_time = idle && !std::mem::replace(&mut self.measured, true);
        if is_first_time && self.shared.used.thread_is_over() {
            // The watcher may have gone with what it was told before.
            let _ = self.news.send(News::Over);
        }
    }

    /// Whether a client with something to do has its thread stay awake.
    fn polls(&self) -> bool {
        self.clients.iter().any(|client| client.polls && !(client.done && client.live == 0))
    }

    /// Sleeps until the bell rings, a driver has answers, a client's time is up or an I/O is due;
    /// or looks again at once, where a client polls.
    fn sleep(&mut self, now: Nanos) {
        let open = self.clients.iter().filter(|client| !client.done);
        let ends = open.filter_map(|client| client.until);
        let (lanes_at, due_at) = (self.home.wake_at(), ends.chain(self.next_due).min());
        let wake_at = lanes_at.into_iter().chain(due_at).min();
        if wake_at.is_some_and(|at| at <= now) {
            let over = |client: &&mut Client| client.until.is_some_and(|until| until <= now);
            self.clients.iter_mut().filter(over).for_each(|client| client.stop(now));
            return;
        }
        if self.polls() {
            // An I/O that comes due is not late because of work: there was none.
            self.awake_since = now;
            return std::hint::spin_loop();
        }
        let is_stopped = || {
            let stop = self.shared.stop.load(Ordering::Acquire);
            self.clients.iter().any(|client| stop && !client.done && !client.reading_back)
        };
        if !self.home.before_sleep(now, is_stopped) {
            return;
        }
        // A short wait of a lane may be there to have the alarm watched again.
        let soon = |at: &Nanos| at.since(now) < SOON_NS;
        let late = lanes_at.filter(|at| !soon(at));
        self.alarm.set(late.into_iter().chain(due_at).min(), now);
        let at_most_ns = lanes_at.filter(soon).map(|at| at.since(Clock.now()));
        match &mut self.waiter {
            Some(waiter) => waiter.wait(at_most_ns),
            None => self.poll(at_most_ns),
        }
        self.awake_since = Clock.now();
        self.alarm.silence(self.awake_since);
        self.home.awake();
    }

    /// Waits for the alarm, the drivers' events or the time.
    fn poll(&self, at_most_ns: Option<u64>) {
        let mut fds = vec![PollFd::from_borrowed_fd(self.alarm.as_fd(), PollFlags::IN)];
        fds.extend(self.events.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = at_most_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // An interrupted sleep is a short sleep.
        let _ = poll(&mut fds, timeout.as_ref());
        if !fds[0].revents().is_empty() {
            self.wake.clear();
        }
    }
}

/// How far the clients of a thread are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Working,
    /// One of them has just begun to read back what it wrote.
    Verifying,
    /// None will do any more.
    Finished,
}

/// The lanes a thread turns.
fn own_lanes(device: &Device, index: usize, threads: usize) -> Vec<usize> {
    let config = device.config();
    if config.mode == QueueMode::Sq && device.any_home() {
        return vec![0];
    }
    (index..usize::from(config.queues)).step_by(threads).collect()
}
