//! Single rules at their bounds, where an example passes by.

use super::*;

#[test]
fn new_limits_count_from_the_next_merge() {
    let mut kyber = kyber(1, "");
    insert(&mut kyber, rq(0, 0, Op::Write, 0));
    let limits = Limits { max_hw_sectors: 16, ..setup(1, "").limits };
    kyber.limits_changed(&limits, 0);
    let merge = kyber.merge(&bio(0, Op::Write, 8, 8), START);
    assert_eq!(merge, Merge::Back(SchedTag(0)));
    assert_eq!(kyber.merge(&bio(0, Op::Write, 16, 8), START), Merge::No, "it is full");
}

#[test]
fn requests_taken_out_one_after_the_other_are_of_one_batch() {
    let mut scene = Scene::new(kyber(1, ""));
    scene.add_many("r", 1, 0, Op::Read);
    scene.add_many("w", 20, 0, Op::Write);
    for tag in 1..=6 {
        scene.kyber.take_out(SchedTag(tag), START);
    }
    let queue = &scene.kyber.staged.queues[0];
    assert_eq!((queue.domain, queue.batching, queue.staged), (WRITE, 6, 15));
    for (tag, batching) in [(7, 7), (8, 8), (9, 1)] {
        scene.kyber.take_out(SchedTag(tag), START);
        assert_eq!(scene.kyber.staged.queues[0].batching, batching, "a batch is of 8");
    }
}

#[test]
fn a_run_goes_to_the_end_of_the_batch_of_the_tokens_of_what_waits_or_of_what_is_asked_for() {
    for (reads, tokens, max, run) in
        [(30, 256, 99, 15), (30, 7, 99, 6), (10, 256, 99, 9), (30, 256, 4, 4), (30, 1, 99, 0)]
    {
        let mut scene = Scene::new(kyber(1, ""));
        scene.kyber.tokens.resize(READ, tokens);
        scene.add_many("r", reads, 0, Op::Read);
        assert_eq!(scene.next(0), Some("r0"));
        let mut out = Vec::new();
        let case = (reads, tokens, max);
        assert_eq!(scene.kyber.take_run(0, max, &mut out), run, "{case:?}");
        let tags: Vec<usize> = out.iter().map(|rq| usize::from(rq.tag.0)).collect();
        assert_eq!(tags, (1..=run).collect::<Vec<_>>(), "{case:?}");
        assert_eq!(scene.kyber.tokens.in_use(READ) as usize, 1 + run);
        assert_eq!(scene.kyber.staged.queues[0].batching as usize, 1 + run);
        assert_eq!(scene.kyber.staged(), reads - 1 - run);
        assert_eq!(scene.kyber.staged.queues[0].staged as usize, reads - 1 - run);
    }
}

/// Reads that end now, so many of each: after so many ns, of which so many since their issue.
fn answer(kyber: &mut Kyber, reads: &[(usize, u64, u64)]) {
    for (count, total, issued) in reads {
        for _ in 0..*count {
            insert(kyber, rq(0, 0, Op::Read, 0));
            assert!(kyber.dispatch(0, START).is_some(), "a token for one at a time");
            let (accepted_at, issued_at) = (START - *total, START - *issued);
            let end =
                Ended { accepted_at, issued_at, done_at: START, ..Ended::untimed(SchedTag(0)) };
            kyber.ended(&end, START);
        }
    }
    kyber.on_timer(START + 100 * MS);
}

#[test]
fn without_congestion_a_depth_changes_from_the_first_bucket_beyond_the_target_on() {
    // The target is 2 ms, a bucket half a millisecond.
    let quick = 4 * MS / 10;
    for (total, depth) in [(19 * MS / 10, 100), (21 * MS / 10, 125), (26 * MS / 10, 150)] {
        let mut kyber = kyber(1, "");
        kyber.tokens.resize(READ, 100);
        answer(&mut kyber, &[(500, total, quick)]);
        assert_eq!(kyber.tokens.depth(READ), depth, "after {total} ns");
    }
}

#[test]
fn a_percentile_is_the_bucket_in_which_so_many_samples_are_reached_with_those_below() {
    // Reads in bucket 0, 1 and 4 since their issue; whether more than a tenth took too long.
    for (counts, congested) in [
        ([250, 250, 0], false),
        ([225, 225, 50], false),
        ([225, 224, 51], true),
        ([0, 450, 50], false),
        ([0, 0, 500], true),
    ] {
        let mut kyber = kyber(1, "");
        kyber.tokens.resize(READ, 100);
        let issued = [4 * MS / 10, 9 * MS / 10, 21 * MS / 10];
        let reads: Vec<_> =
            counts.iter().zip(issued).map(|(n, ns)| (*n, 21 * MS / 10, ns)).collect();
        // The whole takes long for all: with congestion the depth is set, and that is not kept.
        answer(&mut kyber, &reads);
        assert_eq!(kyber.tokens.depth(READ), 125);
        let Monitor::Percentiles(percentiles) = &kyber.monitor else { unreachable!("level 6.18") };
        let kept = if congested { None } else { Some(4) };
        assert_eq!(percentiles.remembered()[READ], kept, "{counts:?}");
    }
}

#[test]
fn a_batch_ends_behind_the_first_that_merges() {
    for (sectors, taken) in [
        ([1000, 2000, 3000], (3, Merge::No)),
        ([1000, 1008, 3000], (2, Merge::Back(SchedTag(0)))),
        ([1000, 2000, 1992], (3, Merge::Front(SchedTag(1)))),
    ] {
        let mut kyber = kyber(1, "");
        let batch: Vec<Rq> = (0..).zip(sectors).map(|(tag, at)| rq(tag, 0, Op::Read, at)).collect();
        assert_eq!(kyber.stage_batch(&batch, START, &mut Absorbed::new()), taken, "{sectors:?}");
    }
}

#[test]
fn a_tag_that_a_context_had_once_leads_to_no_request_of_another() {
    let mut kyber = kyber(1, "");
    let turn = |kyber: &mut Kyber, rq: Rq| {
        insert(kyber, rq);
        assert!(kyber.dispatch(0, START).is_some());
        kyber.ended(&Ended { handed_back: true, ..Ended::untimed(rq.tag) }, START);
    };
    turn(&mut kyber, rq(0, 0, Op::Read, 500));
    insert(&mut kyber, rq(0, 0, Op::Write, 100));
    assert_eq!(kyber.merge(&bio(0, Op::Write, 108, 8), START), Merge::Back(SchedTag(0)));
    assert!(kyber.dispatch(0, START).is_some());
    kyber.ended(&Ended { handed_back: true, ..Ended::untimed(SchedTag(0)) }, START);
    insert(&mut kyber, Rq { sectors: 16, ..rq(0, 1, Op::Read, 100) });
    assert_eq!(kyber.merge(&bio(0, Op::Read, 116, 8), START), Merge::No);
    assert_eq!(kyber.merge(&bio(1, Op::Read, 116, 8), START), Merge::Back(SchedTag(0)));
}
