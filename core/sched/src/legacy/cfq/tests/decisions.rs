//! Single decisions of CFQ, each by its rule.

use super::*;

/// A device without seeks, whose requests are long enough to be none.
fn flash() -> Rig {
    Rig::with(&setup(false, 2))
}

impl Rig {
    fn queue_of(&self, submitter: u16) -> QueueId {
        self.cfq.present_queue(&rq(submitter, 0)).expect("a queue")
    }

    /// Reads once, and thinks.
    fn read_and_think(&mut self, rq: Rq, ns: u64) {
        self.insert(rq);
        self.turn(MS);
        self.later(ns);
        self.cfq.on_timer(self.now);
    }
}

#[test]
fn a_close_queue_is_served_next_if_it_is_of_the_same_group_kind_and_class() {
    let close = |other: Rq, seeky: bool| {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.insert(rq(3, 90_000_000));
        rig.turn(MS);
        if seeky {
            for jump in 0..6 {
                rig.insert(Rq { sector: 200_000_000 + jump * 1_000_000, ..other });
            }
        }
        rig.insert(other);
        let id = rig.queue_of(1);
        rig.cfq.close_cooperator(id).is_some()
    };
    assert!(close(rq(2, 1128), false));
    assert!(close(rq(2, 1128 + 8192), false));
    assert!(!close(rq(2, 1128 + 8193), false), "too far");
    assert!(!close(Rq { group: GroupId(7), ..rq(2, 1128) }, false), "another group");
    assert!(!close(background(2, 1128), false), "async");
    assert!(!close(at_level(Class::RealTime, 4, rq(2, 1128)), false), "another class");
    assert!(!close(at_level(Class::BestEffort, 3, rq(2, 1128)), false), "another level");
    assert!(!close(rq(2, 1128), true), "it jumps about");
}

#[test]
fn the_process_that_the_device_is_kept_idle_for_must_have_its_request_and_no_other() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 9_000_000));
    let may = |rig: &Rig, rq| rig.cfq.may_queue(&rq);
    assert_eq!((rig.cfq.idles_for(), may(&rig, rq(1, 1008))), (None, MayQueue::May));
    rig.turn(MS);
    rig.cfq.idle_until = Some(rig.now + 8 * MS);
    let kept_for = rig.cfq.active_process.expect("one was served");
    assert_eq!(rig.cfq.idles_for(), Some(kept_for));
    let (own, other) = (kept_for.0, 3 - kept_for.0);
    assert_eq!(may(&rig, rq(own, 1008)), MayQueue::Must);
    assert_eq!(may(&rig, background(own, 1008)), MayQueue::May, "it is not waited for");
    assert_eq!(may(&rig, rq(other, 1008)), MayQueue::May);
}

#[test]
fn a_group_that_has_nothing_more_keeps_no_rest_of_a_workload() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    let group = rig.cfq.queue(rig.queue_of(1)).group;
    rig.turn(MS);
    rig.cfq.expire(false, rig.now);
    assert!(rig.cfq.groups[group].saved.is_none());
    assert_eq!(rig.cfq.active_process, None, "no process is in service");
}

#[test]
fn a_long_think_time_of_the_tree_ends_the_wait_for_its_only_queue() {
    let write = |at| Rq { op: Op::Write, flags: Flags::SYNC, ..rq(1, at) };
    let waits = |think: u64| {
        let mut rig = Rig::new();
        for step in 0..12 {
            rig.read_and_think(write(1000 + step * 128), think);
        }
        rig.insert(write(5000));
        let id = rig.queue_of(1);
        assert!(!rig.cfq.queue(id).idle_window);
        rig.cfq.should_idle(id)
    };
    assert!(waits(MS));
    assert!(!waits(15 * MS));
}

#[test]
fn without_group_idle_nothing_is_waited_for_on_flash_that_queues() {
    let armed = |rotational: bool, queueing: bool, group_idle: &str| {
        let mut rig = Rig::with(&setup(rotational, 2));
        rig.cfq.set_queueing(queueing);
        rig.set("slice_idle", "8");
        rig.set("group_idle", group_idle);
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        rig.cfq.wake_at().is_some()
    };
    assert!(armed(true, true, "0"));
    assert!(armed(false, false, "0"));
    assert!(!armed(false, true, "0"));
    assert!(armed(false, true, "8"));
}

#[test]
fn a_queue_that_jumps_is_waited_for_from_four_staged_requests_on() {
    let mut rig = Rig::new();
    for jump in 0..8 {
        rig.read_and_think(rq(1, 1000 + jump * 1_000_000), MS);
    }
    let id = rig.queue_of(1);
    for (staged, deep) in [(1, false), (2, false), (3, false), (4, true)] {
        rig.insert(rq(1, 100_000_000 + staged * 1_000_000));
        let queue = rig.cfq.queue(id);
        assert_eq!((queue.deep, queue.idle_window), (deep, deep), "{staged} staged");
    }
}

#[test]
fn a_wait_in_vain_ends_the_depth_of_a_queue_unless_its_slice_is_over() {
    for (used, deep) in [(false, false), (true, true)] {
        let mut rig = idling_rig();
        let id = rig.queue_of(1);
        rig.cfq.queue_mut(id).deep = true;
        rig.later(8 * MS);
        if used {
            rig.cfq.queue_mut(id).slot.ends_at = rig.now;
        }
        rig.cfq.on_timer(rig.now);
        assert!(rig.active().is_none());
        assert_eq!(rig.cfq.queue(id).deep, deep, "its slice is over: {used}");
    }
}

#[test]
fn a_group_is_waited_for_while_its_only_queue_has_requests_in_flight() {
    let waits = |in_flight: bool, others: bool, group_idle: &str| {
        let mut rig = Rig::new();
        rig.set("group_idle", group_idle);
        rig.insert(rq(1, 1000));
        rig.insert(rq(1, 9000));
        if others {
            rig.insert(rq(2, 90_000_000));
        }
        if in_flight {
            rig.dispatch().expect("a request");
        }
        rig.cfq.waits_for_group(rig.queue_of(1))
    };
    assert!(waits(true, false, "8"));
    assert!(!waits(false, false, "8"));
    assert!(!waits(true, true, "8"));
    assert!(!waits(true, false, "0"));
}

#[test]
fn a_small_request_lets_the_wait_go_on_for_what_merges_with_it() {
    let waits = |sectors: u32, others: bool| {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        if others {
            rig.insert(rq(2, 90_000_000));
        }
        rig.insert(Rq { sectors, ..rq(1, 1128) });
        assert!(rig.active().is_some());
        (rig.cfq.wake_at().is_some(), rig.active().is_some_and(|queue| queue.slot.must_dispatch))
    };
    assert_eq!(waits(8, false), (true, true));
    assert_eq!(waits(9, false), (false, false));
    assert_eq!(waits(8, true), (false, false), "another queue is busy");
}

#[test]
fn a_lone_sync_queue_has_no_limit_in_flight_beside_async_ones_which_have() {
    let mut rig = Rig::new();
    for step in 0..20 {
        rig.insert(rq(1, 1000 + step * 128));
        rig.insert(background(2, 90_000_000 + step * 128));
    }
    let [sync, writes] = [0, 1].map(QueueId);
    for id in [sync, writes] {
        assert_eq!(rig.cfq.in_flight_limit(id, rig.now), 4, "half of the quantum in any case");
        rig.cfq.queue_mut(id).in_flight = 4;
    }
    assert_eq!(rig.cfq.in_flight_limit(sync, rig.now), u64::MAX);
    assert_eq!(rig.cfq.in_flight_limit(writes, rig.now), 4, "its slice has not begun");
    rig.cfq.queue_mut(writes).slot.started_at = Some(rig.now);
    for (left, limit) in [(32 * MS, 8), (32 * MS - 1, 4)] {
        rig.cfq.queue_mut(writes).slot.ends_at = rig.now + left;
        assert_eq!(rig.cfq.in_flight_limit(writes, rig.now), limit, "{left} ns are left");
    }
    rig.insert(rq(3, 500_000_000));
    assert_eq!(rig.cfq.in_flight_limit(sync, rig.now), 4, "not the only one");
}

#[test]
fn a_sync_request_is_late_from_its_expiry_on() {
    for (age, late) in [(125 * MS - 1, false), (125 * MS, true)] {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        let read = rig.dispatch().expect("a request");
        let before = rig.cfq.last_late_sync_ns;
        let accepted_at = rig.now;
        rig.later(age);
        rig.complete_since(&read, accepted_at);
        let now = Some(rig.now.0 as i64);
        assert_eq!(rig.cfq.last_late_sync_ns, if late { now } else { before }, "{age} ns old");
    }
}

#[test]
fn a_lone_queue_waits_for_another_request_when_its_slice_ends_as_long_as_its_kind_of_idling() {
    for (slice_idle, group_idle, more) in [("8", "5", 8), ("0", "5", 5)] {
        let mut rig = Rig::new();
        rig.set("slice_idle", slice_idle);
        rig.set("group_idle", group_idle);
        rig.insert(rq(1, 1000));
        rig.insert(rq(1, 1128));
        rig.turn(MS);
        let last = rig.dispatch().expect("a request");
        rig.later(100 * MS);
        rig.complete(&last);
        let slot = rig.active().expect("in service").slot;
        assert_eq!((slot.waits_busy, slot.ends_at), (true, rig.now + more * MS));
    }
}

#[test]
fn a_queue_without_a_process_is_not_shared() {
    let redirected = |gone: Option<u16>| {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.insert(rq(2, 1128));
        let [one, two] = [1, 2].map(|submitter| rig.queue_of(submitter));
        if let Some(gone) = gone {
            rig.cfq.context_ended(SubmitterId(gone), rig.now);
        }
        rig.cfq.set_up_sharing(one, two);
        rig.cfq.set_up_sharing(two, one);
        [one, two].map(|id| rig.cfq.queue(id).redirect)
    };
    let [one, two] = redirected(None);
    assert!(one.is_some() && two.is_none(), "once, and in one direction");
    assert_eq!(redirected(Some(1)), [None, None]);
    assert_eq!(redirected(Some(2)), [None, None]);
}

#[test]
fn busy_queues_are_averaged_for_each_class_apart() {
    let mut rig = Rig::new();
    for submitter in 1..=3 {
        let at = u64::from(submitter) * 10_000_000;
        rig.insert(at_level(Class::RealTime, 4, rq(submitter, at)));
    }
    let group = &mut rig.cfq.groups[names::GroupIndex(0)];
    assert_eq!(group.update_average(Class::RealTime), 2, "(3 * 3 + 0 + 2) / 4");
    assert_eq!([Class::BestEffort, Class::Idle].map(|class| group.average_of(class)), [0, 0]);
}

#[test]
fn a_group_waits_at_the_end_of_a_slice_if_its_process_thinks_longer_than_is_left() {
    let mut rig = Rig::new();
    for step in 0..12 {
        rig.insert(rq(1, 1000 + step * 128));
        rig.turn(MS);
        rig.later(5 * MS);
    }
    let id = rig.active().map(|_| rig.queue_of(1)).expect("in service");
    for (left, waits) in [(30, false), (6, false), (3, true), (1, true), (0, true)] {
        rig.cfq.queue_mut(id).slot.ends_at = rig.now + left * MS;
        assert_eq!(rig.cfq.should_wait_busy(id, rig.now), waits, "{left} ms are left");
    }
    // Before anything is known of its process, a tick that is left counts as none.
    rig.cfq.active_process = None;
    for (left, waits) in [(1_000_001, false), (1_000_000, true)] {
        rig.cfq.queue_mut(id).slot.ends_at = rig.now + left;
        assert_eq!(rig.cfq.should_wait_busy(id, rig.now), waits, "{left} ns are left");
    }
}

#[test]
fn a_wait_found_to_be_over_kicks_the_device_once() {
    let mut rig = idling_rig();
    rig.later(9 * MS);
    rig.insert(rq(2, 90_000_128));
    assert_eq!(rig.cfq.take_kicked(), 1);
    assert_eq!(rig.cfq.take_kicked(), 0);
}

#[test]
fn the_reach_of_a_back_seek_is_told_in_kib_and_counted_in_sectors() {
    let mut rig = Rig::new();
    assert_eq!(rig.cfq.knobs.back_seek().max_sectors, 32_768);
    rig.set("back_seek_max", "100");
    assert_eq!(rig.cfq.knobs.back_seek().max_sectors, 200);
}

#[test]
fn a_full_request_makes_room_in_the_merge_cache() {
    let mut rig = Rig::with(&setup(true, 1));
    let bio = |sectors: u32, at: u64| Rq { sectors, ..rq(1, at) };
    rig.insert(bio(500, 1000));
    assert_eq!(rig.cfq.merge(&bio(100, 1500), rig.now), Merge::No, "more than 512 sectors");
    assert_eq!(rig.cfq.merge(&bio(8, 1500), rig.now), Merge::No, "it is not tried again");
    let next = rig.insert(bio(8, 5000));
    assert_eq!(rig.cfq.merge(&bio(8, 5008), rig.now), Merge::Back(next));
}

#[test]
fn the_merge_cache_holds_what_grew_last() {
    let mut rig = Rig::with(&setup(true, 0));
    let bio = |at: u64| Rq { sectors: 8, ..rq(1, at) };
    let first = rig.insert(bio(1000));
    let other = rig.insert(bio(5000));
    assert_eq!(rig.cfq.last_merge, Some(first));
    assert_eq!(rig.cfq.merge(&bio(4992), rig.now), Merge::Front(other));
    assert_eq!(rig.cfq.last_merge, Some(other));
    assert_eq!(rig.cfq.queue(rig.queue_of(1)).next, Some(first), "the other one is no nearer");
    assert_eq!(rig.cfq.merge(&bio(1008), rig.now), Merge::Back(first));
    assert_eq!(rig.cfq.last_merge, Some(first));
}

#[test]
fn the_next_request_stays_the_next_one_as_it_is_taken_in() {
    let mut rig = Rig::with(&setup(true, 0));
    let bio = |at: u64| Rq { sectors: 8, ..rq(1, at) };
    rig.cfq.position = 10_000;
    let before = rig.insert(bio(9984));
    let next = rig.insert(bio(10_000));
    rig.insert(bio(10_020));
    let id = rig.queue_of(1);
    assert_eq!(rig.cfq.queue(id).next, Some(next));
    let joined = rig.cfq.merge(&bio(9992), rig.now);
    assert_eq!(joined, Merge::BackJoined { kept: before, gone: next });
    assert_eq!(rig.cfq.queue(id).next, Some(before));
    assert_eq!(rig.cfq.queue(id).close, Some((4, (9984, id))), "others find it there");
}

#[test]
fn what_is_inserted_joins_by_the_hash_unless_only_the_cache_is_asked() {
    for (nomerges, joins) in [(0, true), (1, false)] {
        let mut rig = Rig::with(&setup(true, nomerges));
        let bio = |at: u64| Rq { sectors: 8, ..rq(1, at) };
        rig.insert(bio(1000));
        let other = rig.insert(bio(5000));
        let last = rig.insert(bio(5008));
        let expected = if joins { vec![(other, last)] } else { Vec::new() };
        assert_eq!(rig.absorbed, expected, "nomerges {nomerges}");
    }
}

#[test]
fn service_is_counted_from_the_start_as_the_device_asks() {
    for rotational in [true, false] {
        let cfq = Cfq::new(&setup(rotational, 0));
        assert_eq!(cfq.charges_requests, cfq.counts_requests(), "rotational: {rotational}");
        let mut rig = Rig::with(&setup(rotational, 2));
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        rig.cfq.expire(false, rig.now);
        let cfq = rig.cfq;
        assert_eq!(cfq.charges_requests, cfq.counts_requests(), "and after a slot");
    }
}

#[test]
fn a_device_that_never_holds_five_requests_does_not_queue() {
    let queues = |in_flight: usize| {
        let mut rig = flash();
        rig.set("quantum", "64");
        assert!(rig.cfq.is_queueing(), "until something is known");
        for step in 0..100 {
            rig.insert(rq(1, 1000 + step * 128));
        }
        let mut out = Vec::new();
        for _ in 0..70 {
            while out.len() < in_flight {
                out.push(rig.dispatch().expect("a request"));
            }
            let rq = out.remove(0);
            rig.later(MS / 100);
            rig.complete(&rq);
        }
        rig.cfq.is_queueing()
    };
    assert!(!queues(1));
    assert!(!queues(4));
    assert!(queues(5));
}

#[test]
fn the_last_process_of_a_queue_to_be_split_keeps_it() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    let id = rig.queue_of(1);
    (rig.cfq.queue_mut(id).shared, rig.cfq.queue_mut(id).splits) = (true, true);
    rig.insert(rq(1, 1128));
    assert_eq!(rig.queue_of(1), id);
    let queue = rig.cfq.queue(id);
    assert_eq!((queue.shared, queue.splits, queue.processes), (false, false, 1));
}

#[test]
fn the_cap_of_an_async_slot_is_twice_its_tunable_for_each_level() {
    let mut rig = Rig::new();
    rig.set("low_latency", "0");
    rig.set("quantum", "64");
    rig.set("slice_async_rq", "3");
    for write in 0..50 {
        rig.insert(background(1, write * 1000 + 1000));
    }
    rig.insert(at_level(Class::BestEffort, 7, background(2, 90_000_000)));
    let mut served = 0;
    while served == 0 || rig.active().is_some() {
        assert_eq!(rig.serve(), Some(1));
        served += 1;
    }
    assert_eq!(served, 2 * 3 * 4);
}

/// Disk time and unaccounted time of one slot of a reader, microseconds.
fn slot(answered_us: Option<u64>, until_us: u64) -> (u64, u64) {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    let start = rig.now;
    let read = rig.dispatch().expect("a request");
    if let Some(us) = answered_us {
        rig.later(us * 1000);
        rig.complete(&read);
    }
    rig.now = start + until_us * 1000;
    rig.cfq.expire(false, rig.now);
    let used = rig.cfq.group_use(GroupId(0));
    assert_eq!((used.requests, used.sectors), (1, 128));
    (used.time_ns / 1000, used.unaccounted_ns / 1000)
}

#[test]
fn a_slot_is_charged_from_its_first_answer_and_no_more_than_its_slice() {
    assert_eq!(slot(Some(5000), 35_000), (30_000, 5000), "the way there is free");
    assert_eq!(slot(Some(5000), 135_000), (100_000, 35_000), "an overrun as well");
    assert_eq!(slot(Some(5000), 5000), (5000, 0), "no time since the answer: all of it");
    assert_eq!(slot(None, 5000), (5000, 0), "without an answer seeks are paid");
    assert_eq!(slot(None, 200), (1000, 0), "a tick at least");
}

#[test]
fn an_async_slot_of_a_group_without_sync_queues_costs_its_whole_slice() {
    let mut rig = Rig::new();
    let of = |group: u32, rq: Rq| Rq { group: GroupId(group), ..rq };
    let charged = |rig: &mut Rig, rq: Rq| {
        let group = rq.group;
        rig.insert(rq);
        let write = rig.dispatch().expect("a request");
        let at = rig.cfq.groups.known(group).expect("a group");
        let before = rig.cfq.groups[at].virtual_time();
        rig.later(MS);
        rig.complete(&write);
        rig.later(MS);
        rig.insert(Rq { sector: rq.sector + 4096, ..rq });
        let now = rig.now;
        rig.cfq.expire(false, now);
        // Time of the whole device, for the group has all of it.
        (rig.cfq.groups[at].virtual_time() - before) >> 12
    };
    assert_eq!(charged(&mut rig, of(1, background(1, 1000))), 40 * u128::from(MS));
    let mut rig = Rig::new();
    assert_eq!(charged(&mut rig, of(1, rq(1, 1000))), u128::from(MS), "a sync slot its time");
    // A sync request that comes ends the slot, and its queue counts.
    let mut rig = Rig::new();
    rig.insert(of(1, background(1, 1000)));
    rig.turn(MS);
    rig.insert(of(1, background(1, 5000)));
    let at = rig.cfq.groups.known(GroupId(1)).expect("a group");
    let before = rig.cfq.groups[at].virtual_time();
    rig.insert(of(1, rq(1, 9000)));
    assert!(rig.active().is_none());
    assert_eq!((rig.cfq.groups[at].virtual_time() - before) >> 12, u128::from(MS));
}

#[test]
fn the_rest_of_a_workload_goes_on_when_its_group_is_served_again() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(background(2, 90_000_000));
    let at = rig.cfq.queue(rig.queue_of(1)).group;
    for left_ns in [100 * MS, 0] {
        let (class, kind) = (Class::BestEffort, names::Kind::Async);
        rig.cfq.groups[at].saved = Some(group::SavedWorkload { left_ns, class, kind });
        let id = rig.cfq.choose(rig.now).expect("a queue");
        assert!(!rig.cfq.queue(id).sync, "the kind goes on though sync waits for longer");
        let left = rig.cfq.workload.saved(rig.now).map_or(0, |rest| rest.left_ns);
        assert_eq!(left, left_ns);
    }
    rig.cfq.groups[at].saved = None;
    let id = rig.cfq.choose(rig.now).expect("a queue");
    assert!(rig.cfq.queue(id).sync);
}

#[test]
fn a_queue_takes_as_many_requests_as_the_depth_that_was_set_last_and_those_in_flight_stay() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    rig.cfq.depth_changed(2 * TAGS);
    rig.free = (0..2 * TAGS).rev().collect();
    // Two far ends and a crowd between them, from the top down: no index by sector spreads them.
    rig.insert(rq(1, 1 << 40));
    rig.insert(rq(1, 0));
    for step in 2..u64::from(2 * TAGS) {
        rig.insert(rq(1, 1_000_000 - step * 128));
    }
    let mut out = Vec::new();
    rig.cfq.drain(&mut out, rig.now);
    assert_eq!(out.len(), usize::from(2 * TAGS));
    rig.cfq.depth_changed(TAGS);
    out.iter().for_each(|rq| rig.complete(rq));
    assert_eq!(rig.cfq.in_flight, [0, 0]);
}

/// Queues of processes 1 and 2 without requests; process 1 is to go to the queue of the other.
fn redirected() -> (Rig, [QueueId; 2]) {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 1128));
    let [one, two] = [1, 2].map(|submitter| rig.queue_of(submitter));
    rig.cfq.set_up_sharing(one, two);
    rig.empty();
    (rig, [one, two])
}

impl Rig {
    /// Serves and answers all there is.
    fn empty(&mut self) {
        let mut out = Vec::new();
        self.cfq.drain(&mut out, self.now);
        out.iter().for_each(|rq| self.complete(rq));
    }
}

#[test]
fn queues_set_up_to_share_are_free_when_both_processes_are_gone_whoever_ends_first() {
    for gone in [[1, 2], [2, 1]] {
        let (mut rig, ids) = redirected();
        let [first, last] = gone.map(SubmitterId);
        rig.cfq.context_ended(first, rig.now);
        assert!(!rig.cfq.free_queues.contains(&ids[1]), "a process may still go there");
        rig.cfq.context_ended(last, rig.now);
        let mut free = rig.cfq.free_queues.clone();
        free.sort();
        assert_eq!(free, ids, "{gone:?}");
    }
}

#[test]
fn a_process_that_goes_to_a_shared_queue_leaves_its_own_which_is_free_then() {
    let (mut rig, [one, two]) = redirected();
    rig.insert(rq(1, 2000));
    assert_eq!(rig.queue_of(1), two);
    assert_eq!((rig.cfq.queue(two).processes, rig.cfq.queue(one).processes), (2, 0));
    assert_eq!(rig.cfq.free_queues, [one]);
    rig.empty();
    for submitter in [1, 2] {
        assert!(!rig.cfq.free_queues.contains(&two));
        rig.cfq.context_ended(SubmitterId(submitter), rig.now);
    }
    assert_eq!(rig.cfq.free_queues, [one, two]);
}

#[test]
fn a_lone_queue_keeps_the_device_beyond_its_slice_while_its_last_requests_are_under_way() {
    for (others, waits) in [(false, true), (true, false)] {
        let mut rig = Rig::new();
        rig.set("group_idle", "0");
        rig.insert(rq(1, 1000));
        rig.insert(rq(1, 1128));
        let [first, _second] = [rig.dispatch(), rig.dispatch()];
        rig.complete(&first.expect("a request"));
        rig.insert(Rq { group: GroupId(7), ..rq(2, 90_000_000) });
        if others {
            rig.insert(rq(3, 50_000_000));
        }
        assert_eq!(rig.dispatch(), None);
        rig.later(100 * MS);
        assert_eq!(rig.dispatch().is_none(), waits, "others of its group are busy: {others}");
    }
}

#[test]
fn a_queue_with_nothing_in_flight_that_is_waited_for_no_more_goes() {
    for its_slice_is_over in [true, false] {
        let mut rig = Rig::new();
        rig.set("group_idle", "0");
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        rig.insert(Rq { group: GroupId(7), ..rq(2, 90_000_000) });
        assert_eq!(rig.dispatch(), None, "it is waited for, and idled for");
        assert!(rig.cfq.should_idle(rig.queue_of(1)));
        match its_slice_is_over {
            true => rig.cfq.queue_mut(rig.queue_of(1)).slot.ends_at = rig.now,
            false => rig.cfq.idle_until = None,
        }
        assert_eq!(rig.serve(), Some(2), "its slice is over: {its_slice_is_over}");
    }
}

#[test]
fn a_deep_queue_that_jumps_is_waited_for_no_more_in_the_first_half_of_its_slice() {
    // When the first request was answered, ms ago; whether it jumps; whether another is served.
    for (answered, jumps, served) in [
        (None, true, true),
        (Some(0), true, true),
        (Some(49), true, true),
        (Some(50), true, false),
        (Some(49), false, false),
    ] {
        let mut rig = Rig::new();
        let stride = if jumps { 1_000_000 } else { 128 };
        for step in 0..8 {
            rig.insert(rq(1, 1000 + step * stride));
        }
        let id = rig.queue_of(1);
        let out: Vec<Rq> = std::iter::from_fn(|| rig.dispatch()).collect();
        assert!(out.len() == 8 && rig.cfq.queue(id).deep && rig.cfq.queue(id).idle_window);
        if let Some(ms) = answered {
            rig.complete(&out[0]);
            rig.later(ms * MS);
        }
        rig.insert(rq(2, 90_000_000));
        assert_eq!(rig.serve(), served.then_some(2), "{answered:?}, jumps: {jumps}");
        let queue = rig.cfq.queue(id);
        assert_eq!((queue.deep, queue.idle_window), (!served, !served));
    }
}

#[test]
fn a_queue_that_cuts_in_comes_a_second_before_the_first_of_its_tree() {
    let mut rig = Rig::new();
    let second = 1000 * MS as i64;
    rig.insert(rq(1, 1000));
    let id = rig.queue_of(1);
    rig.cfq.place(id, true, rig.now);
    assert_eq!(turn_of(&rig, 1), -second, "the only one: before now");
    rig.insert(rq(2, 90_000_000));
    let id = rig.queue_of(2);
    rig.cfq.place(id, true, rig.now);
    assert_eq!(turn_of(&rig, 2), -2 * second);
}

#[test]
fn a_kind_with_more_queues_is_served_for_longer() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 50_000_000));
    rig.insert(background(3, 90_000_000));
    let group = rig.cfq.queue(QueueId(0)).group;
    let ns = rig.cfq.workload_ns(group, Class::BestEffort, names::Kind::Sync);
    assert_eq!(ns, 200 * MS, "two of three queues");
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(background(2, 50_000_000));
    rig.insert(at_level(Class::BestEffort, 5, background(3, 90_000_000)));
    let ns = rig.cfq.workload_ns(group, Class::BestEffort, names::Kind::Async);
    assert_eq!(ns, 80 * MS, "two fifths of that");
    let mut rig = Rig::new();
    rig.insert(background(1, 1000));
    for submitter in 2..=4 {
        let at = u64::from(submitter) * 10_000_000;
        rig.insert(at_level(Class::RealTime, 4, rq(submitter, at)));
    }
    let ns = rig.cfq.workload_ns(group, Class::BestEffort, names::Kind::Async);
    assert_eq!(ns, 30 * MS, "two fifths of a quarter: one of all queues");
}

#[test]
fn a_kind_whose_time_is_just_over_leaves_nothing_for_later() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(background(2, 90_000_000));
    assert_eq!(rig.serve(), Some(1));
    let left = |at: Nanos| rig.cfq.workload.saved(at).map(|rest| rest.left_ns);
    assert_eq!(left(rig.now + (150 * MS - 1)), Some(1));
    assert_eq!(left(rig.now + 150 * MS), None);
}

#[test]
fn the_idle_class_is_served_for_a_tick() {
    let mut rig = Rig::new();
    rig.insert(at_level(Class::Idle, 0, rq(1, 1000)));
    assert_eq!(rig.serve(), Some(1));
    assert_eq!(rig.cfq.workload.saved(rig.now).map(|rest| rest.left_ns), Some(MS));
}

#[test]
fn async_depth_is_ten_at_the_start_as_if_a_sync_request_had_been_late_a_second_ago() {
    let mut rig = Rig::new();
    rig.set("quantum", "64");
    for write in 0..40 {
        rig.insert(background(1, write * 1000 + 1000));
    }
    assert_eq!(std::iter::from_fn(|| rig.dispatch()).count(), 10);
    rig.later(100 * MS);
    assert_eq!(std::iter::from_fn(|| rig.dispatch()).count(), 1, "one more for each slice");
}

#[test]
fn a_queue_whose_process_ends_while_it_is_waited_for_loses_the_device_at_once() {
    let mut rig = idling_rig();
    rig.cfq.context_ended(SubmitterId(1), rig.now);
    assert!(rig.active().is_none());
    assert_eq!((rig.cfq.wake_at(), rig.cfq.take_kicked()), (None, 1));
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn a_queue_in_service_has_a_close_cooperator_only_if_it_is_sync_steady_and_not_of_the_idle_class() {
    let close = |change: fn(&mut Queue)| {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.insert(rq(3, 90_000_000));
        rig.turn(MS);
        rig.insert(rq(2, 1128));
        let id = rig.queue_of(1);
        change(rig.cfq.queue_mut(id));
        rig.cfq.close_cooperator(id).is_some()
    };
    assert!(close(|_| {}));
    assert!(!close(|queue| queue.sync = false));
    assert!(!close(|queue| queue.priority.class = Class::Idle));
    assert!(!close(|queue| {
        (0..6).for_each(|jump| queue.seeks.record(&rq(1, 1000 + jump * 1_000_000), true));
    }));
}

#[test]
fn a_process_that_thinks_for_as_long_as_slice_idle_is_waited_for() {
    for (longer, waits) in [(0, true), (1, false)] {
        let mut rig = Rig::new();
        for step in 0..250 {
            rig.read_and_think(rq(1, 1000 + step * 128), 4 * MS);
        }
        let mean = |rig: &Rig| rig.cfq.processes[1].as_ref().and_then(|one| one.think.mean_ns());
        let before = mean(&rig);
        rig.cfq.knobs.slice_idle_ns = before.expect("many samples") - longer;
        rig.insert(rq(1, 1000 + 250 * 128));
        assert_eq!(mean(&rig), before, "it has come to rest");
        let queue = rig.cfq.queue(rig.queue_of(1));
        assert_eq!(queue.idle_window, waits, "{longer} ns longer");
    }
}

#[test]
fn a_queue_alone_in_its_tree_is_idled_for_unless_slice_idle_is_0_or_its_class_is_idle() {
    for (slice_idle, class, idles) in
        [("8", Class::BestEffort, true), ("0", Class::BestEffort, false), ("8", Class::Idle, false)]
    {
        let mut rig = Rig::new();
        rig.set("slice_idle", slice_idle);
        rig.insert(at_level(class, 4, rq(1, 1000)));
        assert_eq!(rig.cfq.should_idle(rig.queue_of(1)), idles, "{slice_idle}, {class:?}");
    }
}

#[test]
fn the_times_of_an_end_are_asked_for_because_they_tell_late_requests() {
    assert!(Rig::new().cfq.wants_times());
}

#[test]
fn a_request_that_comes_as_the_wait_ends_comes_before_that() {
    let mut rig = idling_rig();
    rig.later(8 * MS);
    rig.insert(rq(1, 1128));
    assert_eq!(rig.serve(), Some(1));
}

#[test]
fn a_wait_that_is_over_ends_with_the_next_question_if_no_timer_was_called() {
    let mut rig = idling_rig();
    rig.later(8 * MS);
    assert_eq!(rig.dispatch(), None, "it is over behind that moment");
    rig.later(1);
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn what_is_wanted_urgently_cuts_in_again_once_the_urgent_request_in_service_is_gone() {
    let urgent = |submitter, at| Rq { flags: Flags::META, ..rq(submitter, at) };
    for (served, cuts_in) in [(false, false), (true, true)] {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.insert(urgent(1, 2000));
        rig.insert(rq(1, 3000));
        if served {
            assert_eq!(rig.dispatch().map(|rq| rq.sector), Some(2000));
        } else {
            rig.cfq.choose(rig.now);
        }
        rig.insert(urgent(2, 90_000_000));
        assert_eq!(rig.active().is_none(), cuts_in, "it was served: {served}");
    }
}

#[test]
fn a_recorded_choice_of_another_queue_ends_the_slot_whose_rest_is_kept() {
    let mut rig = Rig::new();
    rig.set("low_latency", "0");
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 1128));
    let other = rig.insert(rq(2, 90_000_000));
    rig.turn(MS);
    rig.later(30 * MS);
    rig.cfq.take_out(other, rig.now);
    assert_eq!(rig.active().map(|queue| queue.slot.dispatched), Some(1));
    assert_eq!(rig.cfq.group_use(GroupId(0)).time_ns, 30 * MS);
    assert_eq!(turn_of(&rig, 1), (80 - 70) * MS as i64, "70 of 100 ms were left");
}

#[test]
fn the_idle_window_is_that_of_sync_queues_and_not_of_the_idle_class() {
    let mut rig = Rig::new();
    for step in 0..5 {
        rig.read_and_think(at_level(Class::Idle, 0, rq(1, 1000 + step * 128)), MS);
    }
    for step in 0..5 {
        rig.read_and_think(rq(2, 50_000_000 + step * 128), MS);
    }
    rig.insert(background(2, 90_000_000));
    let queue = |rq: &Rq| rig.cfq.queue(rig.cfq.present_queue(rq).expect("a queue"));
    assert!(!queue(&rq(1, 0)).idle_window);
    assert!(queue(&rq(2, 0)).idle_window);
    assert!(!queue(&background(2, 0)).idle_window, "though its process thinks briefly");
}

#[test]
fn a_request_that_takes_an_older_one_in_has_its_place_in_the_fifo_and_no_other() {
    let mut rig = Rig::with(&setup(true, 0));
    let bio = |sector| Rq { sectors: 8, ..rq(1, sector) };
    let old = rig.insert(bio(1016));
    rig.later(MS);
    let between = rig.insert(bio(9000));
    let kept = rig.insert(bio(1000));
    let last = rig.insert(bio(20_000));
    rig.cfq.merge(&bio(1008), rig.now);
    let mut at = rig.cfq.queue(rig.queue_of(1)).fifo.oldest;
    let order = std::iter::from_fn(|| {
        let tag = Some(at).filter(|tag| *tag != SchedTag::NONE)?;
        at = rig.cfq.node(tag).newer;
        Some(tag)
    });
    assert_eq!(order.take(9).collect::<Vec<_>>(), [kept, between, last], "without {old:?}");
}

#[test]
fn a_wait_ends_with_the_request_that_a_dispatch_takes_before_the_timer() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    rig.insert(Rq { sectors: 8, ..rq(1, 1128) });
    assert!(rig.cfq.wake_at().is_some(), "more may come");
    assert_eq!(rig.serve(), Some(1));
    assert_eq!(rig.cfq.wake_at(), None);
}

#[test]
fn a_close_cooperator_is_the_queue_in_service_and_shares_from_then_on() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    assert_eq!(rig.serve(), Some(1));
    rig.insert(rq(2, 1128));
    rig.insert(rq(3, 90_000_000));
    assert_eq!(rig.serve(), Some(2));
    let [one, two] = [1, 2].map(|submitter| rig.queue_of(submitter));
    assert_eq!(rig.cfq.active, Some(two));
    assert_eq!(rig.cfq.queue(two).slot.dispatched, 1);
    assert_eq!(rig.cfq.queue(one).redirect, Some(two));
}

#[test]
fn nothing_merges_where_merges_are_not_wanted_or_the_bio_may_not() {
    for (nomerges, flags, merges) in
        [(0, Flags::NONE, true), (2, Flags::NONE, false), (0, Flags::NOMERGE, false)]
    {
        let mut rig = Rig::with(&setup(true, nomerges));
        let tag = rig.insert(rq(1, 1000));
        let bio = Rq { flags, ..rq(1, 1128) };
        let merge = if merges { Merge::Back(tag) } else { Merge::No };
        assert_eq!(rig.cfq.merge(&bio, rig.now), merge, "nomerges {nomerges}, {flags:?}");
    }
}

#[test]
fn a_recorded_choice_of_the_idle_class_ends_its_slot_if_another_queue_is_busy() {
    for (others, ends) in [(false, false), (true, true)] {
        let mut rig = Rig::new();
        let tag = rig.insert(at_level(Class::Idle, 0, rq(1, 1000)));
        rig.insert(at_level(Class::Idle, 0, rq(1, 2000)));
        if others {
            rig.insert(rq(2, 90_000_000));
        }
        rig.cfq.take_out(tag, rig.now);
        assert_eq!(rig.active().is_none(), ends);
    }
}

#[test]
fn a_queue_that_is_idled_for_waits_until_async_requests_have_left_the_device() {
    let mut rig = Rig::new();
    rig.insert(background(1, 1000));
    let write = rig.dispatch().expect("the write");
    rig.insert(rq(2, 90_000_000));
    assert_eq!(rig.serve(), None);
    rig.complete(&write);
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn a_queue_whose_process_is_gone_is_free_with_its_last_answer() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    let id = rig.queue_of(1);
    let out = rig.dispatch().expect("a request");
    rig.cfq.context_ended(SubmitterId(1), rig.now);
    assert!(rig.cfq.free_queues.is_empty());
    rig.complete(&out);
    assert_eq!(rig.cfq.free_queues, [id]);
}

#[test]
fn a_bio_that_is_offered_finds_a_wait_that_is_over_ended() {
    let mut rig = idling_rig();
    rig.later(9 * MS);
    rig.cfq.merge(&rq(2, 50_000_000), rig.now);
    assert_eq!((rig.cfq.wake_at(), rig.cfq.take_kicked()), (None, 1));
}
