//! One `bfq` with its books, driven call by call, where a test must see inside; and processes in a
//! closed loop before a modelled device on top of that.

use std::collections::BTreeMap;

use weir_bio::{Flags, GroupId, IoPrio, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId};
use weir_sched::mq::bfq::{Bfq, DeviceView, Features, QueueView};
use weir_sched::{Ended, Merge, Scheduler};

use super::bed::{self, Device, setup, wide};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;

/// A process in a closed loop.
#[derive(Clone, Debug)]
pub struct Process {
    pub sector: u64,
    /// From one request to the next; random in `1 << 28` sectors if none.
    pub stride: Option<u64>,
    pub sectors: u32,
    pub depth: usize,
    pub think: u64,
    pub op: Op,
    pub sync: bool,
    pub ioprio: IoPrio,
    pub group: GroupId,
    /// Requests left to ask for.
    pub left: u64,
    pub prng: Prng,
    /// Sectors answered.
    pub answered: u64,
    pub answers: u64,
    /// The longest and the last wait from insert to completion, ns.
    pub waits: Vec<u64>,
}

impl Process {
    /// Reads on and on, 128 KiB at a time, the next 0.1 ms after the last.
    pub fn reader(sector: u64) -> Process {
        Process {
            sector,
            stride: Some(256),
            sectors: 256,
            depth: 1,
            think: 100_000,
            op: Op::Read,
            sync: true,
            ioprio: IoPrio::NONE,
            group: GroupId(0),
            left: u64::MAX,
            prng: Prng::new(sector),
            answered: 0,
            answers: 0,
            waits: Vec::new(),
        }
    }

    fn next(&mut self, context: u16, tag: SchedTag) -> Rq {
        let sector = self.sector;
        self.sector = match self.stride {
            Some(stride) => sector + stride,
            None => self.prng.below(1 << 25) * 8,
        };
        self.left -= 1;
        let flags = if self.op == Op::Write && self.sync { Flags::SYNC } else { Flags::NONE };
        Rq {
            flags,
            ioprio: self.ioprio,
            group: self.group,
            op: self.op,
            sectors: self.sectors,
            id: RqId::new(SubmitterId(context), tag.0, 0),
            ..read(context, sector, tag)
        }
    }
}

/// A read of 8 sectors.
pub fn read(context: u16, sector: u64, tag: SchedTag) -> Rq {
    let id = RqId::new(SubmitterId(context), tag.0, 0);
    Rq { sector, id, ..bed::ledger::request(tag) }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Ask(usize),
    End(SchedTag),
}

/// A request, and when each part of it was asked for and by whom.
#[derive(Clone, Debug)]
struct Held {
    rq: Rq,
    parts: Vec<(usize, u64)>,
}

/// The scheduler, its tags, a device, processes.
pub struct Rig {
    pub bfq: Bfq,
    pub now: u64,
    device: Device,
    free: Vec<SchedTag>,
    /// Requests staged or in flight, by tag.
    places: Vec<Option<Held>>,
    pub in_flight: usize,
    pub processes: Vec<Process>,
    events: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    /// Dispatches in order: when, and what.
    pub dispatched: Vec<(u64, Rq)>,
    /// Times the device had room, something was staged and nothing came.
    pub refused: u64,
}

impl Rig {
    /// `low_latency` off and a queue for each process.
    pub fn new(device: Device) -> Rig {
        let mut rig = Rig::with(device, Features::UNSHARED);
        rig.set("low_latency", 0);
        rig
    }

    pub fn with(device: Device, features: Features) -> Rig {
        let setup = setup(wide(device.is_rotational()), 256, "6.18");
        Rig {
            bfq: Bfq::with_features(&setup, features),
            now: 0,
            device,
            free: (0..256).rev().map(SchedTag).collect(),
            places: vec![None; 256],
            in_flight: 0,
            processes: Vec::new(),
            events: BTreeMap::new(),
            sequence: 0,
            dispatched: Vec::new(),
            refused: 0,
        }
    }

    pub fn set(&mut self, name: &str, value: u64) {
        let text = value.to_string();
        self.bfq.tunables().set(name, &text).expect("a tunable");
    }

    pub fn show(&mut self, name: &str) -> String {
        self.bfq.tunables().show(name).expect("a tunable")
    }

    pub fn queue(&self, context: u16) -> QueueView {
        self.bfq.view(SubmitterId(context)).expect("a queue")
    }

    pub fn device(&self) -> DeviceView {
        self.bfq.device_view()
    }

    /// Inserts a request of this shape under a new tag.
    pub fn insert(&mut self, rq: Rq) -> SchedTag {
        let tag = self.free.pop().expect("a free tag");
        let rq = Rq { tag, ..rq };
        let parts = vec![(usize::from(rq.id.submitter().0), self.now)];
        self.places[usize::from(tag.0)] = Some(Held { rq, parts });
        let mut absorbed = Vec::new();
        self.bfq.insert(rq, Nanos(self.now), &mut absorbed);
        for (kept, gone) in absorbed {
            self.join(kept, gone);
        }
        tag
    }

    /// Inserts a read.
    pub fn read(&mut self, context: u16, sector: u64, sectors: u32) -> SchedTag {
        self.insert(Rq { sectors, ..read(context, sector, SchedTag::NONE) })
    }

    /// Offers a read for merging.
    pub fn offer(&mut self, context: u16, sector: u64, sectors: u32) -> Merge {
        self.offer_bio(Rq { sectors, ..read(context, sector, SchedTag::NONE) })
    }

    /// Offers a bio for merging.
    pub fn offer_bio(&mut self, bio: Rq) -> Merge {
        let merge = self.bfq.merge(&bio, Nanos(self.now));
        let (into, front, joined) = match merge {
            Merge::No => return merge,
            Merge::Back(tag) => (tag, false, None),
            Merge::Front(tag) => (tag, true, None),
            Merge::BackJoined { kept, gone } => (kept, false, Some((kept, gone))),
            Merge::FrontJoined { kept, gone } => (gone, true, Some((kept, gone))),
        };
        let held = self.places[usize::from(into.0)].as_mut().expect("a staged one");
        held.rq.sector -= if front { u64::from(bio.sectors) } else { 0 };
        held.rq.sectors += bio.sectors;
        held.rq.segments += bio.segments;
        held.parts.push((usize::from(bio.id.submitter().0), self.now));
        if let Some((kept, gone)) = joined {
            self.join(kept, gone);
        }
        merge
    }

    /// `gone` is the tail of `kept` from now on.
    fn join(&mut self, kept: SchedTag, gone: SchedTag) {
        let tail = self.places[usize::from(gone.0)].take().expect("a staged one");
        let held = self.places[usize::from(kept.0)].as_mut().expect("a staged one");
        assert_eq!(held.rq.end(), tail.rq.sector, "it continues the one that keeps it");
        held.rq.sectors += tail.rq.sectors;
        held.rq.segments += tail.rq.segments;
        held.parts.extend(tail.parts);
        self.free.push(gone);
    }

    /// Asks once.
    pub fn dispatch(&mut self) -> Option<Rq> {
        let rq = self.bfq.dispatch(0, Nanos(self.now))?;
        let known = self.places[usize::from(rq.tag.0)].as_ref().expect("a staged one").rq;
        assert_eq!((rq.sector, rq.sectors), (known.sector, known.sectors));
        self.in_flight += 1;
        self.dispatched.push((self.now, rq));
        Some(rq)
    }

    /// Ends a request; says who asked for its parts, and when.
    pub fn complete(&mut self, tag: SchedTag) -> Vec<(usize, u64)> {
        let held = self.places[usize::from(tag.0)].take().expect("one in flight");
        let since = Nanos(held.parts[0].1);
        let (status, accepted_at, issued_at, done_at) = (Status::Ok, since, since, Nanos(self.now));
        let handed_back = false;
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        self.bfq.ended(&end, Nanos(self.now));
        self.in_flight -= 1;
        self.free.push(tag);
        held.parts
    }

    /// Asks, and ends what comes after `ns`.
    pub fn serve(&mut self, ns: u64) -> Rq {
        let rq = self.dispatch().expect("a request");
        self.now += ns;
        self.complete(rq.tag);
        rq
    }

    /// Fires the timer when its time has come.
    pub fn fire(&mut self) {
        if self.bfq.wake_at().is_some_and(|at| at.0 <= self.now) {
            self.bfq.on_timer(Nanos(self.now));
        }
    }

    /// A process that begins at `start`; its context.
    pub fn process(&mut self, start: u64, process: Process) -> usize {
        let context = self.processes.len();
        for _ in 0..process.depth {
            self.schedule(start, Event::Ask(context));
        }
        self.processes.push(process);
        context
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    /// Runs the processes up to `end`; `watch` sees the scheduler after every event.
    pub fn run(&mut self, end: u64, mut watch: impl FnMut(&Rig)) {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer = self.bfq.wake_at().map(|at| at.0.max(self.now));
            let Some(at) = event.into_iter().chain(timer).min().filter(|at| *at < end) else {
                self.now = end;
                return;
            };
            self.now = at;
            if event == Some(at) {
                let (_, event) = self.events.pop_first().expect("the one that was looked at");
                match event {
                    Event::Ask(context) => self.ask(context),
                    Event::End(tag) => self.end(tag),
                }
            } else {
                self.fire();
            }
            watch(self);
            self.let_out(&mut watch);
        }
    }

    fn ask(&mut self, context: usize) {
        if self.processes[context].left > 0 {
            let rq = self.processes[context].next(context as u16, SchedTag::NONE);
            self.insert(rq);
        }
    }

    fn end(&mut self, tag: SchedTag) {
        for (context, since) in self.complete(tag) {
            let process = &mut self.processes[context];
            process.answered += u64::from(process.sectors);
            process.answers += 1;
            process.waits.push(self.now - since);
            let again = self.now + process.think;
            self.schedule(again, Event::Ask(context));
        }
    }

    fn let_out(&mut self, watch: &mut impl FnMut(&Rig)) {
        while self.device.has_room(self.in_flight) {
            let staged = self.bfq.staged();
            let Some(rq) = self.dispatch() else {
                self.refused += u64::from(staged > 0);
                let told = self.in_flight > 0 || self.bfq.wake_at().is_some();
                assert!(staged == 0 || told, "{staged} requests are stranded at {}", self.now);
                return;
            };
            let end = self.device.take(&rq, Nanos(self.now)).0;
            self.schedule(end, Event::End(rq.tag));
            watch(self);
        }
    }
}
