//! The estimator, tag limits, tunables and groups: properties 25 to 29 of docs/behaviour/bfq.md,
//! section 17.

use weir_bio::{Class, GroupId, IoPrio, Nanos, Op, Rq, SchedTag, SubmitterId};
use weir_sched::Scheduler;

use super::bed::Device;
use super::rig::{MS, Process, Rig, read};

const APART: u64 = 1 << 26;

#[test]
fn p25_the_peak_rate_is_known_within_five_per_cent_in_eight_seconds() {
    let mut rig = Rig::new(Device::f());
    rig.process(0, Process { depth: 4, ..Process::reader(0) });
    rig.run(8000 * MS, |_| {});
    let rate = (rig.device().peak_rate * 1_000_000) >> 16;
    assert!(rate.abs_diff(195_312) * 20 <= 195_312, "{rate} sectors/s");
    let budget = rig.device().max_budget;
    assert!(budget.abs_diff(24_219) * 20 <= 24_219, "{budget} sectors");
}

#[test]
fn the_reference_budget_holds_until_a_rate_was_measured_however_many_slots_there_were() {
    let mut rig = Rig::new(Device::ssd());
    rig.bfq.decide_queueing(Some(true));
    for place in 0..2 {
        rig.process(0, Process { sectors: 8, think: MS, ..Process::reader(place * APART) });
    }
    rig.run(290 * MS, |_| {});
    let process = |at: usize| rig.dispatched[at].1.id.submitter();
    let slots = (1..rig.dispatched.len()).filter(|at| process(*at) != process(at - 1)).count();
    assert!(slots > 20, "{slots} slots");
    assert_eq!(rig.device().max_budget, 16_384);
}

fn limits(rig: &Rig) -> [Option<u16>; 3] {
    let limit = |op, sync| rig.bfq.depth_limit(op, sync, SubmitterId(100));
    [limit(Op::Read, true), limit(Op::Write, true), limit(Op::Write, false)]
}

#[test]
fn p26_writes_and_async_requests_leave_tags_to_reads() {
    let mut rig = Rig::new(Device::f());
    rig.bfq.depth_changed(64);
    assert_eq!(limits(&rig), [None, Some(48), Some(32)]);
    rig.set("low_latency", 1);
    rig.read(0, 0, 8);
    assert_eq!(rig.queue(0).coefficient, 30);
    assert_eq!(limits(&rig), [None, Some(24), Some(12)]);
}

#[test]
fn p26_a_queue_that_holds_its_share_of_the_tags_gets_one_at_a_time() {
    let mut rig = Rig::new(Device::f());
    rig.bfq.depth_changed(64);
    let limit = |rig: &Rig, context| rig.bfq.depth_limit(Op::Read, true, SubmitterId(context));
    for request in 0..31 {
        rig.read(0, request * 1000, 8);
    }
    rig.read(1, APART, 8);
    assert_eq!((limit(&rig, 0), limit(&rig, 1)), (None, None));
    rig.read(0, 31_000, 8);
    assert_eq!((limit(&rig, 0), limit(&rig, 1)), (Some(1), None), "half of 64 each");
}

#[test]
fn p27_with_strict_guarantees_one_request_is_in_the_device() {
    let mut rig = Rig::new(Device::ssd());
    rig.set("strict_guarantees", 1);
    for place in 0..6 {
        let process = Process { depth: 4, sectors: 8 << place, ..Process::reader(place * APART) };
        let sync = place < 4;
        rig.process(0, Process { op: Op::Write, sync, ..process });
    }
    rig.run(3000 * MS, |rig| assert!(rig.in_flight <= 1));
    assert!(rig.dispatched.len() > 1000);
}

#[test]
fn p28_tunables_clamp_mirror_and_refuse() {
    let mut rig = Rig::new(Device::f());
    rig.set("slice_idle", 4);
    assert_eq!(rig.show("slice_idle_us"), "4000");
    rig.set("slice_idle_us", 1500);
    assert_eq!(rig.show("slice_idle"), "1");
    rig.set("slice_idle", 2);
    rig.set("strict_guarantees", 1);
    assert_eq!(rig.show("slice_idle"), "8");
    rig.set("back_seek_penalty", 0);
    assert_eq!(rig.show("back_seek_penalty"), "1");
    rig.set("low_latency", 7);
    assert_eq!(rig.show("low_latency"), "1");
    rig.set("max_budget", 5_000_000_000);
    assert_eq!(rig.show("max_budget"), "2147483647");
    rig.set("max_budget", 1000);
    assert_eq!((rig.show("max_budget"), rig.device().max_budget), ("1000".into(), 1000));
    rig.set("max_budget", 0);
    assert_eq!((rig.show("max_budget"), rig.device().max_budget), ("0".into(), 16_384));
    for text in ["", "x", "-1", "1x"] {
        assert!(rig.bfq.tunables().set("slice_idle", text).is_err(), "{text:?}");
    }
    assert_eq!(rig.show("slice_idle"), "8");
    let mut defaults = Rig::with(Device::f(), Default::default());
    for row in weir_sched::mq::bfq::TUNABLES {
        assert_eq!(defaults.show(row.name), row.default.to_string(), "{}", row.name);
    }
}

#[test]
fn p29_a_way_back_counts_double() {
    for (behind, first) in [(900, 900), (800, 1300)] {
        let mut rig = Rig::new(Device::f());
        rig.read(0, 992, 8);
        rig.serve(MS);
        rig.read(0, behind, 8);
        rig.read(0, 1300, 8);
        assert_eq!(rig.serve(MS).sector, first);
    }
}

#[test]
fn a_priority_counts_from_the_next_activation() {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 8);
    assert_eq!(rig.queue(0).weight, 40);
    let ioprio = IoPrio::new(Class::BestEffort, 0);
    rig.insert(Rq { ioprio, ..read(0, 5000, SchedTag::NONE) });
    assert_eq!(rig.queue(0).weight, 40, "not while it waits");
    rig.serve(MS);
    rig.serve(MS);
    rig.now += 100 * MS;
    rig.fire();
    rig.insert(Rq { ioprio, ..read(0, 8, SchedTag::NONE) });
    assert_eq!(rig.queue(0).weight, 80);
}

/// Two readers that are never without a request; what each is answered in the last two of four
/// seconds, after the second has changed its priority.
fn under_backlog(ioprio: IoPrio) -> [u64; 2] {
    let mut rig = Rig::new(Device::f());
    for place in 0..2 {
        // A gap apart, so that requests do not become one and the queue is never empty.
        let blocks = Process { stride: Some(512), depth: 8, think: 0, ..Process::reader(0) };
        rig.process(0, Process { sector: place * APART, ..blocks });
    }
    rig.run(1000 * MS, |_| {});
    rig.processes[1].ioprio = ioprio;
    rig.run(2000 * MS, |_| {});
    let before = [0, 1].map(|at: usize| rig.processes[at].answered);
    rig.run(4000 * MS, |_| {});
    [0, 1].map(|at| rig.processes[at].answered - before[at])
}

#[test]
fn a_queue_with_a_standing_backlog_feels_another_priority() {
    let [other, heavier] = under_backlog(IoPrio::new(Class::BestEffort, 0));
    assert!((heavier * 100 / other).abs_diff(200) <= 20, "{heavier} to {other}");
    let [other, real_time] = under_backlog(IoPrio::new(Class::RealTime, 4));
    assert_eq!(other, 0, "best effort beside real time, which has {real_time}");
    let [other, idle] = under_backlog(IoPrio::new(Class::Idle, 0));
    assert!(idle * 20 < other, "the idle class has {idle}, best effort {other}");
}

#[test]
fn an_async_request_has_a_priority_of_its_own_and_the_next_sync_one_still_counts() {
    let mut rig = Rig::new(Device::f());
    let first = IoPrio::new(Class::BestEffort, 0);
    let back_after_a_while = |rig: &mut Rig, ioprio| {
        rig.now += 100 * MS;
        rig.fire();
        rig.insert(Rq { ioprio, ..read(0, 8, SchedTag::NONE) });
        let weight = rig.queue(0).weight;
        while rig.bfq.staged() > 0 {
            rig.serve(MS);
        }
        weight
    };
    assert_eq!(back_after_a_while(&mut rig, IoPrio::NONE), 40);
    let write = Rq { op: Op::Write, ioprio: first, ..read(0, APART, SchedTag::NONE) };
    rig.insert(write);
    assert_eq!(back_after_a_while(&mut rig, IoPrio::NONE), 40);
    rig.insert(write);
    assert_eq!(back_after_a_while(&mut rig, first), 80);
}

#[test]
fn a_class_that_was_asked_for_counts_when_the_queue_moves_to_another_group() {
    let mut rig = Rig::new(Device::f());
    let real_time = IoPrio::new(Class::RealTime, 4);
    let in_group = |group, rq| Rq { group: GroupId(group), ..rq };
    for request in 0..4 {
        rig.insert(in_group(6, read(1, APART + request * 1000, SchedTag::NONE)));
    }
    rig.insert(in_group(5, read(0, 0, SchedTag::NONE)));
    let asked = Rq { ioprio: real_time, ..read(0, 500, SchedTag::NONE) };
    rig.insert(in_group(5, asked));
    let moved = Rq { ioprio: real_time, ..read(0, 1000, SchedTag::NONE) };
    rig.insert(in_group(6, moved));
    let order: Vec<u16> = (0..2).map(|_| rig.serve(MS).id.submitter().0).collect();
    assert_eq!(order, [0, 0], "real time goes first");
    while rig.bfq.staged() > 0 {
        rig.now += MS;
        rig.fire();
        if let Some(rq) = rig.dispatch() {
            rig.complete(rq.tag);
        }
    }
    for context in 0..2 {
        rig.bfq.context_ended(SubmitterId(context), Nanos(rig.now));
    }
    assert!(rig.device().counters_are_zero);
}

#[test]
fn a_turn_that_was_kept_for_a_process_ends_with_the_process() {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 8);
    rig.serve(MS);
    assert!(rig.device().idle_until.is_some());
    // A heavier group comes first; process 0 has no request, but is to be asked again.
    rig.insert(Rq { group: GroupId(5), ..read(1, APART, SchedTag::NONE) });
    assert!(!rig.queue(0).in_service);
    assert_eq!(rig.device().busy, 2);
    rig.bfq.context_ended(SubmitterId(0), Nanos(rig.now));
    assert_eq!((rig.device().busy, rig.device().queues), (1, 1));
    rig.serve(MS);
    rig.bfq.context_ended(SubmitterId(1), Nanos(rig.now));
    assert_eq!((rig.device().busy, rig.device().queues), (0, 0));
    assert!(rig.device().counters_are_zero);
}

#[test]
fn a_process_takes_its_queue_along_to_another_group_with_all_that_is_staged() {
    let mut rig = Rig::new(Device::f());
    let in_group = |group, sector| Rq { group: GroupId(group), ..read(0, sector, SchedTag::NONE) };
    rig.insert(in_group(5, 0));
    rig.insert(in_group(5, 1000));
    rig.insert(Rq { op: Op::Write, ..in_group(5, 2000) });
    rig.insert(Rq { group: GroupId(6), ..read(1, APART, SchedTag::NONE) });
    let name = rig.queue(0).name;
    let first = rig.dispatch().expect("a request");
    rig.insert(in_group(6, 3000));
    assert_eq!(rig.queue(0).name, name);
    rig.complete(first.tag);
    let mut left = 0;
    while rig.bfq.staged() > 0 && rig.now < 1000 * MS {
        rig.now += MS;
        rig.fire();
        if let Some(rq) = rig.dispatch() {
            rig.complete(rq.tag);
            left += 1;
        }
    }
    assert_eq!((left, rig.bfq.staged()), (4, 0));
}

#[test]
fn a_queues_share_of_the_tags_is_one_of_what_its_kind_of_request_may_have() {
    let mut rig = Rig::new(Device::f());
    rig.bfq.depth_changed(64);
    let limit = |rig: &Rig, op| rig.bfq.depth_limit(op, true, SubmitterId(0));
    for request in 0..23 {
        rig.read(0, request * 1000, 8);
    }
    rig.read(1, APART, 8);
    assert_eq!((limit(&rig, Op::Read), limit(&rig, Op::Write)), (None, Some(48)));
    rig.read(0, 31_000, 8);
    assert_eq!((limit(&rig, Op::Read), limit(&rig, Op::Write)), (None, Some(1)), "half of 48");
}

#[test]
fn a_queue_whose_requests_are_all_in_the_device_still_holds_its_share_of_the_tags() {
    let mut rig = Rig::new(Device::ssd());
    rig.bfq.depth_changed(64);
    for request in 0..30 {
        rig.read(0, request * 1000, 8);
    }
    (0..30).for_each(|_| assert!(rig.dispatch().is_some()));
    rig.read(1, APART, 8);
    rig.read(2, 2 * APART, 8);
    rig.dispatch().expect("a request of another queue");
    assert!(rig.queue(0).queued == 0 && !rig.queue(0).in_service);
    rig.read(1, APART + 5000, 8);
    assert_eq!(rig.bfq.depth_limit(Op::Read, true, SubmitterId(0)), Some(1), "a third of 64");
}
