//! Closed-loop clients and modelled disks around one scheduler, over virtual time.
//!
//! The disks are those of docs/behaviour/bfq.md, section 17. After every event the scheduler is
//! asked until it answers `None`, and it is checked that no request is stranded then.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir_bio::{
    Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Rq, RqId, SchedTag, Status, SubmitterId,
};
use weir_sched::legacy::cfq::Cfq;
use weir_sched::{Ended, Scheduler, Setup};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
const TAGS: u16 = 1024;

/// A modelled device.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    pub rotational: bool,
    /// The rate of one channel, bytes per second; 0 if only `fixed_ns` counts.
    pub rate: u64,
    /// The extra time of a request that does not begin where the one before ended.
    pub seek_ns: u64,
    /// The time of every request.
    pub fixed_ns: u64,
    /// Requests served side by side.
    pub slots: usize,
    /// Requests the device takes in.
    pub depth: usize,
}

/// One request at a time, no seek cost, rotational.
pub const F: Disk =
    Disk { rotational: true, rate: 100_000_000, seek_ns: 0, fixed_ns: 0, slots: 1, depth: 32 };
/// 104 MB/s, and 8.7 ms where requests are not contiguous.
pub const HDD: Disk = Disk { rate: 104_000_000, seek_ns: 8_700_000, ..F };
/// 32 slots of 100 us.
pub const SSD: Disk =
    Disk { rotational: false, rate: 0, seek_ns: 0, fixed_ns: 100_000, slots: 32, depth: 128 };

/// A client that always has `depth` requests under way.
#[derive(Clone, Debug)]
pub struct Client {
    pub op: Op,
    pub flags: Flags,
    pub group: u32,
    pub ioprio: IoPrio,
    pub sectors: u32,
    pub depth: u32,
    pub think_ns: u64,
    pub starts_at: u64,
    /// How many requests in all.
    pub requests: u64,
    pub from: u64,
    /// Sectors from one request to the next; 0 for random ones.
    pub stride: u64,
}

/// A sequential reader that thinks for 0.1 ms between 128 KiB reads. Each has its own area.
pub fn reader(area: u64) -> Client {
    Client {
        op: Op::Read,
        flags: Flags::NONE,
        group: 0,
        ioprio: IoPrio::NONE,
        sectors: 256,
        depth: 1,
        think_ns: 100_000,
        starts_at: 0,
        requests: u64::MAX,
        from: 1_000 + area * 200_000_000,
        stride: 256,
    }
}

/// The service a client got.
#[derive(Clone, Debug, Default)]
pub struct Got {
    pub requests: u64,
    pub sectors: u64,
    pub finished_at: u64,
    pub longest_wait_ns: u64,
}

/// One dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: u64,
    pub client: usize,
    pub sector: u64,
    /// Requests in flight with it: of this client, and of all sync ones.
    pub in_flight: u32,
    pub sync_in_flight: u32,
    /// Answers this client had had before.
    pub answered: u64,
    /// Time since it was accepted.
    pub waited_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Issue(usize),
    Done(u16),
}

struct Held {
    client: usize,
    rq: Rq,
    accepted_at: Nanos,
    issued_at: Nanos,
}

/// Clients, scheduler and disk.
pub struct Bed {
    pub cfq: Cfq,
    disk: Disk,
    clients: Vec<Client>,
    pub got: Vec<Got>,
    pub sent: Vec<Sent>,
    /// Whether `sent` is kept.
    pub records: bool,
    issued: Vec<u64>,
    in_flight: Vec<u32>,
    held: Vec<Option<Held>>,
    free: Vec<u16>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    pub now: u64,
    device: VecDeque<u16>,
    serving: usize,
    position: u64,
    prng: Prng,
}

impl Bed {
    pub fn new(disk: Disk, clients: Vec<Client>) -> Bed {
        let limits = Limits {
            rotational: disk.rotational,
            capacity: u64::MAX,
            max_hw_sectors: 8192,
            ..Limits::default()
        };
        let setup = Setup { limits, nr_requests: TAGS, hard_queues: 1, nomerges: 2, compat: "" };
        let seed = 5;
        println!("seed {seed}");
        let count = clients.len();
        let mut bed = Bed {
            cfq: Cfq::new(&setup),
            disk,
            clients,
            got: vec![Got::default(); count],
            sent: Vec::new(),
            records: true,
            issued: vec![0; count],
            in_flight: vec![0; count],
            held: (0..TAGS).map(|_| None).collect(),
            free: (0..TAGS).rev().collect(),
            events: BinaryHeap::new(),
            sequence: 0,
            now: 0,
            device: VecDeque::new(),
            serving: 0,
            position: 0,
            prng: Prng::new(seed),
        };
        for client in 0..count {
            for _ in 0..bed.clients[client].depth {
                bed.at(bed.clients[client].starts_at, Event::Issue(client));
            }
        }
        bed
    }

    /// Sets tunables before the run.
    pub fn with(mut self, tunables: &[(&str, &str)]) -> Bed {
        for (name, text) in tunables {
            self.cfq.tunables().set(name, text).expect("a tunable of cfq");
        }
        self
    }

    /// Runs until `end` or until there is nothing left to happen.
    pub fn run(&mut self, end: u64) {
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let timer = self.cfq.wake_at().map(|at| at.0.max(self.now));
            let Some(at) = [event, timer].into_iter().flatten().min() else { return };
            if at > end {
                self.now = end;
                return;
            }
            self.now = at;
            if event == Some(at) {
                let Reverse((.., event)) = self.events.pop().expect("it was seen");
                match event {
                    Event::Issue(client) => self.issue(client),
                    Event::Done(tag) => self.done(tag),
                }
            } else {
                self.cfq.on_timer(Nanos(at));
            }
            self.pump();
        }
    }

    /// Forgets what was counted so far.
    pub fn forget(&mut self) {
        self.got.iter_mut().for_each(|got| *got = Got::default());
        self.sent.clear();
    }

    fn at(&mut self, at: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    fn issue(&mut self, client: usize) {
        let Client { op, flags, group, ioprio, sectors, from, stride, requests, .. } =
            self.clients[client];
        if self.issued[client] == requests {
            return;
        }
        let step = self.issued[client];
        self.issued[client] += 1;
        let sector = match stride {
            0 => from + self.prng.below(1 << 20) * 128,
            stride => from + step * stride,
        };
        let tag = self.free.pop().expect("there are tags enough");
        let rq = Rq {
            sector,
            sectors,
            id: RqId::new(SubmitterId(client as u16), tag, 0),
            flags,
            group: GroupId(group),
            ioprio,
            hint: 0,
            tag: SchedTag(tag),
            op,
            segments: 1,
        };
        let now = Nanos(self.now);
        let held = Held { client, rq, accepted_at: now, issued_at: now };
        self.held[usize::from(tag)] = Some(held);
        self.cfq.insert(rq, now, &mut Vec::new());
    }

    fn pump(&mut self) {
        while self.device.len() < self.disk.depth {
            let Some(rq) = self.cfq.dispatch(0, Nanos(self.now)) else {
                let waits = self.cfq.staged() > 0 && self.device.is_empty();
                assert!(!waits || self.cfq.wake_at().is_some(), "stranded at {} ns", self.now);
                return;
            };
            self.note_sent(&rq);
            self.device.push_back(rq.tag.0);
            self.serve();
        }
    }

    fn note_sent(&mut self, rq: &Rq) {
        let held = self.held[usize::from(rq.tag.0)].as_mut().expect("it was inserted");
        assert_eq!(held.rq, *rq, "it comes out as it went in");
        held.issued_at = Nanos(self.now);
        let client = held.client;
        let got = &mut self.got[client];
        let waited_ns = self.now - held.accepted_at.0;
        got.longest_wait_ns = got.longest_wait_ns.max(waited_ns);
        self.in_flight[client] += 1;
        if !self.records {
            return;
        }
        let clients = self.clients.iter().zip(&self.in_flight);
        let sync = clients.filter(|(client, _)| is_sync(client)).map(|(_, count)| count).sum();
        self.sent.push(Sent {
            at: self.now,
            client,
            sector: rq.sector,
            in_flight: self.in_flight[client],
            sync_in_flight: sync,
            answered: got.requests,
            waited_ns,
        });
    }

    /// Starts requests the device has taken in, first come first served.
    fn serve(&mut self) {
        while self.serving < self.disk.slots.min(self.device.len()) {
            let tag = self.device[self.serving];
            let rq = self.held[usize::from(tag)].as_ref().expect("it is held").rq;
            let bytes = u64::from(rq.sectors) * 512;
            let transfer = (bytes * SECOND).checked_div(self.disk.rate).unwrap_or(0);
            let mut ns = self.disk.fixed_ns + transfer;
            if rq.sector != self.position {
                ns += self.disk.seek_ns;
            }
            self.position = rq.end();
            self.serving += 1;
            self.at(self.now + ns, Event::Done(tag));
        }
    }

    fn done(&mut self, tag: u16) {
        let at = self.device.iter().position(|other| *other == tag).expect("it is served");
        self.device.remove(at);
        self.serving -= 1;
        let held = self.held[usize::from(tag)].take().expect("it is held");
        let now = Nanos(self.now);
        let Held { client, rq, accepted_at, issued_at } = held;
        self.in_flight[client] -= 1;
        let got = &mut self.got[client];
        got.requests += 1;
        got.sectors += u64::from(rq.sectors);
        got.finished_at = self.now;
        let (status, done_at) = (Status::Ok, now);
        let (tag, handed_back) = (rq.tag, false);
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        self.cfq.ended(&end, now);
        self.free.push(tag.0);
        self.serve();
        self.at(self.now + self.clients[client].think_ns, Event::Issue(client));
    }
}

fn is_sync(client: &Client) -> bool {
    !client.op.is_write() || client.flags.has(Flags::SYNC)
}
