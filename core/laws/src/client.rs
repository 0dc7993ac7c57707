//! A client: sends random I/O through one submitter, and holds every answer against the model.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_bio::{
    Bio, Buf, Class, Data, Flags, GroupId, IoPrio, Limits, Nanos, Op, Prng, Segments, Status,
};
use weir_queue::{CAPS_AGAIN_NS, Completion, Home, Refused, Submitter};

use super::log::Log;
use super::model::Model;
use super::sleepers::App;
use super::{filled, value, values};

/// The state that all clients of a run share.
pub struct Office {
    /// What the disk may hold.
    pub model: Model,
    /// The limits by which bios are well-formed.
    pub limits: Limits,
    /// The source of choices.
    pub prng: Prng,
    /// Well-formed I/O has to succeed.
    pub kind: bool,
    /// The errors that a bio may end with.
    pub errors: Vec<Status>,
    /// The time a request has, ns; 0: any.
    pub timeout_ns: u64,
    /// Submitters of the round-robin spread end a bio at its first failed part.
    pub last_cookie: u64,
    /// Bios that have ended.
    pub completions: u64,
    /// Of these, with an error.
    pub failures: u64,
    /// Sectors of bios that succeeded, by op.
    pub moved: BTreeMap<Op, u64>,
    /// Bios that never went anywhere: malformed, or unwilling to wait.
    pub unsent: u64,
    /// Flushes without data that ended well.
    pub pure_flushes: u64,
    /// Written values, and how often each may have arrived.
    pub written: Vec<(u64, bool)>,
    /// Some submitter was dropped with I/O under way.
    pub orphans: u64,
    /// Where the last bio ended.
    pub next_sector: u64,
    /// Where bios lie.
    pub plot: Plot,
    /// How much later than it should an answer may come, ns: a real home does not always run.
    pub slack_ns: u64,
    /// How long a bio may wait in front of a driver that answers nothing, ns; 0: for ever.
    pub wait_max_ns: u64,
    /// When the device answered last.
    pub answered_at: Option<Box<dyn Fn() -> Nanos + Send>>,
    /// Bios may be merged.
    pub merges: bool,
    /// The device hands requests back: the time of one began when it was issued first.
    pub hands_back: bool,
    /// Groups that bios are of, which have priorities then; empty: they have neither.
    pub groups: Vec<GroupId>,
}

/// The stripes of a disk that are this office's to use: every so many of them, so that the
/// neighbours of its sectors belong to others.
pub struct Plot {
    /// Sectors, whole blocks.
    pub stripe: u64,
    /// Which of the stripes in turn, from 0.
    pub owner: u64,
    /// How many take turns.
    pub owners: u64,
}

impl Plot {
    /// All of a disk.
    pub fn whole(capacity: u64) -> Plot {
        Plot { stripe: capacity, owner: 0, owners: 1 }
    }

    /// The start of a stripe.
    fn any(&self, capacity: u64, prng: &mut Prng) -> u64 {
        let stripes = capacity / self.stripe / self.owners;
        let stripe = if stripes > 1 { prng.below(stripes) } else { 0 };
        (stripe * self.owners + self.owner) * self.stripe
    }

    /// Whether a range lies in one of the stripes.
    fn holds(&self, sector: u64, sectors: u64) -> bool {
        let stripe = sector / self.stripe;
        stripe % self.owners == self.owner && sector + sectors <= (stripe + 1) * self.stripe
    }
}

/// The client's note of a bio under way.
struct Note {
    op: Op,
    flags: Flags,
    sector: u64,
    sectors: u32,
    submitted: u64,
    accepted_at: Nanos,
    writes: bool,
    expected: Option<Status>,
}

/// A client of one submitter.
pub struct Client {
    /// Its submitter, unless it has let go of it.
    pub submitter: Option<Submitter>,
    office: Rc<RefCell<Office>>,
    notes: BTreeMap<u64, Note>,
    held: Option<Bio>,
    /// Bios still to be sent.
    pub left: u32,
    window: usize,
    /// Until the bell bit is set: refused, or of its own choice with I/O under way.
    waits: bool,
    /// Until then a cap holds its bio back.
    capped_until: Option<Nanos>,
    /// Lets go of its submitter when so many are left.
    quits_at: Option<u32>,
    /// Where it tells what happens.
    pub log: Log,
}

impl Client {
    /// Sends `left` bios, at most `window` at a time; `quits_at` so many left it drops its
    /// submitter.
    pub fn new(
        submitter: Submitter,
        office: Rc<RefCell<Office>>,
        left: u32,
        window: usize,
        quits_at: Option<u32>,
    ) -> Client {
        let (submitter, notes, held) = (Some(submitter), BTreeMap::new(), None);
        let (waits, capped_until, log) = (false, None, Log::default());
        Client { submitter, office, notes, held, left, window, waits, capped_until, quits_at, log }
    }

    /// Whether everything it sent has ended and nothing is left to send.
    pub fn is_done(&self) -> bool {
        self.submitter.is_none() || self.left == 0 && self.notes.is_empty() && self.held.is_none()
    }

    /// Bios made up and bios ended: grows with everything that happens here.
    pub fn moves(&self) -> u64 {
        let office = self.office.borrow();
        office.last_cookie + office.completions
    }

    /// Its state in one line.
    pub fn describe(&self) -> String {
        format!(
            "{} to send, {} under way, refused: {}, waits: {}",
            self.left,
            self.notes.len(),
            self.held.is_some(),
            self.waits
        )
    }

    fn complete(&mut self, now: Nanos) {
        let Some(submitter) = &mut self.submitter else { return };
        let mut ended = Vec::new();
        let take = |completion| ended.push(completion);
        let count = submitter.complete_telling(now, take, self.log.ear());
        assert_eq!(count, ended.len());
        self.judge(ended);
    }

    fn judge(&mut self, ended: Vec<Completion>) {
        for completion in ended {
            let cookie = completion.cookie;
            let note = self.notes.remove(&cookie).expect("a bio ends once, and only if sent");
            self.office.borrow_mut().judge(cookie, &note, &completion);
        }
        let inside = self.submitter.as_ref().unwrap().in_flight() as usize;
        assert!(inside <= self.inside(), "{inside} bios inside of {}", self.inside());
    }

    fn inside(&self) -> usize {
        self.notes.len()
    }

    fn submit_one(&mut self, now: Nanos) -> bool {
        let bio = match self.held.take() {
            Some(bio) => bio,
            None => {
                self.left -= 1;
                self.office.borrow_mut().invent()
            }
        };
        let mut office = self.office.borrow_mut();
        let expected = office.expected(&bio);
        let writes = expected.is_none() && bio.sectors > 0 && bio.op.is_write();
        let submitted = match writes {
            true => {
                let zero = bio.op != Op::Write;
                let cookie = bio.cookie;
                let value = |at| if zero { 0 } else { value(cookie, at) };
                office.model.submit(bio.sector, bio.sectors, value)
            }
            false => office.model.tick(),
        };
        let (op, flags, sector, sectors) = (bio.op, bio.flags, bio.sector, bio.sectors);
        let cookie = bio.cookie;
        let accepted_at = now;
        let note = Note { op, flags, sector, sectors, submitted, accepted_at, writes, expected };
        drop(office);
        let submitter = self.submitter.as_mut().unwrap();
        match submitter.submit_telling(bio, now, self.log.ear()) {
            Ok(()) => {
                self.notes.insert(cookie, note);
                true
            }
            Err(refused) => {
                if writes {
                    self.office.borrow_mut().model.withdraw(sector, sectors, submitted);
                }
                assert!(!flags.has(Flags::NOWAIT), "who will not wait is answered: {refused:?}");
                let full = matches!(refused, Refused::Full(_));
                self.waits = true;
                if let Refused::Capped { until, .. } = refused {
                    assert!(until > now, "a cap that allows it holds it back");
                    self.capped_until = Some(until.min(now + CAPS_AGAIN_NS));
                    self.waits = false;
                }
                let bio = refused.into_bio();
                assert_eq!((bio.cookie, bio.sector, bio.flags), (cookie, sector, flags));
                assert_eq!((bio.sectors, bio.op), (sectors, op), "full: {full}");
                self.held = Some(bio);
                false
            }
        }
    }
}

impl App for Client {
    fn round(&mut self, home: &mut Home, now: Nanos) {
        if self.submitter.is_none() {
            return;
        }
        if self.is_eager() {
            self.submit_one(now);
        }
        let (submitter, mut ended) = (self.submitter.as_mut().unwrap(), Vec::new());
        let count = home.pass(submitter, now, || now, |completion| ended.push(completion));
        assert_eq!(count, ended.len());
        // As one that was told: what it waits for may have ended here.
        self.waits &= ended.is_empty();
        self.judge(ended);
    }

    fn run(&mut self, now: Nanos, told: bool) -> bool {
        self.waits &= !told;
        self.capped_until = self.capped_until.filter(|until| *until > now);
        let chance = self.office.borrow_mut().prng.below(100);
        if told || chance < 10 {
            self.complete(now);
        }
        if self.submitter.is_none() {
            return false;
        }
        let burst = 1 + self.office.borrow_mut().prng.below(12);
        let mut sent = 0;
        while sent < burst && self.is_eager() && self.submit_one(now) {
            sent += 1;
        }
        self.submitter.as_mut().unwrap().flush_plug_telling(now, self.log.ear());
        if self.quits_at.is_some_and(|at| self.left <= at) {
            let mut office = self.office.borrow_mut();
            office.orphans += self.notes.len() as u64;
            drop(office);
            self.submitter = None;
            return true;
        }
        // Now and then it waits although it could send more.
        if !self.notes.is_empty() && self.office.borrow_mut().prng.percent(30) {
            self.waits = true;
        }
        sent > 0
    }

    fn is_eager(&self) -> bool {
        let more = self.left > 0 || self.held.is_some();
        let waits = self.waits || self.capped_until.is_some();
        self.submitter.is_some() && !waits && more && self.inside() < self.window
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.capped_until
    }
}

impl Office {
    /// An office of bios for a device of these limits, where all of them succeed.
    pub fn new(limits: Limits, seed: u64) -> Office {
        Office {
            model: Model::new(limits.capacity),
            prng: Prng::new(seed),
            kind: true,
            errors: Vec::new(),
            timeout_ns: 0,
            last_cookie: 0,
            completions: 0,
            failures: 0,
            moved: BTreeMap::new(),
            unsent: 0,
            pure_flushes: 0,
            written: Vec::new(),
            orphans: 0,
            next_sector: 0,
            plot: Plot::whole(limits.capacity),
            slack_ns: 0,
            wait_max_ns: 0,
            answered_at: None,
            merges: true,
            hands_back: false,
            groups: Vec::new(),
            limits,
        }
    }

    /// A bio like any other, or one that is not well-formed.
    fn invent(&mut self) -> Bio {
        self.last_cookie += 1;
        let cookie = self.last_cookie;
        let block = u64::from(self.limits.block_sectors());
        let blocks = self.plot.stripe / block;
        let stripe = self.plot.any(self.limits.capacity, &mut self.prng) / block;
        let mut length = match self.prng.below(10) {
            0..6 => 1 + self.prng.below(8),
            6..9 => 1 + self.prng.below(32),
            _ => 1 + self.prng.below(100),
        };
        length = length.min(blocks);
        let mut start = stripe + self.prng.below(blocks - length + 1);
        let next = self.next_sector;
        if self.prng.percent(50) && self.plot.holds(next, length * block) {
            start = next / block;
        }
        let (sector, sectors) = (start * block, (length * block) as u32);
        self.next_sector = sector + u64::from(sectors);
        let op = match self.prng.below(100) {
            0..35 => Op::Read,
            35..80 => Op::Write,
            80..85 => Op::Discard,
            85..88 => Op::SecureErase,
            88..93 => Op::WriteZeroes,
            93..95 => Op::Prefetch,
            _ => return self.invent_flush(cookie),
        };
        let data = if op.has_data() { self.memory(cookie, sector, sectors) } else { Data::None };
        let mut bio = Bio::new(op, sector, sectors, data).cookie(cookie);
        self.dress(&mut bio);
        let flushish = matches!(op, Op::Write | Op::Discard | Op::WriteZeroes);
        for (flag, percent) in
            [(Flags::PREFLUSH, 6), (Flags::FUA, 8), (Flags::SYNC, 50), (Flags::NOWAIT, 5)]
        {
            let allowed = flushish || !flag.is_flushish();
            if allowed && self.prng.percent(percent) {
                bio.flags |= flag;
            }
        }
        if self.prng.percent(3) { self.spoil(bio) } else { bio }
    }

    /// A group and a priority, where there are groups.
    fn dress(&mut self, bio: &mut Bio) {
        if self.groups.is_empty() {
            return;
        }
        bio.group = self.groups[self.prng.below(self.groups.len() as u64) as usize];
        let classes = [Class::BestEffort, Class::BestEffort, Class::RealTime, Class::Idle];
        if self.prng.percent(50) {
            let class = classes[self.prng.below(4) as usize];
            bio.ioprio = IoPrio::new(class, self.prng.below(8) as u8);
        }
    }

    fn invent_flush(&mut self, cookie: u64) -> Bio {
        let flush = Bio::flush().cookie(cookie);
        if self.prng.percent(10) { flush.with(Flags::NOWAIT) } else { flush }
    }

    fn memory(&mut self, cookie: u64, sector: u64, sectors: u32) -> Data {
        let block = self.limits.block_sectors();
        let mut pieces = vec![sectors];
        while pieces.len() < 6 && self.prng.percent(25) {
            let last = pieces.pop().unwrap();
            let cut = self.prng.below(u64::from(last / block)) as u32 * block;
            if cut == 0 {
                pieces.push(last);
                break;
            }
            pieces.extend([cut, last - cut]);
        }
        let data = filled(cookie, sector, &pieces);
        if !cookie.is_multiple_of(3) {
            return data;
        }
        let lengths = data.segments().map(|piece| piece.len as usize).collect::<Vec<_>>();
        let buf = Buf::filled(data.len(), |bytes| data.copy_to(bytes));
        Segments::of_buf(buf, lengths).into()
    }

    fn spoil(&mut self, bio: Bio) -> Bio {
        let capacity = self.limits.capacity;
        match self.prng.below(7) {
            0 => Bio { sectors: 0, data: Data::None, flags: Flags::NONE, ..bio },
            1 => Bio { sector: capacity - u64::from(bio.sectors) / 2, ..bio },
            2 => Bio { sector: u64::MAX - 3, ..bio },
            3 => Bio { op: Op::Flush, ..bio },
            4 => Bio { op: Op::DrvOut, ..bio },
            5 if bio.op.has_data() => Bio { data: Data::None, ..bio },
            _ if self.limits.block_sectors() > 1 => {
                Bio { op: Op::Prefetch, sector: 1, sectors: 3, data: Data::None, ..bio }
            }
            _ => Bio { op: Op::Read, flags: Flags::FUA, ..bio },
        }
    }

    /// How a bio that is not well-formed has to end (docs/behaviour/block-layer.md, section 1).
    fn expected(&self, bio: &Bio) -> Option<Status> {
        let limits = &self.limits;
        let pure_flush = bio.op == Op::Write && bio.flags.has(Flags::PREFLUSH);
        if bio.sectors == 0 && !pure_flush {
            return Some(Status::Inval);
        }
        if bio.end() > limits.capacity {
            return Some(Status::IoErr);
        }
        let block = u64::from(limits.block_sectors());
        if !bio.sector.is_multiple_of(block) || !u64::from(bio.sectors).is_multiple_of(block) {
            return Some(Status::IoErr);
        }
        let unsupported = match bio.op {
            Op::Flush | Op::DrvIn | Op::DrvOut => true,
            Op::Discard => limits.max_discard_sectors() == 0,
            Op::SecureErase => limits.max_secure_erase_sectors == 0,
            Op::WriteZeroes => limits.max_write_zeroes_sectors == 0,
            Op::Read | Op::Write if bio.data.len() as u64 != u64::from(bio.sectors) * 512 => {
                return Some(Status::Inval);
            }
            _ => false,
        };
        if unsupported {
            return Some(Status::NotSupp);
        }
        let flushish = matches!(bio.op, Op::Write | Op::Discard | Op::WriteZeroes);
        (bio.flags.is_flushish() && !flushish).then_some(Status::IoErr)
    }

    fn judge(&mut self, cookie: u64, note: &Note, ended: &Completion) {
        let status = ended.status;
        self.completions += 1;
        self.failures += u64::from(!status.is_ok());
        assert_eq!((ended.op, ended.sectors), (note.op, note.sectors), "bio {cookie}");
        let nowait = note.flags.has(Flags::NOWAIT);
        if let Some(expected) = note.expected {
            assert!(status == expected || nowait && status == Status::Again, "{status} {cookie}");
            self.unsent += 1;
            return;
        }
        self.judge_time(note, ended);
        // After a timeout the device may keep the memory: of all, or of some part.
        let whole = status.is_ok() || self.timeout_ns == 0 || self.kind;
        let reads_back = whole && note.op.has_data();
        if reads_back {
            assert_eq!(ended.data.len(), note.sectors as usize * 512, "memory of bio {cookie}");
        }
        if note.op == Op::Write {
            let sectors = note.sector..note.sector + u64::from(note.sectors);
            let sent: Vec<u64> = sectors.map(|at| value(cookie, at)).collect();
            if reads_back {
                assert_eq!(values(&ended.data), sent, "a write gets back its own memory");
            }
            self.written.extend(sent.into_iter().map(|value| (value, status.is_ok())));
        }
        if note.writes {
            self.model.complete(note.sector, note.sectors, note.submitted, status.is_ok());
        }
        if status == Status::Again && nowait {
            self.unsent += 1;
            return;
        }
        if !status.is_ok() {
            let known = self.errors.contains(&status) || status == Status::Timeout;
            assert!(!self.kind && known, "bio {cookie} {:?} ended {status:?}", note.op);
            return;
        }
        if note.flags.has(Flags::PREFLUSH) || note.op == Op::Flush {
            self.model.flush(note.submitted);
        }
        if note.writes && note.flags.has(Flags::FUA) {
            self.model.make_durable(note.sector, note.sectors, note.submitted);
        }
        *self.moved.entry(note.op).or_default() += u64::from(note.sectors);
        self.pure_flushes += u64::from(note.sectors == 0);
        if note.op == Op::Read {
            for (at, value) in (note.sector..).zip(values(&ended.data)) {
                assert!(
                    self.model.may_read(at, value, note.submitted),
                    "bio {cookie}: sector {at} held what bio {} wrote there",
                    value >> 24
                );
            }
        }
    }

    /// Nothing outlives its time by more than a scan, and nothing is given up before.
    fn judge_time(&self, note: &Note, ended: &Completion) {
        if self.timeout_ns == 0 || note.flags.is_flushish() {
            return;
        }
        let most = self.timeout_ns + 1_000_000_000 + self.slack_ns;
        assert!(ended.device_ns <= most, "{} ns with the device", ended.device_ns);
        if self.wait_max_ns > 0 && ended.status == Status::Timeout && ended.device_ns == 0 {
            // A device that goes on answering, however slowly, is waited for.
            let answered = self.answered_at.as_ref().map_or(Nanos::ZERO, |answered| answered());
            let end = note.accepted_at + ended.wait_ns;
            let waited = ended.wait_ns.min(end.since(answered));
            assert!(
                waited <= self.wait_max_ns + self.slack_ns,
                "{waited} ns in front of a silent device"
            );
        }
        // One that was merged into an older one ends with that.
        if ended.status == Status::Timeout && !self.merges {
            let time = match self.hands_back {
                true => ended.device_ns + ended.wait_ns,
                false => ended.device_ns.max(ended.wait_ns),
            };
            assert!(time >= self.timeout_ns, "given up after {time} ns");
        }
    }
}
