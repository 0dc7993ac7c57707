//! Numbered blocks: a load that knows of every block which contents it may have.
//!
//! Each write has a number of its own, and every block it covers carries that number. A block may
//! hold the last write that was acknowledged, or a later one that failed: such a write may have
//! been carried out. It may not hold an older one, whether that failed or not. Operations under way
//! never overlap, so that the order of the writes of a block is known.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::client::{Client, FLUSH, READ, WRITE};
use super::program::{A_MOMENT, Noise};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Blocks of a job. Few, so that each is written many times.
pub const JOB_BLOCKS: u64 = 512;

/// Blocks of the largest operation: 64 KiB.
const BLOCKS_MAX: u64 = 16;

/// Operations a job has under way.
const DEPTH: usize = 8;

/// One operation in so many is a flush.
const FLUSH_EVERY: u64 = 97;

/// The content of a block after write `number` of a job; all zeroes before the first.
fn stamp(job: u64, block: u64, number: u64, bytes: &mut [u8]) {
    if number == 0 {
        return bytes.fill(0);
    }
    let place = (job << 32) | block;
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => number,
            1 => place,
            index => (number ^ place.rotate_left(40)).wrapping_mul(2 * index as u64 + 1),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// One block's past.
#[derive(Clone, Default)]
struct History {
    acknowledged: u64,
    failed: Vec<u64>,
    busy: bool,
}

/// An operation under way, and what it covers.
struct Flying {
    command: u16,
    first: u64,
    count: u64,
    number: u64,
    sent: Instant,
}

/// Counts of the answers a job has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub acknowledged: u64,
    pub failed_writes: u64,
    pub failed_reads: u64,
    pub failed_flushes: u64,
    pub flushes: u64,
    pub longest: Duration,
}

/// The job's past: what each of its blocks may hold.
pub struct Past {
    job: u64,
    blocks: Vec<History>,
    pub seen: Seen,
}

impl Past {
    pub fn new(job: u64) -> Past {
        let blocks = vec![History::default(); JOB_BLOCKS as usize];
        Past { job, blocks, seen: Seen::default() }
    }

    /// Where a block of the job stands on the disk, bytes.
    fn offset(&self, block: u64) -> u64 {
        (self.job * JOB_BLOCKS + block) * BLOCK
    }

    fn covered(&mut self, first: u64, count: u64) -> &mut [History] {
        &mut self.blocks[first as usize..(first + count) as usize]
    }

    /// Whether nothing is under way for these blocks.
    fn is_free(&mut self, (first, count): (u64, u64)) -> bool {
        !self.covered(first, count).iter().any(|block| block.busy)
    }

    /// Holds bytes that were read from `first` on against what may be there.
    #[track_caller]
    fn check(&self, first: u64, bytes: &[u8]) {
        let mut expected = [0; BLOCK as usize];
        for (block, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            stamp(self.job, block, number, &mut expected);
            let History { acknowledged, failed, .. } = &self.blocks[block as usize];
            let place = format!("job {}, block {block}", self.job);
            let words = bytes.chunks_exact(8).zip(expected.chunks_exact(8));
            let wrong = words.filter(|(found, expected)| found != expected).count();
            assert!(wrong == 0, "{place}: {wrong} words are not those of write {number}");
            assert!(
                number == *acknowledged || failed.contains(&number),
                "{place} holds write {number}; the last acknowledged is {acknowledged}, later \
                 ones that failed are {failed:?}"
            );
        }
    }

    /// Where a block stands that was written, and a content that it may not have any more.
    pub fn stale(&self) -> Option<(u64, Vec<u8>)> {
        let block = self.blocks.iter().position(|block| block.acknowledged > 1)? as u64;
        let mut older = vec![0; BLOCK as usize];
        stamp(self.job, block, self.blocks[block as usize].acknowledged - 1, &mut older);
        Some((self.offset(block), older))
    }

    /// Reads all blocks of the job.
    #[track_caller]
    pub fn verify(&self, client: &mut Client) {
        for first in (0..JOB_BLOCKS).step_by(BLOCKS_MAX as usize) {
            let read = client.read(self.offset(first), (BLOCKS_MAX * BLOCK) as u32);
            let bytes = read.expect("an answer").unwrap_or_else(|error| {
                panic!("job {}, block {first}: the read ended with {error}", self.job)
            });
            self.check(first, &bytes);
        }
    }
}

/// The state that the jobs of a load share with the test.
#[derive(Default)]
pub struct Progress {
    counts: Mutex<Counts>,
    grown: Condvar,
    over: AtomicBool,
}

#[derive(Default)]
struct Counts {
    acknowledged: Vec<u64>,
    broken: bool,
}

impl Progress {
    pub fn new(jobs: u64) -> Progress {
        let progress = Progress::default();
        progress.counts.lock().expect("counts").acknowledged = vec![0; jobs as usize];
        progress
    }

    /// Waits until each job has had so many further writes acknowledged.
    #[track_caller]
    pub fn wait_for(&self, further: u64, limit: Duration) {
        let counts = self.counts.lock().expect("counts");
        let aims: Vec<u64> = counts.acknowledged.iter().map(|count| count + further).collect();
        let pending = |counts: &mut Counts| {
            !counts.broken && counts.acknowledged.iter().zip(&aims).any(|(count, aim)| count < aim)
        };
        let waited = self.grown.wait_timeout_while(counts, limit, pending);
        let (counts, timeout) = waited.expect("counts");
        assert!(!counts.broken, "a job of the load has failed");
        let (now, late) = (&counts.acknowledged, timeout.timed_out());
        assert!(!late, "after {limit:?} the jobs are at {now:?}, the aims are {aims:?}");
    }

    /// Has the jobs send nothing further.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Ends the load with the value, also when the thread that has it panics.
pub struct EndsLoad<'a>(pub &'a Progress);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Ok(mut counts) = self.0.counts.lock() {
                counts.broken = true;
            }
            self.0.grown.notify_all();
        }
        self.0.end();
    }
}

/// A job: one connection, [`DEPTH`] operations at random places of its region.
pub struct Job<'a> {
    past: Past,
    client: Client,
    noise: Noise,
    number: u64,
    flying: BTreeMap<u64, Flying>,
    /// Where writes failed: they are made again with new content, as programs do. The older write
    /// may still be on its way then.
    again: Vec<(u64, u64)>,
    progress: &'a Progress,
}

impl<'a> Job<'a> {
    /// A job whose operations may each take `limit`.
    #[track_caller]
    pub fn new(job: u64, socket: &Path, limit: Duration, progress: &'a Progress) -> Job<'a> {
        println!("job {job}: seed {job}");
        let client = Client::connect(socket, "sda");
        client.stream.set_read_timeout(Some(limit)).expect("a limit");
        client.stream.set_write_timeout(Some(limit)).expect("a limit");
        let (past, noise) = (Past::new(job), Noise::new(job));
        let (flying, again) = (BTreeMap::new(), Vec::new());
        Job { past, client, noise, number: 0, flying, again, progress }
    }

    /// Goes on until the load is ended; what its blocks may hold.
    pub fn run(mut self) -> Past {
        let _ends = EndsLoad(self.progress);
        loop {
            let over = self.progress.over.load(Ordering::Relaxed);
            if over && self.flying.is_empty() {
                return self.past;
            }
            if !over && self.flying.len() < DEPTH {
                self.send().expect("a daemon that takes requests");
            } else {
                self.take().unwrap_or_else(|error| {
                    let job = self.past.job;
                    panic!("job {job}: no reply with {} under way: {error}", self.flying.len())
                });
            }
        }
    }

    /// Sends the next operation.
    fn send(&mut self) -> io::Result<()> {
        let sent = Instant::now();
        let kind = self.noise.below(FLUSH_EVERY);
        if kind == 0 {
            let cookie = self.client.send(0, FLUSH, 0, 0, &[])?;
            let flush = Flying { command: FLUSH, first: 0, count: 0, number: 0, sent };
            self.flying.insert(cookie, flush);
            return Ok(());
        }
        let again = self.again.pop_if(|place| self.past.is_free(*place));
        let (first, count) = again.unwrap_or_else(|| self.free_place());
        self.past.covered(first, count).iter_mut().for_each(|block| block.busy = true);
        let (offset, length) = (self.past.offset(first), (count * BLOCK) as u32);
        let command = if again.is_none() && kind.is_multiple_of(4) { READ } else { WRITE };
        let mut payload = Vec::new();
        if command == WRITE {
            self.number += 1;
            payload.resize(length as usize, 0);
            for (block, bytes) in (first..).zip(payload.chunks_mut(BLOCK as usize)) {
                stamp(self.past.job, block, self.number, bytes);
            }
        }
        let cookie = self.client.send(0, command, offset, length, &payload)?;
        self.flying.insert(cookie, Flying { command, first, count, number: self.number, sent });
        Ok(())
    }

    /// Blocks with nothing under way. There are some: at most a quarter is busy.
    fn free_place(&mut self) -> (u64, u64) {
        loop {
            let count = 1 + self.noise.below(BLOCKS_MAX);
            let first = self.noise.below(JOB_BLOCKS - count + 1);
            if self.past.is_free((first, count)) {
                return (first, count);
            }
        }
    }

    /// Takes a reply.
    fn take(&mut self) -> io::Result<()> {
        let (cookie, error) = self.client.reply()?;
        let done = self.flying.remove(&cookie).expect("the cookie of an operation under way");
        let blocks = self.past.covered(done.first, done.count);
        blocks.iter_mut().for_each(|block| block.busy = false);
        match (done.command, error) {
            (WRITE, 0) => {
                for block in blocks {
                    block.acknowledged = done.number;
                    block.failed.clear();
                }
            }
            (WRITE, _) => {
                blocks.iter_mut().for_each(|block| block.failed.push(done.number));
                self.again.push((done.first, done.count));
            }
            (READ, 0) => {
                let mut bytes = vec![0; (done.count * BLOCK) as usize];
                self.client.stream.read_exact(&mut bytes)?;
                self.past.check(done.first, &bytes);
            }
            _ => {}
        }
        self.note(done.command, error, done.sent.elapsed());
        if error != 0 {
            // A disk that fails everything at once would be asked without a pause.
            std::thread::sleep(A_MOMENT);
        }
        Ok(())
    }

    /// Counts how an operation ended.
    fn note(&mut self, command: u16, error: u32, took: Duration) {
        let seen = &mut self.past.seen;
        seen.longest = seen.longest.max(took);
        match (command, error) {
            (WRITE, 0) => {
                seen.acknowledged += 1;
                let mut counts = self.progress.counts.lock().expect("counts");
                counts.acknowledged[self.past.job as usize] = seen.acknowledged;
                self.progress.grown.notify_all();
            }
            (FLUSH, 0) => seen.flushes += 1,
            (_, 0) => {}
            (WRITE, _) => seen.failed_writes += 1,
            (READ, _) => seen.failed_reads += 1,
            _ => seen.failed_flushes += 1,
        }
    }
}
