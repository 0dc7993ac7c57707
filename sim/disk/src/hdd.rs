//! A hard disk: one set of heads over turning platters.

mod geometry;

use serde::Deserialize;
use weir_bio::{Nanos, Op, SECTOR};

use crate::ends::Ends;
use crate::machine::{Job, Machine};
use crate::read;
use crate::servers::transfer_ns;
use geometry::{Geometry, Place};

/// Tracks of one length, from the rim inwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    /// Cylinders.
    pub cylinders: u64,
    /// Sectors of a track.
    pub sectors: u64,
}

/// A disk with one set of heads.
///
/// A seek over `d` cylinders takes `seek_base + seek_root * sqrt(d) + seek_linear * d`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hdd {
    /// Turns a minute.
    pub rpm: u64,
    /// Surfaces.
    pub heads: u64,
    /// From the rim, where sector 0 is, inwards.
    pub zones: Vec<Zone>,
    /// Of a seek of any length, ns.
    #[serde(deserialize_with = "read::time")]
    pub seek_base: u64,
    /// For each root of a cylinder, ns.
    #[serde(deserialize_with = "read::time")]
    pub seek_root: u64,
    /// For each 1000 cylinders, ns.
    #[serde(deserialize_with = "read::time")]
    pub seek_linear: u64,
    /// Until a write may begin after a move, besides, ns.
    #[serde(deserialize_with = "read::time")]
    pub settle: u64,
    /// From a surface to another of the same cylinder, ns.
    #[serde(deserialize_with = "read::time")]
    pub head_switch: u64,
    /// By which the first sector of a track lags behind that of the track before, ns.
    #[serde(deserialize_with = "read::time")]
    pub track_skew: u64,
    /// The same at a change of the cylinder, ns.
    #[serde(deserialize_with = "read::time")]
    pub cylinder_skew: u64,
    /// Of each command, ns.
    #[serde(deserialize_with = "read::time")]
    pub overhead: u64,
    /// Bytes a second between its memory and the host.
    #[serde(deserialize_with = "read::size")]
    pub link: u64,
    /// Commands among which the next is chosen.
    pub depth: usize,
    /// A command that has waited so long is next, ns.
    #[serde(deserialize_with = "read::time")]
    pub patience: u64,
    /// Bytes that are read on behind a read as long as nothing else is asked for; 1 GiB at most.
    #[serde(deserialize_with = "read::size")]
    pub read_ahead: u64,
    /// Bytes of writes that are answered before they are on the medium; 0: none.
    #[serde(deserialize_with = "read::size")]
    pub write_cache: u64,
}

impl Default for Hdd {
    fn default() -> Hdd {
        Hdd {
            rpm: 7_200,
            heads: 2,
            zones: Vec::new(),
            seek_base: 0,
            seek_root: 0,
            seek_linear: 0,
            settle: 0,
            head_switch: 0,
            track_skew: 0,
            cylinder_skew: 0,
            overhead: 0,
            link: 0,
            depth: 32,
            patience: 1_000_000_000,
            read_ahead: 0,
            write_cache: 0,
        }
    }
}

impl Hdd {
    pub(crate) fn check(&self) -> Result<(), String> {
        read::between("rpm", self.rpm, 1_000, 100_000)?;
        read::between("heads", self.heads, 1, 64)?;
        read::between("depth", self.depth as u64, 1, 1_024)?;
        read::times([
            ("seek_base", self.seek_base),
            ("seek_root", self.seek_root),
            ("seek_linear", self.seek_linear),
            ("settle", self.settle),
            ("head_switch", self.head_switch),
            ("track_skew", self.track_skew),
            ("cylinder_skew", self.cylinder_skew),
            ("overhead", self.overhead),
            ("patience", self.patience),
        ])?;
        read::between("read_ahead", self.read_ahead, 0, READ_AHEAD_MAX)?;
        read::between("number of zones", self.zones.len() as u64, 1, 64)?;
        for zone in &self.zones {
            // 64 zones of these with 64 heads are 2^61 bytes.
            read::between("cylinders", zone.cylinders, 1, 1 << 24)?;
            read::between("sectors of a track", zone.sectors, 1, 1 << 16)?;
        }
        Ok(())
    }

    /// The sectors that its zones have.
    pub(crate) fn capacity(&self) -> u64 {
        self.zones.iter().map(|zone| zone.cylinders * self.heads * zone.sectors).sum()
    }
}

/// The most bytes that are read on: more than the memory of any hard disk. They are passed track by
/// track for each command that might be among them.
const READ_AHEAD_MAX: u64 = 1 << 30;

/// Something for the heads to do.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// The command that ends with it; `None`: its write was answered when it was in the cache.
    id: Option<u32>,
    writes: bool,
    sector: u64,
    sectors: u64,
    since: Nanos,
    number: u64,
}

impl Work {
    fn bytes(&self) -> u64 {
        self.sectors * SECTOR
    }
}

/// A flush ends when no write that was in the cache before it is left.
#[derive(Clone, Copy, Debug)]
struct Flush {
    id: u32,
    number: u64,
}

/// What is read on, once the heads have nothing else to do.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The sector that was under the head at `since`.
    sector: u64,
    since: Nanos,
}

#[derive(Debug)]
pub(crate) struct HddDisk {
    spec: Hdd,
    geometry: Geometry,
    place: Place,
    /// In the order of arrival.
    waiting: Vec<Work>,
    busy: Option<(Work, Nanos)>,
    flushes: Vec<Flush>,
    stream: Option<Stream>,
    /// Bytes in the write cache.
    dirty: u64,
    next: u64,
}

impl HddDisk {
    pub(crate) fn new(spec: Hdd) -> HddDisk {
        HddDisk {
            geometry: Geometry::new(&spec),
            place: Place::default(),
            waiting: Vec::new(),
            busy: None,
            flushes: Vec::new(),
            stream: None,
            dirty: 0,
            next: 0,
            spec,
        }
    }

    /// Takes a write into the cache, if that has room.
    fn cache(&mut self, work: &mut Work, job: Job, now: Nanos, ends: &mut Ends) {
        if !work.writes || job.fua || self.dirty + work.bytes() > self.spec.write_cache {
            return;
        }
        self.dirty += work.bytes();
        work.id = None;
        ends.add(job.id, now + self.spec.overhead + transfer_ns(work.bytes(), self.spec.link));
    }

    /// How long until the heads have the first sector of this before them.
    fn position_ns(&self, work: &Work, now: Nanos) -> u64 {
        if !work.writes && self.streamed(work, now).is_some() {
            return 0;
        }
        let overhead = if work.id.is_some() { self.spec.overhead } else { 0 };
        let begins = now + overhead;
        let moves = self.geometry.position_ns(self.place, work.sector, work.writes, begins);
        moves.saturating_add(overhead)
    }

    /// When a read that follows the one before is read, if the heads have gone on reading so far.
    fn streamed(&self, work: &Work, now: Nanos) -> Option<Nanos> {
        let Stream { sector, since } = self.stream?;
        let ahead = work.sector.checked_sub(sector)?;
        let all = ahead + work.sectors;
        if all * SECTOR > self.spec.read_ahead {
            return None;
        }
        // A gap is read over if the heads are beyond it already.
        let is_reached = since + self.geometry.pass_ns(sector, ahead) <= now;
        is_reached.then(|| since + self.geometry.pass_ns(sector, all))
    }

    /// The next work, by its place in the list.
    fn choose(&self, now: Nanos) -> Option<usize> {
        let is_due = |work: &Work| work.id.is_some() && now.since(work.since) >= self.spec.patience;
        if let Some(oldest) = self.waiting.iter().position(is_due) {
            return Some(oldest);
        }
        // What is in the cache already waits as long as others are there and the cache has room.
        let is_pressed = !self.flushes.is_empty() || self.dirty > self.spec.write_cache / 4 * 3;
        let of = |commands: bool| {
            let all = self.waiting.iter().enumerate();
            all.filter(move |(_, work)| work.id.is_some() == commands).take(self.spec.depth)
        };
        let others = if is_pressed || of(true).next().is_none() { self.spec.depth } else { 0 };
        let near = of(true).chain(of(false).take(others));
        near.min_by_key(|(at, work)| (self.position_ns(work, now), *at)).map(|(at, _)| at)
    }

    fn begin(&mut self, now: Nanos, ends: &mut Ends) {
        debug_assert!(self.busy.is_none(), "one head");
        self.end_flushes(now, ends);
        let Some(at) = self.choose(now) else { return };
        let work = self.waiting.remove(at);
        let (first, sectors) = (work.sector, work.sectors);
        let read = if work.writes { None } else { self.streamed(&work, now) };
        let end = match read {
            // At the speed of the medium, or of the link if it was read before.
            Some(read) => {
                let link = transfer_ns(work.bytes(), self.spec.link);
                read.max(now + self.spec.overhead + link)
            }
            None => {
                let begins = now + self.position_ns(&work, now);
                begins + self.geometry.pass_ns(first, sectors)
            }
        };
        self.place = self.geometry.place(first + sectors.saturating_sub(1));
        let read_at = read.unwrap_or(end);
        self.stream = (!work.writes).then_some(Stream { sector: first + sectors, since: read_at });
        self.busy = Some((work, end));
    }

    fn end_flushes(&mut self, now: Nanos, ends: &mut Ends) {
        let oldest = self.waiting.iter().filter(|work| work.id.is_none()).map(|work| work.number);
        let oldest = oldest.min().unwrap_or(u64::MAX);
        let overhead = self.spec.overhead;
        self.flushes.retain(|flush| {
            let goes_on = oldest < flush.number;
            if !goes_on {
                ends.add(flush.id, now + overhead);
            }
            goes_on
        });
    }
}

impl Machine for HddDisk {
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends) {
        let number = self.next;
        self.next += 1;
        if job.op == Op::Flush {
            self.flushes.push(Flush { id: job.id, number });
        } else if !job.op.has_data() {
            ends.add(job.id, now + self.spec.overhead);
            return;
        } else {
            let mut work = Work {
                id: Some(job.id),
                writes: job.changes(),
                sector: job.sector,
                sectors: job.sectors.into(),
                since: now,
                number,
            };
            self.cache(&mut work, job, now, ends);
            self.waiting.push(work);
        }
        if self.busy.is_none() {
            self.begin(now, ends);
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.busy.map(|(_, end)| end)
    }

    fn wake(&mut self, now: Nanos, ends: &mut Ends) {
        if let Some((work, end)) = self.busy.take() {
            match work.id {
                Some(id) => ends.add(id, end),
                None => self.dirty -= work.bytes(),
            }
        }
        self.begin(now, ends);
    }

    fn undecided(&self) -> usize {
        let open = |work: &Work| usize::from(work.id.is_some());
        let busy = self.busy.map_or(0, |(work, _)| open(&work));
        busy + self.waiting.iter().map(open).sum::<usize>() + self.flushes.len()
    }
}
