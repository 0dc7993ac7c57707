//! The containers of noop and the deadline family, and how requests merge in them.
//!
//! A [`Staged`] has bands: a band is a FIFO and, in the deadline family, an order by sector. All
//! bands share the merge hash and the one-entry cache `last_merge`. It does not know which request
//! goes next. Source: docs/behaviour/deadline.md, sections 1 and 3. Discards merge where they are
//! contiguous, never as ranges of one request.

mod buckets;
mod gap;
mod merging;
pub(crate) mod node;
pub(crate) mod order;

#[cfg(test)]
mod order_tests;

use weir_bio::{Limits, Nanos, Rq, SchedTag};

use crate::contract::{Absorbed, Merge, Setup};
use crate::hash::MergeHash;

use merging::Touch;
pub(crate) use node::{Fifo, Node};
use node::{Place, tags_at, unstaged};
use order::{Order, Spot};

/// When a request arrives and what that means for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Which band it goes to.
    pub(crate) band: usize,
    pub(crate) now: Nanos,
    /// How long until its deadline.
    pub(crate) expire_ns: u64,
}

/// Staged requests. `SORTED` bands are ordered by sector and their neighbours are those in this
/// order; else the neighbours are those in the FIFO, and there are no deadlines.
#[derive(Clone, Debug)]
pub(crate) struct Staged<const SORTED: bool> {
    nodes: Vec<Node>,
    /// None unless `SORTED`.
    orders: Vec<Order>,
    fifos: Vec<Fifo>,
    count: usize,
    hash: MergeHash,
    last_merge: SchedTag,
    /// A staged request that is kept track of: when it leaves, its successor takes its place.
    pub(crate) cursor: SchedTag,
    /// Whether merges look for a request that starts where the bio ends.
    pub(crate) front_merges: bool,
    limits: Limits,
    nomerges: u8,
}

impl<const SORTED: bool> Staged<SORTED> {
    /// Empty, for the device described by `setup`.
    pub(crate) fn new(setup: &Setup, bands: usize) -> Staged<SORTED> {
        let tags = setup.nr_requests;
        Staged {
            nodes: unstaged(tags),
            orders: orders::<SORTED>(bands, tags),
            fifos: vec![Fifo::EMPTY; bands],
            count: 0,
            hash: MergeHash::new(tags),
            last_merge: SchedTag::NONE,
            cursor: SchedTag::NONE,
            front_merges: true,
            limits: setup.limits.clone(),
            nomerges: setup.nomerges,
        }
    }

    /// Requests in the bands.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn node(&self, tag: SchedTag) -> &Node {
        &self.nodes[tag.index()]
    }

    #[inline]
    pub(crate) fn fifo(&self, band: usize) -> &Fifo {
        &self.fifos[band]
    }

    /// The first of a band whose sector is `sector` or higher.
    #[inline]
    pub(crate) fn first_from(&mut self, band: usize, sector: u64) -> Option<SchedTag> {
        self.orders[band].first_from(&self.nodes, sector)
    }

    /// [`merge`](Staged::merge), and if nothing fits [`insert`](Staged::insert).
    #[inline(always)]
    pub(crate) fn merge_or_insert(
        &mut self,
        rq: &Rq,
        arrival: Arrival,
        absorbed: &mut Absorbed,
    ) -> Merge {
        if self.count == 0 {
            self.arrive(rq, arrival);
            self.stage_first(rq.tag, arrival);
            return Merge::No;
        }
        let mut touch = self.touching_behind(rq);
        // The request that an insert would look for next has just been looked for.
        if touch == Some(Touch::Nobody) || touch.is_none() && !SORTED {
            self.arrive(rq, arrival);
            self.stage(rq.tag, arrival);
            return Merge::No;
        }
        if touch.is_none() {
            // Where it belongs, there is also who starts at its end.
            let order = &self.orders[arrival.band];
            let spot = order.spot(&self.nodes, rq.sector);
            let ahead = match self.front_merges {
                true => order.starting_behind(&self.nodes, &spot, rq.end()),
                false => None,
            };
            touch = ahead.map(|tag| self.touches_before(tag, rq));
            if touch.is_none_or(|touch| touch == Touch::Nobody) {
                self.arrive(rq, arrival);
                self.stage_at(rq.tag, arrival, spot);
                return Merge::No;
            }
        }
        let merge = self.merge_with(touch.expect("somebody"), rq);
        if merge == Merge::No {
            self.insert(*rq, arrival, absorbed);
        }
        merge
    }

    /// Takes a request, which may disappear into staged ones instead.
    #[inline(never)]
    pub(crate) fn insert(&mut self, rq: Rq, arrival: Arrival, absorbed: &mut Absorbed) {
        let tag = rq.tag;
        self.arrive(&rq, arrival);
        if self.nodes[tag.index()].rq.is_mergeable() && self.join(tag, absorbed) {
            return;
        }
        self.stage(tag, arrival);
    }

    /// Notes what is known of a new request.
    #[inline(always)]
    fn arrive(&mut self, rq: &Rq, arrival: Arrival) {
        let node = &mut self.nodes[rq.tag.index()];
        assert_eq!(node.place, Place::Out, "tag {} is staged twice", rq.tag.0);
        node.rq = *rq;
        node.band = arrival.band as u8;
        node.arrived = arrival.now;
    }

    /// Puts a request that has arrived where it waits.
    #[inline(never)]
    fn stage(&mut self, tag: SchedTag, arrival: Arrival) {
        let spot = match SORTED {
            true => self.orders[arrival.band].spot(&self.nodes, self.nodes[tag.index()].rq.sector),
            false => Spot::NOWHERE,
        };
        self.stage_at(tag, arrival, spot);
    }

    /// The same where nothing is staged.
    #[inline(always)]
    fn stage_first(&mut self, tag: SchedTag, arrival: Arrival) {
        let spot = match SORTED {
            true => self.orders[arrival.band].spot_alone(self.nodes[tag.index()].rq.sector),
            false => Spot::NOWHERE,
        };
        self.stage_at(tag, arrival, spot);
    }

    /// Puts a request that has arrived at the tail of its band, at this spot of the order.
    #[inline(always)]
    fn stage_at(&mut self, tag: SchedTag, arrival: Arrival, spot: Spot) {
        let Arrival { band, now, expire_ns, .. } = arrival;
        self.count += 1;
        let node = &mut self.nodes[tag.index()];
        node.deadline = now + expire_ns;
        node.place = Place::Band;
        let (mergeable, end) = (node.rq.is_mergeable(), node.rq.end());
        if SORTED {
            self.orders[band].insert_at(&mut self.nodes, tag, spot);
        }
        self.fifos[band].push(&mut self.nodes, tag);
        if mergeable {
            self.hash.add(tag, end);
            if self.last_merge == SchedTag::NONE {
                self.last_merge = tag;
            }
        }
    }

    /// Takes a request out of its band and, as long as [`first_from`](Staged::first_from) would
    /// find them from its sector on without a doubt, those behind it in sector order: `max` at
    /// most, and one at least. They are appended to `out`; says how many.
    #[inline]
    pub(crate) fn unlink_run(&mut self, tag: SchedTag, max: usize, out: &mut Vec<Rq>) -> usize {
        let Staged { nodes, orders, fifos, hash, last_merge, cursor, .. } = self;
        let Node { rq: Rq { sector, .. }, band, place, before, .. } = nodes[tag.index()];
        assert_eq!(place, Place::Band, "tag {} is in no band", tag.0);
        // Those before it have lower sectors, or it is not the first of its own.
        let first = before == SchedTag::NONE || nodes[before.index()].rq.sector < sector;
        let (order, fifo) = (&mut orders[usize::from(band)], &mut fifos[usize::from(band)]);
        let taken = order.remove_run(nodes, tag, if first { max } else { 1 }, |nodes, tag| {
            fifo.remove(nodes, tag);
            hash.remove(tag);
            let node = &mut nodes[tag.index()];
            if *last_merge == tag {
                *last_merge = SchedTag::NONE;
            }
            if *cursor == tag {
                *cursor = node.after;
            }
            node.place = Place::Out;
            out.push(node.rq);
        });
        self.count -= taken;
        taken
    }

    /// Takes a request out of its band.
    #[inline]
    pub(crate) fn unlink(&mut self, tag: SchedTag) -> &Rq {
        let Node { band, place, after, .. } = self.nodes[tag.index()];
        assert_eq!(place, Place::Band, "tag {} is in no band", tag.0);
        if self.cursor == tag {
            self.cursor = after;
        }
        if SORTED {
            self.orders[usize::from(band)].remove(&mut self.nodes, tag);
        }
        self.fifos[usize::from(band)].remove(&mut self.nodes, tag);
        self.hash.remove(tag);
        self.forget(tag);
        self.nodes[tag.index()].place = Place::Out;
        self.count -= 1;
        &self.nodes[tag.index()].rq
    }

    /// The tags of what is staged, in order.
    pub(crate) fn tags(&self) -> Vec<SchedTag> {
        tags_at(&self.nodes, Place::Band)
    }

    /// There are this many tags now; nothing is staged.
    pub(crate) fn resize(&mut self, tags: u16) {
        assert_eq!(self.count, 0, "the depth changes while requests are staged");
        self.nodes = unstaged(tags);
        self.hash = MergeHash::new(tags);
        self.orders = orders::<SORTED>(self.fifos.len(), tags);
    }

    /// The device's limits or `nomerges` are these now.
    pub(crate) fn limits_changed(&mut self, limits: &Limits, nomerges: u8) {
        self.limits = limits.clone();
        self.nomerges = nomerges;
    }
}

fn orders<const SORTED: bool>(bands: usize, tags: u16) -> Vec<Order> {
    let bands = if SORTED { bands } else { 0 };
    (0..bands).map(|_| Order::new(tags)).collect()
}

#[cfg(test)]
impl<const SORTED: bool> Staged<SORTED> {
    /// A band's requests by sector and by age.
    pub(crate) fn band(&mut self, band: usize) -> (Vec<SchedTag>, Vec<SchedTag>) {
        let first = self.first_from(band, 0).unwrap_or(SchedTag::NONE);
        let oldest = self.fifos[band].oldest;
        (self.walk(first, |node| node.after), self.walk(oldest, |node| node.newer))
    }

    fn walk(&self, from: SchedTag, next: impl Fn(&Node) -> SchedTag) -> Vec<SchedTag> {
        let some = |tag: SchedTag| (tag != SchedTag::NONE).then_some(tag);
        std::iter::successors(some(from), |tag| some(next(&self.nodes[tag.index()]))).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_bio::{Flags, GroupId, IoPrio, Op, Prng, RqId};

    use crate::contract::{Ended, Scheduler};

    /// A scheduler of the deadline family as its tests look into it.
    pub(crate) trait Inspect: Scheduler {
        fn bands(&mut self) -> Vec<(Vec<SchedTag>, Vec<SchedTag>)>;
        fn batching(&self) -> u32;
    }

    pub(crate) fn setup() -> Setup {
        let limits = Limits { capacity: 1 << 20, ..Limits::default() };
        Setup { limits, nr_requests: 32, hard_queues: 1, nomerges: 0, compat: "" }
    }

    pub(crate) fn request(prng: &mut Prng, tag: SchedTag) -> Rq {
        Rq {
            sector: 8 * prng.below(64),
            sectors: 8,
            id: RqId(0),
            flags: Flags::SYNC,
            group: GroupId(0),
            ioprio: IoPrio((prng.below(4) << 13) as u16),
            hint: 0,
            tag,
            op: if prng.percent(50) { Op::Write } else { Op::Read },
            segments: 1,
        }
    }

    /// Invariant I2: order and FIFO of each band hold the same requests, and a cursor is one of
    /// them.
    fn check_bands(scheduler: &mut impl Inspect, cursor: SchedTag) {
        let (mut staged, mut cursor_is_staged) = (0, cursor == SchedTag::NONE);
        for (mut sorted, mut aged) in scheduler.bands() {
            staged += sorted.len();
            cursor_is_staged |= aged.contains(&cursor);
            sorted.sort();
            aged.sort();
            assert_eq!(sorted, aged);
        }
        assert_eq!(staged, scheduler.staged());
        assert!(cursor_is_staged, "the cursor is tag {}, which is in no band", cursor.0);
    }

    /// Holds a scheduler to I2 while bios merge and requests join.
    pub(crate) fn bands_agree<S: Inspect>(make: fn() -> S, cursor: fn(&S) -> SchedTag) {
        for seed in 0..1_000 {
            println!("seed {seed}");
            let mut prng = Prng::new(seed);
            let mut scheduler = make();
            let mut free: Vec<_> = (0..setup().nr_requests).map(SchedTag).collect();
            for _ in 0..100 {
                let mut gone = Vec::new();
                if prng.percent(30) {
                    if let Some(rq) = scheduler.dispatch(0, Nanos::ZERO) {
                        scheduler.ended(&Ended::untimed(rq.tag), Nanos::ZERO);
                        gone.push(rq.tag);
                    }
                } else if prng.percent(50) {
                    let merge = scheduler.merge(&request(&mut prng, SchedTag::NONE), Nanos::ZERO);
                    if let Merge::BackJoined { gone: tag, .. }
                    | Merge::FrontJoined { gone: tag, .. } = merge
                    {
                        gone.push(tag);
                    }
                } else if let Some(tag) = free.pop() {
                    let mut absorbed = Absorbed::new();
                    let rq = request(&mut prng, tag);
                    scheduler.insert(rq, Nanos::ZERO, &mut absorbed);
                    gone.extend(absorbed.into_iter().map(|(_, gone)| gone));
                }
                free.extend(gone);
                let cursor = cursor(&scheduler);
                check_bands(&mut scheduler, cursor);
            }
        }
    }

    /// Invariant I3, with one class and no merges: in a batch the direction
    /// stays, sectors never go down, and it is no longer than `fifo_batch`.
    pub(crate) fn batches_are_sweeps<S: Inspect>(make: fn(&Setup) -> S) {
        for seed in 0..1_000 {
            println!("seed {seed}");
            let mut prng = Prng::new(seed);
            let mut scheduler = make(&Setup { nomerges: 2, ..setup() });
            let batch = prng.below(6) as u32;
            scheduler.tunables().put("fifo_batch", i128::from(batch));
            scheduler.tunables().put("read_expire", i128::from(prng.below(20)));
            let mut free: Vec<_> = (0..setup().nr_requests).map(SchedTag).collect();
            let mut last: Option<Rq> = None;
            for ms in 0..100 {
                if let Some(tag) = free.pop() {
                    let rq = Rq { ioprio: IoPrio::NONE, ..request(&mut prng, tag) };
                    scheduler.insert(rq, Nanos::from_ms(ms), &mut Absorbed::new());
                }
                if prng.percent(40) {
                    continue;
                }
                let before = scheduler.batching();
                let rq = scheduler.dispatch(0, Nanos::from_ms(ms)).expect("one class never waits");
                assert!(scheduler.batching() <= batch.max(1));
                if let Some(last) = last.filter(|_| scheduler.batching() == before + 1) {
                    assert_eq!(last.op, rq.op);
                    assert!(last.sector <= rq.sector, "{} after {}", rq.sector, last.sector);
                }
                last = Some(rq);
                scheduler.ended(&Ended::untimed(rq.tag), Nanos::from_ms(ms));
                free.push(rq.tag);
            }
        }
    }
}
