//! One workload at its devices: what it asks for becomes bios, what has ended is told and counted.

use std::collections::VecDeque;

use weir::{Bio, Completion, Data, Op};
use weir_bio::{IoPrio, Nanos, SECTOR};
use weir_load::oltp::Instance;
use weir_load::{Ask, Event, Fault, Io, Stream, Workload};

use crate::engine::log::{Ended, Log};
use crate::engine::pace::Pace;
use crate::engine::pool::Pool;
use crate::engine::seat::Seat;
use crate::engine::tally::{Tally, Took};
use crate::engine::trace::Trace;

/// The work of a client.
pub(crate) enum Work {
    Stream(Box<Stream>),
    Oltp(Box<Instance>),
}

/// A client before it has a thread.
pub(crate) struct Plan {
    pub(crate) work: Work,
    /// Its disks, by number among the devices of the run.
    pub(crate) disks: Vec<usize>,
    /// Its first row of figures.
    pub(crate) row: usize,
    /// Memory of its I/Os: how much each has, and how many are made at once.
    pub(crate) buffers: [(usize, usize); 2],
    /// Whether every I/O is as long as its memory.
    pub(crate) uniform: bool,
    /// I/Os under way; 0 if the work alone knows.
    pub(crate) depth: u16,
    /// Whether the work says how many are started together.
    pub(crate) batched: bool,
    /// Whether each I/O is handed over before the next is made.
    pub(crate) apart: bool,
    /// How long it runs; `None`: until it has done.
    pub(crate) runtime_ns: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) log: Option<Box<Log>>,
    pub(crate) trace: Option<Box<Trace>>,
}

impl Plan {
    /// The disk of each of its contexts.
    pub(crate) fn contexts(&self) -> Vec<usize> {
        match &self.work {
            Work::Stream(_) => vec![self.disks[0]],
            Work::Oltp(instance) => {
                let disk_of = |context| self.disks[usize::from(instance.disk_of(context))];
                (0..instance.contexts()).map(disk_of).collect()
            }
        }
    }
}

/// The kinds of figures: a stream's, then an instance's. Flushes are the last of either.
pub(crate) const STREAM_KINDS: [(&str, &str, bool); 4] =
    [("", "read", true), ("", "write", true), ("", "trim", true), ("", "flush", false)];
pub(crate) const OLTP_KINDS: [(&str, &str, bool); 6] = [
    ("data read", "read", true),
    ("data write", "write", true),
    ("redo write", "write", true),
    ("executions", "execution", false),
    ("commit", "commit", false),
    ("data flush", "flush", false),
];
const EXECUTION: u8 = 3;
const COMMIT: u8 = 4;

/// The failure of one I/O.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) what: String,
    /// The client's disk on which it happened.
    pub(crate) disk: usize,
}

/// An I/O under way: when it was to begin, when the device took it, and what it is.
#[derive(Clone, Copy)]
struct Begun {
    asked_at: Nanos,
    accepted_at: Nanos,
    /// Where it is, for messages.
    sector: u64,
    /// The workload's word for it, which many may share.
    token: u16,
    /// The kind of figures it belongs to.
    kind: u8,
    ioprio: IoPrio,
}

/// A client at work on its thread.
pub(crate) struct Client {
    work: Work,
    pub(crate) row: usize,
    pub(crate) seat: usize,
    disks: Vec<usize>,
    pool: Pool,
    /// Seats that have something on their plug.
    touched: Vec<usize>,
    uniform: bool,
    /// Its memory takes time to fill.
    fills: bool,
    /// The I/Os made up in a pass begin together, at a time of their own: making them up is in no
    /// latency. Filling takes long, and so does anything when the thread has slept until it is due.
    pub(crate) begins_anew: bool,
    /// What has ended is looked at: what was read, or for the log.
    looks: bool,
    log: Option<Box<Log>>,
    trace: Option<Box<Trace>>,
    /// Its I/Os are due at times of their own.
    paced: bool,
    pub(crate) polls: bool,
    pub(crate) apart: bool,
    depth: usize,
    pace: Option<Pace>,
    /// I/Os under way.
    pub(crate) live: usize,
    /// Those that the device would not take yet, and their seats.
    held: VecDeque<(usize, Bio)>,
    /// Those that are made up and wait for the others of this pass, and whether each has been late
    /// since before.
    made: Vec<(usize, Bio, bool)>,
    /// By cookie, of those under way, and the cookies that are free.
    begun: Vec<Begun>,
    free: Vec<u64>,
    /// When it is to be asked again.
    pub(crate) due: Option<Nanos>,
    pub(crate) until: Option<Nanos>,
    pub(crate) done: bool,
    stopped: bool,
    /// The client had nothing more to do before it was stopped.
    pub(crate) ended_by_work: bool,
    /// When its last I/O ended.
    pub(crate) last: Nanos,
    /// Reading back what it has written, which is not measured.
    pub(crate) reading_back: bool,
    pub(crate) failed: Option<Failed>,
    /// Since when its thread has not slept.
    pub(crate) awake_since: Nanos,
    /// The I/Os that had begun, or were due, and had not ended when its time was up: their kind,
    /// and how long they had taken by then.
    pub(crate) unfinished: Vec<(u8, u64)>,
}

impl Client {
    pub(crate) fn new(plan: Plan, seat: usize) -> Client {
        let (fills, checks) = match &plan.work {
            Work::Stream(stream) => (stream.fills(), stream.checks()),
            Work::Oltp(instance) => (instance.fills(), instance.checks()),
        };
        let paced = matches!(&plan.work, Work::Stream(stream) if stream.is_paced());
        let polls = matches!(&plan.work, Work::Stream(stream) if stream.polls());
        let waits = matches!(&plan.work, Work::Stream(stream) if stream.waits());
        Client {
            pool: Pool::new(plan.buffers, plan.seed),
            // An I/O that is due is not held back to go in company.
            pace: (plan.depth > 1 && !paced && !plan.batched).then(|| Pace::new(plan.depth)),
            depth: usize::from(plan.depth),
            work: plan.work,
            row: plan.row,
            seat,
            disks: plan.disks,
            touched: Vec::new(),
            uniform: plan.uniform,
            fills,
            looks: checks || plan.log.is_some(),
            log: plan.log,
            begins_anew: fills || waits || plan.trace.is_some(),
            trace: plan.trace,
            paced,
            polls,
            // I/Os that are filled with what is checked begin together when all of them are.
            apart: plan.apart && !(fills && checks),
            live: 0,
            held: VecDeque::new(),
            made: Vec::new(),
            begun: Vec::new(),
            free: Vec::new(),
            due: None,
            until: None,
            done: false,
            stopped: false,
            ended_by_work: false,
            last: Nanos::ZERO,
            reading_back: false,
            failed: None,
            awake_since: Nanos(u64::MAX),
            unfinished: Vec::new(),
        }
    }

    /// Whether it is worth asking now.
    #[inline]
    pub(crate) fn is_hungry(&self) -> bool {
        match &self.pace {
            Some(pace) if self.live > 0 => self.live + pace.refill() <= self.depth,
            Some(_) | None => true,
        }
    }

    /// Asks until nothing more can be begun now, and sends that on. True if it is to be called
    /// again when the device has been turned: its I/Os go one by one. `clock` is asked when they
    /// are made up, if they [begin](Client::begins_anew) then.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        seats: &mut [impl Seat],
        now: Nanos,
        clock: impl FnOnce() -> Nanos,
    ) -> bool {
        self.due = None;
        let mut more = false;
        if !self.held.is_empty() {
            self.offer_again(seats, now);
        }
        while !self.done && self.held.is_empty() && !more {
            let ask = match &mut self.work {
                Work::Stream(stream) => stream.ask(now),
                Work::Oltp(instance) => instance.ask(now),
            };
            match ask {
                Ask::Io(io) => {
                    self.begin(&io, seats, now);
                    more = self.apart;
                }
                Ask::Flush { context, token, .. } => {
                    let kind = self.flush_kind();
                    let (asked_at, accepted_at) = (now, now);
                    let begun = Begun {
                        asked_at,
                        accepted_at,
                        sector: 0,
                        token,
                        kind,
                        ioprio: IoPrio::NONE,
                    };
                    let bio = Bio::flush().cookie(self.note(begun));
                    let seat = self.seat + usize::from(context);
                    if self.begins_anew {
                        self.trace_io(Op::Flush, 0, 0);
                        // Behind those that were asked for before it.
                        self.live += 1;
                        self.made.push((seat, bio, false));
                    } else {
                        self.submit(seat, bio, seats, now);
                    }
                }
                Ask::Wait(until) => {
                    self.due = Some(until);
                    break;
                }
                Ask::Blocked => break,
                Ask::Done => {
                    self.done = true;
                    self.ended_by_work |= !self.stopped && !self.reading_back;
                }
            }
        }
        let now = if self.made.is_empty() { now } else { self.begin_made(seats, clock()) };
        self.touched.drain(..).for_each(|seat| seats[seat].flush_plug(now));
        more
    }

    /// Those that the device would not take.
    #[cold]
    fn offer_again(&mut self, seats: &mut [impl Seat], now: Nanos) {
        for _ in 0..self.held.len() {
            let Some((seat, bio)) = self.held.pop_front() else { return };
            if !self.hand_in(seat, bio, seats, now) {
                // It is the last now, and was the first.
                self.held.rotate_right(1);
                return;
            }
        }
        if let Work::Stream(stream) = &mut self.work {
            stream.held_until(now);
        }
    }

    /// Begins what has been made up, all at once: that was this side's work, and the device had
    /// none of it meanwhile. When that is.
    #[inline(never)]
    fn begin_made(&mut self, seats: &mut [impl Seat], now: Nanos) -> Nanos {
        let mut made = std::mem::take(&mut self.made);
        for (seat, bio, late) in made.drain(..) {
            if !late {
                self.begun[bio.cookie as usize].asked_at = now;
            }
            if self.held.is_empty() {
                self.hand_in(seat, bio, seats, now);
            } else {
                self.held.push_back((seat, bio));
            }
        }
        self.made = made;
        now
    }

    fn flush_kind(&self) -> u8 {
        let kinds = match &self.work {
            Work::Stream(_) => STREAM_KINDS.len(),
            Work::Oltp(_) => OLTP_KINDS.len(),
        };
        kinds as u8 - 1
    }

    #[inline]
    fn begin(&mut self, io: &Io, seats: &mut [impl Seat], now: Nanos) {
        let data = if matches!(io.op, Op::Read | Op::Write) {
            let mut buf = self.pool.take(io.sectors as usize * SECTOR as usize, self.uniform);
            if self.fills && io.op == Op::Write {
                match &mut self.work {
                    Work::Stream(stream) => stream.fill(io, &mut buf),
                    Work::Oltp(instance) => instance.fill(io, &mut buf),
                }
            }
            Data::One(buf)
        } else {
            Data::None
        };
        let mut bio = Bio::new(io.op, io.sector, io.sectors, data);
        bio.flags = io.flags;
        bio.ioprio = io.ioprio;
        let late_since = match &self.work {
            Work::Stream(stream) if self.paced => stream.late_since(self.awake_since),
            Work::Stream(_) | Work::Oltp(_) => None,
        };
        let asked_at = late_since.unwrap_or(now);
        let Io { sector, token, group: kind, ioprio, .. } = *io;
        bio.cookie = self.note(Begun { asked_at, accepted_at: now, sector, token, kind, ioprio });
        let seat = self.seat + usize::from(io.context);
        if self.begins_anew {
            self.trace_io(io.op, sector, io.sectors);
            self.live += 1;
            self.made.push((seat, bio, late_since.is_some()));
        } else {
            self.submit(seat, bio, seats, now);
        }
    }

    /// Keeps what is known of an I/O; its cookie.
    #[inline]
    fn note(&mut self, begun: Begun) -> u64 {
        let Some(cookie) = self.free.pop() else {
            self.begun.push(begun);
            return self.begun.len() as u64 - 1;
        };
        self.begun[cookie as usize] = begun;
        cookie
    }

    #[inline]
    fn submit(&mut self, seat: usize, bio: Bio, seats: &mut [impl Seat], now: Nanos) {
        self.live += 1;
        self.hand_in(seat, bio, seats, now);
    }

    #[inline]
    fn hand_in(&mut self, seat: usize, bio: Bio, seats: &mut [impl Seat], now: Nanos) -> bool {
        if self.touched.last() != Some(&seat) {
            self.touched.push(seat);
        }
        // One that is offered again is accepted later than it was asked for.
        self.begun[bio.cookie as usize].accepted_at = now;
        if let Err(refused) = seats[seat].submit(bio, now) {
            self.held.push_back((seat, refused.into_bio()));
            return false;
        }
        true
    }

    /// Takes one that has ended; `counting`: into the figures.
    #[inline]
    pub(crate) fn take(
        &mut self,
        completion: Completion,
        seat: usize,
        tally: &mut Tally,
        counting: bool,
        now: Nanos,
    ) {
        let ok = completion.status.is_ok();
        if !ok {
            self.fail(&completion, seat, tally);
        }
        let Completion { cookie, op, sectors, data, wait_ns, device_ns, .. } = completion;
        let Begun { asked_at, accepted_at, token, kind, .. } = self.begun[cookie as usize];
        self.free.push(cookie);
        self.live -= 1;
        if ok && counting && !self.reading_back {
            let wait_ns = accepted_at.since(asked_at) + wait_ns;
            let total_ns = now.since(asked_at);
            let took = Took { total_ns, wait_ns, device_ns, is_whole: false };
            tally.count(kind, sectors, took);
        } else if ok {
            self.passed_over(kind, asked_at, now);
        }
        if self.looks && ok {
            if counting && !self.reading_back {
                self.write_down(cookie, sectors, wait_ns, now);
            }
            if op == Op::Read {
                self.check(token, &data, tally);
            }
        }
        if let Some(buf) = data.into_spare() {
            self.pool.put(buf, self.uniform);
        }
        match &mut self.work {
            Work::Stream(stream) => stream.ended(token, ok, now),
            Work::Oltp(instance) => instance.ended(token, ok, now),
        }
    }

    /// One that ended outside the measured time: behind its end it was under way when that came.
    #[cold]
    fn passed_over(&mut self, kind: u8, asked_at: Nanos, now: Nanos) {
        if let Some(until) = self.until.filter(|until| *until <= now && asked_at < *until) {
            self.unfinished.push((kind, until.since(asked_at)));
        }
    }

    /// A row for the log, if it has one; flushes have none.
    #[cold]
    fn write_down(&mut self, cookie: u64, sectors: u32, wait_ns: u64, now: Nanos) {
        let Begun { asked_at, accepted_at, sector, kind, ioprio, .. } = self.begun[cookie as usize];
        let Some(log) = self.log.as_mut().filter(|_| kind != STREAM_KINDS.len() as u8 - 1) else {
            return;
        };
        let total_ns = now.since(asked_at);
        log.note(&Ended {
            direction: usize::from(kind),
            offset: sector * SECTOR,
            bytes: u64::from(sectors) * SECTOR,
            total_ns,
            wait_ns: (accepted_at.since(asked_at) + wait_ns).min(total_ns),
            issued: accepted_at + wait_ns,
            at: now,
            ioprio,
        });
        if let Some(what) = log.take_failure() {
            self.failed.get_or_insert(Failed { what, disk: usize::MAX });
        }
    }

    /// Its log tells times from `from` on.
    pub(crate) fn begin_log(&mut self, from: Nanos) {
        self.log.iter_mut().for_each(|log| log.begin(from));
    }

    /// Its log and its trace are complete, or not.
    pub(crate) fn finish_log(&mut self, until: Option<Nanos>) -> Result<(), String> {
        self.log.as_mut().map_or(Ok(()), |log| log.finish(until))?;
        self.trace.as_mut().map_or(Ok(()), |trace| trace.finish())
    }

    /// A line for the trace of what a job does, if there is one.
    #[inline]
    fn trace_io(&mut self, op: Op, sector: u64, sectors: u32) {
        if let Some(trace) = self.trace.as_mut().filter(|_| !self.reading_back) {
            trace.note(op, sector, sectors);
        }
    }

    #[cold]
    fn check(&mut self, token: u16, data: &Data, tally: &mut Tally) {
        let Work::Stream(stream) = &mut self.work else { return };
        let outcome = match data {
            Data::One(buf) => stream.check(token, buf),
            Data::None => return,
            Data::Zero { .. } | Data::Many(_) | Data::Segments(_) => {
                let mut bytes = vec![0; data.len()];
                data.copy_to(&mut bytes);
                stream.check(token, &bytes)
            }
        };
        match outcome {
            Ok(blocks) => tally.verified += blocks,
            Err(fault) => self.found_fault(&fault, tally),
        }
    }

    #[cold]
    fn found_fault(&mut self, fault: &Fault, tally: &mut Tally) {
        tally.errors += 1;
        tally.faults += 1;
        let Fault { offset, bytes, what } = fault;
        let what = format!("verify of {bytes} bytes at byte {offset}: {what}");
        let disk = self.disks[0];
        self.failed.get_or_insert(Failed { what, disk });
    }

    #[cold]
    fn fail(&mut self, completion: &Completion, seat: usize, tally: &mut Tally) {
        let Completion { cookie, status, op, sectors, .. } = completion;
        tally.errors += 1;
        let disk = match &self.work {
            Work::Stream(_) => self.disks[0],
            Work::Oltp(instance) => {
                self.disks[usize::from(instance.disk_of((seat - self.seat) as u16))]
            }
        };
        let what = match (op, sectors) {
            (Op::Write, 0) => format!("flush: {status}"),
            (op, _) => {
                let (name, at) = (
                    format!("{op:?}").to_lowercase(),
                    self.begun[*cookie as usize].sector * SECTOR,
                );
                format!("{name} of {} bytes at byte {at}: {status}", u64::from(*sectors) * SECTOR)
            }
        };
        self.failed.get_or_insert(Failed { what, disk });
    }

    /// A pass is over: `count` of its I/Os have ended in it.
    #[inline]
    pub(crate) fn passed(&mut self, count: usize, now: Nanos) {
        if let Some(pace) = &mut self.pace {
            pace.ended(count, now);
        }
        if count > 0 && !self.reading_back {
            self.last = now;
        }
    }

    /// Counts events above single I/Os: into the figures, and commits to `told`.
    pub(crate) fn events(&mut self, tally: &mut Tally, counting: bool, told: &mut String) {
        let Work::Oltp(instance) = &mut self.work else { return };
        instance.events(&mut |event| match event {
            Event::Execution { ns } if counting => tally.count(EXECUTION, 0, Took::whole(ns)),
            Event::Execution { .. } => (),
            Event::Commit { instance, id, blocks, ns } => {
                if counting {
                    tally.count(COMMIT, 0, Took::whole(ns));
                }
                use std::fmt::Write;
                let blocks = blocks.map(|block| block.to_string()).join(",");
                writeln!(told, "commit {instance} {id} {blocks}").expect("a string takes text");
            }
        });
    }

    /// Begins nothing new.
    pub(crate) fn stop(&mut self, now: Nanos) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        self.done = true;
        self.due = None;
        if !self.reading_back {
            self.note_overdue(now);
        }
        match &mut self.work {
            Work::Stream(stream) => stream.stop(),
            Work::Oltp(instance) => instance.stop(),
        }
        while let Some((_, bio)) = self.held.pop_front() {
            self.live -= 1;
            let token = self.begun[bio.cookie as usize].token;
            self.free.push(bio.cookie);
            match &mut self.work {
                Work::Stream(stream) => stream.ended(token, false, Nanos::ZERO),
                Work::Oltp(instance) => instance.ended(token, false, Nanos::ZERO),
            }
        }
    }

    /// What was due, or had begun and was not taken by the device, when the time was up.
    fn note_overdue(&mut self, now: Nanos) {
        let until = self.until.map_or(now, |until| until.min(now));
        let Client { work, begun, held, unfinished, .. } = self;
        for (_, bio) in &*held {
            let Begun { asked_at, kind, .. } = begun[bio.cookie as usize];
            unfinished.push((kind, until.since(asked_at)));
        }
        if let Work::Stream(stream) = work {
            stream.take_overdue(until, &mut |direction, due| {
                unfinished.push((direction as u8, until.since(due)));
            });
        }
    }

    /// Turns to reading back what was written, with nothing under way; false if there is nothing
    /// to be read back.
    pub(crate) fn read_back(&mut self) -> bool {
        let Work::Stream(stream) = &mut self.work else { return false };
        if self.reading_back || self.failed.is_some() || !stream.read_back() {
            return false;
        }
        (self.reading_back, self.done, self.stopped, self.until) = (true, false, false, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir::{Bell, Device, Lane, Refused, Submitter, Target};
    use weir_load::{Amount, Batching, Direction, Ground, Job, Sizes, Thinking, Verify};

    use crate::engine::run::stream_plan;
    use weir_load::times::{Row, Times};

    const MS: u64 = 1_000_000;
    const ROW: [bool; 4] = [true, true, true, false];

    fn client(job: &Job) -> Client {
        let ground = Ground { bytes: 64 << 20, block: 512, read_only: false };
        let stream = Stream::new(job, ground, 0).expect("a job");
        Client::new(stream_plan(job, stream, (0, 0, 0), None), 0)
    }

    /// A client and its device, whose time is what the test says.
    struct Bench {
        client: Client,
        seats: [Submitter; 1],
        lane: Lane,
        tally: Tally,
        _device: Device,
        _bell: Arc<Bell>,
    }

    impl Bench {
        fn new(job: &Job, options: &str) -> Bench {
            let target = format!("null:64MiB,queues=1,scheduler=none{options}");
            let target = Target::parse(&target).expect("a target");
            let device = weir::open("bench", &target, 1).expect("it opens").device;
            let bell = Bell::new(Box::new(weir_ring::NoWake), 1);
            let lane = device.open_lane(0, &bell).expect("a lane");
            let seats = [device.submitter(&bell, 0, 0).expect("a submitter")];
            let tally = Tally::new(ROW.to_vec(), Nanos::ZERO);
            Bench { client: client(job), seats, lane, tally, _device: device, _bell: bell }
        }

        /// Runs the job to its end: time goes on to whatever comes next, and by nothing else.
        fn run(mut self) -> Tally {
            let mut now = Nanos(MS);
            for _ in 0..10_000 {
                let Bench { client, seats, lane, tally, .. } = &mut self;
                while client.feed(seats, now, || now) {
                    lane.run(now);
                }
                lane.run(now);
                let mut ended = Vec::new();
                seats[0].complete(now, |completion| ended.push(completion));
                tally.open(0, now);
                let count = ended.len();
                let mut ended = ended.into_iter();
                ended.by_ref().for_each(|c| client.take(c, 0, tally, true, now));
                tally.settle();
                client.passed(count, now);
                if client.done && client.live == 0 {
                    return self.tally;
                }
                let next = lane.wake_at().into_iter().chain(client.due).min();
                // I/Os that were taken make room for more at the same time.
                now = if count > 0 { now } else { next.expect("something comes next").max(now) };
            }
            panic!("it has no end");
        }
    }

    fn paced(rate: u32, ios: u64, depth: u16) -> Job {
        Job { rate: [rate; 3], size: Some(Amount::Bytes(ios * 4096)), depth, ..Job::default() }
    }

    /// How many reads there were, and the mean and the longest of the times of theirs, in ms, that
    /// the test asks for: all exact.
    fn reads(tally: &Tally, times: fn(&Row) -> &Times) -> (u64, f64, u64) {
        let row = tally.row(0).expect("reads");
        let times = times(row);
        (times.count(), times.mean_ns() / MS as f64, times.max_ns() / MS)
    }

    #[test]
    fn what_a_slow_target_holds_up_is_late_from_when_it_was_due() {
        let tally = Bench::new(&paced(1000, 5, 1), ",latency_us=20000").run();
        // Five that take 20 ms each, one after the other, and are due 1 ms after each other.
        assert_eq!(reads(&tally, |row| &row.total), (5, 58.0, 96));
        assert_eq!(reads(&tally, |row| &row.wait), (5, 38.0, 76));
        assert_eq!(reads(&tally, |row| &row.device), (5, 20.0, 20));
    }

    #[test]
    fn a_client_collects_ios_unless_its_job_says_that_each_begins_at_once() {
        let collects = |batching: Batching| {
            let job = Job { depth: 64, batching, ..Job::default() };
            client(&job).pace.is_some()
        };
        assert!(collects(Batching::default()));
        assert!(!collects(Batching { at_once: true, ..Batching::default() }), "collect=0");
        assert!(client(&Job { depth: 1, ..Job::default() }).pace.is_none(), "there is one alone");
    }

    #[test]
    fn each_of_many_under_way_has_a_time_of_its_own() {
        let tally = Bench::new(&paced(200, 8, 8), ",latency_us=30000").run();
        // The next begins 5 ms after each, long before it ends.
        assert_eq!(reads(&tally, |row| &row.total), (8, 30.0, 30));
        assert_eq!(reads(&tally, |row| &row.wait), (8, 0.0, 0));
    }

    #[test]
    fn what_a_full_queue_holds_up_is_late_from_when_it_was_due() {
        let options = ",latency_us=20000,nr_requests=4,nomerges=2";
        let tally = Bench::new(&paced(1000, 12, 64), options).run();
        // Three times four, each due 4 ms and begun 20 ms after the four before.
        assert_eq!(reads(&tally, |row| &row.total), (12, 36.0, 52));
        assert_eq!(reads(&tally, |row| &row.wait), (12, 16.0, 32));
        assert_eq!(reads(&tally, |row| &row.device), (12, 20.0, 20));
    }

    /// Takes everything and keeps when it was handed in.
    #[derive(Default)]
    struct Keeps(Vec<(Nanos, Bio)>);

    impl Seat for Keeps {
        fn submit(&mut self, bio: Bio, now: Nanos) -> Result<(), Refused> {
            self.0.push((now, bio));
            Ok(())
        }

        fn flush_plug(&mut self, _: Nanos) {}

        fn complete(&mut self, _: Nanos, _: impl FnMut(Completion)) -> usize {
            0
        }
    }

    #[test]
    fn what_making_up_an_io_of_a_rate_takes_is_no_time_of_the_device() {
        let (mut client, mut seats) = (client(&paced(1000, 4, 4)), [Keeps::default()]);
        for due in [MS, 2 * MS] {
            while client.feed(&mut seats, Nanos(due), || Nanos(due + 9)) {}
            let handed_in = std::mem::take(&mut seats[0].0);
            let (begun, bio) = handed_in.first().expect("one is due");
            let asked_at = client.begun[bio.cookie as usize].asked_at;
            assert_eq!((handed_in.len(), *begun, asked_at), (1, Nanos(due + 9), *begun));
        }
        assert_eq!(client.due, Some(Nanos(3 * MS)), "it is due as if it took no time");
        let early = Nanos(3 * MS - 1);
        assert!(!client.feed(&mut seats, early, || panic!("nothing was made up")));
    }

    /// The answer to an I/O that was handed in.
    fn answer(bio: Bio) -> Completion {
        Completion::unsent(bio, weir::Status::Ok)
    }

    #[test]
    fn an_io_that_comes_due_while_its_thread_is_at_work_has_waited_since() {
        for (awake_since, asked_at) in
            [(MS + 5, 2 * MS), (2 * MS, 2 * MS + 70), (3 * MS, 2 * MS + 70)]
        {
            let (mut client, mut seats) = (client(&paced(1000, 4, 4)), [Keeps::default()]);
            while client.feed(&mut seats, Nanos(MS), || Nanos(MS)) {}
            client.awake_since = Nanos(awake_since);
            while client.feed(&mut seats, Nanos(2 * MS + 60), || Nanos(2 * MS + 70)) {}
            let (_, bio) = seats[0].0.last().expect("it was due");
            let begun = client.begun[bio.cookie as usize].asked_at;
            assert_eq!(
                (seats[0].0.len(), begun),
                (2, Nanos(asked_at)),
                "awake since {awake_since}"
            );
        }
    }

    #[test]
    fn what_is_under_way_or_due_when_the_time_is_up_is_kept_with_its_age() {
        let mut tally = Tally::new(ROW.to_vec(), Nanos::ZERO);
        let (mut client, mut seats) = (client(&paced(1000, 8, 2)), [Keeps::default()]);
        client.until = Some(Nanos(4 * MS + MS / 2));
        for now in [MS, 2 * MS, 3 * MS] {
            while client.feed(&mut seats, Nanos(now), || Nanos(now)) {}
        }
        let mut handed_in = seats[0].0.drain(..).map(|(_, bio)| bio);
        let [first, second] = [handed_in.next(), handed_in.next()].map(|bio| bio.expect("two"));
        client.take(answer(first), 0, &mut tally, true, Nanos(4 * MS));
        assert_eq!(client.unfinished, [], "it ended in time");
        client.stop(Nanos(6 * MS));
        client.stop(Nanos(7 * MS));
        client.take(answer(second), 0, &mut tally, false, Nanos(8 * MS));
        // Two were due and could not begin, then one that had begun at 2 ms.
        assert_eq!(client.unfinished, [(0, 3 * MS / 2), (0, MS / 2), (0, 5 * MS / 2)]);
        tally.settle();
        tally.leave(0, std::mem::take(&mut client.unfinished));
        let kept = tally.unfinished(0).expect("three reads");
        assert_eq!((kept.count(), kept.max_ns()), (3, 5 * MS / 2));
        assert_eq!(tally.all_unfinished().count(), 3);
        assert!(tally.unfinished(1).is_none() && tally.row(0).is_some_and(|row| row.ios == 1));
    }

    #[test]
    fn what_making_up_an_io_after_thinking_takes_is_no_time_of_the_device() {
        let thinking = Thinking { ns: MS, ..Thinking::default() };
        let job = Job { thinking, ..Job::default() };
        let (mut client, mut seats) = (client(&job), [Keeps::default()]);
        client.feed(&mut seats, Nanos(MS), || Nanos(MS + 9));
        assert_eq!(seats[0].0.first().map(|(begun, _)| *begun), Some(Nanos(MS + 9)));
        assert!(!client.feed(&mut seats, Nanos(MS), || panic!("nothing was made up")));
    }

    #[test]
    fn what_a_job_fills_its_blocks_with_is_no_time_of_the_device() {
        let job = Job {
            direction: Direction::Write,
            depth: 16,
            sizes: [1, 1, 1].map(|_| Sizes::Fixed(1 << 20)),
            verify: Some(Verify::Crc32c),
            ..Job::default()
        };
        let (mut client, mut seats) = (client(&job), [Keeps::default()]);
        let (asked_at, begun) = (Nanos(1), Nanos(1 << 20));
        let mut tally = Tally::new(ROW.to_vec(), Nanos::ZERO);
        client.feed(&mut seats, asked_at, || begun);
        let handed_in = std::mem::take(&mut seats[0].0);
        assert_eq!(handed_in.len(), 16);
        // All at once when all were filled, and that is where their time begins.
        for (at, bio) in handed_in {
            assert_eq!(at, begun);
            let device_ns = 7;
            let mut answer = answer(bio);
            answer.device_ns = device_ns;
            client.take(answer, 0, &mut tally, true, begun + device_ns);
        }
        tally.settle();
        let row = tally.row(1).expect("writes");
        assert_eq!((row.ios, row.total.mean_ns(), row.wait.max_ns()), (16, 7.0, 0));
    }
}
