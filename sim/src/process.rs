//! A simulated process: it asks for I/O through a submitter of each device, thinks, and sleeps.

use weir_bio::{Bio, Buf, Data, GroupId, Nanos, Op, Prng, SECTOR};
use weir_load::{Ask, Io, Job, Stream, Workload};
use weir_queue::{Completion, Refused, Sink, Submitter};

use crate::figures::{Returned, Tally, Worked};

/// How a process goes about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// I/Os that it keeps under way.
    pub depth: u16,
    /// What it computes before each, ns.
    pub think: u64,
    /// At random between 0 and this, besides, ns.
    pub think_spread: u64,
    /// I/Os that it hands in together, at most.
    pub batch: u32,
    /// It begins nothing for so long after an I/O of it has ended, ns.
    pub pause: u64,
    /// At random between 0 and this, besides, ns.
    pub pause_spread: u64,
}

impl Default for Habit {
    fn default() -> Habit {
        Habit { depth: 1, think: 0, think_spread: 0, batch: 1, pause: 0, pause_spread: 0 }
    }
}

/// Processes of one kind.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The kind's name.
    pub name: String,
    /// How many, each bound to a processor, in turn over all kinds.
    pub count: usize,
    /// How each goes about its work.
    pub habit: Habit,
    /// What each asks for; its depth is the habit's. A job that is not bounded by time alone ends
    /// when it has moved its size.
    pub job: Job,
    /// The places that the job names are so many times as far apart: with 2, blocks that would
    /// touch are a block apart.
    pub spacing: u64,
    /// The path of their group; that above all if empty.
    pub group: String,
    /// When the first begins, ns.
    pub start: u64,
    /// How long after it the next begins, ns.
    pub stagger: u64,
    /// Each has finished with so many I/Os, flushes among them, if its job does not end before.
    pub ios: Option<u64>,
}

impl Processes {
    /// Processes that begin at once and go on for ever.
    #[must_use]
    pub fn new(name: &str, count: usize, habit: Habit, job: Job) -> Processes {
        let (name, group) = (name.to_owned(), String::new());
        Processes { name, count, habit, job, spacing: 1, group, start: 0, stagger: 0, ios: None }
    }

    /// Whether they finish by themselves.
    #[must_use]
    pub fn are_finite(&self) -> bool {
        self.ios.is_some() || !self.job.time_based
    }
}

/// A process that is to be.
pub(crate) struct Seat {
    pub(crate) host: usize,
    pub(crate) cpu: usize,
    pub(crate) kind: usize,
    pub(crate) submitters: Vec<Submitter>,
    pub(crate) stream: Stream,
    pub(crate) group: GroupId,
    pub(crate) begins_at: Nanos,
    pub(crate) seed: u64,
    /// Paths may fail, and time may be up.
    pub(crate) may_fail: bool,
}

/// What a process has made up and not handed in.
#[derive(Clone, Copy, Debug)]
enum Made {
    Io(Io),
    /// A flush, with its token.
    Flush(u16),
}

/// A process.
pub(crate) struct Process {
    /// The host that it is on.
    pub(crate) host: usize,
    pub(crate) cpu: usize,
    pub(crate) kind: usize,
    pub(crate) habit: Habit,
    submitters: Vec<Submitter>,
    /// Devices that have accepted something of it and not handed it back, in their order.
    busy: Vec<usize>,
    pub(crate) asleep: bool,
    /// It has been told of ends, and has not looked.
    pub(crate) told: bool,
    /// The lane through which the last of them came.
    pub(crate) through: usize,
    /// It has nothing to do before then.
    pub(crate) waits_until: Option<Nanos>,
    stream: Stream,
    spacing: u64,
    group: GroupId,
    prng: Prng,
    bytes: usize,
    /// Places of I/Os that are not under way, each with its memory.
    spare: Vec<(u32, Buf)>,
    made: Vec<Made>,
    /// What it handed in and a device had no place for, each with its device.
    held: Vec<(usize, Bio)>,
    /// I/Os in all.
    pub(crate) handed_in: u64,
    /// I/Os that it may still make up.
    left: u64,
    /// When it began to ask for what it has made up.
    begins: Nanos,
    /// It begins nothing before then.
    pauses_until: Nanos,
    /// The I/Os that have ended, and that it does not have back.
    pub(crate) returned: Vec<Returned>,
    /// When the I/O at each place began.
    begun: Vec<Nanos>,
    /// When its device took it.
    taken: Vec<Nanos>,
    /// The device that is next.
    next: usize,
    /// Empty between two calls.
    used: Vec<usize>,
    pub(crate) tally: Tally,
    pub(crate) began: Nanos,
    /// It finishes by itself.
    finite: bool,
    /// An I/O of it may end with an error.
    may_fail: bool,
    /// It asks for nothing any more.
    done: bool,
    /// When it last had back what had ended.
    pub(crate) back_at: Nanos,
    finished: Option<Nanos>,
}

impl Process {
    pub(crate) fn new(seat: Seat, alike: &Processes) -> Process {
        let Seat { host, cpu, kind, submitters, stream, group, begins_at, seed, may_fail } = seat;
        let (habit, bytes) = (alike.habit, alike.job.buffer_bytes() as usize);
        let spare = (0..habit.depth.into()).map(|place| (place, Buf::zeroed(bytes))).collect();
        Process {
            host,
            cpu,
            kind,
            habit,
            submitters,
            busy: Vec::new(),
            asleep: false,
            told: false,
            through: 0,
            waits_until: None,
            stream,
            spacing: alike.spacing,
            group,
            prng: Prng::new(seed),
            bytes,
            spare,
            made: Vec::new(),
            held: Vec::new(),
            handed_in: 0,
            left: alike.ios.unwrap_or(u64::MAX),
            begins: Nanos::ZERO,
            pauses_until: Nanos::ZERO,
            returned: Vec::new(),
            begun: vec![Nanos::ZERO; usize::from(habit.depth)],
            taken: vec![Nanos::ZERO; usize::from(habit.depth)],
            next: 0,
            used: Vec::new(),
            tally: Tally::default(),
            began: begins_at,
            finite: alike.are_finite(),
            may_fail,
            done: false,
            back_at: begins_at,
            finished: None,
        }
    }

    /// It begins nothing new.
    pub(crate) fn stop(&mut self) {
        self.stream.stop();
    }

    /// Whether something of it is under way, or about to be.
    pub(crate) fn is_busy(&self) -> bool {
        self.spare.len() < usize::from(self.habit.depth)
            || !self.made.is_empty()
            || !self.returned.is_empty()
    }

    /// If it has back the last of what it asks for, it has finished with that. Whether it is found
    /// to have now: a process that pauses knows only after its pause that there is nothing more.
    pub(crate) fn finish(&mut self) -> bool {
        let finishes = self.finite && self.done && self.finished.is_none() && !self.is_busy();
        if finishes {
            self.finished = Some(self.back_at);
        }
        finishes
    }

    pub(crate) fn worked(&self) -> Worked<'_> {
        Worked { tally: &self.tally, began: self.began, finished: self.finished }
    }

    /// What it computes before its next I/O, ns.
    pub(crate) fn think(&mut self) -> u64 {
        match self.habit.think_spread {
            0 => self.habit.think,
            spread => self.habit.think + self.prng.below(spread + 1),
        }
    }

    /// What waits to be handed in again.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Makes up what there is room for, as much as goes together; how much.
    pub(crate) fn make(&mut self, now: Nanos) -> usize {
        self.waits_until = None;
        self.done |= self.left == 0;
        if self.pauses_until > now && !self.done {
            self.waits_until = Some(self.pauses_until);
            return 0;
        }
        while self.made.len() < self.habit.batch as usize {
            if self.left == 0 {
                self.done = true;
                break;
            }
            match self.stream.ask(now) {
                Ask::Io(io) => self.made.push(Made::Io(io)),
                Ask::Flush { token, .. } => self.made.push(Made::Flush(token)),
                Ask::Wait(until) => {
                    self.waits_until = Some(until);
                    break;
                }
                Ask::Blocked => break,
                Ask::Done => {
                    self.done = true;
                    break;
                }
            }
            self.left -= 1;
        }
        self.made.len()
    }

    /// It asks for what it has made up.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.begins = now;
    }

    /// Hands in what was held, then what it has made up, each to the next device.
    /// `sink` has the listener to what happens at a device.
    pub(crate) fn hand_in<S: Sink>(&mut self, now: Nanos, sink: impl Fn(usize) -> S) {
        let mut used = std::mem::take(&mut self.used);
        // Lists are kept for their memory.
        if !self.held.is_empty() {
            // What a device has no place for again is held anew.
            for (device, bio) in std::mem::take(&mut self.held) {
                self.give(device, bio, now, sink(device));
                used.push(device);
            }
        }
        let mut made = std::mem::take(&mut self.made);
        for one in &made {
            let device = self.next;
            self.next = if device + 1 < self.submitters.len() { device + 1 } else { 0 };
            let bio = self.bio(*one);
            self.give(device, bio, now, sink(device));
            self.handed_in += 1;
            used.push(device);
        }
        made.clear();
        self.made = made;
        if used.len() > 1 {
            used.sort_unstable();
            used.dedup();
        }
        for device in &used {
            self.submitters[*device].flush_plug_telling(now, sink(*device));
        }
        used.clear();
        self.used = used;
    }

    fn bio(&mut self, made: Made) -> Bio {
        let (place, memory) = self.spare.pop().expect("a place for each I/O under way");
        self.begun[place as usize] = self.begins;
        let (mut bio, token) = match made {
            Made::Flush(token) => (Bio::flush(), token),
            Made::Io(io) => {
                let data = match io.op {
                    Op::Discard => Data::None,
                    _ => Data::One(of_length(memory, io.sectors)),
                };
                let mut bio = Bio::new(io.op, io.sector * self.spacing, io.sectors, data);
                (bio.flags, bio.ioprio) = (io.flags, io.ioprio);
                (bio, io.token)
            }
        };
        bio.group = self.group;
        bio.cookie = u64::from(place) << 16 | u64::from(token);
        bio
    }

    /// A device takes a bio, or has no place for it and those behind.
    fn give(&mut self, device: usize, bio: Bio, now: Nanos, sink: impl Sink) {
        if self.held.iter().any(|(other, _)| *other == device) {
            return self.held.push((device, bio));
        }
        let place = (bio.cookie >> 16) as usize;
        match self.submitters[device].submit_telling(bio, now, sink) {
            Ok(()) => {
                self.taken[place] = now;
                if let Err(rank) = self.busy.binary_search(&device) {
                    self.busy.insert(rank, device);
                }
            }
            Err(Refused::Full(bio)) => self.held.push((device, bio)),
            Err(_) => unreachable!("no device is frozen here, and no group capped"),
        }
    }

    /// Takes what has ended; how much.
    pub(crate) fn take_ended(&mut self, now: Nanos) -> usize {
        let Process { submitters, busy, stream, spare, begun, taken, returned, .. } = self;
        let (bytes, may_fail) = (self.bytes, self.may_fail);
        let mut ended = 0;
        busy.retain(|device| {
            let submitter = &mut submitters[*device];
            ended += submitter.complete(now, |completion| {
                let Completion { cookie, status, .. } = completion;
                assert!(status.is_ok() || may_fail, "nothing is the matter: {status:?}");
                let (place, token) = ((cookie >> 16) as u32, cookie as u16);
                let [begun, taken] = [&*begun, &*taken].map(|times| times[place as usize]);
                returned.push(Returned::new(begun, taken, &completion));
                spare.push((place, memory_of(completion.data, bytes)));
                stream.ended(token, status.is_ok(), now);
            });
            submitter.in_flight() > 0
        });
        let Habit { pause, pause_spread, .. } = self.habit;
        if ended > 0 && pause + pause_spread > 0 {
            let longer = if pause_spread > 0 { self.prng.below(pause_spread + 1) } else { 0 };
            self.pauses_until = now + pause + longer;
        }
        ended
    }
}

/// Memory for so many sectors: what there is, if it fits.
fn of_length(memory: Buf, sectors: u32) -> Buf {
    let bytes = sectors as usize * SECTOR as usize;
    if memory.len() == bytes { memory } else { Buf::zeroed(bytes) }
}

/// The memory that comes back is what was sent.
fn memory_of(data: Data, bytes: usize) -> Buf {
    match data {
        Data::One(buf) => buf,
        _ => Buf::zeroed(bytes),
    }
}
