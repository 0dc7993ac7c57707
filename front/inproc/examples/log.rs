//! A write-ahead log of several threads with group commit: each thread appends a record and waits
//! until it is durable; one of those that wait writes what has come together, in one I/O (FUA),
//! through a hard queue of its own.
//!
//! ```text
//! cargo run --release --example log -- file:/log.img,size=64M
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Condvar, Mutex};

use weir::{Bio, Buf, Disk, Flags, InlineSession, Status};

/// Threads that append, records of each, and a record's size: a block of the log.
const THREADS: u64 = 4;
const EACH: u64 = 250;
const BYTES: usize = 4096;

/// Records of a group at most: each thread has one under way.
const GROUP: usize = THREADS as usize;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("log: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Appends with all threads, then reads the log back.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let disk = Disk::builder(target).name("log").open_lanes(THREADS as usize)?;
    let records = THREADS * EACH;
    if disk.size() < records * BYTES as u64 {
        let size = disk.size();
        return Err(format!("the log has {size} bytes, this takes {records} of {BYTES}").into());
    }
    let log = Log::new();
    let append = |thread| -> Result<(), String> {
        // A session stays on its thread, which has nothing to do while it waits for a group of its
        // own: it may sleep in the driver's call.
        let mut session = disk.session().map_err(|error| error.to_string())?;
        session.may_block();
        let appended = (0..EACH).try_for_each(|n| log.append(&mut session, thread * EACH + n));
        appended.map_err(|status| format!("a record of thread {thread}: {status}"))?;
        session.close().map_err(|error| error.to_string())
    };
    let appended: Result<Vec<()>, String> = std::thread::scope(|scope| {
        let append = &append;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    appended?;
    let groups = log.state.into_inner()?.group;
    // All that was acknowledged is there, each once, those of a thread in their order.
    let mut session = disk.session()?;
    let mut next: Vec<u64> = (0..THREADS).map(|thread| thread * EACH).collect();
    let mut block = [0; BYTES];
    for place in 0..records {
        session.read_at(place * BYTES as u64, &mut block)?;
        let record = u64::from_le_bytes(block[..8].try_into()?);
        let due = next.get_mut((record / EACH) as usize).filter(|due| **due == record);
        *due.ok_or_else(|| format!("record {record} at place {place} is not due there"))? += 1;
    }
    println!("{THREADS} threads appended {records} records in {groups} groups");
    session.close()?;
    disk.close()?;
    Ok(())
}

struct Log {
    state: Mutex<State>,
    committed: Condvar,
}

struct State {
    /// The group that records go to: its memory, its records, its number.
    filling: Buf,
    records: usize,
    group: u64,
    /// Memory of the group before.
    spare: Option<Buf>,
    /// Records before this group, which lie before it in the log.
    before: u64,
    /// Groups that are durable, and how the log failed: nothing is appended then.
    durable: u64,
    failed: Status,
    commits: bool,
}

impl Log {
    fn new() -> Log {
        let memory = || Buf::zeroed(GROUP * BYTES);
        let state = State {
            filling: memory(),
            records: 0,
            group: 0,
            spare: Some(memory()),
            before: 0,
            durable: 0,
            failed: Status::Ok,
            commits: false,
        };
        Log { state: Mutex::new(state), committed: Condvar::new() }
    }

    /// Returns when the record is durable.
    fn append(&self, session: &mut InlineSession, record: u64) -> Result<(), Status> {
        let mut state = self.state.lock().expect("no thread panics");
        let (at, mine) = (state.records * BYTES, state.group);
        state.filling[at..][..8].copy_from_slice(&record.to_le_bytes());
        state.records += 1;
        while state.durable <= mine && state.failed.is_ok() {
            if state.commits {
                state = self.committed.wait(state).expect("no thread panics");
                continue;
            }
            // Those that come now are the next group, while this one is on its way.
            let next = state.spare.take().expect("one group is under way at a time");
            let mut group = std::mem::replace(&mut state.filling, next);
            let records = std::mem::take(&mut state.records);
            let sector = state.before * (BYTES / 512) as u64;
            (state.commits, state.group, state.before) =
                (true, mine + 1, state.before + records as u64);
            drop(state);
            group.resize(records * BYTES);
            let written = commit(session, Bio::write(sector, group).with(Flags::FUA));
            state = self.state.lock().expect("no thread panics");
            state.commits = false;
            match written {
                Ok(mut group) => {
                    group.resize(GROUP * BYTES);
                    (state.spare, state.durable) = (Some(group), mine + 1);
                }
                Err(status) => state.failed = status,
            }
            self.committed.notify_all();
        }
        if state.durable > mine { Ok(()) } else { Err(state.failed) }
    }
}

/// Writes a group, and gives its memory back.
fn commit(session: &mut InlineSession, group: Bio) -> Result<Buf, Status> {
    session.submit(group);
    let mut written = Err(Status::IoErr);
    session.wait(|ended| written = ended.into_result());
    Ok(written?.into_spare().expect("the memory of a write"))
}
