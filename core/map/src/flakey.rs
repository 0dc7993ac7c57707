//! Flakey: a disk that is up and down in turn, and fails, forgets or falsifies I/O while it is down
//! (docs/behaviour/mapped.md, section 4.2).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::{Buf, Data, Flags, Limits, Nanos, Op, Prng, Rq, Status, WriteCache};
use weir_queue::{
    Backing, Batch, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, Extent,
    MapControl, OpenedBacking, Queues, Request, Tag, TargetKind, Wake,
};

use crate::fault::over_one;
use crate::mapped::Mapped;
use crate::over::{alike_over_disks, failed, not_open, of_multipath};
use crate::table::{Row, number};

/// A line of a table whose type is `flakey`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FlakeyLine {
    sectors: u64,
    name: String,
    offset: u64,
    up_s: u32,
    down_s: u32,
    features: Features,
}

/// What happens while the disk is down. Without any feature all I/O fails.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Features {
    drop_writes: bool,
    error_writes: bool,
    error_reads: bool,
    corrupt: Option<CorruptByte>,
    /// Of so many bios in [`MILLIARD`] a byte is another one.
    random_read_corrupt: u32,
    random_write_corrupt: u32,
}

/// `corrupt_bio_byte`: a byte of each bio has this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CorruptByte {
    /// Which, from 1.
    number: u32,
    /// Of writes, or of reads.
    writes: bool,
    value: u8,
    /// Of those only whose flags say metadata.
    only_meta: bool,
}

/// The unit of probabilities.
const MILLIARD: u32 = 1_000_000_000;

/// Most words of features: each of them once.
const WORDS_MAX: u64 = 11;

/// The flag of metadata in the documentation of dm-flakey.
const META: u64 = 32;

/// Reads a line of type `flakey`: `DISK OFFSET UP DOWN [#WORDS [FEATURE]...]`.
///
/// # Errors
/// The value that is wrong, and its bound.
pub(crate) fn parse(row: &Row, kind: &'static TargetKind) -> Result<Box<dyn Backing>, String> {
    let mut words = row.arguments.split_whitespace();
    let name = String::from(words.next().ok_or("a device is missing")?);
    let offset = number("offset", words.next(), 0, u64::MAX)?;
    let up_s = number("up interval", words.next(), 0, u32::MAX.into())? as u32;
    let down_s = number("down interval", words.next(), 0, u32::MAX.into())? as u32;
    match up_s.checked_add(down_s) {
        None => return Err(format!("up {up_s} and down {down_s} are more than {} s", u32::MAX)),
        Some(0) => return Err(String::from("up and down are both 0 s")),
        Some(_) => {}
    }
    let features = match words.next() {
        None => Features::default(),
        Some(count) => {
            let count = number("#words", Some(count), 0, WORDS_MAX)?;
            let rest: Vec<&str> = words.collect();
            if rest.len() as u64 != count {
                return Err(format!("#words={count}, and {} follow", rest.len()));
            }
            Features::parse(&rest)?
        }
    };
    let line = FlakeyLine { sectors: row.sectors, name, offset, up_s, down_s, features };
    Ok(Box::new(FlakeyTarget { line, kind }))
}

impl Features {
    fn parse(words: &[&str]) -> Result<Features, String> {
        let mut words = words.iter().copied();
        let (mut features, mut stated) = (Features::default(), Vec::new());
        while let Some(name) = words.next() {
            if stated.contains(&name) {
                return Err(format!("{name} is stated twice"));
            }
            stated.push(name);
            match name {
                "drop_writes" => features.drop_writes = true,
                "error_writes" => features.error_writes = true,
                "error_reads" => features.error_reads = true,
                "corrupt_bio_byte" => features.corrupt = Some(CorruptByte::parse(&mut words)?),
                "random_read_corrupt" => features.random_read_corrupt = share(name, &mut words)?,
                "random_write_corrupt" => features.random_write_corrupt = share(name, &mut words)?,
                _ => {
                    return Err(format!(
                        "unknown flakey feature {name:?}; known are drop_writes, error_writes, \
                         error_reads, corrupt_bio_byte, random_read_corrupt, random_write_corrupt"
                    ));
                }
            }
        }
        features.check()?;
        Ok(features)
    }

    fn check(&self) -> Result<(), String> {
        let corrupts_writes =
            self.corrupt.is_some_and(|corrupt| corrupt.writes) || self.random_write_corrupt > 0;
        match (self.drop_writes, self.error_writes, corrupts_writes) {
            (true, true, _) => Err(String::from("drop_writes excludes error_writes")),
            (true, _, true) => Err(String::from("drop_writes excludes that writes are corrupted")),
            _ => Ok(()),
        }
    }
}

fn share<'a>(name: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<u32, String> {
    Ok(number(name, words.next(), 0, MILLIARD.into())? as u32)
}

impl CorruptByte {
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<CorruptByte, String> {
        let name = "byte of corrupt_bio_byte";
        let number_of_byte = number(name, words.next(), 1, u32::MAX.into())? as u32;
        let writes = match words.next() {
            Some("r") => false,
            Some("w") => true,
            other => {
                let word = other.unwrap_or("nothing");
                return Err(format!("direction of corrupt_bio_byte: {word} is neither r nor w"));
            }
        };
        let value = number("value of corrupt_bio_byte", words.next(), 0, 255)? as u8;
        let flags = number("flags of corrupt_bio_byte", words.next(), 0, u64::MAX)?;
        if flags != 0 && flags != META {
            return Err(format!(
                "flags of corrupt_bio_byte={flags} is neither 0 nor {META}, which is metadata"
            ));
        }
        Ok(CorruptByte { number: number_of_byte, writes, value, only_meta: flags == META })
    }
}

impl fmt::Display for Features {
    /// As a table has them: how many words, and the words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let flags = [
            ("drop_writes", self.drop_writes),
            ("error_writes", self.error_writes),
            ("error_reads", self.error_reads),
        ];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| (*name).into()));
        if let Some(CorruptByte { number, writes, value, only_meta }) = self.corrupt {
            let flags = if only_meta { META } else { 0 };
            let direction = if writes { 'w' } else { 'r' };
            words.push(format!("corrupt_bio_byte {number} {direction} {value} {flags}"));
        }
        for (name, share) in [
            ("random_read_corrupt", self.random_read_corrupt),
            ("random_write_corrupt", self.random_write_corrupt),
        ] {
            words.extend((share > 0).then(|| format!("{name} {share}")));
        }
        let words = words.join(" ");
        write!(f, "{}", words.split_whitespace().count())?;
        if words.is_empty() { Ok(()) } else { write!(f, " {words}") }
    }
}

#[derive(Clone, Debug)]
struct FlakeyTarget {
    line: FlakeyLine,
    kind: &'static TargetKind,
}

impl Backing for FlakeyTarget {
    fn kind(&self) -> &'static TargetKind {
        self.kind
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        Err(of_multipath(option, value))
    }

    fn legs(&self) -> Vec<String> {
        vec![self.line.name.clone()]
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Err(not_open(std::slice::from_ref(&self.line.name)))
    }

    fn open_over(&self, _config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let mapped = over_one(&legs[0], self.line.offset, self.line.sectors).map_err(failed)?;
        let (speaker, notices) = (Some(mapped.speaker()), Vec::new());
        let (line, begun) = (Arc::new(self.line.clone()), Arc::new(AtomicU64::new(NOT_YET)));
        let map: Option<Arc<dyn MapControl>> = Some(Arc::new(FlakeyControl(Arc::clone(&line))));
        Ok(OpenedBacking {
            driver: Arc::new(Flakey { mapped, line, begun }),
            notices,
            speaker,
            map,
        })
    }

    alike_over_disks!();
}

struct FlakeyControl(Arc<FlakeyLine>);

impl MapControl for FlakeyControl {
    fn table(&self) -> String {
        let FlakeyLine { sectors, name, offset, up_s, down_s, features } = &*self.0;
        format!("0 {sectors} flakey {name} {offset} {up_s} {down_s} {features}\n")
    }

    fn status(&self) -> String {
        format!("0 {} flakey\n", self.0.sectors)
    }

    fn message(&self, text: &str, _now: Nanos) -> Result<(), String> {
        Err(format!("message {text:?}: a flakey line takes no messages"))
    }
}

/// The driver: that of a range of its leg, with faults in front of its queues.
struct Flakey {
    mapped: Mapped,
    line: Arc<FlakeyLine>,
    begun: Arc<AtomicU64>,
}

/// In place of the time at which the first interval began.
const NOT_YET: u64 = u64::MAX;

/// What the seeds of the random features begin with, as dm states none: a run can be repeated.
const SEED: u64 = 0x0066_6c61_6b65_7921;

impl Driver for Flakey {
    fn is_bio_based(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        self.mapped.limits()
    }

    fn write_cache(&self) -> WriteCache {
        self.mapped.write_cache()
    }

    fn queues(&self) -> Queues {
        self.mapped.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(FlakeyQueue {
            inner: self.mapped.open(index, depth)?,
            line: Arc::clone(&self.line),
            begun: Arc::clone(&self.begun),
            prng: Prng::new(SEED ^ u64::from(index)),
            ended: Vec::new(),
            below: Done::default(),
            marks: (0..depth).map(|_| Mark::Plain).collect(),
            lane: None,
        }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.mapped.allocation(sector, sectors)
    }
}

/// What is to be done when a request that went down has ended.
enum Mark {
    Plain,
    /// A read that is falsified: this byte, and so many bios in [`MILLIARD`].
    Falsify(Option<CorruptByte>, u32),
    /// A write that went down falsified: its own memory.
    Original(Vec<Data>),
}

struct FlakeyQueue {
    inner: Box<dyn DriverQueue>,
    line: Arc<FlakeyLine>,
    begun: Arc<AtomicU64>,
    prng: Prng,
    /// What was not sent: answered at the next reap.
    ended: Vec<(Tag, Status)>,
    below: Done,
    /// By tag, of the requests that went down.
    marks: Vec<Mark>,
    lane: Option<Arc<dyn Wake>>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    Ends(Status),
    Falsified,
}

impl FlakeyQueue {
    /// Whether the disk is down at a time. The first interval begins with the first turn of a lane
    /// of the device.
    fn is_down(&self, now: Nanos) -> bool {
        let FlakeyLine { up_s, down_s, .. } = *self.line;
        let ns = |seconds: u32| u64::from(seconds) * 1_000_000_000;
        let begun = match self.begun.load(Ordering::Relaxed) {
            NOT_YET => self.begin(now),
            begun => begun,
        };
        now.0.saturating_sub(begun) % (ns(up_s) + ns(down_s)) >= ns(up_s)
    }

    #[cold]
    fn begin(&self, now: Nanos) -> u64 {
        let ours = (now.0, Ordering::Relaxed);
        self.begun.compare_exchange(NOT_YET, ours.0, ours.1, ours.1).err().unwrap_or(now.0)
    }

    fn fate(&self, rq: &Rq) -> Fate {
        let Features { drop_writes, error_writes, error_reads, .. } = self.line.features;
        let fails = Fate::Ends(Status::IoErr);
        let is_write = rq.op.is_write() || rq.op == Op::Flush;
        match is_write {
            _ if self.line.features == Features::default() => fails,
            true if drop_writes => Fate::Ends(Status::Ok),
            true if error_writes => fails,
            false if error_reads => fails,
            _ if rq.op.has_data() && self.falsifies(rq) => Fate::Falsified,
            _ => Fate::Passes,
        }
    }

    fn falsifies(&self, rq: &Rq) -> bool {
        self.byte_of(rq).is_some() || self.share_of(rq) > 0
    }

    /// The byte to be falsified in each bio of a request.
    fn byte_of(&self, rq: &Rq) -> Option<CorruptByte> {
        let is_meant = |byte: &CorruptByte| {
            byte.writes == rq.op.is_write() && (!byte.only_meta || rq.flags.has(Flags::META))
        };
        self.line.features.corrupt.filter(is_meant)
    }

    /// Of how many of its bios in [`MILLIARD`] a byte becomes another.
    fn share_of(&self, rq: &Rq) -> u32 {
        let Features { random_read_corrupt, random_write_corrupt, .. } = self.line.features;
        if rq.op.is_write() { random_write_corrupt } else { random_read_corrupt }
    }

    /// Falsifies the memory of one bio.
    fn falsify(&mut self, byte: Option<CorruptByte>, share: u32, data: &mut Data) {
        let len = data.len();
        let byte = byte.filter(|byte| byte.number as usize <= len);
        if byte.is_none() && share == 0 {
            return;
        }
        data.materialise();
        if let Some(CorruptByte { number, value, .. }) = byte {
            data.copy_from_at(number as usize - 1, &[value]);
        }
        if len > 0 && self.prng.below(MILLIARD.into()) < u64::from(share) {
            let at = self.prng.below(len as u64) as usize;
            data.copy_from_at(at, &[self.prng.below(256) as u8]);
        }
    }

    /// Puts falsified copies in place of a write's memory, which stays as its owner has it, and
    /// notes what is to be done at its end.
    fn mark(&mut self, tag: Tag, request: &mut Request) {
        let rq = *request.rq();
        let (byte, share) = (self.byte_of(&rq), self.share_of(&rq));
        let mut originals = Vec::new();
        if rq.op.is_write() {
            request.for_each_data(|data| {
                let copy = Buf::filled(data.len(), |bytes| data.copy_to(bytes));
                let mut copy = Data::One(copy);
                self.falsify(byte, share, &mut copy);
                originals.push(std::mem::replace(data, copy));
            });
        }
        self.marks[usize::from(tag.0)] = match rq.op.is_write() {
            true => Mark::Original(originals),
            false => Mark::Falsify(byte, share),
        };
    }

    /// The memory of a request that went down, as it goes back.
    fn restore(&mut self, tag: Tag, lent: Vec<Data>, status: Status) -> Vec<Data> {
        let mark = std::mem::replace(&mut self.marks[usize::from(tag.0)], Mark::Plain);
        match mark {
            Mark::Plain => lent,
            Mark::Original(originals) => originals,
            Mark::Falsify(byte, share) => {
                let mut lent = lent;
                for data in lent.iter_mut().filter(|_| status.is_ok()) {
                    self.falsify(byte, share, data);
                }
                lent
            }
        }
    }
}

impl DriverQueue for FlakeyQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        if !self.is_down(now) {
            return self.inner.submit(batch, now);
        }
        while let Some((tag, request)) = batch.peek() {
            match self.fate(request.rq()) {
                Fate::Ends(status) => {
                    self.ended.push((tag, status));
                    batch.take();
                    continue;
                }
                Fate::Falsified => self.mark(tag, request),
                Fate::Passes => {}
            }
            // It takes whatever it is offered.
            batch.offer(1, |one| self.inner.submit(one, now));
        }
        if let Some(lane) = self.lane.as_ref().filter(|_| !self.ended.is_empty()) {
            lane.wake();
        }
    }

    fn commit(&mut self, now: Nanos) {
        self.inner.commit(now);
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.lane = Some(Arc::clone(&lane));
        self.inner.at_home(lane);
    }

    fn announces(&self) -> bool {
        true
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.is_down(now);
        done.push_all(&self.ended);
        self.ended.clear();
        let mut below = std::mem::take(&mut self.below);
        self.inner.reap(now, &mut below);
        for (tag, status, lent) in below.drain() {
            done.push_lent(tag, status, &mut self.restore(tag, lent, status));
        }
        self.below = below;
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        match self.ended.iter().any(|(ended, _)| *ended == tag) {
            true => Cancel::Pending,
            false => self.inner.cancel(tag),
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        match self.begun.load(Ordering::Relaxed) {
            NOT_YET => Some(Nanos::ZERO),
            _ => self.inner.wake_at(),
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.ended.len()
    }
}
