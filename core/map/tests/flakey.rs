//! A flakey disk: what it does in which interval, and its line.

mod rig;

use proptest::prelude::*;
use rig::{Rig, S, parse, range, read, write};
use weir_bio::{Bio, Flags, Limits, Nanos, Op, Status};
use weir_map::kinds::TABLE;

/// A disk that is down from the start.
fn down(features: &str) -> Rig {
    Rig::new(&format!("0 32 flakey disk 16 0 1 {features}"), 0)
}

#[test]
fn up_and_down_alternate_from_the_time_of_the_load_and_not_of_the_first_io() {
    let mut rig = Rig::new("0 32 flakey disk 16 3 2", 0);
    rig.run();
    assert_eq!(rig.home.wake_at(), None, "one turn, at once, began the first interval");
    let load = rig.now.0;
    for (after_ns, status) in [
        (3 * S, Status::IoErr),
        (5 * S - 1, Status::IoErr),
        (5 * S, Status::Ok),
        (8 * S - 1, Status::Ok),
        (8 * S, Status::IoErr),
        (1_000_003 * S, Status::IoErr),
        (1_000_005 * S, Status::Ok),
    ] {
        rig.now = Nanos(load + after_ns);
        assert_eq!(rig.status(write(0, 1, 1)), status, "write after {after_ns} ns");
        assert_eq!(rig.status(read(0, 1)), status, "read after {after_ns} ns");
        assert_eq!(rig.status(Bio::flush()), status, "flush after {after_ns} ns");
    }
    assert_eq!(rig.above.stats().in_flight, 0);
}

#[test]
fn a_disk_that_is_up_is_the_range_of_its_leg() {
    let mut rig = Rig::new("0 32 flakey disk 16 1 0 1 error_reads", 0);
    let whole = rig.legs[0].limits();
    assert_eq!(rig.above.limits(), Limits { capacity: 32, ..whole });
    for (sector, byte) in [(0, 1), (31, 2)] {
        assert_eq!(rig.status(write(sector, 1, byte)), Status::Ok);
        assert_eq!(rig.on_leg(0, 16 + sector, 1), vec![byte; 512]);
        assert_eq!(rig.one(read(sector, 1)).bytes(), vec![byte; 512]);
    }
    assert_eq!(rig.status(range(Op::WriteZeroes, 0, 32)), Status::Ok);
    assert_eq!(rig.on_leg(0, 16, 32), vec![0; 32 * 512]);
    let flushes = rig.legs[0].stats().flushes;
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    assert_eq!(rig.status(write(0, 1, 1).with(Flags::FUA)), Status::Ok);
    assert_eq!(rig.legs[0].stats().flushes, flushes + 2, "the leg has no FUA");
}

/// The statuses of a write, a discard, zeroes, a flush and a read.
fn statuses(rig: &mut Rig) -> [Status; 5] {
    [
        write(0, 1, 1),
        range(Op::Discard, 0, 8),
        range(Op::WriteZeroes, 0, 8),
        Bio::flush(),
        read(0, 1),
    ]
    .map(|bio| rig.status(bio))
}

#[test]
fn each_feature_fails_or_forgets_what_it_is_for() {
    let (ok, err) = (Status::Ok, Status::IoErr);
    assert_eq!(statuses(&mut down("")), [err; 5]);
    assert_eq!(statuses(&mut down("0")), [err; 5]);
    assert_eq!(statuses(&mut down("1 error_writes")), [err, err, err, err, ok]);
    assert_eq!(statuses(&mut down("1 error_reads")), [ok, ok, ok, ok, err]);
    assert_eq!(statuses(&mut down("2 error_writes error_reads")), [err; 5]);
    assert_eq!(statuses(&mut down("2 drop_writes error_reads")), [ok, ok, ok, ok, err]);
    assert_eq!(statuses(&mut down("2 random_read_corrupt 5")), [ok; 5]);
}

#[test]
fn a_dropped_write_is_not_written_and_a_failed_one_is_neither() {
    for features in ["1 drop_writes", "1 error_writes", ""] {
        let mut rig = down(features);
        let flushes = rig.legs[0].stats().flushes;
        let _ = statuses(&mut rig);
        assert_eq!(rig.on_leg(0, 16, 1), vec![0; 512], "{features}");
        assert_eq!(rig.legs[0].stats().flushes, flushes, "{features}: a flush is a write");
        assert_eq!(rig.above.stats().in_flight, 0);
    }
}

#[test]
fn a_byte_of_each_read_is_another_and_the_disk_has_the_right_one() {
    let mut rig = down("5 corrupt_bio_byte 513 r 9 0");
    assert_eq!(rig.status(write(0, 3, 1)), Status::Ok);
    assert_eq!(rig.on_leg(0, 16, 3), vec![1; 3 * 512]);
    let mut wrong = vec![1; 3 * 512];
    wrong[512] = 9;
    assert_eq!(rig.one(read(0, 3)).bytes(), wrong);
    assert_eq!(rig.one(read(0, 1)).bytes(), vec![1; 512], "it has no such byte");
}

#[test]
fn a_byte_of_each_write_is_another_on_the_disk_and_not_in_the_writers_memory() {
    let mut rig = down("5 corrupt_bio_byte 1 w 255 0");
    let end = rig.one(write(0, 2, 1));
    assert_eq!((end.status, end.bytes()), (Status::Ok, vec![1; 1024]));
    let mut wrong = vec![1; 1024];
    wrong[0] = 255;
    assert_eq!(rig.one(read(0, 2)).bytes(), wrong);
    assert_eq!(rig.on_leg(0, 16, 2), wrong);
}

#[test]
fn the_bytes_of_metadata_alone_are_others_where_the_flags_say_so() {
    for (direction, plain, meta) in [("r", 1, 9), ("w", 1, 9)] {
        let mut rig = down(&format!("5 corrupt_bio_byte 1 {direction} 9 32"));
        rig.status(write(0, 1, 1));
        rig.status(write(1, 1, 1).with(Flags::META));
        assert_eq!(rig.one(read(0, 1)).bytes()[0], plain);
        assert_eq!(rig.one(read(1, 1).with(Flags::META)).bytes()[0], meta);
    }
}

#[test]
fn random_corruption_is_as_frequent_as_it_says_and_the_same_in_each_run() {
    let play = |features: &str| {
        let mut rig = down(features);
        let mut differing = Vec::new();
        for at in 0..200 {
            let bytes = {
                rig.status(write(at % 32, 1, 1));
                rig.one(read(at % 32, 1)).bytes()
            };
            let wrong = bytes.iter().filter(|byte| **byte != 1).count();
            assert!(wrong <= 1, "{features}: {wrong} bytes");
            differing.push(wrong);
        }
        differing
    };
    for feature in ["random_read_corrupt", "random_write_corrupt"] {
        let share = |share: u32| play(&format!("2 {feature} {share}"));
        let count = |most| share(most).iter().sum::<usize>();
        assert_eq!(count(1), 0);
        // One in 256 random bytes is the right one.
        assert!(count(1_000_000_000) > 190, "{feature}");
        assert!((60..140).contains(&count(500_000_000)), "{feature}");
        assert_eq!(share(500_000_000), share(500_000_000));
    }
}

#[test]
fn a_line_that_is_wrong_is_refused_with_its_bound() {
    for (arguments, part) in [
        ("", "a device is missing"),
        ("sda", "offset is missing"),
        ("sda 0", "up interval is missing"),
        ("sda 0 1", "down interval is missing"),
        ("sda 0 0 0", "up and down are both 0 s"),
        ("sda 0 4294967296 0", "up interval=4294967296 is outside 0..=4294967295"),
        ("sda 0 4294967295 1", "up 4294967295 and down 1 are more than 4294967295 s"),
        ("sda 0 1 1 12", "#words=12 is outside 0..=11"),
        ("sda 0 1 1 2 drop_writes", "#words=2, and 1 follow"),
        ("sda 0 1 1 0 drop_writes", "#words=0, and 1 follow"),
        ("sda 0 1 1 1 drop_reads", "unknown flakey feature \"drop_reads\"; known are drop_writes"),
        ("sda 0 1 1 2 drop_writes error_writes", "drop_writes excludes error_writes"),
        ("sda 0 1 1 2 error_reads error_reads", "error_reads is stated twice"),
        ("sda 0 1 1 1 corrupt_bio_byte", "byte of corrupt_bio_byte is missing"),
        ("sda 0 1 1 5 corrupt_bio_byte 0 r 1 0", "byte of corrupt_bio_byte=0 is outside 1.."),
        ("sda 0 1 1 5 corrupt_bio_byte 1 x 1 0", "x is neither r nor w"),
        ("sda 0 1 1 2 corrupt_bio_byte 1", "nothing is neither r nor w"),
        ("sda 0 1 1 5 corrupt_bio_byte 1 r 256 0", "value of corrupt_bio_byte=256 is outside"),
        ("sda 0 1 1 5 corrupt_bio_byte 1 r 1 7", "flags of corrupt_bio_byte=7 is neither 0 nor 32"),
        ("sda 0 1 1 6 drop_writes corrupt_bio_byte 1 w 1 0", "drop_writes excludes that writes"),
        ("sda 0 1 1 3 drop_writes random_write_corrupt 1", "drop_writes excludes that writes"),
        ("sda 0 1 1 2 random_read_corrupt 1000000001", "outside 0..=1000000000"),
    ] {
        let why = parse(&TABLE, &format!("0 8 flakey {arguments}")).unwrap_err();
        assert!(why.contains(part), "{arguments}: {why}");
    }
    let why = parse(&TABLE, "0 8 flakey sda 0 1 1; 8 8 zero").unwrap_err();
    assert!(why.contains("a flakey line stands alone"), "{why}");
    let why = down("").map.message("up", Nanos(0)).unwrap_err();
    assert!(why.contains("takes no messages"), "{why}");
}

#[test]
fn a_range_beyond_the_leg_is_refused() {
    let backing = parse(&TABLE, "0 64 flakey sda 1 1 1").unwrap();
    let rig = Rig::new("0 64 linear sda 0", 0);
    let why = backing.open_over(rig.above.config(), &rig.legs).unwrap_err().to_string();
    assert_eq!(why, "sector 64 of sda is beyond its 64");
}

/// The words of features, in the order in which a table has them.
fn any_features() -> impl Strategy<Value = String> {
    let writes = prop_oneof![Just(""), Just("drop_writes"), Just("error_writes")];
    let byte = (1..=u32::MAX, any::<bool>(), any::<u8>(), any::<bool>());
    let share = || 0..=1_000_000_000_u32;
    (writes, any::<bool>(), proptest::option::of(byte), share(), share()).prop_map(
        |(writes, error_reads, byte, read_share, write_share)| {
            let mut words: Vec<String> = Vec::new();
            words.extend((!writes.is_empty()).then(|| writes.into()));
            words.extend(error_reads.then(|| "error_reads".into()));
            let drops = writes == "drop_writes";
            if let Some((number, writes, value, meta)) = byte {
                let direction = if writes && !drops { 'w' } else { 'r' };
                let flags = if meta { 32 } else { 0 };
                words.push(format!("corrupt_bio_byte {number} {direction} {value} {flags}"));
            }
            words.extend((read_share > 0).then(|| format!("random_read_corrupt {read_share}")));
            let shown = write_share > 0 && !drops;
            words.extend(shown.then(|| format!("random_write_corrupt {write_share}")));
            let words = words.join(" ");
            let count = words.split_whitespace().count();
            format!("{count} {words}").trim_end().to_owned()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_line_that_was_read_is_written_as_it_was(
        offset in 0..32_u64,
        up in 0..=1_000_u32,
        down in 1..=1_000_u32,
        features in any_features(),
    ) {
        let line = format!("0 32 flakey sda {offset} {up} {down} {features}\n");
        prop_assert_eq!(Rig::new(line.trim_end(), 0).map.table(), line);
    }
}
