//! A job's I/Os, one after the other: the machine behind everything that fio can describe.
//!
//! The plain case, one size and no pause, is what a fast target is driven with; it costs one draw,
//! one multiplication and no division, and no floating point.

use weir_bio::{Flags, IoPrio, Nanos, Op, Prng, SECTOR};

use crate::ask::{Ask, Fault, Io, Workload};
use crate::blocks::Blocks;
use crate::job::{Access, ByDirection, Direction, Ground, Job, JobError, Range};
use crate::pacer::Pacer;
use crate::place::{Distribution, Places};
use crate::sizes::Sizes;

/// How reads, writes and trims are asked for.
const OPS: [Op; 3] = [Op::Read, Op::Write, Op::Discard];

/// One clone of a job, on its part of a target.
#[derive(Clone, Debug)]
pub struct Stream {
    prng: Prng,
    /// Bytes it may still begin; all, when it is bounded by time alone.
    left: u64,
    in_flight: u32,
    depth: u32,
    plain: Option<Plain>,
    shape: Box<Shape>,
}

/// What the plain case needs, side by side.
#[derive(Clone, Copy, Debug)]
struct Plain {
    /// Reads in 2^32 I/Os, so that the choice costs a compare.
    reads: u64,
    /// What is done if it is no read, and a read.
    choices: [(Op, Flags, u8); 2],
    random: bool,
    first: u64,
    blocks: u64,
    sectors: u32,
    /// The same in bytes if they count, else 0.
    counted: u64,
    at: u64,
    ioprio: IoPrio,
}

/// Everything else.
#[derive(Clone, Debug)]
struct Shape {
    range: Range,
    access: Access,
    direction: Direction,
    reads: u64,
    sizes: ByDirection<Sizes>,
    places: ByDirection<Option<Places>>,
    /// Where sequential I/O goes on, from the range's start, bytes.
    at: ByDirection<u64>,
    pacers: ByDirection<Option<Pacer>>,
    write_flags: Flags,
    ioprio: IoPrio,
    think_ns: u64,
    /// Since the pause began nothing may be started; `None` when no pause is due.
    think_until: Option<Nanos>,
    flush_every: u32,
    unflushed: u32,
    blocks: Option<Blocks>,
    /// Bounded by bytes.
    counted: bool,
    /// Drawn, and not begun because of its time or of another on the same blocks.
    next: Option<Io>,
    stopped: bool,
}

/// The token of a flush.
const FLUSH: u16 = u16::MAX;

impl Stream {
    /// Clone number `clone` of a job on such a target.
    ///
    /// # Errors
    /// As [`Job::range`]; a block table that would not fit in memory.
    pub fn new(job: &Job, ground: Ground, clone: u16) -> Result<Stream, JobError> {
        if job.read_percent > 100 {
            return Err(JobError(format!("rwmixread={} is outside 0..=100", job.read_percent)));
        }
        let range = job.part(job.range(ground)?, clone);
        let seed = job.seed_of(clone);
        let blocks = match job.verify {
            Some(how) => Some(Blocks::new(job, how, range)?),
            None => None,
        };
        let counted = !job.time_based;
        let reads = match job.direction {
            Direction::Read => 1 << 32,
            Direction::Write | Direction::Trim => 0,
            Direction::Mixed => (u64::from(job.read_percent) << 32) / 100,
        };
        let write_flags = match job.background {
            true => Flags::BACKGROUND,
            false => Flags::SYNC | Flags::IDLE,
        };
        let places = [0, 1, 2].map(|direction| {
            let count = range.bytes / job.sizes[direction].least();
            let random = job.access == Access::Random && job.directions().contains(&direction);
            random.then(|| Places::new(&job.distribution, count.max(1)))
        });
        let pacers = job.rate.map(|rate| (rate > 0).then(|| Pacer::new(rate, job.arrival, seed)));
        let shape = Shape {
            range,
            access: job.access,
            direction: job.direction,
            reads,
            sizes: job.sizes.clone(),
            places,
            at: [0; 3],
            pacers,
            write_flags,
            ioprio: job.ioprio,
            think_ns: job.think_ns,
            think_until: None,
            flush_every: job.flush_every,
            unflushed: 0,
            blocks,
            counted,
            next: None,
            stopped: false,
        };
        Ok(Stream {
            prng: Prng::new(seed),
            left: if counted { range.bytes } else { u64::MAX },
            in_flight: 0,
            depth: u32::from(job.depth),
            plain: shape.plain(job),
            shape: Box::new(shape),
        })
    }

    /// The blocks it has written, to be read back and checked; `None` unless it verifies.
    #[must_use]
    pub fn written(&self) -> Option<&Blocks> {
        self.shape.blocks.as_ref()
    }

    /// Turns to reading back everything it has written, once, with nothing under way. False when
    /// there is nothing to check.
    pub fn read_back(&mut self) -> bool {
        assert_eq!(self.in_flight, 0, "blocks are read back when nothing is under way");
        let Some(blocks) = &mut self.shape.blocks else { return false };
        self.shape.stopped = false;
        self.left = u64::MAX;
        blocks.read_back()
    }

    #[cold]
    #[inline(never)]
    fn ask_with_care(&mut self, now: Nanos) -> Ask {
        let Stream { prng, left, in_flight, shape, .. } = self;
        if shape.stopped {
            return Ask::Done;
        }
        if let Some(ask) = shape.read_next() {
            *in_flight += u32::from(matches!(ask, Ask::Io(_)));
            return ask;
        }
        if shape.flush_every != 0 && shape.unflushed >= shape.flush_every {
            shape.unflushed = 0;
            *in_flight += 1;
            return Ask::Flush { disk: 0, context: 0, token: FLUSH };
        }
        if *left == 0 {
            return Ask::Done;
        }
        if shape.think_ns > 0 {
            if *in_flight > 0 {
                return Ask::Blocked;
            }
            if let Some(until) = shape.think_until.filter(|until| *until > now) {
                return Ask::Wait(until);
            }
        }
        let ask = shape.draw(prng, now);
        if let Ask::Io(io) = &ask {
            *in_flight += 1;
            if shape.counted {
                *left = left.saturating_sub(u64::from(io.sectors) * SECTOR);
            }
        }
        ask
    }
}

impl Plain {
    #[inline]
    fn draw(&mut self, prng: &mut Prng) -> Io {
        let random = prng.next();
        let read = random & 0xffff_ffff < self.reads;
        let block = if self.random {
            // The low bits chose the direction; the choice of block uses all of a second draw
            // only when the upper 32 would favour some blocks by more than 1 in 256.
            let wide = if self.blocks <= 1 << 24 { random & !0xffff_ffff } else { prng.next() };
            ((u128::from(wide) * u128::from(self.blocks)) >> 64) as u64
        } else {
            let at = self.at;
            self.at = if at + 1 == self.blocks { 0 } else { at + 1 };
            at
        };
        // A look-up, not a branch: nobody can predict it.
        let (op, flags, group) = self.choices[usize::from(read)];
        Io {
            op,
            sector: self.first + block * u64::from(self.sectors),
            sectors: self.sectors,
            flags,
            ioprio: self.ioprio,
            disk: 0,
            context: 0,
            group,
            token: 0,
        }
    }
}

impl Shape {
    /// The plain case, if this is it.
    fn plain(&self, job: &Job) -> Option<Plain> {
        let directions = job.directions();
        let sizes = &self.sizes[directions[0]];
        let Sizes::Fixed(bytes) = *sizes else { return None };
        let alike = directions.iter().all(|direction| self.sizes[*direction] == *sizes);
        let placed = match self.access {
            Access::Random => job.distribution == Distribution::Uniform,
            // Reads and writes each go on where they were.
            Access::Sequential => directions.len() == 1,
        };
        let unpaced = self.think_ns == 0 && self.pacers.iter().all(Option::is_none);
        if !alike || !placed || !unpaced || self.flush_every != 0 || self.blocks.is_some() {
            return None;
        }
        let other = if job.direction == Direction::Trim { 2 } else { 1 };
        Some(Plain {
            reads: self.reads,
            choices: [(OPS[other], self.flags(other), other as u8), (Op::Read, Flags::NONE, 0)],
            random: self.access == Access::Random,
            first: self.range.offset / SECTOR,
            blocks: self.range.bytes / bytes,
            sectors: (bytes / SECTOR) as u32,
            counted: if self.counted { bytes } else { 0 },
            at: 0,
            ioprio: self.ioprio,
        })
    }

    fn flags(&self, direction: usize) -> Flags {
        if direction == 1 { self.write_flags } else { Flags::NONE }
    }

    /// The next block to be read back, if that is what is being done.
    fn read_next(&mut self) -> Option<Ask> {
        let blocks = self.blocks.as_mut().filter(|blocks| blocks.is_reading_back())?;
        let Some((offset, bytes, token)) = blocks.next_written() else {
            return Some(Ask::Done);
        };
        Some(Ask::Io(self.io(0, offset, bytes, token)))
    }

    fn io(&self, direction: usize, offset: u64, bytes: u64, token: u16) -> Io {
        Io {
            op: OPS[direction],
            sector: offset / SECTOR,
            sectors: (bytes / SECTOR) as u32,
            flags: self.flags(direction),
            ioprio: self.ioprio,
            disk: 0,
            context: 0,
            group: direction as u8,
            token,
        }
    }

    fn draw(&mut self, prng: &mut Prng, now: Nanos) -> Ask {
        let io = match self.next.take() {
            Some(io) => io,
            None => {
                let direction = match self.direction(prng, now) {
                    Ok(direction) => direction,
                    Err(wait) => return wait,
                };
                let (offset, bytes) = self.place(direction, prng);
                self.io(direction, offset, bytes, 0)
            }
        };
        let direction = usize::from(io.group);
        let token = match &mut self.blocks {
            None => 0,
            Some(blocks) => match blocks.begin(io.op, io.sector * SECTOR, io.sectors) {
                Some(token) => token,
                None => {
                    // Another is under way on one of its blocks: which comes last would be chance.
                    self.next = Some(io);
                    return Ask::Blocked;
                }
            },
        };
        if let Some(pacer) = &mut self.pacers[direction] {
            pacer.taken();
        }
        self.unflushed += u32::from(direction == 1);
        Ask::Io(Io { token, ..io })
    }

    /// Which direction is next, or how long nothing is. A direction that is ahead of its rate
    /// leaves its turn to the other, as fio has it: two rates make a mix of their own.
    fn direction(&mut self, prng: &mut Prng, now: Nanos) -> Result<usize, Ask> {
        let drawn = match self.direction {
            Direction::Trim => 2,
            Direction::Read => 0,
            Direction::Write => 1,
            Direction::Mixed => usize::from(prng.next() & 0xffff_ffff >= self.reads),
        };
        let mut due = |direction: usize| match &mut self.pacers[direction] {
            None => Nanos::ZERO,
            Some(pacer) => pacer.due(now),
        };
        let mine = due(drawn);
        if mine <= now {
            return Ok(drawn);
        }
        if self.direction != Direction::Mixed {
            return Err(Ask::Wait(mine));
        }
        let other = due(1 - drawn);
        if other <= now { Ok(1 - drawn) } else { Err(Ask::Wait(mine.min(other))) }
    }

    /// Offset and length of the next, bytes.
    fn place(&mut self, direction: usize, prng: &mut Prng) -> (u64, u64) {
        let sizes = &self.sizes[direction];
        let bytes = sizes.draw(prng);
        let Range { offset, bytes: whole } = self.range;
        if let Some(places) = &self.places[direction] {
            let grain = sizes.least();
            let at = places.draw(prng) * grain;
            // A long one near the end begins a little earlier.
            let last = (whole - bytes) / grain * grain;
            return (offset + at.min(last), bytes);
        }
        let at = &mut self.at[direction];
        if *at + bytes > whole {
            *at = 0;
        }
        let begin = *at;
        *at += bytes;
        (offset + begin, bytes)
    }
}

impl Workload for Stream {
    #[inline]
    fn ask(&mut self, now: Nanos) -> Ask {
        if self.in_flight >= self.depth {
            return Ask::Blocked;
        }
        if let Some(plain) = &mut self.plain {
            if self.left == 0 {
                return Ask::Done;
            }
            self.in_flight += 1;
            self.left = self.left.saturating_sub(plain.counted);
            return Ask::Io(plain.draw(&mut self.prng));
        }
        self.ask_with_care(now)
    }

    #[inline]
    fn ended(&mut self, token: u16, ok: bool, now: Nanos) {
        self.in_flight -= 1;
        if self.plain.is_none() {
            let shape = &mut *self.shape;
            shape.think_until = Some(now + shape.think_ns);
            if let Some(blocks) = shape.blocks.as_mut().filter(|_| token != FLUSH) {
                blocks.ended(token, ok);
            }
        }
    }

    fn fill(&mut self, io: &Io, bytes: &mut [u8]) {
        if let Some(blocks) = &self.shape.blocks {
            blocks.fill(io.token, bytes);
        }
    }

    fn fills(&self) -> bool {
        self.shape.blocks.is_some()
    }

    fn checks(&self) -> bool {
        self.shape.blocks.is_some()
    }

    fn check(&mut self, token: u16, bytes: &[u8]) -> Result<(), Fault> {
        match &self.shape.blocks {
            Some(blocks) => blocks.check(token, bytes),
            None => Ok(()),
        }
    }

    fn stop(&mut self) {
        self.left = 0;
        self.shape.stopped = true;
    }
}
