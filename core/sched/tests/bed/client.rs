//! Clients: who asks, in what pattern, how much at once, and what they got.

use weir_bio::{Class, Flags, GroupId, IoPrio, Nanos, Op, Prng, SECTOR};

use super::engine::ClientId;

/// One I/O of a list.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub op: Op,
    pub sector: u64,
    pub sectors: u32,
    pub flags: Flags,
}

/// Where the next I/O goes.
#[derive(Clone, Debug)]
pub enum Access {
    /// One block behind the other, `stride` sectors from start to start.
    Sequential { next: u64, stride: u64 },
    /// Uniformly random blocks of a range of so many sectors.
    Random { start: u64, range: u64, prng: Prng },
    /// These, one after the other, and then the client is done.
    List(std::vec::IntoIter<Ask>),
}

/// A process: submits I/O and waits for its answers.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) access: Access,
    pub(super) op: Op,
    pub(super) flags: Flags,
    pub(super) sectors: u32,
    pub(super) depth: usize,
    pub(super) think_ns: u64,
    /// By how much at most it thinks longer at times, and what decides it.
    pub(super) dither: Option<(u64, Prng)>,
    pub(super) gap_ns: u64,
    pub(super) every_ns: Option<u64>,
    pub(super) ioprio: IoPrio,
    pub(super) group: GroupId,
    pub(super) start: Nanos,
    pub(super) ios: Option<u64>,
    /// The client that submits when an I/O of this one has ended.
    pub(super) wakes: Option<usize>,
}

impl Client {
    fn new(op: Op, access: Access, sectors: u32) -> Client {
        Client {
            access,
            op,
            flags: Flags::SYNC,
            sectors,
            depth: 1,
            think_ns: 0,
            dither: None,
            gap_ns: 0,
            every_ns: None,
            ioprio: IoPrio::NONE,
            group: GroupId(0),
            start: Nanos::ZERO,
            ios: None,
            wakes: None,
        }
    }

    /// Reads on and on from `sector`, so many sectors at a time.
    pub fn reader(sector: u64, sectors: u32) -> Client {
        let access = Access::Sequential { next: sector, stride: u64::from(sectors) };
        Client::new(Op::Read, access, sectors)
    }

    /// Writes on and on from `sector`; SYNC, as direct I/O is.
    pub fn writer(sector: u64, sectors: u32) -> Client {
        Client { op: Op::Write, ..Client::reader(sector, sectors) }
    }

    /// Reads random blocks of `sectors` sectors in `range` sectors from `start`.
    pub fn random_reader(start: u64, range: u64, sectors: u32, seed: u64) -> Client {
        let access = Access::Random { start, range, prng: Prng::new(seed) };
        Client::new(Op::Read, access, sectors)
    }

    /// Writes random blocks; SYNC, as direct I/O is.
    pub fn random_writer(start: u64, range: u64, sectors: u32, seed: u64) -> Client {
        Client { op: Op::Write, ..Client::random_reader(start, range, sectors, seed) }
    }

    /// Asks for exactly these.
    pub fn list(asks: Vec<Ask>) -> Client {
        Client::new(Op::Read, Access::List(asks.into_iter()), 0)
    }

    /// From start to start of its sequential I/Os, sectors: a part of a stream shared with others.
    pub fn stride(mut self, sectors: u64) -> Client {
        match &mut self.access {
            Access::Sequential { stride, .. } => *stride = sectors,
            other => panic!("a stride is for sequential clients, not {other:?}"),
        }
        self
    }

    /// Writes as write-back does: async.
    pub fn background(self) -> Client {
        Client { flags: self.flags.without(Flags::SYNC) | Flags::BACKGROUND, ..self }
    }

    /// The same with more flags.
    pub fn with(self, flags: Flags) -> Client {
        Client { flags: self.flags | flags, ..self }
    }

    /// I/Os under way at once.
    pub fn depth(self, depth: usize) -> Client {
        Client { depth, ..self }
    }

    /// From an answer to the next I/O in its place.
    pub fn think(self, think_ns: u64) -> Client {
        Client { think_ns, ..self }
    }

    /// It thinks up to so much longer, each length as often as any other. A client that always
    /// thinks as long falls into step with the device, and sees one phase of it only.
    pub fn dither(self, dither_ns: u64, seed: u64) -> Client {
        Client { dither: Some((dither_ns, Prng::new(seed))), ..self }
    }

    /// How long it thinks now.
    pub(super) fn thinks(&mut self) -> u64 {
        let longer = self.dither.as_mut().map_or(0, |(most, prng)| prng.below(*most + 1));
        self.think_ns + longer
    }

    /// The least time between two of its submissions: what a submission costs the process.
    pub fn gap(self, gap_ns: u64) -> Client {
        Client { gap_ns, ..self }
    }

    /// Submits in this rhythm, as long as fewer than its depth are under way.
    pub fn every(self, every_ns: u64) -> Client {
        Client { every_ns: Some(every_ns), ..self }
    }

    /// Its I/O priority.
    pub fn prio(self, class: Class, level: u8) -> Client {
        Client { ioprio: IoPrio::new(class, level), ..self }
    }

    /// Its group.
    pub fn group(self, group: u32) -> Client {
        Client { group: GroupId(group), ..self }
    }

    /// When it begins.
    pub fn start(self, start_ns: u64) -> Client {
        Client { start: Nanos(start_ns), ..self }
    }

    /// It stops after so many I/Os.
    pub fn ios(self, ios: u64) -> Client {
        Client { ios: Some(ios), ..self }
    }

    /// When an I/O of it has ended, not this client submits but that one, as a process that wakes
    /// another. One of a ring of such begins with its depth, the others with none.
    pub fn wakes(self, other: ClientId) -> Client {
        Client { wakes: Some(other.0), ..self }
    }

    /// The next I/O, unless the client is done.
    pub(super) fn next(&mut self) -> Option<Ask> {
        let Client { op, flags, sectors, .. } = *self;
        if let Some(left) = &mut self.ios {
            *left = left.checked_sub(1)?;
        }
        let sector = match &mut self.access {
            Access::List(asks) => return asks.next(),
            Access::Sequential { next, stride } => {
                let sector = *next;
                *next += *stride;
                sector
            }
            Access::Random { start, range, prng } => {
                let blocks = *range / u64::from(sectors);
                *start + prng.below(blocks) * u64::from(sectors)
            }
        };
        Some(Ask { op, sector, sectors, flags })
    }
}

/// One I/O that ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub submitted: Nanos,
    pub issued: Nanos,
    pub completed: Nanos,
    pub sectors: u32,
}

/// The service a client got. The device's times are in `issued` and `completed`.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// I/Os submitted.
    pub submitted: u64,
    /// Each I/O that ended, in the order they ended.
    pub done: Vec<Done>,
    /// When its last I/O ended, once it is done for good.
    pub finished_at: Option<Nanos>,
}

impl Record {
    fn between(&self, from: Nanos, to: Nanos) -> impl Iterator<Item = &Done> {
        self.done.iter().filter(move |done| done.completed >= from && done.completed < to)
    }

    /// Bytes answered in a span of time.
    pub fn bytes_between(&self, from: Nanos, to: Nanos) -> u64 {
        self.between(from, to).map(|done| u64::from(done.sectors) * SECTOR).sum()
    }

    /// I/Os answered in a span of time.
    pub fn ios_between(&self, from: Nanos, to: Nanos) -> u64 {
        self.between(from, to).count() as u64
    }

    /// From submission to answer, of the I/Os answered in a span of time.
    pub fn latencies_between(&self, from: Nanos, to: Nanos) -> Latencies {
        let ns = self.between(from, to).map(|done| done.completed.since(done.submitted));
        Latencies::new(ns.collect())
    }

    /// From submission to answer, of all I/Os.
    pub fn latencies(&self) -> Latencies {
        self.latencies_between(Nanos::ZERO, Nanos(u64::MAX))
    }
}

/// Latencies in order, ns.
#[derive(Clone, Debug)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    fn new(mut ns: Vec<u64>) -> Latencies {
        ns.sort_unstable();
        Latencies(ns)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Their mean; 0 of none.
    pub fn mean(&self) -> u64 {
        let sum: u64 = self.0.iter().sum();
        sum / (self.0.len() as u64).max(1)
    }

    /// The one that `percent` of 100 do not exceed; 0 of none.
    pub fn percentile(&self, percent: usize) -> u64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).copied().unwrap_or(0)
    }

    /// The longest; 0 of none.
    pub fn max(&self) -> u64 {
        self.0.last().copied().unwrap_or(0)
    }
}
