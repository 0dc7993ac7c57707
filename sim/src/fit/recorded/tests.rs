use std::fmt::Write as _;

use weir_bio::Prng;
use weir_sim_disk::measured::{SHARES, Use};

use super::*;

/// Seed of everything random here.
const SEED: u64 = 20;

fn level(in_flight: u32, us: u64) -> Level {
    let read = SHARES.iter().map(|share| (us * 1000) * (10_000 + share) / 10_000).collect();
    let write = SHARES.iter().map(|share| (2 * us * 1000) * (10_000 + share) / 10_000).collect();
    Level { in_flight, read, write }
}

/// A disk that takes 100 to 200 us for a read alone, more with others, and as much again for a
/// write; and a jump.
fn known() -> Measured {
    Measured {
        of_size: 4096,
        least_size: 4096,
        most_size: 65_536,
        read_bandwidth: 400_000_000,
        write_bandwidth: 0,
        read_percent: [0, 100],
        access: Access::Both,
        jump: 50_000,
        at: vec![level(1, 100), level(4, 160), level(16, 400)],
    }
}

/// What `weir record` would have written of a load on a disk: its depth changes all the time.
fn recording(disk: &Measured, commands: usize, depths: &[u32]) -> String {
    let kind = weir_sim_disk::Kind::Measured(disk.clone());
    let spec = Spec { size: 1 << 40, depth: 64, rotational: false, kind };
    let (mut machine, mut prng) = (Disk::new(&spec, SEED), Prng::new(SEED));
    let mut text = String::from("scheduler mq-deadline\ntick_us 1\nqueue rotational 1\n");
    let (mut now, mut under_way, mut begun, mut behind) = (Nanos::ZERO, BTreeMap::new(), 0, 0);
    while begun < commands {
        let depth = depths[begun / 500 % depths.len()] as usize;
        while under_way.len() < depth && begun < commands {
            let is_write = prng.percent(30);
            let sectors = if prng.percent(50) { 8 } else { 128 };
            let sector = if prng.percent(50) { behind } else { prng.below(1 << 30) * 8 };
            behind = sector + u64::from(sectors);
            let (op, letter) = if is_write { (Op::Write, "W") } else { (Op::Read, "R") };
            machine.start(Job { id: begun as u32, op, sector, sectors, fua: false }, now);
            let us = now.0 / 1000;
            writeln!(text, "{us} I {letter} {sector} {sectors} 0 0").unwrap();
            writeln!(text, "{us} D {letter} {sector} {sectors} - -").unwrap();
            under_way.insert(begun as u32, format!("C {letter} {sector} {sectors} - -"));
            begun += 1;
        }
        now = machine.wake_at().expect("something is under way").max(now);
        while let Some(end) = machine.take_end(now) {
            let line = under_way.remove(&end.id).expect("it is under way");
            writeln!(text, "{} {line}", now.0 / 1000).unwrap();
        }
    }
    text
}

fn fitted(text: &str) -> Result<Model, String> {
    let recording = Recording::read(text.as_bytes()).map_err(|why| why.to_string())?;
    fit(&recording).map_err(|why| why.to_string())
}

#[track_caller]
fn is_near(what: &str, ours: u64, theirs: u64, percent: f64) {
    let off = (ours as f64 / theirs as f64 - 1.0).abs() * 100.0;
    assert!(off <= percent, "{what}: {ours} for {theirs}, {off:.1} % (seed {SEED})");
}

#[test]
fn a_known_disk_is_recovered_from_a_recording_of_it() {
    let known = known();
    let model = fitted(&recording(&known, 60_000, &[1, 4, 16])).expect("a model");
    let disk = &model.disk;
    let depths: Vec<u32> = disk.at.iter().map(|level| level.in_flight).collect();
    assert_eq!((depths.first(), depths.last()), (Some(&1), Some(&16)), "{depths:?}");
    assert_eq!((disk.least_size, disk.most_size), (4096, 65_536));
    assert_eq!(disk.access, Access::Both);
    is_near("jump", disk.jump, known.jump, 5.0);
    is_near("read_bandwidth", disk.read_bandwidth, known.read_bandwidth, 5.0);
    let passed = |bytes: u64| bytes * 1_000_000_000 / known.read_bandwidth;
    for theirs in &known.at {
        let ours = disk.at.iter().find(|level| level.in_flight == theirs.in_flight);
        let ours = ours.unwrap_or_else(|| panic!("none with {} at once", theirs.in_flight));
        for at in [4, 5, 7] {
            let longer = passed(disk.of_size) - passed(known.of_size);
            is_near("read", ours.read[at], theirs.read[at] + longer, 8.0);
            is_near("write", ours.write[at], theirs.write[at], 8.0);
        }
    }
    for Held { in_flight, op, rate, p50_us, p99_us, .. } in &model.held_back {
        for (name, pair, most) in [("rate", rate, 5.0), ("p50", p50_us, 8.0), ("p99", p99_us, 8.0)]
        {
            let off = pair.error_pct();
            assert!(off.abs() <= most, "{name} of {op} with {in_flight}: {off:.1} % (seed {SEED})");
        }
    }
}

#[test]
fn what_a_recording_has_too_little_of_is_refused_with_what_it_has() {
    let known = known();
    for (text, what) in [
        (String::from("scheduler noop\n"), "there is nothing to fit"),
        (String::from("scheduler noop\n0 I R 0 8 0 0\n1 D R 0 8 - -\n"), "nothing to fit"),
        (recording(&known, 300, &[4]), "too few "),
        (
            (0..2000).fold(String::from("scheduler noop\n"), |text, n| {
                format!("{text}{n} I R {0} 8 0 0\n{n} D R {0} 8 - -\n{n} C R {0} 8 - -\n", n * 64)
            }),
            "whole microseconds",
        ),
        (String::from("scheduler noop\n0 C R 0 8 - -\n"), "line 2: C R 0 8"),
    ] {
        let why = fitted(&text).expect_err(what);
        assert!(why.contains(what), "{why}, not {what}");
    }
}

#[test]
fn a_recording_of_one_depth_is_a_model_for_that_depth_alone() {
    let one = Measured { access: Access::Random, ..known() };
    let model = fitted(&recording(&one, 8_000, &[4])).expect("a model");
    let of = |in_flight| Use {
        in_flight,
        read_percent: 70,
        sizes: [4096, 4096],
        access: Access::Random,
        flushes: false,
    };
    let refused = |in_flight| model.disk.beyond(&of(in_flight)).is_err();
    assert_eq!([3, 4, 5].map(refused), [true, false, true], "{:?}", model.disk);
}

#[test]
fn the_text_of_a_model_is_the_model() {
    let model = fitted(&recording(&known(), 20_000, &[1, 8])).expect("a model");
    let text = model.text("a test\nsize = 1");
    let spec = Spec::parse(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
    assert_eq!(spec.kind, weir_sim_disk::Kind::Measured(model.disk.clone()));
    let stated = (spec.size, spec.depth, spec.rotational);
    assert_eq!(stated, (model.size, model.depth, true));
}

#[test]
fn a_few_commands_that_became_one_are_no_size_that_was_seen() {
    let mut text = String::from("scheduler noop\n");
    for n in 0..2000 {
        let sectors = if n % 150 == 7 { 16 } else { 8 };
        let (at, sector) = (n * 100, n * 64);
        writeln!(text, "{at} I R {sector} {sectors} 0 0\n{at} D R {sector} {sectors} - -").unwrap();
        writeln!(text, "{} C R {sector} {sectors} - -", at + 80 + n % 7).unwrap();
    }
    let disk = fitted(&text).expect("a model").disk;
    assert_eq!((disk.least_size, disk.of_size, disk.most_size), (4096, 4096, 4096));
}

/// A recording of commands one at a time, each 100 us and a few: letter, sector and sectors.
fn one_by_one(commands: impl Iterator<Item = (char, u64, u64)>) -> String {
    let mut text = String::from("scheduler noop\n");
    for (n, (op, sector, sectors)) in commands.enumerate() {
        let at = n * 200;
        writeln!(text, "{at} I {op} {sector} {sectors} 0 0").unwrap();
        writeln!(text, "{at} D {op} {sector} {sectors} - -").unwrap();
        writeln!(text, "{} C {op} {sector} {sectors} - -", at + 100 + n % 7).unwrap();
    }
    text
}

#[test]
fn what_was_seen_of_one_direction_is_not_taken_for_seen_of_the_other() {
    for (what, text) in [
        (
            "reads were of 4 KiB to 4 KiB, and writes of 64 KiB to 64 KiB",
            one_by_one((0..4000).map(|n| match n % 2 {
                0 => ('R', n * 640, 8),
                _ => ('W', n * 640, 128),
            })),
        ),
        (
            "reads were random, and writes both",
            one_by_one((0..8000).map(|n| match n % 8 {
                // A read, and a stream of writes of which the first begins elsewhere.
                0 => ('R', 1_000_000 + n * 64, 8),
                _ => ('W', n * 8, 8),
            })),
        ),
        (
            "some stretches have 0 % of reads or less and all others 100 %",
            one_by_one((0..4000).map(|n| (if n < 2000 { 'R' } else { 'W' }, n * 64, 8))),
        ),
        (
            "a command ends at sector 36028797018963976",
            one_by_one((0..2000).map(|n| ('R', if n == 7 { 1 << 55 } else { n * 64 }, 8))),
        ),
        ("most_size=2 KiB is outside 4 KiB", one_by_one((0..2000).map(|n| ('R', n * 64, 4)))),
    ] {
        let why = fitted(&text).expect_err(what);
        assert!(why.contains(what), "{why}, not {what}");
    }
}

#[test]
fn a_few_commands_of_the_other_direction_are_no_part_of_it() {
    let text = one_by_one((0..20_000).map(|n| (if n % 400 == 7 { 'W' } else { 'R' }, n * 64, 8)));
    let disk = fitted(&text).expect("a model").disk;
    assert_eq!(disk.read_percent, [100, 100]);
}

#[test]
fn a_flush_does_not_make_what_follows_it_begin_elsewhere() {
    let text = one_by_one((0..4000).map(|n| match n % 2 {
        0 => ('W', n / 2 * 8, 8),
        _ => ('F', 0, 0),
    }));
    assert_eq!(fitted(&text).expect("a model").disk.access, Access::Sequential);
}

#[test]
fn writes_that_are_too_short_are_refused_beside_reads_that_are_not() {
    let mut text = String::from("scheduler noop\n");
    for n in 0..4000_u64 {
        let (op, took) = if n % 5 < 3 { ('R', 100) } else { ('W', n % 3) };
        let (at, sector) = (n * 200, n * 64);
        writeln!(text, "{at} I {op} {sector} 8 0 0\n{at} D {op} {sector} 8 - -").unwrap();
        writeln!(text, "{} C {op} {sector} 8 - -", at + took).unwrap();
    }
    let why = fitted(&text).expect_err("whole microseconds");
    assert!(why.starts_with("half of the writes took no longer than 1 us"), "{why}");
}
