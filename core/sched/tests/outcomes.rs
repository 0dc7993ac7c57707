//! Whole scenarios, beside what a real kernel made of them (`golden/outcomes.md`).
//!
//! The modelled disk is of the same kind: one command at a time, as long whatever its size. How
//! long a command takes and what passes between two is the mean of the recordings beside
//! (`golden/*.replay`), not of the outcomes. The kernel's figures, measured on one emulated CPU,
//! are a bound from one side: a mean may be lower, shares may be more even.

#![forbid(unsafe_code)]

mod bed;

use bed::{Bed, Client, ClientId, Device, Latencies, MILLISECOND, SECOND, Setting, exists, wide};
use weir_bio::{Class, Limits, Nanos};

/// From D to C in the recordings, mean of their means.
const SERVICE_NS: u64 = 2_101_000;
/// From C to the next D.
const OVERHEAD_NS: u64 = 134_000;
/// How far both together are from their means in nine cases of ten.
const NOISE_NS: u64 = 100_000;
/// From C to the submitter's next bio, and between two bios of one submission.
const RETURN_NS: u64 = 230_000;
const GAP_NS: u64 = 10_000;
/// Blocks of 32 KiB and 16 KiB and 4 KiB, sectors.
const KIB_32: u32 = 64;
const KIB_16: u32 = 32;
const KIB_4: u32 = 8;
/// Where clients that must not meet begin, sectors.
const APART: u64 = 1 << 24;
/// The beginning of a run, which is dropped, and its end.
const FROM: Nanos = Nanos(2 * SECOND);
const TO: Nanos = Nanos(20 * SECOND);

fn bed(scheduler: &str, device: Device, tunables: &[(&'static str, &str)]) -> Bed {
    // A SCSI disk takes 512 KiB at once, as Linux drives it by default.
    let limits = Limits { max_user_sectors: 1024, ..wide(false) };
    let tunables = tunables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let limits = Some(limits);
    let setting = Setting { nr_requests: 128, limits, tunables, ..Setting::default() };
    Bed::with(scheduler, device, setting)
}

fn one_at_a_time() -> Device {
    Device::serial(SERVICE_NS).with_overhead(OVERHEAD_NS).with_noise(NOISE_NS, 1)
}

fn iops(bed: &Bed, client: ClientId) -> f64 {
    bed.record(client).ios_between(FROM, TO) as f64 / (TO.since(FROM) as f64 / SECOND as f64)
}

fn latencies(bed: &Bed, client: ClientId) -> Latencies {
    bed.record(client).latencies_between(FROM, TO)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MILLISECOND as f64
}

/// Whether a scenario can run; one of a scheduler that is not there says so.
fn can_run(scheduler: &str) -> bool {
    let exists = exists(scheduler);
    if !exists {
        eprintln!("{scheduler} is not there, its scenario is left out");
    }
    exists
}

/// At most 15 % more than the kernel's.
#[track_caller]
fn expect_at_most(what: &str, ours: f64, kernel: f64) {
    eprintln!("{what}: {ours:.2}, the kernel's {kernel:.2}");
    assert!(ours <= kernel * 1.15, "{what}: {ours:.2}, the kernel's {kernel:.2}");
}

/// No more than 15 % from the kernel's.
#[track_caller]
fn expect_close(what: &str, ours: f64, kernel: f64) {
    eprintln!("{what}: {ours:.2}, the kernel's {kernel:.2}");
    let is_close = ours <= kernel * 1.15 && ours >= kernel * 0.85;
    assert!(is_close, "{what}: {ours:.2}, the kernel's {kernel:.2}");
}

/// A reader of single random blocks with 20 ms between them, and four sequential writers.
///
/// One that thinks for exactly 20 ms falls into step with the disk, and meets one phase of its
/// round over the writers for ever: which one, a tenth of a millisecond of thinking decides. In the
/// guest nothing keeps the two in step. So each phase of a round, four writers' commands and its
/// own, is as likely as any other.
fn reader_against_writers(
    scheduler: &str,
    tunables: &[(&'static str, &str)],
) -> (Latencies, Vec<f64>) {
    let mut bed = bed(scheduler, one_at_a_time(), tunables);
    let reader = Client::random_reader(0, APART, KIB_4, 1).think(20 * MILLISECOND + RETURN_NS);
    let reader = bed.client(reader.dither(5 * (SERVICE_NS + OVERHEAD_NS), 5));
    let writers: Vec<_> = (1..5)
        .map(|place| {
            let writer = Client::writer(place * APART, KIB_32).depth(16);
            bed.client(writer.think(RETURN_NS).gap(GAP_NS).start(place * MILLISECOND))
        })
        .collect();
    bed.run_until(TO);
    let writers = writers.iter().map(|writer| iops(&bed, *writer)).collect();
    let reader = latencies(&bed, reader);
    (reader, writers)
}

#[track_caller]
fn expect_even(what: &str, figures: &[f64], kernel_ratio: f64) {
    let least = figures.iter().copied().fold(f64::MAX, f64::min);
    let most = figures.iter().copied().fold(0.0, f64::max);
    eprintln!("{what}: {least:.1} to {most:.1}");
    expect_at_most(what, most / least, kernel_ratio);
}

#[test]
fn a_thinking_reader_waits_no_longer_before_mq_deadline_than_in_the_kernel() {
    let (reader, writers) = reader_against_writers("mq-deadline", &[]);
    expect_at_most("mean, ms", ms(reader.mean()), 10.8);
    expect_at_most("p50, ms", ms(reader.percentile(50)), 7.9);
    expect_at_most("p99, ms", ms(reader.percentile(99)), 25.0);
    expect_at_most("max, ms", ms(reader.max()), 52.7);
    expect_even("writers", &writers, 752.0 / 581.0);
    assert!(writers.iter().all(|iops| *iops >= 581.0 * 0.85), "{writers:?}");
}

#[test]
fn a_thinking_reader_waits_no_longer_before_bfq_than_in_the_kernel() {
    if !can_run("bfq") {
        return;
    }
    let (reader, writers) = reader_against_writers("bfq", &[("low_latency", "1")]);
    expect_close("mean, ms", ms(reader.mean()), 6.6);
    expect_close("p50, ms", ms(reader.percentile(50)), 6.4);
    expect_at_most("p99, ms", ms(reader.percentile(99)), 10.6);
    expect_at_most("max, ms", ms(reader.max()), 13.9);
    expect_even("writers", &writers, 225.0 / 220.0);
    assert!(writers.iter().all(|iops| *iops >= 220.0 * 0.85), "{writers:?}");
}

#[test]
fn groups_before_bfq_share_no_farther_from_their_weights_than_in_the_kernel() {
    if !can_run("bfq") {
        return;
    }
    let mut bed = bed("bfq", one_at_a_time(), &[("low_latency", "0")]);
    let readers: Vec<_> = [(1, 100), (2, 200), (3, 400)]
        .map(|(group, weight)| {
            bed.weigh(group, weight);
            let reader = Client::reader(u64::from(group) * APART, KIB_32).depth(4);
            let reader = reader.think(RETURN_NS).gap(GAP_NS).group(group);
            // Queues made within 180 ms of each other may become one.
            bed.client(reader.start(u64::from(group) * 700 * MILLISECOND))
        })
        .to_vec();
    bed.run_until(Nanos(5 * SECOND) + 20 * SECOND);
    let (from, to) = (Nanos(5 * SECOND), bed.now());
    let ios = readers.iter().map(|reader| bed.record(*reader).ios_between(from, to) as f64);
    let ios: Vec<f64> = ios.collect();
    let (double, fourfold) = (ios[1] / ios[0], ios[2] / ios[0]);
    eprintln!("shares 1 : {double:.2} : {fourfold:.2}, the kernel's 1 : 1.83 : 3.71");
    assert!((double - 2.0).abs() <= 2.0 - 1.83, "1 : {double:.2}");
    assert!((fourfold - 4.0).abs() <= 4.0 - 3.71, "1 : {fourfold:.2}");
    let sum = ios.iter().sum::<f64>() / 20.0;
    assert!(sum >= (124.6 + 227.4 + 461.7) * 0.85, "{sum:.0} I/Os a second in all");
}

/// When each of 32 writers of 1 MiB that begin together ends, s.
fn ends_of_writers(device: Device, low_latency: &str, stride: u32) -> Vec<f64> {
    let mut bed = bed("bfq", device, &[("low_latency", low_latency)]);
    let writers: Vec<_> = (0..32)
        .map(|place| {
            let writer = Client::writer(place * APART / 16, KIB_16).stride(u64::from(stride));
            bed.client(writer.depth(4).ios(64).think(RETURN_NS).gap(GAP_NS))
        })
        .collect();
    bed.run_out();
    let ends = writers.iter().map(|writer| bed.record(*writer).finished_at);
    ends.map(|at| ms(at.expect("an end").0) / 1000.0).collect()
}

/// Shares of a device that takes all its clients ask: no client waits for a tag, so only the
/// requests that the scheduler keeps back make a share. A kernel in front of a loop device with
/// such latencies gave 1 : 2.8 to 1 : 2.95.
#[test]
fn groups_before_bfq_share_a_device_that_would_take_all_they_ask() {
    if !can_run("bfq") {
        return;
    }
    for service in [50, 20, 4] {
        let device = Device::slots(128, service * MILLISECOND);
        let mut bed = bed("bfq", device, &[("low_latency", "0")]);
        let readers = [(1_u32, 100), (2, 300)].map(|(group, weight)| {
            bed.weigh(group, weight);
            let reader = Client::random_reader(0, APART, KIB_4, group.into()).depth(32);
            let reader = reader.think(RETURN_NS).gap(GAP_NS).group(group);
            bed.client(reader.start(u64::from(group) * 300 * MILLISECOND))
        });
        bed.run_until(TO);
        let [light, heavy] = readers.map(|reader| iops(&bed, reader));
        eprintln!("{service} ms: {light:.0} and {heavy:.0} a second, 1 : {:.2}", heavy / light);
        assert!((heavy / light - 3.0).abs() <= 0.15, "1 : {:.2}", heavy / light);
    }
}

/// 2,048 I/Os of 2.2 ms each last 4.6 s one by one, and the kernel's lasted 4.5 to 5.6 s: nothing
/// merged there. So the blocks are a gap apart here.
#[test]
fn writers_that_begin_together_before_bfq_end_as_evenly_as_in_the_kernel() {
    if !can_run("bfq") {
        return;
    }
    for (low_latency, earliest, latest) in [("1", 4.95, 5.64), ("0", 4.51, 5.6)] {
        let ends = ends_of_writers(one_at_a_time(), low_latency, 2 * KIB_16);
        let last = ends.iter().copied().fold(0.0, f64::max);
        expect_even(&format!("ends with low_latency={low_latency}"), &ends, latest / earliest);
        expect_at_most("the last end, s", last, latest);
    }
}

/// Where blocks touch they merge, four to a command. Measured on Linux 6.18: a loop device over a
/// file whose every command takes 2.1 ms and some, the driver taking four.
#[test]
fn writers_whose_blocks_merge_end_as_evenly_before_bfq_as_in_the_kernel() {
    if !can_run("bfq") {
        return;
    }
    for (low_latency, earliest, latest) in [("1", 1.55, 1.62), ("0", 1.24, 1.32)] {
        let ends = ends_of_writers(one_at_a_time().with_depth(4), low_latency, KIB_16);
        let last = ends.iter().copied().fold(0.0, f64::max);
        expect_even(&format!("ends with low_latency={low_latency}"), &ends, latest / earliest);
        expect_at_most("the last end, s", last, latest);
    }
}

#[test]
fn reads_and_writes_before_kyber_get_what_they_get_in_the_kernel() {
    let device = Device::slots(8, 4 * MILLISECOND).with_overhead(OVERHEAD_NS);
    let mut bed = bed("kyber", device, &[]);
    let reader = Client::random_reader(0, 1 << 30, KIB_4, 1).depth(32).gap(GAP_NS);
    let writer = Client::random_writer(0, 1 << 30, KIB_4, 2).depth(32).gap(GAP_NS);
    let (reader, writer) = (bed.client(reader), bed.client(writer));
    bed.run_until(TO);
    let (reads, writes) = (iops(&bed, reader), iops(&bed, writer));
    expect_close("reads a second", reads, 1195.0);
    expect_close("writes a second", writes, 600.0);
    expect_close("reads to a write", reads / writes, 1195.0 / 600.0);
    let (reads, writes) = (latencies(&bed, reader), latencies(&bed, writer));
    expect_close("mean of reads, ms", ms(reads.mean()), 26.6);
    expect_close("mean of writes, ms", ms(writes.mean()), 53.1);
    expect_at_most("p99 of reads, ms", ms(reads.percentile(99)), 28.7);
    expect_at_most("p99 of writes, ms", ms(writes.percentile(99)), 57.3);
}

/// The shares of two sequential readers at two levels of best effort, the first to the second.
fn share_of_levels(levels: [u8; 2], device: Device, max_budget: &str) -> f64 {
    let tunables = [("low_latency", "0"), ("max_budget", max_budget)];
    let mut bed = bed("bfq", device, &tunables);
    let readers = [(1, levels[0]), (2, levels[1])].map(|(place, level)| {
        let reader = Client::reader(place * APART, KIB_32).depth(4).prio(Class::BestEffort, level);
        // Queues made within 180 ms of each other may become one.
        bed.client(reader.think(RETURN_NS).gap(GAP_NS).start(place * 700 * MILLISECOND))
    });
    bed.run_until(Nanos(35 * SECOND));
    let ios = readers.map(|r| bed.record(r).ios_between(Nanos(5 * SECOND), bed.now()) as f64);
    ios[0] / ios[1]
}

/// The lighter queue is never waited for: each of its requests ends its slot, and it returns in
/// time. Four touching blocks are one request, so it has one at a time.
#[test]
fn two_levels_of_readers_that_return_in_time_before_bfq_share_by_their_weights() {
    if !can_run("bfq") {
        return;
    }
    for (levels, due) in [([0, 4], 2.0), ([0, 7], 8.0), ([4, 4], 1.0), ([5, 6], 1.5)] {
        let share = share_of_levels(levels, one_at_a_time(), "8192");
        eprintln!("levels {levels:?}: {share:.2} : 1, due {due} : 1");
        assert!((share / due - 1.0).abs() <= 0.10, "levels {levels:?}: {share:.2} : 1");
    }
}

/// With an automatic budget the heavier one's slots end by time: the rate that sets the budget is
/// that of two readers by turns, and one alone merges less.
#[test]
fn shares_of_levels_before_bfq_stay_near_their_weights_while_slots_end_by_time() {
    if !can_run("bfq") {
        return;
    }
    for (levels, due) in [([0, 4], 2.0), ([0, 7], 8.0)] {
        let share = share_of_levels(levels, one_at_a_time(), "0");
        eprintln!("levels {levels:?}: {share:.2} : 1, due {due} : 1");
        assert!((share / due - 1.0).abs() <= 0.05, "levels {levels:?}: {share:.2} : 1");
    }
}
