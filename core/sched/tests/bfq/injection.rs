//! Requests of others while the device is kept for a queue (docs/behaviour/bfq.md, section 9).

use weir_bio::{Class, IoPrio, Op, Rq, SchedTag};

use super::bed::{Bed, Client, Device, SECOND, setup, wide};
use super::rig::{MS, Rig, read};

/// Sectors apart at which queues never merge.
const APART: u64 = 1 << 26;

/// A background write of a process.
fn write(context: u16, sector: u64) -> Rq {
    Rq { op: Op::Write, ..read(context, sector, SchedTag::NONE) }
}

/// Process 0 holds the device, which is kept for its next read.
fn kept_for_a_reader() -> Rig {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 8);
    rig.serve(MS);
    assert!(rig.device().idle_until.is_some());
    rig
}

#[test]
fn a_hole_is_filled_with_writes_of_the_process_waited_for_and_not_with_those_of_another() {
    for (writer, fills) in [(0, true), (1, false)] {
        let mut rig = kept_for_a_reader();
        rig.insert(write(writer, APART));
        assert!(rig.queue(0).in_service, "the device is still kept");
        let filled = rig.dispatch().map(|rq| rq.sector) == Some(APART);
        assert_eq!(filled, fills, "a write of process {writer}");
    }
}

#[test]
fn a_reader_of_depth_one_beside_a_background_writer_does_not_wait_for_a_full_device() {
    let setup = setup(wide(true), 256, "6.18");
    let mut bfq = weir_sched::mq::bfq::Bfq::new(&setup);
    weir_sched::Scheduler::tunables(&mut bfq).set("low_latency", "0").unwrap();
    let mut bed = Bed::before(Box::new(bfq), setup, Device::f().with_depth(32));
    let reader = bed.client(Client::reader(0, 256).think(100_000));
    bed.client(Client::writer(APART, 256).background().depth(64).start(10 * MS));
    bed.run_for(10 * SECOND);
    let latencies = bed.record(reader).latencies();
    println!("mean {} us, p99 {} us", latencies.mean() / 1000, latencies.percentile(99) / 1000);
    // A write is 1.3 ms of the device, and 32 of them are 42 ms.
    assert!(latencies.mean() < 5 * MS, "mean {} us", latencies.mean() / 1000);
}

#[test]
fn a_hole_is_not_filled_with_idle_class_requests() {
    let mut rig = kept_for_a_reader();
    rig.insert(Rq { ioprio: IoPrio::new(Class::Idle, 0), ..write(0, APART) });
    assert!(rig.queue(0).in_service, "the device is still kept");
    assert_eq!(rig.dispatch(), None);
}

/// A read of the heaviest level, whose queue is waited for among others.
fn heavy(sector: u64) -> Rq {
    Rq { ioprio: IoPrio::new(Class::BestEffort, 0), ..read(0, sector, SchedTag::NONE) }
}

#[test]
fn of_several_queues_the_one_that_became_busy_last_fills_the_hole() {
    let mut rig = Rig::new(Device::ssd());
    rig.insert(heavy(0));
    rig.serve(MS);
    rig.read(1, APART, 8);
    rig.read(2, 2 * APART, 8);
    // A whole idle slice in vain lets one request in.
    rig.now = rig.device().idle_until.expect("the device is kept").0;
    assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(2 * APART));
    assert!(rig.queue(0).in_service, "the device is still kept");
}

/// Process 0 holds the device; a request of it alone takes 1 ms, and one of others may enter.
fn known_alone() -> Rig {
    let mut rig = Rig::new(Device::ssd());
    rig.set("slice_idle", 30);
    // Its process thinks briefly, as a rule.
    for request in 0..8 {
        rig.insert(heavy(request * 1000));
        rig.serve(MS / 10);
    }
    rig.now += 14 * MS;
    rig.insert(heavy(8));
    rig.serve(MS);
    assert_eq!(rig.queue(0).inject_limit, 1);
    rig
}

#[test]
fn what_was_injected_in_one_slot_says_nothing_of_the_next() {
    let mut rig = known_alone();
    rig.read(1, APART, 8);
    let other = rig.dispatch().expect("an injected request");
    rig.now = rig.device().idle_until.expect("the device is kept").0;
    rig.fire();
    assert!(!rig.queue(0).in_service, "the slot is over, and the other still in the device");
    rig.insert(heavy(16));
    rig.serve(MS / 2);
    rig.insert(heavy(24));
    assert!(rig.queue(0).in_service);
    rig.serve(MS / 2);
    assert_eq!(rig.queue(0).inject_limit, 1, "nothing was injected in this slot");
    rig.complete(other.tag);
}

/// How many others may enter after a request of process 0 that took half as long as alone, beside
/// what `fill` lets in.
fn limit_after(fill: impl FnOnce(&mut Rig)) -> u32 {
    let mut rig = known_alone();
    fill(&mut rig);
    rig.insert(heavy(16));
    rig.serve(MS / 2);
    rig.queue(0).inject_limit
}

#[test]
fn a_request_is_measured_beside_those_of_strangers_and_only_if_it_is_its_process_sole_one() {
    let stranger = |rig: &mut Rig| {
        rig.read(1, APART, 8);
        assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(APART), "in the hole");
    };
    assert_eq!(limit_after(stranger), 2, "it does no harm");
    let stranger_and_write = |rig: &mut Rig| {
        stranger(rig);
        rig.insert(write(0, 2 * APART));
    };
    assert_eq!(limit_after(stranger_and_write), 1, "two of the process are out");
}

#[test]
fn a_request_is_not_measured_beside_those_of_its_waker() {
    let mut rig = Rig::new(Device::ssd());
    // Each request of process 0 follows one of process 1, which is its waker.
    for round in 0..12 {
        rig.read(1, (round + 1) * APART, 8);
        rig.serve(MS);
        rig.now += MS;
        rig.fire();
        rig.insert(heavy(round * 1000));
        rig.serve(MS);
        rig.now += 40 * MS;
        rig.fire();
    }
    assert!(rig.queue(0).has_waker);
    for request in 0..2 {
        rig.insert(heavy(50_000 + request * 8));
        rig.serve(MS);
    }
    assert_eq!(rig.queue(0).inject_limit, 1, "the second one of these is the baseline");
    rig.read(1, 50 * APART, 8);
    assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(50 * APART), "in the hole");
    rig.insert(heavy(50_016));
    rig.serve(MS / 2);
    assert_eq!(rig.queue(0).inject_limit, 1, "the process waits for the waker as well");
}

#[test]
fn what_was_learnt_is_forgotten_after_a_second_at_a_request_that_is_its_process_sole_one() {
    for (writes, limit) in [(0, 0), (1, 1)] {
        let mut rig = known_alone();
        rig.now += 1000 * MS;
        rig.fire();
        for _ in 0..writes {
            rig.insert(write(0, APART));
        }
        rig.insert(heavy(16));
        assert_eq!(rig.queue(0).inject_limit, limit, "beside {writes} writes");
    }
}

#[test]
fn a_queue_of_which_no_time_is_known_lets_one_in_when_its_process_thinks_long() {
    let mut rig = Rig::new(Device::ssd());
    rig.bfq.decide_queueing(Some(true));
    rig.read(1, APART, 8);
    // It stays in the device, so that no request of process 0 is ever alone there.
    let _other = rig.dispatch().expect("a request");
    let limits: Vec<u32> = (0..5)
        .map(|request| {
            rig.insert(heavy(request * 1000));
            let limit = rig.queue(0).inject_limit;
            rig.serve(MS);
            rig.now += 20 * MS;
            rig.fire();
            limit
        })
        .collect();
    assert_eq!(limits, [0, 0, 1, 1, 1], "three arrivals tell");
}
