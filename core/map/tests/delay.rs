//! A delayed disk: each class of I/O is sent when its time has come, and nothing is lost meanwhile.

mod rig;

use std::sync::Arc;

use rig::{MS, Rig, parse};
use weir_bio::{Bio, Buf, Limits, Nanos, Status};
use weir_local::Ram;
use weir_map::kinds::TABLE;
use weir_queue::{Device, Driver, DriverError, DriverQueue, Queues};

fn write(cookie: u64) -> Bio {
    rig::write(8, 1, cookie as u8).cookie(cookie)
}

/// What has ended: cookie, status, and when in ms.
fn ended(rig: &Rig) -> Vec<(u64, Status, u64)> {
    rig.ended.iter().map(|end| (end.cookie, end.status, end.at_ms)).collect()
}

#[test]
fn each_class_is_as_late_as_its_set_says_and_the_status_counts_what_waits() {
    let table = "0 32 delay fast 0 10 slow 16 20 slow 16 50";
    let mut rig = Rig::new(table, 0);
    assert_eq!(rig.map.table(), format!("{table}\n"));
    rig.submit(write(1));
    rig.submit(Bio::read(8, Buf::zeroed(1024)).cookie(2));
    rig.submit(Bio::flush().cookie(3));
    assert_eq!(rig.map.status(), "0 32 delay 1 1 2\n", "a flush goes to both disks");
    assert_eq!(rig.home.wake_at(), Some(Nanos(1 + 10 * MS)));
    rig.settle();
    let ok = Status::Ok;
    assert_eq!(ended(&rig), [(2, ok, 10), (1, ok, 20), (3, ok, 50)]);
    assert_eq!(rig.map.status(), "0 32 delay 0 0 0\n");
    let sectors = |leg: &Device| leg.stats().directions.iter().map(|way| way.sectors).sum::<u64>();
    assert_eq!(rig.legs.iter().map(sectors).collect::<Vec<_>>(), [2, 1]);
    assert!(rig.map.message("hurry", Nanos(0)).is_err());
}

#[test]
fn one_set_is_for_all_io_and_none_overtakes_its_kind() {
    let mut rig = Rig::new("0 32 delay disk 8 5", 0);
    for cookie in 1..=5 {
        rig.submit(write(cookie));
        rig.now = rig.now + MS;
    }
    rig.submit(Bio::read(8, Buf::zeroed(512)).cookie(6));
    rig.settle();
    let names: Vec<u64> = rig.ended.iter().map(|end| end.cookie).collect();
    assert_eq!(names, [1, 2, 3, 4, 5, 6]);
    assert_eq!(rig.ended[5].at_ms, 10);
}

#[test]
fn what_runs_out_of_time_while_it_waits_is_never_sent() {
    let mut rig = Rig::new("0 32 delay disk 0 60000", 1_000 * MS);
    rig.submit(write(1));
    rig.settle();
    assert_eq!(rig.ended.len(), 1);
    assert_eq!(rig.ended[0].status, Status::Timeout);
    assert!(rig.ended[0].at_ms < 10_000, "it ended at {} ms", rig.ended[0].at_ms);
    assert_eq!(rig.map.status(), "0 32 delay 0 0 0\n");
    assert_eq!((rig.legs[0].stats().in_flight, rig.above.stats().quarantined), (0, 0));
}

/// A disk in memory that takes atomic writes.
struct Atomic(Ram);

impl Driver for Atomic {
    fn limits(&self) -> Limits {
        Limits {
            atomic_write_max_sectors: 32,
            atomic_write_unit_min_sectors: 1,
            atomic_write_unit_max_sectors: 32,
            ..self.0.limits()
        }
    }

    fn queues(&self) -> Queues {
        self.0.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.0.open(index, depth)
    }
}

#[test]
fn an_atomic_write_suits_the_place_of_writes() {
    let leg = || -> Arc<dyn Driver> { Arc::new(Atomic(Ram::new(64 * 512).unwrap())) };
    let unit = |line: &str| {
        let backing = parse(&TABLE, &format!("0 32 delay {line}")).unwrap();
        Rig::of(&*backing, 0, &leg).above.limits().atomic_write_unit_max_sectors
    };
    assert_eq!(unit("a 0 1"), 32);
    assert_eq!(unit("a 16 1"), 16);
    assert_eq!(unit("a 16 1 a 4 1"), 4, "writes go elsewhere");
    assert_eq!(unit("a 4 1 a 16 1 a 2 1"), 16);
}

#[test]
fn a_line_that_is_wrong_is_refused_with_its_bound() {
    for (table, part) in [
        ("0 8 delay sda 0", "delay has 2 arguments, not 3, 6 or 9"),
        ("0 8 delay sda 0 1 2", "4 arguments"),
        ("0 8 delay sda 0 4294967296", "delay=4294967296 is outside"),
        ("0 8 delay sda 0 1; 8 8 linear sda 8", "a delay line stands alone"),
    ] {
        let why = parse(&TABLE, table).unwrap_err();
        assert!(why.contains(part), "{table}: {why}");
    }
}

#[test]
fn an_option_of_multipath_is_refused_by_every_other_line() {
    for line in ["linear a 0", "zero", "error", "delay a 0 1", "flakey a 0 1 1", "fault a 0 0"] {
        let error = parse(&TABLE, &format!("0 8 {line},failback=manual")).unwrap_err();
        assert_eq!(error, "failback=manual: it is for a multipath table", "{line}");
    }
}
