//! Single rules of BFQ at the places where its types are wired, each as a small scene.

use super::*;

/// As [`Rig::new`], with raising.
fn low_latency(rotational: bool) -> Rig {
    let mut rig = Rig::new(rotational);
    rig.bfq.tunables().set("low_latency", "1").expect("a tunable");
    rig
}

fn last_reason(rig: &Rig) -> Option<Expiry> {
    rig.bfq.device_view().last_slot.map(|(reason, ..)| reason)
}

#[test]
fn a_slot_ends_by_time_with_the_answer_that_comes_at_its_deadline() {
    for (early, over) in [(1, false), (0, true)] {
        let mut rig = Rig::new(true);
        rig.insert(rq(1, 1000));
        rig.insert(rq(1, 9000));
        let out = rig.dispatch().expect("a request");
        rig.later(124 * MS - early);
        rig.complete(&out);
        assert_eq!(rig.bfq.in_service.is_none(), over, "{early} ns before");
        assert_eq!(last_reason(&rig), over.then_some(Expiry::BudgetTimeout));
    }
}

#[test]
fn a_queue_raised_as_it_becomes_busy_is_given_twice_the_least_or_what_its_request_needs() {
    for (raises, sectors, budget) in [(true, 8, 1024), (true, 2000, 2000), (false, 8, 10_922)] {
        let mut rig = if raises { low_latency(true) } else { Rig::new(true) };
        rig.insert(Rq { sectors, ..rq(1, 1000) });
        assert_eq!(rig.entity(1).budget, budget, "raised: {raises}, {sectors} sectors");
    }
}

#[test]
fn what_was_served_before_a_queue_was_raised_is_no_part_of_its_interactive_period() {
    let mut rig = Rig::new(true);
    for step in 0..4 {
        rig.insert(Rq { sectors: 500, ..rq(1, 1000 + step * 1000) });
    }
    let mut out = Vec::new();
    rig.bfq.dispatch_batch(0, 4, &mut out, rig.now);
    rig.later(MS);
    let (id, now) = (rig.id(1), rig.now);
    let soon = raise::Arrival {
        takes_part: true,
        quiet: true,
        drained: Some(now.0),
        steady: true,
        in_large_burst: false,
        interactive_ns: 5000 * MS,
    };
    let late = raise::Arrival { drained: None, ..soon };
    for arrival in [soon, late] {
        let verdict = rig.bfq.queue_mut(id).raise.arrive(arrival, now);
        rig.bfq.let_raising_count(id, verdict);
    }
    assert_eq!(rig.bfq.coefficient(id), raise::INTERACTIVE, "and soft real time before");
    let bounds = rig.bfq.raising_bounds(id);
    assert_eq!(rig.bfq.queue(id).raise.steady_for(bounds, now), 120_000);
}

#[test]
fn the_time_that_a_soft_real_time_queue_waits_for_its_slot_is_no_part_of_its_period() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 9000));
    rig.later(MS);
    let (id, raised_at) = (rig.id(1), rig.now);
    let arrival = raise::Arrival {
        takes_part: true,
        quiet: true,
        drained: Some(raised_at.0),
        steady: true,
        in_large_burst: false,
        interactive_ns: 5000 * MS,
    };
    let verdict = rig.bfq.queue_mut(id).raise.arrive(arrival, raised_at);
    rig.bfq.let_raising_count(id, verdict);
    rig.later(100 * MS);
    rig.dispatch().expect("a request");
    let bounds = rig.bfq.raising_bounds(id);
    let goes_on = |ms: u64| rig.bfq.queue(id).raise.steady_for(bounds, raised_at + ms * MS) > 0;
    assert!(goes_on(399) && !goes_on(400), "300 ms from the slot on");
}

#[test]
fn a_waiting_queue_of_which_a_request_is_injected_is_given_what_the_one_behind_needs() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.dispatch();
    let first = rig.insert(rq(2, 9000));
    rig.insert(Rq { sectors: 20_000, ..rq(2, 50_000) });
    let own = rig.bfq.own_max(rig.id(2));
    assert_eq!(rig.entity(2).budget, own);
    rig.bfq.take_out(first, rig.now);
    assert_eq!(rig.entity(2).budget, 20_000);
}

#[test]
fn a_waiting_queue_whose_next_request_takes_in_a_new_one_is_given_more() {
    let (mut rig, next) = beside_a_waiting_queue();
    let gone = rig.insert(rq(2, 9200));
    assert_eq!(rig.absorbed, [(next, gone)]);
    assert_eq!(rig.entity(2).budget, 208);
}

#[test]
fn a_request_joins_none_of_another_queue_found_by_the_cache_or_by_the_hash() {
    for cached in [true, false] {
        let mut rig = Rig::with(true, 0);
        if !cached {
            rig.insert(rq(1, 90_000));
        }
        let staged = rig.insert(rq(1, 1000));
        assert_eq!(rig.bfq.last_merge == Some(staged), cached);
        rig.insert(rq(2, 1008));
        assert!(rig.absorbed.is_empty(), "cached: {cached}");
        let gone = rig.insert(rq(1, 1008));
        assert_eq!(rig.absorbed, [(staged, gone)], "its own does");
    }
}

#[test]
fn a_process_that_asks_for_another_level_has_a_queue_of_that_level() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let id = rig.id(1);
    assert_eq!(rig.bfq.queue(id).level, 4);
    rig.insert(Rq { ioprio: IoPrio::new(Class::BestEffort, 2), ..rq(1, 2000) });
    assert_eq!((rig.id(1), rig.bfq.queue(id).level), (id, 2));
    assert_eq!(rig.entity(1).wanted_base, 60);
}

#[test]
fn weights_differ_as_soon_as_a_queue_is_raised_no_more() {
    let mut rig = low_latency(true);
    rig.insert(rq(1, 1000));
    rig.insert(Rq { ioprio: IoPrio::new(Class::BestEffort, 0), ..rq(2, 9000) });
    let heavy = rig.id(2);
    assert!(rig.bfq.is_raised(rig.id(1)) && !rig.bfq.is_raised(heavy));
    assert!(!rig.bfq.is_asymmetric(heavy), "a raised queue has no weight to compare");
    rig.bfq.tunables().set("low_latency", "0").expect("a tunable");
    assert!(rig.bfq.is_asymmetric(heavy));
}

#[test]
fn a_handle_names_neither_a_queue_that_is_gone_nor_the_one_in_its_place() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    let id = rig.id(1);
    let handle = rig.bfq.queue(id).handle(id);
    assert_eq!(rig.bfq.resolve(handle), Some(id));
    rig.bfq.context_ended(SubmitterId(1), rig.now);
    assert_eq!(rig.bfq.resolve(handle), None);
    rig.insert(rq(2, 9000));
    assert_eq!(rig.id(2), id, "another has its place");
    assert_eq!(rig.bfq.resolve(handle), None);
}

#[test]
fn a_queue_that_moves_again_and_again_is_noted_once_until_positions_are_asked_for() {
    let mut rig = Rig::new(true);
    for step in 0..50 {
        rig.insert(rq(1, 1000 + step * 8));
        rig.turn(MS);
    }
    assert_eq!(rig.bfq.moved.len(), 1);
}

#[test]
fn the_mark_of_a_large_burst_is_off_after_more_than_ten_seconds_of_idleness() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let (id, now) = (rig.id(1), rig.now);
    rig.bfq.queue_mut(id).in_large_burst = true;
    for (drained, ns, marked) in [
        (None, 60_000 * MS, true),
        (Some(now.0), 10_000 * MS, true),
        (Some(now.0), 10_000 * MS + 1, false),
    ] {
        rig.bfq.queue_mut(id).drained = drained;
        rig.bfq.forgive_burst(id, now + ns);
        assert_eq!(rig.bfq.queue(id).in_large_burst, marked, "{drained:?}, {ns} ns");
    }
}

#[test]
fn a_run_of_requests_is_looked_at_for_how_long_the_queue_was_empty() {
    let mut rig = Rig::new(false);
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    for _ in 0..2 {
        rig.later(25 * MS);
        rig.bfq.on_timer(rig.now);
    }
    // Empty for 50 of 51 ms.
    rig.insert(rq(1, 2000));
    let id = rig.id(1);
    assert!(!rig.bfq.queue(id).think.is_io_bound());
    // For 50 of 250 ms.
    rig.later(199 * MS);
    let batch = [rig.tagged(rq(1, 3000))];
    assert_eq!(rig.bfq.add_run(&batch, rig.now), 1);
    assert!(rig.bfq.queue(id).think.is_io_bound());
}

#[test]
fn what_a_short_slot_was_charged_ahead_is_kept_on_a_disk_if_it_was_charged_by_time() {
    // 8 ms were taken for half of one, and 8 sectors would have been 61 us.
    let ahead = -7_500_000 - 61_035;
    for (rotational, raised, owed) in [(true, false, ahead), (false, false, 0), (true, true, 0)] {
        let mut rig = seeky(rotational);
        let id = rig.id(1);
        rig.dispatch().expect("a request");
        if raised {
            let verdict = rig.bfq.queue_mut(id).raise.begin_interactive(1000 * MS, rig.now);
            rig.bfq.let_raising_count(id, verdict);
        }
        rig.later(MS / 2);
        rig.bfq.expire(id, Expiry::Preempted, rig.now, false);
        assert_eq!(rig.bfq.queue(id).owed_ns, owed, "rotational {rotational}, raised {raised}");
    }
}

#[test]
fn the_pace_of_an_interactive_queue_is_measured_at_the_end_of_a_slot_that_leaves_nothing() {
    // Its next batch may be isochronous at once, or after the pause that such a process makes.
    for (answered, coefficient) in [(false, raise::SOFT_RT), (true, raise::INTERACTIVE)] {
        let mut rig = low_latency(true);
        rig.insert(rq(1, 1000));
        let id = rig.id(1);
        let out = rig.dispatch().expect("a request");
        rig.later(MS);
        if answered {
            rig.complete(&out);
        }
        rig.bfq.expire(id, Expiry::NoMoreRequests, rig.now, false);
        if !answered {
            rig.complete(&out);
        }
        rig.later(MS);
        rig.insert(rq(1, 1008));
        assert_eq!(rig.bfq.coefficient(id), coefficient, "nothing in flight: {answered}");
    }
}

#[test]
fn beside_a_raised_queue_that_thinks_briefly_only_raised_ones_are_injected() {
    let injected = |others: &[(u16, u8)], long: bool| {
        let mut rig = low_latency(false);
        rig.bfq.decide_queueing(Some(true));
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        let id = rig.id(1);
        for (context, level) in others {
            let ioprio = IoPrio::new(Class::BestEffort, *level);
            rig.insert(Rq { ioprio, ..rq(*context, 90_000 * u64::from(*context)) });
        }
        assert_eq!(rig.bfq.in_service, Some(id));
        rig.bfq.queue_mut(id).injection.limit = 2;
        if long {
            rig.bfq.queue_mut(id).think.turn();
        }
        let other = rig.bfq.choose_injected(id);
        other.map(|other| rig.bfq.queue(other).owner.expect("a process").0)
    };
    // Level 4 takes part in raising, level 5 does not.
    let mixed = [(4, 5), (2, 4), (3, 5)];
    assert_eq!(injected(&mixed, false), Some(2), "the newest that is raised");
    assert_eq!(injected(&mixed, true), Some(3), "the newest");
    assert_eq!(injected(&[(3, 5)], false), None);
    assert_eq!(injected(&[(3, 5)], true), Some(3));
}

#[test]
fn a_think_time_counts_where_the_device_may_be_kept_and_not_right_after_a_split() {
    let is_short = |class: Class, split: bool, slice_idle: &str| {
        let mut rig = Rig::new(true);
        let read = |step: u64| Rq { ioprio: IoPrio::new(class, 4), ..rq(1, 1000 + step * 8) };
        for step in 0..5 {
            rig.insert(read(step));
            let (id, now) = (rig.id(1), rig.now);
            if split {
                rig.bfq.queue_mut(id).sharing.take_back(now);
            }
            if step == 1 {
                rig.bfq.tunables().set("slice_idle", slice_idle).expect("a tunable");
            }
            rig.turn(MS);
            rig.later(12 * MS);
            rig.bfq.on_timer(rig.now);
        }
        rig.bfq.queue(rig.id(1)).think.is_short()
    };
    assert!(!is_short(Class::BestEffort, false, "8"));
    assert!(is_short(Class::Idle, false, "8"));
    assert!(is_short(Class::BestEffort, true, "8"));
    assert!(is_short(Class::BestEffort, false, "0"));
}

#[test]
fn the_places_of_a_queue_that_is_gone_are_used_again() {
    let mut rig = Rig::new(true);
    let places = [1, 2, 3].map(|context| {
        rig.insert(rq(context, 1000));
        rig.turn(MS);
        let id = rig.id(context);
        let place = (id, rig.bfq.queue(id).entity);
        rig.bfq.context_ended(SubmitterId(context), rig.now);
        place
    });
    assert_eq!(places, [places[0]; 3]);
}

#[test]
fn a_queue_that_was_never_busy_is_raised_as_it_would_be_by_its_first_request() {
    for (drained, busy, in_flight, coefficient) in [
        (false, false, 0, raise::INTERACTIVE),
        (true, false, 0, 1),
        (false, true, 0, 1),
        (false, false, 1, 1),
    ] {
        let mut rig = low_latency(true);
        let now = rig.now;
        let id = rig.bfq.own_queue(SubmitterId(1), IoPrio::NONE, now);
        let queue = rig.bfq.queue_mut(id);
        (queue.busy, queue.in_flight) = (busy, in_flight);
        queue.drained = drained.then_some(now.0);
        let raise = rig.bfq.raising_so_far(id, now);
        assert_eq!(raise.coefficient(), coefficient, "{drained}, {busy}, {in_flight}");
    }
}

/// A queue of eight requests of which one was served, and no note of where it stands.
fn served_one() -> (Rig, QueueId) {
    let mut rig = Rig::new(false);
    rig.bfq.decide_queueing(Some(true));
    for step in 0..8 {
        rig.insert(rq(1, 1000 + step * 1000));
    }
    rig.dispatch().expect("a request");
    let id = rig.id(1);
    rig.bfq.moved.clear();
    rig.bfq.queue_mut(id).moved = false;
    (rig, id)
}

#[test]
fn a_run_is_served_at_once_and_leaves_a_note_that_its_queue_goes_on_elsewhere() {
    for (max, run) in [(0, 0), (3, 3), (99, 7)] {
        let (mut rig, id) = served_one();
        let mut out = Vec::new();
        assert_eq!(rig.bfq.serve_run(max, rig.now, &mut out), run);
        assert_eq!((out.len(), rig.bfq.queue(id).in_flight as usize), (run, 1 + run));
        assert_eq!(rig.bfq.queue(id).moved, run > 0);
    }
}

#[test]
fn a_run_is_added_at_once_and_leaves_a_note_that_its_queue_may_go_on_elsewhere() {
    let (mut rig, id) = served_one();
    let batch = [500, 400, 300].map(|sector| rig.tagged(rq(1, sector)));
    assert_eq!(rig.bfq.add_run(&batch, rig.now), 3);
    assert!(rig.bfq.queue(id).moved && rig.bfq.queue(id).queued == 10);
}

#[test]
fn ends_of_one_process_are_one_run_unless_the_queue_in_service_has_to_be_asked_for() {
    // What is left staged, whether the slot is over, and whether another is in service: the run.
    for (left, over, other, run) in [
        (2, false, false, 3),
        (2, true, false, 0),
        (0, false, false, 0),
        (2, true, true, 3),
        (0, false, true, 3),
    ] {
        let mut rig = Rig::new(false);
        rig.bfq.decide_queueing(Some(true));
        for step in 0..5 + left {
            rig.insert(rq(1, 1000 + step * 1000));
        }
        let out: Vec<Rq> = (0..5).map(|_| rig.dispatch().expect("a request")).collect();
        rig.later(if over { 124 * MS } else { MS });
        if other {
            rig.bfq.in_service = None;
        }
        let ends: Vec<Ended> = out[1..4].iter().map(|rq| rig.end_of(rq)).collect();
        let first = *rig.bfq.owner(out[0].tag);
        let case = (left, over, other);
        assert_eq!(rig.bfq.end_run(first, &ends, rig.now), run, "{case:?}");
        assert_eq!(rig.bfq.in_flight as usize, 5 - run, "{case:?}");
    }
}

#[test]
fn a_request_that_takes_an_older_one_in_has_its_place_in_the_fifo_and_no_other() {
    let mut rig = Rig::with(true, 0);
    rig.insert(rq(1, 1016));
    rig.later(MS);
    let between = rig.insert(rq(1, 9000));
    let kept = rig.insert(rq(1, 1000));
    let last = rig.insert(rq(1, 20_000));
    rig.bfq.merge(&rq(1, 1008), rig.now);
    let mut at = rig.bfq.queue(rig.id(1)).fifo.oldest;
    let order = std::iter::from_fn(|| {
        let tag = Some(at).filter(|tag| *tag != SchedTag::NONE)?;
        at = rig.bfq.node(tag).newer;
        Some(tag)
    });
    assert_eq!(order.take(9).collect::<Vec<_>>(), [kept, between, last]);
}

#[test]
fn a_process_that_goes_to_another_group_leaves_the_queue_that_it_shares() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let shared = rig.id(1);
    let queue = rig.bfq.queue_mut(shared);
    (queue.owner, queue.processes) = (None, 2);
    rig.insert(Rq { group: GroupId(7), ..rq(1, 2000) });
    assert_ne!(rig.id(1), shared);
    assert_eq!(rig.bfq.queue(shared).processes, 1);
    assert_eq!(rig.bfq.queue(rig.id(1)).owner, Some(SubmitterId(1)));
}

#[test]
fn a_queue_that_returns_soon_is_soft_real_time_unless_all_its_requests_are_far_apart() {
    for (seeks, coefficient) in [(29, raise::SOFT_RT), (30, 1)] {
        let mut rig = Rig::new(false);
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        rig.later(100 * MS);
        rig.bfq.on_timer(rig.now);
        let id = rig.id(1);
        rig.bfq.queue_mut(id).seeks = seeks::SeekHistory::new();
        (0..seeks).for_each(|_| rig.bfq.queue_mut(id).seeks.note(true));
        rig.bfq.tunables().set("low_latency", "1").expect("a tunable");
        rig.insert(rq(1, 9_000_000));
        assert_eq!(rig.bfq.coefficient(id), coefficient, "{seeks}, one before and one behind");
    }
}

#[test]
fn what_others_took_before_the_device_was_kept_in_vain_is_not_charged() {
    let mut rig = seeky(true);
    let (id, start) = (rig.id(1), rig.now);
    rig.bfq.slot_started = start;
    rig.bfq.device_time.turn(start);
    rig.bfq.device_time.foreign_end(start + 3 * MS);
    rig.bfq.arm_idle_timer(id, start + 10 * MS);
    rig.bfq.device_time.foreign_end(start + 12 * MS);
    let time = rig.bfq.slot_time(id, start + 18 * MS, true);
    assert_eq!(time.charged_ns, 7 * MS, "10 ms to the idling, of which 3 of others");
}

#[test]
fn the_most_follows_the_rate_from_the_eleventh_budget_on() {
    let mut rig = Rig::new(true);
    let mut sector = 0;
    // 1024 sectors in 10 ms, for more than a second.
    for step in 0..120 {
        let read = Rq { sectors: 1024, ..rq(1, sector) };
        sector += 1024;
        rig.bfq.rate.dispatched(&read, 1, rig.now + step * 10 * MS);
    }
    let of_rate = rig.bfq.rate.sectors_within(124 * MS);
    assert!(rig.bfq.rate.is_measured() && of_rate != 16_384);
    for budget in 1..=12 {
        rig.bfq.count_assigned_budget();
        let most = if budget < 11 { 16_384 } else { of_rate };
        assert_eq!(rig.bfq.max_budget, most, "budget {budget}");
    }
}

#[test]
fn an_idle_class_queue_alone_goes_on_and_beside_another_ends_after_one_request() {
    let idle = |sector| Rq { ioprio: IoPrio::new(Class::Idle, 0), ..rq(1, sector) };
    for other in [false, true] {
        let mut rig = Rig::new(true);
        rig.insert(idle(1000));
        rig.insert(idle(2000));
        rig.insert(idle(3000));
        rig.dispatch().expect("a request");
        assert!(rig.bfq.in_service.is_some(), "alone");
        if other {
            let ioprio = IoPrio::new(Class::Idle, 0);
            rig.insert(Rq { ioprio, ..rq(2, 90_000) });
            rig.dispatch().expect("a request");
        }
        assert_eq!(rig.bfq.in_service.is_none(), other);
    }
}

#[test]
fn a_new_weight_of_a_queue_with_backlog_is_compared_from_its_next_stamp_on() {
    let mut rig = Rig::new(true);
    for step in 0..3 {
        rig.insert(rq(1, 1000 + step * 1000));
    }
    rig.dispatch().expect("a request");
    rig.insert(Rq { ioprio: IoPrio::new(Class::BestEffort, 2), ..rq(1, 9000) });
    let id = rig.id(1);
    assert_eq!(rig.bfq.queue(id).counted, Some(4));
    rig.bfq.expire(id, Expiry::BudgetTimeout, rig.now, false);
    assert_eq!(rig.bfq.queue(id).counted, Some(6));
}

#[test]
fn a_busy_queue_that_moves_to_another_group_makes_the_scenario_asymmetric() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 9000));
    let id = rig.id(1);
    assert!(!rig.bfq.is_asymmetric(id));
    rig.insert(Rq { group: GroupId(7), ..rq(2, 9500) });
    assert!(rig.bfq.is_asymmetric(id));
}

#[test]
fn a_request_for_a_queue_idled_for_ends_its_slot_if_the_time_of_that_is_over() {
    for (over, reason) in [(false, None), (true, Some(Expiry::BudgetTimeout))] {
        let mut rig = idling();
        if over {
            rig.bfq.slot_deadline = rig.now;
        }
        rig.insert(Rq { sectors: 64, ..rq(1, 1008) });
        assert_eq!((rig.bfq.wake_at(), last_reason(&rig)), (None, reason));
        assert_eq!(rig.bfq.in_service.is_none(), over);
    }
}

#[test]
fn a_full_request_makes_room_in_the_merge_cache() {
    let mut rig = Rig::with(true, 1);
    let bio = |sectors: u32, at: u64| Rq { sectors, ..rq(1, at) };
    rig.insert(bio(500, 1000));
    assert_eq!(rig.bfq.merge(&bio(100, 1500), rig.now), Merge::No, "more than 512 sectors");
    assert_eq!(rig.bfq.merge(&bio(8, 1500), rig.now), Merge::No, "it is not tried again");
    let next = rig.insert(bio(8, 5000));
    assert_eq!(rig.bfq.merge(&bio(8, 5008), rig.now), Merge::Back(next));
}

#[test]
fn the_rate_is_estimated_only_with_that_feature() {
    for peak_rate in [true, false] {
        let (limits, hard_queues) = (Limits { rotational: true, ..Limits::default() }, 1);
        let setup = Setup { limits, nr_requests: TAGS, hard_queues, nomerges: 0, compat: "" };
        let mut bfq = Bfq::with_features(&setup, Features { peak_rate, ..Features::ALL });
        for step in 0..120 {
            let read = Rq { sectors: 1024, ..rq(1, step * 1024) };
            bfq.rate.dispatched(&read, 1, Nanos::from_ms(5000 + step * 10));
        }
        assert_eq!(bfq.rate.is_measured(), peak_rate);
    }
}

#[test]
fn a_slot_begins_with_what_its_first_request_needs() {
    let mut rig = Rig::new(true);
    rig.insert(Rq { sectors: 100, ..rq(1, 1000) });
    rig.entity(1).budget = 10;
    rig.dispatch().expect("a request");
    assert_eq!((rig.entity(1).budget, last_reason(&rig)), (100, None));
}

#[test]
fn a_seeky_slot_that_ends_by_time_is_charged_for_that_with_a_third_of_its_budget_left() {
    // 124 of 125 ms are 16,252 of 16,384 sectors.
    for (service, charged) in [(16_000, 16_252), (16_001, 16_001)] {
        let mut rig = seeky(true);
        rig.dispatch().expect("a request");
        (rig.entity(1).budget, rig.entity(1).service) = (24_000, service);
        rig.later(124 * MS);
        rig.bfq.expire(rig.id(1), Expiry::BudgetTimeout, rig.now, false);
        assert_eq!(rig.bfq.last_slot.map(|(_, service, _)| service), Some(charged));
    }
}

#[test]
fn the_most_follows_a_rate_that_an_answer_ended() {
    let mut rig = Rig::new(true);
    rig.bfq.budgets_assigned = 200;
    let start = rig.now;
    rig.bfq.rate.completed(start);
    for step in 0..40 {
        rig.bfq.rate.dispatched(&rq(1, step * 8), 1, start + step * 10 * MS);
    }
    rig.later(400 * MS);
    rig.insert(rq(1, 320));
    rig.turn(MS);
    assert!(rig.bfq.rate.is_measured());
    assert_eq!(rig.bfq.max_budget, rig.bfq.rate.sectors_within(124 * MS));
}

#[test]
fn a_queue_counts_for_symmetry_until_its_last_request_has_ended() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let id = rig.id(1);
    let out = rig.dispatch().expect("a request");
    rig.bfq.expire(id, Expiry::NoMoreRequests, rig.now, false);
    assert_eq!((rig.bfq.queue(id).counted, rig.bfq.queue(id).pending), (Some(4), true));
    rig.complete(&out);
    assert_eq!((rig.bfq.queue(id).counted, rig.bfq.queue(id).pending), (None, false));
}

#[test]
fn a_queue_that_returns_after_a_long_pause_has_no_mark_of_a_burst_any_more() {
    for (ms, marked) in [(9_000, true), (11_000, false)] {
        let mut rig = Rig::new(true);
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        let id = rig.id(1);
        rig.bfq.queue_mut(id).in_large_burst = true;
        rig.later(ms * MS);
        rig.bfq.on_timer(rig.now);
        rig.insert(rq(1, 2000));
        assert_eq!(rig.bfq.queue(id).in_large_burst, marked, "after {ms} ms");
    }
}

#[test]
fn as_many_tags_as_the_depth_that_was_set_last_are_known() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    rig.bfq.depth_changed(2 * TAGS);
    rig.free = (0..2 * TAGS).rev().collect();
    for step in 0..u64::from(2 * TAGS) {
        rig.insert(rq(1, 2000 + step * 1000));
    }
    let mut out = Vec::new();
    rig.bfq.drain(&mut out, rig.now);
    assert_eq!(out.len(), usize::from(2 * TAGS));
    out.iter().for_each(|rq| rig.complete(rq));
}

#[test]
fn a_request_that_grew_is_found_by_its_new_end() {
    let mut rig = Rig::with(true, 0);
    let grown = rig.insert(rq(1, 1000));
    let other = rig.insert(rq(1, 9000));
    assert_eq!(rig.bfq.merge(&rq(1, 1008), rig.now), Merge::Back(grown));
    assert_eq!(rig.bfq.merge(&rq(1, 9008), rig.now), Merge::Back(other));
    assert_eq!(rig.bfq.last_merge, Some(other));
    assert_eq!(rig.bfq.merge(&rq(1, 1016), rig.now), Merge::Back(grown));
}

#[test]
fn the_async_queue_of_a_process_is_that_of_its_last_priority() {
    let mut rig = Rig::new(true);
    let at = |level: u8, rq: Rq| Rq { ioprio: IoPrio::new(Class::BestEffort, level), ..rq };
    let tag = rig.insert(at(2, Rq { op: Op::Write, ..rq(2, 9000) }));
    let queue = rig.bfq.owner(tag).queue;
    for (level, own) in [(3, None), (2, Some(queue))] {
        rig.insert(at(level, rq(1, 1000 * u64::from(level))));
        assert_eq!(rig.bfq.own_async_queue(SubmitterId(1)), own);
    }
}

#[test]
fn a_run_takes_out_of_the_merge_cache_what_it_serves_and_nothing_else() {
    for (max, kept) in [(2, true), (99, false)] {
        let mut rig = Rig::with(false, 0);
        rig.bfq.decide_queueing(Some(true));
        for step in 0..4 {
            rig.insert(rq(1, 1000 + step * 1000));
        }
        rig.dispatch().expect("a request");
        let cached = rig.insert(rq(1, 90_000));
        assert_eq!(rig.bfq.last_merge, Some(cached));
        assert!(rig.bfq.serve_run(max, rig.now, &mut Vec::new()) >= 2);
        assert_eq!(rig.bfq.last_merge, kept.then_some(cached));
    }
}

#[test]
fn real_time_preempts_a_group_though_that_has_others_to_serve() {
    for (class, preempts) in [(Class::RealTime, true), (Class::Idle, false)] {
        let mut rig = Rig::new(true);
        for context in [1, 2] {
            rig.insert(Rq { group: GroupId(7), ..rq(context, 1000 * u64::from(context)) });
        }
        rig.dispatch().expect("a request");
        rig.insert(Rq { ioprio: IoPrio::new(class, 4), ..rq(3, 90_000) });
        assert_eq!(last_reason(&rig), preempts.then_some(Expiry::Preempted));
    }
}

#[test]
fn a_wait_that_is_over_lets_every_request_ask_for_its_tag() {
    let mut rig = Rig::new(false);
    rig.bfq.decide_queueing(Some(true));
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    let due = rig.bfq.wake_at().expect("it is waited for");
    let rule = |at: Nanos| rig.bfq.depth_rule(&[rq(1, 5000)], at);
    assert_eq!(rule(due), DepthRule::Free);
    assert_eq!(rule(due + 1), DepthRule::Each);
}
