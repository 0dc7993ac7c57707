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
    rig.insert(Rq { sectors: 500, ..rq(1, 1000) });
    rig.turn(MS);
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
    let mut rig = Rig::with(true, 0);
    rig.insert(rq(1, 1000));
    rig.dispatch();
    let next = rig.insert(Rq { sectors: 200, ..rq(2, 9000) });
    let id = rig.id(2);
    rig.bfq.queue_mut(id).max_budget = 200;
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
