//! The engine: offers what clients ask to the scheduler, asks it whenever the device has room,
//! fires its timers, and answers the clients.
//!
//! It follows the rule of docs/behaviour/bfq.md, section 16.6, and asks after every insert,
//! completion and timer, as the live engine does; or, to be held against Linux, a while after the
//! first of them ([`Setting::ask_delay_ns`]).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_bio::{Flags, GroupId, Limits, Nanos, Prng, Rq, RqId, SchedTag, Status, SubmitterId};
use weir_sched::{Scheduler, Setup};

use super::client::{Ask, Client, Done, Record};
use super::device::Device;
use super::ledger::{Bio, Ledger, Offered, Subject, request};
use super::{entry, setup, wide};

/// A client of a bed; also its context (the submitter the scheduler knows).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientId(pub usize);

impl ClientId {
    /// How the scheduler knows it.
    pub fn context(self) -> SubmitterId {
        SubmitterId(self.0 as u16)
    }
}

/// The parts of a bed beside scheduler and device.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Scheduler tags.
    pub nr_requests: u16,
    /// Hard queues; client `i` belongs to queue `i % hard_queues`.
    pub hard_queues: u16,
    /// The `nomerges` attribute.
    pub nomerges: u8,
    /// Limits; those of [`wide`] with the device's `rotational` if not given.
    pub limits: Option<Limits>,
    /// Whose behaviour the scheduler has; its first if not given.
    pub compat: Option<&'static str>,
    /// Tunables that are not at their default, as text.
    pub tunables: Vec<(&'static str, String)>,
    /// From the first reason to ask the scheduler to the asking. Linux has the hardware queue run
    /// by another thread, and requests go on arriving until that runs.
    pub ask_delay_ns: std::ops::Range<u64>,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            nr_requests: 256,
            hard_queues: 1,
            nomerges: 0,
            limits: None,
            compat: None,
            tunables: Vec::new(),
            ask_delay_ns: 0..1,
        }
    }
}

/// A kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A bio became part of the staged request of this tag.
    Merged,
    /// It became a request.
    Inserted,
    /// It found no tag.
    Waited,
    /// The scheduler handed the request over.
    Dispatched,
    /// It was asked while something was staged and room was there, and gave nothing.
    Refused,
    /// Its timer fired.
    TimerFired,
    /// The device ended the request.
    Completed,
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    pub at: Nanos,
    pub what: What,
    /// The bio or request; a request of no sectors where there is none.
    pub rq: Rq,
    /// Requests staged and in flight afterwards.
    pub staged: usize,
    pub in_flight: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Completion(SchedTag),
    Submission(usize),
    Rhythm(usize),
    Asking,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    client: usize,
    sectors: u32,
    submitted: Nanos,
    issued: Nanos,
}

struct Seat {
    client: Client,
    record: Record,
    under_way: usize,
    next_free: Nanos,
    is_done: bool,
}

/// A scheduler, a device, and clients, in virtual time.
pub struct Bed {
    ledger: Ledger,
    device: Device,
    seats: Vec<Seat>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
    known: Vec<Known>,
    now: Nanos,
    /// When the scheduler's timer fires next, as it said when it was last asked.
    timer: Option<Nanos>,
    ask_delay_ns: std::ops::Range<u64>,
    delays: Prng,
    /// An asking is on its way.
    will_ask: bool,
    trace: Option<Vec<Trace>>,
}

impl Bed {
    /// A scheduler by name at its defaults before a device.
    pub fn of(name: &str, device: Device) -> Bed {
        Bed::with(name, device, Setting::default())
    }

    /// A scheduler by name before a device, with settings.
    pub fn with(name: &str, device: Device, setting: Setting) -> Bed {
        let entry = entry(name);
        let compat = setting.compat.unwrap_or(entry.compat[0]);
        let limits = setting.limits.clone().unwrap_or_else(|| wide(device.is_rotational()));
        let setup = Setup {
            hard_queues: setting.hard_queues,
            nomerges: setting.nomerges,
            ..setup(limits, setting.nr_requests, compat)
        };
        let mut scheduler = Subject::new(entry, &setup);
        for (name, value) in &setting.tunables {
            scheduler.tunables().set_strict(name, value).expect("a tunable and its value");
        }
        let ask_delay_ns = setting.ask_delay_ns.clone();
        Bed { ask_delay_ns, ..Bed::around(scheduler, setup, device) }
    }

    /// Any scheduler, made with this setup, before a device.
    pub fn before(scheduler: Box<dyn Scheduler>, setup: Setup, device: Device) -> Bed {
        Bed::around(Subject::Plain(scheduler), setup, device)
    }

    fn around(scheduler: Subject, setup: Setup, device: Device) -> Bed {
        Bed {
            ledger: Ledger::new(scheduler, setup),
            device,
            seats: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            known: Vec::new(),
            now: Nanos::ZERO,
            timer: None,
            ask_delay_ns: 0..1,
            delays: Prng::new(1),
            will_ask: false,
            trace: None,
        }
    }

    /// Keeps a trace of everything from now on.
    pub fn traced(mut self) -> Bed {
        self.trace = Some(Vec::new());
        self
    }

    /// The trace so far.
    pub fn trace(&self) -> &[Trace] {
        self.trace.as_deref().expect("a bed that was told to keep a trace")
    }

    /// Adds a client; it begins at its start time, or now if that is past.
    pub fn client(&mut self, client: Client) -> ClientId {
        let index = self.seats.len();
        let start = client.start.max(self.now);
        match client.every_ns {
            Some(_) => self.schedule(start, Event::Rhythm(index)),
            None => (0..client.depth).for_each(|_| self.schedule(start, Event::Submission(index))),
        }
        let hard_queue = index % usize::from(self.ledger.setup().hard_queues);
        self.ledger.home(ClientId(index).context(), hard_queue as u16);
        let record = Record::default();
        self.seats.push(Seat { client, record, under_way: 0, next_free: start, is_done: false });
        ClientId(index)
    }

    /// The service a client got so far.
    pub fn record(&self, client: ClientId) -> &Record {
        &self.seats[client.0].record
    }

    /// A client from now on does something else (its place, op, size); depth and start stay.
    pub fn change_client(&mut self, client: ClientId, change: impl FnOnce(Client) -> Client) {
        let seat = &mut self.seats[client.0];
        seat.client = change(seat.client.clone());
    }

    /// A client submits nothing more; what is under way is answered.
    pub fn stop(&mut self, client: ClientId) {
        self.seats[client.0].is_done = true;
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The books.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The scheduler, to read.
    pub fn scheduler(&self) -> &dyn Scheduler {
        self.ledger.scheduler()
    }

    /// The scheduler, for control calls between two runs.
    pub fn scheduler_mut(&mut self) -> &mut dyn Scheduler {
        self.ledger.scheduler_mut()
    }

    /// Sets the weight of a group.
    pub fn weigh(&mut self, group: u32, weight: u16) {
        let now = self.now;
        self.ledger.scheduler_mut().group_weight_changed(GroupId(group), weight, now);
    }

    /// Runs for so long.
    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now + ns);
    }

    /// Runs up to a moment, what happens at that moment left out.
    pub fn run_until(&mut self, end: Nanos) {
        while let Some(at) = self.next_at().filter(|at| *at < end) {
            self.turn(at);
        }
        self.now = self.now.max(end);
    }

    /// Runs until nothing happens any more; all clients must be finite.
    pub fn run_out(&mut self) {
        while let Some(at) = self.next_at() {
            self.turn(at);
        }
        assert!(self.ledger.is_idle(), "something was never answered");
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn next_at(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        event.into_iter().chain(self.timer).min()
    }

    fn turn(&mut self, at: Nanos) {
        self.now = at;
        // A completion and a timer of the same moment: the device's interrupt is first.
        if let Some(Reverse((_, _, event))) = self.events.peek().filter(|e| e.0.0 <= at).copied() {
            self.events.pop();
            match event {
                Event::Completion(tag) => self.complete(tag),
                Event::Submission(client) => self.submit(client),
                Event::Rhythm(client) => self.beat(client),
                Event::Asking => {
                    self.will_ask = false;
                    self.fire();
                    return self.ask();
                }
            }
        }
        self.fire();
        let std::ops::Range { start, end } = self.ask_delay_ns;
        if end <= 1 {
            return self.ask();
        }
        if !self.will_ask && !self.ledger.pending().is_empty() {
            self.will_ask = true;
            let delay_ns = start + self.delays.below(end - start);
            self.schedule(self.now + delay_ns, Event::Asking);
        }
        self.timer = self.ledger.wake_at();
    }

    fn fire(&mut self) {
        if self.ledger.fire(self.now) {
            self.note(What::TimerFired, None);
        }
    }

    fn beat(&mut self, index: usize) {
        let Seat { client, under_way, is_done, .. } = &self.seats[index];
        let every = client.every_ns.expect("only a client with a rhythm has beats");
        if *under_way < client.depth && !is_done {
            self.submit(index);
        }
        if !self.seats[index].is_done {
            self.schedule(self.now + every, Event::Rhythm(index));
        }
    }

    fn submit(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        if seat.next_free > self.now {
            let at = seat.next_free;
            return self.schedule(at, Event::Submission(index));
        }
        seat.next_free = self.now + seat.client.gap_ns;
        let ask = if seat.is_done { None } else { seat.client.next() };
        let Some(Ask { op, sector, sectors, flags }) = ask else {
            seat.is_done = true;
            return self.finish(index);
        };
        seat.under_way += 1;
        seat.record.submitted += 1;
        let number = self.known.len() as Bio;
        let id = RqId::new(SubmitterId(index as u16), number as u16, 0);
        let flags = if op.is_write() { flags } else { flags.without(Flags::SYNC) };
        let Client { ioprio, group, .. } = seat.client;
        let rq = request(SchedTag::NONE);
        let bio = Rq { sector, sectors, id, flags, group, ioprio, op, ..rq };
        let submitted = self.now;
        self.known.push(Known { client: index, sectors, submitted, issued: Nanos::ZERO });
        let what = match self.ledger.offer(&bio, number, self.now) {
            Offered::Merged(_) => What::Merged,
            Offered::Inserted(_) => What::Inserted,
            Offered::Waits => What::Waited,
        };
        self.note(what, Some(bio));
    }

    fn complete(&mut self, tag: SchedTag) {
        let rq = *self.ledger.rq(tag);
        let bios = self.ledger.completed(tag, Status::Ok, self.now);
        self.note(What::Completed, Some(rq));
        for bio in bios {
            let Known { client, sectors, submitted, issued } = self.known[bio as usize];
            let completed = self.now;
            let seat = &mut self.seats[client];
            seat.under_way -= 1;
            seat.record.done.push(Done { submitted, issued, completed, sectors });
            let think_ns = seat.client.thinks();
            if seat.client.every_ns.is_none() {
                let next = seat.client.wakes.unwrap_or(client);
                self.schedule(self.now + think_ns, Event::Submission(next));
            } else {
                self.finish(client);
            }
        }
    }

    fn finish(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        if seat.is_done && seat.under_way == 0 {
            let last = seat.record.done.last().map(|done| done.completed);
            seat.record.finished_at = last.or(Some(self.now));
        }
    }

    /// Asks every hard queue that has a reason until it gives nothing or the device is full.
    fn ask(&mut self) {
        for hard_queue in self.ledger.pending() {
            while self.device.has_room(self.ledger.in_flight()) {
                let Some(issued) = self.ledger.dispatch(hard_queue, self.now) else {
                    if self.ledger.staged() > 0 {
                        self.note(What::Refused, None);
                    }
                    break;
                };
                let ends = self.device.take(&issued.rq, self.now);
                self.schedule(ends, Event::Completion(issued.rq.tag));
                for bio in issued.bios {
                    self.known[bio as usize].issued = self.now;
                }
                self.note(What::Dispatched, Some(issued.rq));
            }
        }
        self.ledger.is_not_stranded();
        self.timer = self.ledger.wake_at();
    }

    fn note(&mut self, what: What, rq: Option<Rq>) {
        let (staged, in_flight) = (self.ledger.staged(), self.ledger.in_flight());
        let Some(trace) = &mut self.trace else { return };
        let rq = rq.unwrap_or(Rq { sectors: 0, ..request(SchedTag::NONE) });
        trace.push(Trace { at: self.now, what, rq, staged, in_flight });
    }
}
