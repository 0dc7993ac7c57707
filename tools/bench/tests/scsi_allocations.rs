//! The SCSI mid-layer in steady state allocates nothing for a request.

use std::sync::Arc;

use weir_bench::core::alloc::{Counting, is_counting, of_this_thread};
use weir_bio::{Bio, Buf, Data, Nanos, Op, Prng};
use weir_driver_scsi::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Host, HostOptions, Management,
    Port, Probe, Refusal, Transport, Unit, UnitOptions,
};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::{Bell, Config, Device, DriverError, Home, NoWake, Submitter};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: usize = 32;

/// Every command has succeeded at the next reap.
struct Nowhere;

impl Transport for Nowhere {
    fn adapter(&self) -> Adapter {
        Adapter {
            queues: 1,
            can_queue: DEPTH as u16,
            own_slots: 4,
            cmd_per_lun: DEPTH as u16,
            segments_max: 128,
            sectors_max: 1024,
            cdb_max: 16,
        }
    }

    fn name(&self) -> String {
        "nowhere".to_owned()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        while let Some((_, _, asked)) = asker.next() {
            let len = if let Asked::In(len) = asked { len.min(36) as usize } else { 0 };
            asker.answer(Delivery::Delivered, ScsiStatus::GOOD, &vec![0; len], &[]);
        }
        Ok(())
    }

    fn open(&self, _: u16) -> Result<Box<dyn Port>, DriverError> {
        Ok(Box::new(NowherePort::default()))
    }
}

#[derive(Default)]
struct NowherePort {
    sent: Vec<Delivered>,
    memory: Vec<Data>,
}

impl Port for NowherePort {
    fn send(
        &mut self,
        command: &Command<'_>,
        memory: &mut Vec<Data>,
        _: Nanos,
    ) -> Result<(), Refusal> {
        let moved = match command.direction {
            Direction::None => 0,
            Direction::In(bytes) | Direction::Out(bytes) => bytes,
        };
        let (slot, memory_len) = (command.slot, memory.len() as u16);
        let (delivery, status) = (Delivery::Delivered, ScsiStatus::GOOD);
        self.sent.push(Delivered { slot, delivery, status, moved, sense: 0, memory: memory_len });
        self.memory.append(memory);
        Ok(())
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, ends: &mut Ends) {
        ends.commands.append(&mut self.sent);
        ends.memory.append(&mut self.memory);
    }

    fn manage(&mut self, _: Management, _: u32, _: Nanos, _: Nanos) -> Result<(), Refusal> {
        Err(Refusal::Gone)
    }
}

/// Units that share one port, so that each lane also reaps the ends of the others.
struct Rig {
    home: Home,
    submitters: Vec<Submitter>,
    spare: Vec<Buf>,
    prng: Prng,
    now: u64,
    /// Requests of each unit in a round.
    burst: usize,
}

impl Rig {
    fn new(units: u32) -> Rig {
        let host = Host::new(Arc::new(Nowhere), HostOptions::default());
        let mut home = Home::new(Bell::with_lanes(Box::new(NoWake), 16));
        let mut submitters = Vec::new();
        for number in 0..units {
            let mut probe = Probe::new(Lun::new(number).expect("a LUN"));
            Nowhere.ask(&mut probe).expect("answers");
            let mut facts = probe.finish().expect("a disk");
            let size = Capacity { last_lba: (1 << 24) - 1, block_len: 512, ..Capacity::default() };
            facts.disk.capacity = size;
            let unit = Unit::of_facts(&host, facts, UnitOptions::default()).expect("a unit");
            // Writes that are held back for reads have memory of their own.
            let scheduler = Some("none".to_owned());
            let config = Config { scheduler, wbt_lat_us: Some(0), ..Config::default() };
            let device = Device::new(config, Arc::new(unit)).expect("a device");
            home.open(&device, 0).expect("a lane");
            submitters.push(device.submitter(home.bell(), 0, 0).expect("a submitter"));
        }
        let spare = (0..DEPTH).map(|_| Buf::zeroed(4096)).collect();
        Rig { home, submitters, spare, prng: Prng::new(1), now: 1, burst: 8 }
    }

    fn go(&mut self, rounds: u32) -> u64 {
        let mut ended = 0;
        for _ in 0..rounds {
            self.now += 1000;
            let now = Nanos(self.now);
            for submitter in &mut self.submitters {
                for _ in 0..self.burst.min(self.spare.len()) {
                    let buf = self.spare.pop().expect("memory");
                    let op = if self.prng.percent(70) { Op::Read } else { Op::Write };
                    let sector = self.prng.below(1 << 20) * 16;
                    submitter.submit(Bio::new(op, sector, 8, Data::One(buf)), now).expect("room");
                }
                submitter.flush_plug(now);
            }
            self.home.turn_all(now);
            self.home.bell().ready().take(|_| {});
            let spare = &mut self.spare;
            for submitter in &mut self.submitters {
                submitter.complete(now, |end| {
                    assert!(end.status.is_ok());
                    ended += 1;
                    spare.push(end.data.into_spare().expect("its memory"));
                });
            }
        }
        ended
    }
}

#[test]
fn a_warm_mid_layer_allocates_nothing_for_a_request() {
    assert!(is_counting());
    for units in [1, 3] {
        let mut rig = Rig::new(units);
        rig.go(2000);
        let before = of_this_thread();
        let ended = rig.go(5000);
        let allocated = of_this_thread() - before;
        assert!(ended > 30_000, "{units} units: {ended} requests");
        rig.burst = 0;
        rig.go(10);
        assert_eq!(rig.spare.len(), DEPTH, "{units} units: all memory is back");
        assert_eq!(allocated, 0, "{units} units: {allocated} allocations for {ended} requests");
    }
}
