//! The rules of the deadline family as plainly as they can be written: sorted vectors, searched
//! from one end to the other. It is slow and shares nothing with the schedulers but the judgement
//! whether two requests may join.

use weir_sched::merge::{Fit, Side, fit};
use weir_sched::{Absorbed, Merge, Rq, SchedTag};

use weir_bio::{Class, Flags, Limits, Nanos};

const WRITE: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Section 4.
    D4,
    /// Section 5.
    D6,
    /// Section 3: one band, first in, first out.
    Noop,
}

#[derive(Clone, Debug)]
pub struct Values {
    pub expire_ns: [u64; 2],
    pub writes_starved: i64,
    pub front_merges: bool,
    pub fifo_batch: u32,
    pub aging_ns: u64,
}

#[derive(Clone, Debug)]
struct Item {
    rq: Rq,
    band: usize,
    seq: u64,
    deadline: u64,
    ins: u64,
}

#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    pub values: Values,
    limits: Limits,
    nomerges: u8,
    /// In the order of the FIFOs, all bands together.
    items: Vec<Item>,
    /// Newest last.
    hash: Vec<(u64, SchedTag)>,
    last_merge: Option<SchedTag>,
    next: Option<SchedTag>,
    seq: u64,
    batching: u32,
    starved: i64,
    last_direction: usize,
    position: [[u64; 2]; 3],
    pub queued: [i64; 3],
    pub merged: [u32; 3],
}

pub fn class(rq: &Rq) -> usize {
    match rq.ioprio.class() {
        Class::RealTime => 0,
        Class::Idle => 2,
        _ => 1,
    }
}

impl Model {
    pub fn new(rules: Rules, values: Values, limits: Limits, nomerges: u8) -> Model {
        Model {
            rules,
            values,
            limits,
            nomerges,
            items: Vec::new(),
            hash: Vec::new(),
            last_merge: None,
            next: None,
            seq: 0,
            batching: 0,
            starved: 0,
            last_direction: WRITE,
            position: [[0; 2]; 3],
            queued: [0; 3],
            merged: [0; 3],
        }
    }

    pub fn staged(&self) -> usize {
        self.items.len()
    }

    fn band(&self, rq: &Rq) -> usize {
        let direction = usize::from(rq.op.is_write());
        match self.rules {
            Rules::D4 => direction,
            Rules::D6 => 2 * class(rq) + direction,
            Rules::Noop => 0,
        }
    }

    fn at(&self, tag: SchedTag) -> usize {
        self.items.iter().position(|item| item.rq.tag == tag).expect("the tag is staged")
    }

    fn rq(&self, tag: SchedTag) -> Rq {
        self.items[self.at(tag)].rq
    }

    /// The tags of a band by sector and number of insertion; noop's by age.
    fn sorted(&self, band: usize) -> Vec<SchedTag> {
        let mut items: Vec<_> = self.items.iter().filter(|item| item.band == band).collect();
        if self.rules != Rules::Noop {
            items.sort_by_key(|item| (item.rq.sector, item.seq));
        }
        items.into_iter().map(|item| item.rq.tag).collect()
    }

    fn neighbour(&self, tag: SchedTag, step: isize) -> Option<SchedTag> {
        let sorted = self.sorted(self.items[self.at(tag)].band);
        let at = sorted.iter().position(|other| *other == tag).expect("it is in its band");
        at.checked_add_signed(step).and_then(|at| sorted.get(at).copied())
    }

    fn oldest(&self, band: usize) -> Option<&Item> {
        self.items.iter().find(|item| item.band == band)
    }

    fn first_from(&self, band: usize, sector: u64) -> Option<SchedTag> {
        self.sorted(band).into_iter().find(|tag| self.rq(*tag).sector >= sector)
    }

    fn hash_find(&self, end: u64) -> Option<SchedTag> {
        self.hash.iter().rev().find(|(at, _)| *at == end).map(|(_, tag)| *tag)
    }

    fn unhash(&mut self, tag: SchedTag) {
        self.hash.retain(|(_, other)| *other != tag);
    }

    fn remove(&mut self, tag: SchedTag) -> Rq {
        if self.next == Some(tag) {
            self.next = self.neighbour(tag, 1);
        }
        self.unhash(tag);
        self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        let at = self.at(tag);
        self.items.remove(at).rq
    }

    fn judge(&mut self, tag: SchedTag, bio: &Rq) -> Fit {
        let fit = fit(&self.rq(tag), bio, &self.limits);
        if fit == Fit::TooLarge {
            let at = self.at(tag);
            self.items[at].rq.flags |= Flags::NOMERGE;
            self.unhash(tag);
            self.last_merge = self.last_merge.filter(|cached| *cached != tag);
        }
        fit
    }

    fn joins(&self, kept: &Rq, gone: &Rq) -> bool {
        fit(kept, gone, &self.limits) == Fit::Joins(Side::Back)
    }

    fn grow(&mut self, tag: SchedTag, tail: &Rq) {
        let at = self.at(tag);
        let rq = &mut self.items[at].rq;
        rq.sectors += tail.sectors;
        rq.segments += tail.segments;
        let end = rq.end();
        self.unhash(tag);
        self.hash.push((end, tag));
        self.last_merge = Some(tag);
    }

    fn absorb(&mut self, kept: SchedTag, gone: SchedTag) {
        let (from, mut to) = (self.at(kept), self.at(gone));
        let (deadline, ins) = (self.items[to].deadline, self.items[to].ins);
        if self.rules != Rules::Noop && deadline < self.items[from].deadline {
            let mut item = self.items.remove(from);
            to -= usize::from(from < to);
            (item.deadline, item.ins) = (deadline, ins);
            self.items.insert(to, item);
        }
        self.merged[class(&self.rq(gone))] += 1;
        let gone = self.remove(gone);
        self.grow(kept, &gone);
    }

    fn back(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        self.grow(tag, bio);
        match self.neighbour(tag, 1) {
            Some(next) if self.joins(&self.rq(tag), &self.rq(next)) => {
                self.absorb(tag, next);
                Merge::BackJoined { kept: tag, gone: next }
            }
            _ => Merge::Back(tag),
        }
    }

    fn front(&mut self, tag: SchedTag, bio: &Rq) -> Merge {
        let previous = self.neighbour(tag, -1);
        self.seq += 1;
        let at = self.at(tag);
        let item = &mut self.items[at];
        item.seq = self.seq;
        item.rq.sector = bio.sector;
        item.rq.sectors += bio.sectors;
        item.rq.segments += bio.segments;
        self.last_merge = Some(tag);
        match previous {
            Some(previous) if self.joins(&self.rq(previous), &self.rq(tag)) => {
                self.absorb(previous, tag);
                Merge::FrontJoined { kept: previous, gone: tag }
            }
            _ => Merge::Front(tag),
        }
    }

    pub fn merge(&mut self, bio: &Rq) -> Merge {
        if self.nomerges == 2 || !bio.is_mergeable() {
            return Merge::No;
        }
        let mut tries = vec![self.last_merge];
        if self.nomerges == 0 {
            tries.push(self.hash_find(bio.sector));
            if self.values.front_merges && self.rules != Rules::Noop {
                let band = self.band(bio);
                let starts_at_end = |tag: &SchedTag| self.rq(*tag).sector == bio.end();
                tries.push(self.first_from(band, bio.end()).filter(starts_at_end));
            }
        }
        for tag in tries.into_iter().flatten() {
            match self.judge(tag, bio) {
                Fit::Joins(Side::Back) => return self.back(tag, bio),
                Fit::Joins(Side::Front) => return self.front(tag, bio),
                Fit::TooLarge => return Merge::No,
                Fit::Apart => {}
            }
        }
        Merge::No
    }

    pub fn insert(&mut self, rq: Rq, now: Nanos, absorbed: &mut Absorbed) {
        self.queued[class(&rq)] += 1;
        if rq.is_mergeable() && self.nomerges < 2 && self.join(rq, absorbed) {
            return;
        }
        let band = self.band(&rq);
        self.seq += 1;
        let deadline = now.0 + self.values.expire_ns[usize::from(rq.op.is_write())];
        let deadline = if self.rules == Rules::Noop { 0 } else { deadline };
        self.items.push(Item { rq, band, seq: self.seq, deadline, ins: now.0 });
        if rq.is_mergeable() {
            self.hash.push((rq.end(), rq.tag));
            self.last_merge.get_or_insert(rq.tag);
        }
    }

    fn join(&mut self, rq: Rq, absorbed: &mut Absorbed) -> bool {
        if let Some(kept) = self.last_merge.filter(|tag| self.joins(&self.rq(*tag), &rq)) {
            self.grow(kept, &rq);
            self.merged[class(&rq)] += 1;
            absorbed.push((kept, rq.tag));
            return true;
        }
        if self.nomerges == 1 {
            return false;
        }
        let Some(mut gone) = self.hash_find(rq.sector).filter(|t| self.joins(&self.rq(*t), &rq))
        else {
            return false;
        };
        self.grow(gone, &rq);
        self.merged[class(&rq)] += 1;
        absorbed.push((gone, rq.tag));
        while let Some(kept) = self.hash_find(self.rq(gone).sector) {
            if !self.joins(&self.rq(kept), &self.rq(gone)) {
                break;
            }
            absorbed.push((kept, gone));
            self.absorb(kept, gone);
            gone = kept;
        }
        true
    }

    fn direction(&mut self, bands: usize) -> Option<usize> {
        let waits = [0, 1].map(|direction| self.oldest(bands + direction).is_some());
        let mut direction = WRITE;
        if waits[0] {
            direction = 0;
            if waits[1] {
                let old = self.starved;
                self.starved += 1;
                direction = usize::from(old >= self.values.writes_starved);
            }
        } else if !waits[1] {
            return None;
        }
        if direction == WRITE {
            self.starved = 0;
        }
        Some(direction)
    }

    fn d4(&mut self, now: Nanos) -> Option<SchedTag> {
        if let Some(next) = self.next.filter(|_| self.batching < self.values.fifo_batch) {
            return Some(next);
        }
        let direction = self.direction(0)?;
        let oldest = self.oldest(direction).expect("the direction waits");
        let (tag, expired) = (oldest.rq.tag, now.0 >= oldest.deadline);
        self.batching = 0;
        let next = self.next.filter(|next| self.items[self.at(*next)].band == direction);
        Some(next.filter(|_| !expired).unwrap_or(tag))
    }

    fn attempt(&mut self, class: usize, latest: i128, now: Nanos) -> Option<SchedTag> {
        let direction = self.last_direction;
        let from = |model: &Model, direction: usize| {
            model.first_from(2 * class + direction, model.position[class][direction])
        };
        let next = from(self, direction).filter(|_| self.batching < self.values.fifo_batch);
        let chosen = match next {
            Some(next) => next,
            None => {
                let direction = self.direction(2 * class)?;
                let oldest = self.oldest(2 * class + direction).expect("the direction waits");
                let expired = now.0 >= oldest.deadline;
                let chosen = from(self, direction).filter(|_| !expired).unwrap_or(oldest.rq.tag);
                self.last_direction = direction;
                self.batching = 0;
                chosen
            }
        };
        (i128::from(self.items[self.at(chosen)].ins) <= latest).then_some(chosen)
    }

    fn d6(&mut self, now: Nanos) -> Option<SchedTag> {
        let latest = i128::from(now.0) - i128::from(self.values.aging_ns);
        if self.queued.iter().filter(|queued| **queued != 0).count() >= 2 {
            for class in [1, 2] {
                if let Some(tag) = self.attempt(class, latest, now) {
                    return Some(tag);
                }
            }
        }
        for class in 0..3 {
            let chosen = self.attempt(class, i128::from(now.0), now);
            if chosen.is_some() || self.queued[class] != 0 {
                return chosen;
            }
        }
        None
    }

    pub fn dispatch(&mut self, now: Nanos) -> Option<Rq> {
        let tag = match self.rules {
            Rules::D4 => self.d4(now)?,
            Rules::D6 => self.d6(now)?,
            Rules::Noop => self.items.first()?.rq.tag,
        };
        self.batching += 1;
        if self.rules == Rules::D4 {
            self.next = self.neighbour(tag, 1);
        }
        let rq = self.remove(tag);
        self.position[class(&rq)][usize::from(rq.op.is_write())] = rq.sector;
        Some(rq)
    }

    pub fn finish(&mut self, rq: &Rq) {
        self.queued[class(rq)] -= 1;
    }
}
