//! The support that the tests of the driver share: a queue turned by hand, a disk to hold it
//! against, and a folder for sockets.

#![allow(dead_code, reason = "each test file uses its own part")]

#[path = "../../../../tests/daemon/outside.rs"]
pub mod outside;
pub mod peer;
pub mod program;

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, Prng, Status};
use weir_driver_nbd::{Nbd, Options};
use weir_queue::rig::{Answered, Rig};
use weir_queue::{Batch, Cancel, Done, Driver, DriverQueue, Tag};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE_S: i64 = 60;

/// How a request ends here that the driver hands back to be sent again; no driver answers so.
pub const HANDED_BACK: Status = Status::DevResource;

/// Does not wait for a server that is lost.
pub fn hasty() -> Options {
    Options { reconnect: Duration::ZERO, ..Options::default() }
}

/// Answers for what is handed back.
struct Once(Box<dyn DriverQueue>);

impl DriverQueue for Once {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.0.submit(batch, now);
    }

    fn commit(&mut self, now: Nanos) {
        self.0.commit(now);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.0.reap(now, done);
        let back: Vec<_> = done.drain_requeued().collect();
        for (tag, after_ns, mut lent) in back {
            assert_eq!(after_ns, 0);
            done.push_lent(tag, HANDED_BACK, &mut lent);
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.0.cancel(tag)
    }

    fn wake_at(&self) -> Option<Nanos> {
        self.0.wake_at()
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.event_fd()
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.0.outage_until()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

/// A queue of the driver, with a clock that only moves when told.
pub struct Lane {
    pub rig: Rig,
    pub now: Nanos,
    pub in_flight: usize,
    /// Cancelled, and not given back.
    pub kept: usize,
}

impl Lane {
    pub fn open(nbd: &Nbd, index: u16) -> Lane {
        let depth = nbd.queues().depth;
        Lane::of(nbd.open(index, depth).expect("a queue"), depth)
    }

    pub fn of(queue: Box<dyn DriverQueue>, depth: u16) -> Lane {
        Lane { rig: Rig::new(Box::new(Once(queue)), depth), now: Nanos(1), in_flight: 0, kept: 0 }
    }

    /// Submits all of them.
    #[track_caller]
    pub fn submit(&mut self, bios: Vec<Bio>) {
        self.in_flight += bios.len();
        if let Some((why, rest)) = self.rig.submit(bios, self.now) {
            panic!("{} requests were refused with {why:?}", rest.len());
        }
    }

    /// The answers that have come by now.
    pub fn reap(&mut self) -> Vec<Answered> {
        let answers = self.rig.reap(self.now);
        assert!(answers.len() <= self.in_flight, "more answers than requests");
        self.in_flight -= answers.len();
        let held = self.rig.queue().in_flight();
        assert!(held >= self.in_flight && held <= self.in_flight + self.kept, "{held} in flight");
        self.kept = held - self.in_flight;
        answers
    }

    /// Waits until the queue's event or its clock says that there is something to reap.
    #[track_caller]
    pub fn sleep(&mut self) {
        let queue = self.rig.queue();
        if queue.wake_at().is_some_and(|at| at <= self.now) {
            return;
        }
        let event = queue.event_fd().expect("an event descriptor");
        let patience = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&patience));
        assert_eq!(ready, Ok(1), "nothing happened in {PATIENCE_S} s");
    }

    /// Waits for some answers.
    #[track_caller]
    pub fn some(&mut self) -> Vec<Answered> {
        loop {
            let answers = self.reap();
            if !answers.is_empty() {
                return answers;
            }
            self.sleep();
        }
    }

    /// Waits for every answer, in the order they come.
    #[track_caller]
    pub fn all(&mut self) -> Vec<Answered> {
        let mut answers = Vec::new();
        while self.in_flight > 0 {
            answers.extend(self.some());
        }
        answers
    }

    /// Does one thing.
    #[track_caller]
    pub fn one(&mut self, bio: Bio) -> Answered {
        assert_eq!(self.in_flight, 0);
        self.submit(vec![bio]);
        self.all().remove(0)
    }

    /// How one thing ends.
    #[track_caller]
    pub fn status(&mut self, bio: Bio) -> Status {
        self.one(bio).status
    }

    /// Cancels what was submitted by `before`: how many the driver forgot at once, and how many it
    /// keeps.
    pub fn cancel(&mut self, before: Nanos) -> (usize, usize) {
        let answers = self.rig.cancel_all(before);
        let forgot = answers.iter().filter(|answer| **answer == Cancel::Done).count();
        self.in_flight -= answers.len();
        self.kept += answers.len() - forgot;
        (forgot, answers.len() - forgot)
    }

    /// Lets time pass until the queue wants a turn, and turns it once.
    #[track_caller]
    pub fn pass_time(&mut self) {
        let at = self.rig.queue().wake_at().expect("a time to wake at");
        self.now = self.now.max(at);
        assert!(self.reap().is_empty(), "an answer out of nowhere");
    }

    /// Turns the queue, and lets time pass when nothing happens, until `when` holds.
    #[track_caller]
    pub fn pass_until(&mut self, mut when: impl FnMut() -> bool) {
        let moment = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        while !when() {
            let queue = self.rig.queue();
            let at = queue.wake_at();
            let event = queue.event_fd().expect("an event descriptor");
            if at.is_none_or(|at| at > self.now)
                && poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&moment)) == Ok(0)
            {
                self.now = at.expect("a time to wake at");
            }
            assert!(self.reap().is_empty(), "an answer out of nowhere");
        }
    }

    /// Turns the queue until `when` holds of it, or a turn could change nothing any more.
    #[track_caller]
    pub fn step_until(&mut self, mut when: impl FnMut() -> bool) {
        while !when() {
            self.step();
        }
    }

    /// The same until the server has nothing more of what was cancelled.
    #[track_caller]
    pub fn step_until_none_is_kept(&mut self) {
        while self.kept > 0 {
            self.step();
        }
    }

    #[track_caller]
    fn step(&mut self) {
        self.sleep();
        assert!(self.reap().is_empty(), "an answer out of nowhere");
    }
}

pub fn flush() -> Bio {
    Bio::new(Op::Flush, 0, 0, Data::None)
}

pub fn read(sector: u64, sectors: u32) -> Bio {
    Bio::read(sector, Buf::filled(sectors as usize * 512, |_| {}))
}

pub fn write(sector: u64, sectors: u32, byte: u8) -> Bio {
    Bio::write(sector, Buf::filled(sectors as usize * 512, |bytes| bytes.fill(byte)))
}

/// The bytes of an answer.
pub fn bytes(data: &Data) -> Vec<u8> {
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes
}

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-nbd-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for sockets");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The disk as it should be. Bytes that were discarded may hold anything.
pub struct Model {
    bytes: Vec<u8>,
    unknown: Vec<bool>,
    /// Sectors that a request in flight covers.
    busy: Vec<bool>,
    prng: Prng,
    block: u64,
}

/// A request in flight, to be held against its answer.
#[derive(Clone, Debug)]
pub struct Sent {
    pub op: Op,
    sector: u64,
    sectors: u32,
}

/// Ops the model draws from, each as often as it stands here.
const OPS: [Op; 10] = [
    Op::Read,
    Op::Read,
    Op::Read,
    Op::Read,
    Op::Write,
    Op::Write,
    Op::Write,
    Op::WriteZeroes,
    Op::Discard,
    Op::Prefetch,
];

impl Model {
    /// A disk that reads as zeros.
    pub fn new(sectors: u64, block: u64, seed: u64) -> Model {
        let bytes = sectors as usize * 512;
        Model {
            bytes: vec![0; bytes],
            unknown: vec![false; bytes],
            busy: vec![false; sectors as usize],
            prng: Prng::new(seed),
            block,
        }
    }

    /// A random request that collides with none in flight; `None` when the draw was unlucky.
    pub fn draw(&mut self, ops: &[Op]) -> Option<(Bio, Sent)> {
        let op = ops[self.prng.below(ops.len() as u64) as usize];
        if self.prng.percent(3) {
            return Some((flush(), Sent { op: Op::Flush, sector: 0, sectors: 0 }));
        }
        let blocks = self.busy.len() as u64 / self.block;
        // Mostly small, now and then large enough to be sent and received in place.
        let most = if self.prng.percent(20) { 1024 / self.block } else { 8 };
        let count = 1 + self.prng.below(most.clamp(1, blocks));
        let first = self.prng.below(blocks - count + 1);
        let (sector, sectors) = (first * self.block, (count * self.block) as u32);
        let range = sector as usize..sector as usize + sectors as usize;
        if self.busy[range.clone()].contains(&true) {
            return None;
        }
        self.busy[range].fill(true);
        let data = match op {
            Op::Write => self.pieces(sectors, true),
            Op::Read => self.pieces(sectors, false),
            _ => Data::None,
        };
        let mut bio = Bio::new(op, sector, sectors, data);
        if op.is_write() && self.prng.percent(20) {
            bio = bio.with(Flags::FUA);
        }
        Some((bio, Sent { op, sector, sectors }))
    }

    /// Memory for so many sectors, in one piece or several, sometimes none.
    fn pieces(&mut self, sectors: u32, random: bool) -> Data {
        let len = sectors as usize * 512;
        if self.prng.percent(5) {
            return Data::Zero { len: len as u32, spare: None };
        }
        let mut buf = Buf::zeroed(len);
        if random {
            self.prng.fill(&mut buf);
        }
        let mut data = Data::One(buf);
        if self.prng.percent(25) && sectors > 1 {
            let Data::One(mut first) = data else { unreachable!("made above") };
            let second =
                first.split_off(512 * (1 + self.prng.below(u64::from(sectors) - 1)) as usize);
            data = Data::Many(vec![first, second].into());
        }
        data
    }

    /// Notes what a request that is about to be sent will do.
    pub fn sent(&mut self, bio: &Bio) {
        let range = bio.sector as usize * 512..bio.end() as usize * 512;
        match bio.op {
            Op::Write => {
                bio.data.copy_to(&mut self.bytes[range.clone()]);
                self.unknown[range].fill(false);
            }
            Op::WriteZeroes => {
                self.bytes[range.clone()].fill(0);
                self.unknown[range].fill(false);
            }
            Op::Discard => self.unknown[range].fill(true),
            _ => {}
        }
    }

    /// Holds an answer against the disk.
    #[track_caller]
    pub fn answered(&mut self, sent: &Sent, answer: &Answered) {
        assert_eq!(answer.status, Status::Ok, "{sent:?}");
        let sectors = sent.sector as usize..sent.sector as usize + sent.sectors as usize;
        self.busy[sectors].fill(false);
        if sent.op == Op::Read {
            let start = sent.sector as usize * 512;
            for (at, byte) in bytes(&answer.data).iter().enumerate() {
                let at = start + at;
                assert!(self.unknown[at] || *byte == self.bytes[at], "byte {at} of {sent:?}");
            }
        }
    }
}

/// Random reads, writes, zeroes, discards and flushes over all connections at once, with every
/// byte that is read held against the model.
#[track_caller]
pub fn exercise(nbd: &Nbd, seed: u64, count: usize) {
    println!("seed {seed}");
    let limits = nbd.limits();
    let mut lanes: Vec<Lane> = (0..nbd.queues().max).map(|index| Lane::open(nbd, index)).collect();
    let mut model = Model::new(limits.capacity, u64::from(limits.block_sectors()), seed);
    let mut sent: Vec<Option<Sent>> = Vec::new();
    let ops: Vec<Op> = OPS
        .into_iter()
        .filter(|op| match op {
            Op::Write => !limits.read_only,
            Op::WriteZeroes => limits.max_write_zeroes_sectors > 0,
            Op::Discard => limits.max_hw_discard_sectors > 0,
            _ => true,
        })
        .collect();
    let mut turn = 0;
    while sent.len() < count {
        turn += 1;
        let at = turn % lanes.len();
        let room = 32_usize.saturating_sub(lanes[at].in_flight);
        let drawn: Vec<_> = (0..room).filter_map(|_| model.draw(&ops)).collect();
        let mut burst = Vec::new();
        for (mut bio, what) in drawn {
            if !limits.fua {
                bio.flags = bio.flags.without(Flags::FUA);
            }
            model.sent(&bio);
            burst.push(bio.cookie(sent.len() as u64));
            sent.push(Some(what));
        }
        lanes[at].submit(burst);
        if lanes[at].in_flight > 0 {
            let answers = lanes[at].some();
            check(&mut model, &mut sent, answers);
        }
    }
    for lane in &mut lanes {
        let answers = lane.all();
        check(&mut model, &mut sent, answers);
    }
    assert!(sent.iter().all(Option::is_none), "every request was answered");
    if !limits.read_only {
        // The last connection would leave in doubt what it leaves unflushed.
        assert_eq!(lanes[0].status(flush()), Status::Ok);
    }
    assert_eq!(nbd.notices(), Vec::<String>::new());
}

#[track_caller]
fn check(model: &mut Model, sent: &mut [Option<Sent>], answers: Vec<Answered>) {
    for answer in answers {
        let what = sent[answer.cookie as usize].take().expect("answered once");
        model.answered(&what, &answer);
    }
}
