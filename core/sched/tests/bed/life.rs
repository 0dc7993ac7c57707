//! Random lives of a scheduler: every call that its contract allows, with a ledger beside it.

use weir_bio::{Class, Flags, GroupId, IoPrio, Nanos, Op, Rq, RqId, SchedTag, Status, SubmitterId};
use weir_sched::{Absorbed, DepthRule, Ended, Entry, Merge, Replay, Setup};

use super::dice::Dice;
use super::ledger::{Issued, Subject, request};
use super::{Ledger, MILLISECOND, Offered, SECOND, is_multi, setup, wide};

/// Contexts of a sequence; few, so that they meet.
const CONTEXTS: usize = 6;
/// Sectors that requests fall on: few blocks, so that they meet.
const BLOCKS: u64 = 48;

/// One thing a sequence did, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// A bio was offered.
    Offered(Offered),
    /// A request left, with its bios.
    Issued(Nanos, Rq, Vec<u64>),
    /// A request ended, and these bios.
    Ended(SchedTag, Vec<u64>),
    /// A request was handed back, with these bios.
    HandedBack(SchedTag, Vec<u64>),
    /// Time passed to this moment.
    Woke(Nanos),
}

#[derive(Clone, Copy, Debug)]
struct Context {
    ioprio: IoPrio,
    group: GroupId,
    is_gone: bool,
}

/// A random life of a scheduler.
#[derive(Clone)]
pub struct Life {
    ledger: Ledger,
    /// The source of choices.
    pub dice: Dice,
    /// The time.
    pub now: Nanos,
    contexts: [Context; CONTEXTS],
    /// By number: where each bio is and how long, and whether it was answered.
    bios: Vec<(u64, u32, bool)>,
    /// The events so far.
    pub did: Vec<Did>,
    device_depth: usize,
    /// Most of what comes does this, if it is set: then whatever counts by op is full at times.
    mostly: Option<Op>,
}

impl Life {
    /// One life, whose every choice is the dice's.
    pub fn new(entry: &Entry, compat: &'static str, mut dice: Dice) -> Life {
        let mut limits = wide(dice.percent(50));
        if dice.percent(50) {
            limits.max_user_sectors = 8 * (1 + dice.below(6) as u32);
            limits.max_hw_discard_sectors = 24;
        }
        if dice.percent(20) {
            limits.max_segments = 3;
        }
        let setup = Setup {
            hard_queues: if is_multi(entry) { 1 + dice.below(3) as u16 } else { 1 },
            nomerges: if dice.percent(80) { 0 } else { dice.below(3) as u8 },
            ..setup(limits, 4 + dice.below(61) as u16, compat)
        };
        let context = Context { ioprio: IoPrio::NONE, group: GroupId(0), is_gone: false };
        let mut life = Life {
            ledger: Ledger::new(Subject::new(entry, &setup), setup),
            now: Nanos(dice.below(SECOND)),
            contexts: [context; CONTEXTS],
            bios: Vec::new(),
            did: Vec::new(),
            device_depth: [1, 2, 8, 64][dice.below(4) as usize],
            mostly: [None, None, None, Some(Op::WriteZeroes)][dice.below(4) as usize],
            dice,
        };
        for context in 0..CONTEXTS {
            life.home(context);
            life.dress(context);
        }
        life
    }

    /// So many calls, or fewer if the dice run out.
    pub fn steps(&mut self, count: usize) {
        for _ in 0..count {
            if self.dice.are_out() {
                return;
            }
            self.step();
        }
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..40 => self.offer(),
            40..64 => self.ask(),
            64..80 => self.end_one(),
            80..83 => self.hand_one_back(),
            83..93 => self.let_time_pass(),
            93..94 => self.set_a_tunable(),
            94..95 if self.dice.percent(80) => self.take_one_out(),
            94..95 => self.drain(),
            95..97 => self.change_a_context(),
            97..98 => self.weigh_a_group(),
            98..99 => self.judge_a_batch(),
            _ => self.change_the_queue(),
        }
    }

    /// A random priority and group for a context.
    fn dress(&mut self, context: usize) {
        let class = match self.dice.below(10) {
            0..5 => Class::None,
            5..7 => Class::BestEffort,
            7..8 => Class::RealTime,
            _ => Class::Idle,
        };
        let level = self.dice.below(8) as u8;
        let ioprio = if class == Class::None { IoPrio::NONE } else { IoPrio::new(class, level) };
        let group = GroupId(self.dice.below(4).saturating_sub(1) as u32);
        if self.contexts[context].is_gone {
            self.home(context);
        }
        self.contexts[context] = Context { ioprio, group, is_gone: false };
    }

    /// A context that can send; one that is gone comes back as another only when all it sent is
    /// answered, so that at least the first one never goes.
    fn present_context(&mut self) -> usize {
        let context = self.dice.below(CONTEXTS as u64) as usize;
        if !self.contexts[context].is_gone {
            return context;
        }
        let id = SubmitterId(context as u16);
        if self.ledger.has_any_of(id) {
            return 0;
        }
        self.dress(context);
        context
    }

    /// Binds a context, of which nothing is staged, to a random hard queue.
    fn home(&mut self, context: usize) {
        let hard_queue = self.dice.below(u64::from(self.ledger.setup().hard_queues)) as u16;
        self.ledger.home(SubmitterId(context as u16), hard_queue);
    }

    fn bio(&mut self) -> Rq {
        let context = self.present_context();
        let dice = &mut self.dice;
        let op = match dice.below(20) {
            0..9 => Op::Read,
            9..17 => Op::Write,
            17..19 => Op::Discard,
            _ => [Op::WriteZeroes, Op::SecureErase][dice.below(2) as usize],
        };
        let op = self.mostly.filter(|_| dice.percent(80)).unwrap_or(op);
        let mut flags = Flags::NONE;
        if op.is_write() && dice.percent(50) {
            flags |= Flags::SYNC;
        }
        for (flag, percent) in [
            (Flags::META, 5),
            (Flags::PRIO, 5),
            (Flags::IDLE, 10),
            (Flags::NOMERGE, 3),
            (Flags::RAHEAD, 5),
        ] {
            if dice.percent(percent) {
                flags |= flag;
            }
        }
        if op == Op::Write && dice.percent(4) {
            flags |= Flags::FUA;
        }
        let sectors = if dice.percent(80) { 8 } else { 8 * (1 + dice.below(3) as u32) };
        let sector = dice.below(BLOCKS) * 8;
        let Context { ioprio, group, .. } = self.contexts[context];
        let id = RqId::new(SubmitterId(context as u16), self.bios.len() as u16, 0);
        let rq = request(SchedTag::NONE);
        Rq { sector, sectors, op, flags, ioprio, group, id, ..rq }
    }

    fn number(&mut self, bio: &Rq) -> u64 {
        self.bios.push((bio.sector, bio.sectors, false));
        self.bios.len() as u64 - 1
    }

    fn offer(&mut self) {
        let bio = self.bio();
        let most = self.ledger.setup().limits.max_sectors();
        let bio = Rq { sectors: bio.sectors.min(most), ..bio };
        let number = self.number(&bio);
        let offered = self.ledger.offer(&bio, number, self.now);
        self.did.push(Did::Offered(offered));
    }

    /// Every hard queue is asked until the device is full or it gives nothing; or one of them is
    /// asked once.
    fn ask(&mut self) {
        if self.dice.percent(50) {
            let hard_queues = self.ledger.setup().hard_queues;
            let queue = self.dice.below(u64::from(hard_queues)) as u16;
            if self.ledger.in_flight() < self.device_depth {
                self.ask_once(queue);
            }
            return;
        }
        self.ask_all();
        self.ledger.is_not_stranded();
    }

    /// Asks those hard queues that have a reason until they give nothing or the device is full.
    fn ask_all(&mut self) {
        for queue in self.ledger.pending() {
            while self.ledger.in_flight() < self.device_depth && self.ask_once(queue) {}
        }
    }

    fn ask_once(&mut self, queue: u16) -> bool {
        let issued = self.ledger.dispatch(queue, self.now);
        let Some(issued) = issued else { return false };
        self.left(issued);
        true
    }

    fn left(&mut self, issued: Issued) {
        let mut at = issued.rq.sector;
        for bio in &issued.bios {
            let (sector, sectors, is_answered) = self.bios[*bio as usize];
            assert_eq!(sector, at, "bios of {:?} are not in order", issued.rq);
            assert!(!is_answered, "bio {bio} leaves once more");
            at += u64::from(sectors);
        }
        assert_eq!(at, issued.rq.end(), "{:?} is as long as its bios", issued.rq);
        self.did.push(Did::Issued(self.now, issued.rq, issued.bios));
    }

    fn one_of(&mut self, tags: Vec<SchedTag>) -> Option<SchedTag> {
        let one = self.dice.below(tags.len().max(1) as u64) as usize;
        tags.get(one).copied()
    }

    fn end_one(&mut self) {
        let Some(tag) = self.one_of(self.ledger.in_flight_tags()) else { return };
        let status = if self.dice.percent(95) { Status::Ok } else { Status::IoErr };
        let bios = self.ledger.completed(tag, status, self.now);
        self.answer(&bios);
        self.did.push(Did::Ended(tag, bios));
    }

    fn answer(&mut self, bios: &[u64]) {
        for bio in bios {
            let is_answered = &mut self.bios[*bio as usize].2;
            assert!(!std::mem::replace(is_answered, true), "bio {bio} is answered once more");
        }
    }

    /// What becomes of it is no business of the scheduler's any more.
    fn hand_one_back(&mut self) {
        let Some(tag) = self.one_of(self.ledger.in_flight_tags()) else { return };
        let bios = self.ledger.handed_back(tag, self.now);
        self.answer(&bios);
        self.did.push(Did::HandedBack(tag, bios));
    }

    fn let_time_pass(&mut self) {
        let wake_at = self.ledger.scheduler().wake_at().unwrap_or(Nanos::ZERO);
        let pass = match self.dice.below(10) {
            0..4 => self.dice.below(200_000),
            4..6 => self.dice.below(20 * MILLISECOND),
            6..9 => wake_at.since(self.now),
            _ => self.dice.below(12 * SECOND),
        };
        self.now = self.now + pass;
        self.ledger.fire(self.now);
        self.did.push(Did::Woke(self.now));
    }

    fn set_a_tunable(&mut self) {
        let table = self.ledger.scheduler_mut().tunables().table();
        if table.is_empty() {
            return;
        }
        let row = &table[self.dice.below(table.len() as u64) as usize];
        let value = match self.dice.below(5) {
            0 => row.least,
            1 => row.most,
            2 => row.least + i128::from(self.dice.below(20)),
            _ => row.default,
        };
        let value = value.clamp(row.least, row.most);
        let tunables = self.ledger.scheduler_mut().tunables();
        tunables.put(row.name, value);
        self.ledger.agrees();
    }

    fn take_one_out(&mut self) {
        let Some(tag) = self.one_of(self.ledger.staged_tags()) else { return };
        if let Some(issued) = self.ledger.take_out(tag, self.now) {
            self.left(issued);
        }
    }

    fn drain(&mut self) {
        for issued in self.ledger.drain(self.now) {
            self.left(issued);
        }
    }

    fn change_a_context(&mut self) {
        let context = self.dice.below(CONTEXTS as u64) as usize;
        let id = SubmitterId(context as u16);
        if self.contexts[context].is_gone {
            return;
        }
        // A bio that waits for a tag would come from a context that is gone.
        if context > 0 && self.ledger.waiting() == 0 && self.dice.percent(50) {
            self.ledger.ended(id, self.now);
            self.contexts[context].is_gone = true;
        } else {
            self.dress(context);
        }
        self.ledger.agrees();
    }

    fn weigh_a_group(&mut self) {
        let group = GroupId(self.dice.below(4) as u32);
        let weight = 1 + self.dice.below(1000) as u16;
        self.ledger.scheduler_mut().group_weight_changed(group, weight, self.now);
        self.ledger.agrees();
    }

    /// Asserts on copies that a batch has the same effect as its parts one by one.
    fn judge_a_batch(&mut self) {
        let (Some(mut whole), Some(mut parts)) = (self.ledger.copy(), self.ledger.copy()) else {
            return;
        };
        let mut batch = Vec::new();
        for tag in self.ledger.free_tags().into_iter().take(5) {
            batch.push(Rq { sectors: 8, tag, ..self.bio() });
        }
        let (mut absorbed, mut absorbed_each) = (Absorbed::new(), Absorbed::new());
        let (mut rest, mut last) = (batch.as_slice(), Merge::No);
        for (at, rq) in batch.iter().enumerate() {
            if rest.len() == batch.len() - at {
                let (taken, merge) = whole.stage_batch(rest, self.now, &mut absorbed);
                assert!(taken > 0, "a call takes something");
                (rest, last) = (&rest[taken..], merge);
            }
            let merge = parts.merge(rq, self.now);
            if merge == Merge::No {
                parts.insert(*rq, self.now, &mut absorbed_each);
            }
            // A call ends behind the first of which something came, and tells what.
            let told = if rest.len() == batch.len() - at - 1 { last } else { Merge::No };
            assert_eq!(merge, told, "bio {at} of {batch:?}");
            if merge != Merge::No || !absorbed_each.is_empty() {
                assert_eq!(rest.len(), batch.len() - at - 1, "it went on behind bio {at}");
                assert_eq!(std::mem::take(&mut absorbed), std::mem::take(&mut absorbed_each));
            }
        }
        assert!(rest.is_empty() && absorbed.is_empty(), "{rest:?} {absorbed:?}");
        let (mut out, max) = (Vec::new(), 1 + self.dice.below(8) as usize);
        whole.dispatch_batch(0, max, &mut out, self.now);
        let each: Vec<Rq> = std::iter::from_fn(|| parts.dispatch(0, self.now)).take(max).collect();
        assert_eq!(out, each, "a batch is what its parts are");
        self.judge_ends(whole, parts, &out);
        self.judge_depths();
    }

    /// Asserts on copies that many ends told at once have the same effect as one by one.
    fn judge_ends(&self, mut whole: Box<dyn Replay>, mut parts: Box<dyn Replay>, out: &[Rq]) {
        let (accepted_at, issued_at) = (Nanos(self.now.0 / 2), self.now);
        let now = self.now + 3 * MILLISECOND;
        let done_at = self.now + MILLISECOND;
        let status = Status::Ok;
        let end = |rq: &Rq| {
            let (tag, handed_back) = (rq.tag, rq.sector.is_multiple_of(3));
            Ended { tag, status, handed_back, accepted_at, issued_at, done_at }
        };
        let ended: Vec<_> = out.iter().map(end).collect();
        whole.ended_batch(&ended, now);
        ended.iter().for_each(|end| parts.ended(end, now));
        assert_eq!(whole.take_kicked(), parts.take_kicked());
        assert_eq!(whole.wake_at(), parts.wake_at());
        let later = now + 200 * MILLISECOND;
        for scheduler in [&mut whole, &mut parts] {
            scheduler.on_timer(later);
        }
        let left = [whole, parts].map(|mut scheduler| {
            let mut left = Vec::new();
            scheduler.dispatch_batch(0, usize::MAX, &mut left, later);
            left
        });
        assert_eq!(left[0], left[1], "the ends came to the same");
    }

    /// The short answer of which requests are limited is that for each of them while they are
    /// offered and inserted one after the other.
    fn judge_depths(&mut self) {
        let tags = self.ledger.free_tags();
        let (first, count) = (self.bio(), 1 + self.dice.below(12) as usize);
        let mut batch: Vec<_> = tags.into_iter().take(count).map(|tag| (tag, self.bio())).collect();
        let alike = self.dice.percent(80);
        let batch: Vec<_> = batch
            .drain(..)
            .map(|(tag, bio)| match alike {
                true => Rq { tag, sectors: 1, sector: bio.sector, op: bio.op, ..first },
                false => Rq { tag, sectors: 1, ..bio },
            })
            .collect();
        let Some(mut scheduler) = self.ledger.copy() else { return };
        // Its timer may be overdue.
        let now = self.now + self.dice.below(2) * self.dice.below(1000) * MILLISECOND;
        let rule = scheduler.depth_rule(&batch, now);
        if rule == DepthRule::Each {
            return;
        }
        for (before, bio) in batch.iter().enumerate() {
            let merge = scheduler.merge(bio, now);
            if merge != Merge::No {
                continue;
            }
            let limit = scheduler.depth_limit(bio.op, bio.is_sync(), bio.id.submitter());
            assert_eq!(rule.limit_of(bio), limit, "{rule:?} behind {before} of {batch:?}");
            scheduler.insert(*bio, now, &mut Absorbed::new());
        }
    }

    /// Lets everything out and changes depth or limits.
    fn change_the_queue(&mut self) {
        self.let_out();
        if self.dice.percent(50) {
            let nr_requests = 4 + self.dice.below(61) as u16;
            self.ledger.change_depth(nr_requests);
        } else {
            let (sectors, nomerges) = (8 << self.dice.below(5), self.dice.below(3) as u8);
            self.ledger.change_limits(|setup| {
                setup.limits.max_user_sectors = sectors;
                setup.nomerges = nomerges;
            });
        }
        self.ledger.agrees();
    }

    /// Lets everything out, and another scheduler takes the queue over.
    pub fn switch(&mut self, entry: &Entry, compat: &'static str) {
        self.let_out();
        let setup = self.ledger.setup().clone();
        let hard_queues = if is_multi(entry) { setup.hard_queues } else { 1 };
        self.ledger.switch(entry, Setup { hard_queues, compat, ..setup });
        (0..CONTEXTS).for_each(|context| self.home(context));
    }

    /// Whether it can be copied.
    pub fn can_be_copied(&self) -> bool {
        self.ledger.copy().is_some()
    }

    /// Asks, ends and waits until nothing is left.
    fn let_out(&mut self) {
        let bound = 200 + 40 * (self.ledger.staged() + self.ledger.waiting());
        for _ in 0..bound {
            if self.ledger.is_idle() {
                return;
            }
            self.ask_all();
            if self.ledger.in_flight() > 0 {
                self.now = self.now + 100_000;
                self.end_one();
                self.ledger.fire(self.now);
                continue;
            }
            self.ledger.is_not_stranded();
            if let Some(at) = self.ledger.wake_at() {
                self.now = at;
                self.ledger.fire(at);
                self.did.push(Did::Woke(at));
            }
        }
        assert!(self.ledger.is_idle(), "after {bound} turns something is still not served");
    }

    /// Lets everything out: each bio was answered.
    pub fn end(&mut self) {
        self.let_out();
        let unanswered = self.bios.iter().filter(|bio| !bio.2).count();
        assert_eq!(unanswered, 0, "bios were never answered");
    }
}
