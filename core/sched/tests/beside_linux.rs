//! Scenes under BFQ, beside what Linux 6.18 made of them on a loop device over a slow disk
//! (`golden/bfq-on-a-loop-device.md`, recorded by `golden/record_bfq.py`).
//!
//! The modelled device is that of the recording: it takes 128 commands and carries out one at a
//! time. The scheduler is asked a while after the first reason to, as Linux runs a hardware queue
//! from another thread: in between blocks that touch become one command. Both times, and what
//! passes between two I/Os of one submission, are the same for all scenes.

#![forbid(unsafe_code)]

mod bed;

use bed::{Bed, Client, ClientId, Device, MICROSECOND, MILLISECOND, SECOND, Setting, wide};
use weir_bio::{Class, GroupId, Limits, Nanos};

const RECORDED: &str = include_str!("golden/bfq-on-a-loop-device.md");

/// One command and what passes before the next, as `depth 4` of the device alone has them.
const SERVICE_NS: u64 = 2_000_000;
const OVERHEAD_NS: u64 = 160_000;
const NOISE_NS: u64 = 200_000;
const ASK_DELAY_NS: std::ops::Range<u64> = 100 * MICROSECOND..300 * MICROSECOND;
/// From the end of an I/O to the submitter's next; fio hands several in with one call.
const RETURN_NS: u64 = 50 * MICROSECOND;
const GAP_NS: u64 = MICROSECOND;
/// Blocks, sectors.
const KIB_128: u32 = 256;
const KIB_32: u32 = 64;
const KIB_16: u32 = 32;
const KIB_4: u32 = 8;
/// Where clients that do not meet begin, sectors.
const APART: u64 = 1 << 20;
/// Queues made within 180 ms of each other may become one.
const STAGGER_NS: u64 = 700 * MILLISECOND;
const FROM: Nanos = Nanos(4 * SECOND);
const TO: Nanos = Nanos(24 * SECOND);

fn bed(low_latency: bool) -> Bed {
    let device = Device::serial(SERVICE_NS).with_overhead(OVERHEAD_NS).with_noise(NOISE_NS, 1);
    let limits = Limits { max_user_sectors: 2560, max_segments: 128, ..wide(false) };
    let low_latency = String::from(if low_latency { "1" } else { "0" });
    let setting = Setting {
        limits: Some(limits),
        tunables: vec![("low_latency", low_latency)],
        ask_delay_ns: ASK_DELAY_NS,
        ..Setting::default()
    };
    Bed::with("bfq", device.with_depth(128), setting)
}

/// Sequential, 32 KiB, depth 4: all four touch.
fn reader(place: u64) -> Client {
    let reader = Client::reader(place * APART, KIB_32).depth(4).think(RETURN_NS).gap(GAP_NS);
    reader.start(place * STAGGER_NS)
}

/// Random 4 KiB, one after the other.
fn random(place: u64) -> Client {
    Client::random_reader(place * APART, APART, KIB_4, place).think(RETURN_NS)
}

fn writer(place: u64) -> Client {
    Client::writer(place * APART, KIB_32).depth(16).think(RETURN_NS).gap(GAP_NS)
}

fn iops(bed: &mut Bed, clients: &[ClientId]) -> Vec<f64> {
    bed.run_until(TO);
    let seconds = TO.since(FROM) as f64 / SECOND as f64;
    clients.iter().map(|one| bed.record(*one).ios_between(FROM, TO) as f64 / seconds).collect()
}

/// The medians of a recorded scene.
fn recorded(scene: &str) -> Vec<f64> {
    let of_it = RECORDED.lines().filter(|line| line.starts_with(&format!("| {scene} |")));
    let median = |line: &str| line.split('|').nth(3)?.split_whitespace().next()?.parse().ok();
    let found: Vec<f64> = of_it.filter_map(median).collect();
    assert!(!found.is_empty(), "no scene {scene:?} in the recording");
    found
}

/// Parts of a whole.
fn shares(of: &[f64]) -> Vec<f64> {
    let whole: f64 = of.iter().sum();
    of.iter().map(|part| part / whole).collect()
}

/// Each share is within 10 % of `due`; so is the kernel's, but for `unlike`, the farthest of its.
#[track_caller]
fn expect_shares(scene: &str, ours: &[f64], due: &[f64], unlike: f64) {
    let (ours, kernel, due) = (shares(ours), shares(&recorded(scene)), shares(due));
    eprintln!("{scene}: {ours:.3?}, Linux {kernel:.3?}, due {due:.3?}");
    for ((ours, kernel), due) in ours.iter().zip(&kernel).zip(&due) {
        assert!((ours / due - 1.0).abs() <= 0.10, "{scene}: {ours:.3} for {due:.3}");
        let off = (kernel / due - 1.0).abs();
        assert!(off <= unlike.max(0.10), "{scene}: Linux has {kernel:.3} for {due:.3}");
    }
}

/// Within so many per cent of the recorded figure.
#[track_caller]
fn expect_near(what: &str, ours: f64, kernel: f64, percent: f64) {
    let off = (ours / kernel - 1.0) * 100.0;
    eprintln!("{what}: {ours:.3}, Linux {kernel:.3} ({off:+.0} %)");
    assert!(off.abs() <= percent, "{what}: {ours:.3}, Linux {kernel:.3} ({off:+.0} %)");
}

fn readers_of_levels(levels: &[u8]) -> Vec<f64> {
    let mut bed = bed(false);
    let add =
        |(place, level): (u64, &u8)| bed.client(reader(place).prio(Class::BestEffort, *level));
    let readers: Vec<_> = (0..).zip(levels).map(add).collect();
    iops(&mut bed, &readers)
}

#[test]
fn levels_share_by_their_weights() {
    expect_shares("levels 0 and 7", &readers_of_levels(&[0, 7]), &[8.0, 1.0], 0.10);
    let four = readers_of_levels(&[0, 2, 4, 6]);
    expect_shares("levels 0, 2, 4, 6", &four, &[8.0, 6.0, 4.0, 2.0], 0.22);
}

#[test]
fn groups_share_by_their_weights_flat_and_nested() {
    let mut flat = bed(false);
    let readers = [(1, 100), (2, 200), (3, 400)].map(|(group, weight)| {
        flat.weigh(group, weight);
        flat.client(reader(u64::from(group) - 1).group(group))
    });
    let got = iops(&mut flat, &readers);
    expect_shares("groups 100, 200, 400", &got, &[1.0, 2.0, 4.0], 0.10);
    let mut nested = bed(false);
    for (group, weight) in [(1, 200), (11, 100), (12, 300), (2, 100)] {
        nested.weigh(group, weight);
    }
    for child in [11, 12] {
        nested.scheduler_mut().group_parent(GroupId(child), GroupId(1));
    }
    let readers = [(0, 11), (1, 12), (2, 2)];
    let readers = readers.map(|(place, group)| nested.client(reader(place).group(group)));
    let got = iops(&mut nested, &readers);
    expect_shares("groups in groups", &got, &[1.0, 3.0, 2.0], 0.12);
}

#[test]
fn equals_share_evenly_whatever_they_read() {
    let mut same = bed(false);
    let readers = [0, 1].map(|place| same.client(random(place).depth(4).gap(GAP_NS)));
    expect_shares("two equal random readers", &iops(&mut same, &readers), &[1.0, 1.0], 0.10);
    let mut unlike = bed(false);
    let sequential = unlike.client(Client::reader(0, KIB_128).think(RETURN_NS));
    let readers = [sequential, unlike.client(random(1).start(STAGGER_NS))];
    let got = iops(&mut unlike, &readers);
    expect_shares("a sequential and a random reader", &got, &[1.0, 1.0], 0.10);
}

/// Each of the pair reads a block and then wakes the other: a command of theirs for each of the
/// reader's, which is four of its blocks.
#[test]
fn a_pair_that_wakes_each_other_has_a_command_for_each_of_a_greedy_reader() {
    let mut bed = bed(false);
    let greedy = bed.client(reader(1).start(0));
    let first = random(2).start(SECOND).wakes(ClientId(2));
    let first = bed.client(first);
    let second = bed.client(random(3).depth(0).wakes(first));
    let got = iops(&mut bed, &[first, second, greedy]);
    let got = [got[0] + got[1], got[2]];
    expect_shares("a waker pair beside a greedy reader", &got, &[1.0, 4.0], 0.10);
}

/// The idle class has one command of four blocks in 200 ms and a slot, as in Linux. Linux gave
/// best effort as much as real-time here; the rule is that classes are strict, and it is held.
#[test]
fn classes_are_strict_and_the_idle_one_has_what_it_has_in_linux() {
    let mut bed = bed(false);
    let classes = [(0, Class::RealTime), (1, Class::BestEffort), (2, Class::Idle)];
    let clients = classes.map(|(place, class)| bed.client(reader(place).prio(class, 0)));
    let got = iops(&mut bed, &clients);
    let kernel = recorded("real-time, best effort, idle");
    eprintln!("classes: {got:.1?}, Linux {kernel:.1?}");
    assert!(got[1] == 0.0 && got[0] > 1000.0, "{got:?}");
    expect_near("idle class, IOPS", got[2], kernel[2], 10.0);
}

fn ends_of_writers(low_latency: bool) -> (f64, f64) {
    let mut bed = bed(low_latency);
    let writers: Vec<_> = (0..32)
        .map(|place| {
            let writer = Client::writer(place * APART / 2, KIB_16).depth(4).ios(64);
            bed.client(writer.think(RETURN_NS).gap(GAP_NS))
        })
        .collect();
    bed.run_out();
    let ends = writers.iter().map(|writer| bed.record(*writer).finished_at.expect("an end"));
    let ends: Vec<f64> = ends.map(|at| at.0 as f64 / SECOND as f64).collect();
    (ends.iter().copied().fold(f64::MAX, f64::min), ends.iter().copied().fold(0.0, f64::max))
}

#[test]
fn writers_that_begin_together_end_when_they_end_in_linux() {
    let kernel = recorded("32 writers, low_latency=0");
    let (first, last) = ends_of_writers(false);
    expect_near("first end, low_latency=0, s", first, kernel[0], 10.0);
    expect_near("last end, low_latency=0, s", last, kernel[1], 10.0);
    // The raised ones among them end earlier in Linux; here they end together.
    let kernel = recorded("32 writers, low_latency=1");
    let (first, last) = ends_of_writers(true);
    assert!(first >= kernel[0] * 0.9, "the first end is after {first:.2} s");
    expect_near("last end, low_latency=1, s", last, kernel[1], 10.0);
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MILLISECOND as f64
}

/// A reader with 20 ms between its blocks, and four sequential writers of depth 16. It waits for
/// what the device has taken, 4.6 commands on the average in Linux and 7.5 here, whatever
/// `low_latency` says: in Linux the writers' blocks of one call also merge in the plug, before the
/// scheduler sees them, which the bed has not.
#[test]
fn an_interactive_reader_waits_for_what_the_device_has_taken() {
    for low_latency in [true, false] {
        let mut bed = bed(low_latency);
        let reader = random(0).think(20 * MILLISECOND + RETURN_NS).dither(5 * MILLISECOND, 1);
        let reader = bed.client(reader);
        for place in 1..5 {
            bed.client(writer(place).start(place * MILLISECOND));
        }
        bed.run_until(TO);
        let waits = bed.record(reader).latencies_between(FROM, TO);
        let name = format!("interactive reader, low_latency={}", u8::from(low_latency));
        let kernel = recorded(&name);
        expect_near(&format!("{name}: mean, ms"), ms(waits.mean()), kernel[0], 65.0);
        expect_near(&format!("{name}: p99, ms"), ms(waits.percentile(99)), kernel[2], 65.0);
    }
}

/// In Linux the reader meets slots of write-back of up to 120 ms (a mean of 25 ms). Here it waits
/// for one command: it returns in time, and the slot of the async queue ends.
#[test]
fn a_reader_beside_write_back_waits_for_one_command() {
    let mut bed = bed(false);
    bed.client(Client::writer(APART, KIB_4).background().depth(128));
    let reader = bed.client(random(0).start(SECOND));
    bed.run_until(TO);
    let waits = bed.record(reader).latencies_between(FROM, TO);
    let (mean, kernel) = (ms(waits.mean()), recorded("background writer beside a reader"));
    eprintln!("beside write-back: {mean:.2} ms, Linux {:.2} ms", kernel[0]);
    assert!(mean <= 2.2 * ms(SERVICE_NS + OVERHEAD_NS) && mean < kernel[0], "{mean:.2} ms");
}

/// Twelve processes of 32 dependent reads each, beside two writers: how long each took, s.
fn bursts(spacing_ms: u64) -> Vec<f64> {
    let mut bed = bed(true);
    for place in 1..3 {
        bed.client(writer(place));
    }
    let starts = (0..12).map(|place| 4 * SECOND + place * spacing_ms * MILLISECOND);
    let add =
        |(place, start): (u64, u64)| (start, bed.client(random(4 + place).ios(32).start(start)));
    let clients: Vec<(u64, ClientId)> = (0..).zip(starts).map(add).collect();
    bed.run_until(TO);
    let end = |client: ClientId| bed.record(client).finished_at.expect("an end").0;
    let took = clients.into_iter().map(|(start, client)| end(client) - start);
    let mut took: Vec<f64> = took.map(|ns| ns as f64 / SECOND as f64).collect();
    took.sort_by(f64::total_cmp);
    took
}

#[test]
fn processes_that_start_in_turn_read_as_soon_as_in_linux() {
    for spacing_ms in [100, 250] {
        let scene = format!("12 starts {spacing_ms} ms apart beside two writers");
        let (took, kernel) = (bursts(spacing_ms), recorded(&scene));
        eprintln!("{scene}: {:.3} to {:.3} s, Linux {kernel:.3?}", took[6], took[11]);
        assert!(took[6] <= kernel[0] * 1.10 && took[11] <= kernel[1] * 1.10, "{took:?}");
    }
}

/// Two random readers of levels 7 and 5 before a device that carries out all it takes, 50 ms a
/// command, where requests wait for tags: `nr_requests`, depth, and the share that Linux 6.18 gave
/// the better level (docs/fidelity.md), which gave 2.9 to 6.1 in the second row when it was asked
/// again. Asked at once, as nothing here merges.
#[test]
fn shares_under_a_shortage_of_tags_are_near_those_of_linux() {
    let rows = [
        (128, 32, 1.9),
        (128, 64, 4.7),
        (128, 128, 7.8),
        (256, 128, 4.8),
        (256, 256, 4.7),
        (64, 64, 5.7),
    ];
    for (nr_requests, depth, kernel) in rows {
        let device = Device::slots(128, 50 * MILLISECOND).with_noise(500 * MICROSECOND, 1);
        let tunables = vec![("low_latency", String::from("0"))];
        let setting = Setting { nr_requests, tunables, ..Setting::default() };
        let mut bed = Bed::with("bfq", device, setting);
        let readers = [(0, 7), (1, 5)].map(|(place, level)| {
            let reader = random(place).depth(depth).gap(10 * GAP_NS).start(place * STAGGER_NS);
            bed.client(reader.prio(Class::BestEffort, level))
        });
        let got = iops(&mut bed, &readers);
        let what = format!("nr_requests={nr_requests}, depth {depth}: 1 to");
        expect_near(&what, got[1] / got[0], kernel, 25.0);
    }
}
