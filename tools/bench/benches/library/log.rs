//! A write-ahead log with group commit: threads append records, and one of those that wait commits
//! what has come together as one durable write. Beside it the same log with `O_DIRECT` and
//! `RWF_DSYNC`.

use std::io::IoSlice;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Barrier, Condvar, Mutex};
use std::time::Instant;

use rustix::io::{ReadWriteFlags, pwritev2};
use weir::{Bio, Buf, Disk, Flags, LaneDisk, Session, Turner};

use crate::ring::Ring;
use crate::{Bed, FILE, in_turns, target};

const RECORD: usize = 4096;
const THREADS: usize = 4;

/// Records that each thread appends in a round.
const EACH: u64 = 400;

/// Groups of a writer alone, in a round, and their size.
const GROUPS: u64 = 600;
const GROUP: usize = 4 * RECORD;

/// Four threads, each waits for its record to be durable: records per second.
pub fn threads(bed: &Bed) {
    let each = bed.work(EACH);
    let by_hand = Log::new(Mutex::new(ByHand::open(&bed.file("by-hand"))));
    let disk = Disk::open(&target(&bed.file("session"))).expect("the file");
    let by_session = Log::new(Mutex::new(disk.session().expect("a way in")));
    let pending = Disk::open(&target(&bed.file("pending"))).expect("the file");
    let by_pending = Log::new(Mutex::new(pending.clone()));
    let lanes = |name, block| {
        let builder = Disk::builder(target(&bed.file(name)));
        let disk = builder.open_lanes(THREADS).expect("the file");
        Log::new(Lanes { disk, block })
    };
    let (by_lane, by_call) = (lanes("lanes", false), lanes("calls", true));
    let [hand, session, future, lane, call]: [_; 5] = in_turns(bed, |which, _| match which {
        0 => by_hand.fill(each),
        1 => by_session.fill(each),
        2 => by_pending.fill(each),
        3 => by_lane.fill(each),
        _ => by_call.fill(each),
    });
    for (way, figure) in [
        ("session handed round", &session),
        ("future", &future),
        ("a session with a hard queue for each thread", &lane),
        ("the same, which may block", &call),
    ] {
        println!(
            "log of {THREADS} threads, group commit, {way}: {figure:.0} records/s, by hand \
             {hand:.0}, ratio {:.2}; must 0.9, aim 1.0",
            figure.over(&hand)
        );
    }
    drop(by_session);
    for disk in [disk, pending] {
        disk.close().expect("it answers");
    }
    for log in [by_lane, by_call] {
        log.ways.disk.close().expect("it answers");
    }
}

/// One thread, one group at a time: groups per second.
pub fn one_writer(bed: &Bed) {
    let groups = bed.work(GROUPS);
    let mut by_hand = ByHand::open(&bed.file("writer-by-hand"));
    let open = |name| {
        let builder = Disk::builder(target(&bed.file(name)));
        builder.open_inline().expect("the file")
    };
    let mut inline = open("writer-inline");
    let mut driver = open("writer-in-driver");
    let waits = driver.wait_in_driver();
    let mut calls = open("writer-calls");
    let blocks = calls.may_block();
    let mut ring = Ring::open(&bed.file("writer-ring"), 2);
    let [hand, by_ring, session, in_driver, in_calls] = in_turns(bed, |which, _| match which {
        0 => write_groups(&mut by_hand, groups),
        1 => write_groups(&mut ring, groups),
        2 => write_groups(&mut inline, groups),
        3 => write_groups(&mut driver, groups),
        _ => write_groups(&mut calls, groups),
    });
    let told = if waits { "waits in the driver" } else { "the driver has no way to wait in" };
    let block = if blocks { "may block" } else { "the driver has no calls that block" };
    for (way, figure) in
        [("sleeps on its descriptor", &session), (told, &in_driver), (block, &in_calls)]
    {
        println!(
            "log of one writer, inline session, {way}: {figure:.0} groups/s, by hand {hand:.0}, \
             ratio {:.2}; must 0.95, aim 1.0; of io_uring by hand {:.2}",
            figure.over(&hand),
            figure.over(&by_ring)
        );
    }
    inline.close().expect("it answers");
    driver.close().expect("it answers");
    calls.close().expect("it answers");
}

fn write_groups(commit: &mut impl Commit, groups: u64) -> f64 {
    let mut buf = Buf::zeroed(GROUP);
    let began = Instant::now();
    for group in 0..groups {
        buf = commit.commit(group * GROUP as u64 % FILE, buf);
    }
    groups as f64 / began.elapsed().as_secs_f64()
}

/// Makes a group durable.
trait Commit {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf;
}

/// The way that a thread of a log commits.
trait Ways: Sync {
    fn of(&self, thread: usize) -> impl Commit;
}

impl<C: Commit + Send> Ways for Mutex<C> {
    fn of(&self, _: usize) -> impl Commit {
        self
    }
}

impl<C: Commit> Commit for &Mutex<C> {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf {
        self.lock().expect("one at a time").commit(offset, group)
    }
}

/// A disk with a hard queue for each thread: the one that commits turns its own, and no other
/// thread has a part in it.
struct Lanes {
    disk: LaneDisk,
    /// The driver may make calls that sleep.
    block: bool,
}

impl Ways for Lanes {
    fn of(&self, _: usize) -> impl Commit {
        let mut session = self.disk.session().expect("a hard queue for each");
        assert!(!self.block || session.may_block(), "the file driver has such calls");
        session
    }
}

struct ByHand(std::fs::File);

impl ByHand {
    fn open(path: &Path) -> ByHand {
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let file = std::fs::OpenOptions::new().write(true).custom_flags(direct).open(path);
        ByHand(file.expect("a file system that can go past the page cache"))
    }
}

impl Commit for ByHand {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf {
        let pieces = [IoSlice::new(&group)];
        let written = pwritev2(&self.0, &pieces, offset, ReadWriteFlags::DSYNC);
        assert_eq!(written.expect("it is written"), group.len());
        group
    }
}

impl Commit for Ring {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf {
        self.write_durably(offset, group)
    }
}

fn durable(offset: u64, group: Buf) -> Bio {
    Bio::write(offset / 512, group).with(Flags::FUA)
}

impl<T: Turner> Commit for Session<T> {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf {
        self.submit(durable(offset, group));
        let mut back = None;
        self.wait(|written| back = written.into_result().expect("it is written").into_spare());
        back.expect("the group's memory")
    }
}

impl Commit for Disk {
    fn commit(&mut self, offset: u64, group: Buf) -> Buf {
        let written = self.start(durable(offset, group)).wait();
        written.into_result().expect("it is written").into_spare().expect("the group's memory")
    }
}

/// Threads that append, of which one at a time commits.
struct Log<W> {
    ways: W,
    state: Mutex<State>,
    committed: Condvar,
}

struct State {
    /// The group that records go to, its records, and the memory of the one before.
    filling: Buf,
    records: usize,
    spare: Option<Buf>,
    number: u64,
    /// Groups that are durable.
    durable: u64,
    commits: bool,
}

impl<W: Ways> Log<W> {
    fn new(ways: W) -> Log<W> {
        let group = || Buf::zeroed(THREADS * RECORD);
        let state = State {
            filling: group(),
            records: 0,
            spare: Some(group()),
            number: 0,
            durable: 0,
            commits: false,
        };
        Log { ways, state: Mutex::new(state), committed: Condvar::new() }
    }

    /// All threads append so many records each: records per second.
    fn fill(&self, each: u64) -> f64 {
        // To open a way and to close it is no part of the time.
        let ready = Barrier::new(THREADS + 1);
        let done = Barrier::new(THREADS + 1);
        let elapsed = std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (ready, done) = (&ready, &done);
                let record = [thread as u8; RECORD];
                scope.spawn(move || {
                    let mut way = self.ways.of(thread);
                    ready.wait();
                    (0..each).for_each(|_| self.append(&mut way, &record));
                    done.wait();
                });
            }
            ready.wait();
            let began = Instant::now();
            done.wait();
            began.elapsed()
        });
        (THREADS as u64 * each) as f64 / elapsed.as_secs_f64()
    }

    /// Returns when the record is durable.
    fn append(&self, way: &mut impl Commit, record: &[u8; RECORD]) {
        let mut state = self.state.lock().expect("no thread panics");
        let (at, mine) = (state.records * RECORD, state.number);
        state.filling[at..][..RECORD].copy_from_slice(record);
        state.records += 1;
        while state.durable <= mine {
            if state.commits {
                state = self.committed.wait(state).expect("no thread panics");
                continue;
            }
            state.commits = true;
            let next = state.spare.take().expect("one group is under way at a time");
            let mut group = std::mem::replace(&mut state.filling, next);
            group.resize(std::mem::take(&mut state.records) * RECORD);
            state.number += 1;
            drop(state);
            let places = FILE / (THREADS * RECORD) as u64;
            let offset = mine % places * (THREADS * RECORD) as u64;
            let mut group = way.commit(offset, group);
            group.resize(THREADS * RECORD);
            state = self.state.lock().expect("no thread panics");
            (state.spare, state.durable, state.commits) = (Some(group), mine + 1, false);
            self.committed.notify_all();
        }
    }
}
