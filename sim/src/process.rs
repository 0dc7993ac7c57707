//! A simulated process: it asks for I/O through a submitter of each device, thinks, and sleeps.

use weir_bio::{Bio, Buf, Data, Nanos, Prng};
use weir_load::{Ask, Io, Stream, Workload};
use weir_queue::{Completion, Submitter};

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
}

/// A process.
pub(crate) struct Process {
    pub(crate) cpu: usize,
    pub(crate) habit: Habit,
    pub(crate) submitters: Vec<Submitter>,
    pub(crate) asleep: bool,
    /// It has been told of ends, and has not looked.
    pub(crate) told: bool,
    /// The lane through which the last of them came.
    pub(crate) through: usize,
    stream: Stream,
    prng: Prng,
    bytes: usize,
    /// Places of I/Os that are not under way, each with its memory.
    spare: Vec<(u32, Buf)>,
    /// What it has made up and not handed in.
    made: Vec<Io>,
    /// I/Os in all.
    pub(crate) handed_in: u64,
    /// When it began to ask for what it has made up.
    begins: Nanos,
    /// When the I/Os began that have ended, and that it does not have back.
    pub(crate) returned: Vec<Nanos>,
    /// When the I/O at each place began.
    begun: Vec<Nanos>,
    /// The device that is next.
    next: usize,
}

impl Process {
    pub(crate) fn new(
        cpu: usize,
        habit: Habit,
        submitters: Vec<Submitter>,
        stream: Stream,
        bytes: usize,
        seed: u64,
    ) -> Process {
        let spare = (0..habit.depth.into()).map(|place| (place, Buf::zeroed(bytes))).collect();
        Process {
            cpu,
            habit,
            submitters,
            asleep: false,
            told: false,
            through: 0,
            stream,
            prng: Prng::new(seed),
            bytes,
            spare,
            made: Vec::new(),
            handed_in: 0,
            begins: Nanos::ZERO,
            returned: Vec::new(),
            begun: vec![Nanos::ZERO; usize::from(habit.depth)],
            next: 0,
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

    /// What it computes before its next I/O, ns.
    pub(crate) fn think(&mut self) -> u64 {
        match self.habit.think_spread {
            0 => self.habit.think,
            spread => self.habit.think + self.prng.below(spread + 1),
        }
    }

    /// Makes up what there is room for, as much as goes together; how much.
    pub(crate) fn make(&mut self, now: Nanos) -> usize {
        while self.made.len() < self.habit.batch as usize
            && let Ask::Io(io) = self.stream.ask(now)
        {
            self.made.push(io);
        }
        self.made.len()
    }

    /// It asks for what it has made up.
    pub(crate) fn begin(&mut self, now: Nanos) {
        self.begins = now;
    }

    /// Hands in what it has made up, each to the next device.
    pub(crate) fn hand_in(&mut self, now: Nanos, sink: impl weir_queue::Sink) {
        let mut used = 0_u64;
        for io in self.made.drain(..) {
            let device = self.next;
            self.next = (device + 1) % self.submitters.len();
            let (place, memory) = self.spare.pop().expect("a place for each I/O under way");
            let mut bio = Bio::new(io.op, io.sector, io.sectors, Data::One(memory));
            bio.flags = io.flags;
            bio.cookie = u64::from(place) << 16 | u64::from(io.token);
            self.begun[place as usize] = self.begins;
            let taken = self.submitters[device].submit_telling(bio, now, sink);
            assert!(taken.is_ok(), "there are as many slots as I/Os under way");
            self.handed_in += 1;
            used |= 1 << device;
        }
        for (device, submitter) in self.submitters.iter_mut().enumerate() {
            if used & (1 << device) != 0 {
                submitter.flush_plug_telling(now, sink);
            }
        }
    }

    /// Takes what has ended; how much.
    pub(crate) fn take_ended(&mut self, now: Nanos) -> usize {
        let Process { submitters, stream, spare, begun, returned, bytes, .. } = self;
        let mut ended = 0;
        for submitter in submitters {
            ended += submitter.complete(now, |completion| {
                let Completion { cookie, status, data, .. } = completion;
                assert!(status.is_ok(), "a simulated disk has no errors");
                let (place, token) = ((cookie >> 16) as u32, cookie as u16);
                spare.push((place, memory_of(data, *bytes)));
                returned.push(begun[place as usize]);
                stream.ended(token, true, now);
            });
        }
        ended
    }
}

/// The memory that comes back is what was sent.
fn memory_of(data: Data, bytes: usize) -> Buf {
    match data {
        Data::One(buf) => buf,
        _ => Buf::zeroed(bytes),
    }
}
