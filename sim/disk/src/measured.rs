//! A disk whose times were measured: how long a command takes with so many at once.
//!
//! At each number of commands at once that was seen, the quantiles of the times of reads and of
//! writes are known. A command draws from those, between two numbers from both in proportion. What
//! was not seen has no time: a command beyond the most at once waits, and [`Measured::beyond`] says
//! of a use what no measurement stands for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;
use weir_bio::units::show_size;
use weir_bio::{Nanos, Prng};

use crate::ends::Ends;
use crate::machine::{Job, Machine};
use crate::read;
use crate::servers::transfer_ns;

/// The shares, in 10,000, of commands that take no longer than the times of a [`Level`]. They lie
/// closer towards the end, where a 99th percentile is.
pub const SHARES: [u64; 14] =
    [0, 100, 500, 1000, 2500, 5000, 7500, 9000, 9500, 9800, 9900, 9950, 9990, 10_000];

/// The least and the greatest size that the longest command may have: a page, as for any disk, and
/// what 32 bits of sectors hold with room to spare.
const MOST_SIZE: [u64; 2] = [4096, 1 << 40];

/// Shares are drawn as finely as this, parts of one in 10,000.
const FINE: u64 = 10_000;

/// A disk by what was measured of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Bytes of the command that the times are of.
    #[serde(deserialize_with = "read::size")]
    pub of_size: u64,
    /// The smallest and the largest command that were seen, bytes.
    #[serde(deserialize_with = "read::size")]
    pub least_size: u64,
    /// See there.
    #[serde(deserialize_with = "read::size")]
    pub most_size: u64,
    /// Bytes a second by which a read that is longer takes longer; 0: its length makes no
    /// difference.
    #[serde(default, deserialize_with = "read::size")]
    pub read_bandwidth: u64,
    /// The same of a write.
    #[serde(default, deserialize_with = "read::size")]
    pub write_bandwidth: u64,
    /// The least and the largest share of reads that was seen in a stretch of time, percent.
    pub read_percent: [u8; 2],
    /// Where commands began that were seen.
    pub access: Access,
    /// Added where a command does not begin at the end of the one before, ns.
    #[serde(default, deserialize_with = "read::time")]
    pub jump: u64,
    /// Times by commands at once, fewest first.
    pub at: Vec<Level>,
}

/// Where commands begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Anywhere.
    Random,
    /// At the end of the one before.
    Sequential,
    /// Both were seen.
    Both,
}

/// Times with so many commands at once: the shares [`SHARES`] take no longer, ns. A direction that
/// was not seen has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Commands at once, this one among them.
    pub in_flight: u32,
    /// Of reads.
    #[serde(default, deserialize_with = "read::time_list")]
    pub read: Vec<u64>,
    /// Of writes.
    #[serde(default, deserialize_with = "read::time_list")]
    pub write: Vec<u64>,
}

/// What a disk is to be used for.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Commands at once at most.
    pub in_flight: u64,
    /// The share of reads, percent; 0 or 100 of one direction alone.
    pub read_percent: u8,
    /// Bytes of the smallest and the largest command.
    pub sizes: [u64; 2],
    /// Where they begin.
    pub access: Access,
    /// Whether there are flushes.
    pub flushes: bool,
}

impl Measured {
    /// That it contradicts itself nowhere and is within the bounds of what can be turned.
    ///
    /// # Errors
    /// The first that is not so, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Measured { least_size, of_size, most_size, read_percent: [least, most], .. } = *self;
        if !(least_size <= of_size && of_size <= most_size) {
            let sizes = format!("{least_size}, {of_size}, {most_size}");
            return Err(format!("least_size, of_size, most_size={sizes} do not rise"));
        }
        if !(MOST_SIZE[0]..=MOST_SIZE[1]).contains(&most_size) {
            let [value, low, high] = [most_size, MOST_SIZE[0], MOST_SIZE[1]].map(show_size);
            return Err(format!("most_size={value} is outside {low}..={high}"));
        }
        if least > most || most > 100 {
            return Err(format!("read_percent=[{least}, {most}] are no two rising shares of 100"));
        }
        read::times([("jump", self.jump)])?;
        if self.at.is_empty() {
            return Err(String::from("[measured] has no [[measured.at]]: no time is known"));
        }
        let mut before = 0;
        for level in &self.at {
            level.check(before)?;
            before = level.in_flight;
        }
        for (name, seen, has) in
            [("reads", most > 0, self.has(false)), ("writes", least < 100, self.has(true))]
        {
            if seen != has {
                let (no, percent) = (if has { "" } else { " no" }, [least, most]);
                return Err(format!("there are{no} times of {name}, and read_percent={percent:?}"));
            }
        }
        Ok(())
    }

    /// Whether there are times of commands that change the medium, or of those that do not.
    pub(crate) fn has(&self, changes: bool) -> bool {
        self.at.iter().any(|level| !level.times(changes).is_empty())
    }

    /// The most commands at once that were seen.
    #[must_use]
    pub fn most_in_flight(&self) -> u32 {
        self.at.last().map_or(0, |level| level.in_flight)
    }

    /// The fewest and the most commands at once with which reads, or writes, were seen.
    fn seen_at_once(&self, changes: bool) -> [u32; 2] {
        let known = || self.at.iter().filter(|level| !level.times(changes).is_empty());
        let of = |level: Option<&Level>| level.map_or(0, |level| level.in_flight);
        [of(known().next()), of(known().next_back())]
    }

    /// The fewest commands at once that were seen: with fewer nothing is known of what they take.
    #[must_use]
    pub fn least_in_flight(&self) -> u32 {
        self.at.first().map_or(0, |level| level.in_flight)
    }

    /// What of a use no measurement stands for: the value and its bound, the first if there are
    /// several.
    ///
    /// # Errors
    /// A sentence with both.
    pub fn beyond(&self, of: &Use) -> Result<(), String> {
        for (name, changes, asked) in
            [("reads", false, of.read_percent > 0), ("writes", true, of.read_percent < 100)]
        {
            let [least, most] = self.seen_at_once(changes);
            // A direction that was not seen at all is told below, by its share.
            let known = !asked || most == 0;
            if !(known || (u64::from(least)..=u64::from(most)).contains(&of.in_flight)) {
                let count = of.in_flight;
                return Err(format!(
                    "commands at once={count} is outside {least}..={most} that {name} were seen at"
                ));
            }
        }
        let [less, more] = self.read_percent;
        if !(less..=more).contains(&of.read_percent) {
            let percent = of.read_percent;
            return Err(format!("reads={percent} % is outside {less}..={more} %"));
        }
        for bytes in of.sizes {
            if !(self.least_size..=self.most_size).contains(&bytes) {
                let [bytes, least, most] = [bytes, self.least_size, self.most_size].map(show_size);
                return Err(format!("bytes of a command={bytes} is outside {least}..={most}"));
            }
        }
        match (self.access, of.access) {
            (Access::Random, Access::Random) | (Access::Sequential, Access::Sequential) => {}
            (Access::Both, _) => {}
            (seen, other) => return Err(format!("access={other:?} is not {seen:?}").to_lowercase()),
        }
        match of.flushes {
            true => Err(String::from("flushes=yes is not no")),
            false => Ok(()),
        }
    }

    /// What a share of 10,000 times [`FINE`] takes with so many at once, ns.
    fn drawn(&self, share: u64, at_once: u32, changes: bool) -> u64 {
        let known = |level: &&Level| !level.times(changes).is_empty();
        let above = self.at.iter().filter(known).find(|level| level.in_flight >= at_once);
        let below = self.at.iter().rev().filter(known).find(|level| level.in_flight <= at_once);
        match (below, above) {
            (Some(below), Some(above)) if below.in_flight < above.in_flight => {
                let [low, high] = [below, above].map(|level| level.time(share, changes));
                let part = u64::from(at_once - below.in_flight);
                between(low, high, part, u64::from(above.in_flight - below.in_flight))
            }
            (Some(level), _) | (None, Some(level)) => level.time(share, changes),
            (None, None) => 0,
        }
    }

    fn service(&self, job: Job, share: u64, at_once: u32) -> u64 {
        let ns = self.drawn(share, at_once, job.changes());
        let rate = if job.changes() { self.write_bandwidth } else { self.read_bandwidth };
        let (own, of) = (transfer_ns(job.moved_bytes(), rate), transfer_ns(self.of_size, rate));
        ns.saturating_add(own).saturating_sub(of)
    }
}

/// So many of `whole` parts of the way from one to the other.
fn between(low: u64, high: u64, part: u64, whole: u64) -> u64 {
    let way = u128::from(low.abs_diff(high)) * u128::from(part) / u128::from(whole.max(1));
    if high >= low { low + way as u64 } else { low - way as u64 }
}

impl Level {
    fn check(&self, before: u32) -> Result<(), String> {
        let Level { in_flight, .. } = *self;
        read::between("in_flight", in_flight.into(), u64::from(before) + 1, 65_536)?;
        for (name, times) in [("read", &self.read), ("write", &self.write)] {
            let at = format!("in_flight={in_flight}: {name}");
            if !times.is_empty() && times.len() != SHARES.len() {
                let (count, all) = (times.len(), SHARES.len());
                return Err(format!("{at} has {count} times, and {all} shares take them"));
            }
            if let Some(pair) = times.windows(2).find(|pair| pair[0] > pair[1]) {
                let [long, short] = [pair[0], pair[1]];
                return Err(format!("{at} falls from {long}ns to {short}ns"));
            }
            read::times([(at.as_str(), times.last().copied().unwrap_or(0))])?;
        }
        if self.read.is_empty() && self.write.is_empty() {
            return Err(format!("in_flight={in_flight} has times of neither reads nor writes"));
        }
        Ok(())
    }

    /// Of commands that change the medium, or of those that do not.
    #[must_use]
    pub fn times(&self, changes: bool) -> &[u64] {
        if changes { &self.write } else { &self.read }
    }

    /// The time of such a share.
    fn time(&self, share: u64, changes: bool) -> u64 {
        let times = self.times(changes);
        let behind = SHARES.iter().position(|bound| bound * FINE > share);
        let behind = behind.unwrap_or(SHARES.len() - 1).max(1);
        let [from, to] = [SHARES[behind - 1] * FINE, SHARES[behind] * FINE];
        between(times[behind - 1], times[behind], share - from, to - from)
    }
}

#[derive(Debug)]
pub(crate) struct MeasuredDisk {
    spec: Measured,
    /// When what is under way ends.
    under_way: BinaryHeap<Reverse<Nanos>>,
    /// The sector behind the last command.
    behind: Option<u64>,
    prng: Prng,
}

impl MeasuredDisk {
    pub(crate) fn new(spec: Measured, seed: u64) -> MeasuredDisk {
        let under_way = BinaryHeap::new();
        MeasuredDisk { spec, under_way, behind: None, prng: Prng::new(seed) }
    }

    /// When a command that comes now begins.
    fn begins_at(&mut self, now: Nanos) -> Nanos {
        while self.under_way.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.under_way.pop();
        }
        // Of more at once than were seen nothing is known.
        let is_full = self.under_way.len() >= self.spec.most_in_flight() as usize;
        let first = is_full.then(|| self.under_way.pop()).flatten();
        first.map_or(now, |Reverse(end)| end)
    }
}

impl Machine for MeasuredDisk {
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends) {
        let begins = self.begins_at(now);
        let at_once = self.under_way.len() as u32 + 1;
        let share = self.prng.below(10_000 * FINE);
        // A flush is nowhere.
        let is_elsewhere = job.sectors > 0
            && self.behind.replace(job.sector + u64::from(job.sectors)) != Some(job.sector);
        let jump = if is_elsewhere { self.spec.jump } else { 0 };
        let at = begins + self.spec.service(job, share, at_once) + jump;
        self.under_way.push(Reverse(at));
        ends.add(job.id, at);
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::Op;

    use super::*;

    fn level(in_flight: u32, from: u64) -> Level {
        let read = SHARES.iter().map(|share| from + share).collect();
        Level { in_flight, read, write: Vec::new() }
    }

    fn measured() -> Measured {
        Measured {
            of_size: 4096,
            least_size: 4096,
            most_size: 8192,
            read_bandwidth: 4_096_000_000,
            write_bandwidth: 0,
            read_percent: [100, 100],
            access: Access::Random,
            jump: 0,
            at: vec![level(2, 10_000), level(4, 30_000)],
        }
    }

    #[test]
    fn a_time_lies_between_the_shares_and_the_levels_that_enclose_it() {
        let disk = measured();
        assert_eq!(disk.check(), Ok(()));
        for (share, at_once, ns) in [
            (0, 2, 10_000),
            (5_000, 2, 15_000),
            (9_970, 2, 19_970),
            (10_000, 4, 40_000),
            (5_000, 3, 25_000),
            (5_000, 1, 15_000),
            (5_000, 9, 35_000),
        ] {
            assert_eq!(disk.drawn(share * FINE, at_once, false), ns, "{share} at {at_once}");
        }
        let job = |sectors| Job { id: 0, op: Op::Read, sector: 0, sectors, fua: false };
        let [short, long] = [8, 16].map(|sectors| disk.service(job(sectors), 0, 2));
        assert_eq!((short, long), (10_000, 11_000));
    }

    #[test]
    fn a_command_beyond_the_most_at_once_waits_for_the_first_that_ends() {
        let mut spec = measured();
        spec.at.truncate(1);
        spec.at[0].read = vec![100; SHARES.len()];
        let (mut disk, mut ends) = (MeasuredDisk::new(spec, 1), Ends::default());
        for id in 0..5 {
            let job = Job { id, op: Op::Read, sector: u64::from(id) * 64, sectors: 8, fua: false };
            disk.start(job, Nanos(u64::from(id)), &mut ends);
        }
        let all = std::iter::from_fn(|| ends.take(Nanos(1000)));
        assert_eq!(all.map(|(_, at)| at.0).collect::<Vec<_>>(), [100, 101, 200, 201, 300]);
    }

    #[test]
    fn a_use_beyond_what_was_seen_is_refused_with_value_and_bound() {
        let disk = measured();
        let fine = Use {
            in_flight: 4,
            read_percent: 100,
            sizes: [4096, 8192],
            access: Access::Random,
            flushes: false,
        };
        assert_eq!(disk.beyond(&fine), Ok(()));
        for (other, what) in [
            (Use { in_flight: 5, ..fine }, "commands at once=5 is outside 2..=4"),
            (Use { in_flight: 1, ..fine }, "commands at once=1 is outside 2..=4"),
            (Use { read_percent: 99, ..fine }, "reads=99 % is outside 100..=100 %"),
            (
                Use { sizes: [4096, 16384], ..fine },
                "bytes of a command=16 KiB is outside 4 KiB..=8 KiB",
            ),
            (Use { sizes: [512, 4096], ..fine }, "bytes of a command=512 bytes is outside 4 KiB"),
            (Use { access: Access::Sequential, ..fine }, "access=sequential is not random"),
            (Use { flushes: true, ..fine }, "flushes=yes is not no"),
        ] {
            let why = disk.beyond(&other).expect_err(what);
            assert!(why.starts_with(what), "{why}, not {what}");
        }
    }

    #[test]
    fn reads_are_known_at_as_many_at_once_as_reads_were_seen_with() {
        let write = SHARES.iter().map(|share| 50_000 + share).collect();
        let deep = Level { in_flight: 64, read: Vec::new(), write };
        let mut disk = Measured { read_percent: [0, 100], ..measured() };
        disk.at.push(deep);
        assert_eq!(disk.check(), Ok(()));
        let of = |in_flight, read_percent| Use {
            in_flight,
            read_percent,
            sizes: [4096, 4096],
            access: Access::Random,
            flushes: false,
        };
        assert_eq!(disk.beyond(&of(4, 100)), Ok(()));
        assert_eq!(disk.beyond(&of(64, 0)), Ok(()));
        for (in_flight, percent, what) in [
            (64, 100, "commands at once=64 is outside 2..=4 that reads were seen at"),
            (4, 0, "commands at once=4 is outside 64..=64 that writes were seen at"),
            (64, 50, "commands at once=64 is outside 2..=4"),
        ] {
            let why = disk.beyond(&of(in_flight, percent)).expect_err(what);
            assert!(why.starts_with(what), "{why}, not {what}");
        }
    }

    #[test]
    fn a_flush_leaves_the_place_behind_the_command_before_it() {
        let spec = Measured { jump: 1000, access: Access::Both, ..measured() };
        let (mut disk, mut ends) = (MeasuredDisk::new(spec, 1), Ends::default());
        let job = |id, sector, sectors| Job { id, op: Op::Read, sector, sectors, fua: false };
        disk.start(job(0, 0, 8), Nanos(0), &mut ends);
        let flush = Job { id: 1, op: Op::Flush, sector: 0, sectors: 0, fua: false };
        disk.start(flush, Nanos(0), &mut ends);
        assert_eq!(disk.behind, Some(8), "the next at 8 is no jump");
    }

    #[test]
    fn times_that_contradict_themselves_are_no_disk() {
        let falls = {
            let mut falls = measured();
            falls.at[1].read[3] = 1;
            falls
        };
        for (disk, what) in [
            (Measured { at: Vec::new(), ..measured() }, "no [[measured.at]]"),
            (Measured { at: vec![level(4, 1), level(4, 1)], ..measured() }, "in_flight=4 is out"),
            (Measured { read_percent: [50, 100], ..measured() }, "there are no times of writes"),
            (Measured { read_percent: [0, 0], ..measured() }, "there are times of reads"),
            (Measured { of_size: 512, ..measured() }, "do not rise"),
            (
                Measured { least_size: 512, of_size: 512, most_size: 2048, ..measured() },
                "most_size=2 KiB is outside 4 KiB..=1 TiB",
            ),
            (Measured { most_size: 2 << 40, ..measured() }, "most_size=2 TiB is outside 4 KiB"),
            (falls, "in_flight=4: read falls from"),
        ] {
            let why = disk.check().expect_err(what);
            assert!(why.contains(what), "{why}, not {what}");
        }
    }
}
