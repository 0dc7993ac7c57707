//! A job's I/Os, one after the other: the machine behind everything that fio can describe.
//!
//! The plain case, one size and no pause, is what a fast target is driven with; it is recognised
//! once, and costs one draw, one multiplication to scale it and one to place it; with a random map,
//! eight. There is no division and no floating point in it.

mod make;

use weir_bio::{Flags, IoPrio, Nanos, Op, Prng, SECTOR};

use crate::ask::{Ask, Fault, Io, Workload};
use crate::blocks::{Blocks, Look};
use crate::flow::{Flows, Member};
use crate::gate::Gate;
use crate::job::{Access, ByDirection, Direction, Ground, Job, JobError, Range};
use crate::map::{Cells, Map};
use crate::overlaps::Overlaps;
use crate::pacer::Pacer;
use crate::pairs::{Pairs, Piece};
use crate::pattern;
use crate::pauses::Pauses;
use crate::place::Places;
use crate::plain::Plain;
use crate::priority::Urgent;
use crate::replay::Replay;
use crate::sizes::Sizes;
use crate::walk::{Stride, Walk, Window};

/// How reads, writes and trims are asked for.
const OPS: [Op; 3] = [Op::Read, Op::Write, Op::Discard];

/// One clone of a job, on its part of a target.
#[derive(Clone, Debug)]
pub struct Stream {
    prng: Prng,
    /// I/Os and flushes so far.
    begun: u64,
    /// How many there may be before one more must have ended: those that have, and the depth. Kept
    /// apart from those begun, so that neither count waits for the other's way through memory.
    room: u64,
    depth: u64,
    /// The part of the room that the plain case may use, as far as it has looked.
    limit: u64,
    is_plain: bool,
    plain: Plain,
    /// Bytes it may still begin where it is not plain; all, when it is bounded by time alone.
    left: u64,
    shape: Box<Shape>,
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
    /// Where random I/O goes instead, where each place comes once in a pass.
    map: Option<(Map, Cells)>,
    /// What random places are multiples of.
    grains: ByDirection<u64>,
    /// Where sequential I/O goes on.
    walks: ByDirection<Walk>,
    step: i64,
    stride: Option<Stride>,
    pacers: ByDirection<Option<Pacer>>,
    /// When the I/O drawn last was due; `None` if it had no rate.
    due: Option<Nanos>,
    /// When it was last let go on after it had been held up: as many were under way as there may
    /// be, or the device would not take what it had asked for, or its blocks were busy.
    freed_at: Nanos,
    /// The next I/O has to wait for one under way, although there may be more.
    blocked: bool,
    polls: bool,
    write_flags: Flags,
    ioprio: IoPrio,
    /// The parts of reads and writes that have another priority, if there are any.
    urgent: Option<[Urgent; 2]>,
    pauses: Pauses,
    gate: Option<Gate>,
    pairs: Option<Pairs>,
    flush_every: u32,
    unflushed: u32,
    blocks: Option<Blocks>,
    /// Of a job that verifies nothing, its I/Os under way where they are kept from each other.
    overlaps: Option<Overlaps>,
    /// Of such a job, what its writes are filled with.
    pattern: Vec<u8>,
    flow: Option<Member>,
    replay: Option<Replay>,
    /// Bounded by bytes.
    counted: bool,
    /// These, and how often more they may be moved.
    pass_bytes: u64,
    loops_left: u32,
    /// Drawn, and not begun because of its time or of another on the same blocks.
    next: Option<Io>,
    stopped: bool,
    /// The outcome of [`Stream::ask_with_care`].
    asked: Ask,
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
        let range = job.range_of(ground, clone)?;
        let shape = Shape::new(job, ground, range, job.seed_of(clone))?;
        let plain = shape.plain(job);
        Ok(Stream {
            prng: Prng::new(job.seed_of(clone)),
            begun: 0,
            room: u64::from(job.depth),
            depth: u64::from(job.depth),
            limit: 0,
            is_plain: plain.until > 0,
            plain,
            left: if shape.counted { shape.pass_bytes } else { u64::MAX },
            shape: Box::new(shape),
        })
    }

    /// How long after it is first asked its first I/O begins.
    #[must_use]
    pub fn start_delay_ns(&self) -> u64 {
        self.shape.pauses.delay_ns()
    }

    /// Whether its I/Os are due at times of their own: the open loop.
    #[must_use]
    pub fn is_paced(&self) -> bool {
        self.shape.pacers.iter().any(Option::is_some)
    }

    /// Whether its next I/O may be one that it waits for: until it is due, or has been thought of.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.shape.pauses.are_none() || self.is_paced() || self.shape.flow.is_some()
    }

    /// Whether its thread is to look for ends without sleeping.
    #[must_use]
    pub fn polls(&self) -> bool {
        self.shape.polls
    }

    /// Has it keep to its job's share among `flows`, of which the job is one.
    pub fn join(&mut self, job: &Job, flows: &mut Flows) {
        self.shape.flow = flows.join(job);
    }

    /// When the last I/O that is no flush was due, if its user has waited from then on: because the
    /// I/Os under way have held it up, or because it came due after `awake_since`, while its thread
    /// was at work for others. `None` for an I/O whose thread slept until it was due: the time that
    /// a CPU takes to wake is in no latency.
    #[must_use]
    pub fn late_since(&self, awake_since: Nanos) -> Option<Nanos> {
        let Shape { due, freed_at, .. } = *self.shape;
        due.filter(|due| *due < freed_at || *due > awake_since)
    }

    /// The I/Os of a rate that were due before `until` and not begun: since when each of them has
    /// waited, and its direction. They are not begun any more.
    pub fn take_overdue(&mut self, until: Nanos, overdue: &mut impl FnMut(usize, Nanos)) {
        let Stream { left, shape, .. } = self;
        for (direction, pacer) in shape.pacers.iter_mut().enumerate() {
            let Some(pacer) = pacer else { continue };
            while let Some(due) = pacer.next_due().filter(|due| *due < until && *left > 0) {
                overdue(direction, due);
                pacer.taken();
                if shape.counted {
                    *left = left.saturating_sub(shape.sizes[direction].least());
                }
            }
        }
    }

    /// Its last I/O was not taken before now, and until then it was not asked again.
    pub fn held_until(&mut self, now: Nanos) {
        self.shape.freed_at = now;
    }

    /// The blocks it has written, to be read back and checked; `None` unless it verifies.
    #[must_use]
    pub fn written(&self) -> Option<&Blocks> {
        self.shape.blocks.as_ref()
    }

    /// Turns to reading back everything it has written, once, with nothing under way. False when
    /// there is nothing to check.
    pub fn read_back(&mut self) -> bool {
        assert_eq!(self.in_flight(), 0, "blocks are read back when nothing is under way");
        let Some(blocks) = &mut self.shape.blocks else { return false };
        self.shape.stopped = false;
        self.left = u64::MAX;
        blocks.read_back()
    }

    fn in_flight(&self) -> u64 {
        self.begun + self.depth - self.room
    }

    /// Leaves what is next in `shape.asked`. Were it returned, which takes memory of the caller's,
    /// then the plain case would have to go through that memory as well.
    #[cold]
    #[inline(never)]
    fn ask_with_care(&mut self, now: Nanos) {
        self.shape.asked = self.judge(now);
    }

    fn judge(&mut self, now: Nanos) -> Ask {
        let in_flight = self.in_flight();
        if in_flight >= self.depth {
            self.shape.gate.iter_mut().for_each(Gate::shut);
            return Ask::Blocked;
        }
        let Stream { prng, begun, left, shape, is_plain, .. } = self;
        if shape.stopped || *is_plain {
            return shape.done();
        }
        if let Some(ask) = shape.read_next(in_flight) {
            *begun += u64::from(matches!(ask, Ask::Io(_)));
            return ask;
        }
        if shape.flush_every != 0 && shape.unflushed >= shape.flush_every {
            shape.unflushed = 0;
            *begun += 1;
            return Ask::Flush { disk: 0, context: 0, token: FLUSH };
        }
        if *left == 0
            && let Some(ask) = shape.pass_over(left)
        {
            return ask;
        }
        if let Some(ask) = shape.hold(now, in_flight) {
            shape.blocked |= ask == Ask::Blocked;
            return ask;
        }
        if std::mem::take(&mut shape.blocked) {
            shape.freed_at = now;
        }
        if let Some(ask) = shape.replayed(now) {
            *begun += u64::from(matches!(ask, Ask::Flush { .. }));
            return ask;
        }
        let ask = shape.draw(prng, now);
        if let Ask::Io(io) = &ask {
            *begun += 1;
            shape.pauses.begun(now);
            shape.flow.iter_mut().for_each(Member::begun);
            if shape.counts(io) {
                *left = left.saturating_sub(u64::from(io.sectors) * SECTOR);
            }
        } else if ask == Ask::Done {
            // Its last stride is behind it.
            *left = 0;
            return self.judge(now);
        }
        ask
    }

    #[cold]
    #[inline(never)]
    fn ended_with_care(&mut self, token: u16, ok: bool, now: Nanos) {
        let was_full = self.in_flight() + 1 == self.depth;
        let shape = &mut *self.shape;
        shape.pauses.ended(now);
        if was_full {
            shape.freed_at = now;
        }
        if token == FLUSH {
            return;
        }
        shape.pairs.iter_mut().for_each(|pairs| pairs.ended(token));
        shape.overlaps.iter_mut().for_each(|overlaps| overlaps.ended(token));
        if let Some(blocks) = &mut shape.blocks {
            blocks.ended(token, ok);
        }
    }
}

impl Shape {
    /// All that a pass has to move was begun: another, if there is one; else what is left to do.
    fn pass_over(&mut self, left: &mut u64) -> Option<Ask> {
        if let Some(pairs) = &self.pairs {
            if pairs.has_write() {
                return None;
            }
            if pairs.are_trimming() {
                return Some(Ask::Blocked);
            }
        }
        if self.loops_left == 0 {
            return Some(self.done());
        }
        self.loops_left -= 1;
        *left = self.pass_bytes;
        self.walks = [Walk::new(self.step); 3];
        self.replay.iter_mut().for_each(Replay::rewind);
        None
    }

    /// Why nothing is begun now although there could be more under way.
    fn hold(&mut self, now: Nanos, in_flight: u64) -> Option<Ask> {
        if self.gate.as_mut().is_some_and(|gate| !gate.lets(in_flight)) {
            return Some(Ask::Blocked);
        }
        self.pauses.ask(now, in_flight).or_else(|| self.flow.as_mut()?.ask(now))
    }

    /// Nothing is begun any more: others of its flow need not wait for it.
    fn done(&self) -> Ask {
        self.flow.iter().for_each(Member::leave);
        Ask::Done
    }

    /// What stands before the next I/O of a trace, if anything does.
    fn replayed(&mut self, now: Nanos) -> Option<Ask> {
        if self.next.is_some() {
            return None;
        }
        self.replay.as_mut()?.ask(now, Ask::Flush { disk: 0, context: 0, token: FLUSH })
    }

    /// Whether an I/O is of those that a pass counts.
    fn counts(&self, io: &Io) -> bool {
        self.counted && (self.pairs.is_none() || io.op == Op::Discard)
    }

    fn flags(&self, direction: usize) -> Flags {
        if direction == 1 { self.write_flags } else { Flags::NONE }
    }

    /// The next block to be read and checked, if that is what is being done.
    fn read_next(&mut self, in_flight: u64) -> Option<Ask> {
        match self.blocks.as_mut()?.look(in_flight)? {
            Look::At { offset, bytes, token } => {
                // It is due when it comes, whatever the rate says of the job's own.
                self.due = None;
                Some(Ask::Io(self.io(0, offset, bytes, token)))
            }
            Look::Over => Some(Ask::Done),
            Look::Later => {
                self.blocked = true;
                Some(Ask::Blocked)
            }
        }
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

    /// The next I/O; done when the last stride is.
    fn draw(&mut self, prng: &mut Prng, now: Nanos) -> Ask {
        let io = match self.next.take() {
            Some(io) => io,
            None if self.replay.is_some() => {
                let Some((direction, at, bytes)) = self.replay.as_mut().and_then(Replay::next)
                else {
                    if self.counted {
                        return Ask::Done;
                    }
                    self.replay.iter_mut().for_each(Replay::rewind);
                    return Ask::Wait(now);
                };
                self.io(direction, self.range.offset + at, bytes, 0)
            }
            None => {
                let direction = match self.direction(prng, now) {
                    Ok(direction) => direction,
                    Err(wait) => return wait,
                };
                let written = self.pairs.as_mut().and_then(Pairs::take_write);
                let Some(piece) = written.or_else(|| self.place(direction, prng)) else {
                    return Ask::Done;
                };
                let io = self.io(direction, piece.offset, piece.bytes, 0);
                let urgent = self.urgent.as_ref().and_then(|urgent| urgent.get(direction));
                urgent.map_or(io, |urgent| urgent.draw(io, prng))
            }
        };
        let direction = usize::from(io.group);
        let piece = Piece { offset: io.sector * SECTOR, bytes: u64::from(io.sectors) * SECTOR };
        let token = match (&mut self.blocks, &mut self.pairs, &mut self.overlaps) {
            (_, Some(pairs), _) if io.op == Op::Discard => Some(pairs.trimmed(piece)),
            (_, Some(_), _) => Some(Pairs::WRITE),
            (Some(blocks), None, _) => blocks.begin(io.op, piece.offset, io.sectors),
            (None, None, Some(overlaps)) => overlaps.begin(piece),
            (None, None, None) => Some(0),
        };
        let Some(token) = token else {
            // Another is under way on one of its blocks: which comes last would be chance.
            self.next = Some(io);
            self.blocked = true;
            return Ask::Blocked;
        };
        self.due = None;
        if let Some(pacer) = &mut self.pacers[direction] {
            self.due = Some(pacer.due(now));
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
            Direction::TrimWrite => match self.pairs.as_ref().is_some_and(Pairs::has_write) {
                true => 1,
                false => 2,
            },
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

    /// The next blocks; `None` when the last stride is behind them.
    fn place(&mut self, direction: usize, prng: &mut Prng) -> Option<Piece> {
        let bytes = self.sizes[direction].draw(prng);
        let Range { offset, bytes: whole } = self.range;
        if let Some((map, cells)) = &mut self.map {
            let (first, count) = map.next(bytes / cells.bytes);
            let bytes = bytes.min(count * cells.bytes);
            return Some(Piece { offset: offset + first * cells.bytes, bytes });
        }
        let window = match &mut self.stride {
            None => Window { start: 0, bytes: whole },
            Some(stride) => match stride.next(whole, bytes) {
                Some(window) => window,
                None if self.counted => return None,
                None => stride.next(whole, bytes)?,
            },
        };
        let Some(places) = &self.places[direction] else {
            let at = self.walks[direction].next(window, bytes);
            return Some(Piece { offset: offset + at, bytes });
        };
        let grain = self.grains[direction];
        let last = (window.bytes - bytes) / grain * grain;
        let at = match self.stride {
            None => places.draw(prng) * grain,
            Some(_) => prng.below(last / grain + 1) * grain,
        };
        // A long one near the end begins a little earlier.
        Some(Piece { offset: offset + window.start + at.min(last), bytes })
    }
}

impl Workload for Stream {
    // Inlined by order: what comes back through memory, byte by byte, and is then read as a whole
    // costs more than what it takes to draw it.
    #[inline(always)]
    fn ask(&mut self, now: Nanos) -> Ask {
        if self.begun >= self.limit {
            self.limit = self.room.min(self.plain.until);
            if self.begun >= self.limit {
                self.ask_with_care(now);
                return self.shape.asked;
            }
        }
        self.begun += 1;
        Ask::Io(self.plain.draw(&mut self.prng))
    }

    #[inline(always)]
    fn ended(&mut self, token: u16, ok: bool, now: Nanos) {
        debug_assert!(self.in_flight() > 0, "what has not begun cannot end");
        self.room += 1;
        if !self.is_plain {
            self.ended_with_care(token, ok, now);
        }
    }

    fn fill(&mut self, io: &Io, bytes: &mut [u8]) {
        match &self.shape.blocks {
            Some(blocks) => blocks.fill(io.token, bytes),
            None if !self.shape.pattern.is_empty() => pattern::fill(&self.shape.pattern, bytes),
            None => (),
        }
    }

    fn fills(&self) -> bool {
        self.shape.blocks.is_some() || !self.shape.pattern.is_empty()
    }

    fn checks(&self) -> bool {
        self.shape.blocks.is_some()
    }

    fn check(&mut self, token: u16, bytes: &[u8]) -> Result<u64, Fault> {
        match &self.shape.blocks {
            Some(blocks) => blocks.check(token, bytes),
            None => Ok(0),
        }
    }

    fn stop(&mut self) {
        (self.plain.until, self.limit) = (0, 0);
        self.shape.stopped = true;
        self.shape.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Arrival;
    use crate::job::Verify;
    use crate::order::Thinking;
    use crate::place::Distribution;
    use crate::quantity::Amount;

    const GROUND: Ground = Ground { bytes: 1 << 30, block: 512, read_only: false };

    fn job() -> Job {
        Job {
            access: Access::Random,
            direction: Direction::Mixed,
            read_percent: 70,
            offset: Amount::Bytes(1 << 20),
            depth: 32,
            time_based: true,
            ..Job::default()
        }
    }

    /// The next I/O, which ends at once.
    #[track_caller]
    fn io(stream: &mut Stream, now: u64) -> Io {
        match stream.ask(Nanos(now)) {
            Ask::Io(io) => {
                stream.ended(io.token, true, Nanos(now));
                io
            }
            other => panic!("{other:?}, no I/O"),
        }
    }

    #[test]
    fn what_a_stall_holds_up_is_due_when_it_would_have_begun() {
        let job = Job { direction: Direction::Read, rate: [1000; 3], depth: 1, ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        const MS: u64 = 1_000_000;
        // Its thread sleeps whenever it has nothing to do.
        let late = |stream: &Stream, now: u64| stream.late_since(Nanos(now)).map(|due| due.0);
        io(&mut stream, 0);
        assert_eq!(late(&stream, 0), None);
        // Begun 10 us late, which is no fault of the target, and stalled until 5 ms.
        let Ask::Io(stalled) = stream.ask(Nanos(MS + 10_000)) else { panic!("it is due") };
        assert_eq!(late(&stream, MS + 10_000), None);
        assert_eq!(stream.ask(Nanos(3 * MS)), Ask::Blocked);
        stream.ended(stalled.token, true, Nanos(5 * MS));
        let held: Vec<_> = (0..4)
            .map(|_| {
                io(&mut stream, 5 * MS);
                late(&stream, 5 * MS)
            })
            .collect();
        assert_eq!(held, [Some(2 * MS), Some(3 * MS), Some(4 * MS), None]);
        assert_eq!(stream.ask(Nanos(5 * MS)), Ask::Wait(Nanos(6 * MS)));
    }

    #[test]
    fn a_check_between_writes_is_due_when_it_comes_and_not_with_the_last_of_them() {
        let job = Job {
            direction: Direction::Write,
            verify: Some(Verify::Crc32c),
            verify_backlog: [1, 0],
            rate: [0, 1000, 0],
            depth: 1,
            time_based: false,
            size: Some(Amount::Bytes(65536)),
            ..job()
        };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        let Ask::Io(write) = stream.ask(Nanos(0)) else { panic!("a write") };
        stream.ended(write.token, true, Nanos(10_000));
        let Ask::Io(check) = stream.ask(Nanos(10_000)) else { panic!("a read") };
        assert_eq!((write.op, check.op), (Op::Write, Op::Read));
        assert_eq!(stream.late_since(Nanos(0)), None, "it was not held up");
    }

    #[test]
    fn what_comes_due_while_its_thread_is_at_work_is_late_from_then_on() {
        let job = Job { direction: Direction::Read, rate: [1000; 3], depth: 8, ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        const MS: u64 = 1_000_000;
        io(&mut stream, 0);
        // Awake since 0.5 ms, and busy with other I/O until 1.2 ms.
        io(&mut stream, MS + 200_000);
        assert_eq!(stream.late_since(Nanos(MS / 2)), Some(Nanos(MS)));
        // Asleep until then.
        assert_eq!(stream.late_since(Nanos(MS + 200_000)), None);
        assert_eq!(stream.late_since(Nanos(MS)), None, "it woke at that very time");
    }

    #[test]
    fn what_was_due_and_not_begun_when_the_time_is_up_has_waited_since() {
        let rate = [1000, 500, 0];
        let job = Job { direction: Direction::Mixed, rate, depth: 1, ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        const MS: u64 = 1_000_000;
        assert!(matches!(stream.ask(Nanos(0)), Ask::Io(_)), "it is due");
        assert_eq!(stream.ask(Nanos(MS)), Ask::Blocked);
        let mut waited = Vec::new();
        stream.take_overdue(Nanos(4 * MS), &mut |direction, due| waited.push((direction, due.0)));
        let of = |direction| waited.iter().filter(move |w| w.0 == direction).map(|w| w.1 / MS);
        // One of them was begun at 0; a direction that was never looked at has nothing due.
        let (reads, writes): (Vec<_>, Vec<_>) = (of(0).collect(), of(1).collect());
        let known =
            [(vec![1, 2, 3], vec![]), (vec![1, 2, 3], vec![0, 2]), (vec![0, 1, 2, 3], vec![2])];
        assert!(known.contains(&(reads.clone(), writes.clone())), "{reads:?} {writes:?}");
        let mut again = 0;
        stream.take_overdue(Nanos(4 * MS), &mut |_, _| again += 1);
        assert_eq!(again, 0, "they are taken once");
        // No more than the job has left to do.
        let direction = Direction::Read;
        let job = Job { time_based: false, size: Some(Amount::Bytes(3 * 4096)), direction, ..job };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        assert!(matches!(stream.ask(Nanos(0)), Ask::Io(_)), "it is due");
        stream.take_overdue(Nanos(9 * MS), &mut |_, _| again += 1);
        assert_eq!(again, 2, "two of three");
    }

    #[test]
    fn reads_and_writes_of_one_rate_come_at_times_of_their_own() {
        let (arrival, direction) = (Arrival::Poisson, Direction::Mixed);
        let job = Job { direction, rate: [1000; 3], arrival, depth: 64, ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job");
        let mut dues = [Vec::new(), Vec::new()];
        let mut now = Nanos(0);
        while dues.iter().any(|of| of.len() < 50) {
            match stream.ask(now) {
                Ask::Io(io) => {
                    let due = stream.shape.due.expect("it has a rate");
                    dues[usize::from(io.group)].push(due);
                    stream.ended(io.token, true, now);
                }
                Ask::Wait(until) => now = until,
                other => panic!("{other:?}"),
            }
        }
        let both = dues[0].iter().filter(|due| dues[1].contains(due)).count();
        assert!(both <= 1, "{both} of 50 reads came with a write, the first may");
    }

    #[test]
    fn a_size_of_nothing_where_it_is_not_used_does_no_harm() {
        let mut sizes = job().sizes;
        sizes[1] = Sizes::Fixed(0);
        let job = Job { direction: Direction::Read, sizes, ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).expect("a job that reads");
        assert_eq!(io(&mut stream, 0).sectors, 8);
    }

    #[test]
    fn random_io_stays_in_its_range_on_its_grid_and_keeps_its_mix() {
        let careful = Job { thinking: Thinking { ns: 1, ..Thinking::default() }, ..job() };
        for job in [job(), careful] {
            let mut stream = Stream::new(&job, GROUND, 0).unwrap();
            let mut reads = 0_u32;
            for n in 0..100_000 {
                let io = io(&mut stream, n);
                assert!(io.sector >= 2048 && io.sector + 8 <= 1 << 21);
                assert!(io.sector.is_multiple_of(8));
                assert_eq!((io.sectors, io.group), (8, u8::from(io.op == Op::Write)));
                reads += u32::from(io.op == Op::Read);
            }
            // Five standard deviations of a binomial of 100,000 and 0.7.
            assert!(reads.abs_diff(70_000) < 725, "{reads} reads (seed {})", job.seed);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_ios_and_each_clone_others() {
        let ios = |job: &Job, clone| {
            let mut stream = Stream::new(job, GROUND, clone).unwrap();
            (0..1000).map(|_| io(&mut stream, 0)).collect::<Vec<_>>()
        };
        let zipf = Job { distribution: Distribution::Zipf(1.1), ..job() };
        for job in [job(), zipf] {
            assert_eq!(ios(&job, 0), ios(&job, 0));
            assert_ne!(ios(&job, 0), ios(&job, 1));
        }
    }

    #[test]
    fn sequential_io_wraps_and_flushes_come_in_time() {
        let job = Job {
            access: Access::Sequential,
            direction: Direction::Write,
            size: Some(Amount::Bytes(3 * 4096)),
            flush_every: 2,
            offset: Amount::Bytes(0),
            ..job()
        };
        let mut stream = Stream::new(&job, GROUND, 0).unwrap();
        let seen: Vec<i64> = (0..7)
            .map(|_| match stream.ask(Nanos::ZERO) {
                Ask::Io(io) => io.sector as i64,
                Ask::Flush { .. } => -1,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [0, 8, -1, 16, 0, -1, 8]);
    }

    #[test]
    fn reads_and_writes_of_a_sequential_mix_each_go_their_own_way() {
        let job = Job { access: Access::Sequential, offset: Amount::Bytes(0), ..job() };
        let mut stream = Stream::new(&job, GROUND, 0).unwrap();
        let mut at = [0, 0];
        for _ in 0..1000 {
            let io = io(&mut stream, 0);
            let place = &mut at[usize::from(io.group)];
            assert_eq!(io.sector, *place);
            *place += 8;
        }
        assert!(at[0] > at[1] && at[1] > 0);
    }

    #[test]
    fn a_job_bounded_by_its_size_ends_there_and_never_has_more_under_way_than_its_depth() {
        let size = Some(Amount::Bytes(40 * 4096));
        for flush_every in [0, 1000] {
            let job = Job { time_based: false, size, flush_every, ..job() };
            let mut stream = Stream::new(&job, GROUND, 0).unwrap();
            for _ in 0..32 {
                assert!(matches!(stream.ask(Nanos::ZERO), Ask::Io(_)));
            }
            assert_eq!(stream.ask(Nanos::ZERO), Ask::Blocked);
            (0..32).for_each(|_| stream.ended(0, true, Nanos::ZERO));
            (0..8).for_each(|_| assert!(matches!(stream.ask(Nanos::ZERO), Ask::Io(_))));
            assert_eq!(stream.ask(Nanos::ZERO), Ask::Done);
        }
    }

    #[test]
    fn a_stopped_job_begins_nothing_and_is_full_until_something_has_ended() {
        let cases = [(0, 10), (0, 32), (1000, 10), (1000, 32)];
        for (flush_every, begun) in cases {
            let mut stream = Stream::new(&Job { flush_every, ..job() }, GROUND, 0).unwrap();
            (0..begun).for_each(|_| assert!(matches!(stream.ask(Nanos::ZERO), Ask::Io(_))));
            stream.stop();
            let full = if begun == 32 { Ask::Blocked } else { Ask::Done };
            assert_eq!(stream.ask(Nanos::ZERO), full, "{flush_every}, {begun}");
            stream.ended(0, true, Nanos::ZERO);
            assert_eq!(stream.ask(Nanos::ZERO), Ask::Done, "{flush_every}, {begun}");
        }
    }

    #[test]
    fn reads_and_writes_reach_every_part_of_a_range_however_large() {
        for bytes in [1 << 30, 1 << 36, 1 << 37] {
            let job = Job { offset: Amount::Bytes(0), ..job() };
            let mut stream = Stream::new(&job, Ground { bytes, ..GROUND }, 0).unwrap();
            let mut counts = [[0_u32; 16]; 2];
            for _ in 0..160_000 {
                let io = io(&mut stream, 0);
                let part = io.sector * SECTOR / (bytes / 16);
                counts[usize::from(io.group)][part as usize] += 1;
            }
            for (counts, share) in counts.iter().zip([0.7, 0.3]) {
                // Five standard deviations of a binomial of 160,000.
                let chance: f64 = share / 16.0;
                let bound = 5.0 * (160_000.0 * chance * (1.0 - chance)).sqrt();
                let even = |count: &u32| (f64::from(*count) - 160_000.0 * chance).abs() < bound;
                assert!(counts.iter().all(even), "{counts:?} of {bytes} (seed {})", job.seed);
            }
        }
    }

    #[test]
    fn a_rate_and_a_pause_say_when_the_next_io_is_due() {
        let paced = Job { direction: Direction::Read, rate: [1000, 0, 0], ..job() };
        let mut stream = Stream::new(&paced, GROUND, 0).unwrap();
        io(&mut stream, 500);
        assert_eq!(stream.ask(Nanos(600)), Ask::Wait(Nanos(1_000_500)));
        // Missed I/Os are made up for.
        for _ in 0..3 {
            io(&mut stream, 3_100_000);
        }
        assert_eq!(stream.ask(Nanos(3_100_000)), Ask::Wait(Nanos(4_000_500)));
        let thinking = Job { thinking: Thinking { ns: 70, ..Thinking::default() }, ..job() };
        let mut stream = Stream::new(&thinking, GROUND, 0).unwrap();
        io(&mut stream, 10);
        assert_eq!(stream.ask(Nanos(50)), Ask::Wait(Nanos(80)));
        io(&mut stream, 80);
    }

    #[test]
    fn two_rates_make_a_mix_of_their_own() {
        // As fio has it: 200 reads and 50 writes a second, whatever the share of reads.
        let paced = Job { rate: [200, 50, 0], ..job() };
        let mut stream = Stream::new(&paced, GROUND, 0).unwrap();
        let (mut now, mut counts) = (0, [0_u32, 0]);
        while now < 2_000_000_000 {
            match stream.ask(Nanos(now)) {
                Ask::Wait(until) => now = until.0,
                Ask::Io(io) => {
                    counts[usize::from(io.group)] += 1;
                    stream.ended(io.token, true, Nanos(now));
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(counts[0].abs_diff(400) <= 1 && counts[1].abs_diff(100) <= 1, "{counts:?}");
    }

    #[test]
    fn a_stale_block_is_found_and_no_two_ios_are_under_way_on_one() {
        let job = Job {
            direction: Direction::Write,
            size: Some(Amount::Bytes(8 * 4096)),
            verify: Some(Verify::Crc32c),
            ..job()
        };
        let mut stream = Stream::new(&job, GROUND, 0).unwrap();
        let mut disk = vec![0; 8 * 4096];
        let (mut busy, mut stale) = (Vec::new(), None);
        for round in 0..1000 {
            while let Ask::Io(io) = stream.ask(Nanos::ZERO) {
                assert!(!busy.iter().any(|(other, _): &(Io, _)| other.sector == io.sector));
                let mut bytes = vec![0; 4096];
                stream.fill(&io, &mut bytes);
                busy.push((io, bytes));
            }
            let (io, bytes) = busy.swap_remove(round * 7 % busy.len());
            let at = (io.sector * SECTOR) as usize - (1 << 20);
            if round == 500 {
                stale = Some((at, disk[at..at + 4096].to_vec()));
            }
            disk[at..at + 4096].copy_from_slice(&bytes);
            stream.ended(io.token, true, Nanos::ZERO);
        }
        stream.stop();
        for (io, bytes) in busy.drain(..) {
            let at = (io.sector * SECTOR) as usize - (1 << 20);
            disk[at..at + 4096].copy_from_slice(&bytes);
            stream.ended(io.token, true, Nanos::ZERO);
        }
        let (at, old) = stale.expect("more than 500 rounds");
        for spoil in [false, true] {
            if spoil {
                disk[at..at + 4096].copy_from_slice(&old);
            }
            assert!(stream.read_back());
            let mut faults = Vec::new();
            while let Ask::Io(io) = stream.ask(Nanos::ZERO) {
                let from = (io.sector * SECTOR) as usize - (1 << 20);
                faults.extend(stream.check(io.token, &disk[from..from + 4096]).err());
                stream.ended(io.token, true, Nanos::ZERO);
            }
            assert_eq!(faults.len(), usize::from(spoil), "{faults:?}");
            assert!(faults.iter().all(|fault| fault.what.contains("stale")), "{faults:?}");
        }
    }
}
