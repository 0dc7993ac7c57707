//! Legs that differ, and legs that tell what reached them: whose limits count, what of a request
//! goes down with its bios, and which errors are a leg's.

mod rig;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use rig::{MS, Rig, parse, range, read, write};
use weir_bio::{Bio, Class, Flags, GroupId, IoPrio, Limits, Nanos, Op, Rq, Status, WriteCache};
use weir_map::kinds::{FAULT, LINEAR, STRIPED, TABLE};
use weir_map::multipath::MULTIPATH;
use weir_queue::{
    Affinity, Backing, Batch, Bell, Config, Device, Done, Driver, DriverError, DriverQueue, Event,
    Extent, Home, Listener, OpenedBacking, QueueMode, Queues, Tag, TargetKind, What,
};

/// A leg that answers everything at its next reap.
#[derive(Clone)]
struct Leg {
    limits: Limits,
    /// Tags of its queue.
    depth: u16,
    /// How it answers.
    status: Arc<Mutex<Status>>,
    /// What reached it.
    seen: Arc<Mutex<Vec<Rq>>>,
    /// What it says of its blocks.
    extent: (bool, bool),
    /// Its cache, if that is not that of its limits any more.
    cache: Arc<Mutex<Option<WriteCache>>>,
}

impl Leg {
    fn new(sectors: u64) -> Leg {
        let limits = Limits {
            capacity: sectors,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            volatile_cache: true,
            fua: true,
            ..Limits::default()
        };
        let (status, seen) = (Arc::new(Mutex::new(Status::Ok)), Arc::default());
        let (depth, extent) = (32, (false, false));
        Leg { limits, depth, status, seen, extent, cache: Arc::default() }
    }

    fn of_block(block: u32, sectors: u64) -> Leg {
        let mut leg = Leg::new(sectors);
        leg.limits.logical_block_size = block;
        leg.limits.physical_block_size = block;
        leg.limits.io_min = block;
        leg
    }

    fn answers(&self, status: Status) {
        *self.status.lock().unwrap() = status;
    }

    fn take_seen(&self) -> Vec<Rq> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Driver for Leg {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn write_cache(&self) -> WriteCache {
        let cache = *self.cache.lock().unwrap();
        cache.unwrap_or_else(|| self.limits.write_cache())
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, Affinity::Any);
        Queues { max: 8, depth, reserved: 0, shared_tags: false, home }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(LegQueue { leg: self.clone(), taken: Vec::new() }))
    }

    fn allocation(&self, _: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let (hole, zero) = self.extent;
        Ok(vec![Extent { sectors, hole, zero }])
    }
}

struct LegQueue {
    leg: Leg,
    taken: Vec<Tag>,
}

impl DriverQueue for LegQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        while let Some((_, request)) = batch.peek() {
            self.leg.seen.lock().unwrap().push(*request.rq());
            self.taken.push(batch.take());
        }
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let status = *self.leg.status.lock().unwrap();
        self.taken.drain(..).for_each(|tag| done.push(tag, status));
    }

    fn wake_at(&self) -> Option<Nanos> {
        (!self.taken.is_empty()).then_some(Nanos::ZERO)
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

/// A target over these legs, in the order of its names.
fn over(backing: &dyn Backing, timeout_ns: u64, legs: &[&Leg]) -> Rig {
    assert_eq!(backing.legs().len(), legs.len());
    let next = Cell::new(0);
    Rig::of(backing, timeout_ns, &|| Arc::new(legs[next.replace(next.get() + 1)].clone()))
}

fn table(text: &str, legs: &[&Leg]) -> Rig {
    over(&*parse(&TABLE, text).unwrap(), 0, legs)
}

/// A target over legs that are opened and no more.
fn opened(kind: &'static TargetKind, rest: &str, legs: &[&Leg]) -> Result<OpenedBacking, String> {
    let backing = parse(kind, rest)?;
    let names = backing.legs();
    let leg = |(leg, name): (&&Leg, String)| {
        let config = Config { name, ..Config::default() };
        Device::new(config, Arc::new((*leg).clone())).unwrap()
    };
    let legs: Vec<Device> = legs.iter().zip(names).map(leg).collect();
    backing.open_over(&Config::default(), &legs).map_err(|error| error.to_string())
}

#[test]
fn the_limits_of_later_legs_count_as_those_of_the_first() {
    let (large, mut small) = (Leg::new(64), Leg::new(64));
    small.limits.max_hw_sectors = 8;
    for line in
        ["0 64 linear a 0; 64 64 linear b 0", "0 64 striped 2 8 a 0 b 0", "0 64 delay a 0 1 b 0 1"]
    {
        for legs in [[&large, &small], [&small, &large]] {
            assert_eq!(table(line, &legs).above.limits().max_hw_sectors, 8, "{line}");
        }
    }
}

#[test]
fn areas_and_offsets_are_held_against_the_blocks_of_each_leg() {
    let (small, large) = (Leg::new(64), Leg::of_block(4096, 64));
    for (line, why) in [
        ("0 32 linear a 4; 32 8 linear b 8", None),
        ("0 32 linear a 4; 32 8 linear b 4", Some("offset=4 on b is no multiple of its block")),
        ("0 36 linear a 0; 36 8 linear b 0", Some("length=36 is no multiple of a block of 8")),
        ("0 32 striped 2 4 a 0 b 0", Some("chunk=4 is no multiple of a block of 8")),
        ("0 32 delay a 0 1 b 4 1", Some("offset=4 on b is no multiple of its block of 8")),
    ] {
        let outcome = opened(&TABLE, line, &[&small, &large]);
        match why {
            None => assert!(outcome.is_ok(), "{line}"),
            Some(why) => {
                let error = outcome.err().unwrap_or_default();
                assert!(error.contains(why), "{line}: {error}");
            }
        }
    }
}

#[test]
fn disks_one_behind_the_other_and_in_stripes_use_whole_blocks_and_chunks_and_tell_the_rest() {
    let unused = |sectors: u64, name: &str| {
        format!("the last {sectors} sectors of its disk {name} are not used")
    };
    let (odd, even, large) = (Leg::new(63), Leg::new(64), Leg::of_block(4096, 64));
    let sectors = |opened: &OpenedBacking| opened.driver.limits().capacity;
    let plain = opened(&LINEAR, "a+b", &[&even, &large]).unwrap();
    assert_eq!((sectors(&plain), plain.notices), (128, vec![]));
    let cut = opened(&LINEAR, "a+b", &[&odd, &large]).unwrap();
    assert_eq!((sectors(&cut), cut.notices), (56 + 64, vec![unused(7, "a")]));
    for (legs, name) in [([&odd, &even], ["a", "b"]), ([&even, &odd], ["b", "a"])] {
        let rows = opened(&STRIPED, "8KiB:a+b", &legs).unwrap();
        let mut told = vec![unused(15, name[0]), unused(16, name[1])];
        told.sort_by_key(|line| line.contains("disk b"));
        assert_eq!((sectors(&rows), rows.notices), (2 * 48, told));
    }
    let mut guarded = Leg::new(64);
    guarded.limits.read_only = true;
    let one = opened(&LINEAR, "a+b", &[&even, &guarded]).unwrap();
    assert_eq!(one.notices, ["read-only, as its disk b is"]);
}

#[test]
fn a_cache_that_a_leg_gets_is_one_of_the_disks_above() {
    let none = WriteCache::default();
    let mut leg = Leg::new(64);
    leg.limits.set_write_cache(none);
    for (kind, rest, legs) in [
        (&LINEAR, "a+b", 2),
        (&STRIPED, "8KiB:a+b", 2),
        (&MULTIPATH, "a+b", 2),
        (&FAULT, "a", 1),
        (&TABLE, "0 64 delay a 0 1", 1),
        (&TABLE, "0 64 flakey a 0 1 1", 1),
        (&TABLE, "0 64 linear a 0; 64 64 zero", 1),
    ] {
        let each: Vec<Leg> =
            (0..legs).map(|_| Leg { cache: Arc::default(), ..leg.clone() }).collect();
        let backing = parse(kind, rest).unwrap();
        let device = |(leg, name): (&Leg, String)| {
            Device::new(Config { name, ..Config::default() }, Arc::new(leg.clone())).unwrap()
        };
        let devices: Vec<Device> = each.iter().zip(backing.legs()).map(device).collect();
        let driver = backing.open_over(&Config::default(), &devices).unwrap().driver;
        let above = Device::new(Config::default(), driver).unwrap();
        let caches = [false, true].map(|fua| WriteCache { volatile: true, fua });
        for (leg, cache) in [(0, caches[0]), (legs - 1, caches[1])] {
            let device = &devices[leg];
            *each[leg].cache.lock().unwrap() = Some(cache);
            assert_eq!(above.new_write_cache(), None, "{rest}: the leg itself does not know yet");
            device.reconfigure(|_| ()).unwrap();
            assert_eq!(above.new_write_cache(), Some(cache), "{rest}");
            above.reconfigure(|_| ()).unwrap();
            assert_eq!(above.limits().write_cache(), cache, "{rest}");
        }
    }
}

#[test]
fn a_mapped_disk_has_the_tags_of_its_legs_together() {
    let tags = |depths: [u16; 2]| {
        let legs = depths.map(|depth| Leg { depth, ..Leg::new(64) });
        let above = opened(&LINEAR, "a+b", &[&legs[0], &legs[1]]).unwrap();
        above.driver.queues().depth
    };
    assert_eq!(tags([32, 64]), 128, "the default of all drivers at least");
    assert_eq!(tags([128, 64]), 192);
    assert_eq!(tags([2000, 2000]), 2048);
}

#[test]
fn a_target_over_disks_has_a_queue_for_each_home() {
    let leg = Leg::new(64);
    for line in ["linear a 0", "delay a 0 1", "flakey a 0 1 1", "fault a 0 0"] {
        let text = format!("0 64 {line}");
        let backing = parse(&TABLE, &text).unwrap();
        let driver = opened(&TABLE, &text, &[&leg]).unwrap().driver;
        assert_eq!([0, 1, 3].map(|homes| backing.queues(&*driver, homes)), [1, 1, 3], "{line}");
    }
}

#[test]
fn blocks_of_legs_that_are_alike_are_one_extent_and_no_others() {
    let extents = |first, second| {
        let leg = |extent| Leg { extent, ..Leg::new(64) };
        let rig = table("0 8 linear a 0; 8 8 linear b 0", &[&leg(first), &leg(second)]);
        let extents = rig.above.allocation(0, 16).unwrap();
        extents.into_iter().map(|extent| extent.sectors).collect::<Vec<_>>()
    };
    assert_eq!(extents((true, true), (true, true)), [16]);
    assert_eq!(extents((true, true), (true, false)), [8, 8], "a hole that is no zeros");
    assert_eq!(extents((true, true), (false, true)), [8, 8]);
}

#[test]
fn group_priority_hint_and_flags_of_a_request_go_down_with_each_of_its_bios() {
    let (group, ioprio, hint) = (GroupId(3), IoPrio::new(Class::BestEffort, 5), 4);
    for line in [
        "0 64 linear a 0; 64 64 linear b 0",
        "0 128 striped 2 8 a 0 b 0",
        "0 64 linear a 0; 64 64 zero",
        "0 64 delay a 0 0",
        "0 64 flakey a 0 1 0",
    ] {
        let backing = parse(&TABLE, line).unwrap();
        let legs: Vec<Leg> = backing.legs().iter().map(|_| Leg::new(64)).collect();
        let mut rig = over(&*backing, 0, &legs.iter().collect::<Vec<_>>());
        let last = rig.above.limits().capacity - 32;
        for bio in [write(last.min(48), 16, 1), range(Op::Discard, 0, 32), read(8, 8)] {
            let op = bio.op;
            let flags = Flags::SYNC | Flags::META;
            rig.submit(Bio { group, ioprio, hint, ..bio.with(flags) });
            rig.settle();
            let seen: Vec<Rq> = legs.iter().flat_map(Leg::take_seen).collect();
            assert!(!seen.is_empty(), "{line}: {op:?}");
            for rq in seen {
                assert_eq!((rq.group, rq.ioprio, rq.hint), (group, ioprio, hint), "{line}");
                assert!(rq.op == op && rq.flags.has(flags), "{line}: {rq:?}");
            }
        }
    }
}

#[test]
fn a_time_out_below_is_the_end_of_a_request_whatever_came_before() {
    let line = "0 8 linear a 0; 8 8 linear b 0; 16 8 linear c 0";
    let legs = [Leg::new(64), Leg::new(64), Leg::new(64)];
    let [first, second, third] = &legs;
    for (statuses, end) in [
        ([Status::IoErr, Status::Timeout, Status::Ok], Status::Timeout),
        ([Status::Timeout, Status::IoErr, Status::Ok], Status::Timeout),
        ([Status::Ok, Status::Medium, Status::IoErr], Status::Medium),
        ([Status::Ok, Status::Ok, Status::Ok], Status::Ok),
    ] {
        for (leg, status) in legs.iter().zip(statuses) {
            leg.answers(status);
        }
        let mut rig = table(line, &[first, second, third]);
        for bio in [write(0, 24, 1), range(Op::Discard, 0, 24), Bio::flush()] {
            let op = bio.op;
            let ended = rig.waited(bio).status;
            assert_eq!(ended, end, "{op:?} {statuses:?}");
        }
    }
}

#[test]
fn errors_of_read_ahead_and_of_ops_that_a_leg_has_not_are_no_faults_of_the_leg() {
    let (sound, leg) = (Leg::new(64), Leg::new(64));
    let mut rig = table("0 128 striped 2 8 a 0 b 0", &[&sound, &leg]);
    let states = |rig: &Rig| rig.map.status().trim_end().rsplit(' ').next().map(String::from);
    for (status, flags) in [
        (Status::IoErr, Flags::RAHEAD),
        (Status::NotSupp, Flags::NONE),
        (Status::Again, Flags::NONE),
    ] {
        leg.answers(status);
        rig.waited(read(8, 8).with(flags));
        assert_eq!(states(&rig).as_deref(), Some("AA"), "{status:?} {flags:?}");
    }
    assert!(rig.told().is_empty());
    leg.answers(Status::Medium);
    for count in 1..=20 {
        assert_eq!(rig.waited(read(8, 8)).status, Status::Medium);
        assert_eq!(states(&rig).as_deref(), Some("AD"));
        assert_eq!(rig.told().len(), count.min(15), "the first 15 are told");
    }
    assert!(!rig.told()[13].contains("further"), "{:?}", rig.told());
    assert!(rig.told()[14].ends_with("; further ones are not told"), "{:?}", rig.told());
}

#[test]
fn of_a_delay_line_each_op_has_the_place_and_the_time_of_its_class() {
    // Reads, writes and flushes: how late, and on which leg of two at which offset.
    for (line, late_ms, places) in [
        ("a 8 10", [10, 10, 10], [(0, 8), (0, 8)]),
        ("a 8 10 b 16 20", [10, 20, 20], [(0, 8), (1, 16)]),
        ("a 8 10 b 16 20 a 0 30", [10, 20, 30], [(0, 8), (1, 16)]),
    ] {
        let text = format!("0 32 delay {line}");
        let backing = parse(&TABLE, &text).unwrap();
        let legs: Vec<Leg> = backing.legs().iter().map(|_| Leg::new(64)).collect();
        let mut rig = over(&*backing, 0, &legs.iter().collect::<Vec<_>>());
        assert_eq!(rig.map.table(), format!("{text}\n"));
        for (bio, class) in
            [(read(4, 2), 0), (write(4, 2, 1), 1), (range(Op::Discard, 4, 2), 1), (Bio::flush(), 2)]
        {
            let (op, begin) = (bio.op, rig.now.0 / MS);
            let at_ms = rig.waited(bio).at_ms;
            assert_eq!(at_ms - begin, late_ms[class], "{line}: {op:?}");
            let seen: Vec<Vec<Rq>> = legs.iter().map(Leg::take_seen).collect();
            if class == 2 {
                assert!(seen.iter().all(|seen| seen.len() == 1), "{line}: a flush goes to all");
                continue;
            }
            let (leg, offset) = places[class];
            assert_eq!(seen[leg][0].sector, offset + 4, "{line}: {op:?}");
        }
    }
}

#[test]
fn what_ran_out_of_time_in_a_delay_is_not_sent_when_that_is_over() {
    let leg = Leg::new(64);
    let backing = parse(&TABLE, "0 32 delay a 0 60000").unwrap();
    let mut rig = over(&*backing, 1_000 * MS, &[&leg]);
    for bio in [write(0, 8, 1), read(0, 8), range(Op::Discard, 0, 8)] {
        assert_eq!(rig.waited(bio).status, Status::Timeout);
    }
    rig.now = rig.now + 120_000 * MS;
    rig.settle();
    assert_eq!(leg.take_seen(), []);
}

/// The holds of the single queue's lock of which it is told, each as the requests inserted in it.
#[derive(Default)]
struct Holds(Mutex<Vec<u32>>);

impl Listener for Holds {
    fn hear(&self, event: Event) {
        let mut holds = self.0.lock().unwrap();
        match event.what {
            What::RightTaken => holds.push(0),
            What::Inserted { .. } => *holds.last_mut().expect("a hold") += 1,
            _ => {}
        }
    }
}

#[test]
fn what_a_mapper_does_at_its_leg_is_heard_there_and_at_no_other() {
    let backing = parse(&LINEAR, "a+b").unwrap();
    let ears = [(); 3].map(|()| Arc::new(Holds::default()));
    let leg = |name| {
        let config = Config { name, mode: QueueMode::Sq, ..Config::default() };
        Device::new(config, Arc::new(Leg::new(64))).unwrap()
    };
    let legs: Vec<Device> = backing.legs().into_iter().map(leg).collect();
    legs[0].listen_to_mappers(Arc::clone(&ears[0]) as _);
    legs[1].listen_to_mappers(Arc::clone(&ears[1]) as _);
    legs[1].listen_to_mappers(Arc::clone(&ears[2]) as _);
    let driver = backing.open_over(&Config::default(), &legs).unwrap().driver;
    let config = Config { scheduler: Some(String::from("none")), ..Config::default() };
    let above = Device::new(config, driver).unwrap();
    let mut home = Home::strict(Bell::with_lanes(Box::new(weir_queue::NoWake), 8));
    legs.iter().chain([&above]).for_each(|device| _ = home.open(device, 0).unwrap());
    let mut submitter = above.submitter(home.bell(), 0, 0).unwrap();
    let heard = || ears.each_ref().map(|ears| ears.0.lock().unwrap().clone());
    for (sector, expected) in [
        (70, [vec![], vec![0, 1], vec![]]),
        (1, [vec![0, 1], vec![0, 1], vec![]]),
        (80, [vec![0, 1], vec![0, 1, 0, 1], vec![]]),
    ] {
        submitter.submit(read(sector, 2), Nanos(1)).expect("room");
        submitter.flush_plug(Nanos(1));
        let mut ended = 0;
        while ended == 0 {
            home.bell().ready().take(|_| {});
            home.turn(Nanos(1));
            ended += submitter.complete(Nanos(1), |end| assert!(end.status.is_ok()));
        }
        assert_eq!(heard(), expected, "of each bio a hold for its place, and one to insert it");
    }
}
