//! Faults as a target and as a line of a table: how they are stated, shown and counted. What they
//! do is in the tests of the driver, and in the laws of all drivers.

mod rig;

use proptest::prelude::*;
use rig::{Rig, S, parse, range, read, write};
use weir_bio::{Bio, Flags, Nanos, Op, Status};
use weir_map::kinds::{FAULT, TABLE};

#[test]
fn a_fault_target_without_options_is_its_disk() {
    let mut rig = Rig::fault("disk", 0);
    assert_eq!(rig.status(write(3, 60, 7)), Status::Ok);
    assert_eq!(rig.on_leg(0, 3, 60), vec![7; 60 * 512]);
    assert_eq!(rig.one(read(3, 60)).bytes(), vec![7; 60 * 512]);
    assert_eq!(rig.above.limits(), rig.legs[0].limits());
    let flushes = rig.legs[0].stats().flushes;
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    assert_eq!(rig.status(write(0, 1, 7).with(Flags::FUA)), Status::Ok);
    assert_eq!(rig.legs[0].stats().flushes, flushes + 2, "the disk has no FUA");
    assert_eq!(rig.status(range(Op::WriteZeroes, 3, 10)), Status::Ok);
    assert_eq!(rig.status(range(Op::Discard, 13, 50)), Status::Ok);
    assert_eq!(rig.on_leg(0, 3, 60), vec![0; 60 * 512]);
    assert_eq!(rig.map.table(), "0 64 fault disk 0 0\n");
    assert_eq!(rig.map.status(), "0 64 fault 0 0 0 0\n");
    assert!(rig.notices.is_empty(), "{:?}", rig.notices);
}

#[test]
fn io_fails_as_the_options_say_and_the_status_counts_it() {
    let errors = [
        ("EIO", Status::IoErr),
        ("ENODATA", Status::Medium),
        ("ENOSPC", Status::NoSpc),
        ("ENOLINK", Status::Transport),
        ("EREMOTEIO", Status::Target),
        ("EBADE", Status::ResvConflict),
        ("EILSEQ", Status::Protection),
        ("ENODEV", Status::Offline),
        ("EOPNOTSUPP", Status::NotSupp),
    ];
    for (name, status) in errors {
        let mut rig = Rig::fault(&format!("disk,failed=100,errors={name}"), 0);
        for _ in 0..4 {
            assert_eq!(rig.status(write(0, 1, 7)), status, "{name}");
        }
        assert_eq!(rig.map.status(), "0 64 fault 0 4 0 0\n", "{name}");
    }
    let mut rig = Rig::fault("disk,failed=100,errors=EIO+ENODATA,seed=3", 0);
    let statuses: Vec<Status> = (0..32).map(|_| rig.status(read(0, 1))).collect();
    for status in [Status::IoErr, Status::Medium] {
        assert!(statuses.contains(&status), "{statuses:?}");
    }
}

#[test]
fn a_line_of_a_table_says_the_same_of_a_range() {
    let line = "0 32 fault disk 16 6 refused 30 delayed 100 seed 9";
    let mut rig = Rig::new(line, 0);
    assert_eq!(rig.map.table(), format!("{line}\n"));
    for at in 0..32 {
        assert_eq!(rig.waited(write(at, 1, at as u8)).status, Status::Ok);
        assert_eq!(rig.on_leg(0, 16 + at, 1), vec![at as u8; 512]);
    }
    let status = rig.map.status();
    let counts: Vec<u64> =
        status.split_whitespace().skip(3).map(|word| word.parse().unwrap()).collect();
    assert!(counts[0] > 0 && counts[1..] == [0, 32, 0], "{status}");
}

#[test]
fn what_is_lost_ends_with_its_time_and_a_disk_without_one_says_so() {
    let mut rig = Rig::fault("disk,lost=100", S);
    assert!(rig.notices.is_empty());
    rig.submit(write(0, 1, 1).cookie(5));
    assert!(rig.ended.is_empty());
    rig.settle();
    let ended: Vec<_> = rig.ended.iter().map(|end| (end.cookie, end.status)).collect();
    assert_eq!(ended, [(5, Status::Timeout)]);
    assert_eq!(rig.map.status(), "0 64 fault 0 0 0 1\n");
    let rig = Rig::fault("disk,lost=1", 0);
    assert_eq!(rig.notices, ["requests are lost, and no io_timeout ends them"]);
}

#[test]
fn a_target_or_line_that_is_wrong_is_refused_with_its_bound() {
    for (target, part) in [
        ("a+b", "names 2 disks, not one"),
        ("", "names no disk"),
        ("a,failed=101", "failed=101 is outside 0..=100"),
        ("a,lost=-1", "lost=-1 is outside 0..=100"),
        ("a,reaps_max=0", "reaps_max=0 is outside 1..="),
        ("a,reordered=yes", "reordered=yes is neither on nor off"),
        ("a,errors=EIO+EPERM", "unknown error \"EPERM\" in errors=EIO+EPERM; known are EIO, "),
        ("a,seed=x", "seed=x is outside"),
    ] {
        let why = parse(&FAULT, target).unwrap_err();
        assert!(why.contains(part), "{target}: {why}");
    }
    for (arguments, part) in [
        ("", "a device is missing"),
        ("a", "offset is missing"),
        ("a 0", "#words is missing"),
        ("a 0 21", "#words=21 is outside 0..=20"),
        ("a 0 1 failed", "#words=1, names and values, and 1 follow"),
        ("a 0 2 failed", "#words=2, names and values, and 1 follow"),
        ("a 0 0 failed 1", "#words=0, names and values, and 2 follow"),
        ("a 0 2 broken 1", "unknown fault \"broken\"; known are refused, failed, errors"),
        ("a 0 4 failed 1 failed 2", "failed is stated twice"),
    ] {
        let why = parse(&TABLE, &format!("0 8 fault {arguments}")).unwrap_err();
        assert!(why.contains(part), "{arguments}: {why}");
    }
    let mut table = parse(&TABLE, "0 8 fault a 0 0").unwrap();
    assert!(table.set("failed", "1").is_err(), "a table says it itself");
    let why = Rig::fault("a", 0).map.message("failed 5", Nanos(0)).unwrap_err();
    assert!(why.contains("takes no messages"), "{why}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_line_that_was_read_is_written_as_it_was(
        numbers in proptest::collection::vec(1..=100_u32, 6),
        is_stated in proptest::collection::vec(any::<bool>(), 9),
        seed in 2..=u64::MAX,
    ) {
        let option = |name: &str, value: String| format!("{name} {value}");
        let n = |at: usize| numbers[at].to_string();
        let all = [
            option("refused", n(0)),
            option("failed", n(1)),
            option("errors", String::from("ENODATA+EIO")),
            option("delayed", n(2)),
            option("reordered", String::from("on")),
            option("lost", n(3)),
            option("cancel_done", n(4)),
            option("late", n(5)),
            option("seed", seed.to_string()),
        ];
        let words: String = all
            .iter()
            .zip(&is_stated)
            .filter(|(_, is_stated)| **is_stated)
            .map(|(words, _)| format!(" {words}"))
            .collect();
        let count = words.split_whitespace().count();
        let line = format!("0 32 fault disk 8 {count}{words}\n");
        prop_assert_eq!(Rig::new(line.trim_end(), 0).map.table(), line);
    }
}
