//! A delayed disk: each class of I/O is sent when its time has come, and nothing is lost meanwhile.

#[path = "../../queue/tests/bed/mod.rs"]
mod bed;

use std::sync::Arc;

use bed::sender::NoWake;
use weir_bio::{Bio, Buf, Nanos, SECTOR, Status};
use weir_local::ram::{Cache, CrashRam};
use weir_map::kinds::TABLE;
use weir_queue::{Bell, Config, Device, Home, MapControl, Submitter, Written};

const MS: u64 = 1_000_000;

struct Rig {
    legs: Vec<Device>,
    above: Device,
    map: Arc<dyn MapControl>,
    home: Home,
    submitter: Submitter,
    now: Nanos,
    ended: Vec<(u64, Status, u64)>,
}

impl Rig {
    fn new(table: &str, timeout_ns: u64) -> Rig {
        let written = Written { name: "table", rest: table, text: table };
        let backing = (TABLE.parse)(&written).unwrap();
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        let config = |name: String, timeout_ns| Config {
            name,
            timeout_ns,
            scheduler: Some(String::from("none")),
            ..Config::default()
        };
        let leg = |name| {
            let ram = CrashRam::new(64 * SECTOR, Cache { volatile: true, fua: false }).unwrap();
            Device::new(config(name, 0), Arc::new(ram)).unwrap()
        };
        let legs: Vec<Device> = backing.legs().into_iter().map(leg).collect();
        let above = config(String::from("slow"), timeout_ns);
        let opened = backing.open_over(&above, &legs).unwrap();
        let above = Device::new(above, opened.driver).unwrap();
        legs.iter().chain([&above]).for_each(|device| _ = home.open(device, 0).unwrap());
        let submitter = above.submitter(home.bell(), 0, 0).unwrap();
        let (map, now, ended) = (opened.map.unwrap(), Nanos(1), Vec::new());
        Rig { legs, above, map, home, submitter, now, ended }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room");
        self.submitter.flush_plug(self.now);
        self.run();
    }

    fn run(&mut self) {
        for _ in 0..100 {
            self.home.bell().ready().take(|_| {});
            self.home.turn(self.now);
            let (now, ended) = (self.now, &mut self.ended);
            self.submitter.complete(now, |end| ended.push((end.cookie, end.status, now.0 / MS)));
        }
    }

    /// Lets time pass until nothing more happens by itself.
    fn settle(&mut self) {
        self.run();
        while let Some(next) = self.home.wake_at().filter(|next| *next != Nanos(u64::MAX)) {
            self.now = self.now.max(next);
            self.run();
        }
    }
}

fn write(cookie: u64) -> Bio {
    Bio::write(8, Buf::filled(512, |bytes| bytes.fill(cookie as u8))).cookie(cookie)
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
    assert_eq!(rig.ended, [(2, ok, 10), (1, ok, 20), (3, ok, 50)]);
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
    let names: Vec<u64> = rig.ended.iter().map(|(cookie, ..)| *cookie).collect();
    assert_eq!(names, [1, 2, 3, 4, 5, 6]);
    assert_eq!(rig.ended[5].2, 10);
}

#[test]
fn what_runs_out_of_time_while_it_waits_is_never_sent() {
    let mut rig = Rig::new("0 32 delay disk 0 60000", 1_000 * MS);
    rig.submit(write(1));
    rig.settle();
    assert_eq!(rig.ended.len(), 1);
    assert_eq!(rig.ended[0].1, Status::Timeout);
    assert!(rig.ended[0].2 < 10_000, "it ended at {} ms", rig.ended[0].2);
    assert_eq!(rig.map.status(), "0 32 delay 0 0 0\n");
    assert_eq!((rig.legs[0].stats().in_flight, rig.above.stats().quarantined), (0, 0));
}

#[test]
fn a_line_that_is_wrong_is_refused_with_its_bound() {
    for (table, part) in [
        ("0 8 delay sda 0", "delay has 2 arguments, not 3, 6 or 9"),
        ("0 8 delay sda 0 1 2", "4 arguments"),
        ("0 8 delay sda 0 4294967296", "delay=4294967296 is outside"),
        ("0 8 delay sda 0 1; 8 8 linear sda 8", "a delay line stands alone"),
    ] {
        let why = (TABLE.parse)(&Written { name: "table", rest: table, text: table }).unwrap_err();
        assert!(why.contains(part), "{table}: {why}");
    }
}
