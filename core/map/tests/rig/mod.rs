//! A disk of a table over disks in memory, turned by hand in virtual time.

#![allow(dead_code)] // Each suite uses its part.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Data, Nanos, Op, SECTOR, Status};
use weir_local::ram::{Cache, CrashRam};
use weir_map::kinds::{FAULT, TABLE};
use weir_queue::{
    Backing, Bell, Config, Device, Driver, Home, MapControl, NoWake, Submitter, TargetKind, Written,
};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// Sectors of a leg.
pub const LEG: u64 = 64;

/// Reads a target of a kind, its options behind commas.
pub fn parse(kind: &'static TargetKind, rest: &str) -> Result<Box<dyn Backing>, String> {
    let mut parts = rest.split(',');
    let rest = parts.next().expect("a target");
    let mut backing = (kind.parse)(&Written { name: kind.names[0], rest, text: rest })?;
    for option in parts {
        let (name, value) = option.split_once('=').expect("NAME=VALUE");
        backing.set(name, value)?;
    }
    Ok(backing)
}

/// How a bio ended.
#[derive(Debug)]
pub struct Ended {
    pub cookie: u64,
    pub status: Status,
    pub at_ms: u64,
    pub data: Data,
}

impl Ended {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0xEE; self.data.len()];
        self.data.copy_to(&mut bytes);
        bytes
    }
}

pub struct Rig {
    pub legs: Vec<Device>,
    pub above: Device,
    pub map: Arc<dyn MapControl>,
    pub notices: Vec<String>,
    pub home: Home,
    submitter: Submitter,
    pub now: Nanos,
    pub ended: Vec<Ended>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Rig {
    /// A table over disks that have a volatile cache.
    pub fn new(table: &str, timeout_ns: u64) -> Rig {
        Rig::of(&*parse(&TABLE, table).expect(table), timeout_ns, &ram)
    }

    /// A target of kind fault over such a disk.
    pub fn fault(rest: &str, timeout_ns: u64) -> Rig {
        Rig::of(&*parse(&FAULT, rest).expect(rest), timeout_ns, &ram)
    }

    /// A target over disks whose drivers `leg` makes.
    pub fn of(backing: &dyn Backing, timeout_ns: u64, leg: &dyn Fn() -> Arc<dyn Driver>) -> Rig {
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        let config = |name: String, timeout_ns| Config {
            name,
            timeout_ns,
            scheduler: Some(String::from("none")),
            ..Config::default()
        };
        let leg = |name| Device::new(config(name, 0), leg()).unwrap();
        let legs: Vec<Device> = backing.legs().into_iter().map(leg).collect();
        let above = config(String::from("above"), timeout_ns);
        let opened = backing.open_over(&above, &legs).unwrap();
        let above = Device::new(above, opened.driver).unwrap();
        legs.iter().chain([&above]).for_each(|device| _ = home.open(device, 0).unwrap());
        let submitter = above.submitter(home.bell(), 0, 0).unwrap();
        let (map, notices) = (opened.map.unwrap(), opened.notices);
        let (now, ended) = (Nanos(1), Vec::new());
        let told = Arc::<Mutex<Vec<String>>>::default();
        if let Some(speaker) = opened.speaker {
            let told = Arc::clone(&told);
            speaker.on_notice(Arc::new(move |line: &str| {
                told.lock().unwrap().push(String::from(line));
            }));
        }
        Rig { legs, above, map, notices, home, submitter, now, ended, told }
    }

    /// What was told since it was opened.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().unwrap().clone()
    }

    pub fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room");
        self.submitter.flush_plug(self.now);
        self.run();
    }

    pub fn run(&mut self) {
        for _ in 0..100 {
            self.home.bell().ready().take(|_| {});
            self.home.turn(self.now);
            let (now, ended) = (self.now, &mut self.ended);
            self.submitter.complete(now, |end| {
                let (cookie, status, data) = (end.cookie, end.status, end.data);
                ended.push(Ended { cookie, status, at_ms: now.0 / MS, data });
            });
        }
    }

    /// Lets time pass until nothing more happens by itself.
    pub fn settle(&mut self) {
        self.run();
        while let Some(next) = self.home.wake_at().filter(|next| *next != Nanos(u64::MAX)) {
            self.now = self.now.max(next);
            self.run();
        }
    }

    /// Sends a bio and waits for its end, which has to come without further ado.
    #[track_caller]
    pub fn one(&mut self, bio: Bio) -> Ended {
        self.submit(bio);
        assert_eq!(self.ended.len(), 1, "the bio has not ended");
        self.ended.remove(0)
    }

    /// Sends a bio and lets time pass until it has ended.
    #[track_caller]
    pub fn waited(&mut self, bio: Bio) -> Ended {
        self.submit(bio);
        self.settle();
        assert_eq!(self.ended.len(), 1, "the bio has not ended");
        self.ended.remove(0)
    }

    /// How a bio ends.
    #[track_caller]
    pub fn status(&mut self, bio: Bio) -> Status {
        self.one(bio).status
    }

    /// The bytes of so many sectors, as the leg with this number has them.
    #[track_caller]
    pub fn on_leg(&mut self, leg: usize, sector: u64, sectors: u64) -> Vec<u8> {
        let mut below = self.legs[leg].submitter(self.home.bell(), 7, 0).unwrap();
        below.submit(read(sector, sectors), self.now).expect("room");
        below.flush_plug(self.now);
        let mut bytes = Vec::new();
        for _ in 0..100 {
            self.home.bell().ready().take(|_| {});
            self.home.turn(self.now);
            below.complete(self.now, |end| {
                bytes.resize(end.data.len(), 0);
                end.data.copy_to(&mut bytes);
            });
        }
        assert_eq!(bytes.len() as u64, sectors * SECTOR, "the leg does not answer");
        bytes
    }
}

fn ram() -> Arc<dyn Driver> {
    let cache = Cache { volatile: true, fua: false };
    Arc::new(CrashRam::new(LEG * SECTOR, cache).unwrap())
}

/// A write of sectors full of one byte.
pub fn write(sector: u64, sectors: u64, byte: u8) -> Bio {
    Bio::write(sector, Buf::filled((sectors * SECTOR) as usize, |bytes| bytes.fill(byte)))
}

/// A read into memory that is not zeros.
pub fn read(sector: u64, sectors: u64) -> Bio {
    Bio::read(sector, Buf::filled((sectors * SECTOR) as usize, |bytes| bytes.fill(0xEE)))
}

/// A bio without memory.
pub fn range(op: Op, sector: u64, sectors: u64) -> Bio {
    Bio::new(op, sector, sectors as u32, Data::None)
}
