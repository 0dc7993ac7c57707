//! The examples of docs/behaviour/kyber.md, section 9, the rules of both levels, and random
//! sequences.

use super::*;
use crate::contract::Absorbed;
use weir_bio::{Flags, GroupId, IoPrio, RqId, Status};

mod model;
mod random;
mod rules;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Late enough for a request that took 5 s.
const START: Nanos = Nanos(100 * S);

const READ: usize = 0;
const WRITE: usize = 1;
const DISCARD: usize = 2;

fn setup(hard_queues: u16, compat: &'static str) -> Setup {
    let limits = Limits { max_hw_sectors: 64, max_hw_discard_sectors: 64, ..Limits::default() };
    Setup { limits, nr_requests: 256, hard_queues, nomerges: 0, compat }
}

fn kyber(hard_queues: u16, compat: &'static str) -> Kyber {
    Kyber::new(&setup(hard_queues, compat))
}

fn rq(tag: u16, context: u16, op: Op, sector: u64) -> Rq {
    Rq {
        sector,
        sectors: 8,
        id: RqId::new(SubmitterId(context), tag, 0),
        flags: Flags::SYNC,
        group: GroupId(0),
        ioprio: IoPrio::NONE,
        hint: 0,
        tag: SchedTag(tag),
        op,
        segments: 1,
    }
}

fn bio(context: u16, op: Op, sector: u64, sectors: u32) -> Rq {
    Rq { tag: SchedTag::NONE, sectors, ..rq(0, context, op, sector) }
}

fn insert(kyber: &mut Kyber, rq: Rq) {
    let mut absorbed = Absorbed::new();
    kyber.insert(rq, START, &mut absorbed);
    assert!(absorbed.is_empty());
}

/// Requests with names, far from each other.
struct Scene {
    kyber: Kyber,
    names: Vec<String>,
}

impl Scene {
    fn new(kyber: Kyber) -> Scene {
        Scene { kyber, names: Vec::new() }
    }

    fn add(&mut self, name: &str, context: u16, op: Op, flags: Flags) {
        let tag = self.names.len() as u16;
        self.names.push(name.into());
        insert(&mut self.kyber, Rq { flags, ..rq(tag, context, op, 1000 * u64::from(tag)) });
    }

    fn add_many(&mut self, name: &str, count: usize, context: u16, op: Op) {
        for number in 0..count {
            self.add(&format!("{name}{number}"), context, op, Flags::SYNC);
        }
    }

    fn next(&mut self, hard_queue: u16) -> Option<&str> {
        let rq = self.kyber.dispatch(hard_queue, START)?;
        Some(&self.names[usize::from(rq.tag.0)])
    }

    fn rest(&mut self) -> String {
        let mut names = Vec::new();
        while let Some(name) = self.next(0) {
            names.push(name.to_string());
        }
        names.join(" ")
    }

    fn finish(&mut self, name: &str) {
        let tag = self.names.iter().position(|n| n == name).unwrap();
        // None of these scenes is about latencies.
        let end = Ended { handed_back: true, ..Ended::untimed(SchedTag(tag as u16)) };
        self.kyber.ended(&end, START);
    }
}

#[test]
fn example_12_domains_are_served_in_turn_a_batch_each() {
    let mut scene = Scene::new(kyber(1, ""));
    scene.add_many("r", 18, 0, Op::Read);
    scene.add_many("s", 2, 1, Op::Read);
    scene.add_many("w", 10, 0, Op::Write);
    scene.add_many("d", 2, 0, Op::Discard);
    scene.add_many("o", 1, 0, Op::WriteZeroes);
    assert_eq!(scene.next(0), Some("r0"));
    scene.add("late", 0, Op::Read, Flags::NONE);
    assert_eq!(
        scene.rest(),
        "r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 r13 r14 r15 w0 w1 w2 w3 w4 w5 w6 w7 d0 o0 \
         r16 r17 s0 s1 late w8 w9 d1"
    );
    assert_eq!(scene.kyber.staged(), 0);
}

#[test]
fn example_12b_a_finished_read_lets_the_waiting_hard_queue_go_on() {
    let mut scene = Scene::new(kyber(1, ""));
    scene.kyber.tokens.resize(READ, 2);
    scene.add_many("r", 4, 0, Op::Read);
    scene.add_many("w", 1, 0, Op::Write);
    assert_eq!(scene.rest(), "r0 r1 w0");
    let queue = &scene.kyber.staged.queues[0];
    assert_eq!((queue.domain, queue.batching), (WRITE, 0));
    assert_eq!(scene.kyber.tokens.waits(READ), 1);
    assert_eq!(scene.kyber.take_kicked(), 0, "nothing has been freed");
    scene.finish("r0");
    assert_eq!(scene.kyber.take_kicked(), 1);
    assert_eq!(scene.kyber.take_kicked(), 0, "it is told once");
    assert_eq!(scene.rest(), "r2");
}

#[test]
fn a_token_is_offered_to_the_hard_queue_that_has_waited_longest() {
    let mut scene = Scene::new(kyber(64, ""));
    scene.kyber.tokens.resize(READ, 1);
    for (context, hard_queue) in [(0, 0), (5, 63), (3, 2), (4, 1)] {
        scene.kyber.context_started(SubmitterId(context), hard_queue);
        scene.add(&format!("r{context}"), context, Op::Read, Flags::NONE);
        scene.add(&format!("again{context}"), context, Op::Read, Flags::NONE);
    }
    assert_eq!(scene.next(0), Some("r0"));
    for hard_queue in [63, 2, 1, 63] {
        assert_eq!(scene.next(hard_queue), None);
    }
    scene.finish("r0");
    assert_eq!(scene.kyber.take_kicked(), 1 << 63);
    assert_eq!(scene.next(63), Some("r5"));
    scene.finish("r5");
    assert_eq!(scene.kyber.take_kicked(), 1 << 2);
    // The first hard queue to come gets it; one that was called and found none waits again, behind
    // the others.
    assert_eq!(scene.next(63), Some("again5"));
    assert_eq!(scene.next(2), None);
    scene.finish("again5");
    assert_eq!(scene.kyber.take_kicked(), 1 << 1);
}

#[test]
fn a_depth_that_grows_calls_as_many_as_it_has_room_for() {
    let mut scene = Scene::new(kyber(4, ""));
    scene.kyber.tokens.resize(WRITE, 1);
    for context in 0..4 {
        scene.kyber.context_started(SubmitterId(context), context);
        scene.add_many(&format!("{context}w"), 2, context, Op::Write);
    }
    assert_eq!(scene.next(0), Some("0w0"));
    (0..4).for_each(|hard_queue| assert_eq!(scene.next(hard_queue), None));
    scene.kyber.tokens.resize(WRITE, 3);
    assert_eq!(scene.kyber.take_kicked(), 0b011);
}

#[test]
fn a_hard_queue_serves_its_own_contexts_alone() {
    let mut scene = Scene::new(kyber(2, ""));
    scene.kyber.context_started(SubmitterId(70), 1);
    scene.add("a", 70, Op::Read, Flags::NONE);
    scene.add("b", 0, Op::Read, Flags::NONE);
    assert!(scene.kyber.has_work(0) && scene.kyber.has_work(1));
    assert_eq!(scene.rest(), "b");
    assert!(!scene.kyber.has_work(0) && scene.kyber.has_work(1));
    assert_eq!(scene.next(1), Some("a"));
    assert!(!scene.kyber.has_work(1));
}

#[test]
fn a_request_that_was_handed_back_gives_its_token_to_the_next_and_is_no_latency() {
    let mut scene = Scene::new(kyber(1, ""));
    scene.kyber.tokens.resize(READ, 1);
    scene.add_many("r", 2, 0, Op::Read);
    assert_eq!(scene.rest(), "r0");
    let end = Ended { handed_back: true, ..Ended::untimed(SchedTag(0)) };
    scene.kyber.ended(&end, START + S);
    assert_eq!(scene.kyber.take_kicked(), 1);
    assert_eq!(scene.kyber.wake_at(), None, "nothing was measured");
    assert_eq!(scene.rest(), "r1");
    scene.kyber.ended(&Ended::untimed(SchedTag(1)), START + S);
    assert!(scene.kyber.wake_at().is_some(), "this was");
    assert_eq!(scene.kyber.tokens.in_use(READ), 0);
}

#[test]
fn a_batch_goes_on_when_the_engine_finds_nothing_staged() {
    let mut scene = Scene::new(kyber(1, ""));
    let mut out = Vec::new();
    for round in 0..4 {
        scene.add_many(&format!("{round}r"), 5, 0, Op::Read);
        scene.add_many(&format!("{round}w"), 1, 0, Op::Write);
        scene.kyber.dispatch_batch(0, 5, &mut out, START);
    }
    scene.kyber.dispatch_batch(0, 99, &mut out, START);
    let reads = out.iter().take_while(|rq| rq.op == Op::Read).count();
    assert_eq!(reads, 16);
    let queue = &scene.kyber.staged.queues[0];
    let before = (queue.domain, queue.batching);
    scene.kyber.dispatch_batch(0, 99, &mut out, START);
    let queue = &scene.kyber.staged.queues[0];
    assert_eq!((queue.domain, queue.batching), before);
}

mod merging {
    use super::*;

    #[test]
    fn a_bio_joins_the_newest_neighbour_of_its_context_and_domain() {
        let mut kyber = kyber(1, "");
        kyber.context_started(SubmitterId(1), 0);
        insert(&mut kyber, rq(0, 0, Op::Write, 100));
        insert(&mut kyber, rq(1, 0, Op::Write, 116));
        let merge = |kyber: &mut Kyber, bio| kyber.merge(&bio, START);
        assert_eq!(merge(&mut kyber, bio(1, Op::Write, 108, 8)), Merge::No, "another context");
        assert_eq!(merge(&mut kyber, bio(0, Op::Read, 108, 8)), Merge::No, "another domain");
        let front = merge(&mut kyber, bio(0, Op::Write, 108, 8));
        assert_eq!(front, Merge::Front(SchedTag(1)), "the newest first, and no further join");
        let back = merge(&mut kyber, bio(0, Op::Write, 124, 4));
        assert_eq!(back, Merge::Back(SchedTag(1)));
        let sizes: Vec<_> = std::iter::from_fn(|| kyber.dispatch(0, START)).collect();
        let sizes: Vec<_> = sizes.iter().map(|rq| (rq.sector, rq.sectors, rq.segments)).collect();
        assert_eq!(sizes, [(100, 8, 1), (108, 20, 3)]);
    }

    #[test]
    fn the_ninth_newest_is_not_looked_at() {
        let mut kyber = kyber(1, "");
        for tag in 0..9 {
            insert(&mut kyber, rq(tag, 0, Op::Read, 1000 * u64::from(tag)));
        }
        assert_eq!(kyber.merge(&bio(0, Op::Read, 8, 8), START), Merge::No);
        let second = kyber.merge(&bio(0, Op::Read, 1008, 8), START);
        assert_eq!(second, Merge::Back(SchedTag(1)));
    }

    #[test]
    fn what_is_flushed_is_merged_with_no_more() {
        let mut kyber = kyber(1, "");
        insert(&mut kyber, rq(0, 0, Op::Read, 0));
        insert(&mut kyber, rq(1, 0, Op::Read, 1000));
        kyber.dispatch(0, START);
        assert_eq!(kyber.merge(&bio(0, Op::Read, 1008, 8), START), Merge::No);
    }

    #[test]
    fn without_a_token_nothing_is_flushed_and_merging_goes_on() {
        let mut kyber = kyber(1, "");
        kyber.tokens.resize(READ, 1);
        insert(&mut kyber, rq(0, 0, Op::Read, 0));
        assert!(kyber.dispatch(0, START).is_some());
        insert(&mut kyber, rq(1, 0, Op::Read, 1000));
        assert_eq!(kyber.dispatch(0, START), None);
        let merge = kyber.merge(&bio(0, Op::Read, 1008, 8), START);
        assert_eq!(merge, Merge::Back(SchedTag(1)));
    }

    #[test]
    fn a_neighbour_that_is_full_ends_the_search_for_good() {
        let mut kyber = kyber(1, "");
        insert(&mut kyber, Rq { sectors: 60, ..rq(0, 0, Op::Write, 0) });
        insert(&mut kyber, rq(1, 0, Op::Write, 68));
        insert(&mut kyber, Rq { sectors: 60, ..rq(2, 0, Op::Write, 1060) });
        assert_eq!(kyber.merge(&bio(0, Op::Write, 1120, 8), START), Merge::No);
        assert_eq!(kyber.merge(&bio(0, Op::Write, 1120, 4), START), Merge::No, "it has NOMERGE");
        let rest = kyber.merge(&bio(0, Op::Write, 60, 8), START);
        assert_eq!(rest, Merge::Front(SchedTag(1)), "the newest decides");
    }

    #[test]
    fn nomerges_1_changes_nothing_and_2_ends_merging() {
        let mut kyber = kyber(1, "");
        insert(&mut kyber, rq(0, 0, Op::Write, 0));
        kyber.limits_changed(&setup(1, "").limits, 1);
        let merge = kyber.merge(&bio(0, Op::Write, 8, 8), START);
        assert_eq!(merge, Merge::Back(SchedTag(0)));
        kyber.limits_changed(&setup(1, "").limits, 2);
        assert_eq!(kyber.merge(&bio(0, Op::Write, 16, 8), START), Merge::No);
    }
}

mod percentiles {
    use super::*;

    /// `count` requests that end now, `total` ns after they came and `io` ns after their issue.
    fn feed(kyber: &mut Kyber, now: Nanos, count: usize, op: Op, total: u64, io: u64) {
        for _ in 0..count {
            insert(kyber, rq(0, 0, op, 0));
            assert!(kyber.dispatch(0, now).is_some(), "a token for one at a time");
            let tag = SchedTag(0);
            let (status, done_at) = (Status::Ok, now);
            let (accepted_at, issued_at) = (now - total, now - io);
            let handed_back = false;
            let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
            kyber.ended(&end, now);
        }
    }

    fn fire(kyber: &mut Kyber, now: Nanos) {
        assert_eq!(kyber.wake_at(), Some(now));
        kyber.on_timer(now);
        assert_eq!(kyber.wake_at(), None, "it is armed by samples alone");
    }

    fn depths(kyber: &Kyber) -> [u32; 4] {
        std::array::from_fn(|domain| kyber.tokens.depth(domain))
    }

    fn remembered(kyber: &Kyber) -> [Option<usize>; WATCHED] {
        match &kyber.monitor {
            Monitor::Percentiles(percentiles) => percentiles.remembered(),
            Monitor::Windows(_) => unreachable!("level 6.18"),
        }
    }

    #[test]
    fn example_13_a_to_e_depths_follow_the_percentiles() {
        let mut kyber = kyber(1, "");
        let at = |ms: u64| START + ms * MS;
        feed(&mut kyber, at(0), 500, Op::Read, 3 * MS / 2, 2 * MS / 5);
        feed(&mut kyber, at(0), 94, Op::Read, 3 * MS / 2, 13 * MS / 5);
        feed(&mut kyber, at(0), 6, Op::Read, 39 * MS / 10, 13 * MS / 5);
        fire(&mut kyber, at(100));
        assert_eq!(depths(&kyber), [192, 128, 64, 16], "a");
        assert_eq!(remembered(&kyber), [None; 3], "a");

        feed(&mut kyber, at(150), 500, Op::Read, 27 * MS / 10, 2 * MS / 5);
        fire(&mut kyber, at(250));
        assert_eq!(depths(&kyber), [256, 128, 64, 16], "b");
        assert_eq!(remembered(&kyber), [Some(5), None, None], "b");

        feed(&mut kyber, at(300), 500, Op::Read, 3 * MS / 10, 3 * MS / 10);
        feed(&mut kyber, at(300), 500, Op::Write, 10 * MS, 10 * MS + 1);
        fire(&mut kyber, at(400));
        assert_eq!(depths(&kyber), [64, 128, 64, 16], "c");
        assert_eq!(remembered(&kyber), [None; 3], "c");

        feed(&mut kyber, at(450), 500, Op::Read, 3 * MS / 10, 3 * MS / 10);
        fire(&mut kyber, at(550));
        assert_eq!(depths(&kyber), [64, 128, 64, 16], "d");
        assert_eq!(remembered(&kyber), [Some(0), None, None], "d");

        feed(&mut kyber, at(600), 500, Op::Discard, 5 * S + 1, 5 * S + 1);
        fire(&mut kyber, at(700));
        assert_eq!(depths(&kyber), [16, 128, 64, 16], "e");
        assert_eq!(remembered(&kyber), [None; 3], "e");
    }

    #[test]
    fn example_13_f_few_samples_starve_the_total_until_it_has_enough_of_its_own() {
        let mut kyber = kyber(1, "");
        for tick in 1..=61_u64 {
            let at = |tick: u64| START + tick * 100 * MS;
            feed(&mut kyber, at(tick - 1), 10, Op::Read, MS, 3 * MS);
            let before = kyber.clone();
            fire(&mut kyber, at(tick));
            let congested = match &before.monitor {
                Monitor::Percentiles(percentiles) => percentiles.clone().is_congested(at(tick)),
                Monitor::Windows(_) => unreachable!("level 6.18"),
            };
            assert_eq!(congested, [11, 21, 31, 41, 61].contains(&tick), "tick {tick}");
            let expected = if tick < 61 { 256 } else { 128 };
            assert_eq!(kyber.tokens.depth(READ), expected, "tick {tick}");
            let p99 = if (50..61).contains(&tick) { Some(1) } else { None };
            assert_eq!(remembered(&kyber)[READ], p99, "tick {tick}");
        }
    }

    #[test]
    fn the_timer_is_armed_by_the_first_sample_and_not_by_what_nobody_watches() {
        let mut kyber = kyber(1, "");
        feed(&mut kyber, START, 1, Op::WriteZeroes, MS, MS);
        assert_eq!(kyber.wake_at(), None);
        feed(&mut kyber, START, 1, Op::Read, MS, MS);
        feed(&mut kyber, START + MS, 1, Op::Write, MS, MS);
        assert_eq!(kyber.wake_at(), Some(START + 100 * MS));
    }

    #[test]
    fn a_new_target_judges_the_samples_that_come_after_it() {
        for (before, after, expected) in [(500, 0, 128), (0, 500, 256)] {
            let mut kyber = kyber(1, "");
            kyber.tokens.resize(READ, 128);
            feed(&mut kyber, START, before, Op::Read, MS, MS);
            kyber.tunables().set("read_lat_nsec", "1000").unwrap();
            feed(&mut kyber, START, after, Op::Read, MS, MS);
            fire(&mut kyber, START + 100 * MS);
            assert_eq!(kyber.tokens.depth(READ), expected, "{before} before, {after} after");
        }
    }

    #[test]
    fn a_depth_never_falls_below_one() {
        let mut kyber = kyber(1, "");
        kyber.tokens.resize(READ, 1);
        feed(&mut kyber, START, 500, Op::Read, 1, 1);
        feed(&mut kyber, START, 500, Op::Write, 1, S);
        fire(&mut kyber, START + 100 * MS);
        assert_eq!(depths(&kyber), [1, 32, 64, 16]);
    }
}

mod means {
    use super::*;

    fn end(kyber: &mut Kyber, now: Nanos, op: Op, flags: Flags, io: u64) {
        insert(kyber, Rq { flags, ..rq(0, 0, op, 0) });
        assert!(kyber.dispatch(0, now).is_some(), "a token for one at a time");
        let (tag, status) = (SchedTag(0), Status::Ok);
        let (accepted_at, issued_at, done_at) = (START, now - io, now);
        let handed_back = false;
        let end = Ended { tag, status, handed_back, accepted_at, issued_at, done_at };
        kyber.ended(&end, now);
    }

    fn depths(kyber: &Kyber) -> [u32; 3] {
        std::array::from_fn(|domain| kyber.tokens.depth(domain))
    }

    #[test]
    fn writes_that_nobody_waits_for_are_in_the_domain_of_the_rest() {
        let mut scene = Scene::new(kyber(1, "4.12"));
        let none = Flags::NONE;
        for (name, op, flags) in [
            ("async0", Op::Write, none),
            ("d0", Op::Discard, Flags::SYNC),
            ("w0", Op::Write, Flags::SYNC),
            ("fua", Op::Write, Flags::FUA),
            ("r0", Op::Read, none),
            ("async1", Op::Write, none),
        ] {
            scene.add(name, 0, op, flags);
        }
        assert_eq!(scene.rest(), "r0 w0 fua async0 d0 async1");
    }

    #[test]
    fn all_domains_of_all_contexts_are_flushed_at_once_before_a_token_is_asked_for() {
        let mut scene = Scene::new(kyber(1, "4.12"));
        scene.kyber.tokens.resize(READ, 1);
        scene.add_many("w", 2, 1, Op::Write);
        scene.add_many("r", 2, 0, Op::Read);
        assert_eq!(scene.next(0), Some("r0"));
        let merge = scene.kyber.merge(&bio(1, Op::Write, 8, 8), START);
        assert_eq!(merge, Merge::No, "writes went with the reads");
        scene.add("late", 0, Op::Write, Flags::SYNC);
        assert_eq!(scene.next(0), Some("w0"));
        let merge = scene.kyber.merge(&bio(0, Op::Write, 4008, 8), START);
        assert_eq!(merge, Merge::Back(SchedTag(4)), "a write was left, so nothing was flushed");
        assert_eq!(scene.rest(), "w1 late");
        scene.finish("r0");
        assert_eq!(scene.rest(), "r1");
    }

    #[test]
    fn batches_are_16_8_and_8() {
        let mut scene = Scene::new(kyber(1, "4.12"));
        scene.add_many("d", 9, 0, Op::Discard);
        scene.add_many("w", 9, 0, Op::Write);
        scene.add_many("r", 17, 0, Op::Read);
        let order = scene.rest();
        let kinds: String = order.split(' ').map(|name| &name[..1]).collect();
        let batches = ["r".repeat(16), "w".repeat(8), "d".repeat(8), "rwd".into()];
        assert_eq!(kinds, batches.concat());
    }

    #[test]
    fn a_request_that_misses_its_target_opens_a_window_of_10_ms() {
        let mut kyber = kyber(1, "4.12");
        end(&mut kyber, START, Op::Read, Flags::NONE, 2 * MS);
        end(&mut kyber, START, Op::Discard, Flags::NONE, 9 * S);
        assert_eq!(kyber.wake_at(), None, "2 ms is the target, and nobody watches the rest");
        end(&mut kyber, START, Op::Read, Flags::NONE, 3 * MS);
        assert_eq!(kyber.wake_at(), Some(START + 10 * MS));
        // The mean is 3 ms: what came before the window does not count.
        end(&mut kyber, START + MS, Op::Write, Flags::SYNC, 5 * MS);
        end(&mut kyber, START + MS, Op::Write, Flags::NONE, S);
        kyber.on_timer(START + 10 * MS);
        // Reads bad, writes great: writes give a quarter, reads are at their most.
        assert_eq!(depths(&kyber), [256, 96, 64]);
        assert_eq!(kyber.wake_at(), Some(START + 110 * MS), "somebody fared ill");
        kyber.on_timer(START + 110 * MS);
        assert_eq!(depths(&kyber), [256, 96, 64], "no samples, no change");
        assert_eq!(kyber.wake_at(), None);
    }

    #[test]
    fn the_rest_is_watched_until_it_has_its_depth_back() {
        let mut kyber = kyber(1, "4.12");
        end(&mut kyber, START, Op::Read, Flags::NONE, 4 * MS);
        end(&mut kyber, START, Op::Write, Flags::NONE, MS);
        kyber.on_timer(START + 10 * MS);
        assert_eq!(depths(&kyber), [256, 128, 32], "reads fared awfully");
        for round in 0..16 {
            let now = kyber.wake_at().expect("a window is open");
            assert_eq!(now, START + (110 + round * 100) * MS);
            kyber.on_timer(now);
        }
        assert_eq!(depths(&kyber), [256, 128, 64]);
        assert_eq!(kyber.wake_at(), None);
    }
}

#[test]
fn requests_nobody_waits_for_get_three_quarters_of_the_tags() {
    let mut kyber = kyber(1, "");
    let context = SubmitterId(0);
    assert_eq!(kyber.depth_limit(Op::Write, false, context), Some(192));
    assert_eq!(kyber.depth_limit(Op::Write, true, context), None);
    kyber.depth_changed(7);
    assert_eq!(kyber.depth_limit(Op::Discard, false, context), Some(5));
    kyber.depth_changed(1);
    assert_eq!(kyber.depth_limit(Op::Discard, false, context), Some(1), "never none");
}

#[test]
fn the_tunables_are_two_latencies_of_64_bits() {
    let mut kyber = kyber(1, "");
    let tunables = kyber.tunables();
    assert_eq!(tunables.show("read_lat_nsec").unwrap(), "2000000");
    assert_eq!(tunables.show("write_lat_nsec").unwrap(), "10000000");
    tunables.set("write_lat_nsec", "18446744073709551615\n").unwrap();
    tunables.set("read_lat_nsec", "0").unwrap();
    assert!(tunables.set("read_lat_nsec", "-1").is_err());
    assert_eq!(tunables.show("write_lat_nsec").unwrap(), "18446744073709551615");
    // Nothing but 4 ns is good enough for a target of 0.
    let buckets: Vec<_> = (0..7).map(|ns| kyber.targets.bucket(READ, ns)).collect();
    assert_eq!(buckets, [0, 0, 1, 2, 3, 4, 5]);
    assert_eq!(kyber.targets.bucket(WRITE, u64::MAX), 4, "four quarters, rounded down");
    assert_eq!(kyber.targets.bucket(DISCARD, 5 * S), 3);
}

mod replays {
    use super::*;

    #[test]
    fn a_request_taken_out_counts_as_chosen() {
        let mut scene = Scene::new(kyber(1, ""));
        scene.add_many("r", 3, 0, Op::Read);
        scene.add_many("w", 9, 0, Op::Write);
        let taken = scene.kyber.take_out(SchedTag(3 + 4), START);
        assert_eq!(taken.tag, SchedTag(7));
        assert_eq!(scene.kyber.tokens.in_use(WRITE), 1);
        // One write of the batch is out, so seven more follow before the reads.
        assert_eq!(scene.rest(), "w0 w1 w2 w3 w5 w6 w7 r0 r1 r2 w8");
        scene.finish("w4");
        assert_eq!(scene.kyber.tokens.in_use(WRITE), 8);
    }

    #[test]
    fn one_that_came_after_the_flush_can_be_taken_out_too() {
        for compat in ["6.18", "4.12"] {
            let mut scene = Scene::new(kyber(1, compat));
            scene.add_many("r", 2, 0, Op::Read);
            assert_eq!(scene.next(0), Some("r0"));
            scene.add_many("late", 2, 0, Op::Read);
            assert_eq!(scene.kyber.take_out(SchedTag(3), START).tag, SchedTag(3));
            assert_eq!(scene.rest(), "r1 late0", "{compat}");
            assert_eq!(scene.kyber.staged(), 0);
        }
    }

    #[test]
    fn a_forced_merge_is_seen_by_later_ones_and_by_dispatch() {
        let mut kyber = kyber(1, "");
        insert(&mut kyber, rq(0, 0, Op::Write, 100));
        kyber.force_merge(SchedTag(0), &bio(0, Op::Write, 92, 8), Side::Front);
        let merge = kyber.merge(&bio(0, Op::Write, 88, 4), START);
        assert_eq!(merge, Merge::Front(SchedTag(0)));
        let copy = kyber.boxed_clone();
        let rq = kyber.dispatch(0, START).unwrap();
        assert_eq!((rq.sector, rq.sectors), (88, 20));
        assert_eq!(copy.staged(), 1, "a copy stays as it was");
    }
}
