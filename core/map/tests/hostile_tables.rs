//! Tables as an enemy or a mistake writes them: numbers at their bounds, many legs, any words.

mod rig;

use std::fmt::Write;
use std::sync::Arc;

use proptest::prelude::*;
use rig::{LEG, Rig, parse, read, write};
use weir_bio::{Bio, Limits, SECTOR, Status};
use weir_local::{Null, Ram};
use weir_map::kinds::{LINEAR, STRIPED, TABLE};
use weir_queue::{Driver, DriverError, DriverQueue, Queues};

/// Why a table cannot be read or opened over disks in memory.
fn why(table: &str) -> String {
    let backing = match parse(&TABLE, table) {
        Err(why) => return why,
        Ok(backing) => backing,
    };
    let legs = Rig::new("0 64 linear sda 0", 0).legs;
    let legs: Vec<_> = backing.legs().iter().map(|_| legs[0].clone()).collect();
    match backing.open_over(&weir_queue::Config::default(), &legs) {
        Err(error) => error.to_string(),
        Ok(_) => String::from("it opens"),
    }
}

#[test]
fn no_table_is_longer_than_a_disk_can_be() {
    let most = i64::MAX as u64 / SECTOR;
    let rig = Rig::new(&format!("0 {most} zero"), 0);
    assert_eq!(rig.above.limits().size().bytes(), most * SECTOR);
    for table in [
        format!("0 {} zero", most + 1),
        format!("0 {most} zero; {most} 1 error"),
        format!("0 {} zero", u64::MAX),
        format!("0 1 zero; 1 {} zero", u64::MAX),
        format!("0 {} linear sda 0", most + 1),
        format!("0 {} flakey sda 0 1 1", u64::MAX),
        format!("0 {} delay sda 0 1", u64::MAX),
        format!("0 {} fault sda 0 0", u64::MAX),
    ] {
        assert!(why(&table).contains("it ends beyond 18014398509481983 sectors"), "{table}");
    }
}

#[test]
fn an_offset_at_the_end_of_all_numbers_is_beyond_the_leg() {
    let beyond = "is beyond its 64";
    for table in [
        format!("0 8 linear sda {}", u64::MAX),
        format!("0 8 linear sda {}", u64::MAX - 7),
        format!("0 8 linear sda {}", LEG - 7),
        format!("0 16 striped 2 8 sda 0 sdb {}", u64::MAX - 7),
        format!("0 8 delay sda 0 0 sda 0 0 sda {} 0", u64::MAX - 3),
        format!("0 8 flakey sda {} 1 1", u64::MAX),
        format!("0 8 fault sda {} 0", u64::MAX),
    ] {
        assert!(why(&table).contains(beyond), "{table}: {}", why(&table));
    }
    assert_eq!(why(&format!("0 8 linear sda {}", LEG - 8)), "it opens");
}

/// A disk in memory whose true end is inside its last block.
struct Cut(Ram);

const CUT_BYTES: u32 = 100;

impl Driver for Cut {
    fn limits(&self) -> Limits {
        Limits { padding: CUT_BYTES, ..self.0.limits() }
    }

    fn queues(&self) -> Queues {
        self.0.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.0.open(index, depth)
    }
}

#[test]
fn a_block_that_the_end_of_a_disk_cuts_is_in_no_table() {
    let leg = || -> Arc<dyn Driver> { Arc::new(Cut(Ram::new(LEG * SECTOR).unwrap())) };
    let rig = Rig::of(&*parse(&TABLE, "0 63 linear sda 0").unwrap(), 0, &leg);
    assert_eq!(rig.above.limits().size().bytes(), 63 * SECTOR);
    for table in [
        "0 64 linear sda 0",
        "0 1 linear sda 63",
        "0 8 striped 1 8 sda 56",
        "0 64 delay sda 0 1",
        "0 64 flakey sda 0 1 1",
        "0 64 fault sda 0 0",
    ] {
        let backing = parse(&TABLE, table).unwrap();
        let error = backing.open_over(rig.above.config(), &rig.legs).unwrap_err().to_string();
        assert_eq!(error, "sector 63 of sda is beyond its 63", "{table}");
    }
}

#[test]
fn a_thousand_legs_are_read_and_written_side_by_side_and_one_behind_the_other() {
    const LEGS: u64 = 1_000;
    let (mut linear, mut stripes) = (String::new(), String::new());
    for leg in 0..LEGS {
        let _ = write!(linear, "{} 8 linear d{leg} {}; ", leg * 8, leg % 50);
        let _ = write!(stripes, " d{leg} 0");
    }
    for table in [linear, format!("0 8000 striped {LEGS} 8{stripes}")] {
        let mut rig = Rig::new(&table, 0);
        assert_eq!(rig.legs.len() as u64, LEGS);
        assert_eq!(rig.status(write(4, LEGS * 8 - 8, 7)), Status::Ok);
        let end = rig.one(read(0, LEGS * 8));
        let right = [vec![0; 4 * 512], vec![7; (LEGS as usize * 8 - 8) * 512], vec![0; 4 * 512]];
        assert!(end.bytes() == right.concat());
        assert_eq!(rig.status(Bio::flush()), Status::Ok);
        assert!(rig.legs.iter().all(|leg| leg.stats().flushes == 1));
    }
    let stripe = format!("0 8200 striped 1025 8{}", " d 0".repeat(1025));
    assert!(why(&stripe).contains("#stripes=1025 is outside 1..=1024"));
}

#[test]
fn a_table_of_as_many_lines_as_there_may_be_is_read_and_one_more_is_not() {
    let lines = |count: u64| -> String {
        (0..count)
            .map(|line| format!("{line} 1 {}\n", ["zero", "error"][line as usize % 2]))
            .collect()
    };
    let mut rig = Rig::new(&lines(4096), 0);
    for sector in [0, 1, 4094, 4095] {
        let right = [Status::Ok, Status::IoErr][sector as usize % 2];
        assert_eq!(rig.status(read(sector, 1)), right);
    }
    assert_eq!(rig.map.table(), lines(4096));
    assert!(why(&lines(4097)).contains("a table of 4097 lines, at most 4096"));
}

#[test]
fn two_tables_may_share_a_leg_and_one_may_use_two_parts_of_it() {
    let mut rig = Rig::new("0 8 linear sda 8; 8 8 linear sda 0", 0);
    assert_eq!(rig.legs.len(), 1, "it is one leg");
    assert_eq!(rig.status(write(7, 2, 5)), Status::Ok);
    assert_eq!(rig.on_leg(0, 15, 1), vec![5; 512]);
    assert_eq!(rig.on_leg(0, 0, 1), vec![5; 512]);
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    assert_eq!(rig.legs[0].stats().flushes, 1, "one leg is flushed once");
}

#[test]
fn disks_that_are_too_long_together_are_refused() {
    let leg = || -> Arc<dyn Driver> { Arc::new(Null::new(1 << 63).unwrap()) };
    let rig = Rig::of(&*parse(&TABLE, "0 8 linear a 0; 8 8 linear b 0").unwrap(), 0, &leg);
    let limits = rig.legs[0].limits();
    assert_eq!(limits.capacity, 1 << 54);
    for (kind, rest) in [(&LINEAR, "a+b"), (&STRIPED, "64KiB:a+b")] {
        let backing = parse(kind, rest).unwrap();
        let error = backing.open_over(rig.above.config(), &rig.legs).unwrap_err().to_string();
        assert_eq!(
            error, "its disks have 36028797018963968 sectors, at most 18014398509481983",
            "{rest}"
        );
    }
    let names: Vec<String> = (0..1025).map(|leg| format!("d{leg}")).collect();
    let error = parse(&STRIPED, &format!("64KiB:{}", names.join("+"))).unwrap_err();
    assert_eq!(error, "a stripe over 1025 disks, at most 1024");
    assert!(parse(&STRIPED, &format!("64KiB:{}", names[..1024].join("+"))).is_ok());
}

/// A word of a table, many of which stand where they belong.
fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..40_u64).prop_map(|number| number.to_string()),
        1 => any::<u64>().prop_map(|number| number.to_string()),
        2 => prop::sample::select(vec!["sda", "sdb", "linear", "striped", "zero", "error"])
            .prop_map(String::from),
        2 => prop::sample::select(vec!["delay", "flakey", "fault", "multipath", "round-robin"])
            .prop_map(String::from),
        1 => prop::sample::select(vec![";", "\n", "-1", "1e3", "0x8", "\u{661}", "+1", ""])
            .prop_map(String::from),
    ]
}

/// A line whose beginning is right.
fn any_line() -> impl Strategy<Value = String> {
    let kinds = vec!["linear", "striped", "zero", "error", "delay", "flakey", "fault"];
    (1..40_u64, prop::sample::select(kinds), prop::collection::vec(any_word(), 0..9))
        .prop_map(|(length, kind, words)| format!("{length} {kind} {}", words.join(" ")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn no_text_makes_a_table_panic(words in prop::collection::vec(any_word(), 0..24)) {
        let _ = why(&words.join(" ").replace(',', " "));
    }

    #[test]
    fn a_table_that_opens_shows_itself_and_the_shown_one_is_the_same(
        lines in prop::collection::vec(any_line(), 1..4),
    ) {
        let (mut text, mut start) = (String::new(), 0);
        for line in lines {
            let length: u64 = line.split(' ').next().unwrap().parse().unwrap();
            let _ = writeln!(text, "{start} {line}");
            start += length;
        }
        if why(&text) == "it opens" {
            let shown = Rig::new(&text, 0).map.table();
            let again = Rig::new(&shown, 0).map.table();
            prop_assert_eq!(&shown, &again, "{}", text);
            // A word may be the end of a line, and the rest of that line empty.
            let written = text.lines().filter(|line| !line.trim().is_empty());
            prop_assert_eq!(shown.lines().count(), written.count());
        }
    }
}
