//! A scheduler with an engine around it that is just enough: tags, names, and who is where.

use weir_sched::{Absorbed, Ended, Family, Merge, Replay, Rq, SchedTag, Setup, find};

use weir_bio::{Class, Flags, GroupId, IoPrio, Limits, Nanos, Op, RqId, SubmitterId};

/// Sectors of a request unless a test says otherwise.
pub const SECTORS: u32 = 8;

pub const MS: u64 = 1_000_000;

/// A scheduler by path, name and level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub Family, pub &'static str, pub &'static str);

pub const LEGACY: Level = Level(Family::Legacy, "deadline", "4.16");
pub const SLES12: Level = Level(Family::Legacy, "deadline", "sles12");
pub const MQ_4_12: Level = Level(Family::Multi, "mq-deadline", "4.12");
pub const MQ_6_18: Level = Level(Family::Multi, "mq-deadline", "6.18");

/// The levels that follow docs/behaviour/deadline.md, section 5; the other one follows
/// docs/behaviour/mq-deadline.md (D6).
pub const D4: [Level; 2] = [LEGACY, MQ_4_12];
pub const ALL: [Level; 3] = [LEGACY, MQ_4_12, MQ_6_18];

pub fn setup(level: Level) -> Setup {
    Setup {
        limits: Limits { capacity: 1 << 20, max_hw_sectors: 2048, ..Limits::default() },
        nr_requests: 64,
        hard_queues: 1,
        nomerges: 0,
        compat: level.2,
    }
}

pub fn make(level: Level, setup: &Setup) -> Box<dyn Replay> {
    let entry = find(level.0, level.1).expect("the name is known");
    assert!(entry.compat.contains(&level.2), "{level:?}");
    entry.replay.expect("it is a scheduler")(setup)
}

pub fn rq(op: Op, sector: u64, sectors: u32, ioprio: IoPrio) -> Rq {
    Rq {
        sector,
        sectors,
        id: RqId::new(SubmitterId(0), 0, 0),
        flags: Flags::SYNC,
        group: GroupId(0),
        ioprio,
        hint: 0,
        tag: SchedTag::NONE,
        op,
        segments: 1,
    }
}

pub struct Bed {
    pub scheduler: Box<dyn Replay>,
    pub now: Nanos,
    /// By tag; the names of requests in the scheduler or in flight.
    names: Vec<Option<String>>,
    /// Sectors of the requests and bios that follow.
    pub sectors: u32,
}

impl Bed {
    pub fn new(level: Level) -> Bed {
        let setup = setup(level);
        Bed {
            scheduler: make(level, &setup),
            now: Nanos::ZERO,
            names: vec![None; usize::from(setup.nr_requests)],
            sectors: SECTORS,
        }
    }

    /// With tunables set.
    pub fn with(level: Level, values: &[(&str, &str)]) -> Bed {
        let mut bed = Bed::new(level);
        for (name, value) in values {
            bed.set(name, value);
        }
        bed
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.scheduler.tunables().set(name, value).expect("a valid value");
    }

    pub fn at_ms(&mut self, ms: u64) -> &mut Bed {
        self.now = Nanos::from_ms(ms);
        self
    }

    /// `NAME@SECTOR(r|w)[/CLASS]`
    fn parse(&self, text: &str) -> (String, Rq) {
        let (name, rest) = text.split_once('@').expect("NAME@");
        let (place, class) = rest.split_once('/').unwrap_or((rest, "BE"));
        let (sector, op) = place.split_at(place.len() - 1);
        let op = if op == "r" { Op::Read } else { Op::Write };
        let class = match class {
            "RT" => Class::RealTime,
            "IDLE" => Class::Idle,
            _ => Class::BestEffort,
        };
        let sector = sector.parse().expect("a sector");
        (name.to_owned(), rq(op, sector, self.sectors, IoPrio::new(class, 4)))
    }

    fn insert_one(&mut self, text: &str) {
        let (name, mut rq) = self.parse(text);
        let free = self.names.iter().position(Option::is_none).expect("a free tag");
        self.names[free] = Some(name);
        rq.tag = SchedTag(free as u16);
        let mut absorbed = Absorbed::new();
        self.scheduler.insert(rq, self.now, &mut absorbed);
        for (_, gone) in absorbed {
            self.names[usize::from(gone.0)] = None;
        }
    }

    /// Inserts all of a list parted by blanks.
    pub fn insert(&mut self, list: &str) -> &mut Bed {
        for text in list.split_whitespace() {
            self.insert_one(text);
        }
        self
    }

    /// Offers a bio; tells whom it joined, as `B`, or as `A<B` when A then took B in.
    pub fn bio(&mut self, text: &str) -> String {
        let (_, bio) = self.parse(text);
        match self.scheduler.merge(&bio, self.now) {
            Merge::No => String::from("-"),
            Merge::Back(tag) | Merge::Front(tag) => self.name(tag),
            Merge::BackJoined { kept, gone } | Merge::FrontJoined { kept, gone } => {
                let told = format!("{}<{}", self.name(kept), self.name(gone));
                self.names[usize::from(gone.0)] = None;
                told
            }
        }
    }

    fn name(&self, tag: SchedTag) -> String {
        self.names[usize::from(tag.0)].clone().expect("the tag is in use")
    }

    /// The request that goes now, which stays in flight.
    pub fn take(&mut self) -> Option<Rq> {
        self.scheduler.dispatch(0, self.now)
    }

    /// Its name, or `-`.
    pub fn next(&mut self) -> String {
        self.take().map_or_else(|| String::from("-"), |rq| self.name(rq.tag))
    }

    /// The names of all that go until none may.
    pub fn drain(&mut self) -> String {
        let mut names = Vec::new();
        while let Some(rq) = self.take() {
            names.push(self.name(rq.tag));
        }
        names.join(" ")
    }

    fn tag(&self, name: &str) -> SchedTag {
        let at = self.names.iter().position(|held| held.as_deref() == Some(name));
        SchedTag(at.expect("the name is in use") as u16)
    }

    /// The device finished the request of this name.
    pub fn finish(&mut self, name: &str) {
        let tag = self.tag(name);
        self.scheduler.ended(&Ended::untimed(tag), self.now);
        self.names[usize::from(tag.0)] = None;
    }
}
