//! Areas on no leg: zeros that drop what is written, and errors; alone and beside others.

mod rig;

use rig::{Rig, parse, range, read, write};
use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, SECTOR, Segments, Status};
use weir_map::kinds::TABLE;
use weir_queue::{Backing, Keeps};

#[test]
fn a_disk_of_zeros_reads_as_zeros_whatever_was_written_and_needs_no_other_disk() {
    let mut rig = Rig::new("0 2048 zero", 0);
    assert_eq!(rig.legs.len(), 0);
    assert_eq!(rig.status(write(0, 2048, 7)), Status::Ok);
    assert_eq!(rig.status(range(Op::Discard, 8, 64)), Status::Ok);
    assert_eq!(rig.status(range(Op::WriteZeroes, 8, 64)), Status::Ok);
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    assert_eq!(rig.status(write(9, 1, 7).with(Flags::FUA | Flags::PREFLUSH)), Status::Ok);
    let end = rig.one(read(0, 2048));
    assert_eq!((end.status, end.bytes()), (Status::Ok, vec![0; 2048 * SECTOR as usize]));
    assert_eq!(rig.map.table(), "0 2048 zero\n");
    assert_eq!(rig.map.status(), "0 2048 zero\n");
    let extents = rig.above.allocation(0, 2048).unwrap();
    assert!(extents.iter().all(|extent| extent.hole && extent.zero), "{extents:?}");
    assert_eq!(rig.above.stats().in_flight, 0);
}

#[test]
fn a_disk_of_errors_fails_all_io() {
    let mut rig = Rig::new("0 2048 error", 0);
    let all = [
        write(0, 8, 7),
        read(8, 1),
        range(Op::Discard, 0, 8),
        range(Op::WriteZeroes, 0, 8),
        write(16, 1, 1).with(Flags::FUA),
    ];
    for bio in all {
        let what = format!("{bio:?}");
        assert_eq!(rig.status(bio), Status::IoErr, "{what}");
    }
    // There is nothing that a flush would make durable.
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    assert_eq!(rig.map.table(), "0 2048 error\n");
    assert_eq!(rig.map.status(), "0 2048 error\n");
    let extents = rig.above.allocation(0, 2048).unwrap();
    assert!(extents.iter().all(|extent| !extent.hole && !extent.zero), "{extents:?}");
    assert_eq!(rig.above.stats().in_flight, 0);
}

const MIXED: &str = "0 16 linear sda 8; 16 8 zero; 24 8 error; 32 32 striped 2 8 sdb 0 sdc 4";

#[test]
fn a_request_across_areas_is_cut_and_each_part_goes_where_the_table_says() {
    let mut rig = Rig::new(MIXED, 0);
    assert_eq!(rig.map.table(), MIXED.replace("; ", "\n") + "\n");
    let status = "0 16 linear\n16 8 zero\n24 8 error\n32 32 striped 2 sdb sdc 1 AA\n";
    assert_eq!(rig.map.status(), status);
    assert_eq!(rig.status(write(8, 16, 5)), Status::Ok);
    let end = rig.one(read(0, 24));
    let right = [(0, 8), (5, 8), (0, 8)];
    let right: Vec<u8> = right.iter().flat_map(|(byte, n)| vec![*byte; n * 512]).collect();
    assert_eq!((end.status, end.bytes() == right), (Status::Ok, true));
    // The memory is the reader's one buffer again.
    assert!(matches!(end.data, Data::One(_)), "{:?}", end.data);
    // The parts beside an error are written.
    assert_eq!(rig.status(write(12, 52, 9)), Status::IoErr);
    assert_eq!(rig.on_leg(0, 8 + 12, 4), vec![9; 4 * 512]);
    assert_eq!(rig.on_leg(1, 0, 16), vec![9; 16 * 512]);
    assert_eq!(rig.on_leg(2, 4, 16), vec![9; 16 * 512]);
    assert_eq!(rig.status(read(23, 2)), Status::IoErr);
    assert_eq!(rig.status(read(31, 2)), Status::IoErr);
    assert_eq!(rig.status(range(Op::WriteZeroes, 14, 8)), Status::Ok);
    assert_eq!(rig.status(range(Op::Discard, 14, 12)), Status::IoErr);
    assert_eq!(rig.on_leg(0, 8 + 13, 3), [vec![9; 512], vec![0; 1024]].concat());
    assert!(rig.map.status().contains("AA"), "no leg has failed");
    let extents = rig.above.allocation(16, 16).unwrap();
    let told: Vec<_> = extents.iter().map(|extent| (extent.sectors, extent.zero)).collect();
    assert_eq!(told, [(8, true), (8, false)]);
}

#[test]
fn a_flush_reaches_the_legs_of_a_table_with_areas_on_none() {
    let mut rig = Rig::new(MIXED, 0);
    assert!(rig.above.limits().volatile_cache);
    assert_eq!(rig.status(write(0, 1, 5)), Status::Ok);
    let before: Vec<u64> = rig.legs.iter().map(|leg| leg.stats().flushes).collect();
    assert_eq!(rig.status(Bio::flush()), Status::Ok);
    let after: Vec<u64> = rig.legs.iter().map(|leg| leg.stats().flushes).collect();
    assert_eq!(after, before.iter().map(|count| count + 1).collect::<Vec<_>>());
}

#[test]
fn memory_of_an_owner_outside_is_filled_with_zeros_and_stays_its_memory() {
    let mut rig = Rig::new("0 8 linear sda 0; 8 56 zero", 0);
    for sector in [8, 7] {
        let segments = Segments::of_buf(Buf::filled(1024, |bytes| bytes.fill(0xEE)), [100, 924]);
        let bio = Bio::new(Op::Read, sector, 2, Data::Segments(segments));
        let end = rig.one(bio);
        assert_eq!((end.status, end.bytes()), (Status::Ok, vec![0; 1024]));
        assert!(matches!(end.data, Data::Segments(_)));
    }
}

#[test]
fn an_area_on_no_leg_asks_for_no_limit() {
    let alone = Rig::new("0 64 linear sda 0", 0).above.limits();
    let beside = Rig::new("0 64 linear sda 0; 64 64 zero; 128 64 error", 0).above.limits();
    assert_eq!(weir_bio::Limits { capacity: 64, ..beside.clone() }, alone);
    assert_eq!(beside.capacity, 192);
    let none = Rig::new("0 64 zero", 0).above.limits();
    assert!(!none.volatile_cache && none.max_discard_sectors() > 0);
    assert!(none.max_write_zeroes_sectors > 0 && none.fast_write_zeroes);
}

#[test]
fn what_runs_out_of_nothing_is_not_late() {
    // A time-out and a close find nothing under way: the answer is there in the same turn.
    let mut rig = Rig::new("0 64 zero", 1_000);
    assert_eq!(rig.status(write(0, 64, 1)), Status::Ok);
    rig.settle();
    assert_eq!(rig.above.stats().quarantined, 0);
}

#[test]
fn a_disk_without_a_leg_is_mapped_and_keeps_nothing() {
    let backing = |table| -> Box<dyn Backing> { parse(&TABLE, table).unwrap() };
    let (zero, mixed) = (backing("0 8 zero"), backing("0 8 zero; 8 8 linear sda 0"));
    assert!(zero.is_mapped() && zero.legs().is_empty());
    assert_eq!((zero.keeps(), mixed.keeps()), (Keeps::Nothing, Keeps::Flushed));
    assert!(zero.open(&weir_queue::Config::default()).is_ok());
    let why = mixed.open(&weir_queue::Config::default()).unwrap_err().to_string();
    assert_eq!(why, "it lies on sda, which is not open");
}

#[test]
fn a_line_that_is_wrong_is_refused_and_messages_are_too() {
    for (table, part) in [
        ("0 8 zero sda", "line 1 of the table: \"sda\" is one argument too many"),
        ("0 8 zero; 8 8 error 0", "line 2 of the table: \"0\" is one argument too many"),
        ("0 8 nil", "unknown type \"nil\"; known are linear, striped, zero, error, delay, flakey"),
        ("0 8 zero; 9 8 error", "line 2 of the table: it begins at sector 9, not at 8"),
    ] {
        let why = parse(&TABLE, table).unwrap_err();
        assert!(why.contains(part), "{table}: {why}");
    }
    let why = Rig::new("0 8 zero", 0).map.message("be one", Nanos(0)).unwrap_err();
    assert!(why.contains("take no messages"), "{why}");
}
