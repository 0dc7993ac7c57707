//! A model from a recording of a live disk's scheduler.
//!
//! A command's time is that from its dispatch to its completion; where the recording says when the
//! driver had it and answered, that. Stretches of time are fitted to and held back in turn.

use std::collections::{BTreeMap, VecDeque};

use weir_bio::units::show_size;
use weir_bio::{Nanos, Op, SECTOR};
use weir_sched::replay::{Event, Kind, Range, Recording};
use weir_sim_disk::measured::{Access, Level};
use weir_sim_disk::{Disk, Job, Measured, Spec};

use super::{FitError, Held, LEAST, Model, Pair, shares};

/// Stretches of time that a recording is cut into: those with an odd number are held back.
const STRETCHES: u64 = 40;

/// Commands of a stretch from which its share of reads is taken.
const SHARE_FROM: usize = 20;

/// Shares of reads that are so far from one another, percent, say nothing of those between.
const GAP: usize = 50;

/// A recording tells whole microseconds: half of the commands have to take longer than this, ns.
const COARSE: u64 = 5_000;

/// One of so many commands may be shorter than all that are fitted to, and one longer, and may have
/// been under way with more.
const RARE: usize = 100;

/// Commands that the model carries out for each line that is held against what was held back.
const CARRIED_OUT: usize = 20_000;

/// A read or a write that has ended.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_us: u64,
    /// Commands at once when it was dispatched, itself among them.
    in_flight: u32,
    changes: bool,
    bytes: u64,
    /// It did not begin at the end of the one before.
    elsewhere: bool,
    ns: u64,
}

/// A command under way.
struct Begun {
    at_us: u64,
    in_flight: u32,
    elsewhere: bool,
}

/// The commands of a recording, and the end of the last sector that one of them touched.
fn samples(recording: &Recording) -> (Vec<Sample>, u64) {
    let mut under_way: BTreeMap<Range, VecDeque<Begun>> = BTreeMap::new();
    let (mut samples, mut count, mut behind, mut end) = (Vec::new(), 0, None, 0);
    for Event { time_us, kind, range, details, .. } in &recording.events {
        match kind {
            Kind::Dispatched => {
                count += 1;
                // A flush is nowhere: what follows it may go on where the command before it ended.
                let elsewhere =
                    range.sectors > 0 && behind.replace(range.end()) != Some(range.sector);
                end = end.max(range.end());
                let begun = Begun { at_us: *time_us, in_flight: count, elsewhere };
                under_way.entry(*range).or_default().push_back(begun);
            }
            Kind::Completed => {
                let begun = under_way.get_mut(range).and_then(VecDeque::pop_front);
                let begun = begun.expect("a recording completes what it has dispatched");
                count -= 1;
                let is_data = matches!(range.op, Op::Read | Op::Write);
                if !is_data || details.handed_back {
                    continue;
                }
                let us = match details.times_us {
                    [_, Some(issued), Some(done)] => done.saturating_sub(issued).max(0) as u64,
                    _ => time_us - begun.at_us,
                };
                samples.push(Sample {
                    at_us: begun.at_us,
                    in_flight: begun.in_flight,
                    changes: range.op == Op::Write,
                    bytes: u64::from(range.sectors) * SECTOR,
                    elsewhere: begun.elsewhere,
                    ns: us.saturating_mul(1000),
                });
            }
            _ => {}
        }
    }
    (samples, end)
}

/// Fits a model to a recording.
///
/// # Errors
/// Too little in it, or times that are too short for it.
pub fn fit(recording: &Recording) -> Result<Model, FitError> {
    let (samples, end) = samples(recording);
    if samples.is_empty() {
        let what = "no read or write was dispatched and has ended in it: there is nothing to fit";
        return Err(FitError(String::from(what)));
    }
    let (access, samples) = by_access(of_usual_size(of_usual_op(samples)));
    fine_enough(&samples)?;
    alike(&samples)?;
    let (mut fitted, mut held) = (Vec::new(), Vec::new());
    let from = samples.iter().map(|one| one.at_us).min().unwrap_or_default();
    let to = samples.iter().map(|one| one.at_us).max().unwrap_or_default();
    for one in &samples {
        let stretch = (one.at_us - from) * STRETCHES / (to - from + 1);
        if stretch.is_multiple_of(2) { fitted.push(*one) } else { held.push(*one) }
    }
    let disk = disk(&fitted, access, read_percent(&samples, from, to)?)?;
    disk.check().map_err(|why| FitError(format!("what was recorded makes no disk: {why}")))?;
    let depth = disk.most_in_flight().clamp(128, u16::MAX.into()) as u16;
    let bytes = end.checked_mul(SECTOR).and_then(|bytes| bytes.checked_next_multiple_of(1 << 20));
    let size = bytes.filter(|bytes| *bytes <= i64::MAX as u64).ok_or_else(|| {
        FitError(format!("a command ends at sector {end}, and a disk has 2^63 bytes at most"))
    })?;
    let held_back = compare(&disk, &held)?;
    let stated = recording.queue.iter().find(|stated| stated.value.0 == "rotational");
    let rotational = stated.is_some_and(|stated| stated.value.1 != 0);
    Ok(Model { disk, size, depth, rotational, host: None, held_back, predicted: Vec::new() })
}

/// Reads and writes as long as there are more than a few of them: those of a file system's own
/// beside a load that reads are no part of what is measured.
fn of_usual_op(samples: Vec<Sample>) -> Vec<Sample> {
    let writes = samples.iter().filter(|one| one.changes).count();
    let few = |count: usize| count < LEAST && count < samples.len() / RARE;
    let [no_reads, no_writes] = [samples.len() - writes, writes].map(few);
    samples.into_iter().filter(|one| !if one.changes { no_writes } else { no_reads }).collect()
}

/// That the times of either direction are long enough for a clock of whole microseconds.
fn fine_enough(samples: &[Sample]) -> Result<(), FitError> {
    for (name, changes) in [("reads", false), ("writes", true)] {
        let of = samples.iter().filter(|one| one.changes == changes);
        let mut times: Vec<u64> = of.map(|one| one.ns).collect();
        times.sort_unstable();
        if let Some(median) = times.get(times.len() / 2).filter(|median| **median < COARSE) {
            return Err(FitError(format!(
                "half of the {name} took no longer than {} us, and a recording tells whole \
                 microseconds: from {} us on they are fine enough (--target measures finer)",
                median / 1000,
                COARSE / 1000
            )));
        }
    }
    Ok(())
}

/// That reads and writes were of the same sizes and in the same places: the model knows one range
/// of each, and would take what was seen of the one for seen of the other.
fn alike(samples: &[Sample]) -> Result<(), FitError> {
    let of = |changes: bool| {
        samples.iter().filter(move |one| one.changes == changes).copied().collect::<Vec<_>>()
    };
    let [reads, writes] = [of(false), of(true)];
    if reads.is_empty() || writes.is_empty() {
        return Ok(());
    }
    let apart = "record them apart, or a load with both of the same kind";
    let sizes = |of: &[Sample]| {
        let bytes = || of.iter().map(|one| one.bytes);
        [bytes().min(), bytes().max()].map(|bytes| show_size(bytes.unwrap_or_default()))
    };
    let [one, other] = [sizes(&reads), sizes(&writes)];
    if one != other {
        let ([from, to], [least, most]) = (one, other);
        return Err(FitError(format!(
            "reads were of {from} to {to}, and writes of {least} to {most}: {apart}"
        )));
    }
    let [(read, _), (write, _)] = [by_access(reads), by_access(writes)];
    if read != write {
        let what = format!("reads were {read:?}, and writes {write:?}: {apart}").to_lowercase();
        return Err(FitError(what));
    }
    Ok(())
}

/// Those of a size that was seen often: blocks that touch by chance become one command.
fn of_usual_size(samples: Vec<Sample>) -> Vec<Sample> {
    let mut sizes: Vec<u64> = samples.iter().map(|one| one.bytes).collect();
    sizes.sort_unstable();
    let rare = sizes.len() / RARE;
    let usual = sizes[rare]..=sizes[sizes.len() - 1 - rare];
    samples.into_iter().filter(|one| usual.contains(&one.bytes)).collect()
}

/// Where commands began that were seen often enough, and those that did.
fn by_access(samples: Vec<Sample>) -> (Access, Vec<Sample>) {
    let elsewhere = samples.iter().filter(|one| one.elsewhere).count();
    let few = |count: usize| count < LEAST || count < samples.len() / 50;
    let only = |elsewhere: bool| {
        samples.iter().filter(move |one| one.elsewhere == elsewhere).copied().collect()
    };
    match (few(elsewhere), few(samples.len() - elsewhere)) {
        (false, true) => (Access::Random, only(true)),
        (true, false) => (Access::Sequential, only(false)),
        (true, true) if elsewhere * 2 >= samples.len() => (Access::Random, only(true)),
        (true, true) => (Access::Sequential, only(false)),
        (false, false) => (Access::Both, samples),
    }
}

/// The least and the largest share of reads of a stretch, percent.
///
/// # Errors
/// Reads and writes that came one after the other and not together: nothing is known of both.
fn read_percent(samples: &[Sample], from: u64, to: u64) -> Result<[u8; 2], FitError> {
    let mut stretches = vec![[0_usize; 2]; STRETCHES as usize];
    for one in samples {
        let stretch = (one.at_us - from) * STRETCHES / (to - from + 1);
        stretches[stretch as usize][usize::from(one.changes)] += 1;
    }
    let reads: usize = stretches.iter().map(|[reads, _]| reads).sum();
    let whole = [reads, samples.len() - reads];
    let known = stretches.into_iter().filter(|[reads, writes]| reads + writes >= SHARE_FROM);
    let known: Vec<[usize; 2]> = known.collect();
    let mut shares: Vec<usize> =
        known.iter().map(|[reads, writes]| reads * 100 / (reads + writes)).collect();
    shares.sort_unstable();
    if let Some(gap) = shares.windows(2).find(|pair| pair[1] - pair[0] > GAP) {
        return Err(FitError(format!(
            "some stretches have {} % of reads or less and all others {} % or more: nothing is \
             known of what lies between, so record the one or the other",
            gap[0], gap[1]
        )));
    }
    Ok(known.into_iter().chain([whole]).fold([100, 0], |[least, most], [reads, writes]| {
        let all = reads + writes;
        let [down, up] = [reads * 100 / all, (reads * 100).div_ceil(all)].map(|share| share as u8);
        [least.min(down), most.max(up)]
    }))
}

/// The bin of a number of commands at once: 1, 2, 3 and 4, 5 to 8, and so on.
fn bin(in_flight: u32) -> u32 {
    in_flight.next_power_of_two()
}

/// How much longer a value is for each unit of another, on average within one bin.
fn slope(of: impl Iterator<Item = (u32, f64, f64)> + Clone) -> Option<f64> {
    let mut means: BTreeMap<u32, [f64; 3]> = BTreeMap::new();
    for (bin, x, y) in of.clone() {
        let mean = means.entry(bin).or_default();
        (mean[0], mean[1], mean[2]) = (mean[0] + 1.0, mean[1] + x, mean[2] + y);
    }
    let (mut above, mut below) = (0.0, 0.0);
    for (bin, x, y) in of {
        let [count, xs, ys] = means[&bin];
        above += (x - xs / count) * (y - ys / count);
        below += (x - xs / count) * (x - xs / count);
    }
    (below > 0.0).then_some(above / below).filter(|slope| *slope > 0.0)
}

/// The most frequent of some values.
fn mode(of: impl Iterator<Item = u64>) -> u64 {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    of.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(value, count)| (*count, *value)).map_or(0, |(value, _)| value)
}

/// The largest of some values, one in a hundred apart.
fn most_of(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[(values.len() - 1) * (RARE - 1) / RARE]
}

fn disk(samples: &[Sample], access: Access, percent: [u8; 2]) -> Result<Measured, FitError> {
    let jumps = samples
        .iter()
        .map(|one| (bin(one.in_flight), f64::from(u8::from(one.elsewhere)), one.ns as f64));
    let jump = slope(jumps).filter(|_| access == Access::Both).unwrap_or(0.0);
    let rate = |changes: bool| {
        let of = samples.iter().filter(move |one| one.changes == changes);
        let longer = of.map(|one| {
            let jumped = if one.elsewhere { jump } else { 0.0 };
            (bin(one.in_flight), one.bytes as f64, one.ns as f64 - jumped)
        });
        slope(longer).map_or(0, |slope| (1e9 / slope) as u64)
    };
    let of_size = mode(samples.iter().map(|one| one.bytes));
    let mut disk = Measured {
        of_size,
        least_size: samples.iter().map(|one| one.bytes).min().unwrap_or(of_size),
        most_size: samples.iter().map(|one| one.bytes).max().unwrap_or(of_size),
        read_bandwidth: rate(false),
        write_bandwidth: rate(true),
        read_percent: percent,
        access,
        jump: jump as u64,
        at: Vec::new(),
    };
    let mut bins: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    samples.iter().for_each(|one| bins.entry(bin(one.in_flight)).or_default().push(one));
    let mut most = 0;
    let deepest = bins.keys().last().copied().unwrap_or_default();
    for (bin, of_bin) in &bins {
        let times = |changes: bool| {
            let of = of_bin.iter().filter(|one| one.changes == changes);
            let mut sorted: Vec<u64> = of.map(|one| own_ns(&disk, one)).collect();
            sorted.sort_unstable();
            sorted
        };
        let [reads, writes] = [times(false), times(true)];
        most = most.max(reads.len()).max(writes.len());
        let enough = |sorted: &[u64]| match sorted.len() {
            LEAST.. => shares::of_sorted(sorted),
            _ => Vec::new(),
        };
        let numbers = of_bin.iter().map(|one| u64::from(one.in_flight));
        // Up to the most that were seen at once, rarely apart.
        let in_flight = match *bin == deepest {
            true => most_of(numbers.collect()),
            false => mode(numbers),
        } as u32;
        let level = Level { in_flight, read: enough(&reads), write: enough(&writes) };
        if !(level.read.is_empty() && level.write.is_empty()) {
            disk.at.push(level);
        }
    }
    let has = |changes: bool| disk.at.iter().any(|level| !level.times(changes).is_empty());
    for (name, seen, has) in
        [("reads", percent[1] > 0, has(false)), ("writes", percent[0] < 100, has(true))]
    {
        if seen && !has {
            let what = format!(
                "too few {name}: {most} commands of one direction at one depth are the most in the \
                 part that is fitted to, which is half, and {LEAST} are needed"
            );
            return Err(FitError(what));
        }
    }
    Ok(disk)
}

/// The time of a command, had it the size and the place that the times are of.
fn own_ns(disk: &Measured, one: &Sample) -> u64 {
    let rate = if one.changes { disk.write_bandwidth } else { disk.read_bandwidth };
    let passed = |bytes: u64| match rate {
        0 => 0,
        rate => (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64,
    };
    let jump = if one.elsewhere { disk.jump } else { 0 };
    (one.ns + passed(disk.of_size)).saturating_sub(passed(one.bytes) + jump)
}

/// The model beside what was held back: for each number at once and direction, as many commands
/// under way, of the sizes and places that were held back.
fn compare(disk: &Measured, held: &[Sample]) -> Result<Vec<Held>, FitError> {
    let mut rows = Vec::new();
    for level in &disk.at {
        let of_level: Vec<&Sample> =
            held.iter().filter(|one| bin(one.in_flight) == bin(level.in_flight)).collect();
        if of_level.is_empty() {
            continue;
        }
        let ours = carry_out(disk, level.in_flight, &of_level);
        for (changes, op) in [(false, "read"), (true, "write")] {
            let mut theirs: Vec<u64> =
                of_level.iter().filter(|one| one.changes == changes).map(|one| one.ns).collect();
            let mut ours: Vec<u64> =
                ours.iter().filter(|(of, _)| *of == changes).map(|(_, ns)| *ns).collect();
            if theirs.len() < LEAST / 2 || level.times(changes).is_empty() {
                continue;
            }
            theirs.sort_unstable();
            ours.sort_unstable();
            let pair =
                |of: &dyn Fn(&[u64]) -> f64| Pair { measured: of(&theirs), model: of(&ours) };
            let share =
                |of: &[u64], percent: usize| of[(of.len() - 1) * percent / 100] as f64 / 1e3;
            let in_flight = f64::from(level.in_flight);
            rows.push(Held {
                in_flight: level.in_flight,
                op,
                commands: theirs.len() as u64,
                // Little's law, as long as so many are under way.
                rate: pair(&|of| in_flight * 1e9 * of.len() as f64 / of.iter().sum::<u64>() as f64),
                p50_us: pair(&|of| share(of, 50)),
                p99_us: pair(&|of| share(of, 99)),
            });
        }
    }
    match rows.is_empty() {
        true => Err(FitError(format!(
            "too few commands: {} are in the part that is held back, which is half, and {} of one \
             direction at one depth are needed",
            held.len(),
            LEAST / 2
        ))),
        false => Ok(rows),
    }
}

/// The times of commands like these on the model, as many under way as said; whether each changed
/// the medium.
fn carry_out(disk: &Measured, in_flight: u32, like: &[&Sample]) -> Vec<(bool, u64)> {
    let (size, depth) = (i64::MAX as u64 / SECTOR * SECTOR, 128);
    let kind = weir_sim_disk::Kind::Measured(disk.clone());
    let mut machine = Disk::new(&Spec { size, depth, rotational: false, kind }, 1);
    let (mut now, mut behind, mut begun) = (Nanos::ZERO, 0, 0);
    let (mut under_way, mut times) = (BTreeMap::new(), Vec::new());
    while times.len() < CARRIED_OUT {
        while under_way.len() < in_flight as usize {
            let like = like[begun % like.len()];
            let sectors = (like.bytes / SECTOR) as u32;
            let sector = if like.elsewhere { behind + 8 } else { behind };
            behind = sector + u64::from(sectors);
            let op = if like.changes { Op::Write } else { Op::Read };
            machine.start(Job { id: begun as u32, op, sector, sectors, fua: false }, now);
            under_way.insert(begun as u32, (like.changes, now));
            begun += 1;
        }
        now = machine.wake_at().expect("something is under way").max(now);
        while let Some(end) = machine.take_end(now) {
            let (changes, since) = under_way.remove(&end.id).expect("it is under way");
            times.push((changes, end.at.since(since)));
        }
    }
    times
}

#[cfg(test)]
mod tests;
