//! A slot and its end: properties 9, 10 and 12 to 15 of docs/behaviour/bfq.md, section 17.

use weir_bio::{Class, GroupId, IoPrio, Nanos, Op, Prng, Rq, SchedTag};
use weir_sched::Scheduler;
use weir_sched::mq::bfq::Expiry;

use super::bed::Device;
use super::rig::{MS, Process, Rig, read};

/// Sectors apart at which queues never merge.
const APART: u64 = 1 << 26;

#[test]
fn p9_service_stays_within_the_budget_and_budgets_within_their_bounds() {
    for device in [Device::f(), Device::hdd(), Device::ssd()] {
        let mut rig = Rig::new(device);
        let mut prng = Prng::new(9);
        for place in 0..12 {
            let sectors = 8 << prng.below(9);
            let stride = prng.percent(60).then_some(u64::from(sectors));
            let level = prng.below(8) as u8;
            let op = if prng.percent(50) { Op::Read } else { Op::Write };
            let process = Process {
                stride,
                sectors,
                depth: 1 + prng.below(4) as usize,
                op,
                sync: prng.percent(70),
                ioprio: IoPrio::new(Class::BestEffort, level),
                ..Process::reader(place * APART)
            };
            rig.process(place * 10 * MS, process);
        }
        let mut slots = 0;
        let mut last = None;
        rig.run(10_000 * MS, |rig| {
            let device = rig.device();
            if device.last_slot != last {
                last = device.last_slot;
                slots += 1;
                let (reason, service, budget) = last.expect("a slot");
                assert!(service <= budget, "{reason:?}: {service} of {budget} sectors");
            }
            for context in 0..rig.processes.len() as u16 {
                let Some(queue) = rig.bfq.view(weir_bio::SubmitterId(context)) else { continue };
                assert!(queue.service <= queue.budget, "{queue:?}");
            }
        });
        assert!(slots > 50, "{slots} slots");
    }
}

#[test]
fn p9_a_queues_own_most_is_learnt_within_the_devices_bounds() {
    let mut rig = Rig::new(Device::f());
    rig.set("max_budget", 4096);
    for place in 0..4 {
        let sectors = 64 << place;
        rig.process(0, Process { sectors, stride: Some(64), ..Process::reader(place * APART) });
    }
    rig.run(5000 * MS, |rig| {
        for context in 0..4 {
            let Some(queue) = rig.bfq.view(weir_bio::SubmitterId(context)) else { continue };
            assert!((128..=4096).contains(&queue.max_budget), "{queue:?}");
        }
    });
}

#[test]
fn p10_budgets_begin_at_two_thirds_grow_when_used_up_and_shrink_when_idled_away() {
    let mut rig = Rig::new(Device::f());
    // As it is at first, before the rate is known.
    rig.set("max_budget", 16_384);
    rig.read(0, 0, 256);
    assert_eq!(rig.queue(0).max_budget, 10_922);
    // Two queues, so that the first one's slot can end.
    rig.read(1, APART, 256);
    let mut next = 256;
    while rig.device().last_slot.is_none() {
        rig.read(0, next, 256);
        next += 256;
        rig.serve(MS);
    }
    assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::BudgetExhausted));
    assert_eq!(rig.queue(0).max_budget, 16_384, "four times, and no more than the most");
    while rig.bfq.staged() > 0 {
        rig.now += MS;
        rig.fire();
        if let Some(rq) = rig.dispatch() {
            rig.complete(rq.tag);
        }
    }
    let learnt = rig.queue(0).max_budget;
    assert!(learnt > 5 * 512, "{learnt} sectors");
    for slot in 0..12 {
        rig.now += 100 * MS;
        rig.fire();
        let before = rig.queue(0).max_budget;
        rig.read(0, next, 8);
        next += 8;
        rig.serve(MS);
        rig.now += 8 * MS;
        rig.fire();
        assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::TooIdle));
        let after = rig.queue(0).max_budget;
        assert_eq!(after, if before > 5 * 512 { before - 2048 } else { 512 }, "slot {slot}");
    }
    assert_eq!(rig.queue(0).max_budget, 512);
}

#[test]
fn p12_the_idle_timer_is_exact_and_its_length_follows_the_queue() {
    // Alone: it is idled for.
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 256);
    rig.serve(MS);
    assert_eq!(rig.device().idle_until, Some(Nanos(rig.now + 8 * MS)));

    // Raised: longer.
    let mut rig = Rig::new(Device::f());
    rig.set("low_latency", 1);
    rig.read(0, 0, 256);
    assert_eq!(rig.queue(0).coefficient, 30);
    rig.serve(MS);
    assert_eq!(rig.device().idle_until, Some(Nanos(rig.now + 20 * MS)));

    // Seeky, not raised, symmetric: shorter.
    let mut rig = Rig::new(Device::f());
    for request in 0..20 {
        rig.read(0, (request * 7 % 20 + 1) * APART, 8);
    }
    for _ in 0..20 {
        rig.serve(MS);
    }
    assert!(rig.queue(0).seeky);
    assert_eq!(rig.device().idle_until, Some(Nanos(rig.now + 2 * MS)));
}

#[test]
fn p12_nothing_comes_while_the_device_is_kept_and_the_other_queue_when_it_no_longer_is() {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 256);
    let rq = rig.dispatch().expect("a request");
    rig.read(1, APART, 256);
    rig.now += MS;
    rig.complete(rq.tag);
    let until = rig.device().idle_until.expect("the device is kept");
    assert_eq!(rig.dispatch(), None);
    rig.now = until.0;
    rig.fire();
    assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::TooIdle));
    assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(APART));
}

#[test]
fn p13_neither_async_nor_idle_class_queues_nor_any_without_slice_idle_are_idled_for() {
    let idle_class = IoPrio::new(Class::Idle, 0);
    for case in 0..3 {
        let mut rig = Rig::new(Device::f());
        if case == 2 {
            rig.set("slice_idle", 0);
        }
        for place in 0..3 {
            let process = Process::reader(place * APART);
            let process = match case {
                0 => Process { op: Op::Write, sync: false, ..process },
                1 => Process { ioprio: idle_class, ..process },
                _ => process,
            };
            rig.process(0, process);
        }
        rig.run(2000 * MS, |rig| assert_eq!(rig.device().idle_until, None, "case {case}"));
        assert!(rig.dispatched.len() > 500);
    }
}

#[test]
fn p14_queueing_flash_never_waits_for_one_of_several_equals() {
    let mut rig = Rig::new(Device::ssd().with_depth(4));
    for place in 0..8 {
        rig.process(0, Process { sectors: 8, stride: None, ..Process::reader(place * APART) });
    }
    rig.run(2000 * MS, |_| {});
    assert_eq!(rig.refused, 0);
}

#[test]
fn p14_with_two_levels_the_heavier_queue_is_waited_for_and_the_lightest_never() {
    let mut rig = Rig::new(Device::ssd().with_depth(2));
    // Two at once would be taken for a device without a queue.
    rig.bfq.decide_queueing(Some(true));
    for (place, level) in [(0, 0), (1, 7)] {
        let ioprio = IoPrio::new(Class::BestEffort, level);
        let process = Process { sectors: 8, stride: None, ioprio, depth: 2, ..Process::reader(0) };
        rig.process(0, Process { sector: place * APART, think: 200_000, ..process });
    }
    let mut kept_for = [0_u64; 2];
    rig.run(2000 * MS, |rig| {
        if rig.device().idle_until.is_some() && rig.device().busy > 1 {
            for (context, kept) in kept_for.iter_mut().enumerate() {
                *kept += u64::from(rig.queue(context as u16).in_service);
            }
        }
    });
    assert!(kept_for[0] > 0 && kept_for[1] == 0, "{kept_for:?}");
}

/// Serves 10,800 of 10,922 sectors to queue 0, which then has no more, while queue 1 has.
fn nearly_used_up() -> Rig {
    let mut rig = Rig::new(Device::ssd());
    rig.bfq.decide_queueing(Some(true));
    // Near each other, and apart, so that they do not merge.
    for request in 0..108 {
        rig.read(0, request * 108, 100);
    }
    rig.read(1, APART, 8);
    rig.read(1, 2 * APART, 8);
    for _ in 0..108 {
        let rq = rig.serve(10_000);
        assert_eq!(rq.id.submitter().0, 0);
    }
    rig
}

#[test]
fn p15_a_queue_that_returns_in_time_has_the_rest_of_its_budget_and_preempts() {
    let mut rig = nearly_used_up();
    // All of it was one request after the other: the last completion ended the slot.
    assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::NoMoreRequests));
    let rq = rig.dispatch().expect("the other queue's");
    assert_eq!(rq.id.submitter().0, 1);
    rig.now += 10 * MS;
    rig.read(0, 20_000, 8);
    let queue = rig.queue(0);
    assert!(queue.returned_in_time && queue.budget == 122, "{queue:?}");
    // The time stamps then decide which queue is next.
    assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::Preempted));
}

#[test]
fn p15_a_queue_that_returns_late_begins_anew() {
    let mut rig = nearly_used_up();
    rig.dispatch().expect("the other queue's");
    rig.now += 25 * MS;
    rig.read(0, 20_000, 8);
    let queue = rig.queue(0);
    assert!(!queue.returned_in_time && queue.budget == 10_800, "{queue:?}");
}

/// A read of a process of level 0 in a group.
fn heavy(context: u16, group: u32) -> Rq {
    let ioprio = IoPrio::new(Class::BestEffort, 0);
    let place = u64::from(context) * APART;
    Rq { ioprio, group: GroupId(group), ..read(context, place, SchedTag::NONE) }
}

#[test]
fn a_heavier_queue_preempts_only_where_the_root_has_another_to_serve() {
    let mut rig = Rig::new(Device::f());
    rig.bfq.group_weight_changed(GroupId(6), 200, Nanos(0));
    rig.insert(Rq { ioprio: IoPrio::NONE, ..heavy(0, 5) });
    rig.serve(MS);
    assert!(rig.device().idle_until.is_some(), "the device is kept");
    rig.insert(heavy(1, 5));
    assert!(rig.queue(0).in_service, "the group would be its own successor");
    rig.insert(heavy(2, 6));
    assert!(!rig.queue(0).in_service);
    assert_eq!(rig.device().last_slot.map(|slot| slot.0), Some(Expiry::Preempted));
    assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(2 * APART));
}

#[test]
fn requests_of_a_queue_go_the_short_way_and_an_expired_one_first() {
    let mut rig = Rig::new(Device::f());
    for sector in [5000, 1000, 3000] {
        rig.read(0, sector, 8);
    }
    let order: Vec<u64> = (0..3).map(|_| rig.serve(MS).sector).collect();
    assert_eq!(order, [1000, 3000, 5000]);
    // The one far ahead is passed over until it is 125 ms old, and then served once in a slot,
    // which is as long.
    let mut rig = Rig::new(Device::f());
    rig.read(0, APART, 8);
    rig.serve(MS);
    let far = rig.read(0, 40 * APART, 8);
    for request in 1..40 {
        rig.read(0, APART + request * 108, 8);
    }
    let passed = (0..40).take_while(|_| rig.serve(20 * MS).tag != far).count();
    assert!((6..=13).contains(&passed), "{passed} requests went before");
}

/// Why a slot ended of which the last request took 130 ms, and what it was charged. The first slot
/// is used up, so that the second may have 1200 sectors, of which it is served 768.
fn after_a_long_request(op: Op, apart: u64) -> (Expiry, u64) {
    let mut rig = Rig::new(Device::f());
    rig.set("max_budget", 1200);
    for request in 0..24 {
        let rq = read(0, request * apart, SchedTag::NONE);
        rig.insert(Rq { op, sectors: 256, ..rq });
    }
    let quick = if op == Op::Read { 5 } else { 1 };
    for _ in 0..quick {
        rig.serve(MS);
    }
    rig.serve(130 * MS);
    let (reason, service, _) = rig.device().last_slot.expect("a slot that ended");
    (reason, service)
}

#[test]
fn only_a_seeky_sync_queue_is_charged_for_time_when_that_is_over_early() {
    for (op, apart, charged) in [
        (Op::Read, 100_000, 1200),
        (Op::Read, 300, 768),
        (Op::Write, 100_000, 768),
        (Op::Write, 300, 768),
    ] {
        let slot = after_a_long_request(op, apart);
        assert_eq!(slot, (Expiry::BudgetTimeout, charged), "{op:?}, {apart} sectors apart");
    }
}
