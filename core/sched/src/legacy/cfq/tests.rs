//! Tests of CFQ's inner state, and long random sequences.

use weir_bio::{Class, Flags, IoPrio, Op, Prng, RqId, Status};

use super::*;
use crate::tunable::Tunables;

mod decisions;

const MS: u64 = 1_000_000;
const TAGS: u16 = 256;

/// A scheduler, its tags and the time.
struct Rig {
    cfq: Cfq,
    now: Nanos,
    free: Vec<u16>,
    absorbed: Absorbed,
}

fn setup(rotational: bool, nomerges: u8) -> Setup {
    let limits = Limits { rotational, max_hw_sectors: 512, ..Limits::default() };
    Setup { limits, nr_requests: TAGS, hard_queues: 1, nomerges, compat: "" }
}

fn rq(submitter: u16, sector: u64) -> Rq {
    Rq {
        sector,
        sectors: 128,
        id: RqId::new(SubmitterId(submitter), 0, 0),
        flags: Flags::NONE,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag::NONE,
        op: Op::Read,
        segments: 1,
    }
}

fn background(submitter: u16, sector: u64) -> Rq {
    Rq { op: Op::Write, ..rq(submitter, sector) }
}

fn at_level(class: Class, level: u8, rq: Rq) -> Rq {
    Rq { ioprio: IoPrio::new(class, level), ..rq }
}

impl Rig {
    fn new() -> Rig {
        Rig::with(&setup(true, 2))
    }

    fn with(setup: &Setup) -> Rig {
        let free = (0..TAGS).rev().collect();
        Rig { cfq: Cfq::new(setup), now: Nanos::from_ms(5000), free, absorbed: Vec::new() }
    }

    fn set(&mut self, name: &str, text: &str) {
        let tunables: &mut dyn Tunables = self.cfq.tunables();
        tunables.set(name, text).expect("a tunable");
    }

    fn later(&mut self, ns: u64) {
        self.now = self.now + ns;
    }

    fn insert(&mut self, rq: Rq) -> SchedTag {
        let tag = SchedTag(self.free.pop().expect("a tag is free"));
        let now = self.now;
        self.cfq.insert(Rq { tag, ..rq }, now, &mut self.absorbed);
        tag
    }

    fn dispatch(&mut self) -> Option<Rq> {
        self.cfq.dispatch(0, self.now)
    }

    /// The submitter of the next request.
    fn serve(&mut self) -> Option<u16> {
        self.dispatch().map(|rq| rq.id.submitter().0)
    }

    fn complete_since(&mut self, rq: &Rq, accepted_at: Nanos) {
        let (tag, status, issued_at, done_at) = (rq.tag, Status::Ok, accepted_at, self.now);
        let handed_back = false;
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        self.cfq.ended(&end, self.now);
        self.free.push(rq.tag.0);
    }

    fn complete(&mut self, rq: &Rq) {
        self.complete_since(rq, self.now);
    }

    /// Dispatches one request and answers it `ns` later.
    fn turn(&mut self, ns: u64) -> Rq {
        let rq = self.dispatch().expect("a request");
        self.later(ns);
        self.complete(&rq);
        rq
    }

    fn active(&self) -> Option<&Queue> {
        self.cfq.active.map(|id| self.cfq.queue(id))
    }
}

#[test]
fn a_slice_is_a_fifth_longer_or_shorter_for_each_level() {
    let cfq = Cfq::new(&setup(true, 0));
    let slices = |sync| std::array::from_fn(|level| cfq.slice_ns(sync, level as u8));
    assert_eq!(slices(true), [180, 160, 140, 120, 100, 80, 60, 40].map(|ms| ms * MS));
    assert_eq!(slices(false), [72, 64, 56, 48, 40, 32, 24, 16].map(|ms| ms * MS));
}

#[test]
fn slices_shrink_with_the_number_of_queues_down_to_twice_slice_idle() {
    let expected = [(1, 100), (3, 100), (4, 75), (5, 60), (10, 30), (15, 20), (19, 16), (32, 16)];
    for (queues, slice) in expected {
        let mut rig = Rig::new();
        let mut at: Vec<u64> = (0..queues).map(|q| 1_000 + q * 100_000_000).collect();
        for queue in 0..queues {
            rig.insert(rq(queue as u16, at[queue as usize]));
        }
        let mut slices = Vec::new();
        for _ in 0..4_000 {
            let served = rig.turn(MS);
            if let Some(active) = rig.active() {
                slices.push(active.slot.allocated_ns / MS);
            }
            let client = served.id.submitter().0;
            at[usize::from(client)] += 128;
            rig.later(100_000);
            rig.insert(rq(client, at[usize::from(client)]));
        }
        let steady = &slices[slices.len() / 2..];
        assert!(steady.iter().all(|s| *s == slice), "{queues} queues: {:?}", &steady[..20]);
    }
}

#[test]
fn the_average_number_of_queues_rises_fast_and_decays_slowly() {
    let mut rig = Rig::new();
    for queue in 0..8 {
        rig.insert(rq(queue, u64::from(queue) * 100_000_000 + 1000));
    }
    let id = QueueId(0);
    let group = rig.cfq.queue(id).group;
    rig.cfq.scaled_slice_ns(id);
    assert_eq!(rig.cfq.groups[group].average_of(Class::BestEffort), 6, "(3 * 8 + 0 + 2) / 4");
    rig.cfq.scaled_slice_ns(id);
    assert_eq!(rig.cfq.groups[group].average_of(Class::BestEffort), 8);
    for _ in 0..7 {
        let rq = rig.dispatch().expect("a request");
        rig.complete(&rq);
        rig.later(9 * MS);
        rig.cfq.on_timer(rig.now);
    }
    rig.cfq.scaled_slice_ns(id);
    let average = rig.cfq.groups[group].average_of(Class::BestEffort);
    assert_eq!(average, 3, "while a single one is busy");
}

#[test]
fn the_slice_begins_with_the_first_answer_and_not_with_the_seek() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(rq(1, 1128));
    let first = rig.dispatch().expect("a request");
    rig.later(500 * MS);
    assert!(!rig.active().expect("in service").slot.is_used(rig.now));
    rig.complete(&first);
    let slot = rig.active().expect("in service").slot;
    assert_eq!((slot.started_at, slot.ends_at), (Some(rig.now), rig.now + 100 * MS));
}

/// Where a submitter's sync queue stands in its tree, against now, nanoseconds.
fn turn_of(rig: &Rig, submitter: u16) -> i64 {
    let id = rig.cfq.present_queue(&rq(submitter, 0)).expect("a queue");
    let (_, (at, ..)) = rig.cfq.queue(id).place.expect("a busy queue");
    at - rig.now.0 as i64
}

#[test]
fn better_levels_come_sooner_by_the_difference_of_slices_for_each_other_queue() {
    let mut rig = Rig::new();
    let ms = MS as i64;
    rig.insert(at_level(Class::BestEffort, 7, rq(1, 1000)));
    assert_eq!(turn_of(&rig, 1), 0, "alone");
    rig.insert(at_level(Class::BestEffort, 0, rq(2, 10_000_000)));
    assert_eq!(turn_of(&rig, 2), 0, "nobody has a longer slice");
    rig.insert(at_level(Class::BestEffort, 7, rq(3, 20_000_000)));
    assert_eq!(turn_of(&rig, 3), 2 * (180 - 40) * ms);
    rig.insert(rq(4, 30_000_000));
    assert_eq!(turn_of(&rig, 4), 3 * (180 - 100) * ms);
    for (submitter, turn) in [(5, 200), (6, 400)] {
        rig.insert(at_level(Class::Idle, 0, rq(submitter, 40_000_000)));
        assert_eq!(turn_of(&rig, submitter), turn * ms, "one behind the other");
    }
}

#[test]
fn what_was_left_of_a_slice_counts_at_the_next_turn() {
    let mut rig = Rig::new();
    rig.set("low_latency", "0");
    let ms = MS as i64;
    for step in 0..4 {
        rig.insert(rq(1, 1000 + step * 128));
    }
    rig.turn(MS);
    rig.later(30 * MS);
    rig.insert(at_level(Class::RealTime, 4, rq(2, 90_000_000)));
    assert_eq!(turn_of(&rig, 1), 80 * ms - 70 * ms, "70 of 100 ms were left");
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn a_kind_is_served_for_its_part_of_the_target_and_the_rest_is_kept_for_later() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(background(2, 90_000_000));
    let group = rig.cfq.queue(QueueId(0)).group;
    let ns = |rig: &Rig, kind| rig.cfq.workload_ns(group, Class::BestEffort, kind);
    assert_eq!(ns(&rig, names::Kind::Sync), 150 * MS);
    assert_eq!(ns(&rig, names::Kind::Async), 60 * MS, "two fifths of it");
    rig.turn(MS);
    rig.later(49 * MS);
    rig.cfq.expire(false, rig.now);
    let saved = rig.cfq.groups[group].saved.expect("a part is left");
    assert_eq!((saved.left_ns, saved.kind), (100 * MS, names::Kind::Sync));
    for writer in 3..40 {
        rig.insert(at_level(Class::RealTime, 0, rq(writer, u64::from(writer) * 1_000_000)));
    }
    rig.set("target_latency", "1");
    let real_time = rig.cfq.workload_ns(group, Class::RealTime, names::Kind::Sync);
    assert_eq!(real_time, 16 * MS, "twice slice_idle at least");
    assert_eq!(ns(&rig, names::Kind::Async), 2 * MS);
}

#[test]
fn when_service_is_counted_otherwise_what_groups_had_before_is_forgotten() {
    let mut rig = Rig::with(&setup(false, 2));
    rig.cfq.set_queueing(false);
    let of = |group: u16, at: u64| Rq { group: GroupId(group.into()), ..rq(group, at) };
    for step in 0..100 {
        rig.insert(of(1, 1000 + step * 128));
        rig.insert(of(2, 90_000_000 + step * 128));
    }
    // Charged in time: a hundred million for a slice, where a request will count as one.
    let mut served = 0;
    while served == 0 || rig.active().is_some() {
        served = rig.turn(5 * MS).group.0;
    }
    rig.cfq.set_queueing(true);
    let other = 3 - served;
    let mut turns = 0;
    while rig.turn(5 * MS).group.0 == other {
        turns += 1;
        assert!(turns < 50, "the group that was served first starves");
    }
}

#[test]
fn a_sync_request_ends_an_async_slice_at_once() {
    let mut rig = Rig::new();
    for write in 0..20 {
        rig.insert(background(1, write * 1000 + 1000));
    }
    let write = rig.turn(MS);
    assert_eq!(write.op, Op::Write);
    rig.insert(rq(2, 90_000_000));
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn real_time_cuts_in_on_best_effort_and_never_the_other_way() {
    let mut rig = Rig::new();
    for step in 0..4 {
        rig.insert(rq(1, 1000 + step * 128));
    }
    assert_eq!(rig.serve(), Some(1));
    rig.insert(at_level(Class::RealTime, 7, rq(2, 90_000_000)));
    rig.insert(at_level(Class::RealTime, 7, rq(2, 90_000_128)));
    assert_eq!(rig.serve(), Some(2));
    rig.insert(at_level(Class::BestEffort, 0, rq(3, 50_000_000)));
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn among_equals_those_cut_in_for_whom_waiting_does_not_pay() {
    let write = |submitter, at| Rq { op: Op::Write, flags: Flags::SYNC, ..rq(submitter, at) };
    // SYNC-NOIDLE queues are not idled for one by one: the next of them goes on at once.
    let mut rig = Rig::new();
    rig.insert(write(1, 1000));
    assert_eq!(rig.serve(), Some(1));
    rig.insert(write(2, 90_000_000));
    assert!(rig.active().is_none());
    // The queue in service has more, but what is wanted urgently goes first.
    let mut rig = Rig::new();
    for step in 0..3 {
        rig.insert(rq(1, 1000 + step * 128));
    }
    assert_eq!(rig.serve(), Some(1));
    rig.insert(rq(2, 80_000_000));
    assert!(rig.active().is_some(), "an equal");
    rig.insert(Rq { flags: Flags::META, ..rq(3, 90_000_000) });
    assert_eq!(rig.serve(), Some(3));
    // It is empty, and the device is not kept for it.
    let mut rig = Rig::new();
    rig.set("slice_idle", "0");
    rig.insert(rq(1, 1000));
    assert_eq!(rig.serve(), Some(1));
    rig.insert(rq(2, 90_000_000));
    assert!(rig.active().is_none());
    // The device is kept for it, and another process reads at the head.
    for (at, cuts_in) in [(1128 + 8192, true), (1128 + 8193, false)] {
        let mut rig = Rig::new();
        rig.insert(rq(1, 1000));
        rig.turn(MS);
        rig.insert(rq(2, at));
        assert_eq!(rig.active().is_none(), cuts_in, "{at}");
    }
}

#[test]
fn the_idle_class_never_has_two_requests_in_flight() {
    let mut rig = Rig::new();
    for step in 0..4 {
        rig.insert(at_level(Class::Idle, 0, rq(1, 1000 + step * 128)));
    }
    let first = rig.dispatch().expect("nobody else wants the device");
    assert_eq!(rig.dispatch(), None);
    rig.later(MS);
    rig.complete(&first);
    assert_eq!(rig.serve(), Some(1));
    assert_eq!(rig.dispatch(), None);
    rig.insert(rq(2, 90_000_000));
    assert_eq!(rig.serve(), Some(2), "anybody cuts in on the idle class");
}

/// A queue that was answered and has nothing more, while another one waits.
fn idling_rig() -> Rig {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.turn(MS);
    rig.insert(rq(2, 90_000_000));
    assert_eq!(rig.dispatch(), None, "the device is kept for the first");
    assert_eq!(rig.cfq.wake_at(), Some(rig.now + 8 * MS));
    rig
}

#[test]
fn an_empty_queue_is_waited_for_8_ms_and_goes_on_with_its_slice() {
    let mut rig = idling_rig();
    let slice = rig.active().expect("in service").slot.ends_at;
    rig.later(7 * MS);
    rig.insert(rq(1, 1128));
    assert_eq!(rig.serve(), Some(1));
    assert_eq!(rig.active().expect("in service").slot.ends_at, slice, "the same slice");
    assert_eq!(rig.cfq.wake_at(), None);
}

#[test]
fn a_queue_that_comes_after_9_ms_finds_another_in_service() {
    // With the timer called in time, and found to be over when the request comes.
    for called in [true, false] {
        let mut rig = idling_rig();
        if called {
            rig.later(8 * MS);
            rig.cfq.on_timer(rig.now);
            assert_eq!(rig.serve(), Some(2));
            rig.later(MS);
        } else {
            rig.later(9 * MS);
        }
        rig.insert(rq(1, 1128));
        let next = if called { None } else { Some(2) };
        assert_eq!(rig.serve(), next, "called in time: {called}");
        assert_eq!(rig.active().map(|queue| queue.slot.dispatched), Some(1));
    }
}

#[test]
fn a_queue_without_a_process_is_not_waited_for() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 90_000_000));
    let first = rig.dispatch().expect("a request");
    rig.cfq.context_ended(SubmitterId(1), rig.now);
    rig.later(MS);
    rig.complete(&first);
    assert_eq!(rig.cfq.wake_at(), None);
    assert_eq!(rig.serve(), Some(2));
}

#[test]
fn async_depth_comes_back_one_for_each_slice_after_a_late_sync_request() {
    let depth_after = |low_latency: &str, ms: u64| {
        let mut rig = Rig::new();
        rig.set("low_latency", low_latency);
        rig.set("quantum", "64");
        rig.insert(rq(1, 1000));
        let read = rig.dispatch().expect("the read");
        let accepted_at = rig.now;
        rig.later(130 * MS);
        rig.complete_since(&read, accepted_at);
        rig.cfq.context_ended(SubmitterId(1), rig.now);
        rig.later(ms * MS);
        for write in 0..40 {
            rig.insert(background(2, write * 1000 + 1000));
        }
        std::iter::from_fn(|| rig.dispatch()).count()
    };
    for (ms, depth) in [(0, 1), (99, 1), (100, 1), (199, 1), (200, 2), (399, 3), (1000, 10)] {
        assert_eq!(depth_after("1", ms), depth, "{ms} ms after");
    }
    assert_eq!(depth_after("0", 0), 40, "no ramp without low_latency");
}

#[test]
fn an_async_slot_ends_after_so_many_requests_by_level() {
    let cap = |level: u8| {
        let mut rig = Rig::new();
        rig.set("low_latency", "0");
        rig.set("quantum", "64");
        for write in 0..50 {
            rig.insert(at_level(Class::BestEffort, level, background(1, write * 1000 + 1000)));
        }
        // Another queue that wants its turn.
        let other = if level == 7 { 6 } else { 7 };
        rig.insert(at_level(Class::BestEffort, other, background(2, 90_000_000)));
        let slot = std::iter::from_fn(|| {
            assert_eq!(rig.serve(), Some(1));
            rig.active().map(|queue| queue.slot.dispatched)
        });
        slot.last().map_or(1, |dispatched| dispatched + 1)
    };
    let caps: [u64; 8] = std::array::from_fn(|level| cap(level as u8));
    assert_eq!(caps, [32, 28, 24, 20, 16, 12, 8, 4]);
}

#[test]
fn the_oldest_request_is_served_first_once_in_a_slice_when_it_is_overdue() {
    let mut rig = Rig::new();
    let far = [900_000, 800_000];
    for sector in far {
        rig.insert(rq(1, sector));
    }
    rig.later(126 * MS);
    for step in 1..=4 {
        rig.insert(rq(1, step * 200));
    }
    let order: Vec<u64> = (0..6).map(|_| rig.turn(MS).sector).collect();
    // The other one is overdue as well, and waits until the head comes by.
    assert_eq!(order, [900_000, 200, 400, 600, 800, 800_000]);
}

#[test]
fn a_queue_on_flash_is_not_waited_for() {
    let mut rig = Rig::with(&setup(false, 2));
    let tunables: &dyn Tunables = rig.cfq.tunables();
    let shown = ["slice_idle", "slice_idle_us", "group_idle"].map(|name| tunables.show(name));
    assert_eq!(shown.map(|text| text.expect("a tunable")), ["0", "0", "8"]);
    rig.insert(rq(1, 1000));
    rig.insert(rq(2, 90_000_000));
    rig.turn(MS);
    assert_eq!((rig.cfq.wake_at(), rig.serve()), (None, Some(2)));
}

#[test]
fn a_drain_takes_everything_out_in_the_order_of_turns_and_positions() {
    let mut rig = Rig::new();
    let mut expected = Vec::new();
    for client in 0..10u16 {
        for step in 0..20u64 {
            // From the top down, so that only sorting brings them up.
            let sector = u64::from(client) * 1_000_000 + (20 - step) * 1000;
            let tag = rig.insert(match client % 3 {
                0 => background(client, sector),
                1 => rq(client, sector),
                _ => Rq { group: GroupId(u32::from(client)), ..rq(client, sector) },
            });
            expected.push(tag);
        }
    }
    for _ in 0..3 {
        rig.dispatch();
    }
    assert_eq!(rig.cfq.staged(), 197);
    let mut out = Vec::new();
    rig.cfq.drain(&mut out, rig.now);
    assert_eq!((out.len(), rig.cfq.staged()), (197, 0));
    let mut tags: Vec<_> = out.iter().map(|rq| rq.tag).collect();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 197);
    let turns = out.chunk_by(|a, b| a.id.submitter() == b.id.submitter() && a.sector < b.sector);
    assert!(turns.count() <= 12, "queue by queue");
    for rq in out {
        rig.complete(&rq);
    }
}

#[test]
fn a_process_that_changes_its_group_gets_a_queue_there() {
    let mut rig = Rig::new();
    rig.insert(rq(1, 1000));
    let queue = rig.cfq.present_queue(&rq(1, 0));
    rig.insert(Rq { group: GroupId(7), ..rq(1, 2000) });
    assert_ne!(rig.cfq.present_queue(&rq(1, 0)), queue);
    let mut served = 0;
    for _ in 0..20 {
        if let Some(rq) = rig.dispatch() {
            served += 1;
            rig.later(MS);
            rig.complete(&rq);
        }
        rig.later(9 * MS);
        rig.cfq.on_timer(rig.now);
    }
    assert_eq!(served, 2);
    assert_eq!(rig.cfq.free_queues.len(), 1, "the old queue is free again");
}

#[test]
fn a_shared_queue_that_jumps_is_taken_apart_again() {
    let mut rig = Rig::new();
    // Two processes, each reading what the other leaves out.
    let mut at = 1000;
    rig.insert(rq(1, at));
    let mut turns = 0;
    while rig.cfq.present_queue(&rq(1, 0)) != rig.cfq.present_queue(&rq(2, 0)) {
        turns += 1;
        assert!(turns < 20, "they share within 20 turns");
        let next = 1 + turns % 2;
        at += 128;
        rig.insert(rq(next as u16, at));
        rig.turn(MS);
    }
    let shared = rig.cfq.present_queue(&rq(1, 0)).expect("a queue");
    assert_eq!((rig.cfq.queue(shared).processes, rig.cfq.queue(shared).shared), (2, true));
    for jump in 0..8 {
        rig.insert(rq(1, (jump % 2) * 500_000_000 + 1000));
        if let Some(rq) = rig.dispatch() {
            rig.complete(&rq);
        }
        rig.later(20 * MS);
        rig.cfq.on_timer(rig.now);
    }
    rig.insert(rq(1, 70_000_000));
    rig.insert(rq(2, 80_000_000));
    assert_ne!(rig.cfq.present_queue(&rq(1, 0)), rig.cfq.present_queue(&rq(2, 0)));
}

#[test]
fn metadata_lifts_a_queue_to_the_middle_level_while_it_is_submitted() {
    let mut rig = Rig::new();
    let idle = at_level(Class::Idle, 0, rq(1, 1000));
    rig.insert(Rq { flags: Flags::META, ..idle });
    let id = rig.cfq.present_queue(&idle).expect("a queue");
    assert_eq!(rig.cfq.queue(id).priority.class, Class::BestEffort);
    rig.insert(Rq { sector: 5000, ..idle });
    assert_eq!(rig.cfq.queue(id).priority.class, Class::Idle);
}

#[test]
fn bios_merge_into_requests_of_their_own_queue_only() {
    let mut rig = Rig::with(&setup(true, 0));
    let bio = |submitter, sector| Rq { sectors: 8, ..rq(submitter, sector) };
    let first = rig.insert(bio(1, 1000));
    assert_eq!(rig.cfq.merge(&bio(1, 1008), rig.now), Merge::Back(first));
    assert_eq!(rig.cfq.merge(&bio(1, 992), rig.now), Merge::Front(first));
    assert_eq!(rig.cfq.merge(&bio(2, 1016), rig.now), Merge::No);
    let far = rig.insert(bio(1, 5000));
    assert_eq!(rig.cfq.merge(&bio(1, 4992), rig.now), Merge::Front(far));
    let gap = rig.insert(bio(1, 1024));
    assert_eq!(rig.cfq.merge(&bio(1, 1016), rig.now), Merge::BackJoined { kept: first, gone: gap });
    let other = rig.insert(bio(2, 1032));
    assert!(rig.absorbed.is_empty(), "{:?}", rig.absorbed);
    let last = rig.insert(bio(1, 1032));
    assert_eq!(rig.absorbed, [(first, last)]);
    let out: Vec<_> = std::iter::from_fn(|| {
        rig.later(10 * MS);
        rig.cfq.on_timer(rig.now);
        let rq = rig.dispatch()?;
        rig.complete(&rq);
        Some((rq.tag, rq.sector, rq.sectors))
    })
    .collect();
    assert_eq!(out, [(first, 992, 48), (far, 4992, 16), (other, 1032, 8)]);
}

#[test]
fn a_request_that_takes_an_older_one_in_takes_its_deadline_too() {
    let mut rig = Rig::with(&setup(true, 0));
    let bio = |sector| Rq { sectors: 8, ..rq(1, sector) };
    let old = rig.insert(bio(1016));
    let deadline = rig.cfq.node(old).deadline;
    rig.later(MS);
    let kept = rig.insert(bio(1000));
    // The cache knows the older one, which then joins the one before it.
    let join = Merge::FrontJoined { kept, gone: old };
    assert_eq!(rig.cfq.merge(&bio(1008), rig.now), join);
    assert_eq!(rig.cfq.node(kept).deadline, deadline);
}

#[test]
fn a_recorded_choice_is_followed_and_the_books_stay_in_order() {
    let mut rig = Rig::with(&setup(true, 0));
    rig.insert(rq(1, 1000));
    let recorded = rig.insert(rq(2, 90_000_000));
    let merged = rq(2, 90_000_128);
    rig.cfq.force_merge(recorded, &merged, Side::Back);
    let taken = rig.cfq.take_out(recorded, rig.now);
    assert_eq!((taken.sector, taken.sectors), (90_000_000, 256));
    assert_eq!(rig.cfq.position, taken.end());
    rig.later(MS);
    rig.complete(&taken);
    rig.later(9 * MS);
    rig.cfq.on_timer(rig.now);
    let rest = rig.turn(MS);
    assert_eq!(rest.id.submitter(), SubmitterId(1));
    rig.assert_at_rest();
}

impl Rig {
    /// Lets the last timer fire and looks for anything left on the books.
    fn assert_at_rest(&mut self) {
        while let Some(at) = self.cfq.wake_at() {
            self.now = self.now.max(at);
            self.cfq.on_timer(self.now);
        }
        let now = self.now;
        self.cfq.expire(false, now);
        let cfq = &self.cfq;
        assert_eq!((cfq.staged(), cfq.in_flight), (0, [0, 0]));
        assert_eq!((cfq.busy_queues, cfq.busy_sync_queues), (0, 0));
        assert!(cfq.groups.is_at_rest());
        assert!(cfq.close.iter().all(Sorted::is_empty));
        assert!(cfq.last_merge.is_none());
        for queue in &cfq.queues {
            assert!(queue.place.is_none() && queue.next.is_none() && queue.is_empty());
            assert_eq!((queue.in_flight, queue.favoured), (0, 0));
        }
    }
}

/// Random events, and what must hold after each of them.
struct Fuzz {
    rig: Rig,
    prng: Prng,
    in_flight: Vec<Rq>,
    /// Sectors staged or in flight, by tag.
    sectors: Vec<u32>,
    inserted: u64,
    ended: u64,
    trace: u64,
}

impl Fuzz {
    fn new(seed: u64) -> Fuzz {
        let mut prng = Prng::new(seed);
        let nomerges = prng.below(3) as u8;
        let mut rig = Rig::with(&setup(prng.percent(60), nomerges));
        rig.cfq.group_parent(GroupId(3), GroupId(2));
        Fuzz {
            rig,
            prng,
            in_flight: Vec::new(),
            sectors: vec![0; usize::from(TAGS)],
            inserted: 0,
            ended: 0,
            trace: 0,
        }
    }

    fn note(&mut self, what: u64) {
        self.trace = (self.trace.rotate_left(7) ^ what).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn random_rq(&mut self) -> Rq {
        let prng = &mut self.prng;
        let submitter = prng.below(12);
        let area = if prng.percent(50) { submitter } else { 0 };
        let flags = [Flags::NONE, Flags::SYNC, Flags::SYNC | Flags::IDLE, Flags::META];
        let op = [Op::Read, Op::Read, Op::Write, Op::Write, Op::Discard];
        let class = [Class::None, Class::RealTime, Class::BestEffort, Class::Idle];
        // Mostly the same for one submitter, so that merges and sharing happen.
        let own = if prng.percent(90) { submitter } else { prng.below(12) };
        Rq {
            sector: area * 3_000_000 + prng.below(300) * 8,
            sectors: 8 * (1 + prng.below(4) as u32),
            flags: flags[prng.below(4) as usize],
            op: op[prng.below(5) as usize],
            group: GroupId((own % 5) as u32),
            ioprio: IoPrio::new(class[(own % 4) as usize], (own % 8) as u8),
            ..rq(submitter as u16, 0)
        }
    }

    fn insert(&mut self) {
        let bio = self.random_rq();
        let now = self.rig.now;
        let tag = match self.rig.cfq.merge(&bio, now) {
            Merge::No => {
                if self.rig.free.is_empty() {
                    return;
                }
                self.inserted += 1;
                let tag = self.rig.insert(bio);
                self.sectors[usize::from(tag.0)] = bio.sectors;
                let absorbed = std::mem::take(&mut self.rig.absorbed);
                absorbed.iter().for_each(|(kept, gone)| self.join(*kept, *gone));
                tag
            }
            Merge::Back(tag) | Merge::Front(tag) => {
                self.sectors[usize::from(tag.0)] += bio.sectors;
                tag
            }
            Merge::BackJoined { kept, gone } | Merge::FrontJoined { kept, gone } => {
                self.sectors[usize::from(kept.0)] += bio.sectors;
                self.join(kept, gone);
                kept
            }
        };
        self.note(u64::from(tag.0));
    }

    fn join(&mut self, kept: SchedTag, gone: SchedTag) {
        let sectors = std::mem::take(&mut self.sectors[usize::from(gone.0)]);
        assert!(sectors > 0, "a request disappears once");
        self.sectors[usize::from(kept.0)] += sectors;
        self.rig.free.push(gone.0);
        self.ended += 1;
    }

    fn pump(&mut self) {
        if self.rig.cfq.wake_at().is_some_and(|at| at <= self.rig.now) {
            self.rig.cfq.on_timer(self.rig.now);
        }
        while let Some(rq) = self.rig.dispatch() {
            assert_eq!(self.sectors[usize::from(rq.tag.0)], rq.sectors, "it leaves once, whole");
            self.note(u64::from(rq.tag.0) << 16 | self.rig.now.0);
            self.in_flight.push(rq);
        }
        let stranded = self.rig.cfq.staged() > 0 && self.in_flight.is_empty();
        assert!(!stranded || self.rig.cfq.wake_at().is_some(), "requests are stranded");
    }

    fn end_one(&mut self) {
        let at = self.prng.below(self.in_flight.len() as u64) as usize;
        let rq = self.in_flight.swap_remove(at);
        self.sectors[usize::from(rq.tag.0)] = 0;
        if self.prng.percent(3) {
            let now = self.rig.now;
            let end = Ended { handed_back: true, ..Ended::untimed(rq.tag) };
            self.rig.cfq.ended(&end, now);
            self.rig.free.push(rq.tag.0);
            self.ended += 1;
            return;
        }
        let accepted_at = self.rig.now - self.prng.below(200 * MS);
        self.rig.complete_since(&rq, accepted_at);
        self.ended += 1;
    }

    fn control(&mut self) {
        let now = self.rig.now;
        match self.prng.below(6) {
            0 => {
                let submitter = SubmitterId(self.prng.below(12) as u16);
                self.rig.cfq.context_ended(submitter, now);
            }
            1 => {
                let group = GroupId(self.prng.below(5) as u32);
                let weight = 1 + self.prng.below(1000) as u16;
                self.rig.cfq.group_weight_changed(group, weight, now);
            }
            2 => {
                let group = GroupId(self.prng.below(5) as u32);
                self.rig.cfq.leaf_weight_changed(group, 500);
            }
            3 => {
                let parent = GroupId(self.prng.below(2) as u32);
                self.rig.cfq.group_parent(GroupId(4), parent);
            }
            4 => {
                let row = &TUNABLES[self.prng.below(TUNABLES.len() as u64) as usize];
                let most = row.most.min(2 * row.default + 2).max(row.least);
                let span = (most - row.least + 1) as u64;
                let value = row.least + i128::from(self.prng.below(span));
                self.rig.cfq.tunables().put(row.name, value);
            }
            _ => {
                let mut out = Vec::new();
                self.rig.cfq.drain(&mut out, now);
                assert_eq!(self.rig.cfq.staged(), 0);
                self.in_flight.extend(out);
            }
        }
    }

    fn event(&mut self) {
        let step = match self.prng.below(10) {
            0..6 => self.prng.below(MS / 4),
            6..9 => self.prng.below(4 * MS),
            _ => self.prng.below(40 * MS),
        };
        self.rig.later(step);
        match self.prng.below(100) {
            0..45 => self.insert(),
            45..97 if !self.in_flight.is_empty() => self.end_one(),
            45..98 => {}
            98 if self.prng.percent(20) => self.control(),
            _ => {}
        }
        self.pump();
    }

    /// Ends everything, and answers what happened as one number.
    fn finish(mut self) -> u64 {
        let mut rounds = 0;
        while self.rig.cfq.staged() > 0 || !self.in_flight.is_empty() {
            rounds += 1;
            assert!(rounds < 100_000, "it comes to an end");
            match self.in_flight.is_empty() {
                true => self.rig.now = self.rig.cfq.wake_at().unwrap_or(self.rig.now),
                false => self.end_one(),
            }
            self.rig.later(MS / 10);
            self.pump();
        }
        assert_eq!(self.inserted, self.ended);
        assert_eq!(self.rig.free.len(), usize::from(TAGS));
        self.rig.assert_at_rest();
        self.trace
    }
}

fn fuzz(seed: u64, events: u64) -> u64 {
    let mut fuzz = Fuzz::new(seed);
    for _ in 0..events {
        fuzz.event();
    }
    fuzz.finish()
}

#[test]
fn ten_thousand_random_sequences_lose_nothing_and_strand_nobody() {
    for seed in 0..10_000 {
        if seed % 1000 == 0 {
            println!("seed {seed}");
        }
        let outcome = std::panic::catch_unwind(|| fuzz(seed, 120));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_million_random_events_end_at_rest_and_repeat_exactly() {
    for seed in [1, 2] {
        println!("seed {seed}");
        assert_eq!(fuzz(seed, 250_000), fuzz(seed, 250_000));
    }
}
