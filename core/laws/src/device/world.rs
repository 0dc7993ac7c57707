//! The device's side of a request: what it has to be, what becomes of it, and when.

use weir_bio::{Data, Flags, Nanos, Op, Rq, SECTOR, Status};
use weir_queue::{Done, Request, Tag};

use super::{Flight, Plan, World};
use crate::put;

impl World {
    /// From now on nothing goes wrong.
    pub fn calm_down(&mut self) {
        self.plan = Plan::default();
        self.lanes.iter_mut().for_each(|lane| lane.refused = None);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.flying.len()).sum()
    }

    pub(super) fn refuses(&mut self, lane: usize) -> Option<Status> {
        if self.tally.refusals >= self.plan.refusals_max || !self.prng.percent(self.plan.refused) {
            return None;
        }
        self.tally.refusals += 1;
        let coming = self.lanes[lane].due().is_some();
        let promised = coming && self.prng.percent(50);
        Some(if promised { Status::DevResource } else { Status::Resource })
    }

    /// Everything a request has to be, whatever was submitted.
    pub(super) fn check(&self, lane: usize, tag: Tag, request: &mut Request) {
        let rq = *request.rq();
        let limits = &self.limits;
        assert!(!self.quiesced, "{rq:?} arrives while the device is quiesced");
        let tags = &self.lanes[lane].flying;
        assert!(tags.iter().all(|flight| flight.tag != tag), "tag {} is out already", tag.0);
        assert!(usize::from(tag.0) < self.depth, "tag {} of {}", tag.0, self.depth);
        assert!(!rq.flags.has(Flags::PREFLUSH), "a preflush is the flush machine's, not ours");
        if rq.op == Op::Flush {
            assert!(limits.volatile_cache && self.barriers, "a flush that nobody needs");
            assert_eq!(rq.sectors, 0);
            return;
        }
        assert!(rq.sectors > 0, "an empty request");
        assert!(rq.end() <= limits.capacity, "{rq:?} ends beyond the device");
        let block = u64::from(limits.block_sectors());
        assert_eq!((rq.sector % block, u64::from(rq.sectors) % block), (0, 0), "{rq:?}");
        if rq.flags.has(Flags::FUA) {
            assert!(limits.fua && self.barriers, "FUA to a device without it");
        }
        let most = match rq.op {
            Op::Read | Op::Write => limits.max_sectors(),
            Op::Discard => limits.max_discard_sectors(),
            Op::SecureErase => limits.max_secure_erase_sectors,
            Op::WriteZeroes => limits.max_write_zeroes_sectors,
            Op::Prefetch => u32::MAX,
            Op::Flush | Op::DrvIn | Op::DrvOut => 0,
        };
        assert!(rq.sectors <= most, "{rq:?} is above {most} sectors");
        let whole = self.nomerges == 2 || rq.flags.has(Flags::FUA);
        assert!(!whole || request.bios() == 1, "{rq:?} is merged");
        if rq.op.has_data() {
            self.check_memory(request);
        }
    }

    fn check_memory(&self, request: &mut Request) {
        let (rq, limits) = (*request.rq(), &self.limits);
        if limits.chunk_sectors != 0 {
            let chunk = u64::from(limits.chunk_sectors);
            assert_eq!(rq.sector / chunk, (rq.end() - 1) / chunk, "{rq:?} crosses a chunk");
        }
        let (mut bytes, mut segments, mut end) = (0, 0, None::<u64>);
        let mut piece = |start: u64, len: u64| {
            let gap = end.is_some_and(|end: u64| (end | start) & limits.virt_boundary_mask != 0);
            assert!(!gap, "a gap inside {rq:?}");
            end = Some(start + len);
            bytes += len;
            segments += len.div_ceil(u64::from(limits.max_segment_size));
        };
        request.for_each_data(|data| {
            let taken = limits.takes_segments || data.bufs().is_some();
            assert!(taken, "{data:?} in {rq:?} for a driver that takes none");
            let each = data.segments();
            each.for_each(|each| piece(each.start.as_ptr() as u64, u64::from(each.len)));
        });
        assert_eq!(bytes, u64::from(rq.sectors) * SECTOR, "memory of {rq:?}");
        let most = u64::from(limits.max_segments);
        assert!(segments <= most, "{rq:?} has {segments} segments of {most}");
    }

    fn count(&mut self, lane: usize, request: &Request) {
        let rq = request.rq();
        if rq.op == Op::Flush {
            self.tally.flushes += 1;
        } else {
            self.tally.requests += 1;
            self.tally.bios += request.bios() as u64;
            *self.tally.sectors.entry(rq.op).or_default() += u64::from(rq.sectors);
            self.tally.order[lane].push(rq.id.submitter().0);
        }
        self.tally.flags |= rq.flags;
        self.tally.fua += u64::from(rq.flags.has(Flags::FUA));
    }

    fn due(&mut self, lane: usize, now: Nanos) -> Option<Nanos> {
        let is_on = |(which, from, to): &&(usize, Nanos, Nanos)| {
            *which == lane && *from <= now && now < *to
        };
        if let Some((_, _, to)) = self.plan.silences.iter().find(is_on) {
            let after = self.prng.below(self.plan.slow_ns + 1);
            return (*to < Nanos(u64::MAX)).then(|| *to + after);
        }
        if self.prng.percent(self.plan.lost) {
            return None;
        }
        let most = match self.prng.percent(self.plan.late) {
            true => self.plan.late_ns,
            false => self.plan.slow_ns,
        };
        Some(now + self.prng.below(most + 1))
    }

    /// Takes a request over. A read into memory that is not lent is carried out now.
    pub(super) fn take(&mut self, lane: usize, tag: Tag, request: &mut Request, now: Nanos) {
        let rq = *request.rq();
        if self.tally.requeues < self.plan.requeues_max && self.prng.percent(self.plan.requeued) {
            return self.take_to_return(lane, tag, request, now);
        }
        self.count(lane, request);
        let mut status = Status::Ok;
        if self.prng.percent(self.plan.failed) {
            status = self.plan.errors[self.prng.below(self.plan.errors.len() as u64) as usize];
        }
        let due = self.due(lane, now);
        let lands = due.is_none() && self.prng.percent(50);
        let bound_ns = self.plan.bound_ns;
        let within = if bound_ns == 0 { 8_000_000_000 } else { bound_ns };
        let lands_at = lands.then(|| now + self.prng.below(within));
        let mut effect = self.effect(request).filter(|_| status.is_ok() || self.prng.percent(50));
        if self.prng.percent(50)
            && let Some(values) = effect.take()
        {
            self.put_down(rq.sector, &values);
        }
        let mut lent = Vec::new();
        if self.prng.percent(self.plan.lent) {
            request.lend(&mut lent);
        } else if rq.op == Op::Read {
            let mut at = rq.sector;
            request.for_each_data(|data| at = self.read_into(data, at));
        }
        let Rq { id, sector, op, .. } = rq;
        let (committed, returns, cancelled) = (false, false, false);
        self.fly(
            lane,
            Flight {
                id,
                tag,
                op,
                sector,
                due,
                status,
                lent,
                effect,
                committed,
                returns,
                lands_at,
                bound: if bound_ns == 0 { Nanos(u64::MAX) } else { now + bound_ns },
                cancelled,
            },
        );
    }

    /// Takes a request of which nothing will be done, to hand it back later.
    fn take_to_return(&mut self, lane: usize, tag: Tag, request: &mut Request, now: Nanos) {
        self.tally.requeues += 1;
        let mut lent = Vec::new();
        if self.prng.percent(self.plan.lent) {
            request.lend(&mut lent);
        }
        let Rq { id, sector, op, .. } = *request.rq();
        let due = Some(now + self.prng.below(self.plan.slow_ns + 1));
        self.fly(
            lane,
            Flight {
                id,
                tag,
                op,
                sector,
                due,
                status: Status::Ok,
                lent,
                effect: None,
                committed: false,
                returns: true,
                lands_at: None,
                bound: Nanos(u64::MAX),
                cancelled: false,
            },
        );
    }

    fn fly(&mut self, lane: usize, flight: Flight) {
        self.lanes[lane].flying.push(flight);
        let here = self.lanes[lane].flying.len();
        assert!(here <= self.depth && self.in_flight() <= self.depth * self.lanes.len());
        self.tally.lane_peak = self.tally.lane_peak.max(here);
        self.tally.peak = self.tally.peak.max(self.in_flight());
    }

    /// The values a request writes, by sector.
    fn effect(&mut self, request: &mut Request) -> Option<Vec<u64>> {
        match request.op() {
            Op::Write => {
                let mut values = Vec::new();
                request.for_each_data(|data| values.extend(crate::values(data)));
                for (at, value) in (request.rq().sector..).zip(&values) {
                    let at = self.places.as_ref().map_or(at, |places| places(at));
                    assert_eq!(value & 0xff_ffff, at + 1, "bytes of another place at {at}");
                    *self.tally.delivered.entry(*value).or_default() += 1;
                }
                Some(values)
            }
            Op::Discard | Op::SecureErase | Op::WriteZeroes => {
                Some(vec![0; request.rq().sectors as usize])
            }
            _ => None,
        }
    }

    fn put_down(&mut self, sector: u64, values: &[u64]) {
        self.disk[sector as usize..][..values.len()].copy_from_slice(values);
    }

    fn read_into(&self, data: &mut Data, mut at: u64) -> u64 {
        let mut sector = [0; 512];
        for place in (0..data.len()).step_by(512) {
            data.copy_to_at(place, &mut sector);
            put(&mut sector, self.disk[at as usize]);
            data.copy_from_at(place, &sector);
            at += 1;
        }
        at
    }

    /// Time goes on; requests that are never answered take effect all the same.
    pub(super) fn land(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let World { lanes, disk, .. } = self;
        for flight in lanes.iter_mut().flat_map(|lane| &mut lane.flying) {
            if flight.lands_at.is_some_and(|at| at <= now)
                && let Some(values) = flight.effect.take()
            {
                disk[flight.sector as usize..][..values.len()].copy_from_slice(&values);
            }
            if flight.bound <= now {
                (flight.effect, flight.status) = (None, Status::Transport);
            }
        }
    }

    pub(super) fn answer(&mut self, lane: usize, mut flight: Flight, done: &mut Done) {
        self.tally.answers += 1;
        self.answered_at = self.now;
        if flight.cancelled {
            self.haunt(lane, flight.tag);
        }
        if flight.returns {
            self.lanes[lane].returned.push(flight.id);
            let after = [0, 0, 1, 1_000_000][self.prng.below(4) as usize];
            return done.push_requeue(flight.tag, after, flight.lent);
        }
        if let Some(values) = flight.effect.take() {
            self.put_down(flight.sector, &values);
        }
        if flight.op == Op::Read {
            let mut at = flight.sector;
            flight.lent.iter_mut().for_each(|data| at = self.read_into(data, at));
        }
        if flight.lent.is_empty() {
            done.push(flight.tag, flight.status);
        } else {
            done.push_lent(flight.tag, flight.status, &mut flight.lent);
        }
    }

    /// A cancelled request may be answered once more.
    pub(super) fn haunt(&mut self, lane: usize, tag: Tag) {
        if self.prng.percent(self.plan.twice) {
            let at = self.now + self.prng.below(3_000_000_000);
            self.lanes[lane].ghosts.push((at, tag));
        }
    }
}
