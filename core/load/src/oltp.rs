//! Transactions as SLOB makes them: sessions that read data blocks one after the other, change
//! some, and commit through a redo log; dirty blocks are written behind their backs.
//!
//! One [`Instance`] is a database of its own: its sessions, its log writer, its database writer,
//! its part of the data and of the redo log. Write-ahead: a data block is written when the redo of
//! its change is durable, and redo is overwritten when the blocks of its changes are.
//!
//! Data and redo each lie on a disk, or on parts of one. A commit is acknowledged when it is
//! durable: a log write is when it ends, and a checkpoint is one when the disk of the data was
//! flushed for it.
//!
//! Sizes: 8 KiB blocks, 25 % updates and light redo as in Dell's report on Oracle over scsi-mq;
//! 8 blocks an execution and the hot set are choices of this preset.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_bio::{Flags, IoPrio, Nanos, Op, Prng, SECTOR};

use crate::ask::{Ask, Event, Io, Workload};
use crate::job::{JobError, Range};
use crate::place::{Distribution, Places, Zone};

pub mod audit;
pub mod format;

use format::{BLOCK_BYTES, CHANGES, LogBlock, RECORDS, REDO_BYTES, Record};

/// Bytes of data, and of redo, that an instance takes at least.
pub const DATA_LEAST: u64 = 64 * BLOCK_BYTES;
/// See [`DATA_LEAST`].
pub const REDO_LEAST: u64 = 2 * LOG_WRITE_MAX as u64 * REDO_BYTES;

/// The groups of figures: data reads, data writes, redo writes.
pub const GROUPS: [&str; 3] = ["data read", "data write", "redo write"];

/// Writes the database writer keeps under way.
const WRITES_MAX: usize = 32;
/// Dirty blocks beyond which sessions wait for the database writer.
const DIRTY_MAX: usize = 4096;
/// Redo blocks of one log write.
const LOG_WRITE_MAX: usize = 32;

/// The settings of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Sessions, each with one statement at a time.
    pub sessions: u16,
    /// Statements in 100 that change what they read, and commit.
    pub update_percent: u8,
    /// Accesses in 100 that go to the hot set, and its share of the blocks.
    pub hot: Zone,
    /// Which run of the preset this is: it tells its redo from that of others.
    pub run: u64,
    /// Which instance of it.
    pub instance: u16,
    /// Seed of everything random.
    pub seed: u64,
    /// Its data, of the bytes of their disk, which is number 0 of [`Io::disk`].
    pub data: Range,
    /// Its redo, of the bytes of its disk, which is number 1.
    pub redo: Range,
}

/// A database at work.
#[derive(Debug)]
pub struct Instance {
    profile: Profile,
    prng: Prng,
    places: Places,
    sessions: Vec<Session>,
    /// Sessions that may go on.
    ready: VecDeque<u16>,
    log: Log,
    dirty: Dirty,
    events: Vec<Event>,
    stopped: bool,
}

#[derive(Clone, Debug)]
struct Session {
    blocks: [u64; CHANGES],
    /// Blocks of the statement it has read.
    read: usize,
    update: bool,
    began: Nanos,
}

#[derive(Debug, Default)]
struct Log {
    /// Sessions whose change is not in the log yet, and since when.
    pending: VecDeque<(u16, Nanos)>,
    /// The log write under way, if any.
    writing: Vec<(u16, Nanos)>,
    /// The identifier of the next transaction, and number of the next redo block.
    next_id: u64,
    next_block: u64,
    /// All transactions below this have their data on the medium.
    checkpoint: u64,
    /// Last identifier of each redo block that may not be overwritten yet, oldest first.
    kept: VecDeque<u64>,
}

/// Data blocks that are not on the medium as they should be.
#[derive(Debug, Default)]
struct Dirty {
    /// By block: the oldest change that is not on the medium, and the newest.
    changes: BTreeMap<u64, (u64, u64)>,
    /// The same by age.
    order: BTreeSet<(u64, u64)>,
    /// Being written: block, oldest change, newest; by token.
    writing: Vec<Option<(u64, u64, u64)>>,
    busy: BTreeSet<u64>,
    /// The checkpoint that a flush under way is for.
    flushing: Option<u64>,
}

/// Sessions of an instance.
const SESSIONS_MAX: u16 = 4000;

/// The disk of the data, and that of the redo.
const DATA_DISK: u8 = 0;
const REDO_DISK: u8 = 1;

/// Tokens: sessions from 0, then the writes of the database writer, then these.
const LOG_TOKEN: u16 = u16::MAX;
const FLUSH_TOKEN: u16 = u16::MAX - 1;
const WRITE_TOKEN: u16 = 0x8000;

impl Instance {
    /// An instance that has done nothing yet.
    ///
    /// # Errors
    /// Too many sessions for its disks, shares above 100, data or redo that are too small or
    /// unaligned.
    pub fn new(profile: Profile) -> Result<Instance, JobError> {
        let error = |text: String| Err(JobError(text));
        let Profile { sessions, update_percent, data, redo, .. } = profile;
        if !(1..=SESSIONS_MAX).contains(&sessions) {
            return error(format!(
                "sessions={sessions} of an instance is outside 1..={SESSIONS_MAX}: --users times \
                 --threads are the sessions of all instances"
            ));
        }
        if update_percent > 100 {
            return error(format!("update={update_percent} is outside 0..=100"));
        }
        for (what, range, block, least) in
            [("data", data, BLOCK_BYTES, DATA_LEAST), ("redo", redo, REDO_BYTES, REDO_LEAST)]
        {
            if range.bytes < least || !range.offset.is_multiple_of(block) {
                return error(format!(
                    "{what} of {} bytes from byte {}: at least {least} bytes on a multiple of \
                     {block}",
                    range.bytes, range.offset
                ));
            }
        }
        let hot = profile.hot;
        let cold = Zone { access: 100 - hot.access.min(100), size: 100 - hot.size.min(100) };
        let places = Places::new(&Distribution::Zoned(vec![hot, cold]), data.bytes / BLOCK_BYTES);
        let idle = Session { blocks: [0; CHANGES], read: 0, update: false, began: Nanos::ZERO };
        Ok(Instance {
            prng: Prng::new(profile.seed),
            places,
            sessions: vec![idle; usize::from(sessions)],
            ready: (0..sessions).collect(),
            log: Log { next_id: 1, checkpoint: 1, ..Log::default() },
            dirty: Dirty { writing: vec![None; WRITES_MAX], ..Dirty::default() },
            events: Vec::new(),
            stopped: false,
            profile,
        })
    }

    /// The contexts it issues from: each session, the database writer and the log writer.
    #[must_use]
    pub fn contexts(&self) -> u16 {
        self.log_writer() + 1
    }

    /// The disk a context issues to, as [`Io::disk`] has it.
    #[must_use]
    pub fn disk_of(&self, context: u16) -> u8 {
        if context == self.log_writer() { REDO_DISK } else { DATA_DISK }
    }

    fn database_writer(&self) -> u16 {
        self.profile.sessions
    }

    fn log_writer(&self) -> u16 {
        self.profile.sessions + 1
    }

    fn redo_blocks(&self) -> u64 {
        self.profile.redo.bytes / REDO_BYTES
    }

    fn log_write(&mut self) -> Option<Io> {
        let (redo_blocks, context) = (self.redo_blocks(), self.log_writer());
        let redo = self.profile.redo;
        let log = &mut self.log;
        if log.pending.is_empty() || !log.writing.is_empty() {
            return None;
        }
        while log.kept.front().is_some_and(|last| *last < log.checkpoint) {
            log.kept.pop_front();
        }
        // Up to the end of the log, where it starts over, and only what may be overwritten.
        let at = log.next_block % redo_blocks;
        let byte = redo.offset + at * REDO_BYTES;
        let room = (redo_blocks - log.kept.len() as u64).min(redo_blocks - at);
        let room = room.min(LOG_WRITE_MAX as u64) as usize;
        let count = log.pending.len().min(room * RECORDS);
        if count == 0 {
            return None;
        }
        log.writing.extend(log.pending.drain(..count));
        let blocks = count.div_ceil(RECORDS) as u64;
        for block in 0..blocks {
            let last = log.next_id - 1 + ((block as usize + 1) * RECORDS).min(count) as u64;
            log.kept.push_back(last);
        }
        Some(Io {
            op: Op::Write,
            sector: byte / SECTOR,
            sectors: (blocks * REDO_BYTES / SECTOR) as u32,
            // Durable when it ends: a commit waits for that.
            flags: Flags::SYNC | Flags::FUA,
            ioprio: IoPrio::NONE,
            disk: REDO_DISK,
            context,
            group: 2,
            token: LOG_TOKEN,
        })
    }

    /// The flush of a checkpoint, once half of the log waits for one.
    fn checkpoint(&mut self) -> Option<Ask> {
        if self.dirty.flushing.is_some() {
            return None;
        }
        self.dirty.flushing = self.checkpoint_to_be();
        self.dirty.flushing?;
        let context = self.database_writer();
        Some(Ask::Flush { disk: DATA_DISK, context, token: FLUSH_TOKEN })
    }

    fn checkpoint_to_be(&self) -> Option<u64> {
        if (self.log.kept.len() as u64) * 2 < self.redo_blocks() {
            return None;
        }
        // Redo in a log write under way is not durable, so it is not among the dirty either.
        let oldest = self.dirty.oldest().unwrap_or(self.log.next_id).min(self.log.next_id);
        (oldest > self.log.checkpoint).then_some(oldest)
    }

    fn has_flushed(&mut self) {
        self.log.checkpoint = self.dirty.flushing.take().expect("a flush under way");
    }

    fn data_write(&mut self) -> Option<Io> {
        let slot = self.dirty.writing.iter().position(Option::is_none)?;
        let dirty = &mut self.dirty;
        let (oldest, block) = *dirty.order.iter().find(|(_, block)| !dirty.busy.contains(block))?;
        dirty.order.remove(&(oldest, block));
        let (_, newest) = dirty.changes.remove(&block).expect("what is in order is dirty");
        dirty.busy.insert(block);
        dirty.writing[slot] = Some((block, oldest, newest));
        let token = WRITE_TOKEN + slot as u16;
        let io = self.data_io(Op::Write, block, (self.database_writer(), token));
        Some(Io { flags: Flags::BACKGROUND, group: 1, ..io })
    }

    fn data_io(&self, op: Op, block: u64, (context, token): (u16, u16)) -> Io {
        Io {
            op,
            sector: (self.profile.data.offset + block * BLOCK_BYTES) / SECTOR,
            sectors: (BLOCK_BYTES / SECTOR) as u32,
            flags: Flags::NONE,
            ioprio: IoPrio::NONE,
            disk: DATA_DISK,
            context,
            group: 0,
            token,
        }
    }

    fn session_read(&mut self, now: Nanos) -> Option<Io> {
        if self.dirty.changes.len() >= DIRTY_MAX {
            return None;
        }
        let index = self.ready.pop_front()?;
        let session = &mut self.sessions[usize::from(index)];
        if session.read == 0 {
            session.began = now;
            session.update = self.prng.percent(u32::from(self.profile.update_percent));
        }
        let block = self.places.draw(&mut self.prng);
        session.blocks[session.read] = block;
        Some(self.data_io(Op::Read, block, (index, index)))
    }

    fn session_has_read(&mut self, index: u16, now: Nanos) {
        let session = &mut self.sessions[usize::from(index)];
        session.read += 1;
        if session.read < CHANGES {
            self.ready.push_back(index);
            return;
        }
        session.read = 0;
        if session.update {
            self.log.pending.push_back((index, now));
            return;
        }
        self.events.push(Event::Execution { ns: now.since(session.began) });
        self.ready.push_back(index);
    }

    fn log_has_written(&mut self, now: Nanos) {
        let written = std::mem::take(&mut self.log.writing);
        self.log.next_block += written.len().div_ceil(RECORDS) as u64;
        for (index, since) in &written {
            let id = self.log.next_id;
            self.log.next_id += 1;
            let session = &self.sessions[usize::from(*index)];
            session.blocks.iter().for_each(|block| self.dirty.change(*block, id));
            let instance = self.profile.instance;
            let (blocks, ns) = (session.blocks, now.since(*since));
            self.events.push(Event::Commit { instance, id, blocks, ns });
            self.events.push(Event::Execution { ns: now.since(session.began) });
            self.ready.push_back(*index);
        }
    }

    fn fill_redo(&self, bytes: &mut [u8]) {
        let Log { writing, next_id, next_block, checkpoint, .. } = &self.log;
        let groups = writing.chunks(RECORDS).zip(bytes.chunks_mut(REDO_BYTES as usize));
        for (index, (group, block)) in groups.enumerate() {
            let first = next_id + (index * RECORDS) as u64;
            let records = group.iter().zip(first..).map(|((session, _), id)| Record {
                id,
                blocks: self.sessions[usize::from(*session)].blocks,
            });
            let log_block = LogBlock {
                run: self.profile.run,
                instance: self.profile.instance,
                number: next_block + index as u64,
                checkpoint: *checkpoint,
                records: records.collect(),
            };
            log_block.encode(block);
        }
    }
}

impl Dirty {
    fn change(&mut self, block: u64, id: u64) {
        let (oldest, newest) = self.changes.entry(block).or_insert((id, id));
        *newest = id;
        self.order.insert((*oldest, block));
    }

    /// The oldest change that is not on its way to the medium or beyond.
    fn oldest(&self) -> Option<u64> {
        let waiting = self.order.first().map(|(oldest, _)| *oldest);
        let writing = self.writing.iter().flatten().map(|(_, oldest, _)| *oldest).min();
        waiting.into_iter().chain(writing).min()
    }

    fn has_written(&mut self, slot: usize) {
        let (block, ..) = self.writing[slot].take().expect("a write under way");
        self.busy.remove(&block);
    }
}

impl Workload for Instance {
    fn ask(&mut self, now: Nanos) -> Ask {
        if self.stopped {
            return Ask::Done;
        }
        if let Some(io) = self.log_write() {
            return Ask::Io(io);
        }
        if let Some(flush) = self.checkpoint() {
            return flush;
        }
        let io = self.data_write().or_else(|| self.session_read(now));
        io.map_or(Ask::Blocked, Ask::Io)
    }

    fn ended(&mut self, token: u16, ok: bool, now: Nanos) {
        if !ok {
            // A commit that is not durable is not acknowledged, and the commits behind it would not
            // be durable either.
            self.stopped = true;
            return;
        }
        match token {
            LOG_TOKEN => self.log_has_written(now),
            FLUSH_TOKEN => self.has_flushed(),
            token if token >= WRITE_TOKEN => {
                self.dirty.has_written(usize::from(token - WRITE_TOKEN));
            }
            session => self.session_has_read(session, now),
        }
    }

    fn fill(&mut self, io: &Io, bytes: &mut [u8]) {
        if io.token == LOG_TOKEN {
            return self.fill_redo(bytes);
        }
        let slot = usize::from(io.token - WRITE_TOKEN);
        let (block, _, newest) = self.dirty.writing[slot].expect("a write under way");
        format::encode_data(self.profile.run, self.profile.instance, block, newest, bytes);
    }

    fn fills(&self) -> bool {
        true
    }

    fn events(&mut self, each: &mut dyn FnMut(Event)) {
        self.events.drain(..).for_each(each);
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

#[cfg(test)]
mod tests {
    use super::audit::Audit;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn profile(redo_bytes: u64) -> Profile {
        Profile {
            sessions: 16,
            update_percent: 25,
            hot: Zone { access: 80, size: 20 },
            run: 7,
            instance: 0,
            seed: 3,
            data: Range { offset: 0, bytes: 16 * MIB },
            redo: Range { offset: 16 * MIB, bytes: redo_bytes },
        }
    }

    /// Disks with caches that a crash empties, and commits as they were acknowledged.
    struct Bed {
        instance: Instance,
        prng: Prng,
        /// Of both disks: the bytes of data end where those of redo begin.
        durable: Vec<u8>,
        /// Written and not flushed: disk, its byte, bytes.
        cache: Vec<(u8, usize, Vec<u8>)>,
        /// The disk that makes nothing durable when it is asked to.
        loses: Option<u8>,
        /// The redo blocks by which every write to the log misses its place.
        misses: u64,
        going: Vec<(Ask, Vec<u8>)>,
        acknowledged: BTreeMap<u64, [u64; CHANGES]>,
        statements: u64,
        /// Whether data is written and flushed only where nothing else is left to end.
        slow_data: bool,
        /// The same of redo.
        slow_log: bool,
    }

    impl Bed {
        fn new(redo_bytes: u64, seed: u64) -> Bed {
            Bed::of(profile(redo_bytes), seed)
        }

        fn of(profile: Profile, seed: u64) -> Bed {
            Bed {
                durable: vec![0; (profile.redo.offset + profile.redo.bytes) as usize],
                instance: Instance::new(profile).unwrap(),
                prng: Prng::new(seed),
                cache: Vec::new(),
                loses: None,
                misses: 0,
                going: Vec::new(),
                acknowledged: BTreeMap::new(),
                statements: 0,
                slow_data: false,
                slow_log: false,
            }
        }

        /// One of those under way, which is to end now.
        fn choose(&mut self) -> usize {
            let is_slow = |ask: &Ask| match ask {
                Ask::Io(io) => [false, self.slow_data, self.slow_log][usize::from(io.group)],
                _ => self.slow_data,
            };
            let fast = |(_, (ask, _)): &(usize, &(Ask, Vec<u8>))| !is_slow(ask);
            let fast: Vec<usize> =
                self.going.iter().enumerate().filter(fast).map(|(index, _)| index).collect();
            match fast.len() as u64 {
                0 => self.prng.below(self.going.len() as u64) as usize,
                count => fast[self.prng.below(count) as usize],
            }
        }

        /// The bytes by which a write misses its place, unless it would leave the log.
        fn missed(&self, io: &Io) -> usize {
            let Range { offset, bytes } = self.instance.profile.redo;
            let missed = (self.misses * REDO_BYTES) as usize;
            let end = place(io) + missed + (u64::from(io.sectors) * SECTOR) as usize;
            if io.group == 2 && end as u64 <= offset + bytes { missed } else { 0 }
        }

        fn put(&mut self, at: usize, bytes: &[u8]) {
            self.durable[at..at + bytes.len()].copy_from_slice(bytes);
        }

        /// One pass: everything that can be begun, and one end.
        fn turn(&mut self, now: Nanos) {
            loop {
                let ask = self.instance.ask(now);
                let mut bytes = Vec::new();
                let (disk, context) = match &ask {
                    Ask::Io(Io { disk, context, .. }) | Ask::Flush { disk, context, .. } => {
                        (*disk, *context)
                    }
                    Ask::Wait(_) | Ask::Blocked | Ask::Done => break,
                };
                assert!(context < self.instance.contexts(), "{ask:?}");
                assert_eq!(self.instance.disk_of(context), disk, "{ask:?}");
                match &ask {
                    Ask::Io(io) if io.op == Op::Write => {
                        bytes = vec![0; io.sectors as usize * SECTOR as usize];
                        self.instance.fill(io, &mut bytes);
                    }
                    _ => (),
                }
                self.going.push((ask, bytes));
            }
            let chosen = self.choose();
            let (ask, bytes) = self.going.swap_remove(chosen);
            let token = match ask {
                Ask::Io(io) => {
                    let at = place(&io) + self.missed(&io);
                    if io.flags.has(Flags::FUA) && self.loses != Some(io.disk) {
                        self.put(at, &bytes);
                    } else if io.op == Op::Write {
                        self.cache.push((io.disk, at, bytes));
                    }
                    io.token
                }
                Ask::Flush { disk, token, .. } => {
                    let flushes = |of: u8| of == disk && self.loses != Some(of);
                    let cache = std::mem::take(&mut self.cache);
                    let (flushed, kept) = cache.into_iter().partition(|(of, ..)| flushes(*of));
                    self.cache = kept;
                    let flushed: Vec<(u8, usize, Vec<u8>)> = flushed;
                    flushed.iter().for_each(|(_, at, bytes)| self.put(*at, bytes));
                    token
                }
                Ask::Wait(_) | Ask::Blocked | Ask::Done => unreachable!("not under way"),
            };
            self.instance.ended(token, true, now);
            let Bed { instance, acknowledged, statements, .. } = self;
            instance.events(&mut |event| match event {
                Event::Commit { id, blocks, .. } => {
                    assert_eq!(acknowledged.insert(id, blocks), None, "{id} twice");
                }
                Event::Execution { .. } => *statements += 1,
            });
        }

        /// Crashes: any part of the cache survives, and any blocks of a log write under way.
        fn crash(&mut self) {
            for (_, at, bytes) in std::mem::take(&mut self.cache) {
                if self.prng.percent(50) {
                    self.put(at, &bytes);
                }
            }
            for (ask, bytes) in std::mem::take(&mut self.going) {
                let Ask::Io(io) = ask else { continue };
                let at = place(&io);
                for (index, sector) in bytes.chunks(SECTOR as usize).enumerate() {
                    if io.op == Op::Write && self.prng.percent(50) {
                        self.put(at + index * SECTOR as usize, sector);
                    }
                }
            }
        }

        fn audit(&self) -> Result<audit::Found, String> {
            let mut audit = Audit::new(7, 0, self.instance.redo_blocks());
            audit.take_redo(0, &self.durable[self.instance.profile.redo.offset as usize..]);
            for wanted in audit.wanted(&self.acknowledged) {
                let at = (wanted.block * BLOCK_BYTES) as usize;
                audit.take_data(wanted, &self.durable[at..at + BLOCK_BYTES as usize])?;
            }
            audit.verdict(&self.acknowledged)
        }
    }

    /// The byte where an I/O begins.
    fn place(io: &Io) -> usize {
        (io.sector * SECTOR) as usize
    }

    #[test]
    fn every_acknowledged_commit_survives_a_crash_at_any_moment() {
        for seed in 0..20 {
            // A log that starts over some times, and one that never does.
            for redo_bytes in [MIB / 2, 8 * MIB] {
                let mut bed = Bed::new(redo_bytes, seed);
                let turns = 2000 + bed.prng.below(20_000);
                (0..turns).for_each(|now| bed.turn(Nanos(now)));
                bed.crash();
                let found = bed.audit().unwrap_or_else(|why| panic!("{why} (seed {seed})"));
                assert_eq!(found.in_log + found.checkpointed, bed.acknowledged.len() as u64);
                assert!(!bed.acknowledged.is_empty(), "nothing was committed (seed {seed})");
            }
        }
    }

    #[test]
    fn a_disk_that_loses_what_it_was_to_make_durable_is_found_out() {
        // That of the data, whose blocks are looked for once their redo may be overwritten, and
        // that of the redo.
        for disk in [DATA_DISK, REDO_DISK] {
            let mut bed = Bed { loses: Some(disk), ..Bed::new(MIB / 2, 9) };
            let mut now = 0..;
            while bed.instance.log.next_block < 4 * bed.instance.redo_blocks() {
                bed.turn(Nanos(now.next().expect("there is always a next")));
            }
            bed.crash();
            assert!(bed.audit().is_err(), "nobody saw what disk {disk} lost");
        }
    }

    #[test]
    fn a_checkpoint_is_none_before_the_data_was_flushed() {
        let mut bed = Bed::new(MIB / 2, 4);
        let (mut before, mut checkpoints, mut flushing) = (1, 0, 0);
        let mut now = 0..;
        while checkpoints < 5 {
            bed.turn(Nanos(now.next().expect("there is always a next")));
            if bed.going.iter().any(|(ask, _)| matches!(ask, Ask::Flush { .. })) {
                flushing += 1;
                assert_eq!(bed.instance.log.checkpoint, before, "before the flush has ended");
            } else {
                checkpoints += u32::from(bed.instance.log.checkpoint > before);
                before = bed.instance.log.checkpoint;
            }
        }
        assert!(flushing > checkpoints, "no flush took a turn");
    }

    #[test]
    fn commits_of_many_sessions_share_log_writes_of_many_blocks() {
        let many = Profile { sessions: 200, update_percent: 100, ..profile(MIB / 2) };
        let mut bed = Bed { slow_log: true, ..Bed::of(many, 3) };
        let (mut longest, mut now) = (0, 0..);
        while bed.instance.log.next_block < 200 {
            bed.turn(Nanos(now.next().expect("there is always a next")));
            for (ask, _) in &bed.going {
                let Ask::Io(io) = ask else { continue };
                longest = longest.max(if io.group == 2 { io.sectors } else { 0 });
            }
        }
        assert!(u64::from(longest) * SECTOR > 8 * REDO_BYTES, "{longest} sectors at most");
    }

    #[test]
    fn a_log_that_is_full_waits_for_data_that_is_slow() {
        for seed in 0..10 {
            let mut bed = Bed { slow_data: true, ..Bed::new(MIB / 2, seed) };
            let turns = 20_000 + bed.prng.below(2000);
            let mut fullest = 0;
            for now in 0..turns {
                bed.turn(Nanos(now));
                fullest = fullest.max(bed.instance.log.kept.len() as u64);
            }
            let blocks = bed.instance.redo_blocks();
            assert!(bed.instance.log.next_block > 2 * blocks, "it never started over");
            assert_eq!(fullest, blocks, "it was never full (seed {seed})");
            bed.crash();
            let found = bed.audit().unwrap_or_else(|why| panic!("{why} (seed {seed})"));
            assert_eq!(found.in_log + found.checkpointed, bed.acknowledged.len() as u64);
        }
    }

    #[test]
    fn a_log_that_loses_a_block_is_found_out() {
        let mut bed = Bed::new(8 * MIB, 1);
        (0..20_000).for_each(|now| bed.turn(Nanos(now)));
        bed.durable[16 * MIB as usize + 100] ^= 1;
        let why = bed.audit().unwrap_err();
        assert!(why.contains("are lost, the first is 1"), "{why}");
    }

    #[test]
    fn a_log_that_is_written_beside_its_place_is_found_out() {
        // It never starts over, so that every block is there, one place on.
        for misses in [0, 1, 7] {
            let mut bed = Bed { misses, ..Bed::new(8 * MIB, 1) };
            (0..20_000).for_each(|now| bed.turn(Nanos(now)));
            assert!(bed.instance.log.next_block < bed.instance.redo_blocks());
            match bed.audit() {
                Ok(_) => assert_eq!(misses, 0, "nobody saw it"),
                Err(why) => assert!(misses > 0 && why.contains("are lost"), "{why}"),
            }
        }
    }

    #[test]
    fn a_data_block_whose_redo_was_overwritten_is_looked_at_all_the_same() {
        let mut bed = Bed::new(MIB / 2, 13);
        let rounds = |bed: &Bed| bed.instance.log.next_block / bed.instance.redo_blocks();
        let mut now = 0..;
        while rounds(&bed) < 4 {
            bed.turn(Nanos(now.next().expect("there is always a next")));
        }
        assert!(bed.audit().is_ok());
        let mut audit = Audit::new(7, 0, bed.instance.redo_blocks());
        audit.take_redo(0, &bed.durable[16 * MIB as usize..]);
        let in_log = |id: u64| audit.found(id).is_some();
        // The newest change of each block in a commit that was acknowledged.
        let mut newest = BTreeMap::new();
        for (id, blocks) in &bed.acknowledged {
            newest.extend(blocks.map(|block| (block, *id)));
        }
        let overwritten = |(block, id): (&u64, &u64)| {
            let unchanged = bed.instance.dirty.changes.contains_key(block);
            (!in_log(*id) && *id < audit.checkpoint() && !unchanged).then_some((*block, *id))
        };
        let lost: Vec<_> = newest.iter().filter_map(overwritten).step_by(7).collect();
        assert!(lost.len() > 20, "{} blocks", lost.len());
        for (block, id) in lost {
            let at = (block * BLOCK_BYTES) as usize;
            let range = at..at + BLOCK_BYTES as usize;
            let kept = bed.durable[range.clone()].to_vec();
            // An older change, as where a write was told to be durable and was not; then nothing.
            format::encode_data(7, 0, block, id - 1, &mut bed.durable[range.clone()]);
            let why = bed.audit().expect_err("a lost change");
            assert!(why.contains(&format!("data block {block} holds change {}", id - 1)), "{why}");
            bed.durable[range.clone()].fill(0);
            assert!(bed.audit().is_err_and(|why| why.contains("never written")));
            bed.durable[range].copy_from_slice(&kept);
        }
    }

    #[test]
    fn redo_that_tells_of_another_change_than_was_acknowledged_is_found_out() {
        let mut bed = Bed::new(8 * MIB, 1);
        (0..20_000).for_each(|now| bed.turn(Nanos(now)));
        let blocks = bed.acknowledged.get_mut(&1).expect("the first commit");
        blocks[3] += 1;
        let why = bed.audit().expect_err("another change");
        assert!(why.contains("commit 1"), "{why}");
    }

    /// Loses one block of the log after the other; how many of these losses were found out.
    fn losses_found(bed: &mut Bed) -> (u64, u64) {
        let (mut lost, mut found) = (0, 0);
        for slot in (0..bed.instance.redo_blocks()).step_by(3) {
            let at = (16 * MIB + slot * REDO_BYTES) as usize;
            let range = at..at + REDO_BYTES as usize;
            let Some(block) = LogBlock::decode(&bed.durable[range.clone()]) else { continue };
            assert!(!block.records.is_empty());
            let kept = bed.durable[range.clone()].to_vec();
            bed.durable[range.clone()].fill(0);
            lost += 1;
            found += u64::from(bed.audit().is_err());
            bed.durable[range].copy_from_slice(&kept);
        }
        (lost, found)
    }

    #[test]
    fn a_redo_block_below_the_checkpoint_that_was_not_overwritten_is_missed() {
        // Until the log has a checkpoint, in its first round and in its third.
        for round in [0, 2] {
            let mut bed = Bed::new(MIB / 2, 11);
            let blocks = bed.instance.redo_blocks();
            let mut now = 0..;
            while bed.instance.log.next_block < round * blocks + blocks * 9 / 10 {
                bed.turn(Nanos(now.next().expect("there is always a next")));
            }
            assert!(bed.instance.log.checkpoint > 8);
            assert!(bed.audit().is_ok());
            let (lost, found) = losses_found(&mut bed);
            // Blocks that a write under way could have torn are not held against the disk.
            let torn = if round == 0 { 0 } else { blocks.div_ceil(10) / 3 + 1 };
            assert!(lost > blocks / 4 && found + torn >= lost, "{found} of {lost}");
        }
    }

    #[test]
    fn a_quarter_of_the_statements_commit_and_some_share_a_log_write() {
        let mut bed = Bed::new(8 * MIB, 5);
        (0..200_000).for_each(|now| bed.turn(Nanos(now)));
        let (commits, statements) = (bed.acknowledged.len() as f64, bed.statements as f64);
        // Five standard deviations of a binomial.
        let bound = 5.0 * (statements * 0.25 * 0.75).sqrt();
        assert!((commits - statements * 0.25).abs() < bound, "{commits} of {statements}");
        let blocks = bed.instance.log.next_block as f64;
        assert!(commits > blocks, "{commits} commits in {blocks} redo blocks: none shared one");
    }

    #[test]
    fn an_instance_without_room_is_refused() {
        let small = |data, redo| {
            let ranges = [data, redo].map(|bytes| Range { offset: 0, bytes });
            let profile = Profile { data: ranges[0], redo: ranges[1], ..profile(MIB) };
            Instance::new(profile).unwrap_err().0
        };
        assert!(small(8192, MIB).contains("data of 8192 bytes"));
        assert!(small(MIB, 4096).contains("redo of 4096 bytes"));
        let many = Profile { sessions: 4001, ..profile(MIB) };
        let why = Instance::new(many).unwrap_err().0;
        assert!(
            why.starts_with("sessions=4001 of an instance is outside 1..=4000: --users"),
            "{why}"
        );
    }
}
