//! The bed of the mid-layer's tests: devices over a host whose transport a test scripts, turned in
//! time that the test gives.

#![allow(dead_code)] // Each suite uses its part.

pub mod disk;
pub mod port;
pub mod sim;

use std::sync::Arc;

use weir_bio::{Bio, Buf, Data, Nanos, Op, Status};
use weir_driver_scsi::{Host, HostOptions, Unit, UnitOptions};
use weir_proto_scsi::Lun;
use weir_queue::{Bell, CommandEnd, Config, Device, Driver, Home, NoWake, QueueMode, Submitter};

use port::Script;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// A device over a unit, with one client on each queue.
pub struct Served {
    pub unit: Arc<Unit>,
    pub device: Device,
    pub clients: Vec<Submitter>,
    pub ended: Vec<(u64, Status, Data)>,
    pub commands: Vec<CommandEnd>,
}

pub struct Bench {
    pub script: Script,
    pub host: Arc<Host>,
    pub units: Vec<Served>,
    pub homes: Vec<Home>,
    pub now: Nanos,
}

impl Bench {
    /// A host with no unit, and a home for each of its queues.
    pub fn empty(script: &Script, options: HostOptions) -> Bench {
        let queues = script.state().adapter.queues;
        let host = Host::new(Arc::new(script.clone()), options);
        let home = |_| Home::strict(Bell::with_lanes(Box::new(NoWake), 64));
        let homes = (0..queues).map(home).collect();
        Bench { script: script.clone(), host, units: Vec::new(), homes, now: Nanos(SECOND) }
    }

    /// One unit, LUN 0, with the scheduler `none`.
    pub fn new(script: &Script) -> Bench {
        let mut bench = Bench::empty(script, HostOptions::default());
        bench.add(Lun::ZERO, "none");
        bench
    }

    /// Opens a unit as a device.
    pub fn add(&mut self, lun: Lun, scheduler: &str) -> usize {
        self.script.state().disks.entry(lun).or_default();
        let unit = Arc::new(Unit::open(&self.host, lun, UnitOptions::default()).expect("a disk"));
        let legacy = ["noop", "deadline", "cfq"].contains(&scheduler);
        let mode = if legacy { QueueMode::Sq } else { QueueMode::Mq };
        let queues = if legacy { 1 } else { self.homes.len() as u16 };
        let scheduler = Some(scheduler.to_owned());
        let config = Config { scheduler, mode, queues, ..Config::default() };
        let driver = Arc::clone(&unit) as Arc<dyn Driver>;
        let device = Device::new(config, driver).expect("a device");
        let mut clients = Vec::new();
        for index in 0..usize::from(queues) {
            let home = &mut self.homes[index];
            home.open(&device, index).expect("a lane");
            clients.push(device.submitter(home.bell(), 0, index).expect("a submitter"));
        }
        let (ended, commands) = (Vec::new(), Vec::new());
        self.units.push(Served { unit, device, clients, ended, commands });
        self.units.len() - 1
    }

    /// Turns everything so many times.
    pub fn turn(&mut self, times: usize) {
        for _ in 0..times {
            for home in &mut self.homes {
                home.bell().ready().take(|_| {});
                home.turn_all(self.now);
            }
        }
        let now = self.now;
        for served in &mut self.units {
            for client in &mut served.clients {
                client.complete(now, |end| {
                    served.ended.push((end.cookie, end.status, end.data));
                });
                served.commands.extend(std::iter::from_fn(|| client.take_command_end()));
            }
        }
    }

    /// Turns lanes only for a reason, until there is none; time stands still.
    pub fn turn_for_reasons(&mut self) {
        for _ in 0..100 {
            let mut rested = true;
            for home in &mut self.homes {
                home.bell().ready().take(|_| {});
                if home.wants_turn(self.now) {
                    home.turn(self.now);
                    rested = false;
                }
            }
            self.turn(0);
            if rested {
                return;
            }
        }
        panic!("lanes do not come to rest");
    }

    /// Turns everything until the units have come to rest, with the time as it is.
    pub fn settle(&mut self) {
        self.turn(24);
    }

    /// Lets time pass, and turns everything in steps of half a second.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.now = (self.now + SECOND / 2).min(end);
            self.turn(3);
        }
    }

    /// Submits to the first client of unit `unit`.
    pub fn submit(&mut self, unit: usize, bio: Bio) {
        self.submit_to(unit, 0, bio);
    }

    pub fn submit_to(&mut self, unit: usize, client: usize, bio: Bio) {
        let client = &mut self.units[unit].clients[client];
        client.submit(bio, self.now).expect("room");
        client.flush_plug(self.now);
    }

    /// The ends of unit `unit`, as cookie and status.
    pub fn ended(&mut self, unit: usize) -> Vec<(u64, Status)> {
        let ended = std::mem::take(&mut self.units[unit].ended);
        ended.into_iter().map(|(cookie, status, _)| (cookie, status)).collect()
    }

    /// One read, and how it ends at once.
    pub fn read_once(&mut self) -> Vec<(u64, Status)> {
        self.submit(0, read(8).cookie(1));
        self.settle();
        self.ended(0)
    }

    /// Ends everything, and checks that nothing is left.
    pub fn end(mut self) {
        self.script.reply(|_| port::Reply::good());
        self.script.state().release(&port::Reply::good());
        self.script.state().room = usize::MAX;
        self.turn(200);
        self.pass(SECOND);
        assert_eq!(self.script.state().held(), 0, "the ports have commands");
        assert_eq!(self.host.tags().out(), 0, "tags are out");
        for served in &self.units {
            let left: u64 = served.clients.iter().map(Submitter::in_flight).sum();
            assert_eq!(left, 0, "requests are left over");
        }
    }
}

pub fn read(sector: u64) -> Bio {
    Bio::read(sector, Buf::zeroed(4096))
}

pub fn write(sector: u64) -> Bio {
    Bio::write(sector, Buf::filled(4096, |bytes| bytes.fill(7)))
}

pub fn discard(sector: u64) -> Bio {
    Bio::new(Op::Discard, sector, 64, Data::None)
}

pub fn zeroes(sector: u64) -> Bio {
    Bio::new(Op::WriteZeroes, sector, 64, Data::None)
}
