//! Single decisions of BFQ, each by its rule, where a test must see inside.

use weir_bio::{Class, Flags, IoPrio, RqId, Status};

use super::entity::Place;
use super::*;

mod rules;

const MS: u64 = 1_000_000;
const TAGS: u16 = 256;

/// A scheduler without shared queues and raising, its tags and the time.
struct Rig {
    bfq: Bfq,
    now: Nanos,
    free: Vec<u16>,
    absorbed: Absorbed,
}

fn rq(context: u16, sector: u64) -> Rq {
    Rq {
        sector,
        sectors: 8,
        id: RqId::new(SubmitterId(context), 0, 0),
        flags: Flags::NONE,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag::NONE,
        op: Op::Read,
        segments: 1,
    }
}

impl Rig {
    fn new(rotational: bool) -> Rig {
        Rig::with(rotational, 2)
    }

    fn with(rotational: bool, nomerges: u8) -> Rig {
        let limits = Limits { rotational, max_hw_sectors: 512, ..Limits::default() };
        let setup = Setup { limits, nr_requests: TAGS, hard_queues: 1, nomerges, compat: "" };
        let mut bfq = Bfq::with_features(&setup, Features::UNSHARED);
        bfq.tunables().set("low_latency", "0").expect("a tunable");
        let free = (0..TAGS).rev().collect();
        Rig { bfq, now: Nanos::from_ms(5000), free, absorbed: Vec::new() }
    }

    fn later(&mut self, ns: u64) {
        self.now = self.now + ns;
    }

    fn tagged(&mut self, rq: Rq) -> Rq {
        Rq { tag: SchedTag(self.free.pop().expect("a tag is free")), ..rq }
    }

    fn insert(&mut self, rq: Rq) -> SchedTag {
        let rq = self.tagged(rq);
        self.bfq.insert(rq, self.now, &mut self.absorbed);
        rq.tag
    }

    fn dispatch(&mut self) -> Option<Rq> {
        self.bfq.dispatch(0, self.now)
    }

    fn end_of(&self, rq: &Rq) -> Ended {
        let (tag, status, handed_back) = (rq.tag, Status::Ok, false);
        let [accepted_at, issued_at, done_at] = [self.now; 3];
        Ended { tag, status, handed_back, accepted_at, issued_at, done_at }
    }

    fn complete(&mut self, rq: &Rq) {
        let end = self.end_of(rq);
        self.bfq.ended(&end, self.now);
        self.free.push(rq.tag.0);
    }

    fn turn(&mut self, ns: u64) -> Rq {
        let rq = self.dispatch().expect("a request");
        self.later(ns);
        self.complete(&rq);
        rq
    }

    fn id(&self, context: u16) -> QueueId {
        self.bfq.contexts[usize::from(context)].sync.expect("a queue")
    }

    fn entity(&mut self, context: u16) -> &mut entity::Entity {
        let leaf = self.bfq.queue(self.id(context)).entity;
        &mut self.bfq.forest[leaf]
    }
}

#[test]
fn what_a_queue_is_given_at_most_follows_from_how_its_slot_ended() {
    let learnt = |reason: Expiry, own: u64, service: u64, in_flight: u32| {
        let mut rig = Rig::new(true);
        rig.insert(rq(1, 1000));
        let id = rig.id(1);
        rig.entity(1).service = service;
        let queue = rig.bfq.queue_mut(id);
        (queue.max_budget, queue.in_flight) = (own, in_flight);
        rig.bfq.learn_budget(id, reason);
        rig.bfq.queue(id).max_budget
    };
    // The device's most is 16,384 sectors, and the least a 32nd of it.
    assert_eq!(learnt(Expiry::TooIdle, 10_922, 0, 0), 10_922 - 2048);
    assert_eq!(learnt(Expiry::TooIdle, 2561, 0, 0), 513);
    assert_eq!(learnt(Expiry::TooIdle, 2560, 0, 0), 512);
    assert_eq!(learnt(Expiry::TooIdle, 3000, 0, 1), 6000);
    assert_eq!(learnt(Expiry::BudgetTimeout, 3000, 0, 0), 6000);
    assert_eq!(learnt(Expiry::BudgetTimeout, 9000, 0, 0), 16_384);
    assert_eq!(learnt(Expiry::BudgetExhausted, 3000, 0, 0), 12_000);
    assert_eq!(learnt(Expiry::BudgetExhausted, 5000, 0, 0), 16_384);
    assert_eq!(learnt(Expiry::NoMoreRequests, 9000, 700, 0), 700);
    assert_eq!(learnt(Expiry::NoMoreRequests, 9000, 100, 0), 512);
    assert_eq!(learnt(Expiry::Preempted, 9000, 100, 0), 9000);
}

/// Whether the slot of context 1 is slow if it ends after so long, and what it is charged for then.
fn slow_for(rig: &Rig, held: u64) -> (bool, u64) {
    let time = rig.bfq.slot_time(rig.id(1), rig.now + held, false);
    (time.slow, time.charged_ns)
}

#[test]
fn a_long_slot_is_slow_if_it_served_less_than_half_of_the_most() {
    let slow = |held: u64, service: u64| {
        let mut rig = Rig::new(true);
        rig.insert(rq(1, 1000));
        rig.entity(1).service = service;
        rig.bfq.slot_started = rig.now;
        slow_for(&rig, held)
    };
    assert_eq!(slow(20 * MS, 0), (false, 20 * MS));
    assert_eq!(slow(20 * MS + 1, 8191), (true, 20 * MS + 1));
    assert_eq!(slow(20 * MS + 1, 8192), (false, 20 * MS + 1));
}

#[test]
fn a_slot_charged_for_its_time_has_a_budget_that_covers_it() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 5000));
    rig.dispatch();
    rig.entity(1).budget = 4000;
    let id = rig.id(1);
    let leaf = rig.bfq.queue(id).entity;
    let virtual_time = |rig: &Rig| rig.bfq.forest.tree(leaf).v;
    let before = virtual_time(&rig);
    rig.bfq.charge_time(id, 125 * MS / 2);
    let entity = rig.entity(1);
    assert_eq!((entity.budget, entity.service), (8192, 8192));
    let charged = virtual_time(&rig);
    assert!(charged > before, "time has passed in its tree");
    for less in [125 * MS / 2, 125 * MS / 4, 0] {
        rig.bfq.charge_time(id, less);
        let entity = rig.entity(1);
        assert_eq!((entity.budget, entity.service), (8192, 8192), "it received as much already");
        assert_eq!(virtual_time(&rig), charged);
    }
}

#[test]
fn a_slot_that_idles_is_over_by_time_only_with_a_third_of_its_budget_left() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 5000));
    rig.dispatch();
    let id = rig.id(1);
    let over = |rig: &Rig, at: Nanos| rig.bfq.is_timed_out(id, at);
    let deadline = rig.bfq.slot_deadline;
    assert_eq!(deadline, rig.now + 124 * MS);
    (rig.entity(1).budget, rig.entity(1).service) = (3001, 2001);
    assert!(!over(&rig, deadline - 1));
    assert!(over(&rig, deadline));
    rig.bfq.idle_until = Some(deadline + MS);
    assert!(over(&rig, deadline), "1000 of 3001 are a third");
    rig.entity(1).service = 2002;
    assert!(!over(&rig, deadline), "999 are less");
    rig.bfq.idle_until = None;
    assert!(over(&rig, deadline));
}

/// A queue on a disk that is waited for, 1 ms after its request was answered.
fn idling() -> Rig {
    let mut rig = Rig::new(true);
    rig.bfq.decide_queueing(Some(false));
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    assert_eq!(rig.bfq.wake_at(), Some(rig.now + 8 * MS));
    rig.later(MS);
    rig
}

#[test]
fn a_small_sole_request_does_not_end_the_wait_for_throughput() {
    let waits = |sectors: &[u32]| {
        let mut rig = idling();
        for &sectors in sectors {
            rig.insert(Rq { sectors, ..rq(1, 1008) });
        }
        rig.bfq.wake_at().is_some()
    };
    assert!(waits(&[8]));
    assert!(waits(&[31]));
    assert!(!waits(&[32]));
    assert!(!waits(&[8, 8]));
    let mut rig = idling();
    rig.insert(rq(1, 1008));
    rig.later(7 * MS);
    rig.bfq.on_timer(rig.now);
    assert_eq!(rig.bfq.wake_at(), None, "it has been waited for");
    assert_eq!(rig.bfq.in_service, Some(rig.id(1)), "its slot goes on");
}

#[test]
fn a_queue_returns_in_time_up_to_three_idle_slices_after_its_last_answer() {
    for (after, in_time) in [(24 * MS, true), (24 * MS + 1, false)] {
        let mut rig = Rig::new(true);
        rig.bfq.decide_queueing(Some(false));
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        let answered = rig.now;
        rig.later(8 * MS);
        rig.bfq.on_timer(rig.now);
        assert_eq!(rig.bfq.in_service, None);
        rig.now = answered + after;
        rig.insert(rq(1, 1008));
        assert_eq!(rig.bfq.queue(rig.id(1)).left.is_some(), in_time, "{after} ns after");
    }
}

#[test]
fn busy_queues_of_two_classes_are_asymmetric() {
    let asymmetric = |first: Class, other: Class| {
        let mut rig = Rig::new(true);
        for (context, class) in [(1, first), (2, other)] {
            rig.insert(Rq { ioprio: IoPrio::new(class, 4), ..rq(context, 1000) });
        }
        let id = rig.id(1);
        rig.bfq.is_asymmetric(id)
    };
    assert!(!asymmetric(Class::BestEffort, Class::BestEffort));
    assert!(asymmetric(Class::BestEffort, Class::RealTime));
    assert!(asymmetric(Class::RealTime, Class::BestEffort));
}

#[test]
fn a_waiting_queue_is_given_what_its_next_request_needs() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.dispatch();
    rig.insert(rq(2, 9000));
    let own = rig.bfq.own_max(rig.id(2));
    assert_eq!(rig.entity(2).budget, own);
    rig.insert(Rq { sectors: 30_000, ..rq(2, 50_000) });
    assert_eq!(rig.entity(2).budget, own, "another one is next");
    rig.insert(Rq { sectors: 20_000, ..rq(2, 5000) });
    assert_eq!(rig.entity(2).budget, 20_000);
}

#[test]
fn metadata_is_next_wherever_it_is() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let meta = rig.insert(Rq { flags: Flags::META, ..rq(1, 900_000) });
    rig.insert(rq(1, 2000));
    assert_eq!(rig.bfq.queue(rig.id(1)).next, Some(meta));
    let order: Vec<u64> = (0..3).map(|_| rig.turn(MS).sector).collect();
    assert_eq!(order, [900_000, 1000, 2000]);
}

#[test]
fn the_oldest_request_is_looked_at_once_in_a_slot() {
    let mut rig = Rig::new(true);
    for sector in [900_000, 800_000] {
        rig.insert(rq(1, sector));
    }
    rig.later(125 * MS);
    for step in 1..=4 {
        rig.insert(rq(1, step * 200));
    }
    let order: Vec<u64> = (0..6).map(|_| rig.turn(MS).sector).collect();
    // The other one is overdue as well, and waits until the head comes by.
    assert_eq!(order, [200, 900_000, 400, 600, 800, 800_000]);
}

#[test]
fn a_bio_between_two_requests_makes_them_one_with_the_older_deadline() {
    let mut rig = Rig::with(true, 0);
    let gone = rig.insert(rq(1, 1016));
    let deadline = rig.bfq.node(gone).deadline;
    rig.later(MS);
    rig.insert(rq(1, 9000));
    let kept = rig.insert(rq(1, 1000));
    let id = rig.id(1);
    rig.bfq.queue_mut(id).next = Some(gone);
    rig.bfq.queue_mut(id).fifo_checked = false;
    let joined = rig.bfq.merge(&rq(1, 1008), rig.now);
    assert!(
        matches!(joined, Merge::BackJoined { kept: k, gone: g } if (k, g) == (kept, gone))
            || matches!(joined, Merge::FrontJoined { kept: k, gone: g } if (k, g) == (kept, gone)),
        "{joined:?}"
    );
    let queue = rig.bfq.queue(id);
    assert_eq!((queue.next, queue.fifo.oldest, queue.queued), (Some(kept), kept, 2));
    assert!(!queue.fifo_checked, "the FIFO was not asked");
    assert_eq!(rig.bfq.node(kept).deadline, deadline);
    assert_eq!((rig.bfq.node(kept).rq.sector, rig.bfq.node(kept).rq.sectors), (1000, 24));
}

/// Queue 1 is in service, and queue 2 waits with a request of 200 sectors, as many as its budget;
/// that request.
fn beside_a_waiting_queue() -> (Rig, SchedTag) {
    let mut rig = Rig::with(true, 0);
    rig.insert(rq(1, 1000));
    rig.dispatch();
    let next = rig.insert(Rq { sectors: 200, ..rq(2, 9000) });
    let id = rig.id(2);
    rig.bfq.queue_mut(id).max_budget = 200;
    (rig, next)
}

#[test]
fn a_queue_whose_next_request_grows_is_given_more() {
    let (mut rig, next) = beside_a_waiting_queue();
    let id = rig.id(2);
    rig.bfq.next_changed(id);
    assert_eq!(rig.entity(2).budget, 200);
    let merge = rig.bfq.merge(&rq(2, 9200), rig.now);
    assert_eq!(merge, Merge::Back(next));
    assert_eq!(rig.entity(2).budget, 208);
}

#[test]
fn a_batch_may_go_unasked_until_its_last_request_would_take_more_than_the_share() {
    let mut rig = Rig::new(false);
    for step in 0..120 {
        rig.insert(rq(1, 1000 + step * 8));
    }
    let rule = |rig: &Rig, requests: u64| {
        let batch: Vec<Rq> = (0..requests).map(|step| rq(1, 90_000 + step * 8)).collect();
        rig.bfq.depth_rule(&batch, rig.now)
    };
    assert_eq!(rule(&rig, 200), DepthRule::Free, "alone");
    rig.insert(rq(2, 500_000));
    // Two equal queues have 128 of 256 tags each, and 120 are held.
    assert_eq!(rule(&rig, 8), DepthRule::Free);
    assert_eq!(rule(&rig, 9), DepthRule::Each);
    // One that is not busy makes the shares of others smaller.
    let other = vec![rq(3, 1000)];
    rig.insert(rq(3, 1000));
    assert_eq!(rig.bfq.depth_rule(&other, rig.now), DepthRule::Free);
    let context = SubmitterId(1);
    assert_eq!(rig.bfq.depth_limit(Op::Read, true, context), Some(1), "a third is 85");
    assert_eq!(rig.bfq.depth_limit(Op::Read, true, SubmitterId(2)), None);
}

#[test]
fn batches_run_a_timer_that_is_over_first() {
    let mut rig = idling();
    rig.later(8 * MS);
    let batch = [rig.tagged(rq(1, 1008))];
    rig.bfq.stage_batch(&batch, rig.now, &mut rig.absorbed);
    assert_ne!(rig.bfq.take_kicked(), 0);
    assert_eq!(rig.bfq.device_view().last_slot.map(|(reason, ..)| reason), Some(Expiry::TooIdle));
    let mut rig = Rig::new(true);
    rig.bfq.decide_queueing(Some(false));
    rig.insert(rq(1, 1000));
    let first = rig.dispatch().expect("a request");
    rig.insert(rq(2, 90_000));
    rig.complete(&first);
    assert!(rig.bfq.wake_at().is_some());
    rig.later(9 * MS);
    rig.bfq.ended_batch(&[], rig.now);
    assert!(rig.bfq.wake_at().is_some(), "nothing ended");
}

#[test]
fn a_batch_of_answers_comes_after_a_timer_that_is_over() {
    let mut rig = idling();
    // A request of another queue that was injected is answered after the wait.
    rig.insert(rq(2, 90_000));
    let id = rig.id(2);
    let tag = rig.bfq.queue(id).next.expect("a request");
    let out = rig.bfq.take_out(tag, rig.now);
    rig.later(8 * MS);
    let end = rig.end_of(&out);
    rig.bfq.ended_batch(&[end], rig.now);
    assert_ne!(rig.bfq.take_kicked(), 0);
    assert_eq!(rig.bfq.wake_at(), None);
}

#[test]
fn new_limits_count_from_the_next_merge() {
    let mut rig = Rig::with(true, 0);
    let tag = rig.insert(rq(1, 1000));
    let limits = Limits { max_hw_sectors: 16, ..rig.bfq.limits.clone() };
    rig.bfq.limits_changed(&limits, 0);
    assert_eq!(rig.bfq.merge(&rq(1, 1008), rig.now), Merge::Back(tag));
    assert_eq!(rig.bfq.merge(&rq(1, 1016), rig.now), Merge::No);
    let next = rig.insert(rq(1, 5000));
    assert_eq!(rig.bfq.merge(&rq(1, 5008), rig.now), Merge::Back(next));
    let limits = rig.bfq.limits.clone();
    rig.bfq.limits_changed(&limits, 2);
    assert_eq!(rig.bfq.merge(&rq(1, 4992), rig.now), Merge::No);
}

#[test]
fn a_process_that_stages_from_another_group_or_priority_has_another_queue() {
    let mut rig = Rig::new(false);
    rig.insert(rq(1, 1000));
    let id = rig.id(1);
    let batch = [rig.tagged(rq(1, 2000))];
    rig.bfq.stage_batch(&batch, rig.now, &mut rig.absorbed);
    assert_eq!(rig.bfq.queue(id).queued, 2);
    let level = rig.bfq.forest[rig.bfq.queue(id).entity].level;
    let moved = [rig.tagged(Rq { group: GroupId(7), ..rq(1, 3000) })];
    rig.bfq.stage_batch(&moved, rig.now, &mut rig.absorbed);
    let now = rig.bfq.queue(rig.id(1)).entity;
    assert_ne!(rig.bfq.forest[now].level, level);
    assert_ne!(rig.bfq.forest[now].place, Place::Nowhere);
}

#[test]
fn a_bio_that_touches_a_staged_request_is_looked_at_for_a_merge() {
    for (nomerges, at, merges) in
        [(0, 1008, true), (0, 992, true), (0, 1016, false), (1, 1008, true), (2, 1008, false)]
    {
        let mut rig = Rig::with(false, nomerges);
        let tag = rig.insert(rq(1, 1000));
        let batch = [rig.tagged(rq(1, at))];
        let (taken, merge) = rig.bfq.stage_batch(&batch, rig.now, &mut rig.absorbed);
        let into = matches!(merge, Merge::Back(to) | Merge::Front(to) if to == tag);
        assert_eq!((taken, into), (1, merges), "nomerges {nomerges}, {at}");
    }
    // The one in front begins where the bio ends, and is not in the cache.
    let mut rig = Rig::with(false, 0);
    rig.insert(rq(1, 90_000));
    let tag = rig.insert(rq(1, 1000));
    let batch = [rig.tagged(rq(1, 992))];
    let (_, merge) = rig.bfq.stage_batch(&batch, rig.now, &mut rig.absorbed);
    assert_eq!(merge, Merge::Front(tag));
}

#[test]
fn what_is_in_the_device_takes_nothing_in() {
    let mut rig = Rig::with(true, 0);
    rig.insert(rq(1, 1000));
    let out = rig.dispatch().expect("a request");
    rig.insert(rq(1, 1008));
    assert!(rig.absorbed.is_empty());
    assert_eq!(rig.bfq.queue(rig.id(1)).queued, 1);
    let next = rig.insert(rq(1, 1016));
    assert_eq!(rig.absorbed.len(), 1);
    assert_eq!(rig.absorbed[0].1, next);
    assert_eq!(out.sectors, 8);
}

#[test]
fn a_process_that_is_gone_does_not_count_for_a_burst() {
    let marked = |gone: bool, answered: bool| {
        let mut rig = Rig::new(true);
        rig.bfq.tunables().set("low_latency", "1").expect("a tunable");
        for context in 1..=7 {
            rig.insert(rq(context, u64::from(context) * 10_000));
            if context < 7 || answered {
                rig.turn(MS);
            } else {
                rig.dispatch();
            }
            for _ in 0..2 {
                rig.later(12 * MS);
                rig.bfq.on_timer(rig.now);
            }
        }
        if gone {
            rig.bfq.context_ended(SubmitterId(7), rig.now);
        }
        [8, 9].map(|context| {
            rig.insert(rq(context, u64::from(context) * 10_000));
            rig.bfq.queue(rig.id(context)).in_large_burst
        })
    };
    assert_eq!(marked(false, true), [true, true]);
    assert_eq!(marked(true, true), [false, true], "the ninth is the eighth of those that stay");
    assert_eq!(marked(true, false), [false, true], "though its request is in the device");
}

#[test]
fn a_rate_is_taken_after_a_second_of_dispatches_or_a_pause_and_300_ms() {
    // 40 requests of 1 MiB, one every `step`, then a pause of an empty device.
    let estimates = |step: u64, count: u64, pause: u64| {
        let mut meter = RateMeter::new(true);
        let mut changed = Vec::new();
        let mut sector = 0;
        for at in 0..count {
            let now = Nanos::from_ms(5000) + at * step;
            let read = Rq { sectors: 2048, ..rq(1, sector) };
            sector += 2048;
            if meter.dispatched(&read, 1, now) {
                changed.push(at);
            }
        }
        let now = Nanos::from_ms(5000) + (count - 1) * step + pause;
        let ended = meter.dispatched(&rq(1, sector), 0, now);
        (changed, ended)
    };
    assert_eq!(estimates(10 * MS, 150, 50 * MS), (vec![100], false), "after a second");
    assert_eq!(estimates(10 * MS, 40, 101 * MS), (Vec::new(), true), "after a pause");
    assert_eq!(estimates(10 * MS, 40, 100 * MS), (Vec::new(), false), "which was too short");
    assert_eq!(estimates(10 * MS, 31, 101 * MS), (Vec::new(), false), "31 samples");
    assert_eq!(estimates(10 * MS, 32, 101 * MS), (Vec::new(), true), "310 ms");
    assert_eq!(estimates(9_375_000, 33, 101 * MS), (Vec::new(), true), "300 ms");
    assert_eq!(estimates(9_374_999, 33, 101 * MS), (Vec::new(), false), "less than 300 ms");
}

#[test]
fn a_large_request_is_injected_into_flash_only_while_nothing_is_in_flight() {
    let injected = |rotational: bool, sectors: u32, answered: bool| {
        let mut rig = Rig::new(rotational);
        rig.bfq.decide_queueing(Some(true));
        rig.insert(Rq { ioprio: IoPrio::new(Class::BestEffort, 0), ..rq(1, 1000) });
        let first = rig.dispatch().expect("a request");
        if answered {
            rig.complete(&first);
        }
        rig.insert(Rq { sectors, ..rq(2, 90_000) });
        let id = rig.id(1);
        assert_eq!(rig.bfq.in_service, Some(id), "it weighs more, so it is waited for");
        rig.bfq.queue_mut(id).injection.limit = 2;
        // A pause since the beginning: the process is not I/O-bound.
        let (idle, busy, live) = (true, true, true);
        let pause = think::Request { idle, busy, last_end: 0, live, slice_idle_ns: 8 * MS };
        let now = rig.now;
        rig.bfq.queue_mut(id).think.observe(pause, now);
        rig.bfq.choose_injected(id).is_some()
    };
    assert!(injected(false, 63, false));
    assert!(!injected(false, 64, false));
    assert!(injected(false, 64, true));
    assert!(injected(true, 64, false));
}

#[test]
fn a_pause_counts_as_twice_the_idle_slice_at_most() {
    let mut rig = Rig::new(true);
    for step in 0..40 {
        rig.insert(rq(1, 1000 + step * 8));
        rig.turn(MS);
        rig.later(1000 * MS);
        rig.bfq.on_timer(rig.now);
    }
    let mean = rig.bfq.queue(rig.id(1)).think.mean_ns().expect("it is known");
    assert!((16 * MS..17 * MS).contains(&mean), "{mean}");
}

#[test]
fn the_budget_of_a_slot_stays_while_the_queue_is_in_service() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 9000));
    rig.dispatch();
    let budget = rig.entity(1).budget;
    rig.insert(Rq { sectors: 30_000, ..rq(1, 2000) });
    assert_eq!(rig.entity(1).budget, budget);
}

#[test]
fn a_queue_that_returned_in_time_waits_with_the_rest_of_its_budget_or_what_its_next_needs() {
    let mut rig = Rig::new(true);
    rig.bfq.decide_queueing(Some(false));
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    rig.later(8 * MS);
    rig.bfq.on_timer(rig.now);
    rig.insert(rq(2, 500_000));
    rig.dispatch();
    rig.insert(rq(1, 1008));
    let id = rig.id(1);
    let left = rig.bfq.queue(id).left.expect("it returned in time");
    rig.bfq.in_service = None;
    rig.bfq.next_changed(id);
    assert_eq!(rig.entity(1).budget, left);
    let next = rig.bfq.queue(id).next.expect("a request");
    rig.bfq.nodes[next.index()].rq.sectors = 20_000;
    rig.bfq.next_changed(id);
    assert_eq!(rig.entity(1).budget, 20_000);
}

#[test]
fn a_short_slot_of_a_seeky_queue_counts_as_longer_and_one_of_a_millisecond_as_it_is() {
    let slow = |rotational: bool, held: u64| {
        let mut rig = Rig::new(rotational);
        for jump in 0..32 {
            rig.insert(rq(1, 1000 + (jump * 7 % 32) * 1_000_000));
        }
        rig.bfq.slot_started = rig.now;
        slow_for(&rig, held)
    };
    assert_eq!(slow(true, MS - 1), (true, 8 * MS));
    assert_eq!(slow(false, MS - 1), (true, 2 * MS));
    assert_eq!(slow(true, MS), (true, MS));
}

#[test]
fn a_raised_queue_is_given_twice_the_least_whatever_happened() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let id = rig.id(1);
    let now = rig.now;
    let verdict = rig.bfq.queue_mut(id).raise.begin_interactive(1000 * MS, now);
    rig.bfq.let_raising_count(id, verdict);
    for reason in [Expiry::TooIdle, Expiry::BudgetExhausted, Expiry::Preempted] {
        rig.bfq.learn_budget(id, reason);
        assert_eq!(rig.bfq.queue(id).max_budget, 1024, "{reason:?}");
    }
}

#[test]
fn after_a_request_comes_the_nearest_in_reach_or_the_one_that_others_wait_for() {
    let second = |before: Rq, after: Rq| {
        let mut rig = Rig::new(true);
        rig.bfq.last_position = 1_000_000;
        rig.insert(rq(1, 1_000_000));
        rig.insert(before);
        rig.insert(after);
        rig.bfq.queue_mut(rig.id(1)).next = Some(SchedTag(0));
        assert_eq!(rig.turn(MS).sector, 1_000_000);
        rig.dispatch().expect("a request").sector
    };
    let at = |sector: u64| rq(1, sector);
    assert_eq!(second(at(999_992), at(1_000_100)), 999_992, "16 is less than 100");
    assert_eq!(second(at(999_900), at(1_000_100)), 1_000_100, "200 is more");
    assert_eq!(second(at(1_000_000 - 32_768), at(1_070_000)), 1_000_000 - 32_768);
    assert_eq!(second(at(1_000_000 - 32_769), at(1_070_000)), 1_070_000, "out of reach");
    let meta = Rq { flags: Flags::META, ..at(900_000) };
    assert_eq!(second(meta, at(1_000_008)), 900_000);
}

#[test]
fn the_next_request_stays_the_next_one_as_it_is_taken_in() {
    let mut rig = Rig::with(true, 0);
    rig.bfq.last_position = 10_000;
    let before = rig.insert(rq(1, 9984));
    let next = rig.insert(rq(1, 10_000));
    rig.insert(rq(1, 10_020));
    let id = rig.id(1);
    assert_eq!(rig.bfq.queue(id).next, Some(next));
    let joined = rig.bfq.merge(&rq(1, 9992), rig.now);
    assert_eq!(joined, Merge::BackJoined { kept: before, gone: next });
    assert_eq!(rig.bfq.queue(id).next, Some(before));
}

#[test]
fn the_share_of_tags_is_rounded_to_the_nearest() {
    let mut rig = Rig::new(true);
    let heavy = |step: u64| {
        let ioprio = IoPrio::new(Class::BestEffort, 0);
        Rq { ioprio, ..rq(1, 1000 + step * 8) }
    };
    rig.insert(rq(2, 900_000));
    for step in 0..170 {
        rig.insert(heavy(step));
    }
    // Two thirds of 256 are 170.7.
    let limit = |rig: &Rig| rig.bfq.depth_limit(Op::Read, true, SubmitterId(1));
    assert_eq!(limit(&rig), None);
    rig.insert(heavy(170));
    assert_eq!(limit(&rig), Some(1));
}

#[test]
fn a_context_that_ends_comes_after_a_timer_that_is_over_and_an_unknown_one_is_none() {
    let mut rig = idling();
    rig.later(8 * MS);
    rig.bfq.context_ended(SubmitterId(1), rig.now);
    assert_eq!(rig.bfq.device_view().last_slot.map(|(reason, ..)| reason), Some(Expiry::TooIdle));
    let unknown = rig.bfq.contexts.len() as u16;
    rig.bfq.take_kicked();
    rig.bfq.context_ended(SubmitterId(unknown), rig.now);
    assert_eq!(rig.bfq.take_kicked(), 0);
    rig.later(MS);
    rig.bfq.on_timer(rig.now);
    assert_eq!(rig.bfq.last_now, rig.now);
}

#[test]
fn a_queue_that_is_preempted_is_waited_for_no_more() {
    let mut rig = idling();
    rig.insert(Rq { ioprio: IoPrio::new(Class::RealTime, 4), ..rq(2, 90_000) });
    assert_eq!(rig.bfq.device_view().last_slot.map(|(reason, ..)| reason), Some(Expiry::Preempted));
    assert_eq!(rig.bfq.wake_at(), None);
}

#[test]
fn an_async_queue_with_a_request_after_more_than_half_a_second_is_raised() {
    let raised = |low_latency: &str, pause: u64, op: Op| {
        let mut rig = Rig::new(true);
        rig.bfq.tunables().set("low_latency", low_latency).expect("a tunable");
        // A reader in service: the other queue keeps its backlog.
        rig.insert(rq(1, 1000));
        rig.dispatch();
        let other = Rq { op, ioprio: IoPrio::new(Class::BestEffort, 5), ..rq(2, 90_000) };
        let tag = rig.insert(other);
        rig.later(pause);
        rig.insert(Rq { sector: 95_000, ..other });
        rig.bfq.is_raised(rig.bfq.owner(tag).queue)
    };
    assert!(!raised("1", 500 * MS, Op::Write));
    assert!(raised("1", 500 * MS + 1, Op::Write));
    assert!(!raised("0", 500 * MS + 1, Op::Write));
    assert!(!raised("1", 500 * MS + 1, Op::Read), "a sync queue of another level takes no part");
}

#[test]
fn an_interval_counts_by_its_length_and_how_much_of_it_was_sequential() {
    // 40 reads of 128 KiB, some of them seeks, and the time from each to the next, ms: slower than
    // the first estimate.
    let estimate = |seeks: u64, after_seek: u64, after_other: u64| {
        let mut meter = RateMeter::new(true);
        let (mut sector, mut now) = (0, 5000);
        let mut last = now;
        for at in 0..40 {
            let seek = at > 0 && at <= seeks;
            sector += if seek { 1_000_000 } else { 0 };
            let read = Rq { sectors: 256, ..rq(1, sector) };
            sector += 256;
            meter.dispatched(&read, 1, Nanos::from_ms(now));
            last = now;
            now += if seek { after_seek } else { after_other };
        }
        meter.dispatched(&rq(1, sector), 0, Nanos::from_ms(last + 101));
        meter.rate()
    };
    let first = RateMeter::new(true).rate();
    let rate = |ms: u64| ((40 * 256) << 16) / (ms * 1000);
    // Nine times the part that was sequential, times the seconds, of ten.
    assert_eq!(estimate(0, 10, 10), first * 6 / 7 + rate(390) / 7);
    assert_eq!(estimate(9, 10, 10), first * 7 / 8 + rate(390) / 8);
    assert_eq!(estimate(10, 10, 10), first, "seeks took more than a quarter of the time");
    assert_eq!(estimate(10, 1, 12), first * 7 / 8 + rate(358) / 8);
    assert_eq!(estimate(11, 1, 12), first, "more than a quarter of the requests were seeks");
}

#[test]
fn a_recorded_choice_beyond_the_budget_enlarges_it() {
    let mut rig = Rig::new(true);
    rig.insert(rq(1, 1000));
    let tag = rig.insert(rq(1, 5000));
    rig.dispatch();
    rig.entity(1).budget = 10;
    rig.bfq.take_out(tag, rig.now);
    assert_eq!((rig.entity(1).budget, rig.entity(1).service), (16, 16));
}

#[test]
fn a_request_joins_the_one_before_it_and_that_one_the_one_before() {
    let mut rig = Rig::with(true, 0);
    let middle = rig.insert(rq(1, 1008));
    let first = rig.insert(rq(1, 1000));
    assert!(rig.absorbed.is_empty());
    let last = rig.insert(rq(1, 1016));
    assert_eq!(rig.absorbed, [(middle, last), (first, middle)]);
    assert_eq!((rig.bfq.node(first).rq.sectors, rig.bfq.queue(rig.id(1)).queued), (24, 1));
}

#[test]
fn a_batch_that_may_raise_its_queue_is_asked_for_one_by_one() {
    let sync = Rq { op: Op::Write, flags: Flags::SYNC, ..rq(1, 5000) };
    let background = Rq { op: Op::Write, ..rq(1, 5000) };
    let each = |rig: &Rig, rq: Rq| rig.bfq.depth_rule(&[rq], rig.now) == DepthRule::Each;
    let asked = |low_latency: &str, first: Rq| {
        let mut rig = Rig::new(false);
        rig.bfq.tunables().set("low_latency", low_latency).expect("a tunable");
        rig.insert(first);
        rig.later(500 * MS);
        let soon = each(&rig, first);
        rig.later(1);
        [soon, each(&rig, first)]
    };
    assert_eq!(asked("1", sync), [false, false], "it is busy already");
    assert_eq!(asked("1", background), [false, true], "the last is more than half a second ago");
    assert_eq!(asked("0", background), [false, false]);
    for low_latency in ["1", "0"] {
        let mut rig = Rig::new(false);
        rig.bfq.tunables().set("low_latency", low_latency).expect("a tunable");
        rig.insert(sync);
        rig.turn(MS);
        rig.later(20 * MS);
        rig.bfq.on_timer(rig.now);
        rig.dispatch();
        assert_eq!(rig.bfq.busy_total(), 0);
        assert_eq!(each(&rig, sync), low_latency == "1");
    }
}

/// A queue, as context 1, whose requests are far apart.
fn seeky(rotational: bool) -> Rig {
    let mut rig = Rig::new(rotational);
    for jump in 0..32 {
        rig.insert(rq(1, 1000 + (jump * 7 % 32) * 1_000_000));
    }
    rig
}

#[test]
fn a_slot_by_time_is_without_what_others_took_and_with_what_was_measured_after_the_last() {
    const HALF: i64 = 500_000;
    let ms = MS as i64;
    // Of the slot, held and had by others; owed before and sectors served; charged and left.
    for (held, others, owed, service, charged, rest) in [
        (10 * ms, 0, 0, 0, 10 * ms, 0),
        (10 * ms, 4 * ms, 0, 0, 6 * ms, 0),
        (10 * ms, 4 * ms, 5 * ms, 0, 11 * ms, 0),
        (130 * ms, 0, 0, 0, 125 * ms, 0),
        (130 * ms, 20 * ms, 0, 0, 110 * ms, 0),
        (130 * ms, 0, 300 * ms, 0, 425 * ms, 0),
        // A guess of 8 ms, of which so much was not measured.
        (HALF, 0, 0, 0, 8 * ms, HALF - 8 * ms),
        (HALF, 0, 1, 0, 8 * ms, HALF - 8 * ms + 1),
        (HALF, 0, 20 * ms, 0, 20 * ms + HALF, 0),
        // It is set off, and there is no other before it is used up.
        (HALF, 0, -6 * ms, 0, 0, HALF - 6 * ms),
        (10 * ms, 0, -6 * ms, 0, 4 * ms, 0),
        // 1024 sectors are a 16th of 125 ms, 7.8125 ms; and it is never more than the guess.
        (HALF, 0, -HALF - 1, 128, 0, -1 - 976_562),
        (HALF, 0, -6 * ms, 1024, 0, -8 * ms),
        (10 * ms, 0, 0, 1024, 10 * ms, 0),
    ] {
        let mut rig = seeky(true);
        let (id, now) = (rig.id(1), rig.now);
        rig.bfq.queue_mut(id).owed_ns = owed;
        rig.entity(1).service = service;
        rig.bfq.slot_started = now;
        rig.bfq.device_time.turn(now);
        rig.bfq.device_time.foreign_end(now + others as u64);
        let time = rig.bfq.slot_time(id, now + held as u64, false);
        let case = (held, others, owed, service);
        assert_eq!((time.charged_ns as i64, time.rest_ns), (charged, rest), "{case:?}");
    }
}

#[test]
fn a_request_that_outlives_its_slot_counts_for_the_next_one_on_a_disk() {
    for (rotational, owed) in [(true, 3 * MS as i64), (false, 0)] {
        let mut rig = seeky(rotational);
        let out = rig.dispatch().expect("a request");
        rig.later(2 * MS);
        let (id, now) = (rig.id(1), rig.now);
        rig.bfq.expire(id, Expiry::Preempted, now, false);
        assert_eq!(rig.bfq.queue(id).owed_ns, 0);
        rig.later(3 * MS);
        rig.complete(&out);
        assert_eq!(rig.bfq.queue(id).owed_ns, owed);
        // One that is served in its slot does not.
        let out = rig.dispatch().expect("a request");
        rig.later(5 * MS);
        rig.complete(&out);
        assert_eq!(rig.bfq.queue(id).owed_ns, owed);
        let full = rig.bfq.max_budget;
        assert_eq!(rig.bfq.owed(id), full * owed as u64 / (125 * MS), "in sectors");
        let charged = rig.entity(1).service;
        rig.later(2 * MS);
        let now = rig.now;
        rig.bfq.expire(id, Expiry::Preempted, now, false);
        let (_, service, _) = rig.bfq.last_slot.expect("a slot that ended");
        assert_eq!(service, full * (7 + owed as u64 / MS) / 125, "more than {charged}");
        assert_eq!(rig.bfq.queue(id).owed_ns, 0);
    }
}

#[test]
fn what_a_queue_owes_is_no_more_than_a_second_and_bounds_what_is_injected_of_it() {
    let mut rig = seeky(true);
    rig.bfq.decide_queueing(Some(true));
    let id = rig.id(1);
    let out = rig.dispatch().expect("a request");
    let now = rig.now;
    rig.bfq.expire(id, Expiry::Preempted, now, false);
    rig.later(9000 * MS);
    rig.complete(&out);
    assert_eq!(rig.bfq.queue(id).owed_ns, 1000 * MS as i64);
    for (owed, may) in [(-5, true), (0, true), (100, true), (124, true), (125, false)] {
        rig.bfq.queue_mut(id).owed_ns = owed * MS as i64;
        rig.entity(1).budget = rig.bfq.max_budget;
        rig.entity(1).service = 0;
        let other = QueueId(u32::MAX);
        assert_eq!(rig.bfq.can_inject(other, id, entity::BE), may, "{owed} ms");
    }
    // One that reads on and on is charged for sectors alone.
    rig.bfq.queue_mut(id).owed_ns = 1000 * MS as i64;
    rig.bfq.queue_mut(id).seeks = seeks::SeekHistory::new();
    assert_eq!(rig.bfq.owed(id), 0);
}

#[test]
fn strict_guarantees_lengthen_the_idle_slice_when_they_are_switched_on_and_only_then() {
    let mut rig = Rig::new(true);
    for (name, value, slice) in [
        ("slice_idle", "2", 2),
        ("strict_guarantees", "0", 2),
        ("strict_guarantees", "1", 8),
        ("slice_idle", "3", 3),
        ("strict_guarantees", "1", 3),
        ("strict_guarantees", "0", 3),
    ] {
        rig.bfq.tunables().set(name, value).expect("a tunable");
        assert_eq!(rig.bfq.set.slice_idle_ns, slice * MS, "{name}={value}");
    }
}

#[test]
fn every_hard_queue_is_asked_when_a_process_is_gone() {
    for (hard_queues, all) in [(1, 1), (3, 7), (64, u64::MAX)] {
        let limits = Limits::default();
        let setup = Setup { limits, nr_requests: TAGS, hard_queues, nomerges: 0, compat: "" };
        let mut bfq = Bfq::new(&setup);
        bfq.insert(Rq { tag: SchedTag(0), ..rq(1, 1000) }, Nanos(0), &mut Vec::new());
        assert_eq!(bfq.take_kicked(), 0);
        bfq.context_ended(SubmitterId(1), Nanos(1));
        assert_eq!(bfq.take_kicked(), all, "{hard_queues} hard queues");
    }
}

#[test]
fn an_injected_request_took_the_time_since_the_last_end_or_since_the_device_was_idle() {
    let mut rig = seeky(true);
    rig.insert(rq(2, 500_000));
    rig.insert(rq(2, 90_000_000));
    let take = |rig: &mut Rig| {
        let tag = rig.bfq.queue(rig.id(2)).next.expect("a request");
        rig.bfq.take_out(tag, rig.now)
    };
    rig.turn(2 * MS);
    rig.later(10 * MS);
    let out = take(&mut rig);
    rig.later(3 * MS);
    rig.complete(&out);
    assert_eq!(rig.bfq.queue(rig.id(2)).owed_ns, 3 * MS as i64);
    let own = rig.dispatch().expect("a request");
    rig.later(MS);
    let out = take(&mut rig);
    rig.later(4 * MS);
    rig.complete(&own);
    rig.later(2 * MS);
    rig.complete(&out);
    assert_eq!(rig.bfq.queue(rig.id(2)).owed_ns, 5 * MS as i64);
}

#[test]
fn queues_that_exist_hold_as_many_requests_as_there_are_tags_from_a_change_on() {
    const DEEPER: u16 = 600;
    let mut rig = Rig::new(false);
    rig.insert(rq(1, 0));
    let first = rig.turn(MS);
    assert_eq!((first.sector, rig.bfq.staged()), (0, 0));
    rig.bfq.depth_changed(DEEPER);
    rig.free = (0..DEEPER).rev().collect();
    // Two clusters, which no buckets spread.
    for n in 0..u64::from(DEEPER) {
        rig.insert(rq(1, ((n % 2) << 33) | (n * 1009 % 4096)));
    }
    let mut out = Vec::new();
    rig.bfq.drain(&mut out, rig.now);
    assert_eq!(out.len(), usize::from(DEEPER));
}
